-- devices: 8
-- custom_vjp_spec.lua: gradients that the user gives, under every other transform. C2 is the number in the checklist
-- of JAX's semantics.
local helper = require "spec.helper"
local ml = require "meshlua"

local P, NamedSharding = ml.P, ml.NamedSharding

--- x with a gradient `scale` times as large; counts how often bwd was traced.
local function scaled(scale)
  local calls = {bwd = 0}
  local f = ml.custom_vjp(function(x) return x * 1 end, {
    fwd = function(x) return x * 1, nil end,
    bwd = function(_, ct)
      calls.bwd = calls.bwd + 1
      return ct * scale
    end,
  })
  return f, calls
end

--- floor with the gradient of the identity.
local straight = ml.custom_vjp(function(x) return x:floor() end,
  {fwd = function(x) return x:floor() end, bwd = function(_, ct) return ct end})

--- log(1 + e^x), whose own rule is exact where the derivative of the formula is not a number.
local softplus = ml.custom_vjp(function(x) return (x:exp() + 1):log() end, {
  fwd = function(x) return (x:exp() + 1):log(), x end,
  bwd = function(x, ct) return ct * x:sigmoid() end,
})

describe("custom_vjp: C2:", function()
  local x = ml.tensor {0.5, -1.25, 3.0}

  it("the gradient is what bwd says, the value what the function says", function()
    local f = scaled(3)
    local y, g = ml.value_and_grad(function(a) return f(a:sin()):sum() end)(x)
    assert.equal(x:sin():sum():item(), y:item())
    helper.close(x:cos() * 3, g, 1e-6)
    assert.same({1.0, 1.0, 1.0}, ml.grad(function(a) return straight(a):sum() end)(x):totable())
    helper.close(x:sigmoid(), ml.grad(function(a) return softplus(a):sum() end)(x), 1e-6)
    assert.same({1.0}, ml.grad(function(a) return softplus(a):sum() end)(ml.tensor {1000.0}):totable())
  end)

  it("without a gradient nothing of it runs", function()
    local f = ml.custom_vjp(function(a) return a:sin() end, {
      fwd = function(a) return a:sin(), a:exp():tanh() end,
      bwd = function(r, ct) return ct * r:erf() end})
    local step = ml.jit(function(a) return f(a) end)
    assert.equal(x:sin():bytes(), step(x):bytes())
    local text = {}
    for _, s in ipairs(step:plan(x):steps()) do text[#text + 1] = s.op .. " " .. table.concat(s.ops, " ") end
    assert.falsy(table.concat(text, " "):find "exp" or table.concat(text, " "):find "erf")
  end)

  it("trees of arguments and results, and what has no cotangent", function()
    local f = ml.custom_vjp(function(t, n) return {a = t.x * t.y, b = t.x + n} end, {
      fwd = function(t, n) return {a = t.x * t.y, b = t.x + n}, t end,
      bwd = function(t, ct) return {x = ct.a * t.y + ct.b * 10} end,
    })
    local function total(t)
      local out = f(t, 2.0)
      return (out.a + out.b * out.b):sum()
    end
    local t = {x = x, y = ml.tensor {1.0, 2.0, 3.0}}
    local g = ml.grad(total)(t)
    helper.close(t.y + (x + 2) * 20, g.x, 1e-5)
    assert.same({0.0, 0.0, 0.0}, g.y:totable())
  end)

  it("nondiff arguments go to bwd first", function()
    local f = ml.custom_vjp(function(fn, a, n) return fn(a) * n end, {nondiff = {1, 3},
      fwd = function(fn, a, n) return fn(a) * n, a end,
      bwd = function(fn, n, a, ct) return ct * fn(a) * n * 7 end})
    local g = ml.grad(function(a) return f(ml.cos, a, 2):sum() end)(x)
    helper.close(x:cos() * 14, g, 1e-6)
  end)

  it("integers among arguments and results", function()
    local f = ml.custom_vjp(function(a, i) return {a:take(i), i} end, {
      fwd = function(a, i) return {a:take(i), i}, {a, i} end,
      bwd = function(r, ct)
        assert.equal(nil, ct[2])
        return ml.scatter_add(r[2], ct[1], r[1].shape[1]) * 2
      end,
    })
    local g = ml.grad(function(a) return f(a, ml.tensor {2, 0, 2})[1]:sum() end)(x)
    assert.same({2.0, 0.0, 4.0}, g:totable())
  end)

  it("an argument given twice, results of which one is used, and two calls", function()
    local f = ml.custom_vjp(function(a, b) return {a * b, a - b} end, {
      fwd = function(a, b) return {a * b, a - b}, {a, b} end,
      bwd = function(r, ct) return ct[1] * r[2] + ct[2], ct[1] * r[1] - ct[2] end,
    })
    helper.close(x * 2, ml.grad(function(a) return f(a, a)[1]:sum() end)(x), 1e-6)
    helper.close(ml.ones {3}, ml.grad(function(a) return f(a, x)[2]:sum() end)(x), 1e-6)
    helper.close(x * x * 3, ml.grad(function(a) return f(f(a, a)[1], a)[1]:sum() end)(x), 1e-6)
  end)
end)

describe("custom_vjp with other transforms: C2:", function()
  it("in loops and branches, also of many examples", function()
    local function branch(a)
      return ml.cond(a:sum():gt(0), function(v) return straight(v) end, function(v) return v * 2 end, a):sum()
    end
    local function loop(a) return ml.fori_loop(0, 3, function(_, c) return straight(c) * c end, a):sum() end
    local rows = ml.tensor {{0.5, 1.5}, {2.25, -3.5}}
    assert.same({1.0, 1.0}, ml.grad(branch)(rows:at(1)):totable())
    assert.same({{1.0, 1.0}, {2.0, 2.0}}, ml.vmap(ml.grad(branch))(rows):totable())
    local each = ml.stack({ml.grad(loop)(rows:at(1)), ml.grad(loop)(rows:at(2))}, 1)
    assert.same({0.0, 8.0}, ml.grad(loop)(ml.tensor {0.25, 1.0}):totable()) -- of c + floor(c), three times
    assert.same(each:totable(), ml.vmap(ml.grad(loop))(rows):totable())
    assert.same(each:totable(), ml.grad(function(a) return ml.vmap(loop)(a):sum() end)(rows):totable())
  end)

  local x = (ml.arange(12.0) / 5 - 1):reshape(4, 3)
  local function total(f) return function(a) return (f(a * 2) * a):sum() end end

  it("jit, and one trace for many calls", function()
    local f, calls = scaled(3)
    local step = ml.jit(ml.grad(total(f)))
    helper.close(x * 2 + x * 6, step(x), 1e-6)
    helper.close(x * 8, step(x), 1e-6)
    assert.equal(1, calls.bwd)
  end)

  it("vmap inside and outside of the gradient", function()
    for _, f in ipairs {straight, softplus, (scaled(5))} do
      local want = ml.grad(total(f))(x)
      helper.close(want, ml.grad(function(a)
        return ml.vmap(function(row) return (f(row * 2) * row):sum() end)(a):sum()
      end)(x), 1e-6)
      helper.close(want, ml.vmap(ml.grad(total(f)))(x), 1e-6)
      helper.close(want, ml.jit(ml.grad(function(a) return (ml.vmap(f)(a * 2) * a):sum() end))(x), 1e-6)
    end
  end)

  it("vmap: cotangents of what the examples share add up", function()
    local f = ml.custom_vjp(function(a, w) return a * w end, {
      fwd = function(a, w) return a * w, {a, w} end,
      bwd = function(r, ct) return ct * r[2], ct * r[1] * 10 end,
    })
    local w = ml.tensor {1.0, 2.0, 3.0}
    local g = ml.grad(function(v)
      return ml.vmap(function(row) return f(row, v):sum() end)(x):sum()
    end)(w)
    helper.close(x:sum(1) * 10, g, 1e-5)
    local constant = ml.custom_vjp(function(a, v) return a + v end, {
      fwd = function(a, v) return a + v, nil end,
      bwd = function() return nil, ml.ones {3} end,
    })
    g = ml.grad(function(v) return ml.vmap(function(row) return constant(row, v):sum() end)(x):sum() end)(w)
    assert.same({4.0, 4.0, 4.0}, g:totable())
  end)

  it("remat: residuals are computed again, the rule stays", function()
    for _, f in ipairs {straight, softplus} do
      local function deep(a) return f(f(a:sin()) * 3):cos() end
      local want = ml.grad(function(a) return deep(a):sum() end)(x)
      helper.close(want, ml.grad(function(a) return ml.remat(deep)(a):sum() end)(x))
      local rows = ml.vmap(ml.grad(function(a) return ml.remat(deep)(a):sum() end))
      helper.close(want, ml.jit(rows)(x), 1e-6)
    end
  end)

  it("a second derivative goes through fwd and bwd", function()
    local f = ml.custom_vjp(function(a) return a * a * a end, {
      fwd = function(a) return a * a * a, a * a end,
      bwd = function(r, ct) return ct * r * 3 end,
    })
    local function slope(a) return ml.grad(function(b) return f(b):sum() end)(a) end
    helper.close(x * x * 3, slope(x), 1e-6)
    helper.close(x * 6, ml.grad(function(a) return slope(a):sum() end)(x), 1e-6)
  end)

  it("one inside another", function()
    local inner = scaled(3)
    local outer = ml.custom_vjp(function(a) return inner(a):sin() end, {
      fwd = function(a) return inner(a):sin(), a end,
      bwd = function(a, ct) return ct * ml.grad(function(b) return inner(b):sum() end)(a) end,
    })
    assert.same({3.0, 3.0}, ml.grad(function(a) return outer(a):sum() end)(ml.ones {2}):totable())
  end)

  it("sharding: values and gradients as on one device", function()
    local mesh = ml.make_mesh({4, 2}, {"data", "model"})
    local f = ml.custom_vjp(function(a, w) return a:matmul(w) end, {
      fwd = function(a, w) return a:matmul(w), {a, w} end,
      bwd = function(r, ct) return ct:matmul(r[2]:transpose()) * 2, r[1]:transpose():matmul(ct) * 2 end,
    })
    local a, w = ml.random.normal(ml.random.key(1), {8, 4}), ml.random.normal(ml.random.key(2), {4, 6})
    local step = ml.jit(ml.value_and_grad(function(p, q) return f(p, q):tanh():sum() end, {argnums = {1, 2}}))
    local l1, g1 = step(a, w)
    local l2, g2 = step(ml.device_put(a, NamedSharding(mesh, P("data"))),
      ml.device_put(w, NamedSharding(mesh, P(nil, "model"))))
    helper.close(l1, l2, 1e-6)
    for i = 1, 2 do helper.close(g1[i], g2[i], 1e-6) end
    local block = ml.shard_map(function(v) return straight(v) end, {mesh = mesh, in_specs = {P("data")},
      out_specs = P("data")})
    assert.same(ml.ones({8, 4}):totable(), ml.grad(function(v) return block(v):sum() end)(a):totable())
  end)
end)

describe("custom_vjp refuses: C2:", function()
  local x = ml.ones {3}
  local function twice(a) return a * 2 end

  local function gradient(options, fn)
    return function()
      return ml.grad(function(a) return ml.custom_vjp(fn or twice, options)(a):sum() end)(x)
    end
  end

  it("cotangents of another type than the argument's", function()
    helper.raises("[E_GRAD] custom_vjp: bwd gives float32[] for argument 1, which is float32[3]; a cotangent "
      .. "has its type", gradient {fwd = function(a) return a * 2, 0 end,
        bwd = function(_, ct) return ct:sum() end})
    helper.raises("[E_GRAD] custom_vjp: bwd gives a number for argument 1", gradient {
      fwd = function(a) return a * 2, 0 end, bwd = function() return 1 end})
    helper.raises("[E_GRAD] custom_vjp: bwd returned 2 values for 1 argument", gradient {
      fwd = function(a) return a * 2, 0 end, bwd = function(_, ct) return ct, ct end})
    helper.raises("[E_GRAD] custom_vjp: bwd gives something for argument 1.v, which does not", function()
      local f = ml.custom_vjp(function(t) return t.w * 2 end, {fwd = function(t) return t.w * 2, 0 end,
        bwd = function(_, ct) return {v = ct} end})
      return ml.grad(function(t) return f(t):sum() end)({w = x})
    end)
    helper.raises("[E_GRAD] custom_vjp: bwd gives a cotangent for argument 2, which is int32[3]; it must",
      function()
        local f = ml.custom_vjp(function(a, i) return a * i end, {fwd = function(a, i) return a * i, 0 end,
          bwd = function(_, ct) return ct, ml.zeros({3}, "int32") end})
        return ml.grad(function(a) return f(a, ml.arange(3)):sum() end)(x)
      end)
  end)

  it("a fwd that returns something else than the function", function()
    helper.raises("[E_GRAD] custom_vjp: fwd's first result has float32[] at the result where the function's "
      .. "has float32[3] at the result", gradient {fwd = function(a) return a:sum(), 0 end,
        bwd = function() end})
    helper.raises("[E_GRAD] custom_vjp: fwd's first result has nothing", gradient {fwd = function() end,
      bwd = function() end})
    helper.raises("[E_GRAD] custom_vjp: the function returned 2 values; it must return one",
      gradient({fwd = twice, bwd = twice}, function(a) return a, a end))
    helper.raises("[E_GRAD] custom_vjp: the function returned a string",
      gradient({fwd = twice, bwd = twice}, function() return "x" end))
  end)

  it("a differentiated value from outside", function()
    local message = helper.raises("[E_GRAD] custom_vjp: the function uses a float32[3] from outside of it "
      .. "that is differentiated", function()
      return ml.grad(function(a)
        local f = ml.custom_vjp(function(b) return a * b end, {fwd = function(b) return a * b, 0 end,
          bwd = function(_, ct) return ct end})
        return f(a * 2):sum()
      end)(x)
    end)
    assert.truthy(message:find("pass it as an argument", 1, true))
  end)

  it("cotangents that outlive bwd, and Params that are written", function()
    local kept
    helper.raises("[E_TRACED]", ml.jit(function(a)
      ml.custom_vjp(twice, {fwd = function(b) return b * 2, 0 end, bwd = function(_, ct)
        kept = ct
        return ct
      end})(a)
      return kept * 2
    end), x)
    local box = helper.param(ml.ones {2})
    helper.raises("[E_STATE] a Param is written inside vmap or custom_vjp", ml.jit(function(b, a)
      return ml.custom_vjp(function(v)
        b:set(b * 2)
        return v * 2
      end, {fwd = twice, bwd = twice})(a)
    end), box, x)
  end)

  it("what is no function or position", function()
    helper.raises("[E_VALUE] custom_vjp: fwd: expected a function, got nil", ml.custom_vjp, twice)
    helper.raises("[E_VALUE] custom_vjp: bwd: expected a function, got a number", ml.custom_vjp, twice,
      {fwd = twice, bwd = 1})
    helper.raises("[E_VALUE] custom_vjp: argument 0; positions count from 1", ml.custom_vjp, twice,
      {fwd = twice, bwd = twice, nondiff = {0}})
  end)
end)
