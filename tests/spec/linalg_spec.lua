-- linalg_spec.lua: factors of matrices against JAX (tests/oracle/linalg.py), and within LAPACK's own bounds.
-- `build/meshlua -e MATRICES=1000 tests/specs.lua tests/spec/linalg_spec.lua` tries so many; 40 else.
local ml = require "meshlua"
local helper = require "spec.helper"
local oracle = require "spec.oracle"

local linalg, ramp = ml.linalg, oracle.ramp
local vectors = oracle.read "linalg"
local MATRICES = rawget(_G, "MATRICES") or 40

local function t(x) return x:swapaxes(-1, -2) end
local function eye(x) return ml.eye(x.shape[x.ndim - 1], x.shape[x.ndim], x.dtype) end
local function definite(x)
  return ml.matmul(x, t(x)) + ml.eye(x.shape[x.ndim - 1], x.shape[x.ndim - 1], x.dtype) * 0.5
end

local function signed_qr(x, mode)
  local q, r = linalg.qr(x, mode)
  local k = math.min(x.shape[x.ndim - 1], x.shape[x.ndim])
  local sign = r:diagonal(0, -2, -1):sign()
  if mode == "complete" then
    local front = {}
    for d = 1, x.ndim - 2 do front[d] = false end
    local n = x.ndim - 2
    q = q:slice(table.unpack(table.move({false, k > 0 and {1, k} or {1, 0}}, 1, 2, n + 1, front)))
    r = r:slice(table.unpack(table.move({k > 0 and {1, k} or {1, 0}, false}, 1, 2, n + 1, front)))
  end
  return q * sign:expand_dims(-2), r * sign:expand_dims(-1)
end

local function squared_svd(x, full)
  local u, s, vt = linalg.svd(x, full)
  return u * u, s, vt * vt
end

local functions = {
  cholesky = function(x) return linalg.cholesky(definite(x)) end,
  ["cholesky upper"] = function(x) return linalg.cholesky(definite(x), true) end,
  ["cholesky indefinite"] = function(x) return linalg.cholesky(x) end,
  solve = linalg.solve,
  ["solve singular"] = function(a, b) return linalg.solve(ml.zeros_like(a), b) end,
  inv = linalg.inv,
  det = linalg.det,
  ["det singular"] = function(x)
    return linalg.det(ml.concat({x:slice(false, {1, 3}), x:slice(false, {1, 1})}, 2))
  end,
  slogdet = linalg.slogdet,
  ["slogdet singular"] = function(x) return linalg.slogdet(ml.zeros_like(x)) end,
  lu = linalg.lu,
  qr = function(x) return signed_qr(x, "reduced") end,
  ["qr complete"] = function(x) return signed_qr(x, "complete") end,
  eigh = function(x)
    local w, v = linalg.eigh(x)
    return w, v * v
  end,
  svd = function(x) return squared_svd(x, false) end,
  ["svd full"] = function(x) return squared_svd(x, true) end,
  svdvals = function(x) return linalg.svd(x, {compute_uv = false}) end,
}

local function function_of(name)
  local word = name:match "^triangular_solve (%d+)$"
  if not word then return functions[name] end
  local is = {}
  for i = 1, 4 do is[i] = word:sub(i, i) == "1" end
  return function(a, b) return linalg.triangular_solve(a, b, table.unpack(is)) end
end

local words = {nan = 0 / 0, inf = math.huge, ["-inf"] = -math.huge}

