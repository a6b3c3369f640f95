-- cache.lua: keys and values of the tokens that a model has seen, so that the next token costs itself alone. A cache
-- is a tree as the model's: {key =, value =} at the path of each attention layer. They are Params [batch, length,
-- key heads, head size], laid out as the layer's heads, and written in place: row b has lengths[b] tokens.
--
-- A model takes a cache as its third argument: it opens it for a call, hands what it gets down to the attention layers
-- (`{cache = past.layers[i].attn}`), and closes it. An id below 0 is no token: it stands behind those of its row.
local args = require "meshlua.ops.args"
local arrays = require "meshlua.ops.arrays"
local core = require "meshlua.core"
local lib = require "meshlua.lib"
local mesh_of = require "meshlua.sharding.mesh"
local module = require "meshlua.nn.module"
local ops = require "meshlua.ops"
local param = require "meshlua.nn.param"
local rules_of = require "meshlua.sharding.rules"
local tree = require "meshlua.tree"

local op, raise = core.op, lib.raise

local M = {}

-- Caches -> {mesh =, rules =} that they were made with.
local homes = setmetatable({}, {__mode = "k"})

-- ---- a call ---------------------------------------------------------------------------------------------

--- A layer's keys and values, while a call runs.
---@class CachedLayer
---@field positions Tensor int32[batch, T] of the call's tokens
local Layer = {}
Layer.__index = Layer

local TO_ROWS = {axes = {2}, table = {1, 0, 3, 4}, ids = {1, 2, 0, 0}, outside = "drop", combine = "set"}

--- Puts keys and values of the call's tokens behind those that are there.
---@param k Tensor [batch, T, key heads, head size]
---@param v Tensor
---@param see table options of nn.attention: offset, lengths and query_lengths are filled in
---@return Tensor k of all tokens
---@return Tensor v
function Layer:add(k, v, see)
  local past, all = self.past, {}
  if not see.causal or see.mask or see.segment_ids then
    raise("E_VALUE", "attention with a cache is causal, and takes no mask and no segment_ids")
  end
  for i, x in ipairs {k, v} do
    local box, attr = i == 1 and self.kept.key or self.kept.value, lib.copy(TO_ROWS)
    attr.size = {box.shape[2]}
    all[i] = op.scatter(box:get(), past.rows, op.astype(x, {dtype = box.dtype}), attr)
    box:set(all[i])
  end
  see.offset, see.lengths, see.query_lengths = past.lengths, past.ends, past.counts
  return all[1], all[2]
end

--- What a model sees of its cache while a call runs, beside what its layers do, by their paths.
---@class Past
---@field ids Tensor int32[batch, T] of the call, 0 where there is none
---@field positions Tensor int32[batch, T] of its tokens
---@field lengths Tensor int32[batch] tokens before it
---@field counts Tensor int32[batch] its own
---@field ends Tensor int32[batch] both
local Past = {}

--- Of x [batch, T, ...] what belongs to each row's last token: [batch, 1, ...].
function Past:last(x)
  local dims = x.shape
  if dims[2] == 1 then return x end
  local attr = {axes = {2}, table = {1, 0}, ids = {1, 2}, size = {dims[2]}, outside = "clip"}
  for d = 3, #dims do attr.table[d], attr.ids[d] = d, 0 end
  return op.gather(x, ops.expand_dims(op.sub(self.counts, 1), 2), attr)
end

--- Ends the call: its tokens count from now on.
function Past:close() self.cache.lengths:set(self.ends) end

lib.export(Past, "Past:")
Past.__index = Past

-- ---- the cache --------------------------------------------------------------------------------------------

local Cache = module.module "Cache"

function Cache:init(layers, lengths)
  for key, layer in pairs(layers) do self[key] = layer end
  self.lengths = lengths
end

local function is_layer(node) return core.is_box(rawget(node, "key")) end

local function opened(node, past)
  if is_layer(node) then
    return setmetatable({kept = node, past = past, positions = past.positions}, Layer)
  end
  local copy = {}
  for key, child in next, node do
    if type(child) == "table" then copy[key] = opened(child, past) end
  end
  return copy
end

--- The slots of each row.
local function slots(cache)
  local n
  tree.visit(cache, function(_, leaf) n = n or leaf.ndim == 4 and leaf.shape[2] end)
  return n
end

--- Begins a call of a model.
---@param ids Tensor int32[batch, T]; below 0: no token
---@return Past
function Cache:open(ids)
  local batch, length = self.lengths.shape[1], slots(self)
  args.check_tensor("cache:open", ids, "ids")
  if not ids.dtype:match "int" then
    raise("E_DTYPE", "cache:open: ids are whole numbers, not %s", core.typeof(ids))
  end
  ids = args.to_int32(ids)
  if ids.ndim ~= 2 or ids.shape[1] ~= batch or ids.shape[2] > length then
    raise("E_SHAPE", "a cache of %d rows of %d takes ids [%d, at most %d], got %s", batch, length, batch,
      length, core.typeof(ids))
  end
  local lengths, there = self.lengths:get(), op.ge(ids, 0)
  local counts = ops.sum(op.astype(there, {dtype = "int32"}), 2)
  local places = op.add(ops.expand_dims(lengths, 2), ops.arange(ids.shape[2]))
  local past = {cache = self, lengths = lengths, counts = counts, ends = op.add(lengths, counts),
    ids = op.maximum(ids, 0), positions = op.where(there, places, 0), rows = op.where(there, places, length)}
  for key, child in next, self do
    if type(child) == "table" then past[key] = opened(child, past) end
  end
  return setmetatable(past, Past)
