-- mlp.lua: a recipe: a multilayer perceptron that tells pieces of clothing apart (Fashion-MNIST, of Debian's
-- package dataset-fashion-mnist). Runnable by itself: script/run models/mlp.lua --mesh=data:2,model:4
local ml = require "meshlua"

local nn, optim, schedule = ml.nn, ml.optim, ml.schedule

local M = {name = "mlp", layout = {mesh = "data:4,model:2", rules = "tp"}}

M.config = {
  width = 256, layers = 2, classes = 10, dropout = 0.1,
  precision = "", batch = 128, steps = 6000, lr = 2e-3, warmup = 100, weight_decay = 1e-2,
}

M.help = {
  width = "features of a hidden layer", layers = "hidden layers", classes = "labels are 0 .. classes - 1",
  precision = "of arithmetic: bf16, f16 (with a loss scale); default f32",
  dropout = "share of features dropped while training", batch = "images in a step",
  steps = "updates of the parameters", lr = "learning rate, at its peak", warmup = "steps up to the peak",
  weight_decay = "of matrices, times the learning rate",
}

M.range = {
  width = {least = 1}, layers = {least = 1}, classes = {least = 1}, dropout = {least = 0, most = 1},
  lr = {least = 0}, warmup = {least = 0}, weight_decay = {least = 0},
}

local PIXELS = 28 * 28
local FOLDER = "/usr/share/datasets/fashion-mnist"

-- ---- the model ----------------------------------------------------------------------------------------

local MLP = nn.module "MLP"

function MLP:init(cfg, rngs)
  local dtype = ml.train.precision(cfg)
  local n_in, name_in, name_out = PIXELS, "pixels", "hidden"
  self.hidden = {}
  for i = 1, cfg.layers do
    self.hidden[i] = nn.Linear(n_in, cfg.width, {rngs = rngs, dtype = dtype, axes = {name_in, name_out},
      kernel_init = nn.initializers.he_normal()})
    n_in, name_in, name_out = cfg.width, name_out, name_out == "hidden" and "features" or "hidden"
  end
  self.dropout = nn.Dropout(cfg.dropout)
  self.head = nn.Linear(n_in, cfg.classes, {rngs = rngs, dtype = dtype, axes = {name_in, "classes"}})
end

---@param images Tensor uint8 [batch, 28, 28]
---@param rngs Rngs? keys for dropout while training
---@return Tensor logits [batch, classes]
function MLP:__call(images, rngs)
  local x = images:reshape(images.shape[1], PIXELS):astype "float32" / 255
  for _, layer in ipairs(self.hidden) do x = self.dropout(nn.relu(layer(x)), rngs) end
  return self.head(x)
end

function M.build(cfg, rngs) return MLP(cfg, rngs) end

--- The mean loss in nats per image.
---@param images Tensor uint8 [batch, 28, 28]
---@param labels Tensor uint8 [batch]
function M.loss(model, images, labels, rngs)
  return nn.softmax_cross_entropy_with_integer_labels(model(images, rngs), labels):mean()
end

function M.schedule(cfg)
  return schedule.warmup_cosine {peak_value = cfg.lr, warmup_steps = math.min(cfg.warmup, cfg.steps // 2),
    decay_steps = cfg.steps}
end

function M.optimizer(model, cfg)
  return optim.adamw(model, {lr = M.schedule(cfg), weight_decay = cfg.weight_decay, mask = "matrices"})
end

-- ---- data ---------------------------------------------------------------------------------------------

--- Images and labels in IDX files named as Fashion-MNIST's, in `path`.
function M.data(_, path)
  local folder = path or FOLDER
  local function part(name)
    return ml.data.idx {inputs = ("%s/%s-images-idx3-ubyte.gz"):format(folder, name),
      labels = ("%s/%s-labels-idx1-ubyte.gz"):format(folder, name)}
  end
  local train, message, code = part "train"
  local valid
  if train then valid, message, code = part "t10k" end
  if valid then return {train = train, valid = valid, unit = "img"} end
  if not path then message = message .. "; Debian's package dataset-fashion-mnist has the files" end
  return nil, message, code
end

--- The share of the test images that are told right.
function M.evaluate(run)
  local accuracy, batches, all = run:mean(function(model, images, labels)
    return model(images):argmax(-1):eq(labels:astype "int32"):astype "float32"
  end)
  return {{key = "accuracy", value = accuracy, text = ("test accuracy %.2f%%%s"):format(100 * accuracy,
    batches < all and (", on %d of %d batches"):format(batches, all) or "")}}
end

-- ---- layouts ------------------------------------------------------------------------------------------

--- dp: parameters replicated. tp: the first matrix of each pair split by columns over `model`, the second by
--- rows.
M.rules = {
  dp = {{"batch", "data"}, {"batch", false}, {"pixels", false}, {"hidden", false}, {"features", false},
    {"classes", false}},
  tp = {{"batch", "data"}, {"batch", false}, {"pixels", false}, {"hidden", "model"}, {"hidden", false},
    {"features", false}, {"classes", false}},
}

ml.train.script(M)
return M
