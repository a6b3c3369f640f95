-- devices: 8
-- random_spec.lua: ml.random against jax.random (tests/oracle/jax_random.py), whatever the layout, the kernels
-- and the number of threads; and that a sharded draw sends nothing and holds no more than its part.
local helper = require "spec.helper"
local ml = require "meshlua"
local oracle = require "spec.oracle"
local program = require "meshlua.program"
local scalar = require "spec.op.scalar"
local random, P = ml.random, ml.P

local vectors = oracle.read "jax_random"

-- ---- what a case asks for ---------------------------------------------------------------------------

local draw = {}

function draw.bits(key, c) return random.bits(key, c.shape, c.args.width) end
function draw.uniform(key, c) return random.uniform(key, c.shape, c.dtype, c.args.low, c.args.high) end
function draw.normal(key, c) return random.normal(key, c.shape, c.dtype) end
function draw.gumbel(key, c) return random.gumbel(key, c.shape, c.dtype) end
function draw.truncated_normal(key, c)
  return random.truncated_normal(key, c.args.low, c.args.high, c.shape, c.dtype)
end
function draw.randint(key, c)
  return random.randint(key, c.shape, c.args.low, c.args.high, c.args.dtype)
end
function draw.bernoulli(key, c)
  if c.args.p then return random.bernoulli(key, c.args.p, c.shape) end
  return random.bernoulli(key, (ml.arange(64.0) / 64):astype(c.args.p_dtype))
end
function draw.key(key) return key end
function draw.split(key, c) return random.split(key, c.args.n) end
function draw.fold_in(key, c) return random.fold_in(key, c.args.data) end
function draw.permutation(key, c)
  local rows = c.args.rows
  return random.permutation(key, rows and ml.arange(rows[1] * rows[2] + 0.0):reshape(rows) or c.args.n)
end
function draw.categorical(key, c)
  local logits = ml.sin(ml.arange(60.0)):reshape(3, 4, 5)
  if not c.args.axis then logits = logits:at(1, 1) end
  return random.categorical(key, logits, c.args.axis and c.args.axis + 1, c.args.shape)
end

