-- batches.lua TOKENS IMAGES LABELS: batches of every kind on every layout, with 8 devices. Rank 0 prints a checksum
-- of each: the same text however the devices are spread over processes. Each process holds what it has read of the
-- files against what its devices hold.
local ml = require "meshlua"
local out = require "out"

local P, NamedSharding = ml.P, ml.NamedSharding
local ELEMENT_BYTES = {inputs = 2, labels = 0, image = 1, label = 1} -- in the file; labels are read with inputs

local tokens = assert(ml.data.tokens(arg[1]))
out.print("%d ids, the largest %d", #tokens, ml.data.largest(tokens))
local text = assert(ml.data.windows(tokens, 8))
local pictures = assert(ml.data.idx {image = arg[2], label = arg[3]})

--- What the devices of this process hold of a tensor, each element once; `more`: and so many for each part of a
--- row.
local function held(x, more)
  local n, seen = 0, {}
  for _, shard in ipairs(x:addressable_shards()) do
    local key, count, rows = {}, 1, nil
    for d, range in ipairs(shard.index) do
      key[d], count = range[1], count * (range[2] - range[1] + 1)
      rows = rows or count
    end
    key = table.concat(key, " ")
    n, seen[key] = n + (seen[key] and 0 or count + rows * more), true
  end
  return n
end

--- Draws a batch: prints what is in it, holds it against what was read.
local function check(name, draw)
  local before = ml.data.bytes_read()
  local batch, count = draw()
  local read, bytes = ml.data.bytes_read() - before, 0
  for _, field in ipairs(ml.core.tree_keys(batch)) do
    bytes = bytes + ELEMENT_BYTES[field] * held(batch[field], field == "inputs" and 1 or 0)
    out.print("%s %s %s %s: %08x", name, field, ml.typeof(batch[field]), count or "",
      out.hash(ml.all_gather_to_host(batch[field]):bytes()))
  end
  assert(read == bytes, ("%s: %d bytes were read for %d"):format(name, read, bytes))
end

local flat, grid = ml.make_mesh({8}, {"data"}), ml.make_mesh({2, 4}, {"data", "model"})
local layouts = {
  {flat, P "data", P "data"},
  {grid, P "data", P "data"},
  {grid, P("data", "model"), P {"model", "data"}},
  {grid, P(nil, {"data", "model"}), P()},
  {flat, P {"data", uneven = "pad"}, P {"data", uneven = "pad"}, size = 12},
}
for i, layout in ipairs(layouts) do
  local mesh, size = layout[1], layout.size or 16
  local wide, narrow = NamedSharding(mesh, layout[2]), NamedSharding(mesh, layout[3])
  local windows = text:shuffled {batch = size, seed = 3, shardings = {inputs = wide, labels = wide}}
  for step = 1, 2 do check(("windows %d step %d"):format(i, step), function() return windows(step) end) end
  local images = pictures:shuffled {batch = size, shardings = {image = wide, label = narrow}}
  check(("images %d"):format(i), function() return images(7) end)
  local next_batch = pictures:each(size, {image = wide, label = narrow})
  for _ = 1, 2 do check(("images in order %d"):format(i), next_batch) end
end

-- Columns of pictures lie apart in the file.
local columns = NamedSharding(grid, P("data", nil, "model"))
check("columns", function()
  return pictures:batch({5, 0, 5, 19}, {image = columns, label = NamedSharding(grid, P "data")})
end)
