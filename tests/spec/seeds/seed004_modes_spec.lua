-- devices: 8
-- The notebook "Distributed Computing": the sharding in the type, functions of one shard, and the same layer
-- in both ways.
local helper = require "spec.helper"
local ml = require "meshlua"
local twin = require "spec.seeds.twin"
local P, NamedSharding, random = ml.P, ml.NamedSharding, ml.random

local mesh = ml.make_mesh({8}, {"X"})

describe("explicit sharding", function()
  local grid = ml.make_mesh({2, 4}, {"X", "Y"}, {axis_types = {"explicit", "explicit"}})

  it("004 L141: the sharding in the type", function()
    local a = ml.arange(8):reshape(4, 2)
    local a_sharded = ml.device_put(a, NamedSharding(grid, P("X", nil)))
    assert.equal("int32[4,2]", ml.typeof(a))
    assert.equal("int32[4@X,2]", ml.typeof(a_sharded))
    assert.same({2, 2}, twin.local_shape(a_sharded))
    for i, shard in ipairs(a_sharded:addressable_shards()) do -- two rows on the four devices of Y alike
      assert.same(i <= 4 and {{0, 1}, {2, 3}} or {{4, 5}, {6, 7}}, shard.data:totable())
    end
  end)

  it("004 L167: types of a sum at trace time", function()
    local a0 = ml.device_put(ml.arange(4):reshape(4, 1), NamedSharding(grid, P("X", nil)))
    local a1 = ml.device_put(ml.arange(8):reshape(1, 8), NamedSharding(grid, P(nil, "Y")))
    local add = ml.jit(function(a, b)
      local ans = a + b
      print("a sharding:", ml.typeof(a))
      print("b sharding:", ml.typeof(b))
      print("ans sharding:", ml.typeof(ans))
      return ans
    end)
    local ans
    assert.equal("a sharding:\tint32[4@X,1]\nb sharding:\tint32[1,8@Y]\nans sharding:\tint32[4@X,8@Y]\n",
      twin.printed(function() ans = add(a0, a1) end))
    assert.equal("", twin.printed(add, a0, a1)) -- traced once
    for i, row in ipairs(ans:totable()) do
      for j, value in ipairs(row) do assert.equal(i + j - 2, value) end
    end
    assert.is_true(ans.sharding == NamedSharding(grid, P("X", "Y")))
    assert.same({}, twin.collectives(add:plan(a0, a1)))
  end)
end)

