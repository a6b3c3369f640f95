-- vmap.lua: a function of one example becomes one of many: it is traced for one, and its nodes are rewritten by
-- the rules of their ops.
local core = require "meshlua.core"
local lib = require "meshlua.lib"
local ops = require "meshlua.ops"
local trace = require "meshlua.transform.trace"
local traced = require "meshlua.transform.traced"

local op, raise = core.op, lib.raise

local M = {}

local function is_axis(x) return math.type(x) == "integer" and x ~= 0 end

--- Raises unless axes are 1-based positions, false, or trees of them; returns it.
local function check_axes(what, axes, depth)
  if axes == nil or axes == false or is_axis(axes) then return axes end
  if type(axes) ~= "table" or (depth or 0) > 100 then
    raise("E_VALUE", "vmap: %s holds %s; an axis is a 1-based position (or from the end, below 0), and false "
      .. "where nothing is mapped", what, type(axes) == "number" and axes or lib.kind(axes))
  end
  local copy = {}
  for key, value in next, axes do copy[key] = check_axes(what, value, (depth or 0) + 1) end
  return copy
end

--- The names of mesh axes in spmd_axis, as a list.
local function check_names(names)
  if names == nil then return {} end
  if type(names) == "string" then names = {names} end
  for i, name in ipairs(lib.check_list("vmap", "spmd_axis", names)) do
    if type(name) ~= "string" then
      raise("E_VALUE", "vmap: spmd_axis[%d] is %s, not the name of a mesh axis", i, lib.kind(name))
    end
  end
  return table.move(names, 1, #names, 1, {})
end

--- Calls visit(leaf, axis, path) for each tensor in a tree of arguments or results, with what `axes`, a tree
--- that may stop early, says of it (a position, or false). Returns the tree with what visit returns.
local function go(what, node, axes, path, visit, above)
  if lib.is_tensor(node) then
    if type(axes) == "table" then
      raise("E_VALUE", "vmap: %s goes deeper than %s, which is a tensor", what, path)
    end
    return visit(node, axes or false, path)
  end
  if type(node) ~= "table" then return node end
  if above[node] then raise("E_VALUE", "vmap: %s contains itself", path) end
  lib.enter("vmap", node, above)
  local copy, changed = {}, false
  for key in next, type(axes) == "table" and axes or {} do
    if node[key] == nil then raise("E_VALUE", "vmap: %s has '%s', %s has not", what, key, path) end
  end
  for _, key in ipairs(core.tree_keys(node)) do
    local axis = axes
    if type(axes) == "table" then axis = axes[key] end
    copy[key] = go(what, node[key], axis, trace.below(path, key), visit, above)
    changed = changed or not rawequal(copy[key], node[key])
  end
  lib.leave(node, above)
  return changed and setmetatable(copy, getmetatable(node)) or node
end

--- The axis (1-based) among n, which may count from the end; raises where there is none.
local function position(what, path, axis, n)
  local at = axis < 0 and n + 1 + axis or axis
  if at < 1 or at > n then
    raise("E_SHAPE", "vmap: %s maps axis %d of %s, which has rank %d", what, axis, path, n)
  end
  return at
end

--- x with dim `from` moved to `to`.
local function moved(x, from, to)
  if from == to then return x end
  local perm = {}
  for d = 1, x.ndim do perm[#perm + 1] = d ~= from and d or nil end
  table.insert(perm, to, from)
  return op.transpose(x, {perm = perm})
end

--- What is mapped among the arguments: a list of {leaf, axis, path}; raises where nothing fits.
local function mapped_leaves(fn, args, in_axes)
  local list, names = {}, lib.parameters(fn)
  for i = 1, args.n do
    local axes, name = in_axes, names[i] or "argument " .. i
    if type(in_axes) == "table" then axes = in_axes[i] end
    if axes and type(args[i]) == "number" then
      raise("E_VALUE", "vmap: %s is a number and has no axis %s; in_axes must have false there", name,
        axes)
    end
    go("in_axes", args[i], axes, name, function(leaf, axis, path)
      if axis then list[#list + 1] = {leaf = leaf, axis = position("in_axes", path, axis, leaf.ndim),
        path = path} end
      return leaf
    end, {})
  end
  return list
end

--- How many examples there are.
local function examples_of(list, axis_size)
  local n, words = axis_size, {}
  local differ = false
  for i, m in ipairs(list) do
    local size = m.leaf.shape[m.axis]
    n = n or size
    differ = differ or size ~= n
    words[i] = ("%s has %d along axis %d"):format(m.path, size, m.axis)
  end
  if not n then raise("E_VALUE", "vmap: nothing is mapped; give in_axes, or axis_size") end
  if differ then
    raise("E_SHAPE", "vmap: the sizes of the mapped axes differ: %s%s", table.concat(words, ", "),
      axis_size and ("; axis_size is %d"):format(axis_size) or "")
  end
  return n
end

--- x n times along a new first dim.
local function repeated(x, n)
  local at = {}
  for d = 1, x.ndim do at[d] = d + 1 end
  return op.broadcast(x, {dims = {n, table.unpack(x.shape)}, at = at})
end

--- Results with the examples where out_axes says.
local function placed(results, out_axes, all, same, n)
  local i = 0
  for k = 1, results.n do
    local axes = out_axes
    if type(out_axes) == "table" then axes = out_axes[k] end
    results[k] = go("out_axes", results[k], axes, "result " .. k, function(leaf, axis, path)
      i = i + 1
      local x = all[i]
      if not x and not axis then return same[i] end
      if not axis then
        raise("E_VALUE", "vmap: %s differs by example, but out_axes has no axis for it", path)
      end
      local to = position("out_axes", path, axis, leaf.ndim + 1)
      return moved(x or repeated(same[i], n), 1, to)
    end, {})
  end
  return results
end

--- The function traced for one example; returns its results, and for the mapped leaves the placeholders of one
--- example and the tensors of all.
local function trace_one(fn, args, in_axes, list, axis_name, n)
  local examples, all, boxes, of_box = {}, {}, {}, {}
  for i, m in ipairs(list) do
    if core.is_box(m.leaf) then
      if of_box[m.leaf] and of_box[m.leaf].axis ~= m.axis then
        raise("E_VALUE", "vmap: %s and %s are one Param, mapped along axes %d and %d", of_box[m.leaf].path,
          m.path, of_box[m.leaf].axis, m.axis)
      end
      if not of_box[m.leaf] then boxes[#boxes + 1] = m.leaf end
      of_box[m.leaf] = of_box[m.leaf] or {axis = m.axis, path = m.path, number = i}
    end
    all[i] = moved(core.variable(m.leaf), m.axis, 1)
    examples[i] = core.placeholder(all[i], true)
  end
  local swapped <close> = trace.swapped(boxes)
  for _, box in ipairs(boxes) do swapped:put(examples[of_box[box].number]) end
  if axis_name then
    all[#all + 1] = core.variable(ops.arange(n))
    examples[#all] = core.placeholder(all[#all], true)
  end
  local bound <close> = trace.bound(axis_name, {index = examples[#all], size = n}) -- luacheck: ignore
  local inside <close> = trace.inside() -- luacheck: ignore
  local i = 0
  local call = {n = args.n}
  for k = 1, args.n do
    local axes = in_axes
    if type(in_axes) == "table" then axes = in_axes[k] end
    call[k] = go("in_axes", args[k], axes, "", function(leaf, axis)
      i = axis and i + 1 or i
      return axis and not core.is_box(leaf) and examples[i] or leaf
    end, {})
  end
  return table.pack(fn(table.unpack(call, 1, call.n))), examples, all
end

--- The tensors among results, traced.
local function tensors_of(results)
  local list = {}
  for k = 1, results.n do
    go("out_axes", results[k], false, "result " .. k, function(leaf)
      list[#list + 1] = leaf
      return leaf
    end, {})
  end
  return list
end

--- Appends the tensors of the effects behind number `before` to a list, which is returned.
local function add_effects(tensors, before)
  local effects = core.effects()
  for i = before + 1, #effects do
    for k = 1, effects[i].args.n do
      if core.is_tensor(effects[i].args[k]) then tensors[#tensors + 1] = effects[i].args[k] end
    end
  end
  return tensors
end

--- Effects of one example become effects of all, one after another. Their tensors are those behind number `at` in
--- the two lists that core.batch gave.
local function spread_effects(at, before, many, same, n)
  local effects = core.effects()
  for i = before + 1, #effects do
    local run, args, mapped = effects[i].run, table.move(effects[i].args, 1, effects[i].args.n, 1, {}), {}
    args.n = effects[i].args.n
    for k = 1, args.n do
      if core.is_tensor(args[k]) then
        at = at + 1
        args[k], mapped[k] = many[at] or same[at], many[at] and true or nil
      end
    end
    effects[i] = {args = args, run = function(all, label)
      for example = 1, n do
        local one = table.move(all, 1, all.n, 1, {n = all.n})
        for k in pairs(mapped) do one[k] = ops.at(all[k], example) end
        run(one, label)
      end
    end}
  end
end

--- The function of one example, for many at once: arguments are mapped along an axis each (by default every
--- tensor along its first), and results get the examples along an axis. What does not depend on a mapped
--- argument is computed once. Params cannot be written inside; random numbers differ where keys do.
---   in_axes    a 1-based position (from the end, below 0) for every tensor, or a list with one for each
---              argument: a position, false (not mapped), or a tree of them that may stop early. Default 1
---   out_axes   the same for the results; false where a result is the same for all. Default 1
---   axis_size  the number of examples, where nothing is mapped
---   axis_name  by which psum, pmean, all_gather, axis_index and their like reach the other examples
---   spmd_axis  the mesh axis (or axes) on which constraints inside put the examples
---@param fn function
---@param options {in_axes: any, out_axes: any, axis_size: integer, axis_name: string,
---   spmd_axis: string|string[]}?
function M.vmap(fn, options)
  lib.check_function("vmap", fn)
  options = lib.options("vmap", options)
  local in_axes = check_axes("in_axes", options.in_axes)
  local out_axes = check_axes("out_axes", options.out_axes)
  if in_axes == nil then in_axes = 1 end
  if out_axes == nil then out_axes = 1 end
  local size = options.axis_size
  if size ~= nil and lib.check_integer("vmap", "axis_size", size) < 0 then
    raise("E_VALUE", "vmap: axis_size is %d; it is at least 0", size)
  end
  local axes, axis_name = check_names(options.spmd_axis), options.axis_name
  if axis_name ~= nil and type(axis_name) ~= "string" then
    raise("E_VALUE", "vmap: axis_name is %s; it is a name", lib.kind(axis_name))
  end
  return core.wrap(function(...)
    local args = table.pack(...)
    local list = mapped_leaves(fn, args, in_axes)
    local n = examples_of(list, size)
    local results = traced.run(function()
      local first, before = core.next_node(), #core.effects()
      local one, examples, all = trace_one(fn, args, in_axes, list, axis_name, n)
      local tensors = tensors_of(one)
      local many, same = core.batch(first, examples, all, n, add_effects(tensors, before), axes,
        axis_name)
      spread_effects(#tensors_of(one), before, many, same, n)
      return placed(one, out_axes, many, same, n)
    end)
    return table.unpack(results, 1, results.n)
  end)
end

return lib.export(M)
