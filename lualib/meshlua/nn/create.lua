-- create.lua: ml.init, which makes a module with every Param born in its sharding, and ml.abstract,
-- which tells the types of what a function makes without making it.
local core = require "meshlua.core"
local lib = require "meshlua.lib"
local module = require "meshlua.nn.module"
local param = require "meshlua.nn.param"
local rngs_of = require "meshlua.nn.rngs"
local rules_of = require "meshlua.sharding.rules"
local trace = require "meshlua.transform.trace"
local tree = require "meshlua.tree"

local op, raise = core.op, lib.raise

local M = {}

-- ---- shardings of Params ----------------------------------------------------------------------------

--- The sharding of a Param by its axes and the rules in context; replicated where nothing says how it
--- lies. Raises, naming the path, where its shape does not allow it.
local function sharding_of(mesh, box, path)
  local sharding = core.NamedSharding(mesh, rules_of.param_spec(box, path) or core.P())
  sharding:check(box.shape, path)
  return sharding
end

--- The sharding of a Param's optimizer state where it is not the Param's, or nil.
local function state_sharding_of(mesh, box, path)
  local spec = rules_of.state_spec(box, path)
  if not spec then return nil end
  local sharding = core.NamedSharding(mesh, spec)
  sharding:check(box.shape, path .. " (optimizer state)")
  return sharding
end

-- ---- init -------------------------------------------------------------------------------------------

--- Calls fn(rngs) in the trace under way. Returns the module, its leaves, and for each leaf the traced
--- tensor in its sharding.
local function build(fn, rngs, mesh)
  local model = fn(rngs)
  if type(model) ~= "table" then
    raise("E_VALUE", "init: the function returned a %s; expected a module", type(model))
  end
  local leaves, paths = tree.leaves(model)
  local placed = {}
  for i, leaf in ipairs(leaves) do
    local box = core.is_box(leaf)
    local value = box and leaf:get() or leaf
    if value == nil then raise("E_VALUE", "init: the Param at %s is empty", paths[i]) end
    if box and (mesh or core.rules_current()) then
      param.note_birth(leaf, {rules = core.rules_current(), path = paths[i]})
    end
    if mesh then
      local sharding
      if box then
        sharding = sharding_of(mesh, leaf, paths[i])
        param.set_sharding(leaf, sharding)
        core.box_meta(leaf).opt_sharding = state_sharding_of(mesh, leaf, paths[i])
      else
        sharding = core.NamedSharding(mesh, core.P())
      end
      value = op.constrain(value, {layout = sharding})
    elseif not core.is_traced(value) then
      value = op.identity(value)
    end
    placed[i] = value
  end
  return model, leaves, placed
end

local again = setmetatable({}, {__close = function() lib.no_values = nil end})

--- On devices that are not there nobody sees a value: from here until the result is closed initialisers draw nothing.
local function no_values()
  local _, fake = core.device_kind()
  lib.no_values = fake or nil
  return again
end

--- Puts the leaves' values in place: into boxes, and into the tables that hold plain tensors.
local function settle(model, leaves, values)
  local with = {}
  for i, leaf in ipairs(leaves) do
    if core.is_box(leaf) then core.box_swap(leaf, values[i]) else with[leaf] = values[i] end
  end
  trace.fill(model, with)
  return model
end

--- Raises for what makes no module: one that is made already, and what cannot be called.
local function check_maker(fn)
  if type(fn) == "function" or module.is_class(fn) then return end
  if module.is_module(fn) then
    raise("E_VALUE", "init: a %s is made already; pass its class, or a function(rngs) that makes it",
      getmetatable(fn).__name)
  end
  raise("E_VALUE", "init: expected a function(rngs) that makes a module, or a class of nn.module, got %s",
    lib.kind(fn))
end

--- The module that fn(rngs) makes; fn is a function, or a class whose init takes rngs. On a mesh every Param
--- is computed in its sharding (by the rules, or its axes), so that no device ever sees the whole; the numbers
--- do not depend on the mesh.
---@param fn table|fun(rngs: Rngs): table
---@param options {mesh: Mesh, rules: table, seed: integer}? mesh and rules: default those in context.
--- seed: default 0
---@return table model
function M.init(fn, options)
  check_maker(fn)
  options = lib.options("init", options)
  local seed = options.seed or 0
  if math.type(seed) ~= "integer" then
    raise("E_VALUE", "init: the seed is %s; it must be a whole number", seed)
  end
  local mesh = options.mesh or core.mesh_current()
  return rules_of.within(mesh, options.rules or core.rules_current(), function()
    local rngs = rngs_of.Rngs(seed)
    if core.is_tracing() then return settle(build(fn, rngs, mesh)) end
    local model, leaves
    local _ <close> = no_values()
    local values = table.pack(core.run_traced(function()
      local placed
      model, leaves, placed = build(fn, rngs, mesh)
      return table.unpack(placed)
    end, mesh))
    return settle(model, leaves, values)
  end)
end

-- ---- abstract ---------------------------------------------------------------------------------------

local TensorType = tree.TensorType

--- The type of a tensor or Param.
local function type_of(x)
  local meta = core.is_box(x) and core.box_meta(x) or {}
  local sharding = x.sharding
  if not sharding.mesh then sharding = core.is_box(x) and param.sharding(x) or nil end
  return setmetatable({shape = x.shape, dtype = x.dtype, ndim = x.ndim, size = x.size, sharding = sharding,
    kind = meta.kind, axes = meta.axes}, TensorType)
end

--- A traced stand-in for a type.
local function stand_in(t)
  local x = op.full {dims = t.shape, dtype = t.dtype, value = 0}
  return t.sharding and op.constrain(x, {layout = t.sharding}) or x
end

local function is_type(x) return getmetatable(x) == TensorType end

--- An argument with stand-ins for its types; modules and Rngs in it stay what they are.
local function with_stand_ins(arg)
  if is_type(arg) then return stand_in(arg) end
  if type(arg) ~= "table" then return arg end
  local with = {}
  for _, leaf in ipairs((tree.leaves(arg))) do
    if is_type(leaf) then with[leaf] = stand_in(leaf) end
  end
  return tree.replace(arg, with)
end

--- What fn(...) returns, with the type {shape, dtype, ndim, size, sharding} in the place of every tensor
--- and Param. Nothing runs, and no memory is taken. Arguments may be types, too. The sharding is that of
--- ml.init, or of a constraint; nil: not decided.
---@param fn function|table a class, which makes a module of the arguments, or a module
---@return any
function M.abstract(fn, ...)
  lib.check_function("abstract", fn)
  local args, results = table.pack(...), nil
  local function body()
    for i = 1, args.n do
      args[i] = with_stand_ins(args[i])
    end
    results = table.pack(fn(table.unpack(args, 1, args.n)))
    for i = 1, results.n do
      results[i] = tree.map_with_path(function(_, leaf) return type_of(leaf) end, results[i])
    end
  end
  if core.is_tracing() then
    body()
    return table.unpack(results, 1, results.n)
  end
  -- A trace that is left by an error is dropped before anything is planned.
  local done = {}
  local _, message = pcall(core.run_traced, function()
    body()
    error(done, 0)
  end)
  if message ~= done then error(message, 0) end
  return table.unpack(results, 1, results.n)
end

return lib.export(M)
