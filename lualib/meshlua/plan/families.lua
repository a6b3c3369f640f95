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
---@field as (fun(cfg: table, given: table, note: fun(text: string)): string?)? what fields decide beside numbers; or
--- what is wrong with them
---@field reads table<string, string>? the fields that `as` reads, and what each is: see KINDS
---@field window integer? of attention, where the file says nothing
---@field switched boolean? is there a window only where use_sliding_window is true?
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

--- Biases of attention where the config wants them.
local function biased(cfg, given)
  cfg.attention_bias, cfg.out_bias = given.attention_bias == true, given.attention_bias == true
end

--- What is planned of experts where some layers have none.
local function sparse(cfg, given, note)
  biased(cfg, given)
  if #(given.mlp_only_layers or {}) > 0 or (given.decoder_sparse_step or 1) > 1 then
    note "each layer is planned with experts, and some have none"
  end
end

local function blocks_of_mpt(cfg, given)
  local attention, ratio = given.attn_config or {}, given.expansion_ratio or 4
  local hidden = math.tointeger(ratio * cfg.width)
  if not hidden or hidden > 1 << 31 then
    return ("expansion_ratio is %s; times d_model, %d, it must be a whole number"):format(ratio, cfg.width)
  end
  cfg.hidden = hidden
  if attention.alibi == false then cfg.positions = "learned" end
  cfg.kv_heads = attention.attn_type == "multiquery_attention" and 1 or attention.kv_n_heads or cfg.kv_heads
  if given.no_bias == false then
    cfg.attention_bias, cfg.out_bias, cfg.mlp_bias, cfg.norm_bias = true, true, true, true
  end
end

local BIASED = {attention_bias = "flag"}
local WINDOWED = {sliding_window = "window", use_sliding_window = "flag"}

---@type table<string, FamilyRow>
M.families = {
  gpt2 = {has = plain {positions = "learned", tied = true}},
  llama = {has = gated {}, reads = with(BIASED, {mlp_bias = "flag"}), as = function(cfg, given)
    biased(cfg, given)
    cfg.mlp_bias = given.mlp_bias == true
  end, sizes = {32, 4096, 32, 32, 11008, 32000}},
  mistral = {has = gated {kv_heads = 8}, window = 4096, reads = WINDOWED,
    sizes = {32, 4096, 32, 8, 14336, 32000}},
  mixtral = {has = gated {kv_heads = 8}, fields = {{"experts", "num_local_experts", default = 8},
    {"top_k", "num_experts_per_tok", default = 2}}, notes = {EXPERTS}, reads = WINDOWED},
  qwen2 = {has = gated {attention_bias = true}, switched = true, reads = WINDOWED,
    sizes = {32, 4096, 32, 32, 22016, 151936}},
  qwen3 = {has = gated {qk_norm = true, head_dim = 128}, as = biased, reads = BIASED,
    sizes = {32, 4096, 32, 32, 22016, 151936}},
  qwen3_moe = {has = gated {qk_norm = true}, fields = {{"experts", "num_experts", default = 128},
    {"top_k", "num_experts_per_tok", default = 8}, {"hidden", "moe_intermediate_size", default = 768}},
    as = sparse, reads = with(BIASED, {mlp_only_layers = "list", decoder_sparse_step = "size"}),
    notes = {EXPERTS}},
  gemma = {has = gated {activation = "gelu", embed_scale = true, tied = true, head_dim = 256}, as = biased,
    reads = BIASED, sizes = {28, 3072, 16, 16, 24576, 256000}},
  gemma2 = {has = gated {activation = "gelu", embed_scale = true, tied = true, norms_behind = true,
    head_dim = 256}, as = biased, window = 4096,
    notes = {"soft caps of scores and logits are not planned"},
    reads = with(BIASED, {sliding_window = "window", attn_logit_softcapping = "number",
      final_logit_softcapping = "number"}),
    sizes = {26, 2304, 8, 4, 9216, 256000}},
  phi = {has = plain {parallel = 1, head_bias = true, rotary = 0.5}, as = function(cfg, given)
    cfg.qk_norm = given.qk_layernorm == true
  end, reads = {qk_layernorm = "flag"}},
  phi3 = {has = gated {}, reads = WINDOWED},
  gpt_neox = {has = plain {parallel = 2, rotary = 0.25}, as = function(cfg, given)
    if given.use_parallel_residual == false then cfg.parallel = 0 end
    if given.attention_bias == false then cfg.attention_bias, cfg.out_bias = false, false end
  end, reads = with(BIASED, {use_parallel_residual = "flag"})},
  mpt = {has = plain {positions = "alibi", attention_bias = false, out_bias = false, mlp_bias = false,
    norm_bias = false, tied = true}, as = blocks_of_mpt, reads = {attn_config = "object",
    ["attn_config.alibi"] = "flag", ["attn_config.attn_type"] = "text", ["attn_config.kv_n_heads"] = "size",
    expansion_ratio = "number", no_bias = "flag"}},
  bloom = {has = plain {positions = "alibi", embed_norm = true, tied = true}},
}

