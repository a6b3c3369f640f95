-- editor.lua: what keys do that need to know Lua: Enter takes a block that is whole and goes on with one that is not, Tab
-- completes, the arrows move within a block, a paste comes in as one. The rest is libedit's.
local block = require "meshlua.repl.block"
local cli = require "meshlua.program.cli"
local command = require "meshlua.repl.command"
local complete = require "meshlua.repl.complete"
local lex = require "meshlua.repl.lex"
local program = require "meshlua.program"

local M = {}

local CTRL_N, CTRL_P = "\14", "\16"
local STEP = "  "

--- How many characters a text has.
local function length(text) return utf8.len(text) or #text end

--- Could more lines mend the text? A session that is `plain` reads no Lua: its lines are whole, and stay as they are.
local function is_unfinished(session, text)
  if session.plain or command.is(text) then return false end
  local kind, _, unfinished = block.check(text, "")
  return not kind and unfinished
end

-- ---- lines ------------------------------------------------------------------------------------------

--- How far a line is indented that begins behind a text: a step for each line that something is left open in. Nil in a
--- string or comment.
local function indent_behind(text)
  local tokens = lex.tokens(text)
  local last, n, lines = tokens[#tokens], 0, {}
  if last and last.open then return nil end
  for _, open in ipairs(lex.open_at_end(tokens)) do
    local _, line = text:sub(1, tokens[open.at].from):gsub("\n", "")
    if not lines[line] then n = n + 1 end
    lines[line] = true
  end
  return STEP:rep(n)
end

local closing = {["end"] = true, ["else"] = true, ["elseif"] = true, ["until"] = true, ["}"] = true,
  [")"] = true}

--- Where the last line begins with what closes a block: the spaces that are to stand in front of it, and the line.
local function dedented(text)
  local spaces, rest = text:match "([ ]*)([^\n]*)$"
  local first = rest:match "^%a+" or rest:sub(1, 1)
  if not closing[first] then return nil end
  local before = text:sub(1, #text - #spaces - #rest)
  local wanted = indent_behind(before)
  if not wanted or #wanted < #STEP then return nil end
  wanted = wanted:sub(#STEP + 1)
  return #wanted < #spaces and wanted .. rest or nil, length(spaces .. rest)
end

--- Adds to an answer that the line which the cursor ends is put right.
local function put_right(session, answer, text, cursor)
  local line, old
  if not session.plain then line, old = dedented(text:sub(1, cursor)) end
  if line and text:find("^%s*$", cursor + 1) then
    answer.delete, answer.insert = old, line .. (answer.insert or "")
  end
  return answer
end

-- ---- keys -------------------------------------------------------------------------------------------

local on = {}

--- A line end within the block.
function on.line(session, text, cursor, waiting)
  local answer = put_right(session, {}, text, cursor)
  local spaces = not waiting and not session.plain and indent_behind(text:sub(1, cursor)) or ""
  answer.insert = (answer.insert or "") .. "\n" .. spaces
  return answer
end

function on.enter(session, text, cursor, waiting)
  if is_unfinished(session, text) then return on.line(session, text, cursor, waiting) end
  return put_right(session, {accept = true}, text, cursor)
end

--- The cursor to the line above, or the block before.
function on.up(_, text, cursor)
  local above, column = text:sub(1, cursor):match "^(.*)\n(.-)$"
  if not above then return {push = CTRL_P} end
  local line = above:match "[^\n]*$"
  return {move = -(length(column) + 1 + math.max(0, length(line) - length(column)))}
end

function on.down(_, text, cursor)
  local rest, below = text:sub(cursor + 1):match "^([^\n]*)\n([^\n]*)"
  if not rest then return {push = CTRL_N} end
  local column = length(text:sub(1, cursor):match "[^\n]*$")
  return {move = length(rest) + 1 + math.min(column, length(below))}
end

--- To the ends of a line.
function on.home(_, text, cursor) return {move = -length(text:sub(1, cursor):match "[^\n]*$")} end

on["end"] = function(_, text, cursor) return {move = length(text:sub(cursor + 1):match "^[^\n]*")} end

--- What stands at the prompt from the beginning.
function on.prepare(session)
  local text = session.prepared
  session.prepared = nil
  return {insert = text}
end

--- The text of a paste without what would do something to a terminal, and how many bytes that were.
local function clean(pasted)
  local text = pasted:gsub("\r\n?", "\n"):gsub("\27%[[0-?]*[ -/]*[@-~]", ""):gsub("\27%][^\7\27\n]*", "")
    :gsub("[%z\1-\8\11-\31\127]", "")
  if not utf8.len(text) then text = text:gsub("[\128-\255]", "") end
  local _, ends = pasted:gsub("\r\n", "")
  return text, #pasted - ends - #text
end

--- A paste that ends its last line is taken at once where it makes the block whole.
function on.paste(session, text, cursor, _, pasted)
  local new, lost = clean(pasted)
  local whole = new:sub(-1) == "\n" and text:find("^%s*$", cursor + 1) and lost == 0
  if whole then
    new = new:gsub("\n+$", "")
    local all = text .. new
    if not all:find "%S" then return {} end
    if not is_unfinished(session, all) then return {insert = new, accept = true} end
    new = new .. "\n"
  end
  return {insert = new, show = lost > 0
    and ("\r\n%d bytes of the paste that are no text are left out\r\n"):format(lost) or nil}
end

-- ---- Tab --------------------------------------------------------------------------------------------

--- What all of a list begin with.
local function common(list)
  local first, last = list[1], list[#list] -- sorted
  local n = 0
  while n < #first and first:byte(n + 1) == last:byte(n + 1) do n = n + 1 end
  return first:sub(1, n)
end

--- A list in columns, for a terminal of so many; no more than `most` rows.
---@param list string[]
---@param width integer
---@param most integer
---@return string
function M.columns(list, width, most)
  local widest = 0
  for _, word in ipairs(list) do widest = math.max(widest, length(word)) end
  local across = math.max(1, (width + 1) // (widest + 2))
  local rows = math.ceil(#list / across)
  local lines = {}
  for r = 1, math.min(rows, most) do
    local cells = {}
    for c = 0, across - 1 do
      local word = list[c * rows + r]
      if word then cells[#cells + 1] = word .. (" "):rep(widest + 2 - length(word)) end
    end
    lines[r] = table.concat(cells):gsub("%s+$", "")
  end
  if rows > most then lines[#lines + 1] = ("... %d in all"):format(#list) end
  return table.concat(lines, "\n")
end

--- How many rows of the terminal the text behind the cursor takes.
local function rows_below(text, width)
  local n = 0
  for line in text:gmatch "\n([^\n]*)" do n = n + 1 + length(line) // width end
  return n
end

--- A signature and what is said of it, in lines.
local function wrapped(text)
  local lines = {}
  for line in text:gmatch "[^\n]+" do
    lines[#lines + 1] = line:match "^ *"
    cli.wrap(lines, line, #lines > 1 and 2 or 4)
  end
  return table.concat(lines, "\n")
end

function on.tab(session, text, cursor)
  local before = text:sub(1, cursor)
  if session.plain or before:find "\n[ \t]*$" or before:find "^[ \t]*$" then return {insert = STEP} end
  local found = command.complete(before) or complete.at(session, before, text:sub(cursor + 1))
  local list, width = found.list, program.columns "stdout" or 80
  local more = #list > 0 and common(list):sub(#found.word + 1) or ""
  if #list == 1 then more = more .. (found.notes[list[1]] or "") end
  local shown = found.signature and wrapped(found.signature)
  if more == "\"" and #list > 1 then more = "" end -- axes
  if more == "" and #list > 1 then shown = M.columns(list, width, 15) end
  if more ~= "" or not shown then return {insert = more} end
  local gap = ("\n"):rep(1 + rows_below(text:sub(cursor + 1), width))
  return {show = (gap .. shown .. "\n"):gsub("\n", "\r\n")}
end

--- The text as it comes out of $EDITOR; nil, message where that failed.
---@param text string
---@return string?, string?
function M.edited(text)
  local name = os.tmpname()
  local file = name .. ".lua"
  local handle = assert(io.open(file, "w"))
  handle:write(text, "\n")
  handle:close()
  local editor = program.editor_command()
  local ok = os.execute(("%s '%s'"):format(editor, file))
  handle = ok and io.open(file)
  local edited = handle and handle:read "a"
  if handle then handle:close() end
  os.remove(name)
  os.remove(file)
  if not edited then return nil, ("%s did not end well; EDITOR says which editor is used"):format(editor) end
  return (edited:gsub("%s+$", ""))
end

function on.edit(_, text, cursor)
  local edited, message = M.edited(text)
  if not edited then return {show = "\r\n" .. message .. "\r\n"} end
  return {move = length(text:sub(cursor + 1)), delete = length(text), insert = edited}
end

--- What editor:read calls for a key.
---@param session Session
function M.handler(session)
  return function(event, ...) return on[event](session, ...) end
end

return M
