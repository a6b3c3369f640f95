-- attention.lua: see attention.py.
local ml = require "meshlua"

return function(p)
  local shape = {p.batch, p.seq, p.heads, p.head}
  local function normal(seed) return ml.random.normal(ml.random.key(seed), shape) end
  local q, k, v, dy = normal(1), normal(2), normal(3), normal(4)
  local step = ml.jit(function(a, b, c, cotangent)
    local y, pullback = ml.vjp(function(...)
      local x = {...}
      return ml.nn.attention(x[1], x[2], x[3], {causal = true})
    end, a, b, c)
    return y, pullback(cotangent)
  end)
  return {
    inputs = {q = q, k = k, v = v, dy = dy},
    results = function() return {step(q, k, v, dy)} end,
    run = function()
      for _, x in ipairs {step(q, k, v, dy)} do x:release() end
    end,
  }
end
