-- types.lua: the public names as annotations for lua-language-server: made from the rows, so that an editor completes
-- and checks what the library checks. `meshlua --types` prints them.
local exports = require "meshlua.exports"
local lib = require "meshlua.lib"

local M = {}

local modules = {random = "ml.random", linalg = "ml.linalg", tree = "ml.tree", nn = "ml.nn",
  initializers = "ml.nn.initializers", optim = "ml.optim", schedule = "ml.schedule", data = "ml.data",
  metrics = "ml.metrics", train = "ml.train", profile = "ml.profile", checkpoint = "ml.checkpoint",
  remat_policies = "ml.remat_policies"}

--- Words of rows that are no types of annotations.
local words = {axes = "integer|integer[]", dtype = "DType", integers = "integer|integer[]", key = "Tensor",
  padding = '"same"|"valid"|integer[][]', shape = "integer|integer[]", tree = "Tensor|table|number"}

--- Classes whose methods' rows have another word in front.
local classes = {jit = "JittedFunction", tokens = "Tokens", module = "Module"}

--- What stands in a class beside its rows. (A layer is a Module; a Param is taken wherever a tensor is.)
local heads = {
  Tensor = {"", "---@operator add(Tensor|number): Tensor", "---@operator sub(Tensor|number): Tensor",
    "---@operator mul(Tensor|number): Tensor", "---@operator div(Tensor|number): Tensor",
    "---@operator mod(Tensor|number): Tensor", "---@operator idiv(Tensor|number): Tensor",
    "---@operator pow(Tensor|number): Tensor", "---@operator band(Tensor|integer): Tensor",
    "---@operator bor(Tensor|integer): Tensor", "---@operator bxor(Tensor|integer): Tensor",
    "---@operator shl(Tensor|integer): Tensor", "---@operator shr(Tensor|integer): Tensor",
    "---@operator unm: Tensor", "---@operator bnot: Tensor", "---@operator len: integer"},
  Param = {": Tensor"},
  JittedFunction = {"", "---@overload fun(...: any): any"},
}

