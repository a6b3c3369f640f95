-- sparkline.lua: a curve in one line of text, and the few numbers that are kept of a long one.
local lib = require "meshlua.lib"

local is_finite = lib.is_finite

local M = {}

local BLOCKS = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"}
local PLAIN = {"_", ".", "-", "=", "+", "*", "%", "#"}
local NONE = {[true] = "·", [false] = "!"} -- where a value is not finite

local utf8_there

--- Does the user's locale have the blocks?
---@return boolean
function M.has_blocks()
  if utf8_there == nil then
    local before = os.setlocale(nil, "ctype")
    utf8_there = (os.setlocale("", "ctype") or ""):lower():find "utf%-?8" ~= nil
    os.setlocale(before, "ctype")
  end
  return utf8_there
end

--- A curve of at most `width` columns, one for each value; of more values each column is the mean of those that it
--- stands for.
---@param values number[]
---@param width integer
---@param blocks boolean? in characters of Unicode; default: by the locale
---@return string
function M.text(values, width, blocks)
  if blocks == nil then blocks = M.has_blocks() end
  local columns, low, high = {}, math.huge, -math.huge
  local n = math.min(width, #values)
  for c = 1, n do
    local first, last, sum = (c - 1) * #values // n + 1, c * #values // n, 0.0
    for i = first, last do sum = sum + values[i] end
    columns[c] = sum / (last - first + 1)
    if is_finite(columns[c]) then low, high = math.min(low, columns[c]), math.max(high, columns[c]) end
  end
  local marks = blocks and BLOCKS or PLAIN
  for c, x in ipairs(columns) do
    local level = is_finite(x) and (high > low and math.floor((x - low) / (high - low) * #marks) or 0)
    columns[c] = level and marks[math.min(level, #marks - 1) + 1] or NONE[blocks]
  end
  return table.concat(columns)
end

---@class Curve
---@field values number[] means of `each` values that followed each other
---@field each integer
---@field most integer
local Curve = {}
Curve.__index = Curve

--- Adds a value.
---@param x number
function Curve:add(x)
  self.sum, self.count = self.sum + x, self.count + 1
  if self.count < self.each then return end
  self.values[#self.values + 1] = self.sum / self.each
  self.sum, self.count = 0.0, 0
  if #self.values < self.most then return end
  for i = 1, self.most // 2 do
    self.values[i] = (self.values[2 * i - 1] + self.values[2 * i]) / 2
  end
  for i = self.most, self.most // 2 + 1, -1 do self.values[i] = nil end
  self.each = 2 * self.each
end

--- A curve that keeps at most so many numbers, however many it is given.
---@param most integer even
---@return Curve
function M.curve(most)
  return setmetatable({values = {}, each = 1, most = most, sum = 0.0, count = 0}, Curve)
end

return M
