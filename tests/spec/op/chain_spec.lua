-- chain_spec.lua: chains of elementwise ops, fused into one program, give what the ops give one by one, bit for
-- bit: narrow dtypes are rounded and wrapped between the ops as if each result were stored.
local ml = require "meshlua"
local data = require "spec.op.data"
local op = ml.core.op

local floats = {"neg", "abs", "square", "tanh", "sigmoid", "sin", "cos", "erf", "floor", "round", "sign"}
local float_pairs = {"add", "sub", "mul", "maximum", "minimum", "div"}
local ints = {"neg", "abs", "square", "bitnot", "sign"}
local int_pairs = {"add", "sub", "mul", "maximum", "minimum", "rem", "bitand", "bitor", "bitxor", "shl",
  "shr"}
local all = {"float64", "float32", "bfloat16", "float16", "int32", "uint32", "uint8", "int64"}
local compare = {"lt", "ge", "eq"}

--- A list of steps; each makes one more value from those before it: {name, i, j, k}.
local function chain_of(g, dtype)
  local is_float, steps = data.is_float(dtype), {}
  for s = 1, g.int(3, 12) do
    local function any() return g.int(1, s + 1) end
    local kind = g.int(1, 10)
    if kind <= 3 then steps[s] = {g.pick(is_float and floats or ints), any()}
    elseif kind <= 7 then steps[s] = {g.pick(is_float and float_pairs or int_pairs), any(), any()}
    elseif kind == 8 then steps[s] = {"select", any(), any(), g.pick(compare)}
    elseif kind == 9 then steps[s] = {"through", any(), g.pick(all)}
    else steps[s] = {"number", any(), g.int(0, 3)} end
  end
  return steps
end

local function apply(step, values, dtype)
  local name, x, y = step[1], values[step[2]], values[step[3]]
  if name == "select" then return ml.where(op[step[4]](x, y), x, y) end
  if name == "through" then return x:astype(step[3]):astype(dtype) end
  if name == "number" then return x + step[3] end
  return op[name](x, y)
end

local function run(steps, dtype, x, y)
  local values = {x, y}
  for _, step in ipairs(steps) do values[#values + 1] = apply(step, values, dtype) end
  return table.unpack(values, 3)
end

local function describe_chain(steps)
  local lines = {}
  for s, step in ipairs(steps) do lines[s] = ("v%d = %s"):format(s + 2, table.concat(step, " ")) end
  return table.concat(lines, "\n")
end

--- The steps one by one and fused give the same. make(k): input k, made anew where it is used.
local function check(seed, steps, dtype, make)
  local one_by_one = {run(steps, dtype, make(1), make(2))}
  local fused = {ml.jit(function() return run(steps, dtype, make(1), make(2)) end)()}
  for i in ipairs(steps) do
    local found = data.difference(data.flat(one_by_one[i]), data.flat(fused[i]), 0)
    if found then
      error(("seed %d, v%d: %s (one by one, fused)\n%s"):format(seed, i + 2, found, describe_chain(steps)))
    end
  end
end

local function range_of(dtype)
  if data.is_float(dtype) then return {low = -4, high = 4} end
  return {low = dtype:match "^u" and 0 or -100, high = 250}
end

for _, dtype in ipairs(all) do
  it("chains in " .. dtype, function()
    for seed = 1, 40 do
      local g = data.generator(seed)
      local steps, inputs = chain_of(g, dtype), {}
      for k = 1, 2 do inputs[k] = data.tensor(data.random(g, range_of(dtype), dtype, {3, 37})) end
      check(seed, steps, dtype, function(k) return inputs[k] end)
    end
  end)

  it("chains of constants in " .. dtype .. ", which are folded", function()
    for seed = 1, 40 do
      local g = data.generator(seed)
      local steps, numbers = chain_of(g, dtype), data.random(g, range_of(dtype), dtype, {2})
      check(seed, steps, dtype, function(k) return ml.full({2}, numbers[k], dtype) end)
    end
  end)
end
