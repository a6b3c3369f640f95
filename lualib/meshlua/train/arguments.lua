-- arguments.lua: the command line of a program on a recipe: the program's own options, and those that the
-- recipe's config makes.
local json = require "meshlua.train.json"
local lib = require "meshlua.lib"
local options = require "meshlua.train.options"
local runs = require "meshlua.train.run"

local M = {}

local MOST = 1 << 40 -- records, steps

--- A row of verbs.lua, with what is the recipe's in it; nil where the recipe has no use of it.
local function own_row(row, recipe)
  local layout, own = recipe.layout or {}, lib.copy(row)
  if row[1] == "mesh" then
    own[2] = row.open and "" or runs.default_mesh(layout.mesh)
  elseif row[1] == "rules" then
    own[2] = not row.open and layout.rules or ""
    own[3] = row[3] .. ": " .. table.concat(lib.names(recipe.rules or {}), ", ")
  elseif row[1] == "size" then
    if not recipe.sizes then return nil end
    own.words = lib.names(recipe.sizes)
    own[3] = row[3] .. ": " .. table.concat(own.words, ", ")
  end
  return own
end

--- The program's own options, then the recipe's; and how many the first are.
---@param recipe table
---@param flags OptionRow[] of verbs.lua
---@return OptionRow[]
---@return integer
function M.rows(recipe, flags)
  local rows = {}
  for _, row in ipairs(flags) do rows[#rows + 1] = own_row(row, recipe) end
  local n = #rows
  for i, key in ipairs(lib.names(recipe.config)) do
    local row = {key, recipe.config[key], recipe.help and recipe.help[key]}
    for bound, value in pairs(recipe.range and recipe.range[key] or {}) do row[bound] = value end
    if key == "batch" or key == "steps" then row.least, row.most = row.least or 1, row.most or MOST end
    rows[n + i] = row
  end
  return rows, n
end

--- The recipe whose defaults are the config of the known model that --size names; the recipe where there is
--- none.
---@param recipe table
---@param args string[]
---@return table recipe
function M.sized(recipe, args)
  local size
  for _, word in ipairs(args) do size = word:match "^%-%-size=(.+)$" or size end
  size = size and recipe.sizes and recipe.sizes[size]
  if not size then return recipe end
  return setmetatable({config = lib.copy(recipe.config, size)}, {__index = recipe})
end

-- ---- a file of options ------------------------------------------------------------------------------

-- What such a file does not have: it is of one start of the program, not of the run.
local OF_A_START = {"config", "out", "resume", "overwrite", "help", "explain", "checks"}

--- A table of options as words of the command line; nil, message where a value is none.
---@param given table<string, any>
---@return string[]? words
---@return string? message
function M.words(given)
  local words = {}
  for i, key in ipairs(lib.names(given)) do
    local value = given[key]
    local kind = math.type(value) or type(value)
    if kind == "table" or kind == "function" or kind == "userdata" then
      return nil, ("%s is %s; expected a number, a text, true or false"):format(key, lib.kind(value))
    end
    words[i] = ("--%s=%s"):format(key, kind == "float" and ("%.17g"):format(value) or tostring(value))
  end
  return words
end

--- The table that a file of options returns, without what the program has.
local function read_table(path)
  local file <close>, missing = io.open(path, "rb")
  if not file then return nil, (missing:gsub("^.*: ", "")) end
  local text = file:read "a"
  local chunk, wrong = load(text or "", "@" .. path, "t", {})
  if not chunk then return nil, wrong:gsub("^.-:(%d+:)", "%1") end
  local ok, found = lib.unless_stopped(pcall(chunk))
  if not ok then return nil, lib.text(found):gsub("^.-:(%d+:)", "%1") end
  if type(found) ~= "table" then return nil, "it returns " .. lib.kind(found) .. ", not a table" end
  return found
end

--- The arguments with those of --config=FILE in front of them, where it is among them.
---@param args string[]
---@param recipe table
---@param rows OptionRow[] of M.rows, without those that --size changes
---@return string[]? args
---@return string? message
function M.with_file(args, recipe, rows)
  local path, size
  for _, word in ipairs(args) do
    path, size = word:match "^%-%-config=(.+)$" or path, word:match "^%-%-size=(.+)$" or size
  end
  if not path then return args end
  local sized = size and recipe.sizes and recipe.sizes[size] or {} -- given beside the file: it wins
  local given, why = read_table(path)
  if not given then return nil, ("--config=%s: %s"):format(path, why) end
  if given.recipe ~= nil and given.recipe ~= recipe.name then
    return nil, ("--config=%s: it is of the recipe %s, not of %s"):format(path, lib.text(given.recipe),
      recipe.name)
  end
  given.recipe = nil
  for _, key in ipairs(OF_A_START) do
    if given[key] ~= nil then
      return nil, ("--config=%s: %s is none of a run's: give it beside the file"):format(path, key)
    end
  end
  for key in pairs(sized) do given[key] = nil end
  local words, wrong = M.words(given)
  if not words then return nil, ("--config=%s: %s"):format(path, wrong) end
  local ok, message = options.parse(words, rows)
  if not ok then return nil, ("--config=%s: %s"):format(path, (message:gsub("%-%-([%w_]+)=", "%1 = "))) end
  local all = table.move(args, 1, #args, #words + 1, words)
  all[0] = args[0]
  return all
end

--- A file of options that starts such a run again.
---@param recipe table
---@param values table<string, any>
---@param config table
---@param flags OptionRow[] of verbs.lua
---@return string
function M.file(recipe, values, config, flags)
  local lines = {"-- What this run was started with: meshlua train RECIPE --config=FILE starts such a one.",
    "return {", ("  recipe = %q,"):format(recipe.name)}
  local function add(name, value)
    local text = math.type(value) == "float" and json.encode(value, nil, true) or ("%q"):format(value)
    lines[#lines + 1] = ("  %s = %s,"):format(name, text)
  end
  for _, name in ipairs(lib.names(config)) do add(name, config[name]) end
  lines[#lines + 1] = ""
  local skip = lib.set(OF_A_START)
  skip.size, skip.accumulate, skip.metrics, skip.profile = true, true, true, true -- they are in the rest, or files
  for _, row in ipairs(flags) do
    local value = values[row[1]]
    if not skip[row[1]] and value ~= nil and value ~= "" then add(row[1], value) end
  end
  lines[#lines + 1] = "}\n"
  return table.concat(lines, "\n")
end

--- --layers=scan and --layers=unrolled as what they set; other words as they are.
local function layered(recipe, args)
  local list = {[0] = args[0]}
  for i, word in ipairs(args) do
    local way = word:match "^%-%-layers=(%a+)$"
    if way == "scan" or way == "unrolled" then
      if recipe.config.scan == nil then
        return nil, ("--layers=%s: the recipe %s decides itself how its layers are written"):format(way,
          recipe.name)
      end
      word = "--scan=" .. tostring(way == "scan")
    end
    list[i] = word
  end
  return list
end

--- What the arguments say; --layers may be given twice: how many, and how they are written.
---@param recipe table
---@param args string[]
---@param rows OptionRow[] of M.rows
---@return table<string, any>? values
---@return table|string config the recipe's; or what is wrong
function M.read(recipe, args, rows)
  local list, wrong = layered(recipe, args)
  if not list then return nil, wrong end
  local values, message = options.parse(list, rows)
  if not values then return nil, message end
  local config = {}
  for key in pairs(recipe.config) do config[key] = values[key] end
  return values, config
end

-- What an option is nothing without: {option, value or nil for any but the default, what it needs, in words}.
local NEEDS = {
  {"save_every", nil, "out", "a folder: --out=..."}, {"resume", nil, "out", "a folder: --out=..."},
  {"on_nan", "rollback", "out", "a folder: --out=..."},
  {"on_spike", "rollback", "out", "a folder: --out=..."},
  {"patience", nil, "eval_every", "evaluations: --eval-every=..."},
}

-- Options that contradict each other: {option, value or nil for any but the default, another, its value or nil, why}.
local AGAINST = {
  {"resume", nil, "overwrite", nil, "--resume goes on from what is in --out"},
  {"resume", nil, "from", nil, "--resume goes on from what is in --out"},
  {"lora", nil, "freeze", nil, "--lora trains nothing but its adapters"},
  {"eval_batches", "0", "eval_every", nil, "--eval-batches=0 is no evaluation"},
}

--- What of the options does not go together, as a message; nil: nothing.
---@param values table<string, any>
---@param flags OptionRow[] of verbs.lua
---@return string?
function M.contradiction(values, flags)
  local default = {}
  for _, row in ipairs(flags) do default[row[1]] = row[2] end
  local function is_given(name, value)
    if value ~= nil then return values[name] == value end
    return values[name] ~= default[name]
  end
  local function written(name) return "--" .. name:gsub("_", "-") end
  for _, row in ipairs(NEEDS) do
    if is_given(row[1], row[2]) and not is_given(row[3]) then
      return ("%s%s needs %s"):format(written(row[1]), row[2] and "=" .. row[2] or "", row[4])
    end
  end
  for _, row in ipairs(AGAINST) do
    if is_given(row[1], row[2]) and is_given(row[3], row[4]) then
      return ("%s; leave %s away"):format(row[5], written(row[3]))
    end
  end
end

--- The options as lines: n of the program's own, and the recipe's.
---@return string
function M.help(recipe, rows, n)
  return options.help(table.move(rows, 1, n, 1, {})) .. "\n\nThe recipe " .. recipe.name .. ":\n"
    .. options.help(table.move(rows, n + 1, #rows, 1, {}))
end

--- The rule set of that name.
---@param recipe table
---@param name string "": none
---@return table? rules
---@return string? message, string? code
function M.rule_set(recipe, name)
  local rules = recipe.rules and recipe.rules[name]
  if rules or name == "" then return rules end
  local names = lib.names(recipe.rules or {})
  return nil, ("--rules=%s: no such rule set%s; there are %s"):format(name,
    lib.did_you_mean(name, names, "%s"), table.concat(names, ", ")), "E_VALUE"
end

return M
