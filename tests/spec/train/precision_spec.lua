-- devices: 8
-- precision_spec.lua: arithmetic in 16 bits over parameters in 32.
local helper = require "spec.helper"
local ml = require "meshlua"
package.path = "models/?.lua;" .. package.path
local gpt = require "gpt"

local config = {}
for key, value in pairs(gpt.config) do config[key] = value end
for key, value in pairs {layers = 2, width = 64, heads = 8, seq = 16, batch = 16, steps = 20, warmup = 5,
    lr = 3e-3, vocab = 128} do
  config[key] = value
end

local words = {}
for i = 1, 4000 do words[i] = ("%d "):format(i * i % 977) end
local data = assert(gpt.data(config, helper.file(table.concat(words))))

local function new_run(precision, mesh, rules)
  local cfg = {}
  for key, value in pairs(config) do cfg[key] = value end
  cfg.precision = precision
  return ml.train.run(gpt, {config = cfg, seed = 1, mesh = ml.train.mesh(mesh or "none"),
    rules = gpt.rules[rules or "dp"], data = data})
end

local function losses(run)
  local list = {}
  run:train(function(row) list[#list + 1] = row.loss end)
  return list
end

--- The plan of a train step.
local function plan_of(run)
  local batch = data.train:shuffled({batch = config.batch, seed = 1, shardings = run.shardings})(1)
  return run.train_step:plan(run.model:train(), run.optimizer, run.rngs, batch.inputs, batch.labels,
    run.loss_scale)
end

local function dtypes_of(operands)
  local names = {}
  for i, x in ipairs(operands) do names[i] = x.dtype end
  return table.concat(names, " ")
end

describe("precision bf16", function()
  it("multiplies bfloat16 by bfloat16 in every block, and holds float32", function()
    local run, products = new_run "bf16", 0
    for _, step in ipairs(plan_of(run):steps()) do
      if step.kernel == "matmul" then
        products = products + 1
        assert.equal("bfloat16 bfloat16", dtypes_of(step.inputs), step.where[1])
      elseif step.kernel == "attention" then
        assert.equal("bfloat16 bfloat16 bfloat16", dtypes_of(step.inputs))
      end
    end
    -- Forward, and two products backward, of 6 matrices a block and of the head.
    assert.equal(3 * (6 * config.layers + 1), products)
    ml.tree.visit(run.model, function(path, leaf) assert.equal("float32", leaf.dtype, path) end)
  end)

  it("sums gradients over devices in float32", function()
    for _, c in ipairs(plan_of(new_run("bf16", "data:8")):collectives()) do
      assert.equal("all_reduce", c.op)
      for _, x in ipairs(c.inputs) do assert.equal("float32", x.dtype, c.where[1]) end
    end
  end)

  it("gathers weights as bfloat16 under fsdp, once for each use", function()
    local function gathers(precision)
      local n, bytes = 0, 0
      for _, c in ipairs(plan_of(new_run(precision, "data:8", "fsdp")):collectives()) do
        if c.op == "all_gather" then n, bytes = n + 1, bytes + c.bytes end
        if c.op == "reduce_scatter" then assert.equal("float32", c.inputs[1].dtype) end
      end
      return n, bytes
    end
    local n16, bytes16 = gathers "bf16"
    local n32, bytes32 = gathers ""
    assert.equal(n32, n16)
    -- Only the table of positions and the one of tokens are looked up before they are converted.
    local lookups = (config.vocab * config.width + 0) * 4 / 8
    assert.equal((bytes32 - lookups) / 2 + lookups, bytes16)
  end)

  it("trains like float32", function()
    local a, b = losses(new_run ""), losses(new_run("bf16", "data:4,model:2", "tp"))
    for i = 1, #a do assert.near(a[i], b[i], 0.02 * a[i], "step " .. i) end
    assert.is_true(b[#b] < 0.8 * b[1])
  end)

  it("is refused where it is no dtype", function()
    helper.raises("bf61: expected bf16, f16 or f32; did you mean bf16?", new_run, "bf61")
  end)
end)

describe("precision f16", function()
  it("trains like float32, with a loss scale", function()
    local a, b = losses(new_run ""), losses(new_run "f16")
    for i = 1, #a do assert.near(a[i], b[i], 0.02 * a[i], "step " .. i) end
  end)

  it("leaves everything as it was where a gradient overflows, and halves the scale", function()
    local w, scale = ml.nn.Param(ml.tensor {1.0, 2.0}), ml.optim.LossScale {initial = 65536.0, interval = 2}
    local model, seen = {w = w}, {}
    local opt = ml.optim.adam(model, {lr = 0.1})
    local step = ml.jit(function(m, o, s, x)
      local grads = ml.grad(function(v)
        return s:scaled((v.w:astype "float16" * x):sum():astype "float32")
      end)(m)
      local done = o:update(m, s:unscaled(grads), {if_finite = true})
      s:note(done.finite)
      return done.finite
    end)
    for i, x in ipairs {4.0, 0.25, 0.25, 0.25} do
      local before = w:get():totable()
      local finite = step(model, opt, scale, ml.full({2}, x, "float16")):item()
      seen[i] = {finite, scale.scale:get():item(), opt.count:get():item()}
      assert.equal(finite, w:get():totable()[1] ~= before[1])
    end
    -- 65536 does not fit float16 (65504); after the skip the scale is half, and doubles after two updates.
    assert.same({{false, 32768.0, 0}, {true, 32768.0, 1}, {true, 65536.0, 2}, {false, 32768.0, 2}}, seen)
  end)
end)
