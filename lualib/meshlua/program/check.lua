-- check.lua: the verb `check`: are files of tensors whole? Of a checkpoint every byte is held against its hash; other
-- files have none, and are held against the rules of their format.
local check = require "meshlua.checkpoint.check"
local core = require "meshlua.core"
local folder_of = require "meshlua.checkpoint.folder"
local json = require "meshlua.train.json"
local lib = require "meshlua.lib"
local manifest = require "meshlua.checkpoint.manifest"
local weights_of = require "meshlua.program.weights"

local M = {}

--- What is found of one thing: {path, broken = texts, said = what was checked}.
local function check_checkpoint(path)
  local m, units = check.checkpoint(path)
  if not m then return {path = path, broken = units} end
  local bytes = 0
  for _, file in ipairs(m.files) do bytes = bytes + file.bytes end
  local said = ("step %d, %s, %s, %s, hashes equal"):format(m.step, lib.count(#m.files, "file"),
    core.bytes_text(bytes), lib.count(units, "unit"))
  return {path = path, broken = {}, said = said}
end

local function check_plain(path)
  local weights, message = weights_of.open(path)
  if not weights then return {path = path, broken = {message}} end
  local said = ("%s, %s; no hashes: headers and sizes alone were checked"):format(weights.kind,
    weights_of.count_text(#weights.tensors, weights_of.bytes(weights)))
  weights_of.close(weights)
  return {path = path, broken = {}, said = said}
end

local function check_all(path)
  if not folder_of.is_folder(path) then return {check_plain(path)} end
  if weights_of.is_checkpoint(path) then return {check_checkpoint(path)} end
  local steps, folder = weights_of.steps(path)
  if not steps then return {check_plain(path)} end
  local list = {}
  for i, step in ipairs(steps) do
    list[i] = check_checkpoint(folder_of.inside(folder, manifest.folder(step)))
  end
  return list
end

---@param path string
---@param flags {json: boolean}
---@return integer? code, string? message, string? error
function M.run(path, flags)
  path = weights_of.real(path)
  local kind = core.path_kind(path)
  if kind ~= "file" and kind ~= "folder" then
    return nil, path .. (kind and ": it is neither a file nor a folder" or ": No such file or directory"),
      "E_IO"
  end
  local list, broken = check_all(path), 0
  for _, found in ipairs(list) do
    broken = broken + #found.broken
    if not flags.json then
      if #found.broken == 0 then print(found.path .. ": " .. found.said) end
      for _, line in ipairs(found.broken) do print("broken: " .. line) end
    end
  end
  if flags.json then
    for _, found in ipairs(list) do found.broken = json.list(found.broken) end
    print(json.encode {path = path, whole = broken == 0, checked = json.list(list)})
  end
  return broken > 0 and 1 or 0
end

return M
