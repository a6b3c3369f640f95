-- epilogue_spec.lua: products that do what follows them besides, on GPUs that the stand-ins play: what is asked of
-- cublasLt (standin/cublaslt.c), and that the numbers are those of the processor.
local helper = require "spec.helper"
local standin = require "cuda.standin"
local shell, folder = helper.shell, standin.folder

local function numbers_of(text)
  local numbers = {}
  for word in text:gmatch "%S+" do numbers[#numbers + 1] = tonumber(word) end
  return numbers
end

--- How often a log has each line, without the algorithm; nothing in place of the line of a product that does
--- nothing besides.
local function lines_of(log)
  local calls = {}
  for line in io.lines(log) do
    local kind, besides = line:match "^(%a+) ?%d* ?(.*)$"
    if kind ~= "matmul" then besides = kind end
    if besides ~= "" then calls[besides] = (calls[besides] or 0) + 1 end
  end
  calls.check = nil
  return calls
end

--- Runs the source on a GPU whose library is fast (or slow) at such products. Its numbers, and what it asked of the
--- library. Where it had to choose it runs once more, and reads from the cache what it chose.
local function run(source, more, variables)
  local path, log = helper.file(source), os.tmpname()
  local command = ([[MESHLUA_CACHE=%s LD_LIBRARY_PATH=%s STANDIN_CUBLASLT_MORE=%s \
    STANDIN_CUBLASLT_LOG=%s %s "$MESHLUA" --devices=cuda %s]])
    :format(standin.cache, folder, more, log, variables or "", path)
  local out, err, code = shell(command)
  assert.equal(0, code, err)
  local calls = lines_of(log)
  if calls.heuristic and not variables then
    shell(": > " .. log)
    assert.equal(out, (shell(command)))
    calls = lines_of(log)
  end
  calls.heuristic = nil
  os.remove(log)
  return numbers_of(out), calls
end

local function on_processor(source)
  local out, err, code = shell(('"$MESHLUA" %s'):format(helper.file(source)))
  assert.equal(0, code, err)
  return numbers_of(out)
end

local gpt = [[
package.path = "models/?.lua;" .. package.path
local ml, gpt = require "meshlua", require "gpt"
local cfg = setmetatable({layers = 2, width = 72, heads = 4, seq = 16, vocab = 96, batch = 2, precision = %q},
  {__index = gpt.config})
local model = ml.init(function(rngs) return gpt.build(cfg, rngs) end, {seed = 0, rules = gpt.rules.dp})
local optimizer = ml.optim.adamw(model, {lr = 1e-3})
local step = ml.jit(function(m, o, ids, labels)
  local loss, grads = ml.value_and_grad(function(q) return gpt.loss(q, ids, labels) end)(m)
  o:update(m, grads)
  return loss
end, {rules = gpt.rules.dp})
for i = 1, 3 do -- launch by launch, as a graph, which is kept for the third
  local tokens = ml.random.randint(ml.random.key(i), {cfg.batch, cfg.seq + 1}, 0, cfg.vocab)
  print(step(model, optimizer, tokens:slice({}, {1, cfg.seq}), tokens:slice({}, {2, cfg.seq + 1})):item())
end
]]

local few = [[
local ml = require "meshlua"
local function matrix(rows, columns, factor)
  return ml.random.normal(ml.random.key(rows * columns), {rows, columns}) * (factor or 1)
end
local x, w, b, c = matrix(48, 56), matrix(56, 64), matrix(1, 64):reshape(64), matrix(48, 64)
local function show(t) print((t * t):sum():item(), t:max():item(), t:min():item()) end
]]

describe("a product and what follows it", function()
  local function check(name, fn) standin.it(name, fn, "libcublasLt.so.13") end

  check("are one product in a step of GPT", function()
    if helper.watched then helper.pending "a sanitizer makes the GPU that runs on the CPU too slow" end
    for precision, digits in pairs {[""] = 1e-5, bf16 = 1e-2} do
      local source = gpt:format(precision)
      local got, calls = run(source, "fast")
      helper.close(on_processor(source), got, digits)
      -- Two launches of a step with two blocks: query, key, value; what is added to the residual twice; gradients
      -- of all six weights and biases; up, and the gradient of down.
      local wanted = {["bias"] = 2 * 2 * 3, ["c bias"] = 2 * 2 * 2, ["sums"] = 2 * 2 * 6}
      if precision == "bf16" then wanted["bias aux gelu"], wanted["aux dgelu"] = 2 * 2, 2 * 2 end
      assert.same(wanted, calls)
    end
  end)

  check("are one product where a sum grows in a loop, in its place", function()
    local source = few .. [[
local xs = ml.random.normal(ml.random.key(1), {6, 48, 56})
local ys = ml.random.normal(ml.random.key(2), {6, 48, 64})
local f = ml.jit(function(a, ...)
  return (ml.scan(function(sum, part) return sum + part.x:T():matmul(part.y) end, a, {x = xs, y = ys}))
end)
for _ = 1, 3 do show(f(ml.zeros {56, 64})) end
]]
    local got, calls = run(source, "fast")
    helper.close(on_processor(source), got, 1e-5)
    assert.same({c = 2 * 6}, calls)
  end)

  check("stay two where that is faster, is asked for, or somebody needs what is between them", function()
    local source = few .. [[
local f = ml.jit(function(x, w, b) return x:matmul(w) * 0.5 + b end)
for _ = 1, 3 do show(f(x, w, b)) end
]]
    local wanted = on_processor(source)
    local first = "MESHLUA_ALGORITHMS=first"
    for _, how in ipairs {{"fast", nil, {bias = 3}}, {"slow", nil, {}}, {"fast", first, {}}} do
      local got, calls = run(source, how[1], how[2])
      helper.close(wanted, got, 1e-5)
      assert.same(how[3], calls)
    end
    local _, err = shell(([[MESHLUA_CACHE=%s LD_LIBRARY_PATH=%s STANDIN_CUBLASLT_MORE=fast "$MESHLUA" \
      --devices=cuda --profile=/dev/null %s]]):format(standin.cache, folder, helper.file(source)))
    assert.truthy(err:find "\nmatmul fused full mul add +%S+ +3 ", err)
    source = few .. [[
local f = ml.jit(function(x, w, b, c)
  local y = x:matmul(w)
  return y + b, (y - c):sum(), y:T():matmul(c)
end)
for _ = 1, 3 do show((f(x, w, b, c))) end
]]
    local got, calls = run(source, "fast")
    helper.close(on_processor(source), got, 1e-5)
    assert.same({}, calls)
  end)

  check("count in the profile for their launch, and for no other", function()
    local profile = os.tmpname()
    shell(([[MESHLUA_CACHE=%s LD_LIBRARY_PATH=%s STANDIN_CUBLASLT_MORE=fast "$MESHLUA" --devices=cuda \
      --profile=%s %s]]):format(standin.cache, folder, profile, helper.file(few .. [[
local v = matrix(56, 32)
ml.jit(function(x, w, b, v) return x:matmul(v), x:matmul(w) + b end)(x, w, b, v)
]])))
    local file <close> = assert(io.open(profile))
    os.remove(profile)
    local text, flops = file:read "a", {}
    for name, n in text:gmatch '"name":"(matmul[^"]*)","cat":"kernel"[^\n]-"flops":(%d+)' do
      flops[name] = tonumber(n)
    end
    assert.same({matmul = 2 * 48 * 56 * 32, ["matmul fused add"] = (2 * 56 + 1) * 48 * 64}, flops)
  end)

  check("stay two where the one may not wait, and the other not come first", function()
    local source = few .. [[
local f = ml.jit(function(p, x)
  local y = x:matmul(p)
  p:set(p * 2) -- in its place, before a row of it is added
  return y + p:slice({1, 1}, {}):reshape(64)
end)
local p = ml.core.box_new(w, {kind = "param"})
for _ = 1, 3 do show(f(p, x)) end
]]
    local got, calls = run(source, "fast")
    helper.close(on_processor(source), got, 1e-5)
    assert.same({}, calls)
  end)

  check("are one product for what is the library's formula only", function()
    local source = few .. [[
local narrow = {}
for i, t in ipairs {x, w, b, c} do narrow[i] = t:astype "bfloat16" end
x, w, b, c = table.unpack(narrow)
local gelu_slope = ml.grad(function(t) return ml.nn.gelu(t):astype("float32"):sum() end)
local functions = {
  function(p) return ml.nn.gelu(p + b) end,
  function(p) return ml.nn.gelu(p + b) * 2 end,
  function(p) return ml.nn.gelu(p + b, false) end,
  function(p) return ml.nn.silu(p + b) end,
  function(p) return (p + b):clip(-2, 100) end,
  function(p) return 2 * p - c / 4 end,
  function(p) return p * b end,
  function(p) return p + c * c end,
  function(p) return p + b + p * p * p * 1e-8 end,
  function(p) return p * gelu_slope(c) end,
  function(p) return p * gelu_slope(c) + c * 1e-4 end,
}
-- gelu, and beside it what it is of, or not quite.
local function with(fn)
  return function(p) return ml.nn.gelu(p + b), fn(p + b) end
end
for _, fn in ipairs {function(s) return s end, function(s) return s * 2 end, function(s) return s + c end} do
  table.insert(functions, with(fn))
end
for _, fn in ipairs(functions) do
  local f = ml.jit(function() return fn(x:matmul(w)) end)
  for _ = 1, 3 do
    for _, t in ipairs {f()} do show(t:astype "float32") end
  end
end
]]
    local got, calls = run(source, "fast")
    helper.close(on_processor(source), got, 1e-2)
    assert.same({["bias gelu"] = 3, c = 3, ["aux dgelu"] = 3, ["bias aux gelu"] = 3}, calls)
    source = few .. [[
local f = ml.jit(function(x, w, b) return x:matmul(w) + b + 1e-8 end)
for _ = 1, 3 do show(f(x * 0, w, b * 0)) end
]]
    got, calls = run(source, "fast")
    helper.close(on_processor(source), got, 1e-5)
    assert.same({}, calls)
  end)

  check("stay two where an address is not one of 16 bytes", function()
    local source = few .. [[
local f = ml.jit(function(x, w, b) return x:matmul(w) + b:slice {2, 65} end)
for _ = 1, 3 do show(f(x, w, ml.random.normal(ml.random.key(1), {65}))) end
]]
    local got, calls = run(source, "fast")
    helper.close(on_processor(source), got, 1e-5)
    assert.same({}, calls)
  end)
end)
