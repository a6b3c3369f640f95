-- devices: 8
-- sharding_spec.lua: NamedSharding, and how a tensor lies. The numbers are those of the checklist of JAX's
-- semantics.
local helper = require "spec.helper"
local ml = require "meshlua"

local P, NamedSharding = ml.P, ml.NamedSharding
local mesh = ml.make_mesh({4, 2}, {"data", "model"})

--- {device, {{first, last}, ...}, replica} of every shard.
local function where(x)
  local list = {}
  for i, shard in ipairs(x:addressable_shards()) do list[i] = {shard.device, shard.index,
    shard.replica_id} end
  return list
end

describe("NamedSharding", function()
  it("N1: has a mesh and a P", function()
    local s = NamedSharding(mesh, P("data", nil))
    assert.is_true(s.mesh == mesh)
    assert.is_true(s.spec == P("data", nil))
    assert.equal(8, s.num_devices)
    assert.equal('NamedSharding(Mesh(data=4, model=2), P("data", nil))', tostring(s))
    assert.is_true(s == NamedSharding(mesh, P("data", nil)))
    assert.is_false(s == NamedSharding(mesh, P "model"))
    assert.is_false(s == NamedSharding(ml.make_mesh({4, 2}, {"data", "model"}, {1, 0, 2, 3, 4, 5, 6, 7}),
      P("data", nil)))
    helper.raises("[E_VALUE] expected a Mesh, got table", NamedSharding, {4, 2}, P())
    helper.raises("[E_SPEC] NamedSharding: expected a P, got nil", NamedSharding, mesh, nil)
    helper.raises("[E_SPEC] NamedSharding: expected a P, got string", NamedSharding, mesh, "data")
  end)

  it("N2: tells the shape of a shard", function()
    assert.same({2, 6}, NamedSharding(mesh, P "data"):shard_shape {8, 6})
    assert.same({1, 6}, NamedSharding(mesh, P {"data", "model"}):shard_shape {8, 6})
    assert.same({4, 2}, NamedSharding(mesh, P("model", "data")):shard_shape {8, 8})
    helper.raises("shard_shape: entry 1 is not a whole number", function()
      return NamedSharding(mesh, P "data"):shard_shape {"8"}
    end)
  end)

  it("N5: the first axis of a list is the major one", function()
    local x = ml.arange(8)
    local major = ml.device_put(x, NamedSharding(mesh, P {"data", "model"}))
    local minor = ml.device_put(x, NamedSharding(mesh, P {"model", "data"}))
    local of_device = {{}, {}}
    for i = 1, 8 do
      of_device[1][i] = major:addressable_shards()[i].data:totable()[1]
      of_device[2][i] = minor:addressable_shards()[i].data:totable()[1]
    end
    assert.same({0, 1, 2, 3, 4, 5, 6, 7}, of_device[1])
    assert.same({0, 4, 1, 5, 2, 6, 3, 7}, of_device[2])
    assert.same(x:totable(), minor:totable())
  end)
end)

