-- llama.lua: a recipe: LLaMA's architecture (Touvron et al. 2023), by default byte-level and small. Weights of the
-- family, and those trained here, are read and written by from_pretrained and save_pretrained.
local ml = require "meshlua"

local nn, optim, schedule, text = ml.nn, ml.optim, ml.schedule, ml.train.text

local M = {name = "llama", layout = {mesh = "data:4,model:2", rules = "tp"}}

--- What can be set, with defaults: the model's sizes, how it is trained, what is said at the end.
M.config = {
  layers = 4, width = 128, heads = 8, kv_heads = 4, head_dim = 0, hidden = 352, seq = 64, vocab = 256,
  tied = false, epsilon = 1e-5, theta = 10000.0,
  rope_factor = 0.0, rope_low = 1.0, rope_high = 4.0, rope_original = 8192,
  dtype = "float32", precision = "", scan = false,
  batch = 16, steps = 3000, lr = 3e-3, min_lr = 3e-5, warmup = 100, beta1 = 0.9, beta2 = 0.99,
  weight_decay = 0.1, clip = 1.0,
  sample = 1000, temperature = 0.5,
}

--- What each of them is.
M.help = {
  layers = "blocks of attention and MLP; or scan, unrolled: how they are planned (unrolled, by default)",
  width = "features of a token", heads = "of queries",
  kv_heads = "of keys and values; they divide heads", head_dim = "features of a head; 0: width / heads",
  hidden = "features inside an MLP", seq = "tokens of context", vocab = "ids are 0 .. vocab - 1",
  tied = "the embedding table is the head, too", epsilon = "of the norms", theta = "base of rotary positions",
  rope_factor = "by which slow rotations are slower (Llama 3.1: 8); 0: none are",
  rope_low = "turns within rope_original below which they are slow",
  rope_high = "and above which they are not", rope_original = "tokens of context before they were slowed",
  dtype = "of parameters",
  precision = "of arithmetic, where it is not dtype: bf16, f16 (with a loss scale)",
  batch = "texts in a step", steps = "updates of the parameters",
  lr = "learning rate, at its peak", min_lr = "at the end", warmup = "steps up to the peak",
  beta1 = "Adam's memory of gradients", beta2 = "and of their squares",
  weight_decay = "of matrices, times the learning rate", clip = "largest global norm of gradients",
  sample = "bytes to write at the end", temperature = "of the sample: below 1 the likely is likelier",
}

--- What they may be.
M.range = {
  layers = {least = 1}, width = {least = 1}, heads = {least = 1}, kv_heads = {least = 1},
  head_dim = {least = 0}, hidden = {least = 1}, seq = {least = 1}, vocab = {least = 1}, epsilon = {least = 0},
  theta = {above = 0}, rope_factor = {least = 0}, rope_low = {above = 0}, rope_high = {above = 0},
  rope_original = {least = 1},
  dtype = {words = {"float32", "float64", "bfloat16", "float16"}},
  lr = {least = 0}, min_lr = {least = 0}, warmup = {least = 0}, beta1 = {least = 0, below = 1},
  beta2 = {least = 0, below = 1}, weight_decay = {least = 0}, clip = {least = 0}, sample = {least = 0},
  temperature = {above = 0},
}

local function sizes(layers, width, heads, kv_heads, hidden, vocab, seq, more)
  local cfg = {layers = layers, width = width, heads = heads, kv_heads = kv_heads, hidden = hidden,
    vocab = vocab, seq = seq}
  for key, value in pairs(more or {}) do cfg[key] = value end
  return cfg
end

--- Configs of known models.
M.sizes = {
  ["llama-2-7b"] = sizes(32, 4096, 32, 32, 11008, 32000, 4096),
  ["llama-2-13b"] = sizes(40, 5120, 40, 40, 13824, 32000, 4096),
  ["llama-2-70b"] = sizes(80, 8192, 64, 8, 28672, 32000, 4096),
  ["llama-3-8b"] = sizes(32, 4096, 32, 8, 14336, 128256, 8192, {theta = 5e5}),
  ["llama-3-70b"] = sizes(80, 8192, 64, 8, 28672, 128256, 8192, {theta = 5e5}),
  ["llama-3.1-8b"] = sizes(32, 4096, 32, 8, 14336, 128256, 131072, {theta = 5e5, rope_factor = 8.0}),
  ["llama-3.2-1b"] = sizes(16, 2048, 32, 8, 8192, 128256, 131072,
    {theta = 5e5, rope_factor = 32.0, tied = true}),
  ["llama-3.2-3b"] = sizes(28, 3072, 24, 8, 8192, 128256, 131072,
    {theta = 5e5, rope_factor = 32.0, tied = true}),
  ["tinyllama-1.1b"] = sizes(22, 2048, 32, 4, 5632, 32000, 2048),
  ["smollm-135m"] = sizes(30, 576, 9, 3, 1536, 49152, 2048, {tied = true}),
  ["smollm2-135m"] = sizes(30, 576, 9, 3, 1536, 49152, 8192, {theta = 1e5, tied = true}),
  ["smollm2-360m"] = sizes(32, 960, 15, 5, 2560, 49152, 8192, {theta = 1e5, tied = true}),
  ["smollm2-1.7b"] = sizes(24, 2048, 32, 32, 8192, 49152, 8192, {theta = 1.3e5, tied = true}),
}

