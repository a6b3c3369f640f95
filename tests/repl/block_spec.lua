-- block_spec.lua: blocks of a session, and the locals that live on in them.
local block = require "meshlua.repl.block"
local lex = require "meshlua.repl.lex"

local session

--- Runs a text as a block, or as those that it is made of; the values of the last.
local function enter(text)
  local kind, sound = block.check(text, "In[1]")
  local pieces = kind and {text} or assert(block.split(text, "In[1]"), sound)
  local values
  for _, piece in ipairs(pieces) do
    local _, found = block.check(piece, "In[1]")
    values = table.pack(assert(block.compile(session, found, "In[1]"))())
  end
  return table.unpack(values, 1, values.n)
end

describe("locals of a block", function()
  before_each(function() session = {live = {}} end)

  it("live on, as the cells that closures have", function()
    enter "local x = 1"
    enter "local function f() return x end"
    enter "local function set(y) x = y end"
    assert.equal(1, (enter "f()"))
    enter "x = 5"
    assert.same({5, 5}, {enter "f(), x"})
    enter "set(7)"
    assert.same({7, 7}, {enter "f(), x"})
  end)

  it("are new where they are declared again", function()
    enter "local x = 1 local function f() return x end"
    enter "local x = x + 1"
    assert.same({1, 2}, {enter "f(), x"})
  end)

  it("recur", function()
    enter "local function fib(n) return n < 2 and n or fib(n - 1) + fib(n - 2) end"
    assert.equal(55, (enter "fib(10)"))
  end)

  it("are found behind any expression", function()
    local texts = {"-#'ab'", "(function() local z = 3 return z end)()", "({[1] = 2})[1]",
      "[[a]] .. 'b\\'c' .. \"\\z \n d\"",
      "1.5e-3", "0x1p-2", "not nil", "('x'):rep(3)", "({1})[1] or 2", "1 // 2 ~ 3 << 1", "...",
      "select('#', ...)",
      "function() for i = 1, 2 do while true do break end end repeat until true if x then else end end",
      "1 -- a comment\n", "--[[ long ]] 2", "[==[ ]] ]==]", "a.b.c, d:e(1)'x'{2}[3]", "2^-3", "~1"}
    enter "a = {b = {c = 1}}"
    enter "d = {e = function() return function() return function() return {[3] = 4} end end end}"
    for i, text in ipairs(texts) do
      enter(("local first, last%d = 'f', %s local after = %d"):format(i, text:gsub("\n$", "\n "), i))
      assert.equal(i, (enter "after"))
      assert.truthy(session.live["last" .. i], text)
    end
    assert.equal("f", (enter "first"))
  end)

  it("are those of the outermost level alone", function()
    enter "do local a = 1 end for i = 1, 2 do local b = i end if true then local c end"
    enter "local function d() local e end"
    assert.same({d = true}, (function()
      local names = {}
      for name in pairs(session.live) do names[name] = true end
      return names
    end)())
  end)

  it("live on up to an error", function()
    assert.falsy(pcall(enter, "local w = 9 error 'no' local v = 1"))
    assert.equal(9, (enter "w"))
    assert.is_nil(session.live.v)
  end)

  it("stay constant, whatever they hold", function()
    enter "local n <const>, t <const> = 7, {}"
    assert.equal(7, (enter "n"))
    enter "t.x = 1"
    assert.equal(1, (enter "t.x"))
    local ok, message = block.compile(session, "n = 8", "In[1]")
    assert.falsy(ok)
    assert.equal("In[1]:1: attempt to assign to const variable 'n'", message)
  end)

  it("are closed at the end of their block, and gone", function()
    enter "closed = 0 local d <close> = setmetatable({}, {__close = function() closed = closed + 1 end})"
    assert.equal(1, (enter "closed"))
    assert.is_nil(session.live.d)
    _G.closed = nil
  end)

  it("may be more than Lua has room for", function()
    local lines, sum = {}, {}
    for i = 1, 300 do lines[i], sum[i] = ("local v%d = %d"):format(i, i), "v" .. i end
    enter(table.concat(lines, "\n"))
    enter "local function last() return v300 end"
    assert.equal(45150 - 300 + 1000, (enter("v300 = 1000 return " .. table.concat(sum, " + "))))
    assert.equal(1000, (enter "last()"))
    enter("total = " .. table.concat(sum, " + "))
    assert.equal(45850, _G.total)
    _G.total = nil
  end)

  it("may be _ENV", function()
    enter "local _ENV = {x = 4}"
    assert.equal(4, (enter "x"))
    enter "y = 1"
    assert.equal(1, (enter "_ENV.y"))
    assert.is_nil(rawget(_G, "y"))
  end)

  it("do not stand in the way of labels", function()
    enter "goto done do local x = 1 end ::done:: local z = 1"
    assert.equal(1, (enter "z"))
  end)

  it("are seen by a jitted function, which is traced again", function()
    enter "local ml = require 'meshlua' local k = 2"
    enter "local f = ml.jit(function(x) return x * k end)"
    assert.equal(4, (enter "f(ml.tensor(2.0)):item()"))
    enter "k = 3"
    assert.equal(6, (enter "f(ml.tensor(2.0)):item()"))
    assert.equal("now upvalue k = 3; the last trace had upvalue k = 2", (enter "f:why_miss()"))
  end)
end)

