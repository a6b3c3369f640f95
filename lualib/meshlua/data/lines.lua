-- data/lines.lua: records of different length: lines of JSON, texts, documents of ids. They stay in their files; an
-- index of where they begin and end is made once. Tensors are made of what map and pack make of them.
local core = require "meshlua.core"
local files = require "meshlua.data.files"
local lib = require "meshlua.lib"
local records_of = require "meshlua.data.records"

local raise = lib.raise

local M = {}

-- Pieces of lists, file after file.
local Pieces = records_of.source()
Pieces.mode = "main"

---@class PieceFile
---@field list Tokens
---@field index Tokens where its pieces begin and end
---@field first integer the number of its first piece

--- The list, begin and end of piece `id`.
function Pieces:span(id)
  local file = self.files[1]
  for i = 2, #self.files do
    if id < self.files[i].first then break end
    file = self.files[i]
  end
  local at = 2 * (id - file.first)
  local ends = file.index:numbers(at, at + 2)
  return file.list, ends[1], ends[2]
end

function Pieces:pieces()
  raise("E_VALUE", "batch: the records differ in length")
end

function Pieces:mark()
  local words = {}
  for i, file in ipairs(self.files) do words[i] = core.tokens_fingerprint(file.list) end
  local mark, marks = ("%s, %d records"):format(table.concat(words, " "), self.n), {}
  for name in pairs(self.fields) do marks[name] = mark end
  return marks
end

--- A source of the pieces that `cut` gives for each list.
---@param class table its metatable
---@param lists Tokens[]
---@param cut fun(list: Tokens): Tokens
---@return Source? source, string? message, string? code
local function pieces_of(class, lists, cut)
  local source = setmetatable({n = 0, files = {}, on_disk = false}, class)
  for i, list in ipairs(lists) do
    local index = cut(list)
    if #index == 0 then return files.failed(list:place(0) or "the list", "it holds no records") end
    source.files[i] = {list = list, index = index, first = source.n}
    source.n = source.n + #index // 2
    source.on_disk = source.on_disk or core.tokens_on_disk(list)
  end
  return source
end

--- The bytes of files, packed ones unpacked.
local function lists_of(path)
  local paths, message, code = files.paths(path)
  if not paths then return nil, message, code end
  local lists = {}
  for i, name in ipairs(paths) do
    local source
    source, message, code = files.open(name)
    if not source then return nil, message, code end
    lists[i] = files.list(source, 1)
  end
  return lists
end

-- ---- texts ------------------------------------------------------------------------------------------

local Text_meta = {__index = setmetatable({}, {__index = Pieces})}

function Text_meta.__index:record(id)
  local list, first, last = self:span(id)
  return {text = list:bytes(first, last)}
end

--- Records {text}: each file is one, or what stands in it between separators ("\n": its lines), without those that
--- are empty. gzip files are unpacked.
---@param path string|string[] names may have a *
---@param options {separator: string}?
---@return Records? records, string? message, string? code
function M.text(path, options)
  options = lib.options("data.text", options)
  local separator = options.separator
  local lists, message, code = lists_of(path)
  if not lists then return nil, message, code end
  local source
  source, message, code = pieces_of(Text_meta, lists, function(list)
    return separator and list:cut(separator) or core.tokens(("<i8i8"):pack(0, #list), "int64")
  end)
  if not source then return nil, message, code end
  source.fields = {text = {dtype = "text"}}
  return records_of.new(source)
end

-- ---- lines of JSON ----------------------------------------------------------------------------------

local Json = setmetatable({}, {__index = Pieces})
local Json_meta = {__index = Json}
local LOOKED = 1 << 20 -- bytes at once, for the number of a line

--- "corpus.jsonl: line 7, byte 1234": where a record is.
local function place_of(list, first)
  local path, byte = list:place(first)
  local line = 1
  for at = 0, first - 1, LOOKED do
    line = line + select(2, list:bytes(at, math.min(at + LOOKED, first)):gsub("\n", ""))
  end
  return ("%s: line %d, byte %d"):format(path, line, byte)
end

function Json:what(id)
  local list, first = self:span(id)
  return place_of(list, first)
end

--- The object of a line.
local function object_of(self, id)
  local list, first, last = self:span(id)
  local value, message = core.json(list:bytes(first, last))
  if value == nil then raise("E_VALUE", "%s: no JSON: %s", place_of(list, first), message) end
  if type(value) ~= "table" or value[1] ~= nil then
    raise("E_VALUE", "%s: no JSON object", place_of(list, first))
  end
  return value
end

function Json:record(id)
  local object, record = object_of(self, id), {}
  for name in pairs(self.fields) do
    if object[name] == nil then
      raise("E_VALUE", "%s: it has no field '%s'%s", self:what(id), name,
        lib.did_you_mean(name, lib.names(object)))
    end
    record[name] = object[name]
  end
  return record
end

Json.pieces = records_of.Computed.pieces

--- Records from lines of JSON, an object each; empty lines are none. gzip files are unpacked. A field that is a text,
--- null or an object is there for map, filter and get; numbers, and lists of them, of one shape are for batches, too.
---@param path string|string[] names may have a *
---@param options {fields: string[]}? fields: those that a record has; default all of the first
---@return Records? records, string? message, string? code
function M.jsonl(path, options)
  options = lib.options("data.jsonl", options)
  local lists, message, code = lists_of(path)
  if not lists then return nil, message, code end
  local source
  source, message, code = pieces_of(Json_meta, lists, function(list) return list:cut "\n" end)
  if not source then return nil, message, code end
  source.fields = {}
  for _, name in ipairs(options.fields or lib.names(object_of(source, 0))) do
    source.fields[name] = {dtype = "any"}
  end
  for name, value in pairs(source:record(0)) do
    local dtype, shape = core.learn(value)
    if dtype then source.fields[name] = {dtype = dtype, shape = shape} end
  end
  if next(source.fields) == nil then raise("E_VALUE", "%s: it has no field", source:what(0)) end
  return records_of.new(source)
end

-- ---- documents of ids -------------------------------------------------------------------------------

local Documents_meta = {__index = setmetatable({}, {__index = Pieces})}

function Documents_meta.__index:record(id)
  local list, first, last = self:span(id)
  return {ids = list:numbers(first, last)}
end

--- Documents {ids} of a list, where an index says where each begins and ends.
---@param tokens Tokens
---@param index Tokens int64
---@return Records? records, string? message, string? code
function M.indexed(tokens, index)
  local source, message, code = pieces_of(Documents_meta, {tokens}, function() return index end)
  if not source then return nil, message, code end
  source.fields = {ids = {dtype = "int32"}}
  return records_of.new(source)
end

--- The documents {ids} of a list of ids: an id ends each of them, or begins it.
---@param tokens Tokens
---@param options {ends: integer, starts: integer} one of the two: the id, which belongs to the document
---@return Records? records, string? message, string? code
function M.documents(tokens, options)
  options = lib.options("data.documents", options)
  local mark = options.ends or options.starts
  if not mark or options.ends and options.starts then
    raise("E_VALUE", "documents: say which id 'ends' a document, or which 'starts' one")
  end
  return M.indexed(tokens, tokens:cut(mark, options.ends and "end" or "start"))
end

return M
