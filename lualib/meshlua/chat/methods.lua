-- methods.lua: methods, attributes and items of values in chat templates: of Python's, those that published templates
-- use. A row has the names of its arguments, then the function, which gets nil for those that are left out.
local values = require "meshlua.chat.values"

local is_dict, is_list, is_undefined = values.is_dict, values.is_list, values.is_undefined
local made, none, text = values.made, values.none, values.text

local M = {}

local function fail(...) return values.fail("E_VALUE", nil, ...) end

--- Calls a row with arguments as they were written.
---@param what string who is called
---@param row table
---@param args table its n values
---@param named table<string, any>
---@param ... any what comes before the arguments
function M.call(what, row, args, named, ...)
  local n = #row - 1
  if args.n > n then fail("%s takes %d arguments, got %d", what, n, args.n) end
  local list = table.move(args, 1, args.n, 1, {})
  for name, value in pairs(named) do
    local at
    for i = 1, n do at = row[i] == name and i or at end
    if not at then fail("%s has no argument %s", what, name) end
    list[at] = value
  end
  local before = select("#", ...)
  local all = {...}
  for i = 1, n do all[before + i] = list[i] end
  return row[n + 1](table.unpack(all, 1, before + n))
end

local function the_text(x, what)
  if type(x) ~= "string" then fail("%s is %s; it is a text", what, values.kind(x)) end
  return x
end

local function the_integer(x, what, default)
  if x == nil then return default end
  return values.integer(x, what)
end

-- ---- texts ----------------------------------------------------------------------------------------------

--- Letters beyond ASCII stay as they are.
local function upper(s) return (s:gsub("%l+", string.upper)) end
local function lower(s) return (s:gsub("%u+", string.lower)) end

