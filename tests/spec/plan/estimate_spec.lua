-- estimate_spec.lua: the time of a step: what runs beside what is sent, kernels' factors, and rows of published runs.
local account = require "meshlua.insight.account"
local estimate = require "meshlua.plan.estimate"
local helper = require "spec.helper"

--- A plan as account.lua reads it, of steps {kind, seconds, reads, writes, sends?}.
local function plan_of(rows)
  local steps = {}
  for i, r in ipairs(rows) do
    local function values(list)
      local out = {}
      for k, buffer in ipairs(list) do out[k] = {buffer = buffer, dtype = "float32", shape = {1}} end
      return out
    end
    steps[i] = {kind = r[1], seconds = r[2], inputs = values(r[3]), outputs = values(r[4]), op = r.op or r[1],
      axes = r[1] == "collective" and {"data"} or nil, product = r.product or false, inside = r.inside,
      where = {"x.lua:1"}, ops = {}, role = "forward", times = 1, flops = 0, traffic = 0, padded = 0,
      recomputed = 0, distinct = 1, sent = 0, between = r.between}
  end
  return {steps = function() return steps end, mesh = function() return nil end}
end

describe("the time of a step", function()
  for name, case in pairs {
    ["what is sent runs beside what does not read it"] = {3.0,
      {"collective", 3.0, {1}, {2}}, {"kernel", 1.0, {3}, {4}}, {"done", 0.0, {2}, {}}},
    ["who reads it waits"] = {5.0,
      {"collective", 3.0, {1}, {2}}, {"kernel", 2.0, {2}, {4}}},
    ["it waits for what it sends"] = {5.0,
      {"kernel", 2.0, {1}, {2}}, {"collective", 3.0, {2}, {3}}},
    ["two are sent one after the other"] = {7.0,
      {"collective", 3.0, {1}, {2}}, {"collective", 3.0, {3}, {4}}, {"kernel", 1.0, {4}, {5}}},
    ["what goes between hosts does not wait for links"] = {4.0,
      {"collective", 3.0, {1}, {2}}, {"collective", 3.0, {3}, {4}, between = 1}, {"kernel", 1.0, {4}, {5}}},
    ["a loop is over before what follows"] = {6.0,
      {"loop", 0.0, {}, {}, inside = 2}, {"collective", 3.0, {1}, {2}}, {"kernel", 1.0, {2}, {3}},
      {"kernel", 2.0, {9}, {8}}},
  } do
    it("is such that " .. name, function()
      local work = account.of(plan_of {table.unpack(case, 2)})
      assert.near(case[1], account.wall(work.items), 1e-9)
    end)
  end

  it("is that of what a card computes, reads, launches and sends", function()
    local work = account.of(plan_of {{"kernel", 1.0, {1}, {2}, product = true},
      {"collective", 4.0, {2}, {5}}, {"kernel", 1.0, {5}, {6}, op = "fused"}})
    assert.near(6.0, (estimate.seconds(work, "a card of no row", "eager")), 1e-9)
    local product, sum = work.items[1], work.items[3]
    product.dtype, product.flops, sum.traffic = "bfloat16", 312e12, 2.039e12
    local times = estimate.times(work, "a100", "eager")
    assert.near(estimate.factor("a100", "eager"), times[1], 1e-3)
    assert.near(4.0 / 0.9, times[2], 1e-3)
    assert.near(2.0 / 0.85, times[3], 1e-3)
    local seconds, waited = estimate.seconds(work, "a100", "eager")
    assert.near(times[1] + times[2] + times[3], seconds, 1e-9)
    assert.near(times[2], waited, 1e-9)
    product.dtype = "float32"
    assert.near(16 * times[1], estimate.times(work, "a100", "eager")[1], 1e-2)
  end)

  it("is more where a trainer keeps more than the plan", function()
    local work = account.of(plan_of {{"kernel", 1.0, {1}, {2}, op = "softmax_cross_entropy"}})
    local memory = {peak = 100, live = {40}, groups = {parameters = 20}}
    assert.equal(100, estimate.held(work, memory, "compiled", {}))
    assert.equal(112, estimate.held(work, memory, "compiled", {held_logits = 12}))
    assert.equal(140, estimate.held(work, memory, "compiled", {gradients = 2}))
  end)

  it("is that of published runs, nearly", function()
    local off, n = 0, 0
    for _, row in ipairs {3, 6, 7} do
      local out, err, code = helper.run {"--devices=fake:a100-40:128", "bench/backtest.lua", tostring(row)}
      assert.equal(0, code, err)
      local predicted, measured = out:match "| (%d+) of (%d+) |"
      off, n = off + math.abs(predicted / measured - 1), n + 1
    end
    assert(off / n < 0.1, off / n)
  end)
end)
