-- save.lua: a tokenizer as tokenizer.json, which Hugging Face's tokenizers reads to the same ids.
local bytes = require "meshlua.tokenizer.bytes"
local core = require "meshlua.core"
local json = require "meshlua.train.json"
local rules = require "meshlua.tokenizer.rules"

local M = {}

local encode = json.encode

--- The text of every piece, by id, as the file has it.
local function names_of(fields)
  local names = {}
  for i, piece in ipairs(fields.pieces) do
    local name = fields.names[i - 1]
    if not name and piece then
      name = fields.byte_level and bytes.to_chars(piece) or piece:gsub(" ", bytes.MARK)
    end
    names[i - 1] = name
  end
  return names
end

--- Added tokens stand in the vocabulary, too: without that tokenizers numbers them from its end on. Only where they
--- follow it without a hole and pieces are looked up whole are they left out, so that no text becomes one of them.
local function first_left_out(fields)
  local added, first = {}, #fields.pieces
  for _, row in ipairs(fields.added) do added[row[1]] = true end
  while fields.whole and first > 0 and added[first - 1] do first = first - 1 end
  return first
end

local function vocab_text(fields, names)
  local rows = {}
  for id = 0, first_left_out(fields) - 1 do
    if names[id] then rows[#rows + 1] = ("%s:%d"):format(encode(names[id]), id) end
  end
  return "{" .. table.concat(rows, ",") .. "}"
end

local function merges_text(made, names)
  local merges, rows = made:merges(), {}
  for i = 1, #merges, 2 do
    rows[#rows + 1] = ("[%s,%s]"):format(encode(names[merges[i]]), encode(names[merges[i + 1]]))
  end
  return "[" .. table.concat(rows, ",") .. "]"
end

local function added_text(fields)
  local rows = {}
  for i, row in ipairs(fields.added) do
    rows[i] = {id = row[1], content = fields.pieces[row[1] + 1], single_word = row.single_word == true,
      lstrip = row.lstrip == true, rstrip = row.rstrip == true, normalized = row.normalized == true,
      special = row.special == true}
  end
  table.sort(rows, function(a, b) return a.id < b.id end)
  return encode(json.list(rows))
end

--- The text of tokenizer.json.
---@param self Tokenizer
---@return string
function M.text(self)
  local fields = self.fields
  local names, doc, null = names_of(fields), fields.doc, core.null
  local unknown = fields.unknown_ids and names[fields.unknown_ids[1]] or null
  local template = rules.template(fields.before or {}, fields.after or {}, names)
  return table.concat {
    '{"version":"1.0","truncation":null,"padding":null,"added_tokens":', added_text(fields),
    ',"normalizer":', encode(doc.normalizer or null), ',"pre_tokenizer":', encode(doc.pre_tokenizer or null),
    ',"post_processor":', encode(doc.post_processor or template or null),
    ',"decoder":', encode(doc.decoder or null),
    ',"model":{"type":"BPE","dropout":null,"unk_token":', encode(unknown),
    ',"continuing_subword_prefix":null,"end_of_word_suffix":null',
    ',"fuse_unk":', encode(fields.fuse_unknown == true),
    ',"byte_fallback":', encode(fields.bytes ~= nil), ',"ignore_merges":', encode(fields.whole == true),
    ',"vocab":', vocab_text(fields, names), ',"merges":', merges_text(self.made, names), "}}\n"}
end

--- Writes it; true, or nil, message, code.
---@param self Tokenizer
---@param path string
---@return boolean? done, string? message, string? code
function M.write(self, path)
  local part = path .. ".part"
  local done, message = core.disk_task({{"write", part, M.text(self)}, {"move", part, path}}):wait()
  if not done then
    os.remove(part)
    return nil, message, "E_IO"
  end
  return true
end

return M
