-- embed.lua: a table of vectors by id, and the same table as the last layer of a language model.
local core = require "meshlua.core"
local lib = require "meshlua.lib"
local initializers = require "meshlua.nn.initializers"
local linear = require "meshlua.nn.linear"
local module = require "meshlua.nn.module"
local ops = require "meshlua.ops"

local op, raise = core.op, lib.raise

local M = {}

M.Embed = module.module("Embed")

---@param num_embeddings integer ids are 0 .. num_embeddings - 1
---@param features integer
---@param options {rngs: Rngs, axes: (string|false)[]|P, embedding_init: Initializer, param_dtype: string, dtype: string}
--- embedding_init: default variance_scaling(1, "fan_in", "normal") over the features, as flax. dtype: of the
--- result; default param_dtype (float32).
function M.Embed:init(num_embeddings, features, options)
  options = lib.options("Embed", options)
  local rows = linear.features("Embed", "num_embeddings", num_embeddings)[1]
  local width = linear.features("Embed", "features", features)[1]
  self.dtype = options.dtype
  local init = options.embedding_init
    or initializers.variance_scaling(1.0, "fan_in", "normal", {out_axis = 1})
  self.embedding = linear.kernel_param("Embed", options.rngs, init, {rows, width}, 1,
    options.param_dtype or "float32", {axes = options.axes, role = "embedding"})
end

--- The vectors of the ids. An id outside the table, or below 0, is an error when it runs.
---@param ids Tensor [...] integers, 0-based
---@return Tensor [..., features]
function M.Embed:__call(ids)
  if not lib.is_tensor(ids) then
    raise("E_VALUE", "Embed: expected ids as a tensor, got %s", lib.kind(ids))
  end
  if ids.dtype:match "float" or ids.dtype == "bool" then
    raise("E_DTYPE", "Embed: ids are whole numbers, not %s", core.typeof(ids))
  end
  local y = ops.take(self.embedding, ids, 1, "strict")
  return self.dtype and op.astype(y, {dtype = self.dtype}) or y
end

--- The product of each vector with every row of the table: logits, where the table is also the head.
---@param x Tensor [..., features]
---@return Tensor [..., num_embeddings]
function M.Embed:attend(x)
  if not lib.is_tensor(x) then
    raise("E_VALUE", "Embed: expected vectors as a tensor, got %s", lib.kind(x))
  end
  local embedding = self.embedding
  if self.dtype then
    x, embedding = op.astype(x, {dtype = self.dtype}), op.astype(embedding, {dtype = self.dtype})
  end
  return op.matmul(x, embedding, {x_contract = {x.ndim}, w_contract = {2}})
end

return M
