-- recurrent.lua: cells, which go one step: carry, y = cell(carry, x); and layers that run them over time. Of the cells
-- here the product with the input is made for all of time at once, in front of the loop.
local control = require "meshlua.transform.control"
local core = require "meshlua.core"
local initializers = require "meshlua.nn.initializers"
local lib = require "meshlua.lib"
local linear = require "meshlua.nn.linear"
local module = require "meshlua.nn.module"
local ops = require "meshlua.ops"
local args = require "meshlua.ops.args"

local op, raise = core.op, lib.raise

local M = {}

-- ---- cells ------------------------------------------------------------------------------------------

---@class CellOptions
---@field rngs Rngs
---@field axes (string|false)[]|P of {features in, hidden features}; a gate's features lie as the hidden ones
---@field gate_fn fun(x: Tensor): Tensor default sigmoid
---@field activation_fn fun(x: Tensor): Tensor default tanh
---@field kernel_init Initializer default lecun_normal
---@field recurrent_kernel_init Initializer default orthogonal
---@field bias_init Initializer default zeros
---@field param_dtype string default float32
---@field dtype string in which it computes

--- What cells begin with: dense_i, of the input, and dense_h, of the carry, each for all gates.
---@param order ("i"|"h")[] in which their kernels are drawn
---@param with_bias "i"|"h" which of them has the bias
local function init(self, who, n_in, hidden, gates, options, order, with_bias)
  options = lib.options(who, options)
  local n = linear.features(who, "hidden_features", hidden)[1]
  self.hidden, self.gate_fn, self.activation_fn = n, options.gate_fn, options.activation_fn
  local axes = options.axes or {}
  for _, which in ipairs(order) do
    local recurrent = which == "h"
    self["dense_" .. which] = linear.Linear(recurrent and n or n_in, gates * n, {rngs = options.rngs,
      axes = options.axes and {not recurrent and axes[1] or false, axes[2] or false},
      use_bias = which == with_bias, bias_init = options.bias_init, param_dtype = options.param_dtype,
      dtype = options.dtype, kernel_init = recurrent and (options.recurrent_kernel_init or
        initializers.orthogonal()) or options.kernel_init})
  end
end

