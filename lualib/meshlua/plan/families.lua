-- families.lua: what the config.json of a model says, for each family of decoders that is known: which of its
-- fields is which number of decoder.lua's config, and what the family always has.
local core = require "meshlua.core"
local decoder = require "models.decoder"
local lib = require "meshlua.lib"

local M = {}

-- ---- the rows -------------------------------------------------------------------------------------------

--- A field may have several names; a number is a default; a function takes what is known so far.
local function quarter(cfg) return not cfg.gated and 4 * cfg.width or nil end
local function per_head(cfg) return cfg.width // cfg.heads end
local function as_heads(cfg) return cfg.heads end

--- What the configs of most families name alike, with the defaults of the format. What is `idle` is looked at, and
--- changes nothing of a plan.
local COMMON = {
  {"layers", "num_hidden_layers", "n_layer", "n_layers"},
  {"width", "hidden_size", "n_embd", "d_model", "n_embed"},
  {"heads", "num_attention_heads", "n_head", "n_heads"},
  {"vocab", "vocab_size"},
  {"kv_heads", "num_key_value_heads", default = as_heads},
  {"head_dim", "head_dim", default = per_head},
  {"hidden", "intermediate_size", "n_inner", default = quarter},
  {"seq", "max_position_embeddings", "n_positions", "max_seq_len", default = 2048},
  {"epsilon", "rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", default = 1e-5,
    idle = true},
  {"theta", "rope_theta", "rotary_emb_base", default = 10000.0, idle = true},
  {"rotary", "partial_rotary_factor", "rotary_pct", default = 1.0},
  {"tied", "tie_word_embeddings", default = false},
}

--- Names of activations, and which of nn it is.
local ACTIVATIONS = {silu = "silu", swish = "silu", gelu = "gelu", gelu_new = "gelu", gelu_fast = "gelu",
  gelu_python = "gelu", gelu_pytorch_tanh = "gelu", relu = "relu"}

---@class FamilyRow
---@field has table what each model of the family has, over decoder.lua's defaults
---@field fields table[]? fields of its own: {config key, field, ..., default =}
---@field as fun(cfg: table, given: table, note: fun(text: string))? what fields decide beside numbers
---@field reads string[]? the fields that `as` reads
---@field notes string[]? how what is planned differs from the family's arithmetic
---@field sizes integer[]? layers, width, heads, kv_heads, hidden, vocab of a text_config that leaves them out

local function with(base, more)
  for key, value in pairs(base) do
    if more[key] == nil then more[key] = value end
  end
  return more
end

local function gated(more) return with({norm = "rms", gated = true, activation = "silu"}, more) end

local function plain(more)
  return with({norm = "layer", activation = "gelu", attention_bias = true, out_bias = true, mlp_bias = true},
    more)
end

local EXPERTS = "tokens go to their experts by products with one-hot tensors, with room for 1.25 of an "
  .. "even share"
local ALIBI = "ALiBi's addition to the scores is not planned"

--- The window of attention that a config names, or that its family has.
local function windowed(default)
  return function(_, given, note)
    local window = given.sliding_window
    if window == nil then window = default end
    if math.type(window) ~= "integer" or given.use_sliding_window == false then return end
    note(("attention is planned over the whole sequence: its window of %d tokens is not"):format(window))
  end
end

--- Biases of attention where the config wants them.
local function biased(cfg, given)
  cfg.attention_bias, cfg.out_bias = given.attention_bias == true, given.attention_bias == true
end

local function both(first, second)
  return function(...)
    first(...)
    second(...)
  end
end

local BIASED, WINDOWED = "attention_bias", {"sliding_window", "use_sliding_window"}

--- What is planned of experts where some layers have none.
local function sparse(_, given, note)
  local dense = type(given.mlp_only_layers) == "table" and #given.mlp_only_layers or 0
  local every = math.tointeger(given.decoder_sparse_step) or 1
  if dense > 0 or every > 1 then note "each layer is planned with experts, and some have none" end
