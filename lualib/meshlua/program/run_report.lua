-- run_report.lua: a run as a text and as JSON: what it is, how far, the curves, evaluations, what was skipped, and
-- what it left.
local core = require "meshlua.core"
local json = require "meshlua.train.json"
local lib = require "meshlua.lib"
local sparkline = require "meshlua.sparkline"

local M = {}

local CURVE, POINTS = 40, 100 -- columns of a curve; its points in JSON
local SHOWN = 8 -- evaluations, notes, checkpoints
local SAMPLE = 80 -- characters
local FIRST = {"loss", "grad_norm", "lr", "ms", "tokens_per_s"}

local bytes_fields = lib.set {"memory_peak", "process_peak"}

--- A number of a field, for people.
---@param name string
---@param x number?
---@return string
function M.value_text(name, x)
  if not x then return "-" end
  if x ~= x then return "nan" end
  if bytes_fields[name] and x == math.floor(x) then return core.bytes_text(math.tointeger(x) or 0) end
  return lib.format("%.5g", x)
end

--- The names of a run's fields: the common ones first.
function M.names(run)
  local names, rank = table.move(run.names, 1, #run.names, 1, {}), {}
  for i, name in ipairs(FIRST) do rank[name] = i end
  table.sort(names, function(a, b)
    local x, y = rank[a] or #FIRST + 1, rank[b] or #FIRST + 1
    if x ~= y then return x < y end
    return a < b
  end)
  return names
end

local function list_text(run, keys)
  local words = {}
  for _, key in ipairs(keys) do
    local value = run:option(key)
    if value ~= nil and value ~= "" then words[#words + 1] = key .. " " .. lib.text(value) end
  end
  return table.concat(words, ", ")
end

--- "step 1200 of 3000, running"
---@param run RunRecord
---@return string
function M.state_text(run)
  local state, wanted = run:state(), run:wanted()
  if state == "empty" then return "no step yet" .. (wanted and (" of %d"):format(wanted) or "") end
  local step = run.steps[#run.steps] or 0
  local text = wanted and ("step %d of %d"):format(step, wanted) or ("step %d"):format(step)
  local seconds = run.result and run.result.seconds
  if state == "done" and type(seconds) == "number" then
    return text .. (", done in %.0f seconds"):format(seconds)
  end
  return text .. ", " .. (run.is_folder and state or "so far")
end

local function fields_lines(run)
  local rows = {{"", "last", "least", "at step", "curve"}}
  for _, name in ipairs(M.names(run)) do
    local found = run:summary(name)
    if found and not run:is_rare(name) then
      rows[#rows + 1] = {name, M.value_text(name, found.last), M.value_text(name, found.least),
        found.at and tostring(found.at) or "-", sparkline.text((run:values(name)), CURVE)}
    end
  end
  return #rows > 1 and lib.aligned(rows, {[2] = true, [3] = true, [4] = true}) or {}
end

--- The last evaluations: a row for each step that has one.
local function evaluations(run, most)
  local names, rows = {}, {}
  for _, name in ipairs(M.names(run)) do
    if run:is_rare(name) then names[#names + 1] = name end
  end
  for i = #run.steps, 1, -1 do
    local row = {step = run.steps[i]}
    for _, name in ipairs(names) do row[name] = run.fields[name][i] end
    if next(row, next(row)) then table.insert(rows, 1, row) end
    if #rows == most then break end
  end
  return names, rows
end

local function evaluation_lines(run)
  local names, found = evaluations(run, SHOWN)
  if #found == 0 then return {} end
  local rows = {{"step", table.unpack(names)}}
  local right = {true}
  for i = 1, #names do right[i + 1] = true end
  for _, row in ipairs(found) do
    local words = {tostring(row.step)}
    for _, name in ipairs(names) do words[#words + 1] = M.value_text(name, row[name]) end
    rows[#rows + 1] = words
  end
  local lines = {"evaluations:"}
  for i, line in ipairs(lib.aligned(rows, right)) do lines[i + 1] = "  " .. line end
  for _, name in ipairs(names) do
    local best = run:summary(name)
    if best and best.count > 1 and best.at then
      lines[#lines + 1] = ("  least %s %s at step %d"):format(name, M.value_text(name, best.least), best.at)
    end
  end
  return lines
end

local function note_lines(run)
  local notes = run:noted()
  local n = #notes
  if n == 0 then return {} end
  local lines = {n > SHOWN and ("notes, the last of %d:"):format(n) or "notes:"}
  for i = math.max(1, n - SHOWN + 1), n do
    lines[#lines + 1] = ("  step %d: %s"):format(notes[i].step, (notes[i].text:gsub("%c", " ")))
  end
  return lines
end

local function result_line(run)
  local words = {}
  for _, key in ipairs(lib.names(run.result or {})) do
    local x = run.result[key]
    if type(x) == "number" then words[#words + 1] = key .. " " .. M.value_text(key, x + 0.0) end
  end
  return #words > 0 and "result: " .. table.concat(words, ", ") or nil
end

local function sample_line(run)
  local last = run.samples[#run.samples]
  if not last then return nil end
  local text = last.text:gsub("[%c%s]+", " ")
  local cut = utf8.len(text) and utf8.offset(text, SAMPLE)
  return ("%s, the last of step %d: %s"):format(lib.count(#run.samples, "sample"), last.step,
    cut and text:sub(1, cut - 1) .. "..." or #text < SAMPLE and text or "...")
end

local function checkpoint_line(run)
  local list, n = run.checkpoints, #run.checkpoints
  if n == 0 then return nil end
  if n > SHOWN then return ("%d checkpoints, of steps %d to %d"):format(n, list[1], list[n]) end
  return ("%s of step%s %s"):format(n == 1 and "checkpoint" or "checkpoints", n == 1 and "" or "s",
    table.concat(list, ", "))
end

--- The run as lines.
---@param run RunRecord
---@return string
function M.text(run)
  local what = list_text(run, {"recipe", "mesh", "rules", "seed", "data"})
  local lines = {run.path .. (what ~= "" and ": " .. what or ""), M.state_text(run)}
  local function add(more) table.move(more, 1, #more, #lines + 1, lines) end
  add(fields_lines(run))
  add(evaluation_lines(run))
  add(note_lines(run))
  lines[#lines + 1] = sample_line(run)
  lines[#lines + 1] = result_line(run)
  lines[#lines + 1] = checkpoint_line(run)
  add(run:faults_text())
  return table.concat(lines, "\n")
end

--- The latest row on one line.
---@param run RunRecord
---@return string
function M.row_text(run)
  local words, n = {M.state_text(run)}, #run.steps
  for _, name in ipairs(M.names(run)) do
    local x = run.fields[name][n]
    if x then words[#words + 1] = name .. " " .. M.value_text(name, x) end
  end
  return table.concat(words, "  ")
end

--- At most so many points of a field: {{step, value}, ...}, each the mean of those that it stands for.
---@param run RunRecord
---@param name string
---@param most integer
---@return {[1]: integer, [2]: number}[]
function M.points(run, name, most)
  local values, steps = run:values(name)
  local n, points = math.min(most, #values), {}
  for c = 1, n do
    local first, last, sum = (c - 1) * #values // n + 1, c * #values // n, 0.0
    for i = first, last do sum = sum + values[i] end
    points[c] = json.list {steps[last], sum / (last - first + 1)}
  end
  return points
end

--- The same as data.
---@param run RunRecord
---@return table
function M.object(run)
  local fields = {}
  for _, name in ipairs(run.names) do
    local found = run:summary(name)
    if found then found.curve = json.list(M.points(run, name, POINTS)) end
    fields[name] = found
  end
  local _, rows = evaluations(run, math.huge)
  return {path = run.path, state = run:state(), step = run.steps[#run.steps], steps = run:wanted(),
    rows = #run.steps, config = run.config, result = run.result, fields = fields,
    evaluations = json.list(rows), notes = json.list(run:noted()), checkpoints = json.list(run.checkpoints),
    samples = json.list(run.samples),
    faults = json.list(run:faults_text())}
end

return M
