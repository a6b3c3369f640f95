-- devices: 8
-- stages_spec.lua: step:trace, step:lower and compile(). The numbers are those of the checklist of JAX's semantics.
local helper = require "spec.helper"
local ml = require "meshlua"

local P, NamedSharding = ml.P, ml.NamedSharding
local mesh = ml.make_mesh({4, 2}, {"data", "model"})

local function named(...) return NamedSharding(mesh, P(...)) end

local function layer(x, w) return {y = x:matmul(w), rows = x:sum(2)} end
local function arguments()
  return ml.device_put(ml.ones {8, 16}, named("data", "model")),
    ml.device_put(ml.ones {16, 4}, named "model")
end

describe("the stages of a jitted function", function()
  it("J7: each has its text, and the types of what goes in and comes out", function()
    local step, x, w = ml.jit(layer), arguments()
    local traced = step:trace(x, w)
    assert.truthy(traced:as_text():find("= matmul ", 1, true))
    assert.falsy(traced:as_text():find("all_reduce", 1, true))
    local lowered = traced:lower()
    assert.truthy(lowered:as_text():find("all_reduce", 1, true))
    assert.truthy(lowered:as_text "propagate" :find("float32[8@data,4]", 1, true))
    local compiled = step:lower(x, w):compile()
    assert.truthy(compiled:as_text():find("all_reduce", 1, true))
    for _, stage in ipairs {traced, lowered, compiled} do
      assert.same({"float32[8@data,16@model]", "float32[16@model,4]"}, {tostring(stage.in_avals[1]),
        tostring(stage.in_avals[2])})
      local out = stage.out_avals[1]
      assert.same({"float32[8@data,4]", "float32[8@data]"}, {tostring(out.y), tostring(out.rows)})
    end
    assert.is_true(compiled.input_shardings[2] == named "model")
    assert.is_true(compiled.output_shardings[1].rows == named "data")
    assert.same({0, 0}, {step:stats()}) -- nothing was called, nothing is kept
    helper.raises("[E_KEY] as_text: there is no stage 'propagte' (did you mean 'propagate'?); there are "
      .. "trace", lowered.as_text, lowered, "propagte")
  end)

  it("J7: what it costs and holds is a table", function()
    local compiled = ml.jit(layer):lower(arguments()):compile()
    local cost, memory = compiled:cost_analysis(), compiled:memory_analysis()
    -- Of one device: x[2,8] times w[8,4], sums of 2 rows of 8; both results summed over `model`.
    assert.truthy(cost.flops >= 2 * 2 * 8 * 4 + 2 * 8 and cost.flops < 2 * 2 * 8 * 4 + 100, cost.flops)
    assert.truthy(cost.bytes_accessed >= 4 * (16 + 32 + 8), cost.bytes_accessed)
    assert.truthy(cost.collectives >= 1 and cost.bytes_sent == 4 * (8 + 2), cost.bytes_sent)
    assert.truthy(cost.optimal_seconds > 0)
    assert.equal(4 * (16 + 32), memory.argument_size_in_bytes)
    assert.equal(4 * (8 + 2), memory.output_size_in_bytes)
    assert.equal(0, memory.alias_size_in_bytes)
    assert.truthy(memory.peak_memory_in_bytes >= 4 * (16 + 32 + 8 + 2))
    local donating = ml.jit(function(x) return x * 2 end, {donate = "x"}):lower((arguments())):compile()
    assert.equal(64, donating:memory_analysis().alias_size_in_bytes)
    assert.equal(64, donating:memory_analysis().output_size_in_bytes)
  end)

  it("J7 J8: what is compiled runs, for these arguments alone", function()
    local x, w = arguments()
    local compiled = ml.jit(function(a, t, n) return a:matmul(t.w) * n end):lower(x, {w = w}, 2):compile()
    assert.same(ml.full({8, 4}, 32.0):totable(), compiled(x, {w = w}, 2):totable())
    assert.same(ml.full({8, 4}, 48.0):totable(), compiled(x, {w = w}, 3):totable())
    local message = helper.raises("[E_VALUE] compiled: other arguments than it was compiled for: ", compiled,
      ml.ones {8, 16}, {v = w}, 2.5)
    for _, part in ipairs {
      "a is float32[8,16], compiled for float32[8@data,16@model] on Mesh(data=4, model=2)",
      "t.v is float32[16@model,4] on Mesh(data=4, model=2), which was not there",
      "n is a number, compiled for a whole number",
      "t.w is missing, compiled for float32[16@model,4] on Mesh(data=4, model=2)",
    } do
      assert.truthy(message:find(part, 1, true), message)
    end
    helper.raises("t.w is missing", compiled, x)
  end)

  it("J8: of many differences six are named, and the rest counted", function()
    local function numbered(n, prefix)
      local list = {}
      for i = 1, n do list[("%s%02d"):format(prefix, i)] = ml.ones {2} end
      return list
    end
    local compiled = ml.jit(function(t) return t.a01 end):lower(numbered(9, "a")):compile()
    local _, message = pcall(compiled, numbered(1, "a"))
    assert.truthy(message:find("t.a02 is missing", 1, true), message)
    assert.truthy(message:find("t.a07 is missing", 1, true), message)
    assert.falsy(message:find("t.a08", 1, true), message)
    assert.truthy(message:find("; and 2 more", 1, true), message)
    _, message = pcall(compiled, numbered(8, "b"))
    assert.truthy(message:find("t.b06 is float32[2]", 1, true), message)
    assert.falsy(message:find("t.b07", 1, true) or message:find("t.a0", 1, true), message)
    assert.truthy(message:find("; and 11 more", 1, true), message)
    _, message = pcall(compiled, setmetatable({}, nil))
    assert.truthy(message:find("; and 3 more", 1, true), message)
  end)

  it("J8: what is compiled is no part of a trace, nor differentiated", function()
    local x = ml.ones {4}
    local compiled = ml.jit(function(t) return t:sum() end):lower(x):compile()
    assert.equal(4.0, compiled(x):item())
    local message = "[E_TRACED] a compiled function cannot be part of a traced one, nor be differentiated"
    helper.raises(message, ml.jit(function(t) return compiled(t) end), x)
    helper.raises(message, ml.grad(function(t) return compiled(t) end), x)
    helper.raises("[E_TRACED] lower: inside a traced function", ml.jit(function(t)
      return ml.jit(function(u) return u end):lower(t)
    end), x)
  end)

  it("J7: takes types in place of tensors, also of devices that are not there", function()
    local step = ml.jit(layer)
    local far = ml.AbstractMesh({512, 8}, {"data", "model"})
    local function struct(shape, ...)
      return ml.ShapeDtypeStruct(shape, "bfloat16", NamedSharding(far, P(...)))
    end
    local lowered = step:lower(struct({4096, 8192}, "data", "model"), struct({8192, 1024}, "model"))
    assert.equal("bfloat16[4096@data,1024]", tostring(lowered.out_avals[1].y))
    assert.equal(2 * (8 * 1024 + 1024 * 1024), lowered:compile():memory_analysis().argument_size_in_bytes)
    helper.raises("[E_MESH] an AbstractMesh has no devices to run on", lowered:compile(),
      struct({4096, 8192}, "data", "model"), struct({8192, 1024}, "model"))
    local model = ml.abstract(function() return {w = ml.nn.Param(ml.zeros {16, 4})} end)
    assert.equal("float32[2,4]", tostring(ml.jit(function(m, x) return x:matmul(m.w) end):lower(model,
      ml.ones {2, 16}).out_avals[1]))
  end)

  it("J7: writes Params and donates as the jitted function does", function()
    local box = helper.param(ml.ones {4})
    local step = ml.jit(function(m, x) m.w:set(m.w + x) end)
    local compiled = step:lower({w = box}, ml.ones {4}):compile()
    assert.equal(4.0, box:sum():item())
    compiled({w = box}, ml.ones {4})
    assert.equal(8.0, box:sum():item())
    local x = ml.ones {4}
    ml.jit(function(t) return t * 2 end, {donate = "t"}):lower(x):compile()(x)
    assert.is_true(x:is_deleted())
  end)
end)
