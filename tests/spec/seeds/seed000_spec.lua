-- devices: 8
-- The post "Distributed Training with JAX Simplified": parameters as data, heads, layouts of a weight and
-- the whole training loop, scaled down to what runs here.
local helper = require "spec.helper"
local ml = require "meshlua"
local twin = require "spec.seeds.twin"
local P, NamedSharding, nn, optim, random = ml.P, ml.NamedSharding, ml.nn, ml.optim, ml.random

local mesh = ml.make_mesh({4, 2}, {"data", "model"})
local function put(x, ...) return ml.device_put(x, NamedSharding(mesh, P(...))) end

describe("scripts", function()
  it("000 L27: no rank code, the same losses on any number of devices", function()
    local file, losses = "tests/spec/seeds/losses.lua", {}
    for line in io.lines(file) do
      assert.falsy(line:find "rank" or line:find "process" or line:find "cleanup")
    end
    for _, devices in ipairs {1, 2, 8} do
      local out, err = helper.run {"--devices=" .. devices, file}
      assert.equal("", err)
      local list = {}
      for loss in out:gmatch "%S+" do list[#list + 1] = tonumber(loss) end
      assert.equal(5, #list)
      losses[#losses + 1] = list
    end
    assert.is_true(losses[1][5] < losses[1][1])
    helper.close(losses[1], losses[2], 1e-6)
    helper.close(losses[1], losses[3], 1e-6)
  end)
end)

describe("a program of one device, mapped", function()
  it("000 L37: pmap over rows", function()
    local params, batch = random.normal(random.key(1), {16, 4}), random.normal(random.key(2), {8, 6, 16})
    local function compute_grads(w, rows)
      return ml.grad(function(v) return (ml.tanh(rows:matmul(v)) ^ 2):mean() end)(w)
    end
    local in_axes = {false, 1}
    local wanted = ml.vmap(compute_grads, {in_axes = in_axes})(params, batch)
    local grads = ml.pmap(compute_grads, {in_axes = in_axes})(params, batch)
    assert.same({8, 16, 4}, grads.shape)
    helper.close(wanted, grads, 1e-6)
    for i = 1, 8 do helper.close(compute_grads(params, batch:at(i)), grads:at(i), 1e-6) end
    assert.equal(P("devices", nil, nil), grads.sharding.spec)
    for i, shard in ipairs(grads:addressable_shards()) do
      assert.equal(i - 1, shard.device)
      assert.same({i, i}, shard.index[1])
    end
    -- All arguments by rows, as the post has it: one set of parameters for each device.
    local all = ml.pmap(compute_grads)(ml.device_put_replicated(params), batch)
    helper.close(wanted, all, 1e-6)
  end)
end)

describe("parameters are data", function()
  local function apply_of(structure, params, x) return ml.merge(structure, params)(x) end
  local layouts = {kernel = NamedSharding(mesh, P(nil, "model")), bias = NamedSharding(mesh, P("model"))}

  it("000 L55: init, apply and grad", function()
    local model = nn.Linear(6, 4, {rngs = nn.Rngs(0)})
    local x = random.normal(random.key(1), {8, 6})
    local structure, params = ml.split(model)
    local logits = apply_of(structure, params, x)
    helper.close(model(x), logits, 0)
    local loss_fn = function(p, inputs) return (apply_of(structure, p, inputs) ^ 2):sum() end
    local grads = ml.grad(loss_fn)(params, x)
    assert.same({kernel = "float32[6,4]", bias = "float32[4]"}, ml.typeof(grads))
    helper.close(2 * x:T():matmul(logits), grads.kernel, 1e-5)
    helper.close(2 * logits:sum(1), grads.bias, 1e-5)
    local sharded = ml.device_put(params, layouts)
    local sharded_grads = ml.grad(loss_fn)(sharded, put(x, "data", nil))
    for name, layout in pairs(layouts) do
      assert.is_true(sharded_grads[name].sharding == layout, name)
      helper.close(grads[name], sharded_grads[name], 1e-5)
    end
    helper.close(model.kernel, params.kernel, 0) -- the module itself is as it was
  end)

  it("000 L65: device_put of a tree", function()
    local function params()
      return {layer = {kernel = ml.ones {6, 4}, bias = ml.ones {4}}, scale = ml.ones {4}}
    end
    local replicated = NamedSharding(mesh, P())
    local prefix = ml.device_put(params(), {layer = layouts, scale = replicated})
    assert.is_true(prefix.layer.kernel.sharding == layouts.kernel)
    assert.is_true(prefix.layer.bias.sharding == layouts.bias)
    assert.is_true(prefix.scale.sharding == replicated)
    for _, leaf in ipairs(ml.tree.leaves(ml.device_put(params(), replicated))) do
      assert.is_true(leaf.sharding == replicated)
      assert.equal(8, #leaf:addressable_shards())
    end
    local split = ml.device_put(params(), {layer = NamedSharding(mesh, P("model"))})
    assert.is_true(split.layer.kernel.sharding == NamedSharding(mesh, P("model", nil)))
    assert.is_nil(split.scale.sharding.mesh) -- no sharding is given for it
  end)
end)

describe("attention heads", function()
  it("000 L143: reshape, then transpose; reshaping alone mixes heads", function()
    local batch, seq, num_heads, head_dim = 2, 5, 8, 64
    local x = random.normal(random.key(0), {batch, seq, num_heads * head_dim})
    local q = x:reshape(batch, seq, num_heads, head_dim):transpose(1, 3, 2, 4)
    assert.same({batch, num_heads, seq, head_dim}, q.shape)
    for head = 1, num_heads do
      local columns = x:slice(nil, nil, {head_dim * (head - 1) + 1, head_dim * head})
      assert.equal(columns:bytes(), q:slice(nil, head):bytes())
    end
    local direct = x:reshape(batch, num_heads, seq, head_dim)
    assert.not_equal(q:bytes(), direct:bytes())
    -- Head 1 at token 2 is head 2 at token 1.
    assert.equal(x:at(1, 1, head_dim + 1):item(), direct:at(1, 1, 2, 1):item())
    assert.equal(x:at(1, 2, 1):item(), q:at(1, 1, 2, 1):item())
    assert.not_equal(q:at(1, 1, 2, 1):item(), direct:at(1, 1, 2, 1):item())
  end)
end)

describe("the layout of a weight", function()
  local batch = random.normal(random.key(1), {16, 4, 24})
  local weight = random.normal(random.key(2), {24, 32})
  local step = ml.jit(function(x, w)
    return ml.value_and_grad(function(v) return ((ml.tanh(x:matmul(v))) ^ 2):mean() end)(w)
  end)
  local loss, grads = step(batch, weight)

  local function check(x, w)
    local sharded_loss, sharded_grads = step(x, w)
    helper.close(loss, sharded_loss, 1e-6)
    helper.close(grads, sharded_grads, 1e-6)
  end

  it("000 L173: split on the data axis it is sharded, not different", function()
    local w = put(weight, "data", nil)
    assert.same({"1..6 1..32", "1..6 1..32", "7..12 1..32", "7..12 1..32", "13..18 1..32", "13..18 1..32",
      "19..24 1..32", "19..24 1..32"}, twin.ranges(w))
    check(put(batch, "data", nil, nil), w)
  end)

  it("000 L199: split on the model axis it needs no communication forward", function()
    local w = put(weight, nil, "model")
    assert.same({24, 16}, twin.local_shape(w))
    check(put(batch, "data", nil, nil), w)
  end)

  it("000 L230: batch and weight on one axis leave an eighth of the work unique", function()
    check(put(batch, "model", nil, nil), put(weight, nil, "model"))
  end)
end)

describe("the whole training loop", function()
  local VOCAB, WIDTH, HIDDEN, BATCH, LENGTH = 128, 16, 32, 16, 8

  local Model = nn.module "Model"
  function Model:init(rngs)
    self.embed = nn.Embed(VOCAB, WIDTH, {rngs = rngs})
    self.norm = nn.LayerNorm(WIDTH, {rngs = rngs})
    self.up = nn.Linear(WIDTH, HIDDEN, {rngs = rngs, use_bias = false})
    self.head = nn.Linear(HIDDEN, VOCAB, {rngs = rngs, use_bias = false})
  end
  function Model:__call(ids) return self.head(nn.gelu(self.up(self.norm(self.embed(ids))))) end

  local function shard_param(path, param)
    if path:find "embedding" and param.shape[1] > 100 then return put(param, "model", nil) end
    if path:find "kernel" and param.shape[2] > 20 then return put(param, nil, "model") end
    return put(param)
  end

  local function new_step()
    return ml.jit(function(model, optimizer, batch)
      local function loss_fn(m)
        return nn.softmax_cross_entropy_with_integer_labels(m(batch.input_ids), batch.labels):mean()
      end
      local loss, grads = ml.value_and_grad(loss_fn)(model)
      optimizer:update(model, grads)
      return loss
    end)
  end

  local function next_batch(i)
    local ids = random.randint(random.fold_in(random.key(7), i), {BATCH, LENGTH}, 0, VOCAB)
    return {input_ids = ids, labels = (ids * 5 + 1) % VOCAB}
  end

  local function train(model, place)
    local optimizer, train_step, losses = optim.adam(model, {lr = 1e-2}), new_step(), {}
    for i = 1, 12 do losses[i] = train_step(model, optimizer, place(next_batch(i))):item() end
    return losses, train_step:plan(model, optimizer, place(next_batch(1)))
  end

  it("000 L264: shards by path and size, and trains as one device does", function()
    local model = Model(nn.Rngs(0))
    local structure, params = ml.split(model)
    local sharded = ml.merge(structure, ml.tree.map_with_path(shard_param, params))
    local specs = ml.get_partition_spec(sharded)
    assert.equal(P("model", nil), specs.embed.embedding)
    assert.equal(P(nil, "model"), specs.up.kernel)
    assert.equal(P(nil, "model"), specs.head.kernel)
    assert.equal(P(nil), specs.norm.scale)

    local data = NamedSharding(mesh, P("data", nil))
    local losses, plan = train(sharded, function(batch) return ml.device_put(batch, data) end)
    assert.is_true(losses[12] < losses[1] - 0.2)
    helper.close((train(model, function(batch) return batch end)), losses, 1e-5)
    assert.equal(P("model", nil), ml.get_partition_spec(sharded).embed.embedding)

    local rows = BATCH // 4 * LENGTH -- of one device
    local matrices = (VOCAB * WIDTH + WIDTH * HIDDEN + HIDDEN * VOCAB) // 2
    assert.same({
      ["all_reduce over data"] = 4 * (matrices + 2 * WIDTH) + 4, -- every gradient once, and the loss
      ["all_reduce over model"] = 4 * rows * (WIDTH * 2 + 3), -- the embedding forward, `up` backward; the loss
      ["all_gather over model"] = 4 * rows * HIDDEN // 2, -- what `head` takes whole
      ["reduce_scatter over model"] = 4 * rows * HIDDEN, -- the gradient of the first of these
    }, twin.traffic(plan))
  end)
end)
