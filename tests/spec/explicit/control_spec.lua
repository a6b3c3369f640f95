-- devices: 8
-- Control flow, vmap and shard_map over values whose layout is in their type: line E6 of the checklist.
local ml = require "meshlua"
local helper = require "spec.helper"

local P, NamedSharding, typeof = ml.P, ml.NamedSharding, ml.typeof
local mesh = ml.make_mesh({2, 4}, {"X", "Y"}, {axis_types = "explicit"})
local close, raises = helper.close, helper.raises

local rows = ml.sin(ml.arange(32.0)):reshape(8, 4)
local function put(x, ...) return ml.device_put(x, NamedSharding(mesh, P(...))) end
local function whole(x) return ml.device_put(x, NamedSharding(mesh, P())) end

local function scan(start, xs)
  local last, all = ml.scan(function(c, r) return c + r, c * 2 end, start, xs)
  return last, all
end

describe("in explicit mode", function()
  it("E6: a carry keeps its type; stacked results have a whole dim 1", function()
    local last, all = ml.jit(scan)(put(ml.zeros {4}, "Y"), put(rows, nil, "Y"))
    local plain_last, plain_all = scan(ml.zeros {4}, rows)
    assert.equal("float32[4@Y]", typeof(last))
    assert.equal("float32[8,4@Y]", typeof(all))
    close(plain_last, whole(last), 1e-5)
    close(plain_all, whole(all), 1e-5)
  end)

  it("E6: a carry that comes out lying otherwise is an error", function()
    raises("[E_SPEC] scan: the carry is float32[4] when it goes in, and float32[4@Y] when it comes out; "
      .. "where axes "
      .. "are explicit both must lie alike: ml.reshard one of them", ml.jit(scan), put(ml.zeros {4}),
      put(rows, nil, "Y"))
    raises("while_loop: the carry is float32[8,4@Y] when it goes in, and float32[8,4] when it comes out",
      ml.jit(function(x)
        return ml.while_loop(function(c) return c:sum():lt(10.0) end, function(c) return ml.reshard(c + 1,
          P()) end, x)
      end), put(rows, nil, "Y"))
  end)

  it("C1, E6: branches give one type", function()
    local function choose(other)
      return ml.jit(function(x)
        return ml.cond(x:sum():gt(0), function(a) return a * 2 end, other, x)
      end)
    end
    local x = put(rows, nil, "Y")
    raises("[E_SPEC] cond: the result at 1 is float32[8,4] in branch 0, and float32[8,4@Y] in branch 1",
      choose(function(a) return ml.reshard(a, P()) end), x)
    local y = choose(function(a) return -a end)(x)
    assert.equal("float32[8,4@Y]", typeof(y))
    close(rows:sum():item() > 0 and rows * 2 or -rows, whole(y), 1e-5)
  end)

  it("E6, E7: gradients through a scan lie as their values", function()
    local function loss(start, xs)
      local last = ml.scan(function(c, r) return ml.sin(c) * r, nil end, start, xs)
      return (last * last):sum()
    end
    local start = ml.cos(ml.arange(4.0))
    local expected = ml.grad(loss, {argnums = {1, 2}})(start, rows)
    local found = ml.jit(ml.grad(loss, {argnums = {1, 2}}))(put(start, "Y"), put(rows, nil, "Y"))
    assert.same({"float32[4@Y]", "float32[8,4@Y]"}, typeof(found))
    for i = 1, 2 do close(expected[i], whole(found[i]), 1e-5) end
  end)

  it("E6: vmap over a sharded dim keeps its axes", function()
    local function fn(r) return ml.softmax(r) * r:sum() end
    local y = ml.jit(function(x) return ml.vmap(fn)(x) end)(put(rows, "X"))
    assert.equal("float32[8@X,4]", typeof(y))
    close(ml.vmap(fn)(rows), whole(y), 1e-5)
  end)

  it("S1, S5: shard_map takes some axes, the others stay in the types", function()
    local seen
    local step = ml.jit(ml.shard_map(function(a)
      seen = typeof(a)
      return ml.psum(a, "X")
    end, {mesh = mesh, in_specs = {P("X")}, out_specs = P(), axis_names = {"X"}}))
    local y = step(put(rows, "X", "Y"))
    assert.equal("float32[4,4@Y]{V:X}", seen)
    assert.equal("float32[4,4@Y]", typeof(y))
    close(rows:slice({1, 4}) + rows:slice({5, 8}), whole(y), 1e-5)
  end)

  it("what a branch does not read is brought nowhere in it", function()
    local code = [[
      local ml = require "meshlua"
      local P, NamedSharding = ml.P, ml.NamedSharding
      local mesh = ml.make_mesh({4}, {"x"}, {axis_types = "explicit"})
      local u = ml.reshard(ml.arange(4.0), NamedSharding(mesh, P({unreduced = {"x"}})))
      local f = ml.jit(function(b, v)
        return ml.cond(b:sum():gt(0), function(c) return c * 2 end,
          function(c, w) return c + ml.reshard(w, NamedSharding(mesh, P())) end, b, v)
      end)
      print(table.concat(f(ml.ones {4}, u):totable(), " "), table.concat(f(-ml.ones {4}, u):totable(), " "))
    ]]
    local out, plans = helper.shell("$MESHLUA --devices=4 --dump=plan -", code)
    assert.equal("2.0 2.0 2.0 2.0\t-1.0 0.0 1.0 2.0\n", out)
    assert.is_nil(plans:match "fused[^\n]*%->%s+;", plans) -- a step whose results nobody has
  end)
end)
