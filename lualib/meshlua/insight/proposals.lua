-- proposals.lua: other specs that would serve a step better. For each collective that takes much of its time the
-- step is planned with every other spec of the inputs that ask for it, as the user would write it: another P of
-- an argument or of a Param's axes, another row of the rules. The best stay, and what is left is tried again.
-- Layouts stand in for others while the step is traced; nothing of the user's is written, and nothing runs.
local account = require "meshlua.insight.account"
local core = require "meshlua.core"
local edits_of = require "meshlua.insight.edits"
local facts = require "meshlua.insight.facts"
local lib = require "meshlua.lib"
local param = require "meshlua.nn.param"
local rules_of = require "meshlua.sharding.rules"

local M = {}

local MUCH = 0.05    -- of the time: who asks for less is left as it is
local KEPT = 0.01    -- of the time: a change that gains less is none
local WORTH = 0.05   -- of the time: all of them together must gain it
local ALIKE = 0.05   -- of the compute may become work that several devices do alike
local MORE = 1.03    -- so much more memory may the step take: who splits what is large pays with time
local ROUNDS = 4     -- changes are looked for again in what the last ones have left, so often,
local TOGETHER = 8   -- of those that gain so many are tried together

-- Plans: not more than M.most, nor than WORK nodes take, but FEW in any case. What comes out is the same on
-- every machine; only one that takes PATIENCE seconds of the processor stops before.
M.most = 160
local WORK, FEW, PATIENCE = 120000, 16, 60

local has = lib.position

-- ---- where an input has its layout from ---------------------------------------------------------------

local function box_of(p) return core.is_box(p.object) and p.object or nil end

--- The Param whose optimizer state the box is, or the box.
local function main_of(box)
  local birth = box and param.birth(box)
  return birth and birth.of or box
end

--- Of input i its name, alike for layers; "" where it has none.
local function name_of(p, i)
  local birth = box_of(p) and param.birth(box_of(p))
  if p.name ~= "" then return facts.unnamed(p.name, i) or account.alike(p.name) end
  return birth and birth.path and account.alike(birth.path) or ""
end

--- The spec that a Param made by ml.init has by these rules, and the number of the row that says so of all of
--- it.
local function born_spec(s, box, rules)
  local spec, row = rules_of.within(s.mesh, rules, rules_of.param_spec, box, param.birth(box).path)
  return spec or core.P(), row
end

