-- devices: 8
-- Random functions of blocks give what they mean on one device, values and gradients. More of them:
--   meshlua --devices=8 tests/fuzz/manual.lua COUNT FIRST
local helper = require "spec.helper"
local ml = require "meshlua"
local manual = require "fuzz.manual"

describe("random functions in shard_map are what they mean:", function()
  for first = 1, helper.watched and 50 or 200, 50 do
    it(("seeds %d to %d"):format(first, first + 49), function()
      for seed = first, first + 49 do
        local program = manual.make(seed)
        local ok, bad = pcall(manual.check, program)
        if not ok or bad then error(manual.describe(program) .. "\n-- " .. tostring(bad)) end
      end
    end)
  end

  if helper.watched then return end -- of the drawing itself, without one

  it("a seed makes the same program every time", function()
    assert.equal(manual.describe(manual.make(7)), manual.describe(manual.make(7)))
  end)

  it("every collective is in some program", function()
    local text = {}
    for seed = 1, 200 do text[seed] = manual.make(seed).source end
    text = table.concat(text)
    for _, name in ipairs {"psum", "pmean", "pmax", "all_gather", "psum_scatter", "ppermute", "all_to_all",
      "axis_index", "pcast"} do assert(text:find("F." .. name .. "(", 1, true), name) end
  end)

  local wrong = {
    psum = function(x, axes) return ml.pmean(x, axes) end,
    all_gather = function(x, axes, o) return ml.all_gather(x, {table.unpack(axes)}, o):flip(o.axis) end,
    ppermute = function(x, axes, perm)
      for i, pair in ipairs(perm) do perm[i] = {pair[2], pair[1]} end
      return ml.ppermute(x, axes, perm)
    end,
  }
  for name, planted in pairs(wrong) do
    it("a wrong " .. name .. " is found", function()
      local functions, found, used = setmetatable({[name] = planted}, {__index = manual.inside}), 0, 0
      for seed = 1, 100 do
        local program = manual.make(seed)
        if program.source:find("F." .. name .. "(", 1, true) then
          used = used + 1
          found = found + (manual.check(program, functions) and 1 or 0)
        end
      end
      assert(used >= 15 and found >= used / 3, found .. " of " .. used)
    end)
  end
end)
