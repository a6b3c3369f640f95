-- save.lua: ml.save: a tree's tensors into a file that other programs read, or a folder of such files. A file is written
-- beside the one that is there, as FILE.part, and takes its place when all of it is on the disk. Of several processes
-- each writes what its devices hold into the one file; the folder is one that all see. What is wrong with a disk is a
-- result (nil, message, code); what is wrong with a call raises, before anything is written.
local arrays = require "meshlua.ops.arrays"
local core = require "meshlua.core"
local encoding_of = require "meshlua.checkpoint.encoding"
local folder = require "meshlua.checkpoint.folder"
local lib = require "meshlua.lib"
local map_of = require "meshlua.checkpoint.map"
local ops = require "meshlua.ops"
local together = require "meshlua.sharding.together"
local tree_of = require "meshlua.tree"

local raise = lib.raise

local M = {}

-- ---- what is saved ----------------------------------------------------------------------------------

--- Raises for numbers, texts and functions in plain tables: no file of tensors holds them. What has a class has it
--- from the code that makes it.
local function check_plain(node, path)
  if tree_of.is_leaf(node) or getmetatable(node) ~= nil then return end
  for _, key in ipairs(core.tree_keys(node)) do
    local child, at = rawget(node, key), lib.below(path, key)
    if type(child) == "table" or tree_of.is_leaf(child) then
      check_plain(child, at)
    else
      raise("E_VALUE", "save: %s is %s, and files hold tensors: write metadata = {...}, or make it one", at,
        lib.kind(child))
    end
  end
end

--- A leaf's tensor; raises where it has none.
local function value_of(leaf, path)
  if core.is_traced(leaf) then raise("E_TRACED", "save: the tensor at %s is traced", path) end
  if not lib.is_tensor(leaf) then raise("E_VALUE", "save: %s is a type without values", path) end
  local value = leaf
  if core.is_box(leaf) then value = leaf:get() end
  if value == nil then raise("E_VALUE", "save: the Param at %s is empty", path) end
  return value
end