--- Zeros for the rows of x [..., features], in the dtype in which the cell computes.
local function zeros(self, x)
  args.check_tensor("initialize_carry", x)
  local shape, dense = table.move(x.shape, 1, x.ndim - 1, 1, {}), self.dense_h
  shape[#shape + 1] = self.hidden
  return op.full {dims = shape, dtype = dense.dtype or core.promote(x.dtype, dense.kernel.dtype), value = 0}
end

-- Metatables of cells -> step(cell, carry, projected), what is behind the product with the input.
local steps = setmetatable({}, {__mode = "k"})

--- A class of cells of this name, that have one tensor as carry.
local function cell(name, step)
  local class, meta = module.module(name)
  steps[meta] = step
  function class:__call(carry, x) return step(self, carry, self.dense_i(x)) end
  function class:initialize_carry(x) return zeros(self, x) end
  return class
end

--- y = activation(x W + b + h U).
M.SimpleCell = cell("SimpleCell", function(self, h, projected)
  h = (self.activation_fn or ops.tanh)(op.add(projected, self.dense_h(h)))
  return h, h
end)

---@param n_in integer
---@param hidden integer
---@param options CellOptions
function M.SimpleCell:init(n_in, hidden, options)
  init(self, "SimpleCell", n_in, hidden, 1, options, {"h", "i"}, "i")
end

--- Long short-term memory (Hochreiter and Schmidhuber 1997). The carry is {c, h}; the gates are input, forget, cell and
--- output, each a fourth of dense_i and dense_h.
M.LSTMCell = cell("LSTMCell", function(self, carry, projected)
  if type(carry) ~= "table" then
    raise("E_VALUE", "LSTMCell: the carry is %s; expected {c, h}, as initialize_carry gives", lib.kind(carry))
  end
  local gate, activation = self.gate_fn or ops.sigmoid, self.activation_fn or ops.tanh
  local i, f, g, o = table.unpack(ops.array_split(op.add(projected, self.dense_h(carry[2])), 4, -1))
  local c = op.add(op.mul(gate(f), carry[1]), op.mul(gate(i), activation(g)))
  local h = op.mul(gate(o), activation(c))
  return {c, h}, h
end)

---@param n_in integer
---@param hidden integer
---@param options CellOptions
function M.LSTMCell:init(n_in, hidden, options)
  init(self, "LSTMCell", n_in, hidden, 4, options, {"i", "h"}, "h")
end

function M.LSTMCell:initialize_carry(x) return {zeros(self, x), zeros(self, x)} end

--- The gated recurrent unit (Cho et al. 2014); the gates are reset, update and candidate.
M.GRUCell = cell("GRUCell", function(self, h, projected)
  local gate, activation = self.gate_fn or ops.sigmoid, self.activation_fn or ops.tanh
  local xr, xz, xn = table.unpack(ops.array_split(projected, 3, -1))
  local hr, hz, hn = table.unpack(ops.array_split(self.dense_h(h), 3, -1))
  local z = gate(op.add(xz, hz))
  local n = activation(op.add(xn, op.mul(gate(op.add(xr, hr)), hn)))
  h = op.add(op.mul(op.sub(1.0, z), n), op.mul(z, h))
  return h, h
end)

---@param n_in integer
---@param hidden integer
---@param options CellOptions
function M.GRUCell:init(n_in, hidden, options)
  init(self, "GRUCell", n_in, hidden, 3, options, {"i", "h"}, "i")
end

-- ---- over time --------------------------------------------------------------------------------------

--- The new tree where the rows are live, else the old one, or a number.
local function chosen(live, new, old)
  if not lib.is_tensor(new) then
    local out = {}
    for key, value in pairs(new) do
      out[key] = chosen(live, value, type(old) == "table" and old[key] or old)
    end
    return setmetatable(out, getmetatable(new))
  end
  local shape = table.move(live.shape, 1, live.ndim, 1, {})
  for d = #shape + 1, new.ndim do shape[d] = 1 end
  return op.where(ops.broadcast(ops.reshape(live, shape), new.shape), new, old)
end

--- A cell over time.
M.RNN = module.module("RNN")

---@param cell_of table a cell
---@param options {reverse: boolean?, keep_order: boolean?, time_major: boolean?, unroll: integer?}? reverse: from the end
--- on. keep_order: results stand where their inputs do, also reversed; default false, as flax: in the order in which they
--- are made. time_major: x is [time, batch, features]
function M.RNN:init(cell_of, options)
  options = lib.options("RNN", options)
  if not module.is_module(cell_of) then
    raise("E_VALUE", "RNN: expected a cell, got %s", lib.kind(cell_of))
  end
  self.cell, self.reverse, self.keep_order = cell_of, options.reverse, options.keep_order
  self.time_major, self.unroll = options.time_major, options.unroll
end

--- y [time, batch, ...] of rows that were gone through from their ends, from their starts on.
local function flipped(y, lengths)
  if not lengths then return ops.flip(y, 1) end
  local time = y.shape[1]
  local ids = op.sub(lengths, op.add(ops.iota({time, lengths.shape[1]}, 1), 1))
  local shape = {time, lengths.shape[1]}
  for d = 3, y.ndim do shape[d] = 1 end
  ids = ops.broadcast(ops.reshape(op.mod(ids, time), shape), y.shape)
  return ops.take_along_axis(y, ids, 1)
end

--- Of a layer that is reversed where `reverse` says so.
local function run(self, x, lengths, carry, reverse, keep_order)
  args.check_tensor("RNN", x)
  if x.ndim < 3 then
    raise("E_SHAPE", "RNN: x is %s; expected %s", core.typeof(x),
      self.time_major and "[time, batch, features]" or "[batch, time, features]")
  end
  if not self.time_major then x = ops.swapaxes(x, 1, 2) end
  local layer, time, batch = self.cell, x.shape[1], x.shape[2]
  if lengths then
    args.check_tensor("RNN", lengths, "seq_lengths")
    if lengths.ndim ~= 1 or lengths.shape[1] ~= batch or lib.floats[lengths.dtype] then
      raise("E_SHAPE", "RNN: seq_lengths are %s; expected int32[%d], one for each row", core.typeof(lengths),
        batch)
    end
    lengths = args.to_int32(lengths)
  end
  if carry == nil then
    carry = layer:initialize_carry(ops.zeros(table.move(x.shape, 2, x.ndim, 1, {}), x.dtype))
  end
  local step = steps[getmetatable(layer)]
  local xs = {x = step and layer.dense_i(x) or x, at = lengths and ops.arange(0, time) or nil}
  local last, y = control.scan(function(before, now)
    local after, out
    if step then after, out = step(layer, before, now.x) else after, out = layer(before, now.x) end
    if not lengths then return after, out end
    local live = op.lt(now.at, lengths)
    return chosen(live, after, before), chosen(live, out, 0)
  end, carry, xs, {reverse = reverse, unroll = self.unroll})
  if reverse and not keep_order then y = flipped(y, lengths) end
  return self.time_major and y or ops.swapaxes(y, 1, 2), last
end

---@param x Tensor [batch, time, features], or as time_major says
---@param options {initial_carry: any, seq_lengths: Tensor?}? initial_carry: default zeros. seq_lengths: int [batch], how
--- many steps of each row count: behind them the carry stays, and results are 0
---@return Tensor y [batch, time, hidden]
---@return any carry behind the last step
function M.RNN:__call(x, options)
  options = lib.options("RNN:__call", options)
  return run(self, x, options.seq_lengths, options.initial_carry, self.reverse, self.keep_order)
end

--- Two layers over time, one from the start and one from the end.
M.Bidirectional = module.module("Bidirectional")

---@param forward table an RNN
---@param backward table an RNN, which goes from the end on
---@param options {merge_fn: (fun(a: Tensor, b: Tensor): Tensor)?}? merge_fn: of both results; default one behind the other
function M.Bidirectional:init(forward, backward, options)
  options = lib.options("Bidirectional", options)
  for _, layer in ipairs {forward, backward} do
    if not module.is_module(layer) or not layer.cell then
      raise("E_VALUE", "Bidirectional: expected two RNNs, got %s", lib.kind(layer))
    end
  end
  self.forward_rnn, self.backward_rnn, self.merge_fn = forward, backward, options.merge_fn
end

---@param x Tensor [batch, time, features]
---@param options {initial_carry: any[]?, seq_lengths: Tensor?}? initial_carry: {the forward one's, the backward one's}
---@return Tensor y
---@return any[] carry
function M.Bidirectional:__call(x, options)
  options = lib.options("Bidirectional:__call", options)
  local first, lengths = options.initial_carry or {}, options.seq_lengths
  local a, ahead = run(self.forward_rnn, x, lengths, first[1], false)
  local b, back = run(self.backward_rnn, x, lengths, first[2], true, true)
  return self.merge_fn and self.merge_fn(a, b) or ops.concat({a, b}, -1), {ahead, back}
end

return M
