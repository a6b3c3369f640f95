-- Rows of the ops over windows.
local ml = require "meshlua"
local naive = require "spec.op.naive"

local rows = {}
local op = ml.core.op

local function add(row) rows[#rows + 1] = row end

-- w: window, strides, low, high, shape of the result; rule: of x and the result
local windows = {
  {name = "of one dim", x = {4, 9}, rule = "aB->a.", w = {window = {1, 3}, strides = {1, 2}, low = {0, 0},
    high = {0, 0}, shape = {4, 4}}},
  {name = "of images", x = {2, 4, 6, 2}, rule = "nhwc->nhwc", w = {window = {1, 2, 2, 1},
    strides = {1, 2, 2, 1}, low = {0, 0, 0, 0}, high = {0, 0, 0, 0}, shape = {2, 2, 3, 2}}},
  {name = "that overlap, with pads", x = {2, 5, 4, 2}, rule = "nHWc->n..c", w = {window = {1, 3, 3, 1},
    strides = {1, 2, 1, 1}, low = {0, 1, 2, 0}, high = {0, 1, 1, 0}, shape = {2, 3, 5, 2}}},
  {name = "with gaps between", x = {8, 7}, rule = "aB->a.", w = {window = {1, 2}, strides = {1, 3},
    low = {0, 0}, high = {0, 2}, shape = {8, 3}}},
}

local function pairs_of(w)
  local list = {}
  for d = 1, #w.window do list[d] = {w.low[d], w.high[d]} end
  return list
end

for _, s in ipairs(windows) do
  local w, left, right = s.w, s.rule:match "(.*)%->(.*)"
  local x = table.move(s.x, 1, #s.x, 1, {distinct = true})
  local function reduce(kind, none, combine, exact)
    add {op = "reduce_window_" .. kind, name = ("reduce_window %s %s"):format(kind, s.name), rule = s.rule,
      inputs = {x}, ints = true, exact = exact, tolerance = 16,
      call = function(t)
        return ml.reduce_window(t, kind, w.window, {strides = w.strides, padding = pairs_of(w)})
      end,
      ref = function(t)
        local y = naive.reduce_window(t, w, none, combine)
        return t.dtype:match "int" and naive.wrapped(t.dtype, y) or y
      end}
  end
  reduce("max", -math.huge, math.max, true)
  reduce("sum", 0, function(a, v) return a + v end)
  local attr = {window = w.window, strides = w.strides, low = w.low, high = w.high}
  -- The largest is found in fixed numbers: differences must not move it.
  local function fixed(like)
    return ml.tensor({table.unpack(naive.ramp_list(s.x))}, "float64"):reshape(s.x):astype(like.dtype)
  end
  add {op = "select_and_scatter_add", name = "select_and_scatter_add " .. s.name, tolerance = 8,
    rule = right .. "->" .. left:gsub("%u", "."), inputs = {w.shape},
    call = function(dy) return op.select_and_scatter_add(fixed(dy), dy, attr) end,
    ref = function(dy)
      local from = naive.ramp_list(s.x)
      local dx, places = naive.make(s.x, function() return 0.0 end), naive.largest_places(from, w)
      for i, p in ipairs(places) do
        if p > 0 then dx[p] = dx[p] + dy[i] end
      end
      return dx
    end}
  add {op = "select_and_gather_add", name = "select_and_gather_add " .. s.name, exact = true, rule = s.rule,
    inputs = {s.x},
    call = function(t) return op.select_and_gather_add(fixed(t), t, attr) end,
    ref = function(t)
      return naive.map(function(p) return p > 0 and t[p] or 0.0 end,
        naive.largest_places(naive.ramp_list(s.x), w))
    end}
end

return rows
