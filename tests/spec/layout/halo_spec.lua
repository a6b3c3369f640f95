-- devices: 8
-- halo_spec.lua: convolutions along dims that are split: the edges of the neighbours travel, not the dim.
local helper = require "spec.helper"
local ml = require "meshlua"

local P, NamedSharding = ml.P, ml.NamedSharding
local mesh = ml.make_mesh({4, 2}, {"x", "y"})

local function data(shape, salt)
  return ml.random.randint(ml.random.key(salt), shape, -8, 9):astype "float32" / 8
end

local function calls(plan)
  local list = {}
  for i, c in ipairs(plan:collectives()) do
    list[i] = ("%s over %s %g"):format(c.op, table.concat(c.axes, ","), c.sent)
  end
  return list
end

--- Values and gradients of a convolution of split images against one device; gives the value's collectives.
local function check(x, w, options, spec)
  local function conv(a, k) return ml.conv(a, k, options) end
  local images, kernel = data(x, 1), data(w, 2)
  local numbers = data(conv(images, kernel).shape, 3)
  local function loss(a, k) return (conv(a, k) * numbers):sum() end
  local split = ml.device_put(images, NamedSharding(mesh, spec))
  local step, gradient = ml.jit(conv), ml.jit(ml.grad(loss, {argnums = {1, 2}}))
  helper.close(conv(images, kernel), step(split, kernel), 1e-5)
  local want, got = gradient(images, kernel), gradient(split, kernel)
  for i = 1, 2 do helper.close(want[i], got[i], 1e-5) end
  return calls(step:plan(split, kernel)), ml.typeof(step(split, kernel))
end

describe("a convolution along a split dim", function()
  it("sends the edges of the parts", function()
    -- Rows of 2 * 8 * 3 float32: one to the next part, one to the part before.
    local sent, type = check({2, 16, 8, 3}, {3, 3, 3, 5}, {padding = "same"}, P(nil, "x"))
    assert.same({"ppermute over x 192", "ppermute over x 192"}, sent)
    assert.equal("float32[2,16@x,8,5]", type)
  end)

  it("along two dims, over two axes of one dim, and with the batch split", function()
    local sent = check({2, 8, 8, 3}, {3, 3, 3, 2}, {padding = "same"}, P(nil, "x", "y"))
    assert.equal(4, #sent) -- two a dim; the second pair has the first one's edges, so that corners arrive
    assert.equal(2, #check({2, 16, 8, 3}, {3, 1, 3, 2}, {padding = "same"}, P(nil, {"y", "x"})))
    assert.equal(2, #check({2, 16, 8, 3}, {3, 3, 3, 2}, {padding = "same"}, P("y", "x")))
  end)

  it("of one side only, where the window looks one way", function()
    for _, pads in ipairs {{2, 0}, {0, 2}} do
      local sent = check({2, 16, 8, 3}, {3, 1, 3, 2}, {padding = {pads, {0, 0}}}, P(nil, "x"))
      assert.same({"ppermute over x 384"}, sent)
    end
  end)

  it("with strides and dilated kernels", function()
    check({2, 16, 8, 3}, {3, 3, 3, 2}, {padding = "same", strides = {2, 2}}, P(nil, "x", "y"))
    check({2, 16, 8, 3}, {3, 3, 3, 2}, {padding = {{2, 2}, {1, 1}}, kernel_dilation = {2, 1}}, P(nil, "x"))
    check({2, 16, 8, 4}, {3, 3, 2, 4}, {padding = "same", groups = 2}, P(nil, "x"))
  end)

  it("sends nothing where windows do not overlap", function()
    local sent, type = check({2, 16, 8, 3}, {4, 4, 3, 5}, {strides = {4, 4}}, P(nil, "x"))
    assert.same({}, sent)
    assert.equal("float32[2,4@x,2,5]", type)
  end)

  it("gathers the dim where parts do not keep their places, or are smaller than the edges", function()
    local valid = check({2, 16, 8, 3}, {3, 3, 3, 2}, {}, P(nil, "x"))
    local small = check({2, 4, 8, 3}, {5, 3, 3, 2}, {padding = "same"}, P(nil, "x"))
    assert.truthy(valid[1]:find "all_gather" and small[1]:find "all_gather")
  end)

  it("says why", function()
    local step = ml.jit(function(a, k) return ml.conv(a, k, {padding = "same"}) end)
    local x = ml.device_put(ml.ones {2, 16, 8, 3}, NamedSharding(mesh, P(nil, "x")))
    local plan = step:plan(x, ml.ones {3, 3, 3, 2})
    assert.truthy(plan:collectives()[1].why:find("x of conv: dim 2 is split on x, and each part needs 1 "
      .. "of the part before it and 1 of the next", 1, true), plan:collectives()[1].why)
  end)
end)
