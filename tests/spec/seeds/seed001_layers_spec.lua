-- devices: 8
-- The guide "Distributed Training", model parallelism: a linear layer and an encoder whose weights are split
-- on the model axis of four devices.
local helper = require "spec.helper"
local ml = require "meshlua"
local twin = require "spec.seeds.twin"
local P, NamedSharding, nn, random = ml.P, ml.NamedSharding, ml.nn, ml.random

local devices = {0, 1, 2, 3}
local mesh = ml.make_mesh({2, 2}, {"data", "model"}, devices) -- 2 data parallel, 2 model parallel

local ShardedLinear = nn.module "ShardedLinear"

function ShardedLinear:init(in_features, out_features, options)
  local weight_sharding = NamedSharding(options.mesh, P(nil, "model"))
  local bias_sharding = NamedSharding(options.mesh, P("model"))
  local draw = nn.initializers.lecun_normal()
  self.weight = nn.Param(draw(options.rngs.params(), {in_features, out_features}))
  self.weight = ml.device_put(self.weight, weight_sharding)
  self.bias = nn.Param(random.normal(options.rngs.params(), {out_features}))
  self.bias = ml.device_put(self.bias, bias_sharding)
end

function ShardedLinear:__call(x) return x:matmul(self.weight) + self.bias end

local ShardedVAEEncoder = nn.module "ShardedVAEEncoder"

function ShardedVAEEncoder:init(input_dim, hidden_dim, latent_dim, options)
  self.layer1 = ShardedLinear(input_dim, hidden_dim, options)
  self.layer2 = ShardedLinear(hidden_dim, hidden_dim, options)
  self.mean_layer = ShardedLinear(hidden_dim, latent_dim, options)
  self.logvar_layer = ShardedLinear(hidden_dim, latent_dim, options)
end

function ShardedVAEEncoder:__call(x)
  local h = nn.relu(self.layer1(x))
  h = nn.relu(self.layer2(h))
  return {mean = self.mean_layer(h), logvar = self.logvar_layer(h)}
end

local function new_options() return {rngs = nn.Rngs(0), mesh = mesh} end

--- The module with every Param on one device.
local function on_one_device(module)
  local structure, state = ml.split(module)
  return ml.merge(structure, ml.tree.map(function(x) return ml.tensor(x:totable()) end, state))
end

local function batch_of(rows, features)
  local x = random.normal(random.key(1), {rows, features})
  return x, ml.device_put(x, NamedSharding(mesh, P("data", nil)))
end

--- Bytes of a device's part of a float32 activation.
local function activation(rows, features) return rows // 2 * features * 4 end

describe("ShardedLinear", function()
  it("001 L260: weight and bias split on model", function()
    local layer = ShardedLinear(24, 32, new_options())
    assert.same({24, 16}, twin.local_shape(layer.weight))
    assert.same({16}, twin.local_shape(layer.bias))
    local x, x_sharded = batch_of(8, 24)
    local forward = ml.jit(function(module, inputs) return module(inputs) end)
    local y = forward(layer, x_sharded)
    local one = on_one_device(layer)
    helper.close(x:matmul(one.weight) + one.bias, y, 1e-5)
    assert.is_true(y.sharding == NamedSharding(mesh, P("data", "model")))
    assert.same({}, twin.collectives(forward:plan(layer, x_sharded)))
  end)
end)

describe("ShardedVAEEncoder", function()
  local encoder = ShardedVAEEncoder(784, 512, 20, new_options())
  local one = on_one_device(encoder)
  local forward = ml.jit(function(module, inputs) return module(inputs) end)
  local x, x_sharded = batch_of(32, 784)

  local function check(module)
    local out = forward(module, x_sharded)
    assert.same({32, 20}, out.mean.shape)
    assert.same({32, 20}, out.logvar.shape)
    local wanted = one(x)
    helper.close(wanted.mean, out.mean, 1e-4)
    helper.close(wanted.logvar, out.logvar, 1e-4)
  end

  it("001 L320: the hidden layer is gathered before each use", function()
    check(encoder)
    local gather = ("all_gather over model: %d bytes"):format(activation(32, 256))
    assert.same({gather, gather}, -- before layer2, and once for both heads
      twin.collectives(forward:plan(encoder, x_sharded)))
    -- Split by rows, layer2 takes layer1's columns as they lie: one sum instead.
    local column_row = ShardedVAEEncoder(784, 512, 20, new_options())
    ml.device_put(column_row.layer2, {
      weight = NamedSharding(mesh, P("model", nil)), bias = NamedSharding(mesh, P())})
    ml.device_put({column_row.mean_layer, column_row.logvar_layer}, NamedSharding(mesh, P()))
    check(column_row)
    assert.same({("all_reduce over model: %d bytes"):format(activation(32, 512))},
      twin.collectives(forward:plan(column_row, x_sharded)))
  end)
end)

describe("activation sharding", function()
  local model = {layer1 = ShardedLinear(24, 32, new_options()), layer2 = ShardedLinear(32, 16, new_options())}
  local data_sharding = NamedSharding(mesh, P("data", nil))

  local sharded_forward = ml.jit(function(layers, x)
    x = ml.device_put(x, data_sharding)
    local h1 = layers.layer1(x)
    h1 = nn.relu(h1)
    h1 = h1:constrain(data_sharding) -- collects along the model axis before the next layer
    return layers.layer2(h1)
  end)

  it("001 L385: a constraint gathers the hidden layer", function()
    local x = batch_of(8, 24)
    local y = sharded_forward(model, x)
    local one = {on_one_device(model.layer1), on_one_device(model.layer2)}
    helper.close(one[2](nn.relu(one[1](x))), y, 1e-5)
    assert.is_true(y.sharding == NamedSharding(mesh, P("data", "model")))
    local plan = sharded_forward:plan(model, x)
    assert.same({("all_gather over model: %d bytes"):format(activation(8, 16))}, twin.collectives(plan))
    assert.truthy(plan:collectives()[1].why:find('asked for here: P("data", nil)', 1, true))
    -- As written: what is gathered is whole already in a plain jit, and no axis is named.
    local as_written = ml.jit(function(layers, inputs)
      local h1 = nn.relu(layers.layer1(ml.device_put(inputs, data_sharding)))
      return layers.layer2(ml.all_gather(h1, "model", {axis = 2, tiled = true}))
    end)
    local message = helper.raises("[E_STATE] all_gather: mesh axis 'model' is not bound here", as_written,
      model, x)
    assert.truthy(message:find("^tests/spec/seeds/seed001_layers_spec%.lua:%d+: "))
    assert.truthy(message:find("shard_map", 1, true)) -- the way out
  end)
end)