end

---@type table<string, FamilyRow>
M.families = {
  gpt2 = {has = plain {positions = "learned", tied = true}},
  llama = {has = gated {}, reads = {BIASED, "mlp_bias"}, as = both(biased, function(cfg, given)
    cfg.mlp_bias = given.mlp_bias == true
  end), sizes = {32, 4096, 32, 32, 11008, 32000}},
  mistral = {has = gated {kv_heads = 8}, as = windowed(4096), reads = WINDOWED,
    sizes = {32, 4096, 32, 8, 14336, 32000}},
  mixtral = {has = gated {kv_heads = 8}, fields = {{"experts", "num_local_experts", default = 8},
    {"top_k", "num_experts_per_tok", default = 2}}, notes = {EXPERTS}, as = windowed(), reads = WINDOWED},
  qwen2 = {has = gated {attention_bias = true}, as = function(cfg, given, note)
    if given.use_sliding_window then windowed()(cfg, given, note) end
  end, reads = WINDOWED, sizes = {32, 4096, 32, 32, 22016, 151936}},
  qwen3 = {has = gated {qk_norm = true, head_dim = 128}, as = biased, reads = {BIASED},
    sizes = {32, 4096, 32, 32, 22016, 151936}},
  qwen3_moe = {has = gated {qk_norm = true}, fields = {{"experts", "num_experts", default = 128},
    {"top_k", "num_experts_per_tok", default = 8}, {"hidden", "moe_intermediate_size", default = 768}},
    as = both(biased, sparse), reads = {BIASED, "mlp_only_layers", "decoder_sparse_step"},
    notes = {EXPERTS}},
  gemma = {has = gated {activation = "gelu", embed_scale = true, tied = true, head_dim = 256}, as = biased,
    reads = {BIASED}, sizes = {28, 3072, 16, 16, 24576, 256000}},
  gemma2 = {has = gated {activation = "gelu", embed_scale = true, tied = true, norms_behind = true,
    head_dim = 256}, as = both(biased, windowed(4096)),
    notes = {"soft caps of scores and logits are not planned"},
    reads = {BIASED, "sliding_window", "attn_logit_softcapping", "final_logit_softcapping"},
    sizes = {26, 2304, 8, 4, 9216, 256000}},
  phi = {has = plain {parallel = 1, head_bias = true, rotary = 0.5}, as = function(cfg, given)
    cfg.qk_norm = given.qk_layernorm == true
  end, reads = {"qk_layernorm"}},
  phi3 = {has = gated {}, as = windowed(), reads = WINDOWED},
  gpt_neox = {has = plain {parallel = 2, rotary = 0.25}, as = function(cfg, given)
    if given.use_parallel_residual == false then cfg.parallel = 0 end
    if given.attention_bias == false then cfg.attention_bias, cfg.out_bias = false, false end
  end, reads = {"use_parallel_residual", BIASED}},
  mpt = {has = plain {positions = "alibi", attention_bias = false, out_bias = false, mlp_bias = false,
    norm_bias = false, tied = true}, as = function(cfg, given)
    local attention = type(given.attn_config) == "table" and given.attn_config or {}
    local ratio = given.expansion_ratio or 4
    cfg.hidden = type(ratio) == "number" and math.tointeger(ratio * cfg.width) or 0
    if attention.alibi == false then cfg.positions = "learned" end
    cfg.kv_heads = attention.attn_type == "multiquery_attention" and 1 or attention.kv_n_heads or cfg.kv_heads
    if given.no_bias == false then
      cfg.attention_bias, cfg.out_bias, cfg.mlp_bias, cfg.norm_bias = true, true, true, true
    end
  end, reads = {"attn_config", "expansion_ratio", "no_bias"}, notes = {ALIBI}},
  bloom = {has = plain {positions = "alibi", embed_norm = true, tied = true}, notes = {ALIBI}},
}

-- ---- reading --------------------------------------------------------------------------------------------

