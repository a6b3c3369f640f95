-- custom_vjp.lua: functions whose gradient the user gives. All three functions are traced at the call; what is
-- not needed is dropped with the rest of dead code.
local core = require "meshlua.core"
local lib = require "meshlua.lib"
local trace = require "meshlua.transform.trace"

local raise = lib.raise

local M = {}

--- The tensors of a tree and their paths.
local function leaves_of(node, path)
  local list = {}
  trace.map("custom_vjp", node, path, function(leaf, at)
    list[#list + 1] = {leaf = leaf, path = at}
    return leaf
  end)
  return list
end

--- The only value that `what` returned; raises unless it holds tensors.
local function check_result(what, results)
  if results.n ~= 1 then
    raise("E_GRAD", "custom_vjp: %s returned %d values; it must return one, a tensor or a table of them",
      what, results.n)
  end
  local leaves = leaves_of(results[1], "the result")
  if #leaves == 0 then
    raise("E_GRAD", "custom_vjp: %s returned %s; it must return a tensor or a table of them", what,
      lib.kind(results[1]))
  end
  return leaves
end

--- Raises unless fwd's first result is like f's.
local function check_fwd(y, out)
  local a, b = y, leaves_of(out, "the result")
  for i = 1, math.max(#a, #b) do
    local p, q = a[i], b[i]
    if not p or not q or p.path ~= q.path or not lib.same_type(p.leaf, q.leaf) then
      raise("E_GRAD", "custom_vjp: fwd's first result has %s where the function's has %s",
        q and ("%s at %s"):format(core.typeof(q.leaf), q.path) or "nothing",
        p and ("%s at %s"):format(core.typeof(p.leaf), p.path) or "nothing")
    end
  end
end

--- Collects the leaves of an argument with the cotangents that bwd gave for it: a tree like it, from which
--- anything may be missing.
local function pair_up(x, dx, path, number, xs, dxs)
  if lib.is_tensor(x) then
    if dx ~= nil and (not lib.is_tensor(dx) or not lib.same_type(x, dx)) then
      raise("E_GRAD", "custom_vjp: bwd gives %s for %s, which is %s; a cotangent has its type",
        lib.is_tensor(dx) and core.typeof(dx) or lib.kind(dx), path, core.typeof(x))
    end
    if dx ~= nil and not lib.floats[x.dtype] then
      raise("E_GRAD", "custom_vjp: bwd gives a cotangent for %s, which is %s; it must be nil", path,
        core.typeof(x))
    end
    xs[#xs + 1], dxs[#dxs + 1] = x, dx or false
    return
  end
  if dx == nil then dx = {} end
  if type(x) ~= "table" or type(dx) ~= "table" then
    if next(type(dx) == "table" and dx or {true}) then
      raise("E_GRAD", "custom_vjp: bwd gives %s for %s, which is %s", lib.kind(dx), path, lib.kind(x))
    end
    return
  end
  for key in next, dx do
    if x[key] == nil then
      raise("E_GRAD", "custom_vjp: bwd gives something for %s, which does not exist", trace.below(path, key))
    end
  end
  for _, key in ipairs(core.tree_keys(x)) do
    pair_up(x[key], dx[key], trace.below(path, key), number, xs, dxs)
  end
end

--- The positions in nondiff, as a set.
local function check_nondiff(list)
  local set = {}
  for _, i in ipairs(lib.check_list("custom_vjp", "nondiff", list or {})) do
    if lib.check_integer("custom_vjp", "a position in nondiff", i) < 1 then
      raise("E_VALUE", "custom_vjp: argument %d; positions count from 1", i)
    end
    set[i] = true
  end
  return set
end

--- Calls bwd with placeholders for the cotangents of y's leaves. Returns what it returned, and the list of
--- placeholders (false for leaves that are no floats).
local function call_bwd(bwd, args, nondiff, y, residuals)
  local call, cts = {n = 0}, {}
  local function add(x) call.n = call.n + 1; call[call.n] = x end
  for i = 1, args.n do
    if nondiff[i] then add(args[i]) end
  end
  add(residuals)
  add(trace.map("custom_vjp", y, "the result", function(leaf)
    local ct = lib.floats[leaf.dtype] and core.placeholder(leaf) or nil
    cts[#cts + 1] = ct or false
    return ct
  end))
  return table.pack(bwd(table.unpack(call, 1, call.n))), cts
end

local function check_effects(before)
  if #core.effects() > before then
    raise("E_STATE", "custom_vjp: debug_print in bwd is not possible; print in the function")
  end
end

local function call_traced(fn, fwd, bwd, nondiff, args)
  local first = core.next_node()
  local inside <close> = trace.inside() -- luacheck: ignore
  local y = table.pack(fn(table.unpack(args, 1, args.n)))
  local ys = check_result("the function", y)
  local printed = #core.effects()
  local out, residuals = fwd(table.unpack(args, 1, args.n))
  check_fwd(ys, out)
  core.effects(printed) -- the function's own have been noted
  local from = core.next_node()
  local dargs, cts = call_bwd(bwd, args, nondiff, y[1], residuals)
  check_effects(printed)
  local xs, dxs, k = {}, {}, 0
  for i = 1, args.n do
    if not nondiff[i] then
      k = k + 1
      pair_up(args[i], dargs[k], "argument " .. i, i, xs, dxs)
    end
  end
  if dargs.n > k then
    raise("E_GRAD", "custom_vjp: bwd returned %s for %s", lib.count(dargs.n, "value"),
      lib.count(k, "argument"))
  end
  local values = {}
  for i, leaf in ipairs(ys) do values[i] = leaf.leaf end
  local results, i = core.custom_vjp(first, from, core.next_node(), xs, dxs, values, cts), 0
  return (trace.map("custom_vjp", y[1], "the result", function()
    i = i + 1
    return results[i]
  end))
end

--- The function, with a gradient of its own.
---   fwd      called as the function is; returns what it returns, and anything that bwd needs
---   bwd      called with (the arguments in nondiff, then) what fwd returned second, and the cotangent: a value
---            like the function's result. Returns a cotangent for each argument not in nondiff, of its type (or a
---            table like it), nil where it is zero
---   nondiff  1-based positions of arguments that have no gradient
--- The function returns one value, a tensor or a table of them. What it uses from outside is constant to
--- gradients; if it is differentiated all the same, that is an error.
---@param fn function
---@param options {fwd: function, bwd: function, nondiff: integer[]}
function M.custom_vjp(fn, options)
  lib.check_function("custom_vjp", fn)
  options = lib.options("custom_vjp", options)
  local fwd = lib.check_function("custom_vjp: fwd", options.fwd)
  local bwd = lib.check_function("custom_vjp: bwd", options.bwd)
  local nondiff = check_nondiff(options.nondiff)
  return core.wrap(function(...)
    if not core.is_tracing() then return fn(...) end
    return call_traced(fn, fwd, bwd, nondiff, table.pack(...))
  end)
end

return lib.export(M)
