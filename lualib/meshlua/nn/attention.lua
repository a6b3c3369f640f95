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

local MOST = 1 << 30

--- The operands behind q [B,T,H,D], k [B,S,G,D] and v, in the order of the op, and what they add to its attributes.
local function operands(q, k, v, options, attr)
  local B, T, H, S = q.shape[1], q.shape[2], q.shape[3], k.shape[2]
  local list = {q, k, v}
  local function add(name, x, what, dtype, dims)
    args.check_tensor("attention", x, what)
    if dtype == "bool" and x.dtype ~= "bool" or dtype == "int32" and not x.dtype:match "^u?int" then
      raise("E_DTYPE", "attention: %s is %s; it must be %s", what, core.typeof(x),
        dtype == "bool" and "bool" or "whole numbers")
    end
    if dtype == "int32" then x = args.to_int32(x) end
    if name == "bias" then
      if not x.dtype:match "float" then
        raise("E_DTYPE", "attention: the bias is %s; it must be floats", core.typeof(x))
      end
      if q.dtype == "float64" or x.dtype == "float64" then
        x = args.as(x, q.dtype == "float64" and "float64" or "float32")
      end
    end
    attr[name] = true
    list[#list + 1] = dims and ops.broadcast(x, dims) or x
  end
  local scores = {B, H, T, S}
  if options.mask then add("mask", options.mask, "the mask", "bool", scores) end
  if attr.keep then
    add("dropout", options.key, "the key of the dropout")
    attr.strides = {H * T * S, T * S, S, 1}
  end
  if options.bias then add("bias", options.bias, "the bias", nil, scores) end
  if options.lengths then add("lengths", options.lengths, "lengths", "int32", {B}) end
  if options.query_lengths then add("query_lengths", options.query_lengths, "query_lengths", "int32", {B}) end
  local offset = options.offset
  if math.type(offset) == "integer" then
    attr.ahead = {math.max(-MOST, math.min(MOST, offset))}
  elseif offset then
    add("offset", offset, "the offset", "int32", {B})
  end
  local ids = options.segment_ids
  if ids then
    local pair = lib.is_tensor(ids) and {ids, ids} or ids
    add("query_segments", pair[1], "segment_ids", "int32", {B, T})
    add("segments", pair[2], "segment_ids of the keys", "int32", {B, S})
  end
  return list
end

--- {left, right} as the op has them, of a number or a pair; false: no limit.
local function window_of(window)
  if type(window) == "number" then window = {window, window} end
  local pair = {}
  for i = 1, 2 do
    local n = type(window) == "table" and window[i]
    if n == false then n = -1 elseif math.type(n) ~= "integer" or n < 0 then n = nil end
    if not n then
      raise("E_VALUE", "attention: a window is a whole number from 0, or {left, right}, false for no limit; "
        .. "got %s", lib.kind(window))
    end
    pair[i] = math.min(n, MOST)
  end
  return pair
end

--- What the op is told by numbers: scale, causal, window, soft cap, dropout.
local function attributes(q, options)
  local attr = {scale = (options.scale or 1 / math.sqrt(q.shape[4])) + 0.0, causal = options.causal or false}
  if options.window then attr.window = window_of(options.window) end
  if options.soft_cap then
    attr.soft_cap = lib.check_number("attention", "soft_cap", options.soft_cap) + 0.0
    if not (attr.soft_cap > 0) then
      raise("E_VALUE", "attention: soft_cap is %s; it must be above 0", options.soft_cap)
    end
  end
  local rate = lib.check_number("attention", "dropout", options.dropout or 0)
  if not (rate >= 0 and rate < 1) then
    raise("E_VALUE", "attention: dropout is %s; it must be from 0 to below 1", rate)
  end
  if rate > 0 then attr.keep = 1.0 - rate end
  return attr
end

--- softmax(scale q k^T) v for each head, over the keys that a query sees: all, but for what the options say
--- together. One that sees none gives zeros and has no gradient. Fewer key heads than query heads serve groups of
--- them in order. Query t has the place t + offset among the keys, both counted from 0.
---@param q Tensor [batch, length, heads, head_dim], or without batch
---@param k Tensor [batch, keys, key heads, head_dim]; its float need not be q's (a cache in bfloat16)
---@param v Tensor of k's shape and dtype
---@param options AttentionCallOptions?
---@return Tensor of q's shape and dtype; scores and sums are float32, or float64
function M.attention(q, k, v, options)
  options = lib.options("attention", options)
  args.check_tensor("attention", q, "q")
  args.check_tensor("attention", k, "k")
  args.check_tensor("attention", v, "v")
  local rank, dtype = q.ndim, q.dtype
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
  if dtype ~= k.dtype and (dtype == "float64" or k.dtype == "float64") then
    q, k, v = args.as(q, "float64"), args.as(k, "float64"), args.as(v, "float64")
  end
  local attr = attributes(q, options)
  local list = operands(q, k, v, options, attr)
  list[#list + 1] = attr
  local y = args.as((op.attention(table.unpack(list))), dtype)
  return rank == 3 and ops.squeeze(y, 1) or y
end

---@class AttentionCallOptions
---@field mask Tensor? bool, broadcast to [batch, heads, length, keys]: true where a query may look
---@field causal boolean? keys behind the query's place are not seen
---@field window integer|table? {left, right}: keys further than that from the query's place are not seen; false: no
--- limit on that side; a number: both
---@field offset integer|Tensor? of the first query among the keys; [batch]: of each row. Default: keys - length
---@field lengths Tensor? [batch]: only so many keys of a row are seen (and read)
---@field query_lengths Tensor? [batch]: later queries of a row see nothing
---@field segment_ids Tensor|table? [batch, length]: only keys of the query's segment are seen; {of queries, of keys}
---@field bias Tensor? floats, broadcast to [batch, heads, length, keys]: added to the scores; has a gradient
---@field soft_cap number? scores become soft_cap * tanh(score / soft_cap), before the bias
---@field scale number? default 1 / sqrt(head_dim)
---@field dropout number? the share of the probabilities that is dropped, with the key
---@field key Tensor?

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
---@field window integer|table
---@field soft_cap number

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
--- {base =, interleaved =, scaling =} as nn.rope takes them; default none. window, soft_cap: see nn.attention.
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
  self.window, self.soft_cap = options.window, options.soft_cap
  if self.window then window_of(self.window) end
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
---@param options {mask: Tensor, kv: Tensor, causal: boolean, rngs: Rngs, lengths: Tensor, segment_ids: Tensor|table,
--- bias: Tensor, cache: CachedLayer}? mask, lengths, segment_ids, bias: see nn.attention. kv: what keys and values are
--- made of (default x). causal: default the layer's. rngs: keys of the dropout. cache: what ml.cache has for the layer,
--- in an opened cache
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
  local past = options.cache
  if past and not past.add then
    raise("E_VALUE", "MultiHeadAttention: cache is the layer's part of an opened cache: past = "
      .. "cache:open(ids), then past.PATH, with the path that the layer has in the model")
  end
  if self.rope then
    local turn = self.rope
    if past then
      turn = lib.copy(turn)
      turn.positions = past.positions
    end
    q, k = rope.rope(q, turn), rope.rope(k, turn)
  end
  local causal = options.causal
  if causal == nil then causal = self.causal end
  local key = self.dropout and self.dropout:key(options.rngs)
  local see = {mask = options.mask, causal = causal, window = self.window, soft_cap = self.soft_cap,
    lengths = options.lengths, segment_ids = options.segment_ids, bias = options.bias,
    dropout = key and self.dropout.rate, key = key}
  if past then k, v = past:add(k, v, see) end
  local y = M.attention(q, k, v, see)
  return self.out(with_heads(y, self.heads_axis))
end

--- The layer's part of a cache: see ml.cache.
function M.MultiHeadAttention:new_cache(make, walk) -- luacheck: no unused
  lib.check_function("MultiHeadAttention:new_cache", make)
  local kernel = (self.qkv or self.key).kernel
  local shape = kernel.shape
  return make(shape[#shape - 1], shape[#shape], self.kv_axis, (self.qkv or self.key).dtype or kernel.dtype)
end

return M
