-- devices: 8
-- special_spec.lua: zeros of both signs, infinities, NaN, the smallest and the largest numbers; and gradients
-- where a function has a kink.
local helper = require "spec.helper"
local ml = require "meshlua"
local data = require "spec.op.data"
local rows = require "spec.op.rows"
local scalar = require "spec.op.scalar"

local inf, nan = math.huge, 0 / 0
local specials = {0.0, -0.0, 1.0, -1.0, inf, -inf, nan, 0.5, -0.5, 2.5, -3.0, 1e4, -1e4}

local function text(x) return x == 0 and (1 / x < 0 and "-0.0" or "0.0") or tostring(x) end

--- Equal in sign of zero, too; finite floats within the tolerance.
local function same(x, y, tolerance)
  if type(x) ~= "number" or type(y) ~= "number" then return x == y end
  if x ~= x or y ~= y then return x ~= x and y ~= y end
  if x == 0 and y == 0 then return 1 / x == 1 / y end
  return x == y or math.abs(x - y) <= tolerance * math.max(math.abs(x), 1e-30)
end

--- Calls the row on all pairs (triples) of special numbers and compares with its definition.
local function check(row, dtype, sign_matters)
  local n, lists, count = #specials, {}, #row.inputs
  for k = 1, count do lists[k] = {shape = {n ^ count // 1 | 0}, dtype = dtype} end
  for i = 0, n ^ count // 1 - 1 do
    for k = 1, count do lists[k][i + 1] = specials[(i // n ^ (k - 1)) % n // 1 + 1] end
  end
  local tensors = {}
  for k, list in ipairs(lists) do
    list.shape[1] = #list
    tensors[k] = data.tensor(list)
  end
  local inputs = data.flats(tensors)
  local expected, actual = row.ref(table.unpack(inputs)), data.flat((row.call(table.unpack(tensors))))
  local tolerance = rows.tolerance(row, actual.dtype, dtype)
  for i = 1, #expected do
    local x, y = expected[i], actual[i]
    if not sign_matters and x == 0 then x = 0.0 + math.abs(x) end
    if not sign_matters and y == 0 then y = 0.0 + math.abs(y) end
    if data.is_float(actual.dtype) and type(x) == "number" and x - x == 0 then
      x = data.flat(ml.tensor({x * 1.0}, "float64"):astype(actual.dtype))[1] -- as the dtype holds it
    end
    if not same(x, y, tolerance) then
      local words = {}
      for k, list in ipairs(inputs) do words[k] = text(list[i]) end
      error(("%s of (%s): expected %s, got %s"):format(dtype, table.concat(words, ", "), text(x), text(y)))
    end
  end
end

-- Which of two zeros is the larger is not said.
local zeros_alike = {maximum = true, minimum = true}

describe("special numbers through", function()
  for _, row in ipairs(rows) do
    if row.elementwise and row.name == row.op and row.floats ~= false and row.op ~= "where" then
      it(row.op, function()
        for _, dtype in ipairs(data.floats) do check(row, dtype, not zeros_alike[row.op]) end
      end)
    end
  end
end)

-- ---- integers at their ends -------------------------------------------------------------------------

local ends = {
  int32 = {-2147483648, 2147483647, -1, 0, 1, 31}, int64 = {math.mininteger, math.maxinteger, -1, 0, 1, 63},
  uint32 = {0, 4294967295, 2147483648, 1, 2, 31}, uint8 = {0, 255, 128, 1, 2, 7},
}
local bits = {int32 = 32, int64 = 64, uint32 = 32, uint8 = 8}

--- What shifting by any amount leaves: nothing, or the sign.
local function shl(dtype, x, by) return by >= 0 and by < bits[dtype] and x << by or 0 end
local function shr(dtype, x, by)
  if by < 0 or by >= bits[dtype] then return x < 0 and -1 or 0 end
  return x >> by | (x < 0 and by > 0 and ~0 << 64 - by or 0)
end

describe("a power of a half", function()
  it("is the same whether the exponent is known or an operand: of -0 0, of -inf inf", function()
    for _, dtype in ipairs {"float32", "float64", "bfloat16", "float16"} do
      local x = ml.tensor({-0.0, 0.0, -inf, inf, 4.0, 2.0, 3.0}, dtype)
      local known, given = (x ^ 0.5):totable(), ml.pow(x, ml.full(x.shape, 0.5, {dtype = dtype})):totable()
      local operand = ml.jit(ml.pow)(x, ml.tensor({0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5}, dtype)):totable()
      for i = 1, #operand do
        assert.equal(text(operand[i]), text(known[i]))
        assert.equal(text(operand[i]), text(given[i]))
      end
      assert.same({"0.0", "0.0", "inf", "inf", "2.0"}, {text(known[1]), text(known[2]), text(known[3]),
        text(known[4]), text(known[5])})
    end
  end)
end)

describe("integers at their ends wrap, shift out and divide by nothing:", function()
  local pairs_of = {
    add = function(x, y) return x + y end, sub = function(x, y) return x - y end,
    mul = function(x, y) return x * y end, rem = scalar.rem, maximum = scalar.max, minimum = scalar.min,
    shl = function(x, y, dtype) return shl(dtype, x, y) end,
    shr = function(x, y, dtype) return shr(dtype, x, y) end,
    lt = function(x, y) return x < y end, eq = function(x, y) return x == y end,
  }
  local alone = {
    neg = function(x) return -x end, abs = math.abs, square = function(x) return x * x end,
    bitnot = function(x) return ~x end, sign = function(x) return x > 0 and 1 or x < 0 and -1 or 0 end,
  }
  for dtype, values in pairs(ends) do
    it(dtype, function()
      local x, y = {}, {}
      for i, a in ipairs(values) do
        for k, b in ipairs(values) do
          x[(i - 1) * #values + k], y[(i - 1) * #values + k] = a, b
        end
      end
      local tx, ty = ml.tensor(x, dtype), ml.tensor(y, dtype)
      for name, f in pairs(pairs_of) do
        for i, got in ipairs(ml[name](tx, ty):totable()) do
          local want = scalar.wrap(dtype, f(x[i], y[i], dtype))
          if got ~= want then error(("%s(%d, %d) is %s, expected %s"):format(name, x[i], y[i], got, want)) end
        end
      end
      for name, f in pairs(alone) do
        for i, got in ipairs(ml[name](tx):totable()) do
          local want = scalar.wrap(dtype, f(x[i]))
          if got ~= want then error(("%s(%d) is %s, expected %s"):format(name, x[i], got, want)) end
        end
      end
      local total, most, least = 0, values[1], values[1]
      for _, v in ipairs(x) do total, most, least = total + v, math.max(most, v), math.min(least, v) end
      assert.equal(scalar.wrap(dtype == "uint8" and "uint32" or dtype, total), tx:sum():item())
      assert.equal(most, tx:max():item())
      assert.equal(least, tx:min():item())
      local sorted = table.move(x, 1, #x, 1, {})
      table.sort(sorted)
      assert.same(sorted, (tx:sort()):totable())
    end)
  end
end)

-- ---- reductions, order, rows ------------------------------------------------------------------------

--- fn of a vector equals a list, or a number, in every float dtype.
local function expect(numbers, wanted, fn)
  for _, dtype in ipairs(data.floats) do
    local got = data.flat(fn(ml.tensor(numbers, "float64"):astype(dtype)))
    local list = type(wanted) == "table" and wanted or {wanted}
    assert.equal(#list, #got)
    for i, x in ipairs(list) do
      if not same(x * 1.0, got[i] * 1.0, data.epsilon[dtype]) then
        error(("%s, element %d: expected %s, got %s"):format(dtype, i, x, got[i]), 2)
      end
    end
  end
end

describe("special numbers in lines:", function()
  it("NaN wins in max and min, and infinities do", function()
    for place = 1, 19 do
      local x = {}
      for i = 1, 19 do x[i] = i == place and nan or i - 9.0 end
      expect(x, nan, function(v) return v:max() end)
      expect(x, nan, function(v) return v:min() end)
      x[place] = inf
      expect(x, inf, function(v) return v:max() end)
      x[place] = -inf
      expect(x, -inf, function(v) return v:min() end)
    end
    expect({-inf, -inf}, -inf, function(v) return v:max() end)
    expect({inf, inf}, inf, function(v) return v:min() end)
  end)

  it("the first NaN is the place of the largest and of the smallest", function()
    for place = 1, 19 do
      local x = {}
      for i = 1, 19 do x[i] = i >= place and i % 3 == place % 3 and nan or i - 9.0 end
      expect(x, place - 1, function(v) return v:argmax() end)
      expect(x, place - 1, function(v) return v:argmin() end)
    end
    expect({-inf, -inf, -inf}, 0, function(v) return v:argmax() end)
    expect({inf, inf, inf}, 0, function(v) return v:argmin() end)
    expect({0.0, -0.0, 0.0}, 0, function(v) return v:argmax() end)
  end)

  it("a sum keeps infinities and NaN", function()
    expect({1, inf, 2}, inf, function(v) return v:sum() end)
    expect({inf, 1, -inf}, nan, function(v) return v:sum() end)
    expect({1, nan, 2}, nan, function(v) return v:sum() end)
  end)

  it("sort puts NaN last, and infinities in their places", function()
    local x = {nan, 1, -inf, inf, nan, -2}
    expect(x, {-inf, -2, 1, inf, nan, nan}, function(v) return (v:sort()) end)
    expect(x, {inf, 1, -2, -inf, nan, nan}, function(v) return (v:sort(1, true)) end)
  end)

  it("sort is stable among zeros of both signs and among NaN", function()
    for _, descending in ipairs {false, true} do
      expect({0.0, -0.0, nan, 0.0, nan, -0.0}, {0, 1, 3, 5, 2, 4}, function(v)
        return select(2, v:sort(1, descending, ml.arange(6)))
      end)
    end
  end)

  it("softmax takes -inf for a share of 0, and has nothing to say of infinities alone", function()
    expect({-inf, 0, -inf, 0}, {0, 0.5, 0, 0.5}, function(v) return v:softmax() end)
    expect({-inf, 0, -inf}, {-inf, 0, -inf}, function(v) return v:log_softmax() end)
    expect({-inf, -inf}, {nan, nan}, function(v) return v:softmax() end)
    expect({inf, 0}, {nan, nan}, function(v) return v:softmax() end)
    expect({1, nan}, {nan, nan}, function(v) return v:softmax() end)
    expect({300, 0}, {1, 0}, function(v) return v:softmax() end)
    expect({-inf, 3, -inf}, 3, function(v) return v:logsumexp() end)
    expect({-inf, -inf}, -inf, function(v) return v:logsumexp() end)
    expect({inf, 1}, inf, function(v) return v:logsumexp() end)
  end)

  it("where takes nothing from the other side", function()
    local condition = ml.tensor {true, false, true, false}
    expect({nan, 1, inf, -0.0}, {nan, 5, inf, 5}, function(v) return ml.where(condition, v, 5.0) end)
    expect({nan, 1, inf, -0.0}, {5, 1, 5, -0.0}, function(v) return ml.where(condition, 5.0, v) end)
  end)
end)

-- ---- kinks ------------------------------------------------------------------------------------------

--- The gradient of fn's sum at the numbers.
local function slope_at(numbers, wanted, fn)
  for _, dtype in ipairs {"float64", "float32", "bfloat16"} do
    local x = ml.tensor(numbers, "float64"):astype(dtype)
    local got = data.flat(ml.grad(function(v) return ml.sum(fn(v)) end)(x))
    for i, want in ipairs(wanted) do
      if not same(math.abs(want), math.abs(got[i]), data.epsilon[dtype]) or want * got[i] < 0 then
        error(("%s: the gradient at %s is %s, expected %s"):format(dtype, numbers[i], got[i], want), 2)
      end
    end
  end
end

describe("gradients at kinks:", function()
  it("|x| has none at 0", function() slope_at({-2, 0, 3}, {-1, 0, 1}, ml.abs) end)

  it("equal operands share", function()
    slope_at({1, 2, 3}, {0, 0.5, 1}, function(x) return ml.maximum(x, 2.0) end)
    slope_at({1, 2, 3}, {1, 0.5, 0}, function(x) return ml.minimum(x, 2.0) end)
    slope_at({1, 2, 3}, {1, 1, 1}, function(x) return ml.maximum(x, x) end)
  end)

  it("equal elements share", function()
    slope_at({1, 4, 4, 4, 4}, {0, 0.25, 0.25, 0.25, 0.25}, function(x) return x:max() end)
    slope_at({1, 4, 1}, {0.5, 0, 0.5}, function(x) return x:min() end)
  end)

  it("steps, comparisons, places and stopped values have none", function()
    for _, name in ipairs {"floor", "ceil", "round", "sign", "stop_gradient"} do
      slope_at({-1.5, 0, 2.5}, {0, 0, 0}, ml[name])
    end
    slope_at({-1.5, 0, 2.5}, {0, 0, 0}, function(x) return x:gt(0):astype "float32" end)
    slope_at({-1.5, 0, 2.5}, {0, 0, 0}, function(x) return x:argmax():astype "float32" end)
    slope_at({-1.5, 0, 2.5}, {0, 0, 0}, function(x) return x:astype "int32":astype "float32" end)
  end)

  it("powers at 0", function()
    slope_at({0, 2}, {0, 4}, function(x) return x ^ 2 end)
    slope_at({0, 2}, {1, 1}, function(x) return x ^ 1 end)
    slope_at({0, 2}, {0, 0}, function(x) return x ^ 0 end)
    slope_at({0, 4}, {inf, 0.25}, function(x) return x ^ 0.5 end)
    slope_at({0, 2}, {0, 4}, function(x) return ml.pow(x, ml.tensor {2.0, 2.0}) end)
    slope_at({0, 2}, {0, 0}, function(x) return ml.pow(x, ml.tensor {0.0, 0.0}) end)
    slope_at({0, 1}, {0, 2 * math.log(2)}, function(y) return ml.pow(ml.tensor {0.0, 2.0}, y) end)
  end)

  it("roots and logarithms at 0", function()
    slope_at({0, 4}, {inf, 0.25}, ml.sqrt)
    slope_at({0, 4}, {inf, 0.25}, ml.log)
    slope_at({-1, 0}, {inf, 1}, ml.log1p)
  end)

  it("the side that where leaves out gets 0", function()
    slope_at({-1, 2}, {0, 1}, function(x) return ml.where(x:gt(0), x, 7.0) end)
  end)

  it("saturated functions end in 0, not in NaN", function()
    slope_at({-1000, 1000}, {0, 0}, ml.sigmoid)
    slope_at({-1000, 1000}, {0, 0}, ml.tanh)
    slope_at({-1000, 1000}, {0, 0}, ml.erf)
    slope_at({-inf, 0}, {0, 0}, function(x) return x:softmax() end)
  end)
end)

describe("ids and starts that int32 does not hold stay outside:", function()
  local x = ml.arange(10.0)
  local wide = {
    int64 = {1 << 31, (1 << 31) + 3, (1 << 32) + 1, math.maxinteger, -1 << 31, 1 - (1 << 32), 1 << 63},
    uint32 = {1 << 31, (1 << 31) + 3, (1 << 32) - 1},
  }
  for dtype, ids in pairs(wide) do
    for _, id in ipairs(ids) do
      it(("%s %d"):format(dtype, id), function()
        local at, low = ml.tensor(id, dtype), id < 0
        helper.raises("is outside 0..9", function() return ml.take(x, at:reshape(1)):totable() end)
        local where, one = at:reshape(1), ml.ones {1}
        helper.raises("is outside 0..9", function() return ml.scatter_set(x, where, one):totable() end)
        helper.raises("is outside 0..9", function() return ml.scatter_add(where, one, 10):totable() end)
        helper.raises("is outside 0..9", function()
          return ml.nn.softmax_cross_entropy_with_integer_labels(x:reshape(1, 10), at:reshape(1)):totable()
        end)
        assert.equal(0, ml.one_hot(at, 4):sum():item())
        assert.same(low and {0, 1, 2} or {7, 8, 9}, ml.dynamic_slice(x, {at}, {3}):totable())
        local put = ml.dynamic_update_slice(x, ml.full({2}, -1.0), {at})
        assert.equal(-1, put:at(low and 1 or -1):item())
        local function add(k) return function(y) return y + k end end
        assert.equal(low and 1 or 3, ml.switch(at, {add(1), add(2), add(3)}, ml.tensor(0.0)):item())
      end)
    end
  end
end)

it("ids are integers of any dtype", function()
  local x = ml.arange(4.0)
  for _, dtype in ipairs {"uint8", "int32", "uint32", "int64"} do
    local ids, updates = ml.tensor({3, 1}, dtype), ml.tensor {5.0, 7.0}
    assert.same({3, 1}, x:take(ids):totable(), dtype)
    assert.same({3, 1}, x:take_along_axis(ids, 1):totable(), dtype)
    assert.same({0, 7, 2, 5}, x:scatter_set(ids, updates):totable(), dtype)
    assert.same({0, 7, 0, 5}, ml.scatter_add(ids, updates, 4):totable(), dtype)
  end
end)
