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

--- From init_value to end_value in a straight line, over transition_steps from transition_begin on.
---@param options {init_value: number, end_value: number, transition_steps: integer, transition_begin: integer}
--- transition_begin: default 0. transition_steps 0: always init_value
---@return Schedule
function M.linear(options)
  local who = "schedule.linear"
  options = lib.options(who, options)
  local first, last = number(who, options, "init_value"), number(who, options, "end_value")
  local n, begin = steps(who, options, "transition_steps", 0), number(who, options, "transition_begin", 0)
  if n == 0 then return M.constant(first) end
  return function(count)
    count = minimum(maximum(float(count) - begin, 0.0), n)
    return (1.0 - count / n) * (first - last) + last
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
    for i, boundary in ipairs(boundaries) do
      local after = schedules[i + 1](count - boundary)
      if lib.is_tensor(count) then
        value = op.where(op.lt(float(count), boundary + 0.0), value, after)
      elseif count >= boundary then
        value = after
      end
    end
    return value
  end
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

return lib.strict(lib.export(M, "schedule."), "schedule", "schedule.")
