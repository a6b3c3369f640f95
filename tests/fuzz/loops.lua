-- loops.lua: random loops over stacks, whose slices are gathered and whose results are reduced and scattered in them:
-- with overlap the bits are those without it. Everything follows from one seed:
--   meshlua --devices=8 tests/fuzz/loops.lua [count] [first seed]
local folder = arg and arg[0] and arg[0]:match "^(.*)fuzz/loops%.lua$" -- run as a script
if folder then package.path = folder .. "?.lua;" .. package.path end
local ml = require "meshlua"
local programs = require "fuzz.programs"

local M = {}

local meshes = {{{8}, {"x"}}, {{4, 2}, {"x", "y"}}, {{2, 2}, {"x", "y"}}, {{2}, {"x"}}}

-- Every value is a matrix of N x N, so that any fits any.
local N = 32
local lines = {
  function(a, b) return ("ml.matmul(%s, %s) * 0.25"):format(a, b) end,
  function(a, b) return ("ml.matmul(%s, %s) * 0.25"):format(a, b) end,
  function(a, b) return ("%s + %s"):format(a, b) end,
  function(a, b) return ("ml.tanh(%s) * %s"):format(a, b) end,
  function(a) return ("ml.transpose(%s)"):format(a) end,
  function(a, b) return ("%s + ml.sum(%s, 1, true)"):format(a, b) end,
  function(a, b) return ("%s * ml.mean(%s)"):format(a, b) end,
  function(a) return ("ml.softmax(%s, 2)"):format(a) end,
  function(a) return ("ml.astype(ml.astype(%s, 'bfloat16'), 'float32')"):format(a) end,
  function(a) return ("ml.cumsum(%s, 1)"):format(a) end,
  function(a, b, g)
    return ("ml.fori_loop(0, %d, function(_, t) return ml.tanh(t + %s) end, %s)"):format(g.int(1, 3), b, a)
  end,
  function(a, b)
    return ("ml.cond(ml.gt(ml.mean(%s), 0), function(t) return t * 0.5 end, ml.tanh, %s)"):format(b, a)
  end,
}

--- A loop: its source, its inputs' specs, what it constrains.
function M.make(seed)
  local g = programs.generator(seed)
  local def = g.pick(meshes)
  local ids = {}
  for i = 1, def[1][1] * (def[1][2] or 1) do ids[i] = i - 1 end
  local mesh = ml.make_mesh(def[1], def[2], {devices = ids})
  local program = {seed = seed, mesh = mesh, specs = {}, constraints = {}}
  local carries, stacks = g.int(1, 3), g.int(1, 3)
  local length, pool, body = g.int(1, 5), {}, {}
  for i = 1, carries do
    pool[i], program.specs[i] = "c" .. i, programs.random_spec(g, mesh, {N, N})
  end
  for i = 1, stacks do
    pool[#pool + 1] = "s" .. i
    program.specs[carries + i] = programs.random_spec(g, mesh, {g.chance(80) and 1 or length, N, N})
  end
  for i = 1, g.int(2, 7) do
    local text = g.pick(lines)(g.pick(pool), g.pick(pool), g)
    if g.chance(40) then
      program.constraints[#program.constraints + 1] = programs.random_spec(g, mesh, {N, N})
      text = ("C(%s, %d)"):format(text, #program.constraints)
    end
    pool[#pool + 1] = "v" .. i
    body[i] = ("    local v%d = %s"):format(i, text)
  end
  local next, out = {}, {}
  for i = 1, carries do
    local v = g.pick(pool)
    next[i] = g.chance(40) and ("c%d + %s"):format(i, v) or v
  end
  for i = 1, g.int(1, 3) do out[i] = pool[#pool - g.int(0, math.min(#pool - 1, 3))] end
  local c, s = table.concat(pool, ", ", 1, carries), table.concat(pool, ", ", carries + 1, carries + stacks)
  program.length, program.carries, program.stacks = length, carries, stacks
  program.source = ([[local ml, C = ...
return function(%s, %s)
  local t, ys = ml.scan(function(t, x)
    local %s = table.unpack(t)
    local %s = table.unpack(x)
%s
    return {%s}, {%s}
  end, {%s}, {%s}, {reverse = %s})
  local sum = ml.mean(ys[1])
  for i = 2, #ys do sum = sum + ml.mean(ys[i]) * i end
  for i = 1, #t do sum = sum + ml.mean(t[i]) * i end
  return sum, {t, ys}
end]]):format(c, s, c, s, table.concat(body, "\n"), table.concat(next, ", "), table.concat(out, ", "), c, s,
    tostring(g.chance(40)))
  return program
end

--- The bytes of all that the loop and its gradient give, and how many collectives go from an iteration to another.
local function run(program, inputs, on)
  ml.config {passes = {overlap = on}}
  local fn = assert(load(program.source, "=loop" .. program.seed))(ml, function(x, i)
    return ml.constrain(x, ml.NamedSharding(program.mesh, program.constraints[i]))
  end)
  local wrt = {}
  for i = 1, #inputs do wrt[i] = i end
  local step = ml.jit(ml.value_and_grad(fn, {argnums = wrt, has_aux = true}), {mesh = program.mesh})
  local crossing, bytes = 0, {}
  for _, s in ipairs(step:plan(table.unpack(inputs)):steps()) do
    local crosses = s.shift and (s.kind == "collective" or s.kind == "done" and s.shift < 0)
    crossing = crossing + (crosses and 1 or 0)
  end
  ml.tree.visit({step(table.unpack(inputs))}, function(path, t)
    bytes[path] = ml.all_gather_to_host(t):bytes()
  end)
  return bytes, crossing
end

--- Runs it with overlap and without.
---@return string? error
function M.check(program)
  local inputs, before = {}, ml.core.check(true)
  for i, spec in ipairs(program.specs) do
    local shape = i > program.carries and {program.length, N, N} or {N, N}
    inputs[i] = ml.device_put(ml.random.normal(ml.random.key(program.seed + i), shape),
      ml.NamedSharding(program.mesh, spec))
  end
  local ok, bad = pcall(function()
    local off = run(program, inputs, false)
    local on, crossing = run(program, inputs, true)
    program.crossing = crossing
    for path, bytes in pairs(off) do
      if on[path] ~= bytes then return ("%s differs"):format(path) end
    end
  end)
  ml.core.check(before)
  ml.config {passes = {overlap = "default"}}
  if not ok then error(bad, 0) end
  return bad
end

--- Text with which a failing program can be read.
function M.describe(program)
  local specs = {}
  for i, spec in ipairs(program.specs) do specs[i] = ("-- input %d: %s"):format(i, spec) end
  for i, spec in ipairs(program.constraints) do specs[#specs + 1] = ("-- C %d: %s"):format(i, spec) end
  return ("-- seed %d on %s, %d iterations\n%s\n%s"):format(program.seed, tostring(program.mesh),
    program.length, table.concat(specs, "\n"), program.source)
end

if folder then programs.run(M, arg) end

return M
