-- wrappers.lua: transformations around others: for some Params alone, of each Param its own, every few gradients; and the
-- running mean of the Params themselves.
local core = require "meshlua.core"
local lib = require "meshlua.lib"
local masks = require "meshlua.nn.masks"
local module = require "meshlua.nn.module"
local params_of = require "meshlua.optim.params"
local transform = require "meshlua.optim.transform"
local tree = require "meshlua.tree"

local op, raise = core.op, lib.raise
local boxes_of, scalar_as = transform.boxes_of, transform.scalar_as

local M = {}

local function check(who, x)
  if transform.is_transformation(x) then return x end
  raise("E_VALUE", "%s: expected a transformation, got %s; an optimizer is one without a model: adam{lr = "
    .. "1e-3}", who, lib.kind(x))
end

--- What leaves updates as they are.
local identity = {name = "identity", init = function() end, update = function(updates) return updates end}

--- Updates of 0. Params whose only transformation it is are never written.
---@return Transformation
function M.set_to_zero()
  local zero = transform.each("set_to_zero", function(u) return op.mul(u, 0.0) end)
  zero.step = function() end
  return zero
end

--- Each entry by the transformation of its label.
---@param transforms table<string, Transformation>
---@param labels_of fun(entries: OptimEntry[]): string[]
local function grouped(who, transforms, labels_of)
  local names = lib.names(transforms)

  --- Calls visit(label, entries, places) for each label that has entries.
  local function each(entries, visit)
    local labels = labels_of(entries)
    for _, name in ipairs(names) do
      local own, places = {}, {}
      for i, entry in ipairs(entries) do
        if labels[i] == name then own[#own + 1], places[#places + 1] = entry, i end
      end
      if #own > 0 then visit(name, own, places) end
    end
  end

  --- fn(transformation, updates, state, context) of each.
  local function through(updates, states, context, fn)
    local out = {}
    each(context.entries, function(name, entries, places)
      local own = {}
      for k, i in ipairs(places) do own[k] = updates[i] end
      local made = fn(transforms[name], own, states[name], lib.copy(context, {entries = entries}))
      for k, i in ipairs(made and places or {}) do out[i] = made[k] end
    end)
    return out
  end

  return {
    name = who,
    init = function(model, entries)
      local states = {}
      each(entries, function(name, own) states[name] = transforms[name].init(model, own) end)
      return states
    end,
    update = function(updates, states, context)
      return through(updates, states, context, function(t, ...) return t.update(...) end)
    end,
    step = function(updates, states, context, factor)
      through(updates, states, context, function(t, own, state, inner)
        transform.apply(t, own, state, inner, factor)
      end)
    end,
  }
end
M.grouped = grouped

--- A transformation of the Params in the mask alone; updates of the others pass as they are.
---@param transformation Transformation
---@param mask Mask
---@return Transformation
function M.masked(transformation, mask)
  local on = masks.mask("masked", mask)
  return grouped("masked", {on = check("masked", transformation), off = identity}, function(entries)
    local labels = {}
    for i, marked in ipairs(on(entries)) do labels[i] = marked and "on" or "off" end
    return labels
  end)
end

--- For each Param the transformation of its label.
---@param transforms table<string, Transformation>
---@param labels string[][]|fun(path: string, param: Param): string {pattern, label} in order: the first whose pattern
--- is found in the Param's path
---@return Transformation
function M.multi_transform(transforms, labels)
  if type(transforms) ~= "table" then
    raise("E_VALUE", "multi_transform: expected {label = transformation}, got %s", lib.kind(transforms))
  end
  for _, transformation in pairs(transforms) do check("multi_transform", transformation) end
  return grouped("multi_transform", transforms, masks.labels("multi_transform", labels, transforms))
end

-- ---- every few gradients ----------------------------------------------------------------------------

--- Gathers the mean of every_k gradients, and gives the transformation that: between, neither Params nor its state
--- change.
---@param transformation Transformation
---@param every_k integer|fun(count: Tensor): Tensor|integer of a schedule the number of updates so far is told
---@param options {use_grad_mean: boolean?, accumulator_dtype: string?}? use_grad_mean: default true; false: their sum.
--- accumulator_dtype: default float32, or float64 where the Param is
---@return Transformation
function M.MultiSteps(transformation, every_k, options)
  local who = "MultiSteps"
  check(who, transformation)
  options = lib.options(who, options)
  if type(every_k) ~= "function" and (math.type(every_k) ~= "integer" or every_k < 1) then
    raise("E_VALUE", "%s: every_k is %s; it is a whole number from 1 on, or a schedule of them", who, every_k)
  end

  local function init(model, entries)
    local function dtype(entry) return entry.box.dtype == "float64" and "float64" or "float32" end
    return {mini_step = params_of.counter(entries), gradient_step = params_of.counter(entries),
      inner = transformation.init(model, entries),
      acc_grads = params_of.state_like(model, entries, {dtype = options.accumulator_dtype or dtype})}
  end

  --- Adds the gradients to what there is, and calls run(sums, context) where there are enough.
  local function gather(grads, state, context, boxes, run)
    local count = op.astype(state.gradient_step, {dtype = context.count.dtype})
    local k = transform.rate_at(every_k, {count = count})
    local n = op.add(state.mini_step, 1)
    local accumulators, sums, full = boxes_of(state.acc_grads, context.entries), {}, {}
    for i, box in ipairs(accumulators) do
      local more = scalar_as(grads[i], box.dtype)
      if options.use_grad_mean ~= false then more = op.div(op.sub(more, box), scalar_as(n, box.dtype)) end
      local sum = op.add(box, more)
      sums[i], full[i] = sum, scalar_as(sum, grads[i].dtype)
    end
    local emit = op.ge(scalar_as(n, context.count.dtype), k)
    transform.guarded(boxes, emit, function() run(full, lib.copy(context, {count = count})) end)
    for i, box in ipairs(accumulators) do box:set(op.where(emit, 0, sums[i])) end
    state.mini_step:set(op.where(emit, 0, n))
    state.gradient_step:set(op.where(emit, op.add(state.gradient_step, 1), state.gradient_step))
    return emit
  end

  return {
    name = who,
    init = init,
    update = function(updates, state, context)
      local out
      local emit = gather(updates, state, context, tree.leaves(state.inner), function(sums, inner)
        out = transformation.update(sums, state.inner, inner)
      end)
      for i, u in ipairs(out) do out[i] = op.where(emit, u, 0) end
      return out
    end,
    step = function(grads, state, context, factor)
      local boxes = {table.unpack((tree.leaves(state.inner)))}
      for _, entry in ipairs(context.entries) do boxes[#boxes + 1] = entry.box end
      gather(factor and transform.times(grads, factor) or grads, state, context, boxes, function(sums, inner)
        transform.apply(transformation, sums, state.inner, inner)
      end)
    end,
  }
end

-- ---- the running mean of Params ---------------------------------------------------------------------

---@class EMA
M.EMA = module.module "EMA"

--- The running mean of a model's Params, which begins as they are.
---@param model table
---@param options {decay: number?, dtype: string?}? decay: what a step keeps of it; default 0.999. dtype: of the mean;
--- default the Params'
function M.EMA:init(model, options)
  options = lib.options("EMA", options)
  self.decay = transform.check_number("EMA", "decay", options.decay or 0.999, 0)
  self.params = params_of.state_like(model, (params_of.of(model)), {dtype = options.dtype, copy = true})
end

--- Moves the mean toward the Params: decay * mean + (1 - decay) * Param.
---@param model table
---@param options {apply: Tensor}? apply: a bool scalar; where it is false, the mean stays
function M.EMA:update(model, options)
  local when = transform.check_apply("EMA:update", lib.options("EMA:update", options).apply)
  local entries = params_of.of(model)
  local boxes = boxes_of(self.params, entries)
  local function step()
    for i, box in ipairs(boxes) do
      transform.moved(box, scalar_as(entries[i].box, box.dtype), self.decay)
    end
  end
  if when then transform.guarded(boxes, when, step) else step() end
end

--- The model with the means in the place of its Params. It follows them; the model stays as it is.
---@param model table
---@return table model
function M.EMA:apply_to(model)
  local entries, with = params_of.of(model), {}
  for i, box in ipairs(boxes_of(self.params, entries)) do with[entries[i].box] = box end
  return tree.replace(model, with)
end

return M
