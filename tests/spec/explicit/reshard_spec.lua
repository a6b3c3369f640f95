-- devices: 8
-- reshard, the cotangents of what is reduced and unreduced, and modes of axes: lines E4, E5, E7, P7, P10 and J12.
local ml = require "meshlua"
local helper = require "spec.helper"

local P, NamedSharding, typeof = ml.P, ml.NamedSharding, ml.typeof
local mesh = ml.make_mesh({2, 4}, {"X", "Y"}, {axis_types = "explicit"})
local mixed = ml.make_mesh({2, 4}, {"X", "Y"}, {axis_types = {X = "explicit"}})
local auto = ml.make_mesh({2, 4}, {"X", "Y"})
local raises, close = helper.raises, helper.close

local function numbers(...)
  local n, shape = 1, {...}
  for _, size in ipairs(shape) do n = n * size end
  return ml.sin(ml.arange(n + 0.0)):reshape(shape)
end

local function put(x, ...) return ml.device_put(x, NamedSharding(mesh, P(...))) end
local function whole(x) return ml.device_put(x, NamedSharding(mesh, P())) end

--- The kinds of collectives in a jitted function's plan, in order.
local function collectives(step, ...)
  local kinds = {}
  for _, c in ipairs(step:plan(...):collectives()) do kinds[#kinds + 1] = c.op end
  return kinds
end

describe("reshard", function()
  local specs = {P(), P("X"), P("Y"), P("X", "Y"), P(nil, "X"), P({"X", "Y"}), P(nil, {"Y", "X"}),
    P({unreduced = {"X"}}), P("X", {unreduced = {"Y"}}), P({unreduced = {"X", "Y"}}), P(nil, "Y",
      {unreduced = {"X"}}),
    P({reduced = {"X"}}), P("Y", {reduced = {"X"}}), P({unreduced = {"X"}, reduced = {"Y"}})}

  it("E4: goes from any spec to any other, to and from unreduced and reduced", function()
    local x = numbers(8, 16)
    for _, from in ipairs(specs) do
      local placed = put(x, table.unpack(from.partitions)):reshape(8, 16)
      placed = ml.reshard(placed, from)
      for _, to in ipairs(specs) do
        local y = ml.reshard(placed, to)
        assert.is_true(y.sharding == NamedSharding(mesh, to), tostring(from) .. " to " .. tostring(to))
        close(x, whole(y), 1e-6)
      end
    end
  end)

  it("E4: is free where it only marks a tensor as reduced", function()
    local step = ml.jit(function(x) return ml.reshard(x, P("X", {reduced = {"Y"}})) end)
    assert.same({}, collectives(step, put(numbers(8, 16), "X")))
    assert.equal("float32[8@X,16]{R:Y}", typeof(step(put(numbers(8, 16), "X"))))
  end)

  it("E4: sends nothing to make a whole tensor parts, and one reduction makes the parts whole", function()
    local step = ml.jit(function(x) return ml.reshard(x, P({unreduced = {"X"}})) end)
    assert.same({}, collectives(step, put(numbers(8, 16))))
    local back = ml.jit(function(x) return ml.reshard(x, P("X")) end)
    assert.same({"reduce_scatter"}, collectives(back, step(put(numbers(8, 16)))))
  end)

  it("E4: of parts over an axis of size 1, which are the sum", function()
    local m = ml.make_mesh({3, 1, 2}, {"a", "b", "c"},
      {axis_types = "explicit", devices = {0, 1, 2, 3, 4, 5}})
    local function of(spec) return NamedSharding(m, spec) end
    local x = ml.device_put(numbers(24), of(P("c")))
    local function f(t) return ml.reshard(ml.minimum(t, t), of(P({"a", "c"}, {unreduced = {"b"}}))) end
    local step = ml.jit(ml.grad(function(t) return ml.reshard(f(t), of(P())):sum() end))
    close(ml.ones {24}, step(x))
    close(ml.reshard(x, of(P())), ml.reshard(ml.jit(f)(x), of(P("c"))))
  end)

  it("E4: of parts over an axis of size 1 by device_put, too, which are no sum in their type", function()
    local m = ml.make_mesh({1, 2}, {"a", "b"}, {axis_types = "explicit", devices = {0, 1}})
    local sum, parts = NamedSharding(m, P()), NamedSharding(m, P({unreduced = {"a"}}))
    local x = ml.device_put(numbers(4), sum)
    local y = ml.reshard(x, parts.spec)
    assert.is_false(y.sharding == sum)
    assert.is_true(y.sharding == parts)
    close(ml.zeros {4}, ml.device_put(y, sum) - x)
  end)

  it("E4: says what is wrong", function()
    local x = put(numbers(8, 16), "X")
    raises("reshard: P(\"X\", nil, nil) has 3 entries but the tensor has rank 2", ml.reshard, x, P("X",
      nil, nil))
    raises("reshard: the tensor is on Mesh(X=2 explicit, Y=4 explicit)", ml.reshard, x,
      NamedSharding(auto, P("X")))
    raises("device_put moves between meshes", ml.reshard, x, NamedSharding(auto, P("X")))
    raises("reshard: expected a tensor or a table of them, got a number", ml.reshard, 1, P())
    raises("reshard: expected a NamedSharding or a P, got a string", ml.reshard, x, "X")
    raises("axis 'Z' is not an axis of Mesh(X=2 explicit, Y=4 explicit)", ml.reshard, x, P("Z"))
    raises("parts of a maximum or minimum cannot be made of a value", ml.reshard, x,
      P({unreduced = {"Y"}, unreduced_kind = "max"}))
    local top = x:max(1, {out_sharding = P({unreduced = {"X"}, unreduced_kind = "max"})})
    raises("the value is unreduced in another kind than is asked for", ml.reshard, top,
      P({unreduced = {"X"}}))
    close(numbers(8, 16):max(1), whole(top))
  end)

  it("takes trees, with one sharding or a tree of them", function()
    local tree = {a = put(numbers(8, 16), "X"), b = {put(numbers(8))}}
    local one, each = ml.reshard(tree, P("Y")), ml.reshard(tree, {a = P(nil, "X"), b = {P("X")}})
    assert.same({a = "float32[8@Y,16]", b = {"float32[8@Y]"}}, typeof(one))
    assert.same({a = "float32[8,16@X]", b = {"float32[8@X]"}}, typeof(each))
  end)

  it("P7: takes P.unconstrained as nil; on a mixed mesh the auto axes are propagation's", function()
    local x = ml.device_put(numbers(8, 16), NamedSharding(mixed, P("X", "Y")))
    local seen
    local y = ml.jit(function(v)
      local z = ml.reshard(v, P(P.unconstrained, "X"))
      seen = typeof(z)
      return z
    end)(x)
    assert.equal("float32[8,16@X]", seen)
    assert.truthy(typeof(y):find("X", 1, true))
    close(numbers(8, 16), ml.device_put(y, NamedSharding(mixed, P())))
  end)

  it("P7: in_shardings of jit leave nothing open", function()
    raises("[E_SPEC] jit: in_shardings.1: entry 2 is P.unconstrained, but an argument lies somewhere",
      ml.jit,
      function(x) return x end, {in_shardings = {NamedSharding(auto, P("X", P.unconstrained))}})
    raises("jit: in_shardings: entry 1 is P.unconstrained", ml.jit, function(x) return x end,
      {in_shardings = P(P.unconstrained)})
  end)

  it("a result that nobody takes changes nothing", function()
    local step = ml.jit(function(x)
      ml.reshard(x, P("Y"))
      return x * 2
    end)
    assert.same({}, collectives(step, put(numbers(8, 16), "X")))
    assert.equal("float32[8@X,16]", typeof(step(put(numbers(8, 16), "X"))))
  end)
end)

describe("a gradient", function()
  --- Types and values of the gradients of sum(cos(fn(...))) at placed arguments, eagerly and jitted.
  local function check(fn, plain, specs, wanted)
    local function loss(...)
      local y = fn(...)
      return ml.reshard(y * y, P()):sum()
    end
    local all, placed = {}, {}
    for i, x in ipairs(plain) do
      all[i] = i
      placed[i] = ml.reshard(put(x), specs[i])
    end
    local expected = ml.grad(function(...)
      local y = fn(...)
      return (y * y):sum()
    end, {argnums = all})(table.unpack(plain))
    local gradient = ml.grad(loss, {argnums = all})
    for _, grads in ipairs {gradient(table.unpack(placed)), ml.jit(gradient)(table.unpack(placed))} do
      for i, g in ipairs(grads) do
        assert.equal(wanted[i], typeof(g))
        close(expected[i], whole(g), 1e-4)
      end
    end
  end
  --- reshard where there is a mesh, and nothing on one device.
  local function reshard(a, spec) return a.sharding.mesh and ml.reshard(a, spec) or a end
  local x, w = numbers(8, 16), numbers(16, 8)
  local function product(a, b) return ml.matmul(a, b) end

  it("E7: lies as its value: sharded as sharded, replicated as replicated", function()
    check(product, {x, w}, {P("X"), P(nil, "Y")}, {"float32[8@X,16]", "float32[16,8@Y]"})
    check(product, {x, w}, {P("X"), P()}, {"float32[8@X,16]", "float32[16,8]"})
    check(product, {x, w}, {P("X"), P("Y")}, {"float32[8@X,16]", "float32[16@Y,8]"})
    check(product, {x, w}, {P(nil, "Y"), P()}, {"float32[8,16@Y]", "float32[16,8]"})
    check(function(a, b) return a + b end, {x, numbers(16)}, {P("X"), P("Y")}, {"float32[8@X,16]",
      "float32[16@Y]"})
    check(function(a) return ml.softmax(a) end, {x}, {P("X", "Y")}, {"float32[8@X,16@Y]"})
    check(function(a) return a:reshape(4, 2, 16):T() end, {x}, {P({"Y", "X"})}, {"float32[8@(Y,X),16]"})
    check(function(t) return ml.take(t, ml.tensor {1, 2, 1, 0}, 1) end, {x}, {P(nil, "Y")},
      {"float32[8,16@Y]"})
    check(function(a) return a:max(1) + a:sum(1) end, {x}, {P("X")}, {"float32[8@X,16]"})
  end)

  it("P10, E7: is unreduced where its value is reduced, and reduced where it is unreduced", function()
    check(product, {x, w}, {P("X"), P({reduced = {"X"}})}, {"float32[8@X,16]", "float32[16,8]{U:X}"})
    check(product, {x, w}, {P("X"), P(nil, "Y", {reduced = {"X"}})}, {"float32[8@X,16]",
      "float32[16,8@Y]{U:X}"})
    check(product, {x, w}, {P(), P({reduced = {"X"}})}, {"float32[8,16]", "float32[16,8]{U:X}"})
    check(function(a) return reshard(a * 3, P()) end, {x}, {P({unreduced = {"X"}})},
      {"float32[8,16]{R:X}"})
  end)

  it("E7: of what the loss does not depend on is zeros that lie as it", function()
    local g = ml.grad(function(_, b) return ml.reshard(b, P()):sum() end, {argnums = {1, 2}})(put(x, "X"),
      put(w, nil, "Y"))
    assert.equal("float32[8@X,16]", typeof(g[1]))
    close(ml.zeros {8, 16}, whole(g[1]))
    local u = ml.grad(function() return ml.tensor(1.0) end)(ml.reshard(put(x), P({reduced = {"Y"}})))
    assert.equal("float32[8,16]{U:Y}", typeof(u))
    close(ml.zeros {8, 16}, whole(u))
  end)

  it("E4, E7: of reshard is a reshard to the type of its value's cotangent", function()
    local seen
    ml.jit(function(v)
      return ml.grad(function(a)
        local b = ml.reshard(a, P(nil, "X"))
        local y = ml.reshard(b * b, P())
        seen = typeof(b)
        return y:sum()
      end)(v)
    end)(put(x, "X"))
    assert.equal("float32[8,16@X]", seen)
    check(function(a) return reshard(a * a, P(nil, "X")) end, {x}, {P("X")}, {"float32[8@X,16]"})
    check(function(a) return reshard(reshard(a, P({unreduced = {"Y"}})), P("Y")) end, {x}, {P("X")},
      {"float32[8@X,16]"})
  end)

  it("E7: by finite differences, in float64, through unreduced values", function()
    local a, b = ml.astype(numbers(4, 8), "float64"), ml.astype(numbers(8, 4), "float64")
    local function loss(u, v)
      local y = ml.matmul(u, v, {out_sharding = P("X", nil, {unreduced = {"Y"}})})
      return ml.reshard(ml.sin(ml.reshard(y - y * 3, P("X"))), P()):sum()
    end
    local pu, pv = put(a, "X", "Y"), put(b, "Y")
    local g = ml.grad(loss, {argnums = {1, 2}})(pu, pv)
    local h = 1e-6
    for which, x0 in ipairs {a, b} do
      for _, at in ipairs {0, 5, 13, 31} do
        local bump = ml.astype(ml.arange(32):eq(at), "float64"):reshape(x0.shape) * h
        local function at_bump(sign)
          local moved = x0 + bump * sign
          return which == 1 and loss(put(moved, "X", "Y"), pv):item() or loss(pu, put(moved, "Y")):item()
        end
        close((at_bump(1) - at_bump(-1)) / (2 * h), whole(g[which]):reshape(32):totable()[at + 1], 1e-6)
      end
    end
  end)

  it("P10: of reduced weights is summed once for all microbatches", function()
    local function step_of(spec)
      return ml.jit(function(weights, batch)
        local cast, total = ml.reshard(weights, spec), nil
        for i = 1, 4 do
          local part = ml.reshard(batch:slice {8 * i - 7, 8 * i}, P("X"))
          local g = ml.grad(function(v)
            local y = ml.matmul(part, v)
            return ml.reshard(y * y, P()):sum()
          end)(cast)
          total = total and total + g or g
        end
        return ml.reshard(total, P())
      end)
    end
    local weights, batch = put(w), put(numbers(32, 16))
    local eager, late = step_of(P()), step_of(P({reduced = {"X"}}))
    local function count(step)
      local n = 0
      for _, c in ipairs(step:plan(weights, batch):collectives()) do
        if c.op == "all_reduce" or c.op == "reduce_scatter" then n = n + 1 end
      end
      return n
    end
    close(eager(weights, batch), late(weights, batch), 1e-4)
    assert.equal(1, count(late))
  end)
end)

describe("auto_axes", function()
  it("E5: leaves axes to propagation inside; its results lie as out_sharding says", function()
    local inside
    local fn = ml.auto_axes(function(a, b)
      inside = {typeof(a), typeof(b), typeof(ml.matmul(a, b))}
      return ml.matmul(a, b)
    end, {out_sharding = P("X")})
    local x, w = numbers(8, 16), numbers(16, 8)
    for _, run in ipairs {fn, ml.jit(fn)} do
      local y = run(put(x, "X", "Y"), put(w, "Y"))
      assert.equal("float32[8@X,8]", typeof(y))
      close(ml.matmul(x, w), whole(y), 1e-5)
      assert.same({"float32[8,16]", "float32[16,8]", "float32[8,8]"}, inside)
    end
    local some = ml.auto_axes(function(a)
      inside = typeof(a)
      return a * 2, {a}
    end, {axes = "Y", out_sharding = {P("X"), P("Y")}})
    local y, list = some(put(x, "X", "Y"))
    assert.equal("float32[8@X,16]", inside)
    assert.equal("float32[8@X,16]", typeof(y))
    assert.equal("float32[8@Y,16]", typeof(list[1]))
  end)

  it("E5: has gradients, and is nothing without a mesh", function()
    local fn = ml.auto_axes(function(a) return ml.sin(a) * a end, {out_sharding = P("Y")})
    local x = numbers(8, 16)
    local g = ml.grad(function(a) return ml.reshard(fn(a), P()):sum() end)(put(x, "X"))
    assert.equal("float32[8@X,16]", typeof(g))
    close(ml.grad(function(a) return (ml.sin(a) * a):sum() end)(x), whole(g), 1e-5)
    close(ml.sin(x) * x, fn(x))
  end)

  it("E5: with all axes, leaves gradients and examples of vmap to propagation, too", function()
    local w = numbers(12, 12)
    local function f(x, v)
      return ml.auto_axes(function(t) return ml.tanh(ml.tanh(t):matmul(v)) end, {out_sharding = P("X")})(x)
    end
    local function loss(x, v) return ml.reshard(f(x, v), P()):sum() end
    local step = ml.jit(ml.grad(loss, {argnums = {1, 2}}), {mesh = mesh})
    local x = numbers(8, 12)
    local got, want = step(put(x, "X"), whole(w)), ml.grad(function(a, v)
      return ml.tanh(ml.tanh(a):matmul(v)):sum()
    end, {argnums = {1, 2}})(x, w)
    for i = 1, 2 do close(want[i], got[i], 1e-5) end
    assert.same({"all_reduce"}, collectives(step, put(x, "X"), whole(w)))
    local lies = ml.jit(ml.grad(function(a) -- as what it is of, whatever is best inside
      local y = ml.auto_axes(function(t) return ml.sin(ml.reshard(t, NamedSharding(mesh, P("Y")))) end,
        {out_sharding = P("Y")})(a)
      return ml.reshard(y, P()):sum()
    end), {mesh = mesh})
    assert.equal("float32[8,12]", typeof(lies(whole(x))))
    assert.equal("float32[8@X,12]", typeof(lies(put(x, "X"))))
    local sorted = ml.jit(ml.auto_axes(function(a)
      return ml.vmap(function(row)
        return (ml.sort(ml.reshard(row, NamedSharding(mesh, P("X"))), 1))
      end)(a)
    end, {out_sharding = P()}), {mesh = mesh})
    close((ml.sort(x, 2)), sorted(whole(x)))
  end)

  it("E5: loops and branches inside are in the mode of what is around them", function()
    local a, b = put(numbers(8, 16), nil, "Y"), put(numbers(8, 16), nil, {"X", "Y"})
    local chosen = ml.jit(ml.auto_axes(function()
      return ml.vmap(function(u, v)
        return (ml.cond(u:sum():gt(0), function(p) return p end, function(_, q) return q end, u, v * 2))
      end)(a, b)
    end, {out_sharding = P()}), {mesh = mesh})
    local rows, x = {}, numbers(8, 16)
    for i = 1, 8 do rows[i] = x:at(i) * (x:at(i):sum():item() > 0 and 1 or 2) end
    close(ml.stack(rows), chosen())
    local inside
    local fn = ml.jit(ml.explicit_axes(function(t)
      local y = ml.fori_loop(0, 2, function(_, c)
        inside = typeof(c)
        return ml.sin(c)
      end, t)
      return y * 2
    end, {in_sharding = P("X", "Y")}), {mesh = auto})
    local y = fn(ml.device_put(x, NamedSharding(auto, P("X", "Y"))))
    assert.same({"float32[8@X,16@Y]", "float32[8@X,16@Y]"}, {inside, typeof(y)})
    close(ml.sin(ml.sin(x)) * 2, ml.device_put(y, NamedSharding(auto, P())))
  end)

  it("E5: says what is missing or unknown", function()
    raises("[E_KEY] auto_axes: out_sharding is missing; say how the results lie: {out_sharding = P(...)}",
      ml.auto_axes,
      print, {})
    raises("auto_axes: axis 'x' is not an axis of Mesh(X=2 explicit, Y=4 explicit)",
      ml.auto_axes(function(a) return a end, {axes = "x", out_sharding = P()}), put(numbers(8)))
    raises("auto_axes: unknown option 'out_shardings'; did you mean 'out_sharding'?", ml.auto_axes, print,
      {out_shardings = P()})
    raises("[E_KEY] explicit_axes: in_sharding is missing", ml.explicit_axes, print, {})
  end)

  it("E5: explicit_axes has auto axes explicit inside", function()
    local x = ml.device_put(numbers(8, 16), NamedSharding(auto, P("X")))
    local inside, ambiguous
    local fn = ml.explicit_axes(function(a)
      inside = {typeof(a), typeof(a:T())}
      ambiguous = pcall(function() return a + ml.reshard(a, P("X")) end)
      return a * 2
    end, {in_sharding = P("Y", "X")})
    local y = ml.jit(fn)(x)
    assert.same({"float32[8@Y,16@X]", "float32[16@X,8@Y]"}, inside)
    assert.is_false(ambiguous)
    close(numbers(8, 16) * 2, ml.device_put(y, NamedSharding(auto, P())))
  end)
end)

describe("constrain", function()
  it("J12: on explicit axes alone is an assertion", function()
    local x = put(numbers(8, 16), "X")
    mesh:with(function()
      assert.is_true(rawequal(x, ml.constrain(x, P("X", nil))))
      raises("constrain: all axes of the mesh are explicit, so that this is an assertion: the tensor is "
        .. "float32[8@X,16], not P(\"Y\"); use ml.reshard to change how it lies", ml.constrain, x, P("Y"))
      ml.jit(function(v)
        ml.constrain(v, P("X"))
        raises("this is an assertion: the tensor is float32[8@X,16]", ml.constrain, v, P())
        return v
      end)(x)
    end)
  end)

  it("J12: skips dims that are left open", function()
    local x = put(numbers(8, 16), "X", "Y")
    mesh:with(function()
      assert.is_true(rawequal(x, ml.constrain(x, P("X", P.unconstrained))))
      assert.is_true(rawequal(x, ml.constrain(x, P(P.unconstrained, P.unconstrained))))
      raises("this is an assertion", ml.constrain, x, P("Y", P.unconstrained))
    end)
  end)

  it("by logical names moves along explicit axes, as reshard does", function()
    local x = put(numbers(8, 16), "X")
    mesh:with({{"rows", "Y"}, {"columns", false}}, function()
      assert.equal("float32[8@Y,16]", typeof(ml.constrain(x, {"rows", "columns"})))
      assert.equal("float32[8@X,16]", typeof(ml.constrain(x, {P.unconstrained, "columns"})))
    end)
  end)

  it("J12: on a mixed mesh names auto axes only", function()
    local x = ml.device_put(numbers(8, 16), NamedSharding(mixed, P("X")))
    mixed:with(function()
      local y = ml.jit(function(v) return ml.constrain(v * 2, P(nil, "Y")) end)(x)
      assert.equal("float32[8@X,16@Y]", typeof(y))
      raises("constrain: axis 'X' of P(nil, \"X\") is explicit: the type says it, and ml.reshard "
        .. "changes it; a "
        .. "constraint names auto axes only", ml.constrain, x, P(nil, "X"))
    end)
  end)
end)

describe("a model", function()
  local gpt = require "models.gpt"

  --- Losses of three steps of a small GPT under data parallelism.
  local function losses(types)
    local cfg = {}
    for name, value in pairs(gpt.config) do cfg[name] = value end
    for name, value in pairs {layers = 1, embed = 32, heads = 4, seq = 8, batch = 8, vocab = 64,
      dropout = 0} do
      cfg[name] = value
    end
    local on, rules = ml.make_mesh({8}, {"data"}, {axis_types = types}), gpt.rules.dp
    local model = ml.init(function(rngs) return gpt.build(cfg, rngs) end, {mesh = on, rules = rules,
      seed = 0})
    local opt = ml.optim.adamw(model, {lr = 1e-2})
    local ids = ml.device_put(ml.arange(64):reshape(8, 8) % 64, NamedSharding(on, P("data")))
    local step, out = ml.jit(function(m, o, x)
      local loss, grads = ml.value_and_grad(function(n) return gpt.loss(n, x, (x * 7 + 3) % 64) end)(m)
      o:update(m, grads)
      return loss
    end, {mesh = on, rules = rules}), {}
    for i = 1, 3 do out[i] = step(model, opt, ids):item() end
    return out
  end

  it("E3: looks up sharded tokens and splits heads without a word in explicit mode", function()
    local expected = losses "auto"
    assert.is_true(expected[3] < expected[1])
    close(expected, losses "explicit", 1e-5)
  end)
end)

describe("on a mesh of explicit axes", function()
  it("reshard works where auto_axes leaves them to propagation", function()
    local x = numbers(8, 8)
    for _, spec in ipairs {P(nil, "Y"), P("X", "Y"), P(), P("X", P.unconstrained)} do
      local f = ml.auto_axes(function(v) return ml.reshard(v, NamedSharding(mesh, spec)) * 2 end,
        {out_sharding = P("X")})
      assert.equal("float32[8@X,8]", typeof(f(put(x, "X"))))
      close(f(put(x, "X")), x * 2, 0)
      close(ml.jit(f)(put(x, "X")), x * 2, 0)
    end
    raises("P.unconstrained", NamedSharding, mesh, P("X", P.unconstrained))
  end)

  it("shard_map wants whole values, and says how to get them", function()
    local x = ml.reshard(numbers(8, 8), NamedSharding(mesh, P("X", {unreduced = {"Y"}})))
    local z = ml.reshard(numbers(8, 8), NamedSharding(mesh, P("X", {reduced = {"Y"}})))
    for _, options in ipairs {{in_specs = P("X"), out_specs = P("X")}, {out_specs = P("X")}} do
      options.mesh = mesh
      local f = ml.shard_map(function(a) return a * 2 end, options)
      for _, v in ipairs {x, z} do raises('ml.reshard it first, to P("X", nil)', f, v) end
      close(f(ml.reshard(x, NamedSharding(mesh, P("X")))), numbers(8, 8) * 2, 1e-6)
    end
  end)
end)
