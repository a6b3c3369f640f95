-- attention.lua: scaled dot-product attention, and the layer of projections around it.
local core = require "meshlua.core"
local lib = require "meshlua.lib"
local dropout = require "meshlua.nn.dropout"
local linear = require "meshlua.nn.linear"
local mesh_of = require "meshlua.sharding.mesh"
local module = require "meshlua.nn.module"
local args = require "meshlua.ops.args"
local ops = require "meshlua.ops"
local rope = require "meshlua.nn.rope"

local op, raise = core.op, lib.raise

local M = {}

--- The operands and attributes that a mask and dropout add, for q [B,T,H,D] and k [B,S,G,D].
local function masking(q, k, options, rate, attr)
  local dims = {q.shape[1], q.shape[3], q.shape[2], k.shape[2]}
  local mask, key = options.mask or ops.full({}, true), options.key or ops.zeros({2}, "uint32")
  args.check_tensor("attention", mask, "the mask")
  args.check_tensor("attention", key, "the key")
  if mask.dtype ~= "bool" then
    raise("E_DTYPE", "attention: the mask is %s; it must be bool", core.typeof(mask))
  end
  attr.keep = 1.0 - rate
  attr.strides = {dims[2] * dims[3] * dims[4], dims[3] * dims[4], dims[4], 1}
  return ops.broadcast(mask, dims), key
end

--- softmax(scale q k^T) v for each head. Fewer key heads than query heads serve groups of them in order.
---@param q Tensor [batch, length, heads, head_dim], or without batch
---@param k Tensor [batch, keys, key heads, head_dim]
---@param v Tensor of k's shape
---@param options {mask: Tensor, causal: boolean, scale: number, dropout: number, key: Tensor}? mask: bool,
--- broadcast to [batch, heads, length, keys], true where a query may look; one that may look nowhere looks at
--- all alike. causal: nothing ahead is seen. scale: default 1 / sqrt(head_dim). dropout: the share of the
--- probabilities that is dropped, with the key
---@return Tensor of q's shape
function M.attention(q, k, v, options)
  options = lib.options("attention", options)
  args.check_tensor("attention", q, "q")
  args.check_tensor("attention", k, "k")
  args.check_tensor("attention", v, "v")
  local rank = q.ndim
  if rank ~= 3 and rank ~= 4 then
    raise("E_SHAPE", "attention: takes [batch, length, heads, head size], got %s", core.typeof(q))
  end
  if k.ndim ~= rank or v.ndim ~= rank then
    raise("E_SHAPE", "attention: q is %s, k %s and v %s; they have as many dims", core.typeof(q),
      core.typeof(k),
      core.typeof(v))
  end
  if rank == 3 then
    q, k, v = ops.expand_dims(q, 1), ops.expand_dims(k, 1), ops.expand_dims(v, 1)
  end
  local scale = (options.scale or 1 / math.sqrt(q.shape[4])) + 0.0
  local attr = {scale = scale, causal = options.causal or false}
  local rate = lib.check_number("attention", "dropout", options.dropout or 0)
  if not (rate >= 0 and rate < 1) then
    raise("E_VALUE", "attention: dropout is %s; it must be from 0 to below 1", rate)
  end
  if rate > 0 then args.check_tensor("attention", options.key, "the key of the dropout") end
  local y
  if options.mask or rate > 0 then
    local mask, key = masking(q, k, options, rate, attr)
    y = op.masked_attention(q, k, v, mask, key, attr)
  else
    y = op.attention(q, k, v, attr)
  end
  return rank == 3 and ops.squeeze(y, 1) or y
end

-- ---- the layer --------------------------------------------------------------------------------------

--- The head counts that divide a width, for messages.
local function divisors(width, near)
  local below, above, far = 1, width, 4096 -- where to stop looking
  near = math.min(near, width)
  for n = near - 1, math.max(2, near - far), -1 do
    if width % n == 0 then below = n break end
  end
  for n = 1, math.min(far, width - near) do
    if width % (near + n) == 0 then above = near + n break end
  end
  return below == above and tostring(below) or below .. " or " .. above
end

--- Self-attention (or, with a second input, cross-attention) with q, k, v and output projections. The
--- kernels have a dim of heads of their own, so that a mesh axis over it never cuts a head.
M.MultiHeadAttention = module.module("MultiHeadAttention")

---@class AttentionOptions: LinearOptions
---@field kv_heads integer
---@field head_dim integer
---@field causal boolean
---@field fused boolean
---@field out_kernel_init Initializer
---@field rope number|table
---@field dropout number

--- The counts of heads and of key heads, and the size of a head.
local function sizes(who, width, heads, options)
  heads = linear.features(who, "heads", heads)[1]
  local kv_heads = linear.features(who, "kv_heads", options.kv_heads or heads)[1]
  if not options.head_dim and width % heads ~= 0 then
    raise("E_INDIVISIBLE", "%s: %d heads do not divide the width %d; use %s heads, or give head_dim",
      who, heads, width, divisors(width, heads))
  end
  local head_dim = options.head_dim or width // heads
  linear.features(who, "head_dim", head_dim)
  if heads % kv_heads ~= 0 then
    raise("E_INDIVISIBLE", "%s: %s for %s; the first must divide the second", who,
      lib.count(kv_heads, "key head"), lib.count(heads, "head"))
  end
  if options.fused and kv_heads ~= heads then
    raise("E_VALUE", "%s: fused needs as many key heads as heads; %d and %d are given", who, kv_heads,
      heads)
  end
  return heads, kv_heads, head_dim
