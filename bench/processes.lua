-- processes.lua: what it costs to be several processes; processes.sh starts it in them.
--   allreduce BYTES...  an all_reduce of so many bytes of float32 in each, in turns with bare MPI_Allreduce
--   gpt MESH RULES      the training step of rows/train.lua
local here = arg[0]:match "^(.*)/" or "."
package.path = here .. "/rows/?.lua;" .. here .. "/../models/?.lua;" .. package.path
package.cpath = here .. "/.cache/?.so;" .. package.cpath
local ml = require "meshlua"
local clock = ml.core.clock

local ROUNDS, STEPS = 15, 25

local function median(list)
  table.sort(list)
  return list[#list // 2 + 1]
end

local function say(...)
  if ml.process_index() == 0 then print(string.format(...)) end
end

local function allreduce(bytes)
  local bare = require "bare_mpi"
  local n = ml.device_count()
  local mesh = ml.make_mesh({n}, {"x"})
  local x = ml.device_put(ml.ones {n, bytes // 4}, ml.NamedSharding(mesh, ml.P "x"))
  local sum = ml.jit(ml.shard_map(function(t) return ml.psum(t, "x") end,
    {mesh = mesh, in_specs = {ml.P "x"}, out_specs = ml.P()}))
  local times = math.max(3, math.min(200, (16 << 20) // bytes))
  local function ours()
    bare.barrier()
    local start = clock()
    for _ = 1, times do sum(x) end
    return (clock() - start) / times
  end
  ours()
  bare.allreduce(bytes, times)
  local ratio, mine, theirs = {}, {}, {}
  for i = 1, ROUNDS do
    theirs[i] = bare.allreduce(bytes, times)
    mine[i] = ours()
    ratio[i] = mine[i] / theirs[i]
  end
  say("%9d bytes  %8.1f us  MPI_Allreduce %8.1f us  ratio %.2f", bytes, median(mine) * 1e6,
    median(theirs) * 1e6, median(ratio))
end

local function gpt(mesh, rules)
  local case = require "train" {arm = "meshlua", mesh = mesh, rules = rules}
  for _ = 1, 3 do case.run() end
  local times = {}
  for i = 1, STEPS do
    local start = clock()
    case.run()
    times[i] = clock() - start
  end
  say("%.2f", median(times) * 1e3)
end

if arg[1] == "gpt" then gpt(arg[2], arg[3]) end
for i = 2, arg[1] == "allreduce" and #arg or 0 do allreduce(math.tointeger(arg[i])) end
