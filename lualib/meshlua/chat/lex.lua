-- lex.lua: a chat template as tokens. Templates are Jinja's, read as published ones are meant: the line end behind a
-- block goes, and the spaces in front of one that begins its line.
local values = require "meshlua.chat.values"

local fail = values.fail

local M = {}

---@class TemplateToken
---@field kind string "data", "output", "block" (what opens them), "end", "name", "text", "number", "sign"
---@field value any
---@field line integer

local LONGEST = 1 << 20 -- bytes of a template
local SIGNS = {"**", "//", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[", "]", "(", ")", "{", "}",
  ">", "<", "=", ".", ":", "|", ",", ";"}
local PAIRS = {["("] = ")", ["["] = "]", ["{"] = "}"}
local ESCAPES = {n = "\n", t = "\t", r = "\r", a = "\a", b = "\b", f = "\f", v = "\v", ["\\"] = "\\",
  ["'"] = "'", ['"'] = '"', ["\n"] = ""}

local function count_lines(text) return select(2, text:gsub("\n", "")) end

--- What an escape stands for, and how long it is behind its backslash.
local function escape(text, at, line)
  local c = text:sub(at, at)
  if ESCAPES[c] then return ESCAPES[c], 1 end
  local digits = c == "x" and 2 or c == "u" and 4 or c == "U" and 8
  if digits then
    local hex = text:sub(at + 1, at + digits)
    local code = #hex == digits and not hex:find "%X" and tonumber(hex, 16)
    if not code or code > 0x10ffff or code >= 0xd800 and code < 0xe000 then
      fail("E_PARSE", line, "\\%s is no character", c .. hex)
    end
    return utf8.char(code), 1 + digits
  end
  local octal = text:match("^[0-7][0-7]?[0-7]?", at)
  if octal then return utf8.char(tonumber(octal, 8)), #octal end
  if c == "N" then fail("E_UNSUPPORTED", line, "\\N{...} in a text is not read; \\u and digits are") end
  return "\\" .. c, 1
end

