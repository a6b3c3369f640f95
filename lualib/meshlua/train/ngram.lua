-- ngram.lua: count tables, the oldest language models: how often each byte followed each context. What a
-- network learns is worth having where it predicts better than the best of them.
local M = {}

local BYTES = 256
local CHUNK = 4096 -- bytes that are unpacked at once
-- How much a table trusts the next shorter context, in counts; each order takes what serves it best.
local STRENGTHS = {1, 2, 4, 8, 16, 32, 64, 128, 256}

--- Calls visit(key, context) for every byte of text[first..last]: the last order + 1 bytes and the last
--- `order` before it as numbers. Bytes without a whole context in the text are left out.
local function each(text, order, first, last, visit)
  local mask, key = (1 << 8 * (order + 1)) - 1, 0
  local start = first - order
  if start < 1 then start, first = 1, order + 1 end
  for at = start, last, CHUNK do
    local bytes = {text:byte(at, math.min(at + CHUNK - 1, last))}
    for i = 1, #bytes do
      key = (key << 8 | bytes[i]) & mask
      if at + i > first then visit(key, key >> 8) end
    end
  end
end

--- Adds what text[first..last] holds to the counts.
local function count(counts, text, order, first, last)
  local joint, context = counts.joint, counts.context
  each(text, order, first, last, function(key, before)
    joint[key] = (joint[key] or 0) + 1
    context[before] = (context[before] or 0) + 1
  end)
end

--- The probability that each byte of text[first..last] has under counts that lean on the probabilities
--- `lower` of the next shorter context: (n(c b) + s lower(b)) / (n(c) + s), Dirichlet smoothing (MacKay and
--- Peto 1995).
local function probabilities(text, order, first, last, counts, lower, strength)
  local p, n = {}, 0
  local joint, context = counts.joint, counts.context
  each(text, order, first, last, function(key, before)
    n = n + 1
    p[n] = ((joint[key] or 0) + strength * lower[n]) / ((context[before] or 0) + strength)
  end)
  return p
end

--- The mean of -log p, in nats.
local function nats(p)
  local sum = 0.0
  for i = 1, #p do sum = sum - math.log(p[i]) end
  return sum / #p
end

local function uniform(n)
  local p = {}
  for i = 1, n do p[i] = 1 / BYTES end
  return p
end

--- The strength that serves text[first..last] best (one minimum is all there is), and the probabilities that
--- it gives.
local function fitted(text, order, first, last, counts, lower)
  local best, best_nats, best_p
  for _, strength in ipairs(STRENGTHS) do
    local p = probabilities(text, order, first, last, counts, lower, strength)
    local x = nats(p)
    if best and x >= best_nats then break end
    best, best_nats, best_p = strength, x, p
  end
  return best, best_p
end

--- What tables of contexts of 1 .. `most` bytes, counted in text[1..known], give text[first..last], in nats
--- a byte. The last tenth of what is known decides the strengths, then it is counted, too.
---@param text string
---@param known integer the bytes to count
---@param first integer 1-based, behind the known
---@param last integer inclusive
---@param most integer the longest context
---@return number[] nats of contexts of 1 .. most bytes
function M.cross_entropies(text, known, first, last, most)
  local held = known - known // 10
  local fit, lower, result = uniform(known - held), uniform(last - first + 1), {}
  for order = 0, most do
    local counts, strength = {joint = {}, context = {}}
    count(counts, text, order, 1, held)
    strength, fit = fitted(text, order, held + 1, known, counts, fit)
    count(counts, text, order, held + 1, known)
    lower = probabilities(text, order, first, last, counts, lower, strength)
    result[order] = nats(lower)
  end
  return table.move(result, 1, most, 1, {})
end

return M
