-- devices: 8
-- llama_spec.lua: the recipe models/llama.lua: what it builds, that it learns, that its layouts change nothing.
local helper = require "spec.helper"
local llama = require "models.llama"
local ml = require "meshlua"

local nn, train = ml.nn, ml.train

local function config(changes)
  local cfg = {}
  for name, value in pairs(llama.config) do cfg[name] = value end
  for name, value in pairs {layers = 2, width = 32, heads = 4, kv_heads = 2, hidden = 48, seq = 16,
      vocab = 64, batch = 8, steps = 20} do
    cfg[name] = value
  end
  for name, value in pairs(changes or {}) do cfg[name] = value end
  return cfg
end

local function made(changes, where)
  local cfg = config(changes)
  return ml.init(function(rngs) return llama.build(cfg, rngs) end, where or {rules = llama.rules.dp}), cfg
end

--- Calls fn(model, ids) in a jitted function under rules for one device.
local function run(model, ids, fn)
  return ml.jit(fn or function(m, x) return m(x) end, {rules = llama.rules.dp})(model, ids)
end

local function tokens(rows, length, vocab)
  return ml.random.randint(ml.random.key(9), {rows, length}, 0, vocab)
end

local function parameters(model)
  local count = 0
  ml.tree.visit(model, function(_, box) count = count + box.size end)
  return count
end

