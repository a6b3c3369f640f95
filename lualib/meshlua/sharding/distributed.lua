-- distributed.lua: how many processes and devices a script is written for, held against those that run it.
local core = require "meshlua.core"
local lib = require "meshlua.lib"
local mesh = require "meshlua.sharding.mesh"

local raise = lib.raise

local M = {}

local BACKENDS = {"auto", "mpi", "nccl", "gloo"}
local PRECISIONS = {"no", "fp16", "bf16"}
local DEFAULT_PORT = 29500

--- The whole number in [low, high] under a name, or what stands for none.
local function whole(options, name, low, high, otherwise)
  local n = options[name]
  if n == nil then return otherwise end
  lib.check_integer("distributed", name, n)
  if n < low or n > high then
    raise("E_VALUE", "distributed: %s = %d; it must be from %d to %d", name, n, low, high)
  end
  return n
end

local function word(options, name, words)
  local w = options[name]
  if w == nil then return words[1] end
  if lib.position(words, w) then return w end
  raise("E_VALUE", "distributed: %s = %s; there are %s", name, w, lib.quoted(words))
end

--- num_nodes and num_processes_per_node: either follows from the other; without both, all processes are on one
--- host.
local function read_nodes(options, world)
  local nodes = whole(options, "num_nodes", 1, world)
  local each = whole(options, "num_processes_per_node", 1, world)
  local given = nodes and "num_nodes" or "num_processes_per_node"
  if nodes and each and nodes * each ~= world then
    raise("E_VALUE", "distributed: num_nodes * num_processes_per_node = %d * %d = %d, but world_size = %d",
      nodes, each, nodes * each, world)
  end
  if not nodes and not each then return 1, world end
  if world % (nodes or each) ~= 0 then
    raise("E_VALUE", "distributed: world_size = %d is not divisible by %s = %d", world, given, nodes or each)
  end
  return nodes or world // each, each or world // nodes
end

