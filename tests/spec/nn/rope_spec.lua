-- devices: 8
-- rope_spec.lua: rotary positions: both pairings, positions of one's own, slowed rotations.
local helper = require "spec.helper"
local ml = require "meshlua"

local nn, P = ml.nn, ml.P

--- The rotation by its definition, in float64 on numbers of Lua. `turn(i)`: the frequency of pair i.
local function rotated(x, positions, turn, interleaved)
  local y = x:totable()
  for _, row in ipairs(y) do
    for t, heads in ipairs(row) do
      for _, v in ipairs(heads) do
        local half = #v // 2
        for i = 0, half - 1 do
          local a, b = i + 1, i + half + 1
          if interleaved then a, b = 2 * i + 1, 2 * i + 2 end
          local angle = positions[t] * turn(i, #v)
          local c, s = math.cos(angle), math.sin(angle)
          v[a], v[b] = v[a] * c - v[b] * s, v[b] * c + v[a] * s
        end
      end
    end
  end
  return y
end

local function plain(base) return function(i, size) return base ^ (-2 * i / size) end end

--- Llama 3.1's frequencies, by its three cases.
local function slowed(base, s)
  return function(i, size)
    local frequency = base ^ (-2 * i / size)
    local turns = s.original * frequency / (2 * math.pi)
    if turns < s.low then return frequency / s.factor end
    if turns > s.high then return frequency end
    local keep = (turns - s.low) / (s.high - s.low)
    return keep * frequency + (1 - keep) * frequency / s.factor
  end
end

describe("nn.rope", function()
  local x = ml.random.normal(ml.random.key(0), {2, 6, 3, 16})
  local wide = x:astype "float64"
  local from_0 = {0, 1, 2, 3, 4, 5}
  local scaling = {factor = 8, low = 1, high = 4, original = 64}

  it("turns pairs half a head apart, or side by side", function()
    for _, interleaved in ipairs {false, true} do
      local expected = rotated(wide, from_0, plain(500), interleaved)
      helper.close(expected, nn.rope(wide, {base = 500, interleaved = interleaved}), 1e-13)
      helper.close(expected, nn.rope(x, {base = 500, interleaved = interleaved}), 1e-6)
    end
    helper.close(rotated(wide, from_0, plain(10000)), nn.rope(x), 1e-6)
  end)

  it("slows rotations as Llama 3.1 does", function()
    local turn, kinds = slowed(500, scaling), {}
    for i = 0, 7 do
      local share = plain(500)(i, 16) / turn(i, 16)
      kinds[share == 1 and "kept" or share == 8 and "slowed" or "between"] = true
    end
    assert.same({kept = true, slowed = true, between = true}, kinds)
    for _, interleaved in ipairs {false, true} do
      local options = {base = 500, scaling = scaling, interleaved = interleaved}
      helper.close(rotated(wide, from_0, turn, interleaved), nn.rope(wide, options), 1e-13)
      helper.close(rotated(wide, from_0, turn, interleaved), nn.rope(x, options), 1e-6)
    end
    assert.equal("bfloat16", nn.rope(x:astype "bfloat16", {scaling = scaling}).dtype)
  end)

  it("takes positions, for all rows or for each its own; far ones are as exact as near ones", function()
    local far = {1000000, 0, 7, 131071, 3, 2000000000}
    local expected = rotated(wide, far, plain(10000))
    helper.close(expected, nn.rope(x, {positions = ml.tensor(far, "int32")}), 1e-6)
    helper.close(expected, nn.rope(x, {positions = ml.tensor(far, "int64")}), 1e-6)
    local rows = nn.rope(x, {positions = ml.tensor({from_0, far}, "int32")})
    helper.close(rotated(wide, from_0, plain(10000))[1], rows:slice(1), 1e-6)
    helper.close(expected[2], rows:slice(2), 1e-6)
  end)

  it("has the gradient of a rotation: the rotation back", function()
    local c = ml.random.normal(ml.random.key(1), x.shape)
    local function gradient(options)
      return ml.grad(function(v) return (nn.rope(v, options) * c):sum() end)(x)
    end
    local back = ml.tensor({0, -1, -2, -3, -4, -5}, "int32")
    helper.close(nn.rope(c, {positions = back}), gradient {}, 1e-6)
    helper.close(nn.rope(c, {positions = back, interleaved = true}), gradient {interleaved = true}, 1e-6)
    helper.close(nn.rope(c, {positions = back, scaling = scaling}), gradient {scaling = scaling}, 1e-6)
  end)

  it("on a mesh sends nothing, and gives the same", function()
    local mesh = ml.make_mesh({2, 2, 2}, {"data", "seq", "model"})
    local big = ml.random.normal(ml.random.key(2), {2, 8, 4, 16})
    local there = ml.device_put(big, ml.NamedSharding(mesh, P("data", "seq", "model")))
    for _, options in ipairs {{}, {interleaved = true}, {scaling = scaling},
        {scaling = scaling, interleaved = true}} do
      local turn = ml.jit(function(v) return nn.rope(v, options) end, {mesh = mesh})
      ml.forbid(turn:plan(there), {"all_gather", "all_reduce", "all_to_all", "reduce_scatter"})
      helper.close(nn.rope(big, options), turn(there), 1e-6)
      assert.equal(there.sharding, turn(there).sharding)
    end
  end)

  it("in a layer, from a base or a table", function()
    local function layer(rope)
      return nn.MultiHeadAttention(16, 2, {rngs = nn.Rngs(0), rope = rope, causal = true})
    end
    local v = ml.random.normal(ml.random.key(3), {2, 5, 16})
    helper.close(layer(10000)(v), layer({base = 10000})(v), 0)
    -- Both pairings turn by the same angles: another order of features, of queries and keys alike.
    assert.is_string(helper.difference(layer(10000)(v), layer({interleaved = true})(v), 1e-3))
    assert.is_string(helper.difference(layer(10000)(v), layer({scaling = scaling})(v), 1e-4))
  end)

  it("refuses what it cannot turn", function()
    helper.raises("even size", nn.rope, ml.zeros {4, 2, 3})
    helper.raises("even size", nn.rope, ml.zeros {4, 2})
    helper.raises("takes floats, got int32", nn.rope, ml.zeros({4, 2, 4}, "int32"))
    helper.raises("positions are int32[5]; x, float32[2,6,3,16], has 6 in dim 2", nn.rope, x,
      {positions = ml.arange(5)})
    helper.raises("positions are whole numbers, not float32[6]", nn.rope, x, {positions = ml.arange(6.0)})
    helper.raises("base is 0; it must be above 0", nn.rope, x, {base = 0})
    helper.raises("scaling has no 'facto'", nn.rope, x, {scaling = {facto = 8}})
    helper.raises("scaling.low must be a number, not nil", nn.rope, x,
      {scaling = {factor = 8, high = 4, original = 64}})
    helper.raises("scaling.factor is 0; it must be above 0", nn.rope, x,
      {scaling = {factor = 0, low = 1, high = 4, original = 64}})
    helper.raises("high must be above low", nn.rope, x,
      {scaling = {factor = 8, low = 4, high = 4, original = 64}})
    helper.raises("rope has no 'bse'", nn.MultiHeadAttention, 8, 2, {rngs = nn.Rngs(0), rope = {bse = 3}})
  end)
end)