end

--- A Linear whose options are those of the layer, but for `own`.
local function projection(inputs, outputs, options, own)
  return linear.Linear(inputs, outputs, {rngs = options.rngs, axes = options.axes and own.axes,
    bias_axes = options.axes and own.bias_axes, use_bias = options.use_bias,
    kernel_init = own.kernel_init or options.kernel_init, bias_init = options.bias_init,
    param_dtype = options.param_dtype, dtype = options.dtype})
end

---@param width integer features of input and result
---@param heads integer
---@param options AttentionOptions
--- axes: names of {width, heads [, key heads]}. kv_heads: default heads; fewer are shared by groups of
--- queries. head_dim: default width / heads. causal: default false. fused: q, k and v in one Param
--- [width, 3, heads, head_dim]; default false. rope: rotary positions: their base (10000), or
--- {base =, interleaved =, scaling =} as nn.rope takes them; default none.
--- dropout: the share of the probabilities that is dropped while training (see :train() and :eval()), each on
--- its own, with keys that come with the call; default 0. The rest as Linear's.
function M.MultiHeadAttention:init(width, heads, options)
  local who = "MultiHeadAttention"
  options = lib.options(who, options)
  width = linear.features(who, "the width", width)[1]
  local kv_heads, head_dim
  heads, kv_heads, head_dim = sizes(who, width, heads, options)
  local names = options.axes or {}
  local embed, head, kv = names[1] or false, names[2] or false, names[3]
  if kv == nil then kv = head end
  if options.fused then
    self.qkv = projection(width, {3, heads, head_dim}, options, {axes = {embed, false, head, false}})
  else
    self.query = projection(width, {heads, head_dim}, options, {axes = {embed, head, false}})
    self.key = projection(width, {kv_heads, head_dim}, options, {axes = {embed, kv, false}})
    self.value = projection(width, {kv_heads, head_dim}, options, {axes = {embed, kv, false}})
  end
  self.out = projection({heads, head_dim}, width, options,
    {axes = {head, false, embed}, bias_axes = {embed}, kernel_init = options.out_kernel_init})
  self.heads_axis, self.kv_axis = head or nil, kv or nil
  self.causal = options.causal or false
  if options.rope then
    self.rope = rope.check(who, type(options.rope) == "number" and {base = options.rope} or options.rope)
  end
  if options.dropout and options.dropout ~= 0 then
    if not (options.dropout > 0 and options.dropout < 1) then
      raise("E_VALUE", "%s: dropout is %s; it must be from 0 to below 1", who, options.dropout)
    end
    self.dropout = dropout.Dropout(options.dropout)
  end
end

--- x [..., heads, head_dim] with its heads laid as the rules in context say; where none are, as they fall.
local function with_heads(x, name)
  if type(name) ~= "string" or not core.rules_current() then return x end
  local names = {}
  for d = 1, x.ndim do names[d] = core.P.unconstrained end
  names[x.ndim - 1] = name
  return mesh_of.constrain(x, names)
end

--- One third of the fused projection.
local function third(qkv, i)
  local ranges = {}
  for d = 1, qkv.ndim do ranges[d] = false end
  ranges[qkv.ndim - 2] = i
  return ops.slice(qkv, table.unpack(ranges))
end

---@param x Tensor [batch, length, width]
---@param options {mask: Tensor, kv: Tensor, causal: boolean, rngs: Rngs}? mask: see nn.attention. kv: what
--- keys and values are made of (default x). causal: default the layer's. rngs: keys of the dropout
---@return Tensor of x's shape
function M.MultiHeadAttention:__call(x, options)
  options = lib.options("MultiHeadAttention:__call", options)
  local q, k, v
  if self.qkv then
    if options.kv then
      raise("E_VALUE", "MultiHeadAttention: a fused layer has one input; make it without fused")
    end
    local qkv = self.qkv(x)
    q, k, v = third(qkv, 1), third(qkv, 2), third(qkv, 3)
  else
    local other = options.kv or x
    q, k, v = self.query(x), self.key(other), self.value(other)
  end
  q, k, v = with_heads(q, self.heads_axis), with_heads(k, self.kv_axis), with_heads(v, self.kv_axis)
  if self.rope then
    q, k = rope.rope(q, self.rope), rope.rope(k, self.rope)
  end
  local causal = options.causal
  if causal == nil then causal = self.causal end
  local key = self.dropout and self.dropout:key(options.rngs)
  local y = M.attention(q, k, v,
    {mask = options.mask, causal = causal, dropout = key and self.dropout.rate, key = key})
  return self.out(with_heads(y, self.heads_axis))
end

return M
