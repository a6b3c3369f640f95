-- train.lua RULES DATA MODEL ["tiny"|"scan"] ["leaves"]: twenty steps of a small GPT, or three of a tiny one, or of one
-- whose four layers are a loop; in leaves. Rank 0 prints the losses and a checksum of every parameter: the same text
-- however the devices are spread over processes.
local ml = require "meshlua"
local out = require "out"
local small_gpt = require "small_gpt"

local scan = arg[4] == "scan"
local tiny = scan or arg[4] == "tiny"
local leaves = arg[#arg] == "leaves" and 8 or nil
local STEPS = tiny and 3 or 20
local mesh = ml.make_mesh({tonumber(arg[2]), tonumber(arg[3])}, {"data", "model"})
local cfg, model, optimizer, step = small_gpt(mesh, arg[1], {
  layers = scan and 4 or tiny and 1 or 2, scan = scan,
  width = tiny and 16 or 64, heads = 4, seq = tiny and 8 or 32,
  batch = tiny and 8 or 16, warmup = 2, steps = STEPS}, leaves)

local batch = ml.NamedSharding(mesh, ml.P("data"))
for i = 1, STEPS do
  local function draw(salt)
    return ml.device_put(ml.random.randint(ml.random.key(100 * salt + i), {cfg.batch, cfg.seq}, 0, 256),
      batch)
  end
  out.print("step %d: %a", i, step(model, optimizer, draw(1), draw(2)):item())
end
local sums = {}
ml.tree.map_with_path(function(path, leaf)
  sums[#sums + 1] = ("%s: %08x"):format(path, out.hash(ml.all_gather_to_host(leaf):bytes()))
end, ml.state(model))
for _, line in ipairs(sums) do out.print("%s", line) end
