-- optim/init.lua: optimizers. An Optimizer holds a transformation and its state, in boxes that lie as the Params
-- do; opt:update(model, grads) writes both. sgd, adam and adamw make one when they get a model, and without
-- a model the transformation, for chain.
local core = require "meshlua.core"
local lib = require "meshlua.lib"
local module = require "meshlua.nn.module"
local loss_scale = require "meshlua.optim.loss_scale"
local param = require "meshlua.nn.param"
local params_of = require "meshlua.optim.params"
local transform = require "meshlua.optim.transform"
local tree = require "meshlua.tree"

local op, raise = core.op, lib.raise

local M = {}

-- ---- the optimizer ----------------------------------------------------------------------------------

M.Optimizer = module.module("Optimizer")

---@param model table its Params of kind "param" are what is trained
---@param transformation Transformation
---@param options {clip: number}? clip: the global norm that gradients are scaled down to; default none
function M.Optimizer:init(model, transformation, options)
  options = lib.options("Optimizer", options)
  if not transform.is_transformation(transformation) then
    raise("E_VALUE", "Optimizer: the second argument must be a transformation, got a %s",
      type(transformation))
  end
  local entries = params_of.of(model)
  self.clip = options.clip and transform.check_number("Optimizer", "clip", options.clip, 0)
  self.transformation = transformation
  self.count = params_of.counter(entries)
  self.state = transformation.init(model, entries)
end

--- The dtype in which scalars of an update are computed: float64 where a Param is.
local function scalar_dtype(entries)
  for _, entry in ipairs(entries) do
    if entry.box.dtype == "float64" then return "float64" end
  end
  return "float32"
end

