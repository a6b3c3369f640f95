-- command.lua: what a person asks for beside Lua: ":plan step(model, x)", "?nn.Linear". A row each; :help lists them.
local block = require "meshlua.repl.block"
local core = require "meshlua.core"
local lex = require "meshlua.repl.lex"
local lib = require "meshlua.lib"

local M = {}

---@class Asked
---@field session Session
---@field write fun(...: string)
---@field show fun(value: any)

--- Is a text a command?
---@param text string
function M.is(text) return text:find "^%s*%?" ~= nil or text:find "^%s*:%a" ~= nil end

--- The text as Lua; raises where it is none.
local function compiled(session, text)
  local kind, found = block.check(text, session.chunk)
  if not kind then error(found, 0) end
  local fn, message = block.compile(session, found, session.chunk)
  return fn or error(message, 0)
end

--- The text as Lua, run with the locals at hand; raises what it raises.
local function run(session, text)
  return compiled(session, text)()
end

--- What a call in a text calls, and its arguments (with n); nil where the text is no call.
local function parts_of_call(session, text)
  local tokens = lex.tokens(text)
  local depth = 0
  if not lex.is(tokens[#tokens], ")") then return nil end
  for i = #tokens, 2, -1 do
    if lex.is(tokens[i], ")") then depth = depth + 1 end
    if lex.is(tokens[i], "(") then depth = depth - 1 end
    if depth == 0 then
      local callee = text:sub(1, tokens[i].from - 1)
      if not block.check("= " .. callee, "") then return nil end
      local arguments = text:sub(tokens[i].to + 1, tokens[#tokens].from - 1)
      return run(session, "= " .. callee), table.pack(run(session, "return " .. arguments))
    end
  end
end

--- A call of a jitted function, with its arguments; says how it is written where the text is none.
local function jitted_call(asked, text, how)
  local step, args = parts_of_call(asked.session, text)
  if step and core.type_name(step) == "jit" then return step, args end
  asked.write(how, " takes a call of a jitted function, which is not run: ", how, " step(model, x)\n")
end

--- A value for whoever expects one.
local function value_of(asked, text, how)
  if text:find "%S" then return run(asked.session, text) end
  asked.write(how, "\n")
end

-- ---- rows -------------------------------------------------------------------------------------------

local does = {}

function does.help(asked, text)
  if text:find "%S" then return M.about(asked, text) end
  for _, row in ipairs(M.rows) do
    local left = ":" .. row[1] .. (row[2] ~= "" and " " .. row[2] or "")
    asked.write(("  %-18s%s\n"):format(left, row[3]))
  end
  asked.write("  ?NAME             as :help NAME; help(x) takes a value\n",
    "  _, __, Out[n]     the last value, the one before, the value of block n\n",
    "  Tab, Ctrl-R       complete; search earlier blocks\n",
    "  Alt-Enter         a line end within a block; Enter takes one that is whole\n",
    "  Ctrl-X Ctrl-E     the block in $EDITOR\n",
    "  Ctrl-C, Ctrl-D    give up the block, or stop it; end\n")
end

function does.plan(asked, text)
  local step, args = jitted_call(asked, text, ":plan")
  if step then asked.show(require "meshlua".explain(step, table.unpack(args, 1, args.n))) end
end

function does.why(asked, text)
  local ml = require "meshlua"
  local step, args = parts_of_call(asked.session, text)
  if step and core.type_name(step) == "jit" then
    return asked.write((ml.why_sharding(step, table.unpack(args, 1, args.n))), "\n")
  end
  local x = value_of(asked, text, ":why takes a tensor (who gave it its layout), or a jitted function "
    .. "(why its last call was traced)")
  if x == nil then return end
  if core.type_name(x) == "jit" then return asked.write(x:why_miss(), "\n") end
  asked.write((ml.why_sharding(x)), "\n")
end

function does.viz(asked, text)
  local ml = require "meshlua"
  local x = value_of(asked, text, ":viz takes a tensor or a mesh")
  if core.is_mesh(x) then ml.visualize_mesh(x) elseif x ~= nil then ml.visualize_sharding(x) end
end

--- Seconds as "12.3 ms".
local function time_text(seconds)
  for _, unit in ipairs {{1, "s"}, {1e-3, "ms"}, {1e-6, "us"}} do
    if seconds >= unit[1] then return lib.format("%.3g %s", seconds / unit[1], unit[2]) end
  end
  return lib.format("%.0f ns", seconds * 1e9)
end

function does.time(asked, text)
  if not text:find "%S" then
    return asked.write ":time takes code, and runs it again and again for a second\n"
  end
  local fn = compiled(asked.session, text)
  local start = core.clock()
  fn()
  local first = core.clock() - start
  local times, sum = {}, 0
  while #times < 1 or sum < 1 and #times < 100000 do
    start = core.clock()
    fn()
    local seconds = core.clock() - start
    times[#times + 1], sum = seconds, sum + seconds
    if first > 10 then break end
  end
  table.sort(times)
  asked.write(("%s the first time; then %s at best, %s in the middle of %s\n"):format(time_text(first),
    time_text(times[1]), time_text(times[(#times + 1) // 2]), lib.count(#times, "run")))
end

--- What locals and globals hold, by name.
local function values_at_hand(session)
  local values = {}
  for name, value in next, _G do
    if type(name) == "string" and not M.stock[name] then values[name] = value end
  end
  for name, live in next, session.live do values[name] = block.value(live) end
  return values
end

--- Bytes of the tensors in a value, over all devices of this process; each is counted once.
local function bytes_in(value, seen)
  if seen[value] then return 0 end
  if core.is_operand(value) then
    seen[value] = true
    local x = core.is_box(value) and value:get() or value
    if core.is_traced(x) then return 0 end
    return not x:is_deleted() and x:on_device_size_in_bytes() or 0
  end
  local sum = 0
  if type(value) == "table" and value ~= package.loaded and value ~= _G then
    seen[value] = true
    for _, entry in next, value do sum = sum + bytes_in(entry, seen) end
  end
  return sum
end

function does.mem(asked)
  local memory, rows = core.memory(), {}
  asked.write(("%s live, %s at the peak, %s for temporaries of plans\n"):format(
    core.bytes_text(memory.live), core.bytes_text(memory.peak), core.bytes_text(memory.workspace)))
  for name, value in pairs(values_at_hand(asked.session)) do
    local n = (type(value) == "table" or type(value) == "userdata") and bytes_in(value, {}) or 0
    if n > 0 then rows[#rows + 1] = {name, n} end
  end
  table.sort(rows, function(a, b) return a[2] > b[2] or a[2] == b[2] and a[1] < b[1] end)
  for i = 1, math.min(#rows, 20) do
    asked.write(("  %-16s%s\n"):format(rows[i][1], core.bytes_text(rows[i][2])))
  end
  if #rows > 20 then asked.write(("  ... %d names in all\n"):format(#rows)) end
end

function does.mesh(asked)
  local ml, names = require "meshlua", {}
  local current, count = core.mesh_current(), ml.device_count()
  asked.write(lib.count(count, "device"), current and ", in the context of " .. tostring(current) or
    ", no mesh in context", "\n")
  local values = values_at_hand(asked.session)
  for name, value in pairs(values) do
    if core.is_mesh(value) then names[#names + 1] = name end
  end
  table.sort(names)
  for _, name in ipairs(names) do asked.write(("  %-16s%s\n"):format(name, tostring(values[name]))) end
end

function does.edit(asked, text)
  local n = tonumber(text) or asked.session.n - 1
  local before = asked.session.blocks[n]
  if not before then return asked.write(("there is no block %s\n"):format(text)) end
  local edited, message = require("meshlua.repl.editor").edited(before)
  if not edited then return asked.write(message, "\n") end
  asked.session.prepared = edited
end

function does.quit(asked) asked.session.ended = true end

---@type {[1]: string, [2]: string, [3]: string}[] word, what follows it, what it does
M.rows = {
  {"help", "[NAME]", "about a function, a value, an error code, a flag"},
  {"plan", "step(...)", "what this call would send, hold and compute; it is not run"},
  {"why", "x", "who gave a tensor its layout; why a function was traced"},
  {"viz", "x", "which device holds what of a tensor; a mesh"},
  {"time", "CODE", "how long it takes, the first time and later"},
  {"mem", "", "memory, and which names hold it"},
  {"mesh", "", "devices and meshes"},
  {"edit", "[n]", "block n, or the last one, in $EDITOR, and then at the prompt"},
  {"quit", "", "ends, as Ctrl-D does"},
}

--- Writes what is known of a name.
function M.about(asked, word)
  local lines, message = require("meshlua.repl.help").of_word(asked.session, word:match "^%s*(.-)%s*$")
  asked.write(lines and table.concat(lines, "\n"):gsub("^\n", "") or message, "\n")
end

--- Does what a command says.
---@param asked Asked
---@param text string
function M.run(asked, text)
  local name = text:match "^%s*%?+(.*)$"
  if name then
    if name:find "%S" then return M.about(asked, name) end
    return does.help(asked, "")
  end
  local word, rest = text:match "^%s*:(%w+)%s*(.-)%s*$"
  if does[word] then return does[word](asked, rest) end
  local words = {}
  for i, row in ipairs(M.rows) do words[i] = row[1] end
  local near = lib.nearest(word, words)
  asked.write(("there is no :%s%s; :help lists the commands\n"):format(word,
    near and ", did you mean :" .. near .. "?" or ""))
end

--- What a command may become while its word is typed; nil where Lua, or a name, follows.
---@param text string up to the cursor
---@return Completion?
function M.complete(text)
  local word = text:match "^%s*:(%a*)$"
  if not word then return nil end
  local list, notes = {}, {}
  for _, row in ipairs(M.rows) do
    if row[1]:sub(1, #word) == word then
      list[#list + 1], notes[row[1]] = row[1], row[2] ~= "" and " " or ""
    end
  end
  table.sort(list)
  return {word = word, list = list, notes = notes}
end

return M
