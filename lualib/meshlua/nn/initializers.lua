-- initializers.lua: what parameters start from: functions (key, shape, dtype, dims) -> tensor, with the
-- mathematics of jax.nn.initializers, so that equal keys give JAX's numbers. Scales are computed in the
-- dtype of the draw, as JAX does. dims = {in_axis =, out_axis =} comes from layers whose kernels have
-- several input or output dims.
local args = require "meshlua.ops.args"
local control = require "meshlua.transform.control"
local core = require "meshlua.core"
local lib = require "meshlua.lib"
local ops = require "meshlua.ops"
local random = require "meshlua.random"

local op, raise = core.op, lib.raise

local M = {}

---@alias Initializer fun(key: Tensor, shape: integer[], dtype: string?, dims: table?): Tensor

local function default(dtype) return dtype or "float32" end

--- x as a scalar tensor: what is computed from it rounds as the dtype does.
local function scalar(x, dtype) return op.full {dtype = dtype, dims = {}, value = x + 0.0} end

local function number(who, x)
  if type(x) ~= "number" then raise("E_VALUE", "%s: expected a number, got %s", who, lib.kind(x)) end
  return x
end

local function scaled(x, factor) return op.mul(x, factor + 0.0) end

--- The initialiser; where values are of no account (lib.no_values, which ml.init sets), zeros: a draw is much to
--- trace and to plan.
local function drawn_by(draw)
  return function(key, shape, dtype, dims)
    if lib.no_values then return ops.zeros(shape, default(dtype)) end
    return draw(key, shape, default(dtype), dims)
  end
end

--- Zeros and ones; themselves initialisers.
function M.zeros(_, shape, dtype, _dims) return ops.zeros(shape, default(dtype)) end
function M.ones(_, shape, dtype, _dims) return ops.ones(shape, default(dtype)) end

--- Every element the same.
---@param value number
---@return Initializer
function M.constant(value)
  number("initializers.constant", value)
  return function(_, shape, dtype) return ops.full(shape, value + 0.0, default(dtype)) end
end

--- Uniform in [0, scale).
---@param scale number? default 0.01
---@return Initializer
function M.uniform(scale)
  scale = number("initializers.uniform", scale or 1e-2)
  return drawn_by(function(key, shape, dtype) return scaled(random.uniform(key, shape, dtype), scale) end)
end

--- Normal with mean 0.
---@param stddev number? default 0.01
---@return Initializer
function M.normal(stddev)
  stddev = number("initializers.normal", stddev or 1e-2)
  return drawn_by(function(key, shape, dtype) return scaled(random.normal(key, shape, dtype), stddev) end)
end

--- Normal, cut to [lower, upper] before it is multiplied by stddev (which is not corrected for the cut).
---@param stddev number? default 0.01
---@param lower number? default -2
---@param upper number? default 2
---@return Initializer
function M.truncated_normal(stddev, lower, upper)
  stddev = number("initializers.truncated_normal", stddev or 1e-2)
  lower = number("initializers.truncated_normal", lower or -2.0)
  upper = number("initializers.truncated_normal", upper or 2.0)
  return drawn_by(function(key, shape, dtype)
    return scaled(random.truncated_normal(key, lower, upper, shape, dtype), stddev)
  end)
end

