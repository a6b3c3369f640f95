-- devices: 8
-- donation_spec.lua: what is donated is taken over where it lies; what cannot be is an error that names it; what
-- is gone says why. The numbers are those of the checklist of JAX's semantics.
local helper = require "spec.helper"
local ml = require "meshlua"

local core, P, NamedSharding = ml.core, ml.P, ml.NamedSharding

local param = helper.param

--- A tensor that shares no bytes with another.
local function fresh(x) return ml.tensor(x:totable(), x.dtype) end

--- Addresses of all distinct shards.
local function addresses(x)
  local list, n = {}, x.sharding.mesh
    and x.size // ml.jit(function(t) return t end):plan(x):memory().arguments * 4 or 1
  for i = 1, n do list[i] = x:address(i - 1) end
  return list
end

describe("a donated argument", function()
  it("J4: gives its memory to the result", function()
    local step = ml.jit(function(x) return x * 2 + 1 end, {donate = "x"})
    local x = fresh(ml.arange(1000.0))
    for _ = 1, 3 do
      local before = x:address()
      local y = step(x)
      assert.equal(before, y:address())
      x = y
    end
    assert.same(8.0 + 7, x:totable()[2])
    assert.equal(0, step:plan(ml.ones {1000}):copies())
  end)

  it("J4: does on every device of a mesh", function()
    local mesh = ml.make_mesh({4, 2}, {"data", "model"})
    for _, spec in ipairs {P("data", "model"), P(nil, "model"), P {"data", "model"}, P()} do
      local step = ml.jit(function(x) return x + 1 end, {donate = {1}})
      local x = step(ml.device_put(ml.ones {16, 8}, NamedSharding(mesh, spec))) -- no views of the whole
      local before = addresses(x)
      local y = step(x)
      assert.same(before, addresses(y))
      assert.equal(3.0, y:totable()[16][8])
    end
  end)

  it("N12: is gone afterwards, and says why", function()
    local step = ml.jit(function(x, y) return x + y end, {donate = {1}})
    local x, y = fresh(ml.ones {4}), ml.ones {4}
    local z = step(x, y)
    assert.is_true(x:is_deleted())
    assert.is_false(y:is_deleted())
    assert.equal("deleted tensor (it was donated to a jitted function)", tostring(x))
    for _, use in ipairs {function() return x + 1 end, function() return x:sum() end,
      function() return x.shape end,
      function() return #x end, function() return x:totable() end,
        function() return x:addressable_shards() end,
      function() return ml.typeof(x) end, function() return ml.typeof {x} end, function() return step(x,
        y) end,
      function() return step(y, x) end, function() return ml.device_put(x, NamedSharding(ml.make_mesh({8},
        {"d"}), P())) end,
      function() return ml.jit(function(t) return t.a[1] end)({a = {x}}) end, function() return param(x) end,
      function() return param(y):set(x) end,
        function() return ml.grad(function(a) return (a * x):sum() end)(y) end} do
      helper.raises("[E_DELETED] this tensor has been deleted: it was donated to a jitted function", use)
    end
    assert.same({2.0, 2.0, 2.0, 2.0}, z:totable())
  end)

  it("J4: that no result can take is an error that names it", function()
    local sum = ml.jit(function(x, scale) return x:sum() * scale end, {donate = "x"})
    local message = helper.raises("[E_DONATE] donated argument x (float32[4] on each device) cannot be "
      .. "reused", sum,
      ml.ones {4}, 2)
    assert.truthy(message:find("leave it out of `donate`", 1, true))
    helper.raises("donated argument batch.x.1 (int32[4] on each device)", ml.jit(function(batch)
      return batch.x[1]:astype "float32"
    end, {donate = {1}}), {x = {ml.arange(4)}})
    helper.raises("donated argument b (float32[4] on each device)", ml.jit(function(a, b) return a + b end,
      {donate = {"a", "b"}}), ml.ones {4}, ml.ones {4})
  end)

  it("J4: a result of its size takes it, whatever its dtype, once its last use is over", function()
    local step = ml.jit(function(x)
      return x:sum():astype "int32" + ml.arange(4)
    end, {donate = "x"})
    local x = ml.ones {4}
    local at = x:address()
    local y = step(x)
    assert.same({4, 5, 6, 7}, y:totable())
    assert.equal(at, y:address())
    assert.is_true(x:is_deleted())
  end)

  it("J4: that cannot be reused is still there", function()
    local step = ml.jit(function(x) return x:sum() end, {donate = "x"})
    local x = ml.ones {4}
    assert.falsy(pcall(step, x))
    assert.equal(4.0, x:sum():item())
  end)

  it("J4: given twice is an error", function()
    local step = ml.jit(function(a, b) return a + 1, b + 2 end, {donate = {"a", "b"}})
    local x = fresh(ml.ones {4})
    helper.raises("[E_DONATE] argument 2: one tensor is donated twice", step, x, x)
    helper.raises("[E_DONATE] argument 2: one tensor is donated twice", ml.jit(function(t, u)
      return t[1] + 1, u.x + 1
    end, {donate = {1, 2}}), {x}, {x = x})
    -- Two handles of one tensor.
    local box = param(ml.ones {4})
    assert.truthy(step(fresh(ml.ones {4}), fresh(ml.ones {4})))
    helper.raises("[E_DONATE] one tensor (float32[4]) is donated twice", step, box:get(), box:get())
    assert.equal(4.0, x:sum():item())
    assert.equal(4.0, box:sum():item())
  end)

  it("J4: that is also passed undonated is copied before it is written", function()
    local step = ml.jit(function(a, b) return a * 10, b + a end, {donate = {"a"}})
    step(ml.ones {4}, ml.ones {4})
    local box = param(ml.arange(4.0))
    local a, b = step(box:get(), box:get())
    assert.same({0.0, 10.0, 20.0, 30.0}, a:totable())
    assert.same({0.0, 2.0, 4.0, 6.0}, b:totable())
    -- The other reads it when the result is there already.
    step = ml.jit(function(c, d)
      local tens = c * 10
      return tens, d:matmul(tens)
    end, {donate = {"c"}})
    step(ml.ones {2, 2}, ml.ones {2, 2})
    box = param(ml.tensor {{1.0, 2.0}, {3.0, 4.0}})
    a, b = step(box:get(), box:get())
    assert.same({{10.0, 20.0}, {30.0, 40.0}}, a:totable())
    assert.same({{70.0, 100.0}, {150.0, 220.0}}, b:totable())
  end)

  it("J4: whose bytes others hold is written elsewhere, and they keep theirs", function()
    local step = ml.jit(function(x) return x * 2 end, {donate = "x"})
    local x = fresh(ml.arange(6.0))
    local view, at = x:reshape {2, 3}, x:address()
    local plan = step:plan(fresh(ml.arange(6.0)))
    local y = step(x)
    assert.same({0.0, 2.0, 4.0, 6.0, 8.0, 10.0}, y:totable())
    assert.same({{0.0, 1.0, 2.0}, {3.0, 4.0, 5.0}}, view:totable())
    assert.is_true(x:is_deleted())
    assert.is_true(y:address() ~= at)
    assert.equal(0, plan:copies())
  end)

  it("J4: whose bytes others hold gives what it gives alone; written twice, by a copy", function()
    local mesh = ml.make_mesh({4, 2}, {"data", "model"})
    local function twice(v) return v * 2 end
    local function twice_written(v) return ml.softmax(ml.softmax(v)) end
    local function read_later(v)
      local y = v * 2 + v:sum()
      return y, y:sum(), y:matmul(y:T())
    end
    local function in_part(v) return ml.dynamic_update_slice(v, ml.ones {2, 2}, {1, 3}) end
    local function in_a_loop(v)
      return ml.fori_loop(0, 3, function(i, c) return c * 2 + i end, v)
    end
    local function behind_a_loop(v)
      return ml.fori_loop(0, 3, function(i, c) return c + v:sum() * i end, ml.zeros {}) + v
    end
    local function in_a_branch(v)
      return ml.cond(v:sum():gt(0), function(c) return c * 2 end, function(c) return c - 1 end, v)
    end
    for k, fn in ipairs {twice, twice_written, read_later, in_part, in_a_loop, behind_a_loop, in_a_branch} do
      for _, spec in ipairs {P(), P("data"), P("model", "data")} do
        local step = ml.jit(function(m)
          local got = {fn(m.w)}
          m.w:set(got[1])
          return got[2], got[3]
        end)
        local x = ml.device_put(ml.arange(64.0):reshape {8, 8}, NamedSharding(mesh, spec))
        local alone, m, kept = {ml.jit(fn)(x)}, {w = param(x)}, x:reshape {4, 2, 8}
        local got = {step(m)}
        table.insert(got, 1, m.w)
        for i, want in ipairs(alone) do assert.same(want:totable(), got[i]:totable(), tostring(k)) end
        assert.same(ml.arange(64.0):reshape({4, 2, 8}):totable(), kept:totable())
        assert.equal(fn == twice_written and 1 or 0, step:plan(m):copies(), tostring(k))
      end
    end
  end)

  it("J4 J10: of a function that is called in another traced one is an error", function()
    local inner = ml.jit(function(x) return x * 2 end, {donate = "x"})
    helper.raises("[E_VALUE] jit: expected a function, got a jit", ml.jit, inner)
    local outer = ml.jit(function(x) return inner(x) end)
    helper.raises("say `donate` to the outer jit", outer, ml.ones {4})
  end)

  it("J4: of a tree is each of its tensors", function()
    local step = ml.jit(function(state) return {n = state.n + 1, w = {state.w[1] * 2, "text"}} end,
      {donate = "state"})
    local state = {n = ml.tensor(0), w = {fresh(ml.ones {8, 8}), "text"}}
    for i = 1, 3 do
      local n, w = state.n:address(), state.w[1]:address()
      local after = step(state)
      assert.same({n, w}, {after.n:address(), after.w[1]:address()})
      assert.is_true(state.w[1]:is_deleted())
      assert.equal(i, after.n:item())
      state = after
    end
  end)
end)

