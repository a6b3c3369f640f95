-- tokenizer/init.lua: ml.tokenizer: texts into ids and back, by the files of others. Readers beside this make the
-- fields of core.tokenizer of them.
local core = require "meshlua.core"
local lib = require "meshlua.lib"
local refuse = require "meshlua.tokenizer.refuse"

local raise = lib.raise

local M = {}

---@class Tokenizer
---@field size integer
---@field bos integer?
---@field eos integer?
---@field stops integer[]
---@field chat_template string?
---@field private made userdata core's
---@field private width integer bytes of an id in token files
---@field private fields table of core.tokenizer
local Tokenizer = {}
local Tokenizer_meta = {__name = "Tokenizer"}
local may_be_nil = lib.set {"bos", "eos", "chat_template"}

local words = {[false] = "text", [true] = "token", refuse = "refuse"}

--- What encode takes of its options: how special tokens are taken, and lists of ids before and behind a text.
local function taken(self, who, options)
  options = lib.options(who, options)
  local fields, before, after = self.fields, nil, nil
  if options.bos == nil then before = fields.before
  elseif options.bos then
    before = fields.before and #fields.before > 0 and fields.before or {self.bos}
    if #before == 0 then raise("E_VALUE", "%s: bos = true, but the tokenizer has no such token", who) end
  end
  if options.eos == nil then after = fields.after
  elseif options.eos then
    after = fields.after and #fields.after > 0 and fields.after or {self.eos}
    if #after == 0 then raise("E_VALUE", "%s: eos = true, but the tokenizer has no such token", who) end
  end
  return words[options.special or false], before, after, options
end

--- The ids of a text, from 0.
---@param text string any bytes
---@param options {special: boolean|"refuse", bos: boolean, eos: boolean, offsets: boolean}? special: what is done with
--- the text of special tokens: it is text (false, the default), it is they (true), it raises. bos, eos: default as the
--- file says. offsets: also {begin, end} of each, in bytes from 0, the end not among them
---@return integer[] ids, integer[][]? offsets
function Tokenizer:encode(text, options)
  local special, before, after, more = taken(self, "Tokenizer:encode", options)
  if more.offsets and self.fields.normal then
    raise("E_UNSUPPORTED", "Tokenizer:encode: offsets = true, but the tokenizer normalizes texts (%s)",
      self.fields.normal)
  end
  return self.made:encode(text, special, before, after, more.offsets)
end

--- The ids of each text, over the processor's threads; the same as of each alone.
---@param texts string[]
---@param options {special: boolean|"refuse", bos: boolean, eos: boolean}?
---@return integer[][]
function Tokenizer:encode_batch(texts, options)
  lib.check_list("Tokenizer:encode_batch", "the texts", texts)
  return self.made:encode_batch(texts, taken(self, "Tokenizer:encode_batch", options))
end

--- The bytes of ids.
---@param ids integer[]
---@param options {special: boolean}? special: of special tokens, too; default false
---@return string
function Tokenizer:decode(ids, options)
  lib.check_list("Tokenizer:decode", "the ids", ids)
  return self.made:decode(ids, lib.options("Tokenizer:decode", options).special)
end

