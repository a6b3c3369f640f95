-- devices: 8
-- gpt_spec.lua: the recipe models/gpt.lua: what it builds, what decays, what it refuses.
local ml = require "meshlua"
local gpt = require "models.gpt"
local helper = require "spec.helper"

local nn = ml.nn

local function config(changes)
  local cfg = {layers = 2, width = 32, heads = 4, seq = 16, vocab = 64, batch = 8, steps = 20}
  for name, value in pairs(gpt.config) do
    if cfg[name] == nil then cfg[name] = value end
  end
  for name, value in pairs(changes or {}) do cfg[name] = value end
  return cfg
end

local function made(changes, where)
  local cfg = config(changes)
  return ml.init(function(rngs) return gpt.build(cfg, rngs) end, where or {rules = gpt.rules.dp}), cfg
end

--- Calls fn(model, ids) in a jitted function under rules for one device.
local function run(model, ids, fn)
  return ml.jit(fn or function(m, x) return m(x) end, {rules = gpt.rules.dp})(model, ids)
end

local function tokens(rows, length, vocab)
  return ml.random.randint(ml.random.key(9), {rows, length}, 0, vocab)
end

describe("the GPT recipe", function()
  it("has the parameters of GPT-2's formula", function()
    local model, cfg = made()
    local count, c = 0, cfg.width
    ml.tree.visit(model, function(_, box) count = count + box.size end)
    local block = 4 * (c * c + c) + (8 * c * c + 5 * c) + 4 * c
    assert.equal(cfg.vocab * c + cfg.seq * c + cfg.layers * block + 2 * c, count)
  end)

  it("gives logits for each position from what stands before it", function()
    local model = made()
    local ids = tokens(2, 16, 64)
    local y = run(model, ids)
    assert.same({2, 16, 64}, y.shape)
    local changed = ml.concat({ids:slice(false, {1, 10}), (ids:slice(false, {11, 16}) + 1) % 64}, 2)
    local z = run(model, changed)
    helper.close(y:slice(false, {1, 10}), z:slice(false, {1, 10}))
    assert.is_string(helper.difference(y:slice(false, 11), z:slice(false, 11)))
    helper.close(y:slice(false, {1, 5}), run(model, ids:slice(false, {1, 5})), 1e-6)
  end)

  it("starts at the loss of a uniform guess", function()
    local model = made()
    local loss = run(model, tokens(8, 17, 64), function(m, x)
      return gpt.loss(m, x:slice(false, {1, 16}), x:slice(false, {2, 17}))
    end)
    assert.is_true(math.abs(loss:item() - math.log(64)) < 0.1)
  end)

  it("learns, and decays kernels and embeddings only", function()
    local model, cfg = made {lr = 1e-2, warmup = 2}
    local opt = gpt.optimizer(model, cfg)
    local x = tokens(8, 17, 64)
    local step = ml.jit(function(m, o, batch)
      local loss, grads = ml.value_and_grad(function(n)
        return gpt.loss(n, batch:slice(false, {1, 16}), batch:slice(false, {2, 17}))
      end)(m)
      o:update(m, grads)
      return loss
    end, {rules = gpt.rules.dp})
    local first, last = step(model, opt, x):item(), nil
    for _ = 1, 15 do last = step(model, opt, x):item() end
    assert.is_true(last < first - 1)
    local before, zero = {}, ml.tree.map(function(t) return t * 0 end, ml.state(model))
    ml.tree.visit(model, function(path, box)
      box:set(box * 0 + 1)
      before[path] = box
    end)
    -- Without gradients only decay moves a parameter.
    ml.optim.adamw(model, {lr = 1.0, weight_decay = 0.5, mask = "matrices"}):update(model, zero)
    for path, box in pairs(before) do
      local is_matrix = path:find "kernel$" ~= nil or path:find "embedding$" ~= nil or path == "wpe"
      assert.equal(is_matrix and 0.5 or 1.0, box:reshape {-1}:slice(1):item(), path)
    end
  end)

  it("dropout needs keys while training, and is off in evaluation", function()
    local model = made {dropout = 0.3}
    local ids = tokens(2, 16, 64)
    helper.raises("no random keys", run, model, ids)
    local step = ml.jit(function(m, rngs, x) return m(x, rngs) end, {rules = gpt.rules.dp})
    local rngs = nn.Rngs {dropout = 0}
    assert.is_string(helper.difference(step(model, rngs, ids), step(model, rngs, ids)))
    model:eval()
    helper.close(run(model, ids), step(model, rngs, ids), 1e-6)
  end)

  it("as a loop it has the same bits, and each block its own keys", function()
    local ids = tokens(8, 17, 64)
    local function gradients(scan, rules, overlap)
      ml.config {passes = {overlap = overlap}}
      local where = {mesh = ml.make_mesh({4, 2}, {"data", "model"}), rules = gpt.rules[rules]}
      local model = made({layers = 3, dropout = 0.2, scan = scan}, where)
      local step = ml.jit(function(m, rngs, x)
        return ml.value_and_grad(function(n)
          return gpt.loss(n, x:slice(false, {1, 16}), x:slice(false, {2, 17}), rngs)
        end)(m)
      end, where)
      local loss, grads = step(model, nn.Rngs {dropout = 7}, ids)
      local all = {loss = loss:item()}
      ml.tree.visit(grads, function(path, g)
        if path:match "^h%.%d" or not path:match "^h%." then
          all[path] = ml.all_gather_to_host(g):bytes()
        else
          for i = 1, 3 do all["h." .. i .. path:sub(2)] = ml.all_gather_to_host(g:at(i)):bytes() end
        end
      end)
      return all
    end
    finally(function() ml.config {passes = {overlap = "default"}} end)
    for _, rules in ipairs {"dp", "fsdp_tp"} do
      local written_out = gradients(false, rules, "default")
      assert.same(written_out, gradients(true, rules, "default"), rules)
      assert.same(written_out, gradients(true, rules, true), rules .. ", overlap")
    end
  end)

  it("as a loop it generates what its blocks do", function()
    local blocks, loop = made(), made {scan = true}
    local prompt = {{5, 7, 11}}
    local how = {max_tokens = 6, temperature = 0}
    assert.same(ml.generate(blocks, prompt, how), ml.generate(loop, prompt, how))
  end)

  it("the schedule warms up and ends at min_lr", function()
    local cfg = config {warmup = 5, steps = 20, lr = 1e-2, min_lr = 1e-3}
    local at = gpt.schedule(cfg)
    assert.same({0.0, 1e-2}, {at(0), at(5)})
    helper.close(1e-3, at(20), 1e-15)
  end)

  it("refuses heads that do not divide the width, long sequences, and ids outside the vocabulary", function()
    helper.raises("5 heads do not divide the width 32", made, {heads = 5})
    local model = made()
    helper.raises("E_SHAPE", run, model, tokens(2, 17, 64))
    helper.raises("id 64 is outside 0..63", run, model, ml.full({2, 16}, 64))
    helper.raises("id -1 is outside 0..63", run, model, ml.full({2, 16}, -1))
    helper.raises("id 64 is outside 0..63", run, model, tokens(2, 16, 64), function(m, x)
      return gpt.loss(m, x, x * 0 + 64)
    end)
  end)

  it("16-bit: bfloat16 parameters and arithmetic run and stay finite", function()
    local model, cfg = made {dtype = "bfloat16"}
    local opt = gpt.optimizer(model, cfg)
    local step = ml.jit(function(m, o, x)
      local loss, grads = ml.value_and_grad(function(n) return gpt.loss(n, x, x) end)(m)
      return loss, o:update(m, grads).grad_norm
    end, {rules = gpt.rules.dp})
    local loss, norm = step(model, opt, tokens(8, 16, 64))
    assert.equal("bfloat16", model.wte.embedding.dtype)
    assert.is_true(loss:isfinite():item() and norm:isfinite():item())
  end)
end)