local null = core.null

--- What a field must be, by its default: integers, unless that is a float or a boolean.
local function expects(row)
  if math.type(row.default) == "float" then
    return "a number above 0", function(x) return type(x) == "number" and x > 0 and x < math.huge end
  end
  if type(row.default) == "boolean" then
    return "true or false", function(x) return type(x) == "boolean" end
  end
  return "a whole number from 1 to 2^31", function(x) return math.type(x) == "integer" and x >= 1
    and x <= 1 << 31 end
end

--- A value of a file, for messages.
local function shown(value)
  if type(value) == "string" then return "'" .. value .. "'" end
  return type(value) == "table" and "a table" or value == nil and "missing" or value
end

--- Puts the fields of rows into cfg. Returns what is wrong with one, or nil.
local function read_fields(cfg, given, rows)
  for _, row in ipairs(rows) do
    local value, name = nil, row[2]
    for i = 2, #row do
      local x = given[row[i]]
      if value == nil and x ~= nil and x ~= null then value, name = x, row[i] end
    end
    if value == nil then value = rawget(cfg, row[1]) end
    if value == nil then value = row.default end
    if type(value) == "function" then value = value(cfg) end
    if value == nil then return ("it has no %s, %s"):format(name, (expects(row))) end
    local wanted, fine = expects(row)
    if not fine(value) then
      return lib.format("%s is %s; it must be %s", name, shown(value), wanted)
    end
    cfg[row[1]] = value
  end
end

local SIZES = {"layers", "width", "heads", "kv_heads", "head_dim", "hidden", "vocab", "seq"}

--- Numbers that do not go together: a message, or nil.
local function clash(cfg)
  for _, name in ipairs(SIZES) do
    if math.type(cfg[name]) ~= "integer" or cfg[name] < 1 then
      return lib.format("%s comes to %s; it must be a whole number from 1 on", name, shown(cfg[name]))
    end
  end
  if cfg.rotary > 1 then return lib.format("a share of %s of a head's features is turned", cfg.rotary) end
  if cfg.heads % cfg.kv_heads ~= 0 then
    return ("%d key heads for %d heads; the first must divide the second"):format(cfg.kv_heads, cfg.heads)
  end
  if cfg.top_k > math.max(cfg.experts, 1) and cfg.experts > 0 then
    return ("%d experts for each token, of %d"):format(cfg.top_k, cfg.experts)
  end
end

local TEXT = {"text_config", "llm_config", "language_config"} -- where models that read more than text keep its

--- The fields that are given, without those that are null, and with those of rope_parameters beside them; the
--- family's name, and its row. Of a model that reads more than text those of its text: then `of` is its type.
local function family_of(given, of)
  local known = {}
  for key, value in pairs(given) do
    if value ~= null and type(key) == "string" then known[key] = value end
  end
  if given.sliding_window == null then known.sliding_window = false end -- there is none, whatever its family has
  local rope = type(known.rope_parameters) == "table" and known.rope_parameters or {}
  if type(rope.full_attention) == "table" then rope = rope.full_attention end
  for _, name in ipairs {"rope_theta", "partial_rotary_factor"} do
    if known[name] == nil and rope[name] ~= null then known[name] = rope[name] end
  end
  local kind = type(known.model_type) == "string" and known.model_type:lower():gsub("_text$", "") or nil
  local family = kind and M.families[kind]
  for _, name in ipairs(family and {} or TEXT) do
    if type(known[name]) == "table" then return family_of(known[name], of or kind or "the model") end
  end
  return known, kind, family, of
end

--- The names of the fields that a family's config is read by: those that change a plan, or all.
local function names_of(family, all)
  local set = {model_type = true}
  for _, rows in ipairs {COMMON, family.fields or {}} do
    for _, row in ipairs(rows) do
      for i = 2, row.idle and not all and 1 or #row do set[row[i]] = true end
    end
  end
  for _, name in ipairs(family.reads or {}) do set[name] = true end
  for _, name in ipairs {"hidden_act", "hidden_activation", "activation_function"} do set[name] = true end
  return set
