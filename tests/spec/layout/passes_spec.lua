-- devices: 8
-- passes_spec.lua: each pass that only changes costs, off and on: the same values, and the change that it is for.
local helper = require "spec.helper"
local ml = require "meshlua"
local nn, P = ml.nn, ml.P

local mesh

before_each(function() mesh = ml.make_mesh({8}, {"data"}) end)
after_each(function()
  ml.config {passes = {hoist = "default", reassociate = "default", bucket = "default", overlap = "default",
    sum_products = "default", fuse = "default"}}
end)

--- Whole numbers, so that sums are exact in any order.
local function whole(key, shape, spec)
  local x = ml.random.randint(ml.random.key(key), shape, -4, 5):astype "float32"
  return ml.device_put(x, ml.NamedSharding(mesh, spec))
end

--- The plan and the results of fn(...) with a pass off and on.
local function both(pass, fn, ...)
  local plans, results = {}, {}
  for i, on in ipairs {false, true} do
    ml.config {passes = {[pass] = on}}
    local step = ml.jit(fn, {mesh = mesh})
    plans[i] = step:plan(...)
    results[i] = table.pack(step(...))
  end
  for i = 1, results[1].n do assert.same(results[1][i]:totable(), results[2][i]:totable()) end
  return plans[1], plans[2]
end

local function ops(plan)
  local list = {}
  for i, c in ipairs(plan:collectives()) do list[i] = c.op .. " " .. math.tointeger(c.bytes) end
  return list
end

--- The steps' kernels in order, collectives by their op.
local function order(plan)
  local list = {}
  for i, s in ipairs(plan:steps()) do list[i] = s.kernel end
  return table.concat(list, " ")
end

