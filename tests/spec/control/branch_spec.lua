-- while_loop, fori_loop, cond and switch: values, gradients, bad input.
local differences = require "spec.control.differences"
local helper = require "spec.helper"
local ml = require "meshlua"

local close, raises = helper.close, helper.raises

describe("while_loop", function()
  it("runs as long as its condition holds, also not at all", function()
    local function double(from)
      return ml.while_loop(function(c) return c.x:lt(100.0) end,
        function(c) return {x = c.x * 2, n = c.n + 1} end, {x = from, n = 0})
    end
    local r = double(3.0)
    assert.same({192, 6}, {r.x:item(), r.n:item()})
    r = double(500.0)
    assert.same({500, 0}, {r.x:item(), r.n:item()})
    local step = ml.jit(double)
    assert.equal(192, step(3.0).x:item())
    assert.equal(128, step(1.0).x:item())
    assert.equal(1, (helper.traces(step)))
  end)

  it("takes outer tensors in, and nests", function()
    local a = ml.tensor {1.0, 2.0}
    local r = ml.while_loop(function(c) return c.n:lt(3) end, function(c)
      local inner = ml.while_loop(function(d) return d.k:lt(c.n + 1) end,
        function(d) return {k = d.k + 1, v = d.v + a} end, {k = 0, v = c.v})
      return {n = c.n + 1, v = inner.v}
    end, {n = 0, v = ml.zeros {2}})
    assert.same({6, 12}, r.v:totable()) -- 1 + 2 + 3 times a
  end)

  it("C1: is not differentiable, and says what is", function()
    raises("[E_GRAD] while_loop is not differentiable", ml.grad(function(x)
      return ml.while_loop(function(c) return c:lt(10.0) end, function(c) return c * 2 end, x)
    end), 1.0)
  end)

  it("that does not depend on the variable stands in no gradient's way", function()
    differences.check(function(x)
      local n = ml.while_loop(function(c) return c:lt(10.0) end, function(c) return c * 2 end, 1.0)
      return (x * n:astype("float64")):sum()
    end, {ml.ones({2}, "float64")})
  end)

  it("C1: refuses conditions that are no bool scalar, and wrong carries", function()
    local function same(c) return c end
    raises("[E_DTYPE] while_loop: what the condition gives is float32[]; it must be a bool", ml.while_loop,
      same, same,
      1.0)
    raises("[E_SHAPE] while_loop: what the condition gives is bool[2]; it must be a scalar", ml.while_loop,
      function(c) return c:gt(0.0) end, same, ml.ones {2})
    raises("[E_VALUE] while_loop: what the condition gives is a boolean, not a tensor", ml.while_loop,
      function() return true end, same, 1.0)
    raises("[E_SHAPE] while_loop: the carry is float32[2] when it goes in, and float32[] when it comes out",
      ml.while_loop, function(c) return c:sum():lt(9.0) end, function(c) return c:sum() end, ml.ones {2})
  end)

  it("can be stopped with Ctrl-C", function()
    local file = helper.file [[
      local ml = require "meshlua"
      io.stdout:write("begun\n"):flush()
      ml.while_loop(function(c) return c:ge(0.0) end, function(c) return c * 0.5 end, 1.0)]]
    local out, err, code = helper.shell(([[
      "$MESHLUA" %s & pid=$!
      sleep 1; kill -INT $pid; wait $pid]]):format(file))
    assert.matches("begun", out)
    assert.matches("E_INTERRUPT", err)
    assert.not_equal(0, code)
  end)
end)

describe("fori_loop", function()
  it("counts from lower to upper - 1; with numbers it is a scan", function()
    local function sum(lower, upper) return ml.fori_loop(lower, upper, function(i, c) return c + i end, 0) end
    assert.equal(12, sum(3, 6):item())
    assert.equal(0, sum(6, 3):item())
    assert.equal(12, sum(ml.tensor(3, "int32"), 6):item())
    assert.equal(12, ml.jit(sum)(3, 6):item())
    assert.equal(0, ml.jit(sum)(6, 3):item())
  end)

  it("is differentiated where the bounds are numbers", function()
    differences.check(function(x)
      return ml.fori_loop(1, 4, function(i, c) return ml.sin(c) * i:astype("float64") end, x):sum()
    end, {ml.tensor({0.3, 0.7}, "float64")})
    raises("fori_loop with bounds that are Lua numbers", ml.grad(function(x)
      return ml.fori_loop(0, ml.tensor(3, "int32"), function(_, c) return c * 2 end, x)
    end), 1.0)
  end)

  it("refuses bounds that are no integers", function()
    raises("[E_VALUE] fori_loop: upper must be a whole number or an integer scalar, not float32[]",
      ml.fori_loop, 0, 2.5,
      function(_, c) return c end, 0.0)
  end)
end)

