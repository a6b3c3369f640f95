-- devices: 8
-- split_rows_spec.lua: ops over rows that lie split. Nothing is gathered: what each device has of a row goes into a
-- maximum and sums, one number of a row each; where a row is shorter than these, it is gathered as before.
local helper = require "spec.helper"
local ml = require "meshlua"
package.path = "models/?.lua;" .. package.path
local check = require "golden.traffic"
local expected = require "golden.expected"
local gpt = require "gpt"

local op, P, NamedSharding = ml.core.op, ml.P, ml.NamedSharding
local ROWS, MODEL, F64 = 8, 4, 8
local LOCAL = ROWS // 2 -- rows of one device
local mesh = ml.make_mesh({2, MODEL}, {"data", "model"})
local EPS = {eps = 1e-5}

local function put(x, ...) return ml.device_put(x, NamedSharding(mesh, P(...))) end
local function normal(seed, shape, dtype) return ml.random.normal(ml.random.key(seed), shape, dtype) end

--- What a plan sends: "op dtype bytes" of one device's operands; only over `model`.
local function sent(plan)
  local list = {}
  for i, c in ipairs(plan:collectives()) do
    assert.same({"model"}, c.axes)
    list[i] = ("%s %d"):format(c.op, c.bytes)
  end
  return list
end

--- Numbers of each row that are all_reduced, one collective each, as `sent` has them.
local function reduced(numbers)
  local list = {}
  for i, n in ipairs(numbers) do list[i] = ("all_reduce %d"):format(n * LOCAL * F64) end
  return list
end

local function compare(fn, numbers, lies, whole, split)
  local step = ml.jit(fn)
  assert.same(reduced(numbers), sent(step:plan(table.unpack(split))))
  local out = step(table.unpack(split))
  assert.is_true(out.sharding == NamedSharding(mesh, lies))
  helper.close(fn(table.unpack(whole)):totable(), out:totable(), 1e-12)
end

--- The gradient of the sum of squares.
local function grad_of(fn)
  return function(x, ...)
    local rest = {...}
    return ml.grad(function(v) return (fn(v, table.unpack(rest)) ^ 2):sum() end)(x)
  end
end

