-- devices: 8
-- stack_spec.lua: layers of one kind as one module with a leading dim, and how that dim lies. The numbers are those
-- of the checklist of JAX's semantics.
local helper = require "spec.helper"
local ml = require "meshlua"

local nn, optim, P = ml.nn, ml.optim, ml.P
local mesh = ml.make_mesh({4, 2}, {"data", "model"})
local rules = {{"layers", "data"}, {"embed", false}, {"mlp", "model"}}

local Block = nn.module "Block"
function Block:init(rngs)
  self.up = nn.Linear(8, 16, {rngs = rngs, axes = {"embed", "mlp"}})
  self.down = nn.Linear(16, 8, {rngs = rngs, axes = {"mlp", "embed"}})
end
function Block:__call(x) return x + self.down(nn.gelu(self.up(x))) end

local LAYERS = 4
local function stack_of(rngs) return nn.stack(LAYERS, function() return Block(rngs) end) end
local function list_of(rngs)
  local blocks = {}
  for i = 1, LAYERS do blocks[i] = Block(rngs) end
  return blocks
end

local function run_stack(stack, x)
  for i = 1, LAYERS do x = nn.layer(stack, i)(x) end
  return x
end
local function run_scan(stack, x) return (nn.scan(stack, x)) end
local function run_list(list, x)
  for i = 1, LAYERS do x = list[i](x) end
  return x
end

