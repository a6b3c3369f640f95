-- progress.lua: how a run says how far it is: one line that is drawn again and again on a terminal, and
-- plain lines at intervals, there and elsewhere.
local core = require "meshlua.core"
local profile = require "meshlua.profile"
local sparkline = require "meshlua.sparkline"
local has_program, program = pcall(require, "meshlua.program") -- a stock lua lacks it

local M = {}

local REDRAW_SECONDS = 0.1
local SMOOTHING = 0.05 -- weight of the latest step in the time that the rest is estimated from
local CURVE, LEAST_CURVE = 40, 8 -- columns of the loss's curve, at most and at least
local WAIT = 0.05 -- the share of a step's time from which waiting for data is worth a word

---@class Progress
---@field steps integer
---@field every integer plain lines: each so many steps
---@field unit string what `rate` counts per second
local Progress = {}
local Progress_meta = {__index = Progress}

--- "0:07", "1:02:30".
local function clock(seconds)
  local s = math.ceil(seconds)
  if s < 3600 then return ("%d:%02d"):format(s // 60, s % 60) end
  return ("%d:%02d:%02d"):format(s // 3600, s // 60 % 60, s % 60)
end

--- "93 MB", "1.4 GB".
local function bytes(n)
  if n < 1e9 then return ("%.0f MB"):format(n / 1e6) end
  return ("%.1f GB"):format(n / 1e9)
end

--- The parts of a line: what it is and its text. is_drawn: on a terminal, which has no fixed columns.
function Progress:fields(row, is_drawn)
  local total = tostring(self.steps)
  local list = {
    {"step", ("%" .. #total .. "d/%s"):format(row.step, total)},
    {"loss", ("%.4f"):format(row.loss)},
    {"grad norm", ("%.3f"):format(row.grad_norm)},
    {"lr", ("%.2e"):format(row.lr)},
    {"", ("%.1f ms"):format(row.ms) .. (row.gpu_ms and (" (GPU %.1f)"):format(row.gpu_ms) or "")},
    {"", ("%.0f %s/s"):format(row.tokens_per_s, self.unit)},
    {"peak", bytes(core.memory().peak)},
    {"eta", clock((self.steps - row.step) * self.seconds)},
  }
  if is_drawn and self.waited > WAIT then list[#list + 1] = {"data", ("%.0f%%"):format(100 * self.waited)} end
  if row.shares then
    list[#list + 1] = {"threads busy", profile.shares_text(row.shares.threads)}
    list[#list + 1] = {"for each device", profile.shares_text(row.shares.devices)}
  end
  return list
end

--- The loss so far, in what a terminal's line has left.
function Progress:curve_text(words, width)
  for _, word in ipairs(words) do width = width - #word:gsub("\27%[%d*m", "") end
  local room = math.min(width - 2, CURVE)
  if room < LEAST_CURVE or #self.curve.values < 2 then return "" end
  return "  " .. sparkline.text(self.curve.values, room)
end

--- The line's words, as many of its parts as fit into `width` columns; labels dim where there is colour.
local function line(fields, width, colour)
  local words, used = {}, 0
  for _, field in ipairs(fields) do
    local label, value = field[1], field[2]
    local gap = used > 0 and "  " or ""
    local size = #gap + #label + (label ~= "" and 1 or 0) + #value
    if width and used + size > width then break end
    used = used + size
    if label ~= "" then label = (colour and "\27[2m" .. label .. "\27[0m" or label) .. " " end
    words[#words + 1] = gap .. label .. value
  end
  return words
end

--- Takes in a finished step.
---@param row {step: integer, loss: number, grad_norm: number, lr: number, ms: number, tokens_per_s: number,
--- gpu_ms: number?, wait_ms: number?, shares: table?}
function Progress:update(row)
  local seconds = row.ms / 1e3
  self.curve:add(row.loss)
  if row.wait_ms then self.waited = self.waited + SMOOTHING * (row.wait_ms / row.ms - self.waited) end
  -- The first step is traced and planned: it says nothing of the others.
  self.seconds = (not self.seconds or row.step <= 2) and seconds
    or self.seconds + SMOOTHING * (seconds - self.seconds)
  local width = has_program and program.columns "stdout"
  local colour = has_program and program.has_colour "stdout"
  local plain = row.step % self.every == 0 or row.step == 1 or row.step == self.steps
  if plain then
    self:clear()
    io.write(table.concat(line(self:fields(row), nil, colour)), "\n")
  elseif width and core.clock() - self.drawn >= REDRAW_SECONDS then
    -- One column stays free: some terminals wrap when the last is written.
    local words = line(self:fields(row, true), width - 1, colour)
    io.write("\r", table.concat(words), self:curve_text(words, width - 1), "\27[K")
    self.drawn, self.is_drawn = core.clock(), true
  else
    return
  end
  io.flush()
end

local LONG = 5 -- seconds, of an evaluation of which a plain line tells

--- Takes in a batch of an evaluation.
---@param done integer
---@param all integer
function Progress:evaluating(done, all)
  local now = core.clock()
  if done == 1 then self.evaluated_from = now end -- the first is traced and planned
  if done == 1 or done == all then return self:clear() end
  local each = (now - self.evaluated_from) / (done - 1)
  if done == 2 and each * all > LONG then
    self:clear()
    io.write(("evaluation: %d batches, about %s\n"):format(all, clock(each * all)))
    io.flush()
  end
  local width = has_program and program.columns "stdout"
  if not width or now - self.drawn < REDRAW_SECONDS then return end
  local text = ("evaluation %d/%d  eta %s"):format(done, all, clock(each * (all - done)))
  io.write("\r", text:sub(1, width - 1), "\27[K")
  io.flush()
  self.drawn, self.is_drawn = now, true
end

--- A line of its own.
function Progress:say(text)
  self:clear()
  io.write(text, "\n")
  io.flush()
end

--- Takes the line off the terminal.
function Progress:clear()
  if self.is_drawn then io.write "\r\27[K" end
  self.is_drawn = false
end

Progress_meta.__close = function(self)
  self:clear()
  io.flush()
end

--- A line for a run of so many steps. Close it, also when the run fails: what is printed next needs the place.
---@param options {steps: integer, every: integer, unit: string}
---@return Progress
function M.new(options)
  return setmetatable({steps = options.steps, every = options.every, unit = options.unit, drawn = -1e9,
    is_drawn = false, curve = sparkline.curve(2 * CURVE), waited = 0.0}, Progress_meta)
end

return M
