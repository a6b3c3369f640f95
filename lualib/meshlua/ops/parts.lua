-- parts.lua: tensors taken apart and put together: slices, concatenation, sorting.
local core = require "meshlua.core"
local lib = require "meshlua.lib"
local args = require "meshlua.ops.args"
local index = require "meshlua.ops.index"
local shapes = require "meshlua.ops.shape"

local op, raise = core.op, lib.raise
local check_tensor, axis_of, axes_of = args.check_tensor, args.axis_of, args.axes_of
local copy, meet = args.copy, args.meet

local M = {}

--- One position along a dim as 1..n.
local function position(who, i, n, d)
  if math.type(i) ~= "integer" then
    raise("E_VALUE", "%s: positions of dim %d are whole numbers, not %s", who, d, i)
  end
  local p = i < 0 and i + n + 1 or i
  if p < 1 or p > n then
    raise("E_SHAPE", "%s: position %d of dim %d, which has %d; positions count from 1", who, i, d, n)
  end
  return p
end

--- The start (0-based), the limit and the step of a range along a dim of n; nil or false: all of it.
local function bounds(who, range, n, d)
  if not range then return 0, n, 1 end
  local first, last, step = range[1] or 1, range[2] or -1, range[3] or 1
  if type(first) == "table" or type(last) == "table" then
    raise("E_VALUE", "%s: the range of dim %d has ranges in it; each dim's is an argument of its own: %s",
      who, d, "x:slice(false, {1, 4})")
  end
  lib.check_integer(who, "the first position of a range", first)
  lib.check_integer(who, "the last position of a range", last)
  if math.type(step) ~= "integer" or step < 1 then
    raise("E_VALUE", "%s: the step of dim %d is %s; it must be 1 or more", who, d, step)
  end
  if first == n + 1 and (last == n or last == -1) then return n, n, step end
  if last == first - 1 then return first - 1, first - 1, step end
  if n == 0 and first == 1 and last == -1 then return 0, n, step end
  local start, limit = position(who, first, n, d) - 1, position(who, last, n, d)
  if limit < start then
    raise("E_SHAPE", "%s: the range %d..%d of dim %d is backwards; use flip", who, first, last, d)
  end
  return start, limit, step
end

