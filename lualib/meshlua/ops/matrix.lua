-- matrix.lua: parts of matrices. The dims in front of the last two count matrices.
local core = require "meshlua.core"
local lib = require "meshlua.lib"
local args = require "meshlua.ops.args"
local reduce = require "meshlua.ops.reduce"

local op, raise = core.op, lib.raise
local check_tensor, axis_of = args.check_tensor, args.axis_of

local M = {}

local function integer(who, what, k)
  return k == nil and 0 or lib.check_integer(who, what, k)
end

--- Row + k against column for the last two dims of a shape: op(row + k, column), bool[n,m].
local function against(compare, shape, k)
  local dims = {shape[#shape - 1], shape[#shape]}
  local row, column = op.iota {dims = dims, dim = 1, dtype = "int32"},
    op.iota {dims = dims, dim = 2, dtype = "int32"}
  return compare(k == 0 and row or op.add(row, math.max(-1 << 30, math.min(k, 1 << 30))), column)
end

--- Matrices with zeros where row + k does not compare so with the column.
local function masked(compare, x, k)
  return op.where(against(compare, x.shape, k), x, op.full {dims = {}, value = 0, dtype = x.dtype})
end

local function check_matrix(who, x)
  if check_tensor(who, x).ndim < 2 then raise("E_SHAPE", "%s: %s is no matrix", who, core.typeof(x)) end
end

local function triangle(who, compare)
  return function(x, k)
    k = integer(who, "k", k)
    check_matrix(who, x)
    return masked(compare, x, k)
  end
end

--- Zeros above (tril) or below (triu) the k-th diagonal of matrices; k: 0 is the main one, 1 the one above.
M.tril, M.triu = triangle("tril", op.ge), triangle("triu", op.le)

--- Slices of one dim each: {first, last, step}, 1-based.
local function cut(x, ranges)
  local shape, start, limit, step = x.shape, {}, {}, {}
  for d, n in ipairs(shape) do
    local range = ranges[d] or {1, n}
    start[d], limit[d], step[d] = range[1] - 1, range[2], range[3] or 1
  end
  return op.slice(x, {start = start, limit = limit, step = step})
end

--- x with two axes (default 1 and 2) behind the others, and the offset.
local function moved_last(who, x, offset, axis1, axis2)
  check_matrix(who, x)
  offset = integer(who, "the offset", offset)
  local rank = x.ndim
  local a, b = axis_of(who, axis1 or 1, rank), axis_of(who, axis2 or 2, rank)
  if a == b then raise("E_SHAPE", "%s: axis %d is given twice", who, a) end
  local perm = {}
  for d = 1, rank do
    if d ~= a and d ~= b then perm[#perm + 1] = d end
  end
  perm[rank - 1], perm[rank] = a, b
  return op.transpose(x, {perm = perm}), offset
end

local function diagonal(who, x, offset, axis1, axis2)
  x, offset = moved_last(who, x, offset, axis1, axis2)
  local shape, rank = x.shape, x.ndim
  local below, right = math.max(-offset, 0), math.max(offset, 0)
  local n = math.max(0, math.min(shape[rank - 1] - below, shape[rank] - right))
  if n == 0 then below, right = 0, 0 end
  local square = cut(x, {[rank - 1] = {below + 1, below + n}, [rank] = {right + 1, right + n}})
  shape[rank - 1], shape[rank] = n * n, nil
  return cut(op.reshape(square, {dims = shape}), {[rank - 1] = {1, n * n, n + 1}})
end

--- The diagonals of matrices, as the last dim: over two axes (default 1 and 2), `offset` above the main one.
---@param x Tensor
---@param offset integer? default 0
---@param axis1 integer?
---@param axis2 integer?
---@return Tensor
function M.diagonal(x, offset, axis1, axis2) return diagonal("diagonal", x, offset, axis1, axis2) end

--- The matrix that has a vector as its k-th diagonal, or that diagonal of a matrix.
---@param x Tensor
---@param k integer? default 0
---@return Tensor
function M.diag(x, k)
  k = integer("diag", "k", k)
  if check_tensor("diag", x).ndim == 2 then return diagonal("diag", x, k) end
  if x.ndim ~= 1 then raise("E_SHAPE", "diag: %s is neither a vector nor a matrix", core.typeof(x)) end
  local n, zero = x.size + math.abs(k), op.full {dims = {}, value = 0, dtype = x.dtype}
  local columns = op.pad(x, zero, {low = {math.max(k, 0)}, high = {math.max(-k, 0)}, interior = {0}})
  return op.where(against(op.eq, {n, n}, k), columns, zero)
end

--- The sum of the diagonal, as `diagonal` takes it. (Of matrices under a mask: a split one need not be gathered.)
---@param x Tensor
---@param offset integer? default 0
---@param axis1 integer?
---@param axis2 integer?
---@return Tensor
function M.trace(x, offset, axis1, axis2)
  x, offset = moved_last("trace", x, offset, axis1, axis2)
  return reduce.sum(masked(op.eq, x, offset), {-2, -1})
end

return M
