-- processor.lua: how long a step takes where the devices are the processor's: its threads do the work of all of
-- them, what is equal on several devices once, and what is sent is read where it lies. bench/layouts.lua holds it
-- against what layouts take (docs/layouts.md).
local core = require "meshlua.core"
local lib = require "meshlua.lib"

local M = {}

--- Of one thread, a core of a server processor of 2023, by kind of kernel: operations of a second, and bytes read and
--- written. One does not hide the other: products pack what they read, and come back to what they write.
local PRODUCT, ATTENTION, OTHER = {1e11, 5e10, 2e10}, {4e10, 3.5e10, 3.5e10}, {6e10, 3.5e10, 3.5e10}
local SENT = {6e10, 2.5e10, 2.5e10}
--- Seconds of a kernel that has nothing to do; of a function of an element; of an element's place, found one by one.
local CALL, FUNCTION, PLACE = 1e-6, 2.5e-10, 1.2e-9
local SLOW = {exp = FUNCTION, expm1 = FUNCTION, log = FUNCTION, log1p = FUNCTION, tanh = FUNCTION,
  sigmoid = FUNCTION, erf = FUNCTION, erf_inv = FUNCTION, sin = FUNCTION, cos = FUNCTION, pow = FUNCTION,
  erfc = FUNCTION, atan2 = FUNCTION, lgamma = 20 * FUNCTION, polygamma = 400 * FUNCTION, iota = PLACE}

--- Do fake devices of kind cpu stand for this process's own, which `plan` does not run on?
M.stand_in = false

--- Are the devices the processor's, and one process has them?
---@return boolean
function M.has_devices()
  local kind, fake = core.device_kind()
  return kind == "cpu" and (not fake or M.stand_in) and core.process_count() == 1
end

local function bytes_of(list)
  local sum = 0
  for _, v in ipairs(list) do sum = sum + v.bytes end
  return sum
end

--- Seconds of an elementwise kernel's functions, beside its operations.
local function slow_seconds(s)
  local each = 0
  for _, op in ipairs(s.ops) do each = each + (SLOW[op] or 0) end
  return each > 0 and each * lib.product(s.outputs[1].shape) or 0
end

--- Seconds of one thread for an item of account.lua, all devices and times.
---@param item table
---@return number
function M.seconds_of(item)
  local s = item.step
  if s.kind ~= "kernel" and s.kind ~= "collective" then return 0 end
  local kind = s.op:find "attention" and ATTENTION or s.product and PRODUCT or OTHER
  local read, written = bytes_of(s.inputs), bytes_of(s.outputs)
  if s.kind == "collective" then -- everything lies in one memory: each result is made from the others' operands
    kind, read = SENT, not s.reduces and written or s.op == "reduce_scatter" and read or item.members * read
  end
  return item.parts * item.times * (CALL + slow_seconds(s) + s.flops / kind[1] + read / kind[2]
    + written / kind[3])
end

--- Seconds of one thread for a step, and of them for what is sent.
---@param work table of account.lua
---@return number seconds
---@return number sending
function M.seconds(work)
  local seconds, sending = 0, 0
  for _, item in ipairs(work.items) do
    local own = M.seconds_of(item)
    seconds, sending = seconds + own, sending + (item.axes and own or 0)
  end
  return seconds, sending
end

return M
