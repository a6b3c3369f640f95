-- devices: 8
-- zero_spec.lua: optimizer state that lies otherwise than its Param (ZeRO-1: Rajbhandari et al. 2020): what is held
-- and what is sent, by formula. The numbers are those of the checklist of JAX's semantics.
local helper = require "spec.helper"
local ml = require "meshlua"

local nn, optim, P = ml.nn, ml.optim, ml.P
local N, D = 8, 64
local mesh = ml.make_mesh({N}, {"data"})
local whole = {{"in", false}, {"out", false}, {"shard", "data"}}

--- A model of two square matrices; opt_axes as given.
local function made(rules, opt_axes)
  local model = ml.init(function(rngs)
    local function w() return ml.random.normal(rngs.params(), {D, D}) end
    return {a = nn.Param(w(), {axes = {"in", "out"}, opt_axes = opt_axes}),
      b = nn.Param(w(), {axes = {"in", "out"}, opt_axes = opt_axes})}
  end, {mesh = mesh, rules = rules})
  return model, optim.adam(model, {lr = 0.01})
end

local x = ml.device_put(ml.random.normal(ml.random.key(1), {N, D}), ml.NamedSharding(mesh, P "data"))

local function step()
  return ml.jit(function(m, o, v)
    o:update(m, ml.grad(function(n) return (ml.tanh(v:matmul(n.a)):matmul(n.b) ^ 2):sum() end)(m))
  end)
end

--- Bytes that collectives of each kind take, of operands of at least a matrix's eighth.
local function taken(plan)
  local bytes = {}
  for _, c in ipairs(plan:collectives()) do
    if c.bytes >= 4 * D * D // N then bytes[c.op] = (bytes[c.op] or 0) + c.bytes end
  end
  return bytes
end

describe("L3: optimizer state", function()
  local MATRICES = 2 * 4 * D * D
  local plain, plain_opt = made(whole)
  local plain_plan = step():plan(plain, plain_opt, x)

  it("that follows its Param is held whole by each device", function()
    assert.is_true(plain_opt.state.mu.a.sharding == plain.a.sharding)
    assert.equal(3 * MATRICES + 4 * D + 4, plain_plan:memory().arguments)
    assert.same({all_reduce = MATRICES}, taken(plain_plan))
  end)

  for _, case in ipairs {
    {"by opt_axes", whole, {"shard", "out"}},
    {"by a rule", {{opt = ml.shard_largest "data"}, {"in", false}, {"out", false}}},
    {"by a rule for a path", {{opt = {"^[ab]$", P "data"}}, {"in", false}, {"out", false}}},
  } do
    it("that is split " .. case[1] .. " takes an eighth, for a scatter and a gather", function()
      local model, opt = made(case[2], case[3])
      assert.is_true(model.a.is_fully_replicated)
      local specs = ml.get_partition_spec(opt)
      assert.is_true(specs.state.mu.a == P("data", nil) and specs.state.nu.b == P("data", nil))
      assert.is_true(ml.get_named_sharding(opt).state.mu.a == ml.NamedSharding(mesh, P "data"))
      local train = step()
      local plan = train:plan(model, opt, x)
      assert.equal(MATRICES + 2 * MATRICES // N + 4 * D + 4, plan:memory().arguments)
      assert.same({reduce_scatter = MATRICES, all_gather = MATRICES // N}, taken(plan))
      assert.truthy(plan:memory().peak < plain_plan:memory().peak)
      local twin, twin_opt = made(whole)
      local other = step()
      for _ = 1, 3 do
        train(model, opt, x)
        other(twin, twin_opt, x)
      end
      helper.close(twin.a:get(), model.a:get(), 1e-6)
      helper.close(twin_opt.state.nu.b:get(), opt.state.nu.b:get(), 1e-6)
      assert.is_true(opt.state.mu.a.sharding == ml.NamedSharding(mesh, P "data"))
    end)
  end

  it("that its Param's shape does not allow is an error that names it", function()
    helper.raises("[E_INDIVISIBLE] w (optimizer state): dim 1 has size 6, which mesh axis data of size 8",
      ml.init,
      function() return {w = nn.Param(ml.ones {6}, {opt_axes = {"shard"}})} end, {mesh = mesh, rules = whole})
    helper.raises("[E_SPEC] w (opt_axes): no rule for the logical axis 'shrd' (did you mean 'shard'?)",
      ml.init,
      function() return {w = nn.Param(ml.ones {8}, {opt_axes = {"shrd"}})} end, {mesh = mesh, rules = whole})
  end)
end)
