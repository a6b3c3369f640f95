-- metrics.lua: what is watched over many batches: sums that lie on the devices, in float64, and are divided where
-- they are asked for. Updates are ops, eager or of a jitted function, on any mesh.
local core = require "meshlua.core"
local lib = require "meshlua.lib"
local module = require "meshlua.nn.module"
local param = require "meshlua.nn.param"
local args = require "meshlua.ops.args"
local ops = require "meshlua.ops"
local tree = require "meshlua.tree"

local op, raise = core.op, lib.raise

local M = {}

---@class MetricOptions
---@field weights Tensor? what each value counts for, of the values' shape or of its first dims; default 1
---@field count integer|Tensor? so many of the first dim's values count, as of a last batch that was filled up

local function number_box() return param.Param(core.tensor(0.0, "float64"), {kind = "metric"}) end

--- Of what counts for each value a tensor like the values, or nil: all count for 1.
local function weights_of(who, values, options)
  local weights, shape = options.weights, values.shape
  if weights ~= nil then
    args.check_tensor(who, weights, "weights")
    for d = 1, weights.ndim do
      if weights.shape[d] ~= shape[d] then
        raise("E_SHAPE", "%s: weights are %s, and values %s; they have all or the first of their dims", who,
          core.typeof(weights), core.typeof(values))
      end
    end
    weights = op.astype(weights, {dtype = "float64"})
  end
  if options.count == nil then return weights end
  if values.ndim == 0 then raise("E_SHAPE", "%s: count is of the first dim, and the value has none", who) end
  local counts = op.astype(op.lt(ops.iota {shape[1]}, options.count), {dtype = "float64"})
  if not weights then return counts end
  for _ = 2, weights.ndim do counts = ops.expand_dims(counts, -1) end
  return op.mul(weights, counts)
end

--- Adds values to a metric's total and count; those that count for 0 add nothing, whatever they are.
local function add(self, who, values, options)
  values = op.astype(op.stop_gradient(values), {dtype = "float64"})
  local weights, n = weights_of(who, values, options), values.size
  local sum, count
  if weights then
    for _ = weights.ndim + 1, values.ndim do
      weights = ops.expand_dims(weights, -1)
    end
    sum = ops.sum(op.where(op.ne(weights, 0.0), op.mul(values, weights), 0.0))
    count = op.mul(ops.sum(weights), n / weights.size)
  else
    sum, count = ops.sum(values), n + 0.0
  end
  self.total:set(op.add(self.total, sum))
  self.count:set(op.add(self.count, count))
end

--- To 0, where it lies; also what is not finite.
local function reset(self)
  for _, box in ipairs {self.total, self.count} do box:set(op.where(op.lt(op.abs(box), 0.0), box, 0.0)) end
end

local function mean(self) return op.div(self.total, self.count) end

local takes = {} -- metatable of a class -> what its update takes in front of its options

--- A class of metrics with a total and a count.
local function class(name, names)
  local C, meta = module.module(name)
  function C:reset() reset(self) end
  function C:compute() return mean(self) end
  takes[meta] = names
  return C
end

-- ---- means --------------------------------------------------------------------------------------------

--- The mean of all values that it was given.
M.Mean = class("Mean", {"values"})

---@param options {of: string}? of: in a MultiMetric, the name of the values; default its own there
function M.Mean:init(options)
  options = lib.options("metrics.Mean", options)
  self.of, self.total, self.count = options.of, number_box(), number_box()
end

---@param values Tensor|number
---@param options MetricOptions?
function M.Mean:update(values, options)
  options = lib.options("Mean:update", options)
  if type(values) == "number" then values = core.tensor(values) end
  args.check_tensor("Mean:update", values, "the values")
  add(self, "Mean:update", values, options)
end

--- e to the mean of the losses, in nats: the perplexity of a language model.
M.Perplexity = class("Perplexity", {"loss"})

---@param options {of: string}? of: in a MultiMetric, the name of the losses; default "loss"
function M.Perplexity:init(options)
  options = lib.options("metrics.Perplexity", options)
  self.of, self.total, self.count = options.of or "loss", number_box(), number_box()
end

---@param loss Tensor
---@param options MetricOptions?
function M.Perplexity:update(loss, options)
  options = lib.options("Perplexity:update", options)
  args.check_tensor("Perplexity:update", loss, "the loss")
  add(self, "Perplexity:update", loss, options)
end

function M.Perplexity:compute() return op.exp(mean(self)) end

-- ---- classes ------------------------------------------------------------------------------------------

--- The share of rows whose label is where the logits are largest, or among the `top_k` largest.
M.Accuracy = class("Accuracy", {"logits", "labels"})

