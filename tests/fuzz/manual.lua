-- manual.lua: random functions of blocks, run by shard_map on a mesh, and as what they mean: a list of blocks,
-- one per device, on one device, where a collective is a formula over the list. Everything follows from a seed:
--   meshlua --devices=8 tests/fuzz/manual.lua [count] [first seed]
local folder = arg and arg[0] and arg[0]:match "^(.*)fuzz/manual%.lua$" -- run as a script
if folder then package.path = folder .. "?.lua;" .. package.path end
local ml = require "meshlua"
local programs = require "fuzz.programs"
local core = ml.core
local P, NamedSharding = ml.P, ml.NamedSharding

local M = {}

local function copy(t) return table.move(t, 1, #t, 1, {}) end

-- ---- what a collective means ------------------------------------------------------------------------------

--- The devices of a mesh along some axes as coordinates: a list of name -> place, and its number by place.
local function devices_of(mesh, axes)
  local list = {{}}
  for _, name in ipairs(axes) do
    local longer = {}
    for _, at in ipairs(list) do
      for place = 0, mesh.shape[name] - 1 do
        local new = {}
        for k, v in pairs(at) do new[k] = v end
        new[name] = place
        longer[#longer + 1] = new
      end
    end
    list = longer
  end
  return list
end

local function index_along(mesh, at, axes)
  local index = 0
  for _, name in ipairs(axes) do index = index * mesh.shape[name] + at[name] end
  return index
end

local function part(x, dim, index, parts)
  local ranges, each = {}, x.shape[dim] // parts
  for d = 1, x.ndim do ranges[d] = false end
  ranges[dim] = {index * each + 1, (index + 1) * each}
  return ml.slice(x, table.unpack(ranges, 1, x.ndim))
end

--- The functions that a program calls, on lists of blocks.
local function meaning(mesh, axes_of_program)
  local all = devices_of(mesh, axes_of_program)
  local F = {devices = all}
  --- The numbers of the devices that differ from device i along the axes only, the first axis the slowest.
  local function group(i, axes)
    local members = {}
    for j, at in ipairs(all) do
      local same = true
      for _, name in ipairs(axes_of_program) do
        local inside = false
        for _, a in ipairs(axes) do inside = inside or a == name end
        same = same and (inside or at[name] == all[i][name])
      end
      if same then members[index_along(mesh, at, axes) + 1] = j end
    end
    return members, index_along(mesh, all[i], axes) + 1
  end
  local function each(fn)
    local out = {}
    for i = 1, #all do out[i] = fn(i) end
    return out
  end
  local function fold(x, i, axes, fn)
    local y
    for _, j in ipairs((group(i, axes))) do y = y and fn(y, x[j]) or x[j] end
    return y
  end
  function F.map(fn, ...)
    local lists, n = {...}, select("#", ...)
    return each(function(i)
      local blocks = {}
      for k = 1, n do blocks[k] = lists[k][i] end
      return fn(table.unpack(blocks, 1, n))
    end)
  end
  function F.psum(x, axes) return each(function(i) return fold(x, i, axes, ml.add) end) end
  function F.pmean(x, axes)
    return each(function(i) return fold(x, i, axes, ml.add) / #group(i, axes) end)
  end
  function F.pmax(x, axes)
    return each(function(i) return ml.stop_gradient(fold(x, i, axes, ml.maximum)) end)
  end
  local function gathered(x, i, axes)
    local list = {}
    for k, j in ipairs((group(i, axes))) do list[k] = x[j] end
    return list
  end
  function F.all_gather(x, axes, o)
    return each(function(i) return (o.tiled and ml.concat or ml.stack)(gathered(x, i, axes), o.axis) end)
  end
  function F.psum_scatter(x, axes, o)
    return each(function(i)
      local members, mine = group(i, axes)
      local y = part(fold(x, i, axes, ml.add), o.scatter_dimension, mine - 1, #members)
      return o.tiled and y or ml.squeeze(y, o.scatter_dimension)
    end)
  end
  function F.ppermute(x, axes, perm)
    return each(function(i)
      local members, mine = group(i, axes)
      for _, pair in ipairs(perm) do
        if pair[2] == mine - 1 then return x[members[pair[1] + 1]] end
      end
      return ml.zeros_like(x[i])
    end)
  end
  function F.all_to_all(x, axes, split, concat, o)
    return each(function(i)
      local members, mine = group(i, axes)
      local list = {}
      for k, j in ipairs(members) do
        list[k] = part(x[j], split, mine - 1, #members)
        if not o.tiled then list[k] = ml.squeeze(list[k], split) end
      end
      return (o.tiled and ml.concat or ml.stack)(list, concat)
    end)
  end
  function F.axis_index(axes)
    return each(function(i) return ml.tensor(index_along(mesh, all[i], axes)) end)
  end
  function F.pcast(x) return x end
  function F.loop(n, fn, x)
    for _ = 1, n do x = fn(x) end
    return x
  end
  function F.cond(p, yes, no, x)
    local a, b = yes(x), no(x)
    return each(function(i) return ml.where(p[i], a[i], b[i]) end)
  end
  function F.remat(fn, x) return fn(x) end
  function F.vmap(fn, x) return fn(x) end -- of what is made element by element
  return F
end

--- The blocks of a tensor under a spec, one per device; and back.
local function blocks_of(mesh, devices, x, spec)
  local list = {}
  for i, at in ipairs(devices) do
    local block = x
    for d = 1, #spec do
      local axes = spec[d] and (type(spec[d]) == "table" and spec[d] or {spec[d]}) or {}
      local parts = 1
      for _, name in ipairs(axes) do parts = parts * mesh.shape[name] end
      if parts > 1 then block = part(block, d, index_along(mesh, at, axes), parts) end
    end
    list[i] = block
  end
  return list
end

local function whole_of(mesh, devices, list, spec)
  local function at(d, coord)
    if d > #spec then
      for i, have in ipairs(devices) do
        local same = true
        for name, place in pairs(have) do same = same and place == (coord[name] or 0) end
        if same then return list[i] end
      end
    end
    local axes = spec[d] and (type(spec[d]) == "table" and spec[d] or {spec[d]}) or {}
    local pieces = {}
    for k, along in ipairs(devices_of(mesh, axes)) do
      local deeper = {}
      for name, place in pairs(coord) do deeper[name] = place end
      for name, place in pairs(along) do deeper[name] = place end
      pieces[k] = at(d + 1, deeper)
    end
    return #pieces > 1 and ml.concat(pieces, d) or pieces[1]
  end
  return at(1, {})
end

--- The same functions inside shard_map.
M.inside = {map = function(fn, ...) return fn(...) end,
  pmax = function(x, axes) return ml.pmax(ml.stop_gradient(x), axes) end,
  loop = function(n, fn, x) return (ml.fori_loop(0, n, function(_, c) return fn(c) end, x)) end,
  cond = function(p, yes, no, x) return (ml.cond(p, yes, no, x)) end,
  remat = function(fn, x) return ml.remat(fn)(x) end,
  vmap = function(fn, x) return ml.vmap(fn)(x) end}
for _, name in ipairs {"psum", "pmean", "all_gather", "psum_scatter", "ppermute", "all_to_all", "axis_index",
  "pcast"} do M.inside[name] = ml[name] end

-- ---- random programs ----------------------------------------------------------------------------------------

local meshes = {{{8}, {"x"}}, {{4, 2}, {"x", "y"}}, {{2, 2, 2}, {"x", "y", "z"}}, {{2, 3}, {"x", "y"}},
  {{4}, {"x"}}, {{1, 4}, {"x", "y"}}}

local function list(t)
  local words = {}
  for i, v in ipairs(t) do words[i] = type(v) == "string" and ("%q"):format(v) or tostring(v) end
  return "{" .. table.concat(words, ",") .. "}"
end

local function union(a, b)
  local set = {}
  for name in pairs(a) do set[name] = true end
  for name in pairs(b) do set[name] = true end
  return set
end
local function with(vary, axes)
  local set = union(vary, {})
  for _, name in ipairs(axes) do set[name] = true end
  return set
end
local function without(vary, axes)
  local set = union(vary, {})
  for _, name in ipairs(axes) do set[name] = nil end
  return set
end

local function count(shape)
  local n = 1
  for _, size in ipairs(shape) do n = n * size end
  return n
end

-- A step: (g, x, program) -> source, shape, vary. x = {name, shape, vary}.
local steps = {}

function steps.unary(g, x)
  local f = g.pick {"tanh", "sin", "cos", "sigmoid", "square", "neg"}
  return ("F.map(ml.%s, %s)"):format(f, x.name), x.shape, x.vary
end
function steps.scalar(g, x)
  local number = g.pick {"0.5", "-1.25", "1"}
  return ("F.map(function(a) return a * %s end, %s)"):format(number, x.name), x.shape, x.vary
end
function steps.binary(g, x, program)
  local y = program.partner(x)
  return y and ("F.map(ml.%s, %s, %s)"):format(g.pick {"add", "sub", "mul"}, x.name, y.name), x.shape,
    y and union(x.vary, y.vary)
end
steps.meet = steps.binary
function steps.constant(_, x)
  return ("F.map(function(a) return a + ml.ones(%s) * 0.5 end, %s)"):format(list(x.shape), x.name),
    x.shape, x.vary
end
function steps.sum(g, x)
  if #x.shape == 0 then return end
  local d, shape = g.int(1, #x.shape), copy(x.shape)
  shape[d] = 1
  return ("F.map(function(a) return a:mean(%d, true) end, %s)"):format(d, x.name), shape, x.vary
end
function steps.transpose(_, x)
  if #x.shape < 2 then return end
  local shape, perm = {}, {}
  for d = 1, #x.shape do perm[d], shape[d] = #x.shape + 1 - d, x.shape[#x.shape + 1 - d] end
  return ("F.map(function(a) return a:transpose(%s) end, %s)"):format(list(perm), x.name), shape, x.vary
end
function steps.flatten(_, x)
  local n = count(x.shape)
  return ("F.map(function(a) return a:reshape {%d} end, %s)"):format(n, x.name), {n}, x.vary
end
function steps.product(_, x)
  if #x.shape ~= 2 then return end
  return ("F.map(function(a) return a:matmul(a:T()) / %d end, %s)"):format(x.shape[2], x.name),
    {x.shape[1], x.shape[1]}, x.vary
end
function steps.double(_, x)
  if #x.shape == 0 or count(x.shape) > 256 then return end
  local shape = copy(x.shape)
  shape[1] = shape[1] * 2
  return ("F.map(function(a) return ml.concat {a, a * 2} end, %s)"):format(x.name), shape, x.vary
end
for _, name in ipairs {"psum", "pmean", "pmax"} do
  steps[name] = function(_, x, program)
    local axes = program.axes()
    return ("F.%s(%s, %s)"):format(name, x.name, list(axes)), x.shape, without(x.vary, axes)
  end
end
function steps.pcast(_, x, program)
  local axes = program.axes()
  return ("F.pcast(%s, %s)"):format(x.name, list(axes)), x.shape, with(x.vary, axes)
end
function steps.all_gather(g, x, program)
  local axes, n = program.axes()
  local tiled = #x.shape > 0 and g.chance(60)
  local d, shape = g.int(1, tiled and #x.shape or #x.shape + 1), copy(x.shape)
  if count(shape) * n > 512 or #shape > 4 then return end
  if tiled then shape[d] = shape[d] * n else table.insert(shape, d, n) end
  return ("F.all_gather(%s, %s, {axis = %d, tiled = %s})"):format(x.name, list(axes), d, tiled), shape,
    with(x.vary, axes)
end
function steps.psum_scatter(_, x, program)
  local axes, n = program.axes()
  for d = 1, #x.shape do
    if x.shape[d] % n == 0 then
      local shape, tiled = copy(x.shape), x.shape[d] ~= n
      if tiled then shape[d] = shape[d] // n else table.remove(shape, d) end
      return ("F.psum_scatter(%s, %s, {scatter_dimension = %d, tiled = %s})"):format(x.name, list(axes), d,
        tiled), shape, with(x.vary, axes)
    end
  end
end
function steps.ppermute(g, x, program)
  local axes, n = program.axes()
  local from, to, perm = {}, {}, {}
  for i = 0, n - 1 do from[i + 1], to[i + 1] = i, i end
  for i = 1, g.int(0, n) do
    perm[i] = ("{%d,%d}"):format(table.remove(from, g.int(1, #from)), table.remove(to, g.int(1, #to)))
  end
  return ("F.ppermute(%s, %s, {%s})"):format(x.name, list(axes), table.concat(perm, ",")), x.shape,
    with(x.vary, axes)
end
function steps.all_to_all(g, x, program)
  local axes, n = program.axes()
  for split = 1, #x.shape do
    if x.shape[split] % n == 0 then
      local shape, tiled, concat = copy(x.shape), x.shape[split] ~= n or g.chance(50), g.int(1, #x.shape)
      if tiled then
        shape[split] = shape[split] // n
        shape[concat] = shape[concat] * n
      else
        table.remove(shape, split)
        table.insert(shape, concat, n)
      end
      return ("F.all_to_all(%s, %s, %d, %d, {tiled = %s})"):format(x.name, list(axes), split, concat, tiled),
        shape, with(x.vary, axes)
    end
  end
end
function steps.place(_, x, program)
  local axes = program.axes()
  return ("F.map(function(a, i) return a * ml.astype(i + 1, a.dtype) end, %s, F.axis_index(%s))"):format(
    x.name, list(axes)), x.shape, with(x.vary, axes)
end

function steps.gradient(g, x)
  local f = g.pick {"ml.sum(ml.sin(a) * a)", "ml.mean(ml.tanh(a))", "ml.sum(a * ml.mean(a))"}
  return ("F.map(ml.grad(function(a) return %s end), %s)"):format(f, x.name), x.shape, x.vary
end
function steps.mapped(g, x, program)
  if #x.shape == 0 then return end
  local axes = program.axes()
  local f = g.pick {"psum", "pmean"}
  return ("F.vmap(function(c) return F.%s(c, %s) end, %s)"):format(f, list(axes), x.name), x.shape,
    without(x.vary, axes)
end
--- A branch that each device takes by its place, or all by a sum, with collectives in it.
function steps.branch(g, x, program)
  local axes = program.axes()
  local f = g.pick {"ml.sin", "ml.tanh", "ml.square"}
  if g.chance(50) then
    local source = ("F.cond(F.map(function(i) return ml.gt(i, 0) end, F.axis_index(%s)), "
      .. "function(c) return F.map(%s, c) end, function(c) return c end, %s)"):format(list(axes), f, x.name)
    return source, x.shape, with(x.vary, axes)
  end
  return ("F.cond(F.map(function(a) return ml.gt(ml.sum(a), 0.1) end, F.psum(%s, %s)), "
    .. "function(c) return F.map(%s, F.pmean(c, %s)) end, function(c) return c end, %s)"):format(x.name,
    list(program.manual), f, list(axes), x.name), x.shape, x.vary
end

local names

--- A function of one value by some steps; its source, and its result.
local function body_of(g, x, program, shape)
  program.count = (program.count or 0) + 1
  local c = {name = "c" .. program.count, shape = x.shape, vary = x.vary}
  local pool, lines = {c, c, x}, {}
  local inner = setmetatable({partner = function(v)
    for _ = 1, 6 do
      local y = g.pick(pool)
      if list(v.shape) == list(y.shape) then return y end
    end
  end, depth = (program.depth or 0) + 1}, {__index = program})
  local result = c
  for _ = 1, g.int(1, 3) do
    local from = g.pick(pool)
    local source, own, vary = steps[g.pick(names)](g, from, inner)
    if source and count(own) <= 1024 and #own <= 5 then
      program.count = (program.count or 0) + 1
      local v = {name = "w" .. program.count, shape = own, vary = vary}
      lines[#lines + 1] = ("local %s = %s"):format(v.name, source)
      pool[#pool + 1] = v
      if not shape or list(own) == list(shape) then result = v end
    end
  end
  lines[#lines + 1] = "return " .. (result == c and c.name or ("F.map(ml.tanh, %s)"):format(result.name))
  return ("function(%s) %s end"):format(c.name, table.concat(lines, " ")), result
end

function steps.loop(g, x, program)
  if (program.depth or 0) > 1 then return end
  local source, result = body_of(g, x, program, x.shape)
  -- What comes out varies over what any iteration makes it vary over.
  return ("F.loop(%d, %s, %s)"):format(g.int(1, 3), source, x.name), x.shape,
    with(union(x.vary, result.vary), program.manual)
end
--- A loop that adds sums over devices up, each times something that may differ between them.
function steps.accumulate(g, x, program)
  local axes, term = program.axes(), g.pick {"b * i", "i * b * 0.5", "b * 0.5", "b / (i + 1)", "b"}
  local each = ("function(a, b, k) local i = ml.astype(k, a.dtype) return a + %s end"):format(term)
  local sum = ("F.%s(F.map(ml.%s, %s), %s)"):format(g.pick {"psum", "pmean"}, g.pick {"sin", "tanh"}, x.name,
    list(axes))
  local other = list(program.axes())
  local body = ("function(c) return F.map(%s, c, %s, F.axis_index(%s)) end"):format(each, sum, other)
  return ("F.loop(%d, %s, %s)"):format(g.int(1, 3), body, x.name), x.shape, with(x.vary, program.manual)
end
function steps.remat(g, x, program)
  if (program.depth or 0) > 1 then return end
  local source, result = body_of(g, x, program)
  return ("F.remat(%s, %s)"):format(source, x.name), result.shape, result.vary
end

names = {}
for name in pairs(steps) do names[#names + 1] = name end
table.sort(names)

--- Some axes in a random order, and how many devices there are along them.
local function axes_maker(g, mesh, manual)
  return function()
    local free, axes, n = copy(manual), {}, 1
    repeat
      axes[#axes + 1] = table.remove(free, g.int(1, #free))
      n = n * mesh.shape[axes[#axes]]
    until #free == 0 or g.chance(70)
    return axes, n
  end
end

--- A spec that names every axis of `vary`, and perhaps others; nil for a scalar that varies.
local function out_spec(g, v, manual)
  local entries, any = {}, false
  for d = 1, #v.shape do entries[d] = {} end
  for _, name in ipairs(manual) do
    if v.vary[name] or g.chance(15) and #entries > 0 then
      if #entries == 0 then return end
      table.insert(entries[g.int(1, #entries)], name)
      any = true
    end
  end
  for d = 1, #entries do if #entries[d] == 0 then entries[d] = P.none end end
  return any and P(table.unpack(entries, 1, #entries)) or P()
end

local sizes = {1, 2, 3, 4, 6}

--- A random program: inputs (local shapes and specs), Lua source, the specs of its results.
function M.make(seed)
  local g = programs.generator(seed)
  local def = g.pick(meshes)
  local n, ids = 1, {}
  for _, size in ipairs(def[1]) do n = n * size end
  for i = 1, n do ids[i] = i - 1 end
  local mesh = ml.make_mesh(def[1], def[2], ids)
  local manual = copy(def[2])
  while #manual > 1 and g.chance(25) do table.remove(manual, g.int(1, #manual)) end
  local dtype = g.pick {"float64", "float64", "float32"}
  local program = {seed = seed, mesh = mesh, manual = manual, dtype = dtype, inputs = {}, results = {}}
  local pool, lines, params = {}, {}, {}
  program.axes = axes_maker(g, mesh, manual)
  function program.partner(x)
    for _ = 1, 6 do
      local y = g.pick(pool)
      if list(x.shape) == list(y.shape) then return y end
    end
  end
  for i = 1, g.int(1, 3) do
    local shape, whole = {}, {}
    for d = 1, g.int(1, 3) do shape[d] = g.pick(sizes) end
    local v = {name = "x" .. i, shape = shape, vary = {}}
    for _, name in ipairs(manual) do v.vary[name] = g.chance(60) or nil end
    v.spec = out_spec(g, v, manual)
    for d = 1, #shape do
      whole[d] = shape[d]
      local e = v.spec[d]
      for _, name in ipairs(e and (type(e) == "table" and e or {e}) or {}) do
        whole[d], v.vary[name] = whole[d] * mesh.shape[name], true
      end
    end
    v.given = programs.random_spec(g, mesh, whole)
    v.data = ml.astype(ml.random.randint(ml.random.key(g.int(0, 1 << 30)), whole, -12, 13) / 8.0, dtype)
    program.inputs[i], pool[i], params[i] = v, v, v.name
  end
  for i = 1, g.int(2, 10) do
    local x = g.pick(pool)
    local source, shape, vary = steps[g.pick(names)](g, x, program)
    if source and count(shape) <= 2048 and #shape <= 6 then
      local v = {name = "v" .. i, shape = shape, vary = vary}
      lines[#lines + 1] = ("  local %s = %s"):format(v.name, source)
      pool[#pool + 1] = v
    end
  end
  local out = {}
  for i = math.min(#program.inputs + 1, #pool), #pool do
    local v = pool[i]
    v.spec_out = out_spec(g, v, manual)
    if v.spec_out then
      program.results[#program.results + 1] = v
      out[#out + 1] = v.name
    end
  end
  program.source = ("local ml, F = ...\nreturn function(%s)\n%s\n  return %s\nend"):format(
    table.concat(params, ", "), table.concat(lines, "\n"), table.concat(out, ", "))
  return program
end

-- ---- the check ----------------------------------------------------------------------------------------

local limits = {float64 = 1e-10, float32 = 1e-3}

local function difference(a, b)
  local x, y = core.put_across(a, nil), b
  if a.size == 0 then return 0 end
  local d = (ml.max(ml.abs(x - y)) / ml.maximum(ml.max(ml.abs(y)), 1.0)):item()
  return d == d and d or math.huge
end

local function loss_of(fn)
  return function(...)
    local total = 0
    for i, y in ipairs {fn(...)} do
      local weight = ml.sin(ml.astype(ml.arange(y.size + 0.0), y.dtype) * 0.3 + i):reshape(y.shape)
      total = total + ml.mean(y * weight)
    end
    return total
  end
end

--- Runs the program as shard_map and as what it means; values and gradients must agree up to rounding.
---@param functions table? what it calls inside shard_map
---@return string? error
function M.check(program, functions)
  if #program.results == 0 then return end
  local chunk = assert(load(program.source, "=program" .. program.seed))
  local ins, outs, there, here, all = {}, {}, {}, {}, {}
  for i, input in ipairs(program.inputs) do
    ins[i], here[i], all[i] = input.spec, input.data, i
    there[i] = ml.device_put(input.data, NamedSharding(program.mesh, input.given))
  end
  for i, v in ipairs(program.results) do outs[i] = v.spec_out end
  local mapped = ml.shard_map(chunk(ml, functions or M.inside),
    {mesh = program.mesh, in_specs = ins, out_specs = outs, axis_names = program.manual})
  local F = meaning(program.mesh, program.manual)
  local body = chunk(ml, F)
  local function meant(...)
    local lists = {...}
    for i, x in ipairs(lists) do lists[i] = blocks_of(program.mesh, F.devices, x, ins[i]) end
    local results = {body(table.unpack(lists))}
    for i, blocks in ipairs(results) do results[i] = whole_of(program.mesh, F.devices, blocks, outs[i]) end
    return table.unpack(results)
  end
  local function compare(what, got, want, values)
    for i, v in ipairs(values) do
      local d = difference(got[i], want[i])
      if not (d <= limits[program.dtype]) then
        return ("%s of %s differs by %g (%s)"):format(what, v.name, d, core.typeof(got[i]))
      end
    end
  end
  local bad = compare("value", {ml.jit(mapped)(table.unpack(there))}, {ml.jit(meant)(table.unpack(here))},
    program.results)
  if bad then return bad end
  local function gradients(fn, args)
    return ml.jit(ml.grad(loss_of(fn), {argnums = all}))(table.unpack(args))
  end
  return compare("gradient", gradients(mapped, there), gradients(meant, here), program.inputs)
end

--- Text with which a failing program can be read.
function M.describe(program)
  local lines = {("-- seed %d, %s, %s manual"):format(program.seed, tostring(program.mesh),
    list(program.manual))}
  for _, v in ipairs(program.inputs) do
    lines[#lines + 1] = ("-- %s: %s blocks of %s under %s, given as %s"):format(v.name, list(v.shape),
      core.typeof(v.data), tostring(v.spec), tostring(v.given))
  end
  for _, v in ipairs(program.results) do
    lines[#lines + 1] = ("-- result %s under %s"):format(v.name, tostring(v.spec_out))
  end
  lines[#lines + 1] = program.source
  return table.concat(lines, "\n")
end

if folder then programs.run(M, arg) end

return M
