-- devices: 8
-- spec_spec.lua: P. The numbers are those of the checklist of JAX's semantics.
local helper = require "spec.helper"
local ml = require "meshlua"

local P, NamedSharding = ml.P, ml.NamedSharding
local mesh = ml.make_mesh({4, 2}, {"data", "model"})

describe("P", function()
  it("P1: has an entry per dim: nil, an axis, a list of axes, or unconstrained", function()
    assert.equal('P("data")', tostring(P "data"))
    assert.equal('P(nil, "model")', tostring(P(nil, "model")))
    assert.equal('P({"data","model"}, nil)', tostring(P({"data", "model"}, nil)))
    assert.equal('P(P.unconstrained, "model")', tostring(P(P.unconstrained, "model")))
    assert.equal("P()", tostring(P()))
    assert.equal('P(nil, nil, "data")', tostring(P(false, P.none, "data")))
  end)

  it("P1: is in one form: {} is nil, {x} is x", function()
    assert.is_true(P({}, "data") == P(nil, "data"))
    assert.is_true(P {"data"} == P "data")
    helper.raises("[E_SPEC] P: entry 1: expected names of mesh axes, got table", P, {{"data"}})
    helper.raises("[E_SPEC] P: entry 2: expected nil, the name of a mesh axis or a list of names, got number",
      P, "data", 1)
    helper.raises("[E_SPEC] P: entry 1: expected nil, the name of a mesh axis or a list of names, got "
      .. "boolean", P, true)
    helper.raises("[E_SPEC] P: 9 entries; at most 8", P, nil, nil, nil, nil, nil, nil, nil, nil, nil)
  end)

  it("P1: counts holes as arguments, and its entries can be read", function()
    local spec = P(nil, "model", {"data", "x"}, nil)
    assert.equal(4, #spec)
    assert.is_nil(spec[1])
    assert.equal("model", spec[2])
    assert.same({"data", "x"}, spec[3])
    assert.is_nil(spec[4])
    assert.is_nil(spec[0])
    assert.is_nil(spec[5])
    assert.equal(P.unconstrained, P(P.unconstrained)[1])
    local open = P({"data", uneven = "pad"}, {"x", "model", open = true, priority = 2}, nil)
    assert.same({"data", uneven = "pad"}, open[1])
    assert.same({"x", "model", open = true, priority = 2}, open[2])
    assert.is_true(P(open[1], open[2], open[3]) == open and P(table.unpack(open.partitions)) == open)
  end)

  it("P2: equals what is written alike; P('x') and P('x', nil) place alike", function()
    assert.is_true(P("data", nil) == P("data", nil))
    assert.is_false(P "data" == P("data", nil))
    assert.is_false(P "data" == "data")
    assert.is_false(P {"data", "model"} == P {"model", "data"})
    assert.is_true(NamedSharding(mesh, P "data") == NamedSharding(mesh, P("data", nil)))
    assert.is_false(NamedSharding(mesh, P {"data", "model"}) == NamedSharding(mesh, P {"model", "data"}))
  end)

  it("P3: names each axis once, and only axes of the mesh", function()
    local duplicate = "[E_SPEC] NamedSharding: duplicate entries for axis 'data'; an axis splits one dim "
      .. "of a tensor"
    helper.raises(duplicate, NamedSharding, mesh, P("data", "data"))
    helper.raises(duplicate, NamedSharding, mesh, P {"data", "data"})
    helper.raises(duplicate, NamedSharding, mesh, P({"model", "data"}, nil, "data"))
    helper.raises("[E_SPEC] NamedSharding: axis 'modell' is not an axis of Mesh(data=4, model=2); did you "
      .. "mean 'model'?",
      NamedSharding, mesh, P "modell")
    local message = helper.raises("[E_SPEC] NamedSharding: axis 'x' is not an axis of Mesh(data=4, model=2)",
      NamedSharding,
      mesh, P "x")
    assert.is_nil(message:find("did you mean", 1, true))
    mesh:with(function()
      helper.raises("[E_SPEC] P: axis 'dat' is not an axis of Mesh(data=4, model=2); did you mean 'data'?",
        ml.device_put,
        ml.ones {8}, P "dat")
      helper.raises("[E_SPEC] P: duplicate entries for axis 'data'", ml.device_put, ml.ones {8, 8},
        P("data", "data"))
    end)
  end)

  it("P4: has no more entries than the tensor has dims", function()
    local x, s = ml.ones {8}, NamedSharding(mesh, P("data", "model"))
    local long = 'P("data", "model") has 2 entries but the tensor has rank 1'
    helper.raises("[E_SPEC] device_put: " .. long, ml.device_put, x, s)
    helper.raises("[E_SPEC] device_put: a.1: " .. long, ml.device_put, {a = {x}}, s)
    helper.raises("[E_SPEC] constrain: " .. long, ml.constrain, x, s)
    helper.raises("[E_SPEC] in_shardings[1]: " .. long, ml.jit(function(t) return t end,
      {in_shardings = {s}}), x)
    helper.raises("[E_SPEC] in_shardings[2]: b: " .. long,
      ml.jit(function(_, t) return t end, {in_shardings = {false, {b = s}}}), x, {b = x})
    helper.raises("[E_SPEC] out_shardings[1]: " .. long, ml.jit(function(t) return t end,
      {out_shardings = {s}}), x)
    helper.raises("rank 0; a scalar takes P()", ml.device_put, ml.tensor(1.0), NamedSharding(mesh, P "data"))
    helper.raises("[E_SPEC] shard_shape: " .. long, s.shard_shape, s, {8})
  end)

  it("P5: splits only what its axes divide; the error says what would do", function()
    local function wrong(what, dim, size, axis, n, fix)
      return ("[E_INDIVISIBLE] %s: dim %d has size %d, which mesh axis %s of size %d does not divide; use "
        .. "a size of %d or "
        .. "leave the dim whole, or say what then: {axis, uneven = \"pad\"}"
      ):format(what, dim, size, axis, n, fix)
    end
    local s = NamedSharding(mesh, P(nil, "data"))
    helper.raises(wrong("device_put", 2, 6, "data", 4, 8), ml.device_put, ml.ones {8, 6}, s)
    helper.raises(wrong("device_put: w", 2, 5, "data", 4, 8), ml.device_put, {w = ml.ones {8, 5}}, s)
    helper.raises(wrong("device_put", 1, 12, "(data,model)", 8, 16), ml.device_put, ml.ones {12},
      NamedSharding(mesh, P {"data", "model"}))
    helper.raises(wrong("constrain", 2, 3, "data", 4, 4), ml.constrain, ml.ones {8, 3}, s)
    helper.raises(wrong("constrain", 2, 3, "data", 4, 4), ml.jit(function(x) return x:constrain(s) end),
      ml.ones {8, 3})
    helper.raises(wrong("in_shardings[1]", 1, 7, "data", 4, 8), ml.jit(function(x) return x end,
      {mesh = mesh, in_shardings = P "data"}), ml.ones {7})
    helper.raises(wrong("out_shardings[1]", 1, 7, "data", 4, 8), ml.jit(function(x) return x end,
      {mesh = mesh, out_shardings = P "data"}), ml.ones {7})
    helper.raises(wrong("shard_shape", 2, 7, "data", 4, 8), s.shard_shape, s, {1, 7})
    -- A size of 0 is divided by all.
    assert.same({0, 8}, ml.device_put(ml.zeros {0, 8}, NamedSharding(mesh, P("data", "model"))).shape)
  end)

  it("P6: a constraint that does not divide is an error, not a replicated tensor", function()
    helper.raises("[E_INDIVISIBLE] constrain: dim 1 has size 17", ml.jit(function(x)
      return (x * 2):constrain(NamedSharding(mesh, P "data"))
    end), ml.ones {17})
  end)

  it("P7: unconstrained dims are decided by propagation", function()
    local step = ml.jit(function(x) return (x * 2):constrain(NamedSharding(mesh, P(P.unconstrained,
      "model"))) end)
    local x = ml.device_put(ml.ones {8, 8}, NamedSharding(mesh, P "data"))
    assert.equal("float32[8@data,8@model]", ml.typeof(step(x)))
    local whole = ml.jit(function(y) return (y * 2):constrain(NamedSharding(mesh, P(nil, "model"))) end)
    assert.equal("float32[8,8@model]", ml.typeof(whole(x)))
  end)
end)
