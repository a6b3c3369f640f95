-- fused.lua: see fused.py.
local ml = require "meshlua"

local nn, op = ml.nn, ml.core.op

--- Of each operation: the function, and the arguments with gradients. Arguments: x [rows, cols], scale and bias
--- [cols], residual of x's shape.
local functions = {
  gelu = {function(x, bias, residual) return nn.gelu(x + bias) + residual end, {"x", "bias", "residual"}, 2},
  ["layer norm"] = {function(x, scale, bias) return (op.layer_norm(x, scale, bias, {eps = 1e-5})) end,
    {"x", "scale", "bias"}, 3},
  ["rms norm"] = {function(x, scale) return (op.rms_norm(x, scale, {eps = 1e-5})) end, {"x", "scale"}, 2},
  softmax = {function(x) return x:softmax() end, {"x"}, 1},
}

--- The function with its pullback, for arguments of which only the first n have gradients.
local function both_ways(fn, n)
  return ml.jit(function(dy, ...)
    local args = table.pack(...)
    local y, pullback = ml.vjp(function(...)
      local own = table.pack(...)
      for i = n + 1, args.n do own[i] = args[i] end
      return fn(table.unpack(own, 1, args.n))
    end, table.unpack(args, 1, n))
    return y, pullback(dy)
  end)
end

local function release(...)
  for i = 1, select("#", ...) do select(i, ...):release() end
end

local function cross_entropy(p, x)
  local labels = ml.random.randint(ml.random.key(5), {p.rows}, 0, p.cols)
  local function loss(z, ids) return nn.softmax_cross_entropy_with_integer_labels(z, ids):mean() end
  local step = ml.jit(p.backward and ml.value_and_grad(loss) or loss)
  return {
    inputs = {x = x, labels = labels},
    results = function() return {step(x, labels)} end,
    run = function() release(step(x, labels)) end,
  }
end

return function(p)
  local function normal(seed, shape) return ml.random.normal(ml.random.key(seed), shape) end
  local x = normal(1, {p.rows, p.cols})
  if p.op == "cross entropy" then return cross_entropy(p, x) end
  local fn, names, differentiable = table.unpack(functions[p.op])
  local inputs = {x = x, scale = normal(2, {p.cols}), bias = normal(3, {p.cols})}
  if p.op == "gelu" then inputs.residual = normal(6, {p.rows, p.cols}) end
  local args = {}
  for i, name in ipairs(names) do args[i] = inputs[name] end
  local step
  if p.backward then
    inputs.dy = normal(4, {p.rows, p.cols})
    table.insert(args, 1, inputs.dy)
    step = both_ways(fn, differentiable)
  else
    step = ml.jit(function(...) return fn(...) end)
  end
  return {
    inputs = inputs,
    results = function() return {step(table.unpack(args))} end,
    run = function() release(step(table.unpack(args))) end,
  }
end
