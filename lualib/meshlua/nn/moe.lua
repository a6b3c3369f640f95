-- moe.lua: a mixture of experts: every token goes to the few experts that a router gives the most weight, as
-- far as they have room.
local core = require "meshlua.core"
local lib = require "meshlua.lib"
local activations = require "meshlua.nn.activations"
local linear = require "meshlua.nn.linear"
local module = require "meshlua.nn.module"
local args = require "meshlua.ops.args"
local mesh = require "meshlua.sharding.mesh"
local ops = require "meshlua.ops"

local op, raise = core.op, lib.raise

local M = {}

--- Experts of two matrices each (three, if gated), on the logical axis "expert", behind a router. Tokens are taken in groups, the
--- rows of the batch: in each an expert has room for `capacity` tokens, first choices before second ones, and
--- what finds no room passes by (GShard: Lepikhin et al. 2020, algorithm 1). Dispatch and combination are
--- products with one-hot tensors, so that experts that lie on the batch's mesh axis cost all_to_alls.
--- Logical axes: "batch", "embed", "mlp", "expert".
M.MoE = module.module("MoE")

---@class MoEOptions
---@field rngs Rngs
---@field top_k integer experts of a token; default 2
---@field capacity_factor number room for this many times an even share; default 1.25
---@field activation fun(x: Tensor): Tensor default gelu
---@field gated boolean a third matrix, whose product the activated one is multiplied by (Shazeer 2020)
---@field kernel_init Initializer default lecun_normal
---@field param_dtype string default float32
---@field dtype string of the experts' products; default where x and kernels meet. The router is float32

---@param width integer features of a token
---@param hidden integer features inside an expert
---@param experts integer
---@param options MoEOptions
function M.MoE:init(width, hidden, experts, options)
  options = lib.options("MoE", options)
  local sizes = {width = width, hidden = hidden, experts = experts}
  for _, name in ipairs {"width", "hidden", "experts"} do
    local n = sizes[name]
    if math.type(n) ~= "integer" or n < 1 then
      raise("E_VALUE", "MoE: %s is %s; it must be a whole number from 1 on", name, n)
    end
  end
  local k, factor = options.top_k or 2, options.capacity_factor or 1.25
  if math.type(k) ~= "integer" or k < 1 or k > experts then
    raise("E_VALUE", "MoE: top_k is %s of %s", k, lib.count(experts, "expert"))
  end
  if not (factor > 0 and factor < math.huge) then
    raise("E_VALUE", "MoE: the capacity factor is %s; it must be above 0", factor)
  end
  self.experts, self.top_k, self.capacity_factor = experts, k, factor
  self.dtype, self.activation = options.dtype, options.activation
  local function kernel(shape, axes)
    return linear.kernel_param("MoE", options.rngs, options.kernel_init, shape, #shape - 1,
      options.param_dtype or "float32", {axes = axes, role = "kernel"})
  end
  self.router = kernel({width, experts}, {"embed", false})
  if options.gated then self.gate = kernel({experts, width, hidden}, {"expert", "embed", "mlp"}) end
  self.up = kernel({experts, width, hidden}, {"expert", "embed", "mlp"})
  self.down = kernel({experts, hidden, width}, {"expert", "mlp", "embed"})
end

--- The tokens of a group that an expert has room for.
---@param tokens integer of a group
---@return integer
function M.MoE:capacity(tokens)
  lib.check_integer("MoE", "the number of tokens", tokens)
  local even = tokens * self.top_k / self.experts
  return math.min(tokens, math.max(1, math.ceil(even * self.capacity_factor)))
end

--- Where each token goes: the two tensors [batch, tokens, experts, capacity], one that is 1 where the token has
--- the place, one that has its weight there; and the load-balancing loss.
local function route(self, x, capacity)
  local batch, tokens, experts, k = x.shape[1], x.shape[2], self.experts, self.top_k
  local logits = ops.matmul(op.astype(x, {dtype = "float32"}), op.astype(self.router, {dtype = "float32"}))
  local p = ops.softmax(logits)
  local weights, ids = ops.top_k(p, k)
  if k > 1 then weights = op.div(weights, ops.sum(weights, 3, true)) end
  local chosen = ops.one_hot(ops.transpose(ids, 1, 3, 2), experts) -- [batch, k, tokens, experts]
  -- A token's place with its expert is how many came before it: of first choices, then of second ones.
  local line = ops.reshape(chosen, batch, k * tokens, experts)
  local before = op.sub(ops.cumsum(line, 2), line)
  local place = ops.sum(op.mul(before, line), 3):reshape(batch, k, tokens)
  local room = ops.one_hot(op.astype(place, {dtype = "int32"}), capacity) -- zeros where there is none
  local dispatch = ops.einsum("bkte,bktc->btec", chosen, room)
  if lib.checking then -- see insight/checks.lua
    table.insert(lib.checking, {node = core.next_node() - 1, capacity = capacity, top_k = k})
  end
  local weighted = op.mul(chosen, ops.expand_dims(ops.transpose(weights, 1, 3, 2), 4))
  local combine = ops.einsum("bkte,bktc->btec", weighted, room)
  -- experts * sum(share of first choices * mean weight), 1 where even (Fedus et al. 2021, eq. 4), by group.
  local share = ops.mean(ops.reshape(ops.slice(chosen, false, 1), batch, tokens, experts), 2)
  local balance = ops.mean(ops.sum(op.mul(share, ops.mean(p, 2)), 2)) * (1.0 * experts)
  return dispatch, combine, balance
end

-- What goes to the experts lies as the tokens do, then as the experts do, and back.
local grouped, by_expert = {false, "batch", false, "embed"}, {"expert", "batch", false, "embed"}

--- A layout by logical names, where rules are in context.
local function laid(x, names) return core.rules_current() and mesh.constrain(x, names) or x end

---@param x Tensor [batch, tokens, width]
---@return Tensor y of x's shape: 0 for a token that found no room
---@return Tensor balance float32 scalar, 1 where all experts get as much: add a small multiple (0.01) to the loss
function M.MoE:__call(x)
  args.check_tensor("MoE", x)
  if x.ndim ~= 3 or x.shape[3] ~= self.router.shape[1] then
    raise("E_SHAPE", "MoE: x is %s; expected [batch, tokens, %d]", core.typeof(x), self.router.shape[1])
  end
  local dtype = self.dtype or core.promote(x.dtype, self.up.dtype)
  local function as(t) return t.dtype == dtype and t or op.astype(t, {dtype = dtype}) end
  local dispatch, combine, balance = route(self, x, self:capacity(x.shape[2]))
  local sent = ops.einsum("btec,btm->ebcm", as(dispatch), as(x))
  sent = laid(laid(sent, grouped), by_expert)
  local function into(kernel) return ops.einsum("ebcm,emh->ebch", sent, as(kernel)) end
  local h = (self.activation or activations.gelu)(into(self.gate or self.up))
  if self.gate then h = op.mul(h, into(self.up)) end
  local made = ops.einsum("ebch,ehm->ebcm", h, as(self.down))
  made = laid(laid(made, by_expert), grouped)
  return ops.einsum("btec,ebcm->btm", as(combine), made), balance
end

return M
