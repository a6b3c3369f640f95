-- devices: 8
-- put_spec.lua: device_put: between any two layouts, of whole trees. The numbers are those of the checklist of JAX's
-- semantics.
local helper = require "spec.helper"
local ml = require "meshlua"

local P, NamedSharding = ml.P, ml.NamedSharding
local mesh = ml.make_mesh({4, 2}, {"data", "model"})
local cube = ml.make_mesh({2, 2, 2}, {"a", "b", "c"})
local turned = ml.make_mesh({8}, {"all"}, {7, 6, 5, 4, 3, 2, 1, 0})

local function both(a, b) return {P(a, b), P(b, a), P {a, b}, P {b, a}, P(nil, {a, b}), P(a), P(nil, b),
  P()} end
local shardings = {}
for _, spec in ipairs(both("data", "model")) do shardings[#shardings + 1] = NamedSharding(mesh, spec) end
for _, spec in ipairs(both("b", "c")) do shardings[#shardings + 1] = NamedSharding(cube, spec) end
for _, spec in ipairs {P({"a", "b", "c"}), P({"c", "a"}, "b"), P("b", {"c", "a"})} do
  shardings[#shardings + 1] = NamedSharding(cube, spec)
end
shardings[#shardings + 1] = NamedSharding(turned, P "all")

local values = ml.arange(64.0):reshape {8, 8}
local expected = values:totable()

--- Every shard holds its part of `expected`.
local function check(x)
  for _, shard in ipairs(x:addressable_shards()) do
    local rows, columns, part = shard.index[1], shard.index[2], shard.data:totable()
    assert(#part == rows[2] - rows[1] + 1)
    for i, row in ipairs(part) do
      assert(#row == columns[2] - columns[1] + 1)
      for j, value in ipairs(row) do assert(value == expected[rows[1] + i - 1][columns[1] + j - 1]) end
    end
  end
end

describe("device_put", function()
  it("N7: goes from every layout to every other, on one mesh or two", function()
    local n = 0
    for _, from in ipairs(shardings) do
      local x = ml.device_put(values, from)
      check(x)
      for _, to in ipairs(shardings) do
        local y = ml.device_put(x, to)
        assert.is_true(y.sharding == to)
        check(y)
        n = n + 1
      end
      check(ml.device_put(x, values.sharding)) -- and back to one device
      assert.same(expected, x:totable())
    end
    assert.equal(#shardings * #shardings, n)
  end)

  it("goes from every layout to every other in a trace", function()
    for _, from in ipairs(shardings) do
      local x = ml.device_put(values, from)
      for _, to in ipairs(shardings) do
        if from.mesh == to.mesh then
          local y = ml.jit(function(t) return ml.device_put(t, to) end)(x)
          assert.is_true(y.sharding == to)
          check(y)
        end
      end
    end
    helper.raises("[E_MESH] constrain: the layout is on Mesh(a=2, b=2, c=2), the rest on "
      .. "Mesh(data=4, model=2)",
      ml.jit(function(x) return ml.device_put(x, NamedSharding(cube, P())) end), ml.device_put(values,
        shardings[1]))
  end)

  it("N7: keeps every dtype bit for bit", function()
    for _, dtype in ipairs {"bool", "uint8", "uint32", "int32", "int64", "bfloat16", "float16", "float32",
      "float64"} do
      local x = ml.arange(64):reshape({8, 8}):astype(dtype)
      local y = ml.device_put(ml.device_put(x, shardings[1]), shardings[2])
      assert.equal(x:bytes(), y:bytes())
      assert.equal(x:bytes(), ml.device_put(y, NamedSharding(cube, P("c", "a"))):bytes())
    end
  end)

  it("N7: gives back the tensor itself where it lies as asked, or nothing is asked", function()
    local x = ml.device_put(values, shardings[1])
    assert.is_true(rawequal(x, ml.device_put(x, shardings[1])))
    assert.is_true(rawequal(x, ml.device_put(x, NamedSharding(mesh, P("data", "model")))))
    assert.is_true(rawequal(x, ml.device_put(x, nil)))
    assert.is_true(rawequal(values, ml.device_put(values, values.sharding)))
  end)

  it("N7: takes numbers and booleans", function()
    local x = ml.device_put(3, NamedSharding(mesh, P()))
    assert.equal(3, x:item())
    assert.equal("int32", x.dtype)
    assert.equal(0.5, ml.device_put(0.5, NamedSharding(mesh, P())):item())
  end)

  it("N7: takes trees, with one sharding for all, or a tree of them that may stop early", function()
    local tree = {w = ml.ones {8, 8}, b = {ml.ones {8}, 3, "text"}, flag = true}
    local one = ml.device_put(tree, NamedSharding(mesh, P "data"))
    assert.equal("float32[8@data,8]", ml.typeof(one.w))
    assert.equal("float32[8@data]", ml.typeof(one.b[1]))
    assert.same({3, "text", true}, {one.b[2], one.b[3], one.flag})
    local many = ml.device_put(tree, {w = NamedSharding(mesh, P(nil, "model")), b = NamedSharding(mesh,
      P "model")})
    assert.equal("float32[8,8@model]", ml.typeof(many.w))
    assert.equal("float32[8@model]", ml.typeof(many.b[1]))
    local some = ml.device_put(tree, {b = {NamedSharding(mesh, P())}})
    assert.equal(tree.w, some.w)
    assert.is_true(some.b[1].sharding == NamedSharding(mesh, P()))
    assert.equal("float32[8,8]", ml.typeof(tree.w)) -- what was given is as it was
    assert.is_nil(tree.w.sharding.mesh)
  end)

  it("N7: moves Params in place, also those that are held twice", function()
    local box = ml.core.box_new(ml.ones {8, 8}, {kind = "param"})
    local model = setmetatable({w = box, tied = {box}}, {__name = "Model"})
    local moved = ml.device_put(model, NamedSharding(mesh, P("data", "model")))
    assert.equal(box, moved.w)
    assert.equal(box, moved.tied[1])
    assert.equal(getmetatable(model), getmetatable(moved))
    assert.equal("float32[8@data,8@model]", ml.typeof(box))
  end)

  it("N7 P5: names the leaf that does not fit, and leaves all as it was", function()
    local box = ml.core.box_new(ml.ones {8}, {kind = "param"})
    local model = {a = box, b = {x = ml.ones {6}}}
    helper.raises("[E_INDIVISIBLE] device_put: b.x: dim 1 has size 6, which mesh axis data of size 4 does "
      .. "not divide",
      ml.device_put, model, NamedSharding(mesh, P "data"))
    assert.is_nil(box.sharding.mesh)
    helper.raises("[E_SPEC] device_put: a: the shardings go deeper than the tree", ml.device_put,
      {a = values},
      {a = {b = shardings[1]}})
    helper.raises("[E_SPEC] device_put: a: expected a NamedSharding or a P, got a string", ml.device_put,
      {a = values},
      {a = "data"})
    helper.raises("[E_SPEC] device_put: expected a NamedSharding or a P, got a Mesh", ml.device_put, values,
      mesh)
    local cyclic = {values}
    cyclic[2] = {cyclic}
    helper.raises("[E_VALUE] device_put: 2.1: the table contains itself", ml.device_put, cyclic, shardings[1])
  end)

  it("of a part shares no more than it must", function()
    local x = ml.device_put(ml.ones {1024, 64}, NamedSharding(mesh, P "data"))
    local before = ml.core.memory().live
    local views = {}
    for i = 1, 8 do views[i] = ml.device_put(x, NamedSharding(mesh, P("data", "model"))) end
    assert.is_true(ml.core.memory().live - before < 1024 * 64 * 4)
    assert.equal(8 * 1024 * 64.0, (views[1] + views[2]):sum():item() * 4)
  end)
end)

describe("tensors of two meshes", function()
  local x = ml.device_put(values, shardings[1])
  local y = ml.device_put(values, NamedSharding(cube, P "a"))

  it("M9: do not meet in an op; the error names both meshes and the way out", function()
    local message = "is on Mesh(a=2, b=2, c=2), "
    for _, meet in ipairs {function() return x + y end, function() return x:matmul(y) end,
      function() return ml.concat {x, y} end, function() return ml.where(x:gt(0), x, y) end,
        ml.jit(function(a, b)
        return a + b
      end), ml.jit(function(t) return t[1] + t[2] end), ml.jit(function(a) return a + y end)} do
      local text = helper.raises("[E_MESH]", function()
        return meet({x, y}, y)
      end)
      assert.truthy(text:find(message, 1, true) or text:find("argument", 1, true), text)
    end
    helper.raises("[E_MESH] add: an operand is on Mesh(a=2, b=2, c=2), what comes before on Mesh(data=4, "
      .. "model=2); move "
      .. "one with device_put", function() return x + y end)
    helper.raises("[E_MESH] arguments are on different devices: a float32[8@data,8@model] on Mesh(data=4, "
      .. "model=2), devices 0..7; b float32[8@a,8] on Mesh(a=2, b=2, c=2), devices 0..7; move them with "
      .. "device_put", ml.jit(function(a, b) return a + b end), x, y)
    helper.raises("; a.2 float32[8@a,8] on Mesh(a=2, b=2, c=2), devices 0..7; move them",
      ml.jit(function(a) return a[1] end), {x, y})
    helper.raises("[E_MESH] arguments are on different devices: a float32[8@data,8@model] on Mesh(data=4, "
      .. "model=2), devices 0..7; the function's mesh is Mesh(a=2, b=2, c=2), devices 0..7; move them",
      ml.jit(function(a) return a + 1 end, {mesh = cube}), x)
    helper.raises("the function's mesh is Mesh(all=8), devices 7,6,5,4,3,2,1,0", turned.with, turned,
      ml.jit(function(a) return a + 1 end), x)
    helper.raises("[E_MESH] a tensor met in this trace is on Mesh(a=2, b=2, c=2), the rest on Mesh(data=4, "
      .. "model=2)",
      ml.jit(function(a) return a + y end), x)
    helper.raises("[E_MESH] constrain: the layout is on Mesh(a=2, b=2, c=2), what comes before on "
      .. "Mesh(data=4, model=2)",
      ml.constrain, x, NamedSharding(cube, P()))
  end)

  it("N13: meet with tensors of one device", function()
    assert.is_true((x + values).sharding == x.sharding)
    assert.is_true((values * y).sharding == y.sharding)
    assert.same((values + values):totable(), (x + values):totable())
  end)
end)
