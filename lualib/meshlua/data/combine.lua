-- data/combine.lua: records made of records: those that a function computes, changes or picks, and several kinds
-- mixed by weights.
local core = require "meshlua.core"
local kept = require "meshlua.data.kept"
local lib = require "meshlua.lib"
local records_of = require "meshlua.data.records"

local raise = lib.raise

local M = {}

-- ---- computed ---------------------------------------------------------------------------------------

-- A function of the index.
local Function = records_of.source()
for name, method in pairs(records_of.Computed) do Function[name] = method end
local Function_meta = {__index = Function}

function Function:record(id) return self.fn(id) end

--- Records that a function gives: fn(id), ids from 0, is a table of fields, each a number, numbers in nested
--- lists, or a tensor. All have the shapes and dtypes of the first. The function must depend on the id alone.
---@param n integer how many there are
---@param fn fun(id: integer): table
---@return Records
function M.computed(n, fn)
  if n < 1 then raise("E_VALUE", "computed: %d records; there must be one or more", n) end
  lib.check_function("computed", fn)
  local fields = records_of.fields_of("computed: record 0", fn(0))
  return records_of.new(setmetatable({n = n, fn = fn, fields = fields}, Function_meta))
end

-- ---- mapped -----------------------------------------------------------------------------------------

-- What a function makes of records, in this state.
local Mapped = records_of.source()
for name, method in pairs(records_of.Computed) do Mapped[name] = method end
local Mapped_meta = {__index = Mapped}

function Mapped:record(id) return self.fn(self.inner:record(id), id) end
function Mapped:order(...) return self.inner:order(...) end
function Mapped:place(...) return self.inner:place(...) end

-- What a module's function makes of records, in workers.
local Worked = setmetatable({mode = "worker"}, {__index = Mapped})
local Worked_meta = {__index = Worked}

--- The threads that call it; none where there are no threads to be had: then this state does.
local function workers_of(self)
  if self.workers == nil then
    self.list = {}
    for i, name in ipairs(core.tree_keys(self.fields)) do
      local field = self.fields[name]
      self.list[i] = {name, field.dtype, field.shape}
    end
    self.workers = core.workers(self.count, self.module, package.path, package.cpath, self.list) or false
  end
  return self.workers
end

function Worked:prepare(id, draw)
  local begun, workers = draw[self] or {}, workers_of(self)
  draw[self] = begun
  if workers and not begun[id] then begun[id] = workers:call(self.inner:record(id), id) end
end

--- What a worker made of a record, as lists by field; waits for it.
local function worked(self, id, work)
  local bytes, why = work:wait()
  while bytes == false do bytes, why = work:wait() end
  if not bytes then raise("E_VALUE", "%s: '%s' in a worker: %s", self:what(id), self.module, why) end
  local lists, at = {}, 0
  for _, field in ipairs(self.list) do
    local name, dtype = field[1], field[2]
    local count = self.fields[name].count
    lists[name], at = core.tokens(bytes, dtype, at, count), at + count * lib.element_bytes[dtype]
  end
  return lists
end

function Worked:pieces(id, name, list, draw)
  self:prepare(id, draw)
  local begun = draw[self]
  if begun and core.type_name(begun[id]) == "work" then begun[id] = worked(self, id, begun[id]) end
  Mapped.pieces(self, id, name, list, draw)
end

--- Raises unless each field is one that workers can give.
local function check_worked(module, fields)
  for name, field in pairs(fields) do
    if not field.shape then
      raise("E_VALUE", "map: field '%s' of what module '%s' returns is a text; workers give numbers", name,
        module)
    end
  end
end

--- What a module returns.
local function required(module)
  local ok, found = lib.unless_stopped(pcall(require, module))
  if ok then return found end
  found = tostring(found)
  raise("E_VALUE", "map: %s", found:match "^module '[^\n]* not found" or (found:gsub("%s+", " ")))
end

--- Records that a function makes of these: fn(record, id), of a record's fields as numbers in nested lists and
--- texts, is a table of fields; see computed. The name of a module in its place, which returns the function: it is
--- called in threads of its own, ahead of the step that needs it, and knows stock Lua only.
---@param self Records
---@param fn (fun(record: table, id: integer): table)|string
---@param options {workers: integer}? workers: how many threads; default the processors but one, 4 at most
---@return Records
function M.map(self, fn, options)
  local inner, module = records_of.source_of("map", self), nil
  options = lib.options("Records:map", options)
  if type(fn) == "string" then
    module, fn = fn, required(fn)
    if type(fn) ~= "function" then
      raise("E_VALUE", "map: module '%s' returns %s; it must return a function", module, lib.kind(fn))
    end
  end
  lib.check_function("map", fn)
  local count = options.workers or 0
  if options.workers and (count < 1 or count > 64) then
    raise("E_VALUE", "map: option 'workers' is %d; it must be between 1 and 64", count)
  end
  local fields = records_of.fields_of("map: record 0", fn(inner:record(0), 0))
  if module then check_worked(module, fields) end
  return records_of.new(setmetatable({n = inner.n, inner = inner, fn = fn, fields = fields, module = module,
    count = count}, module and Worked_meta or Mapped_meta))
