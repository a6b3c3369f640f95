-- catalog_spec.lua: files of tensors. A row for every rule that a reader holds files to: what breaks it is
-- refused with the file, the tensor and the rule in the message.
local helper = require "spec.helper"
local ml = require "meshlua"
local core = ml.core
local file = helper.file

--- Asserts that the file is refused, with all of these texts in the message.
local function refused(path, code, ...)
  local catalog, message, got = core.catalog(path)
  assert.is_nil(catalog, "it was read")
  for _, text in ipairs {path .. ": ", ...} do
    assert.truthy(message:find(text, 1, true), ("%q is not in: %s"):format(text, message))
  end
  assert.equal(code, got)
end

local function opened(bytes, ending) return assert(core.catalog(file(bytes, ending))) end

--- name and encoding of every entry
local function listed(catalog)
  local out = {}
  for i, e in ipairs(catalog:entries()) do
    out[i] = ("%s %s [%s]"):format(e.name, e.encoding, table.concat(e.shape, ","))
  end
  return out
end

-- ---- safetensors --------------------------------------------------------------------------------------

--- A file with this header and data; `n`: the length that it claims.
local function safetensors(header, data, n) return string.pack("<I8", n or #header) .. header
  .. (data or "") end

--- A tensor's fields.
local function fields(dtype, shape, from, to)
  return ('{"dtype":"%s","shape":%s,"data_offsets":[%s,%s]}'):format(dtype, shape, from, to)
end

local function one(dtype, shape, from, to) return '{"a":' .. fields(dtype, shape, from, to) .. "}" end

local eight = ("x"):rep(8)
local good = one("F32", "[2]", 0, 8)

describe("a safetensors file is refused:", function()
  local rules = {
    {"fewer than 8 bytes", "1234567", "fewer than 8"},
    {"a header above 100,000,000 bytes", safetensors("{}", "", 100000001), "at most 100000000"},
    {"a header of 2^60 bytes", safetensors("{}", "", 1 << 60), "at most 100000000"},
    {"a header of 2^64-1 bytes", safetensors("{}", "", -1), "at most 100000000"},
    {"a header beyond the file", safetensors("{}", "", 3), "a header of 3 bytes, in a file of 10"},
    {"a first byte that is not {", safetensors(" " .. good, eight), "first byte is not '{'"},
    {"an empty header", safetensors("", ""), "first byte is not '{'"},
    {"a list for a header", safetensors("[]"), "first byte is not '{'"},
    {"a header that is not UTF-8", safetensors('{"\xff":1}'), "not UTF-8"},
    {"a lone surrogate", safetensors('{"\\ud800":1}'), "no JSON object"},
    {"a header cut short", safetensors(good:sub(1, -2)), "the text ends inside the value"},
    {"what is no JSON", safetensors('{"a":}'), "no JSON object"},
    {"two objects", safetensors("{}{}"), "more than spaces behind its object"},
    {"a tab behind the object", safetensors("{}\t"), "more than spaces behind its object"},
    {"a newline behind the object", safetensors("{}\n"), "more than spaces behind its object"},
    {"a NUL behind the object", safetensors("{}\0"), "more than spaces behind its object"},
    {"nesting without end", safetensors('{"a":' .. ("["):rep(4000)), "nested deeper than 2048"},
    {"a duplicate tensor", safetensors('{"a":' .. fields("U8", "[4]", 0, 4) .. ',"a":'
      .. fields("U8", "[4]", 4, 8)
      .. "}", eight), "a duplicate key"},
    {"a duplicate field", safetensors('{"a":{"dtype":"U8","dtype":"I8","shape":[8],"data_offsets":[0,8]}}',
      eight),
      "a duplicate key"},
    {"a NUL in a name", safetensors('{"a\\u0000b":' .. fields("U8", "[8]", 0, 8) .. "}", eight),
      "a NUL in a string"},
    {"an empty name", safetensors('{"":' .. fields("U8", "[8]", 0, 8) .. "}", eight),
      'tensor "": a name must not'},
    {"a tensor that is no object", safetensors('{"a":[1]}'), 'tensor "a": it is no object'},
    {"no dtype", safetensors('{"a":{"shape":[],"data_offsets":[0,4]}}'),
      'tensor "a": it has no text "dtype"'},
    {"an unknown dtype", safetensors(one("F33", "[2]", 0, 8), eight), 'tensor "a": an unknown dtype "F33"'},
    {"a block format of GGUF", safetensors(one("Q8_0", "[32]", 0, 34), eight), 'an unknown dtype "Q8_0"'},
    {"a dtype of two words", safetensors(one("F32 ", "[2]", 0, 8), eight), 'an unknown dtype "F32 "'},
    {"no shape", safetensors('{"a":{"dtype":"F32","data_offsets":[0,4]}}'),
      'tensor "a": it has no list "shape"'},
    {"a shape that is a number", safetensors(one("F32", "2", 0, 8), eight), 'it has no list "shape"'},
    {"a negative dim", safetensors(one("F32", "[-2]", 0, 8), eight), 'tensor "a": dim 1 is no whole number'},
    {"a fractional dim", safetensors(one("F32", "[1,2.0]", 0, 8), eight), "dim 2 is no whole number"},
    {"a dim with an exponent", safetensors(one("F32", "[2e0]", 0, 8), eight), "dim 1 is no whole number"},
    {"a dim above 2^53", safetensors(one("F32", "[9007199254740993,0]", 0, 0)), "dim 1 is no whole number"},
    {"a dim above 2^63", safetensors(one("F32", "[9223372036854775808]", 0, 0)),
      "a number that is too large"},
    {"more than 8 dims", safetensors(one("U8", "[1,1,1,1,1,1,1,1,1]", 0, 1), "x"), "9 dims; at most 8"},
    {"dims whose product overflows", safetensors(one("U8", "[4294967296,4294967296]", 0, 0)),
      "the product of its dims"},
    {"dims whose product overflows to 8", safetensors(one("U8", "[4503599627370496,4096,8]", 0, 8), eight),
      "the product of its dims"},
    {"bits that fill no bytes", safetensors(one("F4", "[3]", 0, 2), "xx"), "no whole number"},
    {"no offsets", safetensors('{"a":{"dtype":"F32","shape":[2]}}'), 'it has no list "data_offsets"'},
    {"three offsets", safetensors('{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8,8]}}', eight),
      'it has no list "data_offsets"'},
    {"a negative offset", safetensors(one("F32", "[2]", -8, 0), eight), "an offset is no whole number"},
    {"a fractional offset", safetensors(one("F32", "[2]", "0.0", 8), eight), "an offset is no whole number"},
    {"an offset above 2^53", safetensors(one("F32", "[2]", 0, "9007199254740993"), eight),
      "an offset is no whole"},
    {"an end before its begin", safetensors(one("F32", "[2]", 8, 0), eight),
      'tensor "a": it ends at 0, before it begins'},
    {"bytes that are not those of the shape", safetensors(one("F32", "[3]", 0, 8), eight),
      'tensor "a": its offsets hold 8 bytes, its shape and dtype 12'},
    {"a hole at the beginning", safetensors(one("U8", "[4]", 4, 8), eight),
      "a hole between tensors: it begins at 4"},
    {"a hole between", safetensors('{"a":' .. fields("U8", "[2]", 0, 2) .. ',"b":'
      .. fields("U8", "[4]", 4, 8) .. "}",
      eight), 'tensor "b": a hole between tensors'},
    {"an overlap", safetensors('{"a":' .. fields("U8", "[5]", 0, 5) .. ',"b":' .. fields("U8", "[4]", 4, 8)
      .. "}",
      eight), 'tensor "b": tensors overlap'},
    {"the same bytes twice", safetensors('{"a":' .. fields("U8", "[8]", 0, 8) .. ',"b":'
      .. fields("U8", "[8]", 0, 8)
      .. "}", eight), 'tensor "b": tensors overlap'},
    {"bytes behind the last tensor", safetensors(one("U8", "[7]", 0, 7), eight),
      'tensor "a": the tensors end at byte'},
    {"bytes without a tensor", safetensors("{}", eight), "the tensors end at byte 10, the file at byte 18"},
    {"data cut short", safetensors(good, "1234"), 'tensor "a": the tensors end at byte'},
    {"data far beyond the file", safetensors(one("U8", "[9007199254740992]", 0, "9007199254740992"), eight),
      'tensor "a": the tensors end at byte'},
    {"a field it does not know", safetensors('{"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8],"x":1}}',
      eight),
      'tensor "a": a field that is none of dtype, shape, data_offsets'},
    {"metadata that is no object", safetensors('{"__metadata__":"x"}'), "__metadata__ is no object"},
    {"metadata that is no text", safetensors('{"__metadata__":{"k":1}}'),
      '__metadata__: the value of "k" is no text'},
    {"a duplicate in the metadata", safetensors('{"__metadata__":{"k":"1","k":"2"}}'), "a duplicate key"},
  }
  for _, rule in ipairs(rules) do
    it(rule[1], function() refused(file(rule[2], ".safetensors"), "E_PARSE", rule[3]) end)
  end

  it("every length that it is cut to", function()
    local bytes = safetensors('{"__metadata__":{"k":"v"},"a":' .. fields("U8", "[8]", 0, 8) .. "}", eight)
    for n = 0, #bytes - 1 do refused(file(bytes:sub(1, n), ".safetensors"), "E_PARSE") end
  end)

  it("names are shown with what is not printed as \\xNN, and cut", function()
    local name = "\u{e9}" .. ("n"):rep(200)
    refused(file(safetensors('{"' .. name .. '":1}'), ".safetensors"), "E_PARSE", 'tensor "\\xc3\\xa9nnn',
      'nnn...": it')
  end)
end)

describe("a safetensors file is read:", function()
  it("scalars, zero dims, an empty file, any order of fields, data that is not aligned", function()
    assert.same({"a F32 []"}, listed(opened(safetensors(one("F32", "[]", 0, 4), "1234"))))
    assert.same({"a F32 [0,7]"}, listed(opened(safetensors(one("F32", "[0,7]", 0, 0)))))
    assert.same({}, listed(opened(safetensors "{}")))
    assert.same({}, listed(opened(safetensors "{}   ")))
    local c = opened(safetensors('{"b":{"data_offsets":[1,9],"shape":[2],"dtype":"F32"},"a":'
      .. fields("U8", "[1]", 0, 1)
      .. "}", "." .. eight))
    assert.same({"a U8 [1]", "b F32 [2]"}, listed(c))
    assert.equal(eight, c:bytes(2))
  end)

  it("without a telling name, by what it begins with", function()
    assert.equal("safetensors", opened(safetensors(good, eight)).format)
    assert.equal("safetensors", opened(safetensors(good, eight), ".gguf").format)
  end)

  it("a dtype that nothing here holds is listed, and has no dtype", function()
    local e = opened(safetensors(one("F8_E8M0", "[8]", 0, 8), eight)):entries()[1]
    assert.same({"F8_E8M0", nil, 8}, {e.encoding, e.dtype, e.bytes})
  end)
end)

-- ---- what is no file of tensors -----------------------------------------------------------------------

describe("a file of tensors", function()
  it("that is not there, is a folder, a pipe, empty, or text", function()
    refused("out/there/is/none.safetensors", "E_IO", "No such file")
    refused("tests", "E_IO", "it is a folder")
    refused("/dev/null", "E_IO", "it is no regular file")
    refused(file "", "E_PARSE", "it holds no tensors that are read here")
    refused(file("", ".npy"), "E_PARSE", "it does not begin as npy files do")
    refused(file("", ".npz"), "E_PARSE", "the directory's end is missing")
    refused(file("", ".gguf"), "E_PARSE", "asks for 4 bytes more")
    refused(file "a text\nof two lines\n", "E_PARSE", "it holds no tensors that are read here")
  end)

  it("has fields and methods, and no others", function()
    local path = file(safetensors(good, eight))
    local c = assert(core.catalog(path))
    assert.same({"safetensors", path, #safetensors(good, eight)}, {c.format, c.path, c.size})
    assert.equal("function", type(c.entries))
    assert.error_matches(function() return c.entrys end, "entrys")
    assert.error_matches(function() return c.formt end, "formt")
    assert.error_matches(function() return c[1] end, "Catalog")
    for _, i in ipairs {0, -1, 2, 1 << 40} do
      helper.raises(("bytes: entry %d of 1"):format(i), c.bytes, c, i)
    end
  end)

  it("is closed once, and then says so", function()
    local c = opened(safetensors(good, eight))
    c:close()
    c:close()
    assert.error_matches(function() c:entries() end, "the file of tensors is closed")
    assert.error_matches(function() return c.size end, "the file of tensors is closed")
  end)

  it("that has become shorter says so when it is read", function()
    local path = file(safetensors(good, eight))
    local c = assert(core.catalog(path))
    assert(core.truncate(path, 20))
    local bytes, message, code = c:bytes(1)
    assert.same({nil, "E_IO"}, {bytes, code})
    assert.truthy(message:find('tensor "a": the file has become shorter', 1, true), message)
  end)

  it("leaves nothing behind, read or refused", function()
    local whole, broken = file(safetensors(good, eight)), file(safetensors(one("F32", "[3]", 0, 8), eight))
    assert.equal(0, helper.left_behind(function()
      local c = core.catalog(whole)
      c:entries()
      c:close()
      core.catalog(broken)
    end))
  end)
end)

-- ---- npy ----------------------------------------------------------------------------------------------

local function npy(dict, data, version, length)
  local head = ("\x93NUMPY%c\0"):format(version or 1)
  return head .. string.pack((version or 1) == 1 and "<I2" or "<I4", length or #dict) .. dict .. (data or "")
end

local function dict(descr, order,
  shape) return ("{'descr': %s, 'fortran_order': %s, 'shape': %s, }\n"):format(descr, order, shape) end

describe("an npy file is refused:", function()
  local f4 = dict("'<f4'", "False", "(2,)")
  local rules = {
    {"without its first bytes", "\x93NUMPX\1\0" .. ("x"):rep(30), "it does not begin as npy files do"},
    {"of version 4", npy(f4, eight, 4), "npy of version 4.0"},
    {"a header beyond the file", npy(f4, "", 1, 60000), "the file ends in its header"},
    {"a header of 4 GiB", npy(f4, eight, 2, (1 << 32) - 1), "at most 65536"},
    {"a list for a header", npy("[]\n", eight), "the header is no dict"},
    {"an unknown field", npy("{'descr': '<f4', 'x': 1}\n", eight), "a field that is none of"},
    {"a field twice", npy("{'descr': '<f4', 'descr': '<f4'}\n", eight), "descr twice"},
    {"a missing field", npy("{'descr': '<f4', 'shape': (2,)}\n", eight), "the header lacks one of"},
    {"text behind the dict", npy(dict("'<f4'", "False", "(2,)") .. "x", eight), "holds more than its dict"},
    {"a call in the dict", npy(dict("__import__('os')", "False", "(2,)"), eight), "descr is no text"},
    {"a shape that is a number", npy(dict("'<f4'", "False", "2"), eight), "its shape is no tuple"},
    {"a shape in brackets", npy(dict("'<f4'", "False", "[2]"), eight), "its shape is no tuple"},
    {"a shape without its comma", npy(dict("'<f4'", "False", "(2)"), eight), "its shape is no tuple"},
    {"a negative dim", npy(dict("'<f4'", "False", "(-2,)"), eight), "dim 1 is no whole number"},
    {"a dim without end", npy(dict("'<f4'", "False", "(" .. ("9"):rep(40) .. ",)"), eight),
      "dim 1 is no whole number"},
    {"nine dims", npy(dict("'<f4'", "False", "(" .. ("1,"):rep(9) .. ")"), eight), "more than 8 dims"},
    {"dims that overflow", npy(dict("'<f4'", "False", "(4294967296, 4294967296)"), eight),
      "the product of its dims"},
    {"an order that is a number", npy(dict("'<f4'", "0", "(2,)"), eight), "neither True nor False"},
    {"an unknown dtype", npy(dict("'<q4'", "False", "(2,)"), eight), 'an unknown dtype "<q4"'},
    {"Python's objects", npy(dict("'|O'", "False", "(1,)"), eight), "Python's objects"},
    {"a structured dtype", npy(dict("[('a', '<f4')]", "False", "(2,)"), eight), "a structured dtype"},
    {"data cut short", npy(f4, "1234567"),
      'tensor "arr_0": 7 bytes behind the header, its shape and dtype have 8'},
    {"data too long", npy(f4, "123456789"), "9 bytes behind the header"},
  }
  for _, rule in ipairs(rules) do
    it(rule[1], function() refused(file(rule[2], ".npy"), "E_PARSE", rule[3]) end)
  end
end)

it("an npy file of another byte order or kind is listed by what it says", function()
  local c = opened(npy(dict("'>f4'", "False", "(2,)"), eight))
  assert.same({"arr_0 >f4 [2]"}, listed(c))
  assert.is_nil(c:entries()[1].dtype)
  assert.same({"arr_0 F32 [2]"}, listed(opened(npy(dict('"=f4"', "False", "(2,)"), eight))))
  assert.same({"arr_0 U8 [8]"}, listed(opened(npy(dict("'>u1'", "False", "(8,)"), eight))))
end)

-- ---- npz ----------------------------------------------------------------------------------------------

local array = npy(dict("'<f4'", "False", "(2,)"), eight)

--- A zip file of members {name, bytes, and fields that lie}; `ending` lies about the directory.
local function zip(members, ending)
  ending = ending or {}
  local out, rows, at = {}, {}, 0
  for i, m in ipairs(members) do
    local name, bytes = m[1], m[2]
    local sizes = string.pack("<I4I4I4", m.crc or 0, m.stored or #bytes, m.size or #bytes)
    local head = "PK\3\4" .. string.pack("<I2I2I2I4", 20, m.flags or 0, m.method or 0, 0x210000) .. sizes
      .. string.pack("<I2I2", #name, 0) .. (m.other or name)
    out[i] = (m.gap or "") .. head .. bytes
    rows[i] = "PK\1\2" .. string.pack("<I2I2I2I2I4", 20, 20, m.flags or 0, m.method or 0, 0x210000)
      .. (m.told or sizes) .. string.pack("<I2I2I2I2I2I4I4", #name, #(m.extra or ""), 0, 0, 0, 0,
      m.at or at + #(m.gap or "")) .. name .. (m.extra or "")
    at = at + #out[i]
  end
  local data, directory = table.concat(out), table.concat(rows)
  return data .. (ending.hole or "") .. directory .. (ending.between or "") .. "PK\5\6"
    .. string.pack("<I2I2I2I2I4I4I2", ending.disk or 0, 0,
    ending.count or #members, ending.count or #members, ending.bytes or #directory,
    ending.begin or #data + #(ending.hole or ""), 0)
end

local function member(changes)
  local m = {"a.npy", array}
  for k, v in pairs(changes) do m[k] = v end
  return zip {m}
end

local huge = string.pack("<I4I4I4", 0, 0xffffffff, 0xffffffff)

describe("an npz file is refused:", function()
  local rules = {
    {"without the directory's end", zip({{"a.npy", array}}):sub(1, -2), "the directory's end is missing"},
    {"one of several parts", zip({{"a.npy", array}}, {disk = 1}), "one of several parts"},
    {"a directory beyond the file", zip({{"a.npy", array}}, {begin = 1 << 30}), "the directory's place"},
    {"a directory that is too long", zip({{"a.npy", array}}, {bytes = 1 << 30}), "the directory's place"},
    {"a directory that is too short", zip({{"a.npy", array}}, {bytes = 40, begin = 0}),
      "the directory's place"},
    {"60,000 members that are not there", zip({{"a.npy", array}}, {count = 60000}),
      "60000 members in a directory"},
    {"fewer members than rows", zip({{"a.npy", array}, {"b.npy", array}}, {count = 1}),
      "holds more than its 1 member"},
    {"bytes between directory and end", zip({{"a.npy", array}}, {between = "xxxx"}), "the directory's place"},
    {"a member that is no npy file", zip {{"a.txt", array}}, "its name does not end in .npy"},
    {"a member without a name", zip {{".npy", array}}, "its name does not end in .npy"},
    {"a member that is not what it says", zip {{"a.npy", "text text text"}},
      "it does not begin as npy files do"},
    {"a NUL in a name", zip {{"a\0b.npy", array}}, "a NUL in its name"},
    {"a name twice", zip {{"a.npy", array}, {"a.npy", array}}, 'tensor "a": the name stands there twice'},
    {"an encrypted member", member {flags = 1}, "it is encrypted"},
    {"a patch", member {flags = 32}, "unknown flags"},
    {"a member packed by another method", member {method = 12}, "packed by method 12"},
    {"a stored member of two sizes", member {size = 4}, "stored as"},
    {"sizes of 2^60", member {told = huge, extra = string.pack("<I2I2I8I8", 1, 16, 1 << 60, 1 << 60)},
      "beyond the file's members"},
    {"sizes of 2^63", member {told = huge, extra = string.pack("<I2I2I8I8", 1, 16, 1 << 63, 1 << 63)},
      "its sizes of 64 bits are missing"},
    {"sizes of 64 bits that are missing", member {told = huge}, "its sizes of 64 bits are missing"},
    {"a member deflated beyond what deflate does", member {method = 8, size = 1 << 30,
      told = string.pack("<I4I4I4", 0, #array, 1 << 30)}, "which no deflate does"},
    {"deflated bytes that are none", member {method = 8}, "it does not unpack"},
    {"another name in the member's header", member {other = "b.npy"},
      "its header is not what the directory says"},
    {"another size in the member's header", member {told = string.pack("<I4I4I4", 0, #array - 1, #array - 1)},
      "its header is not what the directory says"},
    {"another place", member {at = 1}, "a hole ahead of the member"},
    {"a place beyond the file", member {at = 1 << 30}, "beyond the file's members"},
    {"two members at one place", zip {{"a.npy", array}, {"b.npy", array, at = 0}}, "members overlap"},
    {"a hole between members", zip {{"a.npy", array}, {"b.npy", array, gap = "xx"}},
      "a hole ahead of the member"},
    {"a hole ahead of the directory", zip({{"a.npy", array}}, {hole = "xxx"}),
      "a hole ahead of the directory"},
    {"bytes ahead of the first member", zip {{"a.npy", array, gap = "xx"}}, "a hole ahead of the member"},
    {"an array cut short", zip {{"a.npy", array:sub(1, -2)}}, "7 bytes behind the header"},
  }
  for _, rule in ipairs(rules) do
    it(rule[1], function() refused(file(rule[2], ".npz"), "E_PARSE", rule[3]) end)
  end

  --- The end in its form of 64 bits, and what tells where it is.
  local function wide(lies)
    local data = zip({{"a.npy", array}}):sub(1, -23)
    local at = #data
    local begin = assert(data:find("PK\1\2", 1, true)) - 1
    return data .. (lies.magic or "PK\6\6") .. string.pack("<I8I2I2I4I4I8I8I8I8", 44, 45, 45, 0, 0, 1,
      lies.count or 1,
      lies.bytes or at - begin, begin) .. "PK\6\7" .. string.pack("<I4I8I4", 0, lies.at or at, 1) .. "PK\5\6"
      .. string.pack("<I2I2I2I2I4I4I2", 0, 0, 0xffff, 0xffff, 0xffffffff, 0xffffffff, 0)
  end

  it("a directory of 64 bits that lies", function()
    assert.same({"a F32 [2]"}, listed(opened(wide {}, ".npz")))
    for wanted, lies in pairs {
      ["is not where it should be"] = {at = 1 << 60}, ["of 64 bits is damaged"] = {magic = "PK\6\5"},
      ["1152921504606846976 members"] = {count = 1 << 60},
        ["place and length do not fit"] = {bytes = 1 << 60},
    } do
      refused(file(wide(lies), ".npz"), "E_PARSE", wanted)
    end
  end)

  it("an array that ends in its header", function()
    refused(file(zip {{"a.npy", npy("{'descr'", "", 1, 60000)}}, ".npz"), "E_PARSE", "it ends in its header")
  end)

  it("damage in a member is found when it is read", function()
    local c = opened(zip {{"a.npy", array}})
    local bytes, message, code = c:bytes(1)
    assert.same({nil, "E_IO"}, {bytes, code})
    assert.truthy(message:find('tensor "a": its bytes are damaged', 1, true), message)
  end)
end)

-- ---- GGUF ---------------------------------------------------------------------------------------------

local function text(s) return string.pack("<s8", s) end
local function pair(key, kind, bytes) return text(key) .. string.pack("<I4", kind) .. bytes end
local function tensor(name, dims, kind, offset)
  return text(name) .. string.pack("<I4", #dims) .. string.pack(("<" .. ("I8"):rep(#dims)),
    table.unpack(dims))
    .. string.pack("<I4I8", kind, offset)
end

local function gguf(tensors, values, data, lies)
  lies = lies or {}
  local head = "GGUF" .. string.pack("<I4I8I8", lies.version or 3, lies.tensors or #tensors,
    lies.values or #values)
    .. table.concat(values) .. table.concat(tensors)
  if data then head = head .. ("\0"):rep(-#head % (lies.alignment or 32)) end
  return head .. (data or "")
end

describe("a GGUF file is refused:", function()
  local a = tensor("a", {2}, 0, 0)
  local rules = {
    {"of version 1", gguf({}, {}, nil, {version = 1}), "GGUF of version 1;"},
    {"of reversed bytes", gguf({}, {}, nil, {version = 3 << 24}), "or its bytes in reverse"},
    {"cut short in its counts", ("GGUF\3\0\0\0\0"), "asks for"},
    {"2^60 tensors", gguf({}, {}, nil, {tensors = 1 << 60}), "1152921504606846976 tensors"},
    {"2^60 values", gguf({}, {}, nil, {values = 1 << 60}), "1152921504606846976 values"},
    {"a string beyond the end", gguf({}, {string.pack("<I8", 1 << 60) .. "x" .. eight}), "asks for"},
    {"a text beyond the end", gguf({}, {pair("k", 8, string.pack("<I8", 100) .. "x")}), "asks for"},
    {"a list of 2^60 numbers", gguf({}, {pair("k", 9, string.pack("<I4I8", 4, 1 << 60))}),
      '"k" has 1152921504606846976'},
    {"a list of 2^60 texts", gguf({}, {pair("k", 9, string.pack("<I4I8", 8, 1 << 60))}),
      '"k" has 1152921504606846976'},
    {"a list in a list", gguf({}, {pair("k", 9, string.pack("<I4I8", 9, 0) .. eight)}), "a list in a list"},
    {"an unknown kind of value", gguf({}, {pair("k", 13, eight)}), "of type 13, which is unknown"},
    {"a boolean of 2", gguf({}, {pair("k", 7, "\2")}), "neither true nor false"},
    {"an empty key", gguf({}, {pair("", 4, "1234")}), "a key of the metadata of 0 bytes"},
    {"a NUL in a key", gguf({}, {pair("k\0k", 4, "1234")}), "a NUL in a key"},
    {"a key twice", gguf({}, {pair("k", 4, "1234"), pair("k", 4, "1234")}),
      'the metadata has the key "k" twice'},
    {"an alignment of 48", gguf({}, {pair("general.alignment", 4, string.pack("<I4", 48))}),
      "48, no power of two"},
    {"an alignment of 0", gguf({}, {pair("general.alignment", 4, "\0\0\0\0")}), "0, no power of two"},
    {"an alignment in text", gguf({}, {pair("general.alignment", 8, text "32")}), "no number of 32 bits"},
    {"a tensor's name of 65 bytes", gguf({tensor(("n"):rep(65), {2}, 0, 0)}, {}, eight),
      "of 65 bytes; 1 to 64"},
    {"a tensor twice", gguf({a, a}, {}, eight), 'tensor "a": the name stands there twice'},
    {"five dims", gguf({tensor("a", {1, 1, 1, 1, 2}, 0, 0)}, {}, eight), 'tensor "a": 5 dims'},
    {"4,000,000,000 dims", gguf({text "a" .. string.pack("<I4", 4000000000) .. eight .. eight}, {}, eight),
      "4000000000 dims"},
    {"a dim of 2^60", gguf({tensor("a", {1 << 60}, 0, 0)}, {}, eight), "a dim of 1152921504606846976"},
    {"dims that overflow", gguf({tensor("a", {1 << 40, 1 << 40}, 0, 0)}, {}, eight),
      "the product of its dims"},
    {"as many bytes as there can be", gguf({tensor("a", {1 << 28, 1 << 28}, 28, 0)}, {}, eight),
      "it ends at byte 576460752303423"},
    {"an unknown type", gguf({tensor("a", {2}, 4, 0)}, {}, eight), 'tensor "a": an unknown type, number 4'},
    {"a block cut in two", gguf({tensor("a", {16, 2}, 8, 0)}, {}, ("x"):rep(64)),
      "no multiple of Q8_0's block of 32"},
    {"blocks of a scalar", gguf({tensor("a", {}, 8, 0)}, {}, ("x"):rep(64)), "no multiple of Q8_0's block"},
    {"an offset of 2^60", gguf({tensor("a", {2}, 0, 1 << 60)}, {}, eight),
      "it begins at byte 1152921504606846976"},
    {"an offset that is not aligned", gguf({tensor("a", {2}, 0, 4)}, {}, ("x"):rep(64)),
      "a hole between tensors"},
    {"a hole", gguf({a, tensor("b", {2}, 0, 64)}, {}, ("x"):rep(72)), 'tensor "b": a hole between tensors'},
    {"an overlap", gguf({a, tensor("b", {2}, 0, 0)}, {}, ("x"):rep(72)), "tensors overlap"},
    {"data cut short", gguf({a}, {}, "1234567"), 'tensor "a": it ends at byte'},
    {"data that is missing", gguf({a}, {}), 'tensor "a": it ends at byte'},
    {"bytes behind the last tensor", gguf({a}, {}, ("x"):rep(33)), "bytes behind the last tensor"},
  }
  for _, rule in ipairs(rules) do
    it(rule[1], function() refused(file(rule[2], ".gguf"), "E_PARSE", rule[3]) end)
  end

  it("a header that never ends", function()
    local path = file(gguf({}, {text "k" .. string.pack("<I4I8", 8, 1 << 29)}), ".gguf")
    assert(core.truncate(path, 1 << 30)) -- a hole: the file takes no room on disk
    refused(path, "E_PARSE", "a header of more than 268435456 bytes")
  end)

  it("every length that it is cut to", function()
    local values = {pair("k", 9, string.pack("<I4I8", 8, 2) .. text "one" .. text "two"),
      pair("u", 4, "1234")}
    local bytes = gguf({a}, values, eight)
    assert.same({"a F32 [2]"}, listed(opened(bytes)))
    for n = 0, #bytes - 1 do refused(file(bytes:sub(1, n), ".gguf"), "E_PARSE") end
  end)
end)

-- ---- what is to be written ----------------------------------------------------------------------------

describe("catalog_layout", function()
  --- The file of the layout, with zeros for data, read again.
  local function again(format, entries, metadata)
    local l = assert(core.catalog_layout(format, entries, metadata))
    local c = opened(l.header .. ("\0"):rep(l.size - #l.header), "." .. format)
    local begins = {}
    for _, e in ipairs(c:entries()) do begins[e.name] = e.begin end
    for i, e in ipairs(entries) do assert.equal(begins[e.name] or begins.arr_0, l.begin[i]) end
    return c
  end
  local entries = {{name = "a", encoding = "F32", shape = {2, 32}},
    {name = "b.c", encoding = "BF16", shape = {}},
    {name = "z", encoding = "F16", shape = {0, 3}}}

  it("lays out what it reads again", function()
    local want = {"a F32 [2,32]", "b.c BF16 []", "z F16 [0,3]"}
    for _, format in ipairs {"safetensors", "gguf"} do
      local c = again(format, entries, {note = "text", empty = ""})
      assert.same(want, listed(c))
      assert.same({note = "text", empty = ""}, c:metadata())
    end
    assert.same({"arr_0 F32 [2,32]"}, listed(again("npy", {entries[1]})))
    assert.same({"a Q8_0 [2,32]"}, listed(again("gguf", {{name = "a", encoding = "Q8_0", shape = {2, 32}}})))
    assert.same({}, listed(again("safetensors", {})))
    assert.equal(0, #assert(core.catalog_layout("safetensors", entries)).header % 8)
  end)

  it("keeps GGUF's values and lists", function()
    local metadata = {t = "x", i = 7, n = -7, l = 1 << 40, f = 0.5, yes = true, no = false,
      texts = {"a", "", "b"},
      ints = {1, -2}, longs = {1, 1 << 40}, floats = {1, 0.5}, flags = {true, false}, none = {}}
    assert.same(metadata, again("gguf", {}, metadata):metadata())
  end)

  it("GGUF's whole numbers beyond 2^63 are read as floats", function()
    local c = opened(gguf({}, {pair("most", 10, string.pack("<I8", -1)), pair("half", 10, string.pack("<I8",
      1 << 63)), pair("below", 10, string.pack("<I8", math.maxinteger)), pair("less", 11, string.pack("<i8",
      -1))}), ".gguf")
    assert.same({most = 2.0 ^ 64, half = 2.0 ^ 63, below = math.maxinteger, less = -1}, c:metadata())
  end)

  it("refuses what a format does not hold", function()
    local function no(code, wanted, ...)
      local l, message, got = core.catalog_layout(...)
      assert.same({nil, code}, {l, got})
      assert.truthy(message:find(wanted, 1, true), message)
    end
    local function single(encoding, shape, name) return {{name = name or "a", encoding = encoding,
      shape = shape or {32}}} end
    no("E_DTYPE", "has no dtype Q8_0", "safetensors", single "Q8_0")
    no("E_DTYPE", "numpy has no dtype BF16", "npy", single "BF16")
    no("E_DTYPE", "tensors are not written as Q4_K", "gguf", single "Q4_K")
    no("E_DTYPE", "tensors are not written as BOOL", "gguf", single "BOOL")
    no("E_VALUE", "innermost dim is no multiple of Q8_0's block", "gguf", single("Q8_0", {32, 3}))
    no("E_VALUE", "GGUF has at most 4", "gguf", single("F32", {1, 1, 1, 1, 1}))
    no("E_VALUE", "a name of 64 bytes", "gguf", single("F32", {1}, ("n"):rep(64)))
    no("E_VALUE", "the name stands there twice", "safetensors", {entries[1], entries[1]})
    no("E_VALUE", "has no such name", "safetensors", single("F32", {1}, "__metadata__"))
    no("E_VALUE", "a name must be UTF-8", "safetensors", single("F32", {1}, "\xff"))
    no("E_VALUE", "more than 2^53 bytes", "safetensors", single("F32", {1 << 52}))
    no("E_VALUE", "the metadata's \"k\" is no text", "safetensors", {}, {k = 1})
    no("E_VALUE", 'the metadata\'s "k" is not UTF-8, or holds a NUL', "safetensors", {}, {k = "a\xff"})
    no("E_VALUE", 'the metadata\'s "k" is not UTF-8, or holds a NUL', "safetensors", {}, {k = "a\0b"})
    no("E_VALUE", "one tensor and nothing else", "npy", entries)
    no("E_VALUE", "must be a power of two", "gguf", {}, {["general.alignment"] = 48})
    no("E_UNSUPPORTED", "no such format", "tar", {})
  end)
end)

it("an npz file is written whole, or not at all", function()
  local path = file("before", ".npz")
  local x, y = ml.arange(6):reshape {2, 3}, ml.tensor({1.5, -2}, "float16")
  assert(core.npz(path, {{"x", x}, {"y", y}, {"s", ml.ones({}, "bool")}, {"z", ml.zeros {0, 2}}}))
  local c = assert(core.catalog(path))
  assert.same({"x I32 [2,3]", "y F16 [2]", "s BOOL []", "z F32 [0,2]"}, listed(c))
  assert.equal(string.pack("<i4i4i4i4i4i4", 0, 1, 2, 3, 4, 5), c:bytes(1))
  assert.equal(string.pack("<I2I2", 0x3e00, 0xc000), c:bytes(2))
  local done, message, code = core.npz(path, {{"x", x}, {"b", ml.ones({2}, "bfloat16")}})
  assert.same({nil, "E_DTYPE"}, {done, code})
  assert.truthy(message:find("numpy has no dtype BF16", 1, true), message)
  for _, name in ipairs {"../x", "/x", "a/../x", "a/..", "a\\x", ""} do
    assert.equal("E_VALUE", select(3, core.npz(path, {{name, x}})))
  end
  assert.equal(c.size, assert(core.catalog(path)).size) -- what was there stays
  assert.equal("E_IO", select(3, core.npz("out/there/is/no/folder.npz", {{"x", x}})))
  local folder = os.tmpname()
  os.remove(folder)
  local there = folder .. "/a.npz"
  assert(core.disk_task({{"make", folder}, {"make", there}, {"write", there .. "/x", "x"}}):wait())
  assert.equal("E_IO", select(3, core.npz(there, {{"x", x}})))
  assert.same({"a.npz"}, core.list_folder(folder)) -- nor is anything else left there
  assert(core.disk_task({{"remove", folder}}):wait())
  assert.error_matches(function() core.npz(path, {{"x", x}, {"x", y}}) end, "a name that is there twice")
end)

-- ---- JSON ---------------------------------------------------------------------------------------------

describe("json", function()
  it("is read as values: integers stay integers, null is core.null", function()
    assert.same({a = {1, 2.5, true, false, "x", core.null}, b = {}, ["\u{e9}"] = -(1 << 63)},
      core.json '{"a":[1,2.5,true,false,"x",null],"b":{},"\\u00e9":-9223372036854775808}')
    assert.equal("integer", math.type(core.json "3"))
    assert.equal("float", math.type(core.json "3.0"))
    assert.equal(core.null, core.json " null ")
    local deep = ("["):rep(2000) .. ("]"):rep(2000)
    assert.truthy(core.json(deep))
  end)

  it("is refused where it says two things, or nothing", function()
    for written, why in pairs {
      ['{"a":1,"a":2}'] = "a duplicate key", ["[1"] = "ends inside the value", [""] = "ends inside the value",
      ["1 2"] = "text behind the value", ["9223372036854775808"] = "too large", ["1e999"] = "too large",
      ['"\xff"'] = "not UTF-8", ['"\\u0000"'] = "a NUL in a string", [("["):rep(3000)] = "nested deeper",
      ["NaN"] = "line 1", ["{'a':1}"] = "line 1", ["[1,]"] = "line 1", ["01"] = "line 1",
    } do
      local value, message = core.json(written)
      assert.is_nil(value)
      assert.truthy(message:find(why, 1, true), written:sub(1, 20) .. ": " .. message)
    end
  end)
end)
