-- Rows of the ops that move elements.
local ml = require "meshlua"
local naive = require "spec.op.naive"

local rows = {}

local function movement(op, name, rule, inputs, call, ref, more)
  local row = {op = op, name = name, rule = rule, inputs = inputs, call = call, ref = ref, exact = true,
    ints = true, bool = true}
  for k, v in pairs(more or {}) do row[k] = v end
  rows[#rows + 1] = row
end

-- ---- reshape: merged, split, both, through a dim that does not fit ------------------------------
for _, s in ipairs {
  {{8, 4, 2}, {64}, "aBC->a"}, {{64}, {8, 8}, "a->aB"}, {{8, 8}, {4, 16}, "aB->aC"},
  {{4, 6}, {6, 4}, "AB->CD"},
  {{8, 2, 4}, {8, 8}, "abC->ab"}, {{16}, {1, 16, 1}, "a->.a."}, {{1, 8, 1}, {8}, ".a.->a"},
  {{8, 6}, {2, 4, 3, 2}, "ab->aCbD"}, {{1, 1}, {}, "..->"}, {{0, 4}, {2, 0}, "AB->CD"},
} do
  local name = ("reshape [%s] to [%s]"):format(table.concat(s[1], ","), table.concat(s[2], ","))
  movement("reshape", name, s[3], {s[1]}, function(x) return x:reshape(s[2]) end,
    function(x) return naive.reshape(x, s[2]) end)
end
movement("reshape", "reshape, one dim to be found", "aB->aC", {{8, 4}},
  function(x) return x:reshape(2, -1) end, function(x) return naive.reshape(x, {2, 16}) end)
movement("reshape", "expand_dims and squeeze", "ab->.ab", {{8, 4}},
  function(x) return x:expand_dims(-2):squeeze(-2):expand_dims(1) end,
  function(x) return naive.reshape(x, {1, 8, 4}) end)
movement("reshape", "reshape of a transpose, which is no view", "Ab->b", {{8, 4}},
  function(x) return x:T():reshape(32) end,
  function(x) return naive.reshape(naive.transpose(x, {2, 1}), {32}) end)

-- ---- transpose ----------------------------------------------------------------------------------
for _, perm in ipairs {{2, 1, 3}, {3, 2, 1}, {2, 3, 1}, {3, 1, 2}, {1, 3, 2}, {1, 2, 3}} do
  local letters = ""
  for _, p in ipairs(perm) do letters = letters .. ("abc"):sub(p, p) end
  movement("transpose", "transpose " .. table.concat(perm, ","), "abc->" .. letters, {{8, 4, 2}},
    function(x) return x:transpose(perm) end, function(x) return naive.transpose(x, perm) end)
end
movement("transpose", "T and swapaxes", "abc->bca", {{8, 4, 2}},
  function(x) return x:T():swapaxes(1, -1) end,
  function(x) return naive.transpose(naive.transpose(x, {1, 3, 2}), {3, 2, 1}) end)

-- ---- broadcast ----------------------------------------------------------------------------------
for _, s in ipairs {
  {{4}, {8, 4}, "a->.a"}, {{8, 1}, {8, 4}, "a.->a."}, {{}, {8, 4}, "->.."}, {{1, 4}, {2, 8, 4}, ".a->..a"},
  {{8, 1, 2}, {8, 4, 2}, "a.b->a.b"},
} do
  local at = {}
  for d = 1, #s[1] do at[d] = #s[2] - #s[1] + d end
  local name = ("broadcast [%s] to [%s]"):format(table.concat(s[1], ","), table.concat(s[2], ","))
  movement("broadcast", name, s[3], {s[1]}, function(x) return x:broadcast(s[2]) end,
    function(x) return naive.broadcast(x, s[2], at) end)
end
movement("broadcast", "broadcast in the middle", "ab->a.b", {{8, 4}},
  function(x) return ml.core.op.broadcast(x, {dims = {8, 2, 4}, at = {1, 3}}) end,
  function(x) return naive.broadcast(x, {8, 2, 4}, {1, 3}) end)

-- ---- slice, flip ----------------------------------------------------------------------------------
movement("slice", "slice of a range", "AB->CD", {{8, 12}},
  function(x) return x:slice({2, 5}, {-3, -1}) end,
  function(x) return naive.slice(x, {1, 9}, {5, 12}, {1, 1}) end)
movement("slice", "slice with steps", "AB->CD", {{8, 12}},
  function(x) return x:slice({1, -1, 3}, {2, nil, 5}) end,
  function(x) return naive.slice(x, {0, 1}, {8, 12}, {3, 5}) end)
movement("slice", "slice of one dim, the other whole", "aB->aC", {{8, 12}},
  function(x) return x:slice(false, {4, 7}) end,
  function(x) return naive.slice(x, {0, 3}, {8, 7}, {1, 1}) end)
movement("slice", "one position", "Ab->b", {{8, 12}},
  function(x) return x:at(-2) end,
  function(x) return naive.reshape(naive.slice(x, {6, 0}, {7, 12}, {1, 1}), {12}) end)
movement("slice", "split in three", "aB->aC,aC,aC", {{8, 12}},
  function(x) return table.unpack(x:split(3, 2)) end,
  function(x)
    return naive.slice(x, {0, 0}, {8, 4}, {1, 1}), naive.slice(x, {0, 4}, {8, 8}, {1, 1}),
      naive.slice(x, {0, 8}, {8, 12}, {1, 1})
  end)
movement("slice", "an empty range", "aB->aC", {{8, 12}},
  function(x) return x:slice(false, {5, 4}) end,
  function(x) return naive.slice(x, {0, 4}, {8, 4}, {1, 1}) end)
for _, s in ipairs {{{1}, "Abc"}, {{2}, "aBc"}, {{1, 3}, "AbC"}, {{1, 2, 3}, "ABC"}} do
  movement("flip", "flip " .. table.concat(s[1], ","), s[2] .. "->" .. s[2], {{8, 4, 2}},
    function(x) return x:flip(s[1]) end, function(x) return naive.flip(x, s[1]) end)
end
movement("flip", "flip, then slice", "Ab->Cb", {{8, 4}},
  function(x) return x:flip(1):slice {2, 4} end,
  function(x) return naive.slice(naive.flip(x, {1}), {1, 0}, {4, 4}, {1, 1}) end)

-- ---- pad, concat ----------------------------------------------------------------------------------
local numbers = {bool = false}
movement("pad", "pad around", "AB->CD", {{8, 4}},
  function(x) return x:pad {{1, 2}, {0, 3}} end,
  function(x) return naive.pad(x, 0, {1, 0}, {2, 3}, {0, 0}) end, numbers)
movement("pad", "pad with a value, between, and cut", "AB->CD", {{8, 4}},
  function(x) return x:pad({{2, -1}, {0, 1, 1}}, 3) end,
  function(x) return naive.pad(x, 3, {2, 0}, {-1, 1}, {0, 1}) end, numbers)
movement("pad", "pad of one dim, the other whole", "aB->aC", {{8, 4}},
  function(x) return x:pad {false, {1, 1}} end,
  function(x) return naive.pad(x, 0, {0, 1}, {0, 1}, {0, 0}) end, numbers)
for _, by in ipairs {1, -2} do -- the size stays, the elements do not
  movement("pad", "pad that shifts by " .. by, "Ab->Ab", {{8, 4}},
    function(x) return x:pad({{by, -by}, false}, 1) end,
    function(x) return naive.pad(x, 1, {by, 0}, {-by, 0}, {0, 0}) end, numbers)
end
movement("pad", "the value of a pad", "AB,->CD", {{8, 4}, {}},
  function(x, value)
    return ml.core.op.pad(x, value, {low = {0, 1}, high = {1, 0}, interior = {0, 0}})
  end,
  function(x, value) return naive.pad(x, value[1], {0, 1}, {1, 0}, {0, 0}) end)
for axis, rule in ipairs {"Ab,Ab,Ab->Cb", "aB,aB,aB->aC"} do
  movement("concat", "concat along " .. axis, rule, {{8, 4}, {8, 4}, {8, 4}},
    function(...) return ml.concat({...}, axis) end,
    function(...) return naive.concat(axis, ...) end)
end
movement("concat", "concat of different lengths", "Ab,Cb,Db->Eb", {{2, 8}, {6, 8}, {1, 8}},
  function(...) return ml.concat {...} end, function(...) return naive.concat(1, ...) end)
movement("concat", "concat of one tensor with itself", "aB->aC", {{8, 4}},
  function(x) return ml.concat({x, x}, -1) end, function(x) return naive.concat(2, x, x) end)
movement("concat", "stack", "ab,ab->a.b", {{8, 4}, {8, 4}},
  function(...) return ml.stack({...}, 2) end,
  function(x, y)
    return naive.concat(2, naive.reshape(x, {8, 1, 4}), naive.reshape(y, {8, 1, 4}))
  end)

return rows
