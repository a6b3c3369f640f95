-- devices: 8
-- Plans of a GPT's train step send what tests/golden/expected.lua says, and nothing else.
local ml = require "meshlua"
local expected = require "golden.expected"
local recipe = require "models.gpt"

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

--- "op over axes" -> {count, bytes}, of a plan's collectives.
local function sent(plan)
  local by_kind = {}
  for _, c in ipairs(plan:collectives()) do
    local kind = c.op .. " over " .. table.concat(c.axes, ",")
    local sum = by_kind[kind] or {0, 0}
    by_kind[kind] = {sum[1] + 1, sum[2] + math.tointeger(c.bytes)}
    assert.truthy(c.why, kind .. " has no reason")
    assert.truthy(c.where[1], kind .. " has no place")
    for _, r in ipairs(c.reasons) do
      assert.truthy(r.tensor:find "^[%w_.]+ %w+%[.*%]" and r.where and #r.origins > 0, kind .. ": " .. r.text)
    end
  end
  return by_kind
end

local function check(plan, list)
  local got = sent(plan)
  for _, entry in ipairs(list) do
    local kind = entry[1] .. " over " .. entry[2]
    local sum = got[kind] or {0, 0}
    local least, most = entry[3], entry[3]
    if type(least) == "table" then least, most = least[1], least[2] end
    if least then
      assert.is_true(least <= sum[1] and sum[1] <= most, kind .. ": " .. sum[1] .. " of them")
    end
    assert.equal(entry[4], sum[2], kind .. ": bytes")
    got[kind] = nil
  end
  assert.same({}, got, "and nothing else")
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
