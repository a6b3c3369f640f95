-- mfu.lua: model FLOPs utilization: the share of the devices' peak that a transformer's training uses. Counted
-- are the operations that the model needs, not those that a plan adds (recomputation).
local M = {}

--- Operations per token of a step, forward and backward: 6 N of the parameters, and the products of queries,
--- keys and values. PaLM (Chowdhery et al. 2022, appendix B) counts all of these, 12 L C T; Megatron and llm.c
--- half of them, as a causal mask leaves.
---@param parameters integer N
---@param attention {layers: integer, width: integer, seq: integer} L, C, T
---@return number all, number causal
function M.flops_per_token(parameters, attention)
  local products = 12 * attention.layers * attention.width * attention.seq
  return 6 * parameters + products, 6 * parameters + products / 2
end

--- "MFU 45.1 % by 6 N + 12 L C T, 43.0 % by 6 N + 6 L C T (causal); the peak is 989.4 TFLOP/s"; nil where the
--- peak is not known.
---@param o {parameters: integer, attention: table, tokens_per_s: number, peak: number?, devices: integer} peak:
--- operations per second of one device
---@return string?
function M.text(o)
  if not o.peak then return nil end
  local all, causal = M.flops_per_token(o.parameters, o.attention)
  local share = 100 * o.tokens_per_s / (o.peak * o.devices)
  return ("MFU %.1f %% by 6 N + 12 L C T, %.1f %% by 6 N + 6 L C T (causal), of %.1f TFLOP/s on %d "
    .. "device%s: N = %d parameters, L = %d, C = %d, T = %d, %.0f tokens/s"):format(share * all, share * causal,
    o.peak / 1e12, o.devices, o.devices == 1 and "" or "s", o.parameters, o.attention.layers, o.attention.width,
    o.attention.seq, o.tokens_per_s)
end

return M
