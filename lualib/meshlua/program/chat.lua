-- chat.lua: the verb `chat`: a person or a pipe on one side, a model on the other. Answers are written as they come;
-- Ctrl-C ends an answer, Ctrl-D the program.
local arguments = require "meshlua.train.arguments"
local files = require "meshlua.train.files"
local json = require "meshlua.train.json"
local lib = require "meshlua.lib"
local models = require "meshlua.chat.model"
local program = require "meshlua.program"
local runs = require "meshlua.train.run"
local sessions = require "meshlua.chat.session"

require "meshlua" -- what tensors can do

local M = {}

local EXIT_FAULT = 1
local MOST_CONTEXT = 4096 -- tokens, where the user says nothing

local HELP = [[
/reset      begin anew
/save FILE  the conversation, as JSON
/help       this text
/quit       the end, as Ctrl-D
Ctrl-C ends an answer; Alt-Enter puts a line end into a message.
]]

local function say(...) io.stderr:write("meshlua chat: ", ...) io.stderr:write "\n" end

--- What may go to a terminal: nothing that moves its cursor.
local function printable(text)
  return (text:gsub("[%z\1-\8\11-\31\127]", ""):gsub("\194[\128-\159]", ""))
end

local function write(text)
  io.stdout:write(printable(text))
  io.stdout:flush()
end

--- A line about the turn, dim, for people.
local function note(...)
  if not program.is_terminal "stdout" then return end
  local text = table.concat {...}
  io.stdout:write(program.has_colour "stdout" and "\27[2m" .. text .. "\27[22m" or text, "\n")
end

local ENDS = {length = "; --max-tokens ended it", context = "; the context is full",
  interrupt = "; interrupted"}

--- One turn; false where it failed.
local function turn(session, text)
  local reason, message = session:say(text, program.protected, write)
  if not reason then
    say((tostring(message):match "^[^\n]*"))
    return false
  end
  if not session.edits then io.stdout:write "\n" end -- else a line that is not whole ends by itself
  if session.forgot and not session.told then
    session.told = true
    note "the context is full: the oldest turns are forgotten"
  end
  local after = session.seconds - (session.first_at or session.seconds)
  local speed = session.tokens > 1 and after > 0
    and lib.format(", %.1f tokens/s", (session.tokens - 1) / after) or ""
  note(lib.count(session.tokens, "token"), speed, lib.format("; first after %.2f s; context %d of %d",
    session.first_at or session.seconds, session:used(), session.options.context), ENDS[reason] or "")
  return true
end

-- ---- commands -------------------------------------------------------------------------------------------

local commands = {}

function commands.reset(session) session:reset() end
function commands.help() io.stdout:write(HELP) end
commands.quit = function(session) session.ended = true end

function commands.save(session, path)
  if path == "" then return say "/save FILE: where to?" end
  local saved = session.open.template and session.messages or {{content = session.text}}
  local ok, message = files.write(path, json.encode(saved) .. "\n")
  if not ok then say(message) end
end

--- Does what a line says that begins with a slash; false: it is none of the commands.
local function command(session, line)
  local word, rest = line:match "^/(%l+)%s*(.-)%s*$"
  if not word then return false end
  if commands[word] then
    commands[word](session, rest)
  else
    say("/", word, ": no such command", lib.did_you_mean(word, lib.names(commands), "/%s"),
      " /help lists them; a message may begin with a space")
  end
  return true
end

-- ---- the conversation -----------------------------------------------------------------------------------

--- Talks until the input ends; the exit code.
local function talk(session)
  local person = program.is_terminal "stdin"
  local editor = program.editor "chat_history"
  local handler = editor:edits() and require("meshlua.repl.editor").handler {plain = true} or nil
  local exit = 0
  session.edits = editor:edits()
  while not session.ended do
    local line = editor:read(person and "> " or "", handler)
    if line == nil then break end
    if line and line:find "%S" then
      editor:remember(line)
      if not command(session, line) and not turn(session, line) and not person then exit = EXIT_FAULT end
    end
  end
  if person and not session.ended then io.stdout:write "\n" end
  return exit
end

--- Says who is there.
local function greet(session)
  local open = session.open
  note(printable(open.name), lib.format(": context of %d tokens; /help lists commands, Ctrl-D ends",
    session.options.context))
  if not open.template then
    note "no chat template: texts are continued, and what you write is put behind them"
  end
end

--- The options of a session.
local function options_of(open, flags)
  local context = open.config.seq or MOST_CONTEXT
  if flags.context > context then
    return nil, ("--context=%d: the model's is %d"):format(flags.context, context), "E_VALUE"
  end
  if flags.system ~= "" and not open.template then
    return nil, "--system needs a chat template, and "
      .. (flags.raw and "--raw uses none" or "the model has none"), "E_VALUE"
  end
  return {context = flags.context > 0 and flags.context or math.min(context, MOST_CONTEXT),
    max_tokens = flags.max_tokens, system = flags.system ~= "" and flags.system or nil,
    temperature = flags.temperature, top_k = flags.top_k > 0 and flags.top_k or nil, top_p = flags.top_p,
    min_p = flags.min_p, seed = flags.seed}
end

---@param path string
---@param flags table by the rows of verbs.lua
---@return integer? exit, string? message, string? code
function M.run(path, flags)
  local mesh, wrong, kind = runs.mesh(flags.mesh == "" and "none" or flags.mesh)
  if wrong then return nil, wrong, kind end
  local fault
  local open, message, code = models.open(path, flags, function(recipe)
    local name = flags.rules ~= "" and flags.rules or recipe.layout and recipe.layout.rules or ""
    local rules, why = arguments.rule_set(recipe, name)
    fault = fault or why
    return {mesh = mesh, rules = rules}
  end)
  if fault then return nil, fault, "E_VALUE" end
  if not open then return nil, message, code end
  local options
  options, message, code = options_of(open, flags)
  if not options then return nil, message, code end
  local session = sessions.new(open, options)
  if flags.prompt ~= "" then return turn(session, flags.prompt) and 0 or EXIT_FAULT end
  if program.is_terminal "stdin" then greet(session) end
  return talk(session)
end

return M
