-- step.lua: the training step of a recipe on a mesh of devices that need not be there, as `train` would run
-- it: what it plans, and what that plan comes to.
local account = require "meshlua.insight.account"
local core = require "meshlua.core"
local estimate = require "meshlua.plan.estimate"
local facts = require "meshlua.insight.facts"
local explain = require "meshlua.insight.explain"
local lib = require "meshlua.lib"
local mesh_of = require "meshlua.sharding.mesh"
local runs = require "meshlua.train.run"

local M = {}

---@class Layout
---@field name string its mesh and rules: no two are alike in a search
---@field axes string[] of the mesh
---@field sizes integer[]
---@field rules string the rule set's name
---@field microbatches integer
---@field kernels string see estimate.lua
---@field asked boolean did the user write the mesh? Then each axis of it must split something

---@class Planned
---@field layout Layout
---@field config table the recipe's
---@field work table of account.lua
---@field memory table of facts.lua
---@field program Program? where M.plan was to keep it, until M.let_go
---@field plan Plan? the same
---@field explanation table? of ml.explain; see M.explain
---@field params table[]? of program:params()
---@field seconds number a step's
---@field waited number of them, for what is sent
---@field sent number bytes that a device sends
---@field peak integer bytes that a device holds
---@field fits boolean

--- "data:64,model:8", or "none".
---@param layout Layout
---@return string
function M.mesh_text(layout)
  local words = {}
  for i, axis in ipairs(layout.axes) do words[i] = ("%s:%d"):format(axis, layout.sizes[i]) end
  return #words > 0 and table.concat(words, ",") or "none"
end

--- The records of a recipe, as far as a plan needs them: the fields, and what one of each is.
---@param recipe table
---@param config table
---@param path string? as --data
---@return table? data
---@return string? message, string? code
function M.data(recipe, config, path)
  if not config.seq then return recipe.data(config, path) end
  local record = {shape = {config.seq}, dtype = "int32"}
  return {train = {fields = {inputs = record, labels = record}}, unit = "tok"}
end

local function batch_of(run, field)
  return core.shape_dtype_struct({run.config.batch, table.unpack(field.shape)}, field.dtype,
    run.shardings and run.shardings.inputs)
end

--- The program of a layout's step. Raises what the layout cannot do.
local function program_of(recipe, config, data, layout)
  local mesh
  if #layout.axes > 0 then
    local first = {} -- of the devices: there may be many more, to say on how many it would fit
    for id = 0, lib.product(layout.sizes) - 1 do first[id + 1] = id end
    mesh = mesh_of.make_mesh(layout.sizes, layout.axes, first)
  end
  local run = runs.new(recipe, {config = config, seed = 0, mesh = mesh, data = data,
    rules = recipe.rules and recipe.rules[layout.rules], microbatches = layout.microbatches})
  local idle = layout.asked and runs.unused_axes(run, "", layout.rules)[1]
  if idle then lib.raise("E_MESH", "%s", idle:match ": (.*)") end
  local fields = data.train.fields
  return run.train_step:program(run.model:train(), run.optimizer, run.rngs, batch_of(run, fields.inputs),
    batch_of(run, fields.labels), run.loss_scale)
end

--- Plans one layout. What the layout cannot do is a message.
---@param recipe table
---@param config table
---@param data table see M.data
---@param layout Layout
---@param keep boolean? the program and its plan, for M.explain
---@return Planned?
---@return string? message
function M.plan(recipe, config, data, layout, keep)
  local made, result = pcall(function()
    local program = program_of(recipe, config, data, layout)
    local _ <close> = not keep and program or nil
    local plan = program:plan()
    local steps = plan:steps()
    local work, memory = account.of(plan, steps), facts.memory(plan, program:params(), steps)
    local seconds, waited = estimate.here(work, layout.kernels, {vocab = config.vocab})
    return {layout = layout, config = config, work = work, memory = memory, seconds = seconds,
      waited = waited, peak = memory.peak, fits = plan:fits() == true, sent = work.sent,
      program = keep and program or nil, plan = keep and plan or nil}
  end)
  if made then return result end
  local code, text = tostring(result):match "%[(E_%u+)%] (.*)"
  if code == "E_INDIVISIBLE" or code == "E_MESH" or code == "E_SPEC" or code == "E_SHAPE" then
    return nil, text:match "[^\n]*"
  end
  error(result, 0)
end

--- Of a plan that is one of many its sums are kept; what it was made of goes.
---@param planned Planned
function M.let_go(planned)
  if planned.program then planned.program:close() end
  planned.program, planned.plan, planned.work.items, planned.memory.live = nil, nil, nil, nil
end

--- Adds to what M.plan gave the explanation, and the Params.
---@param recipe table
---@param data table
---@param planned Planned
function M.explain(recipe, data, planned)
  local function retrace() return program_of(recipe, planned.config, data, planned.layout) end
  local program <close> = planned.program or retrace()
  planned.explanation, planned.params = explain.of(program, retrace, planned.program and planned),
    program:params()
  planned.program, planned.plan = nil, nil
end

return M
