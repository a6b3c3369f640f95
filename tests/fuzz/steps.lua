-- steps.lua: the vocabulary of random programs. A step takes a value of the program so far and gives the Lua
-- source of one more: make(g, x, program) -> source, shape, {dtype =, exact =}; nil where it does not fit.
-- A value is {name, shape, dtype, exact}: `exact` ones are equal bit for bit however they are computed
-- (inputs, what is moved, integers and bools made of these), so that they may be compared and ordered by.
local ml = require "meshlua"

local M = {}

local with_rows

--- All steps: those of this file, and those of case rows (`step` of tests/spec/op/rows.lua).
function M.all()
  if with_rows then return with_rows end
  with_rows = table.move(M, 1, #M, 1, {})
  for _, row in ipairs(require "spec.op.rows") do -- it needs this file: not before it is asked for
    if row.step then
      with_rows[#with_rows + 1] = {name = row.name, takes = row.step[1], make = row.step[2]}
    end
  end
  return with_rows
end

local function step(name, takes, make) M[#M + 1] = {name = name, takes = takes, make = make} end

local function is_float(dtype) return dtype:match "float" ~= nil end

--- What a step can ask of its value.
M.fits = {
  any = function() return true end,
  number = function(x) return x.dtype ~= "bool" end,
  float = function(x) return is_float(x.dtype) end,
  exact = function(x) return x.exact and x.dtype ~= "bool" end,
  ids = function(x) return x.exact and x.dtype == "int32" end,
  bool = function(x) return x.dtype == "bool" end,
}

local function copy(t) return table.move(t, 1, #t, 1, {}) end
local function list(t) return "{" .. table.concat(t, ",") .. "}" end

local function same_shape(a, b)
  if #a ~= #b then return false end
  for d = 1, #a do if a[d] ~= b[d] then return false end end
  return true
end

local function count(shape)
  local n = 1
  for _, size in ipairs(shape) do n = n * size end
  return n
end

--- Another value of the program, of x's shape, for which `fits` holds.
local function partner(g, x, program, fits)
  for _ = 1, 6 do
    local y = g.pick(program.pool)
    if same_shape(x.shape, y.shape) and fits(y) then return y end
  end
end

--- What x's elements moved elsewhere are.
local function moved(x) return {exact = x.exact} end

local function axis_of(g, x) return #x.shape > 0 and g.int(1, #x.shape) or nil end

--- x with what is equal along the axes drawn apart, where rounding would decide which is larger.
local function apart(x, axes)
  if x.exact or not is_float(x.dtype) then return x.name end
  local text = x.name
  for _, d in ipairs(axes) do
    text = ("%s + ml.astype(ml.iota(%s, %d), '%s') * 0.03"):format(text, list(x.shape), d, x.dtype)
  end
  return text
end

-- ---- element by element -------------------------------------------------------------------------------

step("unary", "float", function(g, x)
  local f = g.pick {"tanh", "sin", "cos", "exp", "sigmoid", "neg", "square", "abs", "erf", "expm1", "log1p"}
  if f == "exp" then return ("ml.exp(ml.tanh(%s))"):format(x.name), x.shape end
  if f == "log1p" then return ("ml.log1p(ml.square(%s))"):format(x.name), x.shape end
  if f == "expm1" then return ("ml.expm1(ml.sin(%s))"):format(x.name), x.shape end
  return ("ml.%s(%s)"):format(f, x.name), x.shape
end)

step("integer", "number", function(g, x)
  if is_float(x.dtype) then return end
  local f = g.pick {"neg", "abs", "square", "bitnot", "sign"}
  return ("ml.%s(%s)"):format(f, x.name), x.shape, moved(x)
end)

step("scalar", "number", function(g, x)
  local number = g.pick(is_float(x.dtype) and {"0.5", "2", "1.25"} or {"1", "2", "3"})
  return ("%s %s %s"):format(x.name, g.pick {"+", "-", "*"}, number), x.shape,
    {exact = x.exact and not is_float(x.dtype)}
end)

step("binary", "number", function(g, x, program)
  local y = partner(g, x, program, M.fits.number)
  if not y then return end
  local dtype = ml.core.promote(x.dtype, y.dtype)
  local f = g.pick {"add", "sub", "mul", "maximum", "minimum"}
  return ("ml.%s(%s, %s)"):format(f, x.name, y.name), x.shape,
    {dtype = dtype, exact = x.exact and y.exact and not is_float(dtype)}
end)

step("bits", "number", function(g, x, program)
  local function whole(v) return not is_float(v.dtype) and v.dtype ~= "bool" end
  local y = whole(x) and partner(g, x, program, whole)
  if not y then return end
  return ("ml.%s(%s, %s)"):format(g.pick {"bitand", "bitor", "bitxor"}, x.name, y.name), x.shape,
    {dtype = ml.core.promote(x.dtype, y.dtype), exact = x.exact and y.exact}
end)

step("compare", "exact", function(g, x, program)
  local y = partner(g, x, program, M.fits.exact)
  local f = g.pick {"lt", "le", "gt", "ge", "eq", "ne"}
  return ("ml.%s(%s, %s)"):format(f, x.name, y and y.name or "1"), x.shape, {dtype = "bool", exact = true}
end)

step("logic", "bool", function(g, x, program)
  local y = partner(g, x, program, M.fits.bool)
  if not y then return ("ml.bitnot(%s)"):format(x.name), x.shape, moved(x) end
  return ("ml.%s(%s, %s)"):format(g.pick {"bitand", "bitor", "bitxor"}, x.name, y.name), x.shape,
    {exact = x.exact and y.exact}
end)

step("threshold", "float", function(_, x)
  return ("ml.where(ml.gt(%s, 0.1), %s, %s * 0.5)"):format(x.name, x.name, x.name), x.shape
end)

step("where", "number", function(g, x, program)
  local condition = partner(g, x, program, M.fits.bool)
  local y = partner(g, x, program, function(v) return v.dtype == x.dtype end)
  if not condition or not y then return end
  return ("ml.where(%s, %s, %s)"):format(condition.name, x.name, y.name), x.shape,
    {exact = x.exact and y.exact and condition.exact}
end)

step("broadcast_add", "float", function(_, x)
  if #x.shape < 2 then return end
  local axes = {}
  for d = 1, #x.shape - 1 do axes[#axes + 1] = d end
  return ("%s + ml.mean(%s, %s, true)"):format(x.name, x.name, list(axes)), x.shape
end)

step("cast", "number", function(g, x)
  local to = g.pick {"float32", "float64", "bfloat16", "float16", "int32", "uint8", "int64"}
  if is_float(to) then return ("ml.astype(%s, '%s')"):format(x.name, to), x.shape, {dtype = to} end
  if not x.exact then return end
  -- Floats that are exact are small multiples of 1/8.
  local source = is_float(x.dtype) and x.name .. " * 8 + 100" or x.name
  return ("ml.astype(%s, '%s')"):format(source, to), x.shape, {dtype = to, exact = true}
end)

step("iota", "number", function(g, x)
  local d = axis_of(g, x)
  if not d then return end
  if not is_float(x.dtype) then
    return ("%s + ml.iota(%s, %d)"):format(x.name, list(x.shape), d), x.shape,
      {dtype = ml.core.promote(x.dtype, "int32"), exact = x.exact}
  end
  return ("%s * ml.astype(ml.iota(%s, %d), 'float32') * 0.125"):format(x.name, list(x.shape), d), x.shape
end)

step("random", "float", function(g, x)
  local f = g.pick {"uniform", "normal"}
  return ("%s + ml.random.%s(ml.random.key(%d), %s)"):format(x.name, f, g.int(0, 99), list(x.shape)), x.shape
end)

step("dropout", "float", function(g, x)
  local strides, n = {}, 1
  for d = #x.shape, 1, -1 do strides[d], n = n, n * x.shape[d] end
  return ("ml.core.op.dropout(%s, ml.random.key(%d), {keep = 0.75, strides = %s})")
    :format(x.name, g.int(0, 9), list(strides)), x.shape
end)

step("constrain", "any", function(g, x, program)
  local spec = program.random_spec(g, program.mesh, x.shape)
  program.constraints[#program.constraints + 1] = spec
  return ("C(%s, %d)"):format(x.name, #program.constraints), x.shape, moved(x)
end)

-- ---- moved --------------------------------------------------------------------------------------------

step("transpose", "any", function(g, x)
  local perm, shape, rest = {}, {}, {}
  for d = 1, #x.shape do rest[d] = d end
  while #rest > 0 do
    local d = table.remove(rest, g.int(1, #rest))
    perm[#perm + 1], shape[#shape + 1] = d, x.shape[d]
  end
  if #perm < 2 then return end
  return ("ml.transpose(%s, %s)"):format(x.name, list(perm)), shape, moved(x)
end)

step("reshape", "any", function(g, x)
  local shape = copy(x.shape)
  if #shape >= 2 and g.chance(50) then -- merge two neighbours
    local d = g.int(1, #shape - 1)
    shape[d] = shape[d] * table.remove(shape, d + 1)
  elseif #shape >= 1 and #shape < 5 then -- split one
    local d = g.int(1, #shape)
    if shape[d] == 0 then return end
    local divisors = {}
    for k = 1, shape[d] do if shape[d] % k == 0 then divisors[#divisors + 1] = k end end
    local k = g.pick(divisors)
    table.insert(shape, d + 1, shape[d] // k)
    shape[d] = k
  end
  return ("ml.reshape(%s, %s)"):format(x.name, list(shape)), shape, moved(x)
end)

step("slice", "any", function(g, x)
  local d = axis_of(g, x)
  local n = d and x.shape[d]
  if not d or n < 2 then return end
  local first = g.int(1, n)
  local last, by = g.int(first, n), g.chance(70) and 1 or g.int(1, 3)
  local ranges, shape = {}, copy(x.shape)
  for k = 1, #x.shape do ranges[k] = "false" end
  ranges[d], shape[d] = ("{%d,%d,%d}"):format(first, last, by), (last - first) // by + 1
  return ("ml.slice(%s, %s)"):format(x.name, table.concat(ranges, ",")), shape, moved(x)
end)

step("concat", "number", function(g, x)
  local d = axis_of(g, x)
  if not d or count(x.shape) > 4096 then return end
  local shape = copy(x.shape)
  shape[d] = shape[d] * 2
  return ("ml.concat({%s, %s * 2}, %d)"):format(x.name, x.name, d), shape, moved(x)
end)

step("pad", "number", function(g, x)
  local d = axis_of(g, x)
  if not d then return end
  local shape, pads, low, high = copy(x.shape), {}, g.int(-1, 2), g.int(-1, 2)
  if shape[d] + low + high < 1 then return end
  for k = 1, #shape do pads[k] = "false" end
  pads[d], shape[d] = ("{%d,%d}"):format(low, high), shape[d] + low + high
  local value = is_float(x.dtype) and "0.25" or "3"
  return ("ml.pad(%s, {%s}, %s)"):format(x.name, table.concat(pads, ","), value), shape, moved(x)
end)

-- A temporary read as it lies and through a view, so that what is made of both may not take its place.
step("through_view", "float", function(g, x)
  local d, perm, same = axis_of(g, x), {}, {}
  if not d then return end
  for k = 1, #x.shape do
    perm[k] = k
    if k ~= d and x.shape[k] == x.shape[d] then same[#same + 1] = k end
  end
  local view = ("ml.flip(t, %d)"):format(d)
  if #same > 0 and g.chance(60) then
    local k = g.pick(same)
    perm[d], perm[k] = k, d
    view = ("ml.transpose(t, %s)"):format(list(perm))
  end
  local made = g.pick {"ml.sin(%s)", "%s * 1.25", "%s - 0.5"}
  local both = g.pick {"t + %s", "%s - t", "t * %s", "ml.where(ml.gt(t, 9), t, %s)"}
  return ("(function(t) return %s end)(%s)"):format(both:format(view), made:format(x.name)), x.shape
end)

step("flip", "any", function(g, x)
  local d = axis_of(g, x)
  if not d then return end
  return ("ml.flip(%s, %d)"):format(x.name, d), x.shape, moved(x)
end)

-- ---- reduced ------------------------------------------------------------------------------------------

--- Some axes of x, the shape without them (or with ones), and whether they are kept.
local function reduced(g, x)
  local axes, shape, keep = {}, {}, g.chance(30)
  for d, n in ipairs(x.shape) do
    if g.chance(40) then
      axes[#axes + 1] = d
      if keep then shape[#shape + 1] = 1 end
    else
      shape[#shape + 1] = n
    end
  end
  if #axes > 0 then return axes, shape, keep end
end

step("reduce", "number", function(g, x)
  local axes, shape, keep = reduced(g, x)
  if not axes then return end
  local f = g.pick(is_float(x.dtype) and {"sum", "mean", "max", "min", "logsumexp"} or {"sum", "max", "min"})
  local from = (f == "max" or f == "min") and apart(x, axes) or x.name
  return ("ml.%s(%s, %s, %s)"):format(f, from, list(axes), tostring(keep)), shape,
    {exact = x.exact and (f == "max" or f == "min" or not is_float(x.dtype))}
end)

step("decide", "bool", function(g, x)
  local axes, shape, keep = reduced(g, x)
  if not axes then return end
  local f = g.pick {"all", "any", "sum"}
  return ("ml.%s(%s, %s, %s)"):format(f, x.name, list(axes), tostring(keep)), shape,
    {dtype = f == "sum" and "int32" or "bool", exact = x.exact}
end)

step("argmax", "exact", function(g, x)
  local d = axis_of(g, x)
  if not d then return end
  local shape = copy(x.shape)
  table.remove(shape, d)
  return ("ml.%s(%s, %d)"):format(g.pick {"argmax", "argmin"}, x.name, d), shape,
    {dtype = "int32", exact = true}
end)

-- ---- products -----------------------------------------------------------------------------------------

step("matmul", "number", function(g, x, program)
  if #x.shape == 0 then return end
  local k = x.shape[#x.shape]
  for _ = 1, 8 do
    local y = g.pick(program.pool)
    for d = 1, y.dtype ~= "bool" and #y.shape or 0 do
      if y.shape[d] == k and #x.shape + #y.shape - 2 <= 4 then
        local shape, a, b = {}, "", ""
        for i = 1, #x.shape do a = a .. string.char(96 + i) end
        local result = a:sub(1, -2)
        for i = 1, #x.shape - 1 do shape[i] = x.shape[i] end
        for i = 1, #y.shape do
          if i == d then b = b .. a:sub(-1) else
            b = b .. string.char(111 + i)
            result = result .. string.char(111 + i)
            shape[#shape + 1] = y.shape[i]
          end
        end
        local dtype = ml.core.promote(x.dtype, y.dtype)
        if count(shape) <= 8192 then
          return ("ml.einsum('%s,%s->%s', %s, %s)%s"):format(a, b, result, x.name, y.name,
            is_float(dtype) and (" * %g"):format(1 / k) or ""), shape,
            {dtype = dtype, exact = x.exact and y.exact and not is_float(dtype)}
        end
      end
    end
  end
end)

step("batched", "float", function(_, x)
  if #x.shape ~= 3 then return end
  return ("ml.einsum('abc,adc->abd', %s, %s) * %g"):format(x.name, x.name, 1 / x.shape[3]),
    {x.shape[1], x.shape[2], x.shape[2]}
end)

step("prefix_sum", "float", function(_, x)
  local n = x.shape[#x.shape]
  if not n or n > 32 then return end
  local letters = ("abcde"):sub(1, #x.shape)
  local last = letters:sub(-1)
  local square = ("{%d,%d}"):format(n, n)
  local mask = ("ml.astype(ml.le(ml.iota(%s, 1), ml.iota(%s, 2)), '%s')"):format(square, square, x.dtype)
  return ("ml.einsum('%s,%sz->%sz', %s, %s) * %g")
    :format(letters, last, letters:sub(1, -2), x.name, mask, 1 / n), x.shape
end)

-- ---- by number, and in order --------------------------------------------------------------------------

local function ids_of(g, n, size)
  local ids = {}
  for i = 1, n do ids[i] = g.int(0, size - 1) end
  return ids
end

step("take", "any", function(g, x)
  local d = axis_of(g, x)
  if not d or #x.shape > 3 then return end
  local shape, n = copy(x.shape), g.pick {1, 2, 4, 8}
  local ids = list(ids_of(g, n, x.shape[d]))
  shape[d] = n
  if g.chance(30) then -- ids of rank 2
    table.insert(shape, d, 2)
    ids = ("{%s,%s}"):format(ids, list(ids_of(g, n, x.shape[d])))
  end
  return ("ml.take(%s, ml.tensor(%s), %d)"):format(x.name, ids, d), shape, moved(x)
end)

step("take_computed", "ids", function(g, i, program)
  local x = g.pick(program.pool)
  local d = axis_of(g, x)
  if not d or #i.shape + #x.shape > 5 or count(i.shape) * count(x.shape) // x.shape[d] > 8192 then return end
  local shape = {}
  for k = 1, d - 1 do shape[k] = x.shape[k] end
  for _, n in ipairs(i.shape) do shape[#shape + 1] = n end
  for k = d + 1, #x.shape do shape[#shape + 1] = x.shape[k] end
  local ids = ("ml.rem(ml.bitand(%s, 0x7fffffff), %d)"):format(i.name, x.shape[d])
  return ("ml.take(%s, %s, %d)"):format(x.name, ids, d), shape, {dtype = x.dtype, exact = x.exact}
end)

step("scatter_add", "number", function(g, x)
  local d = axis_of(g, x)
  if not d then return end
  local shape, rows = copy(x.shape), g.pick {2, 4, 6, 8, 16}
  shape[d] = rows
  if count(shape) > 8192 then return end
  local ids = list(ids_of(g, x.shape[d], rows))
  return ("ml.scatter_add(ml.tensor(%s), %s, %d, %d)"):format(ids, x.name, rows, d), shape,
    {exact = x.exact and not is_float(x.dtype)}
end)

step("one_hot", "ids", function(g, x)
  if #x.shape > 3 or count(x.shape) > 1024 then return end
  local shape, dtype = copy(x.shape), g.pick {"float32", "bfloat16", "int32"}
  shape[#shape + 1] = 8
  return ("ml.one_hot(ml.bitand(%s, 7), 8, '%s')"):format(x.name, dtype), shape, {dtype = dtype, exact = true}
end)

step("sort", "number", function(g, x)
  local d = axis_of(g, x)
  if not d then return end
  return ("(ml.sort(%s, %d, %s))"):format(apart(x, {d}), d, tostring(g.chance(40))), x.shape, moved(x)
end)

step("sort_by", "exact", function(g, x, program)
  local d = axis_of(g, x)
  local y = d and partner(g, x, program, M.fits.any)
  if not y then return end
  return ("(select(2, ml.sort(%s, %d, %s, %s)))"):format(x.name, d, tostring(g.chance(40)), y.name), x.shape,
    {dtype = y.dtype, exact = y.exact}
end)

step("argsort", "exact", function(g, x)
  local d = axis_of(g, x)
  if not d then return end
  return ("(select(2, ml.sort(%s, %d, %s, ml.iota(%s, %d))))"):format(x.name, d, tostring(g.chance(40)),
    list(x.shape), d), x.shape, {dtype = "int32", exact = true}
end)

step("top_k", "number", function(g, x)
  local d = axis_of(g, x)
  if not d or x.shape[d] == 0 then return end
  local shape = copy(x.shape)
  shape[d] = g.int(1, x.shape[d])
  return ("(ml.top_k(%s, %d, %d))"):format(apart(x, {d}), shape[d], d), shape, moved(x)
end)

step("cumulative", "number", function(g, x)
  local d = axis_of(g, x)
  if not d then return end
  local name = g.pick {"cummax", "cummin"}
  return ("ml.%s(%s, %d, %s)"):format(name, apart(x, {d}), d, tostring(g.chance(40))), x.shape, moved(x)
end)

step("dynamic_slice", "any", function(g, x)
  if #x.shape == 0 then return end
  local starts, sizes = {}, {}
  for d, n in ipairs(x.shape) do
    starts[d], sizes[d] = g.int(-1, n), g.chance(50) and n or g.int(math.min(1, n), n)
  end
  return ("ml.dynamic_slice(%s, %s, %s)"):format(x.name, list(starts), list(sizes)), sizes, moved(x)
end)

step("dynamic_update_slice", "any", function(g, x)
  if #x.shape == 0 then return end
  local starts, limit = {}, {}
  for d, n in ipairs(x.shape) do
    starts[d], limit[d] = g.int(-1, n), ("{1, %d}"):format(g.int(math.min(1, n), n))
    if n == 0 then limit[d] = "false" end
  end
  local part = ("ml.slice(%s, %s)"):format(x.name, table.concat(limit, ", "))
  return ("ml.dynamic_update_slice(%s, %s, %s)"):format(x.name, part, list(starts)), x.shape, moved(x)
end)

-- ---- fused ops ----------------------------------------------------------------------------------------

step("softmax", "float", function(g, x)
  local d = axis_of(g, x)
  if not d then return end
  return ("ml.%s(%s, %d)"):format(g.pick {"softmax", "log_softmax"}, x.name, d), x.shape
end)

step("cross_entropy", "float", function(_, x)
  local classes = x.shape[#x.shape]
  if not classes then return end
  local shape = table.move(x.shape, 1, #x.shape - 1, 1, {})
  local labels = #shape == 0 and "ml.full({}, 0)"
    or ("ml.rem(ml.iota(%s, %d), %d)"):format(list(shape), #shape, classes)
  return ("(ml.core.op.softmax_cross_entropy(%s, %s))"):format(x.name, labels), shape
end)

step("norm", "float", function(g, x)
  local c = x.shape[#x.shape]
  if #x.shape < 2 or c < 2 then return end
  local scale = ("ml.full({%d}, 1.5, '%s')"):format(c, x.dtype)
  if g.chance(50) then
    return ("(ml.core.op.rms_norm(%s, %s, {eps = 1e-3}))"):format(x.name, scale), x.shape
  end
  return ("(ml.core.op.layer_norm(%s, %s, ml.full({%d}, 0.25, '%s'), {eps = 1e-3}))")
    :format(x.name, scale, c, x.dtype), x.shape
end)

step("attention", "float", function(g, x)
  if #x.shape ~= 4 then return end
  local B, T = x.shape[1], x.shape[2]
  local options = g.pick {"", "causal = true", "causal = true, window = {2, false}, soft_cap = 2.0",
    "window = {1, 2}, offset = 1, query_lengths = ml.full({}, 3)", ("lengths = ml.iota({%d}, 1)"):format(B),
    ("bias = ml.sin(ml.iota({%d, %d}, 1, 'float32'))"):format(T, T),
    ("segment_ids = ml.rem(ml.iota({%d, %d}, 2), 2), causal = true, offset = ml.full({}, 1)"):format(B, T)}
  return ("ml.nn.attention(%s, %s * 0.5, ml.sin(%s), {scale = 0.5, %s})")
    :format(x.name, x.name, x.name, options), x.shape
end)

step("rope", "float", function(_, x)
  if #x.shape < 3 or x.shape[#x.shape] % 2 ~= 0 then return end
  return ("ml.core.op.rope(%s, ml.arange(%d), {base = 100.0, sign = 1.0})")
    :format(x.name, x.shape[#x.shape - 2]), x.shape
end)

return M
