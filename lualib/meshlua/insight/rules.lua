-- rules.lua: which rule gave which dim of which Param its mesh axes, and what that leaves on each device.
local account = require "meshlua.insight.account"
local core = require "meshlua.core"
local facts = require "meshlua.insight.facts"
local lib = require "meshlua.lib"
local rules_of = require "meshlua.sharding.rules"
local tree = require "meshlua.tree"

local raise = lib.raise

local M = {}

local function axes_text(axes)
  if not axes then return "whole" end
  return type(axes) == "table" and table.concat(axes, ",") or axes
end

local function same_axes(a, b) return axes_text(a) == axes_text(b) end

--- The rule for a logical name that gave these axes, and the first one before it whose mesh axes are there
--- and were taken, with the dim that has them.
local function rule_for(rules, mesh, spec, name, d)
  local passed, by
  for i, rule in ipairs(rules) do
    if type(rule) == "table" and rule[1] == name and not core.is_spec(rule[2]) then
      if same_axes(rule[2] or nil, spec[d]) then return i, passed, by end
      local wanted, taken = type(rule[2]) == "table" and rule[2] or {rule[2] or nil}, nil
      local there = #wanted > 0
      for _, axis in ipairs(wanted) do
        there = there and mesh.shape[axis] ~= nil
        for k = 1, d - 1 do
          for _, a in ipairs(type(spec[k]) == "table" and spec[k] or {spec[k]}) do
            if a == axis then taken = k end
          end
        end
      end
      if there and taken and not passed then passed, by = i, taken end
    end
  end
end

--- How one Param lies: {path, type, spec, bytes, part, rule (the one for all of it, or nil), dims: list of
--- {size, name?, axes (text), rule?, passed? (a rule that would have split it), by? (the dim that has its
--- axes), refused? (the axes do not divide it, and it is whole)}}.
local function row_of(rules, mesh, box, path, used_rules)
  local spec, by = rules_of.param_spec(box, path)
  spec = spec or core.P()
  local names = core.box_meta(box).axes
  local shape, dims = box.shape, {}
  local logical = not by and type(names) == "table" and not core.is_spec(names)
  local local_shape = core.NamedSharding(mesh, spec):shard_shape(shape)
  local part, whole, each = 1, 1, lib.element_bytes[box.dtype]
  for d, size in ipairs(shape) do
    local name = logical and names[d] or nil
    local dim = {size = size, name = name, axes = axes_text(spec[d])}
    if name then dim.rule, dim.passed, dim.by = rule_for(rules, mesh, spec, name, d) end
    local parts = 1
    for _, axis in ipairs(type(spec[d]) == "table" and spec[d] or {spec[d]}) do
      parts = parts * (mesh.shape[axis] or 1)
    end
    if parts > 1 and local_shape[d] == size then dim.refused, dim.axes = dim.axes, "whole" end
    if dim.rule then used_rules[dim.rule] = true end
    dims[d], part, whole = dim, part * local_shape[d], whole * size
  end
  if by then used_rules[by] = true end
  return {path = path, spec = spec, dtype = box.dtype, shape = shape, dims = dims, rule = by,
    bytes = whole * each, part = part * each, count = 1}
end

