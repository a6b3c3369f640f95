-- devices: 8
-- state_spec.lua: modules as data: state, split, merge, update; how leaves lie; tabulate.
local ml = require "meshlua"
local helper = require "spec.helper"
local oracle = require "spec.oracle"

local nn, P = ml.nn, ml.P

local Net = nn.module "Net"
function Net:init(rngs)
  self.embed = nn.Embed(5, 4, {rngs = rngs, axes = {"vocab", "embed"}})
  self.head = {table = self.embed.embedding}
  self.norm = nn.LayerNorm(4, {rngs = rngs, axes = {"embed"}})
  self.mean = nn.Param(ml.zeros {4}, {kind = "batch_stat", decay = 0.9})
  self.scale = 0.5
end
function Net:__call(ids)
  return self.norm(self.embed(ids) * self.scale + self.mean):matmul(self.head.table:T())
end

local ids = ml.tensor({0, 3, 4}, "int32")

describe("ml.state", function()
  it("is a tree of plain tables with tensors, by kind, path or both", function()
    local net = Net(nn.Rngs(0))
    local all = ml.state(net)
    assert.is_nil(getmetatable(all))
    assert.is_nil(all.scale)
    helper.close(net.norm.scale:get(), all.norm.scale)
    assert.equal(all.embed.embedding, all.head.table)
    local _, paths = ml.tree.leaves(all)
    assert.same({"embed.embedding", "mean", "norm.bias", "norm.scale"}, paths)
    _, paths = ml.tree.leaves(ml.state(net, "batch_stat"))
    assert.same({"mean"}, paths)
    _, paths = ml.tree.leaves(ml.state(net, function(path) return path:find "^norm" ~= nil end))
    assert.same({"norm.bias", "norm.scale"}, paths)
    local function is_bias(path) return path:find "bias$" ~= nil end
    _, paths = ml.tree.leaves(ml.state(net, {"batch_stat", is_bias}))
    assert.same({"mean", "norm.bias"}, paths)
    assert.same({}, ml.state(net, "rng"))
    helper.raises("E_VALUE", ml.state, net, 3)
    helper.raises("E_VALUE", ml.state, 3)
  end)
end)

