-- run.lua: the cases that other projects wrote, as tests/peers/build.py has laid them down in a folder, run and
-- compared. `build/meshlua tests/peers/run.lua FOLDER [PATTERN]` writes what became of them to FOLDER/results.lua;
-- with the word `names` it prints, as JSON, the names and dtypes that meshlua has.
local ml = require "meshlua"
local exports = require "meshlua.exports"
package.path = arg[0]:match "^(.-)[^/]*$" .. "?.lua;" .. package.path
local compare = require "compare"

--- What build.py asks before it makes cases.
local function names()
  local list, dtypes = {}, {}
  for _, name in ipairs(exports.names()) do list[#list + 1] = ('"%s"'):format(name) end
  for _, dtype in ipairs {"bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64",
    "float16", "bfloat16", "float32", "float64"} do
    if pcall(ml.zeros, {1}, dtype) then dtypes[#dtypes + 1] = ('"%s"'):format(dtype) end
  end
  print(('{"names": [%s], "dtypes": [%s]}'):format(table.concat(list, ", "), table.concat(dtypes, ", ")))
end

--- The tensors of a case: those whose letter is given, in order.
local function tensors(data, i, letter, n)
  local list = {}
  for j = 1, n do list[j] = data[i .. letter .. j] end
  return list
end

--- A module in evaluation, with tensors in the place of its Params.
local function fill(module, values)
  for name, x in pairs(values) do module[name] = x end
  return module:eval()
end

--- x after a step for each of the gradients grads[i], by the optimizer that make(model) gives.
local function optimize(make, x, grads)
  local model = {w = ml.nn.Param(x)}
  local optimizer = make(model)
  for i = 1, grads.shape[1] do optimizer:update(model, {w = grads:at(i)}) end
  return model.w:get()
end

--- A schedule at each of the counts.
local function steps(schedule, counts)
  local list = {}
  for i, n in ipairs(counts) do list[i] = ml.astype(ml.add(0.0, schedule(ml.tensor(n))), "float32") end
  return ml.stack(list)
end

local function is_float(x) return x.dtype:find "float" ~= nil end

local tools = {fill = fill, optimize = optimize, steps = steps}

--- The inputs in case.diff, and the function from them to the float results.
local function differentiated(case, inputs, consts)
  local diff = {}
  for n, j in ipairs(case.diff) do diff[n] = inputs[j] end
  return diff, function(...)
    local args, floats = table.move(inputs, 1, #inputs, 1, {}), {}
    for n, j in ipairs(case.diff) do args[j] = (select(n, ...)) end
    for _, y in ipairs {case.f(ml, args, consts, tools)} do
      if is_float(y) then floats[#floats + 1] = y end
    end
    return floats
  end
end

--- The gradients of the results, times their cotangents.
local function gradients(run, diff, cotangents)
  if #cotangents == 1 then
    local _, back = ml.vjp(function(...) return run(...)[1] end, table.unpack(diff))
    return {back(cotangents[1])}
  end
  local argnums = {}
  for n in ipairs(diff) do argnums[n] = n end
  return ml.grad(function(...)
    local sum = 0
    for n, y in ipairs(run(...)) do sum = sum + (y * cotangents[n]):sum() end
    return sum
  end, {argnums = argnums})(table.unpack(diff))
end

--- Raises what is wrong with a case; says whether it has gradients.
local function check(case, data, i)
  local inputs, consts = tensors(data, i, "a", case.inputs), tensors(data, i, "k", case.consts)
  local outputs = {case.f(ml, inputs, consts, tools)}
  if #outputs ~= case.outputs then error(("result: %d values, not %d"):format(#outputs, case.outputs), 0) end
  for j, y in ipairs(outputs) do
    compare("result", y, data[i .. "y" .. j], case, 1)
  end
  if not case.diff then return false end
  local floats = 0
  for _, y in ipairs(outputs) do floats = floats + (is_float(y) and 1 or 0) end
  local diff, run = differentiated(case, inputs, consts)
  local grads = case.backward and gradients(run, diff, tensors(data, i, "c", floats))
  for n, j in ipairs(case.backward and case.diff or {}) do
    compare("gradient", grads[n], data[i .. "g" .. j], case, 5)
  end
  if case.forward then
    local _, forward = ml.jvp(run, diff, tensors(data, i, "t", #diff))
    for n = 1, floats do compare("tangent", forward[n], data[i .. "d" .. n], case, 5) end
  end
  return case.backward
end

--- Runs the cases of one file; notes what fails. Gives how many ran, and how many of those that pass have gradients.
local function run_file(base, pattern, failures)
  local rows = assert(loadfile(base .. ".lua"))()
  local data, n = assert(ml.load(base .. ".safetensors")), 0
  local gradients_held = 0
  for i, case in ipairs(rows) do
    if not pattern or case.name:find(pattern) then
      n = n + 1
      local ok, why = pcall(check, case, data, i)
      if ok and why then gradients_held = gradients_held + 1 end
      if not ok then
        failures[#failures + 1] = {name = case.name, op = case.op, why = tostring(why)}
        if pattern then print(("%s: %s: %s"):format(case.op, case.name:sub(1, 120), why)) end
      end
    end
  end
  return n, gradients_held
end

local function main(folder, pattern)
  local out = {}
  for line in assert(io.open(folder .. "/suites")):lines() do
    local suite = assert(loadfile(("%s/%s/suite.lua"):format(folder, line)))()
    local failures, ran, held, start = {}, 0, 0, os.time()
    for n = 1, suite.files do
      local some, with = run_file(("%s/%s/%d"):format(folder, line, n), pattern, failures)
      ran, held = ran + some, held + with
    end
    print(("%s: %d run, %d failed, %d s"):format(suite.name, ran, #failures, os.time() - start))
    out[#out + 1] = ("{folder = %q, ran = %d, gradients = %d, failures = {"):format(line, ran, held)
    for _, f in ipairs(failures) do
      out[#out + 1] = ("{name = %q, op = %q, why = %q},"):format(f.name, f.op, f.why)
    end
    out[#out + 1] = "}},"
  end
  if pattern then return end
  local handle <close> = assert(io.open(folder .. "/results.lua", "w"))
  handle:write("return {\n", table.concat(out, "\n"), "\n}\n")
end

if arg[1] == "names" then names() else main(arg[1], arg[2]) end