describe("Params that a step writes", function()
  local step = ml.jit(function(m) m.w:set(m.w * 2) end)

  it("keep their memory", function()
    local m = {w = param(ml.ones {64})}
    step(m)
    local before = m.w:address()
    for _ = 1, 3 do step(m) end
    assert.equal(before, m.w:address())
    assert.equal(16.0, m.w:max():item())
  end)

  it("leave the tensors alone that somebody has taken from them", function()
    local m = {w = param(ml.ones {64})}
    step(m)
    local kept = m.w:get()
    step(m)
    step(m)
    assert.equal(2.0, kept:max():item())
    assert.equal(8.0, m.w:max():item())
  end)

  it("are other tensors than those that it returns", function()
    local both = ml.jit(function(m)
      m.w:set(m.w * 2)
      return m.w:get(), m.w * 1
    end)
    local m = {w = param(ml.ones {64})}
    for i = 1, 3 do
      for _, returned in ipairs {both(m)} do
        assert.equal(2.0 ^ i, returned:max():item())
        returned:release()
      end
      assert.equal(2.0 ^ i, m.w:max():item())
    end
  end)

  it("keep their old tensors where the step is told to", function()
    local keeping = ml.jit(function(m) m.w:set(m.w + 1) end, {donate = false})
    local m = {w = param(ml.ones {64})}
    keeping(m)
    local before, kept = m.w:address(), m.w:get()
    keeping(m)
    assert.not_equal(before, m.w:address())
    assert.equal(2.0, kept:max():item())
  end)

  it("do on every device of a mesh", function()
    local mesh = ml.make_mesh({8}, {"data"})
    local m = {w = param(ml.device_put(ml.ones {16, 4}, NamedSharding(mesh, P "data")))}
    step(m)
    local before = addresses(m.w)
    step(m)
    assert.same(before, addresses(m.w))
    assert.equal(4.0, m.w:totable()[16][4])
  end)

  it("do when one is another's tensor", function()
    local m = {a = param(ml.ones {8}), b = param(ml.zeros {8})}
    local swap = ml.jit(function(t)
      local a = t.a:get()
      t.a:set(t.b * 1)
      t.b:set(a * 1)
    end)
    for _ = 1, 3 do swap(m) end
    assert.same({0.0, 8.0}, {m.a:sum():item(), m.b:sum():item()})
    m.b:set(m.a)
    step({w = m.a})
    assert.same({0.0, 0.0}, {m.a:sum():item(), m.b:sum():item()})
  end)

  it("leave alone the tensor, or the Param, that they were made of", function()
    local t = ml.ones {2}
    local first = ml.nn.Param(t)
    local second = ml.nn.Param(first)
    local both = ml.jit(function(p, other)
      p:set(p:get() * 2)
      p:set(p:get() + other)
      return other + 1
    end)
    for _ = 1, 2 do assert.same({2.0, 2.0}, both(first, t):totable()) end
    assert.same({{7.0, 7.0}, {1.0, 1.0}, {1.0, 1.0}}, {first:totable(), second:totable(), t:totable()})
  end)

  helper.on_processors("a GPU finds a wrong id behind the step",
    "stay as they were when the step fails on the way", function()
    local m = {n = param(ml.tensor(1)), w = param(ml.arange(6.0):reshape {3, 2})}
    local look = ml.jit(function(t, ids)
      t.n:set(t.n + 1)
      t.w:set(t.w * 2)
      return ml.take(t.w, ids):sum()
    end)
    look(m, ml.tensor {0, 1})
    look(m, ml.tensor {0, 1})
    collectgarbage()
    helper.raises("[E_INDEX] gather: id 7 is outside 0..2", look, m, ml.tensor {0, 7})
    assert.equal(3, m.n:item())
    assert.same({{0.0, 4.0}, {8.0, 12.0}, {16.0, 20.0}}, m.w:totable())
    assert.equal(2 * (8 + 12), look(m, ml.tensor {1, 1}):item() / 2)
  end)
end)

