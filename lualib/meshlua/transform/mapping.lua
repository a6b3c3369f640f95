-- mapping.lua: a function of one slice or of two neighbours, over all of them: built of scan, vmap, slices.
local core = require "meshlua.core"
local lib = require "meshlua.lib"
local ops = require "meshlua.ops"
local scan = require("meshlua.transform.control").scan
local trace = require "meshlua.transform.trace"
local traced = require "meshlua.transform.traced"
local vmap = require("meshlua.transform.vmap").vmap

local raise = lib.raise

local M = {}

--- The tensors of a tree, and how many slices each of them has along an axis: the same for all.
local function leaves_along(who, what, node, axis)
  local leaves, n, first = {}, nil, nil
  for i, found in ipairs(trace.leaves(who, node, what)) do
    local x = found.leaf
    local d = axis < 0 and x.ndim + 1 + axis or axis
    if d < 1 or d > x.ndim then
      raise("E_SHAPE", "%s: %s is %s, which has no axis %d", who, found.path, core.typeof(x), axis)
    end
    if n and x.shape[d] ~= n then
      raise("E_SHAPE", "%s: %s has size %d along axis %d, and %s has %d", who, first, n, axis, found.path,
        x.shape[d])
    end
    leaves[i], n, first = {x = x, axis = d}, x.shape[d], first or found.path
  end
  if #leaves == 0 then raise("E_VALUE", "%s: %s holds no tensor", who, what) end
  return leaves, n
end

-- ---- associative_scan -----------------------------------------------------------------------------------

--- Elements first, first + step, ... to last (from 1) of each leaf.
local function part(leaves, first, last, step)
  local list = {}
  for i, leaf in ipairs(leaves) do
    local ranges = {}
    for d = 1, leaf.axis - 1 do ranges[d] = false end
    ranges[leaf.axis] = {first, last, step}
    list[i] = {x = ops.slice(leaf.x, table.unpack(ranges)), axis = leaf.axis}
  end
  return list
end

--- Those of a and b in turn, a first; a has as many, or one more.
local function in_turn(a, b, na, nb)
  local list = {}
  for i, leaf in ipairs(a) do
    local d = leaf.axis
    local function both(x, y)
      local joined = ops.stack({x, y}, d + 1)
      local shape = table.move(x.shape, 1, x.ndim, 1, {})
      shape[d] = 2 * shape[d]
      return joined:reshape(shape)
    end
    local x = leaf.x
    if na > nb then
      local paired = both(part({leaf}, 1, nb, 1)[1].x, b[i].x)
      x = ops.concat({paired, part({leaf}, na, na, 1)[1].x}, d)
    else
      x = both(x, b[i].x)
    end
    list[i] = {x = x, axis = d}
  end
  return list
end

local function refill(elems, leaves)
  local list = {}
  for i, leaf in ipairs(leaves) do list[i] = leaf.x end
  return trace.refill("associative_scan", elems, list)
end

