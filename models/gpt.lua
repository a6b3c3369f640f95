-- gpt.lua: a recipe: GPT-2's architecture (Radford et al. 2019), by default byte-level and small. A recipe
-- says what to train and in which layouts; models/train.lua trains it.
local ml = require "meshlua"

local nn, optim, schedule, text = ml.nn, ml.optim, ml.schedule, ml.train.text

local M = {name = "gpt", layout = {mesh = "data:4,model:2", rules = "tp"}}

--- What can be set, with defaults: the model's sizes, how it is trained, what is said at the end.
M.config = {
  layers = 4, width = 128, heads = 8, seq = 64, vocab = 256, dropout = 0.0, dtype = "float32", precision = "",
  batch = 16, steps = 3000, lr = 3e-3, min_lr = 3e-5, warmup = 100, beta1 = 0.9, beta2 = 0.99,
  weight_decay = 0.1, clip = 1.0, scan = false,
  sample = 1000, temperature = 0.5,
}

--- What each of them is.
M.help = {
  layers = "blocks of attention and MLP; or scan, unrolled: how they are planned (unrolled, by default)",
  width = "features of a token",
  heads = "of attention; they divide width", seq = "tokens of context", vocab = "ids are 0 .. vocab - 1",
  dropout = "share of features dropped while training", dtype = "of parameters",
  precision = "of arithmetic, where it is not dtype: bf16, f16 (with a loss scale)",
  batch = "texts in a step", steps = "updates of the parameters",
  lr = "learning rate, at its peak", min_lr = "at the end", warmup = "steps up to the peak",
  beta1 = "Adam's memory of gradients", beta2 = "and of their squares",
  weight_decay = "of matrices, times the learning rate", clip = "largest global norm of gradients",
  sample = "bytes to write at the end", temperature = "of the sample: below 1 the likely is likelier",
}

--- What they may be.
M.range = {
  layers = {least = 1}, width = {least = 1}, heads = {least = 1}, seq = {least = 1}, vocab = {least = 1},
  dropout = {least = 0, most = 1}, dtype = {words = {"float32", "float64", "bfloat16", "float16"}},
  lr = {least = 0}, min_lr = {least = 0}, warmup = {least = 0}, beta1 = {least = 0, below = 1},
  beta2 = {least = 0, below = 1}, weight_decay = {least = 0}, clip = {least = 0}, sample = {least = 0},
  temperature = {above = 0},
}

--- Configs of the published models.
M.sizes = {}
for name, size in pairs {gpt2 = {12, 768, 12}, ["gpt2-medium"] = {24, 1024, 16},
    ["gpt2-large"] = {36, 1280, 20}, ["gpt2-xl"] = {48, 1600, 25}} do
  M.sizes[name] = {layers = size[1], width = size[2], heads = size[3], seq = 1024, vocab = 50257}
end

-- ---- the model ----------------------------------------------------------------------------------------

--- What a layer needs to make its Params.
local function options(cfg, rngs, more)
  more.rngs, more.param_dtype, more.dtype = rngs, cfg.dtype, ml.train.precision(cfg)
  return more
end

