-- state.lua: modules as data. A state is a tree of plain tables with the tensors of a module at its places;
-- a structure is all the rest: classes, static values, and a slot with kind and metadata for each Param.
local core = require "meshlua.core"
local lib = require "meshlua.lib"
local module = require "meshlua.nn.module"
local ops = require "meshlua.ops"
local rules_of = require "meshlua.sharding.rules"
local tree = require "meshlua.tree"

local raise = lib.raise

local M = {}


-- ---- filters ----------------------------------------------------------------------------------------

local DEEPEST = 20 -- lists of filters

--- A filter as fun(path, leaf): boolean: nil or true (all), a kind ("param"; plain tensors have none), a
--- function, or a list of filters of which one must hold.
local function predicate(who, filter, depth)
  if filter == nil or filter == true then return function() return true end end
  if type(filter) == "function" then return filter end
  if type(filter) == "string" then
    return function(_, leaf) return core.is_box(leaf) and core.box_meta(leaf).kind == filter end
  end
  if type(filter) ~= "table" then
    raise("E_VALUE", "%s: a filter is a kind, a function (path, leaf), a list of these or true; not %s", who,
      filter)
  end
  local any = {}
  depth = (depth or 0) + 1
  if depth > DEEPEST then
    raise("E_VALUE", "%s: the filters are nested deeper than %d, or contain themselves", who, DEEPEST)
  end
  for i, one in ipairs(filter) do any[i] = predicate(who, one, depth) end
  return function(path, leaf)
    for _, holds in ipairs(any) do
      if holds(path, leaf) then return true end
    end
    return false
  end
end

local function check_module(who, x)
  if type(x) ~= "table" then raise("E_VALUE", "%s: expected a module, got %s", who, lib.kind(x)) end
  return x
end

--- The tensors of the leaves for which holds(path, leaf), one handle for each leaf.
local function tensors(who, model, holds)
  local of = {}
  tree.visit(model, function(path, leaf)
    if not holds(path, leaf) then return end
    local value = leaf
    if core.is_box(leaf) then value = leaf:get() end
    if value == nil then raise("E_VALUE", "%s: the Param at %s is empty", who, path) end
    of[leaf] = value
  end)
  return tree.only(model, of) or {}
end

--- The tensors of a module as a tree of plain tables: those of all its leaves, or of some.
---@param model table
---@param filter nil|true|string|fun(path: string, leaf: Param|Tensor): boolean|table default all; a kind
--- ("param", "batch_stat", "rng", "opt_state"), a function, or a list of these
---@return table state
function M.state(model, filter)
  return tensors("state", check_module("state", model), predicate("state", filter))
end

-- ---- split and merge --------------------------------------------------------------------------------

-- What stands for a leaf in a structure: {number =, meta =}; meta nil: a plain tensor.
local Slot = {__name = "Slot"}

--- A copy of the tables of a tree, with slots for its leaves.
local function outline(model)
  local slots, count = {}, 0
  local function go(node)
    if tree.is_leaf(node) then
      if not slots[node] then
        count = count + 1
        local meta = core.is_box(node) and lib.copy(core.box_meta(node)) or nil
        slots[node] = setmetatable({number = count, meta = meta}, Slot)
      end
      return slots[node]
    end
    if type(node) ~= "table" then return node end
    local copy = {}
    for _, key in ipairs(core.tree_keys(node)) do copy[key] = go(node[key]) end
    return setmetatable(copy, getmetatable(node))
  end
  return go(model)
end

local Structure = {__name = "Structure"}
function Structure.__tostring(structure) return "Structure(" .. structure.name .. ")" end

--- Takes a module apart: its structure, and its state as a tree of plain tables with tensors. With filters
--- there is a state for each of them (a leaf goes to the first that holds); the last may be true, for the
--- rest. A tensor that the module holds twice is one tensor in the state, too.
---
--- With a tensor: cuts it, see Tensor:split.
---@param model table
---@param ... string|function|table|true filters, see ml.state
---@return table structure, table state, ...
function M.split(model, ...)
  if lib.is_tensor(model) then return ops.split(model, ...) end
  check_module("split", model)
  local n = math.max(1, select("#", ...))
  local holds, taken, states = {}, {}, {}
  for i = 1, n do holds[i] = predicate("split", (select(i, ...))) end
  for i = 1, n do
    states[i] = tensors("split", model, function(path, leaf)
      if taken[leaf] or not holds[i](path, leaf) then return false end
      taken[leaf] = true
      return true
    end)
  end
  tree.visit(model, function(path, leaf)
    if not taken[leaf] then
      raise("E_VALUE", "split: no filter takes %s (%s); add true behind the filters for the rest", path,
        core.is_box(leaf) and "kind " .. leaf.kind or "a tensor")
    end
  end)
  local meta = getmetatable(model)
  local name = module.is_module(model) and meta.__name or "table"
  return setmetatable({name = name, outline = outline(model)}, Structure), table.unpack(states, 1, n)
end

