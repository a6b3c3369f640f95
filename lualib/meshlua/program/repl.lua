-- repl.lua: the interactive loop. A line is an expression or a statement; an unfinished one goes on at
-- the next prompt; an error ends the line, not the loop.
local program = require "meshlua.program"
local report = require "meshlua.program.report"

local M = {}

--- Does this syntax error say that the text is not finished?
local function is_incomplete(message)
  return message:sub(-5) == "<eof>"
end

--- The chunk for a text, as an expression where it can be one ("=1" always is). Else nil, the error, and
--- whether more lines could mend it.
local function compile(text)
  local expression, forced = text:gsub("^%s*=", "", 1)
  local chunk, message = load("return " .. expression, "=stdin", "t")
  if chunk or forced > 0 then return chunk, message, not chunk and is_incomplete(message) end
  local could_be = is_incomplete(message)
  chunk, message = load(text, "=stdin", "t")
  return chunk, message, not chunk and (could_be or is_incomplete(message))
end

--- Reads lines until they are a whole chunk or cannot become one. Returns the text; false where it was
--- abandoned; nil at the end of the input.
local function read_text(editor, prompt, more)
  local text, line = "", editor:read(prompt)
  while line do
    editor:remember(line)
    text = text == "" and line or text .. "\n" .. line
    local _, _, unfinished = compile(text)
    if not unfinished then return text end
    line = editor:read(more)
  end
  if line == nil and text ~= "" then return text end
  return line
end

local function complain(message)
  io.stdout:flush()
  io.stderr:write(report.format(message, true), "\n")
end

--- Runs the text and prints its values, unless it ends in a semicolon.
local function evaluate(text)
  local chunk, message = compile(text)
  if not chunk then return complain(message) end
  local values = table.pack(program.protected(chunk))
  if not values[1] then return complain(values[2]) end
  if values.n == 1 then return end
  _G._ = values[2]
  if text:find ";%s*$" then return end
  local ok, failed = program.protected(print, table.unpack(values, 2, values.n))
  if not ok then complain(failed) end
end

--- Reads, runs and prints until the input ends.
function M.run()
  local person = program.is_terminal "stdin"
  local prompt, more = "", ""
  if person then
    prompt, more = "> ", ">> "
    print(("meshlua %s  %s  (Ctrl-D ends)"):format(program.version, program.lua))
  end
  _G.ml = require "meshlua"
  local editor = program.editor()
  while true do
    local text = read_text(editor, prompt, more)
    if text == nil then break end
    if text then evaluate(text) end
  end
  if person then print() end
end

return M
