-- exports/init.lua: the one table of public names. A row says how something is called, of which types its arguments and
-- options are, and what it does: arguments are checked by it, the nearest name is found in it. The rows stand in
-- exports/, as text, and are read when they are first asked for: starting reads none. Where the library verifies
-- itself (the checked build, MESHLUA_CHECK=1) starting reads them: a public name without a row is an error (held.lua).
-- The annotations of `meshlua --types` are made from them (types.lua).
--
--   name(parameter: type, optional: type?, ...: type, {option: type}) -> type, ...
--     What it does.
--   Type:method(self: Type) -> type
--   Type.field: type
--
-- Types are joined by |, T[] is a list of T; further words stand in `kinds`. One with * in front is looked at by the
-- function itself, which has more to say of it.
local core = require "meshlua.core"
local lib = require "meshlua.lib"

local raise = lib.raise

local M = {}

--- The version that first had the rows of exports/.
M.SINCE = "0.1"

--- The files of rows. Those of the first three take out_sharding, and their optional parameters by name, too.
M.families = {"tensor", "ops", "linalg", "sharding", "transform", "nn", "optim", "checkpoint", "tools"}
local takes_names = {tensor = true, ops = true, linalg = true}
local also_take_names = {["data.windows"] = true, make_array_from_callback = true, all_to_all = true}

local texts

local function text_of(family)
  texts = texts or {}
  texts[family] = texts[family] or "\n" .. require("meshlua.exports." .. family)
  return texts[family]
end

-- ---- types ------------------------------------------------------------------------------------------

local function of_type(name) return function(x) return type(x) == name end end

local function is_integer(x) return math.type(x) == "integer" end

--- Words of types: {is x of it?, how messages call it}.
local kinds = {
  any = {function() return true end, "anything"},
  axes = {function(x) return is_integer(x) or type(x) == "table" end, "an axis or a list of them"},
  boolean = {of_type "boolean", "a boolean"},
  dtype = {of_type "string", "the name of a dtype"},
  ["false"] = {function(x) return x == false end, "false"},
  ["function"] = {lib.is_callable, "a function"},
  integer = {is_integer, "a whole number"},
  integers = {function(x) return is_integer(x) or type(x) == "table" end, "a whole number or a list of them"},
  key = {lib.is_tensor, "a key"},
  Mesh = {core.is_mesh, "a Mesh"},
  NamedSharding = {core.is_sharding, "a NamedSharding"},
  number = {of_type "number", "a number"},
  P = {core.is_spec, "a P"},
  JittedFunction = {function(x) return core.type_name(x) == "jit" end, "a jitted function"},
  Plan = {function(x) return core.type_name(x) == "Plan" end, "a plan"},
  Program = {function(x) return core.type_name(x) == "Program" end, "a program"},
  Tokens = {function(x) return core.type_name(x) == "tokens" end, "tokens (of data.tokens)"},
  padding = {function(x) return type(x) == "string" or type(x) == "table" end,
    "'same', 'valid' or a {low, high} for each dim"},
  Param = {core.is_box, "a Param"},
  shape = {function(x) return is_integer(x) or type(x) == "table" end, "a shape"},
  string = {of_type "string", "a string"},
  table = {of_type "table", "a table"},
  Tensor = {lib.is_tensor, "a tensor"},
  tree = {function(x) return lib.is_tensor(x) or type(x) == "table" or type(x) == "number" end,
    "a tensor or a tree of them"},
}
M.kinds = kinds

