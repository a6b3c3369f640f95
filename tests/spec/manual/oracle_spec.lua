-- devices: 8
-- Random functions of blocks as JAX's shard_map runs them (tests/oracle/manual.py): every type inside, values,
-- gradients, and which out_specs cannot be inferred.
local ml = require "meshlua"
local oracle = require "spec.oracle"

local P = ml.P
local expected = oracle.read "manual"

local function data(shape, k)
  local n = 1
  for _, size in ipairs(shape) do n = n * size end
  return ml.cos(ml.astype(ml.arange(n), "float64") * 0.7 + k):reshape(shape)
end

--- Four weighted sums, as the script makes them.
local function prints(x)
  local flat, sums = x:reshape {x.size}, {}
  local i = ml.astype(ml.arange(x.size), "float64") + 1
  for j = 1, 4 do sums[j] = (flat * ml.sin(i * (0.3 * j))):sum():item() end
  return sums
end

local function close(what, want, got)
  for j = 1, 4 do
    assert(math.abs(want[j] - got[j]) <= 1e-9 * (1 + math.abs(want[j])),
      ("%s, sum %d: %.12g, JAX has %.12g"):format(what, j, got[j], want[j]))
  end
end

local function to_p(entries)
  local list = {}
  for d, axes in ipairs(entries) do list[d] = #axes > 0 and axes or false end
  return P(table.unpack(list, 1, #list))
end

local call = {
  scale = function(x, s) return x * s.by end,
  mean = function(x, s) return x:mean(s.dim, true) end,
  transpose = function(x) return x.ndim > 1 and x:transpose() or x end,
  flatten = function(x) return x:reshape {x.size} end,
  product = function(x) return x:matmul(x:T()) end,
  place = function(x, s) return x * (ml.axis_index(s.axes) + 1) end,
  psum = function(x, s) return ml.psum(x, s.axes) end,
  pmean = function(x, s) return ml.pmean(x, s.axes) end,
  pmax = function(x, s) return ml.pmax(ml.stop_gradient(x), s.axes) end,
  pcast = function(x, s) return ml.pcast(x, s.axes, {to = "varying"}) end,
  all_gather = function(x, s) return ml.all_gather(x, s.axes, {axis = s.dim, tiled = s.tiled}) end,
  psum_scatter = function(x, s)
    return ml.psum_scatter(x, s.axes, {scatter_dimension = s.dim, tiled = s.tiled})
  end,
  ppermute = function(x, s) return ml.ppermute(x, s.axes, s.perm) end,
  all_to_all = function(x, s) return ml.all_to_all(x, s.axes, s.split, s.concat, {tiled = s.tiled}) end,
}

--- One step: its op is one of those above, or of ml's.
local function apply(step, values)
  local x, y = values[step["in"][1] + 1], step["in"][2] and values[step["in"][2] + 1]
  return call[step.op] and call[step.op](x, step) or ml[step.op](x, y)
end

local function run(program)
  local n, ids, types, ins, outs, args, all = 1, {}, {}, {}, {}, {}, {}
  for _, size in ipairs(program.sizes) do n = n * size end
  for i = 1, n do ids[i] = i - 1 end
  local mesh = ml.make_mesh(program.sizes, program.names, ids)
  for k, x in ipairs(program.inputs) do ins[k], args[k], all[k] = to_p(x.spec), data(x.shape, k - 1), k end
  for k, o in ipairs(program.outs) do outs[k] = to_p(o.spec) end
  local f = ml.shard_map(function(...)
    local values, results = {...}, {}
    for _, step in ipairs(program.steps) do values[#values + 1] = apply(step, values) end
    for k, v in ipairs(values) do types[k] = ml.typeof(v) end
    for k, o in ipairs(program.outs) do results[k] = values[o.value + 1] end
    return table.unpack(results)
  end, {mesh = mesh, in_specs = ins, out_specs = outs})
  local results = table.pack(pcall(ml.jit(f), table.unpack(args)))
  assert.same(program.types, types)
  if program.refused then
    assert.is_false(results[1])
    assert.truthy(results[2]:find("can't be statically inferred", 1, true), results[2])
    return
  end
  assert.is_true(results[1], results[2])
  for k, want in ipairs(program.values) do
    assert.same(program.shapes[k], results[k + 1].shape)
    close("value " .. k, want, prints(results[k + 1]))
  end
  local function loss(...)
    local total = 0
    for k, y in ipairs {f(...)} do
      local weight = ml.sin(ml.astype(ml.arange(y.size), "float64") * 0.3 + k):reshape(y.shape)
      total = total + (y * weight):mean()
    end
    return total
  end
  local grads = ml.jit(ml.grad(loss, {argnums = all}))(table.unpack(args))
  for k, want in ipairs(program.grads) do close("gradient " .. k, want, prints(grads[k])) end
end

describe("as JAX " .. expected.jax .. ", program of seed", function()
  local refused = 0
  for _, program in ipairs(expected.programs) do
    it(tostring(program.seed), function() run(program) end)
    refused = refused + (program.refused and 1 or 0)
  end
  it("of which some are refused", function() assert(refused >= 10 and refused < #expected.programs / 2) end)
end)
