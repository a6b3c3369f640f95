-- scale_spec.lua: what is large in number or depth: time grows with the number, and depth is an error, never a
-- stack that overflows.
local helper = require "spec.helper"
local ml = require "meshlua"
local nn, optim = ml.nn, ml.optim

local function many(n, make)
  local list = {}
  for i = 1, n do list[i] = make(i) end
  return list
end

local function tensors(n) return many(n, function() return ml.ones {4} end) end
local function params(n) return many(n, function() return nn.Param(ml.ones {4}) end) end

local function loss_of(m)
  local sum = ml.zeros {}
  for _, w in ipairs(m) do sum = sum + (w * w):sum() end
  return sum
end

--- Programs of n parts, by name: a function and its arguments.
local programs = {
  ["a tree of leaves, of which few are used"] = function(n)
    return function(t) return t[1] + t[#t] end, tensors(n)
  end,
  ["a tree of leaves, added up"] = function(n)
    return function(t)
      local sum = t[1]
      for i = 2, #t do sum = sum + t[i] end
      return sum
    end, tensors(n)
  end,
  ["a result for each leaf"] = function(n)
    return function(t) return ml.tree.map(function(x) return x * 2 end, t) end, tensors(n)
  end,
  ["a step over many Params"] = function(n)
    local m = params(n)
    return function(model, opt) opt:update(model, ml.grad(loss_of)(model)) end, m, optim.sgd(m, {lr = 0.1})
  end,
  ["donated leaves"] = function(n)
    return function(t) return ml.tree.map(function(x) return x + 1 end, t) end, tensors(n)
  end,
  ["tensors met beside the arguments"] = function(n)
    local t = tensors(n)
    return function(x)
      for i = 1, #t do x = x + t[i] end
      return x
    end, ml.ones {4}
  end,
  ["a long chain and its gradient"] = function(n)
    return ml.grad(function(x)
      for _ = 1, n do x = ml.sin(x) end
      return x:sum()
    end), ml.ones {4}
  end,
  ["a chain of views"] = function(n)
    return function(x)
      for _ = 1, n do x = x:transpose(1, 2):reshape {6, 2} end
      return x
    end, ml.ones {6, 2}
  end,
  ["many loops"] = function(n)
    return function(x)
      for _ = 1, n // 4 do x = ml.fori_loop(0, 2, function(_, c) return c * 2 + 1 end, x) end
      return x
    end, ml.ones {4}
  end,
  ["many branches"] = function(n)
    return function(x)
      for _ = 1, n // 4 do x = ml.cond(x:sum():gt(0), function(c) return c * 2 end, ml.sin, x) end
      return x
    end, ml.ones {4}
  end,
  ["many carries of a loop"] = function(n)
    return function(t)
      return ml.fori_loop(0, 2, function(_, c) return ml.tree.map(function(x) return x * 2 end, c) end, t)
    end, tensors(n)
  end,
  ["many stretches that are computed again"] = function(n)
    return ml.grad(function(x)
      for _ = 1, n // 4 do x = ml.remat(function(y) return ml.sin(ml.sin(y)) end)(x) end
      return x:sum()
    end), ml.ones {4}
  end,
}

--- Seconds of the processor that tracing, planning and the first call take.
local function seconds(make, n)
  local got = table.pack(make(n))
  local step = ml.jit(got[1])
  collectgarbage()
  local start = os.clock()
  step(table.unpack(got, 2, got.n))
  return os.clock() - start
end

-- What costs little for each part shows itself only where there are many.
local cheap = {["a tree of leaves, of which few are used"] = true,
  ["tensors met beside the arguments"] = true}

describe("the time to trace and plan", function()
  for name, make in pairs(programs) do
    it("grows as its program does: " .. name, function()
      if helper.watched then return end
      local few = cheap[name] and 4000 or 1000
      local small, large = math.huge, math.huge
      for _ = 1, 3 do -- the machine has other work, too
        small = math.min(small, seconds(make, few), seconds(make, few))
        large = math.min(large, seconds(make, 8 * few))
        -- What looked at all for each would take 64 times as long.
        if large < 24 * small + 0.1 then return end
      end
      error(("%.3f s for %d, %.3f s for %d"):format(large, 8 * few, small, few))
    end)
  end

  it("of why_sharding does not grow with the number of results, squared", function()
    local step = ml.jit(function(t) return t end)
    local start = os.clock()
    ml.why_sharding(step, tensors(helper.watched and 200 or 4000))
    assert.is_true(os.clock() - start < 5)
  end)
end)

describe("a deep tree", function()
  local deep = ml.ones {2}
  for _ = 1, 1e6 do deep = {deep} end
  local x = ml.ones {2}
  local function none() end
  local function same(t) return t end

  local calls = {
    ["tree.leaves"] = {ml.tree.leaves, deep},
    ["tree.visit"] = {ml.tree.visit, deep, none},
    ["tree.map"] = {ml.tree.map, same, deep},
    ["tree.map of two"] = {ml.tree.map, same, deep, deep},
    ["tree.map_with_path"] = {ml.tree.map_with_path, none, deep},
    ["tree.replace"] = {ml.tree.replace, deep, {}},
    ["tree.only"] = {ml.tree.only, deep, {}},
    ["jit, an argument"] = {ml.jit(function() return x end), deep},
    ["jit, a result"] = {ml.jit(function() return deep end), x},
    ["jit, in_shardings"] = {ml.jit, same, {in_shardings = deep}},
    bind = {function() return ml.jit(same):bind(deep)() end},
    grad = {ml.grad(same), deep},
    vmap = {ml.vmap(same), deep},
    ["vmap, a result"] = {ml.vmap(function() return deep end), x},
    scan = {ml.scan, same, deep, ml.ones {2}},
    fori_loop = {ml.fori_loop, 0, 2, function(_, c) return c end, deep},
    while_loop = {ml.while_loop, function() return true end, same, deep},
    device_put = {ml.device_put, deep, 0},
    state = {ml.state, deep},
    split = {ml.split, deep},
    update = {ml.update, deep, deep},
    init = {ml.init, function() return deep end},
    tabulate = {ml.tabulate, deep},
    optim = {optim.adamw, deep, {lr = 1}},
    tensor = {ml.tensor, deep},
    microbatches = {ml.microbatches, deep, 2},
    accumulate = {ml.accumulate, 2, function() return deep end, x},
    shard_map = {function()
      local mesh = ml.make_mesh({1}, {"x"}, {0})
      return ml.shard_map(same, {mesh = mesh, in_specs = deep, out_specs = deep})(x)
    end},
  }
  for name, call in pairs(calls) do
    it("is an error: " .. name, function()
      local ok, message = pcall(table.unpack(call))
      assert.is_false(ok)
      assert.truthy(message:find "%[E_%u+%]", message)
    end)
  end
end)

describe("a list that says what it is not", function()
  local x = ml.ones {4}
  local liar = setmetatable({}, {__len = function() return 1 << 40 end, __index = function() return x end,
    __pairs = function() return function() return 1, x end end})

  it("is an error, or taken for what it holds", function()
    for _, fn in ipairs {ml.concat, ml.stack, ml.zeros, ml.make_mesh, ml.switch} do
      assert.is_false(pcall(fn, liar, liar))
    end
    assert.same({{}, {}}, {ml.tree.leaves(liar)})
    assert.same({}, ml.tree.replace(liar, {}))
    assert.is_nil(ml.tree.only(liar, {}))
  end)
end)

describe("a huge count", function()
  local huge, x = math.maxinteger, ml.ones {4}
  local calls = {
    ["arange"] = {ml.arange, 1 << 62},
    ["arange of floats"] = {ml.arange, 2.0 ^ 62},
    ["linspace"] = {ml.linspace, 0, 1, 1 << 62},
    ["eye"] = {ml.eye, 1 << 40},
    ["eye, the largest"] = {ml.eye, huge},
    ["zeros"] = {ml.zeros, {huge}},
    ["one_hot"] = {ml.one_hot, ml.arange(3), 1 << 40},
    ["microbatches of nothing"] = {ml.microbatches, {}, huge},
    ["microbatches"] = {ml.microbatches, x, huge},
    ["accumulate over nothing"] = {ml.accumulate, huge, function() return x end, {}},
    ["scan"] = {ml.scan, function(c) return c, c end, x, nil, {length = huge}},
    ["scan, its results"] = {ml.scan, function(c) return c, c end, x, nil, {length = 1 << 44}},
    ["fori_loop"] = {ml.fori_loop, 0, huge, function(_, c) return c end, x},
    ["split"] = {ml.split, x, huge},
    ["random.split"] = {ml.random.split, ml.random.key(0), 1 << 44},
    ["permutation"] = {ml.random.permutation, ml.random.key(0), 1 << 44},
    ["make_mesh"] = {ml.make_mesh, {huge}, {"x"}},
  }
  for name, call in pairs(calls) do
    it("is an error at once: " .. name, function()
      local start = os.clock()
      local ok, message = pcall(table.unpack(call, 1, 6))
      assert.is_false(ok)
      assert.truthy(message:find "%[E_%u+%]", message)
      assert.is_true(os.clock() - start < (helper.watched and 20 or 3))
    end)
  end
end)
