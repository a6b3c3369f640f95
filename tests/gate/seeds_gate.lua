-- Every program of the texts this project was created from has a row in the manifest: what its twin is, and
-- the spec that holds it or what it waits for.
local gate = require "gate"

local PROGRAMS = 87
local file = "tests/spec/seeds/manifest.lua"

local handle = io.open(file)
if not handle then gate.skip(file .. " is not there yet") end
handle:close()

local rows = dofile(file)
local named = {}
for i, row in ipairs(rows) do
  local place = ("%s: row %d (%s)"):format(file, i, tostring(row.name))
  for _, field in ipairs {"seed", "lines", "name", "verdict"} do
    if row[field] == nil then gate.fail(place, "it has no %s", field) end
  end
  local verdict = tostring(row.verdict)
  if verdict ~= "same" and not verdict:find "^corrected: %S" and not verdict:find "^contrast: %S" then
    gate.fail(place, "verdict '%s' is not same, 'corrected: why' or 'contrast: why'", verdict)
  end
  if (row.spec == nil) == (row.waits == nil) then
    gate.fail(place, "it needs a spec or what it waits for, one of the two")
  end
  if row.spec then
    local spec = io.open(row.spec)
    if spec then spec:close() else gate.fail(place, "there is no %s", row.spec) end
  end
  local key = ("%s %s"):format(tostring(row.seed), tostring(row.lines))
  if named[key] then gate.fail(place, "the same program as row %d", named[key]) end
  named[key] = i
end
if #rows ~= PROGRAMS then gate.fail(file, "%d rows for %d programs", #rows, PROGRAMS) end
gate.finish(#rows, "give each program a row {seed =, lines =, name =, verdict =, spec = or waits =}.")
