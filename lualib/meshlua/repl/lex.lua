-- lex.lua: the words of Lua text, also of one that is not finished: what a block names, and where the cursor stands.
local M = {}

---@class Token
---@field kind "name"|"keyword"|"string"|"number"|"comment"|"mark"
---@field text string
---@field from integer its first byte
---@field to integer its last
---@field open boolean? a string or comment that has no end; only the last token can be one

local keywords = {}
for word in ([[and break do else elseif end false for function goto if in local nil not or repeat return
    then true until while]]):gmatch "%a+" do
  keywords[word] = true
end
M.keywords = keywords

local marks = {"^%.%.%.", "^[=~<>]=", "^//", "^<<", "^>>", "^::", "^%.%."}

--- The last byte of a long string or comment whose opening ends before `at`, and whether it has no end.
local function long_end(text, at, level)
  local _, stop = text:find("]" .. level .. "]", at, true)
  return stop or #text, not stop
end

--- The last byte of a string that begins at `from`, and whether it has no end.
local function string_end(text, from)
  local quote, at = text:sub(from, from), from + 1
  while true do
    local stop = text:find("[\\\n" .. quote .. "]", at)
    if not stop then return #text, true end
    local c = text:sub(stop, stop)
    if c == quote then return stop, false end
    if c == "\n" then return stop - 1, false end -- an error of the text
    at = text:find("^z%s*", stop + 1) and select(2, text:find("^z%s*", stop + 1)) + 1 or stop + 2
  end
end

--- The last byte of a number: the sign of an exponent belongs to it.
local function number_end(text, from)
  local exponent = text:find("^0[xX]", from) and "[pP]" or "[eE]"
  local _, stop = text:find("^%.?%d[%w.]*", from)
  local _, signed = text:find("^" .. exponent .. "[+-]%w*", stop)
  return signed or stop
end

--- The kind of what begins at `from`, its last byte, and whether it has no end.
local function next_token(text, from)
  local comment = text:find("^%-%-", from) and from + 2
  local level = text:match("^%[(=*)%[", comment or from)
  if level then
    local stop, open = long_end(text, (comment or from) + #level + 2, level)
    return comment and "comment" or "string", stop, open
  elseif comment then
    local stop = text:find("\n", from, true)
    return "comment", (stop or #text + 1) - 1, not stop
  elseif text:find("^[\"']", from) then
    return "string", string_end(text, from)
  elseif text:find("^%.?%d", from) then
    return "number", number_end(text, from)
  end
  local _, stop = text:find("^[%a_][%w_]*", from)
  if stop then return keywords[text:sub(from, stop)] and "keyword" or "name", stop end
  for _, mark in ipairs(marks) do
    _, stop = text:find(mark, from)
    if stop then return "mark", stop end
  end
  return "mark", from
end

--- The tokens of a text; of comments only one that the text ends in.
---@param text string
---@return Token[]
function M.tokens(text)
  local list, at = {}, 1
  while true do
    at = text:find("%S", at)
    if not at then return list end
    local kind, to, open = next_token(text, at)
    if kind ~= "comment" or open then
      list[#list + 1] = {kind = kind, text = text:sub(at, to), from = at, to = to, open = open or nil}
    end
    at = to + 1
  end
end

--- Is the token this keyword or mark?
---@param token Token?
---@param text string
function M.is(token, text)
  return token ~= nil and token.text == text and (token.kind == "keyword" or token.kind == "mark")
end

local openers = {["("] = true, ["["] = true, ["{"] = true, ["do"] = true, ["if"] = true, ["function"] = true,
  ["repeat"] = true}
local closers = {[")"] = true, ["]"] = true, ["}"] = true, ["end"] = true, ["until"] = true}

--- Does a bracket or block begin with the token?
---@param token Token
function M.opens(token)
  return (token.kind == "keyword" or token.kind == "mark")
    and (openers[token.text] or token.text == "for" or token.text == "while")
end

--- Goes over tokens and keeps the indices of what is open at a place in a list.
---@param stack {at: integer, word: string}[]
local function step(stack, token, at)
  if token.kind ~= "keyword" and token.kind ~= "mark" then return end
  local word, top = token.text, stack[#stack]
  if word == "do" and top and (top.word == "for" or top.word == "while") then
    top.word = "do"
  elseif M.opens(token) then
    stack[#stack + 1] = {at = at, word = word}
  elseif closers[word] then
    stack[#stack] = nil
  end
end

--- The index of the token that closes what opens at the i-th; the last one where nothing does.
---@param tokens Token[]
---@param i integer
---@return integer
function M.close_of(tokens, i)
  local stack = {}
  for k = i, #tokens do
    step(stack, tokens[k], k)
    if #stack == 0 then return k end
  end
  return #tokens
end

--- What is open behind the last token, the innermost last: {at = index of the token that opens it, word}.
---@param tokens Token[]
---@return {at: integer, word: string}[]
function M.open_at_end(tokens)
  local stack = {}
  for k, token in ipairs(tokens) do step(stack, token, k) end
  return stack
end

return M
