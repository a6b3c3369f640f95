-- check.lua: the verb `check`: are files of tensors whole? Of a checkpoint every byte is held against its hash; other
-- files have none, and are held against the rules of their format.
local core = require "meshlua.core"
local folder_of = require "meshlua.checkpoint.folder"
local json = require "meshlua.train.json"
local lib = require "meshlua.lib"
local manifest = require "meshlua.checkpoint.manifest"
local weights_of = require "meshlua.program.weights"

local M = {}

--- What is found of one thing: {path, broken = texts, said = what was checked}.
local function result(path) return {path = path, broken = {}} end

local function note(found, fmt, ...) table.insert(found.broken, lib.format(fmt, ...)) end

--- Units of a file whose hashes are others, told by tensor; how many units there are.
local function check_units(found, path, catalog, rows, units)
  local numbers, count = {}, 0
  for number, entry in ipairs(catalog:entries()) do numbers[entry.name] = number end
  for i, list in ipairs(units) do
    local name, number, bad = rows[i][1], numbers[rows[i][1]], 0
    local first, message
    for _, unit in ipairs(number and list or {}) do
      local hash, why = core.hash_unit(catalog, number, unit[3], unit[4])
      message = message or why
      if hash and hash ~= unit[5] then
        bad, first = bad + 1, first or unit
      end
      count = count + 1
    end
    if message then note(found, "%s", message) end
    if not number then note(found, "%s: it has no tensor %s", path, name) end
    if first then
      for d, at in ipairs(first[3]) do first[3][d] = at + 1 end
      note(found, "%s: %s: %d of %d units have another hash; the first is %s from %s on", path, name, bad,
        #list, lib.shape_text(first[4]), lib.shape_text(first[3]))
    end
  end
  return count
end

local function check_file(found, folder, m, i, units)
  local file, path = m.files[i], folder_of.inside(folder, m.files[i].name)
  local catalog, message = core.catalog(path)
  if not catalog then return note(found, "%s", message) or 0 end
  local handle <close> = io.open(path, "rb")
  if core.hash128(handle and handle:read(file.header_bytes) or "") ~= file.header then
    note(found, "%s: its header has another hash", path)
  end
  local count = check_units(found, path, catalog, m.tensors[file.name], units[i])
  catalog:close()
  return count
end

local function check_checkpoint(path)
  local found, count, bytes = result(path), 0, 0
  local m, message = manifest.read(path, manifest.step(path:match "([^/]+)/*$" or ""))
  if not m then return note(found, "%s", message) or found end
  for _, text in ipairs(m.texts) do
    local ok, why = manifest.text(path, m, text.name)
    if not ok then note(found, "%s", why) end
  end
  if #found.broken > 0 then return found end
  local units, why = manifest.units(path, m)
  if not units then return note(found, "%s", why) or found end
  for i, file in ipairs(m.files) do
    count, bytes = count + check_file(found, path, m, i, units), bytes + file.bytes
  end
  found.said = ("step %d, %s, %s, %s, hashes equal"):format(m.step, lib.count(#m.files, "file"),
    core.bytes_text(bytes), lib.count(count, "unit"))
  return found
end

local function check_plain(path)
  local found = result(path)
  local weights, message = weights_of.open(path)
  if not weights then return note(found, "%s", message) or found end
  found.said = ("%s, %s; no hashes: headers and sizes alone were checked"):format(weights.kind,
    weights_of.count_text(#weights.tensors, weights_of.bytes(weights)))
  weights_of.close(weights)
  return found
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
