-- devices: 8
-- attention_spec.lua: attention against its definition, with masks, fewer key heads, fused projections and
-- rotary positions; heads over a mesh.
local ml = require "meshlua"
local helper = require "spec.helper"
local oracle = require "spec.oracle"

local nn, P = ml.nn, ml.P

--- The definition, number by number: q, k, v as nested lists [T][H][D], see(t, s) tells what is looked at.
local function defined(q, k, v, scale, see)
  local out = {}
  for t = 1, #q do
    out[t] = {}
    for h = 1, #q[1] do
      local group = (h - 1) * #k[1] // #q[1] + 1
      local weights, total = {}, 0
      for s = 1, #k do
        local score = 0
        for d = 1, #q[t][h] do score = score + q[t][h][d] * k[s][group][d] end
        weights[s] = see(t, s) and math.exp(scale * score) or 0
        total = total + weights[s]
      end
      out[t][h] = {}
      for d = 1, #v[1][1] do
        local sum = 0
        for s = 1, #v do sum = sum + weights[s] / total * v[s][group][d] end
        out[t][h][d] = sum
      end
    end
  end
  return out
end

local function everything() return true end
local function nothing_ahead(t, s) return s <= t end

describe("nn.attention", function()
  local q, v = oracle.ramp {5, 4, 3}, oracle.ramp {5, 4, 3} + 0.5
  local k = oracle.ramp({3, 4, 5}):transpose(3, 2, 1)
  local scale = 1 / math.sqrt(3)

  it("is its definition, with and without a look ahead", function()
    for causal, see in pairs {[false] = everything, [true] = nothing_ahead} do
      helper.close(defined(q:totable(), k:totable(), v:totable(), scale, see),
        nn.attention(q, k, v, {causal = causal}), 1e-14)
    end
    helper.close(defined(q:totable(), k:totable(), v:totable(), 2.0, everything),
      nn.attention(q, k, v, {scale = 2.0}), 1e-14)
  end)

  it("fewer key heads serve groups of query heads", function()
    local k2, v2 = k:slice(false, {1, 2}), v:slice(false, {1, 2})
    local expected = defined(q:totable(), k2:totable(), v2:totable(), scale, nothing_ahead)
    helper.close(expected, nn.attention(q, k2, v2, {causal = true}), 1e-14)
    local all = ml.full({1, 1, 5, 5}, true)
    helper.close(expected, nn.attention(q, k2, v2, {causal = true, mask = all}), 1e-14)
  end)

  it("a mask hides what is false, its gradient too", function()
    local rows, columns = ml.iota({5, 5}, 1), ml.iota({5, 5}, 2)
    local band = (rows - columns):abs():le(1)
    local expected = defined(q:totable(), k:totable(), v:totable(), scale,
      function(t, s) return math.abs(t - s) <= 1 end)
    helper.close(expected, nn.attention(q, k, v, {mask = band:reshape {1, 1, 5, 5}}), 1e-14)
    local function loss(options)
      return function(a, b, c) return (nn.attention(a, b, c, options) * oracle.ramp {5, 4, 3}):sum() end
    end
    local causal = ml.grad(loss {causal = true}, {argnums = {1, 2, 3}})(q, k, v)
    local masked = ml.grad(loss {mask = columns:le(rows)}, {argnums = {1, 2, 3}})(q, k, v)
    for i = 1, 3 do helper.close(causal[i], masked[i], 1e-13) end
  end)

  it("a query that sees nothing gives zeros and has no gradient", function()
    local some = ml.iota({5, 5}, 1):ne(1):reshape {1, 1, 5, 5}
    for _, options in ipairs {{mask = some}, {lengths = ml.tensor {0}}, {window = {0, false}, offset = 9}} do
      local function loss(a, b, c)
        local y = nn.attention(a, b, c, options)
        return (y * oracle.ramp {5, 4, 3}):sum(), y
      end
      local grads, y = ml.grad(loss, {argnums = {1, 2, 3}, has_aux = true})(q, k, v)
      local row = options.mask and 2 or 1
      helper.close(ml.zeros({4, 3}, "float64"), y:slice(row), 0)
      helper.close(ml.zeros({4, 3}, "float64"), grads[1]:slice(row), 0)
      for i = 1, 3 do assert.truthy(grads[i]:sum():item() == grads[i]:sum():item()) end
    end
  end)

  it("dropout drops probabilities, the same as nn.dropout of them", function()
    local key, rate = ml.random.key(5), 0.4
    local ahead = ml.iota({5, 5}, 2):le(ml.iota({5, 5}, 1))
    local function composed(a, b, c)
      local s = ml.where(ahead, ml.einsum("thd,shd->hts", a, b) * scale, -1e30)
      local p = nn.dropout(ml.softmax(s):reshape {1, 4, 5, 5}, rate, key):reshape {4, 5, 5}
      return ml.einsum("hts,shd->thd", p, c)
    end
    local function native(a, b, c)
      return nn.attention(a, b, c, {causal = true, dropout = rate, key = key})
    end
    local function loss(f)
      return function(a, b, c) return (f(a, b, c) * oracle.ramp {5, 4, 3}):sum() end
    end
    helper.close(composed(q, k, v), native(q, k, v), 1e-13)
    local expected = ml.grad(loss(composed), {argnums = {1, 2, 3}})(q, k, v)
    local got = ml.grad(loss(native), {argnums = {1, 2, 3}})(q, k, v)
    for i = 1, 3 do helper.close(expected[i], got[i], 1e-13) end
  end)

  it("a mask and dropout give flax's numbers, their gradients too", function()
    local function f32(shape) return oracle.ramp(shape, "float32") end
    local rows, columns = ml.iota({5, 6}, 1), ml.iota({5, 6}, 2)
    local band, ahead = (rows - columns):abs():le(1), columns:le(rows)
    local some = ((rows * 5 + columns * 3) % 4):ne(0):bitand(rows:lt(4))
    local key = ml.random.key(7)
    local options = {mask = {mask = band}, groups = {mask = band}, dropout = {dropout = 0.4, key = key},
      both = {mask = ahead, dropout = 0.25, key = key}, nowhere = {mask = some}}
    for name, expected in pairs(oracle.read "nn".masked_attention) do
      local heads = name == "groups" and 2 or 4
      local a, b = f32 {2, 5, 4, 3}, f32 {2, 6, heads, 3}
      local c = f32({3, heads, 6, 2}):transpose(4, 3, 2, 1)
      local function loss(...)
        local y = nn.attention(...)
        return (y * f32 {2, 5, 4, 3}):sum(), y
      end
      local function both(x, y, z) return loss(x, y, z, options[name]) end
      local grads, y = ml.grad(both, {argnums = {1, 2, 3}, has_aux = true})(a, b, c)
      helper.close(expected.result, y, 1e-6)
      for i = 1, 3 do helper.close(expected.grads[i], grads[i], 2e-6) end
    end
  end)

  it("a mask and dropout are the same on every mesh", function()
    local key, mesh = ml.random.key(6), ml.make_mesh({2, 4}, {"data", "model"})
    local x = oracle.ramp({4, 64, 4, 16}, "float32")
    local seen = ml.iota({4, 1, 1, 64}, 4):lt(ml.iota({4, 1, 1, 64}, 1) * 20) -- the first looks nowhere
    local function f(a, m)
      return (nn.attention(a, a * 0.5, a + 1, {mask = m, dropout = 0.25, key = key}) ^ 2):sum()
    end
    local both = ml.jit(ml.value_and_grad(f))
    local value, grad = both(x, seen)
    local laid = ml.device_put(x, ml.NamedSharding(mesh, P("data", nil, "model")))
    local sharded_value, sharded_grad = both(laid, seen)
    helper.close(value, sharded_value, 1e-5)
    helper.close(grad, sharded_grad, 1e-5)
  end)

  it("a window, lengths, an offset, segments: as the mask that says the same", function()
    local a, b, c = oracle.ramp {2, 5, 4, 3}, oracle.ramp {2, 7, 2, 3}, oracle.ramp {2, 7, 2, 3} + 0.5
    local t, s = ml.iota({2, 1, 5, 7}, 3), ml.iota({2, 1, 5, 7}, 4)
    local lengths, offset = ml.tensor {4, 7}, ml.tensor {0, 3}
    local function rows(x) return x:reshape {2, 1, 1, 1} end
    local ids = ml.tensor {{0, 0, 0, 1, 1}, {0, 1, 1, 1, 2}}
    local key_ids = ml.tensor {{0, 0, 1, 1, 1, 1, 2}, {0, 0, 0, 1, 1, 2, 2}}
    for name, pair in pairs {
      causal = {{causal = true}, s:le(t + 2)},
      first = {{causal = true, offset = 0}, s:le(t)},
      window = {{window = {1, 2}, offset = 1}, s:ge(t):bitand(s:le(t + 3))},
      number = {{window = 1, offset = 0}, (s - t):abs():le(1)},
      left = {{window = {2, false}}, s:ge(t)},
      lengths = {{lengths = lengths}, s:lt(rows(lengths))},
      query_lengths = {{query_lengths = lengths, lengths = lengths},
        s:lt(rows(lengths)):bitand(t:lt(rows(lengths)))},
      offset = {{offset = offset, causal = true}, s:le(t + rows(offset))},
      segments = {{segment_ids = {ids, key_ids}},
        ids:reshape {2, 1, 5, 1}:eq(key_ids:reshape {2, 1, 1, 7})},
    } do
      helper.close(nn.attention(a, b, c, {mask = pair[2]}), nn.attention(a, b, c, pair[1]), 1e-14, name)
    end
    local same = ml.ones({2, 5}, "int32")
    helper.close(nn.attention(a, a, a), nn.attention(a, a, a, {segment_ids = same}), 1e-14)
  end)

  it("what lies behind a row's length is not read", function()
    for _, dtype in ipairs {"float32", "bfloat16", "float64"} do
      local a, b = oracle.ramp({2, 3, 2, 4}, dtype), oracle.ramp({2, 40, 2, 4}, dtype)
      local there = ml.iota({2, 40, 2, 4}, 2):lt(21)
      local lost = ml.where(there, b, 0 / 0):astype(dtype)
      local function both(x) return nn.attention(a, x, x, {lengths = ml.tensor {21, 3}}) end
      helper.close(both(b), both(lost), 0)
      local function sum(x) return both(x):astype("float32"):sum() end
      helper.close(ml.grad(sum)(b):slice(false, {1, 21}), ml.grad(sum)(lost):slice(false, {1, 21}), 0)
    end
  end)

  it("keys and values of another dtype than the queries", function()
    local a, b = oracle.ramp({2, 5, 4, 8}, "bfloat16"), oracle.ramp({2, 7, 2, 8}, "float32")
    local y = nn.attention(a, b, b, {causal = true})
    assert.equal("bfloat16", y.dtype)
    helper.close(nn.attention(a:astype "float32", b, b, {causal = true}), y:astype "float32", 0.01)
    local wide = oracle.ramp {2, 7, 2, 8}
    y = nn.attention(a, wide, wide)
    assert.equal("bfloat16", y.dtype)
    local grads = ml.grad(function(x, z) return nn.attention(x, z, z):astype("float32"):sum() end,
      {argnums = {1, 2}})(a, b)
    assert.same({"bfloat16", "float32"}, {grads[1].dtype, grads[2].dtype})
  end)

  it("queries split over devices know their places", function()
    local mesh = ml.make_mesh({8}, {"seq"})
    local a = oracle.ramp({2, 16, 4, 8}, "float32")
    local b = oracle.ramp({2, 24, 2, 8}, "float32")
    local function loss(options)
      return function(x, z, bias)
        local given = {bias = bias}
        for key, value in pairs(options) do given[key] = value end
        local y = nn.attention(x, z, z, given)
        return (y * oracle.ramp({2, 16, 4, 8}, "float32")):sum(), y
      end
    end
    local ragged = {causal = true, soft_cap = 2.0, offset = ml.tensor {1, 9}, lengths = ml.tensor {11, 24},
      query_lengths = ml.tensor {7, 16}}
    for _, options in ipairs {{causal = true}, {causal = true, window = {5, 0}},
      {window = {3, 4}, offset = 2}, ragged} do
      local both = ml.jit(ml.grad(loss(options), {argnums = {1, 2, 3}, has_aux = true}))
      local bias = oracle.ramp({1, 1, 16, 24}, "float32")
      local grads, y = both(a, b, bias)
      local laid = ml.device_put(a, ml.NamedSharding(mesh, P(nil, "seq")))
      local split_grads, split = both(laid, b, bias)
      assert.equal("seq", split.sharding.spec[2])
      helper.close(y, split, 1e-6)
      for i = 1, 3 do helper.close(grads[i], split_grads[i], 1e-5) end
    end
  end)

  it("keys, and depths, split over devices give the same", function()
    local mesh = ml.make_mesh({8}, {"x"})
    local a, b = oracle.ramp {2, 8, 4, 8}, oracle.ramp {2, 16, 2, 8}
    local function loss(x, z, bias)
      local y = nn.attention(x, z, z * 0.5,
        {bias = bias, causal = true, lengths = ml.tensor {7, 16}, soft_cap = 2.0})
      return (y * oracle.ramp {2, 8, 4, 8}):sum(), y
    end
    local both = ml.jit(ml.grad(loss, {argnums = {1, 2, 3}, has_aux = true}))
    local grads, y = both(a, b, oracle.ramp {1, 1, 8, 16})
    for _, specs in ipairs {{P(), P(nil, "x"), P()}, {P(), P(), P(nil, nil, nil, "x")},
      {P(nil, nil, nil, "x"), P(nil, nil, nil, "x"), P(nil, nil, "x")}} do
      local args = {a, b, oracle.ramp {1, 1, 8, 16}}
      for i, spec in ipairs(specs) do args[i] = ml.device_put(args[i], ml.NamedSharding(mesh, spec)) end
      local split_grads, split = both(table.unpack(args))
      helper.close(y, split, 1e-13)
      for i = 1, 3 do helper.close(grads[i], split_grads[i], 1e-13) end
    end
  end)

  it("second derivatives are those of differences", function()
    local a, b, bias = oracle.ramp {2, 3, 2, 2}, oracle.ramp {2, 5, 1, 2}, oracle.ramp {1, 1, 3, 5}
    local sets = {{causal = true, window = {1, 0}, soft_cap = 1.5}, {lengths = ml.tensor {0, 4}}}
    for _, options in ipairs(sets) do
      local function first(x, z, w)
        local given = {}
        for key, value in pairs(options) do given[key] = value end
        local function loss(p, r, t)
          given.bias = t
          return (nn.attention(p, r, r, given) * oracle.ramp {2, 3, 2, 2}):sum()
        end
        local grads = ml.grad(loss, {argnums = {1, 2, 3}})(x, z, w)
        return (grads[1] * a):sum() + (grads[2] * b):sum() - (grads[3] * bias):sum()
      end
      local second = ml.grad(first, {argnums = {1, 2, 3}})(a, b, bias)
      local along = (second[1] * a):sum() + (second[2] * b):sum() - (second[3] * bias):sum()
      local e = 1e-5
      local function at(h) return first(a * (1 + h), b * (1 + h), bias * (1 - h)) end
      helper.close((at(e) - at(-e)) / (2 * e), along, 1e-8)
    end
  end)

  it("many examples at once", function()
    local a, b = oracle.ramp {3, 2, 5, 4, 2}, oracle.ramp {3, 2, 5, 2, 2}
    local lengths = ml.tensor {{1, 2}, {5, 0}, {3, 4}}
    local function f(x, z, n)
      return nn.attention(x, z, z, {lengths = n, causal = true, bias = x:sum() * ml.ones {5, 5}})
    end
    local y = ml.vmap(f)(a, b, lengths)
    for i = 1, 3 do helper.close(f(a:slice(i), b:slice(i), lengths:slice(i)), y:slice(i), 1e-14) end
  end)

  it("wrong operands are named", function()
    helper.raises("the key of the dropout", nn.attention, q, k, v, {dropout = 0.5})
    helper.raises("dropout is 1.0", nn.attention, q, k, v, {dropout = 1.0, key = ml.random.key(0)})
    helper.raises("E_SHAPE", nn.attention, ml.ones {2, 3}, ml.ones {2, 3}, ml.ones {2, 3})
    helper.raises("expected a tensor as k", nn.attention, q, 3, v)
    helper.raises("it must be bool", nn.attention, q, k, v, {mask = ml.ones {5, 5}})
    helper.raises("lengths is float32[1]; it must be whole numbers", nn.attention, q, k, v,
      {lengths = ml.ones {1}})
    helper.raises("it must be floats", nn.attention, q, k, v, {bias = ml.zeros({5, 5}, "int32")})
    helper.raises("a window is a whole number from 0", nn.attention, q, k, v, {window = -1})
    helper.raises("a window is a whole number from 0", nn.attention, q, k, v, {window = {1}})
    helper.raises("soft_cap is 0", nn.attention, q, k, v, {soft_cap = 0})
    helper.raises("or an offset", nn.attention, q, k:slice({1, 3}), v:slice({1, 3}), {causal = true})
    helper.raises("did you mean 'causal'", nn.attention, q, k, v, {casual = true})
  end)
end)

