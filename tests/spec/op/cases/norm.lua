-- Rows of layer_norm and rms_norm, and of the ops that their gradients call.
local ml = require "meshlua"
local row = require "spec.op.row"
local op = ml.core.op

local rows = {}

local function add(r) rows[#rows + 1] = r end

local eps = {eps = 1e-3}

local function normalize(x, scale, bias)
  local n = #scale
  local lines = table.move(x.shape, 1, #x.shape - 1, 1, {})
  local y, means, rstds = {shape = x.shape}, {shape = lines}, {shape = lines}
  for r = 1, #x // n do
    local line = row.of(x, r, n)
    means[r], rstds[r] = row.statistics(line, bias ~= nil, eps.eps)
    for i = 1, n do
      y[#y + 1] = (line[i] - means[r]) * rstds[r] * scale[i] + (bias and bias[i] or 0)
    end
  end
  return y, means, rstds
end

for _, s in ipairs {{{8, 12}, "aC"}, {{4, 2, 8}, "abC"}, {{8, 1}, "aC"}} do
  local shape, rule = s[1], s[2]
  local name, n = " of [" .. table.concat(shape, ",") .. "]", shape[#shape]
  add {op = "layer_norm", name = "layer_norm" .. name, rule = rule .. ",C,C->" .. rule,
    inputs = {shape, {n}, {n}}, tolerance = 16,
    call = function(x, scale, bias) return (op.layer_norm(x, scale, bias, eps)) end,
    ref = function(...) return (normalize(...)) end}
  add {op = "rms_norm", name = "rms_norm" .. name, rule = rule .. ",C->" .. rule, inputs = {shape, {n}},
    tolerance = 16,
    call = function(x, scale) return (op.rms_norm(x, scale, eps)) end,
    ref = function(x, scale) return (normalize(x, scale)) end}
end
add {op = "layer_norm", name = "layer_norm with its statistics", rule = "aC,C,C->aC,a,a",
  inputs = {{8, 12}, {12}, {12}}, tolerance = 16, results = {"same", "accumulator", "accumulator"},
  call = function(x, scale, bias) return op.layer_norm(x, scale, bias, eps) end, ref = normalize}
add {op = "rms_norm", name = "rms_norm with its statistics", rule = "aC,C->aC,a", inputs = {{8, 12}, {12}},
  tolerance = 16, results = {"same", "accumulator"},
  call = function(x, scale) return op.rms_norm(x, scale, eps) end,
  ref = function(x, scale)
    local y, _, rstd = normalize(x, scale)
    return y, rstd
  end}

-- dx = rstd (g - mean(g) - h mean(g h)) with g = dy scale, h = (x - mean) rstd; rms_norm has no mean(g).
local function norm_dx(dy, x, scale, mean, rstd)
  local n, out = #scale, {shape = x.shape}
  for r = 1, #x // n do
    local d, line = row.of(dy, r, n), row.of(x, r, n)
    local h = row.map(line, function(v) return (v - (mean and mean[r] or 0)) * rstd[r] end)
    local g = row.map(d, function(v, i) return v * scale[i] end)
    local gh = row.sum(g, function(v, i) return v * h[i] end) / n
    local along = mean and row.sum(g, function(v) return v end) / n or 0
    for i = 1, n do out[#out + 1] = rstd[r] * (g[i] - along - h[i] * gh) end
  end
  return out
end
local function norm_params(dy, x, mean, rstd)
  local n = x.shape[#x.shape]
  local dscale, dbias = {shape = {n}}, {shape = {n}}
  for i = 1, n do dscale[i], dbias[i] = 0.0, 0.0 end
  for r = 1, #x // n do
    for i = 1, n do
      local k = (r - 1) * n + i
      dscale[i] = dscale[i] + dy[k] * (x[k] - (mean and mean[r] or 0)) * rstd[r]
      dbias[i] = dbias[i] + dy[k]
    end
  end
  return dscale, dbias
end
local function norm_grad(dy, x, scale, mean, rstd)
  return norm_dx(dy, x, scale, mean, rstd), norm_params(dy, x, mean, rstd)
end
local stat = {8, low = 0.5, high = 1.5, keep = "accumulator"}
add {op = "layer_norm_grad", rule = "aC,aC,C,a,a->aC,C,C", inputs = {{8, 12}, {8, 12}, {12}, stat, stat},
  tolerance = 32, results = {"same", "accumulator", "accumulator"},
  call = function(dy, x, scale, mean, rstd) return op.layer_norm_grad(dy, x, scale, mean, rstd, eps) end,
  ref = norm_grad}
add {op = "rms_norm_grad", rule = "aC,aC,C,a->aC,C", inputs = {{8, 12}, {8, 12}, {12}, stat},
  tolerance = 32, results = {"same", "accumulator"},
  call = function(dy, x, scale, rstd) return op.rms_norm_grad(dy, x, scale, rstd, eps) end,
  ref = function(dy, x, scale, rstd)
    local dx, dscale = norm_grad(dy, x, scale, nil, rstd)
    return dx, dscale
  end}

return rows
