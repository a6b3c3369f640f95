-- devices: 8
-- constrain_spec.lua: constraints by mesh axes and by logical names, and the rules behind the names.
local helper = require "spec.helper"
local ml = require "meshlua"

local P, NamedSharding = ml.P, ml.NamedSharding
local mesh = ml.make_mesh({4, 2}, {"data", "model"})
local rules = {{"batch", "data"}, {"hidden", "model"}, {"both", {"data", "model"}}, {"embed", false}}

local function typed(spec) return NamedSharding(mesh, spec) end

describe("a constraint", function()
  it("J12: is hard: the value lies as it says, whatever else would be cheaper", function()
    for _, spec in ipairs {P("data", "model"), P(nil, "data"), P {"model", "data"}, P()} do
      local step = ml.jit(function(x) return (x * 2):constrain(typed(spec)) end)
      for _, from in ipairs {P(), P("model", "data"), P {"data", "model"}} do
        local y = step(ml.device_put(ml.ones {8, 8}, typed(from)))
        assert.is_true(y.sharding == typed(spec))
        assert.equal(128.0, y:sum():item())
      end
    end
  end)

  it("J12: inside decides what is computed where", function()
    local step = ml.jit(function(x, w)
      local h = x:matmul(w):constrain(typed(P("data", "model")))
      return h:matmul(w:T()):constrain(typed(P "data"))
    end)
    local x, w = ml.device_put(ml.ones {8, 16}, typed(P "data")), ml.device_put(ml.ones {16, 32},
      typed(P(nil, "model")))
    local y = step(x, w)
    assert.equal("float32[8@data,16]", ml.typeof(y))
    local kinds = {}
    for i, c in ipairs(step:plan(x, w):collectives()) do kinds[i] = c.op .. " over " .. table.concat(c.axes,
      ",") end
    assert.same({"all_reduce over model"}, kinds)
    helper.close(ml.full({8, 16}, 512.0), y)
  end)

  it("J12: holds for the gradient, too", function()
    local x = ml.device_put(ml.ones {8, 8}, typed(P "data"))
    local g = ml.jit(ml.grad(function(t) return (t:constrain(typed(P(nil, "model"))) ^ 2):sum() end))(x)
    assert.same(ml.full({8, 8}, 2.0):totable(), g:totable())
  end)

  it("J12: is the same eagerly", function()
    local y = ml.ones({8, 8}):constrain(typed(P("model", "data")))
    assert.equal("float32[8@model,8@data]", ml.typeof(y))
    assert.equal("float32[8,8@data]", ml.typeof(ml.constrain(y, typed(P(nil, "data")))))
  end)

  it("J12: without a sharding is an error", function()
    local x = ml.ones {8}
    helper.raises("[E_SPEC] constrain: expected a NamedSharding or a P, got nil", ml.constrain, x)
    helper.raises("[E_SPEC] constrain: expected a NamedSharding or a P, got a string", ml.constrain, x,
      "data")
    helper.raises("[E_SPEC] constrain: expected a NamedSharding or a P, got a Mesh", ml.constrain, x, mesh)
    helper.raises("[E_VALUE] constrain: expected a tensor, got a number", ml.constrain, 1, typed(P()))
  end)
end)

