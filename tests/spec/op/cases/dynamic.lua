-- Rows of the slices whose place is computed.
local ml = require "meshlua"
local naive = require "spec.op.naive"

local rows = {}

local function add(row)
  row.ints, row.bool, row.exact = true, true, true
  rows[#rows + 1] = row
end

local function placed(start, n, size)
  return math.max(0, math.min(start < 0 and start + n or start, n - size))
end

--- A slice of {8, 12}: starts beyond its ends are clamped.
local function slice(name, rule, starts, sizes)
  local first = {placed(starts[1], 8, sizes[1]), placed(starts[2], 12, sizes[2])}
  local function given() return {ml.tensor(starts[1]), starts[2]} end
  add {op = "dynamic_slice", name = "dynamic_slice " .. name, inputs = {{8, 12}}, rule = rule,
    call = function(x) return ml.dynamic_slice(x, given(), sizes) end,
    ref = function(x)
      return naive.make(sizes, function(i) return naive.at(x, {first[1] + i[1], first[2] + i[2]}) end)
    end}
end
slice("of both dims", "ab->..", {2, 20}, {3, 4})
slice("across what devices have", "ab->..", {3, -8}, {4, 7})
slice("of a whole dim", "ab->a.", {9, 1}, {8, 4})
slice("of nothing", "AB->..", {1, 1}, {0, 2})

local function update(name, rule, starts, sizes)
  local first = {placed(starts[1], 8, sizes[1]), placed(starts[2], 12, sizes[2])}
  local function given() return {starts[1], ml.tensor(starts[2])} end
  add {op = "dynamic_update_slice", name = "dynamic_update_slice " .. name, inputs = {{8, 12}, sizes},
    rule = rule,
    call = function(x, u) return ml.dynamic_update_slice(x, u, given()) end,
    ref = function(x, u)
      return naive.make({8, 12}, function(i)
        local a, b = i[1] - first[1], i[2] - first[2]
        local inside = a >= 0 and a < sizes[1] and b >= 0 and b < sizes[2]
        if inside then return naive.at(u, {a, b}) end
        return naive.at(x, i)
      end)
    end}
end
update("of both dims", "ab,CD->ab", {2, 20}, {3, 4})
update("across what devices have", "ab,CD->ab", {3, -8}, {4, 7})
update("of a whole dim", "ab,aD->ab", {9, 1}, {8, 4})
update("of everything", "ab,ab->ab", {3, 3}, {8, 12})
update("with nothing", "ab,CD->ab", {1, 1}, {0, 2})

return rows
