-- Rows of the convolutions.
local ml = require "meshlua"
local naive = require "spec.op.naive"

local rows = {}

--- options: as ml.conv's; `same` what the definition is given instead.
local function add(name, rule, x, w, options, same)
  rows[#rows + 1] = {op = "conv", name = "conv " .. name, rule = rule, inputs = {x, w}, tolerance = 16,
    call = function(a, b) return ml.conv(a, b, options) end,
    ref = function(a, b) return naive.conv(a, b, same or {}) end}
end

add("of one dim", "nWi,Kio->n.o", {4, 6, 2}, {3, 2, 4})
add("of two dims", "nHWi,KLio->n..o", {2, 5, 4, 2}, {3, 2, 2, 4})
add("of three dims", "nDHWi,JKLio->n...o", {2, 3, 3, 4, 2}, {2, 1, 3, 2, 2})
add("by single points", "nhwi,..io->nhwo", {2, 4, 2, 4}, {1, 1, 4, 2})
add("with strides and same pads", "nHWi,KLio->n..o", {2, 5, 6, 1}, {3, 3, 1, 2},
  {strides = {2, 1}, padding = "same"}, {strides = {2, 1}, low = {1, 1}, high = {1, 1}})
add("with pads above and below zero", "nHWi,KLio->n..o", {2, 5, 6, 2}, {3, 2, 2, 2},
  {padding = {{2, -1}, {-2, 3}}, strides = 2}, {low = {2, -2}, high = {-1, 3}, strides = {2, 2}})
add("of a dilated input", "nHWi,KLio->n..o", {2, 3, 3, 2}, {3, 2, 2, 4},
  {input_dilation = {2, 3}, padding = {{1, 1}, {0, 2}}}, {x_dilation = {2, 3}, low = {1, 0}, high = {1, 2}})
add("by a dilated kernel", "nHWi,KLio->n..o", {2, 7, 6, 2}, {3, 2, 2, 2},
  {kernel_dilation = {2, 3}, padding = {{1, 0}, {0, 0}}}, {w_dilation = {2, 3}, low = {1, 0}})
add("in groups", "nHWI,KLIO->n..O", {2, 4, 4, 8}, {3, 3, 2, 8}, {groups = 4, padding = "same"},
  {groups = 4, low = {1, 1}, high = {1, 1}})
add("of each feature alone", "nHWc,KL.c->n..c", {2, 4, 4, 8}, {3, 3, 1, 8}, {groups = 8, padding = "same"},
  {groups = 8, low = {1, 1}, high = {1, 1}})
add("with everything", "nHWI,KLIO->n..O", {2, 4, 5, 4}, {2, 3, 2, 6},
  {groups = 2, strides = {2, 3}, input_dilation = {3, 1}, kernel_dilation = {1, 2},
    padding = {{2, 1}, {3, 2}}},
  {groups = 2, strides = {2, 3}, x_dilation = {3, 1}, w_dilation = {1, 2}, low = {2, 3}, high = {1, 2}})

local grad = {strides = {2, 1}, low = {1, 0}, high = {0, 1}, x_dilation = {1, 2}, w_dilation = {1, 2},
  window = {3, 2}, groups = 2}

--- The gradient of the kernel by its definition: what each of its elements alone would give.
local function kernel_gradient(x, dy)
  local shape = {3, 2, x.shape[4] // 2, dy.shape[4]}
  return naive.make(shape, function(index)
    local w = naive.make(shape, function(i)
      for d = 1, 4 do
        if i[d] ~= index[d] then return 0.0 end
      end
      return 1.0
    end)
    local y, sum = naive.conv(x, w, grad), 0.0
    for i = 1, #y do sum = sum + y[i] * dy[i] end
    return sum
  end)
end
rows[#rows + 1] = {op = "conv_grad_kernel", rule = "nHWI,nPQO->..IO", tolerance = 32,
  inputs = {{4, 5, 3, 4}, {4, 2, 4, 4}},
  call = function(x, dy) return ml.core.op.conv_grad_kernel(x, dy, grad) end,
  ref = kernel_gradient}

-- What the cotangent of a cast asks for.
local plain = {strides = {1}, low = {0}, high = {0}, x_dilation = {1}, w_dilation = {1}, groups = 1,
  wide = true}
rows[#rows + 1] = {op = "conv", name = "conv of 16 bits into 32", rule = "nWi,Kio->n.o",
  inputs = {{4, 6, 2}, {3, 2, 4}}, tolerance = 16, result = "accumulator",
  call = function(x, w) return ml.core.op.conv(x, w, plain) end,
  ref = function(x, w) return naive.conv(x, w, {}) end}

return rows
