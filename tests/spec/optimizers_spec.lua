-- devices: 8
-- optimizers_spec.lua: the optimizers with names beside Adam's, what stands around them (parts of a model, every few
-- gradients, running means, LoRA), and schedules: 20 steps of optax; state lies as the Params; checkpoints go on.
local core = require "meshlua.core"
local helper = require "spec.helper"
local ml = require "meshlua"
local oracle = require "spec.oracle"

local nn, optim, schedule, P = ml.nn, ml.optim, ml.schedule, ml.P
local vectors = oracle.read "optim"
local raises = helper.raises

-- ---- schedules ----------------------------------------------------------------------------------------

local pieces = {[3] = 0.5, [7] = 0.1, [12] = 3.0}
local schedules = {
  polynomial = schedule.polynomial {init_value = 0.5, end_value = 0.1, power = 2, transition_steps = 9,
    transition_begin = 2},
  exponential = schedule.exponential {init_value = 0.3, transition_steps = 4, decay_rate = 0.5},
  exponential_stairs = schedule.exponential {init_value = 0.3, transition_steps = 3, decay_rate = 0.5,
    transition_begin = 2, staircase = true, end_value = 0.05},
  exponential_up = schedule.exponential {init_value = 0.1, transition_steps = 3, decay_rate = 1.5,
    end_value = 0.4},
  piecewise_constant = schedule.piecewise_constant {init_value = 0.4, boundaries_and_scales = pieces},
  piecewise_linear = schedule.piecewise_interpolate {interpolate_type = "linear", init_value = 0.4,
    boundaries_and_scales = pieces},
  piecewise_cosine = schedule.piecewise_interpolate {interpolate_type = "cosine", init_value = 0.4,
    boundaries_and_scales = pieces},
  cosine_onecycle = schedule.cosine_onecycle {transition_steps = 14, peak_value = 0.5},
  linear_onecycle = schedule.linear_onecycle {transition_steps = 14, peak_value = 0.5, pct_start = 0.2,
    pct_final = 0.7, div_factor = 10, final_div_factor = 100},
  inverse_sqrt = schedule.inverse_sqrt {peak_value = 0.5, warmup_steps = 4},
  wsd = schedule.wsd {peak_value = 0.5, end_value = 0.1, warmup_steps = 3, stable_steps = 5,
    decay_steps = 6},
  wsd_cosine = schedule.wsd {peak_value = 0.5, end_value = 0.1, warmup_steps = 0, stable_steps = 5,
    decay_steps = 6, decay = "cosine"},
  wsd_sqrt = schedule.wsd {peak_value = 0.5, warmup_steps = 3, stable_steps = 5, decay_steps = 6,
    decay = "sqrt"},
}

describe("schedules", function()
  for name, expected in pairs(vectors.schedules) do
    it(name .. ", of numbers and tensors", function()
      local step = ml.jit(function(count) return schedules[name](count) end)
      for i, value in ipairs(expected) do
        helper.close(value, schedules[name](i - 1), 1e-15)
        helper.close(value, step(ml.tensor(i - 1, "float64")):item(), 1e-15)
        helper.close(value, step(ml.tensor(i - 1, "int32")):item(), 1e-6)
      end
    end)
  end

  it("refuse what makes no sense", function()
    raises("decay_rate is 0", schedule.exponential, {init_value = 1, transition_steps = 1, decay_rate = 0})
    raises("power", schedule.polynomial, {init_value = 1, end_value = 0, transition_steps = 1})
    local function pieces_of(scales)
      return schedule.piecewise_constant {init_value = 1, boundaries_and_scales = scales}
    end
    raises("factors from 0 on", pieces_of, {[3] = -1})
    raises("[0.5]", pieces_of, {[0.5] = 1})
    raises("'linear' or 'cosine'", schedule.piecewise_interpolate, {init_value = 1})
    raises("timescale", schedule.inverse_sqrt, {peak_value = 1, warmup_steps = 0})
    raises("decay_steps", schedule.wsd, {peak_value = 1, warmup_steps = 0, stable_steps = 0})
    raises("did you mean 'wsd'", function() return schedule.wds end)
  end)
end)

-- ---- against optax ------------------------------------------------------------------------------------

