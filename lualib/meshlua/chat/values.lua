-- values.lua: what values are in a chat template: Python's, for that is what templates are written for. Lists, tuples and
-- dicts are never changed. What is made is counted, so that no template runs or grows without end.
local core = require "meshlua.core"

local M = {}

local MOST_STEPS, MOST_BYTES = 1000000, 1 << 28

-- ---- faults, limits -----------------------------------------------------------------------------------

---@class TemplateFault
---@field message string
---@field code string
---@field line integer?
local Fault = {}

--- Ends a template.
---@param code string
---@param line integer? nil: of what runs
---@param format string
function M.fail(code, line, format, ...)
  error(setmetatable({code = code, line = line, message = format:format(...)}, Fault), 0)
end

function M.is_fault(x) return getmetatable(x) == Fault end

local function fail(format, ...) return M.fail("E_VALUE", nil, format, ...) end

-- Of the template that runs.
local meter = {steps = 0, bytes = 0, depth = 0, line = 1}
M.meter = meter

function M.begin() meter.steps, meter.bytes, meter.depth, meter.line = MOST_STEPS, MOST_BYTES, 0, 1 end

function M.tick(n)
  meter.steps = meter.steps - (n or 1)
  if meter.steps < 0 then fail("it does not end: %d steps are the most", MOST_STEPS) end
end

--- Counts bytes that are about to be made.
local function charge(bytes)
  meter.bytes = meter.bytes - bytes
  if meter.bytes < 0 then fail("it makes too much: %d bytes are the most", MOST_BYTES) end
end

M.charge = charge

