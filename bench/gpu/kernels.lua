-- kernels.lua [SCALE]: how fast single kernels are: a line "NAME ms=MS rate=RATE unit=UNIT" for each; GB/s counts the
-- bytes that must move, TFLOP/s the operations that must be done. SCALE divides the sizes, to try it out.
local ml = require "meshlua"
local nn = ml.nn

local scale = tonumber(arg[1] or 1)
local rows, width, vocab = 65536 // scale, 768, 50304 // scale // 8 * 8

local seed = 0
local function normal(shape, dtype)
  seed = seed + 1
  return ml.random.normal(ml.random.key(seed), shape):astype(dtype or "bfloat16")
end

--- Seconds of a call: enough of them to fill a fifth of a second, after a few to warm up.
local function seconds(fn)
  for _ = 1, 4 do fn() end
  ml.block_until_ready(fn())
  local clock, n = ml.core.clock, 1
  while true do
    local before = clock()
    local last
    for _ = 1, n do last = fn() end
    ml.block_until_ready(last)
    local spent = clock() - before
    if spent > 0.2 or n >= 4096 then return spent / n end
    n = n * 2
  end
end

local function report(name, unit, work, fn)
  local s = seconds(fn)
  local size = unit == "GB/s" and 1e9 or 1e12
  print(("%s ms=%.4f rate=%.1f unit=%s"):format(name, 1e3 * s, work / s / size, unit))
  io.flush()
end

local function bandwidth(name, bytes, fn) report(name, "GB/s", bytes, fn) end
local function products(name, operations, fn) report(name, "TFLOP/s", operations, fn) end

-- ---- what memory bounds ---------------------------------------------------------------------------------
local half, whole = 2, 4 -- bytes of bfloat16, float32
do
  local x = normal({rows, 4 * width}, "float32")
  local double = ml.jit(function(a) return a * 2 end)
  bandwidth("copy", 2 * whole * x.size, function() return double(x) end)
end
do
  local x, w, b, dy = normal {rows, width}, normal {width}, normal {width}, normal {rows, width}
  local forward = ml.jit(function(a, s, c) return (ml.core.op.layer_norm(a, s, c, {eps = 1e-5})) end)
  bandwidth("layer_norm", 2 * half * x.size, function() return forward(x, w, b) end)
  local both = ml.jit(function(a, s, c, d)
    return ml.grad(function(v)
      return ((ml.core.op.layer_norm(v.a, v.s, v.c, {eps = 1e-5})) * d):astype("float32"):sum()
    end) {a = a, s = s, c = c}
  end)
  bandwidth("layer_norm gradient", 5 * half * x.size, function() return both(x, w, b, dy) end)
  local softmax = ml.jit(function(a) return a:softmax(-1) end)
  bandwidth("softmax", 2 * half * x.size, function() return softmax(x) end)
  local gelu = ml.jit(function(a, c) return nn.gelu(a + c) end)
  bandwidth("bias gelu", 2 * half * x.size, function() return gelu(x, b) end)
  local columns = ml.jit(function(a) return a:astype("float32"):sum(1) end)
  bandwidth("bias gradient", half * x.size, function() return columns(x) end)
