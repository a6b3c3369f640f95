-- devices: 8
-- guarded_spec.lua: an update that does not count leaves all that the step was given bit for bit, in place, whatever the
-- optimizer; one that counts gives the bits of an update that nobody guards.
local helper = require "spec.helper"
local ml = require "meshlua"
local oracle = require "spec.oracle"

local nn, optim, P = ml.nn, ml.optim, ml.P

local shapes = {b = {8}, t = {2, 8, 4}, w = {8, 16}}

local made = {
  adamw_master = function(m) return optim.adamw(m, {lr = 0.1, master = true}) end,
  sgd_momentum = function(m) return optim.sgd(m, {lr = 0.1, momentum = 0.9, nesterov = true, clip = 1.0}) end,
  rmsprop_centered = function(m) return optim.rmsprop(m, {lr = 0.1, centered = true, momentum = 0.9}) end,
  adafactor_factored = function(m)
    return optim.adafactor(m, {lr = 0.1, min_dim_size_to_factor = 4, momentum = 0.9})
  end,
}
for _, name in ipairs {"adam", "adamw", "adafactor", "adagrad", "lamb", "lars", "lion", "muon", "rmsprop",
  "sgd"} do
  made[name] = function(m) return optim[name](m, {lr = 0.1}) end
end

-- As transformations: chains, and what stands around others.
for name, make in pairs {
  chain = function()
    return optim.chain(optim.clip_by_global_norm(1.0), optim.scale_by_adam(), optim.add_decayed_weights(0.1),
      optim.ema(0.9), optim.scale_by_trust_ratio(), optim.scale_by_param_block_rms(), optim.scale(-0.1))
  end,
  masked = function() return optim.chain(optim.masked(optim.trace(0.9), "w"), optim.scale(-0.1)) end,
  multi = function()
    return optim.multi_transform({big = optim.adamw {lr = 0.01}, plain = optim.lion {lr = 0.1}},
      {{"^b$", "plain"}, {".", "big"}})
  end,
  multi_steps = function() return optim.MultiSteps(optim.adamw {lr = 0.1}, 2) end,
  multi_steps_chained = function()
    return optim.chain(optim.MultiSteps(optim.chain(optim.trace(0.9), optim.scale(-0.1)), 1), optim.clip(1.0))
  end,
  own = function() -- of somebody who knows nothing of guards
    return {name = "own", init = function(_, entries)
      return {sum = nn.Param(entries[1].box:get() * 0, {kind = "opt_state"})}
    end, update = function(updates, state)
      state.sum:set(state.sum + updates[1])
      updates[1] = state.sum * 1
      return updates
    end}
  end,
} do made[name] = function(m) return optim.Optimizer(m, make()) end end

local Model = nn.module "Model"
function Model:init(parts)
  for name, part in pairs(parts) do self[name] = part end
end

--- Params over the mesh, statistics of batches, an Rngs.
local function state(dtype, mesh)
  local rngs = nn.Rngs(3)
  local model = Model {norm = nn.BatchNorm(16, {rngs = rngs}), drop = nn.Dropout(0.5)}
  for name, shape in pairs(shapes) do model[name] = nn.Param(oracle.ramp(shape, dtype)) end
  local s = {model = model, rngs = rngs}
  if mesh then
    ml.device_put(s, ml.NamedSharding(mesh, P()))
    for _, name in ipairs {"b", "w"} do
      model[name]:set(ml.device_put(model[name]:get(), ml.NamedSharding(mesh, P("data"))))
    end
  end
  return s
end

--- A jitted step over a state {model, opt, rngs, mean}: `factor` goes into the gradients; `guard` is nil, "if_finite" or
--- "apply".
local function stepper(guard, n)
  return ml.jit(function(s, factor)
    local function loss_of(m)
      local noise = m.drop(m.w, s.rngs)
      return (m.norm(m.w) * noise + m.b:reshape(8, 1)):square():mean() + m.t:square():mean() * factor
    end
    local loss, grads
    if n then
      loss, grads = ml.accumulate(n, function() return ml.value_and_grad(loss_of)(s.model) end,
        {ml.ones {n, 1}})
    else
      loss, grads = ml.value_and_grad(loss_of)(s.model)
    end
    local options = guard == "if_finite" and {if_finite = true}
      or guard == "apply" and {apply = loss:isfinite()} or nil
    s.opt:update(s.model, grads, options)
    if s.mean then s.mean:update(s.model, guard == "apply" and {apply = loss:isfinite()} or nil) end
    return loss
  end)
end

local function bytes(s)
  local list = {}
  ml.tree.visit(s, function(path, p) if p.get then list[path] = p:get():bytes() end end)
  return list
end

