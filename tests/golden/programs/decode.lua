-- A token behind a cache that is split over data=4 and model=2: keys and values are written where they lie.
local ml = require "meshlua"
local nn = ml.nn

local mesh = ml.make_mesh({4, 2}, {"data", "model"})
local rules = {{"batch", "data"}, {"heads", "model"}, {"embed", false}}
local model = ml.init(function(rngs)
  return {attn = nn.MultiHeadAttention(16, 4, {rngs = rngs, axes = {"embed", "heads"}, kv_heads = 2,
    causal = true, use_bias = false, rope = 1e4, kernel_init = nn.initializers.ones})}
end, {mesh = mesh, rules = rules})
local cache = ml.cache(model, 8, 64)

ml.jit(function(m, c, x, ids)
  local past = c:open(ids)
  past:close()
  return m.attn(x, {cache = past.attn})
end, {mesh = mesh, rules = rules}):plan(model, cache, ml.ones {8, 1, 16}, ml.zeros({8, 1}, "int32"))
