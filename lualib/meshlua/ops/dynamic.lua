-- dynamic.lua: slices whose place is computed. Starts are 0-based: whole numbers or integer scalars, one for
-- each dim. As in JAX, one below 0 counts from the end, and a slice that would reach beyond x begins where it
-- just does not.
local core = require "meshlua.core"
local lib = require "meshlua.lib"
local args = require "meshlua.ops.args"

local op, raise = core.op, lib.raise
local check_tensor = args.check_tensor

local M = {}

--- Raises unless there is a start and a size that fits for each dim.
local function check(who, x, starts, sizes)
  lib.check_list(who, "the starts", starts)
  if #starts ~= x.ndim or #sizes ~= x.ndim then
    raise("E_SHAPE", "%s: %s and %s for a tensor of rank %d", who, lib.count(#starts, "start"),
      lib.count(#sizes, "size"), x.ndim)
  end
  for d, size in ipairs(sizes) do
    if size < 0 or size > x.shape[d] then
      raise("E_SHAPE", "%s: %d of dim %d, which has %d", who, size, d, x.shape[d])
    end
  end
end

--- The starts as int32 [rank].
local function vector(who, starts)
  local parts, numbers = {}, true
  for d, start in ipairs(starts) do
    if math.type(start) == "integer" then
      parts[d] = math.max(-2147483648, math.min(start, 2147483647))
    else
      check_tensor(who, start)
      if start.ndim ~= 0 or not start.dtype:match "int" then
        raise("E_VALUE", "%s: a start is %s; expected a whole number or an integer scalar", who,
          core.typeof(start))
      end
      parts[d], numbers = op.reshape(args.to_int32(start), {dims = {1}}), false
    end
  end
  if #parts == 0 then return op.full {dims = {0}, value = 0, dtype = "int32"} end
  if numbers then return core.tensor(parts, "int32") end
  for d, part in ipairs(parts) do
    if math.type(part) then parts[d] = op.full {dims = {1}, value = part, dtype = "int32"} end
  end
  parts[#parts + 1] = {axis = 1}
  return op.concat(table.unpack(parts))
end

--- The part of x with these sizes that begins at starts.
---@param x Tensor
---@param starts (integer|Tensor)[]
---@param sizes integer[]
---@return Tensor
function M.dynamic_slice(x, starts, sizes)
  check_tensor("dynamic_slice", x)
  sizes = lib.check_shape("dynamic_slice", sizes)
  check("dynamic_slice", x, starts, sizes)
  return op.dynamic_slice(x, vector("dynamic_slice", starts), {dims = sizes})
end

--- x with the part that begins at starts replaced by update. Split, x stays as it is: each device writes what
--- falls into its part.
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
  return op.dynamic_update_slice(x, update, vector("dynamic_update_slice", starts), {})
end

return M
