-- product.lua: matrix products, and einsum in terms of them.
local core = require "meshlua.core"
local lib = require "meshlua.lib"
local args = require "meshlua.ops.args"
local shapes = require "meshlua.ops.shape"

local op, raise = core.op, lib.raise
local check_tensor, meet = args.check_tensor, args.meet

local M = {}

local contractions = {}

--- The attributes of a product of one dim with one, behind so many batch dims; read once.
local function contraction(x_dim, w_dim, nbatch, wide)
  local key = ((x_dim << 8 | w_dim) << 8 | nbatch) << 1 | (wide and 1 or 0)
  local attr = contractions[key]
  if not attr then
    local batch = {}
    for i = 1, nbatch do batch[i] = i end
    attr = core.attributes("matmul", {x_contract = {x_dim}, w_contract = {w_dim}, x_batch = batch,
      w_batch = batch, wide = wide or false})
    contractions[key] = attr
  end
  return attr
end

local function product(x, w, wide)
  local rx, rw = x.ndim, w.ndim
  if rx == 0 or rw == 0 then raise("E_SHAPE", "matmul: a scalar operand; use *") end
  if rw <= 2 then return op.matmul(x, w, contraction(rx, 1, 0, wide)) end
  if rx == 1 then return op.matmul(x, w, contraction(1, rw - 1, 0, wide)) end
  -- Batched: bring the batch dims to one shape.
  local sx, sw = x.shape, w.shape
  local bx, dx, dw = args.stretched(sx, sw, 2)
  if not bx then
    raise("E_SHAPE", "matmul: batch dims %d and %d differ (x %s, w %s)", dx, dw, core.typeof(x),
      core.typeof(w))
  end
  local nb, bw = #bx, args.copy(bx)
  bx[nb + 1], bx[nb + 2] = sx[rx - 1], sx[rx]
  bw[nb + 1], bw[nb + 2] = sw[rw - 1], sw[rw]
  return op.matmul(shapes.broadcast(x, bx), shapes.broadcast(w, bw), contraction(nb + 2, nb + 1, nb, wide))
end

--- The matrix product by numpy's rules: the last dim of x with the second last of w (the only one of a
--- vector); leading dims are batch dims and broadcast.
---@param x Tensor
---@param w Tensor
---@param options {preferred_element_type: string}? the dtype in which it adds up and comes
function M.matmul(x, w, options)
  if check_tensor("matmul", x).dtype ~= check_tensor("matmul", w).dtype then
    local list = meet("matmul", {x, w})
    x, w = list[1], list[2]
  end
  local wanted = options ~= nil and lib.options("matmul", options).preferred_element_type
  if not wanted then return product(x, w) end
  local dtype, wide, result = args.product_dtypes("matmul", x.dtype, wanted)
  return args.as(product(args.as(x, dtype), args.as(w, dtype), wide), result)
end

return M
