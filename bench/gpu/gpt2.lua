-- gpt2.lua BATCH [STEPS] [KEY=VALUE ...]: trains GPT-2 124M on random tokens, in bfloat16 with float32 masters, and
-- prints one line: first=S ms=MS tokens=TOK/S peak=BYTES host=US peak_flops=FLOPS loss=FIRST,LAST. `first`: seconds from
-- the start of the process to the end of the first step; `host`: microseconds that the host needs for a replayed
-- step; `peak_flops`: operations per second of bfloat16 products by the GPU's datasheet, 0 where it is not known.
package.path = "models/?.lua;" .. package.path
local ml = require "meshlua"
local gpt = require "gpt"

local batch, steps = tonumber(arg[1] or 16), tonumber(arg[2] or 30)
local cfg = setmetatable({layers = 12, width = 768, heads = 12, seq = 1024, vocab = 50304, batch = batch,
  precision = "bf16", steps = 1000}, {__index = gpt.config})
for i = 3, #arg do
  local key, value = arg[i]:match "^(%w+)=(.*)$"
  cfg[key] = tonumber(value) or value
end
local started = tonumber(os.getenv "STARTED") or os.time()

local model = ml.init(function(rngs) return gpt.build(cfg, rngs) end,
  {seed = 0, rules = gpt.rules.dp})
local optimizer = ml.optim.adamw(model, {lr = 3e-4, b1 = 0.9, b2 = 0.95, weight_decay = 0.1,
  mask = "matrices"})
local step = ml.jit(function(m, o, ids, labels)
  local loss, grads = ml.value_and_grad(function(q) return gpt.loss(q, ids, labels) end)(m)
  o:update(m, grads)
  return loss
end, {rules = gpt.rules.dp})

--- The tokens of a batch, and those behind them.
local function draw(i)
  local tokens = ml.random.randint(ml.random.key(i), {cfg.batch, cfg.seq + 1}, 0, cfg.vocab)
  return tokens:slice({}, {1, cfg.seq}), tokens:slice({}, {2, cfg.seq + 1})
end

--- Seconds since the epoch, to the nanosecond.
local function now()
  local pipe <close> = assert(io.popen "date +%s.%N")
  return tonumber(pipe:read "l")
end

step = step:bind(model, optimizer)
local ids, labels = draw(1)
local first_loss = step(ids, labels):item()
local first = now() - started
for _ = 1, 5 do step(ids, labels) end -- chooses, captures
ml.block_until_ready(model)

local clock, host = ml.core.clock, 0
local before = clock()
local loss
for _ = 1, steps do
  local called = clock()
  loss = step(ids, labels)
  host = host + clock() - called
end
local last_loss = loss:item()
local seconds = (clock() - before) / steps
print(("first=%.2f ms=%.2f tokens=%.0f peak=%d host=%.1f peak_flops=%.0f loss=%.4f,%.4f"):format(first,
  1e3 * seconds, cfg.batch * cfg.seq / seconds, ml.core.memory().peak, 1e6 * host / steps,
  ml.core.device_peak "bfloat16" or 0, first_loss, last_loss))
