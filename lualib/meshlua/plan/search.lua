-- search.lua: which layouts a step may have on so many devices, planned one by one and put in order; and what
-- would make it fit where none does. Nothing is solved: every layout is planned exactly, in milliseconds.
local core = require "meshlua.core"
local lib = require "meshlua.lib"
local rules_of = require "meshlua.sharding.rules"
local runs = require "meshlua.train.run"
local step_of = require "meshlua.plan.step"

local M = {}

local MOST = 256 -- layouts that are planned; those on few axes come first
local CLOSE = 1.03 -- of two times, less than this is no difference (docs/backtest.md)

-- ---- layouts ------------------------------------------------------------------------------------------

--- Are sizes of axes worth a plan? Not those that the recipe rules out; nor, of three axes and more, those of which
--- the last leaves its host.
local function sensible(recipe, config, axes, sizes)
  local above_1, last, host = 0, 1, core.host_devices()
  for i, size in ipairs(sizes) do
    if recipe.sensible and not recipe.sensible(config, axes[i], size, host) then return false end
    if size > 1 then above_1, last = above_1 + 1, size end
  end
  return above_1 < 3 or last <= host
end

--- The names of the recipe's rule sets that are planned unasked: pipelines where the mesh is one for them.
local function sets_of(recipe, mesh)
  local names = {}
  for _, name in ipairs(lib.names(recipe.rules or {})) do
    local pipelined = runs.named_axes(recipe.rules[name])[runs.STAGE]
    if not pipelined or mesh:find(runs.STAGE .. ":", 1, true) then names[#names + 1] = name end
  end
  return names
end

--- What rules say on a mesh of such axes, as a text: of two sets with the same a plan is the same. Logical axes go to
--- the first rule all of whose axes the mesh has.
local function effect_of(rules, axes)
  local there, words = lib.set(axes), {}
  for _, rule in ipairs(rules or {}) do
    local to, has = type(rule) == "table" and rule[2], true
    for _, axis in ipairs(type(to) == "table" and to or {to or nil}) do has = has and there[axis] end
    local plain = type(rule) == "table" and not rule.opt and not core.is_spec(to)
    if not plain then
      words[#words + 1] = ("%p"):format(rule)
    elseif has then
      words[#words + 1] = rules_of.text(rule)
    end
  end
  return table.concat(words, "\n")
end

--- The layouts that come into question: for each rule set the sizes of the axes that it names. Axes of size 1
--- are left out, and what that makes alike.
---@param recipe table
---@param config table
---@param asked {mesh: string, rules: string, microbatches: integer, kernels: string} "" where it is open
---@param ndevices integer
---@return Layout[]? layouts
---@return string? message
function M.layouts(recipe, config, asked, ndevices)
  local list, seen, some = {}, {}, false -- some: come into question
  local function add(axes, sizes, rules)
    local layout = {axes = {}, sizes = {}, rules = rules, microbatches = asked.microbatches,
      kernels = asked.kernels, asked = asked.mesh ~= ""}
    for i, size in ipairs(sizes) do
      if size > 1 or asked.mesh ~= "" then
        table.insert(layout.axes, axes[i])
        table.insert(layout.sizes, size)
      end
    end
    local mesh = step_of.mesh_text(layout)
    local same = mesh .. " " .. effect_of(recipe.rules and recipe.rules[rules], layout.axes)
    layout.name = mesh .. " " .. rules
    if layout.asked or not seen[same] then list[#list + 1], seen[same] = layout, true end
  end
  local sets = asked.rules ~= "" and {asked.rules} or sets_of(recipe, asked.mesh)
  if #sets == 0 then sets = {""} end
  -- of sets that come to the same the simpler
  table.sort(sets, function(a, b) return #a < #b or #a == #b and a < b end)
  for _, rules in ipairs(sets) do
    if asked.mesh ~= "" then
      local axes, sizes = runs.read_mesh(asked.mesh)
      if not axes then return nil, sizes end
      add(axes, sizes, rules)
    else
      local axes = lib.names(runs.named_axes(recipe.rules and recipe.rules[rules]))
      some = some or #axes > 0 and ndevices > 1
      for _, sizes in ipairs(#axes > 0 and lib.factorings(ndevices, #axes) or {}) do
        if sensible(recipe, config, axes, sizes) then add(axes, sizes, rules) end
      end
    end
  end
  if #list == 0 and some then
    local text = "the recipe finds no layout of %d devices sensible; --mesh=AXIS:SIZE plans one all the same"
    return nil, text:format(ndevices)
  end
  if #list == 0 then add({}, {}, sets[1]) end
  return list
end

-- ---- plans --------------------------------------------------------------------------------------------

local function before(a, b)
  if a.fits ~= b.fits then return a.fits end
  if not a.fits and a.peak ~= b.peak then return a.peak < b.peak end
  if a.seconds ~= b.seconds then return a.seconds < b.seconds end
  if a.peak ~= b.peak then return a.peak < b.peak end
  return #a.layout.axes < #b.layout.axes
end

--- Puts the plan on fewer axes first where the fastest is hardly faster: an estimate cannot tell them apart, and
--- whoever reads the code can.
local function prefer_simple(plans)
  local first = 1
  for i, planned in ipairs(plans) do
    local close = planned.fits and plans[1].fits and planned.seconds <= CLOSE * plans[1].seconds
    if close and #planned.layout.axes < #plans[first].layout.axes then first = i end
  end
  table.insert(plans, 1, table.remove(plans, first))
end

--- The better of the best plan so far and another; lets go of the other one.
local function better_of(best, planned)
  if best and not before(planned, best) then best, planned = planned, best end
  if best then step_of.let_go(best) end
  return planned
end

--- Bytes of Params and optimizer state on a device.
local function state_of(planned)
  local groups = planned.memory.groups
  return groups.parameters + groups["optimizer state"]
end

--- Plans of layouts, the best first, without those that come to the same; and the layouts that cannot be,
--- each with the reason.
---@param recipe table
---@param config table
---@param data table
---@param layouts Layout[]
---@param hopeless table<string, boolean> is given the names of those that cannot be, and of those whose Params and
--- optimizer state alone are too large for a device: that stays so, whatever is computed again and in however many
--- more parts the batch comes
---@return {plans: Planned[], refused: {layout: Layout, why: string}[], untried: integer} untried: above MOST
function M.plans(recipe, config, data, layouts, hopeless)
  local plans, refused, seen, untried, capacity = {}, {}, {}, 0, core.device_memory() or math.huge
  local best ---@type Planned?
  for i, layout in ipairs(layouts) do layout.number = i end
  table.sort(layouts, function(a, b)
    if #a.axes ~= #b.axes then return #a.axes < #b.axes end
    local x, y = a.sizes[#a.sizes] or 0, b.sizes[#b.sizes] or 0
    return x < y or x == y and a.number < b.number
  end)
  for i, layout in ipairs(layouts) do
    if i > MOST then
      untried = untried + 1
    else
      local planned, why = step_of.plan(recipe, config, data, layout, true)
      local key = planned and ("%.17g %.17g %.17g"):format(planned.seconds, planned.peak,
        planned.sent)
      if not planned then
        refused[#refused + 1], hopeless[layout.name] = {layout = layout, why = why}, true
      else
        if state_of(planned) > capacity then hopeless[layout.name] = true end
        best = better_of(best, planned)
        if not seen[key] then seen[key], plans[#plans + 1] = true, planned end
      end
    end
  end
  table.sort(plans, before)
  prefer_simple(plans)
  if plans[1] ~= best then step_of.let_go(best) end
  return {plans = plans, refused = refused, untried = untried}
end

-- ---- what fits ----------------------------------------------------------------------------------------

local REMAT = {"none", "dots", "full"} -- less and less is kept for the gradient

--- What is tried, one after the other, until something fits: {config, microbatches}. What the user set stays.
local function attempts(config, asked)
  local list, open = {}, config.remat ~= nil and not asked.remat
  for _, remat in ipairs(open and REMAT or {config.remat or false}) do
    list[#list + 1] = {config = setmetatable({remat = remat or nil}, {__index = config}),
      microbatches = math.max(1, asked.microbatches)}
  end
  return list
end

--- The number of parts to try behind so many: it divides the batch, and is about as large as what is free beside the
--- state must have it (less half, while that is far). The rows of a part divide over all devices as long as such are
--- left; nil: none is.
local function more_parts(batch, parts, plans, ndevices)
  local free, need = core.device_memory() or math.huge, math.huge
  for _, planned in ipairs(plans) do
    local state = state_of(planned)
    if state < free then need = math.min(need, parts * (planned.peak - state) / (free - state)) end
  end
  if need == math.huge then need = 0 end
  local least, best = math.max(1.1 * parts, need * (need < 2 * parts and 0.9 or 0.5)), nil
  for n = 1, math.floor(math.sqrt(batch)) do
    for _, d in ipairs(batch % n == 0 and {n, batch // n} or {}) do
      local even, best_even = batch // d % ndevices == 0, best and batch // best % ndevices == 0
      local better = not best or even and not best_even or even == best_even and d < best
      if d >= least and better then best = d end
    end
  end
  return best
end

--- The layouts that are not among the hopeless ones.
local function hopeful(layouts, hopeless)
  local list = {}
  for _, layout in ipairs(layouts) do
    if not hopeless[layout.name] then list[#list + 1] = layout end
  end
  return list
end

--- The plans of the first attempt of which one fits; where none does, of the one that comes nearest.
local function find_on(recipe, config, data, asked, ndevices)
  local list, nearest, last, i, hopeless, refused = attempts(config, asked), nil, nil, 1, {}, {}
  while list[i] do
    local attempt = list[i]
    local layouts, message = M.layouts(recipe, attempt.config, {mesh = asked.mesh, rules = asked.rules,
      kernels = asked.kernels, microbatches = attempt.microbatches}, ndevices)
    if not layouts then return nil, message end
    local all = #layouts
    layouts = hopeful(layouts, hopeless)
    if last and #layouts == 0 then break end
    last = M.plans(recipe, attempt.config, data, layouts, hopeless)
    last.left_out = all > #layouts + #refused
    last.refused = table.move(last.refused, 1, #last.refused, #refused + 1, refused)
    local best, least = last.plans[1], nearest and nearest.plans[1]
    if best and best.fits then return last end
    if best then step_of.let_go(best) end
    if attempt.microbatches > 1 and best and least and best.peak >= least.peak then break end
    if not nearest or best and (not least or best.peak < least.peak) then nearest = last end
    i = i + 1
    local parts = not list[i] and best and asked.microbatches == 0
      and more_parts(config.batch, attempt.microbatches, last.plans, ndevices)
    if parts then list[i] = {config = attempt.config, microbatches = parts} end
  end
  return nearest
end

--- The least bytes that Params and optimizer state take on a device.
local function least_state(plans)
  local least = math.huge
  for _, planned in ipairs(plans) do least = math.min(least, state_of(planned)) end
  return least
end

local FEW, WRITTEN_OUT = 16, 3 -- layers that are soon planned one by one; layouts that are planned so

--- Plans as M.find gives them, of many layers written out: the layouts, and what must be computed again, are found with
--- layers as a loop, and the best ones planned again. `looped`: how many layouts were planned as a loop.
local function find_unrolled(recipe, config, data, asked, ndevices)
  local looped = setmetatable({scan = true}, {__index = config})
  local found, message = find_on(recipe, looped, data, asked, ndevices)
  if not found or not found.plans[1] then return found, message end
  local plans, all, best = {}, #found.plans, nil
  step_of.let_go(found.plans[1])
  for i = 1, math.min(all, WRITTEN_OUT) do
    local planned = found.plans[i]
    planned.config = setmetatable({scan = false}, {__index = planned.config})
    plans[i], message = step_of.plan(recipe, planned.config, data, planned.layout, true)
    if not plans[i] then return nil, message end
    best = better_of(best, plans[i])
  end
  table.sort(plans, before)
  found.plans, found.looped = plans, all
  return found
end

--- Plans on so many of the devices, the best first; and where nothing fits, fits_on: the fewest devices that there are,
--- twice as many each time, on which something does.
---@param recipe table
---@param config table
---@param data table
---@param asked {mesh: string, rules: string, kernels: string, microbatches: integer, remat: boolean} as the flags; remat:
--- is the config's what the user wants?
---@param ndevices integer
---@return {plans: Planned[], refused: table[], untried: integer, looped: integer?, fits_on: {devices: integer, planned: Planned}?}?
---@return string? message
function M.find(recipe, config, data, asked, ndevices)
  local find = find_on
  if config.scan == false and config.layers > FEW then find = find_unrolled end
  local found, message = find(recipe, config, data, asked, ndevices)
  local best = found and found.plans[1]
  if not best or best.fits or asked.mesh ~= "" then return found, message end
  local least = least_state(found.plans) * ndevices / (core.device_memory() or math.huge)
  while 2 * ndevices <= core.device_count() and not found.fits_on do
    ndevices = 2 * ndevices
    local more = ndevices >= least and find(recipe, config, data, asked, ndevices)
    best = more and more.plans[1]
    if best then step_of.let_go(best) end
    if best and best.fits then found.fits_on = {devices = ndevices, planned = best} end
  end
  return found
end

return M
