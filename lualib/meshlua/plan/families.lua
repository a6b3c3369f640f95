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

--- What the configs of most families name alike, with the defaults of the format.
local COMMON = {
  {"layers", "num_hidden_layers", "n_layer", "n_layers"},
  {"width", "hidden_size", "n_embd", "d_model", "n_embed"},
  {"heads", "num_attention_heads", "n_head", "n_heads"},
  {"vocab", "vocab_size"},
  {"kv_heads", "num_key_value_heads", default = as_heads},
  {"head_dim", "head_dim", default = per_head},
  {"hidden", "intermediate_size", "n_inner", default = quarter},
  {"seq", "max_position_embeddings", "n_positions", "max_seq_len", default = 2048},
  {"epsilon", "rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", default = 1e-5},
  {"theta", "rope_theta", "rotary_emb_base", default = 10000.0},
  {"rotary", "partial_rotary_factor", "rotary_pct", default = 1.0},
  {"tied", "tie_word_embeddings", default = false},
}

---@class FamilyRow
---@field has table what each model of the family has, over decoder.lua's defaults
---@field fields table[]? fields of its own: {config key, field, ..., default =}
---@field as fun(cfg: table, given: table)? what fields decide beside numbers
---@field notes string[]? how what is planned differs from the family's arithmetic

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

local WINDOW = "attention is planned over the whole sequence: its window is not"
local EXPERTS = "tokens go to their experts by products with one-hot tensors, with room for 1.25 of an "
  .. "even share"
local ALIBI = "ALiBi's addition to the scores is not planned"

---@type table<string, FamilyRow>
M.families = {
  gpt2 = {has = plain {positions = "learned", tied = true}},
  llama = {has = gated {}, as = function(cfg, given)
    cfg.attention_bias, cfg.out_bias = given.attention_bias == true, given.attention_bias == true
    cfg.mlp_bias = given.mlp_bias == true
  end},
  mistral = {has = gated {}, notes = {WINDOW}},
  mixtral = {has = gated {}, fields = {{"experts", "num_local_experts", default = 8},
    {"top_k", "num_experts_per_tok", default = 2}}, notes = {EXPERTS}},
  qwen2 = {has = gated {attention_bias = true}},
  qwen3 = {has = gated {qk_norm = true}, as = function(cfg, given)
    cfg.attention_bias, cfg.out_bias = given.attention_bias == true, given.attention_bias == true
  end},
  qwen3_moe = {has = gated {qk_norm = true}, fields = {{"experts", "num_experts", default = 128},
    {"top_k", "num_experts_per_tok", default = 8}, {"hidden", "moe_intermediate_size", default = 768}},
    notes = {EXPERTS}},
  gemma = {has = gated {activation = "gelu", embed_scale = true, tied = true}},
  gemma2 = {has = gated {activation = "gelu", embed_scale = true, tied = true, norms_behind = true},
    notes = {WINDOW, "soft caps of scores and logits are not planned"}},
  phi = {has = plain {parallel = 1, head_bias = true}},
  phi3 = {has = gated {}, notes = {WINDOW}},
  gpt_neox = {has = plain {parallel = 2}, as = function(cfg, given)
    if given.use_parallel_residual == false then cfg.parallel = 0 end
  end},
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
  end, notes = {ALIBI}},
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

--- The fields that are given, without those that are null; the family's name, and its row. Of a model that reads more
--- than text those of its text.
local function family_of(given)
  local known = {}
  for key, value in pairs(given) do
    if value ~= null then known[key] = value end
  end
  local kind = type(known.model_type) == "string" and known.model_type:lower():gsub("_text$", "") or nil
  local family = kind and M.families[kind]
  if not family and type(known.text_config) == "table" then return family_of(known.text_config) end
  return known, kind, family
end

--- The decoder's config that a config.json describes.
---@param given table what the file holds
---@return table? config as decoder.lua's
---@return string message what is not planned as the family has it; or what is wrong
function M.config(given)
  local kind, family
  given, kind, family = family_of(given)
  if not family then
    local names = lib.names(M.families)
    local near = kind and lib.nearest(kind, names)
    return nil, lib.format("model_type is %s; known are %s%s", shown(given.model_type),
      table.concat(names, ", "), near and "; the nearest is " .. near or "")
  end
  local cfg = setmetatable({}, {__index = decoder.config})
  for key, value in pairs(family.has) do cfg[key] = value end
  local fault = read_fields(cfg, given, COMMON) or read_fields(cfg, given, family.fields or {})
  if fault then return nil, fault end
  if family.as then family.as(cfg, given) end
  fault = clash(cfg)
  if fault then return nil, fault end
  return cfg, table.concat(family.notes or {}, "; ")
end

return M
