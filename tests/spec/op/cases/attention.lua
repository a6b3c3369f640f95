-- Rows of attention, of its gradient, and of rope.
local ml = require "meshlua"
local naive = require "spec.op.naive"
local row = require "spec.op.row"
local scalar = require "spec.op.scalar"
local op = ml.core.op

local rows = {}

local function add(r) rows[#rows + 1] = r end

-- Does query t of row b see key s? `x` has the operands of the options by name.
local function sees(x, attr, T, S, b, h, t, s)
  local place = t + (x.offset and x.offset[b + 1] or attr.ahead and attr.ahead[1] or S - T)
  local left, right = table.unpack(attr.window or {-1, -1})
  return not (attr.causal and s > place or left >= 0 and s < place - left or right >= 0 and s > place + right
    or x.lengths and s >= x.lengths[b + 1] or x.query_lengths and t >= x.query_lengths[b + 1]
    or x.query_segments and naive.at(x.query_segments, {b, t}) ~= naive.at(x.segments, {b, s})
    or x.mask and not naive.at(x.mask, {b, h, t, s}))
end

-- Calls fn(batch, query, head, key head, scores, tanhs) for every query, -inf where it does not see the key. q is
-- [B,T,H,D], k [B,S,G,D].
local function each_query(q, k, attr, x, fn)
  local T, H, D, S, G = q.shape[2], q.shape[3], q.shape[4], k.shape[2], k.shape[3]
  local cap = attr.soft_cap
  for b = 0, q.shape[1] - 1 do
    for t = 0, T - 1 do
      for h = 0, H - 1 do
        local g, scores, tanhs = h // (H // G), {}, {}
        for s = 0, S - 1 do
          local dot = 0.0
          for d = 0, D - 1 do dot = dot + naive.at(q, {b, t, h, d}) * naive.at(k, {b, s, g, d}) end
          dot = dot * attr.scale
          if cap then
            local e = math.exp(2 * dot / cap)
            tanhs[s + 1] = (e - 1) / (e + 1)
            dot = cap * tanhs[s + 1]
          end
          if x.bias then dot = dot + naive.at(x.bias, {b, h, t, s}) end
          scores[s + 1] = sees(x, attr, T, S, b, h, t, s) and dot or -math.huge
        end
        fn(b, t, h, g, scores, tanhs)
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

local function attention(q, k, v, x, attr)
  local y = naive.make(q.shape, function() return 0 end)
  local lse = naive.make({q.shape[1], q.shape[3], q.shape[2]}, function() return 0 end)
  local T, H, D = q.shape[2], q.shape[3], q.shape[4]
  each_query(q, k, attr, x, function(b, t, h, g, scores)
    if math.max(table.unpack(scores)) == -math.huge then return end -- zeros, and lse -inf: see `finite`
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
local function attention_grad(q, k, v, y, lse, dy, x, attr)
  local function zeros(of) return naive.make(of.shape, function() return 0.0 end) end
  local dq, dk, dv, dbias = zeros(q), zeros(k), zeros(v), attr.bias_grad and zeros(x.bias)
  local T, H, D, S, G = q.shape[2], q.shape[3], q.shape[4], k.shape[2], k.shape[3]
  each_query(q, k, attr, x, function(b, t, h, g, scores, tanhs)
    local query, dot = ((b * T + t) * H + h) * D, 0.0
    for d = 1, D do dot = dot + dy[query + d] * y[query + d] end
    for s, score in ipairs(scores) do
      local p = score == -math.huge and 0 or math.exp(score - naive.at(lse, {b, h, t}))
      local share = kept(attr, b, h, t, s - 1)
      local key, dp = ((b * S + s - 1) * G + g) * D, 0.0
      for d = 1, D do dp = dp + dy[query + d] * v[key + d] end
      local ds = p * (share * dp - dot)
      if dbias then dbias[((b * H + h) * T + t) * S + s] = ds end
      ds = ds * attr.scale * (1 - (tanhs[s] or 0) ^ 2)
      for d = 1, D do
        dq[query + d] = dq[query + d] + ds * k[key + d]
        dk[key + d] = dk[key + d] + ds * q[query + d]
        dv[key + d] = dv[key + d] + p * share * dy[query + d]
      end
    end
  end)
  return dq, dk, dv, dbias or nil
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
  local queries, keys = "athD", "aShD"
  add {op = "attention", name = name, inputs = {q, k, k}, tolerance = 16, results = {"same", "accumulator"},
    rule = ("Q,K,K->Q,aht"):gsub("[QK]", {Q = queries, K = keys}),
    call = function(...)
      local x = {...}
      x[4] = attr
      return op.attention(table.unpack(x))
    end,
    ref = function(x, y, z) return attention(x, y, z, {}, attr) end}
  -- y and lse need not be attention's results: the formula holds for any.
  add {op = "attention_grad", name = name:gsub("attention", "attention_grad"), tolerance = 32,
    rule = ("Q,K,K,Q,aht,Q->Q,K,K"):gsub("[QK]", {Q = queries, K = keys}),
    inputs = {q, k, k, q, {q[1], q[3], q[2], low = 1, high = 3, keep = "accumulator"}, q},
    call = function(...)
      local x = {...}
      x[7] = attr
      return op.attention_grad(table.unpack(x))
    end,
    ref = function(...)
      local x = {...}
      x[7], x[8] = {}, attr
      return attention_grad(table.unpack(x))
    end}
end

-- With options: of q's dims and k's, how each is drawn, and its letters. Queries may look nowhere.
local key = ml.random.key(3)
local letters = {mask = "ahtS", bias = "ahtS", lengths = "a", query_lengths = "a", offset = "a",
  query_segments = "at", segments = "aS"}
local order = {"mask", "dropout", "bias", "lengths", "query_lengths", "offset", "query_segments", "segments"}
local function drawn(name, q, k)
  local scores, int = {q[1], q[3], q[2], k[2]}, {dtype = "int32", low = 0}
  if name == "mask" then return {scores[1], scores[2], scores[3], scores[4], dtype = "bool"} end
  if name == "bias" then return scores end
  if name == "query_segments" then return {q[1], q[2], dtype = int.dtype, low = 0, high = 1} end
  if name == "segments" then return {q[1], k[2], dtype = int.dtype, low = 0, high = 1} end
  return {q[1], dtype = int.dtype, low = name == "offset" and -1 or 0, high = k[2] + 1}
end

for _, s in ipairs {
  {"mask", {4, 6, 4, 4}, {4, 6, 4, 4}, {mask = true}},
  {"dropout", {4, 6, 4, 4}, {4, 6, 4, 4}, {dropout = true, keep = 0.75}},
  {"mask, dropout, grouped heads, causal", {2, 3, 8, 4}, {2, 5, 2, 4},
    {mask = true, dropout = true, causal = true, keep = 0.5}},
  {"bias, soft cap", {4, 6, 4, 4}, {4, 6, 4, 4}, {bias = true, soft_cap = 1.5}},
  {"lengths, window", {2, 3, 8, 4}, {2, 5, 2, 4},
    {lengths = true, query_lengths = true, window = {1, 2}}},
  {"offset, causal, left window", {4, 3, 4, 4}, {4, 6, 4, 4},
    {offset = true, causal = true, window = {2, -1}}},
  {"segments, causal from the first key", {2, 5, 4, 4}, {2, 3, 4, 4},
    {query_segments = true, segments = true, causal = true, ahead = {0}}},
  {"all", {2, 3, 8, 4}, {2, 5, 2, 4},
    {mask = true, dropout = true, keep = 0.75, bias = true, lengths = true, query_lengths = true,
      offset = true, query_segments = true, segments = true, window = {3, 1}, soft_cap = 2.0}},
} do
  local name, q, k, attr = s[1], s[2], s[3], s[4]
  local scores = {q[1], q[3], q[2], k[2]}
  attr.scale = 1 / math.sqrt(q[4])
  if attr.dropout then
    attr.strides = {scores[2] * scores[3] * scores[4], scores[3] * scores[4], scores[4], 1}
  end
  local inputs, rule, names = {}, {}, {}
  for _, option in ipairs(order) do
    if attr[option] and option ~= "dropout" then
      inputs[#inputs + 1], rule[#rule + 1] = drawn(option, q, k), "," .. letters[option]
      names[#names + 1] = option
    end
  end
  -- Differences of -inf say nothing: 0 in its place.
  local function finite(...)
    local y, lse = op.attention(...)
    return y, ml.where(lse:gt(-1e30), lse, 0.0)
  end
  -- The operands behind the first n, the key among them, and the attributes.
  local function called(fn, n, with)
    return function(...)
      local list, at = {...}, n
      for _, option in ipairs(order) do
        if attr[option] then
          at = at + 1
          if option == "dropout" then table.insert(list, at, key) end
        end
      end
      list[#list + 1] = with
      return fn(table.unpack(list))
    end
  end
  local function defined(fn, n, with)
    return function(...)
      local list, x = {...}, {}
      for i, option in ipairs(names) do x[option] = list[n + i] end
      list[n + 1], list[n + 2] = x, with
      return fn(table.unpack(list, 1, n + 2))
    end
  end
  rule = table.concat(rule)
  add {op = "attention", name = "attention, " .. name, tolerance = 16, results = {"same", "accumulator"},
    inputs = table.move(inputs, 1, #inputs, 4, {q, k, k}), rule = "athD,aShD,aShD" .. rule .. "->athD,aht",
    call = called(finite, 3, attr), ref = defined(attention, 3, attr)}
  local grad = {bias_grad = attr.bias}
  for field, value in pairs(attr) do grad[field] = value end
  add {op = "attention_grad", name = "attention_grad, " .. name, tolerance = 32,
    rule = "athD,aShD,aShD,athD,aht,athD" .. rule .. "->athD,aShD,aShD" .. (attr.bias and ",ahtS" or ""),
    inputs = table.move(inputs, 1, #inputs, 7,
      {q, k, k, q, {q[1], q[3], q[2], low = 1, high = 3, keep = "accumulator"}, q}),
    call = called(op.attention_grad, 6, grad), ref = defined(attention_grad, 6, grad)}
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
