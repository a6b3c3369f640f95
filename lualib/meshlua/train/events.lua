-- events.lua: a run as TensorBoard reads it: a file of records, each with its length and checksums, which are
-- protocol buffers (tensorflow.Event). A record is written at once, so that the file is whole at any time.
local core = require "meshlua.core"
local files = require "meshlua.train.files"
local lib = require "meshlua.lib"

local M = {}

-- ---- CRC-32C (Castagnoli), as records have it ---------------------------------------------------------

local remainders = {}
for i = 0, 255 do
  local r = i
  for _ = 1, 8 do r = r & 1 == 1 and r >> 1 ~ 0x82f63b78 or r >> 1 end
  remainders[i] = r
end

---@param bytes string
---@return integer
function M.crc32c(bytes)
  local crc = 0xffffffff
  for at = 1, #bytes do crc = crc >> 8 ~ remainders[(crc ~ bytes:byte(at)) & 0xff] end
  return crc ~ 0xffffffff
end

--- The checksum as it stands in a file: of bytes that hold checksums themselves it would tell little.
local function masked(bytes)
  local crc = M.crc32c(bytes)
  return ("<I4"):pack(((crc >> 15 | crc << 17) + 0xa282ead8) & 0xffffffff)
end

-- ---- protocol buffers -------------------------------------------------------------------------------

local function varint(n)
  local bytes = {}
  repeat
    local low = n & 0x7f
    n = n >> 7
    bytes[#bytes + 1] = string.char(n ~= 0 and low | 0x80 or low)
  until n == 0
  return table.concat(bytes)
end

--- Fields by their numbers: what has a length, a whole number, a float32, a float64.
local function bytes_field(number, bytes) return varint(number << 3 | 2) .. varint(#bytes) .. bytes end
local function integer_field(number, n) return varint(number << 3) .. varint(n) end
local function float_field(number, x) return varint(number << 3 | 5) .. ("<f"):pack(x) end
local function double_field(number, x) return varint(number << 3 | 1) .. ("<d"):pack(x) end

--- Event{wall_time = 1, step = 2, and one of file_version = 3, summary = 5, session_log = 7}.
local function event(time, step, what)
  return double_field(1, time) .. (step ~= 0 and integer_field(2, step) or "") .. what
end

--- Summary.Value{tag = 1, simple_value = 2}.
local function scalar(tag, x) return bytes_field(1, bytes_field(1, tag) .. float_field(2, x)) end

--- Summary.Value{tag = 1, tensor = 8, metadata = 9}: a tensor of one string, for the page of texts.
local function text_value(tag, text)
  local STRING, TENSOR = 7, 2 -- the dtype; data of that class
  local shape = bytes_field(2, bytes_field(2, integer_field(1, 1)))
  local tensor = integer_field(1, STRING) .. shape .. bytes_field(8, text)
  local metadata = bytes_field(1, bytes_field(1, "text")) .. integer_field(4, TENSOR)
  return bytes_field(1, bytes_field(1, tag) .. bytes_field(8, tensor) .. bytes_field(9, metadata))
end

--- A record: length, its checksum, the bytes, their checksum.
local function record(bytes)
  local length = ("<I8"):pack(#bytes)
  return length .. masked(length) .. bytes .. masked(bytes)
end

-- ---- a file -----------------------------------------------------------------------------------------

local VERSION, START = "brain.Event:2", 1

---@class Events
---@field file Appended
---@field clock fun(): number seconds since 1970
---@field step integer of the latest row
local Events = {}
local Events_meta = {__index = Events}

--- The record of a step's numbers; of the rest of a row nothing.
---@param row table<string, any>
---@param time number
---@return string
function M.scalars(row, time)
  local values = {}
  for _, key in ipairs(lib.names(row)) do
    if key ~= "step" and type(row[key]) == "number" then values[#values + 1] = scalar(key, row[key]) end
  end
  return record(event(time, row.step, bytes_field(5, table.concat(values))))
end

--- The record of a text. Bytes that are not UTF-8 are taken for Latin-1.
function M.text(tag, text, step, time)
  if not utf8.len(text) then text = text:gsub("[\x80-\xff]", function(c) return utf8.char(c:byte()) end) end
  return record(event(time, step, bytes_field(5, text_value(tag, text))))
end

--- The first record of a file.
function M.header(time) return record(event(time, 0, bytes_field(3, VERSION))) end

--- What says that steps from this one on, which earlier files have, are not to be shown.
function M.restart(step, time) return record(event(time, step, bytes_field(7, integer_field(1, START)))) end

--- Adds a row.
---@param row table<string, any>
---@return true?, string? message
function Events:add(row)
  self.step = row.step
  return self.file:put(M.scalars(row, self.clock()))
end

--- Adds a text, or a number that no row has.
---@param tag string
---@param value string|number
---@param step integer? default: that of the latest row
---@return true?, string? message
function Events:note(tag, value, step)
  step = step or self.step
  if type(value) == "number" then return self:add {step = step, [tag] = value} end
  return self.file:put(M.text(tag, value, step, self.clock()))
end

--- Goes back: later steps are not to be shown.
---@param step integer
---@return true?, string? message
function Events:rewind(step) return self.file:put(M.restart(step + 1, self.clock())) end

function Events:close() self.file:close() end

--- Is it the name of an events file?
local function is_events(name) return name:find "^events%.out%.tfevents%." ~= nil end

--- The events files in a folder.
---@param folder string
---@return string[] paths
function M.there(folder)
  local found = {}
  for _, name in ipairs(core.path_kind(folder) and core.list_folder(folder) or {}) do
    if is_events(name) then found[#found + 1] = folder .. "/" .. name end
  end
  return found
end

local function first_word(path)
  local file <close> = io.open(path)
  return file and file:read "l":match "%S+" or "unknown"
end

--- A new file in a folder, which is made where it is not there.
---@param folder string
---@param done integer? what earlier files have behind this step is not to be shown
---@return Events?, string? message, string? code
function M.open(folder, done)
  local ok, message = core.make_folder(folder)
  if not ok then return nil, message, "E_IO" end
  local began = os.time()
  local offset = began - core.clock()
  local function clock() return core.clock() + offset end
  local name = ("events.out.tfevents.%d.%s.%s.0"):format(began, first_word "/proc/sys/kernel/hostname",
    first_word "/proc/self/stat")
  local file, why = files.append(folder .. "/" .. name)
  if not file then return nil, why, "E_IO" end
  local self = setmetatable({file = file, clock = clock, step = done or 0}, Events_meta)
  ok, why = file:put(M.header(clock()) .. (done and M.restart(done + 1, clock()) or ""))
  if ok then return self end
  file:close()
  return nil, why, "E_IO"
end

return M
