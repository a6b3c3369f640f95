-- devices: 8
-- optim_spec.lua: schedules and optimizers are optax's; state lies as the Params do; what goes wrong is named.
local ml = require "meshlua"
local helper = require "spec.helper"
local oracle = require "spec.oracle"

local nn, optim, schedule, P = ml.nn, ml.optim, ml.schedule, ml.P
local vectors = oracle.read "nn"

local schedules = {
  constant = schedule.constant(0.25),
  linear = schedule.linear {init_value = 0.5, end_value = 0.1, transition_steps = 7},
  linear_late = schedule.linear {init_value = 0.0, end_value = 2.0, transition_steps = 5,
    transition_begin = 3},
  cosine = schedule.cosine {init_value = 0.3, decay_steps = 9},
  cosine_alpha = schedule.cosine {init_value = 0.3, decay_steps = 9, alpha = 0.1, exponent = 2.0},
  warmup_cosine = schedule.warmup_cosine {peak_value = 1e-3, warmup_steps = 4, decay_steps = 12,
    end_value = 1e-4},
  warmup_cosine_from = schedule.warmup_cosine {init_value = 1e-4, peak_value = 1e-3, warmup_steps = 3,
    decay_steps = 10},
  join = schedule.join({schedule.constant(1.0),
    schedule.linear {init_value = 2.0, end_value = 0.0, transition_steps = 4}}, {5}),
}

describe("schedules", function()
  for name, expected in pairs(vectors.schedules) do
    it(name .. ", of numbers", function()
      for i, value in ipairs(expected) do helper.close(value, schedules[name](i - 1), 1e-15) end
    end)
    it(name .. ", of tensors", function()
      local step = ml.jit(function(count) return schedules[name](count) end)
      for i, value in ipairs(expected) do
        local wide, narrow = step(ml.tensor(i - 1, "float64")), step(ml.tensor(i - 1, "int32"))
        local function number(x) return type(x) == "number" and x or x:item() end
        helper.close(value, number(wide), 1e-15)
        helper.close(value, number(narrow), 1e-7)
      end
    end)
  end

  it("refuse what makes no sense", function()
    helper.raises("init_value", schedule.linear, {end_value = 1, transition_steps = 3})
    helper.raises("decay_steps", schedule.cosine, {init_value = 1, decay_steps = 0})
    helper.raises("E_VALUE", schedule.warmup_cosine, {peak_value = 1, warmup_steps = 5, decay_steps = 5})
    helper.raises("did you mean 'warmup_steps'", schedule.warmup_cosine, {warmup_step = 5})
    helper.raises("E_VALUE", schedule.join, {schedule.constant(1)}, {3})
    helper.raises("E_VALUE", schedule.constant, "1")
  end)
end)

-- ---- against optax ------------------------------------------------------------------------------------

--- The model of the oracle, {b = [3], w = [3, 4]}.
local function parameters(dtype)
  return {b = nn.Param(oracle.ramp({3}, dtype)), w = nn.Param(oracle.ramp({3, 4}, dtype) * 0.5)}
end

--- Its gradients at a step.
local function gradients(step, dtype)
  local scale = 0.3 + step % 3
  return {b = oracle.ramp({5}, dtype):slice {1, 3} * scale, w = oracle.ramp({4, 3}, dtype):T() * scale}
end

local lr = schedule.warmup_cosine {peak_value = 1e-1, warmup_steps = 2, decay_steps = 6, end_value = 1e-3}
local mask = {b = false, w = true}

local optimizers = {
  sgd = function(m) return optim.sgd(m, {lr = 0.1}) end,
  momentum = function(m) return optim.sgd(m, {lr = 0.1, momentum = 0.9}) end,
  nesterov = function(m) return optim.sgd(m, {lr = lr, momentum = 0.9, nesterov = true}) end,
  adam = function(m) return optim.adam(m, {lr = 0.1}) end,
  adam_numbers = function(m)
    return optim.adam(m, {lr = lr, b1 = 0.8, b2 = 0.95, eps = 1e-3, eps_root = 1e-2})
  end,
  nadam = function(m) return optim.adam(m, {lr = 0.1, nesterov = true}) end,
  adamw = function(m) return optim.adamw(m, {lr = 0.1}) end,
  adamw_mask = function(m) return optim.adamw(m, {lr = lr, weight_decay = 0.3, mask = mask}) end,
  adamw_clip = function(m)
    return optim.adamw(m, {lr = lr, b2 = 0.99, weight_decay = 0.3, mask = "matrices", clip = 1.0})
  end,
  parts = function(m)
    return optim.Optimizer(m, optim.chain(optim.clip(0.5), optim.clip_by_global_norm(1.5), optim.trace(0.5),
      optim.add_decayed_weights(0.1), optim.scale_by_schedule(function(count) return 1 / (count + 1) end),
      optim.scale(-0.2)))
  end,
}

