-- watch.lua: what is done behind some steps of a run: evaluations, the best of which counts, samples, and the end
-- where the loss falls no more. What it knows is saved with a checkpoint, so that a run that goes on decides as one
-- that never stopped.
local core = require "meshlua.core"
local lib = require "meshlua.lib"
local sinks = require "meshlua.train.sinks"

local M = {}

---@class Watch
---@field run Run
---@field every integer steps between evaluations; 0: none
---@field limit integer? batches of one; nil: as many as there are
---@field patience integer evaluations without a better one before the run ends; 0: it never does
---@field sample_every integer
---@field say fun(text: string)
---@field samples Sink? takes {step, sample, ...}
---@field best {loss: number, step: integer}?
---@field since integer evaluations behind the best
local Watch = {}
local Watch_meta = {__index = Watch}

--- How many batches an evaluation has: those that were asked for, and else as many as the steps that it stands behind.
---@param word string of --eval-batches
---@param steps integer
---@return integer?
function M.limit(word, steps)
  if word == "all" then return nil end
  return math.tointeger(tonumber(word)) or steps
end

--- "nats per byte" of a recipe's data, as far as that is known.
local function unit_of(data) return data.per and " nats per " .. data.per or "" end

--- Bits for each byte of the text; nil where the data says nothing of bytes.
---@param data table of a recipe; bytes: of one label
---@param loss number in nats
---@return number?
function M.bits_per_byte(data, loss) return data.bytes and loss / math.log(2) / data.bytes end

--- A validation loss in words.
---@param data table
---@param loss number
---@param batches integer
---@param all integer
function M.text(data, loss, batches, all)
  local bits = M.bits_per_byte(data, loss)
  return ("%.4f%s%s%s"):format(loss, unit_of(data), bits and (", %.4f bits per byte"):format(bits) or "",
    batches < all and (" (%d of %d batches)"):format(batches, all) or "")
end

--- Evaluates: adds to the row, and says so.
local function evaluate(self, row)
  local run = self.run
  run.most_batches = self.limit
  local loss, batches, all = run:validation_loss()
  row.validation_loss, row.bits_per_byte = loss, M.bits_per_byte(run.data, loss)
  local text = ("step %d: validation loss %s"):format(row.step, M.text(run.data, loss, batches, all))
  if run.ema then
    run.shown = run.ema:apply_to(run.model)
    loss = run:validation_loss()
    run.shown, row.ema_validation_loss = nil, loss
    text = ("%s; of the running mean %.4f"):format(text, loss)
  end
  self.since = self.since + 1
  if loss == loss and (not self.best or loss < self.best.loss) then
    self.best, self.since, row.best = {loss = loss, step = row.step}, 0, true
    text = text .. "; the best so far"
  end
  self.say(text)
end

--- What the recipe's sample gives, as far as it is told; the sinks get it, too. nil, message: one of them failed.
local function sample(self, row)
  local line = {step = row.step}
  for _, part in ipairs(self.run.recipe.sample(self.run)) do
    line[part.key] = part.value
    self.say(("step %d: %s"):format(row.step, part.text))
    local ok, message = sinks.note(self.run.sinks, part.key, part.value, row.step)
    if not ok then return nil, message end
  end
  if not self.samples then return true end
  return self.samples:add(line)
end

--- Is it a step behind which this is done?
local function is_due(every, step, last) return every > 0 and (step % every == 0 or step == last) end

--- Behind a step: evaluates and samples where it is time; the seconds that took. nil, message: a sample could not be
--- written.
---@param row table
---@return number? seconds, string? message
function Watch:note(row)
  local steps, began = self.run.config.steps, core.clock()
  row.validation_loss, row.bits_per_byte, row.ema_validation_loss, row.best = nil, nil, nil, nil
  local evaluates = is_due(self.every, row.step, steps)
  local samples = self.sample_every > 0 and row.step % self.sample_every == 0
  if not evaluates and not samples then return 0 end
  if evaluates then evaluate(self, row) end
  local ok, message = true, nil
  if samples then ok, message = sample(self, row) end
  if not ok then return nil, message end
  return core.clock() - began
end

--- Has the loss not fallen for as many evaluations as it may?
function Watch:is_over() return self.patience > 0 and self.since >= self.patience end

--- What a checkpoint keeps of it; nil: nothing.
function Watch:state()
  return self.best and {best = lib.copy(self.best), since = self.since} or nil
end

--- Goes on where a checkpoint was made.
---@param state table? of Watch:state
function Watch:resume(state)
  state = type(state) == "table" and state or {since = 0}
  self.best, self.since = state.best, state.since
end

--- Goes back to where a checkpoint was made: later samples are no more.
---@param state table? of Watch:state
---@param step integer of the checkpoint
---@return true?, string? message
function Watch:rewind(state, step)
  self:resume(state)
  if not self.samples then return true end
  return self.samples:rewind(step)
end

--- Has a run watched.
---@param run Run
---@param values {eval_every: integer, eval_batches: string, patience: integer, sample_every: integer}
---@param say fun(text: string) prints a line
---@return Watch
function M.new(run, values, say)
  local self = setmetatable({run = run, every = values.eval_every, patience = values.patience, say = say,
    limit = M.limit(values.eval_batches, values.eval_every),
    sample_every = run.recipe.sample and values.sample_every or 0, since = 0}, Watch_meta)
  function run.watch(row) return self:note(row) end
  return self
end

return M
