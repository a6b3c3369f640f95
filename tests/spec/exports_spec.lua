-- exports_spec.lua: what the table of exports says is what functions do: each is called with an argument too many,
-- with an option that it does not have, and with each option of a wrong type. Names that are not there, and words of
-- other libraries.
local helper = require "spec.helper"
local exports = require "meshlua.exports"
local all = require "meshlua.exports.all"
local ml = require "meshlua"

local nn, optim, P = ml.nn, ml.optim, ml.P
local raises = helper.raises

-- No option takes it.
local wrong = coroutine.create(print)

local rngs = nn.Rngs(0)
local mesh = ml.make_mesh({ml.device_count()}, {"data"})
local sharding = ml.NamedSharding(mesh, P "data")
local layer = nn.Linear(4, 4, {rngs = rngs})
local step = ml.jit(function(x) return x end)
local traced = step:trace(ml.ones {4})
local function tensor() return ml.reshape(ml.arange(16.0), {4, 4}) end

--- A value of a type that a function takes.
local samples = {any = tensor, axes = 1, boolean = true, dtype = "float32", ["false"] = false,
  ["function"] = function(x) return x end, integer = 1, integers = 1, key =
  function() return ml.random.key(0) end,
  Mesh = mesh, NamedSharding = sharding, number = 1.0, P = P "data", padding = "same", shape = {4, 4},
  string = "data", table = {}, Tensor = tensor, tree = tensor,
  JittedFunction = step, Tokens = ml.core.tokens("abcdefgh", 1), Optimizer = optim.sgd(layer, {lr = 0.1}),
  MultiHeadAttention = nn.MultiHeadAttention(4, 2, {rngs = rngs})}
--- Of parameters for which any value of the type will not do.
local own = {format = "%s", sizes = {1}, names = {"data"}, seeds = 0, mode = "fan_in",
  distribution = "normal",
  transformation = optim.scale(1.0), scale = 1.0, labels = {}, metrics = {},
  encoder = function() return print end}

local function sample(p)
  local value = own[p.name]
  if value == nil then
    for _, word in ipairs(exports.alternatives(p.type)) do
      word = word:gsub("^%*", "")
      if value == nil then value = word:match '^"(.*)"$' end
      if value == nil then value = samples[word] end
      if value == nil and word:find "%[%]$" then value = {} end
    end
  end
  if type(value) == "function" and p.type ~= "function" then value = value() end
  return value
end

--- The required arguments of a row, each a good one.
local function given(row)
  local args = {n = row.required}
  for i = 1, row.required do args[i] = sample(row.params[i]) end
  return args
end

--- What a row's name means.
local functions = all.functions()
local folder = os.tmpname()
os.remove(folder)
local manager = ml.checkpoint.Manager(folder)
teardown(function()
  manager:close()
  ml.core.disk_task {{"remove", folder}}:wait()
end)

local instances = {Manager = manager, At = ml.zeros({2}):at(ml.tensor {0}),
  Compiled = traced:lower():compile(), Lowered = traced:lower(), Traced = traced,
  DistributedConfig = ml.distributed(), Records = ml.data.windows(ml.core.tokens("abcdefgh", 1), 2),
  Batches = ml.data.windows(ml.core.tokens("abcdefgh", 1), 2):shuffled {batch = 1},
  module = layer, Tensor = tensor(), Linear = layer, Conv = nn.Conv(1, 1, {1}, {rngs = rngs}),
  BatchNorm = nn.BatchNorm(4, {rngs = rngs}), Dropout = nn.Dropout(0.5), Embed = nn.Embed(4, 4,
  {rngs = rngs}),
  LayerNorm = nn.LayerNorm(4, {rngs = rngs}), RMSNorm = nn.RMSNorm(4, {rngs = rngs}),
  MoE = nn.MoE(4, 4, 2, {rngs = rngs}), RngStream = nn.RngStream(0, "params"), Sequential = nn.Sequential {},
  MultiHeadAttention = samples.MultiHeadAttention, EMA = optim.EMA(layer),
  GroupNorm = nn.GroupNorm(4, {rngs = rngs, num_groups = 2}),
  InstanceNorm = nn.InstanceNorm(4, {rngs = rngs}), WeightNorm = nn.WeightNorm(layer, {rngs = rngs}),
  ConvTranspose = nn.ConvTranspose(1, 1, {1}, {rngs = rngs}),
  LSTMCell = nn.LSTMCell(4, 4, {rngs = rngs}), GRUCell = nn.GRUCell(4, 4, {rngs = rngs}),
  SimpleCell = nn.SimpleCell(4, 4, {rngs = rngs}), RNN = nn.RNN(nn.GRUCell(4, 4, {rngs = rngs})),
  Mean = ml.metrics.Mean(), Accuracy = ml.metrics.Accuracy(), Perplexity = ml.metrics.Perplexity(),
  MultiMetric = ml.metrics.MultiMetric {}, ChatTemplate = ml.chat_template "{{ messages }}",
  Tokenizer = ml.learn_tokenizer("text", {size = 258}),
  Trainer = ml.train.Trainer("gpt", {steps = 1}),
  Bidirectional = nn.Bidirectional(nn.RNN(nn.GRUCell(4, 4, {rngs = rngs})), nn.RNN(nn.GRUCell(4, 4,
    {rngs = rngs})))}

