-- recipe.lua: what a recipe is, and one out of its file. A recipe is a table that knows a model and nothing of meshes
-- and loops; M.fields has a row for each thing in it. What is checked when a recipe is loaded, what its messages tell
-- to write, and the table of docs/training.md come from these rows.
local core = require "meshlua.core"
local lib = require "meshlua.lib"

local M = {}

-- ---- the contract -----------------------------------------------------------------------------------

---@class RecipeField
---@field [1] string name
---@field [2] string what it is: a type as lib.kind says it
---@field [3] string what it is for
---@field write string what stands in a recipe that has it, behind "M."; of a function: arguments and body
---@field needed boolean?

---@type RecipeField[]
M.fields = {
  {"name", "a string", "what people call it", write = '= "mine"', needed = true},
  {"config", "a table", "what can be set, with defaults, whose types are the settings'; each is a flag. "
    .. "batch (records of a step) and steps are among them; precision, where there, names the dtype of "
    .. "arithmetic (bf16, f16, f32)", write = "= {batch = 16, steps = 1000, lr = 1e-3}", needed = true},
  {"help", "a table", "a line for each setting", write = '= {lr = "learning rate"}'},
  {"range", "a table", "what a setting may be: {least =, most =, above =, below =} of a number, {words =} of "
    .. "a text", write = "= {lr = {least = 0}}"},
  {"sizes", "a table", "settings of known models, for --size",
    write = "= {small = {layers = 4, width = 128}}"},
  {"rules", "a table", "rule sets by name, for --rules", write = '= {dp = {{"batch", "data"}}}'},
  {"layout", "a table", "the default mesh, as --mesh takes it, and the default rule set",
    write = '= {mesh = "data:4", rules = "dp"}'},
  {"build", "a function", "the model", write = "(config, rngs) return Model(config, rngs) end",
    needed = true},
  {"loss", "a function", "the mean loss of a batch, a scalar; rngs for dropout", needed = true,
    write = "(model, inputs, labels, rngs) return "
      .. "nn.softmax_cross_entropy_with_integer_labels(model(inputs, rngs), labels):mean() end"},
  {"pipeline", "a function", "the model's parts for nn.pipeline, over a mesh axis `stage`: {stack =, "
    .. "first =, last =, body =, rngs =}, rngs: true where they take keys; a part of the batch is {inputs =, "
    .. "labels =}. Or nil: its layers are no stack",
    write = "(model) return {stack = model.layers, first = function(part) return model.embed(part.inputs) "
      .. "end, last = function(x, part) return loss(model.head(x), part.labels) end} end"},
  {"score", "a function", "the loss of each record, [batch], for evaluation; without it that is the mean "
    .. "of loss over whole batches", write = "(model, inputs, labels) return "
      .. "nn.softmax_cross_entropy_with_integer_labels(model(inputs), labels) end"},
  {"schedule", "a function", "the learning rate: a function of the count of steps", needed = true,
    write = "(config) return ml.schedule.constant(config.lr) end"},
  {"optimizer", "a function", "the optimizer of the model", needed = true,
    write = "(model, config) return ml.optim.adamw(model, {lr = M.schedule(config)}) end"},
  {"data", "a function", '{train = Records, valid = Records, unit = "tok"}: records with the fields inputs '
    .. "and labels; unit: what one label is; bytes: how many bytes of text it is, where it is text. path is "
    .. "what --data names, or nil; tokenizer what --tokenizer does, and then a field of the result. Or nil, "
    .. "message, code", needed = true,
    write = "(config, path) return {train = ml.data.idx {...}, valid = ml.data.idx {...}} end"},
  {"attention", "a function", "{layers =, width =, seq =} of a transformer, for the share of the devices' "
    .. "peak that a run uses",
    write = "(config) return {layers = config.layers, width = config.width, seq = config.seq} end"},
  {"evaluate", "a function", "what is said at the end of the validation records: a list of {key =, value =, "
    .. "text =}",
    write = '(run) return {{key = "validation_loss", value = run:mean(M.score), text = "..."}} end'},
  {"sample", "a function", "what is shown of the model at the end, and with --sample-every: such a list, too",
    write = '(run) return {{key = "sample", value = text, text = text}} end'},
  {"formats", "a table", "how files of others describe the model and name its tensors, for --from and "
    .. "--export", write = "= {hf = {keys = {...}, map = {...}}}"},
}

--- What the settings of every recipe have.
local SETTINGS = {{"batch", "a whole number", write = "batch = 16"},
  {"steps", "a whole number", write = "steps = 1000"}}

local MISSPELT = 2 -- letters by which a name may differ from the one that is meant

--- A field of a recipe as it is written.
---@param row RecipeField
---@return string
function M.written(row)
  local begin = row[2] == "a function" and "function M." or "M."
  return begin .. row[1] .. (row.write:find "^=" and " " or "") .. row.write
end

--- A field as documents name it, and what it is for.
---@param row RecipeField
---@return string name, string doc
function M.documented(row)
  return row[1] .. (row[2] == "a function" and row.write:match "^%b()" or ""),
    row[3] .. (row.needed and "" or " (may be missing)")
end

