-- devices: 8
-- sound_spec.lua: explain has no finding on programs that are as they should be, on processors or GPUs.
local helper = require "spec.helper"
local ml = require "meshlua"
local sound = require "spec.insight.sound"

require("meshlua.insight.proposals").most = 20 -- of the specs of large ones the likeliest are tried

describe("explain has no finding on", function()
  for _, case in ipairs(sound) do
    it(case[1], function()
      local e = ml.explain(case[2]())
      assert.equal(0, #e.findings, tostring(e))
    end)
  end

  it("any of them on GPUs", function()
    if helper.watched then return end -- the same code with other figures
    local out, err, status = helper.run {"--devices=fake:h200:8", helper.file([[
      package.path = "tests/?.lua;" .. package.path
      local ml = require "meshlua"
      require("meshlua.insight.proposals").most = 20
      for _, case in ipairs(require "spec.insight.sound") do
        local e = ml.explain(case[2]())
        if #e.findings > 0 then print(case[1], e) end
      end
    ]], ".lua")}
    assert.equal("", err)
    assert.equal("", out)
    assert.equal(0, status)
  end)
end)
