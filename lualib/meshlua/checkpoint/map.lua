-- map.lua: name maps: which entry of a file is which part of which tensor of a model, as a list of rules, read in both
-- directions. A rule is
--
--   {"h.{i}.attn.c_attn.weight", "h.{i+1}.attn.query.kernel", {"split", 2, 3, 1}, {"reshape", {"width", "heads", -1}}}
--
-- the file's name, the model's path, and verbs from the file to the model (view.lua). {i} stands for a number from 0
-- on, {i+1} for the one behind it; {*} for any text, and takes what no other rule takes. A word in the place of a
-- verb's number is looked up in the numbers that are given with the map. Besides there are
--
--   {tie = "lm_head.weight", to = "wte.weight"}   a file that lacks the first has it in the second
--   {ignore = "rotary_emb%.inv_freq$"}            names of the file that no model has
--   {keep = "^rngs"}                              paths of the model that no file has
--   {prefix = "transformer."}                     may stand before the file's names, in reading
local lib = require "meshlua.lib"
local view = require "meshlua.checkpoint.view"

local raise, shape_text = lib.raise, lib.shape_text

local M = {}

--- Appends a text to the list of problems.
local function note(problems, fmt, ...) problems[#problems + 1] = lib.format(fmt, ...) end

local LISTED = 10 -- of what is wrong

--- What is wrong, a line each, the first ten.
---@param lines string[]
---@return string
function M.listed(lines)
  return "\n  " .. lib.some(lines, LISTED, "\n  ")
end

--- The name among `names` that is nearest, as a question; "" for lines that are not shown: each is looked for in all.
---@param lines string[] the lines so far
---@param name string
---@param names string[]
---@return string
function M.near(lines, name, names)
  local nearest = #lines < LISTED and lib.nearest(name, names)
  return nearest and "; is it '" .. nearest .. "'?" or ""
end

-- ---- names with numbers -----------------------------------------------------------------------------

---@class Template
---@field text string
---@field pattern string
---@field parts (string|{letter: string, add: integer})[]
---@field has table<string, boolean> its letters
---@field any boolean {*}

--- A name with {i}, {j+1}, {*} in it.
---@return Template?
local function template_of(text)
  local t = {text = text, parts = {}, has = {}, any = false}
  local pattern, from = {"^"}, 1
  while from <= #text do
    local open, close, inner = text:find("{([^{}]*)}", from)
    local plain = text:sub(from, (open or #text + 1) - 1)
    if plain:find "[{}]" then return nil end
    t.parts[#t.parts + 1] = plain
    pattern[#pattern + 1] = plain:gsub("%p", "%%%0")
    if not open then break end
    local letter, sign, add = inner:match "^(%a)([+-]?)(%d*)$"
    if inner == "*" then
      letter, add, t.any = "*", 0, true
    elseif not letter or (sign == "") ~= (add == "") then
      return nil
    else
      add = (tonumber(add) or 0) * (sign == "-" and -1 or 1)
    end
    t.parts[#t.parts + 1], t.has[letter] = {letter = letter, add = add}, true
    pattern[#pattern + 1] = letter == "*" and "(.+)" or "(%d+)"
    from = close + 1
  end
  t.pattern = table.concat(pattern) .. "$"
  return t
end

--- What the letters of a template stand for in a name, or nil where it is none of these names.
---@return table<string, integer|string>?
local function matched(template, name)
  local found = {name:match(template.pattern)}
  if not found[1] then return nil end
  local numbers, k = {}, 0
  for _, part in ipairs(template.parts) do
    if type(part) == "table" then
      k = k + 1
      local value = found[k]
      if part.letter ~= "*" then
        if #value > 9 or #value > 1 and value:byte() == 48 then return nil end -- "0": a number is written in one way
        value = math.tointeger(tonumber(value)) - part.add
        if value < 0 then return nil end
      end
      if (numbers[part.letter] or value) ~= value then return nil end
      numbers[part.letter] = value
    end
  end
  return numbers
end

--- The name in which the letters stand for these numbers.
local function filled(template, numbers)
  local words = {}
  for k, part in ipairs(template.parts) do
    if type(part) == "table" then
      local value = numbers[part.letter]
      part = part.letter == "*" and value or ("%d"):format(value + part.add)
    end
    words[k] = part
  end
  return table.concat(words)
end

-- ---- rules ------------------------------------------------------------------------------------------

---@class Rule
---@field number integer
---@field file Template
---@field model Template
---@field chain {verb: string, args: table}[]
---@field stacked string[] letters that a dim of the model counts

--- A verb's arguments with numbers in the places of words.
local function looked_up(context, args, numbers)
  local list = {}
  for k, x in pairs(args) do
    if type(x) == "table" then
      list[k] = looked_up(context, x, numbers)
    elseif type(x) == "string" and numbers[x] ~= nil then
      list[k] = lib.check_integer(context.who, ("map: numbers.%s"):format(x), numbers[x])
    else
      list[k] = x
    end
  end
  return list
end

local function wrong(context, fmt, ...)
  raise("E_VALUE", "%s: map: rule %d %s", context.who, context.number, lib.format(fmt, ...))
end

local function check_words(context, args, numbers)
  for _, x in ipairs(args) do
    if type(x) == "table" then
      check_words(context, x, numbers)
    elseif type(x) == "string" and math.type(numbers[x]) ~= "integer" then
      wrong(context, "has the word '%s' in the place of a number; give it in numbers: {%s = ...}", x, x)
    end
  end
end

-- Which arguments of a verb are words by themselves.
local own_words = {heads = 3, stack = 2}

local function verb_of(context, given, numbers)
  local name = type(given) == "table" and given[1]
  local verb = view.verbs[name]
  if not verb then
    local is_name, names = type(name) == "string", lib.names(view.verbs)
    wrong(context, "has %s, where a verb should be: %s%s", is_name and "'" .. name .. "'" or lib.kind(given),
      table.concat(names, ", "), is_name and lib.did_you_mean(name, names) or "")
  end
  local args = {table.unpack(given, 2)}
  local own = own_words[name]
  local word = own and args[own]
  if own then args[own] = nil end
  check_words(context, args, numbers)
  args = looked_up(context, args, numbers)
  if own then args[own] = word end
  local message = verb.check(args)
  if message then wrong(context, "(%s): %s %s", context.file, name, message) end
  return {verb = name, args = args}
end

--- Gives each stack its letter: the one that the model's path has not.
local function check_letters(context, rule)
  local free = {}
  for letter in pairs(rule.model.has) do
    if not rule.file.has[letter] then wrong(context, "has {%s} in the model's path alone", letter) end
  end
  for letter in pairs(rule.file.has) do
    if not rule.model.has[letter] then free[#free + 1], free[letter] = letter, true end
  end
  for k, step in ipairs(rule.chain) do
    if step.verb == "stack" then
      local letter = step.args[2] or #free == 1 and free[1]
      if not letter or not free[letter] or rule.stacked[letter] then
        wrong(context, "(%s): stack needs a letter that the file's name has and the model's path has not",
          context.file)
      end
      step.args[2], rule.stacked[letter] = letter, true
      rule.stacked[#rule.stacked + 1] = letter
    end
    if view.verbs[step.verb].places and rule.chain[k + 1]
      and not view.verbs[rule.chain[k + 1].verb].places then
      wrong(context, "(%s): %s comes behind the other verbs", context.file, step.verb)
    end
  end
  for _, letter in ipairs(free) do
    if not rule.stacked[letter] then
      wrong(context, "(%s) has {%s} in the file's name alone; a stack would count it", context.file, letter)
    end
  end
end

local function rule_of(context, given, numbers)
  local rule = {number = context.number, chain = {}, stacked = {}}
  for k, side in ipairs {"file", "model"} do
    local text = given[k]
    if type(text) ~= "string" then
      wrong(context, "has %s where the %s's name should be", lib.kind(text), side)
    end
    rule[side] = template_of(text)
    if not rule[side] then
      wrong(context, "has the name '%s'; a name has letters in braces: {i}, {i+1}, {*}", text)
    end
  end
  for key in pairs(given) do
    if math.type(key) ~= "integer" then
      wrong(context, "has %s = ...; verbs are lists: {\"%s\"}", key, key)
    end
  end
  context.file = given[1]
  for k = 3, #given do rule.chain[k - 2] = verb_of(context, given[k], numbers) end
  check_letters(context, rule)
  return rule
end

-- What a rule without a model's path says.
local others = {tie = true, ignore = true, keep = true, prefix = true}

local function add_other(map, context, given)
  for key, value in pairs(given) do
    if not others[key] and not (key == "to" and given.tie) or type(value) ~= "string" then
      wrong(context, "has %s = %s; a rule is {file, model, verbs...}, {tie =, to =}, {ignore =}, {keep =} or "
        .. "{prefix =}", key, value)
    end
  end
  if given.tie then
    if not given.to then wrong(context, "ties '%s' to nothing: {tie = name, to = name}", given.tie) end
    map.ties[given.tie] = given.to
  end
  for _, key in ipairs {"ignore", "keep", "prefix"} do
    if given[key] then
      local ok = pcall(string.find, "", given[key])
      if not ok and key ~= "prefix" then
        wrong(context, "has '%s', which is no pattern of Lua", given[key])
      end
      table.insert(map[key], given[key])
    end
  end
end

local Map = {}
Map.__index = Map

--- A map, ready to be used; nil: names are paths. Raises where a rule is not what it should be.
---@param who string for messages
---@param rules table[]?
---@param numbers table<string, integer>? for words in verbs
---@return Map
function M.compile(who, rules, numbers)
  rules, numbers = rules or {{"{*}", "{*}"}}, numbers or {}
  lib.check_list(who, "map", rules)
  local map = setmetatable({rules = {}, rest = {}, ties = {}, ignore = {}, keep = {}, prefix = {}}, Map)
  for k, given in ipairs(rules) do
    local context = {who = who, number = k}
    if type(given) ~= "table" then wrong(context, "is %s; rules are tables", lib.kind(given)) end
    if given[1] == nil then
      add_other(map, context, given)
    else
      local rule = rule_of(context, given, numbers)
      local list = (rule.file.any or rule.model.any) and map.rest or map.rules
      list[#list + 1] = rule
    end
  end
  return map
end

local function any_matches(patterns, name)
  for _, pattern in ipairs(patterns) do
    if name:find(pattern) then return true end
  end
  return false
end

-- ---- from the model to the file ---------------------------------------------------------------------

--- Calls visit(numbers) for every place of the stacked letters.
local function each_place(rule, numbers, counts, visit, k)
  local letter = rule.stacked[k or 1]
  if not letter then return visit(numbers) end
  for n = 0, counts[letter] - 1 do
    numbers[letter] = n
    each_place(rule, numbers, counts, visit, (k or 1) + 1)
  end
end

---@class Instance one entry of the file that is a part of a tensor of the model
---@field rule Rule
---@field name string the entry's
---@field shape integer[] the entry's
---@field numbers table<string, integer|string>

--- The entries that make up the tensor of this path and shape. Problems are appended to the list.
---@return Instance[] list
---@return boolean unmatched is there no rule for a tensor that needs one?
function Map:instances(path, shape, problems)
  local list = {}
  local function add(rule)
    local numbers = matched(rule.model, path)
    if not numbers then return end
    local from, counts = view.backward(rule.chain, shape)
    if not from then
      note(problems, "%s %s: %s (rule %d)", path, shape_text(shape), counts, rule.number)
      return
    end
    each_place(rule, numbers, counts, function(at)
      local own = lib.copy(at)
      list[#list + 1] = {rule = rule, name = filled(rule.file, own), shape = from, numbers = own}
    end)
  end
  local before = #problems
  for _, rule in ipairs(self.rules) do add(rule) end
  if #list == 0 and #problems == before then
    for _, rule in ipairs(self.rest) do
      if #list == 0 then add(rule) end
    end
  end
  local none = #list == 0 and #problems == before and lib.product(shape) > 0
  return list, none and not any_matches(self.keep, path)
end

---@class MapPiece
---@field name string the entry's
---@field at integer[] 0-based, in the tensor
---@field size integer[]
---@field offset integer in elements of the entry
---@field factors integer[][] {dim, size, stride}

--- Does the piece lie in a tensor of this shape?
local function inside(piece, shape)
  if #piece.at ~= #shape then return false end
  for d, n in ipairs(shape) do
    if piece.at[d] + piece.size[d] > n then return false end
  end
  return true
end

--- The piece of the tensor that an instance is; nil where its verbs do not fit, which is noted.
---@return MapPiece?
local function piece_of(instance, path, shape, problems, column_major)
  local rule = instance.rule
  local made, message = view.forward(rule.chain, instance.shape, instance.numbers, column_major)
  local piece = made and view.piece(made)
  if piece and inside(piece, shape) then
    piece.name = instance.name
    return piece
  end
  note(problems, "%s %s: %s (rule %d)", path, shape_text(shape), message or "does not fit", rule.number)
end

--- The entry that an instance is a part of, made where it is the first; nil where the parts differ, which is noted.
local function entry_of(entries, instance, leaf, problems)
  local name, shape = instance.name, instance.shape
  local entry = entries[name]
  if not entry then
    entry = {name = name, shape = shape, dtype = leaf.dtype, path = leaf.path, filled = 0}
    entries[#entries + 1], entries[name] = entry, entry
  elseif not lib.same_shape(entry.shape, shape) or entry.dtype ~= leaf.dtype then
    note(problems, "%s: as a part of %s it would be %s%s, and %s makes that %s%s", leaf.path, name,
      leaf.dtype, shape_text(shape), entry.path, entry.dtype, shape_text(entry.shape))
    return nil
  end
  return entry
end

--- What is to be written: the entries in the order of their first tensors, and each tensor's pieces in them.
---@param leaves {path: string, shape: integer[], dtype: string}[]
---@return {name: string, shape: integer[], dtype: string, filled: integer}[] entries
---@return MapPiece[][] pieces of the leaves
---@return string[] problems
---@return string[] unmatched paths that no rule takes
function Map:write(leaves)
  local entries, pieces, problems, unmatched = {}, {}, {}, {}
  for k, leaf in ipairs(leaves) do
    local instances, none = self:instances(leaf.path, leaf.shape, problems)
    if none then unmatched[#unmatched + 1] = leaf.path end
    pieces[k] = {}
    for _, instance in ipairs(instances) do
      local piece = piece_of(instance, leaf.path, leaf.shape, problems)
      local entry = piece and entry_of(entries, instance, leaf, problems)
      if not entry then break end
      entry.filled = entry.filled + lib.product(piece.size)
      table.insert(pieces[k], piece)
    end
  end
  if #problems > 0 then return entries, pieces, problems, unmatched end
  for _, entry in ipairs(entries) do
    local n = lib.product(entry.shape)
    if entry.filled ~= n then
      note(problems, "%s %s: the model's tensors fill %d of its %d elements", entry.name,
        shape_text(entry.shape), entry.filled, n)
    end
  end
  return entries, pieces, problems, unmatched
end

-- ---- from the file to the model ---------------------------------------------------------------------

--- The entries by the names that rules know, and these names where they lack a prefix.
---@return table<string, integer> by_name, table<integer, string> short
function Map:named(entries)
  local by_name, shorts = {}, {}
  for k, entry in ipairs(entries) do by_name[entry.name] = k end
  for _, prefix in ipairs(self.prefix) do
    for k, entry in ipairs(entries) do
      if entry.name:sub(1, #prefix) == prefix then
        local short = entry.name:sub(#prefix + 1)
        by_name[short], shorts[k] = by_name[short] or k, short
      end
    end
  end
  return by_name, shorts
end

--- The shapes of the tensors that these entries are parts of, by what the rules say of the entries alone.
---@param entries {name: string, shape: integer[], column_major: boolean?}[]
---@return {path: string, shape: integer[]}[] targets
---@return string[] problems
function Map:targets(entries)
  local targets, problems, taken = {}, {}, {}
  local function add(rule, k, name)
    local numbers = matched(rule.file, name)
    if not numbers then return end
    taken[k] = true
    local made, message = view.forward(rule.chain, entries[k].shape, numbers)
    if not made then
      note(problems, "%s %s: %s (rule %d)", name, shape_text(entries[k].shape), message, rule.number)
      return
    end
    local path = filled(rule.model, numbers)
    local target = targets[path]
    if not target then
      target = {path = path, shape = {}}
      targets[#targets + 1], targets[path] = target, target
    end
    for d, dim in ipairs(made.dims) do target.shape[d] = math.max(target.shape[d] or 0, dim.at + dim.size) end
  end
  local names = {}
  for name, k in pairs(self:named(entries)) do names[#names + 1] = {name, k} end
  table.sort(names, function(a, b) return a[2] < b[2] or a[2] == b[2] and a[1] < b[1] end)
  for _, rules in ipairs {self.rules, self.rest} do
    local before = {table.unpack(taken, 1, #entries)}
    for _, pair in ipairs(names) do
      local name, k = pair[1], pair[2]
      if not before[k] and not any_matches(self.ignore, name) then
        for _, rule in ipairs(rules) do
          if rules == self.rules or not taken[k] then add(rule, k, name) end
        end
      end
    end
  end
  return targets, problems
end

---@class Reading
---@field pieces MapPiece[][] of each target; `entry` is the number of the entry
---@field complete boolean[] has the target all its parts?
---@field missing {path: string, name: string}[] names that the file lacks, in the order of the targets
---@field unmatched string[] paths that no rule takes
---@field unexpected string[] names of the file that no target takes
---@field problems string[] shapes that do not fit
---@field tied integer[][] pairs of entries of which the model has one for both

--- The piece that an instance is in the file; nil where there is none, which is noted.
local function read_piece(map, reading, instance, target, file)
  local number = file.by_name[instance.name] or file.by_name[map.ties[instance.name] or 0]
  local entry = number and file.entries[number]
  if not entry then
    reading.missing[#reading.missing + 1] = {path = target.path, name = instance.name}
    return nil
  end
  file.used[number] = true
  if not lib.same_shape(entry.shape, instance.shape) then
    local same = lib.same_shape(target.shape, instance.shape)
    note(reading.problems, "%s is %s in the file; %s %s%s", entry.name, shape_text(entry.shape), target.path,
      shape_text(target.shape), same and "" or " wants " .. shape_text(instance.shape))
    return nil
  end
  local piece = piece_of(instance, target.path, target.shape, reading.problems, entry.column_major)
  if piece then piece.entry = number end
  return piece
end

local function read_target(map, reading, target, file)
  local pieces, n = {}, 0
  local problems, missing = #reading.problems, #reading.missing
  local instances, none = map:instances(target.path, target.shape, reading.problems)
  if none then reading.unmatched[#reading.unmatched + 1] = target.path end
  for _, instance in ipairs(instances) do
    local piece = read_piece(map, reading, instance, target, file)
    if piece then pieces[#pieces + 1], n = piece, n + lib.product(piece.size) end
  end
  local complete = #reading.problems == problems and #reading.missing == missing
  local all = lib.product(target.shape)
  if complete and #instances > 0 and n ~= all then
    note(reading.problems, "%s %s: the map's rules give %d of its %d elements", target.path,
      shape_text(target.shape), n, all)
  end
  return pieces, complete and #instances > 0 and n == all
end

--- From which entries the targets are read.
---@param entries {name: string, shape: integer[], column_major: boolean?}[]
---@param targets {path: string, shape: integer[]}[]
---@return Reading
function Map:read(entries, targets)
  local reading = {pieces = {}, complete = {}, missing = {}, unmatched = {}, unexpected = {}, problems = {},
    tied = {}}
  local by_name, short = self:named(entries)
  local used = {}
  local file = {entries = entries, by_name = by_name, used = used}
  for k, target in ipairs(targets) do
    reading.pieces[k], reading.complete[k] = read_target(self, reading, target, file)
  end
  for k, entry in ipairs(entries) do
    local name = entry.name
    local tied = self.ties[short[k] or name] and by_name[self.ties[short[k] or name]]
    if not used[k] and tied then
      reading.tied[#reading.tied + 1] = {k, tied}
    elseif not used[k] and not any_matches(self.ignore, name) then
      reading.unexpected[#reading.unexpected + 1] = name
    end
  end
  return reading
end

return M
