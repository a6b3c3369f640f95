-- guard.lua: what becomes of a training step whose loss or gradients are not finite, or far above those of the steps
-- before it. The step itself decides whether its update counts (M.counts, on global values), and the guard comes to the
-- same word from the same numbers, in each process. What it has decided is part of the run's checkpoints.
local core = require "meshlua.core"
local files = require "meshlua.train.files"
local json = require "meshlua.train.json"
local lib = require "meshlua.lib"
local nonfinite = require "meshlua.insight.nonfinite"

local op, is_finite = core.op, lib.is_finite

local M = {}

local LEAST = 0.01 -- of a mean: deviations are taken to be at least that
local ATTEMPTS = 8 -- to go on from one checkpoint

---@class Guard
---@field on_nan string "", "stop", "skip", "rollback"
---@field on_spike string the same
---@field window integer
---@field factor number
---@field shift integer by how many batches the data is ahead of the steps
---@field seen {loss: number[], grad_norm: number[]} of the latest steps that counted
---@field decisions table[] what was not "go", in order
---@field path string? where they are written
local Guard = {}
local Guard_meta = {__index = Guard, __name = "Guard"}

--- The guard that the options of a run ask for; nil: none.
---@param values table on_nan, on_spike, spike_window, spike_factor
---@return Guard?
function M.new(values)
  if values.on_nan == "" and values.on_spike == "" then return nil end
  return setmetatable({on_nan = values.on_nan, on_spike = values.on_spike, window = values.spike_window,
    factor = values.spike_factor, shift = 0, seen = {loss = {}, grad_norm = {}}, decisions = {}}, Guard_meta)
end

--- In a traced step: does its update count?
---@param loss Tensor scalar
---@param norm Tensor scalar
---@param loss_limit number|Tensor
---@param norm_limit number|Tensor
---@param scaled boolean gradients are scaled to the range of float16, and may leave it: that is the scale's business
---@return Tensor bool scalar
function M.counts(loss, norm, loss_limit, norm_limit, scaled)
  local function within(x, limit)
    if x.dtype ~= "float64" then x = op.astype(x, {dtype = "float32"}) end
    return op.le(x, limit)
  end
  local norm_counts = op.bitand(op.isfinite(norm), within(norm, norm_limit))
  if scaled then norm_counts = op.bitor(norm_counts, op.bitnot(op.isfinite(norm))) end
  return op.bitand(op.bitand(op.isfinite(loss), within(loss, loss_limit)), norm_counts)
end

--- As a step has it: a float32.
local function rounded(x) return (string.unpack("f", string.pack("f", x))) end

--- Mean and deviation of numbers.
local function moments(list)
  local sum, squares, n = 0.0, 0.0, #list
  for _, x in ipairs(list) do sum = sum + x end
  for _, x in ipairs(list) do squares = squares + (x - sum / n) ^ 2 end
  return sum / n, math.sqrt(squares / n)
end

--- What loss and gradient norm of the next step may be at most: infinity until half of the window is full.
---@return number loss, number norm
function Guard:limits()
  local function limit(list)
    if self.on_spike == "" or 2 * #list < self.window then return math.huge end
    local mean, deviation = moments(list)
    return rounded(mean + self.factor * math.max(deviation, LEAST * math.abs(mean)))
  end
  return limit(self.seen.loss), limit(self.seen.grad_norm)
end

--- A number as the log has it: JSON knows no others than finite ones.
local function noted(x) return is_finite(x) and x or x ~= x and "nan" or x > 0 and "inf" or "-inf" end

