-- devices: 4
-- Branches inside shard_map of which each device knows beforehand what it runs: the same bits as where all run both,
-- and idle devices do nothing.
local helper = require "spec.helper"
local ml = require "meshlua"
local P = ml.P

local raises = helper.raises
local STAGES, MICROBATCHES = 4, 3
local mesh

before_each(function() mesh = ml.make_mesh({STAGES}, {"stage"}) end)
after_each(function() ml.config {passes = {branches = "default"}} end)

local function put(x, ...) return ml.device_put(x, ml.NamedSharding(mesh, P(...))) end
local function draw(n, ...) return ml.random.normal(ml.random.key(n), {...}) end

--- Ticks of a pipeline: stage s works in ticks s to s + MICROBATCHES - 1. `how`: cond, pred(k, tick, stage),
--- loop(body, carry, n) in place of the plain ones.
local function pipe(how)
  return function(w, e, xs)
    return ml.shard_map(function(own, shared, batches)
      local stage = ml.axis_index("stage")
      local function body(c, tick)
        local k = tick - stage
        local active = how.pred and how.pred(k, tick, stage) or k:ge(0) & k:lt(MICROBATCHES)
        local at = {ml.clip(tick, 0, MICROBATCHES - 1), 0, 0}
        local x = ml.where(stage:eq(0), batches:dynamic_slice(at, {1, 2, 4}):reshape(2, 4), c.hop)
        local out, sum = (how.cond or ml.cond)(active, function(h, _, acc)
          local y = ml.scan(function(v, layer) return ml.tanh(v:matmul(layer)) end, h:matmul(shared),
            own:reshape(2, 4, 4))
          return y, acc + y
        end, function(_, hop, acc) return hop, acc end, x, c.hop, c.sum)
        return {hop = ml.ppermute(out, "stage", {{0, 1}, {1, 2}, {2, 3}}), sum = sum}
      end
      local ticks = MICROBATCHES + STAGES - 1
      local first = {hop = ml.zeros {2, 4}, sum = ml.zeros {2, 4}}
      local last = how.loop and how.loop(body, first, ticks) or ml.scan(body, first, ml.arange(ticks))
      return last.sum:reshape(1, 2, 4)
    end, {mesh = mesh, in_specs = {P("stage"), P(), P()}, out_specs = P("stage")})(w, e, xs)
  end
end

local function arguments()
  return put(draw(0, STAGES, 2, 4, 4), "stage"), put(draw(1, 4, 4)), put(draw(2, MICROBATCHES, 2, 4))
end

--- The plans of fn(...) with branches that skip, and without; the results have the same bits.
local function both(fn, ...)
  local plans, results = {}, {}
  for i, on in ipairs {true, false} do
    ml.config {passes = {branches = on}}
    local step = ml.jit(fn)
    plans[i] = step:plan(...)
    results[i] = ml.tree.map(function(x) return x:bitcast("int32"):totable() end, table.pack(step(...)))
  end
  assert.same(results[2], results[1])
  return plans[1], plans[2]
end

local function same(x) return x end
local function squares(fn) return function(...) return (fn(...) ^ 2):sum() end end

local ways = {
  ["a scan's slices"] = {},
  ["fori_loop's counter"] = {loop = function(body, c, n)
    return ml.fori_loop(0, n, function(i, v) return (body(v, i)) end, c)
  end},
  ["a carry that counts"] = {loop = function(body, c, n)
    local function turn(v) return {c = body(v.c, v.i), i = v.i + 1} end
    return ml.scan(turn, {c = c, i = ml.zeros({}, "int32")}, nil, {length = n}).c
  end},
  ["a scan that runs backwards"] = {loop = function(body, c, n)
    return (ml.scan(body, c, ml.arange(n), {reverse = true}))
  end},
  ["a carry that counts, backwards"] = {loop = function(body, c, n)
    local function turn(v) return {c = body(v.c, v.i), i = v.i + 1} end
    return ml.scan(turn, {c = c, i = ml.zeros({}, "int32")}, ml.arange(n), {reverse = true}).c
  end},
  ["unrolled turns"] = {loop = function(body, c, n)
    return (ml.scan(body, c, ml.arange(n), {unroll = 3}))
  end},
  ["remat"] = {loop = function(body, c, n) return (ml.scan(ml.remat(body), c, ml.arange(n))) end},
  ["not and or"] = {pred = function(k)
    return ~(k:lt(0) | (MICROBATCHES - 1 - k):lt(0))
  end},
  ["multiples"] = {pred = function(_, i, s)
    return (2 * i - s * 2 + 1):gt(0) & (s - i + MICROBATCHES):ne(0)
  end},
  ["static_cond"] = {cond = ml.static_cond},
}

