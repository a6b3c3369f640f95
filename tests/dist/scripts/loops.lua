-- loops.lua: collectives in the body of a scan, of a while_loop and of a cond, and their gradients. Started with 8
-- devices; rank 0 prints checksums.
local ml = require "meshlua"
local out = require "out"
local P, NamedSharding = ml.P, ml.NamedSharding

local mesh = ml.make_mesh({4, 2}, {"x", "y"})
local function put(t, ...) return ml.device_put(t, NamedSharding(mesh, P(...))) end

local function say(name, t) out.print("%s: %08x", name, out.hash(ml.all_gather_to_host(t):bytes())) end

local w = put(ml.random.normal(ml.random.key(1), {16, 16}) / 4, "x", "y")
local rows = put(ml.random.normal(ml.random.key(2), {5, 8, 16}), false, "x", "y")

-- Sums over x in each step, of a row of the stack that the loop has come to, into a row of another.
local function run(weights, xs)
  return ml.scan(function(h, x)
    h = ml.tanh(ml.constrain((h + x):matmul(weights), P("x", "y")))
    return h, h:sum(1)
  end, put(ml.zeros {8, 16}, "x", "y"), xs)
end
local last, sums = ml.jit(run, {mesh = mesh})(w, rows)
say("carry", last)
say("stack", sums)

local loss = ml.jit(function(weights, xs)
  local h, s = run(weights, xs)
  return (h * h):sum() + s:mean()
end, {mesh = mesh})
say("gradient", ml.jit(ml.grad(loss), {mesh = mesh})(w, rows))

local count = ml.jit(function(x)
  return ml.while_loop(function(t) return t:sum():lt(1000) end, function(t) return t * 2 end, x)
end, {mesh = mesh})
say("while", count(put(ml.ones {8, 4}, "x")))

for _, big in ipairs {true, false} do
  local choose = ml.jit(function(x)
    return ml.cond(x:sum():gt(big and 0 or 1e6), function(t) return t:sum(1) end,
      function(t) return t:max(1) end, x)
  end, {mesh = mesh})
  say("cond", choose(put(ml.arange(64.0):reshape {8, 8}, "x", "y")))
end