--- The text that begins with a quote at `at`, and where it ends.
local function read_text(source, at, line)
  local quote, parts, i = source:sub(at, at), {}, at + 1
  while true do
    local stop = source:find("[\\" .. quote .. "]", i)
    if not stop then fail("E_PARSE", line, "a text does not end") end
    parts[#parts + 1] = source:sub(i, stop - 1)
    if source:sub(stop, stop) == quote then return table.concat(parts), stop end
    local what, n = escape(source, stop + 1, line)
    parts[#parts + 1], i = what, stop + 1 + n
  end
end

--- A number at `at`, and where it ends.
local function read_number(source, at, line)
  local text = source:match("^0[xX][%x_]+", at) or source:match("^[%d_]+%.%d[%d_]*[eE][+-]?%d+", at)
    or source:match("^[%d_]+%.%d[%d_]*", at) or source:match("^[%d_]+[eE][+-]?%d+", at)
    or source:match("^[%d_]+", at)
  local digits = text:gsub("_", "")
  local x = tonumber(digits)
  if source:find("^[%w_]", at + #text) or digits:find "^0%d" or not x
      or math.type(x) == "float" and digits:find "^%d+$" then
    fail("E_PARSE", line, "'%s' is no number", source:match("^[%w_.]+", at))
  end
  return x, at + #text - 1
end

---@class TemplateLexer
---@field source string
---@field at integer
---@field line integer
---@field tokens TemplateToken[]
---@field fresh boolean did what came before end a line?
local Lexer = {}
Lexer.__index = Lexer

function Lexer:add(kind, value) table.insert(self.tokens, {kind = kind, value = value, line = self.line}) end

--- Goes on behind `last`.
function Lexer:pass(last)
  local text = self.source:sub(self.at, last)
  self.line, self.at = self.line + count_lines(text), last + 1
  if text ~= "" then self.fresh = text:sub(-1) == "\n" end
end

--- Where a tag's end is over, the white space that goes with it included.
function Lexer:behind(last, sign, drops_line_end)
  if sign == "-" then return values.skip_space(self.source, last + 1) - 1 end
  if sign ~= "+" and drops_line_end and self.source:sub(last + 1, last + 1) == "\n" then return last + 1 end
  return last
end

--- The text in front of a tag, as far as it stays.
function Lexer:data(last, sign, is_output)
  local text = self.source:sub(self.at, last)
  if sign == "-" then
    text = values.strip(text, nil, false, true)
  elseif sign ~= "+" and not is_output then
    local kept = text:match "^.*\n" or ""
    if (kept ~= "" or self.fresh) and values.strip(text:sub(#kept + 1), nil, true, true) == "" then
      text = kept
    end
  end
  if text ~= "" then self:add("data", text) end
end

--- The words within a tag, up to its end.
function Lexer:tag(closing, is_output)
  local source, open = self.source, {}
  while true do
    self:pass(values.skip_space(source, self.at) - 1)
    local at = self.at
    local sign = source:match("^[+-]?", at)
    if #open == 0 and (sign == "" or sign == "-" or not is_output)
        and source:sub(at + #sign, at + #sign + 1) == closing then
      self:add "end"
      return self:pass(self:behind(at + #sign + 1, sign, not is_output))
    end
    local c = source:sub(at, at)
    if c == "" then fail("E_PARSE", self.line, "a tag has no end: %s is missing", closing) end
    if c == "'" or c == '"' then
      local text, last = read_text(source, at, self.line)
      self:add("text", text)
      self:pass(last)
    elseif c:find "%d" then
      local x, last = read_number(source, at, self.line)
      self:add("number", x)
      self:pass(last)
    elseif c:find "[%a_]" then
      local name = source:match("^[%w_]+", at)
      self:add("name", name)
      self:pass(at + #name - 1)
    else
      self:sign(open)
    end
  end
end

function Lexer:sign(open)
  for _, sign in ipairs(SIGNS) do
    if self.source:sub(self.at, self.at + #sign - 1) == sign then
      if PAIRS[sign] then
        open[#open + 1] = PAIRS[sign]
      elseif sign:find "[%])}]" and table.remove(open) ~= sign then
        fail("E_PARSE", self.line, "'%s' closes nothing", sign)
      end
      self:add("sign", sign)
      return self:pass(self.at + #sign - 1)
    end
  end
  local c = self.source:match("^" .. utf8.charpattern, self.at) or "?"
  fail("E_PARSE", self.line, "'%s' means nothing here", c)
end

--- {% raw %}: what stands there up to its end.
function Lexer:raw(first)
  local sign = self.source:sub(first - 1, first - 1)
  self:pass(sign == "-" and values.skip_space(self.source, first + 2) - 1 or first + 1)
  local from, last, before, behind = self.source:find("{%%([+-]?)%s*endraw%s*([+-]?)%%}", self.at)
  if not from then fail("E_PARSE", self.line, "raw has no end: {%% endraw %%} is missing") end
  self:data(from - 1, before, false)
  self:pass(self:behind(last, behind, true))
end

--- {# ... #}
function Lexer:comment()
  local from = self.source:find("#}", self.at, true)
  if not from then fail("E_PARSE", self.line, "a comment has no end: #} is missing") end
  local sign = from > self.at and self.source:sub(from - 1, from - 1) or ""
  self:pass(self:behind(from + 1, sign, true))
end

--- The tokens of a template.
---@param source string
---@return TemplateToken[]
function M.tokens(source)
  if #source > LONGEST then fail("E_VALUE", 1, "it has %d bytes; the most is %d", #source, LONGEST) end
  if not utf8.len(source) then fail("E_PARSE", 1, "it is not UTF-8") end
  source = source:gsub("\r\n?", "\n"):gsub("\n$", "")
  local lexer = setmetatable({source = source, at = 1, line = 1, tokens = {}, fresh = true}, Lexer)
  while true do
    local from, _, what, sign = source:find("{([{%%#])([+-]?)", lexer.at)
    if not from then break end
    lexer:data(from - 1, sign, what == "{")
    lexer:pass(from + 1 + #sign)
    local raw = what == "%" and source:match("^%s*raw%s*%-?()%%}", lexer.at)
    if what == "#" then
      lexer:comment()
    elseif raw then
      lexer:raw(raw)
    else
      lexer:add(what == "{" and "output" or "block")
      lexer:tag(what == "{" and "}}" or "%}", what == "{")
    end
  end
  if lexer.at <= #source then lexer:add("data", source:sub(lexer.at)) end
  lexer:pass(#source)
  lexer:add "over"
  return lexer.tokens
end

return M
