-- init.lua: the training program. It knows recipes (see run.lua), not models.
local arguments = require "meshlua.train.arguments"
local auditor = require "meshlua.train.auditor"
local bits = require "meshlua.train.bits"
local core = require "meshlua.core"
local data = require "meshlua.data"
local files = require "meshlua.train.files"
local guards = require "meshlua.train.guard"
local json = require "meshlua.train.json"
local lib = require "meshlua.lib"
local memory = require "meshlua.train.memory"
local mfu = require "meshlua.train.mfu"
local precision = require "meshlua.train.precision"
local pretrained = require "meshlua.train.pretrained"
local profile = require "meshlua.profile"
local progress = require "meshlua.train.progress"
local recipes = require "meshlua.train.recipe"
local runs = require "meshlua.train.run"
local save = require "meshlua.checkpoint.save"
local saver_of = require "meshlua.train.saver"
local sinks = require "meshlua.train.sinks"
local trained = require "meshlua.train.trained"
local trainer = require "meshlua.train.trainer"
local verbs = require "meshlua.program.verbs"
local watch_of = require "meshlua.train.watch"

local M = {}

local EXIT_USAGE, EXIT_ENVIRONMENT, EXIT_NOT_FINITE = 2, 3, 4
local SAMPLE = {"step", "sample", "known_words"}

--- Ends the program.
local function exit(code, text)
  io.stderr:write("train: ", text, "\n")
  os.exit(code, true)
end

local fail = exit -- or, where a script trains, raises

local function stop(code, fmt, ...) fail(code, fmt:format(...)) end

--- What a function gave, or the end of the program with its message.
local function check(value, message, code)
  if value == nil and message then
    stop(code == "E_VALUE" and EXIT_USAGE or EXIT_ENVIRONMENT, "%s", message)
  end
  return value
end

-- ---- the command line -------------------------------------------------------------------------------

local usage = [[
usage: meshlua %s [--key=value ...]

Trains a recipe: a model, its data and its rule sets. The mesh and the rules change what each device
holds, computes and sends, not the result.

]]

--- Reads the command line. Returns recipe, the program's options, the recipe's config.
---@param recipe table|string the recipe, or the name of the default one
local function read_arguments(recipe, args)
  local name = type(recipe) == "string" and recipe or nil
  if name then
    for _, word in ipairs(args) do name = word:match "^%-%-recipe=(.+)$" or name end
    local loaded, message = recipes.load(name, true)
    if not loaded then stop(EXIT_USAGE, "--recipe=%s: %s", name, message) end
    recipe = loaded
  end
  local fault = recipes.fault(recipe)
  if fault then stop(EXIT_USAGE, "%s: %s", name and "--recipe=" .. name or args[0] or "recipe", fault) end
  args, fault = arguments.with_file(args, recipe, (arguments.rows(recipe, verbs.find "train".flags)))
  if not args then stop(EXIT_USAGE, "%s", fault) end
  recipe = arguments.sized(recipe, args)
  local rows, n = arguments.rows(recipe, verbs.find "train".flags)
  if name then
    table.insert(rows, 1, {"recipe", name, "what to train: a file beside the script, or its path"})
    n = n + 1
  end
  local values, config = arguments.read(recipe, args, rows)
  if not values then stop(EXIT_USAGE, "%s\n       --help lists the options", config) end
  local many = values.accumulate
  values.accumulate, values.microbatches, config.batch = 1, values.microbatches * many, config.batch * many
  if values.help then
    print(usage:format(args[0]) .. arguments.help(recipe, rows, n))
    os.exit(0, true)
  end
  return recipe, values, config
end

-- ---- the run ----------------------------------------------------------------------------------------

--- What a function gives; nil, message, code where it raises that code.
local function said_by(code, fn, ...)
  local ok, message = pcall(fn, ...)
  if ok then return message == nil or message end
  local text = type(message) == "string" and message:match("%[" .. code .. "%] ([^\n]*)")
  if not text then error(message, 0) end
  return nil, text, code
end

