-- devices: 8
-- debug_spec.lua: what Lua sees of traced programs after they ran, and names of their parts. C7 and C9 are numbers in
-- the checklist of JAX's semantics.
local helper = require "spec.helper"
local ml = require "meshlua"

local P, NamedSharding = ml.P, ml.NamedSharding
local mesh = ml.make_mesh({4, 2}, {"data", "model"})

--- The lines that fn prints, and what it returns.
local function printed(fn, ...)
  local lines, real = {}, _G.print
  _G.print = function(...) lines[#lines + 1] = table.concat({...}, " ") end -- luacheck: ignore
  local results = table.pack(pcall(fn, ...))
  _G.print = real -- luacheck: ignore
  if not results[1] then error(results[2], 0) end
  return lines, table.unpack(results, 2, results.n)
end

describe("debug_print: C7:", function()
  local x = ml.arange(6.0):reshape(3, 2)

  it("writes at once outside of traces", function()
    local lines = printed(function() ml.debug_print("x %s, %d of %g", ml.ones {2}, ml.tensor(3), 0.5) end)
    assert.same({"x float32[2]\n[1. 1.], 3 of 0.5"}, lines)
  end)

  it("writes the values of each call of a jitted function, traced once", function()
    local step = ml.jit(function(a)
      ml.debug_print("sum %g", a:sum())
      ml.debug_print("%s max %g%%", "its", a:max())
      return a * 2
    end)
    assert.same({"sum 15", "its max 5%"}, (printed(step, x)))
    local lines, y = printed(step, x + 1)
    assert.same({"sum 21", "its max 6%"}, lines)
    assert.same((x * 2 + 2):totable(), y:totable())
    assert.equal(1, (helper.traces(step)))
  end)

  it("is kept where nothing else needs the value, and planning writes nothing", function()
    local step = ml.jit(function(a)
      ml.debug_print("unused %g", a:exp():sum())
      return 1
    end)
    assert.same({}, (printed(function() step:plan(ml.zeros {3}) end)))
    local lines, one = printed(step, ml.zeros {3})
    assert.same({"unused 3"}, lines)
    assert.equal(1, one)
  end)

  it("once per call in gradients and remat", function()
    local function loss(a)
      ml.debug_print("loss %g", a:sum())
      return (a * a):sum()
    end
    assert.same({"loss 15"}, (printed(ml.grad(loss), x)))
    assert.same({"loss 15"}, (printed(ml.jit(ml.grad(ml.remat(loss))), x)))
    local f = ml.custom_vjp(loss, {fwd = function(a) return loss(a), a end,
      bwd = function(a, ct) return a * ct end})
    assert.same({"loss 15"}, (printed(ml.grad(f), x)))
    helper.raises("[E_STATE] custom_vjp: debug_print in bwd is not possible", ml.grad(ml.custom_vjp(loss, {
      fwd = function(a) return loss(a), a end, bwd = function(a, ct)
        ml.debug_print("%s", ct)
        return a * ct
      end})), x)
  end)

  it("once per example in vmap, in order", function()
    local function f(a, b)
      ml.debug_print("row %g + %g", a:sum(), b)
      return a
    end
    assert.same({"row 1 + 2", "row 5 + 2", "row 9 + 2"},
      (printed(ml.vmap(f, {in_axes = {1, false}}), x, ml.tensor(2))))
    local nested = ml.jit(ml.vmap(ml.vmap(function(a, b)
      ml.debug_print("%g,%g", a, b)
      return a
    end, {in_axes = {1, false}}), {in_axes = {false, 1}}))
    assert.same({"0,10", "1,10", "0,20", "1,20"}, (printed(nested, ml.arange(2.0), ml.tensor {10.0, 20.0})))
  end)

  it("whole values under sharding, or every device's shard", function()
    local a = ml.device_put(ml.arange(8.0), NamedSharding(mesh, P("data")))
    local lines = printed(ml.jit(function(v)
      ml.debug_print("%s", v * 2)
      return v
    end), a)
    assert.equal(1, #lines)
    assert.truthy(lines[1]:find("[ 0.  2.  4.  6.  8. 10. 12. 14.]", 1, true))
    lines = printed(ml.jit(function(v)
      ml.debug_print("%s of %d", v, 8, {per_device = true})
      return v
    end), a)
    assert.equal(8, #lines)
    for i, line in ipairs(lines) do
      local first = (i - 1) // 2 * 2
      assert.equal(("[device %d] float32[2]\n[%d. %d.] of 8"):format(i - 1, first, first + 1), line)
    end
  end)

  it("each device's block inside shard_map", function()
    local lines = printed(ml.jit(ml.shard_map(function(b)
      ml.debug_print("%g", b:sum())
      return b
    end, {mesh = mesh, in_specs = {P("data")}, out_specs = P("data")})), ml.arange(8.0))
    assert.same({"[data=0, model=0] 1", "[data=0, model=1] 1", "[data=1, model=0] 5", "[data=1, model=1] 5",
      "[data=2, model=0] 9", "[data=2, model=1] 9", "[data=3, model=0] 13", "[data=3, model=1] 13"}, lines)
  end)

  it("adds no collective to an unsharded value's program, and leaves results alone", function()
    local function f(a) return a:matmul(a:transpose()) end
    local a = ml.device_put(ml.ones {8, 8}, NamedSharding(mesh, P("data")))
    local step = ml.jit(function(v)
      local y = f(v)
      ml.debug_print("%g", y:sum())
      return y
    end)
    local lines, y = printed(step, a)
    assert.same({"512"}, lines)
    assert.equal(f(a):bytes(), y:bytes())
  end)

  it("Params as they are at that place of the program", function()
    local box = helper.param(ml.tensor(1.0))
    local step = ml.jit(function(b)
      ml.debug_print("before %g", b)
      b:set(b + 1)
      ml.debug_print("after %g", b)
    end)
    assert.same({"before 1", "after 2"}, (printed(step, box)))
    assert.same({"before 2", "after 3"}, (printed(step, box)))
  end)

  it("debug_callback gets the values, and what it raises comes through", function()
    local seen = {}
    local step = ml.jit(function(a)
      ml.debug_callback(function(v, name) seen[#seen + 1] = {v:totable(), name} end, a + 1, "here")
      return a
    end)
    step(ml.zeros {2})
    step(ml.ones {2})
    assert.same({{{1.0, 1.0}, "here"}, {{2.0, 2.0}, "here"}}, seen)
    local box = helper.param(ml.tensor(1.0))
    local failing = ml.jit(function(b)
      b:set(b * 2)
      ml.debug_callback(function(v) if v:item() > 1 then error("too large", 0) end end, b)
    end)
    helper.raises("too large", failing, box)
    assert.equal(2.0, box:item()) -- the program has run
    assert.truthy(ml.jit(function(a) return a end)(ml.ones {1}))
  end)

  it("each iteration of loops, nested and reversed, and the branch that is taken", function()
    local function f(v)
      ml.scan(function(c, s)
        ml.debug_print("row %g", s:sum())
        ml.cond(s:sum():gt(4), function(r)
          ml.debug_print("large %d %g", c, r:sum())
          ml.debug_print("!")
          return r
        end, function(r)
          ml.fori_loop(0, 2, function(i, k)
            ml.debug_print("small %d", i)
            return k
          end, 0)
          return r
        end, s)
        return c + 1
      end, 0, v, {reverse = true})
      ml.debug_print("end")
      return (v * v):sum()
    end
    local wanted = {"row 9", "large 0 9", "!", "row 5", "large 1 5", "!", "row 1", "small 0", "small 1",
      "end"}
    assert.same(wanted, (printed(f, x)))
    assert.same(wanted, (printed(ml.jit(f), x)))
    assert.same(wanted, (printed(ml.jit(ml.grad(f)), x)))
    assert.same(wanted, (printed(function(v) return ml.jvp(f, {v}, {v}) end, x)))
    local function twice(v)
      return ml.scan(function(c, s)
        ml.debug_print("%g", s)
        return c
      end, 0, v, {unroll = 2})
    end
    assert.same({"0", "1", "2"}, (printed(twice, ml.arange(3.0))))
    assert.same({"0", "1", "2", "3"}, (printed(ml.vmap(twice), ml.arange(4.0):reshape(2, 2))))
  end)

  it("the first iterations of a while_loop, and how many there are more", function()
    local function count(to)
      return ml.while_loop(function(n) return n:lt(to) end, function(n)
        ml.debug_print("n %d of %s", n, "all")
        return n + 1
      end, ml.tensor(0))
    end
    local lines, n = printed(ml.jit(count), ml.tensor(3))
    assert.same({"n 0 of all", "n 1 of all", "n 2 of all"}, lines)
    assert.equal(3, n:item())
    assert.same({}, (printed(count, ml.tensor(0))))
    lines = printed(count, ml.tensor(66))
    assert.equal(65, #lines)
    assert.equal("(while_loop: 2 more iterations not shown)", lines[65])
    helper.raises("[E_STATE] while_loop: debug_print in the condition is not possible; print in the body",
      ml.while_loop, function(k)
        ml.debug_print("%d", k)
        return k:lt(2)
      end, function(k) return k + 1 end, ml.tensor(0))
  end)

  it("in loops inside shard_map, and around it", function()
    local function sum(b)
      ml.debug_print("%g", b:sum())
      return b * 2
    end
    local specs = {mesh = mesh, in_specs = {P("data")}, out_specs = P("data")}
    local a = ml.arange(8.0)
    local first = printed(ml.shard_map(sum, specs), a)
    local second = printed(ml.shard_map(sum, specs), a * 2)
    local both = table.move(second, 1, 8, 9, table.move(first, 1, 8, 1, {}))
    assert.same(both, (printed(ml.shard_map(function(b)
      return ml.fori_loop(0, 2, function(_, c) return sum(c) end, b)
    end, specs), a)))
    assert.same(both, (printed(function()
      return ml.fori_loop(0, 2, function(_, c) return ml.shard_map(sum, specs)(c) end, a)
    end)))
    local function branch(b) return ml.cond(b:sum():gt(3), sum, function(c) return c end, b) end
    helper.raises("[E_STATE] cond: debug_print in a branch inside shard_map is not possible",
      ml.shard_map(branch, specs), a)
  end)

  it("refuses misfits and what is no format", function()
    helper.raises("[E_VALUE] debug_print: '%g %g' takes 2 values, 1 given", ml.debug_print, "%g %g", x:sum())
    helper.raises("[E_VALUE] debug_print: the format must be a string, not a number", ml.debug_print, 1)
    helper.raises("[E_VALUE] debug_print: bad argument", ml.debug_print, "%d", ml.tensor(0.5))
    helper.raises("[E_KEY] debug_print: unknown option 'per_devce'; did you mean 'per_device'?",
      ml.debug_print, "%g", x:sum(), {per_devce = true})
    helper.raises("[E_VALUE] debug_callback: expected a function, got nil", ml.debug_callback)
    helper.raises("[E_STATE] debug_print is not possible here", ml.init, function()
      ml.debug_print("%g", ml.tensor(1.0) * 2)
      return {}
    end, {seed = 0})
  end)
end)

describe("named_scope: C9:", function()
  it("its name is on every op inside, within those around it", function()
    local file = helper.file ""
    ml.core.dump("simplify:" .. file)
    ml.jit(function(x)
      local y = ml.named_scope("outer", function(a, b)
        return ml.named_scope("inner", ml.sin, a) * b
      end, x, 2.0)
      return y:cos()
    end)(ml.ones {2})
    ml.core.dump()
    local text = assert(io.open(file)):read "a"
    assert.truthy(text:match "= sin [^\n]*%(outer%.inner%)")
    assert.truthy(text:match "= mul [^\n]*%(outer%)")
    assert.falsy(text:match "= cos [^\n]*%(")
  end)

  it("returns what the function returns, and ends with an error", function()
    local a, b, c = ml.named_scope("s", function(...) return ... end, 1, nil, 3)
    assert.same({1, 3}, {a, c})
    assert.equal(nil, b)
    helper.raises("raised", ml.named_scope, "s", function() error("raised", 0) end)
    helper.raises("[E_VALUE] named_scope: the name must be a string that is not empty, not ''",
      ml.named_scope, "", print)
    helper.raises("[E_VALUE] named_scope: expected a function, got nil", ml.named_scope, "s")
  end)
end)
