-- devices: 8
-- generate_spec.lua: tokens of ml.generate are those of the whole text run again for each; what it takes and refuses.
local decoder = require "models.decoder"
local gpt = require "models.gpt"
local helper = require "spec.helper"
local llama = require "models.llama"
local ml = require "meshlua"

local nn, steps = ml.nn, require "meshlua.generate".steps

local RAGGED = {{3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2, 3, 8, 4}, {2, 7, 1}, {31}}

local function config(recipe, changes)
  local cfg = {layers = 2, width = 32, heads = 4, seq = 48, vocab = 40, sample = 0}
  for name, value in pairs(recipe.config) do
    if cfg[name] == nil then cfg[name] = value end
  end
  for name, value in pairs(changes or {}) do cfg[name] = value end
  return cfg
end

--- A model whose numbers are large enough that its text is not one token again and again.
local function made(recipe, changes, where)
  local cfg = config(recipe, changes)
  return ml.init(function(rngs)
    local model = recipe.build(cfg, rngs)
    for _, leaf in ipairs((ml.tree.leaves(model))) do
      if leaf.role == "kernel" or leaf.role == "embedding" then leaf:set(leaf * 3) end
    end
    return model
  end, where or {rules = recipe.rules.dp})
end

--- The most likely tokens behind a prompt, each by the whole text.
local function by_whole(model, recipe, prompt, n)
  local full = ml.jit(function(m, ids, last)
    return m(ids):take(last, 2):argmax(-1)
  end, {rules = recipe.rules.dp})
  local ids, new = table.move(prompt, 1, #prompt, 1, {}), {}
  for i = 1, n do
    local padded = table.move(ids, 1, #ids, 1, {})
    for k = #ids + 1, #prompt + n do padded[k] = 0 end
    new[i] = full(model, ml.tensor {padded}, #ids - 1):item()
    ids[#ids + 1] = new[i]
  end
  return new
end

local function distinct(list)
  local seen, n = {}, 0
  for _, id in ipairs(list) do
    n = n + (seen[id] and 0 or 1)
    seen[id] = true
  end
  return n
end

local function all_by_whole(model, recipe, n)
  local all = {}
  for b, prompt in ipairs(RAGGED) do all[b] = by_whole(model, recipe, prompt, n) end
  assert.is_true(distinct(all[1]) + distinct(all[2]) + distinct(all[3]) > 8)
  return all
end

local Windowed = nn.module "Windowed"

function Windowed:init(rngs)
  self.embed, self.head = nn.Embed(40, 32, {rngs = rngs}), nn.Linear(32, 40, {rngs = rngs})
  self.attn = nn.MultiHeadAttention(32, 4, {rngs = rngs, causal = true, window = {4, 0}, soft_cap = 5.0,
    fused = true, rope = {base = 1e4, interleaved = true,
      scaling = {factor = 8.0, low = 1.0, high = 4.0, original = 16}}})
end

function Windowed:__call(ids, _, cache)
  local past = cache and cache:open(ids)
  local x = self.embed(past and past.ids or ids) * 8
  x = x + self.attn(x, {cache = past and past.attn})
  if past then
    past:close()
    x = past:last(x)
  end
  return self.head(x)
end

describe("generation, most likely tokens", function()
  for _, case in ipairs {
    {"shared key heads and rotary positions", llama, {kv_heads = 2, hidden = 48}},
    {"learned positions", gpt, {}},
    {"a stack, some features rotary, parallel", decoder,
      {rotary = 0.5, parallel = 1, hidden = 64, head_dim = 8, kv_heads = 4, qk_norm = true}},
    {"learned positions in a decoder without a loop", decoder,
      {positions = "learned", scan = false, hidden = 64, head_dim = 8, kv_heads = 2}},
  } do
    helper.figures("are those of the whole text: " .. case[1], function()
      local model = made(case[2], case[3])
      assert.same(all_by_whole(model, case[2], 10), (ml.generate(model, RAGGED, {max_tokens = 10})))
    end)
  end

  helper.figures("are those of the whole text: a window, scaled frequencies, one projection", function()
    local model = ml.init(function(rngs) return Windowed(rngs) end)
    local recipe = {rules = {}}
    assert.same(all_by_whole(model, recipe, 10), (ml.generate(model, RAGGED, {max_tokens = 10})))
  end)

  it("are the same on a mesh: batches and heads split, a batch that the mesh does not divide", function()
    local changes = {kv_heads = 2, hidden = 48}
    local want = ml.generate(made(llama, changes), RAGGED, {max_tokens = 6})
    local four = {RAGGED[1], RAGGED[2], RAGGED[3], RAGGED[2]}
    local mesh = ml.make_mesh({4, 2}, {"data", "model"})
    for _, rules in ipairs {"tp", "dp", "fsdp_tp"} do
      local model = made(llama, changes, {mesh = mesh, rules = llama.rules[rules]})
      assert.same(want, (ml.generate(model, RAGGED, {max_tokens = 6})))
      local got = ml.generate(model, four, {max_tokens = 6})
      assert.same({want[1], want[2], want[3], want[2]}, got)
    end
    local cache = ml.cache(made(llama, changes, {mesh = mesh, rules = llama.rules.tp}), 4, 16)
    assert.equal("float32[4@data,16,2@model,8]", ml.typeof(cache.layers[2].attn.key))
  end)

  it("take one plan for chunks and one for tokens, and retrace nothing", function()
    local model = made(gpt, {seq = 160, layers = 1})
    local long = {}
    for i = 1, 100 do long[i] = i * 7 % 40 end
    local function traces() return {(helper.traces(steps.prefill)), (helper.traces(steps.token))} end
    local before = traces()
    ml.generate(model, long, {max_tokens = 60})
    ml.generate(model, {long[2], long[3]}, {max_tokens = 60, cache = ml.cache(model, 1, 160)})
    assert.same({before[1] + 2, before[2] + 1}, traces())
  end)
end)
