-- devices: 8
-- arrays_spec.lua: arrays from their parts, parts of arrays, and what was committed to devices. The numbers are
-- those of the checklist of JAX's semantics.
local helper = require "spec.helper"
local ml = require "meshlua"

local P, NamedSharding = ml.P, ml.NamedSharding
local mesh = ml.make_mesh({4, 2}, {"data", "model"})
local abstract = ml.AbstractMesh({4, 2}, {"data", "model"})
local values = ml.arange(64.0):reshape {8, 8}

local function named(...) return NamedSharding(mesh, P(...)) end

--- The part of `values` at an index.
local function part(index) return values:slice(index[1], index[2]) end

describe("an array's parts", function()
  local x = ml.device_put(values, named("data", "model"))

  it("N2: indices are 1-based and inclusive, as slice takes them", function()
    local map = x.sharding:devices_indices_map {8, 8}
    assert.same({{3, 4}, {5, 8}}, map[3])
    assert.same(part(map[3]):totable(), x:addressable_data(4):totable())
    local n = 0
    for _ in pairs(map) do n = n + 1 end
    assert.equal(8, n)
    assert.same(map, x.sharding:addressable_devices_indices_map {8, 8})
    helper.raises("[E_INDIVISIBLE] devices_indices_map: dim 1 has size 6, which mesh axis data of size 4",
      x.sharding.devices_indices_map, x.sharding, {6, 8})
    helper.raises("[E_SPEC] addressable_devices_indices_map: P(", x.sharding.addressable_devices_indices_map,
      x.sharding, {8})
  end)

  it("N3: says whether it is replicated, and over which axes", function()
    assert.is_false(x.is_fully_replicated)
    assert.same({"data"}, named("model").replicated_axes)
    assert.same({}, named("model", "data").replicated_axes)
    assert.same({"data", "model"}, named().replicated_axes)
    assert.is_true(named().is_fully_replicated)
    assert.is_true(values.is_fully_replicated)
    assert.is_true(NamedSharding(ml.make_mesh({1, 8}, {"a", "b"}), P "a").is_fully_replicated)
    assert.is_true(x.is_fully_addressable and x.sharding.is_fully_addressable)
  end)

  it("N4: the order of devices counts, the names of axes do not", function()
    local other = ml.make_mesh({2, 2, 2}, {"a", "b", "c"})
    local turned = ml.make_mesh({4, 2}, {"data", "model"}, {7, 6, 5, 4, 3, 2, 1, 0})
    assert.is_true(named("data", "model"):is_equivalent_to(NamedSharding(other, P({"a", "b"}, "c")), 2))
    assert.is_false(named("data"):is_equivalent_to(NamedSharding(turned, P "data"), 1))
    assert.is_true(NamedSharding(ml.make_mesh({1}, {"x"}, {0}), P "x"):is_equivalent_to(values.sharding, 1))
    assert.is_true(NamedSharding(abstract, P "data"):is_equivalent_to(NamedSharding(ml.AbstractMesh({2, 2, 2},
      {"a", "b", "c"}), P {"a", "b"}), 1))
    helper.raises("[E_SPEC] is_equivalent_to: P(\"data\", \"model\") has 2 entries but the tensor has rank 1",
      named("data", "model").is_equivalent_to, named("data", "model"), named(), 1)
    helper.raises("[E_VALUE] is_equivalent_to: expected a NamedSharding, got a P", named().is_equivalent_to,
      named(), P(), 1)
    helper.raises("[E_VALUE] is_equivalent_to: the rank must be a whole number", named().is_equivalent_to,
      named(), named())
  end)

  it("N6: sizes count the copies", function()
    assert.equal(64 * 4, x:on_device_size_in_bytes())
    assert.equal(64 * 4 * 2, ml.device_put(values, named "data"):on_device_size_in_bytes())
    assert.equal(64 * 4 * 8, ml.device_put(values, named()):on_device_size_in_bytes())
    assert.equal(64 * 4, values:on_device_size_in_bytes())
    assert.equal(0, ml.zeros({0, 3}):on_device_size_in_bytes())
    assert.same(values:totable(), ml.device_put(values, named()):addressable_data(5):totable())
    helper.raises("[E_VALUE] addressable_data: shard 9 of 8", x.addressable_data, x, 9)
    helper.raises("[E_VALUE] addressable_data: the number of the shard", x.addressable_data, x)
    assert.equal(#x:addressable_shards(), #x:global_shards())
  end)

  it("N9 N12: are read, indexed and walked as those of one device", function()
    assert.same(values:totable(), x:totable())
    for i = 1, #x do assert.same(values:at(i):totable(), x:at(i):totable()) end
    assert.same(values:slice({2, 7}, {-3, -1}):totable(), x:slice({2, 7}, {-3, -1}):totable())
    assert.equal(63.0, x:at(8):at(8):item())
    local seen = 0
    for i, row in ipairs(x:split(8, 1)) do
      seen = seen + 1
      assert.same({values:at(i):totable()}, row:totable())
    end
    assert.equal(8, seen)
  end)
end)

describe("make_array_from_callback", function()
  it("N10: asks once for each distinct index", function()
    for _, case in ipairs {{named("data", "model"), 8}, {named("data"), 4}, {named(nil, "model"), 2},
      {named {"model", "data"}, 8}, {named(), 1}, {values.sharding, 1}} do
      local asked = {}
      local x = ml.make_array_from_callback({8, 8}, case[1], function(index)
        asked[#asked + 1] = index
        return part(index)
      end)
      assert.equal(case[2], #asked)
      assert.same(values:totable(), x:totable())
      assert.is_true(x.sharding == case[1])
    end
  end)

  it("N10: takes numbers and lists, in the dtype that is asked for", function()
    local function cb(index) return {index[1][1], index[1][2]} end
    local x = ml.make_array_from_callback({8}, named "data", cb)
    assert.equal("int32[8@data]", ml.typeof(x))
    assert.same({1, 2, 3, 4, 5, 6, 7, 8}, x:totable())
    assert.equal("bfloat16[8@data]", ml.typeof(ml.make_array_from_callback({8}, named "data", cb,
      "bfloat16")))
    assert.equal(2.5, ml.make_array_from_callback({}, named(), function() return 2.5 end):item())
    mesh:with(function()
      assert.is_true(ml.make_array_from_callback({8}, P "data", cb).sharding == named "data")
    end)
  end)

  it("asks for what is there where the devices do not divide a dim", function()
    local asked = {}
    local x = ml.make_array_from_callback({5}, named {"data", "model", uneven = "pad"}, function(index)
      asked[#asked + 1] = index[1][2]
      return ml.arange(5):slice(index[1])
    end)
    assert.same({{1, 2, 3, 4, 5}, {0, 1, 2, 3, 4}}, {asked, x:totable()})
    assert.equal(10, x:sum():item())
    x = ml.make_array_from_process_local_data(named {"data", uneven = "pad"}, ml.arange(7), {7})
    assert.same({0, 1, 2, 3, 4, 5, 6}, x:totable())
    assert.same({0, 8}, ml.make_array_from_process_local_data(named(nil, "model"), ml.zeros {0, 8}).shape)
  end)

  it("N10: wrong shards are errors that name the index", function()
    helper.raises("[E_SHAPE] make_array_from_callback: the shard {1..2, 1..8} is [2,8], but was given "
      .. "float32[8,8]", ml.make_array_from_callback, {8, 8}, named "data", function() return values end)
    helper.raises("[E_DTYPE] make_array_from_callback: the shard {1..2, 1..8} is float32, the array int32",
      ml.make_array_from_callback, {8, 8}, named "data", part, "int32")
    helper.raises("[E_DTYPE] make_array_from_callback: the shard {5..8} is int32, the array float32",
      ml.make_array_from_callback, {8}, named "model", function(index)
        return ml.ones({4}, index[1][1] == 1 and "float32" or "int32")
      end)
    helper.raises("[E_VALUE] make_array_from_callback: for the shard {1..4} the callback gave nil",
      ml.make_array_from_callback, {8}, named "model", function() end)
    helper.raises("[E_INDIVISIBLE] make_array_from_callback: dim 1 has size 6", ml.make_array_from_callback,
      {6}, named "data", part)
    helper.raises("[E_SPEC] make_array_from_callback: expected a NamedSharding or a P, got a Mesh",
      ml.make_array_from_callback, {8}, mesh, part)
    helper.raises("[E_MESH] make_array_from_callback: an AbstractMesh has no devices to hold the data",
      ml.make_array_from_callback, {8}, NamedSharding(abstract, P()), part)
    helper.raises("raised", ml.make_array_from_callback, {8}, named(), function() error "raised" end)
  end)

  it("N10: is refused inside a trace", function()
    helper.raises("[E_TRACED] make_array_from_callback: inside a traced function nothing has data yet",
      ml.jit(function(x) return x + ml.make_array_from_callback({8, 8}, named(), part) end), values)
  end)
end)

describe("make_array_from_process_local_data", function()
  it("N11: is the whole array in one process", function()
    local x = ml.make_array_from_process_local_data(named("data"), values)
    assert.is_true(x.sharding == named("data"))
    assert.same(values:totable(), x:totable())
    assert.equal("int32[4@data]", ml.typeof(ml.make_array_from_process_local_data(named "data", {1, 2, 3, 4},
      {4})))
    helper.raises("[E_SHAPE] make_array_from_process_local_data: the data is [8,8] and the array [16,8]; in "
      .. "one process they are the same", ml.make_array_from_process_local_data, named(), values, {16, 8})
    helper.raises("[E_SHAPE] make_array_from_process_local_data: the data is [8,8] and the array [64]; they "
      .. "must have as many dims", ml.make_array_from_process_local_data, named(), values, {64})
    helper.raises("[E_INDIVISIBLE] make_array_from_process_local_data: dim 1 has size 3",
      ml.make_array_from_process_local_data, named "data", {1, 2, 3})
  end)
end)

describe("make_array_from_single_device_arrays", function()
  local function shards_of(sharding)
    local arrays = {}
    for i, shard in ipairs(ml.device_put(values, sharding):addressable_shards()) do
      arrays[i] = ml.device_put(shard.data, shard.device)
    end
    return arrays
  end

  it("N11: puts the shards together, in whatever order they come", function()
    for _, sharding in ipairs {named("data", "model"), named(nil, "model"), named()} do
      local arrays = shards_of(sharding)
      table.insert(arrays, 1, table.remove(arrays))
      local x = ml.make_array_from_single_device_arrays({8, 8}, sharding, arrays)
      assert.is_true(x.sharding == sharding)
      assert.same(values:totable(), x:totable())
    end
  end)

  it("N11: checks count, devices, shapes, dtypes and copies", function()
    local make = ml.make_array_from_single_device_arrays
    local sharding = named("data")
    local function with(change)
      local arrays = shards_of(sharding)
      change(arrays)
      return arrays
    end
    local who = "make_array_from_single_device_arrays: "
    for _, case in ipairs {
      {"[E_VALUE] " .. who .. "7 arrays for 8 devices", function(a) a[8] = nil end},
      {"[E_VALUE] " .. who .. "arrays 1 and 2 are both on device 0", function(a) a[2] = a[1] end},
      {"[E_VALUE] " .. who .. "array 3 is on 8 devices; expected arrays of one device each",
        function(a) a[3] = ml.device_put(values, named()) end},
      {"[E_SHAPE] " .. who .. "the shard {1..2, 1..8} is [2,8], but was given float32[3]",
        function(a) a[1] = ml.ones {3} end},
      {"[E_DTYPE] " .. who .. "the shard {1..2, 1..8} is int32, the array float32",
        function(a) a[2] = ml.device_put(a[2]:astype "int32", 1) end},
      {"[E_VALUE] " .. who .. "the arrays on devices 0 and 1 differ, but are both the shard {1..2, 1..8}",
        function(a) a[2] = ml.device_put(a[2] + 1, 1) end},
      {"[E_VALUE] " .. who .. "array 2 is a string, not a tensor", function(a) a[2] = "x" end},
    } do
      helper.raises(case[1], make, {8, 8}, sharding, with(case[2]))
    end
    local few = ml.make_mesh({2}, {"x"}, {4, 5})
    helper.raises(who .. "no array is on device 5", make, {2}, NamedSharding(few, P "x"),
      {ml.device_put(ml.ones {1}, 4), ml.device_put(ml.ones {1}, 6)})
  end)
end)

describe("device_put", function()
  it("N7: commits to one device by its number", function()
    local x = ml.device_put(values, 3)
    assert.equal("float32[8,8] on device 3", tostring(x):match "^[^\n]+")
    assert.same({3}, x.sharding.device_ids)
    assert.is_true(x.committed)
    assert.is_false(values.committed)
    assert.same(values:totable(), x:totable())
    assert.is_true((x + 1).sharding == x.sharding)
    helper.raises("[E_MESH] mesh: there is no device 8; there are devices 0..7", ml.device_put, values,
      8)
    local tree = ml.device_put({a = values, b = {ml.ones {2}}}, {a = named("data"), b = 2})
    assert.is_true(tree.a.sharding == named("data"))
    assert.same({2}, tree.b[1].sharding.device_ids)
    helper.raises("[E_MESH]", ml.jit(function(t) return ml.device_put(t, 3) end),
      ml.device_put(values, named()))
  end)

  it("N7: may_alias = false copies, donate takes", function()
    local x = ml.device_put(values, named("data"))
    assert.is_true(rawequal(x, ml.device_put(x, named("data"), {may_alias = true})))
    local copy = ml.device_put(x, named("data"), {may_alias = false})
    assert.is_false(rawequal(x, copy))
    assert.is_false(copy == x)
    assert.not_equal(x:address(), copy:address())
    assert.same(x:totable(), copy:totable())
    assert.is_true(rawequal(x, ml.device_put(x, named("data"), {donate = true})))
    assert.is_false(x:is_deleted())
    local moved = ml.device_put({x}, named(nil, "model"), {donate = true})
    assert.same(values:totable(), moved[1]:totable())
    assert.is_true(x:is_deleted())
    helper.raises("[E_DELETED] this tensor has been deleted: it was donated to device_put", x.sum, x)
    helper.raises("[E_VALUE] device_put: donate and may_alias cannot both be true", ml.device_put, values,
      named(), {donate = true, may_alias = true})
    helper.raises("[E_KEY] device_put: unknown option 'donat'; did you mean 'donate'?", ml.device_put, values,
      named(), {donat = true})
  end)

  it("N13: what is uncommitted moves to the rest; what is committed elsewhere does not", function()
    local x, on_three = ml.device_put(values, named("data")), ml.device_put(values, 3)
    assert.is_true((x + values).sharding == x.sharding)
    assert.is_true((values + on_three).sharding == on_three.sharding)
    local add = ml.jit(function(a, b) return a + b end)
    assert.is_true(add(values, x).sharding == x.sharding)
    assert.same({3}, add(on_three, values).sharding.device_ids)
    helper.raises("[E_MESH] add: an operand is on device 3, what comes before on Mesh(data=4, model=2)",
      function() return x + on_three end)
    helper.raises("[E_MESH] arguments are on different devices: a float32[8@data,8] on Mesh(data=4, "
      .. "model=2), devices 0..7; b float32[8,8] on device 3; move them with device_put", add, x, on_three)
    helper.raises("a float32[8,8] on device 3; b float32[8,8] on device 4", add, on_three,
      ml.device_put(values, 4))
  end)
end)

describe("ShapeDtypeStruct", function()
  it("M6 J7: has a type and no values", function()
    local x = ml.ShapeDtypeStruct({8, 16}, "bfloat16", named("data"))
    assert.equal("bfloat16[8@data,16]", ml.typeof(x))
    assert.equal("float32[]", ml.typeof(ml.ShapeDtypeStruct({}, "float32")))
    helper.raises("[E_MESH] totable needs values, but a ShapeDtypeStruct has none", x.totable, x)
    helper.raises("[E_VALUE] a ShapeDtypeStruct has no values to compute with", function() return x + 1 end)
    helper.raises("[E_VALUE] a ShapeDtypeStruct has no values to compute with", ml.jit(function(t)
      return t * 2
    end), x)
    helper.raises("[E_INDIVISIBLE] ShapeDtypeStruct: dim 1", ml.ShapeDtypeStruct, {6}, "float32",
      named("data"))
    helper.raises("[E_DTYPE] unknown dtype 'float'", ml.ShapeDtypeStruct, {6}, "float")
    assert.is_nil(x:addressable_shards()[1].data)
  end)

  it("M6: on an abstract mesh is planned for without devices", function()
    local step = ml.jit(function(x, w) return x:matmul(w) end)
    local x = ml.ShapeDtypeStruct({8, 16}, "float32", NamedSharding(abstract, P(nil, "model")))
    local w = ml.ShapeDtypeStruct({16, 4}, "float32", NamedSharding(abstract, P "model"))
    local moves = step:plan(x, w):collectives()
    assert.equal(1, #moves)
    assert.equal("all_reduce", moves[1].op)
    assert.equal(8 * 4 * 4, moves[1].bytes)
    helper.raises("[E_MESH] an AbstractMesh has no devices to run on", step, x, w)
    helper.raises("[E_MESH]", ml.device_put, values, NamedSharding(abstract, P()))
  end)
end)
