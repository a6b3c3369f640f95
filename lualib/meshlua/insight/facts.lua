-- facts.lua: what a plan does, counted: collectives in groups, memory by kind of tensor, work. All figures are
-- of one device.
local account = require "meshlua.insight.account"
local core = require "meshlua.core"
local lib = require "meshlua.lib"

local M = {}

-- ---- collectives --------------------------------------------------------------------------------------

--- "float32[8,4]", of the first operand, and how many more go with it.
local function tensors_text(c)
  local text = lib.type_text(c.inputs[1])
  return #c.inputs > 1 and ("%s and %d more"):format(text, #c.inputs - 1) or text
end

--- "1.2 ms".
---@param s number seconds
---@return string
function M.seconds_text(s)
  if s == 0 then return "0 s" end
  if s < 1e-3 then return ("%.3g us"):format(s * 1e6) end
  return s < 1 and ("%.3g ms"):format(s * 1e3) or ("%.4g s"):format(s)
end

--- "12.5%".
---@param x number the share
---@return string
function M.percent(x) return ("%.3g%%"):format(100 * x) end

--- "Mesh(data=4, model=2)", without its devices.
function M.mesh_text(mesh) return (tostring(mesh):gsub(" of devices.*", "")) end

--- A list of texts without those that are there already, in order.
function M.distinct(list)
  local out, seen = {}, {}
  for _, text in ipairs(list) do
    if not seen[text] then
      seen[text] = true
      out[#out + 1] = text
    end
  end
  return out
end

local origin_kinds = {argument = "argument ", param = "Param ", constraint = "", op = ""}

--- What an input is called that has no name of its own; nil where it has.
function M.unnamed(name, index)
  if name == "argument" then return ("input %d"):format(index) end -- of a vararg function
  if name == "" then return ("input %d, met in the trace"):format(index) end
end

--- "argument x", "Param h.*.mlp.weight", "train.lua:12 (h.*)".
function M.origin_text(o)
  if o.kind == "op" then return account.alike(("%s at %s"):format(o.name, o.where or "?")) end
  if o.kind == "constraint" then return account.alike("the constraint at " .. (o.where or "?")) end
  return M.unnamed(o.name, o.index) or account.alike(origin_kinds[o.kind] .. o.name)
end

--- Who split what, a text for each mesh axis: "data: by argument x, Param up.weight".
local function origins_text(reasons)
  local who, axes = {}, {}
  for _, r in ipairs(reasons) do
    for _, o in ipairs(r.origins) do
      if o.axis then
        if not who[o.axis] then who[o.axis], axes[#axes + 1] = {}, o.axis end
        table.insert(who[o.axis], M.origin_text(o))
      end
    end
  end
  for i, axis in ipairs(axes) do axes[i] = axis .. " by " .. lib.some(M.distinct(who[axis]), 3) end
  return axes
end

local function tensors_of(reasons)
  local list = {}
  for i, r in ipairs(reasons) do list[i] = account.alike(r.tensor) end
  return M.distinct(list)
end

local function texts_of(reasons)
  local list = {}
  for i, r in ipairs(reasons) do list[i] = r.text end
  return M.distinct(list)
end

local function alike_all(list)
  local out = {}
  for i, text in ipairs(list) do out[i] = account.alike(text) end
  return M.distinct(out)
end

--- One collective, as texts: {count, op, axes, operands, bytes (of one device's operands), sent, seconds, and
--- lists: where, tensors, reasons, by (who split what), members}; nothing counted yet.
function M.row_of(c)
  return {count = 0, op = c.op, axes = c.axes, operands = tensors_text(c), bytes = 0, sent = 0,
    seconds = 0, where = alike_all(c.where), tensors = tensors_of(c.reasons),
    reasons = texts_of(c.reasons), by = origins_text(c.reasons), members = {}}
end

--- "in each of 32 turns of the loop at train.lua:7, and could leave it: it gets the same in each"; nil for what
--- stands in no loop.
local function loop_text(item)
  local loop = item.loops[#item.loops]
  if not loop then return nil end
  local turns = loop.step.trips and ("in each of %d turns of"):format(loop.step.trips) or "in"
  local text = ("%s the loop at %s"):format(turns, loop.line)
  if #item.loops > 1 then text = ("%s, %g times in all"):format(text, item.times) end
  return text .. (item.steady == loop.step.loop and ", and could leave it: it gets the same in each turn"
    or "; each turn sends something else")
end

--- The account's collectives, those alike in all that is told of them as one row, in the order of their first;
--- see row_of. Members: the collectives themselves. loop: in which, how often, and whether it could leave it.
function M.collectives(a)
  local rows, by_text = {}, {}
  for _, item in ipairs(a.items) do
    if item.kind ~= "collective" then goto continue end
    local c = item.step
    local row = M.row_of(c)
    row.loop, row.times = loop_text(item), item.times
    local text = table.concat({c.op, table.concat(c.axes, ","), row.operands, table.concat(row.where, ","),
      table.concat(row.reasons, ","), table.concat(row.by, ","), row.loop or ""}, "\0")
    if by_text[text] then
      row = by_text[text]
    else
      by_text[text], rows[#rows + 1] = row, row
    end
    row.count, row.bytes, row.sent = row.count + 1, row.bytes + c.bytes, row.sent + c.sent
    row.seconds = row.seconds + c.seconds
    row.members[#row.members + 1] = c
    ::continue::
  end
  return rows
end

--- Kind of collective -> {count, bytes, sent, seconds}.
function M.by_op(rows)
  local sums = {}
  for _, row in ipairs(rows) do
    local s = sums[row.op] or {count = 0, bytes = 0, sent = 0, seconds = 0}
    sums[row.op] = s
    s.count, s.bytes = s.count + row.count, s.bytes + row.bytes
    s.sent, s.seconds = s.sent + row.sent, s.seconds + row.seconds
  end
  return sums
end

-- ---- memory -------------------------------------------------------------------------------------------

local groups = {"parameters", "optimizer state", "other state", "inputs", "results", "activations",
  "gradients", "other temporaries"}
M.groups = groups

local group_of_kind = {param = "parameters", opt_state = "optimizer state"}

local function group_of_argument(p)
  if not p or not p.state then return "inputs" end
  local kind = core.is_box(p.object) and core.box_meta(p.object).kind or "param"
  return group_of_kind[kind] or "other state"
end

--- For each buffer the steps that write it; the last step that reads it and is not of the forward part; and the last
--- one that reads it beyond the way back: its role is gradient, or forward, as that of updates.
local function uses_of(steps)
  local writes, read_backward, read_beyond = {}, {}, {}
  for i, s in ipairs(steps) do
    for _, v in ipairs(s.outputs) do
      local list = writes[v.buffer] or {}
      writes[v.buffer], list[#list + 1] = list, i
    end
    for _, v in ipairs(s.inputs) do
      if s.role ~= "forward" then read_backward[v.buffer] = i end
      if s.role == "forward" or s.role == "gradient" then read_beyond[v.buffer] = i end
    end
  end
  return writes, read_backward, read_beyond
end

--- Bytes of temporaries that are in use at each step.
---@param buffers table[] of plan:buffers()
---@param nsteps integer
---@return integer[]
function M.temporaries(buffers, nsteps)
  local change, live, at = {}, {}, 0
  for i = 1, nsteps + 1 do change[i] = 0 end
  for _, b in ipairs(buffers) do
    if b.kind == "temporary" then
      local last = math.min(b.last, nsteps)
      change[b.first], change[last + 1] = change[b.first] + b.bytes, change[last + 1] - b.bytes
    end
  end
  for i = 1, nsteps do
    at = at + change[i]
    live[i] = at
  end
  return live
end

--- The step at which most temporaries are in use (0: there are none), and their bytes.
---@param live integer[] see M.temporaries
---@return integer step, integer bytes
function M.fullest(live)
  local most, at = 0, 0
  for i, bytes in ipairs(live) do
    if bytes > most then most, at = bytes, i end
  end
  return at, most
end

--- What the buffer holds at step `at`: who wrote it last, and who will read it. What the backward part hands on is a
--- gradient, as those of stacked layers, which a loop writes.
local function group_of_temporary(b, index, at, steps, writes, read_backward, read_beyond)
  local writer
  for _, i in ipairs(writes[index] or {}) do
    if i <= at or not writer then writer = i end -- a loop's result is there before its turn writes it
  end
  local role = writer and steps[writer].role or "forward"
  local handed_on = role == "backward" and (read_beyond[index] or 0) >= at
  if role == "gradient" or handed_on then return "gradients" end
  -- A loop's turn may read behind `at` what the next one reads again.
  if role == "forward" and read_backward[index] and b.last >= at then return "activations" end
  return "other temporaries"
end

--- {peak, arguments, results, temporaries (all that is set aside), groups (name -> bytes), live (bytes of temporaries
--- in use at each step), fullest ({step, where}), by_param}. The groups of temporaries are of the step at which most
--- are in use.
---@param params table[]? what program:params() gives
---@param steps table[]? plan:steps(), where it is known
function M.memory(plan, params, steps)
  local m, buffers = plan:memory(), plan:buffers()
  steps = steps or plan:steps()
  m.groups = {}
  for _, name in ipairs(groups) do m.groups[name] = 0 end
  local function add(group, bytes) m.groups[group] = m.groups[group] + bytes end
  local writes, read_backward, read_beyond = uses_of(steps)
  m.live = M.temporaries(buffers, #steps)
  local at = M.fullest(m.live)
  for i, b in ipairs(buffers) do
    if b.kind == "argument" then
      add(group_of_argument(params and params[b.index]), b.bytes)
    elseif b.kind == "result" then
      if not b.takes then add("results", b.bytes) end
    elseif b.first <= at and at <= b.last then
      add(group_of_temporary(b, i, at, steps, writes, read_backward, read_beyond), b.bytes)
    end
  end
  if at > 0 then m.fullest = {step = at, where = steps[at].where[1] or "?", op = steps[at].op} end
  return m
end

return M
