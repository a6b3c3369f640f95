-- expression.lua: what reads a chat template's tokens, and its expressions as functions: fn(scope) -> value. A scope has
-- variables by name, and those around it through its metatable.
local filters = require "meshlua.chat.filters"
local methods = require "meshlua.chat.methods"
local values = require "meshlua.chat.values"

local none = values.none

local DEEPEST = 100 -- of what stands within another one

local function fail(...) return values.fail("E_VALUE", nil, ...) end

---@class TemplateParser
---@field tokens TemplateToken[]
---@field at integer
---@field depth integer
---@field loops integer around what is read
---@field asks_loop boolean does what is read say "loop"?
local Parser = {}
Parser.__index = Parser

-- ---- tokens -------------------------------------------------------------------------------------------

function Parser:now() return self.tokens[self.at] end

local function shown(token)
  if token.kind == "end" then return "the end of the tag" end
  if token.kind == "over" then return "the end of the template" end
  return token.kind == "data" and "text" or ("'%s'"):format(token.value or token.kind)
end

function Parser:refuse(expected)
  values.fail("E_PARSE", self:now().line, "%s is expected, not %s", expected, shown(self:now()))
end

function Parser:unsupported(what)
  values.fail("E_UNSUPPORTED", self:now().line, "%s is not supported", what)
end

--- Is the token of this kind, with this value?
function Parser:is(kind, value)
  local token = self:now()
  return token.kind == kind and (value == nil or token.value == value)
end

--- Goes on behind the token, if it is so; returns its value.
function Parser:skip(kind, value)
  if not self:is(kind, value) then return nil end
  self.at = self.at + 1
  return self.tokens[self.at - 1].value or true
end

function Parser:expect(kind, value, words)
  if not self:is(kind, value) then self:refuse(words or ("'%s'"):format(value or kind)) end
  self.at = self.at + 1
  return self.tokens[self.at - 1].value
end

function Parser:sign(value) return self:skip("sign", value) end

function Parser:deeper(n)
  self.depth = self.depth + n
  if self.depth > DEEPEST then
    values.fail("E_VALUE", self:now().line, "more than %d things within each other", DEEPEST)
  end
end

-- ---- expressions ----------------------------------------------------------------------------------------

Parser.CONSTANTS = {["true"] = true, True = true, ["false"] = false, False = false, none = none, None = none}

local CONSTANTS = Parser.CONSTANTS

local function constant(value)
  return function()
    values.tick()
    return value
  end
end

local function variable(name)
  return function(scope)
    values.tick()
    local value = scope[name]
    if value == nil then return values.undefined(name) end
    return value
  end
end

