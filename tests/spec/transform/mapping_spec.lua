-- devices: 8
-- mapping_spec.lua: associative_scan, map and vectorize, against loops in Lua.
local helper = require "spec.helper"
local ml = require "meshlua"

local function same(a, b) helper.close(a:totable(), b:totable(), 1e-5) end

describe("associative_scan", function()
  it("gives all partial results, of every length, forwards and back, along any axis", function()
    for n = 1, 9 do
      local x = ml.random.normal(ml.random.key(n), {2, n})
      for _, axis in ipairs {2, -1} do
        same(ml.cumsum(x, 2), ml.associative_scan(ml.add, x, {axis = axis}))
        local back = ml.associative_scan(ml.add, x, {axis = axis, reverse = true})
        same(ml.flip(ml.cumsum(ml.flip(x, 2), 2), 2), back)
      end
      same(ml.cumprod(x:T(), 1), ml.jit(function(v) return ml.associative_scan(ml.mul, v) end)(x:T()))
    end
    assert.same({0}, ml.associative_scan(ml.add, ml.zeros {0}).shape)
  end)

  it("of functions that do not commute, on trees, with gradients, on a mesh", function()
    -- y' = a y + b, as a scan computes it
    local a, b = ml.random.normal(ml.random.key(1), {16, 3}), ml.random.normal(ml.random.key(2), {16, 3})
    local function linear(p, q) return {a = p.a * q.a, b = p.b * q.a + q.b} end
    local function parallel(u, v) return ml.associative_scan(linear, {a = u, b = v}).b end
    local function serial(u, v)
      return (select(2, ml.scan(function(y, s)
        y = y * s.a + s.b
        return y, y
      end, ml.zeros {3}, {a = u, b = v})))
    end
    same(serial(a, b), parallel(a, b))
    local function loss(f) return function(u, v) return (f(u, v) ^ 2):mean() end end
    same(ml.grad(loss(serial))(a, b), ml.grad(loss(parallel))(a, b))
    same(select(2, ml.jvp(serial, {a, b}, {b, a})), select(2, ml.jvp(parallel, {a, b}, {b, a})))
    local mesh = ml.make_mesh({8}, {"d"})
    local put = function(v) return ml.device_put(v, ml.NamedSharding(mesh, ml.P("d"))) end
    same(serial(a, b), ml.jit(parallel)(put(a), put(b)))
  end)

  it("says what is wrong", function()
    helper.raises("[E_SHAPE] associative_scan: elems[1] has size 2 along axis 1, and elems[2] has 3",
      ml.associative_scan, ml.add, {ml.zeros {2}, ml.zeros {3}})
    helper.raises("[E_SHAPE] associative_scan: elems is float32[2], which has no axis 2", ml.associative_scan,
      ml.add, ml.zeros {2}, {axis = 2})
    helper.raises("[E_SHAPE] associative_scan: the function gives float32[] for float32[2]; both are of one "
      .. "type", ml.associative_scan, function(p) return p:sum() end, ml.zeros {4})
    helper.raises("[E_VALUE] associative_scan: elems holds no tensor", ml.associative_scan, ml.add, {})
  end)
end)

describe("map", function()
  it("is a loop over slices, or over batches of them", function()
    local xs = {a = ml.random.normal(ml.random.key(3), {7, 4}), b = ml.arange(7)}
    local function f(x) return {(x.a:softmax() * x.b):sum(), x.b + 1} end
    local all = ml.vmap(f)(xs)
    for _, options in ipairs {{}, {batch_size = 1}, {batch_size = 3}, {batch_size = 7}, {batch_size = 9}} do
      local y = ml.map(f, xs, options)
      same(all[1], y[1])
      assert.same(all[2]:totable(), y[2]:totable())
    end
    local function g(v) return v:softmax() * v end
    same(ml.grad(function(a) return (ml.vmap(g)(a) ^ 2):sum() end)(xs.a),
      ml.grad(function(a) return (ml.map(g, a, {batch_size = 2}) ^ 2):sum() end)(xs.a))
    helper.raises("[E_SHAPE] map: xs.a has size 7 along axis 1, and xs.b has 3", ml.map, f,
      {a = xs.a, b = ml.arange(3)})
    helper.raises("[E_VALUE] map: batch_size is 0; it is at least 1", ml.map, f, xs, {batch_size = 0})
  end)
end)

describe("vectorize", function()
  local function matvec(m, v) return (m * v):sum(2) end
  local f = ml.vectorize(matvec, {signature = "(n,m),(m)->(n)"})

  it("broadcasts the dims in front", function()
    local m, v = ml.random.normal(ml.random.key(4), {5, 1, 2, 3}), ml.random.normal(ml.random.key(5), {4, 3})
    local y = f(m, v)
    assert.same({5, 4, 2}, y.shape)
    for i = 1, 5 do
      for k = 1, 4 do same(matvec(m:at(i, 1), v:at(k)), y:at(i, k)) end
    end
    assert.same({2}, f(m:at(1, 1), v:at(1)).shape)
    assert.same({1, 1, 2}, f(m:slice(1, false):reshape(1, 1, 2, 3), v:at(1)).shape)
    local function either(a, b, way) return way == "sum" and a + b or a * b end
    local scalar = ml.vectorize(either, {excluded = {3}})
    same(ml.ones {3, 2} * 3, scalar(ml.ones {3, 1}, ml.full({2}, 2.0), "sum"))
    same(ml.ones {2} * 5, scalar(ml.ones {2}, 5.0, "product"))
    local a, b = ml.vectorize(function(p) return p:sum(), p * 2 end, {signature = "(n) -> (), (n)"})(v)
    assert.same({{4}, {4, 3}}, {a.shape, b.shape})
  end)

  it("says what is wrong", function()
    helper.raises("[E_SHAPE] vectorize: dim 'm' has size 4 in argument 2, and 3 in argument 1", f,
      ml.zeros {2, 3}, ml.zeros {4})
    helper.raises("[E_SHAPE] vectorize: argument 1 is float32[2]; the signature gives it 2 dims", f,
      ml.zeros {2}, ml.zeros {2})
    helper.raises("[E_SHAPE] vectorize: the dims in front of those that the function takes do not meet: 5 "
      .. "and 4", f, ml.zeros {5, 2, 3}, ml.zeros {4, 3})
    helper.raises("[E_VALUE] vectorize: '(n,m),(m)->(n)' is of 2 arguments, 1 given", function()
      return ml.vectorize(matvec, {signature = "(n,m),(m)->(n)"})(ml.zeros {2, 3})
    end)
    helper.raises("[E_VALUE] vectorize: '(n->()' is not a signature such as '(n,m),(m)->(n)'",
      ml.vectorize, matvec, {signature = "(n->()"})
    helper.raises("[E_SHAPE] vectorize: dim 'n' has size 3 in result 1, and 2 in argument 1",
      ml.vectorize(function(p) return ml.concat {p, p:slice {1, 1}} end, {signature = "(n)->(n)"}),
      ml.zeros {2})
  end)
end)
