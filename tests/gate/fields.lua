-- fields.lua: finds in a Lua program names of the library that do not exist, without running it: functions and fields
-- of its modules, methods and fields of values whose type is told by the table of exports, options that a function
-- does not have. What is not known to be of the library is not looked at.
local exports = require "meshlua.exports"
local ml = require "meshlua"

local M = {}

-- ---- what there is ----------------------------------------------------------------------------------------

local modules = {[""] = ml, ["random."] = ml.random, ["tree."] = ml.tree, ["nn."] = ml.nn,
  ["optim."] = ml.optim,
  ["initializers."] = ml.nn.initializers, ["schedule."] = ml.schedule, ["data."] = ml.data,
  ["metrics."] = ml.metrics,
  ["train."] = ml.train, ["profile."] = ml.profile, ["checkpoint."] = ml.checkpoint,
  ["remat_policies."] = ml.remat_policies}
local prefix_of = {}
for prefix, module in pairs(modules) do prefix_of[module] = prefix end

local class_of = {JittedFunction = "jit", Tokens = "tokens", Module = "module"}
local members, methods = {}, {} -- type -> name -> row; the names of all methods
do
  local function add(of, own, row)
    members[of] = members[of] or {}
    members[of][own], methods[own] = row, true
  end
  for _, name in ipairs(exports.names()) do
    local row = exports.row(name)
    local of, own = name:match "^([%w_]+)[.:]([%w_]+)$"
    if row.family == "tensor" and not of then add("Tensor", name, row) end
    if of and not modules[of .. "."] then add(of, own, row) end
  end
  for own, row in pairs(members.Tensor) do members.Param[own] = members.Param[own] or row end
  for own in pairs(string) do methods[own] = true end
  for _, own in ipairs {"read", "write", "lines", "close", "seek", "flush", "setvbuf"} do
    methods[own] = true
  end
end

--- Types whose every field is in the rows.
local closed = {Tensor = true, Param = true, Mesh = true, NamedSharding = true, jit = true, Plan = true,
  Program = true, tokens = true, Records = true, Manager = true, Traced = true, Lowered = true,
  Compiled = true}

local function kind_of_type(text)
  if text == "key" or text == "Tensor" then return {type = "Tensor"} end
  text = class_of[text] or text
  return closed[text] and {type = text} or nil
end

--- The kind of what a module's name stands for; nil: there is none.
local function kind_in(prefix, name)
  local ok, value = pcall(function() return modules[prefix][name] end)
  if not ok or value == nil then return nil end
  if prefix_of[value] then return {module = prefix_of[value]} end
  local row = exports.row(prefix .. name)
  return row and row.name == prefix .. name and {row = row} or {}
end

-- ---- tokens -----------------------------------------------------------------------------------------------

