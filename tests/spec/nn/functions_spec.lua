-- functions_spec.lua: activations are jax.nn's, losses optax's.
local ml = require "meshlua"
local helper = require "spec.helper"
local oracle = require "spec.oracle"

local nn = ml.nn
local vectors = oracle.read "nn"

local activations = {
  gelu_exact = function(x) return nn.gelu(x, false) end,
  elu_half = function(x) return nn.elu(x, 0.5) end,
  leaky_relu_fifth = function(x) return nn.leaky_relu(x, 0.2) end,
}

describe("activations", function()
  local x = oracle.ramp({32}) * 4
  for name, expected in pairs(vectors.activations) do
    it(name .. " and its gradient", function()
      local fn = activations[name] or nn[name]
      helper.close(expected.value, fn(x), 1e-14)
      helper.close(expected.grad, ml.grad(function(t) return fn(t):sum() end)(x), 1e-13)
    end)
  end

  it("are finite far out, with their gradients", function()
    local far = ml.tensor({-1e4, -100.0, 100.0, 1e4})
    for _, name in ipairs {"gelu", "silu", "softplus", "log_sigmoid", "elu", "leaky_relu"} do
      local value, grad = ml.value_and_grad(function(t) return nn[name](t):sum() end)(far)
      assert.is_true(value:isfinite():item(), name)
      assert.is_true(grad:isfinite():all():item(), name)
    end
  end)
end)

describe("losses", function()
  local x = oracle.ramp({4, 5}) * 3
  local y = oracle.ramp({5, 4}):T()
  local labels = ml.tensor({0, 4, 2, 2}, "int32")

  local function probabilities()
    local p = ml.softmax(y * 2):totable()
    p[1][1] = 0.0
    return ml.tensor(p, "float64")
  end

  local made = {
    softmax_cross_entropy_with_integer_labels = function()
      return nn.softmax_cross_entropy_with_integer_labels(x, labels)
    end,
    mse = function() return nn.mse(x, y) end,
    huber = function() return nn.huber(x, y) end,
    huber_half = function() return nn.huber(x, y, 0.5) end,
    sigmoid_binary_cross_entropy = function() return nn.sigmoid_binary_cross_entropy(x, (y + 1) / 2) end,
    kl = function() return nn.kl(ml.log_softmax(x), probabilities()) end,
  }
  for name, expected in pairs(vectors.losses) do
    it(name, function() helper.close(expected, made[name](), 1e-14) end)
  end

  it("refuse what would be broadcast", function()
    helper.raises("E_SHAPE", nn.mse, ml.ones {3, 1}, ml.ones {3})
    helper.raises("E_SHAPE", nn.huber, ml.ones {3, 1}, ml.ones {3, 3})
    helper.raises("E_VALUE", nn.mse, ml.ones {3}, 1)
    helper.raises("E_DTYPE", nn.softmax_cross_entropy_with_integer_labels, x, x:sum(2))
    helper.raises("E_SHAPE", nn.softmax_cross_entropy_with_integer_labels, x, labels:slice {1, 3})
  end)

  it("a label outside the classes is an error", function()
    local function loss(label)
      return nn.softmax_cross_entropy_with_integer_labels(x, ml.tensor({0, 1, label, 2}, "int32"))
    end
    helper.raises("E_INDEX", loss, 5)
    helper.raises("E_INDEX", loss, -1)
  end)

  it("labels of any integer dtype", function()
    local plain = nn.softmax_cross_entropy_with_integer_labels(x, labels)
    helper.close(plain, nn.softmax_cross_entropy_with_integer_labels(x, labels:astype "uint8"))
    helper.close(plain, nn.softmax_cross_entropy_with_integer_labels(x, labels:astype "int64"))
  end)
end)
