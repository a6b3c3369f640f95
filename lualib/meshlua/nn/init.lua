-- init.lua: the module `meshlua.nn`: modules, layers, activations, initialisers and losses.
local lib = require "meshlua.lib"
local attention = require "meshlua.nn.attention"
local conv = require "meshlua.nn.conv"
local module = require "meshlua.nn.module"
local param = require "meshlua.nn.param"
local rngs = require "meshlua.nn.rngs"
local stack = require "meshlua.nn.stack"

local M = lib.export({
  module = function(name) return (module.module(name)) end,
  is_module = module.is_module,
  each_module = module.each,
  Param = param.Param,
  stack = stack.stack,
  layer = stack.layer,
  scan = stack.scan,
  pipeline = function(layers, batch, options)
    return require("meshlua.nn.pipeline").pipeline(layers, batch, options)
  end,
  explain_pipeline = function(layers, batch, options)
    return require("meshlua.nn.pipeline").explain_pipeline(layers, batch, options)
  end,
  attention = attention.attention,
  rope = require("meshlua.nn.rope").rope,
  dropout = require("meshlua.nn.dropout").dropout,
  lora = require("meshlua.nn.lora").lora,
  merge_lora = require("meshlua.nn.lora").merge_lora,
  max_pool = conv.max_pool,
  avg_pool = conv.avg_pool,
}, "nn.")

M.Rngs, M.RngStream, M.Sequential = rngs.Rngs, rngs.RngStream, module.Sequential
M.Linear = require("meshlua.nn.linear").Linear
M.Embed = require("meshlua.nn.embed").Embed
M.LayerNorm = require("meshlua.nn.norm").LayerNorm
M.RMSNorm = require("meshlua.nn.norm").RMSNorm
M.BatchNorm = require("meshlua.nn.batch_norm").BatchNorm
M.Conv, M.ConvTranspose = conv.Conv, conv.ConvTranspose
for _, part in ipairs {"group_norm", "recurrent"} do
  for name, class in pairs(require("meshlua.nn." .. part)) do M[name] = class end
end
M.MoE = require("meshlua.nn.moe").MoE
M.MultiHeadAttention = attention.MultiHeadAttention
M.Dropout = require("meshlua.nn.dropout").Dropout
M.initializers = lib.strict(lib.export(require "meshlua.nn.initializers", "initializers."), "nn.initializers",
  "initializers.")

for _, functions in ipairs {require "meshlua.nn.activations", (require "meshlua.nn.losses")} do
  lib.export(functions, "nn.")
  for name, fn in pairs(functions) do M[name] = fn end
end

return lib.strict(M, "nn", "nn.")
