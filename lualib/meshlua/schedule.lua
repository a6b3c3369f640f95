-- schedule.lua: learning rates as functions of the number of updates made so far (0 at the first), with
-- optax's mathematics. A schedule takes a Lua number and gives one, or a scalar tensor and gives one: the
-- same function serves a log line and a traced step.
local core = require "meshlua.core"
local lib = require "meshlua.lib"

local op, raise = core.op, lib.raise

local M = {}

---@alias Schedule fun(count: number|Tensor): number|Tensor

--- The count as a float.
local function float(count)
  if not lib.is_tensor(count) then return count + 0.0 end
  return count.dtype:match "float" and count or op.astype(count, {dtype = "float32"})
end

local function minimum(x, limit) return lib.is_tensor(x) and op.minimum(x, limit) or math.min(x, limit) end
local function maximum(x, limit) return lib.is_tensor(x) and op.maximum(x, limit) or math.max(x, limit) end
local function cos(x) return lib.is_tensor(x) and op.cos(x) or math.cos(x) end
local function floor(x) return lib.is_tensor(x) and op.floor(x) or math.floor(x) end

--- `early` up to the boundary, then `late`.
local function until_count(count, boundary, early, late)
  if not lib.is_tensor(count) then return count < boundary and early or late end
  return op.where(op.lt(float(count), boundary + 0.0), early, late)
end

local function number(who, options, name, default)
  local x = options[name]
  if x == nil then x = default end
  if type(x) ~= "number" or x ~= x then
    raise("E_VALUE", "%s: %s is %s; expected a number", who, name, x)
  end
  return x + 0.0
end

local function steps(who, options, name, low)
  local n = number(who, options, name)
  if n < low then raise("E_VALUE", "%s: %s is %g; it must be %d or more", who, name, n, low) end
  return n
end

--- Always the same.
---@param value number
---@return Schedule
function M.constant(value)
  if type(value) ~= "number" then
    raise("E_VALUE", "schedule.constant: expected a number, got %s", lib.kind(value))
  end
  return function() return value end
end

local function polynomial(who, options, power)
  local first, last = number(who, options, "init_value"), number(who, options, "end_value")
  local n, begin = steps(who, options, "transition_steps", 0), number(who, options, "transition_begin", 0)
  if n == 0 then return M.constant(first) end
  return function(count)
    local rest = 1.0 - minimum(maximum(float(count) - begin, 0.0), n) / n
    if power ~= 1 then rest = rest ^ power end
    return rest * (first - last) + last
  end
end

--- From init_value to end_value in a straight line, over transition_steps from transition_begin on.
---@param options {init_value: number, end_value: number, transition_steps: integer, transition_begin: integer}
--- transition_begin: default 0. transition_steps 0: always init_value
---@return Schedule
function M.linear(options)
  return polynomial("schedule.linear", lib.options("schedule.linear", options), 1)
end

--- The same along a power of what is left.
---@param options {init_value: number, end_value: number, power: number, transition_steps: integer, transition_begin: integer}
---@return Schedule
function M.polynomial(options)
  local who = "schedule.polynomial"
  options = lib.options(who, options)
  return polynomial(who, options, number(who, options, "power"))
end

--- init_value times decay_rate ^ (count / transition_steps), from transition_begin on.
---@param options {init_value: number, transition_steps: integer, decay_rate: number, transition_begin: integer, staircase: boolean, end_value: number}
--- staircase: by whole powers; default false. end_value: where it stops; default none
---@return Schedule
function M.exponential(options)
  local who = "schedule.exponential"
  options = lib.options(who, options)
  local first, n = number(who, options, "init_value"), steps(who, options, "transition_steps", 1)
  local by, begin = number(who, options, "decay_rate"), number(who, options, "transition_begin", 0)
  if by <= 0 then raise("E_VALUE", "%s: decay_rate is %g; it must be above 0", who, by) end
  local last = options.end_value and number(who, options, "end_value")
  local limit = by < 1 and maximum or minimum
  return function(count)
    local power = maximum(float(count) - begin, 0.0) / n
    if options.staircase then power = floor(power) end
    local value = by ^ power * first
    return last and limit(value, last) or value
  end
end

