-- run_spec.lua: plans on a GPU that the stand-ins play (standin/): values, graphs, memory, what is found late.
local helper = require "spec.helper"
local standin = require "cuda.standin"
local shell, folder, check = helper.shell, standin.folder, standin.it

--- Runs a script on `devices`, where `variables` are set.
---@return string out, string err, integer code
local function run(devices, source, variables)
  local path = helper.file(source)
  return shell(('MESHLUA_CACHE=%s LD_LIBRARY_PATH=%s %s "$MESHLUA" --devices=%s %s')
    :format(standin.cache, folder, variables or "", devices, path))
end

local function must(...)
  local out, err, code = run(...)
  assert.equal(0, code, err)
  return out
end

-- Nothing is collected, so that each batch lies elsewhere: one that by chance lies where the last did is known to move
-- a call later only, which costs a second capture.
local train = [[
collectgarbage "stop"
local ml = require "meshlua"
local nn, P = ml.nn, ml.P
local n = ml.device_count()
local mesh = n > 1 and ml.make_mesh({n}, {"data"})
local rules = {{"batch", "data"}, {"in", false}, {"out", false}}
local model = ml.init(function(rngs)
  return nn.Sequential({nn.Linear(12, 24, {rngs = rngs, axes = {"in", "out"}}), nn.gelu,
    nn.LayerNorm(24, {rngs = rngs, axes = {"out"}}), nn.Linear(24, 5, {rngs = rngs, axes = {"out", "in"}})})
end, {mesh = mesh or nil, rules = rules, seed = 0})
local optimizer = ml.optim.adamw(model, {lr = 1e-2})
local step = ml.jit(function(m, o, x, labels)
  local loss, grads = ml.value_and_grad(function(net)
    return nn.softmax_cross_entropy_with_integer_labels(net(x), labels):mean()
  end)(m)
  o:update(m, grads)
  return loss
end, {mesh = mesh or nil, rules = rules})
for i = 1, 8 do
  local x = ml.random.normal(ml.random.key(i), {16, 12})
  local labels = ml.random.randint(ml.random.key(100 + i), {16}, 0, 5)
  if mesh then
    local rows = ml.NamedSharding(mesh, P "data")
    x, labels = ml.device_put(x, rows), ml.device_put(labels, rows)
  end
  print(("%.9g"):format(step(model, optimizer, x, labels):item()))
end
]]

