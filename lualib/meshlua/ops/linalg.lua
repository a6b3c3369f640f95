-- linalg.lua: factors of matrices and what is solved with them, as jax.numpy.linalg and jax.lax.linalg have it. Matrices
-- are the last two dims; those in front count them. Integers become float32.
local core = require "meshlua.core"
local lib = require "meshlua.lib"
local args = require "meshlua.ops.args"
local explicit = require "meshlua.sharding.explicit"
local ops = require "meshlua.ops"

local op, raise = core.op, lib.raise

local M = {}

--- x as floats.
local function floats(who, x)
  return lib.floats[args.check_tensor(who, x).dtype] and x or op.astype(x, {dtype = "float32"})
end

--- x as floats, of square matrices.
local function square(who, x)
  x = floats(who, x)
  local shape = x.shape
  if #shape < 2 or shape[#shape] ~= shape[#shape - 1] then
    raise("E_SHAPE", "%s: %s; the last two dims are those of square matrices", who, core.typeof(x))
  end
  return x, shape, #shape
end

local function turned(x) return ops.swapaxes(x, -1, -2) end

local function symmetric(x) return op.mul(op.add(x, turned(x)), 0.5) end

local function eye_of(shape, dtype)
  local rank = #shape
  local row, column = op.iota {dims = shape, dim = rank - 1, dtype = "int32"},
    op.iota {dims = shape, dim = rank, dtype = "int32"}
  return op.astype(op.eq(row, column), {dtype = dtype})
end