describe("cond", function()
  local function twice(x) return x * 2 end
  local function sine(x) return ml.sin(x) end

  it("runs the branch that the predicate says, eager and jitted", function()
    local x = ml.tensor {1.0, 2.0}
    local step = ml.jit(function(p, v) return ml.cond(p:gt(0.0), twice, sine, v) end)
    close(x * 2, step(ml.tensor(1.0), x))
    close(ml.sin(x), step(ml.tensor(-1.0), x), 1e-6)
    close(x * 2, ml.cond(ml.tensor(true), twice, sine, x))
    close(x * 2, ml.cond(true, twice, sine, x))
    assert.equal(1, (helper.traces(step)))
  end)

  it("gives trees and several values; branches use different outer tensors", function()
    local a, b = ml.tensor {1.0, 1.0}, ml.tensor {5.0, 6.0}
    for _, p in ipairs {true, false} do
      local t, n = ml.cond(ml.tensor(p), function(x) return {y = x + a, z = x}, 1 end,
        function(x) return {y = b, z = x * b}, 2 end, ml.tensor {2.0, 3.0})
      close(p and {3, 4} or {5, 6}, t.y)
      close(p and {2, 3} or {10, 18}, t.z)
      assert.equal(p and 1 or 2, n:item())
    end
  end)

  it("gives operands back as they are", function()
    local a, b = ml.tensor {1.0}, ml.tensor {2.0}
    for _, p in ipairs {true, false} do
      local x, y = ml.cond(ml.tensor(p), function(u, v) return u, v end, function(u, v) return v, u end, a, b)
      assert.same(p and {1, 2} or {2, 1}, {x:item(), y:item()})
    end
  end)

  for _, p in ipairs {true, false} do
    it("has the gradient of the branch that runs: " .. tostring(p), function()
      local c = ml.tensor({0.4, -0.2}, "float64")
      differences.check(function(x, y)
        return (ml.cond(ml.tensor(p), function(u) return u * u * y end,
          function(u) return ml.sin(u) * c end, x)
          * y):sum()
      end, {ml.tensor({0.3, 0.7}, "float64"), ml.tensor({1.5, -0.5}, "float64")})
    end)
  end

  it("is differentiated twice", function()
    differences.check(function(x)
      return (ml.grad(function(v)
        return ml.cond(v:sum():gt(0.0), function(u) return (u * u * u):sum() end,
          function(u) return u:sum() end, v)
      end)(x) * x):sum()
    end, {ml.tensor({0.3, 0.7}, "float64")}, 1e-5)
  end)

  it("C1: refuses predicates that are no bool scalar", function()
    raises("[E_DTYPE] cond: the predicate is float32[]; it must be a bool", ml.cond, ml.tensor(1.0), twice,
      sine, 1.0)
    raises("[E_SHAPE] cond: the predicate is bool[2]; it must be a scalar", ml.cond, ml.tensor {true,
      false}, twice,
      sine, 1.0)
    raises("[E_VALUE] cond: the predicate is a number, not a tensor", ml.cond, 1, twice, sine, 1.0)
  end)

  it("C1: refuses branches whose results differ", function()
    local p = ml.tensor(true)
    raises("[E_SHAPE] cond: the result at 1 is float32[2] in branch 0, and float32[] in branch 1", ml.cond, p,
      function(x) return x:sum() end, twice, ml.ones {2})
    raises("[E_VALUE] cond: the result at 2 is a tensor in branch 1, and nothing in branch 0", ml.cond, p,
      function(x) return x, x end, twice, ml.ones {2})
  end)
end)

describe("switch", function()
  local branches = {function(x) return x end, function(x) return x * 10 end, function(x) return x * 100 end}

  it("C1: counts branches from 0 and clamps the index", function()
    for index, wanted in pairs {[-3] = 1, [0] = 1, [1] = 10, [2] = 100, [9] = 100} do
      assert.equal(wanted, ml.switch(ml.tensor(index, "int32"), branches, 1.0):item())
      assert.equal(wanted, ml.switch(ml.tensor(index, "int64"), branches, ml.tensor(1.0)):item())
      if index >= 0 then assert.equal(wanted, ml.switch(index, branches, ml.tensor(1.0)):item()) end
    end
  end)

  it("works with an index that a loop makes", function()
    local c = ml.fori_loop(0, 3, function(i, v) return ml.switch(i, branches, v) + 1 end, 1.0)
    assert.equal(((1 + 1) * 10 + 1) * 100 + 1, c:item())
  end)

  it("refuses other indices, and no branches", function()
    raises("[E_DTYPE] switch: the index is float32[]; it must be an integer", ml.switch, ml.tensor(1.0),
      branches, 1.0)
    raises("[E_SHAPE] switch: the index is int32[2]; it must be a scalar", ml.switch, ml.tensor {0, 1},
      branches, 1.0)
    raises("[E_VALUE] switch: no branches", ml.switch, 0, {})
  end)
end)
