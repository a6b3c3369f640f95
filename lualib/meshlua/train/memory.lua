-- memory.lua: whether what a step holds fits, said before it is made.
local core = require "meshlua.core"

local M = {}

--- A number of a file of the kernel's that a pattern finds; nil where there is none.
local function number_in(path, pattern)
  local file <close> = io.open(path)
  local text = file and file:read "a"
  return text and tonumber(text:match(pattern))
end

--- Bytes that this machine, or the group of processes that this one is in, has left; nil: that is not known.
local function free_bytes()
  local free = number_in("/proc/meminfo", "MemAvailable: *(%d+)")
  local most = number_in("/sys/fs/cgroup/memory.max", "^(%d+)")
  local used = number_in("/sys/fs/cgroup/memory.current", "^(%d+)")
  free = free and free * 1024
  if most and used and (not free or most - used < free) then free = most - used end
  return free
end

--- What a step holds at its peak, in words; and why that does not fit, where it does not.
---@param run Run
---@return string text
---@return string? misfit
function M.verdict(run)
  local plan = run:plan()
  local peak, n = plan:memory().peak, run.mesh and math.min(run.mesh.size, core.local_device_count()) or 1
  local text = "memory: a step holds " .. core.bytes_text(peak // 1 | 0)
  if n > 1 then text = ("%s on each of %d devices"):format(text, n) end
  if core.device_kind() ~= "cpu" then
    local fits, why = plan:fits()
    return text, not fits and why or nil
  end
  local free = free_bytes()
  if not free then return text end
  text = ("%s; %s are free"):format(text, core.bytes_text(free))
  local more = n * peak - core.memory().live -- the parameters are there already
  if more <= free then return text end
  return text, ("a step needs %s more than the processor's memory has free (%s of %s): take a smaller "
    .. "--batch or more --microbatches"):format(core.bytes_text((more - free) // 1 | 0),
    core.bytes_text((n * peak) // 1 | 0), core.bytes_text(free))
end

return M
