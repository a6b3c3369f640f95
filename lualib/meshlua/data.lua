-- data.lua: what training reads. Files become lists of numbers that stay where they are, in the file; records
-- are equal pieces of such lists; a batch is some of the records, put on the mesh as it is wanted there. Of a
-- batch a process reads from the file what its own devices hold; a file that is packed, or a pipe, is read whole
-- by each. What is wrong with a file is a result (nil, message, code); what is wrong with a call raises, and so
-- does a file that cannot be read any more (E_IO).
local core = require "meshlua.core"
local lib = require "meshlua.lib"
local together = require "meshlua.sharding.together"

local raise = lib.raise

local M = {}

local function failed(path, fmt, ...)
  return nil, path .. ": " .. fmt:format(...), "E_IO"
end

-- As much of a file is looked at to see what it is.
local HEAD = 1024

---@class Source
---@field path string
---@field from string|userdata all bytes, or the file that has them
---@field head string the first HEAD bytes, or all if there are fewer
---@field size integer in bytes

--- What a file holds; what a gzip file holds unpacked.
---@param path string
---@return Source? source, string? message, string? code
local function open(path)
  if type(path) ~= "string" then raise("E_VALUE", "data: a file's name is a %s", type(path)) end
  local file, message = core.data_file(path)
  if not file then return nil, message, "E_IO" end
  local size, bytes, head = file:size(), nil, nil
  if size then head, message = file:head(HEAD) else bytes, message = file:all() end
  head = head or bytes
  if not head then return nil, message, "E_IO" end
  if head == "" then return failed(path, "the file is empty") end
  if head:sub(1, 2) == "\x1f\x8b" then
    if not bytes then bytes, message = file:all() end
    if bytes then bytes, message = core.gunzip(bytes) end
    if not bytes then return failed(path, "%s", message) end
  end
  if bytes then head, size = bytes:sub(1, HEAD), #bytes end
  return {path = path, from = bytes or file, head = head, size = size}
end

--- How many bytes of data files this process has read so far: of many processes that train together each reads
--- its part of every batch. Packed files count as they lie on the disk.
---@return integer
function M.bytes_read() return core.data_bytes() end

-- ---- lists of ids -----------------------------------------------------------------------------------

-- The first number of llm.c's files is a date. Token files: version, bytes per id.
local llmc = {[20240520] = {1, 2}, [20240801] = {7, 4}}
local LLMC_HEADER = HEAD

--- Does a file begin with a header of llm.c, of whatever kind? It begins with a date, or its few numbers are
--- followed by more zeros than a list of ids has.
local function has_header(head)
  local magic = #head >= 4 and string.unpack("<i4", head) or 0
  return magic >= 20230000 and magic < 20400000 or #head >= LLMC_HEADER and not head:sub(13):find "[^\0]"
end

local function llmc_tokens(source)
  local path = source.path
  if source.size < LLMC_HEADER then
    return failed(path, "%s, and the header alone has 1024", lib.count(source.size, "byte"))
  end
  local magic, version, count = string.unpack("<i4i4i4", source.head)
  local kind = llmc[magic]
  if not kind then
    return failed(path, "the magic number is %d, which is no token file's (20240520: uint16 ids)", magic)
  end
  if version ~= kind[1] then
    return failed(path, "version %d of llm.c's token files; %d is known", version, kind[1])
  end
  local there = (source.size - LLMC_HEADER) // kind[2]
  if count < 0 or count > there then
    return failed(path, "cut short: the header counts %s, the file holds %d", lib.count(count, "id"), there)
  end
  return core.tokens(source.from, kind[2], LLMC_HEADER, count)
end

--- The Bible's text, which Debian's package bible-kjv prints.
local function bible()
  local pipe <close> = io.popen("bible -f 'gen1:1-rev22:21' 2>/dev/null </dev/null", "r")
  local text = pipe and pipe:read "a" or ""
  if text == "" then
    return nil, "bible: there is no command `bible`; install Debian's package bible-kjv, or name a file",
      "E_IO"
  end
  return core.tokens(text, 1)
