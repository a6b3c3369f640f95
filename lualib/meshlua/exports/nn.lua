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
nn.dropout(x: Tensor, rate: number, key: key) -> Tensor
  x / (1 - rate) with probability 1 - rate, else 0.
nn.each_module(tree: any, visit: function)
  Calls visit(module, path) for every module in a tree, the outer before the inner.
nn.elu(x: Tensor, alpha: number?) -> Tensor
  x where it is positive, else alpha (exp(x) - 1); alpha: default 1.
nn.gelu(x: Tensor, approximate: boolean?) -> Tensor
  x Phi(x), by default in the tanh approximation; false: with erf.
nn.huber(predictions: Tensor, targets: Tensor, delta: number?) -> Tensor
  Quadratic up to |x - y| = delta (default 1), linear beyond, of each element.
nn.is_module(x: any) -> boolean
  Is x an instance of a class made by nn.module?
nn.kl(log_predictions: Tensor, targets: Tensor) -> Tensor
  The Kullback-Leibler divergence of each row.
nn.layer(stack: table, i: integer) -> table
  Layer i (1-based) of a stack, to be called.
nn.leaky_relu(x: Tensor, slope: number?) -> Tensor
  x where it is not negative, else slope x (default 0.01).
nn.log_sigmoid(x: Tensor) -> Tensor
  log(sigmoid(x)).
nn.lora(model: table, {rank: integer, rngs: table, alpha: number, only: string|table|function,
    a_init: function, b_init: function, param_dtype: dtype}) -> table
  Gives Linear layers Params lora_a and lora_b of low rank, whose product is added to the kernel.
nn.max_pool(x: Tensor, window: integers, {strides: integers, padding: padding}) -> Tensor
  The largest of each window over the spatial dims of [batch, spatial..., features].
nn.merge_lora(model: table) -> table
  Adds to the kernels what nn.lora has given their layers, and takes that away.
nn.module(name: string) -> table
  A class of modules: write Name:init(...) and Name:__call(x) on it; Name(...) makes one.
nn.mse(predictions: Tensor, targets: Tensor) -> Tensor
  The mean of (x - y)^2 over all elements.
nn.Param(value: Tensor|number|table, meta: table?) -> Param
  A place for a tensor in a module; meta: kind, axes, opt_axes, role, rules, and anything else.
nn.relu(x: Tensor) -> Tensor
  max(x, 0).
nn.rope(x: Tensor, {positions: Tensor, base: number, interleaved: boolean, scaling: table}) -> Tensor
  Rotary positions: each pair of features of [..., length, heads, size] turned by position / base^(2i / size).
nn.scan(stack: table, carry: any, body: function?, {reverse: boolean, unroll: integer}) -> any, any
  Goes through the layers of a stack in order, as one loop that is traced once.
nn.sigmoid(x: Tensor) -> Tensor
  1 / (1 + exp(-x)).
nn.sigmoid_binary_cross_entropy(logits: Tensor, labels: Tensor) -> Tensor
  -y log(sigmoid(x)) - (1 - y) log(1 - sigmoid(x)) of each element.
nn.silu(x: Tensor) -> Tensor
  x sigmoid(x), also called swish.
nn.softmax_cross_entropy_with_integer_labels(logits: Tensor, labels: Tensor) -> Tensor
  -log softmax(logits)[label] of each row; labels are 0-based class ids.
nn.softplus(x: Tensor) -> Tensor
  log(1 + exp(x)), without overflow.
nn.stack(n: integer, make: function, {axis: string}) -> table
  The modules make(1), ..., make(n) as one: each Param has a leading dim of size n.
nn.tanh(x: Tensor) -> Tensor
  The hyperbolic tangent.
nn.BatchNorm(features: integers, {rngs: table, axes: table|P, momentum: number, epsilon: number,
    use_bias: boolean, use_scale: boolean, scale_init: function, bias_init: function, param_dtype: dtype,
    dtype: dtype}) -> BatchNorm
  Normalises over all dims but the last, by the batch while training, by running means after it.
nn.Conv(n_in: integers, n_out: integers, window: integers, {rngs: table, axes: table|P,
    bias_axes: table|P, use_bias: boolean, kernel_init: function, bias_init: function, param_dtype: dtype,
    dtype: dtype, strides: integers, padding: padding, input_dilation: integers,
    kernel_dilation: integers, groups: integer}) -> Conv
  y = conv(x, kernel) + bias; padding: default "same".
