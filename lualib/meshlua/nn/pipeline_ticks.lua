-- pipeline_ticks.lua: the loops of a pipeline: what the stage at one place does in each tick. Every device runs the
-- same program; which microbatch a place works on follows from the tick and the place alone, so that what it does in
-- a slot without one is known beforehand: nothing.
--
-- p places, m microbatches: microbatch i goes forward on stage s in tick i + s, and back in tick
-- turn + i + p - 1 - s. gpipe (Huang et al. 2019): turn = m + p - 1, all go forward first. 1f1b (Narayanan et al. 2021,
-- here without a program for each stage): turn = p - 1. Ticks 0 .. p - 2 have forward slots, the next m both, the last
-- p - 1 backward slots. Between the two a stage holds what came to it: m microbatches, or at most 2(p - 1 - s) + 1, in
-- a ring of min(2p - 1, m); backward it runs the stage again.
--
-- A job (see pipeline.lua) has the user's functions and what they read.
local collectives = require "meshlua.sharding.collectives"
local control = require "meshlua.transform.control"
local core = require "meshlua.core"
local lib = require "meshlua.lib"
local ops = require "meshlua.ops"
local trace = require "meshlua.transform.trace"

local M = {}

-- ---- places ---------------------------------------------------------------------------------------------

--- The places along a mesh axis, of which this is one; p is 1 where there is no axis.
local Place = {}
Place.__index = Place

---@param axis string
---@param p integer
function M.place(axis, p) return setmetatable({axis = axis, p = p}, Place) end

--- Which of them this is, from 0.
function Place:index() return self.p == 1 and 0 or collectives.axis_index(self.axis) end

-- What a place does in a tick is asked of one sum of the two that lies within bounds: then it is known before the
-- program runs, and who has nothing to do skips it.
local FAR <const> = 1 << 20 -- more than all ticks: what is so far from a number of a tick is out of bounds

local function within(i, m) return i:ge(0):bitand(i:lt(m)) end

--- Is this the first place and the place, the number of a microbatch? One place always works.
function Place:works(i, m) return self.p == 1 or within(i, m) end

--- Is this the first place, and i, of the tick alone, the number of a microbatch?
function Place:works_first(i, m) return self.p == 1 or within(i - self:index() * FAR, m) end

--- The same of the last place.
function Place:works_last(i, m) return self.p == 1 or within(i + (self.p - 1 - self:index()) * FAR, m) end

--- fn(...) where i is the number of a microbatch, but on the last place; else, as elsewhere, skip(...). `ends`: the
--- last place may have one, too.
function Place:but_last(i, m, ends, fn, skip, ...)
  return control.cond(within(i, m), function(...)
    if not ends then return fn(...) end
    return control.cond(self:index():lt(self.p - 1), fn, skip, ...)
  end, skip, ...)
end

--- The tree x from the place before (step 1), or behind (step -1).
function Place:from(step, x)
  if self.p == 1 then return x end
  local pairs_of = {}
  for s = 0, self.p - 2 do pairs_of[s + 1] = step == 1 and {s, s + 1} or {s + 1, s} end
  return collectives.ppermute(x, self.axis, pairs_of)
end

--- The list of tensors, of each place its own and of zeros: -0 times a positive number, which is made where it is kept,
--- and not copied there.
function Place:emptied(list)
  if self.p == 1 then return list end
  local out = {}
  for i, x in ipairs(list) do
    local nothing = M.nothing_like(x)
    out[i] = lib.floats[x.dtype] and nothing * (self:index() + 1):astype(x.dtype) or nothing
  end
  return self:varying(out)
end

--- A tree that may differ between the places.
function Place:varying(x)
  if self.p == 1 then return x end
  local list, here = {}, {}
  for i, entry in ipairs(trace.leaves("nn.pipeline", x, "x")) do list[i] = entry.leaf end
  for i = 1, #list do here[i] = self:index() end
  return trace.refill("nn.pipeline", x, (core.vary_like(list, here)))
end

--- The sum over the places of a tree.
function Place:sum(x) return self.p == 1 and x or collectives.psum(x, self.axis) end

local function keep(x) return x end

-- ---- trees, sums ----------------------------------------------------------------------------------------

