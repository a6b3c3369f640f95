-- devices: 8
-- The slides "Sharding and Parallelism with JAX and Flax NNX": meshes, metadata, sharded initialisation and the
-- training loop.
local helper = require "spec.helper"
local ml = require "meshlua"
local twin = require "spec.seeds.twin"
local P, NamedSharding, nn, optim, random = ml.P, ml.NamedSharding, ml.nn, ml.optim, ml.random

local mesh = ml.make_mesh({4, 2}, {"data", "model"})

describe("primitives", function()
  it("003 L86: a mesh printed", function()
    local devices = {{0, 1}, {2, 3}, {4, 5}, {6, 7}}
    assert.equal("Mesh(data=4, model=2) of devices {{0,1},{2,3},{4,5},{6,7}}\n", twin.printed(function()
      print(ml.Mesh(devices, {"data", "model"}))
    end))
    assert.same(devices, mesh.devices)
    assert.same({"data", "model"}, mesh.axis_names)
  end)

  it("003 L139: a sharding printed", function()
    local data_sharding = NamedSharding(mesh, P("data", nil))
    local sharded_batch = ml.device_put(ml.arange(32 * 128):reshape(32, 128), data_sharding)
    assert.equal('NamedSharding(Mesh(data=4, model=2), P("data", nil))\n', twin.printed(function()
      print(sharded_batch.sharding)
    end))
    assert.is_true(sharded_batch.sharding == data_sharding)
  end)
end)

-- A layer whose kernel and bias say how they lie, and whose parameters are drawn from one key.
local Dense = nn.module "Dense"

function Dense:init(key, n_in, n_out)
  local draw = nn.initializers.lecun_normal()
  self.kernel = nn.Param(draw(key, {n_in, n_out}), {axes = P(nil, "model")})
  self.bias = nn.Param(nn.initializers.zeros(key, {n_out}), {axes = P("model")})
end

function Dense:__call(x) return x:matmul(self.kernel) + self.bias end

local MyModule = nn.module "MyModule"

function MyModule:init(key, sizes)
  self.layers = {}
  for i, layer_key in ipairs(random.keys(key, #sizes - 1)) do
    self.layers[i] = Dense(layer_key, sizes[i], sizes[i + 1])
  end
end

function MyModule:__call(x)
  for _, layer in ipairs(self.layers) do x = nn.relu(layer(x)) end
  return x
end

describe("annotations", function()
  it("003 L197: kernel and bias carry their axes", function()
    local layer = Dense(random.key(0), 16, 8)
    local specs = ml.get_partition_spec(layer)
    assert.equal(P(nil, "model"), specs.kernel)
    assert.equal(P("model"), specs.bias)
    assert.is_nil(layer.kernel.sharding.mesh) -- so far it is only said
    local named = ml.get_named_sharding(layer, mesh)
    ml.device_put(layer, named)
    assert.is_true(layer.kernel.sharding == named.kernel)
    assert.is_true(layer.bias.sharding == NamedSharding(mesh, P("model")))
  end)

  it("003 L239: initialised inside jit no device holds the whole", function()
    local SIZES, wide = {256, 512, 512, 256}, ml.make_mesh({1, 8}, {"data", "model"})
    local create_sharded_model = ml.jit(function()
      local model = MyModule(random.key(0), SIZES) -- step 1
      local state = ml.state(model) -- step 2
      local pspecs = ml.get_partition_spec(model) -- step 3
      return ml.tree.map(ml.constrain, state, pspecs) -- step 4
    end)
    local model = MyModule(random.key(0), SIZES)
    local unsharded = ml.tree.map(function(x) return x:bytes() end, ml.state(model))
    wide:with(function() ml.update(model, create_sharded_model()) end) -- steps 5 to 7
    local bytes, largest = 0, 0
    ml.tree.visit(model, function(path, param)
      bytes = bytes + 4 * param.size
      largest = math.max(largest, 4 * param.size // 8)
      local spec = param.ndim == 2 and P(nil, "model") or P("model")
      assert.is_true(param.sharding == NamedSharding(wide, spec), path)
    end)
    for i, layer in ipairs(model.layers) do
      assert.equal(unsharded.layers[i].kernel, layer.kernel:get():bytes())
    end
    wide:with(function()
      assert.is_true(create_sharded_model:plan():memory().peak <= bytes // 8 + largest)
    end)
    -- The same in one call.
    local born = ml.init(function() return MyModule(random.key(0), SIZES) end, {mesh = wide})
    assert.equal(unsharded.layers[3].kernel, born.layers[3].kernel:get():bytes())
    assert.is_true(born.layers[3].kernel.sharding == model.layers[3].kernel.sharding)
  end)
end)

describe("the training loop", function()
  local CLASSES = 8
  local input_sharding, label_sharding = NamedSharding(mesh, P("data", nil)), NamedSharding(mesh, P("data"))

  local function get_next_batch(step)
    local x = random.normal(random.fold_in(random.key(5), step), {16, 12})
    return x, ml.argmax(x:slice(nil, {1, CLASSES}), 2)
  end

  it("003 L326: inputs and 1-D labels are split on the batch dim", function()
    local batch, labels = get_next_batch(1)
    local sharded_batch = ml.device_put(batch, input_sharding)
    local sharded_labels = ml.device_put(labels, label_sharding)
    assert.equal(P("data", nil), sharded_batch.sharding.spec)
    assert.equal(P("data"), sharded_labels.sharding.spec)
    for i, shard in ipairs(sharded_labels:addressable_shards()) do -- a device has the labels of its inputs
      assert.same(sharded_batch:addressable_shards()[i].index[1], shard.index[1])
      assert.equal(labels:slice(shard.index[1]):bytes(), shard.data:bytes())
    end
    helper.raises('P("data", nil) has 2 entries but the tensor has rank 1', ml.device_put, labels,
      input_sharding)
  end)

  it("003 L352: the step changes the model in place", function()
    local sharded_model = ml.init(function(rngs)
      return MyModule(rngs.params(), {12, 32, CLASSES})
    end, {mesh = mesh})
    local optimizer = optim.adam(sharded_model, {lr = 1e-2})
    local train_step = ml.jit(function(model, opt, batch, labels)
      local function loss_fn(model_stateful)
        local logits = model_stateful(batch)
        return nn.softmax_cross_entropy_with_integer_labels(logits, labels):mean()
      end
      local loss_val, grads = ml.value_and_grad(loss_fn)(model)
      opt:update(model, grads)
      return loss_val
    end)
    local before, shardings = ml.state(sharded_model), ml.get_partition_spec(sharded_model)
    local kernel, values = sharded_model.layers[1].kernel, before.layers[1].kernel:totable()
    local batch, labels = get_next_batch(1)
    local loss = train_step(sharded_model, optimizer, ml.device_put(batch, input_sharding),
      ml.device_put(labels, label_sharding))
    assert.equal("float32[]", ml.typeof(loss))
    assert.is_true(loss:item() > 1 and loss:item() < 4)
    assert.is_true(rawequal(kernel, sharded_model.layers[1].kernel)) -- the same Param, with
    assert.truthy(helper.difference(values, kernel, 1e-3)) -- other numbers in it, that
    assert.same(shardings, ml.get_partition_spec(sharded_model)) -- lie as before.
    assert.equal(1, optimizer.count:item())
  end)
end)
