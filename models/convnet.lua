-- convnet.lua: a recipe: a small convolutional network that tells pieces of clothing apart (Fashion-MNIST, as
-- mlp.lua). Runnable by itself: script/run models/convnet.lua --mesh=data:2,model:2
local ml = require "meshlua"
local here = debug.getinfo(1, "S").source:match "^@(.*)convnet%.lua$"

local nn, optim = ml.nn, ml.optim
local mlp = here and assert(loadfile(here .. "mlp.lua"))("mlp") or require "models.mlp" -- beside it, or installed too

local M = {name = "convnet", layout = {mesh = "data:4,model:2", rules = "tp"}, data = mlp.data,
  schedule = mlp.schedule, evaluate = mlp.evaluate}

M.config = {
  channels = 32, blocks = 2, width = 128, classes = 10, dropout = 0.1,
  batch = 128, steps = 3000, lr = 2e-3, warmup = 100, weight_decay = 1e-2,
}

M.help = {
  channels = "features of the first convolution; each block has twice those before it",
  blocks = "convolutions, each followed by a pooling that halves the image",
  width = "features of the hidden layer",
  classes = mlp.help.classes, dropout = mlp.help.dropout, batch = mlp.help.batch, steps = mlp.help.steps,
  lr = mlp.help.lr, warmup = mlp.help.warmup, weight_decay = mlp.help.weight_decay,
}

M.range = {
  channels = {least = 1}, blocks = {least = 1, most = 4}, width = {least = 1}, classes = mlp.range.classes,
  dropout = mlp.range.dropout, lr = mlp.range.lr, warmup = mlp.range.warmup,
  weight_decay = mlp.range.weight_decay,
}

-- ---- the model ----------------------------------------------------------------------------------------

local ConvNet = nn.module "ConvNet"

--- Names alternate, so that every second kernel is split by its output features, the next by its input's.
function ConvNet:init(cfg, rngs)
  local n, name, size = 1, "pixels", 28
  self.convs, self.norms = {}, {}
  for i = 1, cfg.blocks do
    local wider, next_name = cfg.channels << (i - 1), i % 2 == 1 and "hidden" or "features"
    self.convs[i] = nn.Conv(n, wider, {3, 3}, {rngs = rngs, use_bias = false,
      axes = {false, false, name, next_name}, kernel_init = nn.initializers.he_normal()})
    self.norms[i] = nn.BatchNorm(wider, {rngs = rngs, axes = {next_name}, momentum = 0.9})
    n, name, size = wider, next_name, size // 2
  end
  self.hidden = nn.Linear({size, size, n}, cfg.width, {rngs = rngs, axes = {false, false, name, "last"},
    kernel_init = nn.initializers.he_normal()})
  self.dropout = nn.Dropout(cfg.dropout)
  self.head = nn.Linear(cfg.width, cfg.classes, {rngs = rngs, axes = {"last", "classes"}})
end

---@param images Tensor uint8 [batch, 28, 28]
---@param rngs Rngs? keys for dropout while training
---@return Tensor logits [batch, classes]
function ConvNet:__call(images, rngs)
  local x = images:astype("float32"):expand_dims(-1) / 255
  for i, conv in ipairs(self.convs) do
    x = nn.max_pool(nn.relu(self.norms[i](conv(x))), 2, {strides = 2})
  end
  return self.head(self.dropout(nn.relu(self.hidden(x)), rngs))
end

function M.build(cfg, rngs) return ConvNet(cfg, rngs) end

--- The mean loss in nats per image.
---@param images Tensor uint8 [batch, 28, 28]
---@param labels Tensor uint8 [batch]
function M.loss(model, images, labels, rngs)
  return nn.softmax_cross_entropy_with_integer_labels(model(images, rngs), labels):mean()
end

function M.optimizer(model, cfg)
  return optim.adamw(model, {lr = M.schedule(cfg), weight_decay = cfg.weight_decay, mask = "matrices"})
end

-- ---- layouts ------------------------------------------------------------------------------------------

local whole = {{"batch", false}, {"pixels", false}, {"hidden", false}, {"features", false}, {"last", false},
  {"classes", false}}

--- dp: parameters replicated. tp: the first kernel of each pair split by its output features over `model`, the
--- second by its input features.
M.rules = {
  dp = {{"batch", "data"}, table.unpack(whole)},
  tp = {{"batch", "data"}, {"hidden", "model"}, table.unpack(whole)},
}

ml.train.script(M)
return M
