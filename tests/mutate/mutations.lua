-- mutations.lua: the small changes of meaning that a C file may suffer: conditions negated, fixed or weakened,
-- relations, arithmetic and logic exchanged, constants off by one, statements dropped, results replaced. What only
-- words errors, checks invariants or logs is left alone, and so is what stands outside functions.
local ctokens = require "ctokens"

local M = {}

---@class Mutation
---@field line integer
---@field from integer first byte that is replaced
---@field to integer last byte; from - 1: nothing is
---@field new string
---@field kind string

local EXCHANGED = {
  ["<"] = {"relation", "<=", ">="}, ["<="] = {"relation", "<", ">"}, [">"] = {"relation", ">=", "<="},
  [">="] = {"relation", ">", "<"}, ["=="] = {"relation", "!="}, ["!="] = {"relation", "=="},
  ["&&"] = {"logic", "||"}, ["||"] = {"logic", "&&"},
  ["+"] = {"arithmetic", "-"}, ["-"] = {"arithmetic", "+"}, ["*"] = {"arithmetic", "+"},
  ["/"] = {"arithmetic", "*"}, ["%"] = {"arithmetic", "/"}, ["<<"] = {"arithmetic", ">>"},
  [">>"] = {"arithmetic", "<<"}, ["&"] = {"arithmetic", "|"}, ["|"] = {"arithmetic", "&"},
  ["^"] = {"arithmetic", "|"}, ["+="] = {"arithmetic", "-="}, ["-="] = {"arithmetic", "+="},
  ["*="] = {"arithmetic", "+="}, ["/="] = {"arithmetic", "*="}, ["|="] = {"arithmetic", "&="},
  ["&="] = {"arithmetic", "|="},
}
local NEUTRAL = {["true"] = true, ["false"] = true, NULL = true, E_OK = true}
local KEYWORDS = {}
for word in ("if else for while do switch case default return break continue goto sizeof typedef struct " ..
  "union enum static const extern void _Static_assert"):gmatch "%S+" do
  KEYWORDS[word] = true
end
local OPEN, CLOSE = {["("] = ")", ["["] = "]", ["{"] = "}"}, {[")"] = true, ["]"] = true, ["}"] = true}

-- What is called to word an error, to log or to check an invariant: its arguments are left alone.
local function is_talk(name)
  return name == "ASSERT" or name == "_Static_assert" or name == "sizeof" or name:find "^log_"
    or name:find "^err_" or name:find "_error$" or name:find "^raise"
end

local Reader = {}
Reader.__index = Reader

