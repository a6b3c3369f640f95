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

for axis, rule in ipairs {"nbc,IJ,IJbc->nbc", "anc,IJ,aIJc->anc", "abn,IJ,abIJ->abn"} do
  local x, updates = {4, 4, 4}, {4, 4, 4}
  x[axis], updates[axis] = 8, 4
  table.insert(updates, axis + 1, 2)
  add {op = "scatter_set", name = "scatter_set along " .. axis, rule = rule,
    inputs = {x, ids {4, 2}, updates}, ints = true, bool = true, exact = true,
    call = function(t, i, u) return t:scatter_set(i, u, axis) end,
    ref = function(t, i, u) return naive.scatter_set(t, i, u, axis) end}
end
add {op = "scatter_set", name = "scatter_set of one row", rule = "na,,a->na", exact = true,
  inputs = {{8, 4}, ids {}, {4}},
  call = function(x, i, u) return ml.scatter_set(x, i, u) end,
  ref = function(x, i, u) return naive.scatter_set(x, i, u, 1) end}

for axis, rule in ipairs {"Ab->.b,.b", "aB->a.,a."} do
  add {op = "top_k", name = "top_k along " .. axis, rule = rule, inputs = {{8, 12, distinct = true}},
    ints = true, exact = true, results = {"same", "int32"},
    call = function(x) return x:top_k(3, axis) end,
    ref = function(x)
      local places = naive.make(x.shape, function(i) return i[axis] end, "int32")
      local limit = {8, 12}
      limit[axis] = 3
      local values, order = naive.sort(axis, true, x, places)
      return naive.slice(values, {0, 0}, limit, {1, 1}), naive.slice(order, {0, 0}, limit, {1, 1})
    end}
end
add {op = "top_k", name = "top_k of all", rule = "aB->aB,aB", inputs = {{2, 4, distinct = true}},
  exact = true, results = {"same", "int32"},
  call = function(x) return x:top_k(4) end,
  ref = function(x) return naive.sort(2, true, x, naive.make(x.shape, function(i) return i[2] end)) end}

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
