-- rules.lua: from logical axis names to mesh axes. A rule set is an ordered list of
--   {"hidden", "model"}                  a logical axis on a mesh axis (or {"x", "y"}, or false: whole)
--                                        with uneven = "pad" or "replicate" for dims that it does not divide,
--                                        priority = 1 for what is to wait for the rest
--   {"embedding$", P("model", nil)}      Params whose path matches a Lua pattern
--   function(path, param, own)           anything else: a P, or nil to leave it to the rest; own() is what
--                                        the rules for the Param's logical axes give (nil: it has none)
--   {opt = rule}                           a pattern or function rule, for the Param's optimizer state alone:
--                                        own() is the Param's own P; nil: the state lies as the Param
-- The first rule for a name wins whose mesh axes exist in the mesh and are still free in the tensor; that
-- there is none is an error unless a later rule for the name says what then ({"hidden", false}).
local core = require "meshlua.core"
local lib = require "meshlua.lib"

local raise = lib.raise

local M = {}

--- Is `to` what a logical axis can go to: false, a mesh axis, or several? Raises for one that is there twice.
local function is_target(name, to)
  if to == false or type(to) == "string" then return true end
  if type(to) ~= "table" then return false end
  local seen = {}
  for i = 1, #to do
    if type(to[i]) ~= "string" then return false end
    if seen[to[i]] then
      raise("E_SPEC", "rules: '%s' asks for mesh axis '%s' twice; an axis splits a dim once", name, to[i])
    end
    seen[to[i]] = true
  end
  for key in pairs(to) do
    if math.type(key) ~= "integer" or key < 1 or key > #to then return false end
  end
  return true
end

--- Checks a rule set; raises for entries that are none.
function M.check(rules)
  if type(rules) ~= "table" then raise("E_VALUE", "rules: expected a list, got %s", type(rules)) end
  for i, rule in ipairs(rules) do
    local ok = type(rule) == "function"
    if type(rule) == "table" and rule.opt ~= nil then
      M.check {rule.opt}
      ok = true
    elseif type(rule) == "table" and type(rule[1]) == "string" then
      ok = core.is_spec(rule[2]) or is_target(rule[1], rule[2])
    end
    if not ok then
      raise("E_VALUE", "rules: entry %d is neither {name, axis}, {pattern, P(...)}, {opt = rule} nor a "
        .. "function", i)
    end
  end
  return rules
end

--- Are two rule sets, rows or targets the same? A set that jit has copied is.
function M.same(a, b)
  if type(a) ~= "table" or type(b) ~= "table" then return a == b end
  for key, x in pairs(a) do
    if not M.same(x, b[key]) then return false end
  end
  for key in pairs(b) do
    if a[key] == nil then return false end
  end
  return true
end

-- For explain: rule sets -> those that stand in for them meanwhile, or nil.
M.instead = nil ---@type table<table, table>?

--- fn(...) with a mesh and rules in context, in place of those that are.
---@param mesh Mesh?
---@param rules table?
---@param fn function
function M.within(mesh, rules, fn, ...)
  if rules then M.latest = rules end -- for explain: those that a step was traced under
  for from, to in pairs(rules and M.instead or {}) do
    if M.same(rules, from) then
      rules = to
      break
    end
  end
  return core.in_context(mesh, rules and M.check(rules), fn, ...)
end

--- A string as one writes it, in one line.
local function quoted(s) return (("%q"):format(s):gsub("\\\n", "\\n")) end

