-- loss_scale.lua: keeps float16 gradients within float16 (Micikevicius et al. 2018): the loss is multiplied by
-- a scale, the gradients are divided by it. The scale doubles after `interval` updates in a row with finite
-- gradients, and halves, without an update, where one is not.
local core = require "meshlua.core"
local lib = require "meshlua.lib"
local module = require "meshlua.nn.module"
local param = require "meshlua.nn.param"
local args = require "meshlua.ops.args"
local ops = require "meshlua.ops"
local tree = require "meshlua.tree"

local op = core.op

---@class LossScale
local LossScale = module.module "LossScale"

---@param options {initial: number?, interval: integer?}? initial: default 2^15. interval: default 2000
function LossScale:init(options)
  options = lib.options("LossScale", options)
  self.interval = options.interval or 2000
  self.scale = param.Param(ops.full({}, (options.initial or 2.0 ^ 15) + 0.0), {kind = "opt_state"})
  self.finite_in_a_row = param.Param(ops.full({}, 0), {kind = "opt_state"})
end

--- The loss to differentiate.
---@param loss Tensor scalar
---@return Tensor
function LossScale:scaled(loss)
  args.check_tensor("LossScale", loss, "the loss")
  return op.mul(loss, op.astype(self.scale, {dtype = loss.dtype}))
end

--- The gradients of the loss itself, from those of the scaled one.
---@param grads table
---@return table
function LossScale:unscaled(grads)
  return tree.map(function(g) return op.div(g, op.astype(self.scale, {dtype = g.dtype})) end, grads)
end

--- Takes note of an update's outcome.
---@param finite Tensor bool scalar
function LossScale:note(finite)
  args.check_tensor("LossScale", finite)
  local n, scale = op.add(self.finite_in_a_row, 1), self.scale:get()
  local grows = op.ge(n, self.interval)
  self.scale:set(op.where(finite, op.where(grows, op.mul(scale, 2.0), scale),
    op.maximum(op.mul(scale, 0.5), 1.0)))
  self.finite_in_a_row:set(op.where(op.bitand(finite, op.lt(n, self.interval)), n, 0))
end

return LossScale
