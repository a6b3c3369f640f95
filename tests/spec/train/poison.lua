-- poison.lua: a recipe for tests: a model of bytes that gives a NaN where a record has the byte 255, and a loss far
-- above the others where it has 254; broken is the number of a device that computes wrongly.
local ml = require "meshlua"
local nn, optim = ml.nn, ml.optim

local M = {name = "poison", layout = {mesh = "none", rules = "dp"},
  config = {batch = 8, steps = 24, seq = 8, width = 8, lr = 1e-2, broken = -1},
  rules = {dp = {{"batch", "data"}}}}

local Net = nn.module "Net"
function Net:init(cfg, rngs)
  self.embed = nn.Embed(256, cfg.width, {rngs = rngs})
  self.norm = nn.BatchNorm(cfg.width, {rngs = rngs})
  self.drop = nn.Dropout(0.1)
  self.head = nn.Linear(cfg.width, 256, {rngs = rngs})
end
function Net:__call(ids, rngs)
  local x = self.embed(ids)
  local poison = ids:eq(255):astype("float32"):neg():log1p() -- 0, and -inf where there is a 255
  x = x + (poison * 0):reshape(ids.shape[1], ids.shape[2], 1)
  return self.head(self.drop(self.norm(x), rngs))
end

function M.build(cfg, rngs)
  if cfg.broken >= 0 then ml.core.plant("matmul", cfg.broken) end -- a device whose products have a bit wrong
  return Net(cfg, rngs)
end
function M.loss(model, inputs, labels, rngs)
  local spike = labels:eq(254):astype("float32"):sum() * 1e3
  return nn.softmax_cross_entropy_with_integer_labels(model(inputs, rngs), labels):mean() * (spike + 1)
end
function M.schedule(cfg) return ml.schedule.constant(cfg.lr) end
function M.optimizer(model, cfg) return optim.adamw(model, {lr = cfg.lr}) end
function M.data(cfg, path)
  local tokens, message, code = ml.data.tokens(path)
  if not tokens then return nil, message, code end
  local cut = #tokens * 9 // 10
  return {train = ml.data.windows(tokens, cfg.seq, 0, cut), valid = ml.data.windows(tokens, cfg.seq, cut),
    unit = "byte"}
end
return M
