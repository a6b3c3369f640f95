-- findings.lua: what is wrong with a step, or dear for nothing: each with its cause, the line to change, what
-- to change there, and what that would gain. Each rule asks one question of what account.lua has counted, of
-- the arguments and of the traced program; none knows an op or a model.
local account = require "meshlua.insight.account"
local core = require "meshlua.core"
local facts = require "meshlua.insight.facts"
local lib = require "meshlua.lib"
local mesh_lines = require("meshlua.sharding.mesh").lines
local tree = require "meshlua.tree"

local M = {}

local WORTH = 0.05       -- of the work, the time or the memory, that is worth a finding
local LITTLE = 0.01      -- of the time: less is meant, or does not matter
local PADDED = 0.01      -- of the work, spent on padding
local LARGE = 1 << 20    -- bytes that are worth a word when every device holds them
local ROOM = 1 << 30     -- bytes that a device has anyway, where its memory is not known
local BETTER = 1.1       -- an argument that is laid out otherwise must make the step faster by so much,
local FASTER = 1.5       -- another mesh by so much
local SLOW = 1e-3        -- seconds: shorter steps are dear in many ways that do not last
local SHORT = 2e-5       -- seconds: shorter steps are mostly what starts their ops
local ALWAYS = math.huge -- the gain of what makes results wrong, or a step impossible

local bytes_text, percent, has = core.bytes_text, facts.percent, lib.position

local function axes_text(axes) return table.concat(axes, ",") end

--- The line where an input's buffer is read first.
local function line_of_input(x, index)
  for b, buffer in ipairs(x.buffers) do
    if buffer.kind == "argument" and buffer.index == index then
      for _, item in ipairs(x.account.items) do
        for _, v in ipairs(item.step.inputs) do
          if v.buffer == b and item.line ~= "?" then return item.line end
        end
      end
    end
  end
end

local function mesh_line(mesh)
  return mesh_lines[table.concat(mesh.axis_names, ",") .. " " .. table.concat(mesh.axis_sizes, ",")]
end

local function loop_text(loop)
  return ("%s turns of the loop at %s"):format(loop.step.trips or "the", loop.line)
end

-- ---- rules --------------------------------------------------------------------------------------------

local rules = {}

function rules.misfit(x, add)
  if x.fits then return end
  add {cause = "it does not fit: " .. x.misfit, gain = ALWAYS, mend = x.better and x.better.fits
    and ("%s it would (%s)"):format(x.better.text, bytes_text(x.better.peak)) or nil}
end

--- A sum over devices of what is the same on all of them.
function rules.equal_sums(x, add)
  for _, e in ipairs(x.mesh and account.equal_sums(x.account, x.buffers, x.mesh) or {}) do
    add {cause = ("%s over %s adds up what is already the same on its devices, %d times"):format(e.item.op,
      axes_text(e.axes), e.times), where = e.item.line, gain = ALWAYS,
      mend = "the value was summed before: leave this one out, or take the mean"}
  end
end

