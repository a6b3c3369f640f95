-- auditor.lua: each so many steps of a run one microbatch's loss and gradients are computed again with the devices in
-- each other's places, before the step: a device that is broken is named before what it made is saved.
local audit = require "meshlua.insight.audit"
local grad = require "meshlua.transform.grad"
local microbatch = require "meshlua.transform.microbatch"

local M = {}

--- What looks at a run each `every` steps.
---@param run Run
---@param every integer
---@param parts integer microbatches of a step
---@return fun(step: integer, batch: table): true?, string?
function M.new(run, every, parts)
  local look = run:jit(function(model, rngs, inputs, labels)
    local one = microbatch.microbatches({inputs, labels}, parts)[1]
    return grad.value_and_grad(function(m) return run.recipe.loss(m, one[1], one[2], rngs) end)(model)
  end)
  return function(step, batch)
    if step % every ~= 0 then return true end
    local report = audit.audit(look, run.model, run.rngs, batch.inputs, batch.labels)
    if report.same then return true end
    return nil, ("step %d: %s; the step is not made"):format(step, tostring(report))
  end
end

return M