describe("nn.MultiHeadAttention", function()
  local x = oracle.ramp({2, 5, 8}, "float32")

  it("fused or as three projections: the same layer", function()
    local fused = nn.MultiHeadAttention(8, 2, {rngs = nn.Rngs(0), fused = true, causal = true})
    local apart = nn.MultiHeadAttention(8, 2, {rngs = nn.Rngs(1), causal = true})
    assert.same({8, 3, 2, 4}, fused.qkv.kernel.shape)
    for i, name in ipairs {"query", "key", "value"} do
      apart[name].kernel:set(fused.qkv.kernel:slice(false, i))
      apart[name].bias:set(fused.qkv.bias:slice(i))
    end
    ml.update(apart.out, ml.state(fused.out))
    helper.close(apart(x), fused(x), 1e-6)
    local function loss(m) return (m(x) * oracle.ramp({2, 5, 8}, "float32")):sum() end
    local a, f = ml.grad(loss)(apart), ml.grad(loss)(fused)
    helper.close(a.key.kernel, f.qkv.kernel:slice(false, 2), 1e-5)
  end)

  it("cross-attention takes keys and values from kv", function()
    local layer = nn.MultiHeadAttention(8, 2, {rngs = nn.Rngs(0)})
    local other = oracle.ramp({2, 3, 8}, "float32") * 0.5
    local y = layer(x, {kv = other})
    assert.same({2, 5, 8}, y.shape)
    assert.is_string(helper.difference(layer(x), y))
    local fused = nn.MultiHeadAttention(8, 2, {rngs = nn.Rngs(0), fused = true})
    helper.raises("one input", fused, x, {kv = other})
  end)

  it("kv_heads makes the keys' kernels smaller", function()
    local layer = nn.MultiHeadAttention(8, 4, {rngs = nn.Rngs(0), kv_heads = 2})
    assert.same({8, 4, 2}, layer.query.kernel.shape)
    assert.same({8, 2, 2}, layer.key.kernel.shape)
    assert.same({2, 5, 8}, layer(x).shape)
  end)

  it("with rotary positions only distances count", function()
    local layer = nn.MultiHeadAttention(8, 2, {rngs = nn.Rngs(0), rope = 10000, causal = true})
    local plain = nn.MultiHeadAttention(8, 2, {rngs = nn.Rngs(0), causal = true})
    assert.is_string(helper.difference(plain(x), layer(x), 1e-4))
    -- Tokens that repeat every three places, seen one place back and no further: so do the results.
    local three = oracle.ramp({1, 3, 8}, "float32")
    local twice = ml.concat({three, three}, 2)
    local back = ml.iota({6, 6}, 1) - ml.iota({6, 6}, 2)
    local y = layer(twice, {mask = back:ge(0):bitand(back:le(1)):reshape {1, 1, 6, 6}})
    helper.close(y:slice(1, {2, 3}), y:slice(1, {5, 6}), 1e-6)
    assert.is_string(helper.difference(y:slice(1, 2), y:slice(1, 3), 1e-3))
  end)

  it("dropout of the probabilities while training, with keys of the call", function()
    local layer = nn.MultiHeadAttention(8, 2, {rngs = nn.Rngs(0), causal = true, dropout = 0.5})
    local plain = nn.MultiHeadAttention(8, 2, {rngs = nn.Rngs(0), causal = true})
    local y = layer(x, {rngs = nn.Rngs {dropout = 3}})
    local key = nn.Rngs({dropout = 3}).dropout()
    local dropped = nn.attention(layer.query(x), layer.key(x), layer.value(x),
      {causal = true, dropout = 0.5, key = key})
    helper.close(layer.out(dropped), y, 1e-6)
    assert.is_string(helper.difference(plain(x), y, 1e-3))
    helper.raises("E_STATE", layer, x)
    layer:eval()
    helper.close(plain(x), layer(x), 0)
    helper.raises("dropout is 1.0", nn.MultiHeadAttention, 8, 2, {rngs = nn.Rngs(0), dropout = 1.0})
  end)

  it("a window, a soft cap, lengths, segments and a bias go to the attention", function()
    local layer = nn.MultiHeadAttention(8, 2,
      {rngs = nn.Rngs(0), causal = true, window = {2, 0}, soft_cap = 0.5})
    local given = {lengths = ml.tensor {3, 5}, segment_ids = ml.tensor {{0, 0, 1, 1, 1}, {0, 0, 0, 0, 1}},
      bias = oracle.ramp({1, 2, 5, 5}, "float32")}
    local options = {causal = true, window = {2, 0}, soft_cap = 0.5}
    for name, value in pairs(given) do options[name] = value end
    local y = nn.attention(layer.query(x), layer.key(x), layer.value(x), options)
    helper.close(layer.out(y), layer(x, given), 0)
    helper.raises("a window is", nn.MultiHeadAttention, 8, 2, {rngs = nn.Rngs(0), window = -2})
  end)

  it("heads that do not divide the width are an error that names those that do", function()
    local function made(heads, more)
      more = more or {}
      more.rngs = nn.Rngs(0)
      return nn.MultiHeadAttention(128, heads, more)
    end
    helper.raises("E_INDIVISIBLE", made, 6)
    helper.raises("3 heads do not divide the width 128; use 2 or 4 heads", made, 3)
    assert.same({128, 3, 10}, made(3, {head_dim = 10}).query.kernel.shape)
    helper.raises("3 key heads for 8 heads; the first must divide the second", made, 8, {kv_heads = 3})
    helper.raises("E_VALUE", made, 8, {kv_heads = 4, fused = true})
    helper.raises("E_VALUE", made, 0)
  end)

  it("heads over a mesh axis: one all_reduce forward, one backward, the same result", function()
    local mesh = ml.make_mesh({2, 4}, {"data", "model"})
    local rules = {{"batch", "data"}, {"seq", false}, {"embed", false}, {"heads", "model"}}
    for _, fused in ipairs {false, true} do
      local function build(rngs)
        return nn.MultiHeadAttention(16, 4,
          {rngs = rngs, axes = {"embed", "heads"}, causal = true, fused = fused})
      end
      local function loss(m, input)
        local y = m(input:constrain {"batch", "seq", "embed"}):constrain {"batch", "seq", "embed"}
        return (y ^ 2):mean()
      end
      local input = oracle.ramp({4, 6, 16}, "float32")
      local sharded = ml.init(build, {mesh = mesh, rules = rules})
      local whole = ml.init(build)
      assert.equal(ml.NamedSharding(mesh, fused and P(nil, nil, "model") or P(nil, "model")),
        (fused and sharded.qkv or sharded.query).kernel.sharding)
      local both = ml.value_and_grad(loss, {argnums = 2})
      local step = ml.jit(both, {mesh = mesh, rules = rules})
      local value, grad = step(sharded, input)
      local expected, expected_grad = ml.jit(both, {rules = rules})(whole, input)
      helper.close(expected, value, 1e-6)
      helper.close(expected_grad, grad, 1e-6)
      local count = 0
      for _, c in ipairs(step:plan(sharded, input):collectives()) do
        if c.axes[1] == "model" then
          assert.equal("all_reduce", c.op)
          assert.equal(2 * 6 * 16 * 4, c.bytes)
          count = count + 1
        end
      end
      assert.equal(2, count)
    end
  end)

  helper.on_processors("the order of sums is that of processors", "gives a step the query's bits", function()
    for _, case in ipairs {{64, 6, 2}, {24, 3, 3}, {80, 4, 1}} do
      local size, heads, groups = table.unpack(case)
      for _, dtype in ipairs {"float32", "bfloat16"} do
        local function normal(seed, n, count)
          return ml.random.normal(ml.random.key(seed), {2, n, count, size})
        end
        local q, k, v = normal(1, 5, heads), normal(2, 150, groups), normal(3, 150, groups)
        k, v = k:astype(dtype), v:astype(dtype)
        local lengths, places = ml.tensor {150, 70}, ml.tensor {145, 20}
        local function see(offset)
          return {causal = true, lengths = lengths, offset = offset}
        end
        local all = nn.attention(q, k, v, see(places))
        for t = 1, 5 do
          local one = nn.attention(q:slice(false, {t, t}), k, v, see(places + (t - 1)))
          assert.is_true((one:bytes() == all:slice(false, {t, t}):bytes()))
        end
      end
    end
  end)
end)