local function numbers(text)
  local list = {}
  for word in text:gmatch "%S+" do list[#list + 1] = tonumber(word) end
  return list
end

describe("a plan on a GPU", function()
  check("casts and divides out of range as on the processor", function()
    local handle <close> = assert(io.open "tests/spec/op/casts.lua")
    local source = handle:read "a"
    assert.equal((shell(('"$MESHLUA" %s'):format(helper.file(source)))), must("cuda", source))
  end)

  check("trains as on the processor, on one device and on virtual ones", function()
    local wanted = numbers((shell(('"$MESHLUA" %s'):format(helper.file(train)))))
    assert.equal(8, #wanted)
    local log = os.tmpname()
    helper.close(wanted, numbers(must("cuda", train, "STANDIN_LOG=" .. log)), 1e-5)
    helper.close(wanted, numbers(must("'cuda:0*4'", train)), 1e-5)
    -- The first call of the step launches its kernels, the seven others are one graph (a draw is, too).
    local file <close> = assert(io.open(log))
    local text = file:read "a"
    os.remove(log)
    assert.equal(7 + 1, select(2, text:gsub("cudaGraphLaunch", "")))
    assert.equal(1 + 1, select(2, text:gsub("cudaGraphInstantiate", "")))
  end)

  check("says which call of CUDA failed, whichever it is", function()
    local source = [[
      local ml = require "meshlua"
      local mesh = ml.make_mesh({2}, {"x"})
      local x = ml.device_put(ml.arange(8.0), ml.NamedSharding(mesh, ml.P "x"))
      local step = ml.jit(function(v) return (v * 2):sum() end)
      for _ = 1, 3 do assert(step(x):item() == 56) end
    ]]
    local said, n = 0, 1
    repeat
      local out, err, code = run("cuda:0,1", source, "STANDIN_GPUS=2 STANDIN_BREAK=" .. n)
      local word = err:match "%(CUDA error 999" or err:match "unhandled cuda error"
      assert.truthy(code == 0 and out .. err == "" or code == 3 and word, n .. ": " .. code .. ": " .. err)
      said, n = said + code // 3, n + 7
    until code == 0 and n > 100 or n > 300
    assert.truthy(said > 10, said)
  end)

  check("gives the same bits in every run", function()
    assert.equal(must("'cuda:0*4'", train), must("'cuda:0*4'", train))
  end)

  check("finds a wrong id where a value is read, and names the op's line", function()
    local out, err, code = run("cuda", [[
local ml = require "meshlua"
local y = ml.take(ml.arange(6.0):reshape {3, 2}, ml.tensor {0, 7})
print "goes on"
print(pcall(ml.block_until_ready, y))
print(ml.tensor({1.0}):item())
]])
    assert.same({"", 0}, {err, code})
    assert.truthy(out:find("goes on\nfalse", 1, true), out)
    assert.truthy(out:find("%[E_INDEX%] gather: id 7 is outside 0%.%.2 .*the op was written at %S+:2"), out)
    assert.truthy(out:find("\n1.0\n", 1, true), out)
  end)

  check("prints what is there, of large tensors the corners", function()
    local source = [[
local ml = require "meshlua"
local x = ml.arange(4000):reshape {2, 2000}
print(x, x:T(), ml.arange(3.0) / 8)
local two = ml.device_count() > 1 and ml.make_mesh({2}, {"x"})
if two then x = ml.device_put(x, ml.NamedSharding(two, ml.P(nil, "x"))) end
print((tostring(x):gsub("^.-\n", "")))
]]
    local wanted = shell(('"$MESHLUA" %s'):format(helper.file(source)))
    assert.equal(wanted, must("cuda", source))
    assert.equal(wanted, must("'cuda:0*2'", source))
  end)

  check("decides loops and branches by what it has computed", function()
    local out = must("cuda", [[
local ml = require "meshlua"
local step = ml.jit(function(x)
  return ml.while_loop(function(v) return v:sum():lt(100) end, function(v) return v * 2 end, x)
end)
print(step(ml.tensor {1.0, 2.0}):sum():item())
]])
    assert.equal("192.0\n", out)
  end)

  check("says before anything runs that memory is short, and for what", function()
    local out, err, code = run("cuda", [[
local ml = require "meshlua"
local x = ml.ones {1024, 1024}
local step = ml.jit(function(a) return (a:matmul(a):tanh():matmul(a)):sum() end)
print(pcall(step, ml.ones {8, 8}))
print(step(x):item())
]], "STANDIN_MEMORY=10000000")
    assert.same({"true", 1}, {out:match "^%a+", code})
    assert.truthy(err:find "%[E_NOMEM%] out of memory: the call needs %S+ MiB on the GPU", err)
    assert.truthy(err:find "MiB  float32%[1024,1024%]  matmul  %S+:3", err)
    out = run("cuda", [[
local ml = require "meshlua"
local step = ml.jit(function(a) return a:matmul(a):tanh():matmul(a) end)
print(select(2, pcall(step, ml.ones {1024, 1024})))
]], "STANDIN_MEMORY=14000000")
    -- and 32 MiB that its products take beside their operands
    assert.truthy(out:find("out of memory: the call needs 40.00 MiB on the GPU (4.00 MiB of temporaries, "
      .. "4.00 MiB of results), and ", 1, true), out)
    assert.truthy(out:find(" MiB of its 13.35 MiB are free; tensors and other plans hold 4.00 MiB. ",
      1, true), out)
  end)

  check("counts as free what the temporaries of plans before it take, which are given back first", function()
    local source = [[
local ml = require "meshlua"
local step = ml.jit(function(a) return a:cumsum(1):cumsum(2):cumsum(1):max() end)
for _, n in ipairs {800, 900} do print(("%.5g"):format(step(ml.ones {n, n}):item())) end
]]
    -- 900 x 900 is 3.1 MiB, and two temporaries of it 6.2; but for those of 800 x 800, 4.9, about 4 are free.
    local out, err, code = run("cuda", source, "STANDIN_MEMORY=15000000")
    assert.equal(0, code, err)
    assert.equal("2.5632e+08\n3.649e+08\n", out)
  end)

  check("has at the end of the program all back that it gave", function()
    local log = os.tmpname()
    must("cuda", train, "STANDIN_GPUS=2 STANDIN_LOG=" .. log)
    local calls = {}
    for line in io.lines(log) do
      local name = line:match "^[%w_]+"
      calls[name] = (calls[name] or 0) + 1
    end
    os.remove(log)
    for take, give in pairs {cudaStreamCreate = "cudaStreamDestroy", cudaEventCreate = "cudaEventDestroy",
      cudaHostAlloc = "cudaFreeHost", cudaMalloc = "cudaFree", cudaLibraryLoadData = "cudaLibraryUnload",
      cudaGraphInstantiate = "cudaGraphExecDestroy"} do
      assert.truthy((calls[take] or 0) > 0, take)
      assert.equal(calls[take], calls[give], take)
    end
  end)

  check("is timed by its queue, in the profile", function()
    local file = os.tmpname()
    local _, err, code = run("cuda --profile=" .. file, train)
    os.remove(file)
    assert.equal(0, code)
    assert.truthy(err:find "matmul" and err:find "of limit", err)
  end)

  check("is captured again when the scratch that its graph knows has moved", function()
    local source = [[
local ml = require "meshlua"
local x, a = ml.random.normal(ml.random.key(1), {4096, 64}), ml.ones {64, 64}
local columns = ml.jit(function(a) return (a * 2):sum(1):square():sum(1):sqrt():exp():log() end)
local wanted = columns(x):item()
for _ = 1, 3 do assert(columns(x):item() == wanted) end
if MORE then ml.jit(function(t) return t:matmul(t) end)(a) end -- a product's scratch is larger
for _ = 1, 3 do assert(columns(x):item() == wanted) end
]]
    local function captures(more)
      local log = os.tmpname()
      assert.equal("", must("cuda", "MORE = " .. more .. "\n" .. source, "STANDIN_LOG=" .. log))
      local file <close> = assert(io.open(log))
      os.remove(log)
      return select(2, file:read "a":gsub("cudaGraphInstantiate", ""))
    end
    assert.equal(captures "false" + 1, captures "true")
  end)

  check("has a graph on each of several GPUs for what lies between two exchanges", function()
    local source = [[
local ml = require "meshlua"
local mesh = ml.make_mesh({2}, {"x"})
local a = ml.device_put(ml.random.normal(ml.random.key(1), {4, 8}), ml.NamedSharding(mesh, ml.P "x"))
local step = ml.jit(function(v, w) return (v * w):sort(2):cumsum(2):sort(2):cumsum(2):sum() end)
for i = 1, 4 do print(step(a, ml.tensor {i, 1, 2, 3, 4, 5, 6, 7}):item()) end -- both GPUs want it, one has it
]]
    local log = os.tmpname()
    local out = must("cuda:0,1", source, "STANDIN_GPUS=2 STANDIN_LOG=" .. log)
    local file <close> = assert(io.open(log))
    os.remove(log)
    assert.equal(must("cuda:0*2", source), out)
    local text = file:read "a"
    assert.equal(2 * 3, select(2, text:gsub("cudaGraphLaunch", "")))
    assert.equal(2, select(2, text:gsub("cudaGraphInstantiate", "")))
  end)

  check("leaves no GPU open where there is no memory to use it", function()
    assert.equal("false\t2\t0\n", must("2", [[
local ml = require "meshlua"
ml.core.fail_alloc(0)
local ok = pcall(ml.core.set_devices, "cuda")
ml.core.fail_alloc()
print(ok, ml.device_count(), ml.core.gpu_count())
]]))
  end)

  check("runs without graphs where nothing can be captured", function()
    assert.equal(must("cuda", train), must("cuda", train, "STANDIN_CAPTURE=0"))
  end)

  check("runs without a graph where there is no memory for what it copies", function()
    local out = must("cuda", [[
local ml = require "meshlua"
local fail = ml.core.fail_alloc
local a = ml.random.normal(ml.random.key(1), {4, 8})
local function new() return ml.jit(function(v) return v:sort(2):cumsum(2):sort(2):cumsum(2):sum() end) end
local wanted, kept = new()(a):item(), 0
for n = 0, 40 do
  local step = new()
  step(a)
  fail(n)
  local ok, sum = pcall(step, a)
  if not pcall(fail) then fail() end -- it may be that call's allocation that fails
  assert(not ok or sum:item() == wanted)
  assert(step(a):item() == wanted)
  kept = kept + (ok and 1 or 0)
end
print(kept > 0)
]])
    assert.equal("true\n", out)
  end)

  check("leaves a whole state when other devices are asked for in vain", function()
    local out = must("cuda", [[
local ml = require "meshlua"
print(pcall(ml.config, {devices = "nonsense"}))
print(ml.core.device_kind())
print(pcall(ml.config, {devices = "cuda:99"}))
local x = ml.device_put(ml.ones {4}, ml.NamedSharding(ml.make_mesh({2}, {"x"}), ml.P "x"))
print(ml.core.device_kind(), (x + 1):sum():item())
]], "STANDIN_GPUS=2")
    assert.truthy(out:find "^false.-%[E_MESH%].-\nNVIDIA H200.-\nfalse.-%[E_DEVICE%].-\ncpu.-8%.0\n$", out)
  end)

  check("scalars of a step are read behind the next one, and those of long ago as well", function()
    assert.equal("nil\n28.0\n56.0\n84.0\n112.0 4\ninteger nil 5.0\n", (must("cuda", [[
local ml = require "meshlua"
local late = ml.metrics.late()
local step = ml.jit(function(x, i) return {loss = (x * i):sum(), i = i + 0} end)
for i = 1, 4 do
  local before = late(step(ml.arange(8.0), i))
  print(before and before.loss)
end
local last = late()
print(last.loss .. " " .. last.i)
local t = ml.tensor(2.5) * 2
local number = ml.core.ask(t)
for _ = 1, 100 do ml.core.ask(t) end
print(math.type(number), ml.core.answer(t, number), t:item())
]]):gsub("\t", " ")))
  end)
end)
