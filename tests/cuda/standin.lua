-- standin.lua: what the specs of GPUs share that the stand-ins play (standin/); a spec gets it by
-- `require "cuda.standin"`.
local busted = require "busted"
local helper = require "spec.helper"

--- The folder of the stand-ins, to stand in LD_LIBRARY_PATH.
local M = {folder = helper.program():match "^(.*)/[^/]*$" .. "/standin"}

-- Compiled kernels are kept for as long as the stand-ins are these; cuda.cmake names the folder so, too.
local hash = helper.shell [[
  for f in tests/cuda/standin/*; do sha256sum $f | cut -c1-64; done | tr -d '\n' | sha256sum | cut -c1-12]]

--- Where the kernels are that all tests over the stand-ins compile.
M.cache = M.folder .. "/cache-" .. hash:match "%x+"

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
