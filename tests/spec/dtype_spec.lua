-- dtype_spec.lua: how dtypes meet, what a Lua number does to them, casts, and the 16-bit floats; against
-- JAX's
-- tables (tests/oracle/dtypes.py).
local helper = require "spec.helper"
local ml = require "meshlua"
local oracle = require "spec.oracle"
local program = require "meshlua.program"
local op = ml.core.op

local jax = oracle.read "dtypes"

local short = {"bool", "uint8", "uint32", "int32", "bfloat16", "float16", "float32"}
local old = {bool = true, uint8 = true, uint32 = true, int32 = true, bfloat16 = true, float16 = true,
  float32 = true,
  int64 = true, float64 = true}
local added = {"uint16", "int8", "int16", "float8_e4m3fn", "float8_e5m2"} -- what storage_spec.lua is about
table.move(added, 1, #added, #short + 1, short)
local all = {table.unpack(short)}
table.move({"uint64", "int64", "float64"}, 1, 3, #all + 1, all)
local inf = math.huge

local function is_float(dtype) return dtype:match "float" ~= nil end
local function ones(dtype) return ml.ones({2, 2}, dtype) end

-- ---- two tensors ------------------------------------------------------------------------------------

--- Ways for two tensors to meet, each of which brings them to one dtype first; a few of them for dtypes that
--- are
--- there for storage.
local function meetings(x, y)
  if not (old[x.dtype] and old[y.dtype]) then
    return {where = ml.where(ml.full({2, 2}, true), x, y), concat = ml.concat {x, y},
      maximum = ml.maximum(x, y)}
  end
  local list = {
    maximum = ml.maximum(x, y), where = ml.where(ml.full({2, 2}, true), x, y), concat = ml.concat {x, y},
    stack = ml.stack {x, y},
  }
  if x.dtype ~= "bool" or y.dtype ~= "bool" then
    list.add, list.sub, list.mul, list["*"] = ml.add(x, y), ml.sub(x, y), ml.mul(x, y), x * y
    list.pow, list.rem = ml.pow(x, y), ml.rem(x, y)
    list.matmul, list.einsum = ml.matmul(x, y), ml.einsum("ij,kj->ik", x, y)
  end
  return list
end

describe("two dtypes meet as in JAX " .. jax.jax .. ":", function()
  for _, a in ipairs(all) do
    for _, b in ipairs(all) do
      it(a .. " and " .. b, function()
        local want = jax.meet[a][b]
        if type(want) ~= "string" then
          helper.raises("do not meet", ml.core.promote, a, b)
          helper.raises("do not meet", ml.add, ones(a), ones(b))
          return
        end
        assert.equal(want, ml.core.promote(a, b))
        for name, y in pairs(meetings(ones(a), ones(b))) do assert.equal(want, y.dtype, name) end
        local traced = ml.jit(function(x, y)
          local list, names = {}, {}
          for name in pairs(meetings(x, y)) do names[#names + 1] = name end
          table.sort(names)
          for i, name in ipairs(names) do list[i] = meetings(x, y)[name] end
          return table.unpack(list)
        end)
        for _, y in ipairs {traced(ones(a), ones(b))} do assert.equal(want, y.dtype) end
        assert.equal("bool", ml.eq(ones(a), ones(b)).dtype)
        assert.equal(is_float(want) and want or "float32", ml.div(ones(a), ones(b)).dtype)
      end)
    end
  end

  it("by value, too", function()
    local big = ml.tensor({4294967295}, "uint32")
    assert.equal(-1, (big + ml.tensor({0}, "int32")):item()) -- uint32 goes to int32 by its bits
    assert.equal(4294967295, (big + ml.tensor({0}, "int64")):item())
    assert.equal(2 ^ 32, (big + ml.tensor({0.0}, "float32")):item())
    assert.equal(254, (ml.tensor({255}, "uint8") + ml.tensor({255}, "uint8")):item())
    assert.equal(510, (ml.tensor({255}, "uint8") + ml.tensor({255}, "int32")):item())
    assert.equal(2, (ml.tensor({true}) + ml.tensor({1}, "int32")):item())
  end)
end)

-- ---- a tensor and a Lua number ----------------------------------------------------------------------

--- Every operator with the number on either side. of_float: those that give floats for integers, too.
local function operations(x, s)
  return {x + s, s + x, x - s, s - x, x * s, s * x, x % s, s % x, ml.maximum(x, s), ml.minimum(s, x),
    ml.where(ml.full({2, 2}, true), x, s), ml.where(ml.full({2, 2}, true), s, x)}, {x / s, s / x}
end

describe("a Lua number never widens a tensor:", function()
  for _, dtype in ipairs(all) do
    it(dtype, function()
      for _, number in ipairs {1, 2.5} do
        local table_of = math.type(number) == "integer" and jax.with_integer or jax.with_float
        local wide = is_float(dtype) and dtype or "float32"
        local want = table_of[dtype] or math.type(number) == "integer" and dtype or wide
        local function check(same, of_float)
          for i, y in ipairs(same) do assert.equal(want, y.dtype, "operation " .. i) end
          for _, y in ipairs(of_float) do assert.equal(wide, y.dtype) end
        end
        check(operations(ones(dtype), number))
        -- Also as a number that is traced, and after arithmetic among numbers.
        local how_many
        local traced = ml.jit(function(x, s)
          local same, of_float = operations(x, s * 2 + 1)
          how_many = #same
          return table.unpack(table.move(of_float, 1, #of_float, #same + 1, same))
        end)
        local results = {traced(ones(dtype), number)}
        check({table.unpack(results, 1, how_many)}, {table.unpack(results, how_many + 1)})
      end
    end)
  end

  it("numbers alone are int32 and float32", function()
    assert.equal("int32", ml.add(1, 2).dtype)
    assert.equal("float32", ml.add(1, 2.0).dtype)
    assert.equal("float32", ml.div(1, 2).dtype)
    assert.equal("int32", ml.tensor({1, 2}).dtype)
    assert.equal("float32", ml.tensor({1, 2.5}).dtype)
    assert.equal("int32", ml.arange(8).dtype)
    assert.equal("float32", ml.arange(8.0).dtype)
    assert.equal("int32", ml.arange(0.5, 5.0, 1.0, "int32").dtype)
    assert.equal("int16", ml.arange(2, 5, "int16").dtype)
    assert.same({0, 1, 2, 3, 4}, ml.arange(0.5, 5.0, 1.0, "int32"):totable())
  end)

  it("a tensor without dims is no number: it widens", function()
    assert.equal("float32", (ones "float16" + ml.tensor(1.0)).dtype)
    assert.equal("float64", (ones "float32" + ml.tensor(1.0, "float64")).dtype)
    assert.equal("int64", (ones "int32" + ml.tensor(1, "int64")).dtype)
  end)
end)

describe("a Lua number out of range raises:", function()
  local limits = {
    int8 = {-128, 127}, int16 = {-32768, 32767}, uint16 = {0, 65535}, uint8 = {0, 255}, uint32 = {0,
      4294967295}, int32 = {-2147483648, 2147483647},
  }
  for dtype, range in pairs(limits) do
    it(dtype, function()
      local x = ml.zeros({2}, dtype)
      for i, edge in ipairs(range) do
        local beyond = i == 1 and edge - 1 or edge + 1
        assert.equal(edge, (x + edge):at(1):item())
        local function raises(fn) helper.raises("out of range for " .. dtype, fn) end
        raises(function() return x + beyond end)
        raises(function() return beyond - x end)
        raises(function() return ml.where(x:eq(0), x, beyond) end)
        raises(function() return ml.maximum(x, beyond) end)
        raises(function() return ml.full({2}, beyond, dtype) end)
        raises(function() return ml.tensor({beyond}, dtype) end)
        raises(function() return ml.jit(function(y) return y + beyond end)(x) end)
      end
    end)
  end

  it("int32 where nothing else is said", function()
    helper.raises("out of range for int32", function() return ml.tensor {1 << 31} end)
    helper.raises("out of range for int32", function() return ml.add(1 << 31, 1) end)
    helper.raises("does not fit in int32", function() return ml.arange((1 << 31) - 2, (1 << 31) + 2) end)
    helper.raises("out of range for int32", function()
      return ml.jit(function(x, n) return x * n end)(ml.zeros {2}, 1 << 40)
    end)
  end)

  it("a float is no whole number", function()
    helper.raises("not a whole number", function() return ml.full({2}, 0.5, "int32") end)
    helper.raises("not a whole number", function() return ml.tensor({0.5}, "uint8") end)
    assert.equal(3, ml.full({}, 3.0, "int32"):item())
  end)
end)

-- ---- functions --------------------------------------------------------------------------------------

describe("the dtype of a result is JAX's:", function()
  for name, of in pairs(jax.functions) do
    it(name, function()
      for _, dtype in ipairs(short) do
        -- Where JAX refuses integers, they become float32 here, too.
        local want = type(of[dtype]) == "string" and of[dtype] or is_float(dtype) and dtype or "float32"
        local x = ml.ones({2}, dtype)
        local fn = ml[name]
        assert.equal(want, (fn == ml.div or fn == ml.eq) and fn(x, x).dtype or fn(x).dtype, dtype)
      end
    end)
  end

  it("of 64 bits stays, integers still become float32", function()
    for _, name in ipairs {"sin", "exp", "mean", "sigmoid", "var", "softmax", "logsumexp"} do
      assert.equal("float64", ml[name](ml.ones({2}, "float64")).dtype, name)
      assert.equal("float32", ml[name](ml.ones({2}, "int64")).dtype, name)
    end
  end)

  it("sums keep it, bool and narrow integers count in 32 bits", function()
    local sums = {bool = "int32", uint8 = "uint32", uint16 = "uint32", int8 = "int32", int16 = "int32"}
    for _, dtype in ipairs(all) do
      assert.equal(sums[dtype] or dtype, ml.ones({2}, dtype):sum().dtype)
      assert.equal(dtype, ml.ones({2}, dtype):max().dtype)
    end
  end)
end)

describe("16-bit floats add up in float32:", function()
  for _, dtype in ipairs {"bfloat16", "float16"} do
    it(dtype, function()
      assert.equal(4096, ml.ones({4096}, dtype):sum():item())
      assert.equal(4096, ml.matmul(ml.ones({1, 4096}, dtype), ml.ones({4096, 1}, dtype)):item())
      assert.equal(4096, ml.einsum("ij->i", ml.ones({1, 4096}, dtype)):item())
      assert.equal(2, ml.full({65536}, 2.0, dtype):mean():item()) -- neither sum nor count fits in float16
      assert.equal(0, ml.full({64}, 300.0, dtype):var():item())
    end)
  end
end)

-- ---- casts ------------------------------------------------------------------------------------------

local names = {["True"] = true, ["False"] = false, inf = inf, ["-inf"] = -inf, nan = 0 / 0}
local function value_of(text)
  if names[text] ~= nil then return names[text] end
  return math.tointeger(text) or tonumber(text)
end

local function same(x, y)
  if type(x) ~= "number" then return x == y end
  return x ~= x and y ~= y or x == y and (x ~= 0 or 1 / x == 1 / y)
end

--- Whole numbers below 2^64 as the bytes of uint64.
local function bits_of(texts)
  local words = {}
  for i, text in ipairs(texts) do
    local n = 0
    for digit in text:gmatch "%d" do n = n * 10 + (digit:byte() - 48) end
    words[i] = ("<i8"):pack(n)
  end
  return table.concat(words)
end

--- The numbers of a cast, and its ways: alone, with ops around it, and of constants.
local function cast_ways(c)
  local values, wide = {}, is_float(c.to) and "float64" or c.to == "uint64" and c.to or "int64"
  for i, text in ipairs(c.values) do values[i] = value_of(text) end
  local x
  if c.from == "uint64" then
    x = ml.core.from_string(bits_of(c.values), "uint64", {#values})
  else
    x = ml.tensor(values, is_float(c.from) and "float64" or c.from):astype(c.from)
  end
  local fused = ml.jit(function(y)
    return y:astype(c.to):astype(wide), ml.where(y:eq(y), y, y):astype(c.to)
  end)
  local constants = ml.jit(function()
    local list = {}
    for i, v in ipairs(values) do
      list[i] = (c.from == "uint64" and math.type(v) == "float" and x:at(i) or ml.full({}, v,
        c.from)):astype(c.to)
    end
    return table.unpack(list)
  end)
  local widened, chained = fused(x)
  if c.to == "bool" then widened = widened:ne(0) end
  local folded = {constants()}
  for i, y in ipairs(folded) do folded[i] = y:item() end
  return {alone = x:astype(c.to):totable(), widened = widened:totable(), chained = chained:totable(),
    constants = folded}
end

describe("casts are JAX's:", function()
  for _, c in ipairs(jax.casts) do
    local is_old = old[c.from] and old[c.to]
    local test = (is_old or not helper.watched or c.from == "int8" or c.to == "float8_e4m3fn") and it
      or function() end
    test(c.from .. " to " .. c.to, function()
      for way, results in pairs(cast_ways(c)) do
        assert.equal(#c.values, #results)
        for i, got in ipairs(results) do
          local want = value_of(c.results[i])
          if not same(want, got) then
            error(("%s becomes %s (%s), JAX has %s"):format(c.values[i], got, way, c.results[i]))
          end
        end
      end
    end)
  end

  it("a Lua number for a float dtype becomes what a float64 does", function()
    for _, c in ipairs(jax.casts) do
      for i, text in ipairs(c.from == "float64" and is_float(c.to) and c.values or {}) do
        local v, want = value_of(text), value_of(c.results[i])
        local none = ml.zeros({1}, c.to)
        for way, y in pairs {full = ml.full({}, v, c.to), tensor = ml.tensor(v, c.to), add = none + v,
          pad = ml.pad(none, {{0, 1}}, v):at(-1)} do
          if not (same(want, y:item()) or want == 0 and y:item() == 0) then
            error(("%s becomes %s (%s of %s), JAX has %s"):format(text, y:item(), way, c.to, c.results[i]))
          end
        end
      end
    end
  end)
end)

-- ---- divisions of integers ----------------------------------------------------------------------------

describe("integers are divided as in JAX, by 0 and the lowest by -1, too:", function()
  for dtype, of in pairs(jax.divisions) do
    for _, name in ipairs {"rem", "mod", "floor_divide"} do
      it(name .. " of " .. dtype, function()
        local fn, n = ml[name], #of.x
        local values = ml.tensor(of.x, dtype)
        local x, y = values:reshape(n, 1), values:reshape(1, n)
        assert.same(of[name], fn(x, y):totable())
        local chained = ml.jit(function(a, b) return (fn(a + 0, b):astype "int64") * 1 end)(x, y)
        assert.same(of[name], chained:totable())
        local constants = ml.jit(function()
          local list = {}
          for i, a in ipairs(of.x) do
            list[i] = fn(ml.full({}, a, dtype), ml.full({}, of.x[i % n + 1], dtype))
          end
          return ml.stack(list)
        end)()
        for i = 1, n do assert.equal(of[name][i][i % n + 1], constants:at(i):item()) end
        for i, b in ipairs(of.x) do
          local column = fn(values, b):totable() -- a Lua number
          for k = 1, n do assert.equal(of[name][k][i], column[k]) end
        end
      end)
    end
  end
end)

describe("casts and divisions have the same bits", function()
  local naive
  local function run(level)
    local out, err, code = helper.shell("MESHLUA_KERNELS=" .. level .. ' "$MESHLUA" tests/spec/op/casts.lua')
    assert.equal(0, code, err)
    return out
  end

  for _, level in ipairs {"default", "v3", "v4"} do
    it("from kernels of level " .. level, function()
      if not program.kernels(level) then helper.pending "not for this processor" end
      naive = naive or run "naive"
      assert.equal(naive, run(level))
    end)
  end
end)

-- ---- 16-bit floats ----------------------------------------------------------------------------------

local formats = {bfloat16 = {mantissa = 7, lowest = -126}, float16 = {mantissa = 10, lowest = -14}}

--- The number that a word of 16 bits stands for.
local function decode(word, format)
  local m, sign = format.mantissa, word >> 15 == 1 and -1.0 or 1.0
  local mantissa, exponent = word & (1 << m) - 1, word >> m & (1 << 15 - m) - 1
  if exponent == (1 << 15 - m) - 1 then return mantissa == 0 and sign * inf or 0 / 0 end
  if exponent == 0 then return sign * mantissa * 2.0 ^ (format.lowest - m) end
  return sign * ((1 << m) + mantissa) * 2.0 ^ (format.lowest + exponent - 1 - m)
end

describe("every number of", function()
  for dtype, format in pairs(formats) do
    it(dtype .. " reads, widens and comes back", function()
      local words = {}
      for word = 0, 65535 do words[word + 1] = ("<I2"):pack(word) end
      local bytes = table.concat(words)
      local x = ml.core.from_string(bytes, dtype, {65536})
      local read, wide = x:totable(), x:astype "float32":totable()
      for word = 0, 65535 do
        local want = decode(word, format)
        if not same(want, read[word + 1]) or not same(want, wide[word + 1]) then
          error(("word %04x: expected %s, read %s, widened %s"):format(word, want, read[word + 1],
            wide[word + 1]))
        end
      end
      local back = x:astype "float32":astype(dtype):bytes()
      for word = 0, 65535 do
        local want, got = ("<I2"):unpack(bytes, 2 * word + 1), ("<I2"):unpack(back, 2 * word + 1)
        local is_nan = decode(want, format) ~= decode(want, format)
        assert(got == want or is_nan and decode(got, format) ~= decode(got, format), want)
      end
    end)

    helper.figures(dtype .. " takes what is nearest to it, ties to even", function()
      local top = ((1 << 15 - format.mantissa) - 1) << format.mantissa -- infinity
      local between, above, below = {}, {}, {}
      for word = 0, top - 1 do
        local low = decode(word, format)
        local step = word + 1 < top and decode(word + 1, format) - low or low - decode(word - 1, format)
        between[word + 1] = low + step / 2
        above[word + 1], below[word + 1] = low + step * 0.5078125, low + step * 0.4921875
      end
      local function words_of(list)
        local wide = ml.tensor(list, "float64"):astype "float32"
        local bytes, out = wide:astype(dtype):bytes(), {}
        for i = 1, #list do out[i] = ("<I2"):unpack(bytes, 2 * i - 1) end
        return out
      end
      local even, up, down = words_of(between), words_of(above), words_of(below)
      -- The smallest steps of bfloat16 are below float32's: there is no number between.
      for word = dtype == "bfloat16" and 0x80 or 0, top - 1 do
        assert.equal(word + (word & 1), even[word + 1])
        assert.equal(word + 1, up[word + 1])
        assert.equal(word, down[word + 1])
      end
    end)
  end
end)

-- ---- bits -------------------------------------------------------------------------------------------

it("bitcast keeps the bits both ways", function()
  for _, pair in ipairs {{"float32", "int32"}, {"float32", "uint32"}, {"float64", "int64"}} do
    local x = ml.tensor({0.0, -0.0, 1.5, -inf, inf, 1e-40, 3e38}, pair[1])
    local y = op.bitcast(x, {dtype = pair[2]})
    assert.equal(x:bytes(), y:bytes())
    assert.equal(x:bytes(), op.bitcast(y, {dtype = pair[1]}):bytes())
  end
end)
