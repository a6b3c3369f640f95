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
      recomputed = 0, distinct = 1, sent = 0}
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
    ["a loop is over before what follows"] = {6.0,
      {"loop", 0.0, {}, {}, inside = 2}, {"collective", 3.0, {1}, {2}}, {"kernel", 1.0, {2}, {3}},
      {"kernel", 2.0, {9}, {8}}},
  } do
    it("is such that " .. name, function()
      local work = account.of(plan_of {table.unpack(case, 2)})
      assert.near(case[1], work.wall, 1e-9)
    end)
  end

  it("weighs products, attention and other kernels", function()
    local work = account.of(plan_of {{"kernel", 1.0, {1}, {2}, product = true},
      {"kernel", 1.0, {2}, {3}, op = "attention"}, {"kernel", 1.0, {3}, {4}, op = "fused"},
      {"collective", 4.0, {4}, {5}}})
    assert.near(7.0, estimate.seconds(work), 1e-9)
    assert.near(2.0 * (1 + 3 + 2) + 0.75 * 4, estimate.seconds(work, 2.0), 1e-9)
  end)

  it("is that of published runs, nearly", function()
    local off, n = 0, 0
    for _, row in ipairs {1, 3, 6, 7} do
      local out, err, code = helper.run {"--devices=fake:a100-40:128", "bench/backtest.lua", tostring(row)}
      assert.equal(0, code, err)
      local predicted, measured = out:match "| (%d+) of (%d+) |"
      off, n = off + math.abs(predicted / measured - 1), n + 1
    end
    assert(off / n < 0.12, off / n)
  end)
end)
