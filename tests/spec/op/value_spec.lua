-- devices: 8
-- value_spec.lua: every op against its definition in plain Lua, in every dtype, at edge sizes, eager and in a
-- trace.
local ml = require "meshlua"
local data = require "spec.op.data"
local rows = require "spec.op.rows"

local function check(row, dtype, tensors)
  local results, expected = {row.call(table.unpack(tensors))}, {row.ref(table.unpack(data.flats(tensors)))}
  assert(#results == #expected, ("%d results, %d expected"):format(#results, #expected))
  for i, y in ipairs(results) do
    local want = rows.result_dtype(row, i, dtype)
    if y.dtype ~= want then error(("result %d is %s, expected %s"):format(i, y.dtype, want)) end
    local found = data.difference(expected[i], data.flat(y), rows.tolerance(row, want, dtype))
    if found then
      local texts = {}
      for k, x in ipairs(tensors) do texts[k] = tostring(x) end
      error(("%s, result %d: %s\ninputs: %s"):format(dtype, i, found, table.concat(texts, "\n")))
    end
  end
end

describe("value", function()
  for _, row in ipairs(rows.tried) do
    it("of " .. row.name .. " in " .. table.concat(rows.dtypes(row), ", "), function()
      for _, dtype in ipairs(rows.dtypes(row)) do
        check(row, dtype, rows.inputs(row, dtype, rows.generator(row)))
      end
    end)
  end
end)

describe("value at edge sizes", function()
  local edges = {{}, {0}, {1}, {0, 4}, {4, 0}, {1, 1}, {3}, {17}, {1, 0, 1}, {2, 3, 5}, {1, 2, 1, 2, 1}}
  for _, row in ipairs(rows.tried) do
    if row.elementwise and row.name == row.op then
      it("of " .. row.op, function()
        for _, shape in ipairs(edges) do
          local shapes = {}
          for k in ipairs(row.inputs) do shapes[k] = shape end
          local dtype = row.floats == false and "int32" or "float32"
          check(row, dtype, rows.inputs(row, dtype, rows.generator(row, #shape), shapes))
        end
      end)
    end
  end
end)

describe("a jitted call gives what the eager one gives, bit for bit:", function()
  for _, row in ipairs(rows.tried) do
    it(row.name, function()
      local dtype = rows.dtypes(row)[1]
      local tensors = rows.inputs(row, dtype, rows.generator(row))
      local eager, traced = {row.call(table.unpack(tensors))}, {ml.jit(row.call)(table.unpack(tensors))}
      assert.equal(#eager, #traced)
      for i in ipairs(eager) do
        assert.equal(eager[i].dtype, traced[i].dtype)
        assert.equal(eager[i]:bytes(), traced[i]:bytes())
      end
    end)
  end
end)
