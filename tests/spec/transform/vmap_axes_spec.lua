-- devices: 8
-- vmap_axes_spec.lua: collectives over the examples of a vmap with an axis_name, against JAX
-- (tests/oracle/vmap_axes.py): values, gradients inside and outside of the vmap, tangents.
local helper = require "spec.helper"
local json = require "dkjson"
local ml = require "meshlua"

local jax
do
  local file <close> = assert(io.open("tests/oracle/vmap_axes.json"))
  jax = assert(json.decode(file:read "a"))
end

local x = ml.arange(16.0):astype "float64":sin():reshape(4, 4)

local function outer(a, b) return a:reshape(-1, 1) * b:reshape(1, -1) end
local function named(f) return ml.vmap(f, {axis_name = "i"}) end

local programs = {
  psum = function(v) return ml.psum(v, "i") * v end,
  psum_same = function(v) return ml.psum(2.0, "i") + v end,
  norm = function(v)
    local m = ml.pmean(v, "i")
    return (v - m) / (ml.pmean((v - m) ^ 2, {"i"}) + 1e-5):sqrt()
  end,
  pmax = function(v) return ml.pmax(v, "i") - ml.pmin(v, "i") + v end,
  all_gather = function(v) return ml.all_gather(v, "i", {axis = 2}) * v:reshape(-1, 1) end,
  all_gather_tiled = function(v) return ml.all_gather(v, "i", {tiled = true}) * v:at(1) end,
  psum_scatter = function(v) return ml.psum_scatter(outer(v, v), "i") end,
  psum_scatter_tiled = function(v)
    return ml.psum_scatter(outer(v, v), "i", {scatter_dimension = 2, tiled = true})
  end,
  all_to_all = function(v) return ml.all_to_all(outer(v, v), "i", 2, 1) end,
  all_to_all_tiled = function(v) return ml.all_to_all(outer(v, v), "i", 2, 1, {tiled = true}) end,
  ppermute = function(v) return ml.ppermute(v * v, "i", {{0, 1}, {1, 3}, {3, 2}, {2, 0}}) + v end,
  axis_index = function(v) return v * ml.axis_index("i") + ml.axis_size("i") end,
  looped = function(v)
    local c, ys = ml.scan(function(c)
      c = (c + ml.pmean(c, "i") * v):tanh()
      return c, ml.psum(c, "i")
    end, v, nil, {length = 3})
    return c + ys:sum(1)
  end,
  branched = function(v)
    return ml.cond(ml.axis_index("i"):gt(1), function(a) return a * 2 end, function(a) return a * a end,
      ml.psum(v, "i"))
  end,
}

local function check(expected, actual, what)
  assert.same(expected.shape, actual.shape, what)
  local flat = actual:reshape(actual.size):totable()
  for i, e in ipairs(expected.values) do
    if not (math.abs(e - flat[i]) <= 1e-10 * math.max(1, math.abs(e))) then
      error(("%s[%d]: JAX has %.12g, this %.12g"):format(what, i, e, flat[i]), 2)
    end
  end
end

describe("over the examples of a vmap:", function()
  for name, f in pairs(programs) do
    it(name, function()
      local case = jax[name]
      local function one(v)
        local y = f(v)
        return (y * ml.arange(y.size * 1.0):astype "float64":cos():reshape(y.shape)):sum()
      end
      for _, how in ipairs {function(g) return g end, ml.jit} do
        check(case.y, how(named(f))(x), "y")
        if case.inside then
          check(case.inside, how(named(ml.grad(one)))(x), "gradient inside")
          check(case.outside, how(ml.grad(function(v) return named(one)(v):sum() end))(x), "gradient outside")
          local _, tangent = how(function(v) return ml.jvp(named(f), {v}, {v * v}) end)(x)
          check(case.tangent, tangent, "tangent")
        end
      end
    end)
  end

  it("of nested vmaps", function()
    local f = named(ml.vmap(function(v)
      return ml.psum(v, "i") * ml.pmean(v, "j") + v * ml.axis_index("j")
    end, {axis_name = "j"}))
    check(jax.nested.y, f(x), "nested")
    check(jax.nested.y, ml.vmap(ml.vmap(function(v)
      return ml.psum(v, "i") * ml.pmean(v, "j") + v * ml.axis_index("j")
    end, {axis_name = "j"}), {axis_name = "i"})(x), "nested")
  end)

  it("on a mesh, where examples are split, and trees", function()
    local mesh = ml.make_mesh({4, 2}, {"a", "b"})
    local function f(t) return {ml.pmean(t, "i"), t.p * ml.psum(t.p, "i")} end
    local whole = named(f) {p = x}
    for _, spec in ipairs {ml.P("a"), ml.P(nil, "b"), ml.P("a", "b")} do
      local there = ml.device_put(x, ml.NamedSharding(mesh, spec))
      local y = ml.jit(function(v) return named(f) {p = v} end)(there)
      helper.close(whole[1].p:totable(), y[1].p:totable(), 1e-12)
      helper.close(whole[2]:totable(), y[2]:totable(), 1e-12)
    end
  end)

  it("beside collectives of devices", function()
    local mesh = ml.make_mesh({4, 2}, {"d", "e"})
    local y = ml.shard_map(named(function(v) return ml.psum(ml.psum(v, "i"), "d") * v end),
      {mesh = mesh, in_specs = {ml.P(nil, "d")}, out_specs = ml.P(nil, "d")})(x)
    helper.close((x * x:sum()):totable(), y:totable(), 1e-12)
  end)

  it("who is no destination of a ppermute gets zeros", function()
    local y = named(function(v) return ml.ppermute(v, "i", {{0, 2}}) end)(x)
    local none = {0.0, 0.0, 0.0, 0.0}
    assert.same({none, none, x:at(1):totable(), none}, y:totable())
  end)

  it("what does not depend on the example is computed once", function()
    local y = ml.vmap(function(v) return ml.pmean(v * v, "i") end, {axis_name = "i", out_axes = false})(x)
    helper.close((x * x):mean(1):totable(), y:totable(), 1e-12)
  end)

  it("says what is wrong", function()
    local raises = helper.raises
    raises("[E_STATE] psum: mesh axis 'k' is not bound here; collectives are called in the function that "
      .. "shard_map or pmap runs, or vmap with an axis_name; here these are 'i'",
      named(function(v) return ml.psum(v, "k") end), x)
    raises("[E_STATE] psum: mesh axis 'i' is not bound here", ml.psum, x, "i")
    raises("[E_VALUE] vmap: axis_name 'i' is that of a vmap around this one; give it another",
      named(function(v) return named(function(s) return s end)(v) end), x)
    raises("[E_STATE] psum: mesh axis 'i' is not bound here", ml.psum, x, "i") -- also after an error
    raises("[E_UNSUPPORTED] psum: 'i' is the name of a vmap; it stands alone, so call psum for each of 'i', "
      .. "'d'", named(function(v) return ml.psum(v, {"i", "d"}) end), x)
    raises("[E_SHAPE] all_to_all: dim 1 of float64[4] must have the size of 'i', 3",
      named(function(v) return ml.all_to_all(v, "i", 1, 1) end), x:slice {1, 3})
    local kept
    named(function(v)
      kept = ml.psum(v, "i")
      return v
    end)(x)
    raises("[E_TRACED]", function() return kept + 1 end)
  end)
end)
