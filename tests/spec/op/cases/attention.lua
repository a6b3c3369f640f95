-- Rows of attention, of its gradient, and of rope.
local ml = require "meshlua"
local naive = require "spec.op.naive"
local row = require "spec.op.row"
local scalar = require "spec.op.scalar"
local op = ml.core.op

local rows = {}

local function add(r) rows[#rows + 1] = r end

-- Calls fn(batch, query, head, key head, scores) for every query. q is [B,T,H,D], k [B,S,G,D], mask [B,H,T,S]
-- or nil; everybody may look at the first key.
local function each_query(q, k, attr, mask, fn)
  local T, H, D, S, G = q.shape[2], q.shape[3], q.shape[4], k.shape[2], k.shape[3]
  for b = 0, q.shape[1] - 1 do
    for t = 0, T - 1 do
      for h = 0, H - 1 do
        local g, scores = h // (H // G), {}
        for s = 0, (attr.causal and t + S - T or S - 1) do
          local dot = 0.0
          for d = 0, D - 1 do dot = dot + naive.at(q, {b, t, h, d}) * naive.at(k, {b, s, g, d}) end
          local hidden = mask and s > 0 and not naive.at(mask, {b, h, t, s})
          scores[s + 1] = hidden and -math.huge or dot * attr.scale
        end
        fn(b, t, h, g, scores)
      end
    end
  end
end

-- What dropout multiplies the probability of key s by.
local function kept(attr, b, h, t, s)
  if not attr.keep or attr.keep == 1 then return 1 end
  local by = attr.strides
  local x, y = scalar.threefry(0, 3, 0, b * by[1] + h * by[2] + t * by[3] + s * by[4])
  return ((x ~ y) >> 9) / 2 ^ 23 < attr.keep and 1 / attr.keep or 0
end

local function attention(q, k, v, mask, attr)
  local y = naive.make(q.shape, function() return 0 end)
  local lse = naive.make({q.shape[1], q.shape[3], q.shape[2]}, function() return 0 end)
  local T, H, D = q.shape[2], q.shape[3], q.shape[4]
  each_query(q, k, attr, mask, function(b, t, h, g, scores)
    local p = row.softmax(scores)
    lse[(b * H + h) * T + t + 1] = row.log_sum_exp(scores)
    for d = 0, D - 1 do
      y[((b * T + t) * H + h) * D + d + 1] = row.sum(p, function(share, s)
        return share * kept(attr, b, h, t, s - 1) * naive.at(v, {b, s - 1, g, d})
      end)
    end
  end)
  return y, lse
end

-- p = exp(s - lse), dv = p^T dy, ds = p (dy v^T - rowsum(dy y)), dq = scale ds k, dk = scale ds^T q.
local function attention_grad(q, k, v, y, lse, dy, mask, attr)
  local function zeros(x) return naive.make(x.shape, function() return 0.0 end) end
  local dq, dk, dv = zeros(q), zeros(k), zeros(v)
  local T, H, D, S, G = q.shape[2], q.shape[3], q.shape[4], k.shape[2], k.shape[3]
  each_query(q, k, attr, mask, function(b, t, h, g, scores)
    local query, dot = ((b * T + t) * H + h) * D, 0.0
    for d = 1, D do dot = dot + dy[query + d] * y[query + d] end
    for s, score in ipairs(scores) do
      local p, share = math.exp(score - naive.at(lse, {b, h, t})), kept(attr, b, h, t, s - 1)
      local key, dp = ((b * S + s - 1) * G + g) * D, 0.0
      for d = 1, D do dp = dp + dy[query + d] * v[key + d] end
      local ds = p * (share * dp - dot) * attr.scale
      for d = 1, D do
        dq[query + d] = dq[query + d] + ds * k[key + d]
        dk[key + d] = dk[key + d] + ds * q[query + d]
        dv[key + d] = dv[key + d] + p * share * dy[query + d]
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
    ref = function(x, y, z) return attention(x, y, z, nil, attr) end}
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
      x[8] = attr
      return attention_grad(table.unpack(x, 1, 8))
    end}
end

-- With a mask and dropout.
local key = ml.random.key(3)
local function with_first(mask) return mask:bitor(ml.iota(mask.shape, 4):eq(0)) end
for _, s in ipairs {
  {"mask", {4, 6, 4, 4}, {4, 6, 4, 4}, false, 1},
  {"dropout", {4, 6, 4, 4}, {4, 6, 4, 4}, false, 0.75},
  {"mask, dropout, grouped heads, causal", {2, 3, 8, 4}, {2, 5, 2, 4}, true, 0.5},
} do
  local name, q, k = s[1], s[2], s[3]
  local mask = {q[1], q[3], q[2], k[2], dtype = "bool"}
  local attr = {scale = 1 / math.sqrt(q[4]), causal = s[4], keep = s[5],
    strides = {mask[2] * mask[3] * mask[4], mask[3] * mask[4], mask[4], 1}}
  add {op = "masked_attention", name = "masked_attention, " .. name, inputs = {q, k, k, mask}, tolerance = 16,
    results = {"same", "accumulator"}, rule = "aThD,aShD,aShD,ahTS->aThD,ahT",
    call = function(x, y, z, m) return op.masked_attention(x, y, z, with_first(m), key, attr) end,
    ref = function(x, y, z, m) return attention(x, y, z, m, attr) end}
  add {op = "masked_attention_grad", name = "masked_attention_grad, " .. name, tolerance = 32,
    rule = "aThD,aShD,aShD,aThD,ahT,aThD,ahTS->aThD,aShD,aShD",
    inputs = {q, k, k, q, {q[1], q[3], q[2], low = 1, high = 3, keep = "accumulator"}, q, mask},
    call = function(a, b, c, d, e, f, m)
      return op.masked_attention_grad(a, b, c, d, e, f, with_first(m), key, attr)
    end,
    ref = function(a, b, c, d, e, f, m) return attention_grad(a, b, c, d, e, f, m, attr) end}
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
