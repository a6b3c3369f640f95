-- output_spec.lua: which of several processes' output reaches the user.
local core = require "meshlua.core"
local helper = require "spec.helper"
local mpi = require "dist.mpi"

local SCRIPT = [[
  local ml = require "meshlua"
  print("out", ml.process_index())
  io.write("a ", "part\nlast\n")
  io.stderr:write("err ", ml.process_index(), "\n")
  ml.jit(function(x) ml.debug_print("debug %s", x) return x end)(ml.ones {})
]]

--- The lines of a text, sorted: those of several ranks come in any order.
local function lines(text)
  local list = {}
  for line in text:gmatch "[^\n]+" do list[#list + 1] = line end
  table.sort(list)
  return list
end

--- What the library says at the start.
local function said(rank, world)
  return ("meshlua: rank %d of %d, local rank %d, by OpenMPI (OMPI_COMM_WORLD_RANK)"):format(rank, world,
    rank)
end

describe("the output of several processes", function()
  mpi.it("is that of rank 0", function()
    local out, err, code = mpi.run(3, 1, helper.file(SCRIPT, ".lua"))
    assert.same({"out\t0\na part\nlast\ndebug 1.0\n", 0}, {out, code}, err)
    assert.same({"err 0", said(0, 3)}, lines(err))
  end)

  mpi.it("says its rank in each line where several were asked for", function()
    local want = {}
    for _, rank in ipairs {0, 2} do
      for _, line in ipairs {"a part", "debug 1.0", "last", "out\t" .. rank} do
        want[#want + 1] = ("[r%d] %s"):format(rank, line)
      end
    end
    local out, err, code = mpi.run(3, 1, "--log-ranks=0,2 " .. helper.file(SCRIPT, ".lua"))
    assert.same({want, 0}, {lines(out), code}, err)
    assert.truthy(err:find("[r2] err 2\n", 1, true), err)
    assert.truthy(err:find("[r2] meshlua: rank 2 of 3", 1, true), err)
    assert.falsy(err:find("r1", 1, true), err)
  end)

  mpi.it("has of a tensor the parts that are here, or what is shown of all of it", function()
    local out, err, code = mpi.run(2, 1, helper.file([[
      local ml = require "meshlua"
      local x = ml.device_put(ml.arange(4000), ml.NamedSharding(ml.make_mesh({2}, {"x"}), ml.P "x"))
      local text = ml.show(x, {gather = true})
      print(x)
      print(text)]], ".lua"))
    assert.equal(0, code, err)
    assert.equal([[
int32[4000@x] on Mesh(x=2)
device 0 [1..2000]:
[   0    1    2 … 1997 1998 1999]
int32[4000@x] on Mesh(x=2)
[   0    1    2 … 3997 3998 3999]
]], out)
  end)

  mpi.it("is that of one as it is, where one other was asked for", function()
    local out, err = mpi.run(2, 1, "--log-ranks=1 " .. helper.file(SCRIPT, ".lua"))
    assert.equal("out\t1\na part\nlast\ndebug 1.0\n", out)
    assert.same({"err 1", said(1, 2)}, lines(err))
  end)

  mpi.it("has dumps and profiles with it", function()
    local stem, script = helper.file "", helper.file(SCRIPT, ".lua")
    local command = ([[
      mpirun -np 2 "$MESHLUA" --log-ranks=%%s --dump=plan:%s.txt --profile=%s.json %s >%s 2>&1
      ls %s.*; rm %s.*
    ]]):format(stem, stem, script, stem, stem, stem)
    local out = helper.shell(mpi.SETTINGS .. command:format "0" .. command:format "all")
    local names = {".json", ".txt", ".r0.json", ".r0.txt", ".r1.json", ".r1.txt"}
    assert.equal(stem .. table.concat(names, "\n" .. stem) .. "\n", out)
  end)

  mpi.it("that cannot be written is said by the parent of --processes", function()
    for closed, why in pairs {[">/dev/full"] = "No space left on device", [">&-"] = "Bad file descriptor"} do
      local _, err, code = helper.shell(mpi.SETTINGS
        .. ([["$MESHLUA" --processes=2 -e "print(1)" %s]]):format(closed))
      assert.equal(3, code, err)
      assert.truthy(err:find("meshlua: standard output: " .. why, 1, true), err)
    end
    local _, err = helper.shell(mpi.SETTINGS
      .. [[{ "$MESHLUA" --processes=2 -e "for i = 1, 1e5 do print(i) end"; echo $? >&2; } | head -1 \
        >/dev/null]])
    assert.truthy(err:find "141\n$" and not err:find "SIGPIPE", err)
  end)

  mpi.it("is asked for with a folder that holds no run, by all of them", function()
    local folder = os.tmpname()
    os.remove(folder)
    local _ <close> = setmetatable({}, {__close = function() core.disk_task {{"remove", folder}}:wait() end})
    local train = mpi.PROMPT .. [[mpirun -np 2 "$MESHLUA" models/train.lua --layers=1 --width=16 --heads=2 \
      --seq=8 --batch=8 --sample=0 --data=README.md --mesh=data:2 --rules=dp --steps=2 --out=]] .. folder
    local _, err, code = helper.shell(train)
    assert.equal(0, code, err)
    for _, flags in ipairs {"", " --overwrite --heads=3", " --overwrite --rules=dq"} do
      _, err, code = helper.shell(train .. flags)
      assert.equal(flags:find "heads" and 1 or 2, code, err)
      local wanted = flags == ""
        and "holds a run (config.json, config.lua, metrics.jsonl of 2 steps, result.json, 1 checkpoint)"
        or flags:match "=%w+$"
      assert.truthy(err:find(wanted, 1, true) or err:find("3 heads", 1, true), err)
    end
    local metrics <close> = io.open(folder .. "/metrics.jsonl")
    assert.equal(2, select(2, metrics:read "a":gsub("\n", "")))
    assert.equal(0, select(3, helper.shell(train .. " --overwrite")))
  end)

  it("is asked for with ranks that there are", function()
    for _, list in ipairs {"x", "1,", ",1", "1x", "-1", ""} do
      assert.equal(2, (select(3, helper.run {"--log-ranks=" .. list, "-e", ""})), list)
    end
    assert.same({"1\n", "", 0}, {helper.run {"--log-ranks=0,3", "-e", "print(1)"}})
  end)

  --- Three processes fail alike: it is said once.
  local function said_once(code, text, start)
    local _, err, status = helper.shell(mpi.PROMPT .. start)
    assert.equal(code, status, err)
    assert.equal(1, select(2, err:gsub(text, "")), err)
  end

  mpi.it("has an error that all have once", function()
    said_once(1, "%(command line%):1: same", [[mpirun -np 3 "$MESHLUA" -e "error 'same'"]])
    said_once(2, "E_MESH", [[mpirun -np 3 "$MESHLUA" --devices=x -e ""]])
    said_once(2, "%-%-log%-ranks=3: expected `all`, or ranks from 0 to 2",
      [[mpirun -np 3 "$MESHLUA" --log-ranks=3 -e ""]])
    said_once(3, "WORLD_SIZE=4 and OMPI_COMM_WORLD_SIZE=3 contradict",
      [[WORLD_SIZE=4 RANK=0 LOCAL_RANK=0 mpirun -np 3 "$MESHLUA" -e ""]])
  end)
end)