-- The same as chains of transformations, without the native op.
local chains = {
  adam = function() return optim.chain(optim.scale_by_adam(), optim.scale_by_learning_rate(0.1)) end,
  adamw = function() return optim.chain(optim.adamw {lr = 0.1}) end,
  adamw_mask = function() return optim.chain(optim.adamw {lr = lr, weight_decay = 0.3, mask = mask}) end,
  adamw_clip = function()
    return optim.chain(optim.clip_by_global_norm(1.0), optim.scale_by_adam {b2 = 0.99},
      optim.add_decayed_weights(0.3, function(path) return path == "w" end), optim.scale_by_learning_rate(lr))
  end,
}

--- Six updates; checks the norms and the Params at the end.
local function check(name, make, dtype, jitted)
  local expected, tolerance = vectors.optimizers[name], dtype == "float64" and 1e-13 or 2e-6
  local model = parameters(dtype)
  local opt = make(model)
  local step = function(m, o, g) return o:update(m, g).grad_norm end
  if jitted then step = ml.jit(step) end
  for i = 1, 6 do
    helper.close(expected.norms[i], step(model, opt, gradients(i - 1, dtype)):item(), tolerance)
  end
  helper.close(expected.b, model.b:get(), tolerance)
  helper.close(expected.w, model.w:get(), tolerance)
  assert.equal(6, opt.count:item())
end

describe("optimizers", function()
  for name in pairs(vectors.optimizers) do
    for _, dtype in ipairs {"float64", "float32"} do
      it(name .. " in " .. dtype .. " is optax's", function()
        check(name, optimizers[name], dtype, false)
        check(name, optimizers[name], dtype, true)
      end)
      if chains[name] then
        it(name .. " in " .. dtype .. " as a chain", function()
          check(name, function(m) return optim.Optimizer(m, chains[name]()) end, dtype, true)
        end)
      end
    end
  end

  it("clip leaves small gradients alone and scales large ones to the norm", function()
    for norm, factor in pairs {[0.5] = 1.0, [5.0] = 0.2} do
      local model = {w = nn.Param(ml.zeros {2})}
      local opt = optim.sgd(model, {lr = 1.0, clip = 1.0})
      local info = opt:update(model, {w = ml.tensor {0.6 * norm, 0.8 * norm}})
      helper.close(norm, info.grad_norm:item(), 1e-6)
      helper.close({-0.6 * norm * factor, -0.8 * norm * factor}, model.w:get(), 1e-6)
    end
  end)

  it("a gradient of zeros is clipped to zeros, not to NaN", function()
    local model = {w = nn.Param(ml.ones {2})}
    optim.sgd(model, {lr = 1.0, clip = 1.0}):update(model, {w = ml.zeros {2}})
    assert.same({1, 1}, model.w:get():totable())
  end)

  it("global_norm of a tree with 16-bit leaves", function()
    local tree = {a = ml.full({300}, 3.0, "float16"), b = {ml.full({4}, 2.0, "float64")}}
    helper.close(math.sqrt(300 * 9 + 16), optim.global_norm(tree):item(), 1e-12)
    helper.raises("E_VALUE", optim.global_norm, {})
  end)

  it("16-bit Params keep their dtype; mu may be wider", function()
    local model = {w = nn.Param(ml.ones({4}, "bfloat16"))}
    local opt = optim.adamw(model, {lr = 0.1, mu_dtype = "float32"})
    opt:update(model, {w = ml.ones({4}, "bfloat16")})
    assert.equal("bfloat16", model.w.dtype)
    assert.equal("float32", opt.state.mu.w.dtype)
    assert.equal("bfloat16", opt.state.nu.w.dtype)
    helper.close({0.9, 0.9, 0.9, 0.9}, model.w:get():astype "float32", 2 ^ -7)
  end)

  it("only Params of kind param are trained, a shared one once", function()
    local shared = nn.Param(ml.ones {2})
    local model = {a = {w = shared}, b = {w = shared}, mean = nn.Param(ml.ones {2}, {kind = "batch_stat"})}
    local opt = optim.sgd(model, {lr = 0.5, momentum = 0.5})
    local grads = ml.grad(function(m) return (m.a.w * 3 + m.b.w + m.mean):sum() end)(model)
    assert.is_nil(grads.mean)
    opt:update(model, grads)
    assert.same({-1, -1}, shared:get():totable())
    assert.same({1, 1}, model.mean:get():totable())
    assert.equal(opt.state[1].trace.a.w, opt.state[1].trace.b.w)
  end)

  it("masks: by function with the path, by a tree that stops early, by role", function()
    local model = {h = {up = {kernel = nn.Param(ml.ones {2, 2}, {role = "kernel"}),
      bias = nn.Param(ml.ones {2, 2}, {role = "bias"})}}, out = nn.Param(ml.ones {2, 2})}
    local function decayed(mask_given)
      local found = {}
      for path, box in pairs {["h.up.kernel"] = model.h.up.kernel, ["h.up.bias"] = model.h.up.bias,
          out = model.out} do
        box:set(ml.ones {2, 2})
        found[path] = box
      end
      local opt = optim.adamw(model, {lr = 1.0, weight_decay = 0.5, mask = mask_given})
      opt:update(model, ml.tree.map(function(t) return t * 0 end, ml.state(model)))
      for path, box in pairs(found) do found[path] = box:slice(1, 1):item() < 1 end
      return found
    end
    assert.same({["h.up.kernel"] = true, ["h.up.bias"] = false, out = true}, decayed "matrices")
    assert.same({["h.up.kernel"] = false, ["h.up.bias"] = false, out = true},
      decayed {h = false, out = true})
    assert.same({["h.up.kernel"] = false, ["h.up.bias"] = true, out = false},
      decayed(function(path, param) return path:find "bias$" ~= nil and param.ndim == 2 end))
    helper.raises("h.up.bias", decayed, {h = {up = {kernel = true}}, out = true})
    helper.raises("E_VALUE", decayed, "biases")
  end)

  it("wrong gradients, options and arguments are named", function()
    local model = parameters "float32"
    local opt = optim.adamw(model, {lr = 0.1})
    local good = gradients(0, "float32")
    helper.raises("there is none for w", opt.update, opt, model, {b = good.b})
    helper.raises("no parameter at c", opt.update, opt, model, {b = good.b, w = good.w, c = good.b})
    helper.raises("E_SHAPE", opt.update, opt, model, {b = good.b, w = good.w:T()})
    helper.raises("E_VALUE", opt.update, opt, model, 3)
    helper.raises("another model", opt.update, opt, {b = model.b}, {b = good.b})
    helper.raises("`lr` is missing", optim.adamw, model, {})
    helper.raises("did you mean 'weight_decay'", optim.adamw, model, {lr = 1, weight_decays = 1})
    helper.raises("E_VALUE", optim.adamw, model, {lr = "fast"})
    helper.raises("b1", optim.adamw, model, {lr = 1, b1 = 1.0})
    helper.raises("weight_decay", optim.adamw, model, {lr = 1, weight_decay = -1})
    helper.raises("no Param", optim.sgd, {}, {lr = 1})
    helper.raises("not a transformation", optim.chain, opt)
    helper.raises("E_VALUE", optim.Optimizer, model, 0.1)
  end)
end)

