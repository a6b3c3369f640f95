-- devices: 8
-- Lines S1 to S6 of sharding-semantics.md §1.6, and what jit, gradients and modules make of them.
local helper = require "spec.helper"
local manual = require "spec.manual.manual"
local ml = require "meshlua"

local P, NamedSharding = ml.P, ml.NamedSharding
local raises, check_gradient, wave, count = manual.raises, manual.check_gradient, manual.wave, manual.count
local mesh = ml.make_mesh({4, 2}, {"x", "y"})

local function map(f, ins, outs, axis_names)
  return ml.shard_map(f, {mesh = mesh, in_specs = ins, out_specs = outs, axis_names = axis_names})
end
local function same(...) return ... end

describe("S1: shard_map's options", function()
  it("give a function of whole tensors", function()
    local y = map(function(a) return a * 2 end, P("x", "y"), P("x", "y"))(count(16, {4, 4}))
    assert.equal("float32[4@x,4@y]", ml.typeof(y))
    assert.same((count(16, {4, 4}) * 2):totable(), y:totable())
  end)
  it("S1: the mesh is that in context, and must be it", function()
    local f = ml.shard_map(same, {in_specs = P "x", out_specs = P "x"})
    local y = mesh:with(function() return f(ml.ones {4}) end)
    assert.equal("float32[4@x]", ml.typeof(y))
    raises("E_MESH", {"shard_map: there is no mesh", "mesh ="}, f, ml.ones {4})
    local other = ml.make_mesh({8}, {"x"})
    raises("E_MESH", {"its mesh is Mesh(x=4, y=2)", "the one in context is Mesh(x=8)"}, other.with, other,
      function() return map(same, P "x", P "x")(ml.ones {8}) end)
    raises("E_MESH", {"'mesh' must be a Mesh, not a number"}, ml.shard_map, same,
      {mesh = 4, in_specs = P(), out_specs = P()})
  end)
  it("S1: an argument on another mesh is an error", function()
    local x = ml.device_put(ml.ones {8}, NamedSharding(ml.make_mesh({8}, {"z"}), P "z"))
    raises("E_MESH", {"Mesh(z=8)", "Mesh(x=4, y=2)", "device_put"}, map(same, P "x", P "x"), x)
  end)
  it("S1: axis_names are axes of the mesh, each once", function()
    local function with(names) return map(same, P(), P(), names) end
    raises("E_SPEC", {"axis_names[1] is 'z', which is not an axis of Mesh(x=4, y=2)"}, with {"z"},
      ml.ones {2})
    raises("E_SPEC", {"axis_names has 'x' twice"}, with {"x", "x"}, ml.ones {2})
    raises("E_SPEC", {"axis_names names no axis"}, with {}, ml.ones {2})
    raises("E_VALUE", {"axis_names must be a list"}, with {a = 1}, ml.ones {2})
  end)
  it("S1: an unknown option is an error: checks cannot be switched off", function()
    raises("E_KEY", {"unknown option 'check_vma'"}, ml.shard_map, same, {check_vma = false})
    raises("E_KEY", {"did you mean 'in_specs'?"}, ml.shard_map, same, {in_spec = P()})
    raises("E_SPEC", {"no out_specs are given"}, ml.shard_map, same, {mesh = mesh, in_specs = P()})
    raises("E_SPEC", {"no in_specs are given", "Explicit, but 'x' is not"},
      ml.shard_map(same, {mesh = mesh, out_specs = P()}), ml.ones {4})
    local function with(fn, outs) ml.shard_map(fn, {mesh = mesh, in_specs = P(), out_specs = outs}) end
    raises("E_SPEC", {"out_specs is a number"}, with, same, 1)
    raises("E_VALUE", {"expected a function"}, with, 1, P())
  end)
  it("S1: false is the spec of a static argument; a tensor needs a P", function()
    local f = map(function(a, name, settings)
      assert.same({"gelu", 3}, {name, settings.depth})
      return a
    end, {P "x", false, false}, P "x")
    assert.same({1.0, 1.0, 1.0, 1.0}, f(ml.ones {4}, "gelu", {depth = 3}):totable())
    raises("E_SPEC", {"argument name is a tensor, but in_specs has nothing for it", "P()"}, f, ml.ones {4},
      ml.ones {1}, 1)
    raises("E_SPEC", {"argument settings.w is a tensor"}, f, ml.ones {4}, "gelu", {w = ml.ones {1}})
  end)
  it("S1: specs are trees, or stand for all below them", function()
    local f = map(function(t, n) return {s = t.a + t.b.c, n = n} end, {{a = P "x", b = P()}, P()},
      {s = P "x", n = P()})
    local y = f({a = ml.ones {4}, b = {c = ml.tensor {2.0}}}, 5)
    assert.same({{3.0, 3.0, 3.0, 3.0}, 5}, {y.s:totable(), y.n:item()})
    assert.same({"float32[4@x]", "int32[]"}, {ml.typeof(y.s), ml.typeof(y.n)})
    raises("E_SPEC", {"in_specs has 3 entries for 1 argument"}, map(same, {P(), P(), P()}, P()), ml.ones {1})
    raises("E_SPEC", {"out_specs has 2 entries for 1 result"}, map(same, P(), {P(), P()}), ml.ones {1})
    raises("E_SPEC", {'in_specs has the key a'}, map(same, {a = P()}, P()), {a = ml.ones {1}})
    raises("E_SPEC", {"output is a tensor, but out_specs has a table"}, map(same, P(), {{P()}}), ml.ones {1})
  end)
  it("S1: in Auto mode arguments are resharded to their in_specs", function()
    local x = ml.device_put(count(32, {8, 4}), NamedSharding(mesh, P("y", nil)))
    local f = ml.jit(map(function(a) return a end, P(nil, "x"), P(nil, "x")))
    assert.same(x:totable(), f(x):totable())
    assert.equal("float32[8,4@x]", ml.typeof(f(x)))
  end)
end)