--- The name of what a table has in the place of `name`, misspelt; nil: nothing.
local function misspelt(t, name, known)
  for _, key in ipairs(lib.names(t)) do
    if not known[key] and #name > MISSPELT + 1 and core.distance(key, name) <= MISSPELT then return key end
  end
end

--- The type of a value, in words.
local function kind_of(value)
  return math.type(value) == "integer" and "a whole number" or lib.kind(value)
end

--- Adds what is wrong with the settings: batch and steps, and lines of help and bounds of what is none.
local function look_at_settings(faults, recipe)
  local config = recipe.config
  if type(config) ~= "table" then return end
  for _, row in ipairs(SETTINGS) do
    local kind = kind_of(config[row[1]])
    if config[row[1]] == nil then
      faults[#faults + 1] = ("its config lacks %s, %s; write: %s"):format(row[1], row[2], row.write)
    elseif kind ~= row[2] then
      faults[#faults + 1] = ("%s of its config is %s, not %s; write: %s"):format(row[1], kind, row[2],
        row.write)
    end
  end
  for _, about in ipairs {"help", "range"} do
    local rows = type(recipe[about]) == "table" and recipe[about] or {}
    for _, key in ipairs(lib.names(rows)) do
      if config[key] == nil then
        faults[#faults + 1] = ("%s has %s, which its config lacks%s"):format(about, key,
          lib.did_you_mean(key, lib.names(config), "%s"))
      end
    end
  end
end

--- All names that a recipe has, those that it has of another included.
local function own_names(recipe)
  local names, seen = {}, {}
  while type(recipe) == "table" and not seen[recipe] do
    seen[recipe] = true
    for key, value in pairs(recipe) do
      if type(key) == "string" then names[key] = value end
    end
    recipe = (getmetatable(recipe) or {}).__index
  end
  return names
end

--- What a recipe lacks, has misspelt, or has of another type than it must be, with the line to write; nil: nothing.
---@param recipe any
---@return string? message
function M.fault(recipe)
  if type(recipe) ~= "table" or not (recipe.config or recipe.build) then
    return "this is no recipe: a table with name, config, build, loss, schedule, optimizer and data"
  end
  local faults, known, names = {}, {}, own_names(recipe)
  for _, row in ipairs(M.fields) do known[row[1]] = true end
  for _, row in ipairs(M.fields) do
    local name, value = row[1], recipe[row[1]]
    local near = value == nil and misspelt(names, name, known)
    if value == nil and (row.needed or near) then
      faults[#faults + 1] = ("the recipe lacks %s, %s%s; write: %s"):format(name, row[2],
        near and (" (it has %s)"):format(near) or "", M.written(row))
    elseif value ~= nil and kind_of(value) ~= row[2] then
      faults[#faults + 1] = ("%s of the recipe is %s, not %s; write: %s"):format(name, kind_of(value), row[2],
        M.written(row))
    end
  end
  look_at_settings(faults, recipe)
  return faults[1] and table.concat(faults, "\n       ")
end

--- What is wrong with what a recipe's data gave, or nil.
---@param data any
---@return string? message
function M.data_fault(data)
  if type(data) ~= "table" then
    return ("the recipe's data gave %s, not {train =, valid =}"):format(lib.kind(data))
  end
  for _, part in ipairs {"train", "valid"} do
    local records = data[part]
    if type(records) ~= "table" or type(records.fields) ~= "table" then
      return ("the recipe's data gave %s as %s, not Records (ml.data)"):format(lib.kind(records), part)
    end
    for _, field in ipairs {"inputs", "labels"} do
      if not records.fields[field] then
        return ("the recipe's data: the records of %s have no %s; they have %s"):format(part, field,
          table.concat(lib.names(records.fields), ", "))
      end
    end
  end
end

-- ---- files ------------------------------------------------------------------------------------------

--- The recipes that the program has in it, wherever it lies.
M.installed = {"convnet", "decoder", "gpt", "llama", "mlp"}

--- From here on `require` finds what lies beside a file.
---@param path string
function M.look_beside(path)
  local folder = path:match "^(.*/)"
  if folder then package.path = ("%s?.lua;%s?/init.lua;%s"):format(folder, folder, package.path) end
end

--- The recipe of a path, or of a name: one that is installed, or a file that package.path finds, beside the script.
--- Raises what the file raises.
---@param name string
---@param beside boolean? the file that package.path finds comes first
---@return table? recipe
---@return string? message
function M.load(name, beside)
  local path, installed = name, lib.position(M.installed, name)
  if not name:find "[/.]" then
    path = (beside or not installed) and package.searchpath(name, package.path)
    if not path and installed then return require("models." .. name) end
    if not path then
      return nil, ("there is no such recipe%s; installed are %s"):format(
        lib.did_you_mean(name, M.installed, "%s"), table.concat(M.installed, ", "))
    end
  end
  local file <close>, missing = io.open(path)
  if not file then return nil, (missing:gsub("^.*: ", "")) end
  local chunk, message = loadfile(path)
  if not chunk then error(message, 0) end
  local recipe = chunk(name)
  if type(recipe) ~= "table" then
    return nil, "the file returns no recipe; its last line is: return M"
  end
  return recipe
end

return M
