-- data/encoded.lua: texts as documents of ids. What a tokenizer made of them is kept beside a hash of both, in a folder
-- that is this user's alone; where it cannot be kept it is made again the next time, and that is said.
local core = require "meshlua.core"
local files = require "meshlua.data.files"
local lib = require "meshlua.lib"
local lines = require "meshlua.data.lines"
local records_of = require "meshlua.data.records"
local together = require "meshlua.sharding.together"

local raise = lib.raise

local M = {}

-- A file: a line in HEADER bytes, the ids, then where each document begins and ends, from a multiple of 8 on.
local HEADER = 128
local AT_ONCE = 1000 -- documents whose places are one string

local function padding(bytes) return ("\0"):rep(-bytes % 8) end

local function header(width, ids, documents, mark)
  local line = ("meshlua ids 1 %d %d %d %s\n"):format(width, ids, documents, mark)
  return line .. (" "):rep(HEADER - #line)
end

--- The ids and the index of a file of that many.
local function lists_of(source, width, ids, documents)
  local list = files.list(source, width, HEADER, ids)
  local index = files.list(source, "int64", HEADER + width * ids + #padding(width * ids), 2 * documents)
  return list, index, core.tokens_fingerprint(list) .. core.tokens_fingerprint(index)
end

-- ---- encoding ---------------------------------------------------------------------------------------

---@class Encoder
---@field width integer bytes per id
---@field bytes fun(text: string, what: fun(): string): string the ids
---@field key string? says which encoder it is; nil: nothing does

--- Appends what is in a tokenizer's fields, in one order.
local function spell(value, list)
  if type(value) ~= "table" then
    list[#list + 1] = type(value) .. tostring(value)
    return
  end
  for _, key in ipairs(core.tree_keys(value)) do
    list[#list + 1] = tostring(key)
    spell(value[key], list)
  end
  list[#list + 1] = "end"
end

local function of_tokenizer(tokenizer)
  local words = {}
  spell(tokenizer.fields, words)
  return {width = tokenizer.size <= 1 << 16 and 2 or 4, key = core.hash128(table.concat(words, "\0")),
    bytes = function(text) return tokenizer:tokens(core.tokens(text, 1)):bytes() end}
end

local function of_function(fn, key)
  return {width = 4, key = key and "key " .. key, bytes = function(text, what)
    local ids = fn(text)
    if core.type_name(ids) == "tokens" then ids = ids:numbers() end
    local bytes, why
    if type(ids) == "table" then bytes, why = core.pack(ids, "uint32", {#ids}) end
    if not bytes then
      raise("E_VALUE", "encode: %s: the function must give a list of ids: %s", what(), why or lib.kind(ids))
    end
    return bytes
  end}
end

--- Encodes all records, and hands the ids to write(bytes). How many there are, and where the documents are in them,
--- packed; nil, message where write fails.
local function encode_all(inner, field, encoder, write)
  local index, some, n, count = {}, {}, 0, 0
  for id = 0, inner.n - 1 do
    local text = inner:record(id)[field]
    local function what() return inner.what and inner:what(id) or "record " .. id end
    if type(text) ~= "string" then
      raise("E_VALUE", "encode: %s: field '%s' is %s, no text", what(), field, lib.kind(text))
    end
    local bytes = encoder.bytes(text, what)
    local ids = #bytes // encoder.width
    if ids > 0 then
      local done, message = write(bytes)
      if not done then return nil, message end
      some[#some + 1], n, count = ("<i8i8"):pack(n, n + ids), n + ids, count + 1
    end
    if #some == AT_ONCE then index[#index + 1], some = table.concat(some), {} end
  end
  index[#index + 1] = table.concat(some)
  return n, table.concat(index), count
end

-- ---- kept -------------------------------------------------------------------------------------------

--- The ids and the index of a file; nil where it is not there, or not whole.
local function read(path)
  if core.path_kind(path) ~= "file" then return nil end
  local source = files.open(path)
  local words = {(source and source.head or ""):match "^meshlua ids 1 ([24]) (%d+) (%d+) (%x+)\n"}
  local width, ids, documents = math.tointeger(words[1]), math.tointeger(words[2]), math.tointeger(words[3])
  if not (width and ids and documents) then return nil end
  local bytes = width * ids
  if source.size ~= HEADER + bytes + #padding(bytes) + 16 * documents then return nil end
  local list, index, mark = lists_of(source, width, ids, documents)
  if mark ~= words[4] then return nil end
  return list, index
end

--- Writes what is encoded into a file, which gets its name last. nil, message: it cannot be.
local function build(path, inner, field, encoder)
  local part <const> = ("%s.%d.part"):format(path, core.process_index())
  local handle, message = io.open(part, "wb")
  if not handle then return nil, message end
  local out <close> = handle
  local written <close> = setmetatable({}, {__close = function() os.remove(part) end})
  local fault
  local function ok(done, why)
    if not done then fault = why end
    return done
  end
  if not ok(out:write((" "):rep(HEADER))) then return nil, fault end
  local ids, index, count = encode_all(inner, field, encoder, function(bytes) return out:write(bytes) end)
  if not ids then return nil, index end
  if not (ok(out:write(padding(ids * encoder.width), index)) and ok(out:flush())) then return nil, fault end
  local source, why = files.open(part)
  if not source then return nil, why end
  local _, _, mark = lists_of(source, encoder.width, ids, count)
  local done = ok(out:seek("set", 0)) and ok(out:write(header(encoder.width, ids, count, mark)))
    and ok(out:close()) and ok(os.rename(part, path))
  local _ = written
  return done, fault
end

--- In memory.
local function encoded(inner, field, encoder)
  local parts = {}
  local n, index = encode_all(inner, field, encoder, function(bytes)
    parts[#parts + 1] = bytes
    return true
  end)
  return core.tokens(table.concat(parts), encoder.width, 0, n), core.tokens(index, "int64")
end

local function note(fmt, ...)
  if together.is_first() then io.stderr:write("data: note: ", fmt:format(...), "\n") end
end

--- The folder where ids are kept: the user's, or the program's own. nil, message: there is none.
local function folder_of(folder)
  if not folder then return core.private_folder "ids" end
  local ok, message = core.make_folder(folder)
  if not ok then return nil, message end
  return folder
end

--- The ids and the index, from the folder where they are in it.
local function kept_or_made(inner, field, encoder, folder)
  local at, message = folder_of(folder)
  local path = at and ("%s/%s.ids"):format(at, core.hash128(table.concat({records_of.mark_text(inner), field,
    encoder.key}, "\0")))
  local list, index = nil, nil
  if path then list, index = read(path) end
  if together.largest(list and 0 or 1) == 0 then return list, index end
  if path and not list and together.is_first() then -- the others of this host find it then
    local ok
    ok, message = build(path, inner, field, encoder)
    if ok then message = nil end
  end
  together.agree(true)
  if message then note("the ids are made again each time: they cannot be kept: %s", message) end
  if path and not list then list, index = read(path) end
  if list then return list, index end
  return encoded(inner, field, encoder)
end

--- Texts as documents {ids}, by a tokenizer, or a function from a text to a list of ids (from 0). A tokenizer's ids are
--- kept between runs, beside a hash of the texts and of the tokenizer; a function's where `key` names it: another
--- function needs another key.
---@param texts Records with a field that is a text
---@param encoder Tokenizer|fun(text: string): integer[]
---@param options {field: string, key: string, folder: string|false}? field: default "text"; folder: where the ids are
--- kept, default the folder of $MESHLUA_CACHE; false: nowhere
---@return Records? records, string? message, string? code
function M.encode(texts, encoder, options)
  local inner = records_of.source_of("encode", texts)
  options = lib.options("data.encode", options)
  local field = options.field or "text"
  local has = inner.fields[field]
  if not has or has.dtype ~= "text" and has.dtype ~= "any" then
    raise("E_VALUE", "encode: the records have no text in a field '%s'%s", field,
      lib.did_you_mean(field, lib.names(inner.fields)))
  end
  local meta = type(encoder) == "table" and getmetatable(encoder)
  local by = meta and meta.__name == "Tokenizer" and of_tokenizer(encoder)
    or of_function(lib.check_function("encode", encoder), options.key)
  local list, index
  if options.folder == false or not by.key then
    list, index = encoded(inner, field, by)
  else
    list, index = kept_or_made(inner, field, by, options.folder)
  end
  if #index == 0 then
    return nil, ("encode: no ids in %s"):format(lib.count(inner.n, "text")), "E_VALUE"
  end
  return lines.indexed(list, index)
end

return M