--- Every box that an update writes, with what it holds now.
local function snapshot(optimizer, entries)
  local before = {}
  for _, entry in ipairs(entries) do before[#before + 1] = {entry.box, entry.box:get()} end
  for _, box in ipairs((tree.leaves({optimizer.state, optimizer.count}))) do
    before[#before + 1] = {box, box:get()}
  end
  return before
end

--- One step: the Params and the state are written.
---@param model table
---@param grads table a tree like the model, from ml.value_and_grad
---@param options {if_finite: boolean}? if_finite: an update whose gradients are not all finite leaves
--- everything as it was
---@return {grad_norm: Tensor, finite: Tensor?} info grad_norm: the global norm of grads, before clipping.
--- finite: bool, with if_finite
function M.Optimizer:update(model, grads, options)
  options = lib.options("Optimizer:update", options)
  local entries, paths = params_of.of(model)
  local updates = params_of.gradients(entries, paths, grads)
  local norm = transform.global_norm(updates)
  local before = options.if_finite and snapshot(self, entries)
  local context = {entries = entries, count = op.astype(self.count, {dtype = scalar_dtype(entries)})}
  local factor = self.clip and transform.clip_factor(norm, self.clip)
  if self.transformation.step then
    self.transformation.step(updates, self.state, context, factor)
  else
    for i, u in ipairs(updates) do
      if factor then updates[i] = op.mul(u, transform.scalar_as(factor, u.dtype)) end
    end
    updates = self.transformation.update(updates, self.state, context)
    for i, u in ipairs(updates) do
      local box = entries[i].box
      box:set(transform.scalar_as(op.add(box, u), box.dtype))
    end
  end
  self.count:set(op.add(self.count, 1))
  if not before then return {grad_norm = norm} end
  local finite = op.isfinite(norm)
  for _, saved in ipairs(before) do
    local box, old = saved[1], saved[2]
    box:set(op.where(finite, box:get(), old))
  end
  return {grad_norm = norm, finite = finite}
end

--- For those who come from elsewhere: raises, and says what to write.
function M.Optimizer:step() lib.unknown("Optimizer", "step") end

-- ---- the ones with names ----------------------------------------------------------------------------

--- With a model: an Optimizer; without: the transformation, before which `clip` is part of the chain.
local function made(who, make)
  return function(model, options)
    local alone = options == nil
    options = lib.options(who, alone and model or options)
    if options.lr == nil then raise("E_VALUE", "%s: the learning rate `lr` is missing", who) end
    transform.check_rate(who, options.lr)
    local transformation = make(options)
    if not alone then return M.Optimizer(model, transformation, {clip = options.clip}) end
    if not options.clip then return transformation end
    return transform.chain(transform.clip_by_global_norm(options.clip), transformation)
  end
end

--- Stochastic gradient descent: p - lr g, or with momentum p - lr (g + momentum t), t the same at the step
--- before (nesterov: looking one step ahead).
---@overload fun(options: table): Transformation
---@param model table
---@param options {lr: number|Schedule, momentum: number, nesterov: boolean, clip: number}
--- lr: a number or a schedule. momentum: default none. clip: largest global norm; default none
---@return Optimizer
M.sgd = made("sgd", function(options)
  local step = transform.scale_by_learning_rate(options.lr)
  if not options.momentum then return step end
  return transform.chain(transform.trace(options.momentum, {nesterov = options.nesterov}), step)
end)

--- The native op for a whole Adam(W) step: it takes the clip factor with it.
local function fused_step(numbers, lr, decay_of)
  return function(grads, state, context, clip)
    local entries = context.entries
    local mus = transform.boxes_of(state.mu, entries)
    local nus = transform.boxes_of(state.nu, entries)
    local masters = state.master and transform.boxes_of(state.master, entries)
    local function scalar(x)
      if type(x) ~= "number" then return x end
      return op.full {dtype = context.count.dtype, dims = {}, value = x + 0.0}
    end
    local rate, step = scalar(transform.rate_at(lr, context)), op.add(context.count, 1)
    clip = clip or scalar(1.0)
    for i, entry in ipairs(entries) do
      local box = entry.box
      local scalars = box.dtype == "float64" and "float64" or "float32"
      local function as(x) return transform.scalar_as(x, scalars) end
      local held, sharding = masters and masters[i] or box, param.sharding(mus[i])
      -- The gradient lies as the state: else all of the update might be made elsewhere, and moved back.
      local g = sharding and op.constrain(grads[i], {layout = sharding, state = true}) or grads[i]
      local p, mu, nu = op.adamw(held, g, mus[i], nus[i], as(rate), as(step), as(clip),
        {b1 = numbers.b1, b2 = numbers.b2, eps = numbers.eps, eps_root = numbers.eps_root,
          decay = decay_of(entry)})
      held:set(p)
      if masters then box:set(op.astype(p, {dtype = box.dtype})) end
      mus[i]:set(mu)
      nus[i]:set(nu)
    end
  end
end

--- Adam with decay that is decoupled from the gradients, as one transformation.
local function adam_like(who, options, weight_decay, mask)
  local adam = {b1 = options.b1, b2 = options.b2, eps = options.eps, eps_root = options.eps_root,
    mu_dtype = options.mu_dtype, nesterov = options.nesterov}
  local numbers = transform.adam_numbers(who, adam)
  local parts = {transform.scale_by_adam(adam), transform.add_decayed_weights(weight_decay, mask),
    transform.scale_by_learning_rate(options.lr)}
  local on = params_of.mask(who, mask)
  if options.master and options.nesterov then
    raise("E_VALUE", "%s: master weights and nesterov do not go together", who)
  end
  return {
    name = who,
    init = transform.adam_state(adam.mu_dtype, options.master),
    update = function(updates, state, context)
      if options.master then
        raise("E_VALUE", "%s: master weights need the optimizer itself: %s(model, options), not a part of a "
          .. "chain", who, who)
      end
      updates = parts[1].update(updates, state, context)
      return parts[3].update(parts[2].update(updates, nil, context), nil, context)
    end,
    step = not options.nesterov and fused_step(numbers, options.lr, function(entry)
      return on(entry) and weight_decay or 0.0
    end) or nil,
  }
end

---@class AdamOptions
---@field lr number|Schedule
---@field b1 number
---@field b2 number
---@field eps number
---@field eps_root number
---@field mu_dtype string
---@field nesterov boolean
---@field master boolean
---@field clip number

---@class AdamWOptions: AdamOptions
---@field weight_decay number
---@field mask "matrices"|table|fun(path: string, param: Param): boolean

--- Adam (Kingma and Ba 2015).
---@overload fun(options: table): Transformation
---@param model table
---@param options AdamOptions see scale_by_adam; lr and clip as sgd. master: updates a float32 copy that the
--- state keeps of each Param, for Params of 16 bits; default false
---@return Optimizer
M.adam = made("adam", function(options) return adam_like("adam", options, 0.0) end)

--- Adam with weight decay beside the gradients, times lr (Loshchilov and Hutter 2019).
---@overload fun(options: table): Transformation
---@param model table
---@param options AdamWOptions weight_decay: default 1e-4. mask: which Params decay: "matrices" (kernels and
--- embeddings), fun(path, param): boolean, or a tree of booleans; default all. The rest as adam
---@return Optimizer
M.adamw = made("adamw", function(options)
  local decay = transform.check_number("adamw", "weight_decay", options.weight_decay or 1e-4, 0)
  return adam_like("adamw", options, decay, options.mask)
end)

for _, name in ipairs {"chain", "clip", "clip_by_global_norm", "add_decayed_weights", "global_norm", "scale",
    "scale_by_adam", "scale_by_learning_rate", "scale_by_schedule", "trace"} do
  M[name] = transform[name]
end

M.LossScale = loss_scale

local Optimizer = M.Optimizer
M.Optimizer, M.LossScale = nil, nil
lib.export(M, "optim.")
M.Optimizer, M.LossScale = Optimizer, loss_scale

return lib.strict(M, "optim", "optim.")