describe("a call that fails half-way", function()
  local rows = ml.ones {1000, 1000}

  --- 800 ids, the last of which is outside.
  local function bad_ids()
    local ids = {}
    for i = 1, 800 do ids[i] = i == 800 and 5000 or 0 end
    return ml.tensor(ids, "int32")
  end

  it("leaves Params as they were, whatever runs beside what failed", function()
    local sharding = NamedSharding(ml.make_mesh({8}, {"x"}), P("x"))
    for _, put in ipairs {function(t) return t end, function(t) return ml.device_put(t, sharding) end} do
      local w = param(put(fresh(ml.ones {1 << 18})))
      local step = ml.jit(function(model, ids)
        local y = rows:take(ids, 1)
        model.w:set(model.w * 2)
        return y
      end)
      step({w = w}, put(ml.arange(800)))
      local copies = step:plan({w = w}, put(bad_ids())):copies() -- of what the Param was made of
      for _ = 1, 5 do
        helper.raises("[E_INDEX] gather: id 5000 is outside", step, {w = w}, put(bad_ids()))
        assert.same({2.0, 2.0}, {w:min():item(), w:max():item()})
      end
      assert.equal(copies, step:plan({w = w}, put(bad_ids())):copies())
    end
  end)

  it("deletes what it was donated and has begun to write over", function()
    local step = ml.jit(function(x, y, ids)
      return ml.fori_loop(0, 4, function(i, c) return c + rows:take(ids:take(i), 1):sum() end, x), y * 2
    end, {donate = {"x", "y"}})
    local x, y = fresh(ml.ones {100}), fresh(ml.ones {200})
    helper.raises("[E_INDEX] gather: id 5000 is outside", step, x, y, ml.tensor({0, 1, 5000, 2}, "int32"))
    local gone = "[E_DELETED] this tensor has been deleted: a call that it was donated to failed half-way"
    helper.raises(gone, function() return x:sum() end)
    helper.raises(gone, step, x, y, ml.arange(4))
    assert.equal(200.0, y:sum():item()) -- nothing has been written there
    -- What is copied first stays.
    x = fresh(ml.ones {100})
    local view = x:reshape {10, 10}
    helper.raises("[E_INDEX]", step, x, y, ml.tensor({0, 1, 5000, 2}, "int32"))
    assert.same({100.0, 100.0}, {x:sum():item(), view:sum():item()})
    assert.equal(4001.0, (step(x, y, ml.arange(4))):max():item())
  end)
end)

