-- api.lua: the pages of docs/api/: each public name with how it is called, what it does, and an example of
-- generate/examples.lua with what it gave.
local exports = require "meshlua.exports"
local ml = require "meshlua"
local examples = require "generate.examples"

local M = {}

--- The pages: file, title, which families of rows are on it.
local pages = {
  {"tensor.md", "Tensors", {"tensor"}},
  {"make.md", "Making tensors, and random numbers", {"ops"}},
  {"linalg.md", "Matrices", {"linalg"}},
  {"sharding.md", "Meshes, shardings, collectives", {"sharding"}},
  {"transform.md", "jit, gradients, loops, trees", {"transform"}},
  {"nn.md", "Layers", {"nn"}},
  {"optim.md", "Optimizers and schedules", {"optim"}},
  {"tools.md", "Files, data, training, asking", {"checkpoint", "tools"}},
}

--- What stands in front of a row's name where it is called; of the methods of a class the class alone.
local modules = {initializers = "ml.nn.initializers"}

--- How it is called: "ml.matmul", "ml.random.key", "Mesh:with", "Tensor.shape".
local function called(row)
  local of = row.name:match "^([%w_]+)[.:]"
  local of_value = row.field or row.name:find ":" or of and of:find "^%u"
  if of_value then return row.name end
  return (modules[of] and modules[of] or "ml" .. (of and "." .. of or "")) .. "." .. row.name:match "[%w_]+$"
end

--- The row's line in pieces of a width, cut behind commas.
local function folded(text)
  local lines, line = {}, ""
  for piece in (text .. ", "):gmatch "(.-, )" do
    if #line + #piece > 104 then
      lines[#lines + 1], line = line:gsub("%s+$", ""), "    "
    end
    line = line .. piece
  end
  lines[#lines + 1] = line:gsub(", $", "")
  return table.concat(lines, "\n")
end

-- ---- examples ---------------------------------------------------------------------------------------

--- What examples see. Each has a fresh one.
local function surroundings()
  local mesh = ml.make_mesh({4, 2}, {"data", "model"})
  return setmetatable({ml = ml, nn = ml.nn, optim = ml.optim, P = ml.P, mesh = mesh,
    NamedSharding = ml.NamedSharding, key = ml.random.key(0), x = ml.tensor {{1.0, 2, 3}, {4, 5, 6}}},
    {__index = _G})
end

--- Runs an example: an expression, or statements; the texts of what it printed and returned.
local function run(name, text)
  local env, printed = surroundings(), {}
  function env.print(...)
    local words = table.pack(...)
    for i = 1, words.n do words[i] = tostring(words[i]) end
    printed[#printed + 1] = table.concat(words, "\t")
  end
  local chunk = load("return " .. text, "=" .. name, "t", env) or assert(load(text, "=" .. name, "t", env))
  local values = table.pack(chunk())
  for i = 1, values.n do
    if values[i] ~= nil then printed[#printed + 1] = ml.show(values[i], {precision = 4, width = 90}) end
  end
  return table.concat(printed, "\n")
end

--- Families of which every function has an example; of the others what needs more than a few lines has none.
local with_examples = {tensor = true, ops = true, nn = true, optim = true}

local function example_text(name)
  local text = examples[name]
  if not text and with_examples[exports.row(name).family] then
    error(name .. " has no example in docs/generate/examples.lua", 0)
  end
  if not text then return "" end
  local shown = run(name, text)
  shown = shown ~= "" and "--> " .. shown:gsub("\n", "\n--> "):gsub(" +\n", "\n") .. "\n" or ""
  return ("\n```lua\n%s\n%s```\n"):format(text, shown)
end

-- ---- pages ------------------------------------------------------------------------------------------

local function entry(row)
  local name = called(row)
  local head = ("### %s\n\n"):format(name)
  if row.field then return ("%s`%s: %s` %s\n"):format(head, name, row.field, row.doc) end
  local text = name .. row.text:sub(#row.name + 1)
  if row.name:find ":__call$" then text = text:gsub(":__call%([%w_]+: %w+,? ?", "(") end
  if row.family == "tensor" and not row.name:find ":" and row.params[1] then
    text = text .. ("\nx:%s(%s)"):format(row.name, #row.params > 1 and "..." or "")
  end
  local lines = {}
  for line in text:gmatch "[^\n]+" do lines[#lines + 1] = folded(line) end
  local doc = row.doc:gsub("%]%(", "]\\(") -- no link
  return ("%s```\n%s\n```\n\n%s\n%s"):format(head, table.concat(lines, "\n"), doc, example_text(row.name))
end

local NOTE = [[
Made from the table of public names (`lualib/meshlua/exports/`) by `docs/generate.lua`, which ran the
examples. They begin with:

```lua
local ml = require "meshlua"                                -- meshlua --devices=8
local nn, optim, P, NamedSharding = ml.nn, ml.optim, ml.P, ml.NamedSharding
local mesh = ml.make_mesh({4, 2}, {"data", "model"})
local key = ml.random.key(0)
local x = ml.tensor {{1.0, 2, 3}, {4, 5, 6}}
```
]]

local SIGNATURES = [[
`name: type?` may be left out; `{a: type}` is a table of options, each of which may be left out; `...` are
any more. Types joined by `|` are alternatives, `T[]` is a list. *axes* are one axis or a list (from 1;
negative from the end), *shape* a list of sizes, *dtype* a name such as `"float32"`, *tree* a tensor or a
table with tensors.
]]

--- The pages: name -> text.
---@return table<string, string>
function M.pages()
  local made, index = {}, {"# The library, name by name\n", NOTE, SIGNATURES}
  local unknown = {}
  for name in pairs(examples) do unknown[name] = true end
  for _, page in ipairs(pages) do
    local file, title, families = table.unpack(page)
    local lines, names = {"# " .. title .. "\n", NOTE}, {}
    for _, name in ipairs(exports.names()) do
      local row = exports.row(name)
      if (families[1] == row.family or families[2] == row.family) then
        unknown[name] = nil
        lines[#lines + 1] = entry(row)
        local shown = called(row)
        names[#names + 1] = ("[%s](%s#%s)"):format(shown, file, shown:lower():gsub("[^%w_-]", ""))
      end
    end
    made[file] = table.concat(lines, "\n")
    index[#index + 1] = ("## [%s](%s)\n\n%s\n"):format(title, file, table.concat(names, ",\n"))
  end
  assert(next(unknown) == nil, ("an example of %s, which has no row"):format(next(unknown)))
  made["README.md"] = table.concat(index, "\n")
  return made
end

return M
