-- encoding.lua: how files have the numbers of each dtype: safetensors' words, and those of GGUF.
local lib = require "meshlua.lib"

local M = {}

--- dtype -> encoding, and back: of blocks what comes out of them.
M.of = {float64 = "F64", float32 = "F32", float16 = "F16", bfloat16 = "BF16", int64 = "I64", int32 = "I32",
  int16 = "I16", int8 = "I8", uint64 = "U64", uint32 = "U32", uint16 = "U16", uint8 = "U8", bool = "BOOL",
  float8_e4m3fn = "F8_E4M3", float8_e5m2 = "F8_E5M2"}
M.dtype = {Q8_0 = "float32"}
for dtype, encoding in pairs(M.of) do M.dtype[encoding] = dtype end

--- What floats may be in a GGUF file that is written here.
M.gguf = {"F32", "F16", "BF16", "Q8_0"}

local BLOCK, BLOCK_BYTES = 32, 34 -- of Q8_0

--- The bytes of a tensor.
---@param encoding string
---@param shape integer[]
---@return integer
function M.bytes(encoding, shape)
  local n = lib.product(shape)
  if encoding == "Q8_0" then return n // BLOCK * BLOCK_BYTES end
  return n * lib.element_bytes[M.dtype[encoding]]
end

--- How a tensor is written. `cast` and `encoding` are for floats; GGUF's word for all is for matrices, as its readers
--- want it: vectors, and rows that are no whole blocks, are F32.
---@param dtype string
---@param shape integer[]
---@param cast string? a dtype
---@param encoding string? in its place, of GGUF
---@return string
function M.choose(dtype, shape, cast, encoding)
  if not lib.floats[dtype] then return M.of[dtype] end
  if not encoding then return M.of[cast or dtype] end
  if #shape < 2 or encoding == "Q8_0" and shape[#shape] % BLOCK ~= 0 then return "F32" end
  return encoding
end

--- The order of entries in a safetensors file: wide dtypes first, so that all is aligned; then by name.
function M.wide_first(a, b)
  local x, y = lib.element_bytes[M.dtype[a.encoding]], lib.element_bytes[M.dtype[b.encoding]]
  if x ~= y then return x > y end
  return a.name < b.name
end

return M
