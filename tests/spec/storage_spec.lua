-- devices: 8
-- storage_spec.lua: integers of 8 and 16 bits, uint64 and the 8-bit floats: what arithmetic makes of them,
-- products in a dtype that is asked for, their way through meshes and files; against JAX's
-- (tests/oracle/storage.py).
local helper = require "spec.helper"
local lib = require "meshlua.lib"
local ml = require "meshlua"
local oracle = require "spec.oracle"

local op, P = ml.core.op, ml.P
local jax = oracle.read "storage"
local floats = {"float8_e4m3fn", "float8_e5m2"}
local new = {"int8", "int16", "uint16", "uint64"}

local function unhex(text)
  return (text:gsub("..", function(h) return string.char(tonumber(h, 16)) end))
end

local function tensor(hex, dtype, shape)
  local bytes = unhex(hex)
  return ml.core.from_string(bytes, dtype, shape or {#bytes // lib.element_bytes[dtype]})
end

--- A line where the two differ, or nil; NaN is NaN. any_zero: of whatever sign.
local function difference(want, got, any_zero)
  if want.dtype ~= got.dtype then return want.dtype .. " expected, got " .. got.dtype end
  if want:bytes() == got:bytes() then return nil end
  local a, b = want:reshape(-1):totable(), got:reshape(-1):totable()
  for i, x in ipairs(a) do
    local y = b[i]
    if not (x == y and (
      x ~= 0 or any_zero or not lib.floats[want.dtype] or 1 / x == 1 / y) or x ~= x and y ~= y) then
      return ("element %d is %s, JAX has %s"):format(i, y, x)
    end
  end
  return #a ~= #b and "sizes differ" or nil
end

-- ---- arithmetic -------------------------------------------------------------------------------------

local two = {}
for name in (
  "add sub mul div maximum minimum rem mod floor_divide eq ne lt le gt ge bitand bitor bitxor shl shr")
  :gmatch "%S+" do two[name] = true end

local along = {sort = true, argsort = true, cumsum = true, cumprod = true, cummax = true, cummin = true}

--- Departures: uint64 is divided in float32, as all integers are; cumsum adds narrow integers in 32 bits, as
--- sum does, and rounds floats once, as floor_divide does, where JAX rounds at each step; of zeros that are
--- equal either is the larger.
local function departs(c)
  return c.name == "div" and c.dtype == "uint64"
    or lib.floats[c.dtype] and (c.name == "cumsum" or c.name == "floor_divide")
end

local function run(c, x, finite)
  local fn = ml[c.name] or op[c.name]
  if two[c.name] then return fn(x:reshape(-1, 1), x:reshape(1, -1)) end
  if c.name:match "^arg" then x = finite end
  local y = along[c.name] and fn(x, 1) or fn(x)
  return c.name == "cumsum" and lib.sums[c.dtype] == y.dtype and y:astype(c.dtype) or y
end

describe("values are JAX's " .. jax.jax .. ":", function()
  local by = {}
  for _, c in ipairs(jax.cases) do
    by[c.dtype] = by[c.dtype] or {}
    if not departs(c) then table.insert(by[c.dtype], c) end
  end
  for dtype, cases in pairs(by) do
    it(dtype, function()
      local x = tensor(jax.values[dtype], dtype)
      local keep = {}
      for i, v in ipairs(x:totable()) do if v == v then keep[#keep + 1] = i - 1 end end
      local finite = ml.take(x, ml.tensor(keep, "int32"), 1)
      local traced = {ml.jit(function(a, b)
        local list = {}
        for i, c in ipairs(cases) do list[i] = run(c, a, b) end
        return table.unpack(list)
      end)(x, finite)}
      local wrongs = {}
      for i, c in ipairs(cases) do
        for way, y in pairs {alone = run(c, x, finite), traced = traced[i]} do
          local want = tensor(c.hex, c.result, y.shape)
          local wrong = difference(c.name:match "^arg" and want:astype "int32" or want, y,
            c.name:match "imum$")
          if wrong then wrongs[#wrongs + 1] = ("%s (%s): %s"):format(c.name, way, wrong) end
        end
      end
      if #wrongs > 0 then error(table.concat(wrongs, "\n"), 0) end
    end)
  end
end)

-- ---- 8-bit floats -----------------------------------------------------------------------------------

--- A sum over words that says where each stands.
local function total(words)
  local t = 0
  for i = 1, #words do t = t * 31 + words[i] + 1 end
  return ("%016x"):format(t)
end

local function words_of(x)
  local values, bytes, list = x:totable(), x:bytes(), {}
  for i = 1, #values do list[i] = values[i] ~= values[i] and 255 or bytes:byte(i) end
  return list
end

describe("every number of", function()
  for _, dtype in ipairs(floats) do
    local of = jax.narrow[dtype]
    it(dtype .. " reads, widens, comes back", function()
      local words = {}
      for i = 0, 255 do words[i + 1] = string.char(i) end
      local x = ml.core.from_string(table.concat(words), dtype, {256})
      local want = tensor(of.widened, "float32")
      assert.is_nil(difference(want, x:astype "float32"))
      assert.is_nil(difference(want:astype "float64", x:astype "float64"))
      assert.is_nil(difference(want, ml.tensor(x:totable())))
      assert.same(words_of(x), words_of(want:astype(dtype)))
      assert.same(words_of(x), words_of(ml.jit(function(y) return y:astype "float16":astype(dtype) end)(x)))
      assert.same(words_of(x), words_of(ml.tensor(x:totable(), dtype)))
    end)

    it("float16, and float32 around what lies between two, becomes JAX's " .. dtype, function()
      local words = {}
      for i = 0, 65535 do words[i + 1] = ("<I2"):pack(i) end
      local halves = ml.core.from_string(table.concat(words), "float16", {65536})
      assert.equal(of.halves, total(words_of(halves:astype(dtype))))
      local near = tensor(of.near, "float32")
      assert.equal(of.rounded, total(words_of(near:astype(dtype))))
      assert.equal(of.doubles, total(words_of(near:astype "float64":astype(dtype))))
      local list = {}
      for i, v in ipairs(near:totable()) do list[i] = ml.core.op.full {dtype = dtype, dims = {},
        value = v} end
      assert.equal(of.rounded, total(words_of(ml.stack(list)))) -- Lua numbers
    end)
  end
end)

-- ---- products ---------------------------------------------------------------------------------------

describe("a product in the dtype that is asked for:", function()
  for _, c in ipairs(jax.products) do
    it(c.dtype .. " as " .. (c.wanted or "it comes"), function()
      local x, w = tensor(c.x, c.dtype, {3, 5}), tensor(c.w, c.dtype, {5, 4})
      local options = c.wanted and {preferred_element_type = c.wanted}
      if c.error or lib.floats[c.dtype] and not lib.floats[c.wanted or c.dtype] then -- floats as integers, too
        helper.raises("preferred_element_type", function() return ml.matmul(x, w, options) end)
        return
      end
      local y = ml.matmul(x, w, options)
      if c.dtype ~= "bfloat16" or c.wanted ~= "float16" then -- which JAX rounds to bfloat16 first
        assert.is_nil(difference(tensor(c.hex, c.result, {3, 4}), y))
      end
      assert.is_nil(difference(y, ml.einsum("ij,jk->ik", x, w, options)))
    end)
  end

  it("is an option by its name", function()
    local x = ml.ones {2, 2}
    helper.raises("matmul: options must be a table, not a number", ml.matmul, x, x, 1)
    helper.raises("matmul: unknown option 'prefered'", ml.matmul, x, x, {prefered = 1})
  end)
end)

-- ---- meshes, moves, files ---------------------------------------------------------------------------

local function range_of(dtype, n)
  local list = {}
  for i = 1, n do list[i] = (i * 37 + 11) % 100 / (lib.floats[dtype] and 8 or 1) end
  if not lib.floats[dtype] then for i = 1, n do list[i] = math.tointeger(list[i]) end end
  return ml.tensor(list, dtype)
end

describe("moved, sharded and summed as on one device:", function()
  for _, dtype in ipairs {"int8", "int16", "uint16", "uint64", "float8_e4m3fn", "float8_e5m2"} do
    it(dtype, function()
      local mesh = ml.make_mesh({4, 2}, {"a", "b"})
      local x = range_of(dtype, 64):reshape(8, 8)
      local ids = ml.tensor({5, 0, 7, 2}, "int32")
      local function moves(v)
        return v:transpose(), ml.concat({v, v}, 2), v:slice({2, 8}, {1, 6}), ml.take(v, ids, 1),
          ml.where(v:gt(3), v, v),
          ml.pad(v, {{1, 0}, {0, 2}}, 1), ml.flip(v, 1), v:max(1), v:min(2), ml.cumsum(v, 1), ml.sort(v, 1),
          v:eq(v:transpose()), v:reshape(4, 16), ml.stack {v, v}
      end
      local want, step = {moves(x)}, ml.jit(moves)
      for _, spec in ipairs {P("a", "b"), P("b"), P(nil, "a")} do
        for i, y in ipairs {step(ml.device_put(x, ml.NamedSharding(mesh, spec)))} do
          assert.equal(want[i]:bytes(), ml.all_gather_to_host(y):bytes(), spec)
        end
      end
      local over = ml.device_put(x, ml.NamedSharding(mesh, P("a", "b")))
      assert.same(x:sum():item(), ml.jit(function(v) return v:sum() end)(over):item())
      local product = ml.jit(function(v) return ml.matmul(v, v, {preferred_element_type = lib.sums[dtype]
        or lib.floats[dtype] and "float32" or dtype}) end)
      assert.same(product(x):totable(), ml.all_gather_to_host(product(over)):totable())
    end)
  end
end)

describe("8-bit floats and others", function()
  it("do not meet by themselves", function()
    local x, y = ml.ones({2}, "float8_e4m3fn"), ml.ones({2})
    local wanted = "float8_e4m3fn and float32 do not meet by themselves; convert one with astype"
    for _, fn in ipairs {ml.add, ml.eq, ml.maximum, ml.matmul} do helper.raises(wanted, fn, x, y) end
    helper.raises(wanted, function() return ml.concat {x, y} end)
    helper.raises("float8_e4m3fn and float8_e5m2", function() return x * x:astype "float8_e5m2" end)
    assert.equal("float8_e4m3fn", (x * 2.5).dtype)
    assert.equal("float8_e4m3fn", (x + ml.ones({2}, "int64")).dtype)
  end)

  it("are not drawn", function()
    helper.raises("random.uniform: float8_e5m2 is not drawn; draw float32", function()
      return ml.random.uniform(ml.random.key(0), {2}, "float8_e5m2")
    end)
  end)
end)

describe("uint64", function()
  local most = tensor("ffffffffffffffff0000000000000080ffffffffffffff7f", "uint64")
  it("prints in full; as Lua numbers what no integer holds is a float", function()
    assert.matches("18446744073709551615  9223372036854775808  9223372036854775807", tostring(most), 1, true)
    assert.matches("uint64[] 18446744073709551615", tostring(most:at(1)), 1, true)
    assert.same({0x1p64, 0x1p63, math.maxinteger}, most:totable())
    assert.equal(most:at(2):bytes(), ml.tensor(0x1p63, "uint64"):bytes())
    helper.raises("out of range for uint64", function() return ml.tensor({-1}, "uint64") end)
    helper.raises("out of range for uint64", function() return ml.tensor({0x1p64}, "uint64") end)
  end)
  it("meets signed integers in float64, as they have no other dtype in common", function()
    assert.equal("float64", (most + ml.ones({3}, "int8")).dtype)
    assert.equal("uint64", (most + 1).dtype)
  end)
end)

it("a file keeps them to the byte", function()
  local tensors = {}
  for _, dtype in ipairs {table.unpack(new)} do tensors[dtype] = tensor(jax.values[dtype], dtype) end
  local npz = os.tmpname() .. ".npz"
  ml.save(npz, tensors)
  for dtype, y in pairs(ml.load(npz)) do assert.equal(tensors[dtype]:bytes(), y:bytes()) end
  for _, dtype in ipairs(floats) do tensors[dtype] = tensor(jax.values[dtype], dtype) end
  helper.raises("numpy has no dtype F8_E", function() assert(ml.save(npz, tensors)) end)
  local file = os.tmpname() .. ".safetensors"
  ml.save(file, tensors)
  for dtype, y in pairs(ml.load(file)) do assert.equal(tensors[dtype]:bytes(), y:bytes()) end
  os.remove(npz)
  os.remove(file)
end)