local function describe_case(c)
  local words = {}
  for name, value in pairs(c.args) do
    local text = type(value) == "table" and table.concat(value, "x") or tostring(value)
    words[#words + 1] = name .. "=" .. text
  end
  table.sort(words)
  return ("%s of key %d: %s[%s] %s"):format(c.fn, c.seed, c.dtype, table.concat(c.shape, ","),
    table.concat(words, " "))
end

-- ---- bits -------------------------------------------------------------------------------------------

local width = {bool = 1, uint8 = 1, bfloat16 = 2, float16 = 2, int32 = 4, uint32 = 4, float32 = 4,
  float64 = 8, int64 = 8}

--- Calls fn with every element of a tensor as an unsigned word, in row-major order.
local function each_word(x, fn)
  local bytes, size = x:bytes(), width[x.dtype]
  local format = "<I" .. size
  for at = 1, #bytes, size do fn((format:unpack(bytes, at))) end
end

local function fnv1a(x)
  local h = 0xCBF29CE484222325
  each_word(x, function(word) h = (h ~ word) * 0x100000001B3 end)
  return ("%016x"):format(h)
end

--- The sampled elements of a tensor, as words.
local function samples_of(x)
  local bytes, size, list = x:bytes(), width[x.dtype], {}
  local n = #bytes // size
  for i = 0, math.min(n, 64) - 1 do
    local place = n > 64 and i * (n - 1) // 63 or i
    list[i + 1] = ("<I" .. size):unpack(bytes, place * size + 1)
  end
  return list
end

--- A word as the float that it is, its place among the dtype's floats, and the distance to the next.
local function float_of(word, dtype)
  local bits = width[dtype] * 8
  local magnitude = word & (1 << bits - 1) - 1
  local x = ml.core.from_string(("<I" .. width[dtype]):pack(word), dtype, {}):astype "float64":item()
  return x, magnitude == word and magnitude or -magnitude
end

-- ---- against JAX ------------------------------------------------------------------------------------

local epsilon = {float64 = 2 ^ -52, float32 = 2 ^ -23, float16 = 2 ^ -10, bfloat16 = 2 ^ -7}

--- How far draws may be from JAX's: {ulps =, within = function(x) -> distance}; nil where bits are equal.
local tolerance = {}

-- In float64 JAX's inverse error function is as many units from the true one; see below.
function tolerance.normal(c)
  return {ulps = c.dtype == "float64" and 64 or 2, within = function() return 0 end}
end
-- The error functions of both bounds may round differently; the density says how far that moves a draw.
function tolerance.truncated_normal(c)
  return {ulps = c.dtype == "float64" and 64 or 2, within = function(x)
    return 2 * epsilon[c.dtype] * math.sqrt(math.pi / 2) * math.exp(x * x / 2)
  end}
end
-- -log(y) near y = 1 is as exact as y is.
function tolerance.gumbel(c) return {ulps = 2, within = function() return 4 * epsilon[c.dtype] end} end
-- XLA fuses low + u * width into one rounding in float64, too.
function tolerance.uniform(c)
  if c.dtype ~= "float64" or not c.args.low then return nil end
  local scale = math.max(math.abs(c.args.low), math.abs(c.args.high))
  return {ulps = 1, within = function() return epsilon.float64 * scale end}
end

local function check_samples(c, got, allowed)
  for i, text in ipairs(c.samples) do
    local a, place_a = float_of(tonumber(text, 16), c.dtype)
    local b, place_b = float_of(got[i], c.dtype)
    if math.abs(place_a - place_b) > allowed.ulps and not (math.abs(a - b) <= allowed.within(a)) then
      error(("sample %d: %.17g, JAX has %.17g, %d units away"):format(i, b, a, math.abs(place_a - place_b)))
    end
  end
end

local function check(c)
  local x = draw[c.fn](random.key(c.seed), c)
  assert.equal(c.dtype:gsub("uint64", "int64"), x.dtype)
  assert.same(c.shape, x.shape)
  local got, allowed = samples_of(x), tolerance[c.fn] and tolerance[c.fn](c)
  if allowed then return check_samples(c, got, allowed) end
  for i, text in ipairs(c.samples) do
    local want = tonumber(text, 16)
    if want ~= got[i] then error(("sample %d is %x, JAX has %s"):format(i, got[i], text)) end
  end
  assert.equal(c.hash, fnv1a(x))
end

describe("jax.random " .. vectors.jax .. ":", function()
  for _, c in ipairs(vectors.cases) do
    it(describe_case(c), function() check(c) end)
  end

  it("normal in float64 is sqrt(2) erf_inv(u) to a few units", function()
    local key = random.key(1)
    local low = -1.0 + 2.0 ^ -53
    local u = random.uniform(key, {200}, "float64", low, 1.0):totable()
    for i, x in ipairs(random.normal(key, {200}, "float64"):totable()) do
      local want = math.abs(u[i]) < 0.99 and math.sqrt(2) * scalar.erf_inv(u[i]) or x
      assert(math.abs(x - want) <= 8 * epsilon.float64 * math.abs(want), ("%.17g, not %.17g"):format(x, want))
    end
  end)

  it("uniform numbers of 16 bits stay below 1", function()
    for _, dtype in ipairs {"bfloat16", "float16"} do
      local x = random.uniform(random.key(0), {20000}, dtype)
      assert(x:max():item() < 1)
      assert.equal(0, x:min():item())
    end
  end)
end)

-- ---- whatever the layout ----------------------------------------------------------------------------

local line = ml.make_mesh({8}, {"x"})
local grid = ml.make_mesh({4, 2}, {"x", "y"})

--- Shardings of a tensor by its first dim, and by its first two if it has them.
local function shardings(rank)
  local list = {{line, P "x"}, {grid, P {"x", "y"}}, {grid, P {"y", "x"}}, {grid, P "x"}}
  if rank > 1 then list[5] = {grid, P("x", "y")} end
  return list
end

local function in_layout(fn, key, mesh, spec)
  local jitted = ml.jit(fn, {mesh = mesh, out_shardings = {ml.NamedSharding(mesh, spec)}})
  return jitted(key), jitted:plan(key)
end

local draws = {
  {"bits", {64, 24}}, {"uniform", {64, 24}}, {"normal", {64, 24}}, {"gumbel", {64, 24}},
  {"randint", {64, 24}, low = -5, high = 1000003}, {"truncated_normal", {64, 24}, low = -2.0, high = 3.0},
  {"bernoulli", {64, 24}, p = 0.3}, {"uniform", {8, 4, 5}, low = -0.1, high = 0.3}, {"normal", {1024, 1024}},
  {"bits", {64, 24}, width = 64}, {"bits", {64, 24}, width = 8}, {"split", {1000, 2}, n = 1000, rank = 1},
  {"normal", {64, 24}, dtype = "bfloat16"}, {"uniform", {64, 24}, dtype = "float16"},
  {"normal", {64, 24}, dtype = "float64"},
}

describe("C5: in every layout the same bits, nothing sent and nothing whole:", function()
  for _, d in ipairs(draws) do
    local c = {fn = d[1], shape = d[2], dtype = d.dtype or "float32", args = d, seed = 21}
    it(("%s [%s] %s"):format(c.fn, table.concat(c.shape, ","), d.dtype or ""), function()
      local key = random.key(c.seed)
      local function fn(k) return draw[c.fn](k, c) end
      local whole = fn(key)
      for _, s in ipairs(shardings(d.rank or #c.shape)) do
        local mesh, spec = table.unpack(s)
        local x, plan = in_layout(fn, key, mesh, spec)
        assert(x.sharding == ml.NamedSharding(mesh, spec), tostring(x.sharding))
        assert.equal(whole:bytes(), x:bytes(), tostring(spec))
        assert.same({}, plan:collectives())
        -- One device holds its part of the result, and beside it no more than such a part.
        local memory, part = plan:memory(), x:addressable_shards()[1].data.size * width[x.dtype]
        assert(memory.results <= part + 128, memory.results)
        assert(memory.temporaries <= part + 1024, memory.temporaries)
      end
    end)
  end

  it("a draw over the mesh never takes the bytes of the whole twice", function()
    local n, key = 1 << 22, random.key(0)
    local jitted = ml.jit(function(k) return random.normal(k, {n}) end,
      {mesh = line, out_shardings = {ml.NamedSharding(line, P "x")}})
    jitted(key):release()
    collectgarbage()
    local before = ml.core.memory()
    local x = jitted(key)
    -- The virtual devices share this process: its memory grows by the shards, which are the whole once.
    assert(ml.core.memory().live - before.live <= 4 * n + (1 << 16))
    assert.equal(n, x.size)
  end)

  it("categorical along a whole dim", function()
    local logits = ml.sin(ml.arange(640.0)):reshape(64, 10)
    local key = random.key(5)
    local whole = random.categorical(key, logits)
    for _, s in ipairs(shardings(1)) do
      local mesh, spec = table.unpack(s)
      local there = ml.device_put(logits, ml.NamedSharding(mesh, spec))
      local jitted = ml.jit(function(k, l) return random.categorical(k, l) end)
      assert.equal(whole:bytes(), jitted(key, there):bytes())
      assert.same({}, jitted:plan(key, there):collectives())
    end
  end)

  it("permutation, which may send", function()
    local key = random.key(6)
    local whole = random.permutation(key, 64)
    for _, s in ipairs(shardings(1)) do
      local x = in_layout(function(k) return random.permutation(k, 64) end, key, table.unpack(s))
      assert.equal(whole:bytes(), x:bytes())
    end
  end)
end)

-- ---- whatever runs it -------------------------------------------------------------------------------

-- Prints one hash per draw. What normal and its like share with no other backend they share among kernels.
local script = [[
local ml = require "meshlua"
local r, key = ml.random, ml.random.key(17)
local shape = {1000, 33}
local function hash(x)
  local bytes, h = x:bytes(), 0xCBF29CE484222325
  for at = 1, #bytes, 4 do h = (h ~ ("<I4"):unpack(bytes, at)) * 0x100000001B3 end
  print(("%016x"):format(h))
end
for _, dtype in ipairs {"float32", "float64", "bfloat16", "float16"} do
  hash(r.uniform(key, shape, dtype, -0.1, 0.3))
  hash(r.normal(key, shape, dtype))
  hash(r.truncated_normal(key, -2.0, 3.0, shape, dtype))
  hash(r.gumbel(key, shape, dtype))
end
hash(r.bits(key, shape)) hash(r.randint(key, shape, -7, 1000)) hash(r.split(key, 999))
hash(r.permutation(key, 10000)) hash(r.categorical(key, r.normal(key, {500, 20})))
]]

describe("C5: the same bits", function()
  local function run(settings)
    local out, err, code = helper.shell(settings .. ' "$MESHLUA" -', script)
    assert.equal(0, code, err)
    assert.equal(21, select(2, out:gsub("\n", "")))
    return out
  end

  for _, level in ipairs {"default", "v3", "v4"} do
    it("from kernels of level " .. level, function()
      if not program.kernels(level) then helper.pending "not for this processor" end
      assert.equal(run "", run("MESHLUA_KERNELS=" .. level))
    end)
  end

  it("on one thread and on three", function()
    assert.equal(run "MESHLUA_THREADS=1", run "MESHLUA_THREADS=3")
  end)
end)

-- ---- keys that are used twice -----------------------------------------------------------------------

describe("C6: a key that is used twice", function()
  local function checked(fn)
    return function()
      assert.is_false(random.debug_key_reuse(true))
      local _ <close> = setmetatable({}, {__close = function() random.debug_key_reuse(false) end})
      fn()
    end
  end

  it("is an error that names the place of the first use, where that is asked for", checked(function()
    local key = random.key(0)
    random.normal(key, {2})
    local first = debug.getinfo(1, "l").currentline - 1
    local message = helper.raises("[E_STATE] random.uniform: this key was used at ", function()
      random.uniform(key, {2})
    end)
    assert.truthy(message:find(("random_spec.lua:%d already"):format(first), 1, true), message)
    helper.raises("[E_STATE] random.split: this key was used", random.split, key)
    helper.raises("[E_STATE]", ml.jit(function(k)
      return random.bits(k, {2}) + random.bits(k, {2})
    end), random.key(1))
  end))

  it("is none where its parts are, whatever the draw", checked(function()
    local step = ml.jit(function(k) return random.normal(k, {2}) end)
    for _ = 1, 2 do step(random.key(3)) end
    local keys = random.keys(random.key(0), 3)
    for i = 1, 3 do random.normal(keys[i], {2}) end
    local base = random.key(1)
    for i = 1, 3 do random.normal(random.fold_in(base, i), {2}) end
    for _, d in ipairs(draws) do
      draw[d[1]](random.key(2), {fn = d[1], shape = d[2], dtype = d.dtype or "float32", args = d, seed = 2})
    end
    random.permutation(random.key(4), 100000)
    random.categorical(random.key(5), ml.zeros {2, 3})
    local model = ml.init(function(rngs)
      return {ml.nn.Linear(4, 4, {rngs = rngs}), ml.nn.Linear(4, 4, {rngs = rngs})}
    end)
    assert.equal(2, #model)
  end))

  it("gives the same numbers where nothing is asked", function()
    local key = random.key(0)
    assert.equal(random.normal(key, {4}):bytes(), random.normal(key, {4}):bytes())
    helper.raises("[E_VALUE] random.debug_key_reuse: expected true or false", random.debug_key_reuse)
  end)
end)

-- ---- bad calls --------------------------------------------------------------------------------------

describe("a bad call", function()
  local key = random.key(0)

  local function raises(code, fact, fn)
    local message = helper.raises("[" .. code .. "]", fn)
    assert(message:find(fact, 1, true), message)
    assert(message:find("random_spec.lua:", 1, true), message)
  end

  it("of a key", function()
    raises("E_VALUE", "the seed must be a whole number", function() return random.key(1.5) end)
    raises("E_VALUE", "expected a key (uint32[2])", function() return random.normal(7, {2}) end)
    raises("E_VALUE", "expected a key (uint32[2])", function() return random.bits(random.split(key), {2}) end)
    raises("E_VALUE", "expected a whole number or an integer tensor", function()
      return random.fold_in(key, 1.5)
    end)
  end)

  it("of a range or a dtype", function()
    raises("E_VALUE", "low < high within int32", function() return random.randint(key, {2}, 5, 5) end)
    raises("E_VALUE", "low < high within uint8", function()
      return random.randint(key, {2}, 0, 257, "uint8")
    end)
    raises("E_DTYPE", "gives int8 to int64 and uint8 to uint32, not float32", function()
      return random.randint(key, {2}, 0, 5, "float32")
    end)
    raises("E_DTYPE", "int32 is no float dtype", function() return random.normal(key, {2}, "int32") end)
    raises("E_VALUE", "low must be a number", function() return random.uniform(key, {2}, nil, "a") end)
    raises("E_VALUE", "the width is 8, 32 or 64, not 16", function() return random.bits(key, {2}, 16) end)
  end)

  it("of a shape", function()
    raises("E_VALUE", "whole number", function() return random.normal(key, {2.5}) end)
    raises("E_SHAPE", "axis 3 of logits of rank 2", function()
      return random.categorical(key, ml.zeros {2, 3}, 3)
    end)
    raises("E_SHAPE", "shorter than the logits' batch dims", function()
      return random.categorical(key, ml.zeros {2, 3}, -1, {})
    end)
  end)
end)
