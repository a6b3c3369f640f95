-- leaves.lua: the same bits on every mesh. A batch is cut into a fixed number of leaves, equal runs of its rows in
-- their order; what is computed of them is added as a binary tree: of two neighbours, of two such sums, and so on. The
-- devices along the axes over which the batch is split have a subtree each, so many leaves one after the other, and
-- their all_reduce, which is a binary tree over device coordinates, goes on with it.
--
-- A leaf is the body of a loop in a shard_map over these axes, whatever the mesh, the loop's length alone
-- differs: the kernels that compute it see one leaf and its shapes, so that no bit of it depends on its neighbours.
local control = require "meshlua.transform.control"
local core = require "meshlua.core"
local lib = require "meshlua.lib"
local ops = require "meshlua.ops"
local rules_of = require "meshlua.sharding.rules"
local scope = require "meshlua.transform.scope"
local shard_map = require "meshlua.sharding.shard_map"
local trace = require "meshlua.transform.trace"

local raise = lib.raise

local M = {}

local MOST = 4 -- so many results, of leaves and of sums of them, are kept until they are added

--- Is n 1, 2, 4, 8, ...?
local function is_power(n) return n > 0 and n & (n - 1) == 0 end

--- The largest power of two that is at most `most` and divides n.
---@param n integer
---@param most integer
---@return integer
function M.largest(n, most)
  local size = 1
  while size * 2 <= most and n % (size * 2) == 0 do size = size * 2 end
  return size
end

--- "data", "data and model" of a list of mesh axes.
local function axes_text(axes) return table.concat(axes, " and ") end

--- How many devices there are along the axes.
local function devices_along(mesh, axes)
  local devices = 1
  for _, name in ipairs(axes) do devices = devices * mesh.shape[name] end
  return devices
end

--- What is wrong with n leaves of so many rows, which lie over the axes of a mesh; or nil.
---@param what string the tensor, for messages
---@param rows integer
---@param n integer
---@param mesh Mesh?
---@param axes string[] over which the rows are split; none: {}
---@return string? message, string? code
function M.fault(what, rows, n, mesh, axes)
  if not is_power(n) then
    local below = 1
    while below * 2 < n do below = below * 2 end
    local above = n < 1 and 2 or 2 * below
    return ("%d leaves are no binary tree; take %d or %d"):format(n, below, above), "E_VALUE"
  end
  if rows % n ~= 0 then
    return ("%s has %s, which %d leaves do not divide; take %d or %d rows, or %d leaves or fewer (a power of "
      .. "two)"):format(what, lib.count(rows, "row"), n, rows // n * n, (rows // n + 1) * n,
      M.largest(rows, n)), "E_SHAPE"
  end
  local devices = devices_along(mesh, axes)
  if not is_power(devices) then
    return ("%d leaves do not lie evenly on the %d devices along %s; take 1, 2, 4 or another power of two of "
      .. "them"):format(n, devices, axes_text(axes)), "E_INDIVISIBLE"
  elseif devices > n then
    return ("%d leaves for %d devices along %s: each has at least one; take %d leaves, or %s"):format(n,
      devices, axes_text(axes), devices, n == 1 and "one device" or n .. " devices or fewer"), "E_INDIVISIBLE"
  end
end

--- The mesh axes that the rules in context give the logical axis "batch"; nil: none does.
local function axes_by_rules()
  for _, rule in ipairs(core.mesh_current() and core.rules_current() or {}) do
    if type(rule) == "table" and rule[1] == "batch" then
      local entry = rules_of.spec_of({"batch"}, "the batch", 1)[1]
      return lib.axes_of(entry)
    end
  end
end

