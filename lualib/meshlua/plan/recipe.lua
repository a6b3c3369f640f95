-- recipe.lua: what `plan` is given: a recipe of a Lua file, or a config.json, which decoder.lua makes one of.
local core = require "meshlua.core"
local decoder = require "models.decoder"
local families = require "meshlua.plan.families"
local lib = require "meshlua.lib"
local recipes = require "meshlua.train.recipe"

local nn = require "meshlua.nn"
local ops = require "meshlua.ops"
local tree = require "meshlua.tree"

local M = {}

local LONGEST = 8192 -- tokens of context that are planned where the user says nothing

local MOST_BYTES = 16 << 20 -- of a config

--- Is it a folder, or a link to one?
local function is_folder(path) return path ~= "" and core.path_kind(path .. "/.") == "folder" end

--- The text of a file; what a folder holds as config.json.
local function read(path)
  local inside = is_folder(path) and "config.json: " or ""
  if inside ~= "" then path = path .. "/config.json" end
  local file <close>, missing = io.open(path, "rb")
  if not file then return nil, inside .. missing:gsub("^.*: ", "") end
  local text, why = file:read(MOST_BYTES + 1)
  if text and #text > MOST_BYTES then return nil, "it has more than " .. core.bytes_text(MOST_BYTES) end
  return text or not why and "", why
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
  local cfg, note, idle, window = families.config(given)
  if not cfg then return nil, note, "E_VALUE" end
  local config = {}
  for key, value in pairs(decoder.config) do config[key] = value end
  for key, value in pairs(cfg) do config[key] = value end
  config.seq, config.batch, config.precision = math.min(cfg.seq, LONGEST), ndevices, "bf16"
  return setmetatable({name = given.model_type, context = cfg.seq, build = build, config = config,
    rules = cfg.experts == 0 and decoder.dense_rules or nil, note = note ~= "" and note or nil, idle = idle,
    window = window},
    {__index = decoder})
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

--- What a user's file raised, on one line.
local function raised(fault)
  if type(fault) ~= "string" then return "it raises " .. lib.kind(fault) end
  return "it cannot be loaded: " .. fault:match "^[^\n]*":gsub(":$", "")
end

--- The recipe of a path.
---@param path string a recipe's file, or a config.json, or a folder with one
---@param ndevices integer
---@return table? recipe
---@return string? message, string? code
function M.load(path, ndevices)
  if path:find "%.json$" or is_folder(path) then
    local given, message, code = M.json(path)
    if not given then return nil, message, code end
    return M.of(given, ndevices)
  end
  recipes.look_beside(path)
  local ok, recipe, message = lib.unless_stopped(pcall(recipes.load, path))
  if not ok then recipe, message = nil, raised(recipe) end
  if recipe then return recipe end
  return nil, message .. "; give a file that returns a recipe, as models/gpt.lua, or a config.json", "E_VALUE"
end

return M
