-- audit.lua: does each device compute what the others do? A step's values are computed twice, the second time with the
-- devices' parts exchanged: the same plan, so the same bits. Where they are not, a device is broken: which one follows
-- from the parts that differ, as the one that did them the first time or the second.
local alone = require "meshlua.insight.alone"
local core = require "meshlua.core"
local lib = require "meshlua.lib"
local ops = require "meshlua.ops"

local raise = lib.raise

local M = {}

local CHUNK = 256 -- values looked at in one run

-- ---- where parts lie --------------------------------------------------------------------------------

--- The coordinates of the device at a place of the grid, from 0.
local function coords_of(mesh, at)
  local coords, names = {}, mesh.axis_names
  for i = #names, 1, -1 do
    coords[names[i]] = at % mesh.shape[names[i]]
    at = at // mesh.shape[names[i]]
  end
  return coords
end

--- "data=2,model=0" of a device.
local function text_of(mesh, at)
  local coords, words = coords_of(mesh, at), {}
  for i, name in ipairs(mesh.axis_names) do words[i] = ("%s=%d"):format(name, coords[name]) end
  return table.concat(words, ",")
end

--- The part of a tensor that the device at a place of the grid has: first and last index of each dim; and as a key.
local function part_of(sharding, shape, at)
  local coords, first, last = coords_of(sharding.mesh, at), {}, {}
  for d, size in ipairs(shape) do
    local axes, parts, which = sharding.spec[d], 1, 0
    for _, axis in ipairs(type(axes) == "table" and axes or {axes}) do
      parts = parts * sharding.mesh.shape[axis]
      which = which * sharding.mesh.shape[axis] + coords[axis]
    end
    local each = -(-size // parts)
    first[d], last[d] = which * each + 1, math.min(size, (which + 1) * each)
  end
  return first, last, table.concat(first, ",")
end

-- ---- two computations -------------------------------------------------------------------------------

local WIDTHS = {float64 = "uint64", float32 = "uint32", bfloat16 = "uint16", float16 = "uint16",
  float8_e4m3fn = "uint8", float8_e5m2 = "uint8"}

--- Where the bits of two tensors differ.
local function apart(x, y)
  y = alone.brought(y, x.sharding)
  local bits = WIDTHS[x.dtype]
  if bits then x, y = ops.bitcast(x, bits), ops.bitcast(y, bits) end
  return ops.ne(x, y)
end

--- How many elements are not the same.
local function count(differs) return alone.brought(ops.sum(ops.astype(differs, "int32"))):item() end

--- The sums of a program's values, by device of a shard_map where they are in one.
local function sums_of(x, values)
  local sums = {}
  for i, v in ipairs(values) do sums[i] = x.program:sum(v) end
  for i, sum in ipairs(x.program:run(sums, x.inputs)) do sums[i] = alone.brought(sum):totable() end
  return sums
end

--- The first of the values that differs: its place in the list.
local function first_apart(a, b, values)
  for first = 1, #values, CHUNK do
    local part = table.move(values, first, math.min(first + CHUNK - 1, #values), 1, {})
    local one, other = sums_of(a, part), sums_of(b, part)
    for i, sum in ipairs(one) do
      for k, n in ipairs(sum) do
        if other[i][k] ~= n then return first + i - 1 end
      end
    end
  end
end

--- The devices that may have made the parts that differ, as places of the grid. A device that is broken for good has
--- both its parts wrong: the one it had first, and the one it had then.
local function suspects(differs, sharding, from)
  local mesh, wrong, key_of = sharding.mesh, {}, {}
  local all, explains, broken = alone.brought(differs), {}, {}
  for at = 0, mesh.size - 1 do
    local first, last, key = part_of(sharding, differs.shape, at)
    key_of[at] = key
    if wrong[key] == nil then
      local ranges, empty = {}, false
      for d in ipairs(first) do ranges[d], empty = {first[d], last[d]}, empty or last[d] < first[d] end
      wrong[key] = not empty and count(all:slice(table.unpack(ranges))) > 0
    end
  end
  local keys = 0
  for _, is_wrong in pairs(wrong) do keys = keys + (is_wrong and 1 or 0) end
  for at = 0, mesh.size - 1 do
    local one, other = key_of[at], key_of[from(at)]
    local own = (wrong[one] and 1 or 0) + (wrong[other] and one ~= other and 1 or 0)
    if own == keys then explains[#explains + 1] = at end
    if own == keys and wrong[one] and wrong[other] then broken[#broken + 1] = at end
  end
  return #broken > 0 and broken or explains
end

-- ---- the report -------------------------------------------------------------------------------------

local Report = {__name = "Report"}
Report.__index = Report

Report.__tostring = core.plain(function(self)
  if self.same then
    return ("the same bits with the devices of %s exchanged: %s"):format(self.mesh, self.looked)
  end
  local lines = {("not the same bits on another device: %s at %s%s: %s, %s"):format(self.op, self.where,
    self.scope ~= "" and ", in " .. self.scope or "", self.type, self.count > 0
    and lib.count(self.count, "element") or "at times")}
  lines[2] = #self.devices == 0 and "which device it is cannot be told"
    or ("%s at %s"):format(#self.devices == 1 and "it is the device" or "it is one of the devices",
      lib.some(self.devices, 8, "; "))
  return table.concat(lines, "\n")
end)

--- A mesh of the same devices, each in its neighbour's place; and fn(place of a device) -> its place there.
local function exchanged(mesh)
  local list = {}
  local function add(x)
    if type(x) ~= "table" then list[#list + 1] = x end
    for _, inner in ipairs(type(x) == "table" and x or {}) do add(inner) end
  end
  add(mesh.devices)
  if #list < 2 then raise("E_MESH", "audit: %s has no device beside the one that computed", mesh) end
  local sizes, devices = {}, {}
  for i, name in ipairs(mesh.axis_names) do sizes[i] = mesh.shape[name] end
  for i = 1, #list do devices[i] = list[i % #list + 1] end
  return core.mesh_new(mesh.axis_names, sizes, devices), function(at) return (at - 1) % #list end
end

--- The values of a program that are needed for something, in order; the nodes that make them, and as which result.
local function values_of(program)
  local values, node_of, which, used, nodes = {}, {}, {}, {}, program:nodes()
  for _, v in ipairs(program:results()) do used[v] = true end
  for _, node in ipairs(nodes) do
    for _, v in ipairs(node.inputs) do used[v] = true end
  end
  for _, node in ipairs(nodes) do
    for k, v in ipairs(node.of == 0 and node.op ~= "param" and node.outputs or {}) do
      if used[v] then values[#values + 1], node_of[v], which[v] = v, node, k end
    end
  end
  return values, node_of, which
end

--- Computes a step twice, with the mesh's devices in each other's places the second time, and holds the results
--- against each other, bit for bit. Where they differ it says which op's value is the first that does, and which device
--- made it. Nothing is written.
---@param step any what ml.jit returned
---@param ... any its arguments
---@return table report {same, op?, where?, scope?, type?, count?, devices?}; as a text by tostring
function M.audit(step, ...)
  alone.check_step("audit", step)
  local args = table.pack(...)
  local there <close> = step:program(...)
  local mesh = alone.mesh_of(there:params())
  if not mesh then raise("E_MESH", "audit: no argument lies on a mesh: there is no other device") end
  local other, from = exchanged(mesh)
  local here <close> = core.instead_of(mesh, other, function()
    return step:program(table.unpack(args, 1, args.n))
  end)
  local a = {program = there, inputs = alone.inputs_of(there)}
  local b = {program = here, inputs = alone.inputs_of(here)}
  local values, node_of, which = values_of(there)
  local i = first_apart(a, b, values)
  local report = setmetatable({same = not i, mesh = tostring(mesh):match "^[^ ]+ ?[^{]-%)",
    looked = lib.count(#values, "value")}, Report)
  if not i then return report end
  local v = values[i]
  local node = node_of[v]
  report.op, report.where, report.scope, report.type = node.op, node.where, node.scope, node.types[which[v]]
  local shown = node.inner and {there:blocks(v)} or {v}
  local x = there:run(shown, a.inputs)[1]
  local differs = apart(x, here:run({node.inner and here:blocks(v) or v}, b.inputs)[1])
  report.count, report.devices = count(differs), {}
  if report.count == 0 or not x.sharding or not x.sharding.mesh then return report end
  for k, at in ipairs(suspects(differs, x.sharding, from)) do report.devices[k] = text_of(mesh, at) end
  return report
end

return lib.export(M, "", true)
