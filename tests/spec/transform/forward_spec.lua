-- devices: 8
-- forward_spec.lua: jvp, linearize, Jacobians, Hessians and custom_jvp: against JAX (tests/oracle/forward.py), against
-- reverse mode, under every other transform. What each op's tangents are is in op/gradient_spec.lua.
local helper = require "spec.helper"
local json = require "dkjson"
local ml = require "meshlua"

local P, NamedSharding = ml.P, ml.NamedSharding

local jax
do
  local file <close> = assert(io.open("tests/oracle/forward.json"))
  jax = assert(json.decode(file:read "a"))
end

local function wide(...) return ml.tensor({...}, {dtype = "float64"}) end
local x, t = wide(0.3, -0.7, 1.2), wide(1.0, 2.0, -0.5)

local softplus = ml.custom_jvp(function(v) return (v:exp() + 1):log() end, {
  jvp = function(p, d) return (p[1]:exp() + 1):log(), d[1] * p[1]:sigmoid() * 2 end,
})

local function outer(a, b) return a:reshape(-1, 1) * b:reshape(1, -1) end

local function recurrent(v)
  local c, ys = ml.scan(function(c, s)
    c = (c * s):sin() + v:sum()
    return c, c * c
  end, v:sum(), v, {reverse = true})
  return ys + c
end

local programs = {
  mlp = function(v) return outer(v, v):matmul(v):tanh() * v end,
  softmax = function(v) return (v:sin() * v):softmax() * (v * v):exp() end,
  logsumexp = function(v) return ml.logsumexp(v * v) end,
  sort = function(v) return ml.flip(ml.sort(v), 1) * v end,
  cumprod = function(v) return ml.cumprod(v + 2, 1) / v end,
  max = function(v) return outer(v, v):max(2) + v:prod() end,
  recurrent = recurrent,
  fori = function(v)
    return ml.fori_loop(0, 4, function(i, w) return (w * v):sin() + v * i:astype "float64" end, v)
  end,
  cond = function(v)
    return ml.cond(v:sum():gt(0), function(w) return w:sin() * v end, function(w) return w end, v)
  end,
  nested = function(v)
    return ml.fori_loop(0, 3, function(i, w)
      return ml.cond(i:eq(1), function(a) return recurrent(a * 0.1) end, function(a) return a * v end, w)
    end, v)
  end,
  stopped = function(v) return ml.stop_gradient(v) * v:floor() * v end,
  custom = function(v) return softplus(v * 2) * v end,
  custom_in_loop = function(v) return ml.fori_loop(0, 3, function(_, w) return softplus(w) * v end, v) end,
  vmapped = function(v) return ml.vmap(function(s) return (s * v):sin() * softplus(s) end)(v):sum(1) end,
  gradient = ml.grad(function(v) return (v:exp() * (v * ml.flip(v, 1)):sin()):sum() end),
  ["while"] = function(v)
    return ml.while_loop(function(c) return (c.v:sum() + c.i:astype "float64"):lt(6) end,
      function(c) return {i = c.i + 1, v = (c.v * v):cos()} end, {i = 0, v = v}).v
  end,
}

local function weighted(f)
  return function(v)
    local y = f(v)
    return (y * ml.arange(y.size * 1.0):astype "float64":cos():reshape(y.shape)):sum()
  end
end

