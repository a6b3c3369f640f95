-- mpi.lua: how the specs of this folder start several processes; a spec gets it by `require "dist.mpi"`.
local busted = require "busted"
local assert = require "luassert"
local helper = require "spec.helper"
local shell = helper.shell

local M = {}

local sanitizer = rawget(_G, "SANITIZE") or ""
--- Eight devices in several processes: how many, and the devices of each.
M.SPLITS = helper.watched and {{2, 4}} or {{2, 4}, {4, 2}, {8, 1}}

--- Why nothing can run here, or nil.
local function missing()
  if sanitizer:find "thread" then return "the thread sanitizer finds what MPI's own threads do" end
  local plugin = io.open(helper.program():match "^(.*)/[^/]*$" .. "/meshlua_mpi.so")
  if not plugin then return "meshlua_mpi.so was not built: OpenMPI was not there (Debian: libopenmpi-dev)" end
  plugin:close()
  if shell "command -v mpirun" == "" then return "there is no mpirun (Debian: openmpi-bin)" end
end

local why = missing()

--- Root may, cores may be fewer than processes, waiting gives way, one host needs no network; and leaks of MPI
--- itself are not ours.
M.SETTINGS = [[export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
  OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_pml=ob1 \
  OMPI_MCA_btl=self,vader OMPI_MCA_hwloc_base_binding_policy=none ASAN_OPTIONS=detect_leaks=0
]]

--- With these, mpirun ends all others at once where one has failed, and does not wait two seconds.
M.PROMPT = M.SETTINGS .. "export OMPI_MCA_odls_base_sigkill_timeout=0\n"

--- A spec that is pending, with the reason, where several processes cannot run.
function M.it(name, fn)
  busted.it(name, function()
    if why then helper.pending(why) end
    fn()
  end)
end

--- How a shell starts the program in so many processes; leaks of MPI itself are not ours.
---@return string
function M.program(processes, devices)
  return ('env ASAN_OPTIONS=detect_leaks=0 "$MESHLUA" --processes=%d --devices=%d'):format(processes, devices)
end

--- Runs `words` in `processes` processes of `devices` devices each.
---@return string out, string err, integer code
function M.run(processes, devices, words)
  return shell(M.SETTINGS .. ([[mpirun -np %d "$MESHLUA" --devices=%d %s]]):format(processes, devices, words))
end

--- Runs `words` in one process of so many devices, which must go well; what it prints.
---@return string
function M.one(devices, words)
  local out, err, code = shell(([["$MESHLUA" --devices=%d %s]]):format(devices, words))
  assert.equal(0, code, err)
  assert.truthy(#out > 0)
  return out
end

--- Asserts that every split of the devices over processes prints what one process prints.
---@param splits integer[][] processes and devices of each
function M.same(splits, words)
  local first = M.one(splits[1][1] * splits[1][2], words)
  for _, split in ipairs(splits) do
    local out, err, code = M.run(split[1], split[2], words)
    local where = ("%d x %d: "):format(split[1], split[2])
    assert.equal(0, code, where .. err)
    assert.equal(first, out, where)
  end
end

return M
