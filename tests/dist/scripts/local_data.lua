-- local_data.lua: arrays put together from what each process has are the arrays that one process would make, for
-- every way in which shards can lie in processes. Started with 8 devices, in 1, 2, 4 or 8 processes.
local ml = require "meshlua"
local P, NamedSharding = ml.P, ml.NamedSharding

local me, world = ml.process_index(), ml.process_count()
local values = ml.arange(16 * 24):reshape {16, 24}

--- Every other order of devices: each process's are apart along some axis.
local function strided()
  local ids = {}
  for i = 0, 7 do ids[i + 1] = i % 2 * 4 + i // 2 end
  return ids
end

local cube = {{2, 2, 2}, {"x", "y", "z"}}
local meshes = {ml.make_mesh(cube[1], cube[2]), ml.make_mesh(cube[1], cube[2], strided()),
  ml.make_mesh({4, 2}, {"x", "y"}), ml.make_mesh({8}, {"x"})}

local specs = {P(), P "x", P(nil, "x"), P("x", "y"), P("y", "x"), P {"x", "y"}, P(nil, {"y", "x"}),
  P({"x", "z"}, "y"), P("z", {"y", "x"}), P {"x", "y", "z"}}

local function fits(mesh, spec)
  return pcall(NamedSharding, mesh, spec)
end

--- The distinct ranges of dim d that this process holds, in order.
local function ranges(sharding, d)
  local list, seen = {}, {}
  for _, index in pairs(sharding:addressable_devices_indices_map {16, 24}) do
    local range = index[d]
    if not seen[range[1]] then list[#list + 1], seen[range[1]] = range, true end
  end
  table.sort(list, function(a, b) return a[1] < b[1] end)
  return list
end

--- What this process has of `values`: rows and columns of the ranges, closed up.
local function part_of(sharding)
  local rows = {}
  for i, range in ipairs(ranges(sharding, 1)) do
    local columns = {}
    for k, other in ipairs(ranges(sharding, 2)) do columns[k] = values:slice(range, other) end
    rows[i] = ml.concat(columns, 2)
  end
  return ml.concat(rows, 1)
end

local function check(x, sharding)
  assert(x.sharding == sharding and x.shape[1] == 16 and x.shape[2] == 24)
  assert(ml.all_gather_to_host(x):bytes() == values:bytes(), tostring(sharding))
end

local made = 0
for _, mesh in ipairs(meshes) do
  assert(mesh.is_multi_process == (world > 1) and #mesh.local_devices == 8 // world)
  for _, spec in ipairs(specs) do
    if fits(mesh, spec) then
      local sharding = NamedSharding(mesh, spec)
      local part = part_of(sharding)
      check(ml.make_array_from_process_local_data(sharding, part), sharding)
      check(ml.make_array_from_process_local_data(sharding, part, {16, 24}), sharding)
      if world > 1 then
        check(ml.make_array_from_process_local_data(sharding, values, {16, 24}), sharding)
      end
      local asked, indices = 0, {}
      check(ml.make_array_from_callback({16, 24}, sharding, function(index)
        asked = asked + 1
        return values:slice(index[1], index[2])
      end), sharding)
      for _, shard in ipairs(ml.device_put(values, sharding):addressable_shards()) do
        assert(shard.process == me)
        indices[shard.index[1][1] .. " " .. shard.index[2][1]] = true
      end
      for _ in pairs(indices) do asked = asked - 1 end
      assert(asked == 0, "the callback is asked for what is here, once")
      made = made + 1
    end
  end
end

local function raises(wanted, ...)
  local ok, err = pcall(...)
  assert(not ok and err:find(wanted, 1, true), err)
end

local make = ml.make_array_from_process_local_data
local rows = NamedSharding(meshes[4], P "x")
local lists = {}
for i = 1, 8 // world do lists[i] = me * (8 // world) + i end
assert(ml.all_gather_to_host(make(rows, lists)):totable()[8] == 8)

-- Dims that the devices do not divide: what is here, without padding.
local padded = NamedSharding(meshes[4], P {"x", uneven = "pad"})
local here = padded:addressable_devices_indices_map {11}
local some = {}
for i = 1, 11 do
  for _, index in pairs(here) do
    if index[1][1] <= i and i <= index[1][2] then some[#some + 1] = i end
  end
end
local mine = #some > 0 and ml.tensor(some) or ml.zeros({0}, "int32")
local x = ml.all_gather_to_host(make(padded, mine, {11})):totable()
for i = 1, 11 do assert(x[i] == i) end

if world > 1 then
  local n = 16 // world
  raises(("make_array_from_process_local_data: dim 1 of the data has 5 elements; process %d holds %d of the "
    .. "array's 16 (%d..%d"):format(me, n, me * n + 1, me * n + 16 // 8), make, rows, ml.zeros {5}, {16})
  raises("the data is [4,2] and the array [16]; they must have as many", make, rows, ml.zeros {4, 2}, {16})
end
if world == 2 then
  -- Process 0 has rows 1 to 3, process 1 rows 2 to 4.
  local askew = ml.Mesh({{0, 3}, {1, 4}, {2, 5}, {6, 7}}, {"x", "y"})
  raises('along dim 1 the processes hold different numbers of shards of P("x")', make,
    NamedSharding(askew, P "x"), ml.zeros {3})
  local y = make(NamedSharding(askew, P "x"), ml.arange(3) + me, {4})
  assert(ml.all_gather_to_host(y):totable()[4] == 3)
  raises(("local_mesh: the 4 devices of process %d do not stand in a box"):format(me),
    function() return askew.local_mesh end)
end
if me == 0 then print(made .. " arrays") end
