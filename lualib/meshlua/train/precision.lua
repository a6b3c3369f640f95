-- precision.lua: in which dtype a recipe computes. Parameters keep the dtype they are held in (the master
-- weights): layers cast them where they are used, and gradients come back, and are summed over devices, in it.
local lib = require "meshlua.lib"

local M = {}

local short = {f32 = "float32", f64 = "float64", bf16 = "bfloat16", f16 = "float16"}

--- The dtype of a recipe's arithmetic: config.precision (float32, bfloat16, float16, or f32, bf16, f16), and
--- where that is "", config.dtype.
---@param config {precision: string, dtype: string?}
---@return string? dtype
---@return string? message, string? code
function M.of(config)
  local word = config.precision
  if not word or word == "" then return config.dtype or "float32" end
  local dtype = short[word] or word
  for _, name in pairs(short) do
    if name == dtype then return dtype end
  end
  return nil, ("--precision=%s: expected bf16, f16 or f32%s"):format(word,
    lib.did_you_mean(word, {"float32", "bfloat16", "float16", "bf16", "f16", "f32"}, "%s")), "E_VALUE"
end

return M
