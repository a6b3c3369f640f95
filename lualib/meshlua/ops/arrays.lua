-- arrays.lua: tensors made from their parts, and the parts of tensors. An index is a list of {first, last},
-- 1-based and inclusive, one for each dim, as x:slice takes them.
local core = require "meshlua.core"
local lib = require "meshlua.lib"
local args = require "meshlua.ops.args"
local mesh = require "meshlua.sharding.mesh"
local tree = require "meshlua.tree"

local raise = lib.raise

local M = {}

local function check_sharding(who, sharding)
  if core.is_spec(sharding) then sharding = core.bind_spec(sharding) end
  if not core.is_sharding(sharding) then
    raise("E_SPEC", "%s: expected a NamedSharding or a P, got %s", who, lib.kind(sharding))
  end
  if sharding.mesh and sharding.mesh.is_abstract then
    raise("E_MESH", "%s: an AbstractMesh has no devices to hold the data", who)
  end
  return sharding
end

local function check_eager(who)
  if core.is_tracing() then
    raise("E_TRACED", "%s: inside a traced function nothing has data yet; make the array outside and pass it "
      .. "as an argument", who)
  end
end

local same_shape, shape_text = lib.same_shape, lib.shape_text

--- "{1..2, 5..8}", for messages.
local function index_text(index)
  local words = {}
  for d, range in ipairs(index) do words[d] = range[1] .. ".." .. range[2] end
  return "{" .. table.concat(words, ", ") .. "}"
end

--- The dims of the part at an index.
local function extents(index)
  local shape = {}
  for d, range in ipairs(index) do shape[d] = range[2] - range[1] + 1 end
  return shape
end

--- The part as a tensor of one device; raises unless it is what belongs at the index.
local function checked_part(who, value, index, dtype)
  local shape = extents(index)
  if type(value) == "number" or type(value) == "boolean" or type(value) == "table" then
    value = core.tensor(value, dtype)
    if dtype and value.dtype ~= dtype then value = core.op.astype(value, {dtype = dtype}) end
  end
  if not lib.is_tensor(value) then
    raise("E_VALUE", "%s: for the shard %s the callback gave %s; expected a tensor or numbers", who,
      index_text(index), lib.kind(value))
  end
  if not same_shape(value.shape, shape) then
    raise("E_SHAPE", "%s: the shard %s is %s, but was given %s", who, index_text(index), shape_text(shape),
      core.typeof(value))
  end
  if dtype and value.dtype ~= dtype then
    raise("E_DTYPE", "%s: the shard %s is %s, the array %s", who, index_text(index), value.dtype, dtype)
  end
  return value
end

--- Is it padding alone?
local function is_padding(index, shape)
  for d, range in ipairs(index) do
    if range[2] < range[1] and shape[d] > 0 then return true end
  end
  return false
end

--- The array whose shards in this process `part` gives, each once.
local function from_parts(who, shape, sharding, places, part, dtype)
  local parts, process = {}, core.process_index()
  for _, place in ipairs(places) do
    if place.process == process and not parts[place.slot] and not is_padding(place.index, shape) then
      local data = checked_part(who, part(place.index), place.index, dtype)
      dtype = dtype or data.dtype
      parts[place.slot] = data
    end
  end
  return core.assemble(sharding, shape, dtype, parts)
end

--- The array whose shards a callback gives. It is called once for each distinct index of this process's devices,
--- in the mesh's order: cb{{first, last}, ...}, 1-based and inclusive, gives a tensor, or (nested lists of)
--- numbers. Raises E_SHAPE and E_DTYPE where a shard is not what the sharding asks for, E_TRACED inside a trace.
---@param shape integer[]
---@param sharding NamedSharding|P
---@param cb fun(index: integer[][]): Tensor|table|number
---@param dtype string? default that of the first shard
---@return Tensor
function M.make_array_from_callback(shape, sharding, cb, dtype)
  local who = "make_array_from_callback"
  shape, sharding = lib.check_shape(who, shape), check_sharding(who, sharding)
  lib.check_function(who, cb)
  check_eager(who)
  return from_parts(who, shape, sharding, core.shard_places(sharding, shape, who), cb, dtype)
