-- initializers_spec.lua: equal keys give the numbers of jax.nn.initializers.
local ml = require "meshlua"
local helper = require "spec.helper"
local oracle = require "spec.oracle"

local init = ml.nn.initializers
local expected = oracle.read "nn".initializers

-- Name in the oracle -> initialiser and shape.
local rows = {
  uniform = {init.uniform(), {4, 6}},
  uniform_3 = {init.uniform(3.0), {4, 6}},
  normal = {init.normal(), {4, 6}},
  normal_002 = {init.normal(0.02), {4, 6}},
  truncated_normal = {init.truncated_normal(), {4, 6}},
  truncated_normal_wide = {init.truncated_normal(0.5, -1.0, 3.0), {4, 6}},
  lecun_normal = {init.lecun_normal(), {4, 6}},
  lecun_uniform = {init.lecun_uniform(), {4, 6}},
  he_normal = {init.he_normal(), {4, 6}},
  he_uniform = {init.he_uniform(), {4, 6}},
  xavier_normal = {init.xavier_normal(), {4, 6}},
  xavier_uniform = {init.xavier_uniform(), {4, 6}},
  geometric = {init.variance_scaling(0.7, "fan_geo_avg", "normal"), {4, 6}},
  fan_out = {init.variance_scaling(2.0, "fan_out", "truncated_normal"), {4, 6}},
  receptive_field = {init.lecun_normal(), {3, 2, 4}},
  axes = {init.variance_scaling(1.0, "fan_in", "normal", {in_axis = {1, 2}, out_axis = 3}), {2, 3, 4}},
  embedding = {init.variance_scaling(1.0, "fan_in", "normal", {out_axis = 1}), {6, 4}},
}

-- Uniform draws are promised bit for bit, normal ones within 2 ulp; of float64, XLA's own erf_inv is a
-- polynomial some ulp off.
local farthest = {float32 = 2, bfloat16 = 1, float64 = 32}

describe("initializers", function()
  for _, dtype in ipairs {"float32", "float64", "bfloat16"} do
    for name, numbers in pairs(expected[dtype]) do
      it(name .. " in " .. dtype, function()
        assert.is_table(rows[name])
        local fn, shape = rows[name][1], rows[name][2]
        local made = fn(ml.random.key(42), shape, dtype)
        assert.equal(dtype, made.dtype)
        assert.same(shape, made.shape)
        local bound = name:find "uniform" and 0 or farthest[dtype]
        local apart = oracle.ulps(numbers, made)
        assert(apart <= bound, ("%d ulp apart"):format(apart))
      end)
    end
  end

  it("zeros, ones and constant need no key", function()
    assert.same({{0, 0}, {0, 0}}, init.zeros(nil, {2, 2}):totable())
    assert.same({1, 1}, init.ones(nil, {2}, "float64"):totable())
    assert.same({2.5, 2.5}, init.constant(2.5)(nil, {2}):totable())
  end)

  it("other names", function()
    local key = ml.random.key(1)
    helper.close(init.xavier_normal()(key, {3, 3}), init.glorot_normal()(key, {3, 3}))
    helper.close(init.he_uniform()(key, {3, 3}), init.kaiming_uniform()(key, {3, 3}))
  end)

  it("draw nothing in ml.init on devices that are not there, and whatever is planned elsewhere", function()
    local out, err, code = helper.run {"--devices=fake:h200:1", "-e", [[
      local ml, lib = require "meshlua", require "meshlua.lib"
      local function make(rngs) return ml.nn.Linear(4, 4, {rngs = rngs}) end
      assert(not pcall(ml.init, function(rngs) make(rngs) error "no" end) and lib.no_values == nil)
      local seen
      local model = ml.init(function(rngs) seen = lib.no_values return make(rngs) end)
      local draws = 0
      for _, s in ipairs(ml.jit(function(key) return ml.nn.initializers.normal()(key, {8}) end):plan(
        ml.random.key(0)):steps()) do
        for _, op in ipairs(#s.ops > 0 and s.ops or {s.op}) do draws = draws + (op:find "bits" and 1 or 0) end
      end
      print(seen, lib.no_values, model.kernel.shape[2], draws)]]}
    assert.equal(0, code, err)
    assert.equal("true\tnil\t4\t1\n", out)
  end)

  it("refuses what it cannot do", function()
    helper.raises("E_VALUE", init.variance_scaling, 1.0, "fan_inn", "normal")
    helper.raises("E_VALUE", init.variance_scaling, 1.0, "fan_in", "gauss")
    helper.raises("E_SHAPE", init.lecun_normal(), ml.random.key(0), {4})
    helper.raises("E_KEY", init.lecun_normal, {in_axes = 1})
    helper.raises("E_VALUE", init.normal, "wide")
  end)
end)
