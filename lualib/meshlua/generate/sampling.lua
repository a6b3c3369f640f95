-- sampling.lua: from logits to the next token, in the plan that made them. What is drawn depends on the seed, the row,
-- and how many tokens the row has drawn before, and neither on the mesh nor on other rows.
local core = require "meshlua.core"
local ops = require "meshlua.ops"

local op = core.op

local M = {}

--- Numbers in `state.numbers`, in this order.
M.NUMBERS = {"temperature", "top_p", "min_p", "repetition_penalty"}
local AT = {}
for i, name in ipairs(M.NUMBERS) do AT[name] = i end

--- One of the numbers, as a scalar.
local function number(state, name) return ops.slice(state.numbers, AT[name]) end

--- Logits of tokens that the row has had are nearer to being unlikely (Keskar et al. 2019).
local function penalized(state, logits)
  local by = number(state, "repetition_penalty")
  local less = op.where(op.gt(logits, 0.0), op.div(logits, by), op.mul(logits, by))
  return op.where(state.seen, less, logits)
end

--- The least logit of the most likely tokens that together have the probability top_p: [batch, 1]. `sorted`: the
--- logits that are left, from the most likely down.
local function nucleus(state, sorted)
  local p = ops.softmax(sorted, 2)
  local before = op.sub(ops.cumsum(p, 2), p)
  return ops.min(op.where(op.lt(before, number(state, "top_p")), sorted, math.huge), 2, true)
end

--- Without what the options leave out: those logits are -inf.
local function filtered(how, state, logits)
  local vocab, least, sorted = logits.shape[2], nil, nil
  if how.top_k then
    sorted = ops.top_k(logits, math.min(how.top_k, vocab), 2)
    least = ops.slice(sorted, false, {sorted.shape[2], sorted.shape[2]})
  elseif how.top_p then
    sorted = ops.sort(logits, 2, true)
  end
  if how.top_p then
    local one = nucleus(state, sorted)
    least = least and op.maximum(least, one) or one
  end
  if how.min_p then
    local one = op.add(ops.max(logits, 2, true), op.log(number(state, "min_p")))
    least = least and op.maximum(least, one) or one
  end
  return least and op.where(op.ge(logits, least), logits, -math.huge) or logits
end

local function word(x, shift)
  return op.astype(op.bitand(op.shr(x, shift), 0xffffffff), {dtype = "uint32"})
end

--- Standard Gumbel numbers [batch, vocab]: each row's by a key of its own.
local function noise(state, batch, vocab)
  local k0, k1 = ops.slice(state.key, 1), ops.slice(state.key, 2)
  local row = op.astype(ops.arange(batch), {dtype = "uint32"})
  local w = op.threefry(ops.broadcast(k0, {batch}), ops.broadcast(k1, {batch}), row,
    op.astype(state.drawn, {dtype = "uint32"}))
  local keys = {}
  for i, shift in ipairs {32, 0} do
    keys[i] = ops.broadcast(ops.expand_dims(word(w, shift), 2), {batch, vocab})
  end
  local bits = op.random_bits(keys[1], keys[2], {bits = 32, strides = {0, 1}})
  local u = op.sub(op.bitcast(op.bitor(op.shr(bits, 9), 0x3f800000), {dtype = "float32"}), 1.0)
  return op.neg(op.log(op.neg(op.log(op.maximum(u, 2.0 ^ -126)))))
end

--- The next token of each row.
---@param how {top_k: integer|false, top_p: boolean, min_p: boolean, penalty: boolean, greedy: boolean} what is asked for
---@param state table drawn [batch], key, numbers, and seen [batch, vocab] with a penalty
---@param logits Tensor [batch, vocab]
---@return Tensor int32[batch]
function M.draw(how, state, logits)
  logits = op.astype(logits, {dtype = "float32"})
  if how.penalty then logits = penalized(state, logits) end
  if how.greedy then return ops.argmax(logits, 2) end
  logits = filtered(how, state, op.div(logits, number(state, "temperature")))
  return ops.argmax(op.add(logits, noise(state, logits.shape[1], logits.shape[2])), 2)
end

--- Notes the tokens of a call as seen.
---@param ids Tensor int32[batch, T]; below 0: none
function M.note(state, ids)
  local seen = state.seen:get()
  local at = op.where(op.ge(ids, 0), ids, seen.shape[2])
  local yes = op.full {dtype = "bool", dims = ids.shape, value = true}
  state.seen:set(op.scatter(seen, at, yes, {axes = {2}, table = {1, 0}, ids = {1, 2}, size = {seen.shape[2]},
    outside = "drop", combine = "set"}))
end

return M
