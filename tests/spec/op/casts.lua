-- casts.lua: prints what every cast between two dtypes and every division of integers gives, also out of
-- range; a line for each dtype and op. Programs on other kernels and on GPUs must print the same.
local ml = require "meshlua"
local dtypes = {"bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64",
  "float8_e4m3fn", "float8_e5m2", "bfloat16", "float16", "float32", "float64"}
local floats = {0.0, -0.0, 0.5, -0.5, -0.9, 1e-8, 254.5, 255.5, 256.0, 300.0, -1.0, -255.0, -256.0, 65519.0,
  65520.0, 1e5, -1e5, 2147483520.0, 2147483647.0, 2147483648.0, -2147483648.0, -2147483649.0, 4294967295.0,
  4294967296.0, 2.0 ^ 63, -2.0 ^ 63, 2.0 ^ 64, 1e20, -1e20, 3.4e38, 1e39, -1e39, 1 / 0, -1 / 0, 0 / 0}
local integers = {0, 1, -1, 2, 7, -7, 127, 128, 255, 256, 257, -129, -256, 2147483647, -2147483648,
  2147483648, 4294967295, 4294967296, math.maxinteger, math.mininteger, (1 << 60) + (1 << 36) + 1}

local function show(...)
  local words = {...}
  for i, x in ipairs(words) do
    words[i] = math.type(x) == "float" and (x ~= x and "nan" or ("%a"):format(x)) or tostring(x)
  end
  return table.concat(words, " ")
end

for _, from in ipairs(dtypes) do
  local real = from:match "float" ~= nil
  local x = ml.tensor(real and floats or integers, real and "float64" or "int64"):astype(from)
  local casts = ml.jit(function(v)
    local out = {}
    for i, to in ipairs(dtypes) do
      out[2 * i - 1], out[2 * i] = v:astype(to), v:astype(to):astype "float64" -- stored, and in a register
    end
    return table.unpack(out)
  end)
  for i, y in ipairs {casts(x)} do
    print(from, dtypes[(i + 1) // 2], show(table.unpack(y:totable())))
  end
  if not real and from ~= "bool" then
    local divide = ml.jit(function(a, b) return ml.rem(a, b), ml.mod(a, b), ml.floor_divide(a, b) end)
    local names = {"rem", "mod", "floor_divide"}
    for i, y in ipairs {divide(x:reshape(-1, 1), x:reshape(1, -1))} do
      print(from, names[i], show(table.unpack(y:reshape(-1):totable())))
    end
  end
end