--- From init_value along half a cosine to alpha * init_value, over decay_steps (Loshchilov and Hutter 2017).
---@param options {init_value: number, decay_steps: integer, alpha: number, exponent: number}
--- alpha: default 0. exponent: of the cosine's factor; default 1
---@return Schedule
function M.cosine(options)
  local who = "schedule.cosine"
  options = lib.options(who, options)
  local first, n = number(who, options, "init_value"), steps(who, options, "decay_steps", 1)
  local alpha, exponent = number(who, options, "alpha", 0), number(who, options, "exponent", 1)
  return function(count)
    count = minimum(float(count), n)
    local factor = (cos(count * math.pi / n) + 1.0) * 0.5
    if exponent ~= 1 then factor = factor ^ exponent end
    return (factor * (1 - alpha) + alpha) * first
  end
end

--- The first schedule up to the first boundary, then the next one, counted from there.
---@param schedules Schedule[]
---@param boundaries integer[] one less than schedules
---@return Schedule
function M.join(schedules, boundaries)
  if type(schedules) ~= "table" or type(boundaries) ~= "table" or #boundaries ~= #schedules - 1 then
    raise("E_VALUE", "schedule.join: expected a list of schedules and a list of boundaries, one less")
  end
  return function(count)
    local value = schedules[1](count)
    if lib.is_tensor(count) and type(value) == "number" then value = float(count) * 0.0 + value end
    for i, boundary in ipairs(boundaries) do
      value = until_count(count, boundary, value, schedules[i + 1](count - boundary))
    end
    return value
  end
end