describe("S2: blocks", function()
  it("have the rank of their tensors, and the dims divided by the axes of their specs", function()
    map(function(a, b, c)
      assert.same({{2, 3}, {1, 6}, {8, 6}}, {a.shape, b.shape, c.shape})
      return a
    end, {P("x", "y"), P {"x", "y"}, P()}, P("x", "y"))(ml.ones {8, 6}, ml.ones {8, 6}, ml.ones {8, 6})
  end)
  it("S2: an indivisible one names every offending argument, with axes and sizes", function()
    local f = map(function(a) return a end, {P "x", P(nil, {"x", "y"}), {w = P("y")}}, P "x")
    raises("E_INDIVISIBLE", {
      "argument a: dim 1 of size 6 is not divided by 'x' of size 4 (P(\"x\"))",
      "argument 2: dim 2 of size 12 is not divided by 'x' of size 4 and 'y' of size 2 "
        .. '(P(nil, {"x","y"}))',
      "argument 3.w: dim 1 of size 3 is not divided by 'y' of size 2"}, f, ml.ones {6}, ml.ones {2, 12},
      {w = ml.ones {3}})
  end)
  it("S2: a spec longer than the rank is an error, of arguments and of results", function()
    raises("E_SPEC", {'argument a: P("x", "y") has 2 entries but the tensor has rank 1'},
      map(function(a) return a end, P("x", "y"), P()), ml.ones {4})
    for _, shapes in ipairs {{{6}, {4}}, {{4}, {6}}} do -- beside one that is not divided, in either order
      local rank = 'P("x", "y") has 2 entries but the tensor has rank 1'
      local specs = shapes[1][1] == 6 and {P "x", P("x", "y")} or {P("x", "y"), P "x"}
      raises("E_SPEC", {rank, "dim 1 of size 6 is not divided by 'x' of size 4"},
        map(function(a) return a end, specs, P()), ml.ones(shapes[1]), ml.ones(shapes[2]))
    end
    raises("E_SPEC", {"the tensor has rank 0; a scalar takes P()"}, map(same, P "x", P()), ml.ones {})
    raises("E_SPEC", {'output: P("x", "y") has 2 entries but the value has rank 1'},
      map(same, P "x", P("x", "y")), ml.ones {4})
  end)
  it("S2: a scalar result takes P(), or a dim of size 1", function()
    raises("E_SPEC", {"output: P(\"x\") has 1 entry", "rank 0", "reshape({1})"},
      map(function(a) return a:sum() end, P "x", P "x"), ml.ones {4})
    local y = map(function(a) return a:sum():reshape {1} end, P "x", P "x")(count(8, {8}))
    assert.same({1.0, 5.0, 9.0, 13.0}, y:totable())
  end)
end)