--- a and b of one dtype, with the same dims in front of their last two; b's own where it is a vector or vectors.
local function meet(who, a, b)
  local list = args.meet(who, {floats(who, a), floats(who, b)})
  a, b = list[1], list[2]
  local sa, sb = square(who, a).shape, b.shape
  if #sb < 2 then
    raise("E_SHAPE", "%s: %s for b; its last two dims are those of matrices", who, core.typeof(b))
  end
  local front = args.stretched(sa, sb, 2)
  if not front then
    raise("E_SHAPE", "%s: the dims in front of matrices do not fit: %s and %s", who, core.typeof(a),
      core.typeof(b))
  end
  local function as(x, own)
    local shape = args.copy(front)
    shape[#front + 1], shape[#front + 2] = own[#own - 1], own[#own]
    return ops.broadcast(x, shape)
  end
  return as(a, sa), as(b, sb)
end

--- The lower triangles l of symmetric positive definite matrices x = l l^T; NaN for others.
---@param x Tensor
---@param upper boolean? l^T instead
---@param symmetrize_input boolean? default true: of (x + x^T) / 2; false: the lower triangle is read
---@return Tensor
function M.cholesky(x, upper, symmetrize_input)
  x = square("linalg.cholesky", x)
  if symmetrize_input ~= false then x = symmetric(x) elseif upper then x = turned(x) end
  local l = op.cholesky(x)
  return upper and turned(l) or l
end

--- x of a x = b (left_side) or x a = b, for triangles: what is beyond the diagonal is not read.
---@param a Tensor
---@param b Tensor matrices, or vectors
---@param left_side boolean?
---@param lower boolean? which triangle; default the upper
---@param transpose_a boolean? a^T in place of a
---@param unit_diagonal boolean? the diagonal counts as ones
---@return Tensor
function M.triangular_solve(a, b, left_side, lower, transpose_a, unit_diagonal)
  local who = "linalg.triangular_solve"
  local _, _, rank = square(who, a)
  local shape = args.check_tensor(who, b, "b").shape
  local is_vector = #shape == rank - 1
  if is_vector then
    local wide = args.copy(shape)
    table.insert(wide, left_side and rank or rank - 1, 1)
    b = op.reshape(b, {dims = wide})
  end
  a, b = meet(who, a, b)
  local x = op.triangular_solve(a, b, {right = not left_side, lower = lower or false,
    transpose = transpose_a or false, unit = unit_diagonal or false})
  if not is_vector then return x end
  local dims = x.shape
  table.remove(dims, left_side and #dims or #dims - 1)
  return op.reshape(x, {dims = dims})
end

--- Triangles l (below the diagonal, whose ones are left out) and u in one matrix, the rows that were exchanged, and
--- the order in which x's rows are those of l u: 0-based int32.
---@param x Tensor
---@return Tensor lu, Tensor pivots, Tensor permutation
function M.lu(x) return op.lu(floats("linalg.lu", x)) end

--- x of a x = b. Singular matrices give infinities or NaN.
---@param a Tensor
---@param b Tensor matrices, or one vector
---@return Tensor
function M.solve(a, b)
  local who = "linalg.solve"
  local is_vector = args.check_tensor(who, b, "b").ndim == 1
  if is_vector then b = op.reshape(b, {dims = {b.size, 1}}) end
  a, b = meet(who, a, b)
  local shape, rank = b.shape, b.ndim
  if shape[rank - 1] ~= a.shape[rank] then
    raise("E_SHAPE", "%s: b has %s, a %d; as many are solved for", who, lib.count(shape[rank - 1], "row"),
      a.shape[rank])
  end
  local lu, _, order = op.lu(a)
  local y = ops.take_along_axis(b, ops.expand_dims(order, -1), -2)
  y = op.triangular_solve(lu, y, {right = false, lower = true, transpose = false, unit = true})
  y = op.triangular_solve(lu, y, {right = false, lower = false, transpose = false, unit = false})
  if not is_vector then return y end
  shape[rank] = nil
  return op.reshape(y, {dims = shape})
end

--- The inverses of matrices.
---@param x Tensor
---@return Tensor
function M.inv(x)
  local shape
  x, shape = square("linalg.inv", x)
  return M.solve(x, eye_of(shape, x.dtype))
end

--- The diagonal of lu, and -1 or 1 by the number of rows that were exchanged.
local function diagonal_and_parity(who, x)
  local _, rank
  x, _, rank = square(who, x)
  local lu, pivots = op.lu(x)
  local moved = op.ne(pivots, op.iota {dims = pivots.shape, dim = rank - 1, dtype = "int32"})
  local odd = op.bitand(ops.sum(op.astype(moved, {dtype = "int32"}), -1), 1)
  return ops.diagonal(lu, 0, rank - 1, rank), op.sub(1, op.mul(op.astype(odd, {dtype = x.dtype}), 2))
end

--- The determinants of matrices.
---@param x Tensor
---@return Tensor
function M.det(x)
  local diagonal, parity = diagonal_and_parity("linalg.det", x)
  return op.mul(ops.prod(diagonal, -1), parity)
end

--- The signs of determinants (0 of singular matrices), and the logarithms of their absolute values.
---@param x Tensor
---@return Tensor sign, Tensor logabsdet
function M.slogdet(x)
  local diagonal, parity = diagonal_and_parity("linalg.slogdet", x)
  return op.mul(ops.prod(op.sign(diagonal), -1), parity), ops.sum(op.log(op.abs(diagonal)), -1)
end

--- Orthonormal columns q and upper triangles r with x = q r.
---@param x Tensor
---@param mode string? "reduced" (default), "complete": q is square, or "r": r alone
---@return Tensor q, Tensor r
function M.qr(x, mode)
  local q, r = op.qr(floats("linalg.qr", x), {full = mode == "complete"})
  if mode == "r" then return r end
  return q, r
end

--- Eigenvalues of symmetric matrices, rising, and eigenvectors, a column each.
---@param x Tensor
---@param symmetrize_input boolean? default true: of (x + x^T) / 2; false: the lower triangle is read
---@return Tensor eigenvalues, Tensor eigenvectors
function M.eigh(x, symmetrize_input)
  x = square("linalg.eigh", x)
  return op.eigh(symmetrize_input == false and x or symmetric(x))
end

--- u, s and vt with x = u diag(s) vt: singular values fall, columns of u and rows of vt are orthonormal.
---@param x Tensor
---@param full_matrices boolean? default true: u and vt are square; false: as many vectors as singular values
---@param compute_uv boolean? false: s alone
---@return Tensor u, Tensor s, Tensor vt
function M.svd(x, full_matrices, compute_uv)
  local u, s, vt = op.svd(floats("linalg.svd", x), {full = full_matrices ~= false and compute_uv ~= false})
  if compute_uv == false then return s end
  return u, s, vt
end

-- Every one of them takes {out_sharding = P(...)} behind its arguments.
for name, fn in pairs(M) do M[name] = explicit.with_out_sharding("linalg." .. name, fn) end

return lib.strict(M, "linalg", "linalg.")
