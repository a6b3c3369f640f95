-- linear.lua: a matrix product with a bias, over one dim or several at either end.
local core = require "meshlua.core"
local lib = require "meshlua.lib"
local initializers = require "meshlua.nn.initializers"
local module = require "meshlua.nn.module"
local param = require "meshlua.nn.param"
local rngs_of = require "meshlua.nn.rngs"

local op, raise = core.op, lib.raise

local M = {}

--- Positive whole numbers as a list.
local function features(who, what, n)
  if type(n) == "number" then n = {n} end
  if type(n) ~= "table" or #n == 0 then
    raise("E_VALUE", "%s: %s must be a whole number or a list of them", who, what)
  end
  for _, size in ipairs(n) do
    if math.type(size) ~= "integer" or size < 1 then
      raise("E_VALUE", "%s: %s is %s; it must be a whole number from 1 on", who, what, size)
    end
  end
  return n
end

local function range(first, n)
  local list = {}
  for i = 1, n do list[i] = first + i - 1 end
  return list
end

local function joined(a, b)
  return table.move(b, 1, #b, #a + 1, table.move(a, 1, #a, 1, {}))
end

--- A kernel's Param: drawn with fans over all its input dims, and all its output dims.
---@param init Initializer
---@param n_in integer input dims: the first of the shape
local function kernel_param(who, rngs, init, shape, n_in, dtype, meta)
  init = init or initializers.lecun_normal()
  local key = rngs_of.stream(who, rngs, "params")()
  local dims = {in_axis = range(1, n_in), out_axis = range(n_in + 1, #shape - n_in)}
  return param.Param(init(key, shape, dtype, dims), meta)
end
M.kernel_param = kernel_param

--- A bias's Param.
local function bias_param(who, rngs, init, shape, dtype, meta)
  -- flax draws a key for every bias, also for zeros: the streams of both must stay in step.
  local key = rngs_of.stream(who, rngs, "params")()
  return param.Param((init or initializers.zeros)(key, shape, dtype), meta)
end
M.bias_param = bias_param

--- x times the kernel over x's last dims and the kernel's first, plus the bias; in `dtype` if given.
local function apply(x, kernel, bias, n_in, dtype)
  if not lib.is_tensor(x) then
    raise("E_VALUE", "Linear: expected a tensor, got %s", lib.kind(x))
  end
  if dtype then
    x, kernel = op.astype(x, {dtype = dtype}), op.astype(kernel, {dtype = dtype})
    bias = bias and op.astype(bias, {dtype = dtype})
  elseif x.dtype ~= kernel.dtype then
    local meet = core.promote(x.dtype, kernel.dtype)
    x, kernel = op.astype(x, {dtype = meet}), op.astype(kernel, {dtype = meet})
  end
  local y = op.matmul(x, kernel, {x_contract = range(x.ndim - n_in + 1, n_in),
    w_contract = range(1, n_in)})
  return bias and op.add(y, bias) or y
end
M.apply = apply

--- y = x kernel + bias. With a list of features the kernel has a dim for each: Linear(128, {8, 16}) makes
--- heads, Linear({8, 16}, 128) joins them. nn.lora may add a product of low rank to the kernel.
M.Linear, M.meta = module.module("Linear")

---@class LinearOptions
---@field rngs Rngs
---@field axes (string|false)[]|P
---@field bias_axes (string|false)[]|P
---@field use_bias boolean
---@field kernel_init Initializer
---@field bias_init Initializer
---@field param_dtype string
---@field dtype string

---@param n_in integer|integer[] features of the input: x's last dim(s)
---@param n_out integer|integer[] features of the result
---@param options LinearOptions
--- axes: of the kernel (its last ones are the bias's, unless bias_axes says otherwise). use_bias: default
--- true. kernel_init: default lecun_normal. bias_init: default zeros. param_dtype: default float32. dtype: in
--- which it computes; default where input and kernel meet.
function M.Linear:init(n_in, n_out, options)
  options = lib.options("Linear", options)
  n_in, n_out = features("Linear", "in_features", n_in), features("Linear", "out_features", n_out)
  local shape, dtype = joined(n_in, n_out), options.param_dtype or "float32"
  self.inputs = #n_in
  self.dtype = options.dtype
  self.kernel = kernel_param("Linear", options.rngs, options.kernel_init, shape, #n_in, dtype,
    {axes = options.axes, role = "kernel"})
  if options.use_bias == false then return end
  local axes = options.bias_axes
  if axes == nil then axes = param.last_axes(options.axes, #shape, #n_out) end
  self.bias = bias_param("Linear", options.rngs, options.bias_init, n_out, dtype,
    {axes = axes, role = "bias"})
end

---@param x Tensor [..., in_features]
---@return Tensor [..., out_features]
function M.Linear:__call(x)
  local y = apply(x, self.kernel, self.bias, self.inputs, self.dtype)
  if not self.lora_a then return y end
  local narrow = apply(x, self.lora_a, nil, self.inputs, self.dtype)
  local more = apply(narrow, self.lora_b, nil, 1, self.dtype)
  return op.add(y, op.astype(op.mul(more, self.lora_scale), {dtype = y.dtype}))
end

M.features = features

return M
