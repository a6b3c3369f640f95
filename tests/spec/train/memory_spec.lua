-- devices: 4
-- memory_spec.lua: a long run takes no more memory than a short one.
local helper = require "spec.helper"
local ml = require "meshlua"
package.path = "models/?.lua;" .. package.path
local mlp = require "mlp"
local images = require "spec.train.images"

local train = ml.train

local PAGE = 4096
local STEPS = helper.watched and 4000 or 10000
local LAST = STEPS // 1000

--- Resident bytes; nil under a sanitizer, which keeps what was freed (one shows by terabytes of address space).
local function resident()
  local statm <close> = assert(io.open "/proc/self/statm")
  local size, pages = statm:read("n", "n")
  return size * PAGE < 1 << 40 and pages * PAGE or nil
end

describe("thousands of steps", function()
  it("of an MLP leave memory as it was at step 2,000", function()
    local cfg = {width = 16, layers = 2, classes = 10, dropout = 0.1, batch = 8, steps = STEPS, lr = 1e-3,
      warmup = 10, weight_decay = 1e-2}
    local run = train.run(mlp, {config = cfg, seed = 0, mesh = train.mesh "data:2,model:2",
      rules = mlp.rules.tp, data = assert(mlp.data(cfg, images(64)))})
    local pages, heap, live = {}, {}, {}
    run:train(function(row)
      if row.step % 1000 ~= 0 then return end
      collectgarbage()
      collectgarbage()
      local i = row.step // 1000
      pages[i], heap[i], live[i] = resident(), collectgarbage "count" * 1024, ml.core.memory().live
    end)
    assert.equal(LAST, #heap)
    -- A step makes little garbage for Lua: its collector first runs by itself after some 1,000 of them.
    assert.near(heap[2], heap[LAST], 1 << 20)
    assert.equal(live[2], live[LAST])
    if pages[2] then assert.near(pages[2], pages[LAST], 1 << 20) end
  end)
end)