--- Normal with the variance scale / fan_in: it suits any width (GPT-2's 0.02 is made for 768 and more).
local function normal(scale) return nn.initializers.variance_scaling(scale, "fan_in", "normal") end

local EMBEDDING = nn.initializers.normal(0.02)

local MLP = nn.module "MLP"

function MLP:init(cfg, rngs, residual)
  self.up = nn.Linear(cfg.width, 4 * cfg.width, options(cfg, rngs, {axes = {"embed", "mlp"},
    kernel_init = normal(1.0)}))
  self.down = nn.Linear(4 * cfg.width, cfg.width, options(cfg, rngs, {axes = {"mlp", "embed"},
    kernel_init = residual}))
end

function MLP:__call(x)
  return self.down(nn.gelu(self.up(x)):constrain {"batch", "seq", "mlp"})
end

local Block = nn.module "Block"

function Block:init(cfg, rngs)
  -- The sum of 2 * layers residual branches starts with the variance of one (GPT-2).
  local residual = normal(1 / (2 * cfg.layers))
  self.ln_1 = nn.LayerNorm(cfg.width, options(cfg, rngs, {axes = {"embed"}, epsilon = 1e-5}))
  self.attn = nn.MultiHeadAttention(cfg.width, cfg.heads, options(cfg, rngs, {axes = {"embed", "heads"},
    causal = true, kernel_init = normal(1.0), out_kernel_init = residual}))
  self.ln_2 = nn.LayerNorm(cfg.width, options(cfg, rngs, {axes = {"embed"}, epsilon = 1e-5}))
  self.mlp = MLP(cfg, rngs, residual)
  self.dropout = nn.Dropout(cfg.dropout)
end

--- keys: of its two dropouts, where rngs does not give them.
function Block:__call(x, rngs, past, keys)
  local function dropped(y, i)
    if keys then return nn.dropout(y, self.dropout.rate, keys:at(i)) end
    return self.dropout(y, rngs)
  end
  local y = self.attn(self.ln_1(x), {cache = past and past.attn})
  x = x + dropped(y, 1):constrain {"batch", "tokens", "embed"}
  return x + dropped(self.mlp(self.ln_2(x)), 2):constrain {"batch", "tokens", "embed"}
end

local GPT = nn.module "GPT"

function GPT:init(cfg, rngs)
  self.wte = nn.Embed(cfg.vocab, cfg.width, options(cfg, rngs, {axes = {"vocab", "embed"},
    embedding_init = EMBEDDING}))
  self.wpe = nn.Param(EMBEDDING(rngs.params(), {cfg.seq, cfg.width}, cfg.dtype),
    {axes = {"seq", "embed"}, role = "embedding"})
  self.context, self.vocab, self.dtype = cfg.seq, cfg.vocab, ml.train.precision(cfg)
  self.dropout = nn.Dropout(cfg.dropout)
  self.scan, self.count = cfg.scan, cfg.layers
  if cfg.scan then
    self.h = nn.stack(cfg.layers, function() return Block(cfg, rngs) end)
  else
    self.h = {}
    for i = 1, cfg.layers do self.h[i] = Block(cfg, rngs) end
  end
  self.ln_f = nn.LayerNorm(cfg.width, options(cfg, rngs, {axes = {"embed"}, epsilon = 1e-5}))
end

--- Blocks as a loop, each with the keys that it would draw by itself.
local function through_stack(self, x, rngs)
  local dropout, keys = self.h.dropout, nil
  if dropout.training and dropout.rate > 0 and dropout.rate < 1 then
    keys = {}
    for i = 1, 2 * self.count do keys[i] = dropout:key(rngs) end
    keys = ml.stack(keys, 1):reshape(self.count, 2, 2)
  end
  return (nn.scan({block = self.h, keys = keys}, x, function(layer, carry)
    return layer.block(carry, rngs, nil, layer.keys)
  end))
end

--- See ml.cache: each block has its own, even where they are a stack.
function GPT:new_cache(make, walk)
  local h, one = {}, self.scan and nn.layer(self.h, 1)
  for i = 1, self.count do h[i] = walk(one or self.h[i], make) end
  return {h = h}
end

--- What the first block reads.
function GPT:embedded(ids, rngs, past)
  local positions = past and self.wpe:take(past.positions, 1, "clip") or self.wpe:slice({1, ids.shape[2]})
  local x = self.wte(past and past.ids or ids) + positions:astype(self.dtype)
  return self.dropout(x:constrain {"batch", "tokens", "embed"}, rngs)
end

--- The embedding table is the head, too.
function GPT:logits(x) return self.wte:attend(x):constrain {"batch", "tokens", "vocab"} end

--- Logits for the token behind each position.
---@param ids Tensor int32 [batch, T], T at most cfg.seq
---@param rngs Rngs? keys for dropout while training
---@param cache Cache? of what came before (ml.cache)
---@return Tensor [batch, T, vocab]; with a cache [batch, 1, vocab], behind the last token of each row
function GPT:__call(ids, rngs, cache)
  local past = cache and cache:open(ids)
  local x = self:embedded(ids, rngs, past)
  if self.scan and not past then
    x = through_stack(self, x, rngs)
  else
    for i = 1, self.count do
      x = (self.scan and nn.layer(self.h, i) or self.h[i])(x, rngs, past and past.h[i])
    end
  end
  x = self.ln_f(x)
  if past then
    past:close()
    x = past:last(x)
  end
  return self:logits(x)
end

---@param cfg table as M.config
---@param rngs Rngs
---@return table model
function M.build(cfg, rngs) return GPT(cfg, rngs) end

--- The mean loss in nats per token.
---@param model table
---@param ids Tensor int32 [batch, T]
---@param labels Tensor int32 [batch, T] the token behind each position
---@param rngs Rngs? for dropout
---@return Tensor scalar
function M.loss(model, ids, labels, rngs)
  return nn.softmax_cross_entropy_with_integer_labels(model(ids, rngs), labels):mean()
end

--- The model's parts for nn.pipeline; nil where its blocks are no stack.
function M.pipeline(model)
  if not model.scan then return nil end
  return {stack = model.h, rngs = model.dropout.rate > 0,
    first = function(part, rngs) return model:embedded(part.inputs, rngs) end,
    last = function(x, part)
      local logits = model:logits(model.ln_f(x))
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
function M.attention(cfg) return {layers = cfg.layers, width = cfg.width, seq = cfg.seq} end

M.data, M.score, M.evaluate, M.sample = text.data, text.score, text.evaluate, text.sample

-- ---- layouts ------------------------------------------------------------------------------------------

--- A rule set: these rules, and behind them that everything else, and what the mesh has no axis for, is whole.
local function rules(list)
  for _, name in ipairs {"batch", "tokens", "seq", "embed", "vocab", "heads", "mlp", "layers"} do
    list[#list + 1] = {name, false}
  end
  return list
end

--- Matrices of fewer elements stay whole over `data` under fsdp, as norms and biases of any size do: what each
--- device would save by a share of them is little beside an exchange for each.
M.min_sharded = 4096
local shard_largest = ml.shard_largest("data", M.min_sharded)

local function shard_matrices(path, param, own)
  if param.role == "kernel" or param.role == "embedding" then return shard_largest(path, param, own) end
end

-- The batch over all devices, whichever axes the mesh has.
local all, data, model = {"batch", {"data", "model"}}, {"batch", "data"}, {"batch", "model"}
-- Each block's matrices split over `model`, the first by columns, the second by rows; embeddings whole.
local heads, hidden = {"heads", "model"}, {"mlp", "model"}
-- Blocks on the places of a pipeline; where it does not divide them the last place passes over what is missing.
local stages = {"layers", "stage", uneven = "pad"}

--- pp, pp_tp, fsdp_pp: blocks over `stage`, embeddings whole along it (--layers=scan). dp: parameters replicated.
--- tp: blocks split over `model`. tp_sp: between the blocks' products the tokens are split over `model`, too (sequence
--- parallelism, Korthikanti et al. 2022). fsdp, fsdp_tp: each matrix split over `data`, too.
M.rules = {
  dp = rules {all, data, model},
  tp = rules {data, heads, hidden},
  tp_sp = rules {data, heads, hidden, {"tokens", "model"}},
  fsdp = rules {shard_matrices, all, data, model},
  fsdp_tp = rules {shard_matrices, data, heads, hidden},
  pp = rules {stages, data},
  pp_tp = rules {stages, data, heads, hidden},
  fsdp_pp = rules {stages, shard_matrices, data},
}

-- ---- files of others ----------------------------------------------------------------------------------

local function four_widths(key)
  return function(description, cfg)
    local inner = description[key]
    if math.type(inner) == "integer" and inner ~= 4 * cfg.width then
      return ("%s is %d; of the recipe gpt it is 4 times the width, %d"):format(key, inner, 4 * cfg.width)
    end
  end
end

local check_inner = four_widths "gpt2.feed_forward_length"

local function read_gguf(description, cfg, file)
  local table_of = file.shapes["token_embd.weight"]
  cfg.vocab = table_of and table_of[1] or cfg.vocab
  return check_inner(description, cfg)
end

local function write_gguf(cfg, description)
  description["gpt2.feed_forward_length"], description["gpt2.vocab_size"] = 4 * cfg.width, cfg.vocab
end

local function write_hf(cfg, description)
  description.resid_pdrop, description.embd_pdrop, description.attn_pdrop = cfg.dropout, cfg.dropout, 0
end

-- Query, key and value are one matrix in files; heads have a dim of their own in a kernel. Hugging Face has GPT-2's
-- matrices as [in, out], GGUF as [out, in].
local T = {"transpose"}
local HEADS, BIAS, OUT = {"reshape", {"width", "heads", -1}}, {"reshape", {"heads", -1}},
  {"reshape", {"heads", -1, "width"}}
local function part(dim, k) return {"split", dim, 3, k} end

--- How files of others describe the model and name its tensors: see ml.train.from_pretrained.
M.formats = {
  stack = "h",
  numbers = function(cfg) return {width = cfg.width, heads = cfg.heads} end,
  hf = {
    keys = {
      {"n_layer", "layers"}, {"n_embd", "width"}, {"n_head", "heads"}, {"n_positions", "seq"},
      {"vocab_size", "vocab"},
    },
    fixed = {model_type = "gpt2", activation_function = "gelu_new", layer_norm_epsilon = 1e-5,
      scale_attn_weights = true, scale_attn_by_inverse_layer_idx = false, tie_word_embeddings = true,
      architectures = {"GPT2LMHeadModel"}},
    read = four_widths "n_inner", write = write_hf,
    map = {
      {"wte.weight", "wte.embedding"}, {"wpe.weight", "wpe"},
      {"h.{i}.ln_1.weight", "h.{i+1}.ln_1.scale"}, {"h.{i}.ln_1.bias", "h.{i+1}.ln_1.bias"},
      {"h.{i}.attn.c_attn.weight", "h.{i+1}.attn.query.kernel", part(2, 1), HEADS},
      {"h.{i}.attn.c_attn.weight", "h.{i+1}.attn.key.kernel", part(2, 2), HEADS},
      {"h.{i}.attn.c_attn.weight", "h.{i+1}.attn.value.kernel", part(2, 3), HEADS},
      {"h.{i}.attn.c_attn.bias", "h.{i+1}.attn.query.bias", part(1, 1), BIAS},
      {"h.{i}.attn.c_attn.bias", "h.{i+1}.attn.key.bias", part(1, 2), BIAS},
      {"h.{i}.attn.c_attn.bias", "h.{i+1}.attn.value.bias", part(1, 3), BIAS},
      {"h.{i}.attn.c_proj.weight", "h.{i+1}.attn.out.kernel", OUT},
      {"h.{i}.attn.c_proj.bias", "h.{i+1}.attn.out.bias"},
      {"h.{i}.ln_2.weight", "h.{i+1}.ln_2.scale"}, {"h.{i}.ln_2.bias", "h.{i+1}.ln_2.bias"},
      {"h.{i}.mlp.c_fc.weight", "h.{i+1}.mlp.up.kernel"}, {"h.{i}.mlp.c_fc.bias", "h.{i+1}.mlp.up.bias"},
      {"h.{i}.mlp.c_proj.weight", "h.{i+1}.mlp.down.kernel"},
      {"h.{i}.mlp.c_proj.bias", "h.{i+1}.mlp.down.bias"},
      {"ln_f.weight", "ln_f.scale"}, {"ln_f.bias", "ln_f.bias"},
      {tie = "lm_head.weight", to = "wte.weight"}, {prefix = "transformer."},
      {ignore = "^h%.%d+%.attn%.bias$"}, {ignore = "%.attn%.masked_bias$"},
    },
  },
  gguf = {
    keys = {
      {"gpt2.block_count", "layers"}, {"gpt2.embedding_length", "width"},
      {"gpt2.attention.head_count", "heads"}, {"gpt2.context_length", "seq"},
    },
    fixed = {["general.architecture"] = "gpt2", ["gpt2.attention.layer_norm_epsilon"] = 1e-5},
    read = read_gguf, write = write_gguf,
    map = {
      {"token_embd.weight", "wte.embedding"}, {"position_embd.weight", "wpe"},
      {"blk.{i}.attn_norm.weight", "h.{i+1}.ln_1.scale"}, {"blk.{i}.attn_norm.bias", "h.{i+1}.ln_1.bias"},
      {"blk.{i}.attn_qkv.weight", "h.{i+1}.attn.query.kernel", T, part(2, 1), HEADS},
      {"blk.{i}.attn_qkv.weight", "h.{i+1}.attn.key.kernel", T, part(2, 2), HEADS},
      {"blk.{i}.attn_qkv.weight", "h.{i+1}.attn.value.kernel", T, part(2, 3), HEADS},
      {"blk.{i}.attn_qkv.bias", "h.{i+1}.attn.query.bias", part(1, 1), BIAS},
      {"blk.{i}.attn_qkv.bias", "h.{i+1}.attn.key.bias", part(1, 2), BIAS},
      {"blk.{i}.attn_qkv.bias", "h.{i+1}.attn.value.bias", part(1, 3), BIAS},
      {"blk.{i}.attn_output.weight", "h.{i+1}.attn.out.kernel", T, OUT},
      {"blk.{i}.attn_output.bias", "h.{i+1}.attn.out.bias"},
      {"blk.{i}.ffn_norm.weight", "h.{i+1}.ln_2.scale"}, {"blk.{i}.ffn_norm.bias", "h.{i+1}.ln_2.bias"},
      {"blk.{i}.ffn_up.weight", "h.{i+1}.mlp.up.kernel", T}, {"blk.{i}.ffn_up.bias", "h.{i+1}.mlp.up.bias"},
      {"blk.{i}.ffn_down.weight", "h.{i+1}.mlp.down.kernel", T},
      {"blk.{i}.ffn_down.bias", "h.{i+1}.mlp.down.bias"},
      {"output_norm.weight", "ln_f.scale"}, {"output_norm.bias", "ln_f.bias"},
      {tie = "output.weight", to = "token_embd.weight"},
    },
  },
}

--- A model with GPT-2's weights, out of a folder or a GGUF file, and its config: see ml.train.from_pretrained.
function M.from_pretrained(path, how) return ml.train.from_pretrained(M, path, how) end

--- Writes a model as a folder of Hugging Face or a GGUF file: see ml.train.save_pretrained.
function M.save_pretrained(path, gpt, config, how)
  return ml.train.save_pretrained(M, path, gpt, config, how)
end

ml.train.script(M)
return M
