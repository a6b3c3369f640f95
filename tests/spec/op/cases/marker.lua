-- Rows of the ops that give their operand back.
local ml = require "meshlua"
local op = ml.core.op

local rows = {}

for _, name in ipairs {"identity", "opt_barrier", "copy", "stop_gradient"} do
  rows[#rows + 1] = {op = name, inputs = {{8, 16}}, elementwise = true, exact = true, ints = true,
    bool = true,
    call = function(x) return op[name](x) end,
    ref = function(x) return x end}
end

rows[#rows + 1] = {op = "checkpoint_name", inputs = {{8, 16}}, elementwise = true, exact = true, ints = true,
  bool = true,
  call = function(x) return op.checkpoint_name(x, {name = "row"}) end,
  ref = function(x) return x end}
rows[#rows + 1] = {op = "shard_alike", inputs = {{8, 16}, {8, 16}}, elementwise = true, exact = true,
  ints = true, bool = true,
  call = function(x, y) return op.shard_alike(x, y) end,
  ref = function(x) return x end}
rows[#rows + 1] = {op = "propagation_barrier", inputs = {{8, 16}}, rule = "AB->AB", exact = true, ints = true,
  bool = true,
  call = function(x) return op.propagation_barrier(x) end,
  ref = function(x) return x end}

local mesh = ml.make_mesh({4, 2}, {"x", "y"})
for _, spec in ipairs {ml.P("x", "y"), ml.P(nil, {"y", "x"}), ml.P()} do
  rows[#rows + 1] = {op = "constrain", name = "constrain to " .. tostring(spec), inputs = {{8, 16}},
    exact = true, ints = true, bool = true, mesh = mesh,
    call = function(x) return op.constrain(x, {layout = ml.NamedSharding(mesh, spec)}) end,
    ref = function(x) return x end}
end

return rows
