-- helper.lua: what specs share. busted loads it before the specs; a spec gets it by
-- `require "spec.helper"`.
local busted = require "busted"
local ml = require "meshlua"

local M = {files = {}, folders = {}}
package.loaded["spec.helper"] = M

--- `pending` inside a spec; busted.pending is the one that stands in its place.
---@param reason string
M.pending = require "busted.core"().pending

--- Does a sanitizer watch? It is slower: of many cases of one kind, fewer do.
M.watched = rawget(_G, "SANITIZE") ~= nil

--- An `it` whose code others run, too, with other numbers: nothing where a sanitizer watches.
M.figures = M.watched and function() end or function(...) return busted.it(...) end

-- Finalizers may free what has finalizers.
local function collect()
  collectgarbage()
  collectgarbage()
end

--- The path of the program that runs the specs.
function M.program()
  local i = 0
  while arg[i - 1] do i = i - 1 end
  return arg[i]
end

--- Bytes of the core that `fn` leaves behind at each call, once its first calls have filled the caches. Zero
--- is what a spec wants.
---@param fn function
---@param times integer? calls that are measured; 3
function M.left_behind(fn, times)
  fn()
  fn()
  collect()
  local before = ml.core.memory().live
  for _ = 1, times or 3 do fn() end
  collect()
  return ml.core.memory().live - before
end

--- A Param with this tensor.
function M.param(t) return ml.core.box_new(t, {kind = "param"}) end

--- How often a jitted function was traced, and how often not.
function M.traces(step)
  local hits, misses = step:stats()
  return misses, hits
end

local function quote(text)
  return "'" .. tostring(text):gsub("'", "'\\''") .. "'"
end

local function read_and_remove(file)
  local handle <close> = assert(io.open(file, "rb"))
  local text = handle:read "a"
  os.remove(file)
  return text
end

--- Runs a shell command; "$MESHLUA" in it is the program. Returns what it wrote and its exit code (128 + N
--- where signal N ended it).
---@param command string
---@param input string? its standard input; empty if nil
---@return string out, string err, integer code
function M.shell(command, input)
  local files = {os.tmpname(), os.tmpname(), os.tmpname()}
  local handle <close> = assert(io.open(files[1], "wb"))
  handle:write(input or "")
  handle:flush()
  local _, how, code = os.execute(("MESHLUA=%s; export MESHLUA; { %s\n} <%s >%s 2>%s"):format(
    quote(M.program()), command, files[1], files[2], files[3]))
  os.remove(files[1])
  return read_and_remove(files[2]), read_and_remove(files[3]), how == "signal" and 128 + code or code
end

--- Runs the program with these arguments. Returns what it wrote and its exit code.
---@param arguments string[]
---@param input string?
---@return string out, string err, integer code
function M.run(arguments, input)
  local words = {}
  for i, word in ipairs(arguments) do words[i] = quote(word) end
  return M.shell('"$MESHLUA" ' .. table.concat(words, " "), input)
end

--- A new file with this content; it is removed after the test.
---@param content string
---@return string
function M.file(content, ending)
  local name = os.tmpname()
  M.files[#M.files + 1] = name
  if ending then
    name = name .. ending
    M.files[#M.files + 1] = name
  end
  local handle <close> = assert(io.open(name, "wb"))
  handle:write(content)
  return name
end

--- All of a file.
---@param path string
---@return string
function M.read(path)
  local handle <close> = assert(io.open(path, "rb"))
  return handle:read "a"
end

--- A folder that is not there yet; it is removed after the test, with what is in it then.
---@return string
function M.folder()
  local name = os.tmpname()
  os.remove(name)
  M.folders[#M.folders + 1] = name
  return name
end

--- fn(folder), which is not there yet and is gone after it.
function M.within(fn)
  local name = os.tmpname()
  os.remove(name)
  local ok, message = pcall(fn, name)
  ml.core.disk_task {{"remove", name}}:wait()
  if not ok then error(message, 0) end
end

local function values(x)
  if type(x) == "userdata" and x.totable then return x:totable() end
  return x
end

--- Where two numbers, (nested) tables or tensors differ by more than `tolerance` times the larger magnitude
--- (at least 1): a text; nil where they do not. NaN equals NaN.
---@return string?
function M.difference(expected, actual, tolerance, place)
  expected, actual, place = values(expected), values(actual), place or "value"
  if type(expected) == "table" and type(actual) == "table" then
    if #expected ~= #actual then return ("%s: %d and %d elements"):format(place, #expected, #actual) end
    for i = 1, #expected do
      local found = M.difference(expected[i], actual[i], tolerance, ("%s[%d]"):format(place, i))
      if found then return found end
    end
    return nil
  end
  if type(expected) ~= "number" or type(actual) ~= "number" then
    return expected ~= actual and ("%s: %s and %s"):format(place, tostring(expected), tostring(actual)) or nil
  end
  if expected == actual or expected ~= expected and actual ~= actual then return nil end
  local scale = math.max(1, math.abs(expected), math.abs(actual))
  if math.abs(expected - actual) <= (tolerance or 0) * scale then return nil end
  return ("%s: expected %.17g, got %.17g"):format(place, expected, actual)
end

--- Raises where the two differ; see `difference`.
function M.close(expected, actual, tolerance)
  local found = M.difference(expected, actual, tolerance)
  if found then error(found, 2) end
end

--- A spec of what is so on processors only; on GPUs it is pending, with the reason.
---@param reason string
function M.on_processors(reason, name, fn)
  busted.it(name, function()
    if ml.core.device_kind() ~= "cpu" then M.pending(reason) end
    fn()
  end)
end

--- Calls fn, and waits for GPUs: they find what is wrong with data later.
local function call(fn, ...)
  fn(...)
  ml.core.wait()
end

--- Raises unless fn raises a text that holds `wanted` (plain text). Returns the text.
---@param wanted string
---@param fn function
function M.raises(wanted, fn, ...)
  local ok, message = pcall(call, fn, ...)
  if ok then error("it did not raise", 2) end
  if not tostring(message):find(wanted, 1, true) then
    error(("it raised\n  %s\nwithout\n  %s"):format(tostring(message), wanted), 2)
  end
  return message
end

local tests = 0
busted.subscribe({"test", "end"}, function()
  tests = tests + 1
  for _, name in ipairs(M.files) do os.remove(name) end
  for _, name in ipairs(M.folders) do ml.core.disk_task {{"remove", name}}:wait() end
  M.files, M.folders = {}, {}
  if tests % 16 == 0 then collect() end -- each time, it took half of the time of specs with many tests
end)
busted.subscribe({"suite", "end"}, function()
  if tests > 0 then return end
  io.stderr:write("the spec has no tests\n")
  os.exit(1)
end)

return M
