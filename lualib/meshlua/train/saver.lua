-- saver.lua: the checkpoints of a training run: when they are made, what of them must agree with the run that goes
-- on from one, and what a signal to stop does. They lie in --out/checkpoints.
local core = require "meshlua.core"
local files = require "meshlua.train.files"
local json = require "meshlua.train.json"
local lib = require "meshlua.lib"
local manager_of = require "meshlua.checkpoint.manager"
local manifest = require "meshlua.checkpoint.manifest"
local pretrained = require "meshlua.train.pretrained"
local trained = require "meshlua.train.trained"

local M = {}

-- ---- what a run is ----------------------------------------------------------------------------------

--- A hash of each field of the data.
local function fingerprints(data)
  local found = {}
  for _, part in ipairs {"train", "valid"} do
    local records = data[part]
    for name, mark in pairs(type(records) == "table" and records.fields and records:fingerprint() or {}) do
      found[part .. "." .. name] = mark
    end
  end
  return found
end

--- What must be the same in a run that goes on from a checkpoint, and (layout) what may differ.
---@param run Run
---@param values table the program's options
---@return table
function M.description(run, values)
  return {recipe = run.recipe.name, seed = values.seed, config = lib.copy(run.config),
    data = fingerprints(run.data), guard = run.guard and run.guard:state(), trained = trained.given(values),
    from = values.from ~= "" and values.from or nil,
    layout = {mesh = values.mesh, rules = values.rules, microbatches = values.microbatches,
      bits = values.bits, processes = core.process_count()}}
end

--- "config.lr: 0.001 in the checkpoint, 0.002 now" for each difference.
local function differences(then_, now, path, list)
  for _, key in ipairs(lib.names(lib.copy(type(then_) == "table" and then_ or {}, now))) do
    local a, b, at = then_[key], now[key], path .. key
    if type(a) == "table" and type(b) == "table" then
      differences(a, b, at .. ".", list)
    elseif a == nil or b == nil or json.encode(a, nil, true) ~= json.encode(b, nil, true) then
      list[#list + 1] = ("%s: %s in the checkpoint, %s now"):format(at, a == nil and "nothing" or lib.text(a),
        b == nil and "nothing" or lib.text(b))
    end
  end
  return list
end

--- nil, message, code where a checkpoint is of another run.
local function check_same(folder, saved, own)
  local list = {}
  for _, key in ipairs {"recipe", "seed", "config", "data", "trained"} do
    differences({[key] = saved[key]}, {[key] = own[key]}, "", list)
  end
  if saved.guard then
    differences({guard = saved.guard.options}, {guard = own.guard and own.guard.options}, "", list)
  end
  if #list == 0 then return true end
  return nil, ("%s is of another run: %s; --from takes its weights alone"):format(folder,
    lib.some(list, 10, "; ")), "E_VALUE"
end

M.differences, M.check_same = differences, check_same

-- ---- a run's checkpoints ----------------------------------------------------------------------------

---@class Saver
---@field manager Manager
---@field run Run
---@field values table
---@field step integer the latest that is done
local Saver = {}
local Saver_meta = {__index = Saver, __name = "Saver"}

--- Gives a run the weights of a file or of a checkpoint, of whatever dtype. nil, message, code where it has others.
---@param run Run
---@param path string
function M.weights(run, path)
  local found, message, code
  if manager_of.is_checkpoint(path) then
    found, message, code = manager_of.restore_from(path, {model = run.model}, {cast = true})
  else
    found, message, code = pretrained.weights(run.recipe, run.model, run.config, path)
  end
  if found == nil then return nil, "--from: " .. message, code == "E_IO" and code or "E_VALUE" end
  return true
end

--- The folder of checkpoints of --out.
function M.folder(out) return out .. "/" .. files.CHECKPOINTS end

--- Is there something that --resume could go on from?
function M.has_steps(out) return #manifest.steps(M.folder(out)) > 0 end

local BEST = "best_loss" -- the validation loss that counts, at a step that was the best so far

--- The checkpoints of a run, which are its own from here on. All processes call it; nil, message, code where the
--- folder cannot be had.
---@param values table the program's options
---@return Saver?, string? message, string? code
function M.open(values)
  local steps, minutes = values.save_every:match "^(%d+)$", values.save_every:match "^(%d+)m$"
  local best = values.eval_every > 0 and values.keep_best and BEST or nil
  local manager, message, code = manager_of.Manager(M.folder(values.out), {keep = values.keep, best = best,
    every_steps = math.tointeger(tonumber(steps)), every_minutes = tonumber(minutes)})
  if not manager then return nil, "--out: " .. message, code end
  return setmetatable({manager = manager, values = values, step = 0}, Saver_meta)
