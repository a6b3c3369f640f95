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

-- ---- along an axis ----

--- x's elements where `places` say, along the axis; dims of size 1 beside it stretch.
local function along(x, places, axis)
  local shape = {}
  for d, n in ipairs(places.shape) do shape[d] = d ~= axis and math.max(n, x.shape[d]) or n end
  local function at(list, index)
    local own = {}
    for d, i in ipairs(index) do own[d] = list.shape[d] == 1 and d ~= axis and 0 or i end
    return naive.at(list, own)
  end
  return naive.make(shape, function(index)
    local from = table.move(index, 1, #index, 1, {})
    from[axis] = at(places, index)
    return at(x, from)
  end)
end

--- Sums where `places` say, by the definition: of all updates of the line whose id is the place.
local function added_along(places, updates, size, axis)
  local shape = table.move(places.shape, 1, #places.shape, 1, {})
  shape[axis] = size
  return naive.make(shape, function(index)
    local sum, from = 0, table.move(index, 1, #index, 1, {})
    for k = 0, places.shape[axis] - 1 do
      from[axis] = k
      if naive.at(places, from) == index[axis] then sum = sum + naive.at(updates, from) end
    end
    return sum
  end)
end

local two, few, line = ml.zeros {2, 3}, ml.zeros({2, 3}, "int32"), ml.zeros({3}, "int32")

for axis, rule in ipairs {"nbc,kbc->kbc", "anc,akc->akc", "abn,abk->abk"} do
  local shape, updates, of_ids = {4, 4, 4}, {4, 4, 4}, ids {4, 4, 4}
  shape[axis], updates[axis], of_ids[axis] = 8, 2, 2
  add {op = "take_along_axis", name = "take_along_axis " .. axis, rule = rule, inputs = {shape, of_ids},
    exact = true, ints = true, bool = true,
    call = function(x, i) return x:take_along_axis(i, axis) end,
    ref = function(x, i) return along(x, i, axis) end,
    bad = axis == 1 and {
      {"E_DTYPE", "the ids must be int32", function() return two:take_along_axis(two, 1) end},
      {"E_SHAPE", "axis 3 of a tensor of rank 2", function() return two:take_along_axis(few, 3) end},
      {"E_SHAPE", "the ids must have x's rank", function() return two:take_along_axis(line, 1) end},
      {"E_SHAPE", "dim 2 of the ids is not dim 2 of x", function()
        return two:take_along_axis(ml.zeros({2, 2}, "int32"), 1)
      end}},
    step = axis == 1 and {"any", function(g, x) -- of random programs
      local d = #x.shape > 0 and g.int(1, #x.shape)
      if not d or x.shape[d] == 0 then return end
      local shape_of_ids = table.move(x.shape, 1, #x.shape, 1, {})
      shape_of_ids[d] = g.int(1, 4)
      local list = "{" .. table.concat(shape_of_ids, ",") .. "}"
      local places = ("ml.rem(ml.iota(%s, %d) * %d + ml.iota(%s, %d), %d)")
        :format(list, g.int(1, #x.shape), g.int(1, 3), list, d, x.shape[d])
      return ("ml.take_along_axis(%s, %s, %d)"):format(x.name, places, d), shape_of_ids, {exact = x.exact}
    end} or nil}
  local x_rule, ids_rule = rule:match "^(%w+),(%w+)"
  add {op = "add_along_axis", name = "add_along_axis " .. axis,
    rule = ids_rule .. "," .. ids_rule .. "->" .. x_rule:upper():gsub("[ABC]", string.lower),
    inputs = {of_ids, updates}, ints = true,
    call = function(i, u) return ml.core.op.add_along_axis(i, u, {axis = axis, size = 8, rows = 8}) end,
    ref = function(i, u) return naive.wrapped(u.dtype, added_along(i, u, 8, axis)) end,
    bad = axis == 1 and {
      {"E_DTYPE", "the ids must be int32", function()
        return ml.core.op.add_along_axis(two, two, {axis = 1, size = 2, rows = 2})
      end},
      {"E_SHAPE", "shapes differ", function()
        return ml.core.op.add_along_axis(line, two, {axis = 1, size = 2, rows = 2})
      end}} or nil}
end
for _, shapes in ipairs {{{8, 1}, {3, 4}}, {{8, 4}, {3, 1}}} do -- one side is for all
  local name = ("take_along_axis of %d by %d"):format(shapes[1][2], shapes[2][2])
  add {op = "take_along_axis", name = name, rule = shapes[1][2] == 1 and "N.,Kb->Kb" or "Nb,K.->Kb",
    inputs = {shapes[1], ids(shapes[2])}, exact = true,
    call = function(x, i) return x:take_along_axis(i, 1) end,
    ref = function(x, i) return along(x, i, 1) end}
end
add {op = "take_along_axis", name = "take_along_axis of uneven parts", rule = "NB,KB->KB", exact = true,
  inputs = {{7, 5}, {3, 5, dtype = "int32", low = 0, high = 6}},
  call = function(x, i) return x:take_along_axis(i, 1) end, ref = function(x, i) return along(x, i, 1) end}
add {op = "add_along_axis", name = "add_along_axis of 16 bits into 32", rule = "ak,ak->aN",
  inputs = {ids {4, 2}, {4, 2}}, result = "accumulator",
  call = function(i, u)
    return ml.core.op.add_along_axis(i, u, {axis = 2, size = 8, rows = 8, wide = true})
  end,
  ref = function(i, u) return added_along(i, u, 8, 2) end}

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
