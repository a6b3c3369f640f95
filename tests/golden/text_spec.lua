-- text_spec.lua: what the stages of small programs print, byte for byte. A pass that changes them on purpose
-- says so by new golden files (tests/golden/text.lua).
local helper = require "spec.helper"
local text = require "golden.text"

describe("the stages of", function()
  for _, name in ipairs(text.programs()) do
    it(name, function()
      local handle <close> = assert(io.open(text.golden(name)))
      local expected, got = handle:read "a", text.stages(helper.program(), name)
      if expected ~= got then
        local line, at = 0, nil
        local lines = got:gmatch "[^\n]*"
        for wanted in expected:gmatch "[^\n]*" do
          line = line + 1
          local now = lines()
          if wanted ~= now then
            at = ("%s:%d: expected\n  %s\ngot\n  %s"):format(text.golden(name), line, wanted, tostring(now))
            break
          end
        end
        error(at or text.golden(name) .. ": more lines than expected")
      end
    end)
  end
end)
