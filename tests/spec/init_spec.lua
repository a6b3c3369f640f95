-- devices: 8
-- init_spec.lua: ml.init makes parameters in their shardings, the same bits in every layout, and no device
-- sees the whole; ml.abstract tells the types without making them.
local ml = require "meshlua"
local gpt = require "models.gpt"
local helper = require "spec.helper"

local nn, P = ml.nn, ml.P

local cfg = {}
for name, value in pairs(gpt.config) do cfg[name] = value end
cfg.layers = 2

local function build(rngs) return gpt.build(cfg, rngs) end

--- Every parameter as numbers, by path.
local function numbers(model)
  local found = {}
  ml.tree.visit(model, function(path, box) found[path] = box:get():totable() end)
  return found
end

describe("ml.init", function()
  it("gives the same bits in every layout and without a mesh", function()
    local expected = numbers(ml.init(build, {seed = 3}))
    local layouts = {
      {{8}, {"data"}, {"dp", "tp", "fsdp"}}, {{8, 1}, {"data", "model"}, {"tp"}},
      {{4, 2}, {"data", "model"}, {"dp", "tp", "fsdp", "fsdp_tp"}},
      {{2, 4}, {"data", "model"}, {"tp", "fsdp_tp"}}, {{1, 8}, {"data", "model"}, {"tp"}},
      {{8}, {"model"}, {"dp", "tp"}},
    }
    for _, layout in ipairs(layouts) do
      local mesh = ml.make_mesh(layout[1], layout[2])
      for _, name in ipairs(layout[3]) do
        local made = numbers(ml.init(build, {mesh = mesh, rules = gpt.rules[name], seed = 3}))
        assert.same(expected, made, name .. " on " .. tostring(mesh))
      end
    end
  end)

  it("under the recipe's fsdp biases and norms of a wide model stay whole, of any size", function()
    local wide = setmetatable({width = 4104, heads = 36, layers = 1}, {__index = cfg})
    local on = {mesh = ml.make_mesh({8, 1}, {"data", "model"}), rules = gpt.rules.fsdp_tp}
    local made = ml.abstract(function()
      return ml.init(function(rngs) return gpt.build(wide, rngs) end, on)
    end)
    local block = made.h[1]
    -- 36 heads of 114: 8 divides the width, and neither of these.
    assert.equal(P("model", nil), block.attn.query.bias.sharding.spec)
    assert.equal(P(nil), block.ln_1.scale.sharding.spec)
    assert.equal(P("data", "model", nil), block.attn.query.kernel.sharding.spec)
  end)

  it("under fsdp each device holds an eighth, computes an eighth, and sees nothing whole", function()
    local mesh = ml.make_mesh({8}, {"data"})
    local made = ml.jit(function()
      return ml.state(ml.init(build, {mesh = mesh, rules = gpt.rules.fsdp}))
    end, {mesh = mesh})
    local plan, whole, of_device, largest = made:plan(), 0, 0, 0
    ml.tree.visit(made(), function(_, t)
      local shard = 1
      for _, size in ipairs(t.sharding:shard_shape(t.shape)) do shard = shard * size end
      whole, of_device, largest = whole + 4 * t.size, of_device + 4 * shard, math.max(largest, 4 * shard)
    end)
    assert.is_true(of_device < whole / 8 + largest)
    local peak = plan:memory().peak
    assert(peak <= whole / 8 + largest, ("peak %d, bound %d"):format(peak, whole // 8 + largest))
    assert.equal(0, #plan:collectives())
    for _, step in ipairs(plan:steps()) do
      for _, tensor in ipairs(step.outputs) do assert.is_true(tensor.bytes <= largest) end
    end
  end)

  it("no node of the partitioned program is larger than the largest shard", function()
    local mesh = ml.make_mesh({8}, {"data"})
    local file, own = helper.file "", {}
    for name, value in pairs(cfg) do own[name] = value end
    own.width = 192 -- as no other model here: a plan that is known is not made again, and not dumped
    ml.core.dump("partition:" .. file)
    local model = ml.init(function(rngs) return gpt.build(own, rngs) end,
      {mesh = mesh, rules = gpt.rules.fsdp})
    ml.core.dump()
    local largest, looked = 0, 0
    ml.tree.visit(model, function(_, box)
      local shard = 1
      for _, size in ipairs(box.sharding:shard_shape(box.shape)) do shard = shard * size end
      largest = math.max(largest, shard)
    end)
    for line in io.lines(file) do
      local dims = line:match "^%%.- : %w+%[([%d,]*)%]"
      local count = dims and 1
      for size in (dims or ""):gmatch "%d+" do count = count * math.tointeger(size) end
      if count then
        looked = looked + 1
        assert(count <= largest, line)
      end
    end
    assert.is_true(looked > 200)
  end)

  it("a Param without axes is replicated, a plain tensor in the tree, too", function()
    local mesh = ml.make_mesh({8}, {"data"})
    local model = ml.init(function(rngs)
      return {w = nn.Param(ml.random.normal(rngs.params(), {8})), table = ml.arange(4), n = 3}
    end, {mesh = mesh})
    assert.equal(ml.NamedSharding(mesh, P()), model.w.sharding)
    assert.equal(ml.NamedSharding(mesh, P()), model.table.sharding)
    assert.same({0, 1, 2, 3}, model.table:totable())
    assert.equal(3, model.n)
  end)

  it("takes mesh and rules from the context, and the seed 0 by default", function()
    local mesh = ml.make_mesh({4, 2}, {"data", "model"})
    local model = mesh:with(gpt.rules.tp, ml.init, build)
    assert.equal(ml.NamedSharding(mesh, P(nil, "model")), model.h[1].mlp.up.kernel.sharding)
    assert.same(numbers(ml.init(build, {seed = 0})), numbers(model))
    assert.is_string(helper.difference(model.wte.embedding, ml.init(build, {seed = 1}).wte.embedding))
  end)

  it("streams that the module keeps go on behind it", function()
    local model = ml.init(function(rngs)
      return {drop = nn.Dropout(0.5, {rngs = rngs}), w = nn.Param(ml.random.normal(rngs.params(), {4}))}
    end)
    local x = ml.ones {64}
    assert.is_string(helper.difference(model.drop(x), model.drop(x)))
  end)

  it("wrong arguments and shardings are named", function()
    helper.raises("init: expected a function(rngs) that makes a module, or a class of nn.module, "
      .. "got a number", ml.init, 3)
    helper.raises("got nil", ml.init)
    helper.raises("init: a Sequential is made already; pass its class", ml.init, nn.Sequential {nn.relu})
    helper.raises("expected a module", ml.init, function() return 3 end)
    helper.raises("whole number", ml.init, build, {seed = 0.5})
    helper.raises("did you mean 'rules'", ml.init, build, {rule = {}})
    local mesh = ml.make_mesh({8}, {"data"})
    local function one(axes, shape)
      return function() return {deep = {w = nn.Param(ml.zeros(shape), {axes = axes})}} end
    end
    local message = helper.raises("E_INDIVISIBLE", ml.init, one(P("data"), {12}), {mesh = mesh})
    assert.truthy(message:find("deep.w", 1, true), message)
    helper.raises("deep.w", ml.init, one({"a"}, {8}), {mesh = mesh, rules = {{"b", "data"}}})
    helper.raises("mean nothing without rules", ml.init, one({"a"}, {8}), {mesh = mesh})
  end)
end)

describe("a class", function()
  local Pair = nn.module "Pair"
  function Pair:init(rngs)
    self.first = nn.Linear(8, 16, {rngs = rngs, axes = {"embed", "hidden"}})
    self.second = nn.Linear(16, 8, {rngs = rngs, axes = {"hidden", "embed"}})
  end
  function Pair:__call(x) return self.second(nn.relu(self.first(x))) end

  it("is made as by a function around it, on a mesh, too", function()
    local rules = {{"hidden", "model"}, {"embed", false}}
    local on = {mesh = ml.make_mesh({8}, {"model"}), rules = rules, seed = 5}
    local made = ml.init(Pair, on)
    assert.equal("Pair", getmetatable(made).__name)
    assert.same(numbers(ml.init(function(rngs) return Pair(rngs) end, {seed = 5})), numbers(made))
    assert.equal(P(nil, "model"), made.first.kernel.sharding.spec)
  end)

  it("and a module are what ml.abstract takes", function()
    local types = ml.abstract(Pair, nn.Rngs(0))
    assert.same({8, 16}, {table.unpack(types.first.kernel.shape)})
    local y = ml.abstract(ml.init(Pair), ml.ShapeDtypeStruct({3, 8}, "float32"))
    assert.same({3, 8}, {table.unpack(y.shape)})
    helper.raises("abstract: expected a function, got a number", ml.abstract, 3)
  end)
end)

describe("ml.abstract", function()
  it("gives types in the place of tensors and Params, with their shardings", function()
    local mesh = ml.make_mesh({4, 2}, {"data", "model"})
    local before = ml.core.memory().live
    local types = ml.abstract(function()
      return ml.init(function(rngs)
        return nn.Linear(1 << 20, 1 << 20, {rngs = rngs, axes = P(nil, "model")}) -- 4 TiB
      end, {mesh = mesh})
    end)
    assert.is_true(ml.core.memory().live - before < 1 << 20)
    assert.equal("float32[1048576,1048576@model]", tostring(types.kernel))
    assert.same({1 << 20, 1 << 19}, types.kernel.sharding:shard_shape(types.kernel.shape))
    assert.same({"param", 2, 1 << 40, "float32"},
      {types.kernel.kind, types.kernel.ndim, types.kernel.size, types.kernel.dtype})
    assert.equal(1, types.inputs)
  end)

  it("an optimizer's state is known to lie as its Params do", function()
    local mesh = ml.make_mesh({4, 2}, {"data", "model"})
    local types = ml.abstract(function()
      local model = ml.init(build, {mesh = mesh, rules = gpt.rules.fsdp_tp})
      return {model = model, opt = gpt.optimizer(model, cfg)}
    end)
    local up = types.model.h[1].mlp.up.kernel
    assert.equal("float32[128@data,512@model]", tostring(up))
    assert.equal(tostring(up), tostring(types.opt.state.nu.h[1].mlp.up.kernel))
    assert.equal(ml.NamedSharding(mesh, P()), types.opt.count.sharding)
  end)

  it("of any function, with types as arguments", function()
    local x = ml.abstract(function() return ml.zeros({8, 3}, "bfloat16") end)
    local y, n = ml.abstract(function(t) return t:matmul(ml.ones({3, 5}, "bfloat16")), 7 end, x)
    assert.equal("bfloat16[8,5]", tostring(y))
    assert.equal(7, n)
    helper.raises("E_SHAPE", ml.abstract, function(t) return t:matmul(t) end, x)
    helper.raises("E_VALUE", ml.abstract, x)
  end)
end)
