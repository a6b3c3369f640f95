-- beside.lua FILE: a sum over devices is on its way while a product runs that does not need it. In the profile of
-- rank 0 the product lies between what the sum begins with and the wait for it.
local ml = require "meshlua"
local P, NamedSharding = ml.P, ml.NamedSharding

ml.config {passes = {overlap = true}}
local mesh = ml.make_mesh({8}, {"x"})
local a = ml.device_put(ml.random.normal(ml.random.key(1), {8, 300, 50}), NamedSharding(mesh, P "x"))
local b = ml.device_put(ml.random.normal(ml.random.key(2), {8, 200, 200}), NamedSharding(mesh, P "x"))
local step = ml.jit(function(u, v)
  local s = u:sum(1) -- SUM
  local m = v:matmul(v) -- PRODUCT
  return s, m
end, {mesh = mesh})
step(a, b)
local path = arg[1] .. ml.process_index()
ml.profile.start(path)
step(a, b)
ml.profile.stop()
if ml.process_index() ~= 0 then return end

local lines, number = {}, 0
for text in io.lines(arg[0]) do
  number = number + 1
  local word = text:match "%-%- (%u+)$"
  if word then lines["beside.lua:" .. number] = word end
end
local seen = {}
for event in io.lines(path) do
  local word = lines[event:match '"line":"[^"]-([^/"]+:%d+)' or ""]
  if event:find('"name":"wait"', 1, true) then word = word and "WAIT" end
  if word and word ~= seen[#seen] then seen[#seen + 1] = word end
end
print(table.concat(seen, " "))
