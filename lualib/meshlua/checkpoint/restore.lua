-- restore.lua: a step's folder into trees of Params, on whatever mesh and processes: each reads its own ranges.
-- Params get what was read only when all of it is there and its hashes are right.
local core = require "meshlua.core"
local lib = require "meshlua.lib"
local manifest = require "meshlua.checkpoint.manifest"
local together = require "meshlua.sharding.together"
local tree = require "meshlua.tree"
local view = require "meshlua.checkpoint.view"

local M = {}

local MORE_READ = 0.25 -- of what is read anyhow: units that are only cut into are read whole for that much

-- ---- which tensor is which --------------------------------------------------------------------------

--- The tensors of a tree in the checkpoint, by name: {file, entry, dtype, shape}; nil: it has no such tree.
local function saved_tensors(m, key)
  local found
  for f, file in ipairs(m.files) do
    if file.tree == key then
      found = found or {}
      for i, row in ipairs(m.tensors[file.name]) do
        found[row[1]] = {file = f, entry = i, name = row[1], dtype = row[2], shape = row[3]}
      end
    end
  end
  return found
end

--- Pairs of Params and what the checkpoint has for them; differences go to `faults`.
local function match(m, key, root, options, pairs_of, faults)
  local saved, used = saved_tensors(m, key), {}
  local function fault(fmt, ...) faults[#faults + 1] = fmt:format(...) end
  if not saved then return fault("%s: the checkpoint has no such tree", key) end
  tree.visit(root, function(path, leaf)
    local name = path ~= "" and path or key
    local from = saved[name]
    used[name] = true
    if not core.is_box(leaf) then
      lib.raise("E_VALUE", "Manager:restore: %s.%s is a tensor; only Params can be written to", key, name)
    end
    if not from then
      if not options.partial then fault("%s.%s is not in the checkpoint", key, name) end
    elseif not lib.same_shape(from.shape, leaf.shape) or from.dtype ~= leaf.dtype and not options.cast then
      fault("%s.%s is %s, the checkpoint has %s", key, name, lib.type_text(leaf), lib.type_text(from))
    else
      pairs_of[#pairs_of + 1] = {box = leaf, from = from, index = #pairs_of}
    end
  end)
  for _, name in ipairs(lib.names(saved)) do
    if not used[name] and not options.partial then fault("%s.%s is in the checkpoint alone", key, name) end
  end
end

local function match_all(folder, m, trees, options)
  local list, faults = {}, {}
  for _, key in ipairs(lib.names(trees)) do match(m, key, trees[key], options, list, faults) end
  if #faults == 0 then return list end
  return nil, ("%s: it is of another model: %s"):format(folder, lib.some(faults, 10, "; ")), "E_VALUE"
end

-- ---- reading ----------------------------------------------------------------------------------------

--- The files with what is wanted, open; or nil, message, code.
local function open_files(folder, m, list)
  local files = {}
  for _, pair in ipairs(list) do
    local f = pair.from.file
    if not files[f] then
      local file, message, code = manifest.open(folder, m.files[f])
      if not file then return nil, message, code end
      files[f] = file
    end
  end
  return files
end

--- Reads what of each Param is held here.
local function read(files, list, options)
  for _, pair in ipairs(list) do
    local from, box = pair.from, pair.box
    local file = files[from.file]
    local number = file.number[from.name]
    if not number then return nil, ("%s: it has no tensor %s"):format(file.path, from.name), "E_IO" end
    local sharding = box.sharding.mesh and box.sharding or nil
    local piece = view.piece(view.whole(from.shape))
    local message, code
    pair.entry, piece.catalog, piece.entry = number, file.catalog, number
    pair.value, message, code = core.catalog_load(box.dtype, box.shape, sharding, {piece},
      {cast = options.cast})
    if not pair.value then return nil, ("%s: %s: %s"):format(file.path, from.name, message), code end
  end
  return true
end

-- ---- hashes -----------------------------------------------------------------------------------------

--- Does one of these shards have part of the unit?
local function cuts_into(shards, unit)
  local at, size = unit[3], unit[4]
  for _, shard in ipairs(shards) do
    local meets = true
    for d, range in ipairs(shard.index) do
      meets = meets and range[1] - 1 < at[d] + size[d] and range[2] > at[d]
    end
    if meets then return true end
  end
  return false
end

--- Checks what was read against the hashes of its units. Returns true and how many bytes were left unchecked;
--- or nil, message, code.
local function check(files, units, list, was_read)
  local cut = {}
  local function compare(pair, unit, hash)
    if hash == unit[5] then return true end
    return nil, ("%s: %s: its hash is not the manifest's: bytes have changed"):format(
      files[pair.from.file].path, pair.from.name), "E_IO"
  end
  for _, pair in ipairs(list) do
    local shards = pair.value:addressable_shards()
    for _, unit in ipairs(units[pair.from.file][pair.from.entry]) do
      local hash = pair.box.dtype == pair.from.dtype and core.hash_box(pair.value, unit[3], unit[4])
      if hash then
        local ok, message, code = compare(pair, unit, hash)
        if not ok then return nil, message, code end
      elseif cuts_into(shards, unit) then
        cut[#cut + 1] = {pair, unit, lib.element_bytes[pair.from.dtype] * lib.product(unit[4])}
      end
    end
  end
  local room, left = MORE_READ * was_read, 0
  for _, one in ipairs(cut) do
    local pair, unit, bytes = one[1], one[2], one[3]
    room = room - bytes
    if room < 0 then
      left = left + bytes
    else
      local catalog = files[pair.from.file].catalog
      local hash, message, code = core.hash_unit(catalog, pair.entry, unit[3], unit[4])
      if not hash then return nil, message, code end
      local ok
      ok, message, code = compare(pair, unit, hash)
      if not ok then return nil, message, code end
    end
  end
  return true, left
end

--- Reads one step; the values wait in the list. nil, message, code where it is broken.
local function load_step(folder, step, trees, options)
  local m, message, code = manifest.read(folder, step)
  if not m then return nil, message, code end
  local units, list, files, ok, text
  text, message, code = manifest.text(folder, m, manifest.STATE)
  if not text then return nil, message, code end
  local state = manifest.unseal(text).state
  if options.check then
    ok, message, code = options.check(state)
    if not ok then return nil, message, code end
  end
  list, message, code = match_all(folder, m, trees, options)
  if not list then return nil, message, code end
  units, message, code = manifest.units(folder, m)
  if not units then return nil, message, code end
  files, message, code = open_files(folder, m, list)
  if not files then return nil, message, code end
  local before = core.catalog_bytes()
  ok, message, code = read(files, list, options)
  local left
  if ok then
    ok, left, code = check(files, units, list, core.catalog_bytes() - before)
    if not ok then message = left end
  end
  for _, file in pairs(files) do file.catalog:close() end
  if not ok then return nil, message, code end
  return {list = list, step = m.step, metrics = m.metrics, state = state, left = left}
end

-- ---- which step -------------------------------------------------------------------------------------

--- Gives Params what was read; all processes could.
local function take(folder, found, say)
  for _, pair in ipairs(found.list) do pair.box:set(pair.value) end
  if found.left > 0 and core.process_index() == 0 then
    say(("%s: %d bytes lie in units that are cut by this layout and were not checked; `meshlua check` reads "
      .. "them all"):format(folder, found.left))
  end
  return {step = found.step, state = found.state, metrics = found.metrics}
end

-- What one process cannot read none takes; another's model is no broken file.
local function worst_of(found, code) return together.largest(found and 0 or code == "E_IO" and 1 or 2) end

--- A step's folder into the trees.
function M.one(folder, trees, options, say)
  local found, message, code = load_step(folder, nil, trees, options)
  if worst_of(found, code) == 0 then return take(folder, found, say) end
  return nil, message or folder .. ": another process cannot read it", code or "E_IO"
end

--- The newest step at or before options.step that all processes can read, into the trees.
---@param folder string
---@param steps integer[] ascending
---@param trees table<string, table>
---@param options table see Manager:restore
---@param say fun(text: string)
---@return table? found, string? message, string? code
function M.newest(folder, steps, trees, options, say)
  local wanted = options.step
  if #steps == 0 then return nil, folder .. ": there is no checkpoint", "E_IO" end
  if wanted and not lib.position(steps, wanted) then
    return nil, ("%s: there is no checkpoint of step %s; there are %s"):format(folder, lib.text(wanted),
      table.concat(steps, ", ")), "E_IO"
  end
  for i = #steps, 1, -1 do
    local step = steps[i]
    if not wanted or step <= wanted then
      local found, message, code = load_step(folder .. "/" .. manifest.folder(step), step, trees, options)
      local worst = worst_of(found, code)
      if worst == 0 then return take(folder, found, say) end
      message = message or ("%s: step %d cannot be read by another process"):format(folder, step)
      if worst == 2 or not options.pass_over then return nil, message, code or "E_IO" end
      if core.process_index() == 0 then say(message .. "; the checkpoint before it is taken") end
    end
  end
  return nil, folder .. ": no checkpoint there can be read", "E_IO"
end

return M
