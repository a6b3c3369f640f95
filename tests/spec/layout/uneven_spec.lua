-- devices: 8
-- uneven_spec.lua: dims that their axes do not divide: an error, or padded, or left whole, as the P says. That
-- every op is right with padded operands is a matter of spec/op/sharded_spec.lua.
local helper = require "spec.helper"
local ml = require "meshlua"

local P, NamedSharding = ml.P, ml.NamedSharding
local mesh = ml.make_mesh({4, 2}, {"x", "y"})

local function on(...) return NamedSharding(mesh, P(...)) end
local padded = on {"x", uneven = "pad"}

local function calls(step, ...)
  local list = {}
  for i, c in ipairs(step:plan(...):collectives()) do list[i] = ("%s %g"):format(c.op, c.sent) end
  return list
end

describe("uneven = \"pad\"", function()
  local x = ml.device_put(ml.arange(17.0), padded)

  it("adds nothing to a sum, a maximum or a minimum, in any dtype", function()
    for _, dtype in ipairs {"float32", "float64", "float16", "bfloat16", "int32", "int64"} do
      local low = ml.device_put(ml.astype(ml.arange(17) - 20, dtype), padded) -- -20 .. -4
      local high = ml.device_put(ml.astype(ml.arange(17) + 3, dtype), padded) -- 3 .. 19
      assert.equal(-4, low:max():item(), dtype)
      assert.equal(-20, low:min():item(), dtype)
      assert.equal(3, high:min():item(), dtype)
      assert.equal(19, high:max():item(), dtype)
      assert.near(187, high:sum():item(), 1, dtype)
    end
    local least = ml.tensor({math.mininteger, math.mininteger + 1, math.mininteger + 2}, "int64")
    assert.equal(math.mininteger + 2, ml.device_put(least, padded):max():item())
    assert.equal(math.maxinteger - 2, ml.device_put(ml.bitnot(least), padded):min():item())
  end)

  it("keeps the logical size and the values", function()
    assert.same({17}, x.shape)
    assert.equal("float32[17@x]", ml.typeof(x))
    assert.equal('P({"x",uneven="pad"})', tostring(x.sharding.spec))
    assert.same(ml.arange(17.0):totable(), x:totable())
    assert.equal(ml.arange(17.0):bytes(), x:bytes())
    assert.equal(16.0, x:max():item())
  end)

  it("gives every device ceil(size / parts), the last ones less that counts", function()
    local sizes = {}
    for i, shard in ipairs(x:addressable_shards()) do
      sizes[i] = shard.index[1][2] - shard.index[1][1] + 1
      assert.equal(sizes[i], shard.data.size)
    end
    assert.same({5, 5, 5, 5, 5, 5, 2, 2}, sizes)
    assert.same({5}, padded:shard_shape {17})
    local few = ml.device_put(ml.arange(2.0), padded) -- half of the devices hold nothing but padding
    assert.same({0.0, 1.0}, few:totable())
    assert.equal(1.0, (few * 3):sum():item() / 3)
  end)

  it("stays in parts where only the place or the name of values is another", function()
    local z = ml.device_put(ml.random.normal(ml.random.key(1), {17, 6}), on({"x", uneven = "pad"}, nil))
    local function f(v) return (ml.sin(ml.sin(v) * 2) * v):sum() end
    local step = ml.jit(ml.grad(ml.remat(f)))
    assert.same(ml.grad(f)(ml.tensor(z:totable())):totable(), step(z):totable())
    assert.same({}, calls(step, z))
    local flipped = ml.jit(function(v) return v:flip(2) end)
    assert.same({}, calls(flipped, z))
    assert.equal("float32[17@x,6]", ml.typeof(flipped(z)))
    assert.same(ml.flip(ml.tensor(z:totable()), 2):totable(), flipped(z):totable())
  end)

  it("stays in parts through an optimizer's update, dropout, rope and attention", function()
    local key = ml.random.key(1)
    local Table = ml.nn.module("Table")
    function Table:init(w) self.w = ml.nn.Param(w) end
    function Table:__call() return (self.w * self.w):mean() end
    local function trained(w)
      local m = Table(w)
      local opt = ml.optim.adamw(m, {lr = 0.1})
      local step = ml.jit(function(model, o)
        local loss, grads = ml.value_and_grad(function(t) return t() end)(model)
        o:update(model, grads)
        return loss
      end)
      step(m, opt)
      return calls(step, m, opt), m.w:totable()
    end
    local w = ml.random.normal(key, {17, 4})
    local sent, split = trained(ml.device_put(w, on({"x", uneven = "pad"}, nil)))
    local _, whole = trained(w)
    assert.same({"all_reduce 6"}, sent) -- the loss
    assert.same(whole, split)

    local q = ml.random.normal(key, {5, 6, 2, 8})
    local step = ml.jit(function(v)
      v = ml.core.op.rope(v, ml.arange(6), {base = 10000.0, sign = 1.0})
      local masked = ml.nn.attention(v, v, v, {dropout = 0.5, key = key})
      return ml.nn.dropout(ml.nn.attention(v, v, v, {causal = true}) + masked, 0.5, key)
    end)
    local parts = ml.device_put(q, on({"x", uneven = "pad"}, nil, nil, nil))
    local y = step(parts)
    assert.same({}, calls(step, parts))
    assert.same(step(q):totable(), y:totable())
  end)

  it("is what it was where the axes divide", function()
    assert.equal('P("x")', tostring(ml.device_put(ml.arange(16.0), padded).sharding.spec))
  end)

  it("propagates, sends nothing through elementwise ops, and one sum for a reduction", function()
    local step = ml.jit(function(a) return (a * 2 + 1):exp() end)
    assert.equal("float32[17@x]", ml.typeof(step(x)))
    assert.same({}, calls(step, x))
    local total = ml.jit(function(a) return a:sum() end)
    assert.equal(136.0, total(x):item())
    assert.same({"all_reduce 6"}, calls(total, x)) -- 4 bytes, 2 * 3/4 of them
  end)

  it("of the inner dim of a product: both operands are masked, partial sums added", function()
    local a, b = ml.arange(6 * 17.0):reshape {6, 17} / 8, ml.arange(17 * 5.0):reshape {17, 5} / 8
    local step = ml.jit(function(p, q) return p:matmul(q) end)
    local p, q = ml.device_put(a, on(nil, {"x", uneven = "pad"})), ml.device_put(b, padded)
    helper.close(a:matmul(b), step(p, q))
    assert.same({"all_reduce 180"}, calls(step, p, q)) -- 30 float32, 2 * 3/4
    -- The rows of the result are the padded ones, too; nothing is sent.
    local rows = ml.device_put(ml.arange(17 * 6.0):reshape {17, 6} / 8, padded)
    assert.equal("float32[17@x,17]", ml.typeof(step(rows, a)))
    assert.same({}, calls(step, rows, a))
  end)

  it("reaches no result: infinity times padding, its maximum and minimum, its gradient", function()
    local step = ml.jit(function(a)
      local apart = a - a:mean()
      return (a * math.huge):min(), (0 - a):max(), (a / a):isfinite():sum(), apart:square():mean()
    end)
    local y = ml.arange(17.0) + 1
    local got, want = {step(ml.device_put(y, padded))}, {step(y)}
    for i = 1, #want do helper.close(want[i], got[i]) end
    local g = ml.jit(ml.grad(function(a) return ((a:log() * a):sum() + a:max()) end))
    helper.close(g(y), g(ml.device_put(y, padded)))
  end)

  it("goes anywhere else, and comes from anywhere", function()
    local base, specs = ml.arange(6 * 17.0):reshape {6, 17}, {}
    local pads = {P.none, {"x", uneven = "pad"}, {"y", uneven = "pad"}, {"y", "x", uneven = "pad"}}
    for _, a in ipairs(pads) do
      for _, b in ipairs(pads) do
        local ok, spec = pcall(function() return on(a, b) end)
        if ok then specs[#specs + 1] = spec end
      end
    end
    assert.equal(9, #specs)
    local everywhere = ml.jit(function(t)
      local out = {}
      for i, spec in ipairs(specs) do out[i] = t:constrain(spec) end
      return out
    end)
    for _, from in ipairs(specs) do
      for i, y in ipairs(everywhere(ml.device_put(base, from))) do
        assert.is_true(y.sharding == specs[i])
        assert.equal(base:bytes(), y:bytes())
      end
    end
  end)

  it("is known in rules, and in jit's shardings", function()
    local rules = {{"vocab", "x", uneven = "pad"}, {"late", "y", priority = 1},
      {"odd", "y", uneven = "replicate"}}
    local function spec_of(names) return tostring(ml.ones({17, 2}):constrain(names).sharding.spec) end
    mesh:with(rules, function()
      assert.equal('P({"x",uneven="pad"}, nil)', spec_of {"vocab"})
      assert.equal('P(nil, {"y",priority=1})', spec_of {nil, "late"})
      assert.equal('P({"y",uneven="replicate"}, nil)', spec_of {"odd"})
    end)
    local step = ml.jit(function(a) return a + 1 end, {in_shardings = {padded}, out_shardings = {padded}})
    assert.same((ml.arange(17.0) + 1):totable(), step(ml.arange(17.0)):totable())
    assert.equal("float32[17@x]", ml.typeof(step(ml.arange(17.0))))
  end)

  it("of a loop's state: ten steps of a padded weight equal those on one device", function()
    local function train(w, a)
      local function loss(t) return (a:matmul(t) - 1):square():mean() end
      for _ = 1, 10 do w = w - 0.01 * ml.grad(loss)(w) end
      return w
    end
    local w, a = ml.ones {17, 3} / 4, ml.arange(5 * 17.0):reshape {5, 17} / 32
    helper.close(train(w, a), ml.jit(train)(ml.device_put(w, padded), a), 1e-5)
  end)
end)

describe("uneven = \"replicate\"", function()
  it("leaves the dim whole, and the sharding says so", function()
    local whole = on({"x", uneven = "replicate"}, "y")
    local y = ml.device_put(ml.ones {17, 4}, whole)
    assert.equal("float32[17,4@y]", ml.typeof(y))
    assert.equal('P({"x",uneven="replicate"}, "y")', tostring(y.sharding.spec))
    assert.equal("float32[16@x,4@y]", ml.typeof(ml.device_put(ml.ones {16, 4}, whole)))
    local step = ml.jit(function(a) return a:constrain(whole) end)
    local z = ml.device_put(ml.ones {17, 4}, on({"x", uneven = "pad"}, "y"))
    step(z)
    local why = step:plan(z):collectives()[1].why
    assert.truthy(why:find('asked for here: P({"x",uneven="replicate"}, "y")', 1, true))
  end)
end)

describe("uneven", function()
  it("is an error where nothing is said, with the smallest fix", function()
    helper.raises("[E_INDIVISIBLE] device_put: dim 1 has size 17, which mesh axis x of size 4 does not "
      .. "divide; use a size of 20 or leave the dim whole, or say what then: {axis, uneven = \"pad\"}",
      ml.device_put, ml.ones {17}, on "x")
    helper.raises("dim 1 has size 17", ml.device_put, ml.ones {17}, on {"x", uneven = "error"})
  end)

  it("is one of three words", function()
    helper.raises('[E_SPEC] P: entry 1: uneven is "error", "pad" or "replicate"', P, {"x", uneven = "padded"})
    helper.raises('[E_SPEC] P: entry 1: uneven is "error", "pad" or "replicate"', P, {"x", uneven = true})
    helper.raises("[E_SPEC] P: entry 1 names no axis", P, {uneven = "pad"}, nil)
  end)
end)
