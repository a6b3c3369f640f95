-- The tree speaks of no machine, holds no reminders in place of work, and wraps no comment so that its end
-- stands alone.
local gate = require "gate"

-- Put together here, so that this file does not find itself.
local reminders = {"TO" .. "DO", "FIX" .. "ME", "X" .. "XX"}
local paths = {"/wo" .. "rk/", "/ro" .. "ot/", "/ho" .. "me/", "/mn" .. "t/"}

local looked = 0
for _, file in ipairs(gate.files()) do
  local text = gate.read(file)
  if not text:find "\0" then
    looked = looked + 1
    local at = 0
    for line in (text .. "\n"):gmatch "(.-)\n" do
      at = at + 1
      if file:find "^[hk]%a+/.*%.[ch]" and line:find "^%s*%*/$" then
        gate.fail(file .. ":" .. at, "a line that only ends a comment")
      end
      local place = file .. ":" .. at
      for _, word in ipairs(reminders) do
        if line:find("%f[%w]" .. word .. "%f[%W]") then gate.fail(place, "the word %s", word) end
      end
      for _, path in ipairs(paths) do
        if line:find("%f[/]" .. path) and not line:find("[%w_.-]" .. path) then
          gate.fail(place, "a path of a machine: %s", path)
        end
      end
    end
  end
end
gate.finish(looked, [[do the work or file an issue; name files relative to the tree, or take them as an
argument; wrap a comment so that words stand before its end.]])
