-- rules.lua: what tokenizer.json says of a text's way to ids and back (normalizer, pre_tokenizer, decoder,
-- post_processor), as fields of core.tokenizer. What is not known is refused by the name of its field.
local bytes = require "meshlua.tokenizer.bytes"
local core = require "meshlua.core"
local refuse = require "meshlua.tokenizer.refuse"

local M = {}

--- GPT-2's pattern, which ByteLevel means.
M.GPT2 = [['s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+]]
--- That of cl100k, LLaMA-3 and others, by how many digits a piece has.
---@param digits string "{1,3}"
function M.cl100k(digits)
  return [[(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}]] .. digits
    .. [[| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+]]
end

local function null(x) return x == nil or x == core.null end

--- The fields of a component: only those that are known, "type" among them.
local function check_fields(at, path, known)
  for key, value in pairs(at) do
    if not known[key] and not null(value) then
      refuse.unsupported("%s.%s is not known here", path, key)
    end
  end
end

--- A component's type, one of those in `kinds`; their fields.
local function kind_of(at, path, kinds)
  if type(at) ~= "table" or type(at.type) ~= "string" then refuse.broken("%s has no type", path) end
  local known = kinds[at.type]
  if not known then refuse.unsupported("%s.type is %s, which is not read", path, at.type) end
  local fields = {type = true}
  for name in known:gmatch "%S+" do fields[name] = true end
  check_fields(at, path, fields)
  return at.type
end

local function list_of(at, path)
  if type(at) ~= "table" then refuse.broken("%s is no list", path) end
  return at
end

--- Calls fn(component, path) for it, or for each of a Sequence.
local function each(at, path, field, fn)
  if type(at) == "table" and at.type == "Sequence" then
    check_fields(at, path, {type = true, [field] = true})
    for i, item in ipairs(list_of(at[field], path .. "." .. field)) do
      each(item, ("%s.%s[%d]"):format(path, field, i - 1), field, fn)
    end
  else
    fn(at, path)
  end
end

--- A pattern: {Regex = ...} or {String = ...}.
local function pattern_of(at, path)
  local p = type(at.pattern) == "table" and at.pattern or {}
  local text = p.Regex or p.String
  if type(text) ~= "string" then refuse.unsupported("%s.pattern is neither Regex nor String", path) end
  return text, p.String ~= nil
end

-- ---- normalizer -------------------------------------------------------------------------------------

local NORMALIZERS = {Prepend = "prepend", Replace = "pattern content", NFC = "", NFKC = ""}

local function normalizer(fields, at, path)
  local kind = kind_of(at, path, NORMALIZERS)
  if kind == "NFC" or kind == "NFKC" then
    if fields.marks or fields.prefix then refuse.unsupported("%s.type is %s, behind others", path, kind) end
    fields.normal = kind
  elseif kind == "Prepend" then
    if at.prepend ~= bytes.MARK then refuse.unsupported("%s.prepend is not U+2581", path) end
    fields.prefix = "part"
  else
    local text, is_literal = pattern_of(at, path)
    if not is_literal or text ~= " " or at.content ~= bytes.MARK then
      refuse.unsupported("%s.pattern: only a space replaced by U+2581 is known", path)
    end
    fields.marks = true
  end
end

-- ---- pre_tokenizer ----------------------------------------------------------------------------------

local PRE_TOKENIZERS = {ByteLevel = "add_prefix_space use_regex trim_offsets",
  Split = "pattern behavior invert", Digits = "individual_digits",
  Metaspace = "replacement prepend_scheme split add_prefix_space str_rep"}
local BEHAVIORS = {Isolated = "isolated", Removed = "removed", MergedWithPrevious = "previous",
  MergedWithNext = "next", Contiguous = "contiguous"}

local pre = {}

function pre.ByteLevel(fields, at, path)
  fields.byte_level = true
  if at.add_prefix_space ~= false then
    if #fields.split > 0 then refuse.unsupported("%s.add_prefix_space behind other rules", path) end
    fields.prefix, fields.unless_space = "part", true
  end
  if at.use_regex ~= false then table.insert(fields.split, {pattern = M.GPT2}) end
end

function pre.Split(fields, at, path)
  local text, is_literal = pattern_of(at, path)
  local behavior = BEHAVIORS[at.behavior]
  if not behavior then refuse.unsupported("%s.behavior is %s", path, tostring(at.behavior)) end
  if fields.marks then -- spaces are gone from the text by then
    if not is_literal then refuse.unsupported("%s.pattern: a Regex behind U+2581 for spaces", path) end
    if text:find(" ", 1, true) then return end
    text = text:gsub(bytes.MARK, " ")
  end
  table.insert(fields.split, {pattern = text, literal = is_literal, behavior = behavior,
    invert = at.invert == true})
end

function pre.Digits(fields, at)
  local behavior = at.individual_digits and "isolated" or "contiguous"
  table.insert(fields.split, {kind = "digits", behavior = behavior})
end

function pre.Metaspace(fields, at, path)
  if at.replacement ~= bytes.MARK then refuse.unsupported("%s.replacement is not U+2581", path) end
  local scheme = at.prepend_scheme or (at.add_prefix_space == false and "never" or "always")
  fields.marks = true
  if scheme ~= "never" then
    fields.prefix, fields.unless_space = scheme == "first" and "text" or "part", true
  end
  if at.split ~= false then table.insert(fields.split, {kind = "spaces"}) end
end

-- ---- decoder ----------------------------------------------------------------------------------------

local DECODERS = {ByteLevel = "add_prefix_space use_regex trim_offsets", Replace = "pattern content",
  ByteFallback = "", Fuse = "", Strip = "content start stop",
  Metaspace = "replacement prepend_scheme split add_prefix_space str_rep"}

local function decoder(fields, at, path)
  local kind = kind_of(at, path, DECODERS)
  if (kind == "ByteLevel") ~= (fields.byte_level == true) then
    refuse.unsupported("%s.type is %s, which does not fit the pre_tokenizer", path, kind)
  end
  if kind == "Metaspace" then
    fields.strip = at.prepend_scheme ~= "never" and at.add_prefix_space ~= false
  elseif kind == "Strip" then
    if at.content ~= " " or at.start ~= 1 or at.stop ~= 0 then
      refuse.unsupported("%s: only the first space is stripped", path)
    end
    fields.strip = true
  elseif kind == "Replace" then
    local text, is_literal = pattern_of(at, path)
    if not is_literal or text ~= bytes.MARK or at.content ~= " " then
      refuse.unsupported("%s.pattern: only U+2581 replaced by a space is known", path)
    end
  end
end

-- ---- post_processor ---------------------------------------------------------------------------------

local PROCESSORS = {ByteLevel = "add_prefix_space use_regex trim_offsets",
  TemplateProcessing = "single pair special_tokens"}

local function post_processor(fields, at, path)
  if kind_of(at, path, PROCESSORS) == "ByteLevel" then return end
  local before, after, is_behind = {}, {}, false
  for i, item in ipairs(list_of(at.single, path .. ".single")) do
    local here = ("%s.single[%d]"):format(path, i - 1)
    local token = type(item) == "table" and item.SpecialToken
    if token then
      local name = type(token) == "table" and token.id or refuse.broken("%s has no id", here)
      local known = type(at.special_tokens) == "table" and at.special_tokens[name]
      if type(known) ~= "table" or type(known.ids) ~= "table" then
        refuse.broken("%s is not in special_tokens", here)
      end
      for _, id in ipairs(known.ids) do table.insert(is_behind and after or before, id) end
    elseif type(item) == "table" and item.Sequence and not is_behind then
      is_behind = true
    else
      refuse.unsupported("%s is neither a SpecialToken nor the one Sequence", here)
    end
  end
  fields.before, fields.after = before, after
end

--- The fields of core.tokenizer that the parts of a tokenizer.json say: split, prefix, byte_level, strip, before,
--- after and others.
---@param doc table
---@return table
function M.read(doc)
  local fields = {split = {}}
  if not null(doc.normalizer) then
    each(doc.normalizer, "normalizer", "normalizers", function(at, path) normalizer(fields, at, path) end)
  end
  if not null(doc.pre_tokenizer) then
    each(doc.pre_tokenizer, "pre_tokenizer", "pretokenizers", function(at, path)
      pre[kind_of(at, path, PRE_TOKENIZERS)](fields, at, path)
    end)
  end
  if not null(doc.decoder) then
    each(doc.decoder, "decoder", "decoders", function(at, path) decoder(fields, at, path) end)
  end
  if not null(doc.post_processor) then
    each(doc.post_processor, "post_processor", "processors", function(at, path)
      post_processor(fields, at, path)
    end)
  end
  if fields.byte_level and fields.marks then
    refuse.unsupported("pre_tokenizer: both ByteLevel and U+2581 for spaces")
  elseif not fields.byte_level and not fields.marks then
    refuse.unsupported("pre_tokenizer: neither ByteLevel nor U+2581 for spaces")
  end
  fields.characters = not fields.byte_level
  return fields
end

-- ---- parts of a tokenizer.json for files of other formats -------------------------------------------

local BYTE_LEVEL = {type = "ByteLevel", add_prefix_space = false, trim_offsets = true, use_regex = false}

--- Of byte-level vocabularies: a text is split by these patterns, one after the other; "digits": at each digit.
---@param patterns string[]
function M.byte_level(patterns)
  local list = {}
  for i, pattern in ipairs(patterns) do
    list[i] = pattern == "digits" and {type = "Digits", individual_digits = true}
      or {type = "Split", pattern = {Regex = pattern}, behavior = "Isolated", invert = false}
  end
  list[#list + 1] = BYTE_LEVEL
  return {pre_tokenizer = {type = "Sequence", pretokenizers = list},
    decoder = {type = "ByteLevel", add_prefix_space = true, trim_offsets = true, use_regex = true}}
end

--- Of sentencepiece's.
---@param prefix boolean is a space put in front?
function M.sentencepiece(prefix)
  local normalizers = {{type = "Replace", pattern = {String = " "}, content = bytes.MARK}}
  local decoders = {{type = "Replace", pattern = {String = bytes.MARK}, content = " "},
    {type = "ByteFallback"}, {type = "Fuse"}}
  if prefix then
    table.insert(normalizers, 1, {type = "Prepend", prepend = bytes.MARK})
    table.insert(decoders, {type = "Strip", content = " ", start = 1, stop = 0})
  end
  return {normalizer = {type = "Sequence", normalizers = normalizers},
    decoder = {type = "Sequence", decoders = decoders}}
end

--- As post_processor: ids in front of a text and behind it.
---@param before integer[]
---@param after integer[]
---@param names table<integer, string>
function M.template(before, after, names)
  if #before + #after == 0 then return nil end
  local single, special = {}, {}
  local function add(ids)
    for _, id in ipairs(ids) do
      local name = names[id]
      single[#single + 1] = {SpecialToken = {id = name, type_id = 0}}
      special[name] = {id = name, ids = {id}, tokens = {name}}
    end
  end
  add(before)
  single[#single + 1] = {Sequence = {id = "A", type_id = 0}}
  add(after)
  return {type = "TemplateProcessing", single = single, pair = {{Sequence = {id = "A", type_id = 0}},
    {Sequence = {id = "B", type_id = 1}}}, special_tokens = special}
end

return M
