-- devices: 8
-- The slides "Sharding and Parallelism with JAX and Flax NNX": a transformer block, ways to shard it, and the
-- data-parallel loop around one.
local helper = require "spec.helper"
local ml = require "meshlua"
local blocks = require "spec.seeds.block"
local oracle = require "spec.oracle"
local twin = require "spec.seeds.twin"
local P, NamedSharding, nn, optim, random = ml.P, ml.NamedSharding, ml.nn, ml.optim, ml.random

local TransformerBlock, rules = blocks.TransformerBlock, blocks.rules
local EMBED, HEADS, FF, LENGTH = 16, 4, 32, 6
local mesh = ml.make_mesh({4, 2}, {"batch", "model"})

local function new_block(on, rule_set)
  return ml.init(function(rngs) return TransformerBlock(EMBED, HEADS, FF, 0.1, rngs) end,
    {mesh = on, rules = rule_set or rules.megatron, seed = 0})
end

local forward = ml.jit(function(block, inputs, rngs) return block(inputs, rngs) end)

describe("a transformer block", function()
  it("003 L437: is flax's, and drops the same elements on every mesh", function()
    local inputs, block = random.normal(random.key(1), {2, LENGTH, EMBED}), new_block()
    assert.same({2, LENGTH, EMBED}, forward(block, inputs).shape)
    helper.close(oracle.read("transformer_block").result, forward(block, inputs), 1e-5)
    assert.equal(forward(block, inputs):bytes(), forward(block, inputs):bytes())

    local batch = random.normal(random.key(2), {8, LENGTH, EMBED})
    local function two_steps(on)
      local rngs, model = nn.Rngs {dropout = 3}, new_block(on)
      if on then ml.device_put(rngs, NamedSharding(on, P())) end
      local x = on and ml.device_put(batch, NamedSharding(on, P("batch"))) or batch
      return forward(model, x, rngs), forward(model, x, rngs)
    end
    local first, second = two_steps()
    assert.truthy(helper.difference(first, second, 1e-2))
    assert.truthy(helper.difference(first, forward(block, batch), 1e-2))
    for _, sizes in ipairs {{4, 2}, {8, 1}} do
      local mesh_first, mesh_second = two_steps(ml.make_mesh(sizes, {"batch", "model"}))
      helper.close(first, mesh_first, 1e-5)
      helper.close(second, mesh_second, 1e-5)
    end
  end)
end)

describe("sharding the block", function()
  local step = ml.jit(function(block, inputs)
    local loss, grads = ml.value_and_grad(function(m) return (m(inputs) ^ 2):mean() end)(block)
    return loss, ml.tree.map(function(p, g) return p - 0.1 * g end, ml.state(block), grads)
  end, {mesh = mesh})
  local batch = random.normal(random.key(2), {8, LENGTH, EMBED})
  local sharded_batch = ml.device_put(batch, NamedSharding(mesh, P("batch")))

  it("003 L538: by the contraction dims gives the same, and sends more than Megatron's way", function()
    local loss, updated = step(new_block(), batch)
    local wanted, traffic, told = ml.tree.leaves(updated), {}, {}
    for name, rule_set in pairs(rules) do
      local block = new_block(mesh, rule_set)
      local sharded_loss, sharded = step(block, sharded_batch)
      helper.close(loss:item(), sharded_loss:item(), 1e-6)
      for i, leaf in ipairs(ml.tree.leaves(sharded)) do helper.close(wanted[i], leaf, 1e-5) end
      traffic[name] = twin.traffic(step:plan(block, sharded_batch))
      told[name] = ml.explain(forward, block, sharded_batch)
    end
    local slides = new_block(mesh, rules.slides)
    assert.equal(P("model", nil), slides.linear1.kernel.sharding.spec)
    assert.equal(P("model"), slides.layer_norm1.scale.sharding.spec)
    assert.equal(P("model", nil, nil), slides.mha.query.kernel.sharding.spec)
    -- Megatron's way: one sum of a device's rows forward and one backward for each half of the block.
    local rows = 4 * 8 // 4 * LENGTH * EMBED
    assert.equal(4 * rows, traffic.megatron["all_reduce over model"])
    local function sent(table_of_bytes)
      local bytes = 0
      for kind, n in pairs(table_of_bytes) do
        if kind:find "over model" then bytes = bytes + n end
      end
      return bytes
    end
    assert.is_true(sent(traffic.slides) > sent(traffic.megatron))
    assert.truthy(told.slides:find("matmul runs over dim 3 of x and dim 1 of w, split on model", 1, true))
  end)
end)

describe("the data-parallel loop", function()
  local BATCH = 8
  local function get_batch(step)
    local x = random.normal(random.fold_in(random.key(4), step), {BATCH, LENGTH, EMBED})
    return x, ml.argmax(x, 3)
  end

  local function new_metrics()
    local function zero() return nn.Param(ml.tensor(0.0), {kind = "metric"}) end
    return {total = zero(), count = zero()}
  end

  local train_step = ml.jit(function(model, optimizer, train_metrics, batch)
    local inputs, targets = batch[1], batch[2]
    local loss, grads = ml.value_and_grad(function(m)
      return nn.softmax_cross_entropy_with_integer_labels(m(inputs), targets):mean()
    end)(model)
    train_metrics.total:set(train_metrics.total + loss)
    train_metrics.count:set(train_metrics.count + 1)
    optimizer:update(model, grads)
    return loss
  end)

  local function train(on)
    local model = new_block(on)
    local optimizer, train_metrics, losses = optim.adam(model, {lr = 1e-2}), new_metrics(), {}
    if on then ml.device_put(train_metrics, NamedSharding(on, P())) end
    for step = 1, 6 do
      local input_batch, target_batch = get_batch(step)
      local batch = {input_batch, target_batch}
      if on then batch = ml.device_put(batch, NamedSharding(on, P("batch", nil))) end
      losses[step] = train_step(model, optimizer, train_metrics, batch):item()
      assert.equal(on and P("batch", nil) or nil, batch[2].sharding.spec)
    end
    return losses, train_metrics.total:item() / train_metrics.count:item()
  end

  it("003 L631: puts inputs and targets with one sharding, and averages the metrics", function()
    local losses, mean = train()
    local sharded_losses, sharded_mean = train(mesh)
    helper.close(losses, sharded_losses, 1e-5)
    assert.is_true(losses[6] < losses[1])
    local sum = 0
    for _, loss in ipairs(sharded_losses) do sum = sum + loss end
    helper.close(sum / 6, sharded_mean, 1e-6)
    helper.close(mean, sharded_mean, 1e-5)
  end)
end)