instances.Cache = ml.cache({instances.MultiHeadAttention}, 1, 4)
instances.Past = instances.Cache:open(ml.zeros({1, 1}, "int32"))

for class, object in pairs(instances) do samples[class] = samples[class] or object end

local function value_of(name)
  if functions[name] then return functions[name] end
  local of, method = name:match "^(.-):(.*)$"
  local object = instances[of]
  if method == "__call" then return getmetatable(object).__call end
  return object[method]
end

--- What errors call it.
local function shown(name)
  return name:gsub(":__call$", ""):gsub("^nn%.", ""):gsub("^optim%.", ""):gsub("^Records:", "")
end

--- fn(args...) raises an error at this line that names the function and holds the words.
local function refuses(name, fn, args, ...)
  local line = debug.getinfo(1, "l").currentline + 1
  local ok, message = pcall(function() return fn(table.unpack(args, 1, args.n)), nil end)
  if ok then error(name .. " did not raise", 0) end
  local place = tostring(message):match "exports_spec%.lua:(%d+): %[E_%u+%]"
  if tonumber(place) ~= line then error(name .. ": no place and code: " .. tostring(message), 0) end
  for _, word in ipairs {shown(name):match "[%w_]+$", ...} do
    if not message:find(word, 1, true) then
      error(("%s: no '%s' in: %s"):format(name, word, message), 0)
    end
  end
end

