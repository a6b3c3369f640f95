-- devices: 8
-- The guide "Distributed Training", device meshes: making them, the context, and looking at what lies where.
local helper = require "spec.helper"
local ml = require "meshlua"
local twin = require "spec.seeds.twin"
local P, NamedSharding, nn, random = ml.P, ml.NamedSharding, ml.nn, ml.random

describe("meshes", function()
  it("001 L572: of one, two and three axes", function()
    local devices = ml.devices()
    assert.equal(8, #devices)
    local mesh_1d = ml.Mesh(devices, {"data"})
    local mesh_2d = ml.make_mesh({4, 2}, {"data", "model"}) -- 4 data parallel, 2 model parallel
    local mesh_3d = ml.make_mesh({2, 2, 2}, {"data", "model", "pipeline"})
    assert.same({8}, mesh_1d.axis_sizes)
    assert.same({4, 2}, mesh_2d.axis_sizes)
    assert.same({data = 2, model = 2, pipeline = 2}, mesh_3d.shape)
    assert.same({"data", "model"}, mesh_2d.axis_names)
    assert.same({0, 1, 2, 3, 4, 5, 6, 7}, mesh_1d.devices)
    assert.same({{0, 1}, {2, 3}, {4, 5}, {6, 7}}, mesh_2d.devices)
    assert.same({{{0, 1}, {2, 3}}, {{4, 5}, {6, 7}}}, mesh_3d.devices)
    for _, mesh in ipairs {mesh_1d, mesh_2d, mesh_3d} do assert.equal(8, mesh.size) end
    assert.is_true(mesh_2d == ml.Mesh({{0, 1}, {2, 3}, {4, 5}, {6, 7}}, {"data", "model"}))
  end)

  it("001 L968: a wrong number of devices says both numbers", function()
    local expected_devices = 16
    assert.not_equal(expected_devices, ml.device_count())
    local message = helper.raises("multiply to 16, but there are 8 devices", ml.make_mesh,
      {expected_devices}, {"data"})
    assert.truthy(message:find("--devices=16", 1, true)) -- the way out
  end)
end)

local function new_model()
  local rngs = nn.Rngs(0)
  return nn.Sequential {nn.Linear(12, 16, {rngs = rngs}), nn.relu, nn.Linear(16, 4, {rngs = rngs})}
end

describe("the mesh context", function()
  local mesh = ml.make_mesh({2, 4}, {"data", "model"})
  local train_step = ml.jit(function(model, x)
    local loss, grads = ml.value_and_grad(function(m) return (m(x) ^ 2):mean() end)(model)
    return ml.tree.map(function(p, g) return p - 0.1 * g end, ml.state(model), grads), loss
  end)

  it("001 L600: takes a bare P; a spec longer than a bias is an error with its path", function()
    local x = random.normal(random.key(1), {8, 12})
    helper.raises("a bare P requires a mesh in context", ml.device_put, x, P("data", nil))
    mesh:with(function()
      local model = new_model()
      local data_sharding, param_sharding = P("data", nil), P(nil, "model")
      helper.raises('1.bias: P(nil, "model") has 2 entries but the tensor has rank 1', function()
        ml.device_put(ml.state(model), param_sharding)
      end)
      local losses = {}
      local sharded_state = ml.tree.map(function(p)
        return ml.device_put(p, p.ndim == 2 and param_sharding or P("model"))
      end, ml.state(model))
      assert.is_true(sharded_state[1].kernel.sharding == NamedSharding(mesh, P(nil, "model")))
      for step = 1, 5 do
        local sharded_batch = ml.device_put(x, data_sharding)
        local state, loss = train_step(ml.update(model, sharded_state), sharded_batch)
        sharded_state = state
        losses[step] = loss:item()
      end
      assert.is_true(losses[5] < losses[1])
      local alone = new_model()
      for step = 1, 5 do
        local state, one_loss = train_step(alone, x)
        ml.update(alone, state)
        helper.close(one_loss:item(), losses[step], 1e-6)
      end
    end)
    helper.raises("a bare P requires a mesh in context", ml.device_put, x, P("data", nil))
  end)
end)

describe("inspection", function()
  local mesh = ml.make_mesh({4, 2}, {"data", "model"})

  local function inspect_sharding(array, name)
    local sharding = array.sharding
    print(name .. ":")
    print("  Shape: {" .. table.concat(array.shape, ", ") .. "}")
    print("  Sharding: " .. tostring(sharding))
    print("  Devices: " .. sharding.num_devices .. " devices")
  end

  it("001 L632: of every parameter, and of the mesh", function()
    local model = new_model()
    for _, layer in ipairs {model[1], model[3]} do
      ml.device_put(layer, {
        kernel = NamedSharding(mesh, P(nil, "model")), bias = NamedSharding(mesh, P("model"))})
    end
    assert.equal(twin.text [[
      1.bias:
        Shape: {16}
        Sharding: NamedSharding(Mesh(data=4, model=2), P("model"))
        Devices: 8 devices
      1.kernel:
        Shape: {12, 16}
        Sharding: NamedSharding(Mesh(data=4, model=2), P(nil, "model"))
        Devices: 8 devices
      3.bias:
        Shape: {4}
        Sharding: NamedSharding(Mesh(data=4, model=2), P("model"))
        Devices: 8 devices
      3.kernel:
        Shape: {16, 4}
        Sharding: NamedSharding(Mesh(data=4, model=2), P(nil, "model"))
        Devices: 8 devices
      ]], twin.printed(function()
      ml.tree.visit(ml.state(model), function(path, param) inspect_sharding(param, path) end)
    end))
    assert.equal(twin.text [[
      Mesh shape: (4, 2)
      Axis names: data, model
      Device layout:
        [1,1]: CPU 0
        [1,2]: CPU 1
        [2,1]: CPU 2
        [2,2]: CPU 3
        [3,1]: CPU 4
        [3,2]: CPU 5
        [4,1]: CPU 6
        [4,2]: CPU 7
      ]], twin.printed(ml.visualize_mesh, mesh))
  end)
end)
