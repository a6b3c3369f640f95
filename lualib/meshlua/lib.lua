-- lib.lua: what every module of the library uses: errors at the user's line, checks of options, and the
-- wrapping of public functions (so that ops inside them are blamed on the user's line).
local core = require "meshlua.core"

local lib = {}

--- string.format, with a decimal point in any locale.
lib.format = core.plain(string.format)

--- Raises "chunk:line: [CODE] text" at the user's line.
---@param code string one of the E_... codes
---@param fmt string as string.format
function lib.raise(code, fmt, ...)
  core.raise(code, lib.format(fmt, ...))
end

--- What a pcall gave; but a wish to stop (Ctrl-C) goes on up: lib.unless_stopped(pcall(fn, ...)).
---@param ok boolean
function lib.unless_stopped(ok, fault, ...)
  if not ok and type(fault) == "string" and (fault:find "%[E_INTERRUPT%]" or fault:find "%[E_STOP%]") then
    error(fault, 0)
  end
  return ok, fault, ...
end

--- The table of public names; loaded when something is wrong with a call, or has options.
local function exports() return require "meshlua.exports" end

core.on_misuse {
  surplus = function(...) return exports().surplus(...) end,
  unknown = function(...) return exports().unknown(...) end,
  assigned = function(...) return exports().assigned(...) end,
  most = function(who) return exports().most(who) end,
  values = function(...) return require "meshlua.printing".shown(...) end,
}

--- Wraps every function of a module's table, in place, under the names of their rows; returns the table.
---@param module table
---@param prefix string? of the rows: "random."; default none
---@param texts boolean? they make texts of numbers: with decimal points, whatever the locale
---@return table
function lib.export(module, prefix, texts)
  for name, value in pairs(module) do
    if type(value) == "function" then
      value = core.wrap(value, false, (prefix or "") .. name)
      module[name] = texts and core.plain(value) or value
    end
  end
  return module
end

--- The same with functions that check the types of their arguments by the rows, for what is not called often.
---@param module table
---@param prefix string
---@param texts boolean? as lib.export
---@return table
function lib.export_checked(module, prefix, texts)
  for name, value in pairs(module) do
    local who = prefix .. name
    local fn = type(value) == "function" and core.wrap(value, false, who)
    if fn then
      local checked = core.wrap(function(...)
        local most = exports().most(who)
        if select("#", ...) <= most or (select(most + 1, ...)) == nil then exports().check(who, ...) end
        return fn(...)
      end)
      module[name] = texts and core.plain(checked) or checked
    end
  end
  return module
end

--- What lies behind with_option: the arguments of a call whose last is a table of names, each in its place.
---@param who string
---@return table arguments, any out_sharding
function lib.by_name(who, ...) return exports().by_name(who, ...) end

--- fn, whose optional parameters may be given by name in a table behind the others.
---@param who string its row
---@param fn function
function lib.named(who, fn)
  fn = core.wrap(fn, false, who)
  return core.with_option("out_sharding", fn, core.wrap(function(...)
    local args = lib.by_name(who, ...)
    return fn(table.unpack(args, 1, args.n))
  end))
end

--- Raises: a value of this type has no such field or method. For the __index of tables.
lib.unknown = core.wrap(function(...) return exports().unknown(...) end)

--- Raises: a module has no such name. For its __index.
lib.missing = core.wrap(function(...) return exports().missing(...) end)

--- Where the library verifies itself: raises unless all that is public in a module has its row.
---@param module table
---@param prefix string of its rows; of a class of methods "Records:"
function lib.hold(module, prefix)
  if not core.verifies then return end
  local held = require "meshlua.exports.held"
  held.each(prefix, module, held.check)
end

--- Makes it an error to read what a module does not have; returns the module.
---@param module table
---@param name string as users write it
---@param prefix string of its rows
---@return table
function lib.strict(module, name, prefix)
  lib.hold(module, prefix)
  return setmetatable(module, {__index = function(_, key) return lib.missing(name, prefix, key) end})
end

lib.floats = {float64 = true, float32 = true, float16 = true, bfloat16 = true, float8_e4m3fn = true,
  float8_e5m2 = true}
lib.element_bytes = {float64 = 8, int64 = 8, uint64 = 8, float32 = 4, int32 = 4, uint32 = 4, float16 = 2,
  bfloat16 = 2, int16 = 2, uint16 = 2, int8 = 1, uint8 = 1, bool = 1, float8_e4m3fn = 1, float8_e5m2 = 1}
lib.dtypes = {"bfloat16", "bool", "float16", "float32", "float64", "float8_e4m3fn", "float8_e5m2", "int16",
  "int32", "int64", "int8", "uint16", "uint32", "uint64", "uint8"}
--- In what sums and products of integers have room.
lib.sums = {uint8 = "uint32", uint16 = "uint32", int8 = "int32", int16 = "int32"}

--- The product of numbers; of a shape the elements.
---@param sizes integer[]
---@return integer
function lib.product(sizes)
  local n = 1
  for _, size in ipairs(sizes) do n = n * size end
  return n
end

--- Every way to write n as a product of k sizes, in order; those whose first sizes are large come first.
---@param n integer
---@param k integer
---@return integer[][]
function lib.factorings(n, k)
  if k == 1 then return {{n}} end
  local list = {}
  for d = n, 1, -1 do
    if n % d == 0 then
      for _, rest in ipairs(lib.factorings(n // d, k - 1)) do
        table.insert(rest, 1, d)
        list[#list + 1] = rest
      end
    end
  end
  return list
end

--- Are two lists equal, item by item?
function lib.same_shape(a, b)
  for d = 1, math.max(#a, #b) do
    if a[d] ~= b[d] then return false end
  end
  return true
end

--- Of what has a dtype and a shape.
function lib.same_type(a, b) return a.dtype == b.dtype and lib.same_shape(a.shape, b.shape) end

--- "[3,4]"
function lib.shape_text(shape) return "[" .. table.concat(shape, ",") .. "]" end

--- "float32[3,4]", of what has a dtype and a shape.
function lib.type_text(x) return x.dtype .. lib.shape_text(x.shape) end

--- A count with its noun: "1 device", "8 devices".
---@param n integer
---@param noun string
---@param nouns string? of other counts than 1; default noun .. "s"
---@return string
function lib.count(n, noun, nouns)
  return ("%d %s"):format(n, n == 1 and noun or nouns or noun .. "s")
end

--- The first few of a list of texts, and how many more there are.
---@param list string[]
---@param most integer
---@param separator string? default ", "
---@return string
function lib.some(list, most, separator)
  local text = table.concat(list, separator or ", ", 1, math.min(most, #list))
  if #list <= most then return text end
  return ("%s%sand %d more"):format(text, separator or " ", #list - most)
end

--- Rows of texts as lines, their columns aligned.
---@param rows string[][]
---@param right table<integer, boolean>? columns that are aligned at their ends, as numbers are
---@return string[]
function lib.aligned(rows, right)
  local width, lines = {}, {}
  for _, row in ipairs(rows) do
    for i, text in ipairs(row) do width[i] = math.max(width[i] or 0, #text) end
  end
  for r, row in ipairs(rows) do
    local words = {}
    for i, text in ipairs(row) do
      local space = (" "):rep(width[i] - #text)
      words[i] = right and right[i] and space .. text or text .. space
    end
    lines[r] = table.concat(words, "  "):gsub("%s+$", "")
  end
  return lines
end

--- Is x what ops take in a tensor's place: a tensor, or a Param?
lib.is_tensor = core.is_operand

--- "nil", "a table", "a Tensor": what a value is, for messages.
function lib.kind(x)
  return x == nil and "nil" or "a " .. core.type_name(x)
end

--- The mesh axes that an entry of a P names, major to minor.
---@param entry string|string[]|false|nil
---@return string[]
function lib.axes_of(entry) return type(entry) == "table" and entry or {entry or nil} end

--- Is a number neither NaN nor infinite?
function lib.is_finite(x) return x - x == 0 end

--- What stands where a whole number should, and a way out where it is known.
function lib.not_whole(x)
  if type(x) == "number" then return lib.format("%s", x) end
  if not core.is_tensor(x) then return lib.kind(x) end
  local way_out = core.is_traced(x) and x.ndim == 0
    and " (if it is a number among a jitted function's arguments, name that in `static`)" or ""
  return "the tensor " .. core.typeof(x) .. way_out
end

--- tostring, with a decimal point in any locale. Arguments of lib.raise and lib.format need none.
function lib.text(x) return math.type(x) == "float" and lib.format("%s", x) or tostring(x) end

--- The path of what stands under a key: "h.1.kernel".
---@param path string "" at the root
---@return string
function lib.below(path, key) return path == "" and lib.text(key) or path .. "." .. lib.text(key) end

local DEEPEST = 1000

--- Notes in `above`, the tables on the way, that the walk of a tree has come into `node`; raises where tables
--- are nested so deep that the walk would not end well. lib.leave goes back out.
---@param who string
---@param node table
---@param above table<table|string, any>
function lib.enter(who, node, above)
  local depth = (above.depth or 0) + 1
  if depth > DEEPEST then
    lib.raise("E_VALUE", "%s: tables nested deeper than %d; keep a chain of tables as one list", who, DEEPEST)
  end
  above.depth, above[node] = depth, true
end

function lib.leave(node, above)
  above.depth, above[node] = above.depth - 1, nil
end

--- "'data', 'model'", for messages.
---@param names string[]
---@return string
function lib.quoted(names)
  local list = {}
  for i, name in ipairs(names) do list[i] = "'" .. name .. "'" end
  return table.concat(list, ", ")
end

--- Is x a function, or called like one? What a tensor and its shape have as __call only says that they are
--- not.
function lib.is_callable(x)
  local meta = (type(x) == "table" or type(x) == "userdata") and debug.getmetatable(x)
  local is_called = meta and meta.__call ~= nil and meta ~= core.shape_meta and not lib.is_tensor(x)
  return type(x) == "function" or is_called or false
end

--- Raises unless x can be called; returns it.
function lib.check_function(who, x)
  if not lib.is_callable(x) then
    lib.raise("E_VALUE", "%s: expected a function, got %s%s", who, lib.kind(x), exports().call_text(who))
  end
  return x
end

--- Raises unless x is a number; returns it.
function lib.check_number(who, what, x)
  if type(x) ~= "number" then
    lib.raise("E_VALUE", "%s: %s must be a number, not %s", who, what, lib.kind(x))
  end
  return x
end

--- Raises unless x is a number that is whole; returns it.
function lib.check_integer(who, what, x)
  if math.type(x) ~= "integer" then
    lib.raise("E_VALUE", "%s: %s must be a whole number, not %s", who, what, lib.not_whole(x))
  end
  return x
end

--- Raises unless t is a table whose keys are 1, 2, ... without holes, and no metatable says otherwise;
--- returns
--- it.
function lib.check_list(who, what, t)
  if type(t) ~= "table" then
    lib.raise("E_VALUE", "%s: %s must be a list, not %s%s", who, what, lib.kind(t),
      lib.is_tensor(t) and ": {x, y}" or "")
  end
  local meta, n = debug.getmetatable(t), 0
  if meta and meta ~= core.shape_meta and (rawget(meta, "__index") or rawget(meta, "__len")) then
    lib.raise("E_VALUE", "%s: %s must be a plain list; this table has a metatable with %s", who, what,
      rawget(meta, "__len") and "__len" or "__index")
  end
  for _ in next, t do n = n + 1 end
  if n ~= rawlen(t) then
    lib.raise("E_VALUE", "%s: %s must be a list; this table has holes or other keys", who, what)
  end
  return t
end

--- A shape, given as a list or as numbers; raises unless all are whole. nil is no shape.
---@return integer[]
function lib.check_shape(who, first, ...)
  local shape = type(first) == "table" and lib.check_list(who, "the shape", first) or {first, ...}
  for i = 1, type(first) == "table" and #shape or select("#", ...) + 1 do
    if math.type(shape[i]) ~= "integer" then
      lib.raise("E_VALUE", "%s: dim %d of the shape is %s, not a whole number", who, i,
        lib.not_whole(shape[i]))
    end
  end
  return shape
end

--- Where x stands in a list (the last place, as a later parameter of a name hides an earlier one), or nil.
---@param list any[]
---@return integer?
function lib.position(list, x)
  for i = #list, 1, -1 do
    if list[i] == x then return i end
  end
end

--- The name nearest to `name`, or nil if none is near.
---@param name string
---@param names string[]
---@return string?
function lib.nearest(name, names)
  local best, best_distance
  for _, candidate in ipairs(names) do
    local d = core.distance(name, candidate)
    if not best or d < best_distance then best, best_distance = candidate, d end
  end
  if best and best_distance <= math.max(2, #name // 2) and best_distance < #name then return best end
end

--- The end of a message: "; did you mean 'hidden'?" for the name nearest to `name`, "" where none is near.
---@param name any
---@param names string[]
---@param form string? of the name; default "'%s'"
---@return string
function lib.did_you_mean(name, names, form)
  local near = lib.nearest(tostring(name), names)
  return near and ("; did you mean " .. (form or "'%s'") .. "?"):format(near) or ""
end

--- A table with the same entries, and what `more` has besides.
---@param t table
---@param more table?
---@return table
function lib.copy(t, more)
  local copy = {}
  for key, value in next, t do copy[key] = value end
  for key, value in next, more or {} do copy[key] = value end
  return copy
end

--- The names of the parameters of a Lua function, and whether it takes more than these; of what is none no
--- names.
---@return string[] names, boolean? is_vararg
function lib.parameters(fn)
  local names = {}
  if type(fn) ~= "function" then return names end
  local inner = core.unwrap(fn)
  local info = debug.getinfo(inner, "u")
  for i = 1, info.nparams do names[i] = debug.getlocal(inner, i) end
  return names, info.isvararg
end

--- A list as a set: each item -> true.
function lib.set(list)
  local set = {}
  for _, item in ipairs(list) do set[item] = true end
  return set
end

--- The sorted keys of a table of names.
function lib.names(t)
  local names = {}
  for name in pairs(t) do names[#names + 1] = lib.text(name) end
  table.sort(names)
  return names
end

--- The options, never nil, once they are what the function's row has: unknown names and wrong types raise.
---@param who string the function, for messages and its row
---@param options table?
---@return table
function lib.options(who, options)
  return options == nil and {} or exports().options(who, options)
end

return lib