end

--- What says who made a file, or how its text is cut.
local function is_label(name)
  return name:find "^_" or name:find "_token_id$" or name:find "version$" or name:find "dtype$"
    or name == "architectures" or name == "auto_map" or name == "use_cache"
end

--- The fields of a config that change nothing of its plan.
local function idle_of(given, family)
  local names, list = names_of(family), {}
  for _, name in ipairs(lib.names(given)) do
    if not names[name] and not is_label(name) then list[#list + 1] = name end
  end
  return list
end

--- Why a config of no known family is none: the family that is nearest by its name, or by the fields that both have,
--- and which fields it has not.
local function unknown(given, kind)
  local names = lib.names(M.families)
  local text = ("model_type is %s; known are %s"):format(shown(given.model_type), table.concat(names, ", "))
  local near, most = kind and lib.nearest(kind, names), 0
  for _, name in ipairs(near and {} or names) do
    local shared, set = 0, names_of(M.families[name], true)
    for field in pairs(given) do shared = shared + (set[field] and field ~= "model_type" and 1 or 0) end
    if kind and kind:find(name, 1, true) == 1 then shared = shared + 100 end
    if shared > most then near, most = name, shared end
  end
  if not near then return text end
  local set, strange = names_of(M.families[near], true), {}
  for _, field in ipairs(lib.names(given)) do
    if not set[field] and not is_label(field) then strange[#strange + 1] = field end
  end
  return ('%s; the nearest is %s%s; with "model_type": "%s" it is planned as such'):format(text, near,
    #strange > 0 and ", which has no " .. lib.some(strange, 6) or "", near)
end

--- The activation that a config names.
local function activation_of(cfg, given, note)
  local name = given.hidden_activation or given.hidden_act or given.activation_function
  if name == nil then return end
  cfg.activation = ACTIVATIONS[name] or cfg.activation
  if not ACTIVATIONS[name] then
    note(lib.format("the activation %s is planned as %s", shown(name), cfg.activation))
  end
end

local SIZED = {"layers", "width", "heads", "kv_heads", "hidden", "vocab"}

--- The sizes that a family has where a text_config leaves them out.
local function fill(cfg, given, family, note)
  local silent = {}
  for i, key in ipairs(family.sizes and SIZED or {}) do
    for _, row in ipairs(COMMON) do
      local value = row[1] == key and family.sizes[i]
      for k = 2, value and #row or 1 do value = given[row[k]] == nil and value or nil end
      if value then cfg[key], silent[#silent + 1] = value, ("%s %d"):format(row[2], value) end
    end
  end
  if #silent > 0 then note("the file leaves out what the family has: " .. table.concat(silent, ", ")) end
end

--- The decoder's config that a config.json describes.
---@param given table what the file holds
---@return table? config as decoder.lua's
---@return string message what is not planned as the family has it; or what is wrong
---@return string[]? idle the fields that change nothing of the plan
function M.config(given)
  local kind, family, of
  given, kind, family, of = family_of(given)
  if not family then return nil, unknown(given, kind) end
  local cfg, notes = setmetatable({}, {__index = decoder.config}), {}
  local function note(text) notes[#notes + 1] = text end
  for key, value in pairs(family.has) do cfg[key] = value end
  if of then
    note(("of %s the text model (%s) is planned alone"):format(of, kind))
    fill(cfg, given, family, note)
  end
  local fault = read_fields(cfg, given, COMMON) or read_fields(cfg, given, family.fields or {})
  if fault then return nil, fault end
  activation_of(cfg, given, note)
  if family.as then family.as(cfg, given, note) end
  fault = clash(cfg)
  if fault then return nil, fault end
  table.move(family.notes or {}, 1, #(family.notes or {}), #notes + 1, notes)
  return cfg, table.concat(notes, "; "), idle_of(given, family)
end

return M
