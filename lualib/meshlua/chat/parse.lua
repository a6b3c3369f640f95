-- parse.lua: a chat template as a function. What stands in a body is fn(scope, out) -> nil, "break" or "continue", and adds
-- texts to out.
local Parser = require "meshlua.chat.expression"
local filters = require "meshlua.chat.filters"
local lex = require "meshlua.chat.lex"
local methods = require "meshlua.chat.methods"
local values = require "meshlua.chat.values"

local meter = values.meter

local M = {}

local DEEPEST = 100 -- of macros that call macros

local function fail(...) return values.fail("E_VALUE", nil, ...) end

-- ---- bodies ---------------------------------------------------------------------------------------------

local function within(scope) return setmetatable({}, {__index = scope}) end

--- Texts of a body, as one.
local function written(body, scope)
  local out = {}
  body(scope, out)
  return values.made(table.concat(out))
end

--- What stands up to a tag with one of these words, and which word that was: its arguments come next.
---@param ends string[]? nil: up to the end of the template
function Parser:body(ends)
  local parts, first = {}, self:now().line
  self:deeper(1)
  while true do
    local token = self:now()
    self.at = self.at + 1
    if token.kind == "data" then
      parts[#parts + 1] = function(_, out) out[#out + 1] = values.made(token.value) end
    elseif token.kind == "output" then
      parts[#parts + 1] = self:output(token.line)
    elseif token.kind == "block" then
      local word = self:expect("name", nil, "a word")
      for _, known in ipairs(ends or {}) do
        if word == known then
          self:deeper(-1)
          return self:sequence(parts), word
        end
      end
      parts[#parts + 1] = self:statement(word, token.line)
    elseif not ends then
      self:deeper(-1)
      return self:sequence(parts)
    else
      values.fail("E_PARSE", first, "{%% %s %%} is missing for what begins here", ends[#ends])
    end
  end
end

function Parser:sequence(parts)
  return function(scope, out)
    for _, part in ipairs(parts) do
      local leave = part(scope, out)
      if leave then return leave end
    end
  end
end

function Parser:close() self:expect("end", nil, "the end of the tag") end

function Parser:output(line)
  local node = self:tuple()
  self:close()
  return function(scope, out)
    meter.line = line
    out[#out + 1] = values.made(values.text(node(scope)))
  end
end

local on = {}

--- A tag by its word.
function Parser:statement(word, line)
  if not on[word] then
    self.at = self.at - 1
    if word:find "^end" or word == "else" or word == "elif" then self:refuse "what it ends" end
    self:unsupported(("{%% %s %%}"):format(word))
  end
  local run = on[word](self)
  return function(scope, out)
    meter.line = line
    values.tick()
    return run(scope, out)
  end
end

on["if"] = function(self)
  local branches, otherwise, body, word = {}
  repeat
    local condition = self:tuple()
    self:close()
    body, word = self:body {"elif", "else", "endif"}
    branches[#branches + 1] = {condition, body}
  until word ~= "elif"
  self:close()
  if word == "else" then
    otherwise = self:body {"endif"}
    self:close()
  end
  return function(scope, out)
    for _, branch in ipairs(branches) do
      if values.truth(branch[1](scope)) then return branch[2](scope, out) end
    end
    return otherwise and otherwise(scope, out)
  end
end

--- Names that are set: fn(scope, value).
function Parser:targets()
  local names, comma, more = {}, false
  local open = self:sign "("
  repeat
    if self:is "name" and Parser.CONSTANTS[self:now().value] ~= nil then self:refuse "a name" end
    names[#names + 1] = self:expect("name", nil, "a name")
    more = self:sign ","
    comma = comma or more
  until not more or not self:is "name" or self:is("name", "in")
  if open then self:expect("sign", ")") end
  if #names == 1 and not comma then return function(scope, value) rawset(scope, names[1], value) end end
  return function(scope, value)
    local list = values.items(value)
    if list.n ~= #names then fail("%d values for %d names", list.n, #names) end
    for i, name in ipairs(names) do rawset(scope, name, list[i]) end
  end
end

--- What a loop's body sees as `loop`.
local function loop_of(list, i, depth)
  local function at(k, name) return list[k] == nil and values.undefined(name) or list[k] end
  return values.space {index = i, index0 = i - 1, first = i == 1, last = i == list.n, length = list.n,
    revindex = list.n - i + 1, revindex0 = list.n - i, depth = depth, depth0 = depth - 1,
    previtem = at(i - 1, "loop.previtem"), nextitem = at(i + 1, "loop.nextitem"),
    cycle = values.func("cycle", function(args)
      if args.n == 0 then fail "loop.cycle needs values" end
      return args[(i - 1) % args.n + 1]
    end)}
end

--- The items of a loop that its condition takes.
local function chosen(scope, list, assign, condition)
  if not condition then return list end
  local kept = {}
  for i = 1, list.n do
    local inner = within(scope)
    assign(inner, list[i])
    if values.truth(condition(inner)) then kept[#kept + 1] = list[i] end
  end
  return values.list(kept)
end

on["for"] = function(self)
  local assign = self:targets()
  self:expect("name", "in")
  local over = self:for_tuple()
  local condition = self:skip("name", "if") and self:disjunction()
  if self:is("name", "recursive") then self:unsupported "a recursive loop" end
  self:close()
  self.loops = self.loops + 1
  local depth, asked = self.loops, self.asks_loop
  self.asks_loop = false
  local body, word = self:body {"else", "endfor"}
  local asks_loop = self.asks_loop
  self.loops, self.asks_loop = depth - 1, asked or asks_loop
  self:close()
  local otherwise
  if word == "else" then
    otherwise = self:body {"endfor"}
    self:close()
  end
  return function(scope, out)
    local list = chosen(scope, values.items(over(scope)), assign, condition)
    local whole = false -- has one gone to its end? Jinja asks that of else
    for i = 1, list.n do
      values.tick()
      local inner = within(scope)
      assign(inner, list[i])
      inner.loop = asks_loop and loop_of(list, i, depth) or nil
      local leave = body(inner, out)
      if leave == "break" then break end
      whole = whole or not leave
    end
    if not whole and otherwise then return otherwise(within(scope), out) end
  end
end

--- What a loop goes over: no conditional, whose "if" is the loop's.
function Parser:for_tuple()
  local items = {self:disjunction()}
  if not self:is("sign", ",") then return items[1] end
  while self:sign "," do items[#items + 1] = self:disjunction() end
  return function(scope) return values.list(Parser.evaluated(items, scope), #items, true) end
end

for _, word in ipairs {"break", "continue"} do
  on[word] = function(self)
    if self.loops == 0 then self:refuse("a loop around " .. word) end
    self:close()
    return function() return word end
  end
end

--- {% set space.name = value %}
local function set_field(self)
  local name = self:expect "name"
  self:expect("sign", ".")
  local field = self:expect("name", nil, "a name")
  self:expect("sign", "=")
  local value = self:tuple()
  self:close()
  return function(scope)
    local space = scope[name]
    if not values.is_space(space) then fail("%s has no field that can be set; a namespace has", name) end
    space.fields[field] = value(scope)
  end
end

function on.set(self)
  local following = self.tokens[self.at + 1]
  if following.kind == "sign" and following.value == "." then return set_field(self) end
  local assign = self:targets()
  if self:sign "=" then
    local value = self:tuple()
    self:close()
    return function(scope) assign(scope, value(scope)) end
  end
  local text
  local node = function() return text end
  while self:sign "|" do node = self:filter(node) end
  self:close()
  local body = self:body {"endset"}
  self:close()
  return function(scope)
    text = written(body, within(scope))
    assign(scope, node(scope))
  end
end

--- The parameters of a macro: names, and defaults.
function Parser:parameters()
  local names, defaults = {}, {}
  self:expect("sign", "(")
  while not self:sign ")" do
    names[#names + 1] = self:expect("name", nil, "a name")
    if self:sign "=" then
      defaults[#names] = self:expression()
    elseif next(defaults) then
      self:refuse "a default"
    end
    if not self:sign "," and not self:is("sign", ")") then self:refuse "',' or ')'" end
  end
  return names, defaults
end

function on.macro(self)
  local name = self:expect("name", nil, "a name")
  local names, defaults = self:parameters()
  self:close()
  local loops = self.loops
  self.loops = 0
  local body = self:body {"endmacro"}
  self.loops = loops
  self:close()
  local row = table.move(names, 1, #names, 1, {})
  row[#row + 1] = function(outer, ...)
    local scope = within(outer)
    for i, parameter in ipairs(names) do
      local value = select(i, ...)
      if value == nil and defaults[i] then value = defaults[i](scope) end
      if value == nil then value = values.undefined(parameter) end
      scope[parameter] = value
    end
    meter.depth = meter.depth + 1
    if meter.depth > DEEPEST then fail("macros call each other more than %d deep", DEEPEST) end
    local line = meter.line
    local text = written(body, scope)
    meter.depth, meter.line = meter.depth - 1, line
    return text
  end
  return function(scope)
    rawset(scope, name, values.func(name, function(args, named)
      return methods.call(name, row, args, named, scope)
    end))
  end
end

--- {% generation %}: what the model wrote, for those who train on it.
function on.generation(self)
  self:close()
  local body = self:body {"endgeneration"}
  self:close()
  return function(scope, out) out[#out + 1] = written(body, within(scope)) end
end

--- A template as a function of its variables that returns a text. Raises a TemplateFault where it cannot be read.
---@param source string
---@return fun(variables: table<string, any>): string
function M.compile(source)
  local parser = setmetatable({tokens = lex.tokens(source), at = 1, depth = 0, loops = 0}, Parser)
  local body = parser:body()
  return function(variables)
    return written(body, within(setmetatable(variables, {__index = filters.globals})))
  end
end

return M
