-- single.lua: see single.py.
local ml = require "meshlua"

local function normal(seed, ...) return ml.random.normal(ml.random.key(seed), {...}) end

local function ids(seed, n, shape) return ml.random.randint(ml.random.key(seed), shape, 0, n) end

--- Of each operation: its arguments, their names, and the function.
local operations = {}

function operations.gather(p)
  return {normal(1, p.rows, p.cols), ids(2, p.rows, {p.n})}, {"x", "ids"},
    function(x, i) return ml.take(x, i) end
end

function operations.along(p)
  return {normal(1, p.rows, p.cols), ids(2, p.cols, {p.rows, p.cols})}, {"x", "ids"},
    function(x, i) return ml.take_along_axis(x, i, 2) end
end

function operations.scatter(p)
  local u = p.cols and normal(1, p.n, p.cols) or normal(1, p.n)
  return {u, ids(2, p.rows, {p.n})}, {"x", "ids"}, function(x, i) return ml.scatter_add(i, x, p.rows) end
end

function operations.sort(p)
  return {normal(1, table.unpack(p.shape))}, {"x"}, function(x) return (ml.sort(x)) end
end

function operations.cumsum(p)
  return {normal(1, table.unpack(p.shape))}, {"x"}, function(x) return ml.cumsum(x, p.axis) end
end

function operations.lstm(p)
  local cell = ml.nn.LSTMCell(p.n, p.n, {rngs = ml.nn.Rngs(0)})
  return {normal(1, p.batch, p.n), normal(2, p.batch, p.n), normal(3, p.batch, p.n), cell}, {"x", "c", "h"},
    function(x, c, h, own)
      local carry, y = own({c, h}, x)
      return y, carry[1]
    end
end

function operations.transposed(p)
  return {normal(1, p.batch, p.size, p.size, p.features), normal(2, 4, 4, p.features, p.features) * 0.05},
    {"x", "kernel"}, function(x, w) return ml.conv(x, w, {input_dilation = 2, padding = {{2, 2}, {2, 2}}}) end
end

--- The tensors of a list, in which those of cells are.
local function tensors(list, out)
  for _, x in ipairs(list) do
    if type(x) == "table" then
      table.move({x.dense_i.kernel, x.dense_h.kernel, x.dense_h.bias}, 1, 3, #out + 1, out)
    else
      out[#out + 1] = x
    end
  end
  return out
end

--- The first result with its gradients; its cotangent is itself.
local function with_gradients(fn)
  return function(...)
    local y, pullback = ml.vjp(function(...) return (fn(...)) end, ...)
    return table.unpack(tensors({pullback(y)}, {y}))
  end
end

local function release(...)
  for i = 1, select("#", ...) do select(i, ...):release() end
end

return function(p)
  local list, names, fn = operations[p.op](p)
  local inputs, step = {}, ml.jit(p.backward and with_gradients(fn) or fn)
  for i, name in ipairs(names) do inputs[name] = list[i] end
  if p.op == "lstm" then
    for i, param in ipairs(tensors({list[4]}, {})) do
      inputs[({"w_x", "w_h", "bias"})[i]] = param:get() + 0.0
    end
  end
  return {
    inputs = inputs,
    results = function() return {step(table.unpack(list))} end,
    run = function() release(step(table.unpack(list))) end,
  }
end
