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
  dtype = "float32", precision = "",
  batch = 16, steps = 3000, lr = 3e-3, min_lr = 3e-5, warmup = 100, beta1 = 0.9, beta2 = 0.99,
  weight_decay = 0.1, clip = 1.0,
  sample = 1000, temperature = 0.5,
}

--- What each of them is.
M.help = {
  layers = "blocks of attention and MLP", width = "features of a token", heads = "of queries",
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

local function size(layers, width, heads, kv_heads, hidden, vocab, seq, more)
  local cfg = {layers = layers, width = width, heads = heads, kv_heads = kv_heads, hidden = hidden,
    vocab = vocab, seq = seq}
  for key, value in pairs(more or {}) do cfg[key] = value end
  return cfg
end

--- Configs of known models.
M.sizes = {
  ["llama-2-7b"] = size(32, 4096, 32, 32, 11008, 32000, 4096),
  ["llama-2-13b"] = size(40, 5120, 40, 40, 13824, 32000, 4096),
  ["llama-2-70b"] = size(80, 8192, 64, 8, 28672, 32000, 4096),
  ["llama-3-8b"] = size(32, 4096, 32, 8, 14336, 128256, 8192, {theta = 5e5}),
  ["llama-3-70b"] = size(80, 8192, 64, 8, 28672, 128256, 8192, {theta = 5e5}),
  ["llama-3.1-8b"] = size(32, 4096, 32, 8, 14336, 128256, 131072, {theta = 5e5, rope_factor = 8.0}),
  ["llama-3.2-1b"] = size(16, 2048, 32, 8, 8192, 128256, 131072,
    {theta = 5e5, rope_factor = 32.0, tied = true}),
  ["llama-3.2-3b"] = size(28, 3072, 24, 8, 8192, 128256, 131072,
    {theta = 5e5, rope_factor = 32.0, tied = true}),
  ["tinyllama-1.1b"] = size(22, 2048, 32, 4, 5632, 32000, 2048),
  ["smollm-135m"] = size(30, 576, 9, 3, 1536, 49152, 2048, {tied = true}),
  ["smollm2-135m"] = size(30, 576, 9, 3, 1536, 49152, 8192, {theta = 1e5, tied = true}),
  ["smollm2-360m"] = size(32, 960, 15, 5, 2560, 49152, 8192, {theta = 1e5, tied = true}),
  ["smollm2-1.7b"] = size(24, 2048, 32, 32, 8192, 49152, 8192, {theta = 1.3e5, tied = true}),
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

function Block:__call(x)
  x = x + self.attn(self.norm_1(x)):constrain {"batch", "tokens", "embed"}
  return x + self.mlp(self.norm_2(x)):constrain {"batch", "tokens", "embed"}
end

local Llama = nn.module "Llama"

function Llama:init(cfg, rngs)
  self.embed = nn.Embed(cfg.vocab, cfg.width, {rngs = rngs, param_dtype = cfg.dtype,
    dtype = ml.train.precision(cfg), axes = {"vocab", "embed"},
    embedding_init = nn.initializers.normal(0.02)})
  self.layers = {}
  for i = 1, cfg.layers do self.layers[i] = Block(cfg, rngs) end
  self.norm = Norm(cfg, rngs)
  if not cfg.tied then
    self.head = nn.Linear(cfg.width, cfg.vocab, options(cfg, rngs, {axes = {"embed", "vocab"},
      kernel_init = nn.initializers.normal(0.02)}))
  end
end

--- Logits for the token behind each position.
---@param ids Tensor int32 [batch, T]
---@return Tensor [batch, T, vocab]
function Llama:__call(ids)
  local x = self.embed(ids):constrain {"batch", "tokens", "embed"}
  for _, block in ipairs(self.layers) do x = block(x) end
  x = self.norm(x)
  local logits = self.head and self.head(x) or self.embed:attend(x)
  return logits:constrain {"batch", "tokens", "vocab"}
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

M.data, M.evaluate, M.sample = text.data, text.evaluate, text.sample

-- ---- layouts ------------------------------------------------------------------------------------------

--- A rule set: these rules, and behind them that everything else, and what the mesh has no axis for, is whole.
local function rules(list)
  for _, name in ipairs {"batch", "tokens", "seq", "embed", "vocab", "heads", "kv_heads", "mlp"} do
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

--- dp: parameters replicated. tp: blocks split over `model`. tp_sp: between the blocks' products the tokens
--- are split over `model`, too (sequence parallelism). fsdp, fsdp_tp: each matrix split over `data`, too.
M.rules = {
  dp = rules {all, data, model},
  tp = rules {data, heads, kv_heads, hidden},
  tp_sp = rules {data, heads, kv_heads, hidden, {"tokens", "model"}},
  fsdp = rules {shard_matrices, all, data, model},
  fsdp_tp = rules {shard_matrices, data, heads, kv_heads, hidden},
}

ml.train.script(M)
return M
