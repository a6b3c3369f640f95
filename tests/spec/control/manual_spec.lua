-- devices: 8
-- Loops and branches inside shard_map, where devices may differ in what they run.
local differences = require "spec.control.differences"
local helper = require "spec.helper"
local ml = require "meshlua"

local close, raises = helper.close, helper.raises
local P = ml.P
local mesh = ml.make_mesh({4, 2}, {"data", "model"})

local function draw(n, ...) return ml.random.normal(ml.random.key(n), {...}):astype("float64") end
local function on(fn, in_specs, out_specs)
  return ml.shard_map(fn, {mesh = mesh, in_specs = in_specs, out_specs = out_specs})
end

describe("cond inside shard_map", function()
  -- jax#40823: the predicate differs between devices, the branches' results alone would not
  local function blocks(x, w)
    return on(function(b, v)
      return ml.cond(b:sum():gt(0.0), function(u) return ml.sin(u * v) end,
        function(u) return u * u * v end, b)
    end, {P("data"), P()}, P("data"))(x, w)
  end
  local x, w = draw(1, 8, 2), draw(2, 2)

  it("takes each device's own branch where the predicate varies", function()
    local got = blocks(x, w):totable()
    for block = 1, 4 do
      local b = x:slice({2 * block - 1, 2 * block})
      local want = b:sum():item() > 0 and ml.sin(b * w) or b * b * w
      close(want, ml.tensor({got[2 * block - 1], got[2 * block]}, "float64"), 1e-12)
    end
  end)

  it("C1: has right gradients, of what varies and of what does not (jax#40823)", function()
    differences.check(function(a, v) return (blocks(a, v) * a):sum() end, {x, w}, 1e-6)
    -- invariant operands and results of branches: the result varies as the predicate does
    differences.check(function(a, v)
      local y = on(function(b, u)
        local r = ml.cond(b:sum():gt(0.0), function(q) return q * q end, function(q) return ml.sin(q) end, u)
        return ml.psum(r, "data")
      end, {P("data"), P()}, P())(a, v)
      return (y * y):sum()
    end, {x, w}, 1e-6)
  end)

  it("clamps an index that varies", function()
    local got = on(function(i)
      return ml.switch(i:sum() - 1, {function() return ml.tensor {10} end,
        function() return ml.tensor {20} end, function() return ml.tensor {30} end})
    end, {P("data")}, P("data"))(ml.arange(4))
    assert.same({10, 10, 20, 30}, got:totable())
  end)

  it("runs one branch where the predicate does not vary, collectives too", function()
    local got = on(function(b)
      return ml.cond(ml.psum(b:sum(), {"data"}):gt(-1e9), function(u) return ml.psum(u, "data") end,
        function(u) return u + 0.0 end, b)
    end, {P("data")}, P("data"))(x)
    close(ml.concat({x:slice({1, 2}) + x:slice({3, 4}) + x:slice({5, 6}) + x:slice({7, 8})}),
      got:slice({1, 2}), 1e-12)
  end)

  it("C1: refuses a collective that some devices would not come to", function()
    raises("cond: all_reduce inside is over 'data', along which devices may differ", function()
      on(function(b)
        return ml.cond(b:sum():gt(0.0), function(u) return ml.psum(u, "data") end,
          function(u) return ml.psum(u, "data") end, b)
      end, {P("data")}, P())(x)
    end)
  end)
end)

describe("while_loop inside shard_map", function()
  it("lets each device end when it is done", function()
    local function count(b)
      return ml.while_loop(function(c) return c.v:lt(100.0):all() end,
        function(c) return {v = c.v * 2, n = c.n + 1} end, {v = b, n = ml.zeros({1}, "int32")})
    end
    local x = ml.tensor {1.0, 3.0, 60.0, 500.0}
    local got = on(function(b)
      local r = count(b)
      return r.v, r.n
    end, {P("data")}, {P("data"), P("data")})
    local v, n = got(x)
    assert.same({128, 192, 120, 500}, v:totable())
    assert.same({7, 6, 1, 0}, n:totable())
  end)

  it("C1: refuses a collective inside that some devices would not come to", function()
    raises("while_loop: all_reduce inside is over 'data'", function()
      on(function(b)
        return ml.while_loop(function(c) return c:sum():lt(9.0) end,
          function(c) return c + ml.psum(c, "data") end, b)
      end, {P("data")}, P("data"))(ml.ones {4})
    end)
  end)
end)

describe("scan inside shard_map", function()
  it("S4: casts a carry that starts equal and comes out varying; gradients", function()
    local function loss(x, w)
      local y = on(function(b, v)
        local c, ys = ml.scan(function(c, row) return ml.tanh(c * v + row), c * row end,
          ml.zeros({2}, "float64"), b)
        return ml.psum((c * c):sum() + ys:sum(), "data")
      end, {P(nil, "data"), P()}, P())(x, w)
      return y
    end
    local x, w = draw(5, 3, 8), draw(6, 2)
    local plain = 0.0
    for block = 1, 4 do
      local c = ml.zeros({2}, "float64")
      for k = 1, 3 do
        local row = x:slice(k, {2 * block - 1, 2 * block})
        plain = plain + (c * row):sum()
        c = ml.tanh(c * w + row)
      end
      plain = plain + (c * c):sum()
    end
    close(plain, loss(x, w), 1e-12)
    differences.check(loss, {x, w}, 1e-6)
  end)

  it("holds collectives, and their gradients", function()
    local function loss(x)
      return on(function(b)
        return (ml.scan(function(c, row) return ml.sin(ml.psum(c * row, "data")) end,
          ml.ones({2}, "float64"), b)):sum()
      end, {P(nil, "data")}, P())(x)
    end
    differences.check(loss, {draw(7, 3, 8)}, 1e-6)
  end)

  -- What varies beside the sum over devices keeps it in the loop.
  it("sums over devices in each iteration where a factor differs between them", function()
    local all = {mesh = ml.make_mesh({8}, {"x"}), in_specs = P("x"), out_specs = P("x")}
    local f = ml.shard_map(function(x)
      local c = ml.scan(function(c)
        return c + ml.psum(x, "x") * (ml.axis_index("x") + 1):astype("float32")
      end, ml.zeros_like(x), nil, {length = 3})
      return c
    end, all)
    assert.same({84, 168, 252, 336, 420, 504, 588, 672}, f(ml.arange(8.0)):totable())
    local g = ml.shard_map(function(x)
      local c = ml.scan(function(c) return c + ml.psum(x, "x") * 2 end, ml.zeros_like(x), nil, {length = 3})
      return c
    end, all)
    assert.same({168, 168, 168, 168, 168, 168, 168, 168}, g(ml.arange(8.0)):totable())
  end)

  it("leaves other axes to propagation: what they split stays split in the loop", function()
    local x = ml.device_put(draw(8, 3, 4, 8), ml.NamedSharding(mesh, P(nil, "data")))
    local w = draw(9, 2, 8, 8)
    local step = ml.jit(function(a, v)
      return ml.shard_map(function(b, u)
        local c = ml.scan(function(c, row) return c + row:matmul(u:at(1)) end, ml.zeros({4, 8}, "float64"), b)
        return ml.psum(c:sum(), "model")
      end, {mesh = mesh, axis_names = {"model"}, in_specs = {P(), P "model"}, out_specs = P()})(a, v)
    end)
    close((x:matmul(w:at(1)) + x:matmul(w:at(2))):sum(), step(x, w), 1e-12)
    for _, c in ipairs(step:plan(x, w):collectives()) do assert.equal("all_reduce", c.op) end
  end)
end)
