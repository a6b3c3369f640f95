-- conv.lua: convolutions and windows. A tensor is [batch, spatial..., features] (NHWC), a kernel
-- [spatial..., features in, features out] (HWIO), for one spatial dim or more.
local core = require "meshlua.core"
local lib = require "meshlua.lib"
local args = require "meshlua.ops.args"

local op, raise = core.op, lib.raise
local check_tensor, each = args.check_tensor, args.each

local M = {}

---@class ConvOptions
---@field strides integer|integer[] default 1
---@field padding "same"|"valid"|integer[][] {low, high} for each spatial dim; default "valid"
---@field input_dilation integer|integer[] default 1; above, zeros stand between x's elements
---@field kernel_dilation integer|integer[] default 1
---@field groups integer default 1: features in groups that do not mix
---@field preferred_element_type string the dtype in which it adds up and comes; default that of x and w

--- The convolution (without turning the kernel round, as everywhere in this field) of x with w. "same" gives
--- ceil(size / stride) places, the odd pad at the end.
---@param x Tensor float [batch, spatial..., in]
---@param w Tensor float [spatial..., in / groups, out]
---@param options ConvOptions?
---@return Tensor [batch, spatial..., out] in the dtype where both meet
function M.conv(x, w, options)
  check_tensor("conv", x)
  check_tensor("conv", w)
  options = lib.options("conv", options)
  local n = x.ndim - 2
  if n < 1 or w.ndim ~= x.ndim then
    raise("E_SHAPE", "conv: x is %s and the kernel %s; expected [batch, spatial..., in] and "
      .. "[spatial..., in, out]", core.typeof(x), core.typeof(w))
  end
  local strides = each("conv", "strides", options.strides, n, 1)
  local x_dilation = each("conv", "input dilations", options.input_dilation, n, 1)
  local w_dilation = each("conv", "kernel dilations", options.kernel_dilation, n, 1)
  local sizes, windows = {}, {}
  for i = 1, n do
    sizes[i], windows[i] = x.shape[i + 1], (w.shape[i] - 1) * w_dilation[i] + 1
    if x_dilation[i] ~= 1 and type(options.padding) == "string" and options.padding:lower() == "same" then
      raise("E_VALUE", "conv: 'same' of a dilated input says too little; give a {low, high} for each dim")
    end
  end
  local low, high = args.pads("conv", options.padding, sizes, strides, windows)
  local meet = core.promote(x.dtype, w.dtype)
  if not meet:match "float" then meet = "float32" end
  local wide, result
  meet, wide, result = args.product_dtypes("conv", meet, options.preferred_element_type)
  if x.dtype ~= meet then x = op.astype(x, {dtype = meet}) end
  if w.dtype ~= meet then w = op.astype(w, {dtype = meet}) end
  return args.as(op.conv(x, w, {strides = strides, low = low, high = high, x_dilation = x_dilation,
    w_dilation = w_dilation, groups = lib.check_integer("conv", "groups", options.groups or 1),
    wide = wide or false}), result)
end

--- The largest, or the sum, of each window that slides over x. A window sees only what x has: pads add
--- nothing to a sum, and are never the largest. The gradient of a largest goes to the first of equal ones.
---@param x Tensor
---@param kind "max"|"sum"
---@param window integer[] sizes, one for each dim of x
---@param options {strides: integer|integer[], padding: "same"|"valid"|integer[][]}? strides: default 1
---@return Tensor
function M.reduce_window(x, kind, window, options)
  check_tensor("reduce_window", x)
  options = lib.options("reduce_window", options)
  if kind ~= "max" and kind ~= "sum" then
    raise("E_VALUE", "reduce_window: '%s'; it is 'max' or 'sum'", kind)
  end
  window = each("reduce_window", "windows", window, x.ndim)
  local strides = each("reduce_window", "strides", options.strides, x.ndim, 1)
  local low, high = args.pads("reduce_window", options.padding, x.shape, strides, window)
  return op["reduce_window_" .. kind](x, {window = window, strides = strides, low = low, high = high})
end

return M
