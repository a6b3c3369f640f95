-- state_spec.lua: Params and other state under jit and grad: what a trace may change, and that an error in it
-- changes nothing.
local helper = require "spec.helper"
local ml = require "meshlua"

local core, nn = ml.core, ml.nn

local param = helper.param
local function list(...) return ml.tensor {...} end

local traces = helper.traces

describe("an error in a trace", function()
  local function check(body)
    local model = {w = param(list(1.0)), x = list(2.0), n = 3, deep = {y = list(4.0)}}
    local w, x, y = model.w:get(), model.x, model.deep.y
    local on = {false}
    local step = ml.jit(function(m)
      local out = m.w * m.x
      if on[1] then body(m) end
      return out
    end)
    assert.same({2.0}, step(model):totable())
    on[1] = true
    local ok = pcall(step, {w = model.w, x = model.x, n = 4, deep = model.deep}) -- n = 4: to be traced
    assert.falsy(ok)
    on[1] = false
    assert.falsy(core.is_tracing())
    assert.is_true(model.w:get() == w)
    assert.same({1.0}, model.w:get():totable())
    assert.is_true(rawequal(x, model.x))
    assert.is_true(rawequal(y, model.deep.y))
    local hits = select(2, traces(step))
    assert.same({2.0}, step(model):totable())
    assert.equal(hits + 1, (select(2, traces(step)))) -- the trace of before is still there
  end

  it("leaves modules, tables and the cache as before", function()
    check(function() error "raised" end)
    check(function() error {} end)
    check(function(m) return m.x + list(1.0, 2.0, 3.0) + list(1.0, 2.0) end)
    check(function(m)
      m.w:set(m.w * 5)
      error "raised"
    end)
    check(function(m)
      m.x, m.deep.y, m.n, m.new = m.x * 2, nil, 7, m.x
      error "raised"
    end)
    check(function() coroutine.yield() end)
    check(function(m) ml.grad(function(n) return n.w * list(1.0, 2.0) end)(m) end)
  end)

  it("that the function itself catches ends nothing", function()
    local model = {w = param(list(1.0))}
    local step = ml.jit(function(m)
      local ok = pcall(function() return m.w:reshape(5) end)
      assert(not ok)
      m.w:set(m.w + 1)
      return m.w * 2
    end)
    assert.same({4.0}, step(model):totable())
    assert.same({2.0}, model.w:get():totable())
  end)

  it("in a gradient outside of jit leaves Params as before", function()
    local model = {a = param(list(1.0)), b = param(list(2.0))}
    helper.raises("raised", ml.grad(function(m)
      m.a:set(m.a * 3)
      error "raised"
    end), model)
    assert.same({1.0}, model.a:get():totable())
    model.b:get():release()
    helper.raises("E_DELETED", ml.grad(function(m) return (m.a * m.b):sum() end), model)
    assert.same({1.0}, model.a:get():totable())
    assert.is_false(model.a:get():is_traced())
  end)
end)

describe("what a trace may change", function()
  local function refused(wanted, body)
    local deep = {list(2.0)}
    local t = {n = 1, s = "a", flag = true, x = list(1.0), deep = deep}
    local message = helper.raises(wanted, ml.jit(function(a)
      body(a)
      return a.x
    end), t)
    assert.truthy(message:find("[E_STATE]", 1, true), message)
    assert.truthy(message:find("only Params can change (param:set)", 1, true), message)
    assert.same({1.0}, t.x:totable())
    assert.same({2.0}, deep[1]:totable())
  end

  it("is no number, string or boolean of an argument", function()
    refused("now argument.n = 2, before argument.n = 1", function(a) a.n = 2 end)
    refused("now argument.n = 1.0, before argument.n = 1", function(a) a.n = 1.0 end)
    refused("argument.s = b", function(a) a.s = "b" end)
    refused("argument.flag = false", function(a) a.flag = false end)
    refused("argument.flag", function(a) a.flag = nil end)
    refused("argument.new = 1", function(a) a.new = 1 end)
  end)

  it("is no plain tensor of an argument", function()
    refused("argument.x", function(a) a.x = a.x * 1 end)
    refused("argument.deep.1", function(a) a.deep[1] = a.x end)
    refused("argument.y", function(a) a.y = a.x end)
    refused("argument.deep", function(a) a.deep = nil end)
  end)

  it("is no number by so little that its text does not show it", function()
    local t = {n = 0.1, x = list(1.0)}
    helper.raises("E_STATE", ml.jit(function(a)
      a.n = a.n + 2 ^ -56
      return a.x
    end), t)
  end)

  it("is what Lua makes of the order of a table", function()
    -- Texts and keys of several lines, and keys with " = ", stand in one line of what is compared.
    for i = 1, 20 do
      local t = {["x" .. i] = list(1.0), ["s" .. i] = "a\nb", ["k = " .. i] = list(2.0), ["l\n" .. i] = 3}
      local step = ml.jit(function(a)
        setmetatable(a, {})
        for k = 1, 8 do a["t" .. k .. i] = k end
        for k = 1, 8 do a["t" .. k .. i] = nil end
        return a["x" .. i] + a["k = " .. i]
      end)
      assert.same({3.0}, step(t):totable())
    end
  end)

  it("is no Param that is not an argument", function()
    local w = param(list(1.0))
    local hidden = {w = w}
    local message = helper.raises("[E_STATE]", ml.jit(function(x)
      w:set(x)
      return x
    end), list(2.0))
    assert.truthy(message:find("pass what holds it (the model, the optimizer) as an argument", 1, true),
      message)
    helper.raises("[E_STATE]", ml.jit(function(x)
      hidden.w:set(hidden.w + x)
      return x
    end), list(2.0))
    helper.raises("[E_STATE]", ml.jit(function(x) -- also where a gradient has its hand in it
      return ml.grad(function(m)
        m.w:set(m.w * 2)
        return (m.w * x):sum()
      end)(hidden).w
    end), list(2.0))
    assert.same({1.0}, w:get():totable())
  end)

  it("may be read without being an argument, with the values of each call", function()
    local w = param(list(1.0))
    local step = ml.jit(function(x) return x * w end)
    assert.same({2.0}, step(list(2.0)):totable())
    w:set(list(5.0))
    assert.same({10.0}, step(list(2.0)):totable())
    assert.equal(1, (traces(step)))
    w:set(list(5.0, 6.0)) -- another type: traced again, once
    for _ = 1, 3 do assert.same({10.0, 12.0}, step(list(2.0)):totable()) end
    assert.equal(2, (traces(step)))
    assert.equal("a Param that is used without being an argument has another type now", step:why_miss())
    w:set(list(7.0))
    assert.same({14.0}, step(list(2.0)):totable())
    assert.equal(2, (traces(step)))
  end)
end)

