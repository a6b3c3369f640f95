-- mpi_spec.lua: the same script in many processes over MPI gives what one process gives, bit for bit.
local helper = require "spec.helper"
local mpi = require "dist.mpi"
local shell, run, check, SETTINGS, SPLITS = helper.shell, mpi.run, mpi.it, mpi.SETTINGS, mpi.SPLITS
local one, same = mpi.one, mpi.same

describe("many processes", function()
  check("have every collective of every dtype along every combination of axes", function()
    local more = helper.watched and " few" or "" -- dtypes
    same({{2, 4}}, "tests/dist/scripts/collectives.lua 2,2,2" .. more)
    same({{3, 1}}, "tests/dist/scripts/collectives.lua 3" .. more)
    if not helper.watched then same({{4, 2}, {8, 1}}, "tests/dist/scripts/collectives.lua 2,2,2 few") end
    same({{2, 3}, {3, 2}}, "tests/dist/scripts/collectives.lua 3,2 few")
  end)

  check("make arrays of what each has", function()
    same(SPLITS, "tests/dist/scripts/local_data.lua")
  end)

  check("have large ones, of which each reduces a part", function()
    same(SPLITS, "tests/dist/scripts/collectives.lua 8 large")
    same({{3, 1}}, "tests/dist/scripts/collectives.lua 3 large")
    same({{2, 3}}, "tests/dist/scripts/collectives.lua 6 large")
  end)

  check("have devices that stand apart in the mesh", function()
    if not helper.watched then same({{4, 2}}, "tests/dist/scripts/collectives.lua 2,4 mixed large") end
    same(helper.watched and {{3, 2}} or {{3, 2}, {6, 1}}, "tests/dist/scripts/collectives.lua 6 mixed large")
  end)

  check("reduce and gather in loops and branches", function()
    same(helper.watched and {{4, 2}} or {{2, 4}, {8, 1}}, "tests/dist/scripts/loops.lua")
  end)

  check("exchange over iterations of a loop", function()
    same(SPLITS, "tests/dist/scripts/layers.lua 8")
    if helper.watched then return end
    local words = [[-e 'require("meshlua").config {passes = {overlap = true}}' ]]
    same({{2, 4}}, words .. "tests/dist/scripts/train.lua fsdp_tp 4 2 scan")
  end)

  check("pass microbatches from stage to stage", function()
    same(helper.watched and {{4, 2}} or {{2, 4}, {4, 2}, {8, 1}}, "tests/dist/scripts/pipeline.lua")
  end)

  check("run branches that others skip", function()
    same(helper.watched and {{4, 2}} or {{2, 4}, {8, 1}}, "tests/dist/scripts/branches.lua 4,2")
  end)

  check("work while an exchange is on its way, with the same bits", function()
    local path = helper.file ""
    local out, err, code = run(2, 4, "tests/dist/scripts/beside.lua " .. path)
    assert.same({"SUM PRODUCT WAIT SUM WAIT\n", 0}, {out, code}, err)
    if helper.watched then return end
    local words = [[-e 'require("meshlua").config {passes = {overlap = true}}' ]] ..
      "tests/dist/scripts/train.lua fsdp_tp 4 2"
    same({{4, 2}}, words)
  end)

  -- "meshlua -e BIG=1 tests/specs.lua tests/dist/mpi_spec.lua" runs it: half a minute, and 9 GB of memory.
  if rawget(_G, "BIG") then
    check("send more than a message of MPI holds", function()
      local out, err, code = run(2, 1, "tests/dist/scripts/big.lua")
      assert.same({"moved: false\nand back: true\n", 0}, {out, code}, err)
    end)
  end

  -- fsdp_tp has what each of the others has: it is split in every way, they in one each, or not where a sanitizer
  -- watches.
  local tiny = helper.watched and " tiny" or ""
  local cases = {["fsdp_tp 4 2"] = SPLITS, ["tp_sp 2 4"] = {{2, 4}}}
  if not helper.watched then cases["dp 8 1"], cases["tp 4 2"] = {{8, 1}}, {{4, 2}} end
  for case, splits in pairs(cases) do
    check("train a GPT as one does: " .. case, function()
      same(helper.watched and SPLITS or splits, "tests/dist/scripts/train.lua " .. case .. tiny)
    end)
  end

  check("train in leaves as one device does", function()
    local words = "tests/dist/scripts/train.lua dp %d 1 tiny leaves"
    same(SPLITS, words:format(8))
    assert.equal(mpi.one(8, words:format(8)), mpi.one(1, words:format(1)))
  end)

  check("run a recipe to its end", function()
    local text = helper.file(("In the beginning was the word. "):rep(200))
    local words = "models/train.lua --mesh=data:2,model:2 --rules=fsdp_tp --layers=1 --width=16 --heads=2" ..
      " --seq=16 --steps=4 --sample=8 --data=" .. text
    local loss = one(4, words):match "validation loss [%d.]+"
    local out, err, code = run(2, 2, words)
    assert.equal(0, code, err)
    assert.truthy(out:find(loss, 1, true), out)
  end)

  check("know their devices, and what is not here", function()
    local script = helper.file([[
      local ml = require "meshlua"
      local i, n = ml.process_index(), ml.process_count()
      assert(n == 2 and ml.device_count() == 4 and #ml.devices() == 4 and ml.local_device_count() == 2)
      local mine = ml.local_devices()
      assert(mine[1] == 2 * i and mine[2] == 2 * i + 1)
      local config = ml.distributed {world_size = 2, rank = i, mesh_shape = {4}, mesh_axis_names = {"x"}}
      assert(config:is_main_process() == (i == 0) and config:data_parallel_size() == 4)
      local mesh = ml.make_mesh({4}, {"x"})
      local x = ml.device_put(ml.arange(8.0), ml.NamedSharding(mesh, ml.P "x"))
      local shards = x:addressable_shards()
      assert(#shards == 2 and shards[1].device == 2 * i and #x:global_shards() == 4)
      assert(shards[1].data:totable()[1] == 4.0 * i and shards[1].index[1][1] == 4 * i + 1)
      local ok, err = pcall(x.totable, x)
      assert(not ok and err:find("totable: float32[8@x] lies in other processes, too", 1, true), err)
      assert(err:find("ml.all_gather_to_host(x)", 1, true))
      assert(ml.all_gather_to_host(x):totable()[8] == 7.0)
      assert(x:sum():item() == 28.0)
      if i == 0 then print "well" end
    ]], ".lua")
    local out, err, code = run(2, 2, script)
    assert.same({"well\n", 0}, {out, code}, err)
    assert.truthy(err:find("meshlua: rank 0 of 2, local rank 0, by OpenMPI", 1, true), err)
  end)

  check("use meshes of some of the devices", function()
    local out, err, code = run(4, 2, "tests/dist/scripts/small_meshes.lua")
    assert.same({"well\n", 0}, {out, code}, err)
  end)

  check("end together, with the message of the one that failed", function()
    local script = helper.file([[
      local ml = require "meshlua"
      local mesh = ml.make_mesh({2}, {"x"})
      local x = ml.device_put(ml.arange(8.0), ml.NamedSharding(mesh, ml.P "x"))
      if ml.process_index() == 1 then error "only here" end
      print(x:sum():item())
    ]], ".lua")
    local out, err, code = run(2, 1, script)
    assert.same({"", 1}, {out, code})
    assert.truthy(err:find("lua:4: only here", 1, true), err)
  end)

  check("have as many devices each", function()
    local _, err, code = shell(SETTINGS ..
      [[mpirun -np 1 "$MESHLUA" --devices=1 -e "" : -np 1 "$MESHLUA" --devices=2 -e ""]])
    assert.equal(3, code)
    assert.truthy(err:find "%[E_RANKS%] rank %d has %d devices?, and rank %d has %d devices?", err)
  end)

  check("a mesh that is not for so many is an error of the machine", function()
    local script = helper.file([[require("meshlua").make_mesh({4}, {"x"})]], ".lua")
    local _, err, code = run(2, 1, script)
    assert.equal(3, code)
    local text = "[E_RANKS] mesh: the sizes multiply to 4, but there are 2 devices, 1 in each of 2 processes"
    assert.truthy(err:find(text, 1, true), err)
  end)

  check("contradictory sizes are an error of the machine", function()
    local _, err, code = shell(SETTINGS ..
      [[mpirun -np 2 -x WORLD_SIZE=4 -x RANK=0 -x LOCAL_RANK=0 "$MESHLUA" -e ""]])
    assert.equal(3, code)
    assert.truthy(err:find("[E_RANKS] WORLD_SIZE=4 and OMPI_COMM_WORLD_SIZE=2 contradict", 1, true), err)
  end)
end)
