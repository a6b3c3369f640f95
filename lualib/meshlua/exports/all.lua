-- all.lua: every public function as it is there, by the name of its row: what help shows, and what the gate and the
-- fuzzers hold against the rows. It loads everything.
local ml = require "meshlua"
local core = ml.core

local M = {}

--- Modules by the prefix of their rows.
local function modules()
  return {[""] = ml, ["random."] = ml.random, ["tree."] = ml.tree, ["nn."] = ml.nn, ["optim."] = ml.optim,
    ["initializers."] = ml.nn.initializers, ["schedule."] = ml.schedule, ["data."] = ml.data,
    ["train."] = ml.train, ["profile."] = ml.profile, ["checkpoint_policies."] = ml.checkpoint_policies}
end

local TYPES = {"Tensor", "Param", "Mesh", "P", "NamedSharding", "jit", "Plan", "Program", "tokens"}

--- Methods of classes that say what to write instead.
local elsewhere = {step = true}

local function is_class(value)
  local meta = type(value) == "table" and getmetatable(value)
  return meta and meta.__call and meta.__name
end

--- name -> function, or class.
---@return table<string, any>
function M.functions()
  local found = {}
  for _, names in ipairs(getmetatable(ml).lazy) do
    for name in pairs(names) do local _ = ml[name] end
  end
  found.P = ml.P
  for prefix, module in pairs(modules()) do
    for key, value in pairs(module) do
      if type(value) == "function" then found[prefix .. key] = value end
      if is_class(value) then
        found[prefix .. key] = value
        for name, method in pairs(getmetatable(value).__index) do
          if name ~= "init" and not elsewhere[name] then found[key .. ":" .. name] = method end
        end
      end
    end
  end
  local of_tensors = core.methods "meshlua.Tensor"
  for _, of in ipairs(TYPES) do
    for key, method in pairs(core.methods("meshlua." .. of)) do
      local shared = (of == "Tensor" or of == "Param") and rawget(ml, key) == method
      local inherited = of == "Param" and method == rawget(of_tensors, key)
      if not shared and not inherited then found[of .. ":" .. key] = method end
    end
  end
  return found
end

--- "Type.field" -> true, for what is computed from an object.
---@return table<string, boolean>
function M.fields()
  local found = {}
  for _, of in ipairs(TYPES) do
    for key in pairs(core.fields("meshlua." .. of)) do found[of .. "." .. key] = true end
  end
  return found
end

return M
