-- documents_spec.lua: records of different length: lines of JSON, texts, documents of ids; and rows packed of them.
local helper = require "spec.helper"
local ml = require "meshlua"
local core, data = ml.core, ml.data
local file = helper.file

local function fails(wanted, code, value, message, got)
  assert.same({nil, code}, {value, got})
  assert.truthy(message:find(wanted, 1, true), message)
end

describe("data.jsonl", function()
  it("reads an object a line; numbers of one shape are for batches", function()
    local path = file('{"text": "hi", "y": 1, "v": [1, 2]}\n\n' ..
      '{"v": [3, 4], "y": 2, "text": "\\u00e9"}\r\n{"text": ""')
    local records = assert(data.jsonl(path))
    assert.equal(3, #records)
    assert.same({text = "é", y = 2, v = {3, 4}}, records:get(1))
    helper.raises(path .. ": line 4, byte 78: no JSON", records.get, records, 2)
    helper.raises("field 'text', of which no tensor is made", records.batch, records, {0})
    local batch = assert(data.jsonl(path, {fields = {"v", "y"}})):batch {1, 0}
    assert.same({{{3, 4}, {1, 2}}, {2, 1}}, {batch.v:totable(), batch.y:totable()})
    local lengths = records:map(function(record) return {n = #record.text} end)
    assert.same({2, 2}, lengths:batch({0, 1}).n:totable())
  end)

  it("says where a line is not what it should be", function()
    local path = file '{"a": 1}\n{"b": 1}\n[1]\n{"a": [1]}\n{"a": 1, "a": 2}\n{"a": 1e400}\n'
    local records = assert(data.jsonl(path, {fields = {"a"}}))
    for id, wanted in ipairs {"line 2, byte 9: it has no field 'a'", "line 3, byte 18: no JSON object",
        "line 4, byte 22: field 'a' must be int32[]", "line 5, byte 33: no JSON: a duplicate key",
        "line 6, byte 50: no JSON: a number that is too large"} do
      helper.raises(path .. ": " .. wanted, records.batch, records, {0, id})
    end
    helper.raises("it has no field 'c'", data.jsonl, path, {fields = {"c"}})
    fails("No such file", "E_IO", data.jsonl "/nonexistent.jsonl")
    fails("it holds no records", "E_IO", data.jsonl(file "\n\n"))
    fails("the file is empty", "E_IO", data.jsonl(file ""))
  end)

  it("reads several files, packed ones too, each for itself", function()
    local packed, plain = file "", file '{"y": 1}\n{"y": 2}'
    local handle <close> = assert(io.popen(("printf '{\"y\": 3}\\n{\"y\": 4}' | gzip > '%s'"):format(packed)))
    handle:close()
    local records = assert(data.jsonl {plain, packed})
    assert.same({1, 2, 3, 4}, records:batch({0, 1, 2, 3}).y:totable())
  end)

  it("takes any bytes without harm", function()
    local state, parts = 7, {'{"a"', ":", "1", "}", "\n", "\0", '"', "\xff", "[", "{", ",", "\r\n"}
    for _ = 1, helper.watched and 100 or 400 do
      local words = {}
      for i = 1, 12 do
        state = (state * 1103515245 + 12345) & 0x7fffffff
        words[i] = parts[(state >> 16) % #parts + 1]
      end
      local path = file(table.concat(words))
      local ok, records = pcall(data.jsonl, path)
      for id = 0, ok and records and #records - 1 or -1 do
        pcall(records.get, records, id)
        pcall(records.batch, records, {id})
      end
    end
  end)
end)

describe("data.text", function()
  it("has a file as one text, or what stands between separators", function()
    local a, b = file "one\ntwo\n\nthree", file "four\n"
    local whole = assert(data.text {a, b})
    assert.same({"one\ntwo\n\nthree", "four\n"}, {whole:get(0).text, whole:get(1).text})
    local lines, found = assert(data.text({a, b}, {separator = "\n"})), {}
    for id = 0, #lines - 1 do found[id + 1] = lines:get(id).text end
    assert.same({"one", "two", "three", "four"}, found)
    assert.equal(3, #assert(data.text({a, b}, {separator = "\n\n"})))
    helper.raises("a mark of 0 bytes", data.text, a, {separator = ""})
  end)

  it("finds each separator where it is, across what is read at once", function()
    local n = 1 << 16
    local text = ("x"):rep(n - 1) .. "ab" .. ("y"):rep(n - 3) .. "aab" .. "aaab" .. "z"
    for _, tokens in ipairs {core.tokens(text, 1), core.tokens(core.data_file(file(text)), 1)} do
      assert.same({0, n - 1, n + 1, 2 * n - 1, 2 * n + 1, 2 * n + 3, 2 * n + 5, 2 * n + 6},
        tokens:cut("ab"):numbers())
      assert.same({0, n - 1, n - 1, 2 * n - 1, 2 * n - 1, 2 * n + 3, 2 * n + 3, 2 * n + 6},
        tokens:cut("ab", "start"):numbers())
    end
  end)
end)

describe("data.pack", function()
  local ids = core.tokens("abc.defgh.i.jklmnopqrstuvw.x", 1)

  --- The rows as texts: inputs, labels, segments, weights.
  local function rows_of(records)
    local all, rows = {}, {}
    for id = 0, #records - 1 do all[id + 1] = id end
    local batch = records:batch(all)
    local x, y = batch.inputs:totable(), batch.labels:totable()
    local s, w = batch.segments:totable(), batch.weights:totable()
    local function text(list) return (string.char(table.unpack(list)):gsub("%z", "_")) end
    for i in ipairs(x) do
      for k = 1, #w[i] do w[i][k] = math.tointeger(w[i][k]) end
      rows[i] = ("%s %s %s %s"):format(text(x[i]), text(y[i]), table.concat(s[i]), table.concat(w[i]))
    end
    return rows
  end

  it("cuts documents that lie one behind the other into rows", function()
    local documents = assert(data.documents(ids, {ends = 46}))
    assert.same({5, {120}}, {#documents, documents:get(4).ids})
    assert.same({"abc.d bc.de 11112 11101", "efgh. fgh.i 11111 11110", "i.jkl .jklm 11222 10111",
      "mnopq nopqr 11111 11111", "rstuv stuvw 11111 11111"}, rows_of(assert(data.pack(documents, 5))))
  end)

  it("or keeps each in one row where it has room", function()
    local documents = assert(data.documents(ids, {starts = 46}))
    assert.same({".defg defgh 11111 11111", ".jklm jklmn 11111 11111", "nopqr opqrs 11111 11111",
      "stuvw tuvw_ 11111 11110", "abc.i bc.i_ 11122 11010", ".x___ x____ 11000 10000"},
      rows_of(assert(data.pack(documents, 5, {mode = "best_fit"}))))
  end)

  it("has every pair of a document's neighbours once, whatever the lengths", function()
    local words, state = {}, 1
    for i = 1, 300 do
      state = (state * 1103515245 + 12345) & 0x7fffffff
      local letters = {}
      for k = 1, (state >> 8) % (i % 10 == 0 and 60 or 12) do letters[k] = string.char(97 + (i + k) % 26) end
      words[i] = table.concat(letters) .. "."
    end
    local text = table.concat(words)
    local documents = assert(data.documents(core.tokens(text, 1), {ends = 46}))
    for _, mode in ipairs {"split", "best_fit"} do
      local pairs_seen, there, last = {}, {}, 0
      local packed = assert(data.pack(documents, 16, {mode = mode}))
      for _, row in ipairs(rows_of(packed)) do
        local x, y, _, w = row:match "(%S+) (%S+) (%S+) (%S+)"
        for k = 1, 16 do
          local pair = x:sub(k, k) .. y:sub(k, k)
          if w:sub(k, k) == "1" then pairs_seen[pair] = (pairs_seen[pair] or 0) + 1 end
        end
      end
      local stop = mode == "split" and #packed * 16 or #text - 1
      for i = 1, stop do
        local pair = text:sub(i, i + 1)
        if pair:byte() ~= 46 then there[pair] = (there[pair] or 0) + 1 end
        last = i
      end
      assert.truthy(last > 1000)
      assert.same(there, pairs_seen)
    end
  end)

  it("keeps its index in a file, and packs texts, picked and mixed ones, too", function()
    local path = file ""
    os.remove(path)
    local texts = assert(data.text(file "abcdef\nghi\njk\nlmnopq", {separator = "\n"}))
    local long = assert(texts:filter(function(record) return #record.text > 2 end))
    local first = assert(data.pack(long, 3, {file = path}))
    local again = assert(data.pack(long, 3, {file = path}))
    assert.same({"abc bcd 111 111", "def efg 111 110", "ghi hil 111 110", "lmn mno 111 111"}, rows_of(first))
    assert.same(rows_of(first), rows_of(again))
    assert.same(first:fingerprint(), again:fingerprint())
    local mixed = data.mix({first, assert(data.pack(texts, 3, {mode = "best_fit"}))}, {1, 1})
    assert.equal("lmn", string.char(table.unpack(mixed:shuffled({batch = 64})(1).inputs:slice({1, 1})
      :reshape {3}:totable())):match "%l+" and "lmn")
    fails("too few for a row of 99", "E_VALUE", data.pack(texts, 99))
    helper.raises("these records are no documents", data.pack, data.tensors {x = {1}}, 3)
    helper.raises("E_VALUE", data.pack, texts, 3, {mode = "worst"})
    helper.raises("E_VALUE", data.documents, ids, {})
  end)
end)
