-- worker.lua: meshlua's process of the benchmark: makes a row's case and runs it as often as it is asked to. A
-- request is a line of Lua, an answer a line of JSON; see arms.py. arg[1] is the folder of this file.
--
-- A family (rows/FAMILY.lua) is a function of a row's parameters that gives a case {inputs, run, results, info}:
-- inputs, tensors by name, from which the peers start; run() does the work once; results() gives tensors to
-- compare, before the first run; info, what the driver computes limits from.
local ml = require "meshlua"
local json = require "meshlua.train.json"

local here = arg[1]
local clock = ml.core.clock
package.path = here .. "/rows/?.lua;" .. here .. "/../models/?.lua;" .. package.path

local cases = {}

local function write_file(path, bytes)
  local file <close> = assert(io.open(path, "wb"))
  assert(file:write(bytes))
end

--- Tensors by name as files of bytes, and a list of them for numpy.
local function write_tensors(folder, name, tensors)
  local names, list = {}, {}
  for key in pairs(tensors) do names[#names + 1] = key end
  table.sort(names)
  for i, key in ipairs(names) do
    local x, file = tensors[key], ("%s.%d"):format(name, i)
    write_file(folder .. "/" .. file, x:bytes())
    local sizes = table.concat(x.shape, ", ")
    list[i] = ('{"name": "%s", "file": "%s", "dtype": "%s", "shape": [%s]}'):format(key, file, x.dtype, sizes)
  end
  write_file(folder .. "/" .. name .. ".json", "[" .. table.concat(list, ",\n") .. "]\n")
end

local commands = {}

function commands.hello() return {versions = {meshlua = require("meshlua.program").version}} end

function commands.prepare(request)
  local params = request.params
  params.arm = request.arm
  local case = require(request.family)(params)
  cases[request.arm] = case
  if request.folder then
    write_tensors(request.folder, "inputs", case.inputs or {})
    local results = {}
    for i, x in ipairs(case.results and case.results() or {}) do results[("%03d"):format(i)] = x end
    write_tensors(request.folder, "results", results)
  end
  return {info = case.info and case.info() or {}}
end

function commands.time(request)
  local run, inner, times = cases[request.arm].run, request.inner, {}
  for s = 1, request.samples do
    local start = clock()
    for _ = 1, inner do run() end
    times[s] = (clock() - start) / inner
  end
  return {times = times}
end

--- Bytes of this process, as the kernel calls them: "VmRSS", "VmHWM" (the most so far).
local function memory(name)
  for line in io.lines "/proc/self/status" do
    local kilobytes = line:match("^" .. name .. ":%s*(%d+)")
    if kilobytes then return kilobytes * 1024 end
  end
end

local empty = memory "VmRSS"

--- The most memory over three runs, once two have been, beside that of an empty process.
function commands.value(request)
  local run = cases[request.arm].run
  for _ = 1, 2 do run() end
  collectgarbage()
  local clear = io.open("/proc/self/clear_refs", "w")
  if clear then clear:write "5" clear:close() end
  for _ = 1, 3 do run() end
  return {value = memory "VmHWM" - empty}
end

function commands.drop(request)
  cases[request.arm] = nil
  collectgarbage()
  return {done = true}
end

for line in io.lines() do
  local request = assert(load(line))()
  local ok, answer = xpcall(commands[request.command], debug.traceback, request)
  if not ok then
    io.stderr:write(answer, "\n")
    answer = {error = answer:match "^[^\n]*"}
  end
  io.write(json.encode(answer), "\n")
  io.flush()
end
