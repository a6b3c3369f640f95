-- data.lua: numbers for the op specs: random inputs that follow from a seed, tensors as flat lists and back.
-- A flat list is {shape = {...}, dtype = "...", x1, x2, ...} in row-major order.
local ml = require "meshlua"
local programs = require "fuzz.programs"

local M = {generator = programs.generator, random_spec = programs.random_spec}

M.floats = {"float64", "float32", "bfloat16", "float16"}
M.ints = {"int32", "uint32", "uint8", "int64"}

--- What one rounding of a value of magnitude 1 costs at most, twice.
M.epsilon = {float64 = 2 ^ -52, float32 = 2 ^ -23, float16 = 2 ^ -10, bfloat16 = 2 ^ -7}

function M.is_float(dtype) return M.epsilon[dtype] ~= nil end

--- The dtype in which sums over a dtype are kept.
function M.accumulator(dtype)
  return (dtype == "bfloat16" or dtype == "float16") and "float32" or dtype
end

function M.count(shape)
  local n = 1
  for _, size in ipairs(shape) do n = n * size end
  return n
end

local function flatten(value, out)
  if type(value) ~= "table" then
    out[#out + 1] = value
    return out
  end
  for _, v in ipairs(value) do flatten(v, out) end
  return out
end

--- The elements of a tensor as a flat list.
function M.flat(x)
  local out = flatten(x:totable(), {})
  out.shape, out.dtype = x.shape, x.dtype
  return out
end

--- Tensors as flat lists.
function M.flats(tensors)
  local out = {}
  for k, x in ipairs(tensors) do out[k] = M.flat(x) end
  return out
end

--- The tensor of a flat list.
function M.tensor(list, dtype)
  dtype = dtype or list.dtype
  local wide = M.is_float(dtype) and "float64" or dtype
  if #list == 0 then return ml.zeros(list.shape, dtype) end
  local x = ml.tensor(table.move(list, 1, #list, 1, {}), wide):reshape(list.shape)
  return wide == dtype and x or ml.astype(x, dtype)
end

-- A permutation of 1..n.
local function shuffled(g, n)
  local order = {}
  for i = 1, n do
    local k = g.int(1, i)
    order[i] = order[k]
    order[k] = i
  end
  return order
end

local fill = {}

--- Anywhere in the domain.
function fill.float(g, input, n)
  local out, low, high = {}, input.low or -2.0, input.high or 2.0
  for i = 1, n do out[i] = low + (high - low) * g.int(0, 1 << 20) / (1 << 20) end
  return out
end

--- No two alike, and none at the ends or in the middle of the domain: for ops with kinks and ties. `phase`
--- (in steps of the grid) keeps two operands apart.
function fill.distinct(g, input, n)
  local out, low, high = {}, input.low or -2.0, input.high or 2.0
  for i, k in ipairs(shuffled(g, n)) do
    out[i] = low + (high - low) * (k - 0.5 + (input.phase or 0) + (n % 2) * 0.1) / n
  end
  return out
end

function fill.int(g, input, n)
  local out = {}
  for i = 1, n do out[i] = g.int(input.low or -8, input.high or 8) end
  return out
end

function fill.bool(g, _, n)
  local out = {}
  for i = 1, n do out[i] = g.chance(50) end
  return out
end

--- Random contents for an input of a row: {8, 4, low =, high =, distinct =, dtype =}. `dtype` is what is
--- under test; an input with a dtype of its own keeps that.
function M.random(g, input, dtype, shape)
  dtype, shape = input.dtype or dtype, shape or table.move(input, 1, #input, 1, {})
  local kind = dtype == "bool" and "bool" or not M.is_float(dtype) and "int"
    or input.distinct and "distinct" or "float"
  local range = input
  if kind == "int" and not input.dtype then
    -- The same op on integers: the domain's whole numbers that the dtype has.
    local low = math.ceil(input.int_low or input.low or -8)
    local high = math.floor(input.int_high or input.high or 8)
    range = {low = dtype:match "^u" and math.max(low, 0) or low, high = math.max(high, low, 0)}
  end
  local out = fill[kind](g, range, M.count(shape))
  out.shape, out.dtype = shape, dtype
  return out
end

local function same(x, y) return x == y or x ~= x and y ~= y end

--- The largest finite magnitude in a flat list.
function M.scale(list)
  local scale = 0
  for _, x in ipairs(list) do
    if type(x) == "number" and x - x == 0 then scale = math.max(scale, math.abs(x)) end
  end
  return scale
end

--- Where two flat lists differ in shape, or by more than `tolerance` times the scale (by default that of what
--- is expected): a text. NaN equals NaN.
function M.difference(expected, actual, tolerance, scale)
  local a, b = table.concat(expected.shape, ","), table.concat(actual.shape, ",")
  if a ~= b then return ("shape [%s], expected [%s]"):format(b, a) end
  local limit = tolerance * (scale or M.scale(expected))
  for i = 1, math.max(#expected, #actual) do
    local x, y = expected[i], actual[i]
    if type(x) == "boolean" and type(y) == "number" then x = x and 1 or 0 end
    if not same(x, y) and not (type(x) == "number" and type(y) == "number" and math.abs(x - y) <= limit) then
      return ("element %d: expected %s, got %s"):format(i, x, y)
    end
  end
end

return M
