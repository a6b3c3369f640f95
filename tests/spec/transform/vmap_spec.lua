-- devices: 8
-- vmap_spec.lua: which axes are mapped, how vmap goes with the other transforms, and what it refuses. C3 and J12 are
-- numbers in the checklist of JAX's semantics.
local helper = require "spec.helper"
local ml = require "meshlua"

local P, NamedSharding, random = ml.P, ml.NamedSharding, ml.random

local function numbers(...) return ml.arange(24.0):reshape(...) end

describe("core.batch", function()
  it("takes tensors only, in each of its lists", function()
    local core = ml.core
    local function batch(examples, all, results)
      return ml.jit(function(x)
        local example = core.placeholder(x, true)
        local first, result = core.next_node(), example + 1
        core.batch(first, {examples and example}, {all and x}, 2, {results and result}, {})
        return x
      end)(ml.ones {2})
    end
    helper.raises("E_VALUE] batch: example 1 is false", batch, false, true, true)
    helper.raises("E_VALUE] batch: tensor 1 is false", batch, true, false, true)
    helper.raises("E_VALUE] batch: result 1 is false", batch, true, true, false)
  end)
end)

describe("vmap's axes: C3:", function()
  it("every tensor along its first axis, results along their first", function()
    local x = numbers(4, 6)
    local y = ml.vmap(function(a) return a:sum() end)(x)
    assert.same(x:sum(2):totable(), y:totable())
  end)

  it("a position each, also from the end, or none", function()
    local x, y = numbers(2, 3, 4), numbers(3, 8)
    local out = ml.vmap(function(a, b)
      assert.same({2, 3}, a.shape)
      assert.same({3, 8}, b.shape)
      return a:sum() + b:sum()
    end, {in_axes = {-1, false}})(x, y)
    for i = 1, 4 do
      assert.equal(x:slice({}, {}, i):sum():item() + y:sum():item(), out:at(i):item())
    end
  end)

  it("trees, which may stop early", function()
    local args = {w = {a = numbers(4, 6), b = numbers(6, 4)}, s = ml.tensor(2.0)}
    local out = ml.vmap(function(t) return {t.w.a + t.w.b, t.w.b * t.s} end,
      {in_axes = {{w = {a = 1, b = 2}, s = false}}, out_axes = {{2, -1}}})(args)
    assert.same({6, 4}, out[1].shape)
    assert.same((args.w.a:transpose() + args.w.b):totable(), out[1]:totable())
    assert.same((args.w.b * 2.0):totable(), out[2]:totable())
    out = ml.vmap(function(t) return t.a + t.b end, {in_axes = {2}})({a = numbers(4, 6), b = numbers(4, 6)})
    assert.same({6, 4}, out.shape)
  end)

  it("results that are the same for all", function()
    local x = numbers(4, 6)
    local function f(a) return a + 1, ml.ones {2} * 3, "word" end
    local first, z, word = ml.vmap(f)(x)
    assert.same({4, 6}, first.shape)
    assert.same({4, 2}, z.shape)
    assert.equal("word", word)
    local y
    y, z = ml.vmap(f, {out_axes = {2, false}})(x)
    assert.same({6, 4}, y.shape)
    assert.same({2}, z.shape)
    helper.raises("[E_VALUE] vmap: result 1 differs by example, but out_axes has no axis for it",
      ml.vmap(f, {out_axes = {false, false}}), x)
  end)

  it("axis_size where nothing is mapped", function()
    local y = ml.vmap(function(a) return a * 2 end, {in_axes = false, axis_size = 3})(ml.ones {2})
    assert.same({{2.0, 2.0}, {2.0, 2.0}, {2.0, 2.0}}, y:totable())
  end)

  it("no needless work: what does not depend on a mapped value is computed once", function()
    local function f(x, w) return x:matmul(w:matmul(w):tanh()) end
    local step = ml.jit(ml.vmap(f, {in_axes = {1, false}}))
    local shapes = {}
    for _, s in ipairs(step:plan(numbers(6, 4), numbers(4, 6):matmul(numbers(6, 4))):steps()) do
      if s.op == "matmul" then shapes[#shapes + 1] = table.concat(s.outputs[1].shape, "x") end
    end
    assert.same({"4x4", "6x4"}, shapes)
  end)

  it("no example at all, and one", function()
    assert.same({0, 3}, ml.vmap(function(a) return a:sin() end)(ml.zeros {0, 3}).shape)
    assert.same({1}, ml.vmap(function(a) return a:softmax():sum() end)(ml.zeros {1, 3}).shape)
  end)
end)

describe("vmap refuses: C3:", function()
  local x, y = numbers(4, 6), numbers(6, 4)

  it("sizes that differ, naming every argument", function()
    helper.raises("[E_SHAPE] vmap: the sizes of the mapped axes differ: a has 4 along axis 1, "
      .. "b.w has 6 along axis 1", ml.vmap(function(a, b) return a + b.w end), x, {w = y})
    helper.raises("a has 4 along axis 1; axis_size is 5",
      ml.vmap(function(a) return a end, {axis_size = 5}), x)
  end)

  it("axes that are none", function()
    helper.raises("[E_SHAPE] vmap: in_axes maps axis 3 of a, which has rank 2",
      ml.vmap(function(a) return a end, {in_axes = 3}), x)
    helper.raises("[E_SHAPE] vmap: in_axes maps axis 1 of a, which has rank 0",
      ml.vmap(function(a) return a end), ml.tensor(1.0))
    helper.raises("[E_SHAPE] vmap: out_axes maps axis 4 of result 1, which has rank 2",
      ml.vmap(function(a) return a end, {out_axes = 4}), x)
    helper.raises("[E_VALUE] vmap: in_axes holds 0; an axis is a 1-based position", ml.vmap, print,
      {in_axes = 0})
    helper.raises("[E_VALUE] vmap: in_axes holds a string", ml.vmap, print, {in_axes = {"x"}})
    helper.raises("[E_VALUE] vmap: in_axes goes deeper than a, which is a tensor",
      ml.vmap(function(a) return a end, {in_axes = {{1}}}), x)
    helper.raises("[E_VALUE] vmap: in_axes has 'v', a has not",
      ml.vmap(function(a) return a.w end, {in_axes = {{v = 1}}}), {w = x})
    helper.raises("[E_VALUE] vmap: b is a number and has no axis 1; in_axes must have false there",
      ml.vmap(function(a, b) return a * b end), x, 2)
    helper.raises("[E_VALUE] vmap: nothing is mapped",
      ml.vmap(function(a) return a end, {in_axes = false}), x)
    helper.raises("[E_KEY] vmap: unknown option 'in_axs'; did you mean 'in_axes'?", ml.vmap, print,
      {in_axs = 1})
    helper.raises("[E_VALUE] vmap: axis_size is -1", ml.vmap, print, {axis_size = -1})
  end)

  it("tensors of one example that outlive it", function()
    local kept
    helper.raises("[E_TRACED] a tensor made for one example inside vmap", ml.jit(function(a)
      ml.vmap(function(b)
        kept = b + 1
        return b
      end)(a)
      return kept * 2
    end), x)
  end)

  it("Params that are written inside", function()
    local box = helper.param(ml.ones {2})
    helper.raises("[E_STATE] a Param is written inside vmap", ml.jit(function(b, a)
      return ml.vmap(function(row)
        b:set(row:sum() * b)
        return row
      end)(a)
    end), box, x)
    assert.same({1.0, 1.0}, box:totable())
    helper.raises("raised", ml.vmap(function() error("raised", 0) end), x)
    assert.same({2.0, 2.0}, ml.jit(function(b) b:set(b * 2) return b * 1 end)(box):totable())
  end)

  it("ranks that leave no room", function()
    helper.raises("[E_SHAPE] vmap: broadcast works on rank 8 for one example; 7 is the most",
      ml.vmap(function(a) return a:reshape(1, 1, 1, 1, 1, 1, 6):broadcast(2, 1, 1, 1, 1, 1, 1, 6) end), x)
  end)
end)

describe("vmap of places that are computed:", function()
  it("parts that begin elsewhere for each, clamped and counted from the end", function()
    local x, starts = numbers(3, 2, 4), ml.tensor({{0, 1}, {-1, -3}, {9, 9}}, "int32")
    for _, size in ipairs {{1, 2}, {2, 3}, {1, 4}, {2, 4}, {0, 2}} do
      local u = -1 - ml.arange(3.0 * size[1] * size[2]):reshape(3, size[1], size[2])
      local function cut(a, s) return ml.dynamic_slice(a, {s:at(1), s:at(2)}, size) end
      local function put(a, b, s) return ml.dynamic_update_slice(a, b, {s:at(1), s:at(2)}) end
      local cuts, puts = ml.vmap(cut)(x, starts), ml.vmap(put)(x, u, starts)
      local of_one, into_one = ml.vmap(cut, {in_axes = {false, 1}})(x:at(1), starts),
        ml.vmap(put, {in_axes = {false, false, 1}})(x:at(1), u:at(1), starts)
      for i = 1, 3 do
        local a, b, s = x:at(i), u:at(i), starts:at(i)
        assert.same(cut(a, s):totable(), cuts:at(i):totable())
        assert.same(put(a, b, s):totable(), puts:at(i):totable())
        assert.same(cut(x:at(1), s):totable(), of_one:at(i):totable())
        assert.same(put(x:at(1), u:at(1), s):totable(), into_one:at(i):totable())
      end
    end
  end)

  it("within vmap, rows by numbers of each", function()
    local x, ids = numbers(2, 3, 4), ml.tensor({{{0, 3}, {1, 1}, {2, 0}}, {{3, 2}, {0, 0}, {1, 3}}}, "int32")
    local function take(a, i) return ml.take(a, i, 1) end
    local function product(a, i) return (take(a, i) * a:at(1)):sum() end
    local both = ml.vmap(ml.vmap(take))(x, ids)
    local shared = ml.vmap(ml.vmap(take), {in_axes = {false, 1}})(x:at(1), ids)
    local slopes = ml.vmap(ml.vmap(ml.grad(product)))(x, ids)
    for i = 1, 2 do
      for k = 1, 3 do
        assert.same(take(x:at(i, k), ids:at(i, k)):totable(), both:at(i, k):totable())
        assert.same(take(x:at(1, k), ids:at(i, k)):totable(), shared:at(i, k):totable())
        assert.same(ml.grad(product)(x:at(i, k), ids:at(i, k)):totable(), slopes:at(i, k):totable())
      end
    end
  end)
end)

describe("vmap with other transforms: C3:", function()
  local x, w = numbers(4, 6) / 24, numbers(6, 4):sin()
  local function f(a, b) return a:matmul(b):tanh():square():sum() end

  it("of a gradient: gradients of each", function()
    local y = ml.vmap(ml.grad(f), {in_axes = {1, false}})(x, w)
    for i = 1, 4 do helper.close(ml.grad(f)(x:at(i), w), y:at(i), 1e-6) end
  end)

  it("inside a gradient", function()
    local function total(b) return ml.vmap(f, {in_axes = {1, false}})(x, b):sum() end
    local function one_by_one(b)
      local sum = ml.tensor(0.0)
      for i = 1, 4 do sum = sum + f(x:at(i), b) end
      return sum
    end
    helper.close(ml.grad(one_by_one)(w), ml.grad(total)(w), 1e-5)
  end)

  it("of vmap, of jit and inside it", function()
    local pairs_of = ml.vmap(ml.vmap(function(a, b) return (a * b):sum() end, {in_axes = {1, false}}),
      {in_axes = {false, 1}})
    local want = w:transpose():matmul(x:transpose())
    helper.close(want, pairs_of(x, w:transpose()), 1e-6)
    helper.close(want, ml.jit(pairs_of)(x, w:transpose()), 1e-6)
    helper.close(ml.vmap(f, {in_axes = {1, false}})(x, w),
      ml.vmap(ml.jit(f), {in_axes = {1, false}})(x, w), 1e-6)
  end)

  it("gives Jacobians and Hessians", function()
    local v = ml.tensor {0.3, -0.2, 0.7}
    local function g(a) return (a:sin() * a:flip() * a):sum() end
    local eye = ml.eye(3)
    local hessian = ml.jit(function(a)
      local _, back = ml.vjp(ml.grad(g), a)
      return ml.vmap(back)(eye)
    end)(v)
    local step = 1e-3
    for i = 1, 3 do
      local up, down = ml.grad(g)(v + eye:at(i) * step), ml.grad(g)(v - eye:at(i) * step)
      helper.close((up - down) / (2 * step), hessian:at(i), 2e-3)
    end
  end)

  it("of remat: the same values, computed a second time", function()
    local function sines(a, b) return a:matmul(b):sin():sin():sin():sum() end
    local function run(fn)
      local step = ml.jit(ml.grad(function(a, b) return ml.vmap(fn, {in_axes = {1, false}})(a, b):sum() end))
      local n = 0
      for _, s in ipairs(step:plan(x, w):steps()) do
        for _, name in ipairs(s.ops) do n = n + (name == "sin" and 1 or 0) end
      end
      return step(x, w):bytes(), n
    end
    local plain, n1 = run(sines)
    local saving, n2 = run(ml.remat(sines))
    assert.equal(plain, saving)
    assert.truthy(n2 >= n1)
    helper.close(ml.vmap(ml.grad(sines), {in_axes = {1, false}})(x, w),
      ml.vmap(ml.grad(ml.remat(sines)), {in_axes = {1, false}})(x, w))
  end)

  it("C5: random numbers are those of each example's key", function()
    local keys = random.split(random.key(7), 4)
    for name, draw in pairs {
      bits = function(k) return random.bits(k, {5}) end,
      normal = function(k) return random.normal(k, {2, 3}) end,
      split = function(k) return random.split(k, 3) end,
      fold_in = function(k) return random.fold_in(k, 9) end,
      dropout = function(k) return ml.nn.dropout(ml.ones {4, 8}, 0.5, k) end,
    } do
      local all = ml.vmap(draw)(keys)
      for i = 1, 4 do assert.equal(draw(keys:at(i)):bytes(), all:at(i):bytes(), name) end
    end
    local key, rows_of = random.key(3), numbers(4, 6)
    local all = ml.vmap(function(a) return ml.nn.dropout(a, 0.5, key) end)(rows_of)
    for i = 1, 4 do assert.equal(ml.nn.dropout(rows_of:at(i), 0.5, key):bytes(), all:at(i):bytes()) end
  end)

  it("of modules: Params stacked along a new axis are an ensemble", function()
    local function init(seed) return ml.nn.Linear(3, 2, {rngs = ml.nn.Rngs(seed)}) end
    local models, stacked = {init(1), init(2)}, init(3)
    for name in pairs {kernel = 1, bias = 1} do
      stacked[name]:set(ml.stack {models[1][name], models[2][name]})
    end
    local v = ml.ones {3} / 2
    local y = ml.vmap(function(m, a) return m(a) end, {in_axes = {1, false}})(stacked, v)
    for i, m in ipairs(models) do helper.close(m(v), y:at(i), 1e-6) end
    assert.same({2, 3, 2}, stacked.kernel.shape)
    local grads = ml.grad(function(m)
      return ml.vmap(function(one) return one(v):square():sum() end)(m):sum()
    end)(stacked)
    for i, m in ipairs(models) do
      local want = ml.grad(function(one) return one(v):square():sum() end)(m).kernel
      helper.close(want, grads.kernel:at(i), 1e-6)
    end
  end)
end)

describe("vmap on a mesh:", function()
  local mesh = ml.make_mesh({4, 2}, {"data", "model"})
  local x, w = random.normal(random.key(1), {8, 4, 16}), random.normal(random.key(2), {16, 16})
  local function layer(a, b) return a:matmul(b):tanh():sum(2) end
  local want = ml.vmap(layer, {in_axes = {1, false}})(x, w)

  it("examples that are split stay split, and nothing is sent", function()
    local args = {ml.device_put(x, NamedSharding(mesh, P "data")), ml.device_put(w, NamedSharding(mesh, P()))}
    local step = ml.jit(ml.vmap(layer, {in_axes = {1, false}}))
    local y = step(table.unpack(args))
    helper.close(want, y, 1e-5)
    assert.equal('P("data", nil)', tostring(y.sharding.spec))
    assert.same({}, step:plan(table.unpack(args)):collectives())
  end)

  it("J12: a constraint inside leaves the examples' axis open, or puts it on spmd_axis", function()
    local function constrained(a, b)
      return ml.constrain(a:matmul(b), NamedSharding(mesh, P(nil, "model"))):tanh():sum(2)
    end
    local args = {ml.device_put(x, NamedSharding(mesh, P "data")), w}
    local open = ml.jit(ml.vmap(constrained, {in_axes = {1, false}}))
    helper.close(want, open(table.unpack(args)), 1e-5)
    assert.equal('P("data", nil)', tostring(open(table.unpack(args)).sharding.spec))
    local pinned = ml.jit(ml.vmap(function(a)
      return ml.constrain(a * 2, NamedSharding(mesh, P(nil, "model")))
    end, {spmd_axis = "data"}))
    assert.equal('P("data", nil, "model")', tostring(pinned(x).sharding.spec))
    assert.equal((x * 2):bytes(), pinned(x):bytes())
  end)

  it("spmd_axis that a constraint has already, or that does not divide, is an error", function()
    local function f(a) return ml.constrain(a, NamedSharding(mesh, P("model"))) end
    helper.raises("[E_SPEC] vmap: spmd_axis 'model' is used by a constraint inside already",
      ml.jit(ml.vmap(f, {spmd_axis = "model"})), x)
    helper.raises("[E_SPEC] vmap: spmd_axis 'pipe' is no axis of the mesh of a constraint inside",
      ml.jit(ml.vmap(f, {spmd_axis = "pipe"})), x)
    helper.raises("[E_INDIVISIBLE] vmap: 3 examples for the 4 parts of spmd_axis",
      ml.jit(ml.vmap(f, {spmd_axis = "data"})), ml.ones {3, 4})
    helper.raises("[E_VALUE] vmap: option 'spmd_axis' must be a string or a list of strings", ml.vmap, f,
      {spmd_axis = {"data", 1}})
  end)

  it("E6: explicit axes: the mapped dim's stays outside, all arguments must agree on it", function()
    local explicit = ml.make_mesh({4, 2}, {"data", "model"}, {axis_types = "explicit"})
    local function put(a, ...) return ml.device_put(a, NamedSharding(explicit, P(...))) end
    local a, b = put(ml.arange(32.0):reshape(8, 4), "data"), put(ml.arange(8.0):reshape(4, 2), nil, "model")
    local seen = {}
    local y = ml.jit(ml.vmap(function(row, m)
      seen = {ml.typeof(row), ml.typeof(m), ml.typeof(row:matmul(m)), ml.typeof(ml.reshard(row, P("model")))}
      return ml.reshard(row, P("model")):matmul(ml.reshard(m, P("model", nil)), {out_sharding = P()})
    end, {in_axes = {1, false}}))(a, b)
    assert.same({"float32[4]", "float32[4,2@model]", "float32[2@model]", "float32[4@model]"}, seen)
    assert.equal("float32[8@data,2]", ml.typeof(y))
    assert.same(a:matmul(b):totable(), y:totable())
    local add = ml.jit(ml.vmap(function(p, q) return p + q end))
    helper.raises("[E_SPEC] add: dim 1 of x is sharded on 'data', dim 1 of y on 'model'", add, a,
      put(ml.ones {8, 4}, "model"))
    helper.raises("[E_SPEC] add: illegally sharded result: 'data'",
      ml.jit(ml.vmap(function(p, q) return p + q end, {in_axes = {1, false}})), a, put(ml.ones {4}, "data"))
  end)

  it("of shard_map, and inside it", function()
    local a = random.normal(random.key(9), {6, 8, 4})
    local function block(v) return ml.psum(v:sin():sum(1), "data") * 2 end
    local mapped = ml.shard_map(block, {mesh = mesh, in_specs = {P("data")}, out_specs = P()})
    local y = ml.jit(ml.vmap(mapped))(a)
    helper.close(a:sin():sum(2) * 2, y, 1e-5)
    local inside = ml.shard_map(function(v)
      return ml.vmap(function(one) return ml.psum(one:sum(), "data") + one end)(v)
    end, {mesh = mesh, in_specs = {P(nil, "data")}, out_specs = P(nil, "data")})
    helper.close(a + a:sum({2, 3}, true), ml.jit(inside)(a), 1e-5)
    local function total(v) return (mapped(v) * v:at(1)):sum() end
    local g = ml.jit(ml.vmap(ml.grad(total)))(a)
    for i = 1, 6 do helper.close(ml.jit(ml.grad(total))(a:at(i)), g:at(i), 1e-5) end
  end)

  it("lookups in a table of each example stay where the examples are", function()
    local tables = ml.device_put(random.normal(random.key(5), {8, 10, 4}), NamedSharding(mesh, P "data"))
    local ids = ml.device_put(random.randint(random.key(6), {8, 3}, 0, 10), NamedSharding(mesh, P "data"))
    local step = ml.jit(ml.vmap(function(t, i) return t:take(i) end))
    local y = step(tables, ids)
    for i = 1, 8 do assert.equal(tables:at(i):take(ids:at(i)):bytes(), y:at(i):bytes()) end
    assert.same({}, step:plan(tables, ids):collectives())
    helper.raises("id 10", step, tables, ids * 0 + 10)
  end)
end)
