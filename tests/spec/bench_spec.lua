-- devices: 8
-- bench_spec.lua: meshlua's side of the benchmark's rows, each once at a tiny size; nothing is timed.
package.path = "bench/rows/?.lua;models/?.lua;" .. package.path

local gpt = {layers = 1, width = 16, heads = 8, seq = 8, batch = 8, vocab = 16}

--- The GPT with more parameters.
local function gpt_with(more)
  for key, value in pairs(gpt) do more[key] = value end
  return more
end

local rows = {
  {"matmul", {m = 3, n = 4, k = 5, form = "nn"}},
  {"matmul", {m = 3, n = 4, k = 5, form = "nt"}},
  {"matmul", {m = 3, n = 4, k = 5, form = "tn"}},
  {"train", gpt_with {}},
  {"train", gpt_with {mesh = "data:8", rules = "dp"}},
  {"train", gpt_with {mesh = "data:4,model:2", rules = "tp"}},
  {"train", gpt_with {mesh = "model:8", rules = "tp"}},
  {"adamw", gpt_with {}},
  {"adamw", {n = 5}},
  {"attention", {batch = 2, seq = 5, heads = 2, head = 4}},
  {"mlp", {sizes = {6, 5, 4}, batch = 3}},
  {"dispatch", {leaves = 2}},
  {"dispatch", {leaves = 2, bound = true}},
  {"dispatch", {}},
  {"compile", gpt_with {}},
  {"memory", gpt_with {}},
  {"single", {op = "gather", rows = 5, cols = 3, n = 4}},
  {"single", {op = "along", rows = 5, cols = 3}},
  {"single", {op = "scatter", rows = 5, cols = 3, n = 4}},
  {"single", {op = "scatter", rows = 5, n = 4}},
  {"single", {op = "sort", shape = {5}}},
  {"single", {op = "cumsum", shape = {2, 3}, axis = 1}},
  {"single", {op = "lstm", batch = 2, n = 3}},
  {"single", {op = "lstm", batch = 2, n = 3, backward = true}},
  {"single", {op = "transposed", batch = 2, size = 3, features = 4, backward = true}},
}
rows[#rows + 1] = {"generate", {layers = 1, width = 16, heads = 2, kv_heads = 1, hidden = 8, vocab = 16,
  seq = 8, prompt = 3, tokens = 4}}
for _, op in ipairs {"gelu", "layer norm", "rms norm", "softmax", "cross entropy"} do
  rows[#rows + 1] = {"fused", {op = op, rows = 3, cols = 5, backward = false}}
  rows[#rows + 1] = {"fused", {op = op, rows = 3, cols = 5, backward = true}}
end
for _, op in ipairs {"all-reduce", "reduce-scatter", "all-gather", "all-to-all"} do
  rows[#rows + 1] = {"collectives", {op = op, bytes = 256}}
end
for _, ways in ipairs {{"S0", "S1"}, {"S0", "R"}, {"R", "S0"}} do
  rows[#rows + 1] = {"collectives", {reshard = ways, shape = {8, 16}}}
end

describe("the benchmark's row", function()
  for i, row in ipairs(rows) do
    it(("%d: %s"):format(i, row[1]), function()
      local case = require(row[1])(row[2])
      for name, x in pairs(case.inputs or {}) do assert.truthy(#x:bytes() > 0, name) end
      local results = case.results and case.results() or {}
      for k, x in ipairs(results) do
        if x.dtype == "float32" then assert.truthy(x:isfinite():all():item(), "result " .. k) end
      end
      case.run()
      if case.info then assert.equal("table", type(case.info())) end
    end)
  end

  it("is of a family that is tried here", function()
    local tried = {}
    for _, row in ipairs(rows) do tried[row[1]] = true end
    local pipe <close> = assert(io.popen "ls bench/rows/*.lua")
    for path in pipe:lines() do assert.truthy(tried[path:match "([%w_]+)%.lua$"], path) end
  end)
end)
