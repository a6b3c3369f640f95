-- budget.lua: what a plan may send, as a check: for specs, and for scripts that would rather stop than send
-- more.
local core = require "meshlua.core"
local facts = require "meshlua.insight.facts"
local lib = require "meshlua.lib"

local raise = lib.raise

local M = {}

local kinds = {all_gather = true, all_reduce = true, reduce_scatter = true, all_to_all = true, permute = true}
local units = {B = 1, KB = 1e3, MB = 1e6, GB = 1e9, TB = 1e12, KiB = 1 << 10, MiB = 1 << 20, GiB = 1 << 30,
  TiB = 1 << 40}

--- The plan of a plan or an explanation.
local function plan_of(who, x)
  if type(x) == "table" and core.type_name(x.plan) == "Plan" then return x.plan end
  if core.type_name(x) == "Plan" then return x end
  raise("E_VALUE", "%s: expected a plan (step:plan(...)) or an explanation, got %s", who, lib.kind(x))
end

--- A limit: a number (exactly that), "<=4 MB", "<4", ">=1", "4 MiB". Returns how to compare, and to what.
local function limit_of(who, key, x)
  if type(x) == "number" then return "==", x end
  local how, number, unit
  if type(x) == "string" then how, number, unit = x:match "^%s*([<>=]*)%s*([%d.]+)%s*(%a*)%s*$" end
  number = tonumber(number)
  local factor = unit == "" and 1 or units[unit]
  if how == "" or how == "=" then how = "==" end
  local known = how == "==" or how == "<=" or how == "<" or how == ">=" or how == ">"
  if not number or not factor or not known then
    raise("E_VALUE", "%s: %s: expected a number or a limit such as \"<=4 MB\", got %s", who, key,
      type(x) == "string" and '"' .. x .. '"' or lib.kind(x))
  end
  return how, number * factor
end

local function holds(value, how, limit)
  if how == "<=" then return value <= limit end
  if how == "<" then return value < limit end
  if how == ">=" then return value >= limit end
  if how == ">" then return value > limit end
  return value == limit
end

--- "all_gather over data float32[8,4] (128 B) at train.lua:7: w of matmul: ..., split on data by argument w".
local function line_of(c)
  local row = facts.row_of(c)
  local by = #row.by > 0 and "; split on " .. table.concat(row.by, "; ") or ""
  return ("%s over %s %s (%s) at %s: %s%s"):format(c.op, table.concat(c.axes, ","), row.operands,
    core.bytes_text(c.bytes), lib.some(row.where, 3), lib.some(row.reasons, 2), by)
end

