-- devices: 8
-- layout_spec.lua: one recipe in many layouts: the same losses, and each device its share of the work and of the
-- memory.
local helper = require "spec.helper"
local ml = require "meshlua"
package.path = "models/?.lua;" .. package.path
local gpt = require "gpt"

local train = ml.train
local STEPS = helper.watched and 10 or 20

--- A GPT that is small but has everything: heads for 8 devices, dropout, matrices on both sides of fsdp's
--- threshold.
local config = {}
for key, value in pairs(gpt.config) do config[key] = value end
for key, value in pairs {layers = 2, width = 64, heads = 8, seq = 16, batch = 16, dropout = 0.1,
    steps = STEPS, warmup = 5, lr = 3e-3, vocab = 128} do
  config[key] = value
end

local words = {}
for i = 1, 4000 do words[i] = ("%d "):format(i * i % 977) end
local text = helper.file(table.concat(words))
local data = assert(gpt.data(config, text))

local layouts = {{"none", "dp"}, {"data:8", "tp"}, {"data:8,model:1", "tp"}, {"data:4,model:2", "tp"},
  {"data:2,model:4", "tp"}, {"data:1,model:8", "tp"}, {"model:8", "tp"}, {"data:4,model:2", "fsdp"},
  {"data:4,model:2", "fsdp_tp"}}
if helper.watched then layouts = {layouts[1], layouts[4], layouts[7], layouts[9]} end -- one of each kind

local function new_run(mesh, rules)
  local cfg = {}
  for key, value in pairs(config) do cfg[key] = value end
  return train.run(gpt, {config = cfg, seed = 1, mesh = train.mesh(mesh), rules = gpt.rules[rules],
    data = data})
end

--- The leaves of a tree of boxes with their paths.
local function leaves_of(tree, kind)
  local list = {}
  ml.tree.visit(tree, function(path, leaf)
    if not kind or leaf.kind == kind then list[#list + 1] = {path = path, leaf = leaf} end
  end)
  return list
end

--- Bytes of a tensor on each device, from its shards; they must be the same on all.
local function bytes_per_device(x)
  if not x.sharding.mesh then return x.size * 4 end
  local each
  for _, shard in ipairs(x:addressable_shards()) do
    each = each or shard.data.size * 4
    assert.equal(each, shard.data.size * 4)
  end
  return each
end

local function sum_of_bytes(list)
  local n = 0
  for _, entry in ipairs(list) do n = n + bytes_per_device(entry.leaf) end
  return n
end

local runs = {}
for i, layout in ipairs(layouts) do
  runs[i] = {name = layout[1] .. " " .. layout[2], mesh = layout[1], rules = layout[2]}
end

describe("a GPT on", function()
  local first_losses, first_parameters

  for _, case in ipairs(runs) do
    it(case.name .. ": the same parameters to begin with, the same losses", function()
      local run = new_run(case.mesh, case.rules)
      local parameters = {}
      for _, entry in ipairs(leaves_of(run.model)) do parameters[entry.path] = entry.leaf:get():bytes() end
      first_parameters = first_parameters or parameters
      assert.same(first_parameters, parameters)
      local losses, steps = {}, 0
      run:train(function(row)
        steps = steps + 1
        losses[row.step] = row.loss
      end)
      assert.equal(STEPS, steps)
      first_losses = first_losses or losses
      for step, loss in ipairs(first_losses) do
        assert.near(1, losses[step] / loss, 1e-4, "step " .. step)
      end
    end)
  end

  it("one device learns", function()
    local share = helper.watched and 0.9 or 0.75
    assert.truthy(first_losses[STEPS] < share * first_losses[1], first_losses[STEPS])
  end)
end)

-- ---- shares -------------------------------------------------------------------------------------------

local C, V, T, L, TOKENS = config.width, config.vocab, config.seq, config.layers, config.batch * config.seq

--- How often the rule set splits the batch, a block, and a matrix over `data`.
local function splits(case)
  local size = {data = 1, model = 1}
  for name, n in case.mesh:gmatch "(%w+):(%d+)" do size[name] = math.tointeger(tonumber(n)) end
  local tp = case.rules:find "tp" and size.model or 1
  return size.data * size.model // tp, tp, case.rules:find "fsdp" and size.data or 1
end

--- The elements of all parameters on one device, from the rule set.
local function elements(tp, fsdp)
  local function split(n, parts) return n // parts // (n >= gpt.min_sharded and fsdp or 1) end
  local attention = 3 * (split(C * C, tp) + C // tp) + split(C * C, tp) + C
  local mlp = split(C * 4 * C, tp) + 4 * C // tp + split(4 * C * C, tp) + C
  return L * (attention + mlp + 4 * C) + split(V * C, 1) + split(T * C, 1) + 2 * C
end

--- Products of one step of each device: those of the blocks' matrices, forward, and backward for inputs and
--- weights, beside those of the head.
local function matmul_flops(run)
  local before = {}
  for device = 0, 7 do before[device] = ml.core.counters(device).matmul_flops end
  run.config.steps = 1
  run:train(function() end)
  local flops = {}
  for device = 0, 7 do flops[device] = ml.core.counters(device).matmul_flops - before[device] end
  return flops
end

--- The bytes of gradients that the optimizer's ops of one step take on each device: their second operands.
local function gradient_bytes(run)
  local batch = data.train:shuffled({batch = config.batch, shardings = run.shardings})(1)
  local plan = run.train_step:plan(run.model, run.optimizer, run.rngs, batch.inputs, batch.labels)
  local n = 0
  for _, step in ipairs(plan:steps()) do
    if step.op == "adamw" then n = n + step.inputs[2].bytes end
  end
  return n
end

describe("on", function()
  local head, blocks = 6 * TOKENS * C * V

  for _, case in ipairs(runs) do
    local batch_split, tp, fsdp = splits(case)
    local run

    it(case.name .. ": each device does its share of the blocks' products", function()
      run = new_run(case.mesh, case.rules)
      local flops = matmul_flops(run)
      if case.mesh == "none" then
        blocks = flops[0] - head
        -- Attention comes on top: queries with keys, weights with values.
        assert.truthy(blocks > 6 * TOKENS * 12 * C * C * L)
        assert.truthy(blocks < 6 * TOKENS * (12 * C * C + 4 * T * C) * L)
        return
      end
      for device = 0, 7 do
        assert.equal(blocks / 8 + head / batch_split, flops[device], "device " .. device)
      end
    end)

    it(case.name .. ": each device holds its share of parameters, gradients and moments", function()
      local wanted = 4 * elements(tp, fsdp)
      assert.equal(wanted, sum_of_bytes(leaves_of(run.model)))
      local moments = {}
      for _, entry in ipairs(leaves_of(run.optimizer)) do
        if entry.leaf.ndim > 0 then moments[#moments + 1] = entry end
      end
      assert.equal(2 * wanted, sum_of_bytes(moments))
      assert.equal(wanted, gradient_bytes(run))
    end)
  end
end)
