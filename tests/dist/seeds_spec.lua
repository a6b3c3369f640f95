-- seeds_spec.lua: the twins of the seeds' programs that need several processes; see tests/spec/seeds/manifest.lua.
local helper = require "spec.helper"
local mpi = require "dist.mpi"
local shell, it = helper.shell, mpi.it

--- Runs a script; it must go well. What it prints.
local function run(processes, devices, script, words)
  local out, err, code = mpi.run(processes, devices, helper.file(script, ".lua") .. " " .. (words or ""))
  assert.equal(0, code, err)
  return out
end

--- Asserts that a script ends all its processes with this code and message.
local function refuses(code, wanted, processes, devices, script)
  local out, err, actual = mpi.run(processes, devices, helper.file(script, ".lua"))
  assert.same({code, ""}, {actual, out}, err)
  assert.truthy(err:find(wanted, 1, true), err)
end

describe("programs of the seeds, in many processes", function()
  it("000 L27: no rank code, the same losses on any number of devices", function()
    mpi.same({{2, 2}}, "tests/spec/seeds/losses.lua")
  end)

  it("001 L57: a distributed configuration", function()
    local script = [[
      local ml = require "meshlua"
      local config = ml.distributed {
        enabled = true,
        world_size = 4,
        backend = BACKEND,
        mesh_shape = {2, 2},
        mesh_axis_names = {"data", "model"},
        tensor_parallel_size = 2,
        pipeline_parallel_size = 1,
      }
      assert(config.rank == ml.process_index() and config:data_parallel_size() == 2)
      assert(config:is_main_process() == (config.rank == 0) and config.local_rank == config.rank)
      local mesh = ml.make_mesh(config.mesh_shape, config.mesh_axis_names)
      local x = ml.device_put(ml.ones {4, 4}, ml.NamedSharding(mesh, ml.P("data", "model")))
      print(config.backend, x:sum():item())
    ]]
    assert.equal("mpi\t16.0\n", run(4, 1, (script:gsub("BACKEND", '"gloo"'))))
    refuses(3, "distributed: backend = 'nccl' is for GPUs, and these devices are the processor's; use 'auto'",
      4, 1, (script:gsub("BACKEND", '"nccl"')))
  end)

  it("001 L666: a start by environment variables", function()
    -- The text starts two of eight; with all eight see the script of L726.
    local _, err, code = shell([[
      export MASTER_ADDR=127.0.0.1 MASTER_PORT=29517 WORLD_SIZE=8 LOCAL_RANK=0
      RANK=4 "$MESHLUA" --timeout=1 -e 'print "it runs"' 2>&1 & other=$!
      RANK=0 "$MESHLUA" --timeout=1 -e 'print "it runs"'; code=$?
      wait $other; [ $? = $code ] && exit $code]])
    assert.equal(3, code, err)
    assert.truthy(err:find("ranks 1, 2, 3, 5, 6, 7 did not start within 1 s", 1, true), err)
  end)

  it("001 L686: setup_multinode", function()
    local out = run(2, 4, [[
      local ml = require "meshlua"
      local function setup_multinode()
        local rank, world = ml.process_index(), ml.process_count()
        print(("rank %d/%d: %d local devices, %d in all"):format(rank, world, ml.local_device_count(),
          ml.device_count()))
        return {world_size = world, rank = rank, is_master = rank == 0}
      end
      local info = setup_multinode()
      assert(ml.device_count() == 8 and ml.local_device_count() == 4) -- not 8 times 2
      assert(info.is_master == (ml.local_devices()[1] == 0))
      local mesh = ml.Mesh(ml.devices(), {"data"})
      mesh:with(function()
        local x = ml.device_put(ml.arange(16.0), ml.P "data")
        print(ml.jit(function(v) return (v * v):mean() end)(x):item())
      end)
    ]])
    assert.equal("rank 0/2: 4 local devices, 8 in all\n77.5\n", out)
  end)

  it("001 L726: a distributed training script", function()
    local script = helper.file([[
      local ml = require "meshlua"
      local config = ml.distributed {
        enabled = ml.process_count() > 1,
        world_size = arg[2] and 8,
        num_nodes = 1,
        master_addr = os.getenv "MASTER_ADDR",
        rank = tonumber(os.getenv "RANK"),
        local_rank = tonumber(os.getenv "LOCAL_RANK"),
        mesh_shape = {8}, -- data parallel only
        mesh_axis_names = {"data"},
      }
      local mesh = ml.make_mesh(config.mesh_shape, config.mesh_axis_names)
      local model_config = {recipe = "gpt", layers = 1, width = 32, heads = 2, seq = 16}
      local training_config = {batch = 16, steps = 4, rules = "dp", eval_every = 2, eval_batches = "all"}
      local trainer = ml.train.Trainer(model_config, training_config, config)
      local data = ml.train.text.data({seq = 16, vocab = 256}, arg[1])
      mesh:with(function()
        local result = trainer:train(data.train, data.valid)
        print(("%a %a %d"):format(result.validation_loss, result.best_loss, result.best_step))
      end)
    ]], ".lua")
    local text = helper.file(("a text to learn "):rep(300))
    local expected = mpi.one(8, script .. " " .. text)
    local out, err, code = shell(mpi.SETTINGS .. ([[mpirun -np 8 sh -c '
      export WORLD_SIZE=8 RANK=$OMPI_COMM_WORLD_RANK LOCAL_RANK=$OMPI_COMM_WORLD_LOCAL_RANK
      export MASTER_ADDR=localhost MASTER_PORT=29518
      exec "$MESHLUA" %s %s --distributed']]):format(script, text))
    assert.equal(0, code, err)
    assert.truthy(err:find("rank 0 of 8, local rank 0, by the environment (RANK)", 1, true), err)
    local last = "\n(0x[^\n]+ 4\n)$"
    assert.equal(assert(expected:match(last), expected), out:match(last))
  end)

  it("001 L956: a collective on one rank alone", function()
    refuses(1, "rank 0 launches a plan with collectives (first all_reduce over batch, ", 2, 2, [[
      local ml = require "meshlua"
      local mesh = ml.make_mesh({4}, {"batch"})
      local x = ml.device_put(ml.arange(8.0), ml.NamedSharding(mesh, ml.P "batch"))
      local mean = ml.shard_map(function(grads) return ml.pmean(grads, "batch") end,
        {mesh = mesh, in_specs = ml.P "batch", out_specs = ml.P()})
      if ml.process_index() == 0 then x = mean(x) end
    ]])
  end)

  it("001 L968: a wrong number of devices says both numbers", function()
    local script = [[
      local ml = require "meshlua"
      local ok, message = pcall(ml.make_mesh, {16}, {"data"})
      assert(not ok and message:find("multiply to 16, but there are 4 devices", 1, true), message)
      ml.distributed {world_size = 3}
    ]]
    refuses(3, "distributed: world_size = 3, but this script runs in 2 processes; start it with mpirun -np 3",
      2, 2, script)
  end)

  it("002 L167: a slice of the data for each process", function()
    local out = run(2, 2, [[
      local ml = require "meshlua"
      local RECORDS, BATCH = 64, 16
      local bytes = {}
      for i = 0, RECORDS do bytes[i + 1] = string.char(i) end
      local name = os.tmpname()
      local file <close> = io.open(name, "wb")
      file:write(table.concat(bytes))
      file:flush()
      local records = ml.data.windows(ml.data.tokens(name), 1)
      local mesh = ml.make_mesh({4}, {"data"})
      local rows = ml.NamedSharding(mesh, ml.P "data")
      local batches = records:shuffled {batch = BATCH, seed = 1, shardings = {inputs = rows, labels = rows}}
      local seen, own = {}, 0 -- how often each record came to this process
      for i = 1, RECORDS do seen[i] = 0 end
      for step = 1, RECORDS // BATCH do
        for _, shard in ipairs(batches(step).inputs:addressable_shards()) do
          for _, row in ipairs(shard.data:totable()) do
            seen[row[1] + 1], own = seen[row[1] + 1] + 1, own + 1
          end
        end
      end
      os.remove(name)
      assert(own == RECORDS // ml.process_count())
      local none = {}
      for i = 1, RECORDS do none[i] = 0 end
      local counts = ml.make_array_from_process_local_data(rows, {seen, none})
      print(counts:sum(1):min():item(), counts:sum(1):max():item(), ml.process_count())
    ]])
    assert.equal("1\t1\t2\n", out)
  end)
end)
