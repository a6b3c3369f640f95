-- norm.lua: normalisation over the last dim or dims, by the native ops.
local core = require "meshlua.core"
local lib = require "meshlua.lib"
local initializers = require "meshlua.nn.initializers"
local linear = require "meshlua.nn.linear"
local module = require "meshlua.nn.module"
local ops = require "meshlua.ops"
local args = require "meshlua.ops.args"

local op, raise, as = core.op, lib.raise, args.as

local M = {}

local function constant(n, value, dtype) return op.full {dims = {n}, value = value, dtype = dtype} end

--- The dtype that a module's result has (its own, or where x and its Params meet), and that of statistics.
function M.dtypes(self, x)
  local own, dtype = self.scale or self.bias, self.dtype
  if not dtype then dtype = own and core.promote(x.dtype, own.dtype) or x.dtype end
  if not dtype:match "float" then dtype = "float32" end
  return dtype, dtype == "float64" and dtype or "float32"
end

--- Reads what all norms have: scale, bias, epsilon and dtype. Returns the features as a list.
---@return integer[]
function M.init_params(self, who, features, options, no_bias)
  local n = linear.features(who, "features", features)
  local dtype, axes = options.param_dtype or "float32", options.axes
  self.epsilon, self.dtype = options.epsilon or 1e-6, options.dtype
  if options.use_scale ~= false then
    self.scale = linear.bias_param(who, options.rngs, options.scale_init or initializers.ones, n, dtype,
      {axes = axes, role = "scale"})
  end
  if not no_bias and options.use_bias ~= false then
    self.bias = linear.bias_param(who, options.rngs, options.bias_init, n, dtype,
      {axes = axes, role = "bias"})
  end
  return n
end

--- op over the last dims of x, which are one to it: of x, and the Params (or what stands for them) by their names.
local function last_dims(self, who, x, names, apply)
  if not lib.is_tensor(x) then
    raise("E_VALUE", "%s: expected a tensor, got %s", who, lib.kind(x))
  end
  local dtype, shape = (M.dtypes(self, x)), x.shape
  local n = self.dims and lib.product(self.dims) or shape[#shape]
  x = as(x, dtype)
  if self.dims then
    local from = #shape - #self.dims
    if not lib.same_shape(table.move(shape, math.max(from, 0) + 1, #shape, 1, {}), self.dims) then
      raise("E_SHAPE", "%s: x is %s; its last dims must be %s", who, core.typeof(x),
        lib.shape_text(self.dims))
    end
    local flat = table.move(shape, 1, from, 1, {})
    flat[from + 1] = n
    x = ops.reshape(x, flat)
  end
  local own = {}
  for i, name in ipairs(names) do
    local p = self[name]
    own[i] = p and as(p, dtype) or constant(n, name == "scale" and 1.0 or 0.0, dtype)
    if p and self.dims then own[i] = ops.reshape(own[i], {n}) end
  end
  local y = apply(x, own[1], own[2])
  return self.dims and ops.reshape(y, shape) or y
end

--- (x - mean) / sqrt(variance + epsilon) * scale + bias over the last dim, or several (Ba et al. 2016).
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

--- The sizes, where they are several.
local function several(features) return #features > 1 and features or nil end

---@param features integer|integer[] size of the last dim, or sizes of the last dims
---@param options NormOptions
--- epsilon: default 1e-6, as flax. use_bias, use_scale: default true. axes: of scale and bias. dtype: in which
--- it computes; default where input and Params meet.
function M.LayerNorm:init(features, options)
  options = lib.options("LayerNorm", options)
  self.dims = several(M.init_params(self, "LayerNorm", features, options))
end

---@param x Tensor [..., features]
---@return Tensor of x's shape
function M.LayerNorm:__call(x)
  return last_dims(self, "LayerNorm", x, {"scale", "bias"}, function(t, scale, bias)
    return (op.layer_norm(t, scale, bias, {eps = self.epsilon}))
  end)
end

--- x / sqrt(mean(x^2) + epsilon) * scale over the last dim, or several (Zhang and Sennrich 2019).
M.RMSNorm = module.module("RMSNorm")

---@param features integer|integer[]
---@param options NormOptions without those of the bias
function M.RMSNorm:init(features, options)
  self.dims = several(M.init_params(self, "RMSNorm", features, lib.options("RMSNorm", options), true))
end

---@param x Tensor [..., features]
---@return Tensor of x's shape
function M.RMSNorm:__call(x)
  return last_dims(self, "RMSNorm", x, {"scale"}, function(t, scale)
    return (op.rms_norm(t, scale, {eps = self.epsilon}))
  end)
end

return M
