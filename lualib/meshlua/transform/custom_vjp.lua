-- custom_vjp.lua: functions whose gradient, or derivative, the user gives. All functions are traced at the call; what
-- is not needed is dropped with the rest of dead code.
local core = require "meshlua.core"
local lib = require "meshlua.lib"
local trace = require "meshlua.transform.trace"
local variables = require "meshlua.transform.variables"

local raise = lib.raise

local M = {}

--- The only value that `what` returned; raises unless it holds tensors.
local function check_result(who, results)
  if results.n ~= 1 then
    raise("E_GRAD", "%s: the function returned %d values; it must return one, a tensor or a table of them",
      who, results.n)
  end
  local leaves = trace.leaves(who, results[1], "the result")
  if #leaves == 0 then
    raise("E_GRAD", "%s: the function returned %s; it must return a tensor or a table of them", who,
      lib.kind(results[1]))
  end
  return leaves
end

--- Raises unless the first result of what the user gave is like the function's.
local function check_first(who, what, y, out)
  local a, b = y, trace.leaves(who, out, "the result")
  for i = 1, math.max(#a, #b) do
    local p, q = a[i], b[i]
    if not p or not q or p.path ~= q.path or not lib.same_type(p.leaf, q.leaf) then
      raise("E_GRAD", "%s: %s's first result has %s where the function's has %s", who, what,
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
local function check_nondiff(who, list)
  local set = {}
  for _, i in ipairs(lib.check_list(who, "nondiff", list or {})) do
    if lib.check_integer(who, "a position in nondiff", i) < 1 then
      raise("E_VALUE", "%s: argument %d; positions count from 1", who, i)
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

local function check_effects(who, what, before)
  if #core.effects() > before then
    raise("E_STATE", "%s: debug_print in %s is not possible; print in the function", who, what)
  end
end

local function call_traced(fn, fwd, bwd, nondiff, args)
  local first = core.next_node()
  local inside <close> = trace.inside() -- luacheck: ignore
  local y = table.pack(fn(table.unpack(args, 1, args.n)))
  local ys = check_result("custom_vjp", y)
  local printed = #core.effects()
  local out, residuals = fwd(table.unpack(args, 1, args.n))
  check_first("custom_vjp", "fwd", ys, out)
  core.effects(printed) -- the function's own have been noted
  local from = core.next_node()
  local dargs, cts = call_bwd(bwd, args, nondiff, y[1], residuals)
  check_effects("custom_vjp", "bwd", printed)
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
  return trace.refill("custom_vjp", y[1],
    core.custom_vjp(first, from, core.next_node(), xs, dxs, values, cts))
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
  local nondiff = check_nondiff("custom_vjp", options.nondiff)
  return core.wrap(function(...)
    if not core.is_tracing() then return fn(...) end
    return call_traced(fn, fwd, bwd, nondiff, table.pack(...))
  end)
end

-- ---- custom_jvp -----------------------------------------------------------------------------------------

--- The arguments that have tangents, and trees of placeholders of these: {primals, tangents, xs, ts}.
local function placeholders(args, nondiff)
  local p = {primals = {}, tangents = {}, xs = {}, ts = {}}
  for i = 1, args.n do
    if not nondiff[i] then
      local k = #p.primals + 1
      p.primals[k] = args[i]
      p.tangents[k] = trace.map("custom_jvp", args[i], "argument " .. i, function(leaf)
        local t = lib.floats[leaf.dtype] and core.placeholder(leaf) or nil
        p.xs[#p.xs + 1], p.ts[#p.ts + 1] = leaf, t or false
        return t
      end)
      if type(args[i]) == "number" then p.tangents[k] = 0.0 end
    end
  end
  return p
end

--- The tangents of y's leaves, false where they are zero.
local function tangents_of(y, ys, dy)
  local of, list = {}, {}
  variables.pair("custom_jvp", "tangent", y, dy, "the result", "the rule's second result", function(leaf, t)
    of[leaf] = t
  end)
  for i, leaf in ipairs(ys) do list[i] = of[leaf.leaf] or false end
  return list
end

--- The rule's transpose: the cotangents of xs, and placeholders of those of ys.
local function transposed(p, ys, dys)
  local cts, given, of, wrt, dxs = {}, {}, {}, {}, {}
  for i, y in ipairs(ys) do
    cts[i] = lib.floats[y.leaf.dtype] and core.placeholder(y.leaf) or false
    if dys[i] and cts[i] then given[#given + 1], of[#of + 1] = dys[i], cts[i] end
  end
  for i, t in ipairs(p.ts) do wrt[#wrt + 1] = p.ts[i] and t or nil end
  local gradients, k = core.gradient(given, of, wrt), 0
  for i, t in ipairs(p.ts) do
    k = t and k + 1 or k
    dxs[i] = t and gradients[k] or false
  end
  return dxs, cts
end

local function call_with_jvp(fn, rule, nondiff, args)
  local first = core.next_node()
  local inside <close> = trace.inside() -- luacheck: ignore
  local y = table.pack(fn(table.unpack(args, 1, args.n)))
  local ys = check_result("custom_jvp", y)
  local printed, from = #core.effects(), core.next_node()
  local p, call = placeholders(args, nondiff), {}
  for i = 1, args.n do
    if nondiff[i] then call[#call + 1] = args[i] end
  end
  call[#call + 1], call[#call + 2] = p.primals, p.tangents
  local out, dy = rule(table.unpack(call))
  check_first("custom_jvp", "jvp", ys, out)
  check_effects("custom_jvp", "jvp", printed)
  local dys, values = tangents_of(y[1], ys, dy), {}
  local dxs, cts = transposed(p, ys, dys)
  for i, leaf in ipairs(ys) do values[i] = leaf.leaf end
  return trace.refill("custom_jvp", y[1],
    core.custom_vjp(first, from, core.next_node(), p.xs, dxs, values, cts, p.ts, dys))
end

--- The function, with a derivative of its own: in forward mode, and transposed in reverse mode.
---   jvp      called with (the arguments in nondiff, then) a list of the other arguments, and one of their tangents:
---            trees like them. Returns what the function returns, and its tangent, a tree like it (nil where it is
---            zero). It is linear in the tangents
---   nondiff  1-based positions of arguments that have no derivative
--- The function returns one value, a tensor or a table of them, and uses nothing from outside that is differentiated.
---@param fn function
---@param options {jvp: function, nondiff: integer[]}
function M.custom_jvp(fn, options)
  lib.check_function("custom_jvp", fn)
  options = lib.options("custom_jvp", options)
  local rule = lib.check_function("custom_jvp: jvp", options.jvp)
  local nondiff = check_nondiff("custom_jvp", options.nondiff)
  return core.wrap(function(...)
    if not core.is_tracing() then return fn(...) end
    return call_with_jvp(fn, rule, nondiff, table.pack(...))
  end)
end

return lib.export(M)
