-- control.lua: loops and branches over trees of tensors. A body is traced once, into a region of the graph;
-- tensors that it takes from outside become constants of the loop by themselves.
local core = require "meshlua.core"
local effects = require "meshlua.transform.effects"
local explicit = require "meshlua.sharding.explicit"
local lib = require "meshlua.lib"
local ops = require "meshlua.ops"
local traced = require "meshlua.transform.traced"

local raise, to_int32 = lib.raise, require("meshlua.ops.args").to_int32

local M = {}

-- ---- trees, by place: a tensor held twice is two leaves, a number is a leaf ---------------------------

local function is_leaf(x) return type(x) == "number" or lib.is_tensor(x) end

--- A number as a tensor of the trace.
local function as_tensor(x)
  if type(x) ~= "number" then return x end
  return core.op.full {dtype = math.type(x) == "integer" and "int32" or "float32", dims = {}, value = x}
end

--- Leaves as tensors, with their paths: {leaves, paths, tree}.
local function flatten(tree, path, into, on_path)
  into, on_path = into or {leaves = {}, paths = {}, fixed = {}, tree = tree}, on_path or {}
  path = path or ""
  if is_leaf(tree) then
    into.leaves[#into.leaves + 1], into.paths[#into.paths + 1] = as_tensor(tree), path
  elseif type(tree) == "table" then
    if on_path[tree] then raise("E_VALUE", "the table at %s contains itself", path) end
    lib.enter("the table at " .. path:sub(1, 40), tree, on_path)
    for _, key in ipairs(core.tree_keys(tree)) do flatten(tree[key], lib.below(path, key), into, on_path) end
    lib.leave(tree, on_path)
  elseif tree ~= nil then
    into.fixed[path] = tree
  end
  return into
end

--- The tree with other leaves, in order; the rest is kept, metatables too.
local function unflatten(tree, leaves, at)
  at = at or {0}
  if is_leaf(tree) then
    at[1] = at[1] + 1
    return leaves[at[1]]
  end
  if type(tree) ~= "table" then return tree end
  local copy = {}
  for _, key in ipairs(core.tree_keys(tree)) do copy[key] = unflatten(tree[key], leaves, at) end
  return setmetatable(copy, getmetatable(tree))
end

local function named(what, path) return path == "" and what or what .. " at " .. path end

--- Raises unless the trees have leaves at the same places, of the same types. `is` and `was` name them.
local function check_alike(who, what, before, after, was, is)
  local have, wanted = {}, {}
  for i, path in ipairs(after.paths) do have[path] = i end
  for i, path in ipairs(before.paths) do wanted[path] = i end
  for _, path in ipairs(before.paths) do
    if not have[path] then
      raise("E_VALUE", "%s: %s is a tensor %s, and nothing %s; both must have one structure", who,
        named(what, path), was, is)
    end
  end
  for _, path in ipairs(after.paths) do
    if not wanted[path] then
      raise("E_VALUE", "%s: %s is a tensor %s, and nothing %s; both must have one structure", who,
        named(what, path), is, was)
    end
  end
  for i, path in ipairs(before.paths) do
    local a, b = before.leaves[i], after.leaves[i]
    if not lib.same_type(a, b) then
      raise(a.dtype == b.dtype and "E_SHAPE" or "E_DTYPE",
        "%s: %s is %s %s, and %s %s; both must have one type", who, named(what, path), core.typeof(a), was,
        core.typeof(b), is)
    end
    if not explicit.lie_alike(a, b) then
      raise("E_SPEC", "%s: %s is %s %s, and %s %s; where axes are explicit both must lie alike: ml.reshard "
        .. "one of them", who, named(what, path), core.typeof(a), was, core.typeof(b), is)
    end
  end
end

--- Two lists, one behind the other.
local function joined(a, b) return table.move(b, 1, #b, #a + 1, table.move(a, 1, #a, 1, {})) end

--- A carry's leaves, each with a type of its own: what came from a Lua number gives way to nothing.
local function carry_of(tree)
  local carry = flatten(tree)
  for i, leaf in ipairs(carry.leaves) do carry.leaves[i] = core.op.astype(leaf, {dtype = leaf.dtype}) end
  return carry
end

-- ---- scan -------------------------------------------------------------------------------------------

--- The number of slices that all xs have.
local function length_of(xs, length)
  if length ~= nil and (math.type(length) ~= "integer" or length < 0) then
    raise("E_VALUE", "scan: length must be a whole number, not %s", lib.not_whole(length))
  end
  local from = length and "length"
  for i, x in ipairs(xs.leaves) do
    local what = named("xs", xs.paths[i])
    if x.ndim == 0 then raise("E_SHAPE", "scan: %s is a scalar; a scan runs along dim 1", what) end
    if length and x.shape[1] ~= length then
      raise("E_SHAPE", "scan: %s has %s along dim 1, and %s says %d", what, lib.count(x.shape[1], "slice"),
        from, length)
    end
    length, from = x.shape[1], what
  end
  if not length then raise("E_VALUE", "scan: without xs, option 'length' says how often the body runs") end
  return length
end

--- Calls f with trees, and takes its results apart; the carry that comes out must be like the one that goes
--- in.
local function call_body(who, f, carry, x)
  local out, y = f(carry.tree, x)
  local after = flatten(out)
  check_alike(who, "the carry", carry, after, "when it goes in", "when it comes out")
  return after, flatten(y)
end

--- Traces body (of the carry's leaves, and slices: the last of inputs) until the carry goes in varying over
--- what it comes out varying over: inside shard_map what starts equal on all devices need not stay so.
local function trace_loop(body, carry, slices)
  while true do
    local nc = #carry.leaves
    local region, captured, results = core.trace_region(function(...)
      local before = table.move({...}, 1, nc, 1, {})
      local out = table.pack(body(...))
      local after = core.vary_like(table.move(out, 1, nc, 1, {}), before)
      return table.unpack(joined(after, table.move(out, nc + 1, out.n, 1, {})))
    end, joined(carry.leaves, slices), #slices)
    local leaves, changed = core.vary_like(carry.leaves, results)
    carry.leaves = leaves
    if not changed then return region, captured end
  end
end

--- One scan node; returns final carries and ys (flattened), and the tree of ys.
local function scan_node(who, f, carry, xs, length, reverse)
  local nc, nx, y_tree, ny, taken = #carry.leaves, #xs.leaves, nil, nil, nil
  local function body(...)
    local values = {...}
    local inside = {leaves = table.move(values, 1, nc, 1, {}), paths = carry.paths}
    inside.tree = unflatten(carry.tree, inside.leaves)
    local slices = table.move(values, nc + 1, nc + nx, 1, {})
    local before = effects.count()
    local after, ys = call_body(who, f, inside, unflatten(xs.tree, slices))
    taken = effects.take(before)
    y_tree, ny = ys.tree, #ys.leaves
    return table.unpack(joined(joined(after.leaves, ys.leaves), taken.tensors))
  end
  local region, captured = trace_loop(body, carry, xs.leaves)
  local out = core.scan(region, joined(joined(carry.leaves, xs.leaves), captured), nc, nx, length, reverse)
  effects.after_loop(taken, table.move(out, nc + ny + 1, #out, 1, {}), length, reverse)
  return table.move(out, 1, nc, 1, {}), table.move(out, nc + 1, nc + ny, 1, {}), y_tree
end

--- The body, `times` after one another, on xs whose slices are stacks of as many.
local function repeated(f, times, reverse)
  return function(carry, xs)
    local flat_xs, ys, tree = flatten(xs), {}, nil
    for k = 1, times do
      local at = reverse and times + 1 - k or k
      local slices = {}
      for i, x in ipairs(flat_xs.leaves) do slices[i] = ops.slice(x, at) end
      local y
      carry, y = f(carry, unflatten(xs, slices))
      local flat = flatten(y)
      tree = y
      for i, leaf in ipairs(flat.leaves) do
        ys[i] = ys[i] or {}
        ys[i][at] = leaf
      end
    end
    for i, list in ipairs(ys) do ys[i] = ops.stack(list, 1) end
    return carry, unflatten(tree, ys)
  end
end

local function part(xs, first, last)
  local leaves = {}
  for i, x in ipairs(xs.leaves) do leaves[i] = ops.slice(x, {first, last}) end
  return leaves
end

--- Scan with `unroll` copies of the body per iteration, and what is left over behind (in front, reversed).
local function unrolled(f, carry, xs, length, reverse, unroll)
  local rounds = length // unroll
  local rest = length - rounds * unroll
  local first, last = reverse and rest + 1 or 1, reverse and length or rounds * unroll
  local groups = part(xs, first, last)
  for i, x in ipairs(groups) do
    groups[i] = x:reshape(joined({rounds, unroll}, table.move(x.shape, 2, x.ndim, 1, {})))
  end
  local grouped = {leaves = groups, paths = xs.paths, tree = xs.tree}
  local out, ys, tree = scan_node("scan", repeated(f, unroll, reverse), carry, grouped, rounds, reverse)
  for i, y in ipairs(ys) do
    ys[i] = y:reshape(joined({rounds * unroll}, table.move(y.shape, 3, y.ndim, 1, {})))
  end
  if rest > 0 then
    local slices = part(xs, reverse and 1 or last + 1, reverse and rest or length)
    local after, more = repeated(f, rest, reverse)(unflatten(carry.tree, out), unflatten(xs.tree, slices))
    out = flatten(after).leaves
    for i, y in ipairs(flatten(more).leaves) do
      ys[i] = ops.concat(reverse and {y, ys[i]} or {ys[i], y}, 1)
    end
  end
  return out, ys, tree
end

--- Runs f for each slice of xs along dim 1: f(carry, x) gives the next carry, and y. Returns the last carry,
--- and ys: y's leaves stacked along a new dim 1. carry, xs and y are tensors, numbers, or trees of them; the
--- carry keeps its structure, shapes and dtypes. The body is traced once; it is differentiable.
---@param f fun(carry: any, x: any): any, any
---@param init any the first carry
---@param xs any a tree of tensors with equally many slices; nil with `length`
---@param options {length: integer, reverse: boolean, unroll: integer}? reverse: the last slice first (ys stay
--- in the order of xs); unroll: copies of the body per iteration
---@return any carry, any ys E_VALUE, E_SHAPE, E_DTYPE where carries or xs do not fit together
function M.scan(f, init, xs, options)
  lib.check_function("scan", f)
  options = lib.options("scan", options)
  local unroll, reverse = options.unroll or 1, options.reverse or false
  if math.type(unroll) ~= "integer" or unroll < 1 then
    raise("E_VALUE", "scan: unroll must be a whole number from 1 on, not %s", lib.not_whole(unroll))
  end
  local out = traced.run(function()
    local flat_xs = flatten(xs)
    local length, carry = length_of(flat_xs, options.length), carry_of(init)
    local last, ys, tree
    if unroll == 1 or length == 0 then
      last, ys, tree = scan_node("scan", f, carry, flat_xs, length, reverse)
    else
      last, ys, tree = unrolled(f, carry, flat_xs, length, reverse, math.min(unroll, length))
    end
    return {carry = unflatten(init, last), ys = unflatten(tree, ys)}
  end)
  return out.carry, out.ys
end

-- ---- while_loop and fori_loop -----------------------------------------------------------------------

local function check_predicate(who, what, p)
  if not core.is_tensor(p) then
    raise("E_VALUE", "%s: %s is %s, not a tensor; compare with x:lt(y) and the like", who, what, lib.kind(p))
  end
  if p.dtype ~= "bool" then
    raise("E_DTYPE", "%s: %s is %s; it must be a bool (x:lt(y), x:ne(0))", who, what, core.typeof(p))
  end
  if p.ndim ~= 0 then
    raise("E_SHAPE", "%s: %s is %s; it must be a scalar (p:any(), p:all())", who, what, core.typeof(p))
  end
  return p
end

--- The last carry, and what was noted in the body.
local function while_once(who, cond_fn, body_fn, init)
  local taken
  local carry = carry_of(init)
  local what = "what the condition gives"
  local region, captured = trace_loop(function(...)
    local inside = {leaves = {...}, paths = carry.paths}
    local before = effects.count()
    local out = body_fn(unflatten(init, inside.leaves))
    taken = effects.take(before)
    local after = flatten(out)
    check_alike(who, "the carry", inside, after, "when it goes in", "when it comes out")
    local again = check_predicate(who, what, cond_fn(unflatten(init, after.leaves)))
    if effects.count() > before then
      raise("E_STATE", "%s: debug_print in the condition is not possible; print in the body", who)
    end
    return table.unpack(joined(after.leaves, {again}))
  end, carry, {})
  local first = check_predicate(who, what, cond_fn(unflatten(init, carry.leaves)))
  local operands = joined(joined(carry.leaves, {first}), captured)
  return unflatten(init, core.while_loop(region, operands, #carry.leaves)), taken
end

--- Stacks of the first iterations' tensors, with x in its place.
local function noted(stack, x, n)
  local start = {n}
  for d = 1, x.ndim do start[d + 1] = 0 end
  return ops.where(n:lt(effects.MOST), ops.dynamic_update_slice(stack, ops.expand_dims(x, 1), start), stack)
end

--- The same once more, with a carry that keeps what is noted in the first iterations, if anything is.
local function while_node(who, cond_fn, body_fn, init)
  local first, taken = while_once(who, cond_fn, body_fn, init)
  if #taken.calls == 0 then return first end
  local start = {value = init, n = 0, seen = {}}
  for i, x in ipairs(taken.tensors) do
    start.seen[i] = ops.zeros({effects.MOST, table.unpack(x.shape)}, x.dtype)
  end
  local last = while_once(who, function(c) return cond_fn(c.value) end, function(c)
    local before, next_one = effects.count(), {n = c.n + 1, seen = {}}
    next_one.value = body_fn(c.value)
    taken = effects.take(before)
    for i, x in ipairs(taken.tensors) do next_one.seen[i] = noted(c.seen[i], x, c.n) end
    return next_one
  end, start)
  effects.after_while(taken, joined(last.seen, {last.n}))
  return last.value
end

--- Runs body_fn on the carry as long as cond_fn of it is true; returns the last carry. Not differentiable:
--- where the number of iterations is known, use fori_loop or scan.
---@param cond_fn fun(carry: any): Tensor a bool scalar
---@param body_fn fun(carry: any): any
---@param init any a tree of tensors and numbers; the carry keeps its structure, shapes and dtypes
function M.while_loop(cond_fn, body_fn, init)
  lib.check_function("while_loop", cond_fn)
  lib.check_function("while_loop", body_fn)
  return traced.run(function() return {while_node("while_loop", cond_fn, body_fn, init)} end)[1]
end

--- A bound as a scalar int32 tensor.
local function bound(name, x)
  x = as_tensor(x)
  if not lib.is_tensor(x) or x.ndim ~= 0 or not x.dtype:match("^u?int") then
    raise("E_VALUE", "fori_loop: %s must be a whole number or an integer scalar, not %s", name,
      lib.is_tensor(x) and core.typeof(x) or lib.kind(x))
  end
  return to_int32(x)
end

--- carry = body(i, carry) for i = lower, ..., upper - 1 (an int32 scalar); returns the last carry. With bounds
--- that are Lua numbers it is a scan, and differentiable.
---@param lower integer|Tensor
---@param upper integer|Tensor not reached
---@param body fun(i: Tensor, carry: any): any
---@param init any
function M.fori_loop(lower, upper, body, init)
  lib.check_function("fori_loop", body)
  local known = math.type(lower) == "integer" and math.type(upper) == "integer"
  if known and upper <= lower then
    return traced.run(function() return {unflatten(init, carry_of(init).leaves)} end)[1]
  end
  local function step(carry) return {i = carry.i + 1, value = body(carry.i, carry.value)} end
  return traced.run(function()
    local start = {i = bound("lower", lower), value = init}
    if known then
      local carry = carry_of(start)
      local last = scan_node("fori_loop", function(c) return step(c) end, carry, flatten(nil), upper - lower,
        false)
      return {unflatten(start, last).value}
    end
    upper = bound("upper", upper)
    return {while_node("fori_loop", function(c) return c.i:lt(upper) end, step, start).value}
  end)[1]
end

-- ---- cond and switch --------------------------------------------------------------------------------

--- Traces each branch with its own copy of the operands; their results must be alike. Behind them each gives what
--- all branches note, its own in its place: `of` says what that is, where it is known. What enters varies over what
--- `steer` does. Returns regions, captures, results, and what each branch noted.
local function trace_branches(who, branches, args, narg, operands, steer, of)
  local regions, captured, taken, first = {}, {}, {}, nil
  for k, branch in ipairs(branches) do
    regions[k], captured[k] = core.trace_region(function(...)
      local before = effects.count()
      local flat = flatten({branch(table.unpack(unflatten(args, {...}), 1, narg))})
      taken[k] = effects.take(before)
      if first then
        check_alike(who, "the result", first, flat, "in branch 0", "in branch " .. k - 1)
      end
      first = first or flat
      local all = flat.leaves
      for j, other in ipairs(of or {}) do
        for i, x in ipairs(other.tensors) do
          all = joined(all, {j == k and taken[k].tensors[i] or effects.nothing_like(x)})
        end
      end
      return table.unpack(all)
    end, operands.leaves, 0, steer)
  end
  return regions, captured, first, taken
end

--- asked: the index must be known before the program runs.
local function branch_node(who, index, branches, args, narg, asked)
  local operands, steer = flatten(args), nil
  if core.cond_is_static(index, asked) then
    steer = index
    local likes = {}
    for i = 1, #operands.leaves do likes[i] = index end
    operands.leaves = (core.vary_like(operands.leaves, likes))
  end
  local regions, captured, first, taken = trace_branches(who, branches, args, narg, operands, steer)
  local noted_any = false
  for _, of in ipairs(taken) do noted_any = noted_any or #of.calls > 0 end
  local mesh, manual = core.manual()
  if noted_any and mesh and #(manual or {}) > 0 then
    raise("E_STATE", "%s: debug_print in a branch inside shard_map is not possible; return the value, and "
      .. "print it behind the branch", who)
  end
  if noted_any then
    regions, captured, first, taken = trace_branches(who, branches, args, narg, operands, steer, taken)
  end
  local out = core.cond(index, operands.leaves, regions, captured, asked)
  if noted_any then
    local n = #first.leaves
    effects.after_branch(taken, joined(table.move(out, n + 1, #out, 1, {}), {index}))
  end
  return unflatten(first.tree, out)
end

--- `index`: a function, as it may have to be made in the trace.
local function run_branches(who, index, branches, asked, ...)
  local args, narg = {...}, select("#", ...)
  return table.unpack(traced.run(function()
    return branch_node(who, index(), branches, args, narg, asked)
  end))
end

local function cond(who, asked, pred, true_fn, false_fn, ...)
  lib.check_function(who, true_fn)
  lib.check_function(who, false_fn)
  if type(pred) == "boolean" then return (pred and true_fn or false_fn)(...) end
  if core.is_box(pred) then pred = pred:get() end
  check_predicate(who, "the predicate", pred)
  return run_branches(who, function() return core.op.astype(pred, {dtype = "int32"}) end,
    {false_fn, true_fn}, asked, ...)
end

--- true_fn(...) or false_fn(...), as the predicate says; only one of them runs. Both must give results of the
--- same structure, shapes and dtypes. A Lua boolean decides while tracing. Inside shard_map devices may differ in the
--- predicate: where it is made of a scan's counter and of axis_index by sums and comparisons, each device runs its
--- own branch alone (see static_cond); else all run both and each takes its own.
---@param pred Tensor|boolean a bool scalar
---@param true_fn function
---@param false_fn function
function M.cond(pred, true_fn, false_fn, ...)
  return cond("cond", false, pred, true_fn, false_fn, ...)
end

--- cond, of which each device must know before the program runs when it takes which branch: the predicate is a
--- comparison, or several with &, of sums of a scan's counter (an ml.arange as its xs) and ml.axis_index.
--- A device whose branch gives an operand back does nothing.
---@param pred Tensor|boolean a bool scalar
---@param true_fn function
---@param false_fn function
---@return any results E_VALUE where the predicate is of another kind
function M.static_cond(pred, true_fn, false_fn, ...)
  return cond("static_cond", true, pred, true_fn, false_fn, ...)
end

--- branches[index + 1](...): the index counts from 0 and is clamped. Only one branch runs; all must give results
--- of the same structure, shapes and dtypes. A Lua number decides while tracing.
---@param index Tensor|integer an integer scalar
---@param branches function[]
function M.switch(index, branches, ...)
  lib.check_list("switch", "the branches", branches)
  if #branches == 0 then raise("E_VALUE", "switch: no branches") end
  for _, branch in ipairs(branches) do lib.check_function("switch", branch) end
  if math.type(index) == "integer" then
    return branches[math.max(0, math.min(index, #branches - 1)) + 1](...)
  end
  if not lib.is_tensor(index) then
    raise("E_VALUE", "switch: the index must be an integer scalar, not %s", lib.kind(index))
  end
  if not index.dtype:match("^u?int") then
    raise("E_DTYPE", "switch: the index is %s; it must be an integer", core.typeof(index))
  end
  if index.ndim ~= 0 then
    raise("E_SHAPE", "switch: the index is %s; it must be a scalar", core.typeof(index))
  end
  return run_branches("switch", function() return to_int32(index) end, branches, false, ...)
end

return lib.export(M)
