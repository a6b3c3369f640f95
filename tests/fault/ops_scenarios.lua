-- ops_scenarios.lua: uses of the functions on tensors that are made of ops; the others are in scenarios.lua.
local helper = require "spec.helper"
local ml = require "meshlua"

local M = {}

--- A scenario whose first result is the sum of x.
local function add(name, run)
  M[#M + 1] = {name = name,
    make = function()
      return {x = ml.arange(6.0):reshape {2, 3}, v = ml.arange(3.0), ids = ml.tensor {0, 2}}
    end,
    run = function(s) return {s.x:sum(), run(s.x, s.v, s.ids)} end,
    check = function(_, r) helper.close(15, r[1]) end}
end

add("reductions and products", function(x)
  local b = x:gt(2)
  return x:max(), x:min(2, true), x:mean(), x:var(), x:std(1), x:logsumexp(2), b:all(), b:any(1),
    x:argmax(1), x:argmin(), x:softmax(), x:log_softmax(1), x:matmul(x:T()), ml.where(b, x, 0.0)
end)
add("reductions of what is not NaN, and medians", function(x, v)
  return x:prod(2), x:nansum(), x:nanprod(1), x:nanmax(1), x:nanmin(1), x:nanmean(2), v:median(),
    v:quantile {0.2, 0.5}
end)
add("functions of each element", function(_, v)
  return v:exp2(), v:log2(), v:log10(), v:logit(), v:tan(), v:sinh(), v:cosh(), v:isnan(), v:isinf(),
    v:trunc(), v:nan_to_num(), v:asin(), v:acos(), v:atan(), v:asinh(), v:acosh(), v:atanh(), v:erfc(),
    v:lgamma(), v:digamma(), ml.polygamma(1, v)
end)
add("functions of two elements", function(_, v)
  return v:hypot(v), v:logaddexp(v), v:xlogy(v), v:fmod(2.0), v:atan2(2.0), v:isclose(v), v:allclose(v)
end)
add("elements in other places", function(x, v)
  return x:tile(2), v:repeat_interleave {1, 0, 2}, x:roll(1, 2), x:moveaxis(1, 2), x:tril(), x:triu(),
    v:diag(1), x:diagonal(), x:trace(), x:array_split({1}, 2), v:pad({{1, 1}}, {mode = "wrap"}),
    ml.meshgrid {v, v}
end)
add("products by words", function(x, v)
  return x:dot(v), v:outer(v), x:kron(v), x:tensordot(x), ml.einsum("ij,kj,kl->il", x, x, x)
end)
add("tables of samples", function(x, v, ids)
  return v:diff(), x:histogram(2), ids:bincount(), v:interp(v, v), ml.logspace(0, 1, 3)
end)
add("elements by id", function(x, v, ids)
  return v:segment_sum(ids:clip(0, 1):repeat_interleave {1, 2}, 2), x:take_along_axis(ids:reshape(1, 2), 2),
    x:put_along_axis(ids:reshape(1, 2), 1, 2, "max"), v:take(ids, 1, "fill")
end)
add("the extremes and products of segments", function(_, v, ids)
  local own = ids:repeat_interleave {1, 2}
  return v:segment_max(own, 2), v:segment_min(own, 2), v:segment_prod(own, 2)
end)
add("places of what is there", function(x, v)
  return x:nonzero(2), v:compress(v:gt(0), 2), ml.lexsort {v, v}
end)
add("places in what is sorted", function(_, v)
  return v:searchsorted(1), v:unique(2)
end)

return M
