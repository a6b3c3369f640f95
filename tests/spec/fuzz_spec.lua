-- devices: 8
-- fuzz_spec.lua: random programs give the same on a mesh as on one device, values and gradients. More of them:
--   meshlua --devices=8 tests/fuzz/many.lua KIND COUNT FIRST
local helper = require "spec.helper"
local loops = require "fuzz.loops"
local meshes = require "fuzz.meshes"
local ml = require "meshlua"
local programs = require "fuzz.programs"
local steps = require "fuzz.steps"

local ALL = rawget(_G, "ALL") -- build/meshlua --devices=8 -e ALL=1 tests/specs.lua tests/spec/fuzz_spec.lua
local THOROUGH = 17 -- of each of the six kinds; or all

--- Checks a program. Of the first seeds what every pass makes is verified, too, and its text read back.
local function check(seed, mode)
  local program, before = programs.make(seed, mode), ml.core.check(true)
  if not (ALL or before or seed <= THOROUGH) then ml.core.check(false) end
  local ok, bad = pcall(programs.check, program)
  ml.core.check(before)
  if not ok or bad then error(programs.describe(program) .. "\n-- " .. tostring(bad)) end
  return program
end

describe("random programs are the same on a mesh as on one device:", function()
  for first = 1, helper.watched and 40 or 200, 20 do
    it(("seeds %d to %d"):format(first, first + 19), function()
      for seed = first, first + 19 do
        check(seed)
      end
    end)
  end

  for first = 1, helper.watched and 30 or 300, 30 do
    it(("loops, branches, transforms and shard_map in each other, seeds %d to %d"):format(first, first + 29),
      function()
        for seed = first, first + 29 do
          check(seed, "nested")
        end
      end)
  end

  it("two of them in a row, on two meshes", function()
    for seed = 1, helper.watched and 8 or 60 do
      local pair = meshes.make(seed)
      local ok, bad = pcall(meshes.check, pair)
      if not ok or bad then error(meshes.describe(pair) .. "\n-- " .. tostring(bad)) end
    end
  end)

  it("loops with overlap have the bits of those without", function()
    local count, crossing = helper.watched and 12 or 60, 0
    for seed = 1, count do
      local program = loops.make(seed)
      local ok, bad = pcall(loops.check, program)
      if not ok or bad then error(loops.describe(program) .. "\n-- " .. tostring(bad)) end
      crossing = crossing + program.crossing
    end
    assert(crossing > count // 2, crossing)
  end)

  for _, mode in ipairs {"explicit", "mixed", "nested_explicit", "nested_mixed"} do
    it(("with layouts in types, %s axes"):format(mode), function()
      local asked, count = 0, helper.watched and 12 or 40
      for seed = 1, count do
        local program = check(seed, mode)
        asked = asked + (program.asked or 0)
      end
      assert(asked > count // 4, asked)
    end)
  end

  if helper.watched then return end -- of the drawing itself, without one

  it("a seed makes the same program every time", function()
    for _, mode in ipairs {"auto", "nested", "mixed"} do
      assert.equal(programs.describe(programs.make(7, mode)), programs.describe(programs.make(7, mode)))
    end
  end)

  it("every step is in some program", function()
    local text, unused, rest = {}, {}, 0
    for _, step in ipairs(steps.all()) do
      local make = step.make
      unused[step], rest = make, rest + 1
      step.make = function(...)
        local source, shape, more = make(...)
        if source and unused[step] then unused[step], step.make, rest = nil, make, rest - 1 end
        return source, shape, more
      end
    end
    for seed = 1, 1000 do
      if seed > 200 and rest == 0 then break end
      text[seed] = programs.make(seed).source .. programs.make(seed, "nested").source
    end
    for step, make in pairs(unused) do step.make = make end
    assert(rest == 0, rest > 0 and next(unused).name)
    text = table.concat(text)
    for _, word in ipairs {"attention", "argmax", "sort", "scatter_add", "take", "one_hot", "softmax", "norm",
      "rope", "dropout", "einsum", "pad", "concat", "C(", "int32", "uint8", "bfloat16", "float64",
      "function(t)", "fori_loop", "scan", "while_loop", "cond", "switch", "vmap", "remat", "grad",
      "custom_vjp", "X.map", "Q(", "B(", "I("} do
      assert(text:find(word, 1, true), word)
    end
  end)

  it("inputs that differ are found", function()
    local found = 0
    for seed = 1, 20 do
      local bad = programs.check(programs.make(seed), function(x, sharding)
        return ml.device_put(x:flip(1), sharding)
      end)
      found = found + (bad and 1 or 0)
    end
    assert(found >= 15, found)
  end)
end)
