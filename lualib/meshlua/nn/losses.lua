-- losses.lua: what training minimises. Names and mathematics are optax's. They return one number for each
-- row or element, to be reduced by :mean(), except mse, which is a mean by name.
local core = require "meshlua.core"
local lib = require "meshlua.lib"
local args = require "meshlua.ops.args"
local ops = require "meshlua.ops"
local activations = require "meshlua.nn.activations"

local op, raise = core.op, lib.raise

local M = {}

--- Two tensors of one shape, or an error: a silent broadcast would be a wrong loss.
local function same_shape(who, x, y, names)
  args.check_tensor(who, x, names[1])
  args.check_tensor(who, y, names[2])
  if not lib.same_shape(x.shape, y.shape) then
    raise("E_SHAPE", "%s: %s and %s differ in shape (%s and %s)", who, names[1], names[2], core.typeof(x),
      core.typeof(y))
  end
end

--- -log softmax(logits)[label] of each row. A label outside the classes is an error when it runs.
---@param logits Tensor [..., classes] floats
---@param labels Tensor [...] 0-based class ids, any integer dtype
---@return Tensor [...] float32 (float64 for float64)
function M.softmax_cross_entropy_with_integer_labels(logits, labels)
  local who = "softmax_cross_entropy"
  args.check_tensor(who, logits, "logits")
  args.check_tensor(who, labels, "labels")
  if labels.dtype:match "float" or labels.dtype == "bool" then
    raise("E_DTYPE", "%s: labels are class ids, not %s", who, core.typeof(labels))
  end
  return (op.softmax_cross_entropy(logits, args.to_int32(labels)))
end

--- The mean of (x - y)^2 over all elements.
---@param predictions Tensor
---@param targets Tensor of the same shape
---@return Tensor scalar
function M.mse(predictions, targets)
  same_shape("mse", predictions, targets, {"predictions", "targets"})
  return ops.mean(op.square(op.sub(predictions, targets)))
end

--- Quadratic up to |x - y| = delta, linear beyond (Huber 1964): 0.5 d^2, else delta (|d| - 0.5 delta).
---@param delta number? default 1
---@return Tensor of each element
function M.huber(predictions, targets, delta)
  same_shape("huber", predictions, targets, {"predictions", "targets"})
  delta = lib.check_number("huber", "delta", delta or 1.0) + 0.0
  local error = op.abs(op.sub(predictions, targets))
  local quadratic = op.minimum(error, delta)
  local linear = op.sub(error, quadratic)
  return op.add(op.mul(op.square(quadratic), 0.5), op.mul(linear, delta))
end

--- -y log(sigmoid(x)) - (1 - y) log(1 - sigmoid(x)) of each element.
---@param logits Tensor
---@param labels Tensor of the same shape, numbers in [0, 1]
function M.sigmoid_binary_cross_entropy(logits, labels)
  same_shape("sigmoid_binary_cross_entropy", logits, labels, {"logits", "labels"})
  labels = op.astype(labels, {dtype = logits.dtype})
  local yes = op.mul(labels, activations.log_sigmoid(logits))
  local no = op.mul(op.sub(1.0, labels), activations.log_sigmoid(op.neg(logits)))
  return op.neg(op.add(yes, no))
end

--- The Kullback-Leibler divergence of each row: sum of t (log t - log p) over the last dim; 0 log 0 is 0.
---@param log_predictions Tensor [..., n] logarithms
---@param targets Tensor [..., n] probabilities
---@return Tensor [...]
function M.kl(log_predictions, targets)
  same_shape("kl", log_predictions, targets, {"log_predictions", "targets"})
  local positive = op.gt(targets, 0)
  local log_t = op.log(op.where(positive, targets, 1))
  local terms = op.mul(targets, op.sub(log_t, log_predictions))
  return ops.sum(op.where(positive, terms, 0), -1)
end

return M
