-- collectives.lua SIZES [WORDS]: every collective, along every axis and combination of axes, of every kind of
-- element. "large": some of them, of so many elements that processes share the work of a reduction. "few": of two
-- kinds of elements. "mixed": the devices of a process stand apart in the mesh. "huge": of so many that threads share
-- what comes in.
-- Rank 0 prints a line for each with a checksum of the result: the same text for the same mesh, however its
-- devices are spread over processes.
local ml = require "meshlua"
local out = require "out"
local P, NamedSharding = ml.P, ml.NamedSharding

local names = {"x", "y", "z"}
local sizes, axes = {}, {}
for n in arg[1]:gmatch "%d+" do
  sizes[#sizes + 1] = tonumber(n)
  axes[#sizes] = names[#sizes]
end
local words = table.concat(arg, " ", 2)
local large, few, mixed, huge = words:find "large", words:find "few", words:find "mixed", words:find "huge"

--- A nested list of device ids: neighbours are `step` apart.
local function grid(depth, ids, first, step)
  if depth > #sizes then return ids[first] end
  local list = {}
  for i = 1, sizes[depth] do
    list[i] = grid(depth + 1, ids, first + (i - 1) * step // sizes[depth], step // sizes[depth])
  end
  return list
end

local function mixed_mesh()
  local n, ids = ml.device_count(), {}
  for i = 0, n - 1 do ids[i + 1] = i % 2 * ((n + 1) // 2) + i // 2 end
  return ml.Mesh(grid(1, ids, 1, n), axes)
end

local mesh = mixed and mixed_mesh() or ml.make_mesh(sizes, axes)

local gather = ml.jit(function(x) return ml.constrain(x, NamedSharding(mesh, P())) end)

--- All subsets of the axes but the empty one, in order.
local function subsets()
  local all = {}
  for mask = 1, (1 << #axes) - 1 do
    local set, n = {}, 1
    for i = 1, #axes do
      if mask >> (i - 1) & 1 == 1 then
        set[#set + 1] = axes[i]
        n = n * sizes[i]
      end
    end
    all[#all + 1] = {names = set, n = n}
  end
  return all
end

local collectives = {
  psum = function(x, set) return ml.psum(x, set.names) end,
  pmax = function(x, set) return ml.pmax(x, set.names) end,
  pmin = function(x, set) return ml.pmin(x, set.names) end,
  all_gather = function(x, set) return ml.all_gather(x, set.names, {axis = 2, tiled = true}) end,
  psum_scatter = function(x, set)
    return ml.psum_scatter(x, set.names, {scatter_dimension = 2, tiled = true})
  end,
  all_to_all = function(x, set) return ml.all_to_all(x, set.names, 2, 1, {tiled = true}) end,
  ppermute = function(x, set)
    local pairs_of = {}
    for i = 0, set.n - 2 do pairs_of[i + 1] = {i, i + 1} end
    return ml.ppermute(x, set.names, pairs_of)
  end,
}
local order = {"psum", "pmax", "pmin", "all_gather", "psum_scatter", "all_to_all", "ppermute"}
local dtypes = {"float32", "float64", "float16", "bfloat16", "int32", "int64", "uint32", "uint8"}

if large then
  order = {"psum", "pmax", "psum_scatter", "all_gather"}
  dtypes = {"float32", "bfloat16", "int32"}
end
if few then dtypes = {"float32", "bfloat16"} end
if huge then
  dtypes = {"float32"}
  order = {"psum", "all_gather", "psum_scatter", "all_to_all", "ppermute"}
end
local rows, columns = (large or huge) and 1 or 2, huge and 30000 or large and 800 or 5

local everywhere = P(axes, nil, nil) -- each device has its own rows
for _, name in ipairs(order) do
  for _, set in ipairs(subsets()) do
    for _, dtype in ipairs(dtypes) do
      local n = ml.device_count()
      local x = (ml.random.normal(ml.random.key(7), {rows * n, set.n * 3, columns}) * 50):astype(dtype)
      x = ml.device_put(x, NamedSharding(mesh, everywhere))
      local run = ml.shard_map(function(t) return collectives[name](t, set) end,
        {mesh = mesh, in_specs = {everywhere}, out_specs = everywhere})
      local y = gather(run(x))
      local sum = ml.process_index() == 0 and out.hash(y:bytes()) or 0
      out.print("%s over %s of %s: %08x", name, table.concat(set.names, ","), dtype, sum)
    end
  end
end
