-- layers_spec.lua: layers made with the same seed as flax's have flax's parameters, results and gradients.
local ml = require "meshlua"
local helper = require "spec.helper"
local oracle = require "spec.oracle"

local nn = ml.nn
local one = nn.initializers.normal(1.0)
local vectors = oracle.read "nn"

local function options(dtype, more)
  more = more or {}
  more.rngs, more.param_dtype, more.dtype = nn.Rngs(0), dtype, dtype
  return more
end

-- Name in the oracle -> a function that makes the layer, and its input.
local ids = ml.tensor({{0, 3, 9}, {3, 3, 1}}, "int32")
local rows = {
  linear = {function(d) return nn.Linear(6, 4, options(d, {bias_init = one})) end, {3, 6}},
  split = {function(d) return nn.Linear(6, {2, 3}, options(d)) end, {4, 6}},
  join = {function(d) return nn.Linear({2, 3}, 5, options(d)) end, {4, 2, 3}},
  embed = {function(d) return nn.Embed(10, 4, options(d)) end, ids},
  layer_norm = {function(d) return nn.LayerNorm(6, options(d, {scale_init = one, bias_init = one})) end,
    {4, 6}},
  rms_norm = {function(d) return nn.RMSNorm(6, options(d, {scale_init = one})) end, {4, 6}},
  attention = {function(d)
    return nn.MultiHeadAttention(8, 2, options(d, {causal = true, bias_init = one}))
  end, {2, 5, 8}},
}

--- The leaves of a tree by path, as the oracle has them.
local function by_path(tree)
  local list, paths = ml.tree.leaves(tree)
  local found = {}
  for i, leaf in ipairs(list) do found[paths[i]] = leaf:totable() end
  return found
end

local function close_trees(expected, tree, tolerance)
  local found, n = by_path(tree), 0
  for path, numbers in pairs(expected) do
    local name = path:gsub("^attention%.", "")
    assert.is_table(found[name], "nothing at " .. name)
    helper.close(numbers, found[name], tolerance)
    n = n + 1
  end
  local here = 0
  for _ in pairs(found) do here = here + 1 end
  assert.equal(n, here)
end

