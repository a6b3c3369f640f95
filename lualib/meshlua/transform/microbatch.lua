-- microbatch.lua: a step's batch in parts, one after the other: less is held at a time, and the result is the same.
local control = require "meshlua.transform.control"
local core = require "meshlua.core"
local lib = require "meshlua.lib"
local tree = require "meshlua.tree"

local raise = lib.raise

local M = {}

--- The whole numbers that divide `rows`, for a message.
local function divisors_text(rows)
  local list, large = {}, {}
  for n = 1, math.floor(math.sqrt(rows)) do
    if rows % n == 0 then
      list[#list + 1] = tostring(n)
      if n * n ~= rows then table.insert(large, 1, tostring(rows // n)) end
    end
  end
  table.move(large, 1, #large, #list + 1, list)
  if #list > 8 then list = {list[1], list[2], list[3], list[4], "...", list[#list - 1], list[#list]} end
  return table.concat(list, ", ")
end

--- Raises unless `n` parts of the same size make `rows`.
---@param who string
---@param what string the tensor, for messages
---@param rows integer
---@param n integer
function M.check(who, what, rows, n)
  if lib.check_integer(who, "how many microbatches", n) < 1 then
    raise("E_VALUE", "%s: %d microbatches; there is at least one", who, n)
  end
  if rows % n == 0 then return end
  raise("E_SHAPE", "%s: %s has %s, which %d microbatches do not divide; take %d or %d rows, or %s "
    .. "microbatches", who, what, lib.count(rows, "row"), n, rows // n * n, (rows // n + 1) * n,
    divisors_text(rows))
end

--- Raises unless the batch holds tensors, each with rows that n divides; returns them.
local function check_batch(who, batch, n)
  lib.check_integer(who, "how many microbatches", n)
  local leaves, paths = tree.leaves(batch)
  for i, x in ipairs(leaves) do
    local what = paths[i] == "" and "the batch" or paths[i]
    if x.ndim == 0 then raise("E_SHAPE", "%s: %s is a scalar and has no rows", who, what) end
    M.check(who, what, x.shape[1], n)
  end
  if #leaves == 0 then raise("E_VALUE", "%s: the batch holds no tensor", who) end
  return leaves
end

--- x with a dim of n behind the first: [rows / n, n, ...].
local function grouped(x, n)
  local shape = x.shape
  return x:reshape(table.move(shape, 2, #shape, 3, {shape[1] // n, n}))
end

--- The batch in n parts of the same size: a list of trees like it. Part i has the rows i, i + n, i + 2n, ... of each
--- tensor, so that each device keeps its own rows where the batch is split over devices. E_SHAPE where n does not
--- divide the rows of a tensor.
---@param batch any a tensor, or a tree of tensors of which dim 1 counts rows
---@param n integer
---@return any[]
function M.microbatches(batch, n)
  check_batch("microbatches", batch, n)
  local parts = {}
  for i = 1, n do
    parts[i] = tree.map(function(x)
      local shape = x.shape
      shape[1] = shape[1] // n
      return grouped(x, n):slice({1, -1}, {i, i}):reshape(shape)
    end, batch)
  end
  return parts
end

--- The tensors among results, each once; raises for a result that is no tree.
local function tensors_of(results)
  for i = 1, results.n do
    if not lib.is_tensor(results[i]) and type(results[i]) ~= "table" then
      raise("E_VALUE", "accumulate: result %d of the function is %s; expected tensors and trees of them", i,
        lib.kind(results[i]))
    end
  end
  return (tree.leaves(table.move(results, 1, results.n, 1, {})))
end

--- The results with other tensors in the places of theirs.
local function replaced(results, leaves, with)
  local of = {}
  for i, leaf in ipairs(leaves) do of[leaf] = with[i] end
  local out = {}
  for i = 1, results.n do out[i] = tree.map(function(x) return of[x] end, results[i]) end
  return table.unpack(out, 1, results.n)
end

local function check_count(have, want)
  if have == want then return end
  raise("E_VALUE", "accumulate: the function gave %d tensors for one microbatch and %d for another", have,
    want)
end

--- Outside of a trace: one part after the other.
local function in_turn(n, fn, batch)
  local sums, results, leaves = {}, nil, nil
  for k, part in ipairs(M.microbatches(batch, n)) do
    results = table.pack(fn(part))
    leaves = tensors_of(results)
    check_count(#leaves, k == 1 and #leaves or #sums)
    for i, x in ipairs(leaves) do sums[i] = k == 1 and x or x + sums[i] end
  end
  for i, x in ipairs(sums) do sums[i] = x / n end
  return replaced(results, leaves, sums)
end

-- Params hold something else while fn runs in the body of the loop; closing it puts back what they held.
local Lent = {__close = function(lent)
  core.note_writes(lent.before)
  for _, box in ipairs(lent.list) do core.box_swap(box, lent.list[box] or nil) end
end}

--- Calls fn(part) in the region under way, in which the Params `boxes` hold `values`. Returns its results, what
--- the Params hold then, and the list of Params with those that fn wrote besides.
local function call(fn, part, boxes, values)
  local list = {}
  local _ <close> = setmetatable({list = list, before = core.note_writes(list)}, Lent)
  for i, box in ipairs(boxes) do list[i], list[box] = box, core.box_swap(box, values[i]) end
  local results, now = table.pack(fn(part)), {}
  for i, box in ipairs(boxes) do now[i] = box:get() end
  return results, now, list
end

--- In a trace: a loop, whatever n. fn is traced once for what it returns and writes, and once as the loop's body.
local function looped(n, fn, batch, rows)
  local stacks, of = {}, {}
  for i, x in ipairs(rows) do stacks[i] = grouped(x, n):swapaxes(1, 2) end
  local function part_of(slices)
    for i, x in ipairs(rows) do of[x] = slices[i] end
    return tree.map(function(x) return of[x] end, batch)
  end
  local results, leaves, boxes, _
  local _, _, sums = core.trace_region(function(...)
    results, _, boxes = call(fn, part_of {...}, {}, {})
    leaves = tensors_of(results)
    local twice = {}
    for i, x in ipairs(leaves) do twice[i] = x + x end
    return table.unpack(twice)
  end, stacks, #stacks)
  local start = {sums = {}, Params = {}}
  for i, x in ipairs(sums) do start.sums[i] = core.sum_start(x) end
  for i, box in ipairs(boxes) do
    if not boxes[box] then raise("E_STATE", "accumulate: the function writes a Param that is empty") end
    start.Params[i] = box:get()
  end
  local last = control.scan(function(carry, slices)
    local out, now, written = call(fn, part_of(slices), boxes, carry.Params)
    local own = tensors_of(out)
    check_count(#own, #leaves)
    if #written > #boxes then
      raise("E_STATE", "accumulate: the function writes a Param for one microbatch and not for another")
    end
    for i, x in ipairs(own) do own[i] = x + carry.sums[i] end
    return {sums = own, Params = now}
  end, start, stacks)
  for i, box in ipairs(boxes) do box:set(last.Params[i]) end
  for i, x in ipairs(last.sums) do last.sums[i] = x / n end
  return replaced(results, leaves, last.sums)
end

--- Calls fn on each of n microbatches of a batch, in order, and gives the means of what it returns: the loss and the
--- gradients of the whole batch where fn gives those of the mean over its rows. Params that fn writes (counts of
--- random keys, statistics) go on from one part to the next.
---
---     local loss, grads = ml.accumulate(4, function(part)
---       return ml.value_and_grad(function(m) return loss_of(m, part.inputs, part.labels) end)(model)
---     end, {inputs = inputs, labels = labels})
---
--- In a traced function it is a loop (see ml.scan), whose plan is as large for 64 parts as for 2: fn is traced for
--- the loop's body, twice, and what it does in Lua happens then.
---@param n integer
---@param fn fun(part: any): any ... tensors, and trees of them
---@param batch any see ml.microbatches
---@return any ...
function M.accumulate(n, fn, batch)
  lib.check_function("accumulate", fn)
  local rows = check_batch("microbatches", batch, n)
  if n == 1 then return fn(batch) end
  if core.is_tracing() then return looped(n, fn, batch, rows) end
  return in_turn(n, fn, batch)
end

lib.export(M)
return M
