-- Rows of the ops with one operand. What a row can say: see rows.lua.
local ml = require "meshlua"
local naive = require "spec.op.naive"
local op = ml.core.op

local rows = {}

--- {name, f, input's domain, more fields of the row}
local function unary(name, f, domain, more)
  local row = more or {}
  row.op, row.elementwise = name, true
  row.inputs = {{8, 16, low = domain[1], high = domain[2], distinct = row.distinct}}
  row.call = row.call or ml[name]
  row.ref = function(x) return naive.map(function(v) return f(v, x.dtype) end, x) end
  rows[#rows + 1] = row
end

local function wrapped(f) -- of integers: as their dtype holds it
  return function(x, dtype)
    return math.type(x) == "integer" and naive.wrap(dtype, f(x)) or f(x)
  end
end

local smooth = {-2, 2}

unary("neg", wrapped(function(x) return -x end), smooth, {ints = true})
unary("abs", math.abs, smooth, {ints = true, distinct = true})
unary("sign", function(x) return x > 0 and 1 or x < 0 and -1 or 0 end, smooth,
  {ints = true, distinct = true})
unary("square", wrapped(function(x) return x * x end), smooth, {ints = true})
unary("floor", math.floor, {-3, 3}, {float = true})
unary("ceil", math.ceil, {-3, 3}, {float = true})
unary("round", naive.round_half_even, {-3, 3}, {float = true})

unary("exp", math.exp, smooth, {float = true})
unary("expm1", function(x) -- exact near 0 by its series
  if math.abs(x) > 0.5 then return math.exp(x) - 1 end
  local term, total = 1.0, 0.0
  for k = 1, 30 do
    term = term * x / k
    total = total + term
  end
  return total
end, {-1, 1}, {float = true})
unary("log", math.log, {0.1, 4}, {float = true, int_low = 1})
unary("log1p", function(x)
  if math.abs(x) > 0.25 then return math.log(1 + x) end
  local power, total = 1.0, 0.0
  for k = 1, 60 do
    power = -power * x
    total = total - power / k
  end
  return total
end, {-0.5, 3}, {float = true, int_low = 0})
unary("tanh", function(x) return 1 - 2 / (math.exp(2 * x) + 1) end, smooth, {float = true})
unary("sigmoid", function(x) return 1 / (1 + math.exp(-x)) end, {-4, 4}, {float = true})
unary("erf", naive.erf, smooth, {float = true})
unary("erf_inv", naive.erf_inv, {-0.9, 0.9}, {float = true, int_low = 0, int_high = 0})
unary("sin", math.sin, {-4, 4}, {float = true})
unary("cos", math.cos, {-4, 4}, {float = true})
unary("sqrt", math.sqrt, {0.1, 4}, {float = true, int_low = 0})
unary("rsqrt", function(x) return 1 / math.sqrt(x) end, {0.1, 4}, {float = true, int_low = 1})
unary("isfinite", function(x) return x == x and math.abs(x) < math.huge end, smooth,
  {result = "bool", ints = true})

for _, exponent in ipairs {0, 1, 2, 3, 7} do
  unary("int_pow", wrapped(function(x)
    local y = math.type(x) == "integer" and 1 or 1.0
    for _ = 1, exponent do y = y * x end
    return y
  end), {-1.5, 1.5}, {
    name = "int_pow " .. exponent, ints = true,
    call = function(x) return op.int_pow(x, {exponent = exponent}) end,
  })
end

unary("bitnot", wrapped(function(x)
  if type(x) == "boolean" then return not x end
  return ~x
end), {-8, 8}, {floats = false, ints = true, bool = true})

unary("stop_gradient", function(x) return x end, smooth, {ints = true, bool = true})
for _, name in ipairs {"identity", "opt_barrier", "copy"} do
  unary(name, function(x) return x end, smooth,
    {ints = true, bool = true, call = function(x) return op[name](x, {}) end})
end

-- ---- to another dtype --------------------------------------------------------------------------
for _, to in ipairs {"float32", "float64"} do
  unary("astype", function(x) return (x == true and 1 or x == false and 0 or x) + 0.0 end, smooth,
    {name = "astype " .. to, ints = true, bool = true, result = to,
      call = function(x) return x:astype(to) end})
end
for _, to in ipairs {"bfloat16", "float16"} do -- wider floats lose bits: a tolerance of their own
  unary("astype", function(x) return (x == true and 1 or x == false and 0 or x) + 0.0 end, smooth,
    {name = "astype " .. to, ints = true, bool = true, result = to, no_gradient_check = true,
      call = function(x) return x:astype(to) end})
end
for _, to in ipairs {"int32", "int64", "uint8", "uint32"} do
  unary("astype", function(x)
    if type(x) == "boolean" then return x and 1 or 0 end
    return naive.wrap(to, math.tointeger(x >= 0 and math.floor(x) or math.ceil(x)))
  end, {0, 8}, {name = "astype " .. to, ints = true, bool = true, result = to, int_low = -8,
    call = function(x) return x:astype(to) end})
end
unary("astype", function(x) return x ~= 0 and x ~= false end, {-2, 2},
  {name = "astype bool", ints = true, bool = true, result = "bool",
    call = function(x) return x:astype "bool" end})

for from, to in pairs {float32 = "int32", float64 = "int64", int32 = "uint32", int64 = "float64"} do
  local codes = {float32 = "<f", float64 = "<d", int32 = "<i4", int64 = "<i8", uint32 = "<I4"}
  unary("bitcast", function(x) return (codes[to]:unpack(codes[from]:pack(x))) end, {1, 2},
    {name = ("bitcast %s to %s"):format(from, to), dtypes = {from}, result = to,
      call = function(x) return x:bitcast(to) end})
end
table.sort(rows, function(a, b) return a.op .. (a.name or "") < b.op .. (b.name or "") end)

return rows
