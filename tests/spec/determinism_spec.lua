-- devices: 8
-- A run gives the same bits each time, however its threads meet.
local ml = require "meshlua"
local P, NamedSharding = ml.P, ml.NamedSharding

describe("the same bits", function()
  -- 8 slots of 2 x 64 x 96 x 96 operations each: large enough for BLAS, called from all threads at once.
  it("come from products on all threads, 300 times", function()
    local mesh = ml.make_mesh({8}, {"x"})
    local x = ml.random.normal(ml.random.key(1), {512, 96})
    local w = ml.random.normal(ml.random.key(2), {96, 96}) * 0.1
    x = ml.device_put(x, NamedSharding(mesh, P("x")))
    local step = ml.jit(function(h, v)
      for _ = 1, 4 do h = ml.tanh(ml.matmul(h, v)) end
      return h
    end)
    local first = step(x, w)
    for i = 1, 300 do
      assert.is_true(ml.all(step(x, w):eq(first)):item(), "call " .. i .. " differs")
    end
  end)
end)