--- How many bytes at the end of a text may be the beginning of a character.
local function incomplete(text)
  for n = 1, math.min(3, #text) do
    local byte = text:byte(-n)
    if byte >= 0xc0 then
      local width = byte >= 0xf0 and 4 or byte >= 0xe0 and 3 or 2
      return byte < 0xf8 and width > n and n or 0
    elseif byte < 0x80 then
      return 0
    end
  end
  return 0
end

--- A function from the next id to the text that is complete with it ("" where a character is not yet); without an id
--- it gives the rest.
---@param options {special: boolean}?
---@return fun(id: integer?): string
function Tokenizer:stream(options)
  local special, rest, later = lib.options("Tokenizer:stream", options).special, "", false
  return function(id)
    if id == nil then
      local text = rest
      rest, later = "", false
      return text
    end
    local text = rest .. self.made:decode({id}, special, later)
    later = later or not self.special[id]
    local n = incomplete(text)
    rest = text:sub(#text - n + 1)
    return text:sub(1, #text - n)
  end
end

--- The id of a piece (its bytes), or of a special token; nil where there is none.
---@param piece string
---@return integer?
function Tokenizer:id(piece) return self.ids[piece] or self.made:id(piece) end

--- The bytes of an id.
---@param id integer
---@return string
function Tokenizer:piece(id)
  if id < 0 or id >= self.size then
    raise("E_INDEX", "Tokenizer:piece: id %d of a vocabulary of %d", id, self.size)
  end
  return self.fields.pieces[id + 1] or ""
end

--- Writes a tokenizer.json, which takes the place of another when it is whole.
---@param path string
---@return boolean? done, string? message, string? code
function Tokenizer:save(path) return require("meshlua.tokenizer.save").write(self, path) end

-- Of a text so much is read at once, where it may be cut.
local AT_ONCE = 32 << 20

--- The text of tokens, piece by piece: `for text, first, last in`. It is cut before spaces only.
---@param tokens Tokens
---@param is_local boolean may it be cut?
---@param at_once integer? bytes that are read at once
function M.pieces(tokens, is_local, at_once)
  local at, n, more = 0, #tokens, at_once or AT_ONCE
  return function()
    if at > n or at == n and n > 0 then return nil end
    local from, size = at, is_local and more or n
    local text = tokens:bytes(at, math.min(at + size, n))
    local cut = at + #text < n and text:match ".*[!-~]() "
    while at + #text < n and not cut do
      text = text .. tokens:bytes(at + #text, math.min(at + #text + more, n))
      cut = at + #text < n and text:match ".*[!-~]() "
    end
    if cut then text = text:sub(1, cut - 1) end
    at = at + #text
    if n == 0 then at = 1 end
    return text, from == 0, at >= n
  end
end

--- The text of a file, or of what data.tokens gave, as tokens; or nil, message, code.
---@param source string|Tokens
function M.text_of(source)
  local tokens = source
  if type(source) == "string" then
    local message, code
    tokens, message, code = require("meshlua.data").tokens(source)
    if not tokens then return nil, message, code end
  end
  if tokens:width() == 1 then return tokens end
  return nil, (type(source) == "string" and source or "the tokens") .. ": it holds ids, no text", "E_VALUE"
end

--- Gives fn the ids of a text, packed, part by part; how many there are, or nil, message, code.
---@param self Tokenizer
---@param tokens Tokens
---@param options table?
---@param fn fun(packed: string)
---@return integer? count, string? message, string? code
function M.pack(self, tokens, options, fn)
  local special, before, after = taken(self, "Tokenizer:tokens", options)
  local count = 0
  for text, first, last in M.pieces(tokens, self.made:is_local(special)) do
    local packed, message, code = self.made:pack(text, special, first and before, last and after, self.width)
    if not packed then return nil, message, code end
    count = count + #packed // self.width
    fn(packed)
  end
  return count
end

--- The ids of a text file (as data.tokens knows files), or of bytes that data.tokens gave, for training.
---@param source string|Tokens
---@param options {special: boolean|"refuse", bos: boolean, eos: boolean}?
---@return Tokens? ids, string? message, string? code
function Tokenizer:tokens(source, options)
  options = lib.options("Tokenizer:tokens", options)
  local tokens, message, code = M.text_of(source)
  if not tokens then return nil, message, code end
  local list = {}
  local ok, why, kind = M.pack(self, tokens, options, function(packed) list[#list + 1] = packed end)
  if not ok then return nil, why, kind end
  return core.tokens(table.concat(list), self.width)
end

lib.export_checked(Tokenizer, "Tokenizer:")
lib.hold(Tokenizer, "Tokenizer:")
function Tokenizer_meta.__index(_, key)
  local method = rawget(Tokenizer, key)
  if method == nil and not may_be_nil[key] then return lib.missing("Tokenizer", "Tokenizer:", key) end
  return method
end

-- ---- reading ----------------------------------------------------------------------------------------

-- No vocabulary has more bytes; what has is read no further than its beginning.
local MOST, PIECE = 1 << 30, 1 << 20

--- The first `most` bytes of a file; default all of it.
local function read_all(path, most)
  local file <close>, message = io.open(path, "rb")
  if not file then refuse.unread("%s", (message:gsub("^.*: ", ""))) end
  local parts, left = {}, most or MOST
  while left > 0 do -- piece by piece: room for all that is asked for is taken before anything is read
    local part, why = file:read(math.min(left, PIECE))
    if why then refuse.unread("%s", (why:gsub("^.*: ", ""))) end
    if not part then break end
    parts[#parts + 1], left = part, left - #part
  end
  if not most and file:read(1) then refuse.unread("more than %d bytes, which no tokenizer has", MOST) end
  return table.concat(parts)
end

--- A file beside: its JSON object; nil where there is none.
local function beside(folder, name)
  if core.path_kind(folder .. name) ~= "file" then return nil end
  local object, message, code = refuse.caught(function(path)
    return require("meshlua.tokenizer.json").parse(read_all(path))
  end, folder .. name)
  if not object then error({message = message, code = code, whole = true}, 0) end
  return object
end

--- The id of a token that a configuration names: a text, or {content = text}.
local function named_id(fields, token)
  local text = type(token) == "table" and token.content or token
  for _, row in ipairs(fields.added) do
    if fields.pieces[row[1] + 1] == text then return row[1] end
  end
end

--- What tokenizer_config.json and generation_config.json in the folder say of it.
local function configure(fields, folder)
  local config, generation = beside(folder, "tokenizer_config.json"), beside(folder, "generation_config.json")
  if config then
    fields.bos = named_id(fields, config.bos_token) or fields.bos
    fields.eos = named_id(fields, config.eos_token) or fields.eos
    local template = config.chat_template
    if type(template) == "table" then -- several, by name
      for _, row in ipairs(template) do
        if row.name == "default" then fields.chat_template = row.template end
      end
    elseif type(template) == "string" then
      fields.chat_template = template
    end
  end
  if core.path_kind(folder .. "chat_template.jinja") == "file" then -- where newer folders have it
    fields.chat_template = read_all(folder .. "chat_template.jinja")
  end
  local stops = generation and generation.eos_token_id
  for _, id in ipairs(type(stops) == "table" and stops or {stops}) do
    if math.type(id) == "integer" and fields.pieces[id + 1] then
      fields.stops = fields.stops or {}
      table.insert(fields.stops, id)
    end
  end
end

-- Names of tokens that end a text, or a turn.
local ends = {"</s>", "<|endoftext|>", "<|end_of_text|>", "<|eot_id|>", "<|eom_id|>", "<|im_end|>", "<|end|>",
  "<end_of_turn>", "<eos>"}
local begins = {"<s>", "<|begin_of_text|>", "<bos>"}

--- bos, eos and stops, as far as nothing has said them, by their names.
local function find_roles(fields)
  local found, stops, seen = {}, {}, {}
  for _, row in ipairs(fields.added) do
    if row.special then found[fields.pieces[row[1] + 1]] = row[1] end
  end
  for _, name in ipairs(begins) do fields.bos = fields.bos or found[name] end
  for _, name in ipairs(ends) do fields.eos = fields.eos or found[name] end
  local function add(id)
    if id and not seen[id] then
      seen[id] = true
      stops[#stops + 1] = id
    end
  end
  add(fields.eos)
  for _, id in ipairs(fields.stops or {}) do add(id) end
  for _, name in ipairs(ends) do add(found[name]) end
  fields.stops = stops
end

--- A Tokenizer of the fields of core.tokenizer.
---@param fields table
---@return Tokenizer
function M.make(fields)
  find_roles(fields)
  local made, message, code = core.tokenizer(fields)
  if not made then error({message = message, code = code}, 0) end
  local self = {size = #fields.pieces, bos = fields.bos, eos = fields.eos, stops = fields.stops,
    chat_template = fields.chat_template, made = made, fields = fields, special = {}, ids = {},
    width = #fields.pieces <= 1 << 16 and 2 or 4}
  for _, row in ipairs(fields.added) do
    self.special[row[1]] = row.special or nil
    self.ids[fields.pieces[row[1] + 1]] = row[1]
  end
  return setmetatable(self, Tokenizer_meta)
end

--- What a file says, by what is in it.
local function fields_of(path, options)
  if read_all(path, 4) == "GGUF" then return require("meshlua.tokenizer.gguf").fields(path) end
  local text = read_all(path)
  local folder = path:match "^(.*/)[^/]*$" or ""
  if text == "" then refuse.broken "the file is empty" end
  if text:find "^[%s\xef\xbb\xbf]*{" then
    local json = require "meshlua.tokenizer.json"
    local doc, fields = json.parse(text), nil
    if type(doc.model) == "table" then
      fields = json.fields(doc)
    else
      for _, name in ipairs {"merges.txt", "vocab.bpe"} do
        if not fields and core.path_kind(folder .. name) == "file" then
          fields = json.two_files(doc, read_all(folder .. name), name)
        end
      end
    end
    if not fields then refuse.broken "no field 'model', and no merges.txt beside it" end
    configure(fields, folder)
    return fields
  end
  if require("meshlua.tokenizer.tiktoken").is(text:sub(1, 4096)) then
    return require("meshlua.tokenizer.tiktoken").fields(text, options)
  end
  if require("meshlua.tokenizer.sentencepiece").is(text) then
    local fields = require("meshlua.tokenizer.sentencepiece").fields(text)
    configure(fields, folder)
    return fields
  end
  refuse.broken "neither JSON, base64 ranks, a model of sentencepiece, nor GGUF"
end

local NAMES = {"tokenizer.json", "tokenizer.model", "vocab.json", "encoder.json"}

--- A tokenizer from a file (tokenizer.json, vocab.json with merges.txt beside it, a .tiktoken file, a BPE model of
--- sentencepiece, a GGUF file) or from a folder that has one.
---@param path string
---@param options {pattern: string, special: string[]}? of a .tiktoken file that is none of the known ones
---@return Tokenizer? tokenizer, string? message, string? code
function M.tokenizer(path, options)
  options = lib.options("tokenizer", options)
  local kind = core.path_kind(path .. "/.") == "folder" and "folder" or core.path_kind(path)
  if kind == "folder" then
    local folder = path:gsub("/*$", "/")
    for _, name in ipairs(NAMES) do
      if core.path_kind(folder .. name) == "file" then return M.tokenizer(folder .. name, options) end
    end
    return nil, ("%s: no tokenizer in it; looked for %s"):format(path, table.concat(NAMES, ", ")), "E_IO"
  end
  return refuse.caught(function() return M.make(fields_of(path, options)) end, path)
end

--- A byte-level tokenizer learnt from texts. pattern: how they are split, as a regular expression; default GPT-2's.
--- special: tokens behind all others; default <|endoftext|>.
---@param texts string|string[]
---@param options {size: integer, pattern: string, special: string[]}
---@return Tokenizer? tokenizer, string? message, string? code
function M.learn_tokenizer(texts, options)
  options = lib.options("learn_tokenizer", options)
  lib.check_integer("learn_tokenizer", "size", options.size)
  return require("meshlua.tokenizer.learn").learn(texts, options)
end

local public = lib.export_checked({tokenizer = M.tokenizer, learn_tokenizer = M.learn_tokenizer}, "")
public.make, public.pieces, public.text_of, public.pack = M.make, M.pieces, M.text_of, M.pack
return public
