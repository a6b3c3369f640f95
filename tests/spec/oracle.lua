-- oracle.lua: the numbers under tests/oracle, which other programs have made, and what specs need to compare
-- with them. A spec gets it by `require "spec.oracle"`.
local json = require "dkjson" -- comes with busted
local ml = require "meshlua"

local M = {}

--- The numbers of tests/oracle/NAME.json.
---@param name string
---@return table
function M.read(name)
  local handle <close> = assert(io.open("tests/oracle/" .. name .. ".json", "rb"))
  return assert(json.decode(handle:read "a"))
end

--- The inputs of the scripts there: (37 i mod 101 - 50) / 50.
---@param shape integer[]
---@param dtype string? float64
function M.ramp(shape, dtype)
  local n, list = 1, {}
  for _, size in ipairs(shape) do n = n * size end
  for i = 0, n - 1 do list[i + 1] = (37 * i % 101 - 50) / 50 end
  return ml.tensor(list, dtype or "float64"):reshape(shape)
end

local function flat(x, out)
  for _, y in ipairs(x) do
    if type(y) == "table" then flat(y, out) else out[#out + 1] = y end
  end
  return out
end

-- Of each float dtype: string.pack's formats of the number and its bits, and the bits that it has fewer.
local bits_of = {float64 = {"<d", "<i8", 0}, float32 = {"<f", "<i4", 0}, bfloat16 = {"<f", "<i4", 16}}

--- How many representable numbers of the dtype lie between the farthest two of a tensor and its (nested)
--- expected numbers.
---@param expected table
---@param actual Tensor float64, float32 or bfloat16
---@return integer
function M.ulps(expected, actual)
  local float, integer, shift = table.unpack(bits_of[actual.dtype])
  local function ordinal(x)
    local bits = string.unpack(integer, string.pack(float, math.abs(x))) >> shift
    return x < 0 and -bits or bits
  end
  local a, b, most = flat(expected, {}), flat(actual:totable(), {}), 0
  if #a ~= #b then error(("%d numbers, %d expected"):format(#b, #a), 2) end
  for i = 1, #a do most = math.max(most, math.abs(ordinal(a[i]) - ordinal(b[i]))) end
  return most
end

return M
