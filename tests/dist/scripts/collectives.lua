-- collectives.lua SIZES: every collective, along every axis and combination of axes, of every kind of element.
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
local mesh = ml.make_mesh(sizes, axes)

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

local everywhere = P(axes, nil, nil) -- each device has its own rows
for _, name in ipairs(order) do
  for _, set in ipairs(subsets()) do
    for _, dtype in ipairs(dtypes) do
      local n = ml.device_count()
      local x = (ml.random.normal(ml.random.key(7), {2 * n, set.n * 3, 5}) * 50):astype(dtype)
      x = ml.device_put(x, NamedSharding(mesh, everywhere))
      local run = ml.shard_map(function(t) return collectives[name](t, set) end,
        {mesh = mesh, in_specs = {everywhere}, out_specs = everywhere})
      local y = gather(run(x))
      local sum = out.hash(y:bytes())
      out.print("%s over %s of %s: %08x", name, table.concat(set.names, ","), dtype, sum)
    end
  end
end
