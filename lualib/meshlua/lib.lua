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

--- Wraps every function of a module's table, in place; returns the table.
---@param module table
---@param texts boolean? they make texts of numbers: with decimal points, whatever the locale
---@return table
function lib.export(module, texts)
  for name, value in pairs(module) do
    if type(value) == "function" then
      module[name] = texts and core.plain(core.wrap(value)) or core.wrap(value)
    end
  end
  return module
end

--- Is x what ops take in a tensor's place: a tensor, or a Param?
function lib.is_tensor(x) return core.is_tensor(x) or core.is_box(x) end

--- "nil", "a table", "a Tensor": what a value is, for messages.
function lib.kind(x)
  return x == nil and "nil" or "a " .. core.type_name(x)
end

--- What stands where a whole number should, and a way out where it is known.
function lib.not_whole(x)
  if type(x) == "number" then return lib.format("%s", x) end
  if not core.is_tensor(x) then return lib.kind(x) end
  local way_out = core.is_traced(x) and x.ndim == 0
    and " (if it is a number among a jitted function's arguments, name that in `static`)" or ""
  return "the tensor " .. core.typeof(x) .. way_out
end

--- The path of what stands under a key: "h.1.kernel".
---@param path string "" at the root
---@return string
function lib.below(path, key) return path == "" and tostring(key) or path .. "." .. tostring(key) end

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

--- Raises unless x can be called; returns it.
function lib.check_function(who, x)
  local callable = type(x) == "function"
  if type(x) == "table" or type(x) == "userdata" then
    local meta = debug.getmetatable(x)
    callable = meta and meta.__call ~= nil
  end
  if not callable then lib.raise("E_VALUE", "%s: expected a function, got %s", who, lib.kind(x)) end
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

--- Raises unless t is a table whose keys are 1, 2, ... without holes, and no metatable says otherwise; returns
--- it.
function lib.check_list(who, what, t)
  if type(t) ~= "table" then
    lib.raise("E_VALUE", "%s: %s must be a list, not %s", who, what, lib.kind(t))
  end
  local meta, n = debug.getmetatable(t), 0
  if meta and (rawget(meta, "__index") or rawget(meta, "__len")) then
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

--- The sorted keys of a table of names.
function lib.names(t)
  local names = {}
  for name in pairs(t) do names[#names + 1] = tostring(name) end
  table.sort(names)
  return names
end

--- Checks an options table: every key must be in `known` (name -> true, or a type's name: "table", "Mesh").
--- Unknown keys raise with the nearest name.
---@param who string the function, for messages
---@param options table?
---@param known table<string, string|boolean>
---@return table the options, never nil
function lib.options(who, options, known)
  if options == nil then return {} end
  if type(options) ~= "table" then
    lib.raise("E_VALUE", "%s: options must be a table, not %s", who, lib.kind(options))
  end
  for key, value in pairs(options) do
    local want = known[key]
    if not want then
      local near = lib.nearest(tostring(key), lib.names(known))
      lib.raise("E_KEY", "%s: unknown option '%s'%s", who, tostring(key),
        near and ("; did you mean '" .. near .. "'?") or "")
    end
    if type(want) == "string" and core.type_name(value) ~= want then
      lib.raise("E_VALUE", "%s: option '%s' must be a %s, not %s", who, key, want, lib.kind(value))
    end
  end
  return options
end

return lib
