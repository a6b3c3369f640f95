-- trained.lua: what of a run's model is trained, and how: Params that are frozen, that have a rate or a decay of their
-- own, and low-rank adapters in the place of all others. Params are named by Lua patterns of their paths.
local core = require "meshlua.core"
local lib = require "meshlua.lib"
local lora = require "meshlua.nn.lora"
local masks = require "meshlua.nn.masks"
local nn = require "meshlua.nn"
local params_of = require "meshlua.optim.params"
local random = require "meshlua.random"
local state_of = require "meshlua.nn.state"

local M = {}

--- The options that are about this, in the order in which they are applied.
M.options = {"lora", "freeze", "lr_of", "decay_of", "ema"}

local LORA_STREAM = 0x6c6f7261 -- of the seed: none of the recipe's own

--- "wte:0.1,ln_:2" as {{"wte", 0.1}, {"ln_", 2}}.
---@param text string
---@return table[]? rows
local function factors(text)
  local rows = {}
  for word in (text .. ","):gmatch "([^,]*)," do
    local pattern, number = word:match "^(.+):([^:]*)$"
    rows[#rows + 1] = {pattern, tonumber(number)}
    if not pattern or not tonumber(number) or tonumber(number) < 0 then return nil end
  end
  return rows
end

local function patterns(text)
  local list = {}
  for word in text:gmatch "[^,]+" do list[#list + 1] = word end
  return list
end

--- "attn:8" as {"attn"}, 8.
local function adapters(text)
  local names, rank = text:match "^(.+):(%d+)$"
  rank = math.tointeger(tonumber(rank))
  if rank and rank > 0 then return patterns(names), rank end
end

--- What is wrong with how the options are written, or nil.
---@param values table<string, any>
---@return string?
function M.fault(values)
  if values.lora ~= "" and not adapters(values.lora) then
    return ("--lora=%s: expected a pattern of layers and a rank, as in attn:8"):format(values.lora)
  end
  for _, name in ipairs {"lr_of", "decay_of"} do
    if values[name] ~= "" and not factors(values[name]) then
      return ("--%s=%s: expected patterns and factors from 0 on, as in wte:0.1,ln_:0"):format(
        name:gsub("_", "-"), values[name])
    end
  end
end

--- Gives the Params that a pattern finds a factor.
local function give(model, option, key, text)
  local entries = params_of.of(model)
  for _, row in ipairs(factors(text)) do
    for i, hit in ipairs(masks.mask(option, {row[1]})(entries)) do
      if hit then core.box_meta(entries[i].box)[key] = row[2] end
    end
  end
end

--- Takes the Params for which holds(path) is true out of what is trained.
local function freeze(entries, marks)
  local left = 0
  for i, entry in ipairs(entries) do
    if marks[i] then core.box_meta(entry.box).kind = "frozen" else left = left + 1 end
  end
  if left == 0 then lib.raise("E_VALUE", "--freeze: every Param is frozen; nothing is left to train") end
end

local function is_adapter(path) return path:find "lora_[ab]$" ~= nil end

--- Does all this to a model that has its weights, and no optimizer yet. Raises where a pattern finds nothing.
---@param model table
---@param values table<string, any> the options
---@param seed integer
function M.apply(model, values, seed)
  if values.lora ~= "" then
    local names, rank = adapters(values.lora)
    lora.lora(model, {rank = rank, only = names,
      rngs = nn.Rngs(random.fold_in(random.key(seed), LORA_STREAM))})
    local entries, marks = params_of.of(model), {}
    for i, entry in ipairs(entries) do marks[i] = not is_adapter(entry.path) end
    freeze(entries, marks)
  end
  if values.freeze ~= "" then
    local entries = params_of.of(model)
    freeze(entries, masks.mask("--freeze", patterns(values.freeze))(entries))
  end
  if values.lr_of ~= "" then give(model, "--lr-of", "lr_factor", values.lr_of) end
  if values.decay_of ~= "" then give(model, "--decay-of", "decay_factor", values.decay_of) end
end

--- What of the options a run that goes on must share: those that are given; nil: none.
---@param values table<string, any>
---@return table<string, any>?
function M.given(values)
  local given = {}
  for _, name in ipairs(M.options) do
    local value = values[name]
    if value and value ~= "" and value ~= 0 then given[name] = value end
  end
  return next(given) and given or nil
end

--- The adapters of a model as a tree of tensors; nil where it has none.
---@param model table
---@return table?
function M.adapters(model)
  local tree = state_of.state(model, function(path) return is_adapter(path) end)
  return next(tree) and tree or nil
end

--- The model with its adapters added to the kernels; it is changed.
M.merged = lora.merge_lora

return M
