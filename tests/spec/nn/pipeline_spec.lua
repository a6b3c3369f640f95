-- devices: 8
-- pipeline_spec.lua: layers as stages along a mesh axis. The twin is ml.accumulate over the same microbatches on one
-- device: loss and gradients are its bits.
local helper = require "spec.helper"
local ml = require "meshlua"

local nn, P = ml.nn, ml.P
local raises = helper.raises

local WIDTH, VOCAB, LENGTH = 4, 6, 3

local Layer = nn.module "Layer"
function Layer:init(cfg, rngs)
  self.up = nn.Linear(WIDTH, WIDTH, {rngs = rngs, param_dtype = cfg.dtype,
    bias_init = nn.initializers.normal(0.1)})
  self.dropout = nn.Dropout(cfg.dropout or 0)
end
function Layer:__call(x, rngs) return x + self.dropout(ml.tanh(self.up(x)), rngs) end

local Model = nn.module "Model"
function Model:init(cfg, rngs)
  self.embed = nn.Embed(VOCAB, WIDTH, {rngs = rngs, param_dtype = cfg.dtype})
  self.layers = nn.stack(cfg.layers, function() return Layer(cfg, rngs) end)
  self.head = not cfg.tied and nn.Linear(WIDTH, VOCAB, {rngs = rngs, param_dtype = cfg.dtype}) or nil
end
function Model:first(part) return self.embed(part.ids) end
function Model:last(x, part)
  local logits = self.head and self.head(x) or self.embed:attend(x)
  local losses = nn.softmax_cross_entropy_with_integer_labels(logits, part.labels)
  return losses:mean(), {right = ml.argmax(logits, -1):eq(part.labels):astype("int32"):sum()}
end

local function new_model(cfg)
  return ml.init(function(rngs) return Model(cfg, rngs) end, {seed = 1})
end

local function batch_of(rows)
  return {ids = ml.random.randint(ml.random.key(2), {rows, LENGTH}, 0, VOCAB),
    labels = ml.random.randint(ml.random.key(3), {rows, LENGTH}, 0, VOCAB)}
end

--- A mesh of the first p devices.
local function stages(p) return ml.Mesh(table.move({0, 1, 2, 3, 4, 5, 6, 7}, 1, p, 1, {}), {"stage"}) end

--- The options of a model's pipeline.
local function with(model, options)
  options.first = options.first or function(part) return model:first(part) end
  options.last = options.last or function(x, part) return model:last(x, part) end
  return options
end

--- Loss, gradients and sums of a pipeline.
local function pipelined(model, batch, mesh, options)
  local step = ml.jit(function(m, b)
    return ml.value_and_grad(function(n)
      local own = {}
      for key, value in pairs(options) do own[key] = value end
      return nn.pipeline(n.layers, b, with(n, own))
    end, {has_aux = true})(m)
  end, {mesh = mesh})
  local loss, grads, aux = step(model, batch)
  return {loss = loss, grads = grads, right = aux.right}, step
end

--- The same by accumulation.
local function accumulated(model, batch, m)
  local step = ml.jit(function(n, b)
    return ml.accumulate(m, function(part)
      return ml.value_and_grad(function(o)
        local loss, aux = o:last((nn.scan(o.layers, o:first(part))), part)
        return loss, aux.right:astype("float32")
      end, {has_aux = true})(n)
    end, b)
  end)
  local loss, grads, right = step(model, batch)
  return {loss = loss, grads = grads, right = right * m}
end

