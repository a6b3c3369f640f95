-- backtest.lua: what the planner predicts of training runs that others have published, row by row, of the card
-- that stands for the devices: build/meshlua --devices=fake:h100:384 bench/backtest.lua. bench/backtest writes
-- docs/backtest.md with it, which has all cards. bench/published/ has the rows, in the words of their sources
-- (sources.tsv). With a row's number it is planned alone.
local core = require "meshlua.core"
local decoder = require "models.decoder"
local cards = require "meshlua.plan.cards"
local estimate = require "meshlua.plan.estimate"
local ml = require "meshlua"
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

local keep = ml.remat_policies.save_only_these_names
--- What of a block is computed again, by words of the sources: a word of decoder.lua or a policy, and of how
--- many blocks one. torchtitan's policy keeps attention and each second product, MaxText's `minimal` all
--- products, its `save_dot_with_context_except_mlp` those of the attention. Of a fraction that no source says the
--- least that fits.
decoder.remat.second = keep("query", "value", "context", "gate", "down")
decoder.remat.attention = keep("query", "key", "value", "context", "out")
local REMAT = {{"none", "none"}, {"full", "full"}, {"5of32", "full", {6}}, {"sel-op", "second"},
  {"sel-layer", "full", {2}}, {"sel", "full", {4, 3, 2, 1}}, {"dots-", "attention"}, {"dots", "dots"}}

local function remat_of(numerics)
  for _, row in ipairs(REMAT) do
    if numerics:find(row[1], 1, true) then return row[2], row[3] or {1} end
  end
  return "none", {1}
end

--- The trainers of sources: see estimate.lua's Habits. First each logit's bytes that their loss passes over and
--- holds beside the plan's, by what their code does; whether attention had flash kernels, and which; Gb/s of a
--- node where it is said.
local EAGER_LOSS = {loss = 28, held_logits = 12} -- float32 logits, their log-softmax, the gradient of both
local SOURCES = {
  F = {flash = 1}, A = {flash = 1}, -- with kernels for the loss
  T1 = {EAGER_LOSS, flash = 2}, T2 = {EAGER_LOSS, flash = 2, fp8_gather = true},
  T3 = {EAGER_LOSS, flash = 2, fp8_gather = true}, T4 = {flash = 2, fp8_gather = true},
  T6 = {EAGER_LOSS, flash = 2, fp8_gather = true}, AO = {EAGER_LOSS, flash = 2, fp8_gather = true},
  I = {EAGER_LOSS, flash = 2, half = true, network = {a100 = 400, h100 = 800}},
  I0 = {EAGER_LOSS, flash = 2, half = true, network = {a100 = 400}},
  D = {EAGER_LOSS, flash = 2, network = {a100 = 800}, gradients = 1},
  S = {flash = 0, gradients = 2}, X = {flash = 0, gradients = 1}, M1 = {flash = 0, gradients = 1},
  K = {flash = 0},
  H = {EAGER_LOSS, flash = 2, gradients = 1},
  M2 = {sequence = true, hides = true, state = true, gradients = 2}, M3 = {state = true, gradients = 2},
  N = {sequence = true, state = true, gradients = 2}, B = {state = true, fp8_gather = true, gradients = 2},
  R = {{loss = 130, held_logits = 16}}, -- of reinforcement learning: a temperature, probabilities, entropy
}

local function source_of(words) return SOURCES[words:match "^%S+"] or {} end

--- Fused by a compiler (torch.compile, XLA) or written so (Transformer Engine, fused kernels).
local function kernels_of(numerics, source)
  if numerics:find "fp8" then return "fp8" end
  local fused = numerics:find " c%f[%A]" or numerics:find "TE" or numerics:find "fused" or numerics:find " R"
    or source:find "^P2" or source:find "^G" or source:find "^P "
  return fused and "compiled" or "eager"
end

--- What estimate.lua needs to know of a row's trainer.
local function habits_of(row, kernels)
  local source, numerics = source_of(row.source), row.numerics
  local gigabits = source.network and source.network[card]
  local loss = source[1] or {}
  return {flash = source.flash or tonumber(numerics:match "FA(%d)") or 3,
    vocab = row.model.vocab // row.layout.sizes[3],
    network = gigabits and gigabits * 1e9 / 8 / 8, loss = loss.loss,
    held_logits = row.config.loss_parts == 1 and loss.held_logits or 0,
    hides = (source.hides or numerics:find "aTP") and "model" or nil, gradients = source.gradients,
    half = {reduce_scatter = source.half or numerics:find "bf16r" ~= nil,
      all_gather = kernels == "fp8" and source.fp8_gather}}
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

