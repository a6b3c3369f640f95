-- devices: 8
-- propagate_spec.lua: which layout every value gets: user priorities, the stages, open dims, constraints as
-- results and as statements, groups, barriers.
local helper = require "spec.helper"
local ml = require "meshlua"
local core, P, NamedSharding = ml.core, ml.P, ml.NamedSharding

local file = "tests/spec/layout/propagate_spec.lua"
local mesh = ml.make_mesh({4, 2}, {"x", "y"})

local function on(...) return NamedSharding(mesh, P(...)) end

--- A tensor of 8 by 8 that lies as the entries say.
local function square(...) return ml.device_put(ml.arange(64.0):reshape {8, 8}, on(...)) end

--- The lines "op type" that --dump=propagate gives for the call, without parameters and sources.
local function layouts(fn, ...)
  local out, lines = os.tmpname(), {}
  core.clear_plans()
  core.dump("propagate:" .. out)
  local ok, message = pcall(ml.jit(fn), ...)
  core.dump()
  for line in io.lines(out) do
    local name, type = line:match "^%%[%d%%, ]+ = (%S+) .*: (%S+%]%S*)"
    if name and name ~= "param" and name ~= "full" then lines[#lines + 1] = name .. " " .. type end
  end
  os.remove(out)
  if not ok then error(message, 0) end
  return lines
end

local function check(expected, fn, ...) assert.same(expected, layouts(fn, ...)) end

describe("user priorities", function()
  local function add(a, b) return a + b end

  it("without any the first operand's axis is met first", function()
    check({"add float32[8@x,8]"}, add, square("x"), square(nil, "x"))
    check({"add float32[8,8@x]"}, add, square(nil, "x"), square("x"))
  end)

  it("what has priority 0 has gone everywhere before what has 1 begins", function()
    check({"add float32[8,8@x]"}, add, square {"x", priority = 1}, square(nil, "x"))
    check({"add float32[8@x,8]"}, add, square("x"), square(nil, {"x", priority = 1}))
    check({"exp float32[8,8@x]", "add float32[8,8@x]", "mul float32[8,8@x]"},
      function(a, b) return (a:exp() + a) * b end, square {"x", priority = 1}, square(nil, "x"))
  end)

  it("1 goes before 2", function()
    check({"add float32[8,8@x]"}, add, square {"x", priority = 2}, square(nil, {"x", priority = 1}))
    check({"add float32[8@x,8]"}, add, square {"x", priority = 1}, square(nil, {"x", priority = 2}))
  end)

  it("are of dims: another dim of the same tensor speaks at once", function()
    check({"add float32[8@x,8@y]"}, add, square("x", {"y", priority = 1}), square())
    check({"add float32[8@x,8@y]"}, add, square({"x", priority = 1}, "y"), square(nil, "x"))
  end)

  it("a dim that waits keeps its axes from the others, and is not overridden", function()
    local function step(a, b)
      local y = a:constrain(NamedSharding(mesh, P({"x", priority = 1}, P.unconstrained)))
      return y + b
    end
    check({"constrain float32[8@x,8]", "add float32[8,8@x]"}, step, square(), square(nil, "x"))
    check({"constrain float32[8@x,8@y]", "add float32[8@x,8@y]"}, step, square(), square(nil, "y"))
  end)

  it("come before the difference of data and weights", function()
    local w = ml.nn.Param(square(nil, "x"))
    check({"add float32[8@x,8]"}, function(a) return a + w end, square("x"))
    check({"add float32[8,8@x]"}, function(a) return a + w end, square {"x", priority = 1})
  end)

  it("stay with the tensor, and print", function()
    local x = square({"x", priority = 2})
    assert.equal('P({"x",priority=2}, nil)', tostring(x.sharding.spec))
    assert.equal("float32[8@x,8]", ml.typeof(x))
    assert.is_true(P {"x", priority = 2} ~= P "x")
    assert.is_true(on {"x", priority = 0} == on "x")
  end)

  it("that are none are errors", function()
    for _, wrong in ipairs {-1, 256, 0.5, "1", true} do
      helper.raises("[E_SPEC] P: entry 1: priority is a whole number from 0 to 255", P,
        {"x", priority = wrong})
    end
    helper.raises("[E_SPEC] P: entry 2: unknown option 'prio'; there are", P, nil, {"x", prio = 1})
    helper.raises("[E_SPEC] P: entry 1: open is true or false, not number", P, {"x", open = 1})
  end)
end)

describe("open dims", function()
  it("P.unconstrained takes what comes, a closed dim nothing", function()
    local function to(...)
      local spec = P(...)
      return function(a) return a:constrain(NamedSharding(mesh, spec)) end
    end
    check({"constrain float32[8@x,8@y]"}, to(P.unconstrained, P.unconstrained), square("x", "y"))
    check({"constrain float32[8,8@y]"}, to(nil, P.unconstrained), square("x", "y"))
    check({"constrain float32[8,8]"}, to(nil, nil), square("x", "y"))
    check({"constrain float32[8@x,8]"}, to "x", square {"x", "y"})
    check({"constrain float32[8@(x,y),8]"}, to {"x", open = true}, square {"x", "y"})
    check({"constrain float32[8@x,8]"}, to {"x", open = true}, square {"y", "x"})
  end)
end)

describe("stages", function()
  it("agreement goes before conflict: the common prefix first", function()
    check({"add float32[8@(x,y),8]"}, function(a, b) return a + b end, square {"x", "y"}, square "x")
  end)

  it("a simple op that is used once goes first", function()
    -- exp is elementwise; the product's inner dim would have it by columns.
    check({"exp float32[8@x,8]", "matmul float32[8@x,8]"}, function(a, w) return a:exp():matmul(w) end,
      square "x", square("x"))
  end)

  it("the largest source wins a conflict", function()
    local small = ml.device_put(ml.ones {1, 8}, on(nil, "x"))
    check({"broadcast float32[8@x,8]", "add float32[8@x,8]"},
      function(a, b) return a + b end, square "x", small)
  end)

  it("a source stands once per use, in the layout of the use", function()
    check({"iota int32[8@x]", "add int32[8@x]", "iota int32[8@y]", "add int32[8@y]"},
      function(a, b)
        local i = ml.arange(8)
        return a + i, b + i
      end, ml.device_put(ml.arange(8), on "x"), ml.device_put(ml.arange(8), on "y"))
  end)

  it("parts of axes are inside only: heads are split, results are whole axes", function()
    local x = ml.device_put(ml.ones {4, 16}, on(nil, {"x", "y"}))
    check({"reshape float32[4,8@(x,y),2]"}, function(a) return a:reshape(4, 8, 2) end, x)
    check({"reshape float32[4,2@x:(1)2,8@(x:(2)2,y)]", "constrain float32[4,2,8]"},
      function(a) return a:reshape(4, 2, 8) end, x)
  end)
end)

describe("a constraint", function()
  it("whose result is taken binds what is made of it", function()
    check({"mul float32[8@x,8@y]", "constrain float32[8,8@y]", "add float32[8,8@y]"},
      function(a) return (a * 2):constrain(on(nil, "y")) + 1 end, square "x")
  end)

  it("reaches its only maker", function()
    check({"matmul float32[8@x,8@y]", "constrain float32[8@x,8@y]"},
      function(a, w) return a:matmul(w):constrain(on("x", "y")) end, square(), square())
  end)

  it("as a statement binds the value: what comes later uses it so", function()
    check({"mul float32[8@x,8@y]", "exp float32[8@x,8@y]", "constrain float32[8,8@y]", "add float32[8,8@y]"},
      function(a)
        local y = a * 2
        local before = y:exp()
        y:constrain(on(nil, "y"))
        return before, y + 1
      end, square "x")
  end)

  it("a chain of statements ends where its last says", function()
    check({"constrain float32[8,8@y]", "constrain float32[8@y,8]", "add float32[8@y,8]"},
      function(a)
        a:constrain(on(nil, "y")):constrain(on "y")
        return a + 1
      end, square "x")
  end)

  it("as a statement behind the last use moves nothing", function()
    check({"mul float32[8@x,8]"}, function(a)
      local y = a * 2
      a:constrain(on(nil, "y"))
      return y
    end, square "x")
  end)

  it("that contradicts another statement on the value is an error that names both lines", function()
    local step = ml.jit(function(a)
      local y = a * 2
      y:constrain(on(nil, "y"))
      y:constrain(on "x")
      return y + 1
    end)
    local line = debug.getinfo(1, "l").currentline - 5
    helper.raises(('[E_SPEC] constrain: one value is to lie as P(nil, "y") at %s:%d, and P("x", nil) at '
      .. "%s:%d; remove one of the two constraints"):format(file, line + 1, file, line + 2), step, square "x")
    -- The same twice, or of dims that the other leaves open, is no contradiction.
    check({"mul float32[8@x,8@y]", "constrain float32[8@x,8@y]", "constrain float32[8@x,8@y]",
      "add float32[8@x,8@y]"},
      function(a)
        local y = a * 2
        y:constrain(on("x", P.unconstrained))
        y:constrain(on(P.unconstrained, "y"))
        return y + 1
      end, square "x")
  end)
end)

describe("shard_alike", function()
  it("gives both one layout, whoever has one", function()
    local function alike(a, b) return ml.shard_alike(a * 2, b * 3) end
    check({"mul float32[8@x,8]", "mul float32[8@x,8]", "shard_alike float32[8@x,8]",
      "shard_alike float32[8@x,8]"},
      alike, square "x", square())
    check({"mul float32[8,8@y]", "mul float32[8,8@y]", "shard_alike float32[8,8@y]",
      "shard_alike float32[8,8@y]"},
      alike, square(), square(nil, "y"))
    local p, q = ml.jit(alike)(square "x", square(nil, "x"))
    assert.equal(ml.typeof(p), ml.typeof(q))
    helper.close(square() * 3, q)
  end)

  it("of what is asked to lie differently is an error that names both lines", function()
    local step = ml.jit(function(a, b)
      local p = a:constrain(on "x")
      local q = b:constrain(on "y")
      return ml.shard_alike(p, q)
    end)
    local line = debug.getinfo(1, "l").currentline - 4
    helper.raises(('[E_SPEC] shard_alike: tensors in one layout are to lie as P("x", nil) at %s:%d, and '
      .. 'P("y", nil) at %s:%d; remove one of the two constraints'):format(file, line, file, line + 1), step,
      square(), square())
  end)

  it("costs nothing where both agree, and sends gradients on", function()
    local step = ml.jit(function(a, b) return ml.shard_alike(a, b) end)
    step(square "x", square "x")
    assert.equal(0, #step:plan(square "x", square "x"):collectives())
    local g = ml.jit(ml.grad(function(a)
      local p, q = ml.shard_alike(a * 2, a * 3)
      return (p + q):sum()
    end))(square "x")
    helper.close(ml.full({8, 8}, 5.0), g)
  end)
end)

describe("propagation_barrier", function()
  it("lets no layout through, either way", function()
    check({"mul float32[8@x,8]", "propagation_barrier float32[8,8]", "add float32[8,8]"},
      function(a) return ml.propagation_barrier(a * 2) + 1 end, square "x")
    check({"mul float32[8,8]", "propagation_barrier float32[8@x,8]", "constrain float32[8@x,8]"},
      function(a) return ml.propagation_barrier(a * 2):constrain(on "x") end, square())
    helper.close(square() * 2 + 1,
      ml.jit(function(a) return ml.propagation_barrier(a * 2) + 1 end)(square "x"))
  end)
end)

describe("what a Param's layout asks of its gradient and its new value", function()
  local nn = ml.nn
  local Heads = nn.module "Heads"
  function Heads:init(rngs)
    self.attn = nn.MultiHeadAttention(32, 4, {rngs = rngs, axes = {"embed", "heads"}, causal = true})
    self.norm = nn.LayerNorm(32, {rngs = rngs, axes = {"embed"}})
  end
  function Heads:__call(x) return x + self.attn(self.norm(x)) end

  it("waits for the data: a split bias splits no activation", function()
    local grid = ml.make_mesh({4, 2}, {"data", "model"})
    local rules = {ml.shard_largest "data", {"heads", "model"}, {"embed", false}}
    local model = ml.init(function(rngs) return Heads(rngs) end, {mesh = grid, rules = rules})
    assert.equal(P("model", "data"), model.attn.query.bias.sharding.spec)
    local opt = ml.optim.adamw(model, {lr = 1e-3})
    local step = ml.jit(function(m, o, x)
      local loss, grads = ml.value_and_grad(function(v) return (v(x) ^ 2):mean() end)(m)
      o:update(m, grads)
      return loss
    end, {mesh = grid, rules = rules})
    local x = ml.ShapeDtypeStruct({64, 128, 32}, "float32", NamedSharding(grid, P "data"))
    for _, c in ipairs(step:plan(model, opt, x):collectives()) do
      assert.not_equal("all_to_all", c.op)
      -- Kernels have 4 KiB; a device's heads of the rows have 128 KiB.
      local bytes = math.max(c.inputs[1].bytes, c.outputs[1].bytes)
      assert(c.op == "all_reduce" or bytes <= 4096, ("%s of %d bytes"):format(c.op, bytes))
    end
  end)
end)

describe("attention", function()
  it("hands the batch's axis on before a later weight asks for it", function()
    check({"attention float32[8@x,4,2,4],", "matmul float32[8@x,4,8]"},
      function(q, w) return ml.einsum("bthd,hdc->btc", ml.nn.attention(q, q, q), w) end,
      ml.device_put(ml.zeros {8, 4, 2, 4}, on "x"), ml.device_put(ml.zeros {2, 4, 8}, on(nil, nil, "x")))
  end)
end)
