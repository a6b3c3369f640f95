-- devices: 8
-- microbatch_spec.lua: a step's batch in parts: the same loss and gradients, less held, nothing dropped.
local helper = require "spec.helper"
local ml = require "meshlua"

local P, NamedSharding = ml.P, ml.NamedSharding
local mesh = ml.make_mesh({8}, {"data"})

local function loss_of(w, x) return (ml.tanh(x:matmul(w)) ^ 2):mean() end

--- Loss and gradient of a batch in n parts.
local function step(n)
  return ml.jit(function(w, x)
    return ml.accumulate(n, function(part)
      return ml.value_and_grad(function(v) return loss_of(v, part) end)(w)
    end, x)
  end)
end

describe("microbatches", function()
  it("are trees like the batch; all rows are in one of them", function()
    local x = ml.arange(24.0):reshape {6, 4}
    local parts = ml.microbatches({x = x, ids = {ml.arange(6)}}, 3)
    assert.equal(3, #parts)
    assert.same({0, 3}, parts[1].ids[1]:totable())
    assert.same({2, 5}, parts[3].ids[1]:totable())
    assert.same({x:at(2):totable(), x:at(5):totable()}, parts[2].x:totable())
    assert.equal("int32[6]", ml.typeof(ml.microbatches(ml.arange(6), 1)[1]))
  end)

  it("that do not divide the rows are an error that names the tensor: none is dropped", function()
    local batch = {inputs = ml.ones {32, 2}, labels = ml.ones {30}}
    helper.raises("[E_SHAPE] microbatches: labels has 30 rows, which 4 microbatches do not divide; take 28 "
      .. "or 32 rows, or 1, 2, 3, 5, 6, 10, 15, 30 microbatches", ml.microbatches, batch, 4)
    helper.raises("[E_SHAPE] microbatches: the batch has 30 rows", ml.jit(function(x)
      return ml.accumulate(4, function(part) return part:sum() end, x)
    end), ml.ones {30, 2})
    helper.raises("[E_SHAPE] microbatches: the batch is a scalar", ml.microbatches, ml.tensor(1), 1)
    helper.raises("[E_VALUE] microbatches: 0 microbatches", ml.microbatches, ml.ones {4}, 0)
    helper.raises("[E_VALUE] microbatches: how many microbatches must be a whole number", ml.microbatches,
      ml.ones {4}, 2.5)
    helper.raises("[E_VALUE] accumulate: result 1 of the function is a number", ml.accumulate, 2,
      function() return 1 end, ml.ones {4})
  end)

  it("give the loss and the gradients of the whole batch", function()
    local x = ml.random.normal(ml.random.key(0), {32, 8}, "float64")
    local w = ml.random.normal(ml.random.key(1), {8, 4}, "float64")
    local loss, gradient = step(1)(w, x)
    for _, n in ipairs {2, 4, 16, 32} do
      local l, g = step(n)(w, x)
      helper.close(loss, l, 1e-13)
      helper.close(gradient, g, 1e-13)
    end
  end)

  it("leave each device its rows, and reduce the gradients once", function()
    local x = ml.device_put(ml.random.normal(ml.random.key(0), {64, 8}), NamedSharding(mesh, P "data"))
    local w = ml.device_put(ml.random.normal(ml.random.key(1), {8, 4}), NamedSharding(mesh, P()))
    local whole, parts = step(1):plan(w, x), step(4):plan(w, x)
    local function sent(plan)
      local bytes = 0
      for _, c in ipairs(plan:collectives()) do
        assert.truthy(c.op == "all_reduce", c.op)
        bytes = bytes + c.bytes
      end
      return bytes
    end
    assert.equal(sent(whole), sent(parts))
    helper.close(step(1)(w, x), step(4)(w, x), 1e-6)
  end)

  -- A net with everything that a step carries along: dropout's keys and running statistics.
  local Net = ml.nn.module "Net"
  function Net:init(rngs, dtype)
    self.up = ml.nn.Linear(16, 16, {rngs = rngs, dtype = dtype})
    self.norm = ml.nn.BatchNorm(16, {rngs = rngs})
    self.drop = ml.nn.Dropout(0.25)
  end
  function Net:__call(x, rngs) return self.drop(self.norm(ml.nn.gelu(self.up(x))), rngs) end

  --- The same by hand, one part written behind the other.
  local function unrolled(n, fn, batch)
    local sums
    for _, part in ipairs(ml.microbatches(batch, n)) do
      local loss, grads = fn(part)
      sums = sums and {loss + sums[1], ml.tree.map(function(a, b) return a + b end, grads, sums[2])}
        or {loss, grads}
    end
    return sums[1] / n, ml.tree.map(function(x) return x / n end, sums[2])
  end

  --- Two steps of training; returns losses, what the model and the rngs hold, and the plan.
  local function trained(n, accumulate, on, dtype)
    local model = ml.init(function(rngs) return Net(rngs, dtype) end, {mesh = on, rules = {}}):train()
    local opt, rngs = ml.optim.sgd(model, {lr = 0.1}), ml.nn.Rngs(3)
    local x = ml.random.normal(ml.random.key(1), {64, 16})
    if on then
      x = ml.device_put(x, NamedSharding(on, P "data"))
      ml.device_put(rngs, NamedSharding(on, P()))
    end
    local train = ml.jit(function(m, o, r, batch)
      local loss, grads = accumulate(n, function(part)
        return ml.value_and_grad(function(v) return ((v(part.x, r) - part.x) ^ 2):mean() end)(m)
      end, {x = batch})
      o:update(m, grads)
      return loss
    end, {mesh = on, rules = on and {} or nil})
    local held = {train(model, opt, rngs, x):item(), train(model, opt, rngs, x):item()}
    for _, box in ipairs(ml.tree.leaves {model, rngs}) do held[#held + 1] = box:totable() end
    return held, train:plan(model, opt, rngs, x)
  end

  it("give the bits of one part written behind the other, Params that are written among them", function()
    ml.config {passes = {sum_products = false}} -- it makes one product of a sum of them, in another order
    for _, on in ipairs {false, mesh} do
      for _, dtype in ipairs {"float32", "bfloat16"} do
        for _, n in ipairs {2, 8} do
          assert.same((trained(n, unrolled, on or nil, dtype)), (trained(n, ml.accumulate, on or nil, dtype)))
        end
      end
    end
    ml.config {passes = {sum_products = "default"}}
  end)

  it("are a loop: the plan of 64 is as large as that of 2, and holds no more", function()
    local _, two = trained(2, ml.accumulate)
    local _, many = trained(32, ml.accumulate)
    assert.equal(#two:steps(), #many:steps())
    local _, by_hand = trained(32, unrolled)
    assert.is_true(many:memory().peak <= two:memory().peak)
    assert.is_true(many:memory().peak < by_hand:memory().peak)
  end)

  it("outside of a trace come in turn, and give the same", function()
    local x = ml.random.normal(ml.random.key(0), {32, 8})
    local w = ml.random.normal(ml.random.key(1), {8, 4})
    local function fn(part) return {loss_of(w, part), more = {part:sum(1)}, n = 3} end
    local eager = ml.accumulate(4, fn, x)
    local jitted = ml.jit(function(v) return ml.accumulate(4, fn, v) end)(x)
    assert.equal(3, jitted.n)
    helper.close(eager[1], jitted[1], 1e-6)
    helper.close(eager.more[1], jitted.more[1], 1e-6)
  end)

  it("leave Params as they were where the function fails", function()
    local box = ml.nn.Param(ml.ones {})
    local out = ml.jit(function(m, x)
      local ok = pcall(ml.accumulate, 2, function(part)
        m[1]:set(m[1] + part:sum())
        error "no"
      end, x)
      return ok and 1 or m[1] * 2
    end)({box}, ml.ones {4})
    assert.equal(2, out:item())
    assert.equal(1, box:item())
  end)

  it("refuse a batch of nothing, and a Param that is none of the step's", function()
    helper.raises("[E_VALUE] microbatches: the batch holds no tensor", ml.microbatches, {}, 2)
    helper.raises("[E_VALUE] microbatches: the batch holds no tensor", ml.accumulate, 2, loss_of, {})
    local other = ml.nn.Param(ml.ones {})
    helper.raises("[E_STATE] a Param that is no argument of the traced function is written",
      ml.jit(function(x)
        return ml.accumulate(2, function(part)
          other:set(other + 1)
          return part:sum()
        end, x)
      end), ml.ones {4})
    assert.equal(1, other:item())
  end)

  it("are an option of the training program", function()
    local text = {}
    for i = 1, 2000 do text[i] = ("line %d of many "):format(i % 97) end
    local data = helper.file(table.concat(text))
    local function train(options)
      return helper.shell(('"$MESHLUA" models/train.lua --layers=1 --width=16 --heads=2 --seq=8 --sample=8 '
        .. '--steps=2 --mesh=data:2 --rules=dp --log-every=1 --data=%s %s'):format(data, options))
    end
    local _, err, code = train "--batch=30 --microbatches=4"
    assert.equal(2, code)
    assert.truthy(err:find("--batch=30: --microbatches: the batch has 30 rows, which 4 microbatches do not "
      .. "divide; take 28 or 32 rows", 1, true), err)
    local function losses(out) return {out:match "step 1/2  loss (%S+).-step 2/2  loss (%S+)"} end
    local one, two = losses((train "--batch=32")), losses((train "--batch=32 --microbatches=4"))
    assert.equal(2, #one)
    for i = 1, 2 do helper.close(tonumber(one[i]), tonumber(two[i]), 2e-4) end
  end)
end)
