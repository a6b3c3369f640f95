-- devices: 8
-- The table of collectives in sharding-semantics.md §1.6: type change, shape, values, transpose, errors.
local helper = require "spec.helper"
local manual = require "spec.manual.manual"
local ml = require "meshlua"

local P = ml.P
local raises, check_gradient, wave, count = manual.raises, manual.check_gradient, manual.wave, manual.count
local mesh = ml.make_mesh({4, 2}, {"x", "y"})
local line = ml.make_mesh({4}, {"x"}, {0, 1, 2, 3})
local number_types = {"float32", "float64", "bfloat16", "float16", "int32", "int64", "uint32", "uint8"}

--- f on the blocks of arguments; keeps what `note` is told of the trace.
local function map(f, ins, outs, on)
  return ml.shard_map(f, {mesh = on or line, in_specs = ins, out_specs = outs})
end

--- The types of f's results inside, as text, for a block of these args (one spec each).
local function types(f, ins, args, on)
  local seen = {}
  map(function(...)
    local results = table.pack(f(...))
    for i = 1, results.n do seen[i] = ml.typeof(results[i]) end
    return ml.zeros {}
  end, ins, P(), on)(table.unpack(args))
  return table.unpack(seen)
end

local function numbers(first, last)
  local t = {}
  for i = first, last do t[#t + 1] = i + 0.0 end
  return t
end

--- f's blocks (one per device along x) as a function of whole float64 tensors to a scalar that weighs every
--- element differently.
local function weighed(f, ins, out)
  local mapped = map(f, ins, out)
  return function(...)
    local y = mapped(...)
    return (y * ml.sin(count(y.size, y.shape, "float64") + 1.0)):sum()
  end
end

describe("psum", function()
  it("S4: makes what varies the same on all, and keeps the shape", function()
    local t, s, both = types(function(a)
      return a, ml.psum(a, "x"), ml.psum(ml.psum(a, "x"), "y")
    end, P("x", "y"), {count(16, {8, 2})}, mesh)
    assert.same({"float32[2,1]{V:(x,y)}", "float32[2,1]{V:y}", "float32[2,1]"}, {t, s, both})
  end)
  it("adds up over one axis and over several", function()
    local x = count(16, {8, 2})
    local over_x = map(function(a) return ml.psum(a, "x") end, P("x", "y"), P(nil, "y"), mesh)(x)
    assert.same({{24.0, 28.0}, {32.0, 36.0}}, over_x:totable())
    local all = map(function(a) return ml.psum(a, {"x", "y"}) end, P("x", "y"), P(), mesh)(x)
    assert.same({{52.0}, {68.0}}, all:totable())
  end)
  it("counts bools as int32", function()
    local y = map(function(a) return ml.psum(a, "x") end, P "x", P())(ml.tensor {true, false, true, true})
    assert.same({"int32", 3}, {y.dtype, y:totable()[1]})
  end)
  it("of every dtype", function()
    for _, dtype in ipairs(number_types) do
      local y = map(function(a) return ml.psum(a, "x") end, P "x", P())(ml.astype(ml.arange(4), dtype))
      assert.same({dtype, 6}, {y.dtype, math.tointeger(y:totable()[1])})
    end
  end)
  it("of a number is the number times the devices", function()
    map(function(a)
      assert.equal(4, ml.psum(1, "x"))
      assert.equal(10.0, ml.psum(2.5, "x"))
      return a
    end, P "x", P "x")(ml.ones {4})
  end)
  it("of a value that is the same on all is that many times it", function()
    local y = map(function(a) return ml.psum(a, "x") end, P(), P())(ml.tensor {1.0, 2.0})
    assert.same({4.0, 8.0}, y:totable())
  end)
  it("of a tree sums each tensor", function()
    local f = map(function(a) return ml.psum({a = a, b = {a * 2}}, "x") end, P "x", {a = P(), b = {P()}})
    local y = f(ml.ones {4})
    assert.same({4.0}, y.a:totable())
    assert.same({8.0}, y.b[1]:totable())
  end)
  it("transposes to a cast: each device has the cotangent of the sum (jax#3970)", function()
    check_gradient(weighed(function(a) return ml.psum(ml.sin(a), "x") * a end, P "x", P "x"), wave {4, 2})
    check_gradient(weighed(function(a) return ml.psum(a * a, "x") end, P "x", P()), wave {4, 2})
    -- every element counts once, whatever the number of devices
    local total = map(function(a) return ml.psum(a:sum(), "x") end, P "x", P())
    local g = ml.grad(function(x) return total(x) end)(ml.ones {8})
    assert.same({1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0}, g:totable())
  end)
  it("inside a gradient taken inside", function()
    local y = map(function(a)
      return ml.grad(function(b) return ml.psum((b * b):sum(), "x") end)(a)
    end, P "x", P "x")(ml.tensor(numbers(1, 4)))
    assert.same({2.0, 4.0, 6.0, 8.0}, y:totable())
  end)
  it("over a name that is not bound: a near name, or none", function()
    raises("E_SPEC", {"psum: axis 'z' is not bound here", "'x', 'y'"}, map(function(a)
      return ml.psum(a, "z")
    end, P(), P(), mesh), ml.ones {2})
    raises("E_SPEC", {"twice"}, map(function(a) return ml.psum(a, {"x", "x"}) end, P(), P()), ml.ones {2})
  end)
end)

describe("every collective", function()
  local calls = {
    psum = function(a, axis) return ml.psum(a, axis) end,
    pmean = function(a, axis) return ml.pmean(a, axis) end,
    pmax = function(a, axis) return ml.pmax(a, axis) end,
    pmin = function(a, axis) return ml.pmin(a, axis) end,
    all_gather = function(a, axis) return ml.all_gather(a, axis) end,
    psum_scatter = function(a, axis) return ml.psum_scatter(a, axis) end,
    ppermute = function(a, axis) return ml.ppermute(a, axis, {{0, 1}}) end,
    all_to_all = function(a, axis) return ml.all_to_all(a, axis, 1, 1) end,
    axis_index = function(_, axis) return ml.axis_index(axis) end,
    axis_size = function(_, axis) return ml.axis_size(axis) end,
    pcast = function(a, axis) return ml.pcast(a, axis) end,
  }
  for name, call in pairs(calls) do
    it(name .. " outside shard_map is an error at its line", function()
      local message = raises("E_STATE", {name .. ": mesh axis 'x' is not bound here", "shard_map"}, call,
        ml.ones {4}, "x")
      assert.truthy(message:find "collective_spec.lua:%d+:", message)
    end)
    it("S6: " .. name .. " over an axis that is not manual is an error", function()
      local f = ml.shard_map(function(a) return call(a, "y") end,
        {mesh = mesh, in_specs = P(), out_specs = P(), axis_names = {"x"}})
      raises("E_SPEC", {name .. ": mesh axis 'y' is not manual here", "axis_names"}, f, ml.ones {4})
    end)
  end
end)

describe("pmean", function()
  it("is the sum over the devices", function()
    local y = map(function(a) return ml.pmean(a, "x") end, P "x", P())(ml.tensor {1.0, 2.0, 3.0, 6.0})
    assert.same({3.0}, y:totable())
    assert.equal("float32[1]", (types(function(a) return ml.pmean(a, "x") end, P "x", {ml.ones {4}})))
  end)
  it("of integers is float32", function()
    local y = map(function(a) return ml.pmean(a, "x") end, P "x", P())(ml.tensor {1, 2, 3, 4})
    assert.same({"float32", 2.5}, {y.dtype, y:totable()[1]})
  end)
  it("transposes", function()
    check_gradient(weighed(function(a) return ml.pmean(a * a, "x") + a end, P "x", P "x"), wave {4, 2})
  end)
end)

describe("pmax and pmin", function()
  it("give all devices the extremum", function()
    local hi, lo = map(function(a) return ml.pmax(a, "x"), ml.pmin(a, "x") end, P "x", {P(), P()})(
      ml.tensor {3.0, -1.0, 7.0, 2.0})
    assert.same({7.0, -1.0}, {hi:totable()[1], lo:totable()[1]})
    assert.equal("float32[1]", (types(function(a) return ml.pmax(a, "x") end, P "x", {ml.ones {4}})))
  end)
  it("of bools are any and all", function()
    local any, all = map(function(a) return ml.pmax(a, "x"), ml.pmin(a, "x") end, P "x", {P(), P()})(
      ml.tensor {false, true, false, false})
    assert.same({true, false}, {any:totable()[1], all:totable()[1]})
  end)
  it("are not differentiable, and say so; behind stop_gradient they are", function()
    local f = map(function(a) return ml.pmax(a, "x") end, P "x", P())
    raises("E_GRAD", {"not differentiable", "stop_gradient"},
      ml.grad(function(x) return f(x):sum() end), ml.ones {4})
    local g = map(function(a) return a - ml.pmax(ml.stop_gradient(a), "x") end, P "x", P "x")
    assert.same({1.0, 1.0, 1.0, 1.0}, ml.grad(function(x) return g(x):sum() end)(ml.ones {4}):totable())
  end)
end)

describe("all_gather", function()
  it("stacks along a new dim, or tiles; its result still varies", function()
    local stacked, second, tiled = types(function(a)
      return ml.all_gather(a, "x"), ml.all_gather(a, "x", {axis = 2}), ml.all_gather(a, "x", {tiled = true})
    end, P "x", {ml.ones {8, 3}})
    assert.same({"float32[4,2,3]{V:x}", "float32[2,4,3]{V:x}", "float32[8,3]{V:x}"}, {stacked, second, tiled})
  end)
  it("has the devices' blocks in order", function()
    local x = count(8, {8})
    local y = map(function(a) return ml.all_gather(a, "x", {axis = 2}):reshape {1, 2, 4} end, P "x", P "x")(x)
    for device = 1, 4 do assert.same({{0.0, 2.0, 4.0, 6.0}, {1.0, 3.0, 5.0, 7.0}}, y:totable()[device]) end
  end)
  it("over two axes: the first is the slowest", function()
    for _, axes in ipairs {{"x", "y"}, {"y", "x"}} do
      local y = map(function()
        return ml.all_gather(ml.axis_index(axes), axes):reshape {1, 1, 8}
      end, P(), P("x", "y"), mesh)(ml.ones {1})
      assert.same({0, 1, 2, 3, 4, 5, 6, 7}, y:totable()[4][2])
    end
  end)
  it("transposes to psum_scatter", function()
    check_gradient(weighed(function(a) return ml.all_gather(a, "x"):sum(2) * a:sum() end, P "x", P "x"),
      wave {8})
    check_gradient(weighed(function(a)
      return ml.all_gather(a, "x", {axis = 2, tiled = true}) * ml.axis_index "x"
    end, P "x", P "x"), wave {4, 2})
  end)
end)

describe("psum_scatter", function()
  it("keeps a part per device, or drops a dim of that size", function()
    local tiled, untiled = types(function(a)
      return ml.psum_scatter(a, "x", {tiled = true}), ml.psum_scatter(a:reshape {2, 4}, "x",
        {scatter_dimension = 2})
    end, P(), {ml.ones {8}})
    assert.same({"float32[2]{V:x}", "float32[2]{V:x}"}, {tiled, untiled})
  end)
  it("is psum and a slice", function()
    local x = wave {16, 8}
    local scattered = map(function(a)
      return ml.psum_scatter(a, "x", {scatter_dimension = 2, tiled = true})
    end, P "x", P(nil, "x"))(x)
    local summed = map(function(a) return ml.psum(a, "x") end, P "x", P())(x)
    helper.close(scattered, summed, 1e-12)
  end)
  it("transposes to all_gather", function()
    check_gradient(weighed(function(a) return ml.psum_scatter(a * a, "x", {tiled = true}) end, P(nil, "x"),
      P "x"), wave {4, 4})
    check_gradient(weighed(function(a) return ml.psum_scatter(ml.sin(a), "x") end, P "x", P "x"),
      wave {16, 2})
  end)
  it("of a dim that the devices do not divide is an error", function()
    raises("E_INDIVISIBLE", {"psum_scatter: dim 1", "size 6", "'x' of size 4"}, map(function(a)
      return ml.psum_scatter(a, "x", {tiled = true})
    end, P(), P "x"), ml.ones {6})
    raises("E_SHAPE", {"psum_scatter: dim 1", "must have the size of 'x', 4", "tiled"}, map(function(a)
      return ml.psum_scatter(a, "x")
    end, P(), P "x"), ml.ones {8})
  end)
end)

describe("ppermute", function()
  it("moves blocks; who is no destination gets zeros", function()
    local y = map(function(a) return ml.ppermute(a, "x", {{0, 2}, {3, 0}}) end, P "x", P "x")(
      ml.tensor {1.0, 2.0, 3.0, 4.0})
    assert.same({4.0, 0.0, 1.0, 0.0}, y:totable())
    assert.equal("float32[1]{V:x}",
      (types(function(a) return ml.ppermute(a, "x", {}) end, P(), {ml.ones {1}})))
  end)
  it("of every dtype", function()
    for _, dtype in ipairs(number_types) do
      local y = map(function(a) return ml.ppermute(a, "x", {{0, 1}, {1, 3}}) end, P "x", P "x")(
        ml.astype(ml.arange(5, 9), dtype))
      assert.same({dtype, 0, 5, 0, 6}, {y.dtype, table.unpack(ml.astype(y, "int32"):totable())})
    end
    local b = map(function(a) return ml.ppermute(a, "x", {{0, 1}}) end, P "x", P "x")(ml.ones({4}, "bool"))
    assert.same({false, true, false, false}, b:totable())
  end)
  it("over two axes counts places with the first the slowest", function()
    local y = map(function(a) return ml.ppermute(a, {"x", "y"}, {{0, 5}, {7, 2}}) end, P {"x", "y"},
      P {"x", "y"}, mesh)(ml.tensor(numbers(1, 8)))
    assert.same({0.0, 0.0, 8.0, 0.0, 0.0, 1.0, 0.0, 0.0}, y:totable())
  end)
  it("transposes to the inverse permutation", function()
    check_gradient(weighed(function(a) return ml.ppermute(a * a, "x", {{0, 2}, {3, 0}, {1, 1}}) end, P "x",
      P "x"), wave {8})
  end)
  it("with a source or destination twice is an error that names both pairs", function()
    local function permute(perm)
      return map(function(a) return ml.ppermute(a, "x", perm) end, P "x", P "x")
    end
    raises("E_VALUE", {"ppermute: place 1", "'x'", "source of pairs 1 and 3"},
      permute {{1, 0}, {2, 1}, {1, 2}}, ml.ones {4})
    raises("E_VALUE", {"destination of pairs 1 and 2"}, permute {{1, 0}, {2, 0}}, ml.ones {4})
    raises("E_VALUE", {"pair 1: source 4 is outside 0..3"}, permute {{4, 0}}, ml.ones {4})
    raises("E_VALUE", {"pair 1"}, permute {{1, 2, 3}}, ml.ones {4})
  end)
end)

describe("all_to_all", function()
  it("splits one dim and puts another together, or moves a dim", function()
    local tiled, untiled, back = types(function(a)
      return ml.all_to_all(a, "x", 2, 1, {tiled = true}), ml.all_to_all(a:reshape {2, 4, 3}, "x", 2, 1),
        ml.all_to_all(a:reshape {4, 2, 3}, "x", 1, 3)
    end, P "x", {ml.ones {8, 12}})
    assert.same({"float32[8,3]{V:x}", "float32[4,2,3]{V:x}", "float32[2,3,4]{V:x}"}, {tiled, untiled, back})
  end)
  it("is a transpose of who has what", function()
    local x = count(16, {4, 4})
    local tiled = map(function(a) return ml.all_to_all(a, "x", 2, 1, {tiled = true}) end, P "x",
      P(nil, "x"))(x)
    assert.same(x:totable(), tiled:totable())
    local untiled = map(function(a) return ml.all_to_all(a:reshape {4}, "x", 1, 1):reshape {1, 4} end, P "x",
      P "x")(x)
    assert.same(x.T and x:T():totable(), untiled:totable())
  end)
  it("untiled: result dims are those without the split dim, with one of the devices put in", function()
    local x = wave {4, 4, 3, 5}
    for _, case in ipairs {{1, 1}, {1, 2}, {1, 3}} do
      local y = map(function(a) return ml.all_to_all(a:reshape {4, 3, 5}, "x", case[1], case[2]) end, P "x",
        P())
      local shape = {3, 5}
      table.insert(shape, case[2], 4)
      local ok, message = pcall(y, x)
      assert.is_false(ok) -- it varies
      local got = map(function(a)
        return ml.expand_dims(ml.all_to_all(a:reshape {4, 3, 5}, "x", case[1], case[2]), 1)
      end, P "x", P "x")(x)
      assert.same({4, table.unpack(shape)}, got.shape, message)
      local perm = {2, 3, 4}
      table.insert(perm, case[2] + 1, 1)
      helper.close(got, x:transpose(perm), 0)
    end
  end)
  it("transposes to itself with the dims swapped", function()
    check_gradient(weighed(function(a)
      return ml.all_to_all(ml.sin(a), "x", 2, 1, {tiled = true}) * a:sum()
    end, P "x", P(nil, "x")), wave {4, 4})
    check_gradient(weighed(function(a)
      return ml.all_to_all(a:reshape {4, 2} * a:reshape {4, 2}, "x", 1, 2)
    end, P "x", P "x"), wave {4, 8})
    check_gradient(weighed(function(a) return ml.all_to_all(a * a, "x", 1, 1, {tiled = true}) end, P "x",
      P "x"), wave {16})
  end)
  it("of a dim that does not fit is an error", function()
    raises("E_INDIVISIBLE", {"all_to_all: dim 2", "size 6"}, map(function(a)
      return ml.all_to_all(a, "x", 2, 1, {tiled = true})
    end, P "x", P "x"), ml.ones {4, 6})
    raises("E_SHAPE", {"all_to_all: dim 1", "must have the size of 'x', 4"}, map(function(a)
      return ml.all_to_all(a, "x", 1, 2)
    end, P "x", P "x"), ml.ones {8, 6})
  end)
end)

describe("axis_index and axis_size", function()
  it("are the place, which varies, and a number", function()
    local i, both = types(function() return ml.axis_index "y", ml.axis_index {"x", "y"} end, P(),
      {ml.ones {1}}, mesh)
    assert.same({"int32[]{V:y}", "int32[]{V:(x,y)}"}, {i, both})
    local y = map(function()
      assert.same({4, 2, 8}, {ml.axis_size "x", ml.axis_size "y", ml.axis_size {"y", "x"}})
      return ml.axis_index({"y", "x"}):reshape {1, 1}
    end, P(), P("x", "y"), mesh)(ml.ones {1})
    assert.same({{0, 4}, {1, 5}, {2, 6}, {3, 7}}, y:totable())
  end)
end)

describe("pcast", function()
  it("lets an invariant value vary; nothing is moved", function()
    local before, after = types(function(a) return a, ml.pcast(a, "x") end, P(), {ml.ones {2}})
    assert.same({"float32[2]", "float32[2]{V:x}"}, {before, after})
    local f = ml.jit(map(function(a) return ml.pcast(a, "x") end, P(), P "x"))
    assert.same({1.0, 1.0, 1.0, 1.0}, f(ml.ones {1}):totable())
  end)
  it("transposes to psum", function()
    check_gradient(weighed(function(a) return ml.pcast(a, "x") * (ml.axis_index "x" + 1) end, P(), P "x"),
      wave {3})
  end)
  it("is inserted where values meet, so that its gradient is not forgotten", function()
    check_gradient(weighed(function(w, a) return w * a end, {P(), P "x"}, P "x"), wave {2}, wave {8})
    check_gradient(weighed(function(w, a) return a:matmul(w) end, {P(), P "x"}, P "x"), wave {2, 3},
      wave {4, 2})
  end)
  it("to 'reduced' and 'unreduced' says how sums stand; types as in JAX", function()
    local r, rr, rv, u, uu, s, part = types(function(w, a)
      local reduced, unreduced = ml.pcast(w, "x", {to = "reduced"}), ml.pcast(a, "x", {to = "unreduced"})
      return reduced, reduced + reduced, reduced * a, unreduced, unreduced + unreduced,
        ml.psum(unreduced, "x"),
        ml.psum_scatter(ml.pcast(ml.concat {a, a}, "x", {to = "unreduced"}), "x", {tiled = true})
    end, {P(), P "x"}, {ml.ones {2}, count(8, {8})})
    assert.same({"float32[2]{R:x}", "float32[2]{R:x}", "float32[2]{V:x}", "float32[2]{U:x}",
      "float32[2]{U:x}", "float32[2]", "float32[1]{V:x}"}, {r, rr, rv, u, uu, s, part})
  end)
  it("the gradient of a reduced value is unreduced: one sum at the end serves many", function()
    local step = ml.jit(map(function(w, a)
      local reduced, total = ml.pcast(w, "x", {to = "reduced"}), nil
      for i = 1, 3 do
        local g = ml.grad(function(v) return (ml.sin(v * a) * i):sum() end)(reduced)
        assert.equal("float64[2]{U:x}", ml.typeof(g))
        total = total and total + g or g
      end
      return ml.psum(total * 0.5, "x")
    end, {P(), P "x"}, P()))
    local w, a = wave {2}, wave {8}
    local want = ml.grad(function(v)
      return (ml.sin(ml.concat {v, v, v, v} * a) * 3):sum()
    end)(w)
    helper.close(step(w, a), want, 1e-12)
    local sums = 0
    for _, c in ipairs(step:plan(w, a):collectives()) do sums = sums + (c.op == "all_reduce" and 1 or 0) end
    assert.equal(1, sums)
  end)
  it("an unreduced sum is carried by a loop, and comes out of one", function()
    local rows, w = wave {3, 8}, wave {2}
    local sum, steps = map(function(v, a)
      local reduced = ml.pcast(v, "x", {to = "reduced"})
      local nought = ml.pcast(ml.pcast(ml.zeros({2}, "float64"), "x"), "x", {to = "unreduced"})
      local total, each = ml.scan(function(c, row)
        local g = ml.grad(function(u) return ml.sin(u * row):sum() end)(reduced)
        return c + g, g
      end, nought, a)
      assert.same({"float64[2]{U:x}", "float64[3,2]{U:x}"}, {ml.typeof(total), ml.typeof(each)})
      return ml.psum(total, "x"), ml.psum(each, "x")
    end, {P(), P(nil, "x")}, {P(), P()})(w, rows)
    local function loss(row)
      return ml.grad(function(u) return ml.sin(ml.concat {u, u, u, u} * row):sum() end)(w)
    end
    local want = ml.stack {loss(rows:at(1)), loss(rows:at(2)), loss(rows:at(3))}
    helper.close(steps, want, 1e-12)
    helper.close(sum, want:sum(1), 1e-12)
  end)
  it("of every kind transposes", function()
    check_gradient(weighed(function(w, a)
      local part = ml.sin(ml.pcast(w, "x", {to = "reduced"})) * a
      return ml.psum(ml.pcast(part, "x", {to = "unreduced"}), "x") * a
    end, {P(), P "x"}, P "x"), wave {2}, wave {8})
    check_gradient(weighed(function(a)
      local parts = ml.pcast(a * a, "x", {to = "unreduced"})
      return ml.psum_scatter(-parts * 2 + parts, "x", {tiled = true}) * ml.axis_index "x"
    end, P "x", P "x"), wave {16})
    check_gradient(weighed(function(w)
      return ml.pcast(ml.tanh(ml.pcast(w, "x", {to = "reduced"}) + 1), "x") * (ml.axis_index "x" + 1)
    end, P(), P "x"), wave {3})
  end)
  it("a sum still to be made is refused where it would give something else", function()
    local function with(f)
      return map(function(a, w) return f(ml.pcast(a, "x", {to = "unreduced"}), a, w) end, {P "x", P()}, P "x")
    end
    local function refused(fragment, f)
      raises("E_SPEC", {"unreduced", fragment, "psum"}, with(f), ml.ones {4}, ml.ones {1})
    end
    refused("sin: ", function(u) return ml.sin(u) end)
    refused("mul: ", function(u) return u * u end)
    refused("another operand varies", function(u, a) return u + a end)
    refused("the other is not", function(u, _, w) return u + w end)
    refused("sum still to be made", function(u) return ml.ppermute(u, "x", {{0, 1}}) end)
    refused("output: it is float32[1]{U:x}", function(u) return u end)
  end)
  it("to anything else is an error", function()
    raises("E_VALUE", {"pcast: to = 'invarying'"}, map(function(a)
      return ml.pcast(a, "x", {to = "invarying"})
    end, P(), P()), ml.ones {2})
    raises("E_SPEC", {"pcast: there is no cast to 'unreduced' of this"}, map(function(a)
      return ml.pcast(a, "x", {to = "unreduced"})
    end, P(), P()), ml.ones {2})
    raises("E_SPEC", {"pcast: there is no cast to 'reduced' of this"}, map(function(a)
      return ml.pcast(a, "x", {to = "reduced"})
    end, P "x", P()), ml.ones {4})
  end)
end)
