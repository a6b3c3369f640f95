-- ops.lua: the functions on tensors, with numpy's names and rules. Axes and positions count from 1,
-- negative ones from the end; ids count from 0.
local core = require "meshlua.core"
local lib = require "meshlua.lib"

local op, raise = core.op, lib.raise

local M = {}

local function is_tensor(x) return core.is_tensor(x) or core.is_box(x) end

local function check_tensor(who, x)
  if not is_tensor(x) then raise("E_VALUE", "%s: expected a tensor, got %s", who, lib.kind(x)) end
  return x
end

--- Raises unless x is a number or a tensor.
local function check_operand(who, x)
  if type(x) ~= "number" then check_tensor(who, x) end
end

local function check_dtype(who, dtype)
  if type(dtype) ~= "string" then
    raise("E_VALUE", "%s: expected the name of a dtype, got %s", who, lib.kind(dtype))
  end
  return dtype
end

--- An axis as 1..rank.
local function axis_of(who, axis, rank)
  if math.type(axis) ~= "integer" then
    raise("E_VALUE", "%s: an axis is a whole number, not %s", who, tostring(axis))
  end
  local a = axis < 0 and axis + rank + 1 or axis
  if a < 1 or a > rank then
    raise("E_SHAPE", "%s: axis %d of a tensor of rank %d; axes count from 1", who, axis, rank)
  end
  return a
end

--- Axes as an ascending list; nil means all.
local function axes_of(who, axes, rank)
  local list, seen = {}, {}
  if axes == nil then
    for a = 1, rank do list[a] = a end
    return list
  end
  if type(axes) == "number" then axes = {axes} end
  for i, axis in ipairs(lib.check_list(who, "axes", axes)) do
    list[i] = axis_of(who, axis, rank)
    if seen[list[i]] then raise("E_SHAPE", "%s: axis %d is given twice", who, axis) end
    seen[list[i]] = true
  end
  table.sort(list)
  return list
end

local shape_of = lib.check_shape

local function product(list)
  local n = 1
  for _, x in ipairs(list) do n = n * x end
  return n
end

