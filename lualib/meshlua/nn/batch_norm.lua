-- batch_norm.lua: normalisation over all dims but the last, by statistics of the batch while training and by
-- their running means after it.
local core = require "meshlua.core"
local lib = require "meshlua.lib"
local initializers = require "meshlua.nn.initializers"
local linear = require "meshlua.nn.linear"
local module = require "meshlua.nn.module"
local param = require "meshlua.nn.param"
local args = require "meshlua.ops.args"
local reduce = require "meshlua.ops.reduce"

local op, raise, as = core.op, lib.raise, args.as

local M = {}

--- (x - mean) / sqrt(variance + epsilon) * scale + bias for each feature, the last dim (Ioffe and Szegedy
--- 2015). Training (see :train() and :eval()) takes mean and variance of the whole batch, however it is split,
--- and moves the running ones, Params `mean` and `var` of kind "batch_stat", toward them.
M.BatchNorm = module.module("BatchNorm")

---@class BatchNormOptions: NormOptions
---@field momentum number the share of a running mean that a step keeps; default 0.99
---@field epsilon number default 1e-5, as flax

---@param features integer size of the last dim
---@param options BatchNormOptions
function M.BatchNorm:init(features, options)
  options = lib.options("BatchNorm", options)
  local n = linear.features("BatchNorm", "features", features)
  local dtype, axes = options.param_dtype or "float32", options.axes
  self.momentum, self.epsilon = options.momentum or 0.99, options.epsilon or 1e-5
  if not (self.momentum >= 0 and self.momentum <= 1) then
    raise("E_VALUE", "BatchNorm: the momentum is %s; it must be from 0 to 1", self.momentum)
  end
  self.dtype = options.dtype
  self.mean = param.Param(op.full {dims = n, value = 0.0, dtype = dtype}, {kind = "batch_stat", axes = axes})
  self.var = param.Param(op.full {dims = n, value = 1.0, dtype = dtype}, {kind = "batch_stat", axes = axes})
  if options.use_scale ~= false then
    self.scale = linear.bias_param("BatchNorm", options.rngs, options.scale_init or initializers.ones, n,
      dtype, {axes = axes, role = "scale"})
  end
  if options.use_bias ~= false then
    self.bias = linear.bias_param("BatchNorm", options.rngs, options.bias_init, n, dtype,
      {axes = axes, role = "bias"})
  end
end

--- A running mean moved toward what this batch has.
local function move(box, now, momentum)
  local wide = as(box, now.dtype)
  box:set(as(op.add(op.mul(wide, momentum), op.mul(op.stop_gradient(now), 1.0 - momentum)), box.dtype))
end

---@param x Tensor [..., features]
---@return Tensor of x's shape
function M.BatchNorm:__call(x)
  args.check_tensor("BatchNorm", x)
  if x.ndim < 2 or x.shape[x.ndim] ~= self.mean.size then
    raise("E_SHAPE", "BatchNorm: x is %s; expected [..., %d]", core.typeof(x), self.mean.size)
  end
  local dtype = self.dtype or core.promote(x.dtype, self.mean.dtype)
  if not dtype:match "float" then dtype = "float32" end
  local wide = dtype == "float64" and dtype or "float32" -- of statistics, whatever it computes in
  x = as(x, dtype)
  local mean, var = as(self.mean, wide), as(self.var, wide)
  if self.training then
    local over, y = {}, as(x, wide)
    for d = 1, x.ndim - 1 do over[d] = d end
    mean = reduce.mean(y, over)
    var = reduce.mean(op.square(op.sub(y, mean)), over)
    move(self.mean, mean, self.momentum)
    move(self.var, var, self.momentum)
  end
  local by = op.rsqrt(op.add(var, self.epsilon))
  if self.scale then by = op.mul(by, as(self.scale, wide)) end
  local y = op.mul(op.sub(as(x, wide), mean), by)
  if self.bias then y = op.add(y, as(self.bias, wide)) end
  return as(y, dtype)
end

return M
