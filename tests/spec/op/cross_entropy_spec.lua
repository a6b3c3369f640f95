-- cross_entropy_spec.lua: softmax_cross_entropy and its gradient as steps of a plan: one step where the gradient
-- does not wait for the loss, written over logits that nobody needs behind it.
local ml = require "meshlua"
local helper = require "spec.helper"
local recipe = require "models.gpt"

local nn, core = ml.nn, ml.core
local op = core.op

--- The lines of the call's plan that have a cross-entropy in them: "name : operands -> results".
local function steps_of(step, ...)
  local file = os.tmpname()
  core.dump("plan:" .. file)
  step(...)
  core.dump()
  local found = {}
  for line in io.lines(file) do
    found[#found + 1] = line:match "^ *%d+ (softmax_cross_entropy.-) +; "
  end
  os.remove(file)
  return found
end

--- The names of buffers in a step: its operands', its results'.
local function buffers_of(step)
  local lists = {}
  for part in (step:match ": (.*)$"):gsub(" %-> ", "\0"):gmatch "[^%z]+" do
    local list = {}
    for name in part:gmatch "(%l%d+):" do list[#list + 1] = name end
    lists[#lists + 1] = list
  end
  return lists[1], lists[2]
end

local function names(steps)
  local list = {}
  for i, step in ipairs(steps) do list[i] = step:match "^[%w_]+" end
  return list
end

local x = ml.random.normal(ml.random.key(1), {6, 40})
local w = ml.random.normal(ml.random.key(2), {40, 40})
local labels = ml.tensor({0, 39, 7, 7, 12, 1}, "int32")

local function losses(z) return nn.softmax_cross_entropy_with_integer_labels(z, labels) end

--- The gradient of the sum of losses times the weights, from both ops apart.
local function expected(z, weights)
  local loss, lse = op.softmax_cross_entropy(z, labels)
  return loss, op.softmax_cross_entropy_grad(z, labels, lse, weights)
end

describe("softmax_cross_entropy:", function()
  it("one step with its gradient", function()
    local both = ml.jit(function(z)
      return ml.value_and_grad(function(v) return losses(v):mean() end)(z)
    end)
    assert.same({"softmax_cross_entropy_both"}, names(steps_of(both, x)))
    local loss, gradient = expected(x, ml.full({6}, 1 / 6))
    local got_loss, got = both(x)
    helper.close(loss:mean():item(), got_loss:item(), 1e-6)
    helper.close(gradient:totable(), got:totable(), 1e-6)
  end)

  it("also where each example has its weight, and the losses have other uses", function()
    local weights = ml.tensor {1.0, 0.0, 2.0, -1.0, 0.5, 3.0}
    local both = ml.jit(function(z, by)
      local loss, pullback = ml.vjp(losses, z)
      return loss, loss:sum(), pullback(by * 2.0)
    end)
    assert.same({"softmax_cross_entropy_both"}, names(steps_of(both, x, weights)))
    local loss, gradient = expected(x, weights * 2.0)
    local got_loss, sum, got = both(x, weights)
    helper.close(loss:totable(), got_loss:totable(), 1e-6)
    helper.close(loss:sum():item(), sum:item(), 1e-6)
    helper.close(gradient:totable(), got:totable(), 1e-6)
  end)

  it("two steps where the gradient waits for the loss", function()
    local squares = ml.jit(function(z) return ml.grad(function(v) return (losses(v) ^ 2):sum() end)(z) end)
    assert.same({"softmax_cross_entropy", "softmax_cross_entropy_grad"}, names(steps_of(squares, x)))
    local loss = op.softmax_cross_entropy(x, labels)
    local _, gradient = expected(x, loss * 2.0)
    helper.close(gradient:totable(), squares(x):totable(), 1e-5)
  end)

  it("a label that is no class is found fault with in the one step, too", function()
    local step = ml.jit(function(z, ids)
      return ml.value_and_grad(function(v)
        return nn.softmax_cross_entropy_with_integer_labels(v, ids):mean()
      end)(z)
    end)
    helper.raises("E_INDEX", step, x, ml.tensor({0, 1, 40, 2, 3, 4}, "int32"))
  end)

  it("its gradient takes over the logits where nobody else needs them", function()
    local own = ml.jit(function(v)
      return ml.value_and_grad(function(u) return losses(x:matmul(u)):mean() end)(v)
    end)
    local operands, results = buffers_of(steps_of(own, w)[1])
    assert.equal(operands[1], results[3])
    local shared = ml.jit(function(v)
      return ml.value_and_grad(function(u)
        local logits = x:matmul(u)
        return losses(logits):mean() + logits:sum() * 0.0, logits
      end, {has_aux = true})(v)
    end)
    operands, results = buffers_of(steps_of(shared, w)[1])
    assert.not_equal(operands[1], results[3])
  end)

  it("so it does in the train step of models/gpt.lua", function()
    local cfg = {}
    for key, value in pairs(recipe.config) do cfg[key] = value end
    cfg.layers, cfg.width, cfg.seq, cfg.batch = 1, 32, 16, 2
    local rules = recipe.rules.dp
    local model = ml.init(function(rngs) return recipe.build(cfg, rngs) end, {rules = rules, seed = 0})
    local optimizer = recipe.optimizer(model, cfg)
    local ids = ml.zeros({cfg.batch, cfg.seq}, "int32")
    local step = ml.jit(function(m, o)
      local loss, grads = ml.value_and_grad(function(v) return recipe.loss(v, ids, ids) end)(m)
      o:update(m, grads)
      return loss
    end, {rules = rules})
    local steps = steps_of(step, model, optimizer)
    assert.same({"softmax_cross_entropy_both"}, names(steps))
    local operands, results = buffers_of(steps[1])
    assert.equal(operands[1], results[3])
  end)
end)
