-- check.lua: is a checkpoint whole? Every byte of it is held against its hash, without a model or a mesh.
local core = require "meshlua.core"
local lib = require "meshlua.lib"
local manifest = require "meshlua.checkpoint.manifest"

local M = {}

local function note(broken, fmt, ...) broken[#broken + 1] = lib.format(fmt, ...) end

--- Notes a tensor that is missing, cannot be read, or has units with other hashes.
local function check_tensor(broken, file, name, units)
  local number, bad, first = file.number[name], 0, nil
  if not number then return note(broken, "%s: it has no tensor %s", file.path, name) end
  for _, unit in ipairs(units) do
    local hash, message = core.hash_unit(file.catalog, number, unit[3], unit[4])
    if not hash then return note(broken, "%s", message) end
    if hash ~= unit[5] then bad, first = bad + 1, first or unit end
  end
  if first then
    for d, at in ipairs(first[3]) do first[3][d] = at + 1 end
    note(broken, "%s: %s: %d of %d units have another hash; the first is %s from %s on", file.path, name, bad,
      #units, lib.shape_text(first[4]), lib.shape_text(first[3]))
  end
end

--- Reads all of a step's folder.
---@param folder string
---@return table? manifest nil: it is not whole
---@return string[]|integer broken what is wrong; of one that is whole how many units it has
function M.checkpoint(folder)
  local m, message = manifest.read(folder, manifest.step(folder:match "([^/]+)/*$" or ""))
  if not m then return nil, {message} end
  local broken, count = {}, 0
  for _, text in ipairs(m.texts) do
    local ok, why = manifest.text(folder, m, text.name)
    if not ok then note(broken, "%s", why) end
  end
  if #broken > 0 then return nil, broken end
  local units, fault = manifest.units(folder, m)
  if not units then return nil, {fault} end
  for i, of_file in ipairs(units) do
    local file, why = manifest.open(folder, m.files[i])
    if not file then note(broken, "%s", why) end
    for k, of_tensor in ipairs(file and of_file or {}) do
      check_tensor(broken, file, m.tensors[m.files[i].name][k][1], of_tensor)
      count = count + #of_tensor
    end
    if file then file.catalog:close() end
  end
  if #broken > 0 then return nil, broken end
  return m, count
end

return M
