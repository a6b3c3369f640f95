-- text.lua: the stages of a program of tests/golden/programs as text. Run as a script it writes the golden
-- files anew (read the difference before committing it):
--   build/meshlua --devices=8 tests/golden/text.lua write
local helper_shell = function(command)
  local pipe = assert(io.popen(command))
  local text = pipe:read "a"
  pipe:close()
  return text
end

local M = {folder = "tests/golden/programs/"}

--- Names of the programs.
function M.programs()
  local names = {}
  for name in helper_shell("ls " .. M.folder):gmatch "([%w_]+)%.lua" do names[#names + 1] = name end
  return names
end

--- Every stage of a program, as --dump=all prints it. Each is verified, and what its text reads back as is held
--- against it.
function M.stages(program, name)
  local command = "MESHLUA_CHECK=1 '%s' --devices=8 --dump=all %s%s.lua 2>&1"
  return helper_shell(command:format(program, M.folder, name))
end

function M.golden(name)
  return M.folder .. name .. ".txt"
end

if arg and arg[1] == "write" then
  local i = 0
  while arg[i - 1] do i = i - 1 end
  for _, name in ipairs(M.programs()) do
    local handle <close> = assert(io.open(M.golden(name), "w"))
    handle:write(M.stages(arg[i], name))
  end
end

return M
