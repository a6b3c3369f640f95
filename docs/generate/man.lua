-- man.lua: the manual page meshlua(1), from the rows of verbs, flags, exit codes and variables.
local core = require "meshlua.core"
local program = require "meshlua.program"
local verbs = require "meshlua.program.verbs"

local M = {}

--- Commands that the page shows, and what they are for; tests/spec/manual_spec.lua runs them.
local commands = {
  {"meshlua -e 'print(require \"meshlua\".ones {2, 3})'", "runs code"},
  {"meshlua --devices=8 -e 'print(require \"meshlua\".make_mesh({4, 2}, {\"data\", \"model\"}))'",
    "on eight virtual devices of this processor"},
  {"meshlua help matmul", "says what a function does"},
  {"meshlua --types > meshlua-types.lua", "writes the definitions for an editor"},
}

local function escape(text)
  text = text:gsub("\\", "\\e"):gsub("%-", "\\-")
  return (text:gsub("^([.'])", "\\&%1"):gsub("\n([.'])", "\n\\&%1"))
end

local function add(lines, ...)
  for _, line in ipairs {...} do lines[#lines + 1] = line end
end

--- A paragraph with a word in bold in front.
local function item(lines, word, doc)
  add(lines, ".TP", ".B " .. escape(word), escape(doc:gsub("^%l", string.upper)) .. ".")
end

--- The page.
---@return string
function M.text()
  local lines = {}
  add(lines, '.\\" Made by docs/generate.lua.',
    ('.TH MESHLUA 1 "" "meshlua %s" "User Commands"'):format(program.version), ".SH NAME",
    "meshlua \\- sharded tensor programs in Lua: traced, differentiated, partitioned, run", ".SH SYNOPSIS",
    ".B meshlua", "[\\fIflags\\fR] [\\fIscript.lua\\fR [\\fIarguments\\fR]]", ".br", ".B meshlua",
    "[\\fIflags\\fR] \\fIVERB\\fR [\\fIarguments\\fR]", ".SH DESCRIPTION", "Runs Lua 5.4 with the library",
    ".B meshlua", "in it, or does what a verb says. Without a script or a verb it reads lines and",
    "runs them. What has a dot, a slash or a dash in it is a script, as in", ".BR lua (1).", ".SH VERBS")
  for _, row in ipairs(verbs.verbs) do
    item(lines, (row[1] .. " " .. row[2]):match "^(.-) ?$", row[3])
    if row.flags then
      add(lines, ".RS")
      for _, flag in ipairs(row.flags) do item(lines, verbs.written(flag), flag[3]) end
      add(lines, ".RE")
    end
  end
  add(lines, ".SH OPTIONS")
  for _, row in ipairs(verbs.short) do item(lines, row[1], row[2]) end
  for _, row in ipairs(verbs.flags) do item(lines, verbs.written(row), row[3]) end
  add(lines, ".SH EXIT STATUS")
  for _, row in ipairs(verbs.exits) do item(lines, row[1], row[2]) end
  add(lines, ".SH ENVIRONMENT")
  for _, row in ipairs(core.env()) do
    if row.name:find "^MESHLUA_" then item(lines, row.name .. "=" .. row.value, row.doc) end
  end
  add(lines, ".SH EXAMPLES")
  for _, command in ipairs(commands) do
    add(lines, ".TP", escape(command[2]:gsub("^%l", string.upper)) .. ":", ".EX", escape(command[1]), ".EE")
  end
  add(lines, ".SH SEE ALSO", ".BR lua (1),", ".BR mpirun (1)")
  return table.concat(lines, "\n") .. "\n"
end

return M