describe("a function of one shard", function()
  it("004 L207: an elementwise function by shard_map", function()
    local a = ml.arange(32)
    assert.equal("int32", a.dtype)
    local f_elementwise_sharded = ml.shard_map(function(x) return 2 * ml.sin(x) + 1 end,
      {mesh = mesh, in_specs = P("X"), out_specs = P("X")})
    local af_sharded = f_elementwise_sharded(a)
    assert.equal("float32", af_sharded.dtype)
    helper.close({1.0, 2.682942, 2.818595, 1.28224, -0.513605, -0.9178486, 0.44116902, 2.3139732,
      2.9787164, 1.824237, -0.08804226, -0.99998045, -0.07314587, 1.840334, 2.9812148, 2.3005757, 0.42419338,
      -0.92279494, -0.50197446, 1.2997544, 2.8258905, 2.6733112, 0.98229736, -0.69244087, -0.81115675,
      0.7352965, 2.525117, 2.912752, 1.5418116, -0.32726777, -0.97606325, 0.19192469}, af_sharded, 1e-6)
    assert.is_true(af_sharded.sharding == NamedSharding(mesh, P("X")))
    assert.equal(af_sharded:bytes(), ml.jit(f_elementwise_sharded)(a):bytes()) -- inside a jit, too
  end)

  it("004 L242: the shape of a shard", function()
    local x, local_shape = ml.arange(32), nil
    local y = ml.shard_map(function(block)
      local_shape = block.shape
      return block * 2
    end, {mesh = mesh, in_specs = P("X"), out_specs = P("X")})(x)
    assert.same({32}, x.shape)
    assert.same({4}, local_shape)
    assert.same({32}, y.shape)
    for i, value in ipairs(y:totable()) do assert.equal(2 * (i - 1), value) end
  end)

  it("004 L263: a sum of each shard", function()
    local result = ml.shard_map(function(x) return x:sum(1, true) end,
      {mesh = mesh, in_specs = P("X"), out_specs = P("X")})(ml.arange(32))
    assert.same({6, 22, 38, 54, 70, 86, 102, 118}, result:totable())
    -- The sums differ from shard to shard: they are no replicated result.
    helper.raises("[E_SPEC]", ml.shard_map(function(x) return x:sum() end,
      {mesh = mesh, in_specs = P("X"), out_specs = P()}), ml.arange(32))
  end)

  it("004 L281: psum", function()
    local f = ml.jit(ml.shard_map(function(x) return ml.psum(x:sum(), "X") end,
      {mesh = mesh, in_specs = P("X"), out_specs = P()}))
    local x = ml.device_put(ml.arange(32), NamedSharding(mesh, P("X")))
    local result = f(x)
    assert.same({}, result.shape)
    assert.equal(496, result:item())
    assert.equal(8, #result:addressable_shards())
    for _, shard in ipairs(result:addressable_shards()) do assert.equal(496, shard.data:item()) end
    assert.same({"all_reduce over X: 4 bytes"}, twin.collectives(f:plan(x)))
  end)
end)

describe("the layer of the notebook", function()
  local exact = {0.014222204, 0.97013335, 0.00124826, 0.08572859}
  local _, x_key, W_key, b_key = table.unpack(random.keys(random.key(1701), 4))
  local x, W = random.normal(x_key, {32}), random.normal(W_key, {32, 4})
  local b = random.normal(b_key, {4})

  it("004 L342: the layer with explicit sharding", function()
    local explicit_mesh = ml.make_mesh({8}, {"X"}, {axis_types = {"explicit"}})
    local x_sharded = ml.device_put(x, NamedSharding(explicit_mesh, P("X")))
    local W_replicated = ml.device_put(W, NamedSharding(explicit_mesh, P()))
    local types = {}
    local layer = ml.jit(function(v, w, c) return ml.sigmoid(v:matmul(w) + c) end)
    local layer_auto = ml.jit(function(v, w, c)
      local out = layer(v, w, c)
      types = {x = ml.typeof(v), W = ml.typeof(w), b = ml.typeof(c), out = ml.typeof(out)}
      return out
    end)
    local out = layer_auto(x_sharded, W_replicated, b)
    assert.same({x = "float32[32@X]", W = "float32[32,4]", b = "float32[4]", out = "float32[4]"}, types)
    helper.close(exact, out, 1e-6)
    assert.same({"all_reduce over X: 16 bytes"},
      twin.collectives(layer_auto:plan(x_sharded, W_replicated, b)))
  end)

  it("004 L376: the layer by shard_map", function()
    local layer_sharded = ml.jit(ml.shard_map(function(v, w, c)
      return ml.sigmoid(ml.psum(v:matmul(w), "X") + c)
    end, {mesh = mesh, in_specs = {P("X"), P("X", nil), P(nil)}, out_specs = P(nil)}))
    helper.close(exact, layer_sharded(x, W, b), 1e-6)
    local x_sharded = ml.device_put(x, NamedSharding(mesh, P("X")))
    local W_sharded = ml.device_put(W, NamedSharding(mesh, P("X", nil)))
    local b_replicated = ml.device_put(b, NamedSharding(mesh, P()))
    helper.close(exact, layer_sharded(x_sharded, W_sharded, b_replicated), 1e-6)
    assert.same({"all_reduce over X: 16 bytes"},
      twin.collectives(layer_sharded:plan(x_sharded, W_sharded, b_replicated)))
  end)
end)
