-- devices: 8
-- remat_spec.lua: what gradients keep of a function under remat, and that nothing else changes. C4 is the
-- number in the checklist of JAX's semantics.
local helper = require "spec.helper"
local ml = require "meshlua"

local P, NamedSharding, random = ml.P, ml.NamedSharding, ml.random
local policies = ml.remat_policies

local function block(x, w)
  local h = ml.checkpoint_name(x:matmul(w[1]), "up"):sin()
  return ml.checkpoint_name(h:square(), "act"):matmul(w[2]):tanh()
end

local function data(n)
  local key, w = random.key(3), {}
  for i = 1, n do
    w[i] = {random.normal(random.fold_in(key, i), {16, 64}) * 0.2,
      random.normal(random.fold_in(key, -i), {64, 16}) * 0.2}
  end
  return random.normal(key, {32, 16}), w
end

local function loss_of(layer)
  return function(x, ws)
    for _, w in ipairs(ws) do x = layer(x, w) end
    return (x * 0.5):sum()
  end
end

local function step_of(layer) return ml.jit(ml.value_and_grad(loss_of(layer), {argnums = {1, 2}})) end

local function bytes_of(tree)
  local out = {}
  ml.tree.visit(tree, function(path, x) out[#out + 1] = path .. x:bytes() end)
  return table.concat(out)
end

--- How often a plan runs an op, in steps of its own or fused.
local function count(plan, op)
  local n = 0
  for _, step in ipairs(plan:steps()) do
    for _, name in ipairs(#step.ops > 0 and step.ops or {step.op}) do n = n + (name == op and 1 or 0) end
  end
  return n
end

describe("remat", function()
  after_each(function() ml.config {passes = {fuse = "default"}} end)

  it("C4: changes no bit of values and gradients, and needs less memory", function()
    local x, ws = data(6)
    local plain, saving = step_of(block), step_of(ml.remat(block))
    local l1, g1 = plain(x, ws)
    local l2, g2 = saving(x, ws)
    assert.equal(l1:bytes(), l2:bytes())
    assert.equal(bytes_of(g1), bytes_of(g2))
    local before, after = plain:plan(x, ws):memory(), saving:plan(x, ws):memory()
    -- Between the blocks one activation each is kept, instead of five inside each.
    assert.truthy(after.temporaries < 0.5 * before.temporaries)
  end)

  -- What each policy computes a second time in one block: products, sines and squares of the six layers.
  local table_of = {
    {"everything_saveable", policies.everything_saveable, 0, 0, 0},
    {"nothing_saveable", policies.nothing_saveable, 2, 1, 1},
    {"dots_saveable", policies.dots_saveable, 0, 1, 1},
    {"dots_with_no_batch_dims_saveable", policies.dots_with_no_batch_dims_saveable, 0, 1, 1},
    {"save_only_these_names(up)", policies.save_only_these_names "up", 1, 1, 1},
    {"save_only_these_names(act)", policies.save_only_these_names "act", 2, 1, 0},
    {"save_only_these_names(up, act)", policies.save_only_these_names("up", "act"), 1, 1, 0},
    {"save_only_these_names(none of them)", policies.save_only_these_names "other", 2, 1, 1},
    {"save_anything_except_these_names(up)", policies.save_anything_except_these_names "up", 1, 0, 0},
    {"save_anything_except_these_names(act)", policies.save_anything_except_these_names "act", 0, 0, 1},
    {"save_any_names_but_these(up)", policies.save_any_names_but_these "up", 2, 1, 0},
    {"save_from_both_policies", policies.save_from_both_policies(policies.dots_saveable,
      policies.save_only_these_names "act"), 0, 1, 0},
  }
  for _, case in ipairs(table_of) do
    it("C4: " .. case[1] .. " says what is computed again", function()
      ml.config {passes = {fuse = false}} -- which computes again what is cheap, whatever is saved
      local x, ws = data(3)
      local plain, step = step_of(block), step_of(ml.remat(block, {policy = case[2]}))
      local before, after = plain:plan(x, ws), step:plan(x, ws)
      local _, g1 = plain(x, ws)
      local _, g2 = step(x, ws)
      assert.equal(bytes_of(g1), bytes_of(g2))
      assert.equal(3 * case[3], count(after, "matmul") - count(before, "matmul"), "products")
      assert.equal(3 * case[4], count(after, "sin") - count(before, "sin"), "sines")
      assert.equal(3 * case[5], count(after, "square") - count(before, "square"), "squares")
    end)
  end

  it("C4: products with a batch dim are told from those without", function()
    local function layer(x, w) return x:matmul(w):matmul(x:swapaxes(-1, -2)):sin() end
    local x, w = random.normal(random.key(1), {2, 8, 8}), random.normal(random.key(2), {8, 8})
    local function products(policy)
      local step = ml.jit(ml.value_and_grad(function(a, b)
        return ml.remat(layer, {policy = policy})(a, b):sum()
      end, {argnums = {1, 2}}))
      return count(step:plan(x, w), "matmul")
    end
    local all = products(policies.everything_saveable)
    assert.equal(all, products(policies.dots_saveable))
    assert.equal(all + 1, products(policies.dots_with_no_batch_dims_saveable))
    assert.equal(all + 2, products(policies.nothing_saveable))
  end)

  it("C4: draws the same random bits again", function()
    local key, x = random.key(11), random.normal(random.key(12), {64, 64})
    local function drop(a, k)
      local h = ml.nn.dropout(a:sin(), 0.4, k)
      return ml.nn.dropout(h * h, 0.3, random.fold_in(k, 1))
    end
    local function run(fn) return ml.jit(ml.value_and_grad(function(a) return fn(a, key):sum() end))(x) end
    local l1, g1 = run(drop)
    local l2, g2 = run(ml.remat(drop))
    assert.equal(l1:bytes(), l2:bytes())
    assert.equal(g1:bytes(), g2:bytes())
  end)

  it("nests, and is differentiated twice", function()
    local x, ws = data(2)
    local inner = ml.remat(block)
    local nested = ml.remat(function(a, w) return inner(inner(a, w), w) end)
    local function twice(a, w) return block(block(a, w), w) end
    local _, g1 = step_of(twice)(x, ws)
    local _, g2 = step_of(nested)(x, ws)
    assert.equal(bytes_of(g1), bytes_of(g2))
    local function second(layer)
      local slope = ml.grad(function(a) return loss_of(layer)(a, ws) end)
      return ml.grad(function(a) return slope(a):square():sum() end)(x)
    end
    helper.close(second(block), second(ml.remat(block)), 1e-6)
  end)

  it("C4: keeps what is split, not what was gathered of it", function()
    local mesh = ml.make_mesh({8}, {"data"})
    local x, ws = data(3)
    x = ml.device_put(x, NamedSharding(mesh, P "data"))
    ws = ml.device_put(ws, NamedSharding(mesh, P("data", nil)))
    local function gathers(layer)
      local step = step_of(layer)
      local plan, n = step:plan(x, ws), 0
      for _, c in ipairs(plan:collectives()) do n = n + (c.op == "all_gather" and #c.inputs or 0) end
      local _, g = step(x, ws)
      return n, plan:memory().temporaries, g
    end
    local n1, bytes1, g1 = gathers(block)
    local n2, bytes2, g2 = gathers(ml.remat(block))
    assert.equal(6, n1) -- each weight once, kept for the backward pass
    assert.equal(12, n2) -- each weight once more
    assert.truthy(bytes2 < bytes1)
    for i = 1, 3 do helper.close(g1[2][i][1], g2[2][i][1]) end
  end)

  it("leaves Params that are written in it as they should be", function()
    local box = helper.param(ml.tensor(1.0))
    local function count_up(x)
      box:set(box + 1)
      return x:sin():sin()
    end
    local step = ml.jit(function(b, x) return ml.grad(function(a)
      return ml.remat(count_up)(a):sum() end)(x), b end)
    local g = step(box, ml.ones {4})
    assert.equal(2.0, box:item())
    helper.close(math.cos(math.sin(1)) * math.cos(1), g:totable()[1], 1e-6)
  end)

  it("runs the function as it is outside of traces", function()
    local a, b = ml.remat(function(x, y) return x + 1, y end)(ml.ones {2}, "kept")
    assert.same({2.0, 2.0}, a:totable())
    assert.equal("kept", b)
  end)

  it("C4: shows what is computed again in the dump", function()
    local file = helper.file ""
    ml.core.dump("simplify:" .. file)
    local sines = ml.remat(function(a) return a:sin():sin() end)
    local step = ml.jit(ml.grad(function(x) return sines(x):sum() end))
    step(ml.ones {4})
    ml.core.dump()
    local text = assert(io.open(file)):read "a"
    assert.truthy(text:find "opt_barrier")
    assert.truthy(text:find "sin %%%d+ clone=%d+")
  end)

  it("refuses what is no function, policy or name", function()
    local message = helper.raises("[E_VALUE] ml.checkpoint is a module, of what is saved; ml.remat(fn, "
      .. "{policy = ...}) is fn, whose inside", ml.checkpoint, print)
    assert.truthy(message:find("^[^\n]-helper%.lua:%d+: "), message)
    helper.raises("[E_VALUE] remat: expected a function, got a number", ml.remat, 1)
    helper.raises("[E_VALUE] remat: expected a policy of ml.remat_policies, got a string",
      ml.remat, print, {policy = "dots_saveable"})
    helper.raises("[E_KEY] remat: unknown option 'polcy'; did you mean 'policy'?", ml.remat, print,
      {polcy = policies.dots_saveable})
    helper.raises("[E_VALUE] save_only_these_names: expected the names that checkpoint_name gives",
      policies.save_only_these_names)
    helper.raises("[E_VALUE] save_only_these_names: name 2 is a table, not a string",
      policies.save_only_these_names, "a", {})
    helper.raises("[E_VALUE] save_from_both_policies: expected a policy of ml.remat_policies, got nil",
      policies.save_from_both_policies, policies.dots_saveable)
    helper.raises("[E_VALUE] checkpoint_name: the name must be a string, not nil", ml.checkpoint_name,
      ml.ones {1})
    helper.raises("[E_VALUE] checkpoint_name: expected a tensor, got a number", ml.checkpoint_name, 1, "x")
  end)
end)
