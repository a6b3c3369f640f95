-- devices: 8
-- row_spec.lua: every op has a case row, and every row is of an op.
local rows = require "spec.op.rows"

describe("case rows", function()
  it("there is one for every op that can be called", function()
    local has = {}
    for _, row in ipairs(rows) do has[row.op] = true end
    for name in pairs(rows.ops) do
      if not has[name] and not rows.made_by_passes[name] then
        error(("op '%s' has no case row: add one to a file of tests/spec/op/cases (its call, its inputs, its "
          .. "definition in plain Lua; tests/spec/op/rows.lua says what a row holds)"):format(name))
      end
    end
  end)

  it("none is of an op that does not exist, and no two have one name", function()
    local seen = {}
    for _, row in ipairs(rows) do
      assert.truthy(rows.ops[row.op], "no op " .. row.op)
      assert.falsy(seen[row.name], "two rows are called " .. row.name)
      seen[row.name] = true
    end
  end)
end)
