-- Every public name has a row in the table of exports, every row is there, and both have the same parameters.
local gate = require "gate"
local exports = require "meshlua.exports"
local ml = require "meshlua"
local all = require "meshlua.exports.all"

local core = ml.core
local functions, fields, rows, looked = all.functions(), all.fields(), {}, 0

--- Methods of tables: there is an object of theirs in the specs.
local of_tables = {At = true, Records = true, Batches = true, Tokenizer = true, Manager = true, Traced = true,
  Lowered = true, Compiled = true, DistributedConfig = true, module = true, Trainer = true, Cache = true,
  Past = true, ChatTemplate = true}

for _, name in ipairs(exports.names()) do
  looked = looked + 1
  if rows[name] then gate.fail(name, "it has two rows") end
  local ok, row = pcall(exports.row, name)
  if not ok then gate.fail(name, "its row cannot be read: %s", row) else rows[name] = row end
end

--- The names of a Lua function's parameters, and whether it takes more; nil for a C function.
local function parameters(fn)
  local inner = core.unwrap(fn)
  local info, names = debug.getinfo(inner, "uS"), {}
  if info.what == "C" then return nil end
  for i = 1, info.nparams do names[i] = debug.getlocal(inner, i) end
  return names, info.isvararg
end

for name, fn in pairs(functions) do
  looked = looked + 1
  local row = rows[name]
  if not row then gate.fail(name, "it has no row") end
  local names, variadic = nil, nil
  if row and type(fn) == "function" then names, variadic = parameters(fn) end
  if names and not (variadic and #names == 0) then
    for i, p in ipairs(row.params) do
      if names[i] ~= p.name then
        gate.fail(name, "parameter %d is %s, and %s in its row", i, names[i], p.name)
      end
    end
    local more = #names - #row.params
    if more ~= (row.options and not row.variadic and 1 or 0) then
      gate.fail(name, "it has %d parameters, its row %d", #names, #row.params)
    end
    if variadic ~= (row.variadic ~= nil) then gate.fail(name, "its row and it differ in ...") end
  end
end
for name in pairs(fields) do
  looked = looked + 1
  if not rows[name] then gate.fail(name, "the field has no row") end
end
for name, row in pairs(rows) do
  local of, method = name:match "^(%w+):(.*)$"
  local is_there = row.field or functions[name] or of_tables[of] or method == "__call"
    or of == "Tensor" and core.methods "meshlua.Tensor"[method]
  if not is_there then gate.fail(name, "there is no such function") end
  if #row.doc == 0 or not row.doc:find "[.!?]$" then gate.fail(name, "its row says nothing") end
  for _, p in ipairs(row.params) do
    for _, kind in ipairs(exports.alternatives(p.type)) do
      local word = kind:gsub("^%*", ""):gsub("%[%]$", "")
      if not word:find '^["(%u]' and not exports.kinds[word] then -- %u: a class
        gate.fail(name, "the type %s of %s is not known", kind, p.name)
      end
    end
  end
end
gate.finish(looked, [[a public name has a row in lualib/meshlua/exports/, in the file of its family; see
lualib/meshlua/exports/init.lua for how it is written.]])