--- A text that was made.
local function made(text)
  charge(#text)
  return text
end
M.made = made

-- ---- kinds --------------------------------------------------------------------------------------------

M.none = core.null
local none = M.none

local List, Dict, Undefined, Space, Function = {}, {}, {}, {}, {}

local function is(class) return function(x) return getmetatable(x) == class end end

M.is_list, M.is_dict, M.is_undefined, M.is_space = is(List), is(Dict), is(Undefined), is(Space)
M.is_function = is(Function)
local is_list, is_dict, is_undefined = M.is_list, M.is_dict, M.is_undefined

--- A list, or a tuple, of items[1 .. n], which becomes its own.
function M.list(items, n, is_tuple)
  items.n, items.tuple = n or #items, is_tuple
  charge(16 * items.n)
  return setmetatable(items, List)
end

function M.undefined(name) return setmetatable({name = name}, Undefined) end
function M.space(fields) return setmetatable({fields = fields}, Space) end
function M.func(name, call) return setmetatable({name = name, call = call}, Function) end

--- A dict's key as Lua has it: 1, 1.0 and true are one.
local function key_of(key)
  if type(key) == "boolean" then return key and 1 or 0 end
  if type(key) == "table" or key ~= key then
    fail("%s is no key of a dict", M.kind(key))
  end
  return key
end

function M.dict() return setmetatable({keys = {}, held = {}}, Dict) end

function M.put(dict, key, value)
  local k = key_of(key)
  if dict.held[k] == nil then dict.keys[#dict.keys + 1] = key end
  dict.held[k] = value
end

--- What a dict has at a key, or nil.
function M.at(dict, key)
  if type(key) == "table" then return nil end
  return dict.held[key_of(key)]
end

--- The kind of a value in words.
function M.kind(x)
  if x == none then return "none" end
  local t = type(x)
  if t == "string" then return "a text" end
  if t == "number" then return "a number" end
  if t == "boolean" then return "true or false" end
  if is_list(x) then return x.tuple and "a tuple" or "a list" end
  return is_dict(x) and "a dict" or is_undefined(x) and ("'%s', which is undefined"):format(x.name)
    or M.is_function(x) and "a function" or "a namespace"
end

--- A value of Lua as a template's: a table with items from 1, or empty, is a list; another one a dict, its keys sorted.
function M.from_lua(x, seen)
  if type(x) == "string" then
    if not utf8.len(x) then fail("a text among the values is not UTF-8") end
    return x
  elseif type(x) ~= "table" then
    if x == nil or x == none then return none end
    if type(x) == "number" or type(x) == "boolean" then return x end
    fail("a %s is no value of a template", type(x))
  end
  seen = seen or {}
  if seen[x] then fail("a table is within itself") end
  seen[x] = true
  local result
  if x[1] ~= nil or next(x) == nil then
    result = {}
    for i, item in ipairs(x) do result[i] = M.from_lua(item, seen) end
    result = M.list(result)
  else
    result = M.dict()
    local keys = {}
    for key in pairs(x) do keys[#keys + 1] = type(key) == "string" and key or fail("a key is no text") end
    table.sort(keys)
    for _, key in ipairs(keys) do M.put(result, key, M.from_lua(x[key], seen)) end
  end
  seen[x] = nil
  return result
end

-- ---- numbers ------------------------------------------------------------------------------------------

--- A number; true counts as 1. Nil: it is none.
function M.number(x)
  if type(x) == "boolean" then return x and 1 or 0 end
  return type(x) == "number" and x or nil
end

function M.integer(x, what)
  local n = M.number(x)
  if math.type(n) ~= "integer" then fail("%s is %s; it is a whole number", what, M.kind(x)) end
  return n
end

local function float_text(x)
  if x ~= x then return "nan" end
  if x == math.huge or x == -math.huge then return x > 0 and "inf" or "-inf" end
  local text
  for digits = 1, 17 do
    text = ("%%.%de"):format(digits - 1):format(x)
    if tonumber(text) == x then break end
  end
  local sign, digits, exponent = text:match "^(%-?)([%d.]+)e([+-]%d+)$"
  digits, exponent = digits:gsub("%.", ""), math.tointeger(tonumber(exponent))
  if exponent < -4 or exponent >= 16 then
    local rest = #digits > 1 and "." .. digits:sub(2) or ""
    return ("%s%s%se%s%02d"):format(sign, digits:sub(1, 1), rest, exponent < 0 and "-" or "+",
      math.abs(exponent))
  end
  if exponent < 0 then return sign .. "0." .. ("0"):rep(-exponent - 1) .. digits end
  if #digits <= exponent + 1 then return sign .. digits .. ("0"):rep(exponent + 1 - #digits) .. ".0" end
  return sign .. digits:sub(1, exponent + 1) .. "." .. digits:sub(exponent + 2)
end

-- ---- characters ---------------------------------------------------------------------------------------

local CHARACTER = "^[%z\1-\127\194-\253][\128-\191]*"

local space = {}
for c in ("\t\n\v\f\r\28\29\30\31 "):gmatch "." do space[c] = true end
for _, code in ipairs {0x85, 0xa0, 0x1680, 0x2028, 0x2029, 0x202f, 0x205f, 0x3000} do
  space[utf8.char(code)] = true
end
for code = 0x2000, 0x200a do space[utf8.char(code)] = true end
M.whitespace = space

local unseen = {} -- characters that Python shows by their numbers
for c in pairs(space) do unseen[c] = true end
for _, range in ipairs {{0x80, 0xa0}, {0xad, 0xad}, {0x200b, 0x200f}, {0x2028, 0x202e}, {0x2060, 0x206f},
  {0xfeff, 0xfeff}} do
  for code = range[1], range[2] do unseen[utf8.char(code)] = true end
end

-- ---- as texts -----------------------------------------------------------------------------------------

local QUOTED = {["\n"] = "\\n", ["\r"] = "\\r", ["\t"] = "\\t", ["\\"] = "\\\\"}

local function quoted(s)
  local quote = s:find("'", 1, true) and not s:find('"', 1, true) and '"' or "'"
  s = s:gsub("[%z\1-\31\\\127]", function(c) return QUOTED[c] or ("\\x%02x"):format(c:byte()) end)
  s = s:gsub("[\194\225-\227\239][\128-\191]+", function(c)
    local code = unseen[c] and utf8.codepoint(c)
    return code and (code < 0x100 and "\\x%02x" or "\\u%04x"):format(code)
  end)
  if quote == "'" then s = s:gsub("'", "\\'") end
  return quote .. s .. quote
end

--- As Python shows a value within others.
function M.repr(x)
  if type(x) == "string" then return made(quoted(x)) end
  if is_list(x) then
    local parts = {}
    for i = 1, x.n do parts[i] = M.repr(x[i]) end
    local text = table.concat(parts, ", ")
    if x.tuple then return made("(" .. text .. (x.n == 1 and ",)" or ")")) end
    return made("[" .. text .. "]")
  elseif is_dict(x) then
    local parts = {}
    for i, key in ipairs(x.keys) do parts[i] = M.repr(key) .. ": " .. M.repr(M.at(x, key)) end
    return made("{" .. table.concat(parts, ", ") .. "}")
  elseif is_undefined(x) then
    return "Undefined"
  end
  return M.text(x)
end

--- A value as it is written out.
function M.text(x)
  if type(x) == "string" then return x end
  if x == none then return "None" end
  if type(x) == "boolean" then return x and "True" or "False" end
  if math.type(x) == "integer" then return ("%d"):format(x) end
  if type(x) == "number" then return float_text(x) end
  if is_undefined(x) then return "" end
  if is_list(x) or is_dict(x) then return M.repr(x) end
  fail("%s cannot be written", M.kind(x))
end

-- ---- characters ---------------------------------------------------------------------------------------

--- Where the first character from `at` on is that is no white space.
function M.skip_space(s, at)
  while true do
    local c = s:match(CHARACTER, at)
    if not c or not space[c] then return at end
    at = at + #c
  end
end

--- A text without white space, or without the characters of another text, at its ends.
function M.strip(s, characters, left, right)
  local set, from, to = space, 1, #s
  if characters then
    set = {}
    for c in characters:gmatch(utf8.charpattern) do set[c] = true end
  end
  while left and from <= to do
    local c = s:match(CHARACTER, from)
    if not set[c] then break end
    from = from + #c
  end
  while right and to >= from do
    local at = utf8.offset(s, -1, to + 1)
    if not set[s:sub(at, to)] then break end
    to = at - 1
  end
  return s:sub(from, to)
end

--- The characters of a text.
function M.characters(s)
  local list = {}
  for c in s:gmatch(utf8.charpattern) do list[#list + 1] = c end
  return M.list(list)
end

--- How many items there are, or nil.
function M.length(x)
  if type(x) == "string" then return utf8.len(x) or #x end
  if is_list(x) then return x.n end
  if is_dict(x) then return #x.keys end
  return is_undefined(x) and 0 or nil
end

--- What a loop over a value goes through, as a list.
function M.items(x)
  if is_list(x) then return x end
  if type(x) == "string" then return M.characters(x) end
  if is_dict(x) then return M.list(table.move(x.keys, 1, #x.keys, 1, {})) end
  if is_undefined(x) then return M.list {} end
  fail("%s has no items", M.kind(x))
end

-- ---- what is true, equal, less ------------------------------------------------------------------------

function M.truth(x)
  if x == none or x == false or x == 0 then return false end
  if type(x) == "table" and not M.is_space(x) and not M.is_function(x) then return M.length(x) > 0 end
  return x ~= ""
end

function M.equal(a, b)
  local x, y = M.number(a), M.number(b)
  if x and y then return x == y end
  if is_list(a) and is_list(b) then
    if a.n ~= b.n or a.tuple ~= b.tuple then return false end
    M.tick(a.n)
    for i = 1, a.n do
      if not M.equal(a[i], b[i]) then return false end
    end
    return true
  elseif is_dict(a) and is_dict(b) then
    M.tick(#a.keys)
    for _, key in ipairs(a.keys) do
      local other = M.at(b, key)
      if other == nil or not M.equal(M.at(a, key), other) then return false end
    end
    return #a.keys == #b.keys
  end
  return is_undefined(a) and is_undefined(b) or a == b
end

function M.less(a, b)
  local x, y = M.number(a), M.number(b)
  if x and y then return x < y end
  if type(a) == "string" and type(b) == "string" then return a < b end
  if is_list(a) and is_list(b) and a.tuple == b.tuple then
    M.tick(a.n)
    for i = 1, math.min(a.n, b.n) do
      if not M.equal(a[i], b[i]) then return M.less(a[i], b[i]) end
    end
    return a.n < b.n
  end
  fail("%s and %s have no order", M.kind(a), M.kind(b))
end

--- Is a in b?
function M.within(a, b)
  if type(b) == "string" then
    if type(a) ~= "string" then fail("%s is not in a text", M.kind(a)) end
    M.tick(1 + #b // 256)
    return b:find(a, 1, true) ~= nil
  elseif is_dict(b) then
    return M.at(b, a) ~= nil
  end
  local list = M.items(b)
  M.tick(list.n)
  for i = 1, list.n do
    if M.equal(list[i], a) then return true end
  end
  return false
end

-- ---- arithmetic ---------------------------------------------------------------------------------------

local function repeated(x, n)
  n = math.max(0, n)
  charge((n + 0.0) * (type(x) == "string" and #x or x.n))
  if type(x) == "string" then return x:rep(n) end
  M.tick(x.n * n)
  local items = {}
  for k = 0, n - 1 do table.move(x, 1, x.n, k * x.n + 1, items) end
  return M.list(items, x.n * n, x.tuple)
end

local function whole(x) -- of an integer's operation done in floats, too
  if x >= 0x1p63 or x < -0x1p63 then fail "a whole number has become too large" end
end

local function divisor(x)
  if x == 0 then fail "division by zero" end
  return x
end

local function power(x, y)
  local z = x ^ y
  if math.type(x) ~= "integer" or math.type(y) ~= "integer" or y < 0 then return z end
  if math.abs(z) > 0x1p53 then fail "a whole number has become too large" end
  return math.tointeger(z)
end

--- x % y, and x // y of floats, to Python's last bit.
local function modulo(x, y)
  local rest = x % divisor(y)
  if rest == 0 and math.type(rest) == "float" then return y < 0 and -0.0 or 0.0 end
  return rest
end

local function floored(x, y)
  if math.type(x) == "integer" and math.type(y) == "integer" then return x // divisor(y) end
  local quotient = (x - modulo(x, y)) / y
  if quotient == 0 then return 1 / (x / y) < 0 and -0.0 or 0.0 end
  local low = quotient // 1.0
  return quotient - low > 0.5 and low + 1 or low
end

local on_numbers = {
  ["+"] = function(x, y)
    if math.type(x + y) == "integer" then whole((x + 0.0) + y) end
    return x + y
  end,
  ["-"] = function(x, y)
    if math.type(x - y) == "integer" then whole((x + 0.0) - y) end
    return x - y
  end,
  ["*"] = function(x, y)
    if math.type(x * y) == "integer" then whole((x + 0.0) * y) end
    return x * y
  end,
  ["/"] = function(x, y) return x / divisor(y) end,
  ["//"] = floored, ["%"] = modulo,
  ["**"] = power,
}

--- a op b, for + - * / // % **.
function M.arithmetic(op, a, b)
  local x, y = M.number(a), M.number(b)
  if x and y then return on_numbers[op](x, y) end
  if op == "+" and type(a) == "string" and type(b) == "string" then return made(a .. b) end
  if op == "+" and is_list(a) and is_list(b) and a.tuple == b.tuple then
    M.tick(a.n + b.n)
    local items = table.move(a, 1, a.n, 1, {})
    return M.list(table.move(b, 1, b.n, a.n + 1, items), a.n + b.n, a.tuple)
  end
  local n, x_of = y, a
  if x then n, x_of = x, b end
  if op == "*" and math.type(n) == "integer" and (type(x_of) == "string" or is_list(x_of)) then
    return repeated(x_of, n)
  end
  if op == "%" and type(a) == "string" then
    M.fail("E_UNSUPPORTED", nil, "%% of a text is not supported; ~ puts texts together")
  end
  fail("%s %s %s cannot be computed", M.kind(a), op, M.kind(b))
end

-- ---- parts --------------------------------------------------------------------------------------------

--- What stands at a number of a list or text, or nil.
function M.item(x, i)
  local list = type(x) == "string" and M.characters(x) or x
  if i < 0 then i = i + list.n end
  if i < 0 or i >= list.n then return nil end
  return list[i + 1]
end

--- x[from:to:step]; nil: left out.
function M.slice(x, from, to, step)
  if type(x) ~= "string" and not is_list(x) then fail("%s has no slices", M.kind(x)) end
  local list = M.items(x)
  local n = list.n
  step = step or 1
  if step == 0 then fail "a slice has the step 0" end
  local low, high = 0, n
  if step < 0 then low, high = -1, n - 1 end
  local function bound(i, default)
    if not i then return default end
    if i < 0 then i = i + n end
    return math.max(low, math.min(i, high))
  end
  from, to = bound(from, step < 0 and high or low), bound(to, step < 0 and low or high)
  local items, count = {}, 0
  for i = from, to + (step > 0 and -1 or 1), step do
    count = count + 1
    items[count] = list[i + 1]
  end
  if type(x) == "string" then return made(table.concat(items)) end
  return M.list(items, count, x.tuple)
end

return M
