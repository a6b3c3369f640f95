-- Rows of the ops that make values from nothing, or from a key and the index.
local ml = require "meshlua"
local naive = require "spec.op.naive"
local op = ml.core.op

local rows = {}

local function add(row)
  row.exact, row.inputs, row.dtypes = true, row.inputs or {}, {"float32"}
  rows[#rows + 1] = row
end

for dtype, value in pairs {
  float64 = 0.1, float32 = 0.5, bfloat16 = 1.5, float16 = -2.0, int32 = -7, int64 = 1 << 40, uint32 = 4294967295,
  uint8 = 255, bool = true,
} do
  add {op = "full", name = "full " .. dtype, result = dtype,
    call = function() return ml.full({8, 4}, value, dtype) end,
    ref = function() return naive.make({8, 4}, function() return value end) end}
  if dtype ~= "bool" then
    for dim = 1, 2 do
      add {op = "iota", name = ("iota %s along %d"):format(dtype, dim), result = dtype,
        call = function() return ml.iota({8, 4}, dim, dtype) end,
        ref = function() return naive.make({8, 4}, function(i) return i[dim] end) end}
    end
  end
end

-- threefry2x32 (Salmon et al. 2011), 20 rounds, over unsigned words.
local function threefry(k0, k1, x0, x1)
  local M = 0xffffffff
  local keys, rotations = {k0, k1, k0 ~ k1 ~ 0x1BD11BDA}, {{13, 15, 26, 6}, {17, 29, 16, 24}}
  x0, x1 = (x0 + keys[1]) & M, (x1 + keys[2]) & M
  for r = 1, 5 do
    for _, by in ipairs(rotations[(r - 1) % 2 + 1]) do
      x0 = (x0 + x1) & M
      x1 = ((x1 << by | x1 >> (32 - by)) & M) ~ x0
    end
    x0 = (x0 + keys[r % 3 + 1]) & M
    x1 = (x1 + keys[(r + 1) % 3 + 1] + r) & M
  end
  return x0, x1
end
local words = {8, 4, dtype = "uint32", low = 0, high = 4294967295}
add {op = "threefry", result = "int64", inputs = {words, words, words, words},
  call = function(k0, k1, hi, lo) return op.threefry(k0, k1, hi, lo) end,
  ref = function(k0, k1, hi, lo)
    return naive.map(function(...)
      local a, b = threefry(...)
      return a << 32 | b
    end, k0, k1, hi, lo)
  end}
for _, width in ipairs {32, 64} do
  add {op = "random_bits", name = "random_bits " .. width, result = width == 32 and "uint32" or "int64",
    inputs = {words, words},
    call = function(k0, k1) return op.random_bits(k0, k1, {bits = width, strides = {4, 1}}) end,
    ref = function(k0, k1)
      return naive.make({8, 4}, function(i)
        local a, b = threefry(naive.at(k0, i), naive.at(k1, i), 0, i[1] * 4 + i[2])
        return width == 32 and a ~ b or a << 32 | b
      end)
    end}
end

return rows