--- Does the Param lie as the rules say under which ml.init has made it?
local function lies_as_born(s, box, p)
  local birth = param.birth(box)
  if not birth or not birth.rules or #birth.rules == 0 then return false end
  local ok, spec = lib.unless_stopped(pcall(born_spec, s, box, birth.rules))
  return ok and edits_of.key_of(spec, #p.shape) == edits_of.key_of(p.sharding.spec, #p.shape)
end

--- The rule set; of those that say the same the first.
local function set_of(s, rules)
  for _, known in ipairs(s.rules) do
    if rules_of.same(known, rules) then return known end
  end
  table.insert(s.rules, rules)
  return rules
end

--- Fills in what is known of each input: {p, index, name, key (of its spec), box?, main?, born (by its rules it
--- lies so), rules? (these), of (the input whose state it is), as_main (it lies as that)}.
local function read_inputs(s, params)
  local at = {}
  for i, p in ipairs(params) do
    local box = box_of(p)
    local x = {p = p, index = i, box = box, main = main_of(box), name = name_of(p, i),
      key = p.sharding and edits_of.key_of(p.sharding.spec, #p.shape)}
    if box then at[box] = x end
    x.born = x.key and box and x.main == box and lies_as_born(s, box, p)
    x.rules = x.born and set_of(s, param.birth(box).rules)
    s.inputs[i] = x
  end
  for _, x in ipairs(s.inputs) do
    local main = x.box and x.main ~= x.box and at[x.main]
    if main and x.key then x.of, x.as_main = main, x.key == main.key end
  end
end

--- The spec that an input has after the edits, with these rules in the place of others; nil: as it is.
local function spec_after(s, x, edits, instead)
  local birth = param.birth(x.main)
  if x.of then
    local rules = x.of.born and instead[x.of.rules]
    local own = rules and rules_of.within(s.mesh, rules, rules_of.state_spec, x.main, birth.path)
    return own or x.as_main and spec_after(s, x.of, edits, instead) or nil
  end
  for _, e in ipairs(edits) do
    if e.kind == "spec" and e.group == x.name and e.from == x.key then return e.spec end
  end
  local rules = x.born and instead[x.rules]
  return rules and born_spec(s, x.box, rules) or nil
end

-- ---- planning -----------------------------------------------------------------------------------------

--- pcall, which lets Ctrl-C through; no rules stand in for others behind it.
local function attempt(fn, ...)
  local results = table.pack(pcall(fn, ...))
  rules_of.instead = nil
  return lib.unless_stopped(table.unpack(results, 1, results.n))
end

--- Seconds, share of unique compute and whether it fits, of a plan.
function M.judge(plan)
  local work = account.total(plan)
  return {seconds = work.seconds, unique = work.unique, share = work.share, peak = plan:memory().peak,
    fits = plan:fits() == true}
end

--- The same of a program, with its inputs, and the types of its results as they lie.
function M.judge_program(program)
  local j = M.judge(program:plan())
  j.params, j.results = program:params(), program:why(program:results())
  return j
end

--- In what a step is another when it is traced once more, as a text; nil where it is the same. What other
--- layouts gain can be told of the same step alone.
---@param now table M.judge_program of it
---@param retrace fun(): Program
function M.differs(now, retrace)
  local ok, j = attempt(function()
    local program <close> = retrace()
    return M.judge_program(program)
  end)
  if not ok then return "it raises an error" end
  local function types(params)
    local list = {}
    for i, p in ipairs(params) do list[i] = p.type end
    return table.concat(list, " ")
  end
  if types(j.params) ~= types(now.params) then return "it has other inputs" end
  if table.concat(j.results, " ") ~= table.concat(now.results, " ") then return "it has other results" end
  if j.seconds ~= now.seconds then
    return ("it takes %s in place of %s"):format(facts.seconds_text(j.seconds),
      facts.seconds_text(now.seconds))
  end
  if j.peak ~= now.peak then
    return ("it holds %s in place of %s"):format(core.bytes_text(j.peak), core.bytes_text(now.peak))
  end
end

--- The results that lie otherwise than now, and not as the Param that they replace.
local function moved_results(now, j)
  local list, replaced = {}, {}
  for i, p in ipairs(now.params) do
    if p.result then replaced[p.result] = i end
  end
  for k, text in ipairs(now.results) do
    local i = replaced[k]
    local with_param = i and now.params[i].type == text and j.params[i].type == j.results[k]
    if j.results[k] ~= text and not with_param then list[#list + 1] = k end
  end
  return list
end

--- What the step comes to after the edits, or what `judge` gives of its program; nil where it cannot be so.
local function try(s, edits, judge)
  if s.tried >= s.most then return nil end
  s.tried = s.tried + 1
  local ok, j = attempt(function()
    local laid, instead = {}, {}
    for _, e in ipairs(edits) do
      if e.rules then instead[e.rules] = (edits_of.edited(e.rules, edits)) end
    end
    for i, x in ipairs(s.inputs) do
      local spec = x.key and spec_after(s, x, edits, instead)
      if spec then laid[i] = core.NamedSharding(s.mesh, spec) end
    end
    rules_of.instead = instead
    return core.laid_as(laid, function()
      local program <close> = s.retrace()
      return (judge or M.judge_program)(program)
    end)
  end)
  return ok and j or nil
end

--- May it take the place of what is there? Not where devices do alike what each did alone, nor with much more
--- memory; and results lie as before, as somebody else has a use for them, unless an axis had split nothing:
--- then it is told that one lies otherwise.
local function is_allowed(s, j)
  return #j.params == #s.now.params and #j.results == #s.now.results and j.peak <= MORE * s.now.peak
    and j.unique >= s.now.unique - ALIKE and (#s.unused > 0 or #moved_results(s.now, j) == 0)
end

--- Is it so much better than `now` that it may take its place?
local function gains(s, j, now)
  local faster = j.seconds < (1 - KEPT) * now.seconds
  if j.fits ~= now.fits then faster = j.fits end
  return faster and is_allowed(s, j)
end

--- Is there no room for a plan with n edits, and for what is planned of them when they stay: without each, up to
--- each, and the step as it is?
local function is_late(s, n) return s.tried + 2 * n + 1 > s.most or os.clock() > s.deadline end

-- ---- which edits --------------------------------------------------------------------------------------

--- "^h%.%d+%.up%.kernel$"
local function pattern_of(path)
  return "^" .. path:gsub("[%^%$%(%)%%%.%[%]%*%+%-%?]", "%%%0"):gsub("%f[%w_]%d+%f[^%w_]", "%%d+") .. "$"
end

--- Row i of the rules, with another target.
local function row_to(rules, i, to)
  local row = {}
  for key, value in pairs(rules[i]) do row[key] = value end
  row[2] = to
  return row
end

--- The edit of rows of a rule set.
local function rows_edit(s, rules, at)
  return {kind = "rows", rules = rules, at = at,
    key = ("rows %d: %s"):format(has(s.rules, rules), table.concat(edits_of.numbers_of(at), " "))}
end

local function is_name(rule)
  return type(rule) == "table" and type(rule[1]) == "string" and not core.is_spec(rule[2])
end

--- Adds the edits of the rows that say where logical axes are: to each mesh axis, also so that the row leaves it
--- that has it, or to none.
local function edit_names(s, edits, rules, asked, add)
  local now, front = edits_of.edited(rules, edits)
  local function to(axis, at)
    for i, target in pairs(at) do at[i] = row_to(now, front + i, target) end
    add(rows_edit(s, rules, at), axis == asked)
  end
  for i = 1, #now - front do
    local row = now[front + i]
    for _, axis in ipairs(is_name(row) and s.mesh.axis_names or {}) do
      if s.mesh.shape[axis] > 1 and not has(lib.axes_of(row[2] or nil), axis) then
        to(axis, {[i] = axis})
        for k = 1, #now - front do
          local other = now[front + k]
          if is_name(other) and other[1] ~= row[1] and has(lib.axes_of(other[2] or nil), axis) then
            local rest = edits_of.without(other[2], axis)
            to(axis, {[i] = axis, [k] = rest ~= core.P.none and rest})
          end
        end
      end
    end
    if is_name(row) and row[2] then to(nil, {[i] = false}) end
  end
end

--- Adds the edits of the rules that lay out a Param.
local function edit_rules(s, edits, x, spec, asked, add)
  local rules, front = edits_of.edited(x.rules, edits)
  local _, number = born_spec(s, x.box, rules)
  if not number then edit_names(s, edits, x.rules, asked, add) end
  local specs, first = edits_of.other_specs(spec, x.p.shape, s.mesh, asked)
  local rule, pattern = number and number > front and rules[number], pattern_of(param.birth(x.box).path)
  local key = ("front %d: %s"):format(has(s.rules, x.rules), pattern)
  for k, to in ipairs(specs) do
    if type(rule) == "table" then
      add(rows_edit(s, x.rules, {[number - front] = row_to(rules, number, to)}), k <= first)
    end
    if not (type(rule) == "table" and rule[1] == pattern) then
      add({kind = "front", rules = x.rules, row = {pattern, to}, key = key}, k <= first)
    end
  end
end

--- Adds the edits of what gives an input its layout, which lies by `spec` now.
local function edit_input(s, edits, x, spec, asked, add)
  if x.born then return edit_rules(s, edits, x, spec, asked, add) end
  if x.name == "" then return end
  local rank = #x.p.shape
  local meta = x.box and core.box_meta(x.box).axes
  local axes = core.is_spec(meta) and edits_of.key_of(meta, rank) == x.key
  local specs, first = edits_of.other_specs(spec, x.p.shape, s.mesh, asked)
  for k, to in ipairs(specs) do
    add({kind = "spec", key = "spec " .. x.name .. " " .. x.key, group = x.name, from = x.key, rank = rank,
      spec = to, was = axes and meta or x.p.sharding.spec, axes = axes}, k <= first)
  end
end

--- Who asks for what is sent: inputs (of those alike the first) with the axis, {x, axis, seconds (of the
--- collectives that name them), row (the dearest of these)}, the dearest first; and the dearest that a
--- constraint asks for. Collectives over axes that take little are left out, unless an axis splits nothing.
local function askers(s, now, rows)
  local by_axes, list, by_key = {}, {}, {}
  local asked -- the dearest that a constraint asks for
  for _, row in ipairs(rows) do
    local axes = table.concat(row.axes, ",")
    by_axes[axes] = (by_axes[axes] or 0) + row.seconds
  end
  local function name(row, o, named)
    if o.kind == "constraint" and (not asked or row.seconds > asked.seconds) then asked = row end
    local x = o.index and o.axis and s.inputs[o.index]
    x = x and x.of or x
    local key = x and x.key and #x.p.shape > 0 and ("%s %s %s"):format(x.name, x.key, o.axis)
    if not key or named[key] then return end
    named[key] = true
    local by = by_key[key]
    if not by then
      by = {x = x, axis = o.axis, seconds = 0, row = row, order = #list}
      by_key[key], list[#list + 1] = by, by
    end
    by.seconds = by.seconds + row.seconds
    if row.seconds > by.row.seconds then by.row = row end
  end
  for _, row in ipairs(rows) do
    local named = {}
    local much = #s.unused > 0 or by_axes[table.concat(row.axes, ",")] >= MUCH * now.seconds
    for _, c in ipairs(much and row.members or {}) do
      for _, reason in ipairs(c.reasons) do
        for _, o in ipairs(reason.origins) do name(row, o, named) end
      end
    end
  end
  table.sort(list, function(a, b)
    if a.seconds ~= b.seconds then return a.seconds > b.seconds end
    return a.order < b.order
  end)
  return list, asked
end

--- The edits that come into question, those first that put elsewhere an axis that is asked for.
local function edits_for(s, edits, now)
  local list, rest = {}, {}
  local known = #edits == 0 or is_late(s, #edits)
  local rows = known and s.rows or try(s, edits, function(program)
    return facts.collectives(account.of(program:plan()))
  end)
  local inputs, asked = askers(s, now, rows or {})
  for _, by in ipairs(inputs) do
    attempt(edit_input, s, edits, by.x, now.params[by.x.index].sharding.spec, by.axis, function(e, first)
      e.row_of, e.input = by.row, by.x
      table.insert(first and list or rest, e)
    end)
  end
  for _, rules in ipairs(asked and s.rules or {}) do
    edit_names(s, edits, rules, nil, function(e)
      e.row_of = asked
      list[#list + 1] = e
    end)
  end
  return table.move(rest, 1, #rest, #list + 1, list)
end

-- ---- the search ---------------------------------------------------------------------------------------

--- Those that fit first, then the faster, then those that came first.
local function before(a, b)
  if a.j.fits ~= b.j.fits then return a.j.fits end
  if a.j.seconds ~= b.j.seconds then return a.j.seconds < b.j.seconds end
  return a.order < b.order
end

--- Notes whether the step is another when it is traced once more.
local function check_same(s)
  s.tried = s.tried + 1
  s.differs = M.differs(s.now, s.retrace)
  return not s.differs
end

--- All edits one by one on top of what is there: those that gain, the best first.
local function gaining(s, edits, now)
  local found, seen = {}, {}
  for order, e in ipairs(edits_for(s, edits, now)) do
    local line = e.key .. " " .. edits_of.line_of(e)
    local list = not seen[line] and edits_of.with_edit(edits, e)
    seen[line] = true
    local late = list and is_late(s, #list)
    if late then s.untried = s.untried + 1 end
    if list and not late and s.tried == 0 and not check_same(s) then return {} end
    local j = list and not late and try(s, list)
    if j and gains(s, j, now) then found[#found + 1] = {edit = e, list = list, j = j, order = order} end
  end
  table.sort(found, before)
  return found
end

--- The edits with the best of those found, and each other that still gains then.
local function add_gaining(s, edits, now, found)
  for i = 1, math.min(#found, TOGETHER) do
    local list = i == 1 and found[i].list or edits_of.with_edit(edits, found[i].edit)
    local j = i == 1 and found[i].j or list and not is_late(s, #list) and try(s, list)
    if j and gains(s, j, now) then edits, now = list, j end
  end
  return edits, now
end

--- The edits without those that gain nothing where the others are.
local function pruned(s, edits, now)
  for i = #edits - 1, 1, -1 do
    local list = table.move(edits, 1, #edits, 1, {})
    table.remove(list, i)
    local j = try(s, list)
    if j and j.fits == now.fits and j.seconds <= now.seconds and is_allowed(s, j) then
      edits, now = list, j
    end
  end
  return edits, now
end

--- The edits as they are told, each with what it gains on top of those before it.
local function told_of(s, edits, best)
  local list, before_it = {}, s.now.seconds
  for i, e in ipairs(edits) do
    local line, how = edits_of.line_of(e)
    local j = i == #edits and best or try(s, table.move(edits, 1, i, 1, {}))
    local gain = before_it - (j and j.seconds or before_it)
    before_it = before_it - gain
    list[i] = {kind = e.kind, line = line, how = how, gain = gain, share = gain / s.now.seconds,
      of = ("%s over %s"):format(e.row_of.op, table.concat(e.row_of.axes, ",")), where = e.row_of.where[1]}
  end
  return list
end

--- What to change of the specs that a step's inputs have, for a shorter step: {edits: list of {kind (of Edit),
--- line (to paste), how (what with it), of (the collective that asks for it), where (its line), gain (seconds,
--- on top of those before it), share}, tried (plans), untried (those that were too many), differs? (see
--- M.differs: then there are no edits)}; where there are edits also {text ("with ..."), seconds, unique, share,
--- peak, fits (of the step with all of them), moved? (what is to be said of a result that lies otherwise then),
--- index?, argument? (the input of the first), spec? (its)}.
---@param now table M.judge_program of the step
---@param nodes integer how many it has
---@param mesh Mesh
---@param rows table[] its collectives, of facts.lua
---@param unused string[] mesh axes that split nothing
---@param retrace fun(): Program
---@return table
function M.of(now, nodes, mesh, rows, unused, retrace)
  local s = {now = now, mesh = mesh, rows = rows, unused = unused, retrace = retrace, inputs = {}, rules = {},
    tried = 0, untried = 0, most = math.min(M.most, math.max(FEW, WORK // nodes)),
    deadline = os.clock() + PATIENCE}
  read_inputs(s, now.params)
  local edits, best = {}, now
  for _ = 1, ROUNDS do
    local found = gaining(s, edits, best)
    if #found == 0 then break end
    edits, best = add_gaining(s, edits, best, found)
  end
  if #edits > 1 then edits, best = pruned(s, edits, best) end
  local worth = #edits > 0 and (best.fits ~= now.fits or best.seconds <= (1 - WORTH) * now.seconds)
  local told = {edits = worth and told_of(s, edits, best) or {}, untried = s.untried}
  if worth and not check_same(s) then told.edits = {} end
  told.tried, told.differs = s.tried, s.differs
  if #told.edits == 0 then return told end
  local moved = moved_results(now, best)
  local k = moved[1]
  told.moved = k and ("result %d lies as %s then, not as %s%s"):format(k, best.results[k], now.results[k],
    #moved > 1 and ("; %s otherwise, too"):format(lib.count(#moved - 1, "more lies", "more lie")) or "")
  local first = edits[1]
  told.text = edits_of.phrase_of(first)
  if #edits > 1 then told.text = ("%s and %s"):format(told.text, lib.count(#edits - 1, "other spec")) end
  told.index, told.argument = first.input and first.input.index, first.input and first.input.name
  told.spec = first.spec
  for _, name in ipairs {"seconds", "unique", "share", "peak", "fits"} do told[name] = best[name] end
  return told
end

return M
