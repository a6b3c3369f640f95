-- plan.lua: the verb `plan`: what a training step of a recipe, or of a model that a config.json describes,
-- would hold, send, compute and take on devices that need not be there.
local arguments = require "meshlua.train.arguments"
local core = require "meshlua.core"
local files = require "meshlua.train.files"
local recipe_of = require "meshlua.plan.recipe"
local report = require "meshlua.plan.report"
local runs = require "meshlua.train.run"
local search = require "meshlua.plan.search"
local step_of = require "meshlua.plan.step"
local verbs = require "meshlua.program.verbs"

require "meshlua" -- what tensors can do

local M = {}

local DEVICES = {"h200", 8} -- where the user names none
local MOST_DEVICES = 65535
local DOUBLINGS = 4 -- of the devices, where nothing fits on those there are

--- --layers=scan and --layers=unrolled as what they set; other words as they are.
local function expanded(words, recipe)
  local list = {}
  for i, word in ipairs(words) do
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

--- Reads the command line: the recipe, the program's options, the recipe's config; nil, message, code.
local function read_arguments(path, words, ndevices)
  local recipe, message, code = recipe_of.load(path, ndevices)
  if not recipe then return nil, path .. ": " .. message, code end
  local fault = runs.recipe_fault(recipe)
  if fault then return nil, path .. ": " .. fault, "E_VALUE" end
  recipe = arguments.sized(recipe, words)
  words, message = expanded(words, recipe)
  if not words then return nil, message, "E_VALUE" end
  local rows, n = arguments.rows(recipe, verbs.find "plan".flags)
  local values, config = arguments.read(recipe, words, rows)
  if not values then return nil, config .. "; --help lists the options", "E_VALUE" end
  if values.help then
    print(("usage: meshlua [--devices=fake:KIND:N] plan %s [--key=value ...]\n\n%s"):format(path,
      arguments.help(recipe, rows, n)))
    return recipe
  end
  if values.rules ~= "" then
    local set, why = arguments.rule_set(recipe, values.rules)
    if not set then return nil, why, "E_VALUE" end
  end
  return recipe, values, config
end

--- The parts into which a batch may be cut: what the user asks for, or ever more until it fits.
local function parts(values, config)
  if values.microbatches > 0 then return {values.microbatches} end
  local list, n = {}, 1
  while n <= config.batch and config.batch % n == 0 do
    list[#list + 1], n = n, n * 2
  end
  return list
end

--- What is tried, one after the other, until something fits: {config, microbatches}. What the user set stays.
local function attempts(values, config, words)
  local list, own = {}, table.concat(words, " "):find("--remat=", 1, true)
  for _, remat in ipairs((own or config.remat == nil) and {config.remat or false} or {"none", "dots",
    "full"}) do
    list[#list + 1] = {config = setmetatable({remat = remat or nil}, {__index = config}), microbatches = 1}
  end
  local last = list[#list].config
  if values.microbatches > 0 then
    for _, attempt in ipairs(list) do attempt.microbatches = values.microbatches end
    return list
  end
  for _, n in ipairs(parts(values, config)) do
    if n > 1 then list[#list + 1] = {config = last, microbatches = n} end
  end
  return list
end

--- What stays of layouts when those are gone whose Params and optimizer state alone are too large for a device.
local function hopeful(layouts, found)
  local capacity, hopeless, list = core.device_memory() or math.huge, {}, {}
  for _, planned in ipairs(found and found.plans or {}) do
    local groups = planned.memory.groups
    hopeless[planned.layout.name] = groups.parameters + groups["optimizer state"] > capacity
  end
  for _, layout in ipairs(layouts) do
    if not hopeless[layout.name] then list[#list + 1] = layout end
  end
  return list
end

--- The plans of the first attempt of which one fits; where none does, of the one that comes nearest.
local function find(recipe, values, config, data, words, ndevices)
  local nearest, last
  for _, attempt in ipairs(attempts(values, config, words)) do
    local layouts, message = search.layouts(recipe,
      {mesh = values.mesh, rules = values.rules, microbatches = attempt.microbatches,
        kernels = values.kernels}, ndevices)
    if not layouts then return nil, message end
    layouts = hopeful(layouts, last)
    if last and #layouts == 0 then break end
    last = search.plans(recipe, attempt.config, data, layouts)
    local best = last.plans[1]
    if best and best.fits then return last end
    if not nearest or best and (not nearest.plans[1]
      or best.peak < nearest.plans[1].peak) then nearest = last end
  end
  return nearest
end

--- The fewest devices, twice as many each time, on which something fits: {devices, planned}, or nil.
local function more_devices(recipe, values, config, data, words, ndevices)
  if values.mesh ~= "" then return nil end
  while 2 * ndevices <= core.device_count() do
    ndevices = 2 * ndevices
    local found = find(recipe, values, config, data, words, ndevices)
    local best = found and found.plans[1]
    if best and best.fits then return {devices = ndevices, planned = best} end
  end
end

--- How many devices are planned for. Of fake ones there are more then, to say on how many it would fit.
local function count_devices()
  local kind, fake = core.device_kind()
  local n = core.device_count()
  if not fake and n == 1 then
    kind, fake, n = DEVICES[1], true, DEVICES[2]
  end
  if fake then core.set_devices(("fake:%s:%d"):format(kind, math.min(n << DOUBLINGS, MOST_DEVICES))) end
  return n
end

---@param path string
---@param words string[] what stands behind it
---@return integer? code, string? message, string? error
function M.run(path, words)
  local ndevices = count_devices()
  local recipe, values, config = read_arguments(path, words, ndevices)
  if not recipe then return nil, values, config end
  if not values then return 0 end
  local data, message, code = step_of.data(recipe, config, values.data ~= "" and values.data or nil)
  if not data then return nil, message, code end
  local found
  found, message = find(recipe, values, config, data, words, ndevices)
  if not found then return nil, message, "E_VALUE" end
  if #found.plans == 0 then
    local first = found.refused[1]
    return nil, ("--mesh=%s --rules=%s: %s"):format(step_of.mesh_text(first.layout), first.layout.rules,
      first.why),
      "E_VALUE"
  end
  found.recipe, found.ndevices = recipe, ndevices
  step_of.explain(recipe, data, found.plans[1])
  if not found.plans[1].fits then
    found.fits_on = more_devices(recipe, values, config, data, words, ndevices)
  end
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
