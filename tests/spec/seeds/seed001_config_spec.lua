-- The guide "Distributed Training", its configuration. One process runs here, so the numbers are held against
-- each other (enabled = false), not against the processes.
local helper = require "spec.helper"
local ml = require "meshlua"

describe("the configuration", function()
  it("001 L57: a distributed configuration", function()
    local options = {
      enabled = false,
      world_size = 4,
      backend = "nccl",
      mesh_shape = {2, 2},
      mesh_axis_names = {"data", "model"},
      tensor_parallel_size = 2,
      pipeline_parallel_size = 1,
    }
    local config = ml.distributed(options)
    assert.equal(2, config:data_parallel_size())
    assert.same({2, 2}, config.mesh_shape)
    options.enabled = true -- which is to run in four processes
    helper.raises("[E_RANKS] distributed: world_size = 4, but this script runs in 1 process; start it with "
      .. "mpirun -np 4", ml.distributed, options)
  end)

  it("001 L96: its validations and derived values", function()
    local options = {enabled = false, world_size = 8, num_nodes = 2, num_processes_per_node = 4,
      tensor_parallel_size = 2, pipeline_parallel_size = 2}
    local config = ml.distributed(options)
    assert.equal(2, config:data_parallel_size())
    assert.is_true(config:is_main_process())
    assert.is_true(config:is_local_main_process())
    local function wrong(text, name, value)
      local before = options[name]
      options[name] = value
      helper.raises(text, ml.distributed, options)
      options[name] = before
    end
    wrong("num_nodes * num_processes_per_node = 3 * 4 = 12, but world_size = 8", "num_nodes", 3)
    wrong("rank = 8; it must be from 0 to 7", "rank", 8)
    wrong("[E_INDIVISIBLE]", "tensor_parallel_size", 8)
  end)
end)
