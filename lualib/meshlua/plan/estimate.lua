-- estimate.lua: how long a step takes on a card, and what it holds, where kernels are as good as those of which runs
-- were published: from operations, bytes, launches and sends of account.lua, and how far a card's kernels stay behind
-- its datasheet (cards.lua). bench/backtest.lua holds it against runs that others have published (docs/backtest.md).
local account = require "meshlua.insight.account"
local cards = require "meshlua.plan.cards"
local core = require "meshlua.core"
local processor = require "meshlua.insight.processor"

local M = {cards = cards}

-- Of all cards alike: round figures, chosen with all rows of docs/backtest.md in view.
local READ = 0.85 -- of the memory's bandwidth, as streams measure
local LINKED = 0.9 -- of links and networks
local LAUNCH = 8e-6 -- seconds of a kernel beside its work: the gap before it, its last parts
--- What is sent takes processors and bandwidth from what is computed beside it: of each second hidden so much is lost.
local BESIDE = 0.15
local SHOWN = 0.3 -- of a second of sends that are cut up and go beside their product
--- How often what a kernel of a plan reads and writes is read and written: trainers fuse less than a plan does, and
--- eager ones have no kernel for some, whose parts are in float32.
local PASSES = {eager = 2.0, compiled = 1.2, fp8 = 1.2}
local UNFUSED = {rms_norm = 8, rms_norm_grad_parts = 5, rope = 5}
--- Bytes for each score and pass of attention without flash kernels: products, mask, softmax, dropout.
local SCORES = {forward = 13, backward = 15}

local WIDE = {float32 = true, float64 = true}

--- How a trainer differs from the plan.
---@class Habits
---@field flash integer? 0: attention keeps its scores; else which of cards.lua's kinds it is
---@field vocab integer? of the head, which fp8 leaves out
---@field network number? bytes per second, a device
---@field loss number? bytes for each logit that the loss reads and writes beside the plan's
---@field held_logits number? bytes for each logit that it holds beside the plan's
---@field half table<string, boolean>? collectives that send half of what the plan has: "all_gather", "reduce_scatter"
---@field hides string? the axis of which sends are cut up and go beside the product that needs them
---@field gradients number? bytes for each byte of a device's parameters, of gradients that are kept over the whole step

--- The kinds of kernels that a time is known of; of a card that is not known only what a plan itself has.
---@param card string as core.device_kind
---@return table<string, true> of "eager", "compiled", "fp8"
function M.kinds(card)
  local row = cards[card]
  return {compiled = true, eager = row and true, fp8 = row and row.fp8 and true}
end

--- The factor of a card: where its kernels were not measured, that of the card's slowest; nil where nothing was.
---@param card string as core.device_kind
---@param kernels string "eager", "compiled", "fp8"
---@return number?
function M.factor(card, kernels)
  local row, slowest = cards[card] or {}, nil
  if row[kernels] then return row[kernels][1] end
  for _, kind in ipairs {"eager", "compiled", "fp8"} do
    if row[kind] then slowest = math.max(slowest or 0, row[kind][1]) end
  end
  return slowest
end

local function elements(value)
  local n = 1
  for _, size in ipairs(value.shape) do n = n * size end
  return n
end

--- Is a product that of the head, or of its gradient?
local function of_head(item, habits)
  for _, list in ipairs {item.step.inputs, item.step.outputs} do
    for _, value in ipairs(list) do
      for _, size in ipairs(value.shape) do
        if size == habits.vocab then return true end
      end
    end
  end
  return false
end

local function attention_seconds(item, row, factor, habits)
  local flash = habits.flash or 3
  if flash > 0 then return item.flops / (row.peak * row.attention[flash]) end
  local q = item.step.inputs[1].shape
  local scores = q[1] * q[2] * q[3] * item.step.inputs[2].shape[2] * item.times
  local bytes = scores * SCORES[item.op:find "grad" and "backward" or "forward"]
  return 2 * item.flops / row.peak * factor + bytes / (row.bandwidth * READ)
end