end

-- ---- from what each process has -----------------------------------------------------------------------

--- The distinct ranges that each process holds along dim d, ascending: process -> list.
local function ranges_along(places, d)
  local of, seen = {}, {}
  for _, place in ipairs(places) do
    local range, process = place.index[d], place.process
    local key = process .. " " .. range[1]
    if not seen[key] and range[2] >= range[1] then
      of[process] = of[process] or {}
      table.insert(of[process], range)
      seen[key] = true
    end
  end
  for _, list in pairs(of) do table.sort(list, function(a, b) return a[1] < b[1] end) end
  return of
end

--- Into how many parts the processes cut dim d; nil unless their parts are as many shards each, and two of them
--- are the same or have nothing in common.
local function parts_along(places, d)
  local seen, shards, distinct, count, each = {}, {}, 0, 0, nil
  for _, list in pairs(ranges_along(places, d)) do
    local firsts = {}
    for i, range in ipairs(list) do
      firsts[i] = range[1]
      if not shards[range[1]] then shards[range[1]], count = true, count + 1 end
    end
    local key = table.concat(firsts, " ")
    if not seen[key] then seen[key], distinct = true, distinct + 1 end
    if each and each ~= #list then return nil end
    each = #list
  end
  return distinct * each == count and distinct or nil
end

--- The shape of the array of which a process has data of this shape.
local function global_shape_of(who, sharding, shape)
  local n, probe, global = sharding.num_devices, {}, {}
  for d = 1, #shape do probe[d] = n end -- which every axis divides
  local places = core.shard_places(sharding, probe, who)
  for d, size in ipairs(shape) do
    local parts = parts_along(places, d)
    if not parts then
      raise("E_SHAPE", "%s: along dim %d the processes hold different numbers of shards of %s, or some of "
        .. "them together, so one's part does not tell the array's size; give the array's shape, and of dim "
        .. "%d all, or what this process holds", who, d, sharding.spec, d)
    end
    global[d] = size * parts
  end
  return global
end

--- "1..4, 9..12", for messages.
local function ranges_text(ranges)
  local words = {}
  for i, range in ipairs(ranges) do words[i] = range[1] .. ".." .. range[2] end
  return table.concat(words, ", ")
end

--- For each dim of the data where the ranges that this process holds begin in it: first of the array -> first
--- of the data. Raises where the data is neither those ranges nor all of the dim.
local function origins_in(who, places, data, shape)
  local origins, process = {}, core.process_index()
  for d, size in ipairs(data.shape) do
    local ranges, held, at = ranges_along(places, d)[process] or {}, 0, {}
    for _, range in ipairs(ranges) do
      at[range[1]] = size == shape[d] and range[1] or held + 1
      held = held + range[2] - range[1] + 1
    end
    if size ~= shape[d] and size ~= held then
      raise("E_SHAPE", "%s: dim %d of the data has %s; process %d holds %d of the array's %d (%s): "
        .. "give these, or all", who, d, lib.count(size, "element"), process, held, shape[d],
        ranges_text(ranges))
    end
    origins[d] = at
  end
  return origins
end

