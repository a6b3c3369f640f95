-- diff.lua: the verb `diff`: in which numbers two files, folders or checkpoints of tensors differ, or two runs.
local core = require "meshlua.core"
local json = require "meshlua.train.json"
local lib = require "meshlua.lib"
local runs = require "meshlua.program.runs"
local weights_of = require "meshlua.program.weights"

local M = {}

local MODEL = "model" -- the tree that stands for a checkpoint beside a file that has no trees

--- The tensors that are compared, by name.
local function by_name(weights, other)
  local list, trees = {}, #weights.trees > 0 and #other.trees > 0
  local alone = not trees and lib.position(weights.trees, MODEL)
  for _, t in ipairs(weights.tensors) do
    if not alone or t.tree == MODEL then list[trees and weights_of.full_name(weights, t) or t.name] = t end
  end
  return list
end

--- The index of an element, from 1, by its row-major place from 0.
local function index_of(place, shape)
  local index = {}
  for d = #shape, 1, -1 do
    index[d] = place % shape[d] + 1
    place = place // shape[d]
  end
  return index
end

--- What is to be said of a tensor that both have; nil: nothing.
local function compare(name, a, b, x, y)
  local row = {name = name}
  local as, bs = weights_of.dtype_text(a), weights_of.dtype_text(b)
  if as ~= bs then row.dtypes = {as, bs} end
  if not lib.same_shape(a.shape, b.shape) then
    row.shapes, row.differs = {json.list(a.shape), json.list(b.shape)}, true
    return row
  end
  local found, message, code = core.catalog_compare(x.files[a.file].catalog, a.number,
    y.files[b.file].catalog, b.number)
  if not found then return nil, message, code end
  if found.count > 0 then
    row.differs, row.elements = true, found.count
    row.first = json.list(index_of(found.first, a.shape))
    row.largest, row.relative = found.largest, found.relative
  end
  return row
end

--- Everything that differs: {tensors = rows, a = names, b = names, compared = n}; or nil, message, code.
local function differences(a, b)
  local of_a, of_b = by_name(a, b), by_name(b, a)
  local found = {tensors = {}, a = {}, b = {}, compared = 0, differ = 0}
  for _, name in ipairs(lib.names(of_a)) do
    if of_b[name] then
      local row, message, code = compare(name, of_a[name], of_b[name], a, b)
      if not row then return nil, message, code end
      found.compared = found.compared + 1
      if row.differs then found.differ = found.differ + 1 end
      if row.differs or row.dtypes then found.tensors[#found.tensors + 1] = row end
    else
      found.a[#found.a + 1] = name
    end
  end
  for _, name in ipairs(lib.names(of_b)) do
    if not of_a[name] then found.b[#found.b + 1] = name end
  end
  return found
end

local function row_text(row)
  local note = row.dtypes and (" (%s and %s)"):format(row.dtypes[1], row.dtypes[2]) or ""
  if row.shapes then
    return {"  shapes", lib.shape_text(row.shapes[1]), lib.shape_text(row.shapes[2]), "",
      row.name .. note}
  end
  if not row.differs then return {"  none", "", "", "", row.name .. note} end
  return {lib.format("  %.4g", row.largest), lib.format("%.4g", row.relative), tostring(row.elements),
    lib.shape_text(row.first), row.name .. note}
end

local function print_all(found, a, b)
  if #found.tensors > 0 then
    local rows = {{"  largest", "relative", "elements", "first", "tensor"}}
    for _, row in ipairs(found.tensors) do rows[#rows + 1] = row_text(row) end
    require("meshlua.program.cli").write_table(rows)
  end
  for _, side in ipairs {{found.a, a.path}, {found.b, b.path}} do
    if #side[1] > 0 then print(("only in %s:"):format(side[2])) end
    for _, name in ipairs(side[1]) do print("  " .. name) end
  end
  local compared, alone = lib.count(found.compared, "tensor"), #found.a + #found.b
  local said = found.differ == 0 and compared .. ": equal"
    or ("%d of %s: different"):format(found.differ, compared)
  print(said .. (alone > 0 and ("; %d in one of the two alone"):format(alone) or ""))
end

---@param a string
---@param b string
---@param flags {json: boolean}
---@return integer? code, string? message, string? error
function M.run(a, b, flags)
  if runs.is_run(a) and runs.is_run(b) then
    return require("meshlua.program.run_several").diff(a, b, flags)
  end
  local x, message, code = weights_of.open(a)
  if not x then return nil, message, code end
  local y
  y, message, code = weights_of.open(b)
  if not y then return nil, message, code end
  local found
  found, message, code = differences(x, y)
  if not found then return nil, message, code end
  if flags.json then
    print(json.encode {a = x.path, b = y.path, compared = found.compared, differ = found.differ,
      tensors = json.list(found.tensors), only_a = json.list(found.a), only_b = json.list(found.b)})
  else
    print_all(found, x, y)
  end
  weights_of.close(x)
  weights_of.close(y)
  return found.differ + #found.a + #found.b > 0 and 1 or 0
end

return M
