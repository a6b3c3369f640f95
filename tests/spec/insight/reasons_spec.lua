-- devices: 8
-- reasons_spec.lua: every collective of a plan knows its line, tensor, bytes, mesh axes and reason, in random
-- programs and their gradients; its bytes are those that the executor counts; and what a reason names is what
-- the collective comes from: planned again without, it is gone, or another.
local helper = require "spec.helper"
local ml = require "meshlua"
local programs = require "fuzz.programs"
local core, P, NamedSharding = ml.core, ml.P, ml.NamedSharding

local PROGRAMS = helper.watched and 150 or 500

--- The jitted program and its arguments, without what `removed` names: "argument x1", "constraint 2".
local function build(program, removed, gradients)
  local chunk = assert(load(program.source, "=program" .. program.seed))
  local fn = chunk(ml, function(x, i)
    if removed["constraint " .. i] then return x end
    local constrain = load("local x, sharding = ...; return x:constrain(sharding)", "=constraint" .. i)
    return (constrain(x, NamedSharding(program.mesh, program.constraints[i]))) -- each in a line of its own
  end)
  local args, leaves = {}, {}
  for i, input in ipairs(program.inputs) do
    local spec = removed["argument " .. input.name] and P() or input.spec
    args[i] = ml.device_put(input.data, NamedSharding(program.mesh, spec))
    if input.dtype:match "float" then leaves[#leaves + 1] = i end
  end
  if gradients then fn = ml.grad(programs.loss_of(fn), {argnums = leaves}) end
  return ml.jit(fn), args
end

--- What an origin names, as `removed` has it; nil for an op.
local function cause_of(o)
  if o.kind == "argument" then return "argument x" .. o.index end
  local i = o.kind == "constraint" and o.where:match "^constraint(%d+):"
  return i and "constraint " .. i
end

--- All that tells one collective from another, but its reason.
local function identity(c)
  local shapes = {}
  for i, v in ipairs(c.inputs) do shapes[i] = v.dtype .. "[" .. table.concat(v.shape, ",") .. "]" end
  return table.concat({c.op, table.concat(c.axes, ","), table.concat(shapes, " "),
    table.concat(c.where, " ")}, " | ")
end

local function check_told(c)
  assert(c.bytes > 0 or c.inputs[1].bytes == 0)
  assert(#c.axes > 0, "no axes")
  assert(c.where[1] and c.where[1]:find "^[%w_/.]+:%d+", "no line: " .. tostring(c.where[1]))
  assert(#c.reasons > 0, "no reason")
  for _, r in ipairs(c.reasons) do
    assert(r.tensor:find "^[%w_]+ %w+%[[^]]*%]", r.tensor)
    assert(#r.text > 0 and r.where, r.text)
    assert(#r.origins > 0, "nobody is named: " .. r.text)
  end
end

local function nothing_new(c, removed, target)
  local lines = {"the reasons name nothing that is still there of: " .. c.why, target, "without:"}
  for cause in pairs(removed) do lines[#lines + 1] = "  " .. cause end
  for _, r in ipairs(c.reasons) do
    for _, o in ipairs(r.origins) do
      lines[#lines + 1] = ("  named: %s %s %s %s %s"):format(o.kind, o.name, o.axis, o.where,
        tostring(cause_of(o)))
    end
  end
  return table.concat(lines, "\n")
end

--- Takes away what the collective's reasons name until it is gone. Fails where they name nothing that is
--- still there. Returns how often that took, and what was named first.
local function check_cause(program, c, gradients)
  local removed, rounds, target, now = {}, 0, identity(c), c
  repeat
    local new = false
    for _, r in ipairs(now.reasons) do
      for _, o in ipairs(r.origins) do
        local cause = cause_of(o)
        if cause and not removed[cause] then removed[cause], new = true, true end
      end
    end
    if not new then error(nothing_new(now, removed, target)) end
    rounds = rounds + 1
    local step, args = build(program, removed, gradients)
    now = nil
    for _, other in ipairs(step:plan(table.unpack(args)):collectives()) do
      if identity(other) == target then now = other end
    end
  until not now
  return rounds
end

describe("in random programs", function()
  local collectives, at_once = 0, 0
  for first = 1, PROGRAMS, 50 do
    it(("each collective knows where it comes from: seeds %d to %d"):format(first, first + 49), function()
      for seed = first, first + 49 do
        local program, gradients = programs.make(seed), seed % 2 == 0
        local has_float = false
        for _, input in ipairs(program.inputs) do has_float = has_float or input.dtype:match "float" end
        local step, args = build(program, {}, gradients and has_float)
        local ok, bad = pcall(function()
          for _, c in ipairs(step:plan(table.unpack(args)):collectives()) do
            check_told(c)
            local rounds = check_cause(program, c, gradients and has_float)
            collectives = collectives + 1
            at_once = at_once + (rounds == 1 and 1 or 0)
          end
        end)
        if not ok then error(programs.describe(program) .. "\n-- " .. tostring(bad), 0) end
      end
    end)
  end

  helper.figures("most are gone at once without what their reasons name", function()
    assert(collectives > 0.6 * PROGRAMS, collectives)
    assert(at_once > 0.95 * collectives, at_once .. " of " .. collectives)
  end)

  it("the bytes of a plan's collectives are those that the executor counts", function()
    local sent = 0
    for seed = 1, 100 do
      local step, args = build(programs.make(seed), {})
      local wanted = {all_gather = 0, all_reduce = 0, reduce_scatter = 0, all_to_all = 0, permute = 0}
      for _, c in ipairs(step:plan(table.unpack(args)):collectives()) do
        wanted[c.op] = wanted[c.op] + c.sent
        sent = sent + c.sent
      end
      local before = core.counters().sent
      step(table.unpack(args))
      local after = core.counters().sent
      for op, bytes in pairs(wanted) do
        assert(math.abs(bytes - (after[op] - before[op])) < 1e-6, op) -- a ring sends thirds
      end
    end
    assert(sent > 0)
  end)
end)
