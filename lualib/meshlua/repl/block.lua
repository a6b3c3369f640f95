-- block.lua: what a person enters, as a function. A local of the outermost level lives on: the block that makes one hands
-- out its cell, and a later block that names it has this cell as an upvalue. So a function of block 3 sees what block 5
-- assigns, and a jitted one is traced again, as for any upvalue. Only what a block names is joined to it.
local lex = require "meshlua.repl.lex"

-- What a block does to the globals is of no matter to what compiles the next.
local getupvalue, setupvalue, upvaluejoin = debug.getupvalue, debug.setupvalue, debug.upvaluejoin
local error, ipairs, load, select, setmetatable, table = error, ipairs, load, select, setmetatable,
  table
local globals = _G

local M = {}

--- Locals that a block gets as its upvalues; Lua allows 200 locals and 255 upvalues. Further ones it reaches as globals.
local JOINED = 180

--- How the function is called that takes the cells in.
local KEEP = "meshlua_keep"

---@class Live a local that lives on
---@field fn function? a function that has it as its upvalue...
---@field index integer? ...of this number
---@field value any where it is <const>

---@class Session
---@field live table<string, Live>

--- Does this syntax error say that the text is not finished?
local function is_incomplete(message) return message:sub(-5) == "<eof>" end

--- The text of a block that gives the values of expressions. A call in it is no tail call, which would leave neither the
--- block nor the function's name in a traceback; but a text that ends in a semicolon or a comment stays as it is.
local function with_frame(expression, name)
  local framed = ("return %s(0, %s)"):format(KEEP, expression)
  return expression:find "%S" and load(framed, "=" .. name, "t") and framed or "return " .. expression
end

--- What a text is: "expression" or "statements", and the text to compile; or nil, the error, and whether more could
--- mend it.
---@param text string
---@param name string of the chunk, for messages
---@return string? kind, string text, boolean? unfinished
function M.check(text, name)
  local expression, forced = text:gsub("^%s*=", "", 1)
  local chunk, message = load("return " .. expression, "=" .. name, "t")
  if chunk then return "expression", with_frame(expression, name) end
  local unfinished = is_incomplete(message)
  if forced == 0 then
    chunk, message = load(text, "=" .. name, "t")
    if chunk then return "statements", text end
  end
  return nil, message, unfinished or is_incomplete(message)
end

