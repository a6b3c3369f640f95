-- json.lua: values as JSON text, on one line, and out of files. Objects have their keys in order; numbers read back
-- as what they were: of floats those of float32, and in exact texts any.
-- Floats that are whole numbers have all their digits.
local core = require "meshlua.core"

local M = {}

local escapes = {['"'] = '\\"', ["\\"] = "\\\\", ["\n"] = "\\n", ["\r"] = "\\r", ["\t"] = "\\t"}

--- A JSON string. Bytes that are not UTF-8 are taken for Latin-1.
local function quoted(s)
  if not utf8.len(s) then s = s:gsub("[\x80-\xff]", function(c) return utf8.char(c:byte()) end) end
  return '"' .. s:gsub('[%c"\\]', function(c)
    return escapes[c] or ("\\u%04x"):format(c:byte())
  end) .. '"'
end

--- A number; null for one that is not finite, which JSON has no word for. Nine digits give a float32 back.
local function number(x, exact)
  if math.type(x) == "integer" then return tostring(x) end
  if x ~= x or x == math.huge or x == -math.huge then return "null" end
  if not exact and x == math.floor(x) and math.abs(x) <= 1 << 53 then return ("%.0f"):format(x) end
  local text = ("%.9g"):format(x)
  if not exact then return text end
  if tonumber(text) ~= x then text = ("%.17g"):format(x) end
  return text:find "[.e]" and text or text .. ".0"
end

local encode

--- An object, its keys as in `order` (default: ascending).
local function object(t, order, exact)
  local words = {}
  if not order then
    order = {}
    for key in pairs(t) do order[#order + 1] = key end
    table.sort(order)
  end
  for _, key in ipairs(order) do
    if t[key] ~= nil then words[#words + 1] = quoted(key) .. ":" .. encode(t[key], nil, exact) end
  end
  return "{" .. table.concat(words, ",") .. "}"
end

local List = {}

--- Marks a table as a list, which it stays when it is empty.
---@param t table
---@return table
function M.list(t) return setmetatable(t, List) end

--- The text of a value: a boolean, number, string, core.null, list or table with words as keys.
---@param x any
---@param order string[]? the keys of the outermost object, in this order; others are left out
---@param exact boolean? every float reads back as what it was, and as a float
---@return string
function encode(x, order, exact)
  local kind = type(x)
  if kind == "table" then
    if #x == 0 and getmetatable(x) ~= List then return object(x, order, exact) end
    local words = {}
    for i, item in ipairs(x) do words[i] = encode(item, nil, exact) end
    return "[" .. table.concat(words, ",") .. "]"
  end
  if kind == "number" then return number(x, exact) end
  if x == core.null then return "null" end
  return kind == "string" and quoted(x) or tostring(x)
end
M.encode = core.plain(encode)

--- The object or list that a file holds. nil, message, code: there is none.
---@param path string
---@return table? value, string? message, string? code
function M.read(path)
  local file <close>, message = io.open(path, "rb")
  if not file then return nil, message, "E_IO" end
  local value, wrong = core.json(file:read "a" or "")
  if type(value) ~= "table" then return nil, path .. ": " .. (wrong or "no object"), "E_PARSE" end
  return value
end

--- What each line of a text holds; false where that is no object.
---@param text string
---@return fun(): table|false|nil
function M.each(text)
  local line_of = text:gmatch "[^\n]+"
  return function()
    local line = line_of()
    if not line then return nil end
    local value = core.json(line)
    return type(value) == "table" and value
  end
end

return M