local shapes = {b = {3}, t = {2, 3, 4}, v = {5, 3}, w = {3, 4}}
local lr = schedule.warmup_cosine {peak_value = 1e-1, warmup_steps = 4, decay_steps = 18, end_value = 1e-3}
local matrices = {b = false, t = false, v = true, w = true}
local dion = {{4.0848, -6.8946, 2.9270}, {3.9505, -6.3029, 2.6377}, {3.7418, -5.5913, 2.3037},
  {2.8769, -3.1427, 1.2046}, {2.8366, -3.0525, 1.2012}}

-- Name in the oracle -> the transformation.
local made = {
  lion = function() return optim.lion {lr = 0.01} end,
  lion_numbers = function()
    return optim.lion {lr = lr, b1 = 0.8, b2 = 0.9, weight_decay = 0.1, mask = {"t", "v", "w"}}
  end,
  rmsprop = function() return optim.rmsprop {lr = 0.01} end,
  rmsprop_centered = function()
    return optim.rmsprop {lr = lr, decay = 0.8, eps = 1e-3, centered = true, momentum = 0.9, nesterov = true}
  end,
  rmsprop_outside = function()
    return optim.rmsprop {lr = 0.01, initial_scale = 0.5, eps_in_sqrt = false, momentum = 0.5,
      bias_correction = true}
  end,
  adagrad = function() return optim.adagrad {lr = 0.1} end,
  adagrad_numbers = function() return optim.adagrad {lr = lr, initial_accumulator_value = 0, eps = 1e-3} end,
  lamb = function() return optim.lamb {lr = 0.01} end,
  lamb_numbers = function()
    return optim.lamb {lr = lr, b1 = 0.8, b2 = 0.95, eps = 1e-3, eps_root = 1e-2, weight_decay = 0.1}
  end,
  lars = function() return optim.lars {lr = 0.5, weight_decay = 0.01, nesterov = true} end,
  adafactor = function() return optim.adafactor() end,
  adafactor_factored = function() return optim.adafactor {lr = lr, min_dim_size_to_factor = 3} end,
  adafactor_numbers = function()
    return optim.adafactor {lr = 0.05, momentum = 0.9, dtype_momentum = "float64",
      multiply_by_parameter_scale = false, weight_decay = 0.01, clipping_threshold = false,
      min_dim_size_to_factor = 2, decay_rate = 0.6, eps = 1e-6}
  end,
  muon = function() return optim.muon {lr = 0.02} end,
  muon_numbers = function()
    return optim.muon {lr = lr, ns_steps = 3, ns_coeffs = {2.0, -1.5, 0.5}, beta = 0.9, nesterov = false,
      weight_decay = 0.1, consistent_rms = 0.2, adam_b1 = 0.8, adam_b2 = 0.95, adam_weight_decay = 0.2,
      adam_lr = 0.03}
  end,
  muon_dion = function() return optim.muon {lr = 0.02, ns_coeffs = dion} end,
  nesterov = function() return optim.sgd {lr = lr, momentum = 0.9, nesterov = true} end,
  ema = function() return optim.chain(optim.ema(0.9), optim.scale(-0.1)) end,
  parts = function()
    return optim.chain(optim.scale_by_lion(), optim.scale_by_rms(), optim.scale_by_rss(),
      optim.scale_by_trust_ratio {min_norm = 0.1, trust_coefficient = 0.5, eps = 1e-3},
      optim.scale_by_param_block_rms(0.3), optim.clip_by_block_rms(0.2), optim.scale(-0.5))
  end,
  masked = function() return optim.chain(optim.masked(optim.trace(0.9), matrices), optim.scale(-0.02)) end,
  multi = function()
    return optim.multi_transform({big = optim.adamw {lr = 0.01}, plain = optim.sgd {lr = 0.1, momentum = 0.5},
      frozen = optim.set_to_zero()}, {{"^b$", "plain"}, {"^t$", "frozen"}, {".", "big"}})
  end,
  multi_steps = function() return optim.MultiSteps(optim.adamw {lr = lr, clip = 1.0}, 3) end,
  multi_steps_growing = function()
    return optim.MultiSteps(optim.lion {lr = 0.05}, function(n) return (n / 2):floor() + 1 end,
      {use_grad_mean = false})
  end,
}

