-- gpt3.lua: a step of GPT-3 175B, planned on a mesh (data, model) of devices that are not here, and what its plan
-- holds and sends. For gpt3_spec.lua, and for gpt3_table.lua, which prints docs/gpt3-175b.md's tables.
local ml = require "meshlua"
local recipe = require "models.gpt"

local M = {}

local P, NamedSharding = ml.P, ml.NamedSharding
M.T = 8           -- devices that share a tensor
M.LEAST = 1 << 20 -- elements of what is split over `data`

--- The config of GPT-3 175B (Brown et al. 2020), with changes.
---@param changes table
function M.config(changes)
  local cfg = {}
  for key, value in pairs(recipe.config) do cfg[key] = value end
  for key, value in pairs {layers = 96, width = 12288, heads = 96, seq = 2048, vocab = 51200} do
    cfg[key] = value
  end
  for key, value in pairs(changes) do cfg[key] = value end
  return cfg
end

--- Rules: Megatron's, with the vocabulary split, too; before them `more`.
function M.rules(...)
  local list = {...}
  for _, rule in ipairs(recipe.rules.tp) do
    list[#list + 1] = rule[1] == "vocab" and {"vocab", "model"} or rule
  end
  return list
end

--- The plan of a step over a batch of one sequence for each data group, and the processor's seconds it took.
---@param data integer size of the axis `data`
---@param cfg table as config gives it; its batch is set
---@param list table rules
---@param master boolean float32 weights beside those of the model
function M.plan_of(data, cfg, list, master)
  local mesh = ml.make_mesh({data, M.T}, {"data", "model"}, table.move(ml.devices(), 1, data * M.T, 1, {}))
  cfg.batch = data
  local model = ml.init(function(rngs) return recipe.build(cfg, rngs) end, {mesh = mesh, rules = list})
  local opt = ml.optim.adamw(model, {lr = 1e-4, b1 = 0.9, b2 = 0.95, clip = 1.0, weight_decay = 0.1,
    mask = "matrices", master = master})
  local step = ml.jit(function(m, o, x, y)
    local loss, grads = ml.value_and_grad(function(v) return recipe.loss(v, x, y) end)(m)
    o:update(m, grads)
    return loss
  end, {mesh = mesh, rules = list})
  local ids = ml.device_put(ml.zeros({cfg.batch, cfg.seq}, "int32"), NamedSharding(mesh, P "data"))
  local before = os.clock()
  local plan = step:plan(model, opt, ids, ids)
  return plan, os.clock() - before
end

--- The same with the blocks on the places of a pipeline: a mesh (data, stage, model), `m` microbatches of one sequence
--- for each data group, under 1f1b; the token table lies whole on each place. Gives the pipeline's figures, too.
---@return Plan plan, number seconds, PipelineFigures figures
function M.pipelined(data, stages, m)
  local cfg = M.config {dtype = "bfloat16", scan = true}
  local devices = table.move(ml.devices(), 1, data * stages * M.T, 1, {})
  local mesh = ml.make_mesh({data, stages, M.T}, {"data", "stage", "model"}, devices)
  local rules = recipe.rules.pp_tp
  cfg.batch = data * m
  local model = ml.init(function(rngs) return recipe.build(cfg, rngs) end, {mesh = mesh, rules = rules})
  local opt = ml.optim.adamw(model, {lr = 1e-4, b1 = 0.9, b2 = 0.95, clip = 1.0, weight_decay = 0.1,
    mask = "matrices", master = true})
  local function parts_of(v)
    local parts = recipe.pipeline(v)
    return parts.stack, {microbatches = m, schedule = "1f1b", first = parts.first, last = parts.last,
      mesh = mesh}
  end
  local step = ml.jit(function(v, o, x, y)
    local loss, grads = ml.value_and_grad(function(own)
      local stack, options = parts_of(own)
      return (ml.nn.pipeline(stack, {inputs = x, labels = y}, options))
    end)(v)
    o:update(v, grads)
    return loss
  end, {mesh = mesh, rules = rules})
  local ids = ml.device_put(ml.zeros({cfg.batch, cfg.seq}, "int32"), NamedSharding(mesh, P "data"))
  local before = os.clock()
  local plan = step:plan(model, opt, ids, ids)
  local seconds = os.clock() - before
  local figures
  mesh:with(rules, function()
    local stack, options = parts_of(model)
    figures = ml.nn.explain_pipeline(stack, {inputs = ids, labels = ids}, options)
  end)
  return plan, seconds, figures
end

--- Bytes of one device by group, from the plan: operands of the updates, and what else is given or made.
---@param plan Plan
function M.held(plan)
  local sum = {updated = 0, gradients = 0, moments = 0, copies = 0}
  for _, step in ipairs(plan:steps()) do
    if step.op == "adamw" then
      local x = step.inputs
      sum.updated, sum.gradients = sum.updated + x[1].bytes, sum.gradients + x[2].bytes
      sum.moments = sum.moments + x[3].bytes + x[4].bytes
    elseif #step.ops == 1 and step.ops[1] == "astype" and step.outputs[1].dtype == "bfloat16"
      and step.role == "forward" then
      sum.copies = sum.copies + step.outputs[1].bytes
    end
  end
  return sum
end

--- The collectives of a kind over axes: how many, bytes of one device's operands, bytes that it sends.
---@param op string
---@param axes string "data" or "data,model"
---@param dtype string of the operands
function M.sent(plan, op, axes, dtype)
  local n, given, over = 0, 0, 0
  for _, c in ipairs(plan:collectives()) do
    if c.op == op and table.concat(c.axes, ",") == axes and c.inputs[1].dtype == dtype then
      n, given, over = n + 1, given + c.bytes, over + c.sent
    end
  end
  return n, given, over
end

return M
