-- json.lua: tokenizer.json, as Hugging Face's tokenizers writes it, and vocab.json with merges.txt: the subset that
-- byte-level and sentencepiece's BPE need. Anything else is refused by the name of its field.
local bytes = require "meshlua.tokenizer.bytes"
local core = require "meshlua.core"
local refuse = require "meshlua.tokenizer.refuse"
local rules = require "meshlua.tokenizer.rules"

local M = {}

local function null(x) return x == nil or x == core.null end
local function set(words)
  local t = {}
  for word in words:gmatch "%S+" do t[word] = true end
  return t
end

local TOP = set([[version truncation padding added_tokens normalizer pre_tokenizer post_processor decoder
  model]])
local MODEL = set([[type dropout unk_token continuing_subword_prefix end_of_word_suffix fuse_unk byte_fallback
  ignore_merges vocab merges]])
local ADDED = set "id content single_word lstrip rstrip normalized special"

-- So many ids may a vocabulary lack between those it has: memory is taken for all up to the largest.
local HOLES = 1 << 16

--- Raises unless x is an id, and small enough.
local function check_id(id, count, place, ...)
  if math.type(id) ~= "integer" or id < 0 or id >= count + HOLES then
    refuse.broken(place .. " is no id that a vocabulary of %d can have", ...)
  end
end

-- ---- pieces -----------------------------------------------------------------------------------------

--- vocab: text -> id, as pieces by id (from 0), in bytes; false where there is none.
local function read_vocab(fields, vocab)
  if type(vocab) ~= "table" then refuse.broken "model.vocab is no table" end
  local count, names, largest = 0, {}, -1
  for _ in pairs(vocab) do count = count + 1 end
  for text, id in pairs(vocab) do
    if type(text) ~= "string" then refuse.broken "model.vocab is no object" end
    check_id(id, count, "model.vocab: %s: %s", text, tostring(id), count)
    if names[id] then refuse.broken("model.vocab: %s and %s have the same id, %d", names[id], text, id) end
    names[id], largest = text, math.max(largest, id)
  end
  if count == 0 then refuse.broken "model.vocab is empty" end
  fields.count, fields.largest, fields.names = count, largest, names
end

local function make_pieces(fields)
  local pieces, hidden, taken = {}, {}, {}
  for id = 0, fields.largest do
    local name, text = fields.names[id], false
    if name and fields.byte_level then
      text = bytes.of_chars(name)
      if not text then text, hidden[id] = name, true end
    elseif name then
      local byte = bytes.of_name(name)
      if byte then text, hidden[id] = string.char(byte), true
      else
        text = name:gsub(bytes.MARK, " ")
        if text ~= name and name:find(" ", 1, true) or text == name and name:find(" ", 1, true) then
          hidden[id] = true -- no text has a space by then
        end
      end
    end
    if text and not hidden[id] then
      if taken[text] then hidden[id] = true end
      taken[text] = true
    end
    pieces[id + 1] = text
  end
  fields.pieces, fields.hidden = pieces, hidden
end