local function copy(list)
  return table.move(list, 1, #list, 1, {})
end

-- ---- elementwise: straight from the op table ------------------------------------------------------
for _, row in ipairs(core.ops()) do
  if row.elementwise and not row.internal and #row.attributes == 0 and row.operands ~= "" then
    M[row.name] = op[row.name]
  end
end
M.threefry = nil

--- x as another dtype; floats become integers by cutting toward zero.
---@param x Tensor
---@param dtype string
function M.astype(x, dtype)
  return op.astype(check_tensor("astype", x), {dtype = check_dtype("astype", dtype)})
end

--- The bits of x as another dtype of the same width.
function M.bitcast(x, dtype)
  return op.bitcast(check_tensor("bitcast", x), {dtype = dtype})
end

--- x within [low, high]; either may be nil.
function M.clip(x, low, high)
  check_operand("clip", x)
  if low ~= nil then x = op.maximum(x, low) end
  if high ~= nil then x = op.minimum(x, high) end
  return x
end

--- x as a constant to gradients.
function M.stop_gradient(x) return op.stop_gradient(x) end

-- ---- shape ------------------------------------------------------------------------------------------

--- The same elements in another shape: reshape(x, {2, -1}) or reshape(x, 2, -1). One dim may be -1.
---@param x Tensor
function M.reshape(x, ...)
  check_tensor("reshape", x)
  local shape, hole = copy(shape_of("reshape", ...)), nil
  for i, n in ipairs(shape) do
    if n == -1 then
      if hole then raise("E_SHAPE", "reshape: only one dim can be -1") end
      hole = i
    elseif n < 0 then
      raise("E_SHAPE", "reshape: dim %d is %d", i, n)
    end
  end
  if hole then
    shape[hole] = 1
    local rest = product(shape)
    if rest == 0 or x.size % rest ~= 0 then
      raise("E_SHAPE", "reshape: %d elements are not divided by %d", x.size, rest)
    end
    shape[hole] = x.size // rest
  end
  return op.reshape(x, {dims = shape})
end

--- The dims in another order: transpose(x, {3, 1, 2}), transpose(x, 3, 1, 2); without axes reversed.
function M.transpose(x, ...)
  check_tensor("transpose", x)
  local rank, perm = x.ndim, {}
  if ... == nil then
    for d = 1, rank do perm[d] = rank + 1 - d end
  else
    perm = copy(type(...) == "table" and lib.check_list("transpose", "axes", ...) or {...})
    for i, axis in ipairs(perm) do perm[i] = axis_of("transpose", axis, rank) end
  end
  return op.transpose(x, {perm = perm})
end

--- The last two dims exchanged.
function M.T(x)
  check_tensor("T", x)
  local perm = {}
  for d = 1, x.ndim do perm[d] = d end
  if x.ndim < 2 then return x end
  perm[x.ndim], perm[x.ndim - 1] = x.ndim - 1, x.ndim
  return op.transpose(x, {perm = perm})
end

--- Two axes exchanged.
function M.swapaxes(x, a, b)
  check_tensor("swapaxes", x)
  local perm = {}
  for d = 1, x.ndim do perm[d] = d end
  a, b = axis_of("swapaxes", a, x.ndim), axis_of("swapaxes", b, x.ndim)
  perm[a], perm[b] = perm[b], perm[a]
  return op.transpose(x, {perm = perm})
end

--- x repeated to a larger shape by numpy's rule: dims align at the end, size 1 stretches.
function M.broadcast(x, ...)
  check_tensor("broadcast", x)
  local shape, at = shape_of("broadcast", ...), {}
  for d = 1, x.ndim do at[d] = #shape - x.ndim + d end
  if #shape < x.ndim then raise("E_SHAPE", "broadcast: rank %d to rank %d", x.ndim, #shape) end
  return op.broadcast(x, {dims = shape, at = at})
end

--- A dim of size 1 put in at `axis` of the result.
function M.expand_dims(x, axis)
  check_tensor("expand_dims", x)
  local shape = copy(x.shape)
  table.insert(shape, axis_of("expand_dims", axis, x.ndim + 1), 1)
  return op.reshape(x, {dims = shape})
end

--- Without the given dims of size 1 (nil: all of them).
function M.squeeze(x, axes)
  check_tensor("squeeze", x)
  local drop, shape = {}, {}
  if axes ~= nil then
    for _, a in ipairs(axes_of("squeeze", axes, x.ndim)) do
      if x.shape[a] ~= 1 then
        raise("E_SHAPE", "squeeze: dim %d has size %d, not 1", a, x.shape[a])
      end
      drop[a] = true
    end
  end
  for d, n in ipairs(x.shape) do
    if not (drop[d] or axes == nil and n == 1) then shape[#shape + 1] = n end
  end
  return op.reshape(x, {dims = shape})
end

-- ---- parts ------------------------------------------------------------------------------------------

--- One position along a dim as 1..n.
local function position(who, i, n, d)
  if math.type(i) ~= "integer" then
    raise("E_VALUE", "%s: positions of dim %d are whole numbers, not %s", who, d, tostring(i))
  end
  local p = i < 0 and i + n + 1 or i
  if p < 1 or p > n then
    raise("E_SHAPE", "%s: position %d of dim %d, which has %d; positions count from 1", who, i, d, n)
  end
  return p
end

--- A range of each dim, 1-based and inclusive: x:slice({1, 4}, false, {2, -1, 2}, 3). nil or false takes
--- the whole dim, {first, last, step} a range (last nil: to the end), a number one position, whose dim
--- is dropped.
---@param x Tensor
function M.slice(x, ...)
  check_tensor("slice", x)
  local shape = x.shape
  local given = select("#", ...)
  if given > #shape then raise("E_SHAPE", "slice: %d ranges for rank %d", given, #shape) end
  local start, limit, step, kept, dropped = {}, {}, {}, {}, false
  for d, n in ipairs(shape) do
    local range = select(d, ...)
    start[d], limit[d], step[d] = 0, n, 1
    if d > given then range = nil end
    if range and type(range) ~= "number" and type(range) ~= "table" then
      raise("E_VALUE", "slice: the range of dim %d is %s; expected {first, last, step}, a position or false",
        d, lib.kind(range))
    elseif type(range) == "number" then
      local p = position("slice", range, n, d)
      start[d], limit[d], dropped = p - 1, p, true
    else
      if range then
        local first, last = range[1] or 1, range[2] or -1
        step[d] = range[3] or 1
        lib.check_integer("slice", "the first position of a range", first)
        lib.check_integer("slice", "the last position of a range", last)
        if math.type(step[d]) ~= "integer" or step[d] < 1 then
          raise("E_VALUE", "slice: the step of dim %d is %s; it must be 1 or more", d,
            tostring(step[d]))
        end
        if first == n + 1 and (last == n or last == -1) then
          start[d], limit[d] = n, n
        elseif last == first - 1 then
          start[d], limit[d] = first - 1, first - 1
        elseif not (n == 0 and first == 1 and last == -1) then
          start[d], limit[d] = position("slice", first, n, d) - 1, position("slice", last, n, d)
        end
        if limit[d] < start[d] then
          raise("E_SHAPE", "slice: the range %d..%d of dim %d is backwards; use flip", first, last, d)
        end
      end
      kept[#kept + 1] = (limit[d] - start[d] + step[d] - 1) // step[d]
    end
  end
  local y = op.slice(x, {start = start, limit = limit, step = step})
  return dropped and op.reshape(y, {dims = kept}) or y
end

--- x at position i (1-based) of its first dim, which is dropped; more positions go on with the next.
function M.at(x, ...) return M.slice(x, ...) end

--- The given axes backwards (nil: all).
function M.flip(x, axes)
  check_tensor("flip", x)
  return op.flip(x, {axes = axes_of("flip", axes, x.ndim)})
end

--- x with a border: pad(x, {{low, high}, ...}, value) with one pair (or false) per dim.
---@param value number? default 0
function M.pad(x, pads, value)
  check_tensor("pad", x)
  local low, high, interior = {}, {}, {}
  if #lib.check_list("pad", "the pads", pads) ~= x.ndim then
    raise("E_SHAPE", "pad: %d pads for a tensor of rank %d; false leaves a dim alone", #pads, x.ndim)
  end
  for d = 1, x.ndim do
    local p = lib.check_list("pad", "the pad of a dim", pads[d] or {0, 0})
    low[d] = lib.check_integer("pad", "the low pad", p[1])
    high[d] = lib.check_integer("pad", "the high pad", p[2])
    interior[d] = lib.check_integer("pad", "the interior pad", p[3] or 0)
  end
  local v = op.full({dtype = x.dtype, dims = {}, value = value or 0})
  return op.pad(x, v, {low = low, high = high, interior = interior})
end

--- Brings a list of tensors to one dtype.
local function meet(who, list)
  if #lib.check_list(who, "the tensors", list) == 0 then raise("E_VALUE", "%s: no tensors", who) end
  local dtype = nil
  for i, x in ipairs(list) do
    check_tensor(who, x)
    local d = x.dtype
    dtype = dtype and core.promote(dtype, d) or d
    list[i] = x
  end
  local out = {}
  for i, x in ipairs(list) do
    out[i] = x.dtype == dtype and x or op.astype(x, {dtype = dtype})
  end
  return out
end

--- Tensors behind each other along an axis (default 1).
---@param list Tensor[]
---@param axis integer?
function M.concat(list, axis)
  list = meet("concat", list)
  local attr = {axis = axis_of("concat", axis or 1, list[1].ndim)}
  list[#list + 1] = attr
  return op.concat(table.unpack(list))
end

--- Tensors of one shape along a new axis (default 1).
function M.stack(list, axis)
  list = meet("stack", list)
  for i, x in ipairs(list) do list[i] = M.expand_dims(x, axis or 1) end
  return M.concat(list, axis or 1)
end

--- x cut into n equal parts along an axis (default 1): a list.
function M.split(x, n, axis)
  check_tensor("split", x)
  axis = axis_of("split", axis or 1, x.ndim)
  local size = x.shape[axis]
  if math.type(n) ~= "integer" or n < 1 or size % n ~= 0 then
    raise("E_INDIVISIBLE", "split: dim %d of size %d is not divided by %s", axis, size, tostring(n))
  end
  local parts, each, ranges = {}, size // n, {}
  for d = 1, x.ndim do ranges[d] = false end
  for i = 1, n do
    ranges[axis] = {(i - 1) * each + 1, i * each}
    parts[i] = M.slice(x, table.unpack(ranges))
  end
  return parts
end

--- Rows of x by 0-based id along an axis (default 1): the ids' shape takes the axis's place. An id
--- outside the table is an error.
---@param x Tensor
---@param ids Tensor int32
---@param axis integer?
function M.take(x, ids, axis)
  check_tensor("take", x)
  check_tensor("take", ids)
  axis = axis_of("take", axis or 1, x.ndim)
  if ids.dtype ~= "int32" and ids.dtype:match("int") then ids = op.astype(ids, {dtype = "int32"}) end
  return op.take(x, ids, {axis = axis, size = x.shape[axis]})
end

--- A table of `size` rows of zeros along `axis` (default 1), with the updates added to rows `ids`.
function M.scatter_add(ids, updates, size, axis)
  check_tensor("scatter_add", ids)
  check_tensor("scatter_add", updates)
  lib.check_integer("scatter_add", "the size", size)
  axis = axis_of("scatter_add", axis or 1, updates.ndim - ids.ndim + 1)
  return op.scatter_add(ids, updates, {axis = axis, size = size, rows = size})
end

--- 1 where the last, new dim's 0-based position is the id, else 0.
---@param dtype string? default float32
function M.one_hot(ids, n, dtype)
  check_tensor("one_hot", ids)
  lib.check_integer("one_hot", "the number of classes", n)
  local shape = copy(ids.shape)
  shape[#shape + 1] = n
  local classes = op.iota {dtype = "int32", dims = shape, dim = #shape}
  local hit = op.eq(classes, M.expand_dims(op.astype(ids, {dtype = "int32"}), -1))
  return op.astype(hit, {dtype = dtype or "float32"})
end

--- The lines along an axis (default last) in ascending order, or descending; NaN last. Further tensors
--- are permuted alike and returned behind.
function M.sort(x, axis, descending, ...)
  check_tensor("sort", x)
  local attr = {axis = axis_of("sort", axis or -1, x.ndim), descending = descending or false}
  local list = {x, ...}
  for i = 1, select("#", ...) do check_tensor("sort", list[i + 1]) end
  list[#list + 1] = attr
  return op.sort(table.unpack(list))
end

-- ---- reductions -----------------------------------------------------------------------------------

local function reduced(x, y, axes, keepdims)
  if keepdims or #axes == 0 then return y end
  local gone, shape = {}, {}
  for _, a in ipairs(axes) do gone[a] = true end
  for d, n in ipairs(x.shape) do
    if not gone[d] then shape[#shape + 1] = n end
  end
  return op.reshape(y, {dims = shape})
end

local function reduction(name)
  return function(x, axes, keepdims)
    check_tensor(name, x)
    axes = axes_of(name, axes, x.ndim)
    return reduced(x, op[name](x, {axes = axes}), axes, keepdims)
  end
end

--- Sums, extrema and logic over axes (nil: all; a number or a list); keepdims leaves dims of size 1.
M.sum, M.max, M.min = reduction "sum", reduction "max", reduction "min"
M.all, M.any = reduction "all", reduction "any"

local function arg_reduction(name)
  return function(x, axis, keepdims)
    check_tensor(name, x)
    if axis == nil then
      x, axis = op.reshape(x, {dims = {x.size}}), 1
    end
    local axes = {axis_of(name, axis, x.ndim)}
    return reduced(x, op[name](x, {axes = axes}), axes, keepdims)
  end
end

--- The 0-based place of the first largest (smallest) along an axis; without one, in row-major order.
M.argmax, M.argmin = arg_reduction "argmax", arg_reduction "argmin"

local function to_float(x)
  return x.dtype:match("float") and x or op.astype(x, {dtype = "float32"})
end

local function count_of(x, axes)
  local n = 1
  for _, a in ipairs(axes) do n = n * x.shape[a] end
  return n
end

--- fn of x as a float wide enough for sums and counts, its result as the float that x is.
local function in_sums(x, fn)
  local dtype = x.dtype:match("float") and x.dtype or "float32"
  local wide = dtype == "float64" and dtype or "float32"
  local y = fn(x.dtype == wide and x or op.astype(x, {dtype = wide}))
  return wide == dtype and y or op.astype(y, {dtype = dtype})
end

--- The mean over axes; integers become float32.
function M.mean(x, axes, keepdims)
  axes = axes_of("mean", axes, check_tensor("mean", x).ndim)
  return in_sums(x, function(w)
    return op.div(reduced(w, op.sum(w, {axes = axes}), axes, keepdims), count_of(w, axes))
  end)
end

--- The variance over axes, divided by n - ddof (ddof default 0).
function M.var(x, axes, keepdims, ddof)
  if ddof ~= nil then lib.check_integer("var", "ddof", ddof) end
  axes = axes_of("var", axes, check_tensor("var", x).ndim)
  return in_sums(x, function(w)
    local n = count_of(w, axes)
    local mean = op.div(op.sum(w, {axes = axes}), n)
    local squares = op.square(op.sub(w, mean))
    return op.div(reduced(w, op.sum(squares, {axes = axes}), axes, keepdims), n - (ddof or 0))
  end)
end

--- The standard deviation over axes.
function M.std(x, axes, keepdims, ddof)
  return in_sums(check_tensor("std", x), function(w) return op.sqrt(M.var(w, axes, keepdims, ddof)) end)
end

--- log(sum(exp(x))) over axes, without overflow.
function M.logsumexp(x, axes, keepdims)
  axes = axes_of("logsumexp", axes, check_tensor("logsumexp", x).ndim)
  return in_sums(x, function(w)
    local m = op.stop_gradient(op.max(w, {axes = axes}))
    m = op.where(op.isfinite(m), m, 0.0)
    local s = op.log(op.sum(op.exp(op.sub(w, m)), {axes = axes}))
    return reduced(w, op.add(s, m), axes, keepdims)
  end)
end

-- ---- products -------------------------------------------------------------------------------------

--- The matrix product by numpy's rules: the last dim of x with the second last of w (the only one of a
--- vector); leading dims are batch dims and broadcast.
---@param x Tensor
---@param w Tensor
function M.matmul(x, w)
  check_tensor("matmul", x)
  check_tensor("matmul", w)
  local list = meet("matmul", {x, w})
  x, w = list[1], list[2]
  local rx, rw = x.ndim, w.ndim
  if rx == 0 or rw == 0 then raise("E_SHAPE", "matmul: a scalar operand; use *") end
  if rw <= 2 then
    return op.matmul(x, w, {x_contract = {rx}, w_contract = {math.max(rw - 1, 1)},
      x_batch = {}, w_batch = {}})
  end
  if rx == 1 then
    return op.matmul(x, w, {x_contract = {1}, w_contract = {rw - 1}, x_batch = {}, w_batch = {}})
  end
  -- Batched: bring the batch dims to one shape.
  local nb = math.max(rx, rw) - 2
  local sx, sw, bx, bw = x.shape, w.shape, {}, {}
  for i = 1, nb do
    local dx, dw = sx[rx - 1 - nb + i - 1] or 1, sw[rw - 1 - nb + i - 1] or 1
    if rx - 2 - nb + i < 1 then dx = 1 end
    if rw - 2 - nb + i < 1 then dw = 1 end
    if dx ~= dw and dx ~= 1 and dw ~= 1 then
      raise("E_SHAPE", "matmul: batch dims %d and %d differ (x %s, w %s)", dx, dw,
        core.typeof(x), core.typeof(w))
    end
    bx[i] = math.max(dx, dw) * (math.min(dx, dw) == 0 and 0 or 1)
    bw[i] = bx[i]
  end
  bx[nb + 1], bx[nb + 2] = sx[rx - 1], sx[rx]
  bw[nb + 1], bw[nb + 2] = sw[rw - 1], sw[rw]
  local batch = {}
  for i = 1, nb do batch[i] = i end
  return op.matmul(M.broadcast(x, bx), M.broadcast(w, bw),
    {x_contract = {nb + 2}, w_contract = {nb + 1}, x_batch = batch, w_batch = batch})
end

--- A sum of products of two tensors (or a sum over one) by letters: einsum("btc,vc->btv", x, w). Letters
--- that the result lacks are summed over.
---@param spec string
function M.einsum(spec, x, w)
  if type(spec) ~= "string" then
    raise("E_VALUE", "einsum: expected a text like \"ij,jk->ik\" first, got %s", lib.kind(spec))
  end
  local inputs, result = spec:gsub("%s", ""):match("^([%a,]+)%->(%a*)$")
  if not inputs then raise("E_VALUE", "einsum: cannot read '%s'; write \"ij,jk->ik\"", spec) end
  local a, b = inputs:match("^(%a+),(%a+)$")
  if not a then a = inputs end
  if (b == nil) ~= (w == nil) then
    raise("E_VALUE", "einsum: '%s' has %d operands, %d are given", spec, b and 2 or 1, w and 2 or 1)
  end
  local function check(letters, t)
    local seen = {}
    if #letters ~= check_tensor("einsum", t).ndim then
      raise("E_SHAPE", "einsum: '%s' for a tensor of rank %d", letters, t.ndim)
    end
    for c in letters:gmatch(".") do
      if seen[c] then raise("E_VALUE", "einsum: '%s' repeats %s; diagonals are not taken", letters, c) end
      seen[c] = true
    end
  end
  local function sum_out(letters, t, keep)
    local axes, left = {}, ""
    for i = 1, #letters do
      local c = letters:sub(i, i)
      if keep:find(c, 1, true) then left = left .. c else axes[#axes + 1] = i end
    end
    if #axes == 0 then return letters, t end
    return left, M.sum(t, axes)
  end
  local function arrange(letters, t)
    local perm = {}
    if #letters ~= #result then raise("E_VALUE", "einsum: the result of '%s' has unknown letters", spec) end
    for i = 1, #result do
      perm[i] = letters:find(result:sub(i, i), 1, true)
      if not perm[i] then raise("E_VALUE", "einsum: '%s' is in no operand", result:sub(i, i)) end
    end
    for i = 1, #perm do
      if perm[i] ~= i then return op.transpose(t, {perm = perm}) end
    end
    return t
  end
  check(a, x)
  if not b then
    a, x = sum_out(a, x, result)
    return arrange(a, x)
  end
  check(b, w)
  a, x = sum_out(a, x, b .. result)
  b, w = sum_out(b, w, a .. result)
  local list = meet("einsum", {x, w})
  x, w = list[1], list[2]
  -- Letters in both: batch if the result has them, else contracted; in x's order, which w must share.
  local batch, contract, free = "", "", ""
  for c in a:gmatch(".") do
    if b:find(c, 1, true) then
      if result:find(c, 1, true) then batch = batch .. c else contract = contract .. c end
    else
      free = free .. c
    end
  end
  local function positions(letters, within)
    local list_of, last, ordered = {}, 0, true
    for i = 1, #letters do
      list_of[i] = within:find(letters:sub(i, i), 1, true)
      ordered = ordered and list_of[i] > last
      last = list_of[i]
    end
    return list_of, ordered
  end
  local w_batch, batch_ordered = positions(batch, b)
  local w_contract, contract_ordered = positions(contract, b)
  if not (batch_ordered and contract_ordered) then
    local rest, order, perm = "", batch .. contract, {}
    for c in b:gmatch(".") do
      if not order:find(c, 1, true) then rest = rest .. c end
    end
    local wanted = order .. rest
    for i = 1, #wanted do perm[i] = b:find(wanted:sub(i, i), 1, true) end
    w, b = op.transpose(w, {perm = perm}), wanted
    w_batch, w_contract = positions(batch, b), positions(contract, b)
  end
  local y = op.matmul(x, w, {x_batch = (positions(batch, a)), w_batch = w_batch,
    x_contract = (positions(contract, a)), w_contract = w_contract})
  local letters = batch .. free
  for c in b:gmatch(".") do
    if not a:find(c, 1, true) then letters = letters .. c end
  end
  return arrange(letters, y)
end

-- ---- along one axis -------------------------------------------------------------------------------

--- Applies a function of the last dim to another axis.
local function along(who, x, axis, fn)
  x = to_float(check_tensor(who, x))
  axis = axis_of(who, axis or -1, x.ndim)
  if axis == x.ndim then return fn(x) end
  return M.swapaxes(fn(M.swapaxes(x, axis, x.ndim)), axis, x.ndim)
end

--- exp(x) / sum(exp(x)) along an axis (default the last).
function M.softmax(x, axis) return along("softmax", x, axis, op.softmax) end

--- x - log(sum(exp(x))) along an axis (default the last).
function M.log_softmax(x, axis) return along("log_softmax", x, axis, op.log_softmax) end

-- ---- making tensors -------------------------------------------------------------------------------

local function dtype_for(value, dtype)
  if dtype then return dtype end
  if type(value) == "boolean" then return "bool" end
  return math.type(value) == "integer" and "int32" or "float32"
end

--- A tensor of a number or boolean, or of nested lists of them. Whole numbers are int32, others float32,
--- unless a dtype is given.
---@param values number|boolean|table
---@param dtype string?
function M.tensor(values, dtype)
  local x = core.tensor(values, dtype) -- 16-bit floats come as float32
  return dtype and x.dtype ~= dtype and M.astype(x, dtype) or x
end

--- Every element the same number. The dtype follows the number: full({2}, 0) is int32, 0.0 float32.
---@param shape integer[]
---@param value number|boolean
---@param dtype string?
function M.full(shape, value, dtype)
  if type(value) ~= "number" and type(value) ~= "boolean" then
    raise("E_VALUE", "full: expected a number or boolean, got %s", lib.kind(value))
  end
  return op.full {dims = shape_of("full", shape), value = value, dtype = dtype_for(value, dtype)}
end

--- Zeros, ones: float32 unless a dtype is given.
function M.zeros(shape, dtype) return M.full(shape, 0.0, dtype or "float32") end
function M.ones(shape, dtype) return M.full(shape, 1.0, dtype or "float32") end

--- 0, 1, 2, ... along the dim of a shape.
function M.iota(shape, dim, dtype)
  return op.iota {dims = shape_of("iota", shape), dim = dim or 1, dtype = dtype or "int32"}
end

--- arange(n): 0 .. n-1; arange(first, last, step): below last. int32 for whole numbers, float32 for
--- others, or the dtype given.
function M.arange(first, last, step, dtype)
  if type(last) == "string" then last, dtype = nil, last end
  if last == nil then first, last = math.type(first) == "integer" and 0 or 0.0, first end
  step = step or 1
  if type(first) ~= "number" or type(last) ~= "number" or type(step) ~= "number" or step == 0 then
    raise("E_VALUE", "arange: expected numbers and a step that is not 0")
  end
  local whole = math.type(first) == "integer" and math.type(last) == "integer"
    and math.type(step) == "integer"
  dtype = dtype or (whole and "int32" or "float32")
  local n = math.tointeger(math.max(0, math.ceil((last + 0.0 - first) / step)))
  if not n then raise("E_VALUE", "arange: from %s to %s by %s is no number of elements", first, last, step) end
  local largest = first + (n - 1) * step
  if dtype == "int32" and n > 0 and math.max(math.abs(first), math.abs(largest)) > 2147483647 then
    raise("E_VALUE", "arange: %s does not fit in int32", tostring(largest))
  end
  local x = op.iota {dims = {n}, dim = 1, dtype = dtype}
  if step ~= 1 then x = op.mul(x, step) end
  if first ~= 0 then x = op.add(x, first) end
  return x
end

--- n numbers from first to last, both included: float32.
function M.linspace(first, last, n)
  lib.check_integer("linspace", "the number of elements", n)
  if type(first) ~= "number" or type(last) ~= "number" then
    raise("E_VALUE", "linspace: expected numbers, got %s and %s", lib.kind(first), lib.kind(last))
  end
  local x = op.iota {dims = {n}, dim = 1, dtype = "float32"}
  return op.add(op.mul(x, n > 1 and (last - first) / (n - 1) or 0.0), first + 0.0)
end

--- The identity matrix.
function M.eye(n, m, dtype)
  local shape = shape_of("eye", {n, m or n})
  local row, column = M.iota(shape, 1), M.iota(shape, 2)
  return op.astype(op.eq(row, column), {dtype = dtype or "float32"})
end

--- A constant with the shape, dtype and sharding of x.
function M.full_like(x, value, dtype)
  check_tensor("full_like", x)
  if type(value) ~= "number" and type(value) ~= "boolean" then
    raise("E_VALUE", "full_like: expected a number or boolean, got %s", lib.kind(value))
  end
  local y = op.full {dims = x.shape, value = value, dtype = dtype or x.dtype}
  if not core.is_traced(x) and x.sharding.mesh then y = op.constrain(y, {layout = x.sharding}) end
  return y
end
function M.zeros_like(x, dtype) return M.full_like(x, 0, dtype) end
function M.ones_like(x, dtype) return M.full_like(x, 1, dtype) end

return M
