-- explicit.lua: layouts as part of types: what a P can say beside its entries, and the functions of explicit
-- mode.
local core = require "meshlua.core"
local lib = require "meshlua.lib"

local raise = lib.raise

local M = {}

local fields = {partitions = "table", unreduced = "table", reduced = "table", unreduced_kind = "string"}

--- A P like this one with some of its fields replaced: spec:update{partitions = {"x", false}, unreduced = {"y"}}.
--- In partitions a hole is false.
---@param spec P
---@param changes {partitions: table, unreduced: string[], reduced: string[], unreduced_kind: string}
---@return P
local function update(spec, changes)
  if not core.is_spec(spec) then raise("E_SPEC", "P:update: expected a P, got %s", lib.kind(spec)) end
  changes = lib.options("P:update", changes, fields)
  local entries = changes.partitions or spec.partitions
  local options = {unreduced = changes.unreduced or spec.unreduced, reduced = changes.reduced or spec.reduced,
    unreduced_kind = changes.unreduced_kind or not changes.unreduced and spec.unreduced_kind or nil}
  local list = table.move(entries, 1, #entries, 1, {})
  list[#entries + 1] = options
  return core.P(table.unpack(list, 1, #entries + 1))
end
core.methods("meshlua.P").update = core.wrap(update)

return lib.export(M)
