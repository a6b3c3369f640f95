-- verify.lua: is a step the same on its mesh as on one device? Where it is not, which op is the first that
-- differs.
local account = require "meshlua.insight.account"
local alone = require "meshlua.insight.alone"
local core = require "meshlua.core"
local lib = require "meshlua.lib"
local ops = require "meshlua.ops"
local random = require "meshlua.random"
local trace = require "meshlua.transform.trace"

local raise = lib.raise

local M = {}

-- How far two roundings of one value may be apart, by dtype, as a part of the largest element. Where sums
-- cancel that is not enough: so the arguments are also shaken by a rounding error (`shake`, relative), and by
-- some times of what that changes a value, it may differ.
local tolerance = {float64 = 1e-10, float32 = 1e-3, bfloat16 = 1e-1, float16 = 2e-2, float8_e4m3fn = 1,
  float8_e5m2 = 2}
local shake = {float64 = 1e-15, float32 = 5e-7, bfloat16 = 8e-3, float16 = 1e-3, float8_e4m3fn = 0.125,
  float8_e5m2 = 0.25}
local SHAKES = 30
local CHUNK = 256 -- values looked at in one run

-- ---- two tensors --------------------------------------------------------------------------------------

--- The largest magnitude among the finite elements of x; 0 where there are none.
local function magnitude(x)
  return x.size == 0 and 0 or ops.max(ops.where(ops.isfinite(x), ops.abs(x), 0.0)):item()
end

--- The largest difference of two tensors; NaN equals NaN, and nothing else.
local function distance(x, y)
  if y.size == 0 then return 0 end
  local same = ops.bitor(ops.eq(x, y), ops.bitand(ops.ne(x, x), ops.ne(y, y)))
  local apart = ops.max(ops.where(same, 0.0, ops.abs(x - y))):item()
  return apart == apart and apart or math.huge
end

local function whole(x) return ops.astype(alone.brought(x), "float64") end

--- The one factor by which x is y, or nil if it is not one.
local function factor_of(x, y)
  local largest = ops.max(ops.abs(y)):item()
  if not (largest > 0) or largest == math.huge then return nil end
  local heavy = ops.gt(ops.abs(y), largest * 0.05)
  local ratio = ops.where(heavy, x / ops.where(heavy, y, 1.0), 0.0)
  local low = ops.min(ops.where(heavy, ratio, math.huge)):item()
  local high = ops.max(ops.where(heavy, ratio, -math.huge)):item()
  local mean = (low + high) / 2
  if high - low <= 1e-2 * math.abs(mean) then return mean end
end

