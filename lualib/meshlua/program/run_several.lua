-- run_several.lua: several runs beside each other: in which options they differ, how far each is, and of two where the
-- numbers part.
local json = require "meshlua.train.json"
local lib = require "meshlua.lib"
local report = require "meshlua.program.run_report"
local runs = require "meshlua.program.runs"

local M = {}

--- The options in which runs differ: {name, value of the first, of the second, ...}; nil where one has none.
---@param list RunRecord[]
---@return table[] rows
function M.options(list)
  local all, of, rows = {}, {}, {}
  for i, run in ipairs(list) do
    of[i] = run:options()
    for name in pairs(of[i]) do all[name] = true end
  end
  for _, name in ipairs(lib.names(all)) do
    local row, differ = {name = name, values = {}}, false
    for i = 1, #list do
      local value = of[i][name]
      row.values[i] = value == nil and "-" or lib.text(value)
      differ = differ or row.values[i] ~= row.values[1]
    end
    if differ then rows[#rows + 1] = row end
  end
  return rows
end

--- Rows of texts, the head first: what each run is.
---@param list RunRecord[]
---@return string[][]
function M.overview(list)
  local rows = {{"run", "state", "loss", "least", "at step"}}
  for _, run in ipairs(list) do
    local loss = run:summary "loss" or {}
    rows[#rows + 1] = {run.path, report.state_text(run), report.value_text("loss", loss.last),
      report.value_text("loss", loss.least), loss.at and tostring(loss.at) or "-"}
  end
  return rows
end

--- The same of the options, the runs as columns.
function M.option_table(list)
  local rows = {{"option"}}
  for i, run in ipairs(list) do rows[1][i + 1] = run.path end
  for i, row in ipairs(M.options(list)) do
    rows[i + 1] = {row.name, table.unpack(row.values)}
  end
  return rows
end

---@param list RunRecord[]
---@return string
function M.text(list)
  local lines = lib.aligned(M.overview(list), {[3] = true, [4] = true, [5] = true})
  local options = M.option_table(list)
  lines[#lines + 1] = #options > 1 and "" or "\nthe options are the same"
  if #options > 1 then table.move(lib.aligned(options), 1, #options, #lines + 1, lines) end
  for _, run in ipairs(list) do
    local faults = run:faults_text()
    table.move(faults, 1, #faults, #lines + 1, lines)
  end
  return table.concat(lines, "\n")
end

-- ---- of two: where the numbers part -------------------------------------------------------------------

local function same(x, y) return x == y or x ~= x and y ~= y end

--- Of a field of both: the first step where they differ, the values there and the last ones, the largest difference;
--- nil where all steps that both have are equal.
local function compare(a, b, name)
  local at, found = {}, nil
  for i, step in ipairs(b.steps) do at[step] = b.fields[name][i] end
  for i, step in ipairs(a.steps) do
    local x, y = a.fields[name][i], at[step]
    if x and y and not same(x, y) then
      found = found or {name = name, step = step, a = x, b = y, largest = 0.0}
      local d = math.abs(x - y)
      if d == d and d > found.largest then found.largest, found.largest_at = d, step end
    end
  end
  if found then found.last_a, found.last_b = a:summary(name).last, b:summary(name).last end
  return found
end

--- Everything in which two runs differ.
---@param a RunRecord
---@param b RunRecord
---@return table
function M.differences(a, b)
  local found = {a = a.path, b = b.path, options = {}, fields = {}, compared = 0, only_a = {}, only_b = {}}
  for i, row in ipairs(M.options {a, b}) do
    found.options[i] = {name = row.name, a = row.values[1], b = row.values[2]}
  end
  for _, name in ipairs(report.names(a)) do
    if not runs.of_machine[name] then
      if b.fields[name] then
        found.compared = found.compared + 1
        found.fields[#found.fields + 1] = compare(a, b, name)
      else
        table.insert(found.only_a, name)
      end
    end
  end
  for _, name in ipairs(report.names(b)) do
    if not a.fields[name] and not runs.of_machine[name] then table.insert(found.only_b, name) end
  end
  found.steps_a, found.steps_b = #a.steps, #b.steps
  local n = #found.options + #found.fields + #found.only_a + #found.only_b
  found.differ = n > 0 or found.steps_a ~= found.steps_b
  return found
end

--- As lines.
function M.differences_text(found)
  local lines = {}
  if #found.options > 0 then
    local rows = {{"option", found.a, found.b}}
    for i, row in ipairs(found.options) do rows[i + 1] = {row.name, row.a, row.b} end
    lines = lib.aligned(rows)
  end
  if #found.fields > 0 then
    local rows = {{"field", "first step", "there", "", "last", "", "largest", "at step"}}
    for i, row in ipairs(found.fields) do
      local function text(x) return lib.format("%.9g", x) end
      rows[i + 1] = {row.name, tostring(row.step), text(row.a), text(row.b), text(row.last_a),
        text(row.last_b), report.value_text("", row.largest),
        row.largest_at and tostring(row.largest_at) or "-"}
    end
    table.move(lib.aligned(rows, {[2] = true, [3] = true, [4] = true, [5] = true, [6] = true, [7] = true,
      [8] = true}), 1, #rows, #lines + 1, lines)
  end
  for _, side in ipairs {{found.only_a, found.a}, {found.only_b, found.b}} do
    if #side[1] > 0 then
      lines[#lines + 1] = ("only in %s: %s"):format(side[2], table.concat(side[1], ", "))
    end
  end
  if found.steps_a ~= found.steps_b then
    lines[#lines + 1] = ("steps: %d and %d"):format(found.steps_a, found.steps_b)
  end
  lines[#lines + 1] = ("%s; %s"):format(#found.options == 0 and "the options are the same"
    or lib.count(#found.options, "option differs", "options differ"),
    #found.fields == 0 and ("%s equal in all steps that both have"):format(
      lib.count(found.compared, "field")) or ("%d of %s differ"):format(#found.fields,
      lib.count(found.compared, "field")))
  return table.concat(lines, "\n")
end

--- `diff A B` of two runs. Exit code 1 where they differ.
---@param a string
---@param b string
---@param flags {json: boolean}
---@return integer? code, string? message, string? error
function M.diff(a, b, flags)
  local x, message, code = runs.open(a)
  if not x then return nil, message, code end
  local y
  y, message, code = runs.open(b)
  if not y then return nil, message, code end
  local found = M.differences(x, y)
  for _, key in ipairs {"options", "fields", "only_a", "only_b"} do json.list(found[key]) end
  print(flags.json and json.encode(found) or M.differences_text(found))
  for _, run in ipairs {x, y} do
    for _, line in ipairs(run:faults_text()) do io.stderr:write("meshlua diff: ", line, "\n") end
  end
  return found.differ and 1 or 0
end

return M
