-- devices: 4
-- pretrained_spec.lua: models of the recipes gpt and llama out of files of others, and into them. The files and what
-- transformers makes of them are in tests/oracle/models/ and models.json (models.py).
local gpt = require "models.gpt"
local helper = require "spec.helper"
local llama = require "models.llama"
local ml = require "meshlua"
local oracle = require "spec.oracle"

local FOLDER = "tests/oracle/models/"
local expected = oracle.read "models"
local MODELS = {{"gpt2", gpt}, {"llama", llama}, {"llama_scaled", llama}}

--- The ids of a model, and those behind them.
local function tokens(name)
  local ids = ml.tensor(expected[name].ids, "int32")
  local n = ids.shape[2]
  return ids:slice(false, {1, n - 1}), ids:slice(false, {2, n})
end

local function logits(recipe, model, name)
  return ml.jit(function(m, x) return m(x) end, {rules = recipe.rules.dp})(model, (tokens(name)))
end

--- The bytes of all Params by path.
local function bytes_of(model)
  local held = {}
  ml.tree.visit(model, function(path, box) held[path] = box:get():bytes() end)
  return held
end

--- A name for a file or folder; what a test leaves there goes with the test.
local made = {}
local function place(ending)
  made[#made + 1] = helper.file "" .. ending
  return made[#made]
end

after_each(function()
  for _, path in ipairs(made) do helper.shell("rm -rf '" .. path .. "'") end
  made = {}
end)

local function read_file(path)
  local file <close> = assert(io.open(path, "rb"))
  return file:read "a"
end

local function write_file(path, text)
  local file <close> = assert(io.open(path, "wb"))
  file:write(text)
end

--- A copy of a folder of the oracle whose config.json says something else in one place.
local function changed(name, pattern, replacement)
  local path = place ".d"
  helper.shell(("cp -r %s%s %s"):format(FOLDER, name, path))
  local text, n = read_file(path .. "/config.json"):gsub(pattern, replacement)
  assert(n == 1, pattern)
  write_file(path .. "/config.json", text)
  return path
end

for _, case in ipairs(MODELS) do
  local name, recipe = table.unpack(case)
  local want = expected[name]

  describe("the model of transformers: " .. name, function()
    it("has its logits", function()
      local model, cfg = assert(recipe.from_pretrained(FOLDER .. name, {rules = recipe.rules.dp}))
      assert.equal("float32", cfg.dtype)
      helper.close(want.logits, logits(recipe, model, name), 1e-5)
    end)

    it("has its loss and the norm of its gradient, in every layout", function()
      local x, labels = tokens(name)
      local layouts = {{"tp_sp", 2, 2}, {"fsdp_tp", 2, 2}, {"dp"}, {"dp", 4, 1}, {"tp", 2, 2}, {"fsdp", 4, 1},
        {"fsdp", 2, 2}}
      for i = 1, helper.watched and 2 or #layouts do
        local layout = layouts[i]
        local rules = recipe.rules[layout[1]]
        local mesh = layout[2] and ml.make_mesh({layout[2], layout[3]}, {"data", "model"}) or nil
        local where = {mesh = mesh, rules = rules}
        local model = assert(recipe.from_pretrained(FOLDER .. name, where))
        local step = ml.jit(function(m, a, b)
          local loss, grads = ml.value_and_grad(function(n) return recipe.loss(n, a, b) end)(m)
          return loss, ml.optim.global_norm(grads)
        end, where)
        local loss, norm = step(model, x, labels)
        assert.near(want.loss, loss:item(), 1e-5 * want.loss, layout[1])
        assert.near(want.gradient_norm, norm:item(), 1e-4 * want.gradient_norm, layout[1])
      end
    end)

    it("goes into a folder as the same tensors, and comes back", function()
      local model, cfg = assert(recipe.from_pretrained(FOLDER .. name))
      local path = place ".d"
      assert(recipe.save_pretrained(path, model, cfg))
      local theirs, ours = ml.load(FOLDER .. name), ml.load(path)
      local count = 0
      for key, tensor in pairs(theirs) do
        local own = ours[(key:gsub("^transformer%.", ""))]
        assert.same(tensor.shape, own.shape, key)
        assert.equal(tensor:bytes(), own:bytes(), key)
        count = count + 1
      end
      for _ in pairs(ours) do count = count - 1 end
      assert.equal(0, count)
      local again, its = assert(recipe.from_pretrained(path))
      assert.same(bytes_of(model), bytes_of(again))
      assert.same(cfg, its)
    end)

    it("comes out of several files with an index", function()
      local model, cfg = assert(recipe.from_pretrained(FOLDER .. name))
      local path = place ".d"
      assert(recipe.save_pretrained(path, model, cfg))
      assert(ml.save(path .. "/", model, {map = recipe.formats.hf.map, numbers = recipe.formats.numbers(cfg),
        shard_bytes = 20000}))
      assert.is_nil(io.open(path .. "/model.safetensors"))
      assert.same(bytes_of(model), bytes_of(assert(recipe.from_pretrained(path))))
    end)

    it("keeps what is said of it besides", function()
      local model, cfg, said = assert(recipe.from_pretrained(FOLDER .. name))
      assert.is_number(said.eos_token_id)
      local path = place ".d"
      cfg.seq = cfg.seq + 1
      assert(recipe.save_pretrained(path, model, cfg, {cast = "bfloat16", metadata = said}))
      local again = assert(ml.core.json(read_file(path .. "/config.json")))
      for key, value in pairs(said) do
        local of_it = {dtype = "bfloat16", n_positions = cfg.seq, max_position_embeddings = cfg.seq,
          resid_pdrop = 0, embd_pdrop = 0, attn_pdrop = 0}
        assert.same(of_it[key] or value, again[key], key)
      end
    end)

    it("goes into GGUF, and comes back", function()
      local model, cfg = assert(recipe.from_pretrained(FOLDER .. name))
      local path = place ".gguf"
      assert(recipe.save_pretrained(path, model, cfg))
      -- What Llama 3.1 is about is not said in GGUF, but for what comes of it.
      local changes = name == "llama_scaled" and {rope_original = 16} or nil
      local again, its = assert(recipe.from_pretrained(path, {config = changes}))
      assert.same(bytes_of(model), bytes_of(again))
      for key, value in pairs(cfg) do helper.close(value, its[key], 1e-6) end
      for encoding, tolerance in pairs {F16 = 2e-2, BF16 = 0.1, Q8_0 = 0.25} do
        local short = place ".gguf"
        assert(recipe.save_pretrained(short, model, cfg, {encoding = encoding}))
        again = assert(recipe.from_pretrained(short, {config = changes}))
        helper.close(want.logits, logits(recipe, again, name), tolerance)
      end
    end)

    if recipe.formats.stack then it("comes as a loop, and goes", function()
      local model = assert(recipe.from_pretrained(FOLDER .. name))
      local loop, cfg = assert(recipe.from_pretrained(FOLDER .. name, {config = {scan = true}}))
      assert.equal(logits(recipe, model, name):bytes(), logits(recipe, loop, name):bytes())
      for _, ending in ipairs {".d", ".gguf"} do
        local path = place(ending)
        assert(recipe.save_pretrained(path, loop, cfg))
        local changes = ending == ".gguf" and name == "llama_scaled" and {rope_original = 16} or nil
        local again = assert(recipe.from_pretrained(path, {config = changes}))
        assert.same(bytes_of(model), bytes_of(again))
      end
    end) end

    it("comes into a mesh as it comes into one device", function()
      local whole = bytes_of(assert(recipe.from_pretrained(FOLDER .. name)))
      local mesh = ml.make_mesh({2, 2}, {"data", "model"})
      for _, rules in ipairs {"tp", "fsdp_tp"} do
        local where = {mesh = mesh, rules = recipe.rules[rules]}
        local model, cfg = assert(recipe.from_pretrained(FOLDER .. name, where))
        assert.same(whole, bytes_of(model))
        local path = place ".d"
        assert(recipe.save_pretrained(path, model, cfg, {cast = "bfloat16"}))
        local half, its = assert(recipe.from_pretrained(path, where))
        assert.equal("bfloat16", its.dtype)
        helper.close(want.logits, ml.jit(function(m, x) return m(x) end, where)(half, (tokens(name))), 0.1)
      end
    end)
  end)
end

describe("a LLaMA whose layers are one stack", function()
  it("has the same tensors in a file", function()
    local model, cfg = assert(llama.from_pretrained(FOLDER .. "llama"))
    local map = {}
    for i, rule in ipairs(llama.formats.hf.map) do
      map[i] = {}
      for key, part in pairs(rule) do map[i][key] = part end
      if rule[2] and rule[2]:find("{i+1}", 1, true) then
        map[i][2] = rule[2]:gsub("{i%+1}%.", "")
        map[i][#map[i] + 1] = {"stack", 1}
      end
    end
    local options = {map = map, numbers = llama.formats.numbers(cfg)}
    local plain = bytes_of(model)
    model.layers = ml.nn.stack(2, function(i) return model.layers[i] end)
    assert.same({2, 32, 4, 8}, model.layers.attn.query.kernel.shape)
    local path, stacked = place ".safetensors", bytes_of(model)
    assert(ml.save(path, model, options))
    local theirs, ours = ml.load(FOLDER .. "llama"), ml.load(path)
    for key, tensor in pairs(theirs) do assert.equal(tensor:bytes(), ours[key]:bytes(), key) end
    ml.tree.visit(model, function(_, box) box:set(box * 0) end)
    assert(ml.load(path, {into = model, map = map, numbers = options.numbers}))
    assert.same(stacked, bytes_of(model))
    assert.equal(plain["layers.1.mlp.up.kernel"] .. plain["layers.2.mlp.up.kernel"],
      stacked["layers.mlp.up.kernel"])
  end)
end)

describe("a LLaMA in Meta's names", function()
  it("pairs neighbours, and has params.json beside", function()
    for _, name in ipairs {"llama", "llama_scaled"} do
      local model, cfg = assert(llama.from_pretrained(FOLDER .. name))
      local path = place ".d"
      assert(ml.core.make_folder(path))
      assert(ml.save(path .. "/consolidated.safetensors", model, {map = llama.formats.meta.map,
        numbers = llama.formats.numbers(cfg)}))
      write_file(path .. "/params.json", ([[{"dim": 32, "n_layers": 2, "n_heads": 4, "n_kv_heads": 2,
        "hidden_dim": 48, "vocab_size": 48, "norm_eps": 1e-05, "rope_theta": %g, "head_dim": %d}]]):format(
        cfg.theta, cfg.head_dim))
      local again = assert(llama.from_pretrained(path, {config = {tied = cfg.tied,
        rope_factor = cfg.rope_factor, rope_original = cfg.rope_original}}))
      assert.same(bytes_of(model), bytes_of(again))
      helper.close(expected[name].logits, logits(llama, again, name), 1e-5)
      -- Row k of pair i is row i + k * half of the other order, in each head.
      local theirs = ml.load(path .. "/consolidated.safetensors")["layers.1.attention.wk.weight"]
      local ours = ml.load(FOLDER .. name)["model.layers.1.self_attn.k_proj.weight"]
      local half = cfg.head_dim // 2
      for head = 0, 1 do
        for i = 0, half - 1 do
          for k = 0, 1 do
            helper.close(ours:slice(head * 2 * half + i + k * half + 1):totable(),
              theirs:slice(head * 2 * half + 2 * i + k + 1):totable())
          end
        end
      end
    end
  end)

  it("knows from multiple_of how wide an MLP is", function()
    for width, row in pairs {[4096] = {11008, 256}, [5120] = {13824, 256}, [8192] = {28672, 4096, 1.3}} do
      local cfg = {width = width}
      llama.formats.meta.read({multiple_of = row[2], ffn_dim_multiplier = row[3]}, cfg)
      assert.equal(row[1], cfg.hidden)
    end
  end)
end)

describe("from_pretrained", function()
  local function refuses(words, recipe, path, options)
    local model, message, code = recipe.from_pretrained(path, options)
    assert.is_nil(model)
    assert.truthy(message:find(words, 1, true), message)
    assert.is_string(code)
  end

  it("refuses models that the recipe has not, with the key", function()
    refuses("config.json: model_type is llama; of the recipe gpt it is gpt2", gpt, FOLDER .. "llama")
    refuses("config.json: model_type is gpt2; of the recipe llama it is llama", llama, FOLDER .. "gpt2")
    for _, row in ipairs {{'"silu"', '"gelu"', "hidden_act is gelu; of the recipe llama it is silu"},
        {'"attention_bias": false', '"attention_bias": true', "attention_bias is true"},
        {'"default"', '"yarn"', "rope_type is 'yarn'; the recipe llama has default and llama3"},
        {'"hidden_size": 32,', "", "hidden_size is missing"},
        {'"hidden_size": 32', '"hidden_size": "x"',
          "hidden_size is x; width of the recipe llama is such as 128"},
        {'"hidden_size": 32', '"hidden_size": 32.5', "hidden_size is 32.5"},
        {'"hidden_size": 32', '"hidden_size": 0', "hidden_size is 0; the least is 1"},
        {'"num_attention_heads": 4', '"num_attention_heads": -4',
          "num_attention_heads is -4; the least is 1"},
        {'"rope_theta": 10000.0', '"rope_theta": "1e4"', "rope_theta is no number above 0"},
        {'"float32"', '"int8"', "dtype is int8; expected bfloat16, float16, float32, float64"},
        {"^{", "{{", "config.json: "}} do
      refuses(row[3], llama, changed("llama", row[1], row[2]))
    end
    refuses("rope_type is 'llama3', and there is no factor", llama,
      changed("llama_scaled", '"factor": 8.0,', ""))
    refuses("n_inner is 90; of the recipe gpt it is 4 times the width, 96", gpt,
      changed("gpt2", '"n_inner": null', '"n_inner": 90'))
    refuses("described are 20000 layers, and there are 21 tensors", llama,
      changed("llama", '"num_hidden_layers": 2', '"num_hidden_layers": 20000'))
    refuses("described are 6442460320 parameters, and there are 18592", llama,
      changed("llama", '"intermediate_size": 48', '"intermediate_size": 33554432'))
    refuses("config.json: there is no such file", llama, "/nonexistent")
    refuses("/nonexistent.gguf", llama, "/nonexistent.gguf")
    helper.raises("E_KEY", llama.from_pretrained, FOLDER .. "llama", {config = {widht = 3}})
    helper.raises("the recipe mlp has no formats.gguf", ml.train.from_pretrained,
      {name = "mlp", config = {}, build = print}, "x.gguf")
  end)

  it("raises where config.json and the tensors do not agree", function()
    helper.raises("model.embed_tokens.weight", llama.from_pretrained,
      changed("llama", '"vocab_size": 48', '"vocab_size": 50'))
    helper.raises("layers.3", llama.from_pretrained,
      changed("llama", '"num_hidden_layers": 2', '"num_hidden_layers": 3'))
    helper.raises("model.layers.1", llama.from_pretrained,
      changed("llama", '"num_hidden_layers": 2', '"num_hidden_layers": 1'))
  end)

  it("says in GGUF how bytes are ids, and what rotations it does not know", function()
    local cfg = {}
    for key, value in pairs(llama.config) do cfg[key] = value end
    for key, value in pairs {layers = 1, width = 16, heads = 2, kv_heads = 2, hidden = 24, rope_factor = 4.0,
        rope_low = 2.0} do
      cfg[key] = value
    end
    local model = ml.init(function(rngs) return llama.build(cfg, rngs) end)
    local path = place ".gguf"
    assert(llama.save_pretrained(path, model, cfg, {metadata = {["general.name"] = "small"}}))
    local catalog = assert(ml.core.catalog(path))
    local metadata = catalog:metadata()
    assert.equal("small", metadata["general.name"])
    assert.equal("gpt2", metadata["tokenizer.ggml.model"])
    assert.equal(256, #metadata["tokenizer.ggml.tokens"])
    assert.same({"Ġ", "a", "Ċ"}, {metadata["tokenizer.ggml.tokens"][33],
      metadata["tokenizer.ggml.tokens"][98], metadata["tokenizer.ggml.tokens"][11]})
    refuses("rope_freqs.weight is not that of rope_factor = 4, rope_low = 1", llama, path)
    assert(llama.from_pretrained(path, {config = {rope_low = 2.0}}))
  end)
end)

describe("the training program", function()
  -- 48 ids are bytes below "0".
  local text = ("!#%&()*+,-./ $"):rep(200)
  local small = " --layers=2 --width=32 --heads=4 --kv_heads=2 --hidden=48 --vocab=48 --seq=16 --batch=4"
    .. " --steps=1 --mesh=none --log_every=1 --lr=0 --weight_decay=0 --data="

  it("begins with weights out of files of others", function()
    local data, model = helper.file(text), assert(llama.from_pretrained(FOLDER .. "llama"))
    local gguf, own = place ".gguf", place ".safetensors"
    local cfg = select(2, llama.from_pretrained(FOLDER .. "llama"))
    assert(llama.save_pretrained(gguf, model, cfg))
    assert(ml.save(own, model))
    local losses = {}
    for i, from in ipairs {FOLDER .. "llama", gguf, own} do
      local out, err = helper.shell('"$MESHLUA" models/llama.lua' .. small .. data .. " --from=" .. from)
      losses[i] = out:match "step 1/1  loss (%S+)" or out .. err
    end
    assert.equal(losses[1], losses[2])
    assert.equal(losses[1], losses[3])
    assert.is_number(tonumber(losses[1]))
    local out, err, code = helper.shell('"$MESHLUA" models/llama.lua' .. small .. data .. " --from=" .. FOLDER
      .. "gpt2")
    assert.not_equal(0, code, out)
    assert.truthy(err:find("embed_tokens", 1, true), err)
  end)

  it("knows the configs of published models", function()
    local out = helper.shell '"$MESHLUA" models/llama.lua --size=llama-3.2-1b --help'
    for _, words in ipairs {"--size=...", "llama-2-7b", "--layers=16 ", "--theta=500000.0 ",
        "--rope_factor=32.0"} do
      assert.truthy(out:find(words, 1, true), words)
    end
    out = helper.shell '"$MESHLUA" models/gpt.lua --size=gpt2-xl --help'
    assert.truthy(out:find("--heads=25 ", 1, true))
    out = helper.shell('"$MESHLUA" models/llama.lua --size=smollm-135m' .. small .. helper.file(text))
    assert.truthy(out:find("tied=true", 1, true) and out:find("width=32", 1, true), out)
    local _, err, code = helper.shell '"$MESHLUA" models/llama.lua --size=llama-2-8b'
    assert.equal(2, code)
    assert.truthy(err:find("--size=llama-2-8b: expected llama-2-13b, llama-2-70b", 1, true), err)
    assert.equal(2, select(3, helper.shell '"$MESHLUA" models/mlp.lua --size=big'))
  end)
end)
