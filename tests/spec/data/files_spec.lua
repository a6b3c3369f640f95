-- devices: 8
-- files_spec.lua: files as lists of numbers, records, and batches that depend on seed and step alone.
local helper = require "spec.helper"
local ml = require "meshlua"
local core, data, P, NamedSharding = ml.core, ml.data, ml.P, ml.NamedSharding
local file = helper.file

--- Bytes as gzip stores them: blocks of up to 65535 that are not compressed. `tail` is what comes behind.
local function gzip(bytes)
  local crc_table = {}
  for i = 0, 255 do
    local c = i
    for _ = 1, 8 do c = c & 1 == 1 and 0xedb88320 ~ c >> 1 or c >> 1 end
    crc_table[i] = c
  end
  local crc = 0xffffffff
  for i = 1, #bytes do crc = crc_table[(crc ~ bytes:byte(i)) & 0xff] ~ crc >> 8 end
  local blocks = {"\x1f\x8b\8\0\0\0\0\0\0\3"}
  for at = 1, math.max(#bytes, 1), 65535 do
    local part = bytes:sub(at, at + 65534)
    local last = at + 65534 >= #bytes
    blocks[#blocks + 1] = string.pack("<BI2I2", last and 1 or 0, #part, ~#part & 0xffff) .. part
  end
  return table.concat(blocks) .. string.pack("<I4I4", crc ~ 0xffffffff, #bytes & 0xffffffff)
end

--- An llm.c file: 256 numbers, then ids.
local function llmc(magic, version, count, ids, format)
  local words = {}
  for i, id in ipairs(ids) do words[i] = string.pack(format or "<I2", id) end
  return string.pack("<i4i4i4", magic, version, count) .. ("\0"):rep(1012) .. table.concat(words)
end

--- An IDX file: dims and bytes.
local function idx(dims, bytes, kind)
  local words = {string.pack(">I2BB", 0, kind or 8, #dims)}
  for d, n in ipairs(dims) do words[d + 1] = string.pack(">I4", n) end
  return table.concat(words) .. bytes
end

local function first(tokens, n)
  return tokens:windows({0}, {n or #tokens}, "int32"):totable()[1]
end

--- Asserts that a function of files fails as the environment does: nil, a message with this text, E_IO.
local function fails(wanted, value, message, code)
  assert.same({nil, "E_IO"}, {value, code})
  assert.truthy(message:find(wanted, 1, true), message)
end

describe("data.tokens", function()
  it("takes a text as bytes, of any kind", function()
    local tokens = data.tokens(file("a\0b\xff"))
    assert.same({97, 0, 98, 255}, first(tokens))
    assert.same({4, 255, 1}, {#tokens, tokens:largest(), tokens:width()})
    assert.equal("\0b", tokens:bytes(1, 3))
  end)

  it("unpacks gzip, of one member or several", function()
    local text = ("all work and no play "):rep(8000)
    local tokens = data.tokens(file(gzip(text)))
    assert.equal(text, tokens:bytes(0, #tokens))
    tokens = data.tokens(file(gzip "one " .. gzip "two"))
    assert.equal("one two", tokens:bytes(0, #tokens))
    fails("damaged or cut short", data.tokens(file(gzip(text):sub(1, -9000))))
    fails("damaged or cut short", data.tokens(file(gzip(text):gsub("work", "play", 1))))
    fails("damaged or cut short", data.tokens(file(gzip(text) .. "more")))
  end)

  it("knows llm.c's token files by their first number, whatever they are called", function()
    local ids = {50256, 1, 0, 65535}
    for _, name in ipairs {".bin", ".txt"} do
      local tokens = data.tokens(file(llmc(20240520, 1, 4, ids), name))
      assert.same(ids, first(tokens))
      assert.same({65535, 2}, {tokens:largest(), tokens:width()})
    end
    assert.same({128255, 7}, first(data.tokens(file(llmc(20240801, 7, 2, {128255, 7}, "<I4"), ".bin"))))
    assert.same({50256, 1}, first(data.tokens(file(llmc(20240520, 1, 2, ids), ".bin")))) -- as many as it says
  end)

  it("takes another .bin as uint16 without a header", function()
    local tokens = data.tokens(file(string.pack("<I2I2I2", 50256, 3, 0), ".bin"))
    assert.same({50256, 3, 0}, first(tokens))
  end)

  it("refuses files that are none of these", function()
    fails("magic number is 20240326", data.tokens(file(llmc(20240326, 3, 0, {1}), ".bin")))
    fails("magic number is 1234", data.tokens(file(llmc(1234, 1, 1, {1}), ".bin")))
    fails("version 2", data.tokens(file(llmc(20240520, 2, 1, {1}), ".bin")))
    fails("counts 9 ids, the file holds 2", data.tokens(file(llmc(20240520, 1, 9, {1, 2}), ".bin")))
    fails("counts -1 ids", data.tokens(file(llmc(20240520, 1, -1, {1, 2}), ".bin")))
    fails("900 bytes, and the header alone has 1024",
      data.tokens(file(llmc(20240520, 1, 1, {}):sub(1, 900), ".bin")))
    fails("3 bytes: no whole number", data.tokens(file("abc", ".bin")))
    fails("empty", data.tokens(file("")))
    fails("No such file", data.tokens("/nonexistent/text"))
    fails("directory", data.tokens("/"))
    helper.raises("E_VALUE", data.tokens, 5)
  end)

  it("prints the Bible, or says what is missing", function()
    local tokens = data.tokens "bible:"
    assert.truthy(#tokens > 4e6 and tokens:bytes(0, 30):find "^Ge1:1 In the beginning")
    local script = file('print(require("meshlua").data.tokens "bible:")')
    local out = helper.shell('PATH=/nonexistent "$MESHLUA" ' .. script)
    assert.truthy(out:find("nil\tbible: there is no command `bible`; install Debian's package bible-kjv", 1,
      true))
    assert.truthy(out:find("\tE_IO\n", 1, true))
  end)
end)

describe("a data file", function()
  it("is read as batches ask for it, and what was read is counted", function()
    local text = {}
    for i = 1, 5000 do text[i] = ("%d of many "):format(i) end
    local path = file(table.concat(text))
    local before = data.bytes_read()
    local records = data.windows(data.tokens(path), 32)
    local opened = data.bytes_read() - before
    assert.truthy(opened <= 1024, opened)
    records:batch {0, 700, 3}
    assert.equal(3 * 33, data.bytes_read() - before - opened) -- inputs and labels at once
    assert.equal(table.concat(text):byte(33), records:batch({1}).inputs:totable()[1][1])
    local packed = gzip "all of it"
    data.tokens(file(packed))
    assert.equal(opened + 3 * 33 + 33 + 2 * #packed, data.bytes_read() - before)
  end)

  it("may be a pipe", function()
    local script = file([[
      local tokens = assert(require("meshlua").data.tokens "/dev/stdin")
      print(#tokens, tokens:bytes(), require("meshlua").data.bytes_read())
    ]])
    local out = helper.shell('printf "from a pipe" | "$MESHLUA" ' .. script)
    assert.equal("11\tfrom a pipe\t11\n", out)
  end)

  it("that becomes shorter is an error that names it and the place", function()
    local path = file(("x"):rep(5000))
    local tokens = data.tokens(path)
    local handle <close> = assert(io.open(path, "wb"))
    handle:write "short"
    handle:flush()
    helper.raises(("[E_IO] %s: bytes 1600 to 1615 cannot be read: it has become shorter"):format(path),
      tokens.windows, tokens, {1600}, {16}, "int32")
  end)

  it("that cannot be read any more ends a script with 3: it is not the script's error", function()
    local text = file(("x"):rep(5000))
    local script = file(([[
      local tokens = require("meshlua").data.tokens "%s"
      io.open("%s", "wb"):close()
      print(tokens:bytes(4000, 4010))
    ]]):format(text, text))
    local out, err, code = helper.run {script}
    assert.same({"", 3}, {out, code})
    local wanted = script .. ":3: [E_IO] " .. text .. ": bytes 4000 to 4009 cannot be read"
    assert.truthy(err:find(wanted, 1, true), err)
  end)

  it("has a largest id, of all or of a range", function()
    local tokens = data.tokens(file("abzcd"))
    assert.same({122, 100, 0}, {data.largest(tokens), tokens:largest(3, 5), tokens:largest(2, 2)})
    assert.same({"abzcd", "zc"}, {tokens:bytes(), tokens:bytes(2, 4)})
    helper.raises("largest: from 3 to 6 of 5 numbers", tokens.largest, tokens, 3, 6)
  end)
end)

describe("data.windows", function()
  local tokens = data.tokens(file("abcdefghijk"))

  it("pairs each piece with what comes next", function()
    local records = data.windows(tokens, 3)
    assert.equal(3, #records)
    local batch = records:batch {2, 0}
    assert.same({{103, 104, 105}, {97, 98, 99}}, batch.inputs:totable())
    assert.same({{104, 105, 106}, {98, 99, 100}}, batch.labels:totable())
    assert.equal("int32", batch.inputs.dtype)
  end)

  it("keeps to a range", function()
    local records = data.windows(tokens, 2, 4, 9)
    assert.equal(2, #records)
    assert.same({{101, 102}, {103, 104}}, records:batch({0, 1}).inputs:totable())
    assert.same({{102, 103}, {104, 105}}, records:batch({0, 1}).labels:totable())
  end)

  it("needs a piece and one more", function()
    assert.equal(1, #data.windows(tokens, 10))
    fails("too few for a piece of 11 and the one that follows: 11 ids", data.windows(tokens, 11))
    fails("0 ids", data.windows(tokens, 1, 4, 4))
    helper.raises("E_VALUE", data.windows, tokens, 0)
    helper.raises("E_VALUE", data.windows, tokens, 2, 4, 12)
    helper.raises("E_VALUE", data.windows, tokens, 2, -1)
  end)

  it("gives no window that leaves the data", function()
    local records = data.windows(tokens, 3)
    helper.raises("batch: record", records.batch, records, {4})
    helper.raises("batch: record", records.batch, records, {-1})
  end)
end)

describe("core.shuffled", function()
  it("holds each of 0 .. n-1 once in each run of n", function()
    for _, n in ipairs {1, 2, 3, 10, 64, 1000} do
      local orders = {}
      for epoch = 0, 2 do
        local seen, order = {}, core.shuffled(7, epoch * n, n, n)
        for _, id in ipairs(order) do
          assert.falsy(seen[id], "twice")
          assert.truthy(math.type(id) == "integer" and 0 <= id and id < n)
          seen[id] = true
        end
        assert.equal(n, #order)
        orders[epoch + 1] = table.concat(order, " ")
      end
      if n >= 10 then
        assert.not_equal(orders[1], orders[2])
        assert.not_equal(orders[2], orders[3])
        assert.not_equal(orders[1], table.concat(core.shuffled(8, 0, n, n), " "))
      end
    end
  end)

  it("does not depend on how it is asked", function()
    local whole = core.shuffled(3, 0, 60, 25)
    local parts = {}
    for at = 0, 59, 7 do
      for _, id in ipairs(core.shuffled(3, at, math.min(7, 60 - at), 25)) do parts[#parts + 1] = id end
    end
    assert.same(whole, parts)
  end)

  it("mixes: neighbours part, every place is likely", function()
    local n, near, low = 4096, 0, 0
    local order = core.shuffled(1, 0, n, n)
    for i = 1, n - 1 do
      if math.abs(order[i] - order[i + 1]) < n // 8 then near = near + 1 end
      if order[i] < n // 2 and i <= n // 2 then low = low + 1 end
    end
    -- Of uniform pairs 1 - (7/8)^2 = 0.234 are so near, and half of a half are low: within five deviations.
    assert.near(0.234, near / n, 5 * math.sqrt(0.234 * 0.766 / n))
    assert.near(0.25, low / n, 5 * math.sqrt(0.25 * 0.25 / n))
  end)

  it("stays what it is, as runs are resumed with it", function()
    assert.same({4, 2, 7, 9, 5, 3, 1, 8, 6, 0, 8, 1}, core.shuffled(1, 0, 12, 10))
    assert.same({169993859, 857149973, 164140917, 547427703},
      core.shuffled(1 << 40, 1000000000000, 4, 1000000000))
  end)
end)

describe("batches", function()
  local text = {}
  for i = 0, 999 do text[i + 1] = string.char(i * 7 % 251) end
  local tokens = data.tokens(file(table.concat(text)))
  local records = data.windows(tokens, 8)

  it("are a function of seed and step", function()
    local a, b = records:shuffled {batch = 16, seed = 5}, records:shuffled {batch = 16, seed = 5}
    local other = records:shuffled {batch = 16, seed = 6}
    for _, step in ipairs {40, 1, 13} do
      assert.equal(a(step).inputs:bytes(), b(step).inputs:bytes())
    end
    assert.not_equal(a(1).inputs:bytes(), a(2).inputs:bytes())
    assert.not_equal(a(1).inputs:bytes(), other(1).inputs:bytes())
  end)

  it("hold every record once before any comes again, also across a batch", function()
    local at, seen = records:shuffled {batch = 10, seed = 1}, {}
    for step = 1, 25 do -- 250 of 2 x 124 records
      for _, row in ipairs(at(step).inputs:totable()) do
        local key = table.concat(row, " ")
        seen[key] = (seen[key] or 0) + 1
      end
    end
    local n, thrice = 0, 0
    for _, times in pairs(seen) do
      n = n + 1
      assert.truthy(times == 2 or times == 3)
      thrice = thrice + (times - 2)
    end
    assert.same({124, 2}, {n, thrice})
  end)

  it("are the same on every mesh, and lie where they are put", function()
    local plain = records:shuffled({batch = 16, seed = 2})(3)
    for _, case in ipairs {{{8}, {"data"}, P("data")}, {{4, 2}, {"data", "model"}, P("data", "model")},
        {{2, 4}, {"data", "model"}, P(nil, {"model", "data"})}, {{4, 2}, {"a", "b"}, P()}} do
      local sharding = NamedSharding(ml.make_mesh(case[1], case[2]), case[3])
      local batch = records:shuffled {batch = 16, seed = 2,
        shardings = {inputs = sharding, labels = sharding}}(3)
      for _, name in ipairs {"inputs", "labels"} do
        assert.equal(sharding, batch[name].sharding)
        assert.equal(plain[name]:bytes(), batch[name]:bytes())
        helper.close(ml.device_put(plain[name], sharding):totable(), batch[name]:totable())
      end
      local rows = plain.inputs:totable()
      for _, shard in ipairs(batch.inputs:addressable_shards()) do
        local at = shard.index
        for i, row in ipairs(shard.data:totable()) do
          assert.same(table.move(rows[at[1][1] + i - 1], at[2][1], at[2][2], 1, {}), row)
        end
      end
    end
  end)

  it("are the same where inputs and labels lie apart: then each is read for itself", function()
    local on = ml.make_mesh({8}, {"data"})
    local before = data.bytes_read()
    local both = records:batch({0, 5, 3, 7, 2, 2, 9, 1})
    local once = data.bytes_read() - before
    local apart = records:batch({0, 5, 3, 7, 2, 2, 9, 1}, {labels = NamedSharding(on, P "data")})
    for _, name in ipairs {"inputs", "labels"} do
      assert.equal(both[name]:bytes(), apart[name]:bytes())
      for i, row in ipairs(both[name]:totable()) do
        local from = ({0, 5, 3, 7, 2, 2, 9, 1})[i] * 8 + (name == "labels" and 1 or 0)
        for k, id in ipairs(row) do assert.equal((from + k - 1) * 7 % 251, id) end
      end
    end
    assert.equal(8 * 9, once)
    assert.equal(8 * 9 + 2 * 8 * 8, data.bytes_read() - before)
  end)

  it("that the mesh does not divide are refused", function()
    local mesh = ml.make_mesh({8}, {"data"})
    local at = records:shuffled {batch = 12, shardings = {inputs = NamedSharding(mesh, P("data"))}}
    helper.raises("E_INDIVISIBLE", at, 1)
  end)

  it("check what they are asked", function()
    helper.raises("did you mean 'batch'?", records.shuffled, records, {batches = 4})
    helper.raises("E_VALUE", records.shuffled, records, {batch = 0})
    helper.raises("E_VALUE", records.shuffled, records, {})
    local wanted = "a batch of 9223372036854775807; there are 124 records, and a batch has 16777216 rows"
    helper.raises("each: " .. wanted, records.each, records, math.maxinteger)
    helper.raises("shuffled: " .. wanted, records.shuffled, records, {batch = math.maxinteger})
    local at = records:shuffled {batch = 4}
    helper.raises("steps count from 1", at, 0)
    helper.raises("steps count from 1", at, 1.5)
  end)

  it("leave nothing behind", function()
    local at = records:shuffled {batch = 16}
    assert.equal(0, helper.left_behind(function() for step = 1, 20 do at(step) end end))
  end)

  it("in order cover all records; the last is filled up", function()
    local rows, sizes = {}, {}
    for batch, count in records:each(50) do
      sizes[#sizes + 1] = count
      assert.same({50, 8}, batch.inputs.shape)
      local list = batch.inputs:totable()
      for i = 1, count do rows[#rows + 1] = list[i] end
      for i = count + 1, 50 do assert.same(list[1], list[i]) end
    end
    assert.same({50, 50, 24}, sizes)
    for i, row in ipairs(rows) do assert.equal((i - 1) * 8 * 7 % 251, row[1]) end
    assert.equal(124, #rows)
  end)
end)

describe("data.idx", function()
  local images = idx({3, 2, 2}, "\0\1\2\3\4\5\6\7\8\9\10\255")

  it("reads records, packed or not", function()
    for _, pack in ipairs {gzip, function(bytes) return bytes end} do
      local records = data.idx {image = file(pack(images)), label = file(pack(idx({3}, "\5\6\7")))}
      assert.equal(3, #records)
      local batch = records:batch {2, 0}
      assert.same({{{8, 9}, {10, 255}}, {{0, 1}, {2, 3}}}, batch.image:totable())
      assert.same({7, 5}, batch.label:totable())
      assert.same({"uint8", "uint8"}, {batch.image.dtype, batch.label.dtype})
    end
  end)

  it("refuses labels that are fewer than the images", function()
    fails("2 records, but", data.idx {image = file(images), label = file(idx({2}, "\5\6"))})
  end)

  it("refuses what is cut short, of another type, or no IDX file", function()
    fails("11 elements of 3x2x2", data.idx {image = file(images:sub(1, -2))})
    fails("cut short in the header", data.idx {image = file(images:sub(1, 9))})
    fails("type 0x0d", data.idx {image = file(idx({1}, "\0\0\0\0", 0x0d))})
    fails("no records", data.idx {image = file(idx({0, 4}, ""))})
    for _, bytes in ipairs {"ab", "text that is no IDX file", "\0\0\8\0"} do
      fails("not an IDX file", data.idx {image = file(bytes)})
    end
    for _, dims in ipairs {{65536, 65536, 65536, 65536}, {4294967295, 4294967295, 4294967295}, {4294967295},
      {1 << 31, 1 << 31, 2}, {3, 1 << 31, 1 << 31, 8}, {12, 1, 1, 1, 1, 1 << 30, 1 << 30, 16}} do
      fails("cut short: 12 elements of " .. table.concat(dims, "x"),
        data.idx {image = file(idx(dims, images:sub(-12)))})
    end
    fails("9 dims; a tensor has 8 at most", data.idx {image = file(idx({1, 1, 1, 1, 1, 1, 1, 1, 1}, "\0"))})
    fails("No such file", data.idx {image = "/nonexistent/images"})
    helper.raises("E_VALUE", data.idx, {})
    helper.raises("E_VALUE", data.idx, "images")
  end)

  it("takes any header for what it says, or refuses it", function()
    local taken, refused = 0, 0
    local path = file ""
    local state = 12345
    local function draw(n)
      state = state * 6364136223846793005 + 1442695040888963407
      return (state >> 33) % n
    end
    local sizes = {0, 1, 1, 2, 3, 4, 255, 65535, 65536, 1 << 24, 1 << 31, (1 << 32) - 1}
    for _ = 1, 1000 do
      local rank, dims, product = draw(10), {}, 1.0
      for d = 1, rank do
        dims[d] = sizes[draw(#sizes) + 1]
        product = product * dims[d]
      end
      local body = ("x"):rep(draw(2) == 0 and product <= 4096 and math.tointeger(product) or draw(64))
      local bytes = idx(dims, body, draw(8) == 0 and draw(256) or 8)
      local cut = draw(6) == 0 and draw(#bytes + 1) or #bytes
      do
        local handle <close> = assert(io.open(path, "wb"))
        handle:write(bytes:sub(1, cut))
      end
      local records, message, code = data.idx {field = path}
      if records then
        local field = records:batch({0, records.n - 1}).field
        assert.same({2, table.unpack(dims, 2)}, field.shape)
        assert(product <= cut, "more elements than bytes")
        taken = taken + 1
      else
        assert.equal("E_IO", code)
        assert.equal("string", type(message))
        refused = refused + 1
      end
    end
    assert(taken > 30 and refused > 300, taken .. " taken")
  end)
end)

describe("ids of 32 bits", function()
  local function ids(...) return ml.core.tokens(("<" .. ("I4"):rep(select("#", ...))):pack(...), 4) end

  it("that int32 holds are what they are", function()
    local tokens = ids(0, 1, 65536, (1 << 31) - 1, 7)
    assert.equal((1 << 31) - 1, data.largest(tokens))
    assert.same({1, 65536, (1 << 31) - 1}, tokens:windows({1}, {3}, "int32"):at(1):totable())
  end)

  it("that it does not hold are an error that names the first", function()
    for _, id in ipairs {1 << 31, (1 << 31) + 5, (1 << 32) - 1} do
      local tokens = ids(1, 2, 3, 4, 5, id, 7, id, 9)
      assert.equal(id, data.largest(tokens))
      helper.raises(("number 5 (from 0) is %d, which int32 does not hold"):format(id), function()
        return tokens:windows({0, 3}, {4}, "int32")
      end)
      helper.raises("number 5 (from 0)", function() return data.windows(tokens, 2):batch {1, 2} end)
      assert.same({{1, 2}}, data.windows(tokens, 2):batch({0}).inputs:totable())
    end
  end)
end)
