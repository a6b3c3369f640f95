-- devices: 8
-- reshard_spec.lua: from every layout into every other one, the values stay where they belong. What it costs is
-- the subject of tests/unit/pass/test_reshard.c.
local ml = require "meshlua"

local P, NamedSharding = ml.P, ml.NamedSharding

--- All specs of a rank: every way to put some of the axes on the dims, in every order.
local function all_specs(names, rank)
  local specs = {}
  local function extend(dims, used)
    local entries = {}
    for d = 1, rank do entries[d] = #dims[d] > 0 and table.move(dims[d], 1, #dims[d], 1, {}) or P.none end
    local spec = P(table.unpack(entries, 1, rank))
    if specs[tostring(spec)] then return end
    specs[tostring(spec)], specs[#specs + 1] = true, spec
    for d = 1, rank do
      for _, name in ipairs(names) do
        if not used[name] then
          used[name] = true
          table.insert(dims[d], name)
          extend(dims, used)
          table.remove(dims[d])
          used[name] = nil
        end
      end
    end
  end
  local dims = {}
  for d = 1, rank do dims[d] = {} end
  extend(dims, {})
  return specs
end

describe("all pairs of layouts:", function()
  for _, sizes in ipairs {{2, 2}, {4, 2}, {2, 2, 2}} do
    local names, ids, n = {}, {}, 1
    for i, size in ipairs(sizes) do names[i], n = ("xyz"):sub(i, i), n * size end
    for i = 1, n do ids[i] = i - 1 end
    local mesh = ml.make_mesh(sizes, names, ids)
    for rank = 1, 3 do
      it(("rank %d on a mesh of %s"):format(rank, table.concat(sizes, ",")), function()
        local shape = {}
        for d = 1, rank do shape[d] = 8 end
        local x = ml.arange(8 ^ rank // 1):reshape(shape)
        local expected = x:bytes()
        local specs = all_specs(names, rank)
        local to_all = ml.jit(function(t)
          local out = {}
          for i, spec in ipairs(specs) do out[i] = t:constrain(NamedSharding(mesh, spec)) end
          return out
        end)
        for _, from in ipairs(specs) do
          local out = to_all(ml.device_put(x, NamedSharding(mesh, from)))
          for i, to in ipairs(specs) do
            assert.equal(tostring(to), tostring(out[i].sharding.spec))
            if out[i]:bytes() ~= expected then
              error(("%s -> %s on %s: wrong values"):format(from, to, mesh))
            end
          end
        end
      end)
    end
  end
end)

describe("sums that are still to be made", function()
  local mesh = ml.make_mesh({4, 2}, {"x", "y"})
  --- The product's inner dim is split: a sum over x is unreduced when `to` is asked for.
  local function sum_into(to)
    local a = ml.device_put(ml.arange(64):reshape {8, 8}:astype "float32", NamedSharding(mesh, P(nil, "x")))
    local b = ml.device_put(ml.arange(64):reshape {8, 8}:astype "float32", NamedSharding(mesh, P "x"))
    local step = ml.jit(function(p, q) return p:matmul(q):constrain(NamedSharding(mesh, to)) end)
    local y, calls = step(a, b), {}
    for i, c in ipairs(step:plan(a, b):collectives()) do calls[i] = c.op .. " " .. c.sent end
    local here = ml.arange(64):reshape {8, 8}:astype "float32"
    assert.same(here:matmul(here):totable(), y:totable())
    return table.concat(calls, ", ")
  end

  it("are reduced for everybody, or scattered where the target is split", function()
    assert.equal("all_reduce 384.0", sum_into(P())) -- 256 bytes, 2 * 3/4 of them
    assert.equal("reduce_scatter 192.0", sum_into(P "x"))
    assert.equal("reduce_scatter 192.0", sum_into(P(nil, "x")))
  end)

  it("are made of what a device keeps, not of the whole", function()
    assert.equal("reduce_scatter 96.0", sum_into(P {"y", "x"}))
    assert.equal("reduce_scatter 96.0, all_to_all 16.0", sum_into(P {"x", "y"}))
  end)
end)

describe("a value that is gathered for one use", function()
  local mesh = ml.make_mesh({4, 2}, {"x", "y"})
  local function gathers(fn, x)
    local step, n = ml.jit(fn), 0
    for _, c in ipairs(step:plan(x):collectives()) do n = n + (c.op == "all_gather" and 1 or 0) end
    return n
  end
  local whole = NamedSharding(mesh, P())

  it("serves every other one, and constraints", function()
    local x = ml.device_put(ml.arange(64.0):reshape {8, 8}, NamedSharding(mesh, P "x"))
    local function uses(a) return a:sort(1), a:argmax(1), ml.flip(a, 1), a:constrain(whole) end
    assert.equal(1, gathers(uses, x))
    local got, want = {ml.jit(uses)(x)}, {uses(ml.arange(64.0):reshape {8, 8})}
    for i = 1, 3 do assert.same(want[i]:totable(), got[i]:totable()) end
    -- Switched off, every use gathers for itself; the values are the same.
    local restore <close> = setmetatable({}, {__close = function() -- luacheck: ignore
      ml.config {passes = {reuse = "default"}}
    end})
    ml.config {passes = {reuse = false}}
    assert.equal(4, gathers(uses, x))
    got = {ml.jit(uses)(x)}
    for i = 1, 3 do assert.same(want[i]:totable(), got[i]:totable()) end
  end)

  it("is gathered again if it is kept in a Param: weights are never whole for long", function()
    local w = ml.nn.Param(ml.device_put(ml.arange(64.0):reshape {8, 8}, NamedSharding(mesh, P "x")))
    assert.equal(2, gathers(function() return w:sort(1), ml.flip(w, 1) end))
  end)
end)
