-- learn.lua: byte-level vocabularies learnt from texts, numbered as GPT-2's: bytes in the order of their characters,
-- then what was merged, in order, then special tokens.
local bytes = require "meshlua.tokenizer.bytes"
local core = require "meshlua.core"
local json = require "meshlua.tokenizer.json"
local lib = require "meshlua.lib"
local refuse = require "meshlua.tokenizer.refuse"
local rules = require "meshlua.tokenizer.rules"

local M = {}

local BYTES, MOST = 256, 1 << 22

--- Pieces by id, from the merges: left, right, into, ...
local function pieces_of(order, merges)
  local pieces = {}
  for i, byte in ipairs(order) do pieces[i] = byte end
  for i = 1, #merges, 3 do
    local into = merges[i + 2] + 1
    pieces[into] = pieces[into] or pieces[merges[i] + 1] .. pieces[merges[i + 1] + 1]
  end
  return pieces
end

--- The fields of core.tokenizer, learnt from what fn gives to its argument, text by text.
---@param fn fun(add: fun(text: string), is_local: boolean) is_local: may texts be cut before spaces?
---@param options {size: integer, pattern: string, special: string[]}
---@return table
function M.fields(fn, options)
  local doc, special = rules.byte_level {options.pattern or rules.GPT2}, options.special or {"<|endoftext|>"}
  local size = options.size
  if size < BYTES + #special or size > MOST then
    lib.raise("E_VALUE", "learn_tokenizer: size = %d; from %d (each byte, and %s) to %d", size,
      BYTES + #special, lib.count(#special, "special token"), MOST)
  end
  local fields = rules.read(doc)
  local learner, message, code = core.learner(fields)
  if not learner then error({message = message, code = code}, 0) end
  fn(function(text)
    local ok, why, kind = learner:add(text)
    if not ok then error({message = why, code = kind}, 0) end
  end, learner:is_local())
  local order, ids = bytes.in_order(), {}
  for i, byte in ipairs(order) do ids[byte:byte() + 1] = i - 1 end
  local merges = learner:merges(ids, size - #special)
  fields.doc, fields.merges, fields.pieces = doc, merges, pieces_of(order, merges)
  fields.names, fields.hidden, fields.added = {}, {}, {}
  for i, name in ipairs(special) do
    local id = #fields.pieces
    fields.pieces[id + 1], fields.names[id], fields.hidden[id] = name, name, true
    fields.added[i] = {id, special = true}
  end
  if special[1] == "<|endoftext|>" then fields.bos = fields.added[1][1] end
  return json.finish(fields)
end

--- Of a list of texts: nil, message, code where the pattern does not compile.
---@param texts string|string[]
---@param options table
---@return Tokenizer?, string? message, string? code
function M.learn(texts, options)
  local make = require("meshlua.tokenizer").make
  return refuse.caught(function()
    return make(M.fields(function(add)
      for _, text in ipairs(type(texts) == "string" and {texts} or texts) do add(text) end
    end, options))
  end, "learn_tokenizer")
end

return M
