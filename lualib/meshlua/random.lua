-- random.lua: jax.random's numbers. A key is uint32[2]; the bits of element i are threefry2x32 of the key
-- at counter i (JAX's partitionable scheme), so every device makes its own part, whatever the mesh.
local core = require "meshlua.core"
local explicit = require "meshlua.sharding.explicit"
local lib = require "meshlua.lib"
local ops = require "meshlua.ops"

local op, raise = core.op, lib.raise

local M = {}

--- A key from a seed: its high and low 32 bits.
---@param seed integer
---@return Tensor uint32[2]
function M.key(seed)
  if math.type(seed) ~= "integer" then
    raise("E_VALUE", "random.key: the seed must be a whole number, not %s", seed)
  end
  return core.tensor({seed >> 32 & 0xffffffff, seed & 0xffffffff}, "uint32")
end

local function check_key(who, key)
  if not lib.is_tensor(key) or key.dtype ~= "uint32" or key.ndim ~= 1
      or key.shape[1] ~= 2 then
    raise("E_VALUE", "%s: expected a key (uint32[2]), from random.key or random.keys, got %s", who,
      lib.is_tensor(key) and core.typeof(key) or lib.kind(key))
  end
end

-- While key reuse is looked for: key -> where it was used up.
local used

--- Switches on (or off) that a key which is used twice is an error: both draws would give the same numbers. Every
--- draw and every split uses its key up; fold_in does not.
---@param on boolean
---@return boolean before what it was
function M.debug_key_reuse(on)
  local before = used ~= nil
  if type(on) ~= "boolean" then
    raise("E_VALUE", "random.debug_key_reuse: expected true or false, got %s", lib.kind(on))
  end
  used = on and setmetatable({}, {__mode = "k"}) or nil
  return before
end

--- The user's line, as errors begin with it.
local function place()
  local _, message = pcall(raise, "E_STATE", "%s", "")
  return message:match "^(.-): %[" or "?"
end

local function use_up(who, key)
  if core.is_box(key) then key = key:get() end
  if used[key] then
    raise("E_STATE", "%s: this key was used at %s already, and would give the same numbers; take keys from "
      .. "random.split", who, used[key])
  end
  used[key] = place()
end

--- The two words of a key, as scalars.
local function words(key)
  local w = {}
  for i = 1, 2 do
    w[i] = op.reshape(op.slice(key, {start = {i - 1}, limit = {i}, step = {1}}), {dims = {}})
  end
  return w[1], w[2]
end

--- Words of 8, 32 or 64 bits: uint8, uint32, int64.
local function raw_bits(who, key, shape, width)
  if used then use_up(who, key) end
  local strides, n = {}, 1
  shape = lib.check_shape(who, shape or {})
  for d = #shape, 1, -1 do
    strides[d], n = n, n * shape[d]
  end
  local k0, k1 = words(key)
  local w = op.random_bits(ops.broadcast(k0, shape), ops.broadcast(k1, shape),
    {bits = width == 64 and 64 or 32, strides = strides})
  return width == 8 and op.astype(w, {dtype = "uint8"}) or w
end

--- Random words: uint32; uint8 for width 8, int64 for width 64.
---@param key Tensor
---@param shape integer[]?
---@param width integer? 8, 32 or 64
function M.bits(key, shape, width)
  check_key("random.bits", key)
  width = lib.check_integer("random.bits", "the width", width or 32)
  if width ~= 8 and width ~= 32 and width ~= 64 then
    raise("E_VALUE", "random.bits: the width is 8, 32 or 64, not %d", width)
  end
  return raw_bits("random.bits", key, shape, width)
end

--- int64 words (o0 << 32 | o1) as uint32 pairs in a new last dim.
local function pairs_of(w)
  local high = op.astype(op.bitand(op.shr(w, 32), 0xffffffff), {dtype = "uint32"})
  local low = op.astype(op.bitand(w, 0xffffffff), {dtype = "uint32"})
  return ops.stack({high, low}, -1)
end

--- n new keys (default 2): uint32[n, 2].
function M.split(key, n)
  check_key("random.split", key)
  return pairs_of(raw_bits("random.split", key, {n or 2}, 64))
end

--- A list of n new keys, to be taken apart: local k1, k2 = table.unpack(random.keys(key, 2)).
function M.keys(key, n)
  n = lib.check_integer("random.keys", "the number of keys", n or 2)
  local all, list = M.split(key, n), {}
  for i = 1, n do list[i] = ops.slice(all, i) end
  return list
end

--- The key that belongs to a number (a Lua integer or an integer tensor) under this key.
function M.fold_in(key, data)
  check_key("random.fold_in", key)
  local low
  if math.type(data) == "integer" then
    low = op.full {dtype = "uint32", dims = {}, value = data & 0xffffffff}
  elseif lib.is_tensor(data) then
    low = op.astype(data, {dtype = "uint32"})
  else
    raise("E_VALUE", "random.fold_in: expected a whole number or an integer tensor")
  end
  local k0, k1 = words(key)
  local zero = op.full {dtype = "uint32", dims = {}, value = 0}
  return pairs_of(op.threefry(k0, k1, zero, low))
end

--- Of a float dtype: the mantissa's bits, the exponent of the smallest normal number, and the width of the
--- random words that make a mantissa (JAX takes 8 bits where 7 are needed).
local formats = {
  float64 = {mantissa = 52, lowest = -1022, width = 64}, float32 = {mantissa = 23, lowest = -126, width = 32},
  float16 = {mantissa = 10, lowest = -14, width = 16}, bfloat16 = {mantissa = 7, lowest = -126, width = 8},
}

--- The distance between the floats of a dtype from x on, away from zero.
local function spacing(x, format)
  local exponent = x == 0 and format.lowest or tonumber(("%a"):format(x):match "p([+-]%d+)$")
  return 2.0 ^ (math.max(exponent, format.lowest) - format.mantissa)
end

--- The float of a dtype that is next above (below) x.
local function next_after(x, dtype, up)
  local format, round = formats[dtype], 0x1.8p52
  if math.abs(x) == math.huge then
    local largest = (2.0 - 2.0 ^ -format.mantissa) * 2.0 ^ (1 - format.lowest)
    return (x > 0) == up and x or x > 0 and largest or -largest
  end
  local q = spacing(x, format)
  if dtype ~= "float64" then x = (x / q + round - round) * q end -- the nearest float of the dtype
  q = spacing(x, format)
  local toward_zero = (x > 0) ~= up
  if x ~= 0 and toward_zero and math.abs(x) == q * 2.0 ^ format.mantissa then
    q = math.max(q / 2, 2.0 ^ (format.lowest - format.mantissa))
  end
  return up and x + q or x - q
end

--- Words as floats in [0, 1), from the mantissa's bits.
local function float_of(w, dtype)
  if dtype == "float64" then
    w = op.bitor(op.bitand(op.shr(w, 12), 0x000fffffffffffff), 0x3ff0000000000000)
    return op.sub(op.bitcast(w, {dtype = "float64"}), 1.0)
  end
  if dtype == "float32" then
    w = op.bitor(op.shr(w, 9), 0x3f800000)
    return op.sub(op.bitcast(w, {dtype = "float32"}), 1.0)
  end
  local format = formats[dtype]
  w = op.shr(op.bitand(w, (1 << format.width) - 1), format.width - format.mantissa)
  return op.mul(op.astype(w, {dtype = dtype}), 2.0 ^ -format.mantissa)
end

local function unit(who, key, shape, dtype)
  return float_of(raw_bits(who, key, shape, dtype == "float64" and 64 or 32), dtype)
end

local function float_dtype(who, dtype)
  dtype = dtype or "float32"
  if not formats[dtype] then
    if lib.floats[dtype] then
      raise("E_DTYPE", "%s: %s is not drawn; draw float32 and convert it with astype", who, dtype)
    end
    raise("E_DTYPE", "%s: %s is no float dtype%s", who, dtype,
      type(dtype) == "number" and "; a shape is a list: {2, 3}" or "")
  end
  return dtype
end

--- Is x, rounded to float32, a power of two? Products with it are exact.
local function is_power_of_two(x)
  return x > 0 and string.unpack("<I4", string.pack("<f", x)) & 0x7fffff == 0
end

--- low + u * (high - low), and never below low. The bounds are numbers or scalar tensors of u's dtype. In
--- float32 the sum is rounded once, as XLA's fused multiply-add does: the product is exact in float64.
local function between(u, low, high)
  local plain = u.dtype ~= "float32"
    or type(low) == "number" and (low == 0 or is_power_of_two(high - low))
  local function scalar(x)
    return type(x) == "number" and op.full {dtype = u.dtype, dims = {}, value = x} or x
  end
  low, high = scalar(low), scalar(high)
  local span = op.sub(high, low)
  if plain then return op.maximum(op.add(op.mul(u, span), low), low) end
  local function wide(x) return op.astype(x, {dtype = "float64"}) end
  local y = op.add(op.mul(wide(u), wide(span)), wide(low))
  return op.maximum(op.astype(y, {dtype = "float32"}), low)
end

--- A bound of a range, as a float.
local function check_bound(who, what, x)
  if type(x) ~= "number" or x ~= x then
    raise("E_VALUE", "%s: %s must be a number, not %s", who, what,
      type(x) == "number" and "nan" or lib.kind(x))
  end
  return x + 0.0
end

--- Uniform in [low, high), default [0, 1).
---@param key Tensor
---@param shape integer[]?
---@param dtype string? float32
function M.uniform(key, shape, dtype, low, high)
  local who = "random.uniform"
  check_key(who, key)
  dtype = float_dtype(who, dtype)
  low, high = check_bound(who, "low", low or 0), check_bound(who, "high", high or 1)
  return between(unit(who, key, shape, dtype), low, high)
end

local SQRT2 = 1.4142135623730951

--- Of floats in [0, 1): sqrt(2) erf_inv(u), u in (-1, 1).
local function normal_of(u, dtype)
  return op.mul(op.erf_inv(between(u, next_after(-1.0, dtype, true), 1.0)), SQRT2)
end

--- Standard normal.
function M.normal(key, shape, dtype)
  local who = "random.normal"
  check_key(who, key)
  dtype = float_dtype(who, dtype)
  return normal_of(unit(who, key, shape, dtype), dtype)
end

--- erf(x / sqrt(2)), a scalar of the dtype.
local function edge(x, dtype)
  if dtype == "float32" then
    return op.astype(op.erf(op.full {dtype = "float64", dims = {}, value = x / SQRT2}), {dtype = dtype})
  end
  local t = op.full {dtype = dtype, dims = {}, value = x}
  return op.erf(op.div(t, SQRT2))
end

--- Standard normal cut to [low, high].
function M.truncated_normal(key, low, high, shape, dtype)
  local who = "random.truncated_normal"
  check_key(who, key)
  dtype = float_dtype(who, dtype)
  low, high = check_bound(who, "low", low), check_bound(who, "high", high)
  local u = between(unit(who, key, shape, dtype), edge(low, dtype), edge(high, dtype))
  local x = op.mul(op.erf_inv(u), SQRT2)
  return ops.clip(x, next_after(low, dtype, true), next_after(high, dtype, false))
end

--- true with probability p (default 0.5; a number or a tensor of that shape).
function M.bernoulli(key, p, shape)
  check_key("random.bernoulli", key)
  p = p or 0.5
  if type(p) ~= "number" and not lib.is_tensor(p) then
    raise("E_VALUE", "random.bernoulli: p must be a number or a tensor, not %s", lib.kind(p))
  end
  if not shape then shape = type(p) == "number" and {} or p.shape end
  local dtype = type(p) ~= "number" and formats[p.dtype] and p.dtype or "float32"
  return op.lt(unit("random.bernoulli", key, shape, dtype), p)
end

--- What randint can give: the range of a dtype, and the dtype that it is drawn in (as JAX, which takes 32 bits
--- where 8 would do).
local whole = {
  int32 = {low = -2147483648, high = 2147483647, drawn = "int32"},
  uint32 = {low = 0, high = 4294967295, drawn = "uint32"},
  uint8 = {low = 0, high = 255, drawn = "int32"}, uint16 = {low = 0, high = 65535, drawn = "int32"},
  int8 = {low = -128, high = 127, drawn = "int32"}, int16 = {low = -32768, high = 32767, drawn = "int32"},
  int64 = {low = math.mininteger, high = math.maxinteger, drawn = "int64"},
}

--- What is left of int64 words, taken as unsigned, divided by a number of 64 bits, unsigned too.
local function rem64(w, span)
  if span < 0 then -- of 2^63 or more: it goes once at most
    local below = op.bitxor(w, math.mininteger)
    return op.where(op.lt(below, span ~ math.mininteger), w, op.sub(w, span))
  end
  local half = op.bitand(op.shr(w, 1), math.maxinteger)
  local rest = op.sub(w, op.mul(op.shl(op.floor_divide(half, span), 1), span))
  local fits = op.bitand(op.ge(rest, 0), op.lt(rest, span)) -- else the quotient was one too small
  return op.where(fits, rest, op.sub(rest, span))
end

--- The same of two Lua integers.
local function rem_unsigned(x, span)
  if span < 0 then return math.ult(x, span) and x or x - span end
  local rest = x - ((x >> 1) // span << 1) * span
  return math.ult(rest, span) and rest or rest - span
end

--- Whole numbers in [low, high). (JAX's way: two draws, reduced by the width of the range.)
---@param key Tensor
---@param shape integer[]?
---@param low integer
---@param high integer
---@param dtype string? int32 (the default), another integer but uint64
function M.randint(key, shape, low, high, dtype)
  local who = "random.randint"
  check_key(who, key)
  dtype = dtype or "int32"
  local range = whole[dtype]
  if not range then
    raise("E_DTYPE", "%s: gives int8 to int64 and uint8 to uint32, not %s; convert with astype", who, dtype)
  end
  if math.type(low) ~= "integer" or math.type(high) ~= "integer" or high <= low
      or low < range.low or high - 1 > range.high then
    raise("E_VALUE", "%s: needs whole numbers low < high within %s: randint(key, shape, low, high)", who,
      dtype)
  end
  local span, k = high - low, M.keys(key, 2)
  local width, rem = 32, op.rem
  if range.drawn == "int64" then width, rem = 64, rem64 end
  local offset = raw_bits(who, k[2], shape, width)
  if width == 64 or span < 1 << 32 then -- else every word is an offset
    local mask = width == 64 and -1 or 0xffffffff
    local multiplier = rem_unsigned(1 << width // 2, span)
    multiplier = rem_unsigned(multiplier * multiplier & mask, span)
    local upper = raw_bits(who, k[1], shape, width)
    offset = rem(op.add(op.mul(rem(upper, span), multiplier), rem(offset, span)), span)
  end
  local x = op.add(op.astype(offset, {dtype = range.drawn}), low)
  return dtype == range.drawn and x or op.astype(x, {dtype = dtype})
end

--- Standard Gumbel: -log(-log(u)).
function M.gumbel(key, shape, dtype)
  local who = "random.gumbel"
  check_key(who, key)
  dtype = float_dtype(who, dtype)
  local u = between(unit(who, key, shape, dtype), 2.0 ^ formats[dtype].lowest, 1.0)
  return op.neg(op.log(op.neg(op.log(u))))
end

--- 0-based classes drawn with probability softmax(logits) along an axis (default last): int32.
---@param shape integer[]? of the draws; its end must be the logits' shape without the axis
function M.categorical(key, logits, axis, shape)
  local who = "random.categorical"
  check_key(who, key)
  if not lib.is_tensor(logits) then
    raise("E_VALUE", "%s: the logits must be a tensor, not %s", who, lib.kind(logits))
  end
  axis = lib.check_integer(who, "the axis", axis or -1)
  local a = axis < 0 and axis + logits.ndim + 1 or axis
  if a < 1 or a > logits.ndim then
    raise("E_SHAPE", "%s: axis %d of logits of rank %d; axes count from 1", who, axis, logits.ndim)
  end
  if shape ~= nil then shape = lib.check_shape(who, shape) end
  local batch = {}
  for d, n in ipairs(logits.shape) do
    if d ~= a then batch[#batch + 1] = n end
  end
  local extra = shape and #shape - #batch or 0
  if extra < 0 then
    raise("E_SHAPE", "random.categorical: the shape is shorter than the logits' batch dims")
  end
  local full = {}
  for d = 1, extra do full[d] = shape[d] end
  for _, n in ipairs(logits.shape) do full[#full + 1] = n end
  local noise = M.gumbel(key, full, logits.dtype)
  return ops.argmax(op.add(noise, logits), extra + a)
end

--- The rows of x, or 0..n-1, in random order: sorted by random words, as often as JAX does.
---@param x integer|Tensor
function M.permutation(key, x)
  check_key("random.permutation", key)
  local n
  if math.type(x) == "integer" then
    n, x = x, nil
  elseif lib.is_tensor(x) and x.ndim > 0 then
    n = x.shape[1]
  else
    raise("E_VALUE", "random.permutation: expected a whole number or a tensor of rank 1 or more, got %s",
      lib.kind(x))
  end
  if n < 0 then raise("E_VALUE", "random.permutation: of %d numbers", n) end
  local order, _ = ops.arange(n), nil
  local rounds = math.ceil(3 * math.log(math.max(1, n)) / math.log(0xffffffff))
  for _ = 1, rounds do
    local k = M.keys(key, 2)
    key = k[1]
    local bits = raw_bits("random.permutation", k[2], {n}, 32)
    _, order = op.sort(bits, order, {axis = 1, descending = false})
  end
  return x and ops.take(x, order, 1) or order
end

-- What is made of these is loaded when it is first called.
local others
for _, name in ipairs {"beta", "choice", "dirichlet", "exponential", "gamma", "laplace", "loggamma",
    "multivariate_normal", "poisson"} do
  local fn
  M[name] = function(...)
    others = others or require "meshlua.distributions"(M, {between = between, check_key = check_key,
      float_dtype = float_dtype, float_of = float_of, next_after = next_after, normal_of = normal_of,
      raw_bits = raw_bits, unit = unit})
    fn = fn or core.wrap(others[name], false, "random." .. name) -- counts its arguments
    return fn(...)
  end
end

-- Every one of them takes {out_sharding = P(...)} behind its arguments.
for name, fn in pairs(M) do M[name] = explicit.with_out_sharding("random." .. name, fn) end

return lib.strict(M, "random", "random.")
