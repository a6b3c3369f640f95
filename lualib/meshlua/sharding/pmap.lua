-- pmap.lua: JAX's older way to say shard_map: one place of a dim per device. Twins for programs that are
-- ported; new ones use shard_map.
local core = require "meshlua.core"
local lib = require "meshlua.lib"
local args_of = require "meshlua.ops.args"
local collectives = require "meshlua.sharding.collectives"
local mesh_of = require "meshlua.sharding.mesh"
local ops = require "meshlua.ops"
local shard_map = require "meshlua.sharding.shard_map"
local tree = require "meshlua.tree"

local raise = lib.raise

local M = {}

local function line_of(who, devices, n, name)
  local all = devices or core.devices()
  if n > #lib.check_list(who, "the devices", all) then
    raise("E_MESH", "%s: %s for %s", who, lib.count(n, "place"), lib.count(#all, "device"))
  end
  return mesh_of.make_mesh({n}, {name}, table.move(all, 1, n, 1, {}))
end

--- The P that has `name` at the dim (counted from 1).
local function spec_of(dim, name)
  local entries = {}
  for d = 1, dim do entries[d] = d == dim and name or false end
  return core.P(table.unpack(entries, 1, dim))
end

--- Axis i of n: `axes` is one for all, or a list in which false stands for none.
local function axis_at(who, what, axes, i)
  local axis = axes
  if type(axes) == "table" then axis = axes[i] end
  if not axis then return nil end
  if math.type(axis) ~= "integer" or axis < 1 then
    raise("E_VALUE", "%s: %s of value %d is %s; axes count from 1, false maps none", who, what, i,
      axis)
  end
  return axis
end

--- The first device's x, on all devices: where they may differ, it is what the others add nothing to.
local function of_first_device(x, name)
  if not core.is_tensor(x) or #core.vary(x) == 0 then return x end
  local mine = ops.where(ops.eq(collectives.axis_index(name), 0), x, ops.zeros_like(x))
  return ops.astype(collectives.psum(mine, name), x.dtype)
end

--- The size of the mapped dims, which must agree.
local function size_of(args, in_axes)
  local size, from
  for i = 1, args.n do
    local axis = axis_at("pmap", "in_axes", in_axes, i)
    local leaves, paths = tree.leaves(args[i])
    for k, leaf in ipairs(axis and leaves or {}) do
      local n = leaf.shape[args_of.axis_of("pmap", axis, leaf.ndim)]
      local name = "argument " .. i .. (paths[k] == "" and "" or "." .. paths[k])
      if size and n ~= size then
        raise("E_SHAPE", "pmap: the mapped dims differ: %s has %d, %s has %d", from, size, name, n)
      end
      size, from = n, name
    end
  end
  if not size then raise("E_VALUE", "pmap: no argument is mapped; in_axes says which dims are") end
  return size
end

--- A function that runs fn once per place of its arguments' mapped dims, each on its own device; results are
--- stacked. Inside, collectives reach the others by axis_name.
---  in_axes, out_axes: the mapped dim of all arguments (results; default 1), or a list with one for each, in
---    which false stands for an argument that all devices have whole, and for a result that is the first
---    device's. Of a whole argument each device has a copy of its own, with a gradient of its own; Params are
---    one for all, as in shard_map.
--- Errors: E_SHAPE where mapped dims differ, E_MESH where there are fewer devices than places.
---@param fn function
---@param options {axis_name: string?, in_axes: integer|table?, out_axes: integer|table?, devices: integer[]?}?
---@return function
function M.pmap(fn, options)
  lib.check_function("pmap", fn)
  options = lib.options("pmap", options)
  local name, in_axes, out_axes = options.axis_name or "devices", options.in_axes or 1, options.out_axes or 1
  local devices = options.devices
  return core.wrap(function(...)
    local args = table.pack(...)
    local n = size_of(args, in_axes)
    local mesh, ins, outs = line_of("pmap", devices, n, name), {}, {}
    for i = 1, args.n do
      local axis = axis_at("pmap", "in_axes", in_axes, i)
      ins[i] = axis and spec_of(axis, name) or core.P()
      if not core.is_tracing() then
        args[i] = tree.map(function(leaf)
          return core.is_tensor(leaf) and mesh_of.device_put(leaf, core.NamedSharding(mesh, ins[i])) or leaf
        end, args[i])
      end
    end
    local function each(...)
      local blocks = table.pack(...)
      for i = 1, blocks.n do
        local axis = axis_at("pmap", "in_axes", in_axes, i)
        blocks[i] = tree.map(function(leaf)
          if axis then return ops.squeeze(leaf, axis) end
          return core.is_tensor(leaf) and collectives.pcast(leaf, name) or leaf
        end, blocks[i])
      end
      local results = table.pack(fn(table.unpack(blocks, 1, blocks.n)))
      for i = 1, results.n do
        local axis = axis_at("pmap", "out_axes", out_axes, i)
        outs[i] = axis and spec_of(axis, name) or core.P()
        results[i] = tree.map(function(leaf)
          return axis and ops.expand_dims(leaf, axis) or of_first_device(leaf, name)
        end, results[i])
      end
      return table.unpack(results, 1, results.n)
    end
    return shard_map.shard_map(each, {mesh = mesh, in_specs = ins, out_specs = outs})(
      table.unpack(args, 1, args.n))
  end)
end

--- x, or every tensor of a tree, once per device, stacked along a new first dim that is split over them: what
--- pmap maps.
---@param x Tensor|table
---@param devices integer[]? ids; default all
function M.device_put_replicated(x, devices)
  local list = devices or core.devices()
  local n = #lib.check_list("device_put_replicated", "the devices", list)
  if n == 0 then raise("E_MESH", "device_put_replicated: no devices") end
  local mesh = line_of("device_put_replicated", list, n, "devices")
  local sharding = core.NamedSharding(mesh, core.P("devices"))
  return tree.map(function(leaf)
    local shape = {n, table.unpack(leaf.shape)}
    return mesh_of.device_put(ops.broadcast(leaf, shape), sharding)
  end, x)
end

return lib.export(M)