--- The records that the options ask for.
local function records_of(recipe, values, config)
  local tokenizer
  if values.tokenizer ~= "" then
    tokenizer = check(require "meshlua.tokenizer".tokenizer(values.tokenizer))
  end
  local records = check(recipe.data(config, values.data ~= "" and values.data or nil, tokenizer))
  if tokenizer and records.tokenizer ~= tokenizer then
    check(nil, "--tokenizer: the recipe's data is no text that a tokenizer makes ids of", "E_VALUE")
  end
  return records
end

--- The run that the options ask for.
local function prepare(recipe, values, config, records)
  local rules = check(arguments.rule_set(recipe, values.rules))
  local mesh = check(runs.mesh(values.mesh, values.explain and not values.checks))
  check(precision.of(config))
  check(runs.check_batch(mesh, rules, config.batch, values.microbatches))
  local staged = mesh and mesh.shape[runs.STAGE] and recipe.pipeline
  if values.schedule ~= "" and not staged then
    local why = recipe.pipeline and "--mesh needs an axis stage, as in --mesh=stage:2"
      or "the recipe has none (M.pipeline)"
    check(nil, ("--schedule=%s is of a pipeline: %s"):format(values.schedule, why), "E_VALUE")
  end
  if staged and config.scan == false then config.scan = true end -- its layers are a stack
  local sharding = mesh and runs.batch_sharding(mesh, rules, config.batch) or nil
  local leaves = check(bits.leaves(values, config.batch, sharding))
  if values.audit > 0 and not (mesh and mesh.size > 1) then
    check(nil, ("--audit=%d: a mesh of several devices is needed"):format(values.audit), "E_VALUE")
  end
  records = records or records_of(recipe, values, config)
  local fault = recipes.data_fault(records)
  if fault then check(nil, fault, "E_VALUE") end
  local function begin(run)
    if values.from ~= "" and not (values.explain or values.checks) then
      check(saver_of.weights(run, values.from))
    end
    check(said_by("E_VALUE", trained.apply, run.model, values, values.seed))
  end
  local run = runs.new(recipe, {config = config, seed = values.seed, mesh = mesh, rules = rules,
    data = records, microbatches = values.microbatches, leaves = leaves > 0 and leaves or nil,
    guard = guards.new(values), prepare = begin, ema = values.ema,
    schedule = values.schedule ~= "" and values.schedule or nil})
  local split = run.leaves and bits.fault(run)
  if split then check(nil, split, "E_VALUE") end
  if run.schedule then check(said_by("E_VALUE", run.plan, run)) end -- stages that do not fit
  return run
end

--- "269322 parameters", "2048 of 269322 parameters".
local function parameters_text(run)
  local all, own = run:parameters()
  return (own < all and "%d of %d parameters" or "%d parameters"):format(own, all)
end

local function describe(run, values)
  local words = lib.names(run.config)
  for i, key in ipairs(words) do words[i] = key .. "=" .. lib.text(run.config[key]) end
  local kind = core.device_kind()
  print(("%s: %s; mesh %s, rules %s; seed %d%s"):format(run.recipe.name, parameters_text(run),
    values.mesh, values.mesh ~= "none" and values.rules or "none", values.seed,
    kind ~= "cpu" and "; on " .. kind or ""))
  print(table.concat(words, " "))
  if run.leaves then print(bits.text(run)) end
  for _, line in ipairs(runs.unused_axes(run, values.mesh, values.rules)) do
    io.stderr:write("train: warning: ", line, "\n")
  end
end

--- Says what a step holds; where that does not fit, it is the end, or a warning.
local function say_memory(run, strict)
  local text, misfit = memory.verdict(run)
  print(text)
  if misfit and strict then stop(EXIT_ENVIRONMENT, "--strict: %s", misfit) end
  if misfit then io.stderr:write("train: warning: ", misfit, "\n") end
end

