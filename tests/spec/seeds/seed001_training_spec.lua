-- devices: 8
-- The guide "Distributed Training", training: data parallelism over a mesh, what it sends and when, and the
-- memory of a step.
local helper = require "spec.helper"
local json = require "dkjson" -- comes with busted
local ml = require "meshlua"
local twin = require "spec.seeds.twin"
local VAE = require "spec.seeds.vae"
local P, NamedSharding, nn, optim, random = ml.P, ml.NamedSharding, ml.nn, ml.optim, ml.random

local mesh = ml.Mesh({0, 1, 2, 3}, {"data"})
local config = {input_dim = 64, hidden_dim = 32, latent_dim = 8}

local function create_vae_model(options) return VAE(options or config, nn.Rngs(0)) end

local function new_batch(rows, seed)
  local keys = random.keys(random.key(seed or 1), 2)
  return {data = random.uniform(keys[1], {rows, config.input_dim}),
    noise = random.normal(keys[2], {rows, config.latent_dim})}
end

local function on_mesh(batch) return ml.device_put(batch, NamedSharding(mesh, P("data"))) end
local function replicated(model) return ml.device_put(model, NamedSharding(mesh, P())) end

--- Bytes of all parameters, as every device of a data-parallel run holds them.
local function bytes_of(model)
  local bytes = 0
  ml.tree.visit(model, function(_, param) bytes = bytes + 4 * param.size end)
  return bytes
end

local function loss_and_grads(model, batch)
  return ml.value_and_grad(function(m) return m(batch).loss end)(model)
end

local function new_step()
  return ml.jit(function(model, optimizer, batch)
    local loss, grads = loss_and_grads(model, batch)
    optimizer:update(model, grads)
    return loss
  end)
end

describe("data parallelism", function()
  it("001 L176: over a mesh sends the gradients and the loss, nothing else", function()
    local images = {data = ml.ones {32, 8, 8, 1}, labels = ml.ones {32}}
    helper.raises("labels: P(\"data\", nil, nil, nil) has 4 entries but the tensor has rank 1",
      ml.device_put, images, NamedSharding(mesh, P("data", nil, nil, nil)))

    local model, alone = replicated(create_vae_model()), create_vae_model()
    local optimizer, one = optim.adam(model, {lr = 1e-3}), optim.adam(alone, {lr = 1e-3})
    local train_step, first, last = new_step(), nil, nil
    for step = 1, 5 do -- for batch in dataloader
      local batch = new_batch(32, step)
      last = train_step(model, optimizer, on_mesh(batch)):item()
      first = first or last
      helper.close(train_step(alone, one, batch):item(), last, 1e-5)
    end
    assert.is_true(last < first)
    assert.same({["all_reduce over data"] = bytes_of(model) + 4},
      twin.traffic(train_step:plan(model, optimizer, on_mesh(new_batch(32)))))
    -- The optimizer cannot hide in the step, as it does in the guide.
    local hidden = ml.jit(function(m, batch)
      local loss, grads = loss_and_grads(m, batch)
      optimizer:update(m, grads)
      return loss
    end)
    helper.raises("[E_STATE]", hidden, model, on_mesh(new_batch(32)))
  end)

  it("001 L232: gradients are averaged without a word", function()
    local step, model, batch = ml.jit(loss_and_grads), create_vae_model(), new_batch(32)
    local loss, grads = step(model, batch)
    local mesh_loss, mesh_grads = step(replicated(model), on_mesh(batch))
    helper.close(loss:item(), mesh_loss:item(), 1e-6)
    local wanted = ml.tree.leaves(grads)
    for i, grad in ipairs(ml.tree.leaves(mesh_grads)) do helper.close(wanted[i], grad, 1e-6) end
  end)

  helper.on_processors("virtual devices of one GPU send nothing",
    "001 L778: gradients are on their way before the backward pass ends", function()
    local LAYERS, WIDTH, data = 6, 1024, random.normal(random.key(3), {16, 1024})
    local function new_model()
      local rngs, layers = nn.Rngs(0), {}
      for i = 1, LAYERS do layers[i] = nn.Linear(WIDTH, WIDTH, {rngs = rngs, use_bias = false}) end
      return nn.Sequential(layers)
    end
    local optimized_train_step = ml.jit(function(model, optimizer, batch)
      local loss, grads = ml.value_and_grad(function(m) return ml.tanh(m(batch)):mean() end)(model)
      optimizer:update(model, grads)
      return loss
    end)
    local model, alone = replicated(new_model()), new_model()
    local optimizer, one = optim.adam(model, {lr = 1e-4}), optim.adam(alone, {lr = 1e-4})
    local plan = optimized_train_step:plan(model, optimizer, on_mesh(data))
    local first_reduce, last_matmul, reduces = nil, nil, 0
    for i, step in ipairs(plan:steps()) do
      if step.op == "matmul" then last_matmul = i end
      if step.op == "all_reduce" and step.bytes > 4 then
        first_reduce, reduces = first_reduce or i, reduces + 1
      end
    end
    assert.is_true(first_reduce < last_matmul)
    assert.is_true(reduces > 1) -- not all of them in one, at the end
    assert.same({["all_reduce over data"] = LAYERS * WIDTH * WIDTH * 4 + 4}, twin.traffic(plan))
    for _ = 1, 2 do
      local loss = optimized_train_step(model, optimizer, on_mesh(data))
      helper.close(optimized_train_step(alone, one, data):item(), loss:item(), 1e-5)
    end
  end)
end)