end
do
  local logits = normal {rows // 8, vocab}
  local labels = ml.random.randint(ml.random.key(0), {rows // 8}, 0, vocab)
  local both = ml.jit(function(x, ids)
    return ml.value_and_grad(function(a)
      return nn.softmax_cross_entropy_with_integer_labels(a, ids):astype("float32"):mean()
    end)(x)
  end)
  bandwidth("cross_entropy, both", 2 * half * logits.size, function() return both(logits, labels) end)
end
do
  local model = {w = ml.core.box_new(normal({rows // 8, 4 * width}, "float32"), {kind = "param"})}
  local optimizer = ml.optim.adamw(model, {lr = 1e-3, weight_decay = 0.1})
  local grads = {w = normal({rows // 8, 4 * width}, "float32")}
  local step = ml.jit(function(m, o, g)
    o:update(m, g)
    return m.w:sum() * 0
  end)
  bandwidth("adamw", 7 * whole * grads.w.size, function() return step(model, optimizer, grads) end)
end

-- ---- products ---------------------------------------------------------------------------------------------
for _, shape in ipairs {{rows, width, 3 * width}, {rows, width, 4 * width}, {rows, 4 * width, width},
  {rows // 2, width, vocab}, {8192 // scale, 8192 // scale, 8192 // scale}} do
  local m, k, n = table.unpack(shape)
  local x, w = normal {m, k}, normal {k, n}
  local product = ml.jit(function(a, b) return a:matmul(b) end)
  products(("matmul %dx%dx%d"):format(m, k, n), 2.0 * m * k * n, function() return product(x, w) end)
end
-- What follows a product in a step of GPT-2, in the same plan, where it may be done by the product (docs/products.md),
-- and in one of its own, where it cannot: "apart".
do
  local function pair(what, m, k, n, follow, ...)
    local x, w, more = normal {m, k}, normal {k, n}, {...}
    local name, operations = ("matmul, %s %dx%dx%d"):format(what, m, k, n), 2.0 * m * k * n
    local product = ml.jit(function(a, b) return a:matmul(b) end)
    local after = ml.jit(function(p, ...) return follow(p, ...) end)
    local both = ml.jit(function(a, b, ...) return follow(a:matmul(b), ...) end)
    products(name, operations, function() return (both(x, w, table.unpack(more))) end)
    products(name .. ", apart", operations, function() return (after(product(x, w), table.unpack(more))) end)
  end
  local inner, bias, wide = normal {rows, 4 * width}, normal {width}, normal {4 * width}
  pair("bias", rows, width, width, function(p, b) return p + b end, bias)
  local residual = normal {rows, width}
  pair("bias, residual", rows, 4 * width, width, function(p, b, c) return p + b + c end, bias, residual)
  pair("bias, gelu", rows, width, 4 * width, function(p, b)
    local h = p + b
    return nn.gelu(h), h
  end, wide)
  pair("gelu's slope", rows, width, 4 * width, function(p, h)
    return p * ml.grad(function(v) return nn.gelu(v):astype("float32"):sum() end)(h)
  end, inner)
  pair("sum", width, rows, width, function(p, c) return p + c end, normal {width, width})
  local x, dy, operations = normal {rows, width}, normal {rows, 4 * width}, 2.0 * rows * width * 4 * width
  local w, b = normal({width, 4 * width}, "float32"), normal({4 * width}, "float32")
  local function gradients(which)
    return ml.jit(function(a, g, weight, add)
      return ml.grad(function(v)
        local y = a:matmul((v.weight or weight):astype "bfloat16") + (v.add or add):astype "bfloat16"
        return (y * g):astype("float32"):sum()
      end)(which(weight, add))
    end)
  end
  local both = gradients(function(weight, add) return {weight = weight, add = add} end)
  local of_weight = gradients(function(weight) return {weight = weight} end)
  local of_bias = gradients(function(_, add) return {add = add} end)
  local name = ("matmul, bias's gradient %dx%dx%d"):format(width, rows, 4 * width)
  products(name, operations, function() return both(x, dy, w, b) end)
  products(name .. ", apart", operations, function()
    return {of_weight(x, dy, w, b), of_bias(x, dy, w, b)}
  end)
end
do
  local b, t, h, d = 64 // math.min(scale, 32), 1024 // scale, 12, 64
  local q, k, v, dy = normal {b, t, h, d}, normal {b, t, h, d}, normal {b, t, h, d}, normal {b, t, h, d}
  local operations = 2.0 * b * h * t * t * d -- two products, of which a causal mask leaves half
  local forward = ml.jit(function(x, y, z) return nn.attention(x, y, z, {causal = true}) end)
  products("attention", operations, function() return forward(q, k, v) end)
  local both = ml.jit(function(x, y, z, g)
    return ml.grad(function(s)
      return (nn.attention(s.x, s.y, s.z, {causal = true}) * g):astype("float32"):sum()
    end) {x = x, y = y, z = z}
  end)
  products("attention, both", 3.5 * operations, function() return both(q, k, v, dy) end)
end

-- ---- calls ------------------------------------------------------------------------------------------------
do
  local xs = {}
  for i = 1, 16 do xs[i] = ml.core.box_new(normal({8}, "float32"), {kind = "param"}) end
  local step = ml.jit(function(list)
    for i = 1, 16 do list[i]:set(list[i] * 0.5 + 1) end
  end)
  for _ = 1, 4 do step(xs) end
  ml.core.wait()
  local clock, host = ml.core.clock, 0
  for _ = 1, 1000 do
    local before = clock()
    step(xs)
    host = host + clock() - before
    if _ % 100 == 0 then ml.core.wait() end
  end
  print(("replayed step ms=%.4f rate=%.2f unit=us of the host"):format(host, 1e3 * host))
end
