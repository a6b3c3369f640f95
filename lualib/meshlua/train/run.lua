-- run.lua: one training run of a recipe: its mesh, data, model and optimizer, the loop over steps, and the
-- means over the validation records. What is wrong with the machine or a file is a result (nil, message,
-- code); what is wrong with the recipe raises.
local arrays = require "meshlua.ops.arrays"
local core = require "meshlua.core"
local grad = require "meshlua.transform.grad"
local initialize = require "meshlua.nn.create"
local guards = require "meshlua.train.guard"
local jit = require "meshlua.transform.jit"
local lib = require "meshlua.lib"
local mesh_of = require "meshlua.sharding.mesh"
local meter_of = require "meshlua.train.meter"
local microbatch = require "meshlua.transform.microbatch"
local nn = require "meshlua.nn"
local optim = require "meshlua.optim"
local pipeline = require "meshlua.nn.pipeline"
local precision = require "meshlua.train.precision"
local profile = require "meshlua.profile"
local recipes = require "meshlua.train.recipe"
local rules_of = require "meshlua.sharding.rules"
local state_of = require "meshlua.nn.state"
local tree = require "meshlua.tree"

local M = {}

--- The mesh axis of a pipeline.
M.STAGE = "stage"
local UNTIMED = 3 -- the first steps trace, plan, choose between algorithms

---@class Run
---@field recipe table
---@field config table
---@field seed integer
---@field mesh Mesh?
---@field rules table?
---@field data table
---@field model table
---@field optimizer Optimizer
---@field loss_scale LossScale? of float16
---@field ema EMA? the running mean of the parameters
---@field tokens_per_s number? labels per second, from the fourth step on
---@field leaves integer? into which a step cuts its batch, so that its bits are the same on every mesh
---@field most_batches integer? of an evaluation; nil: all
---@field evaluating (fun(done: integer, all: integer))? told of each batch of an evaluation
---@field shown table? the model that is evaluated, where it is another than the one that is trained
---@field watch (fun(row: table): number?, string?)? does what stands behind a step, before the sinks get its row; the
--- seconds that are none of the step's, or nil and a message
---@field sinks Sink[] what takes each step's row: sink:add(row) gives true, or nil and a message; sink:close()
---@field guard Guard? guard:look(row) says of a step "go", "skip", "rollback" or "stop"
local Run = {}
local Run_meta = {__index = Run}

--- The mesh of a run that asks for none: on the processor the recipe's, whose devices are virtual; on GPUs the
--- batch goes over those there are.
---@param recipe string? the recipe's
---@return string
function M.default_mesh(recipe)
  local kind, fake = core.device_kind()
  if kind == "cpu" or fake then return recipe or "none" end
  local n = core.device_count()
  return n > 1 and "data:" .. n or "none"
end

