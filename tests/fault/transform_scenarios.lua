-- transform_scenarios.lua: uses of the transforms, with loops and branches under them; the others are in
-- scenarios.lua.
local helper = require "spec.helper"
local ml = require "meshlua"

local P, NamedSharding = ml.P, ml.NamedSharding

local M = {}

local function add(name, scenario)
  scenario.name = name
  M[#M + 1] = scenario
end

local mesh = ml.make_mesh({4, 2}, {"data", "model"})
local line = ml.make_mesh({8}, {"all"})

add("the blocks of a value in shard_map, and what it is counted at", {
  make = function()
    return {x = ml.device_put(ml.arange(16.0):reshape {8, 2}, NamedSharding(line, P("all"))),
      step = ml.jit(function(x)
        return ml.shard_map(function(b) return ml.psum(b:sum(), "all") end,
          {mesh = line, in_specs = {P("all")}, out_specs = P()})(x)
      end)}
  end,
  run = function(s)
    local program <close> = s.step:program(s.x)
    assert(ml.core.product_rate "float32" > 0 and ml.core.device_memory() ~= false)
    for _, node in ipairs(program:nodes()) do
      if node.op == "all_reduce" then
        return program:run({program:blocks(node.inputs[1])}, {s.x})[1]
      end
    end
  end,
  check = function(_, y) assert(y.shape[1] == 8) end,
})

add("loops and branches, and their gradients", {
  make = function()
    return {xs = ml.device_put(ml.ones {2, 4, 2}, NamedSharding(mesh, P(nil, "data")))}
  end,
  run = function(s)
    return ml.value_and_grad(function(xs)
      local c, ys = ml.scan(function(c, x)
        return ml.cond(c:sum():gt(3.0), function(v) return v * x end, function(v) return v + x end, c), c * x
      end, ml.ones {4, 2}, xs)
      local n = ml.while_loop(function(v) return v:lt(3) end, function(v) return v + 1 end, 0)
      return (c * ys):sum() * n:astype("float32")
    end)(s.xs)
  end,
})

add("remat", {
  run = function()
    local policies = ml.remat_policies
    local keep = policies.save_from_both_policies(policies.save_only_these_names("a", "b"),
      policies.dots_with_no_batch_dims_saveable)
    local inner = ml.remat(function(x) return ml.checkpoint_name(x:matmul(x):sin(), "a"):sin() end,
      {policy = keep})
    return ml.grad(ml.remat(function(x) return inner(x):sum() end))(ml.ones {2, 2})
  end,
})

add("vmap", {
  make = function() return {x = ml.arange(12.0):reshape {3, 4}, b = helper.param(ml.ones {3, 4})} end,
  run = function(s)
    local ids = ml.tensor {{0, 1}, {2, 3}, {1, 1}}
    local function picked(a, i) return (a * s.x:at(1)):take(i):sin():sum() end
    local function pair(a, b) return {a:matmul(b), ml.ones {2}} end
    return {ml.vmap(ml.grad(picked))(s.x, ids),
      ml.vmap(pair, {in_axes = {2, false}, out_axes = {{-1, 1}}})(s.x, s.b),
      ml.vmap(function(a) return ml.psum(a, "i") * a end, {axis_name = "i"})(s.x),
      ml.vmap(function(a) return a * 2 end, {spmd_axis = "data"})(s.b)}
  end,
})

add("custom_vjp", {
  run = function()
    local f = ml.custom_vjp(function(t) return {t.a * 2, t.b} end, {
      fwd = function(t) return {t.a * 2, t.b}, t.a:exp() end,
      bwd = function(r, ct) return {a = ct[1] * r} end,
    })
    local function total(a) return (f {a = a:sin(), b = ml.tensor {1, 2}})[1]:sum() end
    return {ml.grad(ml.remat(total))(ml.ones {2}), ml.vmap(ml.grad(total))(ml.ones {3, 2})}
  end,
})

add("a pipeline", {
  make = function() return {layers = {{w = helper.param(ml.ones {2})}}} end,
  run = function(s)
    return {ml.jit(function(x)
      return (ml.nn.pipeline(s.layers, x, {microbatches = 2,
        body = function(layer, y) return y * layer.w end, last = function(y) return y:sum() end}))
    end)(ml.ones {2, 2})}
  end,
})

add("jvp and custom_jvp", {
  run = function()
    local f = ml.custom_jvp(function(t) return {t.a * 2, t.b} end, {
      jvp = function(p, d) return {p[1].a * 2, p[1].b}, {d[1].a * p[1].a} end,
    })
    local function total(a)
      local c = ml.fori_loop(0, 2, function(_, v) return f {a = v:softmax(), b = ml.tensor {1, 2}}[1] end, a)
      return ml.cond(c:sum():gt(0), function(v) return v:max() end, function(v) return v:sum() end, c)
    end
    local x = ml.ones {2}
    local _, slope = ml.jvp(ml.remat(total), {x}, {x})
    return {slope, ml.hvp(total, {x}, {x})}
  end,
})

add("effects and scopes", {
  run = function()
    local seen = {}
    local function note(x, i) seen[i] = x:totable() end
    local step = ml.jit(function(x)
      return ml.named_scope("a", function()
        ml.debug_callback(note, x:sum(), 1)
        return ml.named_scope("b", ml.vmap(function(row)
          ml.debug_callback(note, row, 2)
          return row
        end), x)
      end)
    end)
    step(ml.ones {2, 3})
    ml.grad(function(x)
      ml.debug_callback(note, x, 3)
      return x:sum()
    end)(ml.ones {2})
    ml.jit(ml.shard_map(function(b)
      ml.debug_callback(note, b, 4)
      return b
    end, {mesh = line, in_specs = {P "all"}, out_specs = P "all"}))(ml.arange(8.0))
    return seen
  end,
  check = function(_, r) assert(r[1] == 6 and r[2][3] == 1 and r[3][1] == 1 and r[4][1] == 7) end,
})

add("loops and branches on many examples", {
  make = function() return {x = ml.arange(12.0):reshape {3, 4} / 12} end,
  run = function(s)
    local function loop(x) return (ml.scan(function(c, v) return c * 0.5 + v:sin(), c end, x:sum(), x)) end
    local function count(x)
      local function more(c) return c + x:sum() + 0.5 end
      return ml.while_loop(function(c) return c:lt(3.0) end, more, x:max())
    end
    local function pick(x) return ml.cond(x:sum():gt(1.0), function(a) return a * 2 end, ml.sin, x) end
    return {ml.vmap(ml.grad(loop))(s.x), ml.vmap(count)(s.x), ml.vmap(pick)(s.x)}
  end,
})

add("a loop that goes on for longer on some devices than on others", {
  make = function() return {x = ml.device_put(ml.arange(8.0), NamedSharding(line, P "all"))} end,
  run = function(s)
    return ml.jit(ml.shard_map(function(b)
      return ml.while_loop(function(c) return c:sum():lt(9.0) end, function(c) return c * 2 + 1 end, b)
    end, {mesh = line, in_specs = {P "all"}, out_specs = P "all"}))(s.x)
  end,
})

local fresh = 0
add("layouts that nobody named before", {
  grows = true,
  run = function()
    fresh = fresh + 1
    return tostring(P("new" .. fresh, nil, {"newer" .. fresh, "newest" .. fresh},
      {unreduced = {"other" .. fresh}}))
  end,
})

return M