end

--- Takes the checkpoints of an earlier run away.
function Saver:clear()
  if core.process_index() ~= 0 then return end
  for _, step in ipairs(manifest.steps(self.manager.folder)) do
    core.disk_task {{"remove", self.manager.folder .. "/" .. manifest.folder(step)}}:wait()
  end
end

--- Gives a run what a checkpoint has. The step that it stands at; 0: the beginning. nil, message, code where that
--- cannot be.
---@param run Run
---@param watch Watch? which goes on where it was, too
---@return integer?, string? message, string? code
function Saver:resume(run, watch)
  self.run, self.own, self.watch = run, M.description(run, self.values), watch
  local word, folder = self.values.resume, self.manager.folder
  if word == "" or word == "auto" and #manifest.steps(folder) == 0 then return 0 end
  local step = math.tointeger(tonumber(word))
  local found, message, code = manager_of.restore(self.manager, run:state(), {step = step,
    pass_over = word == "auto", check = function(state) return check_same(folder, state, self.own) end})
  if not found then return nil, "--resume: " .. message, code end
  self.step = found.step
  if watch then watch:resume(found.state.watch) end
  if found.state.guard then run.guard:load(found.state.guard) end
  self.own.from = found.state.from
  return found.step
end

--- Where the run may have to go back, and has no checkpoint: saves its beginning.
function Saver:begin()
  if not M.has_steps(self.values.out) then self:finish(true) end
end

--- Gives the run what its newest checkpoint that is whole has. Its step, and what it says of the guard.
---@return integer?, table|string|nil guard or message
function Saver:rollback()
  local found, message = manager_of.restore(self.manager, self.run:state(), {pass_over = true,
    check = function(state) return check_same(self.manager.folder, state, self.own) end})
  if not found then return nil, message end
  local ok, why = true, nil
  if self.watch then ok, why = self.watch:rewind(found.state.watch, found.step) end
  if not ok then return nil, why end
  self.step = found.step
  return found.step, found.state.guard
end

--- nil, message, code where there is no room for the run's checkpoints.
function Saver:check_room() return manager_of.check_room(self.manager, self.run:state()) end

local EXIT_ENVIRONMENT = 3

--- Ends the program with the message of a save that failed, or warns.
local function said(self, ok, message)
  if ok ~= nil then return ok end
  if self.values.save_failure == "warn" then
    io.stderr:write("train: warning: ", message, "; the run goes on without this checkpoint\n")
    return false
  end
  io.stderr:write("train: ", message, "\n")
  os.exit(EXIT_ENVIRONMENT, true)
end

local function save(self, force)
  local row, best = self.metrics, self.watch and self.watch.best
  self.own.watch = self.watch and self.watch:state()
  local guard = self.run.guard
  said(self, self.manager:save(self.step, self.run:state(), {force = force,
    state = guard and lib.copy(self.own, {guard = guard:state()}) or self.own,
    metrics = row and {loss = row.loss, grad_norm = row.grad_norm, validation_loss = row.validation_loss,
      [BEST] = best and best.step == self.step and best.loss or nil}}))
end

--- Behind each step: saves if it is time.
---@param row table
function Saver:note(row)
  self.step, self.metrics = row.step, row
  local is_best = row.best and self.values.keep_best
  if self.values.save_every ~= "" or is_best then save(self, is_best) end
end

--- Saves the step that is done, unless it is saved already, and waits until it is on the disk.
---@param first boolean? also the beginning
function Saver:finish(first)
  if self.manager.begun ~= self.step and (first or self.step > 0) then save(self, true) end
  said(self, self.manager:wait())
end

--- The same on a signal: a save that is under way is finished, and no other begun.
local function on_stop(self)
  local goes_on = manager_of.is_saving(self.manager)
  if goes_on then said(self, self.manager:wait()) else self:finish() end
  local step = self.manager:latest()
  core.check_stop((" after step %d%s"):format(self.step, step and
    ("; --resume goes on from step %d"):format(step) or ""))
end

--- Until what this returns is closed, signals and Ctrl-C save before they stop the run.
function Saver:guarded()
  local before
  before = core.on_stop(function()
    on_stop(self)
    if before then before() end
  end)
  core.interrupt_stops(true)
  return setmetatable({}, {__close = function()
    core.interrupt_stops(false)
    core.on_stop(before)
  end})
end

--- Waits for a save under way, and gives the folder free.
function Saver:close() said(self, self.manager:close()) end
Saver_meta.__close = function(self) self.manager:close() end

return M
