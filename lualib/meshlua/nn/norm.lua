-- norm.lua: normalisation over the last dim, by the native ops.
local core = require "meshlua.core"
local lib = require "meshlua.lib"
local initializers = require "meshlua.nn.initializers"
local linear = require "meshlua.nn.linear"
local module = require "meshlua.nn.module"

local op = core.op

local M = {}

local known = {rngs = "table", axes = true, epsilon = "number", use_bias = "boolean",
  use_scale = "boolean", scale_init = "function", bias_init = "function", param_dtype = "string",
  dtype = "string"}

local function constant(x, value)
  return op.full {dims = {x.shape[x.ndim]}, value = value, dtype = x.dtype}
end

--- The tensor or Param in x's dtype.
local function like(t, x)
  return t.dtype == x.dtype and t or op.astype(t, {dtype = x.dtype})
end

--- Scale and bias in the dtype of x; ones and zeros where the module has none.
local function operands(self, x)
  if self.dtype and x.dtype ~= self.dtype then x = op.astype(x, {dtype = self.dtype}) end
  if not x.dtype:match "float" then x = op.astype(x, {dtype = "float32"}) end
  return x, self.scale and like(self.scale, x) or constant(x, 1.0)
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
--- epsilon: default 1e-6, as flax. use_bias, use_scale: default true. axes: of scale and bias.
function M.LayerNorm:init(features, options)
  options = lib.options("LayerNorm", options, known)
  local n, dtype = init_scale(self, "LayerNorm", features, options)
  if options.use_bias == false then return end
  self.bias = linear.bias_param("LayerNorm", options.rngs, options.bias_init, n, dtype,
    {axes = options.axes, role = "bias"})
end

---@param x Tensor [..., features]
---@return Tensor of x's shape
function M.LayerNorm:__call(x)
  local scale
  x, scale = operands(self, x)
  local bias = self.bias and like(self.bias, x) or constant(x, 0.0)
  return (op.layer_norm(x, scale, bias, {eps = self.epsilon}))
end

--- x / sqrt(mean(x^2) + epsilon) * scale over the last dim (Zhang and Sennrich 2019).
M.RMSNorm = module.module("RMSNorm")

---@param features integer
---@param options NormOptions without those of the bias
function M.RMSNorm:init(features, options)
  local own = {}
  for key, value in pairs(known) do
    if not key:find "bias" then own[key] = value end
  end
  init_scale(self, "RMSNorm", features, lib.options("RMSNorm", options, own))
end

---@param x Tensor [..., features]
---@return Tensor of x's shape
function M.RMSNorm:__call(x)
  local scale
  x, scale = operands(self, x)
  return (op.rms_norm(x, scale, {eps = self.epsilon}))
end

return M