describe("S3: results", function()
  it("are put together along named axes; of others one copy is taken", function()
    local two, one = map(function(a) return a, ml.psum(a, "x") end, P "x", {P "x", P()})(count(8, {8}))
    assert.same({{8}, {2}}, {two.shape, one.shape})
    local copies = map(function() return ml.ones {1} end, P(), P("x"))(ml.ones {1})
    assert.same({1.0, 1.0, 1.0, 1.0}, copies:totable())
  end)
  it("S3: one that may differ along an axis that is not named can't be inferred: path and axes", function()
    local f = map(function(a, b) return {u = a + b}, b, ml.psum(a, "x") end, {P "x", P "y"},
      {{u = P "x"}, P(), P()})
    local message = raises("E_SPEC", {
      "output 1.u: it varies over mesh axis 'y', which P(\"x\") does not name",
      "output 2: it varies over mesh axis 'y'", "can't be statically inferred", "psum", "out_specs"}, f,
      ml.ones {4}, ml.ones {2})
    assert.falsy(message:find("output 3", 1, true))
    raises("E_SPEC", {"varies over mesh axis 'x', 'y'"}, map(same, P("x", "y"), P()), ml.ones {4, 2})
  end)
  it("S3: all_gather and ppermute do not prove equality, psum does", function()
    raises("E_SPEC", {"can't be statically inferred"},
      map(function(a) return ml.all_gather(a, "x", {tiled = true}) end, P "x", P()), ml.ones {4})
    local y = map(function(a)
      return ml.pmean(ml.all_gather(a, "x", {tiled = true}), "x")
    end, P "x", P())(count(4, {4}))
    assert.same({0.0, 1.0, 2.0, 3.0}, y:totable())
  end)
end)

describe("S4: what varies", function()
  it("is what in_specs name, and joins where values meet", function()
    map(function(a, b, c)
      assert.same({"float32[1]{V:x}", "float32[1]{V:y}", "float32[1]"}, {ml.typeof(a), ml.typeof(b),
        ml.typeof(c)})
      assert.same({"float32[1]{V:(x,y)}", "float32[1]{V:x}"}, {ml.typeof(a * b), ml.typeof(a + c)})
      assert.equal("float32[1]", ml.typeof(c * 2 + ml.ones {1}))
      assert.truthy(tostring(a):find "float32%[1%]{V:x}")
      return c
    end, {P "x", P "y", P()}, P())(ml.ones {4}, ml.ones {2}, ml.ones {1})
  end)
  it("S4: a gradient varies over what its value does: that of an invariant is summed (jax#3970)", function()
    local g = map(function(w, a)
      local d = ml.grad(function(v) return (v * a):sum() end)(w)
      assert.equal("float32[1]", ml.typeof(d))
      return d
    end, {P(), P "x"}, P())(ml.ones {1}, ml.tensor {1.0, 2.0, 3.0, 4.0})
    assert.same({10.0}, g:totable())
    local h = map(function(a)
      local d = ml.grad(function(v) return (v * v):sum() end)(a)
      assert.equal("float32[1]{V:x}", ml.typeof(d))
      return d
    end, P "x", P "x")(ml.tensor {1.0, 2.0, 3.0, 4.0})
    assert.same({2.0, 4.0, 6.0, 8.0}, h:totable())
  end)
  it("S4: zeros are of the type of what they are the gradient of", function()
    map(function(a, w)
      local g = ml.grad(function(t) return (t.a * 2):sum() end)({a = a, w = w})
      assert.same({"float32[1]{V:x}", "float32[1]"}, {ml.typeof(g.a), ml.typeof(g.w)})
      return w
    end, {P "x", P()}, P())(ml.ones {4}, ml.ones {1})
  end)
  it("S4: value_and_grad inside: a data-parallel step without a word about sums", function()
    local function loss(w, x) return ((x:matmul(w)) ^ 2):mean() end
    local w, x = wave {3, 2}, wave {8, 3}
    local value, grad = map(function(v, a)
      local l, g = ml.value_and_grad(function(u) return ml.pmean(loss(u, a), "x") end)(v)
      return l, g
    end, {P(), P "x"}, {P(), P()})(w, x)
    local want, want_grad = ml.value_and_grad(function(u) return loss(u, x) end)(w)
    helper.close(value, want, 1e-12)
    helper.close(grad, want_grad, 1e-12)
  end)
end)

