-- gguf.lua: the tokenizer in a GGUF file's metadata.
local core = require "meshlua.core"
local json = require "meshlua.tokenizer.json"
local refuse = require "meshlua.tokenizer.refuse"
local rules = require "meshlua.tokenizer.rules"
local sentencepiece = require "meshlua.tokenizer.sentencepiece"

local M = {}

local ANY_NUMBER = [[\p{N}]]

--- By tokenizer.ggml.pre: patterns, one after the other.
local patterns = {}
for names, list in pairs {
  ["gpt-2 phi-2 jina-es jina-de mpt olmo jais trillion granite-docling roberta-bpe"] = {rules.GPT2},
  ["smollm starcoder refact command-r codeshell exaone minerva-7b"] = {ANY_NUMBER, rules.GPT2},
  ["llama-bpe llama3 llama-v3 falcon3 dbrx smaug-bpe"] = {rules.cl100k "{1,3}"},
  ["qwen2 deepseek-r1-qwen"] = {rules.cl100k ""},
} do
  for name in names:gmatch "%S+" do patterns[name] = list end
end
local whole = {["llama-bpe"] = true, llama3 = true, ["llama-v3"] = true, falcon3 = true}

local normalized = {qwen2 = true, ["deepseek-r1-qwen"] = true}

local CONTROL, DEFINED, UNKNOWN = 3, 4, 2

local function key(name) return "tokenizer.ggml." .. name end

local function list_of(meta, name, kind, n)
  local list = meta[key(name)]
  if type(list) ~= "table" then refuse.broken("%s is missing", key(name)) end
  if n and #list ~= n then refuse.broken("%s has %d items, of tokens there are %d", key(name), #list, n) end
  for i, x in ipairs(list) do
    if type(x) ~= kind then refuse.broken("%s[%d] is no %s", key(name), i - 1, kind) end
  end
  return list
end

local function byte_level(meta, names, kinds)
  local pre = meta[key "pre"]
  local list = patterns[pre]
  if not list then refuse.unsupported("%s is %s, which is not known", key "pre", tostring(pre)) end
  local doc, vocab = rules.byte_level(list), {}
  if normalized[pre] then doc.normalizer = {type = "NFC"} end
  for i, name in ipairs(names) do
    if vocab[name] then refuse.broken("%s[%d] is %s, as is [%d]", key "tokens", i - 1, name, vocab[name]) end
    vocab[name] = i - 1
  end
  doc.model = {vocab = vocab, merges = list_of(meta, "merges", "string"), ignore_merges = whole[pre]}
  doc.added_tokens = {}
  for i, kind in ipairs(kinds) do
    if kind == CONTROL or kind == DEFINED or kind == UNKNOWN then
      table.insert(doc.added_tokens, {id = i - 1, content = names[i], special = kind ~= DEFINED})
    end
  end
  return json.fields(doc)
end

--- An id that the metadata names.
local function id_of(meta, name, n)
  local id = meta[key(name)]
  if id == nil then return nil end
  if math.type(id) ~= "integer" or id < 0 or id >= n then
    refuse.broken("%s is %s; there are %d tokens", key(name), tostring(id), n)
  end
  return id
end

--- The fields of core.tokenizer.
---@param path string
---@return table
function M.fields(path)
  local catalog <close> = core.catalog(path) or refuse.unread "it cannot be read as a GGUF file"
  local meta = catalog:metadata()
  local kind, fields = meta[key "model"], nil
  if kind == nil then refuse.unsupported("it has no tokenizer: %s is missing", key "model") end
  local names = list_of(meta, "tokens", "string")
  local n = #names
  local kinds = list_of(meta, "token_type", "number", n)
  if kind == "gpt2" then
    fields = byte_level(meta, names, kinds)
  elseif kind == "llama" then
    if meta[key "remove_extra_whitespaces"] == true or meta[key "precompiled_charsmap"] then
      refuse.unsupported("%s: a normalizer", key "remove_extra_whitespaces")
    end
    local prefix = meta[key "add_space_prefix"] ~= false
    for _, name in ipairs(names) do
      if not utf8.len(name) then refuse.broken("%s: a token that is not UTF-8", key "tokens") end
    end
    fields = sentencepiece.vocabulary(names, list_of(meta, "scores", "number", n), kinds, prefix)
    if prefix then fields.prefix = "part" end
  else
    refuse.unsupported("%s is %s; gpt2 and llama are read", key "model", tostring(kind))
  end
  fields.bos, fields.eos = id_of(meta, "bos_token_id", n), id_of(meta, "eos_token_id", n)
  local adds_bos = meta[key "add_bos_token"]
  if adds_bos == nil then adds_bos = kind == "llama" or whole[meta[key "pre"]] end
  fields.before = adds_bos and fields.bos and {fields.bos} or nil
  fields.after = meta[key "add_eos_token"] == true and fields.eos and {fields.eos} or nil
  fields.stops = {id_of(meta, "eot_token_id", n), id_of(meta, "eom_token_id", n)}
  fields.chat_template = meta["tokenizer.chat_template"]
  return fields
end

return M
