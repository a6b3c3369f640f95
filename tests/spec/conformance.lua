-- conformance.lua: the programs of tests/oracle/conformance.json, run by meshlua. Numbers there count from 0.
local ml = require "meshlua"

local P = ml.P
local M = {}

local null = require("dkjson").null

--- A list of the file with holes for JSON's null, as a P.
function M.spec(entries)
  local list = {}
  for i, e in ipairs(entries) do
    list[i] = e ~= null and e or P.none
    if type(e) == "table" and #e == 1 then list[i] = e[1] end
  end
  return P(table.unpack(list, 1, #entries))
end

local function plus_one(list)
  local out = {}
  for i, n in ipairs(list) do out[i] = n + 1 end
  return out
end

local function out_of(s) return s.out and {out_sharding = M.spec(s.out)} or nil end

local function slice(s, x)
  local ranges = {}
  for d in ipairs(s.start) do ranges[d] = {s.start[d] + 1, s.limit[d]} end
  return ml.slice(x, table.unpack(ranges))
end

local function pad(s, x)
  local pads = {}
  for d in ipairs(s.low) do pads[d] = {s.low[d], s.high[d]} end
  return ml.pad(x, pads)
end

local function reduction(name)
  return function(s, x) return ml[name](x, plus_one(s.axes), s.keepdims) end
end

local function pairs_of(list)
  local out = {}
  for i, p in ipairs(list) do out[i] = {p[1], p[2]} end
  return out
end

M.steps = {
  neg = function(_, x) return -x end,
  exp = function(_, x) return ml.exp(x) end,
  tanh = function(_, x) return ml.tanh(x) end,
  abs = function(_, x) return ml.abs(x) end,
  square = function(_, x) return ml.square(x) end,
  add = function(_, x, y) return x + y end,
  sub = function(_, x, y) return x - y end,
  mul = function(_, x, y) return x * y end,
  maximum = function(_, x, y) return ml.maximum(x, y) end,
  where = function(_, c, x, y) return ml.where(c:gt(0), x, y) end,
  einsum = function(s, x, y) return ml.einsum(s.eq, x, y, out_of(s)) end,
  sum = reduction "sum", max = reduction "max", min = reduction "min", mean = reduction "mean",
  argmax = function(s, x) return ml.argmax(x, s.axis + 1) end,
  transpose = function(s, x) return ml.transpose(x, table.unpack(plus_one(s.perm))) end,
  reshape = function(s, x) return ml.reshape(x, s.shape, out_of(s)) end,
  broadcast_to = function(s, x) return ml.broadcast(x, s.shape) end,
  expand_dims = function(s, x) return ml.expand_dims(x, s.axis + 1) end,
  squeeze = function(s, x) return ml.squeeze(x, s.axis + 1) end,
  slice = slice,
  pad = pad,
  concat = function(s, ...) return ml.concat({...}, s.axis + 1) end,
  flip = function(s, x) return ml.flip(x, s.axis + 1) end,
  cumsum = function(s, x) return ml.cumsum(x, s.axis + 1) end,
  sort = function(s, x) return (ml.sort(x, s.axis + 1)) end,
  take = function(_, x, i) return ml.take(x, i, 1) end,
  softmax = function(s, x) return ml.softmax(x, s.axis + 1) end,
  reshard = function(s, x) return ml.reshard(x, M.spec(s.spec)) end,
  constrain = function(s, x) return ml.constrain(x, M.spec(s.spec)) end,
  psum = function(s, x) return ml.psum(x, s.over) end,
  pmean = function(s, x) return ml.pmean(x, s.over) end,
  pmax = function(s, x) return ml.pmax(x, s.over) end,
  all_gather = function(s, x) return ml.all_gather(x, s.over, {axis = s.axis + 1, tiled = s.tiled}) end,
  psum_scatter = function(s, x)
    return ml.psum_scatter(x, s.over, {scatter_dimension = s.axis + 1, tiled = s.tiled})
  end,
  ppermute = function(s, x) return ml.ppermute(x, s.over[1], pairs_of(s.pairs)) end,
  all_to_all = function(s, x) return ml.all_to_all(x, s.over, s.split + 1, s.concat + 1, {tiled = true}) end,
  add_index = function(s, x) return x + ml.axis_index(s.over):astype(x.dtype) end,
}

function M.run(steps, values)
  values = table.move(values, 1, #values, 1, {})
  for _, s in ipairs(steps) do
    local operands = {}
    for k, from in ipairs(s["in"]) do operands[k] = values[from + 1] end
    values[#values + 1] = M.steps[s.op](s, table.unpack(operands))
  end
  return values[#values]
end

--- The arguments' numbers, as the script makes them.
local function argument(a)
  local n, list = 1, {}
  for _, size in ipairs(a.shape) do n = n * size end
  for i = 0, n - 1 do
    if a.rows then
      list[i + 1] = i * 5 % a.rows
    else
      list[i + 1] = (i * (37 + 6 * a.salt) % 17 - 8) / 4
    end
  end
  return ml.reshape(ml.tensor(list, a.rows and "int32" or "float32"), a.shape)
end

local function weights(shape)
  local n, list = 1, {}
  for _, size in ipairs(shape) do n = n * size end
  for i = 0, n - 1 do list[i + 1] = (i * 5 % 7 - 3) / 2 end
  return ml.reshape(ml.tensor(list, "float32"), shape)
end

--- The function of a case.
local function function_of(case)
  local function program(...) return M.run(case.steps, {...}) end
  local fn = program
  if case.mode == "shard_map" then
    local ins = {}
    for i, s in ipairs(case.in_specs) do ins[i] = M.spec(s) end
    fn = ml.shard_map(program, {in_specs = ins, out_specs = M.spec(case.out_spec)})
  end
  if case.transform == "vmap" then
    local axes = {}
    for i, a in ipairs(case.in_axes) do axes[i] = a ~= null and a + 1 end
    return ml.vmap(fn, {in_axes = axes, out_axes = case.out_axis + 1})
  elseif case.transform == "scan" then
    return function(c, xs)
      local function body(carry, x) return M.run(case.steps, {carry, x}), M.run(case.steps, {x, carry}) end
      local carry, ys = ml.scan(body, c, xs)
      return case.result == 0 and carry or ys
    end
  elseif case.transform == "cond" then
    return function(p, x)
      return ml.cond(p:sum():gt(0), function(v) return M.run(case.steps, {v}) end,
        function(v) return v * 2 end, x)
    end
  elseif case.transform == "grad" then
    return ml.grad(function(...)
      local y = fn(...)
      local w = weights(y.shape)
      if case.mode == "explicit" then w = ml.reshard(w, y.sharding.spec) end
      return (y * w):sum()
    end)
  end
  return fn
end

--- The result of a case, a tensor; raises where meshlua refuses it.
function M.result(case)
  local mode = case.mode == "explicit" and "explicit" or "auto"
  local types = {}
  for i in ipairs(case.mesh.names) do types[i] = mode end
  local mesh = ml.make_mesh(case.mesh.sizes, case.mesh.names, {axis_types = types})
  return mesh:with(function()
    local args = {}
    for i, a in ipairs(case.args) do args[i] = ml.device_put(argument(a), M.spec(a.spec)) end
    return ml.jit(function_of(case))(table.unpack(args))
  end)
end

return M
