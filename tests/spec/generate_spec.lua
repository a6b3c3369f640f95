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
    {"alibi", decoder, {positions = "alibi", heads = 6, head_dim = 8, kv_heads = 3, hidden = 64}},
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

  helper.figures("are the same on a mesh, for a batch that it does not divide, too", function()
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

--- A model that does not look at its text: these logits, whatever stands before. Its cache is there to be counted.
local Fixed = nn.module "Fixed"

function Fixed:init(logits)
  self.logits, self.vocab = logits, #logits
  self.attn = nn.MultiHeadAttention(2, 1, {rngs = nn.Rngs(0), causal = true})
end

function Fixed:__call(ids, _, cache)
  local past = cache:open(ids)
  local x = ml.broadcast(ml.tensor(self.logits, "float32"), {ids.shape[1], 1, self.vocab})
  self.attn(ml.zeros {ids.shape[1], ids.shape[2], 2}, {cache = past.attn})
  past:close()
  return x
end

local LOGITS = {1.0, 3.0, 2.0, -1.0, 2.5, 0.0}

local function shares(options, n)
  n = n or 2000
  options.max_tokens, options.temperature = n, options.temperature or 1
  local count = {0, 0, 0, 0, 0, 0}
  for _, id in ipairs((ml.generate(Fixed(LOGITS), {0}, options))) do
    count[id + 1] = count[id + 1] + 1 / n
  end
  return count
end

--- Probabilities of those logits, divided by the temperature, of which only some are left.
local function softmax(left, temperature)
  local p, sum = {}, 0
  for i, x in ipairs(LOGITS) do
    p[i] = left[i] and math.exp(x / (temperature or 1)) or 0
    sum = sum + p[i]
  end
  for i in ipairs(p) do p[i] = p[i] / sum end
  return p
end

local function close(want, got)
  for i = 1, 6 do
    assert.near(want[i], got[i], 0.04, ("id %d: %g for %g"):format(i - 1, got[i], want[i]))
    if want[i] == 0 then assert.equal(0, got[i]) end
  end
end

describe("generation, drawn tokens", function()
  local all = {true, true, true, true, true, true}

  helper.figures("are as likely as the logits say, and as the temperature and what is left out", function()
    close(softmax(all), shares {})
    close(softmax(all, 2.0), shares {temperature = 2.0, seed = 7})
    close(softmax {false, true, true, false, true, false}, shares {top_k = 3})
    -- 0.46, 0.28, 0.17, ...: two of them have 0.74 together.
    close(softmax {false, true, false, false, true, false}, shares {top_p = 0.7})
    close(softmax {false, true, true, false, true, false}, shares {top_p = 0.75})
    close(softmax {false, true, false, false, false, false}, shares {top_p = 0.001})
    close(softmax {false, true, true, false, true, false}, shares {min_p = 0.3})
    close(softmax {false, true, false, false, true, false}, shares {top_k = 4, top_p = 0.75, min_p = 0.5})
  end)

  it("are less likely when the row has had them", function()
    local got = ml.generate(Fixed(LOGITS), {1}, {max_tokens = 4, repetition_penalty = 1.6})
    assert.same({4, 2, 1, 1}, got) -- 3 / 1.6 is below 2.5 and 2, above 2.5 / 1.6
    got = ml.generate(Fixed(LOGITS), {{1}, {4, 2}}, {max_tokens = 2, repetition_penalty = 1e6})
    assert.same({{4, 2}, {1, 0}}, got)
  end)

  helper.figures("are the same for a seed: on a mesh, in any batch", function()
    local options = {max_tokens = 12, temperature = 1.2, top_k = 20, top_p = 0.95, seed = 11}
    local changes = {kv_heads = 2, hidden = 48}
    local model = made(llama, changes)
    local want = ml.generate(model, RAGGED, options)
    assert.is_true(distinct(want[1]) > 3)
    assert.same(want, (ml.generate(model, RAGGED, options)))
    assert.same(want[1], (ml.generate(model, RAGGED[1], options)))
    local mesh = ml.make_mesh({4, 2}, {"data", "model"})
    local split = made(llama, changes, {mesh = mesh, rules = llama.rules.tp})
    assert.same(want, (ml.generate(split, RAGGED, options)))
    options.seed = 12
    assert.not_same(want, (ml.generate(model, RAGGED, options)))
  end)
end)

--- A tokenizer of letters: id 0 is "a".
local letters = {}
function letters.encode(_, text)
  local ids = {text:byte(1, -1)}
  for i, c in ipairs(ids) do ids[i] = c - 97 end
  return ids
end
function letters.stream() return function(id) return id and string.char(97 + id) or "" end end

describe("a generation", function()
  local model
  setup(function() model = made(gpt, {seq = 24}) end)

  it("ends at ids and texts, which are left out, at its length and where its context is full", function()
    local ids, why, text = ml.generate(model, "dbe", {max_tokens = 12, tokenizer = letters})
    assert.equal("length", why)
    assert.equal(12, #ids)
    local stop = text:sub(5, 6)
    local at = text:find(stop, 1, true)
    local some, reason, cut = ml.generate(model, {3, 1, 4},
      {max_tokens = 12, tokenizer = letters, stop = stop})
    assert.same({"stop", text:sub(1, at - 1)}, {reason, cut})
    assert.equal(at + 1, #some)
    local told = {}
    local function tell(_, new) told[#told + 1] = new[1] end
    ml.generate(model, {3, 1, 4}, {max_tokens = 12, tokenizer = letters, stop = stop, callback = tell})
    assert.equal(cut, table.concat(told)) -- nothing of the text at which it ends was told before
    local last = ids[6]
    some, reason = ml.generate(model, {3, 1, 4}, {max_tokens = 12, stop = {last, 39}})
    assert.equal("stop", reason)
    for i, id in ipairs(some) do assert.is_true(id == ids[i] and id ~= last) end
    local more, reasons = ml.generate(model, {{3, 1, 4}, {1}}, {max_tokens = 100})
    assert.same({"context", "context"}, reasons)
    assert.same({22, 24}, {#more[1], #more[2]})
    assert.same({{}, "length"}, {ml.generate(model, {3}, {max_tokens = 0})})
  end)

  it("calls back with each step's ids, and goes on or stops", function()
    local steps_of, n = {{}, {}}, 0
    local got, why = ml.generate(model, {{3}, {1, 4}}, {max_tokens = 9, stop = 39, callback = function(ids)
      n = n + 1
      for b = 1, 2 do steps_of[b][#steps_of[b] + 1] = ids[b] or nil end
      return n < 5
    end})
    assert.same(got, steps_of)
    assert.same({5, "callback", "callback"}, {n, why[1], why[2]})
  end)

  helper.figures("goes on where a cache is, forgets, and slides", function()
    local cache = ml.cache(model, 1, 24)
    local ids = ml.generate(model, {3, 1, 4}, {max_tokens = 8, cache = cache})
    assert.same({10}, cache:filled())
    local more = ml.generate(model, {ids[8]}, {max_tokens = 4, cache = cache})
    local both = ml.generate(model, {3, 1, 4}, {max_tokens = 12})
    assert.same({table.unpack(both, 9)}, more)
    cache:rewind {3}
    assert.same({table.unpack(both, 2)}, (ml.generate(model, {both[1]}, {max_tokens = 11, cache = cache})))
    local slid, why = ml.generate(model, {3, 1, 4}, {max_tokens = 60, slide = true})
    assert.same({60, "length"}, {#slid, why})
    local half = {}
    for i = 11, 22 do half[#half + 1] = slid[i] end
    assert.same({slid[23], slid[24]}, (ml.generate(model, half, {max_tokens = 2})))
    helper.raises("[E_VALUE] cache:rewind: row 1 has", function() cache:rewind {99} end)
  end)

  it("refuses what is no prompt, has no room, or is no option", function()
    local function no(words, ids, options, m)
      helper.raises("[E_VALUE] generate: " .. words, ml.generate, m or model, ids, options or {})
    end
    no("prompt 1 is empty", {})
    no("prompt 2 is empty", {{1}, {}})
    no("token 2 of prompt 1 is 40; ids are whole numbers from 0 to 39", {1, 40})
    no("token 1 of prompt 1 is -1", {-1})
    no("token 1 of prompt 2 is 1.5", {{1}, {1.5}})
    local long = {}
    for i = 1, 25 do long[i] = 1 end
    no("prompt 1 has 25 tokens; the model's context is 24", long)
    no("prompt 1 has 20 tokens; the cache has room for 8", {table.unpack(long, 1, 20)},
      {cache = ml.cache(model, 1, 8)})
    no("2 prompts for a cache of 1 row", {{1}, {1}}, {cache = ml.cache(model, 1, 8)})
    no("a text as prompt needs a tokenizer", "abc")
    no("stop has the text", {1}, {stop = "x"})
    no("top_p is 0; it must be above 0 to 1", {1}, {top_p = 0})
    no("temperature is -1", {1}, {temperature = -1})
    no("top_k is 0", {1}, {top_k = 0})
    no("expected a model that takes a cache, got a function", {1}, nil, function() end)
    local traced = ml.jit(function(x)
      ml.generate(model, {1})
      return x
    end)
    helper.raises("[E_TRACED] generate: inside a traced function", traced, ml.ones {1})
    helper.raises("[E_TRACED] cache: inside a traced function", ml.jit(function(x)
      ml.cache(model, 1, 8)
      return x
    end), ml.ones {1})
    local layer, cache = nn.MultiHeadAttention(8, 2, {rngs = nn.Rngs(0)}), ml.cache(model, 2, 8)
    helper.raises("[E_VALUE] MultiHeadAttention: cache is the layer's part of an opened cache",
      function() layer(ml.ones {1, 1, 8}, {cache = cache}) end)
    helper.raises("[E_SHAPE] a cache of 2 rows of 8 takes ids [2, at most 8], got int32[3,1]",
      function() cache:open(ml.zeros({3, 1}, "int32")) end)
    helper.raises("[E_VALUE] attention with a cache is causal", function()
      layer(ml.ones {1, 1, 8}, {cache = ml.cache({layer}, 1, 4):open(ml.zeros({1, 1}, "int32"))[1]})
    end)
    helper.raises("[E_VALUE] cache: 25 tokens; the model's context is 24", ml.cache, model, 1, 25)
    helper.raises("[E_VALUE] cache: the model has no attention layer", ml.cache, nn.Dropout(0.1), 1, 25)
  end)
end)
