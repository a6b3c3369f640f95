-- Rows of the ops that pick by number and put in order.
local ml = require "meshlua"
local naive = require "spec.op.naive"

local rows = {}

local function add(row) rows[#rows + 1] = row end

local function ids(shape) -- of rows of a table of 8
  shape.dtype, shape.low, shape.high = "int32", 0, 7
  return shape
end

for axis, rule in ipairs {"nbc,ij->ijbc", "anc,ij->aijc", "abn,ij->abij"} do
  local shape = {4, 4, 4}
  shape[axis] = 8
  add {op = "take", name = "take along " .. axis, rule = rule, inputs = {shape, ids {4, 2}}, exact = true,
    ints = true, bool = true,
    call = function(x, i) return x:take(i, axis) end,
    ref = function(x, i) return naive.take(x, i, axis) end}
end
add {op = "take", name = "take of one row", rule = "na,->a", inputs = {{8, 4}, ids {}}, exact = true,
  call = function(x, i) return x:take(i) end, ref = function(x, i) return naive.take(x, i, 1) end}
add {op = "take", name = "take of nothing", rule = "Na,.->.a", inputs = {{8, 4}, ids {0}}, exact = true,
  call = function(x, i) return x:take(i) end, ref = function(x, i) return naive.take(x, i, 1) end}

for axis, rule in ipairs {"ij,ijbc->Nbc", "ij,aijc->aNc", "ij,abij->abN"} do
  local updates = {2, 2, 2, 2}
  updates[axis] = 4
  add {op = "scatter_add", name = "scatter_add along " .. axis, rule = rule, inputs = {ids {4, 2}, updates},
    ints = true,
    call = function(i, u) return ml.scatter_add(i, u, 8, axis) end,
    ref = function(i, u) return naive.wrapped(u.dtype, naive.scatter_add(i, u, 8, axis)) end}
end

add {op = "scatter_add", name = "scatter_add of 16 bits into 32", rule = "bc,bca->Aa",
  inputs = {ids {4, 2}, {4, 2, 2}}, result = "accumulator",
  call = function(i, u) return ml.core.op.scatter_add(i, u, {axis = 1, size = 8, rows = 8, wide = true}) end,
  ref = function(i, u) return naive.scatter_add(i, u, 8, 1) end}

for axis, rule in ipairs {"Ab->Ab", "aB->aB"} do
  for _, descending in ipairs {false, true} do
    add {op = "sort", name = ("sort along %d, %s"):format(axis, descending and "falling" or "rising"),
      rule = rule, inputs = {{8, 12, distinct = true}}, ints = true, exact = true,
      call = function(x) return (x:sort(axis, descending)) end,
      ref = function(x) return (naive.sort(axis, descending, x)) end}
  end
end
for _, descending in ipairs {false, true} do
  local order = descending and "falling" or "rising"
  add {op = "sort", name = "sort with companions, stable, " .. order, exact = true, ints = true,
    rule = "aB,aB,aB->aB,aB", results = {"same", "int32"},
    inputs = {{8, 12, low = 0, high = 3, dtype = "int32"}, {8, 12}, {8, 12, dtype = "int32"}},
    call = function(keys, x, y) return select(2, keys:sort(2, descending, x, y)) end,
    ref = function(keys, x, y) return select(2, naive.sort(2, descending, keys, x, y)) end}
end

return rows
