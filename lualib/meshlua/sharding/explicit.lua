-- explicit.lua: layouts as part of types: what a P can say beside its entries, and the functions of explicit
-- mode.
local core = require "meshlua.core"
local lib = require "meshlua.lib"
local traced = require "meshlua.transform.traced"
local tree = require "meshlua.tree"

local raise = lib.raise

local M = {}

--- A P like this one with some of its fields replaced:
--- spec:update{partitions = {"x", false}, unreduced = {"y"}}. In partitions a hole is false.
---@param spec P
---@param changes {partitions: table, unreduced: string[], reduced: string[], unreduced_kind: string}
---@return P
local function update(spec, changes)
  if not core.is_spec(spec) then raise("E_SPEC", "P:update: expected a P, got %s", lib.kind(spec)) end
  changes = lib.options("P:update", changes)
  local entries = changes.partitions or spec.partitions
  local options = {unreduced = changes.unreduced or spec.unreduced, reduced = changes.reduced or spec.reduced,
    unreduced_kind = changes.unreduced_kind or not changes.unreduced and spec.unreduced_kind or nil}
  local list = table.move(entries, 1, #entries, 1, {})
  list[#entries + 1] = options
  return core.P(table.unpack(list, 1, #entries + 1))
end
core.methods("meshlua.P").update = core.wrap(update, false, "P:update")

-- ---- which mesh, which sharding ---------------------------------------------------------------------

--- The mesh of the first tensor in a list of values that is on one, else that of the context or trace; nil.
local function mesh_of(values)
  for i = 1, values.n do
    local x, found = values[i], nil
    if lib.is_tensor(x) then
      found = x.sharding.mesh
    elseif type(x) == "table" then
      tree.visit(x, function(_, leaf)
        if lib.is_tensor(leaf) then found = found or leaf.sharding.mesh end
      end)
    end
    if found then return found end
  end
  return core.mesh_here()
end

--- A NamedSharding, of `mesh` where only a P is given.
local function bind(who, s, mesh)
  if core.is_sharding(s) then return s end
  if not core.is_spec(s) then
    raise("E_SPEC", "%s: expected a NamedSharding or a P, got %s", who, lib.kind(s))
  end
  if not mesh then return core.bind_spec(s) end
  return core.NamedSharding(mesh, s)
end

--- The sharding without P.unconstrained; on a mesh with auto axes, what splits no dim is left to them.
local function as_asked(sharding)
  local mesh, parts = sharding.mesh, sharding.spec.partitions
  if not mesh or #core.explicit_here(mesh) == #mesh.axis_names then return sharding end
  for i, entry in ipairs(parts) do parts[i] = entry or core.P.unconstrained end
  return core.NamedSharding(mesh, sharding.spec:update {partitions = parts})
end

--- x as the sharding says. Raises unless it is on the same mesh, or on none.
local function lay_out(who, x, sharding)
  local mesh = x.sharding.mesh
  if mesh and sharding.mesh and mesh ~= sharding.mesh then
    raise("E_MESH", "%s: the tensor is on %s, the sharding on %s; device_put moves between meshes", who,
      mesh, sharding.mesh)
  end
  if sharding.mesh then sharding:check(x.shape, who) end
  return core.op.constrain(x, {layout = as_asked(sharding)})
end

--- Have two traced tensors the same layout along the explicit axes?
function M.lie_alike(a, b)
  local mesh = a.sharding.mesh or b.sharding.mesh
  if not mesh or #core.explicit_here(mesh) == 0 then return true end
  local function sharding_of(x)
    return x.sharding.mesh and x.sharding or core.NamedSharding(mesh, core.P())
  end
  return sharding_of(a) == sharding_of(b)
end

--- y split as x is: a concrete x says all of it, a traced one what its type says.
function M.laid_out_like(y, x)
  local sharding = x.sharding
  local mesh = sharding.mesh
  if not mesh or core.is_traced(x) and #core.explicit_here(mesh) == 0 then return y end
  local spec = sharding.spec
  if #spec.unreduced + #spec.reduced > 0 then
    sharding = core.NamedSharding(mesh, spec:update {unreduced = {}, reduced = {}})
  end
  return core.op.constrain(y, {layout = core.is_traced(x) and as_asked(sharding) or sharding})
end

--- The tensors of a tree as a sharding, or a tree of them, says; nil leaves what is below alone.
local function lay_out_tree(who, x, s, mesh, above)
  if s == nil or type(x) ~= "table" and not lib.is_tensor(x) then return x end
  if type(x) ~= "table" then return lay_out(who, x, bind(who, s, mesh or mesh_of {x, n = 1})) end
  local copy = {}
  above = above or {}
  if above[x] then raise("E_VALUE", "%s: the table contains itself", who) end
  above[x] = true
  for _, key in ipairs(core.tree_keys(x)) do
    local below = s
    if type(s) == "table" then below = s[key] end
    copy[key] = lay_out_tree(who .. "." .. lib.text(key), x[key], below, mesh, above)
  end
  above[x] = nil
  return setmetatable(copy, getmetatable(x))
end

--- The tensors of x laid out as asked: any P of their mesh, also to and from unreduced and reduced. The cotangent
--- goes the way back. Marking a tensor as reduced is free. A tree takes one sharding, or a tree of them.
---@param x Tensor|table
---@param sharding NamedSharding|P|table
function M.reshard(x, sharding)
  if not lib.is_tensor(x) and type(x) ~= "table" then
    raise("E_VALUE", "reshard: expected a tensor or a table of them, got %s", lib.kind(x))
  end
  if type(sharding) ~= "table" then
    bind("reshard", sharding, mesh_of {x, n = 1})
  elseif type(x) ~= "table" then
    raise("E_SPEC", "reshard: the shardings go deeper than the tree")
  end
  return lay_out_tree("reshard", x, sharding)
end

-- ---- out_sharding -----------------------------------------------------------------------------------

--- The function on tensors that takes a table of names behind the other arguments: optional parameters, and
--- out_sharding, which says how the result lies, and settles what the operands' layouts leave open.
function M.with_out_sharding(who, fn)
  fn = core.wrap(fn, false, who)
  return core.with_option("out_sharding", fn, core.wrap(function(...)
    local args, out_sharding = lib.by_name(who, ...)
    if out_sharding == nil then return fn(table.unpack(args, 1, args.n)) end
    local name = who .. ": out_sharding"
    local sharding = bind(name, out_sharding, mesh_of(args))
    local results = traced.run(function()
      local _ <close> = core.resolving(sharding)
      local list = table.pack(fn(table.unpack(args, 1, args.n)))
      for i = 1, list.n do list[i] = lay_out_tree(name, list[i], sharding) end
      return list
    end, sharding.mesh)
    return table.unpack(results, 1, results.n)
  end))
end

-- ---- modes of axes in a function --------------------------------------------------------------------

local function axes_of(who, axes, mesh, default)
  if axes == nil then axes = default end
  if type(axes) == "string" then axes = {axes} end
  for _, axis in ipairs(lib.check_list(who, "axes", axes)) do
    if not mesh.shape[axis] then
      raise("E_SPEC", "%s: axis '%s' is not an axis of %s%s", who, axis, mesh,
        lib.did_you_mean(axis, mesh.axis_names))
    end
  end
  return axes
end

--- What is made of a tensor in the mode that holds now: the same value.
local function seen_here(x)
  if type(x) ~= "table" and not core.is_tensor(x) then return x end
  return tree.map(function(leaf) return core.is_tensor(leaf) and core.variable(leaf) or leaf end, x)
end

local function each(values, fn)
  local out = {n = values.n}
  for i = 1, values.n do out[i] = fn(values[i], i) end
  return out
end

--- fn in which axes of the mesh have another mode. Arguments are made what is inside by enter(x, i, mesh), results what
--- is outside by leave(x, i, mesh).
local function switched(fn, given, mode, axes_at, enter, leave)
  return core.wrap(function(...)
    local args = table.pack(...)
    local mesh = core.is_sharding(given) and given.mesh or mesh_of(args)
    if not mesh then return fn(...) end
    local axes = axes_at(mesh)
    local results = traced.run(function()
      local list
      do
        local _ <close> = core.switching(mesh, axes, mode)
        local inside = each(args, function(x, i) return enter(x, i, mesh) end)
        list = table.pack(fn(table.unpack(inside, 1, inside.n)))
      end
      return each(list, function(x, i) return leave(x, i, mesh) end)
    end, mesh)
    return table.unpack(results, 1, results.n)
  end)
end

--- A function that lays out value i as asked: by one for all, or a list with one for each.
local function laid_out(what, shardings)
  return function(x, i, mesh)
    local s = shardings
    if type(s) == "table" then s = s[i] end
    return lay_out_tree(what, x, s, mesh)
  end
end

--- fn with explicit axes (default: all) left to propagation inside; its results lie as out_sharding says: one for
--- all, or a list with one for each.
---@param fn function
---@param options {axes: string|string[]?, out_sharding: NamedSharding|P|table}
function M.auto_axes(fn, options)
  lib.check_function("auto_axes", fn)
  options = lib.options("auto_axes", options)
  local out = options.out_sharding
  if out == nil then
    raise("E_KEY", "auto_axes: out_sharding is missing; say how the results lie: {out_sharding = P(...)}")
  end
  return switched(fn, out, "auto", function(mesh)
    return axes_of("auto_axes", options.axes, mesh, core.explicit_here(mesh))
  end, seen_here, laid_out("auto_axes: out_sharding", out))
end

--- fn with auto axes (default: all) explicit inside. Its arguments are laid out as in_sharding says: one for all,
--- or a list with one for each.
---@param fn function
---@param options {axes: string|string[]?, in_sharding: NamedSharding|P|table}
function M.explicit_axes(fn, options)
  lib.check_function("explicit_axes", fn)
  options = lib.options("explicit_axes", options)
  local ins = options.in_sharding
  if ins == nil then
    raise("E_KEY", "explicit_axes: in_sharding is missing; say how the arguments lie: {in_sharding = P(...)}")
  end
  return switched(fn, ins, "explicit", function(mesh)
    return axes_of("explicit_axes", options.axes, mesh, mesh.auto_axes)
  end, laid_out("explicit_axes: in_sharding", ins), seen_here)
end

-- ---- constraints ------------------------------------------------------------------------------------

--- What logical axes ask of x on a mesh with explicit axes, as ml.reshard; dims that are left open stay as they
--- are. nil on other meshes.
function M.named(x, sharding)
  local mesh = sharding.mesh
  if not mesh or #core.explicit_here(mesh) == 0 then return nil end
  local parts, have = sharding.spec.partitions, x.sharding.mesh and x.sharding.spec.partitions or {}
  for d, entry in ipairs(parts) do
    if entry == core.P.unconstrained then
      parts[d] = have[d] or #mesh.auto_axes > 0 and core.P.unconstrained or false
    end
  end
  return core.NamedSharding(mesh, core.P(table.unpack(parts)))
end

--- On a mesh whose axes are all explicit a constraint asserts that the type says it already; dims that it
--- leaves open are not looked at.
local function assert_lies(x, sharding)
  local mesh = sharding.mesh
  local now = x.sharding.mesh and x.sharding or core.NamedSharding(mesh, core.P())
  local asked, have = sharding.spec.partitions, now.spec.partitions
  for d, entry in ipairs(asked) do
    if entry == core.P.unconstrained then asked[d], have[d] = false, false end
  end
  if core.NamedSharding(mesh, now.spec:update {partitions = have})
      ~= core.NamedSharding(mesh, sharding.spec:update {partitions = asked}) then
    raise("E_SPEC", "constrain: all axes of the mesh are explicit, so that this is an assertion: the "
      .. "tensor is %s, not %s; use ml.reshard to change how it lies", core.typeof(x),
      sharding.spec)
  end
end

local function list_of(entry)
  return type(entry) == "table" and entry or type(entry) == "string" and {entry} or {}
end

--- What to ask of a dim: the explicit axes that it has, and behind them the auto ones that are asked for.
local function both(have, asked, is_explicit, spec)
  local axes = {}
  for _, axis in ipairs(list_of(have)) do
    if is_explicit[axis] then axes[#axes + 1] = axis end
  end
  if asked == core.P.unconstrained and #axes == 0 then return asked end
  for _, axis in ipairs(list_of(asked)) do
    if is_explicit[axis] then
      raise("E_SPEC", "constrain: axis '%s' of %s is explicit: the type says it, and ml.reshard changes "
        .. "it; a constraint names auto axes only", axis, spec)
    end
    axes[#axes + 1] = axis
  end
  return axes
end

--- What ml.constrain asks of x on a mesh with explicit axes: where all are, nothing: the type must say it
--- already; else the auto axes that the spec names, beside what the type says. Gives the sharding to ask for, or
--- nil.
function M.constraint(x, sharding)
  local mesh = sharding.mesh
  local explicit = mesh and core.explicit_here(mesh) or {}
  if #explicit == 0 then return sharding end
  if #explicit == #mesh.axis_names then return assert_lies(x, sharding) end
  local is_explicit, parts = lib.set(explicit), sharding.spec.partitions
  local have = x.sharding.mesh and x.sharding.spec.partitions or {}
  for d = 1, x.ndim do parts[d] = both(have[d], parts[d], is_explicit, sharding.spec) end
  return core.NamedSharding(mesh, core.P(table.unpack(parts)))
end

return M
