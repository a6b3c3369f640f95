-- Rows of the ops that combine the elements of a line up to each one.
local naive = require "spec.op.naive"

local rows = {}

local combine = {
  cumsum = function(a, x) return a + x end,
  cumprod = function(a, x) return a * x end,
  cummax = function(a, x) return math.max(a, x) end,
  cummin = function(a, x) return math.min(a, x) end,
}

for _, name in ipairs {"cumsum", "cumprod", "cummax", "cummin"} do
  for axis, rule in ipairs {"Ab->Ab", "aB->aB"} do
    local reverse, extremum = axis == 1, name:match "max" or name:match "min"
    rows[#rows + 1] = {op = name, name = name .. (reverse and " from the end" or ""), rule = rule,
      ints = true, inputs = {{8, 11, distinct = true, low = -1.5, high = 1.5}}, exact = extremum and true,
      dtypes = name == "cumsum" and {"float64", "float32", "bfloat16", "int32", "int64", "uint32"} or nil,
      tolerance = 32,
      call = function(x) return x[name](x, axis, reverse) end,
      ref = function(x)
        local y = naive.make(x.shape, function(i)
          local last, index, value = i[axis], {i[1], i[2]}, nil
          for k = reverse and x.shape[axis] - 1 or 0, last, reverse and -1 or 1 do
            index[axis] = k
            local v = naive.at(x, index)
            value = value and combine[name](value, v) or v
          end
          return value
        end)
        return x.dtype:match "int" and naive.wrapped(x.dtype, y) or y
      end}
  end
end

return rows
