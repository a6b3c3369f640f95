-- activations.lua: elementwise functions between layers, as compositions; the fuse pass joins them with
-- what stands around them.
local core = require "meshlua.core"
local lib = require "meshlua.lib"
local ops = require "meshlua.ops"
local args = require "meshlua.ops.args"

local op, raise = core.op, lib.raise

local M = {}

local SQRT_2_OVER_PI = 0.7978845608028654 -- sqrt(2 / pi)
local SQRT_HALF = 0.7071067811865476

--- The Gaussian error linear unit x Phi(x) (Hendrycks and Gimpel 2016), by default in the tanh
--- approximation that GPT-2 uses.
---@param x Tensor
---@param approximate boolean? default true; false: with erf
---@return Tensor
function M.gelu(x, approximate)
  if approximate == false then
    return op.mul(op.mul(x, 0.5), op.add(op.erf(op.mul(x, SQRT_HALF)), 1.0))
  end
  local cubic = op.mul(op.mul(op.mul(x, x), x), 0.044715)
  local cdf = op.mul(op.add(op.tanh(op.mul(op.add(x, cubic), SQRT_2_OVER_PI)), 1.0), 0.5)
  return op.mul(x, cdf)
end

--- max(x, 0); its gradient at 0 is 0.
function M.relu(x) return op.where(op.gt(x, 0), x, 0) end

--- x sigmoid(x), also called swish.
function M.silu(x) return op.mul(x, op.sigmoid(x)) end

--- log(1 + exp(x)), without overflow.
function M.softplus(x)
  return op.add(op.maximum(x, 0), op.log1p(op.exp(op.neg(op.abs(x)))))
end

--- log(sigmoid(x)).
function M.log_sigmoid(x) return op.neg(M.softplus(op.neg(x))) end

--- x where it is positive, else alpha (exp(x by) - 1).
local function exponential(x, alpha, by)
  local positive = op.gt(x, 0)
  -- Both branches must be finite where the other is taken: a gradient of 0 * inf is NaN.
  local rest = op.where(positive, 0, x)
  rest = op.expm1(by and op.mul(rest, by) or rest)
  return op.where(positive, x, alpha and op.mul(rest, alpha) or rest)
end

--- x where it is positive, else alpha (exp(x) - 1).
---@param alpha number? default 1
function M.elu(x, alpha)
  return exponential(x, alpha and lib.check_number("elu", "alpha", alpha) + 0.0)
end

--- x where it is not negative, else slope x.
---@param slope number? default 0.01
function M.leaky_relu(x, slope)
  slope = lib.check_number("leaky_relu", "the slope", slope or 0.01)
  return op.where(op.ge(x, 0), x, op.mul(x, slope + 0.0))
end

--- x where it is positive, else alpha (exp(x / alpha) - 1).
---@param alpha number? default 1
function M.celu(x, alpha)
  alpha = lib.check_number("celu", "alpha", alpha or 1.0) + 0.0
  if alpha == 0 then raise("E_VALUE", "celu: alpha is 0") end
  return exponential(x, alpha, 1 / alpha)
end

--- elu with the alpha and factor that keep mean 0 and variance 1 (Klambauer et al. 2017).
function M.selu(x) return op.mul(M.elu(x, 1.6732632423543772), 1.0507009873554805) end

--- x tanh(softplus(x)).
function M.mish(x) return op.mul(x, op.tanh(M.softplus(x))) end

--- x / (1 + |x|).
function M.soft_sign(x) return op.div(x, op.add(op.abs(x), 1.0)) end

--- x within [low, high]; its gradient is 0 at the ends where `open`.
local function within(x, low, high, open)
  if open then return op.where(op.le(x, low), low, op.where(op.ge(x, high), high, x)) end
  return op.where(op.lt(x, low), low, op.where(op.gt(x, high), high, x))
end

--- x within [-1, 1].
function M.hard_tanh(x) return within(x, -1, 1) end

--- x within [0, 6]; its gradient at both is 0.
function M.relu6(x) return within(x, 0, 6, true) end

--- relu6(x + 3) / 6.
function M.hard_sigmoid(x) return op.div(M.relu6(op.add(x, 3.0)), 6.0) end

--- x hard_sigmoid(x), also called hard_swish.
function M.hard_silu(x) return op.mul(x, M.hard_sigmoid(x)) end

--- (x + sqrt(x^2 + b)) / 2.
---@param b number? default 4
function M.squareplus(x, b)
  b = lib.check_number("squareplus", "b", b or 4.0) + 0.0
  return op.mul(op.add(x, op.sqrt(op.add(op.square(x), b))), 0.5)
end

--- The softplus of sparsemax: 0 up to -1, x from 1 on, (x + 1)^2 / 4 between.
function M.sparse_plus(x)
  local curve = op.mul(op.square(op.add(x, 1.0)), 0.25)
  return op.where(op.le(x, -1), 0, op.where(op.ge(x, 1), x, curve))
end

--- Its gradient: (x + 1) / 2 within [0, 1].
function M.sparse_sigmoid(x) return op.mul(op.minimum(op.maximum(op.add(x, 1.0), 0), 2), 0.5) end

--- The first half along an axis times the sigmoid of the second (Dauphin et al. 2017).
---@param axis integer? default -1
function M.glu(x, axis)
  args.check_tensor("glu", x)
  axis = args.axis_of("glu", axis or -1, x.ndim)
  if x.shape[axis] % 2 ~= 0 then
    raise("E_SHAPE", "glu: dim %d of %s has no halves", axis, core.typeof(x))
  end
  local halves = ops.array_split(x, 2, axis)
  return op.mul(halves[1], op.sigmoid(halves[2]))
end

--- x less its mean, over its deviation, along axes.
---@param axes integer|integer[]? default -1
---@param epsilon number? default 1e-5
function M.standardize(x, axes, epsilon)
  args.check_tensor("standardize", x)
  local y = op.sub(x, ops.mean(x, axes or -1, true))
  local variance = ops.mean(op.square(y), axes or -1, true)
  epsilon = lib.check_number("standardize", "epsilon", epsilon or 1e-5) + 0.0
  return op.mul(y, op.rsqrt(op.add(variance, epsilon)))
end

--- x.
function M.identity(x) return x end

M.tanh, M.sigmoid, M.swish, M.hard_swish = ops.tanh, ops.sigmoid, M.silu, M.hard_silu

return M
