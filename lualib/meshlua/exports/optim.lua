-- optim.lua: optimizers and schedules.
return [[
optim.adafactor(model: table?, {lr: number|function, clip: number, min_dim_size_to_factor: integer,
    factored: boolean, decay_rate: number, decay_offset: number, clipping_threshold: number|false,
    multiply_by_parameter_scale: boolean, momentum: number, dtype_momentum: dtype, eps: number,
    weight_decay: number, mask: string|table|function, only: string|table|function,
    freeze: string|table|function}) -> Optimizer
  Adafactor: second moments of large matrices by rows and columns.
optim.adagrad(model: table?, {lr: number|function, clip: number, initial_accumulator_value: number,
    eps: number, only: string|table|function, freeze: string|table|function}) -> Optimizer
  Gradients over the root of the sum of their squares.
optim.adam(model: table?, {lr: number|function, clip: number, b1: number, b2: number, eps: number,
    eps_root: number, mu_dtype: dtype, nesterov: boolean, master: boolean, only: string|table|function,
    freeze: string|table|function}) -> Optimizer
  Adam; without a model the transformation, for chain. only, freeze: which Params are trained, and which are
  not, by a pattern of paths or a list of them, fun(path, param) or a tree of booleans.
optim.adamw(model: table?, {lr: number|function, clip: number, b1: number, b2: number, eps: number,
    eps_root: number, mu_dtype: dtype, nesterov: boolean, master: boolean, weight_decay: number,
    mask: string|table|function, only: string|table|function,
    freeze: string|table|function}) -> Optimizer
  Adam with weight decay beside the gradients, times lr.
optim.lamb(model: table?, {lr: number|function, clip: number, b1: number, b2: number, eps: number,
    eps_root: number, weight_decay: number, mask: string|table|function, only: string|table|function,
    freeze: string|table|function}) -> Optimizer
  Adam with steps in proportion to each Param's norm.
optim.lars(model: table?, {lr: number|function, clip: number, momentum: number, nesterov: boolean,
    trust_coefficient: number, eps: number, weight_decay: number, mask: string|table|function,
    only: string|table|function, freeze: string|table|function}) -> Optimizer
  Momentum in proportion to each Param's norm.
optim.lion(model: table?, {lr: number|function, clip: number, b1: number, b2: number, mu_dtype: dtype,
    weight_decay: number, mask: string|table|function, only: string|table|function,
    freeze: string|table|function}) -> Optimizer
  The sign of momentum, with weight decay.
optim.muon(model: table?, {lr: number|function, clip: number, matrices: string|table|function, beta: number,
    ns_steps: integer, ns_coeffs: table, nesterov: boolean, eps: number, consistent_rms: number,
    mu_dtype: dtype, weight_decay: number, mask: string|table|function, adam_lr: number|function,
    adam_b1: number, adam_b2: number, adam_eps_root: number, adam_weight_decay: number,
    only: string|table|function, freeze: string|table|function}) -> Optimizer
  Momentum of matrices made orthogonal; adamw for all other Params.
optim.rmsprop(model: table?, {lr: number|function, clip: number, decay: number, eps: number,
    initial_scale: number, eps_in_sqrt: boolean, centered: boolean, bias_correction: boolean,
    momentum: number, nesterov: boolean, only: string|table|function,
    freeze: string|table|function}) -> Optimizer
  Gradients over the root of their running mean square.
optim.sgd(model: table?, {lr: number|function, clip: number, momentum: number, nesterov: boolean,
    only: string|table|function, freeze: string|table|function}) -> Optimizer
  Stochastic gradient descent.
optim.add_decayed_weights(weight_decay: number, mask: string|table|function?) -> table
  Adds weight_decay times the Param.
optim.chain(...: table) -> table
  One transformation behind the other.
optim.clip(limit: number) -> table
  Cuts every element to [-limit, limit].
optim.clip_by_global_norm(max_norm: number) -> table
  Scales all updates so that their global norm is at most max_norm.
optim.clip_by_block_rms(threshold: number) -> table
  Scales each update whose root mean square is above the threshold down to it.
optim.ema(decay: number, {debias: boolean, accumulator_dtype: dtype}) -> table
  The running mean of updates; debias (default true) corrects it for its start at 0.
optim.global_norm(x: tree) -> Tensor
  sqrt(sum of all squares) over all tensors of a tree.
optim.masked(transformation: table, mask: string|table|function) -> table
  A transformation of the Params in the mask alone; updates of the others pass as they are.
optim.multi_transform(transforms: table, labels: table|function) -> table
  For each Param the transformation of its label: labels are rows {pattern, label}, or fun(path, param).
optim.set_to_zero() -> table
  Updates of 0: Params of this label are frozen.
optim.scale(factor: number) -> table
  Multiplies by a number.
optim.scale_by_adam({b1: number, b2: number, eps: number, eps_root: number, mu_dtype: dtype,
    nesterov: boolean}) -> table
  Divides the running mean of gradients by the root of the running mean of their squares.
optim.scale_by_factored_rms({factored: boolean, decay_rate: number, decay_offset: number,
    min_dim_size_to_factor: integer, eps: number}) -> table
  Divides by the root of running means of squares, of large matrices those of rows and columns alone.
optim.scale_by_learning_rate(lr: number|function) -> table
  Multiplies by -lr.
optim.scale_by_lion({b1: number, b2: number, mu_dtype: dtype}) -> table
  The sign of a running mean that leans toward the gradient.
optim.scale_by_param_block_rms(min_scale: number?) -> table
  Multiplies each update by the root mean square of its Param, at least min_scale (default 1e-3).
optim.scale_by_rms({decay: number, eps: number, initial_scale: number, eps_in_sqrt: boolean,
    centered: boolean, bias_correction: boolean}) -> table
  Divides by the root of the running mean of squares; centered: by the running standard deviation.
optim.scale_by_rss({initial_accumulator_value: number, eps: number}) -> table
  Divides by the root of the sum of all squares so far.
optim.scale_by_schedule(schedule: function) -> table
  Multiplies by what a schedule gives.
optim.scale_by_trust_ratio({min_norm: number, trust_coefficient: number, eps: number}) -> table
  Gives each update the norm of its Param, times a coefficient.
optim.trace(decay: number, {nesterov: boolean, accumulator_dtype: dtype}) -> table
  Momentum: the sum of gradients that fade by `decay` at each step.
optim.EMA(model: table, {decay: number, dtype: dtype}) -> EMA
  The running mean of a model's Params; decay: default 0.999.
optim.MultiSteps(transformation: table, every_k: integer|function, {use_grad_mean: boolean,
    accumulator_dtype: dtype}) -> table
  Gathers the mean of every_k gradients, and gives the transformation that.
optim.Optimizer(model: table, transformation: table, {clip: number, only: string|table|function,
    freeze: string|table|function}) -> Optimizer
  What holds a transformation and its state.
optim.LossScale({initial: number, interval: integer}) -> LossScale
  Keeps float16 gradients within float16.
EMA:apply_to(self: EMA, model: table) -> table
  The model with the means in the place of its Params.
EMA:update(self: EMA, model: table, {apply: Tensor})
  Moves the means toward the model's Params.
Optimizer:update(self: Optimizer, model: table, grads: table, {if_finite: boolean, apply: Tensor}) -> table
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
schedule.cosine_onecycle({transition_steps: number, peak_value: number, pct_start: number,
    div_factor: number, final_div_factor: number}) -> function
  Up to peak_value and down to nearly nothing, along cosines.
schedule.exponential({init_value: number, transition_steps: number, decay_rate: number,
    transition_begin: number, staircase: boolean, end_value: number}) -> function
  init_value times decay_rate ^ (count / transition_steps).
schedule.inverse_sqrt({init_value: number, peak_value: number, warmup_steps: number,
    timescale: number}) -> function
  Linear to peak_value over warmup_steps, then falling as 1 / sqrt(count).
schedule.join(schedules: table, boundaries: table) -> function
  The first schedule up to the first boundary, then the next one, counted from there.
schedule.linear({init_value: number, end_value: number, transition_steps: number,
    transition_begin: number}) -> function
  From init_value to end_value in a straight line.
schedule.linear_onecycle({transition_steps: number, peak_value: number, pct_start: number,
    pct_final: number, div_factor: number, final_div_factor: number}) -> function
  Up to peak_value and down to nearly nothing, in straight lines.
schedule.piecewise_constant({init_value: number, boundaries_and_scales: table}) -> function
  init_value, times a factor at each boundary: {[count] = factor}.
schedule.piecewise_interpolate({interpolate_type: "linear"|"cosine", init_value: number,
    boundaries_and_scales: table}) -> function
  The same in straight lines or half cosines between the boundaries.
schedule.polynomial({init_value: number, end_value: number, power: number, transition_steps: number,
    transition_begin: number}) -> function
  From init_value to end_value along a power of what is left.
schedule.warmup_cosine({init_value: number, peak_value: number, warmup_steps: number, decay_steps: number,
    end_value: number, exponent: number}) -> function
  Linear to peak_value over warmup_steps, then a cosine to end_value at decay_steps.
schedule.wsd({init_value: number, peak_value: number, end_value: number, warmup_steps: number,
    stable_steps: number, decay_steps: number, decay: "linear"|"cosine"|"sqrt"}) -> function
  Warm-up to peak_value, stable, decay to end_value.
]]