--- Items of a list, tuple or call, up to the closing sign.
function Parser.evaluated(items, scope)
  local list = {n = #items}
  for i, item in ipairs(items) do list[i] = item(scope) end
  return list
end

--- [a, b], behind the bracket.
function Parser:list()
  local items = {}
  while not self:sign "]" do
    items[#items + 1] = self:expression()
    if not self:sign "," and not self:is("sign", "]") then self:refuse "',' or ']'" end
  end
  return function(scope) return values.list(Parser.evaluated(items, scope), #items) end
end

--- {k: v}, behind the brace.
function Parser:dict()
  local keys, items = {}, {}
  while not self:sign "}" do
    keys[#keys + 1] = self:expression()
    self:expect("sign", ":")
    items[#items + 1] = self:expression()
    if not self:sign "," and not self:is("sign", "}") then self:refuse "',' or '}'" end
  end
  return function(scope)
    local dict = values.dict()
    for i, key in ipairs(keys) do values.put(dict, key(scope), items[i](scope)) end
    return dict
  end
end

--- Expressions with commas between them are a tuple.
---@param closing string? the sign behind it: then it may be empty
function Parser:tuple(closing)
  local items, comma = {}, false
  while not (closing and self:is("sign", closing)) and not self:is "end" do
    items[#items + 1] = self:expression()
    comma = self:sign "," or false
    if not comma then break end
  end
  if #items == 0 and not closing then self:refuse "an expression" end
  if #items == 1 and not comma then return items[1] end
  return function(scope) return values.list(Parser.evaluated(items, scope), #items, true) end
end

function Parser:primary()
  local token = self:now()
  self.at = self.at + 1
  if token.kind == "name" then
    self.asks_loop = self.asks_loop or token.value == "loop"
    if CONSTANTS[token.value] ~= nil then return constant(CONSTANTS[token.value]) end
    return variable(token.value)
  elseif token.kind == "text" then
    local text = token.value
    while self:is "text" do text = text .. self:skip "text" end
    return constant(text)
  elseif token.kind == "number" then
    return constant(token.value)
  elseif token.kind == "sign" and token.value == "(" then
    local inside = self:tuple ")"
    self:expect("sign", ")")
    return inside
  elseif token.kind == "sign" and token.value == "[" then
    return self:list()
  elseif token.kind == "sign" and token.value == "{" then
    return self:dict()
  end
  self.at = self.at - 1
  self:refuse "an expression"
end

--- (a, b = c), behind the parenthesis: positions, and names.
function Parser:arguments()
  local items, named, order, rest, spread = {}, {}, {}
  while not self:sign ")" do
    local following = self.tokens[self.at + 1]
    if self:sign "**" then
      spread = self:expression()
    elseif self:sign "*" then
      if rest then self:unsupported "a call with several *" end
      rest = self:expression()
    elseif self:is "name" and following.kind == "sign" and following.value == "=" then
      local name = self:expect "name"
      self.at = self.at + 1
      named[name], order[#order + 1] = self:expression(), name
    else
      if #order > 0 or rest then self:refuse "name = value" end
      items[#items + 1] = self:expression()
    end
    if not self:sign "," and not self:is("sign", ")") then self:refuse "',' or ')'" end
  end
  return function(scope)
    local list, by_name = Parser.evaluated(items, scope), {}
    for _, name in ipairs(order) do by_name[name] = named[name](scope) end
    for _, item in ipairs(rest and values.items(rest(scope)) or {}) do
      list.n = list.n + 1
      list[list.n] = item
    end
    local more = spread and spread(scope)
    if more and not values.is_dict(more) then fail("** of %s; it is of a dict", values.kind(more)) end
    for _, name in ipairs(more and more.keys or {}) do by_name[name] = values.at(more, name) end
    return list, by_name
  end
end

--- [key] or [from:to:step], behind the bracket.
function Parser:subscript(of)
  local parts, colons = {}, 0
  while not self:is("sign", "]") do
    if self:sign ":" then
      colons = colons + 1
    elseif parts[colons + 1] then
      self:refuse "']'"
    else
      parts[colons + 1] = self:expression()
    end
    if self:is("sign", ",") then self:unsupported "an index of several values" end
  end
  if colons > 2 or colons == 0 and not parts[1] then self:refuse "an index" end
  self:expect("sign", "]")
  local key = parts[1]
  if colons == 0 then return function(scope) return methods.item(of(scope), key(scope)) end end
  local function bound(i, scope)
    local x = parts[i] and parts[i](scope)
    if x == nil or x == none then return nil end
    return values.integer(x, "a bound of a slice")
  end
  return function(scope)
    local x = of(scope)
    return values.slice(x, bound(1, scope), bound(2, scope), bound(3, scope))
  end
end

function Parser:call(callee)
  local arguments = self:arguments()
  return function(scope)
    local fn = callee(scope)
    if not values.is_function(fn) then fail("%s is called, and is no function", values.kind(fn)) end
    return fn.call(arguments(scope))
  end
end

function Parser:postfix(node)
  while true do
    if self:sign "." then
      local of, name = node, self:skip "name"
      if name then
        node = function(scope) return methods.attribute(of(scope), name) end
      else
        local number = self:expect("number", nil, "a name")
        node = function(scope) return methods.item(of(scope), number) end
      end
    elseif self:sign "[" then
      node = self:subscript(node)
    elseif self:sign "(" then
      node = self:call(node)
    else
      return node
    end
  end
end

local NO_ARGUMENTS = function() return {n = 0}, {} end

--- A filter, behind the "|".
function Parser:filter(of)
  local name = self:expect("name", nil, "a filter")
  local is_known = filters.filters[name] or filters.open[name]
  if not is_known then self:unsupported(("the filter '%s'"):format(name)) end
  local arguments = self:sign "(" and self:arguments() or NO_ARGUMENTS
  return function(scope)
    local x = of(scope)
    return filters.filter(name, x, arguments(scope))
  end
end

--- A test, behind "is".
function Parser:test(of)
  local negated = self:skip("name", "not")
  local name = self:expect("name", nil, "a test")
  local row = filters.tests[name]
  if not row then self:unsupported(("the test '%s'"):format(name)) end
  local arguments, token = NO_ARGUMENTS, self:now()
  local ends = token.kind == "name" and (token.value == "else" or token.value == "or" or token.value == "and")
  if self:sign "(" then
    arguments = self:arguments()
  elseif (token.kind == "name" or token.kind == "text" or token.kind == "number" or token.kind == "sign"
      and (token.value == "[" or token.value == "{")) and not ends then
    if self:is("name", "is") then self:refuse "one test" end
    local one = self:postfix(self:primary())
    arguments = function(scope) return {n = 1, one(scope)}, {} end
  end
  return function(scope)
    local x = of(scope)
    local args, named = arguments(scope)
    return methods.call(name, row, args, named, x) ~= (negated and true or false)
  end
end

function Parser:filtered(node)
  while true do
    if self:sign "|" then
      node = self:filter(node)
    elseif self:skip("name", "is") then
      node = self:test(node)
    elseif self:sign "(" then
      node = self:call(node)
    else
      return node
    end
  end
end

function Parser:unary(with_filter)
  self:deeper(1)
  local sign, node = self:sign "-" or self:sign "+"
  if sign then
    local of = self:unary(false)
    node = function(scope)
      local x = values.number(of(scope))
      if not x then fail("%s before what is no number", sign) end
      return sign == "-" and -x or x
    end
  else
    node = self:primary()
  end
  node = self:postfix(node)
  if with_filter then node = self:filtered(node) end
  self:deeper(-1)
  return node
end

local BINARY = {{"+", "-"}, {"~"}, {"*", "/", "//", "%"}, {"**"}} -- loosest first

--- Operators of one level and of those that bind tighter.
function Parser:binary(level)
  local signs = BINARY[level]
  if not signs then return self:unary(true) end
  local node = self:binary(level + 1)
  while true do
    local op
    for _, sign in ipairs(signs) do op = op or self:sign(sign) end
    if not op then return node end
    local left, right = node, self:binary(level + 1)
    if op == "~" then
      node = function(scope)
        local a = values.text(left(scope))
        return values.made(a .. values.text(right(scope)))
      end
    else
      node = function(scope)
        local a = left(scope)
        return values.arithmetic(op, a, right(scope))
      end
    end
  end
end

local function unlike(test) return function(a, b) return not test(a, b) end end
local COMPARE = {["=="] = values.equal, ["!="] = unlike(values.equal), ["<"] = values.less,
  [">"] = function(a, b) return values.less(b, a) end, [">="] = unlike(values.less),
  ["<="] = function(a, b) return not values.less(b, a) end, ["in"] = values.within,
  ["not in"] = unlike(values.within)}

--- The comparison that stands here, or nil.
function Parser:comparison()
  local token, following = self:now(), self.tokens[self.at + 1]
  if token.kind == "sign" and COMPARE[token.value] then return self:skip "sign" end
  if self:skip("name", "in") then return "in" end
  if self:is("name", "not") and following.kind == "name" and following.value == "in" then
    self.at = self.at + 2
    return "not in"
  end
end

--- a < b < c: each beside the next, up to the first that does not hold.
function Parser:compared()
  local first, rest = self:binary(1), {}
  local op = self:comparison()
  while op do
    rest[#rest + 1] = {COMPARE[op], self:binary(1)}
    op = self:comparison()
  end
  if #rest == 0 then return first end
  return function(scope)
    local a = first(scope)
    for _, step in ipairs(rest) do
      local b = step[2](scope)
      if not step[1](a, b) then return false end
      a = b
    end
    return true
  end
end

function Parser:negated()
  if not self:skip("name", "not") then return self:compared() end
  self:deeper(1)
  local of = self:negated()
  self:deeper(-1)
  return function(scope) return not values.truth(of(scope)) end
end

--- a and b, a or b: the value that decides.
function Parser:logical(word, ends_at, inner)
  local node = inner(self)
  while self:skip("name", word) do
    local left, right = node, inner(self)
    node = function(scope)
      local a = left(scope)
      if values.truth(a) == ends_at then return a end
      return right(scope)
    end
  end
  return node
end

function Parser:conjunction() return self:logical("and", false, self.negated) end
function Parser:disjunction() return self:logical("or", true, self.conjunction) end

--- a if b else c
function Parser:expression()
  self:deeper(1)
  local node = self:disjunction()
  while self:skip("name", "if") do
    local yes, condition = node, self:disjunction()
    local no = self:skip("name", "else") and self:expression()
      or function() return values.undefined "a conditional without else" end
    node = function(scope)
      if values.truth(condition(scope)) then return yes(scope) end
      return no(scope)
    end
  end
  self:deeper(-1)
  return node
end

return Parser
