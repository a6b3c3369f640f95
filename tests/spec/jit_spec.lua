-- jit_spec.lua: what a jitted function is: when it is traced, what it takes and gives, and what it refuses. The
-- numbers are those of the checklist of JAX's semantics.
local helper = require "spec.helper"
local ml = require "meshlua"

local core = ml.core

local param = helper.param
local function list(...) return ml.tensor {...} end

local traces = helper.traces

describe("a jitted function", function()
  it("prints where it was written, and how many plans it has", function()
    local step = ml.jit(function(x) return x + 1 end)
    assert.truthy(tostring(step):match "^jit%(.*jit_spec%.lua:%d+%), 0 plans$", tostring(step))
    step(ml.ones {2})
    assert.truthy(tostring(step):match ", 1 plan$")
  end)

  it("J5: is traced once for each kind of arguments", function()
    local calls = {n = 0}
    local step = ml.jit(function(x)
      calls.n = calls.n + 1
      return x * 2
    end)
    for i = 1, 5 do assert.same({2.0 * i}, step(list(i + 0.0)):totable()) end
    assert.equal(1, calls.n)
    assert.same({1, 4}, {traces(step)})
    step(list(1.0, 2.0)) -- a shape
    step(list(1)) -- a dtype
    step(param(list(1.0))) -- a Param
    step(list(1.0), nil) -- a nil behind
    assert.equal(5, calls.n)
    step(list(1.0, 2.0))
    step(list(1))
    assert.equal(5, calls.n)
  end)

  it("J1: takes trees and gives trees, with all that is no tensor as it is", function()
    local tag = {"kept"}
    local step = ml.jit(function(t, s, flag)
      return {sum = t.a + t.list[2], deep = {{t.a * 2}}, name = s, flag = flag, n = 3, tag = tag}, nil, t.a,
        "end"
    end)
    for _ = 1, 2 do
      local out, hole, a, last = step({a = list(1.0), list = {false, list(5.0)}}, "text", true)
      assert.same({6.0}, out.sum:totable())
      assert.same({2.0}, out.deep[1][1]:totable())
      assert.same({"text", true, 3}, {out.name, out.flag, out.n})
      assert.equal(tag, out.tag)
      assert.is_nil(hole)
      assert.same({1.0}, a:totable())
      assert.equal("end", last)
    end
    assert.equal(1, (traces(step)))
    assert.same({}, {ml.jit(function() end)()})
  end)

  it("J1: keeps metatables of what it takes and gives", function()
    local Pair = {__index = {total = function(self) return self.a + self.b end}}
    local step = ml.jit(function(p) return setmetatable({a = p:total(), b = p.b}, Pair) end)
    local out = step(setmetatable({a = list(1.0), b = list(2.0)}, Pair))
    assert.equal(Pair, getmetatable(out))
    assert.same({5.0}, out:total():totable())
  end)

  it("gives fresh tables and tensors at each call", function()
    local step = ml.jit(function(x) return {x + 1} end)
    local a, b = step(list(1.0)), step(list(2.0))
    assert.not_equal(a, b)
    assert.same({2.0}, a[1]:totable())
    assert.same({3.0}, b[1]:totable())
  end)

  it("J5: traces numbers, and keeps strings and booleans static", function()
    local seen = {}
    local step = ml.jit(function(x, n, mode)
      seen[#seen + 1] = {core.is_tensor(n), mode}
      return x * n
    end)
    assert.same({3.0}, step(list(1.5), 2, "a"):totable())
    assert.same({4.5}, step(list(1.5), 3, "a"):totable())
    assert.equal(1, #seen)
    assert.same({true, "a"}, seen[1])
    step(list(1.5), 3.0, "a") -- a float is another kind of number
    step(list(1.5), 3, "b")
    assert.equal(3, #seen)
    assert.equal("int32[]{weak}", ml.typeof(3))
    -- Weak: a number does not widen a tensor within its kind.
    assert.equal("bfloat16", step(ml.ones({1}, "bfloat16"), 0.5, "a").dtype)
    helper.raises("2147483648 is out of range for int32", step, list(1.5), 1 << 31, "a")
  end)

  it("J4: takes static arguments by name and by position", function()
    local step = ml.jit(function(x, n)
      local y = x
      for _ = 1, n do y = y + x end
      return y
    end, {static = "n"})
    assert.same({3.0}, step(list(1.0), 2):totable())
    assert.same({4.0}, step(list(1.0), 3):totable())
    assert.same({3.0}, step(list(1.0), 2):totable())
    assert.same({2, 1}, {traces(step)})
    step = ml.jit(function(_, n) return ml.ones {n} end, {static = {2}})
    assert.same({3}, step(list(1.0), 3).shape)
    step = ml.jit(function(...) return ml.ones {(select(3, ...))} end, {static = 3})
    assert.same({4}, step(1, 2, 4).shape)
    helper.raises("no parameter 'steps'; did you mean 'step_'?", ml.jit, function(step_) return step_ end,
      {static = "steps"})
    helper.raises("static: there is no argument 0", ml.jit, function(a) return a end, {static = 0})
    helper.raises("static: there is no argument 2", ml.jit, function(a) return a end, {static = {2}})
    helper.raises("donate: the function has no parameter 'b'", ml.jit, function(a) return a end,
      {donate = {"b"}})
    helper.raises("only numbers, strings and booleans can be static",
      ml.jit(function(a) return a end, {static = "a"}), list(1))
  end)

  it("J10: is part of the trace where it is called in another", function()
    local inner = ml.jit(function(x) return x * 2 end)
    local outer = ml.jit(function(x) return inner(x) + inner(x) end)
    assert.same({4.0}, outer(list(1.0)):totable())
    assert.same({0, 0}, {inner:stats()})
    assert.same({2.0, 2.0}, ml.grad(function(x) return inner(x):sum() end)(list(1.0, 1.0)):totable())
    local counted = ml.jit(function(x, n) return n > 1 and x * 2 or x end, {static = "n"})
    helper.raises("static argument 2 is a Tensor; only numbers, strings and booleans can be static",
      ml.jit(function(x, n) return counted(x, n) end), list(1.0), 2)
    local again
    again = ml.jit(function(x, n) return n == 0 and x or again(x * 2, n - 1) end, {static = "n"})
    assert.same({8.0}, again(list(1.0), 3):totable())
  end)

  it("takes hundreds of arguments", function()
    local args = {}
    for i = 1, 200 do args[i] = i % 2 == 0 and i or list(i + 0.0) end
    local step = ml.jit(function(...)
      local sum = 0
      for _, a in ipairs {...} do sum = sum + a end
      return sum, ...
    end)
    local results = table.pack(step(table.unpack(args)))
    assert.equal(201, results.n)
    assert.same({20100.0}, results[1]:totable())
  end)

  it("refuses what is no tree", function()
    local step = ml.jit(function(t) return t end)
    local cyclic = {a = {}}
    cyclic.a.b = cyclic
    helper.raises("the table at t.a.b contains itself", step, cyclic)
    helper.raises("a table with a boolean as key", step, {[true] = 1})
    local deep = {}
    for _ = 1, 200 do deep = {deep} end
    helper.raises("nested deeper than 100 tables", step, deep)
    helper.raises("the returned table contains itself", ml.jit(function()
      local t = {}
      t[1] = t
      return t
    end))
  end)

  it("J1: refuses unknown options, and names the nearest", function()
    local fn = function(x) return x end
    helper.raises("jit: unknown option 'dontate'; did you mean 'donate'?", ml.jit, fn, {dontate = {1}})
    helper.raises("jit: expected a function, got a table", ml.jit, {})
    helper.raises("jit: options must be a table, not a string", ml.jit, fn, "static")
    helper.raises("option 'rules' must be a table", ml.jit, fn, {rules = 1})
    helper.raises("option 'mesh' must be a Mesh", ml.jit, fn, {mesh = {}})
    helper.raises("in_shardings must be", ml.jit, fn, {in_shardings = "data"})
  end)
end)

describe("a trace", function()
  it("refuses to tell the value of a tensor", function()
    for name, read in pairs {
      item = function(x) return x:item() end,
      totable = function(x) return x:totable() end,
      bytes = function(x) return x:bytes() end,
      addressable_shards = function(x) return x:addressable_shards() end,
      release = function(x) return x:release() end,
    } do
      local message = helper.raises("[E_TRACED] " .. name, function()
        ml.jit(function(x) return read(x:sum()) end)(list(1.0))
      end)
      assert.falsy(core.is_tracing(), message)
    end
  end)

  it("shows types in place of values", function()
    local text
    ml.jit(function(x)
      text = tostring(x)
      return x
    end)(list(1.0))
    assert.equal("float32[1] traced", text)
  end)

  it("refuses tensors under < and <=, and names what to write", function()
    for _, compare in ipairs {function(x) return x < 1 end, function(x) return 1 <= x end,
      function(x) return x > x end, function(x) return x >= x end} do
      helper.raises("use x:lt(y)", compare, list(1.0))
      helper.raises("use x:lt(y)", ml.jit(compare), list(1.0))
    end
  end)

  it("does not let its tensors out", function()
    local kept = {}
    local step = ml.jit(function(x)
      kept[1] = x * 2
      return x
    end)
    step(list(1.0))
    assert.equal("traced tensor of a trace that has ended", tostring(kept[1]))
    local message = "[E_TRACED] a traced tensor was kept after its trace"
    helper.raises(message, function() return kept[1] + 1 end)
    helper.raises(message, function() return kept[1]:sum() end)
    helper.raises(message, function() return kept[1].shape end)
    helper.raises(message, function() return ml.typeof(kept[1]) end)
    helper.raises(message, step, kept[1])
    helper.raises(message, ml.jit(function(x) return x + kept[1] end), list(1.0))
    helper.raises(message, function() param(list(1.0)):set(kept[1]) end)
  end)

  it("can leave a tensor behind in an upvalue without harm", function()
    local last
    local step = ml.jit(function(x)
      last = x
      return x + 1
    end)
    step(list(1.0))
    assert.same({3.0}, step(list(2.0)):totable())
    assert.equal(1, (traces(step)))
    assert.truthy(last)
  end)

  it("J9: takes what it meets as inputs, without copying it into the plan", function()
    local table_of = {w = list(2.0, 3.0)}
    local step = ml.jit(function(x) return x * table_of.w end)
    assert.same({2.0, 3.0}, step(list(1.0, 1.0)):totable())
    assert.same({4.0, 6.0}, step(list(2.0, 2.0)):totable())
    assert.equal(1, (traces(step)))
  end)
end)

describe("between two calls", function()
  it("a model that is changed outside is used as it is then", function()
    local model = {w = param(list(1.0)), b = list(1.0), n = 2}
    local step = ml.jit(function(m) return m.w * m.n + m.b end)
    assert.same({3.0}, step(model):totable())
    model.w:set(list(10.0))
    assert.same({21.0}, step(model):totable())
    model.b = list(5.0)
    assert.same({25.0}, step(model):totable())
    assert.equal(1, (traces(step)))
    model.n = 3
    assert.same({35.0}, step(model):totable())
    model.w = param(list(1.0))
    assert.same({8.0}, step(model):totable())
    assert.equal(2, (traces(step)))
    model.w:set(list(1.0, 2.0))
    assert.same({8.0, 11.0}, step(model):totable())
    assert.equal(3, (traces(step)))
  end)

  it("J6: a changed upvalue is seen and said", function()
    local n, s, flag, t = 2, "a", true, list(1.0)
    local step = ml.jit(function(x) return x * n + (flag and #s or 0) + t end)
    local function gives(value, why)
      assert.same({value}, step(list(1.0)):totable())
      assert.truthy(step:why_miss():find(why, 1, true), step:why_miss())
    end
    gives(4.0, "the first call is always traced")
    n = 3
    gives(5.0, "now upvalue n = 3; the last trace had upvalue n = 2")
    s = "abc"
    gives(7.0, "now upvalue s = abc; the last trace had upvalue s = a")
    flag = false
    gives(4.0, "now upvalue flag = false; the last trace had upvalue flag = true")
    t = list(10.0)
    gives(13.0, "upvalue t")
    assert.equal(5, (traces(step)))
    gives(13.0, "upvalue t")
    assert.equal(5, (traces(step)))
    n, s, flag = 2, "a", true
    gives(13.0, "upvalue")
    t = nil
    helper.raises("expected a tensor or a number, got nil", step, list(1.0))
  end)

  it("forgets all traces where there are very many, and traces again what it is called with", function()
    local step, x = ml.jit(function(a) return a, a + 1 end), list(1.0)
    local function gives(i)
      local same, more = step(x, {i})
      assert.same({{1.0}, {2.0}}, {same:totable(), more:totable()})
    end
    for i = 1, 70 do gives(i) end -- checked builds keep 64
    for _, i in ipairs {70, 1, 69, 7} do gives(i) end
  end)

  it("a changed upvalue is warned of", function()
    local program = helper.file([[
      local ml = require "meshlua"
      local n = 1
      local step = ml.jit(function(x) return x * n end)
      step(ml.ones {2}) n = 2 step(ml.ones {2}) step(ml.ones {2})]], ".lua")
    local _, err = helper.shell('MESHLUA_LOG=2 "$MESHLUA" ' .. program)
    assert.equal("meshlua: warning: a jitted function is traced again: now upvalue n = 2; the last trace had "
      .. "upvalue n = 1\n", err)
  end)

  it("a tensor that has the address of an old one is not taken for it", function()
    local t
    local step = ml.jit(function(x) return x:reshape(t.shape) * t end)
    for i = 1, 20 do
      t = ml.full({i % 3 + 1}, i + 0.0)
      assert.same(ml.full({i % 3 + 1}, i + 0.0):totable(), step(ml.ones {i % 3 + 1}):totable())
      collectgarbage()
    end
  end)
end)

describe("a function with very many traces", function()
  it("lets them go, and goes on", function()
    local step = ml.jit(function(x, i) return x + i end, {static = {2}})
    local x, kept, most = list(1.0), 0, 0
    for i = 1, 5000 do
      local y = step(x, i % 7 + i * 7)
      kept = tonumber(tostring(step):match "(%d+) plan")
      if kept < most then
        assert.equal(1.0 + i % 7 + i * 7, y:totable()[1])
        break
      end
      most = kept
    end
    assert.truthy(kept == 1 and most >= 64)
    assert.equal(9.0, step(x, 8):totable()[1])
    assert.equal(9.0, step(x, 8):totable()[1])
    assert.equal(2, tonumber(tostring(step):match "(%d+) plan"))
  end)
end)

describe("why_miss", function()
  it("J6: always answers", function()
    local step = ml.jit(function(_, x) return x end)
    assert.equal("it has not been called", step:why_miss())
    local function why(...)
      step(...)
      return step:why_miss()
    end
    assert.equal("the first call is always traced", why({}, list(1.0)))
    assert.equal("now x = float32[2]; the last trace had x = float32[1]", why({}, list(1.0, 2.0)))
    assert.equal("now x = int32[2]; the last trace had x = float32[2]", why({}, list(1, 2)))
    assert.equal("now x = a number; the last trace had x = int32[2]", why({}, 0.5))
    assert.equal("now _.a = 1; the last trace had nothing there", why({a = 1}, 0.5))
    assert.equal("now _.a = 2; the last trace had _.a = 1", why({a = 2}, 0.5))
    assert.equal("now _.a.b = text; an earlier trace had nothing there", why({a = {b = "text"}}, 0.5))
    assert.equal("now _.a.b = text; an earlier trace had nothing there", why({a = {b = "text"}}, 0.5)) -- a hit
    assert.truthy(why({a = print}, 0.5):find("now _.a = function", 1, true))
    assert.equal("a class, function, mesh or other object in the arguments is not the one before",
      why(setmetatable({a = print}, {}), 0.5))
    local mesh = ml.make_mesh({1}, {"data"}, {0})
    mesh:with(function()
      assert.equal("now the mesh in context = Mesh(data=1); the last trace had the mesh in context = ",
        why(setmetatable({a = print}, {}), 0.5))
    end)
    mesh:with({{"batch", "data"}}, function()
      assert.equal("now the rules in context.1.1 = batch and the rules in context.1.2 = data; the last trace "
        .. "had the rules in context = nil", why(setmetatable({a = print}, {}), 0.5))
    end)
  end)

  it("J6: compares with the closest call before, argument by argument", function()
    local step = ml.jit(function(x, y, n) return x:sum() + y:sum() * n end, {static = "n"})
    local function why(...)
      step(...)
      return step:why_miss()
    end
    why(list(1.0), list(1.0), 1)
    why(list(1.0, 2.0), list(1, 2, 3), 2)
    assert.equal("now y = float32[2]; an earlier trace had y = float32[1]", why(list(1.0), list(1.0, 2.0), 1))
    assert.equal("now x = float32[3] and y = float32[3]; the last trace had x = float32[1] and "
      .. "y = float32[2]",
      why(list(1.0, 2.0, 3.0), list(1.0, 2.0, 3.0), 1))
    assert.equal("now n = 7; the last trace had n = 1", why(list(1.0, 2.0, 3.0), list(1.0, 2.0, 3.0), 7))
  end)

  it("J6: knows that a function made at the same line was traced before", function()
    local function once(x) return ml.jit(function(a) return a + 1 end), x end
    local first, second = once(), once()
    first(list(1.0))
    assert.equal("the first call is always traced", first:why_miss())
    second(list(1.0))
    assert.truthy(second:why_miss():find("^the first call is always traced; another function made at "
      .. "tests/spec/jit_spec.lua:%d+ has been traced before: call ml.jit once, outside of the loop$"),
      second:why_miss())
  end)

  it("knows rules by what they say, not by which table they are", function()
    local mesh = ml.make_mesh({1}, {"data"}, {0})
    local step = ml.jit(function(x) return x:constrain {"batch"} end)
    local rules = {{"batch", "data"}}
    for i = 1, 3 do
      rules = {{"batch", i < 3 and "data" or false}}
      mesh:with(rules, step, list(1.0))
    end
    assert.equal(2, (traces(step)))
    rules[1][2] = "data"
    mesh:with(rules, step, list(1.0))
    assert.equal(2, (traces(step)))
  end)
end)
