-- load.lua: ml.load: tensors from files, as a table, or into a tree whose tensors they become. What is wrong with a file
-- is a result (nil, message, code); what is wrong with a call raises, and so does a tree that is not what the file
-- holds. A tree is changed once all of the file has been read, or not at all.
local core = require "meshlua.core"
local folder = require "meshlua.checkpoint.folder"
local lib = require "meshlua.lib"
local map_of = require "meshlua.checkpoint.map"
local rules_of = require "meshlua.sharding.rules"
local together = require "meshlua.sharding.together"
local trace = require "meshlua.transform.trace"
local tree = require "meshlua.tree"

local raise = lib.raise

local M = {}

-- ---- the file ---------------------------------------------------------------------------------------

--- All entries of the files, with the catalog and the number in it.
local function entries_of(files)
  local entries = {}
  for _, file in ipairs(files) do
    for k, entry in ipairs(file.entries) do
      entry.catalog, entry.number = file.catalog, k
      entries[#entries + 1] = entry
    end
  end
  return entries
end

local function close(files)
  for _, file in ipairs(files) do file.catalog:close() end
end

-- ---- what is wanted ---------------------------------------------------------------------------------

--- fun(path): is it among what `partial` asks for?
local function selection(partial)
  if partial == nil then return function() return true end end
  local patterns = type(partial) == "string" and {partial} or lib.check_list("load", "partial", partial)
  local hits = {}
  for _, pattern in ipairs(patterns) do
    if type(pattern) ~= "string" or not pcall(string.find, "", pattern) then
      raise("E_VALUE", "load: partial has %s; it takes Lua patterns of paths",
        type(pattern) == "string" and "'" .. pattern .. "'" or lib.kind(pattern))
    end
  end
  return function(path)
    local any = false
    for _, pattern in ipairs(patterns) do
      if path:find(pattern) then any, hits[pattern] = true, true end
    end
    return any
  end, function()
    for _, pattern in ipairs(patterns) do
      if not hits[pattern] then return pattern end
    end
  end
end

--- The leaves of a tree as targets; raises for one that nothing can be read into.
local function targets_of(into)
  if core.is_tensor(into) then
    raise("E_VALUE", "load: into is a Tensor, which does not change; give a Param, or a table that holds it")
  end
  if not lib.is_tensor(into) and type(into) ~= "table" then
    raise("E_VALUE", "load: into must be a model or a tree of tensors, not %s", lib.kind(into))
  end
  local leaves, paths = tree.leaves(into)
  local targets = {}
  for k, leaf in ipairs(leaves) do
    if core.is_traced(leaf) then raise("E_TRACED", "load: the tensor at %s is traced", paths[k]) end
    if core.is_box(leaf) and leaf:get() == nil then
      raise("E_VALUE", "load: the Param at %s is empty: it has no shape yet", paths[k])
    end
    local sharding = leaf.sharding
    targets[k] = {path = paths[k], leaf = leaf, shape = {table.unpack(leaf.shape)}, dtype = leaf.dtype,
      sharding = sharding and sharding.mesh and sharding or nil}
  end
  return targets
end

--- The sharding that options give a tensor of a file.
local function sharding_for(options, target)
  local sharding = options.sharding
  if type(sharding) == "function" then sharding = sharding(target.path, target.shape) end
  if type(sharding) == "table" and not core.is_spec(sharding) and not core.is_sharding(sharding) then
    sharding = sharding[target.path]
  end
  if sharding == nil and options.rules then
    local like = core.shape_dtype_struct(target.shape, target.dtype)
    sharding = rules_of.path_spec(like, target.path)
  end
  local mesh = options.mesh or core.mesh_current()
  if sharding == nil and mesh and (options.mesh or options.rules) then sharding = core.P() end
  if core.is_spec(sharding) then
    sharding = mesh and core.NamedSharding(mesh, sharding) or core.bind_spec(sharding)
  end
  if sharding == nil then return nil end
  if not core.is_sharding(sharding) then
    raise("E_SPEC", "load: the sharding of %s is %s; expected a NamedSharding or a P", target.path,
      lib.kind(sharding))
  end
  if sharding.mesh then sharding:check(target.shape, target.path) end
  return sharding.mesh and sharding or nil
end

--- Gives targets that come from the file their dtype and sharding.
local function settle(targets, reading, entries, options)
  rules_of.within(options.mesh or core.mesh_current(), options.rules or core.rules_current(), function()
    for k, target in ipairs(targets) do
      local first = reading.pieces[k][1]
      local dtype = first and entries[first.entry].dtype
      target.dtype = type(options.cast) == "string" and lib.floats[dtype] and options.cast or dtype
      if target.dtype then target.sharding = sharding_for(options, target) end
    end
  end)
end

-- ---- what does not fit ------------------------------------------------------------------------------

--- What is missing on either side, as lines.
local function differences(reading, names)
  local lines = {}
  for _, path in ipairs(reading.unmatched) do
    lines[#lines + 1] = path .. ": no rule of the map gives it"
  end
  for _, one in ipairs(reading.missing) do
    local as = one.name ~= one.path and lib.format(" (in the file '%s')", one.name) or ""
    lines[#lines + 1] = one.path .. as .. " is not in the file"
      .. map_of.near(lines, one.name, reading.unexpected)
  end
  for _, name in ipairs(reading.unexpected) do
    lines[#lines + 1] = lib.format("'%s' is in the file, and nobody takes it%s", name,
      map_of.near(lines, name, names))
  end
  return lines
end

--- Entries whose dtype is not that of their target, as lines.
local function dtype_lines(targets, reading, entries, cast)
  local lines, seen = {}, {}
  for k, target in ipairs(targets) do
    for _, piece in ipairs(reading.pieces[k]) do
      local entry = entries[piece.entry]
      if not entry.dtype then
        if not seen[entry] then
          lines[#lines + 1] = lib.format("'%s' is %s, which is not read here", entry.name, entry.encoding)
        end
        seen[entry] = true
      elseif entry.dtype ~= target.dtype and not cast then
        lines[#lines + 1] = lib.format("'%s' is %s in the file, %s is %s; cast = true converts it",
          entry.name, entry.dtype, target.path, target.dtype)
        break
      end
    end
  end
  return lines
end

local LOOKED_AT = 1 << 18 -- elements of tied tensors that are compared

--- Tensors of the file that are not the same though the model has one for both, as lines. Their first rows tell: of a
--- model whose two are not tied all differ.
local function tied_lines(reading, entries)
  local lines = {}
  for _, pair in ipairs(reading.tied) do
    local a, b, hashes = entries[pair[1]], entries[pair[2]], {}
    local size, at, n = {table.unpack(a.shape)}, {}, 1
    for d = 1, #size do at[d] = 0 end
    for d = #size, 1, -1 do
      if d == 1 then size[1] = math.min(size[1], math.max(1, LOOKED_AT // math.max(1, n))) end
      n = n * size[d]
    end
    local alike = lib.same_shape(a.shape, b.shape) and a.dtype == b.dtype
    for k, entry in ipairs(alike and {a, b} or {}) do
      hashes[k] = core.hash_unit(entry.catalog, entry.number, at, size)
    end
    if not hashes[1] or hashes[1] ~= hashes[2] then
      lines[#lines + 1] = lib.format("'%s' and '%s' differ in the file, and the model has one for both",
        a.name, b.name)
    end
  end
  return lines
end

--- Raises unless the file has what is wanted, and nothing else.
local function check(file, targets, reading, entries, options, into)
  local lines = {table.unpack(reading.problems)}
  local code = #lines > 0 and "E_SHAPE" or "E_VALUE"
  if options.strict ~= false then
    local names = {}
    for _, target in ipairs(targets) do names[#names + 1] = target.path end
    if options.partial then reading.unexpected = {} end
    for _, line in ipairs(differences(reading, names)) do lines[#lines + 1] = line end
    local untied = options.partial and {} or tied_lines(reading, entries)
    table.move(untied, 1, #untied, #lines + 1, lines)
  end
  local of_dtype = dtype_lines(targets, reading, entries, options.cast)
  if #lines == 0 and #of_dtype > 0 then code = "E_DTYPE" end
  for _, line in ipairs(of_dtype) do lines[#lines + 1] = line end
  if #lines == 0 then return end
  raise(code, "load: %s and %s differ in %s:%s", file, into and "the model" or "what is asked of it",
    lib.count(#lines, "place"), map_of.listed(lines))
end

-- ---- reading ----------------------------------------------------------------------------------------

--- The tensor of a target, or nil, message, code.
local function tensor_of(target, pieces, entries, options)
  local list = {}
  for k, piece in ipairs(pieces) do
    local entry = entries[piece.entry]
    list[k] = {catalog = entry.catalog, entry = entry.number, at = piece.at, size = piece.size,
      offset = piece.offset, factors = piece.factors}
  end
  return core.catalog_load(target.dtype, target.shape, target.sharding, list, {cast = options.cast and true})
end

local function spans_processes(targets)
  for _, target in ipairs(targets) do
    if target.sharding and target.sharding.mesh then return true end
  end
  return false
end

--- The tensors of all targets that the file has whole: in order, false for others.
local function read_all(targets, reading, entries, options)
  local values, ok, message, code = {}, true, nil, nil
  for k, target in ipairs(targets) do
    values[k] = false
    if ok and reading.complete[k] then
      local value
      value, message, code = tensor_of(target, reading.pieces[k], entries, options)
      values[k], ok = value or false, value ~= nil
      if not ok and target.path ~= "" and not message:find(target.path, 1, true) then
        message = message .. " (" .. target.path .. ")"
      end
    end
  end
  if spans_processes(targets) then ok, message, code = together.agree(ok, message, code) end
  if not ok then return nil, message, code end
  return values
end

--- A tree of nested tables from paths: "h.1.w" is tree.h[1].w. Raises where a path goes on behind a tensor.
local function nested(targets, values)
  local root, is_tensor = {}, {}
  for k, target in ipairs(targets) do
    local node, words = root, {}
    for word in (target.path .. "."):gmatch "([^.]*)%." do
      words[#words + 1] = word:find "^[1-9]%d*$" and #word < 16 and math.tointeger(word) or word
    end
    for i = 1, #words - 1 do
      node[words[i]] = node[words[i]] or {}
      node = node[words[i]]
      if is_tensor[node] then
        raise("E_VALUE", "load: '%s' goes on behind a tensor; leave out tree = true", target.path)
      end
    end
    local last = words[#words]
    if node[last] ~= nil then
      raise("E_VALUE", "load: '%s' is a tensor and a table of others; leave out tree = true", target.path)
    end
    if values[k] then node[last], is_tensor[values[k]] = values[k], true end
  end
  return root
end

--- What has no name, the tensor of an .npy file and a Param that is not in a table, is the one that is there.
local function name_single(file, entries, targets, format)
  local lone = #targets == 1 and targets[1].path == ""
  if not lone and format ~= "npy" then return entries end
  if #entries ~= 1 or #targets ~= 1 then
    raise("E_VALUE", "load: %s holds %s, and into %d: names tell which is which", file,
      lib.count(#entries, "tensor"), #targets)
  end
  if lone then targets[1].path = "tensor" end
  return {setmetatable({name = targets[1].path}, {__index = entries[1]})}
end

-- ---- load -------------------------------------------------------------------------------------------

local function load_into(file, files, entries, options)
  local into, targets = options.into, {}
  local holds, unused = selection(options.partial)
  for _, target in ipairs(targets_of(into)) do
    if holds(target.path) then targets[#targets + 1] = target end
  end
  local pattern = unused and unused()
  if pattern then raise("E_KEY", "load: no path of the model matches '%s' of partial", pattern) end
  entries = name_single(file, entries, targets, files[1].catalog.format)
  local map = map_of.compile("load", options.map, options.numbers)
  local reading = map:read(entries, targets)
  check(file, targets, reading, entries, options, true)
  local values, message, code = read_all(targets, reading, entries, options)
  if not values then return nil, message, code end
  local with = {}
  for k, target in ipairs(targets) do
    if values[k] then
      with[target.leaf] = values[k]
      if core.is_box(target.leaf) then target.leaf:set(values[k]) end
    end
  end
  trace.fill(into, with)
  local missing = {}
  for _, one in ipairs(reading.missing) do missing[#missing + 1] = one.path end
  for _, path in ipairs(reading.unmatched) do missing[#missing + 1] = path end
  return into, {missing = missing, unexpected = reading.unexpected, metadata = files[1].catalog:metadata()}
end

local function load_table(file, files, entries, options)
  local map = map_of.compile("load", options.map, options.numbers)
  local holds, unused = selection(options.partial)
  local targets = {}
  local format = files[1].catalog.format
  if format == "npy" then entries = name_single(file, entries, {{path = ""}}, format) end
  local found, problems = map:targets(entries)
  for _, target in ipairs(found) do
    if holds(target.path) then targets[#targets + 1] = target end
  end
  local pattern = unused and unused()
  if pattern then raise("E_KEY", "load: no name in %s matches '%s' of partial", file, pattern) end
  local reading = map:read(entries, targets)
  for k, line in ipairs(problems) do table.insert(reading.problems, k, line) end
  settle(targets, reading, entries, options)
  check(file, targets, reading, entries, options, false)
  local values, message, code = read_all(targets, reading, entries, options)
  if not values then return nil, message, code end
  local metadata = files[1].catalog:metadata()
  if format == "npy" then return values[1], metadata end
  if options.tree then return nested(targets, values), metadata end
  local tensors = {}
  for k, target in ipairs(targets) do tensors[target.path] = values[k] or nil end
  return tensors, metadata
end

--- Raises for options that say nothing together.
local function check_options(options)
  local into = options.into ~= nil
  for _, name in ipairs {"sharding", "mesh", "rules", "tree"} do
    if into and options[name] ~= nil then
      raise("E_VALUE", "load: '%s' is for tensors that come as a table; with into they take their places and "
        .. "lie as those that were there", name)
    end
  end
  if into and type(options.cast) == "string" then
    raise("E_VALUE", "load: with into tensors get the dtypes that are there: cast = true")
  end
  if not into and options.cast == true then
    raise("E_VALUE", "load: cast is a dtype where tensors come as a table: cast = \"float32\"")
  end
  if options.numbers and not options.map then
    raise("E_VALUE", "load: numbers are for a map; none is given")
  end
  if core.is_tracing() then
    raise("E_TRACED", "load: inside a traced function nothing has data yet; load outside and pass the result")
  end
end

--- The tensors of a file: .safetensors, .npy, .npz, .gguf, or a folder or index of Hugging Face. Without `into` a table
--- from names to tensors (of .npy the tensor) and the file's metadata; with it the tree, whose Params now hold what the
--- file has, each device having read its part alone, and {missing, unexpected, metadata}.
---@param file string
---@param options table? see the row
---@return table|Tensor|nil, table|string, string?
function M.load(file, options)
  options = lib.options("load", options)
  if type(file) ~= "string" then raise("E_VALUE", "load: the file's name is %s", lib.kind(file)) end
  check_options(options)
  local files, message, code = folder.open(file)
  if options.into ~= nil and core.process_count() > 1 then
    local ok
    ok, message, code = together.agree(files and true, message, code)
    if not ok then return nil, message, code end
  end
  if not files then return nil, message, code end
  local entries = entries_of(files)
  local results = table.pack((options.into ~= nil and load_into or load_table)(file, files, entries, options))
  close(files)
  return table.unpack(results, 1, results.n)
end

return lib.export(M)
