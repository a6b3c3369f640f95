-- distributions.lua: draws from distributions that have parameters, by jax.random's algorithms. Those that reject are
-- loops that run until every element has been accepted, each element with keys of its own.
local control = require "meshlua.transform.control"
local core = require "meshlua.core"
local lib = require "meshlua.lib"
local linalg = require "meshlua.ops.linalg"
local ops = require "meshlua.ops"
local args = require "meshlua.ops.args"

local op, raise = core.op, lib.raise

--- inner: what random.lua has beside its public functions.
return function(random, inner)
  local M = {}
  local check_key, float_dtype = inner.check_key, inner.float_dtype

  --- A parameter as a tensor of the dtype and of the draws' shape (nil: its own).
  local function parameter(who, what, x, dtype, shape)
    if type(x) ~= "number" then args.check_tensor(who, x, what) end
    x = type(x) == "number" and core.tensor(x + 0.0, dtype) or args.as(x, dtype)
    return shape and ops.broadcast(x, shape) or x
  end

  --- The shape of the draws: what is asked for, else that which the parameters have together.
  local function shape_of(who, shape, ...)
    if shape ~= nil then return lib.check_shape(who, shape) end
    local sum = 0
    for _, x in ipairs {...} do
      if type(x) ~= "number" then
        sum = op.add(sum, op.astype(args.check_tensor(who, x), {dtype = "float32"}))
      end
    end
    return sum == 0 and {} or sum.shape
  end

  --- Standard exponential: -log(1 - u).
  function M.exponential(key, shape, dtype)
    local who = "random.exponential"
    check_key(who, key)
    return op.neg(op.log1p(op.neg(inner.unit(who, key, shape, float_dtype(who, dtype)))))
  end

  --- Laplace: two exponentials back to back.
  function M.laplace(key, shape, dtype)
    local who = "random.laplace"
    check_key(who, key)
    dtype = float_dtype(who, dtype)
    local u = inner.between(inner.unit(who, key, shape, dtype), inner.next_after(-1.0, dtype, true), 1.0)
    return op.mul(op.sign(u), op.log1p(op.neg(op.abs(u))))
  end

  -- ---- keys, one for each element: pairs of uint32 tensors ----------------------------------------------------

  --- The two halves of int64 words.
  local function halves(w)
    return op.astype(op.bitand(op.shr(w, 32), 0xffffffff), {dtype = "uint32"}),
      op.astype(op.bitand(w, 0xffffffff), {dtype = "uint32"})
  end

  --- The i-th word of 64 bits of each (from 0).
  local function word(key, i)
    local function count(n) return op.full {dtype = "uint32", dims = key[1].shape, value = n} end
    return op.threefry(key[1], key[2], count(0), count(i))
  end

  --- The i-th key (from 0) that a split of each gives.
  local function child(key, i) return {halves(word(key, i))} end

  --- A float in [0, 1) of each.
  local function unit_of(key, dtype)
    local w = word(key, 0)
    if dtype == "float64" then return inner.float_of(w, dtype) end
    local high, low = halves(w)
    return inner.float_of(op.bitxor(high, low), dtype)
  end

  local function normal_of(key, dtype)
    return inner.normal_of(unit_of(key, dtype), dtype)
  end

  local function either(condition, x, y)
    local list = {}
    for i in ipairs(x) do list[i] = op.where(condition, x[i], y[i]) end
    return list
  end

  -- ---- gamma -------------------------------------------------------------------------------------------------

  --- x ~ N(0, 1) and v = 1 + x c > 0, drawn again where v is not.
  local function positive(key, c, dtype)
    local function draw(state)
      local x = normal_of(child(state, 1), dtype)
      local nxt = child(state, 0)
      return {nxt[1], nxt[2], x, op.add(1.0, op.mul(x, c))}
    end
    local first = draw(key)
    local last = control.while_loop(function(s) return ops.any(op.le(s[4], 0.0)) end, function(s)
      return either(op.le(s[4], 0.0), draw(s), s)
    end, first)
    return last[3], last[4]
  end

  --- The accepted v^3 of each, by Marsaglia and Tsang (2000).
  local function accepted(key, c, d, dtype)
    local function rejected(s)
      local squeeze = op.ge(s[5], op.sub(1.0, op.mul(op.mul(s[3], s[3]), 0.0331)))
      local exact = op.ge(op.log(s[5]),
        op.add(op.mul(s[3], 0.5), op.mul(d, op.add(op.sub(1.0, s[4]), op.log(s[4])))))
      return op.bitand(squeeze, exact)
    end
    local function draw(state)
      local nxt = child(state, 0)
      local x, v = positive(child(state, 1), c, dtype)
      return {nxt[1], nxt[2], op.mul(x, x), op.mul(op.mul(v, v), v), unit_of(child(state, 2), dtype)}
    end
    local last = control.while_loop(function(s) return ops.any(rejected(s)) end, function(s)
      return either(rejected(s), draw(s), s)
    end, draw(key))
    return last[4]
  end

  --- Gamma of shape a, or its logarithm, which small a need.
  local function gamma(who, key, a, shape, dtype, in_logs)
    check_key(who, key)
    dtype = float_dtype(who, dtype)
    shape = shape_of(who, shape, a)
    a = parameter(who, "a", a, dtype, shape)
    local is_large = op.ge(a, 1.0)
    local d = op.sub(op.where(is_large, a, op.add(a, 1.0)), 1.0 / 3.0)
    local c = op.div(1.0 / 3.0, op.sqrt(d))
    local each = {halves(inner.raw_bits(who, key, shape, 64))}
    local v = accepted(child(each, 0), c, d, dtype)
    local u = unit_of(child(each, 1), dtype)
    if not in_logs then
      return op.mul(op.mul(d, v), op.where(is_large, 1.0, op.pow(op.sub(1.0, u), op.div(1.0, a))))
    end
    local boost = op.log1p(op.neg(u))
    boost = op.where(op.bitor(is_large, op.eq(boost, 0.0)), 0.0, op.mul(boost, op.div(1.0, a)))
    return op.add(op.add(op.log(d), op.log(v)), boost)
  end

  --- Gamma(a, 1).
  function M.gamma(key, a, shape, dtype) return gamma("random.gamma", key, a, shape, dtype, false) end

  --- The logarithm of Gamma(a, 1).
  function M.loggamma(key, a, shape, dtype) return gamma("random.loggamma", key, a, shape, dtype, true) end

  --- Beta(a, b).
  function M.beta(key, a, b, shape, dtype)
    local who = "random.beta"
    check_key(who, key)
    shape = shape_of(who, shape, a, b)
    local keys = random.keys(key, 2)
    local x = gamma(who, keys[1], a, shape, dtype, true)
    local y = gamma(who, keys[2], b, shape, dtype, true)
    local most = op.maximum(x, y)
    x, y = op.exp(op.sub(x, most)), op.exp(op.sub(y, most))
    return op.div(x, op.add(x, y))
  end

  --- Dirichlet(alpha), along the last axis.
  function M.dirichlet(key, alpha, shape, dtype)
    local who = "random.dirichlet"
    check_key(who, key)
    local own = args.check_tensor(who, alpha, "alpha").shape
    if #own == 0 then raise("E_SHAPE", "%s: alpha is a scalar; it is drawn along an axis", who) end
    local batch = shape ~= nil and lib.check_shape(who, shape) or table.move(own, 1, #own - 1, 1, {})
    local full = args.copy(batch)
    full[#full + 1] = own[#own]
    return ops.softmax(gamma(who, key, alpha, full, dtype, true), -1)
  end

  --- Normal draws with a mean and a covariance, by its Cholesky factor.
  function M.multivariate_normal(key, mean, cov, shape, dtype)
    local who = "random.multivariate_normal"
    check_key(who, key)
    local own = args.check_tensor(who, mean, "the mean").shape
    local square = args.check_tensor(who, cov, "cov").shape
    local n = own[#own]
    if not n or #square < 2 or square[#square] ~= n or square[#square - 1] ~= n then
      raise("E_SHAPE", "%s: a mean of [..., n] and a covariance of [..., n, n], not %s and %s", who,
        core.typeof(mean), core.typeof(cov))
    end
    dtype = dtype or core.promote("float32", core.promote(mean.dtype, cov.dtype))
    dtype = float_dtype(who, dtype)
    if shape ~= nil then
      shape = lib.check_shape(who, shape)
    else
      shape = op.add(ops.sum(op.astype(mean, {dtype = dtype}), -1),
        ops.sum(op.astype(cov, {dtype = dtype}), {-2, -1})).shape
    end
    local full, front = args.copy(shape), args.copy(shape)
    full[#full + 1], front[#front + 1], front[#front + 2] = n, n, n
    local l = ops.broadcast(linalg.cholesky(args.as(cov, dtype)), front)
    local draws = ops.matmul(l, ops.expand_dims(random.normal(key, full, dtype), -1))
    return op.add(args.as(mean, dtype), ops.squeeze(draws, -1))
  end

  -- ---- poisson -----------------------------------------------------------------------------------------------

  --- By products of uniform numbers (Knuth), for a small rate; elements that are done count no further.
  local function poisson_small(key, rate, shape)
    local function goes_on(s) return op.gt(s[3], op.neg(rate)) end
    local last = control.while_loop(function(s) return ops.any(goes_on(s)) end, function(s)
      local keys = random.keys(s[1], 2)
      local count = op.where(goes_on(s), op.add(s[2], 1), s[2])
      return {keys[1], count, op.add(s[3], op.log(inner.unit("random.poisson", keys[2], shape, "float32")))}
    end, {key, ops.zeros(shape, "int32"), ops.zeros(shape, "float32")})
    return op.sub(last[2], 1)
  end

  --- By transformed rejection (Hoermann 1993), for a rate of 10 or more.
  local function poisson_large(key, rate, shape)
    local b = op.add(op.mul(op.sqrt(rate), 2.53), 0.931)
    local a = op.add(op.mul(b, 0.02483), -0.059)
    local inverse = op.add(op.div(1.1328, op.sub(b, 3.4)), 1.1239)
    local edge = op.sub(0.9277, op.div(3.6224, op.sub(b, 2.0)))
    local log_rate = op.log(rate)
    local last = control.while_loop(function(s) return op.bitnot(ops.all(s[3])) end, function(s)
      local keys = random.keys(s[1], 3)
      local u = op.sub(inner.unit("random.poisson", keys[2], shape, "float32"), 0.5)
      local v = inner.unit("random.poisson", keys[3], shape, "float32")
      local left = op.sub(0.5, op.abs(u))
      local k = op.floor(op.add(op.add(op.mul(op.add(op.div(op.mul(a, 2.0), left), b), u), rate), 0.43))
      local density = op.log(op.div(op.mul(v, inverse), op.add(op.div(a, op.mul(left, left)), b)))
      local target = op.sub(op.add(op.neg(rate), op.mul(k, log_rate)), op.lgamma(op.add(k, 1.0)))
      local refused = op.bitor(op.lt(k, 0.0), op.bitand(op.lt(left, 0.013), op.gt(v, left)))
      local at_once = op.bitand(op.ge(left, 0.07), op.le(v, edge))
      local accept = op.bitor(at_once, op.bitand(op.bitnot(refused), op.le(density, target)))
      return {keys[1], op.where(accept, k, s[2]), op.bitor(s[3], accept)}
    end, {key, ops.full(shape, -1.0, "float32"), ops.full(shape, false)})
    return op.astype(last[2], {dtype = "int32"})
  end

  --- Poisson counts of a rate: int32.
  function M.poisson(key, rate, shape)
    local who = "random.poisson"
    check_key(who, key)
    shape = shape_of(who, shape, rate)
    rate = parameter(who, "the rate", rate, "float32", shape)
    local is_small = op.bitor(op.lt(rate, 10.0), op.ne(rate, rate))
    local few = poisson_small(key, op.where(is_small, rate, 0.0), shape)
    local many = poisson_large(key, op.where(is_small, 1e5, rate), shape)
    return op.where(op.eq(rate, 0.0), 0, op.where(is_small, few, many))
  end

  -- ---- choice ------------------------------------------------------------------------------------------------

  --- How many of the rising numbers of a vector are below each r.
  local function count_below(rising, r)
    local n = rising.size
    local low, high = ops.zeros(r.shape, "int32"), ops.full(r.shape, n, "int32")
    for _ = 0, math.ceil(math.log(n, 2)) do
      local middle = op.floor_divide(op.add(low, high), 2)
      local is_below = op.lt(ops.take(rising, op.minimum(middle, n - 1), 1), r)
      is_below = op.bitand(is_below, op.lt(middle, n))
      low, high = op.where(is_below, op.add(middle, 1), low), op.where(is_below, high, middle)
    end
    return op.minimum(low, n - 1)
  end

  --- 0-based places among n, drawn with the probabilities p (nil: all alike).
  local function places(who, key, n, shape, again, p)
    if again and not p then return random.randint(key, shape, 0, n) end
    local total = lib.product(shape)
    if again then
      local sums = ops.cumsum(p, 1)
      local whole = ops.slice(sums, n)
      return count_below(sums, op.mul(op.sub(1.0, inner.unit(who, key, shape, p.dtype)), whole))
    end
    local _, order
    if p then
      _, order = ops.top_k(op.add(random.gumbel(key, {n}, p.dtype), op.log(p)), total)
    else
      order = random.permutation(key, n)
    end
    return ops.reshape(ops.slice(order, {1, total}), shape)
  end

  --- Draws among 0..n-1, or among the rows of a tensor along an axis.
  function M.choice(key, a, shape, replace, p, axis)
    local who = "random.choice"
    check_key(who, key)
    shape = lib.check_shape(who, shape or {})
    local is_count = math.type(a) == "integer"
    if not is_count and args.check_tensor(who, a, "what is drawn from").ndim == 0 then
      raise("E_SHAPE", "%s: draws from the rows of a tensor; a Lua number n stands for 0..n-1", who)
    end
    axis = not is_count and args.axis_of(who, axis or 1, a.ndim)
    local n, total = is_count and a or a.shape[axis], lib.product(shape)
    if n < 1 and total > 0 then raise("E_VALUE", "%s: there is nothing to draw from", who) end
    if replace == false and total > n then
      raise("E_VALUE", "%s: %d draws of %d without putting back", who, total, n)
    end
    if p ~= nil then
      args.check_tensor(who, p, "p")
      if p.ndim ~= 1 or p.size ~= n then
        raise("E_SHAPE", "%s: p is %s; it has a probability for each of the %d", who, core.typeof(p), n)
      end
      p = lib.floats[p.dtype] and p or op.astype(p, {dtype = "float32"})
    end
    local ids = total == 0 and ops.zeros(shape, "int32") or places(who, key, n, shape, replace ~= false, p)
    return is_count and ids or ops.take(a, ids, axis)
  end

  return M
end
