-- options.lua: what a program is told as --key=value. A row names an option and its default, whose type is
-- the option's.
local core = require "meshlua.core"
local lib = require "meshlua.lib"

local M = {}

---@class OptionRow
---@field [1] string name: words joined by "_" (or, as given, by "-")
---@field [2] boolean|number|string default; "" for a text that need not be given
---@field [3] string? what it is, for people
---@field least number? the smallest value
---@field most number? the largest
---@field above number? what it must be above
---@field below number? what it must be below
---@field path boolean? a file or folder: not empty where it is given
---@field words string[]? the texts that it may be
---@field alone string? what --key without a value means
---@field form string|string[]? patterns, one of which a text must match, and in `expected` words for them
---@field expected string?
---@field units string? "bytes": a whole number, as in 300MB or 5GiB, too

local kinds = {integer = "a whole number", float = "a number", string = "a text", boolean = "true or false"}

local function kind_of(x) return math.type(x) or type(x) end

local sizes = {[""] = 1, B = 1, kB = 1e3, MB = 1e6, GB = 1e9, TB = 1e12, KiB = 1 << 10, MiB = 1 << 20,
  GiB = 1 << 30, TiB = 1 << 40}

--- "5GB" as a number, or nil.
local function bytes(text)
  local digits, unit = text:match "^([%d.]+)(%a*)$"
  local x = tonumber(digits)
  return x and sizes[unit] and math.tointeger(x * sizes[unit])
end

--- A text as a value of the default's type, or nil.
local function typed(text, default, units)
  local kind = kind_of(default)
  if units == "bytes" then return bytes(text) end
  if kind == "string" then return text end
  if kind == "boolean" then
    if text == "true" then return true end
    return text ~= "false" and nil
  end
  local x = tonumber(text)
  if kind == "integer" then return x and math.tointeger(x) end
  return x and math.abs(x) < math.huge and x + 0.0 or nil
end

--- What is wrong with a value of the right type, or nil.
local function objection(row, value)
  if row.least and value < row.least then return "the least is " .. row.least end
  if row.most and value > row.most then return "the most is " .. row.most end
  if row.above and not (value > row.above) then return "it must be above " .. row.above end
  if row.below and not (value < row.below) then return "it must be below " .. row.below end
  local forms = type(row.form) == "string" and {row.form} or row.form
  local fits = not forms or value == ""
  for _, form in ipairs(forms or {}) do fits = fits or value:find(form) end
  if not fits then return "expected " .. row.expected end
  if not row.words or lib.position(row.words, value) then return nil end
  return "expected " .. table.concat(row.words, ", ") .. lib.did_you_mean(value, row.words, "%s")
end

--- Reads arguments. A switch may stand alone (--key is --key=true); the last of two equal keys counts.
---@param args string[]
---@param rows OptionRow[]
---@return table<string, any>? values with the defaults of what is not given
---@return string? message what is wrong
M.parse = core.plain(function(args, rows)
  local known, values = {}, {}
  for _, row in ipairs(rows) do
    known[row[1]], values[row[1]] = row, row[2]
  end
  for _, word in ipairs(args) do
    local name, text = word:match "^%-%-([^=]+)=(.*)$"
    name = name or word:match "^%-%-([^=]+)$"
    if not name then return nil, ("'%s': options are written --key=value"):format(word) end
    local key = name:gsub("-", "_")
    local row = known[key]
    if not row then
      return nil, ("unknown option --%s%s"):format(name, lib.did_you_mean(key, lib.names(known), "--%s"))
    end
    if not text then text = row.alone end
    if not text or text == "" and row.path then
      if type(row[2]) ~= "boolean" then return nil, ("--%s needs a value: --%s=..."):format(name, name) end
      text = "true"
    end
    local value = typed(text, row[2], row.units)
    if value == nil then
      local kind = row.units == "bytes" and "bytes, as in 300MB or 5GiB" or kinds[kind_of(row[2])]
      return nil, ("--%s=%s: expected %s"):format(name, text, kind)
    end
    local wrong = objection(row, value)
    if wrong then return nil, ("--%s=%s: %s"):format(name, text, wrong) end
    values[key] = value
  end
  return values
end)

--- The options as lines, aligned.
---@param rows OptionRow[]
---@return string
M.help = core.plain(function(rows)
  local lines, width = {}, 0
  local function text(row)
    if row[2] == false then return "  --" .. row[1] end
    return ("  --%s=%s"):format(row[1], row[2] == "" and "..." or tostring(row[2]))
  end
  for _, row in ipairs(rows) do width = math.max(width, #text(row)) end
  for i, row in ipairs(rows) do
    local shown = text(row)
    lines[i] = row[3] and shown .. (" "):rep(width - #shown + 2) .. row[3] or shown
  end
  return table.concat(lines, "\n")
end)

return M
