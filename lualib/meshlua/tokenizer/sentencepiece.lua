-- sentencepiece.lua: BPE models of sentencepiece (`.model`: protobuf), and what GGUF files have of such.
local bytes = require "meshlua.tokenizer.bytes"
local json = require "meshlua.tokenizer.json"
local refuse = require "meshlua.tokenizer.refuse"
local rules = require "meshlua.tokenizer.rules"

local M = {}

-- ---- protobuf ---------------------------------------------------------------------------------------

local function varint(text, at, last)
  local x, shift = 0, 0
  repeat
    if at > last or shift > 63 then refuse.broken("byte %d: a number that does not end", at - 1) end
    local byte = text:byte(at)
    x, shift, at = x | (byte & 127) << shift, shift + 7, at + 1
  until byte < 128
  return x, at
end

--- The fields of a message: number, value (of what has a length: where it begins and ends in the text).
local function fields_of(text, at, last)
  return function()
    if at > last then return nil end
    local begin, value, ending = at, nil, nil
    local tag, behind = varint(text, at, last)
    local kind = tag & 7
    at = behind
    if kind == 0 then
      value, at = varint(text, at, last)
    elseif kind == 1 or kind == 5 then
      value, at = at, at + (kind == 1 and 8 or 4)
      ending = at - 1
    elseif kind == 2 then
      local n
      n, at = varint(text, at, last)
      if n < 0 or n > last - at + 1 then refuse.broken("byte %d: a field is cut short", begin - 1) end
      value, ending, at = at, at + n - 1, at + n
    else
      refuse.broken("byte %d: no field of a message", begin - 1)
    end
    if at > last + 1 then refuse.broken("byte %d: a field that is cut short", begin - 1) end
    return tag >> 3, value, ending, begin
  end
end

local function float(text, at, last)
  if last ~= at + 3 then refuse.broken("byte %d: no float", at - 1) end
  return (string.unpack("<f", text, at))
end

local function read_piece(text, at, last)
  local piece, score, kind = "", 0.0, 1
  for number, value, ending in fields_of(text, at, last) do
    if number == 1 and ending then piece = text:sub(value, ending)
    elseif number == 2 and ending then score = float(text, value, ending)
    elseif number == 3 and not ending then kind = value end
  end
  return piece, score, kind
end

--- The numbers of a message's plain fields, and of what has a length its text.
local function read_plain(text, at, last)
  local t = {}
  for number, value, ending in fields_of(text, at, last) do
    t[number] = ending and text:sub(value, ending) or value
  end
  return t
end

--- Is it the beginning of a model?
function M.is(head) return head:byte(1) == 0x0a end

-- ---- vocabularies -----------------------------------------------------------------------------------

local NORMAL, UNKNOWN, CONTROL, DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6

--- The ranks of scores: the highest first, equal ones alike.
local function ranks_of(scores)
  local list, rank, seen = {}, {}, {}
  for _, score in ipairs(scores) do
    if score ~= score then refuse.broken "a score that is no number" end
    if not seen[score] then
      seen[score] = true
      list[#list + 1] = score
    end
  end
  table.sort(list, function(a, b) return a > b end)
  for i, score in ipairs(list) do rank[score] = i end
  local ranks = {}
  for i, score in ipairs(scores) do ranks[i] = rank[score] end
  return ranks
end

--- The fields of core.tokenizer, of pieces with scores and types.
---@param names string[] from id 0 on
---@param scores number[]
---@param kinds integer[]
---@param prefix boolean is a space put in front?
---@return table
function M.vocabulary(names, scores, kinds, prefix)
  local doc = rules.sentencepiece(prefix)
  local fields = rules.read(doc)
  local pieces, hidden, added, byte_ids, any, taken = {}, {}, {}, {}, false, {}
  for byte = 1, 256 do byte_ids[byte] = -1 end
  fields.names = {}
  for i, name in ipairs(names) do
    local id, kind, text = i - 1, kinds[i], nil
    fields.names[id] = name
    if kind == BYTE then
      local byte = bytes.of_name(name)
      if not byte then refuse.broken("piece %d: %s is no byte", id, name) end
      text, hidden[id], byte_ids[byte + 1], any = string.char(byte), true, id, true
    elseif kind == UNKNOWN or kind == CONTROL or kind == DEFINED then
      text, hidden[id] = name, true
      if kind == UNKNOWN then fields.unknown_ids = {id} end
      added[#added + 1] = {id, special = kind ~= DEFINED, never = kind == UNKNOWN}
    elseif kind == NORMAL then
      text, hidden[id] = name:gsub(bytes.MARK, " "), name:find(" ", 1, true) ~= nil or nil
      if name == "" then refuse.broken("piece %d is empty", id) end
      if taken[text] and not hidden[id] then
        refuse.broken("pieces %d and %d are both %s", taken[text], id, name)
      end
      taken[text] = id
    elseif kind == UNUSED then
      refuse.unsupported("piece %d: %s is of type UNUSED", id, name)
    else
      refuse.broken("piece %d: %s is of type %d", id, name, kind)
    end
    pieces[i] = text
  end
  fields.pieces, fields.hidden, fields.added, fields.ranks = pieces, hidden, added, ranks_of(scores)
  fields.bytes, fields.fuse_unknown, fields.doc = any and byte_ids or nil, true, doc
  fields.prefix = prefix and "text" or nil
  return json.finish(fields)
end

local function check(trainer, normalizer)
  if (trainer[3] or 1) ~= 2 then
    refuse.unsupported("trainer_spec.model_type is %d; 2 (BPE) is read", trainer[3] or 1)
  end
  if normalizer[2] and normalizer[2] ~= "" then
    refuse.unsupported("normalizer_spec.precompiled_charsmap: %s", normalizer[1] or "?")
  end
  if (normalizer[4] or 1) ~= 0 then refuse.unsupported "normalizer_spec.remove_extra_whitespaces is set" end
  if (normalizer[5] or 1) == 0 then refuse.unsupported "normalizer_spec.escape_whitespaces is not set" end
  if (trainer[24] or 0) ~= 0 then refuse.unsupported "trainer_spec.treat_whitespace_as_suffix is set" end
end

--- The fields of core.tokenizer.
---@param text string the file
---@return table
function M.fields(text)
  local names, scores, kinds, trainer, normalizer = {}, {}, {}, {}, {}
  for number, value, ending, begin in fields_of(text, 1, #text) do
    if number <= 5 and not ending then refuse.broken("byte %d: no part of a model", begin - 1) end
    if number == 1 then
      local n = #names + 1
      names[n], scores[n], kinds[n] = read_piece(text, value, ending)
      if not utf8.len(names[n]) then refuse.broken("byte %d: piece %d is not UTF-8", begin - 1, n - 1) end
    elseif number == 2 then trainer = read_plain(text, value, ending)
    elseif number == 3 then normalizer = read_plain(text, value, ending) end
  end
  if #names == 0 then refuse.broken "a model without pieces" end
  check(trainer, normalizer)
  local fields = M.vocabulary(names, scores, kinds, (normalizer[3] or 1) ~= 0)
  for id, name in pairs(fields.names) do
    if kinds[id + 1] == CONTROL and name == "<s>" then fields.bos = id end
    if kinds[id + 1] == CONTROL and name == "</s>" then fields.eos = id end
  end
  return fields
end

return M