--- What to do behind a step: "go" on, "skip" it (its update did not count), "rollback", "stop".
---@param row {step: integer, loss: number, grad_norm: number}
---@return "go"|"skip"|"rollback"|"stop"
function Guard:look(row)
  local loss, norm, loss_limit, norm_limit = row.loss, row.grad_norm, self:limits()
  local finite = is_finite(loss) and (self.scaled or is_finite(norm))
  if finite and loss <= loss_limit and not (norm > norm_limit and is_finite(norm)) then
    for name, list in pairs(self.seen) do
      if is_finite(row[name]) then list[#list + 1] = row[name] end
      if #list > self.window then table.remove(list, 1) end
    end
    return "go"
  end
  local word = finite and self.on_spike or self.on_nan
  if word == "" then return "go" end -- as without a guard: the program ends where a loss is not finite
  self.decisions[#self.decisions + 1] = {step = row.step, batch = row.step + self.shift,
    what = finite and "spike" or "nan", word = word, loss = noted(loss), grad_norm = noted(norm),
    loss_limit = loss_limit < math.huge and loss_limit or nil,
    grad_norm_limit = norm_limit < math.huge and norm_limit or nil}
  return word
end

--- May it want to go back?
function Guard:rolls_back() return self.on_nan == "rollback" or self.on_spike == "rollback" end

--- Goes back to the last good checkpoint. Returns the step that the run stands at then; the batches since are passed
--- over. nil, message: there is none to go on from.
---@param row {step: integer}
---@param saver Saver
---@return integer?, string? message
function Guard:roll_back(row, saver)
  local to, saved = saver:rollback()
  if not to then return nil, saved end
  local last, tries = self.decisions[#self.decisions], 1
  for _, d in ipairs(self.decisions) do
    if d.to == to then tries = tries + 1 end
  end
  last.to, last.first_batch = to, to + 1 + self.shift
  if tries > ATTEMPTS then
    return nil, ("the run has come to grief %d times behind the checkpoint of step %d"):format(tries, to)
  end
  self.shift = self.shift + row.step - to
  if saved and saved.seen then self.seen = saved.seen end
  local ok, message = self:note()
  if not ok then return nil, message end
  return to
end

--- In a run that is made again: where it went back behind a step, it goes on from there at once.
---@param decisions table[] what the run has decided in all
---@param step integer
function Guard:follow(decisions, step)
  for i = #self.decisions + 1, #decisions do
    local d = decisions[i]
    if d.to ~= step then return end
    self.shift, self.decisions[i] = self.shift + d.step - step, d
  end
end

--- "step 12: the loss is nan, the gradient norm nan; skipped".
local function line(d)
  local function part(what, x, limit)
    if type(x) == "number" then x = ("%.6g"):format(x) end
    limit = limit and (" (at most %.6g was expected)"):format(limit) or ""
    return ("the %s is %s%s"):format(what, x, limit)
  end
  local text = ("step %d: %s, %s; "):format(d.step, part("loss", d.loss, d.loss_limit),
    part("gradient norm", d.grad_norm, d.grad_norm_limit))
  if d.word == "rollback" then
    return text .. ("back to step %d, past the batches %d to %d"):format(d.to, d.first_batch, d.batch)
  end
  return text .. (d.word == "skip" and "the update is left out" or "the run is stopped")
end

--- Why the run is stopped, and where what is not finite came from. The state is that before the step.
---@param run Run
---@return string
function Guard:stopped(run)
  local last = self.decisions[#self.decisions]
  if last.what == "spike" then return line(last) end
  return line(last) .. "\n" .. tostring(run:told(nonfinite.find_nonfinite, last.batch))
end

--- Writes all decisions to the run's log, and says the latest where the run goes on.
---@return true?, string? message
function Guard:note()
  if core.process_index() ~= 0 then return true end
  local last = self.decisions[#self.decisions]
  if last.word ~= "stop" then io.stderr:write("train: ", line(last), "\n") end
  return self:write()
end

local ORDER = {"step", "batch", "what", "word", "loss", "grad_norm", "loss_limit", "grad_norm_limit", "to",
  "first_batch"}

--- Writes the log anew: it has what has been decided, after a resume what was decided up to there.
---@return true?, string? message
function Guard:write()
  if not self.path or core.process_index() ~= 0 then return true end
  if #self.decisions == 0 and not core.is_regular_file(self.path) then return true end
  local lines = {}
  for i, d in ipairs(self.decisions) do lines[i] = json.encode(d, ORDER) .. "\n" end
  return files.write(self.path, table.concat(lines))
end

--- What a checkpoint keeps of it.
function Guard:state()
  local options = {on_nan = self.on_nan, on_spike = self.on_spike, window = self.window, factor = self.factor}
  return {options = options, shift = self.shift,
    seen = {loss = json.list(self.seen.loss), grad_norm = json.list(self.seen.grad_norm)},
    decisions = json.list(self.decisions)}
end

--- Goes on from what a checkpoint kept.
---@param saved table
function Guard:load(saved)
  self.shift, self.decisions = saved.shift, {table.unpack(saved.decisions)}
  self.seen = {loss = {table.unpack(saved.seen.loss)}, grad_norm = {table.unpack(saved.seen.grad_norm)}}
end

return M
