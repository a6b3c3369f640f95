-- trace.lua: what transforms of functions share: trees by place, and Params that hold something else for a while.
local core = require "meshlua.core"
local lib = require "meshlua.lib"
local tree = require "meshlua.tree"

local M = {}

--- A tree like `node` with visit(leaf, path) in the place of each of its tensors, wherever they stand: one that
--- is held twice is visited twice. Raises for cycles, in the name of `who`.
function M.map(who, node, path, visit, above)
  above = above or {}
  if lib.is_tensor(node) then return visit(node, path) end
  if type(node) ~= "table" then return node end
  if above[node] then lib.raise("E_VALUE", "%s: %s contains itself", who, path) end
  lib.enter(who, node, above)
  local copy = {}
  for _, key in ipairs(core.tree_keys(node)) do
    copy[key] = M.map(who, node[key], M.below(path, key), visit, above)
  end
  lib.leave(node, above)
  return setmetatable(copy, getmetatable(node))
end

--- The tensors of a tree, by place: {leaf, path}.
---@return table[]
function M.leaves(who, node, path)
  local list = {}
  M.map(who, node, path, function(leaf, at)
    list[#list + 1] = {leaf = leaf, path = at}
    return leaf
  end)
  return list
end

--- A tree like `node` with of[i] in the place of its i-th tensor; false leaves it out.
function M.refill(who, node, of)
  local i = 0
  return (M.map(who, node, "", function()
    i = i + 1
    return of[i] or nil
  end))
end

--- The path of what stands under a key.
function M.below(path, key) return path .. (type(key) == "number" and "[%s]" or ".%s"):format(key) end

--- Puts tensors in the places of leaves that tables hold themselves, not in Params: what `with` maps them to.
---@param node any
---@param with table<any, Tensor>
function M.fill(node, with, seen)
  seen = seen or {}
  if type(node) ~= "table" or seen[node] then return end
  seen[node] = true
  for _, key in ipairs(core.tree_keys(node)) do
    local child = rawget(node, key)
    if not tree.is_leaf(child) then
      M.fill(child, with, seen)
    elseif with[child] and not core.is_box(child) then
      rawset(node, key, with[child])
    end
  end
end

-- Boxes that hold other tensors for a while: {boxes, values, before}. Closing it puts the tensors back, but not
-- into boxes that have been written since.
local Swapped = {}
Swapped.__index = Swapped

function Swapped.__close(swapped)
  for i, box in ipairs(swapped.boxes) do
    if swapped.before[i] then
      local now = core.box_swap(box, swapped.before[i])
      if not rawequal(now, swapped.values[i]) then core.box_swap(box, now) end
    end
  end
end

--- Puts a traced tensor into the next of the boxes.
function Swapped:put(value)
  local i = #self.values + 1
  self.values[i], self.before[i] = value, false
  self.before[i] = core.box_swap(self.boxes[i], value)
end

function M.swapped(boxes) return setmetatable({boxes = boxes, values = {}, before = {}}, Swapped) end

-- While it is open, no Param can be written: what is traced in it is of one example, or not of the program.
local Inside = {__close = function() core.transform_leave() end}

function M.inside()
  local inside = setmetatable({}, Inside) -- first what may fail for want of memory; so below
  core.transform_enter()
  return inside
end

-- The vmaps under way that have a name: {index = the example's number, a tracer, size}.
local named = {}

local Bound = {__close = function(bound) named[bound.name] = nil end}

--- Until what it returns is closed, the name is of a vmap; nil: nothing.
function M.bound(name, vmap)
  if name == nil then return nil end
  if named[name] then
    lib.raise("E_VALUE", "vmap: axis_name '%s' is that of a vmap around this one; give it another", name)
  end
  local bound = setmetatable({name = name}, Bound)
  named[name] = vmap
  return bound
end

--- The vmap under way of that name, and a list of all names.
---@param name string?
function M.named(name)
  local names = {}
  for key in next, named do names[#names + 1] = key end
  table.sort(names)
  return named[name], names
end

-- The leaf under way of an accumulation with bits = "mesh": {number = which it is, a tracer, axes = of the mesh, over
-- which the leaves lie}.
local leaf
local traced = 0 -- leaves

local Left = {__close = function() leaf = nil end}

--- Until what it returns is closed, what is traced is of one leaf.
---@param number Tensor
---@param axes string[]
function M.in_leaf(number, axes)
  local left = setmetatable({}, Left)
  leaf, traced = {number = number, axes = axes}, traced + 1
  return left
end

--- Which leaf is under way, from 0 (uint32); nil outside of leaves.
---@return Tensor?
function M.leaf() return leaf and leaf.number end

--- How many leaves have been traced so far: it grows where a step has some.
---@return integer
function M.leaves_traced() return traced end

--- A variable of the trace that is x, for gradients. In a leaf each device has its own, though x is the same on all:
--- so gradients are those of the leaf, and not yet summed over devices.
---@param x Tensor|Param
---@return Tensor
function M.variable(x)
  local varies, own = lib.set(leaf and #leaf.axes > 0 and core.vary(x) or {}), {}
  for _, name in ipairs(leaf and leaf.axes or own) do own[#own + 1] = not varies[name] and name or nil end
  return core.variable(#own > 0 and core.op.pcast(x, {axes = own, to = "varying"}) or x)
end

return M
