-- folder.lua: tensors in several safetensors files, as Hugging Face lays them out: model-00001-of-00003.safetensors
-- and so on, and model.safetensors.index.json, which says for each tensor which file has it.
local core = require "meshlua.core"
local lib = require "meshlua.lib"
local json = require "meshlua.train.json"

local M = {}

M.SINGLE, M.INDEX = "model.safetensors", "model.safetensors.index.json"
local MOST = 256 << 20 -- bytes of an index

local function exists(path)
  local file <close> = io.open(path, "rb")
  return file ~= nil
end

--- Is there a folder of this name?
---@param path string
---@return boolean
function M.is_folder(path) return path:sub(-1) == "/" or exists(path .. "/.") end

--- The name in the folder: "model", "model/" -> "model/name".
---@param folder string
---@param name string
---@return string
function M.inside(folder, name)
  if folder == "" then return name end
  return folder:sub(-1) == "/" and folder .. name or folder .. "/" .. name
end

local formats = {safetensors = true, npy = true, npz = true, gguf = true}

--- The format that a name asks for; nil: it says none. Of a folder's name also that.
---@param path string
---@return string? format, string? folder
function M.format_of(path)
  if M.is_folder(path) then return "safetensors", path end
  local format = path:match "%.(%w+)$"
  return formats[format] and format
end

--- Where a file lies: "" where its name says no folder.
---@param path string
---@return string
function M.of(path) return path:match "^(.*/)[^/]*$" or "" end

--- Is it the name of a file in the same folder, and of nothing else?
function M.is_plain(name)
  return type(name) == "string" and name ~= "" and not name:find "[/%z\\]" and name:sub(1, 1) ~= "."
end

local function broken(path, fmt, ...)
  return nil, path .. ": " .. lib.format(fmt, ...), "E_PARSE"
end

local function read_index(path)
  local file <close>, message = io.open(path, "rb")
  if not file then return nil, message, "E_IO" end
  local text, why = file:read(MOST + 1)
  if not text then return nil, path .. ": " .. (why or "the file is empty"), "E_IO" end
  if #text > MOST then return broken(path, "an index of more than %d bytes", MOST) end
  local index, wrong = core.json(text)
  if index == nil then return broken(path, "%s", wrong) end
  local map = type(index) == "table" and index.weight_map
  if type(map) ~= "table" then return broken(path, "it has no weight_map {tensor: file}") end
  for name, in_file in pairs(map) do
    if type(name) ~= "string" or not M.is_plain(in_file) then
      return broken(path, "weight_map: '%s' is in %s, which is no file of this folder", name,
        type(in_file) == "string" and "'" .. in_file .. "'" or lib.kind(in_file))
    end
  end
  return index
end

local warned = {}

--- Says of a file what need not stop anyone, once.
---@param path string
---@param fmt string
function M.warn(path, fmt, ...)
  local text = path .. ": " .. lib.format(fmt, ...)
  if warned[text] then return end
  warned[text] = true
  io.stderr:write("meshlua: warning: ", text, "\n")
end

--- Holds what the files have against the index.
local function check(path, index, files)
  local map, bytes, has = index.weight_map, 0, {}
  for _, in_file in ipairs(files) do
    for _, entry in ipairs(in_file.entries) do
      if map[entry.name] ~= in_file.name then
        return broken(path, "%s has the tensor '%s', and weight_map says %s", in_file.name, entry.name,
          map[entry.name] and "it is in " .. map[entry.name] or "nothing of it")
      end
      bytes, has[entry.name] = bytes + entry.bytes, true
    end
  end
  for _, name in ipairs(lib.names(map)) do
    if not has[name] then
      return broken(path, "weight_map says that '%s' is in %s, which has no such tensor", name, map[name])
    end
  end
  local said = type(index.metadata) == "table" and index.metadata.total_size
  if math.type(said) and said ~= bytes then
    M.warn(path, "total_size is %d, and the tensors have %d bytes", said, bytes)
  end
  return true
end

--- The catalogs of the files that an index names: {name =, catalog =, entries =}, in the order of their names.
---@param path string of the index
---@return table[]?, string?, string?
function M.open_index(path)
  local index, message, code = read_index(path)
  if not index then return nil, message, code end
  local names, files = {}, {}
  for _, name in pairs(index.weight_map) do names[name] = true end
  for k, name in ipairs(lib.names(names)) do
    local catalog
    catalog, message, code = core.catalog(M.inside(M.of(path), name))
    if not catalog then return nil, message, code end
    files[k] = {name = name, catalog = catalog, entries = catalog:entries()}
  end
  local ok
  ok, message, code = check(path, index, files)
  if not ok then return nil, message, code end
  return files
