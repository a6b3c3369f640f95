-- backtest.lua: what the planner predicts of training runs that others have published, row by row, of the card that
-- stands for the devices: build/meshlua --devices=fake:h100:384 bench/backtest.lua. bench/backtest writes
-- docs/backtest.md with it, which has all cards. bench/published/ has the rows, in the words of their sources
-- (sources.tsv). With a row's number it is planned alone.
local core = require "meshlua.core"
local decoder = require "models.decoder"
local estimate = require "meshlua.plan.estimate"
local step = require "meshlua.plan.step"

local card = (core.device_kind())

--- The rows of a file of cells between tabs.
local function rows_of(path)
  local list = {}
  for line in io.lines(path) do
    local row = {}
    for cell in (line .. "\t"):gmatch "([^\t]*)\t" do row[#row + 1] = cell end
    list[#list + 1] = row
  end
  return list
end

local function whole(text) return math.tointeger(tonumber(text)) end

-- ---- models -------------------------------------------------------------------------------------------

--- Which models have learned positions, and biases: prefixes of their names.
local LEARNED = {"MPT", "GPT", "MG", "NM", "FA", "PX"}
local BIASED = {"GPT", "BS", "NeoX", "MG", "NM", "PX", "FA"}

local function begins(name, list)
  for _, prefix in ipairs(list) do
    if name:sub(1, #prefix) == prefix then return true end
  end
  return false
end

local models = {}
for _, r in ipairs(rows_of "bench/published/models.tsv") do
  local name, gated, biased = r[1], r[8] == "3", begins(r[1], BIASED)
  models[name] = setmetatable({layers = whole(r[2]), width = whole(r[3]), heads = whole(r[4]),
    kv_heads = whole(r[5]), head_dim = whole(r[6]), hidden = whole(r[7]), vocab = whole(r[9]),
    tied = r[10] == "t", gated = gated, activation = gated and "silu" or "gelu", norm = gated and "rms"
      or "layer",
    norm_bias = biased, attention_bias = biased, out_bias = biased, mlp_bias = biased,
    positions = begins(name, {"BS"}) and "alibi" or begins(name, LEARNED) and "learned" or "rotary",
    qk_norm = begins(name, {"Q3"}), parallel = begins(name, {"NeoX"}) and 2 or 0, scan = false,
    precision = "bf16"}, {__index = decoder.config})
end

--- Operations per token: 6 N without the input embedding, and attention by half, as a causal mask leaves.
local function flops_per_token(m, seq)
  local n = m.layers * (m.width * m.head_dim * (2 * m.heads + 2 * m.kv_heads)
    + m.width * m.hidden * (m.gated and 3 or 2)) + m.width * m.vocab
  return 6.0 * n + 6.0 * m.layers * seq * m.heads * m.head_dim
end

-- ---- layouts ------------------------------------------------------------------------------------------

--- What of a block is computed again, by words of the sources.
local REMAT = {{"none", "none"}, {"full", "full"}, {"5of32", "none"}, {"sel", "dots"}, {"dots", "dots"}}

local function remat_of(numerics)
  for _, row in ipairs(REMAT) do
    if numerics:find(row[1], 1, true) then return row[2] end
  end
  return "none"
end

--- Fused by a compiler (torch.compile, XLA) or written so (Transformer Engine, fused kernels of Megatron).
local function kernels_of(numerics, source)
  if numerics:find "fp8" then return "fp8" end
  local fused = numerics:find " c%f[%A]" or numerics:find "TE" or source:find "^H" or source:find "^P2"
    or source:find "^G" or source:find "^P "
  return fused and "compiled" or "eager"
end

--- Splits what it can over the axis, and leaves the rest whole.
local function split(path, param, own)
  local done, spec = pcall(decoder.rules.fsdp[1], path, param, own)
  return done and spec or nil
end

local ALONE = table.move(decoder.rules.tp, 2, #decoder.rules.tp, 1, {})

local function rule_set(kind, sequence)
  local list = {{"batch", {"replica", "data"}}}
  if kind == "sharded" then table.insert(list, 1, split) end
  if kind == "state" then table.insert(list, 1, {opt = split}) end
  if sequence then list[#list + 1] = {"tokens", "model"} end
  return table.move(ALONE, 1, #ALONE, #list + 1, list)
end

--- The layout of a plan's words; nil and the reason where the planner has no word for it.
local function layout_of(words, gpus)
  if words:find "pp[2-9]" or words:find "pp%d%d" then return nil, "a pipeline" end
  if words:find "cp%d" then return nil, "context parallelism" end
  local parts = whole(words:match "tp(%d+)" or 1)
  local shards, copies = words:match "hsdp(%d+)x(%d+)"
  local outer, inner = words:match "dp(%d+) fsdp(%d+)"
  shards, copies = whole(inner or shards or gpus // parts), whole(outer or copies or 1)
  local rules = words:find "fsdp" and "sharded" or words:find "hsdp" and "sharded"
    or (words:find "z1" or words:find "^dp") and "state" or "whole"
  return {axes = {"replica", "data", "model"}, sizes = {copies, shards, parts}, microbatches = 1,
    rules = rules,
    sequence = words:find " sp" ~= nil}
end

--- Seconds of a step of so many parts: what replicas of the batch sum is sent once, what is sharded for each
--- part.
local function seconds_of(planned, kernels, parts)
  local work = planned.work
  local all = estimate.seconds(work, estimate.factor(card, kernels))
  if planned.layout.rules == "sharded" or work.sending == 0 then return parts * all end
  local once = 0
  for _, item in ipairs(work.items) do
    local model = false
    for _, axis in ipairs(item.axes or {}) do model = model or axis == "model" end
    if not model then once = once + item.sending end
  end
  local waited = math.max(0, work.wall - work.computing) * once / work.sending
  return parts * (all - waited) + waited
end

-- ---- rows ---------------------------------------------------------------------------------------------

local function fitted(number, kernels)
  local row = estimate.cards[card][kernels]
  return row and (" " .. row.rows .. " "):find(" " .. number .. " ", 1, true) ~= nil
end

--- Plans a row: a line for people, and the share by which the prediction is off (nil: nothing to hold it
--- against).
local function try(r)
  local _, number, name, seq, gpus, batch, words, numerics = table.unpack(r)
  seq, gpus = whole(seq), whole(gpus)
  local layout, why = layout_of(words, gpus)
  if not layout then return ("| %s | %s | %s | - | not planned: %s |"):format(number, name, words, why) end
  local places = layout.sizes[1] * layout.sizes[2]
  local all, part = batch:match "(%d+)/(%d*)"
  all, part = whole(all), whole(part)
  part = part or math.max(1, all // places)
  local config = setmetatable({seq = seq, batch = part * places, remat = remat_of(numerics)},
    {__index = models[name]})
  local recipe = setmetatable({config = config,
    rules = {[layout.rules] = rule_set(layout.rules, layout.sequence)}}, {__index = decoder})
  local planned, message = step.plan(recipe, config, step.data(recipe, config), layout)
  if not planned then return ("| %s | %s | %s | - | not planned: %s |"):format(number, name, words,
    message) end
  local kernels = kernels_of(numerics, r[14] or "")
  local parts = math.max(1, all // (part * places))
  local rate = all * seq * flops_per_token(models[name], seq) / gpus / seconds_of(planned, kernels,
    parts) / 1e12
  local measured = tonumber(r[12])
  local off = measured and rate / measured - 1
  local memory = ("%.1f%s"):format(planned.peak / 2 ^ 30, r[13] and r[13] ~= "" and " of " .. r[13] or "")
  return ("| %s | %s | %s, %s | %.0f of %s | %s%s | %s%s |"):format(number, name, words, kernels, rate,
    measured and r[12] or "-", off and ("%+.0f %%"):format(100 * off) or "",
    fitted(number, kernels) and " (fitted)" or "", memory, planned.fits and "" or " (does not fit)"),
    not fitted(number, kernels) and off or nil, rate, measured
end

--- The rank correlation of pairs (Spearman), without ties.
local function correlation(pairs_of)
  local n = #pairs_of
  for _, k in ipairs {1, 2} do
    table.sort(pairs_of, function(a, b) return a[k] < b[k] end)
    for i, pair in ipairs(pairs_of) do pair[k + 2] = i end
  end
  local sum = 0
  for _, pair in ipairs(pairs_of) do sum = sum + (pair[3] - pair[4]) ^ 2 end
  return n > 2 and 1 - 6 * sum / (n * (n * n - 1)) or 1
end

print(("## %s\n\n| row | model | plan, kernels | TFLOP/s, predicted of measured | off "
  .. "| GiB, predicted of measured |\n|---|---|---|---|---|---|"):format(card))
local before, sum, count, both = os.clock(), 0, 0, {}
for _, r in ipairs(rows_of "bench/published/runs.tsv") do
  if r[1] == card and (not arg[1] or arg[1] == r[2]) then
    local line, off, rate, measured = try(r)
    print(line)
    if off then sum, count = sum + math.abs(off), count + 1 end
    if measured and rate then both[#both + 1] = {rate, measured} end
  end
end
print(("\n%d rows that nothing was fitted to, off by %.1f %% in the mean; rank correlation of %d rows "
  .. "%.2f\n"):format(count, count > 0 and 100 * sum / count or 0, #both, correlation(both)))
io.stderr:write(("%s: %.1f seconds\n"):format(card, os.clock() - before))