--- Do the options fit together, and is there what is gone on from?
local function check_options(recipe, values)
  local fault, word = arguments.contradiction(values, verbs.find "train".flags), values.resume
  fault = fault or trained.fault(values) or pretrained.export_fault(recipe, values.export, values.overwrite)
  if not fault and values.sample_every > 0 and not recipe.sample then
    fault = ("--sample-every: the recipe %s has no `sample`"):format(recipe.name)
  end
  if fault then return nil, fault, "E_VALUE" end
  if word == "" or word == "auto" then return true end
  if word ~= "latest" and not word:find "^%d+$" then
    return nil, ("--resume=%s: expected auto or a step"):format(word), "E_VALUE"
  elseif not saver_of.has_steps(values.out) then
    return nil, ("--resume: there is no checkpoint in %s; --resume=auto begins where there is none")
      :format(saver_of.folder(values.out)), "E_VALUE"
  end
  return true
end

--- What an earlier run has left is replaced only where that was asked for.
local function check_outputs(values)
  local fault = sinks.fault(values)
  if fault then return nil, fault, "E_VALUE" end
  if values.overwrite or values.resume ~= "" then return true end
  local held = values.out ~= "" and files.run_in(values.out)
  if held then
    return nil, ("--out=%s: the folder holds a run (%s); take another folder, or --overwrite to replace it")
      :format(values.out, held), "E_VALUE"
  end
  local lines = values.metrics ~= "" and files.count_lines(values.metrics) or 0
  if lines > 0 then
    return nil, ("--metrics=%s: the file holds %d lines; take another file, or --overwrite to replace it")
      :format(values.metrics, lines), "E_VALUE"
  end
  return true
end

--- Opens what the run writes; from here on an earlier one is gone, but for what --resume goes on from: `done`
--- steps of it. Adds to the run's sinks.
local function open_outputs(run, values, start, watch, done)
  local out = values.out
  -- The files of a run are process 0's: what the others know it knows, too.
  if core.process_index() ~= 0 then return end
  if out ~= "" then
    check(core.make_folder(out))
    if values.overwrite then check(files.remove_run(out)) end
    check(files.write(out .. "/config.json", json.encode {recipe = run.recipe.name, mesh = values.mesh,
      rules = values.rules, seed = values.seed, data = values.data, config = run.config, start = start}
      .. "\n"))
    check(files.write(out .. "/config.lua", arguments.file(run.recipe, values, run.config,
      verbs.find "train".flags)))
    local tokenizer = run.data.tokenizer -- a model is its tokens' too: chat finds them here
    if tokenizer then check(tokenizer:save(out .. "/tokenizer.json")) end
    if run.guard then
      run.guard.path = out .. "/guard.jsonl"
      check(run.guard:write())
    end
  end
  local goes_on = values.resume ~= "" and done or nil
  run.sinks = check(sinks.open(run, values, goes_on))
  if out ~= "" and watch.sample_every > 0 then
    watch.samples = check(files.lines(out .. "/" .. files.SAMPLES, SAMPLE, goes_on))
  end
end

--- To be closed: the run's sinks.
local function closing(run)
  return setmetatable({}, {__close = function()
    for _, sink in ipairs(run.sinks) do sink:close() end
  end})
end

local function train(run, watch, bar, saver)
  local _ <close> = saver and saver:guarded() or nil
  local function give_up(...)
    bar:clear()
    if saver then saver:close() end
    stop(...)
  end
  local function behind(row, word)
    if word ~= "go" then check(run.guard:note()) end
    if word == "go" and not lib.is_finite(row.loss) then
      give_up(EXIT_NOT_FINITE, "step %d: the loss is %s; the run is stopped", row.step,
        row.loss ~= row.loss and "nan" or row.loss)
    end
    bar:update(row)
    if word == "stop" then give_up(EXIT_NOT_FINITE, "%s", run.guard:stopped(run)) end
    if saver then saver:note(row) end
    return not watch:is_over()
  end
  if not watch:is_over() then
    local ok, message = run:train(behind, saver and saver.step)
    if not ok then give_up(EXIT_ENVIRONMENT, "%s", message) end
  end
  if watch:is_over() then
    bar:say(("stopped: %s without a better validation loss than %.4f at step %d"):format(
      lib.count(watch.since, "evaluation"), watch.best.loss, watch.best.step))
  end
  if saver then saver:finish() end
end

