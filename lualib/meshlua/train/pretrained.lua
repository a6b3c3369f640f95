-- pretrained.lua: models of a recipe out of files of others, and into them: a folder of Hugging Face (config.json and
-- safetensors) or of Meta (params.json), a GGUF file. How these describe a model and name its tensors is data of the
-- recipe, one entry of `formats` for each:
--
--   keys   {{key, name [, default]}...}: the description's keys, and what of the recipe's config they are; a default
--          is a value, or a function of the config so far; one that has none must be there
--   fixed  {key = value}: written, and what the description says of it must be the same; lists are written alone
--   read   fun(description, config, file): for what keys cannot say; gives a text where the recipe knows no such model
--   write  fun(config, description): the same way back; gives tensors that the file has beside the model's, or nil
--   map    the names (see ml.load), and `numbers`, fun(config), what words in them are
--
-- Beside them `stack`: the path of the layers, which are one stack where config.scan is true.
local core = require "meshlua.core"
local files = require "meshlua.train.files"
local folder = require "meshlua.checkpoint.folder"
local json = require "meshlua.train.json"
local lib = require "meshlua.lib"
local load = require "meshlua.checkpoint.load"
local nn = require "meshlua.nn.create"
local ops = require "meshlua.ops"
local rngs_of = require "meshlua.nn.rngs"
local save = require "meshlua.checkpoint.save"
local together = require "meshlua.sharding.together"
local tree_of = require "meshlua.tree"

local raise = lib.raise

local M = {}

-- Where a folder has the description and, if not as Hugging Face, the weights.
local FOLDERS = {
  {format = "hf", description = "config.json"},
  {format = "meta", description = "params.json", weights = "consolidated.safetensors"},
}

local FLOATS = {"bfloat16", "float16", "float32", "float64"}

local function format_of(who, recipe, name)
  local format = type(recipe) == "table" and recipe.formats and recipe.formats[name]
  if not format then
    raise("E_VALUE", "%s: the recipe %s has no formats.%s", who,
      type(recipe) == "table" and recipe.name or "", name)
  end
  return format
end