--- A type of rows as one of annotations.
local function type_text(text)
  local seen, list = {}, {}
  for _, word in ipairs(exports.alternatives(text)) do
    word = word:gsub("^%*", "")
    local entry = word:match "^%((.*)%)%[%]$" or word:match "^([%w_]+)%[%]$"
    if entry then
      entry = type_text(entry)
      word = (entry:find("|", 1, true) and "(" .. entry .. ")" or entry) .. "[]"
    end
    for _, one in ipairs(exports.alternatives(words[word] or word)) do
      if not seen[one] then list[#list + 1] = one end
      seen[one] = true
    end
  end
  return table.concat(list, "|")
end

--- The table behind a row's parameters: {causal?: boolean, scale?: number}.
local function options_text(row)
  local fields = {}
  for name, kind in pairs(row.options or {}) do fields[#fields + 1] = name .. "?: " .. type_text(kind) end
  table.sort(fields)
  for i = row.names and #row.params or 0, row.required + 1, -1 do
    table.insert(fields, 1, row.params[i].name .. "?: " .. type_text(row.params[i].type))
  end
  return "{" .. table.concat(fields, ", ") .. "}"
end

--- The results of a row, for a line each or for fun(...): "a, b".
local function results_of(row)
  local list = {}
  for result in row.results:gmatch "[^%s,]+" do
    list[#list + 1] = result == "..." and "any ..." or type_text(result)
  end
  return list
end

--- fun(...) for another way to call a row's function, with a table of options behind what must be given; its
--- parameters from the first-th on.
local function fun_text(row, first, with_options)
  local list = {}
  for i = first, with_options and row.required or #row.params do
    local p = row.params[i]
    list[#list + 1] = p.name .. (p.optional and "?: " or ": ") .. type_text(p.type)
  end
  if with_options then list[#list + 1] = "options: " .. options_text(row)
  elseif row.variadic then list[#list + 1] = "...: " .. type_text(row.variadic)
  elseif row.options then list[#list + 1] = "options?: " .. options_text(row) end
  local result = results_of(row)[1]
  return "fun(" .. table.concat(list, ", ") .. ")" .. (result and ": " .. result:gsub(" .*", "") or "")
end

--- Adds a function under a name, of a class's method "Tensor:sum".
local function add_function(lines, row, name)
  local names, of = {}, name:match "^(%w+):"
  lines[#lines + 1] = "--- " .. row.doc
  for i = of and 2 or 1, #row.params do
    local p = row.params[i]
    names[#names + 1] = p.name
    lines[#lines + 1] = "---@param " .. p.name .. (p.optional and "? " or " ") .. type_text(p.type)
  end
  if row.variadic then
    names[#names + 1] = "..."
    lines[#lines + 1] = "---@param ... " .. type_text(row.variadic)
  elseif row.options and not row.names then
    names[#names + 1] = "options"
    lines[#lines + 1] = "---@param options? " .. options_text(row)
  end
  for _, result in ipairs(results_of(row)) do lines[#lines + 1] = "---@return " .. result end
  if row.names then
    local text = fun_text(row, of and 2 or 1, true)
    if of then text = text:gsub("^fun%(", "fun(self: " .. of .. ", ") end
    lines[#lines + 1] = "---@overload " .. text
  end
  lines[#lines + 1] = "function " .. name .. "(" .. table.concat(names, ", ") .. ") end\n"
end

--- The rows in their order: those of the modules, and of each class what it has; the classes' names, in order.
local function sorted()
  local functions, of, names = {}, {}, {}
  local function class(name)
    name = classes[name] or name
    if not of[name] then names[#names + 1], of[name] = name, {fields = {}, methods = {}} end
    return of[name]
  end
  for _, name in ipairs(exports.names()) do
    local row = exports.row(name)
    local owner, own = name:match "^([%w_]+)[.:]([%w_]+)$"
    if row.field then table.insert(class(owner).fields, {own, row})
    elseif name:find(":", 1, true) then
      table.insert(class(owner).methods, {own, row})
    else
      functions[#functions + 1] = row
      if row.family == "tensor" then table.insert(class("Tensor").methods, {name, row}) end
      if name:find "^nn%.%u" then class(own) end
    end
  end
  return functions, of, names
end

local function add_class(lines, name, class, is_layer)
  local head = heads[name] or {is_layer and ": Module" or ""}
  lines[#lines + 1] = "---@class " .. name .. head[1]
  table.move(head, 2, #head, #lines + 1, lines)
  for _, method in ipairs(class.methods) do
    if method[1] == "__call" then lines[#lines + 1] = "---@overload " .. fun_text(method[2], 2) end
  end
  for _, field in ipairs(class.fields) do
    lines[#lines + 1] = ("---@field %s %s %s"):format(field[1], type_text(field[2].field), field[2].doc)
  end
  lines[#lines + 1] = "local " .. name .. " = {}\n"
  for _, method in ipairs(class.methods) do
    if method[1] ~= "__call" then add_function(lines, method[2], name .. ":" .. method[1]) end
  end
end

--- All of it: a file that is never run, `require "meshlua"` to the editor.
---@return string
function M.text()
  local lines = {"---@meta meshlua", "-- Made by `meshlua --types`: the public names, for editors.\n",
    '---@alias DType "' .. table.concat(lib.dtypes, '"|"') .. '"\n'}
  local functions, of, names = sorted()
  for _, name in ipairs(names) do
    add_class(lines, name, of[name], exports.row("nn." .. name) or exports.row("metrics." .. name))
  end
  lines[#lines + 1] = "---@class meshlua"
  lines[#lines + 1] = 'local ml = {Auto = "auto", Explicit = "explicit", Manual = "manual"}\n'
  local places = {}
  for _, place in pairs(modules) do places[#places + 1] = place .. " = {}" end
  table.sort(places) -- ml.nn before ml.nn.initializers
  lines[#lines + 1] = table.concat(places, "\n") .. "\n"
  for _, row in ipairs(functions) do
    local module, own = row.name:match "^([%w_]+)%.([%w_]+)$"
    add_function(lines, row, module and modules[module] .. "." .. own or "ml." .. row.name)
  end
  lines[#lines + 1] = "return ml\n"
  return table.concat(lines, "\n")
end

return M