--- fn of two trees like elems, given and returned as leaves.
local function combine(fn, elems, a, b)
  local y = fn(refill(elems, a), refill(elems, b))
  local found, list = trace.leaves("associative_scan", y, "the result"), {}
  if #found ~= #a then
    raise("E_VALUE", "associative_scan: the function gives %s for %d; both are of one structure",
      lib.count(#found, "tensor"), #a)
  end
  for i, leaf in ipairs(a) do
    local is = found[i].leaf
    if not lib.same_type(is, leaf.x) then
      raise("E_SHAPE", "associative_scan: the function gives %s for %s; both are of one type",
        core.typeof(is), core.typeof(leaf.x))
    end
    list[i] = {x = is, axis = leaf.axis}
  end
  return list
end

--- Pairs are combined, then scanned, which gives every second result; the others are one step further.
local function scan_leaves(fn, elems, leaves, n)
  if n < 2 then return leaves end
  local half = n // 2
  local pairs_done = combine(fn, elems, part(leaves, 1, 2 * half, 2), part(leaves, 2, 2 * half, 2))
  local odd = scan_leaves(fn, elems, pairs_done, half)
  local even, rest = part(leaves, 1, 1, 1), (n - 1) // 2
  if rest > 0 then
    local more = combine(fn, elems, part(odd, 1, rest, 1), part(leaves, 3, n, 2))
    for i, leaf in ipairs(even) do
      leaf.x = ops.concat({leaf.x, more[i].x}, leaf.axis)
    end
  end
  return in_turn(even, odd, n - half, half)
end

--- All partial results of an associative function: the k-th element of the result is fn(fn(e1, e2), ...ek), made
--- in a logarithmic number of steps of many elements each.
---@param fn fun(a: any, b: any): any of two trees like elems, of many elements; returns one like them
---@param elems any a tensor or a tree of them, of the same size along the axis
---@param options {axis: integer, reverse: boolean}? default: axis 1; reverse: from the last on
function M.associative_scan(fn, elems, options)
  lib.check_function("associative_scan", fn)
  options = lib.options("associative_scan", options)
  local leaves, n = leaves_along("associative_scan", "elems", elems, options.axis or 1)
  local function flipped(list)
    for _, leaf in ipairs(options.reverse and list or {}) do leaf.x = ops.flip(leaf.x, leaf.axis) end
    return list
  end
  return (traced.run(function()
    return {refill(elems, flipped(scan_leaves(fn, elems, flipped(leaves), n)))}
  end))[1]
end

-- ---- map ------------------------------------------------------------------------------------------------

local function slices(xs, leaves, first, last, shape_of)
  local list = {}
  for i, leaf in ipairs(part(leaves, first, last, 1)) do
    list[i] = shape_of and leaf.x:reshape(shape_of(leaf.x)) or leaf.x
  end
  return trace.refill("map", xs, list)
end

--- Where two dims stand in front, one; and behind it `rest`, of the same tree.
local function joined(ys, rest)
  local list, more = {}, rest and trace.leaves("map", rest, "the result")
  for i, y in ipairs(trace.leaves("map", ys, "the result")) do
    local x = y.leaf
    list[i] = x:reshape {x.shape[1] * x.shape[2], table.unpack(x.shape, 3)}
    if more then list[i] = ops.concat({list[i], more[i].leaf}, 1) end
  end
  return trace.refill("map", ys, list)
end

--- f of each slice of xs along dim 1, one after another, stacked: a loop, where vmap does all at once. With
--- batch_size so many at once.
---@param f function of a slice: a tree like xs; returns a tensor or a tree of them
---@param xs any a tensor or a tree of them
---@param options {batch_size: integer}?
function M.map(f, xs, options)
  lib.check_function("map", f)
  local size = lib.options("map", options).batch_size
  local leaves, n = leaves_along("map", "xs", xs, 1)
  local function loop(body, over) return (select(2, scan(function(c, x) return c, body(x) end, {}, over))) end
  if not size then return loop(f, xs) end
  if lib.check_integer("map", "batch_size", size) < 1 then
    raise("E_VALUE", "map: batch_size is %d; it is at least 1", size)
  end
  local many, rounds = vmap(f), n // size
  if rounds == 0 then return many(xs) end
  return (traced.run(function()
    local ys = loop(many, slices(xs, leaves, 1, rounds * size, function(x)
      return {rounds, size, table.unpack(x.shape, 2)}
    end))
    local rest = rounds * size < n and many(slices(xs, leaves, rounds * size + 1, n)) or nil
    return {joined(ys, rest)}
  end))[1]
end

-- ---- vectorize ------------------------------------------------------------------------------------------

--- "(n,m),(m)" as lists of names.
local function read_dims(signature, text)
  local list, rest = {}, text:gsub("%s", "")
  while rest ~= "" do
    local dims, more = rest:match("^%(([%w_,]*)%)(.*)$")
    if not dims or (more ~= "" and not more:match("^,%(")) then
      raise("E_VALUE", "vectorize: '%s' is not a signature such as '(n,m),(m)->(n)'", signature)
    end
    local names = {}
    for name in dims:gmatch("[^,]+") do names[#names + 1] = name end
    list[#list + 1], rest = names, more:sub(2)
  end
  return list
end

--- The sizes of named dims, at the end of x's; raises where they differ from what is known.
local function bind(who, names, x, sizes)
  if x.ndim < #names then
    raise("E_SHAPE", "vectorize: %s is %s; the signature gives it %s", who, core.typeof(x),
      lib.count(#names, "dim"))
  end
  for d, name in ipairs(names) do
    local size = x.shape[x.ndim - #names + d]
    if tonumber(name) and tonumber(name) ~= size or sizes[name] and sizes[name].size ~= size then
      raise("E_SHAPE", "vectorize: dim '%s' has size %d in %s, and %s", name, size, who,
        sizes[name] and ("%d in %s"):format(sizes[name].size, sizes[name].who) or name .. " in the signature")
    end
    sizes[name] = sizes[name] or {size = size, who = who}
  end
end

--- The sizes of the dims in front of those of the signature, met by numpy's rule.
local function loop_dims(args, core_dims)
  local sizes, rank = {}, 0
  for i, names in pairs(core_dims) do rank = math.max(rank, args[i].ndim - #names) end
  for d = 1, rank do sizes[d] = 1 end
  for i, names in pairs(core_dims) do
    local own = args[i].ndim - #names
    for d = 1, own do
      local at, size = rank - own + d, args[i].shape[d]
      if size ~= 1 and sizes[at] ~= 1 and sizes[at] ~= size then
        raise("E_SHAPE",
          "vectorize: the dims in front of those that the function takes do not meet: %d and %d", sizes[at],
          size)
      end
      if size ~= 1 then sizes[at] = size end
    end
  end
  return sizes
end

--- The function over all dims in front: a vmap for each, where arguments whose size is 1 are not mapped.
local function run_over(fn, args, core_dims, sizes)
  local has = {}
  for i, names in pairs(core_dims) do
    local own = args[i].ndim - #names
    local shape = table.move(args[i].shape, own + 1, args[i].ndim, 1, {})
    has[i] = {}
    for d = own, 1, -1 do
      local at = #sizes - own + d
      if args[i].shape[d] ~= 1 or sizes[at] == 1 then
        has[i][at] = true
        table.insert(shape, 1, args[i].shape[d])
      end
    end
    args[i] = #shape < args[i].ndim and args[i]:reshape(shape) or args[i]
  end
  for d = #sizes, 1, -1 do
    local axes = {}
    for i = 1, args.n do axes[i] = has[i] and has[i][d] and 1 or false end
    fn = vmap(fn, {in_axes = axes, axis_size = sizes[d]})
  end
  return table.pack(fn(table.unpack(args, 1, args.n)))
end

--- The function over all dims in front of those that it takes: as the functions on tensors broadcast.
---   signature  the dims that it takes and gives, "(n,m),(m)->(n)"; default: scalars
---   excluded   1-based positions of arguments that it gets as they are
---@param fn function of tensors; returns one or more
---@param options {signature: string, excluded: integer[]}?
function M.vectorize(fn, options)
  lib.check_function("vectorize", fn)
  options = lib.options("vectorize", options)
  local signature, inputs, outputs = options.signature, nil, nil
  if signature then
    local from, to = signature:match("^(.-)%->(.*)$")
    if not from then raise("E_VALUE", "vectorize: '%s' has no '->'", signature) end
    inputs, outputs = read_dims(signature, from), read_dims(signature, to)
  end
  local excluded = lib.set(lib.check_list("vectorize", "excluded", options.excluded or {}))
  return core.wrap(function(...)
    local args, core_dims, sizes, k = table.pack(...), {}, {}, 0
    for i = 1, args.n do
      if not excluded[i] then
        k = k + 1
        local who = "argument " .. i
        if type(args[i]) == "number" then args[i] = core.tensor(args[i]) end
        if not lib.is_tensor(args[i]) then
          raise("E_VALUE", "vectorize: %s is %s, not a tensor; name it in excluded", who, lib.kind(args[i]))
        end
        core_dims[i] = inputs and inputs[k] or {}
        bind(who, core_dims[i], args[i], sizes)
      end
    end
    if inputs and k ~= #inputs then
      raise("E_VALUE", "vectorize: '%s' is of %s, %d given", signature, lib.count(#inputs, "argument"), k)
    end
    local results = run_over(fn, args, core_dims, loop_dims(args, core_dims))
    if outputs and results.n ~= #outputs then
      raise("E_VALUE", "vectorize: '%s' gives %s, the function %d", signature, lib.count(#outputs, "result"),
        results.n)
    end
    for i, names in ipairs(outputs or {}) do bind("result " .. i, names, results[i], sizes) end
    return table.unpack(results, 1, results.n)
  end)
end

return lib.export(M)
