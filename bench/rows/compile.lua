-- compile.lua: see compile.py.
local ml = require "meshlua"
local gpt = require "gpt"

return function(p)
  local cfg = {}
  for key, value in pairs(gpt.config) do cfg[key] = value end
  for key, value in pairs(p) do cfg[key] = value end
  local mesh = ml.make_mesh({4, 2}, {"data", "model"})
  local placed = {mesh = mesh, rules = gpt.rules.tp}
  local model = ml.init(function(rngs) return gpt.build(cfg, rngs) end,
    {mesh = mesh, rules = gpt.rules.tp, seed = 0})
  local opt = gpt.optimizer(model, cfg)
  local ids = ml.ShapeDtypeStruct({cfg.batch, cfg.seq}, "int32", ml.NamedSharding(mesh, ml.P "data"))
  return {
    run = function()
      local step = ml.jit(function(m, o, x, y)
        local loss, grads = ml.value_and_grad(function(q) return gpt.loss(q, x, y) end)(m)
        o:update(m, grads)
        return loss
      end, placed)
      step:plan(model, opt, ids, ids)
    end,
  }
end