--- The array of which each process gives what its devices hold. Along a dim that the processes share, data has
--- this process's elements alone, in the array's order: of ranges 9..12 and 25..28 it has 8 elements; along
--- another it has all, and then the same in every process. Where the shape is not given, a dim is as many times
--- the data's as the processes cut it into parts; where it is, the data may also have all of a dim that they
--- share. No process asks another: all must give one dtype, and sizes that make one shape. Raises E_SHAPE where
--- data and shape contradict each other, or the parts do not tell the shape (processes whose shards along a dim
--- are neither the same nor apart).
---@param sharding NamedSharding|P
---@param data Tensor|table a tensor, or (nested lists of) numbers
---@param global_shape integer[]?
---@return Tensor
function M.make_array_from_process_local_data(sharding, data, global_shape)
  local who = "make_array_from_process_local_data"
  sharding = check_sharding(who, sharding)
  check_eager(who)
  if type(data) == "table" then data = core.tensor(data) end
  if core.is_box(data) then data = data:get() end
  if not lib.is_tensor(data) then
    raise("E_VALUE", "%s: expected a tensor or lists of numbers, got %s", who, lib.kind(data))
  end
  local shape = global_shape and lib.check_shape(who, global_shape)
    or global_shape_of(who, sharding, data.shape)
  if #shape ~= data.ndim then
    raise("E_SHAPE", "%s: the data is %s and the array %s; they must have as many dims", who,
      shape_text(data.shape), shape_text(shape))
  end
  if core.process_count() == 1 and not same_shape(shape, data.shape) then
    raise("E_SHAPE", "%s: the data is %s and the array %s; in one process they are the same", who,
      shape_text(data.shape), shape_text(shape))
  end
  local places = core.shard_places(sharding, shape, who) -- raises where it does not fit
  if not sharding.mesh then return core.put_across(data) end
  local origins = origins_in(who, places, data, shape)
  if data.size == 0 then return core.assemble(sharding, shape, data.dtype, {}) end
  if data.sharding.mesh then data = core.put_across(data) end
  return from_parts(who, shape, sharding, places, function(index)
    local ranges = {}
    for d, range in ipairs(index) do
      local first = origins[d][range[1]]
      ranges[d] = {first, first + range[2] - range[1]}
    end
    return #ranges == 0 and data or data:slice(table.unpack(ranges))
  end, data.dtype)
end

-- ---- from the shards ----------------------------------------------------------------------------------

--- The device that holds a tensor; raises unless it is one.
local function device_of(who, i, x)
  if not lib.is_tensor(x) then raise("E_VALUE", "%s: array %d is %s, not a tensor", who, i, lib.kind(x)) end
  local sharding = x.sharding
  if sharding.num_devices ~= 1 then
    raise("E_VALUE", "%s: array %d is on %d devices; expected arrays of one device each", who, i,
      sharding.num_devices)
  end
  return sharding.device_ids[1]
end

--- The arrays by the device that holds them.
local function by_device(who, arrays)
  local on = {}
  for i, x in ipairs(arrays) do
    local device = device_of(who, i, x)
    if on[device] then
      raise("E_VALUE", "%s: arrays %d and %d are both on device %d", who, on[device].number, i, device)
    end
    on[device] = {number = i, data = x}
  end
  return on
end

