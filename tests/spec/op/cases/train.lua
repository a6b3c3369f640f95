-- Rows of dropout and AdamW.
local ml = require "meshlua"
local naive = require "spec.op.naive"
local scalar = require "spec.op.scalar"
local op = ml.core.op

local rows = {}

-- An element stays where its random word, as a number in [0, 1), is below 0.75.
local key = ml.random.key(3)
rows[1] = {op = "dropout", rule = "ab->ab", inputs = {{8, 16}}, tolerance = 2,
  call = function(x) return op.dropout(x, key, {keep = 0.75, strides = {16, 1}}) end,
  ref = function(x)
    return naive.make(x.shape, function(i)
      local a, b = scalar.threefry(0, 3, 0, i[1] * 16 + i[2])
      return ((a ~ b) >> 9) / 2 ^ 23 < 0.75 and naive.at(x, i) / 0.75 or 0.0
    end)
  end}
rows[2] = {op = "dropout", name = "dropout that keeps all", rule = "ab->ab", inputs = {{8, 16}}, exact = true,
  call = function(x) return op.dropout(x, key, {keep = 1, strides = {16, 1}}) end,
  ref = function(x) return x end}

local hyper = {b1 = 0.9, b2 = 0.99, eps = 1e-3, eps_root = 1e-4, decay = 0.1}
local function number(low, high) return {low = low, high = high, keep = "accumulator"} end
rows[3] = {op = "adamw", rule = "ab,ab,ab,ab,,,->ab,ab,ab", tolerance = 32,
  inputs = {{8, 4}, {8, 4}, {8, 4}, {8, 4, low = 0.1, high = 1}, number(0.5, 1),
    {dtype = "float32", low = 3, high = 3}, number(0.5, 1)},
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
