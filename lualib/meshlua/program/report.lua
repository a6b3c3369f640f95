-- report.lua: an error as the program prints it. The message names the user's line; the user's frames
-- follow, and behind them those of the library, which matter only to whoever mends the library.
local program = require "meshlua.program"

local M = {}

--- Is this line of a traceback about library code or C?
local function is_inner(line)
  local chunk = line:match "^(%S+)%.lua:%d+:"
  if not chunk then return line:find("[C]:", 1, true) == 1 end
  local module = chunk:gsub("/", "."):gsub("%.init$", "")
  return package.preload[module] ~= nil
end

--- What stands below the chunk in the REPL is the program, not the chunk's business.
local bottom = "[C]: in function 'meshlua.program.protected'"

--- Splits the lines of a traceback into the user's and the others. A tail call goes with the frame it
--- was made in.
local function sort_frames(trace)
  local user, inner = {}, {}
  local list, has_library = user, false
  for line in trace:gmatch "[^\n]+" do
    line = line:gsub("^%s+", "")
    if line == bottom then break end
    if line:sub(1, 3) ~= "(.." and line:sub(1, 3) ~= "..." then list = is_inner(line) and inner or user end
    if line ~= "[C]: in ?" then
      list[#list + 1] = "\t" .. line
      has_library = has_library or list == inner and line:sub(1, 3) ~= "[C]"
    end
  end
  return user, has_library and inner or {}
end

--- The text of an error, as chunk_call leaves it, for people.
---@param text string
---@param is_repl boolean? no "meshlua:" before messages without a place
---@return string
function M.format(text, is_repl)
  local message, trace = text:match "^(.*)\nstack traceback:\n(.*)$"
  message = message or text
  local hint = package.loaded.meshlua and require("meshlua.exports.foreign").of_error(message)
  if hint then message = message .. "; " .. hint end
  local lines = {message}
  if not is_repl and not message:find "^[^\n]-:%d+:" then lines[1] = "meshlua: " .. message end
  local user, inner = sort_frames(trace or "")
  if #user > 0 then
    lines[#lines + 1] = "stack traceback:"
    table.move(user, 1, #user, #lines + 1, lines)
  end
  if #inner > 0 then
    local dim = program.has_colour "stderr"
    lines[#lines + 1] = (dim and "\27[2m" or "") .. "  in the library:"
    table.move(inner, 1, #inner, #lines + 1, lines)
    if dim then lines[#lines] = lines[#lines] .. "\27[0m" end
  end
  return table.concat(lines, "\n")
end

return M
