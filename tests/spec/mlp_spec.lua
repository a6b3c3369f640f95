-- devices: 8
-- mlp_spec.lua: the recipe models/mlp.lua, on Fashion-MNIST as Debian's package has it.
local helper = require "spec.helper"
local ml = require "meshlua"
package.path = "models/?.lua;" .. package.path
local mlp = require "mlp"
local images = require "spec.train.images"

local train = ml.train
local data = assert(mlp.data(mlp.config))

local function config(more)
  local cfg = {}
  for key, value in pairs(mlp.config) do cfg[key] = value end
  for key, value in pairs(more) do cfg[key] = value end
  return cfg
end

describe("the MLP", function()
  it("has its data: 60,000 images to learn, 10,000 to be tested with", function()
    assert.same({60000, 10000}, {#data.train, #data.valid})
    local batch = data.train:batch {0, 59999}
    assert.same({{2, 28, 28}, {2}}, {batch.inputs.shape, batch.labels.shape})
    assert.same({9, 5}, batch.labels:totable()) -- an ankle boot, a sandal
  end)

  it("computes what it says", function()
    local cfg = config {width = 4, layers = 2, dropout = 0.0}
    local model = ml.init(function(rngs) return mlp.build(cfg, rngs) end, {seed = 3})
    local batch = data.valid:batch {7, 8, 9}
    local x = batch.inputs:astype("float32"):reshape(3, 784) / 255
    for _, layer in ipairs(model.hidden) do
      x = (x:matmul(layer.kernel) + layer.bias):maximum(0)
    end
    local logits = x:matmul(model.head.kernel) + model.head.bias
    helper.close(logits, model(batch.inputs), 1e-6)
    local loss, labels, rows = 0, batch.labels:totable(), logits:log_softmax():totable()
    for i, label in ipairs(labels) do loss = loss - rows[i][label + 1] / 3 end
    assert.near(loss, mlp.loss(model, batch.inputs, batch.labels):item(), 1e-6)
  end)

  it("gives the same losses on every mesh", function()
    local first
    for _, case in ipairs {{"none", "dp"}, {"data:8", "dp"}, {"data:4,model:2", "tp"}, {"model:8", "tp"}} do
      local run = train.run(mlp, {config = config {steps = 10, batch = 64, width = 64}, seed = 1,
        mesh = train.mesh(case[1]), rules = mlp.rules[case[2]], data = data})
      local losses = {}
      run:train(function(row) losses[row.step] = row.loss end)
      first = first or losses
      for step, loss in ipairs(losses) do assert.near(1, loss / first[step], 1e-5, case[1]) end
    end
    assert.truthy(first[10] < 0.8 * first[1])
  end)

  helper.figures("learns: four images of five after 150 steps, as the script it is", function()
    local out, err, code = helper.run {"models/mlp.lua", "--steps=150", "--warmup=20"}
    assert.same({"", 0}, {err, code})
    local accuracy = tonumber(out:match "\ntest accuracy (%d+%.%d+)%%")
    assert.truthy(accuracy > 80, out)
  end)

  it("says which file is missing, and which labels are short", function()
    local out, err, code = helper.run {"models/mlp.lua", "--data=/nonexistent"}
    assert.same({"", 3}, {out, code})
    assert.truthy(err:find("/nonexistent/train-images-idx3-ubyte.gz: No such file", 1, true), err)
    out, err, code = helper.run {"models/mlp.lua", "--data=" .. images(9, 8)}
    assert.same({"", 3}, {out, code})
    assert.truthy(err:find("train-labels-idx1-ubyte.gz: 8 records, but ", 1, true), err)
  end)
end)
