-- oracle_spec.lua: convolutions, windows, slices, cumulative ops, top_k and the layers made of them against
-- JAX and flax (tests/oracle/ops.py), values and gradients.
local ml = require "meshlua"
local helper = require "spec.helper"
local oracle = require "spec.oracle"

local nn = ml.nn
local vectors = oracle.read "ops"
local ramp, close = oracle.ramp, helper.close

--- fn's value at the tensors, and the gradients of the sum of its product with numbers.
local function gradients(fn, ...)
  local argnums, y = {}, fn(...)
  for i = 1, select("#", ...) do argnums[i] = i end
  local grads = ml.grad(function(...) return (fn(...) * ramp(y.shape)):sum() end, {argnums = argnums})(...)
  return y, table.unpack(grads)
end

local function text(case)
  return ("strides %s, padding %s, dilations %s and %s, groups %d"):format(table.concat(case.strides, ","),
    type(case.padding) == "string" and case.padding or "given", table.concat(case.input_dilation, ","),
    table.concat(case.kernel_dilation, ","), case.groups)
end

describe("conv is JAX's:", function()
  for _, case in ipairs(vectors.convolutions) do
    it(("%d dims, %s"):format(#case.strides, text(case)), function()
      local options = {strides = case.strides, padding = case.padding, groups = case.groups,
        input_dilation = case.input_dilation, kernel_dilation = case.kernel_dilation}
      local y, dx, dw = gradients(function(x, w) return ml.conv(x, w, options) end, ramp(case.x),
        ramp(case.w))
      close(case.y, y, 1e-13)
      close(case.dx, dx, 1e-13)
      close(case.dw, dw, 1e-13)
    end)
  end
end)

describe("reduce_window is JAX's:", function()
  for i, case in ipairs(vectors.windows) do
    it(("%s, case %d%s"):format(case.kind, i, case.rounded and ", with ties" or ""), function()
      local x = ramp(case.x)
      if case.rounded then x = x:round() end
      local y, dx = gradients(function(t)
        return ml.reduce_window(t, case.kind, case.window, {strides = case.strides, padding = case.padding})
      end, x)
      close(case.y, y, 1e-13)
      close(case.dx, dx, 1e-13)
    end)
  end
end)

describe("slices whose place is computed are JAX's:", function()
  for i, case in ipairs(vectors.slices) do
    it("case " .. i, function()
      local starts = {case.starts[1], ml.tensor(case.starts[2])}
      local x, u = ramp {5, 6}, ramp(case.sizes) * 2
      local y, dy = gradients(function(t) return ml.dynamic_slice(t, starts, case.sizes) end, x)
      close(case.slice, y)
      close(case.dslice, dy)
      local z, dx, du = gradients(function(t, v) return ml.dynamic_update_slice(t, v, starts) end, x, u)
      close(case.update, z)
      close(case.dx, dx)
      close(case.du, du)
    end)
  end
end)

describe("cumulative ops are JAX's:", function()
  for name, case in pairs(vectors.cumulative) do
    it(name, function()
      local op, axis, reverse = name:match "(%w+) (%d) (%w+)"
      local y, dx = gradients(function(x)
        return ml[op](x, math.tointeger(tonumber(axis)), reverse == "true")
      end, ramp {4, 7})
      close(case.y, y, 1e-13)
      close(case.dx, dx, 1e-12)
    end)
  end
end)

describe("what picks and orders is JAX's:", function()
  it("top_k, its ties and its NaN", function()
    local top = vectors.top
    local y, dx = gradients(function(x) return (x:top_k(3)) end, ramp {3, 8})
    close(top.values, y)
    close(top.dx, dx)
    close(top.ids, (select(2, ramp({3, 8}):top_k(3))))
    local ties = ml.tensor({{1, 3, 3, 2, 3, 0, 2, 2}}, "float64")
    close(top.tied, (select(2, ties:top_k(6))))
    close(top.nan, (select(2, ml.tensor({1, 0 / 0, 5, 0 / 0, -1 / 0}, "float64"):top_k(5))))
    close(top.argsort, ties:argsort())
    close(top.argsort_down, ties:argsort(2, true))
  end)

  it("scatter_set", function()
    local s, x = vectors.scatter, ramp {6, 4}
    local ids = ml.tensor {{0, 5}, {3, 2}}
    local y, dx, du = gradients(function(t, u) return t:scatter_set(ids, u) end, x, ramp {2, 2, 4} * 2)
    close(s.y, y)
    close(s.dx, dx)
    close(s.du, du)
    local column, _, dcolumn = gradients(function(t, u) return t:scatter_set(ml.tensor {0}, u, 2) end, x,
      ramp {6, 1} * 2)
    close(s.column, column)
    close(s.dcolumn, dcolumn)
  end)
end)

describe("layers are flax's:", function()
  local one, x = nn.initializers.normal(1.0), ramp {2, 5, 4, 4}
  local function options(more)
    more.rngs, more.param_dtype, more.dtype = nn.Rngs(0), "float64", "float64"
    return more
  end
  local function check(expected, layer)
    for path, numbers in pairs(expected.params) do close(numbers, layer[path], 1e-14) end
    local y = layer(x)
    close(expected.result, y, 1e-12)
    local grads, dx = table.unpack(ml.grad(function(m, t)
      return (m(t) * ramp(y.shape)):sum()
    end, {argnums = {1, 2}})(layer, x))
    close(expected.dx, dx, 1e-12)
    for path, numbers in pairs(expected.grads) do close(numbers, grads[path], 1e-12) end
  end

  it("Conv", function()
    check(vectors.layers.conv, nn.Conv(4, 6, {3, 3}, options {bias_init = one}))
  end)
  it("Conv with strides, dilation and groups, without bias", function()
    check(vectors.layers.conv_more, nn.Conv(4, 6, {3, 2}, options {strides = {2, 1}, padding = "valid",
      kernel_dilation = {1, 2}, groups = 2, use_bias = false}))
  end)
  it("BatchNorm, its running means, and what it does in evaluation", function()
    local function make()
      return nn.BatchNorm(4, options {momentum = 0.9, scale_init = one, bias_init = one})
    end
    local expected = vectors.layers.batch_norm
    check(expected, make())
    local norm = make()
    norm(x)
    norm(x * 2)
    close(expected.mean, norm.mean, 1e-6) -- flax keeps them in float32
    close(expected.var, norm.var, 1e-6)
    close(expected.evaluation, norm:eval()(x), 1e-6)
  end)
  it("max_pool and avg_pool", function()
    local o = {strides = {2, 1}, padding = "same"}
    close(vectors.layers.max_pool, nn.max_pool(x, {2, 3}, o))
    close(vectors.layers.avg_pool, nn.avg_pool(x, {2, 3}, o), 1e-14)
    o.count_include_pad = false
    close(vectors.layers.avg_pool_inside, nn.avg_pool(x, {2, 3}, o), 1e-14)
  end)
end)
