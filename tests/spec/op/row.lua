-- row.lua: what is computed along one line of numbers, a plain list.
local M = {}

--- Row r of a flat list whose last dim is n.
function M.of(x, r, n) return table.move(x, (r - 1) * n + 1, r * n, 1, {}) end

--- The sum of f(element, position).
function M.sum(row, f)
  local total = 0.0
  for i, v in ipairs(row) do total = total + f(v, i) end
  return total
end

function M.map(row, f)
  local out = {}
  for i, v in ipairs(row) do out[i] = f(v, i) end
  return out
end

function M.log_sum_exp(row)
  local m = math.max(table.unpack(row))
  return m + math.log(M.sum(row, function(v) return math.exp(v - m) end))
end

function M.softmax(row)
  local lse = M.log_sum_exp(row)
  return M.map(row, function(v) return math.exp(v - lse) end)
end

function M.log_softmax(row)
  local lse = M.log_sum_exp(row)
  return M.map(row, function(v) return v - lse end)
end

--- Mean (0 unless centred) and 1 / sqrt(mean of squares around it + eps).
function M.statistics(row, centred, eps)
  local mean = centred and M.sum(row, function(v) return v end) / #row or 0.0
  local var = M.sum(row, function(v) return (v - mean) ^ 2 end) / #row
  return mean, 1 / math.sqrt(var + eps)
end

return M