--- The counts of {[count] = factor}, in order, and what init_value is after each factor.
local function boundaries_of(who, options)
  local scales, counts = options.boundaries_and_scales or {}, {}
  for count, by in pairs(scales) do
    if math.type(count) ~= "integer" or type(by) ~= "number" or not (by >= 0) then
      raise("E_VALUE", "%s: boundaries_and_scales has [%s] = %s; it is {[count] = factor}, factors from 0 on",
        who, count, by)
    end
    counts[#counts + 1] = count
  end
  table.sort(counts)
  local values = {[0] = number(who, options, "init_value")}
  for i, count in ipairs(counts) do values[i] = values[i - 1] * scales[count] end
  return counts, values
end

--- init_value, times a factor at each boundary.
---@param options {init_value: number, boundaries_and_scales: table<integer, number>}
---@return Schedule
function M.piecewise_constant(options)
  local who = "schedule.piecewise_constant"
  local counts, values = boundaries_of(who, lib.options(who, options))
  return function(count)
    local value = float(count) * 0.0 + values[0]
    for i, boundary in ipairs(counts) do value = until_count(count, boundary, value, values[i]) end
    return value
  end
end

--- From one of the values to the next, the count at which each is reached being its boundary.
local function interpolated(who, kind, counts, values)
  if kind ~= "linear" and kind ~= "cosine" then
    raise("E_VALUE", "%s: interpolate_type is '%s'; it is 'linear' or 'cosine'", who, kind)
  end
  return function(count)
    local at, value, before = float(count), nil, 0
    for i, boundary in ipairs(counts) do
      local part = (at - before) / math.max(boundary - before, 1)
      if kind == "cosine" then part = (1.0 - cos(part * math.pi)) * 0.5 end
      local here = part * (values[i] - values[i - 1]) + values[i - 1]
      value = value and until_count(count, before, value, here) or here
      before = boundary
    end
    return value and until_count(count, before, value, values[#counts]) or at * 0.0 + values[0]
  end
end

--- init_value, and at each boundary what it is times a factor: in straight lines or half cosines between.
---@param options {interpolate_type: "linear"|"cosine", init_value: number, boundaries_and_scales: table<integer, number>}
---@return Schedule
function M.piecewise_interpolate(options)
  local who = "schedule.piecewise_interpolate"
  options = lib.options(who, options)
  return interpolated(who, options.interpolate_type, boundaries_of(who, options))
end

--- Up to peak_value from a part of it, and down to nearly nothing, along cosines (Smith and Topin 2019).
---@param options {transition_steps: integer, peak_value: number, pct_start: number, div_factor: number, final_div_factor: number}
--- pct_start: the part of the steps that goes up; default 0.3. It begins at peak_value / div_factor (default 25), and
--- ends at that / final_div_factor (default 1e4)
---@return Schedule
function M.cosine_onecycle(options)
  local who = "schedule.cosine_onecycle"
  options = lib.options(who, options)
  local n, peak = steps(who, options, "transition_steps", 1), number(who, options, "peak_value")
  local start, by = number(who, options, "pct_start", 0.3), number(who, options, "div_factor", 25)
  local last = peak / (by * number(who, options, "final_div_factor", 1e4))
  return interpolated(who, "cosine", {start * n // 1, n}, {[0] = peak / by, peak, last})
end

--- The same in straight lines: up, down to where it began at the part pct_final of the steps, and on to the end.
---@param options {transition_steps: integer, peak_value: number, pct_start: number, pct_final: number, div_factor: number, final_div_factor: number}
--- pct_final: default 0.85; the rest as cosine_onecycle
---@return Schedule
function M.linear_onecycle(options)
  local who = "schedule.linear_onecycle"
  options = lib.options(who, options)
  local n, peak = steps(who, options, "transition_steps", 1), number(who, options, "peak_value")
  local start, stop = number(who, options, "pct_start", 0.3), number(who, options, "pct_final", 0.85)
  local first = peak / number(who, options, "div_factor", 25)
  local last = first / number(who, options, "final_div_factor", 1e4)
  return interpolated(who, "linear", {start * n // 1, stop * n // 1, n}, {[0] = first, peak, first, last})
end

--- Linear from init_value to peak_value over warmup_steps, then a cosine to end_value at decay_steps (which
--- include the warm-up).
---@param options {init_value: number, peak_value: number, warmup_steps: integer, decay_steps: integer, end_value: number, exponent: number}
--- init_value, end_value: default 0. exponent: default 1
---@return Schedule
function M.warmup_cosine(options)
  local who = "schedule.warmup_cosine"
  options = lib.options(who, options)
  local peak, last = number(who, options, "peak_value"), number(who, options, "end_value", 0)
  local warmup, n = steps(who, options, "warmup_steps", 0), steps(who, options, "decay_steps", 1)
  if n <= warmup then
    raise("E_VALUE", "%s: decay_steps (%g) include the warm-up and must be more than warmup_steps (%g)", who,
      n, warmup)
  end
  return M.join({
    M.linear {init_value = number(who, options, "init_value", 0), end_value = peak,
      transition_steps = warmup},
    M.cosine {init_value = peak, decay_steps = n - warmup, alpha = peak == 0 and 0 or last / peak,
      exponent = options.exponent},
  }, {warmup})
end

--- Linear from init_value to peak_value over warmup_steps, then peak_value * sqrt(timescale / (count - warmup_steps +
--- timescale)) (Vaswani et al. 2017, where timescale is warmup_steps).
---@param options {init_value: number, peak_value: number, warmup_steps: integer, timescale: number}
--- init_value: default 0. timescale: default warmup_steps
---@return Schedule
function M.inverse_sqrt(options)
  local who = "schedule.inverse_sqrt"
  options = lib.options(who, options)
  local peak, warmup = number(who, options, "peak_value"), steps(who, options, "warmup_steps", 0)
  local scale, first = number(who, options, "timescale", warmup), number(who, options, "init_value", 0)
  if scale <= 0 then raise("E_VALUE", "%s: without a warm-up, `timescale` says how slowly it falls", who) end
  return M.join({
    M.linear {init_value = first, end_value = peak, transition_steps = warmup},
    function(count) return ((float(count) + scale) / scale) ^ -0.5 * peak end,
  }, {warmup})
end

local falls = {
  linear = function(part) return part end,
  cosine = function(part) return (1.0 - cos(part * math.pi)) * 0.5 end,
  sqrt = function(part) return part ^ 0.5 end,
}

--- Warm-up, stable, decay: linear from init_value to peak_value over warmup_steps, peak_value for stable_steps, and to
--- end_value over decay_steps (Hu et al. 2024).
---@param options table peak_value, warmup_steps, stable_steps, decay_steps; init_value, end_value: default 0. decay:
--- the form of the fall, "linear" (default), "cosine" or "sqrt", which is 1 - sqrt
---@return Schedule
function M.wsd(options)
  local who = "schedule.wsd"
  options = lib.options(who, options)
  local peak, last = number(who, options, "peak_value"), number(who, options, "end_value", 0)
  local warmup, stable = steps(who, options, "warmup_steps", 0), steps(who, options, "stable_steps", 0)
  local n, fall = steps(who, options, "decay_steps", 1), falls[options.decay or "linear"]
  local first = number(who, options, "init_value", 0)
  if not fall then
    raise("E_VALUE", "%s: decay is '%s'; there are %s", who, options.decay, lib.quoted(lib.names(falls)))
  end
  return M.join({
    M.linear {init_value = first, end_value = peak, transition_steps = warmup},
    M.constant(peak),
    function(count) return fall(minimum(maximum(float(count), 0.0), n) / n) * (last - peak) + peak end,
  }, {warmup, warmup + stable})
end

return lib.strict(lib.export(M, "schedule."), "schedule", "schedule.")
