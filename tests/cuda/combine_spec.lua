-- combine_spec.lua: the steps of AdamW of many parameters are few launches, on GPUs that the stand-ins play.
local helper = require "spec.helper"
local standin = require "cuda.standin"
local shell = helper.shell

-- 42 parameters, more than a launch takes: some larger than a block, some no whole number of vectors.
local source = [[
local ml = require "meshlua"
local nn, optim = ml.nn, ml.optim
local Net = nn.module("Net")
function Net:init()
  self.p = {}
  for i = 1, 42 do self.p[i] = nn.Param(ml.arange(i % 2 == 0 and 7.0 or 1100.0) * 0.001 + i) end
end
function Net:__call(x)
  local sum = 0
  for _, p in ipairs(self.p) do sum = sum + (p * p * x):sum() end
  return sum
end
local model = Net()
local opt = optim.adamw(model, {lr = 1e-2, clip = 1})
local step = ml.jit(function(model, opt, x)
  local loss, grads = ml.value_and_grad(function(m) return m(x) end)(model)
  opt:update(model, grads)
  return loss
end)
print(step(model, opt, ml.tensor(0.5)))
for i = 1, 42 do
  for _, v in ipairs(model.p[i]:totable()) do io.write(("%.9g "):format(v)) end
end
]]

describe("steps that follow one another", function()
  standin.it("are few launches, and as on the CPU", function()
    local program, log = helper.file(source), os.tmpname()
    local want = shell(('"$MESHLUA" %s'):format(program))
    local got, err, code = shell(([[LD_LIBRARY_PATH=%s STANDIN_LOG=%s "$MESHLUA" --devices=cuda %s]])
      :format(standin.folder, log, program))
    assert.equal(0, code, err)
    local launches, theirs, n = 0, want:gmatch "[%d.e+-]+", 0
    for line in io.lines(log) do
      if line:find("cudaLaunchKernel(adamw", 1, true) then launches = launches + 1 end
    end
    os.remove(log)
    assert.equal(2, launches)
    for word in got:gmatch "[%d.e+-]+" do
      local x, y = tonumber(word), tonumber(theirs())
      n = n + 1
      if x then assert.near(y, x, 1e-5 * math.abs(y)) end
    end
    assert.truthy(n >= 21 * (7 + 1100), n)
  end)
end)
