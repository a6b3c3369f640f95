-- Every environment variable stands in one table and is read somewhere; few are our own.
local gate = require "gate"
require "meshlua"
local core = require "meshlua.core"

local table_file = "host/base/env.c"
local may_read = {[table_file] = true, ["host/mpi/segments.c"] = true} -- a library of its own
local may_set = {["host/run/blas.c"] = true, ["host/run/runtime/gpu_transport.c"] = true,
  ["host/lua/program/processes.c"] = true, ["host/mpi/segments.c"] = true}

local looked, used = 0, {}
for _, file in ipairs(gate.files "%.[ch]$") do
  if file:find "^host/" or file:find "^kernels/" then
    local text = gate.read(file)
    if text:find "getenv%s*%(" and not may_read[file] then
      gate.fail(file, "it calls getenv")
    end
    if text:find "[^%w_]setenv%s*%(" and not may_set[file] then gate.fail(file, "it calls setenv") end
    if not file:find "^host/base/env%.[ch]$" then
      for name in text:gmatch "ENV_[A-Z0-9_]+" do used[name] = true end
    end
  end
end
for _, file in ipairs(gate.files "%.lua$") do
  if (file:find "^lualib/" or file:find "^models/") and gate.read(file):find "os%.getenv" then
    gate.fail(file, "it calls os.getenv")
  end
end

local MOST = 12 -- of our own: what a user must know should be few things
local own, header = 0, gate.read "host/base/env.h"
for _, row in ipairs(core.env()) do
  looked = looked + 1
  local word, ours = row.name:gsub("^MESHLUA_", "")
  own = own + ours
  if not header:find("ENV_" .. word .. ",", 1, true) then
    gate.fail(row.name, "no enumerator ENV_%s in host/base/env.h", word)
  elseif not used["ENV_" .. word] then
    gate.fail(row.name, "nothing reads it (ENV_%s)", word)
  end
end
if own > MOST then gate.fail(table_file, "%d variables are our own; there may be %d", own, MOST) end
gate.finish(looked, [[a variable is a row in host/base/env.c, which --env prints, read through env_get; one
that nothing reads goes, and what a flag says needs none.]])
