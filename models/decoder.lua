-- decoder.lua: a recipe: a decoder of any of the families that `plan` reads a config.json of: what differs
-- between GPT-2, LLaMA, Mixtral, Gemma, BLOOM and others is in the config.
local ml = require "meshlua"

local nn, optim, schedule, text = ml.nn, ml.optim, ml.schedule, ml.train.text

local M = {name = "decoder", layout = {mesh = "data:4,model:2", rules = "fsdp_tp"}}

--- What families differ in, with how it is where a family says nothing.
---@class DecoderConfig
M.config = {
  layers = 4, width = 128, heads = 8, kv_heads = 8, head_dim = 16, hidden = 512, vocab = 256, seq = 64,
  tied = false, -- the embedding table is the head, too
  positions = "rotary", -- or "learned", or "alibi"
  rotary = 1.0, theta = 10000.0, -- the share of a head's features that turns, and the base
  norm = "layer", norm_bias = true, epsilon = 1e-5, -- or "rms"
  embed_norm = false, norms_behind = false, -- norms of the embeddings; of what a branch gives
  parallel = 0, -- attention and MLP read the same x, behind one norm or two
  gated = false, activation = "gelu",
  attention_bias = false, out_bias = false, mlp_bias = false, head_bias = false,
  qk_norm = false, -- of each query's and key's head
  embed_scale = false, -- embeddings times sqrt(width)
  experts = 0, top_k = 2,
  dtype = "float32", precision = "", remat = "none", scan = true,
  remat_every = 1, -- blocks: one of so many is computed again, where they are no loop
  loss_parts = 1, -- of each sequence: one part's logits are held at a time
  batch = 16, steps = 3000, lr = 3e-3, warmup = 100, weight_decay = 0.1, clip = 1.0,
  sample = 1000, temperature = 0.5,
}

--- What of them a user may set.
M.help = {
  layers = "blocks; or scan, unrolled: how they are planned (a loop, by default)", seq = "tokens of context",
  batch = "sequences in a step, over all devices", dtype = "of parameters and optimizer state",
  precision = "of arithmetic: bf16, f16, f32",
  remat = "what a gradient computes again: none, dots (all but products), full",
  lr = "learning rate, at its peak", warmup = "steps up to the peak", weight_decay = "of matrices",
  clip = "largest global norm of gradients", sample = "bytes to write at the end",
  temperature = "of the sample: below 1 the likely is likelier",
}

M.range = {
  layers = {least = 1}, seq = {least = 1}, remat = {words = {"none", "dots", "full"}},
  dtype = {words = {"float32", "bfloat16", "float16"}},
}

--- What of a block a gradient keeps, by name: nothing, or products. Others may be added: a block's products have names
--- for ml.remat_policies.save_only_these_names.
M.remat = {
  full = ml.remat_policies.nothing_saveable,
  dots = ml.remat_policies.dots_saveable,
}

-- ---- the model ------------------------------------------------------------------------------------------

local function options(cfg, rngs, more)
  more.rngs, more.param_dtype, more.dtype = rngs, cfg.dtype, ml.train.precision(cfg)
  return more
end

local named = ml.checkpoint_name

local function Norm(cfg, rngs, features, axes)
  local more = options(cfg, rngs, {axes = axes or {"embed"}, epsilon = cfg.epsilon})
  if cfg.norm == "rms" then return nn.RMSNorm(features or cfg.width, more) end
  more.use_bias = cfg.norm_bias
  return nn.LayerNorm(features or cfg.width, more)
end

--- ALiBi (Press et al. 2022): by how much each head's scores fall with each token that a key is further away.
local function slopes(heads)
  local whole = 1
  while whole * 2 <= heads do whole = whole * 2 end
  local list = {}
  for i = 1, whole do list[i] = 2 ^ (-8 * i / whole) end
  for i = 1, heads - whole do list[whole + i] = 2 ^ (-4 * (2 * i - 1) / whole) end
  return list
end

local Attention = nn.module "Attention"

