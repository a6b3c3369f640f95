-- optim/init.lua: optimizers. An Optimizer holds a transformation and its state, in boxes that lie as the Params
-- do; opt:update(model, grads) writes both. The ones with names (sgd, adamw, lion, ...) make one when they get a model,
-- and without a model the transformation, for chain.
local core = require "meshlua.core"
local lib = require "meshlua.lib"
local masks = require "meshlua.nn.masks"
local module = require "meshlua.nn.module"
local loss_scale = require "meshlua.optim.loss_scale"
local param = require "meshlua.nn.param"
local params_of = require "meshlua.optim.params"
local scale = require "meshlua.optim.scale"
local transform = require "meshlua.optim.transform"
local tree = require "meshlua.tree"
local wrappers = require "meshlua.optim.wrappers"

local op, raise = core.op, lib.raise

local M = {}

-- ---- the optimizer ----------------------------------------------------------------------------------

M.Optimizer = module.module("Optimizer")

---@param model table its Params of kind "param" are what is trained
---@param transformation Transformation
---@param options {clip: number?, only: Mask?, freeze: Mask?}? clip: the global norm that gradients are scaled down to;
--- default none. only: which Params are trained; default all. freeze: which are not. What is not trained keeps its bits,
--- has no state, and its gradients are not looked at
function M.Optimizer:init(model, transformation, options)
  options = lib.options("Optimizer", options)
  if not transform.is_transformation(transformation) then
    raise("E_VALUE", "Optimizer: the second argument must be a transformation, got a %s",
      type(transformation))
  end
  self.trained = masks.trained("Optimizer", options)
  local entries = self.trained((params_of.of(model)))
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

--- Where `when` is false: Params that the jitted function under way has written before, for which no optimizer answers
--- (statistics of batches, keys of rngs), hold what they held when it began.
local function revert_others(when)
  local list = core.written() or {}
  for _, box in ipairs(list) do
    local kind = core.box_meta(box).kind
    if kind ~= "param" and kind ~= "opt_state" then box:set(op.where(when, box:get(), list[box])) end
  end
end

