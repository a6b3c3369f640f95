-- scan against plain Lua loops: values, gradients of carries, xs and constants, trees, nesting, bad input.
local differences = require "spec.control.differences"
local helper = require "spec.helper"
local ml = require "meshlua"

local close, raises = helper.close, helper.raises

local function draw(n, ...)
  local x = ml.random.normal(ml.random.key(n), {...})
  return x:astype("float64")
end

--- What a scan is, written out.
local function loop(f, carry, xs, options)
  options = options or {}
  local n, ys = options.length or xs.shape[1], {}
  for k = 1, n do
    local at = options.reverse and n + 1 - k or k
    local y
    carry, y = f(carry, xs and xs:slice(at))
    ys[at] = y
  end
  return carry, ys[1] and ml.stack(ys, 1)
end

local function rnn(w)
  return function(c, x)
    local h = ml.tanh(c:matmul(w) + x)
    return h, h * h
  end
end

describe("scan", function()
  local w, c0, xs = draw(1, 3, 3), draw(2, 2, 3), draw(3, 5, 2, 3)

  for _, options in ipairs {{}, {reverse = true}, {unroll = 2}, {unroll = 2, reverse = true}, {unroll = 5}} do
    local name = ("C1: gives what a Lua loop gives (reverse %s, unroll %s)"):format(options.reverse or false,
      options.unroll or 1)
    it(name, function()
      local function run(scan, ...) return scan(rnn(w), c0, ...) end
      local c, ys = run(ml.scan, xs, options)
      local d, zs = run(loop, xs, options)
      close(d, c, 1e-12)
      close(zs, ys, 1e-12)
      local jc, jys = ml.jit(function(x) return run(ml.scan, x, options) end)(xs)
      close(d, jc, 1e-12)
      close(zs, jys, 1e-12)
    end)

    it(name .. ", gradients too", function()
      differences.check(function(weights, carry, slices)
        local c, ys = ml.scan(rnn(weights), carry, slices, options)
        return (c * c):sum() + (ys * slices):sum()
      end, {w, c0, xs})
    end)
  end

  it("takes trees, numbers and tensors held twice", function()
    local carry, ys = ml.scan(function(c, x)
      return {a = c.b, b = c.a + x.u, n = c.n + 1, name = c.name}, {s = c.a, list = {x.v, c.n}}
    end, {a = c0, b = c0, n = 0, name = "kept"},
      {u = xs, v = ml.arange(5)})
    assert.equal(5, carry.n:item())
    assert.equal("kept", carry.name)
    assert.same({0, 1, 2, 3, 4}, ys.list[1]:totable())
    assert.same({0, 1, 2, 3, 4}, ys.list[2]:totable())
    local a, b = c0, c0
    for k = 1, 5 do a, b = b, a + xs:slice(k) end
    close(a, carry.a, 1e-12)
    close(b, carry.b, 1e-12)
  end)

  it("over no slices gives the first carry and empty stacks, its body unused", function()
    local none = ml.zeros({0, 2, 3}, "float64")
    for _, options in ipairs {{}, {reverse = true}, {unroll = 3}, {length = 0}} do
      local function run(carry, weights, slices) return ml.scan(rnn(weights), carry, slices, options) end
      for _, f in ipairs {run, ml.jit(run)} do
        local c, ys = f(c0, w, none)
        assert.same(c0:totable(), c:totable())
        assert.equal("float64[0,2,3]", ml.typeof(ys))
      end
      local function loss(carry, weights, slices)
        local c, ys = run(carry, weights, slices)
        return (c * c):sum() + ys:sum()
      end
      for _, f in ipairs {loss, ml.jit(loss)} do
        local grads = ml.grad(f, {argnums = {1, 2, 3}})(c0, w, none)
        assert.same((c0 * 2):totable(), grads[1]:totable())
        assert.equal(0, grads[2]:abs():sum():item())
        assert.equal("float64[0,2,3]", ml.typeof(grads[3]))
        local second = ml.grad(function(carry) return ml.grad(f)(carry, w, none):sum() end)(c0)
        assert.same(ml.full({2, 3}, 2.0):totable(), second:totable())
      end
      local stacked = ml.zeros({0, 2, 2, 3}, "float64")
      local c, ys = ml.vmap(run, {in_axes = {1, false, 2}})(ml.stack {c0, -c0}, w, stacked)
      assert.same(ml.stack({c0, -c0}):totable(), c:totable())
      assert.equal("float64[2,0,2,3]", ml.typeof(ys))
    end
    local c, ys = ml.scan(function(c) return c + 1, {c, {c * 2}} end, 5, nil, {length = 0})
    assert.equal(5, c:item())
    assert.equal("int32[0] int32[0]", ml.typeof(ys[1]) .. " " .. ml.typeof(ys[2][1]))
    -- Inside a loop that runs.
    local outer = ml.scan(function(h, x)
      local inner, more = ml.scan(rnn(w), h, none)
      return inner + x + more:sum(), nil
    end, c0, xs)
    close(c0 + xs:sum(1), outer, 1e-12)
  end)

  it("runs without xs, and without ys", function()
    local c, ys = ml.scan(function(c) return c * 2 end, 1.0, nil, {length = 10})
    assert.equal(1024, c:item())
    assert.is_nil(ys)
    assert.same({3, 4, 5}, select(2, ml.scan(function(_, x) return nil, x + 2 end, nil, ml.tensor {1, 2,
      3})):totable())
  end)

  it("swaps carries without mixing them up", function()
    local out = ml.scan(function(c) return {c[2], c[3], c[1]} end, {ml.tensor {1, 2}, ml.tensor {3, 4},
      ml.tensor {5, 6}}, nil, {length = 4})
    assert.same({{3, 4}, {5, 6}, {1, 2}}, {out[1]:totable(), out[2]:totable(), out[3]:totable()})
  end)

  it("carries integers and bools, which have no gradient", function()
    differences.check(function(x)
      local c = ml.scan(function(c, s)
        local big = s:gt(0.0)
        return {n = c.n + 1, v = ml.where(big, c.v * s, c.v + c.n:astype("float64")), seen = big}
      end, {n = 0, v = ml.ones({2, 3}, "float64"), seen = ml.zeros({2, 3}, "bool")}, x)
      return c.v:sum()
    end, {xs})
  end)

  it("is differentiated twice", function()
    differences.check(function(weights, carry)
      local g = ml.grad(function(v)
        local c, ys = ml.scan(rnn(v), carry, xs)
        return (c * ys:sum(1)):sum()
      end)(weights)
      return (g * g):sum()
    end, {w, c0}, 1e-4)
  end)

  it("nests: a scan in a scan, with a constant of both", function()
    local function both(scan)
      return function(weights, carry, slices)
        local c, ys = scan(function(c, x)
          local inner, zs = scan(function(d, row) return ml.sin(d * weights:slice(1) + row), d * row end,
            c, x)
          return inner + c, zs:sum(1)
        end, carry, slices)
        return (c * c):sum() + (ys * ys):sum()
      end
    end
    local row = draw(7, 3)
    close(both(loop)(w, row, xs), both(ml.scan)(w, row, xs), 1e-12)
    differences.check(both(ml.scan), {w, row, xs}, 1e-5)
  end)

  it("holds a cond, and is held by one", function()
    local function inner(p)
      return function(weights, carry)
        local c = ml.scan(function(c, x)
          return ml.cond(x:sum():gt(p), function(v) return ml.sin(v:matmul(weights)) end,
            function(v) return v * x end, c), nil
        end, carry, xs)
        return (c * c):sum()
      end
    end
    differences.check(inner(0.0), {w, c0}, 1e-5)
    for _, p in ipairs {true, false} do
      differences.check(function(weights, carry)
        return ml.cond(ml.tensor(p), inner(0.0), function(_, c) return c:sum() end, weights, carry)
      end, {w, c0}, 1e-5)
    end
  end)

  it("computes a remat body again", function()
    differences.check(function(weights, carry)
      local c = ml.scan(ml.remat(function(c, x) return rnn(weights)(c, x) end), carry, xs)
      return (c * c):sum()
    end, {w, c0})
  end)

  it("differentiates inside its body", function()
    local function body(grad)
      return function(c, x)
        local g = grad(function(v) return (ml.sin(v) * x):sum() end, c)
        return c - g * 0.1, nil
      end
    end
    local got = ml.scan(body(function(f, c) return ml.grad(f)(c) end), c0, xs)
    local want = loop(function(c, x) return c - ml.cos(c) * x * 0.1 end, c0, xs)
    close(want, got, 1e-12)
  end)

  it("holds one copy of its temporaries, however often it runs", function()
    local function bytes(n)
      local step = ml.jit(function(c)
        return (ml.scan(function(v) return ml.tanh(v:matmul(v)) * 0.5 + v end, c, nil, {length = n}))
      end)
      return step:plan(ml.ones {64, 64}):memory().peak
    end
    assert.equal(bytes(2), bytes(1000))
  end)

  it("keeps for the gradient what the gradient reads, and no more", function()
    local function bytes(n)
      local step = ml.jit(ml.grad(function(c)
        return (ml.scan(function(v) return ml.tanh(v) end, c, nil, {length = n})):sum()
      end))
      return step:plan(ml.ones {1000}):memory().peak
    end
    -- one float per element and iteration: tanh's result is all that its rule reads
    local most = 256 -- the alignment of a buffer, on any device
    assert.near(900 * 4000, bytes(1000) - bytes(100), most)
  end)

  it("leaves nothing behind", function()
    local step = ml.jit(function(c) return (ml.scan(rnn(w), c, xs)) end)
    assert.equal(0, helper.left_behind(function() step(c0) end))
  end)

  describe("refuses", function()
    local x = ml.ones {4, 2}
    local function same(c, s) return c, s end

    it("C1: a carry that comes out with another shape, by its path", function()
      raises("[E_SHAPE] scan: the carry at h.a is float32[2] when it goes in, and float32[1,2] when",
        ml.scan, function(c) return {h = {a = c.h.a:reshape {1, 2}}} end, {h = {a = ml.ones {2}}}, x)
    end)

    it("C1: a carry that comes out with another dtype", function()
      raises("[E_DTYPE] scan: the carry is int32[] when it goes in, and float32[] when it comes out",
        ml.scan, function(c) return c + 0.5 end, 1, x)
    end)

    it("C1: a carry of another structure", function()
      raises("[E_VALUE] scan: the carry at b is a tensor when it goes in, and nothing when it comes out",
        ml.scan, function(c) return {a = c.a} end, {a = 1.0, b = 2.0}, x)
      raises("[E_VALUE] scan: the carry at b is a tensor when it comes out, and nothing when it goes in",
        ml.scan, function(c) return {a = c.a, b = c.a} end, {a = 1.0}, x)
    end)

    it("C1: xs of unequal lengths, or without any dim", function()
      raises("[E_SHAPE] scan: xs at b has 3 slices along dim 1, and xs at a says 4", ml.scan, same, 0.0,
        {a = x, b = ml.ones {3}})
      raises("[E_SHAPE] scan: xs has 4 slices along dim 1, and length says 5", ml.scan, same, 0.0, x,
        {length = 5})
      raises("[E_SHAPE] scan: xs is a scalar; a scan runs along dim 1", ml.scan, same, 0.0, ml.tensor(1.0))
    end)

    it("neither slices nor a length", function()
      raises("[E_VALUE] scan: without xs, option 'length'", ml.scan, same, 0.0)
    end)

    it("options that it does not know", function()
      raises("[E_KEY] scan: unknown option 'lenght'; did you mean 'length'?", ml.scan, same, 0.0, x,
        {lenght = 4})
      raises("[E_VALUE] scan: unroll must be a whole number from 1 on, not 0", ml.scan, same, 0.0, x,
        {unroll = 0})
    end)

    it("a Param written in its body", function()
      local p = helper.param(ml.zeros {2})
      raises("a Param is written in the body of a loop or branch", ml.jit(function(box)
        return (ml.scan(function(c, s) box:set(s); return c, s end, 0.0, x))
      end), p)
      assert.same({0, 0}, p:get():totable())
    end)
  end)
end)

