-- first.lua BIN FILTER: the first minutes with a GPU: from its driver to a training step, then what each part is
-- worth. What script/test-gpu first runs; BIN has the programs. `script/test-gpu pack` runs it as well, on a GPU that
-- runs nothing, so that what these rows compile is compiled before.
package.path = "tests/?.lua;" .. package.path
local rows = require "gpu.rows"

local SECONDS = 510 -- for all

local bin, filter = arg[1], arg[2]
local program = bin .. "/meshlua"
local kernels = {}
for name in io.lines(bin .. "/cuda_kernels.txt") do kernels[#kernels + 1] = name end

--- Tests of kernels with the cases that they have by default, all at once.
local function test(must, names, variables)
  local commands = {}
  for i, name in ipairs(names) do
    commands[i] = ("(%s KC_CACHE=$MESHLUA_CACHE KC_LIBRARY=%s/meshlua_cuda.so %s/%s >$f/%d 2>&1 || "
      .. "echo %s >>$f/bad) &"):format(variables or "", bin, bin, name, i, name)
  end
  must(("f=$(mktemp -d); %s wait; if test -s $f/bad; then tail -n 5 $f/[0-9]*; cat $f/bad; exit 1; fi; "
    .. "rm -r $f"):format(table.concat(commands, " ")))
  return ("%d as the naive kernels"):format(#names)
end

--- The numbers of what a script prints, on the processor and on the GPU, and how far apart they are at most.
local function compare(must, code)
  local here = must(("%s -e '%s'"):format(program, code))
  local there = must(("MESHLUA_CHECK=1 %s --devices=cuda -e '%s'"):format(program, code))
  local wanted, worst = here:gmatch "[-%d.e]+", 0
  for number in there:gmatch "[-%d.e]+" do
    local x = tonumber(wanted() or "none")
    if not x then error("other numbers:\n" .. here .. there, 0) end
    worst = math.max(worst, math.abs(tonumber(number) - x) / math.max(1, math.abs(x)))
  end
  if worst > 1e-4 or wanted() then error(("differ by %.1e:\n%s%s"):format(worst, here, there), 0) end
  return ("within %.0e of the processor"):format(worst)
end

--- Some steps of GPT-2 124M at batch 32, whose first loss is near log(50304) = 10.83.
local function train(must, variables, flags)
  local text = must(("STARTED=$(date +%%s.%%N) %s %s --devices=cuda %s bench/gpu/gpt2.lua 32 20"):format(
    variables or "", program, flags or ""))
  local first, last = text:match "loss=([%d.]+),([%d.]+)"
  if not first or math.abs(first - 10.83) > 0.3 then
    error("the first loss is not near 10.83:\n" .. text, 0)
  end
  return ("%s tokens/s, %s ms, host %s us, first step after %s s, loss %s to %s"):format(
    text:match "tokens=(%d+)", text:match "ms=([%d.]+)", text:match "host=([%d.]+)",
    text:match "first=([%d.]+)", first, last)
end

local function sanitizer(tool, names)
  return {name = "compute-sanitizer " .. tool, limit = 100, run = function(sh, must)
    if select(2, sh "command -v compute-sanitizer") ~= 0 then return "not run: it is not there" end
    for _, name in ipairs(names) do
      must(("KC_CACHE=$MESHLUA_CACHE KC_LIBRARY=%s/meshlua_cuda.so KC_CASES=1 compute-sanitizer --tool %s "
        .. "--error-exitcode 1 %s/%s"):format(bin, tool, bin, name))
    end
    return ("%d tests, no finding"):format(#names)
  end}
end

rows.run({
  -- from the driver to a training step: two minutes
  {name = "driver", limit = 20, run = function(sh)
    local text, code = sh "nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader"
    return code == 0 and text or "not run: there is no nvidia-smi"
  end},
  {name = "doctor", limit = 20, needed = true, run = function(_, must)
    return assert(must(program .. " doctor"):match "GPU %d+ +([^\n]*)", "the doctor sees no GPU")
  end},
  {name = "add, matmul, softmax", limit = 30, needed = true, run = function(_, must)
    return compare(must, [[local ml = require "meshlua"
      local x = ml.reshape(ml.arange(4096.0), {64, 64}) / 4096
      print(((x + 1):matmul(x)):sum(1):sum():item(), (ml.softmax(x) * x):sum():item())]])
  end},
  {name = "kernels: fused, rowwise, cublaslt", limit = 45, needed = true, run = function(_, must)
    return test(must, {"cuda_kernels_fused", "cuda_kernels_rowwise", "cuda_kernels_cublaslt"})
  end},
  {name = "GPT-2 124M", limit = 90, needed = true, run = function(_, must) return train(must) end},
  -- what each part is worth
  {name = "GPT-2 124M, attention through wgmma", limit = 60, run = function(_, must)
    return train(must, "MESHLUA_ALGORITHMS=wgmma")
  end},
  {name = "GPT-2 124M, cublasLt's first guess", limit = 60, run = function(_, must)
    return train(must, "MESHLUA_ALGORITHMS=first")
  end},
  {name = "GPT-2 124M, profile", limit = 60, run = function(_, must)
    return train(must, nil, "--profile=${OUT:-/tmp}/gpt2.json")
  end},
  {name = "kernels: all", limit = 120, run = function(_, must) return test(must, kernels) end},
  {name = "kernels: attention through wgmma", limit = 60, run = function(_, must)
    return test(must, {"cuda_kernels_attention"}, "KC_WGMMA=1")
  end},
  sanitizer("memcheck", {"cuda_kernels_attention", "cuda_kernels_reduce"}),
  sanitizer("racecheck", {"cuda_kernels_attention", "cuda_kernels_reduce"}),
}, filter, SECONDS)
