-- programs.lua: random programs over sharded tensors, run on a mesh and on one device. Everything follows
-- from one seed, so that a failing program can be made again and shrunk:
--   meshlua --devices=8 tests/fuzz/programs.lua [count] [first seed]
local ml = require "meshlua"
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
    if #free > 0 and g.chance(55) then
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

local floats = {"float32", "float32", "float64", "bfloat16", "float16"}

--- Data whose sums are well conditioned: small multiples of 1/8.
local function random_data(g, shape, dtype)
  local key = ml.random.key(g.int(0, 1 << 30))
  local x = ml.div(ml.astype(ml.random.randint(key, shape, -12, 13), "float32"), 8.0)
  return ml.astype(x, dtype)
end

-- ---- steps: each takes the pool of values (name -> {shape, ...}) and returns Lua source of one more ----

local function is_shape(a, b)
  if #a ~= #b then return false end
  for d = 1, #a do if a[d] ~= b[d] then return false end end
  return true
end

local function copy(t) return table.move(t, 1, #t, 1, {}) end
local function list(t) return "{" .. table.concat(t, ",") .. "}" end

local unary = {"tanh", "sin", "cos", "exp_small", "sigmoid", "neg", "square", "abs", "erf"}
local binary = {"add", "sub", "mul", "maximum", "minimum"}

local steps = {}

function steps.unary(g, x)
  local f = g.pick(unary)
  if f == "exp_small" then return ("ml.exp(ml.tanh(%s))"):format(x.name), x.shape end
  return ("ml.%s(%s)"):format(f, x.name), x.shape
end
function steps.scalar(g, x)
  return ("%s %s %s"):format(x.name, g.pick {"+", "-", "*"}, g.pick {"0.5", "2", "1.25"}), x.shape
end
function steps.binary(g, x, pool)
  for _ = 1, 6 do
    local y = g.pick(pool)
    if is_shape(x.shape, y.shape) then
      return ("ml.%s(%s, %s)"):format(g.pick(binary), x.name, y.name), x.shape
    end
  end
end
function steps.broadcast_add(g, x)
  if #x.shape < 2 then return end
  local axes = {}
  for d = 1, #x.shape - 1 do axes[#axes + 1] = d end
  return ("%s + ml.mean(%s, %s, true)"):format(x.name, x.name, list(axes)), x.shape
end
function steps.where(_, x)
  return ("ml.where(ml.gt(%s, 0.1), %s, %s * 0.5)"):format(x.name, x.name, x.name), x.shape
end
function steps.sum(g, x)
  if #x.shape == 0 then return end
  local axes, shape, keep = {}, {}, g.chance(30)
  for d, n in ipairs(x.shape) do
    if g.chance(40) then
      axes[#axes + 1] = d
      if keep then shape[#shape + 1] = 1 end
    else
      shape[#shape + 1] = n
    end
  end
  if #axes == 0 then return end
  local f = g.pick {"sum", "mean", "max", "min"}
  return ("ml.%s(%s, %s, %s)"):format(f, x.name, list(axes), tostring(keep)), shape
end
function steps.transpose(g, x)
  local perm, shape, rest = {}, {}, {}
  for d = 1, #x.shape do rest[d] = d end
  while #rest > 0 do
    local d = table.remove(rest, g.int(1, #rest))
    perm[#perm + 1], shape[#shape + 1] = d, x.shape[d]
  end
  if #perm < 2 then return end
  return ("ml.transpose(%s, %s)"):format(x.name, list(perm)), shape
end
function steps.reshape(g, x)
  local shape = copy(x.shape)
  if #shape >= 2 and g.chance(50) then -- merge two neighbours
    local d = g.int(1, #shape - 1)
    shape[d] = shape[d] * table.remove(shape, d + 1)
  elseif #shape >= 1 and #shape < 5 then -- split one
    local d = g.int(1, #shape)
    local divisors = {}
    for k = 1, shape[d] do if shape[d] % k == 0 then divisors[#divisors + 1] = k end end
    local k = g.pick(divisors)
    table.insert(shape, d + 1, shape[d] // k)
    shape[d] = k
  end
  return ("ml.reshape(%s, %s)"):format(x.name, list(shape)), shape
end
function steps.slice(g, x)
  if #x.shape == 0 then return end
  local d = g.int(1, #x.shape)
  local n = x.shape[d]
  if n < 2 then return end
  local first = g.int(1, n)
  local last, ranges, shape = g.int(first, n), {}, copy(x.shape)
  for k = 1, #x.shape do ranges[k] = "false" end
  ranges[d], shape[d] = ("{%d,%d}"):format(first, last), last - first + 1
  return ("ml.slice(%s, %s)"):format(x.name, table.concat(ranges, ",")), shape
end
function steps.concat(g, x)
  if #x.shape == 0 then return end
  local d, shape = g.int(1, #x.shape), copy(x.shape)
  shape[d] = shape[d] * 2
  return ("ml.concat({%s, %s * 2}, %d)"):format(x.name, x.name, d), shape
end
function steps.pad(g, x)
  if #x.shape == 0 then return end
  local d, shape, pads = g.int(1, #x.shape), copy(x.shape), {}
  for k = 1, #shape do pads[k] = "false" end
  pads[d], shape[d] = "{1,2}", shape[d] + 3
  return ("ml.pad(%s, {%s}, 0.25)"):format(x.name, table.concat(pads, ",")), shape
end
function steps.flip(g, x)
  if #x.shape == 0 then return end
  return ("ml.flip(%s, %d)"):format(x.name, g.int(1, #x.shape)), x.shape
end
function steps.matmul(g, x, pool)
  if #x.shape == 0 then return end
  for _ = 1, 8 do
    local y = g.pick(pool)
    for d = 1, #y.shape do
      local k = x.shape[#x.shape]
      if y.shape[d] == k and #x.shape + #y.shape - 2 <= 4 then
        local shape, a, b = {}, "", ""
        for i = 1, #x.shape do a = a .. string.char(96 + i) end
        local result = a:sub(1, -2)
        for i = 1, #x.shape - 1 do shape[i] = x.shape[i] end
        for i = 1, #y.shape do
          if i == d then b = b .. a:sub(-1) else
            b = b .. string.char(111 + i)
            result = result .. string.char(111 + i)
            shape[#shape + 1] = y.shape[i]
          end
        end
        local count = 1
        for _, n in ipairs(shape) do count = count * n end
        if count <= 8192 then
          return ("ml.einsum('%s,%s->%s', %s, %s) * %g"):format(a, b, result, x.name, y.name, 1 / k), shape
        end
      end
    end
  end
end
function steps.batched(_, x)
  if #x.shape ~= 3 then return end
  return ("ml.einsum('abc,adc->abd', %s, %s) * %g"):format(x.name, x.name, 1 / x.shape[3]),
    {x.shape[1], x.shape[2], x.shape[2]}
end
function steps.softmax(g, x)
  if #x.shape == 0 then return end
  return ("ml.softmax(%s, %d)"):format(x.name, g.int(1, #x.shape)), x.shape
end
function steps.log_softmax(_, x)
  if #x.shape == 0 then return end
  return ("ml.log_softmax(%s)"):format(x.name), x.shape
end
function steps.take(g, x)
  if #x.shape == 0 or #x.shape > 3 then return end
  local d, ids = g.int(1, #x.shape), {}
  local n = g.pick {1, 2, 4, 8}
  for i = 1, n do ids[i] = g.int(0, x.shape[d] - 1) end
  local shape = copy(x.shape)
  shape[d] = n
  return ("ml.take(%s, ml.tensor(%s), %d)"):format(x.name, list(ids), d), shape
end
function steps.sort(g, x)
  if #x.shape == 0 then return end
  return ("(ml.sort(%s, %d))"):format(x.name, g.int(1, #x.shape)), x.shape
end
function steps.iota(g, x)
  if #x.shape == 0 then return end
  return ("%s * ml.astype(ml.iota(%s, %d), 'float32') * 0.125"):format(x.name, list(x.shape),
    g.int(1, #x.shape)), x.shape
end
function steps.random(g, x)
  return ("%s + ml.random.uniform(ml.random.key(%d), %s)"):format(x.name, g.int(0, 99), list(x.shape)),
    x.shape
end
function steps.constrain(g, x, _, mesh, constraints)
  local spec = M.random_spec(g, mesh, x.shape)
  constraints[#constraints + 1] = spec
  return ("C(%s, %d)"):format(x.name, #constraints), x.shape
end
function steps.layer_norm(_, x)
  if #x.shape < 2 then return end
  local c = x.shape[#x.shape]
  if c < 2 then return end
  return ("(ml.core.op.layer_norm(%s, ml.full({%d}, 1.5, '%s'), ml.full({%d}, 0.25, '%s'), {eps = 1e-3}))")
    :format(x.name, c, x.dtype, c, x.dtype), x.shape
end
function steps.dropout(g, x)
  local strides, n = {}, 1
  for d = #x.shape, 1, -1 do strides[d], n = n, n * x.shape[d] end
  return ("ml.core.op.dropout(%s, ml.random.key(%d), {keep = 0.75, strides = %s})"):format(x.name,
    g.int(0, 9), list(strides)), x.shape
end

local names = {}
for name in pairs(steps) do names[#names + 1] = name end
table.sort(names)

--- A random program: inputs (shape, spec, data), Lua source, constraints, the mesh it is for.
function M.make(seed)
  local g = generator(seed)
  local def = g.pick(meshes)
  local count = 1
  for _, n in ipairs(def[1]) do count = count * n end
  local ids = {}
  for i = 1, count do ids[i] = i - 1 end
  local mesh = ml.make_mesh(def[1], def[2], ids)
  local dtype = g.pick(floats)
  local pool, inputs, lines, constraints = {}, {}, {}, {}
  for i = 1, g.int(1, 3) do
    local shape = random_shape(g, g.int(1, 3))
    inputs[i] = {name = "x" .. i, shape = shape, dtype = dtype, spec = M.random_spec(g, mesh, shape),
      data = random_data(g, shape, dtype)}
    pool[#pool + 1] = inputs[i]
  end
  for i = 1, g.int(2, 9) do
    local source, shape
    for _ = 1, 10 do
      source, shape = steps[g.pick(names)](g, g.pick(pool), pool, mesh, constraints)
      if source then break end
    end
    if source then
      local v = {name = "v" .. i, shape = shape, dtype = dtype}
      lines[#lines + 1] = ("  local %s = ml.astype(%s, '%s')"):format(v.name, source, dtype)
      pool[#pool + 1] = v
    end
  end
  local params, results = {}, {}
  for i, input in ipairs(inputs) do params[i] = input.name end
  for i = #inputs + 1, #pool do results[#results + 1] = pool[i].name end
  if #results == 0 then results[1] = "x1" end
  local source = ("local ml, C = ...\nreturn function(%s)\n%s\n  return %s\nend"):format(
    table.concat(params, ", "), table.concat(lines, "\n"), table.concat(results, ", "))
  return {seed = seed, mesh = mesh, inputs = inputs, source = source, constraints = constraints,
    dtype = dtype, mesh_text = tostring(mesh)}
end

local tolerance = {float64 = 1e-11, float32 = 2e-4, float16 = 4e-2, bfloat16 = 2e-1}

--- The largest difference of two tensors against the larger magnitude of the tensor and 1.
local function difference(a, b)
  local x, y = ml.astype(core.put_across(a, nil), "float64"), ml.astype(b, "float64")
  local d = ml.max(ml.abs(x - y)):item()
  local scale = math.max(1, ml.max(ml.abs(y)):item())
  if d ~= d then
    -- NaN in the same places is equal.
    local nx, ny = ml.ne(x, x), ml.ne(y, y)
    if ml.any(ml.ne(nx, ny)):item() then return math.huge end
    return 0
  end
  return d / scale
end

--- Runs the program on its mesh and on one device; values and gradients must agree up to rounding.
---@return string? error
function M.check(program)
  local chunk = assert(load(program.source, "=program" .. program.seed))
  local function on_mesh(x, i)
    return x:constrain(NamedSharding(program.mesh, program.constraints[i]))
  end
  local sharded = ml.jit(chunk(ml, on_mesh))
  local plain = ml.jit(chunk(ml, function(x) return x end))
  local there, here, leaves = {}, {}, {}
  for i, input in ipairs(program.inputs) do
    there[i] = ml.device_put(input.data, NamedSharding(program.mesh, input.spec))
    here[i], leaves[i] = input.data, i
  end
  local limit = tolerance[program.dtype]
  local function compare(what, a, b)
    for i = 1, math.max(a.n, b.n) do
      if a[i].size > 0 then
        local d = difference(a[i], b[i])
        if not (d <= limit) then
          return ("%s %d differs by %g (%s)"):format(what, i, d, core.typeof(a[i]))
        end
      end
    end
  end
  local bad = compare("value", table.pack(sharded(table.unpack(there))),
    table.pack(plain(table.unpack(here))))
  if bad then return bad end
  -- The gradient of a fixed functional of all results.
  local function loss_of(fn)
    return function(...)
      local total
      for i, y in ipairs({fn(...)}) do
        local part = ml.mean(ml.astype(y, "float32") * (0.5 + 0.25 * i))
        total = total and total + part or part
      end
      return total
    end
  end
  local function gradients(fn, args)
    local grads = ml.jit(ml.grad(loss_of(fn), {argnums = leaves}))(table.unpack(args))
    return {n = #leaves, table.unpack(grads)}
  end
  bad = compare("gradient", gradients(chunk(ml, on_mesh), there),
    gradients(chunk(ml, function(x) return x end), here))
  return bad
end

--- Text with which a failing program can be read.
function M.describe(program)
  local specs = {}
  for i, input in ipairs(program.inputs) do
    specs[i] = ("-- %s: %s[%s] %s"):format(input.name, input.dtype, table.concat(input.shape, ","),
      tostring(input.spec))
  end
  for i, spec in ipairs(program.constraints) do specs[#specs + 1] = ("-- C %d: %s"):format(i, spec) end
  return ("-- seed %d on %s\n%s\n%s"):format(program.seed, program.mesh_text,
    table.concat(specs, "\n"), program.source)
end

if arg and arg[0] and arg[0]:match("programs%.lua$") then
  local count, first = tonumber(arg[1] or 100), tonumber(arg[2] or 1)
  local failures = 0
  for seed = math.tointeger(first), math.tointeger(first + count - 1) do
    local program = M.make(seed)
    local ok, bad = pcall(M.check, program)
    if not ok or bad then
      failures = failures + 1
      print(M.describe(program))
      print("-- " .. tostring(bad) .. "\n")
      if failures >= 5 then break end
    end
  end
  print(("%d programs, %d failures"):format(count, failures))
  os.exit(failures == 0 and 0 or 1)
end

return M