nn.Dropout(rate: number, {rngs: table, stream: string}) -> Dropout
  Drops elements while training.
nn.Embed(num_embeddings: integer, features: integer, {rngs: table, axes: table|P,
    embedding_init: function, param_dtype: dtype, dtype: dtype}) -> Embed
  A table of vectors by 0-based id.
nn.LayerNorm(features: integers, {rngs: table, axes: table|P, epsilon: number, use_bias: boolean,
    use_scale: boolean, scale_init: function, bias_init: function, param_dtype: dtype,
    dtype: dtype}) -> LayerNorm
  (x - mean) / sqrt(variance + epsilon) * scale + bias over the last dim.
nn.Linear(n_in: integers, n_out: integers, {rngs: table, axes: table|P, bias_axes: table|P,
    use_bias: boolean, kernel_init: function, bias_init: function, param_dtype: dtype,
    dtype: dtype}) -> Linear
  A matrix product with a bias, over x's last dim(s).
nn.MoE(width: integer, hidden: integer, experts: integer, {rngs: table, top_k: integer,
    capacity_factor: number, activation: function, gated: boolean, kernel_init: function,
    param_dtype: dtype, dtype: dtype}) -> MoE
  A mixture of experts behind a router.
nn.MultiHeadAttention(width: integer, heads: integer, {rngs: table, axes: table, kv_heads: integer,
    head_dim: integer, causal: boolean, fused: boolean, use_bias: boolean, kernel_init: function,
    out_kernel_init: function, bias_init: function, param_dtype: dtype, dtype: dtype, rope: number|table,
    dropout: number, window: integer|table, soft_cap: number}) -> MultiHeadAttention
  Self-attention (or cross-attention) with q, k, v and output projections.
nn.RMSNorm(features: integers, {rngs: table, axes: table|P, epsilon: number, use_scale: boolean,
    scale_init: function, param_dtype: dtype, dtype: dtype}) -> RMSNorm
  x / sqrt(mean(x^2) + epsilon) * scale over the last dim.
nn.RngStream(key: integer|Tensor, tag: string) -> RngStream
  A stream of keys; calling it gives the next one.
nn.Rngs(seeds: integer|Tensor|table) -> Rngs
  Streams of keys by name: nn.Rngs(0), nn.Rngs{params = 0, dropout = 1}.
nn.Sequential(layers: table) -> Sequential
  Modules (or functions) called one behind the other.
BatchNorm:__call(self: BatchNorm, x: Tensor) -> Tensor
  x normalised; training moves the running means.
Conv:__call(self: Conv, x: Tensor) -> Tensor
  The convolution, plus the bias.
Dropout:__call(self: Dropout, x: Tensor, rngs: table?) -> Tensor
  x, with elements dropped while training; rngs take the place of the module's own.
Dropout:key(self: Dropout, rngs: table?) -> key
  The key of a call, or nil where nothing is dropped.
Embed:__call(self: Embed, ids: Tensor) -> Tensor
  The vectors of the ids.
Embed:attend(self: Embed, x: Tensor) -> Tensor
  The product of each vector with every row of the table: logits.
LayerNorm:__call(self: LayerNorm, x: Tensor) -> Tensor
  x normalised over its last dim.
Linear:__call(self: Linear, x: Tensor) -> Tensor
  x times the kernel, plus the bias.
MoE:__call(self: MoE, x: Tensor) -> Tensor
  What the experts make of each token, and the loss that balances them.
MoE:capacity(self: MoE, tokens: integer) -> integer
  How many tokens of a group an expert has room for.
MultiHeadAttention:__call(self: MultiHeadAttention, x: Tensor, {mask: Tensor, kv: Tensor, causal: boolean,
    rngs: table, lengths: Tensor, segment_ids: Tensor|table, bias: Tensor}) -> Tensor
  Attention of x [batch, length, width] to itself, or to kv.
RMSNorm:__call(self: RMSNorm, x: Tensor) -> Tensor
  x normalised over its last dim.
RngStream:__call(self: RngStream) -> key
  The next key of the stream.
RngStream:fork(self: RngStream) -> RngStream
  A stream of its own, started with the next key of this one.
Sequential:__call(self: Sequential, x: any, ...: any) -> any
  Calls the layers in order; further arguments go to those that take them.
module:train(self: table) -> table
  Switches the module and all in it to training; returns it.
module:eval(self: table) -> table
  Switches the module and all in it to evaluation; returns it.
initializers.constant(value: number) -> function
  Every element the same.
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
