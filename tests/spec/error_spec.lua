-- error_spec.lua: the form of errors, and sizes at the edge of what is possible. (That every function ends in such an
-- error: misuse_spec.lua. The words of each op: op/error_spec.lua.)
local helper = require "spec.helper"
local ml = require "meshlua"

local core = ml.core

describe("an error", function()
  it("has a place, a code, the fact with the types in it, and a way out", function()
    local line = debug.getinfo(1, "l").currentline + 1
    local ok, message = pcall(function() return ml.matmul(ml.ones {64, 512}, ml.ones {256, 2048}) end)
    assert.falsy(ok)
    assert.equal(("tests/spec/error_spec.lua:%d: [E_SHAPE] matmul: inner dims 512 and 256 differ "
      .. ""):format(line)
      .. "(x float32[64,512], w float32[256,2048])", message)
  end)

  it("counts one thing in the singular", function()
    local P, mesh = ml.P, ml.make_mesh({1}, {"x"})
    local x, xy = ml.ones {1}, ml.ones {2, 2}
    local function on(spec) return ml.NamedSharding(mesh, spec) end
    for wanted, fn in pairs {
      ["P(\"x\") has 1 entry but the tensor has rank 0"] = function()
        ml.device_put(ml.tensor(1.0), on(P "x"))
      end,
      ["but there is 1 device; change"] = function() ml.make_mesh({2}, {"x"}) end,
      ["AbstractMesh: 1 size but 2 names"] = function() ml.AbstractMesh({1}, {"x", "y"}) end,
      ["Mesh: 1 name for"] = function() ml.Mesh({{0}}, {"x"}) end,
      ["1 axis type for 2 axes"] = function() ml.make_mesh({1, 1}, {"x", "y"}, {axis_types = {"auto"}}) end,
      ["ragged: a list has 1 entry"] = function() ml.tensor {{1, 2}, {3}} end,
      ["1 byte for 1 element of float32"] = function() core.from_string("1", "float32", {1}) end,
      ["reshape: 1 element for a shape of 2"] = function() x:reshape {2} end,
      ["reshape: 2 does not divide 1 element"] = function() x:reshape {2, -1} end,
      ["1 axis given for a tensor of rank 2"] = function() ml.transpose(xy, {1}) end,
      ["pad: 1 pad for a tensor of rank 2"] = function() ml.pad(xy, {{1, 1}}) end,
      ["dynamic_slice: 1 start and 1 size for"] = function() ml.dynamic_slice(xy, {0}, {1}) end,
      ["1 start and 2 sizes"] = function() ml.dynamic_slice(xy, {0}, {1, 1}) end,
      ["einsum: 'ij->i' has 1 operand, given are 2"] = function() ml.einsum("ij->i", xy, xy) end,
      ["reduce_window: 1 stride for 2 dims"] = function()
        ml.reduce_window(xy, "max", {2, 2}, {strides = {1}})
      end,
      ["in_shardings has 2 entries for 1 value"] = function()
        ml.jit(function(v) return v end, {in_shardings = {on(P()), on(P())}})(x)
      end,
      ["scan: xs at b has 1 slice along dim 1"] = function()
        ml.scan(function(c) return c end, x, {a = xy, b = ml.ones {1, 2}})
      end,
      ["shard_map: in_specs has 2 entries for 1 argument"] = function()
        ml.shard_map(function(v) return v end, {mesh = mesh, in_specs = {P(), P()}, out_specs = P()})(x)
      end,
      ["1 row, which 2 microbatches do not divide"] = function() ml.microbatches(x, 2) end,
      ["pmap: 2 places for 1 device"] = function()
        ml.pmap(function(v) return v end, {devices = {0}})(ml.ones {2})
      end,
      ["make_array_from_single_device_arrays: 2 arrays for 1 device"] = function()
        ml.make_array_from_single_device_arrays({1}, on(P()), {x, x})
      end,
      ["takes 1 value, 0 given"] = function() ml.jit(function() ml.debug_print("%d") end)() end,
    } do
      local _, message = pcall(fn)
      assert.truthy(tostring(message):find(wanted, 1, true), wanted .. ": " .. tostring(message))
    end
  end)

  it("is a text that can be raised on, with the place it had", function()
    local _, first = pcall(ml.sum, ml.ones {2}, 3)
    local _, second = pcall(function() error(first, 0) end)
    assert.equal(first, second)
  end)

  it("of any length is cut, not lost", function()
    local name = ("x"):rep(100000)
    local ok, message = pcall(ml.astype, ml.ones {1}, name)
    assert.falsy(ok)
    assert.truthy(message:find("[E_DTYPE] unknown dtype 'xxx", 1, true))
    assert.is_true(#message > 1000 and #message < 8000)
    assert.falsy(pcall(function() return ml.ones({1})[name] end))
  end)

  it("that is no text passes through the library as it is", function()
    local object = setmetatable({}, {__tostring = function() return "object" end})
    local function raise() error(object) end
    for _, fn in ipairs {function() ml.jit(raise)() end, function() ml.grad(raise)(ml.ones {1}) end,
      function() ml.tree.map(raise, {ml.ones {1}}) end, function() ml.make_mesh({1}, {"x"},
        {0}):with(raise) end,
      function() ml.init(raise) end, coroutine.wrap(function() ml.tree.map(raise, {ml.ones {1}}) end)} do
      local ok, found = pcall(fn)
      assert.falsy(ok)
      assert.is_true(rawequal(object, found))
    end
  end)

  it("in a finalizer or a __close does no harm", function()
    local closed
    local ok = pcall(function()
      local guard <close> = setmetatable({}, {__close = function()
        closed = ml.sum(ml.ones {4}):item()
        ml.sum(ml.ones {4}, 9)
      end})
      assert(guard)
      ml.jit(function(x) return x:reshape(7) end)(ml.ones {2})
    end)
    assert.falsy(ok)
    assert.equal(4.0, closed)
    assert.equal(2.0, ml.ones({2}):sum():item())
  end)

  it("of recursion without end is Lua's, and all is well afterwards", function()
    local function deeper(x) return deeper(x + 1) + 1 end
    local ok, message = pcall(deeper, ml.ones {1})
    assert.falsy(ok)
    assert.truthy(message:find("overflow", 1, true), message)
    local step
    step = ml.jit(function(x) return step(x) end)
    ok, message = pcall(step, ml.ones {1})
    assert.falsy(ok)
    assert.truthy(message:find("overflow", 1, true), message)
    assert.falsy(core.is_tracing())
    assert.equal(2.0, ml.jit(function(x) return x * 2 end)(ml.ones {1}):item())
  end)
end)

describe("sizes", function()
  it("of 0 are sizes like any others", function()
    local empty = ml.zeros {0, 3}
    assert.same({0, 3}, empty.shape)
    assert.equal(0, empty.size)
    assert.same({}, empty:totable())
    assert.equal("float32[0,3]\n[]", tostring(empty))
    assert.same({0.0, 0.0, 0.0}, empty:sum(1):totable())
    assert.equal(0.0, empty:sum():item())
    assert.same({{}, {}}, ml.zeros({2, 0}):totable())
    assert.same({3, 0}, empty:T().shape)
    assert.same({0, 5}, empty:matmul(ml.ones {3, 5}).shape)
    assert.same({{0.0, 0.0}, {0.0, 0.0}, {0.0, 0.0}}, empty:T():matmul(ml.ones {0, 2}):totable())
    assert.same({0, 3}, (empty + 1):exp().shape)
    assert.same({2, 3}, ml.concat({empty, ml.ones {2, 3}}).shape)
    assert.same({0, 3}, ml.grad(function(x) return (x * x):sum() end)(empty).shape)
    assert.same({0}, ml.arange(0).shape)
    assert.same({0, 2}, ml.random.normal(ml.random.key(0), {0, 2}).shape)
    assert.equal(true, ml.zeros({0}, "bool"):all():item())
    helper.raises("[E_SHAPE] max: dim 1 is empty and has no extremum",
      function() return ml.zeros({0}):max() end)
    helper.raises("item: the tensor has 0 elements, not one", function() return empty:item() end)
    assert.equal("float32[2147483648,0]\n[]", tostring(ml.zeros {1 << 31, 0}))
  end)

  it("that no memory holds are refused before anything is computed", function()
    local huge = "result has more than 2^56 elements"
    helper.raises("[E_SHAPE] zeros (full): the " .. huge, ml.zeros, {1 << 30, 1 << 30})
    helper.raises("[E_SHAPE] zeros (full): the " .. huge, ml.zeros, {0, 1 << 30, 1 << 30})
    helper.raises("[E_SHAPE] broadcast: the " .. huge, ml.broadcast, ml.ones {1}, {1 << 50, 1 << 50})
    helper.raises("no tensor is that large", ml.ones, {math.maxinteger})
    helper.raises("no tensor is that large", ml.ones, {math.mininteger})
    helper.raises("no tensor is that large", ml.reshape, ml.ones {1}, {math.maxinteger, math.maxinteger})
    local wide = ml.broadcast(ml.ones {1}, {1 << 40}) -- a view, which takes nothing
    helper.raises("[E_SHAPE] einsum (matmul): the " .. huge, ml.einsum, "a,b->ab", wide, wide)
    helper.raises("[E_SHAPE] pad: an interior pad of", ml.pad, ml.ones {4}, {{0, 0, 1 << 55}})
  end)

  it("that this memory does not hold are out of memory, and all is well afterwards", function()
    local before = core.memory().live
    for _, make in ipairs {function() return ml.zeros {1 << 50} end, function() return ml.iota({1 << 28,
      1 << 20}, 1) end,
      function() return ml.broadcast(ml.ones {1}, {1 << 50}) + 1 end,
      function() return ml.random.uniform(ml.random.key(0), {1 << 50}) end,
      function() return ml.jit(function(x) return ml.broadcast(x, {1 << 50}):sort() end)(ml.ones {1}) end} do
      helper.raises("[E_NOMEM] out of memory", make)
    end
    collectgarbage()
    collectgarbage()
    assert.is_true(core.memory().live < before + (1 << 20))
    assert.equal(10.0, ml.ones({10}):sum():item())
  end)

  it("below 0, in between, or no numbers are refused", function()
    helper.raises("[E_SHAPE]", ml.zeros, {-1})
    helper.raises("[E_SHAPE]", ml.zeros, {2, -3})
    helper.raises("[E_SHAPE] reshape: dim 1 is -2", ml.reshape, ml.ones {2}, {-2})
    for _, wrong in ipairs {0.5, 2.0, 0 / 0, 1 / 0, -1 / 0, "2", true, {}} do
      helper.raises("[E_VALUE] zeros: dim 1 of the shape is", ml.zeros, {wrong})
      helper.raises("[E_VALUE] reshape: dim 2 of the shape is", ml.reshape, ml.ones {2}, {1, wrong})
      helper.raises("[E_VALUE] random.uniform: dim 1 of the shape is", ml.random.uniform, ml.random.key(0),
        {wrong})
    end
    helper.raises("the shape must be a list; this table has holes or other keys", ml.zeros, {2, n = 3})
    helper.raises("the shape must be a list; this table has holes or other keys", ml.zeros,
      {[1] = 2, [3] = 3})
    helper.raises("9 entries; tensors have at most 8 dims", ml.zeros, {1, 1, 1, 1, 1, 1, 1, 1, 1})
    helper.raises("an axis is a whole number, not 0.5", ml.sum, ml.ones {2}, 0.5)
    helper.raises("axis 3 of a tensor of rank 1; axes count from 1", ml.sum, ml.ones {2}, 3)
    helper.raises("axis 0 of a tensor of rank 1; axes count from 1", ml.sum, ml.ones {2}, 0)
  end)
end)

describe("numbers", function()
  it("out of a dtype's range are refused; NaN and the infinities are floats", function()
    helper.raises("[E_VALUE] 2147483648 is out of range for int32", ml.tensor, {1 << 31}, "int32")
    helper.raises("[E_VALUE] -1 is out of range for uint8", ml.tensor, {-1}, "uint8")
    helper.raises("[E_VALUE] 256 is out of range for uint8", ml.tensor, {256}, "uint8")
    for _, make in ipairs {function(x, dtype) return ml.tensor({x}, dtype) end,
      function(x, dtype) return ml.full({2}, x, dtype) end} do
      helper.raises("[E_VALUE] 0.5 is not a whole number, as int32 needs", make, 0.5, "int32")
      helper.raises("[E_VALUE] nan is not a whole number, as int64 needs", make, math.abs(0 / 0), "int64")
      helper.raises("[E_VALUE] 9.2233720368547758e+18 is out of range for int64", make, 2.0 ^ 63, "int64")
      helper.raises("[E_VALUE] inf is out of range for int32", make, math.huge, "int32")
      helper.raises("[E_VALUE] 4294967296 is out of range for uint32", make, 1 << 32, "uint32")
    end
    helper.raises("[E_VALUE] add: the number 300 is out of range for uint8", function()
      return ml.zeros({1}, "uint8") + 300
    end)
    helper.raises("[E_VALUE] mul: the number", function() return ml.tensor {1} * math.maxinteger end)
    local x = ml.tensor {0 / 0, 1 / 0, -1 / 0, 1e300}
    assert.same({false, false, false, false}, x:isfinite():totable())
    assert.equal("int64", ml.tensor({math.mininteger, math.maxinteger}, "int64").dtype)
    assert.same({math.mininteger, math.maxinteger}, ml.tensor({math.mininteger, math.maxinteger},
      "int64"):totable())
  end)

  it("of the wrong kind are refused", function()
    helper.raises("[E_DTYPE] booleans and numbers are mixed", ml.tensor, {1, true})
    helper.raises("[E_SHAPE] ragged: a list has 1 entry, its neighbours 2", ml.tensor, {{1, 2}, {3}})
    helper.raises("[E_SHAPE] ragged or too deeply nested list", ml.tensor, {1, {2}})
    helper.raises("expected numbers, got string", ml.tensor, {"1"})
    helper.raises("expected numbers, got nil", ml.tensor)
    helper.raises("[E_DTYPE] unknown dtype 'float'; there are bool, uint8", ml.tensor, {1}, "float")
    helper.raises("[E_VALUE] astype: expected the name of a dtype, got nil", ml.astype, ml.ones {1})
    helper.raises("[E_SHAPE] 5 bytes for 2 elements of float32", core.from_string, "12345", "float32",
      {2})
    helper.raises("[E_SHAPE] 0 bytes for", core.from_string, "", "float32", {1 << 55, 1 << 30})
    local cyclic = {}
    cyclic[1] = cyclic
    helper.raises("[E_SHAPE] ragged or too deeply nested list", ml.tensor, cyclic)
  end)
end)
