-- devices: 8
-- processor_spec.lua: the time of steps on the processor's devices: what all of them do, equal work once.
local account = require "meshlua.insight.account"
local core = require "meshlua.core"
local estimate = require "meshlua.plan.estimate"
local helper = require "spec.helper"
local ml = require "meshlua"
local processor = require "meshlua.insight.processor"

local P, NamedSharding = ml.P, ml.NamedSharding

--- The seconds of a thread that the items of one op take.
local function seconds_of(plan, op)
  local sum = 0
  for _, item in ipairs(account.of(plan).items) do
    if item.op == op then sum = sum + processor.seconds_of(item) end
  end
  return sum
end

describe("the time of a step on the processor", function()
  local mesh = ml.make_mesh({8}, {"data"})
  local function put(shape, spec) return ml.device_put(ml.ones(shape), NamedSharding(mesh, spec)) end
  local product = ml.jit(function(x, w) return x:matmul(w) end)

  it("is that of one device where all do the same", function()
    local alone = seconds_of(product:plan(ml.ones {64, 64}, ml.ones {64, 64}), "matmul")
    assert.is_true(alone > 2 * 64 ^ 3 / 1e12)
    assert.near(alone, seconds_of(product:plan(put({64, 64}, P()), put({64, 64}, P())), "matmul"), 1e-15)
  end)

  it("is that of all devices where each has a part", function()
    local one = seconds_of(product:plan(ml.ones {8, 64}, ml.ones {64, 64}), "matmul")
    local all = seconds_of(product:plan(put({64, 64}, P "data"), put({64, 64}, P())), "matmul")
    assert.near(8 * one, all, 1e-15)
  end)

  it("reads what is sent where it lies", function()
    local whole = ml.jit(function(x) return ml.reshard(x, NamedSharding(mesh, P())) end)
    local gather = whole:plan(put({1 << 20}, P "data"))
    assert.near(2 * 4 * 2 ^ 20 / 2.5e10, seconds_of(gather, "all_gather"), 2e-6)
    local sum = product:plan(put({512, 64}, P(nil, "data")), put({64, 512}, P("data", nil)))
    assert.near(9 * 4 * 2 ^ 18 / 2.5e10, seconds_of(sum, "all_reduce"), 2e-6)
  end)

  it("is shared by the threads, and not that of cards", function()
    local work = account.of(product:plan(put({64, 64}, P "data"), put({64, 64}, P())))
    assert.near(processor.seconds(work) / core.thread_count(), (estimate.here(work, "compiled")), 1e-15)
    local out = helper.run {"--devices=fake:8", "-e",
      "print(require('meshlua.insight.processor').has_devices())"}
    assert.equal("false\n", out)
  end)

  it("is what plan tells of this machine's devices", function()
    local function planned(devices, ...)
      local out, err, code = helper.run {"--devices=" .. devices, "plan", "models/gpt.lua", "--mesh=data:8",
        "--rules=dp", "--seq=8", "--layers=1", ...}
      assert.equal(0, code, err)
      return out
    end
    local function seconds(devices) return core.json(planned(devices, "--json")).layouts[1].seconds end
    local function together(devices) return planned(devices):match "on this processor: ([%d.]+) (%a+) of" end
    local here, number, unit = seconds "8", together "8"
    assert.not_equal(here, seconds "fake:cpu:8")
    assert.is_nil(together "fake:cpu:8")
    local whole = tonumber(number) * ({us = 1e-6, ms = 1e-3, s = 1.0})[unit]
    assert.near(whole, here * core.thread_count(), 0.01 * whole)
  end)

  it("orders layouts as they are measured", function()
    if helper.watched then return end -- a sanitizer has times of its own
    local out, err, code = helper.run {"--devices=8", "bench/layouts.lua", "1", "cpu", "MLP"}
    assert.equal(0, code, err)
    local n, correlation = out:match "(%d+) layouts: rank correlation ([%d.-]+)"
    assert.equal(27, tonumber(n))
    assert.is_true(tonumber(correlation) > 0.5, out)
  end)
end)
