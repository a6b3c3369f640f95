-- trainer.lua: the training program for scripts: an object that is made of three configurations and trains on the
-- records that it is given. What the program takes as flags stands in the configurations; what it would end with is
-- raised.
local arguments = require "meshlua.train.arguments"
local core = require "meshlua.core"
local lib = require "meshlua.lib"
local recipes = require "meshlua.train.recipe"
local verbs = require "meshlua.program.verbs"

local M = {} -- carry_out: see init.lua

---@class Trainer
---@field recipe table
---@field values table<string, any> the program's options
---@field config table the recipe's settings
---@field model table? trained, behind train
local Trainer = {}
local Trainer_meta = {__index = Trainer, __name = "Trainer"}

--- The recipe that is meant, and the settings beside it.
local function read_model(model)
  local settings, recipe = {}, model
  if type(model) == "table" and model.recipe ~= nil then
    settings, recipe = lib.copy(model), model.recipe
    settings.recipe = nil
  end
  if type(recipe) == "string" then
    local loaded, message = recipes.load(recipe)
    if not loaded then lib.raise("E_VALUE", "Trainer: the recipe '%s': %s", recipe, message) end
    recipe = loaded
  end
  local fault = recipes.fault(recipe)
  if fault then lib.raise("E_VALUE", "Trainer: model_config: %s", fault) end
  return recipe, settings
end

--- A mesh as --mesh takes it: that of the configuration, or the one in context; nil: none is said.
local function mesh_text(config)
  local names, sizes = config and config.mesh_axis_names, config and config.mesh_shape
  local mesh = core.mesh_current()
  if not (names and sizes) and mesh then
    names, sizes = mesh.axis_names, {}
    for i, name in ipairs(names) do sizes[i] = mesh.shape[name] end
  end
  if not (names and sizes) then return nil end
  local words = {}
  for i, name in ipairs(names) do words[i] = ("%s:%d"):format(name, sizes[i]) end
  return table.concat(words, ",")
end

--- A trainer of a recipe.
---@param model_config table|string a recipe, its name or path, or {recipe = one of these, settings of the model}
---@param training_config table? settings of the recipe and options of `meshlua train`: {steps =, batch =, lr =, seed =,
--- rules =, out =, eval_every =, ...}
---@param distributed_config table? of ml.distributed: mesh_shape and mesh_axis_names; default the mesh in context, or
--- the recipe's
---@return Trainer
function M.Trainer(model_config, training_config, distributed_config)
  local recipe, settings = read_model(model_config)
  if training_config ~= nil and type(training_config) ~= "table" then
    lib.raise("E_VALUE", "Trainer: training_config is %s, not a table", lib.kind(training_config))
  end
  for key, value in pairs(training_config or {}) do settings[key] = value end
  settings.mesh = settings.mesh or mesh_text(distributed_config) or nil
  local words, wrong = arguments.words(settings)
  if not words then lib.raise("E_VALUE", "Trainer: %s", wrong) end
  recipe = arguments.sized(recipe, words)
  local values, config = arguments.read(recipe, words, (arguments.rows(recipe, verbs.find "train".flags)))
  if not values then
    lib.raise("E_VALUE", "Trainer: %s", (config:gsub("%-%-([%w_]+)=", "%1 = "):gsub("%-%-", "")))
  end
  return setmetatable({recipe = recipe, values = values, config = config}, Trainer_meta)
end

--- Trains, on these records or on the recipe's. Raises what the program would end with: a loss that is not finite, a
--- file that cannot be written.
---@param train Records? with the fields that the recipe's loss takes: inputs and labels
---@param val Records? what is evaluated; without it nothing is, where `train` is given
---@return table result what the program writes into result.json
function Trainer:train(train, val)
  local records, values = nil, lib.copy(self.values)
  if train ~= nil then records = {train = train, valid = val or train, unit = "items"} end
  if train ~= nil and val == nil then values.eval_batches = "0" end
  local run, result = M.carry_out(self.recipe, values, lib.copy(self.config), records)
  self.model = run.model
  return result
end

M.methods = Trainer

return M
