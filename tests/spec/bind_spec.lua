-- bind_spec.lua: step:bind(...), and what a call that has been made before does: it finds its plan whatever the
-- order in which its tables iterate, makes no garbage, and is not disturbed by finalizers.
local helper = require "spec.helper"
local ml = require "meshlua"

local param, traces = helper.param, helper.traces
local function list(...) return ml.tensor {...} end

--- What fn leaves behind for Lua's collector, in bytes for each call.
local function garbage(fn)
  local calls = 50
  for _ = 1, 3 do fn() end
  collectgarbage()
  collectgarbage "stop"
  local before = collectgarbage "count"
  for _ = 1, calls do fn() end
  local grown = collectgarbage "count" - before
  collectgarbage "restart"
  return grown * 1024 / calls
end

--- A tree with the keys put in in this order.
local function tree_of(values, order)
  local t = {}
  for _, key in ipairs(order) do t[key] = values[key] end
  return t
end

describe("a call that was made before", function()
  it("finds its plan whatever the order in which its tables iterate", function()
    local step = ml.jit(function(t) return t.a - t.bb * t.ccc + t.dddd / t[1] end)
    local function values(k)
      return {a = list(8.0 + k), bb = list(2.0), ccc = list(3.0), dddd = list(8.0), list(4.0)}
    end
    local orders = {{"a", "bb", "ccc", "dddd", 1}, {1, "dddd", "ccc", "bb", "a"},
      {"ccc", 1, "a", "dddd", "bb"}}
    for round = 1, 3 do
      for k, order in ipairs(orders) do
        local t = tree_of(values(k + round), order)
        t.gone = 1
        t.gone = nil
        assert.same({8.0 + k + round - 6 + 2}, step(t):totable())
      end
    end
    assert.same({1, 8}, {traces(step)})
  end)

  it("tells leaves that are tied from others, in every order", function()
    local step = ml.jit(function(t)
      t.a:set(t.a + 1)
      return t.a + t.b * 10
    end)
    local a, b = param(list(1.0)), param(list(5.0))
    assert.same({52.0}, step(tree_of({a = a, b = b}, {"a", "b"})):totable())
    assert.same({53.0}, step(tree_of({a = a, b = b}, {"b", "a"})):totable())
    assert.same({44.0}, step(tree_of({a = a, b = a}, {"b", "a"})):totable()) -- 3 + 1, and ten times that
    assert.same({55.0}, step(tree_of({a = a, b = a}, {"a", "b"})):totable())
    assert.same({2, 2}, {traces(step)})
  end)

  it("makes no garbage but the handles of its results", function()
    local tree = {}
    for i = 1, 40 do tree["layer" .. i] = {w = param(list(1.0)), b = param(list(2.0)), n = i, name = "x"} end
    local update = ml.jit(function(t, rate) t.layer1.w:set(t.layer1.w * rate) end)
    assert.equal(0, garbage(function() update(tree, 0.5) end))
    local bound = update:bind(tree)
    assert.equal(0, garbage(function() bound(0.5) end))
    local handle = garbage(function() return ml.ones {1} + 1 end) / 2
    local two = ml.jit(function(t) return t.layer1.w:sum(), t.layer2.b + 1 end)
    assert.is_true(garbage(function() return two(tree) end) <= 2 * handle)
  end)

  it("is not disturbed by finalizers that call, and change what it is called with", function()
    local step = ml.jit(function(t, k) return t[1] * k + t[2] end)
    local held, other, finalized = {list(1.0), param(list(2.0))}, {list(7.0), param(list(9.0))}, 0
    local function litter()
      setmetatable({}, {__gc = function()
        finalized = finalized + 1
        assert(step(other, finalized):item() == 7.0 * finalized + 9)
        held[2]:set(held[2] + 0)
        held[1] = finalized % 2 == 0 and list(1.0) or param(list(1.0))
      end})
    end
    collectgarbage "generational"
    for k = 1, 500 do
      litter()
      assert.equal(k + 2.0, step(held, k + 0.0):item())
    end
    collectgarbage "incremental"
    collectgarbage()
    assert.is_true(finalized > 100)
  end)

  it("keeps a number that it returns", function()
    local step = ml.jit(function(k) return k end)
    local a = step(1.5)
    local b = step(2.5)
    assert.same({1.5, 2.5}, {a:item(), b:item()})
  end)
end)