--- Raises unless tensor and pipeline parallelism fill the devices without a rest.
local function check_parallel(config, devices)
  local tensor, pipeline = config.tensor_parallel_size, config.pipeline_parallel_size
  local both = tensor * pipeline
  if devices % both == 0 then return end
  raise("E_INDIVISIBLE", "distributed: tensor_parallel_size * pipeline_parallel_size = %d * %d = %d does not "
    .. "divide %s (world_size = %d, %d each)", tensor, pipeline, both, lib.count(devices, "device"),
    config.world_size, devices // config.world_size)
end

local function check_mesh(options, devices)
  local shape, names = options.mesh_shape, options.mesh_axis_names
  if not shape and not names then return end
  if not shape or not names then
    raise("E_VALUE", "distributed: mesh_shape and mesh_axis_names go together; %s is missing",
      shape and "mesh_axis_names" or "mesh_shape")
  end
  lib.check_list("distributed", "mesh_shape", shape)
  lib.check_list("distributed", "mesh_axis_names", names)
  local size = mesh.AbstractMesh(shape, names).size -- checks sizes and names
  if size ~= devices then
    local code = core.process_count() > 1 and "E_RANKS" or "E_MESH"
    raise(code, "distributed: mesh_shape {%s} is of %s, but all processes have %d",
      table.concat(shape, ", "), lib.count(size, "device"), devices)
  end
end

--- Raises unless what was asked for is what runs.
local function check_running(options, config)
  local world, rank, here = core.process_count(), core.process_index(), core.ranks()
  if config.world_size ~= world then
    raise("E_RANKS", "distributed: world_size = %d, but this script runs in %d process%s; start it with "
      .. "mpirun -np %d meshlua SCRIPT (enabled = false checks the rest without them)", config.world_size,
      world, world == 1 and "" or "es", config.world_size)
  end
  for _, name in ipairs {"rank", "local_rank"} do
    local is = name == "rank" and rank or here[name]
    if options[name] ~= nil and options[name] ~= is then
      raise("E_RANKS", "distributed: %s = %d, but the launcher says that it is %d; leave it out", name,
        options[name], is)
    end
  end
  if config.backend == "nccl" and core.device_kind() == "cpu" then
    raise("E_RANKS", "distributed: backend = 'nccl' is for GPUs, and these devices are the processor's; use "
      .. "'auto' or 'mpi'")
  end
  if world > 1 and config.backend ~= "auto" then
    core.backend(config.backend == "nccl" and "nccl" or "mpi")
  end
end

---@class DistributedConfig
---@field enabled boolean
---@field world_size integer
---@field backend "mpi"|"nccl"
---@field rank integer
---@field local_rank integer
---@field num_nodes integer
---@field num_processes_per_node integer
---@field master_addr string
---@field master_port integer
---@field tensor_parallel_size integer
---@field pipeline_parallel_size integer
---@field mesh_shape integer[]?
---@field mesh_axis_names string[]?
---@field mixed_precision "no"|"fp16"|"bf16"
local Config = {}
Config.__index = Config
Config.__name = "DistributedConfig"

--- How many copies of the model there are: the devices that tensor and pipeline parallelism leave.
---@return integer
function Config:data_parallel_size()
  return self.world_size * core.local_device_count()
    // (self.tensor_parallel_size * self.pipeline_parallel_size)
end

--- Is this process the one that prints and writes files, rank 0?
---@return boolean
function Config:is_main_process() return self.rank == 0 end

--- Is it the first of its host?
---@return boolean
function Config:is_local_main_process() return self.local_rank == 0 end

--- The configuration of a run in many processes, checked: world_size, rank and local_rank come from the launcher
--- and need not be given; what is given must be so (E_RANKS). Parallel sizes and the mesh count devices, which
--- are those of all processes. enabled = false holds the numbers against each other and not against the
--- processes that run. Between GPUs "auto" is NCCL, and "mpi" sends through the host's memory, which is slow.
--- "gloo" is answered with "mpi".
---@param options {enabled: boolean?, world_size: integer?, backend: "auto"|"mpi"|"nccl"|"gloo"?, rank: integer?,
--- local_rank: integer?, num_nodes: integer?, num_processes_per_node: integer?, master_addr: string?,
--- master_port: integer?, tensor_parallel_size: integer?, pipeline_parallel_size: integer?,
--- mesh_shape: integer[]?, mesh_axis_names: string[]?, mixed_precision: "no"|"fp16"|"bf16"?}?
---@return DistributedConfig
function M.distributed(options)
  options = lib.options("distributed", options)
  local here = core.ranks()
  local enabled = options.enabled ~= false
  local world = whole(options, "world_size", 1, 65535, enabled and core.process_count() or 1)
  local devices = world * core.local_device_count()
  local nodes, each = read_nodes(options, world)
  local config = {
    enabled = enabled, world_size = world, backend = word(options, "backend", BACKENDS),
    rank = whole(options, "rank", 0, world - 1, enabled and core.process_index() or 0),
    local_rank = whole(options, "local_rank", 0, each - 1, enabled and here.local_rank or 0),
    num_nodes = nodes, num_processes_per_node = each,
    master_addr = options.master_addr or here.master_addr or "localhost",
    master_port = whole(options, "master_port", 1, 65535, here.master_port or DEFAULT_PORT),
    tensor_parallel_size = whole(options, "tensor_parallel_size", 1, devices, 1),
    pipeline_parallel_size = whole(options, "pipeline_parallel_size", 1, devices, 1),
    mesh_shape = options.mesh_shape, mesh_axis_names = options.mesh_axis_names,
    mixed_precision = word(options, "mixed_precision", PRECISIONS),
  }
  check_parallel(config, devices)
  check_mesh(options, devices)
  if enabled then check_running(options, config) end
  if config.backend == "gloo" and config.rank == 0 then
    io.stderr:write "meshlua: distributed: there is no gloo here; mpi serves\n"
  end
  if config.backend == "auto" and enabled then
    config.backend = core.backend()
  elseif config.backend ~= "nccl" then
    config.backend = "mpi"
  end
  return setmetatable(config, Config)
end

lib.export_checked(Config, "DistributedConfig:")
lib.strict(Config, "DistributedConfig", "DistributedConfig:")

return lib.export(M)
