-- Rows of the ops that make values from nothing, or from a key and the index.
local ml = require "meshlua"
local naive = require "spec.op.naive"
local scalar = require "spec.op.scalar"
local op = ml.core.op

local rows = {}

local function add(row)
  row.exact, row.inputs, row.dtypes = true, row.inputs or {}, {"float32"}
  rows[#rows + 1] = row
end

for dtype, value in pairs {
  float64 = 0.1, float32 = 0.5, bfloat16 = 1.5, float16 = -2.0, int32 = -7, int64 = 1 << 40,
  uint32 = 4294967295, uint8 = 255, bool = true,
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
add {op = "full", name = "full of rank 0 and size 0",
  call = function() return ml.full({}, 2.5), ml.zeros {0, 4} end,
  ref = function() return {shape = {}, 2.5}, {shape = {0, 4}} end}

local words = {8, 4, dtype = "uint32", low = 0, high = 4294967295}
add {op = "threefry", result = "int64", inputs = {words, words, words, words}, rule = "ab,ab,ab,ab->ab",
  call = function(k0, k1, hi, lo) return op.threefry(k0, k1, hi, lo) end,
  ref = function(k0, k1, hi, lo)
    return naive.map(function(...)
      local a, b = scalar.threefry(...)
      return a << 32 | b
    end, k0, k1, hi, lo)
  end}
for _, width in ipairs {32, 64} do
  add {op = "random_bits", name = "random_bits " .. width, result = width == 32 and "uint32" or "int64",
    inputs = {words, words}, rule = "ab,ab->ab",
    call = function(k0, k1) return op.random_bits(k0, k1, {bits = width, strides = {4, 1}}) end,
    ref = function(k0, k1)
      return naive.make({8, 4}, function(i)
        local a, b = scalar.threefry(naive.at(k0, i), naive.at(k1, i), 0, i[1] * 4 + i[2])
        return width == 32 and a ~ b or a << 32 | b
      end)
    end}
end
table.sort(rows, function(a, b) return (a.name or a.op) < (b.name or b.op) end)

return rows
