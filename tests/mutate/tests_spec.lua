-- How script/mutate runs tests: what it reads of CMake's, and what becomes of those that fail or do not end.
package.path = "tests/mutate/?.lua;" .. package.path
local helper = require "spec.helper"
local tests = require "tests"

local function temporary_folder()
  local folder = helper.shell("mktemp -d"):match "%S+"
  finally(function() os.execute("rm -rf " .. folder .. "*") end)
  return folder
end

describe("the tests of a mutant", function()
  it("are those of CMake that run a program of the build, with their folder and environment", function()
    local build = temporary_folder()
    local file <close> = assert(io.open(build .. "/CTestTestfile.cmake", "w"))
    local function row(name, words, properties)
      file:write(("add_test([=[%s]=] %s)\nset_tests_properties([=[%s]=] PROPERTIES %s)\n"):format(name, words,
        name, properties))
    end
    row("unit/a", '"' .. build .. '/a" "x y"', '_BACKTRACE_TRIPLES "z"')
    row("spec/b", '"' .. build .. '/b"', 'ENVIRONMENT "A=1;B=2" LABELS "slow" WORKING_DIRECTORY "/"')
    row("gate/c", '"' .. build .. '/b"', 'WORKING_DIRECTORY "/"')
    row("spec/d", '"/usr/bin/other"', 'WORKING_DIRECTORY "/"')
    file:close()
    local list = tests.list(build)
    assert.same({"unit/a", "spec/b"}, {list[1].name, list[2].name})
    assert.same({"a", "b", 2}, {list[1].program, list[2].program, #list})
    assert.equal(("cd '%s' && env  '%s/a' 'x y'"):format(build, build), list[1].command)
    assert.equal(("cd '/' && env 'A=1' 'B=2' '%s/b'"):format(build), list[2].command)
  end)

  it("run until one does not pass; a processor's time and the clock's are told apart", function()
    local folder = temporary_folder()
    if not os.execute("sh tests/mutate/confine.sh " .. folder .. " true 2>/dev/null") then
      helper.pending "namespaces are root's to make"
    end
    local function verdicts(...)
      local list = {}
      for i, command in ipairs {...} do
        local seconds = command:find "^sleep" and 1 or 50
        list[i] = {name = "t" .. i, command = command, processor = 1, seconds = seconds}
      end
      local found = {}
      for i, r in ipairs(tests.run {folder = folder, tests = list, log = folder .. ".log"}) do
        found[i] = r.verdict
      end
      return table.concat(found, " ")
    end
    assert.equal("passed passed", verdicts("true", "echo text; exit 0"))
    assert.equal("passed failed", verdicts("true", "exit 3", "true"))
    assert.equal("failed", verdicts "kill -9 $$")
    assert.equal("timeout", verdicts "while :; do :; done")
    assert.equal("slow", verdicts "sleep 20")
    -- What a test leaves running is killed before the next (and gone once it was waited for), and what all wrote is
    -- gone at the end.
    assert.equal("passed passed", verdicts("echo x >left; sleep 100 & echo $! >process", [[
      read p <process
      for i in 1 2 3 4 5 6 7 8 9; do kill -0 $p || break; sleep 0.1; done
      ! kill -0 $p && [ -e left ]
    ]]))
    assert.falsy(io.open(folder .. "/left"))
  end)
end)
