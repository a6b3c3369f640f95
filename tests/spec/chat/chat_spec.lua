-- chat_spec.lua: the verb `chat` on a small model without sense: what it says does not matter, but that it is what the
-- whole conversation gives, that only what is new goes through the model, and what is said where something is wrong.
local core = require "meshlua.core"
local helper = require "spec.helper"
local llama = require "models.llama"
local ml = require "meshlua"
local models = require "meshlua.chat.model"
local screens = require "repl.screen"
local sessions = require "meshlua.chat.session"
local verbs = require "meshlua.program.verbs"

local TEMPLATE = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
  .. "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"

local function write(path, text)
  local file <close> = assert(io.open(path, "wb"))
  file:write(text)
end

--- A folder as of Hugging Face: a model without sense, a tokenizer of 300 tokens, a template.
local function make(template, changes)
  local folder = helper.file "" .. ".d"
  local cfg = {}
  for name, value in pairs(llama.config) do cfg[name] = value end
  local small = {layers = 2, width = 32, heads = 4, kv_heads = 2, hidden = 64, vocab = 280, seq = 128}
  for name, value in pairs(small) do cfg[name] = value end
  local model = ml.init(function(rngs)
    local m = llama.build(cfg, rngs)
    for _, leaf in ipairs((ml.tree.leaves(m))) do
      if leaf.role == "kernel" or leaf.role == "embedding" then leaf:set(leaf * 3) end
    end
    return m
  end, {rules = llama.rules.dp})
  assert(llama.save_pretrained(folder, model, cfg, {metadata = changes}))
  local tokenizer = assert(ml.learn_tokenizer("what is said is said, and what is not said is not said\n",
    {size = 280, special = {"<|im_start|>", "<|im_end|>"}}))
  assert(tokenizer:save(folder .. "/tokenizer.json"))
  if template then
    local quoted = ("%q"):format(template):gsub("\\\n", "\\n")
    write(folder .. "/tokenizer_config.json", '{"chat_template": ' .. quoted .. "}")
  end
  return folder
end

local function flags(changes)
  local values = {}
  for _, row in ipairs(verbs.find "chat".flags) do values[row[1]] = row[2] end
  for name, value in pairs(changes or {}) do values[name] = value end
  return values
end

local function open(folder, changes)
  return models.open(folder, flags(changes), function(recipe) return {rules = recipe.rules.dp} end)
end

local function session_of(folder, changes)
  local options = {context = 128, max_tokens = 12, temperature = 0.0, top_p = 1.0, min_p = 0.0, seed = 0}
  for name, value in pairs(changes or {}) do options[name] = value end
  return sessions.new(assert(open(folder)), options)
end

local function nothing() end