-- Pairs every bracket with its partner, and marks what is in the arguments of talk.
local function pair(tokens)
  local stack = {}
  for i, t in ipairs(tokens) do
    if t.kind == "operator" and OPEN[t.text] then
      stack[#stack + 1] = i
    elseif t.kind == "operator" and CLOSE[t.text] then
      local open = table.remove(stack)
      if open then
        t.mate, tokens[open].mate = open, i
        local name = tokens[open - 1]
        if t.text == ")" and name and name.kind == "name" and is_talk(name.text) then
          for k = open, i do tokens[k].talk = true end
        end
      end
    end
  end
end

function Reader:text(i) return self.tokens[i] and self.tokens[i].text or "" end

function Reader:is_value(i) -- may token i end an operand?
  local t = self.tokens[i]
  if not t then return false end
  return (t.kind == "name" and not KEYWORDS[t.text]) or t.kind == "number" or t.kind == "string"
    or t.text == ")" or t.text == "]"
end

-- Replaces the tokens first to last (last < first: puts in before first).
function Reader:add(kind, first, last, new)
  local t = self.tokens[first]
  if t.talk then return end
  local to = last >= first and self.tokens[last].to or t.from - 1
  self.found[#self.found + 1] = {kind = kind, line = t.line, from = t.from, to = to, new = new}
end

function Reader:source(first, last) return self.all:sub(self.tokens[first].from, self.tokens[last].to) end

-- Is the operator between two operands? (Formatted code has blanks around those alone.)
function Reader:is_binary(i)
  local t = self.tokens[i]
  return self:is_value(i - 1) and self.all:find("^%s", t.to + 1) and self.all:find("^%s", t.from - 1)
end

function Reader:operator(i)
  local t = self.tokens[i]
  local to = EXCHANGED[t.text]
  if not to or not self:is_binary(i) then return end
  for k = 2, #to do self:add(to[1], i, i, to[k]) end
end

-- The operand of the operator at i, towards step; `stops` end it.
function Reader:operand(i, step, stops)
  local k = i + step
  while true do
    local t = self.tokens[k]
    if not t or t.text == "return" then return k - step end
    local edge = (step > 0 and CLOSE or OPEN)[t.text]
    if t.kind == "operator" and (stops[t.text] or edge) then return k - step end
    k = (t.mate and (t.mate - k) * step > 0 and t.mate or k) + step
  end
end

local ENDS = {[";"] = true, [","] = true, ["?"] = true, [":"] = true, ["="] = true, ["||"] = true,
  ["{"] = true, ["}"] = true, ["+="] = true, ["|="] = true, ["&="] = true, ["-="] = true}
local AND_ENDS = setmetatable({["&&"] = true}, {__index = ENDS})

-- a && b becomes a, or b: one of the two no longer matters.
function Reader:weaken(i)
  local t = self.tokens[i]
  if t.text ~= "&&" and t.text ~= "||" then return end
  local stops, neutral = t.text == "&&" and AND_ENDS or ENDS, t.text == "&&" and "1" or "0"
  local right, left = self:operand(i, 1, stops), self:operand(i, -1, stops)
  if right > i then self:add("weakened", i + 1, right, neutral) end
  if left < i and self:text(left - 1) ~= t.text then self:add("weakened", left, i - 1, neutral) end
end

function Reader:condition(i)
  local word = self:text(i)
  if word == "if" or word == "while" then
    local open = i + 1
    local close = self.tokens[open] and self.tokens[open].mate
    if not close then return end
    local inner = self:source(open + 1, close - 1)
    if word == "if" then
      self:add("condition", open + 1, close - 1, "!(" .. inner .. ")")
      self:add("condition", open + 1, close - 1, "1")
    end
    self:add("condition", open + 1, close - 1, "0")
  elseif word == "?" then
    local first = self:operand(i, -1, ENDS)
    if first < i then
      self:add("condition", first, i - 1, "!(" .. self:source(first, i - 1) .. ")")
    end
  end
end

function Reader:number(i)
  local t = self.tokens[i]
  if t.text == "true" or t.text == "false" then
    return self:add("constant", i, i, t.text == "true" and "false" or "true")
  end
  if t.kind ~= "number" then return end
  -- The length of an array that is declared.
  local before = self:text(i - 1) == "[" and self:is_value(i - 2)
  if before and (self:is_value(i - 3) or self:text(i - 3) == "*") then return end
  local digits, suffix = t.text:match "^(%d+)([uUlL]*)$"
  if digits and (digits == "0" or not digits:find "^0") then
    local n = math.tointeger(tonumber(digits))
    if not n then return end
    self:add("constant", i, i, ("%d%s"):format(n + 1, suffix))
    if n > 0 then self:add("constant", i, i, ("%d%s"):format(n - 1, suffix)) end
  else
    self:add("constant", i, i, "(" .. t.text .. " + 1)")
  end
end

-- Where a statement may begin: behind another, a block's edge, a header's parentheses or a label.
function Reader:starts(i)
  local before = self.tokens[i - 1]
  if before.text:find "^[;{}]$" or before.text == "else" then return true end
  if before.text == ")" and before.mate then
    local word = self:text(before.mate - 1)
    return word == "if" or word == "for" or word == "while"
  end
  return before.text == ":" and (self:text(i - 3) == "case" or self:text(i - 2) == "default")
end

-- The semicolon that ends what begins at i.
function Reader:statement_end(i)
  local k = i
  while self.tokens[k] do
    local t = self.tokens[k]
    if t.text == ";" then return k end
    local is_block = t.text == "{" and self:text(k - 1) ~= ")" and self:text(k - 1) ~= "="
    if is_block or CLOSE[t.text] then return nil end
    k = (t.mate and t.mate > k and t.mate or k) + 1
  end
end

-- Is what begins at i and ends at last a call, an assignment or a step, and no declaration?
function Reader:is_droppable(i, last)
  local k = i
  while self:text(k) == "*" or self:text(k) == "++" or self:text(k) == "--" do k = k + 1 end
  if self:text(k) == "(" then k = self.tokens[k].mate + 1 end -- a cast, or a pointer in parentheses
  if self.tokens[k].kind == "name" and not KEYWORDS[self:text(k)] then k = k + 1 end
  while k < last do
    local text = self:text(k)
    if text == "(" or text == "[" then
      k = self.tokens[k].mate + 1
    elseif text == "." or text == "->" then
      k = k + 2
    else
      return text:find "^[^=]?[^=]?=$" ~= nil or text == "++" or text == "--"
    end
  end
  return k == last and k > i + 1
end

function Reader:statement(i)
  if not self:starts(i) then return end
  local word = self:text(i)
  local t = self.tokens[i]
  if word == "break" or word == "continue" then return self:add("dropped", i, i + 1, ";") end
  if t.kind ~= "name" and word ~= "*" and word ~= "(" and word ~= "++" and word ~= "--" then return end
  if is_talk(word) and word ~= "err_clear" or KEYWORDS[word] then return end
  local last = self:statement_end(i)
  if last and self:is_droppable(i, last) then self:add("dropped", i, last, ";") end
end

function Reader:result(i, is_bool)
  if self:text(i) ~= "return" then return end
  local last = self:statement_end(i)
  if not last then return end
  if last == i + 1 then return self:starts(i) and self:add("dropped", i, last, ";") end
  local value = self:source(i + 1, last - 1)
  if tonumber(value) or NEUTRAL[value] then return end
  self:add("result", i + 1, last - 1, is_bool and "!(" .. value .. ")" or "0")
end

-- Functions' bodies: {first, last, is_bool} of tokens.
function Reader:bodies()
  local list, i, head = {}, 1, 1
  while self.tokens[i] do
    local t = self.tokens[i]
    if t.text == ";" then head = i + 1 end
    if t.text == "{" and t.kind == "operator" then
      if not t.mate then break end
      if self:text(i - 1) == ")" then
        local is_bool = false
        for k = head, i do
          if self:text(k) == "(" then break end
          is_bool = is_bool or self:text(k) == "bool"
        end
        list[#list + 1] = {i + 1, t.mate - 1, is_bool}
      end
      i, head = t.mate, t.mate + 1
    elseif t.mate and t.mate > i then
      i = t.mate
    end
    i = i + 1
  end
  return list
end

--- All that may be done to a file, in its order.
---@param text string
---@return Mutation[]
function M.of(text)
  local reader = setmetatable({all = text, tokens = ctokens.read(text), found = {}}, Reader)
  pair(reader.tokens)
  for _, body in ipairs(reader:bodies()) do
    for i = body[1], body[2] do
      reader:operator(i)
      reader:weaken(i)
      reader:condition(i)
      reader:number(i)
      reader:statement(i)
      reader:result(i, body[3])
    end
  end
  return reader.found
end

--- The text after it.
---@param text string
---@param m Mutation
---@return string
function M.apply(text, m) return text:sub(1, m.from - 1) .. m.new .. text:sub(m.to + 1) end

--- In a few words: what it was, and what it is.
---@param text string
---@param m Mutation
---@return string
function M.describe(text, m)
  local function short(s)
    s = s:gsub("%s+", " ")
    return #s > 40 and s:sub(1, 37) .. "..." or s
  end
  return ("%s: `%s` -> `%s`"):format(m.kind, short(text:sub(m.from, m.to)), short(m.new))
end

return M
