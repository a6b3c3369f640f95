-- replay.lua: the verb `replay`: a step of a training run, as it was: the run is built again from its config.json, takes
-- the newest checkpoint before the step (or its beginning), and goes forward. Nothing in its folder is changed.
local alone = require "meshlua.insight.alone"
local core = require "meshlua.core"
local json = require "meshlua.train.json"
local lib = require "meshlua.lib"
local manager_of = require "meshlua.checkpoint.manager"
local manifest = require "meshlua.checkpoint.manifest"
local nonfinite = require "meshlua.insight.nonfinite"
local recipes = require "meshlua.train.recipe"
local saver_of = require "meshlua.train.saver"

local M = {}

local MOST_CONFIG, MOST_LOG = 1 << 20, 1 << 26 -- bytes

local function say(...)
  if core.process_index() == 0 then print(lib.format(...)) end
end

-- ---- what the folder has ----------------------------------------------------------------------------

--- An object of JSON; nil, message.
local function read_object(path, most)
  local text, message = core.read_file(path, most)
  if not text then return nil, message end
  local object
  object, message = core.json(text)
  if type(object) == "table" then return object end
  return nil, ("%s: %s"):format(path, message or "it is no object")
end

--- What the run has decided: see guard.lua.
local function decisions_of(folder)
  local list = {}
  for d in json.each(core.read_file(folder .. "/guard.jsonl", MOST_LOG) or "") do
    if not d then return nil, folder .. "/guard.jsonl: a line of it is no object" end
    list[#list + 1] = d
  end
  return list
end

--- What metrics.jsonl says of the loss at a step, as a text.
local function loss_noted(folder, step)
  local text = core.read_file(folder .. "/metrics.jsonl", MOST_LOG)
  return text and ("\n" .. text):match(('\n{"step":%d,"loss":([^,}]+)'):format(step))
end

--- The run's recipe and its words, from what config.json says of how it was started.
local function started_by(folder)
  local config, message = read_object(folder .. "/config.json", MOST_CONFIG)
  if not config then return nil, message .. "; the --out of a run has one" end
  local start = config.start
  if type(start) ~= "table" or type(start.recipe) ~= "string" or type(start.arguments) ~= "table" then
    return nil, folder .. "/config.json: it does not say how the run was started"
  end
  recipes.look_beside(start.recipe)
  local recipe, why = recipes.load(start.recipe)
  if not recipe then return nil, ("%s/config.json: the recipe %s: %s"):format(folder, start.recipe, why) end
  local words = table.move(start.arguments, 1, #start.arguments, 1, {[0] = "replay " .. folder})
  return recipe, words, config
end

-- ---- forward ----------------------------------------------------------------------------------------

--- Gives the run what the newest checkpoint before a step has that knows of no more than so many decisions. The step it
--- stands at, 0 where there is none.
local function restore(run, folder, own, step, most)
  local checkpoints, state = saver_of.folder(folder), nil
  local steps = manifest.steps(checkpoints)
  local function fits(found)
    state = found
    if #(found.guard and found.guard.decisions or {}) > most then return nil, "later", "E_VALUE" end
    return saver_of.check_same(checkpoints, found, own)
  end
  for i = #steps, 1, -1 do
    if steps[i] < step then
      local path = checkpoints .. "/" .. manifest.folder(steps[i])
      local found, message = manager_of.restore_from(path, run:state(), {check = fits})
      if found then
        if run.guard and state.guard then run.guard:load(state.guard) end
        return steps[i]
      elseif message ~= "later" then
        return nil, message
      end
    end
  end
  return 0
end

--- Brings the run in front of a step. Where it began, or nil, message.
local function forward(run, folder, own, step, decisions)
  local from, message = restore(run, folder, own, step, #decisions)
  if not from then return nil, message end
  local function follow(at)
    if run.guard then run.guard:follow(decisions, at) end
  end
  follow(from)
  if from < step - 1 then
    local ok, why = run:train(function(row)
      follow(row.step)
      return row.step < step - 1
    end, from)
    if not ok then return nil, why end
  end
  return from
end

-- ---- what it is asked -------------------------------------------------------------------------------

--- A text in quotes, on one line.
local function quoted(text)
  text = ("%q"):format(text):gsub("\\\n", "\\n")
  local function number(c) return ("\\%d"):format(c:byte()) end
  return utf8.len(text) and text or (text:gsub("[\128-\255]", number))
end

--- Numbers of a record as a text where they are one: bytes, or ids of a tokenizer; else the first of them.
local function record_text(data, row)
  if type(row) ~= "table" then return lib.text(row) end
  if data.tokenizer then return quoted(data.tokenizer:decode(row)) end
  local flat, bytes = true, data.is_text or data.unit == "byte"
  for _, x in ipairs(row) do
    flat = flat and math.type(x) == "integer"
    bytes = bytes and flat and x >= 0 and x < 256
  end
  if bytes then return quoted(string.char(table.unpack(row))) end
  return flat and lib.some(row, 12) or ("%d rows"):format(#row)
end

--- Which records a batch is made of.
local function say_records(run, batch)
  local records, size = run.data.train, run.config.batch
  local source, first = rawget(records, "source"), (batch - 1) * size
  local ids = source and source:order(run.seed, first, size)
    or core.shuffled(run.seed, first, size, records.n)
  local inputs = alone.brought(records:batch(ids).inputs):totable()
  for i, id in ipairs(ids) do say("record %d: %s", id, record_text(run.data, inputs[i])) end
end

local ASKED = {
  {"explain", function(...) return require("meshlua.insight.explain").explain(...) end},
  {"verify", function(...) return require("meshlua.insight.verify").verify(...) end},
  {"nonfinite", nonfinite.find_nonfinite},
}

--- The step of the run, and what is asked of it. An exit code.
local function ask(run, folder, flags, step, from, was)
  local batch = step + (run.guard and run.guard.shift or 0)
  local begun = from == 0 and "the beginning" or "the checkpoint of step " .. from
  say("step %d: from %s, %s forward; batch %d of the data", step, begun, lib.count(step - 1 - from, "step"),
    batch)
  if flags.records then say_records(run, batch) end
  for _, row in ipairs(ASKED) do
    if flags[row[1]] then say("%s", tostring(run:told(row[2], batch))) end
  end
  local loss, norm
  if run.guard then run.guard.look = function() return "stop" end end -- what is wrong with it is known
  run:train(function(row)
    loss, norm = row.loss, row.grad_norm
    return false
  end, step - 1)
  local function text(x) return x - x == 0 and json.encode(x) or x ~= x and "nan" or tostring(x) end
  local noted = not was and loss_noted(folder, step) or nil
  local same = noted == json.encode(loss)
  local beside = noted and (same and ": as in metrics.jsonl" or "; metrics.jsonl has the loss " .. noted)
  say("loss %s, gradient norm %s%s", text(loss), text(norm), beside or "")
  return noted and not same and 1 or 0
end

--- Builds a step of a run again.
---@param folder string --out of the run
---@param flags table of verbs.lua
---@return integer? exit code
---@return string? message, string? code
function M.run(folder, flags)
  local recipe, words, config = started_by(folder)
  if not recipe then return nil, words, "E_IO" end
  local decisions, message = decisions_of(folder)
  if not decisions then return nil, message, "E_IO" end
  local step, was = flags.step, nil
  if flags.rollback > 0 then
    was = decisions[flags.rollback]
    if not was then
      local lines = lib.count(#decisions, "line")
      return nil, ("--rollback=%d: guard.jsonl has %s"):format(flags.rollback, lines), "E_VALUE"
    end
    step, decisions = was.step, table.move(decisions, 1, flags.rollback - 1, 1, {})
  end
  if step < 1 then return nil, "which step? --step=N", "E_VALUE" end
  local exit, code
  require("meshlua").train.main(recipe, words, function(run, values)
    if step > run.config.steps then
      exit, message, code = nil, ("--step=%d: the run has %d"):format(step, run.config.steps), "E_VALUE"
      return
    end
    local other = saver_of.differences(config.config, core.json(json.encode(run.config)), "config.", {})
    if #other > 0 then
      exit, message, code = nil, "the recipe is another: " .. other[1]:gsub("checkpoint", "run"), "E_VALUE"
      return
    end
    local from
    from, message = forward(run, folder, saver_of.description(run, values), step, decisions)
    code = "E_IO"
    if from then exit = ask(run, folder, flags, step, from, was) end
  end)
  return exit, message, code
end

return M
