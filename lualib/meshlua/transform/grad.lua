-- grad.lua: gradients of Lua functions. Inside a trace the variables become fresh nodes of it; outside,
-- the function is traced, and the plan found by content runs at once.
local core = require "meshlua.core"
local lib = require "meshlua.lib"
local traced = require "meshlua.transform.traced"
local variables = require "meshlua.transform.variables"

local raise = lib.raise

local M = {}

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
  return variables.trees(places, function(leaf, i)
    return eager and laid_out_like(leaf, cotangents[i]) or cotangents[i]
  end)
end

local function value_and_grad(who, fn, numbers, single, has_aux)
  lib.check_function(who, fn)
  return function(...)
    local args, eager = table.pack(...), not core.is_tracing()
    local out = traced.run(function()
      local traced_fn = variables.run(who, fn, args, numbers)
      local results, loss = traced_fn.results, traced_fn.results[1]
      if not core.is_tensor(loss) then
        raise("E_GRAD", "%s: the function returned %s; the loss must be a tensor", who, lib.kind(loss))
      end
      if results.n > 1 and not has_aux then
        raise("E_GRAD", "%s: the function returned %d values; has_aux = true gives the others back, too", who,
          results.n)
      end
      if loss.ndim ~= 0 or not lib.floats[loss.dtype] then
        raise("E_GRAD", "%s: the loss is %s; it must be a float scalar (use :mean() or :sum()%s)", who,
          core.typeof(loss), who == "hessian" and ", or jacfwd(jacrev(fn)) for all elements" or "")
      end
      local one = core.op.full {dtype = loss.dtype, dims = {}, value = 1.0}
      local cotangents = core.gradient({loss}, {one}, traced_fn.variables)
      local trees = gradient_trees(traced_fn.places, cotangents, eager)
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
  local numbers, single, has_aux = variables.read("value_and_grad", options)
  local run = value_and_grad("value_and_grad", fn, numbers, single, has_aux)
  return core.wrap(function(...)
    local out = run(...)
    return out.loss, out.grads, table.unpack(out.aux, 1, out.aux.n)
  end)
end

--- The function of `grad`, in the name of another transform.
local function gradient_of(who, fn, numbers, single, has_aux)
  local run = value_and_grad(who, fn, numbers, single, has_aux)
  return function(...)
    local out = run(...)
    return out.grads, table.unpack(out.aux, 1, out.aux.n)
  end
end

--- A function that returns the gradients of fn's loss (and aux behind them, with has_aux).
function M.grad(fn, options)
  local numbers, single, has_aux = variables.read("grad", options)
  return core.wrap(gradient_of("grad", fn, numbers, single, has_aux))
end

--- The gradients of what a function returned, whose cotangents are in a tree like it.
local function pull_back(traced_fn, ct, eager)
  local ys, cts = {}, {}
  if ct == nil then
    raise("E_GRAD", "vjp: expected a cotangent like %s, got nil", lib.is_tensor(traced_fn.results[1])
      and core.typeof(traced_fn.results[1]) or "what the function returned")
  end
  local function add(y, of_y) ys[#ys + 1], cts[#cts + 1] = y, of_y end
  variables.pair("vjp", "cotangent", traced_fn.results[1], ct, "the result", "the cotangent", add)
  return gradient_trees(traced_fn.places, core.gradient(ys, cts, traced_fn.variables), eager)
end

--- fn's result at the arguments, and its pullback: a function from the result's cotangent to those of the
--- arguments, in order. Where the result is a tree the cotangent is one like it; what is missing from it is zero.
--- Outside of a trace fn is traced anew at each call of the pullback.
---@param fn function returns a tensor or a tree of them
function M.vjp(fn, ...)
  lib.check_function("vjp", fn)
  local args = table.pack(...)
  local numbers = {}
  for i = 1, args.n do numbers[i] = i end
  if core.is_tracing() then
    local traced_fn = variables.run("vjp", fn, args, numbers)
    variables.result_leaves("vjp", traced_fn.results)
    return traced_fn.results[1], core.wrap(function(ct) return table.unpack(pull_back(traced_fn, ct)) end)
  end
  local y = traced.run(function()
    local results = table.pack(fn(table.unpack(args, 1, args.n)))
    variables.result_leaves("vjp", results)
    return results[1]
  end)
  return y, core.wrap(function(ct)
    return table.unpack(traced.run(function()
      return pull_back(variables.run("vjp", fn, args, numbers), ct, true)
    end))
  end)
end

M = lib.export(M)
M.gradient_of = gradient_of
return M
