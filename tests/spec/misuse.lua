-- misuse.lua: values that no function expects, and calls of every public function with them. A call may
-- work, or raise a text; what must not happen is anything else.
local ml = require "meshlua"
local exports = require "meshlua.exports"
local all = require "meshlua.exports.all"

local WATCHED = rawget(_G, "SANITIZE") ~= nil

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

local deep, deeper = nested(500), nested(10000) -- much work to make; nothing changes what is in them

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
    {"{[function]=1}", {[print] = 1}}, {"cyclic", cyclic}, {"deep", deep}, {"deeper", deeper},
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

-- Values that functions expect, by the words of the rows' types, each made of others when it is first asked for: most
-- calls need few, and a plan is much work. `table` has what stands for a model, a tree, rules.
local makers = {
  mesh = function() return ml.make_mesh({ml.device_count()}, {"data"}) end,
  rngs = function() return ml.nn.Rngs(0) end,
  layer = function(of) return ml.nn.Linear(3, 2, {rngs = of.rngs}) end,
  matrix = function() return ml.reshape(ml.arange(6.0), {2, 3}) end,
  step = function() return ml.jit(function(x) return ml.mul(x, 2) end) end,
  traced = function(of) return of.step:trace(of.matrix) end,
  opt = function(of) return ml.optim.adam(of.layer, {lr = 0.1}) end,
  Tensor = function(of)
    return {of.matrix, ml.tensor {1, 0}, ml.tensor {true, false}, ml.tensor(2.0), ml.zeros {0, 3}, of.key[1],
      of.layer.kernel, ml.device_put(ml.ones {ml.device_count(), 4}, of.NamedSharding[1]),
      ml.ones({2, 2}, "bfloat16"), ml.ones {2, 4, 4, 3}}
  end,
  Param = function(of) return {of.layer.kernel} end,
  key = function() return {ml.random.key(0)} end,
  Mesh = function(of) return {of.mesh} end,
  P = function() return {ml.P "data", ml.P()} end,
  NamedSharding = function(of) return {ml.NamedSharding(of.mesh, ml.P "data")} end,
  number = function() return {0, 1, -1, 0.5, 2, 1e-3} end,
  integer = function() return {0, 1, 2, 3, -1, 4} end,
  boolean = function() return {true, false} end,
  ["false"] = function() return {false} end,
  string = function() return {"data", "float32", "ij,jk->ik", "%s", ""} end,
  dtype = function() return {"float32", "int32", "bfloat16", "bool", "uint8"} end,
  shape = function() return {{2, 3}, {}, {6}, {0}, {4, 4}, 3} end,
  axes = function() return {1, 2, -1, {1}, {1, 2}, {}} end,
  integers = function() return {1, 2, {1, 1}, {2}} end,
  padding = function() return {"same", "valid", {{0, 1}, {1, 0}}} end,
  ["function"] = function(of)
    return {function(...) return ... end, function(x) return ml.sum(x) end, ml.sin, of.step,
      function(c, x) return c, x end, function() error("raised", 0) end}
  end,
  table = function(of)
    return {{}, of.layer, {of.matrix, of.matrix}, {a = of.matrix}, {{"batch", "data"}}, {1, 2}, {of.rngs},
      of.opt, {lr = 0.1}, ml.optim.scale(0.1), {[of.matrix] = of.matrix}, {rngs = of.rngs}, {{0, 1}}}
  end,
  tree = function(of) return {of.matrix, {of.matrix}, {a = {of.matrix}}, of.layer} end,
  any = function(of) return {of.matrix, {of.matrix}, 1, nil, of.layer, of.step, "data"} end,
  Plan = function(of) return {of.step:plan(of.matrix)} end,
  JittedFunction = function(of) return {of.step} end,
  Traced = function(of) return {of.traced} end,
  Lowered = function(of) return {of.traced:lower()} end,
  Compiled = function(of) return {of.traced:lower():compile()} end,
  Tokens = function() return {ml.core.tokens("abcdefghijklmnop", 1)} end,
  Records = function(of) return {ml.data.windows(of.Tokens[1], 3)} end,
  Batches = function(of) return {of.Records[1]:shuffled {batch = 1}} end,
  DistributedConfig = function() return {ml.distributed()} end,
  Optimizer = function(of) return {of.opt} end,
  LossScale = function() return {ml.optim.LossScale()} end,
  EMA = function(of) return {ml.optim.EMA(of.layer)} end,
  Linear = function(of) return {of.layer} end,
  Conv = function(of) return {ml.nn.Conv(3, 2, {1, 1}, {rngs = of.rngs})} end,
  Dropout = function() return {ml.nn.Dropout(0.5)} end,
  BatchNorm = function(of) return {ml.nn.BatchNorm(3, {rngs = of.rngs})} end,
  Embed = function(of) return {ml.nn.Embed(4, 3, {rngs = of.rngs})} end,
  LayerNorm = function(of) return {ml.nn.LayerNorm(3, {rngs = of.rngs})} end,
  RMSNorm = function(of) return {ml.nn.RMSNorm(3, {rngs = of.rngs})} end,
  GroupNorm = function(of) return {ml.nn.GroupNorm(3, {rngs = of.rngs, num_groups = 3})} end,
  InstanceNorm = function(of) return {ml.nn.InstanceNorm(3, {rngs = of.rngs})} end,
  WeightNorm = function(of) return {ml.nn.WeightNorm(of.Conv[1], {rngs = of.rngs})} end,
  ConvTranspose = function(of) return {ml.nn.ConvTranspose(3, 2, {1, 1}, {rngs = of.rngs})} end,
  SimpleCell = function(of) return {ml.nn.SimpleCell(3, 2, {rngs = of.rngs})} end,
  GRUCell = function(of) return {ml.nn.GRUCell(3, 2, {rngs = of.rngs})} end,
  LSTMCell = function(of) return {ml.nn.LSTMCell(3, 2, {rngs = of.rngs})} end,
  RNN = function(of) return {ml.nn.RNN(of.GRUCell[1])} end,
  Bidirectional = function(of) return {ml.nn.Bidirectional(of.RNN[1], of.RNN[1])} end,
  MoE = function(of) return {ml.nn.MoE(3, 4, 2, {rngs = of.rngs})} end,
  RngStream = function() return {ml.nn.RngStream(0, "params")} end,
  MultiHeadAttention = function(of) return {ml.nn.MultiHeadAttention(4, 2, {rngs = of.rngs})} end,
  Sequential = function(of) return {ml.nn.Sequential {of.layer, ml.nn.relu}} end,
  Mean = function() return {ml.metrics.Mean()} end,
  Accuracy = function() return {ml.metrics.Accuracy()} end,
  Perplexity = function() return {ml.metrics.Perplexity()} end,
  MultiMetric = function(of) return {ml.metrics.MultiMetric {loss = of.Mean[1]}} end,
  Program = function(of) return {of.step:program(of.matrix)} end,
}

