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
  add {op = "gather", name = "take along " .. axis, rule = rule, inputs = {shape, ids {4, 2}}, exact = true,
    ints = true, bool = true,
    call = function(x, i) return x:take(i, axis) end,
    ref = function(x, i) return naive.take(x, i, axis) end}
end
add {op = "gather", name = "take of one row", rule = "na,->a", inputs = {{8, 4}, ids {}}, exact = true,
  call = function(x, i) return x:take(i) end, ref = function(x, i) return naive.take(x, i, 1) end}
add {op = "gather", name = "take of nothing", rule = "Na,.->.a", inputs = {{8, 4}, ids {0}}, exact = true,
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
  call = function(i, u)
    return ml.core.op.scatter_add(i, u, {axes = {1}, table = {0, 0, 2}, ids = {1, 2, 0}, size = {8},
      rows = {8}, outside = "error", wide = true})
  end,
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

--- The attributes of an addition to lines of 8 along an axis of three.
local function lines(axis)
  local of = {1, 2, 3}
  of[axis] = 0
  return {axes = {axis}, table = of, ids = {1, 2, 3}, size = {8}, rows = {8}, outside = "error"}
end

local two, few, line = ml.zeros {2, 3}, ml.zeros({2, 3}, "int32"), ml.zeros({3}, "int32")

for axis, rule in ipairs {"nbc,kbc->kbc", "anc,akc->akc", "abn,abk->abk"} do
  local shape, updates, of_ids = {4, 4, 4}, {4, 4, 4}, ids {4, 4, 4}
  shape[axis], updates[axis], of_ids[axis] = 8, 2, 2
  add {op = "gather", name = "take_along_axis " .. axis, rule = rule, inputs = {shape, of_ids},
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
  add {op = "scatter_add", name = "scatter_add of lines " .. axis,
    rule = ids_rule .. "," .. ids_rule .. "->" .. x_rule:upper():gsub("[ABC]", string.lower),
    inputs = {of_ids, updates}, ints = true,
    call = function(i, u) return ml.core.op.scatter_add(i, u, lines(axis)) end,
    ref = function(i, u) return naive.wrapped(u.dtype, added_along(i, u, 8, axis)) end}
end
for _, shapes in ipairs {{{8, 1}, {3, 4}}, {{8, 4}, {3, 1}}} do -- one side is for all
  local name = ("take_along_axis of %d by %d"):format(shapes[1][2], shapes[2][2])
  add {op = "gather", name = name, rule = shapes[1][2] == 1 and "N.,Kb->Kb" or "Nb,K.->Kb",
    inputs = {shapes[1], ids(shapes[2])}, exact = true,
    call = function(x, i) return x:take_along_axis(i, 1) end,
    ref = function(x, i) return along(x, i, 1) end}
end
add {op = "gather", name = "take_along_axis of uneven parts", rule = "NB,KB->KB", exact = true,
  inputs = {{7, 5}, {3, 5, dtype = "int32", low = 0, high = 6}},
  call = function(x, i) return x:take_along_axis(i, 1) end, ref = function(x, i) return along(x, i, 1) end}

for axis, rule in ipairs {"nbc,IJ,IJbc->nbc", "anc,IJ,aIJc->anc", "abn,IJ,abIJ->abn"} do
  local x, updates = {4, 4, 4}, {4, 4, 4}
  x[axis], updates[axis] = 8, 4
  table.insert(updates, axis + 1, 2)
  add {op = "scatter", name = "scatter_set along " .. axis, rule = rule,
    inputs = {x, ids {4, 2}, updates}, ints = true, bool = true, exact = true,
    call = function(t, i, u) return t:scatter_set(i, u, axis) end,
    ref = function(t, i, u) return naive.scatter_set(t, i, u, axis) end}
end
add {op = "scatter", name = "scatter_set of one row", rule = "na,,a->na", exact = true,
  inputs = {{8, 4}, ids {}, {4}},
  call = function(x, i, u) return ml.scatter_set(x, i, u) end,
  ref = function(x, i, u) return naive.scatter_set(x, i, u, 1) end}

-- ---- several axes, ids outside -----------------------------------------------------------------------

--- Where ids lead along an axis of n, nil: nowhere.
local function row_of(id, n, mode)
  if mode == "wrap" then return id % n end
  if id < 0 then id = id + n end
  if mode == "clip" then return math.max(0, math.min(id, n - 1)) end
  return id >= 0 and id < n and id or nil
end

--- The shape of the rows that lists of ids of one shape name along axes of x, where they stand from the dim `first`
--- on, and the index of x for one of them; nil: nowhere.
local function rows_of(shape, axes, lists, first, mode)
  local dims, from, is_axis = {}, {}, {}
  for k, axis in ipairs(axes) do is_axis[axis] = k end
  for d = 1, #shape + 1 do
    if d == first then
      for i, n in ipairs(lists[1].shape) do dims[#dims + 1], from[#from + 1] = n, -i end
    end
    if d <= #shape and not is_axis[d] then dims[#dims + 1], from[#from + 1] = shape[d], d end
  end
  return dims, function(index)
    local to, at = {}, {}
    for d, x in ipairs(from) do
      if x > 0 then to[x] = index[d] else at[-x] = index[d] end
    end
    for k, axis in ipairs(axes) do
      to[axis] = row_of(naive.at(lists[k], at), shape[axis], mode)
      if not to[axis] then return nil end
    end
    return to
  end
end

local combined = {
  set = function(_, u) return u end,
  add = function(x, u) return x + u end,
  mul = function(x, u) return x * u end,
  max = math.max,
  min = math.min,
}

local function changed(combine, x, axes, lists, first, u, mode)
  local dims, index_of = rows_of(x.shape, axes, lists, first, mode)
  local out = naive.make(x.shape, function(index) return naive.at(x, index) end, x.dtype)
  naive.make(dims, function(index)
    local to, p = index_of(index), 0
    for d = 1, to and #to or 0 do p = p * x.shape[d] + to[d] end
    if to then out[p + 1] = combined[combine](out[p + 1], naive.at(u, index)) end
    return 0
  end)
  return out
end

local function far(shape) -- ids around an axis of 8, or one of 4
  shape.dtype, shape.low, shape.high = "int32", -11, 11
  return shape
end

for _, c in ipairs {
  {"of the first two dims", {1, 2}, 1, "nmc,k,k->kc", function(i, k) return i, k end},
  {"of the last two dims", {2, 3}, 2, "cnm,k,k->ck", function(i, k) return false, i, k end},
  {"of dims that are apart", {1, 3}, 1, "ncm,k,k->kc", function(i, k) return i, false, k end},
} do
  local name, axes, first, rule, entries = table.unpack(c)
  local shape, updates = {4, 4, 4, distinct = true}, {4, 4, distinct = true, phase = 0.25}
  shape[axes[1]] = 8
  for _, mode in ipairs {"fill", "clip", "wrap"} do
    add {op = "gather", name = "at:get " .. name .. ", " .. mode, rule = rule:gsub("[nm]", string.upper),
      inputs = {shape, far {4}, far {4}}, exact = true, ints = true, bool = true,
      call = function(x, i, k) return x:at(entries(i, k)):get(mode, x.dtype ~= "bool" and 0) end,
      ref = function(x, i, k)
        local dims, index_of = rows_of(x.shape, axes, {i, k}, first, mode)
        return naive.make(dims, function(index)
          local from = index_of(index)
          if from then return naive.at(x, from) end
          return x.dtype ~= "bool" and 0
        end)
      end}
  end
  for n, combine in ipairs {"set", "add", "mul", "max", "min"} do
    local mode = ({"drop", "clip", "wrap"})[n % 3 + 1]
    -- An extreme's updates may lie split; its gradient looks along a split axis twice.
    local extreme = combine == "max" or combine == "min"
    local of_x, _, _, of_rows = rule:match "^(%w+),(%w+),(%w+)%->(%w+)$"
    local ids_rule = extreme and "k" or "K"
    if extreme then of_x = of_x:gsub("[nm]", string.upper) end
    add {op = (combine == "set" or combine == "add") and "scatter" or "scatter_reduce",
      name = ("at:%s %s, %s"):format(combine, name, mode),
      rule = ("%s,%s,%s,%s->%s"):format(of_x, ids_rule, ids_rule, of_rows:gsub("k", ids_rule), of_x),
      inputs = {shape, far {4}, far {4}, updates}, ints = true,
      exact = combine ~= "add" and combine ~= "mul", tolerance = 16,
      call = function(x, i, k, u) return x:at(entries(i, k))[combine](x:at(entries(i, k)), u, mode) end,
      ref = function(x, i, k, u)
        return naive.wrapped(x.dtype, changed(combine, x, axes, {i, k}, first, u, mode))
      end}
  end
end

local along_line = {max = "Nb,kb,kb->Nb", min = "bN,bk,bk->bN"}
for n, combine in ipairs {"set", "add", "mul", "max", "min"} do
  local axis = n % 2 + 1
  local shape, updates, own = {4, 4, distinct = true}, {4, 4, distinct = true, phase = 0.25}, ids {4, 4}
  shape[axis], updates[axis], own[axis] = 8, 3, 3
  add {op = (combine == "set" or combine == "add") and "scatter" or "scatter_reduce",
    name = "put_along_axis " .. combine,
    rule = along_line[combine] or axis == 1 and "nb,Kb,Kb->nb" or "bn,bK,bK->bn",
    inputs = {shape, own, updates}, ints = true, exact = combine ~= "add" and combine ~= "mul",
    tolerance = 16,
    call = function(x, i, u) return x:put_along_axis(i, u, axis, combine) end,
    ref = function(x, i, u)
      local lists = naive.make(i.shape, function(index) return naive.at(i, index) end)
      local out = naive.make(x.shape, function(index) return naive.at(x, index) end, x.dtype)
      for a = 0, i.shape[1] - 1 do
        for b = 0, i.shape[2] - 1 do
          local to = axis == 1 and {naive.at(lists, {a, b}), b} or {a, naive.at(lists, {a, b})}
          local p = to[1] * x.shape[2] + to[2] + 1
          out[p] = combined[combine](out[p], naive.at(u, {a, b}))
        end
      end
      return naive.wrapped(x.dtype, out)
    end}
end

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