--- A state behind good, bad and good steps; the bad ones are checked.
local function run(name, dtype, mesh, guard, n, bad)
  local s = state(dtype, mesh)
  s.model = s.model:train()
  s.opt = made[name](s.model)
  if dtype ~= "float64" and guard ~= "if_finite" then s.mean = optim.EMA(s.model) end
  local step = stepper(guard, n)
  for i, factor in ipairs(bad and {0.5, 0 / 0, 1.0, math.huge, 2.0} or {0.5, 1.0, 2.0}) do
    local before, good = bytes(s), factor - factor == 0
    local loss = step(s, ml.tensor(factor, "float32")):item()
    assert.equal(good, loss - loss == 0)
    if not good then assert.same(before, bytes(s), name .. " at step " .. i) end
    for _, path in ipairs {"model.norm.mean", "rngs.default.count", "opt.count"} do
      assert.equal(good, before[path] ~= bytes(s)[path], path)
    end
  end
  return bytes(s)
end

describe("an update that does not count", function()
  local mesh = ml.make_mesh({8}, {"data"})
  for name in pairs(made) do
    it("leaves all as it is: " .. name, function()
      local dtype = name == "adamw_master" and "bfloat16" or "float32"
      local plain = run(name, dtype, mesh, nil)
      assert.same(plain, run(name, dtype, mesh, "apply", nil, true))
    end)
  end

  it("in accumulation, in 16 bits, in float64, by if_finite, and on one device", function()
    assert.same(run("adamw", "float32", mesh, nil, 2), run("adamw", "float32", mesh, "apply", 2, true))
    run("muon", "bfloat16", nil, "apply", nil, true)
    run("adam", "float64", mesh, "if_finite", nil, true)
    run("lamb", "float64", nil, "apply", nil, true)
  end)

  it("outside of jit", function()
    for _, name in ipairs {"adamw", "sgd_momentum", "multi_steps"} do
      local s = state("float32")
      s.rngs, s.model.norm, s.model.drop = nil, nil, nil
      s.opt = made[name](s.model)
      local grads, no = {}, ml.tensor(false)
      for key, shape in pairs(shapes) do grads[key] = ml.full(shape, 0 / 0) end
      local before = bytes(s)
      s.opt:update(s.model, grads, {apply = no})
      assert.same(before, bytes(s))
    end
  end)

  it("wants a bool", function()
    local s = state("float32")
    local opt = optim.sgd(s.model, {lr = 1})
    helper.raises("apply is float32[]", function()
      opt:update(s.model, s.model, {apply = ml.tensor(1.0)})
    end)
    helper.raises("apply is bool[2]", function()
      optim.EMA(s.model):update(s.model, {apply = ml.ones({2}, "bool")})
    end)
  end)
end)

-- ---- its plan -------------------------------------------------------------------------------------------

local function plan_of(name, guard)
  local mesh = ml.make_mesh({8}, {"data"})
  local model = {w = nn.Param(ml.device_put(ml.ones {64, 64}, ml.NamedSharding(mesh, P("data")))),
    v = nn.Param(ml.device_put(ml.ones {64, 64}, ml.NamedSharding(mesh, P())))}
  local opt = made[name](model)
  local step = ml.jit(function(m, o, x)
    local loss, grads = ml.value_and_grad(function(n)
      return (x:matmul(n.w):matmul(n.v)):square():mean()
    end)(m)
    o:update(m, grads, guard and {apply = loss:isfinite()} or nil)
    return loss
  end)
  return step:plan(model, opt, ml.device_put(ml.ones {16, 64}, ml.NamedSharding(mesh, P("data"))))
end

describe("the plan of a guarded step", function()
  for _, name in ipairs {"adamw", "sgd", "sgd_momentum", "lion", "muon", "adagrad", "multi_steps"} do
    it("has no further buffer: " .. name, function()
      local plain, guarded = plan_of(name), plan_of(name, true)
      local a, b = plain:memory(), guarded:memory()
      -- Some scalars decide; a Param has 2 KiB on a device, or 16.
      assert.is_true(b.peak - a.peak <= 256, ("%d, %d bytes"):format(a.peak, b.peak))
      assert.is_true(b.aliased >= a.aliased)
    end)
  end

  it("updates in place, where the old values are, by a step of 0", function()
    local text = tostring(plan_of("adamw", true))
    assert.truthy(text:find("adamw : p0.* p3.* p5.* t%d+:float32%[%] t%d+:float32%[%] t%d+:float32%[%] "
      .. "%-> p0:float32%[64,64%] p3:float32%[64,64%] p5:float32%[64,64%]"), text)
    assert.falsy(text:find("where[^\n]*float32%[64,64%]"), text)
  end)
end)
