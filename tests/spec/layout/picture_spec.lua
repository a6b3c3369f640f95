-- devices: 8
-- picture_spec.lua: visualize_sharding and visualize_mesh, letter by letter (C8 of the checklist of JAX's semantics).
local helper = require "spec.helper"
local ml = require "meshlua"

local P, NamedSharding = ml.P, ml.NamedSharding
local mesh = ml.make_mesh({4, 2}, {"data", "model"})

local function printed(code)
  local out, err, status = helper.run {"--devices=8", helper.file([[
    local ml = require "meshlua"
    local P, NamedSharding = ml.P, ml.NamedSharding
    local mesh = ml.make_mesh({4, 2}, {"data", "model"})
  ]] .. code, ".lua")}
  assert.equal("", err)
  assert.equal(0, status)
  return out
end

local function picture(shape, spec)
  return printed(("ml.visualize_sharding(ml.device_put(ml.ones(%s), NamedSharding(mesh, %s)))"):format(shape,
    spec))
end

describe("visualize_sharding", function()
  it("draws a tensor of rank 2 as the boxes of its shards", function()
    assert.equal([[
┌─────────┬─────────┐
│  CPU 0  │  CPU 1  │
├─────────┼─────────┤
│  CPU 2  │  CPU 3  │
├─────────┼─────────┤
│  CPU 4  │  CPU 5  │
├─────────┼─────────┤
│  CPU 6  │  CPU 7  │
└─────────┴─────────┘
]], picture("{8, 8}", [[P("data", "model")]]))
    assert.equal([[
┌─────────┬─────────┬─────────┬─────────┐
│  CPU 0  │  CPU 2  │  CPU 4  │  CPU 6  │
├─────────┼─────────┼─────────┼─────────┤
│  CPU 1  │  CPU 3  │  CPU 5  │  CPU 7  │
└─────────┴─────────┴─────────┴─────────┘
]], picture("{8, 8}", [[P("model", "data")]]))
  end)

  it("lists all devices that hold a shard", function()
    assert.equal([[
┌─────────┐
│ CPU 0,1 │
├─────────┤
│ CPU 2,3 │
├─────────┤
│ CPU 4,5 │
├─────────┤
│ CPU 6,7 │
└─────────┘
]], picture("{8, 8}", [[P("data")]]))
    assert.equal([[
┌─────────────┬─────────────┐
│ CPU 0,2,4,6 │ CPU 1,3,5,7 │
└─────────────┴─────────────┘
]], picture("{8, 8}", [[P(nil, "model")]]))
    assert.equal([[
┌─────────────────────┐
│ CPU 0,1,2,3,4,5,6,7 │
└─────────────────────┘
]], picture("{8, 8}", "P()"))
  end)

  it("draws a tensor of rank 1 as one row, and a scalar as one box", function()
    assert.equal([[
┌─────────┬─────────┬─────────┬─────────┐
│ CPU 0,1 │ CPU 2,3 │ CPU 4,5 │ CPU 6,7 │
└─────────┴─────────┴─────────┴─────────┘
]], picture("{8}", [[P("data")]]))
    assert.equal([[
┌─────────┬─────────┬─────────┬─────────┬─────────┬─────────┬─────────┬─────────┐
│  CPU 0  │  CPU 2  │  CPU 4  │  CPU 6  │  CPU 1  │  CPU 3  │  CPU 5  │  CPU 7  │
└─────────┴─────────┴─────────┴─────────┴─────────┴─────────┴─────────┴─────────┘
]], picture("{8}", [[P{"model", "data"}]]))
    assert.equal([[
┌─────────────────────┐
│ CPU 0,1,2,3,4,5,6,7 │
└─────────────────────┘
]], picture("{}", "P()"))
    assert.equal([[
┌─────────┐
│  CPU 0  │
└─────────┘
]], printed "ml.visualize_sharding(ml.ones {4, 4})")
  end)

  it("refuses more dims, and what is no tensor", function()
    helper.raises("[E_SHAPE] visualize_sharding: rank 3; tensors of rank 1 and 2 can be drawn",
      ml.visualize_sharding,
      ml.device_put(ml.ones {8, 8, 2}, NamedSharding(mesh, P "data")))
    helper.raises("[E_VALUE] visualize_sharding: expected a tensor, got a NamedSharding",
      ml.visualize_sharding,
      NamedSharding(mesh, P()))
  end)
end)

describe("visualize_mesh", function()
  it("says which device stands where, 1-based", function()
    assert.equal([[
Mesh shape: (4, 2)
Axis names: data, model
Device layout:
  [1,1]: CPU 0
  [1,2]: CPU 1
  [2,1]: CPU 2
  [2,2]: CPU 3
  [3,1]: CPU 4
  [3,2]: CPU 5
  [4,1]: CPU 6
  [4,2]: CPU 7
]], printed "ml.visualize_mesh(mesh)")
    assert.equal([[
Mesh shape: (3)
Axis names: x
Device layout:
  [1]: CPU 5
  [2]: CPU 0
  [3]: CPU 2
]], printed [[ml.visualize_mesh(ml.Mesh({5, 0, 2}, "x"))]])
    helper.raises("[E_VALUE] visualize_mesh: expected a Mesh, got a Tensor", ml.visualize_mesh, ml.ones {2})
  end)
end)
