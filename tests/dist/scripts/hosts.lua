-- hosts.lua: eight devices in four processes on two hosts: which axes of a mesh go from one to the other, and where
-- explain says that another order would send less between them.
local ml = require "meshlua"
local out = require "out"

local P, NamedSharding = ml.P, ml.NamedSharding
local text = table.concat(ml.core.hosts(), " ")
assert(text == "0 0 1 1", text)

local function ends(mesh, wanted)
  local said = tostring(mesh)
  assert(said:sub(-#wanted) == wanted, said)
end
ends(ml.make_mesh({2, 4}, {"data", "model"}), "}}; data goes between hosts")
ends(ml.make_mesh({4, 2}, {"model", "data"}), "}}; model goes between hosts")
ends(ml.make_mesh({8}, {"data"}), "}; data goes between hosts")
ends(ml.make_mesh({2, 2}, {"a", "b"}, {0, 2, 4, 6}), "}}; a goes between hosts")
-- A grid in which both go across, though one alone would have to.
ends(ml.Mesh({{0, 4, 1, 5}, {2, 6, 3, 7}}, {"data", "model"}), "}}; model goes between hosts")
ends(ml.Mesh({{0, 5, 1, 4}, {6, 2, 7, 3}}, {"data", "model"}),
  "}}; data,model go between hosts; with data as the last axis it would not; with model as the last axis it "
  .. "would not")

--- What explain says of a step whose matrices lie over `model`, its batch over `data`.
local function notes(mesh)
  local x = ml.device_put(ml.ones {64, 64}, NamedSharding(mesh, P("data", nil)))
  local up = ml.device_put(ml.ones {64, 64}, NamedSharding(mesh, P(nil, "model")))
  local down = ml.device_put(ml.ones {64, 64}, NamedSharding(mesh, P("model", nil)))
  local step = ml.jit(function(a, w1, w2) return (a:matmul(w1):matmul(w2) ^ 2):sum() end)
  return ml.explain(step, x, up, down)
end

local e = notes(ml.make_mesh({4, 2}, {"model", "data"}))
assert(#e.between_hosts == 1 and e.between_hosts[1].axis == "model", tostring(e))
local found
for _, f in ipairs(e.findings) do found = f.rule == "between_hosts" and f or found end
out.print("%s, at %s: %s", found.cause, found.where:match "[^/]*$", found.mend)
assert(tostring(e):find("%d%. mesh axis model goes"), tostring(e))
assert(#notes(ml.make_mesh({2, 4}, {"data", "model"})).between_hosts == 0)