describe("a tensor's shards", function()
  it("N6: are one per device, with 1-based inclusive indices and the data", function()
    local x = ml.device_put(ml.arange(32.0):reshape {8, 4}, NamedSharding(mesh, P("data", "model")))
    local shards = x:addressable_shards()
    assert.equal(8, #shards)
    assert.same({{0, {{1, 2}, {1, 2}}, 0}, {1, {{1, 2}, {3, 4}}, 0}, {2, {{3, 4}, {1, 2}}, 0},
      {3, {{3, 4}, {3, 4}}, 0},
      {4, {{5, 6}, {1, 2}}, 0}, {5, {{5, 6}, {3, 4}}, 0}, {6, {{7, 8}, {1, 2}}, 0}, {7, {{7, 8}, {3, 4}}, 0}},
        where(x))
    assert.same({{26.0, 27.0}, {30.0, 31.0}}, shards[8].data:totable())
    assert.equal("float32[2,2]", ml.typeof(shards[8].data))
  end)

  it("N6: of devices that hold the same are counted as replicas", function()
    local x = ml.device_put(ml.arange(8.0), NamedSharding(mesh, P "model"))
    assert.same({{0, {{1, 4}}, 0}, {1, {{5, 8}}, 0}, {2, {{1, 4}}, 1}, {3, {{5, 8}}, 1}, {4, {{1, 4}}, 2},
      {5, {{5, 8}}, 2},
      {6, {{1, 4}}, 3}, {7, {{5, 8}}, 3}}, where(x))
    assert.same({{0, {}, 0}, {1, {}, 1}}, {where(ml.device_put(ml.tensor(1), NamedSharding(mesh, P())))[1],
      where(ml.device_put(ml.tensor(1), NamedSharding(mesh, P())))[2]})
  end)

  it("N6: follow the mesh's order of devices", function()
    local turned = ml.make_mesh({2}, {"x"}, {5, 3})
    local x = ml.device_put(ml.arange(4.0), NamedSharding(turned, P "x"))
    assert.same({{5, {{1, 2}}, 0}, {3, {{3, 4}}, 0}}, where(x))
  end)

  it("N6: of one device are one", function()
    local x = ml.arange(3.0)
    assert.same({{0, {{1, 3}}, 0}}, where(x))
    assert.is_nil(x.sharding.mesh)
    assert.is_nil(x.sharding.spec)
    assert.equal("SingleDeviceSharding(CPU 0)", tostring(x.sharding))
  end)

  it("N6: put together are the tensor, in every layout", function()
    local values = ml.arange(64.0):reshape {8, 8}
    for _, spec in ipairs {P(), P "data", P(nil, "model"), P("model", "data"), P {"data", "model"},
      P(nil, {"model", "data"})} do
      local whole, x = ml.zeros({8, 8}):totable(), ml.device_put(values, NamedSharding(mesh, spec))
      for _, shard in ipairs(x:addressable_shards()) do
        local rows, columns = shard.index[1], shard.index[2]
        for i, row in ipairs(shard.data:totable()) do
          for j, value in ipairs(row) do whole[rows[1] + i - 1][columns[1] + j - 1] = value end
        end
      end
      assert.same(values:totable(), whole)
    end
  end)
end)

describe("typeof", function()
  it("prints a tensor's dims with the axes that split them", function()
    local x = ml.ones {8, 8, 2}
    local function typed(spec) return ml.typeof(ml.device_put(x, NamedSharding(mesh, spec))) end
    assert.equal("float32[8,8,2]", ml.typeof(x))
    assert.equal("float32[8,8,2]", typed(P()))
    assert.equal("float32[8@data,8,2@model]", typed(P("data", nil, "model")))
    assert.equal("float32[8@(data,model),8,2]", typed(P {"data", "model"}))
    assert.equal("float32[8,8@(model,data),2]", typed(P(nil, {"model", "data"})))
    assert.equal("bfloat16[]", ml.typeof(ml.zeros({}, "bfloat16")))
  end)

  it("takes numbers, booleans, Params, tables and anything else", function()
    assert.equal("int32[]{weak}", ml.typeof(3))
    assert.equal("float32[]{weak}", ml.typeof(3.0))
    assert.equal("bool[]", ml.typeof(true))
    assert.equal("int32[2]", ml.typeof(ml.core.box_new(ml.tensor {1, 2}, {})))
    assert.same({a = "float32[2]", b = {"int32[]{weak}", "string"}, c = {}}, ml.typeof {a = ml.ones {2},
      b = {1, "x"}, c = {}})
    assert.equal("nil", ml.typeof(nil))
    assert.equal("Mesh", ml.typeof(mesh))
    assert.equal("function", ml.typeof(print))
    local cyclic = {}
    cyclic.x = cyclic
    helper.raises("[E_VALUE] typeof: a table is nested deeper than 100, or contains itself", ml.typeof,
      cyclic)
  end)

  it("prints in the same words as print, dumps and errors", function()
    local x = ml.device_put(ml.ones({32, 128}), NamedSharding(mesh, P("data", nil)))
    assert.equal("float32[32@data,128] on Mesh(data=4, model=2)", tostring(x):match "^[^\n]*")
    helper.raises("(x float32[32@data,128], w float32[64])", ml.matmul, x, ml.ones {64})
  end)
end)
