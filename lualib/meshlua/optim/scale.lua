-- scale.lua: the transformations of lion, rmsprop, adagrad, adafactor, lamb and muon, and those that hold updates to a
-- size. Like those in transform.lua they are optax's. A maker is given who asks (the function that errors name) and
-- options that its row has checked.
local core = require "meshlua.core"
local lib = require "meshlua.lib"
local ops = require "meshlua.ops"
local params_of = require "meshlua.optim.params"
local transform = require "meshlua.optim.transform"

local op, raise = core.op, lib.raise
local boxes_of, number, scalar_as = transform.boxes_of, transform.check_number, transform.scalar_as

local M, by = {}, {}
M.by = by

--- The sign of a running mean that leans toward the gradient (Chen et al. 2023).
function by.lion(who, options)
  local b1 = number(who, "b1", options.b1 or 0.9, 0, 1)
  local b2 = number(who, "b2", options.b2 or 0.99, 0, 1)
  return transform.stateful(who, {mu = {dtype = options.mu_dtype}}, function()
    return function(g, own)
      local mean = op.add(op.mul(g, 1 - b1), op.mul(own.mu, b1))
      transform.moved(own.mu, g, b2)
      return op.sign(mean)
    end
  end)
end

--- Divides by the root of the running mean of squares; centered: by the running standard deviation (Graves 2013).
function by.rms(who, options)
  local decay = number(who, "decay", options.decay or 0.9, 0, 1)
  local eps = number(who, "eps", options.eps or 1e-8, 0)
  local boxes = {nu = {value = options.initial_scale}, mu = options.centered and {} or nil}
  return transform.stateful(who, boxes, function(context)
    local debias = options.bias_correction and transform.debias(decay, context) or function(x) return x end
    return function(g, own)
      local nu = debias(transform.moved(own.nu, op.square(g), decay))
      if own.mu then nu = op.sub(nu, op.square(debias(transform.moved(own.mu, g, decay)))) end
      if options.eps_in_sqrt ~= false then return op.mul(g, op.rsqrt(op.add(nu, eps))) end
      return op.div(g, op.add(op.sqrt(nu), eps))
    end
  end)
end

--- Divides by the root of the sum of all squares so far (Duchi et al. 2011).
function by.rss(who, options)
  local first = number(who, "initial_accumulator_value", options.initial_accumulator_value or 0.1, 0)
  local eps = number(who, "eps", options.eps or 1e-7, 0)
  return transform.stateful(who, {sum_of_squares = {value = first}}, function()
    return function(g, own)
      local sum = transform.put(own.sum_of_squares, op.add(op.square(g), own.sum_of_squares))
      return op.mul(g, op.where(op.gt(sum, 0), op.rsqrt(op.add(sum, eps)), 0))
    end
  end)
end

-- ---- adafactor --------------------------------------------------------------------------------------

