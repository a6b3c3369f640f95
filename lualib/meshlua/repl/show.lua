-- show.lua: any value as a text to be read. Whatever it is, the text has bounds, and there is one: a table that
-- contains itself, a string of gigabytes, a __tostring or __pairs that raises end as a few words. Tables are read
-- without their __index.
local core = require "meshlua.core"
local lib = require "meshlua.lib"
local printing = require "meshlua.printing"

local M = {}

local DEEPEST = 12 -- tables in tables
local TEXT, STRING, MESSAGE = 1 << 16, 1000, 200 -- bytes of all of it, of a string in a table, of an error
local SCANNED, SORTED = 1 << 20, 10000 -- keys that are counted, and put in order

---@class Show
---@field width integer
---@field items integer entries of a table
---@field room integer bytes left
---@field depth table<table, integer> of the tables on the way

local function columns(text) return utf8.len(text) or #text end

-- ---- texts ------------------------------------------------------------------------------------------

--- At most so many bytes of a text, not in the middle of a character; what is said of the rest.
local function cut(text, most)
  if #text <= most then return text, "" end
  while most > 0 and (text:byte(most + 1) or 0) & 0xC0 == 0x80 do most = most - 1 end
  return text:sub(1, most), (" … %d more bytes"):format(#text - most)
end

local escapes = {["\n"] = "\\n", ["\t"] = "\\t", ["\r"] = "\\r", ["\\"] = "\\\\", ['"'] = '\\"'}

--- The bytes that would act on a terminal, and those that are no UTF-8, as Lua writes them.
local function printable(text, which)
  text = text:gsub(which, function(c) return escapes[c] or ("\\x%02X"):format(c:byte()) end)
  if utf8.len(text) then return text end
  return (text:gsub("[\x80-\xff]+", function(run)
    return utf8.len(run) and run or run:gsub(".", function(c) return ("\\x%02X"):format(c:byte()) end)
  end))
end

local function quoted(text, most)
  local part, rest = cut(text, most)
  return '"' .. printable(part, '[%c\\"]') .. '"' .. rest
end

--- Calls fn(...), whose errors end as words; a wish to stop goes on up.
local function guarded(what, fn, ...)
  local ok, result = lib.unless_stopped(pcall(fn, ...))
  if ok then return result, true end
  local message = type(result) == "string" and result or "an error that is " .. lib.kind(result)
  message = printable(cut(message:match "^[^\n]*", MESSAGE), "%c")
  return ("<%s raised: %s>"):format(what, message), false
end

--- What a value's own __tostring says; of what has none its type, and how many there are in it.
local function own_text(value)
  local text, ok = guarded("__tostring", tostring, value)
  if not ok then return text end
  local kind = text:match "^meshlua%.([%w_]+): "
  if kind then
    local n, counted = guarded("__len", function() return #value end)
    return counted and ("%s of %d"):format(kind, n) or kind
  end
  local part, rest = cut(text:sub(-1) == "\n" and text:sub(1, -2) or text, TEXT)
  if core.is_mesh(value) and #part > 400 then
    part = part:gsub(" of devices.*", (" of %d devices"):format(value.size))
  end
  return part .. rest
end

-- ---- functions --------------------------------------------------------------------------------------

local public -- function or class -> its row's name

--- How a public function is called and what it does; nil for others.
local function row_text(fn)
  if not public then
    public = {}
    for name, value in pairs(require("meshlua.exports.all").functions()) do
      if not public[value] or name < public[value] then public[value] = name end
    end
  end
  local row = public[fn] and require("meshlua.exports").row(public[fn])
  return row and row.text .. "\n  " .. row.doc
end

--- Of two names the shorter one, or the first of two as long: nil is longer than any.
local function shorter(a, b)
  if not a or b and (#b < #a or #b == #a and b < a) then return b end
  return a
end

--- "string.format", where it is a function of a loaded library: its shortest name.
local function library_name(fn)
  local found
  for name, library in pairs(package.loaded) do
    for key, value in next, type(library) == "table" and library or {} do
      if rawequal(value, fn) then
        found = shorter(found, (name == "_G" and "" or name .. ".") .. tostring(key))
      end
    end
  end
  return found
end

local function function_text(fn)
  local info, names = debug.getinfo(fn, "Su"), {}
  if info.what == "C" then return "function " .. (library_name(fn) or "of C") end
  for i = 1, info.nparams do names[i] = debug.getlocal(fn, i) end
  if info.isvararg then names[#names + 1] = "..." end
  return ("function(%s) at %s:%d"):format(table.concat(names, ", "), info.short_src, info.linedefined)
end

-- ---- tables -----------------------------------------------------------------------------------------

local text_of

local order = {number = 1, string = 2, boolean = 3}

local function before(a, b)
  local x, y = order[type(a)] or 4, order[type(b)] or 4
  if x ~= y or x > 2 then return x < y end
  return a < b
end

--- The keys of a table behind 1..n, in order where they are not too many, and how many there are (at most as many
--- as are counted).
local function keys_of(t, n)
  local keys, count, key = {}, 0, nil
  if n > SCANNED then key = n end
  for _ = 1, SCANNED do
    key = next(t, key)
    if key == nil then break end
    if not (math.type(key) == "integer" and key >= 1 and key <= n) then
      count = count + 1
      if count <= SORTED then keys[count] = key end
    end
  end
  if count <= SORTED then table.sort(keys, before) end
  return keys, count, key ~= nil
end

--- What pairs gives, where a table has a __pairs: keys, values, how many.
local function pairs_of(t)
  local keys, values = {}, {}
  local message, ok = guarded("__pairs", function()
    for key, value in pairs(t) do
      keys[#keys + 1], values[#keys + 1] = key, value
      if #keys == SORTED then break end
    end
  end)
  return keys, values, not ok and message or nil
end

local function is_name(key)
  return key:find "^[%a_][%w_]*$" and #key < 80 and load("local " .. key) ~= nil
end

local function key_text(key)
  if type(key) == "string" then return is_name(key) and key or "[" .. quoted(key, 80) .. "]" end
  local plain = type(key) == "number" or type(key) == "boolean"
  return "[" .. (plain and lib.text(key) or own_text(key):match "^[^\n]*") .. "]"
end

--- The entries as texts, and whether each is a word without a key.
local function entries_of(self, t, width)
  local meta, texts, plain = debug.getmetatable(t), {}, true
  local function add(label, value)
    local text = text_of(self, value, width - columns(label))
    plain = plain and label == "" and type(value) ~= "table" and not text:find "\n"
    texts[#texts + 1] = label .. text
    self.room = self.room - #text - #label
  end
  local function full() return #texts >= self.items or self.room < 0 end
  if meta and rawget(meta, "__pairs") then
    local keys, values, message = pairs_of(t)
    for i = 1, #keys do
      if full() then return texts, plain, #keys - #texts, #keys == SORTED end
      add(key_text(keys[i]) .. " = ", values[i])
    end
    texts[#texts + 1] = message
    return texts, plain, 0
  end
  local n = rawlen(t)
  local keys, count, uncounted = keys_of(t, n)
  for i = 1, n do
    if full() then return texts, plain, n + count - #texts, uncounted end
    add("", rawget(t, i))
  end
  for _, key in ipairs(keys) do
    if full() then break end
    add(key_text(key) .. " = ", rawget(t, key))
  end
  return texts, plain, n + count - #texts, uncounted
end

--- Words with commas between, in lines of a width.
local function fill(texts, width)
  local lines, line = {}, ""
  for i, text in ipairs(texts) do
    if i < #texts then text = text .. "," end
    if line ~= "" and columns(line) + 1 + columns(text) > width then
      lines[#lines + 1], line = line, text
    else
      line = line == "" and text or line .. " " .. text
    end
  end
  lines[#lines + 1] = line
  return lines
end

local function table_text(self, t, width)
  local meta = debug.getmetatable(t)
  local name = meta and rawget(meta, "__name")
  name = type(name) == "string" and name or ""
  if self.depth[t] then return ("%s{… the table %d up}"):format(name, self.depth.n - self.depth[t] + 1) end
  if self.depth.n == DEEPEST or self.room < 0 then return name .. (next(t) == nil and "{}" or "{…}") end
  self.depth.n = self.depth.n + 1
  self.depth[t] = self.depth.n
  local texts, plain, rest, uncounted = entries_of(self, t, math.max(1, width - 2))
  self.depth[t], self.depth.n = nil, self.depth.n - 1
  if rest > 0 then texts[#texts + 1] = ("… %s%d more"):format(uncounted and "more than " or "", rest) end
  local line = name .. "{" .. table.concat(texts, ", ") .. "}"
  if columns(line) <= width and not line:find "\n" then return line end
  local lines = plain and fill(texts, math.max(1, width - 2)) or texts
  for i, text in ipairs(lines) do
    lines[i] = "  " .. text:gsub("\n", "\n  ") .. ((plain or i == #lines) and "" or ",")
  end
  return name .. "{\n" .. table.concat(lines, "\n") .. "\n}"
end

--- The names of a library, which is loaded under a name.
local function module_text(t, name, width)
  local names = {}
  for key in next, t do names[#names + 1] = type(key) == "string" and key or nil end
  table.sort(names)
  return ("module %s\n  "):format(name) .. table.concat(fill(names, width - 2), "\n  ")
end

local function module_name(t)
  local found
  for name, library in pairs(package.loaded) do
    if rawequal(library, t) and name:find "^meshlua" then found = shorter(found, name) end
  end
  return found
end

-- ---- values -----------------------------------------------------------------------------------------

local FEW = 16 -- elements of a tensor in a table

--- A tensor in a table: its type, and the values where they are few and have room beside it.
local function tensor_text(value, width)
  local few = guarded("size", function() return value.size <= FEW and value.ndim <= 1 end)
  local type_part, rest = printing.with({values = few == true}, own_text, value):match "^([^\n]*)\n?(.*)$"
  if rest == "" or rest:find "\n" or #type_part + 1 + #rest > width then return type_part end
  return type_part .. " " .. rest
end

function text_of(self, value, width)
  local kind = type(value)
  if kind == "string" then return quoted(value, math.min(STRING, math.max(20, self.room))) end
  if kind == "number" then return value ~= value and "nan" or lib.text(value) end
  if kind == "function" then return function_text(value) end
  if kind == "thread" then return ("coroutine (%s)"):format(coroutine.status(value)) end
  if lib.is_tensor(value) then return tensor_text(value, width) end
  local meta = debug.getmetatable(value)
  local says = meta and rawget(meta, "__tostring") ~= nil and not rawequal(meta, core.shape_meta)
  return kind == "table" and not says and table_text(self, value, width) or own_text(value)
end

--- A value on its own: tensors with their values, texts as they are, functions with what they do.
local function top_text(self, value)
  if type(value) == "string" then
    local part, rest = cut(value, TEXT)
    if part:find "\n" then return printable(part, "[^%C\n\t]") .. rest end
    return quoted(value, TEXT)
  end
  if type(value) == "function" then return row_text(value) or function_text(value) end
  if lib.is_tensor(value) then return own_text(value) end
  local name = type(value) == "table" and module_name(value)
  if name then return module_text(value, name, self.width) end
  local meta = type(value) == "table" and debug.getmetatable(value)
  return meta and rawget(meta, "__call") and row_text(value) or text_of(self, value, self.width)
end

--- The text of a value.
---@param value any
---@param options {width: integer, items: integer, by_device: boolean}? and those of set_print_options
---@return string
M.show = core.plain(function(value, options)
  local own = {}
  for name, x in pairs(options or {}) do own[name] = x end
  local self = {width = own.width or 75, items = own.items or 100, room = TEXT, depth = {n = 0}}
  return printing.with(own, top_text, self, value)
end)

return M
