-- devices: 8
-- The lesson "Scaling Up": what each pattern replicates and shards, meshes and specs, annotations, and the
-- training loop.
local helper = require "spec.helper"
local ml = require "meshlua"
local twin = require "spec.seeds.twin"
local P, NamedSharding, nn, optim, random = ml.P, ml.NamedSharding, ml.nn, ml.optim, ml.random

local mesh = ml.make_mesh({4, 2}, {"data", "model"})
local WIDTH, HIDDEN, CLASSES, BATCH = 32, 64, 8, 16

local MLP = nn.module "MLP"
function MLP:init(rngs)
  self.up = nn.Linear(WIDTH, HIDDEN, {rngs = rngs, axes = {"embed", "hidden"}, use_bias = false})
  self.down = nn.Linear(HIDDEN, WIDTH, {rngs = rngs, axes = {"hidden", "embed"}, use_bias = false})
  self.head = nn.Linear(WIDTH, CLASSES, {rngs = rngs, axes = {false, false}, use_bias = false})
end
function MLP:__call(x) return self.head(x + self.down(nn.relu(self.up(x):constrain {"batch", "hidden"}))) end

local rules = {
  dp = {{"batch", "data"}, {"embed", false}, {"hidden", false}},
  fsdp = {{"batch", "data"}, {"embed", false}, {"hidden", {"data"}}, {"hidden", false}},
  tp = {{"batch", false}, {"embed", false}, {"hidden", "model"}},
  both = {{"batch", "data"}, {"embed", false}, {"hidden", "model"}},
}

local function get_next_batch(step)
  local x = random.normal(random.fold_in(random.key(5), step), {BATCH, WIDTH})
  return x, ml.argmax(x:slice(nil, {1, CLASSES}), 2)
end

local function new_train_step(on, rule_set)
  return ml.jit(function(model, optimizer, batch, labels)
    local function loss_fn(m)
      return nn.softmax_cross_entropy_with_integer_labels(m(batch), labels):mean()
    end
    local loss, grads = ml.value_and_grad(loss_fn)(model)
    optimizer:update(model, grads)
    return loss
  end, {mesh = on, rules = rule_set})
end

--- Trains with a rule set on a mesh (nil: on one device). Returns the losses, the model, its optimizer and
--- the plan of a step.
local function train(on, rule_set, place)
  local model = ml.init(function(rngs) return MLP(rngs) end, {mesh = on, rules = rule_set, seed = 0})
  local optimizer, train_step = optim.adam(model, {lr = 1e-2}), new_train_step(on, rule_set)
  place = place or function(x) return x end
  local losses, plan = {}, nil
  for step = 1, 10 do
    local batch, labels = get_next_batch(step)
    local sharded_batch, sharded_labels = place(batch, P("data", nil)), place(labels, P("data"))
    losses[step] = train_step(model, optimizer, sharded_batch, sharded_labels):item()
    plan = train_step:plan(model, optimizer, sharded_batch, sharded_labels)
  end
  return losses, model, optimizer, plan
end

local function put_on(on)
  return function(x, spec) return ml.device_put(x, NamedSharding(on, spec)) end
end

local one_device = train(nil, rules.dp)
local MATRICES = 4 * (WIDTH * HIDDEN + HIDDEN * WIDTH) -- bytes of up and down
local HEAD = 4 * WIDTH * CLASSES

--- Bytes that a device holds of a tree of tensors.
local function held(tree_of_tensors)
  local bytes = 0
  ml.tree.visit(tree_of_tensors, function(_, x)
    if x.ndim == 0 then return end
    local part = 4
    for _, n in ipairs(twin.local_shape(x)) do part = part * n end
    bytes = bytes + part
  end)
  return bytes
end

