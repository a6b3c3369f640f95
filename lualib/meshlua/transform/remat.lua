-- remat.lua: what a gradient keeps of a function's inside, and what it computes a second time.
local core = require "meshlua.core"
local lib = require "meshlua.lib"

local raise = lib.raise

local M = {}

-- A policy: a list of {save = word, names = list}; a value that one of them keeps is kept.
local Policy = {__name = "RematPolicy"}

local function policy(save, names) return setmetatable({{save = save, names = names}}, Policy) end

local function check_names(who, ...)
  local names = table.pack(...)
  if names.n == 0 then raise("E_VALUE", "%s: expected the names that checkpoint_name gives", who) end
  for i = 1, names.n do
    if type(names[i]) ~= "string" then
      raise("E_VALUE", "%s: name %d is %s, not a string", who, i, lib.kind(names[i]))
    end
  end
  return names
end

local function check_policy(who, x)
  if getmetatable(x) ~= Policy then
    raise("E_VALUE", "%s: expected a policy of ml.remat_policies, got %s", who, lib.kind(x))
  end
  return x
end

--- What `remat` can keep; see each. Values that are not kept are computed again from those that are, and
--- from the function's inputs.
M.remat_policies = {
  everything_saveable = policy "everything",
  nothing_saveable = policy "nothing",
  dots_saveable = policy "dots", -- results of matrix products and of attention
  dots_with_no_batch_dims_saveable = policy "dots_no_batch", -- those that are products with weights
  --- Values that have one of the names.
  save_only_these_names = function(...)
    return policy("names", check_names("save_only_these_names", ...))
  end,
  --- Values, named or not, that have none of the names.
  save_anything_except_these_names = function(...)
    return policy("anything_except", check_names("save_anything_except_these_names", ...))
  end,
  --- Named values that have none of the names.
  save_any_names_but_these = function(...)
    return policy("names_except", check_names("save_any_names_but_these", ...))
  end,
  --- What either policy keeps.
  save_from_both_policies = function(a, b)
    local both = setmetatable({}, Policy)
    table.move(check_policy("save_from_both_policies", a), 1, #a, 1, both)
    return table.move(check_policy("save_from_both_policies", b), 1, #b, #both + 1, both)
  end,
}
lib.strict(lib.export(M.remat_policies, "remat_policies."), "remat_policies",
  "remat_policies.")

--- The function, of whose inside gradients keep only what the policy says (by default nothing but its inputs)
--- and compute the rest a second time, when they need it: less memory for more work. Values, random bits among
--- them, are the same, bit for bit.
---@param fn function
---@param options {policy: table}? one of ml.remat_policies
function M.remat(fn, options)
  lib.check_function("remat", fn)
  options = lib.options("remat", options)
  local keeps = check_policy("remat", options.policy or M.remat_policies.nothing_saveable)
  return core.wrap(function(...)
    if not core.is_tracing() or lib.keeps_all then return fn(...) end
    local first = core.next_node()
    local results = table.pack(fn(...))
    core.remat(first, keeps)
    return table.unpack(results, 1, results.n)
  end)
end

--- x, under a name that policies of `remat` can ask for.
---@param x Tensor
---@param name string
function M.checkpoint_name(x, name)
  if not lib.is_tensor(x) then
    raise("E_VALUE", "checkpoint_name: expected a tensor, got %s", lib.kind(x))
  end
  if type(name) ~= "string" then
    raise("E_VALUE", "checkpoint_name: the name must be a string, not %s", lib.kind(name))
  end
  return core.op.checkpoint_name(x, {name = name})
end

return lib.export(M)
