-- Rows of the products. An einsum's letters are its sharding rule, too.
local ml = require "meshlua"
local naive = require "spec.op.naive"

local rows = {}

local function add(row)
  row.op = "matmul"
  rows[#rows + 1] = row
end

for _, s in ipairs {
  {"ij,jk->ik", {8, 4}, {4, 16}}, {"ij,kj->ik", {8, 4}, {16, 4}}, {"ji,jk->ik", {4, 8}, {4, 16}},
  {"ij,jk->ki", {8, 4}, {4, 16}}, {"bij,bjk->bik", {4, 8, 2}, {4, 2, 8}},
  {"bij,bkj->bki", {4, 8, 2}, {4, 4, 2}},
  {"btc,vc->btv", {4, 2, 8}, {16, 8}}, {"ij,ij->", {8, 4}, {8, 4}}, {"i,j->ij", {8}, {4}},
  {"ijk,jk->i", {8, 4, 2}, {4, 2}}, {"ijk,kj->i", {8, 4, 2}, {2, 4}},
  {"bthd,bshd->bhts", {2, 4, 2, 8}, {2, 4, 2, 8}},
  {"ij,j->i", {8, 16}, {16}}, {"ij,ik->ijk", {8, 4}, {8, 2}}, {"ij,k->i", {8, 4}, {3}},
  {"ij,jk->ik", {1, 1}, {1, 1}},
  {"ij,jk->ik", {33, 17}, {17, 20}},
} do
  local shapes = table.concat(s[2], ",") .. "] [" .. table.concat(s[3], ",")
  add {name = ("einsum %s of [%s]"):format(s[1], shapes), rule = s[1], inputs = {s[2], s[3]}, ints = true,
    call = function(x, w) return ml.einsum(s[1], x, w) end,
    ref = function(x, w) return naive.wrapped(x.dtype, naive.einsum(s[1], x, w)) end}
end
for _, s in ipairs {
  {"vector with matrix", "j,jk->k", {8}, {8, 4}}, {"matrix with vector", "ij,j->i", {8, 4}, {4}},
  {"dot product", "i,i->", {8}, {8}}, {"batch with matrix", "bij,jk->bik", {2, 8, 4}, {4, 6}},
} do
  add {name = "matmul: " .. s[1], rule = s[2], inputs = {s[3], s[4]},
    call = ml.matmul, ref = function(x, w) return naive.einsum(s[2], x, w) end}
end
-- What the cotangent of a cast asks for.
add {name = "matmul of 16 bits into 32", rule = "ij,jk->ik", inputs = {{8, 4}, {4, 16}},
  result = "accumulator",
  call = function(x, w) return ml.core.op.matmul(x, w, {x_contract = {2}, w_contract = {1}, wide = true}) end,
  ref = function(x, w) return naive.einsum("ij,jk->ik", x, w) end}
add {name = "matmul: batch dims broadcast", rule = "a.bc,dce->adbe", inputs = {{2, 1, 8, 4}, {4, 4, 2}},
  call = ml.matmul,
  ref = function(x, w)
    return naive.einsum("abij,abjk->abik", naive.broadcast(x, {2, 4, 8, 4}, {1, 2, 3, 4}),
      naive.broadcast(w, {2, 4, 4, 2}, {2, 3, 4}))
  end}
add {name = "matmul of a transpose", rule = "ba,bc->ac", inputs = {{4, 8}, {4, 2}},
  call = function(x, w) return ml.matmul(x:T(), w) end,
  ref = function(x, w) return naive.einsum("ji,jk->ik", x, w) end}
add {name = "einsum of one tensor", rule = "ijk->ki", inputs = {{8, 4, 2}},
  call = function(x) return ml.einsum("ijk->ki", x) end,
  ref = function(x) return naive.drop(naive.transpose(naive.sum(x, {2}), {3, 1, 2}), {3}) end}

return rows