end

--- Forgets what is behind the first tokens of each row: all of them, by default.
---@param lengths integer[]? how many of each row stay
function Cache:rewind(lengths)
  local now, list = self:filled(), {}
  for b, n in ipairs(now) do
    list[b] = lengths and lib.check_integer("cache:rewind", "a length", lengths[b]) or 0
    if list[b] < 0 or list[b] > n then
      raise("E_VALUE", "cache:rewind: row %d has %s; %d of them cannot stay", b, lib.count(n, "token"),
        list[b])
    end
  end
  local x = core.tensor(list, "int32")
  local sharding = self.lengths.sharding
  self.lengths:set(sharding.mesh and mesh_of.device_put(x, sharding) or x)
end

--- How many tokens each row has.
---@return integer[]
function Cache:filled()
  return arrays.all_gather_to_host(self.lengths:get()):totable()
end

-- ---- making one ---------------------------------------------------------------------------------------------

--- The mesh and the rules that a model's Params were made with.
local function home_of(model, options)
  local mesh, rules = options.mesh or core.mesh_current(), options.rules or core.rules_current()
  for _, leaf in ipairs((tree.leaves(model))) do
    local birth = core.is_box(leaf) and param.birth(leaf)
    local sharding = core.is_box(leaf) and param.sharding(leaf)
    mesh = mesh or sharding and sharding.mesh
    rules = rules or birth and birth.rules
  end
  return {mesh = mesh, rules = rules}
end

--- The rules with batches whole, where the mesh does not divide this one.
local function for_batch(home, batch)
  local known
  for _, rule in ipairs(home.rules or {}) do known = known or type(rule) == "table" and rule[1] == "batch" end
  if not known or not home.mesh then return known end
  rules_of.within(home.mesh, home.rules, function()
    local axes, n = lib.axes_of(rules_of.spec_of({"batch"}, "a cache", 1)[1]), 1
    for _, axis in ipairs(axes) do n = n * home.mesh.shape[axis] end
    if batch % n == 0 then return end
    home.rules = table.move(home.rules, 1, #home.rules, 2, {{"batch", false}})
  end)
  return known
end

--- A Param of zeros, in memory of its own, which is then written in place.
local function room(home, shape, dtype, axes)
  local value = rules_of.within(home.mesh, home.rules, core.run_traced, function()
    local x = ops.zeros(shape, dtype)
    if not home.mesh then return x end
    local spec = home.rules and rules_of.spec_of(axes, "a cache", #shape) or core.P()
    return op.constrain(x, {layout = core.NamedSharding(home.mesh, spec)})
  end, home.mesh)
  return param.Param(value, {kind = "cache", axes = home.rules and axes})
end

--- The layers' part of a cache, by their paths; nil: there is none in this node. A module that keeps keys and values
--- says so with new_cache(make, walk).
local function walk(node, make)
  if type(node) ~= "table" then return nil end
  if module.is_module(node) and node.new_cache then return node:new_cache(make, walk) end
  local layers
  for key, child in next, node do
    local found = walk(child, make)
    if found then
      layers = layers or {}
      layers[key] = found
    end
  end
  return layers
end

--- Room for the keys and values of a model's attention layers: `batch` rows of `length` tokens, empty. It lies as the
--- layers' heads and the batch do by the rules that the model was made with.
---@param model table
---@param batch integer
---@param length integer
---@param options {dtype: string, mesh: Mesh, rules: table}? dtype: default that of the layers' arithmetic. mesh, rules:
--- default the model's
---@return Cache
function M.cache(model, batch, length, options)
  options = lib.options("cache", options)
  for what, n in pairs {batch = batch, length = length} do
    if lib.check_integer("cache", "the " .. what, n) < 1 then
      raise("E_VALUE", "cache: the %s is %d; it is at least 1", what, n)
    end
  end
  if type(model) ~= "table" then raise("E_VALUE", "cache: expected a model, got %s", lib.kind(model)) end
  if core.is_tracing() then
    raise("E_TRACED", "cache: inside a traced function; make the cache outside and hand it in")
  end
  local context = rawget(model, "context")
  if context and length > context then
    raise("E_VALUE", "cache: %d tokens; the model's context is %d", length, context)
  end
  local home = home_of(model, options)
  local has_batch = for_batch(home, batch)
  local rows = has_batch and "batch"
  local function make(heads, size, axis, dtype)
    local shape, axes = {batch, length, heads, size}, {rows, false, axis or false, false}
    dtype = options.dtype or dtype
    return {key = room(home, shape, dtype, axes), value = room(home, shape, dtype, axes)}
  end
  local layers = walk(model, make)
  if not layers then
    raise("E_VALUE", "cache: the model has no attention layer that keeps keys and values")
  end
  local cache = Cache(layers, room(home, {batch}, "int32", {rows}))
  homes[cache] = home
  return cache
end

--- The mesh and the rules of a cache.
---@return {mesh: Mesh?, rules: table?}
function M.home(cache) return homes[cache] or {} end

M.slots = slots

--- Is x a cache?
function M.is_cache(x) return module.is_module(x) and x.open == Cache.open end

return lib.export(M)