--- The text cut at a separator that stands outside of brackets.
---@param marks string a pattern of the separator and the brackets
local function cut(text, separator, marks)
  local list, depth, from = {}, 0, 1
  for at, c in text:gmatch("()(" .. marks .. ")") do
    if c ~= separator then
      depth = depth + ((c == "{" or c == "(" or c == "<") and 1 or -1)
    elseif depth == 0 then
      list[#list + 1], from = text:sub(from, at - 1), at + 1
    end
  end
  list[#list + 1] = text:sub(from)
  return list
end

--- The alternatives of a type: "integer|string[]" has two.
---@param text string
---@return string[]
function M.alternatives(text) return cut(text, "|", "[|(<)>]") end

--- Is x a table of a class of the library?
local function is_of(class)
  return function(x)
    local meta = type(x) == "table" and getmetatable(x)
    return meta and meta.__name == class or false
  end
end

local alternatives_of

--- Is x a list of what the words in front of [] say?
local function list_of(text)
  local inner = text:match "^%((.*)%)$" or text
  local entries = alternatives_of(inner)
  return {function(x)
    for _, entry in ipairs(type(x) == "table" and x or {}) do
      local any = false
      for _, kind in ipairs(entries) do any = any or kind[1](entry) end
      if not any then return false end
    end
    return type(x) == "table"
  end, "a list of " .. (entries[1][2]:gsub("^an? ", "")) .. "s"}
end

--- What a word says.
local function kind_of(word)
  local literal = word:match '^"(.*)"$'
  if literal then return {function(x) return x == literal end, "'" .. literal .. "'"} end
  if word:find "%[%]$" then return list_of(word:sub(1, -3)) end
  return kinds[word] or {is_of(word), "a " .. word}
end

local checks = {}

function alternatives_of(text)
  if not checks[text] then
    local list = {}
    for i, word in ipairs(M.alternatives(text)) do list[i] = kind_of(word) end
    checks[text] = list
  end
  return checks[text]
end

--- Is x of the type? If not, what the type is, for messages.
---@param text string
---@return boolean, string
function M.is(x, text)
  if text:byte() == 42 then return true, "" end -- *
  local words = {}
  for i, kind in ipairs(alternatives_of(text)) do
    if kind[1](x) then return true, "" end
    words[i] = kind[2]
  end
  return false, table.concat(words, " or ")
end

-- ---- rows -------------------------------------------------------------------------------------------

---@class Row
---@field name string
---@field family string
---@field params {name: string, type: string, optional: boolean}[]
---@field place table<string, integer> parameter -> its position
---@field variadic string? the type of `...`
---@field options table<string, string>? option -> type
---@field required integer how many parameters in front must be given
---@field names boolean can its optional parameters be given by name?
---@field most integer how many arguments it takes
---@field results string types, "" for none
---@field doc string
---@field field string? the type, where it is no function

--- The parts of a parameter list.
local function parts_of(text)
  local list = text:find "%S" and cut(text, ",", "[,{(<})>]") or {}
  for i, part in ipairs(list) do list[i] = part:match "^%s*(.-)%s*$" end
  return list
end

local function add_part(row, part)
  local options = part:match "^{(.*)}$"
  if options then
    row.options = {}
    for _, option in ipairs(parts_of(options)) do
      local name, kind = option:match "^([%w_]+): (.+)$"
      row.options[name] = kind
    end
    return
  end
  local name, kind = part:match "^([%w_.]+): (.+)$"
  if name == "..." then
    row.variadic = kind
    return
  end
  local optional = kind:find "%?$" ~= nil
  row.params[#row.params + 1] = {name = name, type = kind:gsub("%?$", ""), optional = optional}
  row.place[name] = #row.params
  if not optional and row.required == #row.params - 1 then row.required = #row.params end
end

--- The row in the text that begins at a line.
local function parse(family, name, text, at)
  local stop = text:find("\n[^ ]", at) or #text
  local lines = text:sub(at, stop - 1):gsub("\n    ", " ")
  local head, doc = lines:match "^(.-)\n  (.*)$"
  local row = {name = name, family = family, params = {}, place = {}, required = 0, results = "",
    doc = (doc or ""):gsub("\n  ", " "), text = head or lines}
  local rest = row.text:sub(#name + 1)
  if rest:sub(1, 1) ~= "(" then
    row.field = rest:match "^: (.+)$"
    return row
  end
  local list, results = rest:match "^%b()", rest:match "^%b() %-> (.+)$"
  for _, part in ipairs(parts_of(list:sub(2, -2))) do add_part(row, part) end
  row.results = results or ""
  local of_op = takes_names[family] and not name:find ":"
  row.names = of_op or also_take_names[name] or false
  if of_op then
    row.options = row.options or {}
    row.options.out_sharding = "NamedSharding|P|table"
  end
  row.most = row.variadic and math.maxinteger or #row.params + (row.options and 1 or 0)
  return row
end

local rows = {}

local function find(name)
  for _, family in ipairs(M.families) do
    local text = text_of(family)
    for _, after in ipairs {"(", ": "} do
      local at = text:find("\n" .. name .. after, 1, true)
      if at then return parse(family, name, text, at + 1) end
    end
  end
end

-- Names in messages leave these out.
local prefixes = {"", "nn.", "optim.", "metrics.", "Records:"}

--- The row of a name: "matmul", "random.key", "nn.Linear" or "Linear", "Mesh:with"; nil if there is none.
---@param name string
---@return Row?
function M.row(name)
  if rows[name] == nil then
    local row
    for _, prefix in ipairs(prefixes) do row = row or find(prefix .. name) end
    rows[name] = row or false
  end
  return rows[name] or nil
end

--- The names of all rows, in their order.
---@return string[]
function M.names()
  local list = {}
  for _, family in ipairs(M.families) do
    for line in text_of(family):gmatch "\n(%a[^\n]*)" do
      list[#list + 1] = line:match "^([%w_.:]-)%(" or line:match "^([%w_.]+): "
    end
  end
  return list
end

-- ---- what is wrong with a call ----------------------------------------------------------------------

--- How messages call it: "Linear:__call" is Linear.
local function shown(who) return (who:gsub(":__call$", "")) end

--- Options of other libraries, where one of these is here what they say.
local foreign_options = {dim = {"axes", "axis"}, keepdim = {"keepdims"}, bias = {"use_bias"}, key = {"rngs"},
  static_argnums = {"static"}, static_argnames = {"static"}, donate_argnums = {"donate"},
  donate_argnames = {"donate"}, learning_rate = {"lr"}, betas = {"b1"}, num_heads = {"heads"}}

--- What to write instead of an option: the word for it, the nearest one, or what there is.
local function instead_of_option(key, names)
  for _, name in ipairs(foreign_options[key] or {}) do
    if lib.position(names, name) then return "; it is called '" .. name .. "' here" end
  end
  if #names == 0 then return "; it has none" end
  local near = lib.did_you_mean(key, names)
  return near ~= "" and near or "; there are " .. table.concat(names, ", ")
end

local function unknown_option(who, row, key)
  local names = lib.names(row.options or {})
  for _, p in ipairs(row.names and row.params or {}) do
    if p.optional then names[#names + 1] = p.name end
  end
  raise("E_KEY", "%s: unknown option '%s'%s", shown(who), key, instead_of_option(key, names))
end

local function check_type(who, key, value, wanted)
  local ok, words = M.is(value, wanted)
  if not ok then
    local got = wanted == "integer" and lib.not_whole(value) or lib.kind(value)
    raise("E_VALUE", "%s: option '%s' must be %s, not %s", shown(who), key, words, got)
  end
end

--- Raises unless the arguments are of the types that the row says; for functions that are not called often.
---@param who string
function M.check(who, ...)
  local row = M.row(who)
  for i, p in ipairs(row.params) do
    local value = select(i, ...)
    local ok, words = M.is(value, p.type)
    if not ok and not (p.optional and value == nil) then
      local got = p.type == "integer" and lib.not_whole(value) or lib.kind(value)
      raise("E_VALUE", "%s: %s must be %s, not %s", who, p.name, words, got)
    end
  end
end

--- Checks an options table against the row: unknown names and wrong types raise.
---@param who string the function, for messages and its row
---@param options table
---@return table options
function M.options(who, options)
  local row = M.row(who)
  local class = type(options) == "table" and getmetatable(options)
  if type(options) ~= "table" or type(class) == "table" and class.__name then
    local called = row.results == "function" and row.place.fn and lib.is_tensor(options)
      and ("; it gives a function: %s(fn)(x)"):format(who) or "; options have names: {name = value}"
    raise("E_VALUE", "%s: options must be a table, not %s%s", shown(who), class and "a " .. class.__name
      or lib.kind(options), called)
  end
  for key, value in next, options do
    local wanted = row.options[key]
    if not wanted then unknown_option(who, row, key) end
    check_type(who, key, value, wanted)
  end
  return options
end

--- Puts what a table at the end of a call names where it belongs: optional parameters in their places, options in a
--- table behind them. What it has at numbers stays a table.
---@param who string
---@param ... any the arguments, the table last
---@return table arguments with n
---@return any out_sharding
function M.by_name(who, ...)
  local row, args, n = M.row(who), table.pack(...), select("#", ...)
  local last, out_sharding, rest, options = args[n], nil, {}, {}
  if last.out_sharding == nil and n <= row.required then return args end
  args[n], args.n = nil, n - 1
  for key, value in next, last do
    local at = type(key) == "string" and row.place[key]
    if key == "out_sharding" then
      out_sharding = value
    elseif type(key) ~= "string" then
      rest[key] = value
    elseif at then
      if at < n then raise("E_VALUE", "%s: '%s' is given twice", who, key) end
      check_type(who, key, value, row.params[at].type)
      args[at], args.n = value, math.max(args.n, at)
    else
      local wanted = row.options and row.options[key]
      if not wanted then unknown_option(who, row, key) end
      check_type(who, key, value, wanted)
      options[key] = value
    end
  end
  if next(rest) ~= nil then args[n], args.n = rest, math.max(args.n, n) end
  if next(options) ~= nil then
    args.n = (row.variadic and args.n or #row.params) + 1
    args[args.n] = options
  end
  return args, out_sharding
end

--- A function has been given more than it takes: where the rest is nil it is called without.
---@param fn function
---@param most integer
---@param who string? its name
function M.surplus(fn, most, who, ...)
  local n = select("#", ...)
  while n > most and (select(n, ...)) == nil do n = n - 1 end
  if n <= most then
    local args = {...}
    return fn(table.unpack(args, 1, n))
  end
  if who and who:find ":init$" then -- of a class, whose row does not count the instance
    return M.surplus(fn, most - 1, (who:gsub(":init$", "")), select(2, ...))
  end
  local row, last = who and M.row(who), (select(n, ...))
  who = shown(who or "the function")
  if row and n == most + 1 and type(last) == "table" and type(next(last)) == "string" then
    unknown_option(who, row, (next(last)))
  end
  local list = row and type(last) == "number" and (row.place.shape and "; a shape is a list: {2, 3}"
    or row.place.values and "; values are a list: {1, 2}") or ""
  local text = row and ": " .. row.text:gsub("{.*}", "{options}") or ""
  if row and row.name:find ":" then -- of a value, which is not counted
    most, n, text = most - 1, n - 1, text:gsub("%([^,)]*,? ?", "(", 1)
  end
  raise("E_VALUE", "%s: takes %d argument%s, got %d%s%s", who, most, most == 1 and "" or "s", n, text, list)
end

--- "; scan(f, init, xs, {options})": how a function is called, for messages; "" without a row.
---@param who string
---@return string
function M.call_text(who)
  local row, list = M.row(who), {}
  for i, p in ipairs(row and row.params or {}) do list[i] = p.name end
  if row and row.variadic then list[#list + 1] = "..." end
  if row and row.options then list[#list + 1] = "{options}" end
  return row and ("; it is called as %s(%s)"):format(who, table.concat(list, ", ")) or ""
end

--- How many arguments a row takes.
---@param who string
---@return integer
function M.most(who)
  local row = M.row(who)
  return row and math.min(row.most, 0x7fffffff) or 0x7fffffff
end

-- ---- names that do not exist ------------------------------------------------------------------------

--- What a value of a type is in messages.
local values = {Tensor = "a tensor", Plan = "a plan", module = "a module", Optimizer = "an Optimizer",
  jit = "a jitted function", Program = "a program", tokens = "a list of ids"}

--- The names that a value of a type, or a module, has.
---@param of string "Tensor", "random." or "" for ml
local function names_in(of)
  local list = {}
  for _, name in ipairs(M.names()) do
    local prefix, own = name:match "^(.-)([%w_]+)$"
    local of_tensor = prefix == "" and (of == "Tensor" or of == "Param") and M.row(name).family == "tensor"
    if prefix == of or prefix == of .. ":" or prefix == of .. "." or of_tensor then list[#list + 1] = own end
  end
  return list
end

--- What to write instead: the word of another library, or the nearest name.
local function way_out(of, key)
  local hint = require("meshlua.exports.foreign")[of]
  hint = hint and hint[key]
  if hint then return ": " .. hint end
  if of == "Tensor" and not tostring(key):find "^[%a_]" then
    return ": x:slice({first, last}) is a part of it"
  end
  local names = names_in(of)
  for _, name in ipairs(names) do
    if name:lower() == tostring(key):lower() then return "; did you mean '" .. name .. "'?" end
  end
  return lib.did_you_mean(key, names)
end

--- Raises: a value of the type has nothing of this name.
---@param of string
---@param key any
function M.unknown(of, key)
  raise("E_KEY", "%s has no field or method '%s'%s", values[of] or "a " .. of, key,
    way_out(of, key))
end

--- Raises: nothing can be assigned to what a value of the type has.
function M.assigned(of, key)
  if of == "Param" then
    raise("E_STATE", "a Param's '%s' cannot be assigned; param:set(t) puts another tensor in its place",
      key)
  end
  raise("E_STATE", "a tensor does not change: '%s' cannot be assigned; x:scatter_set(ids, rows), "
    .. "x:dynamic_update_slice(part, starts) and ml.where(condition, x, y) give a new one", key)
end

--- Raises: a module has nothing of this name. Names that begin with "_", and what are no names, are nil: other
--- libraries ask for such.
---@param module string as users write it: "ml", "nn"
---@param prefix string of its rows
---@param key any
function M.missing(module, prefix, key)
  if type(key) ~= "string" or key:sub(1, 1) == "_" then return nil end
  raise("E_KEY", "%s has no '%s'%s", module, key, way_out(prefix, key))
end

return M
