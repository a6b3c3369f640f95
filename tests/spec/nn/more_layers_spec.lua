-- devices: 8
-- more_layers_spec.lua: norms over groups and several dims, transposed convolutions, cells over time, the wider circle of
-- activations and losses, orthogonal initialisers: flax's, jax.nn's and optax's, with gradients; on a mesh as on one
-- device.
local helper = require "spec.helper"
local ml = require "meshlua"
local oracle = require "spec.oracle"

local nn, P = ml.nn, ml.P
local one = nn.initializers.normal(1.0)
local vectors = oracle.read "layers"
local raises = helper.raises

local function options(more)
  more = more or {}
  more.rngs, more.param_dtype, more.dtype = more.rngs or nn.Rngs(0), "float64", "float64"
  return more
end

local function affine(more)
  more = options(more)
  more.scale_init, more.bias_init = one, one
  return more
end

local function weighted(y)
  local sum = 0.0
  for _, leaf in ipairs(ml.tree.leaves(y)) do
    sum = (leaf * oracle.ramp(leaf.shape)):sum() + sum
  end
  return sum
end

local lengths = ml.tensor({4, 1, 3, 1}, "int32")

local function lstm(rngs) return nn.LSTMCell(3, 2, options {rngs = rngs, bias_init = one}) end
local function gru(rngs) return nn.GRUCell(3, 2, options {rngs = rngs, bias_init = one}) end
local function simple(rngs) return nn.SimpleCell(3, 2, options {rngs = rngs, bias_init = one}) end

--- A row of a cell over time.
local function rnn(make, how, seq_lengths)
  return {function() return nn.RNN(make(nn.Rngs(0)), how) end, {4, 4, 3}, function(m, x)
    return {m(x, {seq_lengths = seq_lengths})}
  end}
end

local function transpose(window, how)
  how = options(how)
  how.bias_init = one
  local shape = #window == 1 and {2, 5, 2} or {2, 5, 4, 2}
  return {function() return nn.ConvTranspose(2, 3, window, how) end, shape}
end

--- A cell's carry and result; the tree of both has each tensor once.
local function stepped(carry)
  return function(m, x)
    local after, y = m(carry, x)
    return {after, y + 0}
  end
end
local carried = stepped(oracle.ramp {4, 2})

-- Name in the oracle -> a function that makes the layer, the shape of its input, and how it is called.
local rows = {
  group_norm = {function() return nn.GroupNorm(6, affine {num_groups = 3}) end, {2, 3, 2, 6}},
  group_size = {function()
    return nn.GroupNorm(6, options {group_size = 3, epsilon = 1e-3, use_bias = false, scale_init = one})
  end, {3, 6}},
  instance_norm = {function() return nn.InstanceNorm(3, affine()) end, {2, 4, 3}},
  layer_norm = {function() return nn.LayerNorm({4, 3}, affine()) end, {3, 4, 3}},
  rms_norm = {function() return nn.RMSNorm({4, 3}, options {scale_init = one}) end, {3, 4, 3}},
  transpose = transpose {3, 3},
  transpose_strides = transpose({3, 2}, {strides = {2, 3}}),
  transpose_valid = transpose({2, 3}, {strides = {3, 2}, padding = "valid"}),
  transpose_dilated = transpose({3}, {strides = 2, kernel_dilation = 2, padding = "valid"}),
  transpose_pads = transpose({3}, {strides = 2, padding = {{2, 1}}}),
  conv_groups = {function() return nn.Conv(4, 6, {3}, options {groups = 2, bias_init = one}) end, {2, 5, 4}},
  lstm_cell = {function() return lstm(nn.Rngs(0)) end, {4, 3},
    stepped {oracle.ramp {4, 2}, oracle.ramp({2, 4}):T()}},
  gru_cell = {function() return gru(nn.Rngs(0)) end, {4, 3}, carried},
  simple_cell = {function() return simple(nn.Rngs(0)) end, {4, 3}, carried},
  lstm = rnn(lstm),
  lstm_lengths = rnn(lstm, nil, lengths),
  gru = rnn(gru),
  gru_reverse = rnn(gru, {reverse = true}),
  gru_reverse_lengths = rnn(gru, {reverse = true}, lengths),
  gru_kept_lengths = rnn(gru, {reverse = true, keep_order = true}, lengths),
  bidirectional = {function()
    local rngs = nn.Rngs(0)
    return nn.Bidirectional(nn.RNN(lstm(rngs)), nn.RNN(gru(rngs)))
  end, {4, 4, 3}, function(m, x) return {m(x, {seq_lengths = lengths})} end},
}

