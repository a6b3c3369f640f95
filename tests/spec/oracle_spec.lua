-- devices: 8
-- oracle_spec.lua: ten training steps of models/gpt.lua against JAX (tests/oracle/gpt_steps.py).
local ml = require "meshlua"
local gpt = require "models.gpt"
local oracle = require "spec.oracle"

local expected = oracle.read "gpt_steps"

--- The batch of a step: ids and labels, int32 [batch, seq].
local function batch(cfg, step)
  local ids, labels = {}, {}
  for b = 0, cfg.batch - 1 do
    local row = {}
    for t = 0, cfg.seq do row[t + 1] = (5 * b + 3 * t + b * t * t % 7 + 11 * step) % cfg.vocab end
    ids[b + 1], labels[b + 1] = {table.unpack(row, 1, cfg.seq)}, {table.unpack(row, 2)}
  end
  return ml.tensor(ids, "int32"), ml.tensor(labels, "int32")
end

--- Trains; returns the losses, the gradient norms, and the norm of the parameters at the end.
local function train(dtype, layout)
  local cfg = {}
  for name, value in pairs(gpt.config) do cfg[name] = value end
  for name, value in pairs(expected.config) do cfg[name] = value end
  cfg.dtype = dtype
  local mesh, rules = layout.mesh and ml.make_mesh(table.unpack(layout.mesh)), gpt.rules[layout.rules]
  local model = ml.init(function(rngs) return gpt.build(cfg, rngs) end,
    {mesh = mesh, rules = rules, seed = expected.seed})
  local opt = gpt.optimizer(model, cfg)
  local step = ml.jit(function(m, o, ids, labels)
    local loss, grads = ml.value_and_grad(function(n) return gpt.loss(n, ids, labels) end)(m)
    return loss, o:update(m, grads).grad_norm
  end, {mesh = mesh, rules = rules})
  local losses, norms = {}, {}
  for i = 1, cfg.steps do
    local loss, norm = step(model, opt, batch(cfg, i - 1))
    losses[i], norms[i] = loss:item(), norm:item()
  end
  local _, traced = step:stats()
  assert.equal(1, traced)
  return {loss = losses, grad_norm = norms, final_norm = ml.optim.global_norm(ml.state(model)):item()}
end

local function check(want, got, tolerance)
  local function close(name, a, b)
    local apart = math.abs(a - b) / math.abs(a)
    assert(apart <= tolerance, ("%s: %.17g, JAX has %.17g: %.2g apart"):format(name, b, a, apart))
  end
  for i = 1, #want.loss do
    close("loss of step " .. i, want.loss[i], got.loss[i])
    close("gradient norm of step " .. i, want.grad_norm[i], got.grad_norm[i])
  end
  close("norm of the parameters", want.final_norm, got.final_norm)
end

describe("ten steps of GPT are JAX's", function()
  local layouts = {
    {name = "one device", rules = "dp"},
    {name = "tp on data=4, model=2", rules = "tp", mesh = {{4, 2}, {"data", "model"}}},
    {name = "fsdp_tp on data=2, model=4", rules = "fsdp_tp", mesh = {{2, 4}, {"data", "model"}}},
  }
  for _, layout in ipairs(layouts) do
    it("in float64, " .. layout.name, function() check(expected.float64, train("float64", layout), 1e-9) end)
    it("in float32, " .. layout.name, function() check(expected.float32, train("float32", layout), 1e-4) end)
  end
end)
