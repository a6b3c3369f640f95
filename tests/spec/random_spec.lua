-- devices: 8
-- random_spec.lua: ml.random against jax.random (tests/oracle/jax_random.py), whatever the layout and the
-- kernels; and that a sharded draw sends nothing and holds no more than its part.
local ml = require "meshlua"
local oracle = require "spec.oracle"
local random = ml.random

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
function draw.randint(key, c) return random.randint(key, c.shape, c.args.low, c.args.high, c.args.dtype) end
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
    words[#words + 1] = name .. "=" .. (type(value) == "table" and table.concat(value, "x") or tostring(value))
  end
  table.sort(words)
  return ("%s of key %d, %s[%s] %s"):format(c.fn, c.seed, c.dtype, table.concat(c.shape, ","),
    table.concat(words, " "))
end

-- ---- bits -------------------------------------------------------------------------------------------

local width = {bool = 1, uint8 = 1, bfloat16 = 2, float16 = 2, int32 = 4, uint32 = 4, float32 = 4, float64 = 8,
  int64 = 8, uint64 = 8}

--- The elements of a tensor as unsigned words, in row-major order.
local function words_of(x)
  local bytes, size, words = x:bytes(), width[x.dtype], {}
  local format = "<" .. ("I" .. size):rep(4096)
  local n = #bytes // size
  for first = 0, n - 1, 4096 do
    local count = math.min(4096, n - first)
    local chunk = count == 4096 and format or "<" .. ("I" .. size):rep(count)
    -- In pieces that fit on the stack.
    for at = first, first + count - 1, 200 do
      local some = math.min(200, first + count - at)
      table.move({("<" .. ("I" .. size):rep(some)):unpack(bytes, at * size + 1)}, 1, some, #words + 1, words)
    end
    _ = chunk
  end
  return words
end

local function fnv1a(words)
  local h = 0xCBF29CE484222325
  for i = 1, #words do h = (h ~ words[i]) * 0x100000001B3 end
  return ("%016x"):format(h)
end
for _, c in ipairs(vectors.cases) do
    local key = random.key(c.seed)
    local ok, x = pcall(draw[c.fn], key, c)
    if not ok then print("ERR", describe_case(c), x) else
    local w = words_of(x)
    local h = fnv1a(w)
    if h ~= c.hash then
      local n, bad, most = #w, 0, 0
      for i = 0, #c.samples - 1 do
        local p = n > 64 and i*(n-1)//63 or i
        local want = tonumber(c.samples[i+1], 16)
        if want ~= w[p+1] then bad = bad + 1 most = math.max(most, math.abs(want - w[p+1])) end
      end
      print(describe_case(c), "samples bad", bad, "of", #c.samples, "most", most)
    end
    end
end
