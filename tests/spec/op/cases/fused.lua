-- Rows of the native fused ops and of the ops that their gradients call.
local ml = require "meshlua"
local naive = require "spec.op.naive"
local op = ml.core.op

local rows = {}

local function add(row)
  row.exact = row.exact or false
  rows[#rows + 1] = row
end

-- ---- along the last dim ---------------------------------------------------------------------------
local function sums(row, f)
  local total = 0.0
  for i, v in ipairs(row) do total = total + f(v, i) end
  return total
end
local function greatest(row)
  local m = row[1]
  for _, v in ipairs(row) do m = math.max(m, v) end
  return m
end
local function mapped(row, f)
  local out = {}
  for i, v in ipairs(row) do out[i] = f(v, i) end
  return out
end
local function log_sum_exp(row)
  local m = greatest(row)
  return m + math.log(sums(row, function(v) return math.exp(v - m) end))
end
local function softmax(row)
  local lse = log_sum_exp(row)
  return mapped(row, function(v) return math.exp(v - lse) end)
end
local function row_of(x, r, n) return table.move(x, (r - 1) * n + 1, r * n, 1, {}) end

for _, s in ipairs {{8, 4, 6}, {8, 16}, {8}, {4, 1}} do
  local name = " of [" .. table.concat(s, ",") .. "]"
  local function shape() return table.move(s, 1, #s, 1, {low = -3, high = 3}) end
  add {op = "softmax", name = "softmax" .. name, inputs = {shape()}, call = op.softmax,
    ref = function(x) return naive.rows(x, softmax) end}
  add {op = "log_softmax", name = "log_softmax" .. name, inputs = {shape()}, call = op.log_softmax,
    ref = function(x)
      return naive.rows(x, function(row)
        local lse = log_sum_exp(row)
        return mapped(row, function(v) return v - lse end)
      end)
    end}
end
add {op = "softmax", name = "softmax along the first axis", inputs = {{8, 4}},
  call = function(x) return x:softmax(1) end,
  ref = function(x)
    return naive.transpose(naive.rows(naive.transpose(x, {2, 1}), softmax), {2, 1})
  end}
add {op = "softmax_grad", inputs = {{8, 6}, {8, 6}}, call = op.softmax_grad, tolerance = 8,
  ref = function(y, dy)
    local out = {shape = y.shape}
    for r = 1, 8 do
      local a, b = row_of(y, r, 6), row_of(dy, r, 6)
      local dot = sums(a, function(v, i) return v * b[i] end)
      for i = 1, 6 do out[#out + 1] = a[i] * (b[i] - dot) end
    end
    return out
  end}

local labels = {8, dtype = "int32", low = 0, high = 9}
add {op = "softmax_cross_entropy", inputs = {{8, 10, low = -3, high = 3}, labels},
  call = op.softmax_cross_entropy, result = "accumulator", tolerance = 8,
  ref = function(x, l)
    local loss, lse = {shape = {8}}, {shape = {8}}
    for r = 1, 8 do
      local row = row_of(x, r, 10)
      lse[r] = log_sum_exp(row)
      loss[r] = lse[r] - row[l[r] + 1]
    end
    return loss, lse
  end}
add {op = "softmax_cross_entropy", name = "softmax_cross_entropy of [4,2,12]",
  inputs = {{4, 2, 12}, {4, 2, dtype = "int32", low = 0, high = 11}}, result = "accumulator",
  call = function(x, l) return (op.softmax_cross_entropy(x, l)) end, tolerance = 8,
  ref = function(x, l)
    local loss = {shape = {4, 2}}
    for r = 1, 8 do
      local row = row_of(x, r, 12)
      loss[r] = log_sum_exp(row) - row[l[r] + 1]
    end
    return loss
  end}
add {op = "softmax_cross_entropy_grad",
  inputs = {{8, 10}, labels, {8, low = 2, high = 3, keep = "accumulator"}, {8, keep = "accumulator"}},
  call = op.softmax_cross_entropy_grad, tolerance = 8,
  ref = function(x, l, lse, dloss)
    return naive.make({8, 10}, function(i)
      local p = math.exp(naive.at(x, i) - lse[i[1] + 1])
      return (p - (l[i[1] + 1] == i[2] and 1 or 0)) * dloss[i[1] + 1]
    end)
  end}

-- ---- norms ------------------------------------------------------------------------------------------
local eps = {eps = 1e-3}
local function statistics(row, centred)
  local n = #row
  local mean = centred and sums(row, function(v) return v end) / n or 0.0
  local var = sums(row, function(v) return (v - mean) ^ 2 end) / n
  return mean, 1 / math.sqrt(var + eps.eps)
end
local function normalize(x, scale, bias)
  local n = #scale
  local y, means, rstds = {shape = x.shape}, {}, {}
  means.shape = table.move(x.shape, 1, #x.shape - 1, 1, {})
  rstds.shape = means.shape
  for r = 1, #x // n do
    local row = row_of(x, r, n)
    means[r], rstds[r] = statistics(row, bias ~= nil)
    for i = 1, n do
      y[#y + 1] = (row[i] - means[r]) * rstds[r] * scale[i] + (bias and bias[i] or 0)
    end
  end
  return y, means, rstds
end
for _, s in ipairs {{8, 12}, {4, 2, 8}, {8, 1}} do
  local name, n = " of [" .. table.concat(s, ",") .. "]", s[#s]
  add {op = "layer_norm", name = "layer_norm" .. name, inputs = {s, {n}, {n}}, tolerance = 16,
    call = function(x, scale, bias) return (op.layer_norm(x, scale, bias, eps)) end,
    ref = function(...) return (normalize(...)) end}
  add {op = "rms_norm", name = "rms_norm" .. name, inputs = {s, {n}}, tolerance = 16,
    call = function(x, scale) return (op.rms_norm(x, scale, eps)) end,
    ref = function(x, scale) return (normalize(x, scale)) end}
end
add {op = "layer_norm", name = "layer_norm with its statistics", inputs = {{8, 12}, {12}, {12}},
  tolerance = 16, results = {"same", "accumulator", "accumulator"},
  call = function(x, scale, bias) return op.layer_norm(x, scale, bias, eps) end, ref = normalize}
add {op = "rms_norm", name = "rms_norm with its statistics", inputs = {{8, 12}, {12}},
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
    local d, row = row_of(dy, r, n), row_of(x, r, n)
    local h = mapped(row, function(v) return (v - (mean and mean[r] or 0)) * rstd[r] end)
    local g = mapped(d, function(v, i) return v * scale[i] end)
    local gh = sums(g, function(v, i) return v * h[i] end) / n
    local along = mean and sums(g, function(v) return v end) / n or 0
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
local stat = {8, low = 0.5, high = 1.5, keep = "accumulator"}
add {op = "layer_norm_grad", inputs = {{8, 12}, {8, 12}, {12}, stat, stat}, tolerance = 16,
  call = function(dy, x, scale, mean, rstd) return op.layer_norm_grad(dy, x, scale, mean, rstd, eps) end,
  ref = norm_dx}
add {op = "rms_norm_grad", inputs = {{8, 12}, {8, 12}, {12}, stat}, tolerance = 16,
  call = function(dy, x, scale, rstd) return op.rms_norm_grad(dy, x, scale, rstd, eps) end,
  ref = function(dy, x, scale, rstd) return norm_dx(dy, x, scale, nil, rstd) end}
add {op = "layer_norm_grad_params", inputs = {{8, 12}, {8, 12}, stat, stat}, tolerance = 32,
  call = function(dy, x, mean, rstd) return op.layer_norm_grad_params(dy, x, mean, rstd, eps) end,
  ref = norm_params}
add {op = "rms_norm_grad_params", inputs = {{8, 12}, {8, 12}, stat}, tolerance = 32,
  call = function(dy, x, rstd) return op.rms_norm_grad_params(dy, x, rstd, eps) end,
  ref = function(dy, x, rstd) return (norm_params(dy, x, nil, rstd)) end}

-- ---- attention --------------------------------------------------------------------------------------
-- Calls fn(b, t, h, weights, scores' log-sum-exp) for every query.
local function each_query(q, k, attr, fn)
  local T, H, D, S, G = q.shape[2], q.shape[3], q.shape[4], k.shape[2], k.shape[3]
  for b = 0, q.shape[1] - 1 do
    for t = 0, T - 1 do
      for h = 0, H - 1 do
        local g, scores = h // (H // G), {}
        for s = 0, (attr.causal and t + S - T or S - 1) do
          local dot = 0.0
          for d = 0, D - 1 do dot = dot + naive.at(q, {b, t, h, d}) * naive.at(k, {b, s, g, d}) end
          scores[s + 1] = dot * attr.scale
        end
        fn(b, t, h, g, softmax(scores), log_sum_exp(scores))
      end
    end
  end
end
local function attention(q, k, v, attr)
  local y = naive.make(q.shape, function() return 0 end)
  local lse = naive.make({q.shape[1], q.shape[3], q.shape[2]}, function() return 0 end)
  local T, H, D = q.shape[2], q.shape[3], q.shape[4]
  each_query(q, k, attr, function(b, t, h, g, p, l)
    lse[(b * H + h) * T + t + 1] = l
    for d = 0, D - 1 do
      local total = 0.0
      for s = 1, #p do total = total + p[s] * naive.at(v, {b, s - 1, g, d}) end
      y[((b * T + t) * H + h) * D + d + 1] = total
    end
  end)
  return y, lse
end
-- dv = p^T dy, ds = p (dy v^T - rowsum(dy y)), dq = scale ds k, dk = scale ds^T q.
local function attention_grad(q, k, v, y, _, dy, attr)
  local function zeros(x) return naive.make(x.shape, function() return 0.0 end) end
  local dq, dk, dv = zeros(q), zeros(k), zeros(v)
  local T, H, D, S, G = q.shape[2], q.shape[3], q.shape[4], k.shape[2], k.shape[3]
  each_query(q, k, attr, function(b, t, h, g, p)
    local query, dot = ((b * T + t) * H + h) * D, 0.0
    for d = 1, D do dot = dot + dy[query + d] * y[query + d] end
    for s = 1, #p do
      local key, dp = ((b * S + s - 1) * G + g) * D, 0.0
      for d = 1, D do dp = dp + dy[query + d] * v[key + d] end
      local ds = p[s] * (dp - dot) * attr.scale
      for d = 1, D do
        dq[query + d] = dq[query + d] + ds * k[key + d]
        dk[key + d] = dk[key + d] + ds * q[query + d]
        dv[key + d] = dv[key + d] + p[s] * dy[query + d]
      end
    end
  end)
  return dq, dk, dv
end
for name, s in pairs {
  ["attention"] = {{4, 6, 4, 8}, {4, 6, 4, 8}, false},
  ["attention, causal"] = {{4, 6, 4, 8}, {4, 6, 4, 8}, true},
  ["attention, grouped heads"] = {{2, 4, 8, 4}, {2, 4, 2, 4}, false},
  ["attention, grouped heads, causal, more keys than queries"] = {{2, 3, 8, 4}, {2, 5, 2, 4}, true},
  ["attention, one query"] = {{2, 1, 4, 4}, {2, 8, 4, 4}, true},
} do
  local attr = {scale = 1 / math.sqrt(s[1][4]), causal = s[3]}
  add {op = "attention", name = name, inputs = {s[1], s[2], s[2]}, tolerance = 16,
    results = {"same", "accumulator"},
    call = function(q, k, v) return op.attention(q, k, v, attr) end,
    ref = function(q, k, v) return attention(q, k, v, attr) end}
  add {op = "attention_grad", name = name:gsub("attention", "attention_grad"), tolerance = 32,
    inputs = {s[1], s[2], s[2], s[1]},
    call = function(q, k, v, dy)
      local y, lse = op.attention(q, k, v, attr)
      return op.attention_grad(q, k, v, y, lse, dy, attr)
    end,
    ref = function(q, k, v, dy)
      local y, lse = attention(q, k, v, attr)
      return attention_grad(q, k, v, y, lse, dy, attr)
    end}
end

-- ---- rope ---------------------------------------------------------------------------------------------
for _, sign in ipairs {1, -1} do
  add {op = "rope", name = "rope, sign " .. sign, inputs = {{2, 8, 4, 6}, {8, dtype = "int32", low = 0, high = 40}},
    tolerance = 64,
    call = function(x, p) return op.rope(x, p, {base = 1000, sign = sign}) end,
    ref = function(x, p)
      return naive.make(x.shape, function(i)
        local d, half = i[4], 3
        local angle = p[i[2] + 1] * 1000 ^ (-2 * (d % half) / 6) * sign
        local function part(k) return naive.at(x, {i[1], i[2], i[3], k}) end
        if d < half then return part(d) * math.cos(angle) - part(d + half) * math.sin(angle) end
        return part(d) * math.cos(angle) + part(d - half) * math.sin(angle)
      end)
    end}
end

-- ---- dropout, adamw -----------------------------------------------------------------------------------
local function uniforms(shape) return ml.random.uniform(ml.random.key(3), shape) end
add {op = "dropout", inputs = {{8, 16}}, exact = true, tolerance = 2,
  call = function(x) return op.dropout(x, ml.random.key(3), {keep = 0.75, strides = {16, 1}}) end,
  ref = function(x)
    local u, i = uniforms(x.shape):totable(), 0
    return naive.map(function(v)
      i = i + 1
      return u[(i - 1) // 16 + 1][(i - 1) % 16 + 1] < 0.75 and v / 0.75 or 0.0
    end, x)
  end}
add {op = "dropout", name = "dropout that keeps all", inputs = {{8, 16}}, exact = true,
  call = function(x) return op.dropout(x, ml.random.key(3), {keep = 1, strides = {16, 1}}) end,
  ref = function(x) return x end}

local hyper = {b1 = 0.9, b2 = 0.99, eps = 1e-3, eps_root = 1e-4, decay = 0.1}
local scalar = {dtype = "float32", low = 0.5, high = 1}
add {op = "adamw", inputs = {{8, 4}, {8, 4}, {8, 4}, {8, 4, low = 0.1, high = 1}, scalar,
  {dtype = "float32", low = 3, high = 3}, scalar}, tolerance = 32,
  call = function(p, g, mu, nu, lr, step, clip) return op.adamw(p, g, mu, nu, lr, step, clip, hyper) end,
  ref = function(p, g, mu, nu, lr, step, clip)
    local out = {{shape = p.shape}, {shape = p.shape}, {shape = p.shape}}
    for i = 1, #p do
      local gi = g[i] * clip[1]
      local m = hyper.b1 * mu[i] + (1 - hyper.b1) * gi
      local n = hyper.b2 * nu[i] + (1 - hyper.b2) * gi * gi
      local m_hat, n_hat = m / (1 - hyper.b1 ^ step[1]), n / (1 - hyper.b2 ^ step[1])
      local u = m_hat / (math.sqrt(n_hat + hyper.eps_root) + hyper.eps)
      out[1][i], out[2][i], out[3][i] = p[i] - lr[1] * (u + hyper.decay * p[i]), m, n
    end
    return table.unpack(out)
  end}

return rows
