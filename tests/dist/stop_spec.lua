-- stop_spec.lua: SIGUSR1 and SIGTERM end a run behind a whole step, the same one in all processes, with 75.
local helper = require "spec.helper"
local mpi = require "dist.mpi"
local shell = helper.shell

local ENV = "export ASAN_OPTIONS=detect_leaks=0 OMPI_MCA_odls_base_sigkill_timeout=0\n"

-- Steps without end. At step 5 the last rank runs arg[2]. Each rank writes the step that it has finished last
-- into a file in the folder arg[1], and rank 0 says what its handler computes.
local STEPS = [[
  local ml = require "meshlua"
  local rank = ml.process_index()
  local mesh = ml.make_mesh({ml.device_count()}, {"x"})
  local step = ml.jit(function(v) return v + v:sum() * 0 end, {mesh = mesh})
  local x, last = ml.device_put(ml.ones {8}, ml.NamedSharding(mesh, ml.P "x")), 0
  ml.on_stop(function()
    local file <close> = io.open(arg[1] .. "/" .. rank, "w")
    file:write(last, "\n")
    print("handler", ml.all_gather_to_host(step(x)):sum():item())
  end)
  while true do
    x = step(x)
    last = last + 1
    if last == 5 and rank == ml.process_count() - 1 then os.execute(arg[2]) end
  end
]]

-- The same on two meshes: ranks 0 and 1 take three steps on theirs between those of all.
local SUBMESH = [[
  local ml = require "meshlua"
  local rank = ml.process_index()
  local function on(devices)
    local mesh = ml.Mesh(devices, {"x"})
    local step = ml.jit(function(v) return v + v:sum() * 0 end, {mesh = mesh})
    return step, ml.device_put(ml.ones {6}, ml.NamedSharding(mesh, ml.P "x"))
  end
  local some, x = on {0, 1}
  local all, y = on(ml.devices())
  local last = 0
  ml.on_stop(function()
    local file <close> = io.open(arg[1] .. "/" .. rank, "w")
    file:write(last, "\n")
    print("handler", ml.all_gather_to_host(all(y)):sum():item())
  end)
  for i = 1, 1e6 do
    for k = 1, 3 do
      if i == 5 and k == 1 and rank == 0 then os.execute(arg[2]) end
      x = some(x)
    end
    y = all(y)
    last = i
  end
]]

local TO_ITSELF = "kill -%s $PPID" -- of the shell that runs it
local TO_MPIRUN = "kill -%s $(ps -o ppid= -p $PPID)"
local TO_RUN = "kill -%s $(ps -o ppid= -p $(ps -o ppid= -p $PPID))"

--- Runs it, and gives the steps that the ranks wrote, in their order, too.
local function steps_of(start, command, script)
  local folder = shell "mktemp -d":match "%S+"
  local words = ("%s%s %s %s '%s'"):format(ENV, start, helper.file(script or STEPS, ".lua"), folder, command)
  local out, err, code = shell(words)
  local steps = shell(("cat %s/*; rm -r %s"):format(folder, folder))
  return out, err, code, steps
end

--- All stopped behind one step, and said so once.
local function check(ranks, cause, start, command)
  local out, err, code, steps = steps_of(start, command)
  assert.same({"handler\t8.0\n", 75}, {out, code}, err)
  local step = assert(math.tointeger(tonumber(steps:match "%d+")))
  assert.truthy(step >= 5)
  assert.equal((step .. "\n"):rep(ranks), steps)
  assert.truthy(err:find("lua:12: stopped by " .. cause .. "\n", 1, true), err)
  assert.equal(1, select(2, err:gsub("stopped by", "")), err)
end

