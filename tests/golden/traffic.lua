-- traffic.lua: what a plan sends, against what expected.lua says. A spec gets it by `require "golden.traffic"`.
local assert = require "luassert"

--- "op over axes" -> {count, bytes}, of a plan's collectives.
local function sent(plan)
  local by_kind = {}
  for _, c in ipairs(plan:collectives()) do
    local kind = c.op .. " over " .. table.concat(c.axes, ",")
    local sum = by_kind[kind] or {0, 0}
    by_kind[kind] = {sum[1] + 1, sum[2] + math.tointeger(c.bytes)}
    assert.truthy(c.why, kind .. " has no reason")
    assert.truthy(c.where[1], kind .. " has no place")
    for _, r in ipairs(c.reasons) do
      assert.truthy(r.tensor:find "^[%w_.]+ %w+%[.*%]" and r.where and #r.origins > 0, kind .. ": " .. r.text)
    end
  end
  return by_kind
end

--- Holds a plan to a list of expected.lua: each kind of traffic with its count and bytes, and nothing else.
---@param plan Plan
---@param list table
return function(plan, list)
  local got = sent(plan)
  for _, entry in ipairs(list) do
    local kind = entry[1] .. " over " .. entry[2]
    local sum = got[kind] or {0, 0}
    local least, most = entry[3], entry[3]
    if type(least) == "table" then least, most = least[1], least[2] end
    if least then
      assert.is_true(least <= sum[1] and sum[1] <= most, kind .. ": " .. sum[1] .. " of them")
    end
    assert.equal(entry[4], sum[2], kind .. ": bytes")
    got[kind] = nil
  end
  assert.same({}, got, "and nothing else")
end
