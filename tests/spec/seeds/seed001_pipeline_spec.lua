-- devices: 8
-- The guide "Distributed Training", pipeline parallelism: stages on devices of their own, and the schedule of
-- microbatches through them.
local helper = require "spec.helper"
local ml = require "meshlua"
local P, NamedSharding, nn, random = ml.P, ml.NamedSharding, ml.nn, ml.random

local PipelineStage = nn.module "PipelineStage"

function PipelineStage:init(layer_specs, stage_id, options)
  self.stage_id = stage_id
  self.layers = {}
  for i, spec in ipairs(layer_specs) do
    self.layers[i] = nn.Linear(spec.in_features, spec.out_features, {rngs = options.rngs})
  end
end

function PipelineStage:__call(x)
  for _, layer in ipairs(self.layers) do x = nn.relu(layer(x)) end
  return x
end

local stage_specs = {
  {{in_features = 784, out_features = 512}}, -- input layers
  {{in_features = 512, out_features = 512}}, -- middle layers
  {{in_features = 512, out_features = 256}},
  {{in_features = 256, out_features = 10}}, -- output layers
}

local function new_stages()
  local stages = {}
  for i, spec in ipairs(stage_specs) do stages[i] = PipelineStage(spec, i - 1, {rngs = nn.Rngs(i - 1)}) end
  return stages
end

local function sequential(stages, x)
  for _, stage in ipairs(stages) do x = stage(x) end
  return x
end

local function ascending(num_stages) return 1, num_stages, 1 end
local function descending(num_stages) return num_stages, 1, -1 end

