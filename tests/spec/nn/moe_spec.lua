-- devices: 8
-- moe_spec.lua: a mixture of experts against its definition, token by token in plain Lua, and on every mesh.
local ml = require "meshlua"
local helper = require "spec.helper"
local oracle = require "spec.oracle"

local nn = ml.nn

local function gelu(x) -- x sigmoid(2 u), which is x (1 + tanh u) / 2
  local u = math.sqrt(2 / math.pi) * (x + 0.044715 * x ^ 3)
  return x / (1 + math.exp(-2 * u))
end

--- x [width] times a matrix [width][n].
local function times(x, w)
  local y = {}
  for j = 1, #w[1] do
    y[j] = 0.0
    for i = 1, #x do y[j] = y[j] + x[i] * w[i][j] end
  end
  return y
end

--- What the layer says of itself: first choices of all tokens of a row take their places, then second ones.
local function by_hand(layer, x)
  local router, up, down = layer.router:totable(), layer.up:totable(), layer.down:totable()
  local gate = layer.gate and layer.gate:totable()
  local out, balance = {}, 0.0
  for b, row in ipairs(x:totable()) do
    local room, chosen, share, weight = {}, {}, {}, {}
    for e = 1, layer.experts do room[e], share[e], weight[e] = layer:capacity(#row), 0, 0.0 end
    out[b] = {}
    for t, token in ipairs(row) do
      local p, order, sum = times(token, router), {}, 0.0
      for e, v in ipairs(p) do
        p[e] = math.exp(v)
        sum, order[e] = sum + p[e], e
      end
      table.sort(order, function(i, j) return p[i] > p[j] end)
      chosen[t] = {}
      local kept = 0.0
      for k = 1, layer.top_k do kept = kept + p[order[k]] end
      for k = 1, layer.top_k do
        chosen[t][k] = {expert = order[k], weight = p[order[k]] / (layer.top_k > 1 and kept or sum)}
      end
      for e in ipairs(p) do weight[e] = weight[e] + p[e] / sum / #row end
      share[order[1]] = share[order[1]] + 1 / #row
      out[b][t] = {}
      for i = 1, #token do out[b][t][i] = 0.0 end
    end
    for k = 1, layer.top_k do
      for t, token in ipairs(row) do
        local choice = chosen[t][k]
        local e = choice.expert
        room[e] = room[e] - 1
        if room[e] >= 0 then
          local h, factors = times(token, (gate or up)[e]), gate and times(token, up[e])
          for i, v in ipairs(h) do h[i] = gelu(v) * (factors and factors[i] or 1) end
          for i, v in ipairs(times(h, down[e])) do out[b][t][i] = out[b][t][i] + choice.weight * v end
        end
      end
    end
    for e = 1, layer.experts do balance = balance + layer.experts * share[e] * weight[e] / #x:totable() end
  end
  return out, balance
end

local function make(options)
  options.rngs, options.param_dtype = nn.Rngs(3), "float64"
  return nn.MoE(5, 7, 4, options)
end

describe("a mixture of experts", function()
  local x = oracle.ramp {3, 8, 5}
  for name, options in pairs {
    ["two choices, room for some"] = {capacity_factor = 0.7}, ["one choice"] = {top_k = 1},
    ["room for all"] = {capacity_factor = 4.0}, ["four choices"] = {top_k = 4, capacity_factor = 0.5},
    ["gated"] = {gated = true, capacity_factor = 0.7},
  } do
    it("is what it says: " .. name, function()
      local layer = make(options)
      local y, balance = layer(x)
      local want, loss = by_hand(layer, x)
      helper.close(want, y, 1e-6) -- the router is float32
      assert.near(loss, balance:item(), 1e-5)
    end)
  end

  it("has the gradients of its differences", function()
    local layer = make {capacity_factor = 1.0}
    local function loss(m)
      local y, balance = m(x)
      return (y * oracle.ramp(y.shape)):sum() + balance:astype "float64"
    end
    local grads = ml.grad(loss)(layer)
    for _, name in ipairs {"up", "down"} do
      local box, u = layer[name], oracle.ramp(layer[name].shape)
      local before = box + 0
      box:set(before + u * 2.0 ^ -17)
      local high = loss(layer):item()
      box:set(before - u * 2.0 ^ -17)
      local low = loss(layer):item()
      box:set(before)
      assert.near((high - low) * 2 ^ 16, (grads[name] * u):sum():item(), 1e-6)
    end
    assert.truthy((grads.router * grads.router):sum():item() > 1e-6)
  end)

  it("gives the same on every mesh", function()
    local input, first = oracle.ramp({8, 12, 16}, "float32"), nil
    local rest = {{"batch", false}, {"embed", false}, {"expert", false}, {"mlp", false}}
    for _, case in ipairs {
      {{8}, {"expert"}, {"batch", "expert"}, {"expert", "expert"}},
      {{2, 4}, {"data", "expert"}, {"batch", {"data", "expert"}}, {"batch", "data"}, {"expert", "expert"}},
      {{4, 2}, {"expert", "model"}, {"batch", "expert"}, {"expert", "expert"}, {"mlp", "model"}},
      {{8}, {"model"}, {"expert", "model"}}, {{8}, {"data"}, {"batch", "data"}},
    } do
      local mesh, rules = ml.make_mesh(case[1], case[2]), table.move(case, 3, #case, 1, {})
      table.move(rest, 1, #rest, #rules + 1, rules)
      local layer = ml.init(function(rngs) return nn.MoE(16, 32, 8, {rngs = rngs}) end,
        {mesh = mesh, rules = rules})
      local y, balance, grads = ml.jit(function(m, t)
        local results
        local grads = ml.grad(function(v)
          results = {v(t)}
          return (results[1] * results[1]):sum() + results[2]
        end)(m)
        return results[1], results[2], grads
      end, {mesh = mesh, rules = rules})(layer, input)
      local got = {y, balance, grads.router, grads.up, grads.down}
      first = first or got
      for i, t in ipairs(got) do helper.close(first[i]:totable(), t, 1e-5) end
    end
  end)

  it("says what is wrong with its sizes and its input", function()
    helper.raises("E_VALUE", nn.MoE, 4, 4, 0, {rngs = nn.Rngs(0)})
    helper.raises("E_VALUE", nn.MoE, 4, 4, 2, {rngs = nn.Rngs(0), top_k = 3})
    helper.raises("E_VALUE", nn.MoE, 4, 4, 2, {rngs = nn.Rngs(0), capacity_factor = 0.0})
    helper.raises("E_SHAPE", nn.MoE(4, 4, 2, {rngs = nn.Rngs(0)}), ml.ones {2, 4})
  end)
end)