--- added_tokens: cut out of texts, by their content.
local function read_added(fields, list)
  fields.added = {}
  if null(list) then return end
  if type(list) ~= "table" then refuse.broken "added_tokens is no list" end
  for i, token in ipairs(list) do
    local place = ("added_tokens[%d]"):format(i - 1)
    if type(token) ~= "table" or type(token.content) ~= "string" or token.content == "" then
      refuse.broken("%s has no content", place)
    end
    for key in pairs(token) do
      if not ADDED[key] then refuse.unsupported("%s.%s is not known here", place, key) end
    end
    local id, content = token.id, token.content
    check_id(id, fields.count + #list, place .. ".id: %s", tostring(id), fields.count + #list)
    local name = fields.names[id]
    if name and name ~= content and fields.pieces[id + 1] ~= content then
      refuse.broken("%s: id %d is %s, in the vocabulary %s", place, id, content, name)
    end
    for hole = fields.largest + 1, id do fields.pieces[hole + 1] = false end
    fields.largest = math.max(fields.largest, id)
    if fields.pieces[id + 1] ~= content then fields.hidden[id] = true end
    if not name then fields.hidden[id] = true end
    fields.pieces[id + 1], fields.names[id] = content, content
    fields.added[i] = {id, special = token.special == true, lstrip = token.lstrip == true,
      rstrip = token.rstrip == true, single_word = token.single_word == true,
      normalized = token.normalized == true}
  end
end

-- ---- merges -----------------------------------------------------------------------------------------

--- Pairs of texts, as left, right, into by ids.
---@param vocab table<string, integer>
---@param next fun(): string|table|nil, string pairs and their places
local function read_merges(vocab, next)
  local merges, n = {}, 0
  for pair, place in next do
    local left, right
    if type(pair) == "string" then left, right = pair:match "^([^ ]+) ([^ ]+)$"
    elseif type(pair) == "table" then left, right = pair[1], pair[2] end
    if type(left) ~= "string" or type(right) ~= "string" then
      refuse.broken("%s is no pair of pieces", place())
    end
    local a, b, into = vocab[left], vocab[right], vocab[left .. right]
    if not (a and b and into) then
      local missing = not a and left or not b and right or left .. right
      refuse.broken("%s: %s is not in the vocabulary", place(), missing)
    end
    merges[n + 1], merges[n + 2], merges[n + 3] = a, b, into
    n = n + 3
  end
  return merges
end

local function listed(list)
  if type(list) ~= "table" then refuse.broken "model.merges is no list" end
  local i = 0
  return function()
    i = i + 1
    return list[i], function() return ("model.merges[%d]"):format(i - 1) end
  end
end

local function lines(text)
  local line, next = 0, text:gmatch "([^\n]*)\n?"
  local function place() return ("line %d"):format(line) end
  return function()
    for one in next do
      line = line + 1
      one = one:gsub("\r$", "")
      if one ~= "" and not (line == 1 and one:find "^#version") then return one, place end
    end
  end
end

-- ---- whole files ------------------------------------------------------------------------------------

--- Is no space behind anything else in a piece? Then merging never crosses the beginning of a run of spaces.
local function may_cut(fields)
  for id, piece in ipairs(fields.pieces) do
    if piece and not fields.hidden[id - 1] and piece:find "[^ ] " then return false end
  end
  return not fields.whole
end

--- What is left to say once the vocabulary and rules are there.
---@param fields table
function M.finish(fields)
  if fields.characters and #fields.split == 0 and may_cut(fields) then
    fields.split = {{kind = "spaces", behavior = "contiguous"}}
  end
  return fields
end

local function byte_ids(vocab)
  local ids, any = {}, false
  for byte = 0, 255 do
    ids[byte + 1] = vocab[bytes.name(byte)] or -1
    any = any or ids[byte + 1] >= 0
  end
  return any and ids or nil
end

local function check_model(model)
  if type(model) ~= "table" then refuse.broken "model is no object" end
  if not null(model.type) and model.type ~= "BPE" then
    refuse.unsupported("model.type is %s; BPE is read", tostring(model.type))
  end
  for key in pairs(model) do
    if not MODEL[key] then refuse.unsupported("model.%s is not known here", key) end
  end
  for _, key in ipairs {"continuing_subword_prefix", "end_of_word_suffix"} do
    if not null(model[key]) and model[key] ~= "" then
      refuse.unsupported("model.%s is %s", key, tostring(model[key]))
    end
  end
  if not null(model.dropout) and model.dropout ~= 0 then refuse.unsupported "model.dropout is not null" end
end

--- The fields of core.tokenizer from a tokenizer.json as a table.
---@param doc table
---@param merges_of (fun(vocab: table): integer[])? default: those of the model
---@return table
function M.fields(doc, merges_of)
  for key, value in pairs(doc) do
    if not TOP[key] and not null(value) then refuse.unsupported("%s is not known here", key) end
  end
  for _, key in ipairs {"truncation", "padding"} do
    if not null(doc[key]) then refuse.unsupported("%s is set; encode does neither", key) end
  end
  local model = doc.model
  check_model(model)
  local fields = rules.read(doc)
  fields.whole = model.ignore_merges == true
  read_vocab(fields, model.vocab)
  make_pieces(fields)
  if merges_of then fields.merges = merges_of(model.vocab)
  else fields.merges = read_merges(model.vocab, listed(model.merges)) end
  if model.byte_fallback == true then fields.bytes = byte_ids(model.vocab) end
  fields.fuse_unknown = model.fuse_unk == true
  if not null(model.unk_token) then
    local id = model.vocab[model.unk_token]
    if not id then refuse.broken("model.unk_token is not in the vocabulary") end
    fields.unknown_ids = {id}
  end
  read_added(fields, doc.added_tokens)
  for _, ids in ipairs {fields.before or {}, fields.after or {}} do
    for _, id in ipairs(ids) do
      if math.type(id) ~= "integer" or not fields.pieces[id + 1] then
        refuse.broken("post_processor: %s is no id of the vocabulary", tostring(id))
      end
    end
  end
  fields.doc = {normalizer = doc.normalizer, pre_tokenizer = doc.pre_tokenizer, decoder = doc.decoder,
    post_processor = doc.post_processor}
  return M.finish(fields)
end

--- A JSON file's object.
---@param text string
---@return table
function M.parse(text)
  local doc, why = core.json(text)
  if doc == nil then refuse.broken("no JSON: %s", why) end
  if type(doc) ~= "table" then refuse.broken "no JSON object" end
  return doc
end

--- Of vocab.json and merges.txt, GPT-2's.
---@param vocab table<string, integer>
---@param merges string the text of merges.txt
---@param merges_path string
---@return table
function M.two_files(vocab, merges, merges_path)
  local parts, last = rules.byte_level {rules.GPT2}, "<|endoftext|>"
  parts.model = {vocab = vocab}
  if math.type(vocab[last]) == "integer" then
    parts.added_tokens = {{id = vocab[last], content = last, special = true}}
  end
  return M.fields(parts, function(known)
    return read_merges(known, (function()
      local next = lines(merges)
      return function()
        local pair, place = next()
        return pair, place and function() return merges_path .. ": " .. place() end
      end
    end)())
  end)
end

return M
