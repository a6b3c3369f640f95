-- index.lua: elements and rows by 0-based id: taken, and changed. All stand on two ops of the core: gather, and
-- scatter (add, mul, max, min). Their attributes say which dims belong together: dim d of the rows (what is taken, or
-- the updates) is dim table[d] of x and dim ids[d] of the ids, 0 for none; `axes` are those that ids name.
local core = require "meshlua.core"
local lib = require "meshlua.lib"
local args = require "meshlua.ops.args"
local shapes = require "meshlua.ops.shape"

local op, raise = core.op, lib.raise
local check_tensor, axis_of, copy = args.check_tensor, args.axis_of, args.copy

local MOST_DIMS = 8

local M = {}

-- ---- ids outside ----------------------------------------------------------------------------------------

--- The words of the core for what becomes of an id beyond both ends; strict: of one below 0, too.
local modes = {error = "error", drop = "drop", fill = "drop", clip = "clip", wrap = "wrap", strict = "strict"}

local function check_mode(who, mode)
  if mode ~= nil and not modes[mode] then
    raise("E_VALUE", "%s: mode %s; it is 'error', 'strict', 'fill', 'drop', 'clip' or 'wrap'", who,
      type(mode) == "string" and "'" .. mode .. "'" or lib.kind(mode))
  end
  return mode or "error"
end

--- Ids of any integer dtype as int32.
local function check_ids(who, ids, n, mode)
  check_tensor(who, ids, "ids")
  local dtype = ids.dtype
  if not dtype:match "int" then
    raise("E_DTYPE", "%s: the ids must be int32, not %s; ids:astype \"int32\"", who, dtype)
  end
  if mode == "wrap" and n and n > 0 and (dtype == "int64" or dtype == "uint32") then ids = op.rem(ids, n) end
  return args.to_int32(ids)
end

--- What stands for an element that is not there, as in JAX: NaN, the least of signed integers, the largest of
--- unsigned ones, true.
local function filler(dtype)
  if lib.floats[dtype] then return 0 / 0 end
  if dtype == "bool" then return true end
  local bits = lib.element_bytes[dtype] * 8
  if dtype:match "^u" then return bits == 64 and -1 or (1 << bits) - 1 end
  return -1 << (bits - 1)
end

