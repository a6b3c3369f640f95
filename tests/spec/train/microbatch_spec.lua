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
