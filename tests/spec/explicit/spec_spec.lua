-- devices: 8
-- What a P and a mesh can say in explicit mode: lines M2, M3, M5 and P7 to P9 of the checklist.
local ml = require "meshlua"
local helper = require "spec.helper"

local P, NamedSharding, make_mesh = ml.P, ml.NamedSharding, ml.make_mesh
local raises = helper.raises

describe("axis types of a mesh", function()
  it("M2: take part in the mesh's identity", function()
    local auto = make_mesh({4, 2}, {"data", "model"})
    local mixed = make_mesh({4, 2}, {"data", "model"}, {axis_types = {data = "explicit"}})
    assert.is_true(auto ~= mixed)
    assert.is_true(mixed == make_mesh({4, 2}, {"data", "model"}, {axis_types = {ml.Explicit, ml.Auto}}))
    assert.equal("Mesh(data=4 explicit, model=2) of devices {{0,1},{2,3},{4,5},{6,7}}", tostring(mixed))
  end)

  it("M5: are told by the mesh, by axis and by type", function()
    local mesh = make_mesh({2, 2, 2}, {"a", "b", "c"}, {axis_types = {c = "explicit", a = "explicit"}})
    assert.same({"explicit", "auto", "explicit"}, mesh.axis_types)
    assert.same({"a", "c"}, mesh.explicit_axes)
    assert.same({"b"}, mesh.auto_axes)
    assert.same({}, mesh.manual_axes)
    assert.same({"auto", "auto"}, make_mesh({4, 2}, {"data", "model"}).axis_types)
    assert.same({"explicit", "explicit"}, make_mesh({4, 2}, {"x", "y"},
      {axis_types = "explicit"}).axis_types)
    assert.same({"explicit"}, ml.Mesh({0, 1}, "x", {axis_types = ml.Explicit}).axis_types)
    assert.same({0, 1}, make_mesh({2}, {"x"}, {devices = {0, 1}, axis_types = "explicit"}).device_ids)
  end)

  it("M3: there must be one for each axis, of a known kind", function()
    local function mesh(types) return make_mesh({4, 2}, {"data", "model"}, {axis_types = types}) end
    raises("[E_MESH] make_mesh: 1 axis type for 2 axes; give one for each axis name", mesh, {"explicit"})
    raises("make_mesh: axis_types names 'modle', which is no axis; did you mean 'model'?", mesh,
      {modle = "auto"})
    raises("mesh: the type of axis 'data' is number; there are \"auto\" and \"explicit\"", mesh, {data = 3})
    raises("mesh: the type of axis 'model' is expl; there are", mesh, {"auto", "expl"})
    raises("mesh: axis 'data' is manual; axes become manual inside ml.shard_map only", mesh, ml.Manual)
    raises("make_mesh: axis_types is \"auto\", \"explicit\", a list of them or a table by axis, "
      .. "not a number",
      mesh, 5)
  end)
end)