end

--- The ids of a file, by what it is: llm.c's token files (by their first number: uint16, or uint32 for
--- Llama's), any other `.bin` as nanoGPT's (uint16 without a header), everything else as text, a byte an
--- id. "bible:" is the King James Bible as Debian's package bible-kjv prints it. gzip files are unpacked.
---@param path string
---@return Tokens? ids #ids many
---@return string? message, string? code
function M.tokens(path)
  if path == "bible:" then return bible() end
  local source, message, code = open(path)
  if not source then return nil, message, code end
  local head, is_bin = source.head, path:find "%.bin$" or path:find "%.bin%.gz$"
  if llmc[#head >= 4 and string.unpack("<i4", head)] or is_bin and has_header(head) then
    return llmc_tokens(source)
  end
  if not is_bin then return core.tokens(source.from, 1) end
  if source.size % 2 ~= 0 then
    return failed(path, "%s: no whole number of uint16 ids", lib.count(source.size, "byte"))
  end
  return core.tokens(source.from, 2)
end

--- The largest of the ids, 0 where there are none. Many processes look through a part each: all must call it.
---@param tokens Tokens
---@return integer
function M.largest(tokens)
  local n, i, size = core.process_count(), core.process_index(), #tokens
  return together.largest(tokens:largest(size * i // n, size * (i + 1) // n))
end

-- ---- records ----------------------------------------------------------------------------------------

-- A field of record i (from 0) is numbers first + i stride on, of this shape.
---@class Field
---@field numbers Tokens
---@field first integer
---@field stride integer
---@field shape integer[]
---@field dtype string
---@field next string? the field whose records begin one number later, and are like these else

---@class Records
---@field n integer how many there are
---@field fields table<string, Field>
local Records = {}
local Records_meta = {__index = Records, __name = "Records", __len = function(self) return self.n end}

local function new_records(n, fields)
  return setmetatable({n = n, fields = fields}, Records_meta)
end

--- The given records (ids from 0): a tensor of each field, [#ids, the field's shape...]. A process reads those
--- that its devices hold; the batch is the same on any number of processes.
---@param ids integer[]
---@param shardings table<string, NamedSharding>? where each field is put; default one device
---@return table<string, Tensor>
function Records:batch(ids, shardings)
  local batch, at = {}, shardings or {}
  for _, name in ipairs(core.tree_keys(self.fields)) do
    local field, starts = self.fields[name], {}
    local both = field.next and at[name] == at[field.next]
    if not batch[name] then
      for i, id in ipairs(ids) do starts[i] = field.first + id * field.stride end
      local x, y = field.numbers:windows(starts, field.shape, field.dtype, at[name], both)
      batch[name] = x
      if both then batch[field.next] = y end
    end
  end
  return batch
end

-- A batch may have more rows than there are records, which come again then; not without end.
local MOST_ROWS = 1 << 24

local function check_batch(who, size, n)
  if math.type(size) ~= "integer" or size < 1 then
    raise("E_VALUE", "%s: the batch size is %s; it must be a whole number from 1 on", who, size)
  end
  if size > math.max(n, MOST_ROWS) then
    raise("E_VALUE", "%s: a batch of %d; there are %s, and a batch has %d rows at most", who, size,
      lib.count(n, "record"), math.max(n, MOST_ROWS))
  end
end

--- Batches in random order, every record once before any comes again: a function from a step (from 1) to
--- its batch. It depends on seed and step alone, so that every mesh and every resumed run sees the same.
---@param options {batch: integer, seed: integer, shardings: table<string, NamedSharding>}
--- seed: default 0
---@return fun(step: integer): table<string, Tensor>
function Records:shuffled(options)
  options = lib.options("shuffled", options)
  local size, seed, shardings = options.batch, options.seed or 0, options.shardings
  check_batch("shuffled", size, self.n)
  return function(step)
    if math.type(step) ~= "integer" or step < 1 then
      raise("E_VALUE", "shuffled: step %s; steps count from 1", step)
    end
    return self:batch(core.shuffled(seed, (step - 1) * size, size, self.n), shardings)
  end
end

--- All records in order, in batches of one size: `for batch, count in records:each(16) do`. The last batch
--- is filled up with its first record; count is how many of its rows are records of their own.
---@param size integer
---@param shardings table<string, NamedSharding>?
function Records:each(size, shardings)
  check_batch("each", size, self.n)
  local done = 0
  return function()
    local count, ids = math.min(size, self.n - done), {}
    if count <= 0 then return nil end
    for i = 1, size do ids[i] = done + (i <= count and i - 1 or 0) end
    done = done + count
    return self:batch(ids, shardings), count
  end
end

--- Pieces of a text, to learn from each what comes next: records {inputs, labels}, int32[length] each,
--- the labels one further on than the inputs. Pieces do not overlap; what is left at the end is not used.
---@param tokens Tokens
---@param length integer
---@param first integer? the range of tokens to use: first <= i < last, from 0; default all
---@param last integer?
---@return Records? records, string? message, string? code
function M.windows(tokens, length, first, last)
  if core.type_name(tokens) ~= "tokens" then
    raise("E_VALUE", "windows: expected tokens (of data.text, data.tokens), got %s", lib.kind(tokens))
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
  return new_records(n, {inputs = field(first, "labels"), labels = field(first + 1)})
end

-- ---- IDX --------------------------------------------------------------------------------------------

--- A field from an IDX file: two zeros, the element type (8: bytes), the rank, the dims, the elements;
--- all big-endian (Y. LeCun, the MNIST database). Returns it and the number of its records.
local function idx_field(path)
  local source, message, code = open(path)
  if not source then return nil, message, code end
  local head, zeros, kind, rank = source.head, 1, nil, nil
  if #head >= 4 then zeros, kind, rank = string.unpack(">I2BB", head) end
  if zeros ~= 0 or rank == 0 then return failed(path, "not an IDX file") end
  if kind ~= 8 then return failed(path, "IDX elements of type 0x%02x; bytes (0x08) can be read", kind) end
  local header, size, shape = 4 + 4 * rank, 1, {}
  if #head < header then return failed(path, "cut short in the header") end
  if rank > 8 then return failed(path, "%d dims; a tensor has 8 at most", rank) end
  for d = 1, rank do shape[d] = string.unpack(">I4", head, 1 + 4 * d) end
  local there = source.size - header
  for _, n in ipairs(shape) do
    if n > 0 and size > there // n then -- their product may not fit in an integer
      return failed(path, "cut short: %s of %s", lib.count(there, "element"), table.concat(shape, "x"))
    end
    size = size * n
  end
  if size == 0 then return failed(path, "it holds no records") end
  local n = table.remove(shape, 1)
  return {numbers = core.tokens(source.from, 1, header, size), first = 0, stride = size // n, shape = shape,
    dtype = "uint8"}, n
end

--- Records from IDX files, one file a field: idx{image = "train-images-idx3-ubyte.gz", label = ...}. All
--- elements are bytes (uint8); a file's first dim counts the records, which all files must agree on.
---@param files table<string, string> field -> path
---@return Records? records, string? message, string? code
function M.idx(files)
  if type(files) ~= "table" or next(files) == nil then
    raise("E_VALUE", "idx: expected a table of fields and their files")
  end
  local fields, count, of = {}, nil, nil
  for _, name in ipairs(core.tree_keys(files)) do
    local field, n, code = idx_field(files[name])
    if not field then return nil, n, code end
    if count and n ~= count then
      return failed(files[name], "%s, but %s has %d", lib.count(n, "record"), files[of], count)
    end
    fields[name], count, of = field, n, name
  end
  return new_records(count, fields)
end

lib.export_checked(Records, "Records:")
lib.strict(Records, "Records", "Records:")
lib.export_checked(M, "data.")
M.windows = lib.named("data.windows", M.windows)
return lib.strict(M, "data", "data.")
