-- Rows of the ops with two or three operands of one shape.
local ml = require "meshlua"
local naive = require "spec.op.naive"

local rows = {}

local shapes = {
  {"", {8, 16}, {8, 16}},
  {", a column with a row", {8, 1}, {16}},
  {", a scalar", {8, 16}, {}},
}

--- {name, f, domains of x and y, more}
local function binary(name, f, x, y, more)
  for _, s in ipairs(shapes) do
    local row = {}
    for k, v in pairs(more or {}) do row[k] = v end
    row.op, row.name, row.elementwise = name, name .. s[1], true
    row.inputs = {table.move(s[2], 1, 2, 1, {}), table.move(s[3], 1, 2, 1, {})}
    for k, v in pairs(x) do row.inputs[1][k] = v end
    for k, v in pairs(y) do row.inputs[2][k] = v end
    row.call = ml[name]
    row.ref = function(a, b)
      return naive.map(function(p, q) return f(p, q, a.dtype) end, a, b)
    end
    rows[#rows + 1] = row
  end
end

local function wrapped(f)
  return function(x, y, dtype)
    return math.type(x) == "integer" and naive.wrap(dtype, f(x, y)) or f(x, y)
  end
end

local any = {low = -2, high = 2}
local apart = {{distinct = true}, {distinct = true, phase = 0.3}}

binary("add", wrapped(function(x, y) return x + y end), any, any, {ints = true})
binary("sub", wrapped(function(x, y) return x - y end), any, any, {ints = true})
binary("mul", wrapped(function(x, y) return x * y end), any, any, {ints = true})
binary("div", function(x, y) return x / y end, any, {low = 0.5, high = 2, int_low = 1, int_high = 9},
  {float = true, ints = true})
-- The remainder has the sign of x; quotients stay away from whole numbers, where it jumps.
binary("rem", function(x, y)
  if math.type(x) == "integer" then return y == 0 and x or math.fmod(x, y) end
  return math.fmod(x, y)
end, {low = 1.1, high = 1.9}, {low = 0.98, high = 1.02, int_low = -3, int_high = 3}, {ints = true})
binary("pow", wrapped(function(x, y)
  if math.type(x) ~= "integer" then return x ^ y end
  local z = 1
  for _ = 1, y do z = z * x end
  return z
end), {low = 0.5, high = 2, int_low = -3, int_high = 3}, {low = -2, high = 2, int_low = 0, int_high = 3},
  {ints = true})
binary("maximum", math.max, apart[1], apart[2], {ints = true})
binary("minimum", math.min, apart[1], apart[2], {ints = true})

local function either(f, g) -- f of booleans, g of integers
  return function(x, y, dtype)
    if type(x) == "boolean" then return f(x, y) end
    return naive.wrap(dtype, g(x, y))
  end
end
local bits = {floats = false, ints = true, bool = true}
binary("bitand", either(function(x, y) return x and y end, function(x, y) return x & y end), {}, {}, bits)
binary("bitor", either(function(x, y) return x or y end, function(x, y) return x | y end), {}, {}, bits)
binary("bitxor", either(function(x, y) return x ~= y end, function(x, y) return x ~ y end), {}, {}, bits)
local shifts = {floats = false, ints = true}
local amount = {int_low = 0, int_high = 7}
binary("shl", wrapped(function(x, y) return x << y end), {}, amount, shifts)
binary("shr", wrapped(function(x, y) return x // (1 << y) end), {}, amount, shifts)

for name, f in pairs {
  eq = function(x, y) return x == y end, ne = function(x, y) return x ~= y end,
  lt = function(x, y) return x < y end, le = function(x, y) return x <= y end,
  gt = function(x, y) return x > y end, ge = function(x, y) return x >= y end,
} do
  binary(name, f, {int_low = 0, int_high = 3}, {int_low = 0, int_high = 3},
    {ints = true, result = "bool"})
end

rows[#rows + 1] = {
  op = "where", elementwise = true, ints = true, bool = true,
  inputs = {{8, 16, dtype = "bool"}, {8, 16}, {8, 16}},
  call = ml.where,
  ref = function(c, x, y) return naive.map(function(p, a, b)
    if p then return a end
    return b
  end, c, x, y) end,
}
rows[#rows + 1] = {
  op = "where", name = "where, a column, a row and a scalar", elementwise = true, ints = true,
  inputs = {{8, 1, dtype = "bool"}, {16}, {}},
  call = ml.where,
  ref = function(c, x, y) return naive.map(function(p, a, b) return p and a or b end, c, x, y) end,
}
table.sort(rows, function(a, b) return a.op .. (a.name or "") < b.op .. (b.name or "") end)

return rows
