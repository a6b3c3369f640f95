-- effects.lua: Lua that is called with values of a traced program when it has run. What is noted in the body of a
-- loop or branch leaves it with the loop's results, and is called for each iteration that has been.
local core = require "meshlua.core"
local lib = require "meshlua.lib"
local ops = require "meshlua.ops"

local M = {}

--- So many iterations of a while_loop are kept for effects: nobody knows beforehand how many there will be.
M.MOST = 64

--- Inside shard_map: the blocks of all devices along a new first dim.
local function blocks_of(x, mesh, axes)
  return core.manual_exit(ops.expand_dims(x, 1), mesh, core.P(axes), axes)
end

--- The names and indices of manual axes, for each block in order: "data=0, model=1".
local function labels_of(mesh, axes)
  local labels = {""}
  for i, name in ipairs(axes) do
    local longer = {}
    for _, label in ipairs(labels) do
      for k = 0, mesh.shape[name] - 1 do
        longer[#longer + 1] = label .. (i > 1 and ", " or "") .. name .. "=" .. k
      end
    end
    labels = longer
  end
  return labels
end

local function copy(args) return table.move(args, 1, args.n, 1, {n = args.n}) end

--- Notes a call of run(args, label) for when the values are there: now, or after each run of the program that is
--- traced. Inside shard_map it is called once for each device, with its blocks and a label.
function M.note(run, args)
  if not core.is_tracing() then return run(args) end
  local mesh, axes = core.manual()
  local manual = mesh and axes and #axes > 0
  local is_tensor = {}
  for i = 1, args.n do
    if lib.is_tensor(args[i]) then
      is_tensor[i] = true
      args[i] = manual and blocks_of(args[i], mesh, axes) or core.variable(args[i])
    end
  end
  local call = run
  if manual then
    local labels = labels_of(mesh, axes)
    call = function(all)
      for k, label in ipairs(labels) do
        local one = copy(all)
        for i in pairs(is_tensor) do one[i] = ops.at(all[i], k) end
        run(one, label)
      end
    end
  end
  local list = core.effects()
  list[#list + 1] = {run = call, args = args}
end

--- How many are noted.
function M.count() return #core.effects() end

--- Takes back what was noted behind number `before`: {calls, tensors}, all tensors in one list.
function M.take(before)
  local list, taken = core.effects(), {calls = {}, tensors = {}}
  for i = before + 1, #list do
    local call = {run = list[i].run, args = list[i].args, at = {}}
    for k = 1, call.args.n do
      if core.is_tensor(call.args[k]) then
        taken.tensors[#taken.tensors + 1] = call.args[k]
        call.at[k] = #taken.tensors
      end
    end
    taken.calls[#taken.calls + 1] = call
  end
  core.effects(before)
  return taken
end

--- Notes that each(all, play) is to be called with `tensors` when they are there; play(calls, value) makes calls
--- that were taken, whose tensor number `at` is then value(at).
local function note_all(tensors, each)
  local list = core.effects()
  list[#list + 1] = {args = table.move(tensors, 1, #tensors, 1, {n = #tensors}), run = function(all)
    each(all, function(calls, value)
      for _, call in ipairs(calls) do
        local args = copy(call.args)
        for k, at in pairs(call.at) do args[k] = value(at) end
        call.run(args)
      end
    end)
  end}
end

--- After a loop of `length` iterations: `stacks` have what was seen in each along dim 1.
function M.after_loop(taken, stacks, length, reverse)
  if #taken.calls == 0 then return end
  note_all(stacks, function(all, play)
    for i = 1, length do
      local k = reverse and length + 1 - i or i
      play(taken.calls, function(at) return ops.at(all[at], k) end)
    end
  end)
end

--- After a while_loop: the stacks have the first MOST iterations; behind them is how many there were.
function M.after_while(taken, stacks)
  note_all(stacks, function(all, play)
    local n = all[all.n]:item()
    for k = 1, math.min(n, M.MOST) do
      play(taken.calls, function(at) return ops.at(all[at], k) end)
    end
    if n > M.MOST then
      print(("(while_loop: %s not shown)"):format(lib.count(n - M.MOST, "more iteration")))
    end
  end)
end

--- After a branch: of[k] is what was taken in the k-th, whose tensors come one after another; behind them all is the
--- index, from 0.
function M.after_branch(of, tensors)
  note_all(tensors, function(all, play)
    local k, before = math.max(1, math.min(all[all.n]:item() + 1, #of)), 0
    for i = 1, k - 1 do before = before + #of[i].tensors end
    play(of[k].calls, function(at) return all[before + at] end)
  end)
end

--- What stands for a tensor that was not seen.
function M.nothing_like(x)
  if lib.floats[x.dtype] then return core.sum_start(x) end
  return core.op.full {dtype = x.dtype, dims = x.shape, value = x.dtype == "bool" and false or 0}
end

return M
