-- ngram.lua: count tables, the oldest language models: how often each byte followed each context. What a
-- network learns is worth having where it predicts better than the best of them.
local M = {}

local BYTES = 256
local CHUNK = 4096 -- bytes that are unpacked at once
-- How much a table trusts the next shorter context, in counts; each order takes what serves it best.
local STRENGTHS = {1, 2, 4, 8, 16, 32, 64, 128, 256}

--- For a loop over text[first..last]: lists with, for each byte, the last order + 1 bytes as a number.
local function grams(text, order, first, last)
  local mask, key = (1 << 8 * (order + 1)) - 1, 0
  for i = math.max(1, first - order), first - 1 do key = key << 8 | text:byte(i) end
  return function()
    if first > last then return nil end
    local list = {text:byte(first, math.min(first + CHUNK - 1, last))}
    for i = 1, #list do
      key = (key << 8 | list[i]) & mask
      list[i] = key
    end
    first = first + #list
    return list
  end
end

--- Adds the grams that end in text[first..last] and are whole to the counts.
local function count(counts, text, order, first, last)
  for list in grams(text, order, math.max(first, order + 1), last) do
    for i = 1, #list do
      local key = list[i]
      counts[key] = (counts[key] or 0) + 1
    end
  end
end

--- The counts of all orders up to the longest: a gram came as often as it came behind any byte, and once more
--- where it begins the text.
local function of_orders(longest, text, most)
  local tables = {[most] = longest}
  for order = most - 1, 0, -1 do
    local mask, counts = (1 << 8 * (order + 1)) - 1, {}
    count(counts, text, order, order + 1, order + 1)
    for key, times in next, tables[order + 1] do
      local short = key & mask
      counts[short] = (counts[short] or 0) + times
    end
    tables[order] = counts
  end
  return tables
end

--- For the grams that end in text[first - 1..last], in lists: how often each was counted in text[1..known],
--- and how often a byte followed it there, which is once less for the last one: that is how often it was the
--- context of a longer one.
local function counted(counts, text, order, first, last, known)
  local n, followed, at = {}, {}, 0
  local ending = grams(text, order, known, known)()
  local final = known > order and ending and ending[1]
  for list in grams(text, order, first - 1, last) do
    for i = 1, #list do
      local times = counts[list[i]] or 0
      at = at + 1
      n[at] = times
      followed[at] = list[i] == final and times - 1 or times
    end
  end
  return n, followed
end

--- What is known of text[first..last] at one order: how often each byte came behind its context, and how
--- often the context came; the probabilities `lower` of the next shorter one.
local function part(first, last, known)
  local size, p, before = last - first + 1, {}, {}
  for i = 1, size do p[i], before[i] = 1 / BYTES, known end
  return {first = first, last = last, size = size, lower = p, before = before}
end

--- The probability of each byte of the part under counts that lean on the next shorter context:
--- (n(c b) + s lower(b)) / (n(c) + s), Dirichlet smoothing (MacKay and Peto 1995).
local function probabilities(at, strength)
  local p, n, before, lower = {}, at.n, at.before, at.lower
  for i = 1, at.size do p[i] = (n[i + 1] + strength * lower[i]) / (before[i] + strength) end
  return p
end

--- The mean of -log p, in nats.
local function nats(p)
  local sum, log = 0.0, math.log
  for i = 1, #p do sum = sum - log(p[i]) end
  return sum / #p
end

--- The strength that serves the part best (one minimum is all there is), and the probabilities that it gives.
local function fitted(at)
  local best, best_nats, best_p
  for _, strength in ipairs(STRENGTHS) do
    local p = probabilities(at, strength)
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
  local held, longest, strengths, result = known - known // 10, {}, {}, {}
  count(longest, text, most, 1, held)
  local tables, at = of_orders(longest, text, most), part(held + 1, known, held)
  for order = 0, most do
    local followed
    at.n, followed = counted(tables[order], text, order, at.first, at.last, held)
    strengths[order], at.lower = fitted(at)
    at.before = followed
  end
  count(longest, text, most, held + 1, known)
  tables, at = of_orders(longest, text, most), part(first, last, known)
  for order = 0, most do
    local followed
    at.n, followed = counted(tables[order], text, order, first, last, known)
    at.lower = probabilities(at, strengths[order])
    at.before = followed
    result[order] = nats(at.lower)
  end
  return table.move(result, 1, most, 1, {})
end

return M
