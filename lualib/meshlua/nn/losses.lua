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
  local who = "softmax_cross_entropy_with_integer_labels"
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

--- The same with logarithms of both.
---@param log_predictions Tensor [..., n]
---@param log_targets Tensor [..., n]
---@return Tensor [...]
function M.kl_divergence_with_log_targets(log_predictions, log_targets)
  local who = "kl_divergence_with_log_targets"
  same_shape(who, log_predictions, log_targets, {"log_predictions", "log_targets"})
  return ops.sum(op.mul(op.exp(log_targets), op.sub(log_targets, log_predictions)), -1)
end

--- The same of numbers whose sum need not be 1: kl + sum of p - t.
---@param log_predictions Tensor [..., n]
---@param targets Tensor [..., n]
---@return Tensor [...]
function M.generalized_kl_divergence(log_predictions, targets)
  local more = ops.sum(op.sub(op.exp(log_predictions), targets), -1)
  return op.add(M.kl(log_predictions, targets), more)
end

-- ---- classes ----------------------------------------------------------------------------------------

--- -sum of label * log softmax(logits) of each row: labels are probabilities.
---@param logits Tensor [..., classes]
---@param labels Tensor [..., classes]
---@return Tensor [...]
function M.softmax_cross_entropy(logits, labels)
  same_shape("softmax_cross_entropy", logits, labels, {"logits", "labels"})
  return op.neg(ops.sum(op.mul(labels, ops.log_softmax(logits, -1)), -1))
end

--- The same where a label of 0 counts nothing, also beside a logit of -inf.
---@param logits Tensor [..., classes]
---@param labels Tensor [..., classes]
---@return Tensor [...]
function M.safe_softmax_cross_entropy(logits, labels)
  same_shape("safe_softmax_cross_entropy", logits, labels, {"logits", "labels"})
  local counts = op.ne(labels, 0)
  local logs = op.where(counts, ops.log_softmax(logits, -1), 0)
  return op.neg(ops.sum(op.mul(labels, logs), -1))
end

--- softmax_cross_entropy + epsilon * (1 - the probability of the label) (Leng et al. 2022).
---@param logits Tensor [..., classes]
---@param labels Tensor [..., classes]
---@param epsilon number? default 2
---@return Tensor [...]
function M.poly_loss_cross_entropy(logits, labels, epsilon)
  epsilon = lib.check_number("poly_loss_cross_entropy", "epsilon", epsilon or 2.0) + 0.0
  local missed = ops.sum(op.mul(labels, op.sub(1.0, ops.softmax(logits, -1))), -1)
  return op.add(M.softmax_cross_entropy(logits, labels), op.mul(missed, epsilon))
end

--- Labels (1 - alpha) as they are, and alpha evenly over all classes.
---@param labels Tensor [..., classes] probabilities
---@param alpha number
---@return Tensor
function M.smooth_labels(labels, alpha)
  args.check_tensor("smooth_labels", labels, "labels")
  lib.check_number("smooth_labels", "alpha", alpha)
  if labels.ndim == 0 then raise("E_SHAPE", "smooth_labels: labels are a scalar; expected [..., classes]") end
  return op.add(op.mul(labels, 1.0 - alpha), alpha / labels.shape[labels.ndim])
end

--- sigmoid_binary_cross_entropy, of which what is right already counts less: times (1 - p)^gamma, p the probability of
--- the label (Lin et al. 2017).
---@param logits Tensor
---@param labels Tensor of the same shape, numbers in [0, 1]
---@param options {alpha: number?, gamma: number?}? alpha: the weight of label 1, and 1 - alpha that of 0; default none.
--- gamma: default 2
---@return Tensor of each element
function M.sigmoid_focal_loss(logits, labels, options)
  options = lib.options("sigmoid_focal_loss", options)
  local loss = M.sigmoid_binary_cross_entropy(logits, labels)
  labels = op.astype(labels, {dtype = logits.dtype})
  local alpha, wrong = options.alpha, op.sub(1.0, labels)
  local missed = op.add(op.mul(op.sigmoid(op.neg(logits)), labels), op.mul(op.sigmoid(logits), wrong))
  loss = op.mul(loss, op.pow(missed, (options.gamma or 2.0) + 0.0))
  if not alpha then return loss end
  return op.mul(loss, op.add(op.mul(labels, alpha + 0.0), op.mul(wrong, 1.0 - alpha)))
