-- held.lua: what is public, as it is there, and that it has a row. Where the library verifies itself, a name without one
-- does not start; tests/gate/exports_gate.lua asks the same of all names, and of their parameters.
local core = require "meshlua.core"
local exports = require "meshlua.exports"
local lib = require "meshlua.lib"

local M = {}

local TYPES = {"Tensor", "Param", "Mesh", "P", "NamedSharding", "jit", "Plan", "Program", "tokens"}

--- Methods of classes that say what to write instead.
local elsewhere = {step = true}

local function is_class(value)
  local meta = type(value) == "table" and getmetatable(value)
  return type(meta) == "table" and meta.__call and meta.__name
end

--- Calls visit(name, value) for the functions and classes of a module, and the methods of those.
---@param prefix string of their rows: "nn.", or a class of methods as "Records:"
---@param module table
---@param visit fun(name: string, value: any)
function M.each(prefix, module, visit)
  for key, value in next, module do
    local named = type(key) == "string" and key:sub(1, 2) ~= "__"
    if named and (type(value) == "function" or is_class(value)) then visit(prefix .. key, value) end
    for name, method in next, is_class(value) and getmetatable(value).__index or {} do
      if name ~= "init" and not elsewhere[name] then visit(key .. ":" .. name, method) end
    end
  end
end

--- The same for the methods of userdata that are not functions of `ml` as well.
---@param ml table
---@param visit fun(name: string, value: any)
function M.each_method(ml, visit)
  local of_tensors = core.methods "meshlua.Tensor"
  for _, of in ipairs(TYPES) do
    for key, method in next, core.methods("meshlua." .. of) do
      local shared = (of == "Tensor" or of == "Param") and rawget(ml, key) == method
      local inherited = of == "Param" and method == rawget(of_tensors, key)
      if not shared and not inherited then visit(of .. ":" .. key, method) end
    end
  end
end

--- Calls visit("Type.field") for what is computed from an object.
---@param visit fun(name: string)
function M.each_field(visit)
  for _, of in ipairs(TYPES) do
    for key in next, core.fields("meshlua." .. of) do visit(of .. "." .. key) end
  end
end

local listed

--- Raises unless there is a row of this name.
---@param name string
function M.check(name)
  listed = listed or lib.set(exports.names())
  if not listed[name] then error(name .. " is public, and has no row in lualib/meshlua/exports/", 0) end
end

--- Raises unless all that is public when the library has started has its row: what is loaded later by its name, which
--- lib.strict looks at when it is.
---@param ml table
function M.start(ml)
  M.each("", ml, M.check)
  for name in next, getmetatable(ml).lazy[2] do
    if name ~= "remat_policies" then M.check(name) end -- a module
  end
  M.each_method(ml, M.check)
  M.each_field(M.check)
end

return M
