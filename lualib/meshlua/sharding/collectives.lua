-- collectives.lua: what shard_map's function may do with the other devices' blocks, and a vmap's with the other
-- examples. An axis is the name of a manual mesh axis or a list of names, the first the slowest, or that of a vmap.
-- Dims count from 1; places along an axis, as axis_index gives them and ppermute takes them, from 0.
local core = require "meshlua.core"
local lib = require "meshlua.lib"
local args = require "meshlua.ops.args"
local ops = require "meshlua.ops"
local shapes = require "meshlua.ops.shape"
local trace = require "meshlua.transform.trace"

local op, raise, quoted, axis_of = core.op, lib.raise, lib.quoted, args.axis_of

local M = {}

local function unbound(who, name, mesh, manual)
  local _, vmaps = trace.named()
  if not mesh then
    raise("E_STATE", "%s: mesh axis '%s' is not bound here; collectives are called in the function that "
      .. "shard_map or pmap runs, or vmap with an axis_name%s", who, name,
      #vmaps > 0 and "; here these are " .. quoted(vmaps) or "")
  end
  if mesh.shape[name] then
    raise("E_SPEC", "%s: mesh axis '%s' is not manual here; shard_map's axis_names are %s: put it among them",
      who, name, quoted(manual))
  end
  raise("E_SPEC", "%s: axis '%s' is not bound here; the manual mesh axes are %s%s", who, name,
    quoted(manual), lib.did_you_mean(name, manual))
end

--- The vmap of that name: the only one of a list; nil where it is none. Lists of several are for mesh axes.
local function examples_of(who, axes)
  local list = type(axes) == "table" and axes or {axes}
  for _, name in ipairs(list) do
    local vmap = type(name) == "string" and trace.named(name)
    if vmap and #list > 1 then
      raise("E_UNSUPPORTED", "%s: '%s' is the name of a vmap; it stands alone, so call %s for each of %s",
        who, name, who, quoted(list))
    end
    if vmap then return {name = name, index = vmap.index, size = vmap.size} end
  end
end

--- The names of manual axes, or that of a vmap, as a list, and the number of devices or examples along them.
local function axes_of(who, axes)
  local vmap = examples_of(who, axes)
  if vmap then return {vmap.name}, vmap.size end
  local mesh, manual = core.manual()
  if type(axes) == "string" then axes = {axes} end
  lib.check_list(who, "the mesh axes", axes)
  local is_manual, seen, size = lib.set(manual or {}), {}, 1
  for i = 1, #axes do
    local name = axes[i]
    if not is_manual[name] then unbound(who, name, mesh, manual) end
    if seen[name] then raise("E_SPEC", "%s: mesh axis '%s' is given twice", who, name) end
    seen[name], size = true, size * mesh.shape[name]
  end
  return axes, size
end

-- ---- the examples of a vmap ---------------------------------------------------------------------------

--- The x of all examples, in front.
local function all_of(x, vmap) return core.gather_examples(x, vmap.index, vmap.name, vmap.size) end

--- This example's place along a dim with one for each, which goes away.
local function own(x, vmap, dim) return ops.take(x, vmap.index, dim) end

--- Dim 1 of x at `dim` of the others; tiled: in front of that dim, as one.
local function put(x, dim, tiled)
  x = ops.moveaxis(x, 1, dim)
  if not tiled then return x end
  local shape = x.shape
  shape[dim] = shape[dim] * table.remove(shape, dim + 1)
  return op.reshape(x, {dims = shape})
end

--- Dim `dim` of x as two, the first with a place for each example.
local function cut(x, vmap, dim, tiled)
  local shape = x.shape
  if not tiled then return x end
  shape[dim] = shape[dim] // vmap.size
  table.insert(shape, dim, vmap.size)
  return op.reshape(x, {dims = shape})
end

--- fn of x, or of every tensor of a tree; `number` of a Lua number.
local function each(who, x, fn, number)
  local above = {}
  local function go(node)
    if lib.is_tensor(node) then return fn(node) end
    if type(node) == "number" and number then return number(node) end
    if type(node) ~= "table" then
      raise("E_VALUE", "%s: expected a tensor or a tree of them, got %s", who, lib.kind(node))
    end
    if above[node] then raise("E_VALUE", "%s: the table contains itself", who) end
    lib.enter(who, node, above)
    local copy = {}
    for _, key in ipairs(core.tree_keys(node)) do copy[key] = go(node[key]) end
    lib.leave(node, above)
    return copy
  end
  return go(x)
end

local function all_reduce(who, x, axes, kind)
  local vmap = examples_of(who, axes)
  if vmap then return ops[kind](all_of(x, vmap), 1) end
  if #axes_of(who, axes) == 0 then return x end
  if type(axes) == "string" then axes = {axes} end
  return op.all_reduce(x, {axes = axes, kind = kind})
end

local function no_bool(x) return x.dtype == "bool" and op.astype(x, {dtype = "int32"}) or x end

-- ---- collectives ----------------------------------------------------------------------------------------

--- The sum of all devices' x along mesh axes: the same on all of them. A bool counts as int32; of a number it
--- is the number times the devices.
---@param x Tensor|number|table a tensor, or a tree of them
---@param axis_name string|string[]
---@return Tensor|number|table
function M.psum(x, axis_name)
  local _, n = axes_of("psum", axis_name)
  return each("psum", x, function(t) return all_reduce("psum", no_bool(t), axis_name, "sum") end,
    function(number) return number * n end)
end

--- The mean of all devices' x along mesh axes; integers become float32.
---@param x Tensor|number|table
---@param axis_name string|string[]
function M.pmean(x, axis_name)
  local _, n = axes_of("pmean", axis_name)
  return each("pmean", x, function(t)
    return op.div(all_reduce("pmean", no_bool(t), axis_name, "sum"), n)
  end, function(number) return number end)
end

local function extremum(who, kind)
  return function(x, axis_name)
    axes_of(who, axis_name)
    return each(who, x, function(t)
      if t.dtype ~= "bool" then return all_reduce(who, t, axis_name, kind) end
      return op.astype(all_reduce(who, no_bool(t), axis_name, kind), {dtype = "bool"})
    end, function(number) return number end)
  end
end

--- The largest (smallest) of all devices' x along mesh axes, element by element. Not differentiable.
M.pmax, M.pmin = extremum("pmax", "max"), extremum("pmin", "min")

local function check_options(who, options)
  options = lib.options(who, options)
  return options, options.tiled or false
end

--- All devices' x along mesh axes: stacked along a new dim at `axis` (default 1), or with tiled = true put
--- behind each other along that dim.
---@param x Tensor|table
---@param axis_name string|string[]
---@param options {axis: integer, tiled: boolean}?
function M.all_gather(x, axis_name, options)
  local o, tiled = check_options("all_gather", options)
  local axes = axes_of("all_gather", axis_name)
  return each("all_gather", x, function(t)
    local dim = axis_of("all_gather", o.axis or 1, tiled and t.ndim or t.ndim + 1)
    local vmap = examples_of("all_gather", axes)
    if vmap then return put(all_of(t, vmap), dim, tiled) end
    if not tiled then t = shapes.expand_dims(t, dim) end
    return op.all_gather(t, {dim = dim, axes = axes})
  end)
end

local function check_parts(who, t, dim, n, axes, tiled)
  local size = t.shape[dim]
  if tiled and size % n ~= 0 then
    raise("E_INDIVISIBLE", "%s: dim %d of %s has size %d, which %s of size %d does not divide", who, dim,
      core.typeof(t), size, quoted(axes), n)
  elseif not tiled and size ~= n then
    raise("E_SHAPE", "%s: dim %d of %s must have the size of %s, %d, and goes away; tiled = true cuts a "
      .. "larger dim into as many parts", who, dim, core.typeof(t), quoted(axes), n)
  end
end

--- The sum of all devices' x along mesh axes, of which each keeps its part of a dim (default 1). Without
--- tiled = true the dim has one place per device and goes away.
---@param x Tensor|table
---@param axis_name string|string[]
---@param options {scatter_dimension: integer, tiled: boolean}?
function M.psum_scatter(x, axis_name, options)
  local o, tiled = check_options("psum_scatter", options)
  local axes, n = axes_of("psum_scatter", axis_name)
  return each("psum_scatter", x, function(t)
    t = no_bool(t)
    local dim = axis_of("psum_scatter", o.scatter_dimension or 1, t.ndim)
    check_parts("psum_scatter", t, dim, n, axes, tiled)
    local vmap = examples_of("psum_scatter", axes)
    if vmap then return own(cut(ops.sum(all_of(t, vmap), 1), vmap, dim, tiled), vmap, dim) end
    local y = op.reduce_scatter(t, {dim = dim, axes = axes, kind = "sum"})
    return tiled and y or shapes.squeeze(y, dim)
  end)
end

--- Each device cuts x along `split_axis` into one part per device and sends these; what it gets it puts
--- behind each other along `concat_axis`. Without tiled = true the split dim has one place per device and
--- goes away, and the parts are stacked along a new dim at `concat_axis` of the result.
---@param x Tensor|table
---@param axis_name string|string[]
---@param split_axis integer
---@param concat_axis integer
---@param options {tiled: boolean}?
function M.all_to_all(x, axis_name, split_axis, concat_axis, options)
  local axes, n = axes_of("all_to_all", axis_name)
  local _, tiled = check_options("all_to_all", options)
  return each("all_to_all", x, function(t)
    local split = axis_of("all_to_all", split_axis, t.ndim)
    local concat = axis_of("all_to_all", concat_axis, t.ndim)
    check_parts("all_to_all", t, split, n, axes, tiled)
    local vmap = examples_of("all_to_all", axes)
    if vmap then
      local parts = own(cut(all_of(t, vmap), vmap, split + 1, tiled), vmap, split + 1)
      return put(parts, concat, tiled)
    end
    if tiled then return op.all_to_all(t, {split = split, concat = concat, axes = axes}) end
    -- A new dim where concat will be once the split dim is gone.
    local at = concat < split and concat or concat + 1
    if at <= split then split = split + 1 end
    local y = op.all_to_all(shapes.expand_dims(t, at), {split = split, concat = at, axes = axes})
    return shapes.squeeze(y, split)
  end)
end

--- The pairs flattened, once each place sends and receives at most once.
local function pairs_of(perm, n, axes)
  local flat, seen = {}, {{}, {}}
  lib.check_list("ppermute", "the permutation", perm)
  for i = 1, #perm do
    local pair = lib.check_list("ppermute", "a pair", perm[i])
    if #pair ~= 2 then raise("E_VALUE", "ppermute: pair %d is not {source, destination}", i) end
    for k, what in ipairs {"source", "destination"} do
      local place = lib.check_integer("ppermute", "a " .. what, pair[k])
      if place < 0 or place >= n then
        raise("E_VALUE", "ppermute: pair %d: %s %d is outside 0..%d, the places along %s", i, what, place,
          n - 1, quoted(axes))
      end
      if seen[k][place] then
        raise("E_VALUE", "ppermute: place %d along %s is the %s of pairs %d and %d; each sends and receives "
          .. "at most once (all_gather and psum reach all)", place, quoted(axes), what, seen[k][place], i)
      end
      seen[k][place], flat[#flat + 1] = i, place
    end
  end
  return flat
end

--- x of another device: perm is a list of {source, destination}, 0-based places along the axes. Who is no
--- destination gets zeros.
---@param x Tensor|table
---@param axis_name string|string[]
---@param perm integer[][]
function M.ppermute(x, axis_name, perm)
  local axes, n = axes_of("ppermute", axis_name)
  local flat, vmap = pairs_of(perm, n, axes), examples_of("ppermute", axes)
  if vmap then
    local from, is = {}, {}
    for place = 1, n do from[place], is[place] = 0, false end
    for i = 1, #flat, 2 do from[flat[i + 1] + 1], is[flat[i + 1] + 1] = flat[i], true end
    from, is = own(core.tensor(from, "int32"), vmap, 1), own(core.tensor(is, "bool"), vmap, 1)
    return each("ppermute", x, function(t)
      return ops.where(is, ops.take(all_of(t, vmap), from, 1), ops.zeros_like(t))
    end)
  end
  return each("ppermute", x, function(t) return op.ppermute(t, {axes = axes, pairs = flat}) end)
end

--- This device's place along the axes, from 0: an int32 scalar.
---@param axis_name string|string[]
function M.axis_index(axis_name)
  local axes, vmap = axes_of("axis_index", axis_name), examples_of("axis_index", axis_name)
  if vmap then return vmap.index end
  return op.reshape(op.axis_index {axes = axes}, {dims = {}})
end

--- How many devices there are along the axes: a number.
---@param axis_name string|string[]
---@return integer
function M.axis_size(axis_name)
  local _, n = axes_of("axis_size", axis_name)
  return n
end

--- x with another type, nothing is moved. to = "varying" (default): a value that is the same on all devices
--- may differ; ops do it themselves where values meet, its transpose is psum. "reduced": the same on all
--- devices, but its cotangent stays a sum still to be made. "unreduced": a varying value as the parts of such
--- a sum, which psum makes; linear ops take it.
---@param x Tensor|table
---@param axis_name string|string[]
---@param options {to: string}?
function M.pcast(x, axis_name, options)
  local to = lib.options("pcast", options).to or "varying"
  local axes = axes_of("pcast", axis_name)
  if examples_of("pcast", axis_name) then return x end
  if to ~= "varying" and to ~= "reduced" and to ~= "unreduced" then
    raise("E_VALUE", "pcast: to = '%s'; a value can be cast to 'varying', 'reduced' and 'unreduced' (psum "
      .. "makes one that is the same on all devices)", to)
  end
  return each("pcast", x, function(t)
    local varies, rest = lib.set(to == "varying" and core.vary(t) or {}), {}
    for _, name in ipairs(axes) do
      if not varies[name] then rest[#rest + 1] = name end
    end
    return #rest > 0 and op.pcast(t, {axes = rest, to = to}) or t
  end)
end

M.all_to_all = lib.named("all_to_all", M.all_to_all)

return lib.export(M)