-- ---- on a mesh ----------------------------------------------------------------------------------------

describe("optimizers on a mesh", function()
  local rules = {{"batch", "data"}, {"embed", false}, {"hidden", "model"}}

  local function made(mesh, options)
    return ml.init(function(rngs)
      options = options or {}
      local function linear(n_in, n_out, axes)
        return nn.Linear(n_in, n_out, {rngs = rngs, axes = axes})
      end
      return nn.Sequential {linear(8, 16, {"embed", "hidden"}), nn.relu, linear(16, 8, {"hidden", "embed"})}
    end, {mesh = mesh, rules = rules})
  end

  it("L3: state is born in the sharding of its Param, and stays there", function()
    local mesh = ml.make_mesh({4, 2}, {"data", "model"})
    local model = made(mesh)
    local opt = optim.adamw(model, {lr = 0.1, clip = 1.0})
    local step = ml.jit(function(m, o, x)
      local _, grads = ml.value_and_grad(function(n) return n(x:constrain {"batch", "embed"}):sum() end)(m)
      o:update(m, grads)
    end, {mesh = mesh, rules = rules})
    local function same()
      for _, moment in ipairs {"mu", "nu"} do
        for i = 1, 3, 2 do
          for _, name in ipairs {"kernel", "bias"} do
            assert.equal(model[i][name].sharding, opt.state[moment][i][name].sharding)
          end
        end
      end
      assert.equal(ml.NamedSharding(mesh, P(nil, "model")), opt.state.mu[1].kernel.sharding)
      assert.equal(ml.NamedSharding(mesh, P()), opt.count.sharding)
    end
    same()
    step(model, opt, ml.ones {8, 8})
    step(model, opt, ml.ones {8, 8})
    same()
    local hits, traced = step:stats()
    assert.same({1, 1}, {hits, traced})
  end)

  it("L3: opt_axes put the state elsewhere than the Param", function()
    local mesh = ml.make_mesh({8}, {"data"})
    local model = ml.init(function(rngs)
      local w = ml.random.normal(rngs.params(), {16, 4})
      return {w = nn.Param(w, {axes = {"a", "b"}, opt_axes = {"z", "b"}})}
    end, {mesh = mesh, rules = {{"a", false}, {"b", false}, {"z", "data"}}})
    local opt = optim.adam(model, {lr = 0.1})
    local function check_shardings()
      assert.equal(ml.NamedSharding(mesh, P()), model.w.sharding)
      assert.equal(ml.NamedSharding(mesh, P("data")), opt.state.mu.w.sharding)
    end
    check_shardings()
    local step = ml.jit(function(m, o, x)
      o:update(m, ml.grad(function(n) return (n.w * x):sum() end)(m))
    end)
    local before = model.w:get()
    step(model, opt, ml.ones {16, 4})
    check_shardings()
    helper.close(before - 0.1, model.w:get(), 1e-6)
  end)

  it("L3: an {opt = rule} puts the state elsewhere: gradients are scattered, Params gathered", function()
    local mesh = ml.make_mesh({8}, {"data"})
    local zero = {{opt = ml.shard_largest "data"}, {"a", false}, {"b", false}}
    local function run(list)
      local model = ml.init(function(rngs)
        return {w = nn.Param(ml.random.normal(rngs.params(), {16, 4}), {axes = {"a", "b"}})}
      end, {mesh = mesh, rules = list})
      local opt = optim.adam(model, {lr = 0.1})
      local x = ml.device_put(ml.random.normal(ml.random.key(1), {8, 16}), ml.NamedSharding(mesh, P "data"))
      local step = ml.jit(function(m, o, v)
        o:update(m, ml.grad(function(n) return (v:matmul(n.w) ^ 2):sum() end)(m))
      end)
      local ops = {}
      for i, c in ipairs(step:plan(model, opt, x):collectives()) do ops[i] = c.op end
      for _ = 1, 3 do step(model, opt, x) end
      return model.w, opt, table.concat(ops, " ")
    end
    local w, opt, ops = run(zero)
    assert.equal(ml.NamedSharding(mesh, P()), w.sharding)
    assert.equal(ml.NamedSharding(mesh, P "data"), opt.state.mu.w.sharding)
    assert.equal("reduce_scatter all_gather", ops:gsub("all_reduce ", ""))
    helper.close(run {{"a", false}, {"b", false}}:get(), w:get(), 1e-6)
  end)

  it("master weights: Params of 16 bits follow a float32 copy", function()
    local function trained(dtype, master)
      local model = {w = nn.Param(ml.ones({4}):astype(dtype))}
      local opt = optim.adamw(model, {lr = 1e-3, weight_decay = 0.0, master = master})
      local step = ml.jit(function(m, o)
        o:update(m, ml.grad(function(n) return n.w:astype "float32":sum() end)(m))
      end)
      for _ = 1, 3 do step(model, opt) end
      return model, opt
    end
    local exact = trained "float32"
    local model, opt = trained("bfloat16", true)
    assert.equal("bfloat16", model.w.dtype)
    assert.same({"float32", "float32", "float32"},
      {opt.state.master.w.dtype, opt.state.mu.w.dtype, opt.state.nu.w.dtype})
    helper.close(exact.w:get(), opt.state.master.w:get(), 1e-7)
    assert.same(opt.state.master.w:get():astype "bfloat16":totable(), model.w:get():totable())
    -- Without them three steps of 0.001 are lost in a bfloat16 near 1.
    assert.same({1.0, 1.0, 1.0, 1.0}, (trained "bfloat16").w:get():totable())
    helper.raises("not a part of a chain", function()
      local chained = optim.Optimizer(model, optim.chain(optim.adamw {lr = 1e-3, master = true}))
      chained:update(model, {w = ml.ones({4}):astype "bfloat16"})
    end)
    helper.raises("do not go together", optim.adam, model, {lr = 1e-3, master = true, nesterov = true})
  end)

  it("the norm over sharded gradients is one scalar per set of axes, and right", function()
    local mesh = ml.make_mesh({4, 2}, {"data", "model"})
    local model = made(mesh)
    local grads = ml.tree.map(function(t) return t * 2 end, ml.state(model))
    local norm = ml.jit(function(g) return optim.global_norm(g) end)
    local sum = 0
    for _, leaf in ipairs((ml.tree.leaves(grads))) do sum = sum + (leaf ^ 2):sum():item() end
    helper.close(math.sqrt(sum), norm(grads):item(), 1e-6)
    local found = norm:plan(grads):collectives()
    assert.equal(1, #found)
    assert.same({"all_reduce", {"model"}, 4}, {found[1].op, found[1].axes, math.tointeger(found[1].bytes)})
  end)
end)