describe("the patterns", function()
  local data, model_axis = ml.Mesh({0, 1, 2, 3}, {"data"}), ml.Mesh({0, 1, 2, 3}, {"model"})

  it("002 L1: data parallelism replicates the model and sends its gradients", function()
    local losses, model, optimizer, plan = train(data, rules.dp, put_on(data))
    helper.close(one_device, losses, 1e-5)
    assert.equal(MATRICES + HEAD, held(model))
    assert.equal(2 * (MATRICES + HEAD), held(optimizer))
    assert.same({["all_reduce over data"] = MATRICES + HEAD + 4}, twin.traffic(plan))
  end)

  it("002 L32: fully sharded, a device holds a quarter of each matrix", function()
    local losses, model, optimizer, plan = train(data, rules.fsdp, put_on(data))
    helper.close(one_device, losses, 1e-5)
    assert.equal(MATRICES // 4 + HEAD, held(model))
    assert.equal(2 * (MATRICES // 4 + HEAD), held(optimizer))
    local gradients, gathered = 0, 0
    for _, step in ipairs(plan:collectives()) do
      for _, output in ipairs(step.outputs) do
        if step.op == "reduce_scatter" then gradients = gradients + output.bytes end
        if step.op == "all_gather" then gathered = gathered + output.bytes end
      end
    end
    assert.equal(MATRICES // 4, gradients)
    -- Whole tensors only where an operation needs them: `up` forward, `down` forward and backward.
    assert.equal(MATRICES // 2 * 3, gathered)
    assert.equal(HEAD + 4, twin.traffic(plan)["all_reduce over data"])
  end)

  it("002 L55: tensor parallelism splits the layers and sums what they make", function()
    local losses, model, optimizer, plan = train(model_axis, rules.tp,
      function(x) return ml.device_put(x, NamedSharding(model_axis, P())) end)
    helper.close(one_device, losses, 1e-5)
    assert.equal(MATRICES // 4 + HEAD, held(model))
    assert.equal(2 * (MATRICES // 4 + HEAD), held(optimizer))
    assert.same({["all_reduce over model"] = 4 * BATCH * WIDTH}, twin.traffic(plan))
  end)
end)

describe("sharding primitives", function()
  it("002 L76: a mesh of 4x2", function()
    assert.equal("Mesh(data=4, model=2) of devices {{0,1},{2,3},{4,5},{6,7}}", tostring(mesh))
    assert.same({{0, 1}, {2, 3}, {4, 5}, {6, 7}}, mesh.devices)
  end)

  it("002 L83: three specs, and what a device gets of {32, 128}", function()
    local spec1, spec2, spec3 = P("data", "model"), P("data", nil), P(nil, "model")
    local function part(spec) return NamedSharding(mesh, spec):shard_shape {32, 128} end
    assert.same({8, 64}, part(spec1))
    assert.same({8, 128}, part(spec2))
    assert.same({32, 64}, part(spec3))
    assert.same({32, 128}, part(P()))
  end)

  it("002 L92: a batch on the data axis", function()
    local data_sharding = NamedSharding(mesh, P("data", nil))
    local batch = ml.arange(32 * 128):reshape(32, 128)
    local sharded_batch = ml.device_put(batch, data_sharding)
    assert.equal("int32[32@data,128]", ml.typeof(sharded_batch))
    local starts = {}
    for _, shard in ipairs(sharded_batch:addressable_shards()) do
      local first = shard.data:at(1, 1):item()
      starts[#starts + 1] = first
      assert.equal(batch:slice(shard.index[1]):bytes(), shard.data:bytes())
    end
    assert.same({0, 0, 1024, 1024, 2048, 2048, 3072, 3072}, starts)
  end)

  it("002 L101: a constraint inside jit", function()
    local step = ml.jit(function(x)
      x = x:constrain(P("data", nil))
      return x * 2
    end, {mesh = mesh})
    local x = ml.arange(32 * 128):reshape(32, 128)
    for _, spec in ipairs {P("data", nil), P()} do
      local sharded = ml.device_put(x, NamedSharding(mesh, spec))
      local y = step(sharded)
      assert.is_true(y.sharding == NamedSharding(mesh, P("data", nil)))
      assert.equal((x * 2):bytes(), y:bytes())
      assert.same({}, twin.collectives(step:plan(sharded))) -- of a replicated input: a local slice
    end
  end)
end)

describe("annotations", function()
  it("002 L108: mesh axes on a parameter, without rules", function()
    local init_fn = nn.initializers.lecun_normal()
    local model = ml.init(function(rngs)
      return {kernel = nn.Param(init_fn(rngs.params(), {16, 24}), {axes = P(nil, "model")})}
    end, {mesh = mesh})
    assert.is_true(model.kernel.sharding == NamedSharding(mesh, P(nil, "model")))
    assert.same({16, 12}, twin.local_shape(model.kernel))
  end)

  it("002 L115: logical names, and other rules for the same source", function()
    local LogicalDotReluDot = nn.module "LogicalDotReluDot"
    function LogicalDotReluDot:init(depth, rngs)
      self.dot1 = nn.Linear(depth, depth, {axes = {"embed", "hidden"}, use_bias = false, rngs = rngs})
      self.dot2 = nn.Linear(depth, depth, {axes = {"hidden", "embed"}, use_bias = false, rngs = rngs})
    end
    function LogicalDotReluDot:__call(x) return self.dot2(nn.relu(self.dot1(x))) end

    local function make(sharding_rules)
      local function build(rngs) return LogicalDotReluDot(16, rngs) end
      return ml.init(build, {mesh = mesh, rules = sharding_rules})
    end
    local x = random.normal(random.key(1), {8, 16})
    local first = make {{"batch", "data"}, {"hidden", "model"}, {"embed", false}}
    assert.equal(P(nil, "model"), first.dot1.kernel.sharding.spec)
    assert.equal(P("model", nil), first.dot2.kernel.sharding.spec)
    local second = make {{"batch", "data"}, {"hidden", false}, {"embed", "model"}}
    assert.equal(P("model", nil), second.dot1.kernel.sharding.spec)
    helper.close(first(x), second(x), 1e-5)
    helper.raises("no rule for the logical axis 'hidden'", make, {{"batch", "data"}, {"embed", false}})
  end)
end)

describe("the training loop", function()
  it("002 L142: trains as one device does; the optimizer's state lies as the parameters", function()
    local losses, model, optimizer = train(mesh, rules.both, put_on(mesh))
    helper.close(one_device, losses, 1e-5)
    assert.is_true(losses[10] < losses[1])
    local shardings = ml.get_partition_spec(ml.state(model))
    assert.equal(P(nil, "model"), shardings.up.kernel)
    for _, moment in ipairs {optimizer.state.mu, optimizer.state.nu} do
      for _, layer in ipairs {"up", "down", "head"} do
        assert.equal(shardings[layer].kernel, moment[layer].kernel.sharding.spec)
      end
    end
  end)

  local meshes = {{4, 2}, {2, 4}, {1, 8}, {8, 1}}
  local rule_set = {{"batch", "batch"}, {"embed", false}, {"hidden", "model"}}

  --- The mesh sizes in order of what a step of this width and batch takes at best, by its plan.
  local function ranked(batch, width, hidden)
    local seconds, order = {}, {}
    for i, sizes in ipairs(meshes) do
      local on = ml.make_mesh(sizes, {"batch", "model"})
      local model = ml.init(function(rngs)
        return nn.Sequential {
          nn.Linear(width, hidden, {rngs = rngs, axes = {"embed", "hidden"}}), nn.relu,
          nn.Linear(hidden, width, {rngs = rngs, axes = {"hidden", "embed"}})}
      end, {mesh = on, rules = rule_set})
      local step = ml.jit(function(m, optimizer, x)
        optimizer:update(m, (ml.grad(function(layers) return (layers(x) ^ 2):mean() end)(m)))
      end)
      local x = ml.device_put(ml.ones {batch, width}, NamedSharding(on, P("batch", nil)))
      order[i] = table.concat(sizes, "x")
      seconds[order[i]] = 0
      for _, s in ipairs(step:plan(model, optim.adam(model, {lr = 1e-3}), x):steps()) do
        seconds[order[i]] = seconds[order[i]] + s.seconds
      end
    end
    table.sort(order, function(a, b) return seconds[a] < seconds[b] end)
    return order
  end

  it("002 L171: four meshes of eight devices, one loss curve, and which is best for what", function()
    for _, sizes in ipairs(meshes) do
      local on = ml.make_mesh(sizes, {"batch", "model"})
      local losses, model = train(on, rule_set, function(x, spec)
        return ml.device_put(x, NamedSharding(on, #spec == 2 and P("batch", nil) or P("batch")))
      end)
      helper.close(one_device, losses, 1e-4)
      assert.same({WIDTH, HIDDEN // sizes[2]}, twin.local_shape(model.up.kernel))
    end
    if ml.core.device_kind() ~= "cpu" then return end -- the order is that of processors
    assert.same({"8x1", "4x2", "2x4", "1x8"}, ranked(4096, 64, 256)) -- a large batch
    assert.same({"1x8", "2x4", "4x2", "8x1"}, ranked(8, 512, 2048)) -- large layers
  end)
end)
