-- shard_map.lua: a function of one device's blocks, run on all of them.
--
-- The function is traced once, for any device. On the way in each tensor becomes this device's block of it,
-- as its in_spec says; on the way out blocks become whole tensors. A value's type says along which mesh axes
-- the devices' values may differ ("{V:data}"), so that a wrong out_spec is found before anything runs.
local core = require "meshlua.core"
local lib = require "meshlua.lib"
local traced = require "meshlua.transform.traced"

local raise = lib.raise

local M = {}

local set_of = lib.set

--- The axes of entry d of a spec, as a list.
local function entry(spec, d)
  local e = spec[d]
  if e == nil then return {} end
  return type(e) == "table" and e or {e}
end

-- ---- options ------------------------------------------------------------------------------------------

--- The mesh: that given, or that in context. Inside another shard_map it is that one's.
local function mesh_of(given)
  local outer, manual = core.manual()
  local context = core.mesh_current() or outer
  if given and not core.is_mesh(given) then
    raise("E_MESH", "shard_map: option 'mesh' must be a Mesh, not %s", lib.kind(given))
  end
  local mesh = given and core.mesh_now(given) or context
  if not mesh then
    raise("E_MESH", "shard_map: there is no mesh; pass mesh = ..., or call it inside mesh:with(fn)")
  end
  if context and mesh ~= context then
    raise("E_MESH", "shard_map: its mesh is %s, but the one in context is %s; leave the option out, or call "
      .. "it outside", mesh, context)
  end
  if #mesh.axis_names == 0 then raise("E_MESH", "shard_map: the mesh has no axes") end
  return mesh, set_of(manual or {})
end

--- Raises where what is traced around the call is on another mesh.
local function check_traced(mesh)
  local around = core.mesh_traced()
  if around and mesh ~= around then
    raise("E_MESH", "shard_map: its mesh is %s, but what is traced around it is on %s; one call has one "
      .. "mesh: call this one outside, with device_put between", mesh, around)
  end
end

