-- model.lua: what `chat` talks with: a model with its tokenizer and chat template, out of a GGUF file, a folder of Hugging
-- Face or Meta's, a run of `train`, or one of its checkpoints.
local core = require "meshlua.core"
local files = require "meshlua.train.files"
local folder_of = require "meshlua.checkpoint.folder"
local json = require "meshlua.train.json"
local lib = require "meshlua.lib"
local manager_of = require "meshlua.checkpoint.manager"
local manifest = require "meshlua.checkpoint.manifest"
local pretrained = require "meshlua.train.pretrained"
local recipes = require "meshlua.train.recipe"
local template_of = require "meshlua.chat.template"
local tokenizers = require "meshlua.tokenizer"
local trained = require "meshlua.train.trained"

local M = {}

---@class ChatModel
---@field name string
---@field model table
---@field config table the recipe's
---@field rules table?
---@field mesh Mesh?
---@field tokenizer table
---@field template ChatTemplate? nil: texts are continued

-- ---- which recipe ---------------------------------------------------------------------------------------

--- The recipe that --recipe names.
local function named_recipe(name)
  recipes.look_beside(name)
  local recipe, message = recipes.load(name)
  if not recipe then return nil, ("--recipe=%s: %s"):format(name, message), "E_VALUE" end
  return recipe
end

