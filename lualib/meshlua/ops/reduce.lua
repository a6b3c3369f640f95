-- reduce.lua: reductions over axes, and softmax along one.
local core = require "meshlua.core"
local lib = require "meshlua.lib"
local args = require "meshlua.ops.args"
local shapes = require "meshlua.ops.shape"

local op = core.op
local check_tensor, axis_of, axes_of = args.check_tensor, args.axis_of, args.axes_of
local by_axes, in_sums = args.by_axes, args.in_sums

local M = {}

local scalar = core.attributes("reshape", {dims = {}})

local function reduced(x, y, axes, keepdims)
  if keepdims or #axes == 0 then return y end
  if #axes == x.ndim then return op.reshape(y, scalar) end
  local shape = x.shape
  for i = #axes, 1, -1 do table.remove(shape, axes[i]) end
  return op.reshape(y, {dims = shape})
end

--- x in a dtype in which its sums have room.
local function countable(x)
  local wide = lib.sums[x.dtype]
  return wide and op.astype(x, {dtype = wide}) or x
end

local function reduction(name)
  local reduce, attributes = op[name], by_axes(name)
  return function(x, axes, keepdims)
    axes = axes_of(name, axes, check_tensor(name, x).ndim)
    return reduced(x, reduce(x, attributes[axes]), axes, keepdims)
  end
end

--- Sums, extrema and logic over axes (nil: all; a number or a list); keepdims leaves dims of size 1. Sums
--- of uint8 and uint16 are uint32, those of int8 and int16 int32.
M.max, M.min = reduction "max", reduction "min"
local sum, sum_over, max_over = reduction "sum", by_axes "sum", by_axes "max"
function M.sum(x, axes, keepdims) return sum(countable(check_tensor("sum", x)), axes, keepdims) end
M.all, M.any = reduction "all", reduction "any"

local function arg_reduction(name)
  return function(x, axis, keepdims)
    check_tensor(name, x)
    if axis == nil then
      x, axis = op.reshape(x, {dims = {x.size}}), 1
    end
    local axes = {axis_of(name, axis, x.ndim)}
    return reduced(x, op[name](x, {axes = axes}), axes, keepdims)
  end
end

--- The 0-based place of the first largest (smallest) along an axis; without one, in row-major order.
M.argmax, M.argmin = arg_reduction "argmax", arg_reduction "argmin"

local function count_of(x, axes)
  if #axes == x.ndim then return x.size end
  local n, shape = 1, x.shape
  for _, a in ipairs(axes) do n = n * shape[a] end
  return n
end

--- The mean over axes; integers become float32.
function M.mean(x, axes, keepdims)
  axes = axes_of("mean", axes, check_tensor("mean", x).ndim)
  return in_sums(x, function(w)
    return op.div(reduced(w, op.sum(w, sum_over[axes]), axes, keepdims), count_of(w, axes))
  end)
end

--- The variance over axes, divided by n - ddof (ddof default 0).
function M.var(x, axes, keepdims, ddof)
  if ddof ~= nil then lib.check_integer("var", "ddof", ddof) end
  axes = axes_of("var", axes, check_tensor("var", x).ndim)
  return in_sums(x, function(w)
    local n = count_of(w, axes)
    local mean = op.div(op.sum(w, sum_over[axes]), n)
    local squares = op.square(op.sub(w, mean))
    return op.div(reduced(w, op.sum(squares, sum_over[axes]), axes, keepdims), n - (ddof or 0))
  end)
end

--- The standard deviation over axes.
function M.std(x, axes, keepdims, ddof)
  return in_sums(check_tensor("std", x), function(w) return op.sqrt(M.var(w, axes, keepdims, ddof)) end)
end

local function is_empty(x, axes)
  for _, a in ipairs(axes) do
    if x.shape[a] == 0 then return true end
  end
  return false
end

--- log(sum(exp(x))) over axes, without overflow.
function M.logsumexp(x, axes, keepdims)
  axes = axes_of("logsumexp", axes, check_tensor("logsumexp", x).ndim)
  return in_sums(x, function(w)
    if is_empty(w, axes) then return reduced(w, op.log(op.sum(w, sum_over[axes])), axes, keepdims) end
    local m = op.stop_gradient(op.max(w, max_over[axes]))
    m = op.where(op.isfinite(m), m, 0.0)
    local s = op.log(op.sum(op.exp(op.sub(w, m)), sum_over[axes]))
    return reduced(w, op.add(s, m), axes, keepdims)
  end)
end

