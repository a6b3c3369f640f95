-- data/arrays.lua: records that lie in equal pieces of lists of numbers: windows of texts, arrays in files, tensors.
local core = require "meshlua.core"
local files = require "meshlua.data.files"
local lib = require "meshlua.lib"
local records_of = require "meshlua.data.records"

local raise = lib.raise

local M = {}

--- Pieces of a text, to learn from each what comes next: records {inputs, labels}, int32[length] each,
--- the labels one further on than the inputs. Pieces do not overlap; what is left at the end is not used.
---@param tokens Tokens
---@param length integer
---@param first integer? the range of tokens to use: first <= i < last, from 0; default all
---@param last integer?
---@return Records? records, string? message, string? code
function M.windows(tokens, length, first, last)
  if core.type_name(tokens) ~= "tokens" then
    raise("E_VALUE", "windows: expected tokens (of data.tokens), got %s", lib.kind(tokens))
  end
  first = lib.check_integer("windows", "the first", first or 0)
  last = lib.check_integer("windows", "the last", last or #tokens)
  if math.type(length) ~= "integer" or length < 1 then
    raise("E_VALUE", "windows: the length is %s; it must be a whole number from 1 on", length)
  end
  if not (0 <= first and first <= last and last <= #tokens) then
    raise("E_VALUE", "windows: from %d to %d of %s", first, last, lib.count(#tokens, "id"))
  end
  local n = (last - first - 1) // length
  if n < 1 then
    return nil, ("too few for a piece of %d and the one that follows: %s"):format(length,
      lib.count(last - first, "id")), "E_IO"
  end
  local function field(from, next)
    return {numbers = tokens, first = from, stride = length, shape = {length}, dtype = "int32", next = next}
  end
  return records_of.strided(n, {inputs = field(first, "labels"), labels = field(first + 1)})
end

-- ---- one file a field --------------------------------------------------------------------------------------------

--- Records from one file a field; all must agree on their number.
---@param read fun(path: string): Field?, integer|string, string?
local function from_files(who, paths, read)
  if type(paths) ~= "table" or next(paths) == nil then
    raise("E_VALUE", "%s: expected a table of fields and their files", who)
  end
  local fields, count, of = {}, nil, nil
  for _, name in ipairs(core.tree_keys(paths)) do
    local field, n, code = read(paths[name])
    if not field then return nil, n, code end
    if count and n ~= count then
      return files.failed(paths[name], "%s, but %s has %d", lib.count(n, "record"), paths[of], count)
    end
    fields[name], count, of = field, n, name
  end
  return records_of.strided(count, fields)
end

--- A field from an IDX file: two zeros, the element type (8: bytes), the rank, the dims, the elements;
--- all big-endian (Y. LeCun, the MNIST database). Returns it and the number of its records.
local function idx_field(path)
  local source, message, code = files.open(path)
  if not source then return nil, message, code end
  local head, zeros, kind, rank = source.head, 1, nil, nil
  if #head >= 4 then zeros, kind, rank = string.unpack(">I2BB", head) end
  if zeros ~= 0 or rank == 0 then return files.failed(path, "not an IDX file") end
  if kind ~= 8 then
    return files.failed(path, "IDX elements of type 0x%02x; bytes (0x08) can be read", kind)
  end
  local header, size, shape = 4 + 4 * rank, 1, {}
  if #head < header then return files.failed(path, "cut short in the header") end
  if rank > 8 then return files.failed(path, "%d dims; a tensor has 8 at most", rank) end
  for d = 1, rank do shape[d] = string.unpack(">I4", head, 1 + 4 * d) end
  local there = source.size - header
  for _, n in ipairs(shape) do
    if n > 0 and size > there // n then -- their product may not fit in an integer
      return files.failed(path, "cut short: %s of %s", lib.count(there, "element"), table.concat(shape, "x"))
    end
    size = size * n
  end
  if size == 0 then return files.failed(path, "it holds no records") end
  local n = table.remove(shape, 1)
  return {numbers = files.list(source, 1, header, size), first = 0, stride = size // n, shape = shape,
    dtype = "uint8"}, n
end

--- Records from IDX files, one file a field: idx{image = "train-images-idx3-ubyte.gz", label = ...}. All
--- elements are bytes (uint8); a file's first dim counts the records, which all files must agree on.
---@param paths table<string, string> field -> path
---@return Records? records, string? message, string? code
function M.idx(paths) return from_files("idx", paths, idx_field) end

--- A field from an npy file: its first dim counts the records.
local function npy_field(path)
  if type(path) ~= "string" then raise("E_VALUE", "npy: a file's name is a %s", type(path)) end
  local catalog, message, code = core.catalog(path)
  if not catalog then return nil, message, code end
  local held <close> = catalog
  local entry = held:entries()[1]
  if held.format ~= "npy" then return files.failed(path, "not an npy file, but %s", held.format) end
  local shape = lib.copy(entry.shape)
  local n = table.remove(shape, 1)
  if not entry.dtype then return files.failed(path, "elements of the type %s", entry.encoding) end
  if entry.column_major and #shape > 0 then
    return files.failed(path, "its elements lie column by column; save it with numpy.ascontiguousarray")
  end
  if not n or n == 0 or lib.product(shape) == 0 then return files.failed(path, "it holds no records") end
  local file
  file, message = core.data_file(path)
  if not file then return nil, message, "E_IO" end
  local count = lib.product(shape)
  if (file:size() or 0) < entry.begin + n * count * lib.element_bytes[entry.dtype] then
    return files.failed(path, "it has become shorter since it was opened")
  end
  return {numbers = core.tokens(file, entry.dtype, entry.begin, n * count), first = 0, stride = count,
    shape = shape, dtype = entry.dtype}, n
end

--- Records from npy files, one file a field: npy{image = "images.npy", label = "labels.npy"}. A file's first dim
--- counts the records, which all files must agree on; the elements keep their dtype, and stay in the file.
---@param paths table<string, string> field -> path
---@return Records? records, string? message, string? code
function M.npy(paths) return from_files("npy", paths, npy_field) end

-- ---- tensors ----------------------------------------------------------------------------------------

--- Records from tensors, or numbers in nested lists: tensors{image = x, label = y}. Their first dim counts the
--- records. They are copied to the host's memory.
---@param values table<string, Tensor|table>
---@return Records
function M.tensors(values)
  if type(values) ~= "table" or core.is_operand(values) or next(values) == nil then
    raise("E_VALUE", "tensors: expected a table of fields and their tensors, got %s", lib.kind(values))
  end
  local fields, count, of = {}, nil, nil
  for _, name in ipairs(core.tree_keys(values)) do
    local x = values[name]
    if type(x) == "table" and not lib.is_tensor(x) then x = core.tensor(x) end
    if not core.is_tensor(x) then
      raise("E_VALUE", "tensors: field '%s' is %s; expected a tensor, or numbers in lists", lib.text(name),
        lib.kind(x))
    end
    local shape = lib.copy(x.shape)
    local n = table.remove(shape, 1)
    if not n or n == 0 or lib.product(shape) == 0 then
      raise("E_SHAPE", "tensors: field '%s' is %s; its first dim counts the records", name, core.typeof(x))
    end
    if count and n ~= count then
      raise("E_SHAPE", "tensors: %s in field '%s', but %d in '%s'", lib.count(n, "record"), name, count, of)
    end
    local size = lib.product(shape)
    fields[name] = {numbers = core.tokens(x:bytes(), x.dtype), first = 0, stride = size, shape = shape,
      dtype = x.dtype}
    count, of = n, name
  end
  return records_of.strided(count, fields)
end

return M
