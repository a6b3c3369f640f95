-- param.lua: nn.Param, the box that holds a tensor of a module, with its kind and its axes.
local core = require "meshlua.core"
local lib = require "meshlua.lib"
local rules_of = require "meshlua.sharding.rules"

local raise = lib.raise

local M = {}

--- The kinds that the library knows; others may be used freely.
M.kinds = {"param", "batch_stat", "rng", "opt_state", "cache", "intermediate", "frozen"}

-- Names that a Param has of its own: metadata must not hide them.
local taken = {shape = true, ndim = true, size = true, dtype = true, sharding = true}

local function check_axes(what, axes, rank)
  if axes == nil then return end
  if core.is_spec(axes) then
    if #axes > rank then
      raise("E_SPEC", "nn.Param: %s %s has %s but the tensor has rank %d", what, axes,
        lib.count(#axes, "entry", "entries"), rank)
    end
    return
  end
  if type(axes) ~= "table" then
    raise("E_SPEC", "nn.Param: %s must be a list of logical names (false: whole) or a P, not a %s", what,
      type(axes))
  end
  for key, name in pairs(axes) do
    if math.type(key) ~= "integer" or key < 1 or key > rank then
      raise("E_SPEC", "nn.Param: %s names dim %s of a tensor of rank %d", what, key, rank)
    end
    if name ~= false and type(name) ~= "string" then
      raise("E_SPEC", "nn.Param: entry %d of %s is a %s; expected a name or false", key, what,
        type(name))
    end
  end
end

--- A place for a tensor in a module. In ops it stands for its tensor; param:get() and param:set(t) read and
--- write it.
---@param value Tensor|Param|number|table the tensor, or numbers for one
---@param meta {kind: string, axes: table|P, opt_axes: table|P, role: string, rules: table}?
--- kind: default "param", what gradients are taken of; "frozen": it is not trained. lr_factor, decay_factor: its own
--- learning rate and weight decay are times these. axes: a logical name for each dim, or a P. opt_axes:
--- the same for the optimizer's state of it (default: axes). role: "kernel", "bias", "scale" or "embedding".
--- rules: rules of its own for its logical names, before those in context (E_SPEC where they disagree). Any
--- other key is free metadata.
---@return Param
function M.Param(value, meta)
  if meta ~= nil and type(meta) ~= "table" then
    raise("E_VALUE", "nn.Param: metadata must be a table, not a %s", type(meta))
  end
  if type(value) == "number" or type(value) == "table" then
    value = core.tensor(value)
  elseif not lib.is_tensor(value) then
    raise("E_VALUE", "nn.Param: expected a tensor or numbers, got %s", lib.kind(value))
  end
  local own = {kind = "param"}
  local methods = core.methods "meshlua.Param"
  for key, entry in pairs(meta or {}) do
    if type(key) ~= "string" then
      raise("E_KEY", "nn.Param: metadata has the key %s; keys are words", key)
    end
    if taken[key] or methods[key] then
      raise("E_KEY", "nn.Param: metadata '%s' would hide the Param's own %s", key, key)
    end
    own[key] = entry
  end
  if type(own.kind) ~= "string" then
    raise("E_VALUE", "nn.Param: kind must be a word, not a %s", type(own.kind))
  end
  if own.rules ~= nil then rules_of.check(own.rules) end
  check_axes("axes", own.axes, value.ndim)
  check_axes("opt_axes", own.opt_axes, value.ndim)
  return core.box_new(value, own)
end

-- Params made in a trace -> the sharding that they get: the traced tensor does not know it yet.
local promised = setmetatable({}, {__mode = "k"})

--- Notes the sharding of a Param whose tensor is traced.
function M.set_sharding(box, sharding) promised[box] = sharding end

--- The sharding of a Param on a mesh, or nil.
---@param box Param
---@return NamedSharding?
function M.sharding(box)
  if core.is_traced(box) and promised[box] then return promised[box] end
  return box.sharding.mesh and box.sharding or nil
end

-- Params -> {rules, path} by which ml.init laid them out; optimizer state -> {of = its Param}.
local births = setmetatable({}, {__mode = "k"})

--- Notes where a Param has its layout from, so that explain can say what to change.
---@param box Param
---@param birth {rules: table?, path: string?, of: Param?}
function M.note_birth(box, birth) births[box] = birth end

--- What was noted of a Param, or nil.
---@param box Param?
---@return {rules: table?, path: string?, of: Param?}?
function M.birth(box) return box and births[box] end

--- The entries of axes for some dims, in this order; false: a dim of none of them, whole.
---@param axes (string|false)[]|P|nil
---@param dims (integer|false)[]
function M.pick_axes(axes, dims)
  if axes == nil then return nil end
  local entries, spec = {}, core.is_spec(axes)
  for i, d in ipairs(dims) do entries[i] = d and axes[d] or spec and core.P.none or false end
  return spec and core.P(table.unpack(entries, 1, #dims)) or entries
end

--- The axes of a bias: the last n entries of the kernel's axes.
---@param axes (string|false)[]|P|nil
---@param rank integer the kernel's
---@param n integer the bias's rank
function M.last_axes(axes, rank, n)
  local dims = {}
  for d = 1, n do dims[d] = rank - n + d end
  return M.pick_axes(axes, dims)
end

--- How many elements are trained: those of Params of the kind "param" in a list.
---@param list any[]
---@return integer
function M.count(list)
  local n = 0
  for _, leaf in ipairs(list) do
    if core.is_box(leaf) and leaf.kind == "param" then n = n + leaf.size end
  end
  return n
end

return M