--- The mesh axes whose sizes multiply to n, as "data" or "data and model"; nil if there are none.
local function axes_of_size(mesh, n)
  local names = mesh.axis_names
  for mask = 1, (1 << #names) - 1 do
    local product, chosen = 1, {}
    for i, name in ipairs(names) do
      if mask >> (i - 1) & 1 == 1 and mesh.shape[name] > 1 then
        product, chosen[#chosen + 1] = product * mesh.shape[name], name
      end
    end
    if product == n and #chosen > 0 then return chosen end
  end
end

-- ---- the report ---------------------------------------------------------------------------------------

local Report = {__name = "Report"}
Report.__index = Report

Report.__tostring = core.plain(function(self)
  if self.ok and self.exact then
    return ("the same bits on %s as on one device: %d result%s"):format(self.mesh, self.results,
      self.results == 1 and "" or "s")
  elseif self.ok then
    return ("the same on %s as on one device: %d result%s, %.2g of the largest element apart"):format(
      self.mesh, self.results, self.results == 1 and "" or "s", self.difference)
  end
  local lines = {("differs on %s from one device: result %d, by %.2g of its largest element"):format(
    self.mesh, self.result, self.difference)}
  if self.exact then
    lines[#lines + 1] = "its sums over the batch are made by leaves, which give the same bits on every mesh: "
      .. "something behind or beside them is summed as the mesh cuts it"
  elseif self.op then
    lines[#lines + 1] = ("the first op that differs is %s at %s: %s, by %.2g"):format(self.op, self.where,
      self.type, self.op_difference)
  else
    lines[#lines + 1] = "looked at one by one the values inside do not differ: it is how the result is put "
      .. "together that does"
  end
  for _, e in ipairs(self.repeated) do
    lines[#lines + 1] = ("wrong: the sum over %s at %s is of what is already the same on its devices: %d "
      .. "times too large"):format(table.concat(e.axes, ","), e.line, e.times)
  end
  if self.kind == "blocks" then
    lines[#lines + 1] = ("it has a shard_map (%s), and no sum over a mesh axis is what they differ by: "
      .. "its function gives something else for each block (its own mean, its own place), which may be "
      .. "meant; on one device the block is all there is"):format(self.shard_map)
  elseif self.kind == "factor" and self.shard_map then
    lines[#lines + 1] = ("wrong: in the shard_map (%s) %s"):format(self.shard_map, #self.sums > 0
      and "it is one of the sums at " .. table.concat(self.sums, ", ")
        or "a sum or mean over devices is missing")
  end
  if self.factor and self.kind ~= "blocks" then
    local text = ("it is %.4g times what it should be"):format(self.factor)
    if self.axes then
      local many, sum = #self.axes > 1, self.factor > 1
      text = text .. (", the size of mesh %s %s: as if a %s over %s stood where a %s was meant"):format(
        many and "axes" or "axis", table.concat(self.axes, " and "), sum and "sum" or "mean",
        many and "them" or "it", sum and "mean" or "sum")
    end
    lines[#lines + 1] = text
  end
  return table.concat(lines, "\n")
end)

-- ---- verify -------------------------------------------------------------------------------------------

--- The inputs, those that are floats moved by about a rounding error.
local function shaken(inputs)
  local list = {}
  for i, x in ipairs(inputs) do
    local own = core.is_box(x) and x:get() or x
    list[i] = own
    local by = shake[own.dtype]
    if by and own.size > 0 then
      local noise = random.uniform(random.key(i), own.shape, "float32", -by, by)
      list[i] = core.put_across(ops.astype(core.put_across(own) * (1 + noise), own.dtype), own.sharding.mesh
        and own.sharding or nil)
    end
  end
  return list
end

--- The first of the values (numbers of the program's) that differs beyond rounding: its position, by how
--- much, and the two; and the largest difference of all up to there. Differences are parts of the largest
--- element.
local function first_difference(there, here, values, dtypes)
  local worst = 0
  local a, b = there.program:run(values, there.inputs), here.program:run(values, here.inputs)
  local c = here.program:run(values, here.shaken)
  for i in ipairs(values) do
    local x, y = whole(a[i]), whole(b[i])
    local apart, size = distance(x, y), magnitude(y)
    local rounding = (tolerance[dtypes[i]] or 0) * size
    local limit = rounding + SHAKES * distance(whole(c[i]), y)
    local d = apart == 0 and 0 or apart / math.max(size, 1e-300)
    if not (apart <= limit) then return i, d, x, y end
    if apart <= rounding then worst = math.max(worst, d) end -- what cancels has no size to compare with
  end
  return nil, worst
end

--- The first of the results that has not the same bits, and by how much it differs; nil: all have.
local function first_unequal(there, here)
  local a = there.program:run(there.program:results(), there.inputs)
  local b = here.program:run(here.program:results(), here.inputs)
  for i in ipairs(a) do
    local x, y = whole(a[i]), whole(b[i])
    local apart = distance(x, y)
    if apart ~= 0 or distance(1 / x, 1 / y) ~= 0 then return i, apart / math.max(magnitude(y), 1e-300) end
  end
end

local function dtypes_of(nodes)
  local by_value = {}
  for _, node in ipairs(nodes) do
    for i, v in ipairs(node.outputs) do by_value[v] = node.dtypes[i] end
  end
  return by_value
end

local function select_dtypes(by_value, values)
  local list = {}
  for i, v in ipairs(values) do list[i] = by_value[v] end
  return list
end

--- The first op whose value differs: looked for in program order, many values in one run.
local function find_op(report, there, here, nodes, by_value)
  local values, node_of, types = {}, {}, {}
  for _, node in ipairs(nodes) do
    if not node.inner and node.op ~= "param" then
      for i, v in ipairs(node.outputs) do
        values[#values + 1] = v
        node_of[#values], types[#values] = node, node.types[i]
      end
    end
  end
  for first = 1, #values, CHUNK do
    local part = table.move(values, first, math.min(first + CHUNK - 1, #values), 1, {})
    local i, d, x, y = first_difference(there, here, part, select_dtypes(by_value, part))
    if i then
      local node = node_of[first + i - 1]
      report.op, report.where, report.scope = node.op, node.where, node.scope
      report.type, report.op_difference = types[first + i - 1], d
      return x, y
    end
  end
end

--- Lines at which the function sums over these axes itself.
local function sums_over(items, axes)
  local lines, seen = {}, {}
  for _, item in ipairs(items) do
    if item.step.reduces and table.concat(item.axes, ",") == table.concat(axes, ",")
      and not seen[item.line] then
      seen[item.line], lines[#lines + 1] = true, item.line
    end
  end
  return lines
end

--- What is wrong, where that can be told: a sum made twice, a wrong factor, or a function of blocks that may
--- mean it.
local function judge(report, program, mesh)
  local plan = program:plan()
  local all = account.of(plan)
  report.repeated, report.sums = {}, {}
  for i, e in ipairs(account.equal_sums(all, plan:buffers(), mesh)) do
    report.repeated[i] = {line = e.item.line, axes = e.axes, times = e.times}
  end
  if #report.repeated > 0 then
    report.kind = "repeated"
  elseif report.axes then
    report.kind, report.sums = "factor", sums_over(all.items, report.axes)
  elseif report.shard_map then
    report.kind = "blocks"
  end
end

--- Raises unless the two traces are one program.
local function check_same(a, b)
  local line = alone.other_place(a, b) and alone.shard_map_of(a)
  if line then
    raise("E_STATE", "verify: the step has a shard_map (%s) that gives other shapes for other blocks, so "
      .. "there is no one device to compare it with; verify what stands around it", line)
  elseif alone.other_place(a, b) then
    raise("E_STATE", "verify: on one device the step is another program: it looks at the mesh's sizes; "
      .. "compare its results with those of a step for one device")
  end
end

--- Runs a step on its mesh and on one device, with the same arguments, and compares the results: beyond
--- rounding they must be equal. Nothing is written: Params keep what they hold. Where they differ, the report
--- names the first op whose value does (in the order of the program) and its line, and the factor where the
--- one is a multiple of the other: the size of a mesh axis means that a sum over it stands where a mean was
--- meant. A function in shard_map sees one block on one device: all. `kind` says what is wrong: "repeated" (a
--- sum of what was summed before), "factor", or "blocks" (a function in shard_map gives something else for
--- each block, and may mean to). Of a step that accumulates with bits = "mesh" the results must have the same bits
--- (`exact`).
---@param step any what ml.jit returned
---@param ... any its arguments
---@return table report {ok, difference, op?, where?, scope?, type?, factor?, axes?, kind?, repeated?, sums?};
---as a text by tostring
function M.verify(step, ...)
  alone.check_step("verify", step)
  local args = table.pack(...)
  local before = trace.leaves_traced()
  local there <close> = step:program(...)
  local exact = trace.leaves_traced() > before
  local mesh = alone.mesh_of(there:params())
  if not mesh then raise("E_MESH", "verify: no argument lies on a mesh: there is nothing to compare") end
  local function retrace() return step:program(table.unpack(args, 1, args.n)) end
  local one = alone.one_device("verify", mesh)
  local traced, other_program = lib.unless_stopped(pcall(core.instead_of, mesh, one, retrace))
  if not traced then
    raise("E_STATE", "verify: on one device the step cannot be traced, so there is nothing to compare it "
      .. "with: %s",
      lib.text(other_program))
  end
  local here <close> = other_program
  local a = {program = there, inputs = alone.inputs_of(there)}
  local b = {program = here, inputs = alone.inputs_of(here)}
  b.shaken = shaken(b.inputs)
  local values, nodes, other = there:results(), there:nodes(), here:nodes()
  if exact then
    local i, d = first_unequal(a, b)
    return setmetatable({ok = not i, exact = true, mesh = tostring(mesh):match "^[^ ]+ ?[^{]-%)",
      results = #values, result = i, difference = d or 0, repeated = {}, sums = {}}, Report)
  end
  check_same(nodes, other)
  local by_value = dtypes_of(nodes)
  local i, d, x, y = first_difference(a, b, values, select_dtypes(by_value, values))
  local report = setmetatable({ok = not i, mesh = tostring(mesh):match "^[^ ]+ ?[^{]-%)", results = #values,
    result = i, difference = d}, Report)
  if not i then return report end
  report.shard_map = alone.shard_map_of(nodes)
  local at_x, at_y = find_op(report, a, b, nodes, by_value)
  report.factor = factor_of(at_x or x, at_y or y)
  local factor = report.factor
  if factor and factor ~= 0 then
    local n = factor > 1 and factor or 1 / factor
    if math.abs(n - math.floor(n + 0.5)) < 1e-2 * n then
      report.axes = axes_of_size(mesh, math.floor(n + 0.5))
    end
  end
  judge(report, there, mesh)
  return report
end

return lib.export(M, "", true)