describe("a block", function()
  before_each(function() session = {live = {}} end)

  it("is whole, or not finished, or wrong", function()
    for _, text in ipairs {"for i = 1, 2 do", "f(", "x = ", "t = {", "3 +", "= 1 +", "--[[", "x = [["} do
      local kind, _, unfinished = block.check(text, "x")
      assert.same({nil, true}, {kind, unfinished}, text)
    end
    for _, text in ipairs {"x y", "end", "= x y", ")", "for for"} do
      local kind, _, unfinished = block.check(text, "x")
      assert.same({nil, false}, {kind, unfinished}, text)
    end
  end)

  it("has the lines of its text", function()
    local _, sound = block.check("local a = 1\nlocal b = 2\nerror 'here'", "In[3]")
    assert.equal("In[3]:3: here", select(2, pcall(block.compile(session, sound, "In[3]"))))
    _, sound = block.check("(nil)\n.x", "In[3]")
    assert.truthy(select(2, pcall(block.compile(session, sound, "In[3]"))):find("In[3]:2: ", 1, true))
  end)

  it("is run in pieces where expressions stand among statements, each at its line", function()
    local pieces = block.split("local x = 3\nx + 1\n\nfor i = 1, 2 do\n  print(i)\nend\nx", "In[1]")
    assert.same({"local x = 3", "\nx + 1", "\n\n\nfor i = 1, 2 do\n  print(i)\nend", "\n\n\n\n\n\nx"}, pieces)
    assert.is_nil(block.split("local x = 3\nx y", "In[1]"))
    assert.is_nil(block.split("x\nfor i = 1, 2 do", "In[1]"))
  end)
end)

describe("the words of Lua", function()
  it("are those of every file of the library, whole", function()
    local list <close> = assert(io.popen "ls lualib/meshlua/*.lua lualib/meshlua/*/*.lua")
    for file in list:lines() do
      local handle <close> = assert(io.open(file))
      local text = handle:read "a"
      local tokens, at = lex.tokens(text), 0
      for _, token in ipairs(tokens) do
        local between = text:sub(at + 1, token.from - 1):gsub("%-%-%[(=*)%[.-%]%1%]", "")
        between = between:gsub("%-%-[^\n]*", "")
        if token.from <= at or token.to < token.from or not between:find "^%s*$" then
          error(("%s: %s before %s"):format(file, between, token.text))
        end
        at = token.to
      end
      assert.equal(0, #lex.open_at_end(tokens), file)
    end
  end)
end)