--- The installed recipe whose files say so at a key.
local function recipe_for(path, format, key, word)
  local known = {}
  for _, name in ipairs(recipes.installed) do
    local recipe = recipes.load(name)
    local own = recipe.formats and recipe.formats[format]
    if own and (own.fixed[key] == word or format == "meta") then return recipe end
    known[#known + 1] = own and own.fixed[key]
  end
  return nil, ("%s: its %s is %s; known are %s (--recipe=FILE: a recipe that reads it)"):format(path, key,
    lib.text(word or "nothing"), table.concat(known, ", ")), "E_UNSUPPORTED"
end

--- The recipe of a file or folder of others: a recipe, or nil, message, code.
local function recipe_of(path, flags)
  if flags.recipe ~= "" then return named_recipe(flags.recipe) end
  if path:find "%.gguf$" then
    local catalog, message, code = core.catalog(path)
    if not catalog then return nil, message, code end
    local word = catalog:metadata()["general.architecture"]
    catalog:close()
    return recipe_for(path, "gguf", "general.architecture", word)
  end
  local described = folder_of.inside(path, "config.json")
  if core.is_regular_file(described) then
    local description, message, code = json.read(described)
    if not description then return nil, message, code end
    return recipe_for(described, "hf", "model_type", description.model_type)
  end
  if core.is_regular_file(folder_of.inside(path, "params.json")) then return recipe_for(path, "meta") end
  return nil, path .. ": no model: expected a GGUF file, a folder with config.json and its weights, or a run "
    .. "of train", "E_IO"
end

-- ---- runs of train --------------------------------------------------------------------------------------

--- The folder of a run, and the checkpoint in it: of the run's folder the newest. Nil: it is no run.
local function run_at(path)
  path = path:gsub("(.)/+$", "%1")
  local run, checkpoint = path
  if manager_of.is_checkpoint(path) then
    run, checkpoint = path:match "^(.*)/[^/]+/[^/]+$" or "../..", path
  else
    local steps = manifest.steps(folder_of.inside(path, files.CHECKPOINTS))
    local newest = math.max(0, table.unpack(steps))
    checkpoint = steps[1] and folder_of.inside(path, files.CHECKPOINTS .. "/" .. manifest.folder(newest))
  end
  local said = checkpoint and json.read(folder_of.inside(run, "config.json"))
  if not checkpoint then return nil end
  return {folder = run, checkpoint = checkpoint, said = said}
end

--- The adapters that a checkpoint has, as --lora names them; or nil.
local function adapters_of(checkpoint)
  local said = json.read(folder_of.inside(checkpoint, "state.json"))
  local state = said and type(said.state) == "table" and said.state or {}
  return type(state.trained) == "table" and state.trained.lora or nil
end

local function read_run(run, flags, where)
  local said = run.said
  if not said or type(said.config) ~= "table" or type(said.recipe) ~= "string" then
    return nil, folder_of.inside(run.folder, "config.json")
      .. ": it does not say how the run's model was made", "E_VALUE"
  end
  local recipe, message, code = recipes.load(said.recipe)
  if flags.recipe ~= "" then recipe, message, code = named_recipe(flags.recipe) end
  if not recipe then
    return nil, ("%s: the recipe %s: %s; --recipe=FILE says where it is"):format(run.folder, said.recipe,
      message), code or "E_VALUE"
  end
  local config = lib.copy(recipe.config, said.config)
  if flags.dtype ~= "" then config.dtype = flags.dtype end
  where = where(recipe)
  local model = pretrained.blank(recipe, config, where)
  local lora = adapters_of(run.checkpoint)
  if lora then trained.apply(model, {lora = lora, freeze = "", lr_of = "", decay_of = ""}, 0) end
  local found
  found, message, code = manager_of.restore_from(run.checkpoint, {model = model}, {cast = true})
  if not found then return nil, message, code end
  if lora then trained.merged(model) end
  return {model = model, config = config, folder = run.folder, mesh = where.mesh, rules = where.rules}
end

local function read_others(path, flags, where)
  local recipe, message, code = recipe_of(path, flags)
  if not recipe then return nil, message, code end
  where = where(recipe)
  where.config = flags.dtype ~= "" and {dtype = flags.dtype} or nil
  local model, config, said = pretrained.from_pretrained(recipe, path, where)
  if not model then return nil, config, said end
  local name = said["general.name"] or path:gsub("/+$", ""):match "[^/]+$"
  return {model = model, config = config, folder = path, name = name, mesh = where.mesh, rules = where.rules}
end

-- ---- tokenizers -----------------------------------------------------------------------------------------

--- Bytes as ids, of models that were trained on them.
local BYTES = {size = 256, stops = {}}
function BYTES.encode(_, text) return {text:byte(1, -1)} end
function BYTES.stream()
  local rest = ""
  return function(id)
    rest = rest .. (id and string.char(id) or "")
    local n = id and not utf8.len(rest) and #rest < 4 and #rest or 0
    local text = rest:sub(1, #rest - n)
    rest = rest:sub(#rest - n + 1)
    return text
  end
end

--- Puts the tokenizer and the template to a model.
local function add_tokenizer(found, flags)
  local given = flags.tokenizer ~= "" and flags.tokenizer
  local tokenizer, message, code = tokenizers.tokenizer(given or found.folder)
  if not tokenizer and not given and code == "E_IO" and found.config.vocab == 256 then
    found.tokenizer = BYTES
    return found
  end
  if not tokenizer then
    return nil, message .. (given and "" or "; --tokenizer=PATH names one that is elsewhere"), code
  end
  if tokenizer.size > found.config.vocab then
    return nil, ("%s: the tokenizer has %d tokens, the model %d; --tokenizer=PATH names another"):format(
      given or found.folder, tokenizer.size, found.config.vocab), "E_VALUE"
  end
  found.tokenizer = tokenizer
  if flags.raw or not tokenizer.chat_template then return found end
  found.template, message, code = template_of.chat_template(tokenizer.chat_template)
  if not found.template then
    return nil, ("%s: %s; --raw continues texts without it"):format(given or found.folder, message), code
  end
  return found
end

--- Opens a model.
---@param path string
---@param flags table by the rows of verbs.lua
---@param where fun(recipe: table): {mesh: Mesh?, rules: table?}
---@return ChatModel? model, string? message, string? code
function M.open(path, flags, where)
  local run = run_at(path)
  local found, message, code
  if run then
    found, message, code = read_run(run, flags, where)
  else
    found, message, code = read_others(path, flags, where)
  end
  if not found then return nil, message, code end
  found.name = found.name or path
  found.model = found.model:eval()
  return add_tokenizer(found, flags)
end

return M
