-- train.lua: a training step of models/gpt.lua: loss, gradients, clipping by the global norm, AdamW. On one device or
-- on a mesh of eight virtual ones.
local ml = require "meshlua"
local gpt = require "gpt"

local meshes = {["data:8"] = {{8}, {"data"}}, ["data:4,model:2"] = {{4, 2}, {"data", "model"}},
  ["model:8"] = {{8}, {"model"}}}

--- Configuration, model, optimizer and step.
local function training(p)
  local cfg = {}
  for key, value in pairs(gpt.config) do cfg[key] = value end
  for key, value in pairs(p) do cfg[key] = value end
  local mesh = p.arm ~= "one device" and p.mesh and ml.make_mesh(table.unpack(meshes[p.mesh]))
  local placed = {mesh = mesh or nil, rules = gpt.rules[mesh and p.rules or "dp"]}
  local model = ml.init(function(rngs) return gpt.build(cfg, rngs) end,
    {mesh = placed.mesh, rules = placed.rules, seed = 0})
  local opt = ml.optim.adamw(model, {lr = 3e-4, b1 = 0.9, b2 = 0.99, weight_decay = 0.1, mask = "matrices",
    clip = 1.0})
  local step = ml.jit(function(m, o, ids, labels)
    local loss, grads = ml.value_and_grad(function(q) return gpt.loss(q, ids, labels) end)(m)
    o:update(m, grads)
    return loss
  end, placed)
  return cfg, mesh, model, opt, step
end

return function(p)
  local cfg, mesh, model, opt, step = training(p)
  local shape = {cfg.batch, cfg.seq}
  local ids = ml.random.randint(ml.random.key(1), shape, 0, cfg.vocab)
  local labels = ml.random.randint(ml.random.key(2), shape, 0, cfg.vocab)
  local inputs = {ids = ids, labels = labels}
  ml.tree.visit(model, function(path, leaf) inputs[path] = leaf:get() end)
  if mesh then
    local sharding = ml.NamedSharding(mesh, ml.P(mesh.shape.data and "data" or nil))
    ids, labels = ml.device_put(ids, sharding), ml.device_put(labels, sharding)
  end
  local function plan() return step:plan(model, opt, ids, labels) end
  return {
    inputs = inputs,
    plan = plan,
    results = function()
      local losses = {}
      for i = 1, 3 do losses[i] = step(model, opt, ids, labels) end
      return losses
    end,
    run = function() return step(model, opt, ids, labels):item() end,
    info = function()
      local flops, bytes = {}, {}
      for i, s in ipairs(plan():steps()) do flops[i], bytes[i] = s.flops, s.traffic end
      return {flops = flops, bytes = bytes}
    end,
  }
end