describe("layers", function()
  for name, by_dtype in pairs(vectors.layers) do
    for dtype, expected in pairs(by_dtype) do
      it(name .. " in " .. dtype .. " is flax's", function()
        local tolerance = dtype == "float64" and 1e-13 or 2e-6
        local layer = rows[name][1](dtype)
        local x = rows[name][2]
        if type(x) == "table" then x = oracle.ramp(x, dtype) end
        close_trees(expected.params, ml.state(layer, "param"), dtype == "float64" and 1e-14 or 3e-7)
        local y = layer(x)
        assert.equal(dtype, y.dtype)
        helper.close(expected.result, y, tolerance)
        local grads = ml.grad(function(model)
          return (model(x) * oracle.ramp(y.shape, dtype)):sum()
        end)(layer)
        close_trees(expected.grads, grads, tolerance)
      end)
    end
  end

  it("dropout is flax's, call after call", function()
    local layer = nn.Dropout(0.4, {rngs = nn.Rngs(0)})
    local x = oracle.ramp({5, 7}, "float32")
    for i = 1, 2 do helper.close(vectors.dropout[i], layer(x), 1e-7) end
  end)

  it("dropout does nothing in evaluation, at rate 0, and to all at rate 1", function()
    local x = oracle.ramp({5, 7}, "float32")
    local layer = nn.Dropout(0.4, {rngs = nn.Rngs(0)})
    assert.equal(x, layer:eval()(x))
    assert.not_equal(x, layer:train()(x))
    assert.equal(x, nn.Dropout(0)(x))
    helper.close(ml.zeros {5, 7}, nn.Dropout(1)(x))
    helper.raises("E_STATE", nn.Dropout(0.5), x)
    helper.raises("E_VALUE", nn.Dropout, 1.5)
  end)

  it("the rngs of a call take the place of the layer's", function()
    local x = oracle.ramp({5, 7}, "float32")
    local a = nn.Dropout(0.4)(x, nn.Rngs {dropout = 3})
    local b = nn.Dropout(0.4)(x, nn.Rngs {dropout = 3})
    local c = nn.Dropout(0.4)(x, nn.Rngs {dropout = 4})
    helper.close(a, b)
    assert.is_string(helper.difference(a, c))
  end)

  it("an embedding table is the head, too", function()
    local embed = nn.Embed(5, 3, {rngs = nn.Rngs(1)})
    local x = oracle.ramp({2, 4, 3}, "float32")
    helper.close(ml.einsum("btc,vc->btv", x, embed.embedding), embed:attend(x), 1e-6)
  end)

  it("ids outside the table, and ids that are not whole, are errors", function()
    local embed = nn.Embed(5, 3, {rngs = nn.Rngs(1)})
    helper.raises("E_INDEX", embed, ml.tensor({0, 5}, "int32"))
    helper.raises("E_INDEX", embed, ml.tensor({-1}, "int32"))
    helper.raises("E_DTYPE", embed, ml.ones {2})
    helper.raises("E_VALUE", embed, 3)
  end)

  it("norms compute where input and Params meet, or in dtype", function()
    local x = oracle.ramp({4, 6}):astype "bfloat16"
    for _, Norm in ipairs {nn.LayerNorm, nn.RMSNorm} do
      assert.equal("float32", Norm(6, {rngs = nn.Rngs(0)})(x).dtype)
      assert.equal("bfloat16", Norm(6, {rngs = nn.Rngs(0), dtype = "bfloat16"})(x).dtype)
      assert.equal("bfloat16", Norm(6, {rngs = nn.Rngs(0), param_dtype = "bfloat16"})(x).dtype)
      assert.equal("float32", Norm(6, {rngs = nn.Rngs(0)})(ml.ones({2, 6}, "int32")).dtype)
    end
  end)

  it("LayerNorm without scale and bias", function()
    local norm = nn.LayerNorm(6, {rngs = nn.Rngs(0)})
    local bare = nn.LayerNorm(6, {use_scale = false, use_bias = false})
    helper.close(norm(oracle.ramp({4, 6}, "float32")), bare(oracle.ramp({4, 6}, "float32")), 1e-6)
    assert.same({}, ml.state(bare))
  end)

  it("Linear computes in dtype and keeps its parameters in param_dtype", function()
    local layer = nn.Linear(4, 3, {rngs = nn.Rngs(0), dtype = "bfloat16"})
    assert.equal("float32", layer.kernel.dtype)
    local x = ml.ones {2, 4}
    assert.equal("bfloat16", layer(x).dtype)
    local grads = ml.grad(function(m) return m(x):astype("float32"):sum() end)(layer)
    assert.equal("float32", grads.kernel.dtype)
  end)

  it("Linear's kernel may begin as zeros, or as ones", function()
    for value, name in pairs {[0] = "zeros", [1] = "ones"} do
      local layer = nn.Linear(4, {3, 2}, {rngs = nn.Rngs(0), kernel_init = nn.initializers[name]})
      helper.close(ml.full({4, 3, 2}, value), layer.kernel:get())
    end
  end)

  it("Linear without a bias", function()
    local layer = nn.Linear(4, 3, {rngs = nn.Rngs(0), use_bias = false})
    assert.is_nil(layer.bias)
    local x = oracle.ramp({2, 4}, "float32")
    helper.close(x:matmul(layer.kernel:get()), layer(x), 1e-6)
  end)

  it("wrong sizes and options are named", function()
    helper.raises("E_VALUE", nn.Linear, 0, 3, {rngs = nn.Rngs(0)})
    helper.raises("E_VALUE", nn.Linear, 2.5, 3, {rngs = nn.Rngs(0)})
    helper.raises("did you mean 'use_bias'", nn.Linear, 2, 3, {rngs = nn.Rngs(0), use_bais = false})
    helper.raises("needs random keys", nn.Linear, 2, 3)
    helper.raises("E_SHAPE", nn.Linear(4, 3, {rngs = nn.Rngs(0)}), ml.ones {2, 5})
  end)
end)
