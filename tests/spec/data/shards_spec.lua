-- shards_spec.lua: files larger than memory: what a process holds stays the same, and a step does not wait. On request
-- of 8 GiB, all of them: build/meshlua -e SHARDS=8 tests/specs.lua tests/spec/data/shards_spec.lua
local helper = require "spec.helper"
local ml = require "meshlua"
local core, data = ml.core, ml.data

local SHARDS = tonumber(rawget(_G, "SHARDS"))
local BYTES = SHARDS and 1 << 30 or 1 << 26
local STEPS = SHARDS and math.maxinteger or 300
local ROWS, LENGTH = 64, 1024

--- KiB of the process's memory.
local function resident()
  for line in io.lines "/proc/self/status" do
    local kib = line:match "^VmRSS:%s+(%d+)"
    if kib then return tonumber(kib) end
  end
end

describe("shards", function()
  helper.figures("of any size leave memory as it is, and are not waited for", function()
    local folder = helper.file "" .. ".shards"
    assert(core.make_folder(folder))
    local removed <close> = setmetatable({}, {__close = function()
      core.disk_task {{"remove", folder}}:wait()
    end})
    for i = 1, SHARDS or 2 do
      local path = ("%s/s_%03d.bin"):format(folder, i)
      local handle <close> = assert(io.open(path, "wb"))
      handle:write(("\1\2"):rep(1000))
      handle:close()
      assert(core.truncate(path, BYTES)) -- the rest is a hole
    end
    local tokens = assert(data.tokens(folder .. "/*.bin"))
    assert.equal((SHARDS or 2) * BYTES // 2, #tokens)
    local batches = data.windows(tokens, LENGTH):shuffled {batch = ROWS, seed = 1}
    local before
    for step = 1, math.min(STEPS, #tokens // LENGTH // ROWS) do
      local batch = batches(step)
      batch.inputs:release()
      batch.labels:release()
      if step == 100 then
        collectgarbage()
        before = resident()
      end
    end
    collectgarbage()
    assert.truthy(resident() - before < 40 * 1024, resident() - before .. " KiB more")
    local best = 1
    for _ = 1, 5 do -- other work on the machine only makes it longer
      local from, waited = core.clock(), 0
      for step = 1, 6 do
        if step > 1 then core.sleep(0.05) end -- a step
        batches(step)
        waited = waited + (step > 1 and batches.wait or 0)
      end
      best = math.min(best, waited / (core.clock() - from))
      if best < 0.01 then break end
    end
    assert.truthy(best < 0.01, ("%.2f%% of the time was waited"):format(100 * best))
    local _ = removed
  end)
end)
