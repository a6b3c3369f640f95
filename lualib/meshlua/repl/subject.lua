-- subject.lua: what an expression in front of the cursor is, as far as that can be told without running it: the value that
-- names and fields lead to, or the type that the row of a called function says.
local block = require "meshlua.repl.block"
local core = require "meshlua.core"
local exports = require "meshlua.exports"
local lex = require "meshlua.repl.lex"
local lib = require "meshlua.lib"

local M = {}

---@class Subject
---@field value any nil: not known
---@field row Row? of a method of a type
---@field field Row? where it is a field of a type
---@field type string? the word of a type in rows: "Tensor"
---@field also string? the type that it may be as well: rows say "Tensor|At"

--- Modules of ml whose functions have rows, by the prefix of these.
local modules = {"random", "linalg", "tree", "nn", "optim", "schedule", "data", "metrics", "train", "profile",
  "checkpoint", "remat_policies"}

--- Types of userdata whose methods have rows.
local types = {"Tensor", "Param", "Mesh", "P", "NamedSharding", "jit", "Plan", "Program", "tokens"}

--- Types in rows whose methods have another word in front.
local owners = {JittedFunction = "jit", Tokens = "tokens", key = "Tensor", Param = "Param"}

local function loaded(name)
  local ml = package.loaded.meshlua
  local module = ml and rawget(ml, name)
  return type(module) == "table" and module or nil
end

--- The prefix of the rows of what a module of the library has; nil: it is none.
---@param value any
---@return string?
function M.prefix_of(value)
  if type(value) ~= "table" then return nil end
  if value == package.loaded.meshlua then return "" end
  for _, name in ipairs(modules) do
    if loaded(name) == value then return name .. "." end
  end
  local nn = loaded "nn"
  return nn and rawget(nn, "initializers") == value and "initializers." or nil
end

--- The name of the row of a public function or class; nil: it is none.
---@param value any
---@return string?
function M.name_of(value)
  local kind = type(value)
  if value == core.P then return "P" end
  if kind ~= "function" and kind ~= "table" and kind ~= "userdata" then return nil end
  local function within(module, prefix)
    for name, entry in next, module or {} do
      local is_it = entry == value and type(name) == "string"
      if is_it and exports.row(prefix .. name) then return prefix .. name end
    end
  end
  local found = within(package.loaded.meshlua, "")
  for _, name in ipairs(modules) do found = found or within(loaded(name), name .. ".") end
  local nn = loaded "nn"
  found = found or within(nn and rawget(nn, "initializers"), "initializers.")
  for _, of in ipairs(types) do
    found = found or within(core.methods("meshlua." .. of), of .. ":")
  end
  return found
end

--- The word that the rows of a value's methods have in front: "Tensor", "jit", "Records".
---@param value any
---@return string?
function M.owner_of(value)
  if type(value) == "table" then
    local meta = getmetatable(value)
    return type(meta) == "table" and rawget(meta, "__name") or nil
  end
  return type(value) == "userdata" and core.type_name(value) or nil
end

--- Is it the word of a type of userdata?
local function is_userdata(owner)
  return lib.position(types, owner) ~= nil
end

--- What stands under a name in a value; functions of the user's are not called for it.
local function field(value, name)
  for _ = 1, 100 do
    if type(value) == "table" then
      local found = rawget(value, name)
      if found ~= nil then return found end
    end
    if M.prefix_of(value) == "" and (exports.row(name) or lib.position(modules, name)) then
      return value[name]
    end
    local owner = type(value) == "userdata" and core.type_name(value)
    if owner and is_userdata(owner) then
      local method = core.methods("meshlua." .. owner)[name]
      if method then return method end
      local ok, found = pcall(function() return value[name] end)
      return ok and found or nil
    end
    local meta = debug.getmetatable(value)
    value = type(meta) == "table" and rawget(meta, "__index")
    if type(value) ~= "table" then return nil end
  end
end

--- The row of a method or field of a type.
local function row_of(of, name)
  of = owners[of] or of
  local row = exports.row(of .. ":" .. name) or exports.row(of .. "." .. name)
  if not row and exports.row("nn." .. of) then row = exports.row("module:" .. name) end
  local shared = (of == "Tensor" or of == "Param") and exports.row(name)
  return row or shared and shared.family == "tensor" and shared or nil
end

--- What a name behind a dot or colon is.
local function member(subject, name)
  if not subject then return nil end
  if subject.value ~= nil then
    local found = field(subject.value, name)
    if found == nil then return nil end
    local owner = type(subject.value) == "userdata" and core.type_name(subject.value)
    return {value = found, field = owner and row_of(owner, name) or nil}
  end
  local row = subject.type and row_of(subject.type, name) or subject.also and row_of(subject.also, name)
  if row and row.field then return {type = row.field, field = row} end
  return row and {row = row} or nil
end

--- The row of a function or class, or of a method.
---@param subject Subject?
---@return Row?
function M.row(subject)
  if not subject then return nil end
  local name = subject.value ~= nil and M.name_of(subject.value)
  return subject.row or name and exports.row(name) or nil