describe("a branch that is known beforehand", function()
  for name, how in pairs(ways) do
    it("skips, with the same bits: " .. name, function()
      local on, off = both(pipe(how), arguments())
      assert.truthy(tostring(on):find(" if ", 1, true))
      assert.falsy(tostring(off):find(" if ", 1, true))
      assert.truthy(on:flops() < off:flops())
      both(ml.value_and_grad(squares(pipe(how)), {argnums = {1, 2, 3}}), arguments())
    end)
  end

  it("counts what each device runs: its own microbatches, in other ticks", function()
    local plan, products = ml.jit(pipe {}):plan(arguments()), 0
    local flops = plan:device_flops()
    assert.equal(STAGES, #flops)
    for i = 2, STAGES do assert.equal(flops[1], flops[i]) end
    for _, s in ipairs(plan:steps()) do
      if s.product then products = products + s.flops * s.times end
    end
    assert.equal(MICROBATCHES * 3 * 2 * 2 * 4 * 4, products)
  end)

  it("counts devices that run more than others", function()
    local step = ml.jit(function(w)
      return ml.shard_map(function(v)
        local stage = ml.axis_index("stage")
        return (ml.scan(function(c, i)
          return ml.cond(i:lt(stage), function(x) return x:matmul(x) end, function(x) return x end, c)
        end, v, ml.arange(5)))
      end, {mesh = mesh, in_specs = {P("stage")}, out_specs = P("stage")})(w)
    end)
    local w = put(draw(3, 16, 4), "stage")
    local flops = step:plan(w):device_flops()
    for s = 1, STAGES - 1 do assert.equal(s * 2 * 4 ^ 3, flops[s + 1] - flops[1]) end
    local most, least = step:plan(w):flops()
    assert.equal(flops[STAGES], most)
    assert.equal(flops[1], least)
    assert.truthy(tostring(step:plan(w)):find(("%.4g to %.4g flops"):format(least, most), 1, true))
    local before = {}
    for d = 1, STAGES do before[d] = ml.core.counters(d - 1).flops end
    step(w)
    for d = 1, STAGES do assert.equal(flops[d], ml.core.counters(d - 1).flops - before[d]) end
  end)

  it("makes a switch of stages one", function()
    local function fn(x)
      return ml.shard_map(function(v)
        return ml.switch(ml.axis_index("stage") - 1,
          {function(u) return u * 2 end, function(u) return u:matmul(u) end, same}, v)
      end, {mesh = mesh, in_specs = {P("stage")}, out_specs = P("stage")})(x)
    end
    local on = both(fn, put(draw(4, 16, 4), "stage"))
    assert.truthy(tostring(on):find("if 2 <= stage < 3", 1, true))
    assert.truthy(tostring(on):find("if stage < 2", 1, true))
  end)

  it("stands in another, and in a vmap", function()
    local function fn(x)
      return ml.shard_map(function(v)
        local stage = ml.axis_index("stage")
        return (ml.scan(function(c, i)
          return ml.cond(stage:le(i), function(u)
            return ml.cond((i - stage):lt(2), ml.sin, function(q) return q * 0.5 end, u)
          end, function(u) return u end, c)
        end, v, ml.arange(5)))
      end, {mesh = mesh, in_specs = {P("stage")}, out_specs = P("stage")})(x)
    end
    local x = put(draw(5, 4, 3), "stage")
    assert.truthy(tostring((both(fn, x))):find(" and ", 1, true))
    both(ml.grad(squares(fn)), x)
    both(function(v) return ml.jvp(fn, {v}, {v}) end, x)
    both(ml.vmap(fn), put(draw(6, 2, 4, 3), nil, "stage"))
  end)

  it("takes gradients in a branch", function()
    local function fn(w)
      return ml.shard_map(function(v)
        local stage = ml.axis_index("stage")
        local last = ml.scan(function(c, i)
          local k = i - stage
          return ml.cond(k:ge(0) & k:lt(2), function(acc)
            return acc + ml.grad(function(u) return ml.sin(u:matmul(u)):sum() end)(v)
          end, function(acc) return acc end, c)
        end, ml.zeros_like(v), ml.arange(5))
        return last
      end, {mesh = mesh, in_specs = {P("stage")}, out_specs = P("stage")})(w)
    end
    local on = both(fn, put(draw(6, 16, 4), "stage"))
    local text = tostring(on)
    assert.falsy(text:find("copy[^\n]* if "), text) -- who is idle does nothing at all
  end)

  it("falls back to both branches where the counter is an argument", function()
    local function fn(x, ticks)
      return ml.shard_map(function(v, t)
        local stage = ml.axis_index("stage")
        return (ml.scan(function(c, i)
          return ml.cond(stage:le(i), function(u) return ml.sin(u) end, function(u) return u end, c)
        end, v, t))
      end, {mesh = mesh, in_specs = {P("stage"), P()}, out_specs = P("stage")})(x, ticks)
    end
    local on = both(fn, put(draw(7, 4, 3), "stage"), put(ml.arange(3)))
    assert.falsy(tostring(on):find(" if ", 1, true))
  end)
end)

describe("static_cond", function()
  local function with(pred, body)
    return function(x)
      return ml.shard_map(function(v)
        local stage = ml.axis_index("stage")
        return (ml.scan(function(c, i)
          return ml.static_cond(pred(i, stage, c), body or ml.sin, same, c)
        end, v, ml.arange(5)))
      end, {mesh = mesh, in_specs = {P("stage")}, out_specs = P("stage")})(x)
    end
  end
  local x = ml.ones {4, 3}

  --- The error has all these texts.
  local function refused(texts, ...)
    local message = raises("[E_VALUE]", with(...), x)
    for _, text in ipairs(texts) do assert.truthy(message:find(text, 1, true), message) end
  end

  it("refuses a predicate that data decides", function()
    refused({"branches_spec.lua:", "static_cond: the float32 of ", "is not known before the program runs",
      "ml.axis_index"}, function(_, _, c) return c:sum():gt(0.0) end)
  end)

  it("refuses one that is no interval", function()
    refused({"static_cond: the result of mod (", "branches_spec.lua:", "is not known before the program"},
      function(i, s) return ((i - s) % 2):eq(0) end)
  end)

  it("refuses collectives over devices that differ", function()
    refused({"inside is over 'stage'", "branches_spec.lua:"}, function(i, s) return i:lt(s) end,
      function(u) return ml.psum(u, "stage") + u end)
  end)

  it("refuses a while_loop inside", function()
    local texts = {"static_cond: ", "branches_spec.lua:", ": a while_loop is inside"}
    refused(texts, function(i, s) return i:lt(s) end, function(u)
      local function turn(c) return {n = c.n + 1, u = c.u * 2} end
      return ml.while_loop(function(c) return c.n:lt(3) end, turn, {n = ml.zeros({}, "int32"), u = u}).u
    end)
  end)

  it("refuses a counter that is an argument, and examples that differ", function()
    local message = raises("[E_VALUE]", function(v)
      local step = ml.jit(function(ticks) return ml.shard_map(function(t)
        return (ml.scan(function(c, i)
          return ml.static_cond(i:lt(ml.axis_index("stage")), function(u) return u + 1 end, same, c)
        end, ml.zeros {1}, t))
      end, {mesh = mesh, in_specs = {P()}, out_specs = P("stage")})(ticks) end)
      return step(put(v))
    end, ml.arange(3))
    assert.truthy(message:find("what comes from outside the program", 1, true), message)
    raises("[E_VALUE]", ml.vmap(function(i)
      return ml.static_cond(i:gt(0), function(u) return u end, function(u) return u * 2 end, ml.ones {2})
    end), ml.arange(3))
  end)

  it("is cond where no device differs", function()
    assert.equal(4.0, ml.static_cond(true, function(u) return u * 2 end, same, ml.tensor(2.0)):item())
  end)
end)
