-- devices: 8
-- print_spec.lua: tensors print as numpy's arrays do (tests/oracle/print.json), wherever their parts lie, and only what
-- is printed is read.
local helper = require "spec.helper"
local ml = require "meshlua"
local oracle = require "spec.oracle"

local P, NamedSharding = ml.P, ml.NamedSharding

-- ---- numpy's texts ------------------------------------------------------------------------------------------

--- The tensor of a case; numbers are made as float64, and rounded once.
local function tensor_of(case)
  local n = 1
  for _, size in ipairs(case.shape) do n = n * size end
  local function ramp(first, step)
    local list = {}
    for i = 1, n do list[i] = first + step * (i - 1) end
    return list
  end
  local list = load("return " .. case.values, "=values", "t", {ramp = ramp, math = math})()
  local is_float = case.dtype:find "float"
  if n == 0 then return ml.zeros(case.shape, case.dtype) end
  return ml.tensor(list, is_float and "float64" or case.dtype):astype(case.dtype):reshape(case.shape)
end

describe("a tensor's values", function()
  local cases = oracle.read "print"

  it("are those of 200 tensors and more as numpy prints them", function()
    assert.is_true(#cases >= 200, #cases)
    for _, case in ipairs(cases) do
      local x = tensor_of(case)
      local before = ml.set_print_options(case.options)
      local text = tostring(x)
      ml.set_print_options(before)
      local got = text:match(#case.shape == 0 and "^[^ ]+ (.*)$" or "^[^\n]*\n(.*)$")
      if got ~= case.text then
        error(("%s %s\n%s\n-- and here\n%s"):format(case.dtype, case.values:sub(1, 90), case.text, got), 0)
      end
    end
  end)
end)

-- ---- where the parts lie ------------------------------------------------------------------------------------

describe("a sharded tensor", function()
  local mesh = ml.make_mesh({4, 2}, {"data", "model"})
  local function put(x, ...) return ml.device_put(x, NamedSharding(mesh, P(...))) end
  local function values(x) return tostring(x):match "^[^\n]*\n(.*)$" end

  it("prints as if it were on one device, also where its corners lie on many", function()
    for _, shape in ipairs {{8}, {2000}, {16, 8}, {64, 64}, {8, 16, 32}, {8, 8, 2, 40}} do
      local n = 1
      for _, size in ipairs(shape) do n = n * size end
      local x = ml.arange(n * 1.0):reshape(shape)
      for _, spec in ipairs {{"data"}, {{"data", "model"}}, {nil, "model"}, {"model", "data"}} do
        if #shape > 1 or not spec[2] then
          assert.equal(values(x), values(put(x, table.unpack(spec, 1, #shape > 1 and 2 or 1))))
        end
      end
    end
  end)

  it("prints where devices do not divide it, and where its bytes are strided", function()
    local x = ml.arange(2002.0):reshape {1001, 2}
    local padded = put(x, {"data", uneven = "pad"})
    assert.equal(values(x), values(padded))
    assert.equal(values(ml.tensor(x:T():totable())), values(x:T()))
    assert.equal(values(ml.tensor(x:T():totable())), values(padded:T()))
  end)

  it("is read at its corners alone", function()
    local x = put(ml.zeros {1 << 13, 1 << 13}, "data", "model")
    local before = os.clock()
    for _ = 1, 20 do assert.is_true(#tostring(x) < 400) end
    assert.is_true(os.clock() - before < 1)
  end)

  it("shows what each device holds when asked", function()
    assert.equal([[
float32[4@model] on Mesh(data=4, model=2)
devices 0,2,4,6 [1..2]:
[0. 1.]
devices 1,3,5,7 [3..4]:
[2. 3.]
]], ml.show(put(ml.arange(4.0), "model"), {by_device = true}) .. "\n")
    local explicit = ml.make_mesh({4, 2}, {"data", "model"}, {axis_types = {data = "explicit"}})
    local sums = ml.device_put(ml.arange(2.0), NamedSharding(explicit, P(nil, {unreduced = {"data"}})))
    assert.equal("float32[2]{U:data} on Mesh(data=4 explicit, model=2)", tostring(sums))
    assert.truthy(ml.show(sums, {by_device = true}):find("\ndevices 0,1 [1..2]:\n[0. 1.]\n", 1, true))
  end)
end)

describe("a tensor without values says what it is:", function()
  it("a type, a tracer, a deleted one, an empty Param", function()
    assert.equal("float32[2,3] (a type, without values)", tostring(ml.ShapeDtypeStruct({2, 3}, "float32")))
    local x, traced = ml.ones {2}, nil
    ml.jit(function(y)
      traced = {tostring(y), ml.show(y), ml.show {y}}
      return y
    end)(x)
    assert.same({"float32[2] traced", "float32[2] traced", "{float32[2] traced}"}, traced)
    x:release()
    assert.equal("deleted tensor (released)", ml.show(x))
    assert.equal("{deleted tensor (released)}", ml.show {x})
    assert.equal("float32[0,3]\n[]", tostring(ml.zeros {0, 3}))
  end)

  it("on devices that are only planned for", function()
    local out = helper.run {"--devices=fake:8", "-e", [[local ml = require "meshlua" print(ml.ones {2, 3})]]}
    assert.equal("float32[2,3] (planned, not run: the devices are fake)\n", out)
  end)
end)

describe("set_print_options", function()
  it("holds until it is called again, and returns what held", function()
    local x = ml.tensor {1 / 3, 2000.5}
    local before = ml.set_print_options {precision = 2, suppress = true}
    assert.equal("float32[2]\n[   0.33 2000.5 ]", tostring(x))
    assert.equal(2, ml.set_print_options(before).precision)
    assert.equal("float32[2]\n[3.3333334e-01 2.0005000e+03]", tostring(x))
  end)

  it("refuses what is no option, and what is out of range", function()
    helper.raises("[E_KEY] set_print_options: unknown option 'edgeitems'; did you mean 'edge_items'?",
      ml.set_print_options, {edgeitems = 2})
    helper.raises("[E_VALUE] set_print_options: precision is 100; expected 0 to 99", ml.set_print_options,
      {precision = 100})
    helper.raises("[E_VALUE] show: width is 0; expected 1 or more", ml.show, 1, {width = 0})
    helper.raises("[E_VALUE] set_print_options: option 'sign' must be '-' or '+' or ' ', not a string",
      ml.set_print_options, {sign = "x"})
    assert.equal("float32[1]\n[1.]", tostring(ml.ones {1}))
  end)
end)

describe("a shape", function()
  it("prints as a list, and is one", function()
    local shape = ml.ones({2, 3}).shape
    assert.equal("{2, 3}", tostring(shape))
    assert.equal("{}", tostring(ml.tensor(1.0).shape))
    assert.same({2, 3}, {table.unpack(shape)})
    assert.equal(2, #shape)
    assert.equal("{2, 3}", ml.show(shape))
  end)
end)
