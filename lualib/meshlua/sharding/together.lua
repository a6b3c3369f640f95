-- together.lua: what many processes say to each other in the course of a script: a number, or how it went, so that
-- none goes on where another cannot. All of them must call it.
local arrays = require "meshlua.ops.arrays"
local core = require "meshlua.core"
local mesh_of = require "meshlua.sharding.mesh"

local M = {}

local TEXT = 480 -- bytes of a message that are sent

--- The largest of a whole number in all processes.
---@param value integer
---@return integer
function M.largest(value)
  if core.process_count() == 1 then return value end
  local mesh, each = mesh_of.make_mesh({core.device_count()}, {"all"}), {}
  for device = 1, core.local_device_count() do each[device] = value end
  local all = arrays.make_array_from_process_local_data(core.NamedSharding(mesh, core.P "all"),
    core.tensor(each, "int64"))
  return all:max():item()
end

--- What this process says, as a row of bytes: is it well?, the code, the message.
local function row_of(ok, message, code)
  local text = ok and "" or ((code or "E_IO") .. " " .. tostring(message)):sub(1, TEXT)
  local row = {ok and 1 or 0}
  for k = 1, TEXT do row[k + 1] = text:byte(k) or 0 end
  return {row}
end

--- Waits until all processes have come here. Gives what this one gives where all are well; else nil, message and
--- code of the first that is not, in all of them.
---@param ok any false or nil: it failed
---@param message string?
---@param code string?
---@return any ok, string? message, string? code
function M.agree(ok, message, code)
  if core.process_count() == 1 then return ok, message, code end
  local n = core.device_count()
  local sharding = core.NamedSharding(mesh_of.make_mesh({n}, {"all"}), core.P "all")
  local row = row_of(ok, message, code)
  local said = arrays.make_array_from_callback({n, TEXT + 1}, sharding, function() return row end, "uint8")
  local bytes = arrays.all_gather_to_host(said):bytes()
  if not ok then return nil, message, code end
  for k = 0, n - 1 do
    local from = k * (TEXT + 1) + 1
    if bytes:byte(from) == 0 then
      local text = bytes:sub(from + 1, from + TEXT):gsub("%z+$", "")
      return nil, "another process: " .. text:gsub("^%S+ ", ""), text:match "^%S+"
    end
  end
  return ok, message, code
end

--- Is this the process that makes what all share?
function M.is_first() return core.process_index() == 0 end

return M
