-- small_gpt.lua: a small GPT and its training step, for the scripts of this folder.
package.path = "models/?.lua;" .. package.path
local ml = require "meshlua"
local gpt = require "gpt"

--- The GPT of models/gpt.lua with these changes to its configuration, under one of its rules.
---@param mesh Mesh
---@param rules string a name in gpt.rules
---@param changes table
---@param leaves integer? into which a step cuts its batch; nil: it does not
---@return table configuration, table model, table optimizer
---@return fun(model: table, optimizer: table, ids: Tensor, labels: Tensor): Tensor step its loss
return function(mesh, rules, changes, leaves)
  rules = gpt.rules[rules]
  local cfg = setmetatable(changes, {__index = gpt.config})
  local placed = {mesh = mesh, rules = rules, seed = 0}
  local model = ml.init(function(rngs) return gpt.build(cfg, rngs) end, placed)
  local step = ml.jit(function(net, opt, ids, labels)
    local loss, grads = ml.accumulate(leaves or 1, function(part)
      return ml.value_and_grad(function(m) return gpt.loss(m, part[1], part[2]) end)(net)
    end, {ids, labels}, leaves and {bits = "mesh"} or nil)
    opt:update(net, grads)
    return loss
  end, {mesh = mesh, rules = rules})
  return cfg, model, gpt.optimizer(model, cfg), step
end
