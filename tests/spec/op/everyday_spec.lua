-- everyday_spec.lua: functions that are made of ops against jax.numpy (tests/oracle/everyday.py): dtype, shape and
-- values of every case, or that it is refused.
local ml = require "meshlua"
local data = require "spec.op.data"
local helper = require "spec.helper"
local oracle = require "spec.oracle"

local vectors = oracle.read "everyday"

--- Where this library departs, and why: the name, a Lua pattern of the case's text, the reason. A departure in which
--- no case stands is an error.
local departures = {
  {"exp2", "x_bfloat16", "JAX rounds to bfloat16 on the way; 2^30 is exact here"},
  {"xlogy", "v_float64,0.5", "JAX takes the logarithm of a number in float32"},
  {"fmod", "bool,.*bool", "by false it is 0, as integers by 0"},
  {"lgamma", "_bool", "of 1 it is 0 here, and 4.8e-7 in JAX"},
  {"digamma", "[so]_float64", "near a zero both are a few roundings of what is summed away from it"},
  {"polygamma", "^{0,@s_float64", "as digamma"},
  {"polygamma", "[12347],@x_", "of infinity it is 0, not NaN"},
  {"quantile", ",1.5", "q outside 0..1 is an error, not NaN"},
  {"repeat_interleave", "^{@s_.*,.*,", "a scalar has no axes"},
  {"diff", "^{@s_", "a scalar has no axes"},
  {"einsum", "i1", "digits are no letters"},
  {"kron", "bool", "of bool it is `and`, as in the other products"},
}

local words = {nan = 0.0 / 0.0, inf = math.huge, ["-inf"] = -math.huge}

local function number(v) return words[v] or v end

local made = {}

local function input(name)
  if not made[name] then
    local dtype, shape, list = table.unpack((assert(vectors.inputs[name], name)))
    for i, v in ipairs(list) do list[i] = number(v) end
    list.shape, list.dtype = shape, dtype
    made[name] = data.tensor(list)
  end
  return made[name]
end

--- An argument, inputs in place of their names; `spread` is what JSON has as a list.
local function value(a)
  if type(a) == "string" and a:sub(1, 1) == "@" then return input(a:sub(2)) end
  if type(a) ~= "table" then return a end
  local out = {}
  for k, v in pairs(a) do out[k] = value(v) end
  return out
end

