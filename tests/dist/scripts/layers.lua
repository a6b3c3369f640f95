-- layers.lua DATA [LAYERS WIDTH ROWS off]: three steps of layers that are a loop, their weights and gradients split over
-- `data`: with overlap, which `off` switches off, weights are gathered an iteration ahead, and gradients waited for an
-- iteration late. Rank 0 prints checksums; with LAYERS, the seconds of a step too, and of them what it waited.
local ml = require "meshlua"
local out = require "out"
local P, NamedSharding = ml.P, ml.NamedSharding

local on = arg[5] ~= "off"
ml.config {passes = {overlap = on}}
local mesh = ml.make_mesh({tonumber(arg[1])}, {"data"})
local layers, width = tonumber(arg[2] or 5), tonumber(arg[3] or 32)
local function put(key, shape, ...)
  return ml.device_put(ml.random.normal(ml.random.key(key), shape), NamedSharding(mesh, P(...)))
end
local w = put(1, {layers, width, width}, false, "data") * (1 / math.sqrt(width))
local b = put(2, {layers, width}, false, "data")
local x = put(3, {tonumber(arg[4] or 16), width}, "data")

local split = {NamedSharding(mesh, P()), NamedSharding(mesh, P(false, "data")),
  NamedSharding(mesh, P(false, "data"))}
local step = ml.jit(function(v, c, rows)
  local loss, grads = ml.value_and_grad(function(p)
    local last = ml.scan(function(h, layer)
      return ml.tanh(h:matmul(layer[1]) + layer[2])
    end, rows, p)
    return (last * last):mean()
  end)({v, c})
  return loss, v - grads[1], c - grads[2]
end, {mesh = mesh, out_shardings = split})

local ahead, late = 0, 0
for _, s in ipairs(step:plan(w, b, x):steps()) do
  if s.shift and s.kind == "collective" then ahead = ahead + 1 end
  if s.shift == -1 and s.kind == "done" then late = late + 1 end
end
assert(on == (ahead > 0 and late > 0), ("%d ahead, %d late"):format(ahead, late))

local loss
for _ = 1, 3 do
  loss, w, b = step(w, b, x)
  out.print("%a", loss:item())
end
for _, t in ipairs {w, b} do out.print("%08x", out.hash(ml.all_gather_to_host(t):bytes())) end

if not arg[2] then return end
local times, waits = {}, {}
for i = 1, 9 do
  local start, waited = ml.core.clock(), ml.core.idle()
  loss, w, b = step(w, b, x)
  loss:item()
  times[i], waits[i] = ml.core.clock() - start, ml.core.idle() - waited
end
table.sort(times)
table.sort(waits)
out.print("%.2f ms, %.2f ms waited", 1e3 * times[5], 1e3 * waits[5])
