-- devices: 8
-- core_spec.lua: every function that Lua can reach survives that an allocation fails; and no function is
-- without a scenario.
local faults = require "fault.faults"
local ml = require "meshlua"
local scenarios = require "fault.scenarios"
local rows = require "spec.op.rows"

describe("with an allocation failing,", function()
  for _, scenario in ipairs(scenarios) do
    it(scenario.name .. ": ends in a clean error, and nothing is lost",
      function() faults.survive(scenario) end)
  end
end)

describe("memory that runs out", function()
  it("is looked for once more after all garbage is collected", function()
    local x, step = ml.ones {1000}, ml.jit(function(a, n) return a * n end)
    for _, run in ipairs {function() return x + 1 end, function() return step(x, 2) end} do
      local survived, n = 0, 0
      run()
      repeat
        local fired, ok, y = faults.try(n, run)
        if ok and fired then
          survived = survived + 1
          assert.equal(2.0, y:max():item())
        end
        n = n + 1
      until not fired
      assert.is_true(survived > 0)
    end
  end)
end)

describe("the scenarios", function()
  -- What no scenario may use, and why.
  local without = {
    ["core.fail_alloc"] = "is what makes allocations fail",
    ["core.plant"] = "is what makes ops wrong: tests/spec/insight/verify_spec.lua",
    ["core.compile_device"] = "the memory is NVRTC's",
    ["core.clear_plans"] = "faults.lua calls it before each run",
    ["core.set_devices"] = "works only before the first tensor",
    ["core.on_misuse"] = "lib.lua calls it before all",
    ["core.jit_new"] = "jit calls it before anything can be recorded",
  }

  local function registered()
    local list = {}
    local function take(prefix, t)
      for name, value in pairs(t) do
        if type(value) == "function" then list[prefix .. name] = value end
      end
    end
    take("core.", ml.core)
    take("op.", ml.core.op)
    take("random.", ml.random)
    take("tree.", ml.tree)
    take("", ml)
    for _, name in ipairs {"Tensor", "Param", "Mesh", "NamedSharding", "jit", "Plan", "Program"} do
      take(name .. ":", ml.core.methods("meshlua." .. name))
    end
    return list
  end

  it("reach every function of the registration tables", function()
    local called, ops = {}, {}
    for _, scenario in ipairs(scenarios) do faults.record(scenario, called) end
    for _, row in ipairs(rows) do ops[row.op] = true end -- ops_spec.lua
    local missing = {}
    for name, fn in pairs(registered()) do
      local op = name:match "^op%.(.*)" or name:match "^[%l%d_]+$" or name:match "^%u%w*:(.*)"
      local covered = called[fn] or without[name] or ops[op]
      if not covered then missing[#missing + 1] = name end
    end
    table.sort(missing)
    assert.same({}, missing)
  end)
end)
