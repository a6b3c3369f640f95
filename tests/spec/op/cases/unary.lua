-- Rows of the ops with one operand. What a row can say: see rows.lua.
local ml = require "meshlua"
local naive = require "spec.op.naive"
local scalar = require "spec.op.scalar"
local op = ml.core.op

local rows = {}

--- An op by its function of a number, on a domain; a result that is an integer is wrapped as the dtype does.
local function unary(name, f, domain, more)
  local row = more or {}
  row.op, row.elementwise = name, true
  row.inputs = {{8, 16, low = domain[1], high = domain[2], distinct = row.distinct}}
  row.inputs[1].int_low, row.inputs[1].int_high = row.int_low, row.int_high
  row.call = row.call or ml[name]
  row.ref = function(x)
    return naive.map(function(v) return scalar.wrap(row.result or x.dtype, f(v)) end, x)
  end
  rows[#rows + 1] = row
end

local any = {-2, 2}

unary("neg", function(x) return -x end, any, {ints = true, exact = true})
unary("abs", math.abs, any, {ints = true, distinct = true, exact = true})
unary("sign", scalar.sign, any, {ints = true, distinct = true, exact = true})
unary("square", function(x) return x * x end, any, {ints = true})
unary("floor", scalar.floor, {-3, 3}, {float = true, exact = true})
unary("ceil", scalar.ceil, {-3, 3}, {float = true, exact = true})
unary("round", scalar.round_half_even, {-3, 3}, {float = true, exact = true})
unary("exp", math.exp, any, {float = true})
unary("expm1", scalar.expm1, {-1, 1}, {float = true})
unary("log", function(x) return math.log(x) end, {0.1, 4}, {float = true, int_low = 1})
unary("log1p", scalar.log1p, {-0.5, 3}, {float = true, int_low = 0})
unary("tanh", scalar.tanh, any, {float = true})
unary("sigmoid", function(x) return 1 / (1 + math.exp(-x)) end, {-4, 4}, {float = true})
unary("erf", scalar.erf, any, {float = true})
unary("erf_inv", scalar.erf_inv, {-0.9, 0.9}, {float = true, int_low = 0, int_high = 0})
unary("erfc", scalar.erfc, {-2, 3}, {float = true, tolerance = 8})
unary("lgamma", scalar.lgamma, {0.3, 5}, {float = true, int_low = 1, tolerance = 512})
unary("sin", math.sin, {-4, 4}, {float = true})
unary("cos", math.cos, {-4, 4}, {float = true})
unary("sqrt", function(x) return x == 0 and x or math.sqrt(x) end, {0.1, 4}, {float = true, int_low = 0})
unary("rsqrt", function(x) return 1 / (x == 0 and x or math.sqrt(x)) end, {0.1, 4},
  {float = true, int_low = 1})
unary("isfinite", function(x) return x - x == 0 end, any, {result = "bool", ints = true})

for _, exponent in ipairs {0, 1, 2, 3, 7} do
  unary("int_pow", function(x)
    local y = math.type(x) == "integer" and 1 or 1.0
    for _ = 1, exponent do y = y * x end
    return y
  end, {-1.5, 1.5}, {
    name = "int_pow " .. exponent, ints = true, rule = exponent == 0 and "AB->AB" or nil, -- 1 has no place
    call = function(x) return op.int_pow(x, {exponent = exponent}) end,
  })
end

unary("bitnot", function(x)
  if type(x) == "boolean" then return not x end
  return ~x
end, {-8, 8}, {floats = false, ints = true, bool = true})

-- ---- to another dtype --------------------------------------------------------------------------
local function number(x) return x == true and 1 or x == false and 0 or x end
for _, to in ipairs {"float64", "float32", "bfloat16", "float16"} do
  unary("astype", function(x) return number(x) + 0.0 end, any,
    {name = "astype " .. to, ints = true, bool = true, result = to, no_gradient_check = to ~= "float64",
      call = function(x) return x:astype(to) end})
end
for _, to in ipairs {"int32", "int64", "uint8", "uint32"} do
  unary("astype", function(x)
    x = number(x)
    return math.tointeger(x >= 0 and math.floor(x) or math.ceil(x))
  end, {to:match "^u" and 0 or -8, 8}, {
    name = "astype " .. to, ints = true, bool = true, result = to, int_low = -8,
    call = function(x) return x:astype(to) end,
  })
end
unary("astype", function(x) return x ~= 0 and x ~= false end, any,
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
