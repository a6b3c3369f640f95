-- layouts.lua: what each of 64 GPUs that are not here would hold, send and need for a training step of a GPT with 13
-- billion parameters, in several layouts; times are estimates, of a GPU that reaches its peaks:
--   build/meshlua --devices=fake:h200:64 docs/layouts.lua
local ml, gpt = require "meshlua", require "models.gpt"

--- sizes: places along data, which has the batch and a share of each matrix (FSDP), and along model, which splits
--- matrices and heads (tensor parallelism).
local function explain(sizes)
  local on = {mesh = ml.make_mesh(sizes, {"data", "model"}),
    rules = {ml.shard_largest("data", 1 << 20), table.unpack(gpt.rules.tp)}}
  local cfg = setmetatable({layers = 40, width = 5120, heads = 40, seq = 2048, vocab = 50304, batch = 64,
    precision = "bf16"}, {__index = gpt.config})
  local model = ml.init(function(rngs) return gpt.build(cfg, rngs) end, on)
  local step = ml.jit(function(m, opt, ids, labels)
    local loss, grads = ml.value_and_grad(gpt.loss)(m, ids, labels)
    opt:update(m, grads)
    return loss
  end, on)
  local ids = ml.ShapeDtypeStruct({cfg.batch, cfg.seq}, "int32", ml.NamedSharding(on.mesh, ml.P "data"))
  return ml.explain(step:plan(model, gpt.optimizer(model, cfg), ids, ids))
end

for _, sizes in ipairs {{64, 1}, {16, 4}, {8, 8}} do
  local e = explain(sizes)
  print(("%2d x %d: %.1f GB of memory, %.1f GB sent, %.2f s at best"):format(sizes[1], sizes[2],
    e.memory.peak / 1e9, e.sent / 1e9, e.work.computing + e.work.sending))
end
