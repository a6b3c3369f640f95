-- dynamic.lua: slices whose place is computed. Starts are 0-based: whole numbers or int32 tensors, one for
-- each dim. As in JAX, a slice that would reach beyond x begins where it just does not.
local core = require "meshlua.core"
local lib = require "meshlua.lib"
local args = require "meshlua.ops.args"
local parts = require "meshlua.ops.parts"

local op, raise = core.op, lib.raise
local check_tensor = args.check_tensor

local M = {}

--- Raises unless there is a start and a size that fits for each dim.
local function check(who, x, starts, sizes)
  lib.check_list(who, "the starts", starts)
  if #starts ~= x.ndim or #sizes ~= x.ndim then
    raise("E_SHAPE", "%s: %d starts and %d sizes for a tensor of rank %d", who, #starts, #sizes, x.ndim)
  end
  for d, size in ipairs(sizes) do
    if size < 0 or size > x.shape[d] then
      raise("E_SHAPE", "%s: %d of dim %d, which has %d", who, size, d, x.shape[d])
    end
  end
end

--- The start along a dim as an int32 scalar within 0 .. last.
local function start_within(who, start, last)
  if math.type(start) == "integer" then start = core.tensor(start) end
  check_tensor(who, start)
  if start.ndim ~= 0 or not start.dtype:match "int" then
    raise("E_VALUE", "%s: a start is %s; expected a whole number or an integer scalar", who,
      core.typeof(start))
  end
  return op.minimum(op.maximum(op.astype(start, {dtype = "int32"}), 0), last)
end

--- The part of x with these sizes that begins at starts.
---@param x Tensor
---@param starts (integer|Tensor)[]
---@param sizes integer[]
---@return Tensor
function M.dynamic_slice(x, starts, sizes)
  check_tensor("dynamic_slice", x)
  check("dynamic_slice", x, starts, lib.check_shape("dynamic_slice", sizes))
  for d, size in ipairs(sizes) do
    local n = x.shape[d]
    if size < n then
      local first = start_within("dynamic_slice", starts[d], n - size)
      x = parts.take(x, op.add(op.iota {dims = {size}, dim = 1, dtype = "int32"}, first), d)
    end
  end
  return x
end

--- x with the part that begins at starts replaced by update.
---@param x Tensor
---@param update Tensor of x's dtype and rank
---@param starts (integer|Tensor)[]
---@return Tensor
function M.dynamic_update_slice(x, update, starts)
  check_tensor("dynamic_update_slice", x)
  check_tensor("dynamic_update_slice", update)
  if update.dtype ~= x.dtype then
    raise("E_DTYPE", "dynamic_update_slice: %s into %s", core.typeof(update), core.typeof(x))
  end
  check("dynamic_update_slice", x, starts, update.shape)
  local inside
  for d, n in ipairs(x.shape) do
    local size = update.shape[d]
    if size == 0 then return x end
    if size < n then
      local first = start_within("dynamic_update_slice", starts[d], n - size)
      local place = op.sub(op.iota {dims = {n}, dim = 1, dtype = "int32"}, first)
      update = parts.take(update, op.minimum(op.maximum(place, 0), size - 1), d)
      local column = {}
      for k = 1, x.ndim do column[k] = k == d and n or 1 end
      local here = op.reshape(op.bitand(op.ge(place, 0), op.lt(place, size)), {dims = column})
      inside = inside and op.bitand(inside, here) or here
    end
  end
  return inside and op.where(inside, update, x) or update
end

return M
