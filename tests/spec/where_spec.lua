-- where_spec.lua: errors and dumps name the user's line, whatever stands between it and the op.
local helper = require "spec.helper"
local ml = require "meshlua"

local nn = ml.nn
local x, y = ml.ones {2, 3}, ml.ones {4}

--- The place of the caller's line, as errors begin.
local function here()
  local info = debug.getinfo(2, "Sl")
  return ("%s:%d: "):format(info.short_src, info.currentline)
end

--- fn raises an error that begins with the place; returns the rest.
local function blames(place, fn, ...)
  local ok, message = pcall(fn, ...)
  assert.falsy(ok)
  assert.equal(place, message:sub(1, #place))
  return message:sub(#place + 1)
end

describe("an error names the line of", function()
  it("an operator", function()
    blames(here(), function() return x + y end)
    blames(here(), function() return y - x end)
    blames(here(), function() return 2 * x * y end)
    blames(here(), function() return x < y end)
    blames(here(), function() return x >= 1 end)
    blames(here(), function() return #ml.tensor(1) end)
    blames(here(), function() return x[1] end)
    blames(here(), function() return x.nonsense end)
    blames(here(), function() return x + nil end)
    blames(here(), function() return {} * x end)
  end)

  it("a function or method of the library", function()
    blames(here(), function() return ml.matmul(x, x) end)
    blames(here(), function() return x:reshape {7} end)
    blames(here(), function() local sum = x:sum(3) return sum end)
    blames(here(), function() return ml.concat {x, y} end)
    blames(here(), function() return ml.zeros {-1} end)
    blames(here(), function() return ml.NamedSharding(1, 2) end)
    blames(here(), function() return ml.P(1) end)
  end)

  it("an op deep inside nested functions of the library", function()
    blames(here(), function() return ml.std(x, 9) end)
    blames(here(), function() return ml.random.categorical(ml.random.key(0), x, 3) end)
    blames(here(), function() return ml.einsum("ab,ca->bc", x, x) end)
    blames(here(), function() return nn.losses.cross_entropy(x, y) end)
  end)

  it("a call made directly by pcall: that of the pcall", function()
    local place, ok, message = here(), pcall(ml.sum, x, 9)
    assert.falsy(ok)
    assert.equal(place, message:sub(1, #place))
    place, ok, message = here(), pcall(x.sum, x, 9)
    assert.falsy(ok)
    assert.equal(place, message:sub(1, #place))
  end)

  it("a tail call", function()
    local place
    local function tail(a)
      place = here() return ml.matmul(a, a)
    end
    local function outer(a) return tail(a) end
    local ok, message = pcall(outer, x)
    assert.falsy(ok)
    assert.equal(place, message:sub(1, #place))
    -- A tail call of what a library function gave: its frame takes the place of the caller's.
    local gradient = ml.grad(function(a) return a * 2 end)
    local function last(a)
      place = here() return gradient(a)
    end
    ok, message = pcall(last, x)
    assert.falsy(ok)
    assert.equal(place, message:sub(1, #place))
  end)

  it("a closure that is called elsewhere", function()
    local place = here()
    local bad = function(a) return a:reshape(100) end -- the line below `place`
    place = place:gsub(":(%d+):", function(line) return (":%d:"):format(line + 1) end)
    blames(place, function() return bad(x) end)
    blames(place, ml.tree.map, bad, {a = x})
    blames(place, ml.grad(bad), x)
    blames(place, ml.jit(bad), x)
    blames(place, ml.abstract, bad, x)
  end)

  it("a metamethod of the user's own class", function()
    local Pair, place = {}, nil
    Pair.__add = function(a, b)
      place = here() return setmetatable({a[1] + b[1]}, Pair)
    end
    local a, b = setmetatable({x}, Pair), setmetatable({y}, Pair)
    local ok, message = pcall(function() return a + b end)
    assert.falsy(ok)
    assert.equal(place, message:sub(1, #place))
  end)

  it("the module that calls a layer", function()
    local Block, place = nn.module "Block", nil
    function Block:init(rngs) self.up = nn.Linear(3, 4, {rngs = rngs}) end
    function Block:__call(a)
      place = here() return self.up(a):sum()
    end
    local block = ml.init(function(rngs) return Block(rngs) end)
    assert.equal(2, block(x).dtype and 2)
    local ok, message = pcall(block, y)
    assert.falsy(ok)
    assert.equal(place, message:sub(1, #place))
    -- The same from inside a trace, under a gradient.
    ok, message = pcall(ml.jit(function(m, a) return ml.grad(function(w) return w(a) end)(m) end), block, y)
    assert.falsy(ok)
    assert.equal(place, message:sub(1, #place))
  end)

  it("a chunk from a string, by its name", function()
    blames('[string "local a = ......"]:2: ', load "local a = ...\nreturn a:reshape(7)", x)
    blames("model:2: ", load("local a = ...\nreturn a:reshape(7)", "=model"), x)
    blames("dir/model.lua:1: ", load("return ({...})[1]:reshape(7)", "@dir/model.lua"), x)
  end)

  it("a file that is required", function()
    local file = helper.file("local M = {}\nfunction M.bad(a)\n  return a:matmul(a)\nend\nreturn M\n", ".lua")
    local folder, name = file:match "^(.*)/([^/]+)%.lua$"
    local path = package.path
    package.path = folder .. "/?.lua;" .. path
    local module = require(name)
    package.path = path
    blames(file .. ":3: ", module.bad, x)
  end)

  it("a loop in a line of its own, not the loop's head", function()
    local place
    local function run(list)
      for _, a in ipairs(list) do
        place = here() a:reshape(7)
      end
    end
    local ok, message = pcall(run, {x})
    assert.falsy(ok)
    assert.equal(place, message:sub(1, #place))
  end)
end)

describe("in a coroutine an error names the line of", function()
  it("the op", function()
    blames(here(), coroutine.wrap(function() return x + y end))
    blames(here(), coroutine.wrap(function() return ml.matmul(x, x) end))
    local place = here()
    local thread = coroutine.create(function() coroutine.yield() return ml.sum(x, 9) end)
    place = place:gsub(":(%d+):", function(line) return (":%d:"):format(line + 1) end)
    assert.truthy(coroutine.resume(thread))
    local ok, message = coroutine.resume(thread)
    assert.falsy(ok)
    assert.equal(place, message:sub(1, #place))
  end)

  it("the resume where a library function is all that runs in it", function()
    blames(here(), function() return coroutine.wrap(ml.sum)(x, 9) end)
  end)

  it("the jitted function's op", function()
    local step = ml.jit(function(a) return a:matmul(a) end)
    local place = here():gsub(":(%d+):", function(line) return (":%d:"):format(line - 1) end)
    blames(place, coroutine.wrap(function() return step(x) end))
    blames(place, coroutine.wrap(ml.grad(function(a) return step(a) end)), x)
  end)

  it("and what the coroutine had entered is left when it dies", function()
    local mesh = ml.make_mesh({1}, {"data"}, {0})
    local thread = coroutine.create(function()
      mesh:with({{"batch", "data"}}, function() return ml.std(x, 9) end)
    end)
    assert.falsy(coroutine.resume(thread))
    assert.is_nil(ml.core.mesh_current())
    helper.raises("mean nothing without rules", function() return x:constrain {"batch", false} end)
    local Block = nn.module "Dying"
    function Block:init() end
    function Block:__call() error "dead" end
    thread = coroutine.create(function() Block()(x) end)
    assert.falsy(coroutine.resume(thread))
    -- A scope that was never left would show in later programs.
    local file = helper.file ""
    ml.core.dump("trace:" .. file)
    ml.jit(function(a) return a * 3 end)(x)
    ml.core.dump()
    local handle <close> = assert(io.open(file))
    assert.is_nil(handle:read("a"):find("Dying", 1, true))
  end)
end)

describe("a traced function that yields", function()
  it("raises at the line that yields", function()
    local step = ml.jit(function(a)
      coroutine.yield(a)
      return a
    end)
    local place = here():gsub(":(%d+):", function(line) return (":%d:"):format(line - 3) end)
    local found = blames(place, coroutine.wrap(function() return step(x) end))
    assert.truthy(found:find "%[E_STATE%] a traced function cannot yield")
    assert.truthy(blames(place, step, x):find "%[E_STATE%] a traced function cannot yield")
    assert.falsy(ml.core.is_tracing())
  end)
end)

describe("a dump", function()
  local function dumped(fn, ...)
    local file = helper.file ""
    ml.core.dump("trace:" .. file)
    local ok, message = pcall(fn, ...)
    ml.core.dump()
    assert(ok, message)
    local handle <close> = assert(io.open(file))
    return handle:read "a"
  end

  it("names the user's line and the module's path for each op", function()
    local Block, lines = nn.module "Block", {}
    function Block:init(rngs)
      self.h = {}
      for i = 1, 2 do self.h[i] = nn.Linear(3, 3, {rngs = rngs}) end
    end
    function Block:__call(a)
      for i = 1, 2 do
        lines.call = here() a = self.h[i](a)
      end
      lines.tail = here() return nn.gelu(a)
    end
    local block = ml.init(function(rngs) return Block(rngs) end)
    local text = dumped(ml.jit(function(m, a)
      lines.sum = here() return m(a):sum()
    end), block, x)
    local where = lines.call:sub(1, -3)
    assert.truthy(text:find(("matmul [^\n]*; %s %%(h%%.1%%)"):format(where:gsub("%p", "%%%0"))), text)
    assert.truthy(text:find(("matmul [^\n]*; %s %%(h%%.2%%)"):format(where:gsub("%p", "%%%0"))), text)
    where = lines.tail:sub(1, -3)
    assert.truthy(text:find(("tanh [^\n]*; %s\n"):format(where:gsub("%p", "%%%0"))), text)
    where = lines.sum:sub(1, -3)
    assert.truthy(text:find(("sum [^\n]*; %s\n"):format(where:gsub("%p", "%%%0"))), text)
    assert.is_nil(text:find("; meshlua/", 1, true), text)
  end)

  it("names the line of the op whose gradient it is", function()
    local place
    local text = dumped(ml.jit(ml.grad(function(a)
      place = here() return (a * a * a):sum()
    end)), x)
    local _, n = text:gsub("mul [^\n]*; " .. place:sub(1, -3):gsub("%p", "%%%0"), "")
    assert.truthy(n >= 4, text)
  end)
end)

describe("the program", function()
  local function first_lines(code)
    local file = helper.file(code, ".lua")
    local _, err, status = helper.run {file}
    assert.equal(1, status)
    local lines = {}
    for line in err:gmatch "[^\n]+" do lines[#lines + 1] = line:gsub(file:gsub("%p", "%%%0"), "FILE") end
    return lines
  end

  it("reports the user's line first, in the message and in the traceback", function()
    local lines = first_lines [[
local ml = require "meshlua"
local function inner(x)
  return ml.std(x, 9)
end
local function outer(x)
  local y = inner(x)
  return y
end
outer(ml.ones {2})]]
    assert.equal("FILE:3: [E_SHAPE] std: axis 9 of a tensor of rank 1; axes count from 1",
      (lines[1]:gsub("%] var:", "] std:")))
    assert.equal("stack traceback:", lines[2])
    assert.truthy(lines[3]:find("\tFILE:3: in ", 1, true), lines[3])
    assert.truthy(lines[4]:find("\tFILE:6: in ", 1, true), lines[4])
  end)

  it("notes the frames inside a jitted function as Lua itself would", function()
    local expected
    local function note() expected = debug.traceback("", 2) end
    -- As deep in gsub as then in error.
    local function fails(message) string.gsub("x", "x", note) error(message) end
    local function deep(n, ...)
      if n == 0 then fails(...) end
      return (deep(n - 1, ...))
    end
    for i, inner in ipairs {fails, function(...) deep(5, ...) end, function(...) deep(60, ...) end,
        function(...) return deep(2, ...) end, function() string.gsub("x", "x", fails) end,
        function(message) table.sort({1, 2}, function() return fails(message) end) end,
        function(message) ml.tree.map(function() fails(message) end, {y}) end} do
      assert.is_false((pcall(ml.jit(function(v)
        inner("error " .. i)
        return v
      end), ml.ones {2})))
      expected = expected:sub(2):gsub("string%.gsub", "error", 1)
      assert.equal(expected, debug.getregistry()["meshlua.traceback"])
    end
  end)

  it("keeps the frames inside a jitted function", function()
    local lines = first_lines [[
local ml = require "meshlua"
local function layer(x)
  local y = x:matmul(x)
  return y
end
local step = ml.jit(function(x)
  local y = layer(x)
  return y
end)
step(ml.ones {2, 3})]]
    assert.equal("FILE:3: [E_SHAPE] matmul: inner dims 3 and 2 differ (x float32[2,3], w float32[2,3])",
      lines[1])
    assert.truthy(lines[3]:find("\tFILE:3: in ", 1, true), lines[3])
    assert.truthy(lines[4]:find("\tFILE:7: in ", 1, true), lines[4])
    assert.truthy(lines[5]:find("\tFILE:10: in main chunk", 1, true), lines[5])
  end)
end)