describe("S5: partial manual", function()
  it("leaves the other axes to propagation", function()
    local w = ml.device_put(wave {4, 6}, NamedSharding(mesh, P(nil, "y")))
    local f = ml.jit(map(function(a, b)
      assert.same({{8, 1}, {1, 6}}, {a.shape, b.shape})
      return ml.psum(a:matmul(b), "x")
    end, {P(nil, "x"), P "x"}, P(), {"x"}))
    local y = f(wave {8, 4}, w)
    assert.equal("float64[8,6@y]", ml.typeof(y))
    helper.close(y, wave {8, 4}:matmul(wave {4, 6}), 1e-12)
  end)
  it("S5: specs may name manual axes only", function()
    raises("E_SPEC", {'in_specs: P("y") names \'y\', which is none of the manual axes (\'x\')'},
      map(same, P "y", P(), {"x"}), ml.ones {4})
    raises("E_SPEC", {"out_specs[1]: P"}, map(same, P(), {P "y"}, {"x"}), ml.ones {4})
    raises("E_SPEC", {"names 'z'"}, map(same, P "z", P()), ml.ones {4})
    raises("E_SPEC", {"unconstrained"}, map(same, P(ml.P.unconstrained), P()), ml.ones {4})
    raises("E_SPEC", {"duplicate entries for axis 'x'"}, map(same, P("x", "x"), P()), ml.ones {4, 4})
  end)
  it("S5: constraints inside use the remaining axes, and no others", function()
    local function constrained(axis)
      return map(function(a) return ml.constrain(a * 2, NamedSharding(mesh, P(nil, axis))) end, P "x", P "x",
        {"x"})
    end
    local y = constrained "y"(count(16, {4, 4}))
    assert.equal("float32[4@x,4@y]", ml.typeof(y))
    assert.same((count(16, {4, 4}) * 2):totable(), y:totable())
    raises("E_SPEC", {"constrain: mesh axis 'x' is manual here"}, constrained "x", count(16, {4, 4}))
  end)
  it("S5: nested over the remaining axes", function()
    local inner_types = {}
    local f = map(function(a)
      local b = ml.shard_map(function(c)
        inner_types[1], inner_types[2] = ml.typeof(c), ml.typeof(ml.psum(c, "y"))
        return ml.psum(c, "y") + ml.axis_index "x"
      end, {in_specs = P(nil, "y"), out_specs = P()})(a)
      inner_types[3] = ml.typeof(b)
      return ml.psum(b, "x")
    end, P "x", P(), {"x"})
    assert.same({{62.0, 70.0}}, {f(count(16, {4, 4})):totable()[1]})
    assert.same({"float32[1,2]{V:(x,y)}", "float32[1,2]{V:x}", "float32[1,2]{V:x}"}, inner_types)
    raises("E_SPEC", {"axis 'x' is manual already"}, map(function(a)
      return map(same, P "x", P "x", {"x"})(a)
    end, P "x", P "x", {"x"}), ml.ones {16})
    raises("E_SPEC", {"every axis of Mesh(x=4, y=2)"}, map(function(a)
      return map(same, P "x", P "x")(a)
    end, P "x", P "x"), ml.ones {16})
  end)
  it("S5: gradients go through partial and nested ones", function()
    local f = map(function(a, w)
      local b = ml.shard_map(function(c, d) return ml.psum(ml.sin(c) * d, "y") end,
        {in_specs = {P(nil, "y"), P "y"}, out_specs = P()})(a, w)
      return ml.psum(b * ml.axis_index "x", "x") * a:sum()
    end, {P "x", P()}, P "x", {"x"})
    check_gradient(function(x, w) return (f(x, w) * wave {4, 2}):sum() end, wave {4, 4}, wave {4})
  end)
end)

