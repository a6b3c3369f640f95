-- params.lua: what an optimizer sees of a model: its Params of kind "param", each once, in tree order; the
-- gradients and masks that belong to them; and boxes of state that lie as they do.
local core = require "meshlua.core"
local lib = require "meshlua.lib"
local param = require "meshlua.nn.param"
local tree = require "meshlua.tree"

local op, raise = core.op, lib.raise

local M = {}

---@class OptimEntry
---@field box Param
---@field path string "h.3.mlp.up.kernel"
---@field keys (string|integer)[] the keys on the way


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
      entries[#entries + 1] = {box = node, path = path, keys = table.move(keys, 1, #keys, 1, {})}
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

--- What stands in `tree` where the keys lead, or the leaf at which the way ends before.
local function at(node, keys)
  for _, key in ipairs(keys) do
    if type(node) ~= "table" then return node end
    node = node[key]
  end
  return node
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
    local g = at(grads, entry.keys)
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

--- Is it a matrix: a kernel or embedding, or (where the Param has no role) of rank 2 and more? A bias of heads
--- has rank 2 and is none.
local function is_matrix(entry)
  local role = core.box_meta(entry.box).role
  if role == nil then return entry.box.ndim >= 2 end
  return role == "kernel" or role == "embedding"
end

--- Which entries have a path that one of the patterns is found in. Each must find one: a pattern that does nothing
--- is a mistake.
local function found(who, patterns, entries, what)
  local marks, paths = {}, {}
  for i, entry in ipairs(entries) do marks[i], paths[i] = false, entry.path end
  for _, pattern in ipairs(patterns) do
    local any = false
    for i, path in ipairs(paths) do
      local ok, hit = pcall(string.find, path, pattern)
      if not ok then raise("E_VALUE", "%s: '%s' is no Lua pattern: %s", who, pattern, hit) end
      if hit then marks[i], any = true, true end
    end
    if not any then
      raise("E_VALUE", "%s: the pattern '%s' finds no %s; there are %s", who, pattern, what or "Param",
        lib.some(paths, 6))
    end
  end
  return marks
end

---@alias Mask "matrices"|string|string[]|table|fun(path: string, param: Param): boolean

--- Reads a mask: nil (everything), "matrices" (kernels and embeddings), another text or a list of them (Lua patterns
--- that are found in paths), fun(path, param): boolean, or a tree of booleans like the model, which may stop where
--- one serves all below it.
---@param who string for messages
---@param mask Mask?
---@param what string? it chooses from; default Param
---@return fun(entries: OptimEntry[]): boolean[]
function M.mask(who, mask, what)
  if type(mask) == "string" and mask ~= "matrices" then mask = {mask} end
  local kind = type(mask)
  if mask ~= nil and mask ~= "matrices" and kind ~= "function" and kind ~= "table" then
    raise("E_VALUE", "%s: a mask is \"matrices\", a pattern of paths or a list of them, a function (path, "
      .. "param) or a tree of booleans, not %s", who, mask)
  end
  if kind == "table" and type(mask[1]) == "string" then
    return function(entries) return found(who, mask, entries, what) end
  end
  return function(entries)
    local marks = {}
    for i, entry in ipairs(entries) do
      local on = true
      if mask == "matrices" then on = is_matrix(entry)
      elseif kind == "function" then on = mask(entry.path, entry.box)
      elseif kind == "table" then on = at(mask, entry.keys) end
      if type(on) ~= "boolean" then
        raise("E_VALUE", "%s: the mask gives %s for %s; expected true or false", who, on, entry.path)
      end
      marks[i] = on
    end
    return marks
  end
end

--- What is trained: the entries in `only` (default all) but those in `freeze`.
---@param who string
---@param options {only: Mask?, freeze: Mask?}
---@return fun(entries: OptimEntry[]): OptimEntry[]
function M.trained(who, options)
  if options.only == nil and options.freeze == nil then return function(entries) return entries end end
  local only, freeze = M.mask(who, options.only), options.freeze ~= nil and M.mask(who, options.freeze)
  return function(entries)
    local list, on, off = {}, only(entries), freeze and freeze(entries) or {}
    for i, entry in ipairs(entries) do
      if on[i] and not off[i] then list[#list + 1] = entry end
    end
    if #list == 0 then raise("E_VALUE", "%s: every Param is frozen; nothing is left to train", who) end
    return list
  end
end

--- For each entry the label of the first row {pattern, label} whose pattern is found in its path, or what a function
--- (path, param) gives; one of those in `known`.
---@param who string
---@param labels string[][]|fun(path: string, param: Param): string
---@param known table<string, any>
---@return fun(entries: OptimEntry[]): string[]
function M.labels(who, labels, known)
  local named = lib.quoted(lib.names(known))
  local function check(label, what)
    if known[label] == nil then
      raise("E_VALUE", "%s: %s is labelled %s; there are %s", who, what, label, named)
    end
    return label
  end
  if type(labels) == "table" then
    for i, row in ipairs(lib.check_list(who, "the labels", labels)) do
      if type(row) ~= "table" or type(row[1]) ~= "string" then
        raise("E_VALUE", "%s: row %d of the labels is %s; it is {pattern, label}", who, i, lib.kind(row))
      end
      check(row[2], "'" .. row[1] .. "'")
    end
  elseif type(labels) ~= "function" then
    raise("E_VALUE", "%s: labels are a list of {pattern, label} or a function (path, param), not %s", who,
      lib.kind(labels))
  end
  return function(entries)
    local list = {}
    for _, row in ipairs(type(labels) == "table" and labels or {}) do
      for i, hit in ipairs(found(who, {row[1]}, entries)) do
        if hit then list[i] = list[i] or row[2] end
      end
    end
    for i, entry in ipairs(entries) do
      if type(labels) == "function" then list[i] = labels(entry.path, entry.box) end
      check(list[i], entry.path)
    end
    return list
  end
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
