-- The ticks of a pipeline of two stages: stage s works in ticks s to s + 2 and hands on what it made; what it adds up
-- stays where it lies.
local ml = require "meshlua"
local P, NamedSharding = ml.P, ml.NamedSharding

local mesh, MICROBATCHES = ml.make_mesh({2, 4}, {"stage", "data"}), 3
local function born(shape, ...) return ml.device_put(ml.ones(shape), NamedSharding(mesh, P(...))) end

local step = ml.jit(function(w, xs)
  return ml.shard_map(function(own, batches)
    local stage = ml.axis_index("stage")
    local last = ml.scan(function(c, tick)
      local k = tick - stage
      local out, sum = ml.cond(k:ge(0) & k:lt(MICROBATCHES), function(hop, acc)
        local y = ml.tanh((hop + batches:slice(1)):matmul(own:reshape(8, 8)))
        return y, acc + y
      end, function(hop, acc) return hop, acc end, c.hop, c.sum)
      return {hop = ml.ppermute(out, "stage", {{0, 1}}), sum = sum}
    end, {hop = ml.zeros {1, 8}, sum = ml.zeros {1, 8}}, ml.arange(MICROBATCHES + 1))
    return last.sum
  end, {mesh = mesh, in_specs = {P("stage"), P(nil, "data")}, out_specs = P {"stage", "data"}})(w, xs)
end)
step:plan(born({2, 8, 8}, "stage"), born({MICROBATCHES, 4, 8}, nil, "data"))