describe("a tensor that is released", function()
  it("N12: gives its bytes back, and says so afterwards", function()
    local before = core.memory().live
    local x = ml.ones {1 << 20}
    x:release()
    assert.is_true(core.memory().live < before + (1 << 20))
    x:release()
    helper.raises("[E_DELETED] this tensor has been deleted: released", function() return x + 1 end)
  end)

  it("N12: leaves its views alone", function()
    local x = fresh(ml.arange(6.0))
    local view = x:reshape {2, 3}
    x:release()
    assert.same({{0.0, 1.0, 2.0}, {3.0, 4.0, 5.0}}, view:totable())
  end)

  it("is, at the end of its block", function()
    local kept
    do
      local t <close> = ml.ones {2}
      kept = t
    end
    assert.is_true(kept:is_deleted())
  end)

  it("is a problem for the Param that holds it, until it is set", function()
    local box = param(ml.ones {2})
    box:get():release()
    helper.raises("[E_DELETED]", function() return box + 1 end)
    assert.truthy(tostring(box):find("deleted", 1, true))
    box:set(ml.ones {2})
    assert.equal(2.0, box:sum():item())
  end)
end)

describe("a temporary that an op reads twice", function()
  local a = ml.random.normal(ml.random.key(1), {48, 40})
  local b = ml.random.normal(ml.random.key(2), {40, 48})
  local x = a:matmul(b)
  local rows, back = x:totable(), x:flip(1):totable()

  --- f(product of a and b) element by element; want(i, j) is what it is.
  local function check(f, want)
    local got = ml.jit(function(u, v) return f(u:matmul(v)) end)(a, b):totable()
    for i = 1, 48 do
      for j = 1, 48 do helper.close(want(i, j), got[i][j], 1e-5) end
    end
  end

  it("also through a view is written over by none of its results", function()
    check(function(t) return t + t:T() end, function(i, j) return rows[i][j] + rows[j][i] end)
    check(function(t) return t:T() - t end, function(i, j) return rows[j][i] - rows[i][j] end)
    check(function(t) return t * t:flip(1) end, function(i, j) return rows[i][j] * back[i][j] end)
    check(function(t) return t + t:slice({1, 1}) end, function(i, j) return rows[i][j] + rows[1][j] end)
    check(function(t) return ml.where(t:gt(0), t, t:T()) end,
      function(i, j) return rows[i][j] > 0 and rows[i][j] or rows[j][i] end)
  end)
end)
