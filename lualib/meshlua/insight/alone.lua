-- alone.lua: a step as it would be on one device: the same trace on a mesh of size 1, and its inputs there.
local arrays = require "meshlua.ops.arrays"
local core = require "meshlua.core"
local lib = require "meshlua.lib"

local raise = lib.raise

local M = {}

--- All of x on one device, or as the sharding says; in each of the processes that have a part of it.
function M.brought(x, sharding)
  return core.put_across(x.is_fully_addressable and x or arrays.all_gather_to_host(x), sharding)
end

--- The mesh on which the arguments of a step lie, or that of the context; nil: none.
function M.mesh_of(params)
  for _, p in ipairs(params) do
    if p.sharding then return p.sharding.mesh end
  end
  return core.mesh_current()
end

--- Of the first device that is this process's: each of several makes the comparison for itself.
function M.one_device(who, mesh)
  local sizes, device = {}, mesh.local_devices[1]
  if not device then
    raise("E_MESH", "%s: %s has no device of this process (%d)", who, mesh, core.process_index())
  end
  for i in ipairs(mesh.axis_names) do sizes[i] = 1 end
  return core.mesh_new(mesh.axis_names, sizes, {device})
end

--- The inputs of a program in the shardings it wants.
function M.inputs_of(program)
  local list = {}
  for i, p in ipairs(program:params()) do
    list[i] = p.object
    local own = core.is_box(p.object) and p.object:get() or p.object
    if p.sharding and own.sharding ~= p.sharding then list[i] = M.brought(own, p.sharding) end
  end
  return list
end

--- The line of the first shard_map among the nodes, or nil.
function M.shard_map_of(nodes)
  for _, node in ipairs(nodes) do
    if node.op == "manual_exit" then return node.where end
  end
end

--- The first place at which two lists of nodes are not one program, whose values outside of shard_map have the same
--- shapes; nil: they are.
function M.other_place(a, b)
  for i = 1, math.max(#a, #b) do
    local x, y = a[i], b[i]
    local same = x and y and x.op == y.op and #x.outputs == #y.outputs
    for k = 1, same and not x.inner and #x.types or 0 do same = same and x.types[k] == y.types[k] end
    if not same then return i end
  end
end

--- Raises for what is no jitted function, and where nothing can run.
function M.check_step(who, step)
  if core.type_name(step) ~= "jit" then
    raise("E_VALUE", "%s: expected a function made by ml.jit, got %s", who, lib.kind(step))
  end
  if select(2, core.device_kind()) then
    raise("E_STATE", "%s: these devices are only planned for; run with --devices=N", who)
  end
end

return M
