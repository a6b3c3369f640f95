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

  it("tells a tensor of rank 3 dim by dim, and draws every slice of it", function()
    assert.equal([[
float32[8@data,4,2@model]
dim 1: 8 over data, 4 blocks of 2
dim 2: 4, whole
dim 3: 2 over model, 2 blocks of 1
[1..2, :, :]
┌─────────┬─────────┐
│  CPU 0  │  CPU 1  │
└─────────┴─────────┘
[3..4, :, :]
┌─────────┬─────────┐
│  CPU 2  │  CPU 3  │
└─────────┴─────────┘
[5..6, :, :]
┌─────────┬─────────┐
│  CPU 4  │  CPU 5  │
└─────────┴─────────┘
[7..8, :, :]
┌─────────┬─────────┐
│  CPU 6  │  CPU 7  │
└─────────┴─────────┘
]], picture("{8, 4, 2}", [[P("data", nil, "model")]]))
    assert.equal([[
float32[2,8@(model,data),3,3]
dim 1: 2, whole
dim 2: 8 over model,data, 8 blocks of 1
dim 3: 3, whole
dim 4: 3, whole
[1..2, 1..1, :, :]
┌─────────┐
│  CPU 0  │
└─────────┘
]], picture("{2, 8, 3, 3}", [[P(nil, {"model", "data"})]]):match "^.-┘\n")
  end)

  it("paints every block in a colour of its own where it is asked to", function()
    local picture_of = require "meshlua.insight.picture".sharding_text
    local x = ml.device_put(ml.ones {8, 8}, NamedSharding(mesh, P("data")))
    local text, colours, n = picture_of(x, true), {}, 0
    for colour in text:gmatch "\27%[48;5;(%d+)m" do
      if not colours[colour] then n = n + 1 end
      colours[colour] = true
    end
    assert.equal(4, n)
    assert.equal(picture_of(x), (text:gsub("\27%[[%d;]*m", "")))
  end)

  it("writes an SVG document with a box for every block", function()
    local file = helper.file("", ".svg")
    local x = ml.device_put(ml.ones {8, 4, 2}, NamedSharding(mesh, P("data", nil, "model")))
    assert.is_true(ml.visualize_sharding(x, {file = file}))
    local handle <close> = assert(io.open(file))
    local text = handle:read "a"
    assert.truthy(text:find '^<svg xmlns="http://www.w3.org/2000/svg" width="%d+" height="%d+"')
    local boxes, texts = select(2, text:gsub('<rect x="', "")), select(2, text:gsub(">CPU %d</text>", ""))
    assert.equal(8, boxes)
    assert.equal(8, texts)
    assert.truthy(text:find("float32[8@data,4,2@model] on Mesh(data=4, model=2)", 1, true))
    local ok, message, code = ml.visualize_sharding(x, {file = "/no/such/folder/x.svg"})
    assert.is_nil(ok)
    assert.truthy(message:find("No such file", 1, true))
    assert.equal("E_IO", code)
  end)

  it("tells a traced tensor by its type", function()
    local out = printed [[
      ml.jit(function(x) ml.visualize_sharding(x) return x end)(ml.ones {4, 2})
    ]]
    assert.equal("float32[4,2]\n", out)
  end)

  it("refuses what is no tensor", function()
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
