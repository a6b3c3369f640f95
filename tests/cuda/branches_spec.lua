-- branches_spec.lua: branches that devices skip, on GPUs that the stand-ins play (standin/): the bits of those
-- that all run, with fewer launches, also where these are captured as graphs.
local helper = require "spec.helper"
local standin = require "cuda.standin"
local shell = helper.shell

--- What the script prints, and how many products are launched, or captured to be.
local function run(gpus, devices, words)
  local log = os.tmpname()
  local command = [[export LD_LIBRARY_PATH='%s' MESHLUA_CACHE='%s' STANDIN_GPUS=%d STANDIN_LOG=%s
    "$MESHLUA" --devices='%s' tests/dist/scripts/branches.lua %s]]
  local out, err, code = shell(command:format(standin.folder, standin.cache, gpus, log, devices, words))
  assert.equal(0, code, err)
  local launches = 0
  for line in io.lines(log) do
    if line:find("cudaLaunchKernel", 1, true) then launches = launches + 1 end
  end
  os.remove(log)
  return out, launches
end

describe("branches on GPUs", function()
  for _, case in ipairs {{2, "cuda"}, {1, "cuda:0*2"}} do
    standin.it("are skipped by who does not run them: " .. case[2], function()
      if helper.watched then helper.pending "a sanitizer makes the GPU that runs on the CPU too slow" end
      local skipped, few = run(case[1], case[2], "2")
      local all, many = run(case[1], case[2], "2 off")
      assert.equal(all, skipped)
      assert.truthy(few < many, few .. " and " .. many .. " launches")
    end)
  end
end)
