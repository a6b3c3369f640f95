-- math.lua: functions of each element that are made of the elementwise ops; the fuse pass joins them. Of 16-bit floats
-- they are computed in float32 and rounded once.
local core = require "meshlua.core"
local lib = require "meshlua.lib"
local args = require "meshlua.ops.args"
local reduce = require "meshlua.ops.reduce"

local op = core.op

local M = {}

local HUGE <const> = math.huge

--- An operand as a tensor.
local function tensor_of(who, x)
  return type(x) == "number" and core.tensor(x + 0.0) or args.check_tensor(who, x)
end

--- fn of a float.
local function of_one(who, fn)
  return function(x) return args.in_sums(tensor_of(who, x), fn) end
end

--- Two operands as floats of one dtype that is wide enough, and the dtype of what they give. Of a tensor and a number
--- the number stays one.
local function floats_of(who, x, y)
  args.check_operand(who, x)
  args.check_operand(who, y)
  if type(x) == "number" and type(y) == "number" then x = core.tensor(x + 0.0) end
  local a, b = type(x) ~= "number" and x.dtype, type(y) ~= "number" and y.dtype
  local dtype = a and b and core.promote(a, b) or a or b
  dtype = lib.floats[dtype] and dtype or "float32"
  local wide = dtype == "float64" and dtype or "float32"
  return a and args.as(x, wide) or x, b and args.as(y, wide) or y, dtype
end

local function of_two(who, fn)
  return function(x, y)
    local dtype
    x, y, dtype = floats_of(who, x, y)
    return args.as(fn(x, y), dtype)
  end
end

-- ---- what a float is ----------------------------------------------------------------------------------------

--- Is it NaN?
function M.isnan(x)
  x = tensor_of("isnan", x)
  return op.ne(x, x)
end

--- Is it infinite, of either sign?
function M.isinf(x)
  x = tensor_of("isinf", x)
  if not lib.floats[x.dtype] then return op.ne(x, x) end
  return op.eq(op.abs(x), HUGE)
end

local largest = {float64 = 0x1.fffffffffffffp1023, float32 = 0x1.fffffep127, bfloat16 = 0x1.fep127,
  float16 = 65504.0, float8_e4m3fn = 448.0, float8_e5m2 = 57344.0}

--- x with numbers for NaN (default 0) and the infinities (default the largest and the smallest of the dtype).
---@param x Tensor
---@param nan number?
---@param posinf number?
---@param neginf number?
---@return Tensor
function M.nan_to_num(x, nan, posinf, neginf)
  x = tensor_of("nan_to_num", x)
  local most = largest[x.dtype]
  if not most then return x end
  local y = op.where(op.ne(x, x), nan or 0.0, x)
  y = op.where(op.eq(y, HUGE), posinf or most, y)
  return op.where(op.eq(y, -HUGE), neginf or -most, y)
end

local function isclose(who, x, y, rtol, atol, equal_nan)
  x, y = floats_of(who, x, y)
  if type(y) == "number" then y = core.tensor(y + 0.0, x.dtype) end
  local near = op.le(op.abs(op.sub(x, y)), op.add(op.mul(op.abs(y), rtol or 1e-5), atol or 1e-8))
  near = op.bitor(op.bitand(near, op.isfinite(y)), op.eq(x, y))
  return equal_nan and op.bitor(near, op.bitand(op.ne(x, x), op.ne(y, y))) or near
end

--- Is |x - y| <= atol + rtol |y|, or are both the same infinity (with equal_nan: both NaN)?
---@param rtol number? default 1e-5
---@param atol number? default 1e-8
---@param equal_nan boolean?
---@return Tensor
function M.isclose(x, y, rtol, atol, equal_nan) return isclose("isclose", x, y, rtol, atol, equal_nan) end

--- Is isclose true of all?
function M.allclose(x, y, rtol, atol, equal_nan)
  return reduce.all(isclose("allclose", x, y, rtol, atol, equal_nan))
end

-- ---- rounding and remainders ----------------------------------------------------------------------------------

--- The next whole number toward 0.
function M.trunc(x)
  x = tensor_of("trunc", x)
  return lib.floats[x.dtype] and op.where(op.lt(x, 0), op.ceil(x), op.floor(x)) or x
end

--- What is left of the division, with x's sign; of integers by 0 it is 0.
function M.fmod(x, y)
  local z = op.rem(x, y)
  return lib.floats[z.dtype] and z or op.where(op.eq(y, 0), 0, z)
end

-- ---- powers and logarithms ------------------------------------------------------------------------------------

