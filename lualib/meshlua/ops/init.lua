-- ops/init.lua: the functions on tensors, with numpy's names and rules. Axes and positions count from 1,
-- negative ones from the end; ids count from 0.
local core = require "meshlua.core"
local args = require "meshlua.ops.args"
local explicit = require "meshlua.sharding.explicit"

local op, check_tensor = core.op, args.check_tensor
local check_operand, check_dtype = args.check_operand, args.check_dtype

local M = {}

for _, part in ipairs {"shape", "parts", "index", "dynamic", "reduce", "product", "conv", "make"} do
  for name, fn in pairs(require("meshlua.ops." .. part)) do M[name] = fn end
end

-- What is made of others is loaded when it is first called: starting should not wait for it.
for part, names in pairs {
  einsum = {"dot", "einsum", "kron", "outer", "tensordot"},
  math = {"acos", "acosh", "allclose", "asin", "asinh", "atan", "atanh", "cosh", "digamma", "exp2", "fmod",
    "hypot", "isclose", "isinf", "isnan", "log10", "log2",
    "logaddexp", "logit", "nan_to_num", "sinh", "tan", "trunc", "xlogy"},
  matrix = {"diag", "diagonal", "trace", "tril", "triu"},
  order = {"compress", "lexsort", "nonzero", "searchsorted", "unique"},
  rearrange = {"meshgrid", "moveaxis", "repeat_interleave", "roll", "tile"},
  statistics = {"bincount", "diff", "histogram", "interp", "median", "quantile"},
} do
  for _, name in ipairs(names) do
    local fn
    M[name] = function(...)
      fn = fn or core.wrap(require("meshlua.ops." .. part)[name], false, name) -- counts its arguments
      return fn(...)
    end
  end
end

-- ---- elementwise: straight from the op table ------------------------------------------------------
for _, row in ipairs(core.ops()) do
  if row.elementwise and not row.internal and #row.attributes == 0 and row.operands ~= "" then
    M[row.name] = op[row.name]
  end
end
M.threefry = nil
M.at_ids = nil -- as x:at

--- x as another dtype; floats become integers by cutting toward zero.
---@param x Tensor
---@param dtype string
function M.astype(x, dtype)
  return op.astype(check_tensor("astype", x), {dtype = check_dtype("astype", dtype)})
end

--- The bits of x as another dtype of the same width.
function M.bitcast(x, dtype)
  return op.bitcast(check_tensor("bitcast", x), {dtype = dtype})
end

--- x within [low, high]; either may be nil.
function M.clip(x, low, high)
  check_operand("clip", x)
  if low ~= nil then x = op.maximum(x, low) end
  if high ~= nil then x = op.minimum(x, high) end
  return x
end

--- x as a constant to gradients.
function M.stop_gradient(x) return op.stop_gradient(x) end

-- Every one of them takes {out_sharding = P(...)} behind its arguments.
for name, fn in pairs(M) do M[name] = explicit.with_out_sharding(name, fn) end

return M
