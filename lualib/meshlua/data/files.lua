-- data/files.lua: files as lists of numbers that stay where they are, in the file. What is wrong with a file is a
-- result (nil, message, code).
local core = require "meshlua.core"
local lib = require "meshlua.lib"

local raise = lib.raise

local M = {}

function M.failed(path, fmt, ...)
  return nil, path .. ": " .. fmt:format(...), "E_IO"
end

-- As much of a file is looked at to see what it is.
local HEAD = 1024

---@class DataSource
---@field path string
---@field from string|userdata all bytes, or the file that has them
---@field head string the first HEAD bytes, or all if there are fewer
---@field size integer in bytes

--- What a file holds; what a gzip file holds unpacked.
---@param path string
---@return DataSource? source, string? message, string? code
function M.open(path)
  if type(path) ~= "string" then raise("E_VALUE", "data: a file's name is a %s", type(path)) end
  local file, message = core.data_file(path)
  if not file then return nil, message, "E_IO" end
  local size, bytes, head = file:size(), nil, nil
  if size then head, message = file:head(HEAD) else bytes, message = file:all() end
  head = head or bytes
  if not head then return nil, message, "E_IO" end
  if head == "" then return M.failed(path, "the file is empty") end
  if head:sub(1, 2) == "\x1f\x8b" then
    if not bytes then bytes, message = file:all() end
    if bytes then bytes, message = core.gunzip(bytes) end
    if not bytes then return M.failed(path, "%s", message) end
    if bytes == "" then return M.failed(path, "the file is empty once unpacked") end
  end
  if bytes then head, size = bytes:sub(1, HEAD), #bytes end
  return {path = path, from = bytes or file, head = head, size = size}
end

--- A source's numbers as a list.
---@param source DataSource
---@param kind integer|string bytes per number, or the dtype
---@param first integer? the first byte, default 0
---@param count integer? default all
---@return Tokens
function M.list(source, kind, first, count)
  return core.tokens(source.from, kind, first, count, source.path)
end

-- ---- lists of ids -----------------------------------------------------------------------------------

-- The first number of llm.c's files is a date. Token files: version, bytes per id.
local llmc = {[20240520] = {1, 2}, [20240801] = {7, 4}}
local LLMC_HEADER = HEAD

--- Does a file begin with a header of llm.c, of whatever kind? It begins with a date, or its few numbers are
--- followed by more zeros than a list of ids has.
local function has_header(head)
  local magic = #head >= 4 and string.unpack("<i4", head) or 0
  return magic >= 20230000 and magic < 20400000 or #head >= LLMC_HEADER and not head:sub(13):find "[^\0]"
end

local function llmc_tokens(source)
  local path = source.path
  if source.size < LLMC_HEADER then
    return M.failed(path, "%s, and the header alone has 1024", lib.count(source.size, "byte"))
  end
  local magic, version, count = string.unpack("<i4i4i4", source.head)
  local kind = llmc[magic]
  if not kind then
    return M.failed(path, "the magic number is %d, which is no token file's (20240520: uint16 ids)", magic)
  end
  if version ~= kind[1] then
    return M.failed(path, "version %d of llm.c's token files; %d is known", version, kind[1])
  end
  local there = (source.size - LLMC_HEADER) // kind[2]
  if count < 0 or count > there then
    return M.failed(path, "cut short: the header counts %s, the file holds %d", lib.count(count, "id"), there)
  end
  return M.list(source, kind[2], LLMC_HEADER, count)
end

--- The Bible's text, which Debian's package bible-kjv prints.
local function bible()
  local pipe <close> = io.popen("bible -f 'gen1:1-rev22:21' 2>/dev/null </dev/null", "r")
  local text = pipe and pipe:read "a" or ""
  if text == "" then
    return nil, "bible: there is no command `bible`; install Debian's package bible-kjv, or name a file",
      "E_IO"
  end
  return core.tokens(text, 1, 0, #text, "the Bible")
end

local function tokens_of(path)
  if path == "bible:" then return bible() end
  local source, message, code = M.open(path)
  if not source then return nil, message, code end
  local head, is_bin = source.head, path:find "%.bin$" or path:find "%.bin%.gz$"
  if llmc[#head >= 4 and string.unpack("<i4", head)] or is_bin and has_header(head) then
    return llmc_tokens(source)
  end
  if not is_bin then return M.list(source, 1) end
  if source.size % 2 ~= 0 then
    return M.failed(path, "%s: no whole number of uint16 ids", lib.count(source.size, "byte"))
  end
  return M.list(source, 2)
end

--- The paths that a name stands for: of names with * those of its folder that fit, in order.
---@param names string|string[]
---@return string[]? paths, string? message, string? code
function M.paths(names)
  local paths = {}
  for _, name in ipairs(type(names) == "table" and names or {names}) do
    if type(name) ~= "string" then raise("E_VALUE", "data: a file's name is a %s", type(name)) end
    local folder, file = name:match "^(.-)([^/]*)$"
    if not file:find("*", 1, true) then
      paths[#paths + 1] = name
    else
      local found, message = core.list_folder(folder == "" and "." or folder)
      if not found then return nil, message, "E_IO" end
      local before, pattern = #paths, "^" .. file:gsub("[%p]", "%%%0"):gsub("%%%*", ".*") .. "$"
      for _, entry in ipairs(found) do
        if entry:find(pattern) then paths[#paths + 1] = folder .. entry end
      end
      if #paths == before then return M.failed(name, "there is no such file") end
    end
  end
  if #paths == 0 then raise("E_VALUE", "data: a list of files without a file") end
  return paths
end

--- The ids of files, by what they are: llm.c's token files (by their first number: uint16, or uint32 for
--- Llama's), any other `.bin` as nanoGPT's (uint16 without a header), everything else as text, a byte an
--- id. "bible:" is the King James Bible as Debian's package bible-kjv prints it. gzip files are unpacked. Several
--- files, or a name with *, are one list, one file behind the other.
---@param path string|string[]
---@return Tokens? ids #ids many
---@return string? message, string? code
function M.tokens(path)
  local paths, message, code = M.paths(path)
  if not paths then return nil, message, code end
  local lists = {}
  for i, name in ipairs(paths) do
    lists[i], message, code = tokens_of(name)
    if not lists[i] then return nil, message, code end
    if #lists[i] == 0 then return M.failed(name, "it holds no ids") end
    if lists[i]:width() ~= lists[1]:width() then
      return M.failed(name, "its ids have %s, those of %s %d", lib.count(lists[i]:width(), "byte"), paths[1],
        lists[1]:width())
    end
  end
  return #lists == 1 and lists[1] or core.tokens_join(lists)
end

return M
