-- devices: 8
-- metrics_spec.lua: ml.metrics beside naive twins: eager, jitted, on meshes, with last batches that are filled up.
local helper = require "spec.helper"
local ml = require "meshlua"

local metrics, random, P, NamedSharding = ml.metrics, ml.random, ml.P, ml.NamedSharding
local BATCH, LENGTH, CLASSES = 8, 3, 5

--- Logits, labels, losses, weights of batch i, as tensors and as lists of rows.
local function batch(i)
  local key = random.fold_in(random.key(7), i)
  local logits = random.normal(key, {BATCH, LENGTH, CLASSES})
  local labels = ml.argmax(random.normal(random.fold_in(key, 1), {BATCH, LENGTH, CLASSES}), 3)
  local loss = ml.nn.softmax_cross_entropy_with_integer_labels(logits, labels)
  local weights = random.uniform(random.fold_in(key, 2), {BATCH, LENGTH})
  return {logits = logits, labels = labels, loss = loss, weights = weights}
end

--- The naive twins: {mean, perplexity, accuracy, top 3} of lists; weight(i, t) of a row and place.
local function naive(batches, weight)
  local sum, count, hits, top = 0.0, 0.0, 0.0, 0.0
  for n, b in ipairs(batches) do
    local logits, labels, loss = b.logits:totable(), b.labels:totable(), b.loss:totable()
    for i = 1, BATCH do
      for t = 1, LENGTH do
        local w, own, better = weight(n, i, t), logits[i][t][labels[i][t] + 1], 0
        for c = 1, CLASSES do better = better + (logits[i][t][c] > own and 1 or 0) end
        sum, count = sum + w * loss[i][t], count + w
        hits, top = hits + (better == 0 and w or 0), top + (better < 3 and w or 0)
      end
    end
  end
  return {loss = sum / count, perplexity = math.exp(sum / count), accuracy = hits / count, top = top / count}
end

local function new_set()
  return metrics.MultiMetric {loss = metrics.Mean(), perplexity = metrics.Perplexity(),
    accuracy = metrics.Accuracy(), top = metrics.Accuracy {top_k = 3}}
end

local function numbers(set)
  return ml.tree.map(function(x) return x:item() end, set:compute())
end

local function same(wanted, got)
  for key, x in pairs(wanted) do assert.near(x, got[key], 1e-6 * math.abs(x), key) end
end

local function every() return 1 end

