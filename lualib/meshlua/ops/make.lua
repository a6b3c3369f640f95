-- make.lua: tensors from numbers.
local core = require "meshlua.core"
local lib = require "meshlua.lib"
local args = require "meshlua.ops.args"
local explicit = require "meshlua.sharding.explicit"

local op, raise, shape_of = core.op, lib.raise, lib.check_shape
local check_tensor = args.check_tensor

local M = {}

local function dtype_for(value, dtype)
  if dtype then return dtype end
  if type(value) == "boolean" then return "bool" end
  return math.type(value) == "integer" and "int32" or "float32"
end

--- A tensor of a number or boolean, or of nested lists of them. Whole numbers are int32, others float32,
--- unless a dtype is given.
---@param values number|boolean|table
---@param dtype string?
function M.tensor(values, dtype)
  local x = core.tensor(values, dtype) -- 16-bit floats come as float32
  return dtype and x.dtype ~= dtype and op.astype(x, {dtype = dtype}) or x
end

--- Every element the same number. The dtype follows the number: full({2}, 0) is int32, 0.0 float32.
---@param shape integer[]
---@param value number|boolean
---@param dtype string?
function M.full(shape, value, dtype)
  if type(value) ~= "number" and type(value) ~= "boolean" then
    raise("E_VALUE", "full: expected a number or boolean, got %s", lib.kind(value))
  end
  return op.full {dims = shape_of("full", shape), value = value, dtype = dtype_for(value, dtype)}
end

--- A shape, given as a list or as numbers, and the dtype that may stand behind it.
local function shape_and_dtype(who, shape, ...)
  local n = select("#", ...)
  if n == 0 then return shape_of(who, shape) end
  local last = select(n, ...)
  if type(last) == "table" then last = last.dtype end
  if type(shape) == "table" then
    if n > 1 then raise("E_VALUE", "%s: expected a shape and a dtype, got %d arguments", who, n + 1) end
    if last ~= nil and type(last) ~= "string" then
      raise("E_VALUE", "%s: the dtype is %s; a shape of several dims is a list: {2, 3}", who, lib.kind(last))
    end
    return shape_of(who, shape), last
  end
  local dims, dtype = {shape, ...}, math.type(last) ~= "integer" and last or nil
  if dtype or last == nil then n = n - 1 end
  if dtype and type(dtype) ~= "string" then
    raise("E_VALUE", "%s: dim %d of the shape is %s, not a whole number", who, n + 2, lib.not_whole(dtype))
  end
  return shape_of(who, table.unpack(dims, 1, n + 1)), dtype
end

--- Zeros, ones: zeros({2, 3}), zeros(2, 3); float32 unless a dtype stands behind.
function M.zeros(shape, ...)
  local dims, dtype = shape_and_dtype("zeros", shape, ...)
  return M.full(dims, 0.0, dtype or "float32")
end
function M.ones(shape, ...)
  local dims, dtype = shape_and_dtype("ones", shape, ...)
  return M.full(dims, 1.0, dtype or "float32")
end

--- 0, 1, 2, ... along the dim of a shape.
function M.iota(shape, dim, dtype)
  return op.iota {dims = shape_of("iota", shape), dim = dim or 1, dtype = dtype or "int32"}
end

--- arange(n): 0 .. n-1; arange(first, last, step): below last. int32 for whole numbers, float32 for
--- others, or the dtype given.
function M.arange(first, last, step, dtype)
  if type(last) == "string" then last, dtype = nil, last end
  if type(step) == "string" then step, dtype = nil, step end
  if last == nil then first, last = math.type(first) == "integer" and 0 or 0.0, first end
  step = step or 1
  if type(first) ~= "number" or type(last) ~= "number" or type(step) ~= "number" or step == 0 then
    raise("E_VALUE", "arange: expected numbers and a step that is not 0")
  end
  local whole = math.type(first) == "integer" and math.type(last) == "integer"
    and math.type(step) == "integer"
  dtype = dtype or (whole and "int32" or "float32")
  local n = math.tointeger(math.max(0, math.ceil((last + 0.0 - first) / step)))
  if not n then raise("E_VALUE", "arange: there is no range from %s to %s by %s", first, last, step) end
  local largest = first + (n - 1) * step
  if dtype == "int32" and n > 0 and math.max(math.abs(first), math.abs(largest)) > 2147483647 then
    raise("E_VALUE", "arange: %s does not fit in int32", largest)
  end
  local x = op.iota {dims = {n}, dim = 1, dtype = dtype}
  if step ~= 1 then x = op.mul(x, step) end
  if first ~= 0 then x = op.add(x, first) end
  return x.dtype ~= dtype and op.astype(x, {dtype = dtype}) or x -- whole numbers by broken steps: cut
end

--- n numbers from first to last, both included: float32.
function M.linspace(first, last, n)
  lib.check_integer("linspace", "the number of elements", n)
  if type(first) ~= "number" or type(last) ~= "number" then
    raise("E_VALUE", "linspace: expected numbers, got %s and %s", lib.kind(first), lib.kind(last))
  end
  local x = op.iota {dims = {n}, dim = 1, dtype = "float32"}
  return op.add(op.mul(x, n > 1 and (last - first) / (n - 1) or 0.0), first + 0.0)
end

--- n numbers from base^first to base^last, both included: float32; base: default 10.
function M.logspace(first, last, n, base)
  lib.check_integer("logspace", "the number of elements", n)
  for i, number in ipairs {first, last, base or 10} do
    lib.check_number("logspace", ({"first", "last", "base"})[i], number)
  end
  return op.pow((base or 10) + 0.0, M.linspace(first, last, n))
end

--- The identity matrix.
function M.eye(n, m, dtype)
  local shape = shape_of("eye", {n, m or n})
  local row, column = M.iota(shape, 1), M.iota(shape, 2)
  return op.astype(op.eq(row, column), {dtype = dtype or "float32"})
end

local function full_like(who, x, value, dtype)
  check_tensor(who, x)
  if type(value) ~= "number" and type(value) ~= "boolean" then
    raise("E_VALUE", "full_like: expected a number or boolean, got %s", lib.kind(value))
  end
  local y = op.full {dims = x.shape, value = value, dtype = dtype or x.dtype}
  return explicit.laid_out_like(y, x)
end

--- A constant with the shape, dtype and sharding of x.
function M.full_like(x, value, dtype) return full_like("full_like", x, value, dtype) end
function M.zeros_like(x, dtype) return full_like("zeros_like", x, 0, dtype) end
function M.ones_like(x, dtype) return full_like("ones_like", x, 1, dtype) end

return M
