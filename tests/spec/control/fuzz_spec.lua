-- devices: 8
-- Random bodies in loops and branches, on random layouts, against plain Lua loops on one device: values and
-- gradients.
local helper = require "spec.helper"
local ml = require "meshlua"
local programs = require "fuzz.programs"

local P, NamedSharding = ml.P, ml.NamedSharding
local meshes = {ml.make_mesh({4, 2}, {"x", "y"}), ml.make_mesh({8}, {"x"}),
  ml.make_mesh({2, 2, 2}, {"x", "y", "z"})}
local ROWS, COLUMNS, LENGTH = 8, 8, 3

--- Loops and branches as the library has them, and written out.
local library = {scan = ml.scan, cond = ml.cond}
local plain = {}
function plain.scan(f, carry, xs)
  local ys = {}
  for k = 1, xs.shape[1] do carry, ys[k] = f(carry, xs:slice(k)) end
  return carry, ml.stack(ys, 1)
end
function plain.cond(p, yes, no, ...)
  local a, b = yes(...), no(...)
  return ml.where(p, a, b)
end

--- What one line of a body does with the matrices h (the carry), x (the slice) and w (a constant).
local lines = {
  function() return function(_, h, x) return h + x end end,
  function() return function(_, h, _, w) return ml.tanh(h:matmul(w) * 0.3) end end,
  function() return function(_, h, _, w) return ml.sin(w:matmul(h) * 0.3) end end,
  function() return function(_, h, x) return h * ml.tanh(x) end end,
  function() return function(_, h) return h:transpose() end end,
  function() return function(_, h, x) return h - x:mean(1) + h:sum(2):reshape({ROWS, 1}) * 0.1 end end,
  function() return function(_, h) return ml.softmax(h) + h * 0.5 end end,
  function(g)
    local limit = g.int(-10, 10) / 10
    return function(to, h, x, w)
      return to.cond(x:sum():gt(limit), function(v) return ml.sin(v) + x end,
        function(v) return v:matmul(w) * 0.2 end, h)
    end
  end,
  function()
    return function(to, h, x, w)
      local c, ys = to.scan(function(c, row) return ml.tanh(c + row), c * row end, w:slice(1), x)
      return h + ys * 0.5 + c * 0.1
    end
  end,
}

--- A loss of (h, xs, w) as a random body says.
local function random_loss(g)
  local body, reads_w = {}, g.chance(50)
  for i = 1, g.int(1, 4) do body[i] = g.pick(lines)(g) end
  return function(to)
    return function(h, xs, w)
      local c, ys = to.scan(function(c, x)
        for _, line in ipairs(body) do c = line(to, c, x, w) end
        return c, reads_w and (c * w):sum() or c:mean(2)
      end, h, xs)
      return (c * c):mean() + ys:sum() * 0.1
    end
  end
end

local function draw(g, ...)
  return (ml.random.randint(ml.random.key(g.int(0, 1 << 30)), {...}, -12, 13) / 8.0):astype("float64")
end

local function check(seed)
  local g = programs.generator(seed)
  local loss, mesh = random_loss(g), g.pick(meshes)
  local args = {draw(g, ROWS, COLUMNS), draw(g, LENGTH, ROWS, COLUMNS), draw(g, COLUMNS, COLUMNS)}
  local want, gradients = ml.jit(ml.value_and_grad(loss(plain), {argnums = {1, 2, 3}}))(table.unpack(args))
  local laid, specs = {}, {}
  for i, x in ipairs(args) do
    specs[i] = programs.random_spec(g, mesh, x.shape)
    laid[i] = ml.device_put(x, NamedSharding(mesh, specs[i]))
  end
  local got, sharded = ml.jit(ml.value_and_grad(loss(library), {argnums = {1, 2, 3}}))(table.unpack(laid))
  local bad = helper.difference(want, got, 1e-10)
  for i = 1, 3 do
    local whole = ml.device_put(sharded[i], NamedSharding(mesh, P()))
    bad = bad or helper.difference(gradients[i], whole, 1e-9, "gradient " .. i)
  end
  if bad then
    error(("seed %d on %s with %s %s %s: %s"):format(seed, tostring(mesh), tostring(specs[1]),
      tostring(specs[2]), tostring(specs[3]), bad), 0)
  end
end

describe("random loops on a mesh give what Lua loops give on one device:", function()
  for first = 1, 100, 20 do
    it(("seeds %d to %d"):format(first, first + 19), function()
      for seed = first, first + 19 do check(seed) end
    end)
  end
end)
