-- options_spec.lua: files of options, what a run writes of its own, what it says of memory before its first step.
local core = require "meshlua.core"
local helper = require "spec.helper"
local memory = require "meshlua.train.memory"
local shell, file = helper.shell, helper.file
local read, within = helper.read, helper.within

local words = {}
for i = 1, 300 do words[i] = ("line %d of many "):format(i * i % 97) end
local TEXT = table.concat(words)
local SIZES = "--layers=1 --width=16 --heads=2 --seq=8 --batch=8 --sample=0 --steps=3"

local function train(options, recipe)
  return shell(('"$MESHLUA" train %s %s'):format(recipe or "gpt", options))
end

local function refuses(wanted, options, recipe)
  local _, err, code = train(options, recipe)
  assert.equal(2, code, err)
  assert.truthy(err:find(wanted, 1, true), err)
  assert.falsy(err:find("traceback", 1, true), err)
end

describe("a file of options", function()
  it("is what a run writes, and starts the same one; flags win", function()
    within(function(out)
      local data = file(TEXT)
      local options = "--mesh=data:2 --lr=1.7e-3 --ema=0.9 --accumulate=2 --eval-every=2 --data=" .. data
      assert.equal(0, select(3, train(("%s %s --out=%s"):format(SIZES, options, out))))
      local again = ("--config=%s/config.lua --out=%s/again"):format(out, out)
      assert.equal(0, select(3, train(again)))
      assert.equal(read(out .. "/config.lua"), read(out .. "/again/config.lua"))
      local function losses(folder)
        local list = {}
        for loss in read(folder .. "/metrics.jsonl"):gmatch '"loss":([^,]+)' do list[#list + 1] = loss end
        return list
      end
      assert.same(losses(out), losses(out .. "/again"))
      local fewer = train(again:gsub("again", "fewer") .. " --steps=2 --mesh=none")
      assert.truthy(fewer:find("mesh none", 1, true) and fewer:find("step 2/2", 1, true), fewer)
      assert.truthy(fewer:find(" lr=0.0017 ", 1, true) and fewer:find("\nbatch=16 ", 1, true), fewer)
    end)
  end)

  it("that is wrong is refused by its name, its key, the nearest", function()
    local function wrong(wanted, text, more)
      refuses(wanted, ("--config=%s %s"):format(file(text, ".lua"), more or ""))
    end
    wrong("unknown option --stpes; did you mean --steps?", "return {stpes = 3}")
    wrong("steps is a table; expected a number, a text, true or false", "return {steps = {}}")
    wrong("lr = fast: expected a number", "return {lr = 'fast'}")
    wrong("batch = 0: the least is 1", "return {batch = 0}")
    wrong("out is none of a run's: give it beside the file", "return {out = 'x'}")
    wrong("it returns a number, not a table", "return 5")
    wrong("attempt to call a nil value (global 'print')", "print 'x'")
    wrong("it is of the recipe llama, not of gpt", "return {recipe = 'llama'}")
    wrong("eof", "return {")
    wrong("--patience needs evaluations: --eval-every=...", "return {patience = 2}")
    refuses("--config=/nonexistent/c.lua: No such file or directory", "--config=/nonexistent/c.lua")
    refuses("--config needs a value", "--config=")
  end)

  it("gives way to the size that is given beside it", function()
    local said = train("--size=gpt2 --help --config=" .. file("return {layers = 3, lr = 0.5}", ".lua"))
    assert.truthy(said:find("--layers=12 ", 1, true), said)
  end)
end)

describe("memory", function()
  it("is said before the first step, and what does not fit is refused with --strict", function()
    local data = file(TEXT)
    local said = train(("%s --mesh=data:2 --data=%s --eval-batches=0"):format(SIZES, data))
    assert.truthy(said:find("\nmemory: a step holds [%d.]+ %aiB on each of 2 devices; [%d.]+ %aiB are free\n"
      .. "step 1/3"), said)
    local _, err, code = train(("%s --batch=4000000 --seq=512 --mesh=none --strict --data=%s"):format(SIZES,
      file(TEXT:rep(3))))
    assert.equal(3, code, err)
    assert.truthy(err:find("^train: %-%-strict: a step needs [%d.]+ TiB more than the processor"), err)
  end)

  it("of GPUs is that of the device", function()
    local plan = {memory = function() return {peak = 3e9} end}
    function plan.fits() return nil, "too much" end
    local run = {plan = function() return plan end}
    local kind = core.device_kind
    core.device_kind = function() return "h100" end
    local ok, text, misfit = pcall(memory.verdict, run)
    core.device_kind = kind
    assert.same({true, "memory: a step holds 2.79 GiB", "too much"}, {ok, text, misfit})
  end)
end)
