-- manifest.lua: what a checkpoint's folder holds, as data and as text. Every process knows all of it without
-- asking another, but for the hashes, which parts bring: a file of each process with the boxes (units) it wrote
-- and the hash of each. The manifest names the layout that was saved by mesh and spec, never box by box.
--
-- A text of ours ends with its own hash, so that a changed byte is noticed.
local core = require "meshlua.core"
local encoding_of = require "meshlua.checkpoint.encoding"
local folder_of = require "meshlua.checkpoint.folder"
local json = require "meshlua.train.json"
local lib = require "meshlua.lib"
local tree = require "meshlua.tree"

local M = {VERSION = 1, NAME = "manifest.json", STATE = "state.json"}

local LARGEST_FILE = 8 << 30 -- bytes: a tree that has more lies in several
local LARGEST_TEXT = 1 << 28

--- The name of a step's folder.
function M.folder(step) return ("step-%08d"):format(step) end

--- The step of a folder's name, or nil.
function M.step(name)
  local digits = name:match "^step%-(%d+)$"
  local step = digits and math.tointeger(tonumber(digits))
  return step and M.folder(step) == name and step or nil
end

--- The steps whose folders have their names, ascending: from the disk each time.
---@param folder string
---@return integer[]
function M.steps(folder)
  local steps = {}
  for _, name in ipairs(core.list_folder(folder) or {}) do
    steps[#steps + 1] = M.step(name)
  end
  table.sort(steps)
  return steps
end

--- The name of a process's part.
function M.part(process) return ("part-%04d.json"):format(process) end

-- ---- the plan of a save -----------------------------------------------------------------------------

---@class SavedTensor
---@field name string
---@field leaf Tensor|Param|TensorType
---@field index integer its place among all, from 0: who writes it goes by that
---@field encoding string
---@field bytes integer

--- The tensors of a tree, as they lie in its files: those of wide elements first.
local function tensors_of(key, root, first)
  local list = {}
  tree.visit(root, function(path, leaf)
    local encoding = encoding_of.of[leaf.dtype]
    list[#list + 1] = {name = path ~= "" and path or key, leaf = leaf, index = first + #list,
      encoding = encoding, bytes = encoding_of.bytes(encoding, leaf.shape), dtype = leaf.dtype,
      shape = leaf.shape}
  end)
  table.sort(list, encoding_of.wide_first)
  return list
end

--- Gives a file its header and its size, and its tensors where each begins.
local function lay(file)
  local made, message, code = core.catalog_layout("safetensors", file.entries, {format = "pt"})
  if not made then return nil, message, code end
  for i, t in ipairs(file.entries) do t.begin = made.begin[i] end
  file.header, file.size = made.header, made.size
  return file
end

---@class SavePlan
---@field files {name: string, tree: string, header: string, size: integer, entries: SavedTensor[]}[]
---@field bytes integer of all of them
---@field indexes {[1]: string, [2]: string}[] names and texts of the index files of trees in several files

--- What a save of these trees writes. Every process makes the same.
---@param trees table<string, table>
---@param most integer? bytes of a file
---@return SavePlan? plan, string? message, string? code
function M.plan(trees, most)
  local plan, count = {files = {}, bytes = 0, indexes = {}}, 0
  for _, key in ipairs(lib.names(trees)) do
    local list = tensors_of(key, trees[key], count)
    local files = folder_of.shards(list, most or LARGEST_FILE, key)
    count = count + #list
    for _, file in ipairs(files) do
      file.tree = key
      local ok, message, code = lay(file)
      if not ok then return nil, message, code end
      plan.bytes = plan.bytes + file.size
      plan.files[#plan.files + 1] = file
    end
    if #files > 1 then
      plan.indexes[#plan.indexes + 1] = {key .. ".safetensors.index.json", folder_of.index_text(files)}
    end
  end
  return plan
end

-- ---- texts with a hash ------------------------------------------------------------------------------

local TAIL = ',"hash":"%s"}\n'

--- The text of an object, with its own hash as the last key.
---@param object table
---@param order string[]? its keys, in order
---@return string
function M.seal(object, order)
  local text = json.encode(object, order, true):sub(1, -2)
  return text .. TAIL:format(core.hash128(text))
end

--- The object of such a text; or nil, and what is wrong.
---@param text string
---@return table? object, string? fault
function M.unseal(text)
  local body, hash = text:match '^(.*),"hash":"(%x+)"}\n$'
  if not body then return nil, "it is cut short, or no text of a checkpoint" end
  if core.hash128(body) ~= hash then return nil, "its hash is another: bytes have changed" end
  local object, fault = core.json(body .. "}")
  if type(object) ~= "table" then return nil, fault or "it is no object" end
  return object
end

--- Reads such a file; nil, message, code where it is not whole.
---@param path string
---@return table?, string? message, string? code
function M.read_sealed(path)
  local text, message = core.read_file(path, LARGEST_TEXT)
  if not text then return nil, message, "E_IO" end
  local object, fault = M.unseal(text)
  if not object then return nil, ("%s: %s"):format(path, fault), "E_IO" end
  return object, text
end

-- ---- the layout -------------------------------------------------------------------------------------

--- Numbers of texts, in the order of their first use.
local function numbering()
  local list, at = {}, {}
  return list, function(text)
    if not at[text] then
      list[#list + 1] = text
      at[text] = #list
    end
    return at[text]
  end
end

local function mesh_text(mesh)
  local words = {}
  for i, name in ipairs(mesh.axis_names) do words[i] = name .. ":" .. mesh.shape[name] end
  return table.concat(words, ",")
end

--- The layouts in use, as texts "data:4,model:2 P("data", nil)", and a row for each tensor of each file:
--- name, dtype, shape, number of its layout (0: on one device).
---@param plan SavePlan
---@return string[] layouts, table<string, table[]> tensors
function M.layouts(plan)
  local layouts, number = numbering()
  local tensors = {}
  for _, file in ipairs(plan.files) do
    local rows = {}
    for i, t in ipairs(file.entries) do
      local sharding, layout = t.leaf.sharding, 0
      if sharding and sharding.mesh then
        layout = number(mesh_text(sharding.mesh) .. " " .. tostring(sharding.spec))
      end
      rows[i] = {t.name, t.dtype, json.list(t.shape), layout}
    end
    tensors[file.name] = rows
  end
  return layouts, tensors
end

--- Everything of the manifest but hashes, which process 0 adds.
---@param plan SavePlan
---@param step integer
---@param more {metrics: table?, nonce: string, processes: integer}
---@return table
function M.make(plan, step, more)
  local layouts, tensors = M.layouts(plan)
  local files = {}
  for i, file in ipairs(plan.files) do
    files[i] = {name = file.name, tree = file.tree, bytes = file.size, header_bytes = #file.header,
      header = core.hash128(file.header), hash = ""}
  end
  return {checkpoint = M.VERSION, step = step, processes = more.processes, nonce = more.nonce,
    metrics = more.metrics, layouts = layouts, files = files, texts = {}, tensors = tensors}
end

M.ORDER = {"checkpoint", "step", "processes", "nonce", "metrics", "layouts", "files", "texts", "tensors"}

-- ---- parts ------------------------------------------------------------------------------------------

--- The text of a process's part: units are {file, tensor (numbers from 1), at, size, hash}.
---@param process integer
---@param units table[]
---@return string
function M.part_text(process, units)
  return M.seal({process = process, units = units}, {"process", "units"})
end

local function is_before(a, b)
  for d = 1, #a[3] do
    if a[3][d] ~= b[3][d] then return a[3][d] < b[3][d] end
  end
  return false
end

--- The units of all parts by file and tensor, in order; nil and what is wrong where they do not have every
--- element of every tensor.
---@param parts table[] as read
---@param rows fun(file: integer): table[]? rows of its tensors: {name, dtype, shape}
---@param names string[] of the files
---@return table<integer, table<integer, table[]>>? units, string? fault
function M.gather(parts, rows, names)
  local units = {}
  for file in ipairs(names) do
    units[file] = {}
    for i in ipairs(rows(file)) do units[file][i] = {} end
  end
  for _, part in ipairs(parts) do
    for _, unit in ipairs(type(part.units) == "table" and part.units or {}) do
      local of = units[unit[1]] and units[unit[1]][unit[2]]
      if not of then return nil, "a part names a tensor that the manifest lacks" end
      of[#of + 1] = unit
    end
  end
  for file, name in ipairs(names) do
    for i, row in ipairs(rows(file)) do
      local list, have = units[file][i], 0
      for _, unit in ipairs(list) do have = have + lib.product(unit[4]) end
      if have ~= lib.product(row[3]) then
        return nil, ("%s: %s: %d of %d elements were written"):format(name, row[1], have, lib.product(row[3]))
      end
      table.sort(list, is_before)
    end
  end
  return units
end

--- The hash of a file: of the hashes of its units, tensor by tensor.
---@param units table<integer, table[]>
---@return string
function M.file_hash(units)
  local words = {}
  for _, list in ipairs(units) do
    for _, unit in ipairs(list) do words[#words + 1] = unit[5] end
  end
  return core.hash128(table.concat(words))
end

-- ---- reading ----------------------------------------------------------------------------------------

--- What is wrong with a manifest as read, or nil.
local function objection(m, step)
  if type(m.checkpoint) ~= "number" then return "it is no manifest" end
  if m.checkpoint > M.VERSION then
    return ("it is of a later version (%s; this one reads up to %d)"):format(m.checkpoint, M.VERSION)
  end
  if step and m.step ~= step then return ("it is of step %s"):format(m.step) end
  for _, key in ipairs {"files", "texts", "tensors", "layouts"} do
    if type(m[key]) ~= "table" then return "it lacks " .. key end
  end
  for _, list in ipairs {m.files, m.texts} do
    for _, file in ipairs(list) do
      if type(file) ~= "table" or not folder_of.is_plain(file.name) then
        local name = type(file) == "table" and file.name
        return ("it names a file outside its folder (%s)"):format(lib.text(name))
      end
    end
  end
  for _, file in ipairs(m.files) do
    if type(m.tensors[file.name]) ~= "table" then return "it lacks the tensors of " .. file.name end
  end
  return nil
end

--- The manifest of a checkpoint's folder, its files there and of the right size; or nil, message, code.
---@param folder string
---@param step integer?
---@return table?, string? message, string? code
function M.read(folder, step)
  local kind = core.path_kind(folder)
  if kind ~= "folder" then
    return nil, ("%s: %s"):format(folder, kind and "it is no folder" or "there is no such folder"), "E_IO"
  end
  local m, message, code = M.read_sealed(folder .. "/" .. M.NAME)
  if not m then return nil, message, code end
  local fault = objection(m, step)
  if fault then return nil, ("%s/%s: %s"):format(folder, M.NAME, fault), "E_IO" end
  for _, list in ipairs {m.files, m.texts} do
    for _, file in ipairs(list) do
      local path = folder .. "/" .. file.name
      local what, bytes = core.path_kind(path)
      if what ~= "file" then
        return nil, ("%s: %s"):format(path, what and "it is a " .. what .. ", not a file" or "it is missing"),
          "E_IO"
      elseif bytes ~= file.bytes then
        return nil, ("%s: %d bytes, and the manifest says %s"):format(path, bytes, file.bytes), "E_IO"
      end
    end
  end
  return m
end

--- A file of tensors, open, its header held against the manifest; or nil, message, code.
---@param folder string
---@param file table its row in the manifest
---@return {path: string, catalog: userdata, number: table<string, integer>}? file number: of each tensor
---@return string? message, string? code
function M.open(folder, file)
  local path, number = folder .. "/" .. file.name, {}
  local catalog, message, code = core.catalog(path)
  if not catalog then return nil, message, code end
  local handle <close> = io.open(path, "rb")
  if core.hash128(handle and handle:read(file.header_bytes) or "") ~= file.header then
    return nil, path .. ": the hash of its header is not the manifest's: bytes have changed", "E_IO"
  end
  for i, entry in ipairs(catalog:entries()) do number[entry.name] = i end
  return {path = path, catalog = catalog, number = number}
end

--- A text file of the checkpoint, held against the manifest; or nil, message, code.
---@param folder string
---@param m table the manifest
---@param name string
function M.text(folder, m, name)
  for _, file in ipairs(m.texts) do
    if file.name == name then
      local path = folder .. "/" .. name
      local text, message = core.read_file(path, LARGEST_TEXT)
      if not text then return nil, message, "E_IO" end
      if core.hash128(text) ~= file.hash then
        return nil, path .. ": its hash is not the manifest's: bytes have changed", "E_IO"
      end
      return text
    end
  end
  return nil, ("%s/%s: it names no %s"):format(folder, M.NAME, name), "E_IO"
end

--- The units of a checkpoint, by file and tensor; or nil, message, code.
---@param folder string
---@param m table the manifest
function M.units(folder, m)
  local parts, names = {}, {}
  for process = 0, m.processes - 1 do
    local text, message, code = M.text(folder, m, M.part(process))
    if not text then return nil, message, code end
    local part, fault = M.unseal(text)
    if not part then return nil, ("%s/%s: %s"):format(folder, M.part(process), fault), "E_IO" end
    parts[#parts + 1] = part
  end
  for i, file in ipairs(m.files) do names[i] = file.name end
  local units, fault = M.gather(parts, function(i) return m.tensors[names[i]] end, names)
  if not units then return nil, folder .. ": " .. fault, "E_IO" end
  for i, file in ipairs(m.files) do
    if M.file_hash(units[i]) ~= file.hash then
      return nil, ("%s/%s: the hashes of its units are not those of the manifest"):format(folder, file.name),
        "E_IO"
    end
  end
  return units
end

return M
