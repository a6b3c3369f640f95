-- config.lua: devices, which a script settles before its first tensor, and switches of passes.
local core = require "meshlua.core"
local lib = require "meshlua.lib"

local raise = lib.raise

local M = {}

local function switch_passes(switches)
  local known = core.passes()
  for name, on in pairs(switches) do
    if not lib.position(known, name) then
      local near = lib.nearest(tostring(name), known)
      raise("E_KEY", "config: passes: there is no pass '%s' to switch%s", name,
        near and "; did you mean '" .. near .. "'?" or "; there are " .. table.concat(known, ", "))
    end
    if type(on) ~= "boolean" and on ~= "default" then
      raise("E_VALUE", "config: passes: %s is %s; expected true, false or \"default\"", name, on)
    end
  end
  for name, on in pairs(switches) do
    if on == "default" then core.switch_pass(name) else core.switch_pass(name, on) end
  end
end

--- devices: ml.config{devices = 8} gives eight virtual devices of this processor, {devices = "cuda"} the GPUs
--- ("cuda:2" the third, "cuda:0,1" two, "cuda:0*8" eight virtual devices of the first), {devices = "fake:64"} such
--- as can be planned for and not run on. In place of the flag --devices, and over it. Raises after the first tensor
--- or mesh.
--- passes: {bucket = false, ...} switches what only changes the cost of plans, from then on; "default" undoes it.
--- The names: reuse (a gathered value serves every use), hoist (what a loop only adds up is summed over devices
--- behind it), reassociate (a sum of partial sums is reduced once), bucket (all_reduces go together), overlap
--- (collectives run beside work, that of other iterations of a loop, too; by default where links do not need the
--- processor), sum_products (a sum of products is one product of longer operands), fuse (elementwise ops run as one
--- kernel).
---@param options {devices: integer|string, passes: table<string, boolean|"default">}
function M.config(options)
  options = lib.options("config", options)
  local devices = options.devices
  if devices == nil and options.passes == nil then
    raise("E_VALUE", "config: nothing is asked for; write ml.config{devices = 8}")
  end
  if options.passes then switch_passes(options.passes) end
  if devices == nil then return end
  if math.type(devices) ~= "integer" and type(devices) ~= "string" then
    raise("E_VALUE", "config: devices must be a whole number or a text as --devices takes, not %s",
      devices)
  end
  core.set_devices(tostring(devices))
end

return lib.export(M)