--- The forward pass of all microbatches, a tick after the other. In a tick the stages must be visited last
--- to first (the default): a stage takes what the one before it made in the tick before.
---@return Tensor output, {ticks: integer, calls: integer, messages: integer, bubble: number} counts
local function pipeline_forward(stages, inputs, num_microbatches, order)
  local microbatches = inputs:split(num_microbatches)
  local num_stages = #stages
  local stage_activations, outputs = {}, {}
  local counts = {ticks = 0, calls = 0, messages = 0}
  for time_step = 0, num_stages + num_microbatches - 2 do
    counts.ticks = counts.ticks + 1
    local first, last, step = (order or descending)(num_stages)
    for stage_id = first, last, step do
      local microbatch_id = time_step - stage_id + 2
      if 1 <= microbatch_id and microbatch_id <= num_microbatches then
        local stage_input = microbatches[microbatch_id]
        if stage_id > 1 then
          stage_input = stage_activations[stage_id - 1]
          counts.messages = counts.messages + 1
        end
        local stage_output = stages[stage_id](stage_input)
        counts.calls = counts.calls + 1
        stage_activations[stage_id] = stage_output
        if stage_id == num_stages then outputs[#outputs + 1] = stage_output end
      end
    end
  end
  counts.bubble = 1 - counts.calls / (counts.ticks * num_stages)
  return ml.concat(outputs), counts
end

--- The stages as one plan over a mesh that has a device for each.
local LINE = ml.Mesh({0, 1, 2, 3}, {"stage"})
local function as_one_plan(stages, inputs, num_microbatches)
  local step = ml.jit(function(list, x)
    return nn.pipeline(list, x, {microbatches = num_microbatches})
  end, {mesh = LINE})
  return step(stages, inputs), step:plan(stages, inputs)
end

describe("pipeline stages", function()
  it("001 L414: four of them, 784-512-512-256-10", function()
    local x, shapes = random.normal(random.key(9), {32, 784}), {}
    for i, stage in ipairs(new_stages()) do
      assert.equal(i - 1, stage.stage_id)
      x = stage(x)
      shapes[i] = x.shape
    end
    assert.same({{32, 512}, {32, 512}, {32, 256}, {32, 10}}, shapes)
    assert.is_true(x:min():item() == 0) -- relu
  end)

  it("001 L467: last to first in each tick every microbatch comes out as itself", function()
    local stages, inputs = new_stages(), random.normal(random.key(9), {32, 784})
    local wanted = sequential(stages, inputs)
    local output, counts = pipeline_forward(stages, inputs, 4)
    helper.close(wanted, output, 1e-5)
    assert.equal(7, counts.ticks)
    -- As written, first to last, each stage takes what the one before it has just made: the last microbatch.
    local last_microbatch = wanted:slice {25, 32}
    local as_written = pipeline_forward(stages, inputs, 4, ascending)
    assert.same({32, 10}, as_written.shape)
    for _, microbatch in ipairs(as_written:split(4)) do helper.close(last_microbatch, microbatch, 1e-5) end
    assert.truthy(helper.difference(wanted, as_written, 1e-3))
    helper.raises("[E_INDIVISIBLE]", pipeline_forward, stages, inputs:slice {1, 30}, 4) -- 28 rows would be lost
    -- As one plan: the stages differ, so that each device has its Params, and what goes on, as a padded row.
    local one, plan = as_one_plan(stages, inputs, 4)
    helper.close(wanted, one, 1e-5)
    local hop = plan:collectives()[1]
    assert.same({"ppermute", 7, 8 * 784 * 4}, {hop.op, hop.times, hop.bytes})
    helper.raises("inputs has 30 rows, which 4 microbatches do not divide; take 28 or 32 rows", function()
      nn.pipeline(stages, {inputs = inputs:slice {1, 30}}, {microbatches = 4})
    end)
  end)

  it("001 L944: fewer microbatches send less and wait more", function()
    local stages, inputs = new_stages(), random.normal(random.key(9), {32, 784})
    local output, eight, two
    output, eight = pipeline_forward(stages, inputs, 8)
    helper.close(sequential(stages, inputs), output, 1e-5)
    output, two = pipeline_forward(stages, inputs, 2)
    helper.close(sequential(stages, inputs), output, 1e-5)
    assert.equal(eight.messages, 4 * two.messages)
    helper.close(0.27, eight.bubble, 5e-3)
    helper.close(0.60, two.bubble, 1e-9)
    -- As one plan: the same, and what it says of itself beforehand.
    for num_microbatches, by_hand in pairs {[8] = eight, [2] = two} do
      local one, plan = as_one_plan(stages, inputs, num_microbatches)
      local figures = nn.explain_pipeline(stages, inputs, {microbatches = num_microbatches, mesh = LINE})
      helper.close(output, one, 1e-5)
      helper.close(by_hand.bubble, figures.idle, 1e-12)
      assert.equal(by_hand.messages, figures.messages)
      assert.equal(by_hand.ticks, plan:collectives()[1].times)
      assert.equal(figures.hop_bytes, plan:collectives()[1].bytes)
    end
  end)

  it("001 L467: with a device for each stage", function()
    local stages, inputs = new_stages(), random.normal(random.key(9), {32, 784})
    local wanted, placed = sequential(stages, inputs), {}
    for i, stage in ipairs(new_stages()) do
      local device = NamedSharding(ml.Mesh({i - 1}, {"stage"}), P())
      ml.device_put(stage, device)
      placed[i] = function(x) return stage(ml.device_put(x, device)) end
    end
    local output = pipeline_forward(placed, inputs, 4)
    assert.equal(3, output:addressable_shards()[1].device)
    helper.close(wanted, output, 1e-5)
  end)
end)

describe("a GPipe-style pipeline", function()
  local GPipePipeline = nn.module "GPipePipeline"

  function GPipePipeline:init(num_stages, layers_per_stage, hidden_dim, options)
    self.num_stages = num_stages
    self.stages = {}
    for i = 1, num_stages do
      self.stages[i] = {}
      for j = 1, layers_per_stage do
        self.stages[i][j] = nn.Linear(hidden_dim, hidden_dim, {rngs = options.rngs})
      end
    end
  end

  function GPipePipeline:forward_stage(stage_id, x)
    for _, layer in ipairs(self.stages[stage_id]) do x = nn.relu(layer(x)) end
    return x
  end

  function GPipePipeline:__call(x, num_microbatches)
    if (num_microbatches or 1) == 1 then
      for stage_id = 1, self.num_stages do x = self:forward_stage(stage_id, x) end
      return x
    end
    local stages = {}
    for i = 1, self.num_stages do stages[i] = function(y) return self:forward_stage(i, y) end end
    return pipeline_forward(stages, x, num_microbatches)
  end

  it("001 L511: one microbatch or four give the same outputs and gradients", function()
    local model = GPipePipeline(4, 2, 16, {rngs = nn.Rngs(0)})
    local x = random.normal(random.key(9), {32, 16})
    local output, counts = model(x, 4)
    helper.close(model(x), output, 1e-6)
    helper.close(3 / 7, counts.bubble, 1e-12)
    local step = ml.jit(function(m, inputs, num_microbatches)
      local function loss_fn(pipeline) return ((pipeline(inputs, num_microbatches)) ^ 2):sum() end
      return ml.value_and_grad(loss_fn)(m)
    end, {static = {"num_microbatches"}})
    local loss, grads = step(model, x, 1)
    local pipeline_loss, pipeline_grads = step(model, x, 4)
    helper.close(loss:item(), pipeline_loss:item(), 1e-6)
    local wanted, got = ml.tree.leaves(grads), ml.tree.leaves(pipeline_grads)
    assert.equal(16, #wanted)
    for i, grad in ipairs(got) do helper.close(wanted[i], grad, 1e-5) end
    assert.is_true(ml.abs(wanted[1]):max():item() > 1e-3)
  end)

  -- The same as one plan: a device for each stage, and a loop over the ticks.
  local function one_plan(mesh, params, x, num_microbatches)
    local num_stages, width = mesh.size, x.shape[2]
    local rows = x.shape[1] // num_microbatches
    local hops = {}
    for stage_id = 0, num_stages - 2 do hops[#hops + 1] = {stage_id, stage_id + 1} end
    local function device(own, microbatches)
      local stage_id = ml.axis_index "stage"
      local function stage(y)
        for i = 1, own.kernel.shape[2] do y = nn.relu(y:matmul(own.kernel:at(1, i)) + own.bias:at(1, i)) end
        return y
      end
      local bubble = ml.zeros {num_stages - 1, rows, width}
      local _, outputs = ml.scan(function(from_before, microbatch)
        local output = stage(ml.where(stage_id:eq(0), microbatch, from_before))
        return ml.ppermute(output, "stage", hops), output
      end, ml.zeros {rows, width}, ml.concat {microbatches, bubble})
      local last = outputs:slice {num_stages, num_stages + num_microbatches - 1}
      return ml.psum(ml.where(stage_id:eq(num_stages - 1), last, 0.0), "stage")
    end
    local run = ml.shard_map(device, {mesh = mesh, in_specs = {P("stage"), P()}, out_specs = P()})
    return run(params, x:reshape(num_microbatches, rows, width)):reshape(x.shape)
  end

  it("001 L511: as one plan over a mesh of stages it is the same", function()
    local STAGES, WIDTH = 4, 16
    local model = GPipePipeline(STAGES, 2, WIDTH, {rngs = nn.Rngs(0)})
    local function stacked(key)
      local stages = {}
      for i, layers in ipairs(model.stages) do
        stages[i] = ml.stack {layers[1][key], layers[2][key]}
      end
      return ml.stack(stages)
    end
    local params = {kernel = stacked "kernel", bias = stacked "bias" + 0.1} -- so that no gradient is zero
    for i, layers in ipairs(model.stages) do
      for j, layer in ipairs(layers) do layer.bias = nn.Param(params.bias:at(i, j)) end
    end
    local x = random.normal(random.key(9), {32, WIDTH})
    local loss, grads = ml.value_and_grad(function(m) return (m(x) ^ 2):sum() end)(model)
    local mesh = ml.Mesh({0, 1, 2, 3}, {"stage"})
    local sharded = ml.device_put(params, NamedSharding(mesh, P("stage")))
    for _, num_microbatches in ipairs {1, 4} do
      local function forward(p, inputs) return one_plan(mesh, p, inputs, num_microbatches) end
      helper.close(model(x), forward(sharded, x), 1e-5)
      local step = ml.jit(function(p, inputs)
        return ml.value_and_grad(function(q) return (forward(q, inputs) ^ 2):sum() end)(p)
      end)
      local pipeline_loss, pipeline_grads = step(sharded, x)
      helper.close(1, pipeline_loss:item() / loss:item(), 1e-6)
      for i, layers in ipairs(grads.stages) do
        for j, layer in ipairs(layers) do
          helper.close(layer.kernel, pipeline_grads.kernel:at(i, j), 1e-5)
          helper.close(layer.bias, pipeline_grads.bias:at(i, j), 1e-5)
        end
      end
      assert.is_true(pipeline_grads.kernel.sharding == sharded.kernel.sharding)
      local collectives = ml.jit(forward):plan(sharded, x):collectives()
      assert.equal("ppermute", collectives[1].op)
      assert.equal(STAGES + num_microbatches - 1, collectives[1].times) -- in each tick
      assert.equal(32 // num_microbatches * WIDTH * 4, collectives[1].bytes)
    end
  end)
end)