describe("rows split over an axis:", function()
  local N = 64
  local x, scale = normal(1, {ROWS, N}, "float64"), normal(2, {N}, "float64")
  local labels = ml.tensor({0, 15, 16, 31, 32, 47, 48, 63}, "int32")
  local split = put(x, "data", "model")
  local rows, tile = P("data"), P("data", "model")

  local function softmax(v) return ml.softmax(v) end
  local function log_softmax(v) return ml.log_softmax(v) end
  local function xent(v, l) return (op.softmax_cross_entropy(v, l)) end
  local function layer(v, s) return (op.layer_norm(v, s, s, EPS)) end
  local function rms(v, s) return (op.rms_norm(v, s, EPS)) end

  it("softmax is a maximum and a sum, its gradient another sum", function()
    compare(softmax, {1, 1}, tile, {x}, {split})
    compare(grad_of(softmax), {1, 1, 1}, tile, {x}, {split})
  end)

  it("log_softmax is a maximum and a sum, its gradient another sum", function()
    compare(log_softmax, {1, 1}, tile, {x}, {split})
    compare(grad_of(log_softmax), {1, 1, 1}, tile, {x}, {split})
  end)

  it("J: cross-entropy is a maximum, and two sums that go together; its gradient nothing more", function()
    local l = put(labels, "data")
    compare(xent, {1, 2}, rows, {x, labels}, {split, l})
    compare(grad_of(xent), {1, 2}, tile, {x, labels}, {split, l})
  end)

  it("J: layer_norm is two sums, the mean and the variance; its gradient two that go together", function()
    for _, s in ipairs {scale, put(scale, "model")} do
      compare(layer, {1, 1}, tile, {x, scale}, {split, s})
      compare(grad_of(layer), {1, 1, 2}, tile, {x, scale}, {split, s})
    end
  end)

  it("J: rms_norm is one sum, its gradient another", function()
    for _, s in ipairs {scale, put(scale, "model")} do
      compare(rms, {1}, tile, {x, scale}, {split, s})
      compare(grad_of(rms), {1, 1}, tile, {x, scale}, {split, s})
    end
  end)

  it("the gradients of a norm's parameters are each device's own, summed over the rows alone", function()
    local function params(v, s)
      return ml.grad(function(t) return (op.layer_norm(v, t, t, EPS) ^ 2):sum() end)(s)
    end
    local step, s = ml.jit(params), put(scale, "model")
    for _, c in ipairs(step:plan(split, s):collectives()) do
      assert.equal("all_reduce", c.op)
      assert.truthy(c.bytes <= 2 * N // MODEL * F64)
    end
    helper.close(params(x, scale):totable(), step(split, s):totable(), 1e-12)
  end)

  it("several dims may lie split at once, and one op's result is the next one's operand", function()
    local deep = normal(3, {4, 2, N}, "float64")
    local function chain(v, s) return ml.log_softmax(rms(ml.softmax(layer(v, s)), s)) end
    local step = ml.jit(chain)
    local given = put(deep, "data", P.none, "model")
    for _, c in ipairs(step:plan(given, scale):collectives()) do assert.equal("all_reduce", c.op) end
    helper.close(chain(deep, scale):totable(), step(given, scale):totable(), 1e-12)
  end)

  it("16-bit floats are added up in float32", function()
    local half = x:astype "bfloat16"
    local step, given = ml.jit(xent), put(half, "data", "model")
    assert.same({"all_reduce " .. LOCAL * 4, "all_reduce " .. 2 * LOCAL * 4},
      sent(step:plan(given, put(labels, "data"))))
    helper.close(xent(half, labels):totable(), step(given, put(labels, "data")):totable(), 1e-5)
  end)

  it("a label that is no class is an error, as it is of whole rows", function()
    local bad = ml.tensor({0, 15, 16, 31, 64, 47, 48, 63}, "int32")
    helper.raises("[E_INDEX]", function() return ml.jit(xent)(split, put(bad, "data")):totable() end)
    helper.raises("[E_INDEX]", function() return xent(x, bad):totable() end)
  end)

  it("padded rows count as what they are", function()
    local uneven = normal(4, {ROWS, 61}, "float64")
    local padded = put(uneven, "data", {"model", uneven = "pad"})
    local l = ml.tensor({0, 15, 16, 31, 32, 47, 48, 60}, "int32")
    for _, fn in ipairs {softmax, log_softmax, xent, grad_of(xent), grad_of(softmax)} do
      local step = ml.jit(fn)
      for _, c in ipairs(step:plan(padded, l):collectives()) do assert.equal("all_reduce", c.op) end
      helper.close(fn(uneven, l):totable(), step(padded, l):totable(), 1e-12)
    end
  end)

  it("in a loop's body, too", function()
    local function loop(v)
      return (ml.scan(function(c) return ml.softmax(c) * 3, c:sum() end, v, nil, {length = 3}))
    end
    local step = ml.jit(loop)
    for _, c in ipairs(step:plan(split):collectives()) do assert.equal("all_reduce", c.op) end
    helper.close(loop(x):totable(), step(split):totable(), 1e-12)
  end)

  it("a row that is shorter than what would be sent of it is gathered", function()
    local short = normal(5, {ROWS, MODEL}, "float64")
    local step = ml.jit(ml.softmax)
    local given = put(short, "data", "model")
    assert.same({"all_gather " .. LOCAL * F64}, sent(step:plan(given)))
    helper.close(ml.softmax(short):totable(), step(given):totable(), 1e-12)
  end)
end)

describe("a GPT whose vocabulary is split", function()
  local cfg = setmetatable({layers = 2, width = 32, heads = 4, seq = 16, batch = 8}, {__index = gpt.config})
  local rules = {}
  for i, rule in ipairs(gpt.rules.tp) do rules[i] = rule[1] == "vocab" and {"vocab", "model"} or rule end

  local function made(list)
    local model = ml.init(function(rngs) return gpt.build(cfg, rngs) end, {mesh = mesh, rules = list})
    local opt = gpt.optimizer(model, cfg)
    return model, opt, ml.jit(function(m, o, x, y)
      local loss, grads = ml.value_and_grad(function(v) return gpt.loss(v, x, y) end)(m)
      return loss, o:update(m, grads).grad_norm
    end, {mesh = mesh, rules = list})
  end
  local ids = ml.random.randint(ml.random.key(7), {cfg.batch, cfg.seq}, 0, cfg.vocab)

  it("never gathers its logits", function()
    local model, opt, step = made(rules)
    local x = put(ids, "data")
    check(step:plan(model, opt, x, x), expected.tp_vocab(cfg, 2, MODEL))
  end)

  it("trains as one that is whole", function()
    local model, opt, step = made(rules)
    local twin, twin_opt, other = made(gpt.rules.dp)
    local x = put(ids, "data")
    for _ = 1, 3 do
      local loss, norm = step(model, opt, x, x)
      local twin_loss, twin_norm = other(twin, twin_opt, x, x)
      helper.close(twin_loss:item(), loss:item(), 1e-5)
      helper.close(twin_norm:item(), norm:item(), 1e-4)
    end
  end)
end)
