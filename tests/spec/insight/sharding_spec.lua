-- devices: 8
-- sharding_spec.lua: ml.why_sharding: the way from a tensor to who split it.
local helper = require "spec.helper"
local ml = require "meshlua"
local P, NamedSharding = ml.P, ml.NamedSharding

local mesh = ml.make_mesh({4, 2}, {"data", "model"})
local function ones(shape, ...) return ml.device_put(ml.ones(shape), NamedSharding(mesh, P(...))) end

--- A text with the lines of this file in the places of numbers behind its name.
local function placed(text) return (text:gsub("tests/spec/insight/sharding_spec.lua:", "line ")) end

describe("why_sharding", function()
  it("tells of a traced tensor who split each dim, and through which ops", function()
    local told
    local line = debug.getinfo(1, "l").currentline + 2
    local step = ml.jit(function(x, w)
      local y = ml.tanh(ml.matmul(x, w))
      told = ml.why_sharding(y)
      return y
    end)
    step(ones({8, 16}, "data"), ones({16, 4}, nil, "model"))
    assert.equal(("float32[8@data,4@model]\ndim 1 on data: tanh at line %d, matmul at line %d, argument x\n"
      .. "dim 2 on model: tanh at line %d, matmul at line %d, argument w"):format(line, line, line, line),
      placed(told))
  end)

  it("tells of the results of a step, and names constraints by their line", function()
    local line = debug.getinfo(1, "l").currentline + 2
    local step = ml.jit(function(x)
      local y = (x * 2):constrain(NamedSharding(mesh, P(nil, "model")))
      return y:exp(), x:sum()
    end)
    local first, second = ml.why_sharding(step, ones({8, 16}, "data"))
    assert.truthy(placed(first):find("^float32%[8,16@model%]\ndim 2 on model: exp at line " .. line + 1
      .. ", constrained at line " .. line), first)
    assert.equal("float32[]: nothing splits it", second)
  end)

  it("tells of results how the step lays them out, also by the definitions of ops", function()
    local norm = ml.nn.LayerNorm(64, {rngs = ml.nn.Rngs(0)})
    local x = ones({64, 64}, "data", "model")
    for name, f in pairs {softmax = function(v) return ml.softmax(v, 2) end,
        log_softmax = function(v) return ml.log_softmax(v, 2) end,
        logsumexp = function(v) return ml.logsumexp(v, 2) end,
        ["LayerNorm"] = function(v) return norm(v) end,
        ["LayerNorm of a softmax"] = function(v) return norm(ml.softmax(v, 2)) end,
        sort = function(v) return ml.sort(v, 1) end, cumsum = function(v) return ml.cumsum(v, 2) end} do
      local inside
      local step = ml.jit(function(v)
        local y = f(v)
        inside = ml.why_sharding(y)
        return y
      end)
      local type_of = ml.typeof(step(x))
      for _, told in ipairs {ml.why_sharding(step, x), inside} do
        assert.equal(tostring(type_of), told:match "^[^\n:]*%]", name)
      end
    end
  end)

  it("tells of a concrete tensor how it was placed, and refuses the rest", function()
    assert.truthy(ml.why_sharding(ones({8, 2}, "data")):find("placed so, as NamedSharding", 1, true))
    helper.raises("[E_VALUE] why_sharding: expected a tensor or a function made by ml.jit, got a number",
      ml.why_sharding, 1)
  end)
end)
