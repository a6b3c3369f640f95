-- coverage.lua: which lines each test reaches, by a build that counts (gcov). Run by script/mutate:
-- `lua5.4 coverage.lua FOLDER REACH JOB`, several at once. FOLDER/coverage is the build, of FOLDER/source;
-- REACH gets a file per test: a line of its seconds, its verdict and the checksum of its own source, and then per
-- source file a character per line: 1 reached, 0 not reached, - no code.
local here = arg[0]:match "^(.*)/" or "."
package.path = here .. "/?.lua;" .. package.path
local shell = require "shell"
local tests = require "tests"

local folder, reach, job = table.unpack(arg, 1, 3)
local quote = shell.quote
local build, counts = folder .. "/coverage", folder .. "/counts-" .. job

-- Counts go beside links to the descriptions that the compiler left: every job has its own.
shell.run(("rm -rf %s && mkdir -p %s"):format(quote(counts), quote(counts)))
shell.run(([[cd %s && find . -name '*.gcno' | while read -r f; do
  mkdir -p %s/"$(dirname "$f")" && ln -s "$PWD/$f" %s/"$f"; done]])
  :format(quote(build), quote(counts), quote(counts)))
local _, depth = build:gsub("/+[^/]+", "")

--- The lines of our sources as gcov saw them.
---@return table<string, table<integer, string>>
local function read_counts()
  local found, at = {}, nil
  local pipe = assert(io.popen(("cd %s && find . -name '*.gcda' -print0 | xargs -0 -r gcov -t 2>/dev/null")
    :format(quote(counts))))
  for line in pipe:lines() do
    local count, number, text = line:match "^%s*([^:]+):%s*(%d+):(.*)$"
    number = tonumber(number)
    if number == 0 then
      local path = text:match "^Source:.*/source/(.*)$"
      if path then
        found[path] = found[path] or {}
        at = found[path]
      elseif text:find "^Source:" then
        at = nil
      end
    elseif at and count then
      local mark = count == "-" and "-" or count:find "%d" and "1" or "0"
      if not at[number] or mark == "1" or at[number] == "-" then at[number] = mark end
    end
  end
  pipe:close()
  return found
end

local function cover(test, path)
  shell.run(("find %s -name '*.gcda' -delete"):format(quote(counts)))
  local result = tests.run {
    folder = folder, tests = {{name = test.name, command = test.command, processor = 100000, seconds = 900}},
    keep = true, log = counts .. ".log",
    environment = ("GCOV_PREFIX=%s GCOV_PREFIX_STRIP=%d"):format(quote(counts), depth)}[1]
  local verdict, seconds = result.verdict, result.seconds
  local rows = {("%.2f\t%s\t%s"):format(seconds, verdict, tests.checksum(folder .. "/source", test.name))}
  for file, marks in pairs(read_counts()) do
    rows[#rows + 1] = file .. "\t" .. table.concat(marks)
  end
  shell.write(path, table.concat(rows, "\n") .. "\n")
  print(("coverage: %-40s %-7s %7.2f s, %d files"):format(test.name, verdict, seconds, #rows - 1))
  io.stdout:flush()
end

for _, test in ipairs(tests.list(build)) do
  local path = tests.reach_path(reach, test.name)
  local sum = (shell.read(path) or ""):match "^[^\t]*\t[^\t]*\t([^\n]*)"
  local same = sum == tests.checksum(folder .. "/source", test.name)
  if not same and shell.claim(folder .. "/claims/" .. test.name:gsub("/", "%%")) then cover(test, path) end
end
