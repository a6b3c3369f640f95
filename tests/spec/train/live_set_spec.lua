-- devices: fake:8
-- live_set_spec.lua: the plan of a GPT's training step holds little more than is live at once, nothing twice, and its
-- state in place.
local live_set = require "spec.train.live_set"
local ml = require "meshlua"
package.path = "models/?.lua;" .. package.path
local gpt = require "gpt"

local LIMIT = 1.15 -- of what is live at once

--- The plan of a training step of 6 layers of width 384 over 8 x 256 tokens.
local function plan_on(sizes, names, rules)
  local devices, n = {}, 1
  for _, size in ipairs(sizes) do n = n * size end
  for i = 1, n do devices[i] = i - 1 end
  local mesh = ml.make_mesh(sizes, names, devices)
  local cfg = {}
  for key, value in pairs(gpt.config) do cfg[key] = value end
  cfg.layers, cfg.width, cfg.heads, cfg.seq, cfg.batch = 6, 384, 8, 256, 8
  local options = {mesh = mesh, rules = gpt.rules[rules]}
  local model = ml.init(function(rngs) return gpt.build(cfg, rngs) end,
    {mesh = mesh, rules = gpt.rules[rules], seed = 0})
  local optimizer = gpt.optimizer(model, cfg)
  local step = ml.jit(function(m, opt, ids, labels)
    local loss, grads = ml.value_and_grad(function(x) return gpt.loss(x, ids, labels) end)(m)
    opt:update(m, grads)
    return loss
  end, options)
  local ids = ml.device_put(ml.zeros({cfg.batch, cfg.seq}, "int32"),
    ml.NamedSharding(mesh, ml.P(names[1] == "data" and "data" or nil)))
  return step:plan(model, optimizer, ids, ids + 0), mesh
end

describe("the plan of a GPT's training step", function()
  for _, row in ipairs {{{1}, {"data"}, "dp"}, {{8}, {"data"}, "dp"}, {{4, 2}, {"data", "model"}, "tp"},
    {{8}, {"model"}, "tp"}} do
    local sizes, names, rules = table.unpack(row)
    it(("on %s of %s"):format(table.concat(names, " and "), table.concat(sizes, " and ")), function()
      local plan, mesh = plan_on(sizes, names, rules)
      local found = live_set.of(plan, mesh)
      assert.is_nil(live_set.clash(plan))
      local ratio = found.planned / (found.held + found.most)
      assert(ratio < LIMIT, ("planned %.1f MB, held %.1f MB and live at step %d %.1f MB: %.3f"):format(
        found.planned / 1e6, found.held / 1e6, found.at, found.most / 1e6, ratio))
      -- Parameters and optimizer state are updated where they lie: what is left is the loss.
      assert(plan:memory().results <= 64)
    end)
  end
end)
