-- account.lua: what a plan does, counted once: of each step, line and group of tensors the operations, bytes,
-- sends and seconds, in loops as often as they turn; and how much of the work is done for nothing: by several
-- devices alike, on padding, once more in place of being kept.
local M = {}

local counted = {"flops", "traffic", "padded", "recomputed", "repeated", "sent", "between", "computing",
  "sending"}

--- "gpt.lua:12 (h.3.mlp)" as "gpt.lua:12" and "h.*.mlp".
local function place_of(where)
  local line, scope = (where or "?"):match "^(.-:%d+)%s*%(?(.-)%)?$"
  return line or where or "?", scope or ""
end

--- Numbers in modules' paths are left out, so that layers alike count as one.
function M.alike(text) return (text:gsub("%.%d+%f[.)%s]", ".*"):gsub("%.%d+$", ".*")) end

--- Are the buffers that each step inside a loop reads the same in every turn? Fills item.steady for them.
local function find_steady(items, first, last, loop)
  local writers = {}
  for i = first, last do
    for _, v in ipairs(items[i].step.outputs) do
      local list = writers[v.buffer] or {}
      writers[v.buffer], list[#list + 1] = list, i
    end
  end
  for i = first, last do
    local item, steady = items[i], true
    for _, v in ipairs(item.step.inputs) do
      for _, number in ipairs(v.slices or {}) do steady = steady and number ~= loop end
      local w = writers[v.buffer]
      steady = steady and (not w or #w == 1 and w[1] < i and items[w[1]].steady == loop)
    end
    if steady and item.kind ~= "loop" and item.kind ~= "branch" then item.steady = loop end
  end
end

--- Into how many parts axes cut a mesh of such a shape.
local function parts_of(shape, axes)
  local parts = 1
  for _, axis in ipairs(shape and axes or {}) do parts = parts * shape[axis] end
  return parts
end

--- An item of an account: what a step does, all its times. places: what was said of texts of `where` before.
local function item_of(s, i, shape, devices, places)
  local where = s.where[1] or "?"
  local place = places[where]
  if not place then
    local line, scope = place_of(where)
    place = {line, scope, M.alike(scope)}
    places[where] = place
  end
  local kernel, times, unique = s.kind == "kernel", s.times, s.distinct / devices
  local flops = kernel and s.flops * times or 0
  return {index = i, step = s, kind = s.kind, op = s.op, ops = s.ops, kernel = s.kernel, role = s.role,
    line = place[1], scope = place[2], group = place[3], where = s.where, times = times, loops = {},
    axes = s.axes, product = s.product, dtype = s.inputs[1] and s.inputs[1].dtype, unique = unique,
    seconds = s.seconds, parts = parts_of(shape, s.vary), members = parts_of(shape, s.axes),
    flops = flops, traffic = kernel and s.traffic * times or 0, padded = s.padded * times,
    recomputed = s.recomputed * times, repeated = flops * (1 - unique), sent = s.sent or 0,
    between = s.between or 0, computing = kernel and s.seconds or 0, sending = s.axes and s.seconds or 0}
end

local function add_to(sum, item)
  sum.count = sum.count + 1
  for _, name in ipairs(counted) do sum[name] = sum[name] + item[name] end
end

local function new_sum(fields)
  fields.count = 0
  for _, name in ipairs(counted) do fields[name] = 0 end
  return fields
end

local function finish(sum)
  sum.seconds = sum.computing + sum.sending
  sum.share = sum.seconds > 0 and sum.sending / sum.seconds or 0
  local part = function(x) return sum.flops > 0 and x / sum.flops or 0 end
  sum.unique = 1 - part(sum.repeated)
  sum.useful = sum.unique * (1 - part(sum.padded)) * (1 - part(sum.recomputed))
  return sum
end

--- The sums of the items by what `key` gives of each, the dearest first.
local function sums_by(items, name)
  local list, by = {}, {}
  for _, item in ipairs(items) do
    local key = item[name]
    if item.kind == "kernel" or item.kind == "collective" then
      if not by[key] then
        by[key] = new_sum {[name] = key}
        list[#list + 1] = by[key]
      end
      add_to(by[key], item)
    end
  end
  for _, sum in ipairs(list) do finish(sum) end
  table.sort(list, function(a, b)
    if a.seconds ~= b.seconds then return a.seconds > b.seconds end
    return a[name] < b[name]
  end)
  return list
end

-- Sums by line and group are made where they are asked for: a search counts many plans, and explains one.
local Sums = {__index = function(account, name)
  local key = name == "lines" and "line" or name == "groups" and "group"
  if key then account[name] = sums_by(account.items, key) end
  return rawget(account, name)
end}

--- The buffers of what is waited for in the next turn of a loop, whose items these are.
local function late_in(items, first, last)
  local late = {}
  for i = first, last do
    local s = items[i].step
    if items[i].kind == "done" and s.shift and s.shift < 0 then late[s.inputs[1].buffer] = true end
  end
  return late
end

--- The seconds that the items take where a collective runs beside what does not read it: a clock for what is computed,
--- one for what is sent within hosts and one for what goes between them; who reads a buffer waits for who wrote it. A
--- loop takes its turns one after the other; of what goes from one turn to the next the first, or last, is alone.
---@param items table[]
---@param times number[]? of each item, all its times; nil: at best
---@return number
function M.wall(items, times)
  local ready, computing, sending = {}, 0, {0, 0}
  local function run(first, last, loop)
    local i = first
    while i <= last do
      local item, s = items[i], items[i].step
      local start, seconds = 0, times and times[i] or item.computing + item.sending
      for _, list in ipairs {s.inputs, s.outputs} do
        for _, v in ipairs(list) do start = math.max(start, ready[v.buffer] or 0) end
      end
      if item.kind == "loop" then
        computing = math.max(computing, start)
        sending = {math.max(sending[1], computing), math.max(sending[2], computing)}
        local own = {start = computing, alone = 0, trips = s.trips or 1,
          late = late_in(items, i + 1, i + s.inside)}
        run(i + 1, i + s.inside, own)
        computing = math.max(computing, sending[1], sending[2]) + own.alone
        i = i + s.inside
      elseif item.kind ~= "done" then
        local over
        if s.axes then
          local way = item.between > 0 and 2 or 1
          local crosses = loop and ((s.shift or 0) > 0 or loop.late[s.outputs[1].buffer])
          if crosses then
            loop.alone = loop.alone + seconds / loop.trips
            sending[way] = math.max(sending[way], loop.start) + seconds * (1 - 1 / loop.trips)
          else
            sending[way] = math.max(sending[way], start, computing) + seconds
            over = sending[way]
          end
        else
          computing = math.max(computing, start) + seconds
          over = computing
        end
        for _, v in ipairs(s.outputs) do ready[v.buffer] = over or ready[v.buffer] end
      end
      i = i + 1
    end
  end
  run(1, #items)
  return math.max(computing, sending[1], sending[2])
end

--- What M.of gives of all steps together, and no more.
---@param plan Plan
---@return table
function M.total(plan)
  local mesh, all = plan:mesh(), new_sum {}
  local devices, places = mesh and mesh.size or 1, {}
  for i, s in ipairs(plan:steps()) do
    if s.kind == "kernel" or s.kind == "collective" then add_to(all, item_of(s, i, nil, devices, places)) end
  end
  return finish(all)
end

--- Counts a plan. All figures are of one device and of all times that a step runs: a loop's body counts as
--- often as the loop turns (once where that is not known).
---@param plan Plan
---@param steps table[]? plan:steps(), where it is known
---@return table account {steps, count, flops, traffic, computing, sending, seconds, share (of the seconds, in
--- communication), sent, between (of it, to other hosts), repeated, padded, recomputed (operations done by
--- several devices alike, on padding, once more), unique, useful (shares); items (one for each step: the same
--- figures, and op, line, group, role, times, loops (those around it, outermost first), axes, members (of a
--- collective's group), parts (slots that differ), dtype, unique,
--- steady (a collective that gets the same in every turn: the loop's number)); lines, groups: sums, the
--- dearest first, made when they are asked for by name, and not among its pairs before}
function M.of(plan, steps)
  local mesh = plan:mesh()
  local devices, shape, places = mesh and mesh.size or 1, mesh and mesh.shape, {}
  local all, items = new_sum {steps = 0}, {}
  local open = {} -- loops that are not over: {item, last}
  for i, s in ipairs(steps or plan:steps()) do
    while #open > 0 and open[#open].last < i do table.remove(open) end
    local item = item_of(s, i, shape, devices, places)
    items[i] = item
    for k, o in ipairs(open) do item.loops[k] = o.item end
    if s.kind == "loop" then open[#open + 1] = {item = item, last = i + s.inside} end
    all.steps = all.steps + 1
    if s.kind == "kernel" or s.kind == "collective" then add_to(all, item) end
  end
  for i, item in ipairs(items) do
    if item.kind == "loop" then find_steady(items, i + 1, i + item.step.inside, item.step.loop) end
  end
  all.items = items
  return setmetatable(finish(all), Sums)
end

--- Collectives that add up what is the same on all their devices already, and along which axes: {item, axes,
--- times}.
---@param account table
---@param buffers table[] plan:buffers()
---@param mesh Mesh
function M.equal_sums(account, buffers, mesh)
  local list = {}
  for _, item in ipairs(account.items) do
    local vary, equal, times = {}, {}, 1
    for _, v in ipairs(item.step.reduces and item.step.inputs or {}) do
      for _, axis in ipairs(buffers[v.buffer].vary) do vary[axis] = true end
    end
    for _, axis in ipairs(item.step.reduces and item.axes or {}) do
      if not vary[axis] then equal[#equal + 1], times = axis, times * mesh.shape[axis] end
    end
    if #equal > 0 then list[#list + 1] = {item = item, axes = equal, times = times} end
  end
  return list
end

return M
