-- Rows of factors of matrices. What is unique up to signs or phases is put together again, by functions whose gradients
-- see every factor.
local ml = require "meshlua"
local linalg = ml.linalg

local rows = {}

local function add(r)
  r.dtypes, r.tolerance, r.no_gpu = {"float32", "float64"}, r.tolerance or 400, true
  rows[#rows + 1] = r
end

--- fn on the matrices of lists that count them along dim 1, as tables of rows; what it gives as lists.
local function each(fn, ...)
  local lists, made = {...}, {}
  local count = lists[1].shape[1]
  for b = 1, count do
    local matrices = {}
    for k, x in ipairs(lists) do
      local m, n = x.shape[2], x.shape[3]
      matrices[k] = {}
      for i = 1, m do
        matrices[k][i] = {}
        for j = 1, n do matrices[k][i][j] = x[((b - 1) * m + i - 1) * n + j] end
      end
    end
    for k, y in ipairs {fn(table.unpack(matrices))} do
      made[k] = made[k] or {shape = {count}}
      if type(y) == "number" then
        made[k][b] = y
      else
        made[k].shape = {count, #y, #y[1]}
        for _, line in ipairs(y) do table.move(line, 1, #line, #made[k] + 1, made[k]) end
      end
    end
  end
  return table.unpack(made)
end

local function made(m, n, fn)
  local y = {}
  for i = 1, m do
    y[i] = {}
    for j = 1, n do y[i][j] = fn(i, j) end
  end
  return y
end

local function turned(x) return made(#x[1], #x, function(i, j) return x[j][i] end) end
local function product(x, y)
  return made(#x, #y[1], function(i, j)
    local sum = 0.0
    for k = 1, #y do sum = sum + x[i][k] * y[k][j] end
    return sum
  end)
end
local function shifted(x, by)
  return made(#x, #x[1], function(i, j) return x[i][j] + (i == j and by or 0) end)
end
local function definite(x) return shifted(product(x, turned(x)), 2) end

--- The same of tensors.
local function t(x) return x:swapaxes(-1, -2) end
local function shift(x, by) return x + ml.eye(x.shape[2], x.shape[3], x.dtype) * by end
local function make_definite(x) return shift(ml.matmul(x, t(x)), 2.0) end

local function cholesky(x)
  local l = made(#x, #x, function() return 0.0 end)
  for i = 1, #x do
    for j = 1, i do
      local sum = x[i][j]
      for k = 1, j - 1 do sum = sum - l[i][k] * l[j][k] end
      l[i][j] = i == j and math.sqrt(sum) or sum / l[j][j]
    end
  end
  return l
end

--- Rows in another order so that u has large pivots; x as l and u in place, and by how many exchanges.
local function lu(x)
  x = made(#x, #x[1], function(i, j) return x[i][j] end)
  local order, swaps = {}, 0
  for i = 1, #x do order[i] = i end
  for k = 1, math.min(#x, #x[1]) do
    local best = k
    for i = k + 1, #x do
      if math.abs(x[i][k]) > math.abs(x[best][k]) then best = i end
    end
    if best ~= k then swaps = swaps + 1 end
    x[k], x[best], order[k], order[best] = x[best], x[k], order[best], order[k]
    for i = k + 1, #x do
      x[i][k] = x[i][k] / x[k][k]
      for j = k + 1, #x[1] do x[i][j] = x[i][j] - x[i][k] * x[k][j] end
    end
  end
  return x, order, swaps
end

local function solve(a, b)
  local factors, order = lu(a)
  local x = made(#b, #b[1], function(i, j) return b[order[i]][j] end)
  for j = 1, #b[1] do
    for i = 1, #a do
      for k = 1, i - 1 do x[i][j] = x[i][j] - factors[i][k] * x[k][j] end
    end
    for i = #a, 1, -1 do
      for k = i + 1, #a do x[i][j] = x[i][j] - factors[i][k] * x[k][j] end
      x[i][j] = x[i][j] / factors[i][i]
    end
  end
  return x
end

local function det(x)
  local factors, _, swaps = lu(x)
  local y = swaps % 2 == 0 and 1.0 or -1.0
  for i = 1, #x do y = y * factors[i][i] end
  return y
end

add {op = "cholesky", name = "linalg.cholesky", rule = "aBC->aBC", inputs = {{8, 3, 3}},
  call = function(x) return linalg.cholesky(make_definite(x)) end,
  ref = function(x) return each(function(m) return cholesky(definite(m)) end, x) end,
  bad = {{"E_SHAPE", "square matrices", function() linalg.cholesky(ml.ones(2, 3)) end},
    {"E_DTYPE", "float32 or float64, not bfloat16", function()
      linalg.cholesky(ml.ones({2, 2}, "bfloat16"))
    end}}}
add {op = "cholesky", name = "linalg.cholesky, upper", rule = "aBC->aBC", inputs = {{8, 3, 3}},
  call = function(x) return linalg.cholesky(make_definite(x), true) end,
  ref = function(x) return each(function(m) return turned(cholesky(definite(m))) end, x) end}

for at, c in ipairs {{true, true, false, false}, {true, false, true, true}, {false, true, true, false},
  {false, false, false, true}, {false, true, false, false}} do
  local left, lower, transpose, unit = table.unpack(c)
  add {op = "triangular_solve", name = "linalg.triangular_solve " .. at, inputs = {{8, 3, 3}, {8, 3, 3}},
    rule = left and "aBC,aBd->aBd" or "aBC,adC->adC", tolerance = 4000,
    call = function(a, b) return linalg.triangular_solve(shift(a, 4.0), b, left, lower, transpose, unit) end,
    ref = function(x, y)
      return each(function(a, b)
        a = made(3, 3, function(i, j)
          if i == j then return unit and 1 or a[i][j] + 4 end
          return (i > j) == lower and a[i][j] or 0
        end)
        a = transpose and turned(a) or a
        return left and solve(a, b) or turned(solve(turned(a), turned(b)))
      end, x, y)
    end,
    bad = {{"E_SHAPE", "in front of matrices do not fit", function()
      linalg.triangular_solve(ml.ones(2, 3, 3), ml.ones(4, 3, 3))
    end}, {"E_SHAPE", "as many columns as a has rows", function()
      linalg.triangular_solve(ml.ones(3, 3), ml.ones(3, 2))
    end}}}
end

for _, s in ipairs {{3, 3}, {4, 2}, {2, 4}} do
  local m, n = s[1], s[2]
  local name = (" of %d by %d"):format(m, n)
  add {op = "lu", name = "linalg.lu" .. name, rule = "aBC->aBC", inputs = {{8, m, n}}, tolerance = 4000,
    call = function(x) return (linalg.lu(shift(x, 1.0))) end,
    ref = function(x) return each(function(y) return (lu(shifted(y, 1))) end, x) end,
    bad = {{"E_SHAPE", "a matrix has two dims", function() linalg.lu(ml.ones(3)) end}}}
  add {op = "qr", name = "linalg.qr" .. name, rule = "aBC->aBC,aDC", inputs = {{8, m, n}}, tolerance = 4000,
    call = function(x)
      local q, r = linalg.qr(shift(x, 3.0))
      local sign = r:diagonal(0, 2, 3):sign()
      return q * sign:expand_dims(2), r * sign:expand_dims(3)
    end,
    ref = function(x)
      return each(function(y) -- r of as many columns as rows is Cholesky's factor of x^T x
        y = shifted(y, 3)
        local square = made(m, math.min(m, n), function(a, b) return y[a][b] end)
        local q = turned(solve(cholesky(product(turned(square), square)), turned(square)))
        return q, product(turned(q), y)
      end, x)
    end,
    bad = {{"E_GRAD", "qr: no gradient of complete factors", function()
      ml.grad(function(x) return ml.sum((linalg.qr(x, "complete"))) end)(ml.ones(3, 2))
    end}}}
  add {op = "svd", name = "linalg.svd" .. name, rule = "aBC->aBC", inputs = {{8, m, n}}, tolerance = 4000,
    call = function(x)
      local u, w, v = linalg.svd(x, false)
      return ml.matmul(u * (w * w * w):expand_dims(2), v)
    end,
    ref = function(x) return each(function(y) return product(product(y, turned(y)), y) end, x) end,
    bad = {{"E_GRAD", "svd: no gradient of complete factors", function()
      ml.grad(function(x) return ml.sum((linalg.svd(x))) end)(ml.ones(3, 2))
    end}}}
end
add {op = "eigh", name = "linalg.eigh", rule = "aBC->aBC", inputs = {{8, 3, 3}}, tolerance = 4000,
  call = function(x)
    local w, v = linalg.eigh(x)
    return ml.matmul(v * (w * w * w):expand_dims(2), t(v))
  end,
  ref = function(x)
    return each(function(y)
      y = made(3, 3, function(i, j) return (y[i][j] + y[j][i]) / 2 end)
      return product(product(y, y), y)
    end, x)
  end,
  bad = {{"E_SHAPE", "square matrices", function() linalg.eigh(ml.ones(3)) end}}}

add {op = "lu", name = "linalg.solve", rule = "aBC,aBd->aBd", inputs = {{8, 3, 3}, {8, 3, 2}},
  tolerance = 4000,
  call = function(a, b) return linalg.solve(shift(a, 5.0), b) end,
  ref = function(x, y) return each(function(a, b) return solve(shifted(a, 5), b) end, x, y) end,
  bad = {{"E_SHAPE", "b has 2 rows, a 3", function() linalg.solve(ml.eye(3), ml.ones(2)) end}},
  step = {"float", function(g, x)
    local rank = #x.shape
    if rank < 2 or x.shape[rank - 1] > 32 or not x.dtype:find "^float[36]" then return end
    local b, m = ("ml.tanh(%s)"):format(x.name), x.shape[rank - 1]
    local a = ("ml.matmul(%s, ml.swapaxes(%s, -1, -2)) + ml.eye(%d, %d, '%s') * %d.0"):format(b, b, m, m,
      x.dtype, x.shape[rank] + 1)
    if g.chance(30) then return ("ml.matmul(ml.linalg.cholesky(%s), %s)"):format(a, b), x.shape end
    return ("ml.linalg.solve(%s, %s)"):format(a, b), x.shape
  end}}
add {op = "lu", name = "linalg.inv", rule = "aBC->aBC", inputs = {{8, 3, 3}}, tolerance = 4000,
  call = function(a) return linalg.inv(shift(a, 5.0)) end,
  ref = function(x)
    return each(function(a)
      return solve(shifted(a, 5), made(3, 3, function(i, j) return i == j and 1.0 or 0.0 end))
    end, x)
  end}
add {op = "lu", name = "linalg.det", rule = "aBC->a", inputs = {{8, 3, 3}}, tolerance = 4000,
  call = function(a) return linalg.det(shift(a, 5.0)) end,
  ref = function(x) return each(function(a) return det(shifted(a, 5)) end, x) end}
add {op = "lu", name = "linalg.slogdet", rule = "aBC->a", inputs = {{8, 3, 3}}, tolerance = 4000,
  call = function(a) return select(2, linalg.slogdet(shift(a, 5.0))) end,
  ref = function(x) return each(function(a) return math.log(math.abs(det(shifted(a, 5)))) end, x) end}

return rows
