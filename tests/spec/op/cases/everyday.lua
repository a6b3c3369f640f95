-- Rows of the functions that are made of ops (lualib/meshlua/ops: math, rearrange, matrix, einsum, statistics). Their
-- values in every dtype, shape and kind of call are JAX's (everyday_spec.lua); from these rows come gradients,
-- layouts and batches.
local ml = require "meshlua"
local data = require "spec.op.data"
local naive = require "spec.op.naive"
local scalar = require "spec.op.scalar"

local rows = {}

--- A row whose `op` is the one that matters most.
local function add(op, name, rule, inputs, call, ref, more)
  local row = {op = op, name = name, rule = rule, inputs = inputs, call = call, ref = ref, tolerance = 16,
    of_ops = true}
  for k, v in pairs(more or {}) do row[k] = v end
  rows[#rows + 1] = row
end

-- ---- element by element -----------------------------------------------------------------------------------

local function each(op, name, inputs, fn, more)
  add(op, name, nil, inputs, ml[name], function(...) return naive.map(fn, ...) end, more)
end
local to_bool = {result = "bool", exact = true, ints = true}
local two = {{8, 4, distinct = true}, {8, 4, distinct = true, phase = 0.25}}
local wide = {float = true, tolerance = 32}

each("pow", "exp2", {{8, 4}}, function(x) return 2 ^ x end, wide)
each("log", "log2", {{8, 4, low = 0.5, high = 2}}, function(x) return math.log(x, 2) end, {tolerance = 32})
each("log", "log10", {{8, 4, low = 0.5, high = 2}}, function(x) return math.log(x, 10) end, {tolerance = 32})
each("log", "logit", {{8, 4, low = 0.1, high = 0.9}}, function(x) return math.log(x / (1 - x)) end,
  {tolerance = 64})
each("sin", "tan", {{8, 4, low = -1, high = 1}}, math.tan, wide)
each("expm1", "sinh", {{8, 4, distinct = true, low = -3, high = 3}},
  function(x) return (math.exp(x) - math.exp(-x)) / 2 end, wide)
each("exp", "cosh", {{8, 4}}, function(x) return (math.exp(x) + math.exp(-x)) / 2 end, wide)
each("atan2", "asin", {{8, 4, low = -0.9, high = 0.9, int_low = -1, int_high = 1}}, math.asin, wide)
each("atan2", "acos", {{8, 4, low = -0.9, high = 0.9, int_low = -1, int_high = 1}}, math.acos, wide)
each("atan2", "atan", {{8, 4}}, math.atan, wide)
each("log", "asinh", {{8, 4, distinct = true, low = -3, high = 3}}, function(x)
  local y = math.log(math.abs(x) + math.sqrt(x * x + 1))
  return x < 0 and -y or y
end, wide)
each("log1p", "acosh", {{8, 4, low = 1.2, high = 3, int_low = 1}},
  function(x) return math.log(x + math.sqrt(x * x - 1)) end, wide)
each("log1p", "atanh", {{8, 4, low = -0.8, high = 0.8, int_low = 0, int_high = 0}},
  function(x) return math.log((1 + x) / (1 - x)) / 2 end, wide)
each("polygamma", "digamma", {{8, 4, low = 0.5, high = 4, int_low = 1, int_high = 5}},
  function(x) return scalar.polygamma(0, x) end, wide)
each("ne", "isnan", {{8, 4}}, function(x) return x ~= x end, to_bool)
each("eq", "isinf", {{8, 4}}, function(x) return math.abs(x) == math.huge end, to_bool)
each("floor", "trunc", {{8, 4, distinct = true}},
  function(x) return math.type(x) == "integer" and x or x < 0 and math.ceil(x) or math.floor(x) end,
  {exact = true, ints = true})
each("where", "nan_to_num", {{8, 4}}, function(x) return x end, {exact = true, ints = true})
each("sqrt", "hypot", two, function(x, y) return math.sqrt(x * x + y * y) end, wide)
each("exp", "logaddexp", two, function(x, y) return math.log(math.exp(x) + math.exp(y)) end, wide)
each("log", "xlogy", {{8, 4, distinct = true}, {8, 4, low = 0.5, high = 2}},
  function(x, y) return x * math.log(y) end, {tolerance = 64})
each("rem", "fmod", {{8, 4, low = 5, high = 6}, {8, 4, low = 2, high = 2.4}}, math.fmod)
each("le", "isclose", {{8, 4}, {8, 4}},
  function(x, y) return math.abs(x - y) <= 1e-8 + 1e-5 * math.abs(y) end,
  {result = "bool", exact = true, dtypes = {"float64", "float32"}})
add("all", "allclose", "ab,ab->", {{8, 4}, {8, 4}}, function(x, y) return ml.allclose(x, y, 0, 0.5) end,
  function(x, y)
    local near = naive.map(function(v, w) return math.abs(v - w) <= 0.5 end, x, y)
    return naive.drop(naive.reduce(near, {1, 2}, true, function(a, v) return a and v end), {1, 2})
  end, {result = "bool", exact = true, dtypes = {"float32"}})

-- ---- reductions -------------------------------------------------------------------------------------------

local function product(x, axes)
  local y = naive.reduce(x, axes, 1, function(a, v) return a * v end)
  return naive.drop(x.dtype:match "int" and naive.wrapped(x.dtype, y) or y, axes)
end
for _, s in ipairs {{{1}, "Ab->b"}, {{2}, "aB->a"}, {{1, 2}, "AB->"}} do
  add("mul", "prod over " .. table.concat(s[1], ","), s[2], {{8, 7}}, function(x) return x:prod(s[1]) end,
    function(x) return product(x, s[1]) end, {dtypes = {"float64", "float32", "bfloat16", "int32"}})
end
--- x with NaN where it is large.
local function holed(x) return ml.where(x:gt(1), 0.0 / 0.0, x) end
local function list_of(x, axis)
  local lists = naive.reduce(x, {axis}, false, function(list, v)
    list = list or {}
    list[#list + 1] = v <= 1 and v or nil
    return list
  end)
  return naive.drop(lists, {axis})
end
local function folded(fn, first)
  return function(list)
    local y = first or list[1]
    for _, v in ipairs(list) do y = fn(y, v) end
    return y
  end
end
local function plus(a, v) return a + v end
for name, r in pairs {
  nansum = {"sum", "aB->a", folded(plus, 0)},
  nanprod = {"mul", "aB->a", folded(function(a, v) return a * v end, 1)},
  nanmax = {"max", "aB->a", folded(math.max)}, nanmin = {"min", "aB->a", folded(math.min)},
  nanmean = {"sum", "aB->a", function(list) return folded(plus, 0)(list) / #list end},
} do
  add(r[1], name, r[2], {{8, 16, distinct = true}}, function(x) return ml[name](holed(x), 2) end,
    function(x) return naive.map(r[3], list_of(x, 2)) end, {dtypes = {"float64", "float32"}, tolerance = 64})
end

local function sorted_row(f)
  return function(x)
    return naive.drop(naive.map(function(list)
      table.sort(list)
      return f(list)
    end, naive.reduce(x, {2}, false, function(list, v)
      list = list or {}
      list[#list + 1] = v
      return list
    end)), {2})
  end
end
local distinct = {{8, 5, distinct = true}}
local numbers = {dtypes = {"float64", "float32", "int32"}, float = true}
add("sort", "median", "aB->a", distinct, function(x) return x:median(2) end,
  sorted_row(function(list) return list[3] end), numbers)
add("sort", "quantile", "aB->a", distinct, function(x) return x:quantile(0.4, -1) end,
  sorted_row(function(list) return 0.4 * list[2] + 0.6 * list[3] end), numbers)
add("sub", "diff", "aB->aC", {{8, 5}}, function(x) return x:diff() end,
  function(x) return naive.make({8, 4}, function(i)
    return naive.at(x, {i[1], i[2] + 1}) - naive.at(x, i)
  end) end, {dtypes = {"float64", "float32", "int32"}})

-- ---- elements in other places -------------------------------------------------------------------------------

--- place(index of the result) -> index of x, or nil: 0.
local function moved(op, name, rule, shape, call, out, place, more)
  add(op, name, rule, {shape}, call, function(x)
    return naive.make(out, function(i)
      local from = place(table.unpack(i))
      return from and naive.at(x, from) or x.dtype ~= "bool" and 0
    end)
  end, more or {exact = true, ints = true, bool = true})
end
moved("broadcast", "tile", "aB->aC", {8, 3}, function(x) return x:tile(2) end, {8, 6},
  function(i, j) return {i, j % 3} end)
moved("broadcast", "repeat_interleave", "ab->ab", {8, 4},
  function(x) return x:repeat_interleave(2, 1) end, {16, 4}, function(i, j) return {i // 2, j} end)
moved("gather", "repeat_interleave by a list", "Ab->Cb", {2, 8},
  function(x) return x:repeat_interleave({1, 2}, 1) end, {3, 8}, function(i, j) return {(i + 1) // 2, j} end)
moved("concat", "roll", "aB->aB", {8, 5}, function(x) return x:roll(2, 2) end, {8, 5},
  function(i, j) return {i, (j - 2) % 5} end)
moved("transpose", "moveaxis", "abc->bca", {8, 4, 2}, function(x) return x:moveaxis(1, -1) end, {4, 2, 8},
  function(i, j, k) return {k, i, j} end)
moved("where", "tril", "abc->abc", {2, 8, 4}, function(x) return x:tril(-1) end, {2, 8, 4},
  function(h, i, j) return j <= i - 1 and {h, i, j} end)
moved("where", "triu", "abc->abc", {2, 8, 4}, function(x) return x:triu(1) end, {2, 8, 4},
  function(h, i, j) return j >= i + 1 and {h, i, j} end)
moved("where", "diag of a vector", "A->BC", {5}, function(x) return x:diag(-1) end, {6, 6},
  function(i, j) return i == j + 1 and {j} end)
moved("slice", "diag of a matrix", "AB->C", {8, 5}, function(x) return x:diag(1) end, {4},
  function(i) return {i, i + 1} end)
moved("slice", "diagonal", "ABc->cD", {4, 4, 8}, function(x) return x:diagonal(-1) end, {8, 3},
  function(i, j) return {j + 1, j, i} end)
moved("gather", "pad with edges", "aB->aC", {8, 3},
  function(x) return x:pad({false, {2, 2}}, {mode = "edge"}) end, {8, 7},
  function(i, j) return {i, math.max(0, math.min(j - 2, 2))} end)
moved("gather", "pad mirrored", "aB->aC", {8, 3},
  function(x) return x:pad({false, {2, 2}}, {mode = "reflect"}) end, {8, 7},
  function(i, j) return {i, ({[0] = 2, 1, 0, 1, 2, 1, 0})[j]} end)
moved("broadcast", "meshgrid", "a->.a", {8},
  function(x) return ml.meshgrid({x, ml.zeros(2)})[1] end, {2, 8}, function(_, j) return {j} end)
add("slice", "split behind places", "aB->aC,aD", {{8, 5}},
  function(x) return table.unpack(x:split({2}, 2)) end,
  function(x)
    return naive.slice(x, {0, 0}, {8, 2}, {1, 1}), naive.slice(x, {0, 2}, {8, 5}, {1, 1})
  end, {exact = true, ints = true})
add("slice", "array_split", "aB->aC,aD", {{8, 5}}, function(x) return table.unpack(x:array_split(2, 2)) end,
  function(x)
    return naive.slice(x, {0, 0}, {8, 3}, {1, 1}), naive.slice(x, {0, 3}, {8, 5}, {1, 1})
  end, {exact = true, ints = true})

-- ---- products ---------------------------------------------------------------------------------------------

local function products(name, rule, x, w, call, spec, more)
  add("matmul", name, rule, {x, w}, call, function(a, b) return naive.einsum(spec, a, b) end,
    more or {tolerance = 8})
end
products("einsum with dots", "abc,cd->abd", {2, 8, 4}, {4, 8},
  function(x, w) return ml.einsum("...c,cd", x, w) end, "abc,cd->abd")
products("tensordot", "abc,bcd->ad", {8, 4, 2}, {4, 2, 8}, ml.tensordot, "abc,bcd->ad")
products("dot", "ab,cbd->acd", {8, 4}, {2, 4, 8}, ml.dot, "ab,cbd->acd")
products("outer", "a,b->ab", {8}, {4}, ml.outer, "a,b->ab")
add("mul", "kron", "AB,CD->EF", {{2, 4}, {3, 2}}, ml.kron, function(x, w)
  return naive.make({6, 8}, function(i)
    return naive.at(x, {i[1] // 3, i[2] // 2}) * naive.at(w, {i[1] % 3, i[2] % 2})
  end)
end)
add("sum", "trace", "abc->c", {{8, 8, 8}}, function(x) return x:trace() end, function(x)
  return naive.make({8}, function(i)
    local total = 0
    for k = 0, 7 do total = total + naive.at(x, {k, k, i[1]}) end
    return total
  end)
end)
add("matmul", "einsum of three", "ab,bc,cd->ad", {{8, 4}, {4, 2}, {2, 8}},
  function(x, y, z) return ml.einsum("ab,bc,cd->ad", x, y, z) end,
  function(x, y, z) return naive.einsum("ac,cd->ad", naive.einsum("ab,bc->ac", x, y), z) end,
  {dtypes = {"float64", "float32", "int32"}})
add("matmul", "einsum of a diagonal", "AAb,b->A", {{4, 4, 8}, {8}},
  function(x, w) return ml.einsum("iij,j->i", x, w) end, function(x, w)
    local y = naive.make({4, 8}, function(i) return naive.at(x, {i[1], i[1], i[2]}) end)
    return naive.einsum("ij,j->i", y, w)
  end, {dtypes = {"float64", "float32"}})

-- ---- tables -----------------------------------------------------------------------------------------------

add("sum", "histogram", "a->B,.", {{16, distinct = true}},
  function(x) return ml.histogram(x, {bins = 4, range = {-2, 2}}) end, function(x)
    local counts = naive.make({4}, function() return 0 end)
    for _, v in ipairs(x) do counts[math.floor(v + 2) + 1] = counts[math.floor(v + 2) + 1] + 1 end
    return counts, naive.make({5}, function(i) return i[1] - 2 end)
  end, {dtypes = {"float32"}, no_gradient_check = true, sums = 1})
add("scatter_add", "bincount", "a->.", {{16, dtype = "int32", low = 0, high = 5}},
  function(x) return x:bincount {length = 5} end, function(x)
    local counts = naive.make({5}, function() return 0 end)
    for _, v in ipairs(x) do
      if v < 5 then counts[v + 1] = counts[v + 1] + 1 end
    end
    return counts
  end, {dtypes = {"float32"}, result = "int32", exact = true, sums = 1})
add("gather", "interp", "ab,.,.->ab", {{8, 4, distinct = true}, {4}, {4}},
  function(x, _, fp) return ml.interp(x, ml.tensor({-1.25, -0.5, 0.25, 1.5}, x.dtype), fp) end,
  function(x, _, fp)
    local xp = {-1.25, -0.5, 0.25, 1.5}
    return naive.map(function(v)
      for k = 1, 3 do
        local part = (v - xp[k]) / (xp[k + 1] - xp[k])
        if v < xp[k + 1] or k == 3 then
          part = math.max(0, math.min(part, 1))
          return fp[k] + part * (fp[k + 1] - fp[k])
        end
      end
    end, x)
  end, {dtypes = {"float64", "float32"}, tolerance = 32})
add("pow", "logspace", nil, {}, function() return ml.logspace(0, 3, 4) end,
  function() return naive.make({4}, function(i) return 10 ^ i[1] end) end, {dtypes = {"float32"}})

-- ---- by id ------------------------------------------------------------------------------------------------

for _, combine in ipairs {"sum", "prod", "max", "min"} do
  local name = "segment_" .. combine
  local extreme = combine == "max" or combine == "min"
  local op = combine == "sum" and "scatter_add" or "scatter_reduce"
  add(op, name, combine == "prod" and "Ab,A->.b" or "ab,a->.b",
    {{8, 4, distinct = true}, {8, dtype = "int32", low = -1, high = 3}},
    function(x, ids) return ml[name](x, ids, 3) end, function(x, ids)
      local start = ({sum = 0, prod = 1, max = -math.huge, min = math.huge})[combine]
      return naive.make({3, 4}, function(at)
        local v = start
        for i = 0, 7 do
          local u = naive.at(x, {i, at[2]})
          if naive.at(ids, {i}) == at[1] then
            v = combine == "sum" and v + u or combine == "prod" and v * u or math[combine](v, u)
          end
        end
        return v
      end)
    end, {dtypes = {"float64", "float32"}, exact = extreme, sums = 1})
end
add("scatter", "nonzero", "A->.", {{16, dtype = "int32", low = 0, high = 2}},
  function(x) return ml.nonzero(x, 6, -1) end, function(x)
    local list = {}
    for i, v in ipairs(x) do
      if v ~= 0 then list[#list + 1] = i - 1 end
    end
    return naive.make({6}, function(i) return list[i[1] + 1] or -1 end)
  end, {dtypes = {"float32"}, result = "int32", exact = true})
add("gather", "compress", "Ab,.->.b", {{8, 4}, {8, dtype = "bool"}},
  function(x, mask) return x:compress(mask, 5) end, function(x, mask)
    local list = {}
    for i, v in ipairs(mask) do
      if v then list[#list + 1] = i - 1 end
    end
    return naive.make({5, 4}, function(i)
      return list[i[1] + 1] and naive.at(x, {list[i[1] + 1], i[2]}) or 0
    end)
  end, {exact = true})
add("sort", "unique", "A->.", {{16, dtype = "int32", low = 0, high = 5}},
  function(x) return (x:unique(8, -1)) end, function(x)
    local list, seen = {}, {}
    for _, v in ipairs(x) do
      if not seen[v] then list[#list + 1] = v end
      seen[v] = true
    end
    table.sort(list)
    return naive.make({8}, function(i) return list[i[1] + 1] or -1 end)
  end, {dtypes = {"float32"}, result = "int32", exact = true})
add("gather", "searchsorted", "A,bc->bc", {{8}, {8, 4}},
  function(a, v) return ml.searchsorted(a:sort(), v) end, function(a, v)
    return naive.map(function(u)
      local n = 0
      for _, w in ipairs(a) do n = n + (w < u and 1 or 0) end
      return n
    end, v)
  end, {dtypes = {"float32"}, result = "int32", exact = true, no_gradient_check = true})
add("sort", "lexsort", "aB,aB->aB", {{8, 6, dtype = "int32", low = 0, high = 2}, {8, 6}},
  function(x, y) return ml.lexsort {y, x} end, function(x, y)
    return naive.make({8, 6}, function(at)
      local order = {}
      for i = 0, 5 do order[i + 1] = i end
      local function key(t, i) return naive.at(t, {at[1], i}) end
      table.sort(order, function(i, j)
        if key(x, i) ~= key(x, j) then return key(x, i) < key(x, j) end
        if key(y, i) ~= key(y, j) then return key(y, i) < key(y, j) end
        return i < j
      end)
      return order[at[2] + 1]
    end)
  end, {dtypes = {"float32"}, result = "int32", exact = true, no_gradient_check = true})

-- ---- steps of random programs -------------------------------------------------------------------------------

--- A copy of x's shape with n at dim d; without that dim where n is nil.
local function resized(x, d, n)
  local shape = table.move(x.shape, 1, #x.shape, 1, {})
  if n then shape[d] = n else table.remove(shape, d) end
  return shape
end

--- What values with a dim d that has elements become, by what a step takes: fn(g, x, d) -> source, shape.
local steps = {
  any = { -- their elements only move
    function(g, x, d) return ("ml.roll(%s, %d, %d)"):format(x.name, g.int(-3, 3), d), x.shape end,
    function(g, x)
      if #x.shape < 2 then return end
      return ("ml.%s(%s, %d)"):format(g.pick {"tril", "triu"}, x.name, g.int(-1, 1)), x.shape
    end,
    function(_, x, d)
      if x.shape[d] > 8 then return end
      return ("ml.repeat_interleave(%s, 2, %d)"):format(x.name, d), resized(x, d, 2 * x.shape[d])
    end,
    function(_, x)
      if #x.shape < 2 then return end
      local shape = table.move(x.shape, 3, #x.shape, 1, {})
      shape[#shape + 1] = math.min(x.shape[1], x.shape[2])
      return ("ml.diagonal(%s)"):format(x.name), shape
    end,
  },
  float = {
    function(_, x, d) return ("ml.diff(%s, 1, %d)"):format(x.name, d), resized(x, d, x.shape[d] - 1) end,
    function(_, x, d) return ("ml.prod(ml.cos(%s), %d)"):format(x.name, d), resized(x, d) end,
    function(_, x, d) return ("ml.nanmean(%s, %d)"):format(x.name, d), resized(x, d) end,
    function(_, x) return ("ml.logaddexp(%s, ml.sinh(ml.tanh(%s)))"):format(x.name, x.name), x.shape end,
    function(_, x)
      if #x.shape ~= 2 then return end
      local text = "ml.einsum('ab,cb,cd->ad', %s, ml.tanh(%s), ml.sin(%s)) * %g"
      return text:format(x.name, x.name, x.name, 1 / (x.shape[1] * x.shape[2])), x.shape
    end,
  },
}
local drawn = {roll = "any", logaddexp = "float"} -- one step each, so that no other is drawn much less
for _, row in ipairs(rows) do
  local takes = drawn[row.name]
  row.step = takes and {takes, function(g, x)
    local d = #x.shape > 0 and g.int(1, #x.shape)
    if not d or data.count(x.shape) == 0 then return end
    local source, shape = g.pick(steps[takes])(g, x, d)
    return source, shape, {exact = takes == "any" and x.exact}
  end}
end

return rows
