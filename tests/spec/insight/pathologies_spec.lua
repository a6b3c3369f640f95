-- devices: fake:h200:64
-- pathologies_spec.lua: what is dear for nothing is named in the first lines, with the line to change.
local pathologies = require "spec.insight.pathologies"

local FIRST = 15 -- lines

--- The line of the function that ends with "-- !", or nil.
local function marked(fn)
  local info, number = debug.getinfo(fn, "S"), 0
  for line in io.lines(info.source:sub(2)) do
    number = number + 1
    if number > info.linedefined and number < info.lastlinedefined
      and line:find "%-%- !$" then return number end
  end
end

--- The first lines as one, without what wraps them.
local function head(text)
  local lines = {}
  for line in text:gmatch "[^\n]+" do
    if #lines < FIRST then lines[#lines + 1] = line end
  end
  return (table.concat(lines, " "):gsub("%s+", " "))
end

describe("of programs that waste, the first lines name", function()
  for _, case in ipairs(pathologies) do
    local name, text_of, says = table.unpack(case)
    it(name, function()
      local text, line = head(text_of()), marked(text_of)
      assert.truthy(text:find(says), text)
      assert.truthy(not line or text:find(("pathologies.lua:%d"):format(line), 1, true), text)
    end)
  end
end)
