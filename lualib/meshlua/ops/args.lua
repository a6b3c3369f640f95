-- args.lua: how the functions on tensors read their arguments. `who` is the function, for messages.
local core = require "meshlua.core"
local lib = require "meshlua.lib"

local raise = lib.raise

local M = {}

--- Raises unless x is a tensor or a Param; returns it.
---@param what string? which argument it is
function M.check_tensor(who, x, what)
  if not lib.is_tensor(x) then
    local colon = not what and (x == nil or type(x) == "number" or type(x) == "string")
    raise("E_VALUE", "%s: expected a tensor%s, got %s%s", who, what and " as " .. what or "", lib.kind(x),
      type(x) == "table" and "; ml.tensor(list) makes one"
      or colon and ("; as a method it is called with a colon: x:%s(...)"):format(who) or "")
  end
  return x
end

--- x in another dtype; itself where it has that.
---@param x Tensor|Param
---@param dtype string
---@return Tensor|Param
function M.as(x, dtype) return x.dtype == dtype and x or core.op.astype(x, {dtype = dtype}) end

--- fn of x as a float wide enough for what is between, its result as the float that x is.
---@param x Tensor|Param
---@param fn fun(x: Tensor): Tensor
---@return Tensor
function M.in_sums(x, fn)
  local dtype = lib.floats[x.dtype] and x.dtype or "float32"
  return M.as(fn(M.as(x, dtype == "float64" and dtype or "float32")), dtype)
end

--- Raises unless x is a number or a tensor.
function M.check_operand(who, x)
  if type(x) ~= "number" then M.check_tensor(who, x) end
end

function M.check_dtype(who, dtype)
  if type(dtype) ~= "string" then
    raise("E_VALUE", "%s: expected the name of a dtype, got %s", who, lib.kind(dtype))
  end
  return dtype
end

--- Integers as int32. Those that it does not hold stop at its ends: as ids and starts they stay outside.
---@param x Tensor
---@return Tensor
function M.to_int32(x)
  local op, dtype = core.op, x.dtype
  if dtype == "int32" then return x end
  if dtype == "int64" then x = op.maximum(x, -2147483648) end
  if dtype == "int64" or dtype == "uint32" or dtype == "uint64" then x = op.minimum(x, 2147483647) end
  return op.astype(x, {dtype = "int32"})
end

--- An axis as 1..rank.
function M.axis_of(who, axis, rank)
  if math.type(axis) ~= "integer" then
    raise("E_VALUE", "%s: an axis is a whole number, not %s", who, lib.not_whole(axis))
  end
  local a = axis < 0 and axis + rank + 1 or axis
  if a < 1 or a > rank then
    raise("E_SHAPE", "%s: axis %d of a tensor of rank %d; axes count from 1", who, axis, rank)
  end
  return a
end

-- The list of the axes whose bits are set, for each number that was asked for.
local lists = {}