---@return table<string, any[]?>
local function expected()
  return setmetatable({}, {__index = function(made, word)
    local value = makers[word] and makers[word](made)
    rawset(made, word, value)
    return value
  end})
end

--- Deterministic whole numbers from 1 to n.
local state = 1
local function pick(n)
  state = (state * 1103515245 + 12345) % 2147483648
  return state // 65536 % n + 1
end

--- Other draws than those of the seed 1.
function M.seed(n) state = n end

local function names_of(values, chosen)
  local names = {}
  for i, index in ipairs(chosen) do names[i] = values[index][1] end
  return table.concat(names, ", ")
end

local turn = 0

--- Calls fn with no argument, with each value alone, with each behind a usual first one (where a sanitizer watches,
--- in turn alone or behind one of these, from function to function the other way), and with `many` drawn lists of up
--- to four. report(arguments, ok, result) is told of each.
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
  turn = turn + 1
  for i = 1, #values do
    local behind = #first > 0 and (i + turn) % 2 == 0 and (i // 2) % #first + 1
    if not (WATCHED and behind) then attempt(values[i][1], values[i][2]) end
    for k = 1, #first do
      if not WATCHED or k == behind then
        attempt("<first " .. k .. ">, " .. values[i][1], first[k](), values[i][2])
      end
    end
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

-- ---- by the rows of the table of exports -------------------------------------------------------------

-- They end the process, or write files.
local never = {["train.main"] = true, ["train.script"] = true, ["train.mesh"] = true,
  ["profile.start"] = true, ["checkpoint.Manager"] = true, save = true}

