-- config.lua: what a script settles before its first tensor.
local core = require "meshlua.core"
local lib = require "meshlua.lib"

local raise = lib.raise

local M = {}

--- Asks for devices: ml.config{devices = 8} gives eight virtual devices of this processor, {devices =
--- "fake:64"} such as can be planned for and not run on. In place of the flag --devices, and over it. Raises
--- after the first tensor or mesh.
---@param options {devices: integer|string}
function M.config(options)
  options = lib.options("config", options, {devices = true})
  local devices = options.devices
  if devices == nil then raise("E_VALUE", "config: nothing is asked for; write ml.config{devices = 8}") end
  if math.type(devices) ~= "integer" and type(devices) ~= "string" then
    raise("E_VALUE", "config: devices must be a whole number or a text as --devices takes, not %s",
      tostring(devices))
  end
  core.set_devices(tostring(devices))
end

return lib.export(M)