local function text_of(v)
  if type(v) ~= "table" then return tostring(v) end
  local list = {}
  for i, x in ipairs(v) do list[i] = text_of(x) end
  local named = {}
  for k, x in pairs(v) do
    if type(k) == "string" then named[#named + 1] = k .. "=" .. text_of(x) end
  end
  table.sort(named)
  return "{" .. table.concat(list, ",") .. table.concat(named, ",") .. "}"
end

-- Of each dtype how far a value may be: in roundings, of itself and of the largest of the result.
local function differs(want, got, dtype, scale)
  if want == got or want ~= want and got ~= got then return false end
  local eps = data.epsilon[dtype]
  if not eps or math.abs(want) == math.huge then return true end
  local narrow = data.accumulator(dtype) ~= dtype
  local room = (narrow and 1 or 16) * eps * math.abs(want) + (narrow and 0.5 or 2) * eps * scale
  return not (math.abs(want - got) <= room)
end

local function compare(expected, y)
  local dtype, shape, list = table.unpack(expected)
  if y.dtype ~= dtype then return ("it is %s, and %s in JAX"):format(y.dtype, dtype) end
  local got, want = table.concat(y.shape, ","), table.concat(shape, ",")
  if got ~= want then return ("its shape is [%s], and [%s] in JAX"):format(got, want) end
  local flat, scale = data.flat(y), 0
  for i, v in ipairs(list) do
    list[i] = number(v)
    if type(v) == "number" then scale = math.max(scale, math.abs(v)) end
  end
  for i, v in ipairs(list) do
    if differs(v, flat[i], dtype, scale) then
      return ("element %d is %s, and %s in JAX"):format(i, flat[i], v)
    end
  end
end

--- What is wrong with a case; nil if nothing is.
local function fault(name, args, expected)
  local list = {}
  for i, a in ipairs(args) do list[i] = value(a) end
  local fn = name == "split" and list[1].split or ml[name]
  local out = table.pack(pcall(fn, table.unpack(list)))
  if expected == "error" then return out[1] and "JAX refuses it" or nil end
  if not out[1] then return tostring(out[2]):match "[^\n]*" end
  local results = type(out[2]) == "table" and out[2] or {table.unpack(out, 2, out.n)}
  if #results ~= #expected then return ("%d results, and %d in JAX"):format(#results, #expected) end
  for i, e in ipairs(expected) do
    local wrong = compare(e, results[i])
    if wrong then return ("result %d: %s"):format(i, wrong) end
  end
end

local names, of = {}, {}
for _, c in ipairs(vectors.cases) do
  if not of[c[1]] then names[#names + 1], of[c[1]] = c[1], {} end
  table.insert(of[c[1]], c)
end

describe("as jax.numpy has it:", function()
  for _, name in ipairs(names) do
    it(("%s, %d cases"):format(name, #of[name]), function()
      local faults = {}
      for _, c in ipairs(of[name]) do
        local text, reason = text_of(c[2]), nil
        for _, d in ipairs(departures) do
          if d[1] == name and text:find(d[2]) then d.used, reason = true, d[3] end
        end
        local wrong = not reason and fault(name, c[2], c[3])
        if wrong then faults[#faults + 1] = name .. text .. ": " .. wrong end
      end
      if #faults > 0 then
        local some = table.concat(faults, "\n  ", 1, math.min(#faults, 12))
        error(("%d of %d:\n  %s"):format(#faults, #of[name], some), 0)
      end
    end)
  end

  it("bincount counts up to the largest only where that is known", function()
    local ids = ml.tensor {0, 2, 2}
    assert.same({1, 0, 2}, ml.bincount(ids):totable())
    helper.raises("[E_TRACED] bincount: inside a traced function", ml.jit(ml.bincount), ids)
    assert.same({1, 0, 2, 0}, ml.jit(function(x) return x:bincount {length = 4} end)(ids):totable())
  end)

  it("a shift of roll, and edges of bins, may be computed", function()
    local shifted = ml.jit(function(x, n) return x:roll(n) end)
    assert.same({3, 4, 0, 1, 2}, shifted(ml.arange(5), ml.tensor(2)):totable())
    assert.same({1, 2, 3, 4, 0}, shifted(ml.arange(5), ml.tensor(-6)):totable())
    local counts = ml.jit(function(x) return (x:histogram(2)) end)
    assert.same({3, 1}, counts(ml.tensor {0.0, 1.0, 4.0, 1.5}):totable())
    assert.same({0.5, 3}, ml.histogram(ml.tensor {0.0, 1.0, 4.0}, {bins = ml.tensor {-1.0, 0.5, 9.0},
      weights = ml.tensor {0.5, 1.0, 2.0}}):totable())
  end)

  it("diff takes what stands in front and behind", function()
    local one = ml.tensor {10}
    assert.same({-9, 3, 6}, ml.tensor({1, 4}):diff({prepend = one, append = one}):totable())
  end)

  it("prod has its gradient where elements are 0", function()
    local slope = ml.grad(function(x) return x:prod() end)
    assert.same({15, 0, 0, 0}, slope(ml.tensor {0.0, 1.0, 3.0, 5.0}):totable())
    assert.same({0, 0, 0}, slope(ml.tensor {0.0, 0.0, 3.0}):totable())
    assert.same({1}, slope(ml.tensor {0.0}):totable())
  end)

  it("of bools + is or, * is and; powers, quotients and remainders are integers; there is no -", function()
    local a, b = ml.tensor {true, false, true}, ml.tensor {true, true, false}
    assert.same({true, true, true}, (a + b):totable())
    assert.same({true, false, false}, (a * b):totable())
    assert.same({2, 1, 1}, (a + b:astype "int32"):totable())
    assert.same({2, 1, 2}, (a + 1):totable())
    for y, list in pairs {[a ^ b] = {1, 0, 1}, [a // b] = {1, 0, -2}, [a % b] = {0, 0, 0},
        [a:square()] = {1, 0, 1}} do
      assert.equal("int32", y.dtype)
      assert.same(list, y:totable())
    end
    local both = ml.jit(function(x, y) return x + y * x end)(a, b)
    assert.same({true, false, true}, both:totable())
    helper.raises("[E_DTYPE] sub: takes numbers, not bool; convert with astype", function() return a - b end)
  end)

  it("of an empty dim softmax is empty, and the logarithm of the sum -infinity", function()
    local x = ml.zeros {2, 0, 3}
    assert.same({2, 0, 3}, x:softmax(2).shape)
    assert.same({2, 0, 3}, x:log_softmax().shape)
    assert.equal("bfloat16", x:astype "bfloat16":softmax(2).dtype)
    local huge = -math.huge
    assert.same({{huge, huge, huge}, {huge, huge, huge}}, x:logsumexp(2):totable())
    assert.same({2, 1, 3}, x:logsumexp(2, true).shape)
    assert.equal(huge, x:logsumexp():item())
    assert.same({2, 0}, x:logsumexp(3).shape)
  end)

  it("the inverse functions have infinite derivatives at their ends, as in JAX", function()
    local function slope(name, list)
      return ml.grad(function(x) return x[name](x):sum() end)(ml.tensor(list)):totable()
    end
    assert.same({math.huge, 1, math.huge}, slope("asin", {-1.0, 0.0, 1.0}))
    assert.same({-math.huge, -1, -math.huge}, slope("acos", {-1.0, 0.0, 1.0}))
    assert.same({math.huge}, slope("acosh", {1.0}))
    assert.same({1, 0}, slope("asinh", {0.0, math.huge}))
    assert.same({1, 0}, slope("atan", {0.0, math.huge}))
  end)

  it("each departure has its case", function()
    for _, d in ipairs(departures) do assert.truthy(d.used, d[1] .. " " .. d[2]) end
  end)
end)

-- ---- what is refused ----------------------------------------------------------------------------------------

local x, cube, flags = ml.zeros {2, 3}, ml.zeros {2, 3, 4}, ml.zeros({2}, "bool")

describe("is refused at the caller's line:", function()
  for message, fn in pairs {
    ["[E_SHAPE] einsum: 'j' is 3 in 'ij' (float32[2,3]) and 2 in 'jk' (float32[2,3])"] = function()
      ml.einsum("ij,jk", x, x)
    end,
    ["[E_SHAPE] einsum: 'ijk' for float32[2,3]"] = function() ml.einsum("ijk->i", x) end,
    ["[E_SHAPE] einsum: '...ijk' for float32[2,3]"] = function() ml.einsum("...ijk->i", x) end,
    ["[E_SHAPE] einsum: 'i' is 2 in 'ii' (float32[2,3]) and 3 in 'ii'"] = function() ml.einsum("ii", x) end,
    ["[E_SHAPE] einsum: 'i' is 1 and 3 in 'ii' (float32[1,3])"] = function()
      ml.einsum("ii", ml.zeros {1, 3})
    end,
    ["[E_VALUE] einsum: 'k' is in no operand"] = function() ml.einsum("ij->k", x) end,
    ["[E_VALUE] einsum: the result of 'ij->ii' has i twice"] = function() ml.einsum("ij->ii", x) end,
    ["[E_VALUE] einsum: 'ij,jk' has 2 operands, given are 3"] = function() ml.einsum("ij,jk", x, x, x) end,
    ["[E_VALUE] einsum: cannot read 'i..j'"] = function() ml.einsum("i..j", x) end,
    ["[E_VALUE] einsum: cannot read '...i...'"] = function() ml.einsum("...i...", x) end,
    ["[E_VALUE] einsum: cannot read 'i->j->k'"] = function() ml.einsum("i->j->k", x) end,
    ["[E_VALUE] einsum: expected a text"] = function() ml.einsum(x, x) end,
    ["[E_SHAPE] tensordot: axis 2 of float32[2,3] is 3, and axis 1 of float32[2,3] is 2"] = function()
      x:tensordot(x, 1)
    end,
    ["[E_SHAPE] tensordot: 3 axes of float32[2,3] and float32[2,3]"] = function() x:tensordot(x, 3) end,
    ["[E_SHAPE] tensordot: an axis is given twice"] = function() x:tensordot(x, {{1, 1}, {1, 2}}) end,
    ["[E_SHAPE] dot: the last dim of float32[2,3] is 3, the one of float32[2,3] that meets it 2"] = function()
      x:dot(x)
    end,
    ["[E_SHAPE] trace: float32[2] is no matrix"] = function() ml.zeros({2}):trace() end,
    ["[E_SHAPE] tril: float32[2] is no matrix"] = function() ml.zeros({2}):tril() end,
    ["[E_SHAPE] diagonal: axis 1 is given twice"] = function() x:diagonal(0, 1, 1) end,
    ["[E_SHAPE] diag: float32[2,3,4] is neither a vector nor a matrix"] = function() cube:diag() end,
    ["[E_VALUE] diag: k must be a whole number, not 1.5"] = function() x:diag(1.5) end,
    ["[E_VALUE] tile: reps has -1 for float32[2,3]"] = function() x:tile {1, -1} end,
    ["[E_VALUE] tile: reps must be a whole number"] = function() x:tile(1.5) end,
    ["[E_SHAPE] repeat_interleave: 2 numbers for axis 2 of float32[2,3]"] = function()
      x:repeat_interleave({1, 2}, 2)
    end,
    ["[E_SHAPE] repeat_interleave: a list of repeats makes at most 67108864 of axis 2"] = function()
      x:repeat_interleave({1, 1, 1 << 40}, 2)
    end,
    ["[E_VALUE] roll: the shift must be a whole number"] = function() x:roll() end,
    ["[E_SHAPE] roll: 0 shifts for 1 axis"] = function() x:roll {} end,
    ["[E_VALUE] interp: expected a tensor as xp, got nil"] = function() ml.interp(x) end,
    ["[E_SHAPE] roll: axis 3 of a tensor of rank 2"] = function() x:roll(1, 3) end,
    ["[E_SHAPE] roll: 3 shifts for 2 axes"] = function() x:roll({1, 2, 3}, {1, 2}) end,
    ["[E_SHAPE] moveaxis: 2 axes to 1 place"] = function() x:moveaxis({1, 2}, 1) end,
    ["[E_SHAPE] moveaxis: an axis is given twice"] = function() x:moveaxis({1, 1}, {1, 2}) end,
    ["[E_SHAPE] meshgrid: entry 1 is float32[2,3]; expected vectors"] = function() ml.meshgrid {x} end,
    ["[E_VALUE] meshgrid: indexing is 'xy' or 'ij', not 'yx'"] = function()
      ml.meshgrid({flags}, "yx")
    end,
    ["[E_SHAPE] split: cut behind element 4 of dim 2 of float32[2,3]; places rise from 0 to 3"] = function()
      x:split({4}, 2)
    end,
    ["[E_SHAPE] array_split: cut behind element 1 of dim 2"] = function() x:array_split({2, 1}, 2) end,
    ["[E_VALUE] array_split: dim 1 of size 2 in 0 parts"] = function() x:array_split(0) end,
    ["[E_VALUE] pad: mode 'mirror'"] = function() x:pad({false, {1, 1}}, {mode = "mirror"}) end,
    ["[E_SHAPE] pad: 'edge' takes no {-1, 1, 0} for dim 2 of float32[2,3]"] = function()
      x:pad({false, {-1, 1}}, {mode = "edge"})
    end,
    ["[E_SHAPE] prod: axis 3 of a tensor of rank 2"] = function() x:prod(3) end,
    ["[E_SHAPE] nanmean: axis 3 of a tensor of rank 2"] = function() x:nanmean(3) end,
    ["[E_SHAPE] median: axis 3 of a tensor of rank 2"] = function() x:median(3) end,
    ["[E_VALUE] quantile: q is 2; it is a number from 0 to 1"] = function() x:quantile(2) end,
    ["[E_VALUE] quantile: method is one of linear, lower"] = function() x:quantile(0.5, 1, false, "best") end,
    ["[E_SHAPE] median: float32[0] has no elements there"] = function() ml.zeros({0}):median() end,
    ["[E_VALUE] diff: n is -1; it must be 0 or more"] = function() x:diff(-1) end,
    ["[E_VALUE] histogram: 0 bins"] = function() x:histogram(0) end,
    ["[E_SHAPE] histogram: weights bool[2] for float32[2,3]"] = function() x:histogram {weights = flags} end,
    ["[E_VALUE] bincount: expected a vector of integers, got float32[2,3]"] = function() x:bincount() end,
    ["[E_SHAPE] interp: xp is float32[2,3] and fp float32[2,3]; expected two vectors"] = function()
      x:interp(x, x)
    end,
    ["[E_VALUE] hypot: expected a tensor, got a string"] = function() ml.hypot(x, "four") end,
    ["[E_VALUE] tan: expected a tensor, got nil"] = function() ml.tan() end,
    ["[E_SHAPE] logaddexp (sub): shapes do not broadcast (x float32[2,3], y float32[2,3,4])"] = function()
      ml.logaddexp(x, cube)
    end,
    ["[E_VALUE] asinh: expected a tensor, got a string"] = function() ml.asinh("a") end,
    ["[E_VALUE] logspace: base must be a number, not a string"] = function() ml.logspace(0, 1, 2, "e") end,
  } do
    it(message, function() helper.raises(message, fn) end)
  end
end)
