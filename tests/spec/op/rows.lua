-- rows.lua: the case rows of all ops, from cases/*.lua: one file per family of host/op, and composed.lua for
-- the functions of ops.lua that are compositions (their `op` is the one that matters most). From one row
-- the op specs derive everything: the value against plain Lua, gradients against differences, sharded against whole,
-- all dtypes, edge sizes. A row:
--   op        the op's name in core.ops()
--   name      the case; default the op's name
--   inputs    a list of {dims..., fields}: low, high the domain of floats (default -2, 2), distinct = true
--             where ties or kinks would spoil a difference, int_low, int_high the domain of integers, dtype
--             where it does not follow what is under test, keep = "accumulator" for float32 at 16 bits
--   call      function(tensors...) -> tensors: what is under test
--   ref       function(flat lists...) -> flat lists: the same in plain Lua; see data.lua, naive.lua
--   rule      what the op promises of sharding, as einsum letters of operands and results: "ab,b->a". A
--             tensor split along a letter needs nothing sent if every result has the letter, and one sum over
--             the devices if none has it; nothing is promised of capitals, and "." has size 1 or is new.
--             Elementwise rows need none: dims of one place that have one size have one letter
-- and where needed
--   elementwise  of every shape: sizes 0 and 1 are tried
--   exact     the definition is met bit for bit
--   tolerance in roundings of the dtype, against the largest value of the result; default 4
--   ints, bool, floats   whether it takes them; default false, false, true
--   dtypes    the dtypes under test, if it is neither all floats nor all integers
--   float     integers become float32
--   result    "bool", a dtype, "accumulator": of every result; results: the same, one each ("same")
--   no_gradient_check    differences say nothing there (casts to 16 bits, ties)
--   bad       what the op refuses: a list of {code, a part of the message, function}. An op has one in one of its rows,
--             or in error_spec.lua, where those are that several ops share
--   step      {takes, make}: a step of random programs, as tests/fuzz/steps.lua has them
--   sums      over the devices, where a letter is in no result; default one per result
--   mesh      the only mesh on which it runs
--   of_ops    it is made of ops in Lua, and they have rows themselves
--   no_gpu    no GPU runs it
local ml = require "meshlua"
local data = require "spec.op.data"

local watched = rawget(_G, "SANITIZE") ~= nil

local M = {}

--- The rows that values, gradients, layouts and batches are tried of: where a sanitizer watches, without those
--- that are made of ops.
M.tried = {}

--- What the passes make and no script can call. What owns regions is in tests/spec/control.
M.made_by_passes = {}
M.ops = {}
for _, row in ipairs(ml.core.ops()) do
  M.ops[row.name] = row
  M.made_by_passes[row.name] = row.of_passes or row.runs == "collective" or row.runs == "control" or nil
end

--- What stands in shard_map only: tests/spec/manual.
for _, name in ipairs {"manual_enter", "manual_exit", "pcast", "axis_index"} do
  M.made_by_passes[name] = true
end

do
  local list <close> = assert(io.popen "ls tests/spec/op/cases")
  for file in list:lines() do
    for _, row in ipairs(require("spec.op.cases." .. file:match "^(.*)%.lua$")) do
      row.name = row.name or row.op
      M[#M + 1] = row
      local left_out = watched and row.of_ops or row.no_gpu and ml.core.gpu_count() > 0
      if not left_out then M.tried[#M.tried + 1] = row end
    end
  end
end

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

--- The dtype of result i for inputs of a dtype.
function M.result_dtype(row, i, dtype)
  local want = row.results and row.results[i] or row.result or "same"
  if want == "accumulator" then return data.accumulator(dtype) end
  if want ~= "same" then return want end
  if row.float and not data.is_float(dtype) then return "float32" end
  return dtype
end

--- How far a result may be from what is exact, against its largest value: one rounding to 16 bits, or the
--- row's own number of roundings.
function M.tolerance(row, result, dtype)
  if row.exact or not data.is_float(result) then return 0 end
  local worked = data.epsilon[data.accumulator(data.is_float(dtype) and dtype or result)]
  worked = math.max(worked, data.epsilon[data.accumulator(result)]) * (row.tolerance or 4)
  return data.accumulator(result) == result and worked or worked + data.epsilon[result] / 2
end

--- Random contents for every input, as tensors of the dtype; the numbers in them are those that the dtype
--- holds.
function M.inputs(row, dtype, g, shapes)
  local tensors = {}
  for k, input in ipairs(row.inputs) do
    local own = input.keep == "accumulator" and data.accumulator(dtype) or dtype
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

-- Letters of a row whose dims align at the end and broadcast.
local function elementwise_rule(row)
  local rank, size, words = 0, {}, {}
  for _, input in ipairs(row.inputs) do rank = math.max(rank, #input) end
  for _, input in ipairs(row.inputs) do
    for d, n in ipairs(input) do
      local at = rank - #input + d
      size[at] = math.max(size[at] or 1, n)
    end
  end
  for k, input in ipairs(row.inputs) do
    local word = ""
    for d, n in ipairs(input) do
      local at = rank - #input + d
      word = word .. (n == size[at] and string.char(96 + at) or ".")
    end
    words[k] = word
  end
  local result = ""
  for at = 1, rank do result = result .. string.char(96 + at) end
  return table.concat(words, ",") .. "->" .. result
end

local function split(text)
  local words = {}
  for word in (text .. ","):gmatch "([^,]*)," do words[#words + 1] = word end
  return words
end

--- The row's rule: letters of each operand and of each result.
---@return string[] operands, string[] results
function M.rule(row)
  local left, right = (row.rule or elementwise_rule(row)):match "^(.*)%->(.*)$"
  return split(left), split(right)
end

return M
