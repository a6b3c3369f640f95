-- edits.lua: what the user would change to lay out an input otherwise: another P of an argument or of a Param's
-- axes, other rows of rules, or one more before them; and the specs that come into question.
local core = require "meshlua.core"
local lib = require "meshlua.lib"
local rules_of = require "meshlua.sharding.rules"

local M = {}

local has = lib.position

-- ---- specs --------------------------------------------------------------------------------------------

--- The entry without an axis, as P takes it.
function M.without(entry, axis)
  local axes = lib.axes_of(entry)
  if not has(axes, axis) then return entry or core.P.none end
  local rest = {}
  for _, a in ipairs(axes) do
    if a ~= axis then rest[#rest + 1] = a end
  end
  return #rest > 0 and rest or core.P.none
end

--- The spec with dim d over `axis` alone (nil: whole), which no other dim has then.
local function spec_with(spec, rank, d, axis)
  local entries = {}
  for k = 1, rank do entries[k] = M.without(spec[k], axis) end
  entries[d] = axis or core.P.none
  local whole = true
  for k = 1, rank do whole = whole and entries[k] == core.P.none end
  if whole then return core.P() end
  return core.P(table.unpack(entries, 1, rank))
end

--- "data|model,x|": what the spec splits, whatever else it says.
function M.key_of(spec, rank)
  local words = {}
  for d = 1, rank do words[d] = table.concat(lib.axes_of(spec and spec[d]), ",") end
  return table.concat(words, "|")
end

--- Do the axes of each dim that is another than in `spec` divide it?
local function divides(to, spec, shape, mesh)
  for d, size in ipairs(shape) do
    local axes, parts = lib.axes_of(to[d]), 1
    for _, axis in ipairs(axes) do parts = parts * mesh.shape[axis] end
    local as_before = table.concat(axes, ",") == table.concat(lib.axes_of(spec[d]), ",")
    if size % parts ~= 0 and not as_before then return false end
  end
  return true
end

--- All specs that differ in where one axis is, or in one dim that becomes whole: those first that put `asked`
--- elsewhere, which are `first` many.
function M.other_specs(spec, shape, mesh, asked)
  local list, rest = {}, {}
  for d = 1, #shape do
    for _, axis in ipairs(mesh.axis_names) do
      local there = mesh.shape[axis] == 1 or has(lib.axes_of(spec[d]), axis)
      local to = not there and spec_with(spec, #shape, d, axis)
      if to and divides(to, spec, shape, mesh) then table.insert(axis == asked and list or rest, to) end
    end
    if spec[d] then rest[#rest + 1] = spec_with(spec, #shape, d, nil) end
  end
  local first = #list
  return table.move(rest, 1, #rest, first + 1, list), first
end

-- ---- edits: what the user would change ----------------------------------------------------------------

---@class Edit
---@field kind string "rows" (of rules), "front" (one more, before them), "spec" (of an input)
---@field key string edits of one key are of one thing
---@field rules table? those that change
---@field at table<integer, table>? "rows": the row's number -> what stands there then
---@field row table? "front": {pattern, P}
---@field group string? "spec": the name of the inputs, alike for layers
---@field spec P?
---@field was P?
---@field axes boolean? the spec is given as a Param's axes
---@field rank integer?
---@field from string? "spec": what `was` splits
---@field input table? that it lays out
---@field row_of table? the collective that it is for, of facts.lua

--- The rules with the edits; themselves where none is of them.
function M.edited(rules, edits)
  local list, change = {}, false
  for _, e in ipairs(edits) do
    if e.rules == rules and e.kind == "front" then list[#list + 1], change = e.row, true end
  end
  local front = #list
  table.move(rules, 1, #rules, front + 1, list)
  for _, e in ipairs(edits) do
    if e.rules == rules and e.kind == "rows" then
      for i, row in pairs(e.at) do list[front + i], change = row, true end
    end
  end
  return change and list or rules, front
end

--- Does it say what the user has said?
local function is_back(e)
  if e.kind ~= "rows" then return e.kind == "spec" and M.key_of(e.spec, e.rank) == e.from end
  for i, row in pairs(e.at) do
    if rules_of.text(row) ~= rules_of.text(e.rules[i]) then return false end
  end
  return true
end

--- The edits with one more, in the place of one of the same thing; nil where another changes a row of it.
function M.with_edit(edits, new)
  local list = {}
  for _, e in ipairs(edits) do
    if e.key ~= new.key then
      for i in pairs(e.rules == new.rules and e.at and new.at or {}) do
        if e.at[i] then return nil end
      end
      list[#list + 1] = e
    end
  end
  if not is_back(new) then list[#list + 1] = new end
  return list
end

--- The rows' numbers, in order.
function M.numbers_of(at)
  local numbers = {}
  for i in pairs(at) do numbers[#numbers + 1] = i end
  table.sort(numbers)
  return numbers
end

local function rows_text(rows, numbers)
  local words = {}
  for k, i in ipairs(numbers) do words[k] = rules_of.text(rows[i]) end
  return table.concat(words, ", ")
end

--- The line to paste, and what to do with it.
function M.line_of(e)
  if e.kind == "front" then return rules_of.text(e.row) .. ",", "before the other rules" end
  if e.kind == "rows" then
    local numbers = M.numbers_of(e.at)
    return rows_text(e.at, numbers) .. ",", "in place of " .. rows_text(e.rules, numbers)
  end
  return (e.axes and "axes = " or "") .. tostring(e.spec), ("for %s, in place of %s"):format(e.group,
    tostring(e.was))
end

--- "with w as P(nil, "model")", for a sentence.
function M.phrase_of(e)
  if e.kind == "spec" then return ("with %s as %s"):format(e.group, tostring(e.spec)) end
  local line, how = M.line_of(e)
  return ("with %s %s"):format(line:sub(1, -2), how)
end

return M
