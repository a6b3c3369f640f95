-- mlp.lua: see mlp.py.
local ml = require "meshlua"

local nn = ml.nn

local function perceptron(sizes)
  local rngs, layers = nn.Rngs(0), {}
  for i = 1, #sizes - 1 do layers[i] = nn.Linear(sizes[i], sizes[i + 1], {rngs = rngs}) end
  return layers
end

local function forward(layers, x)
  for i, layer in ipairs(layers) do
    x = layer(x)
    if i < #layers then x = nn.relu(x) end
  end
  return x
end

return function(p)
  local model = perceptron(p.sizes)
  local opt = ml.optim.adam(model, {lr = 1e-3})
  local x = ml.random.normal(ml.random.key(1), {p.batch, p.sizes[1]})
  local labels = ml.random.randint(ml.random.key(2), {p.batch}, 0, p.sizes[#p.sizes])
  local step = ml.jit(function(m, o, images, ids)
    local loss, grads = ml.value_and_grad(function(q)
      return nn.softmax_cross_entropy_with_integer_labels(forward(q, images), ids):mean()
    end)(m)
    o:update(m, grads)
    return loss
  end)
  local inputs = {x = x, labels = labels}
  for i, layer in ipairs(model) do
    inputs["kernel" .. i], inputs["bias" .. i] = layer.kernel:get() + 0.0, layer.bias:get() + 0.0
  end
  return {
    inputs = inputs,
    results = function()
      local losses = {}
      for i = 1, 3 do losses[i] = step(model, opt, x, labels) end
      return losses
    end,
    run = function() return step(model, opt, x, labels):item() end,
  }
end
