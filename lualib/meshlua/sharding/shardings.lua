-- shardings.lua: what meshes and shardings say of themselves: which device has which part of a tensor, and
-- what is alike. Indices are lists of {first, last}, 1-based and inclusive, one for each dim.
local core = require "meshlua.core"
local lib = require "meshlua.lib"

local raise = lib.raise

-- ---- NamedSharding ----------------------------------------------------------------------------------

local Sharding = {}

--- The places of all devices, in the mesh's order: {device, index, replica_id, slot}. Raises as shard_shape.
local function places(who, sharding, shape)
  if not core.is_sharding(sharding) then
    raise("E_VALUE", "%s: expected a NamedSharding, got %s", who, lib.kind(sharding))
  end
  return core.shard_places(sharding, lib.check_shape(who, shape), who)
end

--- Device id -> index of its shard of a tensor of this shape: {{first, last}, ...}, 1-based and inclusive. The
--- order of the devices is that of mesh.device_ids. Raises E_SPEC and E_INDIVISIBLE where the spec does not fit.
---@param shape integer[]
---@return table<integer, integer[][]>
function Sharding:devices_indices_map(shape)
  local map = {}
  for _, place in ipairs(places("devices_indices_map", self, shape)) do map[place.device] = place.index end
  return map
end

--- The same for the devices of this process.
---@param shape integer[]
---@return table<integer, integer[][]>
function Sharding:addressable_devices_indices_map(shape)
  local map, process = {}, core.process_index()
  for _, place in ipairs(places("addressable_devices_indices_map", self, shape)) do
    if place.process == process then map[place.device] = place.index end
  end
  return map
end

--- Does it place tensors of this rank as the other does: the same part on the same device, in one order of
--- devices? The meshes may differ in names and sizes. Raises E_SPEC where a spec is longer than the rank.
---@param other NamedSharding
---@param ndim integer
---@return boolean
function Sharding:is_equivalent_to(other, ndim)
  for _, x in ipairs {self, other == nil and false or other} do
    if not core.is_sharding(x) then
      raise("E_VALUE", "is_equivalent_to: expected a NamedSharding, got %s", lib.kind(x or nil))
    end
  end
  return core.equivalent(self, other, lib.check_integer("is_equivalent_to", "the rank", ndim))
end

local of_sharding = {}

--- Whether every device holds the whole tensor.
function of_sharding.is_fully_replicated(sharding) return (core.sharding_facts(sharding)) end

--- The mesh axes that the spec does not name, in the mesh's order.
function of_sharding.replicated_axes(sharding) return (select(2, core.sharding_facts(sharding))) end

--- Whether all devices are this process's.
function of_sharding.is_fully_addressable(sharding)
  return not (sharding.mesh and (sharding.mesh.is_abstract or sharding.mesh.is_multi_process))
end

--- The ids of the devices, in the mesh's order.
function of_sharding.device_ids(sharding)
  return sharding.mesh and sharding.mesh.device_ids or {0}
end

-- ---- Mesh -------------------------------------------------------------------------------------------

local of_mesh = {}

local function is_local(device)
  return device // core.local_device_count() == core.process_index()
end

--- Raises for an abstract mesh.
local function devices_of(mesh, field)
  if mesh.is_abstract then
    raise("E_MESH", "an AbstractMesh has no %s; make_mesh puts one of its shape on devices", field)
  end
  return mesh.device_ids
end

--- The devices of this process, in the mesh's order.
function of_mesh.local_devices(mesh)
  local own = {}
  for _, device in ipairs(devices_of(mesh, "local_devices")) do
    if is_local(device) then own[#own + 1] = device end
  end
  return own
end

--- Whether devices of other processes are in it.
function of_mesh.is_multi_process(mesh)
  for _, device in ipairs(devices_of(mesh, "is_multi_process")) do
    if not is_local(device) then return true end
  end
  return false
end

--- The mesh of the devices of this process alone. Raises E_MESH where they do not stand in a box of it.
function of_mesh.local_mesh(mesh)
  local ids, first, last, n = devices_of(mesh, "local_mesh"), {}, {}, 0
  if not of_mesh.is_multi_process(mesh) then return mesh end
  local own = {}
  for at, device in ipairs(ids) do
    if is_local(device) then
      n, own[#own + 1] = n + 1, device
      local rest = at - 1
      for i = #mesh.axis_sizes, 1, -1 do
        local coord = rest % mesh.axis_sizes[i]
        rest = rest // mesh.axis_sizes[i]
        first[i], last[i] = math.min(first[i] or coord, coord), math.max(last[i] or coord, coord)
      end
    end
  end
  local sizes, product = {}, 1
  for i in ipairs(first) do
    sizes[i] = last[i] - first[i] + 1
    product = product * sizes[i]
  end
  if n == 0 then
    raise("E_MESH", "local_mesh: no device of process %d is in %s", core.process_index(), mesh)
  end
  if product ~= n then
    raise("E_MESH", "local_mesh: the %d devices of process %d do not stand in a box of %s", n,
      core.process_index(), mesh)
  end
  return core.mesh_new(mesh.axis_names, sizes, own, mesh.axis_types)
end

--- Its names, sizes and axis types, without devices.
function of_mesh.abstract_mesh(mesh)
  return core.mesh_new(mesh.axis_names, mesh.axis_sizes, nil, mesh.axis_types)
end

-- ---- Tensor -----------------------------------------------------------------------------------------

local of_tensor = {}

--- Whether the tensor was put on a mesh or a device. One that was not moves to where an op needs it.
function of_tensor.committed(x)
  return x.sharding.mesh ~= nil
end

--- Whether every device holds the whole tensor.
function of_tensor.is_fully_replicated(x) return (core.sharding_facts(x.sharding)) end

--- Whether all of its devices are this process's.
function of_tensor.is_fully_addressable(x) return of_sharding.is_fully_addressable(x.sharding) end

for type_name, fields in pairs {NamedSharding = of_sharding, Mesh = of_mesh, Tensor = of_tensor} do
  local own = core.fields("meshlua." .. type_name)
  for name, fn in pairs(fields) do own[name] = core.wrap(fn) end
end
for name, fn in pairs(Sharding) do
  core.methods "meshlua.NamedSharding"[name] = core.wrap(fn, false, "NamedSharding:" .. name)
end

return {}