local function list_of(bits)
  local list = {}
  for a = 1, 64 do
    if bits >> a & 1 == 1 then list[#list + 1] = a end
  end
  lists[bits] = list
  return list
end

--- Axes as an ascending list, the same table for the same axes: not to be written. nil means all.
function M.axes_of(who, axes, rank)
  local bits = 0
  if axes == nil then
    bits = (2 << rank) - 2
  elseif type(axes) == "number" then
    bits = 1 << M.axis_of(who, axes, rank)
  else
    for _, axis in ipairs(lib.check_list(who, "axes", axes)) do
      local bit = 1 << M.axis_of(who, axis, rank)
      if bits & bit ~= 0 then raise("E_SHAPE", "%s: axis %d is given twice", who, axis) end
      bits = bits | bit
    end
  end
  return lists[bits] or list_of(bits)
end

--- The attributes of an op that has nothing but axes, by the lists of axes_of: read once.
---@param name string
---@return table<integer[], any>
function M.by_axes(name)
  return setmetatable({}, {__index = function(made, axes)
    local attr = core.attributes(name, {axes = axes})
    made[axes] = attr
    return attr
  end})
end

function M.copy(list)
  return table.move(list, 1, #list, 1, {})
end

--- How tensors of a dtype are multiplied to give another: the dtype that they are brought to, whether the
--- product then adds up and comes as what its sums have (op.matmul's `wide`), and the dtype of the result.
---@param who string
---@param dtype string
---@param wanted string? preferred_element_type
---@return string dtype, boolean? wide, string result
function M.product_dtypes(who, dtype, wanted)
  if wanted == nil or wanted == dtype then return dtype, nil, dtype end
  local floats, bytes = lib.floats, lib.element_bytes
  if not bytes[wanted] then core.promote(wanted, wanted) end -- names those that are there
  if dtype == "bool" or wanted == "bool" or floats[dtype] and not floats[wanted]
      or not floats[dtype] and bytes[wanted] < bytes[dtype] then
    raise("E_DTYPE", "%s: preferred_element_type %s of %s operands; it is a float, or of integers an integer "
      .. "that is no narrower; convert the result with astype", who, wanted, dtype)
  end
  if wanted == lib.sums[dtype] then return dtype, true, wanted end
  if floats[dtype] and bytes[dtype] < 4 and bytes[wanted] <= 4 then return dtype, true, wanted end
  if floats[dtype] and bytes[wanted] < bytes[dtype] then return dtype, nil, wanted end
  return wanted, nil, wanted
end

--- Brings a list of tensors to one dtype.
function M.meet(who, list)
  if #lib.check_list(who, "the tensors", list) == 0 then raise("E_VALUE", "%s: no tensors", who) end
  local dtype = nil
  for i, x in ipairs(list) do
    M.check_tensor(who, x)
    local d = x.dtype
    dtype = dtype and core.promote(dtype, d) or d
    list[i] = x
  end
  local out = {}
  for i, x in ipairs(list) do out[i] = M.as(x, dtype) end
  return out
end

--- One whole number for each of n dims: a number stands for all.
function M.each(who, what, value, n, default)
  if value == nil then value = default end
  if type(value) == "number" then
    local list = {}
    for i = 1, n do list[i] = value end
    value = list
  end
  lib.check_list(who, what, value)
  if #value ~= n then
    local one = what:gsub("s$", "")
    raise("E_SHAPE", "%s: %s for %s", who, lib.count(#value, one, what), lib.count(n, "dim"))
  end
  for i = 1, n do lib.check_integer(who, what, value[i]) end
  return value
end

--- The low and high pads of n dims; sizes, strides and windows (with dilations) say what "same" is.
---@param padding string|integer[][]|nil "same", "valid" or a pair for each dim
function M.pads(who, padding, sizes, strides, windows)
  local low, high = {}, {}
  local word = type(padding) == "string" and padding:lower() or padding == nil and "valid"
  if word and word ~= "same" and word ~= "valid" then
    raise("E_VALUE", "%s: padding '%s'; it is 'same', 'valid' or a {low, high} for each dim", who, padding)
  end
  if not word and #lib.check_list(who, "the padding", padding) ~= #sizes then
    raise("E_SHAPE", "%s: %s for %s", who, lib.count(#padding, "pad"), lib.count(#sizes, "dim"))
  end
  for i, n in ipairs(sizes) do
    if word == "valid" then
      low[i], high[i] = 0, 0
    elseif word then
      local stride = math.max(1, strides[i])
      local total = math.max(0, (-(-n // stride) - 1) * stride + windows[i] - n)
      low[i], high[i] = total // 2, total - total // 2
    else
      local pair = lib.check_list(who, "the pads of a dim", padding[i])
      low[i] = lib.check_integer(who, "the low pad", pair[1])
      high[i] = lib.check_integer(who, "the high pad", pair[2])
    end
  end
  return low, high
end

--- What two shapes stretch to by numpy's rule, from the end on, without their last `own` dims; nil and the two sizes
--- that do not fit.
---@param a integer[]
---@param b integer[]
---@param own integer
---@return integer[]? dims, integer? of_a, integer? of_b
function M.stretched(a, b, own)
  local most, dims = math.max(#a, #b), {}
  for d = 1, most - own do
    local ia, ib = d - most + #a, d - most + #b
    local da, db = ia > 0 and a[ia] or 1, ib > 0 and b[ib] or 1
    if da ~= db and da ~= 1 and db ~= 1 then return nil, da, db end
    dims[d] = da == 1 and db or da
  end
  return dims
end

return M
