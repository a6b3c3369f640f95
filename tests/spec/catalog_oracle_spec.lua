-- catalog_oracle_spec.lua: files of tensors, against the libraries of their formats (tests/oracle/disk.py):
-- what they
-- wrote is read here, and what is written here was read by them.
--
-- tests/oracle/disk/ours-* are written by `build/meshlua -e "WRITE=true" tests/specs.lua FILE`.
local helper = require "spec.helper"
local ml = require "meshlua"
local oracle = require "spec.oracle"
local core = ml.core

local FOLDER = "tests/oracle/disk/"

local sizes = {BOOL = 1, U8 = 1, U16 = 2, U32 = 4, U64 = 8, I8 = 1, I16 = 2, I32 = 4, I64 = 8, BF16 = 2,
  F16 = 2, F32 = 4, F64 = 8, F8_E4M3 = 1, F8_E5M2 = 1}

local function hex(bytes) return (bytes:gsub(".", function(c) return ("%02x"):format(c:byte()) end)) end

local function read_all(path)
  local handle <close> = assert(io.open(path, "rb"))
  return handle:read "a"
end

--- Names of encodings that no dtype holds; theirs begin with "unread" in names of files.
local function is_read(encoding)
  return sizes[encoding] ~= nil or encoding == "Q8_0" or encoding == "Q4_0" or encoding == "Q4_1"
end

describe("of other libraries:", function()
  local wanted, files = oracle.read "disk", 0
  for name, want in pairs(wanted) do
    files = files + 1
    it("reads " .. name, function()
      local c = assert(core.catalog(FOLDER .. name))
      assert.equal(name:match "[^.]+$", c.format)
      local by_name, count = {}, 0
      for i, e in ipairs(c:entries()) do by_name[e.name], count = {i, e}, count + 1 end
      assert.equal(#want.tensors, count)
      for _, t in ipairs(want.tensors) do
        local i, e = table.unpack(by_name[t.name] or {})
        assert.truthy(e, t.name)
        assert.same({t.encoding, t.shape, t.column_major}, {e.encoding, e.shape, e.column_major})
        assert.equal(t.hex, hex(assert(c:bytes(i))))
        assert.equal(is_read(t.encoding), e.dtype ~= nil)
      end
      if want.metadata then assert.same(want.metadata, c:metadata()) end
    end)
  end
  it("there are at least sixty", function() assert.is_true(files >= 60) end)
end)

--- What Lua's string.unpack makes of an encoding; of others bits.
local packed = {U8 = "B", BOOL = "B", I8 = "b", U16 = "<I2", I16 = "<i2", U64 = "<I8", I32 = "<i4",
  U32 = "<I4", I64 = "<i8", F32 = "<f", F64 = "<d"}

--- The numbers of a tensor as a list, row-major.
local function numbers(t)
  local bytes, list = t.hex:gsub("..", function(h) return string.char(tonumber(h, 16)) end), {}
  for at = 1, #bytes, sizes[t.encoding] do list[#list + 1] = (string.unpack(packed[t.encoding], bytes,
    at)) end
  if not t.column_major then return list end
  local out, strides, n = {}, {}, 1
  for d = 1, #t.shape do strides[d], n = n, n * t.shape[d] end
  for i = 0, #list - 1 do
    local rest, place = i, 1
    for d = #t.shape, 1, -1 do
      place = place + rest % t.shape[d] * strides[d]
      rest = rest // t.shape[d]
    end
    out[i + 1] = list[place]
  end
  return out
end

describe("their values are loaded:", function()
  for name, want in pairs(oracle.read "disk") do
    if not name:find "^unread" and not name:find "^q%d" and not name:find "^names" then
      it(name, function()
        local tree = assert(ml.load(FOLDER .. name))
        local flat = {}
        local leaves, paths = ml.tree.leaves(tree)
        for i, path in ipairs(paths) do flat[path] = leaves[i] end
        for _, t in ipairs(want.tensors) do
          local x = name:find "npy$" and tree or flat[t.name]
          assert.same(t.shape, {table.unpack(x.shape)})
          if packed[t.encoding] then
            local got = x:astype(t.encoding == "BOOL" and "uint8" or x.dtype):reshape({-1}):totable()
            assert.same(numbers(t), got)
          end
        end
      end)
    end
  end

  it("blocks mean what gguf says", function()
    for _, kind in ipairs {"q8_0", "q4_0", "q4_1"} do
      local t = assert(ml.load(FOLDER .. kind .. ".gguf"))
      assert.same(t.d:totable(), t.q:totable())
    end
  end)
end)

-- ---- what is written here ---------------------------------------------------------------------------------

--- Bytes that differ from tensor to tensor.
local function bytes_of(n, from)
  local out = {}
  for i = 1, n do out[i] = string.char((from * 37 + i * 11) % 113) end
  return table.concat(out)
end

