-- saving.lua: saves small trees as steps 1 to STEPS into the folder arg[1]: what the specs of power cuts and of
-- failing calls run, and what they must find again. `tree(step)` is what a step holds.
local ml = require "meshlua"

local M = {STEPS = 4}

function M.tree(step)
  local mesh = ml.make_mesh({2, 2}, {"data", "model"})
  local function param(x, spec)
    return ml.core.box_new(ml.device_put(x, ml.NamedSharding(mesh, spec)), {kind = "param"})
  end
  return {model = {w = param(ml.arange(64.0):reshape(8, 8) + step * 1000.0, ml.P("data", "model")),
    v = param(ml.arange(24):reshape(4, 6) * step, ml.P(nil, "model")),
    s = param(ml.full({}, step + 0.5), ml.P())}}
end

--- Saves the steps; the messages of those that failed.
function M.run(folder, options)
  local manager, message = ml.checkpoint.Manager(folder, options or {keep = 2})
  if not manager then return {message} end
  local failed = {}
  for step = 1, M.STEPS do
    local ok, why = manager:save(step, M.tree(step))
    if ok then ok, why = manager:wait() end
    if not ok then failed[#failed + 1] = why end
  end
  manager:close()
  return failed
end

if arg and arg[0] and arg[0]:find "saving%.lua$" then
  for _, message in ipairs(M.run(arg[1])) do print(message) end
end

return M