describe("P", function()
  local mesh = make_mesh({4, 2}, {"data", "model"}, {axis_types = {data = "explicit"}})

  it("P7: unconstrained asks for an auto axis in the mesh", function()
    local explicit = make_mesh({4, 2}, {"data", "model"}, {axis_types = "explicit"})
    assert.equal("P(P.unconstrained)", tostring(NamedSharding(mesh, P(P.unconstrained)).spec))
    raises("[E_SPEC] NamedSharding: entry 2 is P.unconstrained, which leaves the dim to propagation, "
      .. "but no axis "
      .. "of the mesh is auto; name the axes of the dim, or nil",
      NamedSharding, explicit, P("data", P.unconstrained))
  end)

  it("P8: unreduced and reduced are sets of axes, told in a table behind the entries", function()
    local spec = P("x", nil, {unreduced = {"z", "y"}, reduced = {"w"}})
    assert.equal('P("x", nil, {unreduced={"y","z"}, reduced={"w"}})', tostring(spec))
    assert.is_true(spec == P("x", nil, {unreduced = {"y", "z"}, reduced = {"w"}}))
    assert.is_true(spec ~= P("x", nil, {unreduced = {"y"}, reduced = {"w"}}))
    assert.equal(2, #spec)
    assert.same({"y", "z"}, spec.unreduced)
    assert.same({"w"}, spec.reduced)
    assert.equal("sum", spec.unreduced_kind)
    assert.equal('P({unreduced={"y"}, unreduced_kind="max"})', tostring(P({unreduced = {"y"},
      unreduced_kind = "max"})))
    assert.is_nil(P("x").unreduced_kind)
  end)

  it("P8: an axis has one role", function()
    raises("[E_SPEC] P: axis 'x' of unreduced splits a dim, too; an axis splits a dim, or is unreduced, "
      .. "or reduced",
      P, nil, "x", {unreduced = {"x"}})
    raises("P: axis 'a' of reduced is named twice", P, {unreduced = {"a"}, reduced = {"a"}})
    raises("P: axis 'a' of unreduced is named twice", P, {unreduced = {"a", "a"}})
  end)

  it("P8: says what is wrong with its options", function()
    raises("P: unknown option 'unreduce'; there are unreduced, reduced and unreduced_kind", P,
      {unreduce = {"a"}})
    raises("P: unreduced: expected a list of mesh axes, as {\"x\"}, got string", P, {unreduced = "a"})
    raises("P: unreduced: expected names of mesh axes, got number", P, {unreduced = {1}})
    raises("P: unreduced_kind is given without unreduced", P, "x", {unreduced_kind = "sum"})
    raises("P: unreduced_kind 'mean'; there are sum, max and min", P, {unreduced = {"a"},
      unreduced_kind = "mean"})
  end)

  it("P8: only explicit axes can be unreduced or reduced", function()
    raises("[E_SPEC] NamedSharding: axis 'model' is unreduced, but is not explicit in the mesh; make it "
      .. "so: "
      .. "axis_types = {model = \"explicit\"}", NamedSharding, mesh, P({unreduced = {"model"}}))
    raises("NamedSharding: axis 'model' is reduced, but is not explicit", NamedSharding, mesh,
      P({reduced = {"model"}}))
    raises("NamedSharding: axis 'modl' is not an axis of Mesh(data=4 explicit, model=2); did you mean "
      .. "'model'?",
      NamedSharding, mesh, P({unreduced = {"modl"}}))
    assert.equal('P("model", {unreduced={"data"}})',
      tostring(NamedSharding(mesh, P("model", {unreduced = {"data"}})).spec))
  end)

  it("P9: with sets is more than its entries", function()
    local spec = P("x", nil, {unreduced = {"y"}})
    raises("[E_SPEC] a P with unreduced or reduced axes is more than its entries; use spec.partitions[1], "
      .. "spec.unreduced, spec.reduced", function() return spec[1] end)
    assert.same({"x", false}, spec.partitions)
    assert.equal("x", P("x")[1])
  end)

  it("P9: P + P has the entries of both", function()
    assert.equal('P("x", nil, "y", {unreduced={"z"}})', tostring(P("x") + P(nil, "y", {unreduced = {"z"}})))
    assert.equal('P("x", {unreduced={"z"}, reduced={"w"}, unreduced_kind="max"})',
      tostring(P("x") + P {unreduced = {"z"}, unreduced_kind = "max", reduced = {"w"}}))
    raises("P + P: both have unreduced or reduced axes; write one P, or use :update",
      function() return P({unreduced = {"a"}}) + P({reduced = {"b"}}) end)
    raises("P + P: axis 'a' would split a dim and be unreduced or reduced",
      function() return P({unreduced = {"a"}}) + P("a") end)
    raises("P + P: expected two P, got P and table", function() return P("a") + {"b"} end)
  end)

  it("P9: update gives a new P with some fields replaced", function()
    local spec = P("x", nil, {unreduced = {"y"}})
    assert.equal('P(nil, "z", {unreduced={"y"}})', tostring(spec:update {partitions = {false, "z"}}))
    assert.equal('P("x", nil, {reduced={"y"}})', tostring(spec:update {unreduced = {}, reduced = {"y"}}))
    assert.equal('P("x", nil, {unreduced={"y"}})', tostring(spec))
    raises("P:update: unknown option 'unreducd'; did you mean 'unreduced'?", spec.update, spec,
      {unreducd = {}})
  end)
end)
