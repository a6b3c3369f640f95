-- optim.lua: optimizers and schedules.
return [[
optim.adam(model: table?, {lr: number|function, clip: number, b1: number, b2: number, eps: number,
    eps_root: number, mu_dtype: dtype, nesterov: boolean, master: boolean}) -> Optimizer
  Adam; without a model the transformation, for chain.
optim.adamw(model: table?, {lr: number|function, clip: number, b1: number, b2: number, eps: number,
    eps_root: number, mu_dtype: dtype, nesterov: boolean, master: boolean, weight_decay: number,
    mask: "matrices"|table|function}) -> Optimizer
  Adam with weight decay beside the gradients, times lr.
optim.sgd(model: table?, {lr: number|function, clip: number, momentum: number,
    nesterov: boolean}) -> Optimizer
  Stochastic gradient descent.
optim.add_decayed_weights(weight_decay: number, mask: "matrices"|table|function?) -> table
  Adds weight_decay times the Param.
optim.chain(...: table) -> table
  One transformation behind the other.
optim.clip(limit: number) -> table
  Cuts every element to [-limit, limit].
optim.clip_by_global_norm(max_norm: number) -> table
  Scales all updates so that their global norm is at most max_norm.
optim.global_norm(x: tree) -> Tensor
  sqrt(sum of all squares) over all tensors of a tree.
optim.scale(factor: number) -> table
  Multiplies by a number.
optim.scale_by_adam({b1: number, b2: number, eps: number, eps_root: number, mu_dtype: dtype,
    nesterov: boolean}) -> table
  Divides the running mean of gradients by the root of the running mean of their squares.
optim.scale_by_learning_rate(lr: number|function) -> table
  Multiplies by -lr.
optim.scale_by_schedule(schedule: function) -> table
  Multiplies by what a schedule gives.
optim.trace(decay: number, {nesterov: boolean, accumulator_dtype: dtype}) -> table
  Momentum: the sum of gradients that fade by `decay` at each step.
optim.Optimizer(model: table, transformation: table, {clip: number}) -> Optimizer
  What holds a transformation and its state.
optim.LossScale({initial: number, interval: integer}) -> LossScale
  Keeps float16 gradients within float16.
Optimizer:update(self: Optimizer, model: table, grads: table, {if_finite: boolean}) -> table
  One step: the Params and the state are written. Gives {grad_norm, finite}.
LossScale:scaled(self: LossScale, loss: Tensor) -> Tensor
  The loss to differentiate.
LossScale:unscaled(self: LossScale, grads: table) -> table
  The gradients of the loss itself.
LossScale:note(self: LossScale, finite: Tensor)
  Takes note of an update's outcome.
schedule.constant(value: number) -> function
  Always the same.
schedule.cosine({init_value: number, decay_steps: number, alpha: number, exponent: number}) -> function
  From init_value along half a cosine to alpha * init_value.
schedule.join(schedules: table, boundaries: table) -> function
  The first schedule up to the first boundary, then the next one, counted from there.
schedule.linear({init_value: number, end_value: number, transition_steps: number,
    transition_begin: number}) -> function
  From init_value to end_value in a straight line.
schedule.warmup_cosine({init_value: number, peak_value: number, warmup_steps: number, decay_steps: number,
    end_value: number, exponent: number}) -> function
  Linear to peak_value over warmup_steps, then a cosine to end_value at decay_steps.
]]