describe("step:bind", function()
  local function model() return {w = param(list(1.0, 2.0)), b = param(list(0.5, 0.5)), scale = 2} end
  local function apply(m, x, k)
    m.b:set(m.b + k)
    return (m.w * x * m.scale + m.b):sum()
  end

  it("gives a function of the arguments behind the bound ones, with the same plan", function()
    local step, m = ml.jit(apply), model()
    local bound = step:bind(m)
    assert.truthy(tostring(bound):match "^jit%(.*bind_spec%.lua:%d+%), 0 plans with 1 argument bound$")
    assert.equal(2 * 3 + 3.0, bound(ml.ones {2}, 1):item())
    assert.equal(2 * 3 + 5.0, step(m, ml.ones {2}, 1):item())
    assert.equal(2 * 3 + 7.0, bound(ml.ones {2}, 1):item())
    assert.same({3.5, 3.5}, m.b:totable())
    assert.same({1, 2}, {traces(step)})
  end)

  it("looks at what the Params hold: a value at once, another type by a new trace that says so", function()
    local step, m = ml.jit(apply), model()
    local bound = step:bind(m)
    bound(ml.ones {2}, 0)
    m.w:set(list(10.0, 20.0))
    assert.equal(2 * 30 + 1.0, bound(ml.ones {2}, 0):item())
    assert.same({1, 1}, {traces(step)})
    m.w:set(list(1.0))
    assert.equal(2 * 2 + 1.0, bound(ml.ones {2}, 0):item())
    assert.same({2, 1}, {traces(step)})
    assert.truthy(step:why_miss():find("now m.w = float32[1]; the last trace had m.w = float32[2]", 1,
      true))
    m.w:set(list(1.0, 2.0))
    assert.equal(2 * 3 + 1.0, bound(ml.ones {2}, 0):item())
    assert.same({2, 2}, {traces(step)})
  end)

  it("holds the trees as they were: a change is not seen, or an error where it is traced again", function()
    local step, m = ml.jit(apply), model()
    local bound, w = step:bind(m), m.w
    bound(ml.ones {2}, 0)
    m.scale, m.w = 3, nil
    collectgarbage()
    assert.equal(2 * 3 + 1.0, bound(ml.ones {2}, 0):item())
    w:set(list(5.0, 5.0))
    w = nil
    collectgarbage()
    assert.equal(2 * 10 * 1 + 1.0, bound(ml.ones {2}, 0):item())
    helper.raises("[E_STATE] a bound argument is not what it was: its tables have other keys, Params or "
      .. "plain values than when step:bind walked them; bind it again", bound, ml.ones {1}, 0)
    assert.is_nil(w)
  end)

  it("sees another plain value alone, where it is traced again", function()
    local step, m = ml.jit(apply), model()
    local bound = step:bind(m)
    bound(ml.ones {2}, 0)
    m.scale = 3
    m.w:set(list(10.0))
    helper.raises("[E_STATE] a bound argument is not what it was", bound, ml.ones {1}, 0)
    m.scale = model().scale
    assert.equal(2 * 20 + 1.0, bound(ml.ones {1}, 0):item()) -- b has two elements
  end)

  it("takes numbers, nil and static values, and knows the arguments by their places in the step", function()
    local step = ml.jit(function(k, none, name, x, y)
      assert(none == nil)
      return name == "double" and x * (2 * k) or x * k, y + 1
    end, {static = "name", donate = "y"})
    local bound = step:bind(2.5, nil, "double")
    for i = 1, 3 do
      local x, y = list(i + 0.0), ml.tensor {1.0}
      local a, b = bound(x, y)
      assert.same({5.0 * i, 2.0}, {a:item(), b:item()})
      assert.is_true(y:is_deleted())
    end
    assert.same({1, 2}, {traces(step)})
    assert.equal(4.0, (step:bind(2.0, nil, "single")(list(2.0), list(0.0))):item())
    helper.raises("[E_VALUE] static argument 3 is a Tensor", step.bind, step, 1, nil, ml.ones {1})
  end)

  it("knows a leaf that comes again behind the bound ones", function()
    local step = ml.jit(function(a, b)
      a:set(a + 1)
      return b * 10
    end)
    local p = param(list(1.0))
    local bound = step:bind(p)
    assert.same({20.0}, bound(p):totable())
    assert.same({30.0}, bound(p):totable())
    assert.same({10.0}, bound(list(1.0)):totable())
    assert.same({10.0}, bound(param(list(1.0))):totable())
    assert.same({3, 1}, {traces(step)})
  end)

  it("is part of a trace around it", function()
    local m = model()
    local bound = ml.jit(apply):bind(m)
    local outer = ml.jit(function(owner, x) return bound(x, owner.k) * 2 end)
    local owner = {m = m, k = 1.0}
    assert.equal(2 * (2 * 3 + 3.0), outer(owner, ml.ones {2}):item())
    assert.equal(2 * (2 * 3 + 5.0), outer(owner, ml.ones {2}):item())
  end)

  it("refuses what is no argument, and says what is gone", function()
    local step, loop = ml.jit(apply), {}
    loop.again = {loop}
    helper.raises("[E_VALUE] the table at m.again.1 contains itself", step.bind, step, loop)
    helper.raises("[E_TRACED] bind: inside a traced function", ml.jit(function(x) return step:bind(x) end),
      ml.ones {1})
    local x = ml.ones {2}
    local bound = ml.jit(function(a, b) return a + b end):bind(x)
    assert.equal(4.0, bound(x):sum():item())
    x:release()
    helper.raises("[E_DELETED] this tensor has been deleted: released", bound, ml.ones {2})
  end)
end)
