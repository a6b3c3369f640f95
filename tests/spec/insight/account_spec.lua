-- devices: 8
-- account_spec.lua: what explain counts is what the executor does and what a hand counts: loops as often as
-- they
-- turn, work done alike, padding and what is computed again told apart, products by their dtype, sends by
-- link.
local account = require "meshlua.insight.account"
local helper = require "spec.helper"
local ml = require "meshlua"
local P, NamedSharding = ml.P, ml.NamedSharding

local mesh = ml.make_mesh({4, 2}, {"data", "model"})
local function ones(shape, ...) return ml.device_put(ml.ones(shape), NamedSharding(mesh, P(...))) end

--- The account of a call, and what a device's counters say that it did.
local function counted(step, ...)
  local before = ml.core.counters()
  step(...)
  local after = ml.core.counters()
  local sent = 0
  for kind, bytes in pairs(after.sent) do sent = sent + bytes - before.sent[kind] end
  return account.of(step:plan(...)), {flops = after.flops - before.flops, sent = sent,
    products = after.matmul_flops - before.matmul_flops}
end

local function product_flops(a)
  local flops = 0
  for _, item in ipairs(a.items) do flops = flops + (item.product and item.flops or 0) end
  return flops
end

describe("account", function()
  for _, turns in ipairs {1, 32, 320} do
    it(("counts work, sends and seconds of a loop of %d turns as often"):format(turns), function()
      local function step_of(n)
        return ml.jit(function(w, x)
          return (ml.scan(function(c) return ml.tanh(ml.matmul(c, w)), nil end, x, nil, {length = n}))
        end)
      end
      local w, x = ones({64, 64}, "data"), ones({32, 64}, "data")
      local a, did = counted(step_of(turns), w, x)
      local rows, part = 32 // 4, 64 * 64 * 4 // 4
      assert.equal(turns * 2 * rows * 64 * 64, product_flops(a))
      assert.equal(turns * (2 * rows * 64 * 64 + rows * 64), a.flops)
      assert.equal(turns * 3 * part, a.sent)
      assert.same({flops = a.flops, sent = a.sent, products = product_flops(a)}, did)
      local once = counted(step_of(1), w, x)
      helper.close(turns * once.sending, a.sending, 1e-12)
      helper.close(once.share, a.share, 0.05)
    end)
  end

  it("counts loops in loops, and says where a collective stands and that it could leave", function()
    local step = ml.jit(function(w, x)
      return (ml.scan(function(c)
        return (ml.scan(function(d) return ml.tanh(ml.matmul(d, w)), nil end, c, nil, {length = 3})), nil
      end, x, nil, {length = 5}))
    end)
    local a, did = counted(step, ones({64, 64}, "data"), ones({32, 64}, "data"))
    assert.equal(did.flops, a.flops)
    assert.equal(15 * 2 * 8 * 64 * 64, product_flops(a))
    local gather
    for _, item in ipairs(a.items) do gather = item.kind == "collective" and item or gather end
    assert.equal(15, gather.times)
    assert.equal(2, #gather.loops)
    assert.equal(gather.loops[2].step.loop, gather.steady)
  end)

  it("tells work that several devices do alike, also where only a part of an axis splits it", function()
    local half = account.of(ml.jit(function(x, w) return ml.matmul(x, w) end):plan(ones({64, 64}, "data"),
      ones {64, 64}))
    assert.equal(0.5, half.unique)
    assert.equal(half.flops / 2, half.repeated)
    local wide = ml.make_mesh({8}, {"model"})
    local function put(shape, ...) return ml.device_put(ml.ones(shape), NamedSharding(wide, P(...))) end
    local step = ml.jit(function(x, w) -- 2 heads on 8 places
      return ml.einsum("bthd,hde->bthe", x:reshape({4, 16, 2, 32}), w)
    end)
    local part = account.of(step:plan(put({4, 16, 64}, nil, nil, "model"), put {2, 32, 32}))
    local item
    for _, other in ipairs(part.items) do item = other.product and other or item end
    assert.is_true(item.unique < 1, "unique " .. item.unique)
  end)

  it("tells padding from work", function()
    local w = ml.device_put(ml.ones {10, 64}, NamedSharding(mesh, P({"data", uneven = "pad"})))
    local a, did = counted(ml.jit(function(x, v) return ml.matmul(x, v:transpose()) end), ones {16, 64}, w)
    assert.equal(2 * 16 * 64 * 3, a.flops) -- 10 rows on 4 devices: 3 each, 2 of 12 are none
    assert.equal(a.flops, did.flops)
    helper.close(a.flops * 2 / 12, a.padded, 1e-6)
  end)

  it("tells what is computed once more", function()
    local function step_of(wrap)
      return ml.jit(function(w, x)
        return ml.grad(function(v)
          return wrap(function(u) return ml.tanh(ml.matmul(x, u)) end)(v):sum()
        end)(w)
      end)
    end
    local w, x = ones {64, 64}, ones({32, 64}, "data")
    local kept = counted(step_of(function(f) return f end), w, x)
    local anew, did = counted(step_of(ml.remat), w, x)
    assert.equal(0, kept.recomputed)
    assert.equal(2 * 8 * 64 * 64 + 8 * 64, anew.recomputed)
    assert.equal(did.flops, anew.flops)
  end)

  it("prices products by their dtype, and each axis by the links that it crosses", function()
    local out, err, status = helper.run {"--devices=fake:h200:2x8", helper.file([[
      local ml = require "meshlua"
      local account = require "meshlua.insight.account"
      local P, NamedSharding = ml.P, ml.NamedSharding
      local mesh = ml.make_mesh({2, 8}, {"data", "model"})
      local function ones(shape, dtype, ...)
        return ml.device_put(ml.ones(shape, dtype), NamedSharding(mesh, P(...)))
      end
      local product = ml.jit(function(x, w) return ml.matmul(x, w) end)
      for _, dtype in ipairs {"float32", "bfloat16"} do
        local a = account.of(product:plan(ones({8192, 8192}, dtype), ones({8192, 8192}, dtype)))
        print(dtype, a.computing * (dtype == "float32" and 67e12 or 989.4e12) == 2 * 8192 ^ 3)
      end
      local function sums(...)
        local axes = {...}
        local a = account.of(ml.jit(function(x) return x:sum(1) end):plan(ones({16, 1 << 20}, "float32",
          axes)))
        local mine = (1 << 20) * 4
        print(table.concat(axes, ","), a.sent / mine, a.between / mine, a.sending)
      end
      sums "model"
      sums "data"
      sums("data", "model")
    ]], ".lua")}
    assert.equal("", err)
    assert.equal(0, status)
    local mine = (1 << 20) * 4
    local function seconds(inside, between) return 7e-6 + mine * inside / 450e9 + mine * between / 50e9 end
    local lines = {}
    for line in out:gmatch "[^\n]+" do lines[#lines + 1] = line end
    assert.equal("float32\ttrue", lines[1])
    assert.equal("bfloat16\ttrue", lines[2])
    for i, row in ipairs {{"model", 1.75, 0}, {"data", 0, 1}, {"data,model", 1.75, 0.125}} do
      local axes, sent, between, sending = lines[i + 2]:match "(%S+)\t(%S+)\t(%S+)\t(%S+)"
      assert.equal(row[1], axes)
      helper.close(row[2] + row[3], tonumber(sent), 1e-12)
      helper.close(row[3], tonumber(between), 1e-12)
      helper.close(seconds(row[2], row[3]), tonumber(sending), 1e-12)
    end
  end)
end)
