-- Rows of softmax and cross-entropy, and of the ops that their gradients call.
local ml = require "meshlua"
local naive = require "spec.op.naive"
local row = require "spec.op.row"
local op = ml.core.op

local rows = {}

local function add(r) rows[#rows + 1] = r end

for _, s in ipairs {{{8, 4, 6}, "abC->abC"}, {{8, 16}, "aB->aB"}, {{8}, "A->A"}, {{4, 1}, "aB->aB"}} do
  local name = " of [" .. table.concat(s[1], ",") .. "]"
  local function shape() return table.move(s[1], 1, #s[1], 1, {low = -3, high = 3}) end
  add {op = "softmax", name = "softmax" .. name, rule = s[2], inputs = {shape()}, call = op.softmax,
    ref = function(x) return naive.rows(x, row.softmax) end}
  add {op = "log_softmax", name = "log_softmax" .. name, rule = s[2], inputs = {shape()},
    call = op.log_softmax,
    ref = function(x) return naive.rows(x, row.log_softmax) end}
end
add {op = "softmax", name = "softmax along the first axis", rule = "Ab->Ab", inputs = {{8, 4}}, float = true,
  call = function(x) return x:softmax(1) end,
  ref = function(x)
    return naive.transpose(naive.rows(naive.transpose(x, {2, 1}), row.softmax), {2, 1})
  end}
add {op = "softmax_grad", rule = "aB,aB->aB", inputs = {{8, 6}, {8, 6}}, tolerance = 8,
  call = op.softmax_grad,
  ref = function(y, dy)
    local out = {shape = y.shape}
    for r = 1, 8 do
      local a, b = row.of(y, r, 6), row.of(dy, r, 6)
      local dot = row.sum(a, function(v, i) return v * b[i] end)
      for i = 1, 6 do out[#out + 1] = a[i] * (b[i] - dot) end
    end
    return out
  end}

local labels = {8, dtype = "int32", low = 0, high = 9}
add {op = "softmax_cross_entropy", inputs = {{8, 10, low = -3, high = 3}, labels}, rule = "aB,a->a,a",
  call = op.softmax_cross_entropy, result = "accumulator", tolerance = 8,
  ref = function(x, l)
    local loss, lse = {shape = {8}}, {shape = {8}}
    for r = 1, 8 do
      local logits = row.of(x, r, 10)
      lse[r] = row.log_sum_exp(logits)
      loss[r] = lse[r] - logits[l[r] + 1]
    end
    return loss, lse
  end}
add {op = "softmax_cross_entropy", name = "softmax_cross_entropy of [4,2,12]", rule = "abC,ab->ab",
  inputs = {{4, 2, 12}, {4, 2, dtype = "int32", low = 0, high = 11}}, result = "accumulator", tolerance = 8,
  call = function(x, l) return (op.softmax_cross_entropy(x, l)) end,
  ref = function(x, l)
    local loss = {shape = {4, 2}}
    for r = 1, 8 do
      local logits = row.of(x, r, 12)
      loss[r] = row.log_sum_exp(logits) - logits[l[r] + 1]
    end
    return loss
  end}
add {op = "softmax_cross_entropy_grad", rule = "aB,a,a,a->aB",
  inputs = {{8, 10}, labels, {8, low = 2, high = 3, keep = "accumulator"}, {8, keep = "accumulator"}},
  call = op.softmax_cross_entropy_grad, tolerance = 8,
  ref = function(x, l, lse, dloss)
    return naive.make({8, 10}, function(i)
      local p = math.exp(naive.at(x, i) - lse[i[1] + 1])
      return (p - (l[i[1] + 1] == i[2] and 1 or 0)) * dloss[i[1] + 1]
    end)
  end}

return rows
