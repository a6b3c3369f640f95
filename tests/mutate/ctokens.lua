-- ctokens.lua: C source as tokens, without comments and lines of the preprocessor.
local M = {}

local OPERATORS = {
  "<<=", ">>=", "...", "->", "++", "--", "<<", ">>", "<=", ">=", "==", "!=", "&&", "||", "+=", "-=", "*=",
  "/=", "%=", "&=", "|=", "^=",
}

---@class CToken
---@field kind "name"|"number"|"string"|"operator"
---@field text string
---@field from integer first byte
---@field to integer last byte
---@field line integer

-- Behind a literal whose opening quote stands at `at`.
local function literal_end(text, at)
  local quote = text:sub(at, at)
  local i = at + 1
  while i <= #text do
    local c = text:sub(i, i)
    if c == "\\" then
      i = i + 1
    elseif c == quote then
      return i
    end
    i = i + 1
  end
  return #text
end

-- The last byte of a preprocessor's line with its continuations.
local function directive_end(text, at)
  while true do
    local stop = text:find("\n", at, true) or #text + 1
    if text:sub(stop - 1, stop - 1) ~= "\\" then return stop - 1 end
    at = stop + 1
  end
end

local function operator_at(text, at)
  for _, op in ipairs(OPERATORS) do
    if text:sub(at, at + #op - 1) == op then return op end
  end
  return text:sub(at, at)
end

---@param text string a C file
---@return CToken[]
function M.read(text)
  local tokens = {}
  local at, line, fresh = 1, 1, true -- fresh: nothing but blanks stands before, on this line
  local function skip(to)
    local _, n = text:sub(at, to):gsub("\n", "")
    line, at = line + n, to + 1
  end
  local function add(kind, to)
    tokens[#tokens + 1] = {kind = kind, text = text:sub(at, to), from = at, to = to, line = line}
    fresh = false
    skip(to)
  end
  while at <= #text do
    local c = text:sub(at, at)
    if c == "\n" then
      skip(at)
      fresh = true
    elseif c:find "%s" then
      at = at + 1
    elseif text:find("^//", at) then
      at = text:find("\n", at, true) or #text + 1
    elseif text:find("^/%*", at) then
      local _, stop = text:find("*/", at + 2, true)
      skip(stop or #text)
    elseif c == "#" and fresh then
      skip(directive_end(text, at))
    elseif c == '"' or c == "'" then
      add("string", literal_end(text, at))
    elseif c:find "[%a_]" then
      add("name", select(2, text:find("^[%w_]+", at)))
    elseif c:find "%d" or text:find("^%.%d", at) then
      local stop, hex = at, text:find("^0[xX]", at)
      while text:find("^[%w_.]", stop + 1) or text:find(hex and "^[pP][+-]" or "^[eE][+-]", stop) do
        stop = stop + 1
      end
      add("number", stop)
    else
      add("operator", at + #operator_at(text, at) - 1)
    end
  end
  return tokens
end

return M
