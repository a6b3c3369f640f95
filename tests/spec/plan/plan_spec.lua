-- plan_spec.lua: the verb `plan`, as users call it.
local core = require "meshlua.core"
local dkjson = require "dkjson"
local helper = require "spec.helper"
local oracle = require "spec.oracle"

local configs = {}
for _, row in ipairs(oracle.read "configs") do configs[row.name] = dkjson.encode(row.config) end

--- What stands in a command line: a published model's file in place of its name, a file with that text.
local function file_of(word)
  local text, chunk = configs[word] or word:match "^text:(.*)$", word:match "^lua:(.*)$"
  return chunk and helper.file(chunk, ".lua") or text and helper.file(text, ".json") or word
end

local function plan(name, devices, ...)
  return helper.run {"--devices=" .. devices, "plan", file_of(name), ...}
end

--- What --json says.
local function planned(name, devices, ...)
  local out, err, code = plan(name, devices, "--json", ...)
  assert.equal(0, code, err)
  return core.json(out)
end

local INSENSIBLE = [[
  local recipe = setmetatable({sensible = function() return false end}, {__index = require "models.mlp"})
  for key, value in pairs(require "models.mlp") do recipe[key] = recipe[key] or value end
  return recipe]]

--- A recipe one of whose functions raises.
local function raising(name, how)
  return ([[lua:local recipe = setmetatable({}, {__index = require "models.mlp"})
  for key, value in pairs(require "models.mlp") do recipe[key] = value end
  function recipe.%s() %s end
  return recipe]]):format(name, how or "error 'boom'")
end

local figures = helper.figures

