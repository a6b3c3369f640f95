-- config_spec.lua: models that a config.json describes: as many parameters as transformers gives them, and what is no
-- such file is told by its field.
local core = require "meshlua.core"
local decoder = require "models.decoder"
local families = require "meshlua.plan.families"
local ml = require "meshlua"
local recipes = require "meshlua.plan.recipe"
local oracle = require "spec.oracle"

local published = oracle.read "configs"

--- A copy of a published config with changes; false takes a field away.
local function changed(name, changes)
  local copy = {}
  for _, row in ipairs(published) do
    if row.name == name then
      for key, value in pairs(row.config) do copy[key] = value end
    end
  end
  for key, value in pairs(changes) do copy[key] = value or nil end
  return copy
end

local function count(build, config)
  local n = 0
  local model = ml.abstract(function() return build(config, ml.nn.Rngs(0)) end)
  ml.tree.visit(model, function(_, leaf) n = n + leaf.size end)
  return n
end

describe("models of a config.json", function()
  for _, row in ipairs(published) do
    it("have as many parameters as published: " .. row.name, function()
      local recipe = assert(recipes.of(row.config, 8))
      assert.equal(row.parameters, count(recipe.build, recipe.config))
    end)
  end

  it("have the same loss and gradients in parts, and where blocks are computed again", function()
    local function sums(more)
      local config = setmetatable(more, {__index = decoder.config})
      local ids = ml.arange(16, {dtype = "int32"}):reshape(2, 8)
      local function of(m, x) return ml.value_and_grad(decoder.loss)(m, x, x) end
      local model = decoder.build(config, ml.nn.Rngs(0))
      local loss, grads = ml.jit(of, {rules = decoder.rules.dp})(model, ids)
      local sum = 0.0
      ml.tree.visit(grads, function(_, g) sum = sum + g:square():sum():item() end)
      return {loss:item(), sum}
    end
    ml.make_mesh({1}, {"data"}, {ml.devices()[1]}):with(decoder.rules.dp, function()
      local whole = sums {scan = false}
      for _, more in ipairs {{loss_parts = 3}, {remat = "full", remat_every = 2}} do
        more.scan = false
        local same = sums(more)
        for k = 1, 2 do assert.near(1.0, same[k] / whole[k], 1e-5) end
      end
    end)
  end)

  it("have the same parameters unrolled, and stacked from layers made one by one", function()
    for _, name in ipairs {"gpt2", "phi-2"} do
      local recipe = assert(recipes.of(changed(name, {}), 8))
      local config = recipe.config
      local n = count(recipe.build, config)
      assert.equal(n, count(decoder.build, config))
      config.scan = false
      assert.equal(n, count(decoder.build, config))
    end
  end)

  for _, case in ipairs {
    {"an unknown family", {model_type = "lama"},
      "model_type is 'lama'; known are .*; the nearest is llama; with"},
    {"an unknown family of known fields", {model_type = "brio", q_lora_rank = 4},
      'the nearest is %l+, which has no q_lora_rank; with "model_type": "%l+" it is planned as such$'},
    {"no family", {model_type = false}, "model_type is missing"},
    {"a family that is no text", {model_type = 3}, "model_type is 3"},
    {"a missing number", {num_attention_heads = false},
      "it has no num_attention_heads, a whole number from 1 to 2^31"},
    {"a text for a number", {hidden_size = "x"}, "hidden_size is 'x'; it must be a whole number"},
    {"heads of nothing", {num_attention_heads = 8192, num_key_value_heads = false, head_dim = false},
      "head_dim comes to 0; it must be"},
    {"no layers", {num_hidden_layers = 0}, "num_hidden_layers is 0"},
    {"a fraction of a layer", {num_hidden_layers = 2.5}, "num_hidden_layers is 2.5"},
    {"too much of anything", {vocab_size = 1 << 40}, "vocab_size is 1099511627776"},
    {"a list for a number", {vocab_size = {1}}, "vocab_size is a table"},
    {"a negative epsilon", {rms_norm_eps = -1.0}, "rms_norm_eps is %-1.0; it must be"},
    {"a share above 1", {partial_rotary_factor = 2}, "a share of 2 of a head's features is turned"},
    {"no width of an MLP", {intermediate_size = false}, "it has no intermediate_size"},
    {"words for yes", {tie_word_embeddings = "yes"},
      "tie_word_embeddings is 'yes'; it must be true or false"},
    {"key heads that do not divide", {num_key_value_heads = 7}, "7 key heads for 32 heads"},
  } do
    it("are refused with " .. case[1], function()
      local config, message = families.config(changed("llama-3-8b", case[2]))
      assert.is_nil(config)
      assert.matches(case[3], message)
    end)
  end

  it("are read past what is null, in other letters, and within what reads more than text", function()
    local text = changed("llama-3-8b", {num_key_value_heads = core.null, model_type = "LLaMA_text"})
    local config = assert(families.config {model_type = "seer", text_config = text})
    assert.equal(32, config.kv_heads)
  end)

  it("are refused where what a family reads is of another kind", function()
    for _, case in ipairs {
      {"mpt-7b", {expansion_ratio = -1}, "expansion_ratio is %-1; it must be a number above 0"},
      {"mpt-7b", {expansion_ratio = 1e-4}, "expansion_ratio is 0.0001; times d_model, 4096, it must be"},
      {"mpt-7b", {attn_config = {kv_n_heads = "x"}}, "attn_config.kv_n_heads is 'x'; it must be a whole"},
      {"mpt-7b", {attn_config = {alibi = 1}}, "attn_config.alibi is 1; it must be true or false"},
      {"mpt-7b", {attn_config = 1}, "attn_config is 1; it must be an object"},
      {"llama-3-8b", {attention_bias = "yes"}, "attention_bias is 'yes'; it must be true or false"},
      {"llama-3-8b", {hidden_act = 1}, "hidden_act is 1; it must be a text"},
      {"mistral-7b", {sliding_window = "4096"}, "sliding_window is '4096'; it must be a whole number"},
      {"qwen3-30b-a3b", {mlp_only_layers = {a = 1}}, "mlp_only_layers is a table; it must be a list"}} do
      local config, message = families.config(changed(case[1], case[2]))
      assert.is_nil(config)
      assert.matches(case[3], message)
    end
  end)

  it("are read past null within what a field holds", function()
    local config = changed("mpt-7b", {attn_config = {kv_n_heads = core.null, alibi = core.null}})
    assert.equal(32, assert(families.config(config)).kv_heads)
  end)

  it("need no number that their family has in another's place", function()
    local cfg = families.config(changed("qwen3-30b-a3b", {intermediate_size = false}))
    assert.equal(768, cfg.hidden)
    local _, _, idle = families.config(changed("qwen3-30b-a3b", {}))
    assert.matches("intermediate_size", table.concat(idle, " "))
  end)

  for _, case in ipairs {
    {"mistral-7b", {}, 4096}, {"mistral-7b", {sliding_window = false}, 4096},
    {"mistral-7b", {sliding_window = core.null}}, {"mistral-7b", {sliding_window = 512}, 512},
    {"mixtral-8x7b", {}}, {"qwen2-7b", {}}, {"qwen2-7b", {use_sliding_window = true}, 131072},
    {"llama-3-8b", {sliding_window = 512}},
  } do
    it(("have the window of their file, or of their family: %s %s"):format(case[1], case[3]), function()
      assert.equal(case[3], (select(4, families.config(changed(case[1], case[2])))))
    end)
  end

  it("are refused with more experts for a token than there are", function()
    local config, message = families.config(changed("mixtral-8x7b", {num_experts_per_tok = 9}))
    assert.is_nil(config)
    assert.matches("9 experts for each token, of 8", message)
  end)

  for _, case in ipairs {
    {"mistral-7b", {}, "^$"}, {"mixtral-8x7b", {}, "^tokens go"}, {"qwen2-7b", {}, "^$"},
    {"mpt-7b", {}, "^$"}, {"llama-3-8b", {}, "^$"},
    {"llama-3-8b", {hidden_act = "quick_gelu"}, "the activation 'quick_gelu' is planned as silu"},
    {"qwen3-30b-a3b", {mlp_only_layers = {1}}, "and some have none"},
  } do
    it("say what is not planned as the family has it: " .. case[1] .. " " .. case[3], function()
      local _, note = families.config(changed(case[1], case[2]))
      assert.matches(case[3], note)
    end)
  end

  it("take their activation, and how their queries turn, where a file says it", function()
    local cfg = families.config(changed("llama-3-8b", {hidden_act = "relu", rope_theta = false,
      rope_parameters = {rope_theta = 1e6, rope_type = "default"}}))
    assert.same({"relu", 1e6}, {cfg.activation, cfg.theta})
    cfg = families.config(changed("gpt-neox-20b", {rotary_pct = false, rotary_emb_base = false,
      rope_parameters = {full_attention = {rope_theta = 5e5, partial_rotary_factor = 0.5}}}))
    assert.same({0.5, 5e5}, {cfg.rotary, cfg.theta})
    assert.equal(0.25, families.config(changed("gpt-neox-20b", {rotary_pct = false})).rotary)
  end)

  it("say which fields change nothing of a plan", function()
    local _, _, idle = families.config(changed("llama-3.1-405b", {dtype = "bfloat16", eos_token_id = 2}))
    assert.same({"rms_norm_eps", "rope_scaling", "rope_theta"}, idle)
    local function turned(rope)
      rope.rope_theta, rope.rope_type = 1e4, "default"
      local given = changed("gpt-neox-20b", {rotary_pct = false, rotary_emb_base = false,
        rope_parameters = rope})
      return " " .. table.concat(select(3, families.config(given)), " ") .. " "
    end
    assert.matches(" rope_parameters.rope_type ", turned {partial_rotary_factor = 0.5}, 1, true)
    assert.matches(" rope_parameters ", turned {}, 1, true)
  end)

  it("are those of the text of what reads more, with the sizes that its family has", function()
    local cfg, note = families.config {model_type = "llava", vision_config = {}, text_config = {
      model_type = "llama", vocab_size = 32064, max_position_embeddings = 4096, rms_norm_eps = 1e-5}}
    assert.same({32, 4096, 11008, 32064}, {cfg.layers, cfg.width, cfg.hidden, cfg.vocab})
    assert.matches("^of llava the text model %(llama%) is planned alone; ", note)
    assert.matches("the file leaves out what the family has: num_hidden_layers 32, hidden_size 4096", note)
  end)
end)