--- The pieces of a text that is no block as a whole (lines to be shown among statements; more locals than Lua takes),
--- each of whole lines; nil where one of them is none, either.
---@param text string
---@param name string
---@return string[]?
function M.split(text, name)
  local pieces, piece, before = {}, nil, 0
  for line in (text .. "\n"):gmatch "(.-)\n" do
    piece = piece and piece .. "\n" .. line or ("\n"):rep(before) .. line
    local kind, _, unfinished = M.check(piece, name)
    if not kind and not unfinished then return nil end
    before = before + 1
    if kind then
      if piece:find "%S" then pieces[#pieces + 1] = piece end
      piece = nil
    end
  end
  return not piece and pieces or nil
end

-- ---- locals of a text -------------------------------------------------------------------------------

local unary = {["not"] = true, ["-"] = true, ["#"] = true, ["~"] = true}
local binary = {["and"] = true, ["or"] = true}
for mark in ("+ - * / // % ^ & | ~ << >> .. == ~= < <= > >= ,"):gmatch "%S+" do binary[mark] = true end
local suffix = {["("] = true, ["["] = true, ["{"] = true}
local nested = {["("] = true, ["{"] = true, ["function"] = true}

--- The last token of the expressions that begin at the i-th. The text is known to be sound.
local function expressions_end(tokens, i)
  local wanted = true -- an operand comes next
  while tokens[i] do
    local token = tokens[i]
    local word = (token.kind == "keyword" or token.kind == "mark") and token.text
    if wanted then
      if nested[word] then i = lex.close_of(tokens, i) end
      wanted = unary[word] or false
    elseif binary[word] then
      wanted = true
    elseif suffix[word] then
      i = lex.close_of(tokens, i)
    elseif word == "." or word == ":" then
      i = i + 1
    elseif token.kind ~= "string" then
      return i - 1
    end
    i = i + 1
  end
  return #tokens
end

---@class LocalStatement
---@field names string[]
---@field attribs table<string, string>
---@field to integer the last byte

--- Reads the statement whose `local` is the i-th token; returns it, and the index of its last token.
local function read_local(tokens, i)
  if lex.is(tokens[i + 1], "function") then
    local last = lex.close_of(tokens, i + 1)
    return {names = {tokens[i + 2].text}, attribs = {}, to = tokens[last].to}, last
  end
  local names, attribs = {}, {}
  repeat
    i = i + 1
    local name = tokens[i].text
    names[#names + 1] = name
    if lex.is(tokens[i + 1], "<") then
      attribs[name], i = tokens[i + 2].text, i + 3
    end
    i = i + 1
  until not lex.is(tokens[i], ",")
  local last = lex.is(tokens[i], "=") and expressions_end(tokens, i + 1) or i - 1
  return {names = names, attribs = attribs, to = tokens[last].to}, last
end

--- The local statements of the outermost level.
---@return LocalStatement[]
local function locals_of(tokens)
  local list, i = {}, 1
  while tokens[i] do
    if lex.is(tokens[i], "local") then
      list[#list + 1], i = read_local(tokens, i)
    elseif lex.opens(tokens[i]) then
      i = lex.close_of(tokens, i)
    end
    i = i + 1
  end
  return list
end

--- What of a statement lives on: not what is closed at the end of its block, and not `_`, which is the last value.
local function kept_of(statement)
  local list = {}
  for _, name in ipairs(statement.names) do
    if statement.attribs[name] ~= "close" and name ~= "_" then list[#list + 1] = name end
  end
  return list
end

--- The text with a call behind each of the statements that hands out its cells, on the same line.
local function with_keeps(text, statements)
  local parts, from = {}, 1
  for k, statement in ipairs(statements) do
    local kept = kept_of(statement)
    if #kept > 0 then
      parts[#parts + 1] = text:sub(from, statement.to)
      parts[#parts + 1] = (";%s(%d,function()return %s end);"):format(KEEP, k, table.concat(kept, ","))
      from = statement.to + 1
    end
  end
  parts[#parts + 1] = text:sub(from)
  return table.concat(parts)
end

-- ---- compiling --------------------------------------------------------------------------------------

--- Takes in the cells of a statement. Functions have no cell of what is constant: only its value.
local function keeper(session, statements)
  return function(k, ...)
    if k == 0 then return ... end
    local fn = ...
    local names = kept_of(statements[k])
    local values = table.pack(fn())
    for i, name in ipairs(names) do
      if statements[k].attribs[name] == "const" then session.live[name] = {value = values[i]} end
    end
    local i = 1
    while true do
      local name = getupvalue(fn, i)
      if not name then return end
      if statements[k].attribs[name] ~= "const" then session.live[name] = {fn = fn, index = i} end
      i = i + 1
    end
  end
end

--- What a live local holds.
---@param live Live
function M.value(live)
  if not live.fn then return live.value end
  return (select(2, getupvalue(live.fn, live.index)))
end

--- The globals of a block that names more live locals than can be joined: the rest stand in front of the globals.
local function environment(rest)
  return setmetatable({}, {
    __index = function(_, name)
      if rest[name] then return M.value(rest[name]) end
      return globals[name]
    end,
    __newindex = function(_, name, value)
      if not rest[name] then
        globals[name] = value
      elseif not rest[name].fn then
        error(("attempt to assign to const variable '%s'"):format(name), 2)
      else
        setupvalue(rest[name].fn, rest[name].index, value)
      end
    end,
  })
end

--- The live locals that the tokens name: those to be joined, in order; and the rest, or nil.
local function named(session, tokens)
  local list, seen, rest = {}, {}, nil
  local function add(name)
    if seen[name] or not session.live[name] then return end
    seen[name] = true
    if #list < JOINED then
      list[#list + 1] = name
    else
      rest = rest or {}
      rest[name] = session.live[name]
    end
  end
  add "_ENV"
  for _, token in ipairs(tokens) do
    if token.kind == "name" then add(token.text) end
  end
  return list, rest
end

--- The block as a function. Calling it makes its locals live.
---@param session Session
---@param text string as check gives it
---@param name string
---@return function? block, string? message
function M.compile(session, text, name)
  local tokens = lex.tokens(text)
  local statements = locals_of(tokens)
  local list, rest = named(session, tokens)
  local heads, values = {KEEP}, {keeper(session, statements), n = #list + 1}
  if rest and not session.live._ENV then
    heads[2], values[2], values.n = "_ENV", environment(rest), values.n + 1
  end
  for _, live_name in ipairs(list) do
    local live = session.live[live_name]
    heads[#heads + 1] = live.fn and live_name or live_name .. " <const>"
    if not live.fn then values[#heads] = live.value end
  end
  local outer, message = load(("local %s = ... return function(...) %s\nend"):format(table.concat(heads, ","),
    with_keeps(text, statements)), "=" .. name, "t")
  if not outer then return nil, message end
  local block = outer(table.unpack(values, 1, values.n))
  local i = 1
  while true do
    local upvalue = getupvalue(block, i)
    if not upvalue then return block end
    local live = session.live[upvalue]
    if live and live.fn then upvaluejoin(block, i, live.fn, live.index) end
    i = i + 1
  end
end

return M
