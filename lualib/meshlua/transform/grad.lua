-- grad.lua: gradients of Lua functions. Inside a trace the variables become fresh nodes of it; outside,
-- the function is traced, and the plan found by content runs at once.
local core = require "meshlua.core"
local lib = require "meshlua.lib"
local traced = require "meshlua.transform.traced"
local tree = require "meshlua.tree"
local trace = require "meshlua.transform.trace"

local raise = lib.raise

local M = {}

--- Checks options; returns the list of argument numbers and whether one number was given.
local function read(who, options)
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
local function variables_of(who, x, argument)
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

--- Runs fn(args...) in the trace under way with variables for the leaves of args[argnums]. Returns what
--- it returned (packed), and for each argnum a function from leaf cotangents to its gradient tree.
local function forward(who, fn, args, numbers)
  local all, boxes, is_known, places = {}, {}, {}, {}
  for _, n in ipairs(numbers) do
    if n > args.n then raise("E_VALUE", "%s: argument %d of %d", who, n, args.n) end
    local x, leaves = variables_of(who, args[n], n)
    local variable = {}
    for _, leaf in ipairs(leaves) do
      if not core.is_box(leaf) then
        variable[leaf] = core.variable(leaf)
      elseif not is_known[leaf] then -- a Param in two arguments is one leaf, with one gradient
        is_known[leaf], boxes[#boxes + 1] = true, leaf
      end
    end
    places[#places + 1] = {n = n, tree = x, leaves = leaves, variable = variable}
  end
  local swapped <close> = trace.swapped(boxes)
  for _, box in ipairs(boxes) do swapped:put(core.variable(box)) end
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
  return table.pack(fn(table.unpack(call, 1, call.n))), places, all
end

--- A gradient in the layout of what it is the gradient of: what is reduced there is unreduced here.
local function laid_out_like(leaf, gradient)
  local sharding = leaf.sharding
  if not sharding.mesh then return gradient end
  local spec = sharding.spec
  if #spec.unreduced + #spec.reduced > 0 then
    sharding = core.NamedSharding(sharding.mesh, core.P(table.unpack(spec.partitions)):update {
      unreduced = spec.reduced, reduced = spec.unreduced})
  end
  return core.op.constrain(gradient, {layout = sharding})
end

--- The gradients as trees like the arguments: of the leaves that were differentiated. `eager`: they leave
--- their trace at once, where nothing else says how they lie.
local function gradient_trees(places, cotangents, eager)
  local next_one, trees = 1, {}
  for i, place in ipairs(places) do
    local of = {}
    for _, leaf in ipairs(place.leaves) do
      local gradient = cotangents[next_one]
      of[leaf] = eager and laid_out_like(leaf, gradient) or gradient
      next_one = next_one + 1
    end
    trees[i] = tree.only(place.tree, of)
  end
  return trees
end

local function value_and_grad(who, fn, numbers, single, has_aux)
  lib.check_function(who, fn)
  return function(...)
    local args, eager = table.pack(...), not core.is_tracing()
    local out = traced.run(function()
      local results, places, variables = forward(who, fn, args, numbers)
      local loss = results[1]
      if not core.is_tensor(loss) then
        raise("E_GRAD", "%s: the function returned %s; the loss must be a tensor", who, lib.kind(loss))
      end
      if results.n > 1 and not has_aux then
        raise("E_GRAD", "%s: the function returned %d values; has_aux = true gives the others back, too", who,
          results.n)
      end
      if loss.ndim ~= 0 or not lib.floats[loss.dtype] then
        raise("E_GRAD", "%s: the loss is %s; it must be a float scalar (use :mean() or :sum())", who,
          core.typeof(loss))
      end
      local one = core.op.full {dtype = loss.dtype, dims = {}, value = 1.0}
      local cotangents = core.gradient({loss}, {one}, variables)
      local trees = gradient_trees(places, cotangents, eager)
      return {loss = loss, aux = table.pack(table.unpack(results, 2, results.n)),
        grads = single and trees[1] or trees}
    end)
    return out
  end
end

--- A function that returns fn's loss and its gradients. The gradient of an argument is a tree like it
--- (of a module: of its Params of kind "param"). With has_aux, what fn returns behind the loss comes
--- behind the gradients.
---@param fn function returns a float scalar
---@param options {argnums: integer|integer[], has_aux: boolean}?
function M.value_and_grad(fn, options)
  local numbers, single, has_aux = read("value_and_grad", options)
  local run = value_and_grad("value_and_grad", fn, numbers, single, has_aux)
  return core.wrap(function(...)
    local out = run(...)
    return out.loss, out.grads, table.unpack(out.aux, 1, out.aux.n)
  end)
end

--- A function that returns the gradients of fn's loss (and aux behind them, with has_aux).
function M.grad(fn, options)
  local numbers, single, has_aux = read("grad", options)
  local run = value_and_grad("grad", fn, numbers, single, has_aux)
  return core.wrap(function(...)
    local out = run(...)
    return out.grads, table.unpack(out.aux, 1, out.aux.n)
  end)
end

--- The one tensor among what a function returned.
local function check_result(results)
  local y = results[1]
  if results.n ~= 1 or not core.is_tensor(y) then
    raise("E_GRAD", "vjp: the function returned %s, the first %s; it must return one tensor",
      lib.count(results.n, "value"), lib.kind(y))
  end
  if not lib.floats[y.dtype] then
    raise("E_GRAD", "vjp: the function returned %s; gradients are of floats", core.typeof(y))
  end
  return y
end

local function check_cotangent(y, ct)
  if not lib.is_tensor(ct) then
    raise("E_GRAD", "vjp: expected a cotangent like %s, got %s", core.typeof(y), lib.kind(ct))
  end
  if not lib.same_type(ct, y) then
    raise("E_GRAD", "vjp: the cotangent is %s, the result %s; they must have one shape and dtype",
      core.typeof(ct), core.typeof(y))
  end
end

--- fn's result at the arguments, and its pullback: a function from the result's cotangent to those of the
--- arguments, in order. Inside a trace only: outside, the residuals would be traced anew at each call.
---@param fn function returns one tensor
function M.vjp(fn, ...)
  lib.check_function("vjp", fn)
  local args = table.pack(...)
  local numbers = {}
  for i = 1, args.n do numbers[i] = i end
  if core.is_tracing() then
    local results, places, variables = forward("vjp", fn, args, numbers)
    check_result(results)
    return results[1], core.wrap(function(ct)
      check_cotangent(results[1], ct)
      return table.unpack(gradient_trees(places, core.gradient({results[1]}, {ct}, variables)))
    end)
  end
  local y = traced.run(function() return check_result(table.pack(fn(table.unpack(args, 1, args.n)))) end)
  return y, core.wrap(function(ct)
    check_cotangent(y, ct)
    local trees = traced.run(function()
      local results, places, variables = forward("vjp", fn, args, numbers)
      return gradient_trees(places, core.gradient({results[1]}, {ct}, variables), true)
    end)
    return table.unpack(trees)
  end)
end

return lib.export(M)
