-- meter.lua: what a step takes of the machine, for its row: how long it waited for data, how busy the threads or the
-- GPU were, how much memory there was at most, and the share of the GPUs' peak where that is known.
local core = require "meshlua.core"
local mfu = require "meshlua.train.mfu"
local param = require "meshlua.nn.param"
local precision = require "meshlua.train.precision"
local tree = require "meshlua.tree"

local M = {}

---@class Meter
---@field own number, others number seconds that threads have waited until now: this one, all others
---@field share number? of the peak that a token per second is
local Meter = {}
Meter.__index = Meter

--- For the loop of a run. What threads wait is counted from here on.
---@param run Run
---@return Meter
function M.new(run)
  local self = setmetatable({}, Meter)
  self:begin()
  local peak = core.gpu_count() > 0 and core.device_peak(precision.of(run.config))
  if peak and run.recipe.attention then
    local _, causal = mfu.flops_per_token(param.count(tree.leaves(run.model)),
      run.recipe.attention(run.config))
    self.share = causal / (peak * core.gpu_count())
  end
  return self
end

--- What threads wait counts from here on: what was done since the latest row is none of a step's.
function Meter:begin() self.own, self.others = core.idle() end

--- Puts into a row, which has its ms, gpu_ms and tokens_per_s: wait_ms, busy (from 0 to 1: all threads' share of the
--- time in which they had work, or the GPU's), memory_peak and process_peak in bytes, mfu (of causal attention).
---@param row table
---@param waited number seconds until its batch was there
---@param ran number seconds from then on until its loss was known
function Meter:note(row, waited, ran)
  local own, others, n = core.idle()
  local seconds = row.ms / 1e3
  local busy = ran - (own - self.own) + n * seconds - (others - self.others)
  self.own, self.others = own, others
  if core.gpu_count() > 0 then
    row.busy = row.gpu_ms and math.min(row.gpu_ms / row.ms, 1.0)
  else
    row.busy = math.max(0.0, math.min(busy / ((n + 1) * seconds), 1.0))
  end
  local memory = core.memory()
  row.wait_ms = waited * 1e3
  row.memory_peak, row.process_peak = memory.peak, memory.process
  row.mfu = self.share and row.tokens_per_s * self.share
end

return M
