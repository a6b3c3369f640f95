-- shape.lua: the same elements in another shape or order of dims.
local core = require "meshlua.core"
local lib = require "meshlua.lib"
local args = require "meshlua.ops.args"

local op, raise, shape_of = core.op, lib.raise, lib.check_shape
local check_tensor, axis_of, axes_of = args.check_tensor, args.axis_of, args.axes_of
local product, copy = lib.product, args.copy

local M = {}

--- The same elements in another shape: reshape(x, {2, -1}) or reshape(x, 2, -1). One dim may be -1.
---@param x Tensor
function M.reshape(x, ...)
  check_tensor("reshape", x)
  local shape, hole = shape_of("reshape", ...), nil
  for i = 1, #shape do
    local n = shape[i]
    if n == -1 then
      if hole then raise("E_SHAPE", "reshape: only one dim can be -1") end
      hole = i
    elseif n < 0 then
      raise("E_SHAPE", "reshape: dim %d is %d", i, n)
    end
  end
  if hole then
    shape = copy(shape)
    shape[hole] = 1
    local rest = product(shape)
    if rest == 0 or x.size % rest ~= 0 then
      raise("E_SHAPE", "reshape: %d does not divide %s", rest, lib.count(x.size, "element"))
    end
    shape[hole] = x.size // rest
  end
  return op.reshape(x, {dims = shape})
end

--- The dims in another order: transpose(x, {3, 1, 2}), transpose(x, 3, 1, 2); without axes reversed.
function M.transpose(x, ...)
  check_tensor("transpose", x)
  local rank, perm = x.ndim, {}
  if ... == nil then
    for d = 1, rank do perm[d] = rank + 1 - d end
  else
    perm = copy(type(...) == "table" and lib.check_list("transpose", "axes", ...) or {...})
    for i, axis in ipairs(perm) do perm[i] = axis_of("transpose", axis, rank) end
  end
  return op.transpose(x, {perm = perm})
end

local function exchanged(x, rank, a, b)
  local perm = {}
  for d = 1, rank do perm[d] = d end
  perm[a], perm[b] = b, a
  return op.transpose(x, {perm = perm})
end

--- The last two dims exchanged.
function M.T(x)
  local rank = check_tensor("T", x).ndim
  if rank < 2 then return x end
  return exchanged(x, rank, rank, rank - 1)
end

--- Two axes exchanged.
function M.swapaxes(x, a, b)
  local rank = check_tensor("swapaxes", x).ndim
  return exchanged(x, rank, axis_of("swapaxes", a, rank), axis_of("swapaxes", b, rank))
end

--- x repeated to a larger shape by numpy's rule: dims align at the end, size 1 stretches.
function M.broadcast(x, ...)
  check_tensor("broadcast", x)
  local shape, at = shape_of("broadcast", ...), {}
  for d = 1, x.ndim do at[d] = #shape - x.ndim + d end
  if #shape < x.ndim then raise("E_SHAPE", "broadcast: rank %d to rank %d", x.ndim, #shape) end
  return op.broadcast(x, {dims = shape, at = at})
end

--- A dim of size 1 put in at `axis` of the result.
function M.expand_dims(x, axis)
  check_tensor("expand_dims", x)
  local shape = copy(x.shape)
  table.insert(shape, axis_of("expand_dims", axis, x.ndim + 1), 1)
  return op.reshape(x, {dims = shape})
end

--- Without the given dims of size 1 (nil: all of them).
function M.squeeze(x, axes)
  check_tensor("squeeze", x)
  local drop, shape = {}, {}
  if axes ~= nil then
    for _, a in ipairs(axes_of("squeeze", axes, x.ndim)) do
      if x.shape[a] ~= 1 then
        raise("E_SHAPE", "squeeze: dim %d has size %d, not 1", a, x.shape[a])
      end
      drop[a] = true
    end
  end
  for d, n in ipairs(x.shape) do
    if not (drop[d] or axes == nil and n == 1) then shape[#shape + 1] = n end
  end
  return op.reshape(x, {dims = shape})
end

return M
