-- twin.lua: what the twins of the seeds' programs share.
local M = {}

--- What fn prints.
---@param fn function
---@return string
function M.printed(fn, ...)
  local lines, print_of_lua = {}, print
  rawset(_G, "print", function(...)
    local words = table.pack(...)
    for i = 1, words.n do words[i] = tostring(words[i]) end
    lines[#lines + 1] = table.concat(words, "\t") .. "\n"
  end)
  local ok, message = pcall(fn, ...)
  rawset(_G, "print", print_of_lua)
  if not ok then error(message, 0) end
  return table.concat(lines)
end

--- The text without the indent of its first line, as it stands in a test.
function M.text(indented)
  local indent = indented:match "^ *"
  return (indented:gsub("^" .. indent, ""):gsub("\n" .. indent, "\n"):gsub("\n *$", "\n"))
end

--- The ranges of a tensor's shards, one text for each device: "1..8 1..128".
---@return string[]
function M.ranges(x)
  local list = {}
  for i, shard in ipairs(x:addressable_shards()) do
    local words = {}
    for d, range in ipairs(shard.index) do words[d] = range[1] .. ".." .. range[2] end
    list[i] = table.concat(words, " ")
  end
  return list
end

--- The shape of every device's part of x.
function M.local_shape(x) return x.sharding:shard_shape(x.shape) end

--- A plan's collectives, sorted: "all_reduce over data: 128 bytes" (of one device's operand).
---@return string[]
function M.collectives(plan)
  local list = {}
  for i, step in ipairs(plan:collectives()) do
    list[i] = ("%s over %s: %d bytes"):format(step.op, table.concat(step.axes, ","), step.bytes)
  end
  table.sort(list)
  return list
end

--- Bytes of a plan's collectives (of one device's operands), by kind and axes: {["all_reduce over data"] = 4}.
---@return table<string, integer>
function M.traffic(plan)
  local sums = {}
  for _, step in ipairs(plan:collectives()) do
    local key = step.op .. " over " .. table.concat(step.axes, ",")
    sums[key] = (sums[key] or 0) + step.bytes
  end
  return sums
end

return M
