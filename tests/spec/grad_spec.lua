-- grad_spec.lua: grad, value_and_grad and vjp: of what, of which arguments, at any order, in and outside of jit. (C2
-- of the checklist of JAX's semantics.)
local helper = require "spec.helper"
local ml = require "meshlua"

local core, nn = ml.core, ml.nn

local function param(t, kind) return core.box_new(t, {kind = kind or "param"}) end
local function list(...) return ml.tensor {...} end

--- What is checked holds in a trace of its own and in one under way.
local function both(name, body)
  it(name, function() body(function(fn, ...) return fn(...) end) end)
  it(name .. ", in jit", function()
    body(function(fn, ...)
      return ml.jit(function(...) return fn(...) end)(...)
    end)
  end)
end

local function square(x) return (x * x):sum() end

describe("a gradient", function()
  both("is of the first argument, unless argnums says of which", function(call)
    local function f(a, b, c) return (a * b * b):sum() + c:sum() end
    local a, b, c = list(1.0, 2.0), list(3.0, 4.0), list(5.0)
    assert.same({9.0, 16.0}, call(ml.grad(f), a, b, c):totable())
    assert.same({6.0, 16.0}, call(ml.grad(f, {argnums = 2}), a, b, c):totable())
    local grads = call(ml.grad(f, {argnums = {3, 1}}), a, b, c)
    assert.equal(2, #grads)
    assert.same({1.0}, grads[1]:totable())
    assert.same({9.0, 16.0}, grads[2]:totable())
    assert.equal(1, #call(ml.grad(f, {argnums = {2}}), a, b, c))
  end)

  both("comes with the value", function(call)
    local loss, grads = call(ml.value_and_grad(square), list(1.0, 2.0))
    assert.equal(5.0, loss:item())
    assert.same({2.0, 4.0}, grads:totable())
  end)

  both("comes with what the function returns behind the loss, if has_aux says so", function(call)
    local model = {w = param(list(1.0))}
    local function f(x) return square(x), {twice = x * 2, name = "aux", model = model}, nil, 3, nil end
    local results = table.pack(call(ml.value_and_grad(f, {has_aux = true}), list(1.0, 2.0)))
    assert.equal(6, results.n)
    assert.same({2.0, 4.0}, results[2]:totable())
    assert.same({2.0, 4.0}, results[3].twice:totable())
    assert.equal("aux", results[3].name)
    assert.equal(model.w, results[3].model.w)
    assert.same({nil, 3, nil}, {results[4], results[5], results[6]})
    local grads, aux = call(ml.grad(f, {has_aux = true}), list(1.0, 2.0))
    assert.same({2.0, 4.0}, grads:totable())
    assert.equal("aux", aux.name)
    helper.raises("[E_GRAD] grad: the function returned 5 values; has_aux = true gives the others back, too",
      call,
      ml.grad(f), list(1.0))
  end)

  both("of a tree is a tree", function(call)
    local t = {a = list(1.0), deep = {list(2.0), "text", list(3.0)}, n = 2}
    local grads = call(ml.grad(function(x) return (x.a * x.deep[1]):sum() * x.n end), t)
    assert.same({4.0}, grads.a:totable())
    assert.same({2.0}, grads.deep[1]:totable())
    assert.same({0.0}, grads.deep[3]:totable())
    assert.is_nil(grads.deep[2])
    assert.is_nil(grads.n)
  end)

  both("of a module is of its Params of kind param", function(call)
    local model = {w = param(list(2.0)), stat = param(list(10.0), "batch_stat"), ids = param(list(1),
      "state")}
    local grads = call(ml.grad(function(m) return (m.w * m.stat * m.ids):sum() end), model)
    assert.same({10.0}, grads.w:totable())
    assert.is_nil(grads.stat)
    assert.is_nil(grads.ids)
  end)

  both("of a Param in two arguments is one", function(call)
    local w = param(list(3.0))
    local grads = call(ml.grad(function(a, b) return (a.w * b.w):sum() end, {argnums = {1, 2}}), {w = w},
      {w = w})
    assert.same({6.0}, grads[1].w:totable())
    assert.same({6.0}, grads[2].w:totable())
    assert.same({3.0}, w:get():totable())
    assert.is_false(w:get():is_traced())
  end)

  both("of a tensor in two arguments is one for each", function(call)
    local x = list(3.0)
    local grads = call(ml.grad(function(a, b) return (a * a * b):sum() end, {argnums = {1, 2}}), x, x)
    assert.same({18.0}, grads[1]:totable())
    assert.same({9.0}, grads[2]:totable())
  end)

  both("of a Param itself", function(call)
    assert.same({2.0, 4.0}, call(ml.grad(square), param(list(1.0, 2.0))):totable())
  end)

  it("of a number is of a float scalar", function()
    assert.equal(6.0, ml.grad(function(x) return x * x end)(3):item())
    assert.equal(6.0, ml.grad(function(x) return x * x end)(3.0):item())
  end)

  both("does not go through stop_gradient", function(call)
    assert.same({2.0}, call(ml.grad(function(x) return (ml.stop_gradient(x) * x):sum() end),
      list(2.0)):totable())
    assert.same({0.0}, call(ml.grad(function(x) return ml.stop_gradient(x * x):sum() end),
      list(2.0)):totable())
  end)

  both("is zero where the loss does not depend on it", function(call)
    assert.same({0.0, 0.0}, call(ml.grad(function() return ml.tensor(1.0) end), list(1.0, 2.0)):totable())
    assert.same({0.0}, call(ml.grad(function(x) return x:gt(0):astype "float32":sum() end),
      list(2.0)):totable())
  end)

  both("has the dtype of what it is the gradient of", function(call)
    for _, dtype in ipairs {"float32", "bfloat16", "float16", "float64"} do
      assert.equal(dtype, call(ml.grad(function(x) return x:astype "float32":sum() end),
        ml.ones({2}, dtype)).dtype)
    end
  end)

  both("sees what the function writes to Params", function(call)
    local model = {w = param(list(2.0)), n = param(list(0.0), "state")}
    local grads = call(function(m)
      return ml.grad(function(net)
        net.n:set(net.n + 1)
        net.w:set(net.w * 3)
        return (net.w * net.w):sum()
      end)(m)
    end, model)
    assert.same({36.0}, grads.w:totable())
    assert.same({6.0}, model.w:get():totable())
    assert.same({1.0}, model.n:get():totable())
  end)

  both("can be taken of a gradient", function(call)
    local function cube(x) return (x ^ 3):sum() end
    local second = ml.grad(function(x) return ml.grad(cube)(x):sum() end)
    local third = ml.grad(function(x) return second(x):sum() end)
    assert.same({12.0, 18.0}, call(second, list(2.0, 3.0)):totable())
    assert.same({6.0, 6.0}, call(third, list(2.0, 3.0)):totable())
    local model = {w = param(list(2.0))}
    local of_module = ml.grad(function(m)
      return ml.grad(function(net) return cube(net.w) end)(m).w:sum()
    end)
    assert.same({12.0}, call(of_module, model).w:totable())
    assert.same({2.0}, model.w:get():totable())
  end)

  it("runs through the plan found by content", function()
    local f = ml.grad(function(x) return (x:sin() * 3):sum() end)
    f(list(1.0))
    local before = core.memory().live
    for i = 1, 20 do f(list(i + 0.0)) end
    collectgarbage()
    collectgarbage()
    assert.is_true(core.memory().live <= before)
  end)

  it("is that of differences, through a module", function()
    local model = ml.init(function(rngs)
      return {up = nn.Linear(3, 4, {rngs = rngs}), down = nn.Linear(4, 1, {rngs = rngs})}
    end, {seed = 1})
    local x = ml.random.normal(ml.random.key(2), {5, 3})
    local function loss(m) return (m.down(nn.gelu(m.up(x))) ^ 2):mean() end
    local grads, eps = ml.grad(loss)(model), 1e-2
    local kernel = model.up.kernel:get()
    local bump = ml.zeros({3, 4}):totable()
    bump[2][3] = eps
    model.up.kernel:set(kernel + ml.tensor(bump))
    local above = loss(model):item()
    model.up.kernel:set(kernel - ml.tensor(bump))
    local below = loss(model):item()
    helper.close((above - below) / (2 * eps), grads.up.kernel:totable()[2][3], 1e-3)
  end)
end)

describe("vjp", function()
  both("gives the result and its pullback", function(call)
    local y, a, b = call(function(x, w)
      local y, pull = ml.vjp(function(p, q) return p * q * q end, x, w)
      return y, pull(list(1.0, 10.0))
    end, list(1.0, 2.0), list(3.0, 4.0))
    assert.same({9.0, 32.0}, y:totable())
    assert.same({9.0, 160.0}, a:totable())
    assert.same({6.0, 160.0}, b:totable())
  end)

  both("pulls back as often as is asked", function(call)
    local a, b = call(function(x)
      local _, pull = ml.vjp(function(p) return p * p end, x)
      return pull(list(1.0, 0.0)), (pull(list(0.0, 1.0)))
    end, list(3.0, 5.0))
    assert.same({6.0, 0.0}, a:totable())
    assert.same({0.0, 10.0}, b:totable())
  end)

  both("refuses a cotangent that is not like the result", function(call)
    local function pull_with(ct)
      return function(x)
        local _, pull = ml.vjp(function(p) return p * p end, x)
        return pull(ct)
      end
    end
    local x = list(1.0, 2.0)
    helper.raises("[E_GRAD] vjp: the cotangent is float32[3], the result float32[2]", call,
      pull_with(list(1.0, 2.0, 3.0)),
      x)
    helper.raises("[E_GRAD] vjp: the cotangent is int32[2]", call, pull_with(list(1, 2)), x)
    helper.raises("[E_GRAD] vjp: expected a cotangent like float32[2], got nil", call, pull_with(nil), x)
    helper.raises("[E_GRAD] vjp: expected a cotangent like float32[2], got a number", call, pull_with(1.0), x)
    helper.raises("[E_GRAD] vjp: the function returned 0 values", call,
      function(a) return ml.vjp(function() end, a) end, x)
    helper.raises("[E_GRAD] vjp: the function returned 2 values", call,
      function(a) return ml.vjp(function() return a, a end, a) end, x)
    helper.raises("gradients are of floats", call, function(a)
      return ml.vjp(function(b) return b:astype "int32" end, a)
    end, x)
  end)
end)

describe("gradients refuse", function()
  both("a loss that is no float scalar", function(call)
    local x = list(1.0, 2.0)
    helper.raises("[E_GRAD] grad: the loss is float32[2]; it must be a float scalar (use :mean() or :sum())",
      call,
      ml.grad(function(a) return a * 2 end), x)
    helper.raises("the loss is float32[1]", call, ml.grad(function(a) return a:sum(1, true) end), x)
    helper.raises("the loss is int32[]", call, ml.grad(function(a) return a:astype "int32":sum() end), x)
    helper.raises("[E_GRAD] grad: the function returned a number; the loss must be a tensor", call,
      ml.grad(function() return 1.0 end), x)
    helper.raises("the function returned nil", call, ml.grad(function() end), x)
    helper.raises("the function returned a table", call, ml.grad(function(a) return {a:sum()} end), x)
  end)

  both("what is no float", function(call)
    helper.raises("[E_GRAD] grad: argument 1 is int32[2]; gradients are of floats", call,
      ml.grad(function(x) return x:astype "float32":sum() end), list(1, 2))
    helper.raises("[E_GRAD] grad: argument 2 at a.1 is bool[1]", call,
      ml.grad(function(x) return x:sum() end, {argnums = 2}), list(1.0), {a = {list(true)}})
    helper.raises("[E_GRAD] grad: argument 1 holds nothing to differentiate", call,
      ml.grad(function(x) return x end), {})
    helper.raises("[E_GRAD] value_and_grad: argument 1 holds nothing to differentiate", call,
      ml.value_and_grad(function(x) return x end), "text")
    helper.raises("holds nothing to differentiate", call, ml.grad(function(m) return m.n:sum() end),
      {n = param(list(1.0), "state")})
  end)

  it("arguments that are not there, and unknown options", function()
    local f = function(x) return x:sum() end
    helper.raises("[E_VALUE] grad: argument 2 of 1", ml.grad(f, {argnums = 2}), list(1.0))
    helper.raises("positions count from 1", ml.grad, f, {argnums = 0})
    helper.raises("positions count from 1", ml.grad, f, {argnums = {1, 1.5}})
    helper.raises("argnums is a 1-based position or a list of them", ml.grad, f, {argnums = {}})
    helper.raises("argnums is a 1-based position or a list of them", ml.grad, f, {argnums = "1"})
    helper.raises("argument 1 is listed twice", ml.grad, f, {argnums = {1, 1}})
    helper.raises("unknown option 'argnum'; did you mean 'argnums'?", ml.grad, f, {argnum = 1})
    helper.raises("unknown option 'aux'", ml.value_and_grad, f, {aux = true})
    helper.raises("[E_VALUE] grad: expected a function, got nil", ml.grad)
    helper.raises("[E_VALUE] vjp: expected a function, got a Tensor", ml.vjp, list(1.0))
    local cyclic = {list(1.0)}
    cyclic[2] = cyclic
    helper.raises("contains itself", ml.grad(f), cyclic)
  end)
end)
