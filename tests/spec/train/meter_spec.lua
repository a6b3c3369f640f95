-- meter_spec.lua: what a row says of the machine: data wait, busy share, memory.
local core = require "meshlua.core"
local helper = require "spec.helper"
local meters = require "meshlua.train.meter"
local ml = require "meshlua"
local runs = require "meshlua.train.run"

local words = {}
for i = 1, 600 do words[i] = ("line %d of many "):format(i % 97) end

--- A small run whose batches take `wait` seconds to come.
local function new_run(steps, wait)
  local recipe = require "models.gpt"
  local config = {}
  for key, value in pairs(recipe.config) do config[key] = value end
  for key, value in pairs {layers = 1, width = 16, heads = 2, seq = 8, batch = 8, steps = steps} do
    config[key] = value
  end
  local data = assert(recipe.data(config, helper.file(table.concat(words))))
  local records = data.train
  data.train = setmetatable({}, {__index = records})
  function data.train.shuffled(_, options)
    local batches = records:shuffled(options)
    return function(step)
      local till = core.clock() + wait
      while core.clock() < till do core.sleep(till - core.clock()) end
      return batches(step)
    end
  end
  return runs.new(recipe, {config = config, seed = 0, data = data, rules = recipe.rules.dp})
end

local function rows_of(run)
  local rows = {}
  run:train(function(row)
    local copy = {}
    for key, value in pairs(row) do copy[key] = value end
    rows[#rows + 1] = copy
  end)
  return rows
end

describe("a row", function()
  it("says how long the step waited for its data, and that nobody was busy then", function()
    for step, row in ipairs(rows_of(new_run(6, 0.05))) do
      assert.truthy(row.wait_ms >= 50 and row.wait_ms <= row.ms, row.wait_ms)
      if step > 2 then assert.truthy(row.busy < 0.9 * (1 - row.wait_ms / row.ms) + 0.1, row.busy) end
      assert.truthy(row.memory_peak > 1000 and row.process_peak > 1 << 20)
      assert.is_nil(row.mfu)
      assert.is_nil(row.shares)
    end
  end)

  local reason = "GPUs are asked for their launches"
  helper.on_processors(reason, "counts threads that work, and no others", function()
    local x = ml.ones {400, 400}
    local step = ml.jit(function(a)
      for _ = 1, 4 do a = a:matmul(x) * 0.001 end
      return a
    end)
    step(x)
    local function busy(work)
      local meter, best = meters.new {config = {}, recipe = {}}, nil
      for _ = 1, 5 do -- the best of some: the machine may be busy
        local row, from = {}, core.clock()
        meter:begin()
        work()
        local now = core.clock()
        row.ms, row.tokens_per_s = (now - from) * 1e3, 1
        meter:note(row, 0, now - from)
        best = math.max(best or 0, row.busy)
      end
      return best
    end
    local at_work = busy(function() for _ = 1, 5 do step(x) end end)
    assert.truthy(at_work > 0.4 and at_work <= 1, at_work)
    local threads = core.thread_count()
    local alone = busy(function()
      local till = core.clock() + 0.03
      while core.clock() < till do end -- this thread runs, and the others have nothing to do
    end)
    assert.near(1 / threads, alone, 0.1)
  end)
end)