--- The two largest dims of a shape (of equal ones the later), the largest last; nil where the smaller is below `least`.
local function largest_dims(shape, least)
  local order = {}
  for d = 1, #shape do order[d] = d end
  table.sort(order, function(a, b)
    if shape[a] ~= shape[b] then return shape[a] < shape[b] end
    return a < b
  end)
  local d1, d0 = order[#shape - 1], order[#shape]
  if d1 and shape[d1] >= least then return d1, d0 end
end

--- The dims of an entry without the one that dims[entry] has at a place.
local function all_but(dims, place)
  return function(entry)
    local list = {}
    for d = 1, entry.box.ndim do
      if d ~= dims[entry][place] then list[#list + 1] = d end
    end
    return list
  end
end

--- Divides by the root of running means of squares, of which large matrices keep those of rows and of columns alone
--- (Shazeer and Stern 2018).
function by.factored_rms(who, options)
  local decay = number(who, "decay_rate", options.decay_rate or 0.8, 0)
  local eps = number(who, "eps", options.eps or 1e-30, 0)
  local least = options.factored == false and math.huge or options.min_dim_size_to_factor or 128

  --- The entries that are kept whole, those in factors, and the two dims of these.
  local function split(entries)
    local whole, parts, dims = {}, {}, {}
    for _, entry in ipairs(entries) do
      local d1, d0 = largest_dims(entry.box.shape, least)
      if d1 then parts[#parts + 1], dims[entry] = entry, {d1, d0} else whole[#whole + 1] = entry end
    end
    return whole, parts, dims
  end

  local function init(model, entries)
    local whole, parts, dims = split(entries)
    return {v = params_of.zeros_like(model, whole),
      v_row = params_of.state_like(model, parts, {dims = all_but(dims, 2)}),
      v_col = params_of.state_like(model, parts, {dims = all_but(dims, 1)})}
  end

  local function update(updates, state, context)
    local whole, parts, dims = split(context.entries)
    local of = {}
    for i, box in ipairs(boxes_of(state.v, whole)) do of[whole[i]] = {box} end
    local cols = boxes_of(state.v_col, parts)
    for i, box in ipairs(boxes_of(state.v_row, parts)) do of[parts[i]] = {box, cols[i]} end
    local step = op.add(context.count, 1 - (options.decay_offset or 0))
    local rate = 1 - op.pow(step, -decay)
    for i, entry in ipairs(context.entries) do
      local g, boxes = updates[i], of[entry]
      local squares, beta = op.add(op.square(g), eps), scalar_as(rate, g.dtype)
      if dims[entry] then
        local d1, d0 = dims[entry][1], dims[entry][2]
        local rows = transform.moved(boxes[1], ops.mean(squares, d0), beta)
        local columns = transform.moved(boxes[2], ops.mean(squares, d1), beta)
        local row = op.rsqrt(op.div(rows, ops.mean(rows, d1 > d0 and d1 - 1 or d1, true)))
        g = op.mul(op.mul(g, ops.expand_dims(row, d0)), ops.expand_dims(op.rsqrt(columns), d1))
      else
        g = op.mul(g, op.rsqrt(transform.moved(boxes[1], squares, beta)))
      end
      updates[i] = g
    end
    return updates
  end
  return {name = who, init = init, update = update}
end

-- ---- sizes of updates -------------------------------------------------------------------------------

--- The root of the mean of squares: one number.
local function rms(x) return op.div(transform.global_norm(x), math.sqrt(x.size)) end

--- Scales each update whose root mean square is above the threshold down to it.
---@param threshold number
---@return Transformation
function M.clip_by_block_rms(threshold)
  threshold = number("clip_by_block_rms", "the threshold", threshold, 0)
  return transform.each("clip_by_block_rms", function(u)
    return op.div(u, scalar_as(op.maximum(op.div(rms(u), threshold), 1.0), u.dtype))
  end)
end

--- Multiplies each update by the root mean square of its Param.
---@param min_scale number? what it is at least; default 1e-3
---@return Transformation
function M.scale_by_param_block_rms(min_scale)
  min_scale = number("scale_by_param_block_rms", "min_scale", min_scale or 1e-3, 0)
  return transform.each("scale_by_param_block_rms", function(u, p)
    return op.mul(u, scalar_as(op.maximum(rms(p), min_scale), u.dtype))
  end)
end

--- Gives each update the norm of its Param, times a coefficient; those of zeros stay (You et al. 2020).
function by.trust_ratio(who, options)
  local coefficient = number(who, "trust_coefficient", options.trust_coefficient or 1.0, 0)
  local least = number(who, "min_norm", options.min_norm or 0.0, 0)
  local eps = number(who, "eps", options.eps or 0.0, 0)
  return transform.each(who, function(u, p)
    local of_p = op.maximum(transform.global_norm(p), least)
    local of_u = scalar_as(op.maximum(transform.global_norm(u), least), of_p.dtype)
    local ratio = op.div(op.mul(of_p, coefficient), op.add(of_u, eps))
    local zero = op.bitor(op.eq(of_p, 0), op.eq(of_u, 0))
    return op.mul(u, scalar_as(op.where(zero, 1.0, ratio), u.dtype))
  end)
end

--- The running mean of updates.
---@param decay number
---@param options {debias: boolean, accumulator_dtype: string}? debias: correct it for its start at 0; default true
---@return Transformation
function M.ema(decay, options)
  options = lib.options("optim.ema", options)
  decay = number("optim.ema", "decay", decay, 0, 1)
  return transform.stateful("ema", {ema = {dtype = options.accumulator_dtype}}, function(context)
    local debias = options.debias ~= false and transform.debias(decay, context) or function(x) return x end
    return function(u, own) return debias(transform.moved(own.ema, u, decay)) end
  end)
end

-- ---- muon -------------------------------------------------------------------------------------------

local COEFFICIENTS = {3.4445, -4.7750, 2.0315}

--- Each matrix (the last two dims) with all singular values near 1, by steps of Newton and Schulz.
local function orthogonal(x, coefficients, steps, eps)
  local n = x.ndim
  local tall = x.shape[n - 1] > x.shape[n]
  if tall then x = ops.swapaxes(x, n - 1, n) end
  x = op.div(x, op.add(op.sqrt(ops.sum(op.square(x), {n - 1, n}, true)), eps))
  for k = 1, steps do
    local c = coefficients[1]
    c = type(c) == "table" and coefficients[k] or coefficients
    local a = ops.matmul(x, ops.swapaxes(x, n - 1, n))
    local b = op.add(op.mul(a, c[2]), ops.matmul(op.mul(a, c[3]), a))
    x = op.add(op.mul(x, c[1]), ops.matmul(b, x))
  end
  return tall and ops.swapaxes(x, n - 1, n) or x
end

--- Momentum made orthogonal, and scaled by the matrix's shape (Jordan et al. 2024).
function by.muon(who, options)
  local beta = number(who, "beta", options.beta or 0.95, 0, 1)
  local eps = number(who, "eps", options.eps or 1e-8, 0)
  local steps, coefficients = options.ns_steps or 5, options.ns_coeffs or COEFFICIENTS
  local rows = type(coefficients[1]) == "table" and coefficients or {coefficients}
  for _, row in ipairs(rows) do
    if #row ~= 3 then
      raise("E_VALUE", "%s: ns_coeffs are 3 numbers, or 3 for each of %d steps", who, steps)
    end
  end
  if rows == coefficients and #rows ~= steps then
    raise("E_VALUE", "%s: %d rows of ns_coeffs for %d steps", who, #rows, steps)
  end
  local rms_of = options.consistent_rms
  return transform.stateful(who, {mu = {dtype = options.mu_dtype}}, function(context)
    local debias = transform.debias(beta, context, options.nesterov ~= false)
    return function(g, own)
      if g.ndim < 2 then raise("E_SHAPE", "%s: a Param of %s is no matrix", who, core.typeof(g)) end
      local mean = debias(transform.moved(own.mu, g, beta), g)
      local n_in, n_out = g.shape[g.ndim - 1], g.shape[g.ndim]
      local scale = math.sqrt(rms_of and math.max(n_in, n_out) or math.max(1, n_out / n_in)) * (rms_of or 1)
      return op.mul(orthogonal(mean, coefficients, steps, eps), scale)
    end
  end)
end

-- ---- for chains -------------------------------------------------------------------------------------

for _, name in ipairs {"lion", "rms", "rss", "factored_rms", "trust_ratio"} do
  local who = "scale_by_" .. name
  M[who] = function(options) return by[name](who, lib.options(who, options)) end
end

return M
