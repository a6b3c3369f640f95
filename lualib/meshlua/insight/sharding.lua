-- sharding.lua: who gave a tensor its layout: the way from it to the annotation, op by op.
local core = require "meshlua.core"
local lib = require "meshlua.lib"

local M = {}

local function text_of(type_text, chain)
  return chain == "" and type_text .. ": nothing splits it" or type_text .. "\n" .. chain
end

--- Says why a tensor lies as it does: for each dim that is split the mesh axis, the ops through which it came,
--- and what it came from: an argument, a Param, a constraint's line. In a traced function: of a traced tensor,
--- by what has been traced so far. Of what a jitted function returns: why_sharding(step, arguments...), a text
--- for each tensor that the call would return. Nothing runs.
---@param x Tensor|any a traced tensor, or what ml.jit returned
---@param ... any the step's arguments
---@return string ...
function M.why_sharding(x, ...)
  if core.is_tensor(x) and core.is_traced(x) then return text_of(core.why_traced(x)) end
  if lib.is_tensor(x) then
    local sharding = tostring(x.sharding)
    return ("%s: placed so, as %s; ask a jitted function why it returns what it does: "
      .. "why_sharding(step, arguments...)"):format(core.typeof(x), sharding)
  end
  if core.type_name(x) ~= "jit" then
    lib.raise("E_VALUE", "why_sharding: expected a tensor or a function made by ml.jit, got %s", lib.kind(x))
  end
  local program <close> = x:program(...)
  local texts = {}
  local types, chains = program:why(program:results())
  for i, text in ipairs(types) do texts[i] = text_of(text, chains[i]) end
  return table.unpack(texts)
end

return lib.export(M, "", true)