--- The tensors of a tree, and the numbers of those that are floats.
local function split(x)
  local list, floats = {}, {}
  for i, entry in ipairs(trace.leaves("nn.pipeline", x, "x")) do
    list[i] = entry.leaf
    if lib.floats[entry.leaf.dtype] then floats[#floats + 1] = i end
  end
  return list, floats
end

--- The floats of a tree, as a list.
local function floats_of(x)
  local list, floats = split(x)
  for k, i in ipairs(floats) do floats[k] = list[i] end
  return floats
end

--- A tree like x whose floats are variables; and the list of these.
local function variables(x)
  local list, floats = split(x)
  local of = {}
  for k, i in ipairs(floats) do
    list[i] = core.variable(list[i])
    of[k] = list[i]
  end
  return trace.refill("nn.pipeline", x, list), of
end

--- What a sum of tensors like x begins with: -0, which changes no bit of what is added. x may be of a region that has
--- ended.
function M.nothing_like(x)
  local value = x.dtype == "bool" and false or lib.floats[x.dtype] and -0.0 or 0
  return core.op.full {dtype = x.dtype, dims = x.shape, value = value}
end

--- What the sums of a list begin with.
local function starts(list)
  local sums = {}
  for i, x in ipairs(list) do sums[i] = M.nothing_like(x) end
  return sums
end

--- more[from + i] + sums[i], the order of ml.accumulate.
local function added(sums, more, from)
  local out = {}
  for i, sum in ipairs(sums) do out[i] = more[(from or 0) + i] + sum end
  return out
end

--- Lists, one behind the other.
local function joined(...)
  local all = {}
  for _, list in ipairs {...} do table.move(list, 1, #list, #all + 1, all) end
  return all
end

--- The tree with each tensor added to that of another.
local function added_tree(sum, more)
  local a, b = split(sum), split(more)
  return trace.refill("nn.pipeline", sum, added(a, b))
end

-- ---- the user's functions -------------------------------------------------------------------------------

--- fn's results while the boxes hold other values.
local function holding(boxes, values, fn)
  local swapped <close> = trace.swapped(boxes)
  for _, value in ipairs(values) do swapped:put(value) end
  return table.unpack {fn()}
end

--- Slice i (from 0) along dim 1 of each stack.
local function slices_at(stacks, i)
  local slices = {}
  for k, stack in ipairs(stacks) do
    local shape, start = stack.shape, {i}
    for d = 2, #shape do start[d] = 0 end
    shape[1] = 1
    slices[k] = ops.dynamic_slice(stack, start, shape):reshape(table.move(shape, 2, #shape, 1, {}))
  end
  return slices
end

--- Microbatch i of the job's stacks [m, ...], as a tree like the batch.
local function part_at(job, i) return job.part_of(slices_at(job.stacks, i)) end

local function call_first(job, shared, part, i)
  return holding(job.boxes.first, shared, function() return job.stages:enter(job.first(part, i)) end)
end

local function call_stage(job, own, shared, hop, i)
  return holding(job.boxes.stage, shared, function()
    return job.stages:call(job.place, own, hop, job.keys and job.keys(i))
  end)
end

local function call_last(job, shared, hop, part, i)
  return holding(job.boxes.last, shared, function()
    local loss, aux = job.last(job.stages:leave(hop), part, i)
    local list = split(aux)
    for k, x in ipairs(list) do list[k] = core.op.stop_gradient(x) end
    return loss, trace.refill("nn.pipeline", aux, list)
  end)
end

-- ---- the loss is outside ------------------------------------------------------------------------------

--- A stack with `n` slices more behind, which nobody reads.
local function longer(stack, n)
  local one, shape = ops.slice(stack, {1, 1}), stack.shape
  shape[1] = n
  return n == 0 and stack or ops.concat({stack, ops.broadcast(one, shape)}, 1)
end

--- All microbatches forward through all stages; the gradient is the loop's. Gives the tree of what the last stage
--- gives, stacked, on every place.
function M.through(job)
  local place, p, m = job.place, job.place.p, job.m
  local xs = {tick = ops.arange(m + p - 1), given = {}}
  for k, stack in ipairs(job.stacks) do xs.given[k] = longer(stack, p - 1) end
  local _, ys = control.scan(function(hop, x)
    local i = x.tick - place:index()
    hop = control.cond(place:works_first(x.tick, m), function()
      return call_first(job, job.shared.first, job.part_of(x.given), x.tick)
    end, keep, hop)
    hop = control.cond(place:works(i, m), function(h)
      return call_stage(job, job.own, job.shared.stage, h, i)
    end, keep, hop)
    return place:from(1, hop), job.stages:leave(hop)
  end, place:varying(job.nothing.hop), xs)
  local list = split(ys)
  for k, y in ipairs(list) do
    y = ops.slice(y, {p, m + p - 1})
    list[k] = p == 1 and y or ops.where(place:index():eq(p - 1), y, ops.zeros_like(y))
  end
  return place:sum(trace.refill("nn.pipeline", ys, list))
end

-- ---- loss and gradients -------------------------------------------------------------------------------------

--- The ring of `size` microbatches, with the tree x at microbatch i's place.
local function put(ring, x, i, size)
  local out = {}
  for k, leaf in ipairs((split(x))) do
    local start = {i % size}
    for d = 1, leaf.ndim do start[d + 1] = 0 end
    out[k] = ops.dynamic_update_slice(ring[k], ops.expand_dims(leaf, 1), start)
  end
  return out
end

--- A tree like x of what the ring has for microbatch i.
local function taken(ring, x, i, size)
  return trace.refill("nn.pipeline", x, slices_at(ring, i % size))
end

--- A slot forward: what comes to a stage goes into the ring, and through the stage; not through the last one, which
--- runs when it goes back. `ends`: the last one has a microbatch, too.
local function forward(job, c, tick, ends)
  local place, p, m = job.place, job.place.p, job.m
  local i = tick - place:index()
  local x = control.cond(place:works_first(tick, m), function()
    return call_first(job, job.shared.first, part_at(job, i), i)
  end, keep, c.hop)
  local done = control.cond(place:works(i, m), function(ring, hop)
    local function run(h) return call_stage(job, job.own, job.shared.stage, h, i) end
    local y = p == 1 and hop or ends and control.cond(place:index():lt(p - 1), run, keep, hop) or run(hop)
    return {ring = put(ring, hop, i, job.ring), hop = y}
  end, function(ring, hop) return {ring = ring, hop = hop} end, c.ring, x)
  c.ring, c.hop = done.ring, place:from(1, done.hop)
end

--- The gradients of what a stage gives: of its own, of what all stages read, of the last function's (where that is
--- asked), of what came to it; and what the last function gave.
local function pulled(job, x, i, back)
  local own, of_own = variables(job.own)
  local stage, of_stage = variables(job.shared.stage)
  local given, of_given = variables(x)
  local y = call_stage(job, own, stage, given, i)
  if back then
    return core.gradient(floats_of(y), back, joined(of_own, of_stage, of_given)), #of_own, #of_stage, 0
  end
  local last, of_last = variables(job.shared.last)
  local loss, aux = call_last(job, last, y, part_at(job, i), i)
  local one = core.op.full {dtype = loss.dtype, dims = {}, value = 1.0}
  local gradients = core.gradient({loss}, {one}, joined(of_own, of_stage, of_last, of_given))
  return gradients, #of_own, #of_stage, #of_last, loss, aux
end

local function behind(list, n) return table.move(list, n + 1, #list, 1, {}) end

--- A slot backward, of microbatch j: of all stages but the last the gradient of what they gave, and of the last one
--- that of the loss. `ends`: the last one has a microbatch, too.
local function backward(job, c, tick, ends)
  local place, p, m = job.place, job.place.p, job.m
  local last_j = tick - job.turn
  local j = (last_j - (p - 1)) + place:index()
  local back = c.back
  if p > 1 then
    local done = place:but_last(j, m, ends, function(s, ring, ct)
      local d, no, ns = pulled(job, taken(ring, job.nothing.hop, j, job.ring), j, ct)
      return {own = added(s.own, d), stage = added(s.stage, d, no), back = behind(d, no + ns)}
    end, function(s, _, ct) return {own = s.own, stage = s.stage, back = ct} end,
      {own = c.own, stage = c.stage}, c.ring, back)
    c.own, c.stage, back = done.own, done.stage, done.back
  end
  if ends then
    local sums = {own = c.own, stage = c.stage, last = c.last, out = c.out}
    local done = control.cond(place:works_last(last_j, m), function(s, ring)
      local d, no, ns, nl, loss, aux = pulled(job, taken(ring, job.nothing.hop, j, job.ring), j)
      return {own = added(s.own, d), stage = added(s.stage, d, no), last = added(s.last, d, no + ns),
        out = added_tree(s.out, {loss = loss, aux = aux}), back = behind(d, no + ns + nl)}
    end, function(s, _, ct)
      return {own = s.own, stage = s.stage, last = s.last, out = s.out, back = ct}
    end, sums, c.ring, back)
    c.own, c.stage, c.last, c.out, back = done.own, done.stage, done.last, done.out, done.back
  end
  if #c.first > 0 then
    c.first = control.cond(place:works_first(last_j - (p - 1), m), function(sums, ct)
      local shared, of = variables(job.shared.first)
      local y = call_first(job, shared, part_at(job, j), j)
      return added(sums, core.gradient(floats_of(y), ct, of))
    end, function(sums) return sums end, c.first, back)
  end
  c.back = place:from(-1, back)
end

--- Loss and gradients: sums over microbatches, first to last. Returns {loss, aux}, equal on all places; the list of
--- the gradients of the floats of `own`, each place its own; and those of what `first`, all stages, and `last` read,
--- which are to be summed over the places.
function M.forward_and_backward(job)
  local place, p, m = job.place, job.place.p, job.m
  local hop = job.nothing.hop
  local c = {hop = hop, back = starts(floats_of(hop)), out = job.nothing.out,
    own = starts(floats_of(job.own)), ring = {}}
  for _, name in ipairs {"first", "stage", "last"} do c[name] = starts(floats_of(job.shared[name])) end
  for k, leaf in ipairs((split(hop))) do
    c.ring[k] = ops.zeros({job.ring, table.unpack(leaf.shape)}, leaf.dtype)
  end
  c.ring = place:emptied(c.ring)
  c = place:varying(c)
  local function run(from, to, goes_forward, goes_back, ends)
    if from >= to then return end
    c = control.scan(function(carry, tick)
      if goes_forward then forward(job, carry, tick, ends) end
      if goes_back then backward(job, carry, tick, ends) end
      return carry
    end, c, ops.arange(from, to))
  end
  local sent = m + p - 1 -- ticks in which microbatches go forward
  local both = job.turn < sent
  run(0, job.turn, true, false, not both)
  run(job.turn, sent, true, true, true)
  run(sent, job.turn + sent, false, true, not both)
  return place:sum(c.out), c.own, {first = c.first, stage = c.stage, last = c.last}
end

return M
