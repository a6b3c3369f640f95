-- nested.lua: loops, branches, transforms and shard_map as steps of random programs, in each other. A step gives
-- statements and the values that they define: make(g, program) -> {lines}, {values}; nil where nothing fits. Bodies
-- take parameters and whatever stands around them; some of what they take they hand on unchanged.
local ml = require "meshlua"
local steps = require "fuzz.steps"

local M = {}

local function is_float(dtype) return dtype:match "float" ~= nil end
local function copy(t) return table.move(t, 1, #t, 1, {}) end
local function list(t) return "{" .. table.concat(t, ",") .. "}" end
local function count(shape)
  local n = 1
  for _, size in ipairs(shape) do n = n * size end
  return n
end
local function alike(a, b) return a.dtype == b.dtype and list(a.shape) == list(b.shape) end

local function fresh(program, prefix)
  program.names.n = program.names.n + 1
  return prefix .. program.names.n
end

--- A line behind the others, or before them.
local function add(lines, text, ...) lines[#lines + 1] = text:format(...) end
local function begin(lines, text, ...) table.insert(lines, 1, text:format(...)) end

local function names_of(values)
  local names = {}
  for i, v in ipairs(values) do names[i] = v.name end
  return table.concat(names, ", ")
end

--- A value like `v` under another name.
local function like(program, v, exact)
  return {name = fresh(program, "p"), shape = v.shape, dtype = v.dtype, exact = v.exact and exact ~= false}
end

--- Values of the pool that fit, all different, at most n.
local function some(g, program, n, fits)
  local chosen, seen = {}, {}
  for _ = 1, 4 * n do
    local v = g.pick(program.pool)
    if #chosen < n and not seen[v] and fits(v) then chosen[#chosen + 1], seen[v] = v, true end
  end
  return chosen
end

--- The program inside a function whose parameters are `params`; a parameter is picked as often as all the rest.
local function inside(program, params)
  local pool = copy(program.pool)
  for i = 1, math.max(#pool, #params) do
    if #params > 0 then pool[#pool + 1] = params[(i - 1) % #params + 1] end
  end
  return setmetatable({pool = pool, depth = program.depth + 1}, {__index = program})
end

--- Lines of a body, appended to `lines`; their values join the pool of `inner`. Returns these values.
local function fill(g, inner, lines, least, most)
  local made = {}
  for _ = 1, g.int(least, most) do
    local text, values = inner.line(g, inner)
    for _, line in ipairs(text) do lines[#lines + 1] = "  " .. line end
    for _, v in ipairs(values) do
      made[#made + 1], inner.pool[#inner.pool + 1] = v, v
    end
  end
  return made
end

--- The last of the values that `want` could be, as an expression of its type; nil if there is none.
local function update(g, values, want)
  for i = #values, 1, -1 do
    local v = values[i]
    if alike(v, want) and (v.exact or not want.exact) then
      local bounded = is_float(v.dtype) and not want.exact and g.chance(50)
      return bounded and ("ml.tanh(%s)"):format(v.name) or v.name
    end
  end
end

local function step(name, weight, make)
  for _ = 1, weight do M[#M + 1] = {name = name, make = make} end
end

-- ---- loops --------------------------------------------------------------------------------------------------

--- Carries: what goes in, and for each how it goes on.
local function carries_of(g, program)
  local from = some(g, program, g.int(1, 3), function(v) return count(v.shape) <= 1024 end)
  local params, how = {}, {}
  for i, v in ipairs(from) do
    how[i] = g.pick {"same", "same", "swap", "update", "update"}
    params[i] = like(program, v, how[i] ~= "update" or not is_float(v.dtype))
  end
  return from, params, how
end

--- What the carries are next, in this order; `exact` ones are made of such.
local function next_carries(g, params, how, made)
  local out = {}
  for i, p in ipairs(params) do out[i] = p.name end
  for i, p in ipairs(params) do
    local j = g.int(1, #params)
    if how[i] == "update" then
      out[i] = update(g, made, p) or p.name
    elseif how[i] == "swap" and how[j] ~= "update" and alike(p, params[j]) and p.exact == params[j].exact then
      out[i], out[j] = out[j], out[i]
    end
  end
  return out
end

local function results_of(program, params)
  local results = {}
  for i, p in ipairs(params) do
    results[i] = {name = fresh(program, "r"), shape = p.shape, dtype = p.dtype, exact = p.exact}
  end
  return results
end

step("fori_loop", 3, function(g, program)
  local from, params, how = carries_of(g, program)
  if #from == 0 then return end
  local i = {name = fresh(program, "i"), shape = {}, dtype = "int32", exact = true}
  local inner, lines = inside(program, params), {}
  inner.pool[#inner.pool + 1] = i
  local made = fill(g, inner, lines, 0, 3)
  local results, first = results_of(program, params), g.int(0, 2)
  local t = fresh(program, "t")
  begin(lines, "local %s = ml.fori_loop(%d, %d, function(%s, %s)", t, first, first + g.int(1, 3), i.name, t)
  table.insert(lines, 2, ("  local %s = table.unpack(%s)"):format(names_of(params), t))
  lines[#lines + 1] = "  return " .. list(next_carries(g, params, how, made))
  add(lines, "end, {%s})", names_of(from))
  add(lines, "local %s = table.unpack(%s)", names_of(results), t)
  return lines, results
end)

step("scan", 3, function(g, program)
  local from, params, how = carries_of(g, program)
  local xs = some(g, program, g.int(1, 2), function(v)
    return #v.shape > 0 and v.shape[1] <= 12 and count(v.shape) <= 2048
  end)
  if #from == 0 or #xs == 0 or #xs == 2 and xs[1].shape[1] ~= xs[2].shape[1] then return end
  local n, slices = xs[1].shape[1], {}
  for i, x in ipairs(xs) do
    slices[i] = {name = fresh(program, "s"), shape = table.move(x.shape, 2, #x.shape, 1, {}), dtype = x.dtype,
      exact = x.exact}
  end
  local all = table.move(slices, 1, #slices, #params + 1, copy(params))
  local inner, lines = inside(program, all), {}
  local made = fill(g, inner, lines, 0, 3)
  local results, t = results_of(program, params), fresh(program, "t")
  local y = g.pick(g.chance(60) and #made > 0 and made or all)
  if count(y.shape) * n > 4096 or #y.shape > 4 then y = slices[1] end
  local ys = {name = fresh(program, "y"), shape = {n, table.unpack(y.shape)}, dtype = y.dtype,
    exact = y.exact}
  local unroll = g.chance(25) and g.int(1, n) or 1
  begin(lines, "local %s, %s = ml.scan(function(%s, x)", t, ys.name, t)
  table.insert(lines, 2, ("  local %s = table.unpack(%s)"):format(names_of(params), t))
  table.insert(lines, 3, ("  local %s = table.unpack(x)"):format(names_of(slices)))
  add(lines, "  return %s, %s", list(next_carries(g, params, how, made)), y.name)
  add(lines, "end, {%s}, {%s}, {reverse = %s, unroll = %d})", names_of(from), names_of(xs),
    tostring(g.chance(30)), unroll)
  add(lines, "local %s = table.unpack(%s)", names_of(results), t)
  results[#results + 1] = ys
  return lines, results
end)

step("while_loop", 1, function(g, program)
  local from, params, how = carries_of(g, program)
  if #from == 0 or program.differentiated then return end
  program.root.no_grad = true
  local inner, lines = inside(program, params), {}
  local made = fill(g, inner, lines, 0, 2)
  local results, t = results_of(program, params), fresh(program, "t")
  begin(lines, "local %s = ml.while_loop(function(c) return c.n:lt(%d) end, function(%s)", t, g.int(0, 3), t)
  table.insert(lines, 2, ("  local %s = table.unpack(%s.v)"):format(names_of(params), t))
  add(lines, "  return {n = %s.n + 1, v = %s}", t, list(next_carries(g, params, how, made)))
  add(lines, "end, {n = ml.tensor(0), v = {%s}})", names_of(from))
  add(lines, "local %s = table.unpack(%s.v)", names_of(results), t)
  return lines, results
end)

-- ---- branches -----------------------------------------------------------------------------------------------

step("cond", 2, function(g, program)
  local from = some(g, program, g.int(1, 3), function(v) return count(v.shape) <= 1024 end)
  local deciders = some(g, program, 1, steps.fits.exact)
  if #from == 0 or #deciders == 0 then return end
  local branches, t = g.int(2, 3), fresh(program, "t")
  local bodies, exact = {}, {}
  for k = 1, branches do
    local params, lines, out = {}, {}, {}
    for i, v in ipairs(from) do params[i] = like(program, v) end
    local inner = inside(program, params)
    local made = fill(g, inner, lines, 0, 2)
    for i, p in ipairs(params) do
      local j = g.int(1, #params)
      local other = alike(p, params[j]) and params[j] or p
      out[i] = g.chance(50) and other.name or update(g, made, {shape = p.shape, dtype = p.dtype}) or p.name
      local moved = out[i] == other.name and p.exact and other.exact
      exact[i] = exact[i] ~= false and moved or false
    end
    begin(lines, "function(%s)", names_of(params))
    add(lines, "  return %s", table.concat(out, ", "))
    bodies[k] = table.concat(lines, "\n    ") .. "\n  end"
  end
  local results = {}
  for i, v in ipairs(from) do
    results[i] = {name = fresh(program, "r"), shape = v.shape, dtype = v.dtype, exact = exact[i]}
  end
  local d = deciders[1].name
  local text
  if branches == 2 then
    text = ("local %s = ml.cond(ml.any(ml.gt(%s, %d)), %s, %s)"):format(names_of(results), d, g.int(0, 2),
      table.concat(bodies, ", "), names_of(from))
  else
    text = ("local %s = ml.sum(ml.astype(ml.gt(%s, 0), 'int32'))\n"
      .. "  local %s = ml.switch(ml.rem(%s, 3), {%s}, %s)")
      :format(t, d, names_of(results), t, table.concat(bodies, ", "), names_of(from))
  end
  return {text}, results
end)

-- ---- transforms ---------------------------------------------------------------------------------------------

step("vmap", 2, function(g, program)
  local from = some(g, program, g.int(1, 3), function(v) return #v.shape > 0 and count(v.shape) <= 1024 end)
  if #from == 0 then return end
  local n, params, axes = nil, {}, {}
  for i, v in ipairs(from) do
    local d = g.int(1, #v.shape)
    params[i], axes[i] = like(program, v), "false"
    if not n or v.shape[d] == n and g.chance(80) then
      n, axes[i] = v.shape[d], tostring(d)
      params[i].shape = copy(v.shape)
      table.remove(params[i].shape, d)
    end
  end
  local inner, lines = inside(program, params), {}
  inner.one_example = true
  local made = fill(g, inner, lines, 1, 3)
  local results, outs, out_axes = {}, {}, {}
  for _ = 1, g.int(1, 2) do
    local v = g.pick(g.chance(70) and #made > 0 and made or params)
    if count(v.shape) * n <= 4096 and #v.shape <= 4 then
      local shape, d = copy(v.shape), g.int(1, #v.shape + 1)
      table.insert(shape, d, n)
      outs[#outs + 1], out_axes[#out_axes + 1] = v.name, d
      results[#results + 1] = {name = fresh(program, "r"), shape = shape, dtype = v.dtype, exact = v.exact}
    end
  end
  if #results == 0 then return end
  begin(lines, "local %s = ml.vmap(function(%s)", names_of(results), names_of(params))
  lines[#lines + 1] = "  return " .. table.concat(outs, ", ")
  add(lines, "end, {in_axes = %s, out_axes = %s})(%s)", list(axes), list(out_axes), names_of(from))
  return lines, results
end)

local policies = {"", "", "dots_saveable", "everything_saveable", "nothing_saveable"}

step("remat", 2, function(g, program)
  local from = some(g, program, g.int(1, 3), steps.fits.any)
  local params = {}
  for i, v in ipairs(from) do params[i] = like(program, v) end
  local inner, lines = inside(program, params), {}
  local made = fill(g, inner, lines, 1, 3)
  if #from == 0 or #made == 0 then return end
  local out = {g.pick(made), g.chance(40) and g.pick(params) or nil}
  local results = results_of(program, out)
  begin(lines, "local %s = X.remat(function(%s)", names_of(results), names_of(params))
  lines[#lines + 1] = "  return " .. names_of(out)
  local policy = g.pick(policies)
  if policy ~= "" then policy = (", {policy = ml.remat_policies.%s}"):format(policy) end
  add(lines, "end%s)(%s)", policy, names_of(from))
  return lines, results
end)

step("grad", 2, function(g, program)
  local from = some(g, program, g.int(1, 2),
    function(v) return is_float(v.dtype) and count(v.shape) <= 256 end)
  if #from == 0 or program.gradients == 2 then return end
  local params, which = {}, {}
  for i, v in ipairs(from) do params[i], which[i] = like(program, v, false), i end
  local inner, lines = inside(program, params), {}
  inner.differentiated, inner.gradients = true, (program.gradients or 0) + 1
  local made, parts = fill(g, inner, lines, 1, 3), {}
  for _, v in ipairs(table.move(params, 1, #params, #made + 1, made)) do
    if is_float(v.dtype) then add(parts, "ml.mean(ml.astype(ml.tanh(%s), 'float32'))", v.name) end
  end
  local results = results_of(program, params)
  local t = fresh(program, "t")
  begin(lines, "local %s = ml.grad(function(%s)", t, names_of(params))
  lines[#lines + 1] = "  return " .. table.concat(parts, " + ")
  add(lines, "end, {argnums = %s})(%s)", list(which), names_of(from))
  add(lines, "local %s = table.unpack(%s)", names_of(results), t)
  return lines, results
end)

step("jvp", 2, function(g, program)
  local from = some(g, program, g.int(1, 2),
    function(v) return is_float(v.dtype) and count(v.shape) <= 256 end)
  if #from == 0 then return end
  local params, tangents = {}, {}
  for i, v in ipairs(from) do
    params[i] = like(program, v, false)
    tangents[i] = g.chance(75) and ("ml.cos(%s)"):format(v.name) or "false"
  end
  local inner, lines = inside(program, params), {}
  inner.forward = true -- a custom_vjp has no tangents
  local made, out = fill(g, inner, lines, 1, 3), nil
  for _, v in ipairs(table.move(params, 1, #params, #made + 1, made)) do
    if is_float(v.dtype) then out = v end
    if out and g.chance(50) then break end
  end
  local result = like(program, out, false)
  begin(lines, "local _, %s = ml.jvp(function(%s)", result.name, names_of(params))
  add(lines, "  return ml.tanh(%s)", out.name)
  add(lines, "end, {%s}, {%s})", names_of(from), table.concat(tangents, ", "))
  return lines, {result}
end)

step("custom_vjp", 1, function(g, program)
  if program.forward then return end
  local from = some(g, program, 1, function(v) return is_float(v.dtype) and count(v.shape) <= 1024 end)
  if #from == 0 then return end
  local p = like(program, from[1], false)
  local inner, lines = inside(program, {p}), {}
  inner.pool = {p} -- its gradient knows of nothing else
  local made = fill(g, inner, lines, 1, 2)
  local y, r = update(g, made, p) or p.name, results_of(program, {p})
  local f = fresh(program, "f")
  begin(lines, "local function %s(%s)", f, p.name)
  lines[#lines + 1] = "  return " .. y
  lines[#lines + 1] = "end"
  add(lines, "local %s = ml.custom_vjp(%s, {fwd = function(a) return %s(a), a end,", r[1].name, f, f)
  add(lines, "  bwd = function(a, ct) return ct * ml.cos(a) * 0.5 end})(%s)", from[1].name)
  return lines, r
end)

-- ---- shard_map ----------------------------------------------------------------------------------------------
-- The function gets a block a; Q(x, d): the mean of what the devices that share dim d have; B(x, d): the same
-- where that are different blocks of dim d; I(d): the places of the block's elements along dim d, which differ.

local in_map = {
  function(g) return ("a = ml.%s(a)"):format(g.pick {"tanh", "sin", "cos", "sigmoid"}) end,
  function(g) return ("a = a * %s"):format(g.pick {"0.5", "-0.75", "1.25"}) end,
  function(_, d) return ("a = ml.tanh(a + Q(ml.mean(a, %d, true), %d))"):format(d, d) end,
  function(_, d) return ("a = ml.tanh(a * I(%d))"):format(d) end,
  function(_, d) return ("a = ml.tanh(a - B(a, %d))"):format(d) end,
  function(g, d)
    local term = g.pick {"B(a, %d) * I(%d)", "B(ml.sin(a), %d) * 0.5 * I(%d)", "I(%d) * B(a, %d)",
      "B(a, %d) * 0.5", "Q(ml.mean(a, %d, true), %d) * I(%d)"}
    return ("a = ml.fori_loop(0, %d, function(_, c) return c + %s end, a) * 0.25"):format(g.int(1, 3),
      (term:gsub("%%d", tostring(d))))
  end,
  function(g, d)
    local sum = g.chance(50) and ("B(c, %d)"):format(d) or ("Q(ml.mean(c, %d, true), %d)"):format(d, d)
    return ("a = ml.fori_loop(0, %d, function(_, c) return ml.tanh(c * I(%d) + %s) end, a)"):format(
      g.int(1, 3), d, sum)
  end,
  function(g, d)
    return ("a = (ml.scan(function(c, x) return ml.tanh(c + x * Q(ml.mean(a, %d, true), %d)), c end, a,"
      .. " ml.stack({%s})))"):format(d, d, g.pick {"a, a * 0.5", "a", "ml.sin(a), a, a"})
  end,
  function(_, d)
    return ("a = X.remat(function(b) return ml.tanh(b + Q(ml.mean(b, %d, true), %d)) end)(a)"):format(d, d)
  end,
  function(_, d)
    return ("a = a + ml.grad(function(b) return ml.sum(ml.sin(b) * I(%d)) end)(a) * 0.5"):format(d)
  end,
  function(g, d)
    -- Blocks of other dims differ, and so would what decides, but for its bounds.
    return ("a = ml.cond(ml.gt(ml.max(Q(ml.tanh(ml.mean(a, %d, true)), %d)), %s),"
      .. " function(b) return b * 0.5 end, function(b) return B(b, %d) end, a)"):format(d, d,
      g.pick {"9", "-9"}, d)
  end,
}

step("shard_map", 3, function(g, program)
  local from = some(g, program, 1, function(v)
    return is_float(v.dtype) and #v.shape > 0 and count(v.shape) <= 2048
  end)
  if #from == 0 then return end
  local v, lines = from[1], {}
  local r = {name = fresh(program, "r"), shape = v.shape, dtype = v.dtype}
  program.maps[#program.maps + 1] = {spec = program.even_spec(g, program.mesh, v.shape), shape = v.shape,
    partial = g.chance(40)}
  lines[1] = ("local %s = X.map(%d, function(a, Q, B, I)"):format(r.name, #program.maps)
  for _ = 1, g.int(1, 4) do lines[#lines + 1] = "  " .. g.pick(in_map)(g, g.int(1, #v.shape)) end
  add(lines, "  return ml.astype(a, '%s')", v.dtype)
  add(lines, "end)(%s)", v.name)
  return lines, {r}
end)

local function axes_of(spec, d)
  local e = spec[d]
  return e and (type(e) == "table" and e or {e}) or {}
end

--- X of a program on its mesh; and on one device, where `mesh` is nil.
function M.functions(program, mesh)
  local X = {remat = ml.remat}
  function X.map(k, fn)
    local map = program.maps[k]
    local whole, spec = map.shape, mesh and map.spec or {}
    --- The mean of the blocks of dim d, in the place of each.
    local function blocks(x, d)
      local n, shape = 1, copy(x.shape)
      for _, name in ipairs(axes_of(map.spec, d)) do n = n * program.mesh.shape[name] end
      shape[d] = shape[d] // n
      table.insert(shape, d, n)
      return ml.reshape(ml.broadcast(ml.mean(ml.reshape(x, shape), d, true), shape), x.shape)
    end
    local function block(a)
      local function Q(x, d)
        local axes = axes_of(spec, d)
        return #axes > 0 and ml.pmean(x, axes) or x
      end
      local function I(d)
        local axes, at = axes_of(spec, d), ml.astype(ml.iota(a.shape, d), "float32")
        if #axes > 0 then at = at + ml.astype(ml.axis_index(axes), "float32") * a.shape[d] end
        return ml.astype(at * (1 / whole[d]), a.dtype)
      end
      return fn(a, Q, mesh and Q or blocks, I)
    end
    if not mesh then return block end
    local names = {}
    for d = 1, #whole do table.move(axes_of(spec, d), 1, #axes_of(spec, d), #names + 1, names) end
    if #names == 0 then names = {mesh.axis_names[1]} end
    return ml.shard_map(block, {mesh = mesh, in_specs = spec, out_specs = spec,
      axis_names = map.partial and names or nil})
  end
  return X
end

--- Often a result meets another value of its shape: what was handed on unchanged is then wanted as that lies.
local function meet(g, program, lines, values)
  for k = 1, #values do
    local v = values[k]
    local other = some(g, program, 1, function(x) return x ~= v and list(x.shape) == list(v.shape) end)[1]
    if other and is_float(v.dtype) and is_float(other.dtype) and g.chance(50) then
      local m = {name = fresh(program, "m"), shape = v.shape, dtype = ml.core.promote(v.dtype, other.dtype)}
      add(lines, "local %s = ml.%s(%s, %s)", m.name, g.pick {"add", "mul"}, v.name, other.name)
      values[#values + 1] = m
    end
  end
  return lines, values
end

--- Statements and the values that they define, by a step of this file.
function M.line(g, program)
  for _ = 1, 8 do
    local made = g.pick(M)
    local maps, constraints = #program.maps, #program.constraints
    local lines, values = made.make(g, program)
    if lines then return meet(g, program, lines, values) end
    for k = #program.maps, maps + 1, -1 do program.maps[k] = nil end
    for k = #program.constraints, constraints + 1, -1 do program.constraints[k] = nil end
  end
  return {}, {}
end

return M
