-- Rows of the functions of ops.lua that are compositions of ops.
local ml = require "meshlua"
local naive = require "spec.op.naive"
local row = require "spec.op.row"

local rows = {}

local function add(r)
  r.float = r.float ~= false
  rows[#rows + 1] = r
end

local function number(x) return x == true and 1 or x == false and 0 or x end

--- f of the list of elements that are reduced over `axes`.
local function over(x, axes, f)
  local lists = naive.reduce(x, axes, false, function(list, v)
    list = list or {}
    list[#list + 1] = number(v)
    return list
  end)
  return naive.drop(naive.map(f, lists), axes)
end

local function mean(list) return row.sum(list, function(v) return v end) / #list end
local function squares(list)
  local m = mean(list)
  return row.sum(list, function(v) return (v - m) ^ 2 end)
end

for _, s in ipairs {{{1}, "ab->b"}, {{2}, "ab->a"}, {{1, 2}, "ab->"}} do
  local axes, name = s[1], " over " .. table.concat(s[1], ",")
  local function reduction(op, function_name, sums, f, ...)
    local more = {...}
    add {op = op, name = function_name .. name, rule = s[2], sums = sums, inputs = {{8, 16}}, tolerance = 32,
      call = function(x) return ml[function_name](x, axes, false, table.unpack(more)) end,
      ref = function(x) return over(x, axes, f) end}
  end
  reduction("sum", "mean", 1, mean)
  reduction("square", "var", 2, function(list) return squares(list) / #list end)
  reduction("sqrt", "std", 2, function(list) return math.sqrt(squares(list) / (#list - 1)) end, 1)
  reduction("exp", "logsumexp", 2, row.log_sum_exp)
end
add {op = "sum", name = "mean of bool", rule = "ab->a", inputs = {{8, 16}}, dtypes = {"bool", "uint8"},
  call = function(x) return x:mean(2) end, ref = function(x) return over(x, {2}, mean) end}

add {op = "maximum", name = "clip", inputs = {{8, 16, distinct = true}}, elementwise = true, ints = true,
  float = false,
  call = function(x) return x:clip(0, 1) end,
  ref = function(x) return naive.map(function(v) return math.max(0, math.min(v, 1)) end, x) end}
add {op = "maximum", name = "clip below alone", inputs = {{8, 16, distinct = true}}, elementwise = true,
  ints = true, float = false,
  call = function(x) return x:clip(1) end,
  ref = function(x) return naive.map(function(v) return math.max(1, v) end, x) end}
add {op = "sort", name = "argsort", rule = "aB->aB", inputs = {{8, 12, low = -2, high = 2}}, ints = true,
  float = false, exact = true, result = "int32",
  call = function(x) return x:argsort(2, true) end,
  ref = function(x)
    local places = naive.make(x.shape, function(i) return i[2] end)
    return (select(2, naive.sort(2, true, x, places)))
  end}
add {op = "eq", name = "one_hot", rule = "ab->ab.", inputs = {{8, 2, dtype = "int32", low = 0, high = 4}},
  result = "float32", exact = true, dtypes = {"float32"},
  call = function(x) return ml.one_hot(x, 4) end, -- 4 is outside: all zeros
  ref = function(x)
    return naive.make({8, 2, 4}, function(i) return naive.at(x, i) == i[3] and 1 or 0 end)
  end}

local function source(name, result, call, shape, fn)
  add {op = "iota", name = name, inputs = {}, dtypes = {"float32"}, result = result, call = call,
    ref = function() return naive.make(shape, fn) end}
end
local whole = "int32"
source("arange(n)", whole, function() return ml.arange(7) end, {7}, function(i) return i[1] end)
source("arange(first, last)", whole, function() return ml.arange(2, 7) end, {5},
  function(i) return i[1] + 2 end)
source("arange down", whole, function() return ml.arange(7, 1, -3) end, {2},
  function(i) return 7 - 3 * i[1] end)
source("arange of nothing", whole, function() return ml.arange(3, 3) end, {0})
source("arange of floats", "float32", function() return ml.arange(0.5, 2.0, 0.25) end, {6},
  function(i) return 0.5 + 0.25 * i[1] end)
source("linspace", "float32", function() return ml.linspace(-1, 1, 5) end, {5},
  function(i) return -1 + i[1] / 2 end)
source("eye", "float32", function() return ml.eye(3, 4) end, {3, 4},
  function(i) return i[1] == i[2] and 1 or 0 end)
source("zeros_like", "float32", function() return ml.zeros_like(ml.ones({2}, "int32"), "float32") end, {2},
  function() return 0 end)
source("ones_like", whole, function() return ml.ones_like(ml.zeros({2}, "int32")) end, {2},
  function() return 1 end)

return rows
