-- pipeline_stages.lua: the layers of a pipeline as stages, one for each place along the mesh axis: what each of them
-- holds as tensors with a leading dim that the axis splits, and how it is called.
--
-- Layers of one shape are a stack: place s has the layers s * per ... s * per + per - 1 of it; where their number is
-- no multiple of the places the last ones are passed over. Layers that differ are packed: for each dtype one row of
-- numbers per place, as long as the longest, and the same for what goes from stage to stage.
--
--   stages.values                       list of tensors, dim 1 over the axis
--   stages:call(place, values, hop, keys) what the stage at this place gives for what came to it
--   stages:enter(x), stages:leave(hop)  between a tree and what goes from stage to stage
local core = require "meshlua.core"
local control = require "meshlua.transform.control"
local lib = require "meshlua.lib"
local ops = require "meshlua.ops"
local stack_of = require "meshlua.nn.stack"
local trace = require "meshlua.transform.trace"
local tree = require "meshlua.tree"

local raise = lib.raise

local M = {}

--- The tensor of a leaf.
local function value_of(leaf) return core.is_box(leaf) and leaf:get() or leaf end

--- The types of a tree's tensors, for a message.
local function types_text(x)
  local words = {}
  for i, leaf in ipairs(trace.leaves("nn.pipeline", x, "a stage's result")) do
    words[i] = core.typeof(leaf.leaf):gsub("{.*", "")
  end
  return table.concat(words, ", ")
end

--- Have two trees the same tensors at the same places, by type?
local function alike(a, b)
  local p, q = trace.leaves("nn.pipeline", a, "x"), trace.leaves("nn.pipeline", b, "x")
  if #p ~= #q then return false end
  for i, leaf in ipairs(p) do
    if leaf.path ~= q[i].path or not lib.same_type(leaf.leaf, q[i].leaf) then return false end
  end
  return true
end

--- Raises where the axis splits a dim of a leaf other than the one that counts layers: a stage has its layers whole.
local function check_leaf(path, leaf, axis, from)
  local spec = core.is_box(leaf) and leaf.sharding.spec
  for d = from, spec and #spec or 0 do
    for _, name in ipairs(lib.axes_of(spec[d])) do
      if name == axis then
        raise("E_SPEC", "nn.pipeline: %s is split on '%s' along dim %d (%s); a stage has its layers whole: "
          .. "let the axis split %s, and another one this dim", path, axis, d, core.typeof(leaf),
          from == 2 and "dim 1, which counts layers," or "no dim of a layer")
      end
    end
  end
end

local function check_count(layers, p, axis)
  if layers >= p then return end
  raise("E_VALUE", "nn.pipeline: %s for %s (mesh axis '%s'); a stage has at least one: take a mesh whose "
    .. "axis has a size of at most %d", lib.count(layers, "layer"), lib.count(p, "stage"), axis, layers)
end

-- ---- layers of one shape ------------------------------------------------------------------------------

local Stack = {}
Stack.__index = Stack

--- How many layers a stack has: dim 1 of all its leaves.
local function layers_of(leaves, paths)
  if #leaves == 0 then raise("E_VALUE", "nn.pipeline: the stack holds no tensor") end
  local n = leaves[1].shape[1]
  for i, leaf in ipairs(leaves) do
    if leaf.ndim == 0 or leaf.shape[1] ~= n then
      raise("E_SHAPE", "nn.pipeline: %s is %s and %s is %s; dim 1 counts the layers in all Params of a stack",
        paths[1], core.typeof(leaves[1]), paths[i], core.typeof(leaf))
    end
  end
  return n
end

--- x with `more` slices behind it along dim 1.
local function padded(x, more)
  if more == 0 then return x end
  local shape = x.shape
  shape[1] = more
  return ops.concat({x, ops.zeros(shape, x.dtype)}, 1)
end

local function new_stack(stack, p, axis, body)
  local leaves, paths = tree.leaves(stack)
  local layers = layers_of(leaves, paths)
  check_count(layers, p, axis)
  for i, leaf in ipairs(leaves) do check_leaf(paths[i], leaf, axis, 2) end
  local self = setmetatable({layers = layers, p = p, body = body, stack = stack, leaves = leaves,
    values = {}}, Stack)
  self.is_own = lib.set(leaves)
  self.per = (layers + p - 1) // p
  self.padding = self.per * p - layers
  for i, leaf in ipairs(leaves) do self.values[i] = padded(value_of(leaf), self.padding) end
  return self
end

--- One layer, with slices in the places of its Params.
function Stack:layer(slices)
  local with = {}
  for i, leaf in ipairs(self.leaves) do with[leaf] = slices[i] end
  return tree.replace(self.stack, with)
end

function Stack:enter(x) return x end
function Stack:leave(hop) return hop end

