-- differences.lua: gradients against central differences, in float64.
local helper = require "spec.helper"
local ml = require "meshlua"

local M = {}

local function bump(x, i, by)
  local flat = x:reshape({x.size}):totable()
  flat[i] = flat[i] + by
  return ml.tensor(flat, "float64"):reshape(x.shape)
end

--- Raises unless ml.grad of fn (of float64 tensors, a scalar) agrees with differences for every argument.
---@param fn function
---@param args Tensor[]
---@param tolerance number? 1e-6
function M.check(fn, args, tolerance)
  local numbers = {}
  for i = 1, #args do numbers[i] = i end
  local step = ml.jit(fn)
  local grads = ml.jit(ml.grad(fn, {argnums = numbers}))(table.unpack(args))
  for a, x in ipairs(args) do
    local wanted = {}
    for i = 1, x.size do
      local call = table.move(args, 1, #args, 1, {})
      call[a] = bump(x, i, 1e-5)
      local up = step(table.unpack(call)):item()
      call[a] = bump(x, i, -1e-5)
      wanted[i] = (up - step(table.unpack(call)):item()) / 2e-5
    end
    local found = helper.difference(wanted, grads[a]:reshape({x.size}), tolerance or 1e-6)
    if found then error(("argument %d: %s"):format(a, found), 2) end
  end
end

return M