local function kernel_seconds(item, row, factor, kernels, habits)
  local streamed = item.traffic / (row.bandwidth * READ)
  local op = item.op
  if op:find "attention" then return attention_seconds(item, row, factor, habits) end
  if item.product then
    local peak = WIDE[item.dtype] and row.peak32 or row.peak
    if kernels == "fp8" and not WIDE[item.dtype] and not of_head(item, habits) then peak = 2 * peak end
    return item.flops / peak * factor + streamed
  end
  local seconds = streamed * (kernels == "eager" and UNFUSED[op] or PASSES[kernels])
  if op:find "softmax_cross_entropy" then
    seconds = seconds + (habits.loss or 0) * elements(item.step.inputs[1]) / (row.bandwidth * READ)
  end
  return seconds
end

local function collective_seconds(item, row, habits)
  local among = item.axes[1]
  local seconds = item.sending
  if habits.network then seconds = seconds + item.between / habits.network - item.between / row.network end
  seconds = seconds / LINKED
  if habits.half and habits.half[item.op] and among ~= habits.hides then seconds = seconds / 2 end
  return among == habits.hides and SHOWN * seconds or seconds
end

--- The seconds of each item of an account, all its times; those at best where nothing is known of the card.
---@param work table of account.lua
---@param card string as core.device_kind
---@param kernels string "eager", "compiled", "fp8"
---@param habits Habits?
---@return number[]
function M.times(work, card, kernels, habits)
  local row, factor, times = cards[card], M.factor(card, kernels), {}
  for i, item in ipairs(work.items) do
    times[i] = 0
    if not row then
      times[i] = item.computing + item.sending
    elseif item.kind == "kernel" then
      times[i] = kernel_seconds(item, row, factor, kernels, habits or {}) + LAUNCH * item.times
    elseif item.kind == "collective" then
      times[i] = collective_seconds(item, row, habits or {})
    end
  end
  return times
end

--- The seconds of a plan whose items take such times: what is computed, what of the sending nothing runs beside, and
--- what the rest of it costs.
---@param work table of account.lua
---@param times number[]
---@param known boolean? of the card
---@return number seconds
---@return number waited of them, for what is sent
function M.total(work, times, known)
  local computing, sending = 0, 0
  for i, item in ipairs(work.items) do
    if item.axes then sending = sending + times[i] else computing = computing + times[i] end
  end
  local waited = math.max(0, account.wall(work.items, times) - computing)
  if known then waited = waited + BESIDE * math.max(0, sending - waited) end
  return computing + waited, waited
end

--- The same of a plan as it is.
---@param work table of account.lua
---@param card string as core.device_kind
---@param kernels string "eager", "compiled", "fp8"
---@param habits Habits?
---@return number seconds
---@return number waited of them, for what is sent
function M.seconds(work, card, kernels, habits)
  return M.total(work, M.times(work, card, kernels, habits), cards[card] ~= nil)
end

--- Bytes that a trainer holds that keeps more than the plan: its loss in float32, the insides of norms that have no
--- kernel, gradients; without what its allocator keeps in reserve.
---@param work table of account.lua
---@param memory table of facts.lua
---@param kernels string "eager", "compiled", "fp8"
---@param habits Habits
---@return number
function M.held(work, memory, kernels, habits)
  local most, at_loss, norms = 0, 0, 0
  for i, item in ipairs(work.items) do
    local live, op = memory.live[i], item.op
    if op:find "softmax_cross_entropy" then
      live = live + (habits.held_logits or 0) * elements(item.step.inputs[1])
      at_loss = math.max(at_loss, live)
    elseif op == "rms_norm" and kernels == "eager" then
      norms = norms + (item.role == "recomputed" and -8 or 8) * elements(item.step.inputs[1])
    end
    most = math.max(most, memory.live[i])
  end
  return memory.peak + math.max(0, norms) + math.max(0, at_loss - most)
    + (habits.gradients or 0) * memory.groups.parameters
end

--- The same on the devices that there are; the processor's threads share the work of all of its.
---@param work table of account.lua
---@param kernels string "eager", "compiled", "fp8"
---@param habits Habits?
---@return number seconds
---@return number waited
function M.here(work, kernels, habits)
  if not processor.has_devices() then return M.seconds(work, (core.device_kind()), kernels, habits) end
  local seconds, sending = processor.seconds(work)
  local threads = core.thread_count()
  return seconds / threads, sending / threads
end

return M
