-- A layer whose weight lies over the data axis: gathered for each use, its gradient scattered.
local ml = require "meshlua"
local P, NamedSharding = ml.P, ml.NamedSharding

local mesh = ml.make_mesh({8}, {"data"})
local function born(shape, spec) return ml.device_put(ml.ones(shape), NamedSharding(mesh, spec)) end

local step = ml.jit(function(w, x)
  local loss, grad = ml.value_and_grad(function(v) return ml.mean(ml.tanh(ml.matmul(x, v))) end)(w)
  return loss, w - grad * 0.1
end, {out_shardings = {false, NamedSharding(mesh, P("data", nil))}})

step:plan(born({256, 256}, P("data", nil)), born({32, 256}, P("data", nil)))
