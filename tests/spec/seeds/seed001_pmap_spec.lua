-- devices: 8
-- The guide "Distributed Training", programs that say what each device does: data parallelism by pmap, and
-- gradients that are averaged by hand.
local helper = require "spec.helper"
local ml = require "meshlua"
local VAE = require "spec.seeds.vae"
local P, NamedSharding, nn, random = ml.P, ml.NamedSharding, ml.nn, ml.random

local config = {input_dim = 64, hidden_dim = 32, latent_dim = 8}
local ROWS = 4 -- of each device

local function batch_of(...)
  local keys = random.keys(random.key(1), 2)
  local function shape(list, features)
    local dims = table.move(list, 1, #list, 1, {})
    dims[#dims + 1] = features
    return dims
  end
  local dims = {...}
  return {data = random.uniform(keys[1], shape(dims, config.input_dim)),
    noise = random.normal(keys[2], shape(dims, config.latent_dim))}
end

describe("data parallelism", function()
  it("001 L121: data parallelism by pmap", function()
    local devices = ml.devices()
    local model_graphdef, state = ml.split(VAE(config, nn.Rngs(0)))
    local replicated_model = ml.device_put_replicated(state, devices)
    local leaves = ml.tree.leaves(state)
    for i, leaf in ipairs(ml.tree.leaves(replicated_model)) do
      assert.same({8, table.unpack(leaves[i].shape)}, leaf.shape)
      local shards = leaf:addressable_shards()
      assert.equal(8, #shards)
      for d, shard in ipairs(shards) do
        assert.equal(devices[d], shard.device)
        assert.equal(leaves[i]:bytes(), shard.data:bytes())
      end
    end

    local function train_step(average)
      return ml.pmap(function(model_state, batch)
        local model = ml.merge(model_graphdef, model_state)
        local loss, grads = ml.value_and_grad(function(m) return m(batch).loss end)(model)
        if average then grads = ml.pmean(grads, "batch") end
        return ml.tree.map(function(p, g) return p - 1e-3 * g end, ml.state(model), grads), loss
      end, {axis_name = "batch"})
    end
    local batch_per_device = batch_of(8, ROWS)
    local whole = ml.tree.map(function(x) return x:reshape(8 * ROWS, x.shape[3]) end, batch_per_device)
    local global_loss, global_grads = ml.value_and_grad(function(m) return m(whole).loss end)(
      ml.merge(model_graphdef, state))
    local updated_state, losses = train_step(true)(replicated_model, batch_per_device)
    assert.same({8}, losses.shape)
    helper.close(global_loss:item(), losses:mean():item(), 1e-5)
    local wanted = ml.tree.leaves(ml.tree.map(function(p, g) return p - 1e-3 * g end, state, global_grads))
    for i, leaf in ipairs(ml.tree.leaves(updated_state)) do
      for d = 1, 8 do helper.close(wanted[i], leaf:at(d), 1e-6) end
    end
    -- As written nothing is averaged: after a step every device has a model of its own.
    local own_state, own_losses = train_step(false)(replicated_model, batch_per_device)
    helper.close(losses, own_losses, 0)
    local kernel = own_state.encoder.kernel
    for d = 2, 8 do assert.not_equal(kernel:at(1):bytes(), kernel:at(d):bytes()) end
  end)
end)

describe("gradients averaged by hand", function()
  local mesh = ml.make_mesh({8}, {"batch"})

  it("001 L978: pmean against psum", function()
    local w, x = random.normal(random.key(0), {16}), random.normal(random.key(1), {8 * ROWS, 16})
    local function loss_of(v, rows) return (ml.tanh(rows:matmul(v)) ^ 2):mean() end
    local wanted = ml.grad(loss_of)(w, x)
    local function grads_by(reduce)
      return ml.jit(ml.shard_map(function(v, block)
        local own = ml.pcast(v, "batch") -- each device's copy; else their gradients are summed already
        return reduce(ml.grad(loss_of)(own, block), "batch")
      end, {mesh = mesh, in_specs = {P(), P("batch")}, out_specs = P()}))
    end
    local sharded = ml.device_put(x, NamedSharding(mesh, P("batch", nil)))
    local replicated = ml.device_put(w, NamedSharding(mesh, P()))
    local mean, sum = grads_by(ml.pmean)(replicated, sharded), grads_by(ml.psum)(replicated, sharded)
    helper.close(wanted, mean, 1e-6)
    assert.equal((8 * mean):bytes(), sum:bytes()) -- 8 is a power of two: exactly
    assert.is_true(ml.verify(grads_by(ml.pmean), replicated, sharded).ok)
    local report = ml.verify(grads_by(ml.psum), replicated, sharded)
    assert.is_false(report.ok)
    helper.close(8.0, report.factor, 1e-4)
    assert.same({"batch"}, report.axes)
  end)
end)
