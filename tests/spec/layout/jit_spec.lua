-- devices: 8
-- jit_spec.lua: shardings of what goes into a jitted function and of what comes out. The numbers are those of the
-- checklist of JAX's semantics.
local helper = require "spec.helper"
local ml = require "meshlua"

local P, NamedSharding = ml.P, ml.NamedSharding
local mesh = ml.make_mesh({4, 2}, {"data", "model"})

local function named(spec) return NamedSharding(mesh, spec) end

describe("a sharding among the arguments", function()
  it("is told from others by its P, its mesh and its device", function()
    local seen = {}
    local step = ml.jit(function(x, where)
      seen[#seen + 1] = tostring(where.spec)
      return x + #seen
    end)
    local function on(device) return ml.device_put(ml.ones {2}, device).sharding end
    local other = ml.make_mesh({8}, {"data"})
    local list = {named(P "data"), named(P "model"), NamedSharding(other, P "data"), on(0), on(1)}
    for round = 1, 2 do
      for i, sharding in ipairs(list) do
        assert.same({1.0 + i, 1.0 + i}, step(ml.ones {2}, sharding):totable(), "round " .. round)
      end
    end
    assert.equal(#list, #seen)
  end)
end)

describe("in_shardings and out_shardings", function()
  it("J1: are one sharding for all, or one for each, or trees that may stop early", function()
    local function pair(a, b) return {a * 1, {b * 2}} end
    local x, y = ml.ones {8, 8}, ml.ones {8}
    local function types(options)
      options.mesh = mesh
      local out = ml.jit(pair, options)(x, y)
      return {ml.typeof(out[1]), ml.typeof(out[2][1])}
    end
    assert.same({"float32[8@data,8]", "float32[8@data]"}, types {in_shardings = P "data"})
    assert.same({"float32[8@data,8]", "float32[8@model]"}, types {in_shardings = {P "data", P "model"}})
    assert.same({"float32[8,8]", "float32[8@model]"}, types {in_shardings = {false, P "model"}})
    assert.same({"float32[8@model,8]", "float32[8@data]"}, types {in_shardings = P "data",
      out_shardings = {{P "model"}}})
    assert.same({"float32[8@data,8]", "float32[8@model]"}, types {out_shardings = {{P "data", {P "model"}}}})
    assert.same({"float32[8,8@data]", "float32[8@data]"},
      types {in_shardings = {named(P(nil, "data")), named(P "data")}})
    local of_tree = ml.jit(function(t) return {w = t.w + 1, b = t.b + 1} end,
      {mesh = mesh, in_shardings = {{w = P(nil, "model")}}, out_shardings = {{b = P "data"}}})
    local out = of_tree {w = x, b = y}
    assert.same({"float32[8,8@model]", "float32[8@data]"}, {ml.typeof(out.w), ml.typeof(out.b)})
  end)

  it("J1: that do not fit the arguments are an error", function()
    local one, two = ml.ones {8}, {a = ml.ones {8}}
    local function jit(options)
      options.mesh = mesh
      return ml.jit(function(x) return x end, options)
    end
    helper.raises("[E_SPEC] jit: in_shardings has 2 entries for 1 value", jit {in_shardings = {P(), P()}},
      one)
    helper.raises("[E_SPEC] jit: out_shardings has 2 entries for 1 value", jit {out_shardings = {P(), P()}},
      one)
    helper.raises("[E_SPEC] in_shardings[1]: a: the shardings go deeper than the tree",
      jit {in_shardings = {{a = {P()}}}}, two)
    helper.raises("[E_SPEC] in_shardings[1]: a: expected a NamedSharding or a P, got a string",
      jit {in_shardings = {{a = "data"}}}, two)
    helper.raises("[E_SPEC] in_shardings[1]: the shardings have 'b', but the tree has a",
      jit {in_shardings = {{a = P(), b = P()}}}, two)
    helper.raises("[E_SPEC] out_shardings[1]: a: the shardings have '3', but the tree has 1, 2", ml.jit(
      function(x) return {a = {x, x}} end, {mesh = mesh, out_shardings = {{a = {P(), P(), P()}}}}), one)
    helper.raises("[E_SPEC] device_put: a.w: the shardings have 'kernl', but the tree has bias, kernel",
      ml.device_put, {a = {w = {kernel = one, bias = one}}}, {a = {w = {kernl = named(P())}}})
    helper.raises("[E_SPEC] P: axis 'dta' is not an axis of Mesh(data=4, model=2); did you mean 'data'?",
      jit {in_shardings = P "dta"}, one)
    helper.raises("[E_SPEC] jit: in_shardings must be a sharding, or a list of shardings and trees of "
      .. "them, not a string", jit,
      {in_shardings = "data"})
    helper.raises("[E_SPEC] jit: out_shardings must be", jit, {out_shardings = 1})
    helper.raises("[E_MESH] a bare P requires a mesh in context", ml.jit(function(x) return x end,
      {in_shardings = P "data"}),
      one)
  end)

  it("J2: an argument that lies otherwise is moved, in the plan and with a reason", function()
    local step = ml.jit(function(x) return x * 2 end, {mesh = mesh, in_shardings = P "data"})
    local x = ml.device_put(ml.arange(8.0), named(P "model"))
    assert.equal("float32[8@data]", ml.typeof(step(x)))
    assert.same((ml.arange(8.0) * 2):totable(), step(x):totable())
    local moves = step:plan(x):collectives()
    assert.is_true(#moves >= 1)
    for _, c in ipairs(moves) do assert.truthy(c.why and #c.where > 0) end
    assert.equal(0, #step:plan(ml.device_put(x, named(P "data"))):collectives())
  end)

  it("J2: without them computation follows the data", function()
    local step = ml.jit(function(x, y) return x * 2 + y end)
    local x, y = ml.device_put(ml.ones {8, 8}, named(P "data")), ml.device_put(ml.ones {8, 8},
      named(P(nil, "model")))
    assert.equal("float32[8@data,8@model]", ml.typeof(step(x, y)))
    assert.equal(0, #step:plan(x, y):collectives())
  end)

  it("J3: a result that nothing is said of lies as propagation decides, and says how", function()
    local step = ml.jit(function(x, w) return x:matmul(w), x end)
    local x, w = ml.device_put(ml.ones {8, 4}, named(P "data")), ml.device_put(ml.ones {4, 6},
      named(P(nil, "model")))
    local y, same = step(x, w)
    assert.is_true(y.sharding == named(P("data", "model")))
    assert.is_true(same.sharding == x.sharding)
  end)

  it("J1: put Params where they say, too", function()
    local model = {w = ml.core.box_new(ml.ones {8}, {kind = "param"})}
    ml.jit(function(m) m.w:set(m.w + 1) end, {mesh = mesh, in_shardings = {P "data"}})(model)
    assert.equal(16.0, model.w:sum():item())
  end)

  it("J1: read their tables when jit is called", function()
    local ins = {P "data"}
    local step = ml.jit(function(x) return x end, {mesh = mesh, in_shardings = ins})
    ins[1] = P "model"
    assert.equal("float32[8@data]", ml.typeof(step(ml.ones {8})))
  end)
end)

describe("a call", function()
  it("J5: is traced again for another sharding, dims, dtype or mesh in context, and says why", function()
    local step = ml.jit(function(x) return x * 2 end)
    local function why(x)
      step(x)
      return step:why_miss()
    end
    why(ml.ones {8, 8})
    assert.equal("now x = float32[8@data,8] on Mesh(data=4, model=2); the last trace had x = float32[8,8]",
      why(ml.device_put(ml.ones {8, 8}, named(P "data"))))
    assert.equal("now x = float32[8,8@data] on Mesh(data=4, model=2); the last trace had x = "
      .. "float32[8@data,8] on "
      .. "Mesh(data=4, model=2)",
      why(ml.device_put(ml.ones {8, 8}, named(P(nil, "data")))))
    local hits, misses = step:stats()
    why(ml.device_put(ml.ones {8, 8}, named(P("data", nil))))
    assert.same({hits + 1, misses}, {step:stats()})
    mesh:with(function() assert.truthy(why(ml.ones {8,
      8}):find("now the mesh in context = Mesh(data=4, model=2)", 1, true)) end)
  end)

  it("J3: identity keeps the sharding, also in its spelling", function()
    local step = ml.jit(function(x) return x end)
    for _, spec in ipairs {P("data", "model"), P(), P {"model", "data"}, P(nil, "data")} do
      local x = ml.device_put(ml.ones {8, 8}, named(spec))
      assert.is_true(step(x).sharding == x.sharding)
    end
    local x = ml.device_put(ml.ones {8}, 5)
    assert.same({5}, step(x).sharding.device_ids)
    assert.is_false(step(ml.ones {8}).committed)
  end)

  it("J9: what is not used is still part of the kind of call; what is met is an input", function()
    local held = ml.full({4}, 2.0)
    local box = {held}
    local step = ml.jit(function(x, _) return x * box[1] end)
    local x = ml.ones {4}
    step(x, {ml.ones {3}, name = "a"})
    step(x, {ml.zeros {3}, name = "a"})
    assert.same({1, 1}, {step:stats()})
    step(x, {ml.ones {3}, name = "b"})
    step(x, {ml.ones {2}, name = "b"})
    assert.same({1, 3}, {step:stats()})
    assert.same({2.0, 2.0, 2.0, 2.0}, step(x, {ml.ones {2}, name = "b"}):totable())
    helper.raises("[E_VALUE] argument n: the number 4294967296 is out of range for int32; make it static or "
      .. "a float", ml.jit(function(a, n) return a * n end), x, 1 << 32)
  end)

  it("J11: what it gives is there when it is asked for", function()
    local x = ml.device_put(ml.ones {8, 8}, named(P "data"))
    local tree = {ml.jit(function(t) return t * 2 end)(x), {n = 3}}
    assert.equal(tree, ml.block_until_ready(tree))
    assert.equal(x, x:block_until_ready())
    helper.raises("[E_TRACED] block_until_ready", ml.jit(function(t) return ml.block_until_ready(t) end), x)
    x:release()
    helper.raises("[E_DELETED]", ml.block_until_ready, {x})
  end)

  it("J5: on two meshes of one shape is two plans, each right", function()
    local step = ml.jit(function(x) return x:sum(1) end)
    local other = ml.make_mesh({4, 2}, {"data", "model"}, {7, 6, 5, 4, 3, 2, 1, 0})
    local x = ml.arange(64.0):reshape {8, 8}
    local a, b = step(ml.device_put(x, named(P "data"))), step(ml.device_put(x, NamedSharding(other,
      P "data")))
    assert.same(a:totable(), b:totable())
    assert.is_true(b.sharding.mesh == other)
    assert.same({0, 2}, {step:stats()})
    assert.truthy(step:why_miss():find("mesh", 1, true), step:why_miss())
  end)

  it("J10: of one jitted function in another keeps the inner one's constraints", function()
    local inner = ml.jit(function(x) return x * 2 end, {mesh = mesh, out_shardings = P(nil, "model")})
    local outer = ml.jit(function(x) return inner(x) end)
    assert.equal("float32[8,8@model]", ml.typeof(outer(ml.device_put(ml.ones {8, 8}, named(P "data")))))
  end)

  it("N13 J5: does not mix what it is called with on one device and on a mesh", function()
    local step = ml.jit(function(x, y) return x + y end)
    local x = ml.arange(8.0)
    local on_mesh = ml.device_put(x, named(P "data"))
    for _ = 1, 2 do
      assert.same((x + x):totable(), step(x, x):totable())
      assert.same((x + x):totable(), step(on_mesh, x):totable())
      assert.same((x + x):totable(), step(x, on_mesh):totable())
    end
    assert.same({3, 3}, {step:stats()})
  end)
end)
