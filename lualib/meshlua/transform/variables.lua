-- variables.lua: what the transforms that differentiate share: the arguments' leaves as variables of the trace, and
-- trees of what belongs to them.
local core = require "meshlua.core"
local lib = require "meshlua.lib"
local tree = require "meshlua.tree"
local trace = require "meshlua.transform.trace"

local raise = lib.raise

local M = {}

--- Checks options; returns the list of argument numbers and whether one number was given.
function M.read(who, options)
  options = lib.options(who, options)
  local numbers = options.argnums or 1
  local single = math.type(numbers) == "integer"
  if single then numbers = {numbers} end
  if type(numbers) ~= "table" or #numbers == 0 then
    raise("E_VALUE", "%s: argnums is a 1-based position or a list of them", who)
  end
  local seen = {}
  for _, n in ipairs(lib.check_list(who, "argnums", numbers)) do
    if math.type(n) ~= "integer" or n < 1 then
      raise("E_VALUE", "%s: argument %s; positions count from 1", who, n)
    end
    if seen[n] then raise("E_VALUE", "%s: argument %d is listed twice", who, n) end
    seen[n] = true
  end
  return numbers, single, options.has_aux
end

--- The leaves of an argument that are differentiated: Params of kind "param", and tensors; all floats.
local function leaves_of(who, x, argument)
  if type(x) == "number" then x = core.tensor(x + 0.0) end
  local leaves, paths = tree.leaves(x)
  local list = {}
  for i, leaf in ipairs(leaves) do
    local box = core.is_box(leaf)
    if not box or leaf.kind == "param" then
      if not lib.floats[leaf.dtype] then
        raise("E_GRAD", "%s: argument %d%s is %s; gradients are of floats", who, argument,
          paths[i] ~= "" and " at " .. paths[i] or "", core.typeof(leaf))
      end
      list[#list + 1] = leaf
    end
  end
  if #list == 0 then
    raise("E_GRAD", "%s: argument %d holds nothing to differentiate", who, argument)
  end
  return x, list
end

--- All float leaves, if there are any.
local function float_leaves(x)
  if math.type(x) == "float" then x = core.tensor(x) end
  local list = {}
  for _, leaf in ipairs((tree.leaves(x))) do
    if lib.floats[leaf.dtype] then list[#list + 1] = leaf end
  end
  return x, list
end

--- Runs fn(args...) in the trace under way with variables for the leaves of args[numbers], or for all floats where
--- no numbers are given. Returns {results (packed), places, variables, first}: for each argument {n, tree, leaves,
--- variable = leaf -> tracer}, all variables in their order, and the number of the function's first node.
function M.run(who, fn, args, numbers)
  local all, boxes, is_known, places = {}, {}, {}, {}
  for i = 1, numbers and #numbers or args.n do
    local n = numbers and numbers[i] or i
    if n > args.n then raise("E_VALUE", "%s: argument %d of %d", who, n, args.n) end
    local x, leaves
    if numbers then x, leaves = leaves_of(who, args[n], n) else x, leaves = float_leaves(args[n]) end
    local variable = {}
    for _, leaf in ipairs(leaves) do
      if not core.is_box(leaf) then
        variable[leaf] = trace.variable(leaf)
      elseif not is_known[leaf] then -- a Param in two arguments is one leaf, with one gradient
        is_known[leaf], boxes[#boxes + 1] = true, leaf
      end
    end
    places[#places + 1] = {n = n, tree = x, leaves = leaves, variable = variable}
  end
  local swapped <close> = trace.swapped(boxes)
  for _, box in ipairs(boxes) do swapped:put(trace.variable(box)) end
  local box_variable = {}
  for i, box in ipairs(boxes) do box_variable[box] = swapped.values[i] end
  local call = table.move(args, 1, args.n, 1, {n = args.n})
  for _, place in ipairs(places) do
    if next(place.variable) then
      call[place.n] = tree.is_leaf(place.tree) and place.variable[place.tree]
        or tree.replace(place.tree, place.variable)
    end
    for _, leaf in ipairs(place.leaves) do
      place.variable[leaf] = place.variable[leaf] or box_variable[leaf]
      all[#all + 1] = place.variable[leaf]
    end
  end
  local first = core.next_node()
  local results = table.pack(fn(table.unpack(call, 1, call.n)))
  return {results = results, places = places, variables = all, first = first}
end

--- Trees like the arguments: `each(leaf, i)` for the i-th of the variables.
function M.trees(places, each)
  local i, trees = 0, {}
  for k, place in ipairs(places) do
    local of = {}
    for _, leaf in ipairs(place.leaves) do
      i = i + 1
      of[leaf] = each(leaf, i)
    end
    trees[k] = tree.only(place.tree, of)
  end
  return trees
end

--- The tensors of what a function returned first, by place: {leaf, path}. One of them is a float; and it returned
--- nothing else, but for has_aux.
function M.result_leaves(who, results, has_aux)
  local floats = false
  if results.n ~= 1 and not (has_aux and results.n > 1) then
    raise("E_GRAD", "%s: the function returned %d values; it must return one, a tensor or a tree of them%s",
      who, results.n, has_aux == false and " (has_aux = true gives the others back, too)" or "")
  end
  local list = trace.leaves(who, results[1], "the result")
  for _, y in ipairs(list) do floats = floats or lib.floats[y.leaf.dtype] end
  if not floats then
    raise("E_GRAD", "%s: the function returned %s; gradients are of floats: of a tensor, or a tree with one",
      who, lib.is_tensor(results[1]) and core.typeof(results[1]) or lib.kind(results[1]))
  end
  return list
end

--- Calls give(leaf, t) for each tensor that `given` has for a leaf of `node`: a tree like it, from which anything may
--- be missing (nil or false: zero). `what` names such a tensor ("the tangent"), `path` and `at` the two trees.
function M.pair(who, what, node, given, path, at, give)
  if given == nil or given == false then return end
  if tree.is_leaf(node) then
    if type(given) == "number" and node.ndim == 0 then
      given = core.tensor(given, {dtype = node.dtype})
    end
    if not lib.floats[node.dtype] then
      raise("E_GRAD", "%s: %s is %s, which has no %s; give false for it", who, path, core.typeof(node), what)
    end
    if not lib.is_tensor(given) then
      raise("E_GRAD", "%s: expected a %s like %s, got %s for %s", who, what, core.typeof(node),
        lib.kind(given), path)
    end
    if not lib.same_type(given, node) then
      raise("E_GRAD", "%s: %s is %s, %s %s; they must have one shape and dtype", who, at,
        core.typeof(given), path, core.typeof(node))
    end
    return give(node, given, at)
  end
  if type(node) ~= "table" or type(given) ~= "table" or tree.is_leaf(given) then
    raise("E_GRAD", "%s: %s is %s, and %s is %s; a %s has the structure of what it belongs to", who, at,
      lib.kind(given), path, lib.kind(node), what)
  end
  for _, key in ipairs(core.tree_keys(given)) do
    if node[key] == nil and given[key] then
      raise("E_GRAD", "%s: %s has no '%s', which %s has", who, path, key, at)
    end
    M.pair(who, what, node[key], given[key], trace.below(path, key), trace.below(at, key), give)
  end
end

return M
