-- module_spec.lua: classes of modules, Params, streams of keys, training and evaluation, Sequential.
local ml = require "meshlua"
local helper = require "spec.helper"
local oracle = require "spec.oracle"

local nn, P = ml.nn, ml.P

local MLP = nn.module "MLP"
function MLP:init(sizes, rngs)
  self.layers = {}
  for i = 1, #sizes - 1 do self.layers[i] = nn.Linear(sizes[i], sizes[i + 1], {rngs = rngs}) end
  self.dropout = nn.Dropout(0.5)
end
function MLP:__call(x, rngs)
  for i, layer in ipairs(self.layers) do
    x = layer(x)
    if i < #self.layers then x = self.dropout(nn.relu(x), rngs) end
  end
  return x
end
function MLP:count() return #self.layers end

describe("nn.module", function()
  it("makes classes with init, __call and methods", function()
    local mlp = MLP({4, 8, 2}, nn.Rngs(0))
    assert.is_true(nn.is_module(mlp))
    assert.is_false(nn.is_module {})
    assert.equal(2, mlp:count())
    assert.same({3, 2}, mlp:eval()(ml.ones {3, 4}).shape)
    assert.equal("nn.module MLP", tostring(MLP))
  end)

  it("a class may have __tostring, and no other metamethod", function()
    local Named = nn.module "Named"
    function Named:init(name) self.name = name end
    function Named:__tostring() return "<" .. self.name .. ">" end
    assert.equal("<a>", tostring(Named "a"))
    helper.raises("E_KEY", function() function Named.__index() end end)
    helper.raises("E_VALUE", nn.module)
    helper.raises("has no init", nn.module "Empty", 3)
  end)

  it("prints its tree with types, axes, kinds and shared Params", function()
    local shared = nn.Param(ml.zeros {2, 3}, {axes = {"embed", false}})
    local Pair = nn.module "Pair"
    function Pair:init()
      self.a, self.b, self.rate = {w = shared}, {w = shared}, 0.5
      self.mean = nn.Param(ml.zeros {3}, {kind = "batch_stat", axes = P "model"})
    end
    assert.equal([[
Pair(rate = 0.5)
  a: table
    w: float32[2,3]  {embed, -}
  b: table
    w: the same as w
  mean: float32[3]  P("model")  batch_stat]], tostring(Pair()))
  end)

  it("names the ops inside by the module's path and the user's line", function()
    local mlp = MLP({4, 8, 2}, nn.Rngs(0)):eval()
    local step = ml.jit(function(m, x) return m(x) end)
    local where = {}
    for _, s in ipairs(step:plan(mlp, ml.ones {3, 4}):steps()) do
      for _, text in ipairs(s.where) do where[#where + 1] = text end
    end
    local text = table.concat(where, "\n")
    assert.truthy(text:find("module_spec.lua:%d+ %(.*layers%.1%)"), text)
    assert.truthy(text:find("module_spec.lua:%d+ %(.*layers%.2%)"), text)
  end)

  it("an error inside a layer names the user's line", function()
    local message = helper.raises("E_SHAPE", MLP({4, 2}, nn.Rngs(0)), ml.ones {3, 5})
    assert.truthy(message:find "module_spec.lua:%d+: ", message)
  end)

  it("tied weights give one gradient, the sum of both uses", function()
    local Tied = nn.module "Tied"
    function Tied:init(rngs)
      self.a = nn.Linear(3, 3, {rngs = rngs, use_bias = false})
      self.b = nn.Linear(3, 3, {rngs = rngs, use_bias = false})
      self.b.kernel = self.a.kernel
    end
    function Tied:__call(x) return self.b(self.a(x)) end
    local tied = Tied(nn.Rngs(0))
    local x = oracle.ramp({2, 3}, "float32")
    local grads = ml.grad(function(m) return m(x):sum() end)(tied)
    assert.equal(grads.a.kernel, grads.b.kernel)
    local w = tied.a.kernel:get()
    local both = ml.grad(function(a, b) return x:matmul(a):matmul(b):sum() end, {argnums = {1, 2}})(w, w * 1)
    helper.close(both[1] + both[2], grads.a.kernel, 1e-6)
  end)

  it("train and eval reach every module, and are part of a jitted call's key", function()
    local mlp = MLP({4, 8, 2}, nn.Rngs(0))
    local x = oracle.ramp({3, 4}, "float32")
    local step = ml.jit(function(m, rngs, input) return m(input, rngs) end)
    local rngs = nn.Rngs {dropout = 1}
    local a, b = step(mlp, rngs, x), step(mlp, rngs, x)
    assert.is_string(helper.difference(a, b))
    assert.equal(mlp, mlp:eval())
    assert.is_false(mlp.dropout.training)
    local c, d = step(mlp, rngs, x), step(mlp, rngs, x)
    helper.close(c, d)
    assert.same({2, 2}, {step:stats()})
    mlp:train()
    assert.is_string(helper.difference(c, step(mlp, rngs, x)))
    assert.same({3, 2}, {step:stats()})
  end)
end)

describe("nn.Sequential", function()
  it("calls modules and functions in order", function()
    local first, second = nn.Linear(4, 3, {rngs = nn.Rngs(0)}), nn.Linear(3, 2, {rngs = nn.Rngs(1)})
    local model = nn.Sequential {first, nn.gelu, second}
    local x = oracle.ramp({2, 4}, "float32")
    helper.close(second(nn.gelu(first(x))), model(x))
    local grads = ml.grad(function(m) return m(x):sum() end)(model)
    assert.same({4, 3}, grads[1].kernel.shape)
    assert.same({3, 2}, grads[3].kernel.shape)
    helper.raises("got a Linear", nn.Sequential, first)
    helper.raises("entry 2 is a number", nn.Sequential, {first, 3})
  end)
end)

describe("nn.Param", function()
  it("stands for its tensor in ops", function()
    local p = nn.Param({1, 2, 3})
    assert.same({2, 4, 6}, (p * 2):totable())
    assert.same({3}, p.shape)
    assert.equal(6, p:sum():item())
    assert.equal("param", p.kind)
    p:set(p + 1)
    assert.same({2, 3, 4}, p:get():totable())
  end)

  it("carries free metadata, absent ones are nil", function()
    local p = nn.Param(ml.zeros {2}, {kind = "cache", role = "scale", note = "x"})
    assert.same({"cache", "scale", "x"}, {p.kind, p.role, p.note})
    assert.is_nil(p.axes)
    assert.is_nil(p.opt_axes)
  end)

  it("refuses what cannot be", function()
    helper.raises("E_VALUE", nn.Param, "x")
    helper.raises("E_VALUE", nn.Param, ml.zeros {2}, "param")
    helper.raises("E_VALUE", nn.Param, ml.zeros {2}, {kind = 3})
    helper.raises("E_KEY", nn.Param, ml.zeros {2}, {shape = 1})
    helper.raises("E_KEY", nn.Param, ml.zeros {2}, {set = 1})
    helper.raises("E_KEY", nn.Param, ml.zeros {2}, {"kernel"})
    helper.raises("names dim 3", nn.Param, ml.zeros {2, 2}, {axes = {"a", "b", "c"}})
    helper.raises("E_SPEC", nn.Param, ml.zeros {2}, {axes = "a"})
    helper.raises("E_SPEC", nn.Param, ml.zeros {2}, {axes = {1}})
    helper.raises("E_SPEC", nn.Param, ml.zeros {2}, {axes = P("a", "b")})
    helper.raises("opt_axes", nn.Param, ml.zeros {2}, {opt_axes = {"a", "b"}})
  end)
end)

describe("nn.Rngs", function()
  it("gives flax's keys, stream by stream", function()
    local rngs = nn.Rngs {default = 0, params = 1, dropout = 2}
    for _, row in ipairs(oracle.read "nn".streams) do
      assert.same({math.tointeger(row[2][1]), math.tointeger(row[2][2])}, rngs[row[1]]():totable())
    end
  end)

  it("a stream goes on inside jit, where it is an argument", function()
    local a, b = nn.Rngs(5), nn.Rngs(5)
    local draw = ml.jit(function(rngs) return rngs.params() end)
    for _ = 1, 3 do assert.same(b.params():totable(), draw(a):totable()) end
    assert.equal(3, a.default.count:get():item())
  end)

  it("a name without a stream is an error that names the nearest", function()
    local rngs = nn.Rngs {params = 0}
    helper.raises("did you mean 'params'", function() return rngs.parms() end)
    helper.raises("E_VALUE", nn.Rngs, {})
    helper.raises("E_VALUE", nn.Rngs, "seed")
    helper.raises("E_KEY", nn.Rngs, {0})
  end)

  it("takes keys as well as seeds", function()
    assert.same(nn.Rngs(7).params():totable(), nn.Rngs(ml.random.key(7)).params():totable())
  end)
end)
