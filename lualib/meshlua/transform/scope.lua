-- scope.lua: names for stretches of a program.
local core = require "meshlua.core"
local lib = require "meshlua.lib"

local M = {}

--- Calls fn(...); what it computes carries the name, behind those of the modules and scopes around it, in dumps,
--- plans, explanations and profiles.
---@param name string
---@param fn function
function M.named_scope(name, fn, ...)
  if type(name) ~= "string" or name == "" then
    lib.raise("E_VALUE", "named_scope: the name must be a string that is not empty, not %s",
      name == "" and "''" or lib.kind(name))
  end
  lib.check_function("named_scope", fn)
  return core.in_scope(name, fn, ...)
end

return lib.export(M)
