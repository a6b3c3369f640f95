-- scalar.lua: the definitions of functions of numbers in plain Lua, right also at zeros of both signs, at
-- infinities and at NaN.
local M = {}

--- An integer as the dtype holds it; other values as they are.
function M.wrap(dtype, x)
  if math.type(x) ~= "integer" then return x end
  if dtype == "uint8" then return x & 0xff end
  if dtype == "uint32" then return x & 0xffffffff end
  if dtype == "int32" then
    x = x & 0xffffffff
    return x >= 1 << 31 and x - (1 << 32) or x
  end
  return x
end

function M.sign(x)
  if x > 0 then return 1 end
  if x < 0 then return -1 end
  return x
end

function M.expm1(x) -- by its series near 0, where the difference would lose digits
  if x == 0 then return x end
  if not (math.abs(x) < 0.5) then return math.exp(x) - 1 end
  local term, total = x, x
  for k = 2, 30 do
    term = term * x / k
    total = total + term
  end
  return total
end

function M.log1p(x)
  if x == 0 then return x end
  if not (math.abs(x) < 0.25) then return math.log(1 + x) end
  local power, total = x, x
  for k = 2, 60 do
    power = -power * x
    total = total + power / k
  end
  return total
end

function M.tanh(x)
  if x == 0 then return x end
  if math.abs(x) < 0.25 then
    local e = M.expm1(2 * x)
    return e / (e + 2)
  end
  return 1 - 2 / (math.exp(2 * x) + 1)
end

--- 1 - erf(x), by its continued fraction where that is small.
function M.erfc(x)
  if not (x > 1.5) then return 1 - M.erf(x) end
  if x > 40 then return 0.0 end
  local f = x
  for k = 200, 1, -1 do f = x + k / 2 / f end
  return math.exp(-x * x) / math.sqrt(math.pi) / f
end

--- The log of gamma's magnitude: a product of x up to where Stirling's series is exact.
function M.lgamma(x)
  local sum = 0.0
  if x == 1 or x == 2 then return 0.0 end
  if math.abs(x) == math.huge or x <= 0 and x == math.floor(x) then return math.huge end
  while x < 30 do
    sum, x = sum - math.log(math.abs(x)), x + 1
  end
  local z = 1 / (x * x)
  return sum + (x - 0.5) * math.log(x) - x + math.log(2 * math.pi) / 2
    + (1 / 12 - z * (1 / 360 - z / 1260)) / x
end

--- Of x > 0, by the sum that defines it and Euler's and Maclaurin's formula.
function M.polygamma(n, x)
  local sum, sign, factorial = 0.0, n % 2 == 1 and 1 or -1, 1.0
  for k = 2, n do factorial = factorial * k end
  while x < 200 do
    sum, x = sum + x ^ (-n - 1), x + 1
  end
  local s = n + 1
  local rest = (n == 0 and -math.log(x) or x ^ -n / n) + x ^ -s / 2 + s * x ^ (-s - 1) / 12
  return sign * factorial * (sum + rest - s * (s + 1) * (s + 2) * x ^ (-s - 3) / 720)
end

--- By its power series near 0, where that loses no digits, else by the continued fraction of 1 - erf.
function M.erf(x)
  if x ~= x or x == 0 then return x end
  if x < 0 then return -M.erf(-x) end
  if x > 1.5 then return 1 - M.erfc(x) end
  local term, total, n = x, x, 0
  repeat
    n = n + 1
    term = -term * x * x / n
    total = total + term / (2 * n + 1)
  until math.abs(term) < 1e-18
  return 2 / math.sqrt(math.pi) * total
end

--- The inverse of erf by Newton's method, for |y| < 0.999.
function M.erf_inv(y)
  if y == 0 then return y end
  if not (math.abs(y) < 1) then
    return math.abs(y) == 1 and y * math.huge or 0 / 0
  end
  local x = 0.0
  for _ = 1, 60 do
    x = x - (M.erf(x) - y) / (2 / math.sqrt(math.pi) * math.exp(-x * x))
  end
  return x
end

-- r with the sign of x, where r is a zero: C's rounding functions keep it, Lua's give an integer.
local function signed(r, x)
  if r ~= 0 then return r end
  return 1 / x < 0 and -0.0 or 0.0
end

local function is_whole(x) return x ~= x or math.abs(x) >= 2 ^ 52 end -- or has nothing to round

function M.floor(x) return is_whole(x) and x or signed(math.floor(x) + 0.0, x) end
function M.ceil(x) return is_whole(x) and x or signed(math.ceil(x) + 0.0, x) end

function M.round_half_even(x)
  if is_whole(x) then return x end
  local low = math.floor(x)
  local rest = x - low
  return signed((rest > 0.5 or rest == 0.5 and low % 2 == 1) and low + 1.0 or low + 0.0, x)
end

--- The larger, smaller of two; NaN if either is.
function M.max(x, y)
  if x ~= x then return x end
  return x > y and x or y
end
function M.min(x, y)
  if x ~= x then return x end
  return x < y and x or y
end

--- The remainder with the sign of x. By 0 an integer stays.
function M.rem(x, y)
  if math.type(x) == "integer" then return y == 0 and x or math.fmod(x, y) end
  return math.fmod(x, y)
end

--- x to the y; of integers wrapped, and for y < 0 the integer part of the quotient.
function M.pow(x, y)
  if math.type(x) ~= "integer" then return x ^ y end
  local z = 1
  for _ = 1, y do z = z * x end
  return z
end

--- threefry2x32 (Salmon et al. 2011), 20 rounds, over unsigned words.
function M.threefry(k0, k1, x0, x1)
  local word = 0xffffffff
  local keys, rotations = {k0, k1, k0 ~ k1 ~ 0x1BD11BDA}, {{13, 15, 26, 6}, {17, 29, 16, 24}}
  x0, x1 = (x0 + keys[1]) & word, (x1 + keys[2]) & word
  for r = 1, 5 do
    for _, by in ipairs(rotations[(r - 1) % 2 + 1]) do
      x0 = (x0 + x1) & word
      x1 = ((x1 << by | x1 >> (32 - by)) & word) ~ x0
    end
    x0 = (x0 + keys[r % 3 + 1]) & word
    x1 = (x1 + keys[(r + 1) % 3 + 1] + r) & word
  end
  return x0, x1
end

return M
