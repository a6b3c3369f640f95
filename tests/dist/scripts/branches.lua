-- branches.lua: ticks of a pipeline of four stages, each of which runs its own alone; the bits of its loss and
-- gradients.
-- Arguments: the mesh's sizes, stage first; "off": all run all.
local ml = require "meshlua"
local out = require "out"
local P = ml.P

local sizes = {}
for n in (arg[1] or "4"):gmatch "%d+" do sizes[#sizes + 1] = tonumber(n) end
local mesh = ml.make_mesh(sizes, #sizes == 1 and {"stage"} or {"stage", "model"})
local STAGES, MICROBATCHES = sizes[1], 3
local model = #sizes == 2 and "model" or nil
local function put(x, ...) return ml.device_put(x, ml.NamedSharding(mesh, P(...))) end
local function draw(n, ...) return ml.random.normal(ml.random.key(n), {...}) end

local chain = {}
for s = 0, STAGES - 2 do chain[#chain + 1] = {s, s + 1} end

local function loss(w, v, xs)
  local sums = ml.shard_map(function(up, down, batches)
    local stage = ml.axis_index("stage")
    local last = ml.scan(function(c, tick)
      local k = tick - stage
      local hop, sum = ml.static_cond(k:ge(0) & k:lt(MICROBATCHES), function(h, acc)
        local y = ml.tanh((h + batches:slice(1)):matmul(up:reshape(8, -1))):matmul(down:reshape(-1, 8))
        if model then y = ml.psum(y, model) end
        return y, acc + y
      end, function(h, acc) return h, acc end, c.hop, c.sum)
      return {hop = ml.ppermute(hop, "stage", chain), sum = sum}
    end, {hop = ml.zeros {2, 8}, sum = ml.zeros {2, 8}}, ml.arange(MICROBATCHES + STAGES - 1))
    return last.sum:reshape(1, 2, 8)
  end, {mesh = mesh, in_specs = {P("stage", nil, model), P("stage", model, nil), P()},
    out_specs = P("stage")})(w, v, xs)
  return (sums * sums):sum()
end

local step = ml.jit(ml.value_and_grad(loss, {argnums = {1, 2, 3}}))
local w, v = put(draw(0, STAGES, 8, 8), "stage", nil, model), put(draw(1, STAGES, 8, 8), "stage", model, nil)
local xs = put(draw(2, MICROBATCHES, 2, 8))
local skips = arg[2] ~= "off"
ml.config {passes = {branches = skips}}
assert((tostring(step:plan(w, v, xs)):find(" if ", 1, true) ~= nil) == skips)
for _ = 1, 3 do -- on GPUs the second is captured, the third replayed
  local value, gradients = step(w, v, xs)
  for i, t in ipairs {value, table.unpack(gradients)} do
    out.print("%d: %08x", i, out.hash(ml.all_gather_to_host(t):bytes()))
  end
end
