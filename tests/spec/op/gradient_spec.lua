-- devices: 8
-- gradient_spec.lua: gradients of every op against finite differences in float64: along random directions,
-- whole Jacobians where they are small, and gradients of gradients; and forward mode against both.
local ml = require "meshlua"
local data = require "spec.op.data"
local helper = require "spec.helper"
local rows = require "spec.op.rows"

local function dot(x, y)
  local total = 0.0
  for i = 1, #x do total = total + x[i] * y[i] end
  return total
end

--- Random numbers like each of the lists.
local function directions(g, lists)
  local out = {}
  for k, x in ipairs(lists) do out[k] = data.random(g, {low = -1, high = 1}, "float64", x.shape) end
  return out
end

--- The row at x + step * u, where u moves the inputs `which`.
local function moved(tensors, which, u, step)
  local out = table.move(tensors, 1, #tensors, 1, {})
  for i, k in ipairs(which) do out[k] = tensors[k] + data.tensor(u[i]) * step end
  return out
end

--- The product of a row's results with fixed cotangents; results that are no floats count as constants.
local function functional(call, cotangents)
  return function(...)
    local total
    for i, y in ipairs {call(...)} do
      if data.is_float(y.dtype) then
        local part = ml.sum(y * cotangents[i])
        total = total and total + part or part
      end
    end
    return total
  end
end

local step = 2 ^ -17

--- fn's derivative at the tensors along u by central differences.
local function difference(fn, tensors, which, u)
  local up, down = moved(tensors, which, u, step), moved(tensors, which, u, -step)
  return (fn(table.unpack(up)):item() - fn(table.unpack(down)):item()) / (2 * step)
end

local function check(what, expected, actual, scale)
  if not (math.abs(expected - actual) <= 2e-8 * math.max(1, scale, math.abs(expected))) then
    error(("%s: differences give %.12g, the gradient %.12g"):format(what, expected, actual), 2)
  end
end

--- The inputs of a row in float64, what is differentiated, and a functional of its results.
local function problem(row, shapes)
  local g = rows.generator(row)
  local tensors, cotangents = rows.inputs(row, "float64", g, shapes), {}
  for i, y in ipairs {row.call(table.unpack(tensors))} do
    local dtype = data.is_float(y.dtype) and y.dtype or "float64"
    cotangents[i] = data.tensor(data.random(g, {low = -1, high = 1}, dtype, y.shape))
  end
  return g, tensors, rows.differentiable(row), functional(row.call, cotangents)
end

local function magnitude(lists, u)
  local total = 0.0
  for k, x in ipairs(lists) do
    for i = 1, #x do total = total + math.abs(x[i] * u[k][i]) end
  end
  return total
end

local function along(gradients, u)
  local total, flats = 0.0, data.flats(gradients)
  for k, x in ipairs(flats) do total = total + dot(x, u[k]) end
  return total, magnitude(flats, u)
end

--- The derivative of fn's results along u by forward mode; `product` of them with something is compared with what
--- reverse mode gives for it.
local function check_forward(fn, tensors, which, u, product, slope, scale)
  local tangents = {}
  for i, k in ipairs(which) do tangents[k] = data.tensor(u[i]) end
  local _, forward = ml.jvp(fn, tensors, tangents)
  forward = product(forward):item()
  if not (math.abs(forward - slope) <= 1e-11 * math.max(1, scale, math.abs(slope))) then
    error(("forward mode gives %.17g, the gradient %.17g"):format(forward, slope), 2)
  end
end

local function check_first(row)
  local g, tensors, which, fn = problem(row)
  local gradients = ml.grad(fn, {argnums = which})(table.unpack(tensors))
  for i, k in ipairs(which) do
    assert.equal(table.concat(tensors[k].shape, ","), table.concat(gradients[i].shape, ","))
    assert.equal("float64", gradients[i].dtype)
  end
  for trial = 1, 2 do
    local u = directions(g, gradients)
    local slope, scale = along(gradients, u)
    check("direction " .. trial, difference(fn, tensors, which, u), slope, scale)
    if trial == 1 then
      check_forward(fn, tensors, which, u, function(d) return d end, slope, scale)
    end
  end
end

--- The gradient's own gradient: of its product with a fixed direction v.
local function check_second(row)
  local g, tensors, which, fn = problem(row)
  local gradient = ml.grad(fn, {argnums = which})
  local v = {}
  for i, x in ipairs(directions(g, gradient(table.unpack(tensors)))) do v[i] = data.tensor(x) end
  local function with_v(gradients)
    local total
    for i, d in ipairs(gradients) do
      local part = ml.sum(d * v[i])
      total = total and total + part or part
    end
    return total
  end
  local function slope(...) return with_v(gradient(...)) end
  local second = ml.grad(slope, {argnums = which})(table.unpack(tensors))
  local u = directions(g, second)
  local curvature, scale = along(second, u)
  check("second order", difference(slope, tensors, which, u), curvature, scale)
  check_forward(gradient, tensors, which, u, with_v, curvature, scale)
end

--- A list like x with a one at place k.
local function one_at(x, k)
  local out = {shape = x.shape, dtype = x.dtype}
  for i = 1, #x do out[i] = i == k and 1.0 or 0.0 end
  return out
end

--- Every element of every result by every element of every input.
local function check_jacobian(row, shapes)
  local _, tensors, which = problem(row, shapes)
  local inputs, columns = {}, {}
  for i, k in ipairs(which) do inputs[i] = data.flat(tensors[k]) end
  for i, x in ipairs(inputs) do -- columns[i][k][r]: the derivative of result r by element k of input i
    columns[i] = {}
    for k = 1, #x do
      local u = data.tensor(one_at(x, k))
      local up = data.flats {row.call(table.unpack(moved(tensors, {which[i]}, {data.flat(u)}, step)))}
      local down = data.flats {row.call(table.unpack(moved(tensors, {which[i]}, {data.flat(u)}, -step)))}
      columns[i][k] = {up = up, down = down}
    end
  end
  for r, y in ipairs(data.flats {row.call(table.unpack(tensors))}) do
    for place = 1, data.is_float(y.dtype) and #y or 0 do
      local cotangent = data.tensor(one_at(y, place))
      local gradients = ml.grad(function(...)
        return ml.sum((select(r, row.call(...))) * cotangent)
      end, {argnums = which})(table.unpack(tensors))
      for i, d in ipairs(data.flats(gradients)) do
        for k = 1, #d do
          local c = columns[i][k]
          check(("d result %d [%d] / d input %d [%d]"):format(r, place, which[i], k),
            (c.up[r][place] - c.down[r][place]) / (2 * step), d[k], 1)
        end
      end
    end
  end
end

local function elements(row)
  local n = 0
  for _, k in ipairs(rows.differentiable(row)) do n = n + data.count(row.inputs[k]) end
  return n
end

local done = {}
for _, row in ipairs(rows.tried) do
  if #rows.differentiable(row) > 0 then
    done[row.op] = true
    describe("gradient of " .. row.name, function()
      it("against differences", function() check_first(row) end)
      it("of the gradient", function() check_second(row) end)
      if helper.watched and row.name ~= row.op then -- its numbers are looked at without a sanitizer
        return
      elseif elements(row) <= 48 then
        it("as a Jacobian", function() check_jacobian(row) end)
      elseif row.elementwise and row.name == row.op then
        it("as a Jacobian", function()
          local shapes = {}
          for k in ipairs(row.inputs) do shapes[k] = {2, 3} end
          check_jacobian(row, shapes)
        end)
      end
    end)
  end
end

it("is checked for every op that has a gradient", function()
  for name, def in pairs(rows.ops) do
    if not rows.made_by_passes[name] and (def.grad == "vjp" or def.grad == "expand") then
      assert.truthy(done[name], "no row of op '" .. name .. "' is differentiated")
    end
  end
end)