--- A rule as one writes it: {"hidden", "model"}.
---@param rule table|function
---@return string
function M.text(rule)
  if type(rule) == "function" then return "a function" end
  if rule.opt then return "{opt = " .. M.text(rule.opt) .. "}" end
  local to, words = rule[2], {}
  if type(to) == "table" then
    local axes = {}
    for i, axis in ipairs(to) do axes[i] = quoted(axis) end
    to = "{" .. table.concat(axes, ", ") .. "}"
  elseif type(to) == "string" then to = quoted(to) end
  words[1] = ("{%s, %s"):format(quoted(rule[1]), tostring(to))
  if rule.uneven then words[#words + 1] = "uneven = " .. quoted(rule.uneven) end
  if rule.priority then words[#words + 1] = "priority = " .. tostring(rule.priority) end
  return table.concat(words, ", ") .. "}"
end

local function logical_names(rules)
  local names, seen = {}, {}
  for _, rule in ipairs(rules) do
    if type(rule) == "table" and rule[1] and not core.is_spec(rule[2]) and not seen[rule[1]] then
      seen[rule[1]] = true
      names[#names + 1] = rule[1]
    end
  end
  return names
end

--- Why a mesh axis cannot be had, or nil if it can.
local function obstacle(axis, used)
  local mesh = core.mesh_current()
  if mesh and not mesh.shape[axis] then return ("the mesh has no axis '%s'"):format(axis) end
  if used[axis] then return ("'%s' already uses mesh axis '%s' in this tensor"):format(used[axis], axis) end
end

--- The mesh axes for one logical name: all there, none of them in `used`. Raises where no rule is left.
local function axes_for(rules, name, used, what)
  local known, why = false, nil
  for _, rule in ipairs(rules) do
    if type(rule) == "table" and rule[1] == name and not core.is_spec(rule[2]) then
      known = true
      local axes = rule[2]
      if axes == false then return false end
      local list, free = type(axes) == "table" and axes or {axes}, true
      for _, axis in ipairs(list) do
        local found = obstacle(axis, used)
        if found then free, why = false, found end
      end
      if free then
        for _, axis in ipairs(list) do used[axis] = name end
        if rule.uneven == nil and rule.priority == nil then return axes end
        local entry = table.move(list, 1, #list, 1, {})
        entry.uneven, entry.priority = rule.uneven, rule.priority
        return entry
      end
    end
  end
  if not known then
    local near = lib.nearest(name, logical_names(rules))
    raise("E_SPEC", "%s: no rule for the logical axis '%s'%s; add {\"%s\", axis} or {\"%s\", false}",
      what, name, near and " (did you mean '" .. near .. "'?)" or "", name, name)
  end
  raise("E_SPEC", "%s: no rule for '%s' can be used: %s; add a later rule {\"%s\", false} to leave it whole "
    .. "then", what, name, why, name)
end

local function target_text(rule)
  local to = rule[2]
  if to == false then return "whole" end
  return type(to) == "table" and "{" .. table.concat(to, ", ") .. "}" or to
end

--- The first rule of each logical name.
local function first_rules(rules)
  local first = {}
  for _, rule in ipairs(rules) do
    local is_name = type(rule) == "table" and rule[1] and not core.is_spec(rule[2])
    if is_name and not first[rule[1]] then first[rule[1]] = rule end
  end
  return first
end

--- A variable's own rules before those in context, which must not say something else of the same name.
local function merged(own, context, what)
  if not own or not context then return own or context end
  local of_context, list = first_rules(context), {}
  for name, rule in pairs(first_rules(own)) do
    local other = of_context[name]
    if other and target_text(other) ~= target_text(rule) then
      raise("E_SPEC", "%s: its own rules put '%s' on %s, those in context on %s; keep one of them", what,
        name, target_text(rule), target_text(other))
    end
  end
  for _, rules in ipairs {own, context} do table.move(rules, 1, #rules, #list + 1, list) end
  return list
end

--- The P for a list of logical names (false or nil: whole; P.unconstrained), by the variable's own rules and
--- those in context.
---@param names table
---@param what string the tensor, for messages
---@param rank integer
---@param own table? the variable's own rules
---@return P
function M.spec_of(names, what, rank, own)
  local rules = merged(own, core.rules_current(), what)
  if not rules then
    raise("E_SPEC", "%s: the logical axes {%s} mean nothing without rules; pass rules to jit or init, or "
      .. "use mesh:with(rules, fn)", what, M.names_text(names, rank))
  end
  local used, entries = {}, {}
  for d = 1, rank do
    local name = names[d]
    local stays = not name or name == core.P.unconstrained
    entries[d] = stays and (name or core.P.none) or axes_for(rules, name, used, what) or core.P.none
  end
  for key in pairs(names) do
    if math.type(key) ~= "integer" or key < 1 or key > rank then
      raise("E_SPEC", "%s: logical axes for dim %s of a tensor of rank %d", what, key, rank)
    end
  end
  return core.P(table.unpack(entries, 1, rank))
end

--- "embed, -" for messages.
function M.names_text(names, rank)
  local words = {}
  for d = 1, rank do words[d] = names[d] and lib.text(names[d]) or "-" end
  return table.concat(words, ", ")
end

--- The P that a Param's own axes give: they are a P, or logical names, which need rules. nil: it has none.
local function own_spec(param, path)
  local axes = core.box_meta(param).axes
  if axes == nil or core.is_spec(axes) then return axes end
  return M.spec_of(axes, path, param.ndim, core.box_meta(param).rules)
end

--- The P that one rule gives a Param, or nil.
local function spec_by(rule, param, path, own)
  if type(rule) == "function" then
    local spec = rule(path, param, own)
    if spec ~= nil and not core.is_spec(spec) then
      raise("E_SPEC", "%s: a rule gave a %s; a rule function returns a P or nil", path, type(spec))
    end
    return spec
  end
  if rule[1] and core.is_spec(rule[2]) and path:find(rule[1]) then return rule[2] end
end

--- The P of a Param: by path rules and functions in context, else by its `axes` (a P, or logical names).
--- nil: nothing says how it lies. Also which rule it is that says so of the whole Param.
---@param param Param
---@param path string
---@return P? spec
---@return integer? rule
function M.param_spec(param, path)
  for i, rule in ipairs(core.rules_current() or {}) do
    local spec = spec_by(rule, param, path, function() return own_spec(param, path) end)
    if spec then return spec, i end
  end
  return own_spec(param, path)
end

--- The P that the rules in context give what is no Param and has no axes: by its path alone.
---@param x Tensor
---@param path string
---@return P?
function M.path_spec(x, path)
  for _, rule in ipairs(core.rules_current() or {}) do
    local spec = spec_by(rule, x, path, function() return nil end)
    if spec then return spec end
  end
end

--- The P of a Param's optimizer state: by its `opt_axes`, else by the {opt = rule} in context. nil: as the
--- Param's.
---@param param Param
---@param path string
---@return P?
function M.state_spec(param, path)
  local axes = core.box_meta(param).opt_axes
  if axes ~= nil then
    return core.is_spec(axes) and axes or M.spec_of(axes, path .. " (opt_axes)", param.ndim,
      core.box_meta(param).rules)
  end
  for _, rule in ipairs(core.rules_current() or {}) do
    local of_state = type(rule) == "table" and rule.opt
    local function own() return M.param_spec(param, path) end
    local spec = of_state and spec_by(of_state, param, path, own)
    if spec then return spec end
  end
end

--- A rule that spreads every Param of at least min_size elements over a mesh axis, on its largest dim that
--- the Param's own axes leave whole and that the axis divides (ZeRO-3, also called FSDP: Rajbhandari et al.
--- 2020; as {opt = ...}: ZeRO-1). Smaller ones lie as their axes say. Where no dim is whole, one that is split
--- is split further. A mesh without the axis: nothing happens. Raises where no dim
--- can be divided.
---@param axis string
---@param min_size integer? default 1
---@return fun(path: string, param: Param, own_spec: fun(): P?): P?
function M.shard_largest(axis, min_size)
  if type(axis) ~= "string" then
    raise("E_SPEC", "shard_largest: expected the name of a mesh axis, got %s", lib.kind(axis))
  end
  min_size = min_size or 1
  return function(path, param, own)
    local mesh = core.mesh_current()
    local n = mesh and mesh.shape[axis]
    if not n or param.size < min_size then return nil end
    if param.ndim == 0 then
      raise("E_SPEC", "%s: %s is a scalar, which mesh axis '%s' cannot split; give it a rule of its own "
        .. "before this one, or a min_size above 1", path, core.typeof(param), axis)
    end
    local spec, shape, entries, best, best_parts = own(), param.shape, {}, nil, nil
    for d, size in ipairs(shape) do
      local axes, parts = spec and spec[d] or {}, 1
      if type(axes) == "string" then axes = {axes} end
      for _, name in ipairs(axes) do
        if name == axis then return nil end
        parts = parts * mesh.shape[name]
      end
      entries[d] = axes
      local better = not best or parts == 1 and best_parts > 1
        or (parts == 1) == (best_parts == 1) and size // parts > shape[best] // best_parts
      if size % (parts * n) == 0 and better then best, best_parts = d, parts end
    end
    if not best then
      raise("E_INDIVISIBLE", "%s: mesh axis '%s' of size %d divides no dim of %s; give it a rule "
        .. "of its own before this one, or raise min_size above %d", path, axis, n, core.typeof(param),
        param.size)
    end
    entries[best] = table.move(entries[best], 1, #entries[best], 1, {})
    table.insert(entries[best], axis)
    return core.P(table.unpack(entries, 1, #shape))
  end
end
M.shard_largest = core.wrap(M.shard_largest, false, "shard_largest")

return M