--- What is not as the rules read: patterns that match nothing or too late, and dims that stay whole although
--- a rule would split them.
local function findings_of(rules, rows)
  local list, passed = {}, {}
  local function add(i, fmt, ...)
    list[#list + 1] = ("rule %d, %s, %s"):format(i, rules_of.text(rules[i]), fmt:format(...))
  end
  for i, rule in ipairs(rules) do
    local own = type(rule) == "table" and (rule.opt or rule)
    if type(own) == "table" and type(own[1]) == "string" and core.is_spec(own[2]) then
      local matched, first = nil, nil
      for _, row in ipairs(rows) do
        if row.path:find(own[1]) then
          matched = matched or row
          if row.rule ~= i then first = first or row.rule end
          if row.rule == i or rule.opt then matched, first = row, nil break end
        end
      end
      if not matched then
        local paths = {}
        for k = 1, math.min(3, #rows) do paths[k] = rows[k].path end
        add(i, "matches no Param: there is %s%s", table.concat(paths, ", "), #rows > 3 and ", ..." or "")
      elseif first then
        add(i, "is never reached: rule %d comes first for %s", first, matched.path)
      end
    end
  end
  for _, row in ipairs(rows) do
    for d, dim in ipairs(row.dims) do
      local key = dim.passed and dim.passed .. " " .. account.alike(row.path)
      if key and dim.axes == "whole" and not passed[key] then
        passed[key] = true
        add(dim.passed, "is not used for dim %d of %s: '%s' already uses mesh axis '%s' in this tensor", d,
          account.alike(row.path), row.dims[dim.by].name or "-", axes_text(row.spec[dim.by]))
      elseif dim.refused then
        list[#list + 1] = ("dim %d of %s, %d, stays whole: mesh axis %s%s does not divide it"):format(d,
          row.path, dim.size, dim.refused, dim.rule and (", where rule %d puts it,"):format(dim.rule) or "")
      end
    end
  end
  return list
end

local Report = {__name = "Rules"}
Report.__index = Report

local function dim_text(d)
  local name = d.name or "-"
  if d.refused then return ("%s -> %s does not divide it -> whole"):format(name, d.refused) end
  return d.rule and ("%s -> rule %d -> %s"):format(name, d.rule, d.axes) or ("%s -> %s"):format(name, d.axes)
end

local function how_text(row, rules)
  if row.rule then
    return ("rule %d, %s: %s"):format(row.rule, rules_of.text(rules[row.rule]), tostring(row.spec))
  end
  local words = {}
  for d, dim in ipairs(row.dims) do words[d] = dim_text(dim) end
  return #words > 0 and table.concat(words, "; ") or "a scalar"
end

Report.__tostring = core.plain(function(self)
  local grouped, by_text = {}, {}
  for _, row in ipairs(self.rows) do
    local path, how = account.alike(row.path), how_text(row, self.rules)
    local type_text = ("%s[%s]"):format(row.dtype, table.concat(row.shape, ","))
    local key = table.concat({path, how, type_text}, "\0")
    local g = by_text[key]
    if not g then
      g = {path = path, how = how, type = type_text, count = 0, bytes = 0, part = 0}
      by_text[key], grouped[#grouped + 1] = g, g
    end
    g.count, g.bytes, g.part = g.count + 1, g.bytes + row.bytes, g.part + row.part
  end
  local paths, types = 0, 0
  for _, g in ipairs(grouped) do paths, types = math.max(paths, #g.path), math.max(types, #g.type) end
  local lines = {}
  for i, text in ipairs(self.findings) do lines[i] = ("%d. %s"):format(i, text) end
  lines[#lines + 1] = ("%d Params on %s: dim -> rule -> mesh axis"):format(#self.rows,
    facts.mesh_text(self.mesh))
  for _, g in ipairs(grouped) do
    lines[#lines + 1] = ("  %3d x %-" .. paths .. "s  %-" .. types .. "s  %10s of %s"):format(g.count, g.path,
      g.type, core.bytes_text(g.part), core.bytes_text(g.bytes))
    lines[#lines + 1] = "          " .. g.how
  end
  lines[#lines + 1] = ("each device holds %s of %s (%.3g%%); %.3g%% of the bytes lie on every device"):format(
    core.bytes_text(self.part), core.bytes_text(self.bytes), 100 * self.part / math.max(self.bytes, 1),
    100 * self.replicated)
  if #self.unused_axes > 0 then
    lines[#lines + 1] = "mesh axes without use: " .. table.concat(self.unused_axes, ", ")
  end
  for _, i in ipairs(self.unused_rules) do
    lines[#lines + 1] = ("rule %d, %s, gives no Param its layout"):format(i, rules_of.text(self.rules[i]))
  end
  return table.concat(lines, "\n")
end)

--- Says how a rule set lays out a model's Params on a mesh: for each dim the logical name, the rule that
--- applies and the mesh axis; bytes on each device; how much lies on every device; mesh axes and rules
--- without use. First what is not as the rules read: patterns that match nothing, dims that stay whole.
--- Nothing is moved. Raises where the rules do.
---@param rules table
---@param model table a module
---@param mesh Mesh? default: the one in context
---@return table report {findings, rows, bytes, part, replicated, unused_axes, unused_rules}; as a text by
---tostring
function M.explain_rules(rules, model, mesh)
  rules_of.check(rules)
  if type(model) ~= "table" then
    raise("E_VALUE", "explain_rules: expected a module, got %s", lib.kind(model))
  end
  mesh = mesh or core.mesh_current()
  if not core.is_mesh(mesh) then
    raise("E_MESH", "explain_rules: expected a mesh as third argument, or one in context")
  end
  local leaves, paths = tree.leaves(model)
  local report = setmetatable({rows = {}, rules = rules, mesh = mesh, bytes = 0, part = 0, unused_axes = {},
    unused_rules = {}}, Report)
  local used_rules, used_axes, everywhere = {}, {}, 0
  rules_of.within(mesh, rules, function()
    for i, leaf in ipairs(leaves) do
      if core.is_box(leaf) then
        local row = row_of(rules, mesh, leaf, paths[i], used_rules)
        report.rows[#report.rows + 1] = row
        report.bytes, report.part = report.bytes + row.bytes, report.part + row.part
        if row.part == row.bytes then everywhere = everywhere + row.bytes end
        for d = 1, #row.spec do
          local axes = row.spec[d]
          for _, axis in ipairs(type(axes) == "table" and axes or {axes}) do used_axes[axis] = true end
        end
      end
    end
  end)
  report.replicated = report.bytes > 0 and everywhere / report.bytes or 0
  for _, axis in ipairs(mesh.axis_names) do
    if mesh.shape[axis] > 1 and not used_axes[axis] then
      report.unused_axes[#report.unused_axes + 1] = axis
    end
  end
  for i, rule in ipairs(rules) do
    local of_state = type(rule) == "table" and rule.opt
    local splits = type(rule) == "function" or not of_state and rule[2]
    if splits and not used_rules[i] then report.unused_rules[#report.unused_rules + 1] = i end
  end
  report.findings = findings_of(rules, report.rows)
  return report
end

return lib.export(M, "", true)
