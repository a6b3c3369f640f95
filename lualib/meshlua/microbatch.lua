-- microbatch.lua: a step's batch in parts, one after the other: less is held at a time, and the result is the same.
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
  raise("E_SHAPE", "%s: %s has %d rows, which %d microbatches do not divide; take %d or %d rows, or %s "
    .. "microbatches", who, what, rows, n, rows // n * n, (rows // n + 1) * n, divisors_text(rows))
end

--- The batch in n parts of the same size: a list of trees like it. Part i has the rows i, i + n, i + 2n, ... of each
--- tensor, so that each device keeps its own rows where the batch is split over devices. E_SHAPE where n does not
--- divide the rows of a tensor.
---@param batch any a tensor, or a tree of tensors of which dim 1 counts rows
---@param n integer
---@return any[]
function M.microbatches(batch, n)
  local who = "microbatches"
  tree.visit(batch, function(path, x)
    local what = path == "" and "the batch" or path
    if x.ndim == 0 then raise("E_SHAPE", "%s: %s is a scalar and has no rows", who, what) end
    M.check(who, what, x.shape[1], n)
  end)
  lib.check_integer(who, "how many microbatches", n)
  local parts = {}
  for i = 1, n do
    parts[i] = tree.map(function(x)
      local shape = x.shape
      local rest = table.move(shape, 2, #shape, 3, {shape[1] // n, n})
      local ranges = {{1, -1}, {i, i}}
      shape[1] = shape[1] // n
      return x:reshape(rest):slice(table.unpack(ranges)):reshape(shape)
    end, batch)
  end
  return parts
end

--- Adds b to a, tree by tree; raises for what is no tensor.
local function added(a, b, i)
  if not lib.is_tensor(a) and type(a) ~= "table" then
    raise("E_VALUE", "accumulate: result %d of the function is %s; expected tensors and trees of them", i,
      lib.kind(a))
  end
  if b == nil then return a end
  return tree.map(function(x, y) return x + y end, a, b)
end

--- Calls fn on each of n microbatches of a batch, in order, and gives the means of what it returns: the loss and the
--- gradients of the whole batch where fn gives those of the mean over its rows.
---
---     local loss, grads = ml.accumulate(4, function(part)
---       return ml.value_and_grad(function(m) return loss_of(m, part.inputs, part.labels) end)(model)
---     end, {inputs = inputs, labels = labels})
---@param n integer
---@param fn fun(part: any): any ... tensors, and trees of them
---@param batch any see ml.microbatches
---@return any ...
function M.accumulate(n, fn, batch)
  lib.check_function("accumulate", fn)
  local parts, sums = M.microbatches(batch, n), nil
  if n == 1 then return fn(batch) end
  for k, part in ipairs(parts) do
    local results = table.pack(fn(part))
    sums = sums or {n = results.n}
    if results.n ~= sums.n then
      raise("E_VALUE", "accumulate: the function gave %d values for microbatch %d and %d before", results.n,
        k, sums.n)
    end
    for i = 1, sums.n do sums[i] = added(results[i], sums[i], i) end
  end
  for i = 1, sums.n do sums[i] = tree.map(function(x) return x / n end, sums[i]) end
  return table.unpack(sums, 1, sums.n)
end

lib.export(M)
return M
