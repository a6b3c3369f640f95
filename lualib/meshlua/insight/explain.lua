-- explain.lua: what a jitted call will send, hold and compute, and why: as a table, and as a text.
local account = require "meshlua.insight.account"
local advice = require "meshlua.insight.advice"
local core = require "meshlua.core"
local facts = require "meshlua.insight.facts"
local findings = require "meshlua.insight.findings"
local proposals = require "meshlua.insight.proposals"
local rules_of = require "meshlua.sharding.rules"
local lib = require "meshlua.lib"
local processor = require "meshlua.insight.processor"

local M = {}

local bytes_text, seconds_text, percent = core.bytes_text, facts.seconds_text, facts.percent

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
    if row.loop then add_wrapped(lines, "         ", row.loop) end
    add_wrapped(lines, "         ", "of " .. lib.some(row.tensors, 2))
    add_wrapped(lines, "         ", "as " .. lib.some(row.reasons, 2))
    for _, by in ipairs(row.by) do add_wrapped(lines, "         ", "split on " .. by) end
  end
end

--- Other specs that serve better, each as a line to paste, and what it is for.
local function add_proposals(lines, e)
  local p = e.proposals
  if p and p.differs then
    add_wrapped(lines, "", ("traced once more the step is another: %s; so no other layout is told"):format(
      p.differs))
    return
  end
  local late = p and p.untried > 0 and ("%d more were not tried"):format(p.untried)
  if late and #p.edits == 0 then
    add_wrapped(lines, "", ("no better spec found in %s; %s"):format(lib.count(p.tried, "plan"), late))
  end
  if not p or #p.edits == 0 then return end
  local more = p.peak - e.memory.peak
  add_wrapped(lines, "", ("better specs, each planned with those above it: %s in place of %s%s%s%s"):format(
    seconds_text(p.seconds), seconds_text(e.work.seconds),
    more > 0 and (", with %s more on each device"):format(bytes_text(more)) or "",
    p.moved and "; " .. p.moved or "", late and "; " .. late or ""))
  for _, edit in ipairs(p.edits) do
    lines[#lines + 1] = "  " .. edit.line
    add_wrapped(lines, "         ", ("%s: %s %s, %s of the step, for %s at %s"):format(edit.how,
      edit.gain < 0 and "takes" or "saves", seconds_text(math.abs(edit.gain)), percent(math.abs(edit.share)),
      edit.of, edit.where))
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
  local w, apart = e.work, {}
  for _, what in ipairs {{"on padding", w.padded}, {"done once more", w.recomputed}} do
    if what[2] > 0.0005 * w.flops then
      apart[#apart + 1] = (", %s %s"):format(percent(what[2] / w.flops), what[1])
    end
  end
  lines[#lines + 1] = ("work: %.4g operations (%s unique%s), %s read and written"):format(w.flops,
    percent(w.unique), table.concat(apart), bytes_text(w.traffic))
  local most, least = e.plan:flops()
  if least < most then
    local text = "a device has %.4g to %.4g of them: each skips the branches that are not its own"
    add_wrapped(lines, "  ", text:format(least, most))
  end
  lines[#lines + 1] = ("time at best: %s of computing, %s of sending: %s is communication%s"):format(
    seconds_text(w.computing), seconds_text(w.sending), percent(w.share),
    w.between > 0 and ("; %s go between hosts"):format(bytes_text(w.between)) or "")
  if e.mesh and e.mesh.size > 1 and processor.has_devices() then
    lines[#lines + 1] = ("all devices together, on this processor: %s of one thread"):format(
      seconds_text((processor.seconds(w))))
  end
end

local SHOWN = 5 -- findings

--- The findings, worst first: the cause and its line, then what to change and what that gains.
local function add_findings(lines, e)
  for i, f in ipairs(e.findings) do
    if i > SHOWN then
      lines[#lines + 1] = ("and %s, in .findings"):format(lib.count(#e.findings - SHOWN, "finding"))
      return
    end
    add_wrapped(lines, ("%d. "):format(i), f.cause .. (f.where and ", at " .. f.where or ""))
    local gain = f.share and f.share >= 0.005 and ("saves %s, %s of the step"):format(seconds_text(f.gain),
      percent(math.min(f.share, 1)))
    if f.bytes then gain = (gain and gain .. ", and " or "saves ") .. bytes_text(f.bytes)
      .. " on each device" end
    local mend = f.mend and gain and f.mend .. ": " .. gain or f.mend or gain
    if mend then add_wrapped(lines, "   -> ", mend) end
  end
end

Explanation.__tostring = core.plain(function(self)
  local sums, lines = {}, {}
  add_findings(lines, self)
  for _, op in ipairs(lib.names(self.by_op)) do
    sums[#sums + 1] = ("%d %s %s"):format(self.by_op[op].count, op, bytes_text(self.by_op[op].sent))
  end
  lines[#lines + 1] = ("%s of %s; every figure is of one device"):format(
    self.mesh and facts.mesh_text(self.mesh) or "one device", self.kind)
  local steps = lib.count(self.work.steps, "step")
  add_wrapped(lines, "", self.count == 0 and steps .. ", none of them collectives"
    or ("%s, %d of them collectives, which send %s: %s"):format(steps, self.count, bytes_text(self.sent),
    table.concat(sums, ", ")))
  add_collectives(lines, self.collectives)
  add_proposals(lines, self)
  add_memory(lines, self)
  add_work(lines, self)
  for _, note in ipairs(self.notes) do add_wrapped(lines, "note: ", note) end
  return table.concat(lines, "\n")
end)

--- So that an explanation can be searched as the text it is, wherever lines end: e:find "all_gather over
--- data".
function Explanation:find(...)
  local text = tostring(self)
  if text:find(...) then return text:find(...) end
  return text:gsub("%s+", " "):find(...)
end

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
  fsdp_notes(e, note)
  if #e.replicated > 0 then
    local names, bytes = {}, 0
    for i, r in ipairs(e.replicated) do
      names[i], bytes = ("%s (%s)"):format(r.name, bytes_text(r.bytes)), bytes + r.bytes
    end
    note("every device holds all of %s: %s", lib.some(names, 3), bytes_text(bytes))
  end
  local b = e.better
  if b and b ~= e.proposals then
    note("%s it would take %s, %.3g times %s%s", b.text, seconds_text(b.seconds),
      b.gain >= 1 and b.gain or 1 / b.gain, b.gain >= 1 and "as fast" or "as long",
      b.unique - e.work.unique > 0.005 and (", with %s of the compute unique"):format(percent(b.unique))
      or not e.fits and b.fits and (", and fit: %s"):format(bytes_text(b.peak)) or "")
  end
  return notes
end

-- ---- explain ------------------------------------------------------------------------------------------

--- Fills in what a plan alone tells. known: {work, memory}, where it was counted before.
local function of_plan(plan, params, known)
  local mesh, steps = plan:mesh(), not known and plan:steps() or nil
  local work = known and known.work or account.of(plan, steps)
  local rows = facts.collectives(work)
  local fits, why = plan:fits()
  local e = {plan = plan, mesh = mesh, kind = (core.device_kind()), collectives = rows,
    by_op = facts.by_op(rows), count = 0, sent = 0, bytes = 0, work = work,
    memory = known and known.memory or facts.memory(plan, params, steps), fits = fits == true, misfit = why,
    fsdp = advice.fsdp(rows, params), unused_axes = mesh and advice.unused_axes(plan, mesh) or {},
    between_hosts = {}, replicated = mesh and params and advice.replicated(params, mesh) or {}}
  for _, sum in pairs(e.by_op) do
    e.count, e.sent, e.bytes = e.count + sum.count, e.sent + sum.sent, e.bytes + sum.bytes
  end
  return e
end

--- Fills in what else there is to say: `more` has what only a traced step tells.
local function finish(e, more)
  local x = {account = e.work, plan = e.plan, buffers = e.plan:buffers(), memory = e.memory, mesh = e.mesh,
    params = {}, nodes = {}, fits = e.fits, misfit = e.misfit, better = e.better, unused_axes = e.unused_axes,
    between_hosts = e.between_hosts}
  for key, value in pairs(more) do x[key] = value end
  e.findings = findings.of(x)
  e.notes = notes_of(e)
  return setmetatable(e, Explanation)
end

--- The same of a program, without looking for what would serve better.
---@param program Program
---@param retrace fun(): Program which makes it again
---@param known {plan: Plan, work: table, memory: table}? its plan, and what was counted of it
---@return table explanation
local function of_program(program, retrace, known)
  local params = program:params()
  local e = of_plan(known and known.plan or program:plan(), params, known)
  if e.mesh and e.mesh.size > 1 then
    e.between_hosts = advice.between_hosts(e.collectives, e.mesh, e.work.seconds, retrace)
  end
  return finish(e, {params = params, nodes = program:nodes()})
end

--- Says how a call of a jitted function would run with these arguments, all figures of one device. First the
--- findings, worst first: what is wrong or dear for nothing, with cause, line, what to change and what it
--- gains. Then every collective with its loop, lines, tensors, bytes, mesh axes and reasons; memory by kind
--- of tensor; operations, time at best and how much of it is communication; and specs (see proposals.lua) and a
--- mesh that would serve better, if there are. The step is traced and planned, many times; nothing runs.
---@param step any what ml.jit returned, or a plan (step:plan(...))
---@param ... any its arguments
---@return table explanation {findings (see findings.lua), mesh, kind, plan, collectives, by_op, count, sent,
---bytes,
--- memory, work (see account.lua), fsdp, unused_axes, between_hosts, replicated, notes, proposals?, better?}; as a
--- text by tostring
function M.explain(step, ...)
  local name = core.type_name(step)
  if name == "Plan" then return finish(of_plan(step), {}) end
  if name ~= "jit" then
    lib.raise("E_VALUE", "explain: expected a function made by ml.jit, or a plan, got %s", lib.kind(step))
  end
  local args = table.pack(...)
  local function retrace() return step:program(table.unpack(args, 1, args.n)) end
  rules_of.latest = nil
  local program <close> = retrace()
  local rules, params, nodes = rules_of.latest, program:params(), program:nodes()
  local e = of_plan(program:plan(), params)
  if e.mesh and e.mesh.size > 1 then
    local now = proposals.judge_program(program)
    e.proposals = proposals.of(now, #nodes, e.mesh, e.collectives, e.unused_axes, retrace)
    e.better = advice.alternatives(now, e.mesh, e.proposals, retrace)
    e.between_hosts = e.proposals.differs and {}
      or advice.between_hosts(e.collectives, e.mesh, e.work.seconds, retrace)
  end
  local body = debug.getinfo(debug.getuservalue(step, 1), "S")
  return finish(e, {step = step, line = ("%s:%d"):format(body.short_src, body.linedefined), args = args,
    params = params, nodes = nodes, rules = rules, retrace = retrace})
end

lib.export(M, "", true)
M.of = of_program
return M
