-- devices: 8
-- Loops and branches under sharding give what one device gives; the layouts of carries and stacks.
local helper = require "spec.helper"
local ml = require "meshlua"

local close = helper.close
local P, NamedSharding = ml.P, ml.NamedSharding
local mesh = ml.make_mesh({4, 2}, {"data", "model"})

local function put(x, spec) return ml.device_put(x, NamedSharding(mesh, spec)) end
local function whole(x) return ml.device_put(x, NamedSharding(mesh, P())) end
local function draw(n, ...) return ml.random.normal(ml.random.key(n), {...}) end

--- The residual block of each layer: two products, as in an MLP of a transformer.
local function block(h, w)
  local z = ml.tanh(h:matmul(w.up))
  return h + z:matmul(w.down), (z * z):mean()
end

local function scanned(up, down, x)
  local h, ys = ml.scan(block, x, {up = up, down = down})
  return (h * h):mean() + ys:sum()
end

local function unrolled(up, down, x)
  local h, sum = x, 0.0
  for k = 1, up.shape[1] do
    local y
    h, y = block(h, {up = up:slice(k), down = down:slice(k)})
    sum = sum + y
  end
  return (h * h):mean() + sum
end

local up, down, x = draw(1, 4, 8, 16) * 0.3, draw(2, 4, 16, 8) * 0.3, draw(3, 8, 8)
local layouts = {
  dp = {P(), P(), P("data")},
  tp = {P(nil, nil, "model"), P(nil, "model"), P()},
  dp_tp = {P(nil, nil, "model"), P(nil, "model"), P("data")},
  fsdp = {P(nil, "data"), P(nil, nil, "data"), P("data")},
  two_axes = {P(nil, {"data", "model"}), P(nil, nil, {"model", "data"}), P({"data", "model"})},
  carry_split_otherwise = {P(), P(nil, "model"), P(nil, "data")},
}

describe("a scan over layers", function()
  local loss, grads = ml.value_and_grad(unrolled, {argnums = {1, 2, 3}})(up, down, x)
  for name, specs in pairs(layouts) do
    it("C1: trains under " .. name .. " as the unrolled model does on one device", function()
      for _, model in ipairs {scanned, unrolled} do
        local step = ml.jit(ml.value_and_grad(model, {argnums = {1, 2, 3}}))
        local l, g = step(put(up, specs[1]), put(down, specs[2]), put(x, specs[3]))
        close(loss, l, 2e-6)
        for i = 1, 3 do close(grads[i], whole(g[i]), 1e-5) end
      end
    end)
  end

  it("of no layers gives back what went in, under every layout", function()
    local none_up, none_down = ml.zeros {0, 8, 16}, ml.zeros {0, 16, 8}
    for _, specs in pairs(layouts) do
      local step = ml.jit(ml.value_and_grad(scanned, {argnums = {1, 2, 3}}))
      local l, g = step(put(none_up, specs[1]), put(none_down, specs[2]), put(x, specs[3]))
      close((x * x):mean(), l, 2e-6)
      close(x * (2 / 64), whole(g[3]), 1e-6)
      assert.same({0, 8, 16}, g[1].shape)
      local out, ys = ml.jit(function(u, d, h)
        return ml.scan(function(c, layer) return block(c, layer), c end, h, {up = u, down = d})
      end)(put(none_up, specs[1]), put(none_down, specs[2]), put(x, specs[3]))
      assert.same(x:totable(), whole(out):totable())
      assert.same({0, 8, 8}, ys.shape)
    end
    local stacked = put(ml.zeros {0, 8}, P("data")) -- the dim of slices itself is split
    assert.equal(36, ml.scan(function(c, row) return c + row:sum() end, 36.0, stacked):item())
  end)

  it("under tp has Megatron's two reductions per layer, inside the loop, and counts them by layer", function()
    local step = ml.jit(ml.grad(scanned, {argnums = {1, 2, 3}}))
    local plan = step:plan(put(up, P(nil, nil, "model")), put(down, P(nil, "model")), put(x, P("data")))
    local text = tostring(plan)
    assert.matches("scan 4 times %d+ steps", text)
    assert.matches("scan 4 times from the end %d+ steps", text)
    local times = 0
    for _, c in ipairs(plan:collectives()) do
      if table.concat(c.axes, ",") == "model" and c.times == 4 then times = times + 1 end
    end
    assert.is_true(times >= 2)
  end)

  it("C1: gathers xs that are split along dim 1, and never splits a stack there", function()
    local step = ml.jit(function(xs)
      return select(2, ml.scan(function(c, s) return c + s, c * s end, ml.zeros {8}, xs))
    end)
    local xs = draw(5, 8, 8)
    local got = step(put(xs, P("data", "model")))
    close(step(xs), whole(got), 1e-6)
    assert.equal("float32[8,8@model]", ml.typeof(got))
  end)
end)

it("C1: refuses xs whose dim 1 is split on an explicit axis", function()
  local explicit = ml.make_mesh({8}, {"x"}, {axis_types = {"explicit"}})
  local xs = ml.device_put(draw(9, 8, 4), NamedSharding(explicit, P("x")))
  local function sum(a) return (ml.scan(function(c, s) return c + s end, ml.zeros {4}, a)) end
  local wanted = "[E_SPEC] scan: dim 1 of xs is split on the explicit axis 'x' (float32[8@x,4])"
  helper.raises(wanted, sum, xs)
  helper.raises(wanted, ml.jit(sum), xs)
  close(sum(draw(9, 8, 4)), sum(ml.device_put(xs, NamedSharding(explicit, P()))), 1e-6)
end)

describe("a while_loop under sharding", function()
  it("stops where one device stops, with the carry split", function()
    local step = ml.jit(function(v)
      return ml.while_loop(function(c) return c.v:sum():lt(1000.0) end,
        function(c) return {v = c.v * 1.5 + 1.0, n = c.n + 1} end, {v = v, n = 0})
    end)
    local v = draw(6, 8, 4)
    local want = step(v)
    for _, spec in ipairs {P("data"), P("data", "model"), P(nil, "model"), P({"model", "data"})} do
      local got = step(put(v, spec))
      assert.equal(want.n:item(), got.n:item())
      close(want.v, whole(got.v), 1e-5)
    end
  end)
end)

describe("a cond under sharding", function()
  it("gives and differentiates the branch that runs", function()
    local function loss(p, v, w)
      return (ml.cond(p:sum():gt(0.0), function(a) return ml.tanh(a:matmul(w)) end,
        function(a) return a:matmul(w:transpose()) * 2.0 end, v) ^ 2):mean()
    end
    local step = ml.jit(ml.value_and_grad(loss, {argnums = {2, 3}}))
    local v, w = draw(7, 8, 8), draw(8, 8, 8)
    for _, sign in ipairs {1.0, -1.0} do
      local p = ml.ones {4} * sign
      local l, g = step(p, v, w)
      local layouts_of_cond = {{P("data"), P("data"), P(nil, "model")},
        {P(), P(nil, "data"), P("model", "data")}}
      for _, specs in ipairs(layouts_of_cond) do
        local m, h = step(put(p, specs[1]), put(v, specs[2]), put(w, specs[3]))
        close(l, m, 2e-6)
        for i = 1, 2 do close(g[i], whole(h[i]), 1e-5) end
      end
    end
  end)
end)