--- The axes that become manual: all that are not yet, or those named.
local function axes_of(names, mesh, manual)
  local axes = {}
  if names == nil then
    for _, name in ipairs(mesh.axis_names) do
      if not manual[name] then axes[#axes + 1] = name end
    end
    if #axes == 0 then raise("E_SPEC", "shard_map: every axis of %s is manual already", mesh) end
    return axes
  end
  local seen = {}
  if type(names) == "string" then names = {names} end
  for i, name in ipairs(lib.check_list("shard_map", "axis_names", names)) do
    if type(name) ~= "string" or not mesh.shape[name] then
      raise("E_SPEC", "shard_map: axis_names[%d] is '%s', which is not an axis of %s%s", i, name,
        mesh, lib.did_you_mean(name, mesh.axis_names))
    end
    if seen[name] then raise("E_SPEC", "shard_map: axis_names has '%s' twice", name) end
    if manual[name] then
      raise("E_SPEC", "shard_map: axis '%s' is manual already, by the shard_map around this one", name)
    end
    seen[name], axes[i] = true, name
  end
  if #axes == 0 then raise("E_SPEC", "shard_map: axis_names names no axis") end
  return axes
end

--- Raises unless the spec at `place` names manual axes only, each once.
local function check_spec(spec, place, axes)
  local known, seen = set_of(axes), {}
  if #spec.unreduced > 0 or #spec.reduced > 0 then
    raise("E_SPEC", "shard_map: %s: %s; a value inside says itself what it varies over, so specs have no "
      .. "unreduced and reduced axes", place, spec)
  end
  for d = 1, #spec do
    for _, name in ipairs(entry(spec, d)) do
      if name == core.P.unconstrained then
        raise("E_SPEC", "shard_map: %s: %s leaves dim %d unconstrained; inside, a block has one shape: nil "
          .. "keeps the dim whole", place, spec, d)
      end
      if not known[name] then
        raise("E_SPEC", "shard_map: %s: %s names '%s', which is none of the manual axes (%s); the others are "
          .. "left to propagation", place, spec, name, lib.quoted(axes))
      end
      if seen[name] then
        raise("E_SPEC", "shard_map: %s: %s has duplicate entries for axis '%s'", place, spec, name)
      end
      seen[name] = true
    end
  end
end

local function check_specs(what, specs, axes)
  local above = {}
  local function go(node, path)
    if core.is_spec(node) then return check_spec(node, path, axes) end
    if node == false or node == nil then return end
    if type(node) ~= "table" then
      raise("E_SPEC", "shard_map: %s is %s; expected a P, a tree of them, or false for a static argument",
        path, lib.kind(node))
    end
    if above[node] then raise("E_SPEC", "shard_map: %s contains itself", path) end
    lib.enter("shard_map", node, above)
    for _, key in ipairs(core.tree_keys(node)) do
      go(node[key], ("%s[%s]"):format(path, type(key) == "string" and '"' .. key .. '"' or lib.text(key)))
    end
    lib.leave(node, above)
  end
  go(specs, what)
end

--- A spec (or tree) for value i of n: `specs` is one P for all, or a list with one entry each.
local function spec_at(specs, i)
  if core.is_spec(specs) then return specs end
  return specs[i]
end

local function check_number(what, specs, n, values)
  if core.is_spec(specs) then return end
  local most = 0
  for key in pairs(specs) do
    if math.type(key) ~= "integer" or key < 1 then
      raise("E_SPEC", "shard_map: %s has the key %s; it is a P, or a list with one entry per %s", what,
        key, values)
    end
    most = math.max(most, key)
  end
  if most > n then
    raise("E_SPEC", "shard_map: %s has %s for %s", what, lib.count(most, "entry", "entries"),
      lib.count(n, values))
  end
end

-- ---- trees --------------------------------------------------------------------------------------------

--- Calls visit(leaf, spec, path) for every leaf below `node` and puts what it returns in its place; tables in
--- which nothing changes stay what they are.
local function map_leaves(node, specs, path, visit)
  local above = {}
  local function go(x, spec, at)
    local number = spec ~= nil and type(x) == "number" and at == path
    if lib.is_tensor(x) or number then return visit(x, spec, at) end
    if type(x) ~= "table" then return x end
    if above[x] then raise("E_VALUE", "shard_map: %s: the table contains itself", at) end
    above[x] = true
    local copy, any = {}, false
    for _, key in ipairs(core.tree_keys(x)) do
      local below = spec
      if type(spec) == "table" then below = spec[key] end
      copy[key] = go(x[key], below or nil, at .. "." .. lib.text(key))
      any = any or copy[key] ~= x[key]
    end
    above[x] = nil
    return any and setmetatable(copy, getmetatable(x)) or x
  end
  return go(node, specs or nil, path)
end

local function shape_of(x) return type(x) == "number" and {} or x.shape end

-- ---- in -----------------------------------------------------------------------------------------------

--- What is wrong with the spec for a tensor of this shape, or nil.
local function misfit(x, spec, mesh)
  local shape = shape_of(x)
  if #spec > #shape then
    return ("%s has %s but the tensor has rank %d%s"):format(tostring(spec),
      lib.count(#spec, "entry", "entries"), #shape, #shape == 0 and "; a scalar takes P()" or ""), "E_SPEC"
  end
  for d = 1, #spec do
    local names, n, sizes = entry(spec, d), 1, {}
    for i, name in ipairs(names) do
      n = n * mesh.shape[name]
      sizes[i] = ("'%s' of size %d"):format(name, mesh.shape[name])
    end
    if shape[d] % n ~= 0 then
      return ("dim %d of size %d is not divided by %s (%s)"):format(d, shape[d],
        table.concat(sizes, " and "), tostring(spec)), "E_INDIVISIBLE"
    end
  end
end

--- Raises unless every argument fits its spec, and names all that do not.
local function check_args(args, names, specs, mesh)
  local wrong, code = {}, nil
  for i = 1, args.n do
    local path = names[i] and ("argument %s"):format(names[i]) or ("argument %d"):format(i)
    map_leaves(args[i], spec_at(specs, i), path, function(x, spec, at)
      if not core.is_spec(spec) then
        raise("E_SPEC", "shard_map: %s is a tensor, but in_specs has %s for it; give it a P (P() for one "
          .. "that all devices have whole)", at, spec == nil and "nothing" or "a table")
      end
      local its = lib.is_tensor(x) and x.sharding.mesh
      if its and its ~= mesh then
        raise("E_MESH", "shard_map: %s is on %s, but the mesh is %s; move it with device_put", at,
          its, mesh)
      end
      local what, kind = misfit(x, spec, mesh)
      if what then -- a spec of another rank is the graver mistake
        wrong[#wrong + 1], code = at .. ": " .. what, code == "E_SPEC" and code or kind
      end
      return x
    end)
  end
  if #wrong > 0 then raise(code, "shard_map: %s", table.concat(wrong, "; ")) end
end

-- ---- explicit mode ------------------------------------------------------------------------------------

--- What a tensor's type says along the manual axes that are explicit, as a P of its rank.
local function typed_spec(x, mesh, of, at)
  local spec, entries = x.sharding.spec, {}
  if spec and #spec.unreduced + #spec.reduced > 0 then -- one on no mesh has none
    raise("E_SPEC", "shard_map: %s is %s, and a block is neither part of a sum still to be made nor reduced; "
      .. "ml.reshard it first, to %s", at, core.typeof(x),
      spec:update {unreduced = {}, reduced = {}})
  end
  for d = 1, x.ndim do
    local kept = {}
    for _, name in ipairs(x.sharding.mesh == mesh and entry(spec, d) or {}) do
      if of[name] then kept[#kept + 1] = name end
    end
    entries[d] = #kept > 0 and kept or false
  end
  return core.P(table.unpack(entries, 1, x.ndim))
end

local function intersection(axes, set)
  local both = {}
  for _, name in ipairs(axes) do both[name] = set[name] end
  return both
end

--- in_specs that were not given: what the types of the arguments say.
local function infer_specs(args, mesh, axes, is_explicit)
  for _, name in ipairs(axes) do
    if not is_explicit[name] then
      raise("E_SPEC", "shard_map: no in_specs are given; they can be left out where all manual axes are "
        .. "Explicit, but '%s' is not", name)
    end
  end
  local function specs_of(x, at)
    if lib.is_tensor(x) then return typed_spec(x, mesh, set_of(axes), at) end
    if type(x) ~= "table" then return false end
    local specs = {}
    for _, key in ipairs(core.tree_keys(x)) do specs[key] = specs_of(x[key], at) end
    return specs
  end
  local ins = {}
  for i = 1, args.n do ins[i] = specs_of(args[i], ("argument %d"):format(i)) end
  return ins
end

--- Along explicit axes an argument must lie as its in_spec says: where it does not, moving it is the caller's
--- to ask for.
local function check_types(args, names, specs, mesh, axes, is_explicit)
  local of = intersection(axes, is_explicit)
  if next(of) == nil then return end
  for i = 1, args.n do
    local path = names[i] and ("argument %s"):format(names[i]) or ("argument %d"):format(i)
    map_leaves(args[i], spec_at(specs, i), path, function(x, spec, at)
      if type(x) == "number" then return x end
      local have = typed_spec(x, mesh, of, at)
      for d = 1, x.ndim do
        local want = {}
        for _, name in ipairs(entry(spec, d)) do want[#want + 1] = of[name] and name or nil end
        if table.concat(want, ",") ~= table.concat(entry(have, d), ",") then
          raise("E_SPEC", "shard_map: %s is %s, but its in_spec is %s; along Explicit axes nothing is moved "
            .. "unasked: ml.reshard it first, change the in_spec, or leave in_specs out", at,
            core.typeof(x), spec)
        end
      end
      return x
    end)
  end
end

-- Params hold their blocks while the function runs; closing puts back what they held.
local Held = {}
function Held.__close(held)
  for i, box in ipairs(held.boxes) do
    if held.before[i] then core.box_swap(box, held.before[i]) end
  end
end

local function enter_args(args, specs, mesh, axes, held)
  local entered, spec_of = {n = args.n}, {}
  for i = 1, args.n do
    entered[i] = map_leaves(args[i], spec_at(specs, i), "", function(x, spec)
      if not core.is_box(x) then
        return core.manual_enter(type(x) == "number" and core.tensor(x) or x, mesh, spec, axes)
      end
      if spec_of[x] and spec_of[x] ~= spec then
        raise("E_SPEC", "shard_map: one Param stands in the arguments twice, with %s and with %s",
          spec_of[x], spec)
      end
      if not spec_of[x] then
        local k = #held.boxes + 1
        local block = core.manual_enter(x, mesh, spec, axes)
        held.boxes[k], held.block[k], held.before[k] = x, block, false
        spec_of[x] = spec
      end
      return x
    end)
  end
  for i, box in ipairs(held.boxes) do held.before[i] = core.box_swap(box, held.block[i]) end
  return entered
end

local function check_held(held)
  for i, box in ipairs(held.boxes) do
    if not rawequal(core.box_swap(box, held.before[i]), held.block[i]) then
      held.before[i] = false
      raise("E_STATE", "shard_map: its function writes a Param; return the new value through out_specs and "
        .. "set it outside")
    end
    held.before[i] = false
  end
end

-- ---- out ----------------------------------------------------------------------------------------------

--- What keeps a result from being put together by its spec, or nil.
local function cannot_leave(x, spec, axes)
  if #spec > #shape_of(x) then
    local rank = #shape_of(x)
    local way_out = rank > 0 and "leave entries out"
      or "a scalar takes P(), or reshape({1}) makes one element per device"
    return ("%s has %s but the value has rank %d; %s"):format(tostring(spec),
      lib.count(#spec, "entry", "entries"), rank, way_out)
  end
  if type(x) == "number" then return end
  local named, is_manual, left = {}, set_of(axes), {}
  for d = 1, #spec do
    for _, name in ipairs(entry(spec, d)) do named[name] = true end
  end
  local varies, sums = core.vary(x)
  if #sums > 0 then
    return ("it is %s: psum an unreduced value, and return a reduced one as it was before pcast"):format(
      core.typeof(x))
  end
  for _, name in ipairs(varies) do
    if is_manual[name] and not named[name] then left[#left + 1] = name end
  end
  if #left == 0 then return end
  return ("it varies over mesh axis %s, which %s does not name: that all devices along it have the same "
    .. "value can't be statically inferred; reduce it over the axis (psum, pmean, pmax), or name the axis "
    .. "in out_specs"):format(lib.quoted(left), tostring(spec))
end

--- The results as whole tensors.
local function exit_results(results, specs, mesh, axes)
  -- A tree alone stands for the list of one tree.
  if not core.is_spec(specs) and rawlen(specs) == 0 and next(specs) ~= nil and results.n == 1 then
    specs = {specs}
  end
  check_number("out_specs", specs, results.n, "result")
  local function each(visit)
    local out = {n = results.n}
    for i = 1, results.n do
      local path = results.n == 1 and "output" or ("output %d"):format(i)
      out[i] = map_leaves(results[i], spec_at(specs, i), path, visit)
    end
    return out
  end
  local wrong = {}
  each(function(x, spec, at)
    if not core.is_spec(spec) then
      raise("E_SPEC", "shard_map: %s is a tensor, but out_specs has %s for it; give it a P", at,
        spec == nil and "nothing" or "a table")
    end
    local what = cannot_leave(x, spec, axes)
    if what then wrong[#wrong + 1] = at .. ": " .. what end
    return x
  end)
  if #wrong > 0 then raise("E_SPEC", "shard_map: %s", table.concat(wrong, "; ")) end
  return each(function(x, spec)
    return core.manual_exit(type(x) == "number" and core.tensor(x) or x, mesh, spec, axes)
  end)
end

-- ---- the call -----------------------------------------------------------------------------------------

local function check_given(options, what)
  local specs = options[what]
  if specs == nil and what == "in_specs" then return nil end
  if specs == nil then
    raise("E_SPEC", "shard_map: no out_specs are given; give a P, or a list with one entry per result")
  end
  if not core.is_spec(specs) and type(specs) ~= "table" then
    raise("E_SPEC", "shard_map: %s is %s; expected a P, or a list with one entry per %s", what,
      lib.kind(specs), what == "in_specs" and "argument" or "result")
  end
  return specs
end

local function run(fn, args, names, mesh, axes, ins, outs)
  local is_explicit = set_of(core.explicit_here(mesh))
  if ins == nil then ins = infer_specs(args, mesh, axes, is_explicit) end
  check_number("in_specs", ins, args.n, "argument")
  check_args(args, names, ins, mesh)
  check_types(args, names, ins, mesh, axes, is_explicit)
  local held <close> = setmetatable({boxes = {}, block = {}, before = {}}, Held)
  local entered = enter_args(args, ins, mesh, axes, held)
  return core.in_manual(mesh, axes, function()
    local results = table.pack(fn(table.unpack(entered, 1, entered.n)))
    check_held(held)
    return exit_results(results, outs, mesh, axes)
  end)
end

--- A function that runs fn on every device of a mesh, on its block of each argument. Inside, shapes are those
--- of blocks and the collectives (psum, all_gather, ...) reach the other devices' blocks. Arguments are resharded
--- to their in_specs. A dim of a result is put together along the axes that its out_spec names; a result that
--- may differ along an axis that it does not name is an error (E_SPEC), before anything runs.
---  in_specs: one P for all arguments, or a list with one entry each: a P, a tree (prefix) of them, or false
---    for an argument that is no tensor. Along Explicit axes an argument must lie as its in_spec says; where
---    all manual axes are Explicit, in_specs can be left out.
---  out_specs: the same for the results; of one result that is a table also a tree with its keys.
---  axis_names: the axes that become manual (default all); the others are left to propagation.
--- Errors: E_INDIVISIBLE names every argument that does not divide, E_SPEC what does not fit, E_MESH.
---@param fn function
---@param options {mesh: Mesh?, in_specs: P|table|nil, out_specs: P|table, axis_names: string[]?}
---@return function
function M.shard_map(fn, options)
  lib.check_function("shard_map", fn)
  options = lib.options("shard_map", options)
  local ins, outs = check_given(options, "in_specs"), check_given(options, "out_specs")
  local given, axis_names, names = options.mesh, options.axis_names, lib.parameters(fn)
  if given then mesh_of(given) end
  return core.wrap(function(...)
    local args = table.pack(...)
    local mesh, manual = mesh_of(given)
    check_traced(mesh)
    local axes = axes_of(axis_names, mesh, manual)
    if ins ~= nil then check_specs("in_specs", ins, axes) end
    check_specs("out_specs", outs, axes)
    local results = traced.run(function() return run(fn, args, names, mesh, axes, ins, outs) end, mesh)
    return table.unpack(results, 1, results.n)
  end)
end

return lib.export(M)
