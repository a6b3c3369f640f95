-- specs.lua: runs spec files with busted, inside meshlua: `build/meshlua tests/specs.lua FILE...`.
-- What busted's command line takes may stand before the files (--filter=PATTERN, --verbose).
local ok, runner = pcall(require, "busted.runner")
if not ok then
  io.stderr:write("tests: busted for Lua 5.4 is missing (Debian: lua-busted)\n")
  os.exit(3)
end
package.path = "tests/?.lua;" .. package.path
-- busted takes a traceback at every `it`, and shows it with --verbose alone. It looks for the name of each function on
-- the stack in all modules, which is milliseconds: a fifth of what a spec of many tests takes.
local is_verbose = false
for _, word in ipairs(arg) do is_verbose = is_verbose or word == "--verbose" or word == "-v" end
if not is_verbose then
  local traceback = debug.traceback
  debug.traceback = function(message, level, ...) -- luacheck: ignore
    if debug.getinfo(2, "S").source:find "busted/core%.lua$" then return message end
    if type(message) == "thread" then return traceback(message, level, ...) end
    return traceback(message, (level or 1) + 1)
  end
end
-- --ignore-lua: .busted names a program for the plain command; here the program that runs is the one tested.
local fixed = {"--ignore-lua", "--helper=tests/spec/helper.lua", "--output=plainTerminal",
  "--pattern=_spec"}
table.move(arg, 1, #arg, #fixed + 1)
table.move(fixed, 1, #fixed, 1, arg)
runner {standalone = false}
