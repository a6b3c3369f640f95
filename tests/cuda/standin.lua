-- standin.lua: what the specs of GPUs share that the stand-ins play (standin/); a spec gets it by
-- `require "cuda.standin"`.
local busted = require "busted"
local helper = require "spec.helper"

--- The folder of the stand-ins, to stand in LD_LIBRARY_PATH.
local M = {folder = helper.program():match "^(.*)/[^/]*$" .. "/standin"}

--- Was that stand-in built?
---@param library string? the CUDA runtime's, without which none is
function M.has(library)
  local file <close> = io.open(M.folder .. "/" .. (library or "libcudart.so.13"))
  return file ~= nil
end

--- A spec that is pending where the stand-in was not built.
---@param it function? what makes a spec in place of busted's
function M.it(name, fn, library, it)
  (it or busted.it)(name, function()
    if not M.has(library) then helper.pending "the stand-ins for CUDA were not built" end
    fn()
  end)
end

return M
