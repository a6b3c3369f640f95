-- devices: 4
-- attribute_spec.lua: ops called directly, with operands and attributes that are drawn: each call works, or raises
-- an error of the op; eager, in a trace, under a gradient, and on a mesh.
local helper = require "spec.helper"
local ml = require "meshlua"

local core = ml.core
local CALLS = ATTRIBUTE_CALLS or helper.watched and 3000 or 6000 -- luacheck: ignore

local state = 12345
local function pick(n)
  state = (state * 1103515245 + 12345) % 2147483648
  return state // 65536 % n + 1
end
local function one_of(list) return list[pick(#list)] end

local dtypes = {"bool", "uint8", "uint32", "int32", "int64", "bfloat16", "float16", "float32", "float64"}
-- Of the huge ones, none is few enough that some machine has the memory.
local small, huge = {-1, 0, 1, 2, 3}, {-2, 4, 5, 7, 8, 100, 1 << 47, 1 << 55, 1 << 57, math.maxinteger,
  math.mininteger}
local function whole() return pick(5) > 1 and one_of(small) or one_of(huge) end

-- Ways to draw an attribute. What an attribute's own kind is, the op's errors say: see learn.
local ways = {
  list = function()
    local list = {}
    for i = 1, pick(5) - 1 do list[i] = whole() end
    return list
  end,
  int = whole,
  float = function() return one_of {0.0, 1.0, -1.5, 0.5, 1e300, 0 / 0, 1 / 0} end,
  bool = function() return pick(2) == 1 end,
  dtype = function() return one_of(dtypes) end,
  number = function() return one_of {0, 1, -1, 2.5, 300, 1e300, 0 / 0, true, false, math.maxinteger} end,
}
local way_names = {"bool", "dtype", "float", "int", "list", "number"}
local kinds = {value = "number", layout = "bool", descending = "bool", causal = "bool"}

--- Notes that an attribute is of another kind than was drawn.
local function learn(message, attributes, drawn)
  for _, name in ipairs(attributes) do
    if message:find("] " .. name .. ": expected", 1, true) and not kinds[name] then
      drawn[name] = drawn[name] or {}
      drawn[name].refused = drawn[name].refused or {}
      drawn[name].refused[drawn[name].way] = true
    end
  end
end

local pool = {}
for _, shape in ipairs {{}, {0}, {1}, {2}, {3}, {2, 3}, {3, 2}, {0, 3}, {2, 0}, {2, 3, 4}, {1, 3, 1},
  {2, 2, 2, 2}, {4, 4},
  {1, 1, 1, 1, 1, 1, 1, 1}, {2, 4, 2, 4}} do
  local n = 1
  for _, size in ipairs(shape) do n = n * size end
  for _, dtype in ipairs(dtypes) do
    local x = ml.reshape(ml.astype(ml.arange(n), dtype), shape)
    local weight = ({float32 = 7, int32 = 4, uint32 = 4})[dtype] or 1
    for _ = 1, weight do pool[#pool + 1] = x end
  end
end
local mesh = ml.make_mesh({2, 2}, {"x", "y"})
for _, dtype in ipairs {"float32", "int32"} do
  for _, spec in ipairs {ml.P("x"), ml.P(nil, "y"), ml.P("x", "y"), ml.P({"x", "y"})} do
    local x = ml.reshape(ml.astype(ml.arange(16), dtype), {4, 4})
    for _ = 1, 3 do pool[#pool + 1] = ml.device_put(x, ml.NamedSharding(mesh, spec)) end
  end
end

--- Lists that an op may well want, for the first operand's shape.
local function plausible(x, name)
  local list = {}
  if name == "axes" then return {pick(math.max(1, x.ndim))} end
  for d = 1, x.ndim do
    list[d] = name == "perm" and x.ndim + 1 - d or name == "at" and d or name == "start" and 0
      or (name == "limit" or name == "dims") and x.shape[d] or name == "step" and pick(3)
      or name == "high" and pick(4) - 2 or pick(3) - 1
  end
  return list
end

local function draw_attributes(row, drawn, x)
  local attributes, guess = {}, type(x) == "userdata" and pick(2) == 1
  for _, name in ipairs(row.attributes) do
    local known = drawn[name] or {}
    drawn[name] = known
    repeat
      known.way = kinds[name] or one_of(way_names)
    until not (known.refused and known.refused[known.way])
    if name ~= "layout" and pick(20) > 1 then
      attributes[name] = known.way == "list" and guess and plausible(x, name) or ways[known.way]()
    end
  end
  return attributes
end

local function draw_operands(row)
  local n, same, operands = 0, pick(2) == 1 and one_of(pool), {}
  for _ in row.operands:gmatch "[^,]+" do n = n + 1 end
  if pick(10) == 1 then n = pick(6) - 1 end
  for k = 1, n do
    operands[k] = pick(8) == 1 and one_of {0, 1, -1, 2.5, 1e30, math.maxinteger} or same and pick(5) > 1
      and same
      or one_of(pool)
  end
  return operands
end

local function is_small(x)
  local n = 1
  for _, size in ipairs(x.shape) do n = n * math.max(1, size) end
  return n <= 1000
end

--- Calls the op in one of the ways; reads the result where it is small.
local function call(fn, operands, how)
  local attributes = operands.attributes
  local function run(...)
    local args = table.pack(...)
    if attributes then args[args.n + 1] = attributes end
    return fn(table.unpack(args, 1, args.n + (attributes and 1 or 0)))
  end
  if how == "grad" then
    return ml.grad(function(...) return (run(...)):astype "float32":sum() end)(table.unpack(operands))
  end
  local y = (how == "jit" and ml.jit(run) or run)(table.unpack(operands))
  if type(y) == "userdata" and is_small(y) then y:totable() end
end

local function is_good(message)
  return type(message) == "string" and message:find "^[^\n]-attribute_spec%.lua:%d+: %[E_%u+%] " ~= nil
end

describe("ops with drawn attributes", function()
  it("work or say what is wrong", function()
    local rows, drawn, worked = {}, {}, 0
    for _, row in ipairs(core.ops()) do
      if core.op[row.name] then rows[#rows + 1] = row end
    end
    for i = 1, CALLS do
      local row = one_of(rows)
      local operands = draw_operands(row)
      if #row.attributes > 0 then operands.attributes = draw_attributes(row, drawn, operands[1]) end
      local how = one_of {"eager", "eager", "jit", "grad"}
      if ATTRIBUTE_TRACE then ATTRIBUTE_TRACE(i, row, operands, how) end -- luacheck: ignore
      local ok, message = pcall(call, core.op[row.name], operands, how)
      if ok then worked = worked + 1 end
      if not ok and not is_good(message) then error(("call %d, %s (%s): %s"):format(i, row.name, how,
        tostring(message))) end
      if not ok then learn(message, row.attributes, drawn) end
    end
    assert(not core.is_tracing())
    assert.truthy(worked > CALLS / 5, worked .. " calls worked")
  end)
end)