--- Of `places` along an axis the most that divide what the rules split: others would have padding.
local function dividing(places, width)
  while width % places ~= 0 do places = places - 1 end
  return places
end

--- The layout of a plan's words; nil and the reason where the planner has no word for it.
local function layout_of(words, gpus, source, width)
  if words:find "pp[2-9]" or words:find "pp%d%d" then return nil, "a pipeline" end
  if words:find "cp%d" then return nil, "context parallelism" end
  local parts = whole(words:match "tp(%d+)" or 1)
  local shards, copies = words:match "hsdp(%d+)x(%d+)"
  local outer, inner = words:match "dp(%d+) fsdp(%d+)"
  copies = whole(outer or copies or 1)
  shards = whole(inner or shards or gpus // (parts * copies))
  local rules = words:find "fsdp" and "sharded" or words:find "hsdp" and "sharded"
    or (words:find "z1" or words:find "^dp" and source.state) and "state" or "whole"
  local sequence = words:find " sp" ~= nil or parts > 1 and source.sequence == true
  return {axes = {"replica", "data", "model"}, microbatches = 1, rules = rules, sequence = sequence,
    sizes = {copies, rules == "whole" and shards or dividing(shards, width), parts}}, copies * shards
end

--- What a step does once, whatever parts its batch comes in: the update, and where no weights are gathered for
--- each part what replicas of the batch send.
local function once(item, layout)
  if item.op == "adamw" or item.op == "sum_squares" then return true end
  return layout.rules ~= "sharded" and item.axes ~= nil and item.axes[1] ~= "model"
end

--- Seconds of a step of so many parts.
local function seconds_of(planned, row, kernels)
  local times = estimate.times(planned.work, card, kernels, habits_of(row, kernels))
  for i, item in ipairs(planned.work.items) do
    if once(item, row.layout) then times[i] = times[i] / row.parts end
  end
  -- each part reads and writes what is kept of the gradients
  local kept = 2 * (source_of(row.source).gradients or 0) * planned.memory.groups.parameters
  if row.parts == 1 then kept = 0 end
  return row.parts * (estimate.total(planned.work, times, true) + kept / cards[card].bandwidth)
end

-- ---- rows ---------------------------------------------------------------------------------------------

local function has_number(rows, number)
  return (" " .. rows .. " "):find(" " .. number .. " ", 1, true) ~= nil
end

local function fitted(number, kernels)
  local known = cards[card]
  return known[kernels] and has_number(known[kernels].rows, number)
    or has_number(known.attention_rows, number)
end

--- ZeRO-1: weights in 16 bits on each device, copies in float32 with the state.
local function zero_optimizer(model, cfg)
  return ml.optim.adamw(model, {lr = decoder.schedule(cfg), clip = cfg.clip, weight_decay = cfg.weight_decay,
    mask = "matrices", master = true})
end

local RESERVE, CONTEXT = 1.07, 1.5 * 2 ^ 30 -- what a caching allocator keeps; what stands beside it

--- What a row's programs hold, as its source measured it, and whether a card has that much.
local function memory_of(planned, row, kernels)
  local held = estimate.held(planned.work, planned.memory, kernels, habits_of(row, kernels))
  local fits = RESERVE * held <= cards[card].memory
  if not row.memory:find "a$" then held = RESERVE * held end
  return row.memory:find "n$" and held + CONTEXT or held, fits
end

--- Plans a row with parts of a batch of such a size, every so-many-th block computed again.
local function plan(row, part, every)
  local zero, places = row.layout.rules == "state", row.layout.sizes[1] * row.layout.sizes[2]
  row.parts = math.max(1, row.batch // (part * row.places))
  row.config = setmetatable({seq = row.seq, batch = part * places, remat = row.remat, remat_every = every,
    loss_parts = row.source:find "^R h" and 4 or 1, dtype = zero and "bfloat16" or "float32"},
    {__index = row.model})
  local recipe = setmetatable({config = row.config, optimizer = zero and zero_optimizer or nil,
    rules = {[row.layout.rules] = rule_set(row.layout.rules, row.layout.sequence)}}, {__index = decoder})
  return step.plan(recipe, row.config, step.data(recipe, row.config), row.layout)
end

--- Plans a row. What its source does not say is the fastest that fits: the largest parts, the fewest blocks
--- computed again.
local function first_that_fits(row, kernels)
  local parts, last, held, fits = {row.part}, nil, nil, nil
  if not row.part then
    local part = row.batch // row.places
    while part >= 1 do parts[#parts + 1], part = part, part // 2 end
  end
  for _, part in ipairs(parts) do
    for _, every in ipairs(row.every) do
      local planned, message = plan(row, part, every)
      if not planned then return nil, message end
      last, held, fits = planned, memory_of(planned, row, kernels)
      if fits then return last, held, fits end
    end
  end
  return last, held, fits
end

local function row_of(r)
  local row = {number = r[2], model = models[r[3]], name = r[3], seq = whole(r[4]), gpus = whole(r[5]),
    words = r[7], numerics = r[8], rate = tonumber(r[12]), memory = r[13] or "", source = r[14] or ""}
  local all, part = r[6]:match "(%d+)/(%d*)"
  row.batch, row.part = whole(all), whole(part)
  row.layout, row.places = layout_of(row.words, row.gpus, source_of(row.source), row.model.width)
  row.remat, row.every = remat_of(row.numerics)
  return row
end

--- Plans a row: a line for people, and what is counted: {rate, measured, off (nil: fitted, or not measured),
--- memory (by how much that is off)}.
local function try(r)
  local row = row_of(r)
  local kernels = kernels_of(row.numerics, row.source)
  local planned, held, fits
  local why = not row.layout and row.places
  if not why then
    row.layout.kernels = kernels
    planned, held, fits = first_that_fits(row, kernels)
    why = not planned and held
  end
  if why then
    return ("| %s | %s | %s | - | not planned: %s |"):format(row.number, row.name, row.words, why), {}
  end
  local seconds = seconds_of(planned, row, kernels)
  local rate = row.batch * row.seq * flops_per_token(row.model, row.seq) / row.gpus / seconds / 1e12
  local off = row.rate and rate / row.rate - 1
  local is_fitted = fitted(row.number, kernels)
  local published = tonumber(row.memory:match "^[%d.]+")
  local memory = ("%.1f%s%s"):format(held / 2 ^ 30, row.memory ~= "" and " of " .. row.memory or "",
    fits and "" or " (does not fit)")
  return ("| %s | %s | %s, %s | %.0f of %s | %s%s | %s |"):format(row.number, row.name, row.words, kernels,
    rate, row.rate and ("%.0f"):format(row.rate) or "-", off and ("%+.0f %%"):format(100 * off) or "",
    is_fitted and " (fitted)" or "", memory),
    {rate = rate, measured = row.rate, off = not is_fitted and off or nil,
      memory = published and math.abs(held / 2 ^ 30 / published - 1)}
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

--- The mean and the median of numbers.
local function middle(list)
  local sum = 0
  table.sort(list)
  for _, x in ipairs(list) do sum = sum + x end
  return sum / math.max(1, #list), #list > 0 and (list[(#list + 1) // 2] + list[#list // 2 + 1]) / 2 or 0
end

print(("## %s\n\n| row | model | plan, kernels | TFLOP/s, predicted of measured | off "
  .. "| GiB, predicted of measured |\n|---|---|---|---|---|---|"):format(card))
local sums <close> = arg[2] and assert(io.open(arg[2], "a"))
local before, offs, both = os.clock(), {}, {}
for _, r in ipairs(rows_of "bench/published/runs.tsv") do
  if r[1] == card and (not arg[1] or arg[1] == "" or arg[1] == r[2]) then
    local line, found = try(r)
    print(line)
    if found.off then offs[#offs + 1] = math.abs(found.off) end
    if found.measured then both[#both + 1] = {found.rate, found.measured} end
    if arg[2] then sums:write(found.off and ("time %.6f\n"):format(math.abs(found.off)) or "",
      found.memory and ("memory %.6f\n"):format(found.memory) or "") end
  end
end
local mean, median = middle(offs)
print(("\n%d rows that nothing was fitted to, off by %.1f %% in the mean, %.1f %% in the middle; rank "
  .. "correlation of %d rows %.2f\n"):format(#offs, 100 * mean, 100 * median, #both, correlation(both)))
io.stderr:write(("%s: %.1f seconds\n"):format(card, os.clock() - before))
