-- forward.lua: derivatives along a direction, and whole ones. The nodes of the function are made once more, each with
-- the tangents of its results; a Jacobian is a vmap over unit vectors of that, or of the pullback.
local core = require "meshlua.core"
local grad = require "meshlua.transform.grad"
local lib = require "meshlua.lib"
local ops = require "meshlua.ops"
local trace = require "meshlua.transform.trace"
local traced = require "meshlua.transform.traced"
local variables = require "meshlua.transform.variables"
local vmap = require("meshlua.transform.vmap").vmap

local raise = lib.raise

local M = {}

--- The results of a traced function (variables.run), and their tangents: trees.
---@param leaves table its result's, as variables.result_leaves gives them
---@param tangent_of table<Tensor, Tensor>[] of each argument, by leaf
local function forward(who, fn, leaves, tangent_of)
  local xs, ts, ys = {}, {}, {}
  for _, place in ipairs(fn.places) do
    for _, leaf in ipairs(place.leaves) do
      local t = tangent_of[place.n][leaf]
      if t then xs[#xs + 1], ts[#ts + 1] = place.variable[leaf], t end
    end
  end
  for i, y in ipairs(leaves) do ys[i] = y.leaf end
  local now, dys = core.jvp(fn.first, xs, ts, ys)
  return trace.refill(who, fn.results[1], now), trace.refill(who, fn.results[1], dys)
end

--- The tangents of lists of arguments, by leaf. A tensor in two arguments is two, a Param one.
local function tangents_of(who, args, tangents, what)
  local all, boxes = {}, {}
  for i = 1, args.n do
    local of, at = {}, {}
    variables.pair(who, "tangent", args[i], tangents[i], what(i, "primals"), what(i, "tangents"),
      function(leaf, t, path)
        local known = core.is_box(leaf) and boxes[leaf] or {of[leaf], at[leaf]}
        if known[1] and not rawequal(known[1], t) then
          raise("E_GRAD", "%s: %s and %s are two tangents of one leaf", who, known[2], path)
        end
        of[leaf], at[leaf] = t, path
        if core.is_box(leaf) then boxes[leaf] = {t, path} end
      end)
    all[i] = of
  end
  return all
end

--- Numbers among the arguments as tensors.
local function with_tensors(args)
  local list = {n = args.n}
  for i = 1, args.n do
    list[i] = math.type(args[i]) == "float" and core.tensor(args[i]) or args[i]
  end
  return list
end

local function listed(who, name, list)
  if type(list) ~= "table" or getmetatable(list) then
    raise("E_VALUE", "%s: %s is a list with one for each argument, {x}, not %s", who, name, lib.kind(list))
  end
  local n = 0
  for key in next, list do
    if math.type(key) ~= "integer" or key < 1 then
      raise("E_VALUE", "%s: %s is a list with one for each argument, and has '%s'", who, name, key)
    end
    n = math.max(n, key)
  end
  return n
end

local function in_list(i, name) return ("%s[%d]"):format(name, i) end

local function run_jvp(who, fn, primals, tangents, has_aux)
  local n, given = listed(who, "primals", primals), listed(who, "tangents", tangents)
  if given > n then
    raise("E_VALUE", "%s: %s, but %s", who, lib.count(given, "tangent"), lib.count(n, "primal"))
  end
  local args = with_tensors(table.move(primals, 1, n, 1, {n = n}))
  local of = tangents_of(who, args, tangents, in_list)
  return traced.run(function()
    local run = variables.run(who, fn, args)
    local leaves = variables.result_leaves(who, run.results, has_aux or false)
    local y, dy = forward(who, run, leaves, of)
    return {y = y, dy = dy, aux = table.move(run.results, 2, run.results.n, 1, {n = run.results.n - 1})}
  end)
end

--- fn at the primals, and its derivative there along the tangents: fn(...) and d/de fn(primals + e tangents). Both are
--- lists with one entry for each argument; a tangent is a tree like its primal, from which anything may be missing
--- (false, nil: zero). Loops carry tangents beside values, so that while_loop has one, too.
---@param fn function returns a tensor or a tree of them
---@param primals any[]
---@param tangents any[]
---@param options {has_aux: boolean}? fn returns more than one value; the others come behind the derivative
---@return any y, any dy, ... dy is like y, without what is no float
function M.jvp(fn, primals, tangents, options)
  lib.check_function("jvp", fn)
  local out = run_jvp("jvp", fn, primals, tangents, lib.options("jvp", options).has_aux)
  return out.y, out.dy, table.unpack(out.aux, 1, out.aux.n)
end

--- fn at the arguments, and the linear function of tangents that is its derivative there: it takes a tangent for each
--- argument (false: zero). Outside of a trace fn is traced anew at each of its calls.
---@param fn function returns a tensor or a tree of them
function M.linearize(fn, ...)
  lib.check_function("linearize", fn)
  local args = with_tensors(table.pack(...))
  local function tangents(...)
    local n = select("#", ...)
    if n ~= args.n then
      raise("E_VALUE", "linearize: the linear function takes %s, one for each argument, not %d",
        lib.count(args.n, "tangent"), n)
    end
    return tangents_of("linearize", args, {...}, function(i, name)
      return (name == "primals" and "argument " or "tangent ") .. i
    end)
  end
  if core.is_tracing() then
    local run = variables.run("linearize", fn, args)
    local leaves = variables.result_leaves("linearize", run.results)
    return run.results[1], core.wrap(function(...)
      return (select(2, forward("linearize", run, leaves, tangents(...))))
    end)
  end
  local y = traced.run(function()
    local results = table.pack(fn(table.unpack(args, 1, args.n)))
    variables.result_leaves("linearize", results)
    return results[1]
  end)
  return y, core.wrap(function(...)
    local of = tangents(...)
    return (traced.run(function()
      local run = variables.run("linearize", fn, args)
      local leaves = variables.result_leaves("linearize", run.results)
      return {(select(2, forward("linearize", run, leaves, of)))}
    end))[1]
  end)
end

-- ---- Jacobians ----------------------------------------------------------------------------------------

--- The unit vectors of a tensor's type, one behind another.
local function basis_of(x)
  local n = 1
  for _, size in ipairs(x.shape) do n = n * size end
  return core.op.reshape(ops.eye(n, n, x.dtype), {dims = {n, table.unpack(x.shape)}})
end

local function joined(a, b) return table.move(b, 1, #b, #a + 1, table.move(a, 1, #a, 1, {})) end

--- For each variable, the derivatives of all results by it, y.shape .. x.shape: forward, all results at once.
local function columns(run, ys)
  local list = {}
  for k, x in ipairs(run.variables) do
    local all = vmap(function(unit)
      local ts = {}
      for i in ipairs(run.variables) do ts[i] = i == k and unit or false end
      return (select(2, core.jvp(run.first, run.variables, ts, ys)))
    end, {out_axes = -1})(basis_of(x))
    for i, y in ipairs(ys) do
      all[i] = core.op.reshape(all[i], {dims = joined(y.shape, x.shape)})
    end
    list[k] = all
  end
  return list
end

--- The same backwards: for each result, all variables at once.
local function rows(run, ys)
  local list = {}
  for k in ipairs(run.variables) do list[k] = {} end
  for i, y in ipairs(ys) do
    local all = vmap(function(unit) return core.gradient({y}, {unit}, run.variables) end)(basis_of(y))
    for k, x in ipairs(run.variables) do
      list[k][i] = core.op.reshape(all[k], {dims = joined(y.shape, x.shape)})
    end
  end
  return list
end

local function jacobian(who, fn, numbers, single, has_aux, derivatives)
  return function(...)
    local args = with_tensors(table.pack(...))
    local out = traced.run(function()
      local run = variables.run(who, fn, args, numbers)
      local leaves, ys, at = variables.result_leaves(who, run.results, has_aux or false), {}, {}
      for i, y in ipairs(leaves) do
        if lib.floats[y.leaf.dtype] then
          ys[#ys + 1], at[i] = y.leaf, #ys + 1
        end
      end
      local list, trees = derivatives(run, ys), {}
      for i in ipairs(leaves) do
        local of_args = at[i] and variables.trees(run.places, function(_, k) return list[k][at[i]] end)
        trees[i] = of_args and (single and of_args[1] or of_args)
      end
      return {jacobian = trace.refill(who, run.results[1], trees),
        aux = table.move(run.results, 2, run.results.n, 1, {n = run.results.n - 1})}
    end)
    return out.jacobian, table.unpack(out.aux, 1, out.aux.n)
  end
end

--- A function that returns the derivatives of all elements of fn's result by all elements of an argument: for a
--- tensor y of a tensor x a tensor of y's dims, then x's. Where the result is a tree, a tree like it; where the
--- argument is one, a tree like it for each y. By forward mode: for results larger than the argument.
---@param fn function
---@param options {argnums: integer|integer[], has_aux: boolean}? argnums a list: a list, one for each
function M.jacfwd(fn, options)
  lib.check_function("jacfwd", fn)
  local numbers, single, has_aux = variables.read("jacfwd", options)
  return core.wrap(jacobian("jacfwd", fn, numbers, single, has_aux, columns))
end

--- The same by reverse mode: for arguments larger than the result.
function M.jacrev(fn, options)
  lib.check_function("jacrev", fn)
  local numbers, single, has_aux = variables.read("jacrev", options)
  return core.wrap(jacobian("jacrev", fn, numbers, single, has_aux, rows))
end

--- A function that returns the second derivatives of fn's scalar result: of a tensor x, a tensor of x's dims twice; of
--- a tree, for each leaf a tree. Forward over reverse.
---@param fn function returns a float scalar
---@param options {argnums: integer|integer[], has_aux: boolean}?
function M.hessian(fn, options)
  lib.check_function("hessian", fn)
  local numbers, single, has_aux = variables.read("hessian", options)
  local gradient = grad.gradient_of("hessian", fn, numbers, single, has_aux)
  return core.wrap(jacobian("hessian", gradient, numbers, single, has_aux, columns))
end

--- The Hessian of fn at the primals times the tangents, without the Hessian: the derivative of the gradient along
--- them, forward over reverse. It comes for each argument that has a tangent, in order; the others are constants.
---@param fn function returns a float scalar
---@param primals any[]
---@param tangents any[]
function M.hvp(fn, primals, tangents)
  lib.check_function("hvp", fn)
  local numbers, n = {}, listed("hvp", "tangents", tangents)
  for i = 1, n do numbers[#numbers + 1] = tangents[i] and i or nil end
  if #numbers == 0 then raise("E_GRAD", "hvp: no argument has a tangent") end
  local out = run_jvp("hvp", grad.gradient_of("hvp", fn, numbers, false), primals, tangents)
  return table.unpack(out.dy, 1, #numbers)
end

return lib.export(M)
