-- mnist1d.lua: trains the four networks of the data set mnist1d (Greydanus 2020), as it is and with its places shuffled,
-- by the recipe published with it: 6000 steps of Adam over batches of 100 in the order of the data; three seeds. Which
-- step the published accuracies are of is not said, so both ends are told: the last step, and the best of all that were
-- evaluated, each 250th. What was published must be within 2 points of the range between them.
-- `script/peers mnist1d`, or `build/meshlua tests/peers/mnist1d.lua FOLDER [MODEL...]` with what mnist1d_data.py wrote.
local ml = require "meshlua"

local nn, optim = ml.nn, ml.optim
local STEPS, EVERY, BATCH, RATE, SEEDS = 6000, 250, 100, 1e-2, 3

local models = {}

--- Options of layers: weights begin as PyTorch's do.
local function like(rngs, more)
  more = more or {}
  more.rngs, more.kernel_init = rngs, nn.initializers.variance_scaling(1 / 3, "fan_in", "uniform")
  return more
end

--- A module of layers, and how they are called.
local function model(name, make, call)
  local class = nn.module(name)
  function class:init(rngs)
    for key, layer in pairs(make(rngs)) do self[key] = layer end
  end
  function class:__call(x) return call(self, x) end
  models[name] = class
end

model("logistic", function(rngs) return {out = nn.Linear(40, 10, like(rngs))} end,
  function(m, x) return m.out(x) end)

-- 256 features stand in the published arguments; the class beside them has 100 by itself.
model("MLP", function(rngs)
  return {first = nn.Linear(40, 256, like(rngs)), second = nn.Linear(256, 256, like(rngs)),
    out = nn.Linear(256, 10, like(rngs))}
end, function(m, x)
  x = nn.relu(m.first(x))
  return m.out(x + nn.relu(m.second(x)))
end)

model("CNN", function(rngs)
  local function conv(n_in, width)
    return nn.Conv(n_in, 25, {width}, like(rngs, {strides = 2, padding = {{1, 1}}}))
  end
  return {convs = {conv(1, 5), conv(25, 3), conv(25, 3)}, out = nn.Linear(125, 10, like(rngs))}
end, function(m, x)
  x = x:reshape(-1, 40, 1)
  for _, conv in ipairs(m.convs) do x = nn.relu(conv(x)) end
  return m.out(x:reshape(-1, 125))
end)

model("GRU", function(rngs)
  local options = like(rngs)
  options.recurrent_kernel_init = options.kernel_init -- which divide by the hidden features, both
  options.kernel_init = nn.initializers.variance_scaling(1 / 18, "fan_in", "uniform")
  local function rnn() return nn.RNN(nn.GRUCell(1, 6, options)) end
  return {both = nn.Bidirectional(rnn(), rnn()), out = nn.Linear(480, 10, like(rngs))}
end, function(m, x)
  return m.out((m.both(x:reshape(-1, 40, 1))):reshape(-1, 480))
end)

-- Percent right, of the data as they are and shuffled.
local published = {{"logistic", 32, 32}, {"MLP", 68, 68}, {"CNN", 94, 56}, {"GRU", 91, 57}}

--- Percent of the test rows that a network has right at the end, and at its best; means of the seeds.
local function trained(class, data)
  local xs, ys = data.x:reshape(-1, BATCH, 40), data.y:reshape(-1, BATCH)
  local step = ml.jit(function(m, o, x, y)
    o:update(m, ml.grad(function(n)
      return nn.softmax_cross_entropy_with_integer_labels(n(x), y):mean()
    end)(m))
  end)
  local right = ml.jit(function(m, x, y) return m(x):argmax(2):eq(y):mean() end)
  local last, best = 0, 0
  for seed = 1, SEEDS do
    local net = ml.init(class, {seed = seed})
    local opt, now, most = optim.adam(net, {lr = RATE}), 0, 0
    for i = 0, STEPS - 1 do
      local batch = i % xs.shape[1] + 1
      step(net, opt, xs:at(batch), ys:at(batch))
      if (i + 1) % EVERY == 0 then
        now = right(net, data.x_test, data.y_test):item() * 100
        most = math.max(most, now)
      end
    end
    last, best = last + now / SEEDS, best + most / SEEDS
  end
  return last, best
end

local folder = assert(arg[1], "usage: mnist1d.lua FOLDER [MODEL...]")
local wanted, failed = {}, false
for i = 2, #arg do wanted[arg[i]] = true end
for _, row in ipairs(published) do
  for k, name in ipairs {"plain", "shuffled"} do
    if #arg < 2 or wanted[row[1]] then
      local last, best = trained(models[row[1]], assert(ml.load(folder .. "/" .. name .. ".npz")))
      local is_near = row[k + 1] >= last - 2 and row[k + 1] <= best + 2
      failed = failed or not is_near
      print(("%-8s %-8s %5.1f %% at the end, %5.1f %% at best, published %d %%%s"):format(row[1], name, last,
        best, row[k + 1], is_near and "" or ": not within 2"))
    end
  end
end
if failed then os.exit(1) end
