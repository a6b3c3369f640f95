-- stranger_spec.lua: who is not of a job takes no place in it and keeps nobody out: attackers on another host,
-- as a network namespace, against ranks of which one is on the attacker's host. See stranger.c.
local helper = require "spec.helper"
local hosts = require "dist.hosts"
local mpi = require "dist.mpi"
local shell = helper.shell

local STRANGER = helper.program():match "^(.*)/[^/]*$" .. "/dist_stranger"
local UNKNOWING = "who waits where rank 0 should does not know the secret (MESHLUA_SECRET)"
local SECRET, OTHER = "a secret of sixteen bytes or more", "another secret of as many bytes"

local port = 29600 -- of the last job

--- A job of three ranks while `attack` goes on; rank 1 and rank 2 (on the attacker's host) come last. `with`: when
--- (before: the attacker comes before rank 0, after: behind all ranks), host (the attacker's, 2), more (a shell
--- text for further processes, before rank 1), rank1 (the text that starts that), seconds (the timeout).
---@return string out what they said: "joined" of each, then "codes" and the exit codes of the ranks
---@return string err
local function play(attack, with)
  port = port + 2
  with = with or {}
  local attacker = attack and ('on %d "$S" %s 10.99.7.1 PORT & bad="$bad $!"'):format(with.host or 2, attack)
  local function at(when) return attacker and (with.when or "between") == when and attacker or "" end
  local text = table.concat({
    ("export S=%s ASAN_OPTIONS=detect_leaks=0 MESHLUA_SECRET='%s'"):format(STRANGER, SECRET),
    'on() { n=$1; shift; exec ip netns exec ' .. hosts.NAME .. '$n "$@"; }',
    'job() { on $1 "$S" job $2 3 10.99.7.1 PORT SECONDS a; }',
    at "before",
    at "before" ~= "" and "sleep 0.1" or "",
    "job 1 0 & r0=$!",
    at "between",
    with.more or "",
    "sleep 0.15",
    with.rank1 or "job 1 1 & r1=$!",
    "job 2 2 & r2=$!",
    at "after",
    'for r in $r0 $r1 $r2; do wait $r; codes="$codes $?"; done',
    '[ -z "$bad" ] || kill -9 $bad',
    "wait",
    'echo "codes$codes"',
  }, "\n")
  local out, err = shell((text:gsub("PORT", port):gsub("SECONDS", with.seconds or 10)))
  return out, err
end

--- The job runs, whatever the attacker does. What else was said.
local function runs(attack, with)
  local out, err = play(attack, with)
  assert.equal(("joined\n"):rep(3) .. "codes 0 0 0\n", out, err)
  return err
end

--- The job ends, and all of `parts` are said.
local function ends(attack, with, parts)
  local out, err = play(attack, with)
  assert.equal("codes 3 3 3\n", out, err)
  for _, part in ipairs(parts) do
    assert.truthy(err:find((part:gsub("PORT", port)), 1, true), part .. "\n" .. err)
  end
end

--- A spec with the two hosts, which all share.
local function check(name, fn)
  it(name, function()
    if hosts.why then helper.pending(hosts.why) end
    fn()
  end)
end

describe("a stranger", function()
  setup(function() if not hosts.why then hosts.up() end end)
  teardown(function() if not hosts.why then hosts.down() end end)

  for _, row in ipairs {
    {"slow", "hundreds of guests that send a byte now and then"},
    {"silent", "hundreds of guests that say nothing"},
    {"many", "a flood of connections"},
    {"forged", "words of each rank, with proofs that are made up"},
    {"reflected", "rank 0's own words"},
    {"truncated", "words that end in their middle, connections half open"},
    {"huge", "frames of gigabytes"},
    {"garbage", "what is no protocol of ours"},
    {"orders", "orders to end"},
  } do
    check("does not keep a job from running: " .. row[2], function() assert.equal("", runs(row[1])) end)
  end

  check("that comes behind all ranks finds nobody", function()
    assert.equal("", runs("forged", {when = "after"}))
  end)

  check("that waits where rank 0 should ends no rank: they do so, and name the place", function()
    ends("early", {when = "before", host = 1, seconds = 1}, {
      "rank 0: another program waits where rank 0 should; choose another port (10.99.7.1, port PORT)\n",
      "rank 1: " .. UNKNOWING .. " (10.99.7.1, port PORT)\n",
    })
  end)

  local impostor = 'MESHLUA_SECRET="%s" on 2 "$S" job 1 3 10.99.7.1 PORT %d %s &'
  local turned_away = "meshlua: [E_RANKS] rank 1: rank 0 turned this process away: have both the same secret "
    .. "(MESHLUA_SECRET)? (10.99.7.1, port PORT)\n"

  -- Who is turned away tries again, and says in the end what it met.
  check("that replays what a rank said, has another secret or is of another job takes no place", function()
    local victim = 'on 1 "$S" job 1 3 10.99.7.2 $((PORT + 1)) 1 a &\n'
    local more = victim .. impostor:format(OTHER, 1, "a") .. impostor:format(SECRET, 1, "b")
    local err = runs("replay", {more = more, rank1 = "sleep 0.8; job 1 1 & r1=$!"})
    local fooled = ("meshlua: [E_RANKS] rank 1: %s (10.99.7.2, port %d)\n"):format(UNKNOWING, port + 1)
    assert.equal(#fooled + 2 * #turned_away:gsub("PORT", port), #err, err)
    assert.truthy(err:find(fooled, 1, true), err)
  end)

  check("in the place of a rank is named where the job does not start", function()
    ends(nil, {rank1 = impostor:format(OTHER, 1, "a") .. " r1=$!", seconds = 1}, {turned_away,
      "meshlua: [E_RANKS] rank 1 did not start within 1 s (--timeout); turned away: 10.99.7.2, which says "
      .. "that it is rank 1 and does not know the secret (MESHLUA_SECRET) ("})
  end)

  check("that knows the secret and says that it is rank 2, too, ends the job with its address", function()
    ends(nil, {rank1 = "job 1 2 & r1=$!; sleep 0.3"}, {"[E_RANKS] two processes say that they are rank 2: ",
      "(10.99.7.1) and ", "(10.99.7.2); give each its own rank\n"})
  end)
end)

-- A script that needs data of all.
local SCRIPT = [[
  local ml = require "meshlua"
  local mesh = ml.make_mesh({ml.device_count()}, {"x"})
  local x = ml.device_put(ml.arange(8.0), ml.NamedSharding(mesh, ml.P "x"))
  print(ml.jit(function(a) return a:sum() end)(x))
]]

describe("a secret", function()
  mpi.it("lets the processes of a job meet over TCP", function()
    local secret = helper.file(SECRET .. "\n")
    local out, err, code = shell(mpi.SETTINGS .. ([[chmod 600 %s; export MESHLUA_SECRET=@%s
      mpirun -np 2 sh -c 'export WORLD_SIZE=2 RANK=$OMPI_COMM_WORLD_RANK
      export LOCAL_RANK=$OMPI_COMM_WORLD_LOCAL_RANK MASTER_ADDR=127.0.0.1 MASTER_PORT=29601
      exec "$MESHLUA" --devices=2 --secret=require %s']]):format(secret, secret, helper.file(SCRIPT, ".lua")))
    assert.equal(0, code, err)
    assert.truthy(out:find "28", out)
    assert.falsy(err:find("warning", 1, true), err)
  end)

  local start = 'export WORLD_SIZE=2 RANK=%d LOCAL_RANK=0 MASTER_ADDR=127.0.0.1 MASTER_PORT=29603\n'
  it("that is missing is warned of, once, or an error", function()
    local warning = "meshlua: warning: whoever reaches 127.0.0.1, port 29603 can pass for a process of this "
      .. "job: there is no secret (MESHLUA_SECRET, the same for all processes)\n"
    local command = ' "$MESHLUA" --timeout=1 -e ""'
    local _, err = shell(start:format(0) .. command .. "& RANK=1" .. command .. "; wait")
    local from, to = err:find(warning, 1, true)
    assert.truthy(from and not err:find(warning, to, true), err)
    local _, refused, exit = shell(start:format(1) .. [["$MESHLUA" --secret=require -e '']])
    assert.equal(3, exit, refused)
    assert.truthy(refused:find("without a secret (--secret=require)", 1, true), refused)
  end)

  it("that others can read, that is short or on the command line is refused", function()
    local file = helper.file(SECRET)
    local modes = "others may read or write it (mode 0644); chmod 600 FILE"
    for _, row in ipairs {
      {"chmod 644 FILE; MESHLUA_SECRET=@FILE", "", 3, modes},
      {"MESHLUA_SECRET=@FILE.not", "", 3, "MESHLUA_SECRET=@FILE.not: No such file or directory"},
      {"MESHLUA_SECRET=short", "", 2, "MESHLUA_SECRET: a secret has 16 to 4096 bytes, this one has 5"},
      {"", "--secret=sixteen_bytes_or", 2, "--secret=: expected `require`; the secret itself goes into"},
    } do
      local words = start:format(0) .. row[1] .. ' "$MESHLUA" ' .. row[2] .. " -e ''"
      local _, err, code = shell((words:gsub("FILE", file)))
      assert.equal(row[3], code, err)
      assert.truthy(err:find((row[4]:gsub("FILE", file)), 1, true), err)
    end
  end)

  mpi.it("is made by --processes, one for each job, and not shown by --env", function()
    local code = [['for l in io.lines "/proc/self/environ" do print(l:match "MESHLUA_SECRET=(%x+)") end']]
    local first, err = shell('"$MESHLUA" --processes=2 -e ' .. code)
    local second = shell('"$MESHLUA" --processes=2 -e ' .. code)
    assert.truthy(first:match "^%x+\n$" and #first == 65, first .. err)
    assert.truthy(#second == 65 and first ~= second)
    local env = shell("MESHLUA_SECRET='" .. SECRET .. [[' "$MESHLUA" --env]])
    assert.falsy(env:find(SECRET, 1, true))
    assert.truthy(env:find "MESHLUA_SECRET[^\n]*%(set%)", env)
  end)
end)
