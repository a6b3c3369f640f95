-- fault_spec.lua: a process that is killed, stops, fails, never starts or has another script: all end, with a
-- message that names it and says where the others stand, and none is left.
--
-- A rank is killed at a place of the script; with `build/meshlua -e 'KILLS=20' tests/specs.lua
-- tests/dist/fault_spec.lua` at as many moments of the clock, too.
local helper = require "spec.helper"
local mpi = require "dist.mpi"
local shell = helper.shell

local KILLS = rawget(_G, "KILLS") or 0
local GPU = rawget(_G, "GPU") -- on one that all share, where NCCL takes its time to begin: see script/test-gpu
local GRACE = GPU and 20 or 5
local SETTINGS = mpi.SETTINGS .. (GPU and "export MESHLUA_DEVICES=cuda:0\n" or "")

-- At step 20 the rank arg[1] runs arg[2].
local SCRIPT = [[
  local ml = require "meshlua"
  local mesh = ml.make_mesh({ml.device_count()}, {"data"})
  local step = ml.jit(function(v)
    return v + v:sum() * 0
  end, {mesh = mesh})
  local x = ml.device_put(ml.ones {12}, ml.NamedSharding(mesh, ml.P "data"))
  local odd = tonumber(arg[1]) == ml.process_index()
  for i = 1, 1e6 do
    if i == 20 and odd then
      if arg[2] == "error" then error "only here" end
      os.execute(arg[2])
    end
    x = step(x)
  end
]]
local WAITING = " wait since [%d.]+ s in [%w_]+.-lua:4 %(exchange %d+%)"

local function now()
  return tonumber((shell "date +%s.%N"))
end

--- The processes whose command line names the file: zombies have none.
local function left(file)
  local name = file:match "[^/]+$"
  return (shell(("grep -lz '[%s]%s' /proc/[0-9]*/cmdline 2>/dev/null"):format(name:sub(1, 1), name:sub(2))))
end

--- Runs the command, in which %s is the file: all end within `seconds` and GRACE, with the code.
---@return string err
local function ends(code, seconds, file, command)
  local start = now()
  local _, err, status = shell(SETTINGS .. "timeout -s KILL 60 " .. command:format(file))
  local took = now() - start
  assert.equal(code, status, err)
  assert.truthy(took < seconds + GRACE, ("%.1f s: %s"):format(took, err))
  for _ = 1, 20 do
    if left(file) == "" then return err end
    shell "sleep 0.1"
  end
  error("left: " .. left(file))
end

local limit

--- Seconds that a process may wait for others: well above what a start takes here, which on a machine with other work
--- may be long. Only what is to end behind it is given one.
local function timeout()
  if limit then return limit end
  local start = now()
  local _, err, code = shell(SETTINGS .. [[mpirun -np 3 "$MESHLUA" -e "require('meshlua').process_count()"]])
  assert.equal(0, code, err)
  limit = math.max(GPU and 15 or helper.watched and 3 or 1, math.ceil(4 * (now() - start)))
  return limit
end

local RUN = [[mpirun -np 3 "$MESHLUA" %s ]]

