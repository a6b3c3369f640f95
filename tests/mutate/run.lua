-- run.lua: tries mutants, one after the other. Run by script/mutate, several at once:
-- `lua5.4 run.lua FOLDER REACH JOURNAL SEED COUNT SECONDS PATH... JOB`; COUNT "report": prints what the journal says.
-- The journal has a line per mutant, by its number in the order that the seed gives: number, verdict, test, seconds,
-- tests run, file, line, from, to, new text, kind. The last line of a number holds. Beside it, JOURNAL.passed says
-- which tests passed with a mutant that lives: number, test, checksum of the test.
local here = arg[0]:match "^(.*)/" or "."
package.path = here .. "/?.lua;" .. package.path
local mutations = require "mutations"
local shell = require "shell"
local tests = require "tests"

local folder, reach, journal, seed, count, within = table.unpack(arg, 1, 6)
local paths, job = table.move(arg, 7, #arg - 1, 1, {}), arg[#arg]
local quote = shell.quote
-- What a test may take: so many seconds, and so many times what it took. Of a processor it takes on a loaded machine
-- what it takes on an idle one: that decides early about loops without an end. By the clock there is room.
local PROCESSOR, CLOCK = {seconds = 10, times = 10}, {seconds = 60, times = 20}
local BATCH = 4 -- tests in the first confinement of a mutant; the next has twice as many

local function is_under(file)
  for _, path in ipairs(paths) do
    if file == path or file:sub(1, #path + 1) == path .. "/" then return true end
  end
  return false
end

local function files_of(source)
  local list = {}
  for _, path in ipairs(shell.lines(("cd %s && find . -name '*.[ch]' -type f"):format(quote(source)))) do
    local file = path:sub(3)
    if is_under(file) then list[#list + 1] = file end
  end
  table.sort(list)
  return list
end

-- Every line that can be changed, in the order of the seed, each with one change.
local function choose(source, takes)
  local lines = {}
  for _, file in ipairs(files_of(source)) do
    if takes(file) then
      local text = shell.read(source .. "/" .. file)
      local at
      for _, m in ipairs(mutations.of(text)) do
        if not at or at.line ~= m.line then
          at = {file = file, line = m.line, text = text}
          lines[#lines + 1] = at
        end
        at[#at + 1] = m
      end
    end
  end
  math.randomseed(math.tointeger(tonumber(seed)), 0)
  for i = #lines, 2, -1 do
    local k = math.random(i)
    lines[i], lines[k] = lines[k], lines[i]
  end
  for _, line in ipairs(lines) do line.mutation = line[math.random(#line)] end
  return lines
end

local TO, FROM = {["\\"] = "\\\\", ["\n"] = "\\n", ["\t"] = "\\t"}, {["\\"] = "\\", n = "\n", t = "\t"}
local function escape(text) return (text:gsub("[\\\n\t]", TO)) end
local function unescape(text) return (text:gsub("\\(.)", FROM)) end

---@return table[] rows by number
local function read_journal()
  local rows, most = {}, 0
  for line in (shell.read(journal) or ""):gmatch "([^\n]*)\n" do
    local f = {}
    for field in (line .. "\t"):gmatch "([^\t]*)\t" do f[#f + 1] = field end
    local number = math.tointeger(tonumber(f[1]))
    if number and #f == 11 then
      rows[number] = {verdict = f[2], test = f[3], seconds = tonumber(f[4]), file = f[6],
        line = tonumber(f[7]), from = tonumber(f[8]), to = tonumber(f[9]), new = unescape(f[10]),
        kind = f[11]}
      most = math.max(most, number)
    end
  end
  return rows, most
end

local COUNTS = {killed = true, timeout = true, slow = true, survived = true, unreached = true}

local function counted()
  local n = 0
  for _, row in pairs((read_journal())) do n = n + (COUNTS[row.verdict] and 1 or 0) end
  return n
end

-- ---- which tests reach a line ----------------------------------------------------------------
-- Those that passed in time, the fastest first: {name, program, seconds, marks by file}.
local function read_reach(build)
  local list = {}
  for _, test in ipairs(tests.list(build)) do
    local text = shell.read(tests.reach_path(reach, test.name)) or ""
    local seconds, verdict = text:match "^([%d.]+)\t(%a+)"
    if verdict == "passed" and tonumber(seconds) <= tonumber(within) then
      test.seconds, test.marks = tonumber(seconds), {}
      for file, marks in text:gmatch "\n([^\t\n]+)\t([^\n]*)" do
        if is_under(file) then test.marks[file] = marks end
      end
      list[#list + 1] = test
    end
  end
  table.sort(list, function(a, b) return a.seconds < b.seconds end)
  return list
end

-- A line that has no code of its own (of a statement that began above) counts as the one above it that has.
local function reaches(test, file, line)
  local marks = test.marks[file]
  if not marks then return false end
  while line > 1 and marks:sub(line, line) == "-" do line = line - 1 end
  return marks:sub(line, line) == "1"
end

-- The tests that reach a line. A process that a signal ends leaves no counts: of what none reaches, tests with such
-- processes that reach the file at all.
local function reaching(known, item)
  local list = {}
  for _, test in ipairs(known) do
    if reaches(test, item.file, item.line) then list[#list + 1] = test end
  end
  if #list > 0 then return list, true end
  for _, test in ipairs(known) do
    if test.name:find "^dist/" and (test.marks[item.file] or ""):find "1" then list[#list + 1] = test end
  end
  return list, false
end

-- ---- a mutant --------------------------------------------------------------------------------
local function limit(of, test) return math.ceil(of.seconds + of.times * test.seconds) end

-- Runs some tests: the first that does not pass, and its verdict.
local function try_tests(work, list, first, last)
  for i = first, last do
    if not work:ready(list[i].program) then return list[i], "invalid", i end
  end
  local batch = {}
  for i = first, last do
    local test = list[i]
    batch[#batch + 1] = {name = test.name, command = test.command, processor = limit(PROCESSOR, test),
      seconds = limit(CLOCK, test)}
  end
  local results = tests.run {folder = work.folder, tests = batch, log = work.folder .. ".log"}
  local at = first + #results - 1
  local verdict = results[#results].verdict
  if verdict ~= "passed" then return list[at], verdict, at end
end

local VERDICT = {failed = "killed"} -- others are those of the test

-- Verdict, test, tests run, and those that passed.
local function try(work, list, reached, item)
  local state = work:change(item.file, mutations.apply(item.text, item.mutation))
  if state ~= "changed" then return state, "-", 0, {} end
  local first, size = 1, BATCH
  while first <= #list do
    local last = math.min(first + size - 1, #list)
    local test, verdict, at = try_tests(work, list, first, last)
    if verdict == "invalid" then return verdict, "-", at, {} end
    if test then return VERDICT[verdict] or verdict, test.name, at, table.move(list, 1, at - 1, 1, {}) end
    first, size = last + 1, size * 2
  end
  return reached and "survived" or "unreached", "-", #list, list
end

local function note(item, verdict, test, seconds, tried)
  local m = item.mutation
  shell.append(journal, table.concat({item.number, verdict, test, ("%.1f"):format(seconds), tried, item.file,
    item.line, m.from, m.to, escape(m.new), m.kind}, "\t"))
  local by = not COUNTS[verdict] and "not counted" or test ~= "-" and "by " .. test or tried .. " tests"
  print(("%3d %-9s %s:%d  %s  %s, %.0f s"):format(item.number, verdict, item.file, item.line,
    mutations.describe(item.text, m), by, seconds))
  io.stdout:flush()
end

-- What is to be tried anew: what has no verdict, in order.
local function fresh_items(work)
  local rows, list = read_journal(), {}
  for number, item in ipairs(choose(work.source, function(file) return work:takes(file) end)) do
    item.number = number
    if not rows[number] then list[#list + 1] = item end
  end
  return list
end

local passed_path = journal .. ".passed"

-- By number and test, the checksum of the test that passed.
local function read_passed()
  local passed = {}
  for number, test, sum in (shell.read(passed_path) or ""):gmatch "(%d+)\t([^\t\n]*)\t([^\n]*)\n" do
    passed[tonumber(number)] = passed[tonumber(number)] or {}
    passed[tonumber(number)][test] = sum
  end
  return passed
end

local function note_passed(source, number, list)
  local lines = {}
  for i, test in ipairs(list) do
    lines[i] = ("%d\t%s\t%s"):format(number, test.name, tests.checksum(source, test.name))
  end
  if #lines > 0 then shell.append(passed_path, table.concat(lines, "\n")) end
end

-- Those tests that did not pass with it as they are now; the one that the clock ended first.
local function left_over(source, list, passed, doubted)
  local left = {}
  for _, test in ipairs(list) do
    if not passed or passed[test.name] ~= tests.checksum(source, test.name) then
      table.insert(left, test.name == doubted and 1 or #left + 1, test)
    end
  end
  return left
end

-- What is doubtful: where the clock ended a test, and what survived without some of the tests that are there now. The
-- cheapest first.
local function doubtful_items(work, known)
  local list, passed = {}, read_passed()
  for number, row in pairs((read_journal())) do
    if row.verdict == "survived" or row.verdict == "unreached" or row.verdict == "slow" then
      local item = {number = number, file = row.file, line = row.line, mutation = row, again = true,
        text = shell.read(work.source .. "/" .. row.file), cost = 0}
      local all, reached = reaching(known, item)
      item.tests, item.reached = left_over(work.source, all, passed[number], row.test), reached
      for _, test in ipairs(item.tests) do item.cost = item.cost + test.seconds end
      if #item.tests > 0 then list[#list + 1] = item end
    end
  end
  table.sort(list, function(a, b) return a.cost < b.cost end)
  return list
end

local LIVES = {survived = true, unreached = true, slow = true}

local function run_item(work, known, item)
  local began = os.time()
  local list, reached = item.tests, item.reached
  if not list then list, reached = reaching(known, item) end
  local verdict, test, tried, passed = try(work, list, reached, item)
  work:put_back()
  if verdict == "slow" and item.again then verdict = "timeout" end -- twice
  if LIVES[verdict] then note_passed(work.source, item.number, passed) end
  note(item, verdict, test, os.difftime(os.time(), began), tried)
end

local function run(again)
  local work = require "work".open(folder .. "/work-" .. job)
  local known = read_reach(work.build)
  for _, item in ipairs(again and doubtful_items(work, known) or fresh_items(work)) do
    if not again and counted() >= tonumber(count) then break end
    if shell.claim(folder .. "/claims/" .. item.number) then run_item(work, known, item) end
  end
end

-- ---- the end ---------------------------------------------------------------------------------
local function print_diff(source, row)
  local text = shell.read(source .. "/" .. row.file)
  local changed = folder .. "/changed"
  shell.write(changed, mutations.apply(text, row))
  print(("\n%s: %s:%d"):format(row.verdict, row.file, row.line))
  io.stdout:flush()
  shell.run(("diff -U2 %s %s | tail -n +3"):format(quote(source .. "/" .. row.file), quote(changed)))
  os.remove(changed)
end

local function report()
  local rows, most = read_journal()
  local n, all, seconds = {}, 0, 0
  for number = 1, most do
    local row = rows[number]
    if row then
      n[row.verdict] = (n[row.verdict] or 0) + 1
      seconds = seconds + row.seconds
      all = all + (COUNTS[row.verdict] and 1 or 0)
      if LIVES[row.verdict] then print_diff(folder .. "/source", row) end
    end
  end
  local function of(verdict) return n[verdict] or 0 end
  local killed = of "killed" + of "timeout"
  print(("\n%d of %d killed (%.1f %%), %d of them by time; %d survived their tests, no test reaches %d.")
    :format(killed, all, 100 * killed / math.max(all, 1), of "timeout", of "survived", of "unreached"))
  if of "slow" > 0 then
    print(("%d more are doubtful: a test took too long by the clock; see --again."):format(of "slow"))
  end
  print(("Not counted: %d equal, %d that do not compile. %.0f an hour and job."):format(
    of "equal", of "invalid", all / math.max(seconds, 1) * 3600))
end

if count == "report" then
  report()
else
  run(count == "again")
end
