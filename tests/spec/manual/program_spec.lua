-- devices: 8
-- Programs of shard_map against naive Lua, or the same program on one device.
local helper = require "spec.helper"
local manual = require "spec.manual.manual"
local ml = require "meshlua"

local P = ml.P
local wave = manual.wave
local line = ml.make_mesh({8}, {"i"})
local grid = ml.make_mesh({4, 2}, {"x", "y"})

local function ring(n, by)
  local pairs_of = {}
  for i = 0, n - 1 do pairs_of[i + 1] = {i, (i + by) % n} end
  return pairs_of
end

it("a ring of ppermutes is an all-reduce", function()
  local x = wave {8, 5}
  local f = ml.shard_map(function(a)
    local sum, passing = a, a
    for _ = 1, 7 do
      passing = ml.ppermute(passing, "i", ring(8, 1))
      sum = sum + passing
    end
    return sum
  end, {mesh = line, in_specs = P "i", out_specs = P "i"})
  local rows, want = x:totable(), {}
  for j = 1, 5 do
    want[j] = 0
    for i = 1, 8 do want[j] = want[j] + rows[i][j] end
  end
  for _, row in ipairs(f(x):totable()) do
    for j = 1, 5 do assert.truthy(math.abs(row[j] - want[j]) < 1e-12) end
  end
end)

it("a matrix product split over its inner dim is a psum of products", function()
  local x, w = wave {6, 16}, wave {16, 5}
  local f = ml.shard_map(function(a, b) return ml.psum(a:matmul(b), "i") end,
    {mesh = line, in_specs = {P(nil, "i"), P "i"}, out_specs = P()})
  local a, b, got = x:totable(), w:totable(), f(x, w):totable()
  for i = 1, 6 do
    for j = 1, 5 do
      local want = 0
      for k = 1, 16 do want = want + a[i][k] * b[k][j] end
      assert.truthy(math.abs(got[i][j] - want) < 1e-12)
    end
  end
end)

it("a collective matrix product goes round while it multiplies", function()
  -- Cannon's way on a line: the blocks of w go round, each device multiplies what it has.
  local x, w = wave {8, 16}, wave {16, 3}
  local f = ml.shard_map(function(a, b)
    local i, sum = ml.axis_index "i", 0
    for step = 0, 7 do
      local from = (i + step) % 8 -- whose rows of w these are
      local columns = ml.take(a, from * 2 + ml.arange(2), 2)
      sum = sum + columns:matmul(b)
      b = ml.ppermute(b, "i", ring(8, -1))
    end
    return sum
  end, {mesh = line, in_specs = {P "i", P "i"}, out_specs = P "i"})
  helper.close(f(x, w), x:matmul(w), 1e-12)
end)

it("a stencil over a split dim gets its halo from the neighbours", function()
  local x = wave {32}
  local f = ml.shard_map(function(a)
    local left = ml.ppermute(a:slice({4, 4}), "i", {{0, 1}, {1, 2}, {2, 3}, {3, 4}, {4, 5}, {5, 6}, {6, 7}})
    local right = ml.ppermute(a:slice({1, 1}), "i", {{1, 0}, {2, 1}, {3, 2}, {4, 3}, {5, 4}, {6, 5}, {7, 6}})
    local all = ml.concat {left, a, right}
    return all:slice({1, 4}) - 2 * a + all:slice({3, 6})
  end, {mesh = line, in_specs = P "i", out_specs = P "i"})
  local v, got = x:totable(), f(x):totable()
  for k = 1, 32 do
    local want = (v[k - 1] or 0) - 2 * v[k] + (v[k + 1] or 0)
    assert.truthy(math.abs(got[k] - want) < 1e-12, k)
  end
  manual.check_gradient(function(a) return (f(a) * ml.sin(f(a))):sum() end, wave {32})
end)

it("psum_scatter and all_gather are psum", function()
  local x = wave {8, 16}
  local f = ml.shard_map(function(a)
    local parts = ml.psum_scatter(a, "i", {scatter_dimension = 2, tiled = true})
    return ml.all_gather(parts, "i", {axis = 2, tiled = true}), ml.psum(a, "i")
  end, {mesh = line, in_specs = P "i", out_specs = {P "i", P()}})
  local both, sum = f(x)
  for i = 1, 8 do helper.close(both:slice({i, i}), sum, 1e-12) end
end)