-- ---- the model ----------------------------------------------------------------------------------------

--- What a layer needs to make its Params.
local function options(cfg, rngs, more)
  more.rngs, more.param_dtype, more.dtype, more.use_bias = rngs, cfg.dtype, ml.train.precision(cfg), false
  return more
end

--- Normal with the variance scale / fan_in: it suits any width.
local function normal(scale) return nn.initializers.variance_scaling(scale, "fan_in", "normal") end

local function head_dim(cfg) return cfg.head_dim > 0 and cfg.head_dim or nil end

--- The frequencies of rotary positions as nn.rope takes them.
local function rope(cfg)
  local scaling = cfg.rope_factor > 0 and {factor = cfg.rope_factor, low = cfg.rope_low,
    high = cfg.rope_high, original = cfg.rope_original} or nil
  return {base = cfg.theta, scaling = scaling}
end

local function Norm(cfg, rngs)
  return nn.RMSNorm(cfg.width, {rngs = rngs, param_dtype = cfg.dtype, dtype = ml.train.precision(cfg),
    axes = {"embed"}, epsilon = cfg.epsilon})
end

local MLP = nn.module "MLP"

function MLP:init(cfg, rngs, residual)
  for _, name in ipairs {"gate", "up"} do
    self[name] = nn.Linear(cfg.width, cfg.hidden, options(cfg, rngs, {axes = {"embed", "mlp"},
      kernel_init = normal(1.0)}))
  end
  self.down = nn.Linear(cfg.hidden, cfg.width, options(cfg, rngs, {axes = {"mlp", "embed"},
    kernel_init = residual}))
end

function MLP:__call(x)
  return self.down((nn.silu(self.gate(x)) * self.up(x)):constrain {"batch", "seq", "mlp"})
end

local Block = nn.module "Block"

function Block:init(cfg, rngs)
  -- The sum of 2 * layers residual branches starts with the variance of one.
  local residual = normal(1 / (2 * cfg.layers))
  self.norm_1 = Norm(cfg, rngs)
  self.attn = nn.MultiHeadAttention(cfg.width, cfg.heads, options(cfg, rngs, {
    axes = {"embed", "heads", "kv_heads"}, kv_heads = cfg.kv_heads, head_dim = head_dim(cfg),
    rope = rope(cfg), causal = true, kernel_init = normal(1.0), out_kernel_init = residual}))
  self.norm_2 = Norm(cfg, rngs)
  self.mlp = MLP(cfg, rngs, residual)
end

function Block:__call(x, past)
  x = x + self.attn(self.norm_1(x), {cache = past and past.attn}):constrain {"batch", "tokens", "embed"}
  return x + self.mlp(self.norm_2(x)):constrain {"batch", "tokens", "embed"}
end

local Llama = nn.module "Llama"

function Llama:init(cfg, rngs)
  self.embed = nn.Embed(cfg.vocab, cfg.width, {rngs = rngs, param_dtype = cfg.dtype,
    dtype = ml.train.precision(cfg), axes = {"vocab", "embed"},
    embedding_init = nn.initializers.normal(0.02)})
  self.context, self.vocab, self.scan, self.count = cfg.seq, cfg.vocab, cfg.scan, cfg.layers
  if cfg.scan then
    self.layers = nn.stack(cfg.layers, function() return Block(cfg, rngs) end)
  else
    self.layers = {}
    for i = 1, cfg.layers do self.layers[i] = Block(cfg, rngs) end
  end
  self.norm = Norm(cfg, rngs)
  if not cfg.tied then
    self.head = nn.Linear(cfg.width, cfg.vocab, options(cfg, rngs, {axes = {"embed", "vocab"},
      kernel_init = nn.initializers.normal(0.02)}))
  end
