-- mesh.lua: meshes from sizes or devices, and placing tensors on them.
local core = require "meshlua.core"
local lib = require "meshlua.lib"
local args = require "meshlua.ops.args"
local explicit = require "meshlua.sharding.explicit"
local rules_of = require "meshlua.sharding.rules"

local op, raise = core.op, lib.raise

local M = {}

local MAX_AXES = 8

--- Devices from a nested list: sizes, flat ids.
local function flatten_devices(devices)
  local sizes, ids = {}, {}
  local function go(node, depth)
    if math.type(node) == "integer" then
      ids[#ids + 1] = node
      if depth <= #sizes then raise("E_MESH", "mesh: the device list is ragged") end
      return
    end
    if type(node) ~= "table" then
      raise("E_MESH", "mesh: devices are ids (0-based), not %s", lib.kind(node))
    end
    if depth > MAX_AXES then raise("E_MESH", "mesh: the device list has more than %d levels", MAX_AXES) end
    if sizes[depth] == nil and #ids == 0 then sizes[depth] = #node end
    if sizes[depth] ~= #node then raise("E_MESH", "mesh: the device list is ragged") end
    for _, child in ipairs(node) do go(child, depth + 1) end
  end
  go(devices, 1)
  return sizes, ids
end

--- The type of each axis as a list, from what the user wrote: one for all, a list, or types by name
--- (the others are auto).
local function axis_types_of(who, types, names)
  local list = {}
  if types == nil then return nil end
  if type(types) == "string" then
    for i in ipairs(names) do list[i] = types end
    return list
  end
  if type(types) ~= "table" then
    raise("E_MESH", "%s: axis_types is \"auto\", \"explicit\", a list of them or a table by axis, not %s",
      who, lib.kind(types))
  end
  if types[1] ~= nil then
    if #types ~= #names then
      raise("E_MESH", "%s: %s for %s; give one for each axis name", who, lib.count(#types, "axis type"),
        lib.count(#names, "axis", "axes"))
    end
    return types
  end
  for i in ipairs(names) do list[i] = "auto" end
  for name, value in pairs(types) do
    local at = lib.position(names, name)
    if not at then
      raise("E_MESH", "%s: axis_types names '%s', which is no axis%s", who, name,
        lib.did_you_mean(name, names))
    end
    list[at] = value
  end
  return list
end

--- A mesh from a nested list of device ids: Mesh({{0, 1}, {2, 3}}, {"data", "model"}). Axes are "auto"
--- unless axis_types says "explicit": for all, in order, or by name.
---@param devices integer[]|table
---@param names string[]|string
---@param options {axis_types: string|string[]|table<string, string>}?
function M.Mesh(devices, names, options)
  options = lib.options("Mesh", options)
  if type(names) == "string" then names = {names} end
  if type(devices) ~= "table" or type(names) ~= "table" then
    raise("E_MESH", "Mesh: expected a list of device ids and a list of names")
  end
  local sizes, ids = flatten_devices(devices)
  if #sizes ~= #names then
    raise("E_MESH", "Mesh: %s for a device list of rank %d", lib.count(#names, "name"), #sizes)
  end
  return core.mesh_new(names, sizes, ids, axis_types_of("Mesh", options.axis_types, names))
end

local function check_sizes(who, sizes, names)
  if type(sizes) ~= "table" or type(names) ~= "table" then
    raise("E_MESH", "%s: expected a list of sizes and a list of names: {4, 2}, {\"data\", \"model\"}", who)
  end
  if #sizes ~= #names then
    raise("E_MESH", "%s: %s but %s", who, lib.count(#sizes, "size"), lib.count(#names, "name"))
  end
  for i, n in ipairs(sizes) do
    if math.type(n) ~= "integer" or n < 1 then
      raise("E_MESH", "%s: the size of axis '%s' is %s; sizes are whole numbers from 1 on", who,
        names[i], n)
    end
  end
end

--- Where a mesh with these axes was made last: "train.lua:7"; nil where nobody knows.
M.lines = {}

local function note_line(sizes, names)
  for level = 3, 12 do
    local info = debug.getinfo(level, "Sl")
    if info and info.currentline > 0 and not info.source:find "^=meshlua/" then
      M.lines[table.concat(names, ",") .. " " .. table.concat(sizes, ",")] = ("%s:%d"):format(info.short_src,
        info.currentline)
      return
    end
  end
end

--- A mesh over all devices, the last axis fastest: make_mesh({4, 2}, {"data", "model"}). Options: `devices`,
--- the ids to use, in order (a plain list in their place is that list); `axis_types`, as for Mesh.
---@param sizes integer[]
---@param names string[]
---@param options integer[]|{devices: integer[], axis_types: string|string[]|table<string, string>}?
function M.make_mesh(sizes, names, options)
  local devices = options
  if type(options) == "table" and type(next(options)) == "string" then
    options = lib.options("make_mesh", options)
    devices = options.devices
  else
    options = {}
  end
  check_sizes("make_mesh", sizes, names)
  local mesh = core.mesh_new(names, sizes, devices or core.devices(),
    axis_types_of("make_mesh", options.axis_types, names))
  note_line(sizes, names)
  return mesh
end

--- Names and sizes of a mesh without devices: shardings on it tell shapes and can be planned for (see
--- ml.ShapeDtypeStruct), and hold no data. The last axis is the fastest.
---@param sizes integer[]
---@param names string[]
---@param options {axis_types: string|string[]|table<string, string>}? as for Mesh
function M.AbstractMesh(sizes, names, options)
  check_sizes("AbstractMesh", sizes, names)
  options = lib.options("AbstractMesh", options)
  return core.mesh_new(names, sizes, nil, axis_types_of("AbstractMesh", options.axis_types, names))
end

--- Raises unless the leaf `place` of what is to be put can have the sharding; gives it back.
local function check_put(x, sharding, place)
  local shape = type(x) == "userdata" and x.shape or {}
  if sharding.mesh then sharding:check(shape, place) end
  return x
end

--- A concrete tensor in another sharding.
local function moved_to(x, sharding)
  local between = x.sharding.mesh and x.sharding.mesh ~= sharding.mesh
  if sharding.mesh == nil or between then
    return core.put_across(x, sharding.mesh and sharding or nil)
  end
  return op.constrain(x, {layout = sharding})
end

--- x moved; `options` as device_put has them.
local function put(x, sharding, options)
  if type(x) == "number" or type(x) == "boolean" then x = core.tensor(x) end
  if core.is_box(x) then
    x:set(put(x:get(), sharding, options))
    return x
  end
  if core.is_traced(x) then return op.constrain(x, {layout = sharding}) end
  local to = sharding.mesh and sharding or nil
  if options.may_alias == false then return core.put_across(x, to) end
  if x.sharding == sharding then return x end
  local moved = moved_to(x, sharding)
  if options.donate then core.donate(x, "it was donated to device_put") end
  return moved
end

local function as_sharding(who, s)
  if core.is_spec(s) then return core.bind_spec(s) end
  if math.type(s) == "integer" then return core.NamedSharding(M.make_mesh({}, {}, {s}), core.P()) end
  if not core.is_sharding(s) then
    raise("E_SPEC", "%s: expected a NamedSharding or a P, got %s", who, lib.kind(s))
  end
  return s
end

--- x, or every leaf of a tree, with the given sharding: committed to its devices. A tree of shardings may stop
--- where one sharding serves all below it; nil leaves a leaf alone. A tensor that lies as asked is given back
--- itself.
---@param x Tensor|table|number
---@param sharding NamedSharding|P|integer|table|nil an integer is a device, from 0
---@param options {donate: boolean, may_alias: boolean}? donate: what is moved is gone afterwards. may_alias =
--- false: always a copy with bytes of its own. E_VALUE where both are asked for
function M.device_put(x, sharding, options)
  options = lib.options("device_put", options)
  if options.donate and options.may_alias then
    raise("E_VALUE", "device_put: donate and may_alias cannot both be true: what is donated is gone")
  end
  return M.place("device_put", x, sharding, options)
end

--- The names at a level of a tree, for messages.
local function names_text(node)
  local names = {}
  for i, key in ipairs(core.tree_keys(node)) do names[i] = lib.text(key) end
  if #names == 0 then return "nothing" end
  return lib.some(names, 8)
end

--- Raises where a tree of shardings has something that the tree has not.
local function check_prefix(node, shardings, place)
  for _, key in ipairs(core.tree_keys(shardings)) do
    if node[key] == nil and shardings[key] then
      raise("E_SPEC", "%s: the shardings have '%s', but the tree has %s", place, key,
        names_text(node))
    end
  end
end

--- The same for the function `who`, which errors name. false in a tree of shardings leaves alone, as nil does.
function M.place(who, x, sharding, options)
  local above = {}
  options = options or {}
  local function place_of(path) return path == "" and who or who .. ": " .. path end
  local function go(node, s, path, leaf)
    local is_leaf = lib.is_tensor(node)
    -- A number inside a tree is static: a module's settings stay what they are.
    local is_static = not is_leaf and type(node) ~= "table" and (path ~= "" or type(node) ~= "number")
    if not s or is_static then return node end
    if type(s) ~= "table" then s = as_sharding(place_of(path), s) end
    if type(node) == "table" then
      if above[node] then raise("E_VALUE", "%s: the table contains itself", place_of(path)) end
      lib.enter(who, node, above)
      if type(s) == "table" then check_prefix(node, s, place_of(path)) end
      local copy = {}
      for _, key in ipairs(core.tree_keys(node)) do
        local below = s
        if type(s) == "table" then below = s[key] end
        local name = lib.below(path, key)
        copy[key] = go(node[key], below, name, leaf)
      end
      lib.leave(node, above)
      return setmetatable(copy, getmetatable(node))
    end
    if type(s) == "table" then
      raise("E_SPEC", "%s: the shardings go deeper than the tree", place_of(path))
    end
    return leaf(node, s, place_of(path))
  end
  go(x, sharding, "", check_put) -- all of it before any of it is moved
  return go(x, sharding, "", function(leaf, s) return put(leaf, s, options) end)
end

--- The tensor with the layout, as a hard constraint: P(...) names mesh axes, a table logical axes. Where rules
--- are in context and no mesh (one device), logical axes ask for nothing. P.unconstrained leaves a dim to
--- propagation.
function M.constrain(x, spec)
  args.check_tensor("constrain", x)
  if type(spec) == "table" then
    spec = rules_of.spec_of(spec, "constrain", x.ndim)
    if not core.mesh_current() then return x end
    local wanted = explicit.named(x, as_sharding("constrain", spec))
    if wanted then return op.constrain(x, {layout = wanted}) end
  end
  local sharding = explicit.constraint(x, as_sharding("constrain", spec))
  return sharding and op.constrain(x, {layout = sharding}) or x
end

--- x and y, which propagation gives one layout, whatever it is. Their shapes are equal (E_SHAPE); two arguments
--- or constraints that lie differently are an error (E_SPEC).
---@param x Tensor
---@param y Tensor
---@return Tensor x, Tensor y
function M.shard_alike(x, y)
  local same = op.shard_alike(args.check_tensor("shard_alike", x, "x"),
    args.check_tensor("shard_alike", y, "y"))
  return same, op.shard_alike(y, same)
end

--- x; the layouts of what makes it and of what uses it do not reach each other.
---@param x Tensor
---@return Tensor
function M.propagation_barrier(x)
  return op.propagation_barrier(args.check_tensor("propagation_barrier", x))
end

--- Calls fn with this mesh (and rules) in context: there a bare P is a sharding, and logical names are
--- known. mesh:with(fn) or mesh:with(rules, fn); further arguments go to fn.
local function with(mesh, rules, fn, ...)
  local is_called = type(rules) == "function" or core.type_name(rules) == "jit"
  if is_called then return with(mesh, nil, rules, fn, ...) end
  lib.check_function("with", fn)
  return rules_of.within(mesh, rules, fn, ...)
end
core.methods("meshlua.Mesh").with = core.wrap(with, false, "Mesh:with")

--- Puts a mesh into context (nil: none), until another one is put there, or, as `local _ <close> =
--- ml.set_mesh(mesh)`, until the end of the block. E_STATE inside a traced function.
---@param mesh Mesh?
---@return table scope closing it puts the mesh of before back
function M.set_mesh(mesh)
  if mesh ~= nil and not core.is_mesh(mesh) then
    raise("E_VALUE", "set_mesh: expected a Mesh or nil, got %s", lib.kind(mesh))
  end
  local before = core.mesh_current()
  local scope = setmetatable({}, {__close = function() core.set_mesh(before) end})
  core.set_mesh(mesh) -- last: nothing fails after it
  return scope
end

--- The mesh in context, or nil; also inside a traced function.
---@return Mesh?
function M.get_mesh() return core.mesh_current() end

return lib.export(M)
