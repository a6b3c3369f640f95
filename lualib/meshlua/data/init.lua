-- data/init.lua: what training reads. Files become lists of numbers that stay where they are, in the file; records are
-- pieces of such lists, or what functions make; a batch is some of the records, put on the mesh as it is wanted
-- there. Of a batch a process reads from the file what its own devices hold; a file that is packed, or a pipe, is read
-- whole by each. What is wrong with a file is a result (nil, message, code); what is wrong with a call raises, and so
-- does a file that cannot be read any more (E_IO).
local arrays = require "meshlua.data.arrays"
local combine = require "meshlua.data.combine"
local core = require "meshlua.core"
local encoded = require "meshlua.data.encoded"
local files = require "meshlua.data.files"
local lib = require "meshlua.lib"
local lines = require "meshlua.data.lines"
local pack = require "meshlua.data.pack"
local records_of = require "meshlua.data.records"
local together = require "meshlua.sharding.together"

local M = {tokens = files.tokens, windows = arrays.windows, idx = arrays.idx, npy = arrays.npy,
  tensors = arrays.tensors, computed = combine.computed, mix = combine.mix, jsonl = lines.jsonl,
  text = lines.text, documents = lines.documents, pack = pack.pack,
  encode = encoded.encode}

local Records, Batches = records_of.methods.Records, records_of.methods.Batches
Records.map, Records.filter = combine.map, combine.filter

--- How many bytes of data files this process has read so far: of many processes that train together each reads
--- its part of every batch. Packed files count as they lie on the disk.
---@return integer
function M.bytes_read() return core.data_bytes() end

--- The largest of the ids, 0 where there are none. Many processes look through a part each: all must call it.
---@param tokens Tokens
---@return integer
function M.largest(tokens)
  local n, i, size = core.process_count(), core.process_index(), #tokens
  return together.largest((tokens:largest(size * i // n, size * (i + 1) // n)))
end

lib.export_checked(Records, "Records:")
lib.strict(Records, "Records", "Records:")
lib.export_checked(Batches, "Batches:")
lib.export_checked(M, "data.")
M.windows = lib.named("data.windows", M.windows)
return lib.strict(M, "data", "data.")