describe("nn.stack", function()
  it("takes more layers than an op takes operands", function()
    local rngs = nn.Rngs(0)
    local layers = {}
    for i = 1, 150 do layers[i] = nn.Linear(2, 3, {rngs = rngs}) end
    local stack = nn.stack(#layers, function(i) return layers[i] end)
    assert.same({150, 2, 3}, {table.unpack(stack.kernel.shape)})
    for _, i in ipairs {1, 64, 65, 128, 129, 150} do
      assert.same(layers[i].kernel:totable(), nn.layer(stack, i).kernel:totable())
    end
  end)

  it("L3: the new dim has a name of its own, and rules place it", function()
    local stack = ml.init(stack_of, {mesh = mesh, rules = rules})
    assert.is_true(nn.is_module(stack) and nn.is_module(stack.up))
    assert.same({"layers", "embed", "mlp"}, stack.up.kernel.axes)
    assert.same({"layers", "mlp"}, stack.up.bias.axes)
    assert.equal("float32[4@data,8,16@model]", ml.typeof(stack.up.kernel))
    assert.equal("float32[4@data,16@model]", ml.typeof(stack.up.bias))
    local specs = ml.get_partition_spec(stack)
    assert.is_true(specs.down.kernel == P("data", "model", nil))
    local opt = optim.adam(stack, {lr = 0.1})
    assert.is_true(opt.state.mu.up.kernel.sharding == stack.up.kernel.sharding)
    assert.same({"layers", "embed", "mlp"}, opt.state.mu.up.kernel.axes)
    helper.raises("[E_SPEC] up.bias: no rule for the logical axis 'blocks'", ml.init, function(rngs)
      return {up = nn.stack(2, function() return nn.Linear(8, 8, {rngs = rngs, axes = {"embed", "mlp"}}) end,
        {axis = "blocks"})}
    end, {mesh = mesh, rules = rules})
  end)

  it("L3: a P keeps its axes behind a whole dim; opt_axes get the name, too", function()
    local stack = ml.init(function()
      return nn.stack(4, function()
        return {w = nn.Param(ml.ones {8, 8}, {axes = P(nil, "model"), opt_axes = {"mlp", "embed"}}),
          b = nn.Param(ml.ones {8})}
      end)
    end, {mesh = mesh, rules = rules})
    assert.is_true(stack.w.axes == P(nil, nil, "model"))
    assert.same({"layers", "mlp", "embed"}, stack.w.opt_axes)
    assert.is_nil(stack.b.axes)
    local opt = optim.adam(stack, {lr = 0.1})
    assert.is_true(opt.state.nu.w.sharding == ml.NamedSharding(mesh, P("data", "model")))
  end)

  it("is the same function as the layers in a list, gradients included", function()
    local list = ml.init(list_of, {seed = 3})
    local stack = ml.init(stack_of, {seed = 3, mesh = mesh, rules = rules})
    local x = ml.random.normal(ml.random.key(1), {4, 8})
    local function grads(model, run)
      return ml.jit(function(m, t)
        return ml.value_and_grad(function(n) return (run(n, t) ^ 2):sum() end)(m)
      end)(model, x)
    end
    local a, of_list = grads(list, run_list)
    local layout = {{"layers", false}, {"embed", false}, {"mlp", "model"}}
    for _, case in ipairs {{stack, run_stack}, {stack, run_scan}, {ml.init(stack_of, {seed = 3}), run_scan},
      {ml.init(stack_of, {seed = 3, mesh = mesh, rules = layout}), run_scan}} do
      local b, of_stack = grads(case[1], case[2])
      helper.close(a, b, 1e-5)
      for i = 1, LAYERS do
        helper.close(of_list[i].up.kernel, of_stack.up.kernel:at(i), 1e-5)
        helper.close(of_list[i].down.bias, of_stack.down.bias:at(i), 1e-5)
      end
    end
  end)

  it("goes through its layers in one loop, with a body of its own", function()
    local stack = ml.init(stack_of, {seed = 3})
    local x = ml.random.normal(ml.random.key(1), {4, 8})
    local last, means = nn.scan(stack, x, function(layer, h)
      local y = layer(h)
      return y, y:mean()
    end)
    helper.close(run_stack(stack, x), last, 1e-6)
    assert.same({LAYERS}, means.shape)
    helper.close(last:mean(), means:at(LAYERS), 1e-6)
    local plan = ml.jit(function(s, t) return (nn.scan(s, t)) end):plan(stack, x)
    local products = 0
    for _, s in ipairs(plan:steps()) do products = products + (s.op == "matmul" and 1 or 0) end
    assert.equal(2, products) -- of one layer, not of four
    helper.raises("[E_VALUE] nn.scan: expected a stack, got nil", nn.scan, nil, x)
    helper.raises("[E_VALUE] nn.scan: expected a function", nn.scan, stack, x, 3)
  end)

  it("refuses layers that differ, and what are none", function()
    local function stack(make) return nn.stack(2, make) end
    helper.raises("[E_SHAPE] nn.stack: w is float32[1] in layer 1 and float32[2] in layer 2", stack,
      function(i) return {w = nn.Param(ml.ones {i})} end)
    helper.raises("[E_VALUE] nn.stack: rate is 1 in layer 1 and 2 in layer 2; layers of a stack differ in "
      .. "their Params alone", stack, function(i) return {rate = i, w = nn.Param(ml.ones {1})} end)
    helper.raises("[E_VALUE] nn.stack: v is nil in layer 1", stack, function(i)
      return {v = i == 2 and nn.Param(ml.ones {1}) or nil}
    end)
    helper.raises("[E_VALUE] nn.stack: 1 Params in layer 1 and 2 in layer 2: some are shared", stack,
      function(i)
      local w = nn.Param(ml.ones {1})
      return {w = w, v = i == 1 and w or nn.Param(ml.ones {1})}
    end)
    helper.raises("[E_VALUE] nn.stack: layer 1 is a number; expected a module", stack,
      function(i) return i end)
    helper.raises("[E_VALUE] nn.stack: 0 layers", nn.stack, 0, list_of)
    helper.raises("[E_VALUE] nn.layer: layer 5 of 4 (down.bias)", nn.layer, ml.init(stack_of), 5)
    helper.raises("[E_KEY] nn.stack: unknown option 'axes'; did you mean 'axis'?", nn.stack, 2, list_of,
      {axes = "x"})
  end)
end)
