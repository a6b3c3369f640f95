-- explain.lua: what a jitted call will send, hold and compute, and why, as a text.
local core = require "meshlua.core"
local lib = require "meshlua.lib"

local M = {}

--- "float32[8,4]", of the first operand, and how many more go with it.
local function tensors_text(c)
  local first = c.inputs[1]
  local text = ("%s[%s]"):format(first.dtype, table.concat(first.shape, ","))
  return #c.inputs > 1 and ("%s and %d more"):format(text, #c.inputs - 1) or text
end

--- The first places, and how many more there are. Numbers in modules' paths are left out ("h.*.mlp"), so
-- that layers alike read alike.
local function places_text(where)
  local shown, seen, more = {}, {}, 0
  for _, place in ipairs(where) do
    place = place:gsub("%.%d+%f[.)]", ".*")
    if not seen[place] then
      seen[place] = true
      if #shown < 3 then shown[#shown + 1] = place else more = more + 1 end
    end
  end
  local text = table.concat(shown, ", ")
  return more > 0 and ("%s and %d more"):format(text, more) or text
end

--- Collectives alike in everything that is told of them, as one row {n, sent, seconds, cells}, in the order
--- of their first. Cells: how often, what, the part of each device, bytes sent, where.
local function rows_of(collectives)
  local rows, by_text = {}, {}
  for _, c in ipairs(collectives) do
    local cells = {c.op .. " over " .. table.concat(c.axes, ","), tensors_text(c),
      places_text(c.where), c.why or ""}
    local text = table.concat(cells, "\0")
    local row = by_text[text]
    if not row then
      row = {n = 0, sent = 0, seconds = 0, cells = cells}
      by_text[text], rows[#rows + 1] = row, row
    end
    row.n, row.sent, row.seconds = row.n + 1, row.sent + c.sent, row.seconds + c.seconds
  end
  return rows
end

--- Two lines for each row: what is sent, then where it was written and why it is needed.
local function add_collectives(lines, rows)
  local width, part = 0, 0
  for _, row in ipairs(rows) do
    width, part = math.max(width, #row.cells[1]), math.max(part, #row.cells[2])
  end
  for _, row in ipairs(rows) do
    local what, tensors, where, why = table.unpack(row.cells)
    lines[#lines + 1] = ("  %3d x  %-" .. width .. "s  %-" .. part .. "s  %10s"):format(row.n, what,
      tensors, core.bytes_text(row.sent))
    lines[#lines + 1] = ("         %s%s%s"):format(where, why ~= "" and ": " or "", why)
  end
end

--- Says how a call of a jitted function would run with these arguments: every collective with its line,
--- tensors, bytes, mesh axes and reason; then memory, operations and the least time, all of one device.
--- Nothing runs.
---@param step any what ml.jit returned
---@param ... any its arguments
---@return string
function M.explain(step, ...)
  local is_jitted = core.type_name(step) == "jit"
  if not is_jitted then
    lib.raise("E_VALUE", "explain: expected a function made by ml.jit, got %s", lib.kind(step))
  end
  local plan = step:plan(...)
  local sent, sending, computing, steps = 0, 0, 0, plan:steps()
  local collectives = plan:collectives()
  for _, s in ipairs(steps) do
    if s.axes then
      sent, sending = sent + s.sent, sending + s.seconds
    else
      computing = computing + s.seconds
    end
  end
  local memory = plan:memory()
  local lines = {("%d steps, %d of them collectives, which send %s"):format(#steps, #collectives,
    core.bytes_text(sent))}
  add_collectives(lines, rows_of(collectives))
  lines[#lines + 1] = ("memory: %s of arguments, %s of results, %s of temporaries; %s at most"):format(
    core.bytes_text(memory.arguments), core.bytes_text(memory.results),
    core.bytes_text(memory.temporaries), core.bytes_text(memory.peak))
  lines[#lines + 1] = ("work: %.4g operations; at best %.3g ms of computing and %.3g ms of sending"):format(
    plan:flops(), computing * 1e3, sending * 1e3)
  lines[#lines + 1] = "All figures are of one device."
  return table.concat(lines, "\n")
end

return lib.export(M)
