-- devices: 8
-- ops_spec.lua: every op survives that an allocation fails: eager, in a trace, and under a gradient.
local faults = require "fault.faults"
local ml = require "meshlua"
local rows = require "spec.op.rows"

local function scenario_of(row)
  local dtype = rows.dtypes(row)[1]
  local tensors = rows.inputs(row, dtype, rows.generator(row))
  local which = rows.differentiable(row)
  local function loss(...) return (row.call(...)):astype("float32"):sum() end
  return {name = row.op, run = function()
    row.call(table.unpack(tensors))
    if #which == 0 then return ml.jit(row.call)(table.unpack(tensors)) end
    return ml.jit(ml.value_and_grad(loss, {argnums = which}))(table.unpack(tensors))
  end}
end

describe("with an allocation failing,", function()
  local seen = {}
  for _, row in ipairs(rows) do
    if not seen[row.op] and not row.of_ops then
      seen[row.op] = true
      it(row.op .. " ends in a clean error, and nothing is lost",
        function() faults.survive(scenario_of(row)) end)
    end
  end
end)