--- The tensors of a tree: {path, shape, dtype, value}.
local function leaves_of(tree, format)
  if type(tree) ~= "table" and not lib.is_tensor(tree) then
    raise("E_VALUE", "save: expected a model or a tree of tensors, got %s", lib.kind(tree))
  end
  local leaves, paths = tree_of.leaves(tree) -- which raises for cycles
  if not lib.is_tensor(tree) then check_plain(tree, "") end
  local list, seen = {}, {}
  for k, leaf in ipairs(leaves) do
    local path, value = paths[k], value_of(leaf, paths[k])
    if path == "" and format ~= "npy" then
      raise("E_VALUE", "save: a tensor alone has no name: {name = x}; .npy files hold one without")
    end
    if seen[path] then raise("E_VALUE", "save: two tensors of the tree have the path '%s'", path) end
    seen[path] = true
    list[k] = {path = path == "" and "tensor" or path, shape = {table.unpack(value.shape)},
      dtype = value.dtype, value = value}
  end
  if format == "npy" and #list ~= 1 then
    raise("E_VALUE", "save: a .npy file holds one tensor, and there are %d; .npz holds several", #list)
  end
  return list
end

-- ---- how they are written ---------------------------------------------------------------------------

--- Gives an entry its encoding, the dtype that is written, and its bytes.
local function encode(entry, options)
  entry.encoding = encoding_of.choose(entry.dtype, entry.shape, options.cast, options.encoding)
  entry.write = encoding_of.dtype[entry.encoding]
  entry.bytes = encoding_of.bytes(entry.encoding, entry.shape)
end

-- ---- where ------------------------------------------------------------------------------------------

--- The format that a file's name asks for, and the folder where it is to be several files.
local function place_of(file)
  if type(file) ~= "string" or file == "" or file:find "%z" then
    raise("E_VALUE", "save: the file's name is %s",
      type(file) == "string" and "empty, or has a NUL" or lib.kind(file))
  end
  if file:find "%.index%.json$" then
    if not (file == folder.INDEX or file:sub(-#folder.INDEX - 1) == "/" .. folder.INDEX) then
      raise("E_VALUE", "save: an index is called %s", folder.INDEX)
    end
    return "safetensors", folder.of(file)
  end
  local format, in_folder = folder.format_of(file)
  if not format then
    raise("E_VALUE", "save: '%s' does not say which format: .safetensors, .npy, .npz, .gguf, or folder/ for "
      .. "files of at most shard_bytes", file)
  end
  return format, in_folder
end

--- Raises for options that the format has not.
local function check_options(options, format, in_folder)
  local function only(name, holds, words)
    if options[name] ~= nil and not holds then raise("E_VALUE", "save: '%s' is for %s", name, words) end
  end
  only("encoding", format == "gguf", ".gguf files")
  only("metadata", format == "gguf" or format == "safetensors", ".safetensors and .gguf files")
  only("shard_bytes", in_folder, "folders")
  only("map", format ~= "npz" and format ~= "npy", ".safetensors and .gguf files")
  only("numbers", options.map, "a map; none is given")
  if options.encoding and not lib.position(encoding_of.gguf, options.encoding) then
    raise("E_VALUE", "save: encoding '%s'; GGUF is written as %s", options.encoding,
      lib.quoted(encoding_of.gguf))
  end
  if options.cast and not lib.floats[options.cast] then
    raise("E_VALUE", "save: cast = '%s'; it is for floats, which stay floats", options.cast)
  end
  if options.cast and options.encoding then raise("E_VALUE", "save: of cast and encoding one says it") end
  if options.shard_bytes and options.shard_bytes < 1 then
    raise("E_VALUE", "save: shard_bytes = %d", options.shard_bytes)
  end
  if core.is_tracing() then
    raise("E_TRACED", "save: inside a traced function nothing has data yet; save what it returns")
  end
end

--- The metadata that goes into a file: of safetensors texts, with what readers of Hugging Face's ask for.
local function metadata_of(options, format)
  local metadata = {}
  if format == "safetensors" then metadata.format = "pt" end
  for key, value in pairs(options.metadata or {}) do
    if type(key) ~= "string" or format == "safetensors" and type(value) ~= "string" then
      raise("E_VALUE", "save: metadata: %s is %s; safetensors holds texts", key, lib.kind(value))
    end
    metadata[key] = value
  end
  return metadata
end

-- ---- the plan of a save -----------------------------------------------------------------------------

---@class Save
---@field format string
---@field files {path: string, entries: table[], layout: table}[]
---@field leaves table[]
---@field pieces table[][]
---@field texts {path: string, text: string}[]
---@field stale string[]

--- Raises unless the map has a place for all, and all places are filled.
local function check_map(options, problems, unmatched, map)
  local names = {}
  for _, rule in ipairs(map.rules) do names[#names + 1] = rule.model.text end
  if options.strict ~= false then
    for _, path in ipairs(unmatched) do
      local near = map_of.near(problems, path, names)
      problems[#problems + 1] = path .. ": no rule of the map takes it" .. near
    end
  end
  if #problems > 0 then
    raise("E_VALUE", "save: the map does not fit in %s:%s", lib.count(#problems, "place"),
      map_of.listed(problems))
  end
end

--- Where the parts are written: the file's own, or where entries are quantized one that has them as floats.
local function widen(file, format)
  file.part, file.written = file.path .. ".part", file.layout
  local entries, any = {}, false
  for k, entry in ipairs(file.entries) do
    any = any or entry.encoding == "Q8_0"
    entries[k] = {name = entry.name, shape = entry.shape, encoding = encoding_of.of[entry.write]}
  end
  if any then file.wide, file.written = file.path .. ".wide.part", core.catalog_layout(format, entries) end
  for k, entry in ipairs(file.entries) do entry.file, entry.begin = file, file.written.begin[k] end
end

--- The layouts of the files; nil, message, code where the format does not take an entry.
local function lay_out(save, metadata)
  for _, file in ipairs(save.files) do
    local layout, message, code = core.catalog_layout(save.format, file.entries, metadata)
    if not layout then return nil, file.path .. ": " .. message, code end
    file.layout = layout
    widen(file, save.format)
  end
  return save
end

---@return Save?, string?, string?
local function plan(file, tree, options)
  local format, in_folder = place_of(file)
  check_options(options, format, in_folder)
  local save = {format = format, leaves = leaves_of(tree, format)}
  local map = map_of.compile("save", options.map, options.numbers)
  local entries, pieces, problems, unmatched = map:write(save.leaves)
  check_map(options, problems, unmatched, map)
  save.pieces, save.entries = pieces, entries
  for _, entry in ipairs(entries) do encode(entry, options) end
  if in_folder then
    local shards = folder.shards(entries, options.shard_bytes or 5000000000)
    save.folder, save.files = in_folder, shards
    for _, shard in ipairs(shards) do shard.path = folder.inside(in_folder, shard.name) end
  else
    save.files = {{path = file, entries = entries}}
  end
  if format == "npz" then return save end
  if format == "safetensors" then
    for _, one in ipairs(save.files) do table.sort(one.entries, encoding_of.wide_first) end
  end
  return lay_out(save, metadata_of(options, format))
end

-- ---- writing ----------------------------------------------------------------------------------------

--- The pieces of a leaf as the writer takes them.
local function targets_of(save, k, numbers)
  local list = {}
  for i, piece in ipairs(save.pieces[k]) do
    local entry = save.entries[piece.name]
    list[i] = {file = numbers[entry.file], begin = entry.begin, dtype = entry.write, at = piece.at,
      size = piece.size, offset = piece.offset, factors = piece.factors}
  end
  return list
end

--- Opens the files of a save, in all processes: the first makes them.
local function open_files(save, writer)
  local numbers, number, message, code = {}, true, nil, nil
  local function open(create)
    for _, file in ipairs(save.files) do
      number, message, code = writer:file(file.wide or file.part, {size = file.written.size, create = create,
        header = create and file.written.header or nil})
      if not number then return end
      numbers[file] = number
    end
  end
  if together.is_first() then open(true) end
  local ok
  ok, message, code = together.agree(number, message, code)
  if not ok then return nil, message, code end
  if not together.is_first() then open(false) end
  if message and not together.is_first() then
    message = message .. "; several processes save into a folder that all of them see"
  end
  ok, message, code = together.agree(number, message, code)
  if not ok then return nil, message, code end
  return numbers
end

--- Writes the parts; of several processes each its own.
local function write_parts(save)
  local writer = core.writer()
  local numbers, message, code = open_files(save, writer)
  if not numbers then
    writer:release()
    return nil, message, code
  end
  for k, leaf in ipairs(save.leaves) do
    if #save.pieces[k] > 0 then writer:add(leaf.value, k - 1, targets_of(save, k, numbers)) end
  end
  writer:run()
  local done
  done, message, code = writer:wait()
  writer:release()
  return together.agree(done, message, code)
end

--- The file's part, of the one that has floats.
local function narrow_file(file)
  local catalog, message, code = core.catalog(file.wide)
  if not catalog then return nil, message, code end
  local entries = {}
  for k, entry in ipairs(file.entries) do
    entries[k] = {catalog, k, file.layout.begin[k], entry.encoding}
  end
  local ok
  ok, message, code = core.catalog_write(file.part, file.layout.header, file.layout.size, entries)
  catalog:close()
  os.remove(file.wide)
  return ok, message, code
end

--- Quantizes what is to be, in the first process.
local function narrow(save)
  local ok, message, code = true, nil, nil
  for _, file in ipairs(together.is_first() and save.files or {}) do
    if ok and file.wide then ok, message, code = narrow_file(file) end
  end
  return together.agree(ok, message, code)
end

--- An npz file's part: whole tensors, written by the first process.
local function write_npz(save, options)
  local list = {}
  for k, leaf in ipairs(save.leaves) do
    local value = arrays.all_gather_to_host(leaf.value)
    if options.cast and lib.floats[leaf.dtype] then value = ops.astype(value, options.cast) end
    list[k] = {leaf.path, value}
  end
  local ok, message, code = true, nil, nil
  if together.is_first() then ok, message, code = core.npz(save.files[1].path .. ".part", list) end
  return together.agree(ok, message, code)
end

--- Removes parts: those of a save that was ended, which each process looks for, as not all may see the same folder;
--- and those of one that has failed.
local function remove_parts(save)
  local paths = {}
  for _, file in ipairs(save.files) do
    paths[#paths + 1], paths[#paths + 2] = file.path .. ".part", file.path .. ".wide.part"
  end
  paths[#paths + 1] = save.folder and folder.inside(save.folder, folder.INDEX .. ".part")
  for _, path in ipairs(paths) do
    local kind = core.path_kind(path)
    if kind == "file" or kind == "link" then os.remove(path) end
  end
end

--- Gives the parts their names, and sees to it that the folder has them on the disk.
local function commit(save)
  local ok, message = true, nil
  if together.is_first() then ok, message = folder.commit(save.files, save.folder) end
  return together.agree(ok, message, not ok and "E_IO" or nil)
end

--- Writes, and puts in place. What has not come to that is removed, also when an error ends it.
local function write(save, options)
  local done = false
  local guard <close> = setmetatable({}, {__close = function()
    if not done and together.is_first() then remove_parts(save) end
  end})
  local ok, message, code
  if save.format == "npz" then
    ok, message, code = write_npz(save, options)
  else
    ok, message, code = write_parts(save)
    if ok then ok, message, code = narrow(save) end
  end
  if ok then ok, message, code = commit(save) end
  done = ok
  return ok, message, code
end

--- The tensors of a tree (a model, an optimizer, tables of tensors, of .npy one) as a file, by its name: .safetensors,
--- .npy, .npz, .gguf; "folder/": model.safetensors, or several of at most shard_bytes with an index. Names are paths as
--- ml.tree has them ("h.1.mlp.up.kernel"); a tensor that the tree holds twice is written once. All processes call it.
---@param file string
---@param tree table|Tensor
---@param options table? see the row
---@return true?, string? message, string? code
function M.save(file, tree, options)
  options = lib.options("save", options)
  local save, message, code = plan(file, tree, options)
  if not save then return nil, message, code end
  if save.folder and together.is_first() then
    local ok
    ok, message = core.make_folder(save.folder)
    if not ok then save = nil end
  end
  if save then remove_parts(save) end
  local ok
  ok, message, code = together.agree(save and true, message, "E_IO")
  if ok then ok, message, code = write(save, options) end
  if not ok then return nil, message, code end
  if message then folder.warn(file, "it is written; %s", message) end -- a folder that cannot be synced
  return true
end

return lib.export(M)