end

--- See ml.cache: each block has its own, even where they are a stack.
function Llama:new_cache(make, walk)
  local layers, one = {}, self.scan and nn.layer(self.layers, 1)
  for i = 1, self.count do layers[i] = walk(one or self.layers[i], make) end
  return {layers = layers}
end

--- What the first block reads.
function Llama:embedded(ids) return self.embed(ids):constrain {"batch", "tokens", "embed"} end

--- Of what the last block gives.
function Llama:logits(x)
  local logits = self.head and self.head(x) or self.embed:attend(x)
  return logits:constrain {"batch", "tokens", "vocab"}
end

--- Logits for the token behind each position.
---@param ids Tensor int32 [batch, T]
---@param cache Cache? of what came before (ml.cache)
---@return Tensor [batch, T, vocab]; with a cache [batch, 1, vocab], behind the last token of each row
function Llama:__call(ids, _, cache)
  local past = cache and cache:open(ids)
  local x = self:embedded(past and past.ids or ids)
  if self.scan and not past then
    x = nn.scan(self.layers, x, function(block, carry) return block(carry) end)
  else
    for i = 1, self.count do
      x = (self.scan and nn.layer(self.layers, i) or self.layers[i])(x, past and past.layers[i])
    end
  end
  x = self.norm(x)
  if past then
    past:close()
    x = past:last(x)
  end
  return self:logits(x)
end

---@param cfg table as M.config
---@param rngs Rngs
---@return table model
function M.build(cfg, rngs) return Llama(cfg, rngs) end

--- The mean loss in nats per token.
---@param model table
---@param ids Tensor int32 [batch, T]
---@param labels Tensor int32 [batch, T] the token behind each position
---@return Tensor scalar
function M.loss(model, ids, labels)
  return nn.softmax_cross_entropy_with_integer_labels(model(ids), labels):mean()
end

--- The model's parts for nn.pipeline; nil where its blocks are no stack.
function M.pipeline(model)
  if not model.scan then return nil end
  return {stack = model.layers, body = function(block, x) return block(x) end,
    first = function(part) return model:embedded(part.inputs) end,
    last = function(x, part)
      local logits = model:logits(model.norm(x))
      return nn.softmax_cross_entropy_with_integer_labels(logits, part.labels):mean()
    end}
end

