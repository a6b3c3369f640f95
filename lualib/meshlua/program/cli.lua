-- cli.lua: what the program prints about itself.
local core = require "meshlua.core"
local lib = require "meshlua.lib"

local M = {}

local usage = [==[
usage: meshlua [flags] [script.lua [arguments]]
       meshlua run -n R [flags] script.lua [arguments]
                               the script in R processes on this host, through mpirun
       meshlua doctor          what this machine has: kernels, BLAS, devices, CUDA, NCCL, MPI

  -e code            run the code
  -l name            require the library into the global `name`; -l g=name into the global `g`
  -i                 interactive, after the script
  -v                 print the versions
  -E                 ignore LUA_INIT, LUA_PATH, LUA_CPATH and MESHLUA_PATH
  -W                 turn warnings on
  --                 stop reading flags
  -                  stop reading flags and run what comes in
  --devices=N        N virtual devices of this processor; cuda, cuda:2, cuda:0,1, cuda:0*8: GPUs, all of them,
                     the third, two, or eight virtual devices on the first; fake:N, fake:KIND:N: devices
                     that can be planned for but not run on (KIND: cpu, h100, h200)
  --dump=STAGE       print programs after a stage to the standard error; STAGE:FILE into a file. Stages:
STAGES
                     factors: the sharding rules; source: on GPUs; all: programs
  --profile=FILE     record what runs, when and on which thread and device, for ui.perfetto.dev or
                     chrome://tracing; and print at the end what took how long
  --log-ranks=LIST   of several processes, those whose output is wanted: all, or ranks as in 0,3; each
                     line then says its rank. Rank 0 alone by default
  --timeout=SECONDS  how long a process waits for the others, to start or in one collective, before all
                     end; default: 300
  --secret=require   an error where processes would meet over TCP without a secret (MESHLUA_SECRET)
  --world-size=N     N processes run this script; what follows is left out where a launcher says it
  --rank=K           this is process K of them, from 0
  --local-rank=K     the number of this process on its host, from 0
  --master-addr=HOST, --master-port=N
                     where the processes meet
  --ops              the table of ops: which rules each has
  --types            annotations of all public names, for lua-language-server
  --env              the environment variables
  --help             this text

Exit code: 0 done, 1 error in the script, 2 wrong use, 3 the machine lacks something, 4 a training run
stopped on a loss that is not finite, 5 a process waited longer than --timeout for the others, 75 stopped by
SIGUSR1 or SIGTERM after a whole step, 128 + N ended by signal N.
]==]

local flags = {"--devices", "--dump", "--profile", "--log-ranks", "--timeout", "--secret", "--world-size",
  "--rank", "--local-rank", "--master-addr", "--master-port", "--ops", "--types", "--env", "--help"}

--- Prints the flags.
function M.help()
  local indent, lines = (" "):rep(21), {}
  for _, stage in ipairs(core.stages()) do
    local last = lines[#lines]
    if last and #last + #stage < 105 then lines[#lines] = last .. " " .. stage .. ","
    else lines[#lines + 1] = indent .. stage .. "," end
  end
  io.write((usage:gsub("STAGES\n%s+", table.concat(lines, "\n") .. "\n" .. indent)))
end

--- Prints what is wrong with a flag.
---@param flag string as given
---@param wrong string
function M.bad_flag(flag, wrong)
  local near = wrong == "unknown" and flag:find "^%-%-" and lib.nearest(flag:match "^[^=]*", flags)
  io.stderr:write("meshlua: ", flag, ": ", wrong,
    near and ("; did you mean " .. near .. "?") or "", "\n       meshlua --help lists the flags\n")
end

--- Writes rows as columns, each as wide as its widest cell but the last.
local function write_table(rows)
  local width = {}
  for _, row in ipairs(rows) do
    for i = 1, #row - 1 do width[i] = math.max(width[i] or 0, #row[i]) end
  end
  for _, row in ipairs(rows) do
    local cells = {}
    for i, cell in ipairs(row) do cells[i] = i == #row and cell or cell .. (" "):rep(width[i] - #cell) end
    io.write((table.concat(cells, "  "):gsub("%s+$", "")), "\n")
  end
end

--- Prints the environment variables, and which are set.
function M.env()
  local rows = {{"variable", "value", "now", "meaning"}}
  for _, row in ipairs(core.env()) do rows[#rows + 1] = {row.name, row.value, row.now or "-", row.doc} end
  write_table(rows)
end

--- Prints the ops and the rules each has: one line an op.
function M.ops()
  local rows = {{"op", "operands", "shape", "gradient", "sharding", "fold", "expand", "runs as", "meaning"}}
  local function mark(has) return has and "yes" or "-" end
  for _, op in ipairs(core.ops()) do
    rows[#rows + 1] = {op.name, op.operands or "", "yes", op.grad, mark(op.factors), mark(op.folds),
      mark(op.expands), op.runs, op.doc}
  end
  write_table(rows)
end

--- Prints the public names as annotations for editors.
function M.types()
  io.write(require("meshlua.exports.types").text())
end

--- Prints what the program found on this machine.
function M.doctor()
  write_table(require("meshlua.program.doctor").rows())
end

return M
