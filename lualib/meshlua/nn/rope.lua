-- rope.lua: rotary positions (Su et al. 2021): pairs of a head's features, turned by angles that grow with the position.
local core = require "meshlua.core"
local lib = require "meshlua.lib"
local args = require "meshlua.ops.args"
local ops = require "meshlua.ops"

local op, raise = core.op, lib.raise

local M = {}

local SCALING = {"factor", "high", "low", "original"}
local OPTIONS = {"base", "interleaved", "positions", "scaling"}

local function check_names(who, what, t, names)
  if type(t) ~= "table" then raise("E_VALUE", "%s: %s is %s; expected a table", who, what, lib.kind(t)) end
  for name in pairs(t) do
    if not lib.position(names, name) then
      raise("E_VALUE", "%s: %s has no '%s'; there are %s", who, what, name,
        table.concat(names, ", "))
    end
  end
end

local function check_scaling(who, scaling)
  check_names(who, "scaling", scaling, SCALING)
  for _, name in ipairs(SCALING) do
    if not (lib.check_number(who, "scaling." .. name, scaling[name]) > 0) then
      raise("E_VALUE", "%s: scaling.%s is %s; it must be above 0", who, name, scaling[name])
    end
  end
  if not (scaling.high > scaling.low) then
    raise("E_VALUE", "%s: scaling.high is %s and low %s; high must be above low", who, scaling.high,
      scaling.low)
  end
end

--- What is wrong with the options that a layer keeps, base, interleaved and scaling, is raised. Returns a copy.
---@param who string
---@param options table
---@return {base: number, interleaved: boolean, scaling: table?}
function M.check(who, options)
  check_names(who, "rope", options, OPTIONS)
  local base = lib.check_number(who, "base", options.base or 10000)
  if not (base > 0 and base < math.huge) then
    raise("E_VALUE", "%s: base is %s; it must be above 0", who, base)
  end
  local kept = {base = base + 0.0, interleaved = options.interleaved or false}
  if options.scaling then
    check_scaling(who, options.scaling)
    kept.scaling = {}
    for _, name in ipairs(SCALING) do kept.scaling[name] = options.scaling[name] + 0.0 end
  end
  return kept
end

--- Angles per position of each pair: base^(-2 i / size). Scaling (Llama 3.1) leaves those that turn `high` times or
--- more within the original length, divides those that turn `low` times or less by the factor, and goes over between.
local function frequencies(size, base, scaling)
  local i = ops.iota({size // 2}, 1, "float64")
  local frequency = ops.exp(i * (-2 * math.log(base) / size))
  if not scaling then return frequency end
  local turns = frequency * (scaling.original / (2 * math.pi))
  local keep = ops.clip((turns - scaling.low) / (scaling.high - scaling.low), 0.0, 1.0)
  return frequency * (keep + (1 - keep) / scaling.factor)
end

--- The rotation written in other ops, for what the op cannot say: angles in float64, so that a far position is as exact
--- as a near one.
local function rotate(x, positions, base, scaling)
  local size = x.shape[x.ndim]
  local at = ops.expand_dims(ops.expand_dims(ops.astype(positions, "float64"), -1), -1)
  local angle = at * frequencies(size, base, scaling) -- [..., length, 1, pairs]
  local wide = x.dtype == "float64" and "float64" or "float32"
  local cos, sin = ops.astype(ops.cos(angle), wide), ops.astype(ops.sin(angle), wide)
  local half, wider = {}, ops.astype(x, wide)
  for i, range in ipairs {{1, size // 2}, {size // 2 + 1, size}} do
    local ranges = {}
    for d = 1, x.ndim - 1 do ranges[d] = false end
    ranges[x.ndim] = range
    half[i] = ops.slice(wider, table.unpack(ranges, 1, x.ndim))
  end
  local a, b = half[1], half[2]
  return ops.astype(ops.concat({a * cos - b * sin, b * cos + a * sin}, -1), x.dtype)
end

--- Features 1, 3, 5, ... and behind them 2, 4, 6, ...; with `back` the other way.
local function apart(x, back)
  local shape, pairs_of = {}, {}
  for d, n in ipairs(x.shape) do shape[d], pairs_of[d] = n, n end
  local n, order = #shape, {}
  pairs_of[n], pairs_of[n + 1] = shape[n] // 2, 2
  if back then pairs_of[n], pairs_of[n + 1] = 2, shape[n] // 2 end
  for d = 1, n - 1 do order[d] = d end
  order[n], order[n + 1] = n + 1, n
  return ops.reshape(ops.transpose(ops.reshape(x, pairs_of), order), shape)
end

--- The op, which has a position for each place along one dim: those of several are one.
local function turned(x, positions, attr)
  if positions.ndim == 1 then return op.rope(x, positions, attr) end
  local shape, merged, n = x.shape, {}, 1
  for d = 1, x.ndim - 2 do
    merged[d], n = shape[d], n * shape[d]
  end
  positions = ops.reshape(ops.broadcast(positions, merged), {n})
  x = ops.reshape(x, {n, shape[x.ndim - 1], shape[x.ndim]})
  return ops.reshape(op.rope(x, positions, attr), shape)
end

--- x with each pair of features turned by positions * base^(-2 i / size), i counting the pairs from 0.
---@param x Tensor [..., length, heads, size], the size even
---@param options {positions: Tensor, base: number, interleaved: boolean, scaling: table}? positions: integers
--- [length] or [..., length]; default 0, 1, .... base: default 10000. interleaved: a pair stands side by side; default:
--- half a head apart. scaling: {factor =, low =, high =, original =}, of the frequencies (Llama 3.1)
---@return Tensor of x's shape
function M.rope(x, options)
  options = lib.options("rope", options)
  args.check_tensor("rope", x, "x")
  local kept = M.check("rope", options)
  if x.ndim < 3 or x.shape[x.ndim] % 2 ~= 0 then
    raise("E_SHAPE", "rope: takes [..., length, heads, even size], got %s", core.typeof(x))
  end
  local positions = options.positions or ops.arange(x.shape[x.ndim - 2])
  args.check_tensor("rope", positions, "positions")
  if not positions.dtype:match "^u?int" then
    raise("E_DTYPE", "rope: positions are whole numbers, not %s", core.typeof(positions))
  end
  if positions.ndim < 1 or positions.ndim > x.ndim - 2
    or positions.shape[positions.ndim] ~= x.shape[x.ndim - 2] then
    raise("E_SHAPE", "rope: positions are %s; x, %s, has %d in dim %d", core.typeof(positions),
      core.typeof(x), x.shape[x.ndim - 2], x.ndim - 2)
  end
  if kept.interleaved then x = apart(x) end
  if kept.scaling or not x.dtype:match "float" then
    if not x.dtype:match "float" then raise("E_DTYPE", "rope: takes floats, got %s", core.typeof(x)) end
    x = rotate(x, positions, kept.base, kept.scaling)
  else
    if positions.dtype ~= "int32" then positions = ops.astype(positions, "int32") end
    x = turned(x, positions, {base = kept.base, sign = 1.0})
  end
  return kept.interleaved and apart(x, true) or x
end

return M