it("tokens that go to their experts and come back are where they were", function()
  -- A token of expert e goes to device e: every device has 2 slots for each expert.
  local x = wave {64, 3}
  local f = ml.shard_map(function(tokens)
    local slots = tokens:reshape {8, 2, 3} -- by expert
    local there = ml.all_to_all(slots, "i", 1, 1, {tiled = true})
    local done = there * (ml.axis_index "i" + 1)
    return ml.all_to_all(done, "i", 1, 1, {tiled = true}):reshape {16, 3}
  end, {mesh = ml.make_mesh({8}, {"i"}), in_specs = P "i", out_specs = P "i"})
  local big = ml.concat {x, x}
  local got, rows = f(big):totable(), big:totable()
  for t = 1, 128 do
    local expert = (t - 1) % 16 // 2
    for j = 1, 3 do assert.truthy(math.abs(got[t][j] - rows[t][j] * (expert + 1)) < 1e-12) end
  end
end)

it("a softmax over a split dim", function()
  local x = wave {3, 16}
  local f = ml.shard_map(function(a)
    local most = ml.pmax(ml.stop_gradient(a:max(2, true)), "i")
    local e = ml.exp(a - most)
    return e / ml.psum(e:sum(2, true), "i")
  end, {mesh = line, in_specs = P(nil, "i"), out_specs = P(nil, "i")})
  helper.close(f(x), x:softmax(2), 1e-12)
  local weight = wave {3, 16}
  local function loss(of) return function(a) return (of(a) * weight):sum() end end
  helper.close(ml.grad(loss(f))(x), ml.grad(loss(function(a) return a:softmax(2) end))(x), 1e-12)
end)

it("a two-layer block, Megatron's way, with its gradients", function()
  local x, up, down = wave {8, 6}, wave {6, 12}, wave {12, 6}
  local block = ml.shard_map(function(a, u, d)
    return ml.psum(ml.tanh(a:matmul(u)):matmul(d), "y")
  end, {mesh = grid, in_specs = {P "x", P(nil, "y"), P "y"}, out_specs = P "x"})
  local function whole(a, u, d) return ml.tanh(a:matmul(u)):matmul(d) end
  local function loss(of) return function(a, u, d) return (of(a, u, d) ^ 2):sum() end end
  local step = ml.jit(ml.value_and_grad(loss(block), {argnums = {1, 2, 3}}))
  local got, grads = step(x, up, down)
  local want, want_grads = ml.value_and_grad(loss(whole), {argnums = {1, 2, 3}})(x, up, down)
  helper.close(got, want, 1e-10)
  for i = 1, 3 do helper.close(grads[i], want_grads[i], 1e-10) end
end)

it("a program between two maps, all of it differentiated twice", function()
  local x = wave {8}
  local sq = ml.shard_map(function(a) return a * a * ml.psum(a:sum(), "i") end,
    {mesh = line, in_specs = P "i", out_specs = P "i"})
  local cube = ml.shard_map(function(a) return ml.psum((a * a * a):sum(), "i") end,
    {mesh = line, in_specs = P "i", out_specs = P()})
  local function f(a) return cube(ml.sin(sq(a))) end
  local function g(a) return ((ml.sin(a * a * a:sum())) ^ 3):sum() end
  helper.close(f(x), g(x), 1e-12)
  helper.close(ml.grad(f)(x), ml.grad(g)(x), 1e-10)
  local function second(h) return ml.grad(function(a) return (ml.grad(h)(a) * wave {8}):sum() end) end
  helper.close(second(f)(x), second(g)(x), 1e-8)
end)

it("random numbers inside: the same on all devices, unless the place goes into the key", function()
  local f = ml.shard_map(function()
    local key = ml.random.key(3)
    local own = ml.random.fold_in(key, ml.axis_index "i")
    return ml.random.uniform(key, {2}), ml.random.uniform(own, {2})
  end, {mesh = line, in_specs = {}, out_specs = {P(), P "i"}})
  local same, own = f()
  helper.close(same, ml.random.uniform(ml.random.key(3), {2}), 0)
  local all = own:totable()
  for i = 0, 7 do
    local want = ml.random.uniform(ml.random.fold_in(ml.random.key(3), i), {2}):totable()
    assert.same(want, {all[2 * i + 1], all[2 * i + 2]})
  end
end)

it("on devices that are not there: planned, not run", function()
  local out, err, code = helper.run {"--devices=fake:64", helper.file [[
    local ml = require "meshlua"
    local mesh = ml.make_mesh({8, 8}, {"x", "y"})
    local f = ml.jit(ml.shard_map(function(a, b) return ml.psum(a:matmul(b), "y") end,
      {mesh = mesh, in_specs = {ml.P("x", "y"), ml.P "y"}, out_specs = ml.P "x"}))
    local x, w = ml.zeros {64, 64}, ml.zeros {64, 16}
    print(ml.typeof(f(x, w)), #f:plan(x, w):collectives(), f:plan(x, w):collectives()[1].op)
  ]]}
  assert.same({"float32[64@x,16]\t1\tall_reduce\n", 0}, {out, code}, err)
end)
