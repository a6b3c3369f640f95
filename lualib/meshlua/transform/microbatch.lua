-- microbatch.lua: a step's batch in parts, one after the other: less is held at a time, and the result is the same.
local control = require "meshlua.transform.control"
local core = require "meshlua.core"
local leaves_of = require "meshlua.transform.leaves"
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

--- Raises unless the batch holds tensors, each with rows, that n divides where that is asked; returns them, and
--- what they are in messages.
---@param divides boolean
---@return Tensor[] rows, string[] names
function M.check_batch(who, batch, n, divides)
  lib.check_integer(who, "how many microbatches", n)
  local leaves, paths = tree.leaves(batch)
  for i, x in ipairs(leaves) do
    paths[i] = paths[i] == "" and "the batch" or paths[i]
    if x.ndim == 0 then raise("E_SHAPE", "%s: %s is a scalar and has no rows", who, paths[i]) end
    if divides then M.check(who, paths[i], x.shape[1], n) end
  end
  if #leaves == 0 then raise("E_VALUE", "%s: the batch holds no tensor", who) end
  return leaves, paths
end

--- x with a dim of n behind the first: [rows / n, n, ...].
local function grouped(x, n)
  local shape = x.shape
  return x:reshape(table.move(shape, 2, #shape, 3, {shape[1] // n, n}))
end

--- The rows of a tensor as a stack of n microbatches: part i (from 1) has the rows i, i + n, i + 2n, ...
---@return Tensor [n, rows / n, ...]
function M.stacked(x, n) return grouped(x, n):swapaxes(1, 2) end

--- The rows out of such a stack, in their order.
---@return Tensor [rows, ...]
function M.unstacked(x)
  local shape = x.shape
  return x:swapaxes(1, 2):reshape(table.move(shape, 3, #shape, 2, {shape[1] * shape[2]}))
end

--- The batch in n parts of the same size: a list of trees like it. Part i has the rows i, i + n, i + 2n, ... of each
--- tensor, so that each device keeps its own rows where the batch is split over devices. E_SHAPE where n does not
--- divide the rows of a tensor.
---@param batch any a tensor, or a tree of tensors of which dim 1 counts rows
---@param n integer
---@return any[]
function M.microbatches(batch, n)
  M.check_batch("microbatches", batch, n, true)
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

--- Calls fn(part, ...) in the region under way, in which the Params `boxes` hold `values`. Returns its results, what
--- the Params hold then, and the list of Params with those that fn wrote besides.
local function call(fn, boxes, values, part, ...)
  local list = {}
  local _ <close> = setmetatable({list = list, before = core.note_writes(list)}, Lent)
  for i, box in ipairs(boxes) do list[i], list[box] = box, core.box_swap(box, values[i]) end
  local results, now = table.pack(fn(part, ...)), {}
  for i, box in ipairs(list) do now[i] = box:get() end
  return results, now, list
end

--- The batch with slices in the places of its tensors `rows`.
---@param batch any
---@param rows Tensor[]
---@param slices Tensor[]
---@return any
function M.part_of(batch, rows, slices)
  local of = {}
  for i, x in ipairs(rows) do of[x] = slices[i] end
  return tree.map(function(x) return of[x] end, batch)
end

--- In a trace: a loop, whatever n. fn is traced once for what it returns and writes, and once as the loop's body.
local function looped(n, fn, batch, rows)
  local stacks = {}
  for i, x in ipairs(rows) do stacks[i] = M.stacked(x, n) end
  local results, leaves, boxes, _
  local _, _, sums = core.trace_region(function(...)
    results, _, boxes = call(fn, {}, {}, M.part_of(batch, rows, {...}))
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
    local out, now, written = call(fn, boxes, carry.Params, M.part_of(batch, rows, slices))
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

--- In a trace: by leaves, whose sums are a tree. A float Param that fn writes gets the mean of what the leaves gave it;
--- counts of random keys are the same of all.
local function by_leaves(n, fn, batch, rows, names)
  local results, leaves, boxes
  local sums, last = leaves_of.sum(n, rows, names, function(slices, number)
    local now
    results, now, boxes = call(fn, {}, {}, M.part_of(batch, rows, slices), number)
    leaves = tensors_of(results)
    local add, keep = table.move(leaves, 1, #leaves, 1, {}), {}
    for i, box in ipairs(boxes) do
      local is_mean = lib.floats[box.dtype]
      if not is_mean and box.kind ~= "rng" then
        raise("E_STATE", "accumulate: the function writes a Param of dtype %s; with bits = \"mesh\" each "
          .. "leaf begins with what it held before, and there is no mean of what they make of it", box.dtype)
      end
      local list = is_mean and add or keep
      list[#list + 1] = now[i]
    end
    return add, keep
  end)
  for i, x in ipairs(sums) do sums[i] = x / n end
  local add, keep = #leaves, 0
  for _, box in ipairs(boxes) do
    local is_mean = lib.floats[box.dtype]
    add, keep = is_mean and add + 1 or add, is_mean and keep or keep + 1
    box:set(is_mean and sums[add] or last[keep])
  end
  return replaced(results, leaves, sums)
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
---
--- With bits = "mesh" the result has the same bits on every mesh over whose axes the batch is split: the n microbatches
--- are leaves then, runs of rows in order, which the devices share evenly, and what fn returns is added as a binary tree
--- over them. n is a power of two, at least the number of these devices. A device computes its leaves one after the
--- other, and keeps what fn returns until it is added: of two leaves two, of eight six, of 64 twelve. fn is called as fn(part, leaf) with the
--- number of the leaf (uint32, from 0), which is for keys that fn does not take from an Rngs. Params that it writes begin
--- with what they held for each leaf: statistics become the mean of the leaves'. In traced functions alone.
---@param n integer
---@param fn fun(part: any, leaf: Tensor?): any ... tensors, and trees of them
---@param batch any see ml.microbatches
---@param options {bits: "mesh"}?
---@return any ... E_SHAPE, E_INDIVISIBLE: n does not divide the rows, or the devices do not divide n
function M.accumulate(n, fn, batch, options)
  lib.check_function("accumulate", fn)
  local bits = lib.options("accumulate", options).bits
  if bits ~= nil and bits ~= "mesh" then
    raise("E_VALUE", "accumulate: bits = %s; \"mesh\" is the one word: the same bits on every mesh",
      lib.text(bits))
  end
  local rows, names = M.check_batch("microbatches", batch, n, not bits)
  if bits then
    if not core.is_tracing() then
      raise("E_STATE", "accumulate: bits = \"mesh\" is of traced functions; call it inside ml.jit")
    end
    return by_leaves(n, fn, batch, rows, names)
  end
  if n == 1 then return fn(batch) end
  if core.is_tracing() then return looped(n, fn, batch, rows) end
  return in_turn(n, fn, batch)
end

lib.export(M)
return M
