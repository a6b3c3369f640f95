-- Rows of the reductions.
local naive = require "spec.op.naive"
local scalar = require "spec.op.scalar"

local op = require "meshlua.core".op

local rows = {}

local function add(row) rows[#rows + 1] = row end

--- "abc->b" for the axes that are reduced, 1 and 3.
local function rule_of(axes)
  local left = "abc"
  for _, a in ipairs(axes) do left = left:gsub(("abc"):sub(a, a), "") end
  return "abc->" .. left
end

-- uint8 adds up in uint32, bool in int32: rows of their own.
local sums = {"float64", "float32", "bfloat16", "float16", "int32", "uint32", "int64"}

for _, axes in ipairs {{1}, {2}, {3}, {1, 3}, {2, 3}, {1, 2, 3}} do
  local name, rule = table.concat(axes, ","), rule_of(axes)
  add {op = "sum", name = "sum over " .. name, rule = rule, inputs = {{8, 4, 6}}, dtypes = sums,
    call = function(x) return x:sum(axes) end,
    ref = function(x) return naive.drop(naive.wrapped(x.dtype, naive.sum(x, axes)), axes) end}
  add {op = "sum_squares", name = "sum_squares over " .. name, rule = rule, inputs = {{8, 4, 6}},
    call = function(x) return op.sum_squares(x, {axes = axes}):squeeze(axes) end,
    ref = function(x)
      return naive.drop(naive.reduce(x, axes, 0, function(a, v) return a + v * v end), axes)
    end}
  for kind, f in pairs {max = scalar.max, min = scalar.min} do
    add {op = kind, name = kind .. " over " .. name, rule = rule, inputs = {{8, 4, 6, distinct = true}},
      ints = true, exact = true,
      call = function(x) return x[kind](x, axes) end,
      ref = function(x)
        return naive.drop(naive.reduce(x, axes, false, function(a, v) return a and f(a, v) or v end), axes)
      end}
  end
  for kind, f in pairs {
    all = function(a, v) return a and v end, any = function(a, v) return a or v end,
  } do
    add {op = kind, name = kind .. " over " .. name, rule = rule, inputs = {{8, 4, 6, dtype = "bool"}},
      exact = true, dtypes = {"bool"},
      call = function(x) return x[kind](x, axes) end,
      ref = function(x) return naive.drop(naive.reduce(x, axes, kind == "all", f), axes) end}
  end
end
add {op = "sum", name = "sum, dims kept", rule = "ab->a.", inputs = {{8, 4}}, dtypes = sums,
  call = function(x) return x:sum(-1, true) end,
  ref = function(x) return naive.wrapped(x.dtype, naive.sum(x, {2})) end}
add {op = "sum", name = "sum of nothing", rule = "AB->A", inputs = {{8, 0}}, exact = true, dtypes = sums,
  call = function(x) return x:sum(2) end,
  ref = function() return naive.make({8}, function() return 0 end) end}
add {op = "sum", name = "sum of uint8 counts in uint32", rule = "ab->b", inputs = {{8, 4}},
  dtypes = {"uint8"}, result = "uint32", exact = true,
  call = function(x) return x:sum(1) end, ref = function(x) return naive.drop(naive.sum(x, {1}), {1}) end}
add {op = "sum", name = "sum of bool counts in int32", rule = "ab->b", inputs = {{8, 4}}, dtypes = {"bool"},
  result = "int32", exact = true,
  call = function(x) return x:sum(1) end,
  ref = function(x)
    return naive.drop(naive.reduce(x, {1}, 0, function(a, v) return a + (v and 1 or 0) end), {1})
  end}
add {op = "sum", name = "sum of many, whose rounding grows with the logarithm", rule = "a->",
  inputs = {{4096}},
  call = function(x) return x:sum() end,
  ref = function(x) return naive.drop(naive.sum(x, {1}), {1}) end}
add {op = "max", name = "max with ties", rule = "aB->a", inputs = {{8, 6, low = 0, high = 0}},
  exact = true, no_gradient_check = true,
  call = function(x) return x:max(2) end,
  ref = function(x) return naive.drop(naive.slice(x, {0, 0}, {8, 1}, {1, 1}), {2}) end}

for kind, better in pairs {
  argmax = function(v, best) return v > best end, argmin = function(v, best) return v < best end,
} do
  for axis, rule in ipairs {"Abc->bc", "aBc->ac", "abC->ab"} do
    add {op = kind, name = kind .. " along " .. axis, rule = rule,
      inputs = {{8, 4, 6, int_low = -2, int_high = 2}}, ints = true, exact = true, result = "int32",
      call = function(x) return x[kind](x, axis) end,
      ref = function(x) return naive.drop(naive.arg(x, axis, better), {axis}) end}
  end
  add {op = kind, name = kind .. " of all", rule = "AB->", inputs = {{8, 4}}, ints = true, exact = true,
    result = "int32",
    call = function(x) return x[kind](x) end,
    ref = function(x) return naive.drop(naive.arg(naive.reshape(x, {32}), 1, better), {1}) end}
end
table.sort(rows, function(a, b) return a.name < b.name end)

return rows
