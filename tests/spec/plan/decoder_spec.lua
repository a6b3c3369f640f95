-- devices: 4
-- decoder_spec.lua: the recipe of a config.json, run: sizes that the mesh does not divide train as on one device.
local decoder = require "models.decoder"
local lib = require "meshlua.lib"
local ml = require "meshlua"
local runs = require "meshlua.train.run"

local SEQ, BATCH = 16, 4

--- The losses of three steps.
local function losses(mesh, rules, more, microbatches)
  local small = {layers = 2, width = 256, heads = 4, kv_heads = 4, head_dim = 8, hidden = 256, seq = SEQ,
    batch = BATCH, warmup = 0}
  local config = lib.copy(decoder.config, lib.copy(small, more))
  local field = {shape = {SEQ}, dtype = "int32"}
  local run = runs.new(decoder, {config = config, seed = 0, mesh = mesh, rules = decoder.rules[rules],
    microbatches = microbatches, data = {train = {fields = {inputs = field, labels = field}}}})
  local ids = ml.arange(BATCH * SEQ):reshape(BATCH, SEQ):astype "int32"
  local inputs = ml.device_put(ids, run.shardings.inputs)
  local labels = ml.device_put(ids + 1, run.shardings.labels)
  local list = {}
  for i = 1, 3 do
    list[i] = run.train_step(run.model:train(), run.optimizer, run.rngs, inputs, labels):item()
  end
  return list, run
end

describe("models/decoder.lua", function()
  local one = ml.make_mesh({1}, {"data"}, {ml.devices()[1]})

  for _, tied in ipairs {false, true} do
    it("trains with padded vocabulary and heads as on one device" .. (tied and ", tied" or ""), function()
      local more = {vocab = 257, heads = 3, kv_heads = 3, tied = tied}
      local mesh, wanted = ml.make_mesh({2, 2}, {"data", "model"}), losses(one, "dp", more)
      for _, rules in ipairs {"tp", "tp_sp", "fsdp_tp", "fsdp_tp_sp"} do
        for i, loss in ipairs((losses(mesh, rules, more))) do assert.near(wanted[i], loss, 1e-5) end
      end
    end)
  end

  it("trains as a pipeline as it does without, and each place has its layers alone", function()
    local wanted = losses(one, "dp", {vocab = 128}, 2)
    for _, case in ipairs {{{"stage"}, {2}, "pp"}, {{"stage", "model"}, {2, 2}, "pp_tp"},
        {{"data", "stage"}, {2, 2}, "fsdp_pp"}} do
      local n = lib.product(case[2])
      local mesh = ml.make_mesh(case[2], case[1], table.move(ml.devices(), 1, n, 1, {}))
      local got, run = losses(mesh, case[3], {vocab = 128}, 2)
      assert.equal("1f1b", run.schedule)
      for i, loss in ipairs(got) do assert.near(wanted[i], loss, 1e-5) end
      local kernel = run.model.layers.mlp.up.kernel
      assert.equal(1, kernel:addressable_shards()[1].data.shape[1])
      assert.is_true(kernel.sharding == run.optimizer.state.mu.layers.mlp.up.kernel.sharding)
    end
  end)

  for _, name in ipairs {"gpt", "llama"} do
    it("a pipeline of " .. name .. " trains as its layers in a loop do", function()
      local recipe = require("models." .. name)
      local field = {shape = {SEQ}, dtype = "int32"}
      local function of(mesh, rules)
        local config = lib.copy(recipe.config, {layers = 2, width = 32, heads = 4, seq = SEQ, batch = BATCH,
          warmup = 0, scan = true})
        local run = runs.new(recipe, {config = config, seed = 0, mesh = mesh, rules = recipe.rules[rules],
          microbatches = 2, data = {train = {fields = {inputs = field, labels = field}}}})
        local ids = ml.device_put(ml.arange(BATCH * SEQ):reshape(BATCH, SEQ), run.shardings.inputs)
        local list = {}
        for i = 1, 2 do
          list[i] = run.train_step(run.model:train(), run.optimizer, run.rngs, ids, ids):item()
        end
        return list
      end
      local wanted = of(one, "dp")
      for _, rules in ipairs {"pp_tp", "fsdp_pp"} do
        local axes = rules == "pp_tp" and {"stage", "model"} or {"data", "stage"}
        for i, loss in ipairs(of(ml.make_mesh({2, 2}, axes), rules)) do assert.near(wanted[i], loss, 1e-5) end
      end
    end)
  end

  it("makes a pipeline of a stack alone", function()
    local mesh = ml.make_mesh({2}, {"stage"}, table.move(ml.devices(), 1, 2, 1, {}))
    local config = lib.copy(decoder.config, {scan = false, batch = BATCH, seq = SEQ})
    local field = {shape = {SEQ}, dtype = "int32"}
    local ok, fault = pcall(runs.new, decoder, {config = config, seed = 0, mesh = mesh, schedule = "gpipe",
      rules = decoder.rules.pp, data = {train = {fields = {inputs = field, labels = field}}}})
    assert.is_false(ok)
    assert.truthy(fault:find("makes a pipeline of layers that are a stack: --layers=scan", 1, true), fault)
  end)
end)
