-- complete.lua: what may stand at the cursor: names, fields, methods, options, mesh axes, files; and how the
-- function around it is called.
local block = require "meshlua.repl.block"
local core = require "meshlua.core"
local exports = require "meshlua.exports"
local lex = require "meshlua.repl.lex"
local lib = require "meshlua.lib"
local subject = require "meshlua.repl.subject"

local M = {}

--- Words that types of rows stand for.
local words = {padding = {"same", "valid"}, dtype = lib.dtypes}

---@class Completion
---@field word string what stands there of it
---@field list string[] what could, sorted
---@field notes table<string, string> what stands behind a word that is inserted: "=", a quote, "/"
---@field signature string? of the function whose arguments the cursor is in, or that the word names

--- Names of a set that begin with a word, sorted.
local function matching(names, word)
  local list = {}
  for name in next, names do
    if name:sub(1, #word) == word then list[#list + 1] = name end
  end
  table.sort(list)
  return list
end

-- ---- calls ------------------------------------------------------------------------------------------

---@class Around the call that the cursor is in
---@field subject Subject?
---@field name string as written
---@field inside "("|"{"
---@field position integer of the argument, from 1
---@field table_at integer? the token { of the table of options
---@field option string? the cursor is in the value of this option

--- How an expression that ends with the i-th token is written.
local function written(tokens, i)
  local text = tokens[i].text
  while i > 2 and tokens[i - 2].kind == "name" and tokens[i - 1].text:find "^[.:]$" do
    text, i = tokens[i - 2].text .. tokens[i - 1].text .. text, i - 2
  end
  return text
end

--- Is the i-th token the end of what can be called?
local function is_callable_at(tokens, i)
  local token = tokens[i]
  return token and (token.kind == "name" or lex.is(token, ")") or lex.is(token, "]"))
end

--- Commas between an opening token and the end, outside of other brackets.
local function commas_behind(tokens, at)
  local n, k = 0, at + 1
  while tokens[k] do
    if lex.opens(tokens[k]) then k = lex.close_of(tokens, k) elseif lex.is(tokens[k], ",") then n = n + 1 end
    k = k + 1
  end
  return n
end

--- The call around the end of the tokens; nil where there is none.
---@return Around?
local function around(session, tokens)
  local open = lex.open_at_end(tokens)
  local top = open[#open]
  if not top then return nil end
  local table_at, call = top.word == "{" and top.at or nil, top
  if table_at and not is_callable_at(tokens, table_at - 1) then call = open[#open - 1] end
  if not call or call.word ~= "(" and call.at ~= table_at or not is_callable_at(tokens, call.at - 1) then
    return nil
  end
  local found = {subject = subject.of(session, tokens, call.at - 1), name = written(tokens, call.at - 1),
    inside = call.word, position = commas_behind(tokens, call.at) + 1, table_at = table_at}
  local at = #tokens
  while table_at and at > table_at and not lex.is(tokens[at], ",") do at = at - 1 end
  if table_at and lex.is(tokens[at + 2], "=") then found.option = tokens[at + 1].text end
  return found
end

--- A method's row counts the value in front of the colon.
local function is_method(call) return call.name:find(":", 1, true) ~= nil end

--- How a function of the user's is called.
local function own_signature(call)
  local fn, shift = call.subject and call.subject.value, is_method(call) and 1 or 0
  if type(fn) == "table" then -- a class of nn.module
    local meta = getmetatable(fn)
    local methods = type(meta) == "table" and rawget(meta, "__index")
    fn, shift = type(methods) == "table" and rawget(methods, "init") or rawget(fn, "init"), 1
  end
  if type(fn) ~= "function" then return nil end
  local info = debug.getinfo(core.unwrap(fn), "uS")
  local names = {}
  for i = 1 + shift, info.nparams do names[#names + 1] = debug.getlocal(core.unwrap(fn), i) end
  if info.isvararg then names[#names + 1] = "..." end
  if info.what == "C" then return nil end
  return ("%s(%s)"):format(call.name, table.concat(names, ", "))
end

--- How what is called there is to be called.
local function signature_of(call)
  if not call then return nil end
  local row = subject.row(call.subject)
  return row and row.text .. "\n  " .. row.doc or own_signature(call)
end

--- The type of the argument or option that the cursor is in.
local function type_at(call)
  local row = subject.row(call.subject)
  if not row then return nil end
  if call.option then
    local param = row.place[call.option]
    return row.options and row.options[call.option] or param and row.params[param].type or nil
  end
  local param = row.params[call.position + (is_method(call) and 1 or 0)]
  return param and param.type
end

-- ---- kinds of places --------------------------------------------------------------------------------

--- Axes of the meshes at hand.
local function mesh_axes(session)
  local names = {}
  local function look(value)
    if core.is_sharding(value) then value = value.mesh end
    if core.is_mesh(value) then
      for _, axis in ipairs(value.axis_names) do names[axis] = true end
    end
  end
  for _, live in next, session.live do look(block.value(live)) end
  for _, value in next, _G do look(value) end
  look(core.mesh_current())
  return names
end

--- Files that a path may become; of folders with a slash.
local function files(path)
  local folder, word = path:match "^(.*/)([^/]*)$"
  folder, word = folder or "", word or path
  local shown = folder == "" and "." or folder
  local names, notes = {}, {}
  for _, name in ipairs(core.list_folder(shown) or {}) do
    if name:sub(1, 1) ~= "." or word:sub(1, 1) == "." then
      names[name] = true
      if core.path_kind(shown .. "/" .. name) == "folder" then notes[name] = "/" end
    end
  end
  return names, word, notes
end

--- The words that a string of a type may be; nil: it may be any.
local function literals(kind)
  local names, any = {}, false
  for _, word in ipairs(kind and exports.alternatives((kind:gsub("^%*", ""))) or {}) do
    for _, name in ipairs(words[word] or {word:match '^"(.*)"$'}) do names[name], any = true, true end
  end
  return any and names or nil
end

local function is_P(call)
  return call and call.subject and subject.name_of(call.subject.value) == "P"
end

--- At the end of a string that has no end.
local function in_string(session, tokens, text)
  local last = table.remove(tokens)
  local quote = last.text:match "^%[=*%[" or last.text:sub(1, 1)
  local content = last.text:sub(#quote + 1)
  local closing = quote:gsub("%[", "]")
  local call = around(session, tokens)
  local names = is_P(call) and mesh_axes(session) or call and literals(type_at(call))
  local notes, word = {}, content
  if names then
    local is_closed = text:sub(last.to + 1, last.to + 1) == closing
    for name in next, names do notes[name] = is_closed and "" or closing end
  else
    names, word, notes = files(content)
  end
  return {word = word, list = matching(names, word), notes = notes}
end

--- Options that a table of a call may still have.
local function options(call, tokens)
  local row, names, notes = subject.row(call.subject), {}, {}
  for name in next, row and row.options or {} do names[name] = true end
  for _, param in ipairs(row and row.names and row.params or {}) do
    if param.optional then names[param.name] = true end
  end
  for k = call.table_at + 1, #tokens do
    if lex.is(tokens[k + 1], "=") then names[tokens[k].text] = nil end
  end
  for name in next, names do notes[name] = " = " end
  return names, notes
end

--- Names that stand alone: locals, globals, keywords, what the text itself has named.
local function names_at(session, tokens, word)
  local names = {}
  for name in next, session.live do names[name] = true end
  for name in next, _G do names[name] = subject.is_name(name) and true or nil end
  for name in next, lex.keywords do names[name] = true end
  for k = 1, #tokens - (word ~= "" and 1 or 0) do
    if tokens[k].kind == "name" and not lex.is(tokens[k - 1], ".") and not lex.is(tokens[k - 1], ":") then
      names[tokens[k].text] = true
    end
  end
  return names
end

--- Where no string is: a field, a method, an option, an axis or a name.
local function in_code(session, tokens, word, at)
  local mark = tokens[at]
  if lex.is(mark, ".") or lex.is(mark, ":") then
    return subject.members(subject.of(session, tokens, at - 1), mark.text), {}
  end
  local before = table.move(tokens, 1, at, 1, {})
  local call = around(session, before)
  if call and call.table_at and (lex.is(mark, "{") or lex.is(mark, ",")) then
    local names, notes = options(call, before)
    if #matching(names, word) > 0 then return names, notes end
  end
  if is_P(call) and not call.table_at and word == "" then
    local names = {}
    for axis in next, mesh_axes(session) do names[('"%s"'):format(axis)] = true end
    return names, {}
  end
  return word ~= "" and names_at(session, tokens, word) or {}, {}
end

--- What may stand at the end of a text.
---@param session Session
---@param text string up to the cursor
---@param behind string? what follows it
---@return Completion
function M.at(session, text, behind)
  local tokens = lex.tokens(text)
  local last = tokens[#tokens]
  if last and last.kind == "comment" then return {word = "", list = {}, notes = {}} end
  if last and last.kind == "string" and (last.open or last.to == #text and M.is_open(last)) then
    return in_string(session, tokens, text .. (behind or ""))
  end
  local is_word = last and last.to == #text and (last.kind == "name" or last.kind == "keyword")
  local word = is_word and last.text or ""
  local at = #tokens - (is_word and 1 or 0)
  local names, notes = in_code(session, tokens, word, at)
  local found = {word = word, list = matching(names, word), notes = notes}
  if word == "" then
    local mark = tokens[at]
    if lex.is(mark, "(") or lex.is(mark, ",") then found.signature = signature_of(around(session, tokens)) end
  elseif #found.list == 1 and found.list[1] == word then
    found.signature = signature_of {subject = subject.of(session, tokens, #tokens),
      name = written(tokens, #tokens)}
  end
  return found
end

--- Does a string token that ends a line lack its end?
function M.is_open(token)
  local quote = token.text:sub(1, 1)
  return quote ~= "[" and (#token.text == 1 or token.text:sub(-1) ~= quote)
end

return M
