-- devices: 8
-- rules_spec.lua: logical axes to mesh axes: order, fall-backs, paths, functions, and what is refused.
local ml = require "meshlua"
local helper = require "spec.helper"

local nn, P = ml.nn, ml.P

local mesh -- made once the devices are there
before_each(function() mesh = ml.make_mesh({4, 2}, {"data", "model"}) end)

--- The P of a Param with these axes under the rules.
local function spec(rules, axes, shape)
  local model = ml.init(function()
    return {w = nn.Param(ml.zeros(shape or {8, 8}), {axes = axes})}
  end, {mesh = mesh, rules = rules})
  return model.w.sharding
end

local function sharding(...) return ml.NamedSharding(mesh, P(...)) end

describe("rules", function()
  it("L1: map names to axes, several axes, or none", function()
    local rules = {{"batch", {"data", "model"}}, {"embed", false}, {"hidden", "model"}}
    assert.equal(sharding(nil, "model"), spec(rules, {"embed", "hidden"}))
    assert.equal(sharding({"data", "model"}), spec(rules, {"batch", "embed"}))
    assert.equal(sharding("model"), spec(rules, {"hidden", false}))
  end)

  it("L1: the first one wins whose axes are free; an axis serves one dim", function()
    local rules = {{"a", "model"}, {"b", "model"}, {"b", "data"}, {"b", false}}
    assert.equal(sharding("model", "data"), spec(rules, {"a", "b"}))
    assert.equal(sharding("model", "data", nil), spec(rules, {"a", "b", "b"}, {8, 8, 8}))
    local message = helper.raises("E_SPEC", spec, {{"a", "model"}, {"b", "model"}}, {"a", "b"})
    assert.truthy(message:find("'a' already uses mesh axis 'model'", 1, true), message)
    assert.truthy(message:find('{"b", false}', 1, true), message)
  end)

  it("L1: an axis that the mesh lacks is an error, unless a later rule says what then", function()
    local message = helper.raises("the mesh has no axis 'expert'", spec, {{"a", "expert"}, {"b", false}},
      {"a", "b"})
    assert.truthy(message:find('{"a", false}', 1, true), message)
    assert.equal(sharding(), spec({{"a", "expert"}, {"a", false}, {"b", false}}, {"a", "b"}))
    assert.equal(sharding("data"), spec({{"a", "expert"}, {"a", "data"}, {"b", false}}, {"a", "b"}))
  end)

  it("L2: unknown names raise with the nearest; names without rules raise", function()
    helper.raises("did you mean 'hidden'", spec, {{"hidden", "model"}}, {"hiden"})
    helper.raises("mean nothing without rules", function()
      return ml.jit(function(x) return x:constrain {"batch"} end, {mesh = mesh})(ml.ones {8})
    end)
    helper.raises("E_VALUE", spec, {"hidden"}, {"hidden"})
    helper.raises("E_VALUE", spec, {{"hidden", 3}}, {"hidden"})
  end)

  it("L2: a P as axes needs no rules", function()
    assert.equal(sharding(nil, "model"), spec(nil, P(nil, "model")))
  end)

  it("L2: by path, and by a function of path, Param and what its axes give", function()
    local seen = {}
    local rules = {
      {"embedding$", P("model", nil)},
      function(path, param, own)
        seen[path] = {size = param.size, own = own()}
        if path == "b" then return P("data") end
      end,
      {"a", "model"},
    }
    local model = ml.init(function()
      return {embedding = nn.Param(ml.zeros {8, 8}, {axes = {"a", false}}), b = nn.Param(ml.zeros {8}),
        c = nn.Param(ml.zeros {8, 4}, {axes = {false, "a"}})}
    end, {mesh = mesh, rules = rules})
    assert.equal(sharding("model"), model.embedding.sharding)
    assert.equal(sharding("data"), model.b.sharding)
    assert.equal(sharding(nil, "model"), model.c.sharding)
    assert.is_nil(seen.embedding)
    assert.same({size = 8}, seen.b)
    assert.equal(P(nil, "model"), seen.c.own)
    helper.raises("a rule function returns a P", spec, {function() return "data" end}, {false})
  end)

  it("L2: constrain takes logical names in a jitted function, and asks for nothing without a mesh", function()
    local rules = {{"batch", "data"}, {"embed", false}}
    local x = ml.ones {8, 4}
    local function twice(t) return t:constrain {"batch", "embed"} * 2 end
    local y = ml.jit(twice, {mesh = mesh, rules = rules})(x)
    assert.equal(sharding "data", y.sharding)
    helper.close(y, ml.jit(twice, {rules = rules})(x))
    helper.raises("no rule for the logical axis 'bach'", ml.jit(function(t) return t:constrain {"bach"} end,
      {mesh = mesh, rules = rules}), ml.ones {8})
  end)

  it("J5 L2: other rules make another trace", function()
    local step = ml.jit(function(t) return t:constrain {"batch"} * 2 end)
    local x = ml.ones {8}
    for _, axis in ipairs {"data", "model"} do
      local y = mesh:with({{"batch", axis}}, step, x)
      assert.equal(sharding(axis), y.sharding)
    end
    assert.same({0, 2}, {step:stats()})
  end)

  it("P5 L2: indivisible dims are errors that name the Param", function()
    local message = helper.raises("E_INDIVISIBLE", spec, {{"a", "data"}}, {"a"}, {6})
    assert.truthy(message:find("w", 1, true), message)
  end)
end)

describe("shard_largest", function()
  local rules = function(min_size)
    return {ml.shard_largest("data", min_size), {"a", "model"}, {"b", false}}
  end

  it("splits the largest dim that is whole and divides, the first of equals", function()
    assert.equal(sharding("data"), spec(rules(), {"b", "b"}))
    assert.equal(sharding(nil, "data"), spec(rules(), {"b", "b"}, {4, 8}))
    assert.equal(sharding("model", "data"), spec(rules(), {"a", "b"}, {8, 4}))
    assert.equal(sharding("data"), spec(rules(), {"b", "b"}, {4, 9}))
    assert.equal(sharding("data"), spec(rules(), nil, {8}))
  end)

  it("splits a dim that is split already where none is whole", function()
    assert.equal(sharding {"model", "data"}, spec(rules(), {"a"}, {16}))
    assert.equal(sharding({"model", "data"}), spec(rules(), {"a", "b"}, {8, 3}))
    assert.equal(sharding "data", spec({ml.shard_largest "data", {"a", "data"}}, {"a"}, {16}))
  end)

  it("leaves small Params, and meshes without the axis, alone", function()
    assert.equal(sharding("model"), spec(rules(65), {"a", "b"}))
    assert.equal(sharding("model", "data"), spec(rules(64), {"a", "b"}))
    mesh = ml.make_mesh({8}, {"model"})
    assert.equal(sharding("model"), spec(rules(), {"a", "b"}))
  end)

  it("P5: a Param that it cannot split is an error", function()
    local message = helper.raises("E_INDIVISIBLE", spec, rules(), {"a", "b"}, {2, 9})
    assert.truthy(message:find("raise min_size above 18", 1, true), message)
    helper.raises("E_SPEC", ml.shard_largest, 3)
    message = helper.raises("E_SPEC", spec, {ml.shard_largest "data"}, {}, {})
    assert.truthy(message:find("float32[] is a scalar, which mesh axis 'data' cannot split", 1, true),
      message)
  end)
end)
