-- losses.lua: five steps of a small model on all devices there are; prints the loss of each.
local ml = require "meshlua"
local mesh = ml.make_mesh({ml.device_count()}, {"data"})
local function batch(step, n) return ml.random.normal(ml.random.fold_in(ml.random.key(0), step), {16, n}) end
local w = ml.random.normal(ml.random.key(1), {8, 1})
local train_step = ml.jit(function(weight, x, y)
  local loss, grad = ml.value_and_grad(function(v) return ((x:matmul(v) - y) ^ 2):mean() end)(weight)
  return weight - 0.1 * grad, loss
end)
for step = 1, 5 do
  local x = ml.device_put(batch(step, 8), ml.NamedSharding(mesh, ml.P("data")))
  local loss
  w, loss = train_step(w, x, x:sum(2, true))
  print(loss:item())
end
