-- filters.lua: filters, tests and functions of chat templates: those of Jinja that published templates use.
local methods = require "meshlua.chat.methods"
local values = require "meshlua.chat.values"

local at_path, call = methods.at_path, methods.call
local the_integer, the_text = methods.the_integer, methods.the_text
local is_dict, is_list, is_undefined = values.is_dict, values.is_list, values.is_undefined
local made, none, text = values.made, values.none, values.text

local M = {}

local function fail(...) return values.fail("E_VALUE", nil, ...) end

-- ---- json ---------------------------------------------------------------------------------------------------

local ESCAPED = {["\n"] = "\\n", ["\r"] = "\\r", ["\t"] = "\\t", ["\b"] = "\\b", ["\f"] = "\\f",
  ['"'] = '\\"', ["\\"] = "\\\\"}

local function json_text(s, ascii)
  s = s:gsub('[%z\1-\31"\\]', function(c) return ESCAPED[c] or ("\\u%04x"):format(c:byte()) end)
  if ascii then
    s = s:gsub("[\194-\244][\128-\191]+", function(c)
      local code = utf8.codepoint(c)
      if code < 0x10000 then return ("\\u%04x"):format(code) end
      code = code - 0x10000
      return ("\\u%04x\\u%04x"):format(0xd800 + (code >> 10), 0xdc00 + (code & 0x3ff))
    end)
  end
  return made('"' .. s .. '"')
end