describe("switching passes:", function()
  it("reassociate: a sum of partial sums is reduced once", function()
    local x, v = whole(1, {8, 32}, P(nil, "data")), whole(2, {8, 32}, P(nil, "data"))
    local w = whole(3, {32, 4}, P "data")
    local function fn(a, b, c) return a:matmul(c) + b:matmul(c) end
    local off, on = both("reassociate", fn, x, v, w)
    assert.equal(2 * 8 * 4 * 4, (function()
      local n = 0
      for _, c in ipairs(off:collectives()) do n = n + c.bytes end
      return math.tointeger(n)
    end)())
    assert.same({"all_reduce 128"}, ops(on))
  end)

  it("bucket: all_reduces go together", function()
    local x, w, b = whole(1, {16, 8}, P "data"), whole(2, {8, 4}, P()), whole(3, {4}, P())
    local function fn(a, m, c)
      local grads = ml.grad(function(p) return ((a:matmul(p[1]) + p[2]) ^ 2):sum() end)({m, c})
      return m - grads[1], c - grads[2]
    end
    local off, on = both("bucket", fn, x, w, b)
    assert.same({"all_reduce 16", "all_reduce 128"}, ops(off))
    assert.same({"all_reduce 144"}, ops(on))
  end)

  it("fuse: elementwise ops run as one program", function()
    local x = whole(1, {16, 8}, P "data")
    local off, on = both("fuse", function(a) return (a * 2 + 1):abs() end, x)
    assert.equal("fused fused fused", order(off))
    assert.equal("fused", order(on))
  end)

  helper.on_processors("a GPU weighs it up in another way",
    "fuse: what only other programs read is computed again where that is cheaper than keeping it", function()
    local x, w, v = whole(1, {16, 8}, P "data"), whole(2, {8, 32}, P()), whole(3, {32, 8}, P())
    local function kept(activation)
      local _, on = both("fuse", function(a, m, n)
        return ml.grad(function(q) return activation(a:matmul(q)):matmul(n):square():sum() end)(m)
      end, x, w, v)
      local count = 0
      for _, step in ipairs(on:steps()) do
        if step.kernel == "fused" then count = count + #step.outputs end
      end
      return count
    end
    -- Forward stores gelu's result alone: backward starts from the product. The others: the two gradients.
    assert.equal(3, kept(ml.nn.gelu))
    -- A power costs more than it takes to store: forward keeps it beside the result.
    assert.equal(4, kept(function(u) return (u * u + 1) ^ 0.3 * u end))
  end)

  it("sum_products: a sum of products with narrow operands is one product of longer ones", function()
    local function narrow(key)
      return whole(key, {64, 16}, P(nil, "data")), whole(key + 10, {16, 64}, P "data")
    end
    local x, v = narrow(1)
    local y, w = narrow(2)
    local bias = whole(3, {64, 64}, P())
    local off, on = both("sum_products", function(a, b, c, d, e)
      return a:matmul(b) + (e + c:matmul(d))
    end, x, v, y, w, bias)
    assert.equal(2, select(2, order(off):gsub("matmul", "")))
    assert.equal(1, select(2, order(on):gsub("matmul", "")))
    assert.equal(2, select(2, order(on):gsub("concat", "")))
    assert.same(ops(off), ops(on))
    -- Not where the operands are larger than the results, where a product is read by others, too, or
    -- where the rest of the operands differ.
    local function same(...)
      local a, b = both("sum_products", ...)
      assert.equal(order(a), order(b))
    end
    local long, longer = whole(5, {8, 512}, P()), whole(6, {512, 8}, P())
    same(function(a, b) return a:matmul(b) + (a + 1):matmul(b + 1) end, long, longer)
    same(function(a, b, c, d)
      local first = a:matmul(b)
      return first + c:matmul(d), first
    end, x, v, y, w)
    same(function(a, b, c, d) return a:matmul(b) + c:matmul(d):transpose() end, x, v, y, w)
  end)

  it("hoist: gradients that a loop adds up over microbatches are reduced once, behind it", function()
    local function step(w, init, xs)
      return (ml.scan(function(c, x)
        return c + ml.grad(function(v) return (x:matmul(v) * 0.5):sum() end)(w)
      end, init, xs))
    end
    local off, on = both("hoist", step, whole(1, {4, 2}, P()), whole(2, {4, 2}, P()),
      whole(3, {5, 8, 4}, P(nil, "data")))
    local function times(plan)
      local n = 0
      for _, c in ipairs(plan:collectives()) do n = n + c.times end
      return n
    end
    assert.equal(5, times(off))
    assert.equal(1, times(on))
    -- Means, too: what is between the reduction and the sum is linear, and alike on all devices.
    local function mean_step(w, init, xs)
      local sum = ml.scan(function(c, x)
        local loss, grad = ml.value_and_grad(function(v) return (x:matmul(v) ^ 2):mean() end)(w)
        return {loss = c.loss + loss / 4, grad = c.grad + grad / 4} -- exact in binary
      end, {loss = 0.0, grad = init}, xs)
      return sum.loss, sum.grad
    end
    off, on = both("hoist", mean_step, whole(1, {4, 2}, P()), whole(2, {4, 2}, P()),
      whole(3, {5, 8, 4}, P(nil, "data")))
    assert.equal(5, times(off))
    assert.equal(1, times(on))
    -- Not so a square, which is of the sum; nor what two read.
    local function square_step(w, init, xs)
      return (ml.scan(function(c, x) return c + x:matmul(w):sum(1) ^ 2 end, init, xs))
    end
    off, on = both("hoist", square_step, whole(1, {4, 2}, P()), ml.zeros {2},
      whole(3, {5, 8, 4}, P(nil, "data")))
    assert.equal(5, times(off))
    assert.equal(5, times(on))
    local function shared_step(w, init, xs)
      return ml.scan(function(c, x)
        local sum = x:matmul(w):sum(1)
        return c + sum * 0.5, sum
      end, init, xs)
    end
    off, on = both("hoist", shared_step, whole(1, {4, 2}, P()), ml.zeros {2},
      whole(3, {5, 8, 4}, P(nil, "data")))
    assert.equal(5, times(off))
    assert.equal(5, times(on))
  end)

  helper.on_processors("a GPU computes longer, and waits elsewhere",
    "overlap: a weight is gathered while the layer before computes, a gradient scattered behind", function()
    local M = nn.module "M"
    function M:init(rngs)
      self.layers = {}
      for i = 1, 3 do
        self.layers[i] = nn.Linear(256, 256, {rngs = rngs, axes = {"a", "b"}, use_bias = false})
      end
    end
    function M:__call(x)
      for _, layer in ipairs(self.layers) do x = nn.relu(layer(x)) end
      return x
    end
    local rules = {ml.shard_largest "data", {"a", false}, {"b", false}}
    local model = ml.init(function(rngs) return M(rngs) end, {mesh = mesh, rules = rules})
    local x = whole(1, {128, 256}, P "data")
    local off, on = both("overlap", function(m, a)
      local grads = ml.grad(function(v) return (v(a) ^ 2):mean() end)(m)
      local updated = {}
      for i, layer in ipairs(m.layers) do
        updated[i] = ml.constrain(layer.kernel - grads.layers[i].kernel, P "data")
      end
      return table.unpack(updated)
    end, model, x)
    assert.same(#off:collectives(), #on:collectives())
    local a, b = order(off), order(on)
    assert.is_nil(a:find("done", 1, true))
    assert.truthy(a:match "^all_gather matmul fused all_gather matmul fused all_gather matmul", a)
    -- The second layer's weight is on its way while the first is used.
    assert.truthy(b:match "^all_gather all_gather done matmul fused all_gather done matmul", b)
    -- A gradient is scattered while the next is computed.
    assert.truthy(b:match "reduce_scatter [a-z_ ]*matmul [a-z_ ]*done", b)
    local _, waits = b:gsub("done", "")
    assert.equal(#on:collectives(), waits, "every result is waited for")
  end)

  it("overlap: of layers that are a loop, the next weight and the last gradient are on their way", function()
    local function fn(w, x)
      local grad = ml.grad(function(v)
        local last = ml.scan(function(c, layer) return c:matmul(layer) end, x, v)
        return (last * last):mean()
      end)(w)
      return ml.constrain(w - grad, P(nil, "data"))
    end
    for layers = 1, 4 do
      local w, x = whole(1, {layers, 16, 16}, P(nil, "data")), whole(2, {8, 16}, P "data")
      local off, on = both("overlap", fn, w, x)
      assert.same(#off:collectives(), #on:collectives())
      local crossing = {}
      for _, s in ipairs(on:steps()) do
        if s.shift then crossing[#crossing + 1] = s.kernel .. " " .. s.shift end
      end
      local wanted = {"all_gather 1", "all_gather 1", "done -1"}
      assert.same(layers > 1 and wanted or {}, crossing)
    end
  end)

  it("overlap: what is sent is held until the wait, where it is a copy, too", function()
    local grid = ml.make_mesh({4, 2}, {"x", "y"})
    ml.config {passes = {overlap = true}}
    local x = ml.device_put(ml.arange(64):reshape {8, 8}, ml.NamedSharding(grid, P("x")))
    local text = tostring(ml.jit(function(t)
      return ml.constrain(t, ml.NamedSharding(grid, P {"y", "x"})),
        ml.constrain(t, ml.NamedSharding(grid, P(nil, "x")))
    end):plan(x))
    local sent, waited = {}, 0
    for from, to in text:gmatch "permute[^:]* : (%S+) %-> (%S+)" do sent[to] = from end
    for result, held in text:gmatch "done : (%S+) (%S+) %->" do
      if sent[result] then assert.equal(sent[result], held, text) end
      waited = waited + (sent[result] and 1 or 0)
    end
    assert.equal(1, waited, text)
  end)

  it("overlap: on by itself where links do not need the processor", function()
    local x, w = whole(1, {16, 8}, P "data"), whole(2, {8, 4}, P())
    local function fn(a, m) return ml.grad(function(p) return a:matmul(p):sum() end)(m) end
    assert.is_nil(order(ml.jit(fn):plan(x, w)):find("done", 1, true))
    ml.config {passes = {overlap = true}}
    assert.truthy(order(ml.jit(fn):plan(x, w)):find("done", 1, true))
  end)

  it("a switch replans a jitted function, and says so", function()
    local step = ml.jit(function(a) return a * 2 + 1 end)
    local x = whole(1, {16, 8}, P "data")
    step(x)
    ml.config {passes = {fuse = false}}
    step(x)
    assert.truthy(step:why_miss():find("passes switched", 1, true))
  end)

  it("names that are none are errors", function()
    helper.raises("there is no pass 'buckets' to switch; did you mean 'bucket'?", ml.config,
      {passes = {buckets = false}})
    helper.raises("fuse is 1; expected true, false", ml.config, {passes = {fuse = 1}})
  end)
end)