--- The array whose shards are these, each on its device (ml.device_put(x, device)), in any order. Raises where
--- one is missing, has another shape or dtype, or differs from what another device has of the same part.
---@param shape integer[]
---@param sharding NamedSharding|P
---@param arrays Tensor[] one for each device of the sharding that is this process's
---@return Tensor
function M.make_array_from_single_device_arrays(shape, sharding, arrays)
  local who = "make_array_from_single_device_arrays"
  shape, sharding = lib.check_shape(who, shape), check_sharding(who, sharding)
  lib.check_list(who, "the arrays", arrays)
  check_eager(who)
  local places, process = {}, core.process_index()
  for _, place in ipairs(core.shard_places(sharding, shape, who)) do
    if place.process == process then places[#places + 1] = place end
  end
  if #arrays ~= #places then
    raise("E_VALUE", "%s: %s for %s", who, lib.count(#arrays, "array"), lib.count(#places, "device"))
  end
  local on, parts, dtype, first = by_device(who, arrays), {}, nil, {}
  for _, place in ipairs(places) do
    local found = on[place.device]
    if not found then raise("E_VALUE", "%s: no array is on device %d", who, place.device) end
    local part = checked_part(who, found.data, place.index, dtype)
    dtype = dtype or part.dtype
    if parts[place.slot] and part:bytes() ~= parts[place.slot]:bytes() then
      raise("E_VALUE", "%s: the arrays on devices %d and %d differ, but are both the shard %s", who,
        first[place.slot], place.device, index_text(place.index))
    end
    parts[place.slot], first[place.slot] = part, first[place.slot] or place.device
  end
  return core.assemble(sharding, shape, dtype, parts)
end

--- What a tensor of this kind would be, without values: an argument for step:lower, step:plan and ml.explain.
---@param shape integer[]
---@param dtype string
---@param sharding (NamedSharding|P)? default one device, uncommitted
---@return Tensor
function M.ShapeDtypeStruct(shape, dtype, sharding)
  shape = lib.check_shape("ShapeDtypeStruct", shape)
  if sharding ~= nil and not core.is_spec(sharding) and not core.is_sharding(sharding) then
    raise("E_SPEC", "ShapeDtypeStruct: expected a NamedSharding or a P, got %s", lib.kind(sharding))
  end
  return core.shape_dtype_struct(shape, dtype, sharding)
end

--- Waits until all tensors of a tree are computed; returns the tree. On CPU devices a call returns when it is
--- done; on GPUs what went wrong meanwhile (an id outside a table: E_INDEX) is raised here, or where a value is
--- read. E_TRACED for what is traced, E_DELETED for what is gone.
---@generic T
---@param x T
---@return T
function M.block_until_ready(x)
  for _, leaf in ipairs((tree.leaves(x))) do
    if core.is_traced(leaf) then
      raise("E_TRACED", "block_until_ready: a traced tensor is computed when the jitted function runs")
    end
  end
  core.wait()
  return x
end

--- x, or every tensor of a tree, replicated, so that each process can read all of it (x:totable(), x:item()).
--- Tensors are gathered from the processes that hold them, so all processes must call it.
---@param x Tensor|table
---@return Tensor|table
function M.all_gather_to_host(x)
  check_eager "all_gather_to_host"
  local function gather(leaf)
    local sharding = leaf.sharding
    return sharding.mesh and mesh.device_put(leaf, core.NamedSharding(sharding.mesh, core.P())) or leaf
  end
  if lib.is_tensor(x) then return gather(x) end
  if type(x) ~= "table" then
    raise("E_VALUE", "all_gather_to_host: expected a tensor or a tree of them, got %s", lib.kind(x))
  end
  return tree.map(function(leaf)
    return lib.is_tensor(leaf) and gather(core.is_box(leaf) and leaf:get() or leaf) or leaf
  end, x)
end

-- ---- methods ----------------------------------------------------------------------------------------

local Tensor = {}

--- The data of the i-th shard (1-based, in the mesh's order of devices), on one device: where the tensor is
--- replicated, all of it.
---@param i integer
---@return Tensor
function Tensor:addressable_data(i)
  args.check_tensor("addressable_data", self)
  local shards = self:addressable_shards()
  lib.check_integer("addressable_data", "the number of the shard", i)
  if not shards[i] then
    raise("E_VALUE", "addressable_data: shard %d of %d", i, #shards)
  end
  return shards[i].data
end

--- Bytes on all devices together: those of a shard, times the devices.
---@return integer
function Tensor:on_device_size_in_bytes()
  args.check_tensor("on_device_size_in_bytes", self)
  local of_shard = lib.product(self.sharding:shard_shape(self.shape))
  return lib.element_bytes[self.dtype] * self.sharding.num_devices * of_shard
end

Tensor.block_until_ready = M.block_until_ready

for name, fn in pairs(Tensor) do
  core.methods "meshlua.Tensor"[name] = core.wrap(fn, false, "Tensor:" .. name)
end

M.make_array_from_callback = lib.named("make_array_from_callback", M.make_array_from_callback)

return lib.export(M)
