-- tests.lua: the tests as ctest has them, for script/mutate.
local shell = require "shell"

local M = {}

--- The tests of a build that run one of its programs, in ctest's order.
---@param build string
---@return {name: string, program: string}[]
function M.list(build)
  local list, more = {}, {build .. "/CTestTestfile.cmake"}
  for _, path in ipairs(more) do
    for name, program in (shell.read(path) or ""):gmatch "add_test%(%[=%[(.-)%]=%]%s+\"(.-)\"" do
      if program:sub(1, #build + 1) == build .. "/" and not name:find "^gate/" then
        list[#list + 1] = {name = name, program = program:sub(#build + 2)}
      end
    end
  end
  return list
end

--- Where the lines that a test reaches are kept.
function M.reach_path(reach, name) return reach .. "/" .. name:gsub("/", "%%") end

--- Of the test's own source, where its name tells that.
function M.checksum(source, name)
  local text = shell.read(("%s/tests/%s_spec.lua"):format(source, name))
    or shell.read(("%s/tests/%s.c"):format(source, name))
  if not text then return "-" end
  local sum = #text
  for i = 1, #text do sum = (sum * 31 + text:byte(i)) & 0xffffffffffff end
  return ("%x"):format(sum)
end

---@class TestRun
---@field folder string what the test may write
---@field build string
---@field test string its name
---@field timeout number seconds
---@field keep boolean? what it writes stays
---@field log string file for the output
---@field environment string? VAR=value, quoted for the shell

--- Runs a test, confined.
---@param o TestRun
---@return "passed"|"failed"|"timeout"|"skipped" verdict
---@return number seconds
function M.run(o)
  local here = debug.getinfo(1, "S").source:match "^@(.*)/" or "."
  local confined = ("%s timeout -k 5 %d sh %s/confine.sh %s %s"):format(o.environment or "", o.timeout + 60,
    shell.quote(here), o.keep and "--keep" or "", shell.quote(o.folder))
  shell.run(("%s ctest --test-dir %s -R '^%s$' --timeout %d >%s 2>&1"):format(
    confined, shell.quote(o.build), (o.test:gsub("[.+*?]", "[%0]")), o.timeout, shell.quote(o.log)))
  local log = shell.read(o.log) or ""
  local seconds = tonumber(log:match "([%d.]+) sec\n") or o.timeout
  if log:find "100%% tests passed" then
    return log:find "%*%*%*Skipped" and "skipped" or "passed", seconds
  end
  local began = log:find("Start +%d+: ")
  if not began then error("mutate: " .. o.test .. " did not run:\n" .. log, 0) end
  local failed = log:find "tests failed" and not log:find "%*%*%*Timeout"
  return failed and "failed" or "timeout", seconds
end

return M