--- Positions of dims (a number or a list, negative from the end) as a set; their sizes' product.
local function sizes_of(who, shape, axes)
  if type(axes) == "number" then axes = {axes} end
  local product = 1
  for _, axis in ipairs(axes) do
    local d = axis < 0 and axis + #shape + 1 or axis
    if not shape[d] then
      raise("E_SHAPE", "%s: axis %d of a shape of rank %d", who, axis, #shape)
    end
    product = product * shape[d]
  end
  return product
end

--- Inputs and outputs of one element of the result; dims that are neither in, out nor batch are the
--- receptive field of a convolution.
local function fans(who, shape, in_axis, out_axis, batch_axis)
  local n_in = sizes_of(who, shape, in_axis)
  local n_out = sizes_of(who, shape, out_axis)
  local batch, total = sizes_of(who, shape, batch_axis), lib.product(shape)
  if total == 0 then raise("E_SHAPE", "%s: a shape without elements", who) end
  local field = total / n_in / n_out / batch
  return n_in * field, n_out * field
end

-- Standard deviation of the standard normal cut to [-2, 2].
local CUT_STDDEV = .87962566103423978

local draws = {
  truncated_normal = function(key, shape, dtype, variance)
    local stddev = op.div(op.sqrt(variance), scalar(CUT_STDDEV, dtype))
    return op.mul(random.truncated_normal(key, -2.0, 2.0, shape, dtype), stddev)
  end,
  normal = function(key, shape, dtype, variance)
    return op.mul(random.normal(key, shape, dtype), op.sqrt(variance))
  end,
  uniform = function(key, shape, dtype, variance)
    return op.mul(random.uniform(key, shape, dtype, -1.0, 1.0), op.sqrt(op.mul(variance, 3.0)))
  end,
}

local denominators = {
  fan_in = function(n_in) return n_in end,
  fan_out = function(_, n_out) return n_out end,
  fan_avg = function(n_in, n_out) return (n_in + n_out) / 2 end,
  fan_geo_avg = function(n_in, n_out) return (n_in * n_out) ^ 0.5 end,
}

--- variance_scaling, for the function that errors name.
local function scaling(who, scale, mode, distribution, options)
  number(who, scale)
  options = lib.options(who, options)
  local denominator, draw = denominators[mode], draws[distribution]
  if not denominator then
    raise("E_VALUE", "%s: the mode is '%s'; there are %s", who, mode,
      table.concat(lib.names(denominators), ", "))
  end
  if not draw then
    raise("E_VALUE", "%s: the distribution is '%s'; there are %s", who, distribution,
      table.concat(lib.names(draws), ", "))
  end
  return function(key, shape, dtype, dims)
    dtype, dims = default(dtype), dims or {}
    local in_axis, out_axis = options.in_axis or dims.in_axis, options.out_axis or dims.out_axis
    if #shape < 2 and not in_axis then
      raise("E_SHAPE", "%s: a shape of rank %d has no inputs and outputs; give in_axis and out_axis", who,
        #shape)
    end
    local n_in, n_out = fans(who, shape, in_axis or -2, out_axis or -1, options.batch_axis or {})
    if lib.no_values then return ops.zeros(shape, dtype) end
    return draw(key, shape, dtype, scalar(scale / denominator(n_in, n_out), dtype))
  end
end

--- Mean 0 and variance scale / n, where n is the number of inputs (mode "fan_in"), of outputs ("fan_out"),
--- or their arithmetic ("fan_avg") or geometric ("fan_geo_avg") mean. (He et al. 2015; Glorot and Bengio
--- 2010; LeCun et al. 1998)
---@param scale number
---@param mode "fan_in"|"fan_out"|"fan_avg"|"fan_geo_avg"
---@param distribution "truncated_normal"|"normal"|"uniform"
---@param options {in_axis: integer|integer[], out_axis: integer|integer[], batch_axis: integer|integer[]}?
--- dims of the shape; default what the layer says, else -2, -1 and none
---@return Initializer
function M.variance_scaling(scale, mode, distribution, options)
  return scaling("initializers.variance_scaling", scale, mode, distribution, options)
end

local function family(name, scale, mode, distribution)
  return function(options) return scaling("initializers." .. name, scale, mode, distribution, options) end
end

--- The rows of z [m, n], m <= n, each without its part along the ones before it, and of length 1: what QR gives, with
--- signs such that R's diagonal is positive. Each is cleaned twice, against rounding.
local function orthonormal(z)
  local m, n = z.shape[1], z.shape[2]
  return (control.scan(function(q, row)
    local v = row.z
    for _ = 1, 2 do v = op.sub(v, ops.matmul(ops.matmul(q, v), q)) end
    v = op.mul(v, op.rsqrt(ops.sum(op.square(v))))
    local here = ops.reshape(op.eq(ops.arange(0, m), row.at), {m, 1})
    return op.where(ops.broadcast(here, {m, n}), ops.broadcast(ops.reshape(v, {1, n}), {m, n}), q)
  end, ops.zeros({m, n}, z.dtype), {z = z, at = ops.arange(0, m)}))
end

--- A matrix with columns (or rows, where these are fewer) at right angles, each of length `scale` (Saxe et al. 2014).
---@param scale number? default 1
---@param column_axis integer? the dim of the columns; the others together are the rows. Default -1
---@return Initializer
function M.orthogonal(scale, column_axis)
  local who = "initializers.orthogonal"
  scale, column_axis = number(who, scale or 1.0), column_axis or -1
  return function(key, shape, dtype)
    if #shape < 2 then raise("E_SHAPE", "%s: a shape of rank %d is no matrix", who, #shape) end
    local at = args.axis_of(who, column_axis, #shape)
    local rest = table.move(shape, 1, #shape, 1, {})
    local columns = table.remove(rest, at)
    local rows = lib.product(rest)
    if rows * columns == 0 then return ops.zeros(shape, default(dtype)) end
    local tall = rows >= columns
    local z = random.normal(key, {math.max(rows, columns), math.min(rows, columns)}, default(dtype))
    local wide = z.dtype == "float64" and "float64" or "float32"
    local q = orthonormal(ops.swapaxes(op.astype(z, {dtype = wide}), 1, 2))
    if tall then q = ops.swapaxes(q, 1, 2) end
    rest[#rest + 1] = columns
    q = ops.moveaxis(ops.reshape(q, rest), -1, at)
    return op.astype(scaled(q, scale), {dtype = default(dtype)})
  end
end

--- Of a convolution's kernel: an orthogonal matrix in the middle, zeros around it (Xiao et al. 2018).
---@param scale number? default 1
---@param column_axis integer? of the matrix; default -1
---@return Initializer
function M.delta_orthogonal(scale, column_axis)
  local matrix = M.orthogonal(scale, column_axis)
  return function(key, shape, dtype)
    local n = #shape
    if n < 3 or shape[n] < shape[n - 1] then
      raise("E_SHAPE", "initializers.delta_orthogonal: a kernel of %s; expected [spatial..., in, out], in at "
        .. "most out", lib.shape_text(shape))
    end
    local ones, pads = {}, {}
    for d = 1, n do
      local before = (shape[d] - 1) // 2
      ones[d], pads[d] = d < n - 1 and 1 or shape[d], d < n - 1 and {before, shape[d] - 1 - before} or {0, 0}
    end
    return ops.pad(ops.reshape(matrix(key, {shape[n - 1], shape[n]}, dtype), ones), pads)
  end
end

--- The named members of variance_scaling; each takes its options.
M.lecun_normal = family("lecun_normal", 1.0, "fan_in", "truncated_normal")
M.lecun_uniform = family("lecun_uniform", 1.0, "fan_in", "uniform")
M.he_normal = family("he_normal", 2.0, "fan_in", "truncated_normal")
M.he_uniform = family("he_uniform", 2.0, "fan_in", "uniform")
M.xavier_normal = family("xavier_normal", 1.0, "fan_avg", "truncated_normal")
M.xavier_uniform = family("xavier_uniform", 1.0, "fan_avg", "uniform")
M.glorot_normal = family("glorot_normal", 1.0, "fan_avg", "truncated_normal")
M.glorot_uniform = family("glorot_uniform", 1.0, "fan_avg", "uniform")
M.kaiming_normal = family("kaiming_normal", 2.0, "fan_in", "truncated_normal")
M.kaiming_uniform = family("kaiming_uniform", 2.0, "fan_in", "uniform")

return M
