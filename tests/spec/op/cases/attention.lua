-- Rows of attention, of its gradient, and of rope.
local ml = require "meshlua"
local naive = require "spec.op.naive"
local row = require "spec.op.row"
local op = ml.core.op

local rows = {}

local function add(r) rows[#rows + 1] = r end

-- Calls fn(batch, query, head, key head, scores) for every query. q is [B,T,H,D], k [B,S,G,D].
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
        fn(b, t, h, g, scores)
      end
    end
  end
end

local function attention(q, k, v, attr)
  local y = naive.make(q.shape, function() return 0 end)
  local lse = naive.make({q.shape[1], q.shape[3], q.shape[2]}, function() return 0 end)
  local T, H, D = q.shape[2], q.shape[3], q.shape[4]
  each_query(q, k, attr, function(b, t, h, g, scores)
    local p = row.softmax(scores)
    lse[(b * H + h) * T + t + 1] = row.log_sum_exp(scores)
    for d = 0, D - 1 do
      y[((b * T + t) * H + h) * D + d + 1] =
        row.sum(p, function(share, s) return share * naive.at(v, {b, s - 1, g, d}) end)
    end
  end)
  return y, lse
end

-- p = exp(s - lse), dv = p^T dy, ds = p (dy v^T - rowsum(dy y)), dq = scale ds k, dk = scale ds^T q.
local function attention_grad(q, k, v, y, lse, dy, attr)
  local function zeros(x) return naive.make(x.shape, function() return 0.0 end) end
  local dq, dk, dv = zeros(q), zeros(k), zeros(v)
  local T, H, D, S, G = q.shape[2], q.shape[3], q.shape[4], k.shape[2], k.shape[3]
  each_query(q, k, attr, function(b, t, h, g, scores)
    local query, dot = ((b * T + t) * H + h) * D, 0.0
    for d = 1, D do dot = dot + dy[query + d] * y[query + d] end
    for s, score in ipairs(scores) do
      local p = math.exp(score - naive.at(lse, {b, h, t}))
      local key, dp = ((b * S + s - 1) * G + g) * D, 0.0
      for d = 1, D do dp = dp + dy[query + d] * v[key + d] end
      local ds = p * (dp - dot) * attr.scale
      for d = 1, D do
        dq[query + d] = dq[query + d] + ds * k[key + d]
        dk[key + d] = dk[key + d] + ds * q[query + d]
        dv[key + d] = dv[key + d] + p * dy[query + d]
      end
    end
  end)
  return dq, dk, dv
end

for _, s in ipairs {
  {"attention", {4, 6, 4, 4}, {4, 6, 4, 4}, false},
  {"attention, causal", {4, 6, 4, 4}, {4, 6, 4, 4}, true},
  {"attention, grouped heads", {2, 4, 8, 4}, {2, 4, 2, 4}, false},
  {"attention, grouped heads, causal, more keys than queries", {2, 3, 8, 4}, {2, 5, 2, 4}, true},
  {"attention, one query", {2, 1, 4, 4}, {2, 8, 4, 4}, true},
} do
  local name, q, k = s[1], s[2], s[3]
  local attr = {scale = 1 / math.sqrt(q[4]), causal = s[4]}
  local queries, keys = "aThD", "aShD"
  add {op = "attention", name = name, inputs = {q, k, k}, tolerance = 16, results = {"same", "accumulator"},
    rule = ("Q,K,K->Q,ahT"):gsub("[QK]", {Q = queries, K = keys}),
    call = function(...)
      local x = {...}
      x[4] = attr
      return op.attention(table.unpack(x))
    end,
    ref = function(x, y, z) return attention(x, y, z, attr) end}
  -- y and lse need not be attention's results: the formula holds for any.
  add {op = "attention_grad", name = name:gsub("attention", "attention_grad"), tolerance = 32,
    rule = ("Q,K,K,Q,ahT,Q->Q,K,K"):gsub("[QK]", {Q = queries, K = keys}),
    inputs = {q, k, k, q, {q[1], q[3], q[2], low = 1, high = 3, keep = "accumulator"}, q},
    call = function(...)
      local x = {...}
      x[7] = attr
      return op.attention_grad(table.unpack(x))
    end,
    ref = function(...)
      local x = {...}
      x[7] = attr
      return attention_grad(table.unpack(x))
    end}
end

for _, sign in ipairs {1, -1} do
  add {op = "rope", name = "rope, sign " .. sign, rule = "abhD,b->abhD", tolerance = 64,
    inputs = {{2, 8, 4, 6}, {8, dtype = "int32", low = 0, high = 40}},
    call = function(x, p) return op.rope(x, p, {base = 1000, sign = sign}) end,
    ref = function(x, p)
      return naive.make(x.shape, function(i)
        local d, half = i[4], 3
        local angle = p[i[2] + 1] * 1000 ^ (-2 * (d % half) / 6) * sign
        local function part(at) return naive.at(x, {i[1], i[2], i[3], at}) end
        if d < half then return part(d) * math.cos(angle) - part(d + half) * math.sin(angle) end
        return part(d) * math.cos(angle) + part(d - half) * math.sin(angle)
      end)
    end}
end

return rows