describe("ml.split and ml.merge", function()
  it("take a module apart and put together an equal one with Params of its own", function()
    local net = Net(nn.Rngs(0))
    local structure, state = ml.split(net)
    assert.equal("Structure(Net)", tostring(structure))
    local copy = ml.merge(structure, state)
    helper.close(net(ids), copy(ids))
    assert.equal(copy.embed.embedding, copy.head.table)
    assert.not_equal(net.embed.embedding, copy.embed.embedding)
    assert.same({"batch_stat", 0.9}, {copy.mean.kind, copy.mean.decay})
    assert.same({"vocab", "embed"}, copy.embed.embedding.axes)
    copy.norm.scale:set(copy.norm.scale * 2)
    assert.is_string(helper.difference(net(ids), copy(ids)))
  end)

  it("a state for each filter", function()
    local net = Net(nn.Rngs(0))
    local structure, params, rest = ml.split(net, "param", true)
    assert.is_nil(params.mean)
    assert.is_nil(rest.norm)
    helper.close(net(ids), ml.merge(structure, params, rest)(ids))
    helper.close(net(ids), ml.merge(structure, rest, params)(ids))
    helper.raises("no filter takes mean", ml.split, net, "param")
    helper.raises("no state has a tensor at mean", ml.merge, structure, params)
    helper.raises("E_VALUE", ml.merge, params, rest)
  end)

  it("init, apply and grad in the pure style: gradients have the parameters' tree and shapes", function()
    local structure, params, rest = ml.split(Net(nn.Rngs(0)), "param", true)
    local function apply(p, x) return ml.merge(structure, p, rest)(x) end
    local gradients = ml.grad(function(p, x) return apply(p, x):sum() end)
    local grads = gradients(params, ids)
    ml.tree.map(function(p, g) assert.same(p.shape, g.shape) end, params, grads)
    assert.equal(grads.embed.embedding, grads.head.table)
    helper.close(grads.embed.embedding, ml.jit(gradients)(params, ids).head.table, 1e-6)
    -- A small step down the gradient is a step down.
    local function loss(p) return (apply(p, ids) ^ 2):mean() end
    local before, g = ml.value_and_grad(loss)(params)
    local lower = ml.tree.map(function(p, dp) return p - dp * 0.01 end, params, g)
    assert.is_true(loss(lower):item() < before:item())
  end)

  it("ml.split of a tensor cuts it", function()
    local parts = ml.split(ml.arange(6), 3)
    assert.same({2, 3}, parts[2]:totable())
    assert.equal(2, #ml.arange(6):split(2))
  end)

  it("modules with plain tensors and lists", function()
    local model = {w = ml.ones {2}, list = {nn.Linear(2, 2, {rngs = nn.Rngs(0)}), nn.gelu}, name = "x"}
    local copy = ml.merge(ml.split(model))
    assert.same({1, 1}, copy.w:totable())
    assert.equal("x", copy.name)
    helper.close(model.list[1](model.w), copy.list[1](copy.w))
  end)
end)

describe("ml.update", function()
  it("writes a state, or a part of one, into a module", function()
    local net, other = Net(nn.Rngs(0)), Net(nn.Rngs(1))
    assert.is_string(helper.difference(net(ids), other(ids)))
    assert.equal(net, ml.update(net, ml.state(other)))
    helper.close(other(ids), net(ids))
    ml.update(net, {mean = ml.ones {4}})
    assert.same({1, 1, 1, 1}, net.mean:get():totable())
  end)

  it("refuses what the module lacks, and other shapes and dtypes", function()
    local net = Net(nn.Rngs(0))
    helper.raises("no tensor at norm.gain", ml.update, net, {norm = {gain = ml.ones {4}}})
    helper.raises("nothing at norms", ml.update, net, {norms = {scale = ml.ones {4}}})
    helper.raises("E_SHAPE", ml.update, net, {norm = {scale = ml.ones {3}}})
    helper.raises("E_SHAPE", ml.update, net, {norm = {scale = ml.ones {1, 4}}})
    helper.raises("E_DTYPE", ml.update, net, {norm = {scale = ml.ones({4}, "float64")}})
  end)

  it("inside a jitted function", function()
    local net = Net(nn.Rngs(0))
    local step = ml.jit(function(m, state) ml.update(m, state) end)
    step(net, {mean = ml.full({4}, 3.0)})
    assert.same({3, 3, 3, 3}, net.mean:get():totable())
  end)
end)

describe("how a model lies", function()
  local rules = {{"vocab", false}, {"embed", "model"}}
  local function made(mesh)
    return ml.init(function(rngs) return Net(rngs) end, {mesh = mesh, rules = rules})
  end

  it("L2: get_partition_spec and get_named_sharding give a tree like the model", function()
    local mesh = ml.make_mesh({2, 4}, {"data", "model"})
    local net = made(mesh)
    local specs, shardings = ml.get_partition_spec(net), ml.get_named_sharding(net)
    assert.equal(P(nil, "model"), specs.embed.embedding)
    assert.equal(ml.NamedSharding(mesh, P "model"), shardings.norm.scale)
    assert.equal(net.mean.sharding, shardings.mean)
  end)

  it("L2: before anything is made, too", function()
    local mesh = ml.make_mesh({2, 4}, {"data", "model"})
    mesh:with(rules, function()
      local net = Net(nn.Rngs(0)) -- on no mesh yet
      assert.equal(P(nil, "model"), ml.get_partition_spec(net).embed.embedding)
      assert.equal(ml.NamedSharding(mesh, P "model"), ml.get_named_sharding(net).norm.bias)
    end)
    local types = ml.abstract(function() return made(mesh) end)
    assert.equal(P(nil, "model"), ml.get_partition_spec(types).embed.embedding)
    helper.raises("is on no mesh", ml.get_named_sharding, Net(nn.Rngs(0)))
  end)

  it("N7: device_put by a tree of shardings makes it so", function()
    local mesh = ml.make_mesh({2, 4}, {"data", "model"})
    local net = Net(nn.Rngs(0))
    local before = net(ids)
    ml.device_put(net, mesh:with(rules, function() return ml.get_named_sharding(net) end))
    assert.equal(ml.NamedSharding(mesh, P(nil, "model")), net.embed.embedding.sharding)
    helper.close(before, ml.jit(function(m, x) return m(x) end)(net, ids), 1e-6)
  end)

  it("tabulate counts bytes as a whole and on each device", function()
    local mesh = ml.make_mesh({2, 4}, {"data", "model"})
    assert.equal([[
path             type                kind        bytes  per device
embed.embedding  float32[5,4@model]  param          80          20
mean             float32[4]          batch_stat     16          16
norm.bias        float32[4@model]    param          16           4
norm.scale       float32[4@model]    param          16           4
sum                                                128          44]], ml.tabulate(made(mesh)))
    local types = ml.abstract(function() return made(mesh) end)
    assert.equal(ml.tabulate(made(mesh)), ml.tabulate(types))
  end)
end)

describe("a module changed outside", function()
  it("between two jitted calls: the new values are used, and nothing is traced again", function()
    local layer = nn.Linear(3, 2, {rngs = nn.Rngs(0)})
    local x = oracle.ramp({2, 3}, "float32")
    local step = ml.jit(function(m, input) return m(input) end)
    helper.close(layer(x), step(layer, x), 1e-6)
    layer.kernel:set(layer.kernel * 2)
    helper.close(layer(x), step(layer, x), 1e-6)
    assert.same({1, 1}, {step:stats()})
  end)
end)
