-- live_set.lua: what a plan must hold, worked out from its steps alone: from the first step that touches a buffer
-- to the last. Apart from the planner, so that a spec can hold the planner to it. For programs without loops.
local M = {}

--- How many places a buffer has in this process: one for each position along the axes along which it differs.
local function slots_of(buffer, mesh)
  local n = 1
  for _, axis in ipairs(buffer.vary) do n = n * mesh.shape[axis] end
  return n
end

--- First and last step of each buffer, and each step's {born, died}.
local function lives(steps)
  local first, last = {}, {}
  for i, step in ipairs(steps) do
    for _, operands in ipairs {step.inputs, step.outputs} do
      for _, operand in ipairs(operands) do
        first[operand.buffer] = first[operand.buffer] or i
        last[operand.buffer] = i
      end
    end
  end
  return first, last
end

--- Bytes in this process, where equal values are kept once: {held (by arguments and results), most (temporaries
--- that are live together), at (the step), planned (held and the workspaces)}.
---@param plan Plan
---@param mesh Mesh?
function M.of(plan, mesh)
  local steps, buffers = plan:steps(), plan:buffers()
  local first, last = lives(steps)
  local change, ends, held = {}, {}, 0
  for i, b in ipairs(buffers) do
    local bytes = b.bytes * slots_of(b, mesh)
    if b.kind ~= "temporary" then
      if not b.takes then held = held + bytes end
    elseif first[i] then
      change[first[i]] = (change[first[i]] or 0) + bytes
      change[last[i] + 1] = (change[last[i] + 1] or 0) - bytes
      local class = table.concat(b.vary, ",")
      ends[class] = ends[class] or {slots = slots_of(b, mesh), top = 0}
      ends[class].top = math.max(ends[class].top, b.offset + b.bytes)
    end
  end
  local live, most, at, workspaces = 0, 0, 0, 0
  for i = 1, #steps do
    live = live + (change[i] or 0)
    if live > most then most, at = live, i end
  end
  for _, class in pairs(ends) do workspaces = workspaces + class.slots * class.top end
  return {held = held, most = most, at = at, planned = held + workspaces}
end

--- Two temporaries that are live at the same step and share bytes, as a text; nil where none do.
---@param plan Plan
function M.clash(plan)
  local first, last = lives(plan:steps())
  local buffers = plan:buffers()
  for i, a in ipairs(buffers) do
    for k = 1, first[i] and a.kind == "temporary" and i - 1 or 0 do
      local b = buffers[k]
      if first[k] and b.kind == "temporary" and table.concat(a.vary, ",") == table.concat(b.vary, ",")
        and first[i] <= last[k] and first[k] <= last[i]
        and a.offset < b.offset + b.bytes and b.offset < a.offset + a.bytes then
        return ("buffers %d and %d share bytes from step %d to %d"):format(k, i, math.max(first[i], first[k]),
          math.min(last[i], last[k]))
      end
    end
  end
end

return M
