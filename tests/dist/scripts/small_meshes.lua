-- small_meshes.lua: meshes of some of the devices, in four processes of two: those of one process, of two, and a
-- single device. What is on the devices of other processes has its type here, and no values.
local ml = require "meshlua"
local out = require "out"

local P, NamedSharding = ml.P, ml.NamedSharding
local me = ml.process_index()

local function raises(wanted, ...)
  local ok, err = pcall(...)
  assert(not ok and err:find(wanted, 1, true), err)
end

--- The value of a scalar where it is, nil elsewhere.
local function item(x, is_here)
  if is_here then return x:item() end
  raises(("] item: float32[] on %s has nothing in this process (%d)"):format(
    tostring(x.sharding.mesh):gsub(" of devices.*", ""), me), x.item, x)
end

local double = ml.jit(function(x) return (x * 2):sum() end)

-- One device.
local x = ml.device_put(ml.arange(4.0), 3)
assert(#x:addressable_shards() == (me == 1 and 1 or 0) and #x:global_shards() == 1)
assert(ml.typeof(x + 1) == "float32[4]" and x.is_fully_addressable == (me == 1))
local y = item(double(x), me == 1)
assert(me ~= 1 or y == 12)

-- Those of each process: it works on its own beside the others.
local all = ml.make_mesh({8}, {"x"})
local mine = all.local_mesh
assert(mine.size == 2 and mine.device_ids[1] == 2 * me and not mine.is_multi_process)
local rows = ml.device_put(ml.arange(8.0), NamedSharding(mine, P "x"))
for _ = 1, me do assert(double(rows):item() == 56) end

-- Two of the four processes, which exchange data: the others go on.
local pair = ml.make_mesh({4}, {"x"}, {2, 3, 6, 7})
local halves = ml.device_put(ml.arange(8.0), NamedSharding(pair, P "x"))
for _ = 1, 3 do
  local sum = item(double(halves), me == 1 or me == 3)
  assert(not sum or sum == 56)
end
assert(pair.is_multi_process and #pair.local_devices == (me % 2 == 1 and 2 or 0))
if me % 2 == 1 then
  assert(ml.all_gather_to_host(halves):totable()[8] == 7)
else
  raises(("local_mesh: no device of process %d is in Mesh(x=4)"):format(me),
    function() return pair.local_mesh end)
end

-- Arrays from what each process has on its devices.
local arrays = {}
for i, device in ipairs(ml.local_devices()) do arrays[i] = ml.device_put(ml.tensor {device + 0.0}, device) end
local joined = ml.make_array_from_single_device_arrays({8}, NamedSharding(all, P "x"), arrays)
assert(ml.all_gather_to_host(joined):totable()[8] == 7 and joined.dtype == "float32")
assert(joined.sharding == NamedSharding(all, P "x"))

-- Every process compares the step of all with one device of its own.
local data = ml.device_put(ml.arange(16.0), NamedSharding(all, P "x"))
local report = ml.verify(ml.jit(function(v) return ml.tanh(v) * v:mean() end), data)
assert(report.ok, tostring(report))
local wrong = ml.shard_map(function(v) return ml.psum(v:mean(), "x") end,
  {mesh = all, in_specs = P "x", out_specs = P()})
report = ml.verify(ml.jit(wrong), data)
assert(not report.ok and math.abs(report.factor - 8) < 1e-4, tostring(report))
out.print("%s", "well")
