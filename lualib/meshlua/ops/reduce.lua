-- reduce.lua: reductions over axes, and softmax along one.
local core = require "meshlua.core"
local lib = require "meshlua.lib"
local args = require "meshlua.ops.args"
local shapes = require "meshlua.ops.shape"

local op = core.op
local check_tensor, axis_of, axes_of = args.check_tensor, args.axis_of, args.axes_of
local by_axes = args.by_axes

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
  return x.dtype == "uint8" and op.astype(x, {dtype = "uint32"}) or x
end

local function reduction(name)
  local reduce, attributes = op[name], by_axes(name)
  return function(x, axes, keepdims)
    axes = axes_of(name, axes, check_tensor(name, x).ndim)
    return reduced(x, reduce(x, attributes[axes]), axes, keepdims)
  end
end

--- Sums, extrema and logic over axes (nil: all; a number or a list); keepdims leaves dims of size 1. Sums
--- of uint8 are uint32.
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

--- fn of x as a float wide enough for sums and counts, its result as the float that x is.
local function in_sums(x, fn)
  local given = x.dtype
  local dtype = lib.floats[given] and given or "float32"
  local wide = dtype == "float64" and dtype or "float32"
  return args.as(fn(args.as(x, wide)), dtype)
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

--- log(sum(exp(x))) over axes, without overflow.
function M.logsumexp(x, axes, keepdims)
  axes = axes_of("logsumexp", axes, check_tensor("logsumexp", x).ndim)
  return in_sums(x, function(w)
    local m = op.stop_gradient(op.max(w, max_over[axes]))
    m = op.where(op.isfinite(m), m, 0.0)
    local s = op.log(op.sum(op.exp(op.sub(w, m)), sum_over[axes]))
    return reduced(w, op.add(s, m), axes, keepdims)
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
--- counts as int32, sums of uint8 are uint32.
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
  if axis == x.ndim then return fn(x) end
  return shapes.swapaxes(fn(shapes.swapaxes(x, axis, x.ndim)), axis, x.ndim)
end

--- exp(x) / sum(exp(x)) along an axis (default the last).
function M.softmax(x, axis) return along("softmax", x, axis, op.softmax) end

--- x - log(sum(exp(x))) along an axis (default the last).
function M.log_softmax(x, axis) return along("log_softmax", x, axis, op.log_softmax) end

return M
