-- devices: 8
-- samplers_spec.lua: draws of distributions with parameters against jax.random (tests/oracle/jax_samplers.py), split
-- and whole, for many keys at once; and what is refused.
local helper = require "spec.helper"
local ml = require "meshlua"
local oracle = require "spec.oracle"
local random, P = ml.random, ml.P

local vectors = oracle.read "jax_samplers"

local rows = ml.arange(24.0):reshape(6, 4)

--- What the case gives behind the key: lists of numbers with a point are tensors.
local function arguments(c)
  local list = {n = #c.args}
  for i = 1, list.n do
    local a = c.args[i]
    if a == "rows" then a = rows end
    if type(a) == "table" and math.type(a[1]) == "float" then a = ml.tensor(a, c.of) end
    if a == "none" then a = nil end
    list[i] = a
  end
  if c.fn == "exponential" or c.fn == "laplace" then list = {c.shape, c.of, n = 2} end
  if c.of == "float64" and c.fn ~= "exponential" and c.fn ~= "laplace" then
    list.n = list.n + 1
    list[list.n] = c.of
  end
  return list
end

local function draw(c, key)
  local list = arguments(c)
  return random[c.fn](key or random.key(c.seed), table.unpack(list, 1, list.n))
end

local code = {float32 = "<f", float64 = "<d", int32 = "<i4"}

local function values_of(c)
  local size = ({float32 = 8, float64 = 16, int32 = 8, bfloat16 = 4})[c.dtype]
  local list = {}
  for at = 1, #c.words, size do
    local word = tonumber(c.words:sub(at, at + size - 1), 16)
    list[#list + 1] = c.dtype == "bfloat16" and ("<f"):unpack(("<I4"):pack(word << 16))
      or code[c.dtype]:unpack(("<I" .. size // 2):pack(word))
  end
  return list
end

-- In units of the dtype, of the value: roundings of logarithms and powers between. A draw that is further away was
-- decided otherwise. XLA takes what is below the normal numbers for 0.
local room = {float32 = 2 ^ -17, float64 = 2 ^ -36, bfloat16 = 2 ^ -7, int32 = 0}

describe("as jax.random draws:", function()
  for _, c in ipairs(vectors.cases) do
    it(("%s of key %d, %s"):format(c.fn, c.seed, c.dtype), function()
      local x = draw(c)
      assert.equal(c.dtype, x.dtype)
      assert.same(c.shape, x.shape)
      local got, other = x:reshape(-1):totable(), 0
      for i, want in ipairs(values_of(c)) do
        local scale = math.abs(want) + (c.fn == "loggamma" and 1 or 0)
        local near = math.abs(got[i] - want) <= room[c.dtype] * scale + 2 ^ -126
        if got[i] ~= want and not near then
          other = other + 1
          assert(other <= #got * 1e-4, ("element %d is %.9g, and %.9g in JAX"):format(i, got[i], want))
        end
      end
    end)
  end
end)

-- ---- split, and for many keys ---------------------------------------------------------------------------------

local mesh = ml.make_mesh({8}, {"x"})
local a = ml.tensor {0.3, 1.0, 2.0, 30.0}
local p = ml.tensor {0.5, 0.125, 0.375}

local draws = {
  exponential = function(key) return random.exponential(key, {16, 4}) end,
  laplace = function(key) return random.laplace(key, {16, 4}) end,
  gamma = function(key) return random.gamma(key, a, {16, 4}) end,
  beta = function(key) return random.beta(key, a, 2.0, {16, 4}) end,
  dirichlet = function(key) return random.dirichlet(key, a, {16}) end,
  poisson = function(key) return random.poisson(key, a, {16, 4}) end,
  choice = function(key) return random.choice(key, 3, {16, 4}, true, p) end,
  ["choice of rows"] = function(key) return random.choice(key, rows, {16}) end,
  ["choice without putting back"] = function(key) return random.choice(key, 64, {16}, false) end,
}

for name, fn in pairs(draws) do
  it(name .. " has the same bits where it is split, and for many keys at once", function()
    local whole = fn(random.key(5))
    local step = ml.jit(fn, {mesh = mesh, out_shardings = {ml.NamedSharding(mesh, P "x")}})
    assert.equal(whole:bytes(), step(random.key(5)):bytes())
    local keys = random.split(random.key(6), 3)
    local many = ml.vmap(fn)(keys)
    for i = 1, 3 do assert.equal(fn(keys:at(i)):bytes(), many:at(i):bytes()) end
  end)
end

it("moments are those of the distributions", function()
  local key, n = random.key(8), 20000
  local function check(x, mean, variance)
    local v = x:astype "float64"
    assert(math.abs(v:mean():item() - mean) < 5 * math.sqrt(variance / n), tostring(v:mean():item()))
    assert(math.abs(v:var():item() / variance - 1) < 0.15, tostring(v:var():item()))
  end
  check(random.exponential(key, {n}), 1, 1)
  check(random.laplace(key, {n}), 0, 2)
  check(random.gamma(key, 0.7, {n}), 0.7, 0.7)
  check(random.beta(key, 2.0, 3.0, {n}), 0.4, 0.04)
  check(random.poisson(key, 3.5, {n}), 3.5, 3.5)
  check(random.poisson(key, 40.0, {n}), 40, 40)
end)

-- ---- what is refused ------------------------------------------------------------------------------------------

describe("is refused:", function()
  local key = random.key(0)
  for message, fn in pairs {
    ["[E_VALUE] random.gamma: expected a tensor"] = function() random.gamma(key, "a") end,
    ["[E_VALUE] random.gamma: expected a key"] = function() random.gamma(1, 2.0) end,
    ["[E_DTYPE] random.exponential: int32 is no float dtype"] = function()
      random.exponential(key, {2}, "int32")
    end,
    ["[E_SHAPE] random.dirichlet: alpha is a scalar"] = function() random.dirichlet(key, ml.tensor(1.0)) end,
    ["[E_VALUE] random.choice: there is nothing to draw from"] = function() random.choice(key, 0, {2}) end,
    ["[E_VALUE] random.choice: 4 draws of 3 without putting back"] = function()
      random.choice(key, 3, {4}, false)
    end,
    ["[E_SHAPE] random.choice: p is float32[4]; it has a probability for each of the 3"] = function()
      random.choice(key, 3, {4}, true, a)
    end,
    ["[E_SHAPE] random.choice: axis 3 of a tensor of rank 2"] = function()
      random.choice(key, rows, {2}, true, nil, 3)
    end,
    ["[E_GRAD] while_loop is not differentiable"] = function()
      ml.grad(function(x) return random.gamma(key, x):sum() end)(a)
    end,
  } do
    it(message, function() helper.raises(message, fn) end)
  end
end)
