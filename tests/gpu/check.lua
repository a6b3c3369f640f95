-- check.lua BIN FILTER: is everything right on this GPU? What script/test-gpu check runs; BIN has the programs.
package.path = "tests/?.lua;" .. package.path
local rows = require "gpu.rows"

local SECONDS = 510 -- for all

local bin, filter = arg[1], arg[2]
local program = bin .. "/meshlua"
rows.need_gpu(program)

local kernels = {} -- the tests of kernels, as CMake lists them
for name in io.lines(bin .. "/cuda_kernels.txt") do kernels[#kernels + 1] = name end
assert(#kernels > 0, "no tests of kernels were built")
local cache = assert(os.getenv "MESHLUA_CACHE", "script/test-gpu runs this") -- for what is compiled

--- The files that a shell pattern names.
local function files(pattern)
  local pipe <close> = assert(io.popen("ls -d " .. pattern .. " 2>/dev/null"))
  local list = {}
  for line in pipe:lines() do list[#list + 1] = line end
  return list
end

--- "MESHLUA --devices=cuda:0*8 tests/specs.lua FILE", with as many devices as the spec wants.
local function spec_command(file)
  local handle <close> = assert(io.open(file))
  local devices = (handle:read "l"):match "^%-%- devices: *(%S+)" or "1"
  if not math.tointeger(tonumber(devices)) then return nil end
  return ("%s '--devices=cuda:0*%s' tests/specs.lua %s"):format(program, devices, file)
end

local cores = tonumber(io.popen("nproc"):read "l")

--- Runs commands, as many at a time as there are cores; those that failed, with what they printed.
local function all(sh, commands)
  if #commands == 0 then error("there is nothing to run", 0) end
  local list = os.tmpname()
  local handle <close> = assert(io.open(list, "w"))
  for _, command in ipairs(commands) do
    handle:write(("out=$(%s 2>&1) || { echo \"FAILED: %s\"; echo \"$out\" | tail -25; }"):format(command,
      (command:gsub('"', ""))), "\0")
  end
  handle:flush()
  local text, code = sh(("xargs -0 -n 1 -P %d sh -c <%s; rm %s"):format(cores, list, list))
  if code ~= 0 then error(("exit code %d\n%s"):format(code, text), 0) end
  local failed = select(2, text:gsub("FAILED: ", ""))
  if failed > 0 then error(("%d of %d failed\n%s"):format(failed, #commands, text), 0) end
  return ("%d, all as on the processor"):format(#commands)
end

--- A test of kernels with all its cases, of which each process has a part: compiling takes most of the time.
local function parts_of(name, words)
  local commands = {}
  for part = 0, cores - 1 do
    commands[#commands + 1] = ("KC_CACHE=%s KC_LIBRARY=%s/meshlua_cuda.so KC_CASES=0 KC_PART=%d/%d %s/%s %s")
      :format(cache, bin, part, cores, bin, name, words or "")
  end
  return commands
end

--- The losses that a run prints, by step.
local function losses(text)
  local list = {}
  for step, loss in text:gmatch "step +(%d+)/%d+ +loss ([%d.]+)" do list[tonumber(step)] = tonumber(loss) end
  return list
end

local list = {
  {name = "doctor", limit = 20, run = function(_, must)
    return assert(must(program .. " doctor"):match "GPU %d+ +([^\n]*)", "the doctor sees no GPU")
  end},
}

for _, name in ipairs(kernels) do
  list[#list + 1] = {name = name, limit = 90, run = function(sh)
    all(sh, parts_of(name))
    return "as the naive kernels"
  end}
end

list[#list + 1] = {name = "attention through wgmma", limit = 90, run = function(sh)
  for _, words in ipairs {"", "blocks"} do
    local function with(command) return sh("export KC_WGMMA=1; " .. command) end
    all(with, parts_of("cuda_kernels_attention", words))
  end
  return "as the naive kernels"
end}

-- Specs that learn from images which are too large to be carried.
local MNIST = "/usr/share/datasets/fashion-mnist"
local of_images = {["tests/spec/mlp_spec.lua"] = true, ["tests/spec/convnet_spec.lua"] = true}

for _, folder in ipairs {"spec/op", "spec/nn", "spec/layout", "spec/manual", "spec/control", "spec/transform",
  "spec", "golden", "spec/seeds", "spec/train"} do
  list[#list + 1] = {name = "specs: " .. folder, limit = 150, run = function(sh)
    local commands, without = {}, 0
    for _, file in ipairs(files("tests/" .. folder .. "/*_spec.lua")) do
      if of_images[file] and #files(MNIST) == 0 then
        without = without + 1
      else
        commands[#commands + 1] = spec_command(file)
      end
    end
    local text = all(sh, commands)
    return without == 0 and text or ("%s; without %d, as there is no %s"):format(text, without, MNIST)
  end}
end

list[#list + 1] = {name = "500 random programs", limit = 120, run = function(sh)
  local commands = {}
  for first = 201, 651, 50 do
    commands[#commands + 1] = ("%s '--devices=cuda:0*8' tests/fuzz/programs.lua 50 %d"):format(program, first)
  end
  return all(sh, commands)
end}

list[#list + 1] = {name = "GPT, 20 steps, losses against the processor's", limit = 90, run = function(_, must)
  local words = " models/train.lua --mesh=none --steps=20 --log_every=1 --sample=0"
  local here, there = losses(must(program .. words)), losses(must(program .. " --devices=cuda" .. words))
  local worst = 0
  for step = 1, 20 do worst = math.max(worst, math.abs(there[step] / here[step] - 1)) end
  if worst > 1e-4 then error(("differ by %.1e"):format(worst), 0) end
  return ("within %.1e"):format(worst)
end}

local function in_processes(n, words, variables)
  return ([[export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_pml=ob1 \
    OMPI_MCA_btl=self,vader OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_rmaps_base_oversubscribe=1; %s
    mpirun -np %d %s %s]]):format(variables or "", n, program, words)
end

list[#list + 1] = {name = "NCCL with 1 rank; 2 to 4 on the GPU", limit = 90, run = function(_, must)
  must(("folder=$(mktemp -d); %s/cuda_test_nccl %s/meshlua_cuda.so $folder gpu"):format(bin, bin))
  return "every byte, by calls and in graphs"
end}

for _, n in ipairs {1, 2, 4} do
  list[#list + 1] = {name = "collectives, processes on the GPU: " .. n, limit = 90, run = function(sh, must)
    if select(2, sh "command -v mpirun") ~= 0 then return "not run: there is no mpirun" end
    local words = "tests/dist/scripts/collectives.lua 2,2,2"
    local one = must(("%s '--devices=cuda:0*8' %s"):format(program, words))
    local many = must(in_processes(n, ("'--devices=cuda:0*%d' %s"):format(8 // n, words)))
    if #one == 0 or not many:find(one, 1, true) then error("differ:\n" .. many, 0) end
    return "as in one process"
  end}
end

list[#list + 1] = {name = "a killed peer ends all", limit = 60, run = function(sh, must)
  if select(2, sh "command -v mpirun") ~= 0 then return "not run: there is no mpirun" end
  local text = must(program .. " -e 'GPU=true' tests/specs.lua --filter='one stops' " ..
    "--filter='one is killed, and all end: rank 1' tests/dist/fault_spec.lua")
  return assert(text:match "[1-9]%d* success[^\n:]*", "nothing ran")
end}

for _, tool in ipairs {"memcheck", "racecheck"} do
  list[#list + 1] = {name = "compute-sanitizer " .. tool, limit = 120, run = function(sh)
    if select(2, sh "command -v compute-sanitizer") ~= 0 then return "not run: it is not there" end
    local _, code = sh(("compute-sanitizer --tool %s %s --devices=cuda -e 'print(1)'"):format(tool, program))
    if code ~= 0 then return "not run: it does not take this device" end
    local commands = {}
    for k, name in ipairs(kernels) do
      commands[k] = ("KC_CACHE=%s KC_LIBRARY=%s/meshlua_cuda.so KC_CASES=1 " ..
        "compute-sanitizer --tool %s --error-exitcode 1 %s/%s"):format(cache, bin, tool, bin, name)
    end
    all(sh, commands)
    return ("%d tests, no finding"):format(#kernels)
  end}
end

rows.run(list, filter, SECONDS, "FAILED")