--- The tokens of a session's last answer, and what all in front of them gives without a cache from before.
local function by_whole(session)
  local n = #session.ids - session.tokens
  local again = ml.generate(session.open.model, table.move(session.ids, 1, n, 1, {}),
    {max_tokens = session.tokens, rules = llama.rules.dp})
  return table.move(session.ids, n + 1, #session.ids, 1, {}), again
end

describe("chat", function()
  local folder, plain, made = make(TEMPLATE), make(), {}
  made[1], made[2] = folder, plain

  teardown(function()
    for _, path in ipairs(made) do helper.shell("rm -rf '" .. path .. "'") end
  end)

  it("goes on where the cache is, and says what the whole conversation gives", function()
    local session = session_of(folder)
    for turn, text in ipairs {"what is said", "is it", "not said"} do
      assert(session:say(text, pcall, nothing))
      assert.same(by_whole(session))
      assert.truthy(turn == 1 or session.new < 30, session.new)
    end
    assert.equal(6, #session.messages)
    session:reset()
    assert.same({0, 0}, {session:used(), #session.messages})
  end)

  it("forgets the oldest turns where the context is full, and keeps what it was told first", function()
    local session, forgot = session_of(folder, {system = "be brief"}), 0
    for _ = 1, 6 do
      assert(session:say("what is said is not said", pcall, nothing))
      forgot = forgot + (session.forgot and 1 or 0)
      assert.equal("system", session.messages[1].role)
      assert.equal("user", session.messages[2].role)
    end
    assert.truthy(forgot > 0 and #session.messages < 13)
    local before = #session.messages
    local reason, message, code = session:say(("not said "):rep(200), pcall, nothing)
    assert.same({nil, "E_VALUE", before}, {reason, code, #session.messages})
    assert.truthy(message:find("and the context 128 (--context=N)", 1, true), message)
  end)

  it("an answer that is interrupted stays as far as it came, and the next goes on from it", function()
    local session, n = session_of(folder, {max_tokens = 40}), 0
    local reason = session:say("what", pcall, function()
      n = n + 1
      if n == 3 then error "[E_INTERRUPT] interrupted" end
    end)
    assert.equal("interrupt", reason)
    assert.equal("assistant", session.messages[2].role)
    assert(session:say("is said", pcall, nothing))
    assert.same(by_whole(session))
    assert.truthy(session.new < 30, session.new)
  end)

  it("without a template continues the text", function()
    local session = session_of(plain, {max_tokens = 4})
    assert(session:say("what is", pcall, nothing))
    local first = session.answer
    assert(session:say(" said", pcall, nothing))
    assert.equal("what is" .. first .. " said" .. session.answer, session.text)
    assert.truthy(session.new < 8)
    for _ = 1, 40 do assert(session:say(" not said is what is said", pcall, nothing)) end
    assert.truthy(session.forgot and session:used() <= 128)
  end)

  it("answers --prompt, and lines of a pipe one by one", function()
    local words = {"chat", folder, "--max-tokens=3", "--temperature=0"}
    local lines, err, code = helper.run(words, "what is\n\nwhat is\n")
    assert.same({"", 0}, {err, code})
    local out
    words[5] = "--prompt=what is"
    out, err, code = helper.run(words)
    assert.same({"", 0}, {err, code})
    assert.equal(out, lines:sub(1, #out))
    assert.truthy(#lines > #out)
    assert.falsy((out .. lines):find "[%z\1-\8\11-\31\127]")
  end)

  it("says what is wrong, and what to do", function()
    local function refused(exit, words, ...)
      local _, err, code = helper.run {"chat", ...}
      assert.truthy(err:find(words, 1, true), err)
      assert.equal(exit, code)
    end
    local function changed(name, text, template)
      local path = make(template)
      made[#made + 1] = path
      if text then write(path .. "/" .. name, text) else os.remove(path .. "/" .. name) end
      return path
    end
    refused(2, "it needs MODEL")
    refused(3, "no model: expected a GGUF file, a folder", "/nowhere")
    refused(3, "its model_type is martian; known are", changed("config.json", '{"model_type": "martian"}'))
    refused(3, "--tokenizer=PATH names one", changed "tokenizer.json")
    refused(3, "line 1: {% include %} is not supported; --raw continues",
      changed("x", "", "{% include 'x' %}"))
    refused(2, "--context=500: the model's is 128", folder, "--context=500")
    refused(2, "--system needs a chat template", plain, "--system=x")
    refused(2, "--rules=no: no such rule set", folder, "--rules=no")
    local template = "{{ raise_exception('roles') }}"
    refused(1, "it says: roles", changed("x", "", template), "--prompt=x")
  end)

  it("takes a run of train, bytes as its tokens, and its checkpoint", function()
    local run = helper.file "" .. ".d"
    made[#made + 1] = run
    helper.run {"train", "gpt", "--steps=2", "--layers=1", "--width=8", "--heads=2", "--seq=16", "--batch=2",
      "--mesh=none", "--sample=0", "--out=" .. run, "--save-every=1", "--data=tests/specs.lua"}
    local newest = run .. "/checkpoints/step-00000002"
    local out, err, code = helper.run {"chat", run, "--prompt=ab", "--max-tokens=4", "--temperature=0"}
    assert.same({"", 0}, {err, code})
    assert.equal(out, (helper.run {"chat", newest, "--prompt=ab", "--max-tokens=4", "--temperature=0"}))
  end)

  it("takes a run with adapters, and the tokenizer that the run left", function()
    local run, text = helper.file "" .. ".d", helper.file(("what is said is not said\n"):rep(200))
    made[#made + 1] = run
    helper.run {"train", "gpt", "--steps=2", "--layers=1", "--width=8", "--heads=2", "--seq=16", "--batch=2",
      "--mesh=none", "--sample=0", "--out=" .. run, "--save-every=2", "--data=" .. text, "--lora=attn:2",
      "--vocab=280", "--tokenizer=" .. folder}
    local out, err, code = helper.run {"chat", run, "--prompt=what is", "--max-tokens=4", "--temperature=0"}
    assert.same({"", 0}, {err, code})
    assert.truthy(#out > 1)
  end)

  helper.figures("in a terminal: answers, commands, Ctrl-D", function()
    if not screens.is_there() then helper.pending "there is no tmux" end
    local words = ("chat '%s' --temperature=0 --max-tokens=5"):format(folder)
    local on <close> = screens.new {width = 120, flags = words}
    assert.truthy(on:shows "context of 128 tokens; /help lists commands", on:text())
    assert.truthy(on:shows ">")
    on:keys "what is<NL>"
    assert.truthy(on:shows "--max-tokens ended it", on:text())
    on:keys "/rest<NL>"
    assert.truthy(on:shows "did you mean /reset?", on:text())
    on:keys "/reset<NL>"
    on:tmux "send-keys C-d"
    assert.truthy(on:shows "ended 0", on:text())
    assert.truthy(core.path_kind(on.folder .. "/home" .. "/.meshlua_chat_history"))
  end)
end)