local function slice(who, x, ...)
  check_tensor(who, x)
  local shape = x.shape
  local given = select("#", ...)
  if given > #shape then
    raise("E_SHAPE", "%s: %s for rank %d", who, lib.count(given, "range"), #shape)
  end
  local start, limit, step, kept = {}, {}, {}, {}
  for d, n in ipairs(shape) do
    local range = d <= given and select(d, ...)
    if type(range) == "number" then
      limit[d] = position(who, range, n, d)
      start[d], step[d] = limit[d] - 1, 1
    elseif range and type(range) ~= "table" then
      raise("E_VALUE", "%s: the range of dim %d is %s; expected {first, last, step}, a position or false",
        who, d, lib.kind(range))
    else
      start[d], limit[d], step[d] = bounds(who, range, n, d)
      kept[#kept + 1] = (limit[d] - start[d] + step[d] - 1) // step[d]
    end
  end
  local y = op.slice(x, {start = start, limit = limit, step = step})
  return #kept < #shape and op.reshape(y, {dims = kept}) or y
end

--- A range of each dim, 1-based and inclusive: x:slice({1, 4}, false, {2, -1, 2}, 3). nil or false takes
--- the whole dim, {first, last, step} a range (last nil: to the end), a number one position, whose dim
--- is dropped.
---@param x Tensor
function M.slice(x, ...) return slice("slice", x, ...) end

--- x at position i (1-based) of its first dim, which is dropped; more positions go on with the next. With ids (tensors,
--- 0-based) or a mask: elements to be read or changed, by x:at(ids):get(), :set(u), :add(u), :mul(u), :max(u), :min(u).
function M.at(x, ...)
  for d = 1, select("#", ...) do
    if lib.is_tensor((select(d, ...))) then return index.at_ids(check_tensor("at", x), ...) end
  end
  return slice("at", x, ...)
end

--- The given axes backwards (nil: all).
function M.flip(x, axes)
  check_tensor("flip", x)
  return op.flip(x, {axes = axes_of("flip", axes, x.ndim)})
end

--- Where the 0-based place p of a border beside n elements comes from.
local sources = {
  edge = function(p, n) return math.max(0, math.min(p, n - 1)) end,
  wrap = function(p, n) return p % n end,
  reflect = function(p, n)
    if n == 1 then return 0 end
    p = p % (2 * n - 2)
    return p < n and p or 2 * n - 2 - p
  end,
  symmetric = function(p, n)
    p = p % (2 * n)
    return p < n and p or 2 * n - 1 - p
  end,
}

--- x with a border made of its own elements.
local function bordered(x, low, high, interior, mode)
  for d, n in ipairs(x.shape) do
    if low[d] < 0 or high[d] < 0 or interior[d] ~= 0 or n == 0 and low[d] + high[d] > 0 then
      raise("E_SHAPE", "pad: '%s' takes no {%d, %d, %d} for dim %d of %s", mode, low[d], high[d],
        interior[d], d, core.typeof(x))
    end
    local ids = {}
    for p = -low[d], n + high[d] - 1 do ids[#ids + 1] = sources[mode](p, n) end
    if #ids > n then x = index.take(x, core.tensor(ids, "int32"), d) end
  end
  return x
end

--- x with a border: pad(x, {{low, high}, ...}, value) with one pair (or false) per dim; or of its own elements: the
--- nearest ("edge"), those of the other end ("wrap"), mirrored at the last one ("reflect") or behind it ("symmetric").
---@param value number? default 0
---@param mode string? default "constant"
function M.pad(x, pads, value, mode)
  check_tensor("pad", x)
  local low, high, interior = {}, {}, {}
  if #lib.check_list("pad", "the pads", pads) ~= x.ndim then
    raise("E_SHAPE", "pad: %s for a tensor of rank %d; false leaves a dim alone", lib.count(#pads, "pad"),
      x.ndim)
  end
  for d = 1, x.ndim do
    local p = lib.check_list("pad", "the pad of a dim", pads[d] or {0, 0})
    low[d] = lib.check_integer("pad", "the low pad", p[1])
    high[d] = lib.check_integer("pad", "the high pad", p[2])
    interior[d] = lib.check_integer("pad", "the interior pad", p[3] or 0)
  end
  if mode ~= nil and mode ~= "constant" then
    if not sources[mode] then
      raise("E_VALUE", "pad: mode %s; it is 'constant', 'edge', 'wrap', 'reflect' or 'symmetric'",
        type(mode) == "string" and "'" .. mode .. "'" or lib.kind(mode))
    end
    return bordered(x, low, high, interior, mode)
  end
  local v = op.full({dtype = x.dtype, dims = {}, value = value or 0})
  return op.pad(x, v, {low = low, high = high, interior = interior})
end

local MOST_PARTS = 64 -- that one op takes

--- Tensors behind each other along an axis (default 1).
---@param list Tensor[]
---@param axis integer?
function M.concat(list, axis)
  list = meet("concat", list)
  local attr = {axis = axis_of("concat", axis or 1, list[1].ndim)}
  while #list > MOST_PARTS do
    local joined = {}
    for i = 1, #list, MOST_PARTS do
      local parts = table.move(list, i, math.min(i + MOST_PARTS - 1, #list), 1, {})
      parts[#parts + 1] = attr
      joined[#joined + 1] = op.concat(table.unpack(parts))
    end
    list = joined
  end
  list[#list + 1] = attr
  return op.concat(table.unpack(list))
end

--- Tensors of one shape along a new axis (default 1).
function M.stack(list, axis)
  list = meet("stack", list)
  for i, x in ipairs(list) do list[i] = shapes.expand_dims(x, axis or 1) end
  return M.concat(list, axis or 1)
end

local MOST_EMPTY = 4096 -- parts of a dim without elements

--- Where n equal parts of a dim end, the last one left out.
local function equal_cuts(n, size, axis)
  if math.type(n) ~= "integer" or n < 1 or size % n ~= 0 or n > math.max(size, MOST_EMPTY) then
    raise("E_INDIVISIBLE", "split: dim %d of size %d is not divided by %s", axis, size, n)
  end
  local cuts = {}
  for i = 1, n - 1 do cuts[i] = i * (size // n) end
  return cuts
end

--- Into n parts whose sizes differ by 1 at most.
local function near_cuts(n, size, axis)
  if lib.check_integer("array_split", "the number of parts", n) < 1 or n > math.max(size, MOST_EMPTY) then
    raise("E_VALUE", "array_split: dim %d of size %d in %d parts", axis, size, n)
  end
  local cuts = {}
  for i = 1, n - 1 do cuts[i] = i * (size // n) + math.min(i, size % n) end
  return cuts
end

local function split(who, x, n, axis, cuts_of)
  check_tensor(who, x)
  axis = axis_of(who, axis or 1, x.ndim)
  local size, ranges, list = x.shape[axis], {}, {}
  local cuts = type(n) == "table" and lib.check_list(who, "the places", n) or cuts_of(n, size, axis)
  for d = 1, x.ndim do ranges[d] = false end
  local first = 0
  for i = 1, #cuts + 1 do
    local last = cuts[i] and lib.check_integer(who, "a place", cuts[i]) or size
    if last < first or last > size then
      raise("E_SHAPE", "%s: cut behind element %d of dim %d of %s; places rise from 0 to %d", who, last, axis,
        core.typeof(x), size)
    end
    ranges[axis] = {first + 1, last}
    list[i], first = M.slice(x, table.unpack(ranges)), last
  end
  return list
end

--- x cut along an axis (default 1) into n equal parts, or behind the elements that a list counts: {2, 5} gives
--- elements 1..2, 3..5 and the rest. A list of parts.
---@param x Tensor
---@param n integer|integer[]
---@param axis integer?
---@return Tensor[]
function M.split(x, n, axis) return split("split", x, n, axis, equal_cuts) end

--- The same; of the n parts the first may be larger by 1 than the others.
---@param x Tensor
---@param n integer|integer[]
---@param axis integer?
---@return Tensor[]
function M.array_split(x, n, axis) return split("array_split", x, n, axis, near_cuts) end

--- 1 where the last, new dim's 0-based position is the id, else 0.
---@param dtype string? default float32
function M.one_hot(ids, n, dtype)
  check_tensor("one_hot", ids)
  lib.check_integer("one_hot", "the number of classes", n)
  local shape = copy(ids.shape)
  shape[#shape + 1] = n
  local classes = op.iota {dtype = "int32", dims = shape, dim = #shape}
  local hit = op.eq(classes, shapes.expand_dims(args.to_int32(ids), -1))
  return op.astype(hit, {dtype = dtype or "float32"})
end

--- The lines along an axis (default last) in ascending order, or descending; NaN last. Further tensors
--- are permuted alike and returned behind.
function M.sort(x, axis, descending, ...)
  check_tensor("sort", x)
  local attr = {axis = axis_of("sort", axis or -1, x.ndim), descending = descending or false}
  local list = {x, ...}
  for i = 1, select("#", ...) do check_tensor("sort", list[i + 1]) end
  list[#list + 1] = attr
  return op.sort(table.unpack(list))
end

--- The 0-based places that sorting the lines along an axis (default last) would take: stable, NaN last.
---@param x Tensor
---@param axis integer?
---@param descending boolean?
---@return Tensor int32 of x's shape
function M.argsort(x, axis, descending)
  check_tensor("argsort", x)
  axis = axis_of("argsort", axis or -1, x.ndim)
  return select(2, M.sort(x, axis, descending, op.iota {dims = x.shape, dim = axis, dtype = "int32"}))
end

--- The k largest along an axis (default last), falling, and their 0-based places. Of equal ones the first
--- stands first; NaN is above all.
---@param x Tensor
---@param k integer
---@param axis integer?
---@return Tensor values, Tensor ids int32
function M.top_k(x, k, axis)
  check_tensor("top_k", x)
  lib.check_integer("top_k", "k", k)
  return op.top_k(x, {k = k, axis = axis_of("top_k", axis or -1, x.ndim)})
end

return M
