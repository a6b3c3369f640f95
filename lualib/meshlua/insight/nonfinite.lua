-- nonfinite.lua: of a step whose results have a NaN or an infinity: which op gave it first. All values of the step are
-- looked at, on its mesh; what an op does inside (a loop's body, a branch) is looked at in turn. From the results that
-- are not finite the search goes back through operands that are not, to an op whose operands are: so an infinity that a
-- mask has, or that was replaced, is none. And the same op is looked at on one device.
local alone = require "meshlua.insight.alone"
local core = require "meshlua.core"
local lib = require "meshlua.lib"
local ops = require "meshlua.ops"

local M = {}

local CHUNK = 256 -- values looked at in one run

-- ---- which values are not finite -------------------------------------------------------------------

local WORDS = {[0] = "infinity", [1] = "NaN"}

--- Of values that are floats: a list by block (devices of a shard_map) of lists by step (of a stack) of -1, 0, 1: see
--- WORDS.
local function flags_of(x, values, stacked)
  local found = {}
  for first = 1, #values, CHUNK do
    local part = {}
    for i = first, math.min(first + CHUNK - 1, #values) do
      part[#part + 1] = x.program:flag(values[i], stacked)
    end
    for i, flag in ipairs(x.program:run(part, x.inputs)) do
      found[first + i - 1] = alone.brought(flag):totable()
    end
  end
  return found
end

local function is_float(dtype) return dtype:find "float" ~= nil end

--- The nodes from `first` on that stand in no region, and what of their results is not finite: value -> word. `def`:
--- value -> node.
local function look(x, first)
  local values, bad = {}, {}
  x.nodes = x.program:nodes()
  local last = #x.nodes -- behind it stands what the looking appends
  for id = first, last do
    local node = x.nodes[id]
    node.id = id
    for i, v in ipairs(node.outputs) do
      x.def[v] = node
      if node.of == 0 and is_float(node.dtypes[i]) then values[#values + 1] = v end
    end
  end
  for i, blocks in ipairs(flags_of(x, values)) do
    local most = -1
    for _, block in ipairs(blocks) do most = math.max(most, block[1]) end
    bad[values[i]] = WORDS[most]
  end
  for v, word in pairs(bad) do x.bad[v] = word end
  return last
end

--- Is an infinity there on purpose: a constant, or made of such alone? Masks have them.
local function is_meant(x, v, bad)
  if bad[v] ~= "infinity" then return false end
  local node, one = x.def[v], false
  if node.op == "param" then return node.of == 0 and not x.param[v].state end
  for _, operand in ipairs(node.inputs) do
    if bad[operand] and not is_meant(x, operand, bad) then return false end
    one = one or bad[operand] ~= nil
  end
  return one or #node.inputs == 0
end

--- The first node among those from which bad values lead to `roots` whose operands are as they should be, and which of
--- its results is bad.
local function origin(x, roots)
  local seen, found, which = {}, nil, nil
  local function visit(v)
    if seen[v] or not x.bad[v] or is_meant(x, v, x.bad) then return end
    seen[v] = true
    local node, led = x.def[v], false
    for _, operand in ipairs(node.inputs) do
      if x.bad[operand] and not is_meant(x, operand, x.bad) then
        led = true
        visit(operand)
      end
    end
    if not led and (not found or node.id < found.id) then found, which = node, v end
  end
  for _, v in ipairs(roots) do visit(v) end
  return found, which
end

-- ---- inside of nodes -------------------------------------------------------------------------------

--- The step of a loop, in the order in which it runs, in which a value inside is bad first; nil: it is not known.
local function first_step(x, node)
  local outputs, values = {}, {}
  for k, v in ipairs(node.outputs) do
    local inner = node.inside and node.inside[k]
    if inner and is_float(node.dtypes[k]) and x.def[inner] and k > #node.outputs - #node.inside then
      outputs[#outputs + 1], values[#values + 1] = v, inner
    end
  end
  local found = flags_of(x, outputs, true)
  local from, to, by = 1, node.trips, 1
  if node.reverse then from, to, by = node.trips, 1, -1 end
  for t = from, to, by do
    local bad = {}
    for i, blocks in ipairs(found) do
      for _, block in ipairs(blocks) do
        if #block == node.trips and block[t] >= 0 then
          bad[values[i]] = bad[values[i]] == "NaN" and "NaN" or WORDS[block[t]]
        end
      end
    end
    for v in pairs(bad) do
      if not is_meant(x, v, bad) then return t end
    end
  end
end

--- Goes into a loop or branch that gave what is not finite, of operands that are: the list of its nodes from a number
--- on is appended. nil: one cannot look there.
local function enter(x, node)
  local k
  if node.trips and node.trips > 0 then
    k = first_step(x, node)
  elseif node.bodies and not node.trips then
    local index = alone.brought(x.program:run({node.inputs[1]}, x.inputs)[1]):item()
    k = math.max(0, math.min(index, #node.bodies - 1)) + 1
  end
  if not k then return nil end
  local ok, first = lib.unless_stopped(pcall(x.program.body, x.program, node.id, k - 1))
  return ok and first or nil, k
end

--- The origin and the way to it: {node, value, path}; path: a list of {node =, k =}.
local function search(x, results)
  local roots, path = {}, {}
  look(x, 1)
  for _, v in ipairs(results) do
    if x.bad[v] then roots[#roots + 1] = v end
  end
  if #roots == 0 then return nil end
  local node, value = origin(x, roots)
  while node and node.bodies do
    local first, k = enter(x, node)
    if not first then break end
    path[#path + 1] = {node = node, k = k}
    local last = look(x, first)
    roots = {}
    for id = first, last do
      for _, v in ipairs(x.nodes[id].of == 0 and x.nodes[id].outputs or {}) do roots[#roots + 1] = v end
    end
    local inner, which = origin(x, roots)
    if not inner then break end
    path[#path].first = first
    node, value = inner, which
  end
  return node, value, path
end

-- ---- where in the tensor, on which device ----------------------------------------------------------

--- Where the parts lie that a sharding cuts a tensor into: "data=2", of the element at an index.
local function place(sharding, shape, index)
  local words, mesh = {}, sharding.mesh
  for d = 1, #shape do
    local axes = sharding.spec[d]
    axes = type(axes) == "string" and {axes} or axes or {}
    local parts = 1
    for _, axis in ipairs(axes) do parts = parts * mesh.shape[axis] end
    local at = (index[d] - 1) // math.max(1, -(-shape[d] // parts))
    for i = #axes, 1, -1 do
      table.insert(words, 1, ("%s=%d"):format(axes[i], at % mesh.shape[axes[i]]))
      at = at // mesh.shape[axes[i]]
    end
  end
  return words
end

--- The first element of x that is not finite: its index, from 1, and how many there are.
local function first_element(x)
  local bad = ops.reshape(ops.where(ops.isfinite(x), 0, 1), -1)
  local at, index = alone.brought(ops.argmax(bad)):item(), {}
  for d = x.ndim, 1, -1 do
    index[d] = at % x.shape[d] + 1
    at = at // x.shape[d]
  end
  return index, alone.brought(ops.sum(ops.astype(bad, "int32"))):item()
end

--- Adds to the report which elements of the value it is, and on which devices of the mesh.
local function locate(x, report, node, value)
  local type = node.types[lib.position(node.outputs, value)]
  local manual, devices = type:match "{V:([^}]*)}", {}
  local inner = node.inner and x.mesh
  local tensor = x.program:run({inner and x.program:blocks(value) or value}, x.inputs)[1]
  local index, count = first_element(tensor)
  local shape = tensor.shape
  if inner then
    local block, axes = table.remove(index, 1) - 1, {}
    for axis in (manual or ""):gmatch "[%w_]+" do axes[#axes + 1] = axis end
    for i = #axes, 1, -1 do
      table.insert(devices, 1, ("%s=%d"):format(axes[i], block % x.mesh.shape[axes[i]]))
      block = block // x.mesh.shape[axes[i]]
    end
  elseif x.mesh and tensor.sharding and tensor.sharding.mesh then
    devices = place(tensor.sharding, shape, index)
  end
  report.type, report.index, report.count, report.size = type, index, count, tensor.size
  report.device = x.mesh and x.mesh.size > 1 and (#devices > 0 and table.concat(devices, ",") or "all") or nil
end

-- ---- on one device ---------------------------------------------------------------------------------

--- Whether the same op of the same step gives it on one device; nil, why: that cannot be told.
local function on_one_device(x, retrace, node, value, path)
  local one = alone.one_device("find_nonfinite", x.mesh)
  local traced, program = lib.unless_stopped(pcall(core.instead_of, x.mesh, one, retrace))
  if not traced then return nil, "on one device the step cannot be traced" end
  local here <close> = program
  local other = "on one device the step is another program"
  if alone.other_place(x.traced, here:nodes()) then return nil, other end
  local own = {program = here, inputs = alone.inputs_of(here)}
  local first, ids = 1, {}
  for _, at in ipairs(path) do
    ids[#ids + 1] = at.node.id - first
    first = at.first or first
  end
  local at, from = node.id - first, 1
  for i, step in ipairs(path) do
    if not step.first then break end
    from = here:body(from + ids[i], step.k - 1)
  end
  local same = here:nodes()[from + at]
  if not same or same.op ~= node.op then return nil, other end
  local flags = flags_of(own, {same.outputs[lib.position(node.outputs, value)]})[1]
  return flags[1][1] >= 0
end

-- ---- the report ------------------------------------------------------------------------------------

local Report = {__name = "Report"}
Report.__index = Report

Report.__tostring = core.plain(function(self)
  if not self.found then return "all results are finite" end
  local lines = {}
  if self.argument then
    lines[1] = ("the step was given it: %s holds %s (%s)"):format(self.argument, self.what, self.type)
  else
    lines[1] = ("the first %s: %s at %s%s%s: %s"):format(self.what, self.op, self.where,
      self.scope ~= "" and ", in " .. self.scope or "", self.role ~= "forward" and ", " .. self.role or "",
      self.type)
  end
  local index = self.index and #self.index > 0 and "element [" .. table.concat(self.index, ",") .. "]"
  if index then lines[#lines + 1] = ("%s first, %d of %d"):format(index, self.count, self.size) end
  for _, at in ipairs(self.inside) do
    lines[#lines + 1] = ("in %s of the %s at %s"):format(at.text, at.op, at.where)
  end
  if self.device then
    lines[#lines + 1] = self.device == "all" and "on all devices alike" or "on the devices at " .. self.device
  end
  if self.alone == true then
    lines[#lines + 1] = "one device alone gives it, too: it is the program or its data"
  elseif self.alone == false then
    lines[#lines + 1] = "one device alone does not give it: see ml.verify"
  elseif self.unknown then
    lines[#lines + 1] = self.unknown .. ": whether it would give it, too, is not known"
  end
  return table.concat(lines, "\n")
end)

--- Runs a step again that gave a NaN or an infinity, and says where the first of them came from: the op, its line and
--- module, which elements, on which devices, in which step of a scan; and whether one device alone gives it, too. Of a
--- while loop it says no more than that it gave it.
--- Nothing is written: Params keep what they hold, and must be what they were before the step (Optimizer:update with
--- `apply` leaves them so).
---@param step any what ml.jit returned
---@param ... any its arguments
---@return table report {found, what, op, where, scope, role, type, index, count, size, inside, device, alone,
--- argument}; as a text by tostring
function M.find_nonfinite(step, ...)
  alone.check_step("find_nonfinite", step)
  local args = table.pack(...)
  local function retrace() return step:program(table.unpack(args, 1, args.n)) end
  local program <close> = retrace()
  local x = {program = program, inputs = alone.inputs_of(program), def = {}, bad = {}, param = {},
    traced = program:nodes()}
  for _, p in ipairs(program:params()) do x.param[p.value] = p end
  x.mesh = alone.mesh_of(program:params())
  local node, value, path = search(x, program:results())
  local report = setmetatable({found = node ~= nil, inside = {}}, Report)
  if not node then return report end
  report.what, report.op, report.where, report.scope = x.bad[value], node.op, node.where, node.scope
  report.role = node.role
  for i, at in ipairs(path) do
    report.inside[i] = {op = at.node.op, where = at.node.where, k = at.k,
      text = (at.node.trips and "step %d" or "branch %d"):format(at.k)}
  end
  locate(x, report, node, value)
  if node.op == "param" then
    report.argument = x.param[value].name ~= "" and x.param[value].name or "a tensor that it met"
  elseif x.mesh and x.mesh.size > 1 then
    report.alone, report.unknown = on_one_device(x, retrace, node, value, path)
  end
  return report
end

return lib.export(M, "", true)
