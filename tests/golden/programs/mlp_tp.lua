-- Two layers on data=4, model=2, the first split by columns, the second by rows, and a step of SGD.
local ml = require "meshlua"
local P, NamedSharding = ml.P, ml.NamedSharding

local mesh = ml.make_mesh({4, 2}, {"data", "model"})
local function born(shape, spec) return ml.device_put(ml.ones(shape), NamedSharding(mesh, spec)) end

local step = ml.jit(function(w1, b1, w2, x, y)
  local loss, grads = ml.value_and_grad(function(w)
    local h = ml.tanh(ml.matmul(x, w[1]) + w[2])
    return ml.mean(ml.square(ml.matmul(h, w[3]) - y))
  end)({w1, b1, w2})
  return loss, w1 - grads[1] * 0.1, b1 - grads[2] * 0.1, w2 - grads[3] * 0.1
end)

step:plan(born({16, 32}, P(nil, "model")), born({32}, P("model")), born({32, 8}, P("model", nil)),
  born({64, 16}, P("data", nil)), born({64, 8}, P("data", nil)))