end

-- ---- picked -----------------------------------------------------------------------------------------

-- Those of other records that an index lists.
local Picked = records_of.source()
local Picked_meta = {__index = Picked}

local function inner_id(self, id) return self.index:numbers(id, id + 1)[1] end

function Picked:pieces(id, name, list, draw) self.inner:pieces(inner_id(self, id), name, list, draw) end
function Picked:record(id) return self.inner:record(inner_id(self, id)) end
function Picked:span(id) return self.inner:span(inner_id(self, id)) end

function Picked:mark()
  local marks, index = self.inner:mark(), core.tokens_fingerprint(self.index)
  for name, mark in pairs(marks) do
    marks[name] = ("%s, of which %s, %d records"):format(mark, index, self.n)
  end
  return marks
end

--- Records with an index: those of `inner` that it lists.
local function picked(inner, index)
  local source = {n = #index, inner = inner, index = index, fields = lib.copy(inner.fields),
    mode = inner.mode, on_disk = inner.on_disk}
  if inner.prepare then
    function source:prepare(id, draw) inner:prepare(inner_id(self, id), draw) end
  end
  return records_of.new(setmetatable(source, Picked_meta))
end

--- Those of the records for which a function is true: pick(record, id). All are looked at once, here; with
--- `file` the index is kept there, and read instead where it is of the same data. (That the function is the same it
--- cannot know: give another function another file.)
---@param self Records
---@param pick fun(record: table, id: integer): boolean
---@param options {file: string}?
---@return Records? records, string? message, string? code
function M.filter(self, pick, options)
  local inner = records_of.source_of("filter", self)
  options = lib.options("Records:filter", options)
  lib.check_function("filter", pick)
  local index, message, code = kept.list(options.file, "filter", inner, "", function()
    local ids, parts = {}, {}
    for id = 0, inner.n - 1 do
      if pick(inner:record(id), id) then ids[#ids + 1] = id end
      if #ids == 100 then
        parts[#parts + 1], ids = string.pack(("<i8"):rep(#ids), table.unpack(ids)), {}
      end
    end
    parts[#parts + 1] = string.pack(("<i8"):rep(#ids), table.unpack(ids))
    return table.concat(parts)
  end)
  if not index then return nil, message, code end
  if #index == 0 then
    return nil, ("filter: none of %s is left"):format(lib.count(inner.n, "record")), "E_VALUE"
  end
  return picked(inner, index)
end

-- ---- mixed ------------------------------------------------------------------------------------------

-- Several kinds of records, one behind the other; drawn in random order they come by their weights: of each block of
-- `#pattern` places the same ones are of a kind, and its records come there in their own order.
local Mixed = records_of.source()
local Mixed_meta = {__index = Mixed}

--- Which kind has record id, and its id there.
local function kind_of(self, id)
  for _, kind in ipairs(self.kinds) do
    if id < kind.source.n then return kind, id end
    id = id - kind.source.n
  end
end

function Mixed:pieces(id, name, list, draw)
  local kind, own = kind_of(self, id)
  kind.source:pieces(own, name, list, draw)
end

function Mixed:record(id)
  local kind, own = kind_of(self, id)
  return kind.source:record(own)
end

function Mixed:span(id)
  local kind, own = kind_of(self, id)
  return kind.source:span(own)
end

function Mixed:order(seed, first, count)
  local ids, block = {}, #self.pattern
  for i = 1, count do
    local place = first + i - 1
    local at = self.pattern[place % block + 1]
    local kind = self.kinds[at.kind]
    ids[i] = kind.first + kind.source:order(seed + at.kind, place // block * #kind.places + at.rank, 1)[1]
  end
  return ids
end

function Mixed:place(seed, id, epoch)
  local kind, own = kind_of(self, id)
  local rank = kind.source:place(seed + kind.number, own, epoch)
  return rank // #kind.places * #self.pattern + kind.places[rank % #kind.places + 1]
end

function Mixed:mark()
  local marks = {}
  for _, kind in ipairs(self.kinds) do
    for name, mark in pairs(kind.source:mark()) do
      marks[name] = (marks[name] and marks[name] .. "; " or "") .. ("%d of %d: %s"):format(#kind.places,
        #self.pattern, mark)
    end
  end
  return marks
end

local LONGEST_BLOCK = 10000 -- weights of four decimals are met exactly
local NEAR = 1e-9

--- How many of each kind are in a block: exactly the weights where a block of up to LONGEST_BLOCK does it, else the
--- nearest counts, the largest remainders rounded up. No kind is without a record.
local function counts_of(shares)
  local size, counts, rest = LONGEST_BLOCK, {}, {}
  for n = #shares, LONGEST_BLOCK do
    local exact = true
    for _, share in ipairs(shares) do
      local count = math.floor(share * n + 0.5)
      if count < 1 or math.abs(share * n - count) > NEAR * n then exact = false break end
    end
    if exact then size = n break end
  end
  local left = size
  for k, share in ipairs(shares) do
    counts[k] = math.max(1, math.floor(share * size + NEAR * size))
    rest[k], left = {k, share * size - counts[k]}, left - counts[k]
  end
  table.sort(rest, function(a, b) return a[2] > b[2] or a[2] == b[2] and a[1] < b[1] end)
  local i = 1
  while left ~= 0 do
    local k, by = rest[left > 0 and i or #rest + 1 - i][1], left > 0 and 1 or -1
    if counts[k] + by >= 1 then counts[k], left = counts[k] + by, left - by end
    i = i % #rest + 1
  end
  return counts, size
end

--- The kinds of a block's places, so that each prefix has of each kind its share to within one record
--- (R. Tijdeman, The chairman assignment problem, 1980): of the kinds that are due the one that must come soonest.
local function pattern_of(counts, size)
  local pattern, had, kinds = {}, {}, #counts
  local slack = kinds > 1 and 2 * kinds - 2 or 1
  for k = 1, kinds do had[k] = 0 end
  for place = 1, size do
    local best, soonest
    for k, count in ipairs(counts) do
      local due = count * place - had[k] * size -- in 1 / size records
      if due * slack >= size or kinds == 1 then
        local when = ((slack - 1) * size - slack * due) / count
        if not best or when < soonest then best, soonest = k, when end
      end
    end
    pattern[place] = {kind = best, rank = had[best]}
    had[best] = had[best] + 1
  end
  return pattern
end

--- Raises unless all kinds have the same fields.
local function check_alike(sources)
  local first = sources[1]
  for k = 2, #sources do
    local fields = sources[k].fields
    for _, name in ipairs(lib.names(lib.copy(fields, first.fields))) do
      local a, b = first.fields[name], fields[name]
      local same = a and b and a.dtype == b.dtype and not a.shape == not b.shape
        and (not a.shape or lib.same_shape(a.shape, b.shape))
      if not same then
        local function text(field)
          return not field and "nothing" or field.shape and lib.type_text(field)
            or field.dtype .. " of any length"
        end
        raise("E_SHAPE", "mix: field '%s' is %s in the first records, %s in number %d", name, text(a),
          text(b), k)
      end
    end
  end
end

--- The fields of all kinds. Where one does not know that a field follows another, nobody does.
local function fields_of(sources)
  local fields = {}
  for name, field in pairs(sources[1].fields) do
    fields[name] = lib.copy(field)
    for _, source in ipairs(sources) do
      if source.fields[name].next ~= field.next then fields[name].next = nil end
    end
  end
  return fields
end

local ORDER = {file = 1, worker = 2, main = 3}

--- Records of several kinds by weights: mix({web, code}, {0.7, 0.3}). In random order (shuffled) any number of
--- records from the first on has of each kind its share to within one record; a kind's own records come as they
--- would alone, once before any comes again. Weights of up to four decimals are met exactly. As a list (each, batch) the
--- kinds stand one behind the other.
---@param kinds Records[]
---@param weights number[]
---@return Records
function M.mix(kinds, weights)
  lib.check_list("mix", "the records", kinds)
  lib.check_list("mix", "the weights", weights)
  if #kinds < 1 or #weights ~= #kinds then
    raise("E_VALUE", "mix: %s for %d kinds of records", lib.count(#weights, "weight"), #kinds)
  end
  local sources, sum, shares, first, pool = {}, 0, {}, 0, {}
  for k, records in ipairs(kinds) do
    sources[k] = records_of.source_of("mix", records)
    local weight = lib.check_number("mix", "a weight", weights[k])
    if not (weight > 0 and weight < math.huge) then
      raise("E_VALUE", "mix: weight %d is %s; it must be above 0", k, weight)
    end
    sum = sum + weight
  end
  for k, weight in ipairs(weights) do shares[k] = weight / sum end
  check_alike(sources)
  local pattern = pattern_of(counts_of(shares))
  for k, source in ipairs(sources) do
    pool[k] = {source = source, first = first, places = {}, number = k}
    first = first + source.n
  end
  for place, at in ipairs(pattern) do table.insert(pool[at.kind].places, place - 1) end
  local mixed = {n = first, kinds = pool, pattern = pattern, fields = fields_of(sources), mode = "file"}
  for _, source in ipairs(sources) do
    if ORDER[source.mode] > ORDER[mixed.mode] then mixed.mode = source.mode end
    mixed.on_disk = mixed.on_disk or source.on_disk
    if source.prepare then
      function mixed:prepare(id, draw)
        local kind, own = kind_of(self, id)
        if kind.source.prepare then kind.source:prepare(own, draw) end
      end
    end
  end
  return records_of.new(setmetatable(mixed, Mixed_meta))
end

return M