--- Traces one layer on the tree x; returns what the last stage gives.
function Stack:probe(x, keys)
  local slices = {}
  for i, value in ipairs(self.values) do slices[i] = ops.slice(value, 1) end
  local y = self.body(self:layer(slices), x, keys and keys(0))
  if not alike(x, y) then
    raise("E_SHAPE", "nn.pipeline: layer 1 takes %s and gives %s, which layer 2 does not take: layers of a "
      .. "stack pass on what they are given; give a list of layers where they differ", types_text(x),
      types_text(y))
  end
  return y
end

function Stack:call(place, values, hop, keys)
  local numbered = {values = values, number = ops.arange(self.per)}
  return (control.scan(function(x, slice)
    local number = (place:index() * self.per) + slice.number
    local function run(h)
      return self.body(self:layer(slice.values), h, keys and keys(number))
    end
    if self.padding == 0 then return run(x) end
    return control.cond(number:lt(self.layers), run, function(h) return h end, x)
  end, hop, numbered))
end

-- ---- layers that differ -------------------------------------------------------------------------------

local Rows = {}
Rows.__index = Rows

--- Tensors of any shapes as one row per dtype: {order = dtypes, [dtype] = {at = {leaf number -> first}, n}}.
local function row_plan(leaves)
  local plan = {order = {}}
  for i, leaf in ipairs(leaves) do
    local row = plan[leaf.dtype]
    if not row then
      row = {n = 0, at = {}}
      plan[leaf.dtype], plan.order[#plan.order + 1] = row, leaf.dtype
    end
    row.at[i], row.n = row.n + 1, row.n + lib.product(leaf.shape)
  end
  return plan
end

--- A row of `n` numbers with the leaves of that dtype, one behind the other, and zeros.
local function packed_row(leaves, dtype, n)
  local parts, have = {}, 0
  for _, leaf in ipairs(leaves) do
    if leaf.dtype == dtype then
      parts[#parts + 1] = value_of(leaf):reshape {leaf.size}
      have = have + leaf.size
    end
  end
  if have < n then parts[#parts + 1] = ops.zeros({n - have}, dtype) end
  return ops.concat(parts, 1)
end

local function new_rows(list, p, axis, body)
  check_count(#list, p, axis)
  local self = setmetatable({layers = #list, p = p, body = body, padding = 0, groups = {}, values = {},
    dtypes = {}}, Rows)
  self.per, self.is_own = (#list + p - 1) // p, lib.set((tree.leaves(list)))
  local width = {}
  for s = 1, p do
    local group = {first = (s - 1) * #list // p + 1, last = s * #list // p}
    group.list = table.move(list, group.first, group.last, 1, {})
    group.leaves, group.paths = tree.leaves(group.list)
    for i, leaf in ipairs(group.leaves) do
      check_leaf(("layer %s"):format(group.paths[i]), leaf, axis, 1)
    end
    group.plan = row_plan(group.leaves)
    for _, dtype in ipairs(group.plan.order) do
      if not width[dtype] then self.dtypes[#self.dtypes + 1] = dtype end
      width[dtype] = math.max(width[dtype] or 0, group.plan[dtype].n)
    end
    self.groups[s] = group
  end
  if #self.dtypes == 0 then raise("E_VALUE", "nn.pipeline: the layers hold no tensor") end
  table.sort(self.dtypes)
  for k, dtype in ipairs(self.dtypes) do
    local rows = {}
    for s, group in ipairs(self.groups) do rows[s] = packed_row(group.leaves, dtype, width[dtype]) end
    self.values[k] = ops.stack(rows, 1)
  end
  self.width = width
  return self
end

--- The leaves of group s out of its rows.
function Rows:unpacked(s, rows)
  local group, with = self.groups[s], {}
  for i, leaf in ipairs(group.leaves) do
    local row = rows[lib.position(self.dtypes, leaf.dtype)]
    local from = group.plan[leaf.dtype].at[i]
    with[leaf] = row:slice({from, from + leaf.size - 1}):reshape(leaf.shape)
  end
  return tree.replace(group.list, with)
end

--- Group s on the tree x: its layers one after the other.
function Rows:run(s, layers, x, keys)
  for k, layer in ipairs(layers) do
    x = self.body(layer, x, keys and keys(self.groups[s].first + k - 2))
  end
  return x
end

--- How a tree lies in a hop: by dtype the columns of each leaf, whose first dim is the rows of a microbatch.
local function hop_plan(x)
  local plan, leaves = {tree = x, shapes = {}, at = {}, width = {}}, trace.leaves("nn.pipeline", x, "x")
  for i, entry in ipairs(leaves) do
    local leaf = entry.leaf
    if leaf.ndim == 0 or leaf.shape[1] ~= leaves[1].leaf.shape[1] then
      raise("E_SHAPE", "nn.pipeline: between stages that differ go tensors whose dim 1 is the rows of a "
        .. "microbatch, and not %s beside %s", core.typeof(leaf), core.typeof(leaves[1].leaf))
    end
    local n = lib.product(leaf.shape) // math.max(leaf.shape[1], 1)
    plan.rows, plan.shapes[i] = leaf.shape[1], leaf.shape
    plan.at[i] = {dtype = leaf.dtype, from = (plan.width[leaf.dtype] or 0) + 1, n = n}
    plan.width[leaf.dtype] = (plan.width[leaf.dtype] or 0) + n
  end
  return plan
end

--- Runs all groups on the tree x, and notes what lies between them; returns what the last gives.
function Rows:probe(x, keys)
  self.hops, self.hop_width = {hop_plan(x)}, {}
  for s, group in ipairs(self.groups) do
    local given = x
    local ok, fault = lib.unless_stopped(pcall(function()
      x = self:run(s, group.list, x, keys)
      self.hops[s + 1] = hop_plan(x)
    end))
    if not ok then
      local code, text = tostring(fault):match "%[(E_%u+)%] (.*)"
      if code ~= "E_SHAPE" and code ~= "E_DTYPE" then error(fault, 0) end
      raise(code, "nn.pipeline: stage %d does not take what %s gives, %s: %s", s,
        s == 1 and "`first`" or "stage " .. s - 1, types_text(given), text)
    end
  end
  for _, plan in ipairs(self.hops) do
    for dtype, n in pairs(plan.width) do
      self.hop_width[dtype] = math.max(self.hop_width[dtype] or 0, n)
    end
    if plan.rows ~= self.hops[1].rows then
      raise("E_SHAPE", "nn.pipeline: a stage gives %d rows for a microbatch of %d", plan.rows,
        self.hops[1].rows)
    end
  end
  return x
end

local function packed_hop(self, x, plan)
  local parts, hop = {}, {}
  for i, entry in ipairs(trace.leaves("nn.pipeline", x, "x")) do
    local dtype = plan.at[i].dtype
    parts[dtype] = parts[dtype] or {}
    table.insert(parts[dtype], entry.leaf:reshape {plan.rows, plan.at[i].n})
  end
  for dtype, n in pairs(self.hop_width) do
    local list, have = parts[dtype] or {}, plan.width[dtype] or 0
    if have < n then list[#list + 1] = ops.zeros({plan.rows, n - have}, dtype) end
    hop[dtype] = ops.concat(list, 2)
  end
  return hop
end

local function unpacked_hop(hop, plan)
  local leaves = {}
  for i, at in ipairs(plan.at) do
    leaves[i] = hop[at.dtype]:slice(false, {at.from, at.from + at.n - 1}):reshape(plan.shapes[i])
  end
  return trace.refill("nn.pipeline", plan.tree, leaves)
end

function Rows:enter(x) return packed_hop(self, x, self.hops[1]) end
function Rows:leave(hop) return unpacked_hop(hop, self.hops[#self.hops]) end

function Rows:call(place, values, hop, keys)
  local rows = {}
  for k, value in ipairs(values) do rows[k] = ops.slice(value, 1) end
  for s = 1, self.p do
    local function run(own, h)
      local x = self:run(s, self:unpacked(s, own), unpacked_hop(h, self.hops[s]), keys)
      return packed_hop(self, x, self.hops[s + 1])
    end
    if self.p == 1 then
      hop = run(rows, hop)
    else
      local here = place:index():ge(s - 1):bitand(place:index():lt(s))
      hop = control.cond(here, run, function(_, h) return h end, rows, hop)
    end
  end
  return hop
end

-- ---- which of the two -----------------------------------------------------------------------------------

--- The stages of a pipeline over p places along the axis.
---@param given any a stack (see nn.stack), or a list of layers
---@param p integer
---@param axis string
---@param body fun(layer: any, x: any, rngs: table?): any
---@return table
function M.new(given, p, axis, body)
  if type(given) ~= "table" then
    raise("E_VALUE", "nn.pipeline: expected a stack of layers (nn.stack) or a list of them, got %s",
      lib.kind(given))
  end
  if #given == 0 then return new_stack(given, p, axis, body) end
  for _, layer in ipairs(given) do
    if type(layer) ~= "table" then
      raise("E_VALUE", "nn.pipeline: a layer is %s; expected modules", lib.kind(layer))
    end
  end
  local same = #given == 1 or lib.unless_stopped(pcall(stack_of.check, given))
  if not same then return new_rows(given, p, axis, body) end
  local layers = given
  for _, layer in ipairs(layers) do
    for i, leaf in ipairs((tree.leaves(layer))) do
      check_leaf(("leaf %d of a layer"):format(i), leaf, axis, 1)
    end
  end
  return new_stack(stack_of.of_values(layers), p, axis, body)
end

return M