describe("metrics", function()
  local batches = {}
  setup(function() for i = 1, 3 do batches[i] = batch(i) end end)

  it("are what naive loops give: of all, with weights, of so many rows", function()
    local set = new_set()
    for _, b in ipairs(batches) do set:update {logits = b.logits, labels = b.labels, loss = b.loss} end
    same(naive(batches, every), numbers(set))
    set:reset()
    for _, b in ipairs(batches) do set:update(b) end
    local lists = {}
    for n, b in ipairs(batches) do lists[n] = b.weights:totable() end
    same(naive(batches, function(n, i, t) return lists[n][i][t] end), numbers(set))
    set:reset()
    for n, b in ipairs(batches) do
      set:update {logits = b.logits, labels = b.labels, loss = b.loss, count = n < 3 and BATCH or 5}
    end
    same(naive(batches, function(n, i) return n < 3 and 1 or i <= 5 and 1 or 0 end), numbers(set))
    local rows = metrics.Mean()
    rows:update(batches[1].loss, {weights = ml.tensor {1, 0, 0, 0, 0, 0, 0, 2}, count = 7})
    local first = batches[1].loss:totable()[1]
    assert.near((first[1] + first[2] + first[3]) / 3, rows:compute():item(), 1e-7)
    local mean = metrics.Mean()
    mean:update(3)
    mean:update(ml.tensor(4.0))
    mean:update(ml.tensor({1, 2}, "int32"))
    assert.equal(2.5, mean:compute():item())
  end)

  it("add up in jitted steps, on any mesh, as one device does; a count may change without a trace", function()
    local wanted = naive(batches, function(n, i) return n < 3 and 1 or i <= 5 and 1 or 0 end)
    for _, sizes in ipairs {{8, 1}, {2, 4}, {4, 2}} do
      local mesh = ml.make_mesh(sizes, {"data", "model"})
      local set = ml.device_put(new_set(), NamedSharding(mesh, P()))
      local step = ml.jit(function(s, b, count)
        s:update {logits = b.logits, labels = b.labels, loss = b.loss, count = count}
        return s:compute()
      end)
      local late, read = metrics.late(), {}
      for n, b in ipairs(batches) do
        local put = ml.device_put(b, NamedSharding(mesh, P "data"))
        local classes = sizes[2] == 1 and "model" or nil
        put.logits = ml.device_put(b.logits, NamedSharding(mesh, P("data", nil, classes)))
        read[#read + 1] = late(step(set, put, n < 3 and BATCH or 5)) or false
      end
      read[#read + 1] = late()
      assert.equal(1, (helper.traces(step)))
      assert.is_false(read[1])
      same(naive({batches[1]}, every), read[2])
      same(wanted, read[4])
      same(wanted, numbers(set))
    end
  end)

  it("keep what thousands of steps add, and nothing of values that do not count", function()
    local mean = metrics.Mean()
    local step = ml.jit(function(m, x) m:update(x) end)
    step(mean, ml.tensor(1e8))
    for _ = 1, 1000 do step(mean, ml.tensor(0.25)) end
    assert.equal((1e8 + 250) / 1001, mean:compute():item())
    local clean = metrics.Mean()
    clean:update(ml.tensor {2.0, 0 / 0, 1 / 0}, {weights = ml.tensor {1, 0, 0}})
    clean:update(ml.tensor {4.0, 0 / 0, 1 / 0}, {count = 1})
    assert.equal(3.0, clean:compute():item())
    clean:update(ml.tensor(0 / 0))
    clean:reset()
    clean:update(1.5)
    assert.equal(1.5, clean:compute():item())
    assert.is_true(metrics.Mean():compute():item() ~= metrics.Mean():compute():item())
  end)

  it("have no gradient, and do not count as parameters", function()
    local mean = metrics.Mean()
    local _, grads = ml.value_and_grad(function(w)
      mean:update(w * 3)
      return (w * w):sum()
    end)(ml.tensor {1.0, 2.0})
    assert.same({2.0, 4.0}, grads:totable())
    assert.equal(4.5, mean:compute():item())
    assert.equal("metric", mean.total.kind)
  end)

  it("refuse what does not fit, at the user's line", function()
    local function bad(wanted, fn, ...)
      local ok, message = pcall(fn, ...)
      assert.is_false(ok)
      assert.truthy(message:find(wanted, 1, true), message)
      assert.truthy(message:find("metrics_spec.lua", 1, true), message)
    end
    local accuracy, mean = metrics.Accuracy {top_k = 9}, metrics.Mean()
    local logits, labels = batches[1].logits, batches[1].labels
    bad("top_k is 9, and there are 5 classes", function() accuracy:update(logits, labels) end)
    bad("expected [..., classes] and [...]", function() metrics.Accuracy():update(logits, logits) end)
    bad("labels are class ids, not float32", function()
      metrics.Accuracy():update(logits, batches[1].loss)
    end)
    bad("weights are float32[3]", function() mean:update(logits, {weights = ml.ones {3}}) end)
    bad("count is of the first dim", function() mean:update(1, {count = 1}) end)
    bad("'loss' needs 'loss'; did you mean 'los'?", function()
      new_set():update {los = logits, logits = logits, labels = labels}
    end)
    bad("expected names and metrics, got x = a number", function() metrics.MultiMetric {x = 1} end)
    bad("a metric cannot be called update", function() metrics.MultiMetric {update = mean} end)
    bad("top_k is 0", function() metrics.Accuracy {top_k = 0} end)
    bad("metrics has no 'Maen'; did you mean 'Mean'?", function() return metrics.Maen end)
  end)
end)
