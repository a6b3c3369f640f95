-- activations.lua: elementwise functions between layers, as compositions; the fuse pass joins them with
-- what stands around them.
local core = require "meshlua.core"
local lib = require "meshlua.lib"
local ops = require "meshlua.ops"

local op = core.op

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

--- x where it is positive, else alpha (exp(x) - 1).
---@param alpha number? default 1
function M.elu(x, alpha)
  if alpha ~= nil then lib.check_number("elu", "alpha", alpha) end
  local positive = op.gt(x, 0)
  -- Both branches must be finite where the other is taken: a gradient of 0 * inf is NaN.
  local rest = op.expm1(op.where(positive, 0, x))
  return op.where(positive, x, alpha and op.mul(rest, alpha + 0.0) or rest)
end

--- x where it is not negative, else slope x.
---@param slope number? default 0.01
function M.leaky_relu(x, slope)
  slope = lib.check_number("leaky_relu", "the slope", slope or 0.01)
  return op.where(op.ge(x, 0), x, op.mul(x, slope + 0.0))
end

M.tanh, M.sigmoid = ops.tanh, ops.sigmoid

return M
