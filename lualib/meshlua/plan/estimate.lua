-- estimate.lua: how long a step takes on a card: from the times at best of account.lua, and how far kernels
-- stay behind them. bench/backtest.lua holds it against runs that others have published (docs/backtest.md).
local core = require "meshlua.core"
local processor = require "meshlua.insight.processor"

local M = {}

--- What a second at best takes beside that of a matrix product: attention stays further from the peak, and
--- what is read and written goes through more kernels than a plan has.
local SLOWER = {product = 1.0, attention = 3.0, masked_attention = 3.0, attention_grad = 3.0,
  masked_attention_grad = 3.0}
local OTHER = 2.0
--- Of the time that a plan waits for what is sent: trainers hide some of it behind the next layers.
local WAITED = 0.75

--- By card and kind of kernels: how many seconds a second of products at the datasheet's peak takes. Each is
--- the median of what the named rows of bench/published/runs.tsv need, three at most; fp8 is told by the peak
--- of bfloat16.
---@type table<string, table<string, {[1]: number, rows: string}>>
M.cards = {
  a100 = {eager = {1.30, rows = "3 9 16"}, compiled = {1.38, rows = "14 34 51"}},
  ["a100-40"] = {eager = {1.36, rows = "4 5 8"}},
  h100 = {eager = {1.64, rows = "2 5 7"}, compiled = {1.30, rows = "10 21 25"},
    fp8 = {0.90, rows = "18 22 23"}},
  ["h100-96"] = {eager = {1.86, rows = "2"}, compiled = {1.68, rows = "1 9 10"},
    fp8 = {1.32, rows = "4 11 13"}},
  h200 = {compiled = {1.48, rows = "2 4"}, fp8 = {1.08, rows = "1 3"}},
}

--- Seconds at best of a plan's products, attention and other kernels, weighed against each other.
local function weighed(work)
  local seconds = 0
  for _, item in ipairs(work.items) do
    seconds = seconds + item.computing * (SLOWER[item.op] or item.product and SLOWER.product or OTHER)
  end
  return seconds
end

--- Are there such kernels for a card? A card that is not known has any.
---@param card string as core.device_kind
---@param kernels string "eager", "compiled", "fp8"
---@return boolean
function M.has(card, kernels)
  local row = M.cards[card]
  return not row or kernels ~= "fp8" or row.fp8 ~= nil
end

--- The factor of a card: where its kernels were not measured, that of the card's slowest; nil where nothing was.
---@param card string as core.device_kind
---@param kernels string "eager", "compiled", "fp8"
---@return number?
function M.factor(card, kernels)
  local row, slowest = M.cards[card] or {}, nil
  if row[kernels] then return row[kernels][1] end
  for _, kind in pairs(row) do slowest = math.max(slowest or 0, kind[1]) end
  return slowest
end

--- The seconds of a plan: what is computed, and what of the sending nothing runs beside.
---@param work table of account.lua
---@param factor number? of M.factor; nil: at best
---@return number seconds
---@return number waited of them, for what is sent
function M.seconds(work, factor)
  local waited = math.max(0, work.wall - work.computing)
  if not factor then return work.wall, waited end
  return factor * weighed(work) + WAITED * waited, WAITED * waited
end

--- The same on the devices that there are; the processor's threads share the work of all of its.
---@param work table of account.lua
---@param kernels string "eager", "compiled", "fp8"
---@return number seconds
---@return number waited
function M.here(work, kernels)
  if not processor.has_devices() then return M.seconds(work, M.factor((core.device_kind()), kernels)) end
  local seconds, sending = processor.seconds(work)
  local threads = core.thread_count()
  return seconds / threads, sending / threads
end

return M
