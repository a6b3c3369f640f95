-- devices: 8
-- budget_spec.lua: ml.expect and ml.forbid hold a plan to what it may send.
local helper = require "spec.helper"
local ml = require "meshlua"
local P, NamedSharding = ml.P, ml.NamedSharding

local mesh = ml.make_mesh({8}, {"data"})
local function ones(shape, ...) return ml.device_put(ml.ones(shape), NamedSharding(mesh, P(...))) end
local step = ml.jit(function(w, x) return ml.matmul(x, w):mean() end)
local LINE = debug.getinfo(1, "l").currentline - 1
local w, x = ones({16, 8}, "data"), ones({32, 16}, "data")
local plan = step:plan(w, x)

local gather = ("all_gather over data float32[2,8] (64 B) at tests/spec/insight/budget_spec.lua:%d: "
  .. "w of matmul: dim 1 is split on data, which splits dim 1 of x; split on data by "
  .. "argument w, argument x"):format(LINE)

describe("expect", function()
  it("passes a plan on that sends what is said, exactly or at most", function()
    assert.equal(plan, ml.expect(plan, {all_gather = 1, all_reduce = 1, all_to_all = 0, collectives = 2}))
    ml.expect(plan, {bytes = 68, sent = 64 * 7 + 4 * 2 * 7 / 8})
    ml.expect(plan, {bytes = "<=1 KB", sent = "<0.5 KiB", all_gather = "<=2", all_reduce = ">=1"})
    ml.expect(plan, {["all_gather over data"] = {count = 1, bytes = "64 B"}, ["all_gather over model"] = 0})
    ml.expect(plan, {all_reduce = {bytes = 4, sent = "<=8"}})
    ml.expect(ml.explain(step, w, x), {collectives = 2})
    ml.expect(plan, {})
  end)

  it("raises at the user's line with the collectives that count, their lines and reasons", function()
    local message = helper.raises("[E_BUDGET] expect: all_gather: count is 1, not 0\n  " .. gather,
      ml.expect, plan,
      {all_gather = 0})
    assert.truthy(message)
    local ok, where = pcall(function() ml.expect(plan, {collectives = "<2"}) end)
    assert.is_false(ok)
    assert.truthy(where:find "^tests/spec/insight/budget_spec%.lua:%d+: %[E_BUDGET%] expect: collectives: ")
    helper.raises("expect: bytes: bytes is 68 B, not <= 60 B", ml.expect, plan, {bytes = "<=60 B"})
    helper.raises("expect: all_reduce over data: bytes is 4 B, not 8 B", ml.expect, plan,
      {["all_reduce over data"] = {bytes = 8}})
  end)

  it("refuses limits that say nothing", function()
    helper.raises("[E_KEY] expect: unknown limit 'all_gathers'; expected collectives, bytes, sent, or a kind",
      ml.expect, plan, {all_gathers = 1})
    helper.raises("[E_VALUE] expect: bytes: expected a number or a limit such as \"<=4 MB\", got \"<=4 MX\"",
      ml.expect, plan, {bytes = "<=4 MX"})
    helper.raises("[E_KEY] expect: all_gather: unknown measure 'size'", ml.expect, plan,
      {all_gather = {size = 1}})
    helper.raises("[E_VALUE] expect: expected a plan (step:plan(...)) or an explanation, got a jit",
      ml.expect,
      step, {})
  end)
end)

describe("forbid", function()
  it("raises for collectives of a kind, over an axis, larger than a size", function()
    local text = "[E_BUDGET] forbid: the plan has 1 collective that may not be:\n  " .. gather
    helper.raises(text, ml.forbid, plan, {"all_gather"})
    helper.raises(text, ml.forbid, plan, {bytes = "60 B"})
    helper.raises(text, ml.forbid, plan, {"all_gather", "all_to_all", axes = "data", bytes = 63})
    helper.raises("the plan has 2 collectives that may not be", ml.forbid, plan)
    helper.raises("the plan has 2 collectives that may not be", ml.forbid, plan, {axes = {"data"}})
  end)

  it("lets the rest pass", function()
    assert.equal(plan, ml.forbid(plan, {"all_to_all", "permute", "reduce_scatter"}))
    ml.forbid(plan, {"all_gather", bytes = "64 B"})
    ml.forbid(plan, {axes = "model"})
    ml.forbid(ml.explain(step, w, x), {"all_to_all"})
  end)

  it("refuses what it does not know", function()
    helper.raises("[E_KEY] forbid: there is no collective 'gather'; they are all_gather, all_reduce",
      ml.forbid,
      plan, {"gather"})
    helper.raises("[E_KEY] forbid: unknown option 'axis'; expected kinds, axes and bytes", ml.forbid, plan,
      {axis = "data"})
    helper.raises("[E_VALUE] forbid: expected a plan", ml.forbid, 1)
  end)
end)
