-- product.lua: matrix products, and einsum in terms of them.
local core = require "meshlua.core"
local lib = require "meshlua.lib"
local args = require "meshlua.ops.args"
local reduce = require "meshlua.ops.reduce"
local shapes = require "meshlua.ops.shape"

local op, raise = core.op, lib.raise
local check_tensor, meet = args.check_tensor, args.meet

local M = {}

local contractions = {}

--- The attributes of a product of one dim with one, behind so many batch dims; read once.
local function contraction(x_dim, w_dim, nbatch)
  local key = (x_dim << 8 | w_dim) << 8 | nbatch
  local attr = contractions[key]
  if not attr then
    local batch = {}
    for i = 1, nbatch do batch[i] = i end
    attr = core.attributes("matmul", {x_contract = {x_dim}, w_contract = {w_dim}, x_batch = batch,
      w_batch = batch})
    contractions[key] = attr
  end
  return attr
end

--- The matrix product by numpy's rules: the last dim of x with the second last of w (the only one of a
--- vector); leading dims are batch dims and broadcast.
---@param x Tensor
---@param w Tensor
function M.matmul(x, w)
  if check_tensor("matmul", x).dtype ~= check_tensor("matmul", w).dtype then
    local list = meet("matmul", {x, w})
    x, w = list[1], list[2]
  end
  local rx, rw = x.ndim, w.ndim
  if rx == 0 or rw == 0 then raise("E_SHAPE", "matmul: a scalar operand; use *") end
  if rw <= 2 then return op.matmul(x, w, contraction(rx, 1, 0)) end
  if rx == 1 then return op.matmul(x, w, contraction(1, rw - 1, 0)) end
  -- Batched: bring the batch dims to one shape.
  local nb = math.max(rx, rw) - 2
  local sx, sw, bx, bw = x.shape, w.shape, {}, {}
  for i = 1, nb do
    local ix, iw = rx - 2 - nb + i, rw - 2 - nb + i
    local dx, dw = ix > 0 and sx[ix] or 1, iw > 0 and sw[iw] or 1
    if dx ~= dw and dx ~= 1 and dw ~= 1 then
      raise("E_SHAPE", "matmul: batch dims %d and %d differ (x %s, w %s)", dx, dw,
        core.typeof(x), core.typeof(w))
    end
    bx[i] = math.max(dx, dw) * (math.min(dx, dw) == 0 and 0 or 1)
    bw[i] = bx[i]
  end
  bx[nb + 1], bx[nb + 2] = sx[rx - 1], sx[rx]
  bw[nb + 1], bw[nb + 2] = sw[rw - 1], sw[rw]
  return op.matmul(shapes.broadcast(x, bx), shapes.broadcast(w, bw), contraction(nb + 2, nb + 1, nb))
end

-- ---- einsum: a letter names a dim --------------------------------------------------------------------

--- The letters of the operands (the second nil where there is one) and of the result.
local function read_letters(spec, w)
  if type(spec) ~= "string" then
    raise("E_VALUE", "einsum: expected a text like \"ij,jk->ik\" first, got %s", lib.kind(spec))
  end
  local inputs, result = spec:gsub("%s", ""):match("^([%a,]+)%->(%a*)$")
  if not inputs then raise("E_VALUE", "einsum: cannot read '%s'; write \"ij,jk->ik\"", spec) end
  local a, b = inputs:match("^(%a+),(%a+)$")
  if (b == nil) ~= (w == nil) then
    raise("E_VALUE", "einsum: '%s' has %s, given are %d", spec, lib.count(b and 2 or 1, "operand"),
      w and 2 or 1)
  end
  return a or inputs, b, result
end

local function check_letters(letters, t)
  local seen = {}
  if #letters ~= check_tensor("einsum", t).ndim then
    raise("E_SHAPE", "einsum: '%s' for a tensor of rank %d", letters, t.ndim)
  end
  for c in letters:gmatch(".") do
    if seen[c] then raise("E_VALUE", "einsum: '%s' repeats %s; diagonals are not taken", letters, c) end
    seen[c] = true
  end
end

--- The letters that are among the others, or (`there` false) are not.
local function pick(letters, others, there)
  return (letters:gsub(".", function(c)
    if (others:find(c, 1, true) ~= nil) ~= there then return "" end
  end))
end

--- Where the letters stand within others, and whether they do so in their order.
local function positions(letters, within)
  local list, last, ordered = {}, 0, true
  for i = 1, #letters do
    list[i] = within:find(letters:sub(i, i), 1, true)
    ordered = ordered and list[i] > last
    last = list[i]
  end
  return list, ordered
end

--- t summed over the dims whose letters are not to be kept, and the letters that are left.
local function sum_out(letters, t, keep)
  local axes = positions(pick(letters, keep, false), letters)
  if #axes == 0 then return letters, t end
  return pick(letters, keep, true), op.astype(reduce.sum(t, axes), {dtype = t.dtype})
end

--- t with its dims in the order of the result.
local function arrange(letters, t, result, spec)
  if #letters ~= #result then raise("E_VALUE", "einsum: the result of '%s' has unknown letters", spec) end
  for c in result:gmatch(".") do
    if not letters:find(c, 1, true) then raise("E_VALUE", "einsum: '%s' is in no operand", c) end
  end
  if letters == result then return t end
  return op.transpose(t, {perm = (positions(result, letters))})
end

--- The product of two operands, and its letters. Letters of both are batch if the result has them, else
--- contracted; in x's order, which w is brought to.
local function multiply(a, x, b, w, result)
  local shared, free = pick(a, b, true), pick(a, b, false)
  local batch, contract = pick(shared, result, true), pick(shared, result, false)
  local w_batch, batch_ordered = positions(batch, b)
  local w_contract, contract_ordered = positions(contract, b)
  if not (batch_ordered and contract_ordered) then
    local wanted = batch .. contract .. pick(b, shared, false)
    w, b = op.transpose(w, {perm = (positions(wanted, b))}), wanted
    w_batch, w_contract = positions(batch, b), positions(contract, b)
  end
  local y = op.matmul(x, w, {x_batch = (positions(batch, a)), w_batch = w_batch,
    x_contract = (positions(contract, a)), w_contract = w_contract})
  return batch .. free .. pick(b, a, false), y
end

--- A sum of products of two tensors (or a sum over one) by letters: einsum("btc,vc->btv", x, w). Letters
--- that the result lacks are summed over.
---@param spec string
function M.einsum(spec, x, w)
  local a, b, result = read_letters(spec, w)
  check_letters(a, x)
  if b then
    check_letters(b, w)
    a, x = sum_out(a, x, b .. result)
    b, w = sum_out(b, w, a .. result)
    local list = meet("einsum", {x, w})
    a, x = multiply(a, list[1], b, list[2], result)
  else
    a, x = sum_out(a, x, result)
  end
  return arrange(a, x, result, spec)
end

return M
