-- help.lua: ?name and help(value): the row of what is public, the words of the command line, and of what is the user's own
-- where it comes from and what it has.
local cli = require "meshlua.program.cli"
local core = require "meshlua.core"
local lex = require "meshlua.repl.lex"
local subject = require "meshlua.repl.subject"

local M = {}

--- The comment that ends right above a line of a text, without its dashes.
local function comment_above(text, line)
  local lines, found = {}, {}
  for each in (text .. "\n"):gmatch "(.-)\n" do lines[#lines + 1] = each end
  for i = line - 1, 1, -1 do
    local words = lines[i] and lines[i]:match "^%s*%-%-%-?%s?(.*)$"
    if not words then break end
    table.insert(found, 1, "  " .. words)
  end
  return found, lines[line]
end

--- About a function of the user's: its first line and the comment above it.
local function about_function(session, fn)
  local info = debug.getinfo(core.unwrap(fn), "S")
  if info.what == "C" then return {"a function of Lua, written in C"} end
  local number = info.short_src:match "^In%[(%d+)%]$"
  local text = number and session.blocks[tonumber(number)]
  if not text and info.source:sub(1, 1) == "@" then
    local handle <close> = io.open(info.source:sub(2))
    text = handle and handle:read "a"
  end
  local found, line = {}, nil
  if text then found, line = comment_above(text, info.linedefined) end
  table.insert(found, 1, line and (line:gsub("^%s+", "")) or "a function")
  found[#found + 1] = ("  at %s:%d"):format(info.short_src, info.linedefined)
  return found
end

--- About a value that has no row: what it is, and what it has.
local function about_value(value)
  local owner = subject.owner_of(value)
  local lines = {owner and "a " .. owner or "a " .. type(value)}
  for _, mark in ipairs {".", ":"} do
    local names = {}
    for name in pairs(subject.members({value = value}, mark)) do names[#names + 1] = name end
    table.sort(names)
    if #names > 0 then
      lines[#lines + 1] = mark == "." and "  fields: " or "  methods: "
      cli.wrap(lines, table.concat(names, ", "), 4)
    end
  end
  return lines
end

--- Lines about a value.
---@param session Session
---@param value any
---@return string[]
function M.about(session, value)
  local name = subject.name_of(value)
  if name then return cli.about_functions(name) end
  local prefix = subject.prefix_of(value)
  if prefix and prefix ~= "" then return cli.about_functions(prefix:sub(1, -2)) end
  if type(value) == "function" then return about_function(session, value) end
  if type(value) == "string" then
    local lines = cli.about(value)
    if #lines > 0 then return lines end
  end
  return about_value(value)
end

--- Lines about what a person names: "x", "ml.jit", "nn.Linear", "E_SHAPE", "x:sum", "for".
---@param session Session
---@param word string
---@return string[]? lines, string? message
function M.of_word(session, word)
  local tokens = lex.tokens(word)
  local found = #tokens > 0 and subject.of(session, tokens, #tokens) or nil
  if found and found.field then return cli.about_functions(found.field.name) end
  if found and found.value ~= nil then return M.about(session, found.value) end
  if found and found.row then return cli.about_functions(found.row.name) end
  if found and found.type then return cli.about_functions(found.type) end
  local lines = cli.about(word)
  if #lines > 0 then return lines end
  local near = cli.near_topic(word)
  return nil, ("nothing is known of '%s'%s"):format(word, near and "; did you mean " .. near .. "?" or "")
end

return M