describe("S6: what is outside", function()
  it("closes over tensors, which all devices have whole", function()
    local c = ml.device_put(count(4, {4}), NamedSharding(mesh, P "y"))
    local function f(x, k)
      return map(function(a)
        local inside = a * k
        assert.equal("float32[1,4]{V:x}", ml.typeof(inside))
        return inside
      end, P "x", P "x")(x)
    end
    assert.same((ml.ones {4, 4} * c):totable(), f(ml.ones {4, 4}, c):totable())
    local g = ml.grad(function(k) return f(ml.ones {4, 4}, k):sum() end)(c)
    assert.same({4.0, 4.0, 4.0, 4.0}, g:totable())
  end)
  it("S6: closes over values of the jitted function around it", function()
    local step = ml.jit(function(x)
      local twice = x * 2
      return map(function(a) return a + twice:sum() end, P "x", P "x")(x)
    end)
    assert.same({8.0 + 1, 8.0 + 1, 8.0 + 1, 8.0 + 1}, step(ml.ones {4}):totable())
  end)
  it("S6: a value of the function used outside is an error", function()
    local step = ml.jit(function(x)
      local kept
      map(function(a)
        kept = a
        return a
      end, P "x", P "x")(x)
      return kept + 1
    end)
    raises("E_STATE", {"a value of shard_map's function is used outside it", "out_specs"}, step, ml.ones {4})
  end)
  it("S6: device_put in it is an error", function()
    raises("E_SPEC", {"mesh axis 'x' is manual here"}, map(function(a)
      return ml.device_put(a, NamedSharding(mesh, P "x"))
    end, P(), P "x"), ml.ones {4})
  end)
  it("S6: after an error in it that was caught, the trace goes on outside", function()
    local step = ml.jit(function(x)
      local ok = pcall(map(function() error "mine" end, P "x", P "x"), x)
      assert.is_false(ok)
      assert.is_false((pcall(ml.psum, x, "x")))
      return x + 1
    end)
    assert.same({2.0, 2.0, 2.0, 2.0}, step(ml.ones {4}):totable())
  end)
end)

describe("in explicit mode", function()
  local explicit = ml.make_mesh({4, 2}, {"x", "y"}, {axis_types = {"explicit", "explicit"}})
  local function on(spec) return ml.device_put(count(32, {8, 4}), NamedSharding(explicit, spec)) end
  local function emap(f, ins, outs, names)
    return ml.shard_map(f, {mesh = explicit, in_specs = ins, out_specs = outs, axis_names = names})
  end
  it("S1: an argument that does not lie as its in_spec says is an error, not a move", function()
    local message = {"argument a is float32[8@x,4@y], but its in_spec is P(\"y\")", "reshard"}
    local function f(a) return a * 2 end
    raises("E_SPEC", message, emap(f, P "y", P "y"), on(P("x", "y")))
    raises("E_SPEC", message, ml.jit(emap(f, P "y", P "y")), on(P("x", "y")))
    raises("E_SPEC", {"argument a is float32[8,4]"}, emap(f, P "x", P "x"), ml.ones {8, 4})
    local y = emap(f, P("x", "y"), P("x", "y"))(on(P("x", "y")))
    assert.same((count(32, {8, 4}) * 2):totable(), y:totable())
  end)
  it("S1: in_specs that are left out are what the types say", function()
    local seen
    local f = ml.shard_map(function(a, t)
      seen = {ml.typeof(a), ml.typeof(t.w), t.n}
      return a
    end, {mesh = explicit, out_specs = P("x", "y")})
    local step = ml.jit(function(x)
      local y = f(x, {w = x:sum(1), n = "name"})
      assert.equal("float32[8@x,4@y]", ml.typeof(y))
      return y
    end)
    assert.same(count(32, {8, 4}):totable(), step(on(P("x", "y"))):totable())
    assert.same({"float32[2,2]{V:(x,y)}", "float32[2]{V:y}", "name"}, seen)
  end)
  it("S5: axes that are not manual stay explicit inside", function()
    local seen
    local step = ml.jit(function(x)
      local y = emap(function(a)
        seen = {ml.typeof(a), ml.typeof(ml.psum(a * 2, "x"))}
        return ml.sin(a) * ml.psum(a, "x")
      end, P "x", P "x", {"x"})(x)
      assert.equal("float32[8@x,4@y]", ml.typeof(y))
      return y:sum()
    end)
    local g = ml.grad(step)(on(P("x", "y")))
    assert.same({"float32[2,4@y]{V:x}", "float32[2,4@y]"}, seen)
    local whole = ml.grad(function(x) -- the same on one device
      local parts, sum = ml.split(x, 4), 0
      for _, a in ipairs(parts) do sum = sum + a end
      return (ml.sin(x) * ml.concat {sum, sum, sum, sum}):sum()
    end)(count(32, {8, 4}))
    helper.close(g, whole, 1e-4)
  end)
  it("S5: also where they split a dim together with a manual one", function()
    local both = P {"x", "y"}
    local x = ml.device_put(count(8, {8}), NamedSharding(explicit, both))
    local f = emap(function(a) return ml.sin(a) end, P "x", P "x", {"x"})
    local step, gradient = ml.jit(f), ml.jit(ml.grad(function(v) return f(v):sum() end))
    assert.equal(tostring(both), tostring(step(x).sharding.spec))
    assert.equal(tostring(both), tostring(gradient(x).sharding.spec))
    helper.close(ml.cos(count(8, {8})), gradient(x), 1e-6)
    assert.same({}, step:plan(x):collectives())
  end)
  it("S6: closing over an explicitly split tensor takes it whole (JAX refuses)", function()
    local c = on(P("x", "y"))
    local y = emap(function(a) return a + c:sum() end, P("x", "y"), P("x", "y"))(c)
    assert.same((count(32, {8, 4}) + 496):totable(), y:totable())
  end)
end)

