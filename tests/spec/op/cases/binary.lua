-- Rows of the ops with two or three operands of one shape.
local ml = require "meshlua"
local naive = require "spec.op.naive"
local scalar = require "spec.op.scalar"

local rows = {}

local shapes = {
  {"", {8, 16}, {8, 16}},
  {", a column with a row", {8, 1}, {16}},
  {", a scalar", {8, 16}, {}},
}

--- An op by its function of two numbers (and their dtype), on the domains of x and y; integers are wrapped as
--- the dtype does.
--- for_scalar: what else its row has where the second operand is one number.
local function binary(name, f, x, y, more, for_scalar)
  for _, s in ipairs(shapes) do
    local row = {}
    for k, v in pairs(more or {}) do row[k] = v end
    for k, v in pairs(#s[3] == 0 and for_scalar or {}) do row[k] = v end
    row.op, row.name, row.elementwise = name, name .. s[1], true
    row.inputs = {table.move(s[2], 1, 2, 1, {}), table.move(s[3], 1, 2, 1, {})}
    for k, v in pairs(x) do row.inputs[1][k] = v end
    for k, v in pairs(y) do row.inputs[2][k] = v end
    row.call = ml[name]
    row.ref = function(a, b)
      return naive.map(function(p, q) return scalar.wrap(a.dtype, f(p, q, a.dtype)) end, a, b)
    end
    rows[#rows + 1] = row
  end
end

local any = {low = -2, high = 2}
local apart = {{distinct = true}, {distinct = true, phase = 0.3}}

binary("add", function(x, y) return x + y end, any, any, {ints = true})
binary("sub", function(x, y) return x - y end, any, any, {ints = true})
binary("mul", function(x, y) return x * y end, any, any, {ints = true})
binary("div", function(x, y) return x / y end, any, {low = 0.5, high = 2, int_low = 1, int_high = 9},
  {float = true, ints = true})
-- Quotients stay away from whole numbers, where the remainder jumps.
binary("rem", scalar.rem, {low = 1.1, high = 1.9},
  {low = 0.98, high = 1.02, int_low = -3, int_high = 3}, {ints = true})
-- Lua's own; its integers raise where the divisor is 0.
local function unless_zero(f, at_zero)
  return function(x, y, dtype)
    if y == 0 and math.type(y) == "integer" then return at_zero(x, dtype) end
    return f(x, y)
  end
end
binary("mod", unless_zero(function(x, y) return x % y end, function() return 0 end),
  {low = 1.1, high = 1.9}, {low = 0.98, high = 1.02, int_low = -3, int_high = 3}, {ints = true})
local function by_zero(x, dtype) return x ~= 0 and dtype:match "^int" and -2 or -1 end
binary("floor_divide", unless_zero(function(x, y) return x // y end, by_zero), {low = -2, high = 2},
  {low = 0.5, high = 0.7, int_low = -3, int_high = 3}, {ints = true})
-- The gradient of an exponent that is one number is a sum of 128 terms of either sign, with roundings as of the
-- larger terms, not of what is left.
binary("pow", scalar.pow, {low = 0.5, high = 2, int_low = -3, int_high = 3},
  {low = -2, high = 2, int_low = 0, int_high = 3}, {ints = true}, {tolerance = 8})
binary("atan2", math.atan, {low = 0.2, high = 2}, any, {float = true, tolerance = 8})
binary("maximum", scalar.max, apart[1], apart[2], {ints = true, exact = true})
binary("minimum", scalar.min, apart[1], apart[2], {ints = true, exact = true})

local function either(f, g) -- f of booleans, g of integers
  return function(x, y)
    if type(x) == "boolean" then return f(x, y) end
    return g(x, y)
  end
end
local bits = {floats = false, ints = true, bool = true}
binary("bitand", either(function(x, y) return x and y end, function(x, y) return x & y end), {}, {}, bits)
binary("bitor", either(function(x, y) return x or y end, function(x, y) return x | y end), {}, {}, bits)
binary("bitxor", either(function(x, y) return x ~= y end, function(x, y) return x ~ y end), {}, {}, bits)
local shifts = {floats = false, ints = true}
local amount = {int_low = 0, int_high = 7}
binary("shl", function(x, y) return x << y end, {}, amount, shifts)
binary("shr", function(x, y) return x // (1 << y) end, {}, amount, shifts)

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

for n = 0, 2 do
  rows[#rows + 1] = {op = "polygamma", name = "polygamma " .. n, elementwise = true, float = true,
    tolerance = 16, inputs = {{8, 16, low = 0.3, high = 4, int_low = 1, int_high = 5}},
    call = function(x) return ml.polygamma(n, x) end,
    ref = function(x)
      return naive.map(function(v) return scalar.polygamma(n, v) end, x)
    end}
end

return rows
