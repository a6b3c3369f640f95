-- dropout.lua: elements dropped at random while training. The mask is a pure function of a key and the
-- element's global index: equal on every mesh.
local core = require "meshlua.core"
local lib = require "meshlua.lib"
local module = require "meshlua.nn.module"
local args = require "meshlua.ops.args"
local ops = require "meshlua.ops"
local rngs_of = require "meshlua.nn.rngs"

local raise = lib.raise

local M = {}

--- x / keep with probability keep, else 0.
---@param x Tensor
---@param rate number the share that is dropped, in [0, 1)
---@param key Tensor
---@return Tensor
function M.dropout(x, rate, key)
  args.check_tensor("dropout", x)
  args.check_tensor("dropout", key, "the key")
  if not (lib.check_number("dropout", "the rate", rate) >= 0 and rate < 1) then
    raise("E_VALUE", "dropout: the rate is %s; it must be from 0 to below 1", rate)
  end
  local strides, n = {}, 1
  for d = x.ndim, 1, -1 do
    strides[d], n = n, n * x.shape[d]
  end
  return core.op.dropout(x, key, {keep = 1.0 - rate, strides = strides})
end

--- Drops elements while training (see :train() and :eval()).
M.Dropout = module.module("Dropout")

---@param rate number the share that is dropped, from 0 to 1
---@param options {rngs: Rngs, stream: string}? rngs: keys of its own, from a fork of the stream (default
--- "dropout"); without it they come with each call
function M.Dropout:init(rate, options)
  options = lib.options("Dropout", options)
  if type(rate) ~= "number" or not (rate >= 0 and rate <= 1) then
    raise("E_VALUE", "Dropout: the rate is %s; it must be from 0 to 1", rate)
  end
  self.rate = rate + 0.0
  self.stream = options.stream or "dropout"
  if options.rngs then
    self.rngs = rngs_of.stream("Dropout", options.rngs, self.stream):fork()
  end
end

--- The key of a call, or nil where nothing is dropped.
---@param rngs Rngs? takes the place of the module's own
---@return Tensor?
function M.Dropout:key(rngs)
  if self.rate == 0 or not self.training then return nil end
  rngs = rngs or self.rngs
  if rngs == nil then
    raise("E_STATE", "Dropout: no random keys while training: make it with {rngs = rngs}, call it with "
      .. "rngs, or switch the model with :eval()")
  end
  return rngs_of.stream("Dropout", rngs, self.stream)()
end

---@param x Tensor
---@param rngs Rngs? takes the place of the module's own
---@return Tensor
function M.Dropout:__call(x, rngs)
  if self.rate == 1 and self.training then return ops.zeros_like(x) end
  local key = self:key(rngs)
  return key and M.dropout(x, self.rate, key) or x
end

return M
