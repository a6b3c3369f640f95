-- block.lua: the transformer block of the slides "Sharding and Parallelism with JAX and Flax NNX", and two ways to
-- lay out its parameters.
local ml = require "meshlua"
local P, nn = ml.P, ml.nn

local TransformerBlock = nn.module "TransformerBlock"

function TransformerBlock:init(embed_dim, num_heads, ff_dim, dropout_rate, rngs)
  local embed = {"embed"}
  self.layer_norm1 = nn.LayerNorm(embed_dim, {epsilon = 1e-6, rngs = rngs, axes = embed})
  self.mha = nn.MultiHeadAttention(embed_dim, num_heads, {rngs = rngs, axes = {"embed", "heads"}})
  self.dropout1 = nn.Dropout(dropout_rate)
  self.layer_norm2 = nn.LayerNorm(embed_dim, {epsilon = 1e-6, rngs = rngs, axes = embed})
  self.linear1 = nn.Linear(embed_dim, ff_dim, {rngs = rngs, axes = {"embed", "hidden"}})
  self.linear2 = nn.Linear(ff_dim, embed_dim, {rngs = rngs, axes = {"hidden", "embed"}})
  self.dropout2 = nn.Dropout(dropout_rate)
end

local function causal_attention_mask(n)
  local position = ml.arange(n)
  return position:reshape(1, n):le(position:reshape(n, 1)) -- key, query
end

--- With rngs it trains: elements are dropped.
function TransformerBlock:__call(inputs, rngs)
  local function dropout(layer, x) return rngs and layer(x, rngs) or x end
  local attention_output = self.mha(self.layer_norm1(inputs), {mask = causal_attention_mask(inputs.shape[2])})
  local x = inputs + dropout(self.dropout1, attention_output)
  local mlp_output = self.linear1(self.layer_norm2(x))
  mlp_output = nn.gelu(mlp_output)
  mlp_output = self.linear2(mlp_output)
  mlp_output = dropout(self.dropout2, mlp_output)
  return x + mlp_output
end

local rules = {
  -- As in the slides: the first dim of everything, which is the contraction dim of the products.
  slides = {function() return P("model") end, {"embed", false}, {"heads", false}, {"hidden", false}},
  megatron = {{"embed", false}, {"heads", "model"}, {"hidden", "model"}},
}

return {TransformerBlock = TransformerBlock, rules = rules}
