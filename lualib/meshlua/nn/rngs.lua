-- rngs.lua: named streams of random keys, as flax's nnx.Rngs: the n-th key of a stream (from 0) is
-- fold_in(the stream's key, n). Key and count lie in Params, so that a stream goes on inside jit when it
-- is (part of) an argument.
local core = require "meshlua.core"
local lib = require "meshlua.lib"
local module = require "meshlua.nn.module"
local param = require "meshlua.nn.param"
local random = require "meshlua.random"
local trace = require "meshlua.transform.trace"

local raise = lib.raise

local M = {}

local stream_meta

--- One stream: calling it returns the next key.
M.RngStream, stream_meta = module.module("RngStream")

---@param key integer|Tensor a seed or a key
---@param tag string the stream's name
function M.RngStream:init(key, tag)
  if math.type(key) == "integer" then key = random.key(key) end
  if not lib.is_tensor(key) or key.dtype ~= "uint32" or key.ndim ~= 1 then
    raise("E_VALUE", "rngs: stream '%s' needs a seed or a key (uint32[2])", tag)
  end
  self.tag = tag
  self.key = param.Param(key, {kind = "rng"})
  self.count = param.Param(core.tensor(0, "uint32"), {kind = "rng"})
end

--- The next key of the stream: uint32[2]. In a leaf (see ml.accumulate) it is folded with the leaf's number.
function M.RngStream:__call()
  if lib.no_values then return self.key:get() end -- see initializers.lua
  local key = random.fold_in(self.key, self.count)
  self.count:set(self.count + 1)
  local leaf = trace.leaf()
  return leaf and random.fold_in(key, leaf) or key
end

--- A stream of its own, started with the next key of this one.
function M.RngStream:fork()
  return M.RngStream(self(), self.tag)
end

local function missing(self, name)
  if type(name) ~= "string" then return nil end -- it is no list
  local default = rawget(self, "default")
  if default then return default end
  local names = {}
  for tag, stream in pairs(self) do
    if type(stream) == "table" then names[#names + 1] = tag end
  end
  local near = lib.nearest(tostring(name), names)
  raise("E_KEY", "rngs: there is no stream '%s'%s; add it, or a stream `default`", name,
    near and " (did you mean '" .. near .. "'?)" or "")
end

local rngs_meta

--- Streams by name. nn.Rngs(0) has one stream, which serves every name; nn.Rngs{params = 0, dropout = 1}
--- has these (and serves other names from `default`, where that is given). rngs.dropout() or
--- rngs:dropout() is the next key of the stream.
M.Rngs, rngs_meta = module.module("Rngs", missing)

---@param seeds integer|Tensor|table<string, integer|Tensor> a seed or key, or one for each stream
function M.Rngs:init(seeds)
  if type(seeds) ~= "table" then seeds = {default = seeds} end
  if next(seeds) == nil then raise("E_VALUE", "nn.Rngs: expected a seed, or a table of seeds") end
  for tag, key in pairs(seeds) do
    if type(tag) ~= "string" then
      raise("E_KEY", "nn.Rngs: a stream is called %s; names are words", tag)
    end
    self[tag] = M.RngStream(key, tag)
  end
end

--- The stream of that name of an Rngs, or a stream itself; raises for anything else.
---@param who string for messages
function M.stream(who, rngs, name)
  local meta = type(rngs) == "table" and getmetatable(rngs)
  if meta == rngs_meta then return rngs[name] end
  if meta == stream_meta then return rngs end
  raise("E_VALUE", "%s: needs random keys: {rngs = nn.Rngs(0)}, got %s", who, lib.kind(rngs))
end

return M