--- What states have at a place: the one that has it.
local function below(states, key)
  local found = {}
  for _, state in ipairs(states) do
    if type(state) == "table" and state[key] ~= nil then found[#found + 1] = state[key] end
  end
  return found
end

--- The module that split took apart, with these tensors: new Params of the old kinds and metadata.
---@param structure table
---@param ... table states, which together have a tensor for each place
---@return table model
function M.merge(structure, ...)
  if getmetatable(structure) ~= Structure then
    raise("E_VALUE", "merge: the first argument must be a structure, from split")
  end
  local made = {}
  local function place(slot, values, path)
    if made[slot.number] == nil then
      local value = values[1]
      local own = core.is_box(value)
      if own then value = value:get() end
      if not core.is_tensor(value) then
        raise("E_VALUE", "merge: no state has a tensor at %s", path)
      end
      made[slot.number] = slot.meta and core.box_new(value, lib.copy(slot.meta), own) or value
    end
    return made[slot.number]
  end
  local function go(node, states, path)
    if getmetatable(node) == Slot then return place(node, states, path) end
    if type(node) ~= "table" then return node end
    local copy = {}
    for key, child in pairs(node) do copy[key] = go(child, below(states, key), lib.below(path, key)) end
    return setmetatable(copy, getmetatable(node))
  end
  return go(structure.outline, {...}, "")
end

--- Raises unless the value may take the place of what the Param holds.
local function check_like(box, value, path)
  if box:get() == nil or lib.same_type(box, value) then return end
  raise(box.dtype == value.dtype and "E_SHAPE" or "E_DTYPE", "update: %s is %s, the state has %s", path,
    core.typeof(box), core.typeof(value))
end

--- Writes the tensors of a state into a module, which may have more; returns the module. Raises where the
--- state has a place that the module lacks, or another shape or dtype.
---@param model table
---@param state table
---@return table model
function M.update(model, state)
  check_module("update", model)
  local above = {}
  local function go(node, from, path)
    if type(from) ~= "table" then return end
    if above[from] then raise("E_VALUE", "update: the state contains itself at %s", path) end
    lib.enter("update", from, above)
    for _, key in ipairs(core.tree_keys(from)) do
      local to, value, at = node[key], from[key], lib.below(path, key)
      if lib.is_tensor(value) then
        if core.is_box(to) then
          check_like(to, value, at)
          to:set(value)
        elseif core.is_tensor(to) then
          rawset(node, key, core.is_box(value) and value:get() or value)
        else
          raise("E_VALUE", "update: the module has no tensor at %s", at)
        end
      elseif type(value) == "table" then
        if type(to) ~= "table" then raise("E_VALUE", "update: the module has nothing at %s", at) end
        go(to, value, at)
      end
    end
    lib.leave(from, above)
  end
  go(model, state, "")
  return model
end

-- ---- how it lies ------------------------------------------------------------------------------------

--- The sharding of a leaf (or of a type from ml.abstract) that has been placed, or nil.
local function placed(leaf)
  local sharding = not core.is_traced(leaf) and leaf.sharding
  return sharding and sharding.mesh and sharding or nil
end

--- The P of a leaf: that of its sharding; before it is placed what its axes and the rules in context say; else
--- P().
local function spec_of(leaf, path)
  local sharding = placed(leaf)
  if sharding then return sharding.spec end
  if core.is_box(leaf) then return rules_of.param_spec(leaf, path) or core.P() end
  local axes = not core.is_tensor(leaf) and leaf.axes
  if not axes then return core.P() end
  return core.is_spec(axes) and axes or rules_of.spec_of(axes, path, leaf.ndim)
end

--- A tree like the model (or what ml.abstract gives for one) with the P of each leaf.
---@param model table
---@return table
function M.get_partition_spec(model)
  return tree.map_with_path(function(path, leaf) return spec_of(leaf, path) end, model)
end

--- A tree like the model with the NamedSharding of each leaf.
---@param model table
---@param mesh Mesh? for leaves that are not placed yet; default that in context
---@return table
function M.get_named_sharding(model, mesh)
  mesh = mesh or core.mesh_current()
  return tree.map_with_path(function(path, leaf)
    local sharding = placed(leaf)
    if sharding then return sharding end
    if not mesh then
      raise("E_MESH", "get_named_sharding: %s is on no mesh, and none is given or in context", path)
    end
    return core.NamedSharding(mesh, spec_of(leaf, path))
  end, model)
end

--- Bytes of a leaf as a whole, and on each device.
local function bytes_of(leaf)
  local n, sharding = lib.element_bytes[leaf.dtype], leaf.sharding
  if not sharding or not sharding.mesh then return leaf.size * n, leaf.size * n end
  return leaf.size * n, lib.product(sharding:shard_shape(leaf.shape)) * n
end

--- A table of the leaves of a model: path, type, kind, bytes, bytes on each device; and the sums.
---@param model table
---@return string
function M.tabulate(model)
  local rows, whole, of_device = {{"path", "type", "kind", "bytes", "per device"}}, 0, 0
  tree.visit(check_module("tabulate", model), function(path, leaf)
    local all, own = bytes_of(leaf)
    whole, of_device = whole + all, of_device + own
    local kind = not core.is_tensor(leaf) and leaf.kind or ""
    local text = core.is_box(leaf) and core.typeof(leaf:get()) or core.is_tensor(leaf) and core.typeof(leaf)
      or lib.text(leaf)
    rows[#rows + 1] = {path, text, kind, tostring(all), tostring(own)}
  end)
  rows[#rows + 1] = {"sum", "", "", tostring(whole), tostring(of_device)}
  return table.concat(lib.aligned(rows, {[4] = true, [5] = true}), "\n")
end

return lib.export(M)