it("ml.verify says where what shard_map gives has other shapes for other blocks", function()
  local step = ml.jit(map(function(a) return ml.psum(a, "x") end, P "x", P()))
  raises("E_STATE", {"verify: the step has a shard_map (tests/spec/manual/"}, ml.verify, step,
    ml.device_put(ml.ones {4}, NamedSharding(mesh, P "x")))
end)

describe("a module in shard_map", function()
  it("has the blocks of its Params, and their gradients", function()
    local model = {w = helper.param(count(4, {4})), name = "scale"}
    local f = map(function(m, a)
      assert.same({"float32[2]{V:y}", "scale"}, {ml.typeof(m.w), m.name})
      return a * m.w
    end, {P "y", P("x", "y")}, P("x", "y"))
    assert.same((ml.ones {4, 4} * count(4, {4})):totable(), f(model, ml.ones {4, 4}):totable())
    local g = ml.grad(function(m) return f(m, ml.ones {4, 4}):sum() end)(model)
    assert.same({4.0, 4.0, 4.0, 4.0}, g.w:totable())
    assert.equal("float32[4]", ml.typeof(model.w))
  end)
  it("that writes a Param is an error, and the Param keeps what it had", function()
    local w = helper.param(ml.ones {4})
    raises("E_STATE", {"writes a Param", "out_specs"}, map(function(m)
      m.w:set(m.w * 2)
      return m.w + 0
    end, P "x", P "x"), {w = w})
    assert.same({1.0, 1.0, 1.0, 1.0}, w:totable())
  end)
  it("with two specs for one Param is an error", function()
    local w = helper.param(ml.ones {4})
    raises("E_SPEC", {"stands in the arguments twice"},
      map(function(a) return a + 0 end, {P "x", P()}, P "x"), w, w)
  end)
end)