--- The mesh and its axes over which rows of the batch are split. The tensors say so; where they are whole, or were
--- computed in the trace, which decides later, the rules for the logical axis "batch".
local function axes_of(rows, names)
  local mesh, axes, from, known = core.mesh_current() or core.mesh_traced(), {}, nil, false
  for i, x in ipairs(rows) do
    local sharding = x.sharding
    local own = lib.axes_of(sharding.mesh and sharding.spec[1])
    mesh, known = sharding.mesh or mesh, known or sharding.mesh ~= nil
    if #own > 0 and own[1] ~= core.P.unconstrained then
      if from and table.concat(axes, ",") ~= table.concat(own, ",") then
        raise("E_SPEC", "accumulate: the rows of %s are split over %s, those of %s over %s; a leaf has rows "
          .. "of both, so device_put them alike", from, axes_text(axes), names[i], axes_text(own))
      end
      axes, from = own, names[i]
    end
  end
  local ruled = not from and axes_by_rules()
  if not (known or ruled) and mesh and mesh.size > 1 then
    raise("E_SPEC", "accumulate: nothing says over which axes of %s the rows are split: %s was computed in "
      .. "the traced function, or is on no mesh; pass it as an argument that lies there, or give a rule for "
      .. "the logical axis \"batch\"", mesh, names[1])
  end
  local kept = {}
  for _, name in ipairs(ruled or axes) do
    if mesh.shape[name] > 1 then kept[#kept + 1] = name end
  end
  return mesh, kept
end

--- Raises unless the axes come in the order of the mesh: the tree over devices is in that of their coordinates.
local function check_order(mesh, axes)
  local last, at = 0, {}
  for i, name in ipairs(mesh and mesh.axis_names or {}) do at[name] = i end
  for _, name in ipairs(axes) do
    if at[name] < last then
      raise("E_SPEC", "accumulate: the batch is split over %s, in another order than %s has its axes, in "
        .. "which sums over devices are made; name them in that order", axes_text(axes), mesh)
    end
    last = at[name]
  end
end

--- The rules as they are for one device's rows: what goes to an axis over which the leaves lie stays whole.
local function inner_rules(rules, axes)
  local out, is_outer = {}, lib.set(axes)
  for i, rule in ipairs(rules) do
    local to = type(rule) == "table" and rule[2]
    out[i] = rule
    if to and not core.is_spec(to) then
      local kept = {}
      for _, name in ipairs(type(to) == "table" and to or {to}) do
        if not is_outer[name] then kept[#kept + 1] = name end
      end
      out[i] = {rule[1], #kept > 0 and kept, uneven = rule.uneven, priority = rule.priority}
    end
  end
  return out
end

--- x with its first dim as two.
local function cut(x, n)
  local shape = x.shape
  return x:reshape(table.move(shape, 2, #shape, 3, {n, shape[1] // n}))
end

--- How many results a device keeps at once where it has n leaves: of each level of its tree at most MOST.
---@param n integer
---@return integer
function M.kept(n) return n > MOST and MOST + M.kept(n // MOST) or n end

--- The sum of a list as a binary tree of neighbours.
local function tree_sum(list)
  while #list > 1 do
    local sums = {}
    for i = 1, #list, 2 do sums[#sums + 1] = list[i] + list[i + 1] end
    list = sums
  end
  return list[1]
end

--- fn of each of n slices of the stacks, one after the other: of the first list that it returns the sums, of the
--- second what the last slice gave.
local function total(fn, stacks, n)
  if n > MOST then -- runs of leaves, then of sums of these
    local runs = {}
    for i, x in ipairs(stacks) do runs[i] = cut(x, n // MOST) end
    return total(function(own) return total(fn, own, MOST) end, runs, n // MOST)
  end
  local _, all = control.scan(function(_, slices)
    local sums, last = fn(slices)
    return {}, {sums = sums, last = last}
  end, {}, stacks)
  local sums, last = {}, {}
  for i, y in ipairs(all.sums) do
    local parts = {}
    for k = 1, n do parts[k] = ops.at(y, k) end
    sums[i] = tree_sum(parts)
  end
  for i, y in ipairs(all.last) do last[i] = ops.at(y, n) end
  return sums, last
end

--- x as its sums are made: of 16-bit floats in float32, which an all_reduce rounds once, and additions each time.
local function wide(x) return lib.floats[x.dtype] and x.dtype ~= "float64" and x:astype "float32" or x end

--- The sums in the dtypes of what was summed; then the other list.
local function narrow(dtypes, sums, last)
  for i, x in ipairs(sums) do sums[i] = x:astype(dtypes[i]) end
  return sums, last
end

--- Calls fn(slices, number) in the trace under way for each of n leaves of the tensors in `rows`: slices[i] has the
--- leaf's rows of rows[i], number is which leaf it is (uint32, from 0). fn returns two lists of tensors. Gives the sums
--- of the first over all leaves, and of the second what one leaf gave: it must be the same of all.
---@param n integer a power of two
---@param rows Tensor[]
---@param names string[] what these are, for messages
---@param fn fun(slices: Tensor[], number: Tensor): Tensor[], Tensor[]
---@return Tensor[] sums, Tensor[] last
function M.sum(n, rows, names, fn)
  local mesh, axes = axes_of(rows, names)
  for i, x in ipairs(rows) do
    local message, code = M.fault(names[i], x.shape[1], n, mesh, axes)
    if message then raise(code, "accumulate: %s", message) end
  end
  check_order(mesh, axes)
  if trace.leaf() then raise("E_STATE", "accumulate: there are leaves around it, and a leaf has none") end
  local stacks = {}
  for i, x in ipairs(rows) do stacks[i] = cut(x, n) end
  stacks[#stacks + 1] = ops.arange(n):astype "uint32"
  local rules, dtypes = core.rules_current(), nil
  if rules and #axes > 0 then rules = inner_rules(rules, axes) end
  local function one(slices)
    local number = table.remove(slices)
    local leaf <close> = trace.in_leaf(number, axes) -- luacheck: ignore
    local add, keep = core.in_context(core.mesh_current(), rules, fn, slices, number)
    dtypes = {}
    for i, x in ipairs(add) do dtypes[i], add[i] = x.dtype, wide(x) end
    return add, keep
  end
  if #axes == 0 then
    local sums, last = total(one, stacks, n)
    return narrow(dtypes, sums, last)
  end
  local devices = devices_along(mesh, axes)
  local all = table.pack(shard_map.shard_map(function(...)
    local sums, last = total(one, {...}, n // devices)
    scope.named_scope("leaves", function() -- explain says so of the reduction
      for i, x in ipairs(sums) do sums[i] = core.op.all_reduce(x, {axes = axes, kind = "sum"}) end
    end)
    return table.unpack(table.move(last, 1, #last, #sums + 1, sums))
  end, {mesh = mesh, axis_names = axes, in_specs = core.P(axes), out_specs = core.P()})(table.unpack(stacks)))
  local nsum = #dtypes
  return narrow(dtypes, table.move(all, 1, nsum, 1, {}), table.move(all, nsum + 1, all.n, 1, {}))
end

return M
