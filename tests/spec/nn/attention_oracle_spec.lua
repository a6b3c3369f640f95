-- attention_oracle_spec.lua: attention against jax.nn.dot_product_attention, over options, dtypes and shapes.
local ml = require "meshlua"
local oracle = require "spec.oracle"

local nn = ml.nn
local tolerances = {float64 = 2e-6, float32 = 1e-5, float16 = 4e-3, bfloat16 = 3e-2}

--- As the oracle's ramp: made in float64, then rounded once.
local function ramp(shape, by, dtype)
  local n, list = 1, {}
  for _, size in ipairs(shape) do n = n * size end
  for i = 0, n - 1 do list[i + 1] = (37 * i % 101 - 50) / 50 * by end
  return ml.tensor(list, "float64"):reshape(shape):astype(dtype)
end

local function whole(list, shape)
  local n = 1
  for _, size in ipairs(shape) do n = n * size end
  if n == 0 then return ml.zeros(shape, "int32") end
  return ml.tensor(list, "int32"):reshape(shape)
end

local function options_of(case)
  local B, T, S, H = table.unpack(case.shape)
  local o, given = case.options, {}
  for key, value in pairs(o) do given[key] = value end
  for _, name in ipairs {"lengths", "query_lengths"} do given[name] = o[name] and whole(o[name], {B}) end
  if type(o.offset) == "table" then given.offset = whole(o.offset, {B}) end
  if o.segments then
    given.segments = nil
    given.segment_ids = {whole(o.segments[1], {B, T}), whole(o.segments[2], {B, S})}
  end
  if case.shape[6] == 0 then given.scale = 1.0 end
  if o.mask then
    local shape = {o.mask[1], o.mask[2] == 0 and H or 1, T, S}
    local n, list = shape[1] * shape[2] * T * S, {}
    for i = 0, n - 1 do list[i + 1] = 5 * i // 3 % 4 end
    given.mask = whole(list, shape):ne(0)
  end
  return given, o.bias and {o.bias[1], o.bias[2] == 0 and H or 1, T, S}
end

local function dots(x)
  local sums = {0.0, 0.0, 0.0}
  if x.size == 0 then return sums end
  for i, value in ipairs(x:astype("float64"):reshape(-1):totable()) do
    local k = i - 1
    sums[1] = sums[1] + value
    sums[2] = sums[2] + value * ((37 * k % 101) - 50) / 50
    sums[3] = sums[3] + value * ((59 * k % 97) - 48) / 48
  end
  return sums
end

local function check(what, expected, got, tolerance)
  assert.equal(#expected, #got, what)
  for i, x in ipairs(expected) do
    if math.abs(x - got[i]) > tolerance * (1 + math.abs(x)) then
      error(("%s, number %d: expected %s, got %s"):format(what, i, x, got[i]))
    end
  end
end

local function run(case)
  local B, T, S, H, G, D = table.unpack(case.shape)
  local given, bias = options_of(case)
  local args = {ramp({B, T, H, D}, 1.0, case.dtype), ramp({B, S, G, D}, 1.3, case.keys),
    ramp({B, S, G, D}, 0.7, case.keys)}
  args[4] = bias and ramp(bias, 2.0, case.dtype == "float64" and "float64" or "float32")
  local weights = ramp({B, T, H, D}, 1.0, "float64")
  local function loss(q, k, v, b)
    given.bias = b
    local y = nn.attention(q, k, v, given)
    return (y:astype "float64" * weights):sum(), y
  end
  local which = table.move({1, 2, 3, 4}, 1, #args, 1, {})
  local grads, y = ml.grad(loss, {argnums = which, has_aux = true})(table.unpack(args))
  local tolerance = math.max(tolerances[case.dtype], tolerances[case.keys])
  check("the result", case.y, y.size == 0 and {} or y:astype("float64"):reshape(-1):totable(), tolerance)
  for i, grad in ipairs(grads) do
    assert.equal(args[i].dtype, grad.dtype)
    check("gradient " .. i, case.grads[i], dots(grad), tolerance * math.sqrt(1 + grad.size))
  end
end

describe("nn.attention", function()
  it("gives JAX's numbers and gradients", function()
    local list = oracle.read "attention"
    assert.truthy(#list >= 200)
    for i, case in ipairs(list) do
      local ok, message = pcall(run, case)
      if not ok then error(("case %d (%s, %s): %s"):format(i, case.dtype, case.keys, message)) end
    end
  end)
end)