describe("gradient accumulation", function()
  -- Microbatch i has the rows i, i + n, i + 2n, ...: some of every device's.
  local train_step_with_accumulation = ml.jit(function(model, batch, num_microbatches)
    local accumulated_grads = ml.tree.map(ml.zeros_like, ml.state(model))
    local total_loss = 0.0
    local parts = ml.tree.map(function(x)
      return x:reshape(x.shape[1] // num_microbatches, num_microbatches, x.shape[2])
    end, batch)
    for i = 1, num_microbatches do
      local microbatch = ml.tree.map(function(x) return x:slice(nil, i) end, parts)
      local loss, grads = loss_and_grads(model, microbatch)
      accumulated_grads = ml.tree.map(function(acc, g) return acc + g / num_microbatches end,
        accumulated_grads, grads)
      total_loss = total_loss + loss / num_microbatches
    end
    return total_loss, accumulated_grads
  end, {static = {"num_microbatches"}})

  it("001 L806: four microbatches make one gradient, and one reduction", function()
    local BATCH = 32
    local model, batch = create_vae_model(), new_batch(BATCH)
    local loss, grads = ml.jit(loss_and_grads)(model, batch)
    replicated(model)
    local sharded = on_mesh(batch)
    local total_loss, accumulated = train_step_with_accumulation(model, sharded, 4)
    helper.close(loss:item(), total_loss:item(), 1e-6)
    local wanted = ml.tree.leaves(grads)
    for i, grad in ipairs(ml.tree.leaves(accumulated)) do helper.close(wanted[i], grad, 1e-6) end
    assert.same({["all_reduce over data"] = bytes_of(model) + 4},
      twin.traffic(train_step_with_accumulation:plan(model, sharded, 4)))
    -- The effective batch is what comes in, 32 rows, not 32 * 4: half of it gives another gradient.
    assert.equal(BATCH, sharded.data.shape[1])
    local half = ml.tree.map(function(x) return x:slice {1, BATCH // 2} end, batch)
    assert.truthy(helper.difference(loss:item(), select(1, loss_and_grads(model, half)):item(), 1e-6))
    helper.raises("name that in `static`", ml.jit(function(x, num_microbatches)
      return x:reshape(x.shape[1] // num_microbatches, num_microbatches, x.shape[2])
    end), batch.data, 4) -- a traced number does not say how many
  end)

  -- The same as a loop of the plan: its body stands there once, whatever the number.
  local looped = ml.jit(function(model, batch, num_microbatches)
    local parts = ml.tree.map(function(x)
      return x:reshape(x.shape[1] // num_microbatches, num_microbatches, x.shape[2]):transpose(2, 1, 3)
    end, batch)
    local zero = {loss = 0.0, grads = ml.tree.map(ml.zeros_like, ml.state(model))}
    local sum = ml.scan(function(carry, microbatch)
      local loss, grads = loss_and_grads(model, microbatch)
      return {loss = carry.loss + loss / num_microbatches,
        grads = ml.tree.map(function(acc, g) return acc + g / num_microbatches end, carry.grads, grads)}
    end, zero, parts)
    return sum.loss, sum.grads
  end, {static = {"num_microbatches"}})

  it("001 L806: as a loop it does the same, and reduces behind the loop", function()
    local model, batch = create_vae_model(), new_batch(32)
    local loss, grads = ml.jit(loss_and_grads)(model, batch)
    replicated(model)
    local sharded = on_mesh(batch)
    local total_loss, accumulated = looped(model, sharded, 4)
    helper.close(loss:item(), total_loss:item(), 1e-6)
    local wanted = ml.tree.leaves(grads)
    for i, grad in ipairs(ml.tree.leaves(accumulated)) do helper.close(wanted[i], grad, 1e-6) end
    local plan = looped:plan(model, sharded, 4)
    assert.same({["all_reduce over data"] = bytes_of(model) + 4}, twin.traffic(plan))
    assert.equal(#plan:steps(), #looped:plan(model, sharded, 8):steps())
    for _, c in ipairs(plan:collectives()) do assert.equal(1, c.times) end -- not for each microbatch
  end)

  it("001 L915: eight microbatches need less memory", function()
    local model, batch = replicated(create_vae_model()), on_mesh(new_batch(4096))
    local whole = train_step_with_accumulation:plan(model, batch, 1):memory()
    local eighths = train_step_with_accumulation:plan(model, batch, 8):memory()
    assert.is_true(eighths.temporaries < whole.temporaries / 2)
    helper.close(train_step_with_accumulation(model, batch, 1):item(),
      train_step_with_accumulation(model, batch, 8):item(), 1e-6)
  end)
end)

describe("mixed precision", function()
  --- The dtypes that matrix products of a plan read.
  local function product_dtypes(plan)
    local seen = {}
    for _, step in ipairs(plan:steps()) do
      if step.op == "matmul" then
        for _, operand in ipairs(step.inputs) do seen[operand.dtype] = true end
      end
    end
    return seen
  end

  it("001 L866: casting the inputs is not enough; the layers' dtype is", function()
    local batch, types = new_batch(32), nil
    local function cast(x) return x.dtype == "float32" and x:astype "bfloat16" or x end
    local mixed_precision_train_step = ml.jit(function(model, inputs)
      local batch_bf16 = ml.tree.map(cast, inputs)
      types = {data = ml.typeof(batch_bf16.data), hidden = ml.typeof(model.encoder(batch_bf16.data))}
      return loss_and_grads(model, batch_bf16)
    end)
    local as_written = create_vae_model()
    local plan = mixed_precision_train_step:plan(as_written, batch)
    assert.same({data = "bfloat16[32,64]", hidden = "float32[32,32]"}, types)
    assert.is_nil(product_dtypes(plan).bfloat16)

    local policy = create_vae_model {input_dim = 64, hidden_dim = 32, latent_dim = 8, dtype = "bfloat16"}
    local bf16_plan = mixed_precision_train_step:plan(policy, batch)
    assert.equal("bfloat16[32,32]", types.hidden)
    assert.same({bfloat16 = true}, product_dtypes(bf16_plan))
    local loss, grads = mixed_precision_train_step(policy, batch)
    ml.tree.visit({grads, policy}, function(path, leaf) assert.equal("float32", leaf.dtype, path) end)
    local exact = create_vae_model()(batch).loss:item()
    helper.close(1, loss:item() / exact, 1e-2)
    assert.not_equal(exact, loss:item())
  end)
end)

describe("memory of a device", function()
  it("001 L909: falls with the degree of tensor parallelism", function()
    local function held(mesh_shape)
      local grid = ml.make_mesh(mesh_shape, {"data", "model"})
      local model = ml.init(function(rngs)
        return nn.Linear(64, 256, {rngs = rngs, axes = P(nil, "model")})
      end, {mesh = grid})
      local step = ml.jit(function(m, opt, x)
        opt:update(m, (ml.grad(function(layer) return (layer(x) ^ 2):mean() end)(m)))
      end)
      local x = ml.device_put(ml.ones {16, 64}, NamedSharding(grid, P("data", nil)))
      return step:plan(model, optim.adam(model, {lr = 1e-3}), x):memory().arguments
    end
    local params = 4 * (64 * 256 + 256) -- bytes; Adam holds as much twice more
    local function wanted(data, tensor_parallel_size)
      return 3 * params // tensor_parallel_size + 4 + 16 // data * 64 * 4
    end
    assert.equal(wanted(4, 2), held {4, 2})
    assert.equal(wanted(2, 4), held {2, 4})
  end)
end)

describe("slow training", function()
  it("001 L929: a profile of one step", function()
    local model, batch, train_step = replicated(create_vae_model()), on_mesh(new_batch(32)), new_step()
    local optimizer, path = optim.adam(model, {lr = 1e-3}), helper.file ""
    train_step(model, optimizer, batch) -- traced and planned before
    assert.is_true(ml.profile.start(path))
    train_step(model, optimizer, batch)
    local profile = assert(ml.profile.stop())
    local handle <close> = assert(io.open(profile.file))
    local kinds, names = {}, {}
    for _, event in ipairs(assert(json.decode(handle:read "a")).traceEvents) do
      if event.ph == "X" then
        kinds[event.cat] = (kinds[event.cat] or 0) + 1
        names[event.name:match "^[%w_]+"] = true
      end
    end
    assert.truthy(kinds.kernel > 0 and kinds.collective > 0 and kinds.host > 0)
    assert.is_true(names.matmul and names.all_reduce)
    assert.truthy(tostring(profile):find("all_reduce", 1, true), tostring(profile))
  end)
end)

describe("gradient clipping", function()
  local grid = ml.make_mesh({4, 2}, {"data", "model"})
  local layouts = {a = NamedSharding(grid, P("data", "model")), b = NamedSharding(grid, P {"data", "model"})}
  local function new_model()
    return ml.device_put({a = nn.Param(ml.zeros {4, 2}), b = nn.Param(ml.zeros {8})}, layouts)
  end
  local function grads_of(norm) -- 3-4-5: three of it in `a`, four in `b`
    local a, b = {{3, 0}, {0, 0}, {0, 0}, {0, 0}}, {0, 4, 0, 0, 0, 0, 0, 0}
    local grads = {a = ml.tensor(a, "float32") * (norm / 5), b = ml.tensor(b, "float32") * (norm / 5)}
    return ml.device_put(grads, layouts)
  end
  local apply = ml.jit(function(model, optimizer, grads) optimizer:update(model, grads) end)

  it("001 L983: by the norm over all shards", function()
    for norm, wanted in pairs {[5] = {-0.6, -0.8}, [0.5] = {-0.3, -0.4}} do
      local model = new_model()
      local optimizer = optim.Optimizer(model, optim.chain(optim.clip_by_global_norm(1.0), optim.scale(-1.0)))
      apply(model, optimizer, grads_of(norm))
      helper.close(wanted[1], model.a:at(1, 1):item(), 1e-6)
      helper.close(wanted[2], model.b:at(2):item(), 1e-6)
    end
    local model = new_model()
    local optimizer = optim.Optimizer(model, optim.chain(
      optim.clip_by_global_norm(1.0), optim.adam {lr = 1e-4}))
    apply(model, optimizer, grads_of(5))
    helper.close({0, -1e-4, 0, 0, 0, 0, 0, 0}, model.b, 1e-9) -- Adam's first step is the rate itself
    assert.same({"all_reduce over data,model: 4 bytes"},
      twin.collectives(apply:plan(model, optimizer, grads_of(5))))
  end)
end)