describe("meshlua plan", function()
  it("says in its first line what to use", function()
    local out, err, code = plan("llama-3-8b", "fake:h200:8")
    assert.equal(0, code, err)
    assert.matches("^fits when split: use %-%-mesh=%S+ %-%-rules=%S+: %S+ GiB of %S+ GiB a device, ", out)
    assert.matches("^[^\n]+ would cost %+%d+ %%\n", out)
    for _, text in ipairs {"8.03 B parameters (8030261248)", "layouts, best first", "all_gather over data",
      "torchtitan: --parallelism.data_parallel_replicate_degree=", "MaxText: ici_", "JAX PartitionSpecs:",
      "embed.embedding: P("} do
      assert(out:find(text, 1, true), text)
    end
  end)

  it("takes what the user fixes", function()
    local p = planned("llama-3-8b", "fake:h200:8", "--mesh=data:2,model:4", "--rules=tp", "--batch=16",
      "--seq=1024",
      "--remat=full", "--precision=f32")
    assert.equal(1, #p.layouts)
    assert.equal("data:2,model:4", p.layouts[1].mesh)
    assert.equal("tp", p.layouts[1].rules)
    assert.equal("full", p.layouts[1].remat)
    assert.same({16, 1024, "float32"}, {p.batch, p.seq, p.precision})
    assert.same({"rms_norm_eps", "rope_theta"}, p.idle)
    assert.equal("", p.note)
  end)

  figures("puts the layouts in order: the simplest of the fastest, then those that fit, by time", function()
    for _, devices in ipairs {8, 64} do
      local layouts = planned("llama-3-8b", "fake:h200:" .. devices).layouts
      local first, least = layouts[1], math.huge
      assert(#layouts > 5)
      for i = 2, #layouts do
        local a, b = layouts[i - 1], layouts[i]
        assert(a.fits or not b.fits)
        assert(i == 2 or a.fits ~= b.fits or not a.fits or a.seconds <= b.seconds)
        if b.fits then least = math.min(least, b.seconds) end
      end
      assert(first.fits and first.seconds <= 1.03 * least)
      assert.is_nil(first.mesh:find(",", 1, true), first.mesh)
    end
  end)

  figures("counts what a token meets of experts, and devices that the mesh has", function()
    local p = planned("mixtral-8x7b", "fake:h200:64", "--mesh=data:32,model:2", "--rules=fsdp_tp_sp")
    local best, met = p.layouts[1], 6 * 12.88e9 + 6.0 * 32 * 4096 * 8192
    assert.near(64 * 8192 / best.seconds / 64 * met / 989.4e12, best.utilization, 0.002)
    local four = planned("llama-3-8b", "fake:h200:8", "--mesh=data:4", "--rules=fsdp")
    local eight = planned("llama-3-8b", "fake:h200:4", "--mesh=data:4", "--rules=fsdp", "--batch=8")
    assert.equal(eight.layouts[1].utilization, four.layouts[1].utilization)
  end)

  figures("pads vocabularies and heads that the mesh does not divide, and says so", function()
    local out = plan("gpt2-xl", "fake:h200:8", "--mesh=data:2,model:4", "--rules=fsdp_tp")
    assert.matches("\npadded, so that the mesh divides them: vocab 50257 to 50260, ", out)
    assert.matches("heads 25 to 28", out)
    assert.matches("embed.embedding: P%('model', 'data'%)", out)
    local wide = planned("gpt2-xl", "fake:h200:8", "--mesh=data:2,model:4", "--rules=fsdp_tp")
    assert.equal("vocab 50257 to 50260", wide.widened[1])
    local p = planned("gpt2", "fake:h200:8")
    local sets = {}
    for _, row in ipairs(p.layouts) do sets[row.rules] = true end
    assert.same({dp = true, tp = true, tp_sp = true, fsdp = true, fsdp_tp = true, fsdp_tp_sp = true}, sets)
    assert.same({}, p.refused)
  end)

  figures("gives experts an axis of their own", function()
    local out = plan("mixtral-8x7b", "fake:h200:64", "--mesh=data:4,expert:8,model:2", "--rules=fsdp_ep_tp")
    for _, text in ipairs {"all_to_all over expert", "--parallelism.data_parallel_shard_degree=32 ",
      "--parallelism.expert_parallel_degree=8", "layers.mlp.up: P(None, 'expert', 'data', 'model')"} do
      assert(out:find(text, 1, true), text)
    end
  end)

  figures("tries experts' rules for what has experts, and for nothing else", function()
    local sets = {}
    for _, row in ipairs(planned("mixtral-8x7b", "fake:h200:16", "--remat=full").layouts) do
      sets[row.rules] = true
      assert(tonumber(row.mesh:match "expert:(%d+)" or 1) <= 8)
    end
    assert(sets.ep and sets.fsdp_ep and sets.fsdp_ep_tp and sets.fsdp)
    for _, row in ipairs(planned("llama-3-8b", "fake:h200:8").layouts) do
      assert.is_nil(row.rules:find "ep")
    end
  end)

  it("says in MaxText's words what crosses hosts", function()
    local function words(...) return (plan("llama-3-8b", "fake:h200:64", ...):match "MaxText: ([^\n]+)") end
    assert.equal("ici_data_parallelism=1 ici_fsdp_parallelism=2 ici_tensor_parallelism=4 "
      .. "dcn_fsdp_parallelism=8 per_device_batch_size=0.5 gradient_accumulation_steps=2",
      words("--mesh=data:16,model:4", "--rules=fsdp_tp", "--microbatches=2"))
    assert.equal("ici_data_parallelism=8 ici_fsdp_parallelism=1 ici_tensor_parallelism=1 "
      .. "dcn_data_parallelism=8 per_device_batch_size=1 gradient_accumulation_steps=1",
      words("--mesh=data:64", "--rules=dp"))
  end)

  it("writes bytes and operations with all their digits", function()
    local out = plan("llama-3-8b", "fake:h200:8", "--json")
    for _, key in ipairs {"memory", "sent", "flops", "parameters", "activations", "optimizer state"} do
      local text = out:match('"' .. key .. '":([^,}]+)')
      assert.matches("^%d+$", text)
    end
    assert(#out:match '"flops":(%d+)' > 12)
  end)

  it("calls an axis FSDP that splits the batch, not one that tokens lie over", function()
    local out = plan("gpt2", "fake:h200:4", "--mesh=model:4", "--rules=tp_sp")
    assert.is_nil(out:find("FSDP", 1, true))
    out = plan("gpt2", "fake:h200:4", "--mesh=data:4", "--rules=fsdp")
    assert(out:find("note: FSDP on data: model.embed.embedding", 1, true), out)
  end)

  figures("says which axis crosses hosts though it need not", function()
    local out = plan("llama-3-8b", "fake:h200:16", "--mesh=model:8,data:2", "--rules=fsdp_tp_sp")
    assert.matches("mesh axis model goes from one host to another", out)
    out = plan("llama-3-8b", "fake:h200:1x16", "--mesh=model:8,data:2", "--rules=fsdp_tp_sp")
    assert.is_nil(out:find("from one host to another", 1, true))
  end)

  it("plans for devices that are there without taking their memory", function()
    local p = planned("gpt2", "8", "--mesh=data:8", "--rules=dp")
    assert.equal("cpu", p.kind)
  end)

  it("calls the gradients of stacked layers gradients", function()
    local p = planned("llama-3.2-1b", "fake:h200:8", "--mesh=data:8", "--rules=dp", "--seq=256")
    local groups = p.layouts[1].groups
    assert.near(1, groups.gradients / groups.parameters, 0.3)
    assert(groups["other temporaries"] < 0.3 * groups.gradients)
  end)

  figures("says on how many devices it would fit", function()
    local out = plan("llama-2-70b", "fake:h200:8", "--seq=4096")
    assert.matches("^does not fit: the least is %S+ GiB of %S+ GiB a device, with ", out)
    assert.matches("^[^\n]*; it fits on %d+ of them with", out)
  end)

  it("cuts a large batch in as few parts as fit, in few attempts", function()
    local p = planned("llama-3-8b", "fake:h200:8", "--batch=1000000", "--mesh=data:8", "--rules=fsdp")
    local best = p.layouts[1]
    assert(best.fits and 1000000 % best.microbatches == 0, best.microbatches)
    assert.equal(0, 1000000 // best.microbatches % 8)
    assert(best.memory > 0.7 * 131.3 * 2 ^ 30)
  end)

  figures("looks for layouts with layers as a loop, and plans the best with layers written out", function()
    local out, err, code = plan("gpt2-xl", "fake:h200:8", "--layers=24", "--layers=unrolled")
    assert.equal(0, code, err)
    assert.matches("layouts, best first %(3 planned with layers written out, %d+ as a loop%)", out)
    assert(tonumber(out:match "(%d+) steps") > 24 * 20)
  end)

  figures("finds what must be computed again with layers as a loop, on a mesh of the user's, too", function()
    local p = planned("gpt2-xl", "fake:a100-40:8", "--layers=17", "--layers=unrolled", "--mesh=data:8",
      "--rules=fsdp", "--batch=256")
    assert.equal(1, #p.layouts)
    assert.equal(1, p.looped)
    assert.truthy(p.layouts[1].fits and p.layouts[1].remat ~= "none")
  end)

  it("tries no layout twice: rule sets that say the same of a mesh are one", function()
    local decoder, search = require "models.decoder", require "meshlua.plan.search"
    local names = {}
    local open = {mesh = "", rules = "", microbatches = 1}
    for i, layout in ipairs(search.layouts(decoder, decoder.config, open, 2)) do
      names[i] = layout.name
    end
    table.sort(names)
    -- of data alone dp, tp and tp_sp are the same; what a function says of an axis that is not there is not known
    assert.same({"data:2 dp", "data:2 fsdp", "data:2 fsdp_ep", "expert:2 ep", "expert:2 fsdp_ep",
      "model:2 fsdp_ep_tp", "model:2 fsdp_tp", "model:2 fsdp_tp_sp", "model:2 tp", "model:2 tp_sp"}, names)
  end)

  figures("plans layers as a loop: a step for each is not there", function()
    local steps = {}
    for i, layers in ipairs {8, 32, 126} do
      local out = plan("llama-3.1-405b", "fake:h200:64", "--mesh=data:8,model:8", "--rules=fsdp_tp",
        "--layers=" .. layers)
      steps[i] = tonumber(out:match "(%d+) steps")
    end
    assert(steps[3] < 1.5 * steps[1])
  end)

  figures("needs as much memory for a device's share of the state, in a loop or not", function()
    local of = {"llama-3.2-1b", "fake:h200:8", "--mesh=data:8", "--rules=fsdp"}
    local a = planned(of[1], of[2], of[3], of[4], "--layers=scan")
    local b = planned(of[1], of[2], of[3], of[4], "--layers=unrolled")
    for _, group in ipairs {"parameters", "optimizer state"} do
      local x, y = a.layouts[1].groups[group], b.layouts[1].groups[group]
      assert(math.abs(x / y - 1) < 0.01, group)
    end
  end)

  figures("plans recipes as it does a config.json", function()
    local p = planned("models/gpt.lua", "fake:h200:8", "--size=gpt2", "--precision=bf16")
    assert.equal(124439808, p.parameters)
    assert(#p.layouts > 4)
  end)

  it("plans recipes on a mesh", function()
    local own = planned("models/decoder.lua", "fake:h200:4", "--mesh=data:4", "--rules=dp")
    assert.equal(1, #own.layouts)
  end)

  it("speaks of a window where the sequence is longer", function()
    local function note(seq)
      return plan("mistral-7b", "fake:h200:8", "--mesh=data:8", "--rules=fsdp", "--seq=" .. seq):find(
        "its window of 4096 tokens is not", 1, true) ~= nil
    end
    assert.same({false, true}, {note(4096), note(4097)})
  end)

  it("says what differs from another plan", function()
    local path = helper.file("", ".json")
    local handle = assert(io.open(path, "w"))
    handle:write((plan("llama-3-8b", "fake:h200:8", "--json", "--mesh=data:8", "--rules=fsdp", "--seq=2048")))
    handle:close()
    local function against(...)
      local out, err, code = plan("llama-3-8b", "fake:h200:8", "--against=" .. path, "--mesh=data:8",
        "--rules=fsdp", ...)
      assert.equal(0, code, err)
      return out:match "against [^\n]+\n  ([^\n]+)\n"
    end
    assert.equal("the best, data:8 fsdp, beside data:8 fsdp there: the same", against "--seq=2048")
    assert.matches("step %+[%d.]+ %%, memory %+%d+", against "--seq=4096")
  end)

  it("writes a page that needs nothing else", function()
    local path = helper.file("", ".html")
    local _, err, code = plan("llama-3-8b", "fake:h200:64", "--html=" .. path)
    assert.equal(0, code, err)
    local handle <close> = assert(io.open(path))
    local text = handle:read "a"
    assert(#text < 1 << 20)
    for _, id in ipairs {"verdict", "layouts", "mesh", "timeline", "memory", "collectives", "explanation"} do
      assert(text:find('id="' .. id .. '"', 1, true), id)
    end
    assert(not text:find("<script", 1, true) and not text:find("http", 1, true))
    local open, closed = 0, 0
    for _ in text:gmatch "<%w[^>]*>" do open = open + 1 end
    for _ in text:gmatch "</%w+>" do closed = closed + 1 end
    assert.equal(open, closed + 2) -- two of <meta>
  end)

  for _, case in ipairs {
    {"no file", {"nothere.json"}, "nothere.json: No such file", 3},
    {"no JSON", {"text:{"}, "the text ends inside", 2},
    {"a list", {"text:[]"}, "model_type is missing", 2}, {"a number", {"text:3"}, "it holds no object", 2},
    {"another family", {'text:{"model_type":"gtp2"}'}, "the nearest is gpt2", 2},
    {"an unknown flag", {"llama-3-8b", "--bacth=3"}, "unknown option --bacth; did you mean --batch?", 2},
    {"a mesh that is none", {"llama-3-8b", "--mesh=data"}, "--mesh=data: expected axes and sizes", 2},
    {"a mesh that does not divide", {"llama-3-8b", "--mesh=data:3"},
      "which mesh axis data of size 3 does not divide", 2},
    {"a mesh axis that nothing names", {"llama-3-8b", "--mesh=foo:8"},
      "nothing is split over the axis foo: its 8 devices do the same work; the rule set fsdp_tp_sp "
      .. "names data, model", 2},
    {"a mesh axis that the rules do not name", {"llama-3-8b", "--mesh=data:4,model:2", "--rules=dp"},
      "the rule set dp names data", 2},
    {"microbatches that do not divide", {"llama-3-8b", "--microbatches=3"},
      "the batch has 8 rows, which 3 microbatches do not divide; take 6 or 9 rows, or 1, 2, 4, 8", 2},
    {"a batch beyond all", {"llama-3-8b", "--batch=9000000000000000000"}, "the most is 1099511627776", 2},
    {"too many layers to write out", {"llama-3-8b", "--layers=257", "--layers=unrolled"},
      "--layers=unrolled: of 257 layers; at most 256 are written out", 2},
    {"kernels that a card has not", {"llama-3-8b", "--devices=fake:a100:8", "--kernels=fp8"},
      "--kernels=fp8: of a100 is known: compiled, eager", 2},
    {"kernels of a card that is not known", {"llama-3-8b", "--devices=fake:cpu:8", "--kernels=fp8"},
      "--kernels=fp8: of cpu is known: compiled", 2},
    {"an axis of experts that do not divide", {"mixtral-8x7b", "--devices=fake:h200:3", "--mesh=expert:3"},
      "which mesh axis expert of size 3 does not divide", 2},
    {"a recipe that finds nothing sensible", {"lua:" .. INSENSIBLE}, "no layout of 8 devices sensible", 2},
    {"a recipe whose build raises", {raising "build"}, ".lua:3: boom; mend it there", 2},
    {"a recipe whose loss raises", {raising "loss"}, ".lua:3: boom; mend it there", 2},
    {"a recipe whose data raises", {raising "data"}, ".lua:3: boom; mend it there", 2},
    {"a recipe that raises a table", {raising("build", "error {}")}, "planned: it raises a table; mend", 2},
    {"a recipe whose build is wrong", {raising("build", "return require 'meshlua'.zeros(-1)")},
      "dim 1 of the result has size -1", 2},
    {"a plan whose names are none", {"llama-3-8b", "--mesh=data:8", "--rules=fsdp",
      '--against=text:{"layouts":[{"mesh":{},"rules":5}]}'}, "it holds no plan", 2},
    {"a dtype that is none", {"llama-3-8b", "--precision=fp8"}, "--precision=fp8: expected", 2},
    {"an unknown rule set", {"llama-3-8b", "--rules=ttp"}, "no such rule set; did you mean tp?", 2},
    {"a page that cannot be written", {"llama-3-8b", "--html=/nonexist/x.html"}, "/nonexist/x.html", 3},
    {"a plan that is none", {"llama-3-8b", "--mesh=data:8", "--rules=fsdp", "--against=models/gpt.lua"},
      "--against=models/gpt.lua: ", 2},
    {"layers of a recipe that has its own", {"models/mlp.lua", "--layers=scan"}, "decides itself", 2},
    {"nothing", {}, "it needs PATH", 2},
    {"a script that trains", {"models/train.lua"}, "it cannot be loaded: models/train.lua:4: [E_VALUE] ", 2},
    {"a text", {"README.md"}, "README.md: it cannot be loaded: README.md:3: syntax error", 2},
    {"a folder without a config", {"docs"}, "docs: config.json: No such file", 3},
    {"a file that raises", {"lua:error 'boom'"}, ".lua:1: boom; give a file that returns a recipe", 2},
    {"a file that raises a table", {"lua:error {}"}, "it raises a table; give a file", 2},
    {"a file that misses another", {"lua:require 'nothere'"}, "module 'nothere' not found; give", 2},
    {"a file without end", {"lua:local function f() return f() + 1 end f()"}, "stack overflow; give", 2},
    {"a file that returns nothing", {"lua:"}, "the file returns no recipe; its last line is: return M", 2},
    {"half a recipe", {"lua:return {config = {batch = 1, steps = 1}}"}, "the recipe lacks build", 2},
    {"bytes", {"lua:\1\2\255"}, "unexpected symbol near", 2},
    {"bytes of JSON", {"text:\255"}, "not UTF-8", 2},
    {"an empty file", {"text:"}, "the text ends inside", 2}, {"null", {"text:null"}, "it holds no object", 2},
    {"a list of numbers", {"text:[1,2]"}, "model_type is missing", 2},
    {"an unknown family with its fields",
      {'text:{"model_type":"llama9","hidden_size":8,"kv_lora_rank":512}'},
      "the nearest is llama, which has no kv_lora_rank; with \"model_type\": \"llama\"", 2},
    {"numbers beyond all", {'text:{"model_type":"gpt2","n_layer":1,"n_embd":1e300}'}, "n_embd is 1e+300", 2},
    {"sizes beyond all", {'text:{"model_type":"gpt2","n_layer":2147483648,"n_embd":2147483648,"n_head":1,'
      .. '"vocab_size":9}'}, "intermediate_size comes to 8589934592; it must be", 2},
  } do
    it("refuses " .. case[1], function()
      local words = {"plan", case[2][1] and file_of(case[2][1]), table.unpack(case[2], 2)}
      for i, word in ipairs(words) do
        local flag, text = word:match "^(%-%-against=)(text:.*)"
        words[i] = flag and flag .. file_of(text) or word
      end
      local out, err, code = helper.run(words)
      assert.equal(case[4], code, out .. err)
      assert(err:find(case[3], 1, true), err)
      assert.equal("", out)
      assert(not err:find("stack traceback", 1, true) and not err:find("in the library", 1, true), err)
    end)
  end
end)