describe("the LLaMA recipe", function()
  helper.figures("has as many parameters as the published models", function()
    for name, count in pairs {["llama-2-7b"] = 6738415616, ["llama-2-13b"] = 13015864320,
        ["llama-2-70b"] = 68976648192, ["llama-3-8b"] = 8030261248, ["llama-3-70b"] = 70553706496,
        ["llama-3.1-8b"] = 8030261248, ["llama-3.2-1b"] = 1235814400, ["llama-3.2-3b"] = 3212749824,
        ["tinyllama-1.1b"] = 1100048384, ["smollm-135m"] = 134515008, ["smollm2-135m"] = 134515008,
        ["smollm2-360m"] = 361821120, ["smollm2-1.7b"] = 1711376384} do
      local cfg = config(llama.sizes[name])
      assert.equal(count, parameters(ml.abstract(function() return llama.build(cfg, nn.Rngs(0)) end)), name)
    end
  end)

  it("gives logits for each position from what stands before it", function()
    for _, changes in ipairs {{}, {tied = true, head_dim = 16}, {kv_heads = 4},
        {kv_heads = 1, rope_factor = 8.0}} do
      local model = made(changes)
      local ids = tokens(2, 16, 64)
      local y = run(model, ids)
      assert.same({2, 16, 64}, y.shape)
      local changed = ml.concat({ids:slice(false, {1, 10}), (ids:slice(false, {11, 16}) + 1) % 64}, 2)
      local z = run(model, changed)
      helper.close(y:slice(false, {1, 10}), z:slice(false, {1, 10}))
      assert.is_string(helper.difference(y:slice(false, 11), z:slice(false, 11)))
    end
  end)

  it("has no biases, and no head where it is tied", function()
    local paths = {}
    ml.tree.visit(made {layers = 1, tied = true}, function(path) paths[#paths + 1] = path end)
    assert.same({"embed.embedding", "layers.1.attn.key.kernel", "layers.1.attn.out.kernel",
      "layers.1.attn.query.kernel", "layers.1.attn.value.kernel", "layers.1.mlp.down.kernel",
      "layers.1.mlp.gate.kernel", "layers.1.mlp.up.kernel", "layers.1.norm_1.scale", "layers.1.norm_2.scale",
      "norm.scale"}, paths)
    assert.same({32, 64}, made().head.kernel.shape)
  end)

  it("starts at the loss of a uniform guess", function()
    local loss = run(made(), tokens(8, 17, 64), function(m, x)
      return llama.loss(m, x:slice(false, {1, 16}), x:slice(false, {2, 17}))
    end)
    assert.is_true(math.abs(loss:item() - math.log(64)) < 0.1)
  end)

  it("refuses heads that do not fit", function()
    helper.raises("3 key heads for 4 heads; the first must divide the second", made, {kv_heads = 3})
    helper.raises("5 heads do not divide the width 32", made, {heads = 5})
    helper.raises("id 64 is outside 0..63", run, made(), ml.full({2, 16}, 64))
  end)

  it("16-bit: bfloat16 arithmetic stays near float32's", function()
    local ids = tokens(8, 16, 64)
    local losses = {}
    for i, precision in ipairs {"", "bf16"} do
      losses[i] = run(made {precision = precision}, ids, function(m, x) return llama.loss(m, x, x) end):item()
    end
    assert.near(losses[1], losses[2], 0.02)
  end)
end)

describe("a LLaMA on", function()
  local words = {}
  for i = 1, 4000 do words[i] = ("%d "):format(i * i % 977) end
  local STEPS = 12
  local cfg = config {width = 64, heads = 8, kv_heads = 4, hidden = 96, batch = 16, steps = STEPS, warmup = 4,
    vocab = 128}
  local data = assert(llama.data(cfg, helper.file(table.concat(words))))
  local first_losses, first_parameters

  for _, case in ipairs {{"none", "dp"}, {"data:8", "dp"}, {"data:4,model:2", "tp"}, {"data:2,model:4", "tp"},
      {"data:4,model:2", "tp_sp"}, {"data:4,model:2", "fsdp"}, {"data:8", "fsdp"},
      {"data:4,model:2", "fsdp_tp"}} do
    it(table.concat(case, " ") .. ": the same parameters to begin with, the same losses", function()
      local this = train.run(llama, {config = cfg, seed = 1, mesh = train.mesh(case[1]),
        rules = llama.rules[case[2]], data = data})
      local held = {}
      ml.tree.visit(this.model, function(path, box) held[path] = box:get():bytes() end)
      first_parameters = first_parameters or held
      assert.same(first_parameters, held)
      local losses = {}
      this:train(function(row) losses[row.step] = row.loss end)
      assert.equal(STEPS, #losses)
      first_losses = first_losses or losses
      for step, loss in ipairs(first_losses) do
        assert.near(1, losses[step] / loss, 1e-4, "step " .. step)
      end
      assert.is_true(losses[STEPS] < 0.8 * losses[1], losses[STEPS])
    end)
  end
end)

describe("the plan of a LLaMA's step", function()
  local L, B, T, C = 2, 16, 16, 64
  local cfg = config {layers = L, width = C, heads = 8, kv_heads = 4, hidden = 96, batch = B,
    rope_factor = 8.0}

  --- The plan of value and gradients on data=4, model=2.
  local function plan(rules)
    local where = {mesh = ml.make_mesh({4, 2}, {"data", "model"}), rules = llama.rules[rules]}
    local model, ids = made(cfg, where), ml.zeros({B, T}, "int32")
    return ml.jit(function(m, x)
      return ml.value_and_grad(function(n) return llama.loss(n, x, x) end)(m)
    end, where):plan(model, ids)
  end

  it("under tp sums activations twice a block, forward and backward, and nothing else over model", function()
    local bytes = B // 4 * T * C * 4
    ml.expect(plan "tp", {["all_reduce over model"] = {count = 4 * L, bytes = 4 * L * bytes}, all_gather = 0,
      all_to_all = 0, reduce_scatter = 0, permute = 0})
  end)

  it("under tp_sp each of these is a gather and a scatter of half the tokens", function()
    ml.expect(plan "tp_sp", {["all_gather over model"] = 4 * L, ["reduce_scatter over model"] = 4 * L,
      all_to_all = 0})
  end)

  it("under dp sums the loss and each gradient over all devices", function()
    local n = parameters(made(cfg))
    ml.expect(plan "dp", {all_reduce = {bytes = 4 * (n + 1)}, all_gather = 0, all_to_all = 0,
      reduce_scatter = 0})
  end)
end)
