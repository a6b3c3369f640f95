-- output_spec.lua: what the program writes has come out, or it says so with exit code 3; and what was in a file
-- stays until there is something to write.
local helper = require "spec.helper"
local shell, file = helper.shell, helper.file
local read = helper.read

local CODE = "local ml = require 'meshlua' ml.jit(function(x) return x + 1 end)(ml.ones {4})"

--- Runs a shell command; its exit code and all that it said.
local function run(command, input)
  local out, err, code = shell(command, input)
  return code, out .. err
end

local function says(code, wanted, command, input)
  local actual, text = run(command, input)
  assert.equal(code, actual, command .. "\n" .. text)
  assert.truthy(text:find(wanted, 1, true), text)
end

describe("a standard output that is full or closed", function()
  -- A script's own prints, ours, and the ways to end.
  local programs = {[["$MESHLUA" -e "print(1)"]], [["$MESHLUA" -e "io.write(1)"]],
    [["$MESHLUA" -e "print(1) os.exit(0)"]], [["$MESHLUA" -e "print(1) os.exit(true, true)"]],
    [["$MESHLUA" -e "io.stdout:write('x'):flush()"]], [["$MESHLUA" --help]], [["$MESHLUA" --env]],
    [["$MESHLUA" --ops]], [["$MESHLUA" --types]], [["$MESHLUA" doctor]], [["$MESHLUA" -v]],
    [["$MESHLUA" models/train.lua --help]],
    [[echo "print(1)" | "$MESHLUA"]], [[echo "return 1" | "$MESHLUA" -i]],
    [["$MESHLUA" models/train.lua --layers=1 --width=16 --heads=2 --seq=8 --batch=8 --steps=1 --sample=0 ]]
      .. "--mesh=none --data=README.md"}

  it("is said, with 3", function()
    for _, program in ipairs(programs) do
      says(3, "meshlua: standard output: No space left on device\n", program .. " >/dev/full")
      says(3, "meshlua: standard output: Bad file descriptor\n", program .. " >&-")
    end
  end)

  it("changes no other code", function()
    says(7, "No space left", [["$MESHLUA" -e "print(1) os.exit(7)" >/dev/full]])
    says(1, "mine", [["$MESHLUA" -e "print(1) error 'mine'" >/dev/full]])
  end)

  it("is no matter to who prints nothing", function()
    for _, closed in ipairs {">&-", ">/dev/full", "<&-", "2>&-", "<&- >&- 2>&-"} do
      assert.equal(0, (run([["$MESHLUA" -e "local x = 1" ]] .. closed)), closed)
    end
  end)

  it("gives its number to no file", function()
    local path = file ""
    says(3, "Bad file descriptor",
      ([["$MESHLUA" -e "local f = io.open('%s', 'w') print 'to nobody' f:write 'mine'" >&-]]):format(path))
    assert.equal("mine", read(path))
  end)

  it("that nobody reads any more ends the program, by the signal or with 3", function()
    local command = [[{ %s "$MESHLUA" -e "for i = 1, 1e5 do print(i) end"; echo $? >&2; } |
      head -1 >/dev/null]]
    local _, text = run(command:format "")
    assert.equal("141\n", text)
    _, text = run(command:format "trap '' PIPE;")
    assert.truthy(text:find "^meshlua: standard output: [^\n]+\n3\n$", text)
  end)
end)

describe("dumps and profiles", function()
  it("that cannot be written are said, with 3", function()
    says(3, "[E_IO] --dump=plan: what it is for cannot be written: No space left on device",
      ([["$MESHLUA" --dump=plan:/dev/full -e "%s"]]):format(CODE))
    assert.equal(3, (run(([["$MESHLUA" --dump=all -e "%s" 2>/dev/full]]):format(CODE))))
    assert.equal(3, (run(([["$MESHLUA" --dump=all -e "%s" 2>&-]]):format(CODE))))
    for _, ending in ipairs {"", " os.exit(0)", " os.exit(0, true)"} do
      says(3, "profile: cannot write /dev/full: No space left on device",
        ([["$MESHLUA" --profile=/dev/full -e "%s%s"]]):format(CODE, ending))
    end
    for _, flag in ipairs {"--dump=plan", "--profile"} do
      local name = flag .. (flag:find "=" and ":" or "=") .. "/nonexistent/file"
      says(3, "No such file or directory", ([["$MESHLUA" %s -e "%s"]]):format(name, CODE))
    end
  end)

  it("leave a file as it was where nothing comes to be written", function()
    local path = file "of the day before"
    for _, flag in ipairs {"--dump=plan:", "--profile="} do
      for _, script in ipairs {"gone.lua", "models/train.lua --stpes=5", "-e 'error(1)'"} do
        run(([["$MESHLUA" %s%s %s]]):format(flag, path, script))
        assert.equal("of the day before", read(path), flag .. script)
      end
    end
  end)

  it("take the place of longer ones, also where the script ends by os.exit", function()
    local plan, trace = file(("x"):rep(1e5)), file(("x"):rep(1e5))
    local command = [["$MESHLUA" --dump=plan:%s --profile=%s -e "%s os.exit(0)"]]
    assert.equal(0, (run(command:format(plan, trace, CODE))))
    assert.truthy(read(plan):find "^%-%- plan\n" and not read(plan):find "xx")
    assert.truthy(read(trace):find '^{"displayTimeUnit":"ms"' and read(trace):find "%]}\n$")
  end)

  it("are functions' results where a function writes them", function()
    local text = select(2, run(([["$MESHLUA" -e "%s
      print(ml.visualize_sharding(ml.ones {2}, {file = '/dev/full'}))
      ml.profile.start '/dev/full'
      print(ml.profile.stop())"]]):format(CODE:gsub("^local ", ""))))
    assert.equal("nil\tNo space left on device\tE_IO\nnil\tprofile: cannot write /dev/full: No space left on "
      .. "device\tE_IO\n", text)
  end)
end)