--- The checkpoints of a run in --out, where it goes on from one, and room for the others; nil without --out.
local function open_checkpoints(run, watch, saver)
  if not saver then return 0 end
  if saver.values.overwrite then saver:clear() end
  local done = check(saver:resume(run, watch))
  check(saver:check_room())
  run.saver = saver
  if run.guard and run.guard:rolls_back() then saver:begin() end
  if done > 0 then print(("going on behind step %d of %d"):format(done, run.config.steps)) end
  return done
end

--- How much of the devices' peak the later steps used, where the peak is known.
local function say_utilization(run)
  local peak = core.device_peak(precision.of(run.config))
  if not (peak and run.tokens_per_s and run.recipe.attention) then return end
  print(mfu.text {parameters = run:parameters(), attention = run.recipe.attention(run.config),
    tokens_per_s = run.tokens_per_s, peak = peak, gpus = core.gpu_count()})
end

--- Prints what the recipe says at the end; adds it to result.
local function conclude(hook, run, result)
  if not hook then return end
  for _, row in ipairs(hook(run)) do
    result[row.key] = row.value
    if row.text then print(row.text) end
    check(sinks.note(run.sinks, row.key, row.value))
  end
end

--- What is said at the end of the running mean: what differs from what was said of the model.
local function conclude_mean(run, hook, result)
  if not run.ema then return end
  run.shown = run.ema:apply_to(run.model)
  for _, row in ipairs(hook(run)) do
    if row.value ~= result[row.key] then
      result["ema_" .. row.key] = row.value
      if row.text then print("running mean: " .. row.text) end
    end
  end
  run.shown = nil
end

--- Writes what --export asks for, and the adapters into --out.
local function export(run, values, from)
  local adapters = trained.adapters(run.model)
  if adapters and values.out ~= "" then check(save.save(values.out .. "/" .. files.ADAPTERS, adapters)) end
  if values.export == "" then return end
  if adapters then trained.merged(run.model) end
  check(pretrained.save_pretrained(run.recipe, values.export, run.model, run.config,
    {metadata = from ~= "" and pretrained.description(from, values.export) or nil}))
  print("written: " .. values.export)
end

--- What a recipe without an `evaluate` says.
local function plainly(run)
  local loss, batches, all = run:validation_loss()
  return {{key = "validation_loss", value = loss,
    text = "validation loss " .. watch_of.text(run.data, loss, batches, all)}}
end

--- What is said of the validation records at the end.
local function evaluate_last(run, values, watch, result)
  run.most_batches = watch_of.limit(values.eval_batches, run.config.steps)
  if run.most_batches ~= 0 then
    conclude(run.recipe.evaluate or plainly, run, result)
    conclude_mean(run, run.recipe.evaluate or plainly, result)
  end
  if not watch.best then return end
  result.best_step, result.best_loss = watch.best.step, watch.best.loss
  local kept = values.out ~= "" and values.keep_best
  print(("best at step %d: validation loss %.4f%s%s"):format(watch.best.step, watch.best.loss,
    run.ema and " of the running mean" or "", kept and "; its checkpoint stays" or ""))
end

--- Prints what --explain and --checks ask for.
local function tell(run, values)
  for _, name in ipairs {"explain", "checks"} do
    local told = values[name] and run:told(require("meshlua.insight." .. name)[name])
    if told and run.leaves and core.process_index() == 0 then print(bits.text(run)) end
    if told and core.process_index() == 0 then print(told) end
  end
end

