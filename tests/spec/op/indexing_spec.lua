-- indexing_spec.lua: what takes and changes elements by id, and what stands on it, against JAX
-- (tests/oracle/indexing.py): dtype, shape and values of every case, or that it is refused.
local ml = require "meshlua"
local data = require "spec.op.data"
local helper = require "spec.helper"
local oracle = require "spec.oracle"

local vectors = oracle.read "indexing"

--- Where this library departs, and why: the name, a Lua pattern of the case's text, the reason. A departure in which
--- no case stands is an error.
local departures = {
  {"take", "^{@z_float32,@i[abfghp],%-?1,fill", "of a dim of 0 all is `fill`"},
  {"at:get", "^{@z_[^,]*,{@ib},fill", "of a dim of 0 all is `fill`"},
  {"at:get", "^{@e_float32,{false,@ib},fill", "of a dim of 0 all is `fill`"},
  {"take", "^{@e_float32,@i[hp],%-?[13],error", "where nothing is taken no id is looked at"},
  {"take", "^{@e_float32,@i[fghp],1,strict", "where nothing is taken no id is looked at"},
  {"at:add", "^{@[^s]_bool.*,1,fill", "no arithmetic of bools at ids; JAX counts, and makes bools of it"},
  {"at:mul", "^{@[^s]_bool.*,1,fill", "no arithmetic of bools at ids"},
  {"at:add", "^{@e_bool,.*,@u", "no arithmetic of bools, be there none"},
  {"at:mul", "^{@e_bool,.*,@u", "no arithmetic of bools, be there none"},
  {"at:add", "^{@z_bool,{@ik},@u", "no arithmetic of bools, be there none"},
  {"at:mul", "^{@z_bool,{@ik},@u", "no arithmetic of bools, be there none"},
  {"segment_sum", "^{@[ez]_bool", "no arithmetic of bools, be there none"},
  {"segment_prod", "^{@[ez]_bool", "no arithmetic of bools, be there none"},
  {"put_along_axis", "_bool,@jn,1,%-1,add", "no arithmetic of bools at ids"},
  {"put_along_axis", "_bool,@jn,1,%-1,mul", "no arithmetic of bools at ids"},
  {"nonzero", "^{@[ez]_.*,4,%-1", "`fill` stands also where x has no elements"},
  {"unique", "^{@[ez]_[^,]*,%d+,1,{counts", "counts have the size also where x has no elements"},
  {"unique", "^{@[ez]_[^,]*,%d+,1,{index", "so have places"},
  {"compress", "_float32,@k[0-3],4,", "what a size has above the dim's is `fill`"},
  {"compress", "_float32,@k0,1,", "what a size has above the dim's is `fill`"},
  {"sort", "^{@x_.*,true", "NaN stands last also where it falls"},
  {"argsort", "^{@x_.*,true", "NaN stands last also where it falls"},
}

--- Calls as JAX writes them that are methods of x:at(ids) here.
local calls = {}
for _, name in ipairs {"get", "set", "add", "mul", "max", "min"} do
  calls["at:" .. name] = function(x, ids, ...)
    local at = x:at(table.unpack(ids))
    return at[name](at, ...)
  end
end
function calls.unique(x, size, fill, options)
  if fill == false then fill = nil end
  return ml.unique(x, size, fill, options)
end

local words = {nan = 0.0 / 0.0, inf = math.huge, ["-inf"] = -math.huge}
local made = {}

local function input(name)
  if not made[name] then
    local dtype, shape, list = table.unpack((assert(vectors.inputs[name], name)))
    for i, v in ipairs(list) do list[i] = words[v] or v end
    list.shape, list.dtype = shape, dtype
    made[name] = data.tensor(list)
  end
  return made[name]
end

--- An argument, inputs in place of their names.
local function value(a)
  if type(a) == "string" and a:sub(1, 1) == "@" then return input(a:sub(2)) end
  if type(a) ~= "table" then return a end
  local out = {}
  for k, v in pairs(a) do out[k] = value(v) end
  return out
end

local function text_of(v)
  if type(v) ~= "table" then return tostring(v) end
  local list, named = {}, {}
  for i, x in ipairs(v) do list[i] = text_of(x) end
  for k, x in pairs(v) do
    if type(k) == "string" then named[#named + 1] = k .. "=" .. text_of(x) end
  end
  table.sort(named)
  return "{" .. table.concat(list, ",") .. table.concat(named, ",") .. "}"
end

--- Sums and products are rounded otherwise than in JAX, where they are of 16 bits at each step.
local function differs(want, got, dtype, scale)
  if want == got or want ~= want and got ~= got then return false end
  local eps = data.epsilon[dtype]
  if not eps or math.abs(want) == math.huge then return true end
  return not (math.abs(want - got) <= 4 * eps * math.max(math.abs(want), scale / 4))
end

local function compare(expected, y)
  local dtype, shape, list = table.unpack(expected)
  if y.dtype ~= dtype then return ("it is %s, and %s in JAX"):format(y.dtype, dtype) end
  local got, want = table.concat(y.shape, ","), table.concat(shape, ",")
  if got ~= want then return ("its shape is [%s], and [%s] in JAX"):format(got, want) end
  local flat, scale = data.flat(y), 0
  for _, v in ipairs(list) do
    if type(v) == "number" then scale = math.max(scale, math.abs(v)) end
  end
  for i, v in ipairs(list) do
    if differs(words[v] or v, flat[i], dtype, scale) then
      return ("element %d is %s, and %s in JAX"):format(i, flat[i], v)
    end
  end
end

--- What is wrong with a case; nil if nothing is.
local function fault(name, args, expected)
  local list = value(args)
  local out = table.pack(pcall(function()
    local results = table.pack((calls[name] or ml[name])(table.unpack(list, 1, #args)))
    for i = 1, results.n do data.flat(results[i]) end -- ids outside are found when values are read
    return table.unpack(results, 1, results.n)
  end))
  if expected == "error" then return out[1] and "JAX refuses it" or nil end
  if not out[1] then return tostring(out[2]):match "[^\n]*" end
  if out.n - 1 ~= #expected then return ("%d results, and %d in JAX"):format(out.n - 1, #expected) end
  for i, e in ipairs(expected) do
    local wrong = compare(e, out[i + 1])
    if wrong then return ("result %d: %s"):format(i, wrong) end
  end
end

local names, of = {}, {}
for _, c in ipairs(vectors.cases) do
  if not of[c[1]] then names[#names + 1], of[c[1]] = c[1], {} end
  table.insert(of[c[1]], c)
end

describe("as JAX has it:", function()
  for _, name in ipairs(names) do
    local of_ids = name:match "^at:" or name:match "^take" or name:match "^put"
    local case = of_ids and it or helper.figures
    case(("%s, %d cases"):format(name, #of[name]), function()
      local faults = {}
      for _, c in ipairs(of[name]) do
        local text, reason = text_of(c[2]), nil
        for _, d in ipairs(departures) do
          if d[1] == name and text:find(d[2]) then d.used, reason = true, d[3] end
        end
        local wrong = fault(name, c[2], c[3])
        if reason then wrong = not wrong and "it does not depart: " .. reason end
        if wrong then faults[#faults + 1] = name .. text .. ": " .. wrong end
      end
      if #faults > 0 then
        local some = table.concat(faults, "\n  ", 1, math.min(#faults, 20))
        error(("%d of %d:\n  %s"):format(#faults, #of[name], some), 0)
      end
    end)
  end

  helper.figures("every departure is of a case", function()
    for _, d in ipairs(departures) do assert(d.used, d[1] .. " " .. d[2]) end
  end)
end)
