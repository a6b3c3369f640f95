-- advice.lua: what is worth knowing of a plan beside its figures, and layouts that would serve better: the
-- same step planned on other meshes, or with an argument on an axis that nothing uses. Nothing runs.
local account = require "meshlua.insight.account"
local core = require "meshlua.core"
local facts = require "meshlua.insight.facts"
local lib = require "meshlua.lib"
local proposals = require "meshlua.insight.proposals"

local M = {}

local LARGE = 1 << 20 -- bytes that are worth a word when every device holds them
local GAIN = 1.05     -- a layout must be better by this much to be named
local NAMED = 3       -- arguments that are named in a list
local MESHES = 16     -- so many are tried

-- ---- what stands in the plan --------------------------------------------------------------------------

--- Mesh axes that split no argument and no step.
function M.unused_axes(plan, mesh)
  local used, unused = {}, {}
  for _, list in ipairs {plan:steps(), plan:buffers()} do
    for _, x in ipairs(list) do
      for _, axis in ipairs(x.vary) do used[axis] = true end
    end
  end
  for _, axis in ipairs(mesh.axis_names) do
    if mesh.shape[axis] > 1 and not used[axis] then unused[#unused + 1] = axis end
  end
  return unused
end

--- The mesh with the devices in their order and this axis the fastest.
local function with_last(mesh, axis)
  local ids, devices, at = {}, {}, 0
  for i, id in ipairs(mesh.device_ids) do devices[i] = id end
  table.sort(devices)
  local strides, stride = {}, 1
  for k = #mesh.axis_names, 1, -1 do
    strides[k], stride = stride, stride * mesh.axis_sizes[k]
  end
  local function go(k, place)
    if k > #strides then
      at = at + 1
      ids[place + 1] = devices[at]
      return
    end
    for i = 0, mesh.axis_sizes[strides.order[k]] - 1 do go(k + 1, place + i * strides[strides.order[k]]) end
  end
  strides.order = {}
  for k, name in ipairs(mesh.axis_names) do
    if name ~= axis then strides.order[#strides.order + 1] = k end
  end
  for k, name in ipairs(mesh.axis_names) do
    if name == axis then strides.order[#strides.order + 1] = k end
  end
  go(1, 0)
  return core.mesh_new(mesh.axis_names, mesh.axis_sizes, ids)
end

--- Axes that go from one host to another although each could stay inside one, and with less to send between
--- hosts: {axis, sent (between hosts, now), sent_as_last (with the axis behind the others), seconds (that
--- this saves)}.
function M.between_hosts(rows, mesh, seconds, retrace)
  local list = {}
  for _, axis in ipairs(core.axes_between_hosts(mesh)) do
    local then_axes, stays = core.axes_between_hosts(mesh, axis), true
    for _, other in ipairs(then_axes) do stays = stays and other ~= axis end
    if stays and #rows > 0 then
      local ok, program = lib.unless_stopped(pcall(core.instead_of, mesh, with_last(mesh, axis), retrace))
      local planned, plan = false, nil
      if ok then planned, plan = lib.unless_stopped(pcall(program.plan, program)) end
      if planned then
        local now, as_last = 0, account.of(plan)
        for _, row in ipairs(rows) do
          for _, c in ipairs(row.members) do now = now + c.between end
        end
        if as_last.between < now then
          list[#list + 1] = {axis = axis, sent = now, sent_as_last = as_last.between,
            seconds = seconds - as_last.seconds}
        end
      end
      if ok then program:close() end
    end
  end
  return list
end

--- Does something other than a Param split another tensor along the same axis?
local function other_by_data(origins, first)
  for _, o in ipairs(origins) do
    if o.axis == first.axis and o.kind ~= "param" and o.index ~= first.index then return true end
  end
end

--- The axes that split inputs of a step; nil where no input is known to lie on a mesh.
local function axes_of_inputs(params)
  local axes
  for _, p in ipairs(params or {}) do
    local spec = not p.state and p.sharding and p.sharding.spec.partitions
    axes = axes or spec and {}
    for _, entry in ipairs(spec or {}) do
      for _, axis in ipairs(lib.axes_of(entry)) do axes[axis] = true end
    end
  end
  return axes
end

--- Weights that lie over an axis that also splits the data, and are gathered for each use: by name and axis
--- {name, axis, gathers, bytes (gathered, each device), sent}. An axis that splits no input, but
--- tokens inside of the step, does not split the data.
---@param rows table[] of facts.lua
---@param params table[]? of program:params()
function M.fsdp(rows, params)
  local inputs = axes_of_inputs(params)
  local list, by_key = {}, {}
  for _, row in ipairs(rows) do
    for _, c in ipairs(row.op == "all_gather" and row.members or {}) do
      local origins = c.reasons[1].origins
      local first = origins[1]
      local by_data = first and first.index and first.axis and (not inputs or inputs[first.axis])
      if by_data and other_by_data(origins, first) then
        local key = first.name .. "\0" .. first.axis
        local e = by_key[key]
        if not e then
          e = {name = first.name, axis = first.axis, gathers = 0, bytes = 0, sent = 0}
          by_key[key], list[#list + 1] = e, e
        end
        e.gathers, e.sent = e.gathers + 1, e.sent + c.sent
        for _, v in ipairs(c.outputs) do e.bytes = e.bytes + v.bytes end
      end
    end
  end
  return list
end

--- Arguments of which every device holds all: {name, bytes, copies}, the largest first.
function M.replicated(params, mesh)
  local list = {}
  for i, p in ipairs(params) do
    if p.part == p.bytes and p.bytes >= LARGE and mesh.size > 1 then
      list[#list + 1] = {name = facts.unnamed(p.name, i) or p.name, bytes = p.bytes, copies = mesh.size}
    end
  end
  table.sort(list, function(a, b) return a.bytes > b.bytes or a.bytes == b.bytes and a.name < b.name end)
  return list
end

-- ---- what would serve better --------------------------------------------------------------------------

local function better(a, b)
  if a.fits ~= b.fits then return a.fits end
  return a.seconds < b.seconds
end

local function ones(sizes)
  local n = 0
  for _, size in ipairs(sizes) do n = n + (size == 1 and 1 or 0) end
  return n
end

--- Sizes for the mesh's axes, other than it has: all devices on one axis first.
local function other_sizes(mesh)
  local list = {}
  for _, sizes in ipairs(lib.factorings(mesh.size, #mesh.axis_names)) do
    if table.concat(sizes, ",") ~= table.concat(mesh.axis_sizes, ",") then list[#list + 1] = sizes end
  end
  table.sort(list, function(a, b)
    if ones(a) ~= ones(b) then return ones(a) > ones(b) end
    for i = 1, #a do
      if a[i] ~= b[i] then return a[i] > b[i] end
    end
    return false
  end)
  return list
end

--- Does the spec split a dim over the axis?
local function splits(spec, axis)
  for d = 1, spec and #spec or 0 do
    for _, a in ipairs(type(spec[d]) == "table" and spec[d] or {spec[d]}) do
      if a == axis then return true end
    end
  end
  return false
end

--- What the axis splits: "x, y and Params"; nil where it splits nothing.
local function split_along(axis, params)
  local names, state, more = {}, false, 0
  for i, p in ipairs(params) do
    if splits(p.sharding and p.sharding.spec, axis) then
      if p.state then
        state = true
      elseif #names < NAMED then
        names[#names + 1] = facts.unnamed(p.name, i) or p.name
      else
        more = more + 1
      end
    end
  end
  if more > 0 then names[#names + 1] = lib.count(more, "other argument") end
  if state then names[#names + 1] = "Params" end
  local last = table.remove(names)
  return #names > 0 and table.concat(names, ", ") .. " and " .. last or last
end

--- " (model splits up and down)" for the axis along which all devices stand; "" where there is none, or it
--- splits nothing. Arguments that are data, weights or both tell which parallelism it is.
local function split_text(mesh, params)
  for _, axis in ipairs(mesh.axis_names) do
    if mesh.shape[axis] == mesh.size then
      local what = split_along(axis, params)
      return what and (" (%s splits %s)"):format(axis, what) or ""
    end
  end
  return ""
end

--- The same step with the mesh's devices in other numbers along its axes.
local function try_meshes(found, mesh, retrace)
  for k, sizes in ipairs(other_sizes(mesh)) do
    if k > MESHES then return end
    local other = core.mesh_new(mesh.axis_names, sizes, mesh.device_ids)
    local ok, program = lib.unless_stopped(pcall(core.instead_of, mesh, other, retrace))
    if ok then
      local planned, plan = lib.unless_stopped(pcall(program.plan, program))
      if planned then
        local j = proposals.judge(plan)
        j.mesh, j.text = other, "on " .. facts.mesh_text(other) .. split_text(other, program:params())
        found[#found + 1] = j
      end
      program:close()
    end
  end
end

--- The best layout found for the step, if it is better than its own: {text, mesh? or edits (see proposals.lua),
--- seconds, gain (how many times faster), unique, share, peak, fits}. Where the step is another when it is traced
--- once more there is none, which is noted in `proposed`.
---@param now table proposals.judge_program of the step
---@param proposed table of proposals.lua
---@param retrace fun(): Program
function M.alternatives(now, mesh, proposed, retrace)
  if proposed.differs then return end
  local found = {#proposed.edits > 0 and proposed or nil}
  try_meshes(found, mesh, retrace)
  local best
  for _, j in ipairs(found) do
    j.gain = now.seconds / j.seconds
    if not best or better(j, best) then best = j end
  end
  if not best or now.fits and not best.fits or best.fits == now.fits and best.gain < GAIN then return end
  if best ~= proposed then proposed.differs = proposals.differs(now, retrace) end
  return not proposed.differs and best or nil
end

return M
