-- conv.lua: convolution layers, and pooling. Tensors are [batch, spatial..., features].
local core = require "meshlua.core"
local lib = require "meshlua.lib"
local linear = require "meshlua.nn.linear"
local module = require "meshlua.nn.module"
local param = require "meshlua.nn.param"
local args = require "meshlua.ops.args"
local convs = require "meshlua.ops.conv"
local initializers = require "meshlua.nn.initializers"
local rngs_of = require "meshlua.nn.rngs"

local op, raise = core.op, lib.raise

local M = {}

--- y = conv(x, kernel) + bias.
M.Conv = module.module("Conv")

---@class ConvLayerOptions: ConvOptions
---@field rngs Rngs
---@field axes (string|false)[]|P of the kernel [spatial..., in / groups, out]; the last is the bias's
---@field bias_axes (string|false)[]|P
---@field use_bias boolean default true
---@field kernel_init Initializer default lecun_normal, with the spatial dims in its fans
---@field bias_init Initializer default zeros
---@field param_dtype string default float32
---@field dtype string in which it computes; default where x and kernel meet

--- What both kinds of layer begin with.
local function init(self, who, n_in, n_out, window, options)
  n_in = linear.features(who, "in_features", n_in)[1]
  n_out = linear.features(who, "out_features", n_out)[1]
  window = linear.features(who, "the kernel's window", window)
  local groups, dtype = options.groups or 1, options.param_dtype or "float32"
  lib.check_integer(who, "groups", groups)
  if groups < 1 or n_in % groups ~= 0 or n_out % groups ~= 0 then
    raise("E_VALUE", "%s: %s to %d in %s; both must be multiples", who, lib.count(n_in, "feature"), n_out,
      lib.count(groups, "group"))
  end
  local shape = table.move(window, 1, #window, 1, {})
  shape[#shape + 1], shape[#shape + 2] = n_in // groups, n_out
  self.dtype, self.groups = options.dtype, groups
  self.padding = options.padding or "same"
  self.strides, self.kernel_dilation = options.strides, options.kernel_dilation
  local key = rngs_of.stream(who, options.rngs, "params")()
  local kernel_init = options.kernel_init or initializers.lecun_normal()
  self.kernel = param.Param(kernel_init(key, shape, dtype), {axes = options.axes, role = "kernel"})
  if options.use_bias == false then return end
  local axes = options.bias_axes
  if axes == nil then axes = param.last_axes(options.axes, #shape, 1) end
  self.bias = linear.bias_param(who, options.rngs, options.bias_init, {n_out}, dtype,
    {axes = axes, role = "bias"})
end

--- The convolution of x with the kernel, in the layer's dtype, plus the bias.
local function apply(self, who, x, options)
  args.check_tensor(who, x)
  local kernel, bias, dtype = self.kernel, self.bias, self.dtype
  if dtype then
    x, kernel = op.astype(x, {dtype = dtype}), op.astype(kernel, {dtype = dtype})
    bias = bias and op.astype(bias, {dtype = dtype})
  end
  options.groups, options.kernel_dilation = self.groups, self.kernel_dilation
  local y = convs.conv(x, kernel, options)
  return bias and op.add(y, bias) or y
end

---@param n_in integer features of x
---@param n_out integer features of the result
---@param window integer[] the kernel's spatial dims: {3, 3}
---@param options ConvLayerOptions padding: default "same", as flax
function M.Conv:init(n_in, n_out, window, options)
  options = lib.options("Conv", options)
  init(self, "Conv", n_in, n_out, window, options)
  self.input_dilation = options.input_dilation
end

---@param x Tensor [batch, spatial..., in]
---@return Tensor [batch, spatial..., out]
function M.Conv:__call(x)
  return apply(self, "Conv", x, {strides = self.strides, padding = self.padding,
    input_dilation = self.input_dilation})
end

--- What a Conv with strides has taken away: each element of x, strides apart, times the kernel.
M.ConvTranspose = module.module("ConvTranspose")

---@param n_in integer features of x
---@param n_out integer features of the result
---@param window integer[] the kernel's spatial dims: {3, 3}
---@param options ConvLayerOptions padding: "same" (default: strides times the size) or "valid" (all that an element of x
--- reaches), or {low, high} for each dim, the pads of x with strides - 1 zeros between its elements
function M.ConvTranspose:init(n_in, n_out, window, options)
  init(self, "ConvTranspose", n_in, n_out, window, lib.options("ConvTranspose", options))
end

--- The pads of x, whose elements lie strides apart; k: the size that the kernel covers.
local function transposed_pads(word, k, stride)
  local all, low = k + stride - 2, k - 1
  if word == "valid" then all = all + math.max(k - stride, 0)
  elseif stride < k then low = (all + 1) // 2 end
  return {low, all - low}
end

---@param x Tensor [batch, spatial..., in]
---@return Tensor [batch, spatial..., out]
function M.ConvTranspose:__call(x)
  local n, pads = self.kernel.ndim - 2, self.padding
  local strides = args.each("ConvTranspose", "strides", self.strides, n, 1)
  local dilation = args.each("ConvTranspose", "kernel dilations", self.kernel_dilation, n, 1)
  if type(pads) == "string" then
    local word = pads:lower()
    if word ~= "same" and word ~= "valid" then
      raise("E_VALUE", "ConvTranspose: padding '%s'; it is 'same', 'valid' or a {low, high} for each dim",
        pads)
    end
    pads = {}
    for i = 1, n do
      pads[i] = transposed_pads(word, (self.kernel.shape[i] - 1) * dilation[i] + 1, strides[i])
    end
  end
  return apply(self, "ConvTranspose", x, {padding = pads, input_dilation = strides})
end

-- ---- pooling --------------------------------------------------------------------------------------

--- A window and strides of the spatial dims as those of all dims, and the pads.
local function pool_of(who, x, window, options)
  args.check_tensor(who, x)
  options = lib.options(who, options)
  local n = x.ndim - 2
  if n < 1 then
    raise("E_SHAPE", "%s: x is %s; expected [batch, spatial..., features]", who, core.typeof(x))
  end
  local strides = args.each(who, "strides", options.strides, n, 1)
  window = args.each(who, "windows", window, n)
  local sizes = table.move(x.shape, 2, n + 1, 1, {})
  local low, high = args.pads(who, options.padding, sizes, strides, window)
  local all, by, pads = {1}, {1}, {{0, 0}}
  for i = 1, n do all[i + 1], by[i + 1], pads[i + 1] = window[i], strides[i], {low[i], high[i]} end
  all[n + 2], by[n + 2], pads[n + 2] = 1, 1, {0, 0}
  return all, {strides = by, padding = pads}, options
end

--- The largest of each window over the spatial dims, feature by feature.
---@param x Tensor [batch, spatial..., features]
---@param window integer|integer[] sizes over the spatial dims
---@param options {strides: integer|integer[], padding: "same"|"valid"|integer[][]}? strides: default 1, as
--- flax; padding: default "valid"
---@return Tensor
function M.max_pool(x, window, options)
  local all, how = pool_of("max_pool", x, window, options)
  return convs.reduce_window(x, "max", all, how)
end

--- The mean of each window over the spatial dims. Places of pads count as zeros, unless count_include_pad is
--- false: then the mean is of what x has.
---@param x Tensor float [batch, spatial..., features]
---@param window integer|integer[]
---@param options {strides: integer|integer[], padding: "same"|"valid"|integer[][], count_include_pad: boolean}?
---@return Tensor
function M.avg_pool(x, window, options)
  local all, how, given = pool_of("avg_pool", x, window, options)
  local sums = convs.reduce_window(x, "sum", all, how)
  if given.count_include_pad ~= false then return op.div(sums, lib.product(all)) end
  local shape = table.move(x.shape, 1, x.ndim, 1, {})
  shape[1], shape[#shape] = 1, 1
  local ones = op.full {dims = shape, value = 1, dtype = sums.dtype}
  return op.div(sums, convs.reduce_window(ones, "sum", all, how))
end

return M