local function lines_of(list)
  local lines, shown = {}, 8
  for i = 1, math.min(#list, shown) do lines[i] = "  " .. line_of(list[i]) end
  if #list > shown then lines[#lines + 1] = ("  and %d more"):format(#list - shown) end
  return #lines > 0 and "\n" .. table.concat(lines, "\n") or ""
end

local function axes_text(c) return table.concat(c.axes, ",") end

--- Raises E_BUDGET if the plan has a collective that answers to all that is said: of one of the kinds listed
--- ({"all_gather", "all_to_all"}; none: of any kind), over the mesh axis or axes `axes`, with operands of more
--- than `bytes` on a device (a number, or "1 MB"). The error names each with its line and reason. Returns what
--- it was given.
---@param plan Plan|table a plan, or an explanation
---@param what {[integer]: string, axes: string|string[], bytes: number|string}?
function M.forbid(plan, what)
  local own = plan_of("forbid", plan)
  what = what or {}
  if type(what) ~= "table" then
    raise("E_VALUE", "forbid: expected a table, got %s", lib.kind(what))
  end
  local of_kind, any = {}, true
  for key, value in pairs(what) do
    if math.type(key) == "integer" then
      if not kinds[value] then
        raise("E_KEY", "forbid: there is no collective '%s'; they are %s", value,
          table.concat(lib.names(kinds), ", "))
      end
      of_kind[value], any = true, false
    elseif key ~= "axes" and key ~= "bytes" then
      raise("E_KEY", "forbid: unknown option '%s'; expected kinds, axes and bytes", key)
    end
  end
  local most = 0
  if what.bytes then most = select(2, limit_of("forbid", "bytes", what.bytes)) end
  local axes = type(what.axes) == "table" and table.concat(what.axes, ",") or what.axes
  if axes and type(axes) ~= "string" then
    raise("E_VALUE", "forbid: axes must be a name or a list of names, not %s", lib.kind(axes))
  end
  local found = {}
  for _, c in ipairs(own:collectives()) do
    local here = not axes or axes_text(c) == axes
    if (any or of_kind[c.op]) and here and (not what.bytes or c.bytes > most) then
      found[#found + 1] = c
    end
  end
  if #found > 0 then
    raise("E_BUDGET", "forbid: the plan has %d collective%s that may not be:%s", #found,
      #found == 1 and "" or "s", lines_of(found))
  end
  return plan
end

--- Count, bytes and sent of the collectives that a key names: a kind, "kind over axes", or all.
local function select_for(key, all)
  local kind, axes = key:match "^([%l_]+) over ([%w_,]+)$"
  kind = kind or kinds[key] and key
  local list, bytes, sent = {}, 0, 0
  for _, c in ipairs(all) do
    if not kind or c.op == kind and (not axes or axes_text(c) == axes) then
      list[#list + 1], bytes, sent = c, bytes + c.bytes, sent + c.sent
    end
  end
  return list, {count = #list, bytes = bytes, sent = sent}
end

local measures = {collectives = "count", bytes = "bytes", sent = "sent"}

--- Raises E_BUDGET unless the plan's communication is as said. Keys: `collectives` (how many), `bytes` (of
--- their operands on one device), `sent` (bytes that one device sends); a kind ("all_reduce") or a kind over
--- axes ("all_reduce over data"), with a count or a table {count =, bytes =, sent =}. Values: a number is
--- exact, "<=4 MB" and the like are limits. What is not mentioned is not checked. The error names the
--- collectives that count, with their lines and reasons. Returns what it was given.
---@param plan Plan|table a plan, or an explanation
---@param budget table<string, number|string|table>
function M.expect(plan, budget)
  local all = plan_of("expect", plan):collectives()
  if type(budget) ~= "table" then
    raise("E_VALUE", "expect: expected a table of limits, got %s", lib.kind(budget))
  end
  local keys = {}
  for key in pairs(budget) do
    local kind = type(key) == "string" and (key:match "^([%l_]+) over [%w_,]+$" or key)
    if not kinds[kind] and not measures[kind] then
      raise("E_KEY", "expect: unknown limit '%s'; expected collectives, bytes, sent, or a kind: %s",
        key, table.concat(lib.names(kinds), ", "))
    end
    keys[#keys + 1] = key
  end
  table.sort(keys)
  for _, key in ipairs(keys) do
    local list, got = select_for(key, all)
    local limits = budget[key]
    if type(limits) ~= "table" then limits = {[measures[key] or "count"] = limits} end
    for _, measure in ipairs(lib.names(limits)) do
      if not got[measure] then
        raise("E_KEY", "expect: %s: unknown measure '%s'; expected count, bytes or sent", key, measure)
      end
      local how, limit = limit_of("expect", key, limits[measure])
      if not holds(got[measure], how, limit) then
        local bytes = measure ~= "count"
        raise("E_BUDGET", "expect: %s: %s is %s, not %s%s%s", key, measure,
          bytes and core.bytes_text(got[measure]) or ("%d"):format(got[measure]),
          how == "==" and "" or how .. " ", bytes and core.bytes_text(limit) or ("%g"):format(limit),
          lines_of(list))
      end
    end
  end
  return plan
end

return lib.export(M, "", true)
