-- devices: 8
-- What a loop or a branch hands on unchanged, and what an op takes twice, may be wanted in two layouts that put one
-- mesh axis on different dims: results and gradients are those of one device all the same.
local helper = require "spec.helper"
local ml = require "meshlua"

local P, NamedSharding = ml.P, ml.NamedSharding
local mesh = ml.make_mesh({2, 4}, {"x", "y"})

local even = {P(), P("x"), P(nil, "x"), P("y"), P(nil, "y"), P("x", "y"), P("y", "x"), P({"x", "y"}),
  P(nil, {"y", "x"})}
local uneven = {P(), P({"x", uneven = "pad"}), P(nil, {"y", uneven = "pad"}), P({"x", "y", uneven = "pad"}),
  P({"y", uneven = "pad"}, {"x", uneven = "pad"})}

if helper.watched then
  even, uneven = {even[3], even[4], even[6], even[9]}, {uneven[2], uneven[4], uneven[5]}
end

local function loop(n, body, init) return ml.fori_loop(0, n, function(_, c) return body(c) end, init) end
local function same(c) return c end

-- C lays its tensor like y.
local forms = {
  ["a carry"] = function(x, y) return loop(2, same, x) * y end,
  ["a carry of a loop in a loop"] = function(x, y)
    return loop(2, function(c) return loop(2, same, c) end, x) * y
  end,
  ["weights beside an activation"] = function(x, y)
    local r = loop(2, function(c) return {w = c.w, a = ml.tanh(c.a:matmul(c.w))} end, {w = x, a = y})
    return r.a + r.w
  end,
  ["a constraint behind a loop"] = function(x, _, C) return C(loop(2, same, x)) + 1 end,
  ["carries that change places"] = function(x, y)
    local r = loop(3, function(c) return {c[2], c[1]} end, {x, y})
    return r[1] * y + r[2]
  end,
  ["one carry in two places"] = function(x, y)
    local r = loop(2, function(c) return {c[1], c[1]} end, {x, y})
    return r[1] * y:T() + r[2]
  end,
  ["slices as ys"] = function(x, y)
    local c, ys = ml.scan(function(c, s) return c, s end, x, y)
    return c * ys
  end,
  ["the carry as ys"] = function(x, y)
    local c, ys = ml.scan(function(c) return c, c end, x, y)
    return c * ys:sum(1) * y
  end,
  ["a branch"] = function(x, y)
    return ml.cond(x:sum():gt(0), function(a) return a end, function() return y end, x) * y
  end,
  ["a branch with one result twice"] = function(x, y)
    local a, b = ml.cond(x:sum():gt(0), function(a) return a, a end, function(a, b) return b, a end, x, y)
    return a * b:T()
  end,
  ["a product with itself"] = function(x, y) return x:matmul(x:T()) + y:matmul(y) end,
}

local function check(C, form, x, y, a, b)
  local there = {ml.device_put(x, NamedSharding(mesh, a)), ml.device_put(y, NamedSharding(mesh, b))}
  local function sharded(u, v) return form(u, v, C) end
  local function plain(u, v) return form(u, v, same) end
  helper.close(ml.jit(sharded)(there[1], there[2]), ml.jit(plain)(x, y), 1e-5)
  local function gradients(f, u, v)
    return ml.jit(ml.grad(function(p, q) return (f(p, q) * 0.5):sum() end, {argnums = {1, 2}}))(u, v)
  end
  local got, want = gradients(sharded, there[1], there[2]), gradients(plain, x, y)
  for i = 1, 2 do helper.close(got[i], want[i], 1e-5) end
end

describe("in two layouts:", function()
  local names = {}
  for name in pairs(forms) do names[#names + 1] = name end
  table.sort(names)
  for _, name in ipairs(names) do
    for n, specs in pairs {[8] = even, [6] = uneven} do
      it(("%s, dims of %d"):format(name, n), function()
        local x = ml.arange(n * n + 0.0):reshape {n, n} / (n * n) - 0.5
        for _, a in ipairs(specs) do
          for _, b in ipairs(specs) do
            local function constrained(v) return ml.constrain(v, NamedSharding(mesh, b)) end
            check(constrained, forms[name], x, x:T() + 0.25, a, b)
          end
        end
      end)
    end
  end

  it("while_loop hands on what its condition does not read", function()
    local x = ml.arange(64.0):reshape {8, 8}
    local function f(u, v)
      local r = ml.while_loop(function(c) return c.i:lt(3) end, function(c) return {i = c.i + 1, u = c.u} end,
        {i = ml.tensor(0), u = u})
      return r.u * v
    end
    local u = ml.device_put(x, NamedSharding(mesh, P(nil, "x")))
    helper.close(ml.jit(f)(u, ml.device_put(x, NamedSharding(mesh, P("x")))), x * x, 0)
  end)
end)
