-- plan.lua: the verb `plan`: what a training step of a recipe, or of a model that a config.json describes,
-- would hold, send, compute and take on devices that need not be there.
local arguments = require "meshlua.train.arguments"
local core = require "meshlua.core"
local files = require "meshlua.train.files"
local estimate = require "meshlua.plan.estimate"
local lib = require "meshlua.lib"
local precision = require "meshlua.train.precision"
local processor = require "meshlua.insight.processor"
local recipe_of = require "meshlua.plan.recipe"
local recipes = require "meshlua.train.recipe"
local report = require "meshlua.plan.report"
local runs = require "meshlua.train.run"
local search = require "meshlua.plan.search"
local step_of = require "meshlua.plan.step"
local verbs = require "meshlua.program.verbs"

require "meshlua" -- what tensors can do

local M = {}

local DEVICES = {"h200", 8} -- where the user names none
local MOST_DEVICES = 1 << 15
local MOST_UNROLLED = 256 -- layers
local DOUBLINGS = 4 -- of the devices, where nothing fits on those there are

--- What of the options cannot be planned, as a message; or nil.
local function fault_of(recipe, values, config)
  local dtype, wrong = precision.of(config)
  if not dtype then return wrong end
  local kinds = estimate.kinds((core.device_kind()))
  if not kinds[values.kernels] then
    return ("--kernels=%s: of %s is known: %s"):format(values.kernels, (core.device_kind()),
      table.concat(lib.names(kinds), ", "))
  end
  if config.scan == false and config.layers > MOST_UNROLLED then
    return ("--layers=unrolled: of %d layers; at most %d are written out, a loop may have more"):format(
      config.layers, MOST_UNROLLED)
  end
  local known, message = arguments.rule_set(recipe, values.rules)
  if not known and message then return message end
  known, message = runs.check_batch(nil, nil, config.batch, math.max(1, values.microbatches))
  return not known and message or nil
end

--- Reads the command line: the recipe, the program's options, the recipe's config; nil, message, code.
local function read_arguments(path, words, ndevices)
  local recipe, message, code = recipe_of.load(path, ndevices)
  if not recipe then return nil, path .. ": " .. message, code end
  local fault = recipes.fault(recipe)
  if fault then return nil, path .. ": " .. fault, "E_VALUE" end
  recipe = arguments.sized(recipe, words)
  local rows, n = arguments.rows(recipe, verbs.find "plan".flags)
  local values, config = arguments.read(recipe, words, rows)
  if not values then return nil, config .. "; --help lists the options", "E_VALUE" end
  if values.help then
    print(("usage: meshlua plan %s [--devices=fake:KIND:N] [--key=value ...]\n\n%s"):format(path,
      arguments.help(recipe, rows, n)))
    return recipe
  end
  message = fault_of(recipe, values, config)
  if message then return nil, message, "E_VALUE" end
  return recipe, values, config
end

--- Of the layouts that cannot be, the one to tell of: of the rule sets that name the mesh's axes the one that names
--- the fewest others; where none does, the one that splits most.
local function telling(recipe, refused)
  local best, fewest = refused[#refused], math.huge
  for _, r in ipairs(refused) do
    local axes = runs.named_axes(recipe.rules and recipe.rules[r.layout.rules])
    local named, n = true, #lib.names(axes)
    for _, axis in ipairs(r.layout.axes) do named = named and axes[axis] end
    if named and n < fewest then best, fewest = r, n end
  end
  return best
end

--- How many devices are planned for. From here on they are fake, as nothing is to run, and more of them, to say on how
--- many it would fit.
local function count_devices()
  local kind, fake = core.device_kind()
  local n, of_host = core.device_count(), core.host_devices()
  if not fake then
    if n == 1 then kind, n = DEVICES[1], DEVICES[2] end
    processor.stand_in = kind == "cpu"
    of_host = n
  end
  local most = math.max(n, math.min(n << DOUBLINGS, MOST_DEVICES))
  core.set_devices(("fake:%s:%dx%d"):format(kind, -(-most // of_host), of_host))
  return n
end

--- fn(recipe, ...), in which functions of the recipe run: what they raise is a message.
local function with_recipe(path, fn, recipe, ...)
  local results = table.pack(lib.unless_stopped(pcall(fn, recipe, ...)))
  local fault = results[2]
  if results[1] then return table.unpack(results, 2, results.n) end
  if type(fault) ~= "string" then fault = "it raises " .. lib.kind(fault) end
  if fault:find "^meshlua/" then error(fault, 0) end -- of our own making
  return nil, ("%s: a step of the recipe cannot be planned: %s; mend it there"):format(path,
    fault:match "^[^\n]*"), "E_VALUE"
end

---@param path string
---@param words string[] what stands behind it
---@return integer? code, string? message, string? error
function M.run(path, words)
  collectgarbage("incremental", 400) -- a plan leaves little behind it, and the program ends soon
  local ndevices = count_devices()
  local recipe, values, config = read_arguments(path, words, ndevices)
  if not recipe then return nil, values, config end
  if not values then return 0 end
  local data, message, code = with_recipe(path, step_of.data, recipe, config,
    values.data ~= "" and values.data or nil)
  if not data then return nil, message, code end
  local asked = {mesh = values.mesh, rules = values.rules, microbatches = values.microbatches,
    kernels = values.kernels, remat = table.concat(words, " "):find "%-%-remat=" ~= nil}
  local found
  found, message = with_recipe(path, search.find, recipe, config, data, asked, ndevices)
  if not found then return nil, message, "E_VALUE" end
  if not found.plans[1] then
    local last = telling(recipe, found.refused)
    return nil, ("--mesh=%s --rules=%s: %s"):format(step_of.mesh_text(last.layout), last.layout.rules,
      last.why), "E_VALUE"
  end
  found.recipe, found.ndevices = recipe, ndevices
  local _, fault, kind_of = with_recipe(path, step_of.explain, recipe, data, found.plans[1])
  if fault then return nil, fault, kind_of end
  if values.against ~= "" then
    local other, why, kind = recipe_of.json(values.against)
    local lines
    if other then lines, why = report.against(found, other) end
    if not lines then return nil, ("--against=%s: %s"):format(values.against, why), kind or "E_VALUE" end
    found.against = {path = values.against, lines = lines}
  end
  if values.html ~= "" then
    local ok, why = files.write(values.html, report.html(found))
    if not ok then return nil, why, "E_IO" end
  end
  print(values.json and report.json(found) or report.text(found))
  return 0
end

M.run = core.plain(M.run)

return M
