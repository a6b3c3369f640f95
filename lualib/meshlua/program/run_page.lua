-- run_page.lua: runs as a page: how far each is, the options in which they differ, a picture of the curves of each
-- field, and its values.
local html = require "meshlua.html"
local json = require "meshlua.train.json"
local lib = require "meshlua.lib"
local report = require "meshlua.program.run_report"
local several = require "meshlua.program.run_several"

local M = {}

local WIDTH, HEIGHT, LEFT, BOTTOM = 1000, 260, 70, 18
local POINTS, VALUES = 1000, 200 -- of a curve, of its table
local LINES = {"#2f6fb3", "#d97706", "#2e8b57", "#b3446c", "#7a5fc0", "#0f8b8d", "#a0522d", "#708090"}

local element = html.element

local function colour(i) return LINES[(i - 1) % #LINES + 1] end

local function section(id, title, children)
  return element("section", {id = id}, {element("h2", nil, title), children})
end

local function exact(x) return json.encode(x, nil, true) end

--- What of the fields the runs have, the common ones first.
local function names_of(list)
  local names, seen = {}, {}
  for _, run in ipairs(list) do
    for _, name in ipairs(report.names(run)) do
      if not seen[name] then names[#names + 1], seen[name] = name, true end
    end
  end
  return names
end

--- The ends of both axes over the curves; nil where no value is finite.
local function ends(curves)
  local e = {x0 = math.huge, x1 = -math.huge, y0 = math.huge, y1 = -math.huge}
  for _, points in ipairs(curves) do
    for _, p in ipairs(points) do
      if p[2] == p[2] and math.abs(p[2]) < math.huge then
        e.x0, e.x1 = math.min(e.x0, p[1]), math.max(e.x1, p[1])
        e.y0, e.y1 = math.min(e.y0, p[2]), math.max(e.y1, p[2])
      end
    end
  end
  if e.x0 > e.x1 then return nil end
  if e.x0 == e.x1 then e.x0, e.x1 = e.x0 - 1, e.x1 + 1 end
  if e.y0 == e.y1 then e.y0, e.y1 = e.y0 - 1, e.y1 + 1 end
  return e
end

--- A curve's lines: it has a gap where a value is not finite.
local function polylines(points, e, i, title)
  local marks, words = {}, {}
  local function finish()
    if #words == 1 then words[2] = words[1] end
    if #words > 0 then
      marks[#marks + 1] = element("polyline", {points = table.concat(words, " "), fill = "none",
        stroke = colour(i), ["stroke-width"] = 1.6, ["stroke-linecap"] = "round"},
        element("title", nil, title))
    end
    words = {}
  end
  for _, p in ipairs(points) do
    local x = LEFT + (p[1] - e.x0) / (e.x1 - e.x0) * (WIDTH - LEFT)
    local y = 8 + (1 - (p[2] - e.y0) / (e.y1 - e.y0)) * (HEIGHT - BOTTOM - 8)
    if y == y and math.abs(y) < math.huge then
      words[#words + 1] = ("%.2f,%.2f"):format(x, y)
    else
      finish()
    end
  end
  finish()
  return marks
end

local function picture(list, curves, name)
  local e = ends(curves)
  if not e then return element("p", {class = "soft"}, "no finite value") end
  local marks = {html.box(LEFT, HEIGHT - BOTTOM, WIDTH - LEFT, 1, "var(--line)"),
    html.label(LEFT - 6, 16, report.value_text(name, e.y1), "end"),
    html.label(LEFT - 6, HEIGHT - BOTTOM, report.value_text(name, e.y0), "end"),
    html.label(LEFT, HEIGHT - 4, ("%d"):format(e.x0)),
    html.label(WIDTH, HEIGHT - 4, ("%d"):format(e.x1), "end")}
  for i, run in ipairs(list) do
    marks[#marks + 1] = polylines(curves[i], e, i, run.path)
  end
  return html.picture(WIDTH, HEIGHT, name .. " over the steps", marks)
end

--- The values of a field: a row for each step, or for so many of them.
local function values_table(list, name)
  local steps, seen, of = {}, {}, {}
  for i, run in ipairs(list) do
    local values, at = run:values(name)
    of[i] = {}
    for k, step in ipairs(at) do
      of[i][step] = values[k]
      if not seen[step] then steps[#steps + 1], seen[step] = step, true end
    end
  end
  table.sort(steps)
  local rows, right, n = {{"step"}}, {true}, math.min(#steps, VALUES)
  for i, run in ipairs(list) do rows[1][i + 1], right[i + 1] = run.path, true end
  for r = 1, n do
    local step = steps[r * #steps // n]
    rows[r + 1] = {step}
    for i = 1, #list do rows[r + 1][i + 1] = of[i][step] and exact(of[i][step]) or "" end
  end
  local title = n < #steps and ("values of %d of %d steps"):format(n, #steps) or "values"
  return element("details", nil, {element("summary", nil, title), html.table(rows, right)})
end

local function curve_section(list, name)
  local curves = {}
  for i, run in ipairs(list) do curves[i] = report.points(run, name, POINTS) end
  return section("curve-" .. name, name, {picture(list, curves, name), values_table(list, name)})
end

--- The runs, each with the colour of its curves.
local function runs_section(list)
  local rows = several.overview(list)
  for i = 2, #rows do
    local mark = html.picture(14, 10, "colour", html.box(0, 1, 12, 8, colour(i - 1)))
    rows[i][1] = {mark, " ", list[i - 1].path}
  end
  return section("runs", "Runs", html.table(rows, {[3] = true, [4] = true, [5] = true}))
end

local function notes_section(list)
  local rows = {{"run", "step", "what"}}
  for _, run in ipairs(list) do
    for _, note in ipairs(run:noted()) do rows[#rows + 1] = {run.path, note.step, note.text} end
    for _, line in ipairs(run:faults_text()) do rows[#rows + 1] = {run.path, "", line} end
  end
  return #rows > 1 and section("notes", "Notes", html.table(rows, {[2] = true})) or nil
end

--- The last sample of each run.
local function samples_section(list)
  local parts = {}
  for _, run in ipairs(list) do
    local last = run.samples[#run.samples]
    if last then
      parts[#parts + 1] = element("p", {class = "soft"}, ("%s, step %d"):format(run.path, last.step))
      parts[#parts + 1] = element("pre", nil, last.text)
    end
  end
  return #parts > 0 and section("samples", "Samples", parts) or nil
end

--- The page.
---@param list RunRecord[]
---@return string
function M.text(list)
  local body = {element("h1", nil, lib.count(#list, "run")), runs_section(list)}
  local options = several.option_table(list)
  if #list > 1 then
    body[#body + 1] = section("options", "Options that differ", #options > 1 and html.table(options)
      or element("p", nil, "none"))
  else
    local rows, own = {{"option", "value"}}, list[1]:options()
    for _, name in ipairs(lib.names(own)) do rows[#rows + 1] = {name, lib.text(own[name])} end
    body[#body + 1] = section("options", "Options", html.table(rows))
  end
  for _, name in ipairs(names_of(list)) do body[#body + 1] = curve_section(list, name) end
  body[#body + 1] = notes_section(list)
  body[#body + 1] = samples_section(list)
  return html.page(list[1].path, body)
end

return M
