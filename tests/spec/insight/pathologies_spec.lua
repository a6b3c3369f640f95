-- devices: fake:h200:64
-- pathologies_spec.lua: what is dear for nothing is named in the first lines, with the line to change.
local helper = require "spec.helper"
local ml = require "meshlua"
local pathologies = require "spec.insight.pathologies"

local FIRST = 15 -- lines
-- Those that are traced once more: on other meshes, with other layouts, without recomputation.
local ONCE_MORE = {["an axis that nothing uses"] = true, ["the tensor axis across hosts"] = true,
  ["recomputation where there is room"] = true}

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

describe("explain", function()
  local jit = ml.jit

  -- Steps that stop at the n-th time that one is traced.
  local function stopping_at(n)
    local count = 0
    rawset(ml, "jit", function(fn, options)
      return jit(function(...)
        count = count + 1
        if count == n then error("[E_INTERRUPT] interrupted", 0) end
        return fn(...)
      end, options)
    end)
    return function() return count end
  end

  after_each(function() rawset(ml, "jit", jit) end)

  for _, case in ipairs(pathologies) do
    local name, text_of = case[1], case[2]
    if ONCE_MORE[name] then
      it("is left by Ctrl-C whichever trace it comes in: " .. name, function()
        local traces = stopping_at(0)
        text_of()
        assert.truthy(traces() > 2)
        for n = 1, traces() do
          stopping_at(n)
          helper.raises("[E_INTERRUPT] interrupted", text_of)
        end
        stopping_at(0)
        assert.truthy(head(text_of()):find(case[3])) -- and all is as it was
      end)
    end
  end
end)
