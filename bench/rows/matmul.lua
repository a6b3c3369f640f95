-- matmul.lua: see matmul.py.
local ml = require "meshlua"

return function(p)
  local ta, tb = p.form:sub(1, 1) == "t", p.form:sub(2, 2) == "t"
  local a = ml.random.normal(ml.random.key(1), ta and {p.k, p.m} or {p.m, p.k})
  local b = ml.random.normal(ml.random.key(2), tb and {p.n, p.k} or {p.k, p.n})
  local product = ml.jit(function(u, v)
    return (ta and u:transpose() or u):matmul(tb and v:transpose() or v)
  end)
  return {
    inputs = {a = a, b = b},
    results = function() return {product(a, b)} end,
    run = function() product(a, b):release() end,
  }
end