end

--- What a call gives.
local function result(subject)
  local row = M.row(subject)
  if row then
    local word, also = row.results:match "^([%w_]+)|?([%w_]*)"
    return word and {type = word, also = also ~= "" and also or nil} or nil
  end
  return subject and type(subject.value) == "table" and M.owner_of(subject.value) and subject or nil
end

local pairs_of = {[")"] = "(", ["]"] = "[", ["}"] = "{"}

--- The index of the bracket that the i-th token closes.
local function open_of(tokens, i)
  local depth = 0
  for k = i, 1, -1 do
    local token = tokens[k]
    if token.kind == "mark" then
      if pairs_of[token.text] then depth = depth + 1 end
      if token.text == "(" or token.text == "[" or token.text == "{" then depth = depth - 1 end
      if depth == 0 then return k end
    end
  end
end

local function ends_operand(token)
  return token ~= nil and (token.kind == "name" or lex.is(token, ")") or lex.is(token, "]"))
end

--- What a name means where the block stands.
---@param session Session
---@param name string
---@return Subject?
function M.named(session, name)
  local live = session.live[name]
  local value
  if live then value = block.value(live) else value = rawget(_G, name) end
  if value ~= nil then return {value = value} end
end

--- What the expression is that ends with the i-th token; nil: not known.
---@param session Session
---@param tokens Token[]
---@param i integer
---@return Subject?
function M.of(session, tokens, i)
  local token = tokens[i]
  if not token then return nil end
  local open = token.kind == "mark" and pairs_of[token.text] and open_of(tokens, i)
  if token.kind == "name" then
    local mark = tokens[i - 1]
    if lex.is(mark, ".") or lex.is(mark, ":") then return member(M.of(session, tokens, i - 2), token.text) end
    return M.named(session, token.text)
  elseif open and token.text ~= "]" and ends_operand(tokens[open - 1]) then
    return result(M.of(session, tokens, open - 1))
  elseif open and token.text == ")" then
    return M.of(session, tokens, i - 1)
  elseif open and token.text == "]" and open == i - 2 and ends_operand(tokens[open - 1]) then
    local key = tokens[i - 1]
    local at = key.kind == "number" and tonumber(key.text) or key.kind == "string" and key.text:sub(2, -2)
    return at and member(M.of(session, tokens, open - 1), at) or nil
  elseif token.kind == "string" then
    return ends_operand(tokens[i - 1]) and result(M.of(session, tokens, i - 1)) or {value = token.text}
  end
end

-- ---- what it has ------------------------------------------------------------------------------------

local function is_name(key)
  return type(key) == "string" and key:find "^[%a_][%w_]*$" and not lex.keywords[key]
end

--- Names of rows behind a prefix.
local function add_rows(names, prefix, is_taken)
  for _, name in ipairs(exports.names()) do
    local own = name:sub(1, #prefix) == prefix and name:sub(#prefix + 1)
    if own and not own:find "[.:]" and is_taken(own) then names[own] = true end
  end
end

--- Names of a table and of what stands behind it.
local function add_keys(names, value, is_taken)
  for _ = 1, 100 do
    if type(value) ~= "table" then return end
    for key, entry in next, value do
      if is_name(key) and is_taken(key, entry) then names[key] = true end
    end
    local meta = getmetatable(value)
    value = type(meta) == "table" and rawget(meta, "__index")
  end
end

--- The names that may follow a dot (fields, functions) or a colon (methods).
---@param subject Subject?
---@param mark string "." or ":"
---@return table<string, boolean>
function M.members(subject, mark)
  local names, value = {}, subject and subject.value
  if not subject then return names end
  local function is_taken(key, entry)
    local hidden = key:sub(1, 2) == "__"
    return not hidden and (mark == "." or entry == nil or type(entry) == "function")
  end
  local prefix = M.prefix_of(value)
  local owner = subject.type and (owners[subject.type] or subject.type) or value ~= nil and M.owner_of(value)
  if prefix and mark == "." then
    add_rows(names, prefix, is_taken)
    for _, name in ipairs(prefix == "" and modules or {}) do names[name] = true end
  end
  if owner and is_userdata(owner) then
    add_rows(names, owner .. mark, is_taken)
    for key in next, mark == ":" and core.methods("meshlua." .. owner) or {} do
      names[key] = not key:find "^__" or nil
    end
  elseif owner then
    add_rows(names, owner .. mark, is_taken)
    if mark == ":" and exports.row("nn." .. owner) then add_rows(names, "module:", is_taken) end
  end
  if subject.also then add_rows(names, subject.also .. mark, is_taken) end
  if type(value) == "string" then value = string end
  if type(value) == "userdata" and not is_userdata(owner) then
    local meta = debug.getmetatable(value)
    value = type(meta) == "table" and rawget(meta, "__index")
  end
  add_keys(names, value, is_taken)
  return names
end

M.is_name = is_name

return M
