-- rows.lua: the case rows of all ops, from cases/*.lua. From one row the op specs derive everything: the
-- value against plain Lua, gradients against differences, sharded against whole, all dtypes, edge sizes.
-- A row:
--   op        the op's name in core.ops()
--   name      the case; default the op's name
--   inputs    a list of {dims..., fields}: low, high the domain of floats (default -2, 2), distinct = true
--             where ties or kinks would spoil a difference, int_low, int_high the domain of integers, dtype
--             where it does not follow what is under test, keep = "accumulator" for float32 at 16 bits
--   call      function(tensors...) -> tensors: what is under test
--   ref       function(flat lists...) -> flat lists: the same in plain Lua; see data.lua, naive.lua
-- and where needed
--   elementwise  float results of every shape: sizes 0 and 1 are tried, sharded results are equal bit for bit
--   exact     sharded results are equal bit for bit
--   tolerance in roundings of the dtype, of values; default 4
--   ints, bool, floats   whether it takes them; default false, false, true
--   dtypes    the dtypes under test, if it is neither all floats nor all integers
--   float     integers become float32
--   result    "bool", a dtype, "accumulator": of every result; results: the same, one each ("same")
--   no_gradient_check    differences say nothing there (casts to 16 bits, ties)
local ml = require "meshlua"
local data = require "spec.op.data"

local M = {}

--- What the passes make and no script can call.
M.made_by_passes = {param = true, fused = true}

for _, row in ipairs(ml.core.ops()) do
  if row.runs == "collective" or row.name == "all_slice" then M.made_by_passes[row.name] = true end
end

M.ops = {}
for _, row in ipairs(ml.core.ops()) do M.ops[row.name] = row end

local function read(file)
  local rows = require("spec.op.cases." .. file)
  for _, row in ipairs(rows) do
    row.name = row.name or row.op
    M[#M + 1] = row
  end
end
for _, file in ipairs {"unary", "binary", "movement", "reduce", "fused", "source"} do read(file) end
table.sort(M, function(a, b) return a.name < b.name end)

--- A generator whose stream belongs to the row.
function M.generator(row, salt)
  local seed = salt or 0
  for i = 1, #row.name do seed = (seed * 31 + row.name:byte(i)) & 0x7fffffff end
  return data.generator(seed)
end

--- The dtypes under test.
function M.dtypes(row)
  if row.dtypes then return row.dtypes end
  local list = {}
  if row.floats ~= false then table.move(data.floats, 1, #data.floats, 1, list) end
  if row.ints then table.move(data.ints, 1, #data.ints, #list + 1, list) end
  if row.float and not row.ints then list[#list + 1] = "int32" end
  if row.bool then list[#list + 1] = "bool" end
  return list
end

local function accumulator(dtype)
  return (dtype == "bfloat16" or dtype == "float16") and "float32" or dtype
end

--- The dtype of result i for inputs of a dtype.
function M.result_dtype(row, i, dtype)
  local want = row.results and row.results[i] or row.result or "same"
  if want == "accumulator" then return accumulator(dtype) end
  if want ~= "same" then return want end
  if row.float and not data.is_float(dtype) then return "float32" end
  return dtype
end

--- Random contents for every input, as tensors of the dtype; the numbers in them are those that the dtype
--- holds.
function M.inputs(row, dtype, g, shapes)
  local tensors = {}
  for k, input in ipairs(row.inputs) do
    local own = input.keep == "accumulator" and accumulator(dtype) or dtype
    tensors[k] = data.tensor(data.random(g, input, own, shapes and shapes[k]))
  end
  return tensors
end

--- The inputs that a gradient is taken of: the floats.
function M.differentiable(row)
  local list = {}
  local def = M.ops[row.op]
  if row.no_gradient_check or def.grad == "none" or row.floats == false then return list end
  if row.result and row.result ~= "accumulator" and not row.result:match "float" then return list end
  if row.dtypes and not table.concat(row.dtypes):match "float" then return list end
  for k, input in ipairs(row.inputs) do
    if not input.dtype then list[#list + 1] = k end
  end
  return list
end

return M
