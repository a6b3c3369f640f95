-- Rows of reductions, products, and of what picks and orders.
local ml = require "meshlua"
local naive = require "spec.op.naive"

local rows = {}

local function drop(x, axes)
  local gone, shape = {}, {}
  for _, a in ipairs(axes) do gone[a] = true end
  for d, n in ipairs(x.shape) do
    if not gone[d] then shape[#shape + 1] = n end
  end
  return naive.reshape(x, shape)
end

local function add(row)
  row.exact = row.exact or false
  rows[#rows + 1] = row
end

-- ---- reductions ---------------------------------------------------------------------------------
for _, axes in ipairs {{1}, {2}, {3}, {1, 3}, {2, 3}, {1, 2, 3}} do
  local name = table.concat(axes, ",")
  add {op = "sum", name = "sum over " .. name, inputs = {{8, 4, 6}}, ints = true,
    call = function(x) return x:sum(axes) end,
    ref = function(x) return drop(naive.map(function(v) return naive.wrap(x.dtype, v) end,
      naive.sum(x, axes)), axes) end}
  for op, f in pairs {max = math.max, min = math.min} do
    add {op = op, name = op .. " over " .. name, inputs = {{8, 4, 6, distinct = true}}, ints = true,
      exact = true,
      call = function(x) return x[op](x, axes) end,
      ref = function(x)
        return drop(naive.reduce(x, axes, false, function(a, v) return a and f(a, v) or v end), axes)
      end}
  end
  for op, f in pairs {
    all = function(a, v) return a and v end, any = function(a, v) return a or v end,
  } do
    add {op = op, name = op .. " over " .. name, inputs = {{8, 4, 6, dtype = "bool"}}, exact = true,
      dtypes = {"bool"},
      call = function(x) return x[op](x, axes) end,
      ref = function(x) return drop(naive.reduce(x, axes, op == "all", f), axes) end}
  end
end
add {op = "sum", name = "sum, dims kept", inputs = {{8, 4}}, ints = true,
  call = function(x) return x:sum(-1, true) end,
  ref = function(x) return naive.map(function(v) return naive.wrap(x.dtype, v) end, naive.sum(x, {2})) end}
add {op = "sum", name = "sum of bool counts in int32", inputs = {{8, 4}}, dtypes = {"bool"},
  result = "int32", exact = true,
  call = function(x) return x:sum(1) end,
  ref = function(x)
    return drop(naive.reduce(x, {1}, 0, function(a, v) return a + (v and 1 or 0) end), {1})
  end}
add {op = "max", name = "max with ties: equal shares", inputs = {{8, 6, low = 0, high = 0}},
  exact = true, no_gradient_check = true,
  call = function(x) return x:max(2) end, ref = function(x) return drop(naive.slice(x, {0, 0}, {8, 1}, {1, 1}), {2}) end}

for op, better in pairs {
  argmax = function(v, best) return v > best end, argmin = function(v, best) return v < best end,
} do
  for axis = 1, 3 do
    add {op = op, name = op .. " along " .. axis, inputs = {{8, 4, 6, int_low = -2, int_high = 2}},
      ints = true, exact = true, result = "int32",
      call = function(x) return x[op](x, axis) end,
      ref = function(x) return drop(naive.arg(x, axis, better), {axis}) end}
  end
  add {op = op, name = op .. " of all", inputs = {{8, 4}}, ints = true, exact = true, result = "int32",
    call = function(x) return x[op](x) end,
    ref = function(x) return drop(naive.arg(naive.reshape(x, {32}), 1, better), {1}) end}
end

-- ---- products -------------------------------------------------------------------------------------
for _, s in ipairs {
  {"ij,jk->ik", {8, 4}, {4, 16}}, {"ij,kj->ik", {8, 4}, {16, 4}}, {"ji,jk->ik", {4, 8}, {4, 16}},
  {"bij,bjk->bik", {4, 8, 2}, {4, 2, 8}}, {"bij,bkj->bki", {4, 8, 2}, {4, 4, 2}},
  {"btc,vc->btv", {4, 2, 8}, {16, 8}}, {"ij,ij->", {8, 4}, {8, 4}}, {"i,j->ij", {8}, {4}},
  {"ijk,jk->i", {8, 4, 2}, {4, 2}}, {"ijk,kj->i", {8, 4, 2}, {2, 4}}, {"bthd,bshd->bhts", {2, 4, 2, 8}, {2, 4, 2, 8}},
  {"ij,j->i", {8, 16}, {16}}, {"ij,ik->ijk", {8, 4}, {8, 2}}, {"ij,k->i", {8, 4}, {3}},
} do
  add {op = "matmul", name = "einsum " .. s[1], inputs = {s[2], s[3]}, ints = true,
    call = function(x, w) return ml.einsum(s[1], x, w) end,
    ref = function(x, w)
      return naive.map(function(v)
        return math.type(v) == "integer" and naive.wrap(x.dtype, v) or v
      end, naive.einsum(s[1], x, w))
    end}
end
for _, s in ipairs {
  {"vector with matrix", "j,jk->k", {8}, {8, 4}}, {"matrix with vector", "ij,j->i", {8, 4}, {4}},
  {"dot product", "i,i->", {8}, {8}}, {"batch with matrix", "bij,jk->bik", {2, 8, 4}, {4, 6}},
} do
  add {op = "matmul", name = "matmul: " .. s[1], inputs = {s[3], s[4]},
    call = ml.matmul, ref = function(x, w) return naive.einsum(s[2], x, w) end}
end
add {op = "matmul", name = "matmul: batch dims broadcast", inputs = {{2, 1, 8, 4}, {4, 4, 2}},
  call = ml.matmul,
  ref = function(x, w)
    return naive.einsum("abij,abjk->abik", naive.broadcast(x, {2, 4, 8, 4}, {1, 2, 3, 4}),
      naive.broadcast(w, {2, 4, 4, 2}, {2, 3, 4}))
  end}
add {op = "matmul", name = "einsum of one tensor", inputs = {{8, 4, 2}},
  call = function(x) return ml.einsum("ijk->ki", x) end,
  ref = function(x) return drop(naive.transpose(naive.sum(x, {2}), {3, 1, 2}), {3}) end}

-- ---- rows by id, and in order -----------------------------------------------------------------------
local ids = {dtype = "int32", low = 0, high = 7}
local function of(shape)
  for k, v in pairs(ids) do shape[k] = v end
  return shape
end
for axis = 1, 3 do
  local shape = {4, 4, 4}
  shape[axis] = 8
  add {op = "take", name = "take along " .. axis, inputs = {shape, of {4, 2}}, exact = true, ints = true,
    bool = true,
    call = function(x, i) return x:take(i, axis) end,
    ref = function(x, i) return naive.take(x, i, axis) end}
  local updates = {2, 2, 2, 2}
  updates[axis], updates[axis + 1] = 4, 2
  add {op = "scatter_add", name = "scatter_add along " .. axis, inputs = {of {4, 2}, updates}, ints = true,
    call = function(i, u) return ml.scatter_add(i, u, 8, axis) end,
    ref = function(i, u)
      return naive.map(function(v) return math.type(v) == "integer" and naive.wrap(u.dtype, v) or v end,
        naive.scatter_add(i, u, 8, axis))
    end}
end
add {op = "take", name = "take of one row", inputs = {{8, 4}, of {}}, exact = true,
  call = function(x, i) return x:take(i) end, ref = function(x, i) return naive.take(x, i, 1) end}
for axis = 1, 2 do
  for _, descending in ipairs {false, true} do
    add {op = "sort", name = ("sort along %d, %s"):format(axis, descending and "falling" or "rising"),
      inputs = {{8, 12, distinct = true}}, ints = true, exact = true,
      call = function(x) return (x:sort(axis, descending)) end,
      ref = function(x) return (naive.sort(axis, descending, x)) end}
  end
end
add {op = "sort", name = "sort with a companion, stable", exact = true, ints = true,
  inputs = {{8, 12, low = 0, high = 3, dtype = "int32"}, {8, 12}},
  call = function(keys, x) return select(2, keys:sort(2, false, x)) end,
  ref = function(keys, x) return select(2, naive.sort(2, false, keys, x)) end}

return rows