local function json_of(x, how, depth)
  if type(x) == "string" then return json_text(x, how.ascii) end
  if x == none then return "null" end
  if type(x) == "boolean" then return tostring(x) end
  if type(x) == "number" then
    local names = {inf = "Infinity", ["-inf"] = "-Infinity", nan = "NaN"}
    return names[text(x)] or text(x)
  end
  if not is_list(x) and not is_dict(x) then fail("tojson: %s is no JSON", values.kind(x)) end
  local parts, keys = {}, is_dict(x) and table.move(x.keys, 1, #x.keys, 1, {})
  if keys and how.sorted then table.sort(keys, values.less) end
  for i = 1, values.length(x) do
    local key = keys and (type(keys[i]) == "string" and keys[i] or json_of(keys[i], how, 0))
    parts[i] = (keys and json_text(key, how.ascii) .. how.colon or "")
      .. json_of(keys and values.at(x, keys[i]) or x[i], how, depth + 1)
  end
  local open, close = keys and "{" or "[", keys and "}" or "]"
  if not how.indent or #parts == 0 then return made(open .. table.concat(parts, how.comma) .. close) end
  local line = "\n" .. how.indent:rep(depth)
  return made(open .. line .. how.indent .. table.concat(parts, how.comma .. line .. how.indent) .. line
    .. close)
end

local function tojson(x, ascii, indent, separators, sorted)
  local how = {ascii = ascii and values.truth(ascii), sorted = sorted and values.truth(sorted)}
  if indent ~= nil and indent ~= none then
    how.indent = type(indent) == "string" and indent
      or (" "):rep(math.min(100, values.integer(indent, "indent")))
  end
  how.comma, how.colon = how.indent and "," or ", ", ": "
  if is_list(separators) and separators.n == 2 then
    how.comma, how.colon = the_text(separators[1], "a separator"), the_text(separators[2], "a separator")
  end
  return json_of(x, how, 0)
end

-- ---- tests ----------------------------------------------------------------------------------------------------

local function kind_test(test) return {function(x) return test(x) end} end
local function compares(test) return {"other", function(x, y)
  if y == nil then fail "a comparison needs what to compare with" end
  return test(x, y)
end} end

local equal, less = values.equal, values.less

local tests = {
  defined = kind_test(function(x) return not is_undefined(x) end), undefined = kind_test(is_undefined),
  none = kind_test(function(x) return x == none end),
  ["true"] = kind_test(function(x) return x == true end),
  ["false"] = kind_test(function(x) return x == false end),
  boolean = kind_test(function(x) return type(x) == "boolean" end),
  integer = kind_test(function(x) return math.type(x) == "integer" end),
  float = kind_test(function(x) return math.type(x) == "float" end),
  number = kind_test(function(x) return values.number(x) ~= nil end),
  string = kind_test(function(x) return type(x) == "string" end),
  mapping = kind_test(is_dict),
  iterable = kind_test(function(x) return values.length(x) ~= nil end),
  sequence = kind_test(function(x) return values.length(x) ~= nil end),
  callable = kind_test(values.is_function),
  odd = kind_test(function(x) return values.integer(x, "what is odd") % 2 == 1 end),
  even = kind_test(function(x) return values.integer(x, "what is even") % 2 == 0 end),
  divisibleby = compares(function(x, n)
    return values.arithmetic("%", values.integer(x, "a dividend"), values.integer(n, "a divisor")) == 0
  end),
  sameas = compares(function(x, y) return rawequal(x, y) and math.type(x) == math.type(y) end),
  eq = compares(equal), ne = compares(function(x, y) return not equal(x, y) end),
  lt = compares(less), gt = compares(function(x, y) return less(y, x) end),
  le = compares(function(x, y) return not less(y, x) end),
  ge = compares(function(x, y) return not less(x, y) end),
  ["in"] = compares(values.within),
  lower = kind_test(function(x) return methods.in_case("%u", "%l")[1](text(x)) end),
  upper = kind_test(function(x) return methods.in_case("%l", "%u")[1](text(x)) end),
}
tests.equalto, tests.greaterthan, tests.lessthan = tests.eq, tests.gt, tests.lt
M.tests = tests

-- ---- filters --------------------------------------------------------------------------------------------------

local filters = {}
M.filters = filters

--- A list of the items that a test takes, or does not.
local function selecting(wanted, has_path)
  return function(list, args, named)
    args = table.move(args, 1, args.n, 1, {n = args.n})
    local path = has_path and table.remove(args, 1)
    if has_path then args.n = args.n - 1 end
    local name = args.n > 0 and table.remove(args, 1)
    args.n = math.max(0, args.n - 1)
    local row, kept = tests[name], {}
    if name and not row then fail("there is no test %s", text(name)) end
    list = values.items(list)
    values.tick(list.n)
    for i = 1, list.n do
      local x = has_path and at_path(list[i], path) or list[i]
      local holds = row and call(name, row, args, named, x) or not row and values.truth(x)
      if values.truth(holds) == wanted then kept[#kept + 1] = list[i] end
    end
    return values.list(kept)
  end
end

--- Filters that take any arguments: fn(value, args, named).
M.open = {
  select = selecting(true), reject = selecting(false), selectattr = selecting(true, true),
  rejectattr = selecting(false, true),
  map = function(list, args, named)
    local name, results = args[1], {}
    list = values.items(list)
    values.tick(list.n)
    local rest = {n = math.max(0, args.n - 1), table.unpack(args, 2, args.n)}
    if not name and not named.attribute then fail "map needs attribute= or a filter" end
    if name and not filters[name] then fail("map: there is no filter %s", text(name)) end
    for i = 1, list.n do
      if name then
        results[i] = call(name, filters[name], rest, named, list[i])
      else
        results[i] = at_path(list[i], named.attribute)
        if is_undefined(results[i]) and named.default ~= nil then results[i] = named.default end
      end
    end
    return values.list(results)
  end,
}

--- As sorting has a value: texts in lower case.
local function folded(x, strict)
  if type(x) == "string" and not (strict and values.truth(strict)) then return methods.lower(x) end
  return x
end

local function sorted(x, reverse, strict, path)
  local list, keys = values.items(x), {}
  values.tick(list.n * 8)
  for i = 1, list.n do keys[i] = {folded(at_path(list[i], path), strict), i} end
  reverse = reverse and values.truth(reverse)
  table.sort(keys, function(a, b) -- what is equal stays in its order
    if less(a[1], b[1]) then return not reverse end
    if less(b[1], a[1]) then return reverse and true or false end
    return a[2] < b[2]
  end)
  local items = {}
  for i, key in ipairs(keys) do items[i] = list[key[2]] end
  return values.list(items)
end

local function indent(s, width, first, blank)
  local by = type(width) == "string" and width
    or (" "):rep(math.min(1000, math.max(0, the_integer(width, "the width", 4))))
  local lines = methods.lines_of(text(s) .. "\n")
  for i = 2, lines.n do
    if lines[i] ~= "" or blank and values.truth(blank) then lines[i] = by .. lines[i] end
  end
  made(by:rep(math.min(lines.n, 1000)))
  return (first and values.truth(first) and by or "") .. table.concat(lines, "\n", 1, lines.n)
end

local function extreme(is_better)
  return {"case_sensitive", "attribute", function(x, strict, path)
    local list = values.items(x)
    local best = list[1]
    for i = 2, list.n do
      local a, b = folded(at_path(list[i], path), strict), folded(at_path(best, path), strict)
      if is_better(a, b) then best = list[i] end
    end
    if best == nil then return values.undefined "an item of an empty list" end
    return best
  end}
end

local function to_number(as)
  return {"default", "base", function(x, default, base)
    if default == nil then default = as(0.0) end
    local n = values.number(x)
    if type(x) == "string" then
      n = tonumber(values.strip(x, nil, true, true):gsub("_", ""), base and values.integer(base, "the base"))
    end
    if not n or n ~= n or n == math.huge or n == -math.huge then return default end
    return as(n)
  end}
end

local function rounded(x, places_behind, way)
  local n = values.number(x) or fail("round: %s is no number", values.kind(x))
  if math.type(n) == "integer" and way ~= "ceil" and way ~= "floor" then return n end
  local digits = the_integer(places_behind, "the precision", 0)
  if digits < 0 or digits > 30 then fail "round: the precision is from 0 to 30" end
  local scale = 10.0 ^ digits
  if way == "ceil" then return math.ceil(n * scale) / scale end
  if way == "floor" then return math.floor(n * scale) / scale end
  local written = ("%%.%df"):format(digits):format(n)
  return tonumber(digits == 0 and written .. ".0" or written) or n -- what is not finite
end

local function end_of(at)
  return {function(x)
    local list = values.items(x)
    local value = list[at == "last" and list.n or 1]
    if value == nil then return values.undefined("the " .. at .. " item of nothing") end
    return value
  end}
end

local function on_text(fn) return {function(x) return made(fn(text(x))) end} end

local function length(x)
  return values.length(x) or fail("%s has no length", values.kind(x))
end

--- The items of a value as a list: of a tuple, too.
local function listed(x)
  local list = values.items(x)
  return list.tuple and values.list(table.move(list, 1, list.n, 1, {}), list.n) or list
end

local rows = {
  trim = {"chars", function(x, characters)
    return made(methods.stripping(true, true)[2](text(x), characters))
  end},
  upper = on_text(methods.upper), lower = on_text(methods.lower), capitalize = on_text(methods.capitalize),
  title = on_text(function(s) return (s:gsub("[^-%s({[<]+", methods.capitalize)) end),
  string = on_text(function(s) return s end), safe = {function(x) return x end},
  length = {length}, count = {length}, first = end_of "first", last = end_of "last",
  replace = {"old", "new", "count", function(x, old, new, n)
    if n == none then n = nil end
    if old == nil or new == nil then fail "replace needs what is replaced, and what takes its place" end
    return methods.replace(text(x), text(old), text(new), n)
  end},
  default = {"default_value", "boolean", function(x, default, falsy)
    if is_undefined(x) or falsy and values.truth(falsy) and not values.truth(x) then
      return default == nil and "" or default
    end
    return x
  end},
  join = {"d", "attribute", function(x, between, path)
    if path ~= nil then x = M.open.map(x, {n = 0}, {attribute = path}) end
    return methods.join(x, between ~= nil and text(between) or "")
  end},
  tojson = {"ensure_ascii", "indent", "separators", "sort_keys", tojson},
  list = {listed},
  items = {function(x) return is_undefined(x) and values.list {} or is_dict(x) and methods.pairs_of(x)
    or fail("%s has no items", values.kind(x)) end},
  dictsort = {"case_sensitive", "by", "reverse", function(x, strict, by, reverse)
    if not is_dict(x) then fail("dictsort: %s is no dict", values.kind(x)) end
    return sorted(methods.pairs_of(x), reverse, strict, by == "value" and 1 or 0)
  end},
  sort = {"reverse", "case_sensitive", "attribute", sorted},
  reverse = {function(x)
    if type(x) == "string" then return values.slice(x, nil, nil, -1) end
    return values.slice(listed(x), nil, nil, -1)
  end},
  unique = {"case_sensitive", "attribute", function(x, strict, path)
    local list, kept, seen = values.items(x), {}, {n = 0}
    for i = 1, list.n do
      local key = folded(at_path(list[i], path), strict)
      if not values.within(key, values.list(seen, seen.n)) then
        seen.n = seen.n + 1
        seen[seen.n], kept[#kept + 1] = key, list[i]
      end
    end
    return values.list(kept)
  end},
  min = extreme(less), max = extreme(function(a, b) return less(b, a) end),
  int = to_number(function(n) return math.tointeger(n < 0 and math.ceil(n) or math.floor(n)) or 0 end),
  float = to_number(function(n) return n + 0.0 end),
  abs = {function(x) return math.abs(values.number(x) or fail("abs: %s is no number", values.kind(x))) end},
  round = {"precision", "method", rounded},
  indent = {"width", "first", "blank", indent},
}
for name, row in pairs(rows) do filters[name] = row end
filters.d = filters.default

--- Applies a filter.
function M.filter(name, x, args, named)
  if type(x) == "string" then values.tick(1 + #x // 64) end
  if M.open[name] then return M.open[name](x, args, named) end
  return call(name, filters[name], args, named, x)
end

-- ---- functions --------------------------------------------------------------------------------------------------

local MOST_RANGE = 100000

local function range(from, to, step)
  from = values.integer(from, "a bound of range")
  if to == nil then from, to = 0, from end
  to, step = values.integer(to, "a bound of range"), the_integer(step, "the step of range", 1)
  if step == 0 then fail "range has the step 0" end
  local n = math.ceil(((to + 0.0) - from) / step)
  if n > MOST_RANGE then fail("range of %g numbers; the most is %d", n, MOST_RANGE) end
  local items = {}
  for i = 1, n do items[i] = from + (i - 1) * step end
  return values.list(items, math.max(0, n))
end

--- A dict of named arguments, behind those of another one.
local function fields(args, named)
  local keys, dict = {}, values.dict()
  if args.n > 1 or args.n == 1 and not is_dict(args[1]) then fail "one dict, or names and values" end
  local first = args[1] or dict
  for _, key in ipairs(first.keys) do values.put(dict, key, values.at(first, key)) end
  for key in pairs(named) do keys[#keys + 1] = key end
  table.sort(keys)
  for _, key in ipairs(keys) do values.put(dict, key, named[key]) end
  return dict
end

local function plain(name, row)
  return values.func(name, function(args, named) return call(name, row, args, named) end)
end

M.globals = {
  self = values.space {}, -- blocks of the template, which it does not have
  range = plain("range", {"start", "stop", "step", range}),
  dict = values.func("dict", fields),
  namespace = values.func("namespace", function(args, named)
    local space = values.space {}
    local dict = fields(args, named)
    for _, key in ipairs(dict.keys) do space.fields[key] = values.at(dict, key) end
    return space
  end),
  raise_exception = plain("raise_exception", {"message", function(message)
    values.fail("E_VALUE", nil, "it says: %s", text(message))
  end}),
  strftime_now = plain("strftime_now", {"format", function(format)
    local ok, said = pcall(os.date, the_text(format, "the format of a time"))
    return ok and said or fail("strftime_now: '%s' is no format of a time", format)
  end}),
}

return M
