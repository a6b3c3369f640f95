-- statistics.lua: differences, orders, counts and tables of samples.
local core = require "meshlua.core"
local lib = require "meshlua.lib"
local args = require "meshlua.ops.args"
local index = require "meshlua.ops.index"
local parts = require "meshlua.ops.parts"

local op, raise = core.op, lib.raise
local check_tensor, axis_of, axes_of, as = args.check_tensor, args.axis_of, args.axes_of, args.as

local M = {}

--- Elements first..last along an axis; the other dims whole.
local function between(x, axis, first, last)
  local ranges = {}
  for d = 1, x.ndim do ranges[d] = d == axis and {first, last} end
  return (parts.slice(x, table.unpack(ranges)))
end

--- The differences of neighbours along an axis (default last), taken n times (default 1); of bool whether they differ.
---@param x Tensor
---@param n integer?
---@param axis integer?
---@param prepend Tensor? what stands in front along the axis
---@param append Tensor?
---@return Tensor
function M.diff(x, n, axis, prepend, append)
  axis = axis_of("diff", axis or -1, check_tensor("diff", x).ndim)
  n = n == nil and 1 or lib.check_integer("diff", "n", n)
  if n < 0 then raise("E_VALUE", "diff: n is %d; it must be 0 or more", n) end
  local list = {x}
  if prepend ~= nil then table.insert(list, 1, check_tensor("diff", prepend, "prepend")) end
  if append ~= nil then list[#list + 1] = check_tensor("diff", append, "append") end
  if n > 0 and #list > 1 then x = parts.concat(list, axis) end
  for _ = 1, n do
    local size = x.shape[axis]
    if size == 0 then return x end
    x = (x.dtype == "bool" and op.ne or op.sub)(between(x, axis, 2, size), between(x, axis, 1, size - 1))
  end
  return x
end

-- ---- orders -------------------------------------------------------------------------------------------------

--- Axes merged into a last one, and the shape that is left: without them, or with size 1 for each.
local function merged(x, axes, keepdims)
  local perm, left, dims, is_gone, n, shape = {}, {}, {}, {}, 1, x.shape
  for _, axis in ipairs(axes) do is_gone[axis], n = true, n * shape[axis] end
  for d, size in ipairs(shape) do
    if not is_gone[d] then perm[#perm + 1], dims[#dims + 1] = d, size end
    if keepdims or not is_gone[d] then left[#left + 1] = is_gone[d] and 1 or size end
  end
  table.move(axes, 1, #axes, #perm + 1, perm)
  dims[#dims + 1] = n
  return op.reshape(op.transpose(x, {perm = perm}), {dims = dims}), left
end

--- What stands between two neighbours, `part` of the way: by the name of the method.
local methods = {
  linear = function(part) return part end,
  lower = function() return 0 end,
  higher = function(part) return part > 0 and 1 or 0 end,
  midpoint = function(part) return part > 0 and 0.5 or 0 end,
  nearest = function(part) return part > 0.5 and 1 or 0 end,
}

--- The q-quantiles of sorted lines, the last dim of which has n.
local function quantile_of(sorted, n, q, method)
  local at = q * (n - 1)
  local below = math.floor(at)
  local part, rank = methods[method](at - below), sorted.ndim
  local low = between(sorted, rank, below + 1, below + 1)
  if part == 0 then return low end
  local high = between(sorted, rank, below + 2, below + 2)
  return part == 1 and high or op.add(op.mul(low, 1 - part), op.mul(high, part))
end

local function quantile(who, x, q, axes, keepdims, method)
  axes = axes_of(who, axes, check_tensor(who, x).ndim)
  method = method or "linear"
  if not methods[method] then
    raise("E_VALUE", "%s: method is one of linear, lower, higher, midpoint, nearest, not %s", who,
      type(method) == "string" and "'" .. method .. "'" or lib.kind(method))
  end
  local list = type(q) == "number" and {q} or lib.check_list(who, "q", q)
  for _, value in ipairs(list) do
    if lib.check_number(who, "q", value) < 0 or value > 1 or value ~= value then
      raise("E_VALUE", "%s: q is %s; it is a number from 0 to 1", who, value)
    end
  end
  return args.in_sums(x, function(w)
    local lines, left = merged(w, axes, keepdims)
    local n, out = lines.shape[lines.ndim], {}
    if n == 0 then raise("E_SHAPE", "%s: %s has no elements there", who, core.typeof(x)) end
    local sorted = parts.sort(lines)
    local last = between(sorted, lines.ndim, n, n)
    for i, value in ipairs(list) do
      local y = quantile_of(sorted, n, value, method)
      out[i] = op.reshape(op.where(op.ne(last, last), last, y), {dims = left}) -- NaN is sorted last
    end
    return type(q) == "number" and out[1] or parts.stack(out)
  end)
end

--- What q of the elements over axes (default all) do not exceed; q a number from 0 to 1, or a list, which becomes
--- dim 1. Between two elements the method decides: linear, lower, higher, midpoint, nearest.
---@param x Tensor
---@param q number|number[]
---@param axes integer|integer[]|nil
---@param keepdims boolean?
---@param method string? default "linear"
---@return Tensor
function M.quantile(x, q, axes, keepdims, method)
  return quantile("quantile", x, q, axes, keepdims, method)
end

--- The element in the middle over axes (default all), or the mean of the two.
function M.median(x, axes, keepdims) return quantile("median", x, 0.5, axes, keepdims) end

-- ---- counts -------------------------------------------------------------------------------------------------

--- n + 1 edges from low to high, which are numbers or scalars.
local function edges_between(low, high, n, dtype)
  local none = op.eq(low, high)
  low, high = op.where(none, op.sub(low, 0.5), low), op.where(none, op.add(high, 0.5), high)
  local way = op.div(op.iota {dims = {n + 1}, dim = 1, dtype = dtype}, n)
  return op.add(op.mul(low, op.sub(1.0, way)), op.mul(high, way))
end

local function scalar(x) return op.reshape(x, {dims = {}}) end

local function edges_of(x, bins, limits)
  if lib.is_tensor(bins) or type(bins) == "table" then
    bins = lib.is_tensor(bins) and bins or core.tensor(bins)
    if bins.ndim ~= 1 or bins.size < 2 then
      raise("E_SHAPE", "histogram: the edges are %s; expected a vector of two or more", core.typeof(bins))
    end
    return as(bins, x.dtype)
  end
  if lib.check_integer("histogram", "bins", bins) < 1 then
    raise("E_VALUE", "histogram: %d bins", bins)
  end
  local low, high
  if limits ~= nil then
    lib.check_list("histogram", "the range", limits)
    low = core.tensor(lib.check_number("histogram", "the low end", limits[1]) + 0.0, x.dtype)
    high = core.tensor(lib.check_number("histogram", "the high end", limits[2]) + 0.0, x.dtype)
  elseif x.size == 0 then
    low, high = core.tensor(0.0, x.dtype), core.tensor(1.0, x.dtype)
  else
    low, high = scalar(op.min(x, {axes = {1}})), scalar(op.max(x, {axes = {1}}))
  end
  return edges_between(low, high, bins, x.dtype)
end

--- How many elements of x fall between neighbouring edges (the last bin has its right edge, too), or their weights'
--- sum; and the edges. density: divided so that the bins' area is 1.
---@param x Tensor
---@param bins integer|number[]|Tensor|nil how many, or their edges; default 10
---@param range number[]? {low, high}; default what x has
---@param weights Tensor? of x's shape
---@param density boolean?
---@return Tensor counts, Tensor edges
function M.histogram(x, bins, range, weights, density)
  check_tensor("histogram", x)
  local dtype = x.dtype == "float64" and "float64" or "float32"
  if weights ~= nil and not lib.same_shape(check_tensor("histogram", weights, "weights").shape, x.shape) then
    raise("E_SHAPE", "histogram: weights %s for %s", core.typeof(weights), core.typeof(x))
  end
  local n = x.size
  x = op.reshape(as(x, dtype), {dims = {n}})
  local edges = edges_of(x, bins == nil and 10 or bins, range)
  local count, column = edges.size - 1, op.reshape(x, {dims = {n, 1}})
  local low, high = parts.slice(edges, {1, count}), parts.slice(edges, {2, count + 1})
  local last = op.eq(op.iota {dims = {count}, dim = 1, dtype = "int32"}, count - 1)
  local inside = op.bitand(op.ge(column, low),
    op.bitor(op.lt(column, high), op.bitand(last, op.eq(column, high))))
  local weight = weights and op.reshape(as(weights, dtype), {dims = {n, 1}}) or 1.0
  local chosen = op.where(inside, weight, op.full {dims = {}, value = 0.0, dtype = dtype})
  local counts = op.reshape(op.sum(chosen, {axes = {1}}), {dims = {count}})
  if density then
    local total = scalar(op.sum(counts, {axes = {1}}))
    counts = op.div(op.div(counts, op.sub(high, low)), total)
  end
  return counts, edges
end

--- How often each of 0, 1, ... stands in x, or the sum of its weights; what is below 0 counts as 0. `length` says how
--- many are counted; without it the largest element does (not in a trace), and minlength.
---@param x Tensor of integers
---@param weights Tensor? of x's shape
---@param minlength integer?
---@param length integer?
---@return Tensor int32, or the weights' dtype
function M.bincount(x, weights, minlength, length)
  local who = "bincount"
  local dtype = check_tensor(who, x).dtype
  if x.ndim ~= 1 or not dtype:match "int" then
    raise("E_VALUE", "%s: expected a vector of integers, got %s", who, core.typeof(x))
  end
  if weights ~= nil and not lib.same_shape(check_tensor(who, weights, "weights").shape, x.shape) then
    raise("E_SHAPE", "%s: weights %s for %s", who, core.typeof(weights), core.typeof(x))
  end
  if length == nil then
    if core.is_traced(x) then
      raise("E_TRACED", "%s: inside a traced function the largest element is not known; give `length`", who)
    end
    local largest = x.size > 0 and op.max(x, {axes = {1}}):item() or -1
    length = math.max(largest + 1, minlength and lib.check_integer(who, "minlength", minlength) or 0)
  end
  lib.check_integer(who, "the length", length)
  local ids = args.to_int32(x)
  ids = op.minimum(dtype:match "^u" and ids or op.maximum(ids, 0), length)
  local ones = weights or op.full {dims = x.shape, value = 1, dtype = "int32"}
  return (parts.slice(index.scatter_add(ids, ones, length + 1), {1, length}))
end

--- The piecewise linear function through the points (xp, fp), xp ascending, at x; beside them left (default the first
--- of fp) and right (default the last).
---@param x Tensor
---@param xp Tensor
---@param fp Tensor
---@param left number?
---@param right number?
---@return Tensor
function M.interp(x, xp, fp, left, right)
  local list = args.meet("interp", {x, check_tensor("interp", xp, "xp"), check_tensor("interp", fp, "fp")})
  local dtype = lib.floats[list[1].dtype] and list[1].dtype or "float32"
  for i, t in ipairs(list) do list[i] = as(t, dtype) end
  x, xp, fp = table.unpack(list)
  local n = xp.size
  if xp.ndim ~= 1 or n == 0 or not lib.same_shape(xp.shape, fp.shape) then
    raise("E_SHAPE", "interp: xp is %s and fp %s; expected two vectors of one size", core.typeof(xp),
      core.typeof(fp))
  end
  local dims, rank = x.shape, x.ndim
  dims[rank + 1] = 1
  local behind = as(op.bitnot(op.lt(op.reshape(x, {dims = dims}), xp)), "int32") -- NaN is behind all
  local place = op.reshape(op.sum(behind, {axes = {rank + 1}}), {dims = x.shape})
  place = op.minimum(op.maximum(place, 1), math.max(n - 1, 1))
  local before = op.sub(place, 1)
  place = op.minimum(place, n - 1)
  local x0, f0 = index.take(xp, before), index.take(fp, before)
  local width, rise = op.sub(index.take(xp, place), x0), op.sub(index.take(fp, place), f0)
  local none = op.eq(width, 0.0)
  local y = op.where(none, f0, op.add(f0, op.mul(op.div(op.sub(x, x0), op.where(none, 1.0, width)), rise)))
  y = op.where(op.lt(x, parts.at(xp, 1)), left or parts.at(fp, 1), y)
  return op.where(op.gt(x, parts.at(xp, n)), right or parts.at(fp, n), y)
end

return M