--- One step: the Params and the state are written.
---@param model table
---@param grads table a tree like the model, from ml.value_and_grad
---@param options {if_finite: boolean, apply: Tensor}? apply: a bool scalar; where it is false, Params and state stay as
--- they are, bit for bit, and in a jitted function so do Params that it has written before the update: statistics of
--- batches, rngs. if_finite: gradients that are not all finite are not applied
---@return {grad_norm: Tensor, finite: Tensor?, applied: Tensor?} info grad_norm: the global norm of grads, before
--- clipping. finite: bool, with if_finite; applied: whether it counts, where that was asked
function M.Optimizer:update(model, grads, options)
  options = lib.options("Optimizer:update", options)
  local when = transform.check_apply("Optimizer:update", options.apply)
  local entries, paths = params_of.of(model)
  entries = self.trained(entries)
  grads = params_of.gradients(entries, paths, grads)
  local norm = transform.global_norm(grads)
  local function step()
    local context = {entries = entries, count = op.astype(self.count, {dtype = scalar_dtype(entries)})}
    local factor = self.clip and transform.clip_factor(norm, self.clip)
    transform.apply(self.transformation, grads, self.state, context, factor)
    self.count:set(op.add(self.count, 1))
  end
  local finite = options.if_finite and op.isfinite(norm) or nil
  if finite then when = when and op.bitand(when, finite) or finite end
  if not when then
    step()
    return {grad_norm = norm}
  end
  local boxes = tree.leaves {self.state, self.count}
  for _, entry in ipairs(entries) do boxes[#boxes + 1] = entry.box end
  transform.guarded(boxes, when, step)
  revert_others(when)
  return {grad_norm = norm, finite = finite, applied = when}
end

--- For those who come from elsewhere: raises, and says what to write.
function M.Optimizer:step() lib.unknown("Optimizer", "step") end

-- ---- the ones with names ----------------------------------------------------------------------------

--- With a model: an Optimizer; without: the transformation, before which `clip` is part of the chain.
local function made(who, make)
  return function(model, options)
    local alone = options == nil
    options = lib.options(who, alone and model or options)
    if options.lr == nil and who ~= "adafactor" then
      raise("E_VALUE", "%s: the learning rate `lr` is missing", who)
    end
    if options.lr ~= nil then transform.check_rate(who, options.lr) end
    local transformation = make(options)
    if not alone then
      return M.Optimizer(model, transformation, {clip = options.clip, only = options.only,
        freeze = options.freeze})
    end
    if options.only ~= nil or options.freeze ~= nil then
      raise("E_VALUE", "%s: only and freeze need the model: %s(model, options); in a chain, masked and "
        .. "multi_transform choose Params", who, who)
    end
    if not options.clip then return transformation end
    return transform.chain(transform.clip_by_global_norm(options.clip), transformation)
  end
end

--- The same for a chain of parts: each maker(who, options) gives one, or nil for none.
local function chained(who, ...)
  local makers = {...}
  return made(who, function(options)
    local parts = {}
    for _, maker in ipairs(makers) do parts[#parts + 1] = maker(who, options) end
    return transform.chain(table.unpack(parts))
  end)
end

local function lr_of(_, options) return transform.scale_by_learning_rate(options.lr) end

--- The weight decay of its options, with this default.
local function decayed(default)
  return function(who, options)
    local weight_decay = transform.check_number(who, "weight_decay", options.weight_decay or default, 0)
    return weight_decay > 0 and transform.add_decayed_weights(weight_decay, options.mask) or nil
  end
end

local function momentum(_, options)
  return options.momentum and transform.trace(options.momentum, {nesterov = options.nesterov})
end

--- Stochastic gradient descent: p - lr g, or with momentum p - lr (g + momentum t), t the same at the step
--- before (nesterov: looking one step ahead).
---@overload fun(options: table): Transformation
---@param model table
---@param options {lr: number|Schedule, momentum: number, nesterov: boolean, clip: number, only: Mask, freeze: Mask}
--- lr: a number or a schedule. momentum: default none. clip: largest global norm; default none. only, freeze: see
--- Optimizer
---@return Optimizer
M.sgd = chained("sgd", momentum, lr_of)

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
    local rate = scalar(transform.rate_at(lr, context))
    local step = transform.counted(op.add(context.count, 1))
    clip = clip or scalar(1.0)
    local decays = decay_of(entries)
    for i, entry in ipairs(entries) do
      local box = entry.box
      local scalars = box.dtype == "float64" and "float64" or "float32"
      local function as(x) return transform.scalar_as(x, scalars) end
      local own = entry.lr and op.mul(rate, entry.lr) or rate
      local held, sharding = masters and masters[i] or box, param.sharding(mus[i])
      -- The gradient lies as the state: else all of the update might be made elsewhere, and moved back.
      local g = sharding and op.constrain(grads[i], {layout = sharding, state = true}) or grads[i]
      local p, mu, nu = op.adamw(held, g, mus[i], nus[i], as(own), as(step), as(clip),
        {b1 = numbers.b1, b2 = numbers.b2, eps = numbers.eps, eps_root = numbers.eps_root,
          decay = decays[i]})
      transform.put_counted(held, p)
      if masters then box:set(op.astype(p, {dtype = box.dtype})) end
      transform.put_counted(mus[i], mu)
      transform.put_counted(nus[i], nu)
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
  local on = masks.mask(who, mask)
  local function decays(entries)
    local list = {}
    for i, marked in ipairs(on(entries)) do
      list[i] = marked and weight_decay * (entries[i].decay or 1) or 0.0
    end
    return list
  end
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
    step = not options.nesterov and fused_step(numbers, options.lr, decays) or nil,
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
---@field only Mask
---@field freeze Mask

---@class AdamWOptions: AdamOptions
---@field weight_decay number
---@field mask Mask

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
--- embeddings), a pattern of paths or a list of them, fun(path, param): boolean, or a tree of booleans; default all. The
--- rest as adam
---@return Optimizer
M.adamw = made("adamw", function(options)
  local decay = transform.check_number("adamw", "weight_decay", options.weight_decay or 1e-4, 0)
  return adam_like("adamw", options, decay, options.mask)
end)

--- The sign of momentum, with decay (Chen et al. 2023). Like those below it takes lr, clip, only, freeze, weight_decay
--- and mask as adamw does.
---@overload fun(options: table): Transformation
---@param model table
---@param options table b1: default 0.9. b2: default 0.99. mu_dtype: default the Param's. weight_decay: default 1e-3
---@return Optimizer
M.lion = chained("lion", scale.by.lion, decayed(1e-3), lr_of)

--- Gradients over the root of their running mean square (Tieleman and Hinton 2012).
---@overload fun(options: table): Transformation
---@param model table
---@param options table decay: default 0.9. eps: default 1e-8, inside the root unless eps_in_sqrt is false. centered: by
--- the standard deviation. momentum, nesterov: as sgd. initial_scale: of the squares; default 0. bias_correction:
--- default false
---@return Optimizer
M.rmsprop = chained("rmsprop", scale.by.rms, lr_of, momentum)

--- Gradients over the root of the sum of their squares (Duchi et al. 2011).
---@overload fun(options: table): Transformation
---@param model table
---@param options table initial_accumulator_value: default 0.1. eps: default 1e-7
---@return Optimizer
M.adagrad = chained("adagrad", scale.by.rss, lr_of)

--- Adam with steps in proportion to each Param's norm (You et al. 2020).
---@overload fun(options: table): Transformation
---@param model table
---@param options table b1, b2, eps_root: as adam. eps: default 1e-6. weight_decay: default 0
---@return Optimizer
M.lamb = chained("lamb", function(_, o)
  return transform.scale_by_adam {b1 = o.b1, b2 = o.b2, eps = o.eps or 1e-6, eps_root = o.eps_root}
end, decayed(0.0), function() return scale.scale_by_trust_ratio() end, lr_of)

--- Momentum in proportion to each Param's norm (You et al. 2017).
---@overload fun(options: table): Transformation
---@param model table
---@param options table momentum: default 0.9. nesterov. trust_coefficient: default 1e-3. eps, weight_decay: default 0
---@return Optimizer
M.lars = chained("lars", decayed(0.0), function(who, o)
  return scale.by.trust_ratio(who, {trust_coefficient = o.trust_coefficient or 1e-3, eps = o.eps})
end, lr_of, function(_, o) return transform.trace(o.momentum or 0.9, {nesterov = o.nesterov}) end)

--- Second moments by rows and columns (Shazeer and Stern 2018).
---@overload fun(options: table): Transformation
---@param model table
---@param options table lr: default none. min_dim_size_to_factor: default 128. factored: default true. decay_rate:
--- default 0.8. decay_offset: default 0. clipping_threshold: default 1, or false. multiply_by_parameter_scale: default true.
--- momentum: default none. dtype_momentum: default float32. eps: default 1e-30. weight_decay: default 0, not times lr
---@return Optimizer
M.adafactor = chained("adafactor", scale.by.factored_rms, function(_, o)
  return o.clipping_threshold ~= false and scale.clip_by_block_rms(o.clipping_threshold or 1.0) or nil
end, function(_, o)
  if type(o.lr) == "number" then return transform.scale(o.lr) end
  return o.lr and transform.scale_by_schedule(o.lr)
end, function(_, o)
  return o.multiply_by_parameter_scale ~= false and scale.scale_by_param_block_rms() or nil
end, function(_, o)
  local dtype = o.dtype_momentum or "float32"
  return o.momentum and scale.ema(o.momentum, {debias = false, accumulator_dtype = dtype})
end, decayed(0.0), function() return transform.scale(-1) end)

--- Momentum of matrices made orthogonal (Jordan et al. 2024); adamw for all other Params.
---@overload fun(options: table): Transformation
---@param model table
---@param options table matrices: which Params are such; default those of rank 2. Of more dims the last two are
--- the matrix. beta: default 0.95. ns_steps: default 5. ns_coeffs: 3 numbers, or 3 a step. nesterov: default
--- true. eps: default 1e-8. consistent_rms: default none. weight_decay: default 0. adam_lr: default lr. adam_b1, adam_b2, adam_eps_root, adam_weight_decay
---@return Optimizer
M.muon = made("muon", function(options)
  local matrices = options.matrices
  local on = masks.mask("muon", matrices == nil and function(_, p) return p.ndim == 2 end or matrices)
  local weight_decay = decayed(0.0)("muon", options)
  local adam = adam_like("muon", {lr = options.adam_lr or options.lr, b1 = options.adam_b1,
    b2 = options.adam_b2, eps = options.eps, eps_root = options.adam_eps_root, mu_dtype = options.mu_dtype,
    nesterov = options.nesterov ~= false}, options.adam_weight_decay or 0.0)
  local parts = {scale.by.muon("muon", options), lr_of("muon", options)}
  if weight_decay then table.insert(parts, 2, weight_decay) end
  local groups = {muon = transform.chain(table.unpack(parts)), adam = adam}
  return wrappers.grouped("muon", groups, function(entries)
    local labels = {}
    for i, marked in ipairs(on(entries)) do labels[i] = marked and "muon" or "adam" end
    return labels
  end)
end)

for _, name in ipairs {"chain", "clip", "clip_by_global_norm", "add_decayed_weights", "global_norm", "scale",
    "scale_by_adam", "scale_by_learning_rate", "scale_by_schedule", "trace"} do
  M[name] = transform[name]
end
for name, fn in pairs(scale) do
  if type(fn) == "function" then M[name] = fn end
end
for _, name in ipairs {"set_to_zero", "masked", "multi_transform", "MultiSteps"} do
  M[name] = wrappers[name]
end

local Optimizer = M.Optimizer
M.Optimizer = nil
lib.export(M, "optim.")
M.Optimizer, M.LossScale, M.EMA = Optimizer, loss_scale, wrappers.EMA

return lib.strict(M, "optim", "optim.")
