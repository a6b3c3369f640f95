-- big.lua: a message of more than a GiB, there and back, between 2 devices. Needs 9 GB.
local ml = require "meshlua"
local out = require "out"
local P, NamedSharding = ml.P, ml.NamedSharding

local ROWS, COLUMNS = 1025, 1048583
local mesh = ml.make_mesh({2}, {"x"})
-- A byte says where it stands: what is missing or moved is seen.
local make = ml.jit(function()
  local row, column = ml.arange(2 * ROWS):reshape {2 * ROWS, 1}, ml.arange(COLUMNS):reshape {1, COLUMNS}
  return ml.constrain(((row * 31 + column) % 251):astype "uint8", NamedSharding(mesh, P "x"))
end, {mesh = mesh})
local swap = ml.jit(ml.shard_map(function(t) return ml.ppermute(t, "x", {{0, 1}, {1, 0}}) end,
  {mesh = mesh, in_specs = {P "x"}, out_specs = P "x"}))
local same = ml.jit(function(a, b) return a:eq(b):all() end, {mesh = mesh})

local x = make()
local y = swap(x)
out.print("moved: %s", tostring(same(x, y):item()))
out.print("and back: %s", tostring(same(x, swap(y)):item()))
