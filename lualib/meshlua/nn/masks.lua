-- masks.lua: which parts of a model are meant: by patterns of their paths, a function, or a tree of booleans. The parts
-- are entries {path, box, keys}: the Params that an optimizer sees, or layers.
local core = require "meshlua.core"
local lib = require "meshlua.lib"

local raise = lib.raise

local M = {}

--- What stands in `tree` where the keys lead, or the leaf at which the way ends before.
function M.at(node, keys)
  for _, key in ipairs(keys) do
    if type(node) ~= "table" then return node end
    node = node[key]
  end
  return node
end

--- Is it a matrix: a kernel or embedding, or (where the Param has no role) of rank 2 and more? A bias of heads
--- has rank 2 and is none.
local function is_matrix(entry)
  local role = core.box_meta(entry.box).role
  if role == nil then return entry.box.ndim >= 2 end
  return role == "kernel" or role == "embedding"
end

--- Which entries have a path that one of the patterns is found in. Each must find one: a pattern that does nothing
--- is a mistake.
local function found(who, patterns, entries, what)
  local marks, paths = {}, {}
  for i, entry in ipairs(entries) do marks[i], paths[i] = false, entry.path end
  for _, pattern in ipairs(patterns) do
    local any = false
    for i, path in ipairs(paths) do
      local ok, hit = pcall(string.find, path, pattern)
      if not ok then raise("E_VALUE", "%s: '%s' is no Lua pattern: %s", who, pattern, hit) end
      if hit then marks[i], any = true, true end
    end
    if not any then
      raise("E_VALUE", "%s: the pattern '%s' finds no %s; there are %s", who, pattern, what or "Param",
        lib.some(paths, 6))
    end
  end
  return marks
end

---@alias Mask "matrices"|string|string[]|table|fun(path: string, param: Param): boolean

--- Reads a mask: nil (everything), "matrices" (kernels and embeddings), another text or a list of them (Lua patterns
--- that are found in paths), fun(path, param): boolean, or a tree of booleans like the model, which may stop where
--- one serves all below it.
---@param who string for messages
---@param mask Mask?
---@param what string? it chooses from; default Param
---@return fun(entries: OptimEntry[]): boolean[]
function M.mask(who, mask, what)
  if type(mask) == "string" and mask ~= "matrices" then mask = {mask} end
  local kind = type(mask)
  if mask ~= nil and mask ~= "matrices" and kind ~= "function" and kind ~= "table" then
    raise("E_VALUE", "%s: a mask is \"matrices\", a pattern of paths or a list of them, a function (path, "
      .. "param) or a tree of booleans, not %s", who, mask)
  end
  if kind == "table" and type(mask[1]) == "string" then
    return function(entries) return found(who, mask, entries, what) end
  end
  return function(entries)
    local marks = {}
    for i, entry in ipairs(entries) do
      local on = true
      if mask == "matrices" then on = is_matrix(entry)
      elseif kind == "function" then on = mask(entry.path, entry.box)
      elseif kind == "table" then on = M.at(mask, entry.keys) end
      if type(on) ~= "boolean" then
        raise("E_VALUE", "%s: the mask gives %s for %s; expected true or false", who, on, entry.path)
      end
      marks[i] = on
    end
    return marks
  end
end

--- What is trained: the entries in `only` (default all) but those in `freeze`.
---@param who string
---@param options {only: Mask?, freeze: Mask?}
---@return fun(entries: OptimEntry[]): OptimEntry[]
function M.trained(who, options)
  if options.only == nil and options.freeze == nil then return function(entries) return entries end end
  local only, freeze = M.mask(who, options.only), options.freeze ~= nil and M.mask(who, options.freeze)
  return function(entries)
    local list, on, off = {}, only(entries), freeze and freeze(entries) or {}
    for i, entry in ipairs(entries) do
      if on[i] and not off[i] then list[#list + 1] = entry end
    end
    if #list == 0 then raise("E_VALUE", "%s: every Param is frozen; nothing is left to train", who) end
    return list
  end
end

--- For each entry the label of the first row {pattern, label} whose pattern is found in its path, or what a function
--- (path, param) gives; one of those in `known`.
---@param who string
---@param labels string[][]|fun(path: string, param: Param): string
---@param known table<string, any>
---@return fun(entries: OptimEntry[]): string[]
function M.labels(who, labels, known)
  local named = lib.quoted(lib.names(known))
  local function check(label, what)
    if known[label] == nil then
      raise("E_VALUE", "%s: %s is labelled %s; there are %s", who, what, label, named)
    end
    return label
  end
  if type(labels) == "table" then
    for i, row in ipairs(lib.check_list(who, "the labels", labels)) do
      if type(row) ~= "table" or type(row[1]) ~= "string" then
        raise("E_VALUE", "%s: row %d of the labels is %s; it is {pattern, label}", who, i, lib.kind(row))
      end
      check(row[2], "'" .. row[1] .. "'")
    end
  elseif type(labels) ~= "function" then
    raise("E_VALUE", "%s: labels are a list of {pattern, label} or a function (path, param), not %s", who,
      lib.kind(labels))
  end
  return function(entries)
    local list = {}
    for _, row in ipairs(type(labels) == "table" and labels or {}) do
      for i, hit in ipairs(found(who, {row[1]}, entries)) do
        if hit then list[i] = list[i] or row[2] end
      end
    end
    for i, entry in ipairs(entries) do
      if type(labels) == "function" then list[i] = labels(entry.path, entry.box) end
      check(list[i], entry.path)
    end
    return list
  end
end

return M
