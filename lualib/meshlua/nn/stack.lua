-- stack.lua: layers of one kind as one module whose Params have a leading dim, a layer each: what a scan goes over.
local control = require "meshlua.transform.control"
local core = require "meshlua.core"
local lib = require "meshlua.lib"
local ops = require "meshlua.ops"
local param = require "meshlua.nn.param"
local tree = require "meshlua.tree"

local raise = lib.raise

local M = {}

--- Raises unless two trees have the same keys, static values, and shapes and dtypes at their leaves.
local function check_alike(first, other, number, path)
  path = path or ""
  local what = path == "" and "it" or path
  if lib.is_tensor(first) and lib.is_tensor(other) then
    if core.typeof(first) ~= core.typeof(other) then
      raise("E_SHAPE", "nn.stack: %s is %s in layer 1 and %s in layer %d", what, core.typeof(first),
        core.typeof(other), number)
    end
  elseif type(first) == "table" and type(other) == "table" and getmetatable(first) == getmetatable(other) then
    local keys = {}
    for _, t in ipairs {first, other} do
      for key in pairs(t) do keys[key] = true end
    end
    for _, key in ipairs(core.tree_keys(keys)) do
      check_alike(first[key], other[key], number, lib.below(path, key))
    end
  elseif first ~= other then
    raise("E_VALUE", "nn.stack: %s is %s in layer 1 and %s in layer %d; layers of a stack differ in their "
      .. "Params alone", what, first, other, number)
  end
end

--- Axes with one more in front: `axis` for logical names, whole for a P.
local function with_leading(axes, axis, rank)
  if axes == nil then return nil end
  local entries = {}
  if core.is_spec(axes) then
    for d = 1, rank do entries[d] = axes[d] or core.P.none end
    return core.P(nil, table.unpack(entries, 1, rank))
  end
  entries[1] = axis or false
  for d = 1, rank do entries[d + 1] = axes[d] or false end
  return entries
end

--- The Params at one place in all layers as one.
local function stacked(boxes, axis)
  local values = {}
  for i, box in ipairs(boxes) do values[i] = core.is_box(box) and box:get() or box end
  local value = ops.stack(values, 1)
  if not core.is_box(boxes[1]) then return value end
  local meta = lib.copy(core.box_meta(boxes[1]))
  meta.opt_sharding = nil -- of a tensor without the leading dim
  meta.axes = with_leading(meta.axes, axis, boxes[1].ndim)
  meta.opt_axes = with_leading(meta.opt_axes, axis, boxes[1].ndim)
  return param.Param(value, meta)
end

--- The first of the layers with join(leaves) in the place of each leaf: of the leaves that all have there.
local function replaced(layers, join)
  local leaves, with = {}, {}
  for i, layer in ipairs(layers) do
    leaves[i] = tree.leaves(layer)
    if #leaves[i] ~= #leaves[1] then
      raise("E_VALUE",
        "nn.stack: %d Params in layer 1 and %d in layer %d: some are shared in one of them only",
        #leaves[1], #leaves[i], i)
    end
  end
  for k, leaf in ipairs(leaves[1]) do
    local boxes = {}
    for i = 1, #layers do boxes[i] = leaves[i][k] end
    with[leaf] = join(boxes)
  end
  return tree.replace(layers[1], with)
end

--- The modules make(1), ..., make(n) as one of their kind: each Param has a leading dim of size n, and its logical
--- axes (and opt_axes) the name `axis` in front; those that are a P have the dim whole. nn.scan goes through the
--- layers, nn.layer takes one out. Raises where the layers differ in more than the values of their Params.
---@param n integer
---@param make fun(i: integer): table
---@param options {axis: string}? axis: the logical name of the new dim; default "layers"
---@return table module
function M.stack(n, make, options)
  options = lib.options("nn.stack", options)
  if lib.check_integer("nn.stack", "how many layers", n) < 1 then
    raise("E_VALUE", "nn.stack: %d layers; there is at least one", n)
  end
  lib.check_function("nn.stack", make)
  local layers = {}
  for i = 1, n do
    layers[i] = make(i)
    if type(layers[i]) ~= "table" then
      raise("E_VALUE", "nn.stack: layer %d is %s; expected a module", i, lib.kind(layers[i]))
    end
    check_alike(layers[1], layers[i], i)
  end
  return replaced(layers, function(boxes) return stacked(boxes, options.axis or "layers") end)
end

--- Raises unless the layers differ in the values of their tensors alone.
---@param layers table[]
function M.check(layers)
  for i, layer in ipairs(layers) do check_alike(layers[1], layer, i) end
end

--- The layers of a list as one stack of plain tensors, for a trace.
---@param layers table[] see check
---@return table
function M.of_values(layers)
  return replaced(layers, function(boxes)
    local values = {}
    for i, box in ipairs(boxes) do values[i] = core.is_box(box) and box:get() or box end
    return ops.stack(values, 1)
  end)
end

--- Layer i (1-based) of a stack: the module with a slice in the place of each Param, to be called. It follows the
--- stack in a trace, gradients included; it cannot be written.
---@param stack table from nn.stack
---@param i integer
---@return table module
function M.layer(stack, i)
  lib.check_integer("nn.layer", "the number of the layer", i)
  if type(stack) ~= "table" then raise("E_VALUE", "nn.layer: expected a stack, got %s", lib.kind(stack)) end
  local with = {}
  tree.visit(stack, function(path, leaf)
    local n = leaf.shape[1] or 0
    if i < 1 or i > n then raise("E_VALUE", "nn.layer: layer %d of %d (%s)", i, n, path) end
    with[leaf] = leaf:at(i)
  end)
  return tree.replace(stack, with)
end

--- Goes through the layers of a stack in order, as one loop that is traced once: carry = layer(carry), or what `body`
--- gives. Returns the last carry, and body's second values, stacked. It is differentiable in the stack and the carry.
---@param stack table from nn.stack
---@param carry any a tensor, or a tree of them
---@param body (fun(layer: table, carry: any): any, any)? default: layer(carry)
---@param options {reverse: boolean, unroll: integer}? as ml.scan
---@return any carry, any ys
function M.scan(stack, carry, body, options)
  if type(stack) ~= "table" then raise("E_VALUE", "nn.scan: expected a stack, got %s", lib.kind(stack)) end
  body = lib.check_function("nn.scan", body or function(layer, x)
    return lib.check_function("nn.scan: the layer", layer)(x)
  end)
  local leaves, values = tree.leaves(stack), {}
  for i, leaf in ipairs(leaves) do values[i] = core.is_box(leaf) and leaf:get() or leaf end
  return control.scan(function(x, slices)
    local with = {}
    for i, leaf in ipairs(leaves) do with[leaf] = slices[i] end
    return body(tree.replace(stack, with), x)
  end, carry, values, options)
end

return M
