-- transfer.lua FILE write|read LAYOUT: writes tensors that lie in that layout into one file, each process what is
-- its part; or reads them in that layout, and says how many bytes this process has read.
local ml = require "meshlua"
local core = ml.core

local file, mode, name = table.unpack(arg)
local n = ml.device_count()
local mesh = ml.make_mesh({n // 2, 2}, {"data", "model"})
local spec = ({rows = ml.P({"data", "model"}, nil), columns = ml.P(nil, {"data", "model"}),
  both = ml.P("model", "data"), whole = ml.P()})[name]
local sharding = ml.NamedSharding(mesh, spec)
local shape, count = {256, 1024}, 4
local bytes = 4 * shape[1] * shape[2]

local function piece(from)
  from.at, from.size, from.factors = {0, 0}, shape, {{1, shape[1], shape[2]}, {2, shape[2], 1}}
  return from
end

local function values(i)
  return ml.device_put(ml.arange(0.0, shape[1] * shape[2]):reshape(shape) * i, sharding)
end

local entries = {}
for i = 1, count do entries[i] = {name = "x" .. i, encoding = "F32", shape = shape} end
local plan = assert(core.catalog_layout("safetensors", entries, {}))
local result
if mode == "write" then
  local w = core.writer()
  local f = assert(w:file(file, {size = plan.size, create = true,
    header = ml.process_index() == 0 and plan.header or nil}))
  for i = 1, count do
    w:add(values(i), i - 1, {piece {file = f, begin = plan.begin[i], dtype = "float32"}})
  end
  w:start()
  result = assert(w:wait()).bytes
  w:release()
else
  local c = assert(core.catalog(file))
  for i = 1, count do
    local x = assert(core.catalog_load("float32", shape, sharding, {piece {catalog = c, entry = i}}))
    assert(x:eq(values(i)):all():item(), "other values")
  end
  result = core.catalog_bytes()
end
local each = {}
for i in ipairs(ml.local_devices()) do each[i] = result end
local flat = ml.make_mesh({n}, {"device"})
local all = ml.all_gather_to_host(ml.make_array_from_process_local_data(ml.NamedSharding(flat, ml.P "device"),
  core.tensor(each, "int64"))):totable()
if ml.process_index() > 0 then return end
for i = 1, #all, #each do print(("%d of %d"):format(all[i], count * bytes)) end