--- Products that several devices do alike, by the axis along which they do.
function rules.repeated(x, add)
  if not x.mesh or x.mesh.size == 1 then return end
  local by_axis = {}
  for _, item in ipairs(x.account.items) do
    for _, axis in ipairs(item.product and item.unique < 0.995 and x.mesh.axis_names or {}) do
      local whole = not has(item.step.vary, axis)
      local size, parts = x.mesh.shape[axis], 1
      if not whole and not item.some then -- a part of an axis splits it
        for _, a in ipairs(item.step.vary) do parts = parts * x.mesh.shape[a] end
        whole = item.step.distinct < parts * 0.995 and axis == item.step.vary[#item.step.vary]
        size = whole and parts / item.step.distinct or 1
      end
      if whole and size > 1 then
        local sum = by_axis[axis] or {flops = 0, seconds = 0, lines = {}, at = {},
          part = size < x.mesh.shape[axis]}
        by_axis[axis] = sum
        local flops = item.flops * (1 - 1 / size)
        sum.flops, sum.seconds = sum.flops + flops, sum.seconds + item.computing * (1 - 1 / size)
        if not sum.at[item.line] then sum.lines[#sum.lines + 1] = item.line end
        sum.at[item.line] = (sum.at[item.line] or 0) + flops
      end
    end
  end
  for _, axis in ipairs(x.mesh.axis_names) do
    local sum = by_axis[axis]
    if sum and sum.flops >= WORTH * x.account.flops then
      table.sort(sum.lines, function(a, b)
        if sum.at[a] ~= sum.at[b] then return sum.at[a] > sum.at[b] end
        return a < b
      end)
      local cause
      if has(x.unused_axes, axis) then
        cause = ("mesh axis %s splits nothing: its %d devices do the same work"):format(axis,
          x.mesh.shape[axis])
      elseif sum.part then
        cause = ("a dim smaller than mesh axis %s (%d) is split over it: groups of its devices do the same "
          .. "work"):format(axis, x.mesh.shape[axis])
      else
        cause = ("products are not split over mesh axis %s: its %d devices do them alike"):format(axis,
          x.mesh.shape[axis])
      end
      local b, mend = x.better
      if b and b.unique - x.account.unique > 0.005 then
        x.told.better = true
        mend = ("%s it would take %.3g times less, with %s of the compute unique"):format(b.text, b.gain,
          percent(b.unique))
      elseif sum.part then
        mend = ("a smaller %s and more devices along another axis, or a dim that it divides"):format(axis)
      else
        mend = ("split a dim of its operands over %s: the batch, or features that another axis does not "
          .. "have"):format(axis)
      end
      add {cause = ("%s; %s of the compute is unique"):format(cause, percent(x.account.unique)),
        where = lib.some(sum.lines, 2), mend = mend, gain = sum.seconds}
      x.told[axis] = true
    end
  end
end

function rules.unused_axes(x, add)
  for _, axis in ipairs(x.unused_axes) do
    if not x.told[axis] then
      local b = x.better
      x.told.better = true
      add {cause = ("mesh axis %s splits nothing: its %d devices do the same work"):format(axis,
        x.mesh.shape[axis]), where = x.account.lines[1] and x.account.lines[1].line,
        gain = x.account.computing * (1 - 1 / x.mesh.shape[axis]),
        mend = b and ("%s it would take %.3g times less"):format(b.text, b.gain)
          or ("split an argument over it, the batch first: P({..., \"%s\"})"):format(axis)}
    end
  end
end

function rules.between_hosts(x, add)
  for _, b in ipairs(x.between_hosts) do
    local names, sizes = {}, {}
    for _, name in ipairs(x.mesh.axis_names) do
      if name ~= b.axis then
        names[#names + 1], sizes[#sizes + 1] = ('"%s"'):format(name), x.mesh.shape[name]
      end
    end
    names[#names + 1], sizes[#sizes + 1] = ('"%s"'):format(b.axis), x.mesh.shape[b.axis]
    add {cause = ("mesh axis %s goes from one host to another, and its %d devices would fit into one: %s are "
      .. "sent between hosts in place of %s"):format(b.axis, x.mesh.shape[b.axis], bytes_text(b.sent),
      bytes_text(b.sent_as_last)), where = mesh_line(x.mesh) or "the line that makes the mesh",
        gain = b.seconds,
      mend = ("put it last: make_mesh({%s}, {%s})"):format(table.concat(sizes, ", "),
        table.concat(names, ", "))}
  end
end

--- A collective that gets the same in every turn of its loop.
function rules.steady(x, add)
  local by_line, order = {}, {}
  for _, item in ipairs(x.account.items) do
    local loop = item.loops[#item.loops]
    if item.kind == "collective" and loop and item.steady == loop.step.loop and item.times > 1 then
      local key = item.op .. " " .. item.line
      local sum = by_line[key]
      if not sum then
        sum = {item = item, seconds = 0, sent = 0, once = 0}
        by_line[key], order[#order + 1] = sum, sum
      end
      local turns = loop.step.trips or 1
      sum.seconds = sum.seconds + item.sending * (1 - 1 / turns)
      sum.sent, sum.once = sum.sent + item.sent, sum.once + item.sent / turns
    end
  end
  for _, sum in ipairs(order) do
    local item = sum.item
    local reason = item.step.reasons[1]
    if sum.seconds >= WORTH * x.account.seconds then
      local origin = reason.origins[1]
      local name = origin and origin.index and facts.origin_text(origin) or account.alike(reason.tensor)
      add {cause = ("%s over %s of %s gives the same in each of %s"):format(item.op, axes_text(item.axes),
        name,
        loop_text(item.loops[#item.loops])), where = item.line, gain = sum.seconds,
        mend = ("constrain it before the loop, to how the loop needs it: %s are sent in place of %s"):format(
          bytes_text(sum.once), bytes_text(sum.sent))}
    end
  end
end

--- What is made whole on every device, of which every device then takes a part.
function rules.cut_again(x, add)
  local reads, writes = {}, {}
  for _, item in ipairs(x.account.items) do
    for _, v in ipairs(item.step.inputs) do
      reads[v.buffer] = reads[v.buffer] or {}
      table.insert(reads[v.buffer], {item = item, value = v})
    end
    for _, v in ipairs(item.step.outputs) do writes[v.buffer] = (writes[v.buffer] or 0) + 1 end
  end
  for _, item in ipairs(x.account.items) do
    for _, out in ipairs(item.kind == "collective" and not item.step.moves and item.step.outputs or {}) do
      local cut, whole
      for _, r in ipairs(writes[out.buffer] == 1 and reads[out.buffer] or {}) do
        local parts = false
        for _, axis in ipairs(item.axes) do parts = parts or has(r.value.parts or {}, axis) end
        if parts then cut = cut or r.item else whole = whole or r.item end
      end
      if cut and item.sending >= WORTH * x.account.seconds then
        local one = #item.step.outputs == 1 and account.alike(item.step.reasons[1].tensor)
        add {cause = ("%s over %s makes all of %s on every device, and at %s each takes a part of "
          .. "it%s"):format(
          item.op, axes_text(item.axes), one or ("%s[%s]"):format(out.dtype, table.concat(out.shape, ",")),
            cut.line,
          whole and (" (%s reads the whole)"):format(whole.line) or ""), where = item.line,
          gain = item.step.reduces and item.sending / 2 or item.sending,
          mend = item.step.reduces and "constrain it to the parts: a reduce_scatter sends half as much"
            or "keep it in parts from here on"}
      end
    end
  end
end

--- Parts of all bytes of one kind of state that lie split over each axis: kind -> {bytes, split (axis ->
--- bytes)}.
local function state_by_kind(x)
  local kinds = {}
  for i, p in ipairs(x.params) do
    if p.state and core.is_box(p.object) then
      local kind = core.box_meta(p.object).kind or "param"
      local sum = kinds[kind] or {bytes = 0, whole = 0, split = {}, first = i}
      kinds[kind] = sum
      sum.bytes = sum.bytes + p.bytes
      if p.part == p.bytes then sum.whole = sum.whole + p.bytes end
      for d = 1, p.sharding and #p.sharding.spec or 0 do
        local axes = p.sharding.spec[d]
        for _, axis in ipairs(type(axes) == "table" and axes or {axes}) do
          sum.split[axis] = (sum.split[axis] or 0) + p.bytes
        end
      end
    end
  end
  return kinds
end

--- The mesh axis that splits the most bytes of inputs that are no state.
local function data_axis(x)
  local bytes, best = {}, nil
  for _, p in ipairs(x.params) do
    for d = 1, not p.state and p.sharding and #p.sharding.spec or 0 do
      local axes = p.sharding.spec[d]
      for _, axis in ipairs(type(axes) == "table" and axes or {axes}) do
        bytes[axis] = (bytes[axis] or 0) + p.bytes
        if x.mesh.shape[axis] > 1 and (not best or bytes[axis] > bytes[best]) then best = axis end
      end
    end
  end
  return best
end

--- What is said of state that every device along the batch's axis holds, by kind.
local large_state = {
  opt_state = {"the optimizer state", 'a rule {opt = ml.shard_largest("%s")} splits it (ZeRO-1)', 1},
  param = {"the Params", 'ml.shard_largest("%s") as a rule splits them (FSDP)', 2},
    -- dearer to split: they are gathered
}

--- State that every device holds, although the Params are split, or although it is much.
function rules.replicated_state(x, add)
  if not x.mesh or x.mesh.size == 1 then return end
  local kinds = state_by_kind(x)
  local state, params = kinds.opt_state, kinds.param
  for _, axis in ipairs(state and params and x.mesh.axis_names or {}) do
    local split = (params.split[axis] or 0) >= params.bytes / 2
    if split and (state.split[axis] or 0) < state.bytes / 4 then
      add {cause = ("the Params are split over %s and their optimizer state is not: every device holds %s of "
        .. "it"):format(axis, bytes_text(state.bytes)), bytes = state.bytes * (1 - 1 / x.mesh.shape[axis]),
        where = line_of_input(x, state.first), gain = x.account.seconds * WORTH,
        mend = "drop the {opt = ...} rule or opt_axes that keeps it whole: state lies as its Param"}
      return
    end
  end
  local axis, limit = data_axis(x), x.memory.device > 0 and WORTH * x.memory.device or ROOM / 4
  for kind, words in pairs(axis and large_state or {}) do
    local held = kinds[kind] and kinds[kind].whole or 0
    local saved = axis and held * (1 - 1 / x.mesh.shape[axis]) or 0
    if saved >= limit * words[3] then
      add {cause = ("every device along %s holds all of %s, %s"):format(axis, words[1], bytes_text(held)),
        bytes = saved, where = line_of_input(x, kinds[kind].first),
          gain = x.account.seconds * WORTH * words[3],
        mend = words[2]:format(axis)}
    end
  end
end

--- Dims that their axes do not divide: padded, or left whole.
function rules.uneven(x, add)
  local a = x.account
  local named = {}
  for i, p in ipairs(x.params) do
    if p.sharding then
      local part = p.sharding:shard_shape(p.shape)
      local spec = p.sharding.spec
      for d = 1, #spec do
        local parts = 1
        for _, axis in ipairs(type(spec[d]) == "table" and spec[d] or {spec[d]}) do
          parts = parts * (x.mesh.shape[axis] or 1)
        end
        if part[d] * parts > p.shape[d] then
          named[#named + 1] = ("dim %d of %s, %d on %d places: use %d"):format(d,
            facts.unnamed(p.name, i) or p.name, p.shape[d], parts, part[d] * parts)
        end
      end
    end
    if p.refused and p.bytes * #p.refused > 0 then
      local parts = 1
      for _, axis in ipairs(p.refused) do parts = parts * x.mesh.shape[axis] end
      add {cause = ("%s is whole on every device: no dim of it that was to be split over %s divides by "
        .. "%d"):format(
        facts.unnamed(p.name, i) or p.name, axes_text(p.refused), parts),
        where = line_of_input(x, i), bytes = p.bytes * (1 - 1 / parts),
        gain = a.computing * WORTH, mend = ("make the dim a multiple of %d"):format(parts)}
    end
  end
  if a.flops > 0 and a.padded >= PADDED * a.flops then
    local worst
    for _, line in ipairs(a.lines) do
      if not worst or line.padded > worst.padded then worst = line end
    end
    add {cause = ("%s of the work is done on padding%s"):format(percent(a.padded / a.flops),
      #named > 0 and " (" .. lib.some(named, 2) .. ")" or ""), where = worst.line,
      gain = a.computing * a.padded / a.flops, mend = "a size that the mesh axis divides"}
  end
end

--- Products in a dtype that only some of their operands have: the others were widened for it.
function rules.widened(x, add)
  local def, float_bytes = {}, {float64 = 8, float32 = 4, bfloat16 = 2, float16 = 2, float8_e4m3fn = 1,
    float8_e5m2 = 1}
  for _, node in ipairs(x.nodes) do
    for i, v in ipairs(node.outputs) do def[v] = {node = node, dtype = node.dtypes[i]} end
  end
  local told = {}
  for _, node in ipairs(x.nodes) do
    local narrow, wide = nil, nil
    for _, v in ipairs(node.product and not told[node.where] and node.inputs or {}) do
      local d = def[v]
      local source = d and #d.node.inputs == 1 and def[d.node.inputs[1]]
      local from, to = source and float_bytes[source.dtype], d and float_bytes[d.dtype]
      if from and to and from < to then narrow = source.dtype elseif to then wide = d.dtype end
    end
    if narrow and wide and (float_bytes[wide] or 0) > float_bytes[narrow] then
      told[node.where] = true
      local seconds, line = 0, node.where:match "^(.-:%d+)" or node.where
      local gain = 1 - math.min(1, core.product_rate(wide) / core.product_rate(narrow))
      for _, item in ipairs(x.account.items) do
        local same = item.product and item.line == line and item.dtype == wide
        if same then seconds = seconds + item.computing * gain end
      end
      if seconds > LITTLE * x.account.seconds or x.account.seconds < SLOW then
        add {cause = ("one operand is %s and the other %s, so the product runs in %s"):format(narrow, wide,
          wide),
          where = line, gain = math.max(seconds, 1e-12),
          mend = ('convert the other, too: w:astype "%s", or the layer\'s dtype'):format(narrow)}
      end
    end
  end
end

--- What is computed a second time although there is room to keep it.
function rules.recomputed(x, add)
  local a = x.account
  if not x.retrace or a.recomputed == 0 or a.recomputed < 0.02 * a.flops then return end
  lib.keeps_all = true
  local ok, kept, peak = pcall(function()
    local program <close> = x.retrace()
    local plan = program:plan()
    return account.of(plan), plan:memory().peak
  end)
  lib.keeps_all = nil
  lib.unless_stopped(ok, kept)
  local room = x.memory.device > 0 and x.memory.device / 2 or ROOM
  if not ok or peak > room then return end
  local worst
  for _, line in ipairs(a.lines) do
    if not worst or line.recomputed > worst.recomputed then worst = line end
  end
  add {cause = ("%s of the work computes again what ml.remat does not keep, and there is room to keep it: %s "
    .. "on each device in place of %s"):format(percent(a.recomputed / a.flops), bytes_text(peak),
    bytes_text(x.memory.peak)), where = worst.line, gain = math.max(a.seconds - kept.seconds, 1e-12),
    mend = "leave ml.remat out, or take a policy that keeps products"}
end

--- A step that is traced again and again.
function rules.retraced(x, add)
  if core.type_name(x.step) ~= "jit" then return end
  local hits, misses = x.step:stats()
  if misses < 3 or misses <= hits then return end
  add {cause = ("the step was traced in %d of %d calls; the last time: %s"):format(misses, hits + misses,
    (x.step:why_miss():gsub("%s*\n%s*", "; "))), where = x.line, gain = ALWAYS,
    mend = "pass what changes as a tensor, or as a number that is not in `static`"}
end

--- Patterns in rules that match no Param.
function rules.patterns(x, add)
  if not x.rules then return end
  local paths = {}
  for i = 1, x.args and x.args.n or 0 do
    local arg = x.args[i]
    if type(arg) == "table" then
      local leaves, names = tree.leaves(arg)
      for k, leaf in ipairs(leaves) do
        if core.is_box(leaf) then paths[#paths + 1] = names[k] end
      end
    end
  end
  for i, rule in ipairs(#paths > 0 and x.rules or {}) do
    local own = type(rule) == "table" and (rule.opt or rule)
    if type(own) == "table" and type(own[1]) == "string" and core.is_spec(own[2]) then
      local found = false
      for _, path in ipairs(paths) do found = found or path:find(own[1]) ~= nil end
      if not found then
        add {cause = ('rule %d, {"%s", %s}, matches no Param: there is %s'):format(i, own[1],
          tostring(own[2]),
          lib.some(paths, 3)), where = x.line or "the rules", gain = ALWAYS,
          mend = "a Lua pattern of a path that is there"}
      end
    end
  end
end

--- Params that are written elsewhere than where they lie.
function rules.not_in_place(x, add)
  local names, bytes, first, why, state, own = {}, 0, nil, nil, 0, {}
  for _, b in ipairs(x.buffers) do -- results that take memory of their own
    for _, result in ipairs(b.kind == "result" and not b.takes and b.results or {}) do own[result] = b end
  end
  for i, p in ipairs(x.params) do
    state = state + (p.state and p.part or 0)
    local b = p.result and own[p.result]
    if b then
      names[#names + 1], bytes = account.alike(p.name), bytes + b.bytes
      first = first or i
      why = why or (not p.donated and "the step may not write over it (donate = false)"
        or b.bytes ~= p.part and "it comes out in another dtype or layout"
          or "its old value is still needed then")
    end
  end
  if not first or bytes < WORTH * state then return end
  add {cause = ("%s %s not updated in place, which takes %s more: %s"):format(
    lib.some(facts.distinct(names), 3), #names == 1 and "is" or "are", bytes_text(bytes), why),
      where = line_of_input(x, first), bytes = bytes,
    gain = 1e-12, mend = "read the old value before the update, and write what has its dtype and layout"}
end

--- Large tensors that the function finds in upvalues.
function rules.captured(x, add)
  for i, p in ipairs(x.params) do
    if p.name == "" and p.bytes >= LARGE and x.mesh and x.mesh.size > 1 and p.part == p.bytes then
      add {cause = ("a tensor of %s is met inside the function, whole on every device"):format(
        bytes_text(p.bytes)), where = line_of_input(x, i), bytes = p.bytes, gain = 1e-12,
        mend = "pass it as an argument, placed on the mesh"}
    end
  end
end

--- The dearest collective that an input has asked for.
local function asked_by(x, index)
  local dearest
  for _, item in ipairs(x.account.items) do
    for _, reason in ipairs(item.kind == "collective" and item.step.reasons or {}) do
      for _, o in ipairs(reason.origins) do
        if o.index == index and (not dearest or item.sending > dearest.sending) then dearest = item end
      end
    end
  end
  return dearest
end

function rules.better(x, add)
  local b, a = x.better, x.account
  if not b or x.told.better then return end
  local item = b.index and b.gain >= BETTER and a.seconds >= SHORT and asked_by(x, b.index)
  if item then
    add {cause = ("%s over %s takes %s of the time, because %s lies as it does"):format(item.op,
      axes_text(item.axes), percent(item.sending / a.seconds), b.argument), where = item.line,
      gain = a.seconds - b.seconds, mend = ("%s it would take %.3g times less"):format(b.text, b.gain)}
  elseif b.gain >= FASTER and a.seconds >= SLOW and a.share >= 0.5 then
    add {cause = ("over-sharded: %s of the time is communication"):format(percent(a.share)),
      where = a.lines[1].line, gain = a.seconds - b.seconds,
      mend = ("%s it would take %.3g times less"):format(b.text, b.gain)}
  end
end

--- What an op needs whole along a dim that is split.
function rules.needed_whole(x, add)
  for _, item in ipairs(x.account.items) do
    local reason = item.kind == "collective" and item.step.reasons[1]
    if reason and reason.text:find "is needed whole" and item.sending >= WORTH * x.account.seconds then
      local o = reason.origins[1]
      add {cause = ("%s, so %s over %s makes all of it on every device"):format(account.alike(reason.text),
        item.op,
        axes_text(item.axes)), where = item.line, gain = item.sending,
        mend = ("split another dim there%s"):format(o and "; it is split by " .. facts.origin_text(o) or "")}
    end
  end
end

--- What is moved to another layout, and back, with no product between.
function rules.back_and_forth(x, add)
  local writer, from = {}, {}
  for _, item in ipairs(x.account.items) do
    local first = item.step.inputs[1]
    from[item] = first and writer[first.buffer]
    local source = item.kind == "collective" and item.step.moves and from[item]
    while source and source.kind == "kernel" and not source.product do source = from[source] end
    if source and source.step.moves and axes_text(source.axes) == axes_text(item.axes)
      and table.concat(source.step.inputs[1].shape, ",") == table.concat(item.step.outputs[1].shape, ",")
      and item.sending + source.sending >= WORTH * x.account.seconds then
      add {cause = ("%s over %s moves back what %s moved at %s, and no product stands "
        .. "between"):format(item.op,
        axes_text(item.axes), source.op, source.line), where = item.line,
          gain = item.sending + source.sending,
        mend = "leave out the constraints, or both that ask for the layout between"}
    end
    for _, v in ipairs(item.step.outputs) do writer[v.buffer] = item end
  end
end

--- Arguments that are moved to another layout at every call.
function rules.moved_input(x, add)
  local input = {}
  for b, buffer in ipairs(x.buffers) do
    local p = buffer.kind == "argument" and x.params[buffer.index]
    if p then input[b] = facts.unnamed(p.name, buffer.index) or p.name end
  end
  for _, item in ipairs(x.account.items) do
    local name = item.kind == "collective" and item.step.moves and input[item.step.inputs[1].buffer]
    local written = item.step.reasons and item.step.reasons[1].text:find "as written"
    if name and not written and item.sending >= WORTH * x.account.seconds then
      add {cause = ("%s over %s moves %s to another layout at every call: %s"):format(item.op,
        axes_text(item.axes),
        name, account.alike(item.step.reasons[1].text)), where = item.line, gain = item.sending,
        mend = "place it as it is used"}
    end
  end
end

--- What a constraint makes whole, and several devices then work on alike.
function rules.made_whole(x, add)
  local reads = {}
  for _, item in ipairs(x.account.items) do
    for _, v in ipairs(item.kind == "kernel" and item.step.inputs or {}) do
      if item.unique < 0.995 then
        reads[v.buffer] = reads[v.buffer] or {}
        table.insert(reads[v.buffer], item)
      end
    end
  end
  for _, item in ipairs(x.account.items) do
    local gather = item.kind == "collective" and not item.step.moves and not item.step.reduces
    local readers = gather and item.step.reasons[1].text:find "^asked for here"
      and reads[item.step.outputs[1].buffer]
    if readers then
      local gain = item.sending
      for _, r in ipairs(readers) do gain = gain + r.computing * (1 - r.unique) end
      if gain >= WORTH * x.account.seconds then
        add {cause = ("the constraint makes all of %s on every device along %s, which then do the "
          .. "same at %s"):format(
          account.alike(item.step.reasons[1].tensor), axes_text(item.axes), readers[1].line),
            where = item.line,
          gain = gain,
            mend = ("leave %s in the constraint, or the constraint out"):format(axes_text(item.axes))}
      end
    end
  end
end

-- ---- all of them --------------------------------------------------------------------------------------

-- Of equal gain the first stands first; and what a rule has told, those behind it need not tell.
local ORDER = {"misfit", "equal_sums", "repeated", "unused_axes", "between_hosts", "steady", "cut_again",
  "needed_whole", "back_and_forth", "moved_input", "made_whole", "replicated_state", "uneven", "widened",
  "recomputed", "retraced", "patterns", "not_in_place", "captured", "better"}

--- The findings of an explanation, worst first: {rule, cause, where?, mend?, gain (seconds of the step; huge:
--- its results or the step itself), share (of the step's time), bytes?}.
---@param x table what rules look at: account, plan, buffers, memory, params, nodes, mesh?, better?, retrace?,
---step,
--- args
---@return table[]
function M.of(x)
  local list, by_text = {}, {}
  x.told = {}
  for _, name in ipairs(ORDER) do
    rules[name](x, function(f)
      local same = f.cause .. "\0" .. (f.where or "")
      if by_text[same] then
        by_text[same].gain = by_text[same].gain + f.gain
        return
      end
      by_text[same], f.rule = f, name
      f.order = #list
      list[#list + 1] = f
    end)
  end
  for _, f in ipairs(list) do
    f.share = f.gain < ALWAYS and x.account.seconds > 0 and f.gain / x.account.seconds or nil
  end
  table.sort(list, function(a, b)
    if a.gain ~= b.gain then return a.gain > b.gain end
    return a.order < b.order
  end)
  return list
end

return M
