-- devices: 8
-- value_spec.lua: every op against its definition in plain Lua, in every dtype, at edge sizes, eager, in a
-- trace, and expanded into simpler ops.
local ml = require "meshlua"
local data = require "spec.op.data"
local rows = require "spec.op.rows"

--- One rounding of the dtype that the result has or was worked out in.
local function rounding(result, dtype)
  return math.max(data.epsilon[result] or 0, data.is_float(result) and data.epsilon[dtype] or 0)
end

local function check(row, dtype, tensors, results, expected)
  assert(#results == #expected, ("%d results, %d expected"):format(#results, #expected))
  for i, y in ipairs(results) do
    local want = rows.result_dtype(row, i, dtype)
    if y.dtype ~= want then error(("result %d is %s, expected %s"):format(i, y.dtype, want)) end
    -- What is worked out in float32 is rounded once more to 16 bits.
    local narrow = dtype == "bfloat16" or dtype == "float16" or want == "bfloat16" or want == "float16"
    local tolerance = rounding(want, want == "accumulator" and dtype or want)
      * (narrow and want ~= "float32" and 1 or row.tolerance or 4)
    if row.exact and not row.tolerance and row.op ~= "astype" then tolerance = 0 end
    local found = data.difference(expected[i], data.flat(y), tolerance)
    if found then
      local texts = {}
      for k, x in ipairs(tensors) do texts[k] = tostring(x) end
      error(("%s, result %d: %s\ninputs: %s"):format(dtype, i, found, table.concat(texts, "\n")))
    end
  end
end

local function flats(tensors)
  local out = {}
  for k, x in ipairs(tensors) do out[k] = data.flat(x) end
  return out
end

describe("value", function()
  for _, row in ipairs(rows) do
    it("of " .. row.name .. " in " .. table.concat(rows.dtypes(row), ", "), function()
      for _, dtype in ipairs(rows.dtypes(row)) do
        local tensors = rows.inputs(row, dtype, rows.generator(row))
        check(row, dtype, tensors, {row.call(table.unpack(tensors))},
          {row.ref(table.unpack(flats(tensors)))})
      end
    end)
  end
end)

describe("value at sizes 0 and 1", function()
  local edges = {{}, {0}, {1}, {0, 4}, {4, 0}, {1, 1}, {3}, {17}, {1, 0, 1}, {2, 3, 5}}
  for _, row in ipairs(rows) do
    if row.elementwise and row.name == row.op then
      it("of " .. row.op, function()
        for _, shape in ipairs(edges) do
          local shapes = {}
          for k in ipairs(row.inputs) do shapes[k] = shape end
          local dtype = row.floats == false and "int32" or "float32"
          local tensors = rows.inputs(row, dtype, rows.generator(row, #shape), shapes)
          check(row, dtype, tensors, {row.call(table.unpack(tensors))},
            {row.ref(table.unpack(flats(tensors)))})
        end
      end)
    end
  end
end)

describe("a jitted call gives what the eager one gives, bit for bit:", function()
  for _, row in ipairs(rows) do
    it(row.name, function()
      local dtype = rows.dtypes(row)[1]
      local tensors = rows.inputs(row, dtype, rows.generator(row))
      local eager, traced = {row.call(table.unpack(tensors))}, {ml.jit(row.call)(table.unpack(tensors))}
      assert.equal(#eager, #traced)
      for i in ipairs(eager) do
        assert.equal(eager[i].dtype, traced[i].dtype)
        assert.equal(nil, data.difference(data.flat(eager[i]), data.flat(traced[i]), 0))
      end
    end)
  end
end)

-- The native op and its definition by simpler ops may round differently, by as much as the row allows.
describe("the expansion agrees with the native op:", function()
  for _, row in ipairs(rows) do
    if rows.ops[row.op].expands then
      it(row.name, function()
        for _, dtype in ipairs(rows.dtypes(row)) do
          local tensors = rows.inputs(row, dtype, rows.generator(row))
          local native = {row.call(table.unpack(tensors))}
          local before = ml.core.expand(true)
          local ok, expanded = pcall(function() return {row.call(table.unpack(tensors))} end)
          ml.core.expand(before)
          assert(ok, expanded)
          for i, y in ipairs(native) do
            local limit = data.epsilon[y.dtype] * (row.tolerance or 4)
            if dtype == "bfloat16" or dtype == "float16" then limit = 2 * data.epsilon[dtype] end
            local found = data.difference(data.flat(y), data.flat(expanded[i]), limit)
            if found then error(dtype .. ": " .. found) end
          end
        end
      end)
    end
  end
end)
