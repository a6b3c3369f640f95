-- devices: 8
-- rules_cases_spec.lua: what sets of rules give for logical axes: the spec, or the error's text. The numbers are
-- those of the checklist of JAX's semantics (flax: first rule that applies; here conflicts are errors).
local helper = require "spec.helper"
local ml = require "meshlua"

local P, nn = ml.P, ml.nn

local meshes = {
  flat = ml.make_mesh({8}, {"data"}),
  grid = ml.make_mesh({4, 2}, {"data", "model"}),
  cube = ml.make_mesh({2, 2, 2}, {"data", "model", "expert"}),
}

-- {number, what, mesh, rules, axes, shape, the P or the error's text}
local cases = {
  {"L1", "one name on one axis", "grid", {{"a", "data"}}, {"a"}, {8}, P "data"},
  {"L1", "two names on two axes", "grid", {{"a", "data"}, {"b", "model"}}, {"a", "b"}, {8, 8}, P("data",
    "model")},
  {"L1", "the order of rules is not that of dims", "grid", {{"b", "model"}, {"a", "data"}}, {"a", "b"}, {8,
    8},
    P("data", "model")},
  {"L1", "false is whole", "grid", {{"a", false}, {"b", "model"}}, {"a", "b"}, {8, 8}, P(nil, "model")},
  {"L1", "a dim without a name is whole", "grid", {{"a", "data"}}, {false, "a"}, {8, 8}, P(nil, "data")},
  {"L1", "fewer names than dims: the rest is whole", "grid", {{"a", "data"}}, {"a"}, {8, 8}, P("data", nil)},
  {"L1", "no names at all", "grid", {{"a", "data"}}, {}, {8, 8}, P(nil, nil)},
  {"L1", "several mesh axes for a name", "grid", {{"a", {"data", "model"}}}, {"a"}, {8}, P {"data", "model"}},
  {"L1", "their order is the rule's", "grid", {{"a", {"model", "data"}}}, {"a"}, {8}, P {"model", "data"}},
  {"L1", "a list of one is the axis", "grid", {{"a", {"data"}}}, {"a"}, {8}, P "data"},
  {"L1", "an empty list is whole", "grid", {{"a", {}}}, {"a"}, {8}, P(nil)},
  {"L1", "three axes, two on one dim", "cube", {{"a", {"data", "expert"}}, {"b", "model"}}, {"b", "a"}, {8,
    8},
    P("model", {"data", "expert"})},
  {"L1", "the first rule of a name that can be used wins", "grid", {{"a", "data"}, {"a", "model"}}, {"a"},
    {8},
    P "data"},
  {"L1", "a taken axis: the next rule of the name", "grid", {{"a", "data"}, {"b", "data"}, {"b", "model"}},
    {"a", "b"}, {8, 8}, P("data", "model")},
  {"L1", "dims are asked from left to right", "grid", {{"a", "data"}, {"b", "data"}, {"b", "model"},
    {"a", "model"}}, {"b", "a"}, {8, 8}, P("data", "model")},
  {"L1", "a taken axis, and a written fallback", "grid", {{"a", "data"}, {"b", "data"}, {"b", false}},
    {"a", "b"}, {8, 8}, P("data", nil)},
  {"L1", "flax's example, with its silent drop written", "cube", {{"batch", "data"}, {"feat", "data"},
    {"heads", "model"}, {"len", false}, {"feat", false}, {"batch", "expert"}}, {"batch", "len", "heads",
      "feat"},
    {8, 8, 8, 8}, P("data", nil, "model", nil)},
  {"L1", "flax's example as it stands", "cube", {{"batch", "data"}, {"feat", "data"}, {"heads", "model"},
    {"len", false}, {"batch", "expert"}}, {"batch", "len", "heads", "feat"}, {8, 8, 8, 8},
    "[E_SPEC] w: no rule for 'feat' can be used: 'batch' already uses mesh axis 'data' in this tensor; "
      .. "add a later rule {\"feat\", false} to leave it whole then"},
  {"L1", "one name twice in a tensor", "grid", {{"a", "data"}}, {"a", "a"}, {8, 8},
    "[E_SPEC] w: no rule for 'a' can be used: 'a' already uses mesh axis 'data' in this tensor"},
  {"L1", "one name twice, and two rules", "grid", {{"a", "data"}, {"a", "model"}}, {"a", "a"}, {8, 8},
    P("data", "model")},
  {"L1", "one of several axes is taken", "grid", {{"a", "data"}, {"b", {"data", "model"}}}, {"a", "b"}, {8,
    8},
    "[E_SPEC] w: no rule for 'b' can be used: 'a' already uses mesh axis 'data' in this tensor"},
  {"L1", "one of several axes is taken, and less is written", "grid", {{"a", "data"}, {"b", {"data",
    "model"}},
    {"b", "model"}}, {"a", "b"}, {8, 8}, P("data", "model")},
  {"L1", "an axis that the mesh lacks", "flat", {{"a", "model"}}, {"a"}, {8},
    "[E_SPEC] w: no rule for 'a' can be used: the mesh has no axis 'model'; add a later rule {\"a\", false}"},
  {"L1", "an axis that the mesh lacks, and a fallback", "flat", {{"a", "model"}, {"a", false}}, {"a"}, {8},
    P(nil)},
  {"L1", "as many axes as the mesh has", "flat", {{"a", {"data", "model"}}, {"a", "data"}}, {"a"}, {8},
    P "data"},
  {"L1", "a rule asks one axis twice", "grid", {{"a", {"data", "data"}}}, {"a"}, {8},
    "[E_SPEC] rules: 'a' asks for mesh axis 'data' twice; an axis splits a dim once"},
  {"L1", "a rule with something else in its list", "grid", {{"a", {"data", 1}}}, {"a"}, {8},
    "[E_VALUE] rules: entry 1 is neither"},
  {"L1", "a rule with a named list", "grid", {{"a", {axis = "data"}}}, {"a"}, {8},
    "[E_VALUE] rules: entry 1"},
  {"L2", "a name that no rule has", "grid", {{"embed", "data"}}, {"embd"}, {8},
    "[E_SPEC] w: no rule for the logical axis 'embd' (did you mean 'embed'?); add {\"embd\", axis} or "
      .. "{\"embd\", false}"},
  {"L2", "a mesh axis is no logical name", "grid", {{"a", "data"}}, {"model"}, {8},
    "[E_SPEC] w: no rule for the logical axis 'model'"},
  {"L2", "names without rules", "grid", nil, {"a", "b"}, {8, 8},
    "[E_SPEC] w: the logical axes {a, b} mean nothing without rules; pass rules to jit or init, or use "
      .. "mesh:with(rules, fn)"},
  {"L2", "a P needs no rules", "grid", nil, P(nil, "model"), {8, 8}, P(nil, "model")},
  {"L2", "a P goes past them", "grid", {{"data", "model"}}, P "data", {8}, P "data"},
  {"L2", "more names than dims", "grid", {{"a", "data"}}, {"a", "a"}, {8},
    "[E_SPEC] nn.Param: axes names dim 2 of a tensor of rank 1"},
  {"L2", "a dim that its axis does not divide", "grid", {{"a", "data"}}, {"a"}, {6},
    "[E_INDIVISIBLE] w: dim 1 has size 6, which mesh axis data of size 4 does not divide; use a size of "
      .. "8 or leave the dim whole"},
  {"L2", "rules of its own, without others", "grid", nil, {"a"}, {8}, P "model", own = {{"a", "model"}}},
  {"L2", "rules of its own beside those in context", "grid", {{"b", "data"}}, {"a", "b"}, {8, 8},
    P("model", "data"), own = {{"a", "model"}}},
  {"L2", "rules of its own that agree", "grid", {{"a", "data"}}, {"a"}, {8}, P "data", own = {{"a", "data"}}},
  {"L2", "rules of its own that disagree", "grid", {{"a", {"data", "model"}}}, {"a"}, {8},
    "[E_SPEC] w: its own rules put 'a' on model, those in context on {data, model}; keep one of them",
    own = {{"a", "model"}}},
  {"L2", "rules of its own that are none", "grid", {{"a", "data"}}, {"a"}, {8}, "[E_VALUE] rules: entry 1",
    own = {{"a", 1}}},
  {"L2", "a path's rule before names", "grid", {{"a", "data"}, {"^w$", P(nil, "model")}}, {"a"}, {8, 8},
    P(nil, "model")},
  {"L2", "a path's rule for other paths", "grid", {{"^v$", P "model"}, {"a", "data"}}, {"a"}, {8}, P "data"},
  {"L2", "a path's rule that is too long", "grid", {{"w", P("data", "model")}}, nil, {8},
    "[E_SPEC] w: P(\"data\", \"model\") has 2 entries but the tensor has rank 1"},
  {"L2", "a path's rule that asks an axis twice", "grid", {{"w", P("data", "data")}}, nil, {8, 8},
    "[E_SPEC] NamedSharding: duplicate entries for axis 'data'"},
  {"L2", "by size: a function", "grid", {function(_, p) return p.size > 32 and P "data" or nil end}, nil,
    {8, 8},
    P "data"},
  {"L2", "by size: too small", "grid", {function(_, p) return p.size > 64 and P "data" or nil end}, nil, {8,
    8}, P()},
  {"L2", "by size: the largest dim", "grid", {ml.shard_largest("data", 32), {"a", "model"}}, {"a"}, {8, 16},
    P("model", "data")},
  {"L2", "nothing says how it lies", "grid", {{"a", "data"}}, nil, {8}, P()},
}

--- The sharding of a Param `w` under a case.
local function result(case)
  local _, _, mesh, rules, axes, shape = table.unpack(case, 1, 6)
  return ml.init(function()
    return {w = nn.Param(ml.zeros(shape), {axes = axes, rules = case.own})}
  end, {mesh = meshes[mesh], rules = rules}).w.sharding
end

describe("rules, by cases:", function()
  for i, case in ipairs(cases) do
    it(("%s: %d, %s"):format(case[1], i, case[2]), function()
      local want = case[7]
      if type(want) == "string" then
        helper.raises(want, result, case)
      else
        local got = result(case)
        assert(got == ml.NamedSharding(meshes[case[3]], want), ("%s, not %s"):format(tostring(got.spec),
          tostring(want)))
      end
    end)
  end

  it("there are forty at least", function() assert.is_true(#cases >= 40) end)

  it("L1: a constraint takes the same rules as a Param", function()
    local n = 0
    for _, case in ipairs(cases) do
      local _, _, mesh, rules, axes, shape, want = table.unpack(case, 1, 7)
      if rules and type(axes) == "table" and not case.own and type(want) ~= "string" and #axes == #shape
        and not case[2]:find "path" and not case[2]:find "size" then
        n = n + 1
        local x = meshes[mesh]:with(rules, function() return ml.zeros(shape):constrain(axes) end)
        assert.is_true(x.sharding == ml.NamedSharding(meshes[mesh], want))
      end
    end
    assert.is_true(n >= 15)
  end)
end)
