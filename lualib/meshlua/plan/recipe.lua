-- recipe.lua: what `plan` is given: a recipe of a Lua file, or a config.json, which decoder.lua makes one of.
local core = require "meshlua.core"
local decoder = require "models.decoder"
local families = require "meshlua.plan.families"
local recipes = require "meshlua.train.recipe"

local nn = require "meshlua.nn"
local ops = require "meshlua.ops"
local tree = require "meshlua.tree"

local M = {}

local LONGEST = 8192 -- tokens of context that are planned where the user says nothing

--- The text of a file; what a folder holds as config.json.
local function read(path)
  if core.path_kind(path) == "folder" then path = path:gsub("/*$", "") .. "/config.json" end
  local file <close>, missing = io.open(path, "rb")
  if not file then return nil, (missing:gsub("^.*: ", "")) end
  local text, why = file:read "a"
  return text, why
end

--- A stack of n layers alike, in the time that one takes: what its Params hold is of no account here.
local function repeated(n, make)
  local stack, with = nn.stack(1, make), {}
  tree.visit(stack, function(_, box)
    local shape = {n, table.unpack(box.shape, 2)}
    with[box] = nn.Param(ops.broadcast(box:get(), shape), core.box_meta(box))
  end)
  return tree.replace(stack, with)
end

local function build(config, rngs)
  return decoder.build(setmetatable({stack = repeated}, {__index = config}), rngs)
end

--- The recipe of what a config.json holds. A batch is one sequence for each device, where the user says nothing.
---@param given table
---@param ndevices integer
---@return table? recipe
---@return string? message, string? code
function M.of(given, ndevices)
  local cfg, note = families.config(given)
  if not cfg then return nil, note, "E_VALUE" end
  local config = {}
  for key, value in pairs(decoder.config) do config[key] = value end
  for key, value in pairs(cfg) do config[key] = value end
  config.seq, config.batch, config.precision = math.min(cfg.seq, LONGEST), ndevices, "bf16"
  return setmetatable({name = given.model_type, context = cfg.seq, build = build, config = config,
    note = note ~= "" and note or nil}, {__index = decoder})
end

--- What a file of JSON holds, an object.
---@param path string
---@return table?
---@return string? message, string? code
function M.json(path)
  local text, why = read(path)
  if not text then return nil, why, "E_IO" end
  local given, fault = core.json(text)
  if type(given) ~= "table" then return nil, fault or "it holds no object", "E_VALUE" end
  return given
end

--- The recipe of a path.
---@param path string a recipe's file, or a config.json, or a folder with one
---@param ndevices integer
---@return table? recipe
---@return string? message, string? code
function M.load(path, ndevices)
  if path:find "%.json$" or core.path_kind(path) == "folder" then
    local given, message, code = M.json(path)
    if not given then return nil, message, code end
    return M.of(given, ndevices)
  end
  recipes.look_beside(path)
  local recipe, message = recipes.load(path)
  if not recipe then return nil, message, "E_VALUE" end
  return recipe
end

return M
