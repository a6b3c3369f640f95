-- nn.lua: modules, layers, losses, initialisers. A class is called as its row says; "Linear:__call" is
-- what an
-- instance takes.
return [[
nn.attention(q: Tensor, k: Tensor, v: Tensor, {mask: Tensor, causal: boolean, window: integer|table,
    offset: integer|Tensor, lengths: Tensor, query_lengths: Tensor, segment_ids: Tensor|table,
    bias: Tensor, soft_cap: number, scale: number, dropout: number, key: key}) -> Tensor
  softmax(scale q k^T) v for each head: [batch, length, heads, head_dim].
nn.avg_pool(x: Tensor, window: integers, {strides: integers, padding: padding,
    count_include_pad: boolean}) -> Tensor
  The mean of each window over the spatial dims of [batch, spatial..., features].
nn.celu(x: Tensor, alpha: number?) -> Tensor
  x where it is positive, else alpha (exp(x / alpha) - 1); alpha: default 1.
nn.cosine_distance(predictions: Tensor, targets: Tensor, epsilon: number?) -> Tensor
  1 - cosine_similarity.
nn.cosine_similarity(predictions: Tensor, targets: Tensor, epsilon: number?) -> Tensor
  The cosine of the angle between rows; epsilon: what the square of a norm is at least (default 0).
nn.dropout(x: Tensor, rate: number, key: key) -> Tensor
  x / (1 - rate) with probability 1 - rate, else 0.
nn.each_module(tree: any, visit: function)
  Calls visit(module, path) for every module in a tree, the outer before the inner.
nn.elu(x: Tensor, alpha: number?) -> Tensor
  x where it is positive, else alpha (exp(x) - 1); alpha: default 1.
nn.explain_pipeline(layers: table, batch: any, {stage: string, microbatches: integer, schedule: string,
    first: function, last: function, body: function, rngs: table, mesh: Mesh}) -> table
  What nn.pipeline does with these arguments: tostring shows who works on what in each tick, and the cost.
nn.gelu(x: Tensor, approximate: boolean?) -> Tensor
  x Phi(x), by default in the tanh approximation; false: with erf.
nn.generalized_kl_divergence(log_predictions: Tensor, targets: Tensor) -> Tensor
  kl of numbers whose sum need not be 1.
nn.glu(x: Tensor, axis: integer?) -> Tensor
  The first half along an axis (default last) times the sigmoid of the second.
nn.hard_sigmoid(x: Tensor) -> Tensor
  relu6(x + 3) / 6.
nn.hard_silu(x: Tensor) -> Tensor
  x hard_sigmoid(x).
nn.hard_swish(x: Tensor) -> Tensor
  hard_silu.
nn.hard_tanh(x: Tensor) -> Tensor
  x within [-1, 1].
nn.hinge_loss(predictions: Tensor, targets: Tensor) -> Tensor
  max(0, 1 - x y) of each element; y is -1 or 1.
nn.huber(predictions: Tensor, targets: Tensor, delta: number?) -> Tensor
  Quadratic up to |x - y| = delta (default 1), linear beyond, of each element.
nn.identity(x: any) -> any
  x.
nn.is_module(x: any) -> boolean
  Is x an instance of a class made by nn.module?
nn.kl(log_predictions: Tensor, targets: Tensor) -> Tensor
  The Kullback-Leibler divergence of each row.
nn.kl_divergence_with_log_targets(log_predictions: Tensor, log_targets: Tensor) -> Tensor
  kl of logarithms.
nn.l2_loss(predictions: Tensor, targets: Tensor) -> Tensor
  (x - y)^2 / 2 of each element.
nn.layer(stack: table, i: integer) -> table
  Layer i (1-based) of a stack, to be called.
nn.leaky_relu(x: Tensor, slope: number?) -> Tensor
  x where it is not negative, else slope x (default 0.01).
nn.log_cosh(predictions: Tensor, targets: Tensor) -> Tensor
  log(cosh(x - y)) of each element.
nn.log_sigmoid(x: Tensor) -> Tensor
  log(sigmoid(x)).
nn.lora(model: table, {rank: integer, rngs: table, alpha: number, only: string|table|function,
    a_init: function, b_init: function, param_dtype: dtype}) -> table
  Gives Linear layers Params lora_a and lora_b of low rank, whose product is added to the kernel.
nn.max_pool(x: Tensor, window: integers, {strides: integers, padding: padding}) -> Tensor
  The largest of each window over the spatial dims of [batch, spatial..., features].
nn.merge_lora(model: table) -> table
  Adds to the kernels what nn.lora has given their layers, and takes that away.
nn.mish(x: Tensor) -> Tensor
  x tanh(softplus(x)).
nn.module(name: string) -> table
  A class of modules: write Name:init(...) and Name:__call(x) on it; Name(...) makes one.
nn.mse(predictions: Tensor, targets: Tensor) -> Tensor
  The mean of (x - y)^2 over all elements.
nn.multiclass_hinge_loss(scores: Tensor, labels: Tensor) -> Tensor
  What the largest score, those of other classes plus 1, has above the label's; labels are class ids.
nn.multiclass_perceptron_loss(scores: Tensor, labels: Tensor) -> Tensor
  What the largest score has above the label's; labels are 0-based class ids.
nn.perceptron_loss(predictions: Tensor, targets: Tensor) -> Tensor
  max(0, -x y) of each element; y is -1 or 1.
nn.pipeline(layers: table, batch: any, {stage: string, microbatches: integer, schedule: string,
    first: function, last: function, body: function, rngs: table, mesh: Mesh}) -> any, any
  Layers on the places along a mesh axis, a microbatch behind the other through them: the mean loss that
  `last` gives, and the sums of what else it gives; without `last` what the last layer gives.
nn.poly_loss_cross_entropy(logits: Tensor, labels: Tensor, epsilon: number?) -> Tensor
  softmax_cross_entropy + epsilon * (1 - the probability of the label); epsilon: default 2.
nn.relu(x: Tensor) -> Tensor
  max(x, 0).
nn.relu6(x: Tensor) -> Tensor
  x within [0, 6].
nn.rope(x: Tensor, {positions: Tensor, base: number, interleaved: boolean, scaling: table}) -> Tensor
  Rotary positions: each pair of features of [..., length, heads, size] turned by position / base^(2i / size).
nn.safe_softmax_cross_entropy(logits: Tensor, labels: Tensor) -> Tensor
  softmax_cross_entropy where a label of 0 counts nothing, also beside a logit of -inf.
nn.scan(stack: table, carry: any, body: function?, {reverse: boolean, unroll: integer}) -> any, any
  Goes through the layers of a stack in order, as one loop that is traced once.
nn.selu(x: Tensor) -> Tensor
  elu with the alpha and factor that keep mean 0 and variance 1.
nn.sigmoid(x: Tensor) -> Tensor
  1 / (1 + exp(-x)).
nn.sigmoid_binary_cross_entropy(logits: Tensor, labels: Tensor) -> Tensor
  -y log(sigmoid(x)) - (1 - y) log(1 - sigmoid(x)) of each element.
nn.sigmoid_focal_loss(logits: Tensor, labels: Tensor, {alpha: number, gamma: number}) -> Tensor
  sigmoid_binary_cross_entropy times (1 - p)^gamma, p the probability of the label; gamma: default 2.
nn.silu(x: Tensor) -> Tensor
  x sigmoid(x), also called swish.
nn.smooth_labels(labels: Tensor, alpha: number) -> Tensor
  Labels times 1 - alpha, and alpha evenly over all classes.
nn.soft_sign(x: Tensor) -> Tensor
  x / (1 + |x|).
nn.softmax_cross_entropy(logits: Tensor, labels: Tensor) -> Tensor
  -sum of label * log softmax(logits) of each row; labels are probabilities.
nn.softmax_cross_entropy_with_integer_labels(logits: Tensor, labels: Tensor) -> Tensor
  -log softmax(logits)[label] of each row; labels are 0-based class ids.
nn.softplus(x: Tensor) -> Tensor
  log(1 + exp(x)), without overflow.
nn.sparse_plus(x: Tensor) -> Tensor
  0 up to -1, x from 1 on, (x + 1)^2 / 4 between.
nn.sparse_sigmoid(x: Tensor) -> Tensor
  (x + 1) / 2 within [0, 1].
nn.squared_error(predictions: Tensor, targets: Tensor) -> Tensor
  (x - y)^2 of each element.
nn.squareplus(x: Tensor, b: number?) -> Tensor
  (x + sqrt(x^2 + b)) / 2; b: default 4.
nn.stack(n: integer, make: function, {axis: string}) -> table
  The modules make(1), ..., make(n) as one: each Param has a leading dim of size n.
nn.standardize(x: Tensor, axes: axes?, epsilon: number?) -> Tensor
  x less its mean, over its deviation, along axes (default last); epsilon: default 1e-5.
nn.swish(x: Tensor) -> Tensor
  silu.
nn.tanh(x: Tensor) -> Tensor
  The hyperbolic tangent.
nn.BatchNorm(features: integers, {rngs: table, axes: table|P, momentum: number, epsilon: number,
    use_bias: boolean, use_scale: boolean, scale_init: function, bias_init: function, param_dtype: dtype,
    dtype: dtype}) -> BatchNorm
  Normalises over all dims but the last, by the batch while training, by running means after it.
nn.Bidirectional(forward: table, backward: table, {merge_fn: function}) -> Bidirectional
  Two RNNs, one from the start and one from the end; results one behind the other, or as merge_fn says.
nn.Conv(n_in: integers, n_out: integers, window: integers, {rngs: table, axes: table|P,
    bias_axes: table|P, use_bias: boolean, kernel_init: function, bias_init: function, param_dtype: dtype,
    dtype: dtype, strides: integers, padding: padding, input_dilation: integers,
    kernel_dilation: integers, groups: integer}) -> Conv
  y = conv(x, kernel) + bias; padding: default "same".
nn.ConvTranspose(n_in: integers, n_out: integers, window: integers, {rngs: table, axes: table|P,
    bias_axes: table|P, use_bias: boolean, kernel_init: function, bias_init: function, param_dtype: dtype,
    dtype: dtype, strides: integers, padding: padding, kernel_dilation: integers,
    groups: integer}) -> ConvTranspose
  Each element of x, strides apart, times the kernel; padding: default "same".
nn.Dropout(rate: number, {rngs: table, stream: string}) -> Dropout
  Drops elements while training.
nn.Embed(num_embeddings: integer, features: integer, {rngs: table, axes: table|P,
    embedding_init: function, param_dtype: dtype, dtype: dtype}) -> Embed
  A table of vectors by 0-based id.
nn.GroupNorm(features: integers, {rngs: table, axes: table|P, num_groups: integer, group_size: integer,
    epsilon: number, use_bias: boolean, use_scale: boolean, scale_init: function, bias_init: function,
    param_dtype: dtype, dtype: dtype}) -> GroupNorm
  Normalises each example over its spatial dims and groups of features; num_groups: default 32.
nn.GRUCell(n_in: integers, hidden: integers, {rngs: table, axes: table|P, gate_fn: function,
    activation_fn: function, kernel_init: function, recurrent_kernel_init: function, bias_init: function,
    param_dtype: dtype, dtype: dtype}) -> GRUCell
  The gated recurrent unit.
nn.InstanceNorm(features: integers, {rngs: table, axes: table|P, epsilon: number, use_bias: boolean,
    use_scale: boolean, scale_init: function, bias_init: function, param_dtype: dtype,
    dtype: dtype}) -> InstanceNorm
  Normalises each feature of each example over its spatial dims.
nn.LayerNorm(features: integers, {rngs: table, axes: table|P, epsilon: number, use_bias: boolean,
    use_scale: boolean, scale_init: function, bias_init: function, param_dtype: dtype,
    dtype: dtype}) -> LayerNorm
  (x - mean) / sqrt(variance + epsilon) * scale + bias over the last dim.
nn.Linear(n_in: integers, n_out: integers, {rngs: table, axes: table|P, bias_axes: table|P,
    use_bias: boolean, kernel_init: function, bias_init: function, param_dtype: dtype,
    dtype: dtype}) -> Linear
  A matrix product with a bias, over x's last dim(s).
nn.LSTMCell(n_in: integers, hidden: integers, {rngs: table, axes: table|P, gate_fn: function,
    activation_fn: function, kernel_init: function, recurrent_kernel_init: function, bias_init: function,
    param_dtype: dtype, dtype: dtype}) -> LSTMCell
  Long short-term memory; the carry is {c, h}.
nn.MoE(width: integer, hidden: integer, experts: integer, {rngs: table, top_k: integer,
    capacity_factor: number, activation: function, gated: boolean, kernel_init: function,
    param_dtype: dtype, dtype: dtype}) -> MoE
  A mixture of experts behind a router.
nn.MultiHeadAttention(width: integer, heads: integer, {rngs: table, axes: table, kv_heads: integer,
    head_dim: integer, causal: boolean, fused: boolean, use_bias: boolean, kernel_init: function,
    out_kernel_init: function, bias_init: function, param_dtype: dtype, dtype: dtype, rope: number|table,
    dropout: number, window: integer|table, soft_cap: number}) -> MultiHeadAttention
  Self-attention (or cross-attention) with q, k, v and output projections.
nn.Param(value: Tensor|number|table, meta: table?) -> Param
  A place for a tensor in a module; meta: kind, axes, opt_axes, role, rules, and anything else.
nn.RMSNorm(features: integers, {rngs: table, axes: table|P, epsilon: number, use_scale: boolean,
    scale_init: function, param_dtype: dtype, dtype: dtype}) -> RMSNorm
  x / sqrt(mean(x^2) + epsilon) * scale over the last dim.
nn.Rngs(seeds: integer|Tensor|table) -> Rngs
  Streams of keys by name: nn.Rngs(0), nn.Rngs{params = 0, dropout = 1}.
nn.RngStream(key: integer|Tensor, tag: string) -> RngStream
  A stream of keys; calling it gives the next one.
nn.RNN(cell_of: table, {reverse: boolean, keep_order: boolean, time_major: boolean,
    unroll: integer}) -> RNN
  A cell over time; reverse: from the end on.
nn.Sequential(layers: table) -> Sequential
  Modules (or functions) called one behind the other.
nn.SimpleCell(n_in: integers, hidden: integers, {rngs: table, axes: table|P, gate_fn: function,
    activation_fn: function, kernel_init: function, recurrent_kernel_init: function, bias_init: function,
    param_dtype: dtype, dtype: dtype}) -> SimpleCell
  tanh(x W + b + h U).
nn.WeightNorm(layer: table, {rngs: table, use_scale: boolean, scale_init: function, epsilon: number,
    param_dtype: dtype}) -> WeightNorm
  A layer whose kernels are over their columns' norms, times scales.
BatchNorm:__call(self: BatchNorm, x: Tensor) -> Tensor
  x normalised; training moves the running means.
Bidirectional:__call(self: Bidirectional, x: Tensor, {initial_carry: table,
    seq_lengths: Tensor}) -> Tensor, table
  Both results, and both carries.
Conv:__call(self: Conv, x: Tensor) -> Tensor
  The convolution, plus the bias.
ConvTranspose:__call(self: ConvTranspose, x: Tensor) -> Tensor
  The convolution, plus the bias.
Dropout:__call(self: Dropout, x: Tensor, rngs: table?) -> Tensor
  x, with elements dropped while training; rngs take the place of the module's own.
Dropout:key(self: Dropout, rngs: table?) -> key
  The key of a call, or nil where nothing is dropped.
Embed:__call(self: Embed, ids: Tensor) -> Tensor
  The vectors of the ids.
Embed:attend(self: Embed, x: Tensor) -> Tensor
  The product of each vector with every row of the table: logits.
GRUCell:__call(self: GRUCell, carry: Tensor, x: Tensor) -> Tensor, Tensor
  One step: the next carry, and the result, which is the same.
GRUCell:initialize_carry(self: GRUCell, x: Tensor) -> Tensor
  Zeros for the rows of one step's x.
GroupNorm:__call(self: GroupNorm, x: Tensor) -> Tensor
  x [batch, spatial..., features] normalised.
InstanceNorm:__call(self: InstanceNorm, x: Tensor) -> Tensor
  x [batch, spatial..., features] normalised.
LSTMCell:__call(self: LSTMCell, carry: table, x: Tensor) -> table, Tensor
  One step: the next carry {c, h}, and h.
LSTMCell:initialize_carry(self: LSTMCell, x: Tensor) -> table
  Zeros for the rows of one step's x.
LayerNorm:__call(self: LayerNorm, x: Tensor) -> Tensor
  x normalised over its last dim.
Linear:__call(self: Linear, x: Tensor) -> Tensor
  x times the kernel, plus the bias.
MoE:__call(self: MoE, x: Tensor) -> Tensor
  What the experts make of each token, and the loss that balances them.
MoE:capacity(self: MoE, tokens: integer) -> integer
  How many tokens of a group an expert has room for.
MultiHeadAttention:__call(self: MultiHeadAttention, x: Tensor, {mask: Tensor, kv: Tensor, causal: boolean,
    rngs: table, lengths: Tensor, segment_ids: Tensor|table, cache: table, bias: Tensor}) -> Tensor
  Attention of x [batch, length, width] to itself, or to kv.
MultiHeadAttention:new_cache(self: MultiHeadAttention, make: function, walk: function) -> table
  The layer's part of a cache: see ml.cache.
RMSNorm:__call(self: RMSNorm, x: Tensor) -> Tensor
  x normalised over its last dim.
RNN:__call(self: RNN, x: Tensor, {initial_carry: tree, seq_lengths: Tensor}) -> Tensor, any
  The results of all steps of x [batch, time, features], and the last carry; seq_lengths: how many steps of
  each row count: behind them results are 0, and the carry stays.
RngStream:__call(self: RngStream) -> key
  The next key of the stream.
RngStream:fork(self: RngStream) -> RngStream
  A stream of its own, started with the next key of this one.
Sequential:__call(self: Sequential, x: any, ...: any) -> any
  Calls the layers in order; further arguments go to those that take them.
SimpleCell:__call(self: SimpleCell, carry: Tensor, x: Tensor) -> Tensor, Tensor
  One step: the next carry, and the result, which is the same.
SimpleCell:initialize_carry(self: SimpleCell, x: Tensor) -> Tensor
  Zeros for the rows of one step's x.
WeightNorm:__call(self: WeightNorm, ...: any) -> any
  What the layer gives.
module:eval(self: table) -> table
  Switches the module and all in it to evaluation; returns it.
module:train(self: table) -> table
  Switches the module and all in it to training; returns it.
initializers.constant(value: number) -> function
  Every element the same.
initializers.delta_orthogonal(scale: number?, column_axis: integer?) -> function
  Of a convolution's kernel: an orthogonal matrix in the middle, zeros around it.
initializers.glorot_normal({in_axis: integers, out_axis: integers, batch_axis: integers}) -> function
  variance_scaling(1, "fan_avg", "truncated_normal").
initializers.glorot_uniform({in_axis: integers, out_axis: integers, batch_axis: integers}) -> function
  variance_scaling(1, "fan_avg", "uniform").
initializers.he_normal({in_axis: integers, out_axis: integers, batch_axis: integers}) -> function
  variance_scaling(2, "fan_in", "truncated_normal").
initializers.he_uniform({in_axis: integers, out_axis: integers, batch_axis: integers}) -> function
  variance_scaling(2, "fan_in", "uniform").
initializers.kaiming_normal({in_axis: integers, out_axis: integers, batch_axis: integers}) -> function
  As he_normal.
initializers.kaiming_uniform({in_axis: integers, out_axis: integers, batch_axis: integers}) -> function
  As he_uniform.
initializers.lecun_normal({in_axis: integers, out_axis: integers, batch_axis: integers}) -> function
  variance_scaling(1, "fan_in", "truncated_normal").
initializers.lecun_uniform({in_axis: integers, out_axis: integers, batch_axis: integers}) -> function
  variance_scaling(1, "fan_in", "uniform").
initializers.normal(stddev: number?) -> function
  Normal with mean 0; stddev: default 0.01.
initializers.ones(_: any, shape: shape, dtype: dtype?, _dims: table?) -> Tensor
  Ones; itself an initialiser.
initializers.orthogonal(scale: number?, column_axis: integer?) -> function
  Columns, or rows, at right angles, each of length scale (default 1).
initializers.truncated_normal(stddev: number?, lower: number?, upper: number?) -> function
  Normal, cut to [lower, upper] (default -2, 2) before it is multiplied by stddev (default 0.01).
initializers.uniform(scale: number?) -> function
  Uniform in [0, scale); default 0.01.
initializers.variance_scaling(scale: number, mode: "fan_in"|"fan_out"|"fan_avg"|"fan_geo_avg",
    distribution: "truncated_normal"|"normal"|"uniform", {in_axis: integers, out_axis: integers,
    batch_axis: integers}) -> function
  Mean 0 and variance scale / n.
initializers.xavier_normal({in_axis: integers, out_axis: integers, batch_axis: integers}) -> function
  As glorot_normal.
initializers.xavier_uniform({in_axis: integers, out_axis: integers, batch_axis: integers}) -> function
  As glorot_uniform.
initializers.zeros(_: any, shape: shape, dtype: dtype?, _dims: table?) -> Tensor
  Zeros; itself an initialiser.
]]
