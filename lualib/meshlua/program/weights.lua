-- weights.lua: the tensors that a path holds, for the verbs that look at files: one file, a folder or index of Hugging
-- Face, a checkpoint, a folder of checkpoints or a run's, of which the newest counts. Headers are read, tensors are not.
local core = require "meshlua.core"
local folder_of = require "meshlua.checkpoint.folder"
local lib = require "meshlua.lib"
local manifest = require "meshlua.checkpoint.manifest"
local program = require "meshlua.program"

local M = {}

---@class Weights
---@field path string
---@field kind string "safetensors", "npy", "npz", "gguf", "folder", "checkpoint"
---@field files {name: string, path: string, bytes: integer, catalog: userdata, metadata: table}[]
---@field tensors {name: string, tree: string?, file: integer, number: integer, shape: integer[], dtype: string?,
--- encoding: string, bytes: integer, layout: string?}[]
---@field trees string[] of a checkpoint
---@field manifest table? of a checkpoint
---@field steps integer[]? where the path is a folder of checkpoints: all of them

--- The checkpoints of a folder: steps, ascending, and the folder that has them; nil: there are none.
---@param path string
---@return integer[]? steps, string folder
function M.steps(path)
  for _, folder in ipairs {path, folder_of.inside(path, "checkpoints")} do
    local steps = manifest.steps(folder)
    if #steps > 0 then return steps, folder end
  end
  return nil, path
end

--- The path without slashes behind it; of a link where it leads: links within checkpoints are refused.
---@param path string
---@return string
function M.real(path)
  path = path:gsub("(.)/+$", "%1")
  return core.path_kind(path) == "link" and program.real_path(path) or path
end

--- Is it a checkpoint's folder?
---@param path string
---@return boolean
function M.is_checkpoint(path)
  local name = path:match "([^/]+)/*$" or ""
  return core.path_kind(folder_of.inside(path, manifest.NAME)) ~= nil or manifest.step(name) ~= nil
end

local function add_file(weights, name, path, catalog, tree, layouts)
  local file = {name = name, path = path, bytes = catalog.size, catalog = catalog,
    metadata = catalog:metadata()}
  table.insert(weights.files, file)
  for number, entry in ipairs(catalog:entries()) do
    table.insert(weights.tensors, {name = entry.name, tree = tree, file = #weights.files, number = number,
      shape = entry.shape, dtype = entry.dtype, encoding = entry.encoding, bytes = entry.bytes,
      layout = layouts and layouts[entry.name]})
  end
end

--- The layout that each tensor of a checkpoint's file was saved with: its text, by name.
local function layouts_of(m, file)
  local layouts = {}
  for _, row in ipairs(m.tensors[file]) do layouts[row[1]] = m.layouts[row[4]] end
  return layouts
end

local function open_checkpoint(path)
  local m, message, code = manifest.read(path)
  if not m then return nil, message, code end
  local weights = {path = path, kind = "checkpoint", files = {}, tensors = {}, trees = {}, manifest = m}
  local seen = {}
  for _, file in ipairs(m.files) do
    local catalog
    catalog, message, code = core.catalog(folder_of.inside(path, file.name))
    if not catalog then return nil, message, code end
    if not seen[file.tree] then table.insert(weights.trees, file.tree) end
    seen[file.tree] = true
    add_file(weights, file.name, folder_of.inside(path, file.name), catalog, file.tree,
      layouts_of(m, file.name))
  end
  return weights
end

--- What the path holds; or nil, message, code.
---@param path string
---@return Weights?, string? message, string? code
function M.open(path)
  path = M.real(path)
  local kind = core.path_kind(path)
  if not kind then return nil, path .. ": No such file or directory", "E_IO" end
  if kind == "other" then return nil, path .. ": it is neither a file nor a folder", "E_IO" end
  if folder_of.is_folder(path) then
    if M.is_checkpoint(path) then return open_checkpoint(path) end
    local steps, folder = M.steps(path)
    if steps then
      local newest = folder_of.inside(folder, manifest.folder(steps[#steps]))
      local weights, message, code = open_checkpoint(newest)
      if weights then weights.steps = steps end
      return weights, message, code
    end
  end
  local files, message, code = folder_of.open(path)
  if not files then return nil, message, code end
  local alone = #files == 1
  local weights = {path = path, kind = alone and files[1].catalog.format or "folder", files = {},
    tensors = {}, trees = {}}
  for _, file in ipairs(files) do
    add_file(weights, file.name:match "[^/]*$", file.catalog.path, file.catalog)
  end
  return weights
end

---@param weights Weights
function M.close(weights)
  for _, file in ipairs(weights.files) do file.catalog:close() end
end

--- A tensor's name where trees are told apart: "optimizer.mu.w".
function M.full_name(weights, t) return #weights.trees > 1 and t.tree .. "." .. t.name or t.name end

--- A tensor's dtype; of one that is quantized, or not read, how it is encoded.
function M.dtype_text(t) return t.encoding:find "_" and t.encoding or t.dtype or t.encoding end

--- "3 tensors, 1.5 GB"
function M.count_text(tensors, bytes)
  return ("%s, %s"):format(lib.count(tensors, "tensor"), core.bytes_text(bytes))
end

--- The bytes of all its files.
function M.bytes(weights)
  local bytes = 0
  for _, file in ipairs(weights.files) do bytes = bytes + file.bytes end
  return bytes
end

return M