end

--- max(0, 1 - x y): y is -1 or 1.
---@param predictions Tensor
---@param targets Tensor of the same shape
---@return Tensor of each element
function M.hinge_loss(predictions, targets)
  same_shape("hinge_loss", predictions, targets, {"predictions", "targets"})
  return op.maximum(op.sub(1.0, op.mul(predictions, targets)), 0)
end

--- max(0, -x y): y is -1 or 1.
---@param predictions Tensor
---@param targets Tensor of the same shape
---@return Tensor of each element
function M.perceptron_loss(predictions, targets)
  same_shape("perceptron_loss", predictions, targets, {"predictions", "targets"})
  return op.maximum(op.neg(op.mul(predictions, targets)), 0)
end

--- What the largest score, those of other classes plus a margin, has above the label's.
local function above_label(who, scores, labels, margin)
  args.check_tensor(who, scores, "scores")
  args.check_tensor(who, labels, "labels")
  if labels.ndim ~= scores.ndim - 1 then
    raise("E_SHAPE", "%s: scores are %s and labels %s; expected [..., classes] and [...]", who,
      core.typeof(scores), core.typeof(labels))
  end
  local hot = ops.one_hot(labels, scores.shape[scores.ndim], scores.dtype)
  local others = margin == 0 and scores or op.add(scores, op.mul(op.sub(1.0, hot), margin))
  return op.sub(ops.max(others, -1), ops.sum(op.mul(scores, hot), -1))
end

--- The hinge loss of several classes (Crammer and Singer 2001).
---@param scores Tensor [..., classes]
---@param labels Tensor [...] 0-based class ids
---@return Tensor [...]
function M.multiclass_hinge_loss(scores, labels)
  return above_label("multiclass_hinge_loss", scores, labels, 1.0)
end

--- The same without the margin.
---@param scores Tensor [..., classes]
---@param labels Tensor [...] 0-based class ids
---@return Tensor [...]
function M.multiclass_perceptron_loss(scores, labels)
  return above_label("multiclass_perceptron_loss", scores, labels, 0)
end

-- ---- regression -------------------------------------------------------------------------------------

--- (x - y)^2 of each element.
---@param predictions Tensor
---@param targets Tensor of the same shape
---@return Tensor
function M.squared_error(predictions, targets)
  same_shape("squared_error", predictions, targets, {"predictions", "targets"})
  return op.square(op.sub(predictions, targets))
end

--- Half of it.
---@param predictions Tensor
---@param targets Tensor of the same shape
---@return Tensor
function M.l2_loss(predictions, targets) return op.mul(M.squared_error(predictions, targets), 0.5) end

--- log(cosh(x - y)) of each element: nearly quadratic at 0, linear far out.
---@param predictions Tensor
---@param targets Tensor of the same shape
---@return Tensor
function M.log_cosh(predictions, targets)
  same_shape("log_cosh", predictions, targets, {"predictions", "targets"})
  local error = op.sub(predictions, targets)
  return op.sub(op.add(error, activations.softplus(op.mul(error, -2.0))), math.log(2))
end

--- The cosine of the angle between rows.
---@param predictions Tensor [..., n]
---@param targets Tensor [..., n]
---@param epsilon number? what the square of a norm is at least; default 0
---@return Tensor [...]
function M.cosine_similarity(predictions, targets, epsilon)
  same_shape("cosine_similarity", predictions, targets, {"predictions", "targets"})
  epsilon = lib.check_number("cosine_similarity", "epsilon", epsilon or 0.0) + 0.0
  local function unit(x) return op.div(x, op.sqrt(op.maximum(ops.sum(op.square(x), -1, true), epsilon))) end
  return ops.sum(op.mul(unit(predictions), unit(targets)), -1)
end

--- 1 - cosine_similarity.
---@param predictions Tensor [..., n]
---@param targets Tensor [..., n]
---@param epsilon number? default 0
---@return Tensor [...]
function M.cosine_distance(predictions, targets, epsilon)
  return op.sub(1.0, M.cosine_similarity(predictions, targets, epsilon))
end

return M
