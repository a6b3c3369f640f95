-- adamw.lua: see adamw.py.
local ml = require "meshlua"

--- The shapes of models/gpt.lua's parameters, by name; or one of n numbers.
local function shapes_of(p)
  if not p.layers then return {big = {p.n}} end
  local gpt = require "gpt"
  local cfg = {}
  for key, value in pairs(gpt.config) do cfg[key] = value end
  for key, value in pairs(p) do cfg[key] = value end
  local shapes = {}
  ml.tree.visit(ml.init(function(rngs) return gpt.build(cfg, rngs) end, {seed = 0}), function(path, leaf)
    shapes[path:gsub("%.", "_")] = leaf.shape
  end)
  return shapes
end

return function(p)
  local model, grads, inputs, names = {}, {}, {}, {}
  for name, shape in pairs(shapes_of(p)) do names[#names + 1], model[name] = name, shape end
  table.sort(names)
  for i, name in ipairs(names) do
    local value = ml.random.normal(ml.random.key(2 * i), model[name])
    grads[name] = ml.random.normal(ml.random.key(2 * i + 1), model[name])
    inputs["p " .. name], inputs["g " .. name] = value, grads[name]
    model[name] = ml.nn.Param(value)
  end
  local opt = ml.optim.adamw(model, {lr = 1e-3, b1 = 0.9, b2 = 0.99, weight_decay = 0.1})
  local step = ml.jit(function(m, o, g) o:update(m, g) end)
  local results = {}
  return {
    inputs = inputs,
    results = function()
      for _ = 1, 2 do step(model, opt, grads) end
      for i, name in ipairs(names) do results[i] = model[name]:get() + 0.0 end
      return results
    end,
    run = function() step(model, opt, grads) end,
  }
end
