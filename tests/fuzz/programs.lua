-- programs.lua: random programs over sharded tensors, run on a mesh and on one device. Everything follows
-- from one seed, so that a failing program can be made again and shrunk:
--   meshlua --devices=8 tests/fuzz/programs.lua [count] [first seed] [mode] [FILE]
-- FILE has source to run in place of the program's.
-- In explicit mode a line whose layout is ambiguous runs again in ml.auto_axes, its result where a random P says.
local folder = arg and arg[0] and arg[0]:match "^(.*)fuzz/programs%.lua$" -- run as a script
if folder then package.path = folder .. "?.lua;" .. package.path end
local ml = require "meshlua"
local nested = require "fuzz.nested"
local steps = require "fuzz.steps"
local core = ml.core
local P, NamedSharding = ml.P, ml.NamedSharding

local M = {}

local meshes = {
  {{8}, {"x"}}, {{4, 2}, {"x", "y"}}, {{2, 4}, {"x", "y"}}, {{2, 2, 2}, {"x", "y", "z"}},
  {{1, 8}, {"x", "y"}}, {{2, 3}, {"x", "y"}}, {{4}, {"x"}}, {{3, 1, 2}, {"x", "y", "z"}},
}

-- A generator of its own: the stream must not depend on the Lua version's math.random.
local function generator(seed)
  local state = (seed * 2862933555777941757 + 3037000493) & 0x7fffffffffffffff
  local g = {}
  function g.int(low, high)
    state = (state * 6364136223846793005 + 1442695040888963407) & 0xffffffffffffffff
    return low + (state >> 33) % (high - low + 1)
  end
  function g.pick(list) return list[g.int(1, #list)] end
  function g.chance(percent) return g.int(1, 100) <= percent end
  return g
end
M.generator = generator

local sizes = {1, 2, 3, 4, 6, 8, 12, 16, 24}

local function random_shape(g, rank)
  local shape, count = {}, 1
  for d = 1, rank or g.int(0, 4) do
    local n = g.pick(sizes)
    while count * n > 4096 do n = g.pick(sizes) end
    shape[d], count = n, count * n
  end
  return shape
end

--- A spec that divides the shape, or nil for "leave it on one device".
function M.random_spec(g, mesh, shape)
  local free, entries = {}, {}
  for _, name in ipairs(mesh.axis_names) do free[#free + 1] = name end
  for d, n in ipairs(shape) do
    entries[d] = P.none
    if #free > 0 and g.chance(70) then
      local list, rest = {}, n
      repeat
        local i = g.int(1, #free)
        local size = mesh.shape[free[i]]
        if rest % size ~= 0 then break end
        rest = rest // size
        list[#list + 1] = table.remove(free, i)
      until #free == 0 or g.chance(65)
      if #list > 0 then entries[d] = list end
    end
  end
  return P(table.unpack(entries, 1, #shape))
end

--- A spec of any axes on any dims: padded where they do not divide, some with a later priority.
function M.loose_spec(g, mesh, shape)
  local free, entries = table.move(mesh.axis_names, 1, #mesh.axis_names, 1, {}), {}
  for d = 1, #shape do
    entries[d] = P.none
    if #free > 0 and g.chance(60) then
      local entry = {uneven = "pad", priority = g.chance(20) and g.int(1, 2) or nil}
      repeat entry[#entry + 1] = table.remove(free, g.int(1, #free)) until #free == 0 or g.chance(65)
      entries[d] = entry
    end
  end
  return P(table.unpack(entries, 1, #shape))
end

local floats = {"float32", "float32", "float64", "bfloat16", "float16"}

--- Data whose sums are well conditioned: small multiples of 1/8; integers all of one sign.
local function random_data(key, shape, dtype)
  local x = ml.random.randint(ml.random.key(key), shape, -12, 13)
  if dtype:match "float" then return ml.astype(ml.div(x, 8.0), dtype) end
  return ml.astype(ml.bitand(x, 15) - (dtype:match "^int" and key % 2 == 0 and 16 or 0), dtype)
end

--- A step that fits a value of the program, and its source.
local function next_step(g, program)
  for _ = 1, 20 do
    local step, x = g.pick(steps.all()), g.pick(program.pool)
    if steps.fits[step.takes](x) then
      local source, shape, more = step.make(g, x, program)
      if source then return source, shape, more and more.dtype or x.dtype, more and more.exact or false end
    end
  end
end

--- One more line: statements and the values that they define. `nested` programs also loop, branch and
--- transform.
local function next_line(g, program)
  if program.nested and program.depth < 3 and g.chance(program.depth == 0 and 45 or 25) then
    return nested.line(g, program)
  end
  local source, shape, dtype, exact = next_step(g, program)
  if not source then return {}, {} end
  program.names.n = program.names.n + 1
  local v = {name = "v" .. program.names.n, shape = shape, dtype = dtype, exact = exact}
  program.dtypes[dtype] = true
  return {("local %s = ml.astype(%s, '%s')"):format(v.name, source, v.dtype)}, {v}
end

--- The types of n axes in a mode.
local function axis_types(g, mode, n)
  local types = {}
  for i = 1, n do
    types[i] = mode == "mixed" and g.pick {"auto", "explicit"} or mode == "explicit" and mode or "auto"
  end
  return types
end

--- A spec for a value that some line constrains; with explicit axes some are unreduced.
local function constraint_spec(g, mesh, shape, dtype)
  local spec = M.random_spec(g, mesh, shape)
  if #mesh.auto_axes > 0 or not dtype:match "float" or g.chance(60) then return spec end
  local used, free = {}, {}
  for _, entry in ipairs(spec.partitions) do
    for _, axis in ipairs(type(entry) == "table" and entry or {entry}) do used[axis] = true end
  end
  for _, axis in ipairs(mesh.axis_names) do
    if not used[axis] then free[#free + 1] = axis end
  end
  return spec:update {unreduced = #free > 0 and {g.pick(free)} or {}}
end

--- A random program: inputs (shape, spec, data), Lua source, constraints, the mesh it is for.
---@param mode string? "auto", "explicit" or "mixed": what the axes of the mesh are; "nested": auto, with loops,
--- branches, transforms and shard_map in each other; "nested_explicit", "nested_mixed"
---@param given table? values of another program, which are the inputs (at most three); their data comes later
function M.make(seed, mode, given)
  local g = generator(seed)
  local def = g.pick(meshes)
  local count = 1
  for _, n in ipairs(def[1]) do count = count * n end
  local ids = {}
  for i = 1, count do ids[i] = i - 1 end
  mode = mode or "auto"
  local is_nested = mode:match "^nested" ~= nil
  local axes = is_nested and (mode:match "^nested_(%a+)$" or "auto") or mode
  local types = axes ~= "auto" and axis_types(g, axes, #def[2]) or nil
  local mesh = ml.make_mesh(def[1], def[2], {devices = ids, axis_types = types})
  local program = {seed = seed, mesh = mesh, mesh_text = tostring(mesh), inputs = {}, pool = {},
    constraints = {}, fallback = {}, is_explicit = #mesh.explicit_axes > 0,
    nested = is_nested, maps = {}, dtypes = {}, depth = 0, names = {n = 0}, line = next_line,
    even_spec = M.random_spec,
    random_spec = g.chance(30) and axes == "auto" and M.loose_spec or M.random_spec}
  program.root = program
  local dtype, pool = g.pick(floats), program.pool
  for i = 1, given and math.min(#given, 3) or g.int(program.nested and 2 or 1, 3) do
    local shape = given and given[i].shape or random_shape(g, g.int(1, 4))
    local again = program.nested and i > 1 and not given and g.chance(50)
    if again then shape = table.move(pool[1].shape, 1, #pool[1].shape, 1, {}) end
    local own = given and given[i].dtype
      or i > 1 and g.chance(30) and g.pick {"int32", "uint8", "int64", "bfloat16"} or dtype
    local spec, key = program.random_spec(g, mesh, shape), g.int(0, 1 << 30)
    program.inputs[i] = {name = "x" .. i, shape = shape, dtype = own, exact = not given or given[i].exact,
      spec = spec, key = key, data = not given and random_data(key, shape, own) or nil}
    pool[i] = program.inputs[i]
  end
  local lines, params, names = {}, {}, {}
  for i = 1, g.int(2, program.nested and 6 or 12) do
    local text, values = next_line(g, program)
    local v = values[1]
    if program.is_explicit and v then
      local made = {}
      program.fallback[i] = {}
      for k, value in ipairs(values) do
        made[k], program.fallback[i][k] = value.name, M.random_spec(g, mesh, value.shape)
      end
      made = table.concat(made, ", ")
      text = table.concat(text, "\n    ")
      text = {("local %s = E(%d, function() %s return %s end)"):format(made, i, text, made)}
      if g.chance(15) then
        program.moves = program.moves or {}
        program.moves[i] = constraint_spec(g, mesh, v.shape, v.dtype)
        text[2] = ("%s = R(%s, %d)"):format(v.name, v.name, i)
      end
    end
    for _, line in ipairs(text) do lines[#lines + 1] = "  " .. line end
    table.move(values, 1, #values, #pool + 1, pool)
  end
  for i, input in ipairs(program.inputs) do params[i] = input.name end
  program.results = table.move(pool, math.min(#program.inputs + 1, #pool), #pool, 1, {})
  for i, v in ipairs(program.results) do names[i] = v.name end
  program.source = ("local ml, C, E, R, X = ...\nreturn function(%s)\n%s\n  return %s\nend"):format(
    table.concat(params, ", "), table.concat(lines, "\n"), table.concat(names, ", "))
  return program
end

-- ---- the check ----------------------------------------------------------------------------------------

local tolerance = {float64 = 1e-11, float32 = 2e-4, float16 = 4e-2, bfloat16 = 2e-1}

--- The largest difference of two tensors against the largest finite magnitude of the second and 1. NaN equals
--- NaN.
local function difference(a, b)
  if a.sharding.mesh and #a.sharding.spec.unreduced > 0 then a = ml.reshard(a, P()) end
  local x, y = ml.astype(core.put_across(a, nil), "float64"), ml.astype(b, "float64")
  local same = ml.bitor(ml.eq(x, y), ml.bitand(ml.ne(x, x), ml.ne(y, y)))
  local apart = ml.where(same, 0.0, ml.abs(x - y))
  local size = ml.where(ml.isfinite(y), ml.abs(y), 0.0)
  local d = (ml.max(apart) / ml.maximum(ml.max(size), 1.0)):item()
  return d == d and d or math.huge
end

--- The text of the first pair of tensors that differ by more than the limit of their value, and whether they must be
--- equal.
local function compare(what, values, limit, a, b)
  for i, v in ipairs(values) do
    local d = a[i].size > 0 and difference(a[i], b[i]) or 0
    if not (d <= (what == "value" and v.exact and 0 or limit)) then
      local text = ("%s of %s differs by %g (%s)"):format(what, v.name, d, core.typeof(a[i]))
      return text, what == "value" and v.exact
    end
  end
end

--- A fixed functional of all results.
function M.loss_of(fn)
  return function(...)
    local total
    for i, y in ipairs({fn(...)}) do
      if y.sharding.mesh and #y.sharding.spec.unreduced > 0 then y = ml.reshard(y, P()) end
      local part = ml.mean(ml.astype(y, "float32") * (0.5 + 0.25 * i))
      total = total and total + part or part
    end
    return total
  end
end

--- What fn gives; nothing where it is not supported.
local function supported(program, fn)
  local results = table.pack(pcall(fn))
  if results[1] then return {table.unpack(results, 2, results.n)} end
  local message = tostring(results[2])
  -- In ml.auto_axes a loop along what it captures, split on an axis explicit outside, is refused, too.
  local refuses = message:find("[E_UNSUPPORTED]", 1, true)
    or message:find("and the loop runs along it", 1, true)
  if not refuses then error(message, 0) end
  program.refused = true
end

--- The program's function on its mesh, and on one device.
function M.functions(program)
  local chunk = assert(load(program.source, "=program" .. program.seed))
  local mesh = program.mesh
  local function on_mesh(x, i)
    local move = program.is_explicit and ml.reshard or ml.constrain
    return move(x, NamedSharding(mesh, program.constraints[i]))
  end
  local function line(i, fn)
    local results = table.pack(pcall(fn))
    local message = results[2]
    if results[1] then return table.unpack(results, 2, results.n) end
    -- Nothing but an ambiguous layout may go wrong, and it says what to do.
    local asks = message:find("[E_SPEC]", 1, true) and message:find("reshard", 1, true)
    if not asks then error(message, 0) end
    program.asked = (program.asked or 0) + 1
    local shardings = {}
    for k, spec in ipairs(program.fallback[i]) do shardings[k] = NamedSharding(mesh, spec) end
    return ml.auto_axes(fn, {out_sharding = shardings})()
  end
  local function moved(x, i) return ml.reshard(x, NamedSharding(mesh, program.moves[i])) end
  local function same(x) return x end
  local sharded = chunk(ml, on_mesh, line, moved, nested.functions(program, mesh))
  local plain = chunk(ml, same, function(_, fn) return fn() end, same, nested.functions(program))
  return sharded, plain
end

--- How much a program may differ: by the least exact of its values, those inside of loops and transforms too.
local function limit_of(program)
  local limit = 0
  for _, v in ipairs(program.pool) do limit = math.max(limit, tolerance[v.dtype] or 0) end
  for dtype in pairs(program.dtypes) do limit = math.max(limit, tolerance[dtype] or 0) end
  return limit
end

--- The text of the first value that differs in what the two functions gave, and whether it must be equal.
function M.compare_results(program, got, want)
  return compare("value", program.results, limit_of(program), got, want)
end

--- Runs the program on its mesh and on one device once: see M.check. Also whether what differs must be equal.
local function check_once(program, put)
  local mesh, sharded, plain = program.mesh, M.functions(program)
  local there, here, floats_in, leaves = {}, {}, {}, {}
  for i, input in ipairs(program.inputs) do
    there[i] = (put or ml.device_put)(input.data, NamedSharding(program.mesh, input.spec))
    here[i] = input.data
    if tolerance[input.dtype] then
      floats_in[#floats_in + 1], leaves[#leaves + 1] = input, i
    end
  end
  local want = supported(program, function() return ml.jit(plain)(table.unpack(here)) end)
  if not want then return end
  local got = supported(program, function() return ml.jit(sharded)(table.unpack(there)) end)
  if not got then return end
  local bad, exact = M.compare_results(program, got, want)
  if bad or program.no_grad then return bad, exact end
  local function gradients(fn, args)
    return ml.jit(ml.grad(M.loss_of(fn), {argnums = leaves}))(table.unpack(args))
  end
  want = supported(program, function() return table.unpack(gradients(plain, here)) end)
  if not want then return end
  local grads = gradients(sharded, there)
  for k, i in ipairs(#mesh.auto_axes == 0 and leaves or {}) do -- all axes are in the type of a cotangent
    local spec = there[i].sharding.spec
    if grads[k].sharding ~= NamedSharding(mesh, spec) then
      return ("the gradient of %s is %s, not %s"):format(floats_in[k].name, core.typeof(grads[k]), spec), true
    end
  end
  return compare("gradient", floats_in, limit_of(program), grads, want)
end

--- Runs the program on its mesh and on one device; values and gradients must agree up to rounding, and what is
--- exact bit for bit. Where rounding alone decides (what is the largest of two that are nearly equal) more may
--- differ, but not with other data: what is wrong is so with two draws at least.
---@param put function? what places an input on the mesh; ml.device_put
---@return string? error
function M.check(program, put)
  return M.confirmed(program, function() return check_once(program, put) end)
end

--- What check() finds, if it finds something with other data, too.
function M.confirmed(program, check)
  local bad, exact = check()
  for draw = 1, bad and not exact and 2 or 0 do
    for _, input in ipairs(program.inputs) do
      input.data = random_data(input.key + draw, input.shape, input.dtype)
    end
    exact = check() ~= nil or exact
  end
  return exact and bad or nil
end

--- The program with other source, which returns some of its results: for what is left of one that is shrunk.
function M.rewrite(program, source)
  local kept = {}
  for name in source:match "return ([%w, ]+)\nend%s*$":gmatch "%w+" do
    for _, v in ipairs(program.results) do
      if v.name == name then kept[#kept + 1] = v end
    end
  end
  program.source, program.results = source, kept
end

--- Text with which a failing program can be read.
function M.describe(program)
  local specs = {}
  for i, input in ipairs(program.inputs) do
    specs[i] = ("-- %s: %s[%s] %s"):format(input.name, input.dtype, table.concat(input.shape, ","),
      tostring(input.spec))
  end
  for i, spec in ipairs(program.constraints) do specs[#specs + 1] = ("-- C %d: %s"):format(i, spec) end
  for i, m in ipairs(program.maps) do
    specs[#specs + 1] = ("-- X.map %d: %s%s"):format(i, m.spec, m.partial and " of these axes only" or "")
  end
  for i, list in pairs(program.fallback) do
    for _, spec in ipairs(list) do specs[#specs + 1] = ("-- E %d: %s"):format(i, spec) end
  end
  for i, spec in pairs(program.moves or {}) do specs[#specs + 1] = ("-- R %d: %s"):format(i, spec) end
  return ("-- seed %d on %s\n%s\n%s"):format(program.seed, program.mesh_text,
    table.concat(specs, "\n"), program.source)
end

--- Runs programs of a kind {make, check, describe}: args are a count, the first seed, and what else make takes.
--- Prints those that fail, five at most, and ends the process.
function M.run(kind, args)
  local count, first = tonumber(args[1] or 100), tonumber(args[2] or 1)
  local failures, asked, refused = 0, 0, 0
  for seed = math.tointeger(first), math.tointeger(first + count - 1) do
    local program = kind.make(seed, args[3])
    if args[4] then M.rewrite(program, assert(io.open(args[4])):read "a") end
    local ok, bad = pcall(kind.check, program)
    asked, refused = asked + (program.asked or 0), refused + (program.refused and 1 or 0)
    if not ok or bad then
      failures = failures + 1
      print(kind.describe(program))
      print("-- " .. tostring(bad) .. "\n")
      if failures >= 5 then break end
    end
  end
  print(("%d programs, %d failures"):format(count, failures))
  if asked > 0 then print(("%d ambiguous lines"):format(asked)) end
  if refused > 0 then print(("%d not supported"):format(refused)) end
  os.exit(failures == 0 and 0 or 1)
end

if folder then M.run(M, arg) end

return M
