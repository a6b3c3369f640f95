-- pipeline.lua: a pipeline's loss and gradients, of both schedules, beside data parallelism and alone. Started with 8
-- devices; rank 0 prints checksums.
local ml = require "meshlua"
local out = require "out"
local nn, P = ml.nn, ml.P

local function layers()
  return nn.stack(8, function(i)
    return nn.Linear(16, 16, {rngs = nn.Rngs(i), bias_init = nn.initializers.normal(0.1)})
  end)
end
local x = ml.random.normal(ml.random.key(1), {16, 16})

local function say(name, t) out.print("%s: %08x", name, out.hash(ml.all_gather_to_host(t):bytes())) end

for _, sizes in ipairs {{1, 8}, {2, 4}, {4, 2}} do
  local mesh = ml.make_mesh(sizes, {"data", "stage"})
  local stack = ml.device_put(layers(), ml.NamedSharding(mesh, P("stage")))
  local batch = ml.device_put(x, ml.NamedSharding(mesh, P("data")))
  for _, schedule in ipairs {"gpipe", "1f1b"} do
    local step = ml.jit(function(l, rows)
      return ml.value_and_grad(function(m)
        return (nn.pipeline(m, rows, {microbatches = 4, schedule = schedule,
          body = function(layer, h) return ml.tanh(layer(h)) end,
          last = function(h) return (h * h):mean() end}))
      end)(l)
    end, {mesh = mesh})
    local loss, grads = step(stack, batch)
    say(schedule .. " loss", loss)
    say(schedule .. " kernel", grads.kernel)
    say(schedule .. " bias", grads.bias)
  end
end