--- The Params of the oracle.
local function parameters(dtype)
  local model = {}
  for name, shape in pairs(shapes) do model[name] = nn.Param(oracle.ramp(shape, dtype)) end
  return model
end

--- A jitted step with the oracle's gradients.
local function stepper(dtype)
  local ramps = {}
  for name, shape in pairs(shapes) do ramps[name] = oracle.ramp({7, table.unpack(shape)}, dtype):at(4) end
  return ml.jit(function(model, opt, factor)
    local grads = {}
    for name, ramp in pairs(ramps) do grads[name] = ramp * factor + model[name] * 0.1 end
    opt:update(model, grads)
  end)
end

--- `n` steps from step `from` on.
local function train(model, opt, from, n, dtype)
  local step = stepper(dtype or "float64")
  for i = from, from + n - 1 do step(model, opt, ml.tensor(0.3 + i % 3, dtype or "float64")) end
end

describe("optimizers", function()
  for name, expected in pairs(vectors.optimizers) do
    it(name .. " is optax's", function()
      local model = parameters "float64"
      local opt = optim.Optimizer(model, made[name]())
      train(model, opt, 0, 20)
      for key, numbers in pairs(expected) do
        helper.close(numbers, model[key]:get():reshape(#numbers), 1e-9)
      end
    end)
  end

  it("take models, and Params of 16 bits", function()
    for _, name in ipairs {"lion", "rmsprop", "adagrad", "lamb", "lars", "adafactor", "muon"} do
      local model = parameters "bfloat16"
      local opt = optim[name](model, {lr = 0.1, clip = 1.0})
      train(model, opt, 0, 2, "bfloat16")
      ml.tree.visit(model, function(path, p)
        assert.equal("bfloat16", p.dtype)
        assert.is_true(p:isfinite():all():item(), name .. " " .. path)
      end)
    end
  end)

  it("muon takes stacks of matrices where it is told to", function()
    local whole = {w = nn.Param(oracle.ramp {2, 3, 4})}
    local parts = {nn.Param(oracle.ramp({2, 3, 4}):at(1)), nn.Param(oracle.ramp({2, 3, 4}):at(2))}
    local g = oracle.ramp {3, 2, 4}
    g = g:transpose(2, 1, 3)
    optim.muon(whole, {lr = 0.1, matrices = "w"}):update(whole, {w = g})
    optim.muon(parts, {lr = 0.1}):update(parts, {g:at(1), g:at(2)})
    for i = 1, 2 do helper.close(parts[i]:get(), whole.w:get():at(i), 1e-14) end
    raises("is no matrix", function()
      local model = {b = nn.Param(ml.ones {3})}
      optim.muon(model, {lr = 0.1, matrices = "b"}):update(model, {b = ml.ones {3}})
    end)
  end)

  it("wrong options are named", function()
    local model = parameters "float32"
    raises("lion: b1 is 1", optim.lion, model, {lr = 1, b1 = 1})
    raises("rmsprop: decay is 2", optim.rmsprop, model, {lr = 1, decay = 2})
    raises("it is called 'lr' here", optim.lamb, model, {learning_rate = 1})
    raises("`lr` is missing", optim.muon, model, {beta = 0.9})
    raises("ns_coeffs", optim.muon, model, {lr = 1, ns_coeffs = {1, 2}})
    raises("5 rows of ns_coeffs for 3", optim.muon, model, {lr = 1, ns_coeffs = dion, ns_steps = 3})
    raises("did you mean 'adafactor'", function() return optim.adafacto end)
  end)
end)

-- ---- parts of a model ---------------------------------------------------------------------------------

describe("what is trained", function()
  local function model()
    local enc = {w = nn.Param(ml.tensor {-0.0, 1.0}), b = nn.Param(ml.ones {2})}
    return {enc = enc, head = nn.Param(ml.ones {2})}
  end

  --- The paths of Params that two updates have changed; the others have their bits.
  local function changed(options, make)
    local m = model()
    local before = {}
    ml.tree.visit(m, function(path, p) before[path] = p:get():bytes() end)
    local opt = make and optim.Optimizer(m, make) or optim.adamw(m, options)
    local step = ml.jit(function(n, o)
      o:update(n, ml.grad(function(k) return (k.enc.w * k.head + k.enc.b):square():sum() end)(n))
    end)
    for _ = 1, 2 do step(m, opt) end
    local list = {}
    ml.tree.visit(m, function(path, p)
      if p:get():bytes() ~= before[path] then list[#list + 1] = path end
    end)
    return table.concat(list, " "), opt
  end

  it("is said in one word: a pattern, a list, a function, a tree", function()
    local list, opt = changed {lr = 0.1, freeze = "^enc"}
    assert.equal("head", list)
    assert.is_nil(opt.state.mu.enc)
    assert.equal("enc.b enc.w", (changed {lr = 0.1, only = "^enc"}))
    assert.equal("enc.b", (changed {lr = 0.1, only = "^enc", freeze = {"w$"}}))
    assert.equal("enc.b head", (changed {lr = 0.1, freeze = function(path) return path == "enc.w" end}))
    assert.equal("enc.b enc.w", (changed {lr = 0.1, freeze = {enc = false, head = true}}))
    local parts = {on = optim.sgd {lr = 0.1}, off = optim.set_to_zero()}
    assert.equal("head", (changed(nil, optim.multi_transform(parts,
      function(path) return path == "head" and "on" or "off" end))))
  end)

  it("gradients of what is frozen are not computed", function()
    local m = model()
    local opt = optim.sgd(m, {lr = 0.1, freeze = "head"})
    local step = ml.jit(function(n, o, x)
      local info = o:update(n, ml.grad(function(k) return (k.enc.w * x):sum() + (k.head:exp()):sum() end)(n))
      return info.grad_norm
    end)
    assert.is_nil(step:lower(m, opt, ml.ones {2}):as_text("plan"):find("exp", 1, true))
    helper.close(math.sqrt(2), step(m, opt, ml.ones {2}):item(), 1e-6)
  end)

  it("mistakes are named", function()
    local m = model()
    raises("the pattern 'encoder' finds no Param; there are enc.b, enc.w, head", optim.adamw, m,
      {lr = 1, freeze = "encoder"})
    raises("is no Lua pattern", optim.adamw, m, {lr = 1, freeze = "enc["})
    raises("every Param is frozen", optim.adamw, m, {lr = 1, freeze = "."})
    raises("need the model", optim.adamw, {lr = 1, freeze = "enc"})
    raises("expected true or false", optim.adamw, m, {lr = 1, only = function() end})
    local parts = {a = optim.sgd {lr = 1}, b = optim.set_to_zero()}
    raises("head is labelled nil; there are 'a', 'b'", optim.Optimizer, m,
      optim.multi_transform(parts, {{"enc", "a"}}))
    raises("is labelled c; there are 'a', 'b'", optim.multi_transform, parts, {{"enc", "c"}})
    raises("it is {pattern, label}", optim.multi_transform, parts, {"enc"})
    raises("expected a transformation", optim.multi_transform, {a = 1}, {{".", "a"}})
    raises("expected a transformation", optim.masked, optim.sgd(m, {lr = 1}), "enc")
    raises("every_k is 0", optim.MultiSteps, optim.sgd {lr = 1}, 0)
    raises("expected a transformation", optim.MultiSteps, {}, 2)
  end)
end)

-- ---- every few gradients, running means, LoRA ---------------------------------------------------------

describe("MultiSteps", function()
  it("leaves Params and state alone between, to the bit", function()
    local model = parameters "float32"
    local opt = optim.Optimizer(model, optim.MultiSteps(optim.adamw {lr = 0.1}, 3))
    local function bits()
      local list = {}
      for i, leaf in ipairs(ml.tree.leaves {model, opt.state.inner}) do list[i] = leaf:get():bytes() end
      return table.concat(list)
    end
    local before = bits()
    train(model, opt, 0, 2, "float32")
    assert.equal(before, bits())
    assert.same({2, 0}, {opt.state.mini_step:item(), opt.state.gradient_step:item()})
    train(model, opt, 2, 1, "float32")
    assert.not_equal(before, bits())
    assert.same({0, 1}, {opt.state.mini_step:item(), opt.state.gradient_step:item()})
  end)
end)

describe("EMA", function()
  it("is flax's, and a model of its own", function()
    local model = {w = nn.Param(oracle.ramp {3, 4})}
    local mean = optim.EMA(model, {decay = 0.9})
    local step = ml.jit(function(m, e, x)
      m.w:set(x + m.w * 0.5)
      e:update(m)
    end)
    for i = 1, 20 do step(model, mean, oracle.ramp({i, 3, 4}):at(i)) end
    local averaged = mean:apply_to(model)
    helper.close(vectors.ema, averaged.w:get():reshape(12), 1e-14)
    assert.not_equal(averaged.w, model.w)
    raises("decay", optim.EMA, model, {decay = -1})
    raises("another model", mean.update, mean, {w = model.w, v = nn.Param(ml.ones {1})})
  end)
end)

describe("LoRA", function()
  it("trains as its twin, leaves the rest to the bit, and merges", function()
    local layer = nn.Linear(5, 6, {rngs = nn.Rngs(0), param_dtype = "float64"})
    layer.kernel:set(oracle.ramp {5, 6})
    layer.bias:set(oracle.ramp {6})
    local before = layer.kernel:get():bytes() .. layer.bias:get():bytes()
    local x, y = oracle.ramp {8, 5}, oracle.ramp({6, 8}):T()
    local plain = layer(x)
    nn.lora(layer, {rank = 2, alpha = 4, rngs = nn.Rngs(1), param_dtype = "float64"})
    assert.equal(plain:bytes(), layer(x):bytes())
    layer.lora_a:set(oracle.ramp({2, 5}):T())
    layer.lora_b:set(oracle.ramp {2, 6} * 0.1)
    local opt = optim.adamw(layer, {lr = 0.05, only = "lora_"})
    local step = ml.jit(function(m, o)
      o:update(m, ml.grad(function(n) return nn.mse(n(x), y) end)(m))
    end)
    for _ = 1, 20 do step(layer, opt) end
    for name, numbers in pairs(vectors.lora) do
      helper.close(numbers, layer[name]:get():reshape(#numbers), 1e-9)
    end
    assert.equal(before, layer.kernel:get():bytes() .. layer.bias:get():bytes())
    local unmerged = layer(x)
    nn.merge_lora(layer)
    assert.is_nil(layer.lora_a)
    helper.close(unmerged, layer(x), 1e-14)
  end)

  it("of heads, by path, on a mesh: it lies as the kernel, and what was saved fits", function()
    local mesh = ml.make_mesh({4, 2}, {"data", "model"})
    local model = ml.init(function(rngs)
      return {attn = nn.MultiHeadAttention(16, 4, {rngs = rngs, axes = {"x", "y"}}),
        mlp = nn.Linear(16, 8, {rngs = rngs, axes = {"x", "y"}, dtype = "bfloat16"})}
    end, {mesh = mesh, rules = {{"x", "data"}, {"y", "model"}}})
    local x = ml.random.normal(ml.random.key(0), {2, 8, 16})
    nn.lora(model, {rank = 2, rngs = nn.Rngs(1), only = {"attn", "mlp"},
      b_init = nn.initializers.normal(0.1)})
    local function at(...) return ml.NamedSharding(mesh, P(...)) end
    assert.same({{16, 2}, {2, 4, 4}, {4, 4, 2}, {2, 16}}, {model.attn.query.lora_a.shape,
      model.attn.query.lora_b.shape, model.attn.out.lora_a.shape, model.attn.out.lora_b.shape})
    assert.equal(at "data", model.attn.query.lora_a.sharding)
    assert.equal(at(nil, "model"), model.attn.query.lora_b.sharding)
    assert.equal("bfloat16", model.mlp(x).dtype)
    local before, sharding = model.attn(x), model.attn.query.kernel.sharding
    nn.merge_lora(model)
    assert.equal(sharding, model.attn.query.kernel.sharding)
    helper.close(before, model.attn(x), 1e-5)
    raises("the pattern 'head' finds no Linear", nn.lora, model, {rank = 2, rngs = nn.Rngs(1), only = "head"})
    raises("no Linear", nn.lora, {nn.relu}, {rank = 2, rngs = nn.Rngs(1)})
    raises("the rank", nn.lora, model, {rngs = nn.Rngs(1)})
    raises("it is at least 1", nn.lora, model, {rank = 0, rngs = nn.Rngs(1)})
  end)
end)

-- ---- on a mesh, and on the disk -----------------------------------------------------------------------

local axes = {b = {"y"}, t = {false, "x", "y"}, v = {false, false}, w = {"x", "y"}}
local rules = {{"x", "model"}, {"y", "data"}}

--- Params whose dims the mesh divides, and an optimizer.
local function on_mesh(mesh, name)
  local model = ml.init(function()
    local m = {}
    for key, shape in pairs {b = {8}, t = {2, 4, 8}, v = {5, 3}, w = {4, 8}} do
      m[key] = nn.Param(oracle.ramp(shape), {axes = axes[key]})
    end
    return m
  end, {mesh = mesh, rules = rules})
  local opt = optim.Optimizer(model, made[name]())
  local step = ml.jit(function(m, o)
    o:update(m, ml.grad(function(n)
      return ml.tree.leaves(ml.tree.map(function(p) return (p * 1.5 + 0.1):square():sum() end, n))[1]
        + n.t:sin():sum() + n.v:sin():sum() + (n.w:T():matmul(n.w)):sin():sum()
    end)(m))
  end)
  return model, opt, step
end

describe("optimizers on a mesh", function()
  local mesh = ml.make_mesh({4, 2}, {"data", "model"})
  for _, name in ipairs {"lion", "rmsprop_centered", "lamb_numbers", "adafactor_numbers", "muon_numbers",
    "multi", "multi_steps"} do
    it(name .. " does as on one device", function()
      local one, opt_one, step_one = on_mesh(nil, name)
      local many, opt_many, step_many = on_mesh(mesh, name)
      for _ = 1, 4 do
        step_one(one, opt_one)
        step_many(many, opt_many)
      end
      for key, p in pairs(many) do helper.close(one[key]:get(), p:get(), 1e-12) end
      for _, leaf in ipairs(ml.tree.leaves(opt_many.state)) do assert.equal(mesh, leaf.sharding.mesh) end
    end)
  end

  it("state lies as its Param; rows and columns as its dims", function()
    local model, opt = on_mesh(mesh, "lion")
    for key, p in pairs(model) do assert.equal(p.sharding, opt.state[1].mu[key].sharding) end
    model, opt = on_mesh(mesh, "adafactor_numbers")
    local state = opt.state[1]
    local function at(...) return ml.NamedSharding(mesh, P(...)) end
    assert.equal(model.b.sharding, state.v.b.sharding)
    assert.equal(at "model", state.v_row.w.sharding)
    assert.equal(at "data", state.v_col.w.sharding)
    assert.same({{2, 4}, {2, 8}}, {state.v_row.t.shape, state.v_col.t.shape})
    assert.equal(at(nil, "model"), state.v_row.t.sharding)
    assert.equal(at(nil, "data"), state.v_col.t.sharding)
  end)
end)

describe("checkpoints", function()
  it("of every optimizer, and of running means, go on as if nothing had been", function()
    local folder = os.tmpname()
    os.remove(folder)
    local manager = assert(ml.checkpoint.Manager(folder, {async = false}))
    local models, others, kept = {}, {}, {}
    for name, make in pairs(made) do
      local function new()
        local model = parameters "float64"
        return {model = model, opt = optim.Optimizer(model, make()), mean = optim.EMA(model, {decay = 0.5})}
      end
      models[name], others[name] = new(), new()
      train(models[name].model, models[name].opt, 0, 2)
      models[name].mean:update(models[name].model)
    end
    assert(manager:save(1, {all = models}))
    assert(manager:restore {all = others})
    manager:close()
    core.disk_task {{"remove", folder}}:wait()
    for name in pairs(made) do
      for _, one in ipairs {models[name], others[name]} do
        train(one.model, one.opt, 2, 2)
        one.mean:update(one.model)
      end
      for i, leaf in ipairs(ml.tree.leaves(models[name])) do
        assert.equal(leaf:get():bytes(), ml.tree.leaves(others[name])[i]:get():bytes(), name)
      end
      kept[#kept + 1] = name
    end
    assert.is_true(#kept > 20)
  end)
end)
