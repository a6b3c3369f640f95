-- all.lua: every public function as it is there, by the name of its row: what help shows, and what the gate and the
-- fuzzers hold against the rows. It loads everything.
local ml = require "meshlua"
local held = require "meshlua.exports.held"

local M = {}

--- Modules by the prefix of their rows.
local function modules()
  return {[""] = ml, ["random."] = ml.random, ["linalg."] = ml.linalg, ["tree."] = ml.tree,
    ["nn."] = ml.nn, ["optim."] = ml.optim,
    ["initializers."] = ml.nn.initializers, ["schedule."] = ml.schedule, ["data."] = ml.data,
    ["metrics."] = ml.metrics,
    ["train."] = ml.train, ["profile."] = ml.profile, ["checkpoint."] = ml.checkpoint,
    ["remat_policies."] = ml.remat_policies}
end

--- name -> function, or class.
---@return table<string, any>
function M.functions()
  local found = {}
  for _, names in ipairs(getmetatable(ml).lazy) do
    for name in pairs(names) do local _ = ml[name] end
  end
  local function add(name, value) found[name] = value end
  for prefix, module in pairs(modules()) do held.each(prefix, module, add) end
  found.P = ml.P
  held.each_method(ml, add)
  return found
end

--- "Type.field" -> true, for what is computed from an object.
---@return table<string, boolean>
function M.fields()
  local found = {}
  held.each_field(function(name) found[name] = true end)
  return found
end

return M
