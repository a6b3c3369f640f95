-- The documents: links lead somewhere, files that they name are there and have the functions that they name there,
-- every folder of the source is told of, the README stays short, its picture is what its script draws, and the
-- reference has what the program has: flags, stages, switches, exit codes, error codes (variables: env_gate.lua).
local gate = require "gate"
require "meshlua"
local recipes = require "meshlua.train.recipe"
local verbs = require "meshlua.program.verbs"
local core = require "meshlua.core"

local README_LINES = 120
local program = assert(arg[1], "the folder of the build") .. "/meshlua"
local looked = 0

-- ---- links --------------------------------------------------------------------------------------------

--- The text of a document without its blocks of code.
local function prose(file)
  local lines, inside = {}, false
  for line in io.lines(file) do
    local fence = line:find "^%s*```"
    if fence then inside = not inside end
    lines[#lines + 1] = (inside or fence) and "" or line
  end
  return table.concat(lines, "\n")
end

--- The names by which a document's headings are linked to.
local function anchors(file)
  local set = {}
  for heading in ("\n" .. prose(file)):gmatch "\n#+ ([^\n]*)" do
    set[heading:lower():gsub("[^%w%s_-]", ""):gsub(" ", "-")] = true
  end
  return set
end

local function is_there(path)
  local handle = io.open(path)
  if handle then handle:close() end
  return handle ~= nil
end

--- Folders of the tree, of which documents speak.
local folders = {host = 1, kernels = 1, lualib = 1, models = 1, tests = 1, script = 1, bench = 1, docs = 1}

local documents = gate.files "%.md$"
for _, file in ipairs(documents) do
  local folder = file:match "^(.*/)[^/]*$" or ""
  for target in prose(file):gmatch "%]%(([^)%s]+)%)" do
    if not target:find "^%a+:" then
      looked = looked + 1
      local path, anchor = target:match "^([^#]*)#?(.*)$"
      path = path == "" and file or folder .. path
      repeat
        local n
        path, n = path:gsub("[^/]+/%.%./", "", 1)
      until n == 0
      if not is_there(path) then
        gate.fail(file, "a link to %s, which is not there", target)
      elseif anchor ~= "" and not anchors(path)[anchor] then
        gate.fail(file, "a link to %s, where no heading has this name", target)
      end
    end
  end
end

for _, file in ipairs(documents) do
  for path in prose(file):gmatch "`([%w_]+/[%w_./-]*)`" do
    if folders[path:match "^%w+"] and not path:find "NAME" and not path:find "/%." then
      looked = looked + 1
      if not is_there(path) then gate.fail(file, "it speaks of %s, which is not there", path) end
    end
  end
end

-- ---- what stands where --------------------------------------------------------------------------------
-- `name` (`folder/file.c`): the file has that function or type; so have `a`, `b` and `c` (`folder/file.c`). In a
-- table, a row that begins with `folder/` speaks of that folder's files.

local SOURCE = {c = true, h = true, cu = true, cuh = true, lua = true}

--- Has the file a function or a type of that name? One that is only called or mentioned does not count.
local function has(path, name)
  local text, word = "\n" .. gate.read(path), name:gsub("%p", "%%%0") .. "%f[^%w_]"
  if path:find "%.lua$" then
    return text:find("function [%w_.:]*%f[%w_]" .. word) or text:find("\n[%w_. ]*%f[%w_]" .. word .. " = ")
  end
  for line in text:gmatch "\n([%a_}#][^\n]*)" do
    if line:find("%f[%w_]" .. word) and not line:find "^#include" then return true end
  end
end

for _, file in ipairs(documents) do
  local text = prose(file):gsub("%s+", " ")
  for before, path in text:gmatch "([^()]*)%(`([%w_/]+%.%a+)`%)" do
    repeat
      local rest, name = before:match "^(.*)`([%w_.:]+)`[ ,]*$"
      if name then
        looked = looked + 1
        if is_there(path) and not has(path, name) then
          gate.fail(file, "there is no %s in %s", name, path)
        end
        before = rest:gsub(" and $", "")
      end
    until not name
  end
  for folder, cells in ("\n" .. gate.read(file)):gmatch "\n| `([%w_/]+/)` |([^\n]*)" do
    for name, ending in cells:gmatch "`([%w_]+%.(%a+))`" do
      looked = looked + 1
      if SOURCE[ending] and not is_there(folder .. name) then
        gate.fail(file, "there is no %s in %s", name, folder)
      end
    end
  end
end

local tour = gate.read "ARCHITECTURE.md"
local told = {}
for _, file in ipairs(gate.files "^%l+/.*%.%a+$") do
  local tree, folder = file:match "^(%l+)/", file:match "^(.*/)[^/]*$"
  local source = tree == "host" or tree == "kernels" or tree == "lualib"
  if source and not told[folder] and not tour:find("\n| `" .. folder .. "` |", 1, true) then
    gate.fail("ARCHITECTURE.md", "no row is about %s", folder)
  end
  told[folder] = true
end

-- ---- the README ---------------------------------------------------------------------------------------

local _, lines = gate.read("README.md"):gsub("\n", "")
if lines > README_LINES then gate.fail("README.md", "%d lines, more than %d", lines, README_LINES) end

local drawn = table.concat(gate.output(("'%s' --devices=8 docs/picture.lua"):format(program)), "\n") .. "\n"
if drawn ~= gate.read "docs/picture.svg" then
  gate.fail("docs/picture.svg", "it is not what docs/picture.lua draws")
end

-- ---- the reference ------------------------------------------------------------------------------------

local reference = gate.read "docs/reference.md"

--- What stands in backquotes in the first cell of each row of a section's tables: name -> true.
local function rows_of(section, pattern)
  local set = {}
  local text = (reference .. "\n## "):match("\n## " .. section .. "\n(.-)\n## ")
  if not text then gate.fail("docs/reference.md", "it has no section '%s'", section) end
  for cell in (text or ""):gmatch "\n| ([^|]*) |" do
    for name in cell:gmatch(pattern) do set[name] = true end
  end
  return set
end

--- Holds a section to what the program has.
local function hold(section, pattern, list)
  local set = rows_of(section, pattern)
  if #list == 0 then gate.fail(section, "the program has none? The gate looks in the wrong place") end
  for _, name in ipairs(list) do
    looked = looked + 1
    if not set[name] then gate.fail("docs/reference.md", "%s: no row for %s", section, name) end
    set[name] = nil
  end
  for name in pairs(set) do gate.fail("docs/reference.md", "%s: there is no %s", section, name) end
end

local function words(text, pattern)
  local list = {}
  for word in (text or ""):gmatch(pattern) do list[#list + 1] = word end
  return list
end

--- The page about training has a row for each thing in a recipe.
local training = gate.read "docs/training.md"
for _, row in ipairs(recipes.fields) do
  local line = ("\n| `%s` | %s |\n"):format(recipes.documented(row))
  looked = looked + 1
  if not training:find(line, 1, true) then gate.fail("docs/training.md", "there is no row%s", line) end
end

--- The flags that main.c reads.
local main = gate.read "host/main.c"
local flags = words(main, '{+"([%a-]+)", &p%->')
local commands = words(main:match "commands%[%] = {(.-)}", '"(%a+)"')
table.move(commands, 1, #commands, #flags + 1, flags)
for i, name in ipairs(flags) do flags[i] = "--" .. name end
hold("Flags", "`(%-%-[%a-]+)", flags)

--- A table of the reference begins its rows with the words of verbs.lua.
local function hold_words(section, rows)
  for _, row in ipairs(rows) do
    local line = ("| `%s` | %s"):format(row[1], row[2])
    looked = looked + 1
    if not reference:find("\n" .. line, 1, true) then
      gate.fail("docs/reference.md", "%s: no row begins with\n%s", section, line)
    end
  end
end

local function each(list, fn)
  local made = {}
  for i, row in ipairs(list) do made[i] = fn(row) end
  return made
end

hold("Flags", "`(%-%-[%a-]+)", each(verbs.flags, function(row) return "--" .. row[1] end))
hold_words("Flags", each(verbs.flags, function(row) return {verbs.written(row), row[3]} end))
hold("Verbs", "`(%l+)[ `]", each(verbs.verbs, function(row) return row[1] end))
hold_words("Verbs", each(verbs.verbs, function(row)
  return {(row[1] .. " " .. row[2]):match "^(.-) ?$", row[3]}
end))
for _, verb in ipairs {"train", "plan"} do
  local flags_of = each(verbs.find(verb).flags, function(row) return {verbs.written(row), row[3]} end)
  hold_words("Flags of " .. verb, flags_of)
  hold("Flags of " .. verb, "`(%-%-[%a-]+)", each(flags_of, function(row) return row[1]:match "[^=]+" end))
end
hold_words("Error codes", verbs.codes)

local stages = table.concat(gate.output(("'%s' --dump=? 2>&1; true"):format(program)), " ")
stages = (stages:match "the stages are (.*)" or ""):gsub(" and ", ", ")
hold("Stages", "`([%a_]+)`", words(stages, "[%a_]+"))
hold("Switches", "`([%a_]+)`", core.passes())
hold("Exit codes", "%d+", each(verbs.exits, function(row) return row[1]:match "%d+" end))
hold("Error codes", "`(E_%u+)`", words(gate.read "host/base/err.h", "\n    (E_[%u]+), "))

gate.finish(looked, [[links are relative to their document; a function is named with the file that defines
it, and every folder of the source has a row in ARCHITECTURE.md; what the program takes has a row in
docs/reference.md; the picture is drawn anew as docs/picture.lua says.]])
