-- devices: 8
-- Plans of a GPT's train step send what tests/golden/expected.lua says, and nothing else.
local ml = require "meshlua"
local expected = require "golden.expected"
local decoder = require "models.decoder"
local recipe = require "models.gpt"
local step_of = require "meshlua.plan.step"
local check = require "golden.traffic"

local P, NamedSharding = ml.P, ml.NamedSharding

local function config(changes)
  local cfg = {}
  for key, value in pairs(recipe.config) do cfg[key] = changes[key] or value end
  return cfg
end

--- The plan of a train step.
local function plan_of(cfg, sizes, names, rules, batch)
  local mesh = ml.make_mesh(sizes, names)
  local model = ml.init(function(rngs) return recipe.build(cfg, rngs) end, {mesh = mesh, rules = rules})
  local opt = recipe.optimizer(model, cfg)
  local step = ml.jit(function(m, o, x, y)
    local loss, grads = ml.value_and_grad(function(v) return recipe.loss(v, x, y) end)(m)
    return loss, o:update(m, grads).grad_norm
  end, {mesh = mesh, rules = rules})
  local ids = ml.device_put(ml.zeros({cfg.batch, cfg.seq}, "int32"), NamedSharding(mesh, batch or P("data")))
  return step:plan(model, opt, ids, ids)
end

local sizes = {
  ["the default model"] = config {},
  ["weights larger than activations"] = config {batch = 8, seq = 16, width = 512},
}
for name, cfg in pairs(sizes) do
  describe("the plan of " .. name, function()
    it("under dp on data:8", function()
      local plan = plan_of(cfg, {8}, {"data"}, recipe.rules.dp)
      check(plan, expected.dp(cfg))
    end)
    it("under tp on data:4,model:2", function()
      local plan = plan_of(cfg, {4, 2}, {"data", "model"}, recipe.rules.tp)
      check(plan, expected.tp(cfg, 4, 2))
    end)
    it("under tp on model:8", function()
      local plan = plan_of(cfg, {1, 8}, {"data", "model"}, recipe.rules.tp)
      local list = expected.tp(cfg, 1, 8)
      check(plan, {list[1]}) -- one part of the batch: nothing over data
    end)
    for _, sizes_2d in ipairs {{4, 2}, {2, 4}} do
      local data, model = table.unpack(sizes_2d)
      it(("under tp_sp on data:%d,model:%d"):format(data, model), function()
        local plan = plan_of(cfg, sizes_2d, {"data", "model"}, recipe.rules.tp_sp)
        check(plan, expected.tp_sp(cfg, data, model))
      end)
      it(("under fsdp_tp on data:%d,model:%d"):format(data, model), function()
        local plan = plan_of(cfg, sizes_2d, {"data", "model"}, recipe.rules.fsdp_tp)
        check(plan, expected.fsdp_tp(cfg, nil, data, model, recipe.min_sharded))
      end)
    end
    it("under fsdp_tp with data beside it, on data:2,fsdp:2,model:2", function()
      local rules = {ml.shard_largest("fsdp", recipe.min_sharded), {"batch", {"data", "fsdp"}}}
      for _, rule in ipairs(recipe.rules.tp) do
        if rule[1] ~= "batch" then rules[#rules + 1] = rule end
      end
      local plan = plan_of(cfg, {2, 2, 2}, {"data", "fsdp", "model"}, rules, P {"data", "fsdp"})
      check(plan, expected.fsdp_tp(cfg, 2, 2, 2, recipe.min_sharded))
    end)
    it("under fsdp on data:8", function()
      local plan = plan_of(cfg, {8}, {"data"}, recipe.rules.fsdp)
      check(plan, expected.fsdp(cfg, 8, recipe.min_sharded))
    end)
  end)
end

-- A block that is computed again and its gradient share a gather: remat sends nothing more.
describe("the plan of a decoder under fsdp on data:8, blocks computed again:", function()
  local cfg = setmetatable({layers = 2, width = 256, heads = 4, kv_heads = 4, head_dim = 64, hidden = 1024,
    vocab = 512, seq = 256, batch = 16, tied = true, positions = "alibi", attention_bias = true,
    out_bias = true, mlp_bias = true}, {__index = decoder.config})
  local function plan_with(remat, scan)
    local own = setmetatable({remat = remat, scan = scan}, {__index = cfg})
    local layout = {axes = {"data"}, sizes = {8}, rules = "fsdp", microbatches = 1, kernels = "compiled"}
    return step_of.plan(decoder, own, step_of.data(decoder, own), layout)
  end
  local function bytes_of(planned, op)
    local sum = 0
    for _, item in ipairs(planned.work.items) do
      if item.op == op then sum = sum + item.step.bytes * item.times end
    end
    return sum
  end
  for _, remat in ipairs {"none", "dots", "full"} do
    it(remat, function()
      local list = expected.fsdp(setmetatable({seq = 0}, {__index = cfg}), 8, decoder.min_sharded) -- no positions
      for _, scan in ipairs {false, true} do
        local planned = plan_with(remat, scan)
        for _, entry in ipairs(list) do
          if entry[1] ~= "all_reduce" then assert.equal(entry[4], bytes_of(planned, entry[1]), entry[1]) end
        end
      end
    end)
  end
end)
