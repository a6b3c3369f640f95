-- jit.lua: options of jit, and the contexts and constraints that hold while it traces.
local core = require "meshlua.core"
local lib = require "meshlua.lib"
local mesh_of = require "meshlua.sharding.mesh"
local rules_of = require "meshlua.sharding.rules"

local raise = lib.raise

local M = {}

--- A bit mask of arguments given by name or 1-based position.
local function argument_mask(what, list, names, most)
  if list == nil then return 0 end
  if type(list) ~= "table" then list = {list} end
  local mask = 0
  for _, which in ipairs(lib.check_list("jit", what, list)) do
    local position
    if math.type(which) == "integer" then
      position = which
      if which < 1 or which > most then raise("E_KEY", "jit: %s: there is no argument %d", what, which) end
    else
      position = lib.position(names, which)
      if not position then
        raise("E_KEY", "jit: %s: the function has no parameter '%s'%s", what, which,
          lib.did_you_mean(which, names))
      end
    end
    mask = mask | 1 << (position - 1)
  end
  return mask
end

--- A copy of nested tables, the option `what`.
local function copy_of(what, t, above)
  if type(t) ~= "table" then return t end
  above = above or {}
  if above[t] then raise("E_VALUE", "jit: %s contains itself", what) end
  lib.enter("jit: " .. what, t, above)
  local copy = {}
  for _, key in ipairs(core.tree_keys(t)) do copy[key] = copy_of(what, t[key], above) end
  lib.leave(t, above)
  return copy
end

--- Arguments and results of a trace with the shardings asked for.
local function constrained(values, shardings, who)
  if shardings == nil then return values end
  if core.is_spec(shardings) or core.is_sharding(shardings) then
    for i = 1, values.n do values[i] = mesh_of.place(("%s[%d]"):format(who, i), values[i], shardings) end
    return values
  end
  if #shardings > values.n then
    raise("E_SPEC", "jit: %s has %s for %s", who, lib.count(#shardings, "entry", "entries"),
      lib.count(values.n, "value"))
  end
  for i = 1, values.n do
    if shardings[i] then values[i] = mesh_of.place(("%s[%d]"):format(who, i), values[i], shardings[i]) end
  end
  return values
end

--- Raises where an argument's sharding leaves a dim open: there is nobody to settle it.
local function check_constrained(s, place)
  if type(s) == "table" then
    for key, below in next, s do check_constrained(below, place .. "." .. lib.text(key)) end
    return
  end
  local spec = core.is_sharding(s) and s.spec or core.is_spec(s) and s
  for d, entry in ipairs(spec and spec.partitions or {}) do
    if entry == core.P.unconstrained then
      raise("E_SPEC", "jit: %s: entry %d is P.unconstrained, but an argument lies somewhere: name the axes "
        .. "of the dim, or nil; without in_shardings an argument's own layout is taken", place, d)
    end
  end
end

--- Checks in_shardings or out_shardings; returns a copy: what becomes of the table later is of no matter.
local function check_shardings(what, shardings)
  if shardings == nil or core.is_spec(shardings) or core.is_sharding(shardings) then return shardings end
  if type(shardings) ~= "table" then
    raise("E_SPEC", "jit: %s must be a sharding, or a list of shardings and trees of them, not %s", what,
      lib.kind(shardings))
  end
  return copy_of(what, shardings)
end

--- What ml.jit gives. A call looks at its arguments: their tables, keys and plain values, and the types of
--- their tensors and Params.
---
--- step:bind(model, optimizer, ...) is the step with its first arguments given, to be called with the rest. It
--- walks their tables once: a call looks only at what the Params in them hold now, so a Param that was set is
--- seen, and one that came to hold another type is a new trace, as ever. What is no Param stays as it was when it
--- was bound: keys, numbers, strings and flags that change later (module:train(), module:eval()) are not seen;
--- where the step comes to be traced again, such a change raises E_STATE. Bind again after it.
---
--- It keeps 4096 traces. With more (a static argument that never repeats, say) it begins anew, and what it has
--- known before is traced again.
---@class JittedFunction
---@field bind fun(self: JittedFunction, ...): fun(...): ...
---@field plan fun(self: JittedFunction, ...): Plan the plan for these arguments
---@field why_miss fun(self: JittedFunction): string why the last call was traced
---@field stats fun(self: JittedFunction): integer, integer calls that found a plan, calls that were traced
---@operator call(...): ...

--- The function, traced once per kind of arguments and then run as a plan.
---@param fn function
---@param options {mesh: Mesh, rules: table, static: (string|integer)[], donate: (string|integer)[]|false, in_shardings: table, out_shardings: table}?
---@return JittedFunction
function M.jit(fn, options)
  if type(fn) ~= "function" then raise("E_VALUE", "jit: expected a function, got %s", lib.kind(fn)) end
  options = lib.options("jit", options)
  local names, is_vararg = lib.parameters(fn)
  local most = math.min(is_vararg and 64 or #names, 64) -- as a bit mask knows them
  local call = fn
  local mesh, rules = options.mesh, options.rules and copy_of("rules", rules_of.check(options.rules))
  local ins = check_shardings("in_shardings", options.in_shardings)
  check_constrained(ins, "in_shardings")
  local outs = check_shardings("out_shardings", options.out_shardings)
  if mesh or rules or ins or outs then
    local function body(...)
      local args = constrained(table.pack(...), ins, "in_shardings")
      if not outs then return fn(table.unpack(args, 1, args.n)) end
      local results = constrained(table.pack(fn(table.unpack(args, 1, args.n))), outs, "out_shardings")
      return table.unpack(results, 1, results.n)
    end
    call = function(...)
      return rules_of.within(mesh or core.mesh_current(), rules or core.rules_current(), body, ...)
    end
  end
  return core.jit_new {
    fn = core.unwrap(fn),
    call = call,
    static = argument_mask("static", options.static, names, most),
    donate = argument_mask("donate", options.donate or nil, names, most),
    keep_boxes = options.donate == false,
    mesh = mesh,
  }
end

return lib.export(M)
