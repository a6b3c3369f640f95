-- A scan whose slices are split over data=8 and its gradient, a loop that ends by what it computes, and a branch.
local ml = require "meshlua"
local P, NamedSharding = ml.P, ml.NamedSharding

local mesh = ml.make_mesh({8}, {"data"})
local function born(shape, spec) return ml.device_put(ml.ones(shape), NamedSharding(mesh, spec)) end

local step = ml.jit(function(w, xs)
  return ml.value_and_grad(function(v)
    local first = xs:slice({1, 1}):squeeze(1)
    local last, all = ml.scan(function(c, x) return ml.tanh(c:matmul(v)) + x, c end, first, xs)
    return ml.mean(last) + ml.mean(all)
  end)(w)
end)
step:plan(born({16, 16}, P()), born({3, 16, 16}, P(nil, "data", nil)))

local control = ml.jit(function(x)
  local grown = ml.while_loop(function(v) return v:sum():lt(100) end, function(v) return v * 2 end, x)
  return ml.cond(grown:max():gt(8), function(v) return v:cumsum(1) end, function(v) return v end, grown)
end)
control:plan(born({16, 4}, P("data", nil)))
