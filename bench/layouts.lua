-- layouts.lua: what the planner predicts of many layouts on the processor's eight devices, held against what they take
-- here: build/meshlua --devices=8 bench/layouts.lua [ROUNDS [CLOCK [MODEL]]]. bench/layouts writes docs/layouts.md. All
-- steps are compiled before the first is timed; then each round runs every step once, in an order of its own. The
-- clock `cpu` is the process's time on cores: for machines with other work, with MESHLUA_THREADS=1.
local core = require "meshlua.core"
local gpt = require "models.gpt"
local lib = require "meshlua.lib"
local mesh_of = require "meshlua.sharding.mesh"
local ml = require "meshlua"
local mlp = require "models.mlp"
local runs = require "meshlua.train.run"
local step = require "meshlua.plan.step"

local rounds, clock = math.tointeger(tonumber(arg[1] or 80)), arg[2] == "cpu" and os.clock or core.clock

-- ---- layouts ------------------------------------------------------------------------------------------

--- Meshes, and behind each the rules of its layouts: "batch=data heads=model" splits dims of those names over these
--- axes, "*=data" of each matrix and embedding what can be. "" splits nothing.
local MODELS = {
  {name = "GPT-S", recipe = gpt, config = {},
    fields = {inputs = {shape = {64}, dtype = "int32", most = 256},
      labels = {shape = {64}, dtype = "int32", most = 256}},
    {"data:8", "", "batch=data", "batch=data *=data", "*=data", "batch=data vocab=data", "embed=data",
      "tokens=data", "batch=data embed=data", "vocab=data"},
    {"model:8", "heads=model mlp=model", "heads=model mlp=model tokens=model", "mlp=model", "heads=model",
      "heads=model mlp=model vocab=model", "embed=model mlp=model", "*=model heads=model",
      "mlp=model tokens=model"},
    {"data:4,model:2", "batch=data", "batch=data heads=model mlp=model",
      "batch=data heads=model mlp=model tokens=model", "batch=data heads=model mlp=model *=data",
      "batch=data embed=model", "batch=data tokens=model", "batch=data vocab=model", "heads=model mlp=model",
      "batch=model heads=data", "embed=data tokens=model"},
    {"data:2,model:4", "batch=data heads=model mlp=model", "batch=data heads=model mlp=model tokens=model",
      "batch=data heads=model mlp=model *=data", "batch=data,model *=model", "batch=data embed=model",
      "batch=data mlp=model", "batch=data heads=model", "batch=data tokens=model", "embed=model tokens=data",
      "*=model"},
    {"data:2,model:2,fsdp:2", "batch=data,fsdp heads=model mlp=model *=fsdp", "batch=data,fsdp *=fsdp",
      "batch=data heads=model mlp=fsdp", "batch=data tokens=model embed=fsdp",
      "batch=data heads=model mlp=model embed=fsdp", "tokens=data embed=fsdp vocab=model"}},
  {name = "MLP", recipe = mlp, config = {width = 1024, batch = 64},
    fields = {inputs = {shape = {28, 28}, dtype = "uint8", most = 256},
      labels = {shape = {}, dtype = "uint8", most = 10}},
    {"data:8", "", "batch=data", "batch=data *=data", "*=data", "pixels=data", "batch=data hidden=data"},
    {"model:8", "hidden=model", "features=model", "hidden=model pixels=model", "hidden=model features=model"},
    {"data:4,model:2", "batch=data", "batch=data hidden=model", "batch=data hidden=model *=data",
      "batch=data features=model", "batch=data pixels=model", "batch=data,model *=data",
      "hidden=data features=model"},
    {"data:2,model:4", "batch=data", "batch=data hidden=model", "batch=data hidden=model *=data",
      "batch=data features=model", "batch=data pixels=model", "hidden=data features=model"},
    {"data:2,model:2,fsdp:2", "batch=data,fsdp hidden=model *=fsdp", "batch=data,fsdp *=fsdp",
      "batch=data hidden=model features=fsdp", "batch=data pixels=fsdp hidden=model"}},
}

--- Splits what it can of matrices and embeddings over the axis.
local function split_over(axis)
  local split = ml.shard_largest(axis, 1024)
  return function(path, param, own)
    if param.role == "kernel" or param.role == "embedding" then return split(path, param, own) end
  end
end