local function entry(name, encoding, ...)
  local count, shape = 1, {...}
  for _, d in ipairs(shape) do count = count * d end
  local bytes = encoding == "Q8_0" and bytes_of(count // 32 * 34,
    #name) or bytes_of(count * sizes[encoding], #name)
  if encoding == "BOOL" then bytes = bytes:gsub(".", function(c) return string.char(c:byte() % 2) end) end
  return {name = name, encoding = encoding, shape = shape, bytes = bytes}
end

--- name of the file -> entries, metadata
local ours = {
  ["ours-all.safetensors"] = {{entry("i64", "I64", 2, 3), entry("f64", "F64", 3),
    entry("f32", "F32", 2, 2, 2),
    entry("u32", "U32", 3), entry("i32", "I32", 1, 3), entry("bf16", "BF16", 5), entry("f16", "F16", 2, 3),
      entry("u8", "U8", 3),
    entry("bool", "BOOL", 7)}, {format = "pt"}},
  ["ours-narrow.safetensors"] = {{entry("u64", "U64", 3), entry("u16", "U16", 2, 2), entry("i16", "I16", 3),
    entry("i8", "I8", 2, 3), entry("e4", "F8_E4M3", 5), entry("e5", "F8_E5M2", 3)}},
  ["ours-narrow.gguf"] = {{entry("i16", "I16", 3), entry("i8", "I8", 2, 3)},
    {["general.architecture"] = "x"}},
  ["ours-small.safetensors"] = {{entry("scalar", "F32"), entry("zero", "F32", 0, 3),
    entry("a/b \u{e9}\"", "I32", 2)},
    {note = "two\nlines \u{4e16}"}},
  ["ours-empty.safetensors"] = {{}},
  ["ours-unaligned.safetensors"] = {{entry("u8", "U8", 3), entry("f64", "F64", 2)}},
  ["ours-llama.gguf"] = {{entry("token_embd.weight", "F32", 4, 32),
    entry("blk.0.attn_q.weight", "Q8_0", 3, 64),
    entry("blk.0.attn_k.weight", "F16", 3, 5), entry("output_norm.weight", "BF16", 7)},
    {["general.architecture"] = "llama", ["llama.context_length"] = 128, ["llama.rope.freq_base"] = 10000.0,
      ["llama.use"] = true, ["tokenizer.ggml.tokens"] = {"<s>", "", "a\u{e9}"},
        ["tokenizer.ggml.scores"] = {0.5, -1.0, 2.0},
      ["tokenizer.ggml.token_type"] = {3, 1, 6}, ["tokenizer.ggml.add_bos_token"] = false}},
  ["ours-aligned.gguf"] = {{entry("a", "F32", 3), entry("b", "I32", 2)}, {["general.architecture"] = "x",
    ["general.alignment"] = 64}},
}
for encoding in pairs(sizes) do
  if encoding ~= "BF16" and not encoding:find "^F8" then ours["ours-" .. encoding:lower()
    .. ".npy"] = {{entry("arr_0", encoding, 2, 3)}} end
end
ours["ours-scalar.npy"] = {{entry("arr_0", "F32")}}
ours["ours-zero.npy"] = {{entry("arr_0", "F32", 2, 0)}}
ours["ours-vector.npy"] = {{entry("arr_0", "F64", 11)}}

local function written(name, entries, metadata)
  local l = assert(core.catalog_layout(name:match "[^.]+$", entries, metadata))
  local out, at = {l.header}, #l.header
  for i, e in ipairs(entries) do
    out[#out + 1] = ("\0"):rep(l.begin[i] - at) .. e.bytes
    at = l.begin[i] + #e.bytes
  end
  return table.concat(out) .. ("\0"):rep(l.size - at)
end

--- An npz file with a tensor of every dtype that numpy has.
local function written_npz()
  local path, list = helper.file("", ".npz"), {}
  for _, d in ipairs {"bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64",
    "float16", "float32",
    "float64"} do
    list[#list + 1] = {"of/" .. d, ml.arange(6):reshape {2, 3}:astype(d)}
  end
  list[#list + 1] = {"scalar", ml.full({}, 2.5)}
  list[#list + 1] = {"\u{e9}", ml.zeros {0, 2}}
  assert(core.npz(path, list))
  return read_all(path)
end

describe("for other libraries:", function()
  if rawget(_G, "WRITE") then
    for name, file in pairs(ours) do
      local handle <close> = assert(io.open(FOLDER .. name, "wb"))
      handle:write(written(name, file[1], file[2]))
    end
    local handle <close> = assert(io.open(FOLDER .. "ours-all.npz", "wb"))
    handle:write(written_npz())
  end
  local they = oracle.read "disk_ours"
  for name, file in pairs(ours) do
    it(name, function()
      assert.equal(hex(read_all(FOLDER .. name)), hex(written(name, file[1], file[2])))
      local found, count = they[name].tensors, 0
      for _ in pairs(found) do count = count + 1 end
      assert.equal(#file[1], count)
      for _, e in ipairs(file[1]) do
        local encoding, shape, bytes = table.unpack(found[e.name])
        assert.same({e.encoding, hex(e.bytes)}, {encoding, bytes})
        assert.same(e.shape, shape)
      end
      assert.same(file[2] or {}, they[name].metadata)
    end)
  end

  it("ours-all.npz", function()
    assert.equal(hex(read_all(FOLDER .. "ours-all.npz")), hex(written_npz()))
    local c, found = assert(core.catalog(FOLDER .. "ours-all.npz")), they["ours-all.npz"].tensors
    assert.equal(14, #c:entries())
    for i, e in ipairs(c:entries()) do
      assert.same({e.encoding, e.shape, hex(c:bytes(i))}, found[e.name])
    end
  end)
end)
