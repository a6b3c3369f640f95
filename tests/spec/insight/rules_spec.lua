-- devices: 8
-- rules_spec.lua: ml.explain_rules: which rule gave which dim its mesh axis.
local helper = require "spec.helper"
local ml = require "meshlua"
local nn, P = ml.nn, ml.P

local mesh = ml.make_mesh({4, 2}, {"data", "model"})
local rules = {{"batch", "data"}, {"hidden", "model"}, {"embed", false}, {"norm", P()}}

local function model_of()
  return ml.init(function(rngs)
    local layers = {}
    for i = 1, 2 do
      layers[i] = {up = nn.Linear(8, 16, {axes = {"embed", "hidden"}, rngs = rngs}),
        down = nn.Linear(16, 8, {axes = {"hidden", "embed"}, rngs = rngs})}
    end
    return {h = layers, norm = nn.LayerNorm(8, {rngs = rngs})}
  end, {mesh = mesh, rules = rules})
end

describe("explain_rules", function()
  it("names for each dim the logical name, the rule and the axis, with bytes on each device", function()
    local report = ml.explain_rules(rules, model_of(), mesh)
    local by_path = {}
    for _, row in ipairs(report.rows) do by_path[row.path] = row end
    local up = by_path["h.1.up.kernel"]
    assert.same({{size = 8, name = "embed", axes = "whole", rule = 3}, {size = 16, name = "hidden",
      axes = "model",
      rule = 2}}, up.dims)
    assert.equal(8 * 16 * 4, up.bytes)
    assert.equal(8 * 8 * 4, up.part)
    assert.equal('P(nil, "model")', tostring(up.spec))
    assert.equal(4, by_path["norm.scale"].rule)
    local whole = 2 * (8 * 16 + 16 + 16 * 8 + 8) * 4 + 2 * 8 * 4
    local part = 2 * (8 * 8 + 8 + 8 * 8 + 8) * 4 + 2 * 8 * 4
    assert.equal(whole, report.bytes)
    assert.equal(part, report.part)
    helper.close((2 * 8 + 2 * 8) * 4 / whole, report.replicated, 1e-12)
    assert.same({"data"}, report.unused_axes)
    assert.same({1}, report.unused_rules)
  end)

  it("prints this", function()
    assert.equal([[
10 Params on Mesh(data=4, model=2): dim -> rule -> mesh axis
    2 x h.*.down.bias    float32[8]           64 B of 64 B
          embed -> rule 3 -> whole
    2 x h.*.down.kernel  float32[16,8]       512 B of 1.00 KiB
          hidden -> rule 2 -> model; embed -> rule 3 -> whole
    2 x h.*.up.bias      float32[16]          64 B of 128 B
          hidden -> rule 2 -> model
    2 x h.*.up.kernel    float32[8,16]       512 B of 1.00 KiB
          embed -> rule 3 -> whole; hidden -> rule 2 -> model
    1 x norm.bias        float32[8]           32 B of 32 B
          rule 4, {"norm", P()}: P()
    1 x norm.scale       float32[8]           32 B of 32 B
          rule 4, {"norm", P()}: P()
each device holds 1.19 KiB of 2.25 KiB (52.8%); 5.56% of the bytes lie on every device
mesh axes without use: data
rule 1, {"batch", "data"}, gives no Param its layout]], tostring(ml.explain_rules(rules, model_of(), mesh)))
  end)

  it("says first what is not as the rules read", function()
    local function findings(list)
      local model = ml.init(function(rngs)
        return {up = nn.Linear(6, 16, {axes = {"embed", "hidden"}, rngs = rngs, use_bias = false})}
      end, {mesh = mesh, rules = list})
      return ml.explain_rules(list, model, mesh).findings
    end
    local rest = {{"embed", false}, {"hidden", false}}
    local function with(...) return {..., rest[1], rest[2]} end
    assert.same({}, findings(with {"hidden", "model"}))
    assert.same({'rule 1, {opt = {"kernal", P("data")}}, matches no Param: there is up.kernel'},
      findings(with {opt = {"kernal", P("data")}}))
    assert.same({'rule 2, {"up", P("data")}, is never reached: rule 1 comes first for up.kernel'},
      findings {{"kernel", P()}, {"up", P("data")}, rest[1], rest[2]})
    assert.same({"dim 1 of up.kernel, 6, stays whole: mesh axis data, where rule 1 puts it, does not "
      .. "divide it"},
      findings(with {"embed", "data", uneven = "replicate"}))
    assert.same({"rule 2, {\"hidden\", \"model\"}, is not used for dim 2 of up.kernel: 'embed' already uses "
      .. "mesh axis 'model' in this tensor"}, findings {{"embed", "model"}, {"hidden", "model"}, {"hidden",
        false}})
  end)

  it("raises where the rules do, and for what is no rule set, module or mesh", function()
    local model = model_of()
    helper.raises("[E_SPEC] h.1.down.bias: no rule for the logical axis 'embed'", ml.explain_rules,
      {{"hidden", "model"}}, model, mesh)
    helper.raises("[E_VALUE] rules: expected a list", ml.explain_rules, 1, model, mesh)
    helper.raises("[E_VALUE] explain_rules: expected a module", ml.explain_rules, rules, nil, mesh)
    helper.raises("[E_MESH] explain_rules: expected a mesh", ml.explain_rules, rules, model)
  end)
end)
