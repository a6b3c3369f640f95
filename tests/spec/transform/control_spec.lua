-- devices: 8
-- control_spec.lua: loops and branches on many examples, and what is computed again inside them. C1, C3 and C4 are
-- numbers in the checklist of JAX's semantics.
local helper = require "spec.helper"
local ml = require "meshlua"

local random = ml.random

--- fn on each example, stacked: tensors of its results.
local function one_by_one(fn, n, ...)
  local columns = {}
  for i = 1, n do
    local args = {...}
    for k, x in ipairs(args) do args[k] = x.mapped and x.mapped:at(i) or x.shared end
    for r, y in ipairs {fn(table.unpack(args))} do
      columns[r] = columns[r] or {}
      columns[r][i] = y
    end
  end
  for r, column in ipairs(columns) do columns[r] = ml.stack(column) end
  return table.unpack(columns)
end

local function check(fn, n, ...)
  local args, axes = {...}, {}
  for k, x in ipairs(args) do args[k], axes[k] = x.mapped or x.shared, x.mapped and 1 or false end
  local want = {one_by_one(fn, n, ...)}
  for _, wrap in ipairs {ml.jit, function(f) return f end} do
    local all = {wrap(ml.vmap(fn, {in_axes = axes}))(table.unpack(args))}
    assert.equal(#want, #all)
    for r, y in ipairs(want) do
      assert.equal(y.dtype, all[r].dtype)
      helper.close(y, all[r], 1e-5)
    end
  end
end

local function m(x) return {mapped = x} end
local function s(x) return {shared = x} end

local w = random.normal(random.key(1), {4, 4}) * 0.5
local xs, rows = random.normal(random.key(2), {3, 5, 4}), random.normal(random.key(3), {3, 4})

--- A recurrent layer: the last state and all outputs.
local function rnn(h, x, weight)
  local last, ys = ml.scan(function(c, slice)
    local next = (c:matmul(weight) + slice):tanh()
    return next, next * slice
  end, h, x)
  return last, ys
end

describe("vmap of scan: C1, C3:", function()
  for _, case in ipairs {
    {"states and slices", m(rows), m(xs), s(w)}, {"states", m(rows), s(xs:at(1)), s(w)},
    {"slices", s(rows:at(1)), m(xs), s(w)},
    {"weights", s(rows:at(1)), s(xs:at(1)), m(random.normal(random.key(4), {3, 4, 4}))},
  } do
    it(case[1] .. " mapped", function() check(rnn, 3, case[2], case[3], case[4]) end)
  end

  it("a carry that no example changes stays one", function()
    check(function(x)
      local carry, ys = ml.scan(function(c, slice) return {c[1] + 1, c[2] + slice:sum()},
        slice * c[1] end, {ml.tensor(0.0), ml.tensor(0.0)}, x)
      return carry[1], carry[2], ys
    end, 3, m(xs))
  end)

  it("what all examples share, of a loop that has their carries, too", function()
    local f = ml.custom_vjp(function(x) return x:sin() end,
      {fwd = function(x) return x:sin(), x end, bwd = function(x, ct) return ct * x:cos() * 0.5 end})
    local readers = {
      op = function(y) return y:sin() end,
      loop = function(y) return (select(2, ml.scan(function(c, v) return c, v * y end, y, y))) end,
      branch = function(y) return (ml.cond(y:sum():gt(0), function(v) return v:sin() end, ml.cos, y)) end,
      vmap = function(y) return ml.vmap(ml.sin)(y) end,
      remat = ml.remat(function(y) return y:sin():cos() end),
      custom_vjp = f,
      custom_in_loop = function(y) return (ml.scan(function(c, v) return f(c + v) end, y:at(1), y)) end,
    }
    for _, read in pairs(readers) do
      --- The gradient of a's sums over the examples: the loop's second carry alone is of each example.
      local function of(times) return ml.grad(function(a, x)
        return times(function(p)
          local last, ys = ml.scan(function(c) return {c[1] * 1.5, c[2] * c[1] * p}, c[1] end, {a, a}, nil,
            {length = 2})
          return read(ys):sum() + read(last[1]):sum(), p
        end, x)
      end, {argnums = {1, 2}}) end
      local want = of(function(fn, x)
        local total = 0
        for i = 1, 3 do total = total + fn(x:at(i)) end
        return total
      end)(rows:at(1), rows)
      local function many(fn, x) return ml.vmap(fn, {out_axes = {false, 1}})(x) * 3 end
      for _, wrap in ipairs {ml.jit, function(g) return g end} do
        local got = wrap(of(many))(rows:at(1), rows)
        for i = 1, 2 do helper.close(want[i], got[i], 1e-5) end
      end
    end
  end)

  it("gradients inside and outside", function()
    local function loss(h, x, weight)
      local last, ys = rnn(h, x, weight)
      return (last * last):sum() + ys:sum()
    end
    check(function(h, x, weight)
      return table.unpack(ml.grad(loss, {argnums = {1, 2, 3}})(h, x, weight))
    end, 3, m(rows), m(xs), s(w))
    local all = ml.jit(ml.grad(function(weight)
      return ml.vmap(loss, {in_axes = {1, 1, false}})(rows, xs, weight):sum()
    end))(w)
    local want = ml.zeros {4, 4}
    for i = 1, 3 do want = want + ml.grad(loss, {argnums = 3})(rows:at(i), xs:at(i), w) end
    helper.close(want, all, 1e-5)
  end)

  it("nested loops, a loop in nested maps, a map in a loop", function()
    check(function(x)
      return (ml.scan(function(c, slice)
        local inner = ml.scan(function(d, e) return d * 0.5 + e, d end, c:sum(), slice)
        return c + inner, inner
      end, ml.zeros {2}, x))
    end, 3, m(xs))
    local twice = ml.vmap(ml.vmap(function(h, x) return (rnn(h, x, w)) end, {in_axes = {1, false}}),
      {in_axes = {false, 1}})(rows, xs)
    for i = 1, 3 do
      for k = 1, 3 do helper.close((rnn(rows:at(k), xs:at(i), w)), twice:at(i, k), 1e-5) end
    end
    helper.close((ml.vmap(function(h, x) return (rnn(h, x, w)) end)(rows, xs)),
      (ml.scan(function(c, x) return ml.vmap(function(a, b) return (a:matmul(w) + b):tanh() end)(c, x), c end,
        rows, xs:swapaxes(1, 2))), 1e-5)
  end)

  it("C5: random bits are those of each example's key", function()
    local keys = random.split(random.key(8), 3)
    check(function(key)
      return (ml.scan(function(c, i) return c + random.normal(random.fold_in(key, i), {2}), c end,
        ml.zeros {2}, ml.arange(4)))
    end, 3, m(keys))
  end)
end)

describe("vmap of while_loop: C1, C3:", function()
  it("examples that stop at different times", function()
    check(function(x)
      return ml.while_loop(function(c) return c:sum():lt(20.0) end, function(c) return c * 1.5 + 0.1 end, x)
    end, 3, m(rows:abs() + ml.arange(3.0):reshape(3, 1)))
  end)

  it("one number of iterations for all", function()
    check(function(x)
      local out = ml.while_loop(function(c) return c[1]:lt(4) end,
        function(c) return {c[1] + 1, c[2]:sin() + x} end, {ml.tensor(0), x})
      return out[1], out[2]
    end, 3, m(rows))
  end)

  it("fori_loop with bounds of each example's own", function()
    check(function(n, x) return ml.fori_loop(0, n, function(i, c) return c + x * i end, x) end, 3,
      m(ml.tensor {0, 2, 5}), m(rows))
  end)
end)

describe("vmap of cond and switch: C1, C3:", function()
  local function up(x) return x * 2, ml.tensor(1.0) end
  local function down(x) return x - 1, ml.tensor(2.0) end

  it("one branch for all", function()
    check(function(p, x) return ml.cond(p, up, down, x) end, 3, s(ml.tensor(true)), m(rows))
    check(function(p, x) return ml.cond(p, up, down, x) end, 3, s(ml.tensor(false)), m(rows))
  end)

  it("each example its own: a select", function()
    check(function(p, x) return ml.cond(p, up, down, x) end, 3, m(ml.tensor {true, false, true}), m(rows))
    check(function(p, x) return ml.cond(p, up, down, x) end, 3, m(ml.tensor {true, false, true}), s(rows))
    local branches = {ml.sin, ml.cos, function(x) return x end}
    check(function(i, x) return ml.switch(i, branches, x) end, 5, m(ml.tensor {2, 0, 1, -3, 9}),
      m(random.normal(random.key(5), {5, 4})))
  end)

  it("and gradients", function()
    local function loss(p, x) return (ml.cond(p, up, down, x:sin())):square():sum() end
    check(function(p, x) return ml.grad(loss, {argnums = 2})(p, x) end, 3, m(ml.tensor {true, false, true}),
      m(rows))
  end)
end)

it("C3: loops on many examples lie where the examples lie", function()
  local mesh = ml.make_mesh({4, 2}, {"data", "model"})
  local h, x = random.normal(random.key(6), {8, 4}), random.normal(random.key(7), {8, 5, 4})
  local step = ml.jit(ml.vmap(function(a, b) return (rnn(a, b, w)) end))
  local put = {ml.device_put(h, ml.NamedSharding(mesh, ml.P("data"))),
    ml.device_put(x, ml.NamedSharding(mesh, ml.P("data")))}
  local y = step(table.unpack(put))
  helper.close(step(h, x), y, 1e-5)
  assert.equal('P("data", nil)', tostring(y.sharding.spec))
  assert.same({}, step:plan(table.unpack(put)):collectives())
end)

it("C4: remat of a loop's body, and of a loop", function()
  local function loss(layer) return function(h, x)
    local last, ys = ml.scan(function(c, slice)
      local next = layer(c, slice)
      return next, next
    end, h, x)
    return last:sum() + ys:square():sum()
  end end
  local function layer(c, slice) return ((c:matmul(w) + slice):tanh():matmul(w):sin() * 2):tanh() end
  local h, x = rows:at(1), random.normal(random.key(9), {64, 4})
  local plain = ml.jit(ml.value_and_grad(loss(layer), {argnums = {1, 2}}))
  local saving = ml.jit(ml.value_and_grad(loss(ml.remat(layer)), {argnums = {1, 2}}))
  local whole = ml.jit(ml.value_and_grad(ml.remat(loss(layer)), {argnums = {1, 2}}))
  local l1, g1 = plain(h, x)
  for _, step in ipairs {saving, whole} do
    local l2, g2 = step(h, x)
    helper.close(l1, l2)
    for i = 1, 2 do helper.close(g1[i], g2[i]) end
  end
  assert.truthy(saving:plan(h, x):memory().temporaries < plain:plan(h, x):memory().temporaries)
end)
