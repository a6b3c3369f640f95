-- page.lua: a plan as a page: what each device of the mesh holds, when what runs, how much memory is in use
-- over the step, and what is sent, by line.
local core = require "meshlua.core"
local facts = require "meshlua.insight.facts"
local lib = require "meshlua.lib"
local html = require "meshlua.html"

local M = {}

local WIDTH, CELL = 1100, 34
local MOST_BARS, MOST_DEVICES = 1500, 128
local bytes_text, element = core.bytes_text, html.element

local function section(id, title, children) return element("section", {id = id}, {element("h2", nil, title),
  children}) end

-- ---- the mesh -------------------------------------------------------------------------------------------

--- The devices, those of one place on all axes but the last below each other; where there are too many, the
--- first ones.
local function mesh_section(e)
  local mesh = e.mesh
  if not mesh then return section("mesh", "Mesh", element("p", nil, "one device")) end
  local along = mesh.axis_sizes[#mesh.axis_sizes]
  local shown = math.min(mesh.size, MOST_DEVICES)
  local rows_of, columns = math.min(along, 16), math.max(1, math.min(shown // math.min(along, 16), 32))
  local cells = {}
  for i = 0, shown - 1 do
    local at, rest = {}, i
    for d = #mesh.axis_sizes, 1, -1 do
      at[d], rest = ("%s=%d"):format(mesh.axis_names[d], rest % mesh.axis_sizes[d]),
        rest // mesh.axis_sizes[d]
    end
    local group, place = i // rows_of, i % rows_of
    local x, y = group % columns * CELL, (group // columns * rows_of + place) * CELL
    cells[#cells + 1] = html.box(x + 1, y + 1, CELL - 3, CELL - 3, group % 2 == 0 and "var(--a)"
      or "var(--c)",
      ("device %d: %s; holds %s"):format(mesh.device_ids[i + 1], table.concat(at, ", "),
        bytes_text(e.memory.peak)))
    cells[#cells + 1] = html.label(x + CELL / 2 - 1, y + CELL / 2 + 4, mesh.device_ids[i + 1], "middle")
  end
  local rows = {{"what a device holds", "bytes"}}
  for _, name in ipairs(facts.groups) do
    if e.memory.groups[name] > 0 then rows[#rows + 1] = {name, bytes_text(e.memory.groups[name])} end
  end
  local words = {}
  for d, axis in ipairs(mesh.axis_names) do words[d] = ("%s: %d"):format(axis, mesh.axis_sizes[d]) end
  return section("mesh", "Mesh", {
    element("p", {class = "soft"}, table.concat(words, ", ")
      .. (shown < mesh.size and ("; the first %d of %d devices"):format(shown, mesh.size) or "")),
    html.picture(columns * CELL, -(-shown // (columns * rows_of)) * rows_of * CELL,
      "the devices of the mesh", cells),
    html.table(rows, {[2] = true})})
end

-- ---- over the step ----------------------------------------------------------------------------------------

--- Bars for the steps of computing and of sending, as long as they take. What takes less than a pixel's share
--- is left out where there are too many.
local function timeline_section(plan)
  local steps, total = plan:steps(), 0
  for _, s in ipairs(steps) do total = total + s.seconds end
  local bars, x = {}, 0
  local least = #steps > MOST_BARS and total / WIDTH / 2 or 0
  for _, s in ipairs(steps) do
    local width = total > 0 and s.seconds / total * WIDTH or 0
    if s.seconds > least then
      bars[#bars + 1] = html.box(x, s.axes and 30 or 4, math.max(width, 0.3), 22, s.axes and "var(--b)"
        or "var(--a)",
        ("%s%s, %.3g ms%s"):format(s.op, s.axes and " over " .. table.concat(s.axes, ",") or "",
          s.seconds * 1e3,
          s.where[1] and ", " .. s.where[1] or ""))
    end
    x = x + width
  end
  bars[#bars + 1] = html.label(0, 68, "0")
  bars[#bars + 1] = html.label(WIDTH, 68, ("%.4g ms"):format(total * 1e3), "end")
  return section("timeline", "Timeline", {
    element("p", {class = "soft"}, "above what is computed, below what is sent; all one after the other"),
    html.picture(WIDTH, 72, "computing and sending over the step", bars)})
end

--- Bytes of what stays over the step: arguments, and results that take no argument's memory.
local function staying(buffers)
  local bytes = 0
  for _, b in ipairs(buffers) do
    if b.kind == "argument" or b.kind == "result" and not b.takes then bytes = bytes + b.bytes end
  end
  return bytes
end

local function memory_section(plan)
  local buffers = plan:buffers()
  local stays, live = staying(buffers), facts.temporaries(buffers, #plan:steps())
  local peak_at, most = facts.fullest(live)
  local capacity, height = core.device_memory(), 220
  local top = math.max(stays + most, capacity or 0, 1)
  local function y(bytes) return height - bytes / top * (height - 20) end
  local points = {("0,%g"):format(height)}
  for i, bytes in ipairs(live) do
    local x0, x1, at = (i - 1) / #live * WIDTH, i / #live * WIDTH, y(stays + bytes)
    points[#points + 1] = ("%.2f,%.2f %.2f,%.2f"):format(x0, at, x1, at)
  end
  points[#points + 1] = ("%g,%g"):format(WIDTH, height)
  local marks = {
    element("polygon", {points = table.concat(points, " "), fill = "var(--a)"}),
    html.box(0, y(stays), WIDTH, height - y(stays), "var(--c)", "arguments and results: "
      .. bytes_text(stays)),
    html.label(4, y(stays) + 14, "arguments and results " .. bytes_text(stays)),
    html.label(math.min(peak_at / #live * WIDTH, WIDTH - 160), math.max(y(stays + most) - 4, 12),
      "in use at most: " .. bytes_text(stays + most)),
  }
  if capacity then
    marks[#marks + 1] = html.box(0, y(capacity), WIDTH, 1.5, "var(--b)", "what a device has: "
      .. bytes_text(capacity))
    marks[#marks + 1] = html.label(WIDTH, y(capacity) - 4 > 12 and y(capacity) - 4 or 14,
      "a device has " .. bytes_text(capacity), "end")
  end
  return section("memory", "Memory over the step", html.picture(WIDTH, height, "bytes in use at each step",
    marks))
end

local function collectives_section(e)
  local rows = {{"line", "what", "of", "times", "sent", "ms", "why"}}
  for _, row in ipairs(e.collectives) do
    rows[#rows + 1] = {lib.some(row.where, 3), row.op .. " over " .. table.concat(row.axes, ","),
      row.operands,
      row.count, bytes_text(row.sent), ("%.3g"):format(row.seconds * 1e3), lib.some(row.reasons, 2)}
  end
  return section("collectives", "Collectives by line",
    #rows > 1 and html.table(rows, {[4] = true, [5] = true, [6] = true}) or element("p", nil, "none"))
end

--- The page.
---@param title string
---@param lines string[] what stands first: the verdict, and what was planned
---@param layouts any[][] rows, the head first
---@param planned Planned
---@return string
function M.text(title, lines, layouts, planned)
  local e = planned.explanation
  local body = {element("h1", {id = "verdict"}, lines[1])}
  for i = 2, #lines do body[#body + 1] = element("p", {class = "soft"}, lines[i]) end
  local right = {}
  for i = 3, 7 do right[i] = true end
  body[#body + 1] = section("layouts", "Layouts, best first", html.table(layouts, right))
  body[#body + 1] = mesh_section(e)
  body[#body + 1] = timeline_section(e.plan)
  body[#body + 1] = memory_section(e.plan)
  body[#body + 1] = collectives_section(e)
  body[#body + 1] = section("explanation", "In words", element("pre", nil, tostring(e)))
  return html.page(title, body)
end

return M
