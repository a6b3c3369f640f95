-- convert.lua: the verb `convert`: the tensors of one path in a file of another format, in files of another size, or
-- with another dtype, a piece at a time. What it makes takes its name when it is whole.
local core = require "meshlua.core"
local encoding_of = require "meshlua.checkpoint.encoding"
local folder_of = require "meshlua.checkpoint.folder"
local json = require "meshlua.train.json"
local lib = require "meshlua.lib"
local view = require "meshlua.checkpoint.view"
local weights_of = require "meshlua.program.weights"

local M = {}

--- What is to be written: entries {name, encoding, shape, bytes, t}; or nil, message.
local function entries_of(weights, flags, format)
  local entries, tree = {}, #weights.trees > 0 and flags.tree
  local cast, word = flags.dtype ~= "" and flags.dtype or nil, flags.encoding ~= "" and flags.encoding or nil
  for _, t in ipairs(weights.tensors) do
    if not tree or t.tree == tree then
      if not t.dtype then
        return nil, ("%s: %s is %s, which is not read"):format(weights.path, t.name, t.encoding)
      end
      local encoding = encoding_of.choose(t.dtype, t.shape, cast, word)
      entries[#entries + 1] = {name = t.name, encoding = encoding, shape = t.shape, t = t,
        bytes = encoding_of.bytes(encoding, t.shape)}
    end
  end
  if tree and #entries == 0 then
    return nil, ("%s: it has no tree %s; there are %s"):format(weights.path, tree,
      table.concat(weights.trees, ", "))
  end
  if format == "npy" and #entries ~= 1 then
    return nil, ("%s holds %s, and a .npy file one; .npz holds several"):format(weights.path,
      lib.count(#entries, "tensor"))
  end
  return entries
end

--- The metadata that goes along: of safetensors texts, of the others what they had.
local function metadata_of(weights, format)
  local from, to = weights.files[1].metadata, {}
  for key, value in pairs(from) do
    if format == "gguf" or type(value) ~= "table" then
      to[key] = format == "safetensors" and lib.text(value) or value
    end
  end
  to.format = format == "safetensors" and (to.format or "pt") or nil -- safetensors' word for its writer
  return to
end

--- The files to be made: {path, entries}.
local function files_of(path, entries, in_folder, flags)
  if not in_folder then return {{path = path, entries = entries}} end
  local shards = folder_of.shards(entries, flags.shard_bytes)
  for _, shard in ipairs(shards) do shard.path = folder_of.inside(path, shard.name) end
  return shards
end

local function part(path) return path .. ".part" end

--- Writes one file beside its place; true, or nil, message, code.
local function write_file(file, weights, format, metadata)
  if format == "safetensors" then table.sort(file.entries, encoding_of.wide_first) end
  local layout, message, code = core.catalog_layout(format, file.entries, metadata)
  if not layout then return nil, file.path .. ": " .. message, code end
  local list = {}
  for i, entry in ipairs(file.entries) do
    list[i] = {weights.files[entry.t.file].catalog, entry.t.number, layout.begin[i], entry.encoding}
  end
  return core.catalog_write(part(file.path), layout.header, layout.size, list)
end

--- An npz file's members need their sums in front: tensors are read whole.
local function write_npz(file, weights)
  local list = {}
  for i, entry in ipairs(file.entries) do
    local t, piece = entry.t, view.piece(view.whole(entry.shape))
    piece.catalog, piece.entry = weights.files[t.file].catalog, t.number
    local tensor, message, code = core.catalog_load(encoding_of.dtype[entry.encoding], t.shape, nil, {piece},
      {cast = true})
    if not tensor then return nil, message, code end
    list[i] = {entry.name, tensor}
  end
  return core.npz(part(file.path), list)
end

--- What stands in B's place and stays.
local function check_place(path, in_folder, flags)
  if flags.overwrite then return true end
  local kind = core.path_kind(path)
  if kind and not in_folder or kind and #(core.list_folder(path) or {}) > 0 then
    return nil, path .. ": it is there; take another name, or --overwrite to replace it", "E_VALUE"
  end
  return true
end

local function write_all(weights, path, format, in_folder, flags)
  local entries, message, code = entries_of(weights, flags, format)
  if not entries then return nil, message, "E_VALUE" end
  local made = in_folder and not core.path_kind(path)
  if in_folder then
    local ok
    ok, message = core.make_folder(path)
    if not ok then return nil, message, "E_IO" end
  end
  local files, metadata, ok = files_of(path, entries, in_folder, flags), metadata_of(weights, format), true
  local _ <close> = setmetatable({}, {__close = function() -- also where Ctrl-C ends it
    for _, file in ipairs(files) do os.remove(part(file.path)) end
    if made then os.remove(path) end -- a folder with something in it stays
  end})
  for _, file in ipairs(files) do
    if ok and format == "npz" then ok, message, code = write_npz(file, weights)
    elseif ok then ok, message, code = write_file(file, weights, format, metadata) end
  end
  if ok then ok, message, code = folder_of.commit(files, in_folder and path or nil) end
  if not ok then return nil, message, code end
  return {entries = #entries, files = files}
end

---@param a string
---@param b string
---@param flags table by the rows of verbs.lua
---@return nil, string? message, string? code
function M.run(a, b, flags)
  local format, in_folder = folder_of.format_of(b)
  if not format then
    return nil, b .. ": its name does not say which format: .safetensors, .npy, .npz, .gguf, or folder/",
      "E_VALUE"
  end
  if flags.encoding ~= "" and format ~= "gguf" then
    return nil, "--encoding is for .gguf files; --dtype for others", "E_VALUE"
  end
  if flags.encoding ~= "" and flags.dtype ~= "" then
    return nil, "of --dtype and --encoding one says it", "E_VALUE"
  end
  local ok, message, code = check_place(b, in_folder, flags)
  if not ok then return nil, message, code end
  local weights
  weights, message, code = weights_of.open(a)
  if not weights then return nil, message, code end
  local done
  done, message, code = write_all(weights, b, format, in_folder, flags)
  weights_of.close(weights)
  if not done then return nil, message, code end
  local bytes = 0
  for _, file in ipairs(done.files) do bytes = bytes + select(2, core.path_kind(file.path)) end
  if flags.json then
    print(json.encode {path = b, format = format, tensors = done.entries, bytes = bytes, files = #done.files})
  else
    local files = lib.count(#done.files, "file")
    print(("%s: %s, %s"):format(b, weights_of.count_text(done.entries, bytes), files))
  end
end

return M