-- ---- reading --------------------------------------------------------------------------------------------

local null = core.null

local function is_size(x) return math.type(x) == "integer" and x >= 1 and x <= 1 << 31 end
local function of_type(name) return function(x) return type(x) == name end end

--- What a field may be, in words, and whether a value is that.
local KINDS = {
  size = {"a whole number from 1 to 2^31", is_size},
  window = {"a whole number from 1 to 2^31, or null", function(x) return x == false or is_size(x) end},
  number = {"a number above 0", function(x) return type(x) == "number" and x > 0 and x < math.huge end},
  flag = {"true or false", of_type "boolean"},
  text = {"a text", of_type "string"},
  object = {"an object", of_type "table"},
  list = {"a list", function(x) return type(x) == "table" and (#x > 0 or next(x) == nil) end},
}

--- The kind of a row's field, by its default: integers, unless that is a float or a boolean.
local function kind_of(row)
  return math.type(row.default) == "float" and "number" or type(row.default) == "boolean" and "flag" or "size"
end

--- A value of a file, for messages.
local function shown(value)
  if type(value) == "string" then return "'" .. value .. "'" end
  return type(value) == "table" and "a table" or value == nil and "missing" or value
end

--- Is a value what such a field may be, as the file has it or computed from others? A message, or nil.
local function fault_of(name, value, kind, computed)
  local wanted, fine = KINDS[kind][1], KINDS[kind][2]
  if fine(value) then return end
  return lib.format("%s %s %s; it must be %s", name, computed and "comes to" or "is", shown(value), wanted)
end

--- The rows of a family: its own in place of the common ones.
local function rows_of(family)
  local own, rows = {}, {}
  for _, row in ipairs(family.fields or {}) do own[row[1]] = row end
  for _, row in ipairs(COMMON) do
    if not own[row[1]] then rows[#rows + 1] = row end
  end
  return table.move(family.fields or {}, 1, #(family.fields or {}), #rows + 1, rows)
end

--- Puts the fields of rows into cfg. Returns what is wrong with one, or nil.
local function read_fields(cfg, given, rows)
  for _, row in ipairs(rows) do
    local value, name = nil, row[2]
    for i = 2, #row do
      local x = given[row[i]]
      if value == nil and x ~= nil then value, name = x, row[i] end
    end
    if value == nil then value = rawget(cfg, row[1]) end
    if value == nil then value = row.default end
    local computed = type(value) == "function"
    if computed then value = value(cfg) end
    if value == nil then return ("it has no %s, %s"):format(name, KINDS[kind_of(row)][1]) end
    local fault = fault_of(name, value, kind_of(row), computed)
    if fault then return fault end
    cfg[row[1]] = value
  end
end

local ACTIVATION = {"hidden_activation", "hidden_act", "activation_function"}

--- What is wrong with a field that is read beside those of rows, or nil.
local function check_read(given, family)
  for _, name in ipairs(lib.names(family.reads or {})) do
    local outer, inner = name:match "^(.-)%.(.*)$"
    local value = given[outer or name]
    if outer and value ~= nil then value = value[inner] end -- an object: its name comes first
    local fault = value ~= nil and fault_of(name, value, family.reads[name])
    if fault then return fault end
  end
  for _, name in ipairs(ACTIVATION) do
    local fault = given[name] ~= nil and fault_of(name, given[name], "text")
    if fault then return fault end
  end
end

--- Numbers that do not go together: a message, or nil.
local function clash(cfg)
  if cfg.rotary > 1 then return lib.format("a share of %s of a head's features is turned", cfg.rotary) end
  if cfg.heads % cfg.kv_heads ~= 0 then
    return ("%d key heads for %d heads; the first must divide the second"):format(cfg.kv_heads, cfg.heads)
  end
  if cfg.top_k > math.max(cfg.experts, 1) and cfg.experts > 0 then
    return ("%d experts for each token, of %d"):format(cfg.top_k, cfg.experts)
  end
end

local TEXT = {"text_config", "llm_config", "language_config"} -- where models that read more than text keep its

--- A value of a file without what is null in it.
local function without_null(value)
  if type(value) ~= "table" then return value end
  local copy = {}
  for key, x in pairs(value) do
    if x ~= null then copy[key] = without_null(x) end
  end
  return copy
end

--- Puts fields of rope_parameters beside the others; where one changes a plan, what else is there is named by itself.
local function take_rope(known)
  local rope = type(known.rope_parameters) == "table" and known.rope_parameters or {}
  if type(rope.full_attention) == "table" then rope = rope.full_attention end
  local turned = known.partial_rotary_factor == nil and rope.partial_rotary_factor ~= nil
  for _, name in ipairs {"rope_theta", "partial_rotary_factor"} do
    if known[name] == nil then known[name] = rope[name] end
  end
  if not turned then return end
  known.rope_parameters = nil
  rope.rope_theta, rope.partial_rotary_factor = nil, nil
  for key, value in pairs(rope) do known["rope_parameters." .. key] = value end
end

--- The fields that are given, without those that are null, and with those of rope_parameters beside them; the
--- family's name, and its row. Of a model that reads more than text those of its text: then `of` is its type.
local function family_of(given, of)
  local known = {}
  for key, value in pairs(given) do
    if type(key) == "string" and value ~= null then known[key] = without_null(value) end
  end
  if given.sliding_window == null then known.sliding_window = false end -- there is none, whatever its family has
  take_rope(known)
  local kind = type(known.model_type) == "string" and known.model_type:lower():gsub("_text$", "") or nil
  local family = kind and M.families[kind]
  for _, name in ipairs(family and {} or TEXT) do
    if type(known[name]) == "table" then return family_of(given[name], of or kind or "the model") end
  end
  return known, kind, family, of
end

--- The names of the fields that a family's config is read by: those that change a plan, or all.
local function names_of(family, all)
  local set = {model_type = true}
  for _, row in ipairs(rows_of(family)) do
    for i = 2, row.idle and not all and 1 or #row do set[row[i]] = true end
  end
  for name in pairs(family.reads or {}) do set[name] = true end
  for _, name in ipairs(ACTIVATION) do set[name] = true end
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

--- The window of attention that a file names, or that its family has: a number of tokens, or nil.
local function window_of(given, family)
  local window, on = given.sliding_window, given.use_sliding_window
  if not (family.reads and family.reads.sliding_window) or on == false or family.switched and not on then
    return nil
  end
  if window == nil then window = family.window end
  return window or nil
end

--- The decoder's config that a config.json describes.
---@param given table what the file holds
---@return table? config as decoder.lua's
---@return string message what is not planned as the family has it; or what is wrong
---@return string[]? idle the fields that change nothing of the plan
---@return integer? window tokens that attention reaches back, where it does not reach all: that is not planned
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
  local fault = read_fields(cfg, given, rows_of(family)) or check_read(given, family)
    or family.as and family.as(cfg, given, note) or clash(cfg)
  if fault then return nil, fault end
  activation_of(cfg, given, note)
  table.move(family.notes or {}, 1, #(family.notes or {}), #notes + 1, notes)
  return cfg, table.concat(notes, "; "), idle_of(given, family), window_of(given, family)
end

return M
