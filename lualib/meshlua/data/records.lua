-- data/records.lua: what training draws from: records, each of the same fields, and batches of them, put on the mesh
-- as they are wanted there. Of a batch a process reads or computes what its own devices hold. A batch is pieces of
-- lists of numbers (core.rows), whatever the records come from; what a function gives becomes such a list first.
local core = require "meshlua.core"
local lib = require "meshlua.lib"

local raise = lib.raise

local M = {}

-- A field of the records: its shape (none where the records differ in length) and dtype ("text": bytes of which no
-- tensor is made).
---@class Field
---@field shape integer[]?
---@field dtype string
---@field count integer? numbers in a record
---@field next string? the field whose records begin one number later, and are like these else

-- What records come from. `draw` is a batch under way: a source may keep in it what it has begun.
---@class Source
---@field n integer how many records there are
---@field fields table<string, Field>
---@field mode "file"|"worker"|"main" who makes them: pieces of lists, functions in workers, functions of this state
---@field on_disk boolean? are they read from files?
---@field pieces fun(self: Source, id: integer, name: string, list: table, draw: table) appends a field's pieces
---@field record fun(self: Source, id: integer): table the record, as Lua values
---@field mark fun(self: Source): table<string, string> says for each field whether it is the same data
---@field order fun(self: Source, seed: integer, first: integer, count: integer): integer[] ids by places, from 0
---@field place fun(self: Source, seed: integer, id: integer, epoch: integer): integer
---@field span (fun(self: Source, id: integer): Tokens, integer, integer)? of documents: the list, begin and end
---@field prepare fun(self: Source, id: integer, draw: table)? begins what takes long

---@class Records
---@field n integer how many there are
---@field fields table<string, Field>
---@field source Source
local Records = {}
local Records_meta = {__index = Records, __name = "Records", __len = function(self) return self.n end}

-- ---- sources ----------------------------------------------------------------------------------------

local Source = {mode = "file"}

function Source:order(seed, first, count) return core.shuffled(seed, first, count, self.n) end

function Source:place(seed, id, epoch) return core.shuffled_place(seed, id, epoch, self.n) end

--- A class of sources: what it does not have, all do.
---@return table
function M.source() return setmetatable({}, {__index = Source}) end

--- Records of a source.
---@param source Source
---@return Records
function M.new(source)
  for _, field in pairs(source.fields) do
    field.count = field.shape and lib.product(field.shape) or nil
  end
  return setmetatable({n = source.n, fields = source.fields, source = source}, Records_meta)
end

--- Raises unless x are records; their source.
---@return Source
function M.source_of(who, x)
  if type(x) ~= "table" or getmetatable(x) ~= Records_meta then
    raise("E_VALUE", "%s: expected Records, got %s", who, lib.kind(x))
  end
  return x.source
end

--- A text for the fields' marks: says whether the data is the same.
---@param source Source
---@return string
function M.mark_text(source)
  local words, marks = {}, source:mark()
  for i, name in ipairs(core.tree_keys(marks)) do words[i] = name .. " " .. marks[name] end
  return core.hash128(table.concat(words, "\n"))
end

-- Fields of which a record is `count` numbers of a list, `stride` behind the record before.
local Strided = M.source()
local Strided_meta = {__index = Strided}

--- Records whose fields are {numbers, first, stride, shape, dtype}: record i is numbers first + i stride on.
---@return Records
function M.strided(n, fields)
  local on_disk = false
  for _, field in pairs(fields) do on_disk = on_disk or core.tokens_on_disk(field.numbers) end
  return M.new(setmetatable({n = n, fields = fields, on_disk = on_disk}, Strided_meta))
end

function Strided:pieces(id, name, list)
  local field, n = self.fields[name], #list
  list[n + 1], list[n + 2], list[n + 3] = field.numbers, field.first + id * field.stride, field.count
end