function Attention:init(cfg, rngs)
  local function project(heads, axis)
    return nn.Linear(cfg.width, {heads, cfg.head_dim},
      options(cfg, rngs, {axes = {"embed", axis, false}, use_bias = cfg.attention_bias}))
  end
  self.query, self.key = project(cfg.heads, "heads"), project(cfg.kv_heads, "kv_heads")
  self.value = project(cfg.kv_heads, "kv_heads")
  self.out = nn.Linear({cfg.heads, cfg.head_dim}, cfg.width,
    options(cfg, rngs, {axes = {"heads", false, "embed"}, use_bias = cfg.out_bias}))
  if cfg.qk_norm then
    self.query_norm, self.key_norm = Norm(cfg, rngs, cfg.head_dim, {false}), Norm(cfg, rngs, cfg.head_dim,
      {false})
  end
  if cfg.positions == "rotary" then
    self.rotary, self.theta = cfg.head_dim * cfg.rotary // 2 * 2 // 1 | 0, cfg.theta
  end
  self.slopes = cfg.positions == "alibi" and slopes(cfg.heads) or nil
end

--- The first `rotary` features of each head turned by its position.
local function turned(self, x, positions)
  if not self.rotary or self.rotary == 0 then return x end
  local how = {base = self.theta, positions = positions}
  if self.rotary == x.shape[4] then return nn.rope(x, how) end
  local first = nn.rope(x:slice(false, false, false, {1, self.rotary}), how)
  return ml.concat({first, x:slice(false, false, false, {self.rotary + 1, x.shape[4]})}, -1)
end

