-- cli.lua: the command line as people see it: help, lists, what is wrong with a flag or a word; and the verbs.
local core = require "meshlua.core"
local lib = require "meshlua.lib"
local options = require "meshlua.train.options"
local verbs = require "meshlua.program.verbs"

local M = {}

local EXIT_USAGE, EXIT_ENVIRONMENT = 2, 3
local WIDTH, LEFT = 79, 20 -- of the text, of what stands left of it

-- ---- help -------------------------------------------------------------------------------------------

--- Adds words to the last of the lines, and further lines where they do not fit, which begin with spaces.
---@param lines string[]
---@param doc string
---@param left integer how many
local function wrap(lines, doc, left)
  local line = lines[#lines]
  for word in doc:gmatch "%S+" do
    if #line + 1 + #word > WIDTH and #line > left then
      lines[#lines], line = line, (" "):rep(left)
      lines[#lines + 1] = line
    end
    line = (line == "" or line:sub(-1) == " ") and line .. word or line .. " " .. word
  end
  lines[#lines] = line
end

--- Adds a row: what is written, and the words about it.
local function add(lines, written, doc)
  local line = "  " .. written
  if #line > LEFT - 2 then
    lines[#lines + 1], line = line, ""
  end
  lines[#lines + 1] = line .. (" "):rep(LEFT - #line)
  wrap(lines, doc, LEFT)
end

--- What is said of a flag: of --dump the stages, too.
local function doc_of(row)
  return row[1] ~= "dump" and row[3]
    or ("%s. Stages: %s, factors: the sharding rules; source: on GPUs; all: programs"):format(row[3],
      table.concat(core.stages(), ", "))
end

local function usage_of(row)
  return ("usage: meshlua %s"):format(row[1]) .. (row[2] ~= "" and " " .. row[2] or "")
    .. ((row.passes or row.flags) and " [--flag=value ...]" or "")
end

--- About a verb: its lines.
local function about_verb(row)
  local lines = {usage_of(row), ""}
  add(lines, row[1], row[3])
  for _, flag in ipairs(row.flags or {}) do add(lines, verbs.written(flag), flag[3]) end
  return lines
end

--- Prints the verbs, the flags and the exit codes.
function M.help()
  local lines = {"usage: meshlua [flags] [script.lua [arguments]]", "       meshlua [flags] VERB [arguments]",
    "", "Verbs; meshlua help VERB says more:"}
  for _, row in ipairs(verbs.verbs) do
    add(lines, row[1] .. (row[2] ~= "" and " " .. row[2] or ""), row[3])
  end
  table.move({"", "Flags:"}, 1, 2, #lines + 1, lines)
  for _, row in ipairs(verbs.short) do add(lines, row[1], row[2]) end
  for _, row in ipairs(verbs.flags) do add(lines, verbs.written(row), doc_of(row)) end
  table.move({"", "Exit codes:"}, 1, 2, #lines + 1, lines)
  for _, row in ipairs(verbs.exits) do add(lines, row[1], row[2]) end
  io.write(table.concat(lines, "\n"), "\n")
end

--- Rows of exports/ that a word names: "matmul", "ml.matmul", "nn.Linear", "Linear"; and what "nn" or "Mesh" has.
local function about_functions(word)
  local exports, found, members, inside = require "meshlua.exports", {}, {}, {}
  local function show(name)
    local row = exports.row(name)
    found[#found + 1] = ""
    wrap(found, row.text, 4)
    found[#found + 1] = "  "
    wrap(found, row.doc, 2)
  end
  word = word:gsub("^ml%.", "")
  for _, name in ipairs(exports.names()) do
    local of, own = name:match "^(.+)[.:]([%w_]+)$"
    if name == word then show(name) end
    if of == word and own:sub(1, 2) ~= "__" then members[#members + 1] = own end
    if own == word then inside[#inside + 1] = name end
  end
  for _, name in ipairs(#found == 0 and inside or {}) do show(name) end
  if #members > 0 then
    found[#found + 1] = word .. " has "
    wrap(found, table.concat(members, ", "), 2)
  end
  return found
end

--- What is known of a word, as lines; empty: nothing.
local function about(word)
  local row, lines = verbs.find(word), {}
  if row then return about_verb(row) end
  local own = word:gsub("^%-%-", "")
  for _, flag in ipairs(verbs.flags) do
    if flag[1] == own then add(lines, verbs.written(flag), doc_of(flag)) end
  end
  for _, verb in ipairs(verbs.verbs) do
    for _, flag in ipairs(verb.flags or {}) do
      if verbs.written(flag):match "[^=]+" == "--" .. own then
        add(lines, ("%s %s"):format(verb[1], verbs.written(flag)), flag[3])
      end
    end
  end
  for _, code in ipairs(verbs.codes) do
    if code[1] == word then add(lines, word, "an error of " .. code[2]) end
  end
  for _, variable in ipairs(core.env()) do
    if variable.name == word then add(lines, word .. "=" .. variable.value, variable.doc) end
  end
  local functions = about_functions(word)
  return table.move(functions, 1, #functions, #lines + 1, lines)
end

M.wrap, M.about, M.about_functions = wrap, about, about_functions

--- The name nearest to a word that has no help.
function M.near_topic(word)
  local names = require("meshlua.exports").names()
  names = table.move(names, 1, #names, 1, {})
  for _, list in ipairs {verbs.verbs, verbs.flags, verbs.codes} do
    for _, row in ipairs(list) do
      names[#names + 1] = row[1]
      for _, flag in ipairs(row.flags or {}) do
        names[#names + 1] = verbs.written(flag):match "%-%-([^=]+)"
      end
    end
  end
  return lib.nearest(word, names)
end

-- ---- what is wrong ----------------------------------------------------------------------------------

local function did_you_mean(near) return near and "; did you mean " .. near .. "?" or "" end

--- Prints what is wrong with a flag.
---@param flag string as given
---@param wrong string
function M.bad_flag(flag, wrong)
  local names = {}
  for i, row in ipairs(verbs.flags) do names[i] = "--" .. row[1] end
  local near = wrong == "unknown" and flag:find "^%-%-" and lib.nearest(flag:match "^[^=]*", names)
  io.stderr:write("meshlua: ", flag, ": ", wrong, did_you_mean(near),
    "\n       meshlua --help lists the flags\n")
end

--- A command line of `run -n R` as it is written now.
local function run_now(args)
  local rest, count, before, i = {}, "R", true, 1
  while i <= #args do
    local n = before and args[i]:match "^%-n(.*)$"
    if n == "" then
      count, i = args[i + 1] or "R", i + 1
    elseif n then
      count = n
    else
      rest[#rest + 1], before = args[i], before and args[i]:find "^%-"
    end
    i = i + 1
  end
  return ("meshlua --processes=%s %s"):format(count, rest[1] and table.concat(rest, " ") or "script.lua")
end

--- Prints what is wrong with a word in a script's place that is neither verb nor file.
local function bad_word(word, args)
  if word == "run" then
    io.stderr:write("meshlua: run: the number of processes is a flag: ", run_now(args), "\n")
    return EXIT_USAGE
  end
  local names = {}
  for i, row in ipairs(verbs.verbs) do names[i] = row[1] end
  local script = io.open(word .. ".lua")
  if script then script:close() end
  io.stderr:write("meshlua: ", word, ": neither a verb nor a file",
    did_you_mean(script and word .. ".lua" or lib.nearest(word, names)),
    "\n       meshlua --help lists the verbs\n")
  return EXIT_USAGE
end

-- ---- verbs ------------------------------------------------------------------------------------------

--- A flag's long form of a short one, as -o of --out; nil: there is none.
local function long_of(row, word)
  for _, flag in ipairs(row.flags or {}) do
    if flag.short and word == "-" .. flag.short then return verbs.written(flag):match "[^=]+" end
  end
end

--- Sorts a verb's arguments: those that its row counts, and its flags. One that reads its own gets all.
---@param row VerbRow
---@param args string[]
---@return string[]? arguments, table|string flags
local function sort_arguments(row, args)
  local given, flags, named = {}, {}, {}
  for name in row[2]:gmatch "%S+" do named[#named + 1] = name end
  local long
  for i, word in ipairs(args) do
    if row.passes and #given == #named then return given, table.move(args, i, #args, 1, {}) end
    local is_flag = not row.words and (long or word:find "^%-%-.")
    if long then word, long = long .. "=" .. word, nil else long = long_of(row, word) end
    if not long then table.insert(is_flag and flags or given, word) end
  end
  if long then flags[#flags + 1] = long end -- its value is missing
  local values, message = flags, nil
  if not row.passes then values, message = options.parse(flags, row.flags or {}) end
  if not values then return nil, message end
  local many = named[1] and named[#named]:find "%.%.%.$"
  if #given > #named and not many then
    return nil, ("'%s' is one argument too many"):format(given[#named + 1])
  end
  local missing = named[#given + 1]
  if missing and not missing:find "^%[" then return nil, "it needs " .. missing:match "[^.]+" end
  return given, values
end

--- What verbs do: fn(given, flags) returns the exit code, or nil for 0.
local does = {}

function does.train(given, flags)
  return require("meshlua.program.train").run(given[1], flags)
end

--- A verb that lives in a file of its own, with its arguments in front of its flags: it returns an exit code, or nil,
--- message, code.
for _, word in ipairs {"chat", "plan", "inspect", "diff", "check", "convert", "replay", "tokenize"} do
  does[word] = function(given, flags)
    given[#given + 1] = flags
    local exit, message, code = require("meshlua.program." .. word).run(table.unpack(given))
    if exit or not message then return exit end
    io.stderr:write("meshlua ", word, ": ", message, "\n")
    return (code == "E_VALUE" or code == "E_DTYPE") and EXIT_USAGE or EXIT_ENVIRONMENT
  end
end

function does.doctor() M.write_table(require("meshlua.program.doctor").rows()) end

function does.help(given)
  if not given[1] then return M.help() end
  local lines = about(given[1])
  if #lines == 0 then
    io.stderr:write("meshlua help: nothing is known of '", given[1], "'",
      did_you_mean(M.near_topic(given[1])), "\n")
    return EXIT_USAGE
  end
  io.write((table.concat(lines, "\n"):gsub("^\n", "")), "\n")
end

--- Does what a verb's word says. Returns the exit code.
---@param word string
---@param args string[]
---@return integer
function M.verb(word, args)
  local row = verbs.find(word)
  if not row then return bad_word(word, args) end
  if args[1] == "--help" or not row.passes and lib.position(args, "--help") then
    io.write(table.concat(about_verb(row), "\n"), "\n")
    return 0
  end
  local given, flags = sort_arguments(row, args)
  if not given then
    io.stderr:write("meshlua ", word, ": ", flags, "\n       ", usage_of(row), "\n")
    return EXIT_USAGE
  end
  return does[word](given, flags) or 0
end

-- ---- lists ------------------------------------------------------------------------------------------

--- Writes rows as columns: see lib.aligned.
function M.write_table(rows, right)
  io.write(table.concat(lib.aligned(rows, right), "\n"), "\n")
end

--- Prints the environment variables, and which are set.
function M.env()
  local rows = {{"variable", "value", "now", "meaning"}}
  for _, row in ipairs(core.env()) do rows[#rows + 1] = {row.name, row.value, row.now or "-", row.doc} end
  M.write_table(rows)
end

--- Prints the ops and the rules each has: one line an op.
function M.ops()
  local rows = {{"op", "operands", "shape", "gradient", "sharding", "fold", "expand", "runs as", "meaning"}}
  local function mark(has) return has and "yes" or "-" end
  for _, op in ipairs(core.ops()) do
    rows[#rows + 1] = {op.name, op.operands or "", "yes", op.grad, mark(op.factors), mark(op.folds),
      mark(op.expands), op.runs, op.doc}
  end
  M.write_table(rows)
end

--- Prints the public names as annotations for editors.
function M.types()
  io.write(require("meshlua.exports.types").text())
end

return M