function Strided:record(id)
  local record = {}
  for name, field in pairs(self.fields) do
    local first = field.first + id * field.stride
    record[name] = core.rows({field.numbers, first, field.count}, 1, field.shape, field.dtype):totable()[1]
  end
  return record
end

function Strided:mark()
  local marks, known = {}, {}
  for name, field in pairs(self.fields) do
    local numbers = field.numbers
    known[numbers] = known[numbers] or core.tokens_fingerprint(numbers)
    marks[name] = ("%s, %d records"):format(known[numbers], self.n)
  end
  return marks
end

-- ---- what a function gives, as numbers --------------------------------------------------------------

--- dtype and shape of a value; raises where it has none.
---@param what string
function M.learn(what, value)
  if core.is_tensor(value) then return value.dtype, lib.copy(value.shape) end
  local dtype, shape = core.learn(value)
  if not dtype then raise("E_VALUE", "%s: %s", what, shape) end
  return dtype, shape
end

--- The bytes of a field's value, which must be of its shape.
local function bytes_of(what, name, field, value)
  if core.is_tensor(value) then
    if value.dtype == field.dtype and lib.same_shape(value.shape, field.shape) then return value:bytes() end
    raise("E_SHAPE", "%s: field '%s' is %s, not %s", what, name, core.typeof(value), lib.type_text(field))
  end
  local bytes, why = core.pack(value, field.dtype, field.shape)
  if not bytes then
    raise("E_SHAPE", "%s: field '%s' must be %s: %s", what, name, lib.type_text(field), why)
  end
  return bytes
end

--- The fields of a record that a function has given.
---@param what string
---@param record any
---@return table<string, Field>
function M.fields_of(what, record)
  if type(record) ~= "table" or core.is_operand(record) or next(record) == nil then
    raise("E_VALUE", "%s: a record is a table of fields and their values, not %s", what, lib.kind(record))
  end
  local fields = {}
  for name, value in pairs(record) do
    if type(name) ~= "string" then
      raise("E_VALUE", "%s: a record's fields have names, not %s", what, lib.text(name))
    end
    local dtype, shape = M.learn(("%s: field '%s'"):format(what, name), value)
    fields[name] = {dtype = dtype, shape = shape}
    if shape then bytes_of(what, name, fields[name], value) end -- inner lists may differ
  end
  return fields
end

--- A record as lists of numbers, by field.
---@param what string
---@param fields table<string, Field>
---@param record any
---@return table<string, Tokens>
function M.packed(what, fields, record)
  if type(record) ~= "table" or core.is_operand(record) then
    raise("E_VALUE", "%s: a record is a table of fields and their values, not %s", what, lib.kind(record))
  end
  local lists = {}
  for name, field in pairs(fields) do
    if record[name] == nil then raise("E_VALUE", "%s: it has no field '%s'", what, name) end
    if field.shape then
      lists[name] = core.tokens(bytes_of(what, name, field, record[name]), field.dtype)
    end
  end
  return lists
end

-- Records that `record(id)` computes in this state.
local Computed = M.source()
Computed.mode = "main"
M.Computed = Computed

function Computed:what(id) return ("record %d"):format(id) end

function Computed:pieces(id, name, list, draw)
  local known = draw[self] or {}
  draw[self] = known
  known[id] = known[id] or M.packed(self:what(id), self.fields, self:record(id))
  local n = #list
  list[n + 1], list[n + 2], list[n + 3] = known[id][name], 0, self.fields[name].count
end