--- "data:64,model:8" as axes and sizes, "none" as no axes.
---@param text string
---@return string[]? axes
---@return integer[]|string sizes or a message
function M.read_mesh(text)
  local axes, sizes, seen = {}, {}, {}
  if text == "none" then return axes, sizes end
  for word in (text .. ","):gmatch "([^,]*)," do
    local name, size = word:match "^([%a_][%w_]*):(%d+)$"
    size = math.tointeger(tonumber(size))
    if not size or size < 1 or seen[name] then
      return nil, ("--mesh=%s: expected axes and sizes as in data:4,model:2, or none"):format(text)
    end
    axes[#axes + 1], sizes[#sizes + 1], seen[name] = name, size, true
  end
  return axes, sizes
end

--- A mesh from "data:4,model:2"; nil for "none". Takes as many virtual devices of the processor as it needs,
--- unless the program was started with some.
---@param text string
---@param planned boolean? nothing is to run: the devices may be fake
---@return Mesh?
---@return string? message, string? code
function M.mesh(text, planned)
  local kind, fake = core.device_kind()
  if fake and not planned then
    return nil, ("the devices are fake (%s): a run needs some that can run; --explain does not"):format(kind),
      "E_VALUE"
  end
  local names, sizes = M.read_mesh(text)
  if not names then return nil, sizes, "E_VALUE" end
  if #names == 0 then return nil end
  local need, have = lib.product(sizes), core.device_count()
  if have == 1 and need > 1 and kind == "cpu" then
    core.set_devices(tostring(need))
  elseif have < need then
    return nil, ("--mesh=%s needs %d devices, and there are %d"):format(text, need, have), "E_VALUE"
  end
  return mesh_of.make_mesh(sizes, names, table.move(core.devices(), 1, need, 1, {}))
end

--- How records are put on the mesh: over the logical axis "batch". Raises where the mesh does not divide them.
---@param mesh Mesh
---@param rules table?
---@param size integer
---@return NamedSharding
function M.batch_sharding(mesh, rules, size)
  local spec = rules_of.within(mesh, rules, rules_of.spec_of, {"batch"}, "the batch", 1)
  local sharding = core.NamedSharding(mesh, spec)
  sharding:check({size}, "the batch")
  return sharding
end

--- Adds the mesh axes that a P, a rule's target or a rule names to a set.
local function add_axes(set, x)
  if type(x) == "string" then
    set[x] = true
  elseif core.is_spec(x) then
    for d = 1, #x do add_axes(set, x[d]) end
  elseif type(x) == "table" then
    for _, axis in ipairs(x) do add_axes(set, axis) end
  end
end

--- The mesh axes that the rules name: those of functions are known by what they give.
---@param rules table?
---@return table<string, true>
function M.named_axes(rules)
  local set = {}
  for _, rule in ipairs(rules or {}) do
    if type(rule) == "table" then
      local target = rule.opt or rule
      if type(target) == "table" then add_axes(set, target[2]) end
    end
  end
  return set
end

--- What is to be said of the axes of a run's mesh that split nothing: no rule names them, and neither a Param
--- nor the batch lies over them. A line for each.
---@param run Run
---@param text string the mesh as the user wrote it
---@param rules string the name of the rule set
---@return string[]
function M.unused_axes(run, text, rules)
  if not run.mesh then return {} end
  local named, used = M.named_axes(run.rules), {}
  for axis in pairs(named) do used[axis] = true end
  for _, leaf in ipairs((tree.leaves(run.model))) do
    if core.is_box(leaf) then add_axes(used, leaf.sharding.spec) end
  end
  for _, sharding in pairs(run.shardings) do add_axes(used, sharding.spec) end
  local names, lines = lib.names(next(named) and named or used), {}
  for _, axis in ipairs(run.mesh.axis_names) do
    if run.mesh.shape[axis] > 1 and not used[axis] then
      local near = lib.nearest(axis, names)
      lines[#lines + 1] = ("--mesh=%s: nothing is split over the axis %s: its %d devices do the same work; "
        .. "the rule set %s names %s%s"):format(text, axis, run.mesh.shape[axis], rules,
        #names > 0 and table.concat(names, ", ") or "no axis",
        near and "; did you mean " .. near .. "?" or "")
    end
  end
  return lines
end

--- Can batches of that size be put on the mesh, and be cut into so many parts?
---@param mesh Mesh?
---@param rules table?
---@param size integer
---@param parts integer
---@return true?, string? message, string? code
function M.check_batch(mesh, rules, size, parts)
  local ok, message = pcall(function()
    if mesh then M.batch_sharding(mesh, rules, size) end
    microbatch.check("--microbatches", "the batch", size, parts)
  end)
  if ok then return true end
  local text = message:match "%[E_INDIVISIBLE%] (.*)" or message:match "%[E_SHAPE%] (.*)"
  if not text then error(message, 0) end
  return nil, ("--batch=%d: %s"):format(size, text), "E_VALUE"
end

--- The same, on every device of the mesh if there is one.
local function on_mesh(mesh, tree_of_boxes)
  if mesh then mesh_of.device_put(tree_of_boxes, core.NamedSharding(mesh, core.P())) end
  return tree_of_boxes
end

--- The schedule of the model's pipeline, over the mesh axis "stage"; nil: there is no such axis.
local function schedule_of(self, schedule)
  if not (self.mesh and self.mesh.shape[M.STAGE]) then
    if not schedule then return nil end
    lib.raise("E_VALUE", "train.run: a schedule is of a pipeline, and the mesh has no axis '%s'", M.STAGE)
  end
  local parts = self.recipe.pipeline and self.recipe.pipeline(self.model)
  if parts then return schedule or "1f1b" end
  if not schedule then return nil end
  lib.raise("E_VALUE", "train.run: the recipe %s %s", self.recipe.name, self.recipe.pipeline
    and "makes a pipeline of layers that are a stack: --layers=scan" or "has no pipeline: see M.pipeline")
end

--- A step's gradients and loss through the stages; `scaled` of a loss is what is differentiated.
local function through_stages(self, model, batch, rngs, parts, scaled)
  local loss
  local _, grads = grad.value_and_grad(function(m)
    local own = self.recipe.pipeline(m)
    loss = pipeline.pipeline(own.stack, batch, {stage = M.STAGE, microbatches = parts,
      schedule = self.schedule, first = own.first, last = own.last, body = own.body,
      rngs = own.rngs and rngs or nil})
    return scaled(loss)
  end)(model)
  return grads, loss
end

--- A run, ready for its first step. The seed decides the parameters, the order of the data and dropout.
---@param recipe table
---@param options {config: table, seed: integer, mesh: Mesh?, rules: table?, data: table, microbatches: integer?,
--- leaves: integer?, guard: Guard?, prepare: (fun(run: Run))?, ema: number?, schedule: string?}
--- schedule: of a pipeline, where the mesh has an axis "stage"; default 1f1b. microbatches: into how many parts a step
--- cuts its batch; default 1. leaves: in their place, for the same bits on every mesh: see ml.accumulate. guard: says
--- which updates count; default all do. prepare: told of the run once it has its model, and no optimizer yet. ema: what
--- a running mean of the parameters keeps of itself; default none
---@return Run
function M.new(recipe, options)
  local config, seed, fault = options.config, options.seed, recipes.fault(recipe)
  if fault then lib.raise("E_VALUE", "train.run: %s", fault) end
  for _, name in ipairs {"config", "data"} do
    if type(options[name]) ~= "table" then
      lib.raise("E_VALUE", "train.run: option '%s' must be a table, not %s", name, lib.kind(options[name]))
    end
  end
  lib.check_integer("train.run", "the seed", seed)
  microbatch.check("run", "the batch", config.batch, options.microbatches or 1)
  local self = setmetatable({recipe = recipe, config = config, seed = seed, mesh = options.mesh,
    rules = options.rules, data = options.data, sinks = {}, scores = {}, guard = options.guard,
    leaves = options.leaves}, Run_meta)
  if self.mesh then
    local sharding = M.batch_sharding(self.mesh, self.rules, config.batch)
    self.shardings = {}
    for name in pairs(self.data.train.fields) do self.shardings[name] = sharding end
  end
  self.model = initialize.init(function(rngs) return recipe.build(config, rngs) end,
    {mesh = self.mesh, rules = self.rules, seed = seed})
  self.schedule = schedule_of(self, options.schedule)
  if options.prepare then options.prepare(self) end
  self.optimizer = recipe.optimizer(self.model, config)
  if (options.ema or 0) > 0 then self.ema = optim.EMA(self.model, {decay = options.ema}) end
  self.rngs = on_mesh(self.mesh, nn.Rngs(seed))
  if precision.of(config) == "float16" then self.loss_scale = on_mesh(self.mesh, optim.LossScale()) end
  if self.guard then self.guard.scaled = self.loss_scale ~= nil end
  self.train_step = self:jit(function(model, optimizer, rngs, inputs, labels, scale, ema, max_loss, max_norm)
    local function scaled(loss) return scale and scale:scaled(loss) or loss end
    local function loss_of(m)
      local loss = recipe.loss(m, inputs, labels, rngs)
      return scaled(loss), loss
    end
    local parts, _, grads, loss = options.leaves or options.microbatches or 1
    if self.schedule then
      grads, loss = through_stages(self, model, {inputs = inputs, labels = labels}, rngs, parts, scaled)
    else
      _, grads, loss = microbatch.accumulate(parts, function(part)
        inputs, labels = part[1], part[2]
        return grad.value_and_grad(loss_of, {has_aux = true})(model)
      end, {inputs, labels}, options.leaves and {bits = "mesh"} or nil)
    end
    if scale then grads = scale:unscaled(grads) end
    local apply = max_loss
      and guards.counts(loss, optim.global_norm(grads), max_loss, max_norm, scale ~= nil) or nil
    local done = optimizer:update(model, grads, {if_finite = scale ~= nil, apply = apply})
    if scale then scale:note(done.finite) end
    if ema then ema:update(model, {apply = done.applied}) end
    return loss, done.grad_norm
  end)
  return self
end

--- A function jitted on the run's mesh, with its rules.
---@param fn function
function Run:jit(fn) return jit.jit(fn, {mesh = self.mesh, rules = self.rules}) end

--- How many parameters the model has; then how many of them are trained.
---@return integer all, integer trained
function Run:parameters()
  local all, own = 0, 0
  for _, leaf in ipairs((tree.leaves(self.model))) do
    local kind = core.is_box(leaf) and leaf.kind
    if kind == "param" or kind == "frozen" then all = all + leaf.size end
    if kind == "param" then own = own + leaf.size end
  end
  return all, own
end

--- All that a step reads and writes, by name: what must be saved to go on behind a step. The data's position is the
--- step.
---@return table<string, table>
function Run:state()
  return {model = self.model, optimizer = self.optimizer, rngs = self.rngs, loss_scale = self.loss_scale,
    ema = self.ema and self.ema.params}
end

--- What stands behind a step: the guard's word, the watch, what the sinks take, the report. "stop" ends the run; nil,
--- message: a sink failed. Then the seconds that are none of a step's.
local function behind_step(self, row, report)
  local word = self.guard and self.guard:look(row) or "go"
  if word == "rollback" then return word end
  local away, why = 0, nil
  if word ~= "stop" and self.watch then away, why = self.watch(row) end
  if not away then return nil, ("step %d: %s"):format(row.step, why) end
  for _, sink in ipairs(self.sinks) do
    local ok, message = sink:add(row)
    if not ok then return nil, ("step %d: %s"):format(row.step, message) end
  end
  return report(row, word) == false and "stop" or word, away
end

--- Goes back as the guard says; the step that the run stands at then.
local function roll_back(self, row)
  local to, message = self.guard:roll_back(row, self.saver)
  if not to then return nil, message end
  for _, sink in ipairs(self.sinks) do
    local ok, why = true, nil
    if sink.rewind then ok, why = sink:rewind(to) end
    if not ok then return nil, why end
  end
  return to
end

--- The arguments of a step behind those that stay: a batch, the scale, and what the guard expects.
local function arguments_of(self, batch)
  if not self.guard then return batch.inputs, batch.labels, self.loss_scale, self.ema end
  return batch.inputs, batch.labels, self.loss_scale, self.ema, self.guard:limits()
end

--- The batches of the training records, by their numbers.
---@return Batches
function Run:batches()
  return self.data.train:shuffled {batch = self.config.batch, seed = self.seed, shardings = self.shardings}
end

--- Trains up to step config.steps, calling report(row) after each with {step, loss, grad_norm, lr, ms,
--- tokens_per_s}, gpu_ms of a step's launches where there is a GPU, what meter.lua adds, and shares (see profile.meter)
--- while a profile is recorded: the next step overwrites the row. Before that the guard, the watch and the sinks get it,
--- where there are such; report is told the guard's word, too, but for "rollback": then the steps since the checkpoint
--- are no more, and others take their place, of further batches. Stops where report returns false or the guard says
--- "stop"; raises E_STOP behind a step where a signal has asked for it. The first step's ms hold the tracing and
--- planning.
---@param report fun(row: table, word: string): any
---@param done integer? the steps that are behind it; default 0
---@return true? done, string? message nil: a sink failed, there is nothing to go back to, or a device is broken
function Run:train(report, done)
  done = done or 0
  local config, rate = self.config, self.recipe.schedule(self.config)
  local batches = self:batches()
  local step = self.train_step:bind(self.model:train(), self.optimizer, self.rngs)
  local row, shares, meter, before = {}, profile.meter(), meter_of.new(self), core.clock()
  local timed, from
  core.check_stop(done == 0 and " before the first step" or " after step " .. done)
  local s = done
  while s < config.steps do
    s = s + 1
    local asked = core.clock()
    local batch = batches(s + (self.guard and self.guard.shift or 0))
    local there = core.clock()
    local sound, fault = true, nil
    if self.auditor then sound, fault = self.auditor(s, batch) end
    if not sound then return nil, fault end
    local labels = batch.labels.size
    local from_stamp = core.stamp()
    self.last_mean = nil
    local loss, norm = step(arguments_of(self, batch))
    local to_stamp = core.stamp()
    row.step, row.loss, row.grad_norm = s, loss:item(), norm:item()
    local on_gpu = to_stamp and s > done + 1 and core.seconds_between(from_stamp, to_stamp)
    row.gpu_ms = on_gpu and 1e3 * on_gpu or nil
    batch.inputs:release() -- now, not when Lua collects: the next batch takes the memory, still warm
    batch.labels:release()
    local now = core.clock()
    row.lr, row.ms, row.tokens_per_s = rate(s - 1), (now - before) * 1e3, labels / (now - before)
    row.shares = shares()
    meter:note(row, there - asked, now - there)
    if s == done + UNTIMED then timed, from = 0, now end
    if s > done + UNTIMED then
      timed = timed + labels
      self.tokens_per_s = timed / (now - from)
    end
    local word, away = behind_step(self, row, report)
    if not word then return nil, away end
    if word == "rollback" then
      local to, why = roll_back(self, row)
      if not to then return nil, why end
      s, away = to, 0
    end
    if word == "stop" then break end
    before, from = now + away, from and from + away
    if away > 0 then meter:begin() end
    core.check_stop(" after step " .. s)
  end
  core.check_stop ""
  return true
end

--- What `tell` (ml.explain, ml.checks) says of the step on a batch.
---@param tell function
---@param at integer? the batch's number; default 1
---@return any
function Run:told(tell, at)
  local batch = self:batches()(at or 1)
  return tell(self.train_step, self.model:train(), self.optimizer, self.rngs, arguments_of(self, batch))
end

--- The plan of the step, which the first step then finds; no data is read for it.
---@return Plan
function Run:plan()
  local batch = {}
  for _, name in ipairs {"inputs", "labels"} do
    local field = self.data.train.fields[name]
    batch[name] = core.shape_dtype_struct({self.config.batch, table.unpack(field.shape)}, field.dtype,
      self.shardings and self.shardings[name])
  end
  return self.train_step:plan(self.model:train(), self.optimizer, self.rngs, arguments_of(self, batch))
end

--- A copy of the model on one device of each process; all processes must call it.
---@return table
function Run:gathered()
  local structure, state = state_of.split(self.model)
  return state_of.merge(structure, tree.map(function(x)
    return core.put_across(arrays.all_gather_to_host(x))
  end, state))
end

--- The batches of an evaluation: all in order, or `limit` of them at equal distances. Then how many, and of how many.
local function validation(records, size, shardings, limit)
  local all, i = -(-records.n // size), 0
  if not limit or limit >= all then return records:each(size, shardings), all, all end
  return function()
    if i == limit then return nil end
    local first, ids = i * all // limit * size, {}
    local count = math.min(size, records.n - first)
    for k = 1, size do ids[k] = first + (k <= count and k - 1 or 0) end
    i = i + 1
    return records:batch(ids, shardings), count
  end, limit, all
end

--- The mean over the validation records of score(model, inputs, labels), a number for each record of a batch; or a
--- number for a whole batch. Of a run with a limit (`most_batches`) it is that over so many batches. Then over how many
--- batches, and of how many. The model's last mean is remembered until the next step.
---@param score function returns a tensor [batch], or a scalar
---@return number mean, integer batches, integer all
function Run:mean(score)
  local last = self.last_mean
  if last and not self.shown and last.score == score and last.limit == self.most_batches then
    return last.mean, last.batches, last.all
  end
  local model, jitted = self.shown or self.model, self.scores[score] or self:jit(score)
  local trains = model.training
  local rngs = score == self.recipe.loss and on_mesh(self.mesh, nn.Rngs(self.seed)) or nil
  self.scores[score] = jitted
  model:eval()
  local size, sum, n, done = self.config.batch, 0.0, 0, 0
  local batches, most, all = validation(self.data.valid, size, self.shardings, self.most_batches)
  for batch, count in batches do
    local given = jitted(model, batch.inputs, batch.labels, rngs)
    local rows = given.ndim > 0 and arrays.all_gather_to_host(given):totable() or nil
    batch.inputs:release()
    batch.labels:release()
    if rows then
      for i = 1, count do sum = sum + rows[i] end
      n = n + count
    elseif count == size or all == 1 then -- a batch that is filled up would count what fills it
      sum, n = sum + given:item(), n + 1
    end
    done = done + 1
    if self.evaluating then self.evaluating(done, most) end
  end
  if trains then model:train() end
  if not self.shown then
    self.last_mean = {score = score, limit = self.most_batches, mean = sum / n, batches = most, all = all}
  end
  return sum / n, most, all
end

--- The validation loss: by the recipe's score, or by its loss.
---@return number mean, integer batches, integer all
function Run:validation_loss() return self:mean(self.recipe.score or self.recipe.loss) end

return M
