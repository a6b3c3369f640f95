-- transform.lua: gradient transformations with optax's names, mathematics and defaults. A transformation
-- has init(model, entries), which makes its state (a tree of boxes), and update(updates, state, context),
-- which turns a list of updates into another. The last list is added to the Params. Lists stand in the
-- order of `entries`; context = {entries =, count = scalar: updates before this one}.
local core = require "meshlua.core"
local lib = require "meshlua.lib"
local masks = require "meshlua.nn.masks"
local args = require "meshlua.ops.args"
local params_of = require "meshlua.optim.params"
local tree = require "meshlua.tree"

local op, raise = core.op, lib.raise

local M = {}

---@class Transformation a table of its own; not an Optimizer, which has update as a method
---@field name string
---@field init fun(model: table, entries: OptimEntry[]): table?
---@field update fun(updates: Tensor[], state: table?, context: table): Tensor[]
---@field step (fun(grads: Tensor[], state: table?, context: table, factor: Tensor?))? writes the Params itself, from
--- gradients times the factor

function M.is_transformation(x)
  return type(x) == "table" and type(rawget(x, "update")) == "function"
end

--- A transformation that needs no state.
local function stateless(name, update)
  return {name = name, update = update, init = function() return nil end}
end

local function check_number(who, what, x, low, below)
  if type(x) ~= "number" or not (x >= low) or below and not (x < below) then
    raise("E_VALUE", "%s: %s is %s; it must be a number from %s on%s", who, what, x, low,
      below and (", below " .. below) or "")
  end
  return x + 0.0
end
M.check_number = check_number

