-- explain.lua: what a jitted call will send, hold and compute, and why: as a table, and as a text.
local advice = require "meshlua.insight.advice"
local core = require "meshlua.core"
local facts = require "meshlua.insight.facts"
local lib = require "meshlua.lib"

local M = {}

local bytes_text = core.bytes_text

local Explanation = {__name = "Explanation"}
Explanation.__index = Explanation

-- ---- the text -----------------------------------------------------------------------------------------

local WIDTH = 96

--- Appends the text behind `indent`, broken at spaces.
local function add_wrapped(lines, indent, text)
  local line, hang = indent, (" "):rep(#indent + 2)
  for word in text:gmatch "%S+" do
    local longer = line:find "%S$" and line .. " " .. word or line .. word
    if #longer > WIDTH and line:find "%S" then
      lines[#lines + 1] = line
      longer = hang .. word
    end
    line = longer
  end
  lines[#lines + 1] = line
end

local function seconds_text(s)
  if s == 0 then return "0 s" end
  if s < 1e-3 then return ("%.3g us"):format(s * 1e6) end
  return s < 1 and ("%.3g ms"):format(s * 1e3) or ("%.4g s"):format(s)
end

local function percent(x) return ("%.3g%%"):format(100 * x) end

local function add_collectives(lines, rows)
  local width, part = 0, 0
  for _, row in ipairs(rows) do
    row.what = row.op .. " over " .. table.concat(row.axes, ",")
    width, part = math.max(width, #row.what), math.max(part, #row.operands)
  end
  for _, row in ipairs(rows) do
    lines[#lines + 1] = ("  %3d x  %-" .. width .. "s  %-" .. part .. "s  %10s  %s"):format(row.count,
      row.what, row.operands, bytes_text(row.sent), seconds_text(row.seconds))
    add_wrapped(lines, "         ", "at " .. lib.some(row.where, 3))
    add_wrapped(lines, "         ", "of " .. lib.some(row.tensors, 2))
    add_wrapped(lines, "         ", "as " .. lib.some(row.reasons, 2))
    for _, by in ipairs(row.by) do add_wrapped(lines, "         ", "split on " .. by) end
  end
end

local function add_memory(lines, e)
  local m = e.memory
  lines[#lines + 1] = ("memory: %s at most"):format(bytes_text(m.peak))
  for _, name in ipairs(facts.groups) do
    if m.groups[name] > 0 then
      lines[#lines + 1] = ("  %-18s %12s"):format(name, bytes_text(m.groups[name]))
    end
  end
  if m.fullest then
    add_wrapped(lines, "  ", ("temporaries take %s; most are in use in step %d, %s at %s"):format(
      bytes_text(m.temporaries), m.fullest.step, m.fullest.op, m.fullest.where))
  end
end

local function add_work(lines, e)
  local w = e.work
  lines[#lines + 1] = ("work: %.4g operations (%s unique), %s read and written"):format(w.flops,
    percent(w.unique), bytes_text(w.traffic))
  lines[#lines + 1] = ("time at best: %s of computing, %s of sending: %s is communication"):format(
    seconds_text(w.computing), seconds_text(w.sending), percent(w.share))
end

Explanation.__tostring = core.plain(function(self)
  local sums, lines = {}, {}
  for _, op in ipairs(lib.names(self.by_op)) do
    sums[#sums + 1] = ("%d %s %s"):format(self.by_op[op].count, op, bytes_text(self.by_op[op].sent))
  end
  lines[1] = ("%s of %s; every figure is of one device"):format(
    self.mesh and (tostring(self.mesh):gsub(" of devices.*", "")) or "one device", self.kind)
  local steps = lib.count(self.work.steps, "step")
  add_wrapped(lines, "", self.count == 0 and steps .. ", none of them collectives"
    or ("%s, %d of them collectives, which send %s: %s"):format(steps, self.count, bytes_text(self.sent),
    table.concat(sums, ", ")))
  add_collectives(lines, self.collectives)
  add_memory(lines, self)
  add_work(lines, self)
  for _, note in ipairs(self.notes) do add_wrapped(lines, "note: ", note) end
  return table.concat(lines, "\n")
end)

--- So that an explanation can be searched as the text it is: e:find "all_gather over data".
function Explanation:find(...) return tostring(self):find(...) end

-- ---- notes --------------------------------------------------------------------------------------------

local function fsdp_notes(e, note)
  local by_axis, axes = {}, {}
  for _, f in ipairs(e.fsdp) do
    local sum = by_axis[f.axis]
    if not sum then
      sum = {names = {}, gathers = 0, bytes = 0, sent = 0}
      by_axis[f.axis], axes[#axes + 1] = sum, f.axis
    end
    sum.names[#sum.names + 1] = f.name
    sum.gathers, sum.bytes, sum.sent = sum.gathers + f.gathers, sum.bytes + f.bytes, sum.sent + f.sent
  end
  for _, axis in ipairs(axes) do
    local sum = by_axis[axis]
    note("FSDP on %s: %s lie%s over the axis that splits the data, and %s gathered for each use: "
      .. "%d all_gather%s of %s in all, %s sent", axis, lib.some(sum.names, 3),
      #sum.names == 1 and "s" or "", #sum.names == 1 and "is" or "are", sum.gathers,
      sum.gathers == 1 and "" or "s", bytes_text(sum.bytes), bytes_text(sum.sent))
  end
end

local function notes_of(e)
  local notes = {}
  local function note(...) notes[#notes + 1] = string.format(...) end
  if not e.fits then note("it does not fit: %s", e.misfit) end
  fsdp_notes(e, note)
  for _, axis in ipairs(e.unused_axes) do
    note("mesh axis %s splits nothing: its %d devices do the same work", axis, e.mesh.shape[axis])
  end
  for _, x in ipairs(e.between_hosts) do
    note("mesh axis %s goes from one host to another, and its %d devices would fit into one: put it last in "
      .. "the mesh, and %s are sent between hosts in place of %s", x.axis, e.mesh.shape[x.axis],
      bytes_text(x.sent_as_last), bytes_text(x.sent))
  end
  if e.work.unique < 0.995 and e.mesh and e.mesh.size > 1 then
    note("%s of the compute is unique: the rest is done by several devices alike", percent(e.work.unique))
  end
  if e.work.share > 0.5 then
    note("over-sharded: %s of the time is communication; fewer parts, larger ones, would leave the devices "
      .. "more to do between exchanges", percent(e.work.share))
  end
  if #e.replicated > 0 then
    local names, bytes = {}, 0
    for i, r in ipairs(e.replicated) do
      names[i], bytes = ("%s (%s)"):format(r.name, bytes_text(r.bytes)), bytes + r.bytes
    end
    note("every device holds all of %s: %s", lib.some(names, 3), bytes_text(bytes))
  end
  local b = e.better
  if b then
    note("%s it would take %s, %.3g times %s%s", b.text, seconds_text(b.seconds),
      b.gain >= 1 and b.gain or 1 / b.gain, b.gain >= 1 and "as fast" or "as long",
      b.unique - e.work.unique > 0.005 and (", with %s of the compute unique"):format(percent(b.unique))
      or not e.fits and b.fits and (", and fit: %s"):format(bytes_text(b.peak)) or "")
  end
  return notes
end

-- ---- explain ------------------------------------------------------------------------------------------

--- Fills in what a plan alone tells.
local function of_plan(plan, params)
  local mesh = plan:mesh()
  local rows = facts.collectives(plan)
  local fits, why = plan:fits()
  local e = {plan = plan, mesh = mesh, kind = (core.device_kind()), collectives = rows,
    by_op = facts.by_op(rows), count = 0, sent = 0, bytes = 0, work = facts.work(plan, mesh),
    memory = facts.memory(plan, params), fits = fits == true, misfit = why,
    fsdp = advice.fsdp(rows), unused_axes = mesh and advice.unused_axes(plan, mesh) or {},
    between_hosts = mesh and advice.between_hosts(rows, mesh) or {},
    replicated = mesh and params and advice.replicated(params, mesh) or {}}
  for _, sum in pairs(e.by_op) do
    e.count, e.sent, e.bytes = e.count + sum.count, e.sent + sum.sent, e.bytes + sum.bytes
  end
  return e
end

--- The same of a program, without looking for what would serve better.
---@param program Program
---@return table explanation
local function of_program(program)
  local e = of_plan(program:plan(), program:params())
  e.notes = notes_of(e)
  return setmetatable(e, Explanation)
end

--- Says how a call of a jitted function would run with these arguments, all figures of one device: every
--- collective with its lines, tensors, bytes, mesh axes and reasons; memory by kind of tensor; operations,
--- time at best and how much of it is communication; which compute is unique; weights gathered for each use
--- (FSDP), mesh axes without use, what all devices hold; and a mesh or layout that would serve better, if one
--- is found. The step is traced and planned, several times; nothing runs.
---@param step any what ml.jit returned, or a plan (step:plan(...))
---@param ... any its arguments
---@return table explanation {mesh, kind, plan, collectives, by_op, count, sent, bytes, memory, work, fsdp,
--- unused_axes, between_hosts, replicated, notes, better?}; as a text by tostring
function M.explain(step, ...)
  local name = core.type_name(step)
  if name == "Plan" then
    local e = of_plan(step)
    e.notes = notes_of(e)
    return setmetatable(e, Explanation)
  end
  if name ~= "jit" then
    lib.raise("E_VALUE", "explain: expected a function made by ml.jit, or a plan, got %s", lib.kind(step))
  end
  local args = table.pack(...)
  local program <close> = step:program(...)
  local e = of_plan(program:plan(), program:params())
  if e.mesh and e.mesh.size > 1 then
    e.better = advice.alternatives(e.plan, e.mesh, e.collectives, e.unused_axes, function()
      return step:program(table.unpack(args, 1, args.n))
    end)
  end
  e.notes = notes_of(e)
  return setmetatable(e, Explanation)
end

lib.export(M, "", true)
M.of = of_program
return M