describe("tied weights", function()
  local Tied = nn.module "Tied"
  function Tied:init(rngs)
    self.embed = nn.Embed(5, 3, {rngs = rngs})
    self.head = {embedding = self.embed.embedding}
  end
  function Tied:__call(ids) return self.embed(ids):matmul(self.head.embedding:T()) end

  local function loss(model, ids) return (model(ids) ^ 2):mean() end

  it("are one leaf, with one gradient", function()
    local model = ml.init(function(rngs) return Tied(rngs) end)
    local ids = list(0, 3)
    assert.equal(1, #ml.tree.leaves(model))
    local value, grads = ml.jit(ml.value_and_grad(loss))(model, ids)
    assert.is_true(rawequal(grads.embed.embedding, grads.head.embedding))
    -- By a copy of the weights in the second place, the gradient is the sum of two.
    local w = model.embed.embedding:get()
    local two = ml.grad(function(a, b) return (ml.take(a, ids):matmul(b:T()) ^ 2):mean() end,
      {argnums = {1, 2}})
    local parts = two(w, w)
    helper.close((parts[1] + parts[2]):totable(), grads.embed.embedding:totable(), 1e-6)
    assert.is_true(value:item() > 0)
  end)

  it("are one parameter of the plan, updated once", function()
    local model = ml.init(function(rngs) return Tied(rngs) end)
    local before = model.embed.embedding:get()
    local step = ml.jit(function(m)
      for _, box in ipairs(ml.tree.leaves(m)) do box:set(box + 1) end
    end)
    assert.equal(5 * 3 * 4, step:plan(model):memory().arguments)
    step(model)
    helper.close((before + 1):totable(), model.head.embedding:get():totable())
    assert.equal(model.embed.embedding, model.head.embedding)
  end)

  it("trace again when they are tied no longer", function()
    local step = ml.jit(function(m) return m.a * m.b end)
    local w = param(list(2.0))
    assert.same({4.0}, step({a = w, b = w}):totable())
    assert.same({6.0}, step({a = w, b = param(list(3.0))}):totable())
    assert.equal(2, (traces(step)))
  end)
end)

describe("Params and jit", function()
  it("a Param made in the trace cannot be returned", function()
    helper.raises("a Param made inside a jitted function is returned",
      ml.jit(function(x) return param(x) end),
      list(1.0))
  end)

  it("a Param may change its shape", function()
    local m = {w = param(list(1.0))}
    local step = ml.jit(function(model) model.w:set(ml.concat {model.w:get(), list(9.0)}) end)
    step(m)
    assert.same({1.0, 9.0}, m.w:get():totable())
    step(m)
    assert.same({1.0, 9.0, 9.0}, m.w:get():totable())
    assert.equal(2, (traces(step)))
  end)

  it("two Params may exchange their tensors", function()
    local m = {a = param(list(1.0)), b = param(list(2.0))}
    local step = ml.jit(function(model)
      local a = model.a:get()
      model.a:set(model.b)
      model.b:set(a)
    end)
    for _ = 1, 3 do step(m) end
    assert.same({2.0}, m.a:get():totable())
    assert.same({1.0}, m.b:get():totable())
  end)

  it("a Param may get a tensor that is no argument, or one that is", function()
    local outside, m = list(7.0), {a = param(list(1.0)), b = param(list(1.0))}
    local step = ml.jit(function(model, x)
      model.a:set(outside)
      model.b:set(x)
      return x * 2
    end)
    local x = list(3.0)
    for _ = 1, 2 do assert.same({6.0}, step(m, x):totable()) end
    assert.same({7.0}, m.a:get():totable())
    assert.same({3.0}, m.b:get():totable())
    assert.same({7.0}, outside:totable())
    assert.same({3.0}, x:totable())
  end)
end)