describe("logical names", function()
  local function laid_out(names, shape, with)
    return mesh:with(with or rules, function() return ml.typeof(ml.ones(shape
      or {8, 8}):constrain(names)) end)
  end

  it("L1: stand for the mesh axes that the rules say", function()
    assert.equal("float32[8@data,8@model]", laid_out {"batch", "hidden"})
    assert.equal("float32[8,8@model]", laid_out {"embed", "hidden"})
    assert.equal("float32[8@(data,model),8]", laid_out {"both", "embed"})
    assert.equal("float32[8@data,8]", laid_out {"batch"})
    assert.equal("float32[8,8@data]", laid_out {false, "batch"})
    assert.equal("float32[8,8@data]", laid_out {nil, "batch"})
    assert.equal("float32[8,8]", laid_out {})
  end)

  it("L2: mean nothing without rules, and say so", function()
    local message = "[E_SPEC] constrain: the logical axes {batch, -} mean nothing without rules; pass "
      .. "rules to jit or init, "
      .. "or use mesh:with(rules, fn)"
    helper.raises(message, ml.constrain, ml.ones {8, 8}, {"batch"})
    helper.raises(message, ml.jit(function(x) return x:constrain {"batch", false} end, {mesh = mesh}),
      ml.ones {8, 8})
  end)

  it("L1: that no rule knows are an error with the nearest", function()
    helper.raises("[E_SPEC] constrain: no rule for the logical axis 'bacth' (did you mean 'batch'?); add "
      .. "{\"bacth\", axis} or "
      .. "{\"bacth\", false}", laid_out, {"bacth"})
    helper.raises("no rule for the logical axis 'vocabulary'; add", laid_out, {"vocabulary"})
    helper.raises("[E_SPEC] constrain: logical axes for dim 3 of a tensor of rank 2", laid_out,
      {"batch", false, "hidden"})
    helper.raises("[E_SPEC] constrain: logical axes for dim x of a tensor of rank 2", laid_out, {x = "batch"})
  end)

  it("L1: that want an axis in use are an error, unless a later rule says what then", function()
    helper.raises("[E_SPEC] constrain: no rule for 'batch' can be used: 'batch' already uses mesh axis "
      .. "'data' in this tensor; "
      .. "add a later rule {\"batch\", false} to leave it whole then", laid_out, {"batch", "batch"})
    local ordered = {{"a", "data"}, {"b", "data"}, {"b", "model"}, {"c", "data"}, {"c", "model"},
      {"c", false}}
    assert.equal("float32[8@data,8@model]", laid_out({"a", "b"}, nil, ordered))
    assert.equal("float32[8@data]", laid_out({"b"}, {8}, ordered))
    assert.equal("float32[8@data,8@model,8]", laid_out({"a", "b", "c"}, {8, 8, 8}, ordered))
  end)

  it("L1: that want an axis the mesh does not have are an error", function()
    helper.raises("the mesh has no axis 'expert'", laid_out, {"e"}, {8}, {{"e", "expert"}})
    assert.equal("float32[8]", laid_out({"e"}, {8}, {{"e", "expert"}, {"e", false}}))
  end)

  it("L2: are known in jit by its options, and there alone", function()
    local step = ml.jit(function(x) return x:constrain {"batch", "hidden"} end, {mesh = mesh, rules = rules})
    assert.equal("float32[8@data,8@model]", ml.typeof(step(ml.ones {8, 8})))
    helper.raises("mean nothing without rules", ml.constrain, ml.ones {8, 8}, {"batch"})
    -- What becomes of the table afterwards is of no matter.
    local own = {{"batch", "data"}}
    local fixed = ml.jit(function(x) return x:constrain {"batch"} end, {mesh = mesh, rules = own})
    own[1][2], own[2] = "model", {"x", "y"}
    assert.equal("float32[8@data]", ml.typeof(fixed(ml.ones {8})))
  end)

  it("J5 L2: are part of what a call is traced for", function()
    local step = ml.jit(function(x) return x:constrain {"batch"} end)
    local x = ml.ones {8}
    assert.equal("float32[8@data]", ml.typeof(mesh:with(rules, step, x)))
    assert.equal("float32[8@model]", ml.typeof(mesh:with({{"batch", "model"}}, step, x)))
    assert.equal("float32[8@data]", ml.typeof(mesh:with(rules, step, x)))
    assert.same({1, 2}, {step:stats()})
  end)

  it("L2: a table holds logical names and P mesh axes, also where both know a word", function()
    local clash = {{"data", "model"}}
    mesh:with(clash, function()
      assert.equal("float32[8@model]", ml.typeof(ml.ones({8}):constrain {"data"}))
      assert.equal("float32[8@data]", ml.typeof(ml.ones({8}):constrain(P "data")))
    end)
  end)

  it("L1: a rule that is none is an error", function()
    for _, wrong in ipairs {{1}, {{"batch"}}, {{"batch", 3}}, {{2, "data"}}, {"batch"}} do
      helper.raises("[E_VALUE] rules: entry 1 is neither {name, axis}, {pattern, P(...)}, {opt = rule} nor a "
        .. "function",
        mesh.with, mesh,
        wrong, print)
      helper.raises("rules: entry 1", ml.jit, print, {rules = wrong})
    end
  end)
end)
