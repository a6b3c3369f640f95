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

-- What is mixed, packed, mapped and picked: each process computes what its devices hold, in the order of one.
local bytes = ml.core.tokens(assert(ml.core.data_file(arg[2])), 1)
local documents = assert(ml.data.documents(bytes, {ends = 0}))
local packed = ml.data.mix({assert(ml.data.pack(documents, 8)), assert(ml.data.pack(documents, 8,
  {mode = "best_fit"}))}, {0.7, 0.3})
local computed = 0
local mapped = text:map(function(record, id)
  computed = computed + 1
  return {x = record.inputs, id = id}
end)
local picked = assert(mapped:filter(function(record) return record.id % 3 == 0 end))
local worked = pictures:map("batches_module")
for _, case in ipairs {{"packed", packed}, {"picked", picked}, {"worked", worked}} do
  local name, records = case[1], case[2]
  local shardings = {}
  for field in pairs(records.fields) do shardings[field] = NamedSharding(grid, P "data") end
  local batches = records:shuffled {batch = 8, seed = 5, shardings = shardings}
  computed = 0
  for _, step in ipairs {1, 2, 30} do
    local batch = batches(step)
    for _, field in ipairs(ml.core.tree_keys(batch)) do
      local whole = ml.all_gather_to_host(batch[field]):bytes()
      out.print("%s step %d %s: %08x", name, step, field, out.hash(whole))
    end
  end
  if name == "picked" then assert(computed == 3 * 8 // math.min(2, ml.core.process_count())) end
end
