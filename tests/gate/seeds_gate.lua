-- Every program of the texts this project was created from has a row in the manifest: what its twin is, the
-- test that holds it, and what it (or a part of it) waits for; and every such test has a row.
local gate = require "gate"

local PROGRAMS = 87
local folder = "tests/spec/seeds/"
local file = folder .. "manifest.lua"
local waits_for = {"pipeline", "checkpoints", "explain", "tune"}

local handle = io.open(file)
if not handle then gate.skip(file .. " is not there yet") end
handle:close()

--- The names of all tests in a spec, as {name = line}.
local function tests_of(spec)
  local names, number = {}, 0
  for line in io.lines(spec) do
    number = number + 1
    local name = line:match '^ *it%("(.-)", function' or line:match '^ *"(%d+ L.-)", function'
    if name then names[name] = number end
  end
  return names
end

local function check_verdict(place, verdict)
  verdict = tostring(verdict)
  if verdict ~= "same" and not verdict:find "^corrected: %S" and not verdict:find "^contrast: %S" then
    gate.fail(place, "verdict '%s' is not same, 'corrected: why' or 'contrast: why'", verdict)
  end
end

local function check_waits(place, waits)
  for _, thing in ipairs(waits_for) do
    if waits == thing or waits:find("^" .. thing .. ": %S") then return end
  end
  gate.fail(place, "it waits for '%s', which is none of: %s", waits, table.concat(waits_for, ", "))
end

--- Checks that each spec of a row holds its test.
local function check_tests(place, row, key)
  local test = row.test or key .. ": " .. row.name
  for _, spec in ipairs(type(row.spec) == "table" and row.spec or {row.spec}) do
    local found = io.open(spec)
    if found then
      found:close()
      if not tests_of(spec)[test] then gate.fail(place, "%s has no test \"%s\"", spec, test) end
    else
      gate.fail(place, "there is no %s", spec)
    end
  end
end

local rows, rows_by_key = dofile(file), {}
for i, row in ipairs(rows) do
  local place = ("%s: row %d (%s)"):format(file, i, tostring(row.name))
  local whole = true
  for _, field in ipairs {"seed", "lines", "name", "verdict"} do
    if type(row[field]) ~= "string" then
      gate.fail(place, "it has no %s", field)
      whole = false
    end
  end
  if whole then
    local first, last = row.lines:match "^(%d+)%-(%d+)$"
    if not first or tonumber(last) < tonumber(first) then
      gate.fail(place, "lines '%s' are not FIRST-LAST", row.lines)
    end
    local key = ("%s L%s"):format(row.seed, first)
    if rows_by_key[key] then gate.fail(place, "the same program as row %d", rows_by_key[key]) end
    rows_by_key[key] = i
    check_verdict(place, row.verdict)
    if row.waits then check_waits(place, row.waits) end
    if row.spec then check_tests(place, row, key) end
    if not row.spec and not row.waits and not row.verdict:find "^contrast" then
      gate.fail(place, "it needs a spec, or what it waits for")
    end
  end
end
if #rows ~= PROGRAMS then gate.fail(file, "%d rows for %d programs", #rows, PROGRAMS) end
for _, spec in ipairs(gate.files "^tests/.*seed[^/]*_spec%.lua$") do
  for test, line in pairs(tests_of(spec)) do
    if not rows_by_key[test:match "^%d+ L%d+" or ""] then
      gate.fail(("%s:%d"):format(spec, line), "no row of the manifest is about \"%s\"", test)
    end
  end
end
gate.finish(#rows, "give each program a row {seed =, lines =, name =, verdict =, spec = and/or waits =} and "
  .. "its test the name \"SEED LFIRST: name\".")
