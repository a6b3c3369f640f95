-- params.lua: what an optimizer sees of a model: its Params of kind "param", each once, in tree order; the
-- gradients that belong to them; and boxes of state that lie as they do.
local core = require "meshlua.core"
local lib = require "meshlua.lib"
local masks = require "meshlua.nn.masks"
local param = require "meshlua.nn.param"
local tree = require "meshlua.tree"

local op, raise = core.op, lib.raise

local M = {}

---@class OptimEntry
---@field box Param
---@field path string "h.3.mlp.up.kernel"
---@field keys (string|integer)[] the keys on the way
---@field lr number? its learning rate is times this
---@field decay number? and its weight decay times this


--- The Params of kind "param" in a model: a list in tree order, and all paths to them (a Param that is held
--- twice is one entry with two paths): path -> true, or false where a plain tensor stands.
---@param model table
---@return OptimEntry[] entries, table<string, boolean> paths
function M.of(model)
  if type(model) ~= "table" then
    raise("E_VALUE", "optim: expected a model (a table with Params), got %s", lib.kind(model))
  end
  tree.leaves(model) -- raises for a cyclic model
  local entries, paths, seen, keys = {}, {}, {}, {}
  local function go(node, path)
    if core.is_box(node) then
      if core.box_meta(node).kind ~= "param" then return end
      paths[path] = true
      if seen[node] then return end
      seen[node] = true
      local meta = core.box_meta(node)
      entries[#entries + 1] = {box = node, path = path, keys = table.move(keys, 1, #keys, 1, {}),
        lr = meta.lr_factor, decay = meta.decay_factor}
    elseif core.is_tensor(node) then
      paths[path] = false
    elseif type(node) == "table" then
      for _, key in ipairs(core.tree_keys(node)) do
        keys[#keys + 1] = key
        go(node[key], lib.below(path, key))
        keys[#keys] = nil
      end
    end
  end
  go(model, "")
  if #entries == 0 then
    raise("E_VALUE", "optim: the model has no Param of kind \"param\"; layers have such")
  end
  return entries, paths
end

--- The gradients of the entries, in their order. Raises where the tree is not that of the model.
---@param entries OptimEntry[]
---@param paths table<string, boolean>
---@param grads table
---@return Tensor[]
function M.gradients(entries, paths, grads)
  if type(grads) ~= "table" then
    raise("E_VALUE", "update: the gradients are %s, not a tree like the model: opt:update(model, grads)",
      lib.kind(grads))
  end
  tree.leaves(grads) -- raises for a cyclic tree
  local function check_known(node, path)
    if tree.is_leaf(node) then
      if paths[path] then return end
      if paths[path] == false then
        raise("E_VALUE", "update: %s is a tensor, which has taken the place of a Param; param:set(t) puts "
          .. "another tensor into one", path)
      end
      raise("E_VALUE", "update: gradients of another tree: the model has no parameter at %s", path)
    elseif type(node) == "table" then
      for _, key in ipairs(core.tree_keys(node)) do check_known(node[key], lib.below(path, key)) end
    end
  end
  check_known(grads, "")
  local list = {}
  for i, entry in ipairs(entries) do
    local g = masks.at(grads, entry.keys)
    if not lib.is_tensor(g) then
      raise("E_VALUE", "update: gradients of another tree: there is none for %s", entry.path)
    end
    if not lib.same_shape(g.shape, entry.box.shape) then
      raise("E_SHAPE", "update: the gradient at %s is %s, its Param %s", entry.path, core.typeof(g),
        core.typeof(entry.box))
    end
    list[i] = g
  end
  return list
end

-- ---- state ------------------------------------------------------------------------------------------

--- The mesh on which the Params lie, or nil.
local function mesh_of(entries)
  for _, entry in ipairs(entries) do
    local sharding = param.sharding(entry.box)
    if sharding then return sharding.mesh end
  end
end

--- Tensors for a list of {dtype =, dims =, sharding =, copy = Param?}, zeros where there is no copy, each
--- born in its sharding.
local function tensors(list, mesh)
  local function make(t)
    local x = t.copy and op.astype(t.copy, {dtype = t.dtype})
      or op.full {dtype = t.dtype, dims = t.dims, value = t.value or 0}
    return t.sharding and op.constrain(x, {layout = t.sharding}) or op.identity(x)
  end
  local function all()
    local made = {}
    for i, t in ipairs(list) do made[i] = make(t) end
    return table.unpack(made)
  end
  if core.is_tracing() or #list == 0 then return {all()} end
  return {core.run_traced(all, mesh)}
end

--- A tree like the model with a box for each entry: in the Param's shape, in its dtype unless another is
--- given, and in its opt_sharding or sharding.
---@param model table
---@param entries OptimEntry[]
---@param options {dtype: (string|fun(entry: OptimEntry): string)?, value: number?, copy: boolean?, dims: (fun(entry: OptimEntry): integer[])?}
--- value: of all elements; default 0. copy: the Param's own. dims: those of the Param that the box has; default all
---@return table?
function M.state_like(model, entries, options)
  local list, mesh = {}, mesh_of(entries)
  for i, entry in ipairs(entries) do
    local box, meta, dtype = entry.box, core.box_meta(entry.box), options.dtype
    if type(dtype) == "function" then dtype = dtype(entry) end
    local t = {dtype = dtype or box.dtype, dims = box.shape, value = options.value,
      copy = options.copy and box, axes = meta.opt_axes or meta.axes,
      sharding = meta.opt_sharding or param.sharding(box)}
    if options.dims then
      local dims, shape = options.dims(entry), {}
      for k, d in ipairs(dims) do shape[k] = box.shape[d] end
      t.dims, t.axes = shape, param.pick_axes(t.axes, dims)
      t.sharding = t.sharding and core.NamedSharding(t.sharding.mesh, param.pick_axes(t.sharding.spec, dims))
    end
    list[i] = t
  end
  local boxes = {}
  for i, x in ipairs(tensors(list, mesh)) do
    local box = param.Param(x, {kind = "opt_state", axes = list[i].axes})
    if core.is_traced(x) then param.set_sharding(box, list[i].sharding) end
    param.note_birth(box, {of = entries[i].box})
    boxes[entries[i].box] = box
  end
  return tree.only(model, boxes)
end

--- Zeros, where the optimizer's state for each entry belongs.
---@param model table
---@param entries OptimEntry[]
---@param dtype string? default: the Param's
function M.zeros_like(model, entries, dtype) return M.state_like(model, entries, {dtype = dtype}) end

--- A box with a whole number, 0, on the mesh of the Params.
---@param entries OptimEntry[]
---@return Param int32 scalar
function M.counter(entries)
  local mesh = mesh_of(entries)
  local sharding = mesh and core.NamedSharding(mesh, core.P())
  local x = tensors({{dtype = "int32", dims = {}, sharding = sharding}}, mesh)[1]
  local box = param.Param(x, {kind = "opt_state"})
  if core.is_traced(x) then param.set_sharding(box, sharding) end
  return box
end

return M