--- Raises unless the two are the same bits.
local function same(expected, actual, what)
  local want, paths = ml.tree.leaves(expected.grads)
  local have = ml.tree.leaves(actual.grads)
  assert.equal(#want, #have)
  helper.close(expected.loss, actual.loss, 0)
  for i, path in ipairs(paths) do
    local found = helper.difference(want[i], have[i], 0)
    if found then error(("%s%s: %s"):format(what or "", path, found), 2) end
    assert.is_true(ml.abs(want[i]):max():item() > 0, path)
  end
end

describe("nn.pipeline gives the bits of accumulation", function()
  local models = {}
  for _, dtype in ipairs {"float32", "float64"} do
    models[dtype] = new_model {layers = 8, dtype = dtype}
  end
  for _, m in ipairs {1, 2, 3, 8, 13} do
    for dtype, model in pairs(models) do
      it(("of %d microbatches, %s"):format(m, dtype), function()
        local batch = batch_of(2 * m)
        local expected = accumulated(model, batch, m)
        for _, p in ipairs {1, 2, 4, 8} do
          for _, schedule in ipairs {"gpipe", "1f1b"} do
            local got = pipelined(model, batch, stages(p), {microbatches = m, schedule = schedule})
            same(expected, got, ("%s of %d: "):format(schedule, p))
            assert.equal(expected.right:item(), got.right:item())
          end
        end
      end)
    end
  end
end)

describe("nn.pipeline", function()
  local both = {"gpipe", "1f1b"}

  it("passes over layers that are missing where the stages do not divide them", function()
    local model = new_model {layers = 5, dtype = "float32"}
    local batch = batch_of(6)
    local expected = accumulated(model, batch, 3)
    for _, schedule in ipairs(both) do
      for _, p in ipairs {2, 4} do
        same(expected, pipelined(model, batch, stages(p), {microbatches = 3, schedule = schedule}))
      end
    end
  end)

  it("takes a list of layers as a stack", function()
    local model = new_model {layers = 4, dtype = "float32"}
    local batch, list = batch_of(4), {}
    for i = 1, 4 do list[i] = nn.layer(model.layers, i) end
    local function loss(layers, mesh)
      return ml.jit(function(l, b)
        return (nn.pipeline(l, b, with(model, {microbatches = 2})))
      end, {mesh = mesh})(layers, batch)
    end
    helper.close(loss(model.layers, stages(2)), loss(list, stages(2)), 0)
  end)

  it("sums the gradient of a table that first and last share over the stages", function()
    local tied = new_model {layers = 4, dtype = "float32", tied = true}
    local batch = batch_of(6)
    for _, schedule in ipairs(both) do
      local expected = pipelined(tied, batch, nil, {microbatches = 3, schedule = schedule})
      local summed = accumulated(tied, batch, 3)
      helper.close(summed.loss, expected.loss, 0)
      helper.close(summed.grads.embed.embedding, expected.grads.embed.embedding, 1e-6)
      for _, p in ipairs {2, 4} do
        same(expected, pipelined(tied, batch, stages(p), {microbatches = 3, schedule = schedule}))
      end
    end
  end)

  it("draws dropout by layer and microbatch, whatever the stages", function()
    local model = new_model {layers = 4, dtype = "float32", dropout = 0.5}:train()
    local batch, expected = batch_of(6), nil
    for _, schedule in ipairs(both) do
      for _, p in ipairs {1, 2, 4} do
        local rngs = nn.Rngs(5)
        local got = ml.jit(function(m, r, b)
          return ml.value_and_grad(function(n)
            return (nn.pipeline(n.layers, b, with(n, {microbatches = 3, schedule = schedule, rngs = r})))
          end)(m)
        end, {mesh = stages(p)})
        local loss, grads = got(model, rngs, batch)
        expected = expected or {loss = loss, grads = grads}
        same(expected, {loss = loss, grads = grads})
        assert.equal(1, rngs.default.count:get():item())
      end
    end
    local key = ml.random.fold_in(ml.random.fold_in(nn.Rngs(5).dropout(), 1), 2) -- microbatch 1, layer 2
    assert.same({2}, key.shape)
  end)

  it("can be differentiated twice", function()
    local model = new_model {layers = 2, dtype = "float64"}
    local x = ml.random.normal(ml.random.key(4), {4, 1, WIDTH}):astype "float64"
    local function second(loss, mesh)
      local function length(layers) return (ml.grad(loss)(layers).up.kernel ^ 2):sum() end
      local step = ml.jit(function(layers) return ml.grad(length)(layers).up.kernel end, {mesh = mesh})
      return step(model.layers)
    end
    local function last(h) return (h ^ 3):mean() end
    local expected = second(function(layers) return last((nn.scan(layers, x))) end)
    for _, schedule in ipairs(both) do
      local got = second(function(layers)
        return (nn.pipeline(layers, x, {microbatches = 2, schedule = schedule, last = last}))
      end, stages(2))
      helper.close(expected, got, 1e-10)
    end
  end)

  it("with the loss outside gives what the layers give, and its gradients", function()
    local model = new_model {layers = 4, dtype = "float32"}
    local x = ml.random.normal(ml.random.key(4), {6, LENGTH, WIDTH})
    local function grads_of(apply, mesh)
      local step = ml.jit(function(layers, y)
        local function loss(l, z) return (apply(l, z) ^ 2):sum() end
        return ml.value_and_grad(loss, {argnums = {1, 2}})(layers, y)
      end, {mesh = mesh})
      local loss, grads = step(model.layers, x)
      return {loss = loss, grads = grads}
    end
    local expected = grads_of(function(l, z) return (nn.scan(l, z)) end)
    for _, p in ipairs {1, 2, 4} do
      local got = grads_of(function(l, z) return nn.pipeline(l, z, {microbatches = 3}) end, stages(p))
      helper.close(expected.loss, got.loss, 1e-6)
      local want, have = ml.tree.leaves(expected.grads), ml.tree.leaves(got.grads)
      for i, g in ipairs(want) do helper.close(g, have[i], 1e-5) end
      if p == 2 then same(grads_of(function(l, z) return nn.pipeline(l, z, {microbatches = 3}) end), got) end
    end
    local out = ml.jit(function(l, y) return nn.pipeline(l, y, {microbatches = 2}) end, {mesh = stages(4)})
    helper.close((nn.scan(model.layers, x)), out(model.layers, x), 0)
  end)

  it("takes layers that differ, as a row of numbers for each place", function()
    local sizes = {5, 7, 3, 2}
    local layers, rngs = {}, nn.Rngs(0)
    for i = 1, 3 do
      layers[i] = nn.Linear(sizes[i], sizes[i + 1], {rngs = rngs, bias_init = nn.initializers.normal(0.1)})
    end
    local model = {layers = layers}
    local function draw(seed, width) return ml.random.normal(ml.random.key(seed), {6, width}) end
    local batch = {x = draw(1, 5), y = draw(2, 2)}
    local function body(layer, x) return ml.tanh(layer(x)) end
    local function last(x, part) return ((x - part.y) ^ 2):mean() end
    local step = ml.jit(function(m, b)
      return ml.accumulate(3, function(part)
        return ml.value_and_grad(function(n)
          local x = part.x
          for _, layer in ipairs(n.layers) do x = body(layer, x) end
          return last(x, part)
        end)(m)
      end, b)
    end)
    local loss, grads = step(model, batch)
    for _, schedule in ipairs(both) do
      for _, p in ipairs {1, 2, 3} do
        local got, got_grads = ml.jit(function(m, b)
          return ml.value_and_grad(function(n)
            return (nn.pipeline(n.layers, b, {microbatches = 3, schedule = schedule, body = body, last = last,
              first = function(part) return part.x end}))
          end)(m)
        end, {mesh = stages(p)})(model, batch)
        same({loss = loss, grads = grads}, {loss = got, grads = got_grads})
      end
    end
  end)
end)

describe("nn.pipeline beside other axes", function()
  local Wide = nn.module "Wide"
  function Wide:init(rngs)
    self.norm = nn.LayerNorm(WIDTH, {rngs = rngs})
    self.up = nn.Linear(WIDTH, 8, {rngs = rngs, axes = {false, "mlp"}})
    self.down = nn.Linear(8, WIDTH, {rngs = rngs, axes = {"mlp", false}})
  end
  function Wide:__call(x) return x + self.down(nn.gelu(self.up(self.norm(x)))) end

  local rules = {{"layers", "stage"}, {"mlp", "model"}, {"batch", "data"}, {"layers", false}, {"mlp", false},
    {"batch", false}}

  --- Loss and gradients of the layers, and how many collectives are over each axis.
  local function run(names, sizes, schedule)
    local n = sizes[1] * sizes[2]
    local mesh = ml.make_mesh(sizes, names, table.move(ml.devices(), 1, n, 1, {}))
    local layers = ml.init(function(rngs)
      return nn.stack(4, function() return Wide(rngs) end)
    end, {mesh = mesh, rules = rules, seed = 3})
    local x = ml.device_put(ml.random.normal(ml.random.key(4), {8, 3, WIDTH}),
      ml.NamedSharding(mesh, mesh.shape.data and P "data" or P()))
    local step = ml.jit(function(l, y)
      return ml.value_and_grad(function(m)
        return (nn.pipeline(m, y, {microbatches = 4, schedule = schedule,
          last = function(h) return (h ^ 2):mean() end}))
      end)(l)
    end, {mesh = mesh, rules = rules})
    local loss, grads = step(layers, x)
    local gathers = 0
    for _, c in ipairs(step:plan(layers, x):collectives()) do
      gathers = gathers + (c.op == "all_gather" and 1 or 0)
    end
    assert.equal(0, gathers)
    return {loss = loss, grads = grads}
  end

  it("is the same bits as on the same mesh without it", function()
    for _, schedule in ipairs {"gpipe", "1f1b"} do
      local names = {"stage", "model"}
      local expected = run(names, {1, 2}, schedule)
      same(expected, run(names, {2, 2}, schedule), "model: ")
      same(expected, run(names, {4, 2}, schedule), "model: ")
      names = {"data", "stage"}
      expected = run(names, {2, 1}, schedule)
      same(expected, run(names, {2, 2}, schedule), "data: ")
      same(expected, run(names, {2, 4}, schedule), "data: ")
    end
  end)
end)

describe("a pipeline's plan", function()
  local WIDE, ROWS, PARTS = 256, 8, 8
  local function plan_of(schedule)
    local stack = nn.stack(4, function(i) return nn.Linear(WIDE, WIDE, {rngs = nn.Rngs(i)}) end)
    local x = ml.ones {ROWS * PARTS, WIDE}
    local step = ml.jit(function(layers, y)
      return ml.value_and_grad(function(l)
        return (nn.pipeline(l, y, {microbatches = PARTS, schedule = schedule,
          last = function(h) return (h ^ 2):mean() end}))
      end)(layers)
    end, {mesh = stages(4)})
    return step:plan(stack, x)
  end

  it("copies neither the ring nor what gradients add up to in any tick", function()
    for schedule, ring in pairs {gpipe = PARTS, ["1f1b"] = 7} do
      local big = {[("float32[%d,%d,%d]"):format(ring, ROWS, WIDE)] = 0,
        [("float32[1,%d,%d]"):format(WIDE, WIDE)] = 0}
      for line in tostring(plan_of(schedule)):gmatch "[^\n]+" do
        local op, made = line:match "^ *%d+   +(.-) : .*%-> %w+:(%S+)" -- those in a loop stand further in
        if big[made] then
          big[made] = big[made] + 1
          assert.falsy(op:find("copy", 1, true) or op:find("where", 1, true), line)
        end
      end
      for made, times in pairs(big) do assert.is_true(times > 0, made) end
    end
  end)

  it("has each device compute its stage's share of the microbatches, and nothing in idle slots", function()
    local product = 2 * ROWS * WIDE * WIDE
    for _, schedule in ipairs {"gpipe", "1f1b"} do
      local flops = plan_of(schedule):device_flops()
      for device = 1, 3 do -- forward, forward again, two products backward
        assert.is_true(flops[device] >= PARTS * 4 * product and flops[device] < 1.05 * PARTS * 4 * product)
      end
      assert.is_true(flops[4] >= PARTS * 3 * product and flops[4] < 1.05 * PARTS * 3 * product)
    end
  end)
end)

describe("nn.explain_pipeline", function()
  local model = new_model {layers = 4, dtype = "float32"}

  it("shows who works on what in each tick, and what is held and sent", function()
    local batch, mesh = batch_of(6), stages(2)
    local figures = nn.explain_pipeline(model.layers, batch, with(model, {microbatches = 3, schedule = "1f1b",
      mesh = mesh}))
    assert.equal([[
2 stages, 3 microbatches, 1f1b: 5 ticks
tick     0    1    2    3    4
stage 0  F0   F1   F2B0 B1   B2
stage 1  .    F0B0 F1B1 F2B2 .
idle: 25.0% of the time, (p - 1) / (m + p - 1)
held at most: 3, 1 of 3 by stage, room for 3
a hop: 96 B; a place makes 8 in a step, 768 B
layers: 4, 2 of them on a place
Params of a place's layers: 160 B
Params that first and last read, 216 B:
  whole on each place: it holds 216 B, and sends 216 B of gradients
  split over the axis: it holds 108 B, and sends 108 B to gather them, 108 B of gradients]],
      tostring(figures))
  end)

  it("counts the hops that the plan has, and the microbatches that its table shows", function()
    for _, schedule in ipairs {"gpipe", "1f1b"} do
      local batch, mesh = batch_of(16), stages(4)
      local options = {microbatches = 8, schedule = schedule, mesh = mesh}
      local figures = nn.explain_pipeline(model.layers, batch, with(model, options))
      local _, step = pipelined(model, batch, mesh, {microbatches = 8, schedule = schedule})
      local hops = 0
      for _, c in ipairs(step:plan(model, batch):collectives()) do
        if c.op == "ppermute" then
          hops = hops + c.times
          assert.equal(figures.hop_bytes, c.bytes)
        end
      end
      assert.equal(figures.hops, hops)
      for s = 0, 3 do
        local held, most, work = 0, 0, 0
        for tick = 0, figures.ticks - 1 do
          local f, b = figures:slot(s, tick)
          held = held + (f and 1 or 0)
          most = math.max(most, held)
          held = held - (b and 1 or 0)
          work = work + (f and 1 or 0) + (b and 1 or 0)
        end
        assert.same({figures.held[s + 1], 0, 16}, {most, held, work})
        assert.is_true(most <= figures.ring)
      end
    end
  end)
end)

describe("nn.pipeline refuses, before anything runs,", function()
  local model = new_model {layers = 4, dtype = "float32"}
  local function call(options, p, layers, batch)
    return function()
      return ml.jit(function(m, b)
        return nn.pipeline(layers or m.layers, b, with(m, options))
      end, {mesh = stages(p or 2)})(model, batch or batch_of(4))
    end
  end

  it("more stages than layers", function()
    raises("pipeline_spec.lua:", call({microbatches = 2}, 8))
    raises("[E_VALUE] nn.pipeline: 4 layers for 8 stages (mesh axis 'stage')", call({microbatches = 2}, 8))
  end)

  it("stages that do not fit, and names both", function()
    local rngs = nn.Rngs(0)
    local layers = {nn.Linear(4, 5, {rngs = rngs}), nn.Linear(6, 4, {rngs = rngs})}
    raises("[E_SHAPE] nn.pipeline: stage 2 does not take what stage 1 gives, float32[2,3,5]: ",
      call({microbatches = 2}, 2, layers))
    local stack = nn.stack(2, function() return nn.Linear(4, 5, {rngs = rngs}) end)
    raises("[E_SHAPE] nn.pipeline: layer 1 takes float32[2,3,4] and gives float32[2,3,5], which layer 2 does "
      .. "not take", call({microbatches = 2}, 2, stack))
  end)

  it("rows that the microbatches do not divide", function()
    raises("[E_SHAPE] nn.pipeline: ids has 30 rows, which 4 microbatches do not divide; take 28 or 32 rows, "
      .. "or 1, 2, 3, 5, 6, 10, 15, 30 microbatches", call({microbatches = 4}, 2, nil, batch_of(30)))
  end)

  it("a loss outside under 1f1b", function()
    raises("[E_VALUE] nn.pipeline: under 1f1b a microbatch goes back before later ones have gone forward",
      nn.pipeline, model.layers, ml.ones {4, 3, 4}, {microbatches = 2, schedule = "1f1b"})
  end)

  it("a layer that is split over the stages", function()
    local mesh = stages(2)
    local split = ml.init(function(rngs)
      return nn.stack(2, function() return nn.Linear(4, 4, {rngs = rngs, axes = P("stage")}) end)
    end, {mesh = mesh, seed = 0})
    raises("[E_SPEC] nn.pipeline: kernel is split on 'stage' along dim 2", function()
      local step = ml.jit(function(s, x) return nn.pipeline(s, x, {microbatches = 2}) end, {mesh = mesh})
      step(split, ml.ones {4, 4})
    end)
  end)

  it("side effects of a stage", function()
    raises("[E_STATE]", call {microbatches = 2, first = function(part)
      ml.debug_print("%s", part.ids)
      return model:first(part)
    end})
    raises("[E_STATE]", call {microbatches = 2, body = function(layer, x)
      model.head.bias:set(model.head.bias:get() + 1)
      return layer(x)
    end})
  end)

  it("an axis and a schedule that are not there, and a loss that is none", function()
    raises("stage = 'stag' is not an axis of", call {microbatches = 2, stage = "stag"})
    raises("schedule = '1b1f'; there are gpipe and 1f1b", call {microbatches = 2, schedule = "1b1f"})
    raises("[E_GRAD] nn.pipeline: last gives float32[2,3,4]", call {microbatches = 2,
      last = function(x) return x end})
  end)
end)
