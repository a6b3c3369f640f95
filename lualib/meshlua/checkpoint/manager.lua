-- manager.lua: a folder of checkpoints, one folder a step. A save is made of stages that no process waits for
-- another in: each writes its boxes, then its part; process 0 looks until the parts of all are there, writes the
-- manifest, and gives the folder its name. Only that makes a checkpoint: what lies under another name is nothing.
--
-- The main thread goes on between the stages; the bytes, syncs and renames are made by threads. What fails is the
-- result of the next call.
local core = require "meshlua.core"
local json = require "meshlua.train.json"
local lib = require "meshlua.lib"
local lock_of = require "meshlua.checkpoint.lock"
local manifest = require "meshlua.checkpoint.manifest"
local restore = require "meshlua.checkpoint.restore"
local together = require "meshlua.sharding.together"
local view = require "meshlua.checkpoint.view"

local raise = lib.raise

local M = {}

local NOTICE = 10 -- seconds until it is said whose part is missing
local PATIENCE = 600 -- until the save is given up
local NAP = 0.005

---@class Manager
---@field folder string
---@field keep integer
---@field keep_every integer?
---@field best {metric: string, mode: string}?
---@field every_steps integer?
---@field every_minutes number?
---@field async boolean
---@field memory integer?
---@field begun integer? the step of the latest save or restore
---@field later table<integer, true> steps behind the one that was restored: what is saved takes their place
local Manager = {}
local Manager_meta = {__index = Manager, __name = "Manager"}

local function say(text) io.stderr:write("meshlua: ", text, "\n") end

-- ---- options ----------------------------------------------------------------------------------------

local function check_count(name, value, least)
  if value == nil then return nil end
  if math.type(value) ~= "integer" or value < least then
    raise("E_VALUE", "Manager: option '%s' is %s; it must be a whole number from %d on", name,
      lib.text(value), least)
  end
  return value
end

local function check_best(best)
  if best == nil then return nil end
  if type(best) == "string" then best = {metric = best} end
  if type(best) ~= "table" or type(best.metric) ~= "string" then
    raise("E_VALUE", "Manager: option 'best' must be the name of a metric, or {metric =, mode =}")
  end
  local mode = best.mode or "min"
  if mode ~= "min" and mode ~= "max" then
    raise("E_VALUE", "Manager: best.mode is %s; expected min, max", lib.text(mode))
  end
  return {metric = best.metric, mode = mode}
end

--- A folder of checkpoints, which is this run's until close: another run that wants it is refused. All processes
--- must call it. nil, message, code where the folder cannot be had.
---@param folder string
---@param options {keep: integer?, keep_every: integer?, best: string|table?, every_steps: integer?,
--- every_minutes: number?, async: boolean?, memory: integer?, timeout: number?}?
--- keep: so many of the latest stay, at least 2; default 3. keep_every: steps that it divides stay, too. best: a
--- metric (the smallest value; {metric =, mode = "max"}: the largest) whose best step stays, too. every_steps,
--- every_minutes: save does nothing but then. async: default true. memory: bytes that a save may hold while steps go
--- on; one that needs more is made as with async = false, which is said once. timeout: seconds to wait for other
--- processes; default 600
---@return Manager?, string? message, string? code
function M.Manager(folder, options)
  if type(folder) ~= "string" or folder == "" then
    raise("E_VALUE", "Manager: the folder must be a path, not %s", lib.kind(folder))
  end
  options = lib.options("checkpoint.Manager", options)
  local minutes = options.every_minutes
  if minutes ~= nil and not (type(minutes) == "number" and minutes > 0) then
    raise("E_VALUE", "Manager: option 'every_minutes' is %s; it must be above 0", lib.text(minutes))
  end
  local self = setmetatable({folder = folder:gsub("(.)/+$", "%1"),
    keep = check_count("keep", options.keep, 2) or 3,
    keep_every = check_count("keep_every", options.keep_every, 1),
    best = check_best(options.best),
    every_steps = check_count("every_steps", options.every_steps, 1), every_minutes = minutes,
    async = options.async ~= false, memory = check_count("memory", options.memory, 1),
    timeout = options.timeout or PATIENCE, process = core.process_index(), saved_at = core.clock(),
    later = {}}, Manager_meta)
  local held, message, code = lock_of.take(self.folder, say)
  if not held then return nil, message, code end
  self.lock, self.nonce = held.lock, held.nonce
  return self
end

local function check_open(self, who)
  if self.closed then raise("E_STATE", "Manager:%s: it is closed", who) end
end

-- ---- which steps there are --------------------------------------------------------------------------

local function path_of(self, step) return self.folder .. "/" .. manifest.folder(step) end