--- How a run was started: what `replay` starts it by again.
local function start_of(recipe, args)
  local name = type(recipe) == "string" and recipe or args[0] and (args[0]:match "^train (.+)$" or args[0])
  for _, word in ipairs(type(recipe) == "string" and args or {}) do
    name = word:match "^%-%-recipe=(.+)$" or name
  end
  return {recipe = name or "", arguments = json.list(table.move(args, 1, #args, 1, {}))}
end

--- Writes what a run came to.
local function write_result(out, result)
  if out == "" or core.process_index() ~= 0 then return end
  local rest = lib.copy(result)
  rest.sample = nil
  if result.sample then check(files.write(out .. "/sample.txt", result.sample .. "\n")) end
  check(files.write(out .. "/result.json", json.encode(rest) .. "\n"))
end

--- Trains a recipe with these options, on these records or its own: the run, and its result; nil where the options ask
--- for no training. `start`: of start_of, where the program was started for it.
local function carry_out(recipe, values, config, records, start)
  check(check_options(recipe, values))
  if core.process_index() == 0 then check(check_outputs(values)) end
  local before = core.clock()
  local run = prepare(recipe, values, config, records)
  if values.explain or values.checks then
    tell(run, values)
    return run
  end
  local saver <close> = values.out ~= "" and check(saver_of.open(values)) or nil
  describe(run, values)
  say_memory(run, values.strict)
  local bar <close> = progress.new {steps = config.steps, every = values.log_every,
    unit = run.data.unit or "items"}
  local watch = watch_of.new(run, values, function(text) bar:say(text) end)
  function run.evaluating(done, all) bar:evaluating(done, all) end
  local done = open_checkpoints(run, watch, saver)
  local _ <close> = closing(run)
  open_outputs(run, values, start, watch, done)
  if values.profile ~= "" then check(profile.start(values.profile)) end
  if values.audit > 0 then run.auditor = auditor.new(run, values.audit, values.microbatches) end
  train(run, watch, bar, saver)
  if values.profile ~= "" then print(check(profile.stop())) end
  say_utilization(run)
  local result = {}
  evaluate_last(run, values, watch, result)
  conclude(recipe.sample, run, result)
  export(run, values, saver and saver.own.from or values.from)
  result.seconds, result.data_bytes = core.clock() - before, data.bytes_read()
  print(("%.0f seconds in all"):format(result.seconds))
  write_result(values.out, result)
  return run, result
end

--- The program: trains a recipe as the arguments say. Ends the process where they, a file or the machine are
--- at fault (2, 3), or the loss is not finite (4).
---@param recipe table|string the recipe, or the name of the default one
---@param args string[] as in the global `arg`
---@param instead fun(run: Run, values: table)? called with the run before its first step, which is not made then
function M.main(recipe, args, instead)
  local values, config
  local start = start_of(recipe, args)
  recipe, values, config = read_arguments(recipe, args)
  if instead then return instead(prepare(recipe, values, config), values) end
  carry_out(recipe, values, config, nil, start)
end

local CODES = {[EXIT_USAGE] = "E_VALUE", [EXIT_ENVIRONMENT] = "E_IO", [EXIT_NOT_FINITE] = "E_VALUE"}

--- carry_out, for a script: what would end the program is raised.
local function carry_out_here(...)
  local before <close> = setmetatable({}, {__close = function() fail = exit end}) -- luacheck: ignore 211
  function fail(code, text) lib.raise(CODES[code], "Trainer: %s", text) end
  return carry_out(...)
end

--- At the end of a recipe's file: runs the program where the file is the script that was started, so that a
--- recipe can be run by itself.
---@param recipe table
function M.script(recipe)
  local level, from = 2, "=[C]"
  while from == "=[C]" or from:sub(1, 9) == "=meshlua/" do -- the wrappers
    from, level = debug.getinfo(level, "S").source, level + 1
  end
  if arg and from == "@" .. tostring(arg[0]) then M.main(recipe, arg) end
end

M.run = runs.new

--- A mesh that can run from "data:4,model:2" (train.run's `mesh`); nil for "none".
---@param text string
---@return Mesh?
---@return string? message, string? code
function M.mesh(text) return runs.mesh(text) end

--- The dtype of a recipe's arithmetic (see precision.lua). Raises where config.precision names none.
---@param config table
---@return string dtype
function M.precision(config)
  local dtype, message, code = precision.of(config)
  return dtype or lib.raise(code, "%s", message)
end

M.text = require "meshlua.train.text"
M.from_pretrained, M.save_pretrained = pretrained.from_pretrained, pretrained.save_pretrained

lib.hold(lib.export_checked(trainer.methods, "Trainer:"), "Trainer:")
trainer.carry_out, M.Trainer = carry_out_here, trainer.Trainer

M.main = core.plain(core.wrap(M.main, false, "train.main"))

return lib.strict(lib.export_checked(M, "train."), "train", "train.")
