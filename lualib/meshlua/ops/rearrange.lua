-- rearrange.lua: the same elements several times, or in other places along their axes.
local core = require "meshlua.core"
local lib = require "meshlua.lib"
local args = require "meshlua.ops.args"
local dynamic = require "meshlua.ops.dynamic"
local index = require "meshlua.ops.index"
local parts = require "meshlua.ops.parts"

local op, raise = core.op, lib.raise
local check_tensor, axis_of = args.check_tensor, args.axis_of

local M = {}

local MOST_IDS = 1 << 26 -- places that a list of numbers can ask for

--- Whole numbers as a list: one stands for a list of one.
local function integers(who, what, value)
  if type(value) ~= "table" then value = {lib.check_integer(who, what, value)} end
  for _, n in ipairs(lib.check_list(who, what, value)) do lib.check_integer(who, what, n) end
  return value
end

local function flat(x) return op.reshape(x, {dims = {x.size}}) end

--- x with each element along its dims as often as `dims` at the places between them says, merged with that dim.
---@param counts integer[] for each dim of x
---@param inner boolean copies of an element lie beside each other, else those of the whole
local function copies(x, counts, inner)
  local dims, at, merged = {}, {}, {}
  for d, n in ipairs(x.shape) do
    at[d] = inner and 2 * d - 1 or 2 * d
    dims[at[d]], dims[inner and 2 * d or 2 * d - 1], merged[d] = n, counts[d], n * counts[d]
  end
  return op.reshape(op.broadcast(x, {dims = dims, at = at}), {dims = merged})
end

--- x as often as `reps` says along each dim; dims align at the end.
---@param x Tensor
---@param reps integer|integer[]
---@return Tensor
function M.tile(x, reps)
  local shape = check_tensor("tile", x).shape
  reps = args.copy(integers("tile", "reps", reps))
  for _, n in ipairs(reps) do
    if n < 0 then raise("E_VALUE", "tile: reps has %d for %s", n, core.typeof(x)) end
  end
  while #reps < #shape do table.insert(reps, 1, 1) end
  if #reps > #shape then
    while #shape < #reps do table.insert(shape, 1, 1) end
    x = op.reshape(x, {dims = shape})
  end
  return copies(x, reps, false)
end

