-- pipeline_figures.lua: what a pipeline does in each tick, and what that costs, from its sizes alone. F and B are what
-- a microbatch takes a stage forward and backward.
--
-- Ticks with a forward slot, then with both (1f1b), then backward: (m + p - 1)(F + B) in all, of which each place
-- works m(F + B), so that the idle share is (p - 1) / (m + p - 1). GPipe (Huang et al. 2019) holds m microbatches of
-- each stage; 1f1b as it is here 2(p - 1 - s) + 1 of stage s, and no more than m.
local core = require "meshlua.core"
local lib = require "meshlua.lib"
local trace = require "meshlua.transform.trace"

local M = {}

local MOST_COLUMNS <const> = 16 -- ticks of the table; of more the first and last ones are shown

---@class PipelineFigures
---@field places integer
---@field microbatches integer
---@field schedule string
---@field layers integer
---@field padding integer layers that are passed over, so that each place has as many
---@field turn integer the tick in which the last stage has its first backward slot
---@field ticks integer
---@field idle number share of the time in which a place has nothing to do
---@field held integer[] of each stage, 1-based: microbatches whose activations it holds at most
---@field ring integer microbatches that each place has room for
---@field hop_bytes integer what goes from a stage to the next for a microbatch
---@field messages integer hops of microbatches forward, of all places; as many go backward
---@field hops integer hops of a place in a step, forward and backward, those without a microbatch included
---@field stage_bytes integer Params of a place's layers, padding included
---@field shared_bytes integer Params that `first`, `last` and all stages read
local Figures = {}
local meta = {__index = Figures}

local function bytes_of(x) return lib.product(x.shape) * lib.element_bytes[x.dtype] end

--- What the figures need of a prepared pipeline.
function M.taken_from(job)
  local taken = {layers = job.stages.layers, padding = job.stages.padding, ring = job.ring, turn = job.turn,
    hop_bytes = 0, stage_bytes = 0, shared_bytes = 0}
  for _, entry in ipairs(trace.leaves("nn.pipeline", job.types.hop, "x")) do
    taken.hop_bytes = taken.hop_bytes + bytes_of(entry.leaf)
  end
  for _, value in ipairs(job.stages.values) do
    taken.stage_bytes = taken.stage_bytes + bytes_of(value) // job.place.p
  end
  local seen = {}
  for _, list in pairs(job.boxes) do
    for _, box in ipairs(list) do
      if not seen[box] then taken.shared_bytes = taken.shared_bytes + bytes_of(box) end
      seen[box] = true
    end
  end
  return taken
end

---@return PipelineFigures
function M.new(taken)
  local self = setmetatable(taken, meta)
  local p, m = self.places, self.microbatches
  self.idle, self.held = (p - 1) / (m + p - 1), {}
  self.ticks = self.turn + m + p - 1
  self.messages = m * (p - 1)
  self.hops = p == 1 and 0 or 2 * (m + p - 1)
  for s = 0, p - 1 do
    self.held[s + 1] = self.schedule == "gpipe" and m or math.min(m, 2 * (p - 1 - s) + 1)
  end
  return self
end

--- What stage s (from 0) does in a tick (from 0): the numbers of the microbatches that it takes forward and backward,
--- or nil.
---@return integer? forward, integer? backward
function Figures:slot(s, tick)
  local p, m = self.places, self.microbatches
  local f, b = tick - s, tick - self.turn - (p - 1 - s)
  return f >= 0 and f < m and f or nil, b >= 0 and b < m and b or nil
end

--- The ticks that the table shows; false: some are left out here.
local function columns(ticks)
  local list = {}
  for t = 0, ticks - 1 do
    if ticks <= MOST_COLUMNS or t < MOST_COLUMNS // 2 or t >= ticks - MOST_COLUMNS // 2 then
      list[#list + 1] = t
    elseif list[#list] then
      list[#list + 1] = false
    end
  end
  return list
end

--- A row for each stage, a column for each tick: F3 is microbatch 3 forward, B0 microbatch 0 backward.
---@return string
function Figures:table_text()
  local shown, rows, width = columns(self.ticks), {}, 1
  rows[1] = {"tick"}
  for _, t in ipairs(shown) do rows[1][#rows[1] + 1] = t and tostring(t) or "…" end
  for s = 0, self.places - 1 do
    local row = {"stage " .. s}
    for _, t in ipairs(shown) do
      local f, b = nil, nil
      if t then f, b = self:slot(s, t) end
      local cell = (f and "F" .. f or "") .. (b and "B" .. b or "")
      row[#row + 1] = t and (cell == "" and "." or cell) or "…"
      width = math.max(width, #cell)
    end
    rows[#rows + 1] = row
  end
  for r, row in ipairs(rows) do
    for k, cell in ipairs(row) do
      local space = (k == 1 and 9 or width + 1) - utf8.len(cell)
      row[k] = cell .. (" "):rep(space)
    end
    rows[r] = table.concat(row):gsub("%s+$", "")
  end
  return table.concat(rows, "\n")
end

function meta:__tostring()
  local p, m, lines = self.places, self.microbatches, {}
  local function add(...) lines[#lines + 1] = lib.format(...) end
  add("%s, %s, %s: %d ticks", lib.count(p, "stage"), lib.count(m, "microbatch", "microbatches"),
    self.schedule, self.ticks)
  add("%s", self:table_text())
  add("idle: %.1f%% of the time, (p - 1) / (m + p - 1)", 100 * self.idle)
  add("held at most: %s of %d by stage, room for %d", table.concat(self.held, ", "), m, self.ring)
  add("a hop: %s; a place makes %d in a step, %s", core.bytes_text(self.hop_bytes), self.hops,
    core.bytes_text(self.hops * self.hop_bytes))
  add("layers: %d, %s of them on a place%s", self.layers, (self.layers + self.padding) // p,
    self.padding > 0 and (", and %d that are passed over on the last"):format(self.padding) or "")
  add("Params of a place's layers: %s", core.bytes_text(self.stage_bytes))
  if p > 1 and self.shared_bytes > 0 then
    local all = self.shared_bytes
    add("Params that first and last read, %s:", core.bytes_text(all))
    add("  whole on each place: it holds %s, and sends %s of gradients", core.bytes_text(all),
      core.bytes_text(2 * (p - 1) * all // p))
    local moved = core.bytes_text((p - 1) * all // p)
    add("  split over the axis: it holds %s, and sends %s to gather them, %s of gradients",
      core.bytes_text(all // p), moved, moved)
  end
  return table.concat(lines, "\n")
end

return M
