-- norm.lua: normalisation over the last dim, by the native ops.
local core = require "meshlua.core"
local lib = require "meshlua.lib"
local initializers = require "meshlua.nn.initializers"
local linear = require "meshlua.nn.linear"
local module = require "meshlua.nn.module"
local args = require "meshlua.ops.args"

local op, raise, as = core.op, lib.raise, args.as

local M = {}

local function constant(x, value)
  return op.full {dims = {x.shape[x.ndim]}, value = value, dtype = x.dtype}
end

--- x and the scale (ones where there is none) in the dtype to compute in: the module's, or where x and its
--- Params meet.
local function operands(self, who, x)
  if not lib.is_tensor(x) then
    raise("E_VALUE", "%s: expected a tensor, got %s", who, lib.kind(x))
  end
  local own, dtype = self.scale or self.bias, self.dtype
  if not dtype then dtype = own and core.promote(x.dtype, own.dtype) or x.dtype end
  if not dtype:match "float" then dtype = "float32" end
  x = as(x, dtype)
  return x, self.scale and as(self.scale, dtype) or constant(x, 1.0)
end

local function init_scale(self, who, features, options)
  local n = linear.features(who, "features", features)
  local dtype = options.param_dtype or "float32"
  self.epsilon = options.epsilon or 1e-6
  self.dtype = options.dtype
  if options.use_scale ~= false then
    self.scale = linear.bias_param(who, options.rngs, options.scale_init or initializers.ones, n, dtype,
      {axes = options.axes, role = "scale"})
  end
  return n, dtype
end

--- (x - mean) / sqrt(variance + epsilon) * scale + bias over the last dim (Ba et al. 2016).
M.LayerNorm = module.module("LayerNorm")

---@class NormOptions
---@field rngs Rngs
---@field axes (string|false)[]|P
---@field epsilon number
---@field use_bias boolean
---@field use_scale boolean
---@field scale_init Initializer
---@field bias_init Initializer
---@field param_dtype string
---@field dtype string

---@param features integer size of the last dim
---@param options NormOptions
--- epsilon: default 1e-6, as flax. use_bias, use_scale: default true. axes: of scale and bias. dtype: in which
--- it computes; default where input and Params meet.
function M.LayerNorm:init(features, options)
  options = lib.options("LayerNorm", options)
  local n, dtype = init_scale(self, "LayerNorm", features, options)
  if options.use_bias == false then return end
  self.bias = linear.bias_param("LayerNorm", options.rngs, options.bias_init, n, dtype,
    {axes = options.axes, role = "bias"})
end

---@param x Tensor [..., features]
---@return Tensor of x's shape
function M.LayerNorm:__call(x)
  local scale
  x, scale = operands(self, "LayerNorm", x)
  local bias = self.bias and as(self.bias, x.dtype) or constant(x, 0.0)
  return (op.layer_norm(x, scale, bias, {eps = self.epsilon}))
end

--- x / sqrt(mean(x^2) + epsilon) * scale over the last dim (Zhang and Sennrich 2019).
M.RMSNorm = module.module("RMSNorm")

---@param features integer
---@param options NormOptions without those of the bias
function M.RMSNorm:init(features, options)
  init_scale(self, "RMSNorm", features, lib.options("RMSNorm", options))
end

---@param x Tensor [..., features]
---@return Tensor of x's shape
function M.RMSNorm:__call(x)
  local scale
  x, scale = operands(self, "RMSNorm", x)
  return (op.rms_norm(x, scale, {eps = self.epsilon}))
end

return M
