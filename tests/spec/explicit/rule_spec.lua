-- devices: 8
-- How a result lies in explicit mode, op by op: lines E1 to E3 of the checklist. Each row runs eagerly and in
-- a jitted function; values are those of one device.
local ml = require "meshlua"
local helper = require "spec.helper"

local P, NamedSharding = ml.P, ml.NamedSharding
local mesh = ml.make_mesh({2, 4}, {"X", "Y"}, {axis_types = "explicit"})

local function numbers(shape, dtype)
  local n = 1
  for _, size in ipairs(shape) do n = n * size end
  local x = ml.sin(ml.arange(n + 0.0)):reshape(shape)
  if dtype == "int32" then return ml.astype(x * 3, "int32") % 4 end
  return dtype and ml.astype(x, dtype) or x
end

--- An operand: {shape, P, dtype}. `out`: an out_sharding, given behind the operands.
local function operands(row)
  local placed, plain = {}, {}
  for i, o in ipairs(row.of) do
    plain[i] = numbers(o[1], o[3])
    placed[i] = ml.device_put(plain[i], NamedSharding(mesh, o[2]))
  end
  return placed, plain
end

local function whole(x) return ml.device_put(x, NamedSharding(mesh, P())) end

local function check(row)
  local placed, plain = operands(row)
  local fn = row[1]
  local expected, seen = fn(table.unpack(plain)), nil
  if row.out then
    fn = function(...)
      local args = {...}
      args[#args + 1] = {out_sharding = row.out}
      return row[1](table.unpack(args))
    end
  end
  local jitted = ml.jit(function(...)
    local y = fn(...)
    seen = ml.typeof(y)
    return y
  end)
  for _, y in ipairs {fn(table.unpack(placed)), jitted(table.unpack(placed))} do
    assert.equal(row.gives, ml.typeof(y))
    helper.close(expected, whole(y), 1e-5)
  end
  assert.equal(row.gives, seen)
end

local function rows(list)
  for _, row in ipairs(list) do check(row) end
end

--- Rows with an error's text in place of a type.
local function refused(list)
  for _, row in ipairs(list) do
    local placed = operands(row)
    local text = helper.raises(row.raises[1], function()
      local y = row[1](table.unpack(placed))
      return y
    end)
    for i = 2, #row.raises do
      if not text:find(row.raises[i], 1, true) then error(("no '%s' in\n%s"):format(row.raises[i],
        text)) end
    end
    assert.truthy(text:find("rule_spec.lua:%d+: %[E_SPEC%]"), text)
  end
end

local A, B = {8, 16}, {16, 8}
local add, matmul, exp = ml.add, ml.matmul, ml.exp
local X, Y, XY, nX, nY = P("X"), P("Y"), P("X", "Y"), P(nil, "X"), P(nil, "Y")

describe("the type of a tensor", function()
  it("E1: says the explicit axes of each dim, and what is unreduced or reduced", function()
    local function typeof(...) return ml.typeof(ml.device_put(numbers(A), NamedSharding(mesh, P(...)))) end
    assert.equal("float32[8@X,16]", typeof("X"))
    assert.equal("float32[8@(Y,X),16]", typeof({"Y", "X"}))
    assert.equal("float32[8@X,16]{U:Y}", typeof("X", {unreduced = {"Y"}}))
    assert.equal("float32[8,16]{U:X, R:Y}", typeof({unreduced = {"X"}, reduced = {"Y"}}))
    assert.equal("float32[8,16]{U:(X,Y)}", typeof({unreduced = {"Y", "X"}}))
  end)

  it("E1: hides auto axes in a trace, while the array knows them", function()
    local mixed = ml.make_mesh({2, 4}, {"X", "Y"}, {axis_types = {X = "explicit"}})
    local x, seen = ml.device_put(numbers(A), NamedSharding(mixed, P("X", "Y"))), nil
    local y = ml.jit(function(v)
      seen = {ml.typeof(v), tostring(v.sharding.spec), ml.typeof(v * 2)}
      return v * 2
    end)(x)
    assert.same({"float32[8@X,16]", 'P("X", nil)', "float32[8@X,16]"}, seen)
    assert.equal("float32[8@X,16@Y]", ml.typeof(y))
  end)

  it("E1: of an unreduced tensor is known, its value is not", function()
    local u = ml.device_put(numbers(A), NamedSharding(mesh, P({unreduced = {"X"}})))
    assert.equal("float32[8,16]{U:X} on Mesh(X=2 explicit, Y=4 explicit)", tostring(u))
    helper.raises("totable needs the value of a tensor that is unreduced over 'X': each device has a "
      .. "part of it; "
      .. "reshard it first", u.totable, u)
  end)
end)

describe("the layout of a result", function()
  it("E2: follows the operands where all is replicated, whatever the op", function()
    rows {
      {function(x) return ml.sort(x, 1) end, of = {{A, P()}}, gives = "float32[8,16]"},
      {function(x) return x:reshape(4, 32) end, of = {{A, P()}}, gives = "float32[4,32]"},
      {function(x) return ml.cumsum(x, 1) end, of = {{A, P()}}, gives = "float32[8,16]"},
      {function(x, i) return ml.take(x, i, 1) end, of = {{A, P()}, {{3}, P(), "int32"}},
        gives = "float32[3,16]"},
      {function(x) return ml.concat({x, x}, 1) end, of = {{A, P()}}, gives = "float32[16,16]"},
      {function(x) return ml.argmax(x, 2) end, of = {{A, P()}}, gives = "int32[8]"},
    }
  end)

  it("E3: of an elementwise op is the operands' together: nil and 'X' give 'X'", function()
    rows {
      {add, of = {{A, X}, {A, Y}}, out = P("Y"), gives = "float32[8@Y,16]"},
      {exp, of = {{A, XY}}, gives = "float32[8@X,16@Y]"},
      {function(x) return -x end, of = {{A, P({"X", "Y"})}}, gives = "float32[8@(X,Y),16]"},
      {add, of = {{A, X}, {A, X}}, gives = "float32[8@X,16]"},
      {add, of = {{A, X}, {A, P()}}, gives = "float32[8@X,16]"},
      {add, of = {{A, X}, {A, nY}}, gives = "float32[8@X,16@Y]"},
      {add, of = {{A, X}, {A, P({"X", "Y"})}}, gives = "float32[8@(X,Y),16]"},
      {add, of = {{A, X}, {{16}, Y}}, gives = "float32[8@X,16@Y]"},
      {add, of = {{A, XY}, {{8, 1}, X}}, gives = "float32[8@X,16@Y]"},
      {function(x) return x * 2 + 1 end, of = {{A, XY}}, gives = "float32[8@X,16@Y]"},
      {function(c, x, y) return ml.where(c:gt(0), x, y) end, of = {{A, X}, {A, nY}, {A, P()}},
        gives = "float32[8@X,16@Y]"},
    }
  end)

  it("E3: of an elementwise op is an error where 'X' meets 'Y', or an axis would split two dims", function()
    refused {
      {add, of = {{A, X}, {A, Y}}, raises = {"add: dim 1 of x is sharded on 'X', dim 1 of y on 'Y'",
        'choose out_sharding=P("X", nil) (y moves, 384 B per device)',
        'or out_sharding=P("Y", nil) (x moves, 256 B per device)', "or reshard an operand first",
        "(x float32[8@X,16], y float32[8@Y,16])"}},
      {add, of = {{{4, 4}, X}, {{4, 4}, nX}}, raises = {
        "add: illegally sharded result: 'X' would split dim 1 and 'X' dim 2, but an axis splits one dim",
        'choose out_sharding=P("X", nil) (32 B per device), or out_sharding=P(nil, "X") (32 B per '
          .. 'device)'}},
      {add, of = {{A, P({"X", "Y"})}, {A, P({"Y", "X"})}}, raises = {
        "add: dim 1 of x is sharded on (X,Y), dim 1 of y on (Y,X)"}},
    }
    -- What both have in common does not move: the half that A leaves, of which each device has half.
    local cube = ml.make_mesh({2, 2, 2}, {"A", "B", "C"},
      {axis_types = {A = "explicit", B = "explicit", C = "explicit"}})
    local function on(...) return ml.device_put(numbers(A), NamedSharding(cube, P({...}))) end
    local text = helper.raises("add: dim 1 of x is sharded on (A,B), dim 1 of y on (A,C)", add, on("A", "B"),
      on("A", "C"))
    assert.truthy(text:find('out_sharding=P({"A","B"}, nil) (y moves, 128 B per device)', 1, true), text)
  end)

  it("E3: of a product is batch, then what is free in x, then in w", function()
    rows {
      {matmul, of = {{A, X}, {B, nY}}, gives = "float32[8@X,8@Y]"},
      {matmul, of = {{A, P()}, {B, Y}}, gives = "float32[8,8]"},
      {matmul, of = {{A, XY}, {B, P()}}, gives = "float32[8@X,8]"},
      {matmul, of = {{{2, 4, 8}, P("X", "Y")}, {{2, 8, 4}, X}}, gives = "float32[2@X,4@Y,4]"},
      {matmul, of = {{{2, 4, 8}, X}, {{2, 8, 4}, P()}}, gives = "float32[2@X,4,4]"},
      {matmul, of = {{{2, 4, 8}, X}, {{8, 4}, nY}}, gives = "float32[2@X,4,4@Y]"},
      {function(x, w) return ml.einsum("bd,df->fb", x, w) end, of = {{A, X}, {B, nY}},
        gives = "float32[8@Y,8@X]"},
    }
    refused {
      {matmul, of = {{A, X}, {B, nX}}, raises = {"matmul: illegally sharded result: 'X' would split dim "
        .. "1"}},
      {matmul, of = {{{4, 4, 8}, X}, {{4, 8, 4}, Y}}, raises = {
        "matmul: dim 1 of x is sharded on 'X', dim 1 of w on 'Y'"}},
    }
  end)

  it("E3: of a product is ambiguous where both contracted dims are sharded", function()
    refused {{matmul, of = {{A, XY}, {B, Y}}, raises = {
      "matmul: contracting dims 2 of x and 1 of w are both sharded on 'Y'",
      'choose out_sharding=P("X", nil) (all_reduce, 192 B per device)',
      'out_sharding=P({"X","Y"}, nil) (reduce_scatter, 96 B per device)',
      'out_sharding=P("X", nil, {unreduced={"Y"}}) (the sum stays to be made, nothing is sent)'}}}
    local pair = {{A, XY}, {B, Y}}
    -- What an out_sharding settles, it settles for its own call.
    refused {{ml.jit(function(x, w)
      return x:matmul(w, {out_sharding = X}) + x:matmul(w)
    end), of = pair, raises = {"matmul: contracting dims 2 of x and 1 of w are both sharded on 'Y'"}}}
    rows {
      {matmul, of = pair, out = X, gives = "float32[8@X,8]"},
      {matmul, of = pair, out = P({"X", "Y"}), gives = "float32[8@(X,Y),8]"},
      {matmul, of = pair, out = P("X", nil, {unreduced = {"Y"}}), gives = "float32[8@X,8]{U:Y}"},
      {matmul, of = pair, out = nY, gives = "float32[8,8@Y]"},
      {function(x, w, o) return x:matmul(w, o) end, of = pair, out = P(), gives = "float32[8,8]"},
      {function(x, w, o) return ml.einsum("ij,jk->ki", x, w, o) end, of = pair, out = nX,
        gives = "float32[8,8@X]"},
    }
  end)

  it("E3: of a reduction has lost the dims that are gone; a sharded one is reduced over devices", function()
    rows {
      {function(x) return x:sum(1) end, of = {{A, XY}}, gives = "float32[16@Y]"},
      {function(x) return x:sum() end, of = {{A, XY}}, gives = "float32[]"},
      {function(x) return x:mean(2, true) end, of = {{A, XY}}, gives = "float32[8@X,1]"},
      {function(x) return x:max(2) end, of = {{A, XY}}, gives = "float32[8@X]"},
      {function(x) return x:var(1) end, of = {{A, XY}}, gives = "float32[16@Y]"},
      {function(x) return ml.argmax(x, 2) end, of = {{A, X}}, gives = "int32[8@X]"},
      {function(x, o) return x:sum(2, o) end, of = {{A, XY}}, out = P("X", {unreduced = {"Y"}}),
        gives = "float32[8@X]{U:Y}"},
      {function(x, o) return x:max(2, o) end, of = {{A, XY}},
        out = P("X", {unreduced = {"Y"}, unreduced_kind = "max"}), gives = "float32[8@X]{U_max:Y}"},
      {function(x, o) return x:min(2, o) end, of = {{A, XY}},
        out = P("X", {unreduced = {"Y"}, unreduced_kind = "min"}), gives = "float32[8@X]{U_min:Y}"},
    }
    refused {{function(x)
      return x:sum(2, {out_sharding = P("X", {unreduced = {"Y"}, unreduced_kind = "max"})})
    end, of = {{A, XY}}, raises = {
      "reshard: parts of a maximum or minimum cannot be made of a value"}}}
  end)

  it("E3: of what moves dims moves with them", function()
    rows {
      {function(x) return x:T() end, of = {{A, XY}}, gives = "float32[16@Y,8@X]"},
      {function(x) return x:expand_dims(1) end, of = {{A, XY}}, gives = "float32[1,8@X,16@Y]"},
      {function(x) return x:broadcast(3, 8, 16) end, of = {{A, XY}}, gives = "float32[3,8@X,16@Y]"},
      {function(x) return x:squeeze() end, of = {{{1, 8, 1}, P(nil, "X")}}, gives = "float32[8@X]"},
      {function(x) return ml.flip(x, 2) end, of = {{A, X}}, gives = "float32[8@X,16]"},
    }
  end)

  it("E3: of a reshape splits and merges by factors, major first", function()
    local function to(...)
      local shape = {...}
      return function(x) return x:reshape(shape) end
    end
    rows {
      {to(2, 4, 16), of = {{A, X}}, gives = "float32[2@X,4,16]"},
      {to(4, 2, 16), of = {{A, P({"Y", "X"})}}, gives = "float32[4@Y,2@X,16]"},
      {to(128), of = {{A, X}}, gives = "float32[128@X]"},
      {to(8, 4, 4), of = {{A, P("X", "Y")}}, gives = "float32[8@X,4@Y,4]"},
      {to(2, 64), of = {{A, X}}, gives = "float32[2@X,64]"},
      {to(8, 16, 1), of = {{A, XY}}, gives = "float32[8@X,16@Y,1]"},
      -- heads * dim into heads and dim, and back
      {to(4, 8, 4, 8), of = {{{4, 8, 32}, P("X", nil, "Y")}}, gives = "float32[4@X,8,4@Y,8]"},
      {to(4, 8, 32), of = {{{4, 8, 4, 8}, P("X", nil, "Y")}}, gives = "float32[4@X,8,32@Y]"},
      {function(x, o) return x:reshape({128}, o) end, of = {{A, nX}}, out = Y, gives = "float32[128@Y]"},
    }
    refused {
      {to(128), of = {{A, nX}}, raises = {
        "reshape: this reshape is not supported on a sharded tensor: no P says how dim 1 of the result, "
          .. "of size "
          .. "128, would lie", "choose out_sharding=P(nil) (256 B per device)"}},
      {to(2, 4, 16), of = {{A, Y}}, raises = {"reshape: this reshape is not supported"}},
      {to(3, 2), of = {{{6}, X}}, raises = {"reshape: dim 1 of x is sharded on 'X', but the op needs it "
        .. "whole"}},
    }
  end)

  it("E3: of a lookup has the ids' axes and the table's: no annotation is needed", function()
    local ids = {{4}, X, "int32"}
    local function take(axis) return function(t, i) return ml.take(t, i, axis) end end
    rows {
      {take(1), of = {{A, P()}, ids}, gives = "float32[4@X,16]"},
      {take(1), of = {{A, nY}, ids}, gives = "float32[4@X,16@Y]"},
      {take(1), of = {{A, Y}, ids}, gives = "float32[4@X,16]"},
      {take(1), of = {{A, Y}, {{2, 4}, XY, "int32"}}, gives = "float32[2@X,4@Y,16]"},
      {take(2), of = {{A, X}, {{4}, Y, "int32"}}, gives = "float32[8@X,4@Y]"},
    }
  end)

  it("E3: of concat is that of all parts; the axis itself is whole", function()
    rows {
      {function(x, y) return ml.concat({x, y}, 2) end, of = {{A, X}, {A, X}}, gives = "float32[8@X,32]"},
      {function(x, y) return ml.concat({x, y}, 2) end, of = {{A, X}, {A, P()}}, gives = "float32[8@X,32]"},
      {function(x, y) return ml.stack({x, y}, 1) end, of = {{A, XY}, {A, XY}},
        gives = "float32[2,8@X,16@Y]"},
    }
    refused {
      {function(x, y) return ml.concat({x, y}, 1) end, of = {{A, X}, {A, P()}}, raises = {
        "concat: dim 1 of x is sharded on 'X', but the op needs it whole",
        "reshard it first: ml.reshard(x, P(nil, nil)) (all_gather, 256 B per device)"}},
      {function(x, y) return ml.concat({x, y}, 2) end, of = {{A, X}, {A, Y}}, raises = {
        "concat: dim 1 of x is sharded on 'X', dim 1 of y on 'Y'"}},
    }
  end)

  it("E3: of slice, pad and dynamic_update_slice keeps axes that divide what becomes of the dim", function()
    local function cut(...)
      local ranges = table.pack(...)
      return function(x, o)
        if o then return ml.slice(x, ranges[1], o) end
        return ml.slice(x, table.unpack(ranges))
      end
    end
    local function put(x, u) return ml.dynamic_update_slice(x, u, {1, 2}) end
    local function padded(...)
      local pads = {...}
      return function(x) return ml.pad(x, pads) end
    end
    rows {
      {cut {1, 4}, of = {{A, XY}}, gives = "float32[4@X,16@Y]"},
      {cut({3, 8, 3}, {1, 12}), of = {{A, XY}}, gives = "float32[2@X,12@Y]"},
      {cut {2, 5}, of = {{A, P {"X", "Y"}}}, out = X, gives = "float32[4@X,16]"},
      {cut(3), of = {{A, XY}}, gives = "float32[16@Y]"},
      {padded({1, 1}, {0, 4}), of = {{A, XY}}, gives = "float32[10@X,20@Y]"},
      {put, of = {{A, XY}, {{4, 4}, XY}}, gives = "float32[8@X,16@Y]"},
      {put, of = {{A, XY}, {{4, 4}, P()}}, gives = "float32[8@X,16@Y]"},
      {put, of = {{A, XY}, {{8, 4}, X}}, gives = "float32[8@X,16@Y]"},
      {function(x) return ml.split(x, 2, 1)[2] end, of = {{A, X}}, gives = "float32[4@X,16]"},
      {ml.grad(function(x) return (ml.slice(x, {2, 5}) ^ 2):sum() end), of = {{A, XY}},
        gives = "float32[8@X,16@Y]"},
    }
    refused {
      {cut {1, 3}, of = {{A, X}}, raises = {"slice: dim 1 of x is sharded on 'X', but the op needs it whole",
        "ml.reshard(x, P(nil, nil)) (all_gather, 256 B per device)"}},
      {padded({0, 1}), of = {{{8}, X}}, raises = {"pad: dim 1 of x is sharded on 'X'"}},
      {put, of = {{A, X}, {{4, 4}, Y}},
        raises = {"dynamic_update_slice: dim 1 of update is sharded on 'Y'"}},
      {put, of = {{A, P()}, {{4, 4}, X}},
        raises = {"dynamic_update_slice: dim 1 of update is sharded on 'X'"}},
    }
  end)

  it("E2: of a convolution asks where input features are split", function()
    local function conv(x, w, o) return ml.conv(x, w, {padding = "SAME"}, o) end
    local x, w = {4, 8, 8}, {3, 8, 16}
    local inputs, features = P(nil, nil, "X"), P(nil, "X")
    rows {
      {conv, of = {{x, X}, {w, P()}}, gives = "float32[4@X,8,16]"},
      {conv, of = {{x, X}, {w, P(nil, nil, "Y")}}, gives = "float32[4@X,8,16@Y]"},
    }
    local ways = {"choose out_sharding=P(nil, nil, nil) (all_reduce, 2.00 KiB per device)",
      "out_sharding=P(\"X\", nil, nil) (reduce_scatter, 1.00 KiB per device)",
      "out_sharding=P(nil, nil, nil, {unreduced={\"X\"}}) (the sum stays to be made, nothing is sent)",
      "or reshard an operand first"}
    refused {
      {conv, of = {{x, inputs}, {w, P()}}, raises = {"conv: contracting dim 3 of x is sharded on 'X'",
        table.unpack(ways)}},
      {conv, of = {{x, P()}, {w, features}}, raises = {"conv: contracting dim 2 of w is sharded on 'X'",
        table.unpack(ways)}},
      {conv, of = {{x, inputs}, {w, features}}, raises = {
        "conv: contracting dims 3 of x and 2 of w are both sharded on 'X'", table.unpack(ways)}},
    }
  end)

  it("E3: of an op that works along an axis asks for it whole", function()
    rows {
      {function(x) return ml.sort(x, 2) end, of = {{A, X}}, gives = "float32[8@X,16]"},
      {function(x) return ml.cumsum(x, 2) end, of = {{A, X}}, gives = "float32[8@X,16]"},
      {function(x, o) return ml.sort(x, 1, o) end, of = {{A, X}}, out = X, gives = "float32[8@X,16]"},
    }
    refused {
      {function(x) return ml.sort(x, 1) end, of = {{A, X}}, raises = {
        "sort: dim 1 of keys is sharded on 'X', but the op needs it whole",
        "reshard it first: ml.reshard(keys, P(nil, nil)) (all_gather, 256 B per device)",
        "or say how the result lies with out_sharding"}},
      {function(x) return ml.flip(x, 1) end, of = {{A, X}},
        raises = {"flip: dim 1 of x is sharded on 'X'"}},
    }
  end)

  it("E3: of an op defined by simpler ones is theirs", function()
    rows {
      {function(x) return ml.cumsum(x, 1) end, of = {{A, X}}, gives = "float32[8@X,16]"},
      {function(x) return ml.softmax(x) end, of = {{A, XY}}, gives = "float32[8@X,16@Y]"},
      {function(x) return ml.log_softmax(x) end, of = {{A, XY}}, gives = "float32[8@X,16@Y]"},
    }
  end)

  it("E3: of what is made from nothing is replicated, or as out_sharding says", function()
    mesh:with(function()
      local key = ml.random.key(0)
      local out = {out_sharding = P("X", "Y")}
      for _, x in ipairs {ml.zeros(A, out), ml.ones(A, "int32", out), ml.full(A, 2.0, out), ml.iota(A, 1,
        out),
        ml.eye(8, 16, out), ml.random.uniform(key, A, out), ml.random.normal(key, A, out),
        ml.random.randint(key, A, 0, 9, out)} do
        assert.equal(x.dtype .. "[8@X,16@Y]", ml.typeof(x))
      end
      assert.equal("int32[8@Y]", ml.typeof(ml.arange(8, {out_sharding = P("Y")})))
      helper.close(ml.random.normal(key, A), whole(ml.random.normal(key, A, out)))
      ml.jit(function(x) assert.equal("float32[8,16]", ml.typeof(ml.zeros(A))) return x end)(ml.zeros(A,
        out))
    end)
    local like = ml.device_put(numbers(A), NamedSharding(mesh, XY))
    assert.equal("float32[8@X,16@Y]", ml.typeof(ml.zeros_like(like)))
    ml.jit(function(x)
      assert.equal("float32[8@X,16@Y]", ml.typeof(ml.ones_like(x)))
      return x
    end)(like)
  end)
end)

describe("a sum still to be made", function()
  local U = P("X", {unreduced = {"Y"}})
  it("E3: goes through linear ops, neg and sub among them", function()
    local gives = "float32[8@X,16]{U:Y}"
    rows {
      {function(x) return -x end, of = {{A, U}}, gives = gives},
      {add, of = {{A, U}, {A, U}}, gives = gives},
      {function(x, y) return x - y end, of = {{A, U}, {A, U}}, gives = gives},
      {function(x) return x * 2 end, of = {{A, U}}, gives = gives},
      {function(x) return x / 4 end, of = {{A, U}}, gives = gives},
      {function(x, y) return x * y end, of = {{A, U}, {A, X}}, gives = gives},
      {function(x) return x:T() end, of = {{A, U}}, gives = "float32[16,8@X]{U:Y}"},
      {function(x) return x:reshape(8, 4, 4) end, of = {{A, U}}, gives = "float32[8@X,4,4]{U:Y}"},
      {function(x) return x:sum(2) end, of = {{A, U}}, gives = "float32[8@X]{U:Y}"},
      {matmul, of = {{A, U}, {B, P()}}, gives = "float32[8@X,8]{U:Y}"},
      {function(x) return ml.astype(x, "float64") end, of = {{A, U}}, gives = "float64[8@X,16]{U:Y}"},
    }
  end)

  it("E3: is refused by others, which say the way out", function()
    refused {
      {exp, of = {{A, U}}, raises = {
        "exp: x is unreduced over 'Y', and the op is not linear in it alone: it would not act on the sum",
        'reshard it first: ml.reshard(x, P("X", nil)) (all_reduce, 384 B per device)'}},
      {ml.mul, of = {{A, U}, {A, U}}, raises = {"mul: x is unreduced over 'Y'"}},
      {ml.mul, of = {{A, U}, {A, nY}}, raises = {"mul: x is unreduced over 'Y'"}},
      {function(x, y) return y / x end, of = {{A, U}, {A, X}}, raises = {"div: y is unreduced over 'Y'"}},
      {add, of = {{A, U}, {A, X}}, raises = {"add: x is unreduced over 'Y', and another operand is not",
        "or make the other one unreduced, too"}},
      {function(x) return x:max(2) end, of = {{A, U}}, raises = {"max: x is unreduced over 'Y'"}},
    }
  end)
end)
