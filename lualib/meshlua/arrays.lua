-- arrays.lua: tensors made from their parts, and the parts of tensors. An index is a list of {first, last},
-- 1-based and inclusive, one for each dim, as x:slice takes them.
local core = require "meshlua.core"
local lib = require "meshlua.lib"
local mesh = require "meshlua.mesh"
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

local function shape_text(shape) return "[" .. table.concat(shape, ",") .. "]" end

local function same_shape(a, b)
  local same = #a == #b
  for d = 1, #a do same = same and a[d] == b[d] end
  return same
end

--- "{1..2, 5..8}", for messages.
local function index_text(index)
  local words = {}
  for d, range in ipairs(index) do words[d] = range[1] .. ".." .. range[2] end
  return "{" .. table.concat(words, ", ") .. "}"
end

--- The part as a tensor of one device; raises unless it has the shape.
local function checked_part(who, value, index, shape, dtype)
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

--- The array whose shards a callback gives. It is called once for each distinct index, in the order of the
--- mesh's devices: cb{{first, last}, ...}, 1-based and inclusive, gives a tensor, or (nested lists of) numbers.
--- Raises E_SHAPE and E_DTYPE where a shard is not what the sharding asks for, E_TRACED inside a trace.
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
  local places, local_shape = core.shard_places(sharding, shape, who), sharding:shard_shape(shape)
  local parts = {}
  for _, place in ipairs(places) do
    if not parts[place.slot] then
      local part = checked_part(who, cb(place.index), place.index, local_shape, dtype)
      dtype = dtype or part.dtype
      parts[place.slot] = part
    end
  end
  return core.assemble(sharding, shape, dtype, parts)
end

--- The array of which this process has the rows `data`. A program is one process: data is the whole array.
---@param sharding NamedSharding|P
---@param data Tensor|table
---@param global_shape integer[]? default that of data, which it must be
---@return Tensor
function M.make_array_from_process_local_data(sharding, data, global_shape)
  local who = "make_array_from_process_local_data"
  sharding = check_sharding(who, sharding)
  check_eager(who)
  if type(data) == "table" then data = core.tensor(data) end
  if not lib.is_tensor(data) then
    raise("E_VALUE", "%s: expected a tensor or lists of numbers, got %s", who, lib.kind(data))
  end
  local shape = data.shape
  if global_shape ~= nil and not same_shape(lib.check_shape(who, global_shape), shape) then
    raise("E_SHAPE", "%s: the data is %s and the array %s; in one process they are the same", who,
      shape_text(shape), shape_text(global_shape))
  end
  core.shard_places(sharding, shape, who) -- raises where it does not fit
  return core.put_across(data, sharding.mesh and sharding or nil)
end

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
---@param arrays Tensor[] one for each device of the sharding
---@return Tensor
function M.make_array_from_single_device_arrays(shape, sharding, arrays)
  local who = "make_array_from_single_device_arrays"
  shape, sharding = lib.check_shape(who, shape), check_sharding(who, sharding)
  lib.check_list(who, "the arrays", arrays)
  check_eager(who)
  local places, local_shape = core.shard_places(sharding, shape, who), sharding:shard_shape(shape)
  if #arrays ~= #places then
    raise("E_VALUE", "%s: %d arrays for %d devices", who, #arrays, #places)
  end
  local on, parts, dtype, first = by_device(who, arrays), {}, nil, {}
  for _, place in ipairs(places) do
    local found = on[place.device]
    if not found then raise("E_VALUE", "%s: no array is on device %d", who, place.device) end
    local part = checked_part(who, found.data, place.index, local_shape, dtype)
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
--- done. E_TRACED for what is traced, E_DELETED for what is gone.
---@generic T
---@param x T
---@return T
function M.block_until_ready(x)
  for _, leaf in ipairs((tree.leaves(x))) do
    if core.is_traced(leaf) then
      raise("E_TRACED", "block_until_ready: a traced tensor is computed when the jitted function runs")
    end
  end
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

local function check_tensor(who, x)
  if not lib.is_tensor(x) then raise("E_VALUE", "%s: expected a tensor, got %s", who, lib.kind(x)) end
end

--- The data of the i-th shard (1-based, in the mesh's order of devices), on one device: where the tensor is
--- replicated, all of it.
---@param i integer
---@return Tensor
function Tensor:addressable_data(i)
  check_tensor("addressable_data", self)
  local shards = self:addressable_shards()
  lib.check_integer("addressable_data", "the number of the shard", i)
  if not shards[i] then
    raise("E_VALUE", "addressable_data: shard %d of %d", i, #shards)
  end
  return shards[i].data
end

local element_bytes = {float64 = 8, int64 = 8, float32 = 4, int32 = 4, uint32 = 4, bfloat16 = 2,
  float16 = 2, uint8 = 1, bool = 1}

--- Bytes on all devices together: those of a shard, times the devices.
---@return integer
function Tensor:on_device_size_in_bytes()
  check_tensor("on_device_size_in_bytes", self)
  local bytes = element_bytes[self.dtype] * self.sharding.num_devices
  for _, n in ipairs(self.sharding:shard_shape(self.shape)) do bytes = bytes * n end
  return bytes
end

Tensor.block_until_ready = M.block_until_ready

for name, fn in pairs(Tensor) do core.methods "meshlua.Tensor"[name] = core.wrap(fn) end

return lib.export(M)
