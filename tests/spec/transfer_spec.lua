-- devices: 8
-- transfer_spec.lua: boxes of tensors into files, from one layout, and into others.
local helper = require "spec.helper"
local ml = require "meshlua"
local core, P, NamedSharding = ml.core, ml.P, ml.NamedSharding

local mesh = ml.make_mesh({2, 2, 2}, {"a", "b", "c"})
local encoding = {bool = "BOOL", uint8 = "U8", uint32 = "U32", int32 = "I32", int64 = "I64",
  bfloat16 = "BF16", float16 = "F16", float32 = "F32", float64 = "F64"}

local function count(shape)
  local n = 1
  for _, size in ipairs(shape) do n = n * size end
  return n
end

--- Values that differ from place to place.
local function values(dtype, shape)
  local x = ml.arange(count(shape)) * 37 % 251
  if dtype == "bool" then return (x % 3):eq(0):reshape(shape) end
  return x:astype(dtype):reshape(shape)
end

local function zeros(n)
  local t = {}
  for i = 1, n do t[i] = 0 end
  return t
end

--- The piece that is all of a tensor, row-major. `from`: what else it says.
local function whole(shape, from)
  local factors, stride = {}, 1
  for d = #shape, 1, -1 do
    factors[d] = {d, shape[d], stride}
    stride = stride * shape[d]
  end
  from.at, from.size, from.factors = zeros(#shape), shape, factors
  return from
end

--- Writes tensors, by name, as one safetensors file; what wait gives.
local function save(path, tensors, options)
  local names, entries = {}, {}
  for name in pairs(tensors) do names[#names + 1] = name end
  table.sort(names)
  for i, name in ipairs(names) do
    local x = tensors[name]
    entries[i] = {name = name, encoding = encoding[x.dtype], shape = x.shape}
  end
  local plan = assert(core.catalog_layout("safetensors", entries, {}))
  local w = core.writer(options)
  local file, message, code = w:file(path, {header = plan.header, size = plan.size, create = true})
  if not file then return nil, message, code end
  for i, name in ipairs(names) do
    local x = tensors[name]
    w:add(x, i - 1, {whole(x.shape, {file = file, begin = plan.begin[i], dtype = x.dtype})})
  end
  if not w:start() then w:run() end
  local result, why, what = w:wait()
  w:release()
  return result, why, what
end

local function load(catalog, i, dtype, shape, sharding, options)
  return core.catalog_load(dtype, shape, sharding, {whole(shape, {catalog = catalog, entry = i})}, options)
end

local layouts = {
  {}, {"a"}, {nil, "b"}, {"c", "a"}, {{"a", "b"}, "c"}, {{"a", "b", "c"}}, {nil, {"c", "b", "a"}},
}

local function sharding_of(layout, shape)
  local entries = {}
  for d = 1, #shape do
    local axes = layout[d]
    if axes then
      axes = type(axes) == "table" and {table.unpack(axes)} or {axes}
      axes.uneven = "pad"
      entries[d] = axes
    end
  end
  return NamedSharding(mesh, P(table.unpack(entries, 1, #shape)))
end

local function path() return helper.file("", ".safetensors") end

describe("what is written from one layout", function()
  for _, shape in ipairs {{16, 24}, {7, 13}, {3, 5, 9}} do
    it("is read in others, bit for bit: " .. table.concat(shape, "x"), function()
      for _, dtype in ipairs {"float32", "bfloat16", "uint8", "bool", "int64"} do
        local x = values(dtype, shape)
        local want = x:bytes()
        for i = 1, #layouts, dtype == "float32" and 1 or 3 do
          local layout, name = layouts[i], path()
          local result = assert(save(name, {x = ml.device_put(x, sharding_of(layout, shape))}))
          assert.equal(#want, result.bytes)
          local c = assert(core.catalog(name))
          assert.equal(want, assert(load(c, 1, dtype, shape)):bytes())
          for k = 1, #layouts, dtype == "float32" and 1 or 3 do
            local other = sharding_of(layouts[(i + k) % #layouts + 1], shape)
            assert.equal(want, assert(load(c, 1, dtype, shape, other)):bytes())
          end
          for _, unit in ipairs(result.units) do
            assert.equal(unit.hash, core.hash_unit(c, 1, unit.at, unit.size))
          end
          c:close()
        end
      end
    end)
  end

  it("may be larger than what is staged, and than a unit", function()
    local shape = {5, 1 << 20}
    local x, name = values("float32", shape), path()
    for _, layout in ipairs {{}, {nil, "b"}} do
      local result = assert(save(name, {x = ml.device_put(x, sharding_of(layout, shape))}))
      assert.equal(layout[2] and 4 or 3, #result.units)
      local c <close> = assert(core.catalog(name))
      for _, unit in ipairs(result.units) do
        assert.equal(unit.hash, core.hash_unit(c, 1, unit.at, unit.size))
      end
      local columns = {catalog = c, entry = 1, at = {0, 0}, size = {1 << 20, 5}}
      columns.factors = {{1, 1 << 20, 1}, {2, 5, 1 << 20}}
      local turned = {1 << 20, 5}
      local y = assert(core.catalog_load("float32", turned, sharding_of({"a"}, turned), {columns}))
      assert.is_true(y:T():eq(x):all():item())
    end
  end)

  it("is there for scalars, for what has no elements, and for many tensors", function()
    local tensors = {scalar = ml.tensor(2.5), none = ml.zeros {0, 3}, flags = values("bool", {5}),
      one = ml.ones {1, 1, 1}}
    local name = path()
    assert(save(name, tensors))
    local c = assert(core.catalog(name))
    for i, entry in ipairs(c:entries()) do
      local x = assert(load(c, i, entry.dtype, entry.shape))
      assert.equal(tensors[entry.name]:bytes(), x:bytes())
    end
  end)
end)

describe("a piece", function()
  local shape = {6, 20}
  local x = values("float32", shape)
  local name = path()
  local c

  before_each(function()
    name = path()
    assert(save(name, {x = x}))
    c = assert(core.catalog(name))
  end)

  local function check(want, pieces)
    for _, layout in ipairs(layouts) do
      local got = assert(core.catalog_load("float32", want.shape, sharding_of(layout, want.shape), pieces))
      assert.equal(want:bytes(), got:bytes())
    end
  end

  it("is a transpose", function()
    check(x:T(), {{catalog = c, entry = 1, at = {0, 0}, size = {20, 6},
      factors = {{1, 20, 1}, {2, 6, 20}}}})
  end)

  it("has a dim of several factors, and shards cut through them", function()
    -- [6, 20] as [6, 5, 4], heads and width exchanged: [6, 4 * 5]
    check(x:reshape {6, 5, 4}:transpose(1, 3, 2):reshape {6, 20}, {{catalog = c, entry = 1, at = {0, 0},
      size = {6, 20}, factors = {{1, 6, 20}, {2, 4, 1}, {2, 5, 4}}}})
    -- all in one dim, rows last
    check(x:reshape {6, 5, 4}:transpose(3, 2, 1):reshape {120}, {{catalog = c, entry = 1, at = {0},
      size = {120}, factors = {{1, 4, 1}, {1, 5, 4}, {1, 6, 20}}}})
  end)

  it("is reversed", function()
    check(x:flip(2), {{catalog = c, entry = 1, at = {0, 0}, size = {6, 20}, offset = 19,
      factors = {{1, 6, 20}, {2, 20, -1}}}})
  end)

  it("is one of several that make a tensor", function()
    local pieces = {}
    for i = 0, 2 do
      pieces[i + 1] = {catalog = c, entry = 1, at = {i, 0, 0}, size = {1, 6, 4}, offset = i * 4,
        factors = {{2, 6, 20}, {3, 4, 1}}}
    end
    local want = {}
    for i = 1, 3 do want[i] = x:slice({1, 6}, {4 * i - 3, 4 * i}) end
    want = ml.stack(want, 1)
    check(want, pieces)
    pieces[3] = nil
    helper.raises("48 of 72 elements", core.catalog_load, "float32", {3, 6, 4}, nil, pieces)
    pieces[3] = pieces[2]
    helper.raises("elements in common", core.catalog_load, "float32", {3, 6, 4}, nil, pieces)
  end)

  it("must fit its tensor and its entry", function()
    local function bad(wanted, change)
      local p = whole(shape, {catalog = c, entry = 1})
      for k, v in pairs(change) do p[k] = v end
      helper.raises(wanted, core.catalog_load, "float32", shape, nil, {p})
    end
    bad("beyond the 120 elements", {offset = 1})
    bad("beyond the 120 elements", {factors = {{1, 6, 20}, {2, 20, -1}}})
    bad("dim 2: a piece's factors", {factors = {{1, 6, 20}, {2, 4, 1}}})
    bad("dim 1: a piece from 1 on", {at = {1, 0}})
    bad("has no entry 2", {entry = 2})
    bad("factor of dim 9", {factors = {{9, 1, 1}}})
    c:close()
    bad("closed", {})
  end)
end)

describe("another dtype", function()
  local function saved(x)
    local name = path()
    assert(save(name, {x = x}))
    return assert(core.catalog(name))
  end

  it("is asked for", function()
    local c = saved(values("float32", {4, 4}))
    local x, message, code = load(c, 1, "bfloat16", {4, 4})
    assert.is_nil(x)
    assert.equal("E_DTYPE", code)
    assert.matches('tensor "x" is float32, not bfloat16; cast = true', message)
  end)

  it("is what astype gives", function()
    local source = ml.tensor {0, -0.0, 1.5, 3.14159, 0.1, 1e-7, 6e-8, 255.7, 65504, 2049, 2051, 1e-40, 100.25}
    local every = {"uint8", "uint32", "int32", "int64", "bfloat16", "float16", "float32", "float64"}
    for _, from in ipairs {"float32", "float64", "float16", "bfloat16", "int32", "int64", "uint8"} do
      local y = source:astype(from)
      if from:find "int" then y = ml.minimum(y, 255):astype(from) end
      local c = saved(y)
      for _, to in ipairs(every) do
        local z = (to == "uint8" and from ~= "uint8") and ml.minimum(y, 255):astype(from) or y
        local d = z == y and c or saved(z)
        local inf = to:find "16" and z:astype("float32"):max():item() > 65504
        if not inf then
          assert.equal(z:astype(to):bytes(), assert(load(d, 1, to, {13}, nil, {cast = true})):bytes())
        end
      end
    end
  end)

  it("must hold the values", function()
    for _, case in ipairs {
      {"float32", "float16", 1e30}, {"float32", "int32", 3e9}, {"float32", "uint8", -1},
      {"float32", "int64", 0 / 0}, {"float64", "float32", 1e300}, {"int32", "uint8", 256},
      {"float32", "bool", 2}, {"float64", "bfloat16", 1e39},
    } do
      local from, to, value = table.unpack(case)
      local x, message, code = load(saved(ml.full({3}, value, from)), 1, to, {3}, nil, {cast = true})
      assert.is_nil(x)
      assert.equal("E_VALUE", code)
      assert.matches('tensor "x": ' .. to .. " cannot hold its value", message)
    end
    local c = saved(ml.tensor {math.huge, -math.huge, 0 / 0})
    local x = load(c, 1, "float16", {3}, nil, {cast = true}):totable()
    assert.same({math.huge, -math.huge, true}, {x[1], x[2], x[3] ~= x[3]})
  end)
end)

describe("units", function()
  --- Every element is in one unit; the bytes of each process.
  local function spread(shape, sharding, index, job)
    local seen, bytes = {}, {}
    for _, unit in ipairs(core.units("float32", shape, sharding, index, job)) do
      local n = 4 * count(unit.size)
      assert(n <= 8 << 20)
      bytes[unit.process] = (bytes[unit.process] or 0) + n
      seen[#seen + 1] = n
    end
    local all = 0
    for _, n in ipairs(seen) do all = all + n end
    assert.equal(4 * count(shape), all)
    return bytes
  end

  it("are spread over those that hold a part", function()
    local job = {processes = 4, devices = 2}
    local replicated, split = NamedSharding(mesh, P()), NamedSharding(mesh, P "a")
    local quarters = {[0] = 1 << 20, 1 << 20, 1 << 20, 1 << 20}
    assert.same(quarters, spread({1024, 1024}, replicated, 0, job))
    assert.same(quarters, spread({1024, 1024}, split, 0, job))
    assert.same({[1] = 400}, spread({100}, replicated, 5, job))
    assert.same({[1] = 200, [3] = 200}, spread({100}, split, 5, job))
    assert.same({[0] = 400}, spread({100}, split, 5))
    assert.same({[2] = 400}, spread({100}, nil, 2, job))
    assert.same({[0] = 40 << 20}, spread({1, 10 << 20}, nil, 0))
  end)

  it("cut what is larger than 8 MiB, along the first dim that has more than one", function()
    local list = core.units("float32", {2, 3 << 20}, nil, 0)
    local text = {}
    for i, unit in ipairs(list) do
      text[i] = table.concat(unit.at, ",") .. "+" .. table.concat(unit.size, ",")
    end
    assert.same({"0,0+1,2097152", "0,2097152+1,1048576", "1,0+1,2097152", "1,2097152+1,1048576"}, text)
  end)
end)

describe("a writer", function()
  local shape = {64, 64}

  local function state(n, sharding)
    local params = {}
    for i = 1, n do
      local x = values("float32", shape) * i
      params[i] = helper.param(sharding and ml.device_put(x, sharding) or x)
    end
    return params
  end

  local function bytes(params)
    local all = {}
    for i, p in ipairs(params) do all[i] = p:bytes() end
    return table.concat(all)
  end

  local function writer(params, name)
    local w = core.writer()
    local f = assert(w:file(name, {size = #params * 16384, create = true}))
    for i, p in ipairs(params) do
      w:add(p, i - 1, {whole(shape, {file = f, begin = (i - 1) * 16384, dtype = "float32"})})
    end
    return w
  end

  local function content(name)
    local f <close> = assert(io.open(name, "rb"))
    return f:read "a"
  end

  it("has the state as it was when it was added, whatever a donated step does meanwhile", function()
    for _, sharding in ipairs {false, NamedSharding(mesh, P("a", "b")), NamedSharding(mesh, P())} do
      local params, name = state(3, sharding), path()
      local step = ml.jit(function(ps) for _, p in ipairs(ps) do p:set(p * 0.5 + 1) end end)
      local bound = step:bind(params)
      for _ = 1, 3 do bound() end
      for round = 1, 3 do
        local before = bytes(params)
        local w = writer(params, name)
        assert.equal(#before, w:held())
        for _ = 1, round do bound() end -- before a byte of it is written
        assert.is_true(w:start())
        bound()
        assert.equal(#before, assert(w:wait()).bytes)
        w:release()
        assert.equal(before, content(name))
        assert.not_equal(before, bytes(params))
      end
    end
  end)

  it("gives back what it holds, also where it was never started or is forgotten", function()
    local params, name = state(2), path()
    assert.equal(0, helper.left_behind(function()
      local w = writer(params, name)
      w:start()
      assert(w:wait())
      w:release()
      writer(params, name):release()
      writer(params, name)
      writer(params, name):start()
    end))
  end)

  it("says what is wrong with a file", function()
    local params = state(1)
    local w = core.writer()
    local f, message, code = w:file("/nowhere/x", {size = 1, create = true})
    assert.is_nil(f)
    assert.equal("E_IO", code)
    assert.matches("^/nowhere/x: cannot be opened for writing: No such file", message)
    assert.equal(0, w:file(path(), {size = 1, create = true}))
    f, message = core.writer():file(path() .. ".none", {size = 1})
    assert.is_nil(f)
    assert.matches("No such file", message)
    local vast, at = core.writer(), path()
    vast:file(at, {size = 1 << 62, create = true})
    vast:run()
    assert.same({nil, at .. ": cannot be given its size: File too large", "E_IO"}, {vast:wait()})
    vast:release()
    for _, begin in ipairs {"start", "run"} do
      local full = writer(params, "/dev/full")
      full[begin](full)
      f, message, code = full:wait()
      assert.same({nil, "/dev/full: cannot be written: No space left on device", "E_IO"}, {f, message, code})
      full:release()
    end
  end)

  it("converts, where the piece says so", function()
    local w, name = core.writer(), path()
    local f = w:file(name, {size = 6, create = true})
    w:add(ml.tensor {1.5, 2, 3}, 0, {whole({3}, {file = f, begin = 0, dtype = "bfloat16"})})
    w:run()
    assert(w:wait())
    assert.equal(ml.tensor({1.5, 2, 3}, {dtype = "bfloat16"}):bytes(), content(name))
    w = core.writer()
    f = w:file(name, {size = 6, create = true})
    w:add(ml.tensor {1.5, 2e30, 3}, 0, {whole({3}, {file = f, begin = 0, dtype = "float16"})})
    w:run()
    local _, message, code = w:wait()
    assert.equal("E_VALUE", code)
    assert.matches("float16 cannot hold a value 2e%+30$", message)
  end)

  it("is used in its order", function()
    local w = core.writer()
    helper.raises("has not begun", w.wait, w)
    w:run()
    assert.is_true(w:poll())
    helper.raises("has begun", w.run, w)
    helper.raises("has begun", w.file, w, path(), {size = 0})
    w:release()
    helper.raises("was released", w.poll, w)
    w = core.writer()
    local piece = whole({2}, {file = 3, begin = 0, dtype = "float32"})
    helper.raises("has no file 3", w.add, w, ml.ones {2}, 0, {piece})
    helper.raises("ShapeDtypeStruct", w.add, w, ml.ShapeDtypeStruct({2}, "float32"), 0, {})
  end)
end)

it("blocks of Q8_0 are read, also where shards cut into them", function()
  local blocks, want = {}, {}
  for i = 0, 31 do
    blocks[i + 1] = string.pack("<I2", 0x3c00 + (i % 3) * 0x400) -- 1, 2, 4
    for k = 0, 31 do
      local x = (i * 7 + k * 5) % 255 - 127
      blocks[i + 1] = blocks[i + 1] .. string.pack("<i1", x)
      want[#want + 1] = x * 2.0 ^ (i % 3)
    end
  end
  local name = helper.file("", ".gguf")
  local plan = assert(core.catalog_layout("gguf", {{name = "q", encoding = "Q8_0", shape = {8, 128}}}, {}))
  local f = assert(io.open(name, "wb"))
  f:write(plan.header)
  f:seek("set", plan.begin[1])
  f:write(table.concat(blocks))
  f:write(("\0"):rep(plan.size - f:seek "cur"))
  f:close()
  local c = assert(core.catalog(name))
  local x = ml.tensor(want):reshape {8, 128}
  for _, layout in ipairs(layouts) do
    local got = assert(load(c, 1, "float32", {8, 128}, sharding_of(layout, {8, 128})))
    assert.equal(x:bytes(), got:bytes())
  end
  local columns = {catalog = c, entry = 1, at = {0, 0}, size = {128, 8}}
  columns.factors = {{1, 128, 1}, {2, 8, 128}}
  assert.equal(x:T():bytes(), assert(core.catalog_load("float32", {128, 8}, nil, {columns})):bytes())
  local half = assert(load(c, 1, "float16", {8, 128}, nil, {cast = true}))
  assert.equal(x:astype("float16"):bytes(), half:bytes())
end)

it("bytes that are read are counted: what a tensor has, whatever its layout", function()
  local name = path()
  assert(save(name, {x = values("float32", {256, 512})}))
  local c = assert(core.catalog(name))
  for _, layout in ipairs {{}, {"a"}, {nil, "b"}, {"c", "a"}, {nil, {"c", "b", "a"}}} do
    local before = core.catalog_bytes()
    assert(load(c, 1, "float32", {256, 512}, sharding_of(layout, {256, 512})))
    assert.equal(256 * 512 * 4, core.catalog_bytes() - before)
  end
end)