describe("shard_map under jit", function()
  it("is traced once per kind of arguments", function()
    local step = ml.jit(map(function(a) return ml.psum(a, "x") end, P "x", P()))
    step(ml.ones {4})
    step(ml.ones {4})
    assert.equal(1, (helper.traces(step)))
    step(ml.ones {8})
    assert.equal(2, (helper.traces(step)))
  end)
  it("runs the collectives that were written, and no others", function()
    local x = ml.device_put(ml.ones {8, 4}, NamedSharding(mesh, P("x", "y")))
    local step = ml.jit(map(function(a)
      return ml.psum(a, "x"), ml.ppermute(a, "y", {{0, 1}}), ml.all_gather(a, "y", {tiled = true})
    end, P("x", "y"), {P(nil, "y"), P("x", "y"), P({"x", "y"})}))
    local names = {}
    for _, c in ipairs(step:plan(x):collectives()) do names[#names + 1] = c.op end
    table.sort(names)
    assert.same({"all_gather", "all_reduce", "ppermute"}, names)
  end)
  it("gives one device's bytes for each collective", function()
    local x = ml.device_put(ml.ones {8, 4}, NamedSharding(mesh, P "x"))
    local step = ml.jit(map(function(a) return ml.all_gather(a, "x", {tiled = true}) end, P "x", P "x"))
    local c = step:plan(x):collectives()[1]
    assert.equal("written here", c.why)
    assert.equal(3 * 2 * 4 * 4, math.tointeger(c.sent))
  end)
end)

it("pmap maps a dim over devices", function()
  local y, total = ml.pmap(function(x, w) return x * w + ml.axis_index "i", ml.psum(x, "i") end,
    {axis_name = "i", in_axes = {1, false}, out_axes = {2, false}})(count(8, {4, 2}), ml.ones {2})
  assert.same({{0.0, 3.0, 6.0, 9.0}, {1.0, 4.0, 7.0, 10.0}}, y:totable())
  assert.same({12.0, 16.0}, total:totable())
  raises("E_SHAPE", {"argument 1 has 4, argument 2 has 3"}, ml.pmap(same), ml.ones {4}, ml.ones {3})
  raises("E_MESH", {"9 places for 8 devices"}, ml.pmap(same), ml.ones {9})
  raises("E_VALUE", {"no argument is mapped"}, ml.pmap(same, {in_axes = {false}}), ml.ones {2})
end)

it("pmap: an argument that all devices have whole has a gradient on each; the first one's result is whole",
  function()
    local w, x = count(3, {3}) / 8, count(24, {8, 3}) / 16
    local function grad_of(v, rows)
      return ml.grad(function(u) return ml.tanh(rows:matmul(u)):sum() end)(v)
    end
    local alone = ml.vmap(grad_of, {in_axes = {false, 1}})(w, x)
    helper.close(alone, ml.pmap(grad_of, {in_axes = {false, 1}})(w, x), 1e-6)
    local updated = ml.pmap(function(v, rows) return v - 0.1 * ml.pmean(grad_of(v, rows), "i") end,
      {axis_name = "i", in_axes = {false, 1}, out_axes = {false}})(w, x)
    helper.close(w - 0.1 * alone:mean(1), updated, 1e-6)
    local first = ml.pmap(function(v) return {v, v:gt(3.5), v:astype "int32"} end, {out_axes = {false}})
    local got = first(ml.tensor {7.5, 0 / 0, 2.0, 3.0})
    assert.same({7.5, true, 7}, {got[1]:item(), got[2]:item(), got[3]:item()})
    assert.same({"float32", "bool", "int32"}, {got[1].dtype, got[2].dtype, got[3].dtype})
  end)

it("device_put_replicated stacks a copy per device, which pmap maps", function()
  local x = ml.device_put_replicated({w = ml.tensor {1.0, 2.0}}, {0, 1, 2})
  assert.equal("float32[3@devices,2]", ml.typeof(x.w))
  assert.same({3.0, 3.0, 3.0}, ml.pmap(function(t) return t.w:sum() end)(x):totable())
end)

it("the gradient of a cast inside goes back to blocks before it widens", function()
  local x = ml.arange(16.0):reshape {4, 4} / 8
  local f = map(function(a) return ml.sin(a * 2):astype "bfloat16" end, P("x", "y"), P("x", "y"))
  local got = ml.grad(function(v) return (f(v):astype "float32" * v):sum() end)(x)
  local want = ml.grad(function(v) return (ml.sin(v * 2):astype "bfloat16":astype "float32" * v):sum() end)(x)
  helper.close(want, got, 1e-6)
end)

it("what is computed again for a gradient inside comes from around it as it is", function()
  local x, y = ml.arange(16.0):reshape {4, 4} / 8, ml.arange(16.0):reshape {4, 4}:T() / 16
  local twice = map(function(a) return a * 2 end, P("x"), P("x"))
  local keep = {policy = ml.remat_policies.everything_saveable}
  local function f(again)
    return function(u, v)
      return (again(function(p)
        return again(function()
          return twice(again(function(s) return ml.sin(v * s) end)(p))
        end)(u)
      end, keep)(v) * u):sum()
    end
  end
  local want = ml.grad(f(function(fn) return fn end), {argnums = {1, 2}})(x, y)
  local got = ml.jit(ml.grad(f(ml.remat), {argnums = {1, 2}}))(x, y)
  for i = 1, 2 do helper.close(want[i], got[i], 1e-6) end
end)
