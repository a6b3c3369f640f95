-- misuse.lua: values that no function expects, and calls of every public function with them. A call may
-- work, or raise a text; what must not happen is anything else.
local ml = require "meshlua"

local M = {}

local function kept_tracer()
  local kept = {}
  ml.jit(function(x)
    kept[1] = x
    return x
  end)(ml.ones {2})
  return kept[1]
end

local function nested(depth)
  local t = {1}
  for _ = 1, depth do t = {t} end
  return t
end

--- A fresh list of {name, value}: plain values, tables of every wrong kind, tensors in every state.
---@return {[1]: string, [2]: any}[]
function M.values()
  local cyclic, released, mesh = {1}, ml.ones {2}, ml.make_mesh({ml.device_count()}, {"misused"})
  cyclic[1] = cyclic
  released:release()
  local jitted = ml.jit(function(x) return x end)
  return {
    {"nil", nil}, {"true", true}, {"false", false}, {"0", 0}, {"1", 1}, {"-1", -1}, {"2", 2}, {"0.5", 0.5},
    {"1e300", 1e300}, {"2^53", 1 << 53}, {"maxinteger", math.maxinteger}, {"mininteger", math.mininteger},
    {"nan", 0 / 0}, {"inf", math.huge}, {"''", ""}, {"'float32'", "float32"}, {"'int32'", "int32"},
    {"'x\\0y'", "x\0y"}, {"'ij->ji'", "ij->ji"}, {"{}", {}}, {"{2,3}", {2, 3}}, {"{0}", {0}}, {"{-1}", {-1}},
    {"{0.5}", {0.5}}, {"{nan}", {0 / 0}}, {"{true}", {true}}, {"{'a'}", {"a"}}, {"{a=1}", {a = 1}},
    {"{maxinteger,maxinteger}", {math.maxinteger, math.maxinteger}}, {"{{1,2},{3}}", {{1, 2}, {3}}},
    {"{[function]=1}", {[print] = 1}}, {"cyclic", cyclic}, {"deep", nested(500)}, {"deeper", nested(10000)},
    {"nine dims", {1, 1, 1, 1, 1, 1, 1, 1, 1}}, {"function", function(...) return ... end},
    {"raising function", function() error("raised", 0) end}, {"thread", coroutine.create(print)},
    {"file", io.stdout}, {"tensor", ml.reshape(ml.arange(6.0), {2, 3})}, {"scalar", ml.tensor(2.0)},
    {"empty tensor", ml.zeros {0, 3}}, {"int tensor", ml.tensor {0, 1}}, {"bool tensor", ml.tensor {true,
      false}},
    {"int64 tensor", ml.tensor({math.maxinteger, math.mininteger}, "int64")}, {"key", ml.random.key(0)},
    {"nan tensor", ml.tensor {0 / 0, 1 / 0, -1 / 0}}, {"{tensor}", {ml.ones {2, 3}}},
    {"released tensor", released}, {"tracer", kept_tracer()}, {"{tracer}", {kept_tracer()}},
    {"Param", ml.core.box_new(ml.ones {2, 3}, {kind = "param"})}, {"empty Param", ml.core.box_new(nil, {})},
    {"mesh", mesh}, {"P", ml.P("misused")}, {"P()", ml.P()}, {"NamedSharding", ml.NamedSharding(mesh,
      ml.P())},
    {"{out_sharding=P}", {out_sharding = ml.P("misused")}}, {"{out_sharding=1}", {out_sharding = 1}},
    {"explicit tensor", ml.device_put(ml.ones {2, 3}, ml.NamedSharding(ml.make_mesh({ml.device_count()},
      {"misused"}, {axis_types = "explicit"}), ml.P({unreduced = {"misused"}})))},
    {"jitted", jitted}, {"plan", jitted:plan(ml.ones {2})},
  }
end

--- Deterministic whole numbers from 1 to n.
local state = 1
local function pick(n)
  state = (state * 1103515245 + 12345) % 2147483648
  return state // 65536 % n + 1
end

local function names_of(values, chosen)
  local names = {}
  for i, index in ipairs(chosen) do names[i] = values[index][1] end
  return table.concat(names, ", ")
end

--- Calls fn with no argument, with each value alone, with each behind a usual first one, and with `many`
--- drawn lists of up to four. report(arguments, ok, result) is told of each.
---@param fn function
---@param first any[] values that such a function takes first
---@param many integer
---@param report fun(arguments: string, ok: boolean, result: any)
function M.call(fn, first, many, report)
  local values, witness
  local function renew()
    values = M.values()
    for _, value in ipairs(values) do
      if value[1] == "tensor" then witness = value[2] end
    end
  end
  renew()
  local real = print
  local function attempt(name, ...)
    print = function() end -- luacheck: ignore
    local ok, result = pcall(fn, ...)
    print = real -- luacheck: ignore
    report(name, ok, result)
    if witness:is_deleted() then renew() end
  end
  attempt("")
  for i = 1, #values do
    attempt(values[i][1], values[i][2])
    for k = 1, #first do attempt("<first " .. k .. ">, " .. values[i][1], first[k](), values[i][2]) end
  end
  for _ = 1, many do
    local chosen, arguments = {}, {}
    local n = pick(4)
    for i = 1, n do
      chosen[i] = pick(#values)
      arguments[i] = values[chosen[i]][2]
    end
    if #first > 0 and pick(2) == 1 then
      local k = pick(#first)
      attempt("<first " .. k .. ">, " .. names_of(values, chosen), first[k](), table.unpack(arguments, 1, n))
    else
      attempt(names_of(values, chosen), table.unpack(arguments, 1, n))
    end
  end
end

return M
