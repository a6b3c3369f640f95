-- config_spec.lua: ml.config, what a script settles before its first tensor.
local helper = require "spec.helper"

--- Runs code after `local ml = require "meshlua"` in a program of its own.
local function run(code, ...)
  local words = {...}
  table.move({"-e", 'local ml = require "meshlua" ' .. code}, 1, 2, #words + 1, words)
  return helper.run(words)
end

describe("ml.config", function()
  it("gives devices", function()
    assert.equal("8\t8.0\n", (run [[ml.config{devices = 8}
      local mesh = ml.make_mesh({4, 2}, {"data", "model"})
      local x = ml.device_put(ml.ones({8}), ml.NamedSharding(mesh, ml.P("data")))
      print(ml.device_count(), x:sum():item())]]))
  end)

  it("takes a text as --devices does, and goes over the flag", function()
    assert.equal("64\tcpu\ttrue\n", (run [[ml.config{devices = "fake:64"}
      print(ml.device_count(), ml.core.device_kind())]]))
    assert.equal("2\n", (run([[ml.config{devices = 2} print(ml.device_count())]], "--devices=4")))
  end)

  it("comes too late after the first tensor or mesh", function()
    for _, first in ipairs {"ml.ones({2})", "ml.make_mesh({1}, {'x'})", "ml.tensor {1}"} do
      local _, err, code = run(first .. [[ ml.config{devices = 8}]])
      assert.equal(1, code)
      assert.truthy(err:find("[E_STATE]", 1, true) and err:find("--devices=8", 1, true), err)
    end
  end)

  it("refuses what makes no sense", function()
    helper.raises("did you mean 'devices'?", require("meshlua").config, {device = 8})
    helper.raises("E_VALUE", require("meshlua").config, {})
    helper.raises("E_VALUE", require("meshlua").config)
    helper.raises("E_VALUE", require("meshlua").config, {devices = 2.5})
    for _, n in ipairs {"0", "-1", "'x'", "'fake:'"} do
      local _, err, code = run(("ml.config{devices = %s}"):format(n))
      assert.equal(1, code, n)
      assert.truthy(err:find("[E_MESH]", 1, true), err)
    end
  end)
end)