--- The steps that are whole, ascending, with their manifests.
local function whole_steps(self)
  local steps, manifests = {}, {}
  for _, step in ipairs(manifest.steps(self.folder)) do
    local m = manifest.read(path_of(self, step), step)
    if m then steps[#steps + 1], manifests[step] = step, m end
  end
  return steps, manifests
end

--- The steps that can be restored, ascending, as the disk has them now.
---@return integer[]
function Manager:steps() return (whole_steps(self)) end

--- The newest of them, or nil.
---@return integer?
function Manager:latest()
  local steps = manifest.steps(self.folder)
  for i = #steps, 1, -1 do
    if manifest.read(path_of(self, steps[i]), steps[i]) then return steps[i] end
  end
end

--- The step whose metric is best, among these.
local function best_of(best, steps, manifests)
  local found, value
  for _, step in ipairs(steps) do
    local x = manifests[step].metrics
    x = type(x) == "table" and x[best.metric]
    if type(x) == "number" then
      x = best.mode == "min" and x or -x
      if not value or x < value then found, value = step, x end
    end
  end
  return found
end

--- Calls that take a step away, under a name that is none.
local function removal(self, step, calls)
  local gone = ("%s/.gone-%s.%s"):format(self.folder, manifest.folder(step), self.nonce)
  calls[#calls + 1] = {"move", path_of(self, step), gone}
  calls[#calls + 1] = {"sync", self.folder} -- no power cut leaves half of it under the name of a step
  calls[#calls + 1] = {"remove", gone}
end

--- What is to go once a step is saved: calls of a task.
local function surplus(self, saved)
  local calls = {}
  for _, step in ipairs(manifest.steps(self.folder)) do
    if step > saved and self.later[step] then removal(self, step, calls) end
  end
  if #calls > 0 then return calls end
  local steps, manifests = whole_steps(self)
  local stays = {}
  for i = math.max(1, #steps - self.keep + 1), #steps do stays[steps[i]] = true end
  local best = self.best and best_of(self.best, steps, manifests)
  if best then stays[best] = true end
  for _, step in ipairs(steps) do
    if not stays[step] and not (self.keep_every and step % self.keep_every == 0) then
      removal(self, step, calls)
    end
  end
  return calls
end

-- ---- a save, stage by stage -------------------------------------------------------------------------

---@class Save
---@field step integer
---@field temp string
---@field final string
---@field plan SavePlan
---@field manifest table
---@field stage string
---@field begun number
---@field texts table[] {name, text} of process 0

local stages = {}

--- All of a tensor, as the writer takes it.
local function whole_piece(file, t)
  local piece = view.piece(view.whole(t.shape))
  piece.file, piece.begin, piece.dtype = file, t.begin, t.dtype
  return piece
end

--- Begins to write: what the tensors hold now is what is saved.
local function begin_writing(self, save)
  local done, message = core.disk_task {{"make", save.temp}}:wait()
  if not done then return nil, message, "E_IO" end
  local writer = core.writer {memory = self.memory}
  save.writer = writer
  for _, file in ipairs(save.plan.files) do
    local number, code
    number, message, code = writer:file(save.temp .. "/" .. file.name,
      {header = self.process == 0 and file.header or nil, size = file.size, create = true})
    if not number then return nil, message, code end
    for _, t in ipairs(file.entries) do writer:add(t.leaf, t.index, {whole_piece(number, t)}) end
  end
  if self.async and writer:start() then return true end
  if self.async and not self.said_waiting then
    self.said_waiting = true
    local bytes = core.bytes_text(writer:bytes())
    say(("%s: steps wait while a checkpoint is written: its %s %s"):format(self.folder, bytes, self.memory
      and ("are more than option 'memory' (%s) allows"):format(core.bytes_text(self.memory))
      or "have no thread to write them"))
  end
  writer:run()
  return true
end

--- Units as the writer gives them, as rows of a part.
local function part_units(save, units)
  local file_of, entry_of = {}, {}
  for f, file in ipairs(save.plan.files) do
    for i, t in ipairs(file.entries) do file_of[t.index], entry_of[t.index] = f, i end
  end
  local rows = {}
  for i, unit in ipairs(units) do
    local file, entry = file_of[unit.tensor], entry_of[unit.tensor]
    rows[i] = {file, entry, json.list(unit.at), json.list(unit.size), unit.hash}
  end
  return rows
end

local function start_task(save, calls, stage)
  save.task, save.stage = core.disk_task(calls), stage
end

local function add_text(save, calls, name, text)
  local path = save.temp .. "/" .. name
  calls[#calls + 1] = {"write", path .. ".part", text}
  calls[#calls + 1] = {"move", path .. ".part", path}
  save.texts[#save.texts + 1] = {name = name, bytes = #text, hash = core.hash128(text)}
end

function stages.writing(self, save)
  if not save.writer:poll() then return false end
  local result, message, code = save.writer:wait()
  save.writer:release()
  save.writer = nil
  if not result then return nil, message, code end
  local calls = {}
  if self.process == 0 then
    add_text(save, calls, manifest.STATE, save.state)
    for _, index in ipairs(save.plan.indexes) do add_text(save, calls, index[1], index[2]) end
  end
  add_text(save, calls, manifest.part(self.process), manifest.part_text(self.process,
    part_units(save, result.units)))
  calls[#calls + 1] = {"sync", save.temp}
  start_task(save, calls, "part")
  return false
end

--- What a task gave; a folder that cannot be synced is told of once.
local function finish_task(self, save)
  if not save.task:poll() then return false end
  local ok, message = save.task:wait()
  save.task = nil
  if not ok then return nil, message, "E_IO" end
  if message and not self.said_unsynced then
    self.said_unsynced = true
    say(("%s: a folder there cannot be synced; a power cut may take the latest checkpoint"):format(message))
  end
  return true
end

function stages.part(self, save)
  local ok, message, code = finish_task(self, save)
  if ok then save.stage = self.process == 0 and "waiting" or "following" end
  return ok == nil and nil or false, message, code
end

--- The processes whose parts are not there; or nil and what one of them said of its failure.
local function missing_parts(save)
  local missing = {}
  for process = 0, save.manifest.processes - 1 do
    if not save.seen[process] then
      local path = save.temp .. "/" .. manifest.part(process)
      local failure = core.read_file(path .. ".failed", 1 << 16)
      if failure then return nil, failure end
      save.seen[process] = core.path_kind(path) == "file" or nil
      if not save.seen[process] then missing[#missing + 1] = process end
    end
  end
  return missing
end

--- Looks how long the others have been waited for: nil, message once it is too long.
local function check_wait(self, save, what)
  local waited = core.clock() - save.begun
  if waited > self.timeout then
    return nil, ("%s: %s after %.0f seconds; the checkpoint is given up"):format(save.final, what, waited),
      "E_IO"
  end
  if waited > NOTICE and not save.noticed and save.plan.bytes < 1e9 * waited then
    save.noticed = true
    say(("%s: %s after %.0f seconds"):format(save.final, what, waited))
  end
  return false
end

function stages.waiting(self, save)
  local missing, failure = missing_parts(save)
  if not missing then return nil, failure, "E_IO" end
  local who = (#missing == 1 and "process " or "processes ") .. lib.some(missing, 8)
  if #missing > 0 then return check_wait(self, save, ("the part of %s is missing"):format(who)) end
  for process = 1, save.manifest.processes - 1 do
    local path = save.temp .. "/" .. manifest.part(process)
    local part, text = manifest.read_sealed(path)
    if not part then return nil, text, "E_IO" end
    save.parts[process + 1] = part
    save.texts[#save.texts + 1] = {name = manifest.part(process), bytes = #text, hash = core.hash128(text)}
  end
  local own = manifest.read_sealed(save.temp .. "/" .. manifest.part(0))
  save.parts[1] = own
  return stages.compose(save, self)
end

function stages.compose(save, self)
  local m, names = save.manifest, {}
  for i, file in ipairs(m.files) do names[i] = file.name end
  local units, fault = manifest.gather(save.parts, function(i) return m.tensors[names[i]] end, names)
  if not units then return nil, save.final .. ": " .. fault, "E_IO" end
  for i, file in ipairs(m.files) do file.hash = manifest.file_hash(units[i]) end
  m.texts = save.texts
  local path = save.temp .. "/" .. manifest.NAME
  local calls = {{"write", path .. ".part", manifest.seal(m, manifest.ORDER)},
    {"move", path .. ".part", path}, {"sync", save.temp}}
  if save.replaces then
    calls[#calls + 1] = {"move", save.final, save.replaces}
    calls[#calls + 1] = {"sync", self.folder}
  end
  calls[#calls + 1] = {"move_new", save.temp, save.final}
  calls[#calls + 1] = {"sync", self.folder}
  if save.replaces then calls[#calls + 1] = {"remove", save.replaces} end
  start_task(save, calls, "commit")
  return false
end

function stages.commit(self, save)
  local ok, message, code = finish_task(self, save)
  if not ok then return ok, message, code end
  local calls = surplus(self, save.step)
  self.saved, self.later[save.step] = save.step, nil
  if #calls == 0 then return true end
  start_task(save, calls, "pruning")
  return false
end

function stages.pruning(self, save)
  local ok, message = finish_task(self, save)
  if ok == nil then say("an older checkpoint cannot be removed: " .. message) end
  return ok ~= false
end

--- Of a process other than 0.
function stages.following(self, save)
  local m = manifest.read_sealed(save.final .. "/" .. manifest.NAME)
  if m and m.nonce == self.nonce then
    self.saved, self.later[save.step] = save.step, nil
    return true
  end
  if core.path_kind(save.temp) or not save.gone then
    save.gone = not core.path_kind(save.temp) -- it may have got its name between the two looks
    return check_wait(self, save, "process 0 has not finished the checkpoint")
  end
  return nil, save.final .. ": process 0 has given the checkpoint up", "E_IO"
end

--- What is left of a save that failed goes, and the others are told.
local function give_up(self, save, message)
  if save.writer then save.writer:release() end
  if save.task then save.task:wait() end
  if self.process == 0 then
    core.disk_task {{"remove", save.temp}}:wait()
  else
    core.disk_task {{"write", save.temp .. "/" .. manifest.part(self.process) .. ".failed",
      ("process %d: %s"):format(self.process, message)}}:wait()
  end
end

--- To be closed where a save goes on: what raises there (memory that runs out) ends the save, which otherwise would
--- be looked at for ever.
local Raised = {__close = function(going, raised)
  local self, save = going.manager, going.save
  if raised == nil or self.save_under_way ~= save then return end
  self.save_under_way = nil
  pcall(give_up, self, save, lib.text(raised))
end}

local function going_on(self, save) return setmetatable({manager = self, save = save}, Raised) end

--- Goes on with the save under way, as far as it can without waiting. True: there is none (any more); false: it
--- goes on; nil, message, code: it has failed, which is said once.
function M.advance(self)
  local save = self.save_under_way
  if not save then return true end
  local _ <close> = going_on(self, save)
  local done, message, code, stage
  repeat
    stage = save.stage
    done, message, code = stages[stage](self, save)
  until done ~= false or save.stage == stage
  if done == false then return false end
  self.save_under_way = nil
  if done == nil then
    give_up(self, save, message)
    return nil, message, code or "E_IO"
  end
  return true
end

--- Until the save under way is over.
local function finish(self)
  while true do
    local done, message, code = M.advance(self)
    if done ~= false then return done, message, code end
    core.sleep(NAP)
  end
end

-- ---- what users call --------------------------------------------------------------------------------

--- Is a save wanted at this step? The same answer in all processes.
local function is_due(self, step)
  if not self.every_steps and not self.every_minutes then return true end
  if self.every_minutes and self.process == 0 and core.clock() - self.saved_at > 60 * self.every_minutes then
    core.ask_save()
  end
  local by_time = self.every_minutes and core.take_save()
  return by_time or self.every_steps and step % self.every_steps == 0 or false
end

local function check_trees(trees)
  if type(trees) ~= "table" or lib.is_tensor(trees) or next(trees) == nil then
    raise("E_VALUE", "Manager:save: expected a table of trees: {model = model, optimizer = optimizer}")
  end
  for name, root in pairs(trees) do
    if type(name) ~= "string" or not name:find "^[%w_][%w_-]*$" then
      raise("E_VALUE", "Manager:save: a tree is called %s; names are words", lib.text(name))
    end
    if type(root) ~= "table" and not lib.is_tensor(root) then
      raise("E_VALUE", "Manager:save: %s is %s, no tree", name, lib.kind(root))
    end
  end
  return trees
end

--- Begins a save; there is none under way.
local function begin(self, step, trees, options)
  local ok, message, code
  self.begun = step
  local save = {step = step, final = path_of(self, step), stage = "writing", begun = core.clock(), seen = {},
    parts = {}, texts = {}, temp = ("%s/.%s.%s"):format(self.folder, manifest.folder(step), self.nonce)}
  if core.path_kind(save.final) then
    if not self.later[step] and manifest.read(save.final, step) then
      return nil, save.final .. ": there is a checkpoint of this step already", "E_STATE"
    end
    save.replaces = ("%s/.gone-%s.%s"):format(self.folder, manifest.folder(step), self.nonce)
  end
  save.plan, message, code = manifest.plan(trees)
  if not save.plan then return nil, message, code end
  save.manifest = manifest.make(save.plan, step, {metrics = options.metrics, nonce = self.nonce,
    processes = core.process_count()})
  save.state = manifest.seal({step = step, state = options.state or {}}, {"step", "state"})
  local _ <close> = going_on(self, save)
  self.save_under_way, self.saved_at = save, core.clock()
  ok, message, code = begin_writing(self, save)
  if not ok then
    self.save_under_way = nil
    give_up(self, save, message)
    return nil, message, code or "E_IO"
  end
  local go_on = self.async and M.advance or finish -- which gives up what is held where all is written
  ok, message, code = go_on(self)
  if ok == nil then return nil, message, code end
  return true
end

--- Saves trees of Params as a step: what they hold now, while training goes on. All processes must call it, with
--- the same step and trees; none waits for another. With every_steps or every_minutes it is called behind each
--- step and saves when it is time. A save that failed is the result of the next call, which saves all the same.
---@param step integer
---@param trees table<string, table> {model =, optimizer =, ...}
---@param options {metrics: table<string, number>?, state: table?, force: boolean?}? metrics: what `best` looks at.
--- state: plain values that restore gives back. force: though it is not time
---@return boolean? saving false: it is not time; nil: it has failed
---@return string? message, string? code
function Manager:save(step, trees, options)
  check_open(self, "save")
  options = lib.options("Manager:save", options)
  if math.type(step) ~= "integer" or step < 0 then
    raise("E_VALUE", "Manager:save: the step is %s; it must be a whole number from 0 on", lib.text(step))
  end
  local due = is_due(self, step) or options.force or false
  check_trees(trees)
  -- What is told of an earlier save does not keep this one from being made.
  local earlier, why, its_code = M.advance(self)
  if due and earlier == false then earlier, why, its_code = finish(self) end
  local ok, message, code = due, nil, nil
  if due then ok, message, code = begin(self, step, trees, options) end
  if ok == nil then return nil, message, code end
  if earlier == nil then return nil, why, its_code end
  return ok
end

--- Waits until the save under way is committed. nil, message, code where it failed.
---@return true?, string? message, string? code
function Manager:wait() return finish(self) end

--- Reads a step into trees of Params, wherever they lie: only what this process holds. All processes must call it.
--- Nothing is changed where it fails.
---@param trees table<string, table> {model =, ...}: names of a save; others of that save are left
---@param options {step: integer?, cast: boolean?, partial: boolean?, pass_over: boolean?}? step: default the newest.
--- cast: Params may be of another dtype. partial: Params that the checkpoint lacks stay. pass_over: a broken
--- checkpoint is named, and the one before it taken
---@return {step: integer, state: table, metrics: table?}? found, string? message, string? code
function Manager:restore(trees, options)
  check_open(self, "restore")
  options = lib.options("Manager:restore", options)
  return M.restore(self, check_trees(trees), options)
end

--- Waits for the save under way, and gives the folder free for other runs.
---@return true?, string? message, string? code
function Manager:close()
  if self.closed then return true end
  local _ <close> = self.lock -- whatever happens
  local ok, message, code = finish(self)
  self.closed = true
  return ok, message, code
end
Manager_meta.__close = function(self) self:close() end

--- Manager:restore, for which options.check(state) may refuse.
function M.restore(self, trees, options)
  local ok, message, code = finish(self)
  if not ok then return nil, message, code end
  local steps = manifest.steps(self.folder)
  local found
  found, message, code = restore.newest(self.folder, steps, trees, options, say)
  if not found then return nil, message, code end
  self.begun, self.later = found.step, {}
  for _, step in ipairs(steps) do self.later[step] = step > found.step or nil end
  return found
end

--- Is it a step's folder?
function M.is_checkpoint(path) return core.path_kind(path .. "/" .. manifest.NAME) == "file" end

--- The same of a step's folder, whatever its name.
function M.restore_from(path, trees, options) return restore.one(path, trees, options, say) end

--- Does a save go on, in any process? All must call it.
function M.is_saving(self)
  M.advance(self)
  return together.largest(self.save_under_way and 1 or 0) == 1
end

--- Is there room for what saves of these trees will write? nil, message, code where there is not.
function M.check_room(self, trees)
  if self.process ~= 0 then return true end
  local plan, message, code = manifest.plan(trees)
  if not plan then return nil, message, code end
  local free, why = core.free_bytes(self.folder)
  if not free then return nil, why, "E_IO" end
  local coming = math.max(1, self.keep + (self.best and 2 or 1) - #manifest.steps(self.folder))
  if free >= coming * plan.bytes then return true end
  return nil, ("%s: %s of checkpoints will be written (%d of %s), and %s are free; take another disk, or "
    .. "keep fewer"):format(self.folder, core.bytes_text(coming * plan.bytes), coming,
    core.bytes_text(plan.bytes), core.bytes_text(free)), "E_IO"
end

M.methods = Manager

return M