describe("a signal to stop", function()
  it("ends one process behind its step", function()
    for _, name in ipairs {"USR1", "TERM"} do
      check(1, "SIG" .. name, '"$MESHLUA"', TO_ITSELF:format(name))
    end
  end)

  it("of the same kind again ends it at once, and so does any where nothing handles it", function()
    local code = [[
      require("meshlua").on_stop(function() end)
      os.execute "kill -%s $PPID; sleep 0.1; kill -%s $PPID; sleep 5"
    ]]
    assert.equal(128 + 15, select(3, shell(ENV .. '"$MESHLUA" ' .. helper.file(code:format("TERM", "TERM")))))
    local _, _, other = shell(ENV .. [["$MESHLUA" -e 'os.execute "kill -USR1 $PPID; sleep 1"']])
    assert.equal(128 + 10, other)
  end)

  it("can be caught, comes again at the next call, and does nothing where there is none", function()
    local code = [[
      local ml = require "meshlua"
      local step = ml.jit(function(x) return x + 1 end)
      local x, calls = ml.ones {2}, 0
      assert(ml.on_stop(print) == nil)
      assert(ml.on_stop(function() calls = calls + 1 end) == print)
      os.execute "kill -USR1 $PPID"
      for i = 1, 2 do
        local ok, err = pcall(step, x)
        assert(not ok and err:find("[E_STOP] stopped by SIGUSR1", 1, true) and calls == 1, err)
      end
      if arg[1] then step(x) end
      print "end"
    ]]
    local file = helper.file(code, ".lua")
    assert.same({"end\n", "", 0}, {helper.run {file}})
    assert.same({"", 75}, {(helper.run {file, "on"}), (select(3, helper.run {file, "on"}))})
  end)

  it("is an error where its handler has one", function()
    local code = [[
      local ml = require "meshlua"
      ml.on_stop(function() error "no room" end)
      os.execute "kill -TERM $PPID"
      local step = ml.jit(function(x) return x + 1 end)
      pcall(step, ml.ones {2})
      step(ml.ones {2})
    ]]
    local _, err, exit = helper.run {helper.file(code, ".lua")}
    assert.equal(1, exit)
    assert.truthy(err:find("lua:6: [E_STATE] the handler of ml.on_stop has failed", 1, true), err)
    local _, said, first = helper.run {helper.file(code:gsub("pcall%(step, (.-)%)\n", "step(%1)\n"), ".lua")}
    assert.equal(1, first)
    assert.truthy(said:find("lua:2: no room", 1, true), said)
  end)

  mpi.it("to the parent of --processes ends all processes behind the same step", function()
    check(2, "SIGUSR1", '"$MESHLUA" --processes=2', TO_RUN:format "TERM")
    check(4, "SIGUSR1", '"$MESHLUA" --processes=4', TO_RUN:format "USR1")
  end)

  mpi.it("to mpirun does, and to one of the processes", function()
    local start = mpi.SETTINGS .. 'mpirun -np 2 "$MESHLUA"'
    check(2, "SIGUSR1", start, TO_MPIRUN:format "USR1")
    check(2, "a signal to another process", start, TO_ITSELF:format "TERM")
  end)

  mpi.it("does not stop some of the processes: those that share a mesh wait for all", function()
    local start, command = mpi.SETTINGS .. 'mpirun -np 3 "$MESHLUA"', TO_ITSELF:format "USR1"
    local out, err, code, steps = steps_of(start, command, SUBMESH)
    assert.same({"handler\t6.0\n", 75, "5\n5\n5\n"}, {out, code, steps}, err)
  end)

  mpi.it("is not what ended a process whose peer is gone", function()
    local command = 'trap "" USR1; ' .. TO_MPIRUN:format "USR1" .. "; kill -KILL $PPID" -- the shell gets it, too
    local patient = mpi.SETTINGS .. "unset OMPI_MCA_odls_base_sigkill_timeout\n" -- rank 0 has a second to say it
    local out, err, code = steps_of(patient .. 'mpirun -np 2 "$MESHLUA"', command)
    assert.same({"", 137}, {out, code}, err)
    assert.truthy(err:find("meshlua: rank 1 is gone", 1, true), err)
    assert.falsy(err:find("stopped by", 1, true), err)
  end)

  --- Trains until a signal comes after some steps. What was said, how many steps, and the metrics.
  local function train(start, flags)
    local text = helper.file(("In the beginning was the word. "):rep(200))
    local out, err, code = shell(([[%s out=$(mktemp)
      %s models/train.lua --mesh=data:2 --rules=dp --layers=1 --width=16 --heads=2 --seq=16 --steps=1000000 \
        --log_every=1 --data=%s %s >$out & RUN=$!
      until grep -q "step  *10/" $out; do sleep 0.05; done
      kill -TERM $RUN; wait $RUN; code=$?; cat $out; rm $out; exit $code]]):format(ENV, start, text, flags))
    assert.equal(75, code, err)
    local steps = 0
    for step in out:gmatch "step +(%d+)/1000000 " do
      steps = steps + 1
      assert.equal(steps, tonumber(step))
    end
    return err, steps
  end

  it("ends training, with whole files", function()
    local metrics = helper.file ""
    local err, steps = train('"$MESHLUA" --devices=2', "--metrics=" .. metrics)
    local file <close> = io.open(metrics)
    local last
    for row in file:lines() do last = row end
    assert.equal(steps, math.tointeger(last:match '"step":%s*(%d+)'))
    assert.truthy(err:find("stopped by SIGTERM after step " .. steps .. "\n", 1, true), err)
  end)

  mpi.it("ends training in several processes", function()
    local err, steps = train('"$MESHLUA" --processes=2', "")
    assert.truthy(err:find("stopped by SIGUSR1 after step " .. steps .. "\n", 1, true), err)
  end)
end)
