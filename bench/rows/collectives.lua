-- collectives.lua: see collectives.py.
local ml = require "meshlua"

local P, NamedSharding = ml.P, ml.NamedSharding
local SHOWN = 1 << 16 -- elements of a result that are compared

local whole, parts = P(), P "x"
--- The function on a device's block, and how argument and result lie.
local functions = {
  ["all-reduce"] = {function(x) return ml.psum(x, "x") end, parts, whole},
  ["reduce-scatter"] = {function(x) return ml.psum_scatter(x, "x", {tiled = true}) end, parts, parts},
  ["all-to-all"] = {function(x) return ml.all_to_all(x, "x", 1, 1, {tiled = true}) end, parts, parts},
}

--- Numbers that every arm makes for itself: they would be gigabytes of files.
local function ramp(shape, sharding)
  return ml.jit(function()
    local n = 1
    for _, size in ipairs(shape) do n = n * size end
    local i = ml.bitand(ml.iota({n}, 1), 1023)
    return ml.constrain((i:astype "float32" / 1024):reshape(shape), sharding)
  end, {mesh = sharding.mesh})()
end

--- The case of a step; of its result, what is compared begins with the numbers of `first`.
local function case(x, step, first)
  return {
    results = function()
      local y = first(step(x)):reshape(-1)
      return {y:slice {1, math.min(y.size, SHOWN)}}
    end,
    run = function() step(x):release() end,
  }
end

return function(p)
  local mesh = ml.make_mesh({8}, {"x"})
  if p.op == "all-gather" then
    local to = NamedSharding(mesh, whole)
    return case(ramp({p.bytes // 4}, NamedSharding(mesh, parts)),
      ml.jit(function(x) return ml.reshard(x, to) end), function(y) return y end)
  end
  if p.reshard then
    local layouts = {S0 = P("x", nil), S1 = P(nil, "x"), R = P()}
    local from, to = layouts[p.reshard[1]], NamedSharding(mesh, layouts[p.reshard[2]])
    return case(ramp(p.shape, NamedSharding(mesh, from)), ml.jit(function(x) return ml.reshard(x, to) end),
      function(y) return y end)
  end
  local fn, from, to = table.unpack(functions[p.op])
  local x = ramp({8 * p.bytes // 4}, NamedSharding(mesh, from))
  return case(x, ml.jit(ml.shard_map(fn, {mesh = mesh, in_specs = from, out_specs = to})),
    function(y) return y:addressable_data(1) end)
end