--- The rules of a text; each name that the recipe's rules have stays whole behind them.
local function rules_of(recipe, text)
  local rules = {}
  for name, targets in text:gmatch "(%S+)=(%S+)" do
    local axes = {}
    for axis in targets:gmatch "[^,]+" do axes[#axes + 1] = axis end
    rules[#rules + 1] = name == "*" and split_over(axes[1]) or {name, axes}
  end
  for _, rule in ipairs(recipe.rules.tp) do
    if rule[2] == false then rules[#rules + 1] = rule end
  end
  return rules
end

-- ---- one layout ---------------------------------------------------------------------------------------

--- A batch of numbers, as the run lays it out.
local function random_batch(run, model, name)
  local field = model.fields[name]
  local shape = {run.config.batch, table.unpack(field.shape)}
  local x = ml.random.randint(ml.random.key(1), shape, 0, field.most):astype(field.dtype)
  return ml.device_put(x, run.shardings[name])
end

--- {mesh, rules, predicted, times, run}.
local function case_of(model, mesh, text)
  local axes, sizes = runs.read_mesh(mesh)
  local rules, data = rules_of(model.recipe, text), {train = {fields = model.fields}, unit = "record"}
  local config = setmetatable(model.config, {__index = model.recipe.config})
  local recipe = setmetatable({rules = {own = rules}}, {__index = model.recipe})
  local planned = assert(step.plan(recipe, config, data, {axes = axes, sizes = sizes, rules = "own",
    microbatches = 1}))
  local run = runs.new(recipe, {config = config, seed = 0, mesh = mesh_of.make_mesh(sizes, axes),
    rules = rules, data = data})
  local inputs, labels = random_batch(run, model, "inputs"), random_batch(run, model, "labels")
  local bound = run.train_step:bind(run.model:train(), run.optimizer, run.rngs)
  return {mesh = mesh, rules = text == "" and "nothing" or text, predicted = planned.seconds, times = {},
    run = function()
      local loss, norm = bound(inputs, labels)
      loss:item()
      norm:release()
    end}
end

-- ---- all of them --------------------------------------------------------------------------------------

local function measure(cases)
  for _, case in ipairs(cases) do
    for _ = 1, 3 do case.run() end
  end
  local order = table.move(cases, 1, #cases, 1, {})
  math.randomseed(1)
  for _ = 1, rounds do
    for i = #order, 2, -1 do
      local k = math.random(i)
      order[i], order[k] = order[k], order[i]
    end
    for _, case in ipairs(order) do
      local before = clock()
      case.run()
      table.insert(case.times, clock() - before)
    end
  end
  for _, case in ipairs(cases) do
    table.sort(case.times)
    case.measured = case.times[#case.times // 2 + 1]
  end
end

--- Sets each case's rank by a field, of equal ones the mean of theirs.
local function rank(cases, field, name)
  for _, case in ipairs(cases) do
    local below, equal = 0, 0
    for _, other in ipairs(cases) do
      below = below + (other[field] < case[field] and 1 or 0)
      equal = equal + (other[field] == case[field] and 1 or 0)
    end
    case[name] = below + (equal + 1) / 2
  end
end

--- The rank correlation of what is predicted and measured (Spearman).
local function correlation(cases)
  rank(cases, "predicted", "foreseen")
  rank(cases, "measured", "place")
  local mean, both, x, y = (#cases + 1) / 2, 0, 0, 0
  for _, case in ipairs(cases) do
    local a, b = case.foreseen - mean, case.place - mean
    both, x, y = both + a * b, x + a * a, y + b * b
  end
  return both / math.sqrt(x * y)
end

local function report(model, cases)
  local rho = correlation(cases)
  table.sort(cases, function(a, b) return a.measured < b.measured end)
  local best, ratios = cases[1], {}
  for i, case in ipairs(cases) do
    best = case.predicted < best.predicted and case or best
    ratios[i] = case.predicted / case.measured
  end
  table.sort(ratios)
  print(("## %s\n\n| mesh | split | predicted, ms | measured, ms | rank, predicted of measured |\n"
    .. "|---|---|---|---|---|"):format(model.name))
  for _, case in ipairs(cases) do
    print(("| %s | %s | %.2f | %.2f | %g of %g |"):format(case.mesh, case.rules, 1e3 * case.predicted,
      1e3 * case.measured, case.foreseen, case.place))
  end
  print(("\n%d layouts: rank correlation %.2f; the predicted best takes %.1f %% longer than the measured "
    .. "best and is the %g. of them; predicted over measured %.2f in the median, %.2f to %.2f\n"):format(
    #cases, rho, 100 * (best.measured / cases[1].measured - 1), best.place, ratios[#ratios // 2 + 1],
    ratios[1], ratios[#ratios]))
end

local before, all, of = core.clock(), {}, {}
for i, model in ipairs(MODELS) do
  of[i] = {}
  for _, group in ipairs((arg[3] or model.name) == model.name and model or {}) do
    for k = 2, #group do
      all[#all + 1] = case_of(model, group[1], group[k])
      table.insert(of[i], all[#all])
    end
  end
end
measure(all)
for i, model in ipairs(MODELS) do
  if #of[i] > 0 then report(model, of[i]) end
end
print(("All %d layouts: rank correlation %.2f. %s on %s%s."):format(#all, correlation(all),
  lib.count(rounds, "round"), lib.count(core.thread_count(), "thread"),
  clock == os.clock and "; measured is time on cores, with other work beside it" or ""))
io.stderr:write(("%.0f seconds\n"):format(core.clock() - before))