local function close_trees(expected, tree, tolerance)
  local list, paths = ml.tree.leaves(tree)
  for i, leaf in ipairs(list) do
    helper.close(expected[paths[i]], leaf:reshape(leaf.size), tolerance)
    expected[paths[i]] = nil
  end
  assert.is_nil(next(expected))
end

describe("layers", function()
  for name, expected in pairs(vectors.layers) do
    it(name .. " is flax's", function()
      local layer, x = rows[name][1](), oracle.ramp(rows[name][2])
      local call = rows[name][3] or function(m, t) return m(t) end
      close_trees(expected.params, ml.state(layer, "param"), 1e-12)
      local results = ml.tree.leaves(call(layer, x))
      assert.equal(#expected.result, #results)
      for i, leaf in ipairs(results) do helper.close(expected.result[i], leaf:reshape(leaf.size), 1e-12) end
      local grads = ml.grad(function(m, t) return weighted(call(m, t)) end, {argnums = {1, 2}})
      local found = grads(layer, x)
      close_trees(expected.grads, found[1], 1e-11)
      helper.close(expected.dx, found[2]:reshape(x.size), 1e-11)
    end)
  end

  it("WeightNorm: columns over their norms, times scales; the layer's kernel stays", function()
    local layer = nn.Linear(5, 3, options {use_bias = false})
    layer.kernel:set(oracle.ramp({3, 5}):T())
    local normed = nn.WeightNorm(layer, {rngs = nn.Rngs(0), param_dtype = "float64"})
    assert.same({1, 1, 1}, normed.scales.kernel:get():totable())
    normed.scales.kernel:set(oracle.ramp {3} + 2)
    local x = oracle.ramp {4, 5}
    helper.close(vectors.weight_norm.result, normed(x):reshape(12), 1e-13)
    local found = ml.grad(function(m, t) return weighted(m(t)) end, {argnums = {1, 2}})(normed, x)
    helper.close(vectors.weight_norm.grads[1], found[2]:reshape(20), 1e-13)
    helper.close(vectors.weight_norm.grads[2], found[1].layer.kernel:reshape(15), 1e-13)
    helper.close(vectors.weight_norm.grads[3], found[1].scales.kernel, 1e-13)
    assert.is_nil(ml.state(nn.WeightNorm(layer, {use_scale = false})).scales)
    local stack = nn.stack(2, function(i)
      return nn.WeightNorm(nn.Linear(3, 3, {rngs = nn.Rngs(i)}), {rngs = nn.Rngs(0)})
    end)
    local x1 = ml.ones {1, 3}
    helper.close(nn.layer(stack, 2)(nn.layer(stack, 1)(x1)), (nn.scan(stack, x1)), 1e-6)
  end)

  it("RNN: custom cells, time in front, initial carries, rows of length 0, unrolled", function()
    local x = oracle.ramp({2, 5, 3}, "float32")
    local Sum = nn.module "Sum"
    function Sum:__call(carry, t) -- luacheck: no self
      return carry + t, carry * 2
    end
    function Sum:initialize_carry(t) return ml.zeros_like(t) end -- luacheck: no self
    local y, carry = nn.RNN(Sum())(x)
    helper.close(x:sum(2), carry, 1e-6)
    helper.close((x:cumsum(2) - x) * 2, y, 1e-6)
    local _, short = nn.RNN(Sum(), {unroll = 2})(x, {seq_lengths = ml.tensor({0, 2}, "int32"),
      initial_carry = ml.ones {2, 3}})
    helper.close(ml.ones {3}, short:at(1))
    helper.close(x:at(2):slice {1, 2}:sum(1) + 1, short:at(2), 1e-6)
    local cell = nn.GRUCell(3, 4, {rngs = nn.Rngs(0)})
    local late = nn.RNN(cell, {time_major = true})(x:swapaxes(1, 2))
    helper.close((nn.RNN(cell)(x)), late:swapaxes(1, 2), 1e-6)
    assert.equal("bfloat16", (nn.RNN(nn.LSTMCell(3, 4, {rngs = nn.Rngs(0), dtype = "bfloat16"}))(x)).dtype)
    raises("[batch, time, features]", nn.RNN(cell), ml.ones {2, 3})
    raises("one for each row", nn.RNN(cell), x, {seq_lengths = ml.ones({3}, "int32")})
    raises("one for each row", nn.RNN(cell), x, {seq_lengths = ml.ones {2}})
    raises("expected a cell", nn.RNN, 3)
    raises("expected two RNNs", nn.Bidirectional, cell, nn.RNN(cell))
  end)

  it("wrong sizes are named", function()
    local rngs = nn.Rngs(0)
    raises("6 features in 4 groups", nn.GroupNorm, 6, {rngs = rngs, num_groups = 4})
    raises("6 features in groups of 4", nn.GroupNorm, 6, {rngs = rngs, group_size = 4})
    raises("one follows", nn.GroupNorm, 6, {rngs = rngs, group_size = 3, num_groups = 2})
    raises("expected [batch, ..., 6]", nn.GroupNorm(6, {rngs = rngs, num_groups = 2}), ml.ones {2, 5})
    raises("its last dims must be [4,3]", nn.LayerNorm({4, 3}, {rngs = rngs}), ml.ones {3, 4})
    raises("its last dims must be [4,3]", nn.LayerNorm({4, 3}, {rngs = rngs}), ml.ones {3})
    local full = nn.ConvTranspose(2, 2, {3}, {rngs = rngs, padding = "full"})
    raises("it is 'same', 'valid'", full, ml.ones {1, 4, 2})
    raises("role \"kernel\"", nn.WeightNorm, nn.LayerNorm(3, {rngs = rngs}))
    raises("did you mean 'GroupNorm'", function() return nn.Groupnorm end)
  end)
end)

describe("layers on a mesh", function()
  local mesh = ml.make_mesh({4, 2}, {"data", "model"})
  local rules = {{"batch", "data"}, {"in", false}, {"out", "model"}}
  local norm = {axes = {"out"}}
  local wide = {axes = {"in", "out"}}
  local cases = {
    {"GroupNorm", {8, 3, 16}, function(o) return nn.GroupNorm(16, o(norm, {num_groups = 4})) end},
    {"InstanceNorm", {8, 3, 16}, function(o) return nn.InstanceNorm(16, o(norm)) end},
    {"LayerNorm", {8, 4, 8}, function(o) return nn.LayerNorm({4, 8}, o {axes = {"in", "out"}}) end},
    {"ConvTranspose", {8, 5, 4}, function(o)
      return nn.ConvTranspose(4, 8, {3}, o({axes = {false, "in", "out"}}, {strides = 2}))
    end},
    {"WeightNorm", {8, 6}, function(o)
      return nn.WeightNorm(nn.Linear(6, 8, o(wide)), {rngs = nn.Rngs(1)})
    end},
    {"LSTM", {8, 5, 6}, function(o) return nn.RNN(nn.LSTMCell(6, 8, o(wide))) end},
    {"GRU", {8, 5, 6}, function(o) return nn.RNN(nn.GRUCell(6, 8, o(wide)), {reverse = true}) end, true},
  }
  for _, case in ipairs(cases) do
    it(case[1] .. " does as on one device", function()
      local x = oracle.ramp(case[2])
      local many = case[4] and {seq_lengths = ml.tensor({1, 5, 3, 2, 0, 4, 5, 1}, "int32")} or nil
      local function run(on)
        local model = ml.init(function(rngs)
          return case[3](function(given, more)
            local o = {rngs = rngs, param_dtype = "float64"}
            for _, from in ipairs {given, more or {}} do for k, v in pairs(from) do o[k] = v end end
            return o
          end)
        end, {mesh = on, rules = rules})
        local t = on and ml.device_put(x, ml.NamedSharding(on, P "data")) or x
        return ml.jit(function(m, u)
          local value, grads = ml.value_and_grad(function(n) return weighted {(n(u, many))} end)(m)
          return {value = value, grads = grads}
        end, {mesh = on, rules = rules})(model, t)
      end
      local list, paths = ml.tree.leaves(run(nil))
      for i, leaf in ipairs(ml.tree.leaves(run(mesh))) do
        helper.close(list[i], leaf, 1e-12)
        assert.is_string(paths[i])
      end
    end)
  end
end)

-- ---- functions ----------------------------------------------------------------------------------------

local function flat(x) return x:reshape(x.size) end

--- The value of a function and its gradient against the oracle's.
local function check(expected, fn, x, tolerance)
  helper.close(expected.value, flat(fn(x)), tolerance)
  if not expected.grad then return end
  helper.close(expected.grad, flat(ml.grad(function(t) return weighted(fn(t)) end)(x)), tolerance)
end

describe("activations", function()
  local corners = ml.tensor({-3.0, -1.0, 0.0, 1.0, 3.0, 6.0, 8.0, -8.0}, "float64")
  local x = ml.concat({oracle.ramp {24} * 4, corners}, 1)
  local made = {
    celu_half = function(t) return nn.celu(t, 0.5) end,
    squareplus_one = function(t) return nn.squareplus(t, 1) end,
    glu_first = function(t) return nn.glu(t:reshape(4, 8), 1) end,
    standardize_all = function(t) return nn.standardize(t:reshape(4, 8), {1, 2}, 1e-2) end,
  }
  for name, expected in pairs(vectors.activations) do
    it(name .. " and its gradient", function() check(expected, made[name] or nn[name], x, 1e-13) end)
  end

  it("keep NaN, are finite far out, and say what is wrong", function()
    local far = ml.tensor {-1e4, -100.0, 100.0, 1e4}
    for _, name in ipairs {"celu", "selu", "mish", "soft_sign", "hard_tanh", "relu6", "hard_silu",
      "squareplus", "sparse_plus"} do
      local value, grad = ml.value_and_grad(function(t) return nn[name](t):sum() end)(far)
      assert.is_true(value:isfinite():item() and grad:isfinite():all():item(), name)
      assert.is_true(nn[name](ml.tensor {0 / 0}):isnan():item(), name)
    end
    assert.equal(far, nn.identity(far))
    raises("has no halves", nn.glu, ml.ones {2, 3})
    raises("alpha is 0", nn.celu, far, 0)
  end)
end)

describe("losses", function()
  local x, y = oracle.ramp {4, 5} * 3, oracle.ramp({5, 4}):T()
  local p, signs, ids = ml.softmax(y * 2), (y + 0.01):sign(), ml.tensor({0, 4, 2, 2}, "int32")

  --- x with another first element.
  local function with(t, value)
    local list = t:totable()
    list[1][1] = value
    return ml.tensor(list, "float64")
  end
  local made = {
    softmax_cross_entropy = function(t) return nn.softmax_cross_entropy(t, p) end,
    safe_softmax_cross_entropy = function(t) return nn.safe_softmax_cross_entropy(t, with(p, 0.0)) end,
    safe_hole = function(t) return nn.safe_softmax_cross_entropy(with(t, -math.huge), with(p, 0.0)) end,
    poly_loss_cross_entropy = function(t) return nn.poly_loss_cross_entropy(t, p) end,
    poly_loss_one = function(t) return nn.poly_loss_cross_entropy(t, p, 1) end,
    smooth_labels = function(t) return nn.smooth_labels(t, 0.1) end,
    sigmoid_focal_loss = function(t) return nn.sigmoid_focal_loss(t, (y + 1) / 2) end,
    sigmoid_focal_numbers = function(t)
      return nn.sigmoid_focal_loss(t, (signs + 1) / 2, {alpha = 0.25, gamma = 1.5})
    end,
    hinge_loss = function(t) return nn.hinge_loss(t, signs) end,
    perceptron_loss = function(t) return nn.perceptron_loss(t, signs) end,
    multiclass_hinge_loss = function(t) return nn.multiclass_hinge_loss(t, ids) end,
    multiclass_perceptron_loss = function(t) return nn.multiclass_perceptron_loss(t, ids) end,
    kl_divergence_with_log_targets = function(t)
      return nn.kl_divergence_with_log_targets(ml.log_softmax(t), p:log())
    end,
    generalized_kl_divergence = function(t) return nn.generalized_kl_divergence(t, with(p, 0.0)) end,
    squared_error = function(t) return nn.squared_error(t, y) end,
    l2_loss = function(t) return nn.l2_loss(t, y) end,
    log_cosh = function(t) return nn.log_cosh(t, y) end,
    cosine_similarity = function(t) return nn.cosine_similarity(t, y) end,
    cosine_distance = function(t) return nn.cosine_distance(t, y, 12) end,
  }
  for name, expected in pairs(vectors.losses) do
    it(name .. " and its gradient", function() check(expected, made[name], x, 1e-13) end)
  end

  it("refuse what would be broadcast", function()
    for _, name in ipairs {"softmax_cross_entropy", "safe_softmax_cross_entropy", "poly_loss_cross_entropy",
      "hinge_loss", "sigmoid_focal_loss", "perceptron_loss", "kl_divergence_with_log_targets",
      "generalized_kl_divergence",
      "squared_error", "l2_loss", "log_cosh", "cosine_similarity", "cosine_distance"} do
      raises("E_SHAPE", nn[name], ml.ones {3, 1}, ml.ones {3, 3})
      raises("E_VALUE", nn[name], ml.ones {3, 1}, 1)
    end
    raises("[..., classes] and [...]", nn.multiclass_hinge_loss, x, x)
    raises("E_SHAPE", nn.smooth_labels, ml.tensor(1.0), 0.1)
  end)
end)

describe("initialisers", function()
  local i = nn.initializers
  local made = {
    square = {i.orthogonal(), {5, 5}}, tall = {i.orthogonal(2), {6, 4}}, wide = {i.orthogonal(), {4, 6}},
    columns = {i.orthogonal(0.5, 1), {3, 2, 4}}, delta = {i.delta_orthogonal(), {3, 2, 4}},
    delta_2d = {i.delta_orthogonal(), {2, 3, 3, 3}},
  }
  for name, expected in pairs(vectors.initializers) do
    it("orthogonal, " .. name .. ", is JAX's", function()
      helper.close(expected, flat(made[name][1](ml.random.key(42), made[name][2], "float64")), 1e-12)
    end)
  end

  it("orthogonal columns in every dtype, and of many", function()
    for dtype, tolerance in pairs {float32 = 1e-5, float64 = 1e-13, bfloat16 = 2e-2} do
      local q = i.orthogonal()(ml.random.key(1), {96, 64}, dtype)
      assert.equal(dtype, q.dtype)
      q = q:astype "float64"
      helper.close(ml.eye(64, nil, "float64"), q:T():matmul(q), tolerance)
    end
    assert.same({0, 3}, i.orthogonal()(ml.random.key(1), {0, 3}).shape)
    raises("is no matrix", i.orthogonal(), ml.random.key(1), {3})
    raises("in at most out", i.delta_orthogonal(), ml.random.key(1), {3, 4, 2})
  end)
end)
