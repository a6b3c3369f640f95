-- naive.lua: the definitions of the ops in plain Lua over flat lists; see data.lua. Slow and obvious.
local scalar = require "spec.op.scalar"

local M = {}

local function strides_of(shape)
  local strides, n = {}, 1
  for d = #shape, 1, -1 do strides[d], n = n, n * shape[d] end
  return strides, n
end

local function list(shape, dtype) return {shape = shape, dtype = dtype} end

--- Calls fn(index, flat position) for every element of a shape; the index counts from 0.
local function each(shape, fn)
  local _, n = strides_of(shape)
  local index = {}
  for d = 1, #shape do index[d] = 0 end
  for i = 1, n do
    fn(index, i)
    for d = #shape, 1, -1 do
      index[d] = index[d] + 1
      if index[d] < shape[d] then break end
      index[d] = 0
    end
  end
end

local function position(shape, index)
  local p = 0
  for d = 1, #shape do p = p * shape[d] + index[d] end
  return p + 1
end

--- A list of a shape with fn(index) everywhere.
function M.make(shape, fn, dtype)
  local out = list(shape, dtype)
  each(shape, function(index, i) out[i] = fn(index) end)
  return out
end

function M.at(x, index) return x[position(x.shape, index)] end

--- The shape that shapes broadcast to.
local function common(lists)
  local shape = {}
  for _, x in ipairs(lists) do
    local rank, added = #x.shape, {}
    for _ = #shape + 1, rank do added[#added + 1] = 1 end
    table.move(shape, 1, #shape, #added + 1, added)
    shape = added
    for d = 1, rank do
      local k = #shape - rank + d
      if shape[k] == 1 then shape[k] = x.shape[d] end
    end
  end
  return shape
end

--- fn applied element by element, with broadcasting.
function M.map(fn, ...)
  local inputs = {...}
  local shape = common(inputs)
  return M.make(shape, function(index)
    local values = {}
    for k, x in ipairs(inputs) do
      local own = {}
      for d = 1, #x.shape do
        own[d] = x.shape[d] == 1 and 0 or index[#shape - #x.shape + d]
      end
      values[k] = M.at(x, own)
    end
    return fn(table.unpack(values))
  end)
end

--- Every integer of a list as its dtype holds it.
function M.wrapped(dtype, x)
  return M.map(function(v) return scalar.wrap(dtype, v) end, x)
end

function M.reshape(x, shape) return table.move(x, 1, #x, 1, list(shape, x.dtype)) end

function M.transpose(x, perm)
  local shape = {}
  for d, p in ipairs(perm) do shape[d] = x.shape[p] end
  return M.make(shape, function(index)
    local from = {}
    for d, p in ipairs(perm) do from[p] = index[d] end
    return M.at(x, from)
  end)
end

--- Dims of x stand at the places `at` of the shape.
function M.broadcast(x, shape, at)
  return M.make(shape, function(index)
    local from = {}
    for d, place in ipairs(at) do from[d] = x.shape[d] == 1 and 0 or index[place] end
    return M.at(x, from)
  end)
end

--- start, limit 0-based and half-open.
function M.slice(x, start, limit, step)
  local shape = {}
  for d = 1, #x.shape do shape[d] = (limit[d] - start[d] + step[d] - 1) // step[d] end
  return M.make(shape, function(index)
    local from = {}
    for d = 1, #shape do from[d] = start[d] + index[d] * step[d] end
    return M.at(x, from)
  end)
end

function M.flip(x, axes)
  return M.make(x.shape, function(index)
    local from = table.move(index, 1, #index, 1, {})
    for _, a in ipairs(axes) do from[a] = x.shape[a] - 1 - index[a] end
    return M.at(x, from)
  end)
end

function M.pad(x, value, low, high, interior)
  local shape = {}
  for d, n in ipairs(x.shape) do shape[d] = low[d] + high[d] + (n > 0 and n + (n - 1) * interior[d] or 0) end
  return M.make(shape, function(index)
    local from = {}
    for d, n in ipairs(x.shape) do
      local p = index[d] - low[d]
      if p < 0 or p % (interior[d] + 1) ~= 0 or p // (interior[d] + 1) >= n then return value end
      from[d] = p // (interior[d] + 1)
    end
    return M.at(x, from)
  end)
end

function M.concat(axis, ...)
  local inputs, shape = {...}, nil
  for _, x in ipairs(inputs) do
    if shape then shape[axis] = shape[axis] + x.shape[axis]
    else shape = table.move(x.shape, 1, #x.shape, 1, {}) end
  end
  return M.make(shape, function(index)
    local from = table.move(index, 1, #index, 1, {})
    for _, x in ipairs(inputs) do
      if from[axis] < x.shape[axis] then return M.at(x, from) end
      from[axis] = from[axis] - x.shape[axis]
    end
  end)
end

--- Folds fn(accumulator, element, place along the first axis) over axes, which stay with size 1.
function M.reduce(x, axes, start, fn)
  local shape, is_reduced = table.move(x.shape, 1, #x.shape, 1, {}), {}
  for _, a in ipairs(axes) do shape[a], is_reduced[a] = 1, true end
  local out = M.make(shape, function() return start end)
  each(x.shape, function(index, i)
    local to = {}
    for d = 1, #shape do to[d] = is_reduced[d] and 0 or index[d] end
    local p = position(shape, to)
    out[p] = fn(out[p], x[i], axes[1] and index[axes[1]])
  end)
  return out
end

function M.sum(x, axes) return M.reduce(x, axes, 0, function(a, v) return a + v end) end

--- The place of the best element under `better` along one axis, the first of equals.
function M.arg(x, axis, better)
  local shape = table.move(x.shape, 1, #x.shape, 1, {})
  shape[axis] = 1
  return M.make(shape, function(index)
    local at, best, place = table.move(index, 1, #index, 1, {}), nil, 0
    for i = 0, x.shape[axis] - 1 do
      at[axis] = i
      local v = M.at(x, at)
      if best == nil or better(v, best) then best, place = v, i end
    end
    return place
  end)
end

--- A general product: labels name the dims of x, w and the result; what the result lacks is summed.
function M.einsum(spec, x, w)
  local a, b, result = spec:match "^(%a*),(%a*)%->(%a*)$"
  local size, shape, rest, inner = {}, {}, "", {}
  for i = 1, #a do size[a:sub(i, i)] = x.shape[i] end
  for i = 1, #b do size[b:sub(i, i)] = w.shape[i] end
  for i = 1, #result do shape[i] = size[result:sub(i, i)] end
  for c in (a .. b):gmatch "." do
    if not (result .. rest):find(c, 1, true) then rest, inner[#inner + 1] = rest .. c, size[c] end
  end
  local function pick(labels, from)
    local index = {}
    for i = 1, #labels do index[i] = from[labels:sub(i, i)] end
    return index
  end
  return M.make(shape, function(index)
    local total, from = 0, {}
    for i = 1, #result do from[result:sub(i, i)] = index[i] end
    each(inner, function(summed)
      for i = 1, #rest do from[rest:sub(i, i)] = summed[i] end
      total = total + M.at(x, pick(a, from)) * M.at(w, pick(b, from))
    end)
    return total
  end)
end

--- Without the dims that a reduction left with size 1.
function M.drop(x, axes)
  local gone, shape = {}, {}
  for _, a in ipairs(axes) do gone[a] = true end
  for d, n in ipairs(x.shape) do
    if not gone[d] then shape[#shape + 1] = n end
  end
  return M.reshape(x, shape)
end

--- fn(row) -> row along the last axis; row is a plain list.
function M.rows(x, fn, ...)
  local n, out = x.shape[#x.shape], list(x.shape, x.dtype)
  for first = 1, #x, n do
    local row = fn(table.move(x, first, first + n - 1, 1, {}), ...)
    table.move(row, 1, n, first, out)
  end
  return out
end

function M.take(x, ids, axis)
  local shape = {}
  for d = 1, axis - 1 do shape[d] = x.shape[d] end
  for _, n in ipairs(ids.shape) do shape[#shape + 1] = n end
  for d = axis + 1, #x.shape do shape[#shape + 1] = x.shape[d] end
  local k = #ids.shape
  return M.make(shape, function(index)
    local from, at = {}, {}
    for d = 1, axis - 1 do from[d] = index[d] end
    for d = 1, k do at[d] = index[axis - 1 + d] end
    from[axis] = M.at(ids, at)
    for d = axis + 1, #x.shape do from[d] = index[d - 1 + k] end
    return M.at(x, from)
  end)
end

function M.scatter_add(ids, updates, size, axis)
  local shape, k = {}, #ids.shape
  for d = 1, axis - 1 do shape[d] = updates.shape[d] end
  shape[axis] = size
  for d = axis + k, #updates.shape do shape[#shape + 1] = updates.shape[d] end
  local out = M.make(shape, function() return 0 end)
  each(updates.shape, function(index, i)
    local to, at = {}, {}
    for d = 1, axis - 1 do to[d] = index[d] end
    for d = 1, k do at[d] = index[axis - 1 + d] end
    to[axis] = M.at(ids, at)
    for d = axis + k, #updates.shape do to[#to + 1] = index[d] end
    local p = position(shape, to)
    out[p] = out[p] + updates[i]
  end)
  return out
end

--- options: strides, low, high, x_dilation, w_dilation (one entry for each spatial dim), groups.
function M.conv(x, w, options)
  local n, groups = #x.shape - 2, options.groups or 1
  local function of(what, i, default) return options[what] and options[what][i] or default end
  local shape = {x.shape[1]}
  for i = 1, n do
    local room = (x.shape[i + 1] - 1) * of("x_dilation", i, 1) + 1 + of("low", i, 0) + of("high", i, 0)
    local window = (w.shape[i] - 1) * of("w_dilation", i, 1) + 1
    shape[i + 1] = math.max(0, (room - window) // of("strides", i, 1) + 1)
  end
  local out = w.shape[n + 2]
  shape[n + 2] = out
  local taps = table.move(w.shape, 1, n + 1, 1, {})
  return M.make(shape, function(index)
    local sum = 0.0
    each(taps, function(tap)
      local from, inside = {index[1]}, true
      for i = 1, n do
        local p = index[i + 1] * of("strides", i, 1) + tap[i] * of("w_dilation", i, 1) - of("low", i, 0)
        local dilation = of("x_dilation", i, 1)
        from[i + 1] = p // dilation
        inside = inside and p >= 0 and p % dilation == 0 and p // dilation < x.shape[i + 1]
      end
      if not inside then return end
      from[n + 2] = index[n + 2] // (out // groups) * w.shape[n + 1] + tap[n + 1]
      local at = table.move(tap, 1, n + 1, 1, {})
      at[n + 2] = index[n + 2]
      sum = sum + M.at(x, from) * M.at(w, at)
    end)
    return sum
  end)
end

--- Distinct numbers of a shape in an order that looks irregular.
function M.ramp_list(shape)
  local _, n = strides_of(shape)
  local i = -1
  return M.make(shape, function()
    i = i + 1
    return (37 * i % (n % 37 == 0 and n + 1 or n)) / 8
  end)
end

--- Calls fn(place in x, index of the window) for all that windows see. w: window, strides, low (one entry for
--- each dim), shape of what is over them.
local function windows(x, w, fn)
  each(w.shape, function(index)
    each(w.window, function(tap)
      local place = {}
      for d = 1, #x.shape do
        place[d] = index[d] * w.strides[d] + tap[d] - w.low[d]
        if place[d] < 0 or place[d] >= x.shape[d] then return end
      end
      fn(place, index)
    end)
  end)
end

function M.reduce_window(x, w, none, combine)
  local y = M.make(w.shape, function() return none end)
  windows(x, w, function(place, index)
    local p = position(w.shape, index)
    y[p] = combine(y[p], M.at(x, place))
  end)
  return y
end

--- The position in x of the first largest of each window; 0 for a window that sees nothing.
function M.largest_places(x, w)
  local y = M.make(w.shape, function() return 0 end)
  windows(x, w, function(place, index)
    local p, from = position(w.shape, index), position(x.shape, place)
    if y[p] == 0 or x[y[p]] < x[from] then y[p] = from end
  end)
  return y
end

function M.scatter_set(x, ids, updates, axis)
  local out, k = table.move(x, 1, #x, 1, list(x.shape, x.dtype)), #ids.shape
  each(updates.shape, function(index, i)
    local to, at = {}, {}
    for d = 1, axis - 1 do to[d] = index[d] end
    for d = 1, k do at[d] = index[axis - 1 + d] end
    to[axis] = M.at(ids, at)
    for d = axis + k, #updates.shape do to[#to + 1] = index[d] end
    out[position(x.shape, to)] = updates[i]
  end)
  return out
end

--- Lines along an axis in order (NaN last), stable; further lists are permuted alike.
function M.sort(axis, descending, keys, ...)
  local inputs = {keys, ...}
  local outs, n = {}, keys.shape[axis]
  for k, x in ipairs(inputs) do outs[k] = list(x.shape, x.dtype) end
  local lines = table.move(keys.shape, 1, #keys.shape, 1, {})
  lines[axis] = 1
  each(lines, function(index)
    local places = {}
    for i = 1, n do
      local at = table.move(index, 1, #index, 1, {})
      at[axis] = i - 1
      places[i] = position(keys.shape, at)
    end
    local order = table.move(places, 1, n, 1, {})
    table.sort(order, function(p, q)
      local x, y = keys[p], keys[q]
      if x ~= x or y ~= y then
        if x == x or y == y then return y ~= y end
        return p < q
      end
      if x == y then return p < q end
      if descending then return x > y end
      return x < y
    end)
    for k, x in ipairs(inputs) do
      for i = 1, n do outs[k][places[i]] = x[order[i]] end
    end
  end)
  return table.unpack(outs)
end

return M
