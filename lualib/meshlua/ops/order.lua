-- order.lua: what stands on sorting and on counting: several keys, places in what is sorted, what is there once,
-- and where something is not zero. What has a computed size is given one.
local core = require "meshlua.core"
local lib = require "meshlua.lib"
local args = require "meshlua.ops.args"
local index = require "meshlua.ops.index"
local parts = require "meshlua.ops.parts"
local shapes = require "meshlua.ops.shape"

local op, raise = core.op, lib.raise
local check_tensor, axis_of = args.check_tensor, args.axis_of

local M = {}

local function check_size(who, size)
  if lib.check_integer(who, "the size", size) < 0 then raise("E_VALUE", "%s: the size is %d", who, size) end
  return size
end

local function flat(x) return op.reshape(x, {dims = {x.size}}) end

local function count_up(n) return op.iota {dims = {n}, dim = 1, dtype = "int32"} end

local function whole(shape, value, dtype) return op.full {dims = shape, value = value, dtype = dtype} end

-- ---- several keys ---------------------------------------------------------------------------------------

--- The 0-based places that sort lines along an axis (default last) by several keys, the last of which counts most:
--- stable, NaN last.
---@param keys Tensor[] of one shape
---@param axis integer?
---@return Tensor int32
function M.lexsort(keys, axis)
  local first = lib.check_list("lexsort", "the keys", keys)[1]
  if not first then raise("E_VALUE", "lexsort: no keys") end
  for i, key in ipairs(keys) do
    check_tensor("lexsort", key, "key " .. i)
    if not lib.same_shape(key.shape, first.shape) then
      raise("E_SHAPE", "lexsort: key %d is %s, key 1 %s; they must have one shape", i, core.typeof(key),
        core.typeof(first))
    end
  end
  if first.ndim == 0 then return whole({}, 0, "int32") end
  axis = axis_of("lexsort", axis or -1, first.ndim)
  local carried = {op.iota {dims = first.shape, dim = axis, dtype = "int32"}}
  for i = #keys, 2, -1 do carried[#carried + 1] = keys[i] end
  for i = 1, #keys do
    local key = i == 1 and keys[1] or table.remove(carried)
    carried = {select(2, parts.sort(key, axis, false, table.unpack(carried)))}
  end
  return carried[1]
end

-- ---- places in what is sorted ---------------------------------------------------------------------------

--- Does a stand before v (or, `also`, beside it)? NaN stands behind all, beside NaN.
local function is_before(a, v, also)
  local before = (also and op.le or op.lt)(a, v)
  if not lib.floats[a.dtype] then return before end
  local is_nan = op.ne(v, v)
  return op.bitor(before, also and is_nan or op.bitand(is_nan, op.eq(a, a)))
end

--- The 0-based places in the ascending vector a at which elements of v keep it sorted: "left" before equal ones,
--- "right" behind them.
---@param a Tensor a vector
---@param v Tensor|number
---@param side string? default "left"
---@return Tensor int32 of v's shape
function M.searchsorted(a, v, side)
  local who = "searchsorted"
  check_tensor(who, a)
  if a.ndim ~= 1 then raise("E_SHAPE", "searchsorted: %s is no vector", core.typeof(a)) end
  if side ~= nil and side ~= "left" and side ~= "right" then
    raise("E_VALUE", "searchsorted: side %s; it is 'left' or 'right'", lib.text(side))
  end
  if type(v) == "number" then v = whole({}, v, lib.floats[a.dtype] and a.dtype or math.type(v) == "integer"
    and a.dtype or "float32") end
  check_tensor(who, v, "v")
  local dtype, n = core.promote(a.dtype, v.dtype), a.size
  a, v = args.as(a, dtype), args.as(v, dtype)
  local place, step = whole(v.shape, 0, "int32"), 1
  while step <= n do step = step * 2 end
  while step > 1 and n > 0 do
    step = step // 2
    local last = op.add(place, step - 1)
    local before = is_before(index.take(a, op.minimum(last, n - 1)), v, side == "right")
    place = op.where(op.bitand(before, op.lt(last, n)), op.add(place, step), place)
  end
  return place
end

-- ---- where something is not zero ------------------------------------------------------------------------