--- The names for a model of this config: of layers in a stack each is a place of its first dim.
local function map_of(recipe, format, cfg)
  local path = recipe.formats.stack
  if not path or not cfg.scan then return format.map end
  local map = {}
  for i, rule in ipairs(format.map) do
    local rest = rule[2] and rule[2]:match("^" .. path .. "%.{i%+1}%.(.+)$")
    map[i] = rule
    if rest then
      map[i] = table.move(rule, 3, #rule, 3, {rule[1], path .. "." .. rest})
      table.insert(map[i], {"stack", 1})
    end
  end
  return map
end

--- What stands at a key; null is nothing.
local function at(description, key)
  local value = description[key]
  if value == core.null then return nil end
  return value
end

--- A value of a description as one of the config, whose own has the right type; or nil.
local function typed(value, own)
  if type(value) ~= type(own) then return nil end
  if math.type(own) == "float" then return value + 0.0 end
  if math.type(own) == "integer" then return math.tointeger(value) end
  return value
end

--- Reads what keys say into cfg. Gives what is wrong, or nil.
local function read_keys(recipe, format, description, cfg)
  for _, key in ipairs(lib.names(format.fixed)) do
    local value, wanted = at(description, key), format.fixed[key]
    if value ~= nil and type(wanted) ~= "table" and value ~= wanted then
      return lib.format("%s is %s; of the recipe %s it is %s", key, value, recipe.name, wanted)
    end
  end
  for _, row in ipairs(format.keys) do
    local key, name, default = table.unpack(row)
    local value = at(description, key)
    if value == nil then
      value = default
      if type(default) == "function" then value = default(cfg) end
    end
    if value == nil then return key .. " is missing" end
    cfg[name] = typed(value, recipe.config[name])
    if cfg[name] == nil then
      return lib.format("%s is %s; %s of the recipe %s is such as %s", key,
        type(value) == "table" and "a list" or value, name, recipe.name, recipe.config[name])
    end
    local least = recipe.range and recipe.range[name] and recipe.range[name].least
    if least and cfg[name] < least then return lib.format("%s is %s; the least is %s", key, value, least) end
  end
end

--- A copy; what is null in a description is not there.
local function copied(t)
  local copy = {}
  for key, value in pairs(t or {}) do
    if value ~= core.null then copy[key] = value end
  end
  return copy
end

--- The config that a description means.
local function read_config(recipe, format, description, changes, file)
  local cfg = copied(recipe.config)
  local wrong = read_keys(recipe, format, description, cfg)
  if not wrong and format.read then wrong = format.read(description, cfg, file) end
  if wrong then return nil, file.path .. ": " .. wrong, "E_VALUE" end
  for name, value in pairs(changes) do cfg[name] = value end
  return cfg
end

-- ---- from files -------------------------------------------------------------------------------------

--- The dtype that a config.json says the weights have.
local function read_dtype(description, cfg, path)
  local dtype = at(description, "dtype") or at(description, "torch_dtype") or "float32"
  if not lib.position(FLOATS, dtype) then
    return nil, lib.format("%s: dtype is %s; expected %s", path, dtype, table.concat(FLOATS, ", ")),
      "E_VALUE"
  end
  cfg.dtype = dtype
  return true
end

--- Config, format and weights of a folder.
local function open_folder(recipe, path, changes)
  for _, kind in ipairs(FOLDERS) do
    local described = folder.inside(path, kind.description)
    if core.is_regular_file(described) and recipe.formats and recipe.formats[kind.format] then
      local format = recipe.formats[kind.format]
      local description, message, code = json.read(described)
      if not description then return nil, message, code end
      changes = copied(changes)
      if kind.format == "hf" and changes.dtype == nil then
        local ok
        ok, message, code = read_dtype(description, changes, described)
        if not ok then return nil, message, code end
      end
      local cfg
      cfg, message, code = read_config(recipe, format, description, changes, {path = described})
      if not cfg then return nil, message, code end
      local weights = kind.weights and folder.inside(path, kind.weights) or path
      return {cfg = cfg, format = format, path = weights, description = copied(description)}
    end
  end
  return nil, folder.inside(path, "config.json") .. ": there is no such file; it says what the model is",
    "E_IO"
end

--- Numbers of GGUF have 32 bits: 1e-05 and not 9.9999997473788e-06.
local function rounded(metadata)
  for key, value in pairs(metadata) do
    if math.type(value) == "float" then metadata[key] = tonumber(("%.7g"):format(value)) + 0.0 end
  end
  return metadata
end
rounded = core.plain(rounded)

local function open_gguf(recipe, path, changes)
  local format = format_of("train.from_pretrained", recipe, "gguf")
  local catalog, message, code = core.catalog(path)
  if not catalog then return nil, message, code end
  local shapes, metadata = {}, rounded(catalog:metadata())
  for _, entry in ipairs(catalog:entries()) do shapes[entry.name] = entry.shape end
  catalog:close()
  local file = {path = path, shapes = shapes, changes = changes}
  function file.read(name)
    local tensors = load.load(path, {partial = "^" .. name:gsub("%p", "%%%0") .. "$"})
    return tensors and tensors[name]:totable()
  end
  local cfg
  cfg, message, code = read_config(recipe, format, metadata, changes, file)
  return cfg and {cfg = cfg, format = format, path = path, description = metadata}, message, code
end

--- Holds what a description says against the files before a model is built from it: numbers are free there.
local function check_size(recipe, found, message, code)
  if not found then return nil, message, code end
  local opened, why, kind = folder.open(found.path)
  if not opened then return nil, why, kind end
  local tensors, elements, wanted = 0, 0, 0
  for _, file in ipairs(opened) do
    for _, entry in ipairs(file.entries) do
      tensors, elements = tensors + 1, elements + lib.product(entry.shape)
    end
    file.catalog:close()
  end
  local layers = found.cfg.layers or 0
  if layers > tensors then
    return nil, lib.format("%s: described are %d layers, and there are %d tensors", found.path, layers,
      tensors), "E_VALUE"
  end
  local types = nn.abstract(function() return recipe.build(found.cfg, rngs_of.Rngs(0)) end)
  tree_of.visit(types, function(_, leaf) wanted = wanted + lib.product(leaf.shape) end)
  if wanted <= 2 * elements then return found end -- a tensor may serve twice
  return nil, lib.format("%s: described are %d parameters, and there are %d", found.path, wanted, elements),
    "E_VALUE"
end

--- A model of the recipe whose Params are to be read: zeros, for what is drawn takes as long as what is read.
---@param recipe table
---@param cfg table
---@param where {mesh: Mesh?, rules: table?}
---@return table model
function M.blank(recipe, cfg, where)
  return nn.init(function(rngs)
    local model = recipe.build(cfg, rngs)
    for _, leaf in ipairs((tree_of.leaves(model))) do
      if core.is_box(leaf) and core.box_meta(leaf).kind == "param" then
        leaf:set(ops.zeros(leaf.shape, leaf.dtype))
      end
    end
    return model
  end, where)
end

--- A model of the recipe with the weights of a folder (config.json beside safetensors, or params.json beside
--- Meta's) or of a GGUF file, born sharded: each device reads what it holds.
---@param recipe table with `formats`
---@param path string
---@param options {mesh: Mesh, rules: table, config: table}? config: changes, as {dtype = "float32"}; what the weights
--- are in the file is the default
---@return table? model
---@return table|string config or what is wrong with the files
---@return table|string|nil description config.json or the metadata of the GGUF file; or the error's code
function M.from_pretrained(recipe, path, options)
  local who = "train.from_pretrained"
  options = lib.options(who, options)
  local changes = options.config or {}
  if type(recipe.config) ~= "table" or type(recipe.build) ~= "function" then
    raise("E_VALUE", "%s: this is no recipe: it lacks config, a table, or build, a function", who)
  end
  for name in pairs(changes) do
    if recipe.config[name] == nil then
      raise("E_KEY", "%s: the recipe %s has no config.%s", who, recipe.name, name)
    end
  end
  local open = path:find "%.gguf$" and open_gguf or open_folder
  local found, message, code = together.agree(check_size(recipe, open(recipe, path, changes)))
  if not found then return nil, message, code end
  local cfg = found.cfg
  local model = M.blank(recipe, cfg, {mesh = options.mesh, rules = options.rules})
  local loaded
  loaded, message, code = load.load(found.path,
    {into = model, cast = true, map = map_of(recipe, found.format, cfg),
      numbers = recipe.formats.numbers(cfg)})
  if not loaded then return nil, message, code end
  return model, cfg, found.description
end

--- Reads weights into a model of the recipe: the recipe's own names, or those of the others that the file is of. As
--- ml.load: the model; or nil, message, code.
---@param recipe table
---@param model table
---@param config table that it was built with
---@param path string
function M.weights(recipe, model, config, path)
  local formats, kind = recipe.formats or {}, nil
  local options = {into = model, cast = true}
  if path:find "%.gguf$" then
    local catalog = core.catalog(path)
    -- Without an architecture it has names of whoever wrote it.
    kind = catalog and catalog:metadata()["general.architecture"] and {format = "gguf"}
    if catalog then catalog:close() end
  else
    for _, one in ipairs(FOLDERS) do
      if not kind and core.is_regular_file(folder.inside(path, one.description)) then kind = one end
    end
  end
  local format = kind and formats[kind.format]
  if format then options.map, options.numbers = map_of(recipe, format, config), formats.numbers(config) end
  if format and kind and kind.weights then path = folder.inside(path, kind.weights) end
  return load.load(path, options)
end

--- What a file or folder says besides its weights, for one of the same kind that is to be written; nil: nothing.
---@param path string
---@param into string the path that is to be written
---@return table?
function M.description(path, into)
  local is_gguf = path:find "%.gguf$" ~= nil
  if is_gguf ~= (into:find "%.gguf$" ~= nil) then return nil end
  if not is_gguf then return (json.read(folder.inside(path, "config.json"))) end
  local catalog = core.catalog(path)
  local metadata = catalog and rounded(catalog:metadata())
  if catalog then catalog:close() end
  return metadata
end

-- ---- into files -------------------------------------------------------------------------------------

--- What a file says of a model of this config, and the tensors that it has beside the model's.
local function described(format, cfg)
  local description = copied(format.fixed)
  for _, row in ipairs(format.keys) do description[row[1]] = cfg[row[2]] end
  return description, format.write and format.write(cfg, description)
end

--- The 256 bytes as the tokens of a byte-level vocabulary, which GGUF knows by GPT-2's letters for them.
local function byte_tokens()
  local tokens, kinds, others = {}, {}, 0
  for byte = 0, 255 do
    local plain = byte >= 0x21 and byte <= 0x7e or byte >= 0xa1 and byte ~= 0xad
    tokens[byte + 1] = utf8.char(plain and byte or 0x100 + others)
    kinds[byte + 1], others = 1, plain and others or others + 1
  end
  return tokens, kinds
end

--- Tells readers of GGUF how ids are text: bytes where there are 256; else that the file does not say.
local function describe_tokens(cfg, metadata)
  if cfg.vocab ~= 256 then
    metadata["tokenizer.ggml.model"] = "none"
    return
  end
  local tokens, kinds = byte_tokens()
  for key, value in pairs {model = "gpt2", pre = "gpt-2", tokens = tokens, token_type = kinds, merges = {},
      bos_token_id = 0, eos_token_id = 0, add_bos_token = false} do
    metadata["tokenizer.ggml." .. key] = value
  end
end

--- The words of save's options for the recipe's names.
local function naming(recipe, format, cfg)
  return {map = map_of(recipe, format, cfg), numbers = recipe.formats.numbers(cfg)}
end

local ENCODINGS = {float32 = "F32", float16 = "F16", bfloat16 = "BF16", float64 = "F32"}
local FILE_TYPES = {F32 = 0, F16 = 1, Q8_0 = 7, BF16 = 32} -- of most of a file, as llama.cpp counts them

--- What the recipe says of the model stands.
local function add_missing(description, more)
  for key, value in pairs(more or {}) do
    if description[key] == nil and value ~= core.null then description[key] = value end
  end
end

local function save_gguf(recipe, path, model, cfg, options)
  local format = format_of("train.save_pretrained", recipe, "gguf")
  local metadata, tensors = described(format, cfg)
  local more = options.metadata or {}
  if not more["tokenizer.ggml.model"] then describe_tokens(cfg, metadata) end
  add_missing(metadata, more)
  local tree = model
  if tensors then
    tree = copied(model)
    for name, tensor in pairs(tensors) do tree[name] = tensor end
    setmetatable(tree, getmetatable(model)) -- a module still, which may hold more than tensors
  end
  local how = naming(recipe, format, cfg)
  how.metadata, how.encoding = metadata, options.encoding or ENCODINGS[options.cast or cfg.dtype]
  metadata["general.file_type"] = FILE_TYPES[how.encoding]
  if how.encoding == "Q8_0" then metadata["general.quantization_version"] = 2 end
  return save.save(path, tree, how)
end

local function save_folder(recipe, path, model, cfg, options)
  if options.encoding then
    raise("E_VALUE", "train.save_pretrained: 'encoding' is for .gguf files; a folder takes cast")
  end
  local format = format_of("train.save_pretrained", recipe, "hf")
  local description = described(format, cfg)
  description.dtype = options.cast or cfg.dtype
  description.torch_dtype = description.dtype -- what it was called before
  add_missing(description, options.metadata)
  local ok, message, code = core.make_folder(path)
  if not ok then return nil, message, code or "E_IO" end
  local how = naming(recipe, format, cfg)
  how.cast = options.cast
  ok, message, code = save.save(folder.inside(path, ""), model, how)
  if not ok then return nil, message, code end
  if together.is_first() then
    ok, message = files.write(folder.inside(path, "config.json"), json.encode(description) .. "\n")
  end
  return together.agree(ok, message, "E_IO")
end

--- Why a model of the recipe cannot be written there, or nil.
---@param recipe table
---@param path string "": nothing is to be written
---@param overwrite boolean
---@return string?
function M.export_fault(recipe, path, overwrite)
  local kind = path:find "%.gguf$" and "gguf" or "hf"
  if path == "" then return nil end
  if not path:find "%.gguf$" and not path:find "/$" then
    return ("--export=%s: expected a folder/ or a file.gguf"):format(path)
  end
  if not (recipe.formats and recipe.formats[kind]) then
    return ("--export: the recipe %s says not how such a model is written: it lacks formats.%s"):format(
      recipe.name, kind)
  end
  if not overwrite and core.path_kind((path:gsub("/+$", ""))) then
    return ("--export=%s: it is there; take another, or --overwrite to replace it"):format(path)
  end
end

--- Writes a model of the recipe as a folder of Hugging Face, or, where the path ends in .gguf, as a GGUF file.
---@param recipe table with `formats`
---@param path string
---@param model table
---@param config table that it was built with
---@param options {cast: string, encoding: string, metadata: table}? cast: the dtype of floats in the file; encoding: of a
--- GGUF file's matrices, as "Q8_0"; metadata: what config.json or the GGUF file says besides, as of tokens
---@return true?, string? message, string? code
function M.save_pretrained(recipe, path, model, config, options)
  options = lib.options("train.save_pretrained", options)
  return (path:find "%.gguf$" and save_gguf or save_folder)(recipe, path, model, config, options)
end

return M