end

--- The catalogs of a file, of an index, or of a folder that has one of them.
---@param path string
---@return table[]?, string?, string?
function M.open(path)
  if M.is_folder(path) then
    local single, index = M.inside(path, M.SINGLE), M.inside(path, M.INDEX)
    if exists(single) then
      path = single
    elseif exists(index) then
      path = index
    else
      return nil, lib.format("%s: the folder has no %s and no %s", path, M.SINGLE, M.INDEX), "E_IO"
    end
  end
  if path:find "%.json$" then return M.open_index(path) end
  local catalog, message, code = core.catalog(path)
  if not catalog then return nil, message, code end
  return {{name = path, catalog = catalog, entries = catalog:entries()}}
end

-- ---- writing ----------------------------------------------------------------------------------------

--- Entries dealt out to files of at most so many bytes each, a tensor that is larger alone: lists of entries with
--- their names of files.
---@param entries {name: string, bytes: integer}[]
---@param most integer
---@param word string? that begins their names; default "model"
---@return {name: string, entries: table[]}[]
function M.shards(entries, most, word)
  local shards, bytes = {{entries = {}}}, 0
  for _, entry in ipairs(entries) do
    local last = shards[#shards]
    if #last.entries > 0 and bytes + entry.bytes > most then
      last, bytes = {entries = {}}, 0
      shards[#shards + 1] = last
    end
    last.entries[#last.entries + 1], bytes = entry, bytes + entry.bytes
  end
  word = word or "model"
  for k, shard in ipairs(shards) do
    shard.name = #shards == 1 and word .. ".safetensors"
      or ("%s-%05d-of-%05d.safetensors"):format(word, k, #shards)
  end
  return shards
end

--- The text of the index of these files.
---@param shards {name: string, entries: {name: string, bytes: integer}[]}[]
---@return string
function M.index_text(shards)
  local map, bytes = {}, 0
  for _, shard in ipairs(shards) do
    for _, entry in ipairs(shard.entries) do
      map[entry.name], bytes = shard.name, bytes + entry.bytes
    end
  end
  return json.encode {metadata = {total_size = bytes}, weight_map = map} .. "\n"
end

--- Files of an earlier save that a reader would take for a part of this one.
local function stale_in(folder, shards)
  local stale, now = {}, {}
  for _, shard in ipairs(shards) do now[shard.name] = true end
  if #shards == 1 then
    if exists(M.inside(folder, M.INDEX)) then stale[1] = M.INDEX end
  elseif exists(M.inside(folder, M.SINGLE)) then
    stale[1] = M.SINGLE
  end
  for _, name in ipairs(core.list_folder(folder) or {}) do
    if name:find "^model%-%d%d%d%d%d%-of%-%d%d%d%d%d%.safetensors$" and not now[name] then
      stale[#stale + 1] = name
    end
  end
  return stale
end

--- Puts parts in the places of files, and sees to it that the disk has them there. Of several files that replace others
--- of the same names some are old for a moment and some new: no index is there then, and nobody takes them for one
--- model. In all other cases one name is what switches from the old files to the new: the file's, or the index's.
---@param files {path: string, name: string?, entries: table[]}[] FILE.part is what becomes FILE
---@param folder string? where they are one model's, with an index
---@return boolean? ok, string? message, string? code
function M.commit(files, folder)
  local at = folder or M.of(files[1].path)
  local sync, calls, replaces = {"sync", at == "" and "." or at}, {}, false
  for _, file in ipairs(files) do
    local kind = core.path_kind(file.path)
    replaces = replaces or kind == "file" or kind == "link"
  end
  local index = folder and M.inside(folder, M.INDEX)
  if replaces and #files > 1 and core.path_kind(index) then calls = {{"remove", index}, sync} end
  for _, file in ipairs(files) do calls[#calls + 1] = {"move", file.path .. ".part", file.path} end
  local stale = folder and stale_in(folder, files) or {}
  if folder then calls[#calls + 1] = sync end
  if #files > 1 then
    calls[#calls + 1] = {"write", index .. ".part", M.index_text(files)}
    calls[#calls + 1] = {"move", index .. ".part", index}
  end
  if #stale > 0 then calls[#calls + 1] = sync end
  for _, name in ipairs(stale) do calls[#calls + 1] = {"remove", M.inside(folder, name)} end
  calls[#calls + 1] = sync
  local ok, message = core.disk_task(calls):wait()
  return ok, message, "E_IO"
end

return M
