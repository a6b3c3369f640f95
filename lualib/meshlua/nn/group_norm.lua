-- group_norm.lua: normalisation of each example over its spatial dims and groups of features, and of kernels by their
-- norms.
local core = require "meshlua.core"
local lib = require "meshlua.lib"
local initializers = require "meshlua.nn.initializers"
local linear = require "meshlua.nn.linear"
local module = require "meshlua.nn.module"
local norm = require "meshlua.nn.norm"
local ops = require "meshlua.ops"
local param = require "meshlua.nn.param"
local args = require "meshlua.ops.args"
local tree = require "meshlua.tree"

local op, raise, as = core.op, lib.raise, args.as

local M = {}

--- x, the features of each group as a dim of their own behind, less their mean and over their deviation.
local function grouped(self, who, x)
  args.check_tensor(who, x)
  local shape, n = x.shape, x.ndim
  if n < 2 or shape[n] ~= self.features then
    raise("E_SHAPE", "%s: x is %s; expected [batch, ..., %d]", who, core.typeof(x), self.features)
  end
  local dtype, wide = norm.dtypes(self, x)
  local split, over = table.move(shape, 1, n - 1, 1, {}), {}
  split[n], split[n + 1] = self.features // self.group_size, self.group_size
  for d = 2, n - 1 do over[#over + 1] = d end
  over[#over + 1] = n + 1
  local y = ops.reshape(as(x, wide), split)
  y = op.sub(y, ops.mean(y, over, true))
  local by = op.rsqrt(op.add(ops.mean(op.square(y), over, true), self.epsilon))
  y = ops.reshape(op.mul(y, by), shape)
  if self.scale then y = op.mul(y, as(self.scale, wide)) end
  if self.bias then y = op.add(y, as(self.bias, wide)) end
  return as(y, dtype)
end

--- Each example less the mean of its group of features, over all spatial dims, and over the group's deviation (Wu and
--- He 2018).
M.GroupNorm = module.module("GroupNorm")

---@class GroupNormOptions: NormOptions
---@field num_groups integer default 32
---@field group_size integer in the place of num_groups

---@param features integer size of the last dim
---@param options GroupNormOptions
function M.GroupNorm:init(features, options)
  local who = "GroupNorm"
  options = lib.options(who, options)
  self.features = norm.init_params(self, who, features, options)[1]
  local groups, size = options.num_groups, options.group_size
  if groups and size then
    raise("E_VALUE", "%s: num_groups or group_size; one follows from the other", who)
  end
  local by = size or groups or 32
  if by < 1 or self.features % by ~= 0 then
    raise("E_VALUE", "%s: %s in %s; they do not divide", who, lib.count(self.features, "feature"),
      size and "groups of " .. size or lib.count(by, "group"))
  end
  self.group_size = size or self.features // by
end

---@param x Tensor [batch, spatial..., features]
---@return Tensor of x's shape
function M.GroupNorm:__call(x) return grouped(self, "GroupNorm", x) end

--- The same with each feature a group of its own (Ulyanov et al. 2016).
M.InstanceNorm = module.module("InstanceNorm")

---@param features integer
---@param options NormOptions
function M.InstanceNorm:init(features, options)
  self.features = norm.init_params(self, "InstanceNorm", features, lib.options("InstanceNorm", options))[1]
  self.group_size = 1
end

---@param x Tensor [batch, spatial..., features]
---@return Tensor of x's shape
function M.InstanceNorm:__call(x) return grouped(self, "InstanceNorm", x) end

-- ---- kernels ----------------------------------------------------------------------------------------

--- A layer whose kernels have norms of their own: each column of a kernel over its norm, times a scale (Salimans and
--- Kingma 2016).
M.WeightNorm = module.module("WeightNorm")

---@param layer table a module; its Params of role "kernel" are normalised
---@param options {rngs: Rngs?, use_scale: boolean?, scale_init: Initializer?, epsilon: number?, param_dtype: string?}
--- use_scale: default true. scale_init: default ones. epsilon: in the root; default 1e-12, as flax
function M.WeightNorm:init(layer, options)
  local who = "WeightNorm"
  options = lib.options(who, options)
  if not module.is_module(layer) then
    raise("E_VALUE", "%s: expected a module, got %s", who, lib.kind(layer))
  end
  self.layer, self.epsilon, self.scales, self.kernels = layer, options.epsilon or 1e-12, {}, {}
  tree.visit(layer, function(path, kernel)
    if not core.is_box(kernel) or core.box_meta(kernel).role ~= "kernel" then return end
    self.kernels[path] = true
    if options.use_scale == false then return end
    self.scales[path] = linear.bias_param(who, options.rngs, options.scale_init or initializers.ones,
      {kernel.shape[kernel.ndim]}, options.param_dtype or "float32",
      {axes = param.last_axes(core.box_meta(kernel).axes, kernel.ndim, 1), role = "scale"})
  end)
  if next(self.kernels) == nil then
    raise("E_VALUE", "%s: the layer has no Param of role \"kernel\"", who)
  end
end

---@return any what the layer gives
function M.WeightNorm:__call(...)
  local with = {}
  tree.visit(self.layer, function(path, kernel)
    if not self.kernels[path] then return end
    local over, scale = {}, self.scales[path]
    for d = 1, kernel.ndim - 1 do over[d] = d end
    local sums = ops.sum(op.square(kernel), over, true)
    local w = op.mul(kernel, op.rsqrt(op.add(sums, self.epsilon)))
    with[kernel] = scale and op.mul(w, as(scale, w.dtype)) or w
  end)
  return tree.replace(self.layer, with)(...)
end

return M