--- Some of the records stand for all: a function has no fingerprint.
function Computed:mark()
  local marks = {}
  for _, name in ipairs(core.tree_keys(self.fields)) do marks[name] = ("%d records"):format(self.n) end
  for _, id in ipairs {0, self.n // 2, self.n - 1} do
    for name, list in pairs(M.packed(self:what(id), self.fields, self:record(id))) do
      marks[name] = marks[name] .. ", " .. core.tokens_fingerprint(list)
    end
  end
  return marks
end

-- ---- a batch ----------------------------------------------------------------------------------------

--- The rows of a field's batch that this process's devices hold; nil: all.
local function own_rows(count, field, sharding)
  if not sharding or core.process_count() == 1 then return nil end
  local own, shape = {}, table.move(field.shape, 1, #field.shape, 2, {count})
  for _, place in ipairs(core.shard_places(sharding, shape, "batch")) do
    if place.process == core.process_index() then
      for i = place.index[1][1], place.index[1][2] do own[i] = true end
    end
  end
  return own
end

-- A batch under way.
---@class Draw
---@field reads table<string, userdata>? field -> its read

local function check_ids(n, ids)
  for _, id in ipairs(ids) do
    if math.type(id) ~= "integer" or id < 0 or id >= n then
      raise("E_VALUE", "batch: record %s of %d; they count from 0", lib.text(id), n)
    end
  end
end

--- Calls visit(name, field, both) for the fields of a batch: both: its `next` comes with it.
local function each_field(source, at, visit)
  local done = {}
  for _, name in ipairs(core.tree_keys(source.fields)) do
    local field = source.fields[name]
    if not field.shape then
      raise("E_VALUE", "batch: the records differ in length in field '%s', of which no tensor is made; map, "
        .. "windows and pack make records of one shape", name)
    end
    local both = field.next and at[name] == at[field.next] or false
    if not done[name] then
      visit(name, field, both)
      if both then done[field.next] = true end
    end
  end
end

--- The pieces of a field; of rows that other processes hold nothing is computed.
local function pieces_of(source, draw, name, field)
  local list, own = {}, source.mode ~= "file" and own_rows(#draw.ids, field, draw.at[name])
  for i, id in ipairs(draw.ids) do
    if own and not own[i] then
      local n = #list
      list[n + 1], list[n + 2], list[n + 3] = false, 0, field.count
    else
      source:pieces(id, name, list, draw)
    end
  end
  return list
end

--- Begins a batch: with a reader what files have is read from here on, and workers are told what they are to make.
---@param source Source
---@param ids integer[]
---@param at table<string, NamedSharding>
---@param reader userdata?
---@return Draw
local function begin(source, ids, at, reader)
  local draw = {ids = ids, at = at}
  if source.prepare then
    local wanted = {}
    each_field(source, at, function(name, field)
      local own = own_rows(#ids, field, at[name])
      for i, id in ipairs(ids) do wanted[id] = wanted[id] or not own or own[i] end
    end)
    for _, id in ipairs(ids) do
      if wanted[id] then source:prepare(id, draw) end
    end
  elseif reader and source.mode == "file" then
    draw.reads = {}
    each_field(source, at, function(name, field, both)
      draw.reads[name] = core.rows(pieces_of(source, draw, name, field), #ids, field.shape, field.dtype,
        at[name], both, reader)
    end)
  end
  return draw
end

--- The batch that was begun.
---@return table<string, Tensor>
local function finish(source, draw)
  local batch, at = {}, draw.at
  each_field(source, at, function(name, field, both)
    local x, y
    if draw.reads then
      x, y = draw.reads[name]:wait()
    else
      x, y = core.rows(pieces_of(source, draw, name, field), #draw.ids, field.shape, field.dtype, at[name],
        both)
    end
    batch[name] = x
    if both then batch[field.next] = y end
  end)
  return batch
end

--- The given records (ids from 0): a tensor of each field, [#ids, the field's shape...]. A process reads those
--- that its devices hold; the batch is the same on any number of processes.
---@param ids integer[]
---@param shardings table<string, NamedSharding>? where each field is put; default one device
---@return table<string, Tensor>
function Records:batch(ids, shardings)
  check_ids(self.n, ids)
  return finish(self.source, begin(self.source, ids, shardings or {}))
end

--- One record (ids from 0) as Lua values: numbers in nested lists, and texts.
---@param id integer
---@return table
function Records:get(id)
  check_ids(self.n, {id})
  return self.source:record(id)
end

--- Says for each field whether the data is the same: a hash of what it holds, or of samples where that is much.
---@return table<string, string>
function Records:fingerprint() return self.source:mark() end

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

-- ---- batches in random order ------------------------------------------------------------------------

-- Batches by their steps. A call gives one; behind it the next ones are begun, so that they are there when they are
-- asked for.
---@class Batches
---@field wait number seconds that the latest call took
---@field waited_for string? for whom: "files", "workers" or "a function"
local Batches = {}
local Batches_meta = {__index = Batches, __name = "Batches"}
local WAITED_FOR = {file = "files", worker = "workers", main = "a function"}
local PREFETCH = 2

--- Batches in random order, every record once before any comes again: called with a step (from 1) it gives its
--- batch. That depends on seed and step alone, so that every mesh and every resumed run sees the same: the
--- position is the step.
---@param options {batch: integer, seed: integer, shardings: table<string, NamedSharding>, prefetch: integer}
--- seed: default 0; prefetch: how many batches are begun ahead of the step, default 2
---@return Batches
function Records:shuffled(options)
  options = lib.options("shuffled", options)
  local ahead = options.prefetch or PREFETCH
  check_batch("shuffled", options.batch, self.n)
  if ahead < 0 or ahead > 1000 then
    raise("E_VALUE", "shuffled: option 'prefetch' is %d; it must be between 0 and 1000", ahead)
  end
  local source = self.source
  if source.mode == "main" or source.mode == "file" and not source.on_disk then ahead = 0 end
  return setmetatable({source = source, size = options.batch, seed = options.seed or 0,
    at = options.shardings or {}, ahead = ahead, begun = {}, wait = 0.0,
    waited_for = WAITED_FOR[source.mode]}, Batches_meta)
end

local function begin_step(self, step)
  local ids = self.source:order(self.seed, (step - 1) * self.size, self.size)
  return begin(self.source, ids, self.at, self.reader)
end

--- Begins the batches behind a step. What cannot be begun is begun again, and raises, when it is asked for.
local function begin_ahead(self, step)
  for s in pairs(self.begun) do
    if s <= step or s > step + self.ahead then self.begun[s] = nil end
  end
  for s = step + 1, step + self.ahead do
    if not self.begun[s] then
      local ok, draw = lib.unless_stopped(pcall(begin_step, self, s))
      if not ok then return end
      self.begun[s] = draw
    end
  end
end

--- The batch of a step.
---@param step integer
---@return table<string, Tensor>
local function batch_of(self, step)
  if math.type(step) ~= "integer" or step < 1 then
    raise("E_VALUE", "shuffled: step %s; steps count from 1", step)
  end
  local from = core.clock()
  if self.ahead > 0 and not self.reader and self.source.mode == "file" then
    self.reader = core.reader() -- none: there is no thread to be had
    if not self.reader then self.ahead = 0 end
  end
  local draw = self.begun[step] or begin_step(self, step)
  begin_ahead(self, step)
  local batch = finish(self.source, draw)
  self.wait = core.clock() - from
  return batch
end
Batches_meta.__call = core.wrap(batch_of, false, "Batches:__call")

--- Where a record comes: the step, and the row of its batch (from 1).
---@param id integer from 0
---@param epoch integer? how often all records have come before; default 0
---@return integer step, integer row
function Batches:where(id, epoch)
  check_ids(self.source.n, {id})
  epoch = epoch or 0
  if epoch < 0 then raise("E_VALUE", "where: epoch %d; they count from 0", epoch) end
  local place = self.source:place(self.seed, id, epoch)
  return place // self.size + 1, place % self.size + 1
end

M.methods = {Records = Records, Batches = Batches}
return M
