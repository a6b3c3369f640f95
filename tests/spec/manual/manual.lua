-- manual.lua: what the specs of shard_map share.
local assert = require "luassert"
local ml = require "meshlua"

local M = {}

--- 0, 1, 2, ... (n of them) in a shape.
function M.count(n, shape, dtype)
  return ml.astype(ml.arange(n + 0.0), dtype or "float32"):reshape(shape)
end

--- Different numbers, float64.
function M.wave(shape)
  local n = 1
  for _, d in ipairs(shape) do n = n * d end
  return ml.cos(M.count(n, shape, "float64") * 0.7)
end

--- f(...) raises an error of that code, with all of these fragments in its text; returns the text.
function M.raises(code, fragments, f, ...)
  local ok, message = pcall(f, ...)
  assert.is_false(ok)
  assert.truthy(message:find("[" .. code .. "]", 1, true), message)
  for _, fragment in ipairs(fragments) do assert.truthy(message:find(fragment, 1, true), message) end
  return message
end

--- grad of a float64 function of trees of tensors against central differences.
function M.check_gradient(f, ...)
  local args = table.pack(...)
  for k = 1, args.n do
    local g = ml.grad(f, {argnums = k})(...)
    local flat, shape = args[k]:reshape {args[k].size}:totable(), args[k].shape
    local got = g:reshape {args[k].size}:totable()
    for i = 1, #flat do
      local function at(h)
        local moved = table.move(flat, 1, #flat, 1, {})
        moved[i] = moved[i] + h
        local with = table.move(args, 1, args.n, 1, {})
        with[k] = ml.tensor(moved, "float64"):reshape(shape)
        return f(table.unpack(with, 1, args.n)):item()
      end
      local want = (at(1e-5) - at(-1e-5)) / 2e-5
      assert.truthy(math.abs(got[i] - want) <= 1e-6 * (1 + math.abs(want)),
        ("argument %d, element %d: %.9g, by differences %.9g"):format(k, i, got[i], want))
    end
  end
end

return M
