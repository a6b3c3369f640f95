-- devices: 8
-- distributed_spec.lua: processes and devices, and ml.distributed, in one process.
local helper = require "spec.helper"
local ml = require "meshlua"
local raises = helper.raises

local function with(options, name, value)
  local all = {}
  for k, v in pairs(options) do all[k] = v end
  all[name] = value
  return all
end

describe("one process", function()
  it("is the first of one, and has all devices", function()
    assert.same({0, 1}, {ml.process_index(), ml.process_count()})
    assert.same({0, 1, 2, 3, 4, 5, 6, 7}, ml.local_devices())
    assert.same(ml.devices(), ml.local_devices())
    assert.same({8, 8}, {ml.device_count(), ml.local_device_count()})
  end)
end)

describe("ml.distributed", function()
  it("without options says what runs", function()
    local config = ml.distributed()
    assert.same({true, 1, "mpi", 0, 0, 1, 1, "localhost", 29500, 1, 1, "no"}, {config.enabled,
      config.world_size, config.backend, config.rank, config.local_rank, config.num_nodes,
      config.num_processes_per_node, config.master_addr, config.master_port, config.tensor_parallel_size,
      config.pipeline_parallel_size, config.mixed_precision})
    assert.equal(8, config:data_parallel_size())
    assert.is_true(config:is_main_process() and config:is_local_main_process())
  end)

  it("counts devices where it cuts", function()
    local config = ml.distributed {tensor_parallel_size = 2, pipeline_parallel_size = 2,
      mesh_shape = {2, 2, 2}, mesh_axis_names = {"data", "pipeline", "model"}}
    assert.equal(2, config:data_parallel_size())
    assert.equal(64, ml.distributed({enabled = false, world_size = 8}):data_parallel_size())
  end)

  it("either of num_nodes and num_processes_per_node follows from the other", function()
    local config = ml.distributed {enabled = false, world_size = 8, num_nodes = 2}
    assert.same({2, 4}, {config.num_nodes, config.num_processes_per_node})
    config = ml.distributed {enabled = false, world_size = 8, num_processes_per_node = 2, rank = 3,
      local_rank = 1}
    assert.same({4, 2}, {config.num_nodes, config.num_processes_per_node})
    assert.is_false(config:is_main_process() or config:is_local_main_process())
  end)

  it("holds its numbers against each other", function()
    local eight = {enabled = false, world_size = 8}
    for _, case in ipairs {
      {"num_nodes", 3, "[E_VALUE] distributed: world_size = 8 is not divisible by num_nodes = 3"},
      {"num_processes_per_node", 3, "world_size = 8 is not divisible by num_processes_per_node = 3"},
      {"num_nodes", 9, "num_nodes = 9; it must be from 1 to 8"},
      {"rank", 8, "rank = 8; it must be from 0 to 7"},
      {"rank", -1, "rank = -1"},
      {"local_rank", 8, "local_rank = 8; it must be from 0 to 7"},
      {"tensor_parallel_size", 3, "[E_INDIVISIBLE] distributed: tensor_parallel_size * "
        .. "pipeline_parallel_size = 3 * 1 = 3 does not divide 64 devices (world_size = 8, 8 each)"},
      {"tensor_parallel_size", 128, "must be from 1 to 64"},
      {"pipeline_parallel_size", 0, "must be from 1 to 64"},
      {"world_size", 0, "world_size = 0; it must be from 1"},
      {"world_size", 2.5, "world_size must be a whole number, not 2.5"},
      {"master_port", 70000, "must be from 1 to 65535"},
      {"master_addr", 7, "option 'master_addr' must be a string"},
      {"mesh_shape", {8}, "mesh_shape and mesh_axis_names go together; mesh_axis_names is missing"},
      {"mesh_axis_names", {"data"}, "mesh_shape is missing"},
      {"backend", "ncll", "backend = ncll; there are 'auto', 'mpi', 'nccl', 'gloo'"},
      {"mixed_precision", "bfloat16", "mixed_precision = bfloat16; there are 'no', 'fp16', 'bf16'"},
      {"tensor_paralel_size", 2, "did you mean 'tensor_parallel_size'?"},
      {"enabled", 1, "option 'enabled' must be a boolean"},
    } do
      raises(case[3], ml.distributed, with(eight, case[1], case[2]))
    end
    raises("[E_MESH] distributed: mesh_shape {4, 4} is of 16 devices, but all processes have 8",
      ml.distributed, {mesh_shape = {4, 4}, mesh_axis_names = {"a", "b"}})
    raises("2 sizes but 1 name", ml.distributed, {mesh_shape = {4, 2}, mesh_axis_names = {"a"}})
  end)

  it("holds them against what runs", function()
    raises("[E_RANKS] distributed: world_size = 2, but this script runs in 1 process; start it with mpirun",
      ml.distributed, {world_size = 2})
    if ml.core.device_kind() == "cpu" then
      raises("[E_RANKS] distributed: backend = 'nccl' is for GPUs", ml.distributed, {backend = "nccl"})
    end
    assert.equal("nccl", ml.distributed({enabled = false, backend = "nccl"}).backend)
  end)

  it("answers gloo with mpi, and says so", function()
    local out, err = helper.run {"-e", "print(require('meshlua').distributed({backend = 'gloo'}).backend)"}
    assert.equal("mpi\n", out)
    assert.equal("meshlua: distributed: there is no gloo here; mpi serves\n", err)
  end)

  it("takes where processes meet from the environment", function()
    local out = helper.shell([[MASTER_ADDR=10.0.0.1 MASTER_PORT=1234 "$MESHLUA" -e '
      local c = require("meshlua").distributed() print(c.master_addr, c.master_port)']])
    assert.equal("10.0.0.1\t1234\n", out)
  end)
end)