---@param options {top_k: integer}? default 1
function M.Accuracy:init(options)
  options = lib.options("metrics.Accuracy", options)
  self.top_k, self.total, self.count = options.top_k or 1, number_box(), number_box()
  if self.top_k < 1 then raise("E_VALUE", "metrics.Accuracy: top_k is %d; the least is 1", self.top_k) end
end

---@param logits Tensor [..., classes]
---@param labels Tensor [...] 0-based class ids
---@param options MetricOptions?
function M.Accuracy:update(logits, labels, options)
  local who = "Accuracy:update"
  options = lib.options(who, options)
  args.check_tensor(who, logits, "logits")
  args.check_tensor(who, labels, "labels")
  local shape = {table.unpack(logits.shape, 1, math.max(logits.ndim - 1, 0))}
  if logits.ndim == 0 or not lib.same_shape(shape, labels.shape) then
    raise("E_SHAPE", "%s: logits are %s, and labels %s; expected [..., classes] and [...]", who,
      core.typeof(logits), core.typeof(labels))
  end
  if labels.dtype:match "float" or labels.dtype == "bool" then
    raise("E_DTYPE", "%s: labels are class ids, not %s", who, core.typeof(labels))
  end
  local classes = logits.shape[logits.ndim]
  if self.top_k > classes then
    raise("E_VALUE", "%s: top_k is %d, and there are %d classes", who, self.top_k, classes)
  end
  labels = args.to_int32(labels)
  local hits
  if self.top_k == 1 then
    hits = op.eq(ops.argmax(logits, -1), labels)
  else
    local _, best = ops.top_k(logits, self.top_k, -1)
    hits = ops.any(op.eq(best, ops.expand_dims(labels, -1)), -1)
  end
  add(self, who, hits, options)
end

-- ---- several --------------------------------------------------------------------------------------------

--- Metrics by name, updated and computed at once.
M.MultiMetric = module.module "MultiMetric"

---@param metrics table<string, table>
function M.MultiMetric:init(metrics)
  local who = "metrics.MultiMetric"
  if type(metrics) ~= "table" then
    raise("E_VALUE", "%s: expected {name = metric, ...}, got %s", who, lib.kind(metrics))
  end
  for name, metric in pairs(metrics) do
    if type(name) ~= "string" or not takes[getmetatable(metric)] then
      raise("E_VALUE", "%s: expected names and metrics, got %s = %s", who, lib.text(name), lib.kind(metric))
    end
    if rawget(getmetatable(M.MultiMetric).__index, name) then
      raise("E_KEY", "%s: a metric cannot be called %s", who, name)
    end
    self[name] = metric
  end
end

local function each(self, visit)
  for _, name in ipairs(lib.names(self)) do
    if type(self[name]) == "table" then visit(name, self[name]) end
  end
end

--- Updates each metric with what it asks for by name: an Accuracy `logits` and `labels`, the others what their `of`
--- says, or their own name.
---@param values table<string, any> Tensors by name; and weights, count: see MetricOptions
function M.MultiMetric:update(values)
  if type(values) ~= "table" then
    raise("E_VALUE", "MultiMetric:update: expected {name = tensor, ...}, got %s", lib.kind(values))
  end
  local options = {weights = values.weights, count = values.count}
  each(self, function(name, metric)
    local given = {}
    local names = takes[getmetatable(metric)]
    for i, wanted in ipairs(names) do
      if #names == 1 then wanted = metric.of or name end
      given[i] = values[wanted]
      if given[i] == nil then
        raise("E_KEY", "MultiMetric:update: '%s' needs '%s'%s", name, wanted,
          lib.did_you_mean(wanted, lib.names(values)))
      end
    end
    given[#given + 1] = options
    metric:update(table.unpack(given))
  end)
end

--- The value of each, a scalar tensor.
---@return table<string, Tensor>
function M.MultiMetric:compute()
  local found = {}
  each(self, function(name, metric) found[name] = metric:compute() end)
  return found
end

function M.MultiMetric:reset() each(self, function(_, metric) metric:reset() end) end

-- ---- reading ------------------------------------------------------------------------------------------

--- A function that takes a step's scalar tensors, as a tree, and gives the numbers of the step before; nil the first
--- time, and without a tree the last ones. A GPU sends them as soon as they are there: nobody waits for this step.
---@return fun(now: any): any
function M.late()
  local before, asked
  return function(now)
    local ready, numbers = before, asked
    before, asked = now, {}
    tree.map(function(x)
      if lib.is_tensor(x) then asked[x] = core.ask(x) end
      return x
    end, now)
    if ready == nil then return nil end
    return tree.map(function(x)
      if not lib.is_tensor(x) then return x end
      local number = numbers[x]
      local value = number and core.answer(x, number)
      if value == nil then return x:item() end
      return value
    end, ready)
  end
end

return lib.strict(lib.export_checked(M, "metrics."), "metrics", "metrics.")