--- The learning rate of a step.
---@param cfg table
---@return Schedule
function M.schedule(cfg)
  return schedule.warmup_cosine {peak_value = cfg.lr, end_value = cfg.min_lr,
    warmup_steps = math.min(cfg.warmup, cfg.steps // 2), decay_steps = cfg.steps}
end

---@param model table
---@param cfg table
---@return Optimizer
function M.optimizer(model, cfg)
  return optim.adamw(model, {lr = M.schedule(cfg), b1 = cfg.beta1, b2 = cfg.beta2, clip = cfg.clip,
    weight_decay = cfg.weight_decay, mask = "matrices"})
end

--- What its attention is, for the share of a device's peak that a run uses.
---@param cfg table
---@return {layers: integer, width: integer, seq: integer}
function M.attention(cfg)
  return {layers = cfg.layers, width = cfg.heads * (head_dim(cfg) or cfg.width // cfg.heads), seq = cfg.seq}
end

M.data, M.score, M.evaluate, M.sample = text.data, text.score, text.evaluate, text.sample

-- ---- layouts ------------------------------------------------------------------------------------------

--- A rule set: these rules, and behind them that everything else, and what the mesh has no axis for, is whole.
local function rules(list)
  for _, name in ipairs {"batch", "tokens", "seq", "embed", "vocab", "heads", "kv_heads", "mlp", "layers"} do
    list[#list + 1] = {name, false}
  end
  return list
end

--- Matrices of fewer elements stay whole over `data` under fsdp, as norms of any size do.
M.min_sharded = 4096
local shard_largest = ml.shard_largest("data", M.min_sharded)

local function shard_matrices(path, param, own)
  if param.role == "kernel" or param.role == "embedding" then return shard_largest(path, param, own) end
end

-- The batch over all devices, whichever axes the mesh has.
local all, data, model = {"batch", {"data", "model"}}, {"batch", "data"}, {"batch", "model"}
-- Each block's matrices split over `model`, the first by columns, the last by rows; embeddings and head whole.
local heads, kv_heads, hidden = {"heads", "model"}, {"kv_heads", "model"}, {"mlp", "model"}
-- Blocks on the places of a pipeline; where it does not divide them the last place passes over what is missing.
local stages = {"layers", "stage", uneven = "pad"}

--- pp, pp_tp, fsdp_pp: blocks over `stage`, embeddings and head whole along it (--layers=scan). dp: parameters
--- replicated. tp: blocks split over `model`. tp_sp: between the blocks' products the tokens are split over `model`, too
--- (sequence parallelism). fsdp, fsdp_tp: each matrix split over `data`, too.
M.rules = {
  dp = rules {all, data, model},
  tp = rules {data, heads, kv_heads, hidden},
  tp_sp = rules {data, heads, kv_heads, hidden, {"tokens", "model"}},
  fsdp = rules {shard_matrices, all, data, model},
  fsdp_tp = rules {shard_matrices, data, heads, kv_heads, hidden},
  pp = rules {stages, data},
  pp_tp = rules {stages, data, heads, kv_heads, hidden},
  fsdp_pp = rules {stages, shard_matrices, data},
}

-- ---- files of others ----------------------------------------------------------------------------------

local SCALING = {factor = "rope_factor", low_freq_factor = "rope_low", high_freq_factor = "rope_high",
  original_max_position_embeddings = "rope_original"}

--- Rotary positions as a config.json has them, of both kinds that are about.
local function read_rope(description, cfg)
  local given = description.rope_parameters or description.rope_scaling
  given = type(given) == "table" and given or {}
  local theta = given.rope_theta or description.rope_theta or 10000
  if type(theta) ~= "number" or theta <= 0 then return "rope_theta is no number above 0" end
  cfg.theta = theta + 0.0
  local kind = given.rope_type or given.type or "default"
  cfg.rope_factor = 0.0
  if kind == "default" then return end
  if kind ~= "llama3" then
    return ("rope_type is '%s'; the recipe llama has default and llama3"):format(kind)
  end
  for key, name in pairs(SCALING) do
    if type(given[key]) ~= "number" then return "rope_type is 'llama3', and there is no " .. key end
    cfg[name] = name == "rope_original" and math.tointeger(given[key]) or given[key] + 0.0
  end
end

local function write_rope(cfg, description)
  description.head_dim = head_dim(cfg) or cfg.width // cfg.heads
  description.rope_theta = cfg.theta
  description.rope_parameters = {rope_type = "default", rope_theta = cfg.theta}
  if cfg.rope_factor == 0 then return end
  description.rope_scaling = {rope_type = "llama3"}
  for key, name in pairs(SCALING) do description.rope_scaling[key] = cfg[name] end
  for key, value in pairs(description.rope_scaling) do description.rope_parameters[key] = value end
end

--- By what each frequency is divided: how GGUF has the scaling.
local function divisors(cfg)
  local list, n = {}, head_dim(cfg) or cfg.width // cfg.heads
  for i = 0, n // 2 - 1 do
    local turns = cfg.theta ^ (-2 * i / n) * cfg.rope_original / (2 * math.pi)
    local keep = math.max(0, math.min(1, (turns - cfg.rope_low) / (cfg.rope_high - cfg.rope_low)))
    list[i + 1] = 1 / (keep + (1 - keep) / cfg.rope_factor)
  end
  return list
end

--- The config that gives the divisors of a GGUF file: the slowest say the factor, and the rest is as Llama 3.1
--- has it or as `changes` say.
local function read_divisors(given, cfg, changes)
  if not given or type(given[1]) ~= "number" then return "rope_freqs.weight is no vector of numbers" end
  cfg.rope_factor = 0.0
  for _, x in ipairs(given) do cfg.rope_factor = math.max(cfg.rope_factor, x) end
  for _, name in ipairs {"rope_factor", "rope_low", "rope_high", "rope_original"} do
    cfg[name] = changes[name] or cfg[name]
  end
  for i, wanted in ipairs(divisors(cfg)) do
    if #given ~= #divisors(cfg) or math.abs(given[i] - wanted) > 1e-3 * wanted then
      return ("rope_freqs.weight is not that of rope_factor = %g, rope_low = %g, rope_high = %g, "
        .. "rope_original = %d; give them in config"):format(cfg.rope_factor, cfg.rope_low, cfg.rope_high,
        cfg.rope_original)
    end
  end
end

local function read_gguf(description, cfg, file)
  local table_of = file.shapes["token_embd.weight"]
  cfg.vocab = table_of and table_of[1] or cfg.vocab
  cfg.tied = file.shapes["output.weight"] == nil
  local turned = description["llama.rope.dimension_count"]
  local size = cfg.head_dim > 0 and cfg.head_dim or cfg.width // cfg.heads
  if turned and turned ~= size then
    return ("llama.rope.dimension_count is %s; of the recipe llama it is a head's size, %d"):format(turned,
      size)
  end
  local scaling = description["llama.rope.scaling.type"] or "none"
  if scaling ~= "none" then
    return ("llama.rope.scaling.type is '%s'; the recipe llama has none"):format(scaling)
  end
  cfg.rope_factor = 0.0
  if file.shapes["rope_freqs.weight"] then
    return read_divisors(file.read "rope_freqs.weight", cfg, file.changes)
  end
end

local function write_gguf(cfg, description)
  local size = head_dim(cfg) or cfg.width // cfg.heads
  description["llama.rope.dimension_count"] = size
  description["llama.attention.key_length"], description["llama.attention.value_length"] = size, size
  description["llama.vocab_size"] = cfg.vocab
  return cfg.rope_factor > 0 and {rope_freqs = ml.tensor(divisors(cfg), "float32")} or nil
end

--- Meta's params.json does not say how wide an MLP is, but how that comes from the width.
local function read_meta(description, cfg)
  local function number(key, default)
    local x = description[key]
    return type(x) == "number" and x > 0 and x or default
  end
  local inner = number("hidden_dim", 8 * cfg.width // 3)
  if not number "hidden_dim" then
    local multiple = number("multiple_of", 256)
    inner = math.floor(number("ffn_dim_multiplier", 1) * inner)
    inner = (inner + multiple - 1) // multiple * multiple
  end
  cfg.hidden = inner
  cfg.rope_factor = description.use_scaled_rope == true and 8.0 or 0.0
end

local function as_heads(cfg) return cfg.heads end

-- A kernel is [in, out], a file's matrix [out, in]; heads have a dim of their own in a kernel.
local T = {"transpose"}
local QUERY, KEY = {"reshape", {"width", "heads", -1}}, {"reshape", {"width", "kv_heads", -1}}
local OUT = {"reshape", {"heads", -1, "width"}}
-- Rotations pair neighbours in files of Meta and in GGUF, and features half a head apart here.
local QUERY_PAIRS, KEY_PAIRS = {"heads", 1, "heads", "interleaved"}, {"heads", 1, "kv_heads", "interleaved"}

--- How files of others describe the model and name its tensors: see ml.train.from_pretrained.
M.formats = {
  stack = "layers",
  numbers = function(cfg) return {width = cfg.width, heads = cfg.heads, kv_heads = cfg.kv_heads} end,
  hf = {
    keys = {
      {"num_hidden_layers", "layers"}, {"hidden_size", "width"}, {"num_attention_heads", "heads"},
      {"num_key_value_heads", "kv_heads", as_heads}, {"head_dim", "head_dim", 0},
      {"intermediate_size", "hidden"}, {"vocab_size", "vocab"}, {"max_position_embeddings", "seq", 2048},
      {"tie_word_embeddings", "tied", false}, {"rms_norm_eps", "epsilon", 1e-6},
    },
    fixed = {model_type = "llama", hidden_act = "silu", attention_bias = false, mlp_bias = false,
      architectures = {"LlamaForCausalLM"}},
    read = read_rope, write = write_rope,
    map = {
      {"model.embed_tokens.weight", "embed.embedding"},
      {"model.layers.{i}.input_layernorm.weight", "layers.{i+1}.norm_1.scale"},
      {"model.layers.{i}.self_attn.q_proj.weight", "layers.{i+1}.attn.query.kernel", T, QUERY},
      {"model.layers.{i}.self_attn.k_proj.weight", "layers.{i+1}.attn.key.kernel", T, KEY},
      {"model.layers.{i}.self_attn.v_proj.weight", "layers.{i+1}.attn.value.kernel", T, KEY},
      {"model.layers.{i}.self_attn.o_proj.weight", "layers.{i+1}.attn.out.kernel", T, OUT},
      {"model.layers.{i}.post_attention_layernorm.weight", "layers.{i+1}.norm_2.scale"},
      {"model.layers.{i}.mlp.gate_proj.weight", "layers.{i+1}.mlp.gate.kernel", T},
      {"model.layers.{i}.mlp.up_proj.weight", "layers.{i+1}.mlp.up.kernel", T},
      {"model.layers.{i}.mlp.down_proj.weight", "layers.{i+1}.mlp.down.kernel", T},
      {"model.norm.weight", "norm.scale"},
      {"lm_head.weight", "head.kernel", T},
      {tie = "lm_head.weight", to = "model.embed_tokens.weight"},
      {ignore = "rotary_emb%.inv_freq$"},
    },
  },
  meta = {
    keys = {
      {"n_layers", "layers"}, {"dim", "width"}, {"n_heads", "heads"}, {"n_kv_heads", "kv_heads", as_heads},
      {"head_dim", "head_dim", 0}, {"vocab_size", "vocab"}, {"max_seq_len", "seq", 2048},
      {"norm_eps", "epsilon", 1e-5}, {"rope_theta", "theta", 10000.0},
    },
    fixed = {}, read = read_meta,
    map = {
      {"tok_embeddings.weight", "embed.embedding"},
      {"layers.{i}.attention_norm.weight", "layers.{i+1}.norm_1.scale"},
      {"layers.{i}.attention.wq.weight", "layers.{i+1}.attn.query.kernel", QUERY_PAIRS, T, QUERY},
      {"layers.{i}.attention.wk.weight", "layers.{i+1}.attn.key.kernel", KEY_PAIRS, T, KEY},
      {"layers.{i}.attention.wv.weight", "layers.{i+1}.attn.value.kernel", T, KEY},
      {"layers.{i}.attention.wo.weight", "layers.{i+1}.attn.out.kernel", T, OUT},
      {"layers.{i}.ffn_norm.weight", "layers.{i+1}.norm_2.scale"},
      {"layers.{i}.feed_forward.w1.weight", "layers.{i+1}.mlp.gate.kernel", T},
      {"layers.{i}.feed_forward.w3.weight", "layers.{i+1}.mlp.up.kernel", T},
      {"layers.{i}.feed_forward.w2.weight", "layers.{i+1}.mlp.down.kernel", T},
      {"norm.weight", "norm.scale"},
      {"output.weight", "head.kernel", T},
      {tie = "output.weight", to = "tok_embeddings.weight"},
      {ignore = "^rope%.freqs$"},
    },
  },
  gguf = {
    keys = {
      {"llama.block_count", "layers"}, {"llama.embedding_length", "width"},
      {"llama.attention.head_count", "heads"}, {"llama.attention.head_count_kv", "kv_heads", as_heads},
      {"llama.attention.key_length", "head_dim", 0}, {"llama.feed_forward_length", "hidden"},
      {"llama.context_length", "seq"}, {"llama.attention.layer_norm_rms_epsilon", "epsilon"},
      {"llama.rope.freq_base", "theta", 10000.0},
    },
    fixed = {["general.architecture"] = "llama"},
    read = read_gguf, write = write_gguf,
    map = {
      {"token_embd.weight", "embed.embedding"},
      {"blk.{i}.attn_norm.weight", "layers.{i+1}.norm_1.scale"},
      {"blk.{i}.attn_q.weight", "layers.{i+1}.attn.query.kernel", QUERY_PAIRS, T, QUERY},
      {"blk.{i}.attn_k.weight", "layers.{i+1}.attn.key.kernel", KEY_PAIRS, T, KEY},
      {"blk.{i}.attn_v.weight", "layers.{i+1}.attn.value.kernel", T, KEY},
      {"blk.{i}.attn_output.weight", "layers.{i+1}.attn.out.kernel", T, OUT},
      {"blk.{i}.ffn_norm.weight", "layers.{i+1}.norm_2.scale"},
      {"blk.{i}.ffn_gate.weight", "layers.{i+1}.mlp.gate.kernel", T},
      {"blk.{i}.ffn_up.weight", "layers.{i+1}.mlp.up.kernel", T},
      {"blk.{i}.ffn_down.weight", "layers.{i+1}.mlp.down.kernel", T},
      {"output_norm.weight", "norm.scale"},
      {"output.weight", "head.kernel", T},
      {tie = "output.weight", to = "token_embd.weight"},
      {"rope_freqs.weight", "rope_freqs"},
      {ignore = "^rope_freqs%.weight$"},
    },
  },
}

--- A model with weights of the family, out of a folder or a GGUF file, and its config: see ml.train.from_pretrained.
function M.from_pretrained(path, how) return ml.train.from_pretrained(M, path, how) end

--- Writes a model as a folder of Hugging Face or a GGUF file: see ml.train.save_pretrained.
function M.save_pretrained(path, llama, config, how)
  return ml.train.save_pretrained(M, path, llama, config, how)
end

ml.train.script(M)
return M
