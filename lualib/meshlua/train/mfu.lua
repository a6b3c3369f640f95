-- mfu.lua: model FLOPs utilization: the share of the GPUs' peak that a transformer's training uses. Counted are
-- the operations that the model needs, not those that a plan adds (recomputation).
local M = {}

--- Operations per token of a step, forward and backward: 6 N of the parameters, and the products of queries,
--- keys and values. PaLM (Chowdhery et al. 2022, appendix B) counts all of these, 12 L C T; Megatron and llm.c
--- half of them, as a causal mask leaves.
---@param parameters integer N
---@param attention {layers: integer, width: integer, seq: integer, idle: integer?} L, C, T; idle: of the parameters,
--- those that a token does not meet (experts)
---@return number all, number causal
function M.flops_per_token(parameters, attention)
  local products = 12 * attention.layers * attention.width * attention.seq
  local met = 6 * (parameters - (attention.idle or 0))
  return met + products, met + products / 2
end

--- The share by both conventions, with what it was worked out from.
---@param o {parameters: integer, attention: table, tokens_per_s: number, peak: number, gpus: integer} peak:
--- operations per second of one GPU
---@return string
function M.text(o)
  local all, causal = M.flops_per_token(o.parameters, o.attention)
  local share = 100 * o.tokens_per_s / (o.peak * o.gpus)
  return ("MFU %.1f %% by 6 N + 12 L C T, %.1f %% by 6 N + 6 L C T (causal): %.0f tokens/s, N = %d, L = %d, "
    .. "C = %d, T = %d, %d x %.1f TFLOP/s"):format(share * all, share * causal, o.tokens_per_s, o.parameters,
    o.attention.layers, o.attention.width, o.attention.seq, o.gpus, o.peak / 1e12)
end

return M