local function check(expected, actual, what)
  local flat = actual:reshape(actual.size):totable()
  assert.equal(#expected, #flat, what)
  for i, e in ipairs(expected) do
    if not (math.abs(e - flat[i]) <= 1e-12 * math.max(1, math.abs(e))) then
      error(("%s[%d]: JAX has %.17g, this %.17g"):format(what, i, e, flat[i]), 2)
    end
  end
end

describe("forward mode gives what JAX gives:", function()
  for name, f in pairs(programs) do
    it(name, function()
      local case = jax[name]
      for _, how in ipairs {function(fn) return fn end, ml.jit} do
        local y, dy = how(function(v, d) return ml.jvp(f, {v}, {d}) end)(x, t)
        check(case.y, y, "y")
        check(case.dy, dy, "dy")
        check(case.dy, how(function(v, d) return (select(2, ml.linearize(f, v)))(d) end)(x, t), "linear")
        check(case.jacobian, how(ml.jacfwd(f))(x), "jacfwd")
        if name ~= "while" then check(case.jacobian, how(ml.jacrev(f))(x), "jacrev") end
      end
      local scalar = weighted(f)
      check(case.hessian, ml.jacfwd(ml.jacfwd(scalar))(x), "forward over forward")
      if name ~= "while" then
        check(case.hessian, ml.hessian(scalar)(x), "hessian")
        check(case.hessian, ml.jacrev(ml.jacfwd(scalar))(x), "reverse over forward")
        local h = ml.hvp(scalar, {x}, {t})
        helper.close(ml.hessian(scalar)(x):matmul(t), h, 1e-12)
      end
    end)
  end
end)

describe("jvp", function()
  it("takes trees, and what is missing of a tangent is zero", function()
    local function f(model, ids, scale)
      return {a = model.w:take(ids) * scale:astype "float64", b = {model.w:sum() * model.c, ids + 1}}
    end
    local model, ids = {w = x, c = wide(2.0):sum()}, ml.tensor {2, 0}
    local y, dy = ml.jvp(f, {model, ids, 3.0}, {{w = t}, false, ml.tensor(1.0)})
    helper.close((t:take(ids) * 3 + x:take(ids)):totable(), dy.a:totable(), 1e-6)
    helper.close((t:sum() * 2):item(), dy.b[1]:item(), 1e-12)
    assert.is_nil(dy.b[2])
    assert.same({3, 1}, y.b[2]:totable())
  end)

  it("takes one tensor as two arguments, and refuses two tangents of one leaf", function()
    local _, dy = ml.jvp(function(a, b) return a * b end, {x, x}, {t, t * 2})
    helper.close((x * t * 3):totable(), dy:totable(), 1e-12)
    local box = helper.param(x)
    helper.raises("[E_GRAD] jvp: tangents[1].b and tangents[2] are two tangents of one leaf", ml.jvp,
      function(a, b) return a.b * b end, {{b = box}, box}, {{b = t}, t * 2})
    local _, shared = ml.jvp(function(a, b) return a.b * b end, {{b = box}, box}, {false, t})
    helper.close((x * t * 2):totable(), shared:totable(), 1e-12)
  end)

  it("gives back more with has_aux", function()
    local y, dy, n, text = ml.jvp(function(v) return v * v, v:sum(), "text" end, {x}, {t}, {has_aux = true})
    helper.close((x * x):totable(), y:totable(), 0)
    helper.close((x * t * 2):totable(), dy:totable(), 1e-12)
    helper.close(x:sum():item(), n:item(), 0)
    assert.equal("text", text)
  end)

  it("moves Params along", function()
    local nn = ml.nn
    local model = ml.init(function(rngs) return nn.Linear(3, 2, {rngs = rngs}) end)
    local grads = ml.grad(function(m) return m(ml.ones {4, 3}):square():sum() end)(model)
    local y, dy = ml.jvp(function(m) return m(ml.ones {4, 3}):square():sum() end, {model}, {grads})
    local total = 0.0
    for _, g in ipairs((ml.tree.leaves(grads))) do total = total + (g * g):sum():item() end
    assert.equal(0, dy.ndim)
    helper.close(total, dy:item(), 1e-4 * total)
    assert.is_true(y:item() > 0)
  end)

  it("works at most three times as much as the function", function()
    local function f(ws, v)
      for i = 1, 3 do v = v:matmul(ws[i]):tanh() end
      return (v * v):mean()
    end
    local w = ml.ones {64, 64}
    local ws, v = {w, w * 2, w * 3}, ml.ones {32, 64}
    local one = ml.jit(f):plan(ws, v):flops()
    local both = ml.jit(function(p, a) return ml.jvp(f, {p, a}, {p, a}) end):plan(ws, v):flops()
    assert.is_true(both <= 3.05 * one, both / one)
    local some = ml.jit(function(p, a) return ml.jvp(f, {p, a}, {false, a}) end):plan(ws, v):flops()
    assert.is_true(some <= 2 * one, some / one)
  end)

  it("keeps nothing of a loop's iterations", function()
    local function f(v) return ml.fori_loop(0, 1000, function(_, w) return (w * v):sin() end, v) end
    local v = ml.ones {1024}
    local forward = ml.jit(function(a) return select(2, ml.jvp(f, {a}, {a})) end):plan(v):memory()
    local reverse = ml.jit(ml.grad(function(a) return f(a):sum() end)):plan(v):memory()
    assert.is_true(forward.peak * 50 < reverse.peak, forward.peak .. " " .. reverse.peak)
  end)

  it("inside vmap, and vmap inside", function()
    local xs, ts = ml.stack({x, x * 2}, 1), ml.stack({t, t + 1}, 1)
    local both = select(2, ml.vmap(function(v, d) return ml.jvp(programs.nested, {v}, {d}) end)(xs, ts))
    for i = 1, 2 do
      local _, one = ml.jvp(programs.nested, {xs:at(i)}, {ts:at(i)})
      helper.close(one:totable(), both:at(i):totable(), 1e-12)
    end
    local _, inside = ml.jvp(ml.vmap(programs.custom), {xs}, {ts})
    local _, second = ml.jvp(programs.custom, {xs:at(2)}, {ts:at(2)})
    helper.close(second:totable(), inside:at(2):totable(), 1e-12)
  end)

  it("sees through remat", function()
    local f = ml.remat(programs.recurrent)
    check(jax.recurrent.dy, select(2, ml.jvp(f, {x}, {t})), "dy")
    check(jax.recurrent.hessian, ml.jacrev(ml.jacfwd(weighted(f)))(x), "hessian")
  end)

  it("gives on a mesh what it gives on one device, in each mode", function()
    local a, b = ml.random.normal(ml.random.key(1), {8, 16}), ml.random.normal(ml.random.key(2), {16, 8})
    local function f(p, q)
      local h = (p:matmul(q)):tanh()
      local _, ys = ml.scan(function(c, r) return c * r:sum() + 1, (r * c):softmax() end, h:mean(), h)
      return ys:matmul(h)
    end
    local y, dy = ml.jvp(f, {a, b}, {b:T(), a:T()})
    local h = ml.hessian(function(p) return f(p, b):square():sum() end)(a)
    for _, kind in ipairs {ml.Auto, ml.Explicit} do
      local mesh = ml.make_mesh({4, 2}, {"x", "y"}, {axis_types = {kind, kind}})
      local pa = ml.device_put(a, NamedSharding(mesh, P("x", nil)))
      local pb = ml.device_put(b, NamedSharding(mesh, P(nil, nil)))
      local ta = ml.device_put(b:T(), NamedSharding(mesh, P("x", nil)))
      local tb = ml.device_put(a:T(), NamedSharding(mesh, P(nil, nil)))
      local fn = kind == ml.Auto and f
        or function(p, q) return ml.reshard(p:matmul(q), P(nil, nil)):tanh() end
      local y1, dy1 = ml.jit(function(...) return ml.jvp(fn, {pa, pb}, {...}) end)(ta, tb)
      local want_y, want_dy = y, dy
      if fn ~= f then
        want_y, want_dy = ml.jvp(function(p, q) return p:matmul(q):tanh() end, {a, b}, {b:T(), a:T()})
      end
      helper.close(want_y:totable(), y1:totable(), 1e-5)
      helper.close(want_dy:totable(), dy1:totable(), 2e-4)
      if fn == f then
        local h1 = ml.jit(ml.hessian(function(p) return f(p, pb):square():sum() end))(pa)
        helper.close(h:totable(), h1:totable(), 2e-3)
      end
    end
  end)

  it("passes collectives in shard_map", function()
    local mesh = ml.make_mesh({8}, {"d"})
    local a = ml.random.normal(ml.random.key(3), {16})
    local function f(v)
      return ml.shard_map(function(p)
        local s = ml.psum((p * p):sum(), "d")
        return ml.all_gather(p:sin(), "d", {axis = 1, tiled = true}):sum() * p + s
      end, {mesh = mesh, in_specs = {P("d")}, out_specs = P("d")})(v)
    end
    local function whole(v) return v:sin():sum() * v + (v * v):sum() end
    local _, dy = ml.jvp(f, {a}, {a + 1})
    local _, expected = ml.jvp(whole, {a}, {a + 1})
    helper.close(expected:totable(), dy:totable(), 1e-4)
  end)

  it("says what is wrong", function()
    local function f(v) return v * 2 end
    local raises = helper.raises
    raises("[E_GRAD] jvp: tangents[1] is float64[2], primals[1] float64[3]; they must have one shape "
      .. "and dtype",
      ml.jvp, f, {x}, {wide(1.0, 2.0)})
    raises("[E_GRAD] jvp: tangents[1] is float32[3], primals[1] float64[3]",
      ml.jvp, f, {x}, {t:astype "float32"})
    local function refuses(text, fn, primals, tangents)
      raises(text, ml.jvp, fn, primals, tangents or {t})
    end
    local n = {n = ml.tensor(1)}
    refuses("[E_GRAD] jvp: primals[1].n is int32[], which has no tangent; give false for it", f, {n}, {n})
    refuses("[E_GRAD] jvp: primals[1] has no 'w', which tangents[1] has", f, {{v = x}}, {{w = x}})
    refuses("[E_GRAD] jvp: expected a tangent like float64[3], got a table for primals[1]", f, {x}, {{}})
    refuses("[E_VALUE] jvp: primals is a list with one for each argument, {x}, not a Tensor", f, x)
    refuses("[E_VALUE] jvp: 2 tangents, but 1 primal", f, {x}, {t, t})
    refuses("[E_GRAD] jvp: the function returned nil", function() return nil end, {x})
    refuses("[E_GRAD] jvp: the function returned 2 values", function(v) return v, v end, {x})
    refuses("[E_GRAD] jvp: the function returned int32[3]", function(v) return v:astype "int32" end, {x})
    raises("[E_GRAD] hessian: the loss is float64[3]; it must be a float scalar (use :mean() or :sum(), or "
      .. "jacfwd(jacrev(fn)) for all elements)", ml.hessian(f), x)
    raises("[E_GRAD] hvp: no argument has a tangent", ml.hvp, f, {x}, {false})
    raises("[E_VALUE] linearize: the linear function takes 1 tangent, one for each argument, not 2",
      select(2, ml.linearize(f, x)), t, t)
    raises("[E_GRAD] jacrev: argument 1 is int32[2]; gradients are of floats", ml.jacrev(f), ml.tensor {1, 2})
    for _, transform in ipairs {ml.linearize, ml.vjp} do
      raises("[E_STATE] a derivative is asked for inside a loop or branch, and the function was called "
        .. "outside",
        ml.jit(function(v)
          local _, linear = transform(f, v)
          return ml.fori_loop(0, 2, function(_, c) return linear(c) end, v)
        end), x)
    end
  end)
end)

describe("Jacobians", function()
  it("of trees by trees", function()
    local function f(p, s) return {p.a * s, (p.b * p.b):sum()} end
    local p, s = {a = x, b = wide(1.0, 2.0)}, wide(3.0):sum()
    for _, make in ipairs {ml.jacfwd, ml.jacrev} do
      local j = make(f, {argnums = {1, 2}})(p, s)
      helper.close((ml.eye(3) * 3):totable(), j[1][1].a:totable(), 0)
      assert.same({3, 2}, j[1][1].b.shape)
      helper.close(x:totable(), j[1][2]:totable(), 0)
      assert.same({2.0, 4.0}, j[2][1].b:totable())
      assert.same({0.0, 0.0, 0.0}, j[2][1].a:totable())
      assert.equal(0.0, j[2][2]:item())
    end
    local h = ml.hessian(function(q) return (q.a:sum() * q.b * q.b):sum() end)(p)
    assert.same({{2.0, 4.0}, {2.0, 4.0}, {2.0, 4.0}}, h.a.b:totable())
    assert.same({3, 3}, h.a.a.shape)
    local j, aux = ml.jacfwd(function(v) return v * v, "aux" end, {has_aux = true})(x)
    assert.same({3, 3}, j.shape)
    assert.equal("aux", aux)
  end)

  it("of empty tensors and scalars", function()
    local none = ml.zeros {0}
    assert.same({0, 0}, ml.jacfwd(function(v) return v * 2 end)(none).shape)
    assert.same({0, 0}, ml.jacrev(function(v) return v * 2 end)(none).shape)
    assert.same({}, ml.jacfwd(function(v) return v * v end)(3.0).shape)
    helper.close(6.0, ml.jacrev(function(v) return v * v end)(3.0):item(), 0)
  end)

  it("vjp of a tree takes a tree", function()
    local y, pull = ml.vjp(function(v) return {a = v * v, b = {v:sum(), v:astype "int32"}} end, x)
    helper.close((x * x):totable(), y.a:totable(), 0)
    helper.close((x * t * 2 + 1):totable(), pull({a = t, b = {wide(1.0):sum()}}):totable(), 1e-12)
    helper.close((x * t * 2):totable(), pull({a = t}):totable(), 1e-12)
    helper.raises("[E_GRAD] vjp: the cotangent.a is float64[2], the result.a float64[3]", pull,
      {a = wide(1.0, 2.0)})
    helper.raises("[E_GRAD] vjp: the result.b[2] is int32[3], which has no cotangent", pull, {b = {false, x}})
  end)
end)

describe("custom_jvp", function()
  it("serves both modes, in loops, branches and vmap", function()
    local function f(v)
      return ml.cond(v:sum():gt(0), function(w) return softplus(w) end, function(w) return w end, v):sum()
    end
    helper.close((x:sigmoid() * 2):totable(), ml.grad(f)(x):totable(), 1e-12)
    helper.close((x:sigmoid() * 2 * t):sum():item(), select(2, ml.jvp(f, {x}, {t})):item(), 1e-12)
    local xs = ml.stack({x, x + 1}, 1)
    helper.close((xs:sigmoid() * 2):totable(), ml.vmap(ml.grad(f))(xs):totable(), 1e-12)
    local through = ml.grad(function(a) return ml.vmap(f)(a):sum() end)(xs)
    helper.close((xs:sigmoid() * 2):totable(), through:totable(), 1e-12)
  end)

  it("takes trees, numbers and what has no derivative", function()
    local seen
    local f = ml.custom_jvp(function(n, p, ids) return {p.a * n, ids} end, {nondiff = {1},
      jvp = function(n, primals, tangents)
        seen = tangents
        return {primals[1].a * n, primals[2]}, {tangents[1].a * 10}
      end})
    local _, dy = ml.jvp(function(v) return f(3.0, {a = v}, ml.tensor {1, 2}) end, {x}, {t})
    helper.close((t * 10):totable(), dy[1]:totable(), 0)
    assert.is_nil(dy[2])
    assert.is_nil(seen[2])
    helper.close(ml.full({3}, 10.0):totable(), ml.grad(function(v)
      return f(3.0, {a = v}, ml.tensor {1, 2})[1]:sum()
    end)(x):totable(), 0)
  end)

  it("says what is wrong", function()
    local raises = helper.raises
    local function with(rule) return ml.custom_jvp(function(v) return v * 2 end, {jvp = rule}) end
    raises("[E_GRAD] custom_jvp: jvp's first result has float64[] at the result where the function's has "
      .. "float64[3]", ml.jvp, with(function(p, d) return p[1]:sum(), d[1] end), {x}, {t})
    raises("[E_GRAD] custom_jvp: the rule's second result is float64[], the result float64[3]", ml.jvp,
      with(function(p, d) return p[1], d[1]:sum() end), {x}, {t})
    raises("custom_jvp: the function uses a float64[3] from outside of it that is differentiated, and "
      .. "its rule "
      .. "gives nothing for it; pass it as an argument", ml.jvp, function(v)
        local rule = {jvp = function(p, d) return p[1] * v, d[1] end}
        return ml.custom_jvp(function(w) return w * v end, rule)(v * 2)
      end, {x}, {t})
    local reverse = ml.custom_vjp(function(v) return v * 2 end,
      {fwd = function(v) return v * 2 end, bwd = function(_, ct) return ct * 3 end})
    raises("[E_GRAD] custom_vjp: the function has a rule for gradients only, and forward mode (jvp, "
      .. "linearize, jacfwd) needs its tangents; use custom_jvp, which serves both, or jacrev",
      ml.jvp, reverse, {x}, {t})
    -- but where its gradient has been taken by the rule, that is what is differentiated
    local product = ml.hvp(function(v) return (reverse(v) * v):sum() / 5 * 3 end, {x}, {t})
    helper.close((t * 3):totable(), product:totable(), 1e-12)
  end)
end)
