-- tests.lua: the tests as ctest has them, for script/mutate; run without it, many in one confinement.
local shell = require "shell"

local M = {}
local quote = shell.quote

local MARK = "mutate-test: "
-- A subshell per test; what it leaves running ends with it. (Process 1 of its own namespace, which alone sees others.)
local SCRIPT = ([[
[ $$ = 1 ] || exit 9
run() {
  code=0
  read -r began rest </proc/uptime
  (ulimit -S -t "$2" && ulimit -f 4194304 && exec timeout -k 5 "$3" sh -c "$4") </dev/null 2>&1 || code=$?
  read -r ended rest </proc/uptime
  kill -9 -1 2>/dev/null
  printf '\n%%s\n' "%s$1 $code $began $ended"
  [ $code = 0 ]
}
]]):format(MARK)

-- The command line of a test, by the words and the properties that CMake wrote.
local function command_of(build, words, properties)
  local line = {}
  for word in words:gmatch '"([^"]*)"' do line[#line + 1] = quote(word) end
  local environment = {}
  for variable in (properties:match '%f[%u]ENVIRONMENT "([^"]*)"' or ""):gmatch "[^;]+" do
    environment[#environment + 1] = quote(variable)
  end
  local command = ("cd %s && env %s %s"):format(
    quote(properties:match 'WORKING_DIRECTORY "([^"]*)"' or build), table.concat(environment, " "),
    table.concat(line, " "))
  local complaint = properties:match 'FAIL_REGULAR_EXPRESSION "([^"]*)"'
  if not complaint then return command end
  return ("out=$(%s 2>&1); code=$?; echo \"$out\"; case $out in *%s*) exit 1 ;; esac; exit $code"):format(
    command, quote(complaint))
end

--- The tests of a build that run one of its programs, in ctest's order.
---@param build string
---@return {name: string, program: string, command: string}[]
function M.list(build)
  local list = {}
  local text = shell.read(build .. "/CTestTestfile.cmake") or ""
  local row = "add_test%(%[=%[(.-)%]=%] ([^\n]*)%)\n(set_tests_properties[^\n]*)"
  for name, words, properties in text:gmatch(row) do
    local program = words:match '^"(.-)"'
    if program:sub(1, #build + 1) == build .. "/" and not name:find "^gate/" then
      list[#list + 1] = {name = name, program = program:sub(#build + 2),
        command = command_of(build, words, properties)}
    end
  end
  return list
end

--- Where the lines that a test reaches are kept.
function M.reach_path(reach, name) return reach .. "/" .. name:gsub("/", "%%") end

local sums = {}

--- Of the files that are a test's own: of its name, in the folder of its name, and the cases beside it.
---@param source string
---@param name string
---@return string
function M.checksum(source, name)
  if not sums[name] then
    local folder, base = name:match "^(.*)/(.-)$"
    if not folder then folder, base = ".", name end
    sums[name] = shell.lines(([[cd %s/tests/%s 2>/dev/null &&
      { ls %s_spec.lua %s.*; find %s cases -type f; } 2>/dev/null | sort | xargs -r cat | cksum]])
      :format(quote(source), quote(folder), base, base, base))[1] or "-"
    sums[name] = sums[name]:gsub(" ", "-")
  end
  return sums[name]
end

---@class TestRun
---@field folder string what the tests may write
---@field tests {name: string, command: string, processor: integer, seconds: integer}[] with what each may take: of
--- processor time in one process, and by the clock
---@field keep boolean? what they write stays
---@field log string file for the output
---@field environment string? VAR=value, quoted for the shell

---@alias TestVerdict "passed"|"failed"|"timeout"|"slow" timeout: of the processor; slow: of the clock

--- Runs tests, confined, until one does not pass.
---@param o TestRun
---@return {verdict: TestVerdict, seconds: number}[] of those that ran
function M.run(o)
  local here = debug.getinfo(1, "S").source:match "^@(.*)/" or "."
  local script, most = {SCRIPT}, 60
  for i, test in ipairs(o.tests) do
    script[#script + 1] = ("run %d %d %d %s || exit 0"):format(i, test.processor, test.seconds,
      quote(test.command))
    most = most + test.seconds + 10
  end
  shell.write(o.log .. ".sh", table.concat(script, "\n") .. "\n")
  shell.run(("%s timeout -k 5 %d sh %s/confine.sh %s %s sh %s.sh >%s 2>&1"):format(o.environment or "", most,
    quote(here), o.keep and "--keep" or "", quote(o.folder), quote(o.log), quote(o.log)))
  local list = {}
  for _, line in ipairs(shell.lines(("grep -a '^%s' %s"):format(MARK, quote(o.log)))) do
    local i, code, began, ended = line:match "(%d+) (%d+) ([%d.]+) ([%d.]+)$"
    if tonumber(i) == #list + 1 then
      local seconds = ended - began
      local verdict = code == "0" and "passed" or seconds >= o.tests[#list + 1].seconds and "slow"
        or code == "152" and "timeout" or "failed" -- 128 + SIGXCPU
      list[#list + 1] = {verdict = verdict, seconds = seconds}
    end
  end
  local last = list[#list]
  if #list < #o.tests and (not last or last.verdict == "passed") then
    error(("mutate: %s did not run; see %s"):format(o.tests[#list + 1].name, o.log), 0)
  end
  return list
end

return M