--- Each element `repeats` times, or the i-th repeats[i] times, along an axis; without one of x as a vector.
---@param x Tensor
---@param repeats integer|integer[]
---@param axis integer?
---@return Tensor
function M.repeat_interleave(x, repeats, axis)
  local who = "repeat_interleave"
  check_tensor(who, x)
  repeats = integers(who, "repeats", repeats)
  if axis == nil then x, axis = flat(x), 1 end
  axis = axis_of(who, axis, x.ndim)
  local n, counts = x.shape[axis], {}
  if #repeats ~= 1 and #repeats ~= n then
    raise("E_SHAPE", "%s: %s for axis %d of %s", who, lib.count(#repeats, "number"), axis, core.typeof(x))
  end
  for _, count in ipairs(repeats) do
    if count < 0 then raise("E_VALUE", "%s: repeats has %d", who, count) end
  end
  if #repeats == 1 then
    for d = 1, x.ndim do counts[d] = d == axis and repeats[1] or 1 end
    return copies(x, counts, true)
  end
  local ids, total = {}, 0
  for i, count in ipairs(repeats) do
    total = total + count
    if count > MOST_IDS or total > MOST_IDS then
      raise("E_SHAPE", "%s: a list of repeats makes at most %d of axis %d of %s", who, MOST_IDS, axis,
        core.typeof(x))
    end
    ids[i] = string.pack("=i4", i - 1):rep(count)
  end
  return index.take(x, core.from_string(table.concat(ids), "int32", {total}), axis)
end

--- x along one axis from place n - shift on, and round.
local function rolled(x, shift, axis)
  local n = x.shape[axis]
  if n == 0 then return x end
  local starts, sizes = {}, x.shape
  if not lib.is_tensor(shift) then
    shift = shift % n
    if shift == 0 then return x end
    local ranges = {}
    for d = 1, x.ndim do ranges[d] = false end
    ranges[axis] = {n - shift + 1, n}
    local last = parts.slice(x, table.unpack(ranges))
    ranges[axis] = {1, n - shift}
    return parts.concat({last, (parts.slice(x, table.unpack(ranges)))}, axis)
  end
  for d = 1, x.ndim do starts[d] = 0 end
  starts[axis] = op.sub(n, op.mod(args.to_int32(shift), n))
  return dynamic.dynamic_slice(parts.concat({x, x}, axis), starts, sizes)
end

--- Elements moved on by `shift` along axes (a number, or one for each), those at the end to the front; without axes
--- of x as a vector. A shift may be a computed integer.
---@param x Tensor
---@param shift integer|integer[]|Tensor
---@param axes integer|integer[]|nil
---@return Tensor
function M.roll(x, shift, axes)
  check_tensor("roll", x)
  local shifts = lib.is_tensor(shift) and {shift} or integers("roll", "the shift", shift)
  local y, list = axes and x or flat(x), axes and integers("roll", "axes", axes) or {1}
  if #shifts ~= #list and (#shifts ~= 1 and #list ~= 1 or #shifts * #list == 0) then
    raise("E_SHAPE", "roll: %s for %s", lib.count(#shifts, "shift"), lib.count(#list, "axis", "axes"))
  end
  for i = 1, math.max(#shifts, #list) do
    y = rolled(y, shifts[i] or shifts[1], axis_of("roll", list[i] or list[1], y.ndim))
  end
  return axes and y or op.reshape(y, {dims = x.shape})
end

--- Axes moved to other places; the others keep their order.
---@param x Tensor
---@param source integer|integer[]
---@param destination integer|integer[]
---@return Tensor
function M.moveaxis(x, source, destination)
  local rank, perm, used = check_tensor("moveaxis", x).ndim, {}, {}
  source = integers("moveaxis", "source", source)
  destination = integers("moveaxis", "destination", destination)
  if #source ~= #destination then
    raise("E_SHAPE", "moveaxis: %s to %s", lib.count(#source, "axis", "axes"),
      lib.count(#destination, "place"))
  end
  for i, axis in ipairs(source) do
    local from, to = axis_of("moveaxis", axis, rank), axis_of("moveaxis", destination[i], rank)
    if used[from] or perm[to] then raise("E_SHAPE", "moveaxis: an axis is given twice") end
    used[from], perm[to] = true, from
  end
  local from = 1
  for d = 1, rank do
    if not perm[d] then
      while used[from] do from = from + 1 end
      perm[d], from = from, from + 1
    end
  end
  return op.transpose(x, {perm = perm})
end

--- The coordinates of a grid, a tensor for each of the vectors; indexing "xy" (default) has the first along dim 2.
---@param list Tensor[]
---@param indexing string? "xy" or "ij"
---@return Tensor[]
function M.meshgrid(list, indexing)
  if indexing ~= nil and indexing ~= "xy" and indexing ~= "ij" then
    raise("E_VALUE", "meshgrid: indexing is 'xy' or 'ij', not %s", type(indexing) == "string"
      and "'" .. indexing .. "'" or lib.kind(indexing))
  end
  local dims, place, out = {}, {}, {}
  for i, x in ipairs(lib.check_list("meshgrid", "the vectors", list)) do
    if check_tensor("meshgrid", x).ndim ~= 1 then
      raise("E_SHAPE", "meshgrid: entry %d is %s; expected vectors", i, core.typeof(x))
    end
    place[i] = i <= 2 and #list > 1 and indexing ~= "ij" and 3 - i or i
    dims[place[i]] = x.size
  end
  for i, x in ipairs(list) do out[i] = op.broadcast(x, {dims = dims, at = {place[i]}}) end
  return out
end

return M
