-- devices: 8
-- audit_spec.lua: a device that gives other bits than the others is named, with the op; where all are sound nothing is.
local core = require "meshlua.core"
local helper = require "spec.helper"
local ml = require "meshlua"

local nn, P = ml.nn, ml.P

local function step()
  return ml.jit(function(m, x)
    return ml.value_and_grad(function(n)
      local h = ml.scan(function(c, k) return ml.tanh(c + k), c end, x:matmul(n.w), ml.arange(3.0))
      return nn.dropout(h, 0.5, ml.random.key(3)):square():sum()
    end)(m)
  end)
end

--- The report on the step with parts of x and w on a mesh of that many devices.
local function audited(sizes, names, of_x, of_w)
  local devices = {}
  for i = 1, sizes[1] * (sizes[2] or 1) * (sizes[3] or 1) do devices[i] = i - 1 end
  local mesh = ml.make_mesh(sizes, names, devices)
  local function put(key, shape, spec)
    return ml.device_put(ml.random.normal(ml.random.key(key), shape), ml.NamedSharding(mesh, spec))
  end
  return ml.audit(step(), {w = nn.Param(put(1, {4, 16}, of_w))}, put(2, {16, 4}, of_x))
end

describe("audit", function()
  after_each(function() core.plant() end)

  it("finds the same bits on sound devices", function()
    assert.is_true(audited({8}, {"data"}, P("data"), P()).same)
    assert.is_true(audited({4, 2}, {"data", "model"}, P("data"), P(nil, "model")).same)
    assert.is_true(audited({2, 2, 2}, {"a", "b", "c"}, P({"a", "b"}), P("c")).same)
  end)

  it("names the one that is not, and the op", function()
    for _, device in ipairs {0, 3, 7} do
      core.plant("matmul", device)
      local report = audited({8}, {"data"}, P("data"), P())
      local text = tostring(report)
      assert.same({false, "matmul", 1}, {report.same, report.op, #report.devices}, text)
      assert.equal("data=" .. device, report.devices[1])
      assert.truthy(text:find "matmul at tests/spec/insight/audit_spec.lua:12", text)
      report = audited({4, 2}, {"data", "model"}, P("data"), P(nil, "model"))
      assert.same({("data=%d,model=%d"):format(device // 2, device % 2)}, report.devices)
    end
    core.plant("matmul", 1)
    assert.same({"data=0", "data=1"}, audited({2}, {"data"}, P("data"), P()).devices)
  end)

  it("needs another device", function()
    helper.raises("E_MESH", ml.audit, step(), {w = nn.Param(ml.ones {4, 16})}, ml.ones {16, 4})
    helper.raises("made by ml.jit", ml.audit, print)
  end)
end)