--- Raises unless the numbers are those expected, within a part of the largest; NaN and infinities where they are.
local function same(expected, actual, tolerance)
  local found = actual:reshape(-1):totable()
  assert.equal(#expected, #found)
  local most = 1
  for _, e in ipairs(expected) do
    e = words[e] or e
    if math.abs(e) < math.huge then most = math.max(most, math.abs(e)) end
  end
  for i, e in ipairs(expected) do
    e = words[e] or e
    local y = found[i]
    local ok = e ~= e and y ~= y or e == y or math.abs(e - y) <= tolerance * most
    if not ok then error(("element %d is %s, not %s"):format(i, y, e)) end
  end
end

local tolerances = {float64 = 1e-11, float32 = 1e-4, int32 = 0}

describe("matrices are JAX's:", function()
  for at, case in ipairs(vectors.cases) do
    helper.figures(("%s, case %d, %s"):format(case.name, at, case.dtype), function()
      local fn, inputs, argnums = function_of(case.name), {}, {}
      for i, shape in ipairs(case.shapes) do inputs[i], argnums[i] = ramp(shape, case.dtype), i end
      local plus = ({solve = 1, inv = 1, det = 1, slogdet = 1})[case.name] or case.name:find "^triangular"
      if plus then inputs[1] = inputs[1] + eye(inputs[1]) * 2.0 end
      local results = {fn(table.unpack(inputs))}
      assert.equal(#case.results, #results)
      for i, y in ipairs(results) do
        assert.same(case.results[i].shape, y.shape)
        assert.equal(case.results[i].dtype, y.dtype)
        same(case.results[i].values, y, tolerances[y.dtype])
      end
      if not case.gradients then return end
      local grads = ml.grad(function(...)
        local total
        for _, y in ipairs {fn(...)} do
          if y.dtype == "float64" then
            local part = ml.sum(y * ramp(y.shape))
            total = total and total + part or part
          end
        end
        return total
      end, {argnums = argnums})(table.unpack(inputs))
      for i, g in ipairs(case.gradients) do same(g, grads[i], 1e-10) end
    end)
  end

  for i, case in ipairs(vectors.normal) do
    it("random.multivariate_normal, case " .. i, function()
      local x = ml.random.multivariate_normal(ml.random.key(7), ramp(case.mean, case.dtype),
        definite(ramp(case.cov, case.dtype)), case.asked, case.dtype)
      assert.same(case.shape, x.shape)
      same(case.values, x, case.dtype == "float64" and 1e-12 or 1e-5)
    end)
  end
end)

-- ---- LAPACK's bounds --------------------------------------------------------------------------------

--- The largest sum of a column of each matrix.
local function norm(x) return x:abs():sum(-2):max(-1) end

--- Matrices of one kind, a few at once.
local kinds = {
  function(x) return x end,
  function(x) return x * 1e-15 end,
  function(x) return x * 1e12 end,
  function(x) return ml.zeros_like(x) end,
  function(x) -- columns that are ever smaller
    local n = x.shape[3]
    return x * (ml.arange(n):astype(x.dtype) * (x.dtype == "float64" and -25.0 or -9.0) / n):exp()
  end,
  function(x) return ml.broadcast(x:slice(false, {1, 1}), x.shape) end, -- of rank 1
  function(x) -- of half the rank
    local k = math.max(1, x.shape[2] // 2)
    return ml.matmul(x:slice(false, false, {1, math.min(k, x.shape[3])}),
      x:slice(false, {1, math.min(k, x.shape[3])}))
  end,
  function(x) return ml.triu(x) end,
  function(x) return ml.where(ml.eye(x.shape[2], x.shape[3]):astype "bool", x, 0.0) end,
}

local LEAST = {float32 = 1e-35, float64 = 1e-290}

--- Raises unless a residual is within LAPACK's bound (30): over n, the matrix's norm and the rounding.
local function small(what, residual, of, n, dtype)
  local unit = dtype == "float64" and 2.0 ^ -53 or 2.0 ^ -24
  local ratio = (norm(residual) / (norm(of) * (math.max(1, n) * unit) + LEAST[dtype])):max():item()
  if not (ratio < 30) then error(("%s: a ratio of %g, %s"):format(what, ratio, ml.typeof(of))) end
end

local function wide(x) return x:astype "float64" end
local function orthonormal(what, q, dtype)
  local one = ml.broadcast(ml.eye(q.shape[3], q.shape[3], "float64"), {q.shape[1], q.shape[3], q.shape[3]})
  small(what, ml.matmul(t(q), q) - one, one, q.shape[2], dtype)
end

local function falls(s)
  local n = s.shape[2]
  assert.is_true(s:slice(false, {1, n - 1}):ge(s:slice(false, {2, n})):all():item())
  assert.is_true(s:ge(0.0):all():item())
end

--- The factors of a few matrices.
local function check_factors(x)
  local dtype, m, n = x.dtype, x.shape[2], x.shape[3]
  local k, most, exact = math.min(m, n), math.max(m, n), wide(x)
  local lu, _, order = linalg.lu(x)
  lu = wide(lu)
  local l = ml.tril(lu, -1):slice(false, false, {1, k}) + ml.eye(m, k, "float64")
  local moved = ml.take_along_axis(exact, order:expand_dims(-1), -2)
  small("lu", ml.matmul(l, ml.triu(lu):slice(false, {1, k})) - moved, exact, most, dtype)
  for _, mode in ipairs {"reduced", "complete"} do
    local q, r = linalg.qr(x, mode)
    small("qr " .. mode, ml.matmul(wide(q), wide(r)) - exact, exact, most, dtype)
    orthonormal("q " .. mode, wide(q), dtype)
  end
  local u, s, vt = linalg.svd(x, m % 2 == 0)
  u, s, vt = wide(u), wide(s), wide(vt)
  local part = u:slice(false, false, {1, k}) * s:expand_dims(2)
  small("svd", ml.matmul(part, vt:slice(false, {1, k})) - exact, exact, most, dtype)
  orthonormal("u", u, dtype)
  orthonormal("v", t(vt), dtype)
  if k > 1 then falls(s) end
end

--- What square matrices have.
local function check_square(x, b)
  local dtype, n, exact = x.dtype, x.shape[2], wide(x)
  local symmetric = x + t(x)
  local w, v = linalg.eigh(symmetric)
  w, v, symmetric = wide(w), wide(v), wide(symmetric)
  small("eigh", ml.matmul(v * w:expand_dims(2), t(v)) - symmetric, symmetric, n, dtype)
  orthonormal("v of eigh", v, dtype)
  local gram = ml.matmul(x, t(x)) + ml.eye(n, n, dtype)
  local l = wide(linalg.cholesky(gram))
  if l:eq(l):all():item() then -- not so where the sum is not positive definite for its roundings
    small("cholesky", ml.matmul(l, t(l)) - wide(gram), wide(gram), n, dtype)
  end
  for _, fn in ipairs {function() return linalg.solve(x, b), exact end, function()
    return linalg.triangular_solve(x, b, true), ml.triu(exact)
  end} do
    local y, a = fn()
    y = wide(y)
    local one = y:abs():max({2, 3}):lt(dtype == "float64" and 1e200 or 1e30) -- else it is singular
    local rest = ml.where(one:reshape(-1, 1, 1), ml.matmul(a, y) - wide(b), 0.0)
    local scale = ml.where(one:reshape(-1, 1, 1), norm(a):reshape(-1, 1, 1) * y:abs():sum(2, true), 1.0)
    small("solve", rest, scale, n, dtype)
  end
end

describe("factors of random matrices", function()
  it("are within LAPACK's bounds", function()
    local FEW = 4
    local sizes = {1, 2, 3, 5, 8, 13, 33}
    local key = ml.random.key(MATRICES)
    for i = 1, math.ceil(MATRICES / FEW) do
      local keys = ml.random.keys(key, 3)
      key = keys[1]
      local dtype = i % 2 == 0 and "float32" or "float64"
      local m, n = sizes[i * 5 % #sizes + 1], sizes[(i * 3 + i // 7) % #sizes + 1]
      local kind = kinds[i % #kinds + 1]
      check_factors(kind(ml.random.normal(keys[2], {FEW, m, n}, dtype)))
      check_square(kind(ml.random.normal(keys[2], {FEW, n, n}, dtype)),
        ml.random.normal(keys[3], {FEW, n, 2}, dtype))
    end
  end)

  it("are NaN where they are not there", function()
    local function with(number) return ml.where(ml.eye(4, 4):astype "bool", number, ml.ones(4, 4)) end
    local function is_finite(fn, number) return fn(with(number)):isfinite():all():item() end
    for _, name in ipairs {"cholesky", "inv", "det", "lu", "qr", "eigh", "svd"} do
      assert.is_false(is_finite(linalg[name], 0 / 0), name)
    end
    for _, fn in ipairs {linalg.eigh, linalg.svd} do assert.is_false(is_finite(fn, math.huge)) end
  end)
end)

describe("a gradient of factors", function()
  local x = definite(ml.random.normal(ml.random.key(3), {4, 4}, "float64"))
  local v = ml.random.normal(ml.random.key(5), {4, 4}, "float64")
  for name, f in pairs {
    cholesky = function(a) return ml.sum(linalg.cholesky(a) * v) end,
    solve = function(a) return ml.sum(linalg.solve(a, v):sin()) end,
    det = linalg.det,
    qr = function(a)
      local q, r = linalg.qr(a)
      return ml.sum(q * v) + ml.sum(r * r * v)
    end,
    eigh = function(a)
      local w, u = linalg.eigh(a)
      return ml.sum(w ^ 3) + ml.sum(u * u * v)
    end,
    svd = function(a)
      local u, s, vt = linalg.svd(a, false)
      return ml.sum(s ^ 3) + ml.sum(u * u * v) + ml.sum(vt * vt * v)
    end,
  } do
    helper.figures("has one itself, and a tangent: " .. name, function()
      local function slope(y) return ml.sum(ml.grad(f)(y) * v) end
      local function difference(g)
        return ((g(x + v * 1e-5) - g(x - v * 1e-5)) / 2e-5):item()
      end
      local _, tangent = ml.jvp(f, {x}, {v})
      helper.close(difference(f), tangent, 1e-6)
      helper.close(difference(slope), ml.sum(ml.grad(slope)(x) * v), 1e-6)
    end)
  end
end)

describe("a run without LAPACK", function()
  it("is told so, and what to install", function()
    local _, err, code = helper.shell([[MESHLUA_BLAS=off "$MESHLUA" -e '
      local ml = require "meshlua"
      ml.linalg.inv(ml.eye(2))']])
    assert.equal(1, code)
    assert.truthy(err:find("[E_UNSUPPORTED] linalg.inv (lu): runs on OpenBLAS's LAPACK", 1, true), err)
    assert.truthy(err:find("libopenblas0-pthread", 1, true), err)
  end)
end)

describe("arguments of ml.linalg", function()
  it("are refused where they do not fit", function()
    for _, c in ipairs {
      {"E_SHAPE", "linalg.det: float32%[2,3%]; the last two dims are those of square matrices",
        function() linalg.det(ml.ones(2, 3)) end},
      {"E_SHAPE", "random.multivariate_normal: a mean of %[..., n%] and a covariance", function()
        ml.random.multivariate_normal(ml.random.key(0), ml.ones(2), ml.eye(3))
      end},
      {"E_DTYPE", "linalg.svd %(svd%): matrices are of float32 or float64, not float16; x:astype",
        function() linalg.svd(ml.ones({2, 2}, "float16")) end},
      {"E_SHAPE", "a matrix has at most 16384", function() linalg.qr(ml.zeros(20000, 1)) end},
    } do
      local ok, message = pcall(c[3])
      assert.is_false(ok)
      assert.truthy(message:find(c[1], 1, true) and message:find(c[2]), message)
    end
  end)

  it("meet as numpy's do", function()
    local a, b = ml.eye(3) * 2.0, ml.ones(2, 1, 3, 2)
    assert.same({2, 1, 3, 2}, linalg.solve(a, b).shape)
    assert.same({2, 4, 3, 2}, linalg.solve(ml.broadcast(a, 4, 3, 3), b).shape)
    assert.same({2, 4, 3}, linalg.solve(ml.broadcast(a, 2, 4, 3, 3), ml.ones(3)).shape)
    assert.same({5, 3}, linalg.triangular_solve(ml.broadcast(a, 5, 3, 3), ml.ones(5, 3), true).shape)
  end)

  it("become float32 where they are integers", function()
    assert.equal("float32", linalg.inv(ml.tensor {{2, 0}, {0, 4}}).dtype)
    assert.same({2.0, 4.0}, linalg.solve(ml.tensor {{1, 0}, {0, 1}}, ml.tensor {2, 4}):totable())
  end)
end)
