-- report.lua: what was planned, as a text and as JSON.
local core = require "meshlua.core"
local facts = require "meshlua.insight.facts"
local elsewhere = require "meshlua.plan.elsewhere"
local json = require "meshlua.train.json"
local lib = require "meshlua.lib"
local mfu = require "meshlua.train.mfu"
local page = require "meshlua.plan.page"
local param = require "meshlua.nn.param"
local precision = require "meshlua.train.precision"
local step_of = require "meshlua.plan.step"

local M = {}

local SHOWN = 12 -- layouts in the table

local function count_text(n)
  for _, unit in ipairs {{1e12, "T"}, {1e9, "B"}, {1e6, "M"}, {1e3, "k"}} do
    if n >= unit[1] then return ("%.4g %s"):format(n / unit[1], unit[2]) end
  end
  return tostring(n)
end

--- The number of elements of what is trained.
---@param planned Planned
---@return integer
local function parameters(planned)
  local objects = {}
  for _, p in ipairs(planned.params) do objects[#objects + 1] = p.object end
  return param.count(objects)
end

--- A step's tokens (or other records), and per second and device.
local function throughput(planned)
  local config = planned.config
  return config.batch * (config.seq or 1) / planned.seconds / lib.product(planned.layout.sizes)
end

--- The share of the peak by the operations that the model needs, causal attention at half; nil where it is
--- not known.
local function utilization(found, planned, n)
  local dtype = precision.of(planned.config)
  local peak = dtype and core.device_peak(dtype)
  if not (peak and found.recipe.attention and planned.config.seq) then return nil end
  local _, causal = mfu.flops_per_token(n, found.recipe.attention(planned.config))
  return throughput(planned) * causal / peak
end

-- ---- the verdict ----------------------------------------------------------------------------------------

local function flags(planned)
  local layout, config = planned.layout, planned.config
  local words = {"--mesh=" .. step_of.mesh_text(layout)}
  if layout.rules ~= "" then words[#words + 1] = "--rules=" .. layout.rules end
  if layout.microbatches > 1 then words[#words + 1] = "--microbatches=" .. layout.microbatches end
  if config.remat and config.remat ~= "none" then words[#words + 1] = "--remat=" .. config.remat end
  return table.concat(words, " ")
end

--- Does the plan split over another axis than the one that the batch has?
local function has_model_axis(planned)
  for _, axis in ipairs(planned.layout.axes) do
    if axis ~= "data" then return true end
  end
  return false
end

--- Of the plans that fit, the best for which `is` holds as `wanted`.
local function best_of(plans, is, wanted)
  for _, planned in ipairs(plans) do
    if planned.fits and is(planned) == wanted then return planned end
  end
end

--- What the other kind of layout would cost: " model axes would cost +31 %".
local function other_kind(plans)
  local best = plans[1]
  local other = best_of(plans, has_model_axis, not has_model_axis(best))
  if not other then return "" end
  local more = other.seconds / best.seconds - 1
  local kind = has_model_axis(other) and "model axes" or "the batch's axis alone"
  local text = more < 0 and "; %s (%s) would gain %.0f %%, less than an estimate can tell"
    or "; %s (%s) would cost +%.0f %%"
  return text:format(kind, step_of.mesh_text(other.layout), 100 * math.abs(more))
end

local function held(planned)
  local capacity = core.device_memory()
  return capacity and ("%s of %s"):format(core.bytes_text(planned.peak), core.bytes_text(capacity))
    or core.bytes_text(planned.peak)
end

--- The batch that stays what it is on more devices.
local function size_flags(planned)
  local config = planned.config
  return (" --batch=%d"):format(config.batch) .. (config.seq and (" --seq=%d"):format(config.seq) or "")
end

--- One line: what to use, or what would make it fit.
---@param found table
---@return string
function M.verdict(found)
  local best = found.plans[1]
  if not best.fits then
    local need, way = found.fits_on, "; give more devices (--devices), a smaller --batch or --seq"
    if need then
      way = ("; it fits on %d of them with %s%s"):format(need.devices, flags(need.planned),
        size_flags(need.planned))
    end
    return ("does not fit: the least is %s a device, with %s%s"):format(held(best), flags(best), way)
  end
  -- Is there a plan in which each device holds all, and does it fit?
  local whole, fits_whole = found.left_out, false
  for _, planned in ipairs(found.plans) do
    if planned.layout.rules == "dp" or #planned.layout.axes == 0 then
      whole, fits_whole = true, fits_whole or planned.fits
    end
  end
  local how = fits_whole and "fits one device" or whole and "fits when split" or "fits"
  return ("%s: use %s: %s a device, %s a step%s"):format(how, flags(best), held(best),
    facts.seconds_text(best.seconds), other_kind(found.plans))
end

-- ---- the text -------------------------------------------------------------------------------------------

local function columns(rows)
  local width, lines = {}, {}
  for _, row in ipairs(rows) do
    for i, cell in ipairs(row) do width[i] = math.max(width[i] or 0, #cell) end
  end
  for r, row in ipairs(rows) do
    local cells = {}
    for i, cell in ipairs(row) do
      cells[i] = i <= 2 and cell .. (" "):rep(width[i] - #cell) or (" "):rep(width[i] - #cell) .. cell
    end
    lines[r] = "  " .. table.concat(cells, "  ")
  end
  return lines
end

local function layouts_table(found, n)
  local rows = {{"mesh", "rules", "memory", "step", "waiting", "MFU", "per device and s"}}
  for i, planned in ipairs(found.plans) do
    if i > SHOWN then break end
    local share = utilization(found, planned, n)
    local memory = core.bytes_text(planned.peak) .. (planned.fits and "" or " (does not fit)")
    rows[#rows + 1] = {step_of.mesh_text(planned.layout), planned.layout.rules, memory,
      facts.seconds_text(planned.seconds), ("%.0f %%"):format(100 * planned.waited / planned.seconds),
      share and ("%.1f %%"):format(100 * share) or "-", ("%.0f"):format(throughput(planned))}
  end
  return rows
end

local function describe(found, n)
  local best = found.plans[1]
  local config, kind = best.config, core.device_kind()
  local context = found.recipe.context or 0
  local record = config.seq and (" of %d tokens"):format(config.seq) or ""
  if config.seq and context > config.seq then record = record .. (" (its context: %d)"):format(context) end
  local how = (precision.of(config) or "float32") .. (config.remat and ", remat " .. config.remat or "")
  return ("%s: %s parameters (%d); a step of %s%s; %s; %d x %s"):format(found.recipe.name, count_text(n), n,
    lib.count(config.batch, "record"), record, how, found.ndevices, kind)
end

--- Dims of Params that lie padded, as their mesh axes do not divide them: "vocab 50257 to 50260".
local function padded(planned)
  local words = {}
  for _, p in ipairs(planned.params) do
    local names = core.is_box(p.object) and core.box_meta(p.object).axes
    for d, entry in ipairs(type(names) == "table" and p.sharding and p.sharding.spec.partitions or {}) do
      local size, parts = p.shape[d], 1
      for _, axis in ipairs(type(entry) == "table" and entry or {}) do
        parts = parts * p.sharding.mesh.shape[axis]
      end
      if size % parts ~= 0 and entry.uneven == "pad" then
        words[#words + 1] = ("%s %d to %d"):format(names[d] or "a dim", size, -(-size // parts) * parts)
      end
    end
  end
  return facts.distinct(words)
end

--- How what is planned differs from the family's arithmetic; "" where it does not.
local function notes(found)
  local window, seq = found.recipe.window, found.plans[1].config.seq
  local list = {found.recipe.note}
  if window and seq > window then
    list[#list + 1] = ("attention is planned over the whole sequence: its window of %d tokens is not"):format(
      window)
  end
  return table.concat(list, "; ")
end

--- The verdict, what was planned, and what is not as it should be.
local function head(found, n)
  local lines, wider = {M.verdict(found), describe(found, n)}, padded(found.plans[1])
  if #wider > 0 then lines[3] = "padded, so that the mesh divides them: " .. table.concat(wider, ", ") end
  local note = notes(found)
  if note ~= "" then lines[#lines + 1] = "not as the family has it: " .. note end
  local idle = found.recipe.idle or {}
  if #idle > 0 then lines[#lines + 1] = "in the file, without effect on the plan: " .. lib.some(idle, 12) end
  return lines
end

--- The plans as a text: the verdict first.
---@param found {recipe: table, plans: Planned[], refused: table[], untried: integer, fits_on: table?}
---@return string
function M.text(found)
  local best = found.plans[1]
  local n = parameters(best)
  local lines = head(found, n)
  if #found.plans > 1 or found.untried > 0 then
    lines[#lines + 1] = ""
    lines[#lines + 1] = ("layouts, best first (%d planned%s%s%s):"):format(#found.plans,
      found.looped and (" with layers written out, %d as a loop"):format(found.looped) or "",
      #found.refused > 0 and (", %d cannot be: %s"):format(#found.refused, found.refused[1].why:match "[^;]*")
        or "",
      found.untried > 0 and (", %d not planned"):format(found.untried) or "")
    table.move(columns(layouts_table(found, n)), 1, SHOWN + 1, #lines + 1, lines)
  end
  if found.against then
    lines[#lines + 1] = ""
    lines[#lines + 1] = ("against %s:"):format(found.against.path)
    for _, line in ipairs(found.against.lines) do lines[#lines + 1] = "  " .. line end
  end
  lines[#lines + 1] = ""
  lines[#lines + 1] = ("with %s:"):format(flags(best))
  lines[#lines + 1] = tostring(best.explanation)
  local others = elsewhere.lines(best)
  if #others > 0 then
    lines[#lines + 1] = ""
    lines[#lines + 1] = "the same layout elsewhere:"
    for _, line in ipairs(others) do lines[#lines + 1] = "  " .. line end
  end
  return table.concat(lines, "\n")
end

--- The same as a page.
---@return string
function M.html(found)
  local best = found.plans[1]
  local n = parameters(best)
  return page.text(("%s on %d x %s"):format(found.recipe.name, found.ndevices, (core.device_kind())),
    head(found, n), layouts_table(found, n), best)
end

local function as_object(found, planned, n)
  local work = planned.work
  return {mesh = step_of.mesh_text(planned.layout), rules = planned.layout.rules,
    microbatches = planned.layout.microbatches, remat = planned.config.remat, fits = planned.fits,
    memory = planned.peak, seconds = planned.seconds,
    waited = planned.waited, sent = planned.sent, flops = work.flops,
    computing = work.computing, sending = work.sending, unique = work.unique, padded = work.padded,
    utilization = utilization(found, planned, n), groups = planned.memory.groups}
end

-- ---- against another plan ------------------------------------------------------------------------------

local COMPARED = {{"step", "seconds"}, {"memory", "memory"}, {"sent", "sent"}, {"operations", "flops"}}

--- "step +12 %, memory -3 %", of what differs by half a percent and more.
local function difference(now, then_)
  local words = {}
  for _, row in ipairs(COMPARED) do
    local a, b = now[row[2]], then_[row[2]]
    if type(b) == "number" and b > 0 and math.abs(a / b - 1) >= 0.005 then
      words[#words + 1] = ("%s %+.3g %%"):format(row[1], 100 * (a / b - 1))
    elseif b == 0 and a > 0 then
      words[#words + 1] = row[1] .. " where there was none"
    end
  end
  return #words > 0 and table.concat(words, ", ") or "the same"
end

--- What differs from a plan that M.json wrote: the best layouts, then those that both have.
---@param found table
---@param other table what the file holds
---@return string[]? lines
---@return string? message
function M.against(found, other)
  local rows = type(other) == "table" and other.layouts
  local first, none = type(rows) == "table" and rows[1], "it holds no plan; meshlua plan --json writes one"
  if not first then return nil, none end
  local function name_of(row) return ("%s %s"):format(row.mesh, row.rules) end
  local by_name, lines = {}, {}
  for _, row in ipairs(rows) do
    if type(row) ~= "table" or type(row.mesh) ~= "string" or type(row.rules) ~= "string" then
      return nil, none
    end
    by_name[name_of(row)] = row
  end
  for i, planned in ipairs(found.plans) do
    local now = as_object(found, planned, 0)
    local same = by_name[name_of(now)]
    if i == 1 then
      lines[1] = ("the best, %s, beside %s there: %s"):format(name_of(now), name_of(first),
        difference(now, first))
    end
    if same and #lines <= SHOWN then lines[#lines + 1] = ("%s: %s"):format(name_of(now), difference(now,
      same)) end
  end
  return lines
end

-- ---- JSON ----------------------------------------------------------------------------------------------

--- The same as JSON, on one line: bytes, seconds, operations of one device.
---@return string
function M.json(found)
  local best = found.plans[1]
  local n, layouts, refused = parameters(best), {}, {}
  for i, planned in ipairs(found.plans) do layouts[i] = as_object(found, planned, n) end
  for i, r in ipairs(found.refused) do
    refused[i] = {mesh = step_of.mesh_text(r.layout), rules = r.layout.rules, why = r.why}
  end
  return json.encode {name = found.recipe.name, parameters = n, devices = found.ndevices,
    kind = (core.device_kind()), batch = best.config.batch, seq = best.config.seq,
    precision = precision.of(best.config), verdict = M.verdict(found), layouts = json.list(layouts),
    refused = json.list(refused), untried = found.untried, looped = found.looped, note = notes(found),
    idle = json.list(found.recipe.idle or {}), widened = json.list(padded(best))}
end

return M