M.exp2 = of_one("exp2", function(x) return op.pow(2.0, x) end)
M.log2 = of_one("log2", function(x) return op.div(op.log(x), math.log(2)) end)
M.log10 = of_one("log10", function(x) return op.div(op.log(x), math.log(10)) end)

--- log(x / (1 - x)).
M.logit = of_one("logit", function(x) return op.log(op.div(x, op.sub(1.0, x))) end)

--- log(exp(x) + exp(y)), without overflow.
M.logaddexp = of_two("logaddexp", function(x, y)
  local distance = op.sub(x, y)
  distance = op.where(op.ne(distance, distance), 0.0, distance) -- of infinities
  return op.add(op.maximum(x, y), op.log1p(op.exp(op.neg(op.abs(distance)))))
end)

--- x log(y), 0 where x is 0.
M.xlogy = of_two("xlogy", function(x, y)
  local endless = op.bitor(op.le(y, 0.0), op.eq(y, HUGE)) -- elsewhere 0 times the logarithm is 0 by itself
  return op.mul(x, op.log(op.where(op.bitand(op.eq(x, 0.0), endless), 1.0, y)))
end)

--- sqrt(x^2 + y^2), without overflow.
M.hypot = of_two("hypot", function(x, y)
  x, y = op.abs(x), op.abs(y)
  local long, short = op.maximum(x, y), op.minimum(x, y)
  local none = op.eq(long, 0.0)
  local ratio = op.div(short, op.where(none, 1.0, long))
  local length = op.where(none, long, op.mul(long, op.sqrt(op.add(1.0, op.square(ratio)))))
  return op.where(op.bitor(op.eq(x, HUGE), op.eq(y, HUGE)), HUGE, length)
end)

--- The derivative of lgamma.
M.digamma = of_one("digamma", function(x) return op.polygamma(0, x) end)

-- ---- trigonometric and hyperbolic -------------------------------------------------------------------------------

M.tan = of_one("tan", function(x) return op.div(op.sin(x), op.cos(x)) end)

--- sqrt(1 - x^2): of two roots, as the derivative of a product under one would be 0 times infinity at -1 and 1.
local function other_leg(x) return op.mul(op.sqrt(op.sub(1.0, x)), op.sqrt(op.add(1.0, x))) end

M.asin = of_one("asin", function(x) return op.atan2(x, other_leg(x)) end)
M.acos = of_one("acos", function(x) return op.atan2(other_leg(x), x) end)
M.atan = of_one("atan", function(x) return op.atan2(x, 1.0) end)

local function atanh(x) return op.mul(op.sub(op.log1p(x), op.log1p(op.neg(x))), 0.5) end

M.atanh = of_one("atanh", atanh)

local LARGE <const> = 1e9 -- where 1 is nothing beside the square

local function log_twice(x) return op.add(op.log(x), math.log(2)) end

M.acosh = of_one("acosh", function(x)
  local is_large = op.gt(x, LARGE)
  local t = op.sub(op.where(is_large, 2.0, x), 1.0)
  local near = op.log1p(op.add(t, op.mul(op.sqrt(t), op.sqrt(op.add(t, 2.0)))))
  return op.where(is_large, log_twice(op.where(is_large, x, 1.0)), near)
end)

M.asinh = of_one("asinh", function(x)
  local a = op.abs(x)
  local is_small, is_large = op.lt(a, 0.5), op.gt(a, LARGE)
  local s, b = op.where(is_small, x, 0.0), op.where(op.bitor(is_small, is_large), 1.0, a)
  local middle = op.log(op.add(b, op.sqrt(op.add(op.square(b), 1.0))))
  local far = op.where(is_large, log_twice(op.where(is_large, a, 1.0)), middle)
  return op.where(is_small, atanh(op.div(s, op.sqrt(op.add(op.square(s), 1.0)))), op.mul(op.sign(x), far))
end)

--- Half of e^x, and half of e^-x, in steps that do not overflow before they do.
local function halves(x)
  local root = op.exp(op.mul(x, 0.5))
  return op.mul(op.mul(root, 0.5), root), op.div(op.div(0.5, root), root)
end

M.cosh = of_one("cosh", function(x) return op.add(halves(x)) end)
M.sinh = of_one("sinh", function(x)
  local is_small = op.lt(op.abs(x), 1.0)
  local near = op.expm1(op.where(is_small, x, 0.0))
  near = op.mul(op.add(near, op.div(near, op.add(near, 1.0))), 0.5)
  return op.where(is_small, near, op.sub(halves(x)))
end)

return M
