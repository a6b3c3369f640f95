-- repl/init.lua: the interactive session. A block is read until it is whole, then run, and its values are shown. An error
-- ends the block, not the session.
local program = require "meshlua.program"
local report = require "meshlua.program.report"
local block = require "meshlua.repl.block"
local command = require "meshlua.repl.command"
local lib = require "meshlua.lib"

local M = {}

-- What a block does to the globals is of no matter to the session.
local stdout, stderr, write = io.stdout, io.stderr, io.write
local ipairs, pcall, rawget, rawset = ipairs, pcall, rawget, rawset
local require, table, tostring = require, table, tostring

local KEPT = 100 -- values in Out
local LONGEST = 1 << 14 -- of either end of an error's text

---@class Session
---@field live table<string, Live> locals of earlier blocks
---@field n integer the number of the block that comes next
---@field blocks table<integer, string> by number
---@field out table<integer, any> values by number
---@field chunk string what the block is called in messages
---@field prepared string? what is to stand at the prompt
---@field ended boolean?
---@field person boolean does somebody type?

--- The text of a value, for a person.
local function text_of(value)
  return require("meshlua.repl.show").show(value, {width = program.columns "stdout" or 80,
    color = program.has_colour "stdout"})
end

local function name_of(session) return session.person and ("In[%d]"):format(session.n) or "stdin" end

--- Writes an error. Of one in a block the block itself is the last of the frames.
---@param message string
---@param name string? of the block's chunk
local function complain(message, name)
  if #message > 2 * LONGEST then message = message:sub(1, LONGEST) .. " ... " .. message:sub(-LONGEST) end
  if name then
    message = message:gsub("^(.*)in function <" .. name:gsub("%p", "%%%0") .. ":1>", "%1in main chunk")
  end
  message = report.format(message, true)
  if program.has_colour "stderr" then message = message:gsub("^[^\n]*", "\27[31m%0\27[39m") end
  stdout:flush()
  stderr:write(message, "\n")
end

--- Writes values in a row, or where one takes several lines below each other. One that cannot be shown says why.
local function show(values, n)
  local texts, gap = {}, "\t"
  for i = 1, n do
    local ok, text = program.protected(text_of, values[i])
    if not ok then return complain(text) end
    texts[i] = text
    if text:find("\n", 1, true) then gap = "\n" end
  end
  program.protected(function() -- Ctrl-C stops a long one
    for i, text in ipairs(texts) do write(i > 1 and gap or "", text) end
    write "\n"
  end)
end

--- Keeps the values of a block at hand.
local function remember(session, values)
  if values[2] == nil then return end
  rawset(_G, "__", rawget(_G, "_"))
  rawset(_G, "_", values[2])
  session.out[session.n] = values[2]
  session.out[session.n - KEPT] = nil
end

--- Runs a text that is one block, and shows its values unless it ends in a semicolon.
local function evaluate(session, text)
  local name = session.chunk
  local _, sound = block.check(text, name)
  local chunk, message = block.compile(session, sound, name)
  if not chunk then return complain(message) end
  local values = table.pack(program.protected(chunk))
  if not values[1] then return complain(values[2], name) end
  if values.n > 1 then
    remember(session, values)
    if text:find ";%s*$" then return true end
    show(table.move(values, 2, values.n, 1, {}), values.n - 1)
  end
  return true
end

--- Runs what was entered: a command, a block, or the blocks that it is made of.
---@param session Session
---@param text string
function M.enter(session, text)
  session.blocks[session.n], session.chunk = text, name_of(session)
  if command.is(text) then
    local asked = {session = session, write = write, show = function(x) write(text_of(x), "\n") end}
    local ok, message = program.protected(command.run, asked, text)
    if not ok then complain(message) end
    return
  end
  local name = session.chunk
  local kind, message = block.check(text, name)
  local pieces = kind and {text} or block.split(text, name)
  if not pieces then return complain(message) end
  for _, piece in ipairs(pieces) do
    if not evaluate(session, piece) then return end
  end
end

-- ---- reading ----------------------------------------------------------------------------------------

--- Keeps a block for later sessions; says once why that cannot be done.
local function note(session, editor, text)
  local ok, message = editor:remember(text)
  if ok or session.unkept then return end
  session.unkept = true
  stderr:write("blocks are not kept for later sessions: ", message, "\n")
end

--- Reads until the text is a whole block or cannot become one. Returns the text; false where it was abandoned; nil at
--- the end of the input.
local function read_block(session, editor, handler)
  local prompt = session.person and session.n .. "> " or ""
  local shown = prompt
  if handler and program.has_colour "stdout" then -- a character follows what has no width
    shown = ("\1\27[1m\1%d>\1\27[0m\1 "):format(session.n)
  end
  local text, line = "", editor:read(shown, handler)
  while line do
    text = text == "" and line or text .. "\n" .. line
    if command.is(text) then return text end
    local kind, _, unfinished = block.check(text, "")
    if kind or not unfinished then return text end
    line = editor:read(session.person and (" "):rep(#prompt - 3) .. ">> " or "", handler)
  end
  if line == nil and text ~= "" then return text end
  return line
end

--- What is said at the start: versions, devices, the mesh, where help is.
local function greet()
  local ml = require "meshlua"
  local count, mesh = ml.device_count(), ml.get_mesh()
  local few = count == 1 and " (--devices=8: eight of them)" or ""
  write(("meshlua %s  %s\n"):format(program.version, program.lua), lib.count(count, "device"), few, ", ",
    mesh and tostring(mesh) or "no mesh", "\n",
    "?NAME and :help say more, Tab completes, Ctrl-D ends\n")
end

--- A session before its first block.
---@param person boolean
---@return Session
function M.new(person)
  local session = {live = {}, n = 1, blocks = {}, out = {}, person = person}
  local function help(value)
    if value == nil then return command.run({session = session, write = write}, ":help") end
    write(table.concat(require("meshlua.repl.help").about(session, value), "\n"):gsub("^\n", ""), "\n")
  end
  rawset(_G, "ml", require "meshlua")
  rawset(_G, "Out", session.out)
  rawset(_G, "help", help)
  return session
end

--- Reads, runs and shows until the input ends.
function M.run()
  command.stock = {}
  for name in next, _G do command.stock[name] = true end
  local session = M.new(program.is_terminal "stdin")
  local editor = program.editor()
  if session.person then greet() end
  local handler = editor:edits() and require("meshlua.repl.editor").handler(session) or nil
  while not session.ended do
    local text = read_block(session, editor, handler)
    if text == nil then break end
    if text and text:find "%S" then
      note(session, editor, text)
      local ok, message = pcall(M.enter, session, text)
      if not ok then stderr:write(tostring(message), "\n") end
      session.n = session.n + 1
    end
  end
  if session.person and not session.ended then write "\n" end
end

return M
