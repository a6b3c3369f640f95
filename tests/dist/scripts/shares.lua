-- shares.lua DATA MODEL FILE: a step of a small GPT under fsdp_tp. Rank 0 prints a line for each process: the bytes
-- of the parameters and the optimizer's state that it holds, and of the temporaries of a step; what its devices
-- computed in matrix products; and the bytes of the batch that it read.
local ml = require "meshlua"
local out = require "out"
local small_gpt = require "small_gpt"

local mesh = ml.make_mesh({tonumber(arg[1]), tonumber(arg[2])}, {"data", "model"})
local cfg, model, optimizer, step = small_gpt(mesh, "fsdp_tp", {layers = 2, width = 256, heads = 8, seq = 64,
  batch = 64, warmup = 1, steps = 2})
local core = ml.core

local records = assert(ml.data.windows(assert(ml.data.tokens(arg[3])), cfg.seq))
local rows = ml.NamedSharding(mesh, ml.P "data")
local batches = records:shuffled {batch = cfg.batch, shardings = {inputs = rows, labels = rows}}

local function products()
  local sum = 0
  for _, device in ipairs(ml.local_devices()) do sum = sum + core.counters(device).matmul_flops end
  return sum
end

local read, flops = ml.data.bytes_read(), products()
local batch = batches(1)
step(model, optimizer, batch.inputs, batch.labels):item()
read, flops = ml.data.bytes_read() - read, products() - flops

--- What goes when the tensors of the model and the optimizer go.
local function released()
  collectgarbage()
  collectgarbage()
  local live = core.memory().live
  for _, part in ipairs {model, optimizer} do
    for _, leaf in ipairs((ml.tree.leaves(part))) do
      if core.is_box(leaf) then leaf:get():release() end
    end
  end
  return live - core.memory().live
end

local own = {released(), core.memory().workspace, math.tointeger(flops), read}
local each = {}
for i in ipairs(ml.local_devices()) do each[i] = own end
local flat = ml.make_mesh({ml.device_count()}, {"device"})
local all = ml.all_gather_to_host(ml.make_array_from_process_local_data(ml.NamedSharding(flat, ml.P "device"),
  core.tensor(each, "int64"))):totable()
for i = 1, #all, #each do
  out.print("rank %d: held %d temporaries %d flops %d read %d", (i - 1) // #each, table.unpack(all[i]))
end
