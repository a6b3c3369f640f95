-- tree.lua: nested tables with tensors at their leaves. Leaves are tensors and Params (by identity: one
-- that is held twice is one leaf), and what ml.abstract gives for them; everything else is structure. Keys are visited in one order: numbers
-- ascending, then strings bytewise.
local core = require "meshlua.core"
local lib = require "meshlua.lib"

local raise = lib.raise

local M = {}

--- Metatable of the types that ml.abstract gives: {shape, dtype, ndim, size, sharding}.
local TensorType = {__name = "TensorType"}

--- "float32[32@data,128]", as tensors print.
function TensorType.__tostring(t)
  local dims = {}
  for d, n in ipairs(t.shape) do
    local entry = t.sharding and t.sharding.spec[d]
    local axes = type(entry) == "table" and "(" .. table.concat(entry, ",") .. ")" or entry
    dims[d] = axes and n .. "@" .. axes or tostring(n)
  end
  return t.dtype .. "[" .. table.concat(dims, ",") .. "]"
end

function M.is_leaf(x)
  return lib.is_tensor(x) or getmetatable(x) == TensorType
end
local is_leaf = M.is_leaf

--- Notes that `node` is being visited; on_path has the tables above it. Raises for cycles, and for what is
--- nested too deep.
local function enter(node, on_path, path)
  if on_path[node] then raise("E_VALUE", "tree: the table at %s contains itself", path or "some key") end
  lib.enter("tree", node, on_path)
end

local leave = lib.leave

local function walk(tree, path, visit, on_path)
  if is_leaf(tree) then return visit(path, tree) end
  if type(tree) ~= "table" then return end
  enter(tree, on_path, path)
  for _, key in ipairs(core.tree_keys(tree)) do
    local child = rawget(tree, key)
    local kind = type(child)
    if kind == "table" or kind == "userdata" then walk(child, lib.below(path, key), visit, on_path) end
  end
  leave(tree, on_path)
end

--- Calls visit(path, leaf) for every distinct leaf, in order.
---@param tree any
---@param visit fun(path: string, leaf: Tensor|Param)
function M.visit(tree, visit)
  lib.check_function("tree.visit", visit)
  local seen = {}
  walk(tree, "", function(path, leaf)
    if seen[leaf] then return end
    seen[leaf] = true
    visit(path, leaf)
  end, {})
end

--- The distinct leaves and their paths ("h.3.mlp.up.kernel").
---@return table leaves, string[] paths
function M.leaves(tree)
  local leaves, paths = {}, {}
  M.visit(tree, function(path, leaf)
    leaves[#leaves + 1], paths[#paths + 1] = leaf, path
  end)
  return leaves, paths
end

local function rebuild(tree, path, fn, known, on_path)
  if is_leaf(tree) then
    if known[tree] == nil then known[tree] = {fn(path, tree)} end
    return known[tree][1]
  end
  if type(tree) ~= "table" then return tree end
  enter(tree, on_path, path)
  local copy = {}
  for _, key in ipairs(core.tree_keys(tree)) do
    copy[key] = rebuild(rawget(tree, key), lib.below(path, key), fn, known, on_path)
  end
  leave(tree, on_path)
  return copy
end

--- A tree of the same structure with fn(path, leaf) in the place of each leaf; a leaf held twice is
--- mapped once. The copy is of plain tables.
function M.map_with_path(fn, tree)
  return rebuild(tree, "", lib.check_function("tree.map_with_path", fn), {}, {})
end

--- The same without the path; further trees of the same structure give fn more arguments.
---@param fn fun(leaf: any, ...): any
function M.map(fn, tree, ...)
  lib.check_function("tree.map", fn)
  local others, n, on_path = {...}, select("#", ...), {}
  if n == 0 then return rebuild(tree, "", function(_, leaf) return fn(leaf) end, {}, {}) end
  local function at(other, path, key, number)
    if type(other) ~= "table" or other[key] == nil then
      raise("E_VALUE", "tree.map: tree %d has nothing at %s", number, lib.below(path, key))
    end
    return other[key]
  end
  local function go(node, rest, path)
    if is_leaf(node) then return fn(node, table.unpack(rest, 1, n)) end
    if type(node) ~= "table" then return node end
    enter(node, on_path, path)
    local copy = {}
    for _, key in ipairs(core.tree_keys(node)) do
      local below = {}
      for i = 1, n do below[i] = at(rest[i], path, key, i + 1) end
      copy[key] = go(rawget(node, key), below, lib.below(path, key))
    end
    leave(node, on_path)
    return copy
  end
  return go(tree, others, "")
end

local function check_map(who, map)
  if type(map) ~= "table" then
    raise("E_VALUE", "%s: expected a table from leaves to what takes their place, got %s", who, lib.kind(map))
  end
end

--- A tree of the same tables' structure with the leaves in `with` replaced, metatables kept: the copy
--- stands for the original in a call. Tables without such a leaf are the originals.
---@param tree any
---@param with table<any, any> leaf -> what takes its place
function M.replace(tree, with)
  local on_path = {}
  check_map("tree.replace", with)
  local function go(node)
    if is_leaf(node) then
      if with[node] ~= nil then return with[node], true end
      return node, false
    end
    if type(node) ~= "table" then return node, false end
    enter(node, on_path)
    local copy, any = {}, false
    for key, child in next, node do
      local new, changed = go(child)
      copy[key], any = new, any or changed
    end
    leave(node, on_path)
    if not any then return node, false end
    return setmetatable(copy, getmetatable(node)), true
  end
  return (go(tree))
end

--- A tree of plain tables with only the leaves in `of`, replaced by what it maps them to.
---@param tree any
---@param of table<any, any>
function M.only(tree, of)
  local on_path = {}
  check_map("tree.only", of)
  local function go(node)
    if is_leaf(node) then return of[node] end
    if type(node) ~= "table" then return nil end
    enter(node, on_path)
    local copy, any = {}, false
    for key, child in next, node do
      copy[key] = go(child)
      any = any or copy[key] ~= nil
    end
    leave(node, on_path)
    return any and copy or nil
  end
  return go(tree)
end

M.TensorType = TensorType
return lib.strict(lib.export(M, "tree."), "tree", "tree.")