--- The tokens of a text: {kind ("name", "string", "number", or the sign itself), text, line}.
local function tokens_of(text)
  local list, at, line = {}, 1, 1
  local function take(kind, stop)
    local piece = text:sub(at, stop)
    if kind then list[#list + 1] = {kind = kind, text = piece, line = line} end
    line, at = line + select(2, piece:gsub("\n", "")), stop + 1
  end
  while at <= #text do
    local long = text:match("^%-?%-?%[(=*)%[", at)
    local is_comment = text:find("^%-%-", at)
    if long and (is_comment or text:sub(at, at) == "[") then
      local _, stop = text:find("]" .. long .. "]", at, true)
      take(not is_comment and "string", stop or #text)
    elseif is_comment then take(nil, (text:find("\n", at) or #text + 1) - 1)
    elseif text:find("^[\"']", at) then
      local quote, stop = text:sub(at, at), at + 1
      while stop < #text and text:sub(stop, stop) ~= quote do
        stop = stop + (text:sub(stop, stop) == "\\" and 2 or 1)
      end
      take("string", stop)
    elseif text:find("^[%a_]", at) then
      local _, stop = text:find("^[%w_]+", at)
      take("name", stop)
    elseif text:find("^%d", at) then
      local _, stop = text:find("^[%w.]+", at)
      take("number", stop)
    elseif text:find("^%s", at) then take(nil, select(2, text:find("^%s+", at)))
    else
      local _, stop = text:find("^%.%.%.?", at)
      take(text:sub(at, stop or at), stop or at)
    end
  end
  for _, token in ipairs(list) do
    if token.kind == "name" and token.text:find "^%l+$" and not load("local " .. token.text) then
      token.kind = token.text -- a word of Lua
    end
  end
  return list
end

-- ---- the walk ---------------------------------------------------------------------------------------------

---@class Walk
---@field tokens table[]
---@field known table<string, table|false> variable -> kind; false: it is several things
---@field own table<string, boolean> methods that the program defines
---@field found string[]

local opens = {["("] = true, ["{"] = true, ["["] = true, ["function"] = true, ["if"] = true, ["do"] = true,
  ["repeat"] = true}
local closes = {[")"] = true, ["}"] = true, ["]"] = true, ["end"] = true, ["until"] = true}

--- The token behind what the bracket, or the word, at `at` opens.
local function behind(self, at)
  local depth = 0
  repeat
    local kind = self.tokens[at] and self.tokens[at].kind
    depth = depth + (opens[kind] and 1 or closes[kind] and -1 or 0)
    at = at + 1
  until depth == 0 or not self.tokens[at]
  return at
end

local function complain(self, token, fmt, ...)
  local line = ("%d: " .. fmt):format(token.line, ...)
  if not self.seen[line] then
    self.seen[line] = true
    self.found[#self.found + 1] = line
  end
end

--- Looks at the names in the table literal at `at`, as options of the function.
local function check_options(self, at, row)
  if not row.options and not row.names then return end
  local stop, depth = behind(self, at), 0
  for i = at, stop - 1 do
    local token, after = self.tokens[i], self.tokens[i + 1]
    depth = depth + (opens[token.kind] and 1 or closes[token.kind] and -1 or 0)
    local starts = i > at and (self.tokens[i - 1].kind == "{" or self.tokens[i - 1].kind == ",")
    if depth == 1 and starts and token.kind == "name" and after.kind == "=" then
      local is_there = row.options and row.options[token.text]
      for _, p in ipairs(row.names and row.params or {}) do is_there = is_there or p.name == token.text end
      if not is_there then complain(self, token, "%s has no option '%s'", row.name, token.text) end
    end
  end
end

--- Looks at the options of a call whose arguments begin at `at`: a table in the place of the last.
local function check_call(self, at, row, is_method)
  if self.tokens[at].kind == "{" then
    if row.names or #row.params == (is_method and 1 or 0) then check_options(self, at, row) end
    return
  end
  local i, argument, stop = at + 1, is_method and 2 or 1, behind(self, at) - 1
  while i < stop do
    local kind = self.tokens[i].kind
    local is_last = argument == #row.params + 1 and not row.variadic
    if kind == "{" and (is_last or row.names) and self.tokens[i - 1].kind:find "^[(,]$" then
      check_options(self, i, row)
    end
    if kind == "," then argument = argument + 1 end
    i = opens[kind] and behind(self, i) or i + 1
  end
end

--- One step of a chain on a value of a kind: .name, :name(...), (...). The kind of the result (nil: not known), and
--- the token behind.
local function step(self, at, kind)
  local token, name = self.tokens[at], self.tokens[at + 1]
  if token.kind == "." and name and name.kind == "name" then
    if kind and kind.module then
      local inner = kind_in(kind.module, name.text)
      if not inner and name.text:sub(1, 1) ~= "_" then
        complain(self, name, "there is no ml.%s%s", kind.module, name.text)
      end
      return inner, at + 2
    end
    local row = kind and kind.type and members[kind.type][name.text]
    if kind and kind.type and not row then
      complain(self, name, "%s has no field '%s'", kind.type, name.text)
    end
    return row and row.field and kind_of_type(row.field) or nil, at + 2
  elseif token.kind == ":" and name and name.kind == "name" then
    local row = kind and kind.type and members[kind.type][name.text]
    if kind and kind.type and not row then
      complain(self, name, "%s has no method '%s'", kind.type, name.text)
    end
    if not (kind and kind.type) and not methods[name.text] and not self.own[name.text] then
      complain(self, name, "nothing has a method '%s'", name.text)
    end
    local call = at + 2
    local opened = self.tokens[call] and self.tokens[call].kind
    if row and (opened == "(" or opened == "{") then check_call(self, call, row, true) end
    return row and not row.field and kind_of_type(row.results) or nil,
      opens[opened] and behind(self, call) or call + 1
  elseif token.kind == "(" or token.kind == "{" or token.kind == "string" then
    local row = kind and kind.row
    if row and token.kind ~= "string" then check_call(self, at, row, false) end
    return row and kind_of_type(row.results) or nil, token.kind == "string" and at + 1 or behind(self, at)
  end
end

--- Follows the chain that begins with the name at `at`: its kind, and the token behind it.
local function chain(self, at)
  local name = self.tokens[at]
  local kind = self.known[name.text] or nil
  at = at + 1
  if name.text == "require" and self.tokens[at] and self.tokens[at].text:find "^%(?[\"']meshlua[\"']" then
    return {module = ""}, at + 1
  end
  while self.tokens[at] do
    local on_new_line = self.tokens[at].line > self.tokens[at - 1].line and self.tokens[at].kind ~= "."
      and self.tokens[at].kind ~= ":"
    local result, after = step(self, at, kind)
    if not after or on_new_line then break end
    kind, at = result, after
  end
  return kind, at
end

local function learn(self, name, kind)
  local before = self.known[name]
  local same = before == nil or before and kind and before.module == kind.module
    and before.type == kind.type and before.row == kind.row
  self.known[name] = same and kind or false
end

local ends = {["local"] = true, ["end"] = true, ["return"] = true, ["if"] = true, ["for"] = true,
  [";"] = true,
  ["while"] = true, ["repeat"] = true, ["function"] = true, ["name"] = true, [","] = true}

--- Names that begin at `at`, with commas between; the token behind them.
local function names_at(self, at)
  local list = {}
  while self.tokens[at] and self.tokens[at].kind == "name" do
    list[#list + 1] = self.tokens[at].text
    at = at + 1
    if self.tokens[at] and self.tokens[at].kind == "<" then at = at + 3 end
    if not self.tokens[at] or self.tokens[at].kind ~= "," then break end
    at = at + 1
  end
  return list, at
end

--- What variables are: from what they are declared and assigned to.
local function learn_all(self)
  for at, token in ipairs(self.tokens) do
    local following, previous = self.tokens[at + 1], self.tokens[at - 1]
    if token.kind == "function" and following then
      local open = at + 1
      while self.tokens[open] and self.tokens[open].kind ~= "(" do open = open + 1 end
      local own = open > at + 1 and self.tokens[open - 1].text
      if own then self.own[own] = true end
      for _, name in ipairs((names_at(self, open + 1))) do self.known[name] = false end
    elseif token.kind == "for" then
      for _, name in ipairs((names_at(self, at + 1))) do self.known[name] = false end
    elseif token.kind == "name" and following and following.kind == "="
      and (not self.tokens[at + 2] or self.tokens[at + 2].kind ~= "=") then
      if previous and (previous.kind == "." or previous.kind == "{" or previous.kind == ",") then
        self.own[token.text] = true
      end
    end
    local starts = token.kind == "local" and following and following.kind == "name" and at + 1
      or token.kind == "name" and following and (following.kind == "=" or following.kind == ",")
        and (not previous or previous.line < token.line) and previous and previous.kind ~= "," and at
    if starts then
      local names, equals = names_at(self, starts)
      local is_set = self.tokens[equals] and self.tokens[equals].kind == "="
      local value = equals + 1
      for _, name in ipairs(names) do
        local kind
        if is_set and self.tokens[value] and self.tokens[value].kind == "name" then
          local after
          kind, after = chain(self, value)
          local last = self.tokens[after]
          local whole = not last or last.kind == ","
            or ends[last.kind] and last.line > self.tokens[after - 1].line
          kind = whole and kind or nil
          value = last and last.kind == "," and after + 1 or math.huge
        else
          value = math.huge
        end
        if is_set or token.kind ~= "local" then learn(self, name, kind) else self.known[name] = false end
        if kind == nil then self.known[name] = false end
      end
    end
  end
end

--- What is wrong in a program: "LINE: what".
---@param text string
---@param known table<string, boolean>? methods that other programs define
---@return string[]
---@return table<string, boolean> the methods that it defines
function M.check(text, known)
  local self = {tokens = tokens_of(text), known = {}, own = {}, found = {}, seen = {}}
  for name in pairs(known or {}) do self.own[name] = true end
  learn_all(self)
  self.found, self.seen = {}, {}
  for at, token in ipairs(self.tokens) do
    local previous = self.tokens[at - 1]
    local is_field = previous and (previous.kind == "." or previous.kind == ":")
    if token.kind == "name" and not is_field then chain(self, at) end
  end
  return self.found, self.own
end

return M
