-- encoded_spec.lua: texts as documents of ids, kept between runs in a private folder.
local helper = require "spec.helper"
local ml = require "meshlua"
local core, data = ml.core, ml.data
local file = helper.file

local folder = file "" .. ".folder"
assert(core.make_folder(folder))
teardown(function() core.disk_task {{"remove", folder}}:wait() end)

local TEXT = "one\nfour five\n\nsix"
local texts = assert(data.text(file(TEXT), {separator = "\n"}))
local calls = 0

--- An id a word: its length.
local function lengths(text)
  calls = calls + 1
  local ids = {}
  for word in text:gmatch "%a+" do ids[#ids + 1] = #word end
  return ids
end

local function ids_of(records)
  local all = {}
  for id = 0, #records - 1 do all[id + 1] = records:get(id).ids end
  return all
end

--- What a script of this text writes, with MESHLUA_CACHE set.
local function script(cache, text)
  local head = 'local ml = require "meshlua"\nlocal texts = ml.data.text("%s", {separator = "\\n"})\n'
  local name = file(head:format(file(TEXT)) .. text)
  local command = ("MESHLUA_CACHE='%s' '%s' '%s' 2>&1"):format(cache, helper.program(), name)
  local handle <close> = assert(io.popen(command))
  return handle:read "a"
end

describe("data.encode", function()
  it("makes documents of texts, by a function", function()
    local records = assert(data.encode(texts, lengths))
    assert.same({{3}, {4, 4}, {3}}, ids_of(records))
    assert.same({"int32"}, {records.fields.ids.dtype})
    local rows = assert(data.pack(records, 3)):batch {0}
    assert.same({{{3, 4, 4}}, {{4, 4, 3}}}, {rows.inputs:totable(), rows.labels:totable()})
    helper.raises("no text in a field 'txt'; did you mean 'text'?", data.encode, texts, lengths,
      {field = "txt"})
    helper.raises("record 0: the function must give a list of ids: -1 is not of uint32", data.encode, texts,
      function() return {-1} end)
    helper.raises("a list of ids: a number", data.encode, texts, function() return 5 end)
    assert.same({nil, "encode: no ids in 3 texts", "E_VALUE"},
      {data.encode(texts, function() return {} end)})
  end)

  it("keeps what has a name, and finds it again where nothing has changed", function()
    local options = {key = "lengths", folder = folder}
    calls = 0
    local first = assert(data.encode(texts, lengths, options))
    local again = assert(data.encode(texts, lengths, options))
    assert.same({3, ids_of(first)}, {calls, ids_of(again)})
    assert.same(first:fingerprint(), again:fingerprint())
    assert.is_true(core.tokens_on_disk(again.source:span(0)))
    local names = core.list_folder(folder)
    assert.equal(1, #names)
    assert.truthy(names[1]:find "^%x+%.ids$")
    data.encode(texts, lengths, {key = "other", folder = folder})
    data.encode(assert(data.text(file "one", {separator = "\n"})), lengths, options)
    assert.same({7, 3}, {calls, #core.list_folder(folder)})

    -- What is not whole is made again.
    local kept = folder .. "/" .. names[1]
    local _, size = core.path_kind(kept)
    local ids = ids_of(first)
    for _, broken in ipairs {size - 8, 100, 0} do
      assert(core.truncate(kept, broken))
      calls = 0
      assert.same(ids, ids_of(assert(data.encode(texts, lengths, options))))
      assert.equal(3, calls)
      assert.equal(size, select(2, core.path_kind(kept)))
    end
    for at = 0, size - 1 do -- or has a wrong byte
      local handle <close> = assert(io.open(kept, "r+b"))
      handle:seek("set", at)
      local byte = handle:read(1):byte()
      handle:seek("set", at)
      handle:write(string.char(byte ~ 1 << at % 8))
      handle:close()
      assert.same(ids, ids_of(assert(data.encode(texts, lengths, options))))
    end
  end)

  it("says where the ids cannot be kept, and loses nothing", function()
    local say = [[
local records = ml.data.encode(texts, function(text) return {#text} end, {key = "k"})
print(#records, records:get(1).ids[1])]]
    local open = folder .. "/open"
    assert(core.make_folder(open .. "/ids"))
    os.execute(("chmod 777 '%s'"):format(open .. "/ids"))
    for cache, wanted in pairs {off = "MESHLUA_CACHE is off",
        [open] = "ids: it is no folder that is this user's alone"} do
      local out = script(cache, say)
      assert.truthy(out:find("3\t9\n", 1, true), out)
      assert.truthy(out:find("data: note: the ids are made again each time: they cannot be kept: "), out)
      assert.truthy(out:find(wanted, 1, true), out)
    end
    local full = folder .. "/full"
    assert.equal("3\t9\n", script(full, say))
    assert.equal("3\t9\n", script(full, say))
    local name = core.list_folder(full .. "/ids")[1]
    os.remove(full .. "/ids/" .. name)
    os.execute(("ln -s /dev/full '%s/ids/%s.0.part'"):format(full, name))
    local out = script(full, say)
    assert.truthy(out:find("No space left on device", 1, true) and out:find("3\t9\n", 1, true), out)
    assert.same({}, core.list_folder(full .. "/ids"))
  end)

  --- A file with a tokenizer of bytes that joins "th".
  local function tokenizer_file()
    local pieces, further = {'"th": 256'}, 256
    for b = 0, 255 do
      local code = b
      if not (b >= 33 and b <= 126 or b >= 161 and b <= 172 or b >= 174) then
        code, further = further, further + 1
      end
      pieces[#pieces + 1] = ('"\\u%04x": %d'):format(code, b)
    end
    local text = [[{"version": "1.0", "added_tokens": [], "normalizer": null,
      "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true,
        "use_regex": true},
      "post_processor": null, "decoder": {"type": "ByteLevel"},
      "model": {"type": "BPE", "vocab": {%s}, "merges": ["t h"]}}]]
    return file(text:format(table.concat(pieces, ",")), ".json")
  end

  it("takes a tokenizer", function()
    local tokenizer = assert(ml.tokenizer(tokenizer_file()))
    local records = assert(data.encode(texts, tokenizer, {folder = folder}))
    assert.equal("four five", string.char(table.unpack(records:get(1).ids)))
    local again = assert(data.encode(texts, tokenizer, {folder = folder}))
    assert.same(ids_of(records), ids_of(again))
  end)

  it("is what train does with --tokenizer", function()
    local words = ("the path through this thicket "):rep(100)
    local function train(options)
      local command = ("MESHLUA_CACHE='%s' '%s' train models/gpt.lua --mesh=none --layers=1 --width=16 "
        .. "--heads=2 --seq=8 --batch=8 --steps=2 --sample=5 --data='%s' --tokenizer='%s' %s 2>&1")
        :format(folder, helper.program(), file(words), tokenizer_file(), options)
      local handle <close> = assert(io.popen(command))
      return handle:read "a"
    end
    local out = train "--vocab=257"
    assert.truthy(out:find "nats per token" and out:find "sample at temperature", out)
    local per_token, per_byte = out:match "validation loss ([%d.]+) nats per token, ([%d.]+) bits per byte"
    assert.near(30 / 25, per_token / per_byte / math.log(2), 1e-3) -- five pairs of 30 bytes are one
    out = train ""
    local wanted = "the tokenizer has 257 ids, and the vocabulary is of 256; set --vocab=257"
    assert.truthy(out:find(wanted, 1, true), out)
  end)
end)