describe("of many processes", function()
  for rank = helper.watched and 2 or 0, 2 do
    mpi.it("one is killed, and all end: rank " .. rank, function()
      local err = ends(137, 1, helper.file(SCRIPT, ".lua"), RUN .. rank .. " 'kill -KILL $PPID'")
      assert.truthy(err:find("meshlua: rank " .. rank .. " is gone without a word", 1, true), err)
      assert.truthy(err:find(WAITING) or err:find(WAITING:gsub("wait", "waits")), err)
    end)
  end

  mpi.it("one stops, and all end behind the timeout", function()
    local err = ends(5, timeout() + 1, helper.file(SCRIPT, ".lua"),
      RUN:gsub("%%s", "--timeout=" .. timeout() .. " %0") .. "1 'kill -STOP $PPID'")
    assert.truthy(err:find "meshlua: rank 1 does not answer %(stopped, or its host is lost%); rank %d", err)
    assert.truthy(err:find("ranks 0, 2" .. WAITING), err)
  end)

  mpi.it("one fails, and all end with its message, once", function()
    local err = ends(1, 1, helper.file(SCRIPT, ".lua"), RUN .. "2 error")
    assert.truthy(err:find "meshlua: rank 2: %S+lua:10: only here\n", err)
    assert.equal(1, select(2, err:gsub("only here", "")), err)
  end)

  mpi.it("one has another script, and none runs", function()
    local other = helper.file(SCRIPT .. "\n", ".lua")
    local err = ends(3, 1, helper.file(SCRIPT, ".lua"),
      [[mpirun -np 2 "$MESHLUA" %s : -np 1 "$MESHLUA" ]] .. other)
    assert.truthy(err:find("[E_RANKS] rank 2 (", 1, true), err)
    assert.truthy(err:find(" runs another script than rank 0 (", 1, true), err)
    assert.truthy(err:find(other, 1, true), err)
  end)

  mpi.it("one has another recipe, and none runs", function()
    local other = helper.file("return {name = 'other'}", ".lua")
    local err = ends(3, 1, helper.file("return {name = 'this'}", ".lua"),
      [[mpirun -np 1 "$MESHLUA" train %s : -np 1 "$MESHLUA" train ]] .. other)
    assert.truthy(err:find("[E_RANKS] rank 1 (", 1, true), err)
    assert.truthy(err:find(" runs another script than rank 0 (", 1, true), err)
  end)

  mpi.it("one never starts, and none waits longer than the timeout", function()
    local start = [[mpirun -np 3 sh -c 'test $OMPI_COMM_WORLD_RANK = 1 && exec sleep 100
      exec "$MESHLUA" --timeout=]] .. timeout() .. " %s'"
    local err = ends(3, timeout() + 1, helper.file(SCRIPT, ".lua"), start)
    assert.truthy(err:find(("[E_RANKS] rank 1 did not start within %d s"):format(timeout()), 1, true), err)
  end)

  mpi.it("one comes twice or not at all, without MPI", function()
    local port = 20000 + math.random(20000)
    local function run(a, b)
      return select(2, shell(([[
        export WORLD_SIZE=4 MASTER_ADDR=127.0.0.1 MASTER_PORT=%d LOCAL_RANK=0 MESHLUA_TIMEOUT=1
        RANK=%d "$MESHLUA" -e "" & RANK=%d "$MESHLUA" -e ""; echo $? >&2; wait]]):format(port, a, b)))
    end
    local err = run(2, 0)
    assert.truthy(err:find("no launcher of MPI started them, so they cannot exchange data; start them " ..
      "with mpirun -np 4 meshlua SCRIPT, or srun --mpi=pmix; "
      .. "ranks 1, 3 did not start within 1 s\n3\n", 1, true), err)
    assert.truthy(run(0, 0):find("two processes say that they are rank 0", 1, true))
  end)

  for i = 1, KILLS do
    mpi.it("one is killed at some moment: " .. i, function()
      local file = helper.file(SCRIPT, ".lua")
      local rank, seconds = math.random(0, 2), 0.3 + math.random()
      local name = file:match "[^/]+$"
      local err = ends(137, seconds, file, ([[sh -c 'mpirun -np 3 "$MESHLUA" --timeout=%d %%s 9 & sleep %.3f
        for f in $(grep -lz "[%s]%s" /proc/[0-9]*/cmdline); do
          p=${f%%%%/cmdline}
          grep -qz OMPI_COMM_WORLD_RANK=%d $p/environ && kill -9 ${p#/proc/}
        done
        wait $!']]):format(timeout(), seconds, name:sub(1, 1), name:sub(2), rank))
      assert.truthy(err:find("meshlua: rank " .. rank .. " is gone without a word", 1, true) or
        err:find("process rank " .. rank .. " ", 1, true), err)
    end)
  end
end)