--- What is called: {row, fn} for every row that is a function.
---@return {row: table, fn: any}[]
function M.rows()
  local functions, samples, list = all.functions(), expected(), {}
  for _, name in ipairs(exports.names()) do
    local row = exports.row(name)
    local of, method = name:match "^(%u%w+):(.*)$"
    local fn = functions[name]
    if not fn and method == "__call" then fn = getmetatable(samples[of][1]).__call end
    if not fn and of and samples[of] then fn = samples[of][1][method] end
    if fn and not never[name] then list[#list + 1] = {row = row, fn = fn} end
  end
  return list
end

--- The function of a row; of a method of tables, called on one that it belongs to.
---@param called {row: table, fn: any}
function M.bound(called)
  local p = called.row.params[1]
  if not p or p.name ~= "self" then return called.fn end
  local object, fn = expected()[p.type][1], called.fn
  return function(...)
    local results = table.pack(fn(object, ...))
    return table.unpack(results, 1, results.n)
  end
end

--- What its first parameter may be: functions that give one.
function M.firsts(row)
  local p, good, list = row.params[1], expected(), {}
  if p and p.name == "self" then p = row.params[2] end
  for _, kind in ipairs(p and exports.alternatives(p.type) or {}) do
    local values = good[kind] or {}
    for i = 1, math.min(2, #values) do list[#list + 1] = function() return values[i] end end
  end
  return list
end

--- Draws calls: most arguments are of the type that the row says.
---@class Drawer
---@field hostile table
---@field good table
local Drawer = {}
Drawer.__index = Drawer

function Drawer:renew()
  self.hostile, self.good = M.values(), expected()
  self.witness = self.good.Tensor[1]
end

--- A value of the type, most often; its text.
function Drawer:value(kind)
  if pick(5) == 1 then
    local value = self.hostile[pick(#self.hostile)]
    return value[2], value[1]
  end
  local words = exports.alternatives(kind)
  local word = words[pick(#words)]:gsub("^%*", "")
  local literal, element = word:match '^"(.*)"$', word:match "^%(?(.-)%)?%[%]$"
  if literal then return literal, literal end
  if element then
    local list, texts = {}, {}
    for i = 1, pick(3) do list[i], texts[i] = self:value(element) end
    return list, "{" .. table.concat(texts, ", ") .. "}"
  end
  local values = self.good[word] or self.good.any
  local i = pick(#values)
  return values[i], word .. " " .. i
end

function Drawer:options(row)
  local names, options, texts = {}, {}, {}
  for name in pairs(row.options) do names[#names + 1] = name end
  for _, p in ipairs(row.names and row.params or {}) do
    if p.optional then names[#names + 1] = p.name end
  end
  table.sort(names)
  for _ = 1, pick(3) do
    local name = names[pick(#names)]
    local value, text = self:value(row.options[name] or row.params[row.place[name]].type)
    if name == "file" then value, text = "no/such/folder/file", "a file" end
    options[name], texts[#texts + 1] = value, name .. " = " .. text
  end
  return options, "{" .. table.concat(texts, ", ") .. "}"
end

--- The arguments of a call of this row, and their text.
function Drawer:arguments(row)
  local args, texts, n = {}, {}, row.required
  local function add(kind)
    n = n + 1
    if n == 1 and row.params[1] and row.params[1].name == "self" then
      args[n], texts[n] = self.good[kind][1], kind
    else
      args[n], texts[n] = self:value(kind)
    end
  end
  n = 0
  for _ = 1, row.required do add(row.params[n + 1].type) end
  while row.params[n + 1] and pick(2) == 1 do add(row.params[n + 1].type) end
  if row.variadic and #row.params == n then
    for _ = 1, pick(3) - 1 do add(row.variadic) end
  end
  if row.options and pick(2) == 1 then
    while not row.names and row.params[n + 1] do
      n = n + 1
      texts[n] = "nil"
    end
    n = n + 1
    args[n], texts[n] = self:options(row)
  end
  if pick(20) == 1 then add "any" end
  if pick(20) == 1 and n > 1 then n = n - 1 end
  return args, n, table.concat(texts, ", ", 1, n)
end

--- Makes `count` calls of the functions in turn; report as in M.call, with the name in front.
---@param rows {row: table, fn: any}[]
---@param count integer
---@param report fun(call: string, ok: boolean, result: any, name: string)
---@param before (fun(call: string))? told of each before it is made: of one that does not return
function M.draw(rows, count, report, before)
  local drawer, real, write = setmetatable({}, Drawer), print, io.write
  drawer:renew()
  for i = 1, count do
    local called = rows[(i - 1) % #rows + 1]
    local args, n, text = drawer:arguments(called.row)
    if before then before(called.row.name .. "(" .. text .. ")") end
    print, io.write = function() end, function() end -- luacheck: ignore
    local ok, result = pcall(called.fn, table.unpack(args, 1, n))
    print, io.write = real, write -- luacheck: ignore
    -- What lasts is taken back.
    if ok and called.row.name == "set_mesh" then getmetatable(result).__close(result) end
    if ok and called.row.name == "random.debug_key_reuse" then ml.random.debug_key_reuse(false) end
    if ok and called.row.name == "on_stop" then ml.on_stop(nil) end
    report(called.row.name .. "(" .. text .. ")", ok, result, called.row.name)
    if i % 5000 == 0 or drawer.witness:is_deleted() then drawer:renew() end
  end
end

return M