--- The boxes of a state tree, in the order of the entries.
local function boxes_of(state, entries)
  local boxes = tree.leaves(state)
  if #boxes ~= #entries then
    raise("E_VALUE", "update: the optimizer was made for another model: it has state for %s, the "
      .. "model has %d", lib.count(#boxes, "parameter"), #entries)
  end
  return boxes
end
M.boxes_of = boxes_of

--- A scalar tensor in another dtype; numbers as they are.
local function scalar_as(x, dtype)
  return type(x) == "number" and x or args.as(x, dtype)
end
M.scalar_as = scalar_as

--- A number or schedule at this update.
---@param rate number|fun(count: Tensor): Tensor|number
local function rate_at(rate, context)
  if type(rate) == "function" then return rate(context.count) end
  return rate
end
M.rate_at = rate_at

--- Checks that a learning rate is a number or a schedule.
function M.check_rate(who, rate)
  if type(rate) ~= "function" and type(rate) ~= "number" then
    raise("E_VALUE", "%s: the learning rate is a %s; expected a number or a schedule", who, type(rate))
  end
  return rate
end

local function map(updates, fn)
  local out = {}
  for i, u in ipairs(updates) do out[i] = fn(u, i) end
  return out
end

--- All updates times a scalar tensor.
local function times(updates, factor)
  return map(updates, function(u) return op.mul(u, scalar_as(factor, u.dtype)) end)
end
M.times = times

--- Writes the Params of context.entries: what the transformation makes of the gradients is added to them.
---@param transformation Transformation
---@param factor Tensor? of the gradients
function M.apply(transformation, updates, state, context, factor)
  if transformation.step then return transformation.step(updates, state, context, factor) end
  if factor then updates = times(updates, factor) end
  for i, u in ipairs(transformation.update(updates, state, context)) do
    local box, own = context.entries[i].box, context.entries[i].lr
    if own then u = op.mul(u, own) end
    box:set(scalar_as(op.add(box, u), box.dtype))
  end
end

-- ---- updates that may not count ---------------------------------------------------------------------

-- The guarded update under way: {when = bool scalar, stay = the boxes whose value is the old one where it is false}.
local guard

local Guarded = {__close = function(now) guard = now.outer end}

--- Calls fn; where `when` is false, the boxes hold what they held before.
---@param boxes Param[]
---@param when Tensor bool scalar
---@param fn fun()
function M.guarded(boxes, when, fn)
  local before = {}
  for i, box in ipairs(boxes) do before[i] = box:get() end
  local now <close> = setmetatable({outer = guard, stay = guard and guard.stay or {},
    when = guard and op.bitand(guard.when, when) or when}, Guarded)
  guard = now
  fn()
  for i, box in ipairs(boxes) do
    if not now.stay[box] then box:set(op.where(now.when, box:get(), before[i])) end
    now.stay[box] = true
  end
end

--- Writes a box of state whose new value is needed further on, too: what is made of it is made of the old one where the
--- update does not count, so that both need not be kept.
---@param box Param
---@param x Tensor
---@return Tensor x
function M.put(box, x)
  if guard and x.dtype == box.dtype then
    x, guard.stay[box] = op.where(guard.when, x, box), true
  end
  box:set(scalar_as(x, box.dtype))
  return x
end

--- For an op that leaves Params as they are at step 0: the step, or 0 where the update does not count.
---@param step Tensor
---@return Tensor
function M.counted(step) return guard and op.where(guard.when, step, 0) or step end

--- Writes what such an op gave.
function M.put_counted(box, x)
  box:set(x)
  if guard then guard.stay[box] = true end
end

--- Checks what an update is told of whether it counts.
function M.check_apply(who, when)
  if when ~= nil and not (lib.is_tensor(when) and when.dtype == "bool" and when.ndim == 0) then
    raise("E_VALUE", "%s: apply is %s; it is a bool tensor without dims", who,
      lib.is_tensor(when) and core.typeof(when) or lib.kind(when))
  end
  return when
end

-- ---- kinds of transformations -----------------------------------------------------------------------

--- A transformation that needs no state: fn(update, Param) of each.
---@param who string
---@param fn fun(u: Tensor, p: Param): Tensor
function M.each(who, fn)
  return stateless(who, function(updates, _, context)
    return map(updates, function(u, i) return fn(u, context.entries[i].box) end)
  end)
end

--- A transformation with boxes of state for each Param.
---@param who string
---@param boxes table<string, table> for each name what params_of.state_like is told of them
---@param make fun(context: table): fun(u: Tensor, boxes: table<string, Param>): Tensor the update of one Param
---@return Transformation
function M.stateful(who, boxes, make)
  local names = lib.names(boxes)
  return {
    name = who,
    init = function(model, entries)
      local state = {}
      for _, name in ipairs(names) do state[name] = params_of.state_like(model, entries, boxes[name]) end
      return state
    end,
    update = function(updates, state, context)
      local lists, fn = {}, make(context)
      for _, name in ipairs(names) do lists[name] = boxes_of(state[name], context.entries) end
      return map(updates, function(u, i)
        local own = {}
        for _, name in ipairs(names) do own[name] = lists[name][i] end
        return fn(u, own)
      end)
    end,
  }
end

--- Moves a running mean toward x; beta, a number or a scalar tensor, is what it keeps.
---@return Tensor mean as it is now
function M.moved(box, x, beta)
  local mean = op.add(op.mul(x, 1 - beta), op.mul(box, beta))
  return M.put(box, mean)
end

--- 1 - beta^count, without the digits that the subtraction would lose in float32.
local function correction(beta, count) return op.neg(op.expm1(op.mul(count, math.log(beta)))) end

--- What corrects running means for their start at 0: fn(mean, u); with nesterov as they will be one step later, if u
--- came again.
---@param beta number
---@param nesterov boolean?
---@return fun(mean: Tensor, u: Tensor?): Tensor
function M.debias(beta, context, nesterov)
  local step = op.add(context.count, 1)
  local now = correction(beta, step)
  local function by(x, c) return op.div(x, scalar_as(c, x.dtype)) end
  if not nesterov then return function(mean) return by(mean, now) end end
  local ahead = correction(beta, op.add(step, 1))
  return function(mean, u) return op.add(op.mul(by(mean, ahead), beta), op.mul(by(u, now), 1 - beta)) end
end

-- ---- scaling ----------------------------------------------------------------------------------------

--- Multiplies by a number.
---@param factor number
---@return Transformation
function M.scale(factor)
  if type(factor) ~= "number" then
    raise("E_VALUE", "scale: expected a number, got %s", lib.kind(factor))
  end
  return M.each("scale", function(u) return op.mul(u, factor + 0.0) end)
end

--- Multiplies by what a schedule gives.
---@param schedule fun(count: Tensor): Tensor|number
---@return Transformation
function M.scale_by_schedule(schedule)
  if type(schedule) ~= "function" then
    raise("E_VALUE", "scale_by_schedule: expected a schedule, got %s", lib.kind(schedule))
  end
  return stateless("scale_by_schedule", function(updates, _, context)
    return times(updates, schedule(context.count))
  end)
end

--- Multiplies by -lr: what turns a direction uphill into a step downhill.
---@param lr number|fun(count: Tensor): Tensor|number
---@return Transformation
function M.scale_by_learning_rate(lr)
  if type(M.check_rate("scale_by_learning_rate", lr)) == "number" then return M.scale(-lr) end
  return M.scale_by_schedule(function(count) return -lr(count) end)
end

-- ---- moments ----------------------------------------------------------------------------------------

--- Checks Adam's numbers; fills in optax's defaults.
function M.adam_numbers(who, options)
  return {
    b1 = check_number(who, "b1", options.b1 or 0.9, 0, 1),
    b2 = check_number(who, "b2", options.b2 or 0.999, 0, 1),
    eps = check_number(who, "eps", options.eps or 1e-8, 0),
    eps_root = check_number(who, "eps_root", options.eps_root or 0.0, 0),
  }
end

--- The state of Adam: mu and nu for each Param; with `master`, in float32, and a copy of the Param beside.
function M.adam_state(mu_dtype, master)
  return function(model, entries)
    local dtype = master and "float32" or nil
    return {mu = params_of.zeros_like(model, entries, mu_dtype or dtype),
      nu = params_of.zeros_like(model, entries, dtype),
      master = master and params_of.state_like(model, entries, {dtype = dtype, copy = true}) or nil}
  end
end

--- Divides the running mean of gradients by the root of the running mean of their squares, both corrected
--- for their start at 0 (Adam, Kingma and Ba 2015; with nesterov: Dozat 2016).
---@param options {b1: number, b2: number, eps: number, eps_root: number, mu_dtype: string, nesterov: boolean}?
--- b1: default 0.9. b2: default 0.999. eps: outside the root, default 1e-8. eps_root: inside it, default 0.
--- mu_dtype: default the Param's
---@return Transformation
function M.scale_by_adam(options)
  options = lib.options("scale_by_adam", options)
  local n = M.adam_numbers("scale_by_adam", options)
  return M.stateful("scale_by_adam", {mu = {dtype = options.mu_dtype}, nu = {}}, function(context)
    local first = M.debias(n.b1, context, options.nesterov)
    local second = M.debias(n.b2, context)
    return function(g, own)
      local mu, nu = M.moved(own.mu, g, n.b1), M.moved(own.nu, op.square(g), n.b2)
      return op.div(first(mu, g), op.add(op.sqrt(op.add(second(nu), n.eps_root)), n.eps))
    end
  end)
end

--- Momentum: the sum of gradients that fade by `decay` at each step (Sutskever et al. 2013).
---@param decay number
---@param options {nesterov: boolean, accumulator_dtype: string}?
---@return Transformation
function M.trace(decay, options)
  options = lib.options("optim.trace", options)
  decay = check_number("optim.trace", "decay", decay, 0)
  return M.stateful("trace", {trace = {dtype = options.accumulator_dtype}}, function()
    return function(g, own)
      local sum = M.put(own.trace, op.add(g, op.mul(own.trace, decay)))
      return options.nesterov and op.add(g, op.mul(sum, decay)) or sum
    end
  end)
end

-- ---- decay and clipping -----------------------------------------------------------------------------

--- Adds weight_decay times the Param.
---@param weight_decay number
---@param mask Mask? which Params; default all
---@return Transformation
function M.add_decayed_weights(weight_decay, mask)
  weight_decay = check_number("add_decayed_weights", "weight_decay", weight_decay, 0)
  local on = masks.mask("add_decayed_weights", mask)
  return stateless("add_decayed_weights", function(updates, _, context)
    local marks = on(context.entries)
    return map(updates, function(u, i)
      if weight_decay == 0 or not marks[i] then return u end
      local entry = context.entries[i]
      return op.add(u, op.mul(entry.box, weight_decay * (entry.decay or 1)))
    end)
  end)
end

--- Cuts every element to [-limit, limit].
---@param limit number
---@return Transformation
function M.clip(limit)
  limit = check_number("clip", "the limit", limit, 0)
  return M.each("clip", function(u) return op.minimum(op.maximum(u, -limit), limit) end)
end

--- sqrt(sum of all squares) over all tensors of a tree: one number. Squares are summed in float32 (float64
--- for float64), and the sums over devices are one number, too.
---@param x table|Tensor
---@return Tensor scalar
function M.global_norm(x)
  local total
  for _, leaf in ipairs((tree.leaves(x))) do
    local t = leaf
    if t.dtype ~= "float32" and t.dtype ~= "float64" then t = op.astype(t, {dtype = "float32"}) end
    local axes = {}
    for d = 1, t.ndim do axes[d] = d end
    local sum = op.reshape(op.sum(op.square(t), {axes = axes}), {dims = {}})
    if total and total.dtype ~= sum.dtype then
      total, sum = scalar_as(total, "float64"), scalar_as(sum, "float64")
    end
    total = total and op.add(total, sum) or sum
  end
  if not total then raise("E_VALUE", "global_norm: the tree holds no tensor") end
  return op.sqrt(total)
end

--- min(1, max_norm / norm), as a tensor.
function M.clip_factor(norm, max_norm)
  return op.where(op.lt(norm, max_norm), op.full {dtype = norm.dtype, dims = {}, value = 1.0},
    op.div(max_norm, norm))
end

--- Scales all updates by one factor, so that their global norm is at most max_norm (Pascanu et al. 2012).
---@param max_norm number
---@return Transformation
function M.clip_by_global_norm(max_norm)
  max_norm = check_number("clip_by_global_norm", "max_norm", max_norm, 0)
  return stateless("clip_by_global_norm", function(updates)
    return times(updates, M.clip_factor(M.global_norm(updates), max_norm))
  end)
end

--- One transformation behind the other, in this order: chain(clip_by_global_norm(1.0), adam{lr = 1e-3}).
---@param ... Transformation
---@return Transformation
function M.chain(...)
  local parts = {...}
  for i, part in ipairs(parts) do
    if not M.is_transformation(part) then
      raise("E_VALUE", "chain: argument %d is not a transformation; alone in a chain an optimizer is made "
        .. "without a model: adam{lr = 1e-3}", i)
    end
  end
  return {
    name = "chain",
    init = function(model, entries)
      local states = {}
      for i, part in ipairs(parts) do states[i] = part.init(model, entries) end
      return states
    end,
    update = function(updates, states, context)
      for i, part in ipairs(parts) do updates = part.update(updates, states[i], context) end
      return updates
    end,
  }
end

return M
