-- view.lua: a box of a tensor as a strided view of an entry of a file. A view has the dims of the tensor; each is
-- the product of factors, outer to inner, {size, stride} with strides in elements of the entry. Verbs make a view of
-- a view, so that what they say is done by whoever copies, and nothing is moved for it. Each has its inverse: it
-- also says which shape it was made from.
local lib = require "meshlua.lib"

local product, same, shape_text = lib.product, lib.same_shape, lib.shape_text

local M = {}

---@class View
---@field dims {size: integer, at: integer, factors: integer[][]}[]
---@field offset integer

--- The view of a whole entry.
---@param shape integer[]
---@param column_major boolean?
---@return View
function M.whole(shape, column_major)
  local view, stride = {dims = {}, offset = 0}, 1
  for k = 1, #shape do
    local d = column_major and k or #shape + 1 - k
    view.dims[d] = {size = shape[d], at = 0, factors = {{shape[d], stride}}}
    stride = stride * shape[d]
  end
  return view
end

--- Factors without those of size 1, neighbours joined where one stride does for both.
local function joined(factors)
  local list = {}
  for _, factor in ipairs(factors) do
    local last = list[#list]
    if last and last[2] == factor[1] * factor[2] then
      list[#list] = {last[1] * factor[1], factor[2]}
    elseif factor[1] ~= 1 then
      list[#list + 1] = {factor[1], factor[2]}
    end
  end
  return list
end

--- The factors in groups of these sizes, outer to inner; nil where a group would end inside of what has one stride
--- and cannot be cut there.
---@param factors integer[][]
---@param sizes integer[] whose product is that of the factors
---@return integer[][][]?
local function regrouped(factors, sizes)
  local groups, list, k = {}, joined(factors), 1
  local empty = product(sizes) == 0
  for g, size in ipairs(sizes) do
    local group, need = {}, empty and 1 or size
    while need > 1 do
      local n, stride = list[k][1], list[k][2]
      if need % n == 0 then
        group[#group + 1], need, k = list[k], need // n, k + 1
      elseif n % need == 0 then
        group[#group + 1], list[k], need = {need, stride * (n // need)}, {n // need, stride}, 1
      else
        return nil
      end
    end
    groups[g] = empty and {{size, 1}} or group
  end
  return groups
end

local function gcd(a, b)
  while b ~= 0 do a, b = b, a % b end
  return a
end

--- The dim cut to `size` of its places, from `from` (0-based) on.
local function cut(view, dim, from, size)
  local factors = joined(dim.factors)
  if #factors > 1 then
    local inner = gcd(from, size)
    local groups = inner > 0 and dim.size % inner == 0 and regrouped(factors, {dim.size // inner, inner})
    if not groups or #groups[1] > 1 then return nil, "is no strided view of the file" end
    local outer = groups[1][1] or {1, 0}
    view.offset = view.offset + from // inner * outer[2]
    factors = {{size // inner, outer[2]}, table.unpack(groups[2])}
  elseif #factors == 1 then
    view.offset = view.offset + from * factors[1][2]
    factors = {{size, factors[1][2]}}
  end
  dim.size, dim.factors = size, factors
  return true
end

-- ---- verbs ------------------------------------------------------------------------------------------
-- check(args) gives what is wrong with the arguments, or nil. forward(view, args) changes the view; backward(shape,
-- args) gives the shape that forward makes this one of. Both give nil and what is wrong where it does not fit.

local verbs = {}
M.verbs = verbs

local function is_count(x) return math.type(x) == "integer" and x >= 1 end

local function has_dim(dims, d)
  if d > #dims then return nil, ("has no dim %d"):format(d) end
  return true
end

--- The permutation that transpose does: all dims the other way round, or as given.
local function permutation(args, rank)
  local order = args[1]
  if not order then
    order = {}
    for d = 1, rank do order[d] = rank + 1 - d end
  end
  if #order ~= rank then return nil, ("has rank %d, and transpose names %d dims"):format(rank, #order) end
  return order
end

verbs.transpose = {
  check = function(args)
    if args[1] == nil then return end
    if type(args[1]) ~= "table" then return "takes a list of all dims in their new order, or nothing" end
    local seen = {}
    for _, d in ipairs(args[1]) do seen[d] = true end
    for d = 1, #args[1] do
      if not seen[d] then return "takes each dim once" end
    end
  end,
  forward = function(view, args)
    local order, message = permutation(args, #view.dims)
    if not order then return nil, message end
    local dims = {}
    for d, from in ipairs(order) do dims[d] = view.dims[from] end
    view.dims = dims
    return true
  end,
  backward = function(shape, args)
    local order, message = permutation(args, #shape)
    if not order then return nil, message end
    local from = {}
    for d, to in ipairs(order) do from[to] = shape[d] end
    return from
  end,
}

--- Where the places of part k begin, how many they are, and how many all parts have; `part`, `whole`: of the two
--- that is known.
local function part_of(args, part, whole)
  local parts, k = args[2], args[3]
  if type(parts) == "table" then
    local from, all = 0, 0
    for i, size in ipairs(parts) do
      if i < k then from = from + size end
      all = all + size
    end
    if (part or parts[k]) ~= parts[k] or (whole or all) ~= all then return nil end
    return from, parts[k], all
  end
  if whole and whole % parts ~= 0 then return nil end
  local size = part or whole // parts
  return (k - 1) * size, size, parts * size
end

local function check_part(args)
  local parts, n = args[2], args[2]
  if type(parts) == "table" then
    n = #parts
    for _, size in ipairs(parts) do
      if not is_count(size) then return "takes sizes of parts that are whole numbers from 1" end
    end
  end
  if not is_count(args[1]) or not is_count(n) or not is_count(args[3]) or args[3] > n then
    return "takes a dim, how many parts (or a list of their sizes) and the number of one of them"
  end
end

local function parts_text(args)
  return type(args[2]) == "table" and "{" .. table.concat(args[2], ", ") .. "}" or tostring(args[2])
end

local function no_part(args)
  return nil, ("cannot have the part %d of %s along dim %d"):format(args[3], parts_text(args), args[1])
end

verbs.split = {
  check = check_part,
  forward = function(view, args)
    local ok, message = has_dim(view.dims, args[1])
    if not ok then return nil, message end
    local dim = view.dims[args[1]]
    local from, size = part_of(args, nil, dim.size)
    if not from then return no_part(args) end
    return cut(view, dim, from, size)
  end,
  backward = function(shape, args)
    local ok, message = has_dim(shape, args[1])
    if not ok then return nil, message end
    local from, _, all = part_of(args, shape[args[1]])
    if not from then return no_part(args) end
    local whole = {table.unpack(shape)}
    whole[args[1]] = all
    return whole
  end,
}

--- The shape that a list with at most one -1 means, of n elements; nil if there is none.
local function resolved(sizes, n)
  local shape, unknown, known = {}, nil, 1
  for d, size in ipairs(sizes) do
    shape[d] = size
    if size == -1 then unknown = d else known = known * size end
  end
  if unknown then
    if known == 0 or n % known ~= 0 then return nil end
    shape[unknown] = n // known
  end
  return product(shape) == n and shape or nil
end

--- The file's shape where none is given: -1 and the dim in front of it were one.
local function implied(to)
  for d = 2, #to do
    if to[d] == -1 then
      local from = {table.unpack(to)}
      table.remove(from, d)
      from[d - 1] = -1
      return from
    end
  end
end

local function unshaped(shape, to)
  return nil, ("%s cannot be %s"):format(shape_text(shape), shape_text(to))
end

verbs.reshape = {
  check = function(args)
    for i = 1, 2 do
      local unknown = 0
      if type(args[i]) ~= "table" and (i == 1 or args[i] ~= nil) then return "takes a list of sizes" end
      for _, size in ipairs(args[i] or {}) do
        if math.type(size) ~= "integer" or size < -1 then return "takes whole numbers, one of them -1" end
        if size == -1 then unknown = unknown + 1 end
      end
      if unknown > 1 then return "takes one -1" end
    end
    if not args[2] and not implied(args[1]) then
      return "does not say the file's shape: write -1 behind the dim that was one with it, or give that shape"
    end
  end,
  forward = function(view, args)
    local all, now = {}, {}
    for d, dim in ipairs(view.dims) do
      now[d] = dim.size
      for _, factor in ipairs(dim.factors) do all[#all + 1] = factor end
    end
    local n = product(now)
    local from, shape = resolved(args[2] or implied(args[1]), n), resolved(args[1], n)
    if not from or not same(from, now) then return unshaped(now, args[2] or implied(args[1])) end
    if not shape then return unshaped(now, args[1]) end
    local groups = regrouped(all, shape)
    if not groups then return nil, ("%s is no strided view of the file"):format(shape_text(shape)) end
    view.dims = {}
    for d, size in ipairs(shape) do view.dims[d] = {size = size, at = 0, factors = groups[d]} end
    return true
  end,
  backward = function(shape, args)
    local n = product(shape)
    local to, from = resolved(args[1], n), resolved(args[2] or implied(args[1]), n)
    if not to or not same(to, shape) then return unshaped(shape, args[1]) end
    if not from then return unshaped(shape, args[2] or implied(args[1])) end
    return from
  end,
}

--- Of n heads along a dim: is the head's size even?
local function check_heads(size, args)
  if size % (2 * args[2]) == 0 then return true end
  return nil, ("cannot have %d heads of an even size along dim %d"):format(args[2], args[1])
end

-- Rotary positions turn pairs of a head's features: neighbours (interleaved), or i and i + half (halves). The word
-- says how they lie in the file; the model has the other.
verbs.heads = {
  check = function(args)
    if not is_count(args[1]) or not is_count(args[2]) or args[3] ~= "interleaved" and args[3] ~= "halves" then
      return "takes a dim, how many heads, and how the file has their features: 'interleaved' or 'halves'"
    end
  end,
  forward = function(view, args)
    local ok, message = has_dim(view.dims, args[1])
    if not ok then return nil, message end
    local dim = view.dims[args[1]]
    ok, message = check_heads(dim.size, args)
    if not ok then return nil, message end
    local half = dim.size // (2 * args[2])
    local sizes = args[3] == "interleaved" and {args[2], half, 2} or {args[2], 2, half}
    local groups = regrouped(dim.factors, sizes)
    if not groups then return nil, "is no strided view of the file" end
    local factors = {}
    for _, g in ipairs {1, 3, 2} do
      for _, factor in ipairs(groups[g]) do factors[#factors + 1] = factor end
    end
    dim.factors = factors
    return true
  end,
  backward = function(shape, args)
    local ok, message = has_dim(shape, args[1])
    if not ok then return nil, message end
    ok, message = check_heads(shape[args[1]], args)
    if not ok then return nil, message end
    return shape
  end,
}

-- What places an entry in a larger tensor comes last in a rule: join, as a part of a dim; stack, as one place of a dim
-- that the entry has not, by the number that stands in its name.

verbs.join = {
  places = true,
  check = check_part,
  forward = function(view, args)
    local ok, message = has_dim(view.dims, args[1])
    if not ok then return nil, message end
    local dim = view.dims[args[1]]
    local from = part_of(args, dim.size)
    if not from then return no_part(args) end
    dim.at = from
    return true
  end,
  backward = function(shape, args)
    local ok, message = has_dim(shape, args[1])
    if not ok then return nil, message end
    local from, size = part_of(args, nil, shape[args[1]])
    if not from then return no_part(args) end
    local part = {table.unpack(shape)}
    part[args[1]] = size
    return part
  end,
}

verbs.stack = {
  places = true,
  check = function(args)
    if not is_count(args[1]) or args[2] ~= nil and type(args[2]) ~= "string" then
      return "takes the dim of the model that counts them, and of several letters the one"
    end
  end,
  forward = function(view, args, numbers)
    if args[1] > #view.dims + 1 then return nil, ("has no place for dim %d"):format(args[1]) end
    table.insert(view.dims, args[1], {size = 1, at = numbers[args[2]], factors = {}})
    return true
  end,
  backward = function(shape, args)
    local ok, message = has_dim(shape, args[1])
    if not ok then return nil, message end
    local one = {table.unpack(shape)}
    table.remove(one, args[1])
    return one
  end,
}

-- ---- a chain of verbs -------------------------------------------------------------------------------

--- The view of an entry of this shape that the verbs make; nil and what is wrong where they do not fit.
---@param chain table[] {verb, args}
---@param numbers table<string, integer> of the letters
---@return View?, string?
function M.forward(chain, shape, numbers, column_major)
  local view = M.whole(shape, column_major)
  for _, step in ipairs(chain) do
    local ok, message = verbs[step.verb].forward(view, step.args, numbers)
    if not ok then return nil, step.verb .. ": " .. message end
  end
  return view
end

--- The shape of the entry that becomes part of a tensor of this shape, and how many entries a stack has for each
--- letter.
---@return integer[]?, string|table<string, integer>
function M.backward(chain, shape)
  local counts = {}
  for i = #chain, 1, -1 do
    local step = chain[i]
    if step.verb == "stack" then counts[step.args[2]] = shape[step.args[1]] end
    local from, message = verbs[step.verb].backward(shape, step.args)
    if not from then return nil, step.verb .. ": " .. message end
    shape = from
  end
  return shape, counts
end

--- Where the view lies in the tensor, and where its elements are: {at, size, offset, factors = {{dim, size, stride}}}.
---@param view View
function M.piece(view)
  local piece = {at = {}, size = {}, offset = view.offset, factors = {}}
  for d, dim in ipairs(view.dims) do
    piece.at[d], piece.size[d] = dim.at, dim.size
    for _, factor in ipairs(joined(dim.factors)) do
      piece.factors[#piece.factors + 1] = {d, factor[1], factor[2]}
    end
  end
  return piece
end

return M