local function capitalize(s)
  local first = s:match("^" .. utf8.charpattern) or ""
  return upper(first) .. lower(s:sub(#first + 1))
end

--- Where a text stands in another one: an iterator over first and last bytes, at most `most` times.
local function places(s, what, most)
  local at, n = 1, 0
  return function()
    if most >= 0 and n == most then return nil end
    local from, to = s:find(what, at, true)
    if not from then return nil end
    at, n = to + 1, n + 1
    return from, to
  end
end

local function replace(s, old, new, count)
  the_text(old, "what is replaced")
  the_text(new, "what takes its place")
  count = the_integer(count, "the count", -1)
  local parts, at = {}, 1
  if old == "" then
    for _, c in ipairs(values.characters(s)) do
      if count == 0 then break end
      parts[#parts + 1], count, at = new .. c, count - 1, at + #c
    end
    if count ~= 0 then parts[#parts + 1] = new end
    return made(table.concat(parts) .. s:sub(at))
  end
  for from, to in places(s, old, count) do
    parts[#parts + 1], at = s:sub(at, from - 1), to + 1
    values.tick()
    values.charge(#new)
  end
  parts[#parts + 1] = s:sub(at)
  return made(table.concat(parts, new))
end

local function split_at_space(s, most)
  local parts, at = {}, values.skip_space(s, 1)
  while at <= #s do
    if most >= 0 and #parts == most then
      parts[#parts + 1] = values.strip(s:sub(at), nil, false, true)
      break
    end
    local from = at
    while at <= #s do
      local c = s:match("^" .. utf8.charpattern, at)
      if values.whitespace[c] then break end
      at = at + #c
    end
    parts[#parts + 1] = s:sub(from, at - 1)
    at = values.skip_space(s, at)
  end
  return parts
end

local function split(s, separator, most)
  most = the_integer(most, "maxsplit", -1)
  made(s)
  if separator == nil or separator == none then return values.list(split_at_space(s, most)) end
  if the_text(separator, "a separator") == "" then fail "a separator is empty" end
  local parts, at = {}, 1
  for from, to in places(s, separator, most) do
    parts[#parts + 1], at = s:sub(at, from - 1), to + 1
  end
  parts[#parts + 1] = s:sub(at)
  return values.list(parts)
end

--- As split, from the end.
local function rsplit(s, separator, most)
  most = the_integer(most, "maxsplit", -1)
  if most < 0 then return split(s, separator) end
  if the_text(separator, "a separator") == "" then fail "a separator is empty" end
  local parts, backwards, wanted, last = {}, s:reverse(), separator:reverse(), 1
  for from, to in places(backwards, wanted, most) do
    table.insert(parts, 1, backwards:sub(last, from - 1):reverse())
    last = to + 1
  end
  table.insert(parts, 1, backwards:sub(last):reverse())
  made(s)
  return values.list(parts)
end

local BREAKS = {"\r\n", "\n", "\r", "\v", "\f", "\28", "\29", "\30", "\194\133", "\226\128\168",
  "\226\128\169"}

local function lines_of(s, keep)
  local parts, from, at = {}, 1, 1
  while true do
    local begin = s:find("[\n\r\v\f\28-\30\194\226]", at)
    if not begin then break end
    at = begin + 1
    for _, sign in ipairs(BREAKS) do
      if s:sub(begin, begin + #sign - 1) == sign then
        parts[#parts + 1], from = s:sub(from, keep and begin + #sign - 1 or begin - 1), begin + #sign
        at = from
        break
      end
    end
  end
  if from <= #s then parts[#parts + 1] = s:sub(from) end
  made(s)
  return values.list(parts)
end

local function begins(s, with) return s:sub(1, #with) == with end
local function ends(s, with) return with == "" or #s >= #with and s:sub(-#with) == with end

--- Does a text begin (end) with a text, or one of a tuple?
local function with_any(test)
  return {"with", "start", function(s, with, start)
    if start ~= nil then s = values.slice(s, values.integer(start, "the start")) end
    for i = 1, is_list(with) and with.tuple and with.n or 1 do
      if test(s, the_text(is_list(with) and with[i] or with, "what is looked for")) then return true end
    end
    return false
  end}
end

--- The number of the character where a text stands, or -1.
local function find(s, what)
  local at = s:find(the_text(what, "what is looked for"), 1, true)
  return at and utf8.len(s:sub(1, at - 1)) or -1
end

local function count(s, what)
  if the_text(what, "what is counted") == "" then return utf8.len(s) + 1 end
  local n = 0
  for _ in places(s, what, -1) do n = n + 1 end
  return n
end

local function title(s)
  return (s:gsub("[%a\128-\255]+", capitalize))
end

local function join(list, between)
  local parts = {}
  list = values.items(list)
  for i = 1, list.n do
    parts[i] = text(list[i])
    values.charge(#parts[i] + #between)
  end
  return table.concat(parts, between)
end

local function strict_join(between, list)
  list = values.items(list)
  for i = 1, list.n do the_text(list[i], "what is joined") end
  return join(list, between)
end

--- The text in front of another one, that one, and what is behind.
local function partition(s, separator)
  if the_text(separator, "a separator") == "" then fail "a separator is empty" end
  local from, to = s:find(separator, 1, true)
  local parts = from and {s:sub(1, from - 1), separator, s:sub(to + 1)} or {s, "", ""}
  return values.list(parts, 3, true)
end

--- Is the text of such characters, and not empty?
local function of(class) return {function(s) return s:find("^" .. class .. "+$") ~= nil end} end

local function in_case(other, own)
  return {function(s) return s:find(own) ~= nil and not s:find(other) end}
end

local function stripping(left, right)
  return {"chars", function(s, characters)
    if characters == none then characters = nil end
    return values.strip(s, characters and the_text(characters, "what is stripped"), left, right)
  end}
end

local of_text = {
  strip = stripping(true, true), lstrip = stripping(true, false), rstrip = stripping(false, true),
  upper = {upper}, lower = {lower}, capitalize = {capitalize}, title = {title},
  split = {"sep", "maxsplit", split}, rsplit = {"sep", "maxsplit", rsplit},
  splitlines = {"keepends", function(s, keep) return lines_of(s, keep and values.truth(keep)) end},
  startswith = with_any(begins), endswith = with_any(ends),
  replace = {"old", "new", "count", replace}, find = {"sub", find}, count = {"sub", count},
  join = {"iterable", strict_join}, partition = {"sep", partition},
  isdigit = of "%d", isalpha = of "%a", isalnum = of "%w",
  isspace = {function(s) return s ~= "" and values.skip_space(s, 1) > #s end},
  isupper = in_case("%l", "%u"), islower = in_case("%u", "%l"),
  removeprefix = {"prefix", function(s, prefix)
    return begins(s, the_text(prefix, "a prefix")) and s:sub(#prefix + 1) or s
  end},
  removesuffix = {"suffix", function(s, suffix)
    return suffix ~= "" and ends(s, the_text(suffix, "a suffix")) and s:sub(1, -#suffix - 1) or s
  end},
}

-- ---- dicts and lists --------------------------------------------------------------------------------------

local function pairs_of(dict)
  local list = {}
  for i, key in ipairs(dict.keys) do list[i] = values.list({key, values.at(dict, key)}, 2, true) end
  return values.list(list)
end

local of_dict = {
  items = {pairs_of},
  keys = {values.items},
  values = {function(dict)
    local list = {}
    for i, key in ipairs(dict.keys) do list[i] = values.at(dict, key) end
    return values.list(list)
  end},
  get = {"key", "default", function(dict, key, default)
    local value = values.at(dict, key)
    if value == nil then value = default end
    if value == nil then return none end
    return value
  end},
  copy = {function(dict) return dict end},
}

local of_list = {
  count = {"value", function(list, value)
    local n = 0
    for i = 1, list.n do n = n + (values.equal(list[i], value) and 1 or 0) end
    return n
  end},
  index = {"value", function(list, value)
    for i = 1, list.n do
      if values.equal(list[i], value) then return i - 1 end
    end
    fail "what is looked for is not in the list"
  end},
}

--- The method of a value, bound to it; or nil.
function M.method(x, name)
  local rows = type(x) == "string" and of_text or is_dict(x) and of_dict or is_list(x) and of_list
  local row = rows and rows[name]
  if not row then return nil end
  return values.func(name, function(args, named)
    if type(x) == "string" then values.tick(1 + #x // 64) end
    local result = M.call(name, row, args, named, x)
    if type(result) == "string" then made(result) end
    return result
  end)
end

--- x.name.
function M.attribute(x, name)
  if is_undefined(x) then fail("'%s' is undefined, and so has no %s", x.name, name) end
  local method = M.method(x, name)
  if method then return method end
  local value
  if is_dict(x) then value = values.at(x, name) end
  if values.is_space(x) then value = x.fields[name] end
  if value == nil then return values.undefined(name) end
  return value
end

--- x[key].
function M.item(x, key)
  if is_undefined(x) then fail("'%s' is undefined, and so has no parts", x.name) end
  local value
  if is_dict(x) then value = values.at(x, key) end
  if (is_list(x) or type(x) == "string") and math.type(values.number(key)) == "integer" then
    value = values.item(x, values.number(key))
  end
  if value == nil and type(key) == "string" then return M.attribute(x, key) end
  if value == nil then
    return values.undefined(math.type(key) == "integer" and ("item %d"):format(key) or "item")
  end
  return value
end

--- What stands at a path, as "function.name", of a value.
local function at_path(x, path)
  if path == nil then return x end
  for part in text(path):gmatch "[^.]+" do x = M.item(x, math.tointeger(tonumber(part)) or part) end
  return x
end

M.at_path, M.the_integer, M.the_text, M.pairs_of = at_path, the_integer, the_text, pairs_of
M.upper, M.lower, M.capitalize, M.in_case, M.stripping = upper, lower, capitalize, in_case, stripping
M.replace, M.join, M.lines_of = replace, join, lines_of

return M