--- The first `size` numbers at which a vector of bools is true, and how many there are.
local function marked(mask, size, fill)
  local place = op.cumsum(op.astype(mask, {dtype = "int32"}), {axis = 1})
  local to = op.where(mask, op.sub(place, 1), size)
  return index.scatter_set(whole({size}, fill, "int32"), to, count_up(mask.size), 1, "drop")
end

local function as_mask(x) return x.dtype == "bool" and x or op.ne(x, 0) end

--- The 0-based places of the first `size` elements that are not zero, in row-major order: one tensor for each dim of
--- x. Where there are fewer, `fill` (default 0) stands behind them.
---@param x Tensor
---@param size integer
---@param fill integer?
---@return Tensor, ... int32 [size]
function M.nonzero(x, size, fill)
  check_tensor("nonzero", x)
  check_size("nonzero", size)
  if x.ndim == 0 then raise("E_SHAPE", "nonzero: %s has no dims; x:reshape(1)", core.typeof(x)) end
  local at, list, n = marked(flat(as_mask(x)), size, -1), {}, 1
  local is_there = op.ge(at, 0)
  for d = x.ndim, 1, -1 do
    local dim = x.shape[d]
    local own = dim > 0 and op.rem(op.div(at, n), dim) or at
    list[d] = op.where(is_there, args.as(own, "int32"), fill or 0)
    n = n * math.max(1, dim)
  end
  return table.unpack(list)
end

--- The first `size` rows of x along an axis (default 1) that a mask marks; behind them `fill` (default 0).
---@param x Tensor
---@param mask Tensor a vector of bools
---@param size integer
---@param axis integer?
---@param fill number|boolean?
---@return Tensor
function M.compress(x, mask, size, axis, fill)
  check_tensor("compress", x)
  check_size("compress", size)
  axis = axis_of("compress", axis or 1, x.ndim)
  local n = x.shape[axis]
  if check_tensor("compress", mask, "the mask").ndim ~= 1 or mask.size ~= n then
    raise("E_SHAPE", "compress: the mask must have the %d of dim %d of x (x %s, mask %s)", n, axis,
      core.typeof(x), core.typeof(mask))
  end
  if fill == nil then fill = x.dtype ~= "bool" and 0 end
  return index.take(x, marked(as_mask(mask), size, n), axis, "fill", fill)
end

--- The first `size` different elements of x, ascending; NaN are one, and last. Where there are fewer, `fill` (default
--- the least) stands behind them. On request, behind them in this order: `index`, the place in x (in row-major order)
--- of the first of each, `inverse`, for each element of x the number of its own, `counts`, how often each is there.
---@param x Tensor
---@param size integer
---@param fill number|boolean?
---@param options {index: boolean, inverse: boolean, counts: boolean}?
---@return Tensor, ...
function M.unique(x, size, fill, options)
  check_tensor("unique", x)
  check_size("unique", size)
  options = options or {}
  local n = x.size
  if n == 0 and size > 0 and fill == nil then
    raise("E_SHAPE", "unique: %s has no elements; give fill", core.typeof(x))
  end
  local sorted, place = parts.sort(flat(x), 1, false, count_up(n))
  local is_new = whole({math.min(n, 1)}, true, "bool")
  if n > 1 then
    local before, behind = parts.slice(sorted, {1, n - 1}), parts.slice(sorted, {2, n})
    local differ = op.ne(before, behind)
    if lib.floats[x.dtype] then -- NaN are one
      differ = op.bitand(differ, op.bitor(op.eq(before, before), op.eq(behind, behind)))
    end
    is_new = parts.concat {is_new, differ}
  end
  local number = op.sub(op.cumsum(op.astype(is_new, {dtype = "int32"}), {axis = 1}), 1)
  local first = marked(is_new, size, n) -- in `sorted`
  local is_there = op.lt(first, n)
  local from = op.where(is_there, first, 0)
  local values = n == 0 and whole({size}, fill, x.dtype) or index.take(sorted, from)
  if fill ~= nil and n > 0 then values = op.where(is_there, values, whole({size}, fill, x.dtype)) end
  local results = {values}
  if options.index then results[#results + 1] = n == 0 and from or index.take(place, from) end
  if options.inverse then
    local inverse = index.scatter_set(whole({n}, 0, "int32"), place, number)
    results[#results + 1] = shapes.reshape(inverse, x.shape)
  end
  if options.counts then results[#results + 1] = index.segment_sum(whole({n}, 1, "int32"), number, size) end
  return table.unpack(results)
end

return M
