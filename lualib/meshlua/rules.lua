-- rules.lua: from logical axis names to mesh axes. A rule set is an ordered list of
--   {"hidden", "model"}                  a logical axis on a mesh axis (or {"x", "y"}, or false: whole)
--   {"embedding$", P("model", nil)}      Params whose path matches a Lua pattern
--   function(path, param) -> P or nil    anything else
-- The first rule for a name whose mesh axes are still free in the tensor wins; that none is free is an
-- error unless a later rule for the name says what then ({"hidden", false}).
local core = require "meshlua.core"
local lib = require "meshlua.lib"

local raise = lib.raise

local M = {}

local current -- the rules in context, or nil

--- Checks a rule set; raises for entries that are none.
function M.check(rules)
  if type(rules) ~= "table" then raise("E_VALUE", "rules: expected a list, got %s", type(rules)) end
  for i, rule in ipairs(rules) do
    local ok = type(rule) == "function"
    if type(rule) == "table" and type(rule[1]) == "string" then
      local to = rule[2]
      ok = to == false or type(to) == "string" or type(to) == "table" or core.is_spec(to)
    end
    if not ok then
      raise("E_VALUE", "rules: entry %d is neither {name, axis}, {pattern, P(...)} nor a function", i)
    end
  end
  return rules
end

--- Puts a mesh and rules into context; the value returned takes them out again when it is closed.
---@param mesh Mesh?
---@param rules table?
function M.enter(mesh, rules)
  if rules ~= nil then M.check(rules) end
  local before_mesh, before_rules = core.mesh_context(mesh), current
  current = rules
  core.set_rules(rules)
  return setmetatable({}, {__close = function()
    core.mesh_context(before_mesh)
    current = before_rules
    core.set_rules(before_rules)
  end})
end

--- The rules in context, or nil.
function M.current() return current end

local function logical_names()
  local names, seen = {}, {}
  for _, rule in ipairs(current) do
    if type(rule) == "table" and not core.is_spec(rule[2]) and not seen[rule[1]] then
      seen[rule[1]] = true
      names[#names + 1] = rule[1]
    end
  end
  return names
end

--- The mesh axes for one logical name, none of them in `used`. Raises where no rule is left.
local function axes_for(name, used, what)
  local known, conflict = false, nil
  for _, rule in ipairs(current) do
    if type(rule) == "table" and rule[1] == name and not core.is_spec(rule[2]) then
      known = true
      local axes = rule[2]
      if axes == false then return false end
      local list, free = type(axes) == "table" and axes or {axes}, true
      for _, axis in ipairs(list) do
        if used[axis] then free, conflict = false, axis end
      end
      if free then
        for _, axis in ipairs(list) do used[axis] = name end
        return axes
      end
    end
  end
  if not known then
    local near = lib.nearest(name, logical_names())
    raise("E_SPEC", "%s: no rule for the logical axis '%s'%s; add {\"%s\", axis} or {\"%s\", false}",
      what, name, near and " (did you mean '" .. near .. "'?)" or "", name, name)
  end
  raise("E_SPEC", "%s: '%s' wants mesh axis '%s', which '%s' already uses in this tensor; add a later "
    .. "rule {\"%s\", false} to leave it whole then", what, name, conflict, used[conflict], name)
end

--- The P for a list of logical names (false or nil: whole), by the rules in context.
---@param names table
---@param what string the tensor, for messages
---@param rank integer
---@return P
function M.spec_of(names, what, rank)
  if not current then
    raise("E_SPEC", "%s: the logical axes {%s} mean nothing without rules; pass rules to jit or init, or "
      .. "use mesh:with(rules, fn)", what, M.names_text(names, rank))
  end
  local used, entries = {}, {}
  for d = 1, rank do
    local name = names[d]
    entries[d] = name and axes_for(name, used, what) or core.P.none
  end
  for key in pairs(names) do
    if math.type(key) ~= "integer" or key < 1 or key > rank then
      raise("E_SPEC", "%s: logical axes for dim %s of a tensor of rank %d", what, tostring(key), rank)
    end
  end
  return core.P(table.unpack(entries, 1, rank))
end

--- "embed, -" for messages.
function M.names_text(names, rank)
  local words = {}
  for d = 1, rank do words[d] = names[d] and tostring(names[d]) or "-" end
  return table.concat(words, ", ")
end

--- The P of a Param: by path rules and functions in context, else by its `axes` (a P, or logical names).
--- nil: nothing says how it lies.
---@param param Param
---@param path string
---@return P?
function M.param_spec(param, path)
  for _, rule in ipairs(current or {}) do
    local spec
    if type(rule) == "function" then
      spec = rule(path, param)
    elseif core.is_spec(rule[2]) and path:find(rule[1]) then
      spec = rule[2]
    end
    if spec then return spec end
  end
  local axes = core.box_meta(param).axes
  if axes == nil or core.is_spec(axes) then return axes end
  if not current then return nil end
  return M.spec_of(axes, path, param.ndim)
end

return M
