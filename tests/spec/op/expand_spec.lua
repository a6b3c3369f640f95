-- devices: 8
-- expand_spec.lua: native ops against their definitions by simpler ops, values and gradients.
local ml = require "meshlua"
local data = require "spec.op.data"
local rows = require "spec.op.rows"

--- What fn gives while every op that has a definition runs by it.
local function expanded(fn)
  local before = ml.core.expand(true)
  local ok, result = pcall(fn)
  ml.core.expand(before)
  assert(ok, result)
  return result
end

--- Both round on their own: `times` what the row allows.
---@param together boolean? the largest of all results is what differences are against, not of each
local function compare(row, dtype, native, other, times, together)
  assert.equal(#native, #other)
  local scale
  for _, y in ipairs(together and native or {}) do scale = math.max(scale or 0, data.scale(data.flat(y))) end
  for i, y in ipairs(native) do
    assert.equal(y.dtype, other[i].dtype)
    local limit = times * rows.tolerance(row, y.dtype, dtype)
    local found = data.difference(data.flat(y), data.flat(other[i]), limit, scale)
    if found then error(("%s, result %d: %s"):format(dtype, i, found)) end
  end
end

--- Gradients of the results' products with fixed numbers.
local function gradients(row, tensors, numbers)
  return ml.grad(function(...)
    local total
    for i, y in ipairs {row.call(...)} do
      local part = ml.sum(y:astype "float32" * numbers[i])
      total = total and total + part or part
    end
    return total
  end, {argnums = rows.differentiable(row)})(table.unpack(tensors))
end

local count = 0
for _, row in ipairs(rows) do
  if rows.ops[row.op].expands then
    count = count + 1
    describe("the definition agrees with " .. row.name, function()
      it("in value", function()
        for _, dtype in ipairs(rows.dtypes(row)) do
          local tensors = rows.inputs(row, dtype, rows.generator(row))
          local function call() return {row.call(table.unpack(tensors))} end
          compare(row, dtype, call(), expanded(call), 2)
        end
      end)

      it("in gradient", function()
        for _, dtype in ipairs {"float64", "float32", "bfloat16"} do
          local g = rows.generator(row)
          local tensors, numbers = rows.inputs(row, dtype, g), {}
          for i, y in ipairs {row.call(table.unpack(tensors))} do
            numbers[i] = data.tensor(data.random(g, {}, "float32", y.shape))
          end
          local function call() return gradients(row, tensors, numbers) end
          compare(row, dtype, call(), expanded(call), 4, true)
        end
      end)
    end)
  end
end

it("is checked for every op that has one", function()
  assert.truthy(count >= 15)
end)
