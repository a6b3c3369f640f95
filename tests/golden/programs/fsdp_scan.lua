-- Two and three layers as a loop, their weights split over the data axis, with overlap: the next layer's weight is
-- gathered while a layer computes, and the gradient of the one before is on its way.
local ml = require "meshlua"
local P, NamedSharding = ml.P, ml.NamedSharding

ml.config {passes = {overlap = true}}
local mesh = ml.make_mesh({8}, {"data"})
local function born(shape, spec) return ml.device_put(ml.ones(shape), NamedSharding(mesh, spec)) end
local x = born({32, 64}, P("data", nil))

for layers = 2, 3 do
  local step = ml.jit(function(w, batch)
    local grad = ml.grad(function(v)
      return ml.mean((ml.scan(function(c, layer) return ml.tanh(ml.matmul(c, layer)) end, batch, v)))
    end)(w)
    return w - grad
  end, {out_shardings = NamedSharding(mesh, P(nil, "data", nil))})
  step:plan(born({layers, 64, 64}, P(nil, "data", nil)), x)
end