--- Which rows their ids find, as a mask that broadcasts to the rows.
local function found(ids, attr)
  local found_all
  for k, n in ipairs(attr.size) do
    local id = ids
    if #attr.size > 1 then
      local start, limit, step = {}, copy(ids.shape), {}
      for d = 1, ids.ndim do start[d], step[d] = 0, 1 end
      start[#start], limit[#limit] = k - 1, k
      local dims = copy(ids.shape)
      dims[#dims] = nil
      id = op.reshape(op.slice(ids, {start = start, limit = limit, step = step}), {dims = dims})
    end
    local inside = op.bitand(op.ge(id, -n), op.lt(id, n))
    found_all = found_all and op.bitand(found_all, inside) or inside
  end
  return found_all
end

--- What is gathered, with `fill` (or what JAX has for it) where there is nothing.
local function gather(x, ids, attr, mode, fill)
  attr.outside = modes[mode]
  local y = op.gather(x, ids, attr)
  if modes[mode] ~= "drop" or fill == 0 then return y end
  local shape, at = y.shape, {}
  for d, i in ipairs(attr.ids) do
    if i > 0 then at[i] = d end
  end
  local mask = op.broadcast(found(ids, attr), {dims = shape, at = at})
  if fill == nil then fill = filler(x.dtype) end
  return op.where(mask, y, op.full {dtype = x.dtype, dims = shape, value = fill})
end

-- ---- along one axis -------------------------------------------------------------------------------------

--- The ids' dims in an axis's place.
local function of_rows(rank, nids, axis, size)
  local attr = {axes = {axis}, table = {}, ids = {}, size = {size}}
  for d = 1, rank + nids - 1 do
    local own = d >= axis and d < axis + nids
    attr.table[d] = own and 0 or d < axis and d or d - nids + 1
    attr.ids[d] = own and d - axis + 1 or 0
  end
  return attr
end

--- Each line along an axis has ids of its own.
local function of_lines(rank, axis, size)
  local attr = {axes = {axis}, table = {}, ids = {}, size = {size}}
  for d = 1, rank do attr.table[d], attr.ids[d] = d == axis and 0 or d, d end
  return attr
end

--- Rows of x by 0-based id along an axis (default 1): the ids' shape takes the axis's place. Ids below 0 count from
--- the end. One beyond both ends is an error, or by mode: "fill" (NaN, or `fill`), "clip" (the nearest end), "wrap";
--- "strict": so is one below 0.
---@param x Tensor
---@param ids Tensor of integers
---@param axis integer?
---@param mode string?
---@param fill number|boolean?
---@return Tensor
function M.take(x, ids, axis, mode, fill)
  check_tensor("take", x)
  axis, mode = axis_of("take", axis or 1, x.ndim), check_mode("take", mode)
  local n = x.shape[axis]
  ids = check_ids("take", ids, n, mode)
  if x.ndim - 1 + ids.ndim > MOST_DIMS then
    raise("E_SHAPE", "take: ids of rank %d from %s would make rank %d; a tensor has at most %d dims",
      ids.ndim, core.typeof(x), x.ndim - 1 + ids.ndim, MOST_DIMS)
  end
  return gather(x, ids, of_rows(x.ndim, ids.ndim, axis, n), mode, fill)
end

--- x with its dims of size 1 beside the axis as large as the other's.
local function stretch(x, other, axis)
  local shape, larger = copy(x.shape), false
  for d, n in ipairs(other) do
    if d ~= axis and shape[d] == 1 and n ~= 1 then shape[d], larger = n, true end
  end
  return larger and shapes.broadcast(x, shape) or x
end

--- Refuses ids that do not lie beside x.
local function check_lines(who, x, ids, axis)
  if ids.ndim ~= x.ndim then
    raise("E_SHAPE", "%s: the ids must have x's rank, a dim of size 1 where all share them (x %s, ids %s)",
      who, core.typeof(x), core.typeof(ids))
  end
  for d, n in ipairs(ids.shape) do
    if d ~= axis and n ~= x.shape[d] then
      raise("E_SHAPE", "%s: dim %d of the ids is not dim %d of x (x %s, ids %s)", who, d, d, core.typeof(x),
        core.typeof(ids))
    end
  end
end

--- The elements of each line of x along an axis at 0-based indices: along axis 2 y[i, k] is x[i, indices[i, k]].
--- Both have one rank; dims of size 1 beside the axis stretch. Below 0 and outside as in ml.take.
---@param x Tensor
---@param indices Tensor of integers
---@param axis integer
---@param mode string?
---@param fill number|boolean?
---@return Tensor of the indices' size along the axis
function M.take_along_axis(x, indices, axis, mode, fill)
  local who = "take_along_axis"
  check_tensor(who, x)
  mode, axis = check_mode(who, mode), axis_of(who, axis, x.ndim)
  local n = x.shape[axis]
  indices = check_ids(who, indices, n, mode)
  if indices.ndim == x.ndim then
    x, indices = stretch(x, indices.shape, axis), stretch(indices, x.shape, axis)
  end
  check_lines(who, x, indices, axis)
  return gather(x, indices, of_lines(x.ndim, axis, n), mode, fill)
end

-- ---- changed --------------------------------------------------------------------------------------------

--- Updates for rows of this shape: of x's dtype, by numpy's rule as large.
local function updates_for(who, u, x, shape)
  local dtype = x.dtype
  if type(u) == "number" or type(u) == "boolean" then
    if type(u) == "boolean" and dtype ~= "bool" then
      raise("E_DTYPE", "%s: a boolean into %s", who, core.typeof(x))
    end
    if math.type(u) == "float" and not lib.floats[dtype] and u ~= math.floor(u) then
      raise("E_DTYPE", "%s: %s into %s; x:astype first", who, u, core.typeof(x))
    end
    return op.full {dtype = dtype, dims = shape, value = u}
  end
  check_tensor(who, u, "the updates")
  if u.dtype ~= dtype then
    if core.promote(dtype, u.dtype) ~= dtype then
      raise("E_DTYPE", "%s: %s into %s; astype first", who, core.typeof(u), core.typeof(x))
    end
    u = args.as(u, dtype)
  end
  if lib.same_shape(u.shape, shape) then return u end
  local own = u.shape
  for d = 1, #own do
    local n = shape[#shape - #own + d]
    if #own > #shape or own[d] ~= 1 and own[d] ~= n then
      raise("E_SHAPE", "%s: the updates are %s; at these ids of %s they must be %s, or stretch to it", who,
        core.typeof(u), core.typeof(x), lib.shape_text(shape))
    end
  end
  return shapes.broadcast(u, shape)
end

local arithmetic = {add = true, mul = true}

--- x changed by updates; `combine`: "set", "add", "mul", "max" or "min".
local function scatter(who, combine, x, ids, u, attr, mode)
  local shape, dtype = {}, x.dtype
  for d, from in ipairs(attr.table) do shape[d] = from > 0 and x.shape[from] or ids.shape[attr.ids[d]] end
  if dtype == "bool" and arithmetic[combine] then
    raise("E_DTYPE", "%s: no arithmetic of bools (x %s); x:astype first", who, core.typeof(x))
  end
  u = updates_for(who, u, x, shape)
  attr.outside, attr.combine = modes[mode], combine
  local fn = (combine == "set" or combine == "add") and op.scatter or op.scatter_reduce
  return fn(x, ids, u, attr)
end

--- A table of `size` rows of zeros along `axis` (default 1), with the updates added to rows `ids`.
---@param ids Tensor of integers
---@param updates Tensor
---@param size integer
---@param axis integer?
---@param mode string? as of ml.take; "fill" and "drop" leave out
---@return Tensor
function M.scatter_add(ids, updates, size, axis, mode)
  local who = "scatter_add"
  mode = check_mode(who, mode)
  ids = check_ids(who, ids, lib.check_integer(who, "the size", size), mode)
  check_tensor(who, updates)
  local nids = ids.ndim
  axis = axis_of(who, axis or 1, updates.ndim - nids + 1)
  local attr = of_rows(updates.ndim - nids + 1, nids, axis, size)
  attr.rows, attr.outside = {size}, modes[mode]
  return op.scatter_add(ids, updates, attr)
end

--- x with its rows `ids` along an axis (default 1) replaced by the updates; of several of one row the last. Below 0
--- and outside as in ml.take; "fill" and "drop" leave out.
---@param x Tensor
---@param ids Tensor 0-based
---@param updates Tensor|number of x's dtype; x's shape with the ids' in the axis's place, or what stretches to it
---@param axis integer?
---@param mode string?
---@return Tensor of x's shape
function M.scatter_set(x, ids, updates, axis, mode)
  local who = "scatter_set"
  check_tensor(who, x)
  axis, mode = axis_of(who, axis or 1, x.ndim), check_mode(who, mode)
  ids = check_ids(who, ids, x.shape[axis], mode)
  return scatter(who, "set", x, ids, updates, of_rows(x.ndim, ids.ndim, axis, x.shape[axis]), mode)
end

--- x with the elements of each line along an axis changed at indices, as take_along_axis finds them: set, or combined
--- by "add", "mul", "max" or "min". Of several of one place "set" leaves the last.
---@param x Tensor
---@param indices Tensor of integers
---@param values Tensor|number
---@param axis integer
---@param combine string? default "set"
---@param mode string? as of ml.take; "fill" and "drop" leave out
---@return Tensor of x's shape
function M.put_along_axis(x, indices, values, axis, combine, mode)
  local who = "put_along_axis"
  check_tensor(who, x)
  mode, axis = check_mode(who, mode), axis_of(who, axis, x.ndim)
  indices = check_ids(who, indices, x.shape[axis], mode)
  if indices.ndim == x.ndim then indices = stretch(indices, x.shape, axis) end
  check_lines(who, x, indices, axis)
  return scatter(who, combine or "set", x, indices, values, of_lines(x.ndim, axis, x.shape[axis]), mode)
end

-- ---- several axes: x:at(ids, ...) -----------------------------------------------------------------------

---@class At
---@field x Tensor
---@field ids Tensor
---@field attr table
---@field mask Tensor?
local At = {}
local At_meta = {__index = At, __name = "At"}

--- The shape that all of some tensors stretch to.
local function common_shape(who, list)
  local shape = {}
  for _, x in ipairs(list) do
    local both = args.stretched(shape, x.shape, 0)
    if not both then
      raise("E_SHAPE", "%s: ids of shapes %s and %s do not stretch to one", who, lib.shape_text(shape),
        lib.shape_text(x.shape))
    end
    shape = both
  end
  return shape
end

--- The ids of several axes as one tensor, whose last dim has one for each.
local function joined(list, shape)
  local parts, dims = {}, copy(shape)
  dims[#dims + 1] = 1
  for k, ids in ipairs(list) do
    if not lib.same_shape(ids.shape, shape) then ids = shapes.broadcast(ids, shape) end
    parts[k] = op.reshape(ids, {dims = dims})
  end
  if #parts == 1 then return list[1] end
  parts[#parts + 1] = {axis = #dims}
  return op.concat(table.unpack(parts))
end

--- Where the rows' dims come from: dims of x that no ids name, and the ids' in the place of the axes where these are
--- neighbours, else in front.
local function of_axes(x, axes, nids)
  local attr = {axes = axes, table = {}, ids = {}, size = {}}
  local named, shape, first = {}, x.shape, axes[#axes] - axes[1] == #axes - 1 and axes[1] or 1
  for k, axis in ipairs(axes) do named[axis], attr.size[k] = true, shape[axis] end
  local function ids_here()
    for i = 1, nids do attr.table[#attr.table + 1], attr.ids[#attr.ids + 1] = 0, i end
  end
  for d = 1, x.ndim do
    if d == first then ids_here() end
    if not named[d] then attr.table[#attr.table + 1], attr.ids[#attr.ids + 1] = d, 0 end
  end
  return attr
end

--- The elements of x that a mask marks, or that ids name, one tensor for each dim from the first on (false: all of the
--- dim): to be read, or changed, by the methods. The ids stretch to one shape, which stands in the result in the place
--- of their dims, in front where other dims lie between.
---@param x Tensor
---@param ... Tensor|false
---@return At
function M.at_ids(x, ...)
  local list, axes, given = {}, {}, select("#", ...)
  if lib.is_tensor((...)) and (...).dtype == "bool" then
    local mask, shape = (...), x.shape
    local fits = given == 1 and mask.ndim <= #shape
    for d, n in ipairs(mask.shape) do fits = fits and n == shape[d] end
    if not fits then
      raise("E_SHAPE", "at: a mask stands alone and has x's first dims (x %s, mask %s)", core.typeof(x),
        core.typeof(mask))
    end
    for _ = mask.ndim + 1, #shape do mask = shapes.expand_dims(mask, -1) end
    return setmetatable({x = x, mask = shapes.broadcast(mask, shape)}, At_meta)
  end
  if given > x.ndim then
    raise("E_SHAPE", "at: ids for %d dims of %s", given, core.typeof(x))
  end
  for d = 1, given do
    local ids = select(d, ...)
    if ids then
      if not lib.is_tensor(ids) then
        raise("E_VALUE", "at: beside ids stand ids, or false for a whole dim, not %s; x:slice(...) first",
          lib.kind(ids))
      end
      list[#list + 1], axes[#axes + 1] = ids, d
    end
  end
  return setmetatable({x = x, list = list, axes = axes}, At_meta)
end

--- The ids, and which dims belong together.
local function resolve(self, who, mode)
  local list = {}
  for k, ids in ipairs(self.list) do list[k] = check_ids(who, ids, self.x.shape[self.axes[k]], mode) end
  local shape = common_shape(who, list)
  return joined(list, shape), of_axes(self.x, copy(self.axes), #shape)
end

--- The elements.
---@param mode string? as of ml.take
---@param fill number|boolean?
---@return Tensor
function At:get(mode, fill)
  mode = check_mode("at:get", mode)
  if self.mask then
    raise("E_SHAPE", "at:get: how many a mask marks is not known; ml.compress(x, mask, size) has a size")
  end
  local ids, attr = resolve(self, "at:get", mode)
  return gather(self.x, ids, attr, mode, fill)
end

--- What becomes of an element of x and the update beside it.
local pairwise = {
  set = function(_, u) return u end,
  add = op.add,
  mul = op.mul,
  max = op.maximum,
  min = op.minimum,
}

for combine, of_both in pairs(pairwise) do
  local who = "at:" .. combine
  At[combine] = function(self, u, mode)
    mode = check_mode(who, mode)
    local x = self.x
    if self.mask then
      return op.where(self.mask, of_both(x, updates_for(who, u, x, x.shape)), x)
    end
    local ids, attr = resolve(self, who, mode)
    return scatter(who, combine, x, ids, u, attr, mode)
  end
end

lib.hold(lib.export_checked(At, "At:"), "At:")

-- ---- segments -------------------------------------------------------------------------------------------

local lowest = {["bool"] = false, uint8 = 0, uint16 = 0, uint32 = 0, uint64 = 0}

--- The least, or the largest, number of a dtype.
local function extreme(dtype, is_least)
  if lib.floats[dtype] then return is_least and -math.huge or math.huge end
  local least = lowest[dtype]
  if is_least and least ~= nil then return least end
  if dtype == "bool" then return true end
  local top = filler(dtype)
  return is_least and top or lowest[dtype] and top or ~top
end

--- What a segment without elements has.
local identity = {
  mul = function(dtype) return lib.floats[dtype] and 1.0 or 1 end,
  max = function(dtype) return extreme(dtype, true) end,
  min = function(dtype) return extreme(dtype, false) end,
}

local function segments(who, combine, x, ids, n, mode)
  check_tensor(who, x)
  mode = check_mode(who, mode or "drop")
  n = lib.check_integer(who, "the number of segments", n)
  ids = check_ids(who, ids, n, mode)
  local shape = x.shape
  if n < 0 then raise("E_VALUE", "%s: %d segments", who, n) end
  if ids.ndim > #shape or not lib.same_shape(ids.shape, table.move(shape, 1, ids.ndim, 1, {})) then
    raise("E_SHAPE", "%s: the ids must have x's first dims (x %s, ids %s)", who, core.typeof(x),
      core.typeof(ids))
  end
  if x.dtype == "bool" and combine ~= "max" and combine ~= "min" then
    raise("E_DTYPE", "%s: no arithmetic of bools (x %s); x:astype first", who, core.typeof(x))
  end
  if mode ~= "wrap" then ids = op.where(op.lt(ids, 0), mode == "clip" and 0 or 2147483647, ids) end
  local attr = of_rows(#shape - ids.ndim + 1, ids.ndim, 1, n)
  if combine == "add" then
    attr.rows, attr.outside = {n}, modes[mode]
    return op.scatter_add(ids, x, attr)
  end
  local dims = {n, table.unpack(shape, ids.ndim + 1)}
  local empty = op.full {dtype = x.dtype, dims = dims, value = identity[combine](x.dtype)}
  return scatter(who, combine, empty, ids, x, attr, mode)
end

--- For each of n segments the sum of the rows of x whose ids, one for each row, name it. An id that is none of
--- 0..n-1 is left out, or by mode: "error", "clip", "wrap".
---@param x Tensor
---@param ids Tensor of integers, x's first dims
---@param n integer
---@param mode string? default "drop"
---@return Tensor [n, ...]
function M.segment_sum(x, ids, n, mode) return segments("segment_sum", "add", x, ids, n, mode) end

--- The same of products; of no rows 1.
---@param x Tensor
---@param ids Tensor
---@param n integer
---@param mode string?
---@return Tensor
function M.segment_prod(x, ids, n, mode) return segments("segment_prod", "mul", x, ids, n, mode) end

--- The same of the largest; of no rows the least number of the dtype.
---@param x Tensor
---@param ids Tensor
---@param n integer
---@param mode string?
---@return Tensor
function M.segment_max(x, ids, n, mode) return segments("segment_max", "max", x, ids, n, mode) end

--- The same of the smallest; of no rows the largest number of the dtype.
---@param x Tensor
---@param ids Tensor
---@param n integer
---@param mode string?
---@return Tensor
function M.segment_min(x, ids, n, mode) return segments("segment_min", "min", x, ids, n, mode) end

return M