local rows = {}
for _, name in ipairs(exports.names()) do
  local row = exports.row(name)
  if not row.field then rows[#rows + 1] = row end
end

--- The arguments with a table of options behind them, in its place.
local function with_options(row, options)
  local args = given(row)
  if not row.names and not row.variadic then args.n = #row.params end
  args.n = args.n + 1
  args[args.n] = options
  return args
end

describe("of every row", function()
  it("one argument too many is refused", function()
    local n = 0
    for _, row in ipairs(rows) do
      if not row.variadic and row.name ~= "P" then
        local args = {n = row.most + 1}
        args[args.n] = 7
        refuses(row.name, value_of(row.name), args, "takes ")
        n = n + 1
      end
    end
    assert.is_true(n > 280, n)
  end)

  it("an option that it does not have is refused", function()
    local n = 0
    for _, row in ipairs(rows) do
      if not row.variadic or row.options then
        local args = with_options(row, {no_such_option = 1})
        if not row.options then args = {n = row.most + 1, [row.most + 1] = {no_such_option = 1}} end
        refuses(row.name, value_of(row.name), args, "no_such_option")
        n = n + 1
      end
    end
    assert.is_true(n > 290, n)
  end)

  it("each option of a wrong type is refused, also where a parameter is given by name", function()
    local n = 0
    for _, row in ipairs(rows) do
      local options = {}
      for name in pairs(row.options or {}) do options[#options + 1] = name end
      for i, p in ipairs(row.names and row.params or {}) do
        if i > row.required and p.type ~= "any" then options[#options + 1] = p.name end
      end
      for _, option in ipairs(options) do
        local values = {[option] = wrong}
        if row.name == "shard_map" then values.out_specs = values.out_specs or P() end
        if option == "bwd" then values.fwd = print end
        refuses(row.name, value_of(row.name), with_options(row, values), option)
        n = n + 1
      end
    end
    assert.is_true(n > 400, n)
  end)
end)

describe("a public name without a row", function()
  --- Runs code that adds names before the library has been loaded, or to a module that is loaded when it is used.
  local function start(code, check)
    local out, err, exit = helper.shell(([[MESHLUA_CHECK=%d "$MESHLUA" -e '%s']]):format(check, code))
    return out .. err, exit
  end

  it("does not start where the library verifies itself", function()
    for code, name in pairs {
      [ [[require("meshlua.ops").frobnicate = function() end require "meshlua"]] ] = "frobnicate",
      [ [[require("meshlua.core").methods("meshlua.Mesh").turn = print require "meshlua"]] ] = "Mesh:turn",
      [ [[require("meshlua.core").fields("meshlua.P").turns = print require "meshlua"]] ] = "P.turns",
      [ [[require("meshlua.nn.losses").hinge = print local _ = require("meshlua").nn]] ] = "nn.hinge",
      [ [[local c = require("meshlua.nn.linear").Linear
        function c:turn() end local _ = require("meshlua").nn]] ] = "Linear:turn",
    } do
      local text, exit = start(code, 1)
      assert.truthy(text:find(name .. " is public, and has no row in lualib/meshlua/exp", 1, true), text)
      assert.equal(1, exit)
    end
  end)

  it("all have one", function()
    local text, exit = start([[local ml = require "meshlua"
      require("meshlua.exports.all").functions() ml.distributed() print(ml.data.tokens, "done")]], 1)
    assert.truthy(text:find "done")
    assert.equal(0, exit)
  end)
end)

describe("a call", function()
  it("is told at the user's line, also in a coroutine and in a traced function", function()
    local function place(fn)
      local line = debug.getinfo(fn, "S").linedefined
      local ok, message = pcall(fn)
      assert.is_false(ok)
      assert.truthy(message:find("exports_spec.lua:" .. line .. ": [E_", 1, true), message)
    end
    local x = tensor()
    place(function() ml.sin(x, 1, 2) end)
    place(function() x:item(1) end)
    place(function() coroutine.wrap(function() x:cumsum(1, {reverse = 1}) end)() end)
    place(function() ml.grad(function(y) return y:sum():itm() end)(x) end)
    place(function() ml.jit(function(y) return y:add(y, y) end)(x) end)
    place(function() return nn.Linaer end)
  end)

  it("may have nils behind its arguments, and names for optional parameters", function()
    local x = tensor()
    assert.same(ml.sin(x):totable(), ml.sin(x, nil, nil):totable())
    assert.same(x:sum():item(), x:sum(nil, nil, nil):item())
    assert.same(x:cumsum(1, true):totable(), x:cumsum(1, {reverse = true}):totable())
    assert.same(x:cumsum(1):totable(), x:cumsum(1, {reverse = false}):totable())
    assert.same(x:var(1, nil, 1):totable(), x:var(1, {ddof = 1}):totable())
    assert.same(x:sum(2, true):totable(), x:sum({axes = 2, keepdims = true}):totable())
    local key = ml.random.key(1)
    assert.same(ml.random.uniform(key, {3}, nil, 1, 2):totable(),
      ml.random.uniform(key, {low = 1, high = 2, shape = {3}}):totable())
    assert.same(ml.random.randint(key, {3}, 1, 9):totable(),
      ml.random.randint(key, {shape = {3}, low = 1, high = 9}):totable())
    local y = ml.device_put(x, ml.NamedSharding(mesh, P()))
    assert.equal("float32[4@data]", ml.typeof(y:sum {axes = 2, out_sharding = P "data"}))
    raises("[E_VALUE] cumsum: 'axis' is given twice", ml.cumsum, x, 1, {axis = 1})
    raises("did you mean 'axes'?", x.sum, x, {axis = 1})
    local tokens = ml.core.tokens("abcdefgh", 1)
    assert.equal(1, #ml.data.windows(tokens, 2, {last = 4}))
  end)
end)

describe("a name that is not there", function()
  local plan = step:plan(ml.ones {4})
  for text, fn in pairs {
    ["nn has no 'Linaer'; did you mean 'Linear'?"] = function() return nn.Linaer end,
    ["ml has no 'matmull'; did you mean 'matmul'?"] = function() return ml.matmull end,
    ["ml has no 'Jit'; did you mean 'jit'?"] = function() return ml.Jit end,
    ["random has no 'unifrom'; did you mean 'uniform'?"] = function() return ml.random.unifrom end,
    ["optim has no 'addam'; did you mean 'adam'?"] = function() return optim.addam end,
    ["schedule has no 'cosin'; did you mean 'cosine'?"] = function() return ml.schedule.cosin end,
    ["data has no 'window'; did you mean 'windows'?"] = function() return ml.data.window end,
    ["tree has no 'mapp'; did you mean 'map'?"] = function() return ml.tree.mapp end,
    ["train has no 'scripts'; did you mean 'script'?"] = function() return ml.train.scripts end,
    ["profile has no 'stat'; did you mean 'start'?"] = function() return ml.profile.stat end,
    ["nn.initializers has no 'he_norml'; did you mean 'he_normal'?"] = function()
      return nn.initializers.he_norml
    end,
    ["a tensor has no field or method 'reshap'; did you mean 'reshape'?"] =
      function() tensor():reshap(16) end,
    ["a tensor has no field or method 'shap'; did you mean 'shape'?"] = function() return tensor().shap end,
    ["a tensor has no field or method 'relase'; did you mean 'release'?"] =
      function() layer.kernel:relase() end,
    ["a Mesh has no field or method 'shap'; did you mean 'shape'?"] = function() return mesh.shap end,
    ["a Mesh has no field or method 'witth'; did you mean 'with'?"] = function() mesh:witth(print) end,
    ["a P has no field or method 'partition'; did you mean 'partitions'?"] =
      function() return P("a").partition end,
    ["a NamedSharding has no field or method 'spce'; did you mean 'spec'?"] =
      function() return sharding.spce end,
    ["a jitted function has no field or method 'plam'; did you mean 'plan'?"] = function() step:plam() end,
    ["a plan has no field or method 'flop'; did you mean 'flops'?"] = function() plan:flop() end,
    ["a Traced has no field or method 'as_txt'; did you mean 'as_text'?"] = function() traced:as_txt() end,
    ["Records has no 'shufled'; did you mean 'shuffled'?"] = function() instances.Records:shufled {} end,
  } do
    it(text, function() raises("[E_KEY] " .. text, fn) end)
  end

  it("is nil where other libraries ask", function()
    assert.is_nil(ml._NAME)
    assert.is_nil(nn._VERSION)
    assert.is_nil(ml[1])
    assert.is_false((pcall(function() return ml.no_such_function end)))
  end)
end)

describe("what is written elsewhere", function()
  local x = tensor()

  it("x.shape goes where a list of sizes does", function()
    for _, y in ipairs {x, x:sum()} do
      assert.same(y.shape, ml.zeros(y.shape).shape)
      assert.same(y.shape, y:reshape(y.shape).shape)
      assert.same(y.shape, ml.random.normal(ml.random.key(0), y.shape).shape)
    end
  end)
  for text, fn in pairs {
    ["[E_STATE] a tensor does not change: '1' cannot be assigned; x:scatter_set"] = function() x[1] = 2 end,
    ["[E_STATE] a Param's 'kind' cannot be assigned; param:set(t)"] = function() layer.kernel.kind = "x" end,
    ["[E_VALUE] x.shape[0]: dims count from 1"] = function() return x.shape[0] end,
    ["[E_VALUE] x.shape[-1]: the last dim is x.shape[x.ndim]"] = function() return x.shape[-1] end,
    ["[E_VALUE] sum: expected a tensor, got a number; as a method it is called with a colon: x:sum(...)"] =
      function() x.sum(1) end,
    ["[E_VALUE] exp: 0 operands given, 1 wanted (x); a method is called with a colon"] =
      function() x.exp() end,
    ["[E_VALUE] Tensor:item: a method is called with a colon: x:item()"] = function() x.item() end,
    ["got a function (x:T() calls the method)"] = function() return ml.matmul(x, x.T) end,
    ["add: expected a tensor or a number, got function (x:T() calls the method)"] =
      function() return x.T + x end,
    ["number expected, got Tensor (x:item() is the number of one element))"] =
      function() return string.format("%d", x) end,
    ["number expected, got Param (x:item() is the number of one element))"] =
      function() return math.floor(layer.bias) end,
    ["[E_VALUE] a tensor is no text: tostring(x) is one, and x:item()"] = function() return "loss " .. x end,
    ["[E_VALUE] a tensor is not called: x:at(i)"] = function() for _ in x do print(_) end end,
    ["[E_VALUE] a tensor is no table: `for i = 1, #x do`"] = function() return pairs(layer.kernel) end,
    ["[E_VALUE] tensors have no Lua order: `<` would give one boolean; use x:lt(y)"] =
      function() return layer.kernel < 1 end,
    ["jit: expected a function, got a Tensor"] = function() return ml.jit(x) end,
    ["vmap: expected a function, got a Tensor"] = function() return ml.vmap(x) end,
    ["[E_VALUE] x.shape is a field: a list of dims"] = function() return x:shape() end,
    ["'1:2': x:slice({first, last}) is a part of it"] = function() return x["1:2"] end,
    ["[E_VALUE] add: expected a tensor or a number, got table; ml.tensor(x) makes one"] =
      function() return x + {1, 2, 3, 4} end,
    ["[E_VALUE] Linear: expected a tensor, got nil"] = function() return layer() end,
    ["[E_VALUE] sum: expected a tensor, got a table; ml.tensor(list) makes one"] =
      function() return ml.sum {1, 2} end,
    ["[E_KEY] sum: unknown option 'dim'; it is called 'axes' here"] = function() x:sum {dim = 1} end,
    ["[E_KEY] softmax: unknown option 'dim'; it is called 'axis' here"] = function() x:softmax {dim = 1} end,
    ["[E_KEY] jit: unknown option 'static_argnums'; it is called 'static' here"] =
      function() ml.jit(print, {static_argnums = 1}) end,
    ["[E_KEY] adam: unknown option 'learning_rate'; it is called 'lr' here"] =
      function() optim.adam(layer, {learning_rate = 1}) end,
    ["[E_KEY] sgd: unknown option 'zzzzzz'; there are clip, freeze, lr, momentum, nesterov, only"] =
      function() optim.sgd(layer, {zzzzzz = 1}) end,
    ["[E_VALUE] Linear: options must be a table, not a Rngs; options have names: {name = value}"] =
      function() nn.Linear(2, 2, rngs) end,
    ["[E_VALUE] grad: options must be a table, not a Tensor; it gives a function: grad(fn)(x)"] =
      function() ml.grad(print, x) end,
    ["[E_VALUE] scan: expected a function, got a Tensor; it is called as scan(f, init, xs, {options})"] =
      function() ml.scan(x, print) end,
    ["[E_VALUE] concat: the tensors must be a list, not a Tensor: {x, y}"] = function() ml.concat(x, x) end,
    ["[E_VALUE] tensor: expected numbers, got Tensor; ml.stack(list) makes one tensor"] =
      function() ml.tensor {x, x} end,
    ["got 3: tensor(values: number|boolean|table, dtype: dtype?) -> Tensor; values are a list: {1, 2}"] =
      function() ml.tensor(1, 2, 3) end,
    ["from random.key or random.keys, got nil"] = function()
      local _, b = ml.random.split(ml.random.key(0))
      ml.random.normal(b, {2})
    end,
    ["low < high within int32: randint(key, shape, low, high)"] = function()
      ml.random.randint(ml.random.key(0), 0, 10)
    end,
    ["[E_MESH] make_mesh: expected a list of sizes and a list of names: {4, 2}, {\"data\", \"model\"}"] =
      function() ml.make_mesh {data = 1} end,
    ["[E_SPEC] NamedSharding: expected a P, got string: P(\"axis\")"] =
      function() ml.NamedSharding(mesh, "data") end,
    ["[E_DTYPE] fori_loop: the carry at value is float32[] when it goes in"] = function()
      ml.fori_loop(0, 3, function(_, c) return c:astype "int32" end, ml.tensor(1.0))
    end,
    ["[E_SHAPE] at: position 0 of dim 1, which has 4; positions count from 1"] = function() x:at(0) end,
    ["[E_VALUE] zeros_like: expected a tensor, got nil"] = function() ml.zeros_like() end,
    ["take: the ids must be int32, not float32; ids:astype \"int32\""] =
      function() x:take(ml.tensor {1.0}) end,
    ["item: the tensor has 16 elements, not one; x:totable() has all"] = function() x:item() end,
    ["ml has no 'logical_and': x & y"] = function() return ml.logical_and(x, x) end,
    ["'forward': model(x); a class has function Name:__call(x)"] = function() layer:forward(x) end,
    ["'parameters': ml.tree.leaves(model)"] = function() layer:parameters() end,
    ["[E_KEY] Mlp cannot be called: write function Mlp:__call(...), which is the name of forward here"] =
      function()
        local Mlp = nn.module "Mlp"
        function Mlp:forward(y) return self and y end
        Mlp()(x)
      end,
    ["[E_VALUE] update: the gradients are nil, not a tree like the model: opt:update(model, grads)"] =
      function() samples.Optimizer:update(layer) end,
    ["'view': x:reshape(2, -1)"] = function() x:view(16) end,
    ["'permute': x:transpose(3, 1, 2)"] = function() x:permute(2, 1) end,
    ["'cuda': meshlua --devices=cuda"] = function() x:cuda() end,
    ["'backward': ml.grad(fn) and ml.value_and_grad(fn)"] = function() x:sum():backward() end,
    ["'grad': ml.grad(fn) gives a function of gradients"] = function() return layer.kernel.grad end,
    ["ml has no 'array': ml.tensor(values)"] = function() return ml.array {1} end,
    ["ml has no 'no_grad': nothing is kept for gradients"] = function() return ml.no_grad() end,
    ["ml has no 'mm': ml.matmul(x, y)"] = function() return ml.mm(x, x) end,
    ["nn has no 'Dense': nn.Linear(n_in, n_out, {rngs = rngs})"] = function() return nn.Dense(4) end,
    ["optim has no 'SGD': optim.sgd(model, {lr = 0.1})"] = function() return optim.SGD end,
    ["'step': opt:update(model, grads)"] = function() samples.Optimizer:step() end,
    ["'zero_grad': gradients are values"] = function() layer:zero_grad() end,
    ["random has no 'PRNGKey': random.key(seed)"] = function() return ml.random.PRNGKey(0) end,
    ["random.normal: 3 is no float dtype; a shape is a list: {2, 3}"] = function()
      ml.random.normal(ml.random.key(0), 2, 3)
    end,
    ["zeros: the dtype is a number; a shape of several dims is a list: {2, 3}"] = function()
      ml.zeros({2}, 3)
    end,
    ["update: kernel is a tensor, which has taken the place of a Param; param:set(t)"] = function()
      local l = nn.Linear(4, 4, {rngs = rngs})
      local opt = optim.sgd(l, {lr = 0.1})
      l.kernel = l.kernel * 2
      local _, grads = ml.value_and_grad(function(m) return m(x):sum() end)(l)
      opt:update(l, grads)
    end,
  } do
    it("is told what to write here: " .. text, function() raises(text, fn) end)
  end

  it("makes zeros and ones of numbers, too", function()
    assert.equal("float32[2,3]", ml.typeof(ml.zeros(2, 3)))
    assert.equal("int32[2,3]", ml.typeof(ml.ones(2, 3, "int32")))
    assert.equal("int32[2,3]", ml.typeof(ml.ones(2, 3, {dtype = "int32"})))
    assert.equal("int32[2]", ml.typeof(ml.zeros({2}, "int32")))
    assert.equal("float32[]", ml.typeof(ml.zeros {}))
  end)

  it("is told by the program where the error is Lua's own", function()
    for code, text in pairs {
      ["return x.T + 1"] = "(field 'T'); x:T(...) calls the method",
      ["return x.at[1]"] = "(field 'at'); x:at(...) calls the method",
      ["string.format('%d', x)"] = "got Tensor (x:item() is the number of one element))",
      ["x:dtype()"] = "(method 'dtype'); x.dtype is a field",
      ["ml.nn.Linear(2, 2, {rngs = ml.nn.Rngs(0)}).weight:T()"] = "a Linear has the Params kernel and bias",
      ["x:size()"] = "x.size is the number of elements, x.shape the dims",
      ["torch.no_grad()"] = "has the functions of that library: ml.NAME",
    } do
      local _, err, exit = helper.run {"-e", "local ml = require 'meshlua' local x = ml.ones {2} " .. code}
      assert.equal(1, exit)
      assert.truthy(err:find(text, 1, true), err)
    end
  end)

  it("hints that name what there is", function()
    local foreign = require "meshlua.exports.foreign"
    for of, hints in pairs(foreign) do
      for word, hint in pairs(type(hints) == "table" and hints or {}) do
        assert.is_string(hint)
        local real = of == "" and rawget(ml,
          word) or of == "Tensor" and ml.core.methods("meshlua.Tensor")[word]
        assert.is_falsy(real, word)
        for name in hint:gmatch "ml%.([%w_]+)" do
          assert.is_truthy(name == "NAME" or ml[name], hint)
        end
        for name in hint:gmatch "%f[%w]x:([%w_]+)" do
          assert.is_truthy(rawget(ml.core.methods "meshlua.Tensor", name), hint)
        end
        for name in hint:gmatch "%f[%w]nn%.([%w_]+)" do assert.is_truthy(nn[name], hint) end
        for name in hint:gmatch "%f[%w]optim%.([%w_]+)" do assert.is_truthy(optim[name], hint) end
      end
    end
  end)
end)