--- The product along an axis, which stays with size 1: of both halves element by element, again and again. So its
--- gradient is right where elements are 0.
local function product_along(x, axis)
  local shape, rest = x.shape, nil
  local start, limit, step = {}, args.copy(shape), {}
  for d = 1, #shape do start[d], step[d] = 0, 1 end
  local function part(first, last)
    start[axis], limit[axis] = first, last
    return op.slice(x, {start = start, limit = limit, step = step})
  end
  local n = shape[axis]
  if n == 0 then
    shape[axis] = 1
    return op.full {dims = shape, value = 1, dtype = x.dtype}
  end
  while n > 1 do
    if n % 2 == 1 then rest = rest and op.mul(rest, part(n - 1, n)) or part(n - 1, n) end
    n = n // 2
    x = op.mul(part(0, n), part(n, 2 * n))
  end
  return rest and op.mul(x, rest) or x
end

local function prod(x, axes, keepdims)
  x = x.dtype == "bool" and op.astype(x, {dtype = "int32"}) or countable(x)
  local y = x
  for _, axis in ipairs(axes) do y = product_along(y, axis) end
  return reduced(x, y, axes, keepdims)
end

--- The product over axes; of uint8 and uint16 it is uint32, of bool, int8 and int16 int32.
function M.prod(x, axes, keepdims)
  axes = axes_of("prod", axes, check_tensor("prod", x).ndim)
  if not lib.floats[x.dtype] then return prod(x, axes, keepdims) end
  return in_sums(x, function(w) return prod(w, axes, keepdims) end)
end

--- Reductions of what is not NaN; where all are, `none` says what comes out.
local function without_nan(name, reduce, fill, none)
  return function(x, axes, keepdims)
    axes = axes_of(name, axes, check_tensor(name, x).ndim)
    if not lib.floats[x.dtype] then return reduce(x, axes, keepdims) end
    local is_nan = op.ne(x, x)
    local y = reduce(op.where(is_nan, fill, x), axes, keepdims)
    return none and op.where(M.all(is_nan, axes, keepdims), none, y) or y
  end
end

--- Sum, product, largest and smallest of the elements that are not NaN; of none 0, 1, NaN and NaN.
M.nansum, M.nanprod = without_nan("nansum", M.sum, 0.0), without_nan("nanprod", M.prod, 1.0)
M.nanmax = without_nan("nanmax", M.max, -math.huge, 0.0 / 0.0)
M.nanmin = without_nan("nanmin", M.min, math.huge, 0.0 / 0.0)

--- The mean of the elements that are not NaN.
function M.nanmean(x, axes, keepdims)
  axes = axes_of("nanmean", axes, check_tensor("nanmean", x).ndim)
  return in_sums(x, function(w)
    local count = M.sum(args.as(op.eq(w, w), w.dtype), axes, keepdims)
    return op.div(M.nansum(w, axes, keepdims), count)
  end)
end

local function cumulative(name)
  return function(x, axis, reverse)
    axis = axis_of(name, axis, check_tensor(name, x).ndim)
    if x.dtype == "bool" then x = op.astype(x, {dtype = "int32"}) end
    return op[name](x, {axis = axis, reverse = reverse or false})
  end
end

--- Products, largest and smallest of the elements up to each one along an axis, itself among them; reverse:
--- from each one on. fn(x, axis, reverse); a bool counts as int32.
M.cumprod, M.cummax, M.cummin = cumulative "cumprod", cumulative "cummax", cumulative "cummin"
local cumsum = cumulative "cumsum"

--- Sums of the elements up to each one along an axis, itself among them; reverse: from each one on. A bool
--- counts as int32; sums of uint8 and uint16 are uint32, of int8 and int16 int32.
---@param x Tensor
---@param axis integer
---@param reverse boolean?
---@return Tensor
function M.cumsum(x, axis, reverse) return cumsum(countable(check_tensor("cumsum", x)), axis, reverse) end

-- ---- along one axis -------------------------------------------------------------------------------

--- Applies a function of the last dim to another axis.
local function along(who, x, axis, fn)
  if not lib.floats[check_tensor(who, x).dtype] then x = op.astype(x, {dtype = "float32"}) end
  axis = axis_of(who, axis or -1, x.ndim)
  if x.shape[axis] == 0 then return x end
  if axis == x.ndim then return fn(x) end
  return shapes.swapaxes(fn(shapes.swapaxes(x, axis, x.ndim)), axis, x.ndim)
end

--- exp(x) / sum(exp(x)) along an axis (default the last); an axis of size 0 stays as it is.
function M.softmax(x, axis) return along("softmax", x, axis, op.softmax) end

--- x - log(sum(exp(x))) along an axis (default the last).
function M.log_softmax(x, axis) return along("log_softmax", x, axis, op.log_softmax) end

return M