function Attention:__call(x, past)
  local q = named(self.query(x):constrain {"batch", "seq", "heads", false}, "query")
  local k = named(self.key(x):constrain {"batch", "seq", "kv_heads", false}, "key")
  local v = named(self.value(x):constrain {"batch", "seq", "kv_heads", false}, "value")
  if self.query_norm then q, k = self.query_norm(q), self.key_norm(k) end
  local positions, see = past and past.positions, {causal = true}
  q, k = turned(self, q, positions), turned(self, k, positions)
  if past then k, v = past:add(k, v, see) end
  if self.slopes then -- times the key's place: what its distance to the query adds to all scores changes nothing
    local slope = ml.tensor(self.slopes, "float32"):reshape(1, #self.slopes, 1, 1)
    see.bias = slope * ml.iota({1, 1, 1, k.shape[2]}, 4, "float32")
  end
  local y = named(nn.attention(q, k, v, see), "context")
  return named(self.out(y:constrain {"batch", "seq", "heads", false}), "out")
end

--- See ml.cache.
function Attention:new_cache(make, _)
  local shape = self.key.kernel.shape
  return make(shape[2], shape[3], "kv_heads", self.key.dtype or self.key.kernel.dtype)
end

local MLP = nn.module "MLP"

function MLP:init(cfg, rngs)
  local function up()
    return nn.Linear(cfg.width, cfg.hidden, options(cfg, rngs, {axes = {"embed", "mlp"},
      use_bias = cfg.mlp_bias}))
  end
  self.gate, self.up = cfg.gated and up() or nil, up()
  self.down = nn.Linear(cfg.hidden, cfg.width,
    options(cfg, rngs, {axes = {"mlp", "embed"}, use_bias = cfg.mlp_bias}))
  self.activation = nn[cfg.activation]
end

function MLP:__call(x)
  local h = self.activation(self.gate and named(self.gate(x), "gate") or named(self.up(x), "up"))
  if self.gate then h = h * named(self.up(x), "up") end
  return named(self.down(h:constrain {"batch", "seq", "mlp"}), "down")
end

local function Feed(cfg, rngs)
  if cfg.experts == 0 then return MLP(cfg, rngs) end
  return nn.MoE(cfg.width, cfg.hidden, cfg.experts,
    options(cfg, rngs, {top_k = cfg.top_k, activation = nn[cfg.activation], gated = cfg.gated}))
end

local Block = nn.module "Block"

function Block:init(cfg, rngs)
  self.norm_1, self.attn = Norm(cfg, rngs), Attention(cfg, rngs)
  if cfg.parallel ~= 1 then self.norm_2 = Norm(cfg, rngs) end
  if cfg.norms_behind then self.norm_3, self.norm_4 = Norm(cfg, rngs), Norm(cfg, rngs) end
  self.mlp, self.parallel = Feed(cfg, rngs), cfg.parallel
end

--- What a branch gives, as it is added to x: behind a norm where there is one.
local function branch(y, norm)
  return (norm and norm(y) or y):constrain {"batch", "tokens", "embed"}
end

function Block:__call(x, past)
  local before = self.norm_1(x)
  local y = branch((self.attn(before, past and past.attn)), self.norm_3)
  if self.parallel > 0 then
    return x + y + branch((self.mlp(self.norm_2 and self.norm_2(x) or before)))
  end
  x = x + y
  return x + branch((self.mlp(self.norm_2(x))), self.norm_4)
end

local Decoder = nn.module "Decoder"

function Decoder:init(cfg, rngs)
  local function table_of(n, axis)
    return nn.Embed(n, cfg.width, options(cfg, rngs, {axes = {axis, "embed"}}))
  end
  self.embed = table_of(cfg.vocab, "vocab")
  if cfg.positions == "learned" then self.positions = table_of(cfg.seq, false) end
  if cfg.embed_norm then self.embed_norm = Norm(cfg, rngs) end
  if cfg.scan then
    self.layers = (cfg.stack or nn.stack)(cfg.layers, function() return Block(cfg, rngs) end)
  else
    self.layers = {}
    for i = 1, cfg.layers do self.layers[i] = Block(cfg, rngs) end
  end
  self.norm = Norm(cfg, rngs)
  if not cfg.tied then
    self.head = nn.Linear(cfg.width, cfg.vocab,
      options(cfg, rngs, {axes = {"embed", "vocab"}, use_bias = cfg.head_bias}))
  end
  self.scan, self.policy, self.every = cfg.scan, M.remat[cfg.remat], cfg.remat_every
  self.context, self.vocab, self.count = cfg.seq, cfg.vocab, cfg.layers
  self.parts = cfg.loss_parts
  self.scale = cfg.embed_scale and math.sqrt(cfg.width) or nil
end

--- Layer after layer, with a cache: a loop would carry it, and copy it.
local function through_cache(self, x, past)
  for i = 1, #past.layers do
    x = (self.scan and nn.layer(self.layers, i) or self.layers[i])(x, past.layers[i])
  end
  return x
end

--- See ml.cache: each layer has its own, even where they are a stack.
function Decoder:new_cache(make, walk)
  local layers, one = {}, self.scan and nn.layer(self.layers, 1)
  for i = 1, self.count do layers[i] = walk(one or self.layers[i], make) end
  return {layers = layers}
end

--- What the first layer reads.
function Decoder:embedded(ids, past)
  local x = self.embed(ids)
  if self.scale then x = x * self.scale end
  if self.positions then x = x + self.positions(past and past.positions or ml.arange(ids.shape[2])) end
  if self.embed_norm then x = self.embed_norm(x) end
  return x:constrain {"batch", "tokens", "embed"}
end

local function through(layer, x) return layer(x) end

--- The same, of whose inside a gradient keeps what the config says.
local function again_of(self)
  return self.policy and ml.remat(through, {policy = self.policy}) or through
end

--- What the head reads.
function Decoder:features(ids, past)
  local x, again = self:embedded(ids, past), again_of(self)
  if past then
    x = through_cache(self, x, past)
  elseif self.scan then
    x = nn.scan(self.layers, x, function(layer, carry) return again(layer, carry) end)
  else
    for i, layer in ipairs(self.layers) do x = (i % self.every == 0 and again or through)(layer, x) end
  end
  return self.norm(x)
end

function Decoder:logits(x)
  local logits = self.head and self.head(x) or self.embed:attend(x)
  return logits:constrain {"batch", "seq", "vocab"}
end

--- Logits for the token behind each position.
---@param ids Tensor int32 [batch, T]
---@param cache Cache? of what came before (ml.cache)
---@return Tensor [batch, T, vocab]; with a cache [batch, 1, vocab], behind the last token of each row
function Decoder:__call(ids, _, cache)
  if not cache then return self:logits(self:features(ids)) end
  local past = cache:open(ids)
  local x = self:features(past.ids, past)
  past:close()
  return self:logits(past:last(x))
end

---@param cfg DecoderConfig
---@param rngs Rngs
---@return table model
function M.build(cfg, rngs) return Decoder(cfg, rngs) end

--- The mean loss of what the head reads.
local function loss_of(model, x, labels)
  local cross_entropy = nn.softmax_cross_entropy_with_integer_labels
  if model.parts == 1 then return cross_entropy(model:logits(x), labels):mean() end
  local sum = 0.0
  local part = ml.remat(function(h, classes) return cross_entropy(model:logits(h), classes):sum() end)
  for i = 1, model.parts do
    local from, to = (i - 1) * labels.shape[2] // model.parts + 1, i * labels.shape[2] // model.parts
    sum = sum + part(x:slice(false, {from, to}, false), labels:slice(false, {from, to}))
  end
  return sum / labels.size
end

--- The mean loss in nats per token.
function M.loss(model, ids, labels) return loss_of(model, model:features(ids), labels) end

--- The model's parts for nn.pipeline; nil where its layers are no stack.
function M.pipeline(model)
  if not model.scan then return nil end
  return {stack = model.layers, body = again_of(model),
    first = function(part) return model:embedded(part.inputs) end,
    last = function(x, part) return loss_of(model, model.norm(x), part.labels) end}
end

--- The learning rate of a step.
function M.schedule(cfg)
  return schedule.warmup_cosine {peak_value = cfg.lr, warmup_steps = math.min(cfg.warmup, cfg.steps // 2),
    decay_steps = cfg.steps}
end

function M.optimizer(model, cfg)
  return optim.adamw(model, {lr = M.schedule(cfg), clip = cfg.clip, weight_decay = cfg.weight_decay,
    mask = "matrices"})
end

--- For the share of a device's peak.
function M.attention(cfg)
  local matrices = cfg.gated and 3 or 2
  local idle = math.max(0, cfg.experts - cfg.top_k) * matrices * cfg.width * cfg.hidden
  return {layers = cfg.layers, width = cfg.heads * cfg.head_dim, seq = cfg.seq, idle = cfg.layers * idle}
end

M.data, M.score, M.evaluate, M.sample = text.data, text.score, text.evaluate, text.sample

-- ---- layouts --------------------------------------------------------------------------------------------

local function rules(list)
  for _, name in ipairs {"batch", "tokens", "seq", "embed", "vocab", "heads", "kv_heads", "mlp", "expert",
    "layers"} do
    list[#list + 1] = {name, false}
  end
  return list
end

M.min_sharded = 1 << 16 -- elements of a layer's smallest matrix that fsdp splits
local largest = ml.shard_largest("data", M.min_sharded)

local function shard_matrices(path, param, own)
  if param.role == "kernel" or param.role == "embedding" then return largest(path, param, own) end
end

local data = {"batch", "data"}
-- Vocabularies and heads of published models are often of sizes that no mesh axis divides.
local function padded(name) return {name, "model", uneven = "pad"} end
local heads, kv_heads, hidden = padded "heads", padded "kv_heads", {"mlp", "model"}
local vocab, tokens = padded "vocab", {"tokens", "model"}

-- Layers on the places of a pipeline; where it does not divide them the last place passes over what is missing.
local stages = {"layers", "stage", uneven = "pad"}

--- As those of models/llama.lua, with the vocabulary split as well. pp, pp_tp, fsdp_pp: layers over `stage`, what is
--- none whole along it.
M.dense_rules = {
  dp = rules {data},
  tp = rules {data, heads, kv_heads, hidden, vocab},
  tp_sp = rules {data, heads, kv_heads, hidden, vocab, tokens},
  fsdp = rules {shard_matrices, data},
  fsdp_tp = rules {shard_matrices, data, heads, kv_heads, hidden, vocab},
  fsdp_tp_sp = rules {shard_matrices, data, heads, kv_heads, hidden, vocab, tokens},
  pp = rules {stages, data},
  pp_tp = rules {stages, data, heads, kv_heads, hidden, vocab},
  fsdp_pp = rules {stages, shard_matrices, data},
}

-- The batch lies over the experts' axis as well, which splits all that is no expert as data does.
local expert, over_experts = {"expert", "expert"}, ml.shard_largest("expert", M.min_sharded)
local both, batch = {"batch", {"data", "expert"}}, {"batch", "expert"}

local function shard_over_both(path, param, own)
  if param.role ~= "kernel" and param.role ~= "embedding" then return nil end
  local function inner() return over_experts(path, param, own) or own() end
  return largest(path, param, inner) or inner()
end

--- Those of models with experts, besides.
M.rules = {
  ep = rules {both, batch, data, expert},
  fsdp_ep = rules {shard_over_both, both, batch, data, expert},
  fsdp_ep_tp = rules {shard_over_both, both, batch, data, expert, heads, kv_heads, hidden, vocab},
}
for name, set in pairs(M.dense_rules) do M.rules[name] = set end

--- Is a size of a mesh axis worth a plan? Experts are not padded; and of heads no more than half are padding, where
--- their axis leaves a host.
---@param cfg DecoderConfig
---@param axis string
---@param size integer
---@param host integer devices of a host
---@return boolean
function M.sensible(cfg, axis, size, host)
  if axis == "expert" then return cfg.experts % size == 0 end
  if axis == "stage" then return size <= cfg.layers end
  return axis ~= "model" or size <= math.min(cfg.heads, math.max(2 * cfg.kv_heads, host))
end

ml.train.script(M)
return M
