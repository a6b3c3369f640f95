-- devices: 8
-- Plans of a convolutional network's train step, of a mixture of experts and of the block of seed 003 send what
-- tests/golden/expected.lua says, and nothing else.
local ml = require "meshlua"
package.path = "models/?.lua;" .. package.path
local check = require "golden.traffic"
local expected = require "golden.expected"
local convnet = require "convnet"
local block = require "spec.seeds.block"

local P, NamedSharding = ml.P, ml.NamedSharding

local function convnet_plan(cfg, sizes, names, rules)
  local mesh = ml.make_mesh(sizes, names)
  local model = ml.init(function(rngs) return convnet.build(cfg, rngs) end, {mesh = mesh, rules = rules})
  local opt = convnet.optimizer(model, cfg)
  local step = ml.jit(function(m, o, x, y)
    local loss, grads = ml.value_and_grad(function(v) return convnet.loss(v, x, y) end)(m)
    return loss, o:update(m, grads).grad_norm
  end, {mesh = mesh, rules = rules})
  local rows = NamedSharding(mesh, P("data"))
  local function batch(shape) return ml.device_put(ml.zeros(shape, "uint8"), rows) end
  return step:plan(model, opt, batch {cfg.batch, 28, 28}, batch {cfg.batch})
end

describe("the plan of a convnet", function()
  local cfg = {dropout = 0.0}
  for key, value in pairs(convnet.config) do cfg[key] = cfg[key] or value end
  local deep = setmetatable({blocks = 3, channels = 16, batch = 64}, {__index = cfg})
  for name, c in pairs {["of two blocks"] = cfg, ["of three blocks"] = deep} do
    it("under dp on data:8, " .. name, function()
      check(convnet_plan(c, {8}, {"data"}, convnet.rules.dp), expected.convnet(c, 8, 1))
    end)
    it("under tp on data:4,model:2, " .. name, function()
      check(convnet_plan(c, {4, 2}, {"data", "model"}, convnet.rules.tp), expected.convnet(c, 4, 2))
    end)
  end
end)

describe("the plan of a mixture of experts", function()
  local cfg = {batch = 8, tokens = 12, width = 16, hidden = 32, experts = 8}
  local whole = {{"batch", false}, {"embed", false}, {"mlp", false}}
  local function plan_of(sizes, names, rules)
    local mesh = ml.make_mesh(sizes, names)
    for _, rule in ipairs(whole) do rules[#rules + 1] = rule end
    local layer = ml.init(function(rngs)
      return ml.nn.MoE(cfg.width, cfg.hidden, cfg.experts, {rngs = rngs})
    end, {mesh = mesh, rules = rules})
    cfg.capacity = layer:capacity(cfg.tokens)
    return ml.jit(function(m, x)
      x = x:constrain {"batch", false, "embed"}
      local loss, grads = ml.value_and_grad(function(v, t)
        local y, balance = v(t)
        return (y * y):sum() + 0.01 * balance
      end, {argnums = {1, 2}})(m, x)
      return loss, grads
    end, {mesh = mesh, rules = rules}):plan(layer, ml.ones {cfg.batch, cfg.tokens, cfg.width})
  end

  it("on the batch's axis", function()
    local plan = plan_of({8}, {"expert"}, {{"batch", "expert"}, {"expert", "expert"}})
    check(plan, expected.moe(cfg, {expert = 8}))
  end)
  it("on an axis beside data", function()
    local plan = plan_of({2, 4}, {"data", "expert"},
      {{"batch", {"data", "expert"}}, {"batch", "data"}, {"expert", "expert"}})
    check(plan, expected.moe(cfg, {data = 2, expert = 4}))
  end)
  it("with their matrices split over model", function()
    local plan = plan_of({4, 2}, {"expert", "model"},
      {{"batch", "expert"}, {"expert", "expert"}, {"mlp", "model"}})
    check(plan, expected.moe(cfg, {expert = 4, model = 2}))
  end)
end)

describe("the plan of the block of seed 003", function()
  local function plan_of(cfg, sizes, rules)
    local mesh = ml.make_mesh(sizes, {"batch", "model"})
    local model = ml.init(function(rngs)
      return block.TransformerBlock(cfg.width, cfg.heads, cfg.hidden, 0.1, rngs)
    end, {mesh = mesh, rules = rules})
    local x = ml.device_put(ml.ones {cfg.batch, cfg.seq, cfg.width}, NamedSharding(mesh, P("batch")))
    return ml.jit(function(m, inputs)
      local loss, grads = ml.value_and_grad(function(v) return (v(inputs) ^ 2):mean() end)(m)
      return loss, ml.tree.map(function(p, g) return p - 0.1 * g end, ml.state(m), grads)
    end, {mesh = mesh}):plan(model, x)
  end

  --- Bytes that one device sends by the list: rings, of `over` devices each.
  local function sent(list, over)
    local sum = 0
    for _, entry in ipairs(list) do
      local n = over[entry[2]]
      local share = {all_reduce = 2 * (n - 1) / n, all_gather = n - 1, reduce_scatter = (n - 1) / n}
      sum = sum + entry[4] * share[entry[1]]
    end
    return sum
  end

  local wide = {batch = 8, seq = 6, width = 32, heads = 4, hidden = 64}
  local narrow = {batch = 16, seq = 5, width = 16, heads = 8, hidden = 48}
  for name, case in pairs {["batch:4,model:2"] = {wide, 4, 2}, ["batch:2,model:4"] = {narrow, 2, 4}} do
    local cfg, batch, model = table.unpack(case)
    it("under Megatron's rules, and dim 1 of everything over model, on " .. name, function()
      local megatron = plan_of(cfg, {batch, model}, block.rules.megatron)
      local slides = plan_of(cfg, {batch, model}, block.rules.slides)
      check(megatron, expected.block_megatron(cfg, batch, model))
      check(slides, expected.block_slides(cfg, batch, model))
      -- What that costs beyond Megatron's rules stands in explain, with the dims that it comes from.
      local over = {batch = batch, model = model, ["batch,model"] = batch * model}
      local beyond = sent(expected.block_slides(cfg, batch, model), over)
        - sent(expected.block_megatron(cfg, batch, model), over)
      local told, shorter = ml.explain(slides), ml.explain(megatron)
      assert.is_true(beyond > 0)
      assert.equal(beyond, told.sent - shorter.sent)
      local contractions = 0
      for _, row in ipairs(told.collectives) do
        if row.op == "reduce_scatter" then
          assert.truthy(row.reasons[1]:find "^matmul runs over dim %d of x and dim 1 of w, split on model$")
          assert.truthy(row.by[1]:find("%.kernel"), row.by[1])
          contractions = contractions + row.count
        end
      end
      assert.equal(6, contractions)
    end)
  end
end)
