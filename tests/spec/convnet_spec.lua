-- devices: 8
-- convnet_spec.lua: the recipe models/convnet.lua, on Fashion-MNIST as Debian's package has it.
local helper = require "spec.helper"
local ml = require "meshlua"
package.path = "models/?.lua;" .. package.path
local convnet = require "convnet"

local train = ml.train

local function config(more)
  local cfg = {}
  for key, value in pairs(convnet.config) do cfg[key] = value end
  for key, value in pairs(more) do cfg[key] = value end
  return cfg
end

describe("the convnet", function()
  it("gives the same losses and running means on every mesh", function()
    local data, first, means = assert(convnet.data(convnet.config)), nil, nil
    for _, case in ipairs {{"none", "dp"}, {"data:8", "dp"}, {"data:2,model:4", "tp"}} do
      local run = train.run(convnet, {config = config {steps = 4, batch = 32, channels = 8, width = 32},
        seed = 1, mesh = train.mesh(case[1]), rules = convnet.rules[case[2]], data = data})
      local losses = {}
      run:train(function(row) losses[row.step] = row.loss end)
      first, means = first or losses, means or run.model.norms[2].mean:totable()
      for step, loss in ipairs(losses) do assert.near(1, loss / first[step], 1e-4, case[1]) end
      helper.close(means, run.model.norms[2].mean, 1e-4)
    end
    assert.truthy(first[4] < first[1])
  end)

  helper.figures("learns: four images of five after 100 steps, as the script it is", function()
    local steps, least = 100, 80
    if helper.watched then steps, least = 12, 30 end
    local out, err, code = helper.run {"models/convnet.lua", "--mesh=none", "--steps=" .. steps,
      "--warmup=10", "--channels=8", "--batch=64"}
    assert.same({"", 0}, {err, code})
    local accuracy = tonumber(out:match "\ntest accuracy (%d+%.%d+)%%")
    assert.truthy(accuracy > least, out)
  end)
end)