describe("a carry that comes out as a view of what the body made", function()
  local x, w = draw(1, 6, 6), draw(2, 6, 6)
  local forms = {
    ["turned over"] = function(c) return ml.flip(c * 2, 1) end,
    ["transposed"] = function(c) return (c * 2):T() end,
    ["permuted twice"] = function(c) return ml.flip(ml.tanh(c):T(), 2) end,
    ["of the carry itself"] = function(c) return c:T() end,
  }
  for name, f in pairs(forms) do
    it(name .. " is what it is without a loop, and so is its gradient", function()
      for n = 1, 3 do
        local function looped(v) return (ml.fori_loop(0, n, function(_, c) return f(c) end, v)) end
        local function straight(v)
          for _ = 1, n do v = f(v) end
          return v
        end
        close(straight(x), looped(x), 1e-15)
        close(straight(x), ml.jit(looped)(x), 1e-15)
        local function gradient(fn) return ml.jit(ml.grad(function(v) return (fn(v) * w):sum() end))(x) end
        close(gradient(straight), gradient(looped), 1e-12)
        local last = ml.while_loop(function(c) return c.i:lt(n) end,
          function(c) return {i = c.i + 1, v = f(c.v)} end, {i = ml.tensor(0), v = x})
        close(straight(x), last.v, 1e-15)
      end
    end)
  end

  it("beside another carry of the same", function()
    local function f(a, b) return ml.flip(a + b, 1), (a + b):T() end
    local a, b = x, w
    for _ = 1, 3 do a, b = f(a, b) end
    local out = ml.fori_loop(0, 3, function(_, c) return {f(c[1], c[2])} end, {x, w})
    close(a, out[1], 1e-14)
    close(b, out[2], 1e-14)
  end)
end)
