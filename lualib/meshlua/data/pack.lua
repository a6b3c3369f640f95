-- data/pack.lua: documents of any length as rows of one length. Which pieces of which documents are in a row is an
-- index that is built once, and depends on the documents' lengths alone.
local core = require "meshlua.core"
local kept = require "meshlua.data.kept"
local lib = require "meshlua.lib"
local records_of = require "meshlua.data.records"

local raise = lib.raise

local M = {}

-- ---- the index --------------------------------------------------------------------------------------
-- Where each row's pieces begin in the list of pieces, then those: {document, first number, count}.

---@class RowIndex
---@field rows integer[]
---@field pieces string[] packed
---@field n integer pieces
local function new_index() return {rows = {}, pieces = {}, n = 0} end

local function add_piece(index, document, first, count)
  index.n = index.n + 1
  index.pieces[index.n] = ("<i8i8i8"):pack(document, first, count)
end

--- The index as bytes: the number of rows, where each begins and the last ends, the pieces.
local function packed(index)
  local words = {("<i8"):pack(#index.rows)}
  for i, first in ipairs(index.rows) do words[i + 1] = ("<i8"):pack(first) end
  words[#words + 1] = ("<i8"):pack(index.n)
  return table.concat(words) .. table.concat(index.pieces)
end

--- All documents one behind the other, cut into rows of length + 1 of which the last number is the next row's
--- first. What is left at the end is not used.
local function split(source, length)
  local index, room = new_index(), 0 -- in the row under way
  for document = 0, source.n - 1 do
    local _, first, last = source:span(document)
    local at, size = 0, last - first
    while at < size do
      if room == 0 then
        index.rows[#index.rows + 1], room = index.n, length + 1
      end
      local count = math.min(room, size - at)
      add_piece(index, document, at, count)
      at, room = at + count, room - count
      if room == 0 then at = at - 1 end -- the next row's first
    end
  end
  if room > 0 then
    index.n = table.remove(index.rows)
    for i = index.n + 1, #index.pieces do index.pieces[i] = nil end
  end
  return index
end

-- Numbers from 0 to a largest, of which the smallest from one on is found quickly: 32 to a word.
local BITS = 32
local bit_place = {}
for k = 0, BITS - 1 do bit_place[(1 << k) % 37] = k end

local function smallest_from(words, at, largest)
  local w = at // BITS
  local word = (words[w] or 0) & (~0 << at % BITS)
  while word == 0 do
    w = w + 1
    if w * BITS > largest then return nil end
    word = words[w] or 0
  end
  return w * BITS + bit_place[(word & -word) % 37]
end

--- The parts of documents, longest first: those longer than length + 1 are cut, each part beginning with the last
--- number of the one before. What has no next number to learn is left out.
local function parts_of(source, length)
  local by_size = {}
  for document = 0, source.n - 1 do
    local _, first, last = source:span(document)
    local size = last - first
    for at = 0, size - 2, length do
      local count = math.min(length + 1, size - at)
      by_size[count] = by_size[count] or {}
      local list = by_size[count]
      list[#list + 1], list[#list + 2] = document, at
    end
  end
  return by_size
end

--- Each part into the fullest row that has room for it (best fit, the longest first).
local function best_fit(source, length)
  local most, by_size, rows, open, words = length + 1, parts_of(source, length), {}, {}, {}
  local function set(room, is_there)
    local w, bit = room // BITS, 1 << room % BITS
    words[w] = is_there and (words[w] or 0) | bit or words[w] & ~bit
  end
  for size = most, 2, -1 do
    local list = by_size[size] or {}
    for i = 1, #list, 2 do
      local room = smallest_from(words, size, most)
      local row = room and table.remove(open[room]) or {}
      if not room then
        room, rows[#rows + 1] = most, row
      elseif #open[room] == 0 then
        set(room, false)
      end
      row[#row + 1], row[#row + 2], row[#row + 3] = list[i], list[i + 1], size
      room = room - size
      if room >= 2 then
        open[room] = open[room] or {}
        table.insert(open[room], row)
        set(room, true)
      end
    end
  end
  local index = new_index()
  for i, row in ipairs(rows) do
    index.rows[i] = index.n
    for k = 1, #row, 3 do add_piece(index, row[k], row[k + 1], row[k + 2]) end
  end
  return index
end

-- ---- rows -------------------------------------------------------------------------------------------

local Packed = records_of.source()
local Packed_meta = {__index = Packed}

--- The pieces of a row: {list, first, count, ...}, length + 1 numbers at most.
local function row_of(self, id)
  local index, list = self.index, {}
  local ends = index:numbers(1 + id, 3 + id)
  local from = 2 + self.n
  local words = index:numbers(from + 3 * ends[1], from + 3 * ends[2])
  for k = 1, #words, 3 do
    local tokens, first = self.inner:span(words[k])
    list[k], list[k + 1], list[k + 2] = tokens, first + words[k + 1], words[k + 2]
  end
  return list
end

--- Appends `count` numbers, or so many times a number; drops those outside of the row's first `length`.
local function append(list, at, tokens, first, count, length)
  if at < 0 then
    first, count, at = tokens and first - at or first, count + at, 0
  end
  count = math.min(count, length - at)
  if count <= 0 then return end
  local n = #list
  list[n + 1], list[n + 2], list[n + 3] = tokens, first, count
end

-- What a piece of `count` numbers from place `at` of the row on adds to a field's pieces.
local add = {
  inputs = append,
  labels = function(list, at, ...) append(list, at - 1, ...) end,
  segments = function(list, at, _, _, count, length, number)
    append(list, at, false, number, count, length)
  end,
  weights = function(list, at, _, _, count, length)
    append(list, at, false, 1, count - 1, length)
    append(list, at + count - 1, false, 0, 1, length)
  end,
}

function Packed:pieces(id, name, list)
  local row, length, at, before = row_of(self, id), self.length, 0, #list
  for k = 1, #row, 3 do
    add[name](list, at, row[k], row[k + 1], row[k + 2], length, (k + 2) // 3)
    at = at + row[k + 2]
  end
  local there = 0
  for k = before + 3, #list, 3 do there = there + list[k] end
  append(list, there, false, 0, length - there, length)
end

function Packed:record(id)
  local record = {}
  for name, field in pairs(self.fields) do
    local list = {}
    self:pieces(id, name, list)
    record[name] = core.rows(list, 1, field.shape, field.dtype):totable()[1]
  end
  return record
end

function Packed:mark()
  local mark = records_of.mark_text(self.inner)
  local marks = {}
  for name in pairs(self.fields) do
    marks[name] = ("%s, %s into %d, %d records"):format(mark, self.how, self.length, self.n)
  end
  return marks
end

local modes = {split = split, best_fit = best_fit}

--- Documents as rows of one length: records {inputs, labels, segments, weights}, each [length]. labels are the inputs
--- one number further on. segments count the documents of a row from 1, for attention, and are 0 where nothing
--- is; weights are 1 where a label belongs to the document of its input, else 0. mode "split" (the default) lays
--- all documents one behind the other and cuts that into rows, which are full. "best_fit" keeps each document that
--- is short enough in one row. The index is built once, here; with `file` it is kept there.
---@param documents Records of data.documents, data.text or data.encode, or picked or mixed of such
---@param length integer
---@param options {mode: "split"|"best_fit", file: string}?
---@return Records? records, string? message, string? code
function M.pack(documents, length, options)
  local inner = records_of.source_of("pack", documents)
  options = lib.options("data.pack", options)
  local how = options.mode or "split"
  if not modes[how] then raise("E_VALUE", "pack: mode '%s'; there are split and best_fit", how) end
  if length < 1 or length > 1 << 30 then raise("E_VALUE", "pack: a length of %d", length) end
  if not pcall(inner.span, inner, 0) then
    raise("E_VALUE",
      "pack: these records are no documents; data.documents, data.encode and data.text give such")
  end
  local decided = (" %s %d"):format(how, length)
  local index, message, code = kept.list(options.file, "pack", inner, decided, function()
    return packed(modes[how](inner, length))
  end)
  if not index then return nil, message, code end
  local n = index:numbers(0, 1)[1]
  if n == 0 then
    message = "pack: the documents are too few for a row of %d and the number that follows"
    return nil, message:format(length), "E_VALUE"
  end
  local fields = {}
  for _, name in ipairs {"inputs", "labels", "segments"} do
    fields[name] = {shape = {length}, dtype = "int32"}
  end
  fields.weights = {shape = {length}, dtype = "float32"}
  local list = inner:span(0)
  return records_of.new(setmetatable({n = n, fields = fields, inner = inner, index = index, length = length,
    how = how, on_disk = core.tokens_on_disk(list)}, Packed_meta))
end

return M
