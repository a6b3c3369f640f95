-- faults.lua: runs a scenario with its n-th allocation failing, for n = 0, 1, 2, ... until none is left that
-- could: those of the core and those of Lua. A scenario:
--   name
--   make    function() -> state: what comes before; nothing fails in it. Default: an empty table
--   run     function(state) -> result: what must survive
--   intact  function(state): raises if a failed run has left the state in between
--   check   function(state, result): raises if the result of the run in which nothing failed is wrong
local ml = require "meshlua"

local core = ml.core

local M = {}

--- Seconds for one scenario. When half are
--- used up, n begins to go in steps that grow: by the share GROWTH of n where all are. tests/fault/full.lua lifts
--- the limit.
local watched = rawget(_G, "SANITIZE") ~= nil
M.budget = FAULT_BUDGET or 0.06 -- luacheck: ignore
local GROWTH = watched and 0.25 or 0.1
local AGAIN = watched and 8 or 21 -- allocations that fail once more, to see what runs leave behind

local function collect()
  collectgarbage()
  collectgarbage()
end

local probe = ml.jit(function(x, y) return (x * 2 + y):sum() end)

--- Raises unless the library is as it was: no trace, no context, and a computation that is right.
local function check_usable()
  assert(not core.is_tracing(), "a trace is still open")
  assert(core.mesh_current() == nil, "a mesh is still in context")
  local x = ml.arange(4.0)
  local sum = probe(x, x + 1)
  assert(sum:item() == 22, "a computation is wrong")
end

local function is_clean(message)
  return type(message) == "string"
    and (message:find("out of memory", 1, true) or message == "not enough memory") ~= nil
end

--- fn(...) with allocation n failing. Returns whether there was one, whether fn ended well, and its result. A
--- call needs memory, too, so what surrounds fn may fail as well.
---@return boolean fired, boolean ok, any result
function M.try(n, fn, ...)
  local entered, ok, result = pcall(function(...)
    core.fail_alloc(n)
    return pcall(fn, ...)
  end, ...)
  if not entered then ok, result = false, ok end
  local disarmed, left = pcall(core.fail_alloc)
  if not disarmed then left = core.fail_alloc() end
  return left == -1, ok, result
end

--- One run with allocation n failing. Returns whether there was one, the state and the result.
local function attempt(scenario, n)
  core.clear_plans()
  local state = scenario.make and scenario.make() or {}
  -- The same allocations in the same order, so that none is passed over; else what is left of the last attempt moves
  -- them, and chance decides which are met.
  if M.budget == math.huge then collectgarbage() end
  local fired, ok, result = M.try(n, scenario.run, state)
  local place = ("%s, allocation %d: "):format(scenario.name, n)
  if not ok and not (fired and is_clean(result)) then error(place .. tostring(result), 0) end
  if fired then
    local usable, why = pcall(check_usable)
    if usable and scenario.intact then usable, why = pcall(scenario.intact, state) end
    if not usable then error(place .. tostring(why), 0) end
  end
  return fired, state, result
end

--- The next n, given how much of the budget is used.
local function next_of(n, used)
  if used < 0.5 then return n + 1 end
  return n + math.max(1, math.floor(n * (used < 1 and 0.01 or GROWTH)))
end

--- Bytes of the core left behind by runs in which allocations failed that have failed before. What is kept once and
--- for good, as a name is, may by chance be met late: what is left behind is so each time.
local function left_behind(scenario, last)
  local function sample()
    for i = 0, AGAIN - 1 do attempt(scenario, last * i // AGAIN) end
    core.clear_plans()
    collect()
    return core.memory().live
  end
  sample()
  local before = sample()
  local after = sample()
  return after <= before and after - before or sample() - after
end

--- Raises if the scenario does not survive. Returns how many allocations were made to fail.
---@return integer
function M.survive(scenario)
  local start, n, count = os.clock(), 0, 0
  attempt(scenario, 1 << 40)
  while true do
    local fired, state, result = attempt(scenario, n)
    if not fired then
      if scenario.check then scenario.check(state, result) end
      break
    end
    count = count + 1
    n = next_of(n, (os.clock() - start) / M.budget)
  end
  local bytes = scenario.grows and 0 or left_behind(scenario, n) -- grows: by names, which are kept for good
  assert(bytes <= 0, ("%s: %d bytes are left behind by runs that failed"):format(scenario.name, bytes))
  return count
end

--- The functions that run while a scenario does, Lua's and C's, as a set.
---@param set table<function, boolean> to be added to
function M.record(scenario, set)
  local state = scenario.make and scenario.make() or {}
  debug.sethook(function() set[debug.getinfo(2, "f").func] = true end, "c")
  local ok, why = pcall(scenario.run, state)
  debug.sethook()
  assert(ok, why)
end

return M
